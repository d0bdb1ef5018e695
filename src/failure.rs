//! An error with its exit code, a stable word, and the way out, carried inside `anyhow`.
//!
//! For the person or script alone: what the model is to read is a value ([`crate::tool::Refusal`] or an error result)
//! and never travels through `?`.

use std::fmt;

use crate::exit::Status;

/// Why a command failed, in the terms of the result object's `error`.
#[derive(Debug, Clone)]
pub struct Failure {
    pub status: Status,
    /// A stable word; the status's name where nothing finer is known.
    pub code: String,
    pub message: String,
    /// What the person can type or change to go on.
    pub hint: Option<String>,
    /// Whether the same command, or `attini resume`, may succeed later.
    pub retryable: bool,
}

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, code: status.name().to_owned(), message: message.into(), hint: None, retryable: false }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Status::Usage, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Status::Conflict, message)
    }

    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Status::Corrupt, message)
    }

    pub fn persistence(message: impl Into<String>) -> Self {
        Self::new(Status::PersistenceError, message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = code.into();
        self
    }

    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// What `error` says to the outside: the [`Failure`] it carries with the whole chain as its message, or a plain
    /// error (exit code 1).
    pub fn of(error: &anyhow::Error) -> Self {
        let message = format!("{error:#}");
        match error.downcast_ref::<Self>() {
            Some(failure) => Self { message, ..failure.clone() },
            None => Self::new(Status::Error, message),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
