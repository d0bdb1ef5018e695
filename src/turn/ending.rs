//! Leaving a turn: its `turn_end` on disk, then the result object.

use serde_json::Value;

use super::Turn;
use super::decisions::waits;
use super::dispatch::WouldAsk;
use super::rounds::{Ending, Limit};
use crate::clock;
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::Rule;
use crate::report::event::{ErrorView, PendingView, TurnResult};
use crate::report::{shell_quote, to_json};
use crate::session::history::History;
use crate::session::pending::{PendingCall, PendingFile};
use crate::session::record::{Record, TurnEndRecord, TurnStatus};

/// How much of a carried call's arguments is shown.
const CARRIED_CHARACTERS_MAX: usize = 200;

impl TurnStatus {
    /// As records and pending.json write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::AwaitingApproval => "awaiting_approval",
            Self::AwaitingAnswer => "awaiting_answer",
            Self::ProviderError => "provider_error",
            Self::LimitReached => "limit_reached",
            Self::Interrupted => "interrupted",
            Self::Error => "error",
            Self::Dropped => "dropped",
            Self::Unknown => "unknown",
        }
    }
}

impl Turn<'_> {
    /// Records where this invocation leaves the turn. A suspended turn's end is on disk already.
    pub fn append_turn_end(&mut self, status: TurnStatus, limit: Option<Limit>) -> anyhow::Result<()> {
        let spent = self.spent();
        self.log.append(&Record::TurnEnd(TurnEndRecord {
            turn: self.history().turn(),
            at: clock::now(),
            status,
            limit: limit.map(|limit| limit.name().to_owned()),
            elapsed_ms: spent.elapsed_ms,
            rounds: spent.rounds,
            tool_calls: spent.tool_calls,
            usage: spent.usage,
        }))
    }

    /// Puts the ending on disk and makes the result object of it.
    pub fn end(&mut self, ending: Ending) -> anyhow::Result<TurnResult> {
        let (turn_status, limit) = match &ending {
            Ending::Completed => (Some(TurnStatus::Completed), None),
            Ending::Suspended(_) => (None, None),
            Ending::WouldAsk(asked) if asked.questions_alone => (Some(TurnStatus::AwaitingAnswer), None),
            Ending::WouldAsk(_) => (Some(TurnStatus::AwaitingApproval), None),
            Ending::Provider(_) => (Some(TurnStatus::ProviderError), None),
            Ending::Limit(limit) => (Some(TurnStatus::LimitReached), Some(*limit)),
            Ending::Interrupted(_) => (Some(TurnStatus::Interrupted), None),
        };
        if let Some(status) = turn_status {
            self.append_turn_end(status, limit)?;
        }
        self.log.barrier()?;
        Ok(match ending {
            Ending::Completed => self.result(Status::Completed, None, None),
            Ending::Suspended(file) => {
                let status =
                    if file.awaits_answers_alone() { Status::AwaitingAnswer } else { Status::AwaitingApproval };
                self.result(status, Some(&file), None)
            }
            Ending::WouldAsk(asked) => {
                let failure = would_ask_failure(&asked);
                self.result(failure.status, None, Some(&failure))
            }
            Ending::Provider(error) => {
                let failure = Failure {
                    status: Status::ProviderError,
                    code: error.code,
                    message: error.message,
                    hint: error.hint,
                    retryable: error.retryable,
                };
                self.result(Status::ProviderError, None, Some(&failure))
            }
            Ending::Limit(limit) => {
                let failure = self.limit_failure(limit);
                self.result(Status::LimitReached, None, Some(&failure))
            }
            Ending::Interrupted(signal) => {
                let failure = Failure::new(Status::Interrupted(signal), "interrupted by a signal")
                    .hint("`attini resume` goes on with the turn")
                    .retryable(true);
                self.result(Status::Interrupted(signal), None, Some(&failure))
            }
        })
    }

    fn limit_failure(&self, limit: Limit) -> Failure {
        let message = match limit {
            Limit::Rounds => format!("the turn reached its limit of {} rounds", self.settings.max_rounds),
            Limit::ToolCalls => format!("the turn went past its limit of {} calls", self.settings.max_tool_calls),
            Limit::Time => format!("the turn reached its limit of {} seconds", self.settings.max_time_s),
            Limit::Tokens => "the reply was cut at the limit of its length".to_owned(),
        };
        Failure::new(Status::LimitReached, message).hint("`attini resume` goes on with fresh limits").retryable(true)
    }

    /// The result object of this turn as it stands.
    pub fn result(&self, status: Status, pending: Option<&PendingFile>, error: Option<&Failure>) -> TurnResult {
        let mut result = result_of(self.history(), status, pending, error);
        result.session = Some(self.folder.name.clone());
        result
    }
}

fn would_ask_failure(asked: &WouldAsk) -> Failure {
    let (status, what) = if asked.questions_alone {
        (Status::AwaitingAnswer, "the model asked a question")
    } else {
        (Status::AwaitingApproval, "a call would have had to ask")
    };
    let failure =
        Failure::new(status, format!("{what}, and with `--on-ask fail` the turn ends there")).code("would_ask");
    if asked.rules.is_empty() {
        return failure;
    }
    let rules = shell_quote(asked.rules.iter().map(Rule::to_line));
    failure.hint(format!("this would have allowed it: `attini rules add {rules}`"))
}

/// The result object for a conversation that this invocation only read, or left as it was.
pub fn result_of(
    history: &History,
    status: Status,
    pending: Option<&PendingFile>,
    error: Option<&Failure>,
) -> TurnResult {
    let spent = history.spent();
    let round = history.last_round();
    TurnResult {
        r#type: "result",
        status: status.name(),
        exit_code: status.code(),
        session: None,
        turn: Some(history.turn()),
        rounds: Some(spent.rounds),
        text: Some(round.map(|round| round.assistant.text.clone()).unwrap_or_default()),
        finish_reason: round.map(|round| round.assistant.finish_reason.clone()),
        pending: pending.map(|file| file.waiting_views(history)).unwrap_or_default(),
        digest: pending.map(|file| file.digest.clone()),
        tool_calls: Some(spent.tool_calls),
        usage: Some(spent.usage),
        round_usage: round.map(|round| round.assistant.usage),
        session_usage: Some(history.session_usage()),
        error: error.map(error_view),
    }
}

pub fn error_view(failure: &Failure) -> ErrorView {
    ErrorView {
        code: failure.code.clone(),
        message: failure.message.clone(),
        retryable: failure.retryable,
        hint: failure.hint.clone(),
    }
}

impl PendingFile {
    /// Every call of the file.
    pub fn views(&self) -> Vec<PendingView> {
        self.calls.iter().map(PendingCall::view).collect()
    }

    /// What is undecided, or decided and waiting for it. What an interrupted continuation answered or started is not.
    pub fn waiting_views(&self, history: &History) -> Vec<PendingView> {
        self.calls.iter().filter(|call| waits(&call.operation_id(), history)).map(PendingCall::view).collect()
    }
}

/// The arguments on one line, for a call that nobody has looked into yet.
fn shortened(arguments: &Value) -> String {
    let whole = to_json(arguments);
    match whole.char_indices().nth(CARRIED_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &whole[..end]),
        None => whole,
    }
}

impl PendingCall {
    /// As the result object lists it, and a person is shown it.
    pub fn view(&self) -> PendingView {
        PendingView {
            id: self.operation_id().to_string(),
            name: self.name.clone(),
            summary: self.summary.clone().unwrap_or_else(|| shortened(&self.arguments)),
            needs: self.needs,
            why: self.why.clone(),
            decision: self.decision,
            preview: self.preview.clone(),
            grant: self.grant.clone(),
            granted: self.granted.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_carried_call_is_shown_by_its_arguments() {
        assert_eq!(shortened(&json!({"path": "a\nb"})), r#"{"path":"a\nb"}"#);
        let long = shortened(&json!({"path": "ü".repeat(1000)}));
        assert_eq!(long.chars().count(), CARRIED_CHARACTERS_MAX + 3);
        assert!(long.ends_with("üü..."));
    }
}
