//! A session in one file, to take it to another machine: a tar.gz whose entries lie in a folder of the session's name.
//!
//! The same session gives the same bytes: names sorted, no times, no owners. What is unpacked is taken as hostile: only
//! files that a session has, beneath a folder that is no session yet, within bounds that are known before.

use std::io::{self, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use tar::{Archive, Builder, Entry, EntryType, Header};

use super::collection::{FOLDER_DEPTH_MAX, files_below};
use super::folder::{FILE_MODE, FOLDER_MODE, SessionFolder, ensure_name};
use super::fork::{COPIED_FOLDERS, write_file};
use super::{log, pending};
use crate::failure::Failure;
use crate::workspace::root::TEMPORARY_PREFIX;

/// The files at the top that are taken along; the lock is not.
pub const FILES: [&str; 3] = [log::FILE_NAME, pending::FILE_NAME, RULES_FILE_NAME];
const RULES_FILE_NAME: &str = "permissions.jsonl";

const ENTRIES_MAX: u64 = 100_000;
/// All files together, unpacked.
const UNPACKED_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
/// Of one name in the archive.
const NAME_BYTES_MAX: u64 = 4096;
/// What is behind the last entry is looked at no further than this.
const TRAILER_BYTES_MAX: u64 = 1024 * 1024;

/// How much an archive may hold.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub entries_max: u64,
    pub unpacked_bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries_max: ENTRIES_MAX, unpacked_bytes_max: UNPACKED_BYTES_MAX }
    }
}

/// Packs a session whose lock is held. Returns what is no file and was left out.
pub fn pack(folder: &SessionFolder, stream: &mut dyn Write) -> io::Result<Vec<PathBuf>> {
    // A fixed byte for the system, too: the default is another on each.
    let encoder = GzBuilder::new().mtime(0).operating_system(255).write(stream, Compression::default());
    let mut builder = Builder::new(encoder);
    for name in FILES {
        if let Ok(metadata) = folder.root.metadata(Path::new(name)) {
            append(&mut builder, folder, Path::new(name), u64::try_from(metadata.st_size).unwrap_or_default())?;
        }
    }
    let mut left_out = Vec::new();
    let mut folders = COPIED_FOLDERS;
    folders.sort_unstable();
    for name in folders {
        if folder.root.metadata(Path::new(name)).is_ok() {
            let below = files_below(&folder.root, Path::new(name))?;
            for (path, size) in below.files {
                append(&mut builder, folder, &path, size)?;
            }
            left_out.extend(below.others);
        }
    }
    builder.into_inner()?.finish()?.flush()?;
    Ok(left_out)
}

fn append(builder: &mut Builder<impl Write>, folder: &SessionFolder, path: &Path, size: u64) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(FILE_MODE);
    header.set_size(size);
    header.set_mtime(0);
    let file = folder.root.open_file(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is not a regular file", path.display())));
    }
    builder.append_data(&mut header, Path::new(&folder.name).join(path), file.take(size))
}

/// Unpacks an archive into a folder that holds nothing but its lock, and returns the name the session had. What is wrong
/// with the archive is an error (2).
pub fn unpack(archive: impl Read, folder: &SessionFolder, bounds: Bounds) -> anyhow::Result<String> {
    let mut unpacking = Unpacking { folder, bounds, entries: 0, bytes: 0, name: None, long_name: None };
    // Whatever the headers say, no more than this comes out; headers and padding are allowed for.
    let room = bounds.unpacked_bytes_max.saturating_add(bounds.entries_max.saturating_mul(8192));
    let mut archive = Archive::new(GzDecoder::new(BufReader::new(archive)).take(room));
    let entries = archive.entries().map_err(|error| damaged(&error))?;
    for entry in entries.raw(true) {
        unpacking.take(&mut entry.map_err(|error| damaged(&error))?)?;
    }
    // To the end, where the checksum is.
    let mut rest = archive.into_inner();
    io::copy(&mut (&mut rest).take(TRAILER_BYTES_MAX), &mut io::sink()).map_err(|error| damaged(&error))?;
    unpacking.name.ok_or_else(|| refused("it is empty").into())
}

struct Unpacking<'a> {
    folder: &'a SessionFolder,
    bounds: Bounds,
    entries: u64,
    bytes: u64,
    /// The folder that all entries lie in.
    name: Option<String>,
    /// Of the entry that comes next.
    long_name: Option<Vec<u8>>,
}

impl Unpacking<'_> {
    fn take(&mut self, entry: &mut Entry<'_, impl Read>) -> anyhow::Result<()> {
        self.entries += 1;
        if self.entries > self.bounds.entries_max {
            return Err(refused(&format!("it has more than {} entries", self.bounds.entries_max)).into());
        }
        let size = entry.size();
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.bounds.unpacked_bytes_max {
            let limit = self.bounds.unpacked_bytes_max;
            return Err(refused(&format!("unpacked it is larger than the limit of {limit} bytes")).into());
        }
        let kind = entry.header().entry_type();
        if kind == EntryType::GNULongName {
            self.long_name = Some(long_name(entry, size)?);
            return Ok(());
        }
        let bytes = self.long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let text = std::str::from_utf8(&bytes).map_err(|_| refused("a name in it is not UTF-8"))?;
        match kind {
            EntryType::Regular => {
                let path = self.path_in_session(text)?;
                let is_file = path.components().count() == 1;
                if is_file != FILES.iter().any(|name| path == Path::new(name)) {
                    return Err(refused(&format!("{text:?} is no file of a session")).into());
                }
                self.write(&path, entry, size)
            }
            EntryType::Directory => self.make_folder(text),
            _ => Err(refused(&format!("{text:?} is neither a file nor a folder")).into()),
        }
    }

    fn make_folder(&mut self, text: &str) -> anyhow::Result<()> {
        if Path::new(text).components().count() == 1 {
            return self.ensure_same_session(text.trim_end_matches('/'));
        }
        let path = self.path_in_session(text)?;
        if FILES.iter().any(|name| path.starts_with(name)) {
            return Err(refused(&format!("{text:?} is no folder of a session")).into());
        }
        self.folder.root.make_folders(&path, FOLDER_MODE).map_err(|error| unwritable(self.folder, &path, &error))?;
        Ok(())
    }

    fn write(&self, path: &Path, entry: &mut impl Read, size: u64) -> anyhow::Result<()> {
        let root = &self.folder.root;
        if root.metadata(path).is_ok() {
            return Err(refused(&format!("{} is in it twice", path.display())).into());
        }
        if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
            root.make_folders(parent, FOLDER_MODE).map_err(|error| unwritable(self.folder, path, &error))?;
        }
        let mut content = Counted { stream: entry, bytes: 0, failed: None };
        let written = write_file(root, path, &mut content);
        if let Some(error) = content.failed {
            return Err(damaged(&error));
        }
        written.map_err(|error| unwritable(self.folder, path, &error))?;
        if content.bytes != size {
            return Err(refused(&format!("it ends in the middle of {}", path.display())).into());
        }
        Ok(())
    }

    /// The path of an entry below the session's folder, if it is one that a session can have.
    fn path_in_session(&mut self, text: &str) -> anyhow::Result<PathBuf> {
        let no_file = || refused(&format!("{text:?} is no file of a session"));
        let mut names: Vec<&str> = Vec::new();
        for component in Path::new(text).components() {
            match component {
                Component::Normal(name) => names.push(name.to_str().ok_or_else(no_file)?),
                Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(no_file().into());
                }
            }
        }
        let [session, first, below @ ..] = names.as_slice() else { return Err(no_file().into()) };
        let is_known = (FILES.contains(first) && below.is_empty()) || COPIED_FOLDERS.contains(first);
        let is_sound = below.len() < FOLDER_DEPTH_MAX
            && below.iter().all(|name| !name.starts_with(TEMPORARY_PREFIX) && !name.contains('\0'));
        if !is_known || !is_sound || text.contains("//") {
            return Err(no_file().into());
        }
        self.ensure_same_session(session)?;
        Ok(names[1..].iter().collect())
    }

    fn ensure_same_session(&mut self, name: &str) -> anyhow::Result<()> {
        ensure_name(name).map_err(|_| refused(&format!("{name:?} is not a session name")))?;
        match &self.name {
            None => self.name = Some(name.to_owned()),
            Some(known) if known == name => {}
            Some(known) => return Err(refused(&format!("it holds two sessions, {known} and {name}")).into()),
        }
        Ok(())
    }
}

/// Counts what is read, and keeps the error of the one who reads apart from that of the one who writes.
struct Counted<'s, S> {
    stream: &'s mut S,
    bytes: u64,
    failed: Option<io::Error>,
}

impl<S: Read> Read for Counted<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Ok(read) => {
                self.bytes += read as u64;
                Ok(read)
            }
            Err(error) => {
                let kind = error.kind();
                if kind != io::ErrorKind::Interrupted {
                    self.failed = Some(error);
                }
                Err(kind.into())
            }
        }
    }
}

fn long_name(entry: &mut impl Read, size: u64) -> anyhow::Result<Vec<u8>> {
    if size > NAME_BYTES_MAX {
        return Err(refused(&format!("a name in it is longer than {NAME_BYTES_MAX} bytes")).into());
    }
    let mut name = Vec::new();
    entry.take(NAME_BYTES_MAX).read_to_end(&mut name).map_err(|error| damaged(&error))?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

fn refused(what: &str) -> Failure {
    Failure::usage(format!("the archive is refused: {what}"))
        .hint("nothing was imported; `attini sessions export` writes what fits")
}

fn damaged(error: &io::Error) -> anyhow::Error {
    refused(&format!("it is damaged, or no tar.gz: {error}")).into()
}

fn unwritable(folder: &SessionFolder, path: &Path, error: &io::Error) -> anyhow::Error {
    Failure::persistence(format!("{} cannot be written: {error}", folder.root.path().join(path).display())).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace::root::Root;

    const SMALL: Bounds = Bounds { entries_max: 4, unpacked_bytes_max: 1000 };

    /// A tar.gz of these entries: name, kind, content.
    fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::new(GzBuilder::new().write(Vec::new(), Compression::default()));
        for (name, kind, content) in entries {
            let mut header = Header::new_gnu();
            // Not through `set_path`, which refuses what is to be tried here.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o4777);
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn unpack_into(bytes: &[u8], folder: &Path) -> Result<String, String> {
        let folder = SessionFolder { name: "new".to_owned(), root: Root::open(folder).unwrap() };
        unpack(bytes, &folder, SMALL).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_no_session_has_is_refused_and_nothing_of_it_is_written() {
        use EntryType as T;
        let file = |name: &'static str| vec![(name, T::Regular, &b"x"[..])];
        for (what, entries) in [
            ("no file of a session", file("m/../x")),
            ("no file of a session", file("../m/outputs/x")),
            ("no file of a session", file("/m/outputs/x")),
            ("no file of a session", file("m/outputs/../../../x")),
            ("no file of a session", file("m//outputs/x")),
            ("no file of a session", file("m/lock")),
            ("no file of a session", file("m/outputs")),
            ("no file of a session", file("m/tasks/1/output")),
            ("no file of a session", file("m/conversation.jsonl/x")),
            ("no file of a session", file("m/outputs/.attini-tmp-1")),
            ("no file of a session", file("m")),
            ("not a session name", file(".m/outputs/x")),
            ("no folder of a session", vec![("m/pending.json", T::Directory, b"")]),
            ("neither a file nor a folder", vec![("m/outputs/x", T::Symlink, b"")]),
            ("neither a file nor a folder", vec![("m/outputs/x", T::Link, b"")]),
            ("neither a file nor a folder", vec![("m/outputs/x", T::Char, b"")]),
            ("neither a file nor a folder", vec![("m/outputs/x", T::Fifo, b"")]),
            ("neither a file nor a folder", vec![("m/outputs/x", T::XHeader, b"")]),
            ("neither a file nor a folder", vec![("m/outputs/x", T::GNUSparse, b"")]),
            ("in it twice", [file("m/outputs/x"), file("m/outputs/x")].concat()),
            ("two sessions", [file("m/outputs/x"), file("n/outputs/x")].concat()),
            ("more than 4 entries", vec![("m/outputs", T::Directory, b""); 5]),
            ("larger than the limit of 1000 bytes", vec![("m/outputs/x", T::Regular, &[0; 1001][..])]),
            ("larger than the limit of 1000 bytes", vec![("m/outputs/x", T::GNULongName, &[b'a'; 1001][..])]),
            ("it is empty", Vec::new()),
        ] {
            let above = tempfile::tempdir().unwrap();
            let folder = above.path().join("s");
            fs::create_dir(&folder).unwrap();
            let refusal = unpack_into(&archive(&entries), &folder).expect_err(what);
            assert!(refusal.contains(what), "{what}: {refusal}");
            assert_eq!(fs::read_dir(above.path()).unwrap().count(), 1, "{what}");
        }
    }

    #[test]
    fn a_bomb_is_refused_by_what_it_says_and_by_what_comes_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..11].copy_from_slice(b"m/outputs/x");
        header.set_entry_type(EntryType::Regular);
        header.set_size(1 << 40);
        header.set_cksum();
        let mut encoder = GzBuilder::new().write(Vec::new(), Compression::default());
        encoder.write_all(header.as_bytes()).unwrap();
        encoder.write_all(&vec![0; 100_000]).unwrap();
        let bytes = encoder.finish().unwrap();
        assert!(unpack_into(&bytes, folder.path()).unwrap_err().contains("larger than the limit"));
        let cut = archive(&[("m/outputs/x", EntryType::Regular, &[7; 900])]);
        for length in [0, 5, 20, cut.len() / 2, cut.len() - 4] {
            let folder = tempfile::tempdir().unwrap();
            let refusal = unpack_into(&cut[..length], folder.path()).expect_err("cut");
            assert!(refusal.contains("refused"), "{length}: {refusal}");
        }
    }

    #[test]
    fn what_is_packed_is_unpacked_with_private_modes_and_always_the_same() {
        use std::os::unix::fs::PermissionsExt;
        let from = tempfile::tempdir().unwrap();
        let long = format!("outputs/{}", "n".repeat(180));
        fs::create_dir_all(from.path().join("outputs/deep")).unwrap();
        fs::create_dir_all(from.path().join("tasks/1")).unwrap();
        for (name, content) in [
            ("conversation.jsonl", "log"),
            ("lock", "held"),
            ("tasks/1/output", "t"),
            ("outputs/deep/a", "A"),
            (&long, "L"),
        ] {
            fs::write(from.path().join(name), content).unwrap();
        }
        let source = SessionFolder { name: "main".to_owned(), root: Root::open(from.path()).unwrap() };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        pack(&source, &mut first).unwrap();
        pack(&source, &mut second).unwrap();
        assert_eq!(first, second);
        let to = tempfile::tempdir().unwrap();
        let folder = SessionFolder { name: "new".to_owned(), root: Root::open(to.path()).unwrap() };
        assert_eq!(unpack(&first[..], &folder, Bounds::default()).unwrap(), "main");
        assert_eq!(fs::read_to_string(to.path().join(&long)).unwrap(), "L");
        let deep = to.path().join("outputs/deep/a");
        assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(!to.path().join("lock").exists() && !to.path().join("tasks").exists());
    }
}
