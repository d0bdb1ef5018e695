//! The records of a conversation: one JSON object a line of `conversation.jsonl`.
//!
//! Shapes only. Unknown fields and unknown record types are ignored when read (the file itself keeps them), so that a
//! newer attini's log still loads. Times are RFC 3339 UTC with milliseconds.

mod summary;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::summary::{Covered, SummaryRecord, Totals, TurnSoFar};
use crate::permission::Rule;

/// The version of the record format, in the `session` record.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    Session(SessionRecord),
    User(UserRecord),
    Assistant(AssistantRecord),
    Decision(DecisionRecord),
    ToolStart(ToolStartRecord),
    CallWaiting(CallWaitingRecord),
    OperationResult(OperationResultRecord),
    ToolResult(ToolResultRecord),
    TurnEnd(TurnEndRecord),
    Notice(NoticeRecord),
    Summary(Box<SummaryRecord>),
    Imported(ImportedRecord),
    /// A record that a newer attini wrote.
    #[serde(other)]
    Unknown,
}

impl Record {
    /// Reads one line of a log. What is unknown in it, a field or the whole record, may be nested however deep: it is
    /// passed over, not built.
    pub fn parse(line: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            r#type: String,
        }
        let head: Head = serde_json::from_slice(line)?;
        Ok(match head.r#type.as_str() {
            "session" => Self::Session(serde_json::from_slice(line)?),
            "user" => Self::User(serde_json::from_slice(line)?),
            "assistant" => Self::Assistant(serde_json::from_slice(line)?),
            "decision" => Self::Decision(serde_json::from_slice(line)?),
            "tool_start" => Self::ToolStart(serde_json::from_slice(line)?),
            "call_waiting" => Self::CallWaiting(serde_json::from_slice(line)?),
            "operation_result" => Self::OperationResult(serde_json::from_slice(line)?),
            "tool_result" => Self::ToolResult(serde_json::from_slice(line)?),
            "turn_end" => Self::TurnEnd(serde_json::from_slice(line)?),
            "notice" => Self::Notice(serde_json::from_slice(line)?),
            "summary" => Self::Summary(serde_json::from_slice(line)?),
            "imported" => Self::Imported(serde_json::from_slice(line)?),
            _ => Self::Unknown,
        })
    }
}

/// First line of every log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub format: u32,
    pub id: String,
    pub at: String,
    /// The version of attini that made the session.
    pub attini: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserRecord {
    pub turn: u64,
    pub at: String,
    pub text: String,
    pub settings: TurnSettings,
}

/// What a turn was started with; a continuation uses it, and only an explicit option beats it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnSettings {
    /// `PROVIDER/MODEL`.
    pub model: String,
    /// The system prompt up to `deferred`, so that it stays the same bytes all turn.
    pub system: String,
    pub max_rounds: u64,
    pub max_tool_calls: u64,
    /// 0: none.
    pub max_time_s: u64,
    pub max_tokens: Option<u64>,
    pub temperature: Option<f64>,
    pub reasoning_effort: Option<String>,
    pub output_schema: Option<Value>,
    pub command_timeout_s: u64,
    pub read_only: bool,
    pub on_ask: OnAsk,
    /// The rules of `--deny`, in the order typed.
    pub deny: Vec<Rule>,
    pub calls_per_reply: u64,
    pub result_bytes: u64,
    pub round_result_bytes: u64,
    pub output_bytes: u64,
    pub trailing_reads: TrailingReads,
    /// How many adjacent reads run at a time, resolved (never 0).
    pub concurrency: u64,
    /// The tools whose calls carry several operations.
    pub fan_out: BTreeMap<String, FanOut>,
    /// The tools that the requests hold: a hash of each one's description and schema, by name.
    pub tools: BTreeMap<String, String>,
    /// The end of the system prompt: what it says of deferred tools. Empty where there are none.
    pub deferred: String,
    /// Past so many tokens older rounds are summarised; 0: three quarters of what the model takes, where that is known.
    pub compact_at_tokens: u64,
}

/// How a tool carries several operations in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FanOut {
    /// How many of a call's operations run at a time; `None`: no limit but the dispatch's own, and one after the other
    /// for a tool that runs alone.
    pub concurrency: Option<u64>,
    pub on_error: OnError,
    pub max_operations: u64,
}

/// What a failed operation means for those behind it in its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    #[default]
    Continue,
    /// They are not run.
    Stop,
}

/// How many operations one call may carry, unless config says otherwise.
pub const OPERATIONS_MAX: u64 = 64;

impl Default for FanOut {
    fn default() -> Self {
        Self { concurrency: None, on_error: OnError::Continue, max_operations: OPERATIONS_MAX }
    }
}

/// What becomes of a call that must ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum OnAsk {
    /// Write pending.json and exit.
    #[default]
    Suspend,
    /// Deny it and go on.
    Deny,
    /// Cancel it and all behind it, and end the turn.
    Fail,
}

/// What becomes of calls behind one that must ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrailingReads {
    /// They are kept in pending.json and run after the decision, in place.
    #[default]
    Carry,
    /// They are left without a result and repaired on resume.
    Strand,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantRecord {
    pub turn: u64,
    /// Counts within its turn, from 1.
    pub round: u64,
    pub at: String,
    pub provider: String,
    pub model: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// The service's own word.
    pub finish_reason: String,
    #[serde(default)]
    pub usage: Usage,
    /// What the provider wants back unchanged; meaningless to any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

/// A call as the model wrote it, but for its id, which intake made unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// The model's own string, whether it parses or not.
    pub arguments: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

/// Tokens, as the service counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_input_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_input_tokens = self.cached_input_tokens.saturating_add(other.cached_input_tokens);
    }
}

/// Names one operation: `call_7`, or `call_7#2` for the second of a fan-out call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId {
    pub call_id: String,
    /// From 1; `None` for a call that carries a single operation.
    pub operation: Option<u32>,
}

impl OperationId {
    pub fn whole(call_id: impl Into<String>) -> Self {
        Self { call_id: call_id.into(), operation: None }
    }

    /// The id as part of a file's name.
    pub fn file_name(&self) -> String {
        self.to_string().replace('#', ".")
    }

    /// Reads `call_7` or `call_7#2`, the number as attini writes it. Any text names something, if only an unknown call.
    pub fn parse(text: &str) -> Self {
        if let Some((call_id, number)) = text.rsplit_once('#')
            && let Ok(operation) = number.parse()
            && is_written_plainly(number)
        {
            return Self { call_id: call_id.to_owned(), operation: Some(operation) };
        }
        Self::whole(text)
    }
}

/// Whether a number has no sign and no leading zero, so that an id has one spelling alone.
fn is_written_plainly(number: &str) -> bool {
    number.starts_with(|first: char| matches!(first, '1'..='9'))
}

impl fmt::Display for OperationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Some(operation) => write!(formatter, "{}#{operation}", self.call_id),
            None => formatter.write_str(&self.call_id),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    pub call_id: String,
    #[serde(default)]
    pub operation: Option<u32>,
    pub decision: Decision,
    pub auto_decided_by: DecidedBy,
    /// A person's words.
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Granted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// By a rule or a default.
    Allow,
    /// By a person.
    Approve,
    Deny,
    /// A question was answered.
    Answer,
    /// A patch it stands on was denied: it no longer applies (in pending.json alone).
    Stale,
}

/// Who or what decided, and on which grounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecidedBy {
    pub scope: Scope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Every rule that matched, weakest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<RuleMatch>,
}

/// A rule that matched, and the layer it stands in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleMatch {
    pub scope: Scope,
    pub rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Builtin,
    Config,
    User,
    Workspace,
    Session,
    Turn,
    CommandLine,
    Person,
    Repair,
}

/// Rules that an approval stored besides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    pub scope: Scope,
    pub rules: Vec<Rule>,
}

/// A call that was started asked back: it waits for a person's answer, and is started once more with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallWaitingRecord {
    pub call_id: String,
    #[serde(default)]
    pub operation: Option<u32>,
    pub question: String,
    /// What its tool needs to go on with an answer; nobody else reads it.
    #[serde(default)]
    pub state: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolStartRecord {
    pub call_id: String,
    #[serde(default)]
    pub operation: Option<u32>,
    pub at: String,
    /// A patch's files, so that recovery can tell what was written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PlannedFile>,
}

/// One file of a patch: what it was and what it is to become.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    /// The resolved path: relative to the workspace, or absolute outside it.
    pub path: String,
    pub change: Change,
    /// `None`: there is no such file.
    pub sha256_before: Option<String>,
    pub sha256_after: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Add,
    Update,
    Delete,
    Move,
}

/// How a call ended. There is exactly one for every call, and it is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    Ok,
    Error,
    Denied,
    Cancelled,
    /// It was started and may have taken effect.
    Unknown,
    /// Operations alone: one before it failed.
    NotRun,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResultRecord {
    pub call_id: String,
    pub at: String,
    pub status: ResultStatus,
    /// A stable word for why, where there is one.
    #[serde(default)]
    pub code: Option<String>,
    /// What the model reads; never empty.
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_decided_by: Option<DecidedBy>,
    #[serde(default)]
    pub duration_ms: u64,
    /// The whole output, relative to the session folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file: Option<String>,
    /// What it was called on the screen while it ran, as in `read src/main.rs`; `None` for a call that was never begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tools whose schemas it gave the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetched: Vec<String>,
}

/// The result of one operation of a fan-out call; the fields of [`ToolResultRecord`] beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationResultRecord {
    pub call_id: String,
    pub operation: u32,
    pub at: String,
    pub status: ResultStatus,
    #[serde(default)]
    pub code: Option<String>,
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_decided_by: Option<DecidedBy>,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tools whose schemas it gave the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetched: Vec<String>,
    /// The operation whose failure stopped this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub media_type: String,
    /// Relative to the session folder.
    pub file: String,
}

/// The session came from elsewhere up to here. What is before was done on other files, and may be made up: nothing that
/// attini may do to the files here follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportedRecord {
    pub at: String,
}

/// Something that happened outside of any call, told to the model with the next request. Written once for each, and only
/// when every call is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoticeRecord {
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The turn whose patches were undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    pub outcome: NoticeOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What the model reads.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeOutcome {
    Exited,
    Killed,
    Lost,
    Undone,
    /// One that a newer attini knows.
    #[serde(other)]
    Unknown,
}

/// Where an invocation left a turn; the last one of a turn counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEndRecord {
    pub turn: u64,
    pub at: String,
    pub status: TurnStatus,
    /// Which limit was reached: `rounds`, `tool_calls`, `time` or `tokens`.
    #[serde(default)]
    pub limit: Option<String>,
    /// Of all the turn's invocations so far, as are the fields below.
    pub elapsed_ms: u64,
    pub rounds: u64,
    pub tool_calls: u64,
    pub usage: Usage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    Completed,
    AwaitingApproval,
    AwaitingAnswer,
    ProviderError,
    LimitReached,
    Interrupted,
    Error,
    /// A new prompt came while calls were pending.
    Dropped,
    /// A newer attini's word.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        for (text, operation) in [
            ("k7", None),
            ("k7#2", Some(2)),
            ("k7#10", Some(10)),
            ("k7#02", None),
            ("k7#+1", None),
            ("k7#0", None),
            ("k7#-1", None),
            ("k7#", None),
            ("k7# 1", None),
            ("k7#4294967296", None),
        ] {
            let id = OperationId::parse(text);
            assert_eq!((id.operation, id.to_string().as_str()), (operation, text));
        }
    }

    #[test]
    fn every_record_reads_back_and_what_is_unknown_is_passed_over() {
        let usage = json!({"input_tokens": 1, "output_tokens": 2, "cached_input_tokens": 0});
        for value in [
            json!({"type": "session", "format": 1, "id": "0", "at": "T", "attini": "0"}),
            json!({"type": "user", "turn": 1, "at": "T", "text": "go", "settings": {"model": "a/b"}}),
            json!({"type": "assistant", "turn": 1, "round": 1, "at": "T", "provider": "a", "model": "b", "text": "",
                "tool_calls": [{"id": "c", "name": "read", "arguments": "{"}], "finish_reason": "stop"}),
            json!({"type": "decision", "call_id": "c", "decision": "deny", "auto_decided_by": {"scope": "person"}}),
            json!({"type": "tool_start", "call_id": "c", "operation": 2, "at": "T"}),
            json!({"type": "call_waiting", "call_id": "c", "operation": 2, "question": "?", "state": {"s": [1]}}),
            json!({"type": "operation_result", "call_id": "c", "operation": 2, "at": "T", "status": "ok", "content": "x"}),
            json!({"type": "tool_result", "call_id": "c", "at": "T", "status": "ok", "content": "x", "fetched": ["a"]}),
            json!({"type": "turn_end", "turn": 1, "at": "T", "status": "completed", "elapsed_ms": 1, "rounds": 1,
                "tool_calls": 1, "usage": usage}),
            json!({"type": "summary", "at": "T", "text": "x", "provider": "a", "model": "b", "through_turn": 1,
                "through_round": 2, "through_offset": 300, "covered": {"totals": {"replies": 2, "usage": usage},
                "fetched": ["a"], "user": {"turn": 1, "at": "T", "text": "go", "settings": {}}, "turn_open": true}}),
            json!({"type": "imported", "at": "T"}),
        ] {
            let record: Record = serde_json::from_value(value.clone()).unwrap();
            assert_ne!(record, Record::Unknown);
            assert_eq!(Record::parse(&serde_json::to_vec(&record).unwrap()).unwrap(), record);
            let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
            let text = value.to_string();
            let line = format!("{},\"later\":{deep}}}", &text[..text.len() - 1]);
            assert_eq!(Record::parse(line.as_bytes()).unwrap(), record, "{value}");
            assert_eq!(
                Record::parse(format!("{{\"x\":{deep},\"type\":\"new\"}}").as_bytes()).unwrap(),
                Record::Unknown
            );
        }
        for line in ["", "{}", "[]", "7", "{\"type\":7}", "{\"type\":\"new\"", "{\"type\":\"user\",\"turn\":-1}"] {
            assert!(Record::parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
