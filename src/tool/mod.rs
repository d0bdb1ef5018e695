//! What a tool is to the rest of attini, and the registry of those that exist.
//!
//! A tool computes: it says what a call would touch, and does it when told to. Whether it may, when it runs, and what
//! becomes of its result is decided in `call`.

pub mod ask_user;
pub mod command;
pub mod deferral;
#[cfg(test)]
pub(crate) mod fake;
pub mod fetch;
pub mod find_tools;
pub mod heartbeat;
pub mod list;
pub mod output;
pub mod own;
pub mod patch;
pub mod read;
pub mod registry;
#[cfg(test)]
pub(crate) mod scene;
pub mod schema;
pub mod search;
mod target;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::interrupt::Interrupt;
use crate::mask;
use crate::permission::{Access, HostVerdict, ReadDenials};
use crate::session::folder::SessionFolder;
use crate::session::record::{Attachment, PlannedFile, ResultStatus};
use crate::workspace::root::Root;
use crate::workspace::{Workspace, World};

/// A tool of any source. All methods but `run` leave the world as it is.
pub trait Tool: Send + Sync {
    fn name(&self) -> &str;

    /// What the model reads about it.
    fn description(&self) -> &str;

    /// The JSON Schema of its arguments: an object, unknown properties refused.
    fn parameters(&self) -> &Value;

    /// The schema as model services are told it, where they would refuse the tool's own.
    fn advertised_parameters(&self) -> &Value {
        self.parameters()
    }

    /// Where it comes from: `builtin`, `config`, or `mcp:NAME`.
    #[expect(clippy::unnecessary_literal_bound, reason = "a server's tool names its server")]
    fn source(&self) -> &str {
        "builtin"
    }

    fn effect(&self) -> Effect;

    /// Whether what a read finds depends on this machine's files.
    fn locality(&self) -> Locality {
        Locality::Here
    }

    /// Whether its calls may run beside their neighbours, where config does not say.
    fn is_concurrent(&self) -> bool {
        self.effect() == Effect::Read
    }

    /// Whether these arguments ask for a fresh answer even where an earlier one is known.
    fn asks_anew(&self, _arguments: &Value) -> bool {
        false
    }

    /// Gathers into `world` what [`Tool::assess`] needs to know: what its paths resolve to, what its files hold.
    /// `arguments` fit the schema. What cannot be resolved is put there as a refusal.
    fn look(&self, arguments: &Value, surroundings: &Surroundings<'_>, world: &mut World);

    /// What the call would touch and what a person is shown; or why it cannot run. A pure function: it asks nothing of
    /// the world but `world`, with the files in `overlay` as earlier patches of the same reply will leave them.
    fn assess(&self, arguments: &Value, world: &World, overlay: &Overlay) -> Result<Assessment, Refusal>;

    /// What a person is shown of a call of this tool that asked back in its middle, from what [`Waits`] said then. `None`:
    /// this tool never asks back.
    fn asked_back(&self, _asked: &Waits, _round: u32) -> Option<Preview> {
        None
    }

    /// Refuses an answer that is none to what the tool asked back; the message is for the person.
    fn ensure_answers(&self, _asked: &Waits, _answer: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// Does it. Only `call::executed` calls this, with a permit where there are effects.
    fn run(&self, work: &Work<'_>) -> Outcome;
}

/// Whether running a tool can change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It can be repeated, dropped or run beside others.
    Read,
    /// It is started at most once, with its start on disk first.
    SideEffect,
}

/// What a read's result depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// Files of this machine, below the argument `path`.
    Here,
    Elsewhere,
}

/// Files as the patches of this reply that were planned before will leave them, by absolute path; `None`: gone.
pub type Overlay = BTreeMap<PathBuf, Option<LeftFile>>;

/// A file as a patch leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftFile {
    pub bytes: Arc<[u8]>,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// What a call would do, in terms that a rule, a person and recovery understand.
#[derive(Debug, Clone, PartialEq)]
pub struct Assessment {
    /// One line, whole: `cargo test`, `src/main.rs, src/lib.rs`.
    pub summary: String,
    pub accesses: Vec<Access>,
    pub preview: Preview,
    /// A patch's files, in the order first named; empty for every other tool.
    pub files: Vec<PlannedFile>,
    /// What a patch leaves behind, for the overlay.
    pub after: Overlay,
    /// Why it would fail as things stand.
    pub moot: Option<Moot>,
}

/// What becomes of a call that would fail as things stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moot {
    /// No person is asked about it; the model is told this instead.
    Plain(Refusal),
    /// That it would fail says what is in files that are not read unasked: where a person is to be asked, that comes
    /// first all the same, and the model is told afterwards.
    Veiled(Refusal),
}

impl Moot {
    pub fn refusal(&self) -> &Refusal {
        match self {
            Self::Plain(refusal) | Self::Veiled(refusal) => refusal,
        }
    }
}

/// What a person is shown before deciding, whole; it is escaped where it is printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Preview {
    Command {
        argv: Vec<String>,
        cwd: String,
        stdin: Option<String>,
        background: bool,
    },
    Patch {
        diff: String,
        files: Vec<PlannedFile>,
        /// Why it asks.
        why: String,
    },
    /// A read that asks: outside the workspace, or of a secret.
    Read {
        path: String,
        why: String,
    },
    Fetch {
        url: String,
    },
    /// It waits for an answer, where all others wait for consent. A person may choose, or answer freely.
    Question {
        question: String,
        choices: Vec<String>,
        /// What an answer has to be, where it is JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Value>,
        /// Of a call that asks back in its middle: how often it has asked, so that no answer is taken for another's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        round: Option<u32>,
    },
    /// Any other tool.
    Tool {
        arguments: Value,
    },
}

impl Preview {
    /// As it is shown, kept and compared: no key of attini's stands in it.
    #[must_use]
    pub fn masked(self) -> Self {
        // What was made from a value of its own is read back from one.
        let masked = serde_json::to_value(&self).ok().map(mask::value);
        masked.and_then(|value| serde_json::from_value(value).ok()).unwrap_or(self)
    }

    /// Whether a person has to answer it, rather than to allow it.
    pub fn is_question(&self) -> bool {
        match self {
            Self::Question { .. } => true,
            Self::Command { .. } | Self::Patch { .. } | Self::Read { .. } | Self::Fetch { .. } | Self::Tool { .. } => {
                false
            }
        }
    }
}

/// Why a call is answered without being run, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A stable word: `not_found`, `invalid_arguments`, ...
    pub code: &'static str,
    pub message: String,
    /// What the `next:` line of the result says beyond its table entry: the nearest paths, the lines found.
    pub detail: Option<String>,
}

impl Refusal {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None }
    }

    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// What surrounds a call: where it happens and within which bounds.
pub struct Surroundings<'a> {
    pub workspace: &'a Workspace,
    /// `None` where a tool runs without a session (`attini tools call`).
    pub session: Option<&'a SessionFolder>,
    /// SHA-256 (64 hex digits) of each file as attini last wrote it in this session, by [`PlannedFile::path`].
    pub written: &'a BTreeMap<String, String>,
    pub limits: &'a Limits,
    /// The names of environment variables that no child gets: attini's keys, less `[environment] pass`.
    pub withheld_variables: &'a [String],
    /// What the rules say now of fetching from a host: a redirect may lead to any.
    pub fetch_verdict: &'a (dyn Fn(&str) -> HostVerdict + Sync),
    /// What the rules keep from being read, whatever comes upon it.
    pub read_denials: &'a ReadDenials,
    /// The folder that holds `cache/`: `.attini`, or `$ATTINI_STATE_DIR`. `None`: nothing is kept.
    pub state: Option<&'a Root>,
}

/// The bounds of a tool's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of one result, as the model gets it.
    pub result_bytes: u64,
    /// Of one output, as it is kept on disk.
    pub output_bytes: u64,
    pub command_timeout: Duration,
}

/// One run of a tool.
pub struct Work<'a> {
    /// As they were judged: they fit the schema, defaults filled in.
    pub arguments: &'a Value,
    pub surroundings: &'a Surroundings<'a>,
    /// The facts that the permit was given on. A tool opens the resolved paths of these, never the written ones again.
    pub world: &'a World,
    /// What the permit saw of a patch's files; a file that differs is `stale`.
    pub files: &'a [PlannedFile],
    /// Names the output file and the before-images: the operation's id, safe as a file name.
    pub label: &'a str,
    pub interrupt: &'a Interrupt,
    /// A person decided on this very call, rather than a rule.
    pub approved_by_person: bool,
    /// What a person answered to the question that was shown.
    pub answer: Option<&'a str>,
    /// What the tool asked back when this call was run before; `answer` is the answer to it.
    pub asked: Option<&'a Waits>,
    /// Takes output as it comes, for a person who watches; called from any thread.
    pub live: &'a (dyn Fn(&[u8]) + Sync),
    /// How many bytes of output there have been so far, for the heartbeat.
    pub output_bytes: &'a AtomicU64,
}

/// How a run ended. `content` may be longer than a result may be; it is shortened where it is committed.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub status: ResultStatus,
    pub code: Option<&'static str>,
    pub content: String,
    /// As in [`Refusal::detail`].
    pub detail: Option<String>,
    pub attachments: Vec<Attachment>,
    /// Where the whole output is, relative to the session folder, if `content` is not all of it. Already synced.
    pub output_file: Option<String>,
    /// The tools whose schemas `content` holds whole.
    pub fetched: Vec<String>,
    /// It did not end: it wants to be run again with a person's answer. The rest is what is said where nobody can be
    /// asked.
    pub waits: Option<Box<Waits>>,
}

/// What a run needs to be told before it can go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    pub question: String,
    /// The tool's own.
    pub state: Value,
}

impl Outcome {
    pub fn ok(content: impl Into<String>) -> Self {
        Self {
            status: ResultStatus::Ok,
            code: None,
            content: content.into(),
            detail: None,
            attachments: Vec::new(),
            output_file: None,
            fetched: Vec::new(),
            waits: None,
        }
    }

    pub fn error(code: &'static str, content: impl Into<String>) -> Self {
        Self { status: ResultStatus::Error, code: Some(code), ..Self::ok(content) }
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self { detail: refusal.detail, ..Self::error(refusal.code, refusal.message) }
    }
}
