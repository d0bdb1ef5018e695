//! Every invariant of a session's files, checked over the whole log, with file and line for each violation.
//!
//! Nothing is changed here. Loading stops at the first fault that it cannot mend; this goes on and lists them all.

use std::collections::HashMap;
use std::io::{BufReader, ErrorKind};
use std::path::Path;

use anyhow::Context;

use super::folder::SessionFolder;
use super::history::History;
use super::log::FILE_NAME;
use super::log::lines::{Content, Lines};
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
    let Some(history) = check_log(folder, &mut findings)? else { return Ok(None) };
    check_pending(folder, &history, &mut findings);
    Ok(Some(findings))
}

fn check_log(folder: &SessionFolder, findings: &mut Findings) -> anyhow::Result<Option<History>> {
    let shown = folder.display(FILE_NAME);
    let file = match folder.root.open_file(Path::new(FILE_NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(folder.unopened(FILE_NAME, &error, |what| Failure::new(Status::Error, what)).into());
        }
    };
    let mut report = |line: Option<u64>, what: String| {
        findings.violations.push(Violation { file: shown.clone(), line, what });
    };
    let mut lines = Lines::new(BufReader::new(file));
    let mut history = History::checking();
    let mut call_lines: HashMap<String, u64> = HashMap::new();
    let mut unterminated = None;
    let mut number = 0;
    while let Some(line) = lines.read_next().with_context(|| format!("{shown} cannot be read"))? {
        number = line.number;
        let bytes = line.bytes.len() as u64;
        let before = history.offset();
        match line.content {
            Content::Record(record) => {
                if !line.is_terminated {
                    unterminated = Some(number);
                }
                if let Err(violation) = history.apply_line(&record, bytes) {
                    report(Some(number), violation);
                } else if let Record::Assistant(assistant) = *record {
                    call_lines.extend(assistant.tool_calls.into_iter().map(|call| (call.id, number)));
                }
            }
            Content::Fragment => {
                report(
                    Some(number),
                    "the last record is a fragment; the next turn cuts it off and keeps it".to_owned(),
                );
            }
            Content::Blank => report(Some(number), "it is not a record: the line is blank".to_owned()),
            Content::Unreadable(why) => report(Some(number), why),
        }
        // What was no record has its place in the file all the same.
        history.skip((before + bytes).saturating_sub(history.offset()));
        if history.session().is_none() {
            // Without knowing what the log is, nothing behind says anything.
            break;
        }
    }
    if number == 0 {
        report(None, "the file is empty".to_owned());
    }
    for id in overdue_calls(&history) {
        let what = format!("the call {id} has no `tool_result`; the next turn repairs it");
        report(call_lines.get(&id).copied(), what);
    }
    if let Some(number) = unterminated {
        findings.notes.push(format!("{shown}:{number}: the last record has no newline; the next turn adds it"));
    }
    Ok(Some(history))
}

/// The calls without a result that no running or suspended turn can still answer, in the order written.
pub(super) fn overdue_calls(history: &History) -> Vec<String> {
    let over = history.turn_end().is_some_and(|end| matches!(end.status, TurnStatus::Completed | TurnStatus::Dropped));
    let latest = history.last_round().filter(|_| !over).map(|round| (round.assistant.turn, round.assistant.round));
    let rounds = history.rounds().filter(|round| Some((round.assistant.turn, round.assistant.round)) != latest);
    rounds.flat_map(|round| round.open_calls().map(|(call, _)| call.id.clone())).collect()
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
