//! `attini deny`: a person's no, and the turn goes on.

use super::continuation::{all_decided, decide_on};
use super::invocation::Invocation;
use super::opened::{nothing_pending, open_existing};
use crate::cli::DenyArguments;
use crate::exit::Status;
use crate::turn::decisions::{Verdict, decide, select};

pub fn run(invocation: &Invocation, arguments: &DenyArguments) -> anyhow::Result<Status> {
    let folder = invocation.folder()?;
    let mut opened = open_existing(invocation, folder.as_ref(), arguments.turn.wait)?;
    let Some(file) = opened.pending.take() else {
        return Err(nothing_pending(invocation, Some(opened.log.history())).into());
    };
    let verdict = Verdict::Deny { reason: arguments.reason.clone() };
    decide_on(invocation, opened, file, (&arguments.turn, arguments.if_digest.as_deref()), |ground, file| {
        let selected = select(&file, &arguments.ids, &verdict)?;
        if selected.is_empty() {
            return Err(all_decided().into());
        }
        let mut decided = file.clone();
        decide(&mut decided, &selected, &verdict);
        ground.store(&file, decided)
    })
}
