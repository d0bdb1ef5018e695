//! All sessions of a workspace: their names, the making of one as a whole, and its removal as a whole.
//!
//! A session appears and goes by one rename. What is not there yet, or no more, has a name that no session can have; a
//! kill in between leaves it, and pruning removes it. Whoever makes or removes such a folder holds the kernel's lock on
//! the folder itself, so that a leftover is told from one in use by nobody holding it.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
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

/// How often a folder is made anew, or emptied again, because somebody else came in between.
const ATTEMPTS_MAX: usize = 16;

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
    /// Whoever finds the session by its name waits for it.
    _lock: Lock,
    /// While it is held, the folder is no leftover.
    _held: Held,
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
        let made = self.make_temporary(name);
        let (temporary, root, held) = made.map_err(|error| self.failed("a folder cannot be made", &error))?;
        let folder = SessionFolder { name: name.to_owned(), root };
        let lock = Lock::take(&folder, Patience::Short, interrupt, |_| ())?;
        Ok(Nascent { collection: self, temporary, folder, appeared: false, _lock: lock, _held: held })
    }

    /// Makes a folder and takes it before anybody takes it for a leftover; where somebody was faster, another one.
    fn make_temporary(&self, name: &str) -> io::Result<(PathBuf, Root, Held)> {
        for _ in 0..ATTEMPTS_MAX {
            let temporary = temporary_beside(Path::new(name));
            let opened = self.root.make_folders(&temporary, FOLDER_MODE).and_then(|_| self.root.folder(&temporary));
            let root = match opened {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let held = Held::wait(&root)?;
            if self.is_at(&root, &temporary) {
                return Ok((temporary, root, held));
            }
        }
        Err(io::Error::other("it was removed each time it was made"))
    }

    /// Whether a folder that is open has that name.
    fn is_at(&self, folder: &Root, name: &Path) -> bool {
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        match (folder.metadata(Path::new(".")), self.root.metadata(name)) {
            (Ok(open), Ok(named)) => identity(open) == identity(named),
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    /// Whether the session is still the one that was opened, not removed and perhaps made anew since.
    pub fn still_holds(&self, folder: &SessionFolder) -> bool {
        self.is_at(&folder.root, Path::new(&folder.name))
    }

    /// Removes a session whose lock is held: at once for everybody else, whatever becomes of its files.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        let trash = temporary_beside(Path::new(name));
        // Taken before it has the name of a leftover.
        let taken = self.root.folder(Path::new(name)).and_then(|folder| Held::wait(&folder));
        let _held = taken.map_err(|error| self.failed(&format!("the session {name} cannot be removed"), &error))?;
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
            if is_ours && !matches!(self.take_leftover(Path::new(&entry)), Ok(None)) {
                found.push(PathBuf::from(entry));
            }
        }
        Ok(found)
    }

    /// Takes what somebody left; `None`: it is in use, or gone.
    fn take_leftover(&self, entry: &Path) -> io::Result<Option<Leftover>> {
        let found = self.root.metadata(entry).and_then(|stat| {
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if is_folder { self.root.folder(entry).map(Some) } else { Ok(None) }
        });
        let folder = match found {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let Some(folder) = folder else { return Ok(Some(Leftover { _held: None })) };
        let Some(held) = Held::take(&folder)? else { return Ok(None) };
        Ok(self.is_at(&folder, entry).then_some(Leftover { _held: Some(held) }))
    }

    /// Removes what somebody left, unless somebody else does, or it is in use after all. Returns whether it did.
    pub fn remove_leftover(&self, leftover: &Path) -> anyhow::Result<bool> {
        let failed = |error: io::Error| self.failed(&format!("{} cannot be removed", leftover.display()), &error);
        let Some(_taken) = self.take_leftover(leftover).map_err(failed)? else { return Ok(false) };
        remove_tree(&self.root, leftover).map_err(failed)?;
        Ok(true)
    }

    fn failed(&self, what: &str, error: &io::Error) -> anyhow::Error {
        Failure::persistence(format!("{}: {what}: {error}", self.root.path().display())).into()
    }
}

/// Something that nobody holds but this.
struct Leftover {
    /// `None`: it is no folder.
    _held: Option<Held>,
}

/// The kernel's lock on a folder itself; it ends with its holder, however that dies.
struct Held {
    _folder: File,
}

impl Held {
    /// `None`: somebody holds it, or the file system has no such locks and it cannot be told.
    fn take(folder: &Root) -> io::Result<Option<Self>> {
        let file = File::from(folder.as_fd().try_clone_to_owned()?);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _folder: file })),
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return Ok(None),
            }
        }
    }

    /// Waits for whoever looks whether the folder is a leftover, or removes it as one; it is empty then. Where the file
    /// system has no such locks, nobody can take the folder for a leftover either.
    fn wait(folder: &Root) -> io::Result<Self> {
        let file = File::from(folder.as_fd().try_clone_to_owned()?);
        loop {
            match file.lock() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(()) | Err(_) => return Ok(Self { _folder: file }),
            }
        }
    }
}

impl Nascent<'_> {
    /// Syncs what is in the session and gives it its name.
    pub fn appear(mut self) -> anyhow::Result<()> {
        let root = &self.collection.root;
        let synced = sync_all_below(&self.folder.root).and_then(|()| self.folder.root.sync());
        let named = synced.and_then(|()| root.rename(&self.temporary, Path::new(&self.folder.name)));
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
    let mut attempts_left = ATTEMPTS_MAX;
    loop {
        for entry in folder.entries(Path::new("."))? {
            remove_tree_below(&folder, Path::new(&entry), depth + 1)?;
        }
        attempts_left -= 1;
        match root.remove_folder(relative) {
            // Somebody who waited for a session's lock makes its file anew in what is being removed.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && attempts_left > 0 => {}
            removed => return removed,
        }
    }
}

/// What lies below a folder, folders aside; each sorted.
#[derive(Debug, Default)]
pub struct Below {
    /// The regular files with their sizes in bytes.
    pub files: Vec<(PathBuf, u64)>,
    /// Links, pipes, sockets and devices.
    pub others: Vec<PathBuf>,
}

pub fn files_below(root: &Root, relative: &Path) -> io::Result<Below> {
    let mut found = Below::default();
    add_files(root, relative, 0, &mut found)?;
    Ok(found)
}

fn add_files(root: &Root, relative: &Path, depth: usize, found: &mut Below) -> io::Result<()> {
    if depth > FOLDER_DEPTH_MAX {
        return Err(io::Error::other(format!("folders are nested more than {FOLDER_DEPTH_MAX} deep")));
    }
    for entry in root.entries(relative)? {
        let path = relative.join(&entry);
        let metadata = root.metadata(&path)?;
        match FileType::from_raw_mode(metadata.st_mode) {
            FileType::Directory => add_files(root, &path, depth + 1, found)?,
            FileType::RegularFile => found.files.push((path, u64::try_from(metadata.st_size).unwrap_or_default())),
            _ => found.others.push(path),
        }
    }
    Ok(())
}

/// Returns once all that is below a folder is on disk; at once for all its files, since one after the other takes long.
fn sync_all_below(root: &Root) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::io::retry_on_intr(|| rustix::fs::syncfs(root.as_fd()))?);
    #[cfg(not(target_os = "linux"))]
    {
        let mut folders = std::collections::BTreeSet::new();
        for (path, _) in files_below(root, Path::new(""))?.files {
            root.open_file(&path)?.sync_all()?;
            folders.extend(path.ancestors().skip(1).map(Path::to_owned));
        }
        folders.iter().try_for_each(|folder| root.folder(folder)?.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collection(folder: &Path) -> Collection {
        Collection { root: Root::open(folder).unwrap() }
    }

    #[test]
    fn what_somebody_makes_is_no_leftover_until_nobody_holds_it() {
        let above = tempfile::tempdir().unwrap();
        let (one, other) = (collection(above.path()), collection(above.path()));
        let nascent = one.begin("new", &Interrupt::default()).unwrap();
        // Even where what else tells of its owner is gone.
        fs_err::remove_file(nascent.folder.root.path().join("lock")).unwrap();
        assert_eq!(other.leftovers().unwrap(), Vec::<PathBuf>::new());
        let name = nascent.temporary.clone();
        assert!(!other.remove_leftover(&name).unwrap());
        assert!(nascent.folder.root.path().exists());
        nascent.appear().unwrap();
        assert!(other.names().unwrap().is_empty() && other.holds("new"));
        fs_err::create_dir(above.path().join(".attini-tmp-1-2")).unwrap();
        fs_err::write(above.path().join(".attini-tmp-1-3"), "x").unwrap();
        let left = other.leftovers().unwrap();
        assert_eq!(left, [PathBuf::from(".attini-tmp-1-2"), PathBuf::from(".attini-tmp-1-3")]);
        assert!(left.iter().all(|leftover| other.remove_leftover(leftover).unwrap()));
        assert!(left.iter().all(|leftover| !other.remove_leftover(leftover).unwrap()), "it is gone");
    }

    #[test]
    fn many_at_once_leave_each_other_alone() {
        let above = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let above = above.path();
                scope.spawn(move || {
                    let collection = collection(above);
                    for round in 0..25 {
                        for leftover in collection.leftovers().unwrap() {
                            collection.remove_leftover(&leftover).unwrap();
                        }
                        let name = format!("s{thread}-{round}");
                        let nascent = collection.begin(&name, &Interrupt::default()).unwrap();
                        fs_err::write(nascent.folder.root.path().join("conversation.jsonl"), "x").unwrap();
                        nascent.appear().unwrap();
                        collection.remove(&name).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs_err::read_dir(above.path()).unwrap().count(), 0);
    }
}
