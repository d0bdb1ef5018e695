//! `attini diff`: the previews of pending patches as one unified diff, for `git apply` and for eyes.

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use crate::cli::DiffArguments;
use crate::exit::Status;
use crate::failure::Failure;
use crate::report::line::{Line, Tone};
use crate::session::folder::SessionFolder;
use crate::session::log::Log;
use crate::session::pending::{PendingCall, PendingFile};
use crate::session::record::{Decision, OperationId, PlannedFile};
use crate::tool::Preview;
use crate::tool::patch::diff::parts;
use crate::turn::decisions::waits;

pub fn run(invocation: &Invocation, arguments: &DiffArguments) -> anyhow::Result<Status> {
    let calls = match invocation.folder()? {
        Some(folder) => waiting_calls(&folder)?,
        None => Vec::new(),
    };
    let shown = match &arguments.id {
        None => calls.iter().filter(|call| patch(call).is_some()).collect(),
        Some(id) => with_ground(&calls, id)?,
    };
    let mut text = String::new();
    let mut outside = Vec::new();
    for call in shown {
        let Some((diff, files)) = patch(call) else { continue };
        outside.extend(files.iter().map(|file| file.path.clone()).filter(|path| is_outside(path)));
        parts(diff).into_iter().filter(|part| !part.starts_with(OUTSIDE_HEADER)).for_each(|part| text.push_str(part));
    }
    for path in &outside {
        invocation
            .reporter
            .notice(&[Line::new(Tone::Dim, &format!("left out, since it lies outside the workspace: {path}"))]);
    }
    invocation.reporter.print_data(&text);
    let fields = json!({"session": invocation.session, "diff": text, "outside": outside});
    let fields = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    invocation.reporter.finish_command("diff", Status::Completed, fields, None);
    Ok(Status::Completed)
}

/// The pending calls, but for those that an interrupted continuation carried out: their patches are written.
fn waiting_calls(folder: &SessionFolder) -> anyhow::Result<Vec<PendingCall>> {
    let Some(mut file) = PendingFile::load(folder)? else { return Ok(Vec::new()) };
    let history = Log::read(folder)?.unwrap_or_default();
    file.calls.retain(|call| waits(&call.operation_id(), &history));
    Ok(file.calls)
}

/// A pending patch with the pending patches it stands on, in order.
fn with_ground<'c>(calls: &'c [PendingCall], id: &str) -> anyhow::Result<Vec<&'c PendingCall>> {
    let wanted = OperationId::parse(id);
    let position = calls.iter().position(|call| {
        call.id == wanted.call_id && (wanted.operation.is_none() || wanted.operation == call.operation)
    });
    let Some(position) = position else {
        return Err(Failure::new(Status::NothingPending, format!("no pending call has the ID {id:?}"))
            .hint("`attini status` lists what is pending")
            .into());
    };
    let Some((_, files)) = patch(&calls[position]) else {
        return Err(Failure::usage(format!("{id} is no patch")).hint("`attini status` shows it whole").into());
    };
    let mut touched: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut ground = vec![&calls[position]];
    for call in calls[..position].iter().rev() {
        let Some((_, files)) = patch(call) else { continue };
        let stands_on_it = files.iter().any(|file| touched.contains(&file.path.as_str()));
        if stands_on_it {
            touched.extend(files.iter().map(|file| file.path.as_str()));
            ground.push(call);
        }
    }
    ground.reverse();
    Ok(ground)
}

/// A patch that may still be applied.
fn patch(call: &PendingCall) -> Option<(&str, &[PlannedFile])> {
    if matches!(call.decision, Some(Decision::Deny | Decision::Stale)) {
        return None;
    }
    match &call.preview {
        Some(Preview::Patch { diff, files, .. }) => Some((diff, files)),
        _ => None,
    }
}

/// How the part of a file outside the workspace begins: its path is absolute.
const OUTSIDE_HEADER: &str = "diff --git a//";

fn is_outside(path: &str) -> bool {
    path.starts_with('/')
}
