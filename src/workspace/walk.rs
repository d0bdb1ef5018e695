//! How `list` and `search` walk: `.gitignore` honoured, no link followed, nothing of git's or attini's own shown, and
//! files that may hold secrets skipped and counted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder};

use super::ignores::Ignores;
use super::root::Root;
use super::{Location, Place, git_top_level, names};
use crate::permission::ReadDenials;
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
    /// What is not shown because a rule denies it.
    pub read_denials: ReadDenials,
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

/// What a walk left out and did not follow.
pub struct Omissions {
    secrets: AtomicU64,
    denied: AtomicU64,
    ignores: Option<Ignores>,
}

impl Omissions {
    /// The lines that tell of skipped secrets and of ignore files that were not followed, if there were any.
    pub fn notes(&self) -> Vec<String> {
        let secrets = match self.secrets.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("1 file or folder that may hold secrets was skipped".to_owned()),
            count => Some(format!("{count} files or folders that may hold secrets were skipped")),
        };
        let denied = match self.denied.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("1 file or folder that a rule denies was skipped".to_owned()),
            count => Some(format!("{count} files or folders that a rule denies were skipped")),
        };
        secrets.into_iter().chain(denied).chain(self.ignores.as_ref().and_then(Ignores::note)).collect()
    }
}

/// A walk of the location, and where it gathers what it leaves out.
pub fn builder(location: &Location, filter: &Filter) -> (WalkBuilder, Arc<Omissions>) {
    let ignores = match location.place {
        Place::Workspace | Place::Outside => Ignores::open(&outermost(location), base_of(location)).ok(),
        // The session's folder is itself ignored by git; that is no reason to hide it from its own model.
        Place::Session => None,
    };
    let omissions = Arc::new(Omissions { secrets: AtomicU64::new(0), denied: AtomicU64::new(0), ignores });
    let mut walk = WalkBuilder::new(&location.absolute);
    // The walker's own filters would open ignore files wherever links lead, and read them without a limit.
    walk.standard_filters(false)
        .follow_links(false)
        .max_depth(filter.depth)
        .current_dir(base_of(location))
        .sort_by_file_name(std::ffi::OsStr::cmp);
    let (gathered, start, filter) = (Arc::clone(&omissions), location.absolute.clone(), filter.clone());
    walk.filter_entry(move |entry| entry.depth() == 0 || enters(entry, &start, &filter, &gathered));
    (walk, omissions)
}

/// The outermost folder whose ignore files count: the top of the repository, or the workspace if that is further out.
fn outermost(location: &Location) -> PathBuf {
    let base = match location.place {
        Place::Workspace | Place::Session => base_of(location),
        Place::Outside => location.absolute.clone(),
    };
    git_top_level(&base).map_or(base.clone(), Path::to_owned)
}

fn enters(entry: &DirEntry, start: &Path, filter: &Filter, omissions: &Omissions) -> bool {
    let name = entry.file_name();
    if names::is_guarded(name) {
        return false;
    }
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    if omissions.ignores.as_ref().is_some_and(|ignores| ignores.leaves_out(entry.path(), is_folder)) {
        return false;
    }
    let relative = entry.path().strip_prefix(start).unwrap_or(entry.path());
    if names::is_secret(relative) {
        omissions.secrets.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    let denials = &filter.read_denials;
    if if is_folder { denials.denies_all_below(entry.path()) } else { denials.denies(entry.path()) } {
        omissions.denied.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    if !filter.hidden && name.as_encoded_bytes().starts_with(b".") {
        return false;
    }
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
