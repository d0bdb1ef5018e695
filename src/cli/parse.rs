//! From the words of the command line to [`Parsed`], or to a [`CliError`] that knows how it has to be shown.
//!
//! Nothing is printed here. A script that asked for JSON gets JSON even for a line that does not parse, so the wanted
//! output is also looked for in words that clap has refused.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, ValueEnum};

use super::{Cli, ColorWhen, Command, GlobalOptions, OutputFormat, ToolsCommand};

const OUTPUT_VARIABLE: &str = "ATTINI_OUTPUT";

/// A command line that fits.
#[derive(Debug)]
pub struct Parsed {
    pub global: GlobalOptions,
    pub command: Command,
    /// From `--output`, else from `ATTINI_OUTPUT`, else text.
    pub output: OutputFormat,
    /// `--allow` and `--deny` as one list in the order typed; empty for commands without these options.
    pub rules: Vec<RuleOption>,
}

/// One `--allow RULE` or `--deny RULE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleOption {
    pub allow: bool,
    /// As typed: a rule's JSON object, or its short form.
    pub text: String,
}

/// A command line that ends here: it asked for help or the version, or it is wrong.
#[derive(Debug, Clone)]
pub struct CliError {
    /// 0 for help and version, which belong on stdout; 2 for a wrong command line, which belongs on stderr.
    pub exit_code: u8,
    pub topic: Topic,
    /// The name of the command, as far as it can be told.
    pub command: Option<String>,
    pub output: OutputFormat,
    pub color: ColorWhen,
    /// The whole text, ending in a newline.
    pub plain: String,
    /// The same with ANSI colours.
    pub coloured: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    Help,
    Version,
    Usage,
}

impl CliError {
    /// What is wrong, without the frame for people: clap's text up to the usage line.
    pub fn message(&self) -> String {
        // Without a command clap shows the whole help, which is no message.
        let Some(text) = self.plain.strip_prefix("error: ") else { return "a command is missing".to_owned() };
        let end = ["\n\nUsage:", "\n\n  tip:", "\n\nFor more information"]
            .iter()
            .filter_map(|mark| text.find(mark))
            .min()
            .unwrap_or(text.len());
        text[..end].trim().to_owned()
    }

    /// What to try instead.
    pub fn hint(&self) -> String {
        let tips: Vec<&str> = self.plain.lines().filter_map(|line| line.strip_prefix("  tip: ")).collect();
        if tips.is_empty() {
            let command = self.command.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
            return format!("attini{command} --help");
        }
        tips.join("; ")
    }
}

/// Parses `arguments`, the program's name first. `variable` looks up an environment variable.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Parsed, CliError> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let default_output = variable(OUTPUT_VARIABLE).filter(|value| !value.is_empty());
    ensure_fits(&arguments, default_output.as_deref())
        .map_err(|error| describe(&error, &arguments, default_output.as_deref()))
}

fn ensure_fits(arguments: &[OsString], default_output: Option<&OsStr>) -> Result<Parsed, clap::Error> {
    let matches = Cli::command().try_get_matches_from(arguments)?;
    let cli = Cli::from_arg_matches(&matches)?;
    let refuse = |kind, message: String| Err(Cli::command().error(kind, message));
    // clap does not see a conflict between a global option before the command and one behind it.
    if cli.global.quiet && cli.global.verbose {
        return refuse(ErrorKind::ArgumentConflict, "--quiet and --verbose cannot be used together".to_owned());
    }
    if let Command::Tools(tools) = &cli.command
        && let (Some(_), Some(ToolsCommand::Call { .. })) = (&tools.schema, &tools.command)
    {
        return refuse(ErrorKind::ArgumentConflict, "--schema and call cannot be used together".to_owned());
    }
    let output = match (cli.global.output, default_output) {
        (Some(output), _) => output,
        (None, None) => OutputFormat::default(),
        (None, Some(value)) => {
            let Some(output) = output_format(value) else {
                let value = value.to_string_lossy();
                let message = format!("{OUTPUT_VARIABLE} is {value:?}, which is none of text, json, events");
                return refuse(ErrorKind::InvalidValue, message);
            };
            output
        }
    };
    let rules = if cli.command.turn_options().is_some() { rules_in_order(&matches) } else { Vec::new() };
    Ok(Parsed { global: cli.global, command: cli.command, output, rules })
}

/// `--allow` and `--deny` by where they were typed; clap itself keeps a list for each.
fn rules_in_order(matches: &clap::ArgMatches) -> Vec<RuleOption> {
    let Some((_, matches)) = matches.subcommand() else { return Vec::new() };
    let mut placed: Vec<(usize, RuleOption)> = Vec::new();
    for (name, allow) in [("allow", true), ("deny", false)] {
        let indices = matches.indices_of(name).into_iter().flatten();
        let texts = matches.get_many::<String>(name).into_iter().flatten();
        placed.extend(indices.zip(texts).map(|(index, text)| (index, RuleOption { allow, text: text.clone() })));
    }
    placed.sort_by_key(|(index, _)| *index);
    placed.into_iter().map(|(_, rule)| rule).collect()
}

fn describe(error: &clap::Error, arguments: &[OsString], default_output: Option<&OsStr>) -> CliError {
    let topic = match error.kind() {
        ErrorKind::DisplayHelp => Topic::Help,
        ErrorKind::DisplayVersion => Topic::Version,
        _ => Topic::Usage,
    };
    let glimpse = Glimpse::of(arguments);
    let rendered = error.render();
    CliError {
        exit_code: if topic == Topic::Usage { 2 } else { 0 },
        topic,
        command: glimpse.command,
        output: glimpse.output.or_else(|| default_output.and_then(output_format)).unwrap_or_default(),
        color: glimpse.color.unwrap_or_default(),
        plain: rendered.to_string(),
        coloured: rendered.ansi().to_string(),
    }
}

fn output_format(value: &OsStr) -> Option<OutputFormat> {
    OutputFormat::from_str(value.to_str()?, false).ok()
}

/// What can be told of a command line that clap refuses: the last valid value of each option counts, as when it fits.
#[derive(Debug, Default, PartialEq, Eq)]
struct Glimpse {
    output: Option<OutputFormat>,
    color: Option<ColorWhen>,
    command: Option<String>,
}

impl Glimpse {
    fn of(arguments: &[OsString]) -> Self {
        let mut glimpse = Self::default();
        let mut words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            let (name, mut value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.to_string(), None),
            };
            let takes_value = ["--output", "--color", "-s", "--session", "-C", "--workspace"].contains(&name.as_str());
            if takes_value && value.is_none() {
                value = words.next().map(|next| next.to_string());
            }
            let value = value.unwrap_or_default();
            match name.as_str() {
                "--output" => glimpse.output = OutputFormat::from_str(&value, false).ok().or(glimpse.output),
                "--color" => glimpse.color = ColorWhen::from_str(&value, false).ok().or(glimpse.color),
                name if !name.starts_with('-') && glimpse.command.is_none() => glimpse.command = known_command(name),
                _ => {}
            }
        }
        glimpse
    }
}

/// The command of that name, by the definition itself.
fn known_command(name: &str) -> Option<String> {
    Cli::command().get_subcommands().map(clap::Command::get_name).find(|known| *known == name).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Parsed, CliError> {
        parse_with(line, None)
    }

    fn parse_with(line: &str, output: Option<&str>) -> Result<Parsed, CliError> {
        let words = shlex::split(&format!("attini {line}")).unwrap();
        parse(words.into_iter().map(OsString::from), |name| {
            (name == OUTPUT_VARIABLE).then_some(output).flatten().map(OsString::from)
        })
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_known_to_the_glimpse() {
        for command in Cli::command().get_subcommands() {
            assert_eq!(known_command(command.get_name()).as_deref(), Some(command.get_name()));
        }
        assert_eq!(known_command("nonsense"), None);
    }

    #[test]
    fn rules_keep_the_order_typed() {
        let parsed = parse_line("tell --allow write:src --deny write:src/a --deny=read:b hello --allow 'command:x y'");
        let rule = |allow, text: &str| RuleOption { allow, text: text.to_owned() };
        assert_eq!(
            parsed.unwrap().rules,
            [rule(true, "write:src"), rule(false, "write:src/a"), rule(false, "read:b"), rule(true, "command:x y"),]
        );
    }

    #[test]
    fn options_of_a_turn_are_read() {
        let parsed = parse_line(
            "-s ci -C /tmp tell - -m openai/x --max-rounds 3 --max-tool-calls 0 --max-time 0 --temperature 0.5 \
             --on-ask fail --read-only --wait=5 -q",
        )
        .unwrap();
        assert_eq!(parsed.command.name(), "tell");
        assert_eq!(parsed.global.session.as_deref(), Some("ci"));
        assert!(parsed.global.quiet);
        let Command::Tell(tell) = parsed.command else { panic!("tell") };
        assert_eq!(tell.prompt.as_deref(), Some("-"));
        assert_eq!(tell.turn.model.as_deref(), Some("openai/x"));
        assert_eq!((tell.turn.max_rounds, tell.turn.max_tool_calls, tell.turn.max_time), (Some(3), Some(0), Some(0)));
        assert_eq!(tell.turn.temperature, Some(0.5));
        assert_eq!(tell.turn.on_ask, Some(super::super::OnAsk::Fail));
        assert!(tell.turn.read_only);
        assert_eq!(tell.turn.wait, Some(Some(5)));
    }

    #[test]
    fn an_answer_may_stand_without_an_id() {
        for (line, id, text) in [
            ("answer yes", None, "yes"),
            ("answer call_1 yes", Some("call_1"), "yes"),
            ("answer --wait 'call_7#2' ' two words '", Some("call_7#2"), " two words "),
            ("answer -", None, "-"),
            ("answer call_1 -", Some("call_1"), "-"),
            ("answer call_1 -- --no", Some("call_1"), "--no"),
            ("answer -- --no", None, "--no"),
        ] {
            let Command::Answer(answer) = parse_line(line).unwrap().command else { panic!("answer") };
            assert_eq!((answer.id.as_deref(), answer.text.as_str()), (id, text), "{line}");
        }
    }

    #[test]
    fn wait_takes_a_value_only_behind_an_equals_sign() {
        let Command::Tell(tell) = parse_line("tell --wait 5").unwrap().command else { panic!("tell") };
        assert_eq!((tell.turn.wait, tell.prompt.as_deref()), (Some(None), Some("5")));
    }

    #[test]
    fn the_last_of_a_repeated_option_counts() {
        let parsed = parse_line("-s a status -s b").unwrap();
        assert_eq!(parsed.global.session.as_deref(), Some("b"));
        let parsed = parse_line("-s a -s b status").unwrap();
        assert_eq!(parsed.global.session.as_deref(), Some("b"));
    }

    #[test]
    fn wrong_lines_are_usage_errors() {
        for line in [
            "",
            "nonsense",
            "help",
            "tools help",
            "tell one two",
            "-s ../x status",
            "status -s ''",
            "status -q -v",
            "-q status -v",
            "tell --max-rounds 0",
            "tell --max-rounds=-1",
            "tell --max-time 99999999999",
            "tell --command-timeout 0",
            "tell --temperature -1",
            "tell --temperature NaN",
            "tell -m gpt",
            "tell --on-ask maybe",
            "tell --allow nonsense",
            "tell --wait=soon",
            "approve --prefix 2",
            "approve --grant turn --prefix 0",
            "approve --grant forever",
            "status --allow write:src",
            "deny --grant turn",
            "check --mend",
            "answer",
            "answer call_1 yes no",
            "review call_1",
            "tools --schema read call read {}",
            "tools call read",
            "completions tcsh",
            "--output yaml status",
        ] {
            let error = parse_line(line).expect_err(line);
            assert_eq!((error.exit_code, error.topic), (2, Topic::Usage), "{line}: {}", error.plain);
            assert!(!error.message().is_empty(), "{line}");
            assert!(error.plain.ends_with('\n'), "{line}");
        }
    }

    #[test]
    fn help_and_version_are_no_errors() {
        for (line, topic, words) in [
            ("--help", Topic::Help, "one-shot coding agent"),
            ("tell -h", Topic::Help, "Start a turn"),
            ("tools call --help", Topic::Help, "same gate"),
            ("--version", Topic::Version, env!("CARGO_PKG_VERSION")),
            ("tell --version", Topic::Version, env!("CARGO_PKG_VERSION")),
        ] {
            let error = parse_line(line).expect_err(line);
            assert_eq!((error.exit_code, error.topic), (0, topic), "{line}");
            assert!(error.plain.contains(words), "{line}: {}", error.plain);
            assert!(!error.plain.contains('\u{1b}'), "{line}");
        }
    }

    #[test]
    fn the_wanted_output_is_known_even_where_the_line_is_wrong() {
        for (line, variable, output, command) in [
            ("--output json tell --nonsense", None, OutputFormat::Json, Some("tell")),
            ("tell --nonsense --output=events", None, OutputFormat::Events, Some("tell")),
            ("nonsense", Some("json"), OutputFormat::Json, None),
            ("nonsense", Some(""), OutputFormat::Text, None),
            ("nonsense --output text", Some("json"), OutputFormat::Text, None),
            ("-s tell status --nonsense", None, OutputFormat::Text, Some("status")),
            ("tell --nonsense -- --output json", None, OutputFormat::Text, Some("tell")),
            ("--output json --output", None, OutputFormat::Json, None),
            ("status", Some("yaml"), OutputFormat::Text, Some("status")),
        ] {
            let error = parse_with(line, variable).expect_err(line);
            assert_eq!((error.output, error.command.as_deref()), (output, command), "{line}");
        }
        assert_eq!(parse_with("status", Some("json")).unwrap().output, OutputFormat::Json);
        assert_eq!(parse_with("status --output text", Some("json")).unwrap().output, OutputFormat::Text);
        assert_eq!(parse_with("status --output text", Some("yaml")).unwrap().output, OutputFormat::Text);
    }

    #[test]
    fn every_command_is_known_by_its_name() {
        for command in Cli::command().get_subcommands() {
            assert_eq!(known_command(command.get_name()).as_deref(), Some(command.get_name()));
        }
    }

    #[test]
    fn a_message_stands_without_its_frame() {
        assert_eq!(parse_line("").expect_err("empty").message(), "a command is missing");
        assert_eq!(parse_line("-q").expect_err("no command").hint(), "attini --help");
        let error = parse_line("tell --max-round 3").expect_err("misspelt");
        assert_eq!(error.message(), "unexpected argument '--max-round' found");
        assert_eq!(error.hint(), "a similar argument exists: '--max-rounds'");
        let error = parse_line("tell --max-rounds 0").expect_err("out of range");
        assert_eq!(error.message(), "invalid value '0' for '--max-rounds <N>': 0 is not in 1..=4294967295");
        assert_eq!(error.hint(), "attini tell --help");
    }
}
