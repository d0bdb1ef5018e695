//! What `approve`, `deny`, `answer`, `review` and `resume` share: going on with a turn that an earlier invocation began.

use super::invocation::Invocation;
use super::opened::{Continued, Equipment, conclude, finish, run};
use crate::cli::TurnOptions;
use crate::config::trust::Trust;
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::{Rule, RulesFile};
use crate::report::event::TurnResult;
use crate::report::line::{Line, Tone};
use crate::report::shell::shell_quote;
use crate::session::folder::SessionFolder;
use crate::session::history::History;
use crate::session::pending::PendingFile;
use crate::session::record::{OperationId, Scope, TurnSettings};
use crate::turn::Turn;
use crate::turn::ending::result_of;
use crate::turn::verification::{Grants, Recomputed, ensure_answers};

/// What decisions are made on.
pub struct Ground<'a> {
    pub invocation: &'a Invocation,
    pub folder: &'a SessionFolder,
    pub history: &'a History,
    pub equipment: &'a Equipment,
    /// The file's calls as they are now.
    pub recomputed: &'a [Option<Recomputed<'a>>],
    pub trust: &'a Trust,
}

impl Ground<'_> {
    /// Refuses (2) an answer that is none to what the file's call of that index asked back.
    pub fn ensure_answers(&self, file: &PendingFile, index: usize, text: &str) -> Result<(), Failure> {
        ensure_answers(&file.calls[index], self.recomputed[index].as_ref(), self.history, text)
    }

    /// Writes down what was decided, if that is anything new.
    pub fn store(&self, before: &PendingFile, decided: PendingFile) -> anyhow::Result<PendingFile> {
        if decided != *before {
            decided.store(self.folder)?;
        }
        Ok(decided)
    }
}

/// Decides on the calls of a file that fits the conversation, and the digest that the person speaks of; then goes on with
/// the turn, or tells that some calls still wait. `decide` returns the file as it has written it.
pub fn decide_on(
    invocation: &Invocation,
    opened: Continued<'_>,
    file: PendingFile,
    (options, if_digest): (&TurnOptions, Option<&str>),
    decide: impl FnOnce(&Ground<'_>, PendingFile) -> anyhow::Result<PendingFile>,
) -> anyhow::Result<Status> {
    ensure_digest(&file, if_digest)?;
    let trust = invocation.trust()?;
    let equipment = equipment(invocation, &opened, options, &trust)?;
    let recomputed = equipment.verify(invocation, opened.folder, opened.log.history(), &file)?;
    let (folder, history) = (opened.folder, opened.log.history());
    let ground = Ground { invocation, folder, history, equipment: &equipment, recomputed: &recomputed, trust: &trust };
    let decided = decide(&ground, file)?;
    let grants = Grants::of(&decided, opened.log.history(), &recomputed);
    drop(recomputed);
    if decided.undecided().next().is_some() {
        return Ok(still_suspended(invocation, opened.log.history(), &decided));
    }
    carry_out(invocation, opened, equipment, &decided, &grants, trust)
}

/// Every pending call is decided, so there is nothing to deny or to answer.
pub fn all_decided() -> Failure {
    Failure::new(Status::NothingPending, "every pending call is decided already")
        .hint("`attini resume` carries the decisions out; a new prompt drops the calls")
}

/// Refuses (17) a pending.json that is not the one that the person speaks of.
fn ensure_digest(file: &PendingFile, wanted: Option<&str>) -> Result<(), Failure> {
    match wanted {
        Some(wanted) if wanted != file.digest => {
            Err(Failure::conflict(format!("pending.json has the digest {}, not {wanted}", file.digest))
                .hint("look at what is pending now: `attini status`"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The equipment of the turn that the log ends in: as it was started, but for explicit options.
pub fn equipment(
    invocation: &Invocation,
    opened: &Continued<'_>,
    options: &TurnOptions,
    trust: &Trust,
) -> anyhow::Result<Equipment> {
    let history = opened.log.history();
    let config = invocation.trusted_config(trust)?.config;
    let mut settings: TurnSettings = history.user().map(|user| user.settings.clone()).unwrap_or_default();
    settings.override_by(options, &config, &invocation.workspace)?;
    let recorded_deny = settings.deny.clone();
    Equipment::of(invocation, Some(opened.folder), history.turn(), &recorded_deny, settings, &config, trust)
}

/// Carries out the decisions of a file in which all are made. The rules granted with them are stored first, so that
/// they count for what is carried; where that fails, the decisions stand all the same.
pub fn carry_out(
    invocation: &Invocation,
    opened: Continued<'_>,
    mut equipment: Equipment,
    pending: &PendingFile,
    grants: &Grants,
    mut trust: Trust,
) -> anyhow::Result<Status> {
    let folder = opened.folder;
    let number = opened.log.history().turn();
    let mut is_any_stored = false;
    for (id, granted) in &grants.stored {
        let turn = (granted.scope == Scope::Turn).then_some(number);
        let rules: Vec<Rule> = granted.rules.iter().cloned().map(|rule| rule.with_turn(turn)).collect();
        let file = rules_file(invocation, folder, granted.scope);
        match file.add(&rules, &mut trust) {
            Ok(()) => {
                is_any_stored = true;
                invocation.reporter.notice(&stored_lines(id, file, &rules));
            }
            Err(error) => invocation.reporter.warning(&not_stored(invocation, id, file, &rules, &error)),
        }
    }
    for id in &grants.void {
        invocation
            .reporter
            .warning(&format!("{id} is no longer what was shown; the rule granted with it is not stored"));
    }
    if is_any_stored {
        let recorded_deny = opened.log.history().user().map(|user| user.settings.deny.clone()).unwrap_or_default();
        equipment.rules = invocation.rules(Some(folder), Some(number), &recorded_deny, &trust)?;
    }
    let turn = equipment.into_turn(invocation, folder, opened.log);
    let result = run(turn, Some(pending), |result| conclude(invocation, folder, result));
    Ok(Status::of_result(&result))
}

/// Which rules went into which file. It comes from a file that anybody may have edited, so a person is told of it.
fn stored_lines(id: &OperationId, file: RulesFile<'_>, rules: &[Rule]) -> Vec<Line> {
    let line = |rule: &Rule| format!("granted with {id}, stored in {}: {}", file.shown(), rule.to_line());
    rules.iter().map(|rule| Line::exactly(Tone::Plain, &line(rule))).collect()
}

/// Why rules that were granted are not stored, and how to store them.
fn not_stored(
    invocation: &Invocation,
    id: &OperationId,
    file: RulesFile<'_>,
    rules: &[Rule],
    error: &anyhow::Error,
) -> String {
    let failure = Failure::of(error);
    let first = failure.hint.map(|hint| format!("{hint}; then ")).unwrap_or_default();
    let scope = if file.scope() == Scope::Session { "session" } else { "workspace" };
    let lines: Vec<String> = rules.iter().map(Rule::to_line).collect();
    format!(
        "{id} is approved, and the rule granted with it was not stored: {}; to add it: {first}{} rules add --scope \
         {scope} {}",
        failure.message,
        invocation.command_prefix,
        shell_quote(&lines),
    )
}

/// Where the rules of a grant are stored.
pub fn rules_file<'a>(invocation: &'a Invocation, folder: &'a SessionFolder, scope: Scope) -> RulesFile<'a> {
    match scope {
        Scope::Workspace => RulesFile::workspace(&invocation.workspace),
        Scope::Session
        | Scope::Turn
        | Scope::Builtin
        | Scope::Config
        | Scope::User
        | Scope::CommandLine
        | Scope::Person
        | Scope::Repair => RulesFile::session(folder),
    }
}

/// Goes on with a turn in which nothing is pending: repairs, then asks the model again.
pub fn go_on(invocation: &Invocation, opened: Continued<'_>, equipment: Equipment) -> Status {
    let mut turn: Turn<'_> = equipment.into_turn(invocation, opened.folder, opened.log);
    // What asked back was not broken off: the question is put again.
    let waiting: Vec<OperationId> = turn.waiting_operations();
    let last = |result: &TurnResult| conclude(invocation, opened.folder, result);
    let result = match turn.repair(|id: &OperationId| waiting.contains(id)) {
        Ok(()) => run(turn, None, last),
        Err(error) => finish(turn, Err(error), last),
    };
    Status::of_result(&result)
}

/// Tells of a turn that stays suspended.
pub fn still_suspended(invocation: &Invocation, history: &History, pending: &PendingFile) -> Status {
    let status = if pending.awaits_answers_alone() { Status::AwaitingAnswer } else { Status::AwaitingApproval };
    let mut result = result_of(history, status, Some(pending), None);
    result.session = Some(invocation.session.clone());
    invocation.reporter.finish(&result);
    status
}
