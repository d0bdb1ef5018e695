//! The plan of a reply: what becomes of each open operation, as a pure function of the calls, the facts gathered about
//! the world, the rules, a person's decisions and the turn's settings.
//!
//! The first call that must ask raises the `suspending` flag. From it on nothing runs, so that side effects keep the
//! order the model wrote; what needs no execution is answered all the same.

use super::checked::CheckedCall;
use super::decided::{Decided, Grounds, Permit, decide, question};
use super::settled::{self, Decisions, Settled};
use crate::permission::grant;
use crate::permission::{Rule, Rules};
use crate::session::pending::PendingCall;
use crate::session::record::{OnAsk, OperationId, ResultStatus, TrailingReads};
use crate::tool::{Assessment, Effect, Overlay, Refusal};
use crate::workspace::World;

/// An operation without a result.
pub struct OpenOperation<'a> {
    pub id: OperationId,
    /// The tool's name as the model wrote it.
    pub name: &'a str,
    pub checked: Result<CheckedCall<'a>, Refusal>,
    /// Where it stands in its reply, from 0, operations counted one by one.
    pub index: u64,
}

/// What a plan depends on, the operations aside.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    pub world: &'a World,
    pub rules: &'a Rules,
    pub decisions: Decisions<'a>,
    /// The first operation of this reply that a person denied, by its index, if that is recorded already.
    pub denied_index: Option<u64>,
    pub trailing_reads: TrailingReads,
    pub on_ask: OnAsk,
    /// How many operations of this reply may run; the rest meet a limit.
    pub operations_max: u64,
    /// Which limit that is, in words for the model.
    pub limit: &'a str,
}

/// What becomes of an operation.
pub enum Next<'a> {
    /// It has its result without being run.
    Answered(Answer),
    Run(Box<Ready<'a>>),
    Park(Box<Parked<'a>>),
    /// It is kept in pending.json and judged again when its turn comes.
    Carry(CheckedCall<'a>),
    /// It is left without a result, for the repair on resume.
    Strand,
    /// It, or one before it, would have to ask where nobody may be asked; with the rules that would allow it.
    WouldAsk {
        answer: Answer,
        grant: Option<Vec<Rule>>,
    },
}

/// An operation of a plan.
pub struct Planned<'a> {
    pub id: OperationId,
    pub name: &'a str,
    pub next: Next<'a>,
}

/// A result that needs no execution.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: ResultStatus,
    pub code: &'static str,
    pub content: String,
    /// As in [`Refusal::detail`].
    pub detail: Option<String>,
    pub reason: Option<String>,
    /// A decision, to be recorded before the result.
    pub grounds: Option<Grounds>,
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self {
            status: ResultStatus::Error,
            code: refusal.code,
            content: refusal.message,
            detail: refusal.detail,
            reason: None,
            grounds: None,
        }
    }
}

/// An operation that may run, with the permit to do so.
pub struct Ready<'a> {
    pub call: CheckedCall<'a>,
    pub assessment: Assessment,
    pub permit: Permit,
}

/// An operation that waits for a person.
pub struct Parked<'a> {
    pub call: CheckedCall<'a>,
    pub assessment: Assessment,
    pub why: String,
    pub grant: Option<Vec<Rule>>,
    /// What was decided already, where it was shown before.
    pub before: Option<&'a PendingCall>,
}

/// Plans every open operation of a reply, in order.
pub fn plan<'a>(operations: &'a [OpenOperation<'a>], situation: &Situation<'a>) -> Vec<Planned<'a>> {
    let mut planner = Planner { situation, suspending: false, would_ask: false, overlay: Overlay::new() };
    operations
        .iter()
        .map(|operation| Planned { id: operation.id.clone(), name: operation.name, next: planner.next(operation) })
        .collect()
}

struct Planner<'a, 's> {
    situation: &'s Situation<'a>,
    suspending: bool,
    /// `--on-ask fail` met a call that must ask.
    would_ask: bool,
    overlay: Overlay,
}

impl<'a> Planner<'a, '_> {
    fn next(&mut self, operation: &'a OpenOperation<'a>) -> Next<'a> {
        let settled = self.situation.decisions.settled(&operation.id);
        // What a person said no to stays denied, whatever becomes of the calls before it.
        if let Settled::Refused(call) = settled {
            return Next::Answered(settled::refusal(call));
        }
        if self.would_ask {
            let answer = would_ask("A call before this one would have to ask a person.");
            return Next::WouldAsk { answer, grant: None };
        }
        if matches!(settled, Settled::Stranded) {
            return Next::Strand;
        }
        let call = match &operation.checked {
            Ok(call) => call,
            Err(refusal) => return Next::Answered(refusal.clone().into()),
        };
        if !self.situation.decisions.is_continuation() && operation.index >= self.situation.operations_max {
            return Next::Answered(limit(self.situation.limit));
        }
        let assessed = call.tool.tool.assess(&call.arguments, self.situation.world, &self.overlay);
        let assessment = match (assessed, settled) {
            (Ok(assessment), _) => assessment,
            // It applied when it was shown, so something changed since.
            (Err(refusal), Settled::Approved(_) | Settled::Undecided) => {
                return Next::Answered(settled::stale(&format!(
                    "It no longer applies as it was shown; nothing was done. {}",
                    refusal.message
                )));
            }
            (Err(refusal), _) => return Next::Answered(refusal.into()),
        };
        let after = assessment.after.clone();
        let next = match settled {
            Settled::Approved(before) => self.approved(call, assessment, before),
            Settled::Judge | Settled::Undecided => self.judged(operation, call, assessment),
            Settled::Refused(_) | Settled::Stranded => Next::Strand,
        };
        // Patches of one reply stack, whether they run or wait.
        match &next {
            Next::Run(_) | Next::Park(_) | Next::Carry(_) => self.overlay.extend(after),
            Next::Answered(_) | Next::Strand | Next::WouldAsk { .. } => {}
        }
        next
    }

    /// A person said yes to what was shown. A tool that is no longer offered is refused all the same.
    fn approved(&self, call: &CheckedCall<'a>, assessment: Assessment, before: &'a PendingCall) -> Next<'a> {
        if call.tool.withheld.is_some()
            && let Decided::Denied(answer) = decide(call, &assessment, self.situation.rules)
        {
            return Next::Answered(answer);
        }
        match settled::permit(before, &assessment) {
            Err(answer) => Next::Answered(*answer),
            Ok(_) if self.suspending => {
                let why = before.why.clone().unwrap_or_default();
                self.park(call, assessment, why, Some(before))
            }
            Ok(permit) => Next::Run(Box::new(Ready { call: call.clone(), assessment, permit })),
        }
    }

    fn judged(&mut self, operation: &OpenOperation<'a>, call: &CheckedCall<'a>, assessment: Assessment) -> Next<'a> {
        let reads = call.tool.tool.effect() == Effect::Read;
        let denied_before = self.situation.denied_index.is_some_and(|denied| denied < operation.index)
            || self.situation.decisions.denied_before(&operation.id);
        if !reads && denied_before {
            return Next::Answered(Answer {
                status: ResultStatus::Cancelled,
                code: "earlier_call_denied",
                content: "Not run: the user denied a call before this one.".to_owned(),
                detail: None,
                reason: None,
                grounds: None,
            });
        }
        match decide(call, &assessment, self.situation.rules) {
            Decided::Denied(answer) => Next::Answered(answer),
            Decided::Allowed(permit) if !self.suspending => {
                Next::Run(Box::new(Ready { call: call.clone(), assessment, permit }))
            }
            Decided::Allowed(_) => match self.situation.trailing_reads {
                TrailingReads::Carry => Next::Carry(call.clone()),
                TrailingReads::Strand => Next::Strand,
            },
            Decided::Ask(why) => match self.situation.on_ask {
                OnAsk::Suspend => {
                    self.suspending = true;
                    self.park(call, assessment, why, None)
                }
                OnAsk::Deny => Next::Answered(denied_unattended(&why)),
                OnAsk::Fail => {
                    self.would_ask = true;
                    let answer = would_ask(&format!("It would have to ask a person: {why}."));
                    Next::WouldAsk {
                        answer,
                        grant: grant::suggest(&question(call, &assessment), self.situation.rules.root()),
                    }
                }
            },
        }
    }

    fn park(
        &self,
        call: &CheckedCall<'a>,
        assessment: Assessment,
        why: String,
        before: Option<&'a PendingCall>,
    ) -> Next<'a> {
        let grant = grant::suggest(&question(call, &assessment), self.situation.rules.root());
        Next::Park(Box::new(Parked { call: call.clone(), assessment, why, grant, before }))
    }
}

fn limit(which: &str) -> Answer {
    Answer {
        status: ResultStatus::Error,
        code: "limit",
        content: format!("Not run: {which}."),
        detail: None,
        reason: None,
        grounds: None,
    }
}

fn would_ask(content: &str) -> Answer {
    Answer {
        status: ResultStatus::Cancelled,
        code: "would_ask",
        content: format!("Not run. {content}"),
        detail: None,
        reason: None,
        grounds: None,
    }
}

fn denied_unattended(why: &str) -> Answer {
    use crate::session::record::{DecidedBy, Decision, Scope};
    let by = DecidedBy {
        scope: Scope::CommandLine,
        reason: Some("--on-ask deny".to_owned()),
        rule: None,
        matches: Vec::new(),
    };
    Answer {
        status: ResultStatus::Denied,
        code: "denied",
        content: format!("Denied: it would have to ask a person ({why}), and nobody is there to ask."),
        detail: None,
        reason: None,
        grounds: Some(Grounds { decision: Decision::Deny, by, reason: None, granted: None }),
    }
}

#[cfg(test)]
mod tests;
