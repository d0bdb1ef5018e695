//! One file a subcommand: from arguments to domain calls to lines. Here is the dispatch alone.

pub mod approve;
pub mod check;
pub mod completions;
pub mod continuation;
pub mod demo;
pub mod deny;
pub mod diff;
pub mod invocation;
pub mod opened;
pub mod resume;
pub mod status;
pub mod tell;
pub mod tools;
pub mod trust;
pub mod usage;

use self::invocation::Invocation;
use crate::cli::{ColorWhen, Command, GlobalOptions, OnAsk, OutputFormat, Parsed};
use crate::config::environment::Environment;
use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::report::Reporter;
use crate::report::event::TurnResult;
use crate::report::{Mode, Volume};
use crate::session::record;

/// Runs a command to its end; what failed is told here, whatever failed.
pub fn run(parsed: Parsed, environment: Environment, interrupt: Interrupt) -> Status {
    let name = parsed.command.name();
    let is_turn = parsed.command.turn_options().is_some() || matches!(parsed.command, Command::Demo);
    let reporter = Reporter::new(invocation::report_options(&parsed, &environment));
    let listening = interrupt
        .listen()
        .map_err(|error| Failure::new(Status::Error, format!("signals cannot be listened for: {error}")).into());
    match listening.and_then(|()| dispatch(parsed, environment, interrupt, &reporter)) {
        Ok(status) => status,
        Err(error) => {
            let failure = Failure::of(&error);
            if is_turn {
                reporter.finish(&TurnResult::failed(&failure));
            } else {
                reporter.finish_command(name, failure.status, serde_json::Map::new(), Some(&failure));
            }
            failure.status
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
        Command::Completions(arguments) => return Ok(completions::run(arguments.shell, reporter)),
        Command::Demo => return demo::run(parsed, environment, interrupt),
        _ => {}
    }
    let invocation = Invocation::new(&parsed, environment, interrupt)?;
    match &parsed.command {
        Command::Tell(arguments) => tell::run_command(&invocation, arguments),
        Command::Approve(arguments) => approve::run(&invocation, arguments),
        Command::Deny(arguments) => deny::run(&invocation, arguments),
        Command::Resume(arguments) => resume::run(&invocation, arguments),
        Command::Status => status::run(&invocation),
        Command::Diff(arguments) => diff::run(&invocation, arguments),
        Command::Tools(arguments) => tools::run(&invocation, arguments),
        Command::Check => check::run(&invocation),
        Command::Trust(arguments) => trust::run(&invocation, arguments),
        Command::Demo | Command::Completions(_) => Ok(Status::Completed),
    }
}

impl Status {
    /// The status that a result object tells.
    pub fn of_result(result: &TurnResult) -> Self {
        let told = Self::ALL.into_iter().find(|status| status.code() == result.exit_code);
        told.unwrap_or(Self::Error)
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
