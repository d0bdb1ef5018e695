//! All sessions of a workspace: their names, the making of one as a whole, and its removal as a whole.
//!
//! A session appears and goes by one rename. What is not there yet, or no more, has a name that no session can have; a
//! kill in between leaves it, and pruning removes it.

use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::folder::{FOLDER_MODE, SessionFolder, ensure_name};
use super::lock::{Lock, Patience};
use super::log;
use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::workspace::root::{Root, TEMPORARY_PREFIX, temporary_beside};

/// How deep folders in a session may be nested.
pub const FOLDER_DEPTH_MAX: usize = 64;

/// The folder that holds the sessions.
#[derive(Debug)]
pub struct Collection {
    pub root: Root,
}

/// A session that is being made: not there before [`Nascent::appear`], and gone without it.
pub struct Nascent<'c> {
    collection: &'c Collection,
    temporary: PathBuf,
    pub folder: SessionFolder,
    appeared: bool,
    /// While it is held, pruning leaves the folder alone.
    _lock: Lock,
}

impl Collection {
    /// The names of all sessions, sorted: the folders that hold a log.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.root.entries(Path::new("."))? {
            let Ok(name) = entry.into_string() else { continue };
            if ensure_name(&name).is_ok() && self.root.metadata(&Path::new(&name).join(log::FILE_NAME)).is_ok() {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Whether anything stands where the session of that name would.
    pub fn holds(&self, name: &str) -> bool {
        self.root.metadata(Path::new(name)).is_ok()
    }

    /// Begins a new session.
    pub fn begin(&self, name: &str, interrupt: &Interrupt) -> anyhow::Result<Nascent<'_>> {
        let temporary = temporary_beside(Path::new(name));
        let made = self.root.make_folders(&temporary, FOLDER_MODE).and_then(|_| self.root.folder(&temporary));
        let root = made.map_err(|error| self.failed("a folder cannot be made", &error))?;
        let folder = SessionFolder { name: name.to_owned(), root };
        let lock = Lock::take(&folder, Patience::Short, interrupt, |_| ())?;
        Ok(Nascent { collection: self, temporary, folder, appeared: false, _lock: lock })
    }

    /// Removes a session whose lock is held: at once for everybody else, whatever becomes of its files.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        let trash = temporary_beside(Path::new(name));
        self.root
            .rename(Path::new(name), &trash)
            .and_then(|()| self.root.sync())
            .map_err(|error| self.failed(&format!("the session {name} cannot be removed"), &error))?;
        remove_tree(&self.root, &trash)
            .map_err(|error| self.failed(&format!("what is left of the session {name} cannot be removed"), &error))
    }

    /// What killed invocations left: parts of sessions that were being made or removed.
    pub fn leftovers(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in self.root.entries(Path::new("."))? {
            let is_ours = entry.as_bytes().starts_with(TEMPORARY_PREFIX.as_bytes());
            if is_ours && !self.is_in_use(Path::new(&entry)) {
                found.push(PathBuf::from(entry));
            }
        }
        Ok(found)
    }

    fn is_in_use(&self, entry: &Path) -> bool {
        let folder = self.root.folder(entry).map(|root| SessionFolder { name: String::new(), root });
        folder.is_ok_and(|folder| Lock::holder(&folder).is_some())
    }

    pub fn remove_leftover(&self, leftover: &Path) -> anyhow::Result<()> {
        remove_tree(&self.root, leftover)
            .map_err(|error| self.failed(&format!("{} cannot be removed", leftover.display()), &error))
    }

    fn failed(&self, what: &str, error: &io::Error) -> anyhow::Error {
        Failure::persistence(format!("{}: {what}: {error}", self.root.path().display())).into()
    }
}

impl Nascent<'_> {
    /// Gives the session its name; what is in it is synced by then.
    pub fn appear(mut self) -> anyhow::Result<()> {
        let root = &self.collection.root;
        let named = self.folder.root.sync().and_then(|()| root.rename(&self.temporary, Path::new(&self.folder.name)));
        match named {
            Ok(()) => self.appeared = true,
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                return Err(exists(&self.folder.name).into());
            }
            Err(error) => return Err(self.collection.failed("a session cannot be given its name", &error)),
        }
        root.sync().map_err(|error| self.collection.failed("the folder cannot be synced", &error))
    }
}

impl Drop for Nascent<'_> {
    fn drop(&mut self) {
        if !self.appeared {
            // What cannot be removed is recognised by its name, and removed by pruning.
            let _ = remove_tree(&self.collection.root, &self.temporary);
        }
    }
}

/// The refusal to write over a session.
pub fn exists(name: &str) -> Failure {
    Failure::new(Status::Usage, format!("there is a session {name} already"))
        .hint("choose another name, or remove it with `attini sessions rm`")
}

/// Removes a file or a folder with all that is in it. No link is followed.
pub fn remove_tree(root: &Root, relative: &Path) -> io::Result<()> {
    remove_tree_below(root, relative, 0)
}

fn remove_tree_below(root: &Root, relative: &Path, depth: usize) -> io::Result<()> {
    if depth > FOLDER_DEPTH_MAX {
        return Err(io::Error::other(format!("folders are nested more than {FOLDER_DEPTH_MAX} deep")));
    }
    if FileType::from_raw_mode(root.metadata(relative)?.st_mode) != FileType::Directory {
        return root.remove_file(relative);
    }
    let folder = root.folder(relative)?;
    for entry in folder.entries(Path::new("."))? {
        remove_tree_below(&folder, Path::new(&entry), depth + 1)?;
    }
    root.remove_folder(relative)
}

/// The regular files below a folder with their sizes in bytes, sorted; links and devices are an error.
pub fn files_below(root: &Root, relative: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    add_files(root, relative, 0, &mut found)?;
    Ok(found)
}

fn add_files(root: &Root, relative: &Path, depth: usize, found: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
    if depth > FOLDER_DEPTH_MAX {
        return Err(io::Error::other(format!("folders are nested more than {FOLDER_DEPTH_MAX} deep")));
    }
    for entry in root.entries(relative)? {
        let path = relative.join(&entry);
        let metadata = root.metadata(&path)?;
        match FileType::from_raw_mode(metadata.st_mode) {
            FileType::Directory => add_files(root, &path, depth + 1, found)?,
            FileType::RegularFile => found.push((path, u64::try_from(metadata.st_size).unwrap_or_default())),
            _ => return Err(io::Error::other(format!("{} is neither a file nor a folder", path.display()))),
        }
    }
    Ok(())
}
