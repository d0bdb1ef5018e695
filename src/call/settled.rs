//! A person's answers, matched to what was shown: an approval makes a [`Permit`] for exactly that, a denial an answer.

use super::decided::{Grounds, Permit};
use super::planned::Answer;
use crate::session::pending::{Needs, PendingCall, PendingFile};
use crate::session::record::{DecidedBy, Decision, OperationId, PlannedFile, ResultStatus, Scope};
use crate::tool::{Assessment, Preview};

/// The decisions that a continuation carries out. Empty for a reply that was never suspended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Decisions<'p> {
    file: Option<&'p PendingFile>,
}

/// What was decided on one operation.
#[derive(Debug, Clone, Copy)]
pub enum Settled<'p> {
    /// The reply was never suspended, or the operation is carried: judge it now.
    Judge,
    /// A person said yes or gave an answer, or a rule that a person granted says yes.
    Approved(&'p PendingCall),
    Refused(&'p PendingCall),
    /// It was shown and is still undecided.
    Undecided,
    /// The suspended reply has it, pending.json does not: it was stranded.
    Stranded,
}

impl<'p> Decisions<'p> {
    pub fn of(file: &'p PendingFile) -> Self {
        Self { file: Some(file) }
    }

    pub fn settled(&self, id: &OperationId) -> Settled<'p> {
        let Some(file) = self.file else { return Settled::Judge };
        let Some(call) = file.call(id) else { return Settled::Stranded };
        match (call.needs, call.decision) {
            (Needs::Nothing, _) => Settled::Judge,
            (Needs::Approval | Needs::Answer, None) => Settled::Undecided,
            (_, Some(Decision::Approve | Decision::Allow | Decision::Answer)) => Settled::Approved(call),
            (_, Some(Decision::Deny | Decision::Stale)) => Settled::Refused(call),
        }
    }

    /// Whether a person denied an operation that stands before `id` in the reply, in the same call or an earlier one.
    pub fn denied_before(&self, id: &OperationId) -> bool {
        let calls = self.file.map(|file| file.calls.as_slice()).unwrap_or_default();
        calls.iter().take_while(|call| call.operation_id() != *id).any(|call| call.decision == Some(Decision::Deny))
    }

    /// Whether this is a continuation at all.
    pub fn is_continuation(&self) -> bool {
        self.file.is_some()
    }
}

/// The permit for what was shown, or the answer that it is no longer that.
pub fn permit(call: &PendingCall, now: &Assessment) -> Result<Permit, Box<Answer>> {
    if !is_shown(call, now) {
        let shown = call.preview.as_ref();
        let changed = shown.map(|shown| changed_files(shown, &now.preview)).unwrap_or_default();
        let because =
            if changed.is_empty() { String::new() } else { format!(" Changed since then: {}.", changed.join(", ")) };
        let name = &call.name;
        let content =
            format!("What {name} would do is no longer what was shown and approved; nothing was done.{because}");
        return Err(Box::new(stale(&content)));
    }
    let by = match call.decision {
        Some(Decision::Allow) => DecidedBy {
            scope: call.granted.as_ref().map_or(Scope::Session, |granted| granted.scope),
            reason: Some("a rule that was granted with another approval covers it".to_owned()),
            rule: call.granted.as_ref().and_then(|granted| granted.rules.first().cloned()),
            matches: Vec::new(),
        },
        _ => DecidedBy { scope: Scope::Person, reason: None, rule: None, matches: Vec::new() },
    };
    let grounds = Grounds {
        decision: call.decision.unwrap_or(Decision::Approve),
        by,
        reason: call.reason.clone(),
        granted: call.granted.clone(),
    };
    Ok(Permit::new(Some(grounds), now.files.clone()).with_answer(call.answer.clone()))
}

/// Whether a call is what a person was shown.
pub fn is_shown(call: &PendingCall, now: &Assessment) -> bool {
    call.preview.as_ref().is_some_and(|shown| is_same_effect(shown, &now.preview))
}

/// The answer to a call that a person denied, or whose ground a denial took away.
pub fn refusal(call: &PendingCall) -> Answer {
    if call.decision == Some(Decision::Stale) {
        let files: Vec<&str> = call.preview.iter().flat_map(patched_files).map(|file| file.path.as_str()).collect();
        let files = files.join(", ");
        return stale(&format!("A patch that this one stands on was denied; nothing was written to {files}."));
    }
    let content = match (&call.reason, call.needs) {
        (Some(reason), Needs::Answer) => format!("The user did not answer: {reason}"),
        (None, Needs::Answer) => "The user did not answer, and gave no reason.".to_owned(),
        (Some(reason), Needs::Approval | Needs::Nothing) => format!("The user denied this call: {reason}"),
        (None, Needs::Approval | Needs::Nothing) => "The user denied this call and gave no reason.".to_owned(),
    };
    let by = DecidedBy { scope: Scope::Person, reason: None, rule: None, matches: Vec::new() };
    Answer {
        reason: call.reason.clone(),
        grounds: Some(Grounds { decision: Decision::Deny, by, reason: call.reason.clone(), granted: None }),
        ..Answer::new(ResultStatus::Denied, "denied", content)
    }
}

/// The result of a question that a person answered and whose call is not run any more.
pub fn answered(call: &PendingCall) -> Answer {
    let by = DecidedBy { scope: Scope::Person, reason: None, rule: None, matches: Vec::new() };
    let grounds = Grounds { decision: Decision::Answer, by, reason: None, granted: None };
    let content = call.answer.clone().unwrap_or_default();
    Answer { grounds: Some(grounds), ..Answer::new(ResultStatus::Ok, "answered", content) }
}

/// The result of a call that asked back and is not gone on with, although a person answered it.
pub fn answered_in_vain(call: &PendingCall) -> Answer {
    let text = call.answer.clone().unwrap_or_default();
    let by = DecidedBy { scope: Scope::Person, reason: None, rule: None, matches: Vec::new() };
    let content = format!(
        "It asked something back, and the user answered {text:?}. The answer was not passed on: a new prompt, or a repair, \
         closed its turn first. What it did before it asked stands."
    );
    let grounds = Grounds { decision: Decision::Answer, by, reason: Some(text), granted: None };
    Answer { grounds: Some(grounds), ..Answer::new(ResultStatus::Cancelled, "cancelled", content) }
}

/// The answer to a patch whose files are no longer what its preview started from.
pub fn stale(content: &str) -> Answer {
    Answer::new(ResultStatus::Error, "stale", content)
}

/// The files of a preview; none but a patch has any.
pub fn patched_files(preview: &Preview) -> &[PlannedFile] {
    match preview {
        Preview::Patch { files, .. } => files,
        Preview::Command { .. }
        | Preview::Read { .. }
        | Preview::Fetch { .. }
        | Preview::Question { .. }
        | Preview::Tool { .. } => &[],
    }
}

/// The files that a patch would no longer find as they were when it was shown.
fn changed_files<'p>(shown: &'p Preview, now: &Preview) -> Vec<&'p str> {
    let now = patched_files(now);
    patched_files(shown).iter().filter(|file| !now.contains(file)).map(|file| file.path.as_str()).collect()
}

/// Whether carrying out `now` does what `shown` said; the words around it may differ.
pub fn is_same_effect(shown: &Preview, now: &Preview) -> bool {
    // What was shown was masked; a file of before that was kept as it was.
    let (shown, now) = (shown.clone().masked(), now.clone().masked());
    match (&shown, &now) {
        (Preview::Patch { diff, files, why: _ }, Preview::Patch { diff: diff_now, files: files_now, why: _ }) => {
            diff == diff_now && files == files_now
        }
        (Preview::Read { path, why: _ }, Preview::Read { path: path_now, why: _ }) => path == path_now,
        (Preview::Command { .. }, Preview::Command { .. })
        | (Preview::Fetch { .. }, Preview::Fetch { .. })
        | (Preview::Question { .. }, Preview::Question { .. })
        | (Preview::Tool { .. }, Preview::Tool { .. }) => shown == now,
        _ => false,
    }
}
