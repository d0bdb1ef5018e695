//! The workspace: a path proved to be inside and opened beneath the root, child processes, and what git can give back.

pub mod child;
mod discover;
pub mod environment;
pub mod git;
pub(crate) mod group;
mod ignores;
pub mod look;
pub mod mounts;
pub mod names;
mod nearest;
pub mod own_places;
pub mod program;
pub mod resolve;
pub mod root;
pub mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::own_places::OwnPlaces;
use crate::session::folder::SessionFolder;

pub use discover::git_top_level;

/// Where a resolved path lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Workspace,
    /// The session's own files, named `session:PATH`; the path is relative to the session folder.
    Session,
    Outside,
}

/// A path of a call, resolved: links followed, `..` taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub place: Place,
    /// What the model and the person see: relative to the workspace with `/` (`.` for its root), `session:PATH`, or
    /// absolute.
    pub shown: String,
    /// Relative to the workspace or to the session folder, or absolute outside; without links as it was resolved.
    pub path: PathBuf,
    /// Absolute and resolved, for rules.
    pub absolute: PathBuf,
    pub kind: Kind,
    /// Named like a file that holds secrets.
    pub secret: bool,
    /// Why nothing may be written there, whatever a rule says.
    pub never_writable: Option<String>,
    /// Writing there asks, whatever a rule says.
    pub always_asks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Absent,
    File,
    Folder,
    /// A device, socket or pipe.
    Other,
}

/// What a plan needs to know of a file that a patch names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// `None`: there is no such file.
    pub bytes: Option<Arc<[u8]>>,
    /// `sha256:` is not part of it: 64 hex digits; `None` with `bytes`.
    pub sha256: Option<String>,
    pub mode: u32,
    /// Its device and number, by which two names of one file are known; `None`: there is no such file.
    pub identity: Option<(u64, u64)>,
    /// How many names the file has.
    pub links: u64,
    /// Why its present content can be had back ("git has it", "attini wrote it"), or why it cannot.
    pub revertible: Result<String, String>,
}

/// The facts that a plan is made on, gathered before it. A plan reads this and nothing else of the world.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// By the path as the call wrote it.
    pub locations: BTreeMap<String, Result<Location, crate::tool::Refusal>>,
    /// By [`Location::absolute`].
    pub files: BTreeMap<PathBuf, FileState>,
    /// Those among the locations that a rule keeps from being read, by [`Location::absolute`].
    pub read_denied: BTreeSet<PathBuf>,
}

/// The folder that a turn works in.
#[derive(Debug)]
pub struct Workspace {
    pub root: root::Root,
    /// What no call may write to, wherever it lies.
    pub own_places: OwnPlaces,
}

impl Workspace {
    /// Opens a folder as the workspace; links in `path` itself are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(root::Root::open(path)?))
    }

    pub fn new(root: root::Root) -> Self {
        Self { root, own_places: OwnPlaces::default() }
    }

    /// The folder that a location is opened beneath, and its path from there: the resolved one, so that nothing is
    /// resolved a second time. Outside the workspace that folder is `/`.
    pub fn root_for<'a>(
        &'a self,
        location: &Location,
        session: Option<&'a SessionFolder>,
    ) -> io::Result<(Base<'a>, PathBuf)> {
        match location.place {
            Place::Workspace => Ok((Base::Held(&self.root), location.path.clone())),
            Place::Session => match session {
                Some(session) => Ok((Base::Held(&session.root), location.path.clone())),
                None => Err(io::Error::new(io::ErrorKind::NotFound, "there is no session")),
            },
            Place::Outside => {
                let relative = location.path.strip_prefix("/").unwrap_or(&location.path);
                let relative = if relative == Path::new("") { Path::new(".") } else { relative };
                Ok((Base::Opened(root::Root::open(Path::new("/"))?), relative.to_owned()))
            }
        }
    }
}

/// A root that is held by someone else, or was opened for this one location.
#[derive(Debug)]
pub enum Base<'a> {
    Held(&'a root::Root),
    Opened(root::Root),
}

impl Deref for Base<'_> {
    type Target = root::Root;

    fn deref(&self) -> &root::Root {
        match self {
            Self::Held(root) => root,
            Self::Opened(root) => root,
        }
    }
}
