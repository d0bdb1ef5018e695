//! pending.json against the conversation and the world: arguments, grants and what was granted are computed again,
//! never believed.
//!
//! What is believed are the plain decisions. The file is private to the person (0600), and who can write
//! `"decision": "approve"` into it could as well have typed `attini approve`: it lets the call run once that the
//! conversation holds and the preview shows, and nothing else. A rule outlives its call, so `granted` must be what
//! `--grant`, with or without `--prefix`, could have stored for that very call; and `allow` must follow from such a
//! rule, or from the rules as they stand.

use crate::call::checked::{CheckedCall, check};
use crate::call::decided::{question, suggested_rules};
use crate::call::planned::asking_back;
use crate::call::settled::is_shown;
use crate::failure::Failure;
use crate::mask;
use crate::permission::grant::{covers, suggest_prefix};
use crate::permission::{Rule, Rules};
use crate::provider::Finish;
use crate::session::history::{History, Waiting};
use crate::session::pending::{Needs, PendingCall, PendingFile};
use crate::session::record::{Decision, DecisionRecord, Granted, OperationId};
use crate::tool::registry::Registry;
use crate::tool::{Assessment, Moot, Overlay, Surroundings};
use crate::turn::decisions;
use crate::workspace::World;

/// What a pending call is now, in the file's order; `None` where its tool is gone or it no longer applies.
pub struct Recomputed<'r> {
    pub call: CheckedCall<'r>,
    pub assessment: Assessment,
}

/// Computes every call of the file again that was not denied, each on top of those before it. Refuses (17) a file whose
/// arguments, grants or granted rules are not what the conversation says. `rules`: those that count now.
pub fn verify<'r>(
    file: &PendingFile,
    history: &History,
    registry: &'r Registry,
    surroundings: &Surroundings<'_>,
    rules: &Rules,
) -> Result<Vec<Option<Recomputed<'r>>>, Failure> {
    decisions::ensure_fits(file, history)?;
    let truncated =
        history.last_round().is_some_and(|round| Finish::of(&round.assistant.finish_reason) == Finish::Length);
    let mut overlay = Overlay::new();
    let mut recomputed = Vec::new();
    for pending in &file.calls {
        let void = matches!(pending.decision, Some(Decision::Deny | Decision::Stale));
        let known = history.call(&pending.id).filter(|(_, progress)| !void && progress.is_open());
        let checked = known.and_then(|(call, _)| {
            let mut operations = check(call, registry, truncated).into_iter();
            operations.find(|(id, _)| *id == pending.operation_id()).and_then(|(_, checked)| checked.ok())
        });
        let Some(checked) = checked else {
            recomputed.push(None);
            continue;
        };
        if checked.tool.name() != pending.name || checked.arguments != pending.arguments {
            return Err(misfit(pending, "its arguments are not those of the conversation"));
        }
        // Also where it was begun with an answer: then it is repaired, and was a question all the same.
        let waiting = history.operation(&pending.operation_id()).and_then(|operation| operation.waiting.as_ref());
        recomputed.push(assess(checked, pending, waiting, surroundings, &mut overlay)?);
    }
    ensure_granted(file, history, &recomputed, &rules.lasting())?;
    Ok(recomputed)
}

/// What the approvals of a verified file store, once it is carried out.
#[derive(Debug, Default)]
pub struct Grants {
    /// By the call that they were granted with.
    pub stored: Vec<(OperationId, Granted)>,
    /// Approved calls that are no longer what was shown. They do not run, and leave no rule behind.
    pub void: Vec<OperationId>,
}

impl Grants {
    /// `recomputed`: as [`verify`] returned it for this file, new decisions aside. What a decision in the log speaks of
    /// was stored, or told as not stored, before it was recorded there.
    pub fn of(file: &PendingFile, history: &History, recomputed: &[Option<Recomputed<'_>>]) -> Self {
        let mut grants = Self::default();
        for (call, now) in file.calls.iter().zip(recomputed) {
            let id = call.operation_id();
            let is_open = !decisions::has_result(&id, history) && recorded_decision(&id, history).is_none();
            let Some(granted) = call.granted.as_ref().filter(|_| is_open && call.decision == Some(Decision::Approve))
            else {
                continue;
            };
            match now {
                Some(_) => grants.stored.push((id, granted.clone())),
                None => grants.void.push(id),
            }
        }
        grants
    }
}

/// Refuses an answer (2) that is none to what a call asked back. `now`: what [`verify`] says that the call is.
pub fn ensure_answers(
    pending: &PendingCall,
    now: Option<&Recomputed<'_>>,
    history: &History,
    text: &str,
) -> Result<(), Failure> {
    let (Some(now), Some(waiting)) = (now, history.waiting(&pending.operation_id())) else { return Ok(()) };
    let answer = decisions::answer_of(pending, text);
    now.call.tool.tool.ensure_answers(&waiting.asked(), &answer).map_err(|refusal| {
        let id = pending.operation_id();
        Failure::usage(format!("{id}: {}", refusal.message))
            .hint(format!("{id} still waits: `attini answer {id} TEXT`"))
    })
}

fn recorded_decision<'h>(id: &OperationId, history: &'h History) -> Option<&'h DecisionRecord> {
    history.operation(id)?.decision.as_ref()
}

/// Refuses rules that the file says were granted, where nobody can have granted them.
fn ensure_granted(
    file: &PendingFile,
    history: &History,
    recomputed: &[Option<Recomputed<'_>>],
    rules: &Rules,
) -> Result<(), Failure> {
    for (pending, now) in file.calls.iter().zip(recomputed) {
        let Some(granted) = &pending.granted else { continue };
        if let Some(recorded) = recorded_decision(&pending.operation_id(), history) {
            if recorded.granted.as_ref() != Some(granted) {
                return Err(misfit(pending, "the rules granted with it are not those of its recorded decision"));
            }
            continue;
        }
        // What has its result, or no longer applies, is not run and stores nothing.
        let Some(now) = now else { continue };
        let is_founded = match pending.decision {
            Some(Decision::Approve) => can_be_granted(&granted.rules, pending, now),
            Some(Decision::Allow) => is_covered(granted, file, history, now, rules),
            Some(Decision::Deny | Decision::Answer | Decision::Stale) | None => false,
        };
        if !is_founded {
            return Err(misfit(pending, "the rules granted with it are none that an approval could have granted"));
        }
    }
    Ok(())
}

/// Whether `--grant` could have stored these rules with the call.
fn can_be_granted(rules: &[Rule], pending: &PendingCall, now: &Recomputed<'_>) -> bool {
    // The suggestion itself was computed again before.
    if pending.grant.as_deref() == Some(rules) {
        return true;
    }
    let [Rule::Command { args_prefix: Some(words), .. }] = rules else { return false };
    suggest_prefix(&now.assessment.accesses, words.len()).is_ok_and(|prefix| prefix == rules)
}

/// Whether a call is settled by the rules as they stand, or by those that another approval of the reply granted.
fn is_covered(granted: &Granted, file: &PendingFile, history: &History, now: &Recomputed<'_>, rules: &Rules) -> bool {
    let question = question(&now.call, &now.assessment);
    if covers(&question, rules, granted.scope, &[]) {
        return true;
    }
    let in_file = file
        .calls
        .iter()
        .any(|call| call.decision == Some(Decision::Approve) && call.granted.as_ref() == Some(granted));
    // A file that was written anew lists no call that has its result.
    let mut recorded = history
        .last_round()
        .into_iter()
        .flat_map(|round| &round.calls)
        .flat_map(|call| call.operations.values())
        .filter_map(|operation| operation.decision.as_ref());
    let is_granted = in_file
        || recorded
            .any(|decision| decision.decision == Decision::Approve && decision.granted.as_ref() == Some(granted));
    is_granted && covers(&question, rules, granted.scope, &granted.rules)
}

fn assess<'r>(
    call: CheckedCall<'r>,
    pending: &PendingCall,
    waiting: Option<&Waiting>,
    surroundings: &Surroundings<'_>,
    overlay: &mut Overlay,
) -> Result<Option<Recomputed<'r>>, Failure> {
    let mut world = World::default();
    call.tool.tool.look(&call.arguments, surroundings, &mut world);
    // What no longer applies is answered when its turn comes; that is no conflict.
    let Ok(assessment) = call.tool.tool.assess(&call.arguments, &world, overlay) else { return Ok(None) };
    if matches!(assessment.moot, Some(Moot::Plain(_))) {
        return Ok(None);
    }
    if pending.needs == Needs::Nothing {
        // A carried patch is not shown, but what is shown behind it was made on top of it.
        overlay.extend(assessment.after);
        return Ok(None);
    }
    let assessment = asking_back(assessment, call.tool.tool.as_ref(), waiting);
    // It asked back after pending.json was written: its question is put next, whatever was decided before.
    let asked_since = waiting.is_some() && !is_shown(pending, &assessment);
    if asked_since {
        return Ok(None);
    }
    if pending.needs != Needs::of(&assessment.preview) {
        let what = if pending.needs == Needs::Answer { "it is no question" } else { "it is a question" };
        return Err(misfit(pending, what));
    }
    if !is_shown(pending, &assessment) {
        return Ok(None);
    }
    // The line that lists the call says what the call does, and nothing else.
    if pending.summary.as_deref() != Some(&*mask::apply(&assessment.summary)) {
        return Err(misfit(pending, "its summary is not what the call would do"));
    }
    if suggested_rules(&call, &assessment, surroundings.workspace.root.path()) != pending.grant {
        return Err(misfit(pending, "its grant is not what the call would need"));
    }
    overlay.extend(assessment.after.clone());
    Ok(Some(Recomputed { call, assessment }))
}

fn misfit(pending: &PendingCall, what: &str) -> Failure {
    decisions::misfit(&format!("{}: {what}", pending.operation_id()))
}
