//! The program: parse, run, map the outcome to the exit code.

use std::process::ExitCode;

use attini::config::environment::Environment;
use attini::exit::Status;
use attini::failure::Failure;
use attini::interrupt::Interrupt;
use attini::report::{ReportOptions, Reporter};
use attini::{command, crash};

fn main() -> ExitCode {
    crash::install_hook();
    let status = crash::catch(|| Ok(run())).unwrap_or_else(|error| {
        // It was in the parsing or the telling: a command's own panic is told as its result.
        Reporter::new(ReportOptions::default(), &Interrupt::default()).error(&Failure::of(&error));
        Status::Error
    });
    status.into()
}

fn run() -> Status {
    let environment = Environment::of_process();
    let interrupt = Interrupt::default();
    let parsed = attini::cli::parse(std::env::args_os(), |name| environment.get(name).map(std::ffi::OsStr::to_owned));
    match parsed {
        Ok(parsed) => command::run(parsed, environment, interrupt),
        Err(error) => command::usage::refuse(&error),
    }
}
