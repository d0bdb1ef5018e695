//! `attini check`: every invariant of the session's files.

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use crate::exit::Status;
use crate::failure::Failure;
use crate::report::line::{Line, Tone};
use crate::session::check::{Findings, Violation, check_session};

pub fn run(invocation: &Invocation) -> anyhow::Result<Status> {
    let findings = match invocation.folder()? {
        Some(folder) => check_session(&folder)?,
        None => None,
    };
    let Some(Findings { violations, notes }) = findings else {
        let message = format!("there is no session {}", invocation.session);
        return Err(Failure::new(Status::NothingPending, message).into());
    };
    let mut lines: Vec<Line> = violations.iter().map(|violation| Line::plain(&describe(violation))).collect();
    lines.extend(notes.iter().map(|note| Line::new(Tone::Dim, &format!("note: {note}"))));
    invocation.reporter.print(&lines);
    let listed: Vec<Value> = violations
        .iter()
        .map(|violation| json!({"file": violation.file, "line": violation.line, "message": violation.what}))
        .collect();
    let mut fields = Map::new();
    fields.insert("session".to_owned(), json!(invocation.session));
    fields.insert("violations".to_owned(), json!(listed));
    fields.insert("notes".to_owned(), json!(notes));
    if violations.is_empty() {
        invocation.reporter.print(&[Line::new(Tone::Dim, &format!("session {}: no violation", invocation.session))]);
        invocation.reporter.finish_command("check", Status::Completed, fields, None);
        return Ok(Status::Completed);
    }
    let failure = Failure::corrupt(match violations.len() {
        1 => "1 invariant is broken".to_owned(),
        number => format!("{number} invariants are broken"),
    });
    invocation.reporter.finish_command("check", Status::Corrupt, fields, Some(&failure));
    Ok(Status::Corrupt)
}

fn describe(violation: &Violation) -> String {
    match violation.line {
        Some(line) => format!("{}:{line}: {}", violation.file, violation.what),
        None => format!("{}: {}", violation.file, violation.what),
    }
}
