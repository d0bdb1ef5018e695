//! `patch`: changes files, all or none, in a way that a person sees whole before and can undo after.
//!
//! The way of a call: [`edits`] (the arguments), [`apply`] (what the files are to hold, pure), [`diff`] (what is shown),
//! and when it runs [`write`] (the side effect, with [`before`] for undo). [`recover`] tells what a killed run left. [`net`] makes one
//! diff of several patches.
//! Whether a patch may run is not decided here.

pub mod apply;
pub mod before;
pub mod diff;
pub mod edits;
mod encoding;
mod extended;
mod mismatch;
pub mod nearest;
pub mod net;
pub mod passage;
pub mod recover;
mod run;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests;
pub mod undo;
pub mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use self::apply::{Content, FILE_BYTES_MAX, FileChange, all_of};
use super::{Assessment, Effect, LeftFile, Moot, Outcome, Overlay, Preview, Refusal, Surroundings, Tool, Work};
use crate::permission::{Access, ReadAccess, WriteAccess};
use crate::session::record::{Change, PlannedFile};
use crate::workspace::{Kind, Location, Place, World, walk};

pub const NAME: &str = "patch";

/// The bit of a mode that lets a file's owner execute it.
const OWNER_EXECUTES: u32 = 0o100;

/// The tool.
#[derive(Debug)]
pub struct Patch {
    parameters: Value,
}

impl Patch {
    pub fn new() -> Self {
        Self { parameters: super::schema::of::<edits::Arguments>() }
    }
}

impl Default for Patch {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Patch {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> &'static str {
        include_str!("patch.md")
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn effect(&self) -> Effect {
        Effect::SideEffect
    }

    fn look(&self, arguments: &Value, surroundings: &Surroundings<'_>, world: &mut World) {
        crate::workspace::look::gather(&edits::paths(arguments), surroundings, world);
    }

    fn assess(&self, arguments: &Value, world: &World, overlay: &Overlay) -> Result<Assessment, Refusal> {
        let changes = match changes(arguments, world, overlay) {
            Ok(changes) => changes,
            Err(refusal) => return Ok(failing(arguments, refusal, world, overlay)),
        };
        let writes: Vec<WriteAccess> =
            changes.iter().map(|change| access(&change.location, change.before.is_some(), world, overlay)).collect();
        let files: Vec<PlannedFile> = changes.iter().map(|change| change.planned.clone()).collect();
        let names: Vec<&str> = changes.iter().map(|change| change.location.shown.as_str()).collect();
        Ok(Assessment {
            summary: names.join(", "),
            preview: Preview::Patch {
                diff: diff_of(&changes, None),
                files: files.clone(),
                why: why(&writes, &changes),
            },
            accesses: accesses(arguments, writes, world),
            files,
            after: overlay_of(&changes),
            moot: None,
        })
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        run::run(work)
    }
}

/// The files that a patch changes, made on what `world` and `overlay` say.
fn changes(arguments: &Value, world: &World, overlay: &Overlay) -> Result<Vec<FileChange>, Refusal> {
    let edits = edits::parse(arguments)?;
    let changes = apply::apply(&edits, &world.locations, &|location| present(location, world, overlay))?;
    ensure_no_file_is_a_folder(&changes, overlay)?;
    Ok(changes)
}

/// What the changes leave behind.
fn overlay_of(changes: &[FileChange]) -> Overlay {
    let left = |change: &FileChange| {
        let bytes = change.after.clone()?;
        Some(LeftFile { bytes, executable: change.executable[1] })
    };
    changes.iter().map(|change| (change.location.absolute.clone(), left(change))).collect()
}

/// Whether two patches have a file in common, so that the later one stands on the earlier one.
pub fn is_stacked_on(later: &[PlannedFile], earlier: &[PlannedFile]) -> bool {
    let paths: BTreeSet<&str> = earlier.iter().map(|file| file.path.as_str()).collect();
    later.iter().any(|file| paths.contains(file.path.as_str()))
}

fn present(location: &Location, world: &World, overlay: &Overlay) -> Result<Option<Content>, Refusal> {
    if let Some(left) = overlay.get(&location.absolute) {
        // It may have been moved here from a place that is not read unasked.
        let content = |LeftFile { bytes, executable }| Content {
            bytes,
            executable,
            may_be_told: false,
            identity: None,
            links: 1,
        };
        return Ok(left.clone().map(content));
    }
    let state = world.files.get(&location.absolute);
    let bytes = state.and_then(|state| state.bytes.clone());
    if bytes.is_none() && location.kind == Kind::File {
        let what = format!("{} cannot be read, or has more than {FILE_BYTES_MAX} bytes", location.shown);
        return Err(Refusal::new("io_error", what));
    }
    let executable = state.is_some_and(|state| state.mode & OWNER_EXECUTES != 0);
    let identity = state.and_then(|state| state.identity);
    let links = state.map_or(1, |state| state.links);
    Ok(bytes.map(|bytes| Content { bytes, executable, may_be_told: true, identity, links }))
}

/// Refuses what would need one path to be a file and a folder at once.
fn ensure_no_file_is_a_folder(changes: &[FileChange], overlay: &Overlay) -> Result<(), Refusal> {
    // Those of this patch with what they are called and the edit that makes them.
    let mut files: BTreeMap<&Path, Option<&FileChange>> =
        overlay.iter().filter(|(_, bytes)| bytes.is_some()).map(|(path, _)| (path.as_path(), None)).collect();
    for change in changes {
        if change.after.is_some() {
            files.insert(&change.location.absolute, Some(change));
        } else {
            files.remove(change.location.absolute.as_path());
        }
    }
    // Paths are ordered by their components: what lies in a folder comes right behind it.
    let base = changes.first().map(|change| walk::base_of(&change.location)).unwrap_or_default();
    let shown = |path: &Path, change: Option<&FileChange>| match change {
        Some(change) => change.location.shown.clone(),
        None => path.strip_prefix(&base).unwrap_or(path).display().to_string(),
    };
    let mut found = Vec::new();
    for ((file, made), (next, inside)) in files.iter().zip(files.iter().skip(1)) {
        if next.starts_with(file) {
            let numbers = [*made, *inside].into_iter().flatten().map(|change| change.edit);
            let number = numbers.max().map_or(String::new(), |number| format!("edit {number}: "));
            let (file, next) = (shown(file, *made), shown(next, *inside));
            let what = format!("{number}{next} would lie in {file}, which is a file by then");
            found.push(Refusal::new("not_a_folder", what));
        }
    }
    all_of(found).map_or(Ok(()), Err)
}

/// A patch that does not fit the files as they are.
fn failing(arguments: &Value, refusal: Refusal, world: &World, overlay: &Overlay) -> Assessment {
    let locations = locations(arguments, world);
    let has_file = |location: &Location| world.files.get(&location.absolute).is_some_and(|state| state.bytes.is_some());
    let writes: Vec<WriteAccess> =
        locations.iter().map(|location| access(location, has_file(location), world, overlay)).collect();
    let names: Vec<&str> = locations.iter().map(|location| location.shown.as_str()).collect();
    let is_veiled = locations.iter().any(|location| location.secret || location.place == Place::Outside);
    Assessment {
        summary: names.join(", "),
        preview: Preview::Patch { diff: String::new(), files: Vec::new(), why: String::new() },
        accesses: accesses(arguments, writes, world),
        files: Vec::new(),
        after: Overlay::new(),
        moot: Some(if is_veiled { Moot::Veiled(refusal) } else { Moot::Plain(refusal) }),
    }
}

/// What a patch touches, each file once, in the order first named; paths that lead nowhere are left out.
fn locations<'w>(arguments: &Value, world: &'w World) -> Vec<&'w Location> {
    let mut found: Vec<&Location> = Vec::new();
    for written in edits::paths(arguments) {
        if let Some(Ok(location)) = world.locations.get(written)
            && !found.iter().any(|known| known.absolute == location.absolute)
        {
            found.push(location);
        }
    }
    found
}

/// The writes, and the reads that come with them: whether a passage is there, and what a file is moved to hold, tells
/// what is in it. That matters for secrets, and for what a rule keeps from being read.
fn accesses(arguments: &Value, writes: Vec<WriteAccess>, world: &World) -> Vec<Access> {
    let read = |location: &Location| {
        let path = location.absolute.clone();
        Access::Read(ReadAccess { path, place: location.place, secret: location.secret })
    };
    let is_told = |location: &Location| {
        edits::reveals(
            arguments,
            |written| matches!(world.locations.get(written), Some(Ok(named)) if named.absolute == location.absolute),
        )
    };
    let reads = locations(arguments, world)
        .into_iter()
        .filter(|location| world.read_denied.contains(&location.absolute) || (location.secret && is_told(location)))
        .map(read);
    reads.chain(writes.into_iter().map(Access::Write)).collect()
}

/// `has_file`: there is a file before the patch.
fn access(location: &Location, has_file: bool, world: &World, overlay: &Overlay) -> WriteAccess {
    let state = world.files.get(&location.absolute);
    // The overlay has the file only if an earlier patch of the reply may write it; what counts is what it was before.
    let revertible = match (has_file, state) {
        (false, _) => Err("it is a new file".to_owned()),
        (true, _) if location.place == Place::Outside => Err("it is outside the workspace".to_owned()),
        (true, Some(state)) if state.bytes.is_some() => state.revertible.clone(),
        (true, Some(_) | None) if overlay.contains_key(&location.absolute) => {
            Err("an earlier patch of the same reply makes it".to_owned())
        }
        (true, Some(_) | None) => Err("nothing is known of its content".to_owned()),
    };
    let (revertible, why) = match revertible {
        Ok(how) => (Some(how), String::new()),
        Err(why) => (None, why),
    };
    WriteAccess {
        path: location.absolute.clone(),
        shown: location.shown.clone(),
        place: location.place,
        never: location.never_writable.clone(),
        always_asks: location.always_asks,
        revertible,
        why,
    }
}

/// What a person and the model should know beyond the diff.
fn notes(changes: &[FileChange]) -> Vec<String> {
    let of = |change: &FileChange| {
        let path = change.planned.path.clone();
        change.notes.iter().map(move |note| format!("{path}: {note}")).collect::<Vec<_>>()
    };
    changes.iter().flat_map(of).collect()
}

/// Why such a patch asks where no rule allows it, and what else there is to know; empty where there is neither.
fn why(writes: &[WriteAccess], changes: &[FileChange]) -> String {
    let reason = |write: &WriteAccess| -> Option<String> {
        let why = match &write.never {
            Some(never) => never,
            None if write.always_asks => "writing it always asks",
            None if write.revertible.is_none() => &write.why,
            None => return None,
        };
        Some(format!("{}: {why}", write.shown))
    };
    writes.iter().filter_map(reason).chain(notes(changes)).collect::<Vec<_>>().join("; ")
}

/// Whether this is the old name of a moved file, whose new name is a change of its own.
fn is_moved_away(change: &FileChange) -> bool {
    change.planned.change == Change::Move && change.after.is_none()
}

/// The changes as one diff. With `withheld`, that is said in place of the content of files that hold secrets.
fn diff_of(changes: &[FileChange], withheld: Option<&str>) -> String {
    let mut text = String::new();
    for change in changes {
        if is_moved_away(change) {
            // The target's part says it.
            continue;
        }
        let origin = change.origin.as_ref().filter(|_| change.planned.change == Change::Move);
        let source = origin.and_then(|(absolute, path)| {
            let source = changes.iter().find(|other| other.location.absolute == *absolute)?;
            Some((path.as_str(), source))
        });
        let is_secret =
            |path: &Path| changes.iter().any(|other| other.location.secret && other.location.absolute == path);
        let has_secret = change.location.secret || change.origin.as_ref().is_some_and(|(path, _)| is_secret(path));
        let part = diff::Part {
            path: &change.planned.path,
            before: change.before.as_deref(),
            after: change.after.as_deref(),
            moved_from: source.and_then(|(path, source)| Some((path, source.before.as_deref()?))),
            executable: [source.map_or(change, |(_, source)| source).executable[0], change.executable[1]],
        };
        text.push_str(&diff::readable(&part, withheld.filter(|_| has_secret)));
    }
    text
}
