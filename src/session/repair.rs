//! `attini check --repair`: brings a session's files into order without losing what they tell.
//!
//! Either everything is mended or nothing is changed. The log is written anew beside the old one, with its lines as
//! they were but for those that say nothing or say it twice, and with a result for each call that would never get one;
//! then it takes the old one's place. Whatever is changed is kept beside, byte for byte.

mod answers;
mod screening;

use std::io::{BufReader, ErrorKind};
use std::path::Path;

use self::screening::Screening;
use super::check::Violation;
use super::folder::{FILE_MODE, SessionFolder};
use super::history::History;
use super::log::draft::Draft;
use super::log::{self, unwritable};
use super::pending::{self, FILE_BYTES_MAX, PendingFile, Unusable};
use crate::clock;
use crate::failure::Failure;
use crate::turn::decisions;
use crate::workspace::Workspace;

/// Something that was mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// As messages name it.
    pub file: String,
    /// In the file as it was; `None` where it is about the file as a whole.
    pub line: Option<u64>,
    pub what: String,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Repair {
    /// In what order the files were mended; nothing where something cannot be mended.
    pub deeds: Vec<Deed>,
    /// The files that hold what was there before, as messages name them.
    pub kept: Vec<String>,
    /// What cannot be mended. Then nothing was changed.
    pub unmendable: Vec<Violation>,
}

/// What is to be done with pending.json.
#[derive(Debug)]
enum Pending {
    Absent,
    /// It fits; its calls keep waiting.
    Fits(PendingFile),
    /// All its calls have their results: it is of no use any more.
    Stale,
    /// It is of no use, for the reason given, and its calls are dropped. What a person denied in it is heeded as far as
    /// it can be read.
    Misfit(Option<PendingFile>, String),
}

/// Mends a session's files, under its lock. `None`: the folder holds no session.
pub fn repair_session(folder: &SessionFolder, workspace: &Workspace) -> anyhow::Result<Option<Repair>> {
    let shown = folder.display(log::FILE_NAME);
    let open = || folder.root.open_file(Path::new(log::FILE_NAME));
    let file = match open() {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(folder.unopened(log::FILE_NAME, &error, Failure::persistence).into());
        }
    };
    if file.metadata()?.len() == 0 {
        return set_empty_aside(folder).map(Some);
    }
    let mut draft = Draft::new(folder)?;
    let mut screening = Screening::of(BufReader::new(file), &shown, &mut draft)?;
    let mut unmendable = std::mem::take(&mut screening.unmendable);
    let pending = judge_pending(folder, draft.history(), &mut unmendable)?;
    let mut answered = Vec::new();
    if unmendable.is_empty() {
        answered = answers::add(&mut draft, folder, &screening, &pending, workspace)?;
        screening.place_notices(&mut draft)?;
        unmendable = std::mem::take(&mut screening.unmendable);
    }
    if !unmendable.is_empty() {
        unmendable.sort_by_key(|violation| violation.line);
        return Ok(Some(Repair { unmendable, ..Repair::default() }));
    }
    let mut repair = Repair { deeds: screening.deeds, ..Repair::default() };
    repair.deeds.sort_by_key(|deed| deed.line);
    repair.deeds.extend(answered);
    // The last waiting call may have got its result just now.
    let useless = match pending {
        Pending::Fits(file) if !decisions::is_answered(&file, draft.history()) => None,
        Pending::Absent => None,
        Pending::Fits(_) | Pending::Stale => Some("all its calls are answered".to_owned()),
        Pending::Misfit(_, why) => Some(why),
    };
    if !repair.deeds.is_empty() {
        repair.kept.push(keep_copy(folder, open)?);
        draft.take_place()?;
    }
    if let Some(why) = useless {
        let kept = set_aside(folder, pending::FILE_NAME)?;
        repair.deeds.push(Deed {
            file: folder.display(pending::FILE_NAME),
            line: None,
            what: format!("{why}; it is set aside"),
        });
        repair.kept.push(kept);
    }
    Ok(Some(repair))
}

/// An empty log tells of nothing, and neither does what would add to it. Without it the folder is no session.
fn set_empty_aside(folder: &SessionFolder) -> anyhow::Result<Repair> {
    let mut repair = Repair::default();
    // Last goes what makes it a session, so that the next invocation does not start one beside the old pending.json.
    for (name, what) in [
        (pending::FILE_NAME, "it adds to a conversation that is empty; it is set aside"),
        (log::FILE_NAME, "the file is empty; it is set aside, and the next prompt starts the session anew"),
    ] {
        if !exists(folder, name) {
            continue;
        }
        repair.kept.push(set_aside(folder, name)?);
        repair.deeds.push(Deed { file: folder.display(name), line: None, what: what.to_owned() });
    }
    Ok(repair)
}

fn judge_pending(
    folder: &SessionFolder,
    history: &History,
    unmendable: &mut Vec<Violation>,
) -> anyhow::Result<Pending> {
    let bytes = match folder.root.read(Path::new(pending::FILE_NAME), FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Pending::Absent),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            return Ok(Pending::Misfit(None, error.to_string()));
        }
        Err(error) => return Err(folder.unopened(pending::FILE_NAME, &error, Failure::persistence).into()),
    };
    Ok(match PendingFile::parse(&bytes) {
        Ok(file) if decisions::is_answered(&file, history) => Pending::Stale,
        Ok(file) => match decisions::ensure_fits(&file, history) {
            Ok(()) => Pending::Fits(file),
            Err(misfit) => Pending::Misfit(Some(file), misfit.message),
        },
        Err(Unusable::Broken(why)) => Pending::Misfit(None, why),
        Err(newer @ Unusable::Newer { .. }) => {
            let file = folder.display(pending::FILE_NAME);
            unmendable.push(Violation { file, line: None, what: newer.to_string() });
            Pending::Absent
        }
    })
}

fn exists(folder: &SessionFolder, name: &str) -> bool {
    folder.root.metadata(Path::new(name)).is_ok()
}

/// A name beside the file that says what lies under it, and is free.
fn name_aside(folder: &SessionFolder, name: &str) -> String {
    let aside = format!("{name}.before-repair-{}", clock::now_for_file_names());
    let numbered = (2_u32..).map(|number| format!("{aside}-{number}"));
    let mut names = std::iter::once(aside.clone()).chain(numbered);
    names.find(|name| !exists(folder, name)).unwrap_or(aside)
}

/// Gives a file another name; nothing of it is touched.
fn set_aside(folder: &SessionFolder, name: &str) -> anyhow::Result<String> {
    let aside = name_aside(folder, name);
    folder
        .root
        .rename(Path::new(name), Path::new(&aside))
        .and_then(|()| folder.root.sync())
        .map_err(|error| Failure::persistence(format!("{} cannot be set aside: {error}", folder.display(name))))?;
    Ok(folder.display(&aside))
}

/// Copies the log as it is, durably.
fn keep_copy(folder: &SessionFolder, open: impl FnOnce() -> std::io::Result<std::fs::File>) -> anyhow::Result<String> {
    let aside = name_aside(folder, log::FILE_NAME);
    let temporary = crate::workspace::root::temporary_beside(Path::new(log::FILE_NAME));
    let copied = (|| {
        let mut copy = folder.root.create_new(&temporary, FILE_MODE)?;
        std::io::copy(&mut open()?, &mut copy)?;
        copy.sync_all()?;
        folder.root.rename(&temporary, Path::new(&aside))?;
        folder.root.sync()
    })();
    if let Err(error) = copied {
        // The first error is the one to tell; a left-over is recognised by its prefix.
        let _ = folder.root.remove_file(&temporary);
        return Err(unwritable(folder, "cannot be kept beside", &error));
    }
    Ok(folder.display(&aside))
}

#[cfg(test)]
mod tests;
