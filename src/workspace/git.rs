//! What git can give back: files whose very bytes the index holds.
//!
//! One `git ls-files` for all files of a question, with hooks and fsmonitor off and no lock taken. The bytes are hashed
//! here and as they are, so that no filter of a repository's config ever runs; where a filter made the working file
//! differ from the blob, git cannot give these bytes back.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sha1::Digest;

use super::{Workspace, git_top_level, program};

/// How long git may take for one question.
const GIT_SECONDS_MAX: u64 = 10;
/// The most that is read of git's answer.
const GIT_OUTPUT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The most that is read of what git complains of.
const GIT_ERROR_BYTES_MAX: u64 = 4096;
/// How much of a command line is filled with paths; the rest is asked by another call.
const ARGUMENT_BYTES_MAX: usize = 64 * 1024;

/// A file whose bytes may be had back.
pub struct Candidate<'a> {
    /// Relative to the workspace, without `.` and `..`.
    pub path: &'a Path,
    pub bytes: &'a [u8],
}

/// For each file, in order: why git can give its present bytes back, or why it cannot. Tracked is not enough: the
/// bytes must equal the blob in the index. `withheld` names variables that git must not get.
pub fn gives_back(workspace: &Path, files: &[Candidate<'_>], withheld: &[String]) -> Vec<Result<String, String>> {
    let paths: Vec<&Path> = files.iter().map(|file| file.path).collect();
    let index = match index_of(workspace, &paths, withheld) {
        Ok(index) => index,
        Err(reason) => return files.iter().map(|_| Err(reason.clone())).collect(),
    };
    let judged = files.iter().map(|file| judge(index.get(file.path).map(Vec::as_slice), file.bytes));
    let mut answers: Vec<Result<String, String>> = judged.collect();
    let blobs: Vec<&str> = files
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| answer.is_ok())
        .filter_map(|(file, _)| Some(index.get(file.path)?.first()?.blob.as_str()))
        .collect();
    let kept = kept_blobs(workspace, &blobs, withheld);
    for (file, answer) in files.iter().zip(&mut answers).filter(|(_, answer)| answer.is_ok()) {
        let blob = index.get(file.path).and_then(|entries| entries.first()).map(|entry| entry.blob.as_str());
        match &kept {
            Ok(kept) if blob.is_some_and(|blob| kept.get(blob) == Some(&file.bytes.len())) => {}
            Ok(_) => *answer = Err("git's index names these bytes, and git has lost them".to_owned()),
            Err(reason) => *answer = Err(reason.clone()),
        }
    }
    answers
}

/// Those of the blobs that git really has, with their sizes in bytes.
fn kept_blobs(workspace: &Path, blobs: &[&str], withheld: &[String]) -> Result<BTreeMap<String, usize>, String> {
    if blobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let deadline = Instant::now() + Duration::from_secs(GIT_SECONDS_MAX);
    let command = command(workspace, withheld).map(|mut command| {
        command.args(["--no-replace-objects", "cat-file", "--batch-check"]).stdin(Stdio::piped());
        command
    });
    let output = ask(command, format!("{}\n", blobs.join("\n")), deadline)?;
    let lines = String::from_utf8_lossy(&output);
    let kept = lines.lines().filter_map(|line| {
        let (blob, rest) = line.split_once(' ')?;
        Some((blob.to_owned(), rest.strip_prefix("blob ")?.parse().ok()?))
    });
    Ok(kept.collect())
}

/// One line of `git ls-files -s -v`.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    tag: u8,
    mode: String,
    blob: String,
    stage: String,
}

fn judge(entries: Option<&[Entry]>, bytes: &[u8]) -> Result<String, String> {
    let entry = match entries {
        None | Some([]) => return Err("it is not tracked by git".to_owned()),
        Some([entry]) if entry.stage == "0" => entry,
        Some(_) => return Err("it has an unresolved merge conflict in git".to_owned()),
    };
    match entry.mode.as_str() {
        "100644" | "100755" => {}
        "120000" => return Err("git has a link in its place".to_owned()),
        "160000" => return Err("git has a submodule in its place".to_owned()),
        mode => return Err(format!("git has something of mode {mode} in its place")),
    }
    match entry.tag {
        b'H' => {}
        b'S' => return Err("git is told to leave it alone (skip-worktree)".to_owned()),
        b'h' => return Err("git is told to take it for unchanged (assume-unchanged)".to_owned()),
        _ => return Err("git does not have it as an ordinary tracked file".to_owned()),
    }
    match blob_name(bytes, entry.blob.len()) {
        Some(name) if name == entry.blob => Ok("git has these bytes".to_owned()),
        Some(_) => Err("its bytes differ from those in git's index".to_owned()),
        None => Err("git names its objects in an unknown way".to_owned()),
    }
}

/// The name git gives to a blob with these bytes; the repository's object format is told by the length of its names.
fn blob_name(bytes: &[u8], hex_digits: usize) -> Option<String> {
    let header = format!("blob {}\0", bytes.len());
    match hex_digits {
        40 => Some(hex(&sha1::Sha1::new().chain_update(header).chain_update(bytes).finalize())),
        64 => Some(hex(&sha2::Sha256::new().chain_update(header).chain_update(bytes).finalize())),
        _ => None,
    }
}

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn index_of(workspace: &Path, paths: &[&Path], withheld: &[String]) -> Result<BTreeMap<PathBuf, Vec<Entry>>, String> {
    let deadline = Instant::now() + Duration::from_secs(GIT_SECONDS_MAX);
    let mut index: BTreeMap<PathBuf, Vec<Entry>> = BTreeMap::new();
    let mut left = paths;
    while !left.is_empty() {
        let mut bytes = 0;
        let count = left
            .iter()
            .take_while(|path| {
                bytes += path.as_os_str().len() + 1;
                bytes <= ARGUMENT_BYTES_MAX
            })
            .count()
            .max(1);
        let (now, later) = left.split_at(count);
        left = later;
        for (path, entry) in parse(&answer(git(workspace, now, withheld), deadline)?)? {
            index.entry(path).or_default().push(entry);
        }
    }
    Ok(index)
}

/// Whether the index holds anything at or below `relative`. Outside git, and where git gives no answer, it does not.
pub fn tracks_below(workspace: &Workspace, relative: &Path) -> bool {
    if git_top_level(workspace.root.path()).is_none() {
        return false;
    }
    let deadline = Instant::now() + Duration::from_secs(GIT_SECONDS_MAX);
    answer(git(workspace.root.path(), &[relative], &[]), deadline).is_ok_and(|listed| !listed.is_empty())
}

/// Git as the system has it, never a program of that name in the current folder; `None`: there is none.
pub fn program() -> Option<Command> {
    let path = program::absolute_path();
    let mut command = Command::new(program::find("git", &path)?);
    command.env("PATH", path);
    Some(command)
}

fn git(workspace: &Path, paths: &[&Path], withheld: &[String]) -> Option<Command> {
    let mut command = command(workspace, withheld)?;
    command.args(["--literal-pathspecs", "ls-files", "-s", "-v", "-z", "--"]).args(paths);
    Some(command)
}

/// Git with nothing of its own running besides, before its subcommand.
fn command(workspace: &Path, withheld: &[String]) -> Option<Command> {
    let mut command = program()?;
    command
        .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit"])
        .current_dir(workspace);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    for name in withheld {
        command.env_remove(name);
    }
    command
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    Some(command)
}

/// What git prints, or why there is no answer, as a reason for a preview.
fn answer(command: Option<Command>, deadline: Instant) -> Result<Vec<u8>, String> {
    ask(command, String::new(), deadline)
}

/// The same; `input` is what git reads, where it was given a pipe to read from.
fn ask(command: Option<Command>, input: String, deadline: Instant) -> Result<Vec<u8>, String> {
    let Some(mut command) = command else { return Err("there is no git program to ask".to_owned()) };
    let mut child = command.spawn().map_err(|error| format!("git could not be started: {error}"))?;
    if let Some(mut pipe) = child.stdin.take() {
        // Aside, because git answers while it reads. If it stops reading, its answer tells.
        std::thread::spawn(move || pipe.write_all(input.as_bytes()));
    }
    let outcome = collect(&mut child, deadline);
    if outcome.is_err() {
        stop(&mut child);
    }
    let (output, complaint, success) = outcome?;
    if success {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&complaint);
    if complaint.contains("not a git repository") {
        return Err("the workspace is not in a git repository".to_owned());
    }
    let first = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("git could not tell: {first}"))
}

fn collect(child: &mut Child, deadline: Instant) -> Result<(Vec<u8>, Vec<u8>, bool), String> {
    let late = || format!("git did not answer within {GIT_SECONDS_MAX} s");
    let output = child.stdout.take().map(|pipe| read_aside(pipe, GIT_OUTPUT_BYTES_MAX));
    let complaint = child.stderr.take().map(|pipe| read_aside(pipe, GIT_ERROR_BYTES_MAX));
    let mut both = Vec::new();
    for pipe in [output, complaint] {
        let Some(pipe) = pipe else { return Err("git's output could not be had".to_owned()) };
        let left = deadline.saturating_duration_since(Instant::now());
        let bytes = pipe.recv_timeout(left).map_err(|_| late())?;
        both.push(bytes.map_err(|error| format!("git's answer could not be read: {error}"))?);
    }
    let complaint = both.pop().unwrap_or_default();
    let output = both.pop().unwrap_or_default();
    if output.len() as u64 > GIT_OUTPUT_BYTES_MAX {
        return Err("git's answer is too long".to_owned());
    }
    // Both pipes are closed, so it is ending; it is asked again only if it takes its time.
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok((output, complaint, status.success())),
            Ok(None) if Instant::now() >= deadline => return Err(late()),
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(format!("git could not be waited for: {error}")),
        }
    }
}

type Collected = std::io::Result<Vec<u8>>;

/// Reads a pipe to its end in a thread of its own, keeping one byte more than `bytes_max` at most.
fn read_aside(mut pipe: impl Read + Send + 'static, bytes_max: u64) -> mpsc::Receiver<Collected> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = (&mut pipe).take(bytes_max + 1).read_to_end(&mut bytes);
        // The rest is drained, so that git does not stand still at a full pipe.
        let drained = read.and_then(|_| std::io::copy(&mut pipe, &mut std::io::sink()));
        // Nobody listens any more after the time limit.
        let _ = sender.send(drained.map(|_| bytes));
    });
    receiver
}

fn stop(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended by itself just now.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

fn parse(output: &[u8]) -> Result<Vec<(PathBuf, Entry)>, String> {
    let records = output.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    let parsed = records.map(parse_record).collect::<Option<Vec<_>>>();
    parsed.ok_or_else(|| "git's answer is not understood".to_owned())
}

/// `H 100644 NAME 0<TAB>PATH`
fn parse_record(record: &[u8]) -> Option<(PathBuf, Entry)> {
    let tab = record.iter().position(|byte| *byte == b'\t')?;
    let path = PathBuf::from(OsStr::from_bytes(&record[tab + 1..]));
    let mut words = std::str::from_utf8(&record[..tab]).ok()?.split(' ');
    let tag = words.next()?.bytes().next()?;
    let mut word = || words.next().map(str::to_owned);
    let entry = Entry { tag, mode: word()?, blob: word()?, stage: word()? };
    words.next().is_none().then_some((path, entry))
}

#[cfg(test)]
mod tests;
