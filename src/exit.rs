//! Every way an invocation can end: its number, its name and its one-line meaning.
//!
//! The man page's EXIT STATUS section, the result object's `status` and `exit_code`, and the process's exit code all
//! come from here. What an outcome means for a turn is decided elsewhere.

use std::fmt;

/// How an invocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    Completed,
    Error,
    Usage,
    NothingPending,
    AwaitingApproval,
    AwaitingAnswer,
    Locked,
    ProviderError,
    LimitReached,
    PersistenceError,
    Corrupt,
    Conflict,
    Interrupted(Signal),
}

/// The signals that end an invocation in an orderly way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    Hangup,
    Interrupt,
    Terminate,
}

impl Signal {
    /// The signal's number on every Unix.
    pub const fn number(self) -> i32 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }

    /// The signal with that number, if it is one that attini handles.
    pub const fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Hangup),
            2 => Some(Self::Interrupt),
            15 => Some(Self::Terminate),
            _ => None,
        }
    }
}

impl Status {
    /// Every status, in the order of the exit codes.
    pub const ALL: [Self; 15] = [
        Self::Completed,
        Self::Error,
        Self::Usage,
        Self::NothingPending,
        Self::AwaitingApproval,
        Self::AwaitingAnswer,
        Self::Locked,
        Self::ProviderError,
        Self::LimitReached,
        Self::PersistenceError,
        Self::Corrupt,
        Self::Conflict,
        Self::Interrupted(Signal::Hangup),
        Self::Interrupted(Signal::Interrupt),
        Self::Interrupted(Signal::Terminate),
    ];

    /// The process's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Error => 1,
            Self::Usage => 2,
            Self::NothingPending => 3,
            Self::AwaitingApproval => 10,
            Self::AwaitingAnswer => 11,
            Self::Locked => 12,
            Self::ProviderError => 13,
            Self::LimitReached => 14,
            Self::PersistenceError => 15,
            Self::Corrupt => 16,
            Self::Conflict => 17,
            Self::Interrupted(Signal::Hangup) => 129,
            Self::Interrupted(Signal::Interrupt) => 130,
            Self::Interrupted(Signal::Terminate) => 143,
        }
    }

    /// The stable word for scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Error => "error",
            Self::Usage => "usage",
            Self::NothingPending => "nothing_pending",
            Self::AwaitingApproval => "awaiting_approval",
            Self::AwaitingAnswer => "awaiting_answer",
            Self::Locked => "locked",
            Self::ProviderError => "provider_error",
            Self::LimitReached => "limit_reached",
            Self::PersistenceError => "persistence_error",
            Self::Corrupt => "corrupt",
            Self::Conflict => "conflict",
            Self::Interrupted(_) => "interrupted",
        }
    }

    /// One line for the manual.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Completed => "The turn ended with the assistant's answer, or the command did what it says.",
            Self::Error => "An error that none of the other codes names.",
            Self::Usage => {
                "The command line, a config file or a rules file is wrong or untrusted; nothing was changed."
            }
            Self::NothingPending => "There is nothing to act on, or no pending call has that ID.",
            Self::AwaitingApproval => "The turn is suspended until its pending calls are approved or denied.",
            Self::AwaitingAnswer => "The turn is suspended on questions alone.",
            Self::Locked => "Another invocation holds the session.",
            Self::ProviderError => "The model service failed after retries, refused, or broke off.",
            Self::LimitReached => {
                "A limit of rounds, calls, time or of the reply's length was reached; the turn can be resumed."
            }
            Self::PersistenceError => "A record could not be written; nothing was shown as done that is not on disk.",
            Self::Corrupt => "A session file breaks an invariant that loading cannot mend; see attini check.",
            Self::Conflict => {
                "A decision does not fit: pending.json differs from the conversation or the digest asked for, a \
                 decision contradicts a recorded one, or a file to be put back was changed since."
            }
            Self::Interrupted(Signal::Hangup) => "Interrupted by SIGHUP; the turn can be resumed.",
            Self::Interrupted(Signal::Interrupt) => "Interrupted by SIGINT; the turn can be resumed.",
            Self::Interrupted(Signal::Terminate) => "Interrupted by SIGTERM; the turn can be resumed.",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl From<Status> for std::process::ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}
