//! Every invariant of a session's files, checked over the whole log, with file and line for each violation.
//!
//! Nothing is changed here. Loading stops at the first fault that it cannot mend; this goes on and lists them all.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use anyhow::Context;

use super::folder::SessionFolder;
use super::history::{Entry, History};
use super::log::{FILE_NAME, LINE_BYTES_MAX};
use super::pending::{self, PendingFile};
use super::record::{Record, TurnStatus};
use crate::exit::Status;
use crate::failure::Failure;
use crate::turn::decisions;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// As messages name it.
    pub file: String,
    /// From 1; `None` where the file as a whole is at fault.
    pub line: Option<u64>,
    pub what: String,
}

/// All that there is to say about a session's files.
#[derive(Debug, Default)]
pub struct Findings {
    pub violations: Vec<Violation>,
    /// What an interrupted invocation may leave behind, and the next one puts in order.
    pub notes: Vec<String>,
}

/// Checks the log, then pending.json against it. `None`: the folder holds no session.
pub fn check_session(folder: &SessionFolder) -> anyhow::Result<Option<Findings>> {
    let mut findings = Findings::default();
    let Some(history) = check_log(folder, &mut findings.violations)? else { return Ok(None) };
    check_pending(folder, &history, &mut findings);
    Ok(Some(findings))
}

fn check_log(folder: &SessionFolder, violations: &mut Vec<Violation>) -> anyhow::Result<Option<History>> {
    let shown = folder.display(FILE_NAME);
    let file = match folder.root.open_file(Path::new(FILE_NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(folder.unopened(FILE_NAME, &error, |what| Failure::new(Status::Error, what)).into());
        }
    };
    let mut report = |line: Option<u64>, what: String| violations.push(Violation { file: shown.clone(), line, what });
    let mut reader = BufReader::new(file);
    let mut history = History::checking();
    let mut call_lines: Vec<(String, u64)> = Vec::new();
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.with_context(|| format!("{shown} cannot be read"))?;
        if read == 0 {
            break;
        }
        number += 1;
        let terminated = line.ends_with(b"\n");
        match Record::parse(&line) {
            Ok(record) => {
                if let Record::Assistant(assistant) = &record {
                    call_lines.extend(assistant.tool_calls.iter().map(|call| (call.id.clone(), number)));
                }
                if let Err(violation) = history.apply_line(&record, read as u64) {
                    report(Some(number), violation);
                }
            }
            Err(_) if !terminated => {
                report(
                    Some(number),
                    "the last record is a fragment; the next turn cuts it off and keeps it".to_owned(),
                );
            }
            Err(error) => {
                history.skip(read as u64);
                report(Some(number), format!("it is not a record: {error}"));
            }
        }
    }
    if number == 0 {
        report(None, "the file is empty".to_owned());
    }
    for (line, what) in open_too_long(&history, &call_lines) {
        report(Some(line), what);
    }
    Ok(Some(history))
}

/// Calls without a result that no running or suspended turn can still answer.
fn open_too_long(history: &History, call_lines: &[(String, u64)]) -> Vec<(u64, String)> {
    let over = history.turn_end().is_some_and(|end| matches!(end.status, TurnStatus::Completed | TurnStatus::Dropped));
    let latest = history.last_round().map(|round| (round.assistant.turn, round.assistant.round));
    let mut found = Vec::new();
    for entry in history.entries() {
        let Entry::Round(round) = entry else { continue };
        let is_latest = latest == Some((round.assistant.turn, round.assistant.round));
        if is_latest && !over {
            continue;
        }
        for (call, _) in round.open_calls() {
            let line = call_lines.iter().find(|(id, _)| *id == call.id).map_or(0, |(_, line)| *line);
            found.push((line, format!("the call {} has no `tool_result`; the next turn repairs it", call.id)));
        }
    }
    found
}

fn check_pending(folder: &SessionFolder, history: &History, findings: &mut Findings) {
    let shown = folder.display(pending::FILE_NAME);
    let mut report = |what: String| findings.violations.push(Violation { file: shown.clone(), line: None, what });
    match PendingFile::load(folder) {
        Ok(None) => {}
        Err(error) => report(format!("{error:#}")),
        // An interrupt between the last result and the next request leaves it so.
        Ok(Some(file)) if decisions::is_answered(&file, history) => {
            findings.notes.push(format!("{shown}: all its calls are answered; the next turn removes it"));
        }
        Ok(Some(file)) => {
            if let Err(misfit) = decisions::ensure_fits(&file, history) {
                report(misfit.message);
            }
        }
    }
}
