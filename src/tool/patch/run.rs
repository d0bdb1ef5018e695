//! One run of a patch: the files are still what the permit saw, their content is kept, then all are written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::apply::{self, Content, FileChange, sha256_of};
use super::before::{self, Image};
use super::edits;
use super::write::{self, Attributes, Failure, FileWrite, Places};
use crate::session::record::{PlannedFile, ResultStatus};
use crate::tool::{Outcome, Refusal, Work};

/// What is told to a model in place of the lines of a file that holds secrets.
const WITHHELD: &str = "its lines are not shown, because its name is that of a file with secrets";

/// What each file holds as the run begins, by its absolute path; `None`: there is none.
type Present = BTreeMap<PathBuf, Option<(Arc<[u8]>, Attributes)>>;

pub(super) fn run(work: &Work<'_>) -> Outcome {
    match prepared(work) {
        Ok((places, present, changes)) => written(work, &places, &present, &changes),
        Err(refusal) => refusal.into(),
    }
}

fn prepared<'w>(work: &'w Work<'_>) -> Result<(Places<'w>, Present, Vec<FileChange>), Refusal> {
    let places = Places::open(work.surroundings.workspace)
        .map_err(|error| Refusal::new("io_error", format!("the root folder cannot be opened: {error}")))?;
    let edits = edits::parse(work.arguments)?;
    ensure_as_permitted(work.files, &places)?;
    let mut present = Present::new();
    for path in edits::paths(work.arguments) {
        let Some(Ok(location)) = work.world.locations.get(path) else { continue };
        // One that cannot be read is reported when an edit needs it.
        if let Ok(found) = places.read(&apply::planned_path(location)?) {
            present.insert(location.absolute.clone(), found);
        }
    }
    let look_up = |location: &crate::workspace::Location| match present.get(&location.absolute) {
        Some(found) => Ok(found.as_ref().map(content)),
        None => Err(Refusal::new("stale", format!("{} can no longer be read", location.shown))),
    };
    let changes = apply::apply(&edits, &work.world.locations, &look_up)?;
    let planned = changes.iter().map(|change| &change.planned);
    if let Some(other) = planned.clone().find(|file| !work.files.contains(file)) {
        return Err(stale(&other.path, "its path leads elsewhere now, or it is not what was shown"));
    }
    if let Some(other) = work.files.iter().find(|file| !planned.clone().any(|planned| planned == *file)) {
        return Err(stale(&other.path, "the edits no longer lead to what was shown"));
    }
    Ok((places, present, changes))
}

fn content((bytes, attributes): &(Arc<[u8]>, Attributes)) -> Content {
    let executable = attributes.mode & super::OWNER_EXECUTES != 0;
    Content {
        bytes: bytes.clone(),
        executable,
        may_be_told: true,
        identity: attributes.identity,
        links: attributes.links,
    }
}

fn ensure_as_permitted(files: &[PlannedFile], places: &Places<'_>) -> Result<(), Refusal> {
    for file in files {
        let found =
            places.read(&file.path).map_err(|error| stale(&file.path, &format!("it cannot be read: {error}")))?;
        if found.map(|(bytes, _)| sha256_of(&bytes)) != file.sha256_before {
            return Err(stale(&file.path, "it was changed since"));
        }
    }
    Ok(())
}

fn stale(path: &str, why: &str) -> Refusal {
    let content = format!("{path} is no longer what this patch was made on ({why}); nothing was written");
    Refusal::new("stale", content).detail(format!("read {path} again"))
}

fn written(work: &Work<'_>, places: &Places<'_>, present: &Present, changes: &[FileChange]) -> Outcome {
    let attributes = |path: &Path| present.get(path).and_then(|found| found.as_ref()).map(|(_, found)| found.clone());
    if let Some(session) = work.surroundings.session {
        let image = |change: &FileChange| Image {
            planned: change.planned.clone(),
            mode: attributes(&change.location.absolute).map(|found| found.mode),
            bytes: change.before.clone(),
        };
        let images: Vec<Image> = changes.iter().map(image).collect();
        if let Err(error) = before::keep(session, work.label, &images) {
            let content = format!("what the files held could not be kept for undo, so nothing was changed: {error}");
            return Outcome::error("io_error", content);
        }
    }
    let file_write = |change: &FileChange| FileWrite {
        path: change.planned.path.clone(),
        before: change.before.clone(),
        after: change.after.clone(),
        attributes: change.origin.as_ref().and_then(|(absolute, _)| attributes(absolute)),
    };
    let writes: Vec<FileWrite> = changes.iter().map(file_write).collect();
    match write::write_all(places, &writes) {
        Ok(()) => {
            // A moved file has two names, and is one file.
            let count = changes.iter().filter(|change| !super::is_moved_away(change)).count();
            let files = if count == 1 { "file" } else { "files" };
            let notes: String = super::notes(changes).into_iter().map(|note| format!("\n[{note}]")).collect();
            Outcome::ok(format!("{count} {files} changed{notes}\n\n{}", super::diff_of(changes, Some(WITHHELD))))
        }
        Err(Failure::Unchanged(reason)) => {
            if let Some(session) = work.surroundings.session {
                before::discard(session, work.label);
            }
            Outcome::error("io_error", format!("{reason}; nothing was changed"))
        }
        Err(Failure::Unknown(reason, states)) => {
            let states: Vec<String> =
                states.iter().map(|(path, state)| format!("{path} is {}", state.words())).collect();
            let content = format!("the patch was written in part: {reason}\n{}", states.join("\n"));
            Outcome { status: ResultStatus::Unknown, ..Outcome::error("io_error", content) }
        }
    }
}
