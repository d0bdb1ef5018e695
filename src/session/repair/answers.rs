//! The results that a repair adds: for the calls that nothing else would answer, and for those of which a lost line may
//! have told.
//!
//! A call that waits in a pending.json that fits keeps waiting; one of an unfinished turn is left to the next turn.

use std::collections::HashSet;

use super::screening::Screening;
use super::{Deed, Pending};
use crate::call::committed::{Budget, Item, Settlement, append_all};
use crate::call::fanned::word;
use crate::call::planned::Answer;
use crate::report::event::Event;
use crate::session::check::overdue_calls;
use crate::session::folder::SessionFolder;
use crate::session::history::History;
use crate::session::log;
use crate::session::log::draft::Draft;
use crate::session::pending::PendingFile;
use crate::session::record::{DecidedBy, Decision, OperationId, ResultStatus, Scope};
use crate::turn::resume::{
    REPAIR_REASON, heed_decisions, is_numbered, open_operations_of, recovery_of, repair_orphaned_tool_calls,
};
use crate::workspace::Workspace;

/// Appends the results to the draft, and says which.
pub(super) fn add(
    draft: &mut Draft<'_>,
    folder: &SessionFolder,
    screening: &Screening,
    pending: &Pending,
    workspace: &Workspace,
) -> anyhow::Result<Vec<Deed>> {
    let items = items(draft.history(), screening, pending, workspace);
    let result_bytes = draft.history().user().map_or(0, |user| user.settings.result_bytes);
    let mut budget = Budget::of_each(result_bytes);
    let events = append_all(draft.log_mut(), folder, &mut budget, items)?;
    let deed = |event| {
        let Event::ToolResult { call, status, .. } = event else { return None };
        Some(Deed {
            file: folder.display(log::FILE_NAME),
            line: None,
            what: format!("{} had no result, and is answered as {}", call.id, word(status)),
        })
    };
    Ok(events.into_iter().filter_map(deed).collect())
}

fn items(history: &History, screening: &Screening, pending: &Pending, workspace: &Workspace) -> Vec<Item> {
    let overdue: HashSet<String> = overdue_calls(history).into_iter().collect();
    let (waiting, dropped) = match pending {
        Pending::Absent | Pending::Stale => (None, None),
        Pending::Fits(file) => (Some(file), None),
        Pending::Misfit(file, _) => (None, file.as_ref()),
    };
    let all = matches!(pending, Pending::Misfit(..)) || (screening.has_notices() && waiting.is_none());
    let is_doubtful =
        |id: &OperationId| screening.is_doubtful(&id.call_id) && !waiting.is_some_and(|file| is_untouched(file, id));
    let is_answered = |id: &OperationId| all || overdue.contains(&id.call_id) || is_doubtful(id);
    let numbered = |call_id: &str| [waiting, dropped].into_iter().flatten().any(|file| is_numbered(file, call_id));
    let recover = |files: &[_]| recovery_of(files, workspace);
    let mut settlements = repair_orphaned_tool_calls(history, |id| !is_answered(id), numbered, recover);
    if let Some(file) = waiting.or(dropped) {
        heed_decisions(&mut settlements, file, history, |id| is_question(history, id));
    }
    for settlement in &mut settlements {
        let says_not_run = matches!(settlement.status, ResultStatus::Cancelled | ResultStatus::Denied);
        if says_not_run && is_doubtful(&settlement.id) {
            *settlement = doubtful(settlement.id.clone(), &settlement.name);
        }
    }
    let mut items: Vec<Item> = settlements.into_iter().map(Item::from).collect();
    // All their operations are recorded, and nothing is left but to fold.
    for (call, progress) in history.open_calls() {
        let id = OperationId::whole(&call.id);
        if is_answered(&id) && open_operations_of(call, progress, &numbered).is_empty() {
            items.push(Item::Recorded(id));
        }
    }
    items
}

/// Whether an operation asks a person something, and so has no effects.
fn is_question(history: &History, id: &OperationId) -> bool {
    history.call(&id.call_id).is_some_and(|(call, _)| call.name == crate::tool::ask_user::NAME)
}

/// Whether a call that waits cannot have been started. What is pending runs once all of it is decided, and what was
/// denied or only answered never.
fn is_untouched(file: &PendingFile, id: &OperationId) -> bool {
    file.call(id).is_some_and(|call| {
        file.undecided().next().is_some()
            || matches!(call.decision, Some(Decision::Deny | Decision::Stale | Decision::Answer))
    })
}

fn doubtful(id: OperationId, name: &str) -> Settlement {
    let content = "A line of the log that may have told of this call cannot be read. It may have taken effect, and what \
                   it started may still run.";
    Settlement {
        reason: Some(REPAIR_REASON.to_owned()),
        auto_decided_by: Some(DecidedBy { scope: Scope::Repair, reason: None, rule: None, matches: Vec::new() }),
        ..Settlement::of_answer(id, name, Answer::new(ResultStatus::Unknown, "unknown_outcome", content.to_owned()))
    }
}
