//! `conversation.jsonl`: making it, loading it, appending to it.
//!
//! A record is on disk once a [`Log::barrier`] behind it has returned. After a write that failed nothing more is
//! written, so that the log ends with the last whole record, or with a fragment that the next load cuts off.

mod begin;
pub mod draft;
pub mod lines;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::OFlags;

use crate::clock;
use crate::exit::Status;
use crate::failure::Failure;
use crate::session::folder::{FILE_MODE, SessionFolder};
use crate::session::history::History;
use crate::session::record::Record;

/// The log's name in the session folder.
pub const FILE_NAME: &str = "conversation.jsonl";

/// The longest line that is read. A reply is bounded well below it; a longer line was not written by attini.
pub const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How deep a record may be nested: what the parser reads back.
const DEPTH_MAX: usize = 127;

/// A log open for appending. Only the holder of the session's lock has one.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// Where the file has to be found.
    path: PathBuf,
    history: History,
    /// Length up to the end of the last whole record.
    length: u64,
    /// The part of it that is known to be on disk.
    synced: u64,
    broken: Option<String>,
}

/// What was found at the end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tail {
    Whole,
    /// A complete record without its newline.
    Unterminated,
    /// The beginning of a record, from this offset on.
    Fragment {
        offset: u64,
    },
}

impl Log {
    /// Makes the log of a new session: it comes into being with its first records in it, or not at all.
    pub fn create(folder: &SessionFolder, records: &[Record]) -> anyhow::Result<Self> {
        let mut history = History::default();
        let mut bytes = Vec::new();
        for record in records {
            let line = line(record)?;
            history.apply_line(record, line.len() as u64).map_err(Failure::corrupt)?;
            bytes.extend(line);
        }
        folder
            .root
            .replace(Path::new(FILE_NAME), &bytes, FILE_MODE)
            .map_err(|error| unwritable(folder, "cannot be made", &error))?;
        let file = open_append(folder).map_err(|error| unwritable(folder, "cannot be opened", &error))?;
        let length = bytes.len() as u64;
        Ok(Self { file, path: path(folder), history, length, synced: length, broken: None })
    }

    /// Opens the log, mends its tail, and returns it with what there is to report about that. `None`: there is no log,
    /// so the folder is no session.
    pub fn open(folder: &SessionFolder) -> anyhow::Result<Option<(Self, Vec<String>)>> {
        let Some(mut loaded) = load(folder, false)? else { return Ok(None) };
        let mut file = open_append(folder).map_err(|error| unwritable(folder, "cannot be opened", &error))?;
        let mut warnings = Vec::new();
        let mut length = loaded.length;
        match loaded.tail {
            Tail::Whole => {}
            Tail::Unterminated => {
                file.write_all(b"\n")
                    .and_then(|()| file.sync_data())
                    .map_err(|error| unwritable(folder, "cannot be written", &error))?;
                length += 1;
                loaded.history.skip(1);
            }
            Tail::Fragment { offset } => {
                let kept = keep_fragment(folder, &mut file, offset)
                    .map_err(|error| unwritable(folder, "has a torn tail that cannot be cut off", &error))?;
                warnings.push(format!(
                    "the conversation ended in a record that was not written whole; its {} bytes are kept in {kept}",
                    loaded.file_length - offset
                ));
            }
        }
        let log = Self { file, path: path(folder), history: loaded.history, length, synced: length, broken: None };
        Ok(Some((log, warnings)))
    }

    /// Reads the log without touching it: whole records count, a torn tail is passed over.
    pub fn read(folder: &SessionFolder) -> anyhow::Result<Option<History>> {
        Ok(load(folder, false)?.map(|loaded| loaded.history))
    }

    /// As [`Log::read`], from the very beginning: what summaries cover is read and kept as well.
    pub fn read_whole(folder: &SessionFolder) -> anyhow::Result<Option<History>> {
        Ok(load(folder, true)?.map(|loaded| loaded.history))
    }

    /// Whether there is a log, whatever it holds: whether the folder is a session.
    pub fn exists(folder: &SessionFolder) -> anyhow::Result<bool> {
        match folder.root.metadata(Path::new(FILE_NAME)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(folder.unopened(FILE_NAME, &error, |what| Failure::new(Status::Error, what)).into()),
        }
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    /// Appends a record; it is durable after the next barrier.
    pub fn append(&mut self, record: &Record) -> anyhow::Result<()> {
        self.ensure_whole()?;
        let bytes = line(record)?;
        // Refused for what the log held before, a count at its end say; what is refused leaves no trace.
        self.history
            .apply_line(record, bytes.len() as u64)
            .map_err(|violation| Failure::corrupt(format!("a record would break the conversation: {violation}")))?;
        if let Err(error) = self.file.write_all(&bytes) {
            // A fragment would be cut off at the next load anyway; with no space left the cut still succeeds.
            let _ = self.file.set_len(self.length);
            return Err(self.fail(&error));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Returns once every record so far is on disk, in the file that the next load finds.
    pub fn barrier(&mut self) -> anyhow::Result<()> {
        self.ensure_whole()?;
        self.ensure_in_place()?;
        if self.synced < self.length {
            if let Err(error) = self.file.sync_data() {
                return Err(self.fail(&error));
            }
            self.synced = self.length;
        }
        Ok(())
    }

    fn ensure_whole(&self) -> anyhow::Result<()> {
        match &self.broken {
            Some(message) => Err(Failure::persistence(message.clone()).into()),
            None => Ok(()),
        }
    }

    /// Refuses a log that a command has removed, moved, replaced or cut: what is appended to it would be lost.
    fn ensure_in_place(&mut self) -> anyhow::Result<()> {
        let found = std::fs::symlink_metadata(&self.path);
        let what = match (self.file.metadata(), found) {
            (Ok(own), Ok(found)) if (own.dev(), own.ino()) != (found.dev(), found.ino()) => "was replaced",
            (Ok(own), Ok(_)) if own.len() != self.length => "was changed by another program",
            (Ok(_), Ok(_)) => return Ok(()),
            (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => "was removed or moved away",
            (Err(error), _) | (_, Err(error)) => return Err(self.fail(&error)),
        };
        let message = format!("{} {what} while the turn ran", self.path.display());
        self.broken = Some(message.clone());
        Err(Failure::persistence(message)
            .hint("nothing more was run; what a command of this turn did may have done that")
            .into())
    }

    fn fail(&mut self, error: &std::io::Error) -> anyhow::Error {
        let message = format!("{FILE_NAME} cannot be written: {error}");
        self.forget_unwritten();
        self.broken = Some(message.clone());
        Failure::persistence(message)
            .hint("what was recorded before is safe; make room or mend the disk, then `attini resume`")
            .into()
    }

    /// From now on every write fails, as on a full disk.
    #[cfg(test)]
    pub(crate) fn make_unwritable(&mut self, folder: &SessionFolder) {
        self.file = folder.root.open_file(Path::new(FILE_NAME)).unwrap();
    }

    /// Takes back what is not on disk, so that nobody is told of it.
    fn forget_unwritten(&mut self) {
        if self.file.sync_data().is_ok() {
            self.synced = self.length;
        }
        if let Ok(loaded) = begin::load(&self.file, self.synced, FILE_NAME) {
            self.history = loaded.history;
        }
    }
}

fn path(folder: &SessionFolder) -> PathBuf {
    folder.root.path().join(FILE_NAME)
}

fn line(record: &Record) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(record).context("a record cannot be put into JSON")?;
    // What a schema or a service's own fields hold may be nested deeper than a record that reads back.
    if depth(&bytes) > DEPTH_MAX {
        return Err(Failure::new(Status::Error, format!("a record is nested more than {DEPTH_MAX} deep")).into());
    }
    bytes.push(b'\n');
    Ok(bytes)
}

/// How deep objects and arrays are nested in valid JSON.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn open_append(folder: &SessionFolder) -> std::io::Result<File> {
    folder.root.open_with(Path::new(FILE_NAME), OFlags::RDWR | OFlags::APPEND, 0)
}

pub(crate) fn unwritable(folder: &SessionFolder, what: &str, error: &std::io::Error) -> anyhow::Error {
    Failure::persistence(format!("{} {what}: {error}", folder.display(FILE_NAME))).into()
}

struct Loaded {
    history: History,
    tail: Tail,
    /// Up to the end of the last whole record.
    length: u64,
    file_length: u64,
}

fn load(folder: &SessionFolder, whole: bool) -> anyhow::Result<Option<Loaded>> {
    let shown = folder.display(FILE_NAME);
    let file = match folder.root.open_file(Path::new(FILE_NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(folder.unopened(FILE_NAME, &error, |what| Failure::new(Status::Error, what)).into());
        }
    };
    if whole {
        return fold(BufReader::new(file), &shown, History::whole(), 0, &|| 0).map(Some);
    }
    let length = file.metadata().with_context(|| format!("{shown} cannot be read"))?.len();
    begin::load(&file, length, &shown).map(Some)
}

/// Reads records to the end, from `offset` on, where `history` stands. `shown` names the file in errors, and
/// `lines_before` counts the lines before the offset.
fn fold(
    mut reader: impl BufRead,
    shown: &str,
    history: History,
    offset: u64,
    lines_before: &dyn Fn() -> u64,
) -> anyhow::Result<Loaded> {
    let damaged = |number: u64, what: &str| damaged(shown, lines_before() + number, what);
    let mut loaded = Loaded { history, tail: Tail::Whole, length: offset, file_length: offset };
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.with_context(|| format!("{shown} cannot be read"))? as u64;
        if read == 0 {
            break;
        }
        loaded.file_length += read;
        let terminated = line.ends_with(b"\n");
        if !terminated && read == LINE_BYTES_MAX {
            return Err(damaged(number, &format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        match Record::parse(&line) {
            Ok(record) => {
                loaded.history.apply_line(&record, read).map_err(|violation| damaged(number, &violation))?;
                loaded.length = loaded.file_length;
                if !terminated {
                    loaded.tail = Tail::Unterminated;
                }
            }
            // What a kill leaves is one fragment at the end, behind a log that began whole.
            Err(_) if !terminated && (number > 1 || offset > 0) => {
                loaded.tail = Tail::Fragment { offset: loaded.length };
            }
            Err(error) => return Err(damaged(number, &format!("it is not a record: {error}"))),
        }
    }
    if loaded.file_length == 0 {
        return Err(damaged(1, "the file is empty"));
    }
    Ok(loaded)
}

pub(super) fn damaged(shown: &str, number: u64, what: &str) -> anyhow::Error {
    Failure::corrupt(format!("{shown}:{number}: {what}"))
        .hint("nothing was changed; `attini check` lists every fault")
        .into()
}

/// Copies the fragment from `offset` on into a file of its own, then cuts it off; each is durable before the next.
fn keep_fragment(folder: &SessionFolder, file: &mut File, offset: u64) -> std::io::Result<String> {
    let mut fragment = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.read_to_end(&mut fragment)?;
    let name = format!("{FILE_NAME}.torn-{}", clock::now_for_file_names());
    folder.root.replace(Path::new(&name), &fragment, FILE_MODE)?;
    file.set_len(offset)?;
    file.sync_data()?;
    Ok(name)
}

#[cfg(test)]
mod tests;
