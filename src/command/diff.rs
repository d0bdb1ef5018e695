//! `attini diff`: what the pending patches come to, as one unified diff, for `git apply` and for eyes.
//!
//! The diff is made again from the arguments of the calls, so that each file stands in it once and by its very bytes.
//! Where that gives something else than what was shown, the files have changed since, and what was shown is printed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use crate::cli::DiffArguments;
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::{HostVerdict, ReadDenials};
use crate::report::line::{Line, Tone};
use crate::session::folder::SessionFolder;
use crate::session::log::Log;
use crate::session::pending::{PendingCall, PendingFile};
use crate::session::record::{Decision, OperationId, PlannedFile};
use crate::tool::patch::diff::parts;
use crate::tool::patch::net::{NetPart, Stack};
use crate::tool::patch::{self, is_stacked_on};
use crate::tool::{Limits, Preview, Surroundings};
use crate::turn::decisions::waits;

/// What the tool's own bounds are does not matter here: nothing is run.
const NO_LIMITS: Limits =
    Limits { result_bytes: u64::MAX, output_bytes: u64::MAX, command_timeout: Duration::from_secs(1) };

/// A pending patch.
struct Candidate<'c> {
    call: &'c PendingCall,
    /// What was shown; `None` where it is carried: a rule allows it, and it waits for calls before it alone.
    shown: Option<(&'c str, &'c [PlannedFile])>,
    /// Its files as they are made now; where that cannot be, as they were shown.
    files: Vec<PlannedFile>,
    /// Whether it would still do what was shown.
    is_as_shown: bool,
}

/// What is printed.
#[derive(Default)]
struct Printed {
    bytes: Vec<u8>,
    /// The paths outside the workspace.
    outside: Vec<String>,
    /// What is said of each part that is left out.
    left_out: Vec<String>,
}

pub fn run(invocation: &Invocation, arguments: &DiffArguments) -> anyhow::Result<Status> {
    let folder = invocation.folder()?;
    let calls = match &folder {
        Some(folder) => waiting_calls(folder)?,
        None => Vec::new(),
    };
    let (stack, candidates) = candidates(&calls, invocation, folder.as_ref());
    let wanted: Vec<usize> = match &arguments.id {
        None => (0..candidates.len()).filter(|index| candidates[*index].shown.is_some()).collect(),
        Some(id) => vec![find(&calls, &candidates, id)?],
    };
    let selected = with_ground(&candidates, wanted);
    let is_current = selected.iter().all(|index| candidates[*index].is_as_shown);
    let printed = if is_current { net(&stack, &selected) } else { stored(&candidates, &selected) };
    if !is_current {
        let what = "files have changed since the patches were shown: this is what was shown, and git may not take it";
        invocation.reporter.notice(&[Line::new(Tone::Warning, &format!("warning: {what}"))]);
    }
    for left_out in &printed.left_out {
        let line = format!("left out, since it lies outside the workspace: {left_out}");
        invocation.reporter.notice(&[Line::new(Tone::Dim, &line)]);
    }
    invocation.reporter.print_bytes(&printed.bytes);
    invocation.reporter.finish_command("diff", Status::Completed, fields(invocation, &printed, is_current), None);
    Ok(Status::Completed)
}

/// `exact`: whether `diff` is what is printed, to the byte; JSON holds text alone.
fn fields(invocation: &Invocation, printed: &Printed, is_current: bool) -> Map<String, Value> {
    let text = String::from_utf8_lossy(&printed.bytes);
    let is_exact = is_current && std::str::from_utf8(&printed.bytes).is_ok();
    let fields = json!({"session": invocation.session, "diff": text, "exact": is_exact, "outside": printed.outside});
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The pending calls, but for those that an interrupted continuation carried out: their patches are written.
fn waiting_calls(folder: &SessionFolder) -> anyhow::Result<Vec<PendingCall>> {
    let Some(mut file) = PendingFile::load(folder)? else { return Ok(Vec::new()) };
    let history = Log::read(folder)?.unwrap_or_default();
    file.calls.retain(|call| waits(&call.operation_id(), &history));
    Ok(file.calls)
}

/// All patches that may still be applied, each made again on top of those before it.
fn candidates<'c>(
    calls: &'c [PendingCall],
    invocation: &Invocation,
    folder: Option<&SessionFolder>,
) -> (Stack, Vec<Candidate<'c>>) {
    let is_void = |call: &PendingCall| matches!(call.decision, Some(Decision::Deny | Decision::Stale));
    let calls: Vec<&PendingCall> = calls.iter().filter(|call| call.name == patch::NAME && !is_void(call)).collect();
    let arguments: Vec<&Value> = calls.iter().map(|call| &call.arguments).collect();
    let surroundings = Surroundings {
        workspace: &invocation.workspace,
        session: folder,
        written: &BTreeMap::new(),
        limits: &NO_LIMITS,
        withheld_variables: &[],
        fetch_verdict: &|_| HostVerdict::Asks,
        read_denials: &ReadDenials::default(),
        state: None,
    };
    let stack = Stack::look(&arguments, &surroundings);
    let candidate = |(index, call): (usize, &'c PendingCall)| {
        let shown = match &call.preview {
            Some(Preview::Patch { diff, files, .. }) => Some((diff.as_str(), files.as_slice())),
            _ => None,
        };
        let now = stack.files(index);
        let is_as_shown = now.as_deref().is_some_and(|now| shown.is_none_or(|(_, files)| files == now));
        let files = now.or_else(|| shown.map(|(_, files)| files.to_vec())).unwrap_or_default();
        Candidate { call, shown, files, is_as_shown }
    };
    let candidates = calls.into_iter().enumerate().map(candidate).collect();
    (stack, candidates)
}

/// The candidate that an ID names.
fn find(calls: &[PendingCall], candidates: &[Candidate<'_>], id: &str) -> anyhow::Result<usize> {
    let wanted = OperationId::parse(id);
    let is_wanted = |call: &PendingCall| {
        call.id == wanted.call_id && (wanted.operation.is_none() || wanted.operation == call.operation)
    };
    let found = candidates.iter().position(|candidate| is_wanted(candidate.call) && candidate.shown.is_some());
    if let Some(index) = found {
        return Ok(index);
    }
    if calls.iter().any(is_wanted) {
        return Err(Failure::usage(format!("{id} is no patch")).hint("`attini status` shows it whole").into());
    }
    Err(Failure::new(Status::NothingPending, format!("no pending call has the ID {id:?}"))
        .hint("`attini status` lists what is pending")
        .into())
}

/// The wanted patches with those they stand on, in order.
fn with_ground(candidates: &[Candidate<'_>], wanted: Vec<usize>) -> Vec<usize> {
    let mut selected = wanted;
    for index in (0..candidates.len()).rev() {
        let stands_on_it =
            |later: &usize| *later > index && is_stacked_on(&candidates[*later].files, &candidates[index].files);
        if !selected.contains(&index) && selected.iter().any(stands_on_it) {
            selected.push(index);
        }
    }
    selected.sort_unstable();
    selected
}

fn net(stack: &Stack, selected: &[usize]) -> Printed {
    let mut printed = Printed::default();
    for NetPart { path, moved_from, is_outside, bytes } in stack.net(selected) {
        if !is_outside {
            printed.bytes.extend(bytes);
            continue;
        }
        printed.left_out.push(match &moved_from {
            Some(source) => format!("{path}, to which {source} is moved"),
            None => path.clone(),
        });
        printed.outside.extend(moved_from.into_iter().chain([path]).filter(|path| path.starts_with('/')));
    }
    printed
}

/// What was shown of each patch, as it was shown.
fn stored(candidates: &[Candidate<'_>], selected: &[usize]) -> Printed {
    let mut printed = Printed::default();
    for index in selected {
        let Some((diff, files)) = candidates[*index].shown else { continue };
        printed.outside.extend(files.iter().map(|file| file.path.clone()).filter(|path| path.starts_with('/')));
        // No path inside has two slashes in a row; an absolute one has them behind its `a/` or `b/`.
        let is_inside = |part: &&str| part.lines().next().is_some_and(|header| !header.contains("//"));
        parts(diff).into_iter().filter(is_inside).for_each(|part| printed.bytes.extend(part.as_bytes()));
    }
    printed.left_out.clone_from(&printed.outside);
    printed
}
