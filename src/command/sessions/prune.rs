//! `attini sessions prune`: what killed invocations left behind, and sessions that nobody has used for long.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::{Value, json};

use super::{SECONDS_PER_DAY, collection, existing, forget_rules, listed, lock, look};
use crate::command::invocation::Invocation;
use crate::exit::Status;
use crate::failure::Failure;
use crate::report::line::Line;
use crate::session::collection::Collection;
use crate::tool::patch::recover::follow_trace;

/// The state of a session that may go for its age.
const IDLE: &str = "idle";

pub(super) fn run(invocation: &Invocation, older_than: Option<u64>, dry_run: bool) -> anyhow::Result<Value> {
    let Some(collection) = collection(invocation)? else { return Ok(json!({"removed": [], "dry_run": dry_run})) };
    let mut removed: Vec<String> = Vec::new();
    for leftover in collection.leftovers().context("the sessions cannot be listed")? {
        if !dry_run && !collection.remove_leftover(&leftover)? {
            continue;
        }
        removed.push(leftover.display().to_string());
    }
    if !dry_run {
        clean_sessions(invocation, &collection)?;
    }
    if let Some(days) = older_than {
        removed.extend(remove_old(invocation, &collection, days, dry_run)?);
    }
    let verb = if dry_run { "would remove" } else { "removed" };
    let lines: Vec<Line> = removed.iter().map(|name| Line::plain(&format!("{verb} {name}"))).collect();
    invocation.reporter.print(&lines);
    Ok(json!({"removed": removed, "dry_run": dry_run}))
}

/// Temporary files within sessions that nobody holds, and those that their undoing left beside the sources.
fn clean_sessions(invocation: &Invocation, collection: &Collection) -> anyhow::Result<()> {
    for name in collection.names().context("the sessions cannot be listed")? {
        let Ok(Some(folder)) = invocation.state().open(&name) else { continue };
        let Ok(_lock) = lock(invocation, &folder) else { continue };
        folder.clean().map_err(|error| Failure::persistence(format!("{name} cannot be cleaned up: {error}")))?;
        follow_trace(&folder, &invocation.workspace)
            .map_err(|error| Failure::persistence(format!("what an undo in {name} left cannot be removed: {error}")))?;
    }
    Ok(())
}

fn remove_old(
    invocation: &Invocation,
    collection: &Collection,
    days: u64,
    dry_run: bool,
) -> anyhow::Result<Vec<String>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let used_before = now.saturating_sub(days.saturating_mul(SECONDS_PER_DAY));
    let mut removed = Vec::new();
    for session in listed(invocation)? {
        if session.state != IDLE || session.last_used > used_before {
            continue;
        }
        if !dry_run {
            let folder = existing(invocation, &session.name)?;
            // Somebody may have come to use it since.
            match lock(invocation, &folder) {
                Ok(_lock) => {
                    let now = look(invocation, collection, session.name.clone());
                    if now.is_none_or(|now| now.last_used != session.last_used) {
                        continue;
                    }
                    collection.remove(&session.name)?;
                    forget_rules(invocation, &folder);
                }
                Err(error) if Failure::of(&error).status == Status::Locked => continue,
                Err(error) => return Err(error),
            }
        }
        removed.push(session.name);
    }
    Ok(removed)
}

/// On the way of other commands; what cannot be removed now is another time.
pub(super) fn remove_leftovers(collection: &Collection) {
    for leftover in collection.leftovers().unwrap_or_default() {
        let _ = collection.remove_leftover(&leftover);
    }
}
