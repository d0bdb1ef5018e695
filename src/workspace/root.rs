//! A folder held open, and everything below it opened without following a single link.
//!
//! The path that was judged is the path that is opened: a link put in between makes the opening fail. On Linux the
//! kernel walks the path at once (`openat2`); elsewhere, and where that call is not to be had, it is walked component
//! by component.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};

/// Prefix of the names of temporary files, so that those of a killed process can be told and cleaned up.
pub const TEMPORARY_PREFIX: &str = ".attini-tmp-";

const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

impl Root {
    /// Opens a folder that the user named; links in `path` itself are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let fd = rustix::fs::open(&path, FOLDER_FLAGS, Mode::empty())?;
        Ok(Self { fd, path })
    }

    /// Where the folder was when it was opened; absolute, without links. For messages and rules.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as text, for what can hold no other: JSON, messages. Bytes that are no UTF-8 become replacement
    /// characters.
    pub fn shown(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// What no other folder has, and what nobody can foretell: its number, and when it was made to the nanosecond. `None`
    /// where the system does not know.
    pub fn birth(&self) -> Option<String> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::StatxFlags;
            let wanted = StatxFlags::BTIME | StatxFlags::INO;
            let found = rustix::fs::statx(&self.fd, "", AtFlags::EMPTY_PATH, wanted).ok()?;
            let is_known =
                StatxFlags::from_bits_retain(found.stx_mask).contains(wanted) && found.stx_btime.tv_nsec != 0;
            is_known.then(|| format!("{}:{}.{}", found.stx_ino, found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Opens a folder below. `.` or an empty path is this folder itself.
    pub fn folder(&self, relative: &Path) -> io::Result<Self> {
        let fd = self.open_fd(relative, FOLDER_FLAGS, Mode::empty())?;
        // By components: a `.` is not part of where the folder is.
        Ok(Self { fd, path: self.path.join(relative).components().collect() })
    }

    /// Opens a file for reading. A pipe or device is opened without waiting; look at the metadata before reading.
    pub fn open_file(&self, relative: &Path) -> io::Result<File> {
        self.open_with(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, 0)
    }

    /// Opens with the given flags; `mode` counts where the file is created.
    pub fn open_with(&self, relative: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
        let fd = self.open_fd(relative, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))?;
        Ok(File::from(fd))
    }

    /// Makes a file that must not exist yet.
    pub fn create_new(&self, relative: &Path, mode: u32) -> io::Result<File> {
        self.open_with(relative, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)
    }

    /// Makes the folders of `relative` that are missing and syncs the parent of each, so that they outlive a crash.
    /// Returns those it made, outermost first.
    pub fn make_folders(&self, relative: &Path, mode: u32) -> io::Result<Vec<PathBuf>> {
        let mut made = Vec::new();
        let mut folder = self.folder(Path::new("."))?;
        let mut so_far = PathBuf::new();
        for name in names(relative)? {
            so_far.push(name);
            match rustix::fs::mkdirat(&folder.fd, name, Mode::from_raw_mode(mode)) {
                Ok(()) => {
                    folder.sync()?;
                    made.push(so_far.clone());
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            folder = folder.folder(Path::new(name))?;
        }
        Ok(made)
    }

    /// The metadata of `relative` itself, a link not followed.
    pub fn metadata(&self, relative: &Path) -> io::Result<rustix::fs::Stat> {
        if names(relative)?.next().is_none() {
            return Ok(rustix::fs::fstat(&self.fd)?);
        }
        let (parent, name) = self.parent(relative)?;
        Ok(rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The target of a link.
    pub fn read_link(&self, relative: &Path) -> io::Result<PathBuf> {
        let (parent, name) = self.parent(relative)?;
        let target = rustix::fs::readlinkat(&parent, name, Vec::new())?;
        Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
    }

    /// The names in a folder below, sorted by their bytes.
    pub fn entries(&self, relative: &Path) -> io::Result<Vec<OsString>> {
        let folder = self.folder(relative)?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                found.push(OsStr::from_bytes(name).to_owned());
            }
        }
        found.sort();
        Ok(found)
    }

    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_parent, from_name) = self.parent(from)?;
        let (to_parent, to_name) = self.parent(to)?;
        Ok(rustix::fs::renameat(&from_parent, from_name, &to_parent, to_name)?)
    }

    pub fn remove_file(&self, relative: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(relative)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?)
    }

    /// Removes an empty folder.
    pub fn remove_folder(&self, relative: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(relative)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes the names in this folder durable. A signal that interrupts it is no failure: it is done again.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&self.fd))?)
    }

    /// Replaces a file as a whole, or makes it: after a crash it holds the old bytes or the new ones, never a mixture.
    /// The new bytes are synced before the rename gives them the name, and the folder is synced after it.
    pub fn replace(&self, relative: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let temporary = temporary_beside(relative);
        let written = (|| {
            let mut file = self.create_new(&temporary, mode)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            self.rename(&temporary, relative)
        })();
        if written.is_err() {
            // The first error is the one to tell; a left-over is recognised by its prefix.
            let _ = self.remove_file(&temporary);
        }
        written?;
        self.folder(parent_of(relative))?.sync()
    }

    /// Reads a whole file of at most `bytes_max` bytes; a larger one is an error.
    pub fn read(&self, relative: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let file = self.open_file(relative)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it is larger than the limit of {bytes_max} bytes"),
            ));
        }
        Ok(bytes)
    }

    fn parent<'p>(&self, relative: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let Some(name) = names(relative)?.last() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names the root folder itself"));
        };
        Ok((self.open_fd(parent_of(relative), FOLDER_FLAGS, Mode::empty())?, name))
    }

    fn open_fd(&self, relative: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        // Refuses `..` and absolute paths before the kernel sees them.
        let is_self = names(relative)?.next().is_none();
        let relative = if is_self { Path::new(".") } else { relative };
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::ResolveFlags;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            loop {
                match rustix::fs::openat2(&self.fd, relative, flags, mode, resolve) {
                    Ok(fd) => return Ok(fd),
                    // A rename elsewhere raced with the walk; the kernel asks to try again.
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    // An old kernel, or a sandbox that knows no openat2.
                    Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.walk_fd(relative, flags, mode)
    }

    fn walk_fd(&self, relative: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let names: Vec<&OsStr> = names(relative)?.collect();
        let Some((last, before)) = names.split_last() else {
            return Ok(rustix::fs::openat(&self.fd, ".", flags, mode)?);
        };
        let mut folder = self.fd.try_clone()?;
        for name in before {
            let open = || rustix::fs::openat(&folder, *name, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty());
            folder = rustix::io::retry_on_intr(open)?;
        }
        Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(&folder, *last, flags | OFlags::NOFOLLOW, mode))?)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A name for a temporary file in the same folder as `relative`, unlike any other.
pub fn temporary_beside(relative: &Path) -> PathBuf {
    let nanoseconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    parent_of(relative).join(format!("{TEMPORARY_PREFIX}{}-{nanoseconds}", std::process::id()))
}

fn parent_of(relative: &Path) -> &Path {
    match relative.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The components of a relative path; `..` and absolute paths are refused.
fn names(relative: &Path) -> io::Result<impl DoubleEndedIterator<Item = &OsStr>> {
    let fits = relative.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
    if !fits {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not a path beneath a folder", relative.display()),
        ));
    }
    Ok(relative.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }))
}
