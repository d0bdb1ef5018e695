//! `pending.json`: why a suspended turn waits, what was shown, what was decided.
//!
//! It only adds to the conversation: which calls are open is known from the log.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::Rule;
use crate::session::folder::{FILE_MODE, SessionFolder};
use crate::session::record::{Decision, Granted, OperationId, TurnStatus};
use crate::tool::Preview;

/// The version of the file's format.
pub const FORMAT: u32 = 1;

/// Its name in the session folder.
pub const FILE_NAME: &str = "pending.json";

/// The largest file that is read; calls and previews are bounded well below it.
pub const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

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

/// Why there is nothing to be had from a pending.json.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// A newer attini wrote it.
    Newer {
        format: u32,
    },
    Broken(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { format } => write!(formatter, "it has format {format}, and this attini knows {FORMAT}"),
            Self::Broken(why) => formatter.write_str(why),
        }
    }
}

impl Needs {
    /// What a call waits for that asks, by what a person is shown of it.
    pub fn of(preview: &Preview) -> Self {
        if preview.is_question() { Self::Answer } else { Self::Approval }
    }
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

impl PendingFile {
    /// Reads the file; `None` where there is none. One that is empty or does not parse is corrupt.
    pub fn load(folder: &SessionFolder) -> anyhow::Result<Option<Self>> {
        let shown = folder.display(FILE_NAME);
        let bytes = match folder.root.read(Path::new(FILE_NAME), FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                // What the system cannot read today says nothing about what it holds; a folder or a flood of bytes does.
                let status = if error.raw_os_error().is_none() { Status::Corrupt } else { Status::Error };
                return Err(folder.unopened(FILE_NAME, &error, |what| Failure::new(status, what)).into());
            }
        };
        Self::parse(&bytes).map(Some).map_err(|unusable| {
            Failure::corrupt(format!("{shown}: {unusable}"))
                .hint("nothing was changed; `attini check --repair` sets the file aside, which drops the pending calls")
                .into()
        })
    }

    /// Reads what the file holds.
    pub fn parse(bytes: &[u8]) -> Result<Self, Unusable> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        // A newer format may lack what this one needs.
        if let Ok(Head { format }) = serde_json::from_slice(bytes)
            && format > FORMAT
        {
            return Err(Unusable::Newer { format });
        }
        serde_json::from_slice(bytes).map_err(|error| Unusable::Broken(error.to_string()))
    }

    /// Puts the file in place as a whole: written, synced, renamed, its folder synced.
    pub fn store(&self, folder: &SessionFolder) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        folder.root.replace(Path::new(FILE_NAME), &bytes, FILE_MODE).map_err(|error| {
            Failure::persistence(format!("{} cannot be written: {error}", folder.display(FILE_NAME))).into()
        })
    }

    /// Removes the file for good.
    pub fn remove(folder: &SessionFolder) -> anyhow::Result<()> {
        let removed = folder.root.remove_file(Path::new(FILE_NAME)).and_then(|()| folder.root.sync());
        match removed {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => {
                let message = format!("{} cannot be removed: {error}", folder.display(FILE_NAME));
                Err(Failure::persistence(message).into())
            }
        }
    }

    /// The digest of these calls: over what was shown and what would run, not over what was decided.
    pub fn digest_of(calls: &[PendingCall]) -> String {
        let shown: Vec<Value> = calls
            .iter()
            .map(|call| {
                json!({
                    "id": call.id,
                    "operation": call.operation,
                    "name": call.name,
                    "arguments": call.arguments,
                    "needs": call.needs,
                    "why": call.why,
                    "summary": call.summary,
                    "preview": call.preview,
                    "grant": call.grant,
                })
            })
            .collect();
        let hash = Sha256::digest(Value::Array(shown).to_string().as_bytes());
        hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
    }

    pub fn call(&self, id: &OperationId) -> Option<&PendingCall> {
        self.calls.iter().find(|call| call.id == id.call_id && call.operation == id.operation)
    }

    pub fn undecided(&self) -> impl Iterator<Item = &PendingCall> {
        self.calls.iter().filter(|call| call.is_undecided())
    }

    /// Makes the status say what is still open. Where nothing is, it stays: the turn goes on.
    pub fn refresh_status(&mut self) {
        if self.undecided().next().is_some() {
            let status =
                if self.awaits_answers_alone() { TurnStatus::AwaitingAnswer } else { TurnStatus::AwaitingApproval };
            status.name().clone_into(&mut self.status);
        }
    }

    /// Whether what is still open are questions alone.
    pub fn awaits_answers_alone(&self) -> bool {
        self.undecided().all(|call| call.needs == Needs::Answer)
    }
}

#[cfg(test)]
mod tests;
