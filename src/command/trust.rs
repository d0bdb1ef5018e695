//! `attini trust`: what this workspace's config and rules would enable, and the record that they may.

use std::io::{BufRead, IsTerminal, Read};

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use crate::cli::TrustArguments;
use crate::config::candidates::{Candidate, gather, trust_all};
use crate::exit::Status;
use crate::report::line::{Line, Tone};

const ANSWER_BYTES_MAX: u64 = 64;

pub fn run(invocation: &Invocation, arguments: &TrustArguments) -> anyhow::Result<Status> {
    let mut trust = invocation.trust()?;
    let folder = invocation.folder()?;
    let candidates = gather(&invocation.workspace, folder.as_ref(), &trust)?;
    invocation.reporter.print(&describe(&candidates));
    let needs_trust = candidates.iter().any(|candidate| !candidate.is_trusted);
    let wanted = needs_trust && (arguments.yes || is_confirmed(invocation));
    if wanted {
        trust_all(&candidates, &mut trust)?;
        invocation.reporter.print(&[Line::plain("trusted, as they are now")]);
    } else if needs_trust {
        let prefix = &invocation.command_prefix;
        invocation
            .reporter
            .notice(&[Line::plain(&format!("nothing was changed; to trust them: {prefix} trust --yes"))]);
    }
    let listed: Vec<Value> = candidates
        .iter()
        .map(|one| json!({"file": one.shown, "trusted": one.is_trusted || wanted, "enables": one.enables}))
        .collect();
    let mut fields = Map::new();
    fields.insert("workspace".to_owned(), json!(invocation.workspace.root.shown()));
    fields.insert("files".to_owned(), Value::Array(listed));
    fields.insert("trusted".to_owned(), json!(wanted || !needs_trust));
    invocation.reporter.finish_command("trust", Status::Completed, fields, None);
    Ok(Status::Completed)
}

fn describe(candidates: &[Candidate]) -> Vec<Line> {
    if candidates.is_empty() {
        return vec![Line::plain("this workspace has neither config nor rules: nothing needs trust")];
    }
    let mut lines = Vec::new();
    for candidate in candidates {
        let state = if candidate.is_trusted { "trusted" } else { "not trusted" };
        lines.push(Line::new(Tone::Heading, &format!("{} ({state})", candidate.shown)));
        if candidate.enables.is_empty() {
            lines.push(Line::plain("  enables nothing"));
        }
        lines.extend(candidate.enables.iter().map(|enabled| Line::exactly(Tone::Plain, &format!("  {enabled}"))));
    }
    lines
}

/// Asks at a terminal; elsewhere nobody has said yes.
fn is_confirmed(invocation: &Invocation) -> bool {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    invocation.reporter.notice(&[Line::new(Tone::Heading, "Trust them as they are now? Type yes:")]);
    let mut answer = String::new();
    let read = stdin.lock().take(ANSWER_BYTES_MAX).read_line(&mut answer);
    read.is_ok() && answer.trim().eq_ignore_ascii_case("yes")
}
