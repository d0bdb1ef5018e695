//! The program: parse, run, map the outcome to the exit code.

use std::process::ExitCode;

use attini::command;
use attini::config::environment::Environment;
use attini::interrupt::Interrupt;

fn main() -> ExitCode {
    let environment = Environment::of_process();
    let interrupt = Interrupt::default();
    let parsed = attini::cli::parse(std::env::args_os(), |name| environment.get(name).map(std::ffi::OsStr::to_owned));
    let status = match parsed {
        Ok(parsed) => command::run(parsed, environment, interrupt),
        Err(error) => command::usage::refuse(&error),
    };
    status.into()
}
