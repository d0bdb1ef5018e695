//! Closing what an earlier invocation left open, before anything else happens.

use super::Turn;
use crate::call::checked::check;
use crate::call::committed::{Budget, Item, Settlement, commit, next_to_fold};
use crate::call::fanned::operation_count;
use crate::call::planned::Answer;
use crate::call::settled;
use crate::call::unwrapped::tool_name;
use crate::report::Reporter;
use crate::session::folder::SessionFolder;
use crate::session::history::{CallProgress, History, OperationProgress, Round};
use crate::session::log::Log;
use crate::session::pending::{PendingCall, PendingFile};
use crate::session::record::{
    DecidedBy, Decision, OperationId, PlannedFile, ResultStatus, Scope, ToolCall, TurnStatus,
};
use crate::tool::patch::recover::{Recovery, clean_temporary_files, recover};
use crate::tool::patch::write::State;
use crate::tool::{Overlay, Preview};
use crate::workspace::{Workspace, World};

/// `reason` of every result that a repair made.
pub const REPAIR_REASON: &str = "unanswered_tool_call_repair";

/// One result for each call without one, but for those that `keeps` says are pending: `unknown` where the call was
/// started, `cancelled` where it never was. A patch knows better, by its files' hashes (`recover`). Of a call of several
/// operations each has its own, the recorded ones stay, and the call's result is folded from them all; `numbered` says
/// of which calls this is known although nothing is recorded of them.
///
/// It only adds results, in call order; what has one is left alone, so that a second repair finds nothing to do.
pub fn repair_orphaned_tool_calls(
    history: &History,
    keeps: impl Fn(&OperationId) -> bool,
    numbered: impl Fn(&str) -> bool,
    recover: impl Fn(&[PlannedFile]) -> Recovery,
) -> Vec<Settlement> {
    let mut settlements = Vec::new();
    for (call, progress) in history.open_calls() {
        for id in open_operations_of(call, progress, &numbered) {
            if !keeps(&id) {
                let operation = progress.operations.get(&id.operation);
                settlements.push(repair(id, &tool_name(call), operation, &recover));
            }
        }
    }
    settlements
}

/// The operations of an open call that have no result: the call itself where it carries one alone.
pub fn open_operations_of(
    call: &ToolCall,
    progress: &CallProgress,
    numbered: &impl Fn(&str) -> bool,
) -> Vec<OperationId> {
    let has_numbers = progress.operations.keys().any(Option::is_some) || numbered(&call.id);
    let count = has_numbers.then(|| operation_count(call)).flatten();
    let Some(count) = count.and_then(|count| u32::try_from(count).ok()) else {
        return vec![OperationId::whole(&call.id)];
    };
    (1..=count)
        .map(|number| OperationId { call_id: call.id.clone(), operation: Some(number) })
        .filter(|id| progress.operations.get(&id.operation).is_none_or(|operation| operation.result.is_none()))
        .collect()
}

fn repair(
    id: OperationId,
    name: &str,
    operation: Option<&OperationProgress>,
    recover: &impl Fn(&[PlannedFile]) -> Recovery,
) -> Settlement {
    let start = operation.and_then(|operation| operation.start.as_ref());
    let waiting = operation.and_then(OperationProgress::waiting);
    let (status, code, content) = match start.map(|start| start.files.as_slice()) {
        None if waiting.is_some() => (
            ResultStatus::Cancelled,
            "cancelled",
            "It asked something back and got no answer; it was not gone on with. What it did before it asked stands."
                .to_owned(),
        ),
        None => {
            (ResultStatus::Cancelled, "cancelled", "Not run: the turn was broken off before its turn came.".to_owned())
        }
        Some([]) => (
            ResultStatus::Unknown,
            "unknown_outcome",
            "It was started, and attini was stopped before its result was recorded. It may have taken effect, and what it \
             started may still run."
                .to_owned(),
        ),
        Some(files) => recovered(recover(files)),
    };
    Settlement {
        reason: Some(REPAIR_REASON.to_owned()),
        auto_decided_by: Some(DecidedBy { scope: Scope::Repair, reason: None, rule: None, matches: Vec::new() }),
        ..Settlement::of_answer(id, name, Answer::new(status, code, content))
    }
}

fn recovered(recovery: Recovery) -> (ResultStatus, &'static str, String) {
    match recovery {
        Recovery::AllAfter => (
            ResultStatus::Ok,
            "recovered",
            "The patch was written whole; attini was stopped before it could say so.".to_owned(),
        ),
        Recovery::AllBefore => {
            (ResultStatus::Cancelled, "cancelled", "Not applied: every file is as it was before the patch.".to_owned())
        }
        Recovery::Mixture(files) => {
            let files: Vec<String> =
                files.into_iter().map(|(path, state)| format!("{path}: it is {}", state.words())).collect();
            let content = format!("attini was stopped while it wrote the patch. The files now:\n{}", files.join("\n"));
            (ResultStatus::Unknown, "unknown_outcome", content)
        }
    }
}

/// What became of a patch that was started; the temporary files that it left are removed. Where its files cannot be
/// looked at, each is told so.
pub fn recovery_of(files: &[PlannedFile], workspace: &Workspace) -> Recovery {
    // What cannot be removed is in nobody's way, and the result tells of the files that count.
    let _ = clean_temporary_files(files, workspace);
    recover(files, workspace)
        .unwrap_or_else(|_| Recovery::Mixture(files.iter().map(|file| (file.path.clone(), State::Other)).collect()))
}

impl Turn<'_> {
    /// Repairs the conversation, but for what `keeps` says is pending.
    pub fn repair(&mut self, keeps: impl Fn(&OperationId) -> bool) -> anyhow::Result<()> {
        let recover = |files: &[PlannedFile]| recovery_of(files, self.workspace);
        let settlements = repair_orphaned_tool_calls(self.history(), keeps, |_| false, recover);
        self.commit_repairs(settlements)
    }

    /// The operations that asked back and got no answer yet.
    pub fn waiting_operations(&self) -> Vec<OperationId> {
        let of_call = |(call, progress): (&ToolCall, &CallProgress)| {
            let waiting = progress.operations.iter().filter(|(_, operation)| operation.waiting().is_some());
            waiting.map(|(number, _)| OperationId { call_id: call.id.clone(), operation: *number }).collect::<Vec<_>>()
        };
        self.history().open_calls().flat_map(of_call).collect()
    }

    /// Before a continuation: what was started without a result is answered, and never run again.
    pub fn repair_started(&mut self, pending: &PendingFile) -> anyhow::Result<()> {
        let started = |id: &OperationId| self.history().operation(id).is_some_and(|one| one.start.is_some());
        // What pending.json does not list was stranded, and is repaired when the rest is done.
        let listed = |id: &OperationId| pending.calls.iter().any(|call| call.id == id.call_id);
        let settlements = repair_orphaned_tool_calls(
            self.history(),
            |id| !started(id) || !listed(id),
            |call_id| is_numbered(pending, call_id),
            |files| recovery_of(files, self.workspace),
        );
        self.commit_repairs(settlements)
    }

    /// Before a new prompt: a recorded denial or answer becomes its result, all else is repaired, and the old turn is
    /// over.
    pub fn drop_pending(&mut self, pending: &PendingFile) -> anyhow::Result<()> {
        let mut settlements = repair_orphaned_tool_calls(
            self.history(),
            |_| false,
            |call_id| is_numbered(pending, call_id),
            |files| recovery_of(files, self.workspace),
        );
        heed_decisions(&mut settlements, pending, self.history(), |id| self.is_question(id));
        self.commit_repairs(settlements)?;
        self.append_turn_end(TurnStatus::Dropped, None)?;
        self.log.barrier()?;
        PendingFile::remove(self.folder)
    }

    /// Whether an operation of the conversation is one that asks a person something.
    fn is_question(&self, id: &OperationId) -> bool {
        let Some((call, _)) = self.history().call(&id.call_id) else { return false };
        let operations = check(call, &self.registry, false);
        let Some((_, Ok(checked))) = operations.into_iter().find(|(one, _)| one == id) else { return false };
        let mut world = World::default();
        self.with_surroundings(|surroundings| checked.tool.tool.look(&checked.arguments, surroundings, &mut world));
        let assessed = checked.tool.tool.assess(&checked.arguments, &world, &Overlay::new());
        assessed.is_ok_and(|assessment| assessment.preview.is_question())
    }

    fn commit_repairs(&mut self, settlements: Vec<Settlement>) -> anyhow::Result<()> {
        let limits = (self.settings.result_bytes, self.settings.round_result_bytes);
        commit_repairs(&mut self.log, self.folder, self.reporter, limits, settlements)
    }
}

/// Answers every call that a copy of a session has open: nothing waits there, and nothing goes on.
pub fn close_copy(
    log: &mut Log,
    folder: &SessionFolder,
    pending: Option<&PendingFile>,
    workspace: &Workspace,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let settlements = repair_orphaned_tool_calls(
        log.history(),
        |_| false,
        |call_id| pending.is_some_and(|file| is_numbered(file, call_id)),
        |files| recovery_of(files, workspace),
    );
    let limits = log
        .history()
        .user()
        .map_or((u64::MAX, u64::MAX), |user| (user.settings.result_bytes, user.settings.round_result_bytes));
    commit_repairs(log, folder, reporter, limits, settlements)
}

fn commit_repairs(
    log: &mut Log,
    folder: &SessionFolder,
    reporter: &Reporter,
    (result_bytes, round_result_bytes): (u64, u64),
    settlements: Vec<Settlement>,
) -> anyhow::Result<()> {
    let mut items: Vec<Item> = settlements.into_iter().map(Item::from).collect();
    // A kill between the last operation's result and the call's own: nothing is left but to fold. In the latest reply
    // that is done when the calls before it are answered.
    let latest = log.history().last_round().map(|round| (round.assistant.turn, round.assistant.round));
    let is_latest = |round: &Round| latest == Some((round.assistant.turn, round.assistant.round));
    for (call, progress) in log.history().rounds().filter(|round| !is_latest(round)).flat_map(Round::open_calls) {
        if open_operations_of(call, progress, &|_| false).is_empty() {
            items.push(Item::Recorded(OperationId::whole(&call.id)));
        }
    }
    if items.is_empty() && next_to_fold(log.history()).is_none() {
        return Ok(());
    }
    let Some(round) = log.history().latest_round() else { return Ok(()) };
    let mut budget = Budget::of(round, result_bytes, round_result_bytes);
    commit(log, folder, reporter, &mut budget, items, Vec::new())
}

/// Puts a recorded denial or answer in the place of a repair, so that the results stand in call order, and one alone for
/// each call, whatever the file says of it. What was started was neither.
pub fn heed_decisions(
    settlements: &mut [Settlement],
    pending: &PendingFile,
    history: &History,
    is_question: impl Fn(&OperationId) -> bool,
) {
    for settlement in settlements {
        let started = history.operation(&settlement.id).is_some_and(|one| one.start.is_some());
        let listed = pending.calls.iter().find(|call| call.operation_id() == settlement.id);
        let Some(call) = listed.filter(|_| !started) else { continue };
        let answer: Answer = match call.decision {
            Some(Decision::Deny | Decision::Stale) => settled::refusal(call),
            // The file alone cannot make an answer the result of a call that asked nothing.
            Some(Decision::Answer) if is_question(&settlement.id) => settled::answered(call),
            Some(Decision::Answer) if answers_what_waits(call, history) => settled::answered_in_vain(call),
            Some(Decision::Answer | Decision::Approve | Decision::Allow) | None => continue,
        };
        *settlement = Settlement::of_answer(call.operation_id(), &call.name, answer);
    }
}

/// Whether an answer is one to what its call asked back last.
fn answers_what_waits(call: &PendingCall, history: &History) -> bool {
    let round = match &call.preview {
        Some(Preview::Question { round, .. }) => *round,
        Some(
            Preview::Patch { .. }
            | Preview::Command { .. }
            | Preview::Read { .. }
            | Preview::Fetch { .. }
            | Preview::Tool { .. },
        )
        | None => None,
    };
    history.waiting(&call.operation_id()).is_some_and(|waiting| round == Some(waiting.round))
}

/// Whether the file lists operations of that call one by one.
pub fn is_numbered(pending: &PendingFile, call_id: &str) -> bool {
    pending.calls.iter().any(|call| call.id == call_id && call.operation.is_some())
}
