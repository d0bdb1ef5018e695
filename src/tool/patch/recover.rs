//! What a patch, or its undoing, that was killed in the middle left behind.
//!
//! It tells and tidies; it neither finishes a patch nor takes it back.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::undo::Restoration;
use super::write::{self, Places, State};
use crate::session::folder::{FILE_MODE, SessionFolder};
use crate::session::record::PlannedFile;
use crate::workspace::Workspace;
use crate::workspace::root::{Root, TEMPORARY_PREFIX};

/// What stands in the session folder while files are put back: beside which a kill may leave temporary files.
const TRACE: &str = "undo.json";
const TRACE_BYTES_MAX: u64 = 8 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Trace {
    /// As [`PlannedFile::path`].
    paths: Vec<String>,
}

/// What became of a patch that was started and has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovery {
    /// Every file is as it was: nothing was written.
    AllBefore,
    /// Every file is as planned: it was all written.
    AllAfter,
    /// Each file's path and state, in the order of the plan.
    Mixture(Vec<(String, State)>),
}

/// Looks at the files of a patch. One that names no file changed none.
pub fn recover(files: &[PlannedFile], workspace: &Workspace) -> io::Result<Recovery> {
    let places = Places::open(workspace)?;
    let state = |file: &PlannedFile| {
        let state = write::state(&places, &file.path, file.sha256_before.as_deref(), file.sha256_after.as_deref());
        (file.path.clone(), state)
    };
    let states: Vec<(String, State)> = files.iter().map(state).collect();
    let all = |wanted: State| states.iter().all(|(_, state)| *state == wanted);
    Ok(if all(State::AsBefore) {
        Recovery::AllBefore
    } else if all(State::AsAfter) {
        Recovery::AllAfter
    } else {
        Recovery::Mixture(states)
    })
}

/// Removes the temporary files that a killed process left in the folders of these files; those of a process that still
/// runs stay. Returns what it removed, as the paths of the files are given.
pub fn clean_temporary_files(files: &[PlannedFile], workspace: &Workspace) -> io::Result<Vec<PathBuf>> {
    clean_beside(files.iter().map(|file| file.path.as_str()), workspace)
}

/// Notes beside which files temporary ones are about to be made; before the first is. Under the session's lock.
pub fn leave_trace(session: &SessionFolder, restorations: &[Restoration]) -> io::Result<()> {
    let trace = Trace { paths: restorations.iter().map(|one| one.path.clone()).collect() };
    session.root.replace(Path::new(TRACE), &serde_json::to_vec(&trace)?, FILE_MODE)
}

/// Removes what an undoing left that did not come to its end, if there was one, and then the trace of it. Under the
/// session's lock.
pub fn follow_trace(session: &SessionFolder, workspace: &Workspace) -> io::Result<()> {
    let bytes = match session.root.read(Path::new(TRACE), TRACE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    // What is no trace leads nowhere; it goes as well.
    if let Ok(trace) = serde_json::from_slice::<Trace>(&bytes) {
        clean_beside(trace.paths.iter().map(String::as_str), workspace)?;
    }
    session.root.remove_file(Path::new(TRACE))
}

fn clean_beside<'p>(paths: impl Iterator<Item = &'p str>, workspace: &Workspace) -> io::Result<Vec<PathBuf>> {
    let places = Places::open(workspace)?;
    let folders: BTreeSet<&Path> = paths.filter_map(|path| Path::new(path).parent()).collect();
    let mut removed = Vec::new();
    for folder in folders {
        let Some(folder_path) = folder.to_str() else { continue };
        let (root, relative) = places.of(folder_path);
        removed.extend(clean_folder(root, relative)?.into_iter().map(|name| folder.join(name)));
    }
    Ok(removed)
}

/// Removes the temporary files that killed processes left in one folder, and returns their names.
pub fn clean_folder(root: &Root, relative: &Path) -> io::Result<Vec<OsString>> {
    let names = match root.entries(relative) {
        Ok(names) => names,
        // The folder was never made, or is gone: then so are the files in it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut removed = Vec::new();
    for name in names {
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY_PREFIX)) else { continue };
        if is_ours(rest) && !belongs_to_another_live_process(rest) {
            root.remove_file(&relative.join(&name))?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Whether it is the rest of a name that attini makes up, all of it numbers: a process's id, the time, and with a patch
/// the file's place in it. What only begins like one may be somebody's.
fn is_ours(rest: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    rest.split('-').all(is_number) && matches!(rest.split('-').count(), 2 | 3)
}

/// Whether the rest of a temporary file's name begins with the id of a process that runs and is not this one.
fn belongs_to_another_live_process(rest: &str) -> bool {
    let Some(id) = rest.split('-').next().and_then(|id| id.parse::<i32>().ok()).filter(|id| *id > 0) else {
        return false;
    };
    let is_own = u32::try_from(id) == Ok(std::process::id());
    let answer = rustix::process::Pid::from_raw(id).map(rustix::process::test_kill_process);
    // A process of somebody else answers that it may not be signalled.
    !is_own && matches!(answer, Some(Ok(()) | Err(rustix::io::Errno::PERM)))
}
