//! `attini show`: the conversation as it was shown live, as Markdown, or as its records.
//!
//! Takes no lock and changes nothing: it reads what is whole, also while a turn runs. The conversation is never held as a
//! whole, however long it is.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use crate::cli::ShowArguments;
use crate::exit::Status;
use crate::failure::Failure;
use crate::report::line::{Line, Tone};
use crate::report::markdown::Document;
use crate::report::replay::Replay;
use crate::report::screen::Screen;
use crate::session::folder::SessionFolder;
use crate::session::pending::PendingFile;
use crate::session::reading::{Part, Reader, Wanted};
use crate::session::record::Record;

pub fn run(invocation: &Invocation, arguments: &ShowArguments) -> anyhow::Result<Status> {
    if arguments.markdown && !invocation.reporter.is_text() {
        return Err(Failure::usage("--markdown goes with --output text alone").into());
    }
    let folder = invocation.folder()?;
    let opened = match &folder {
        Some(folder) => Reader::open(folder)?.map(|reader| (folder, reader)),
        None => None,
    };
    let Some((folder, mut reader)) = opened else {
        let message = format!("there is no session {}", invocation.session);
        return Err(Failure::new(Status::NothingPending, message)
            .hint("`attini sessions list` lists those there are")
            .into());
    };
    let wanted = match (arguments.turn, arguments.last) {
        (Some(turn), _) => Wanted::Turn(turn),
        (None, true) => Wanted::LastTurn,
        (None, false) => Wanted::All,
    };
    let part = reader.find(wanted)?;
    reader.go_to(part.from)?;
    let mut records = Records { reader, part };
    if !invocation.reporter.is_text() {
        return Ok(list(invocation, arguments, &mut records));
    }
    let screen = Screen::on_stdout();
    let shown = if arguments.json {
        print_records(&screen, &mut records)
    } else if arguments.markdown {
        print_document(invocation, &screen, &mut records)
    } else {
        replay(invocation, folder, &screen, &mut records)
    };
    // What came before a fault is shown all the same.
    screen.finish()?;
    shown?;
    invocation.reporter.finish_command("show", Status::Completed, Map::new(), None);
    Ok(Status::Completed)
}

/// The records of a part, one after the other.
struct Records {
    reader: Reader,
    part: Part,
}

impl Records {
    fn next(&mut self) -> anyhow::Result<Option<Record>> {
        let place = self.reader.place();
        if self.part.to.is_some_and(|to| place.offset >= to) {
            return Ok(None);
        }
        let record = self.reader.next_record()?;
        if record.is_none() && place.offset == 0 {
            return Err(self.reader.damaged("the file holds no whole record"));
        }
        Ok(record)
    }
}

fn replay(
    invocation: &Invocation,
    folder: &SessionFolder,
    screen: &Screen,
    records: &mut Records,
) -> anyhow::Result<()> {
    let mut replay = Replay::new(&invocation.reporter, screen, folder);
    let ended = loop {
        let here = records.reader.place();
        let record = match records.next() {
            Ok(Some(record)) if !screen.is_lost() => record,
            Ok(_) => break Ok(()),
            Err(error) => break Err(error),
        };
        if let Err(error) = replay.tell(&record, || records.reader.look_ahead(here)) {
            break Err(error);
        }
    };
    let pending = match replay.suspended_turn() {
        Some(turn) if ended.is_ok() => PendingFile::load(folder)
            .unwrap_or_else(|error| {
                let line = format!("warning: {error:#}");
                invocation.reporter.notice(&[Line::new(Tone::Warning, &line)]);
                None
            })
            .filter(|file| file.turn == turn),
        _ => None,
    };
    let views = pending.map(|file| file.views());
    replay.finish(views.as_deref(), &invocation.command_prefix);
    ended
}

fn print_document(invocation: &Invocation, screen: &Screen, records: &mut Records) -> anyhow::Result<()> {
    // A stream that is lost is told of, where it has to be, at the end.
    let Ok(mut document) = Document::begin(screen.clone(), &invocation.session) else { return Ok(()) };
    let ended = loop {
        match records.next() {
            Ok(Some(record)) => {
                if document.add(&record).is_err() {
                    return Ok(());
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let _ = document.finish();
    ended
}

/// The lines of the log as they stand there, but for masked keys.
fn print_records(screen: &Screen, records: &mut Records) -> anyhow::Result<()> {
    let mut stream = screen.clone();
    while records.next()?.is_some() {
        let line = String::from_utf8_lossy(records.reader.line());
        let masked = crate::mask::apply(&line);
        if writeln!(stream, "{masked}").is_err() {
            break;
        }
    }
    Ok(())
}

/// One object that holds the records.
fn list(invocation: &Invocation, arguments: &ShowArguments, records: &mut Records) -> Status {
    let mut fields = Map::new();
    fields.insert("session".to_owned(), json!(invocation.session));
    if arguments.turn.is_some() {
        fields.insert("turn".to_owned(), json!(arguments.turn));
    }
    let mut next = || -> anyhow::Result<Option<Value>> {
        if records.next()?.is_none() {
            return Ok(None);
        }
        let value = serde_json::from_slice(records.reader.line());
        value.map(Some).map_err(|error| records.reader.damaged(&format!("it cannot be listed: {error}")))
    };
    invocation.reporter.finish_command_with_list("show", fields, "records", &mut next)
}
