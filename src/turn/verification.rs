//! pending.json against the conversation and the world: arguments and grants are computed again, never believed.

use crate::call::checked::{CheckedCall, check};
use crate::call::decided::question;
use crate::failure::Failure;
use crate::permission::grant;
use crate::provider::Finish;
use crate::session::history::History;
use crate::session::pending::{Needs, PendingCall, PendingFile};
use crate::session::record::Decision;
use crate::tool::registry::Registry;
use crate::tool::{Assessment, Overlay, Surroundings};
use crate::turn::decisions;
use crate::workspace::World;

/// What a pending call is now, in the file's order; `None` where its tool is gone or it no longer applies.
pub struct Recomputed<'r> {
    pub call: CheckedCall<'r>,
    pub assessment: Assessment,
}

/// Computes every call of the file again that was not denied, each on top of those before it. Refuses (17) a file whose
/// arguments or grants are not what the conversation says.
pub fn verify<'r>(
    file: &PendingFile,
    history: &History,
    registry: &'r Registry,
    surroundings: &Surroundings<'_>,
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
        recomputed.push(assess(checked, pending, surroundings, &mut overlay)?);
    }
    Ok(recomputed)
}

fn assess<'r>(
    call: CheckedCall<'r>,
    pending: &PendingCall,
    surroundings: &Surroundings<'_>,
    overlay: &mut Overlay,
) -> Result<Option<Recomputed<'r>>, Failure> {
    let mut world = World::default();
    call.tool.tool.look(&call.arguments, surroundings, &mut world);
    // What no longer applies is answered when its turn comes; that is no conflict.
    let Ok(assessment) = call.tool.tool.assess(&call.arguments, &world, overlay) else { return Ok(None) };
    if pending.needs == Needs::Nothing {
        // A carried patch is not shown, but what is shown behind it was made on top of it.
        overlay.extend(assessment.after);
        return Ok(None);
    }
    let shown = pending.preview.as_ref();
    if shown.is_none_or(|shown| !crate::call::settled::is_same_effect(shown, &assessment.preview)) {
        return Ok(None);
    }
    if grant::suggest(&question(&call, &assessment), surroundings.workspace.root.path()) != pending.grant {
        return Err(misfit(pending, "its grant is not what the call would need"));
    }
    overlay.extend(assessment.after.clone());
    Ok(Some(Recomputed { call, assessment }))
}

fn misfit(pending: &PendingCall, what: &str) -> Failure {
    Failure::conflict(format!("pending.json does not fit the conversation: {}: {what}", pending.operation_id()))
        .hint("nothing was changed; a new prompt (`attini tell`) drops the pending calls")
}
