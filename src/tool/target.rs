//! What `list`, `read` and `search` have in common: one path that is looked at, judged as a read, and opened where it
//! was judged to be.

use std::io;

use crate::config::nearest;
use crate::permission::{Access, ReadAccess};
use crate::session::record::ResultStatus;
use crate::tool::{Assessment, Moot, Outcome, Overlay, Preview, Refusal, Surroundings, Work};
use crate::workspace::resolve::is_link_error;
use crate::workspace::{Kind, Location, Place, World};

/// What kind of thing a tool reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    File,
    Folder,
    FileOrFolder,
}

/// Reads a tool's arguments from what fits its schema.
pub(super) fn arguments<Arguments: serde::de::DeserializeOwned>(
    value: &serde_json::Value,
) -> Result<Arguments, Refusal> {
    serde::Deserialize::deserialize(value).map_err(|error| Refusal::new("invalid_arguments", error.to_string()))
}

pub(super) fn look(written: &str, surroundings: &Surroundings<'_>, world: &mut World) {
    if !world.locations.contains_key(written) {
        let located = surroundings.workspace.locate(written, surroundings.session);
        world.locations.insert(written.to_owned(), located);
    }
}

/// Where the path of a call was found to lead.
pub(super) fn location<'w>(written: &str, world: &'w World) -> Result<&'w Location, Refusal> {
    match world.locations.get(written) {
        Some(Ok(location)) => Ok(location),
        Some(Err(refusal)) => Err(refusal.clone()),
        None => Err(Refusal::new("stale", format!("`{written}` was not looked at before"))),
    }
}

/// The read that a call comes to. What is not there, or is of the wrong kind, is moot where a person would be asked;
/// elsewhere it is left to the run, since a call before this one may still make it.
pub(super) fn assess(location: &Location, wanted: Wanted, summary: String, overlay: &Overlay) -> Assessment {
    let outside = location.place == Place::Outside;
    let moot = match overlay.get(&location.absolute) {
        _ if !outside && !location.secret => None,
        Some(Some(_)) => None,
        Some(None) => Some(Moot::Plain(not_found(location))),
        None => ensure_kind(location, wanted).err().map(Moot::Plain),
    };
    let why = match (outside, location.secret) {
        (true, true) => "it is outside the workspace and named like a file that holds secrets",
        (true, false) => "it is outside the workspace",
        (false, true) => "it is named like a file that holds secrets",
        (false, false) => "it lies in the workspace",
    };
    let path = match location.place {
        Place::Session => std::path::PathBuf::new(),
        Place::Workspace | Place::Outside => location.absolute.clone(),
    };
    Assessment {
        summary,
        accesses: vec![Access::Read(ReadAccess { path, place: location.place, secret: location.secret })],
        preview: Preview::Read { path: location.shown.clone(), why: why.to_owned() },
        files: Vec::new(),
        after: Overlay::new(),
        moot,
    }
}

fn ensure_kind(location: &Location, wanted: Wanted) -> Result<(), Refusal> {
    match (location.kind, wanted) {
        (Kind::Absent, _) => Err(not_found(location)),
        (Kind::File, Wanted::Folder) => Err(not_a_folder(location)),
        (Kind::Folder, Wanted::File) => Err(is_a_folder(location)),
        (Kind::Other, _) => Err(not_regular(location)),
        (Kind::File, Wanted::File | Wanted::FileOrFolder) | (Kind::Folder, Wanted::Folder | Wanted::FileOrFolder) => {
            Ok(())
        }
    }
}

pub(super) fn not_a_folder(location: &Location) -> Refusal {
    Refusal::new("not_a_folder", format!("{} is a file, not a folder; use `read` for it", location.shown))
}

pub(super) fn is_a_folder(location: &Location) -> Refusal {
    Refusal::new("not_a_file", format!("{} is a folder; use `list` for it", location.shown))
}

pub(super) fn not_regular(location: &Location) -> Refusal {
    Refusal::new("not_a_file", format!("{} is a device, socket or pipe", location.shown))
}

fn not_found(location: &Location) -> Refusal {
    Refusal::new("not_found", format!("there is no {}", location.shown))
}

pub(super) fn stale(location: &Location) -> Refusal {
    Refusal::new("stale", format!("{} changed since it was judged; nothing was read", location.shown))
}

/// Why opening the resolved path failed, for the model.
pub(super) fn open_failure(location: &Location, error: &io::Error, work: &Work<'_>) -> Refusal {
    if is_link_error(error) {
        return stale(location);
    }
    if error.kind() != io::ErrorKind::NotFound {
        return Refusal::new("io_error", format!("cannot open {}: {error}", location.shown));
    }
    let refusal = not_found(location);
    let surroundings = work.surroundings;
    let mut near = surroundings.workspace.nearest(location, surroundings.session);
    let root = surroundings.workspace.root.path();
    near.retain(|path| !surroundings.read_denials.denies(&root.join(path)));
    if near.is_empty() { refusal } else { refusal.detail(nearest::named("the nearest existing path", &near)) }
}

/// The result of a read that a signal or the time limit ended; what it found so far is of no use.
pub(super) fn interrupted() -> Outcome {
    Outcome { status: ResultStatus::Cancelled, ..Outcome::error("cancelled", "interrupted before it was finished") }
}
