//! `attini compact`: summarises older rounds now.

use serde_json::{Map, Value, json};

use super::continuation::equipment;
use super::invocation::Invocation;
use super::opened::{complete_finished, open_existing};
use crate::cli::{CompactArguments, TurnOptions};
use crate::exit::Status;
use crate::failure::Failure;
use crate::report::line::Line;
use crate::turn::compaction::{Compacted, NotCompacted};

pub fn run(invocation: &Invocation, arguments: &CompactArguments) -> anyhow::Result<Status> {
    let folder = invocation.folder()?;
    let session = &invocation.session;
    let nothing = |what: &str| Failure::new(Status::NothingPending, format!("the session {session} {what}"));
    let Some(_) = &folder else { return Err(nothing("does not exist").into()) };
    let mut opened = open_existing(invocation, folder.as_ref(), arguments.wait)?;
    ensure_nothing_pending(invocation, opened.pending.is_some())?;
    if opened.log.history().borders().is_empty() && opened.log.history().open_calls().next().is_none() {
        return Err(nothing("holds nothing that a summary could stand for").into());
    }
    let trust = invocation.trust()?;
    let options = TurnOptions { model: arguments.model.clone(), ..TurnOptions::default() };
    let equipment = equipment(invocation, &opened, &options, &trust)?;
    complete_finished(&mut opened.log)?;
    let mut turn = equipment.into_turn(invocation, opened.folder, opened.log);
    // A kill may have come before the question was put; the call would be given up, and with it what it did so far.
    if !turn.waiting_operations().is_empty() {
        turn.servers.end();
        return Err(Failure::new(Status::Conflict, format!("a call of the session {session} asked something back"))
            .hint("`attini resume` puts its question, or drop it with a new prompt")
            .into());
    }
    // What a kill left open is closed, as by whatever comes next.
    let compacted = turn.repair(|_| false).and_then(|()| turn.compact_now());
    turn.servers.end();
    turn.warn_of_servers();
    let compacted = match compacted? {
        Ok(compacted) => compacted,
        Err(NotCompacted::Nothing) => {
            return Err(nothing("holds nothing that a summary could stand for").into());
        }
        Err(NotCompacted::Failed(error)) => return Err(Failure::of_provider(error, &invocation.interrupt).into()),
        Err(NotCompacted::Interrupted) => return Err(Failure::of_interrupt(&invocation.interrupt).into()),
    };
    let text = turn.history().summary().map(|summary| summary.text.clone());
    let Compacted { through_turn, through_round, tokens_before, tokens_after, usage } = compacted;
    invocation.reporter.print(&[Line::plain(&format!(
        "turn {through_turn} is summarised through round {through_round}, with all before it: about {tokens_after} tokens \
         instead of {tokens_before} ({} tokens in, {} out)",
        usage.input_tokens, usage.output_tokens
    ))]);
    let fields = json!({
        "session": session,
        "through_turn": through_turn,
        "through_round": through_round,
        "tokens_before": tokens_before,
        "tokens_after": tokens_after,
        "usage": usage,
        "summary": text,
    });
    let fields = if let Value::Object(fields) = fields { fields } else { Map::new() };
    invocation.reporter.finish_command("compact", Status::Completed, fields, None);
    Ok(Status::Completed)
}

/// A summary stands for closed pairs alone, and a person is to decide on what they were shown.
fn ensure_nothing_pending(invocation: &Invocation, is_pending: bool) -> Result<(), Failure> {
    if !is_pending {
        return Ok(());
    }
    let message = format!("calls of the session {} wait for a decision", invocation.session);
    Err(Failure::new(Status::Conflict, message)
        .hint("decide them first (`attini status` shows them), or drop them with a new prompt"))
}
