//! The command line: commands, options and their help.
//!
//! Types alone. The doc comments are what `-h`, `--help`, the man pages and the completions say, so they speak to the
//! person at the terminal. What a command does, which environment variable stands in for an option, and what wins over
//! what are decided elsewhere; the variables are only named here, in [`ENVIRONMENT`].

#![expect(clippy::doc_markdown, reason = "the doc comments are help texts, in which backticks would be printed")]

mod parse;
mod value;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub use parse::{CliError, Parsed, RuleOption, Topic, parse};
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

/// Start a turn with a prompt
///
/// The conversation so far goes to the model with your prompt; then the model's calls are run, or suspended for your
/// consent, until it answers. What was pending in the session is dropped.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini tell 'add a test for leap years'
  attini tell < prompt.txt
  cargo test 2>&1 | attini tell --stdin 'why does this fail?'
  attini tell --read-only --on-ask deny 'summarise the last change'
  attini tell --allow 'command:cargo test' --allow write:src 'fix the warning'")]
pub struct TellArguments {
    /// What you ask for; none, or -: read it from stdin (1 MiB at most)
    pub prompt: Option<String>,

    /// Append stdin to PROMPT, marked as data
    #[arg(long)]
    pub stdin: bool,

    #[command(flatten)]
    pub turn: TurnOptions,
}

/// Approve pending calls, and continue the turn
///
/// With no ID every undecided call that needs approval is approved. Once all pending calls are decided the turn goes
/// on; else the decision is written down and the exit code stays 10, or 11 with only questions left.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini approve
  attini approve call_2 'call_7#2'
  attini approve call_2 --grant workspace --prefix 2")]
pub struct ApproveArguments {
    /// Pending calls, as attini status lists them: call_2, or call_7#2 for one operation of it
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,

    /// Also store the rule that would have allowed the call
    #[arg(long, value_name = "SCOPE")]
    pub grant: Option<GrantScope>,

    /// Store a rule for the first N words of the command instead of the whole
    #[arg(long, value_name = "N", requires = "grant", value_parser = value::prefix_words())]
    pub prefix: Option<u64>,

    /// Refuse (17) unless pending.json has this digest
    #[arg(long, value_name = "DIGEST")]
    pub if_digest: Option<String>,

    #[command(flatten)]
    pub turn: TurnOptions,
}

/// Deny pending calls, and continue the turn
///
/// With no ID every undecided call is denied, questions included. The model is told the reason, and the turn goes on
/// once all pending calls are decided.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini deny
  attini deny call_2 --reason 'keep the public interface as it is'")]
pub struct DenyArguments {
    /// Pending calls, as attini status lists them
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,

    /// What the model is told
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,

    /// Refuse (17) unless pending.json has this digest
    #[arg(long, value_name = "DIGEST")]
    pub if_digest: Option<String>,

    #[command(flatten)]
    pub turn: TurnOptions,
}

/// Answer a question, and continue the turn
///
/// The model reads your words as they are; the number of a choice stands for that choice. Once all pending calls are
/// decided the turn goes on; else the answer is written down and the exit code is 10, or 11 with only questions left.
#[derive(Debug, Clone, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  attini answer 'the second one; keep the old name as an alias'
  attini answer call_3 2
  attini answer 'call_7#2' - < answer.txt"
)]
pub struct AnswerArguments {
    /// The question, as attini status lists it; not needed where one alone is open
    #[arg(value_name = "ID")]
    pub id: Option<String>,

    /// Your answer, or a choice's number; -: read it from stdin (1 MiB at most)
    #[arg(value_name = "TEXT", required = true)]
    pub text: String,

    /// Refuse (17) unless pending.json has this digest
    #[arg(long, value_name = "DIGEST")]
    pub if_digest: Option<String>,

    #[command(flatten)]
    pub turn: TurnOptions,
}

/// Decide on the pending calls one by one, at a terminal, and continue the turn
///
/// Shows each call that waits and takes one key for it: approve, deny with a reason, answer, store the suggested rule,
/// show the whole of it, leave it for later, quit. Each decision is written down as it is made. Once all pending calls
/// are decided the turn goes on; else the exit code is 10, or 11 with only questions left.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini review
  attini -s ci review --if-digest sha256:5d41402abc4b2a76b9719d911017c592ae1f8e0a4b6f1c3d7e9a2b5c8d0f1e2a")]
pub struct ReviewArguments {
    /// Refuse (17) unless pending.json has this digest
    #[arg(long, value_name = "DIGEST")]
    pub if_digest: Option<String>,

    #[command(flatten)]
    pub turn: TurnOptions,
}

/// Continue a turn that was interrupted or stopped
///
/// After an interrupt, an error of the model service or a limit: answers the calls that were left open, then asks the
/// model again, without a new prompt. After a limit all limits are fresh.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini resume
  attini resume --max-rounds 100 --wait=60")]
pub struct ResumeArguments {
    #[command(flatten)]
    pub turn: TurnOptions,
}

/// What every command that runs a turn takes. A continuation uses what its turn was started with; an option beats it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Turn options")]
pub struct TurnOptions {
    /// The model to ask [ATTINI_MODEL; else the session's last, else as configured]
    #[arg(short, long, value_name = "PROVIDER/MODEL", value_parser = value::model)]
    pub model: Option<String>,

    /// A file to add after the built-in system prompt
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub system: Option<PathBuf>,

    /// Requests to the model, over the whole turn
    #[arg(long, value_name = "N", value_parser = value::count_from(1))]
    pub max_rounds: Option<u64>,

    /// Calls the model may make, over the whole turn
    #[arg(long, value_name = "N", value_parser = value::count_from(0))]
    pub max_tool_calls: Option<u64>,

    /// Running time, over the whole turn; 0: no limit
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds_from(0))]
    pub max_time: Option<u64>,

    /// Tokens of one reply
    #[arg(long, value_name = "N", value_parser = value::count_from(1))]
    pub max_tokens: Option<u64>,

    /// How freely the model chooses its words, from 0 to 2
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = value::temperature)]
    pub temperature: Option<f64>,

    /// How long the model thinks, in its service's own word (low, medium, high)
    #[arg(long, value_name = "LEVEL", value_parser = value::effort)]
    pub reasoning_effort: Option<String>,

    /// A JSON Schema that the answer, as JSON, must fit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output_schema: Option<PathBuf>,

    /// How long a command may run
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds_from(1))]
    pub command_timeout: Option<u64>,

    /// Offer only tools without side effects
    #[arg(long)]
    pub read_only: bool,

    /// What becomes of a call that needs consent
    #[arg(long, value_name = "WHAT")]
    pub on_ask: Option<OnAsk>,

    /// Let what RULE covers run unasked, in this invocation
    ///
    /// RULE is a rule's JSON, or short: 'command:cargo test' (its first words), write:src, read:../shared,
    /// fetch:docs.example.org, 'tool:fs__*'. May be given several times, mixed with --deny: the rules count in the
    /// order typed, the last one that matches decides, and they are stronger than those of any file.
    #[arg(long, value_name = "RULE", value_parser = value::rule)]
    pub allow: Vec<String>,

    /// Refuse what RULE covers, for the whole turn
    ///
    /// RULE as for --allow.
    #[arg(long, value_name = "RULE", value_parser = value::rule)]
    pub deny: Vec<String>,

    /// Wait for the session's lock; without SECONDS as long as it takes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, value_parser = value::seconds_from(0))]
    pub wait: Option<Option<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnAsk {
    /// Suspend the turn, to be approved or denied later
    Suspend,
    /// Deny it, tell the model, and go on: for unattended jobs
    Deny,
    /// Cancel it and all behind it, and end the turn, saying which rules would have allowed it
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GrantScope {
    /// Until the turn ends
    Turn,
    /// In this session
    Session,
    /// In this workspace, in every session
    Workspace,
}

/// Show what pending patches would change
///
/// One unified diff that git apply --check takes; a patch's includes the patches it stands on. Paths outside the
/// workspace are noted on stderr instead. With nothing pending it prints nothing.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini diff
  attini diff call_2 | git apply --check")]
pub struct DiffArguments {
    /// One pending patch alone
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

/// Verify every invariant of the session's files
///
/// Reads the whole log and prints each violation with its file and line; exits with 16 if there is one. Changes nothing
/// without --repair.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini check
  attini check --repair")]
pub struct CheckArguments {
    /// Mend what can be mended without forgetting anything that was done, and keep the originals
    ///
    /// Lines of the log that say nothing, or say something twice, are taken out; each call that would never get a result
    /// gets one (unknown where a line that cannot be read may have told of it); a pending.json that is of no use is set
    /// aside. The files as they were stay beside, as conversation.jsonl.before-repair-TIME and
    /// pending.json.before-repair-TIME. If anything cannot be mended, nothing is changed, and the exit code is 16.
    #[arg(long)]
    pub repair: bool,
}

/// Replay the conversation
///
/// On stdout, as it was shown live, each prompt behind a >. Works while a turn runs, and changes nothing. Warnings and
/// the words of errors are in no record, so they are not shown again; -v shows arguments, results and reasoning too.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini show
  attini show --last
  attini show --turn 3 --markdown > turn-3.md
  attini show --json | jq -r 'select(.type == \"assistant\").text'
  attini --output json show | jq '.records | length'")]
pub struct ShowArguments {
    /// One turn alone
    #[arg(long, value_name = "N", value_parser = value::count_from(1))]
    pub turn: Option<u64>,

    /// The last turn alone
    #[arg(long, conflicts_with = "turn")]
    pub last: bool,

    /// Print the records as they stand in the log, one JSON object a line
    ///
    /// With --output json the one object has them in its field records.
    #[arg(long)]
    pub json: bool,

    /// Print a Markdown document
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// Offer the built-in tools to other agents
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini mcp serve
  attini -C ~/project mcp serve")]
pub struct McpArguments {
    #[command(subcommand)]
    pub command: McpCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub enum McpCommand {
    /// Serve any MCP client over stdin and stdout
    ///
    /// Every call passes the same gate as with attini tools call, without a session. What would need consent is refused,
    /// with the rule that would allow it; a rule that is added counts for the next call. Ends when stdin does, and ends
    /// what still runs then.
    Serve,
}

/// List the tools as the model would see them
///
/// With their source, whether they ask, run beside others, take several operations, and whether their schemas are left
/// out of the requests until the model asks for them (deferred).
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini tools
  attini tools --schema read
  attini tools --refresh
  attini tools call read '{\"path\": \"README.md\"}'")]
pub struct ToolsArguments {
    /// Print one tool's schema
    #[arg(long, value_name = "NAME")]
    pub schema: Option<String>,

    /// Ask all MCP servers for their tools, also where those are known
    ///
    /// The list of a server is kept in .attini/cache until its config changes or the server says that the list did.
    #[arg(long)]
    pub refresh: bool,

    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum ToolsCommand {
    /// Run one call, without a model or a session
    ///
    /// It passes the same gate as a model's call. What would need consent is refused, with the rule that would allow
    /// it.
    Call {
        /// The tool
        #[arg(value_name = "NAME")]
        name: String,
        /// Its arguments, a JSON object
        #[arg(value_name = "JSON")]
        arguments: String,
    },
}

/// Put back the files that a turn's patches changed
///
/// All of them or none: where anything else changed one since, nothing is touched and attini exits with 17. What
/// commands changed is not known and not put back. The model is told with the next prompt.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini undo
  attini undo 3 --dry-run")]
pub struct UndoArguments {
    /// The turn; without it the last one
    #[arg(value_name = "TURN", value_parser = clap::value_parser!(u64).range(1..))]
    pub turn: Option<u64>,

    /// Say what would be put back, and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Put back files outside the workspace too
    #[arg(long)]
    pub outside: bool,

    /// Wait for the session's lock; without SECONDS as long as it takes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, value_parser = value::seconds_from(0))]
    pub wait: Option<Option<u64>>,
}

/// List, test and change the rules that say what may run unasked
///
/// Rules stand in layers, one a line: yours (permissions.jsonl in your config folder), the workspace's
/// (.attini/permissions.jsonl), the session's, and those of --allow and --deny, weakest first. They are read as one
/// list, and the last rule that matches decides.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini rules list
  attini rules test command cargo test --workspace
  attini rules test write src/main.rs
  attini rules add 'command:cargo test'
  attini rules add --scope user --deny 'command:git push'
  attini rules remove 'command:cargo test'")]
pub struct RulesArguments {
    #[command(subcommand)]
    pub command: RulesCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub enum RulesCommand {
    /// List the rules of all layers, weakest first, and whether each counts now
    List,
    Test(RulesTestArguments),
    Add(RulesAddArguments),
    Remove(RulesRemoveArguments),
}

/// Say whether a call would run, ask or be denied, and which rule decides
///
/// Nothing is run, read or fetched. All that follows KIND belongs to the call, so options of attini come before.
#[derive(Debug, Clone, Args)]
pub struct RulesTestArguments {
    /// The command would be given input
    #[arg(long)]
    pub stdin: bool,

    /// The command would run in the background
    #[arg(long)]
    pub background: bool,

    /// The command's folder
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cwd: Option<String>,

    #[arg(value_name = "KIND")]
    pub kind: RuleKind,

    /// A command's words, a path, a host or URL, or a tool's name
    #[arg(value_name = "ARG", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuleKind {
    /// Running a program
    Command,
    /// Changing a file
    Write,
    /// Reading a file or folder
    Read,
    /// Fetching from a host
    Fetch,
    /// Calling a tool that is judged by its name
    Tool,
}

/// Store rules, each unless it is there already
#[derive(Debug, Clone, Args)]
pub struct RulesAddArguments {
    /// The rules deny instead of allowing
    #[arg(long)]
    pub deny: bool,

    /// The layer
    #[arg(long, value_name = "LAYER", default_value = "workspace")]
    pub scope: RuleScope,

    /// A rule's JSON, or short: command:cargo test, write:src, read:../x, fetch:HOST, tool:NAME
    #[arg(value_name = "RULE", required = true)]
    pub rules: Vec<String>,
}

/// Remove rules, whether they allow or deny
///
/// Exits with 3 where the layer has no such rule.
#[derive(Debug, Clone, Args)]
pub struct RulesRemoveArguments {
    /// The layer
    #[arg(long, value_name = "LAYER", default_value = "workspace")]
    pub scope: RuleScope,

    /// As for add; a rule's JSON with `allow` removes that one alone
    #[arg(value_name = "RULE", required = true)]
    pub rules: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuleScope {
    /// This session alone
    Session,
    /// This workspace, in every session
    Workspace,
    /// Everything you do
    User,
}

/// List, copy, move and remove sessions
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini sessions list
  attini sessions fork main experiment
  attini sessions export main main.tar.gz
  attini sessions import main.tar.gz --as from-ci
  attini sessions prune --older-than 30 --dry-run")]
pub struct SessionsArguments {
    #[command(subcommand)]
    pub command: SessionsCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub enum SessionsCommand {
    /// List the sessions, the one used last first
    ///
    /// Each with its state as attini status names it, when it was used last, how many turns and how many bytes it has.
    List,
    /// Remove a session
    ///
    /// Without a question. A locked session is refused (12), and so is one that waits for a person (17), unless --force
    /// is given.
    Rm {
        /// The session
        #[arg(value_name = "NAME", value_parser = value::session_name)]
        name: String,
        /// Also where calls wait for a decision
        #[arg(long)]
        force: bool,
    },
    /// Copy a session under another name
    ///
    /// Calls without a result are cancelled in the copy. Background tasks are not copied.
    Fork {
        /// The session
        #[arg(value_name = "NAME", value_parser = value::session_name)]
        name: String,
        /// The copy's name
        #[arg(value_name = "NEW", value_parser = value::session_name)]
        new: String,
    },
    /// Write a session into one file
    ///
    /// A tar.gz with the conversation, what is pending, the rules, outputs, before-images and the scratchpad; background
    /// tasks are left out. A suspended session can be approved where it is imported.
    Export {
        /// The session
        #[arg(value_name = "NAME", value_parser = value::session_name)]
        name: String,
        /// The file, replaced if it is there; -: stdout
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Make a session of an exported file
    ///
    /// The file is taken as hostile: its names, sizes and records are checked before there is a session. Rules that allow
    /// something are left out, and approvals that were given but not carried out are to be given again, unless
    /// --with-rules says otherwise.
    Import {
        /// What attini sessions export has written
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The session's name; without it the exported one's
        #[arg(long = "as", value_name = "NAME", value_parser = value::session_name)]
        name: Option<String>,
        /// Keep allowing rules and approvals; the rules count once attini trust has seen them
        #[arg(long)]
        with_rules: bool,
    },
    /// Remove what killed invocations left behind, and old sessions
    ///
    /// Without --older-than no session is removed.
    Prune {
        /// Also remove idle sessions that were not used for so many days
        #[arg(long, value_name = "DAYS", value_parser = value::count_from(0))]
        older_than: Option<u64>,
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

/// Show, and trust, this workspace's config and rules
///
/// They come with the checkout, so they may be someone else's: they can name programs to start and addresses to send
/// keys to. They count once you have trusted them as they are now. Without --yes it asks at a terminal, and shows them
/// only elsewhere.
#[derive(Debug, Clone, Args)]
pub struct TrustArguments {
    /// Trust them without being asked
    #[arg(long)]
    pub yes: bool,
}

/// Ask about the session, without touching it
///
/// The model answers from the conversation as it stands, without tools. Question and answer are not kept, nothing is
/// locked, and a turn may run or be suspended meanwhile.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini ask 'what is left to do?'
  attini ask 'why does the pending patch touch src/lib.rs?'
  attini ask - < question.txt")]
pub struct AskArguments {
    /// What you want to know; none, or -: read it from stdin (1 MiB at most)
    pub question: Option<String>,

    /// The model to ask [else the one of the session's last turn]
    #[arg(short, long, value_name = "PROVIDER/MODEL", value_parser = value::model)]
    pub model: Option<String>,
}

/// Summarise older rounds now
///
/// The model writes a summary that stands for them in later requests; the most recent rounds stay as they are. Nothing is
/// removed from conversation.jsonl. It happens by itself once a conversation grows past compact_at_tokens. Refused (17)
/// while a call waits for a decision; exits with 3 if there is nothing to summarise.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini compact
  attini compact -m openai/gpt-5-mini")]
pub struct CompactArguments {
    /// The model to ask [else the one of the session's last turn]
    #[arg(short, long, value_name = "PROVIDER/MODEL", value_parser = value::model)]
    pub model: Option<String>,

    /// Wait for the session's lock; without SECONDS as long as it takes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, value_parser = value::seconds_from(0))]
    pub wait: Option<Option<u64>>,
}

/// List the models that a provider offers
///
/// As the provider's service tells them. Without PROVIDER: the one that the next turn would use.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini models
  attini models ollama
  attini --output json models openrouter | jq -r .models[].model")]
pub struct ModelsArguments {
    /// A built-in or configured provider
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,
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
    ("HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE", "As curl takes them."),
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
