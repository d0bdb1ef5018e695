//! One call outside a turn: checked, judged and run as a model's would be, without a session. What would ask a person is
//! not run, and nothing of its call is.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::invocation::Invocation;
use crate::call::checked::check;
use crate::call::executed::{Ground, Journal, execute};
use crate::call::fanned::{self, Part, is_failure};
use crate::call::hints;
use crate::call::planned::{Answer, CallLimit, Next, OpenOperation, Planned, Ready, Situation, next_run, plan};
use crate::call::repeated::Memory;
use crate::call::settled::Decisions;
use crate::config::Config;
use crate::interrupt::Interrupt;
use crate::permission::{ReadDenials, Rule, Rules, host_verdict};
use crate::report::shell_quote;
use crate::session::pending::Needs;
use crate::session::record::{OnAsk, OnError, OperationId, ResultStatus, ToolCall, TrailingReads};
use crate::tool::registry::Registry;
use crate::tool::{Limits, Outcome, Refusal, Surroundings};
use crate::workspace::World;
use crate::workspace::environment::withheld_variables;

/// What calls are run with.
pub struct Bench<'a> {
    pub invocation: &'a Invocation,
    pub registry: &'a Registry,
    pub config: &'a Config,
    /// How many reads of one call run beside each other.
    pub concurrency: usize,
}

/// What became of a call.
pub enum Ended {
    /// It does not fit its tool.
    Unfit(Refusal),
    /// It has its result without being run.
    Answered(Answer),
    WouldAsk(WouldAsk),
    Ran(Outcome),
}

/// Why a call was refused that a person might have allowed.
pub struct WouldAsk {
    pub why: String,
    /// These would have allowed it; `None` where none can.
    pub rules: Option<Vec<Rule>>,
    /// It is a question to a person.
    pub is_question: bool,
}

impl WouldAsk {
    /// What to do about it, in words.
    pub fn hint(&self) -> String {
        match &self.rules {
            _ if self.is_question => "a model's question can be answered".to_owned(),
            Some(rules) => {
                format!("`attini rules add {}` would allow it", shell_quote(rules.iter().map(Rule::to_line)))
            }
            None => "no rule can allow it; a model's call can be approved".to_owned(),
        }
    }
}

/// What an operation came to.
struct Done {
    outcome: Outcome,
    stopped_by: Option<u32>,
    /// Where it was not run.
    answer: Option<Answer>,
}

impl Bench<'_> {
    /// Runs a call, all of its operations. `interrupt` ends it.
    pub fn run(
        &self,
        call: &ToolCall,
        rules: &mut Rules,
        interrupt: &Interrupt,
        live: &(dyn Fn(&[u8]) + Sync),
    ) -> Ended {
        let mut operations = check(call, self.registry, false);
        if let ([(_, Err(_))], Some((_, Err(refusal)))) = (operations.as_slice(), operations.first().cloned()) {
            return Ended::Unfit(refusal);
        }
        let ids: Vec<OperationId> = operations.iter().map(|(id, _)| id.clone()).collect();
        let stops = self.registry.find(&call.name).and_then(|tool| tool.fan_out.as_ref());
        let stops = stops.is_some_and(|(fan_out, _)| fan_out.on_error == OnError::Stop);
        let mut done: BTreeMap<Option<u32>, Done> = BTreeMap::new();
        while !operations.is_empty() {
            let open: Vec<OpenOperation<'_>> = (0..)
                .zip(&operations)
                .map(|(index, (id, checked))| OpenOperation {
                    id: id.clone(),
                    name: call.name.as_str().into(),
                    checked: checked.clone(),
                    index,
                    stops,
                    waiting: None,
                })
                .collect();
            rules.refresh();
            match self.step(&call.id, &open, &done, rules, interrupt, live) {
                Ok(more) if more.is_empty() => break,
                Ok(more) => done.extend(more),
                Err(asked) => return Ended::WouldAsk(asked),
            }
            operations.retain(|(id, _)| !done.contains_key(&id.operation));
        }
        ended(&ids, done)
    }

    /// Plans what is open, and runs the first group of it.
    fn step(
        &self,
        call_id: &str,
        open: &[OpenOperation<'_>],
        done: &BTreeMap<Option<u32>, Done>,
        rules: &Rules,
        interrupt: &Interrupt,
        live: &(dyn Fn(&[u8]) + Sync),
    ) -> Result<Vec<(Option<u32>, Done)>, WouldAsk> {
        let limits = Limits {
            result_bytes: self.config.limits.result_bytes,
            output_bytes: self.config.limits.output_bytes,
            command_timeout: Duration::from_secs(self.config.limits.command_timeout_s),
        };
        let state = self.invocation.state().root();
        let fetch_run = self.registry.find("fetch").and_then(|tool| tool.run);
        let keys = crate::provider::key_variables(self.config);
        let surroundings = Surroundings {
            workspace: &self.invocation.workspace,
            session: None,
            written: &BTreeMap::new(),
            limits: &limits,
            withheld_variables: &withheld_variables(&self.config.environment_pass, &keys),
            fetch_verdict: &|host| host_verdict(host, fetch_run, rules),
            read_denials: &ReadDenials::of(rules),
            state: state.as_ref(),
        };
        let mut world = World::default();
        for operation in open {
            if let Ok(checked) = &operation.checked {
                checked.tool.tool.look(&checked.arguments, &surroundings, &mut world);
            }
        }
        let failed = first_failure(call_id, done);
        let situation = Situation {
            world: &world,
            rules,
            decisions: Decisions::default(),
            memory: &Memory::default(),
            denied_index: None,
            failed: &failed,
            trailing_reads: TrailingReads::Carry,
            on_ask: OnAsk::Fail,
            operations_max: u64::MAX,
            limit: CallLimit::Reply,
        };
        let planned = plan(open, &situation);
        // What asks only since its neighbours ran is answered by itself: those cannot be taken back.
        if let (Some(asked), true) = (would_ask(&planned), done.is_empty()) {
            return Err(asked);
        }
        let group = next_run(&planned).map_or(planned.as_slice(), |end| &planned[..end]);
        let ready: Vec<&Ready<'_>> = group.iter().filter_map(|planned| planned.next.running()).collect();
        let ground = Ground {
            surroundings: &surroundings,
            world: &world,
            interrupt,
            live,
            journal: Journal { begin: &|_| true, settle: &|_, _| {} },
            beat: &|_, _, _| {},
        };
        let executed = if ready.is_empty() { Vec::new() } else { execute(&ready, self.concurrency, &ground) };
        let mut more: Vec<(Option<u32>, Done)> = ready
            .iter()
            .zip(executed)
            .map(|(ready, executed)| {
                let done = Done { outcome: executed.outcome, stopped_by: executed.stopped_by, answer: None };
                (ready.call.id.operation, done)
            })
            .collect();
        more.extend(group.iter().filter_map(|planned| Some((planned.id.operation, answered(&planned.next)?))));
        Ok(more)
    }
}

fn answered(next: &Next<'_>) -> Option<Done> {
    let answer = match next {
        Next::Answered(answer) | Next::WouldAsk { answer, .. } => answer.clone(),
        Next::Run(_) | Next::RunUnlessRepeated { .. } | Next::Park(_) | Next::Carry { .. } | Next::Strand => {
            return None;
        }
    };
    let outcome = Outcome {
        status: answer.status,
        attachments: answer.attachments.clone(),
        detail: answer.detail.clone(),
        ..Outcome::error(answer.code, answer.content.clone())
    };
    Some(Done { outcome, stopped_by: answer.stopped_by, answer: Some(answer) })
}

/// What asks in a plan, and the rules that would let all of it pass.
fn would_ask(planned: &[Planned<'_>]) -> Option<WouldAsk> {
    let asking = planned.iter().filter_map(|planned| match &planned.next {
        Next::WouldAsk { why, needs, grant, .. } if *needs != Needs::Nothing => Some((why, *needs, grant)),
        _ => None,
    });
    let mut asked: Option<WouldAsk> = None;
    for (why, needs, grant) in asking {
        let first = || WouldAsk { why: why.clone(), rules: Some(Vec::new()), is_question: true };
        let asked = asked.get_or_insert_with(first);
        asked.is_question &= needs == Needs::Answer;
        asked.rules = match (asked.rules.take(), grant) {
            (Some(mut rules), Some(more)) => {
                let new: Vec<Rule> = more.iter().filter(|rule| !rules.contains(rule)).cloned().collect();
                rules.extend(new);
                Some(rules)
            }
            (Some(_) | None, _) => None,
        };
    }
    asked
}

fn first_failure(call_id: &str, done: &BTreeMap<Option<u32>, Done>) -> HashMap<String, u32> {
    let failed = done.iter().find(|(_, done)| is_failure(done.outcome.status)).and_then(|(number, _)| *number);
    failed.map(|number| (call_id.to_owned(), number)).into_iter().collect()
}

/// The call's end: that of its one operation, or folded from those of all.
fn ended(ids: &[OperationId], mut done: BTreeMap<Option<u32>, Done>) -> Ended {
    if let [only] = ids {
        return match done.remove(&only.operation) {
            Some(Done { answer: Some(answer), .. }) => Ended::Answered(answer),
            Some(Done { outcome, .. }) => Ended::Ran(outcome),
            None => Ended::Ran(Outcome::error("panic", "Nothing was run; this is a fault of attini's own.")),
        };
    }
    let parts: Vec<Part<'_>> = done
        .values()
        .map(|done| Part { status: done.outcome.status, content: &done.outcome.content, stopped_by: done.stopped_by })
        .collect();
    let (status, content) = fanned::fold(&parts);
    let code = done.values().find(|done| done.outcome.status == status).and_then(|done| done.outcome.code);
    Ended::Ran(Outcome { status, code, ..Outcome::ok(content) })
}

/// What to do next behind a failure, as models are told.
pub fn next_line(outcome: &Outcome) -> Option<String> {
    match (outcome.status, outcome.code) {
        (ResultStatus::Ok | ResultStatus::NotRun, _) | (_, None) => None,
        (_, Some(code)) => hints::next_line(code, outcome.detail.as_deref()),
    }
}
