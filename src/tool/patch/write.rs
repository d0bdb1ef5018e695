//! Gives files new contents, all or none, beneath folders held open and without following a link.
//!
//! Every content is written to a temporary file beside its target and synced before the first name changes. If a name
//! cannot be changed after others were, these get their old content back. Whether the files are still what somebody
//! approved is asked before, in [`super::run`].

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use super::apply::FILE_BYTES_MAX;
use super::extended::Extended;
use crate::workspace::Workspace;
use crate::workspace::root::Root;

/// Modes of new files and folders, before the umask takes its bits away.
const NEW_FILE_MODE: u32 = 0o666;
const NEW_FOLDER_MODE: u32 = 0o777;
/// The mode of a temporary file until it has the mode of the file it replaces.
const TEMPORARY_MODE: u32 = 0o600;
/// Set-user-ID, set-group-ID and sticky bits, and the nine of reading, writing and executing.
const MODE_BITS: u32 = 0o7777;
const PLAIN_MODE_BITS: u32 = 0o777;

/// One file that is to change.
#[derive(Debug, Clone)]
pub struct FileWrite {
    /// As [`crate::session::record::PlannedFile::path`].
    pub path: String,
    /// What it holds now, to be put back if the whole fails; `None`: there is no such file.
    pub before: Option<Arc<[u8]>>,
    /// What it is to hold; `None`: it is to be removed.
    pub after: Option<Arc<[u8]>>,
    /// Mode and owner of a file that is made; `None`: as the umask says. A file that is replaced keeps its own.
    pub attributes: Option<Attributes>,
}

/// What a file keeps when its content is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub mode: u32,
    /// User and group, kept where the system lets us.
    pub owner: Option<(u32, u32)>,
    /// Its access list and extended attributes; `None`: not known, so that a new file has what its folder gives it.
    pub extended: Option<Extended>,
    /// How many names the file has. A file that is replaced leaves its other names behind.
    pub links: u64,
    /// Its device and number; `None`: not known.
    pub identity: Option<(u64, u64)>,
}

impl Attributes {
    /// Those of a file of which only the mode is known, from a file of the session's that anyone may have written: the
    /// bits that lend a user's or a group's rights are not taken from there.
    pub fn of_mode(mode: u32) -> Self {
        Self { mode: mode & PLAIN_MODE_BITS, owner: None, extended: None, links: 1, identity: None }
    }

    fn load(file: &File) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata()?;
        Ok(Self {
            mode: metadata.mode() & MODE_BITS,
            owner: Some((metadata.uid(), metadata.gid())),
            extended: Some(Extended::load(file)?),
            links: metadata.nlink(),
            identity: Some((metadata.dev(), metadata.ino())),
        })
    }
}

/// Why the files were not all written.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Every file is as it was.
    Unchanged(String),
    /// Some file could not be put back; each file's path and state.
    Unknown(String, Vec<(String, State)>),
}

/// What a file is, seen from a change that may have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    AsBefore,
    AsAfter,
    /// It holds something else, or cannot be read.
    Other,
}

impl State {
    /// In words, behind "it is".
    pub const fn words(self) -> &'static str {
        match self {
            Self::AsBefore => "as it was before",
            Self::AsAfter => "as the patch leaves it",
            Self::Other => "neither as it was nor as the patch leaves it",
        }
    }
}

/// The folders beneath which a patch's paths are opened.
#[derive(Debug)]
pub struct Places<'a> {
    workspace: &'a Root,
    system: Root,
}

impl<'a> Places<'a> {
    pub fn open(workspace: &'a Workspace) -> io::Result<Self> {
        Ok(Self { workspace: &workspace.root, system: Root::open(Path::new("/"))? })
    }

    /// The folder to open beneath, and the path in it, of a [`crate::session::record::PlannedFile::path`].
    pub fn of<'s>(&'s self, path: &'s str) -> (&'s Root, &'s Path) {
        match Path::new(path).strip_prefix("/") {
            Ok(relative) => (&self.system, relative),
            Err(_) => (self.workspace, Path::new(path)),
        }
    }

    /// The bytes and attributes of a regular file, or `None` where nothing has that name.
    pub fn read(&self, path: &str) -> io::Result<Option<(Arc<[u8]>, Attributes)>> {
        let (root, relative) = self.of(path);
        let stat = match root.metadata(relative) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let file = root.open_file(relative)?;
        let attributes = Attributes::load(&file)?;
        Ok(Some((Arc::from(root.read(relative, FILE_BYTES_MAX as u64)?), attributes)))
    }

    /// The attributes alone.
    fn attributes(&self, path: &str) -> io::Result<Option<Attributes>> {
        let (root, relative) = self.of(path);
        match root.metadata(relative) {
            Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_file() => {
                Err(io::Error::other("it is not a regular file"))
            }
            Ok(_) => Attributes::load(&root.open_file(relative)?).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Gives all files their new content, or none.
pub fn write_all(places: &Places<'_>, writes: &[FileWrite]) -> Result<(), Failure> {
    write_watched(places, writes, &mut |_| Ok(()))
}

/// `before_step` is called with the index of each file before its name is changed; its error counts as one of that.
pub(super) fn write_watched(
    places: &Places<'_>,
    writes: &[FileWrite],
    before_step: &mut dyn FnMut(usize) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut job = Job { places, writes, prepared: Vec::new(), folders_made: Vec::new(), changed: 0 };
    let done = job.prepare().and_then(|()| job.change_names(before_step)).and_then(|()| job.sync_folders());
    let Err(reason) = done else { return Ok(()) };
    let restored = job.put_back();
    job.discard();
    match restored {
        Ok(()) => Err(Failure::Unchanged(reason)),
        Err(also) => Err(Failure::Unknown(format!("{reason}; and {also}"), states(places, writes))),
    }
}

/// What a file is now, by its content.
pub fn state(places: &Places<'_>, path: &str, before: Option<&str>, after: Option<&str>) -> State {
    let Ok(present) = places.read(path) else { return State::Other };
    let present = present.map(|(bytes, _)| super::apply::sha256_of(&bytes));
    if present.as_deref() == after {
        State::AsAfter
    } else if present.as_deref() == before {
        State::AsBefore
    } else {
        State::Other
    }
}

fn states(places: &Places<'_>, writes: &[FileWrite]) -> Vec<(String, State)> {
    let digest = |bytes: &Option<Arc<[u8]>>| bytes.as_ref().map(|bytes| super::apply::sha256_of(bytes));
    writes
        .iter()
        .map(|write| {
            let (before, after) = (digest(&write.before), digest(&write.after));
            (write.path.clone(), state(places, &write.path, before.as_deref(), after.as_deref()))
        })
        .collect()
}

struct Job<'a> {
    places: &'a Places<'a>,
    writes: &'a [FileWrite],
    prepared: Vec<Prepared>,
    folders_made: Vec<(&'a Root, PathBuf)>,
    /// How many names were changed.
    changed: usize,
}

struct Prepared {
    /// The file with the new content; `None` where the target is to be removed.
    temporary: Option<PathBuf>,
    /// Those of the file that is replaced or removed.
    attributes: Option<Attributes>,
}

impl<'a> Job<'a> {
    fn prepare(&mut self) -> Result<(), String> {
        let (places, writes) = (self.places, self.writes);
        for write in writes {
            let (root, relative) = places.of(&write.path);
            let fail = |error: io::Error| format!("{} could not be prepared: {error}", write.path);
            if write.before.is_none() {
                self.make_folders(root, relative).map_err(fail)?;
            }
            let present = places.attributes(&write.path).map_err(fail)?;
            // Noted before it is filled, so that it is discarded if filling fails.
            let temporary = write.after.as_ref().map(|_| self.temporary_name(relative));
            self.prepared.push(Prepared { temporary: temporary.clone(), attributes: present.clone() });
            if let (Some(temporary), Some(bytes)) = (&temporary, &write.after) {
                fill(root, temporary, bytes, present.as_ref().or(write.attributes.as_ref())).map_err(fail)?;
            }
        }
        Ok(())
    }

    fn make_folders(&mut self, root: &'a Root, relative: &Path) -> io::Result<()> {
        let mut folders: Vec<&Path> = relative.ancestors().skip(1).filter(|path| *path != Path::new("")).collect();
        folders.reverse();
        for folder in folders {
            // One at a time, so that those made before one that cannot be made are known.
            let made = root.make_folders(folder, NEW_FOLDER_MODE)?;
            self.folders_made.extend(made.into_iter().map(|path| (root, path)));
        }
        Ok(())
    }

    fn temporary_name(&self, relative: &Path) -> PathBuf {
        let base = crate::workspace::root::temporary_beside(relative);
        let mut name = base.into_os_string();
        name.push(format!("-{}", self.prepared.len()));
        PathBuf::from(name)
    }

    fn change_names(&mut self, before_step: &mut dyn FnMut(usize) -> io::Result<()>) -> Result<(), String> {
        for (index, write) in self.writes.iter().enumerate() {
            let (root, relative) = self.places.of(&write.path);
            let changed = before_step(index).and_then(|()| ensure_unchanged(self.places, write)).and_then(|()| {
                match &self.prepared[index].temporary {
                    Some(temporary) => root.rename(temporary, relative),
                    None => root.remove_file(relative),
                }
            });
            changed.map_err(|error| format!("{} could not be changed: {error}", write.path))?;
            self.prepared[index].temporary = None;
            self.changed += 1;
        }
        Ok(())
    }

    fn sync_folders(&self) -> Result<(), String> {
        let mut synced: Vec<(&Path, &Path)> = Vec::new();
        for write in self.writes {
            let (root, relative) = self.places.of(&write.path);
            let folder = folder_of(relative);
            if synced.contains(&(root.path(), folder)) {
                continue;
            }
            root.folder(folder)
                .and_then(|folder| folder.sync())
                .map_err(|error| format!("the folder of {} could not be synced: {error}", write.path))?;
            synced.push((root.path(), folder));
        }
        Ok(())
    }

    /// Undoes the changes of names, the last one first; tries all and tells the first failure.
    fn put_back(&mut self) -> Result<(), String> {
        let mut result = Ok(());
        for index in (0..self.changed).rev() {
            let write = &self.writes[index];
            let (root, relative) = self.places.of(&write.path);
            let restored = match &write.before {
                Some(bytes) => {
                    let temporary = self.temporary_name(relative);
                    let filled = fill(root, &temporary, bytes, self.prepared[index].attributes.as_ref());
                    filled.and_then(|()| root.rename(&temporary, relative)).inspect_err(|_| {
                        let _ = root.remove_file(&temporary);
                    })
                }
                None => root.remove_file(relative),
            };
            let restored = restored.and_then(|()| root.folder(folder_of(relative))?.sync());
            if let Err(error) = restored
                && result.is_ok()
            {
                result = Err(format!("{} could not be put back: {error}", write.path));
            }
        }
        result
    }

    /// Removes what was only made on the way. What cannot be removed is recognised later by its name.
    fn discard(&mut self) {
        for (prepared, write) in self.prepared.iter().zip(self.writes) {
            if let Some(temporary) = &prepared.temporary {
                let _ = self.places.of(&write.path).0.remove_file(temporary);
            }
        }
        for (root, folder) in self.folders_made.iter().rev() {
            let _ = root.remove_folder(folder);
        }
    }
}

/// Refuses to put a file in the place of what somebody else has written since.
fn ensure_unchanged(places: &Places<'_>, write: &FileWrite) -> io::Result<()> {
    match (places.read(&write.path)?, &write.before) {
        (None, None) => Ok(()),
        (Some((present, _)), Some(before)) if present == *before => Ok(()),
        (Some(_), Some(_)) => Err(io::Error::other("it was changed in the meantime")),
        (Some(_), None) => Err(io::Error::other("something has taken its name in the meantime")),
        (None, Some(_)) => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

/// Writes a new file and syncs it; its mode is final before the first byte of content could be read by others.
fn fill(root: &Root, temporary: &Path, bytes: &[u8], attributes: Option<&Attributes>) -> io::Result<()> {
    let mode = if attributes.is_some() { TEMPORARY_MODE } else { NEW_FILE_MODE };
    let mut file = root.create_new(temporary, mode)?;
    file.write_all(bytes)?;
    if let Some(attributes) = attributes {
        give(&file, attributes)?;
    }
    file.sync_all()
}

fn give(file: &File, attributes: &Attributes) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mut bits = attributes.mode & MODE_BITS;
    if let Some((user, group)) = attributes.owner {
        let present = file.metadata()?;
        if (present.uid(), present.gid()) != (user, group)
            && std::os::unix::fs::fchown(file, Some(user), Some(group)).is_err()
        {
            // The owner cannot be kept. The bits that would lend a user's or group's rights must not stay then.
            let _ = std::os::unix::fs::fchown(file, None, Some(group));
            bits &= PLAIN_MODE_BITS;
        }
    }
    file.set_permissions(std::fs::Permissions::from_mode(bits))?;
    match &attributes.extended {
        // Last, because changing the mode changes an access list.
        Some(extended) => extended.give(file),
        None => Ok(()),
    }
}

fn folder_of(relative: &Path) -> &Path {
    relative.parent().unwrap_or(Path::new(""))
}
