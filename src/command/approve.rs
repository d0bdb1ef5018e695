//! `attini approve`: a person's yes, and the turn goes on.

use super::continuation::{Ground, decide_on, equipment, go_on, rules_file};
use super::invocation::Invocation;
use super::opened::{Continued, nothing_pending, open_existing, standing};
use crate::call::decided::question;
use crate::cli::{ApproveArguments, GrantScope};
use crate::clock;
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::grant::{covers, suggest_prefix};
use crate::session::history::Standing;
use crate::session::pending::{Needs, PendingFile};
use crate::session::record::{Decision, Granted, Scope};
use crate::turn::decisions::{Verdict, decide, select};
use crate::turn::verification::Recomputed;

pub fn run(invocation: &Invocation, arguments: &ApproveArguments) -> anyhow::Result<Status> {
    let folder = invocation.folder()?;
    let mut opened = open_existing(invocation, folder.as_ref(), arguments.turn.wait)?;
    let Some(file) = opened.pending.take() else { return approve_unfinished(invocation, opened, arguments) };
    let stored = arguments.grant.map(|scope| (scope, arguments.prefix));
    decide_on(invocation, opened, file, (&arguments.turn, arguments.if_digest.as_deref()), |ground, file| {
        let selected = select(&file, &arguments.ids, &Verdict::Approve)?;
        let decided = approve(ground, &file, &selected, stored)?;
        ground.store(&file, decided)
    })
}

/// The file with the approval of these calls in it, and with the rule that it stores, for so many first words of the
/// command if that is said. Everything that can be wrong with the approval is found here.
pub(super) fn approve(
    ground: &Ground<'_>,
    file: &PendingFile,
    selected: &[usize],
    stored: Option<(GrantScope, Option<u64>)>,
) -> anyhow::Result<PendingFile> {
    let mut decided = file.clone();
    decide(&mut decided, selected, &Verdict::Approve);
    let Some((scope, prefix)) = stored else { return Ok(decided) };
    let granted = grant(&mut decided, selected, scope, prefix, ground.recomputed)?;
    rules_file(ground.invocation, ground.folder, granted.scope).ensure_storable(&granted.rules, ground.trust)?;
    // What is settled so must stay settled when a later invocation carries it out.
    let rules = ground.equipment.rules.lasting();
    for (call, recomputed) in decided.calls.iter_mut().zip(ground.recomputed) {
        let Some(recomputed) = recomputed.as_ref().filter(|_| call.is_undecided() && call.needs == Needs::Approval)
        else {
            continue;
        };
        let question = question(&recomputed.call, &recomputed.assessment);
        if covers(&question, &rules, granted.scope, &granted.rules) {
            call.decision = Some(Decision::Allow);
            call.granted = Some(granted.clone());
            call.decided_at = Some(clock::now());
        }
    }
    decided.refresh_status();
    Ok(decided)
}

/// Nothing is pending: a turn that was killed before its calls were shown is repaired and goes on.
fn approve_unfinished(
    invocation: &Invocation,
    opened: Continued<'_>,
    arguments: &ApproveArguments,
) -> anyhow::Result<Status> {
    let history = opened.log.history();
    let answered = history.open_calls().next().is_none();
    if !arguments.ids.is_empty() || answered || standing(history) == Standing::Finished {
        return Err(nothing_pending(invocation, Some(history)).into());
    }
    let trust = invocation.trust()?;
    let equipment = equipment(invocation, &opened, &arguments.turn, &trust)?;
    Ok(go_on(invocation, opened, equipment))
}

/// Notes in the file which rules the approval of its single candidate stores besides.
fn grant(
    file: &mut PendingFile,
    selected: &[usize],
    scope: GrantScope,
    prefix: Option<u64>,
    recomputed: &[Option<Recomputed<'_>>],
) -> anyhow::Result<Granted> {
    let [index] = *selected else {
        return Err(Failure::usage(format!("--grant takes one call, and {} are candidates", selected.len()))
            .hint("name the call: `attini approve ID --grant SCOPE`")
            .into());
    };
    let call = &mut file.calls[index];
    let no_rule = |why: &str| {
        Failure::usage(format!("no rule can cover {}: {why}", call.operation_id())).hint("approve it without --grant")
    };
    let Some(recomputed) = recomputed.get(index).and_then(Option::as_ref) else {
        return Err(no_rule("it is no longer what was shown").into());
    };
    let rules = match prefix {
        None => call.grant.clone().ok_or_else(|| no_rule("it is of a kind that always asks"))?,
        Some(words) => {
            let words = usize::try_from(words).unwrap_or(usize::MAX);
            suggest_prefix(&recomputed.assessment.accesses, words).map_err(|why| no_rule(&why))?
        }
    };
    let granted = match (scope, &call.granted) {
        (_, Some(granted)) => granted.clone(),
        (GrantScope::Turn, None) => Granted { scope: Scope::Turn, rules },
        (GrantScope::Session, None) => Granted { scope: Scope::Session, rules },
        (GrantScope::Workspace, None) => Granted { scope: Scope::Workspace, rules },
    };
    call.granted = Some(granted.clone());
    Ok(granted)
}
