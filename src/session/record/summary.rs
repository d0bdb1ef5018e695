//! The `summary` record: older rounds in the model's own words, and what loading needs of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{TurnEndRecord, Usage, UserRecord};

/// Stands for all records before `through_offset`, which stay in the log and are not read to go on. Written only when
/// every call is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryRecord {
    pub at: String,
    /// What the model wrote.
    pub text: String,
    pub provider: String,
    pub model: String,
    /// Of the request that asked for it.
    #[serde(default)]
    pub usage: Usage,
    /// The last round that is covered; round 0 is the turn's prompt.
    pub through_turn: u64,
    pub through_round: u64,
    /// Where the first record begins that is not covered, in bytes.
    pub through_offset: u64,
    pub covered: Covered,
}

/// All that counts of the records before an offset, as it stood there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Covered {
    pub totals: Totals,
    /// Of the last turn that it holds a record of.
    pub turn: TurnSoFar,
    /// The tools whose schemas the model was given.
    pub fetched: BTreeSet<String>,
    /// The background tasks whose end the model was told.
    pub delivered_tasks: BTreeSet<String>,
    /// SHA-256 of each file as a patch last left it, by its resolved path.
    pub written: BTreeMap<String, String>,
    /// The prompt of the last turn, with its settings.
    pub user: Option<UserRecord>,
    /// The turn goes on behind the covered part, so that its prompt is sent whole.
    pub turn_open: bool,
}

/// What a session has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    pub turns: u64,
    pub replies: u64,
    /// Calls, not operations.
    pub calls: u64,
    /// Of the replies.
    pub usage: Usage,
    /// Of the requests for summaries.
    pub summaries: Usage,
}

/// What a turn has used, and how its invocations left it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnSoFar {
    pub rounds: u64,
    /// Operations.
    pub tool_calls: u64,
    pub usage: Usage,
    pub summaries: Usage,
    pub turn_end: Option<TurnEndRecord>,
    pub replied_since_end: bool,
    pub limit_reached: Option<TurnEndRecord>,
}
