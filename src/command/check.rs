//! `attini check`: every invariant of the session's files, and `--repair`, which mends what is broken.

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use crate::cli::CheckArguments;
use crate::exit::Status;
use crate::failure::Failure;
use crate::report::line::{Line, Tone};
use crate::session::check::{Findings, Violation, check_session};
use crate::session::folder::SessionFolder;
use crate::session::lock::{Lock, Patience};
use crate::session::log::Log;
use crate::session::repair::{Repair, repair_session};

pub fn run(invocation: &Invocation, arguments: &CheckArguments) -> anyhow::Result<Status> {
    let Some(folder) = invocation.folder()? else { return Err(no_session(invocation).into()) };
    if arguments.repair {
        return repair(invocation, &folder);
    }
    let Some(findings) = check_session(&folder)? else { return Err(no_session(invocation).into()) };
    print_findings(invocation, &findings);
    let fields = fields(invocation, &findings);
    if findings.violations.is_empty() {
        invocation.reporter.print(&[Line::new(Tone::Dim, &format!("session {}: no violation", invocation.session))]);
        invocation.reporter.finish_command("check", Status::Completed, fields, None);
        return Ok(Status::Completed);
    }
    let failure = broken(&findings).hint(format!("try `{} check --repair`", invocation.command_prefix));
    invocation.reporter.finish_command("check", Status::Corrupt, fields, Some(&failure));
    Ok(Status::Corrupt)
}

fn repair(invocation: &Invocation, folder: &SessionFolder) -> anyhow::Result<Status> {
    // Taking the lock would leave its file where there is no session.
    if !Log::exists(folder)? {
        return Err(no_session(invocation).into());
    }
    let lock = Lock::take(folder, Patience::Short, &invocation.interrupt, |_| {})?;
    folder
        .clean()
        .map_err(|error| Failure::persistence(format!("{} cannot be cleaned up: {error}", folder.display(""))))?;
    let Some(found) = check_session(folder)? else { return Err(no_session(invocation).into()) };
    let Some(repair) = repair_session(folder, &invocation.workspace)? else {
        return Err(no_session(invocation).into());
    };
    // Whether all is well now is for the check to say.
    let left = check_session(folder)?.unwrap_or_default();
    drop(lock);
    let mut fields = fields(invocation, &found);
    let list = |violations: &[Violation]| violations.iter().map(object).collect::<Vec<Value>>();
    let deeds = repair.deeds.iter().map(|deed| json!({"file": deed.file, "line": deed.line, "message": deed.what}));
    fields.insert("repairs".to_owned(), deeds.collect());
    fields.insert("kept".to_owned(), json!(repair.kept));
    fields.insert("unmendable".to_owned(), json!(list(&repair.unmendable)));
    print_repair(invocation, &repair);
    let failure = if !repair.unmendable.is_empty() {
        not_mended(folder, &repair)
    } else if left.violations.is_empty() {
        let said = if repair.deeds.is_empty() { "nothing to mend" } else { "mended" };
        invocation.reporter.print(&[Line::new(Tone::Dim, &format!("session {}: {said}", invocation.session))]);
        invocation.reporter.finish_command("check", Status::Completed, fields, None);
        return Ok(Status::Completed);
    } else {
        print_findings(invocation, &left);
        broken(&left)
    };
    invocation.reporter.finish_command("check", Status::Corrupt, fields, Some(&failure));
    Ok(Status::Corrupt)
}

fn no_session(invocation: &Invocation) -> Failure {
    Failure::new(Status::NothingPending, format!("there is no session {}", invocation.session))
}

fn broken(findings: &Findings) -> Failure {
    Failure::corrupt(match findings.violations.len() {
        1 => "1 invariant is broken".to_owned(),
        number => format!("{number} invariants are broken"),
    })
}

fn not_mended(folder: &SessionFolder, repair: &Repair) -> Failure {
    let faults = match repair.unmendable.len() {
        1 => "1 fault cannot be mended".to_owned(),
        number => format!("{number} faults cannot be mended"),
    };
    Failure::corrupt(format!("{faults}; nothing was changed")).hint(format!(
        "put an earlier copy of {} in place, mend the lines by hand, or go on in another session with -s NAME",
        folder.display("")
    ))
}

fn print_findings(invocation: &Invocation, findings: &Findings) {
    let plain = |violation: &Violation| Line::plain(&place(&violation.file, violation.line, &violation.what));
    let mut lines: Vec<Line> = findings.violations.iter().map(plain).collect();
    lines.extend(findings.notes.iter().map(|note| Line::new(Tone::Dim, &format!("note: {note}"))));
    invocation.reporter.print(&lines);
}

fn print_repair(invocation: &Invocation, repair: &Repair) {
    let mut lines: Vec<Line> = Vec::new();
    for fault in &repair.unmendable {
        let said = place(&fault.file, fault.line, &fault.what);
        lines.push(Line::plain(&format!("cannot be mended: {said}")));
    }
    lines.extend(repair.deeds.iter().map(|deed| Line::plain(&place(&deed.file, deed.line, &deed.what))));
    lines.extend(
        repair.kept.iter().map(|kept| Line::new(Tone::Dim, &format!("note: what was there is kept in {kept}"))),
    );
    invocation.reporter.print(&lines);
}

fn fields(invocation: &Invocation, findings: &Findings) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("session".to_owned(), json!(invocation.session));
    fields.insert("violations".to_owned(), findings.violations.iter().map(object).collect());
    fields.insert("notes".to_owned(), json!(findings.notes));
    fields
}

fn object(violation: &Violation) -> Value {
    json!({"file": violation.file, "line": violation.line, "message": violation.what})
}

fn place(file: &str, line: Option<u64>, what: &str) -> String {
    match line {
        Some(line) => format!("{file}:{line}: {what}"),
        None => format!("{file}: {what}"),
    }
}
