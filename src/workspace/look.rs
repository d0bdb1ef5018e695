//! Gathers what a plan must know of the files that a patch names: where they are, what they hold, and whether that can
//! be had back. It judges nothing.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::root::Root;
use super::{FileState, Kind, Location, Place, World, git, resolve};
use crate::tool::{Refusal, Surroundings};

/// The largest file that a plan is made on.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// All files of a plan together.
const PLAN_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The mode of a file that does not exist yet.
const NEW_FILE_MODE: u32 = 0o644;

/// Fills `world.locations` for each path, and `world.files` for those that lead to a file or to nothing. What cannot be
/// resolved or read is there as a refusal. Git is asked once, for all files together.
pub fn gather(written_paths: &[&str], surroundings: &Surroundings<'_>, world: &mut World) {
    let mut bytes_left =
        PLAN_BYTES_MAX.saturating_sub(world.files.values().filter_map(|file| file.bytes.as_ref()).map(size).sum());
    let mut looked_at = Vec::new();
    for written in written_paths {
        if world.locations.contains_key(*written) {
            // A fact that is already gathered stays as it is: one plan, one view of the world.
            if let Some(Ok(location)) = world.locations.get(*written)
                && needs_a_look(location, world)
            {
                looked_at.push(((*written).to_owned(), location.clone()));
            }
            continue;
        }
        let located = surroundings.workspace.locate(written, surroundings.session);
        if let Ok(location) = &located {
            if surroundings.read_denials.denies(&location.absolute) {
                world.read_denied.insert(location.absolute.clone());
            }
            looked_at.push(((*written).to_owned(), location.clone()));
        }
        world.locations.insert((*written).to_owned(), located);
    }
    let mut fresh: Vec<Location> = Vec::new();
    for (written, location) in looked_at {
        if !needs_a_look(&location, world) {
            continue;
        }
        match read_state(&location, surroundings, bytes_left) {
            Ok(state) => {
                bytes_left = bytes_left.saturating_sub(state.bytes.as_ref().map_or(0, size));
                world.files.insert(location.absolute.clone(), state);
                fresh.push(location);
            }
            Err(error) => {
                world.locations.insert(written, Err(refusal(&location, &error)));
            }
        }
    }
    judge(&fresh, surroundings, world);
}

/// The state of one file, or of the lack of one. Errors: `FileTooLarge` beyond [`FILE_BYTES_MAX`], ELOOP where a link
/// took its place, and what reading brings.
pub fn look_at_file(location: &Location, surroundings: &Surroundings<'_>) -> io::Result<FileState> {
    let state = read_state(location, surroundings, FILE_BYTES_MAX)?;
    let mut world = World::default();
    world.files.insert(location.absolute.clone(), state);
    judge(std::slice::from_ref(location), surroundings, &mut world);
    world.files.remove(&location.absolute).ok_or_else(|| io::Error::other("the file's state was lost"))
}

/// SHA-256 as 64 hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    git::hex(&Sha256::digest(bytes))
}

fn size(bytes: &Arc<[u8]>) -> u64 {
    bytes.len() as u64
}

fn needs_a_look(location: &Location, world: &World) -> bool {
    match location.kind {
        Kind::File | Kind::Absent => !world.files.contains_key(&location.absolute),
        Kind::Folder | Kind::Other => false,
    }
}

fn read_state(location: &Location, surroundings: &Surroundings<'_>, bytes_left: u64) -> io::Result<FileState> {
    let (root, path) = surroundings.workspace.root_for(location, surroundings.session)?;
    let absent = FileState {
        bytes: None,
        sha256: None,
        mode: NEW_FILE_MODE,
        identity: None,
        links: 0,
        revertible: Err("there is no such file yet".to_owned()),
    };
    let (bytes, metadata) = match read_bounded(&root, &path, FILE_BYTES_MAX.min(bytes_left)) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(absent),
        Err(error) => return Err(error),
    };
    let sha256 = sha256_hex(&bytes);
    let revertible = if surroundings.written.get(&location.shown) == Some(&sha256) {
        Ok("attini wrote these bytes earlier in this session".to_owned())
    } else {
        // The others are git's to answer; see `judge`.
        Err(match location.place {
            Place::Workspace => "git was not asked".to_owned(),
            Place::Session => "the session's files are not tracked by git".to_owned(),
            Place::Outside => "it is outside the workspace".to_owned(),
        })
    };
    Ok(FileState {
        bytes: Some(bytes.into()),
        sha256: Some(sha256),
        mode: metadata.mode() & 0o7777,
        identity: Some((metadata.dev(), metadata.ino())),
        links: metadata.nlink(),
        revertible,
    })
}

/// A whole regular file and its metadata.
fn read_bounded(root: &Root, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, std::fs::Metadata)> {
    let file = root.open_file(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("it is larger than the {bytes_max} bytes that can be looked at");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok((bytes, metadata))
}

/// Asks git about the files that attini did not write itself.
fn judge(fresh: &[Location], surroundings: &Surroundings<'_>, world: &mut World) {
    let asked: Vec<(&Location, Arc<[u8]>)> = fresh
        .iter()
        .filter(|location| location.place == Place::Workspace)
        .filter_map(|location| {
            let state = world.files.get(&location.absolute)?;
            let bytes = state.bytes.clone().filter(|_| state.revertible.is_err())?;
            Some((location, bytes))
        })
        .collect();
    if asked.is_empty() {
        return;
    }
    let candidates: Vec<git::Candidate<'_>> =
        asked.iter().map(|(location, bytes)| git::Candidate { path: &location.path, bytes }).collect();
    let root = surroundings.workspace.root.path();
    let answers = git::gives_back(root, &candidates, surroundings.withheld_variables);
    for ((location, _), answer) in asked.iter().zip(answers) {
        if let Some(state) = world.files.get_mut(&location.absolute) {
            state.revertible = answer;
        }
    }
}

fn refusal(location: &Location, error: &io::Error) -> Refusal {
    let shown = &location.shown;
    if resolve::is_link_error(error) {
        return Refusal::new("stale", format!("{shown} changed while it was looked at"));
    }
    match error.kind() {
        io::ErrorKind::FileTooLarge => Refusal::new("too_large", format!("{shown}: {error}")),
        _ => Refusal::new("io_error", format!("cannot read {shown}: {error}")),
    }
}

#[cfg(test)]
mod tests;
