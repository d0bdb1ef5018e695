//! The calls of the latest reply: planned, run, recorded; or parked until a person has decided.
//!
//! After each run the plan is made again for the rest of the reply, on fresh facts. Side effects run alone and in the
//! order written; adjacent reads run together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Turn;
use super::journal::{Journal, has_effects, label, locked, title};
use super::resume::open_operations_of;
use crate::call::checked::{CheckedCall, check_knowing};
use crate::call::committed::{Budget, Item, Settlement, commit};
use crate::call::executed::{self, Executed, Ground, execute};
use crate::call::fanned::is_failure;
use crate::call::planned::{Answer, CallLimit, Next, OpenOperation, Parked, Planned, Ready, Situation, next_run, plan};
use crate::call::repeated::{self, Prospect};
use crate::call::settled::Decisions;
use crate::call::unwrapped::tool_name;
use crate::clock;
use crate::mask;
use crate::permission::{ReadDenials, Rule, host_verdict};
use crate::provider::Finish;
use crate::report::event::Event;
use crate::session::history::{OperationProgress, Round};
use crate::session::pending::{FORMAT, Needs, PendingCall, PendingFile};
use crate::session::record::{Decision, OnError, OperationId, ResultStatus, Scope, ToolCall, TurnStatus};
use crate::tool::registry::Registry;
use crate::tool::{Outcome, Surroundings};
use crate::workspace::World;

/// What became of a reply's calls.
pub enum Dispatched {
    /// Every call has its result (in strand mode: every call that is not left to the repair).
    Answered,
    /// pending.json is on disk.
    Suspended(PendingFile),
    /// `--on-ask fail`.
    WouldAsk(WouldAsk),
    /// The interrupt was raised; every call of the reply that must have a result has one.
    Interrupted,
}

/// What asked where nobody may be asked.
#[derive(Debug, Default)]
pub struct WouldAsk {
    /// These would have allowed it.
    pub rules: Vec<Rule>,
    /// Questions alone asked.
    pub questions_alone: bool,
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
            let (operations, denied_index) = self.open_operations(&calls, &registry, truncated);
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
                denied_index,
                failed: &self.failed(&calls),
                trailing_reads: self.settings.trailing_reads,
                on_ask: self.settings.on_ask,
                operations_max: limit.0,
                limit: limit.1,
            };
            let planned = plan(&operations, &situation);
            match next_run(&planned) {
                Some(end) => {
                    // What is not begun once the interrupt is raised stays as it is, with no start on disk.
                    if !self.interrupt.is_raised() {
                        self.run_group(&planned[..end], &world, pending, &mut budget)?;
                    }
                    if self.interrupt.is_raised() {
                        self.cancel_open(pending, &mut budget)?;
                        return Ok(Dispatched::Interrupted);
                    }
                }
                None => return self.close(planned, &mut budget),
            }
        }
    }

    /// The operations of the reply that have no result, checked; and the index of the first operation of all that a
    /// person denied, as far as that is recorded.
    fn open_operations<'a>(
        &self,
        calls: &'a [ToolCall],
        registry: &'a Registry,
        truncated: bool,
    ) -> (Vec<OpenOperation<'a>>, Option<u64>) {
        let mut operations = Vec::new();
        let mut denied_index = None;
        let mut index = 0;
        let mut fetched = self.history().fetched().clone();
        for call in calls {
            let Some((_, progress)) = self.history().call(&call.id) else { continue };
            let denied = progress.operations.iter().find(|(_, operation)| is_denied_by_person(operation));
            if let Some((number, _)) = denied {
                denied_index.get_or_insert(index + number.map_or(0, |number| u64::from(number).saturating_sub(1)));
            }
            if !progress.is_open() {
                index += progress.operation_count();
                continue;
            }
            let name = tool_name(call);
            let stops = registry.find(&name).and_then(|tool| tool.fan_out.as_ref());
            let stops = stops.is_some_and(|(fan_out, _)| fan_out.on_error == OnError::Stop);
            for (id, checked) in check_knowing(call, registry, truncated, &mut fetched) {
                let own = progress.operations.get(&id.operation);
                if own.is_none_or(|own| own.result.is_none()) {
                    let waiting = own.and_then(OperationProgress::waiting).cloned();
                    operations.push(OpenOperation { id, name: name.clone(), checked, index, stops, waiting });
                }
                index += 1;
            }
        }
        (operations, denied_index)
    }

    /// By call: its first operation that is recorded as a failure. One that was started counts as failed unless it ended
    /// well: nothing may be built on it.
    fn failed(&self, calls: &[ToolCall]) -> HashMap<String, u32> {
        let mut failed = HashMap::new();
        for call in calls {
            let operations = self.history().call(&call.id).map(|(_, progress)| &progress.operations);
            let first = operations.into_iter().flatten().find_map(|(number, operation)| {
                let result = operation.result.as_ref()?;
                let came_to_nothing = result.status == ResultStatus::Cancelled && operation.start.is_some();
                number.filter(|_| is_failure(result.status) || came_to_nothing)
            });
            if let Some(number) = first {
                failed.insert(call.id.clone(), number);
            }
        }
        failed
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
    fn operations_max(&self) -> (u64, CallLimit) {
        let in_reply = self.history().last_round().map_or(0, Round::operation_count);
        let before = self.spent_of_limits().tool_calls.saturating_sub(in_reply);
        let of_turn = self.settings.max_tool_calls.saturating_sub(before);
        if of_turn < self.settings.calls_per_reply {
            (of_turn, CallLimit::Turn)
        } else {
            (self.settings.calls_per_reply, CallLimit::Reply)
        }
    }

    fn budget(&self, round: &Round) -> Budget {
        Budget::of(round, self.settings.result_bytes, self.settings.round_result_bytes)
    }

    /// Runs the operations of a group together, or its single one alone, and commits it with the answers around it, in
    /// the order written.
    fn run_group(
        &mut self,
        group: &[Planned<'_>],
        world: &World,
        pending: Option<&PendingFile>,
        budget: &mut Budget,
    ) -> anyhow::Result<()> {
        let ready: Vec<&Ready<'_>> = group.iter().filter_map(|planned| planned.next.running()).collect();
        if ready.iter().any(|ready| has_effects(ready)) {
            self.commit_leading_answers(group, budget)?;
        }
        let prospects: Vec<Option<Prospect>> =
            ready.iter().map(|ready| repeated::prospect(&ready.call, world)).collect();
        let (outcomes, mut events) = self.execute_ready(&ready, world, budget)?;
        let mut executed: HashMap<OperationId, Executed> =
            ready.iter().map(|ready| ready.call.id.clone()).zip(outcomes).collect();
        events.extend(self.execute_repeated(group, world, budget, &mut executed)?);
        let mut items = Vec::new();
        for planned in group {
            let executed = executed.remove(&planned.id);
            if self.is_recorded(&planned.id) {
                items.push(Item::Recorded(planned.id.clone()));
                continue;
            }
            match &planned.next {
                Next::Run(ready) | Next::RunUnlessRepeated { ready, .. } => {
                    // An interrupt came before a carried read was begun: it stays pending.
                    let stays = |executed: &Executed| {
                        let listed = pending.is_some_and(|file| file.call(&planned.id).is_some());
                        !executed.begun && executed.stopped_by.is_none() && !has_effects(ready) && listed
                    };
                    // What asked back, and what is held by that, has no result yet.
                    let waits = |executed: &Executed| executed.held || executed.outcome.waits.is_some();
                    if let Some(executed) = executed.filter(|executed| !stays(executed) && !waits(executed)) {
                        let settlement = Settlement::of_execution(planned.id.clone(), planned.name, &executed);
                        // What was answered from its neighbour's result was never begun.
                        let begun = executed.begun && executed.outcome.code != Some(repeated::CODE);
                        items.push(if begun { settlement.titled(title(ready)) } else { settlement }.into());
                    }
                }
                Next::Answered(answer) => {
                    items.push(Settlement::of_answer(planned.id.clone(), planned.name, answer.clone()).into());
                }
                Next::Park(_) | Next::Carry { .. } | Next::Strand | Next::WouldAsk { .. } => {}
            }
        }
        commit(&mut self.log, self.folder, self.reporter, budget, items, events)?;
        self.warn_of_servers();
        for (ready, prospect) in ready.iter().zip(prospects) {
            self.remember(&ready.call.id, prospect);
        }
        Ok(())
    }

    /// Gives each read that repeats one of its group that one's outcome, or runs it where that one failed.
    fn execute_repeated(
        &mut self,
        group: &[Planned<'_>],
        world: &World,
        budget: &mut Budget,
        executed: &mut HashMap<OperationId, Executed>,
    ) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        for planned in group {
            let Next::RunUnlessRepeated { of, ready } = &planned.next else { continue };
            let first = executed.get(of).filter(|first| first.outcome.status == ResultStatus::Ok);
            let own = if let Some(first) = first {
                let outcome = Outcome { code: Some(repeated::CODE), ..first.outcome.clone() };
                Some(Executed { outcome, duration: Duration::ZERO, begun: true, stopped_by: None, held: false })
            } else {
                let (mut own, told) = self.execute_ready(&[ready], world, budget)?;
                events.extend(told);
                own.pop()
            };
            if let Some(own) = own {
                executed.insert(planned.id.clone(), own);
            }
        }
        Ok(events)
    }

    fn remember(&mut self, id: &OperationId, prospect: Option<Prospect>) {
        let (Some(prospect), Some((_, progress))) = (prospect, self.log.history().call(&id.call_id)) else { return };
        let (memory, ok) = (&mut self.memory, ResultStatus::Ok);
        if id.operation.is_none() {
            if let Some(result) = progress.result.as_ref().filter(|result| result.status == ok) {
                memory.remember(prospect, &result.content, &result.attachments, result.output_file.as_deref());
            }
        } else if let Some(result) = progress.operations.get(&id.operation).and_then(|one| one.result.as_ref())
            && result.status == ok
            // Asked for alone, it may say more than its share of a call let it.
            && result.output_file.is_none()
        {
            memory.remember(prospect, &result.content, &result.attachments, result.output_file.as_deref());
        }
    }

    fn commit_leading_answers(&mut self, group: &[Planned<'_>], budget: &mut Budget) -> anyhow::Result<()> {
        let mut leading = Vec::new();
        for planned in group {
            match &planned.next {
                Next::Answered(answer) => {
                    leading.push(Settlement::of_answer(planned.id.clone(), planned.name, answer.clone()).into());
                }
                Next::Strand => {}
                Next::Run(_)
                | Next::RunUnlessRepeated { .. }
                | Next::Park(_)
                | Next::Carry { .. }
                | Next::WouldAsk { .. } => break,
            }
        }
        if leading.is_empty() {
            return Ok(());
        }
        commit(&mut self.log, self.folder, self.reporter, budget, leading, Vec::new())
    }

    /// Whether it has a result, its own or its call's.
    fn is_recorded(&self, id: &OperationId) -> bool {
        self.history().call(&id.call_id).is_some_and(|(_, progress)| {
            let own = progress.operations.get(&id.operation).is_some_and(|operation| operation.result.is_some());
            own || !progress.is_open()
        })
    }

    /// Runs a group. What begins with effects is on disk before it begins, and what an operation of several comes to is
    /// recorded as it settles; so the records go on from the threads that run.
    fn execute_ready(
        &mut self,
        ready: &[&Ready<'_>],
        world: &World,
        budget: &mut Budget,
    ) -> anyhow::Result<(Vec<Executed>, Vec<Event>)> {
        let concurrency = usize::try_from(self.settings.concurrency).unwrap_or(usize::MAX);
        let limits = self.settings.tool_limits();
        let written = self.history().written().clone();
        let (rules, fetch_run) = (&self.rules, self.fetch_run());
        let surroundings = Surroundings {
            workspace: self.workspace,
            session: Some(self.folder),
            written: &written,
            limits: &limits,
            withheld_variables: &self.withheld_variables,
            fetch_verdict: &|host| host_verdict(host, fetch_run, rules),
            read_denials: &ReadDenials::of(rules),
            state: self.state.as_ref(),
        };
        let turn = self.log.history().turn();
        let journal = Mutex::new(Journal {
            log: &mut self.log,
            memory: &mut self.memory,
            folder: self.folder,
            root: self.workspace.root.path(),
            reporter: self.reporter,
            budget,
            turn,
            events: Vec::new(),
            failure: None,
        });
        let reporter = self.reporter;
        let live = |bytes: &[u8]| reporter.live(bytes);
        let begin = |ready: &Ready<'_>| locked(&journal).begin(ready);
        let settle = |ready: &Ready<'_>, executed: &Executed| locked(&journal).settle(ready, executed);
        let beat = |ready: &Ready<'_>, elapsed: Duration, output_bytes| {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            reporter.beat(Some(turn), Event::ToolHeartbeat { call: label(ready), elapsed_ms, output_bytes });
        };
        let ground = Ground {
            surroundings: &surroundings,
            world,
            interrupt: self.interrupt,
            live: &live,
            journal: executed::Journal { begin: &begin, settle: &settle },
            beat: &beat,
        };
        let executed = execute(ready, concurrency, &ground);
        let journal = journal.into_inner().unwrap_or_else(PoisonError::into_inner);
        match journal.failure {
            Some(error) => Err(error),
            None => Ok((executed, journal.events)),
        }
    }

    /// Nothing more runs: commits the answers that are left, and suspends if any call waits for a person.
    fn close(&mut self, planned: Vec<Planned<'_>>, budget: &mut Budget) -> anyhow::Result<Dispatched> {
        let mut settlements = Vec::new();
        let mut waiting = Vec::new();
        let mut would_ask: Option<WouldAsk> = None;
        for planned in planned {
            match planned.next {
                Next::Answered(answer) => {
                    settlements.push(Settlement::of_answer(planned.id, planned.name, answer).into());
                }
                Next::WouldAsk { answer, why: _, needs, grant } => {
                    let asked = would_ask.get_or_insert(WouldAsk { questions_alone: true, ..WouldAsk::default() });
                    asked.questions_alone &= needs != Needs::Approval;
                    for rule in grant.unwrap_or_default() {
                        if !asked.rules.contains(&rule) {
                            asked.rules.push(rule);
                        }
                    }
                    settlements.push(Settlement::of_answer(planned.id, planned.name, answer).into());
                }
                Next::Park(parked) => waiting.push(pending_call(*parked)),
                Next::Carry { call, summary } => waiting.push(carried_call(call, &summary)),
                Next::Strand | Next::Run(_) | Next::RunUnlessRepeated { .. } => {}
            }
        }
        if !settlements.is_empty() {
            commit(&mut self.log, self.folder, self.reporter, budget, settlements, Vec::new())?;
        }
        if let Some(asked) = would_ask {
            return Ok(Dispatched::WouldAsk(asked));
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
        let mut items = Vec::new();
        for (call, progress) in round.open_calls() {
            let open = open_operations_of(call, progress, &|call_id| {
                pending.is_some_and(|file| file.calls.iter().any(|one| one.id == call_id && one.operation.is_some()))
            });
            let stays = |id: &OperationId| {
                pending.is_some_and(|file| file.call(id).is_some()) || self.history().waiting(id).is_some()
            };
            items.extend(open.into_iter().filter(|id| !stays(id)).map(|id| interrupted(id, &tool_name(call)).into()));
        }
        commit(&mut self.log, self.folder, self.reporter, budget, items, Vec::new())
    }
}

fn is_denied_by_person(operation: &OperationProgress) -> bool {
    operation
        .decision
        .as_ref()
        .is_some_and(|decision| decision.decision == Decision::Deny && decision.auto_decided_by.scope == Scope::Person)
}

fn pending_call(parked: Parked<'_>) -> PendingCall {
    let before = parked.before;
    let needs = Needs::of(&parked.assessment.preview);
    PendingCall {
        id: parked.call.id.call_id.clone(),
        operation: parked.call.id.operation,
        name: parked.call.tool.name().to_owned(),
        arguments: parked.call.arguments,
        needs,
        // A question says itself why it asks.
        why: Some(mask::apply(&parked.why).into_owned()).filter(|_| needs == Needs::Approval),
        summary: Some(mask::apply(&parked.assessment.summary).into_owned()),
        preview: Some(parked.assessment.preview.masked()),
        grant: parked.grant,
        decision: before.and_then(|call| call.decision),
        reason: before.and_then(|call| call.reason.clone()),
        answer: before.and_then(|call| call.answer.clone()),
        granted: before.and_then(|call| call.granted.clone()),
        decided_at: before.and_then(|call| call.decided_at.clone()),
    }
}

fn carried_call(call: CheckedCall<'_>, summary: &str) -> PendingCall {
    PendingCall {
        id: call.id.call_id,
        operation: call.id.operation,
        name: call.tool.name().to_owned(),
        arguments: call.arguments,
        needs: Needs::Nothing,
        why: None,
        summary: Some(mask::apply(summary).into_owned()),
        preview: None,
        grant: None,
        decision: None,
        reason: None,
        answer: None,
        granted: None,
        decided_at: None,
    }
}

fn interrupted(id: OperationId, name: &str) -> Settlement {
    let answer = Answer::new(
        ResultStatus::Cancelled,
        "cancelled",
        "Not run: the invocation was interrupted before its turn came.",
    );
    Settlement::of_answer(id, name, answer)
}
