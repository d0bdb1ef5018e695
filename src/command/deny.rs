//! `attini deny`: a person's no, and the turn goes on.

use super::continuation::{carry_out, ensure_digest, equipment, still_suspended};
use super::invocation::Invocation;
use super::opened::{nothing_pending, open_existing};
use crate::cli::DenyArguments;
use crate::exit::Status;
use crate::failure::Failure;
use crate::turn::decisions::{Verdict, decide, select};
use crate::turn::verification::Grants;

pub fn run(invocation: &Invocation, arguments: &DenyArguments) -> anyhow::Result<Status> {
    let folder = invocation.folder()?;
    let mut opened = open_existing(invocation, folder.as_ref(), arguments.turn.wait)?;
    let Some(file) = opened.pending.take() else {
        return Err(nothing_pending(invocation, Some(opened.log.history())).into());
    };
    ensure_digest(&file, arguments.if_digest.as_deref())?;
    let trust = invocation.trust()?;
    let equipment = equipment(invocation, &opened, &arguments.turn, &trust)?;
    let recomputed = equipment.verify(invocation, opened.folder, opened.log.history(), &file)?;
    let verdict = Verdict::Deny { reason: arguments.reason.clone() };
    let selected = select(&file, &arguments.ids, &verdict)?;
    if selected.is_empty() {
        return Err(Failure::new(Status::NothingPending, "every pending call is decided already")
            .hint("`attini resume` carries the decisions out; a new prompt drops the calls")
            .into());
    }
    let mut decided = file.clone();
    decide(&mut decided, &selected, &verdict);
    let grants = Grants::of(&decided, opened.log.history(), &recomputed);
    drop(recomputed);
    if decided != file {
        decided.store(opened.folder)?;
    }
    if decided.undecided().next().is_some() {
        return Ok(still_suspended(invocation, opened.log.history(), &decided));
    }
    carry_out(invocation, opened, equipment, &decided, &grants, trust)
}
