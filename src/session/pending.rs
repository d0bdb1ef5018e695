//! `pending.json`: why a suspended turn waits, what was shown, what was decided.
//!
//! It only adds to the conversation: which calls are open is known from the log.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::permission::Rule;
use crate::session::record::{Decision, Granted, OperationId};
use crate::tool::Preview;

/// The version of the file's format.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingFile {
    pub format: u32,
    pub session: String,
    pub turn: u64,
    pub at: String,
    /// `awaiting_approval`, or `awaiting_answer` where questions alone are open.
    pub status: String,
    /// `sha256:` and 64 hex digits over calls, arguments, previews and grants; not over decisions.
    pub digest: String,
    pub calls: Vec<PendingCall>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingCall {
    pub id: String,
    #[serde(default)]
    pub operation: Option<u32>,
    pub name: String,
    /// As they will be used: unwrapped, split, coerced, defaults filled in.
    pub arguments: Value,
    pub needs: Needs,
    /// Why it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// Rules that would cover the call and no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Vec<Rule>>,
    #[serde(default)]
    pub decision: Option<Decision>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Granted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Needs {
    Approval,
    Answer,
    /// It is carried: it runs when the calls before it are decided, judged again.
    Nothing,
}

impl PendingCall {
    pub fn operation_id(&self) -> OperationId {
        OperationId { call_id: self.id.clone(), operation: self.operation }
    }

    /// Whether a person still has to say something about it.
    pub fn is_undecided(&self) -> bool {
        self.needs != Needs::Nothing && self.decision.is_none()
    }
}
