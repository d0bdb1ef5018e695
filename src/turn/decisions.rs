//! A person's decisions on what is pending: which calls an ID names, what may still be said of them, and whether
//! pending.json fits the conversation at all.
//!
//! Functions on the file alone; the command writes it back.

use crate::call::proposed::is_valid_id;
use crate::call::settled::patched_files;
use crate::clock;
use crate::exit::Status;
use crate::failure::Failure;
use crate::mask;
use crate::session::history::History;
use crate::session::pending::{Needs, PendingCall, PendingFile};
use crate::session::record::{Decision, OperationId, Scope};
use crate::tool::Preview;

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Approve,
    Deny {
        reason: Option<String>,
    },
    /// To a question. The number of a choice stands for that choice.
    Answer {
        text: String,
    },
}

impl Verdict {
    fn decision(&self) -> Decision {
        match self {
            Self::Approve => Decision::Approve,
            Self::Deny { .. } => Decision::Deny,
            Self::Answer { .. } => Decision::Answer,
        }
    }
}

/// Refuses a file that does not fit the conversation (17). Arguments, and the rules that it says were granted, are
/// checked by the caller, who can compute them again.
pub fn ensure_fits(file: &PendingFile, history: &History) -> Result<(), Failure> {
    if file.turn != history.turn() {
        return Err(misfit(&format!("it is about turn {}, and the latest is {}", file.turn, history.turn())));
    }
    if file.digest != PendingFile::digest_of(&file.calls) {
        return Err(misfit("its digest is not that of its calls; the file was changed"));
    }
    if file.calls.is_empty() {
        return Err(misfit("it lists no call"));
    }
    for (index, call) in file.calls.iter().enumerate() {
        if !is_valid_id(&call.id) {
            return Err(misfit(&format!("{:?} is no id of a call", call.id)));
        }
        if file.calls[..index].iter().any(|before| before.operation_id() == call.operation_id()) {
            return Err(misfit(&format!("it lists {} twice", call.operation_id())));
        }
        let in_last_round = history
            .last_round()
            .is_some_and(|round| round.assistant.tool_calls.iter().any(|known| known.id == call.id));
        if !in_last_round {
            return Err(misfit(&format!("the latest reply has no call {}", call.operation_id())));
        }
        if let Some(what) = unfounded_decision(&file.calls, index) {
            return Err(misfit(&format!("{}: {what}", call.operation_id())));
        }
    }
    Ok(())
}

/// A pending.json that says something else than the conversation.
pub fn misfit(what: &str) -> Failure {
    Failure::conflict(format!("pending.json does not fit the conversation: {what}"))
        .hint("nothing was changed; a new prompt (`attini tell`) drops the pending calls")
}

/// What is wrong with the decision recorded for a call, as far as the file alone shows it.
fn unfounded_decision(calls: &[PendingCall], index: usize) -> Option<&'static str> {
    let call = &calls[index];
    let unfit = match (call.needs, call.decision) {
        (_, None)
        | (Needs::Approval, Some(Decision::Approve | Decision::Deny))
        | (Needs::Answer, Some(Decision::Deny)) => None,
        (Needs::Nothing, Some(_)) => Some("it is carried, and yet there is a decision on it"),
        (Needs::Approval, Some(Decision::Answer)) => Some("it waits for an approval, and has an answer"),
        (Needs::Answer, Some(Decision::Approve | Decision::Allow | Decision::Stale)) => {
            Some("it is a question, and the decision on it is none that a question can have")
        }
        (Needs::Answer, Some(Decision::Answer)) => call.answer.is_none().then_some("its answer is missing"),
        (Needs::Approval, Some(Decision::Allow)) => {
            call.granted.is_none().then_some("it is allowed, and by no rule that was granted")
        }
        (Needs::Approval, Some(Decision::Stale)) => {
            (!stands_on_void(calls, index)).then_some("it is stale, and no patch that it stands on was denied")
        }
    };
    let stray_answer = (call.answer.is_some() && call.decision != Some(Decision::Answer))
        .then_some("there is an answer, and the decision is another");
    unfit.or(stray_answer).or_else(|| unfounded_grant(call))
}

fn unfounded_grant(call: &PendingCall) -> Option<&'static str> {
    let granted = call.granted.as_ref()?;
    if !matches!(call.decision, Some(Decision::Approve | Decision::Allow)) {
        return Some("it was not approved, and yet rules are granted with it");
    }
    let is_storable = matches!(granted.scope, Scope::Turn | Scope::Session | Scope::Workspace);
    (!is_storable).then_some("rules are granted with it in a scope that cannot be granted")
}

/// Whether a patch before it that is denied or stale changes one of its files.
fn stands_on_void(calls: &[PendingCall], index: usize) -> bool {
    let own: Vec<&str> = patched_paths(&calls[index]).collect();
    calls[..index]
        .iter()
        .filter(|call| matches!(call.decision, Some(Decision::Deny | Decision::Stale)))
        .any(|call| patched_paths(call).any(|path| own.contains(&path)))
}

/// Whether every call of the file has its result: the file is stale. One without calls never had a use. A call whose
/// operations are all recorded still waits for the result that is folded from them.
pub fn is_answered(file: &PendingFile, history: &History) -> bool {
    let is_answered = |call: &PendingCall| history.call(&call.id).is_some_and(|(_, progress)| !progress.is_open());
    !file.calls.is_empty() && file.calls.iter().all(is_answered)
}

/// Whether an operation needs nothing more: it, or the whole call, has its result.
pub fn has_result(id: &OperationId, history: &History) -> bool {
    history.call(&id.call_id).is_some_and(|(_, progress)| {
        !progress.is_open()
            || progress.operations.get(&id.operation).is_some_and(|operation| operation.result.is_some())
    })
}

/// Whether an operation is still to be decided, run or refused: it has no result and was never started.
pub fn waits(id: &OperationId, history: &History) -> bool {
    let is_started = history.operation(id).is_some_and(|operation| operation.start.is_some());
    !is_started && !has_result(id, history)
}

/// The calls that a command acts on, by their place in the file.
///
/// `call_7` names all undecided operations of that call, `call_7#2` one. None named: every undecided call; with
/// [`Verdict::Approve`] every undecided approval, with [`Verdict::Answer`] every undecided question.
pub fn select(file: &PendingFile, ids: &[String], verdict: &Verdict) -> Result<Vec<usize>, Failure> {
    let indexed = || file.calls.iter().enumerate();
    if ids.is_empty() {
        let fits = |needs: Needs| match verdict {
            Verdict::Approve => needs == Needs::Approval,
            Verdict::Answer { .. } => needs == Needs::Answer,
            Verdict::Deny { .. } => true,
        };
        let wanted = |call: &PendingCall| call.is_undecided() && fits(call.needs);
        return Ok(indexed().filter(|(_, call)| wanted(call)).map(|(index, _)| index).collect());
    }
    let mut selected = Vec::new();
    for id in ids {
        let wanted = OperationId::parse(id);
        let named: Vec<usize> = indexed()
            .filter(|(_, call)| {
                call.id == wanted.call_id && (wanted.operation.is_none() || call.operation == wanted.operation)
            })
            .map(|(index, _)| index)
            .collect();
        if named.is_empty() {
            return Err(unknown(id, file));
        }
        for index in decidable(file, named, verdict)? {
            if !selected.contains(&index) {
                selected.push(index);
            }
        }
    }
    Ok(selected)
}

/// Of the operations that one ID names, those that the verdict is about: the undecided ones. Where there are none, those
/// that it was said of before; if it was of none, it has nothing to say.
fn decidable(file: &PendingFile, named: Vec<usize>, verdict: &Verdict) -> Result<Vec<usize>, Failure> {
    let undecided: Vec<usize> = named.iter().copied().filter(|&index| file.calls[index].is_undecided()).collect();
    if !undecided.is_empty() {
        undecided.iter().try_for_each(|&index| ensure_decidable(&file.calls[index], verdict))?;
        return Ok(undecided);
    }
    let mut same = Vec::new();
    let mut refused: Option<Failure> = None;
    for index in named {
        match ensure_decidable(&file.calls[index], verdict) {
            Ok(()) => same.push(index),
            // That it was decided otherwise says more than that another one is carried.
            Err(failure) => {
                let says_less =
                    |before: &Failure| before.status != Status::Conflict && failure.status == Status::Conflict;
                if refused.as_ref().is_none_or(says_less) {
                    refused = Some(failure);
                }
            }
        }
    }
    match refused.filter(|_| same.is_empty()) {
        Some(failure) => Err(failure),
        None => Ok(same),
    }
}

fn unknown(id: &str, file: &PendingFile) -> Failure {
    let known: Vec<String> = file
        .calls
        .iter()
        .filter(|call| call.needs != Needs::Nothing)
        .map(|call| call.operation_id().to_string())
        .collect();
    let failure = Failure::new(Status::NothingPending, format!("no pending call has the ID {id:?}"));
    if known.is_empty() { failure } else { failure.hint(format!("pending are {}", known.join(", "))) }
}

fn ensure_decidable(call: &PendingCall, verdict: &Verdict) -> Result<(), Failure> {
    let id = call.operation_id();
    if call.needs == Needs::Nothing {
        return Err(Failure::usage(format!("{id} is carried: it needs no decision"))
            .hint("it runs when the calls before it are decided; a new prompt drops it"));
    }
    if call.needs == Needs::Answer && *verdict == Verdict::Approve {
        return Err(Failure::usage(format!("{id} is a question; it cannot be approved"))
            .hint(format!("answer it, or decline with `attini deny {id}`")));
    }
    if call.needs == Needs::Approval && matches!(verdict, Verdict::Answer { .. }) {
        return Err(Failure::usage(format!("{id} is no question: it waits for an approval"))
            .hint(format!("`attini approve {id}` or `attini deny {id}`")));
    }
    let same_kind = match (call.decision, verdict) {
        (None, _) => true,
        (Some(Decision::Approve | Decision::Allow), _) => *verdict == Verdict::Approve,
        (Some(Decision::Deny), _) => verdict.decision() == Decision::Deny,
        (Some(Decision::Answer), Verdict::Answer { text }) => call.answer == Some(answer_of(call, text)),
        (Some(Decision::Answer), Verdict::Approve | Verdict::Deny { .. }) | (Some(Decision::Stale), _) => false,
    };
    if same_kind {
        return Ok(());
    }
    let recorded = match call.decision {
        Some(Decision::Approve | Decision::Allow) => "approved",
        Some(Decision::Answer) => "answered",
        Some(Decision::Stale) => "void, since a patch it stands on was denied",
        Some(Decision::Deny) | None => "denied",
    };
    Err(Failure::conflict(format!("{id} is {recorded} already"))
        .hint("a recorded decision stays; a new prompt drops the pending calls"))
}

/// What a person's words say in answer to a question: the choice that they name by its number, or the words themselves.
/// It is what the model will read, so keys are masked.
pub fn answer_of(call: &PendingCall, text: &str) -> String {
    let choices = match &call.preview {
        Some(Preview::Question { choices, .. }) => choices.as_slice(),
        _ => &[],
    };
    let words = text.trim();
    let exact = || choices.iter().find(|choice| choice.trim() == words);
    let numbered = || choices.get(words.parse::<usize>().ok()?.checked_sub(1)?);
    let said = exact().or_else(numbered).map_or(text, String::as_str);
    mask::apply(said).into_owned()
}

/// Writes the verdict on the selected calls into the file. Deciding the same again changes nothing. Denying a patch
/// makes the undecided patches stacked on it stale at once.
pub fn decide(file: &mut PendingFile, selected: &[usize], verdict: &Verdict) {
    let now = clock::now();
    let mut denied = Vec::new();
    for &index in selected {
        let call = &mut file.calls[index];
        if call.decision.is_some() {
            continue;
        }
        call.decision = Some(verdict.decision());
        call.decided_at = Some(now.clone());
        match verdict {
            Verdict::Approve => {}
            Verdict::Deny { reason } => {
                call.reason.clone_from(reason);
                denied.push(index);
            }
            Verdict::Answer { text } => call.answer = Some(answer_of(call, text)),
        }
    }
    // Only now, so that what was denied together is denied, with its reason, and not merely stale.
    for index in denied {
        let paths: Vec<String> = patched_paths(&file.calls[index]).map(str::to_owned).collect();
        make_stale(file, index, paths, &now);
    }
    file.refresh_status();
}

fn make_stale(file: &mut PendingFile, index: usize, denied: Vec<String>, now: &str) {
    let mut void = denied;
    for call in file.calls.iter_mut().skip(index + 1) {
        let stacked = patched_paths(call).any(|path| void.iter().any(|void| void == path));
        if stacked && call.is_undecided() {
            void.extend(patched_paths(call).map(str::to_owned).collect::<Vec<_>>());
            call.decision = Some(Decision::Stale);
            call.decided_at = Some(now.to_owned());
        }
    }
}

fn patched_paths(call: &PendingCall) -> impl Iterator<Item = &str> {
    call.preview.iter().flat_map(patched_files).map(|file| file.path.as_str())
}

#[cfg(test)]
mod tests;
