//! The session's lock: one invocation at a time changes a session.
//!
//! The lock is the kernel's, on the file `lock` itself, so that it ends with its holder however that dies. The file is
//! never renamed nor removed while the session lives. What it holds (host and process) is for messages alone.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::{Cause, Interrupt};
use crate::session::folder::{FILE_MODE, SessionFolder};

pub const FILE_NAME: &str = "lock";

/// How long a taker tries before it gives up; a reader's shared try is over long before.
const PATIENCE: Duration = Duration::from_millis(200);
const RETRY_EVERY: Duration = Duration::from_millis(20);
const HOLDER_BYTES_MAX: u64 = 1024;

/// Held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// How long to wait for another invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Short,
    /// `--wait=SECONDS`.
    For(Duration),
    /// `--wait`.
    Forever,
}

impl Lock {
    /// Takes the lock, or fails with [`Status::Locked`]. `waiting` is told once whom it waits for.
    pub fn take(
        folder: &SessionFolder,
        patience: Patience,
        interrupt: &Interrupt,
        waiting: impl FnOnce(&str),
    ) -> anyhow::Result<Self> {
        let mut file = folder
            .root
            .open_with(Path::new(FILE_NAME), OFlags::RDWR | OFlags::CREATE, FILE_MODE)
            .map_err(|error| folder.unopened(FILE_NAME, &error, Failure::persistence))?;
        let since = Instant::now();
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => continue,
                Err(TryLockError::Error(error)) => {
                    let message = format!("{} cannot be locked: {error}", folder.display(FILE_NAME));
                    return Err(Failure::persistence(message).into());
                }
            }
            let limit = match patience {
                Patience::Short => PATIENCE,
                Patience::For(time) => time.max(PATIENCE),
                Patience::Forever => Duration::MAX,
            };
            if since.elapsed() >= limit {
                return Err(locked(folder, &holder(&mut file)).into());
            }
            if patience != Patience::Short
                && since.elapsed() >= PATIENCE
                && let Some(waiting) = waiting.take()
            {
                waiting(&holder(&mut file));
            }
            if interrupt.wait(RETRY_EVERY) {
                return Err(interrupted(interrupt).into());
            }
        }
        write_holder(&mut file);
        Ok(Self { _file: file })
    }

    /// Who holds the lock, if anyone does. Takes it away from nobody: a taker tries for longer than this shared try
    /// lasts.
    pub fn holder(folder: &SessionFolder) -> Option<String> {
        let mut file = folder.root.open_file(Path::new(FILE_NAME)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(holder(&mut file)),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(HOLDER_BYTES_MAX).read_to_string(&mut text));
    match (read, text.lines().next()) {
        (Ok(_), Some(line)) if !line.trim().is_empty() => line.to_owned(),
        _ => "another invocation".to_owned(),
    }
}

/// Best effort: a full disk must not keep anyone from the lock, and nothing but messages depends on it.
fn write_holder(file: &mut File) {
    let host = rustix::system::uname();
    let text = format!("process {} on {}\n", std::process::id(), host.nodename().to_string_lossy());
    let _ = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).and_then(|_| file.write_all(text.as_bytes()));
}

fn locked(folder: &SessionFolder, holder: &str) -> Failure {
    Failure::new(Status::Locked, format!("the session {} is held by {holder}", folder.name))
        .hint("wait for it with --wait, or use another session with -s NAME")
        .retryable(true)
}

fn interrupted(interrupt: &Interrupt) -> Failure {
    let status = match interrupt.cause() {
        Some(Cause::Signal(signal)) => Status::Interrupted(signal),
        Some(Cause::TimeLimit | Cause::Cancelled) | None => Status::LimitReached,
    };
    Failure::new(status, "interrupted while waiting for the session's lock").retryable(true)
}

#[cfg(test)]
mod tests;
