//! How `list` and `search` walk: `.gitignore` honoured, no link followed, nothing of git's or attini's own shown, and
//! files that may hold secrets skipped and counted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder};

use super::root::Root;
use super::{Location, Place, names};
use crate::tool::Refusal;

/// The longest glob that is compiled.
const GLOB_BYTES_MAX: usize = 1024;

/// What a walk shows.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Names that begin with a dot as well.
    pub hidden: bool,
    pub glob: Option<Glob>,
    /// `None`: as deep as it goes.
    pub depth: Option<usize>,
}

/// A glob as in a `.gitignore` line: without `/` it matches names at any depth, a `!` in front excludes. It never brings
/// back what `.gitignore` leaves out.
#[derive(Debug, Clone)]
pub struct Glob(Override);

impl Glob {
    /// Compiles a glob that is matched relative to the workspace, or to `/` outside it.
    pub fn parse(glob: &str, location: &Location) -> Result<Self, Refusal> {
        if glob.len() > GLOB_BYTES_MAX {
            return Err(Refusal::new("invalid_pattern", format!("the glob is longer than {GLOB_BYTES_MAX} bytes")));
        }
        let mut builder = OverrideBuilder::new(base_of(location));
        builder
            .add(glob)
            .and_then(|builder| builder.build())
            .map(Self)
            .map_err(|error| Refusal::new("invalid_pattern", format!("the glob is not valid: {error}")))
    }

    /// Whether an entry is to be shown. A folder that is not may still hold some that are.
    pub fn shows(&self, path: &Path, is_folder: bool) -> bool {
        let matched = self.0.matched(path, is_folder);
        if is_folder && self.0.num_whitelists() > 0 { matched.is_whitelist() } else { !matched.is_ignore() }
    }

    fn prunes(&self, folder: &Path) -> bool {
        self.0.matched(folder, true).is_ignore()
    }
}

/// What a location's path is relative to.
pub fn base_of(location: &Location) -> PathBuf {
    let depth = match location.place {
        Place::Workspace | Place::Session => {
            location.path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).count()
        }
        Place::Outside => return PathBuf::from("/"),
    };
    location.absolute.ancestors().nth(depth).unwrap_or(&location.absolute).to_owned()
}

/// A walk of the location, and where it counts the secret files it skips.
pub fn builder(location: &Location, filter: &Filter) -> (WalkBuilder, Arc<AtomicU64>) {
    let secrets = Arc::new(AtomicU64::new(0));
    let mut walk = WalkBuilder::new(&location.absolute);
    walk.follow_links(false)
        .hidden(false)
        .require_git(false)
        .max_depth(filter.depth)
        .current_dir(base_of(location))
        .sort_by_file_name(std::ffi::OsStr::cmp);
    if location.place == Place::Session {
        // The session's folder is itself ignored by git; that is no reason to hide it from its own model.
        walk.standard_filters(false);
    }
    let (counter, start, filter) = (Arc::clone(&secrets), location.absolute.clone(), filter.clone());
    walk.filter_entry(move |entry| entry.depth() == 0 || enters(entry, &start, &filter, &counter));
    (walk, secrets)
}

fn enters(entry: &DirEntry, start: &Path, filter: &Filter, secrets: &AtomicU64) -> bool {
    let name = entry.file_name();
    if names::is_guarded(name) {
        return false;
    }
    let relative = entry.path().strip_prefix(start).unwrap_or(entry.path());
    if names::is_secret(relative) {
        secrets.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    if !filter.hidden && name.as_encoded_bytes().starts_with(b".") {
        return false;
    }
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    !(is_folder && filter.glob.as_ref().is_some_and(|glob| glob.prunes(entry.path())))
}

/// Whether the path that a walk started from still leads to the folder that was opened. The walk goes by path; this
/// tells whether it can be believed.
pub fn is_still(folder: &Root, absolute: &Path) -> bool {
    let (Ok(held), Ok(now)) = (rustix::fs::fstat(folder), rustix::fs::stat(absolute)) else { return false };
    held.st_dev == now.st_dev && held.st_ino == now.st_ino
}

/// What a result says of an entry `relative` to the location: the path as the model would write it.
pub fn shown_below(location: &Location, relative: &Path) -> String {
    let relative = relative.to_string_lossy();
    match location.shown.as_str() {
        "." => relative.into_owned(),
        shown if relative.is_empty() => shown.to_owned(),
        shown => format!("{}/{relative}", shown.trim_end_matches('/')),
    }
}

/// The line that tells of skipped secrets, if any were.
pub fn secrets_note(secrets: &AtomicU64) -> Option<String> {
    match secrets.load(Ordering::Relaxed) {
        0 => None,
        1 => Some("1 file or folder that may hold secrets was skipped".to_owned()),
        count => Some(format!("{count} files or folders that may hold secrets were skipped")),
    }
}
