//! The commands about what is allowed.

use clap::{Args, Subcommand, ValueEnum, ValueHint};

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
