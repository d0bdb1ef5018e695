//! A session taken under its lock: its log mended and loaded, its pending.json read, what stands in the way reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::invocation::Invocation;
use crate::call::repeated::Memory;
use crate::config::Config;
use crate::config::layers::ensure_tools_exist;
use crate::config::trust::Trust;
use crate::exit::Status;
use crate::failure::Failure;
use crate::mcp::Servers;
use crate::permission::{HostVerdict, ReadDenials, Rule, Rules, RulesFile};
use crate::provider::{self, Connected};
use crate::report::event::{Event, TurnResult};
use crate::session::folder::SessionFolder;
use crate::session::history::{History, Standing};
use crate::session::lock::{Lock, Patience};
use crate::session::log::Log;
use crate::session::pending::PendingFile;
use crate::session::record::{Record, TurnSettings, TurnStatus, UserRecord};
use crate::tool::Surroundings;
use crate::tool::own;
use crate::tool::patch::recover::follow_trace;
use crate::tool::registry::Registry;
use crate::tool::registry::builtin_tools;
use crate::turn::Turn;
use crate::turn::decisions::is_answered;
use crate::turn::offered::take_down;
use crate::turn::prompt::violations;
use crate::turn::rounds::Ending;
use crate::turn::verification::{Recomputed, verify};
use crate::workspace::environment::withheld_variables;

/// A session folder that this invocation alone may change.
pub struct Opened {
    /// Held until the invocation is done.
    lock: Lock,
    /// `None`: the folder holds no session yet.
    pub log: Option<Log>,
    /// What the turn waits for; a stale file is reported and gone already.
    pub pending: Option<PendingFile>,
}

/// Takes the session's lock, waiting as `--wait` says, and loads what is there.
pub fn open(invocation: &Invocation, folder: &SessionFolder, wait: Option<Option<u64>>) -> anyhow::Result<Opened> {
    let patience = match wait {
        None => Patience::Short,
        Some(None) => Patience::Forever,
        Some(Some(seconds)) => Patience::For(Duration::from_secs(seconds)),
    };
    let lock = Lock::take(folder, patience, &invocation.interrupt, |holder| {
        invocation.reporter.warning(&format!("waiting for the session {}, held by {holder}", folder.name));
    })?;
    let log = Log::open(folder)?;
    folder
        .clean()
        .map_err(|error| Failure::persistence(format!("{} cannot be cleaned up: {error}", folder.display(""))))?;
    follow_trace(folder, &invocation.workspace).map_err(|error| {
        Failure::persistence(format!("what an undo that was killed left cannot be cleaned up: {error}"))
    })?;
    let Some((log, warnings)) = log else {
        return Ok(Opened { lock, log: None, pending: None });
    };
    for warning in warnings {
        invocation.reporter.warning(&warning);
    }
    let mut pending = PendingFile::load(folder)?;
    if pending.as_ref().is_some_and(|file| is_answered(file, log.history())) {
        invocation.reporter.warning("pending.json was left over: all its calls are answered; it is removed");
        PendingFile::remove(folder)?;
        pending = None;
    }
    Ok(Opened { lock, log: Some(log), pending })
}

/// A session under its lock, for a command that continues it.
pub struct Continued<'a> {
    pub folder: &'a SessionFolder,
    pub log: Log,
    pub pending: Option<PendingFile>,
    #[expect(dead_code, reason = "it is held, not read")]
    lock: Lock,
}

/// Opens a session that must exist.
pub fn open_existing<'a>(
    invocation: &Invocation,
    folder: Option<&'a SessionFolder>,
    wait: Option<Option<u64>>,
) -> anyhow::Result<Continued<'a>> {
    let Some(folder) = folder else { return Err(nothing_pending(invocation, None).into()) };
    match open(invocation, folder, wait)? {
        Opened { lock, log: Some(log), pending } => Ok(Continued { folder, log, pending, lock }),
        Opened { log: None, .. } => Err(nothing_pending(invocation, None).into()),
    }
}

/// There is nothing for approve, deny or resume to act on. `history`: the session's, if there is one.
pub fn nothing_pending(invocation: &Invocation, history: Option<&History>) -> Failure {
    let session = &invocation.session;
    let nothing =
        |what: &str| Failure::new(Status::NothingPending, format!("nothing is pending in the session {session}{what}"));
    match history.map(standing) {
        None | Some(Standing::Finished) => nothing("").hint("start a turn with `attini tell PROMPT`"),
        Some(Standing::Unfinished) => nothing(", and its last turn is unfinished")
            .hint("`attini resume` goes on with it; a new prompt starts another turn"),
    }
}

/// Where the conversation stands, pending.json aside.
pub fn standing(history: &History) -> Standing {
    history.standing(|user, text| violations(user.settings.output_schema.as_ref(), text).is_empty())
}

/// Writes the `turn_end` that a kill took from a turn that was finished.
pub fn complete_finished(log: &mut Log) -> anyhow::Result<()> {
    if log.history().turn() == 0 || log.history().turn_end().is_some() || standing(log.history()) != Standing::Finished
    {
        return Ok(());
    }
    let spent = log.history().spent();
    log.append(&Record::TurnEnd(crate::session::record::TurnEndRecord {
        turn: log.history().turn(),
        at: crate::clock::now(),
        status: TurnStatus::Completed,
        limit: None,
        elapsed_ms: spent.elapsed_ms,
        rounds: spent.rounds,
        tool_calls: spent.tool_calls,
        usage: spent.usage,
    }))?;
    log.barrier()
}

/// What a turn runs with besides its log: everything that can be wrong about it is found before anything is changed.
pub struct Equipment {
    pub settings: TurnSettings,
    pub connected: Connected,
    pub registry: Registry,
    pub servers: Servers,
    pub rules: Rules,
    pub withheld_variables: Vec<String>,
}

impl Equipment {
    /// `folder`: the session's, whose rules count, if it exists. `recorded_deny`: the `--deny` rules of the turn's start.
    pub fn of(
        invocation: &Invocation,
        folder: Option<&SessionFolder>,
        turn: u64,
        recorded_deny: &[Rule],
        mut settings: TurnSettings,
        config: &Config,
        trust: &Trust,
    ) -> anyhow::Result<Self> {
        let mut tools = builtin_tools();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        ensure_tools_exist(config, &names)?;
        tools.extend(own::tools(config));
        let connected = provider::connect(&settings.model, config, &invocation.workspace)?;
        let rules = invocation.rules(folder, Some(turn), recorded_deny, trust)?;
        let withheld_variables = withheld_variables(&config.environment_pass, &provider::key_variables(config));
        // Last, as it may start servers: nothing else is wrong by then.
        let servers = invocation.add_mcp_tools(&mut tools, config, &withheld_variables, false)?;
        let (registry, warnings) = Registry::new(tools, config, settings.read_only, &settings.fan_out);
        for warning in warnings {
            invocation.reporter.warning(&warning);
        }
        if let Some(difference) = take_down(&mut settings, &registry) {
            invocation.reporter.warning(&difference);
        }
        Ok(Self { settings, connected, registry, servers, rules, withheld_variables })
    }

    /// Refuses (17) a pending.json that is not what the conversation says, and returns what its calls are now.
    pub fn verify(
        &self,
        invocation: &Invocation,
        folder: &SessionFolder,
        history: &History,
        file: &PendingFile,
    ) -> anyhow::Result<Vec<Option<Recomputed<'_>>>> {
        let surroundings = Surroundings {
            workspace: &invocation.workspace,
            session: Some(folder),
            written: history.written(),
            limits: &self.settings.tool_limits(),
            withheld_variables: &self.withheld_variables,
            fetch_verdict: &|_| HostVerdict::Asks,
            read_denials: &ReadDenials::of(&self.rules),
            state: None,
        };
        Ok(verify(file, history, &self.registry, &surroundings, &self.rules)?)
    }

    pub fn into_turn<'a>(self, invocation: &'a Invocation, folder: &'a SessionFolder, log: Log) -> Turn<'a> {
        invocation.interrupt.end_in_order();
        Turn {
            workspace: &invocation.workspace,
            folder,
            state: invocation.state().root(),
            elapsed_before_ms: log.history().spent().elapsed_ms,
            has_failed_to_summarise: false,
            log,
            settings: self.settings,
            registry: Arc::new(self.registry),
            servers: self.servers,
            connected: self.connected,
            rules: self.rules,
            interrupt: &invocation.interrupt,
            reporter: &invocation.reporter,
            withheld_variables: self.withheld_variables,
            memory: Memory::default(),
            begun: Instant::now(),
        }
    }
}

/// The `user` record that begins a turn.
pub fn user_record(turn: u64, text: &str, settings: &TurnSettings) -> Record {
    Record::User(UserRecord {
        turn,
        at: crate::clock::now(),
        text: crate::mask::apply(text).into_owned(),
        settings: settings.clone(),
    })
}

/// Runs the turn to its ending, whatever that is, and tells of it. `last` is done when the ending is on disk and before
/// it is told: the result is the last word.
pub fn run(mut turn: Turn<'_>, pending: Option<&PendingFile>, last: impl FnOnce(&TurnResult)) -> TurnResult {
    let model = turn.settings.model.clone();
    turn.reporter.tell(Some(turn.history().turn()), &Event::TurnStarted { model });
    let ended = turn.watch_time().and_then(|()| match pending {
        Some(file) => turn.repair_started(file).and_then(|()| turn.go_on(Some(file))),
        None => turn.go_on(None),
    });
    finish(turn, ended, last)
}

/// What is left to do before a turn's result is told.
pub fn conclude(invocation: &Invocation, folder: &SessionFolder, result: &TurnResult) {
    if let (Status::Completed, Some(turn)) = (Status::of_result(result), result.turn) {
        forget_turn_rules(invocation, folder, turn);
    }
}

/// Takes the rules that counted in this turn alone, or in one before it, out of the session's file. They no longer count
/// anyway, so that failing to do so is no more than worth a warning.
pub fn forget_turn_rules(invocation: &Invocation, folder: &SessionFolder, turn: u64) {
    let forgotten = invocation.trust().and_then(|mut trust| RulesFile::session(folder).remove_turns(turn, &mut trust));
    if let Err(error) = forgotten {
        invocation.reporter.warning(&format!("the rules of turn {turn} stay in the session's rules file: {error:#}"));
    }
}

/// Puts the ending on disk, then tells of it. What cannot be put there is the ending. `last`: see [`run`].
pub fn finish(mut turn: Turn<'_>, ended: anyhow::Result<Ending>, last: impl FnOnce(&TurnResult)) -> TurnResult {
    let result = match ended.and_then(|ending| turn.end(ending)) {
        Ok(result) => result,
        Err(error) => {
            let failure = Failure::of(&error);
            if failure.status != Status::PersistenceError {
                let recorded = turn.append_turn_end(TurnStatus::Error, None).and_then(|()| turn.log.barrier());
                drop(recorded);
            }
            turn.result(failure.status, None, Some(&failure))
        }
    };
    turn.servers.end();
    turn.warn_of_servers();
    last(&result);
    if result.exit_code == Status::Completed.code() {
        turn.reporter.answer(result.text.as_deref().unwrap_or_default());
    }
    turn.reporter.finish(&result);
    result
}
