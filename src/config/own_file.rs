//! attini's own small files: read within bounds and without following links, and locked while they are edited.
//!
//! The lock is on the folder that holds the file. A file that is replaced by a rename cannot carry a lock of its own,
//! and a lock file beside the rules would be one more thing to ignore in every checkout; the folder is always there and
//! leaves no trace. It says nothing to those who only read: a rename shows them the old file or the new one.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::FileType;

use crate::exit::Status;
use crate::failure::Failure;
use crate::workspace::root::Root;

/// An edit takes milliseconds; who waits longer than this is told.
const LOCK_WAIT_SECONDS_MAX: u64 = 5;
const LOCK_RETRY_MILLISECONDS: u64 = 10;

/// Reads a file beneath `root`, `None` if it is not there. A link anywhere in `relative` is refused (exit code 2).
pub fn read_beneath(root: &Root, relative: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    match root.read(relative, bytes_max) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused(root, relative, &error)),
    }
}

/// Reads a file that the user named or that lies in the user's own folders; links are followed.
pub fn read_user_file(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let file = match fs_err::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::usage(error.to_string()).into()),
    };
    let mut bytes = Vec::new();
    if let Err(error) = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes) {
        return Err(Failure::usage(error.to_string()).into());
    }
    if bytes.len() as u64 > bytes_max {
        let message = format!("{} is larger than the limit of {bytes_max} bytes", path.display());
        return Err(Failure::usage(message).into());
    }
    Ok(Some(bytes))
}

/// What an error on the way to one of our own files means: mostly that a link stands in the way.
pub fn refused(root: &Root, relative: &Path, error: &io::Error) -> anyhow::Error {
    let path = root.path().join(relative);
    match link_in_the_way(root, relative) {
        Some(failure) => failure.into(),
        None => Failure::usage(format!("cannot read {}: {error}", path.display())).into(),
    }
}

/// The refusal (2) of the first link on the way to one of our own files or folders, if there is one.
pub fn link_in_the_way(root: &Root, relative: &Path) -> Option<Failure> {
    let mut so_far = PathBuf::new();
    for component in relative.components() {
        so_far.push(component);
        let metadata = root.metadata(&so_far).ok()?;
        if FileType::from_raw_mode(metadata.st_mode) == FileType::Symlink {
            let link = root.path().join(&so_far);
            return Some(
                Failure::usage(format!("{} is a link; attini follows none to its own files", link.display()))
                    .hint("put the file or folder itself there"),
            );
        }
    }
    None
}

/// Refuses (2) anything but a file, or anything but a folder, where one of our own belongs. What is absent is no fault.
pub fn ensure_kind(root: &Root, relative: &Path, kind: FileType) -> Result<(), Failure> {
    if let Some(failure) = link_in_the_way(root, relative) {
        return Err(failure);
    }
    let Ok(metadata) = root.metadata(relative) else { return Ok(()) };
    if FileType::from_raw_mode(metadata.st_mode) == kind {
        return Ok(());
    }
    let path = root.path().join(relative);
    let what = if kind == FileType::Directory { "folder" } else { "regular file" };
    Err(Failure::usage(format!("{} is no {what}", path.display())).hint("move away what stands there"))
}

/// Holds the lock of a folder; dropping it frees it.
#[derive(Debug)]
#[must_use = "the lock is free again once this is dropped"]
pub struct FolderLock {
    held: File,
}

impl FolderLock {
    /// Waits a little for whoever else edits a file in `folder`.
    pub fn take(folder: &Root) -> Result<Self> {
        // A descriptor of its own: a lock belongs to the opening, and a copy of `folder`'s would outlive this.
        let own = folder.folder(Path::new(".")).with_context(|| format!("cannot open {}", folder.path().display()))?;
        let file = File::from(own.as_fd().try_clone_to_owned()?);
        let deadline = Instant::now() + Duration::from_secs(LOCK_WAIT_SECONDS_MAX);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { held: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(LOCK_RETRY_MILLISECONDS));
                }
                Err(TryLockError::WouldBlock) => {
                    let message = format!("another invocation is changing a file in {}", folder.path().display());
                    return Err(Failure::new(Status::Locked, message).retryable(true).into());
                }
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", folder.path().display()));
                }
            }
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing alone would leave it to a child that was being started just now. Failing, it is freed at our end.
        let _ = self.held.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_way_is_named_and_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        fs_err::create_dir(folder.path().join("elsewhere")).unwrap();
        fs_err::write(folder.path().join("elsewhere/config.toml"), "").unwrap();
        std::os::unix::fs::symlink("elsewhere", folder.path().join(".attini")).unwrap();
        let error = read_beneath(&root, Path::new(".attini/config.toml"), 100).unwrap_err();
        let failure = Failure::of(&error);
        assert_eq!(failure.status, Status::Usage);
        assert_eq!(
            failure.message,
            format!("{}/.attini is a link; attini follows none to its own files", root.path().display())
        );
    }

    #[test]
    fn absent_is_none_and_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert_eq!(read_beneath(&root, Path::new("a/b"), 3).unwrap(), None);
        fs_err::write(folder.path().join("a"), "1234").unwrap();
        assert_eq!(Failure::of(&read_beneath(&root, Path::new("a"), 3).unwrap_err()).status, Status::Usage);
        assert_eq!(read_beneath(&root, Path::new("a"), 4).unwrap(), Some(b"1234".to_vec()));
        let path = folder.path().join("a");
        assert_eq!(Failure::of(&read_user_file(&path, 3).unwrap_err()).status, Status::Usage);
        assert_eq!(read_user_file(&path, 4).unwrap(), Some(b"1234".to_vec()));
        assert_eq!(read_user_file(&folder.path().join("b"), 4).unwrap(), None);
    }

    #[test]
    fn a_lock_keeps_others_out_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let lock = FolderLock::take(&root).unwrap();
        let other = File::open(folder.path()).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(lock);
        other.try_lock().unwrap();
    }
}
