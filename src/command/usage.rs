//! A command line that ends at once: help and version on stdout, what is wrong with it on stderr, and the one JSON
//! object for whoever asked for JSON.

use crate::cli::{CliError, Topic};
use crate::exit::Status;
use crate::failure::Failure;
use crate::report::{ReadyText, ReportOptions, Reporter};

use super::colour_asked_for;

/// The commands whose object is the result of a turn; every other command's has its own name as `type`.
const TURN_COMMANDS: [&str; 7] = ["tell", "approve", "deny", "answer", "review", "resume", "demo"];

/// What a reporter for `error` has to know.
pub fn report_options(error: &CliError) -> ReportOptions {
    ReportOptions { mode: error.output.into(), ..ReportOptions::default() }.with_streams(colour_asked_for(error.color))
}

/// Ends an invocation whose command line ends it.
pub fn refuse(error: &CliError) -> Status {
    run(error, &Reporter::new(report_options(error), &crate::interrupt::Interrupt::default()))
}

/// Tells of `error`.
pub fn run(error: &CliError, reporter: &Reporter) -> Status {
    let text = ReadyText { plain: &error.plain, coloured: &error.coloured };
    match error.topic {
        Topic::Help => reporter.finish_with_text("help", text),
        Topic::Version => reporter.finish_with_text("version", text),
        Topic::Usage => {
            let failure = Failure::usage(error.message()).hint(error.hint());
            let name = error.command.as_deref().filter(|name| !TURN_COMMANDS.contains(name));
            reporter.refuse(name, &failure, text);
            return Status::Usage;
        }
    }
    reporter.ensure_printed(Status::Completed)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use serde_json::{Value, json};

    use super::*;
    use crate::report::seen::Seen;

    fn tell(words: &[&str], colour: bool) -> (Status, String, String) {
        let arguments = std::iter::once("attini").chain(words.iter().copied()).map(OsString::from);
        let error = crate::cli::parse(arguments, |_| None).unwrap_err();
        let (stdout, stderr) = (Seen::default(), Seen::default());
        let options = ReportOptions { mode: error.output.into(), colour, ..ReportOptions::default() };
        let clock = || "T".to_owned();
        let reporter = Reporter::with_streams(options, Box::new(stdout.clone()), Box::new(stderr.clone()), clock);
        let status = run(&error, &reporter);
        (status, stdout.text(), stderr.text())
    }

    #[test]
    fn help_and_version_go_to_stdout() {
        let version = format!("attini {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(tell(&["--version"], false), (Status::Completed, version.clone(), String::new()));
        let (status, stdout, stderr) = tell(&["--output", "json", "--version"], false);
        let object: Value = serde_json::from_str(&stdout).unwrap();
        let expected = json!({
            "type": "version", "at": "T", "status": "completed", "exit_code": 0, "text": version, "error": null
        });
        assert_eq!((status, object, stderr), (Status::Completed, expected, String::new()));
        let (_, stdout, stderr) = tell(&["status", "--help"], false);
        assert!(stdout.contains("Say where the session stands") && stderr.is_empty());
    }

    #[test]
    fn a_wrong_line_is_told_on_stderr_and_as_an_object() {
        let expected = "error: unexpected argument '--max-round' found\n\n  tip: a similar argument exists: \
                        '--max-rounds'\n\nUsage: attini tell --max-rounds <N> [PROMPT]\n\nFor more information, try \
                        '--help'.\n";
        let (status, stdout, stderr) = tell(&["tell", "--max-round", "3"], false);
        assert_eq!((status, stdout.as_str(), stderr.as_str()), (Status::Usage, "", expected));
        let (status, stdout, stderr) = tell(&["tell", "--max-round", "3", "--output", "events"], false);
        assert_eq!((status, stderr.as_str()), (Status::Usage, expected));
        assert_eq!(stdout.lines().count(), 1);
        let object: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((&object["type"], &object["status"]), (&json!("result"), &json!("usage")));
        assert_eq!(object["exit_code"], json!(2));
        let error = json!({
            "code": "usage", "message": "unexpected argument '--max-round' found", "retryable": false,
            "hint": "a similar argument exists: '--max-rounds'"
        });
        assert_eq!(object["error"], error);
        let (_, stdout, _) = tell(&["status", "--nonsense", "--output", "json"], false);
        let object: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(object["type"], json!("status"));
    }

    #[test]
    fn the_object_of_a_wrong_line_is_of_its_commands_type() {
        use clap::CommandFactory;
        for command in crate::cli::Cli::command().get_subcommands().filter(|command| command.get_name() != "demo") {
            let runs_a_turn = command.get_arguments().any(|argument| argument.get_id() == "max_rounds");
            let name = command.get_name();
            let (_, stdout, _) = tell(&[name, "--nonsense", "--output", "json"], false);
            let object: Value = serde_json::from_str(&stdout).unwrap();
            assert_eq!(object["type"], json!(if runs_a_turn { "result" } else { name }));
        }
    }

    #[test]
    fn what_was_typed_cannot_steer_the_terminal() {
        for (typed, shown) in [("--no\u{1b}[2Jthing", "--nothing"), ("--no\u{202e}\u{7}", "--no\\u{202e}")] {
            for colour in [false, true] {
                let (_, _, stderr) = tell(&["status", typed], colour);
                assert!(stderr.contains(shown), "{stderr}");
                assert!(!stderr.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{stderr}");
            }
        }
        let (_, _, stderr) = tell(&["status", "--nonsense"], true);
        assert!(stderr.contains('\u{1b}'), "{stderr}");
    }
}
