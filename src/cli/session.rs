//! The commands that look at a session, or do something to it, without a turn.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::value;

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
