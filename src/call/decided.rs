//! The third stage: may it run? Allow makes a [`Permit`], deny makes an answer, ask makes it wait for a person.
//!
//! The judge itself, a pure function of rules and accesses, lives in `permission`.

use std::path::Path;

use super::checked::CheckedCall;
use super::planned::Answer;
use crate::permission::{Question, Rule, Rules, Verdict, grant, judge};
use crate::session::record::{
    DecidedBy, Decision, DecisionRecord, Granted, OperationId, PlannedFile, ResultStatus, Scope,
};
use crate::tool::{Assessment, Effect, Moot, Refusal, Waits};

/// The right to run one operation once, as it was judged. Only the deciding stages make one: this one, and
/// [`super::settled`] from a person's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Permit {
    /// What is recorded before it runs; `None` for reads that never ask.
    grounds: Option<Grounds>,
    /// The files as they were judged or shown; what differs is stale.
    files: Vec<PlannedFile>,
    /// A person's answer to the question that was shown.
    answer: Option<String>,
    /// What the call asked back; the answer is to that.
    asked: Option<Waits>,
}

/// Who decided, what, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Grounds {
    pub decision: Decision,
    pub by: DecidedBy,
    /// A person's words.
    pub reason: Option<String>,
    pub granted: Option<Granted>,
}

impl Grounds {
    pub fn record(&self, id: &OperationId) -> DecisionRecord {
        DecisionRecord {
            call_id: id.call_id.clone(),
            operation: id.operation,
            decision: self.decision,
            auto_decided_by: self.by.clone(),
            reason: self.reason.clone(),
            granted: self.granted.clone(),
        }
    }
}

impl Permit {
    pub(super) fn new(grounds: Option<Grounds>, files: Vec<PlannedFile>) -> Self {
        Self { grounds, files, answer: None, asked: None }
    }

    #[must_use]
    pub(super) fn with_answer(mut self, answer: Option<String>) -> Self {
        self.answer = answer;
        self
    }

    /// The same, for a call that asked this and is run again.
    #[must_use]
    pub(super) fn resuming(mut self, asked: Option<Waits>) -> Self {
        if let (Some(grounds), Some(_)) = (&mut self.grounds, &asked) {
            // Its result is another's words: the person's own stand here.
            grounds.reason.clone_from(&self.answer);
        }
        self.asked = asked;
        self
    }

    pub fn asked(&self) -> Option<&Waits> {
        self.asked.as_ref()
    }

    pub fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }

    pub fn grounds(&self) -> Option<&Grounds> {
        self.grounds.as_ref()
    }

    pub fn files(&self) -> &[PlannedFile] {
        &self.files
    }
}

/// What the rules say of a call.
pub enum Decided {
    Allowed(Permit),
    Denied(Answer),
    /// A person has to say, for this reason.
    Ask(String),
    /// It would fail, whatever a person said.
    Moot(Refusal),
}

/// Why a question asks. No rule and no config can answer it.
pub const QUESTION_ASKS: &str = "only a person can answer it";

/// Judges a call by the rules and by what config says of its tool. A question asks whatever allows it.
pub fn decide(call: &CheckedCall<'_>, assessment: &Assessment, rules: &Rules) -> Decided {
    if let Some(why) = &call.tool.withheld {
        return Decided::Denied(not_offered(call.tool.name(), why));
    }
    match judge(&question(call, assessment), rules) {
        Verdict::Allow { .. } | Verdict::Ask { .. } if assessment.preview.is_question() => {
            Decided::Ask(QUESTION_ASKS.to_owned())
        }
        Verdict::Allow { decided_by: by, never_asks } => {
            // A side effect that would fail is not begun; a read tells by itself what it finds.
            if let (Effect::SideEffect, Some(moot)) = (call.tool.tool.effect(), &assessment.moot) {
                return Decided::Moot(moot.refusal().clone());
            }
            let grounds =
                (!never_asks).then_some(Grounds { decision: Decision::Allow, by, reason: None, granted: None });
            Decided::Allowed(Permit::new(grounds, assessment.files.clone()))
        }
        Verdict::Ask { why } => match &assessment.moot {
            Some(Moot::Plain(refusal)) => Decided::Moot(refusal.clone()),
            Some(Moot::Veiled(_)) | None => Decided::Ask(why),
        },
        Verdict::Deny { decided_by, message } => Decided::Denied(denied_by_rule(decided_by, message)),
    }
}

/// The call as the judge is asked about it.
pub fn question<'q>(call: &'q CheckedCall<'_>, assessment: &'q Assessment) -> Question<'q> {
    Question {
        tool: call.tool.name(),
        effect: call.tool.tool.effect(),
        accesses: &assessment.accesses,
        run: call.tool.run,
    }
}

/// The rules that would let this very call pass from now on; `None` where none can.
pub fn suggested_rules(call: &CheckedCall<'_>, assessment: &Assessment, root: &Path) -> Option<Vec<Rule>> {
    if assessment.preview.is_question() { None } else { grant::suggest(&question(call, assessment), root) }
}

fn not_offered(tool: &str, why: &str) -> Answer {
    let by = DecidedBy { scope: Scope::Config, reason: Some(why.to_owned()), rule: None, matches: Vec::new() };
    denied_by_rule(by, format!("{tool} is not offered in this turn ({why})."))
}

fn denied_by_rule(by: DecidedBy, message: String) -> Answer {
    Answer {
        grounds: Some(Grounds { decision: Decision::Deny, by, reason: None, granted: None }),
        ..Answer::new(ResultStatus::Denied, "denied", message)
    }
}
