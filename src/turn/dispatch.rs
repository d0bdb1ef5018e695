//! The calls of the latest reply: planned, run, recorded; or parked until a person has decided.
//!
//! After each run the plan is made again for the rest of the reply, on fresh facts. Side effects run alone and in the
//! order written; adjacent reads run together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Turn;
use crate::call::checked::{CheckedCall, check};
use crate::call::committed::{Budget, Settlement, append_decision, commit};
use crate::call::executed::{Executed, Ground, execute};
use crate::call::planned::{Answer, Next, OpenOperation, Parked, Planned, Ready, Situation, plan};
use crate::call::repeated::{self, Prospect};
use crate::call::settled::Decisions;
use crate::clock;
use crate::permission::Rule;
use crate::provider::Finish;
use crate::report::event::{CallLabel, Event};
use crate::session::history::Round;
use crate::session::pending::{FORMAT, Needs, PendingCall, PendingFile};
use crate::session::record::{
    Decision, OperationId, Record, ResultStatus, Scope, ToolCall, ToolStartRecord, TurnStatus,
};
use crate::tool::{Effect, Outcome};
use crate::workspace::World;

/// What became of a reply's calls.
pub enum Dispatched {
    /// Every call has its result (in strand mode: every call that is not left to the repair).
    Answered,
    /// pending.json is on disk.
    Suspended(PendingFile),
    /// `--on-ask fail`: these rules would have allowed what asked.
    WouldAsk(Vec<Rule>),
    /// The interrupt was raised; every call of the reply that must have a result has one.
    Interrupted,
}

impl Turn<'_> {
    /// Deals with every open call of the latest reply. `pending`: the decisions of a continuation, all made.
    pub fn dispatch(&mut self, pending: Option<&PendingFile>) -> anyhow::Result<Dispatched> {
        let Some(round) = self.history().last_round() else { return Ok(Dispatched::Answered) };
        let calls = round.assistant.tool_calls.clone();
        let truncated = Finish::of(&round.assistant.finish_reason) == Finish::Length;
        let mut budget = self.budget(round);
        let registry = Arc::clone(&self.registry);
        let decisions = pending.map(Decisions::of).unwrap_or_default();
        loop {
            let operations = self.open_operations(&calls, &registry, truncated);
            let world = self.look(&operations, decisions);
            let limit = self.operations_max();
            // What ran before may have changed where the rules' paths lead.
            self.rules.refresh();
            self.memory.refresh();
            let situation = Situation {
                world: &world,
                memory: &self.memory,
                rules: &self.rules,
                decisions,
                denied_index: self.denied_index(&calls),
                trailing_reads: self.settings.trailing_reads,
                on_ask: self.settings.on_ask,
                operations_max: limit.0,
                limit: limit.1,
            };
            let planned = plan(&operations, &situation);
            match next_run(&planned) {
                Some(end) => {
                    self.run_group(&planned[..end], &world, &mut budget)?;
                    if self.interrupt.is_raised() {
                        self.cancel_open(pending, &mut budget)?;
                        return Ok(Dispatched::Interrupted);
                    }
                }
                None => return self.close(planned, &mut budget),
            }
        }
    }

    /// The operations of the reply that have no result, checked.
    fn open_operations<'a>(
        &self,
        calls: &'a [ToolCall],
        registry: &'a crate::tool::registry::Registry,
        truncated: bool,
    ) -> Vec<OpenOperation<'a>> {
        let mut operations = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            let answered = self.history().call(&call.id).is_none_or(|(_, progress)| !progress.is_open());
            if !answered {
                operations.push(OpenOperation {
                    id: OperationId::whole(&call.id),
                    name: &call.name,
                    checked: check(call, registry, truncated),
                    index: index as u64,
                });
            }
        }
        operations
    }

    /// Gathers what a plan of these operations needs to know of the world.
    fn look(&self, operations: &[OpenOperation<'_>], decisions: Decisions<'_>) -> World {
        let mut world = World::default();
        self.with_surroundings(|surroundings| {
            for operation in operations {
                use crate::call::settled::Settled;
                let wanted = match decisions.settled(&operation.id) {
                    Settled::Judge | Settled::Approved(_) | Settled::Undecided => true,
                    Settled::Refused(_) | Settled::Stranded => false,
                };
                if let (true, Ok(call)) = (wanted, &operation.checked) {
                    call.tool.tool.look(&call.arguments, surroundings, &mut world);
                }
            }
        });
        world
    }

    /// How many operations of the latest reply may run, and the limit that says so.
    fn operations_max(&self) -> (u64, &'static str) {
        let in_reply = self.history().last_round().map_or(0, |round| round.calls.len() as u64);
        let before = self.spent_of_limits().tool_calls.saturating_sub(in_reply);
        let of_turn = self.settings.max_tool_calls.saturating_sub(before);
        if of_turn < self.settings.calls_per_reply {
            (of_turn, "the turn's limit of calls is reached")
        } else {
            (self.settings.calls_per_reply, "one reply may not hold so many calls")
        }
    }

    /// The first call of the reply that a person denied, as far as it is recorded.
    fn denied_index(&self, calls: &[ToolCall]) -> Option<u64> {
        let denied = calls.iter().position(|call| {
            self.history().call(&call.id).is_some_and(|(_, progress)| {
                progress.operations.values().any(|operation| {
                    operation.decision.as_ref().is_some_and(|decision| {
                        decision.decision == Decision::Deny && decision.auto_decided_by.scope == Scope::Person
                    })
                })
            })
        });
        denied.map(|index| index as u64)
    }

    fn budget(&self, round: &Round) -> Budget {
        let used: usize =
            round.calls.iter().filter_map(|call| call.result.as_ref()).map(|result| result.content.len()).sum();
        let bytes = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Budget {
            result_bytes: bytes(self.settings.result_bytes),
            round_bytes: bytes(self.settings.round_result_bytes).saturating_sub(used),
        }
    }

    /// Runs the operations of a group together, or its single one alone, and commits it with the answers around it, in
    /// the order written.
    fn run_group(&mut self, group: &[Planned<'_>], world: &World, budget: &mut Budget) -> anyhow::Result<()> {
        let ready: Vec<&Ready<'_>> = group.iter().filter_map(|planned| planned.next.running()).collect();
        self.start(group, &ready, budget)?;
        let prospects: Vec<Option<Prospect>> =
            ready.iter().map(|ready| repeated::prospect(&ready.call, world)).collect();
        let mut executed: HashMap<OperationId, Executed> =
            ready.iter().map(|ready| ready.call.id.clone()).zip(self.execute_ready(&ready, world)).collect();
        self.execute_repeated(group, world, &mut executed);
        let settlements = group.iter().filter_map(|planned| match &planned.next {
            Next::Run(_) | Next::RunUnlessRepeated { .. } => executed
                .remove(&planned.id)
                .map(|executed| Settlement::of_execution(planned.id.clone(), planned.name, executed)),
            Next::Answered(answer) if !self.is_answered(&planned.id) => {
                Some(Settlement::of_answer(planned.id.clone(), planned.name, answer.clone()))
            }
            Next::Answered(_) | Next::Park(_) | Next::Carry(_) | Next::Strand | Next::WouldAsk { .. } => None,
        });
        let settlements: Vec<Settlement> = settlements.collect();
        commit(&mut self.log, self.folder, self.reporter, budget, settlements)?;
        self.warn_of_servers();
        for (ready, prospect) in ready.iter().zip(prospects) {
            self.remember(&ready.call.id, prospect);
        }
        Ok(())
    }

    /// Puts the starts of side effects on disk, behind what was settled before them, and forgets the reads that they
    /// could change.
    fn start(&mut self, group: &[Planned<'_>], ready: &[&Ready<'_>], budget: &mut Budget) -> anyhow::Result<()> {
        let has_effects = |ready: &Ready<'_>| ready.call.tool.tool.effect() == Effect::SideEffect;
        let effects = ready.iter().any(|ready| has_effects(ready));
        if effects {
            self.commit_leading_answers(group, budget)?;
        }
        for ready in ready {
            append_decision(&mut self.log, &ready.call.id, ready.permit.grounds())?;
            if !has_effects(ready) {
                continue;
            }
            self.log.append(&Record::ToolStart(ToolStartRecord {
                call_id: ready.call.id.call_id.clone(),
                operation: ready.call.id.operation,
                at: clock::now(),
                files: ready.permit.files().to_vec(),
            }))?;
            match ready.permit.files() {
                [] => self.memory.drop_local(),
                files => self.memory.drop_for_patch(files, self.workspace.root.path()),
            }
        }
        if effects {
            self.log.barrier()?;
        }
        Ok(())
    }

    /// Gives each read that repeats one of its group that one's outcome, or runs it where that one failed.
    fn execute_repeated(&self, group: &[Planned<'_>], world: &World, executed: &mut HashMap<OperationId, Executed>) {
        for planned in group {
            let Next::RunUnlessRepeated { of, ready } = &planned.next else { continue };
            let first = executed.get(of).filter(|first| first.outcome.status == ResultStatus::Ok);
            let own = match first {
                Some(first) => Some(Executed {
                    outcome: Outcome { code: Some("repeated"), ..first.outcome.clone() },
                    duration: Duration::ZERO,
                }),
                None => self.execute_ready(&[ready], world).pop(),
            };
            if let Some(own) = own {
                executed.insert(planned.id.clone(), own);
            }
        }
    }

    fn remember(&mut self, id: &OperationId, prospect: Option<Prospect>) {
        let (Some(prospect), Some((_, progress))) = (prospect, self.log.history().call(&id.call_id)) else { return };
        if let Some(result) = progress.result.as_ref().filter(|result| result.status == ResultStatus::Ok) {
            let output_file = result.output_file.as_deref();
            self.memory.remember(prospect, &result.content, &result.attachments, output_file);
        }
    }

    fn commit_leading_answers(&mut self, group: &[Planned<'_>], budget: &mut Budget) -> anyhow::Result<()> {
        let mut leading = Vec::new();
        for planned in group {
            let Next::Answered(answer) = &planned.next else { break };
            leading.push(Settlement::of_answer(planned.id.clone(), planned.name, answer.clone()));
        }
        if leading.is_empty() {
            return Ok(());
        }
        commit(&mut self.log, self.folder, self.reporter, budget, leading)
    }

    fn is_answered(&self, id: &OperationId) -> bool {
        self.history().call(&id.call_id).is_some_and(|(_, progress)| !progress.is_open())
    }

    fn execute_ready(&self, ready: &[&Ready<'_>], world: &World) -> Vec<Executed> {
        let turn = Some(self.history().turn());
        let label =
            |ready: &Ready<'_>| CallLabel { id: ready.call.id.clone(), name: ready.call.tool.name().to_owned() };
        let started = |ready: &Ready<'_>| {
            let event = Event::ToolStarted {
                call: label(ready),
                arguments: ready.call.arguments.clone(),
                summary: ready.assessment.summary.clone(),
            };
            self.reporter.tell(turn, &event);
        };
        let beat = |ready: &Ready<'_>, elapsed: Duration, output_bytes| {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            self.reporter.tell(turn, &Event::ToolHeartbeat { call: label(ready), elapsed_ms, output_bytes });
        };
        let live = |bytes: &[u8]| self.reporter.live(bytes);
        let concurrency = usize::try_from(self.settings.concurrency).unwrap_or(usize::MAX);
        self.with_surroundings(|surroundings| {
            let ground =
                Ground { surroundings, world, interrupt: self.interrupt, live: &live, started: &started, beat: &beat };
            execute(ready, concurrency, &ground)
        })
    }

    /// Nothing more runs: commits the answers that are left, and suspends if any call waits for a person.
    fn close(&mut self, planned: Vec<Planned<'_>>, budget: &mut Budget) -> anyhow::Result<Dispatched> {
        let mut settlements = Vec::new();
        let mut waiting = Vec::new();
        let mut would_ask = None;
        for planned in planned {
            match planned.next {
                Next::Answered(answer) => {
                    settlements.push(Settlement::of_answer(planned.id, planned.name, answer));
                }
                Next::WouldAsk { answer, grant } => {
                    would_ask.get_or_insert_with(Vec::new).extend(grant.unwrap_or_default());
                    settlements.push(Settlement::of_answer(planned.id, planned.name, answer));
                }
                Next::Park(parked) => waiting.push(pending_call(*parked)),
                Next::Carry(call) => waiting.push(carried_call(&call)),
                Next::Strand | Next::Run(_) | Next::RunUnlessRepeated { .. } => {}
            }
        }
        if !settlements.is_empty() {
            commit(&mut self.log, self.folder, self.reporter, budget, settlements)?;
        }
        if let Some(rules) = would_ask {
            return Ok(Dispatched::WouldAsk(rules));
        }
        if waiting.is_empty() {
            return Ok(Dispatched::Answered);
        }
        self.suspend(waiting).map(Dispatched::Suspended)
    }

    /// Suspends the turn: its end is on disk before pending.json is, and pending.json before anyone is told.
    fn suspend(&mut self, calls: Vec<PendingCall>) -> anyhow::Result<PendingFile> {
        let digest = PendingFile::digest_of(&calls);
        let mut file = PendingFile {
            format: FORMAT,
            session: self.folder.name.clone(),
            turn: self.history().turn(),
            at: clock::now(),
            status: String::new(),
            digest,
            calls,
        };
        let status =
            if file.awaits_answers_alone() { TurnStatus::AwaitingAnswer } else { TurnStatus::AwaitingApproval };
        status.name().clone_into(&mut file.status);
        self.append_turn_end(status, None)?;
        self.log.barrier()?;
        file.store(self.folder)?;
        let event = Event::Awaiting { pending: file.views(), digest: file.digest.clone() };
        self.reporter.tell(Some(file.turn), &event);
        Ok(file)
    }

    /// After an interrupt: every call of the reply gets its result, but for those that stay pending.
    fn cancel_open(&mut self, pending: Option<&PendingFile>, budget: &mut Budget) -> anyhow::Result<()> {
        let Some(round) = self.history().last_round() else { return Ok(()) };
        let settlements: Vec<Settlement> = round
            .open_calls()
            .filter(|(call, _)| pending.is_none_or(|file| file.calls.iter().all(|pending| pending.id != call.id)))
            .map(|(call, _)| interrupted(call))
            .collect();
        commit(&mut self.log, self.folder, self.reporter, budget, settlements)
    }
}

/// Where the first group that runs ends: a run of adjacent concurrent calls, answered ones between them included, or a
/// single other call, with the answered ones before it. `None`: nothing runs.
fn next_run(planned: &[Planned<'_>]) -> Option<usize> {
    let mut end = None;
    for (index, planned) in planned.iter().enumerate() {
        match &planned.next {
            Next::Answered(_) => {}
            Next::Run(ready) | Next::RunUnlessRepeated { ready, .. } if ready.call.tool.concurrent => {
                end = Some(index + 1);
            }
            Next::Run(_) | Next::RunUnlessRepeated { .. } => return Some(end.unwrap_or(index + 1)),
            Next::Park(_) | Next::Carry(_) | Next::Strand | Next::WouldAsk { .. } => break,
        }
    }
    end
}

fn pending_call(parked: Parked<'_>) -> PendingCall {
    let before = parked.before;
    PendingCall {
        id: parked.call.id.call_id.clone(),
        operation: parked.call.id.operation,
        name: parked.call.tool.name().to_owned(),
        arguments: parked.call.arguments,
        needs: Needs::Approval,
        why: Some(parked.why),
        summary: Some(parked.assessment.summary),
        preview: Some(parked.assessment.preview),
        grant: parked.grant,
        decision: before.and_then(|call| call.decision),
        reason: before.and_then(|call| call.reason.clone()),
        answer: before.and_then(|call| call.answer.clone()),
        granted: before.and_then(|call| call.granted.clone()),
        decided_at: before.and_then(|call| call.decided_at.clone()),
    }
}

fn carried_call(call: &CheckedCall<'_>) -> PendingCall {
    PendingCall {
        id: call.id.call_id.clone(),
        operation: call.id.operation,
        name: call.tool.name().to_owned(),
        arguments: Value::clone(&call.arguments),
        needs: Needs::Nothing,
        why: None,
        summary: None,
        preview: None,
        grant: None,
        decision: None,
        reason: None,
        answer: None,
        granted: None,
        decided_at: None,
    }
}

fn interrupted(call: &ToolCall) -> Settlement {
    let answer = Answer::new(
        ResultStatus::Cancelled,
        "interrupted",
        "Not run: the invocation was interrupted before its turn came.",
    );
    Settlement::of_answer(OperationId::whole(&call.id), &call.name, answer)
}
