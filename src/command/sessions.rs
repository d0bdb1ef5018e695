//! `attini sessions`: list, remove, copy and move whole sessions.

mod export;
mod import;
mod prune;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use super::status::state_of;
use crate::cli::{SessionsArguments, SessionsCommand};
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::{Rule, RulesFile};
use crate::report::line::{Line, Tone};
use crate::report::screen::Screen;
use crate::session::collection::{Collection, exists, files_below};
use crate::session::folder::SessionFolder;
use crate::session::lock::{Lock, Patience};
use crate::session::log::{self, Log};
use crate::session::pending::PendingFile;
use crate::session::{archive, fork};
use crate::turn::decisions::is_answered;
use crate::turn::resume::close_copy;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

pub fn run(invocation: &Invocation, arguments: &SessionsArguments) -> anyhow::Result<Status> {
    let fields = match &arguments.command {
        SessionsCommand::List => list(invocation)?,
        SessionsCommand::Rm { name, force } => remove(invocation, name, *force)?,
        SessionsCommand::Fork { name, new } => fork(invocation, name, new)?,
        SessionsCommand::Export { name, file } => export(invocation, name, file)?,
        SessionsCommand::Import { file, name, with_rules } => {
            import::run(invocation, file, name.as_deref(), *with_rules)?
        }
        SessionsCommand::Prune { older_than, dry_run } => prune::run(invocation, *older_than, *dry_run)?,
    };
    let fields = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    invocation.reporter.finish_command("sessions", Status::Completed, fields, None);
    Ok(Status::Completed)
}

/// What the list says of a session.
struct Listed {
    name: String,
    state: &'static str,
    /// Seconds since 1970.
    last_used: u64,
    turns: u64,
    size_bytes: u64,
}

fn collection(invocation: &Invocation) -> anyhow::Result<Option<Collection>> {
    Ok(invocation.state().sessions()?.map(|root| Collection { root }))
}

/// All sessions, the one used last first.
fn listed(invocation: &Invocation) -> anyhow::Result<Vec<Listed>> {
    let Some(collection) = collection(invocation)? else { return Ok(Vec::new()) };
    let names = collection.names().context("the sessions cannot be listed")?;
    let mut found: Vec<Listed> = names.into_iter().filter_map(|name| look(invocation, &collection, name)).collect();
    found.sort_by(|one, other| other.last_used.cmp(&one.last_used).then_with(|| one.name.cmp(&other.name)));
    Ok(found)
}

/// `None`: it went in the meantime. One that cannot be read is listed all the same.
fn look(invocation: &Invocation, collection: &Collection, name: String) -> Option<Listed> {
    let used = |file: &str| {
        let metadata = collection.root.metadata(&Path::new(&name).join(file)).ok()?;
        u64::try_from(metadata.st_mtime).ok()
    };
    let last_used = used(log::FILE_NAME)?.max(used(crate::session::pending::FILE_NAME).unwrap_or_default());
    let found = invocation.state().open(&name).and_then(|folder| match folder {
        Some(folder) => state_of(&folder),
        None => Ok(None),
    });
    let (state, turns) = match found {
        Ok(Some((state, history))) => (state, history.user_count()),
        Ok(None) => return None,
        Err(error) => (Failure::of(&error).status.name(), 0),
    };
    let files = files_below(&collection.root, Path::new(&name)).unwrap_or_default();
    let size_bytes = files.files.iter().map(|(_, size)| size).sum();
    Some(Listed { name, state, last_used, turns, size_bytes })
}

fn time(seconds: u64) -> String {
    let timestamp = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    timestamp.map_or_else(|| "unknown".to_owned(), |timestamp| timestamp.to_string())
}

fn list(invocation: &Invocation) -> anyhow::Result<Value> {
    let found = listed(invocation)?;
    let width = found.iter().map(|one| one.name.len()).max().unwrap_or_default();
    let lines: Vec<Line> = found
        .iter()
        .map(|one| {
            let turns = if one.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", one.turns) };
            let (name, state, used) = (&one.name, one.state, time(one.last_used));
            Line::plain(&format!("{name:width$}  {state:17}  {used}  {turns:>9}  {:>12} bytes", one.size_bytes))
        })
        .collect();
    invocation.reporter.print(&lines);
    let sessions: Vec<Value> = found
        .iter()
        .map(|one| {
            json!({
                "name": one.name,
                "state": one.state,
                "last_used": time(one.last_used),
                "turns": one.turns,
                "size_bytes": one.size_bytes,
            })
        })
        .collect();
    Ok(json!({ "sessions": sessions }))
}

/// The folder of a session that must exist.
fn existing(invocation: &Invocation, name: &str) -> anyhow::Result<SessionFolder> {
    let folder = invocation.state().open(name)?;
    folder.ok_or_else(|| {
        Failure::new(Status::NothingPending, format!("there is no session {name}"))
            .hint("`attini sessions list` lists those there are")
            .into()
    })
}

fn lock(invocation: &Invocation, folder: &SessionFolder) -> anyhow::Result<Lock> {
    Lock::take(folder, Patience::Short, &invocation.interrupt, |_| ())
}

/// A session that must exist, under its lock. One that was removed while it was waited for is none; another of its name
/// may have come since.
fn existing_locked(invocation: &Invocation, name: &str) -> anyhow::Result<(SessionFolder, Lock)> {
    loop {
        let folder = existing(invocation, name)?;
        let lock = lock(invocation, &folder);
        let is_there = collection(invocation)?.is_some_and(|collection| collection.still_holds(&folder));
        match lock {
            Ok(lock) if is_there => return Ok((folder, lock)),
            Err(error) if is_there => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
}

/// The log of a session whose lock is held, its tail mended.
fn whole_log(invocation: &Invocation, folder: &SessionFolder) -> anyhow::Result<Log> {
    let Some((log, warnings)) = Log::open(folder)? else {
        return Err(Failure::new(Status::NothingPending, format!("there is no session {}", folder.name)).into());
    };
    for warning in warnings {
        invocation.reporter.warning(&warning);
    }
    Ok(log)
}

fn remove(invocation: &Invocation, name: &str, force: bool) -> anyhow::Result<Value> {
    let (folder, lock) = existing_locked(invocation, name)?;
    if !force && waits(&folder) {
        return Err(Failure::conflict(format!("the session {name} waits for a decision"))
            .hint(format!("look at it with `attini -s {name} status`; --force removes it all the same"))
            .into());
    }
    if let Some(collection) = collection(invocation)? {
        collection.remove(name)?;
        forget_rules(invocation, &folder);
        prune::remove_leftovers(&collection);
    }
    drop(lock);
    invocation.reporter.print(&[Line::plain(&format!("removed the session {name}"))]);
    Ok(json!({ "removed": [name] }))
}

/// What a file of that path was trusted for is no longer there. A failure leaves a hash that fits no other file.
fn forget_rules(invocation: &Invocation, folder: &SessionFolder) {
    let path = RulesFile::session(folder).path();
    let _ = invocation.trust().and_then(|mut trust| trust.forget([path.as_path()]));
}

/// Whether calls wait for a person, or may: what cannot be read counts as such.
fn waits(folder: &SessionFolder) -> bool {
    match (PendingFile::load(folder), Log::read(folder)) {
        (Ok(None), _) => false,
        (Ok(Some(file)), Ok(Some(history))) => !is_answered(&file, &history),
        (Ok(Some(_)) | Err(_), _) => true,
    }
}

fn fork(invocation: &Invocation, name: &str, new: &str) -> anyhow::Result<Value> {
    let (from, _lock) = existing_locked(invocation, name)?;
    let source = whole_log(invocation, &from)?;
    drop(source);
    let collection = Collection { root: invocation.state().make_sessions()? };
    if collection.holds(new) {
        return Err(exists(new).into());
    }
    prune::remove_leftovers(&collection);
    let nascent = collection.begin(new, &invocation.interrupt)?;
    let left_out = fork::copy(&from, &nascent.folder)?;
    let pending = PendingFile::load(&from)?;
    let mut log = fork::open_log(&nascent.folder)?;
    let open: Vec<String> = log.history().open_calls().map(|(call, _)| call.id.clone()).collect();
    close_copy(&mut log, &nascent.folder, pending.as_ref(), &invocation.workspace, &invocation.reporter)?;
    log.barrier()?;
    copy_rules(invocation, &collection, &from, &nascent.folder)?;
    nascent.appear()?;
    warn_of_left_out(invocation, &left_out);
    invocation.reporter.print(&[Line::plain(&format!("the session {new} is a copy of {name}"))]);
    Ok(json!({"session": new, "forked_from": name, "cancelled": open}))
}

/// A pipe, a link or the like holds nothing that could be taken along.
fn warn_of_left_out(invocation: &Invocation, left_out: &[PathBuf]) {
    for path in left_out {
        invocation.reporter.warning(&format!("{} is no regular file; it is left out", path.display()));
    }
}

/// Copies the session's rules, but for those of a turn that does not go on; trusted ones stay so.
fn copy_rules(
    invocation: &Invocation,
    collection: &Collection,
    from: &SessionFolder,
    to: &SessionFolder,
) -> anyhow::Result<()> {
    let source = RulesFile::session(from);
    let Some(bytes) = source.read()? else { return Ok(()) };
    let mut trust = invocation.trust()?;
    let is_trusted = source.is_trusted(&trust, &bytes);
    let kept = lines_where(&bytes, |rule| rule.turn().is_none());
    if is_trusted {
        // The file gets its name, and so counts, behind this.
        let path = collection.root.path().join(&to.name).join(rules_name(&source));
        trust.record([(path.as_path(), kept.as_slice())])?;
    }
    fork::write_file(&to.root, Path::new(&rules_name(&source)), &mut kept.as_slice())
        .map_err(|error| Failure::persistence(format!("the rules cannot be copied: {error}")).into())
}

fn rules_name(file: &RulesFile<'_>) -> std::ffi::OsString {
    file.path().file_name().map(ToOwned::to_owned).unwrap_or_default()
}

/// The lines of a rules file without the rules that are not wanted.
fn lines_where(bytes: &[u8], wanted: impl Fn(&Rule) -> bool) -> Vec<u8> {
    let stays = |line: &&[u8]| {
        let rule = std::str::from_utf8(line).ok().and_then(|line| Rule::parse(line.trim()).ok());
        rule.is_none_or(|rule| wanted(&rule))
    };
    bytes.split_inclusive(|byte| *byte == b'\n').filter(stays).collect::<Vec<&[u8]>>().concat()
}

fn export(invocation: &Invocation, name: &str, file: &Path) -> anyhow::Result<Value> {
    let to_stdout = file == Path::new("-");
    if to_stdout && (!invocation.reporter.is_text() || std::io::stdout().is_terminal()) {
        let message = "an archive goes neither to a terminal nor into JSON";
        return Err(Failure::usage(message).hint("name a file in place of -").into());
    }
    let (folder, _lock) = existing_locked(invocation, name)?;
    drop(whole_log(invocation, &folder)?);
    if to_stdout {
        let screen = Screen::on_stdout();
        let packed = archive::pack(&folder, &mut screen.clone());
        screen.finish()?;
        if !screen.is_lost() {
            let left_out = packed.with_context(|| format!("the session {name} cannot be exported"))?;
            warn_of_left_out(invocation, &left_out);
        }
        return Ok(json!({ "session": name }));
    }
    let unwritable = |error: std::io::Error| {
        Failure::new(Status::Error, format!("the session {name} cannot be exported to {}: {error}", file.display()))
    };
    let left_out = export::write_whole(file, |stream| archive::pack(&folder, stream)).map_err(unwritable)?;
    warn_of_left_out(invocation, &left_out);
    let said = format!("the session {name} is in {}", file.display());
    invocation.reporter.print(&[Line::new(Tone::Plain, &said)]);
    Ok(json!({"session": name, "file": file.display().to_string()}))
}
