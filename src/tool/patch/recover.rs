//! What a patch that was killed in the middle left behind.
//!
//! It tells and tidies; it neither finishes a patch nor takes it back.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::write::{self, Places, State};
use crate::session::record::PlannedFile;
use crate::workspace::Workspace;
use crate::workspace::root::TEMPORARY_PREFIX;

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
    let places = Places::open(workspace)?;
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| Path::new(&file.path).parent()).collect();
    let mut removed = Vec::new();
    for folder in folders {
        let Some(folder_path) = folder.to_str() else { continue };
        let (root, relative) = places.of(folder_path);
        let names = match root.entries(relative) {
            Ok(names) => names,
            // The folder was never made, or is gone: then so are the files in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for name in names {
            let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY_PREFIX)) else { continue };
            if is_ours(rest) && !belongs_to_another_live_process(rest) {
                root.remove_file(&relative.join(&name))?;
                removed.push(folder.join(&name));
            }
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
