//! A copy of a session under another name, with an id of its own. Nothing waits in it, and no task belongs to it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::collection::files_below;
use super::folder::{FILE_MODE, FOLDER_MODE, SessionFolder};
use super::log::{self, Log};
use crate::failure::Failure;
use crate::workspace::root::Root;

/// What is copied besides the conversation and the rules: what records name, and the model's own notes.
pub const COPIED_FOLDERS: [&str; 3] = ["outputs", "before", "scratchpad"];

/// How the line of a `summary` record begins.
const SUMMARY: &[u8] = b"{\"type\":\"summary\"";

/// The longest `session` record; it holds an id and a version.
const SESSION_RECORD_BYTES_MAX: u64 = 1024 * 1024;

/// Copies everything but pending.json, tasks, rules and the lock. Both locks are held, and the log's tail is whole.
/// Returns what is no file and was left out.
pub fn copy(from: &SessionFolder, to: &SessionFolder) -> anyhow::Result<Vec<PathBuf>> {
    copy_log(from, to).map_err(|error| failed(to, log::FILE_NAME, &error))?;
    let mut left_out = Vec::new();
    for folder in COPIED_FOLDERS {
        let copied = copy_folder(&from.root, &to.root, Path::new(folder));
        left_out.extend(copied.map_err(|error| failed(to, folder, &error))?);
    }
    Ok(left_out)
}

/// The copied log, for what is to be added to it.
pub fn open_log(folder: &SessionFolder) -> anyhow::Result<Log> {
    match Log::open(folder)? {
        Some((log, _)) => Ok(log),
        None => Err(Failure::persistence(format!("{} vanished", folder.display(log::FILE_NAME))).into()),
    }
}

fn failed(folder: &SessionFolder, file: &str, error: &io::Error) -> anyhow::Error {
    Failure::persistence(format!("{} cannot be made: {error}", folder.display(file))).into()
}

fn copy_log(from: &SessionFolder, to: &SessionFolder) -> io::Result<()> {
    let mut reader = BufReader::new(from.root.open_file(Path::new(log::FILE_NAME))?);
    let mut first = Vec::new();
    (&mut reader).take(SESSION_RECORD_BYTES_MAX).read_until(b'\n', &mut first)?;
    let mut session: Map<String, Value> = serde_json::from_slice(&first)?;
    let forked_from = session.insert("id".to_owned(), json!(super::new_id()));
    session.insert("at".to_owned(), json!(crate::clock::now()));
    session.insert("forked_from".to_owned(), json!(forked_from));
    let mut file = to.root.create_new(Path::new(log::FILE_NAME), FILE_MODE)?;
    let head = format!("{}\n", Value::Object(session));
    file.write_all(head.as_bytes())?;
    let (mut read, mut written) = (first.len() as u64, head.len() as u64);
    // Where records moved, and how far: a summary names the place of a record.
    let mut moved = vec![(read, written)];
    let mut line = Vec::new();
    while {
        line.clear();
        (&mut reader).take(log::LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0
    } {
        read += line.len() as u64;
        if line.starts_with(SUMMARY) {
            line = with_place_moved(&line, &moved).unwrap_or(line);
        }
        file.write_all(&line)?;
        written += line.len() as u64;
        if moved.last().is_none_or(|(before, after)| after.wrapping_sub(*before) != written.wrapping_sub(read)) {
            moved.push((read, written));
        }
    }
    file.sync_all()
}

/// The line of a summary whose place is that of the same record in the copy.
fn with_place_moved(line: &[u8], moved: &[(u64, u64)]) -> Option<Vec<u8>> {
    let mut summary: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let place = summary.get("through_offset")?.as_u64()?;
    let (before, after) = moved.iter().rev().find(|(before, _)| *before <= place)?;
    summary.insert("through_offset".to_owned(), json!(place - before + after));
    Some(format!("{}\n", Value::Object(summary)).into_bytes())
}

fn copy_folder(from: &Root, to: &Root, folder: &Path) -> io::Result<Vec<PathBuf>> {
    if from.metadata(folder).is_err() {
        return Ok(Vec::new());
    }
    to.make_folders(folder, FOLDER_MODE)?;
    let below = files_below(from, folder)?;
    for (path, _) in below.files {
        let parent = path.parent().unwrap_or(folder);
        to.make_folders(parent, FOLDER_MODE)?;
        write_file(to, &path, &mut from.open_file(&path)?)?;
    }
    Ok(below.others)
}

/// Makes a file that must not exist yet; it is synced when its session gets its name.
pub fn write_file(root: &Root, path: &Path, content: &mut dyn Read) -> io::Result<()> {
    let mut file: File = root.create_new(path, FILE_MODE)?;
    io::copy(content, &mut file)?;
    Ok(())
}
