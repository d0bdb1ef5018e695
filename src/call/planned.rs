//! The plan of a reply: what becomes of each open operation, as a pure function of the calls, the facts gathered about
//! the world, the rules, a person's decisions and the turn's settings.
//!
//! The first call that must ask raises the `suspending` flag. From it on nothing runs, so that side effects keep the
//! order the model wrote; what needs no execution is answered all the same.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::checked::CheckedCall;
use super::decided::{Decided, Grounds, Permit, QUESTION_ASKS, decide, suggested_rules};
use super::fanned::is_failure;
use super::repeated::{self, Key, Memory};
use super::settled::{self, Decisions, Settled};
use crate::permission::{Rule, Rules};
use crate::session::history::Waiting;
use crate::session::pending::{Needs, PendingCall};
use crate::session::record::{
    Attachment, DecidedBy, Decision, OnAsk, OnError, OperationId, ResultStatus, Scope, TrailingReads,
};
use crate::tool::{Assessment, Effect, Moot, Overlay, Refusal, Tool, Waits};
use crate::workspace::World;

/// An operation without a result.
pub struct OpenOperation<'a> {
    pub id: OperationId,
    /// Of the tool, `run_tool` taken off.
    pub name: Cow<'a, str>,
    pub checked: Result<CheckedCall<'a>, Refusal>,
    /// Where it stands in its reply, from 0, operations counted one by one.
    pub index: u64,
    /// A failure before it in its call keeps it from running.
    pub stops: bool,
    /// What it asked back when it was run before.
    pub waiting: Option<Waiting>,
}

impl OpenOperation<'_> {
    /// What it asked back, as its tool says it.
    fn asked(&self) -> Option<Waits> {
        self.waiting.as_ref().map(Waiting::asked)
    }
}

/// A call that asked back is what it was, but for what a person is shown of it.
pub fn asking_back(assessment: Assessment, tool: &dyn Tool, waiting: Option<&Waiting>) -> Assessment {
    match waiting.and_then(|waiting| tool.asked_back(&waiting.asked(), waiting.round)) {
        Some(preview) => Assessment { preview, ..assessment },
        None => assessment,
    }
}

/// Which limit the calls of a reply meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallLimit {
    Reply,
    /// Smaller replies are of no use then.
    Turn,
}

/// What a plan depends on, the operations aside.
#[derive(Clone, Copy)]
pub struct Situation<'s, 'a> {
    pub world: &'s World,
    pub rules: &'s Rules,
    pub decisions: Decisions<'a>,
    /// What earlier reads of this invocation found; refreshed.
    pub memory: &'s Memory,
    /// The first operation of this reply that a person denied, by its index, if that is recorded.
    pub denied_index: Option<u64>,
    /// By call: its first operation that is recorded as a failure.
    pub failed: &'s HashMap<String, u32>,
    pub trailing_reads: TrailingReads,
    pub on_ask: OnAsk,
    /// How many operations of this reply may run; the rest meet a limit.
    pub operations_max: u64,
    /// Which limit that is.
    pub limit: CallLimit,
}

/// What becomes of an operation.
pub enum Next<'a> {
    /// It has its result without being run.
    Answered(Answer),
    Run(Box<Ready<'a>>),
    /// A read like one that runs before it in the same run: it takes that one's result if it ends well, else it runs.
    RunUnlessRepeated {
        of: OperationId,
        ready: Box<Ready<'a>>,
    },
    Park(Box<Parked<'a>>),
    /// It is kept in pending.json and judged again when its turn comes.
    Carry {
        call: CheckedCall<'a>,
        summary: String,
    },
    /// It is left without a result, for the repair on resume.
    Strand,
    /// It, or one before it, would have to ask where nobody may be asked; with the rules that would allow it.
    WouldAsk {
        answer: Answer,
        why: String,
        /// What it would have waited for itself.
        needs: Needs,
        grant: Option<Vec<Rule>>,
    },
}

impl<'a> Next<'a> {
    /// What runs for certain.
    pub fn running(&self) -> Option<&Ready<'a>> {
        match self {
            Self::Run(ready) => Some(ready),
            Self::RunUnlessRepeated { .. }
            | Self::Answered(_)
            | Self::Park(_)
            | Self::Carry { .. }
            | Self::Strand
            | Self::WouldAsk { .. } => None,
        }
    }
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
    /// Of an operation that is not run: the one whose failure stopped it.
    pub stopped_by: Option<u32>,
    /// Of a read that is answered from memory.
    pub attachments: Vec<Attachment>,
    pub output_file: Option<String>,
}

impl Answer {
    pub fn new(status: ResultStatus, code: &'static str, content: impl Into<String>) -> Self {
        Self {
            status,
            code,
            content: content.into(),
            detail: None,
            reason: None,
            grounds: None,
            stopped_by: None,
            attachments: Vec::new(),
            output_file: None,
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self { detail: refusal.detail, ..Self::new(ResultStatus::Error, refusal.code, refusal.message) }
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
pub fn plan<'a>(operations: &'a [OpenOperation<'a>], situation: &Situation<'_, 'a>) -> Vec<Planned<'a>> {
    let mut planner = Planner {
        situation,
        suspending: false,
        would_ask: false,
        effect_ahead: false,
        running: HashMap::new(),
        overlay: Overlay::new(),
    };
    operations
        .chunk_by(|one, other| one.id.call_id == other.id.call_id)
        .flat_map(|call| {
            let nexts = planner.call(call);
            call.iter().zip(nexts).map(|(operation, next)| Planned {
                id: operation.id.clone(),
                name: &operation.name,
                next,
            })
        })
        .collect()
}

struct Planner<'a, 's> {
    situation: &'s Situation<'s, 'a>,
    suspending: bool,
    /// `--on-ask fail` met a call that must ask.
    would_ask: bool,
    /// A side effect runs before what is planned now, so nothing found before it may count.
    effect_ahead: bool,
    /// The reads of this plan that run, by what they ask for.
    running: HashMap<Key, OperationId>,
    overlay: Overlay,
}

impl<'a> Planner<'a, '_> {
    /// The operations of one call.
    fn call(&mut self, operations: &'a [OpenOperation<'a>]) -> Vec<Next<'a>> {
        let mut failed = operations.first().and_then(|first| self.situation.failed.get(&first.id.call_id).copied());
        let mut nexts = Vec::with_capacity(operations.len());
        for operation in operations {
            let is_behind = |by: &u32| operation.id.operation.is_some_and(|number| number > *by);
            if let Some(by) = failed.filter(|by| operation.stops && is_behind(by)) {
                nexts.push(Next::Answered(not_run(by)));
                continue;
            }
            let next = self.next(operation);
            if let (Next::Answered(answer), Some(number)) = (&next, operation.id.operation)
                && is_failure(answer.status)
            {
                failed = Some(failed.map_or(number, |by| by.min(number)));
            }
            nexts.push(next);
        }
        if nexts.iter().any(|next| matches!(next, Next::Park(_))) {
            return operations.iter().zip(nexts).map(|(operation, next)| self.held(operation, next)).collect();
        }
        nexts
    }

    /// An operation whose call waits for a person: nothing of the call runs before all of it is decided.
    fn held(&self, operation: &'a OpenOperation<'a>, next: Next<'a>) -> Next<'a> {
        match next {
            Next::Run(ready) | Next::RunUnlessRepeated { ready, .. } => {
                match self.situation.decisions.settled(&operation.id) {
                    Settled::Approved(before) => {
                        let why = before.why.clone().unwrap_or_default();
                        self.park(&ready.call, ready.assessment, why, Some(before))
                    }
                    Settled::Judge | Settled::Undecided | Settled::Refused(_) | Settled::Stranded => {
                        Next::Carry { call: ready.call, summary: ready.assessment.summary }
                    }
                }
            }
            // In strand mode too: a call is not torn apart.
            Next::Strand if !matches!(self.situation.decisions.settled(&operation.id), Settled::Stranded) => {
                let Ok(call) = &operation.checked else { return Next::Strand };
                let assessed = call.tool.tool.assess(&call.arguments, self.situation.world, &self.overlay);
                let summary = assessed.map(|assessment| assessment.summary).unwrap_or_default();
                Next::Carry { call: call.clone(), summary }
            }
            next => next,
        }
    }

    fn next(&mut self, operation: &'a OpenOperation<'a>) -> Next<'a> {
        let settled = self.situation.decisions.settled(&operation.id);
        // What a person said no to stays denied, whatever becomes of the calls before it.
        if let Settled::Refused(call) = settled {
            return Next::Answered(settled::refusal(call));
        }
        if self.would_ask {
            let answer = would_ask("A call before this one would have to ask a person.");
            let (needs, grant) = self.wants_if_it_asks(operation).unwrap_or((Needs::Nothing, None));
            return Next::WouldAsk { answer, why: "a call before it would have to ask".to_owned(), needs, grant };
        }
        if matches!(settled, Settled::Stranded) {
            return Next::Strand;
        }
        let call = match &operation.checked {
            Ok(call) => call,
            Err(refusal) if operation.waiting.is_some() => {
                return Next::Answered(Answer::new(
                    ResultStatus::Unknown,
                    "unknown_outcome",
                    format!(
                        "It asked something back and cannot be gone on with: {}\nWhat it did before it asked stands.",
                        refusal.message
                    ),
                ));
            }
            Err(refusal) => return Next::Answered(refusal.clone().into()),
        };
        if !self.situation.decisions.is_continuation() && operation.index >= self.situation.operations_max {
            return Next::Answered(limit(self.situation.limit));
        }
        let assessed = call.tool.tool.assess(&call.arguments, self.situation.world, &self.overlay);
        let shown_before = matches!(settled, Settled::Approved(_) | Settled::Undecided);
        let assessed = assessed.and_then(|assessment| match assessment.moot {
            Some(Moot::Plain(refusal)) if shown_before => Err(refusal),
            moot => Ok(Assessment { moot, ..assessment }),
        });
        let assessment = match assessed {
            Ok(assessment) => assessment,
            // It applied when it was shown, so something changed since.
            Err(refusal) if shown_before => {
                return Next::Answered(settled::stale(&format!(
                    "It no longer applies as it was shown; nothing was done. {}",
                    refusal.message
                )));
            }
            Err(refusal) => return Next::Answered(refusal.into()),
        };
        let assessment = asking_back(assessment, call.tool.tool.as_ref(), operation.waiting.as_ref());
        // What was approved, or answered, was another question's, or none's: it asked since then.
        let settled = match settled {
            Settled::Approved(before) if operation.waiting.is_some() && !settled::is_shown(before, &assessment) => {
                Settled::Undecided
            }
            settled => settled,
        };
        let after = assessment.after.clone();
        let next = match settled {
            Settled::Approved(before) => self.approved(operation, call, assessment, before),
            Settled::Judge | Settled::Undecided => self.judged(operation, call, assessment),
            Settled::Refused(_) | Settled::Stranded => Next::Strand,
        };
        // Patches of one reply stack, whether they run or wait.
        match &next {
            Next::Run(ready) => {
                self.effect_ahead |= ready.call.tool.tool.effect() == Effect::SideEffect;
                self.overlay.extend(after);
            }
            Next::Park(_) | Next::Carry { .. } | Next::WouldAsk { .. } => self.overlay.extend(after),
            Next::RunUnlessRepeated { .. } | Next::Answered(_) | Next::Strand => {}
        }
        next
    }

    /// What an operation that asks as well would wait for, and the rules that would let it pass, so that all of them are
    /// told at once.
    fn wants_if_it_asks(&mut self, operation: &'a OpenOperation<'a>) -> Option<(Needs, Option<Vec<Rule>>)> {
        let call = operation.checked.as_ref().ok()?;
        let assessment = call.tool.tool.assess(&call.arguments, self.situation.world, &self.overlay).ok()?;
        self.overlay.extend(assessment.after.clone());
        match decide(call, &assessment, self.situation.rules) {
            Decided::Ask(_) => {
                Some((Needs::of(&assessment.preview), suggested_rules(call, &assessment, self.situation.rules.root())))
            }
            Decided::Allowed(_) | Decided::Denied(_) | Decided::Moot(_) => None,
        }
    }

    /// A person said yes to what was shown. What a rule denies by now is refused all the same, and so is a tool that is
    /// no longer offered.
    fn approved(
        &self,
        operation: &OpenOperation<'a>,
        call: &CheckedCall<'a>,
        assessment: Assessment,
        before: &'a PendingCall,
    ) -> Next<'a> {
        if let Decided::Denied(answer) = decide(call, &assessment, self.situation.rules) {
            return Next::Answered(answer);
        }
        match settled::permit(before, &assessment) {
            Err(answer) => Next::Answered(*answer),
            Ok(_) if self.suspending => {
                let why = before.why.clone().unwrap_or_default();
                self.park(call, assessment, why, Some(before))
            }
            Ok(permit) => {
                let permit = permit.resuming(operation.asked());
                Next::Run(Box::new(Ready { call: call.clone(), assessment, permit }))
            }
        }
    }

    fn judged(&mut self, operation: &OpenOperation<'a>, call: &CheckedCall<'a>, assessment: Assessment) -> Next<'a> {
        let reads = call.tool.tool.effect() == Effect::Read;
        if operation.waiting.is_some() && assessment.preview.is_question() {
            return match decide(call, &assessment, self.situation.rules) {
                Decided::Denied(answer) => Next::Answered(answer),
                // It may have been begun by a rule; what it asks is for a person all the same.
                Decided::Allowed(_) | Decided::Ask(_) | Decided::Moot(_) => {
                    self.ask(call, assessment, QUESTION_ASKS.to_owned())
                }
            };
        }
        let denied_before = self.situation.denied_index.is_some_and(|denied| denied < operation.index)
            || self.situation.decisions.denied_before(&operation.id);
        if !reads && denied_before {
            return Next::Answered(Answer::new(
                ResultStatus::Cancelled,
                "earlier_call_denied",
                "Not run: the user denied a call before this one.",
            ));
        }
        match decide(call, &assessment, self.situation.rules) {
            Decided::Denied(answer) => Next::Answered(answer),
            Decided::Allowed(permit) if !self.suspending => {
                self.run(&operation.id, Ready { call: call.clone(), assessment, permit })
            }
            Decided::Allowed(_) => match self.situation.trailing_reads {
                TrailingReads::Carry => Next::Carry { call: call.clone(), summary: assessment.summary },
                TrailingReads::Strand => Next::Strand,
            },
            Decided::Moot(refusal) => Next::Answered(refusal.into()),
            Decided::Ask(why) => self.ask(call, assessment, why),
        }
    }

    /// A person has to say.
    fn ask(&mut self, call: &CheckedCall<'a>, assessment: Assessment, why: String) -> Next<'a> {
        match self.situation.on_ask {
            OnAsk::Suspend => {
                self.suspending = true;
                // For the person alone: the model is not to learn it from a denial.
                let why = match &assessment.moot {
                    Some(Moot::Veiled(refusal)) => format!("{why}; as things stand it would fail: {}", refusal.message),
                    Some(Moot::Plain(_)) | None => why,
                };
                self.park(call, assessment, why, None)
            }
            OnAsk::Deny => Next::Answered(denied_unattended(&why)),
            OnAsk::Fail => {
                self.would_ask = true;
                let answer = would_ask(&format!("It would have to ask a person: {why}."));
                Next::WouldAsk {
                    answer,
                    why,
                    needs: Needs::of(&assessment.preview),
                    grant: suggested_rules(call, &assessment, self.situation.rules.root()),
                }
            }
        }
    }

    /// Runs it, unless it is a read whose answer is known, or will be.
    fn run(&mut self, id: &OperationId, ready: Ready<'a>) -> Next<'a> {
        let Some(key) = repeated::key(&ready.call, self.situation.world).filter(|_| !self.effect_ahead) else {
            return Next::Run(Box::new(ready));
        };
        if let Some(found) = self.situation.memory.get(&key) {
            return Next::Answered(Answer {
                grounds: ready.permit.grounds().cloned(),
                attachments: found.attachments.clone(),
                output_file: found.output_file.clone(),
                ..Answer::new(ResultStatus::Ok, repeated::CODE, found.content.clone())
            });
        }
        match self.running.entry(key) {
            Entry::Occupied(first) => Next::RunUnlessRepeated { of: first.get().clone(), ready: Box::new(ready) },
            Entry::Vacant(vacant) => {
                vacant.insert(id.clone());
                Next::Run(Box::new(ready))
            }
        }
    }

    fn park(
        &self,
        call: &CheckedCall<'a>,
        assessment: Assessment,
        why: String,
        before: Option<&'a PendingCall>,
    ) -> Next<'a> {
        let grant = suggested_rules(call, &assessment, self.situation.rules.root());
        Next::Park(Box::new(Parked { call: call.clone(), assessment, why, grant, before }))
    }
}

/// Where the first group that runs ends: a run of adjacent concurrent calls, or of operations of one call that may run
/// beside each other, answered ones between them included; or a single other operation, with the answered and the
/// stranded ones before it. `None`: nothing runs.
pub fn next_run(planned: &[Planned<'_>]) -> Option<usize> {
    let mut end = None;
    let mut last: Option<&Ready<'_>> = None;
    for (index, planned) in planned.iter().enumerate() {
        match &planned.next {
            // What is left to the repair holds back nothing that was approved behind it.
            Next::Answered(_) | Next::Strand => {}
            Next::Run(ready) | Next::RunUnlessRepeated { ready, .. } => {
                let waits = matches!(planned.next, Next::RunUnlessRepeated { .. }) && is_stopped_by_failures(ready);
                if last.is_some_and(|last| waits || !run_together(last, ready)) {
                    return end;
                }
                last = Some(ready);
                end = Some(index + 1);
            }
            Next::Park(_) | Next::Carry { .. } | Next::WouldAsk { .. } => break,
        }
    }
    end
}

/// Whether a failure before it in its call keeps an operation from running. What repeats another one is known last of a
/// group, too late for that; so it waits for the next.
fn is_stopped_by_failures(ready: &Ready<'_>) -> bool {
    let fan_out = ready.call.tool.fan_out.as_ref().filter(|_| ready.call.id.operation.is_some());
    fan_out.is_some_and(|(fan_out, _)| fan_out.on_error == OnError::Stop)
}

/// Whether two neighbours may run beside each other.
fn run_together(one: &Ready<'_>, other: &Ready<'_>) -> bool {
    if one.call.tool.concurrent && other.call.tool.concurrent {
        return true;
    }
    let own = one.call.tool.fan_out.as_ref().and_then(|(fan_out, _)| fan_out.concurrency);
    one.call.id.call_id == other.call.id.call_id && own.is_some_and(|own| own > 1)
}

fn not_run(by: u32) -> Answer {
    Answer {
        stopped_by: Some(by),
        ..Answer::new(ResultStatus::NotRun, "not_run", format!("Not run: stopped after operation {by} failed."))
    }
}

fn limit(which: CallLimit) -> Answer {
    let (code, words) = match which {
        CallLimit::Reply => ("limit", "one reply may not hold so many calls"),
        CallLimit::Turn => ("turn_limit", "the turn's limit of calls is reached"),
    };
    Answer::new(ResultStatus::Error, code, format!("Not run: {words}."))
}

fn would_ask(content: &str) -> Answer {
    Answer::new(ResultStatus::Cancelled, "would_ask", format!("Not run. {content}"))
}

fn denied_unattended(why: &str) -> Answer {
    let by = DecidedBy {
        scope: Scope::CommandLine,
        reason: Some("--on-ask deny".to_owned()),
        rule: None,
        matches: Vec::new(),
    };
    let content = format!("Denied: it would have to ask a person ({why}), and nobody is there to ask.");
    Answer {
        grounds: Some(Grounds { decision: Decision::Deny, by, reason: None, granted: None }),
        ..Answer::new(ResultStatus::Denied, "denied", content)
    }
}

#[cfg(test)]
mod tests;
