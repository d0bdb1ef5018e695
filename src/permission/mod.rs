//! Rules, their files and layers, the judge, and what a grant would store.
//!
//! The judge is a pure function of what a call would touch ([`Access`]) and the rules as one list. Asking a person, and
//! the [`crate::call::decided::Permit`] that running needs, live in `call`.

mod carriers;
mod command;
pub mod file;
pub mod grant;
mod hidden;
mod host;
pub mod judge;
pub mod layers;
mod options;
mod path;
mod reach;
pub mod rule;
mod script;
mod starters;

pub use file::RulesFile;
pub use judge::{Question, Verdict, judge};
pub use layers::{Rules, Sources, load};
pub use reach::{ReadDenials, host_verdict};

use serde::{Deserialize, Serialize};

/// One line of a `permissions.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// Exactly one of `args` (the whole argv) and `args_prefix` (its first words) is given.
    Command {
        allow: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args_prefix: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        background: bool,
        /// Only in the session's file: the turn in which the rule counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    },
    Write {
        allow: bool,
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    },
    Read {
        allow: bool,
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    },
    Fetch {
        allow: bool,
        host: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    },
    Tool {
        allow: bool,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    },
}

/// One thing that a call would touch. Every access of a call must be allowed for the call to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    Read(ReadAccess),
    Write(WriteAccess),
    Command(CommandAccess),
    Fetch(FetchAccess),
    /// A tool that is judged by its name alone.
    Tool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAccess {
    /// Resolved and absolute; empty for the session's own files.
    pub path: std::path::PathBuf,
    pub place: crate::workspace::Place,
    /// Named like a file that holds secrets.
    pub secret: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteAccess {
    /// Resolved and absolute.
    pub path: std::path::PathBuf,
    /// The path as shown: relative to the workspace, or absolute outside it.
    pub shown: String,
    pub place: crate::workspace::Place,
    /// Why no rule may ever allow this.
    pub never: Option<String>,
    /// No `write` rule lets it pass unasked (`.gitattributes` and its like).
    pub always_asks: bool,
    /// Why its present content can be had back; `None` says that it cannot.
    pub revertible: Option<String>,
    /// Why it is not revertible, for the preview ("it is not tracked by git").
    pub why: String,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts, each told by its name")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandAccess {
    pub argv: Vec<String>,
    pub stdin: bool,
    pub background: bool,
    pub cwd_inside: bool,
    /// It runs in the workspace's own folder, where a program written as a relative path is looked for.
    pub cwd_is_root: bool,
}

/// What the rules say of a host that a fetch was led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostVerdict {
    /// Allowed, and a rule names this very host: its addresses may be private.
    Named,
    /// Allowed by something more general: public addresses alone.
    Covered,
    Asks,
    Denied,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchAccess {
    /// The host of the address, without port; an address in brackets or without.
    pub host: String,
}
