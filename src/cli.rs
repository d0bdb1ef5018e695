//! The command line: commands, options and their help.
//!
//! Types alone. The doc comments are what `-h`, `--help`, the man pages and the completions say, so they speak to the
//! person at the terminal. What a command does, which environment variable stands in for an option, and what wins over
//! what are decided elsewhere; the variables are only named here, in [`ENVIRONMENT`].

#![expect(clippy::doc_markdown, reason = "the doc comments are help texts, in which backticks would be printed")]

mod parse;
mod rules;
mod session;
mod tools;
mod turn;
mod value;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub use parse::{CliError, Parsed, RuleOption, Topic, parse};
pub use rules::{
    RuleKind, RuleScope, RulesAddArguments, RulesArguments, RulesCommand, RulesRemoveArguments, RulesTestArguments,
    TrustArguments,
};
pub use session::{
    AskArguments, CheckArguments, CompactArguments, DiffArguments, SessionsArguments, SessionsCommand, ShowArguments,
    UndoArguments,
};
pub use tools::{McpArguments, McpCommand, ModelsArguments, ToolsArguments, ToolsCommand};
pub use turn::{
    AnswerArguments, ApproveArguments, DenyArguments, GrantScope, OnAsk, ResumeArguments, ReviewArguments,
    TellArguments, TurnOptions,
};
pub use value::{SECONDS_MAX, parse_model, parse_session_name};

/// A stateless, one-shot coding agent for the command line
///
/// One invocation loads a session's conversation, runs one turn (your prompt, then as many rounds of model and tools
/// as it takes), and exits. Nothing keeps running.
///
/// A call that needs your consent suspends the turn: attini shows what would be done, writes it down in the session's
/// folder and exits with code 10. A later invocation, maybe on another machine, approves or denies it and goes on from
/// there.
#[derive(Debug, Parser)]
#[command(
    name = "attini",
    bin_name = "attini",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    args_override_self = true,
    after_help = "See how it works, without a key: attini demo",
    after_long_help = "\
Examples:
  attini demo
  attini tell 'why does the test in tests/date.rs fail?'
  git diff | attini tell --stdin 'review this change'
  attini approve call_2 --grant session
  attini deny call_2 --reason 'use the fixture instead'
  attini --output json status | jq -r .state"
)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalOptions,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalOptions {
    /// The session to work in [ATTINI_SESSION; else main]
    #[arg(short, long, global = true, value_name = "NAME", value_parser = value::session_name)]
    pub session: Option<String>,

    /// The workspace's folder [ATTINI_WORKSPACE; else found from here]
    ///
    /// Without it: the variable ATTINI_WORKSPACE, else the nearest folder with .attini/ from here up to the top of the
    /// git work tree, else that top; outside git the current folder.
    #[arg(short = 'C', long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,

    /// What stdout gets [ATTINI_OUTPUT; else text]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub output: Option<OutputFormat>,

    /// Show errors, previews and commands to type, and nothing else, on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Show arguments, results and reasoning too, on stderr
    #[arg(short, long, global = true)]
    pub verbose: bool,

    /// When to colour; auto heeds NO_COLOR
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorWhen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// The assistant's answer alone
    #[default]
    Text,
    /// Exactly one JSON object, whatever happens
    Json,
    /// One JSON object a line as things happen, the last one as with json
    Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Tell(Box<TellArguments>),
    Approve(Box<ApproveArguments>),
    Deny(Box<DenyArguments>),
    Answer(Box<AnswerArguments>),
    Review(Box<ReviewArguments>),
    Resume(Box<ResumeArguments>),
    /// Say where the session stands
    ///
    /// New, idle, awaiting (what, with previews and the commands to type next), unfinished or locked; the model and
    /// the usage. Changes nothing, and exits with 0 whatever it finds.
    Status,
    Diff(DiffArguments),
    Show(ShowArguments),
    Tools(ToolsArguments),
    Mcp(McpArguments),
    Check(CheckArguments),
    Undo(UndoArguments),
    Rules(RulesArguments),
    Sessions(SessionsArguments),
    Trust(TrustArguments),
    /// Try a first suspend and approve, without a key
    ///
    /// Makes a throw-away workspace and runs the built-in scripted model in it, up to the first call that needs
    /// consent; exits with 10 and prints the commands to type next.
    Demo,
    Ask(AskArguments),
    Compact(CompactArguments),
    Models(ModelsArguments),
    Completions(CompletionsArguments),
}

impl Command {
    /// The name as it is typed.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tell(_) => "tell",
            Self::Approve(_) => "approve",
            Self::Deny(_) => "deny",
            Self::Answer(_) => "answer",
            Self::Review(_) => "review",
            Self::Resume(_) => "resume",
            Self::Status => "status",
            Self::Diff(_) => "diff",
            Self::Show(_) => "show",
            Self::Tools(_) => "tools",
            Self::Mcp(_) => "mcp",
            Self::Check(_) => "check",
            Self::Undo(_) => "undo",
            Self::Rules(_) => "rules",
            Self::Sessions(_) => "sessions",
            Self::Trust(_) => "trust",
            Self::Demo => "demo",
            Self::Ask(_) => "ask",
            Self::Compact(_) => "compact",
            Self::Models(_) => "models",
            Self::Completions(_) => "completions",
        }
    }

    /// The options of a command that runs a turn.
    pub fn turn_options(&self) -> Option<&TurnOptions> {
        match self {
            Self::Tell(arguments) => Some(&arguments.turn),
            Self::Approve(arguments) => Some(&arguments.turn),
            Self::Deny(arguments) => Some(&arguments.turn),
            Self::Answer(arguments) => Some(&arguments.turn),
            Self::Review(arguments) => Some(&arguments.turn),
            Self::Resume(arguments) => Some(&arguments.turn),
            Self::Status
            | Self::Diff(_)
            | Self::Show(_)
            | Self::Tools(_)
            | Self::Mcp(_)
            | Self::Check(_)
            | Self::Undo(_)
            | Self::Rules(_)
            | Self::Sessions(_)
            | Self::Trust(_)
            | Self::Demo
            | Self::Ask(_)
            | Self::Compact(_)
            | Self::Models(_)
            | Self::Completions(_) => None,
        }
    }
}

/// Print a shell's completion script
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini completions bash > ~/.local/share/bash-completion/completions/attini
  attini completions fish > ~/.config/fish/completions/attini.fish")]
pub struct CompletionsArguments {
    pub shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    #[value(name = "powershell")]
    PowerShell,
}

/// The variables attini heeds, and what each is for. One that is empty counts as unset; an option beats its variable.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("ATTINI_SESSION", "The session, as --session."),
    ("ATTINI_WORKSPACE", "The workspace's folder, as --workspace."),
    ("ATTINI_OUTPUT", "What stdout gets, as --output."),
    ("ATTINI_MODEL", "The model, as --model."),
    ("ATTINI_CONFIG", "Another config file in place of the user's own."),
    ("ATTINI_STATE_DIR", "A folder to keep sessions and the cache in, instead of the workspace's .attini folder."),
    (
        "ATTINI_TRUST_WORKSPACE",
        "If 1, the workspace's config and rules are trusted for this invocation. For jobs whose checkout is known.",
    ),
    ("NO_COLOR", "If set, nothing is coloured unless --color says so."),
    (
        "OPENAI_API_KEY, ANTHROPIC_API_KEY, DEEPSEEK_API_KEY, ...",
        "The key of each built-in provider. Commands do not get these variables. Their values are masked in whatever \
         attini records, prints or sends, if they look like secrets: 20 \
         bytes; 8 that mix letters and digits, or letters of both cases; 12 of more than one word; or a beginning of sk-.",
    ),
    ("OPENAI_BASE_URL, ANTHROPIC_BASE_URL, DEEPSEEK_BASE_URL, ...", "The base address of each built-in provider."),
    (
        "HTTPS_PROXY, http_proxy, ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR, CURL_CA_BUNDLE",
        "As curl takes them.",
    ),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "Where the user's own config and the list of trusted files are."),
];

/// The files attini reads and writes, and what each is for.
pub const FILES: &[(&str, &str)] = &[
    (".attini/config.toml", "The workspace's config. It counts once it is trusted."),
    (".attini/permissions.jsonl", "The workspace's rules, one a line."),
    (
        ".attini/sessions/NAME/",
        "All there is of a session. A job can keep the folder, and another one can continue from it.",
    ),
    (".attini/sessions/NAME/conversation.jsonl", "The conversation: one JSON object a line, append only."),
    (
        ".attini/sessions/NAME/pending.json",
        "The calls that wait for a decision, with what was shown of them. Only while the session is suspended.",
    ),
    (".attini/sessions/NAME/permissions.jsonl", "The session's own rules."),
    (".attini/sessions/NAME/outputs/", "Whole outputs of calls whose result was shortened."),
    ("$XDG_CONFIG_HOME/attini/config.toml", "The user's own config; ~/.config without the variable."),
    ("$XDG_CONFIG_HOME/attini/permissions.jsonl", "The user's own rules."),
    ("$XDG_STATE_HOME/attini/trust.json", "What attini trust has recorded; ~/.local/state without the variable."),
];
