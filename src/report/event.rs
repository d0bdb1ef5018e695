//! What an invocation tells of: events as they happen, and the one result object at the end.
//!
//! Shapes only; where and how they are written is decided in [`super`]. Common fields (`at`, `session`, `turn`) are
//! added there.

use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::permission::Rule;
use crate::session::pending::Needs;
use crate::session::record::{Decision, Granted, OperationId, ResultStatus, Usage};
use crate::tool::Preview;
use crate::turn::compaction::Compacted;

#[derive(Debug, Clone)]
pub enum Event {
    TurnStarted {
        model: String,
    },
    RoundStarted {
        round: u64,
    },
    TextDelta {
        text: String,
    },
    ReasoningDelta {
        text: String,
    },
    ToolStarted {
        call: CallLabel,
        arguments: Value,
        summary: String,
    },
    ToolHeartbeat {
        call: CallLabel,
        elapsed_ms: u64,
        output_bytes: u64,
    },
    ToolResult {
        call: CallLabel,
        status: ResultStatus,
        code: Option<String>,
        content: String,
        duration_ms: u64,
    },
    Awaiting {
        pending: Vec<PendingView>,
        digest: String,
    },
    Retrying {
        attempt: u32,
        delay_ms: u64,
        reason: String,
    },
    /// Older rounds are summarised; the record is on disk.
    Compacted(Compacted),
    Warning {
        message: String,
    },
}

/// `call_id`, `name` and, under fan-out, `operation` of a tool event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLabel {
    pub id: OperationId,
    pub name: String,
}

/// What a call is called on the screen while it runs and when it has ended.
pub fn title_of(tool: &str, summary: &str) -> String {
    format!("{tool} {summary}")
}

/// A pending call as the result object and `awaiting` list it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PendingView {
    /// As a person types it: `call_2`, `call_7#2`.
    pub id: String,
    pub name: String,
    pub summary: String,
    pub needs: Needs,
    pub why: Option<String>,
    pub decision: Option<Decision>,
    pub preview: Option<Preview>,
    pub grant: Option<Vec<Rule>>,
    /// The rules that its approval stores when the turn goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<Granted>,
}

/// The result object of a command that runs a turn.
#[derive(Debug, Clone, Serialize)]
pub struct TurnResult {
    pub r#type: &'static str,
    pub status: &'static str,
    pub exit_code: u8,
    pub session: Option<String>,
    pub turn: Option<u64>,
    pub rounds: Option<u64>,
    pub text: Option<String>,
    pub finish_reason: Option<String>,
    pub pending: Vec<PendingView>,
    pub digest: Option<String>,
    pub tool_calls: Option<u64>,
    pub usage: Option<Usage>,
    /// Of the last reply alone.
    pub round_usage: Option<Usage>,
    /// Of all turns and summaries.
    pub session_usage: Option<Usage>,
    pub error: Option<ErrorView>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ErrorView {
    pub code: String,
    pub message: String,
    pub retryable: bool,
    pub hint: Option<String>,
}

impl TurnResult {
    /// The result of an invocation that failed before it knew of a turn.
    pub fn failed(failure: &Failure) -> Self {
        Self {
            r#type: "result",
            status: failure.status.name(),
            exit_code: failure.status.code(),
            session: None,
            turn: None,
            rounds: None,
            text: None,
            finish_reason: None,
            pending: Vec::new(),
            digest: None,
            tool_calls: None,
            usage: None,
            round_usage: None,
            session_usage: None,
            error: Some(ErrorView::from(failure)),
        }
    }
}

impl From<&Failure> for ErrorView {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.clone(),
            message: failure.message.clone(),
            retryable: failure.retryable,
            hint: failure.hint.clone(),
        }
    }
}
