//! `attini undo`: puts back what a turn's patches changed, and has the model told.

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use super::opened::{Opened, open};
use crate::cli::UndoArguments;
use crate::clock;
use crate::exit::Status;
use crate::failure::Failure;
use crate::report::line::{Line, Tone};
use crate::session::folder::SessionFolder;
use crate::session::history::{CallProgress, History, OperationProgress};
use crate::session::log::Log;
use crate::session::record::{NoticeOutcome, NoticeRecord, OperationId, Record, ResultStatus, ToolStartRecord};
use crate::tool::patch::before;
use crate::tool::patch::recover::{follow_trace, leave_trace};
use crate::tool::patch::undo::{Applied, Plan, plan, put_back};
use crate::tool::patch::write::Places;
use crate::workspace::Place;

/// How many files a notice names; the others are counted.
const NAMED_FILES_MAX: usize = 100;

pub fn run(invocation: &Invocation, arguments: &UndoArguments) -> anyhow::Result<Status> {
    let session = &invocation.session;
    let nothing = |what: String| Failure::new(Status::NothingPending, what);
    let Some(folder) = invocation.folder()? else {
        return Err(nothing(format!("there is no session {session}")).into());
    };
    let opened = open(invocation, &folder, arguments.wait)?;
    let Opened { log: Some(mut log), .. } = opened else {
        return Err(nothing(format!("there is no session {session}")).into());
    };
    ensure_all_answered(log.history(), invocation)?;
    let turn = arguments.turn.unwrap_or(log.history().turn());
    // A summary may cover the turn, and its patches can be put back all the same.
    let whole = match log.history().summary() {
        Some(_) => Log::read_whole(&folder)?,
        None => None,
    };
    let history = whole.as_ref().unwrap_or(log.history());
    let patches = applied(history, turn, &folder)?;
    if patches.is_empty() {
        return Err(nothing_patched(history, turn).into());
    }
    let places = Places::open(&invocation.workspace)?;
    let plan = plan(&patches, &places);
    ensure_allowed(&plan, turn, invocation, arguments.outside)?;
    let is_told = history.notices().any(|notice| notice.turn == Some(turn));
    if plan.restorations.is_empty() && is_told {
        return Err(undone_already(log.history(), turn).into());
    }
    if !arguments.dry_run {
        // From here on files are changed; a signal is heeded when that is done.
        invocation.interrupt.end_in_order();
        leave_trace(&folder, &plan.restorations)
            .map_err(|error| Failure::persistence(format!("{} cannot be written: {error}", folder.display(""))))?;
        let put_back = put_back(&plan.restorations, &places);
        let followed = follow_trace(&folder, &invocation.workspace);
        put_back.map_err(|error| Failure::new(Status::Error, error.to_string()))?;
        followed.map_err(|error| Failure::persistence(format!("temporary files cannot be removed: {error}")))?;
        log.append(&Record::Notice(notice(turn, &plan)))?;
        log.barrier()?;
    }
    tell(invocation, turn, &plan, arguments.dry_run);
    Ok(Status::Completed)
}

/// A notice stands behind complete pairs, and what is pending may stand on what would be put back.
fn ensure_all_answered(history: &History, invocation: &Invocation) -> Result<(), Failure> {
    let Some((call, _)) = history.open_calls().next() else { return Ok(()) };
    let prefix = &invocation.command_prefix;
    Err(Failure::new(Status::Conflict, format!("the call {} has no result yet", call.id)).hint(format!(
        "end the turn first: `{prefix} deny`, `{prefix} resume`, or a new prompt; see `{prefix} status`"
    )))
}

/// The patches of a turn that took effect or may have, with what was kept of their files.
fn applied(history: &History, turn: u64, folder: &SessionFolder) -> anyhow::Result<Vec<Applied>> {
    let mut patches = Vec::new();
    for round in history.rounds().filter(|round| round.assistant.turn == turn) {
        for (call, progress) in round.assistant.tool_calls.iter().zip(&round.calls) {
            for (number, operation) in &progress.operations {
                let Some(start) = patch_start(operation) else { continue };
                let of_operation = operation.result.as_ref().map(|result| result.status);
                let status = of_operation.or(progress.result.as_ref().map(|result| result.status));
                let is_uncertain = match status {
                    Some(ResultStatus::Ok) => false,
                    Some(ResultStatus::Unknown) | None => true,
                    Some(
                        ResultStatus::Error | ResultStatus::Denied | ResultStatus::Cancelled | ResultStatus::NotRun,
                    ) => continue,
                };
                let id = OperationId { call_id: call.id.clone(), operation: *number };
                let images = before::load(folder, &id.file_name()).map_err(|error| lost(&id, &error.to_string()))?;
                let Some(images) = images else { return Err(lost(&id, "nothing was kept").into()) };
                // The log is the truth; an image of anything else is none of this patch's.
                if !images.iter().map(|image| &image.planned).eq(&start.files) {
                    return Err(lost(&id, "what was kept is of other files").into());
                }
                patches.push(Applied { images, is_uncertain });
            }
        }
    }
    Ok(patches)
}

/// The start of a patch that was made here. What the session brought along from elsewhere was never done to these files.
fn patch_start(operation: &OperationProgress) -> Option<&ToolStartRecord> {
    operation.start.as_ref().filter(|start| !start.files.is_empty() && !operation.is_foreign)
}

fn lost(id: &OperationId, why: &str) -> Failure {
    Failure::new(Status::Conflict, format!("what the patch {id} changed cannot be put back: {why}"))
}

fn undone_already(history: &History, turn: u64) -> Failure {
    let is_undone = |number: &u64| history.notices().any(|notice| notice.turn == Some(*number));
    let left: Vec<u64> = patched_turns(history).into_iter().filter(|number| !is_undone(number)).collect();
    with_turns(Failure::new(Status::NothingPending, format!("turn {turn} is undone already")), &left)
}

fn nothing_patched(history: &History, turn: u64) -> Failure {
    let here = if is_foreign(history, turn) { "; what it says was done before the session came here" } else { "" };
    let failure = Failure::new(Status::NothingPending, format!("no patch of turn {turn} changed a file{here}"));
    with_turns(failure, &patched_turns(history))
}

/// Whether anything of the turn was started elsewhere.
fn is_foreign(history: &History, turn: u64) -> bool {
    let mut rounds = history.rounds().filter(|round| round.assistant.turn == turn);
    rounds.any(|round| round.calls.iter().flat_map(|call| call.operations.values()).any(|one| one.is_foreign))
}

fn with_turns(failure: Failure, turns: &[u64]) -> Failure {
    match turns {
        [] => failure,
        [only] => failure.hint(format!("turn {only} has patches")),
        several => {
            let numbers: Vec<String> = several.iter().map(u64::to_string).collect();
            failure.hint(format!("these turns have patches: {}", numbers.join(", ")))
        }
    }
}

fn patched_turns(history: &History) -> Vec<u64> {
    let has_patch =
        |progress: &CallProgress| progress.operations.values().any(|operation| patch_start(operation).is_some());
    let mut turns: Vec<u64> =
        history.rounds().filter(|round| round.calls.iter().any(has_patch)).map(|round| round.assistant.turn).collect();
    turns.dedup();
    turns
}

/// Refuses to write over what somebody else changed, where nothing may be written, and outside unless that was said.
fn ensure_allowed(plan: &Plan, turn: u64, invocation: &Invocation, outside: bool) -> Result<(), Failure> {
    if !plan.changed.is_empty() {
        let files: Vec<String> = plan.changed.iter().map(|(path, why)| format!("{path} ({why})")).collect();
        let what = format!("turn {turn} cannot be undone, and nothing was touched: {}", files.join("; "));
        return Err(Failure::new(Status::Conflict, what));
    }
    for one in &plan.restorations {
        let refuse = |why: &str| Failure::new(Status::Conflict, format!("{} is not put back: {why}", one.path));
        let location = invocation.workspace.locate(&one.path, None).map_err(|refusal| refuse(&refusal.message))?;
        if location.shown != one.path {
            return Err(refuse(&format!("a link leads its path to {}", location.shown)));
        }
        if let Some(never) = &location.never_writable {
            return Err(refuse(never));
        }
        if location.place == Place::Outside && !outside {
            return Err(refuse("it lies outside the workspace").hint("`--outside` puts such files back too"));
        }
    }
    Ok(())
}

fn notice(turn: u64, plan: &Plan) -> NoticeRecord {
    let restored = plan.restorations.iter().map(|one| format!("{} ({})", one.path, one.words()));
    let already = plan.already.iter().map(|path| format!("{path} (as it was)"));
    let files: Vec<String> = restored.chain(already).collect();
    let mut named = files[..files.len().min(NAMED_FILES_MAX)].join(", ");
    if files.len() > NAMED_FILES_MAX {
        named = format!("{named} and {} more", files.len() - NAMED_FILES_MAX);
    }
    NoticeRecord {
        at: clock::now(),
        task_id: None,
        call_id: None,
        turn: Some(turn),
        outcome: NoticeOutcome::Undone,
        exit_code: None,
        text: format!(
            "[The user has undone what your patches changed in turn {turn} of this conversation: {named}. \
                       Read a file again before you change it.]"
        ),
    }
}

fn tell(invocation: &Invocation, turn: u64, plan: &Plan, is_dry: bool) {
    let would = if is_dry { "would be " } else { "" };
    let mut lines: Vec<Line> =
        plan.restorations.iter().map(|one| Line::plain(&format!("{would}{}: {}", one.words(), one.path))).collect();
    if lines.is_empty() {
        lines.push(Line::new(Tone::Dim, &format!("every file is as it was before turn {turn}")));
    }
    invocation.reporter.print(&lines);
    let listed: Vec<Value> =
        plan.restorations.iter().map(|one| json!({"path": one.path, "outcome": one.words()})).collect();
    let mut fields = Map::new();
    fields.insert("session".to_owned(), json!(invocation.session));
    fields.insert("turn".to_owned(), json!(turn));
    fields.insert("files".to_owned(), json!(listed));
    fields.insert("unchanged".to_owned(), json!(plan.already));
    fields.insert("dry_run".to_owned(), json!(is_dry));
    invocation.reporter.finish_command("undo", Status::Completed, fields, None);
}
