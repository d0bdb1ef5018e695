//! `attini completions SHELL`: a shell's completion script, from the definition that parses the command line.

use clap::{CommandFactory, ValueEnum};
use serde_json::{Map, Value};

use crate::cli::{Cli, Shell};
use crate::exit::Status;
use crate::report::Reporter;

pub fn run(shell: Shell, reporter: &Reporter) -> Status {
    let script = script(shell);
    reporter.print_data(&script);
    let name = shell.to_possible_value().map(|value| value.get_name().to_owned());
    let fields = [("shell".to_owned(), Value::from(name)), ("script".to_owned(), Value::from(script))];
    reporter.finish_command("completions", Status::Completed, Map::from_iter(fields), None);
    Status::Completed
}

/// The script for `shell`, ready to be stored where the shell looks for it.
fn script(shell: Shell) -> String {
    let mut command = Cli::command();
    let mut bytes = Vec::new();
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
        Shell::Elvish => clap_complete::Shell::Elvish,
        Shell::PowerShell => clap_complete::Shell::PowerShell,
    };
    clap_complete::generate(generator, &mut command, "attini", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_every_command() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell:?}: {}", command.get_name());
            }
            assert!(script.contains("max-tool-calls"), "{shell:?}");
            assert!(script.ends_with('\n'), "{shell:?}");
        }
    }

    #[test]
    fn bash_takes_its_script() {
        let Ok(status) = std::process::Command::new("bash").args(["-n", "-c", &script(Shell::Bash)]).status() else {
            return;
        };
        assert!(status.success());
    }
}
