//! One file a subcommand: from arguments to domain calls to lines. Here is the dispatch alone.

pub mod answer;
pub mod approve;
pub mod ask;
pub mod check;
pub mod compact;
pub mod completions;
pub mod continuation;
pub mod demo;
pub mod deny;
pub mod diff;
pub mod invocation;
pub mod lone;
pub mod mcp;
pub mod models;
pub mod opened;
pub mod resume;
pub mod review;
pub mod rules;
pub mod sessions;
pub mod show;
pub mod status;
mod stdin;
pub mod tell;
pub mod tools;
pub mod trust;
pub mod undo;
pub mod usage;

use std::sync::Arc;

use self::invocation::Invocation;
use crate::cli::{ColorWhen, Command, GlobalOptions, OnAsk, OutputFormat, Parsed};
use crate::config::environment::Environment;
use crate::crash;
use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::{Cause, Interrupt};
use crate::provider::ProviderError;
use crate::report::Reporter;
use crate::report::event::TurnResult;
use crate::report::{Mode, Volume};
use crate::session::record;

/// Runs a command to its end; what failed is told here, whatever failed.
pub fn run(parsed: Parsed, environment: Environment, interrupt: Interrupt) -> Status {
    let told = Arc::new(LastWords {
        name: parsed.command.name(),
        is_turn: parsed.command.turn_options().is_some() || matches!(parsed.command, Command::Demo),
        reporter: Reporter::new(invocation::report_options(&parsed, &environment), &interrupt),
    });
    let at_once = Arc::clone(&told);
    let listening = interrupt
        .listen(move |signal| {
            at_once.tell(&Failure::new(Status::Interrupted(signal), "interrupted by a signal"));
        })
        .map_err(|error| Failure::new(Status::Error, format!("signals cannot be listened for: {error}")).into());
    told.run(|reporter| listening.and_then(|()| dispatch(parsed, environment, interrupt, reporter)))
}

/// Tells of a command that failed before it could tell of itself.
struct LastWords {
    name: &'static str,
    is_turn: bool,
    reporter: Reporter,
}

impl LastWords {
    /// Does a command's work and tells of what failed in it, a panic included.
    fn run(&self, work: impl FnOnce(&Reporter) -> anyhow::Result<Status>) -> Status {
        crash::catch(|| work(&self.reporter)).unwrap_or_else(|error| {
            let failure = Failure::of(&error);
            self.tell(&failure);
            failure.status
        })
    }

    fn tell(&self, failure: &Failure) {
        if self.is_turn {
            self.reporter.finish(&TurnResult::failed(failure));
        } else {
            self.reporter.finish_command(self.name, failure.status, serde_json::Map::new(), Some(failure));
        }
    }
}

fn dispatch(
    parsed: Parsed,
    environment: Environment,
    interrupt: Interrupt,
    reporter: &Reporter,
) -> anyhow::Result<Status> {
    match &parsed.command {
        Command::Completions(arguments) => {
            return Ok(reporter.ensure_printed(completions::run(arguments.shell, reporter)));
        }
        Command::Demo => return demo::run(parsed, environment, interrupt),
        _ => {}
    }
    let invocation = Invocation::new(&parsed, environment, interrupt)?;
    let status = match &parsed.command {
        // However much of it is lost on the way to stdout, the turn is what is on disk.
        Command::Tell(arguments) => return tell::run_command(&invocation, arguments),
        Command::Approve(arguments) => return approve::run(&invocation, arguments),
        Command::Deny(arguments) => return deny::run(&invocation, arguments),
        Command::Answer(arguments) => return answer::run(&invocation, arguments),
        Command::Review(arguments) => return review::run(&invocation, arguments),
        Command::Resume(arguments) => return resume::run(&invocation, arguments),
        Command::Status => status::run(&invocation),
        Command::Diff(arguments) => diff::run(&invocation, arguments),
        Command::Show(arguments) => show::run(&invocation, arguments),
        Command::Tools(arguments) => tools::run(&invocation, arguments),
        Command::Mcp(arguments) => mcp::run(&invocation, arguments),
        Command::Check(arguments) => check::run(&invocation, arguments),
        Command::Sessions(arguments) => sessions::run(&invocation, arguments),
        Command::Undo(arguments) => undo::run(&invocation, arguments),
        Command::Rules(arguments) => rules::run(&invocation, arguments),
        Command::Trust(arguments) => trust::run(&invocation, arguments),
        Command::Ask(arguments) => ask::run(&invocation, arguments),
        Command::Compact(arguments) => compact::run(&invocation, arguments),
        Command::Models(arguments) => models::run(&invocation, arguments),
        Command::Demo | Command::Completions(_) => Ok(Status::Completed),
    };
    Ok(invocation.reporter.ensure_printed(status?))
}

impl Status {
    /// The status that a result object tells.
    pub fn of_result(result: &TurnResult) -> Self {
        let told = Self::ALL.into_iter().find(|status| status.code() == result.exit_code);
        told.unwrap_or(Self::Error)
    }
}

impl Failure {
    /// Why a command that asked the model outside of a turn has no answer.
    pub fn of_provider(error: ProviderError, interrupt: &Interrupt) -> Self {
        if error.interrupted {
            return Self::of_interrupt(interrupt);
        }
        let ProviderError { code, message, hint, retryable, interrupted: _ } = error;
        // The hints of a turn speak of going on with it.
        let hint = hint.filter(|hint| !hint.contains("attini resume"));
        Self { status: Status::ProviderError, code, message, hint, retryable }
    }

    /// What ended a request outside of a turn.
    pub fn of_interrupt(interrupt: &Interrupt) -> Self {
        match interrupt.cause() {
            Some(Cause::Signal(signal)) => Self::new(Status::Interrupted(signal), "interrupted by a signal"),
            Some(Cause::TimeLimit | Cause::Cancelled) | None => Self::new(Status::Error, "the request was interrupted"),
        }
    }
}

// The command line knows nothing of the rest of attini, so what its words mean there is said here.

impl From<OutputFormat> for Mode {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Text => Self::Text,
            OutputFormat::Json => Self::Json,
            OutputFormat::Events => Self::Events,
        }
    }
}

impl From<OnAsk> for record::OnAsk {
    fn from(on_ask: OnAsk) -> Self {
        match on_ask {
            OnAsk::Suspend => Self::Suspend,
            OnAsk::Deny => Self::Deny,
            OnAsk::Fail => Self::Fail,
        }
    }
}

/// How much of progress the person wants to see.
pub const fn volume(global: &GlobalOptions) -> Volume {
    match (global.quiet, global.verbose) {
        (true, _) => Volume::Quiet,
        (false, true) => Volume::Verbose,
        (false, false) => Volume::Normal,
    }
}

/// Whether to colour, where the person said so; `None`: by what the stream is.
pub const fn colour_asked_for(color: ColorWhen) -> Option<bool> {
    match color {
        ColorWhen::Auto => None,
        ColorWhen::Always => Some(true),
        ColorWhen::Never => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::ReportOptions;
    use crate::report::seen::Seen;

    #[test]
    fn a_panic_ends_a_command_with_one_object_and_an_error() {
        for (name, is_turn, object_type) in [("tell", true, "result"), ("status", false, "status")] {
            let (stdout, stderr) = (Seen::default(), Seen::default());
            let options = ReportOptions { mode: Mode::Json, ..ReportOptions::default() };
            let (out, err) = (Box::new(stdout.clone()), Box::new(stderr.clone()));
            let reporter = Reporter::with_streams(options, out, err, || "T".to_owned());
            let status = LastWords { name, is_turn, reporter }.run(|_| panic!("out of reach"));
            assert_eq!(status, Status::Error);
            assert_eq!(stdout.text().lines().count(), 1);
            let object: Value = serde_json::from_str(&stdout.text()).unwrap();
            assert_eq!((&object["type"], &object["status"]), (&object_type.into(), &"error".into()));
            assert_eq!((&object["exit_code"], &object["error"]["code"]), (&1.into(), &"panic".into()));
            assert!(stderr.text().contains("out of reach") && stderr.text().contains("report it"));
        }
    }
}
