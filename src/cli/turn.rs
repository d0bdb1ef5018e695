//! The commands that run a turn, and the options they share.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::value;

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
