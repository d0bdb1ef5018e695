//! A log that is written anew beside the one that counts, and takes its place as a whole or not at all.

use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::{FILE_NAME, Log, unwritable};
use crate::session::folder::{FILE_MODE, SessionFolder};
use crate::session::history::History;
use crate::session::record::Record;
use crate::workspace::root::temporary_beside;

/// Only the holder of the session's lock makes one. Dropped before it took its place it leaves nothing.
#[derive(Debug)]
pub struct Draft<'a> {
    folder: &'a SessionFolder,
    temporary: PathBuf,
    log: Log,
}

impl<'a> Draft<'a> {
    pub fn new(folder: &'a SessionFolder) -> anyhow::Result<Self> {
        let temporary = temporary_beside(Path::new(FILE_NAME));
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let file = folder
            .root
            .open_with(&temporary, flags, FILE_MODE)
            .map_err(|error| unwritable(folder, "cannot be written anew", &error))?;
        let path = folder.root.path().join(&temporary);
        let log = Log { file, path, history: History::checking(), length: 0, synced: 0, broken: None };
        Ok(Self { folder, temporary, log })
    }

    /// Takes a record over with the very bytes it was read from. The inner error says which invariant it would break;
    /// then nothing is written.
    pub fn keep(&mut self, bytes: &[u8], record: &Record) -> anyhow::Result<Result<(), String>> {
        let end: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
        let before = self.log.history.offset();
        if let Err(violation) = self.log.history.apply(record) {
            return Ok(Err(violation));
        }
        debug_assert_eq!(before, self.log.length, "the history knows where the next record begins");
        self.log.history.skip((bytes.len() + end.len()) as u64);
        for bytes in [bytes, end] {
            let written = self.log.file.write_all(bytes);
            written.map_err(|error| unwritable(self.folder, "cannot be written anew", &error))?;
            self.log.length += bytes.len() as u64;
        }
        Ok(Ok(()))
    }

    pub fn history(&self) -> &History {
        &self.log.history
    }

    /// For what is to be appended before it takes its place.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Puts it in the log's place, durably.
    pub fn take_place(mut self) -> anyhow::Result<()> {
        self.log.barrier()?;
        let root = &self.folder.root;
        root.rename(&self.temporary, Path::new(FILE_NAME))
            .and_then(|()| root.sync())
            .map_err(|error| unwritable(self.folder, "cannot be put in place", &error))
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // In its place it no longer has this name; else what stays is recognised by its prefix and cleaned up later.
        let _ = self.folder.root.remove_file(&self.temporary);
    }
}
