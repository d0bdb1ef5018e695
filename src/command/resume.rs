//! `attini resume`: goes on with a turn that was interrupted, or stopped by an error or a limit.

use super::continuation::{carry_out, equipment, go_on, still_suspended};
use super::invocation::Invocation;
use super::opened::{Continued, complete_finished, forget_turn_rules, nothing_pending, open_existing, standing};
use crate::cli::ResumeArguments;
use crate::exit::Status;
use crate::session::history::Standing;
use crate::turn::ending::result_of;
use crate::turn::verification::Grants;

pub fn run(invocation: &Invocation, arguments: &ResumeArguments) -> anyhow::Result<Status> {
    let folder = invocation.folder()?;
    let mut opened = open_existing(invocation, folder.as_ref(), arguments.turn.wait)?;
    let Some(file) = opened.pending.take() else { return resume_unfinished(invocation, opened, arguments) };
    let trust = invocation.trust()?;
    let equipment = equipment(invocation, &opened, &arguments.turn, &trust)?;
    let recomputed = equipment.verify(invocation, opened.folder, opened.log.history(), &file)?;
    if file.undecided().next().is_some() {
        return Ok(still_suspended(invocation, opened.log.history(), &file));
    }
    let grants = Grants::of(&file, opened.log.history(), &recomputed);
    drop(recomputed);
    carry_out(invocation, opened, equipment, &file, &grants, trust)
}

/// Nothing is pending: what was broken off is repaired and goes on.
fn resume_unfinished(
    invocation: &Invocation,
    mut opened: Continued<'_>,
    arguments: &ResumeArguments,
) -> anyhow::Result<Status> {
    if standing(opened.log.history()) == Standing::Finished {
        if opened.log.history().turn() == 0 || opened.log.history().turn_end().is_some() {
            return Err(nothing_pending(invocation, Some(opened.log.history())).into());
        }
        // A kill took the end of a turn that had its answer.
        complete_finished(&mut opened.log)?;
        forget_turn_rules(invocation, opened.folder, opened.log.history().turn());
        let mut result = result_of(opened.log.history(), Status::Completed, None, None);
        result.session = Some(invocation.session.clone());
        invocation.reporter.answer(result.text.as_deref().unwrap_or_default());
        invocation.reporter.finish(&result);
        return Ok(Status::Completed);
    }
    let trust = invocation.trust()?;
    let equipment = equipment(invocation, &opened, &arguments.turn, &trust)?;
    Ok(go_on(invocation, opened, equipment))
}
