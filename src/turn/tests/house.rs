//! A session in a temporary folder, its tools and its model, and the commands that a person would type.
//!
//! Everything is loaded from disk by each command, as an invocation of its own would.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::command::opened::{complete_finished, run, standing, user_record};
use crate::config::{Config, Run, ToolConfig};
use crate::interrupt::Interrupt;
use crate::permission::{Rule, Rules};
use crate::provider::{Connected, Finish, Message, Progress, Provider, ProviderError, Reply, Request};
use crate::report::event::TurnResult;
use crate::report::{Mode, ReportOptions, Reporter};
use crate::session::folder::SessionFolder;
use crate::session::history::{History, Standing};
use crate::session::log::{self, Log};
use crate::session::pending::{self, PendingFile};
use crate::session::record::{FORMAT, FanOut, OnError, Record, Scope, SessionRecord, ToolCall, TurnSettings, Usage};
use crate::tool::fake::{Fake, Ran};
use crate::tool::patch::Patch;
use crate::tool::registry::Registry;
use crate::tool::{Effect, Tool};
use crate::turn::Turn;
use crate::turn::decisions::{Verdict, decide, is_answered, select};
use crate::turn::verification::verify;
use crate::workspace::Workspace;
use crate::workspace::root::Root;

/// What the model says, and what the person set up.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) replies: Vec<Reply>,
    pub(super) config: Config,
    pub(super) rules: Vec<Rule>,
    pub(super) settings: TurnSettings,
}

impl Plot {
    /// The model calls these tools in its first reply, then answers. `peek` and `glance` are reads that never ask,
    /// `look` is one that asks, `poke` and `prod` are side effects that ask unless a rule says otherwise.
    pub(super) fn new(calls: &[(&str, &str)]) -> Self {
        let settings = TurnSettings {
            model: "fake/model".to_owned(),
            max_rounds: 50,
            max_tool_calls: 1000,
            calls_per_reply: 64,
            result_bytes: 2048,
            round_result_bytes: 8192,
            output_bytes: 1 << 20,
            command_timeout_s: 10,
            concurrency: 3,
            ..TurnSettings::default()
        };
        Self { replies: vec![reply(calls)], config: Config::default(), rules: Vec::new(), settings }
    }

    #[must_use]
    pub(super) fn then(mut self, calls: &[(&str, &str)]) -> Self {
        self.replies.push(reply(calls));
        self
    }

    #[must_use]
    pub(super) fn rule(mut self, tool: &str, allow: bool) -> Self {
        self.rules.push(Rule::Tool { allow, name: tool.to_owned(), turn: None });
        self
    }

    #[must_use]
    pub(super) fn configured(mut self, tool: &str, run: Option<Run>, concurrent: Option<bool>) -> Self {
        self.config.tools.insert(tool.to_owned(), ToolConfig { run, concurrent, ..ToolConfig::default() });
        self
    }

    /// Calls of that tool carry several operations.
    #[must_use]
    pub(super) fn fanned(mut self, tool: &str, concurrency: Option<u64>, on_error: OnError) -> Self {
        let fan_out = FanOut { concurrency, on_error, ..FanOut::default() };
        self.settings.fan_out.insert(tool.to_owned(), fan_out);
        self
    }

    #[must_use]
    pub(super) fn with(mut self, change: impl FnOnce(&mut TurnSettings)) -> Self {
        change(&mut self.settings);
        self
    }
}

/// A reply with these calls; they get the ids `call_1`, `call_2`, and so on.
pub(super) fn reply(calls: &[(&str, &str)]) -> Reply {
    let tool_calls = calls.iter().map(|(name, arguments)| call("", name, arguments)).collect();
    of_calls(tool_calls)
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None }
}

pub(super) fn of_calls(tool_calls: Vec<ToolCall>) -> Reply {
    Reply {
        text: if tool_calls.is_empty() { "done".to_owned() } else { String::new() },
        reasoning: String::new(),
        finish: Finish::End,
        finish_reason: "stop".to_owned(),
        tool_calls,
        usage: Usage::default(),
        opaque: None,
    }
}

pub(super) struct House {
    folder: tempfile::TempDir,
    pub(super) workspace: Workspace,
    pub(super) session: SessionFolder,
    pub(super) ran: Arc<Ran>,
    pub(super) plot: Plot,
    pub(super) events: Arc<Mutex<Vec<Value>>>,
}

/// All that outlives a process.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) log: Option<Vec<u8>>,
    pub(super) pending: Option<Vec<u8>>,
}

impl House {
    pub(super) fn new(plot: Plot) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        let session = work.join(".attini/sessions/main");
        fs_err::create_dir_all(&session).unwrap();
        Self {
            workspace: Workspace::open(&work).unwrap(),
            session: SessionFolder { name: "main".to_owned(), root: Root::open(&session).unwrap() },
            folder,
            ran: Arc::new(Ran::default()),
            plot,
            events: Arc::default(),
        }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("work").join(path)
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.path(".attini/sessions/main").join(log::FILE_NAME)
    }

    pub(super) fn pending_path(&self) -> PathBuf {
        self.path(".attini/sessions/main").join(pending::FILE_NAME)
    }

    pub(super) fn disk(&self) -> Disk {
        Disk { log: fs_err::read(self.log_path()).ok(), pending: fs_err::read(self.pending_path()).ok() }
    }

    pub(super) fn put(&self, disk: &Disk) {
        for (path, bytes) in [(self.log_path(), &disk.log), (self.pending_path(), &disk.pending)] {
            match bytes {
                Some(bytes) => fs_err::write(path, bytes).unwrap(),
                None => drop(fs_err::remove_file(path)),
            }
        }
    }

    pub(super) fn history(&self) -> History {
        Log::read_whole(&self.session).unwrap().unwrap_or_default()
    }

    /// As an invocation loads it: from the last summary on.
    pub(super) fn loaded_history(&self) -> History {
        Log::read(&self.session).unwrap().unwrap_or_default()
    }

    pub(super) fn pending(&self) -> Option<PendingFile> {
        PendingFile::load(&self.session).unwrap()
    }

    /// The records in short: `decision call_1 approve`, `tool_result call_1 ok`.
    pub(super) fn record_lines(&self) -> Vec<String> {
        let text = fs_err::read_to_string(self.log_path()).unwrap();
        text.lines().map(|line| brief(&serde_json::from_str(line).unwrap())).collect()
    }

    /// Status and code of each call's result, in call order.
    pub(super) fn results(&self) -> Vec<String> {
        let history = self.history();
        let calls = history.rounds().flat_map(|round| round.assistant.tool_calls.iter().zip(&round.calls));
        calls
            .map(|(call, progress)| match &progress.result {
                None => format!("{} open", call.id),
                Some(result) => {
                    let status = json!(result.status);
                    let code = result.code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
                    format!("{} {}{code}", call.id, status.as_str().unwrap())
                }
            })
            .collect()
    }

    pub(super) fn effects(&self) -> Vec<String> {
        self.ran.effects.lock().unwrap().clone()
    }

    pub(super) fn reads(&self) -> Vec<String> {
        self.ran.reads.lock().unwrap().clone()
    }

    #[track_caller]
    pub(super) fn ensure_no_faults(&self) {
        let faults = self.ran.faults.lock().unwrap();
        assert!(faults.is_empty(), "{faults:#?}");
    }

    /// What every command does first.
    fn open(&self) -> Option<(Log, Option<PendingFile>)> {
        let (log, _) = Log::open(&self.session).unwrap()?;
        let pending = self.pending();
        if pending.as_ref().is_some_and(|file| is_answered(file, log.history())) {
            PendingFile::remove(&self.session).unwrap();
            return Some((log, None));
        }
        Some((log, pending))
    }

    pub(super) fn tell(&self, text: &str) -> TurnResult {
        self.in_invocation(|hall| {
            let settings = self.plot.settings.clone();
            let Some((mut log, pending)) = self.open() else {
                let session = SessionRecord {
                    format: FORMAT,
                    id: "0".repeat(32),
                    at: crate::clock::now(),
                    attini: "0".to_owned(),
                };
                let records = [Record::Session(session), user_record(1, text, &settings)];
                let log = Log::create(&self.session, &records).unwrap();
                return run(self.turn(log, settings, hall), None, |_| {});
            };
            complete_finished(&mut log).unwrap();
            let user = user_record(log.history().turn() + 1, text, &settings);
            let mut turn = self.turn(log, settings, hall);
            match &pending {
                Some(file) => turn.drop_pending(file).unwrap(),
                None => turn.repair(|_| false).unwrap(),
            }
            turn.log.append(&user).unwrap();
            turn.elapsed_before_ms = 0;
            run(turn, None, |_| {})
        })
    }

    /// `None`: there is nothing to go on with, or a person has to decide first.
    pub(super) fn resume(&self) -> Option<TurnResult> {
        self.resume_with(|_| {})
    }

    pub(super) fn resume_with(&self, change: impl FnOnce(&mut TurnSettings)) -> Option<TurnResult> {
        self.in_invocation(|hall| {
            let (mut log, pending) = self.open()?;
            if pending.as_ref().is_some_and(|file| file.undecided().next().is_some()) {
                return None;
            }
            if pending.is_none() && standing(log.history()) == Standing::Finished {
                complete_finished(&mut log).unwrap();
                return None;
            }
            let mut settings = log.history().user().unwrap().settings.clone();
            change(&mut settings);
            let mut turn = self.turn(log, settings, hall);
            match &pending {
                Some(file) => self.ensure_verified(&turn, file),
                None => turn.repair(|_| false).unwrap(),
            }
            Some(run(turn, pending.as_ref(), |_| {}))
        })
    }

    /// `None`: nothing is pending, or something is still undecided.
    pub(super) fn decide(&self, ids: &[&str], verdict: &Verdict) -> Option<TurnResult> {
        self.in_invocation(|hall| {
            let (log, pending) = self.open()?;
            let mut file = pending?;
            let settings = log.history().user().unwrap().settings.clone();
            let turn = self.turn(log, settings, hall);
            self.ensure_verified(&turn, &file);
            let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
            let selected = select(&file, &ids, verdict).unwrap();
            decide(&mut file, &selected, verdict);
            file.store(&self.session).unwrap();
            file.undecided().next().is_none().then(|| run(turn, Some(&file), |_| {}))
        })
    }

    pub(super) fn approve(&self, ids: &[&str]) -> Option<TurnResult> {
        self.decide(ids, &Verdict::Approve)
    }

    pub(super) fn deny(&self, ids: &[&str]) -> Option<TurnResult> {
        self.decide(ids, &Verdict::Deny { reason: Some("not now".to_owned()) })
    }

    fn ensure_verified(&self, turn: &Turn<'_>, file: &PendingFile) {
        let registry = self.registry(&turn.settings);
        turn.with_surroundings(|surroundings| {
            verify(file, turn.history(), &registry, surroundings, &turn.rules).map(drop)
        })
        .unwrap();
    }

    fn registry(&self, settings: &TurnSettings) -> Registry {
        let tools: Vec<Arc<dyn Tool>> = vec![
            Fake::tool("peek", Effect::Read, false, &self.ran),
            Fake::tool("glance", Effect::Read, false, &self.ran),
            Fake::tool("look", Effect::Read, true, &self.ran),
            Fake::tool("poke", Effect::SideEffect, true, &self.ran),
            Fake::tool("prod", Effect::SideEffect, true, &self.ran),
            Arc::new(Patch::new()),
        ];
        Registry::new(tools, &self.plot.config, settings.read_only, &settings.fan_out).0
    }

    fn in_invocation<T>(&self, command: impl FnOnce(&Hall) -> T) -> T {
        let watcher = Watcher {
            log: self.log_path(),
            pending: self.pending_path(),
            ran: Arc::clone(&self.ran),
            events: Arc::clone(&self.events),
            line: Vec::new(),
        };
        let options = ReportOptions { mode: Mode::Events, ..ReportOptions::default() };
        let reporter = Reporter::with_streams(options, Box::new(watcher), Box::new(io::sink()), crate::clock::now);
        command(&Hall { reporter, interrupt: Interrupt::default() })
    }

    fn turn<'a>(&'a self, log: Log, settings: TurnSettings, hall: &'a Hall) -> Turn<'a> {
        let rules = self.plot.rules.iter().map(|rule| (Scope::CommandLine, rule.clone()));
        let player = Player { replies: self.plot.replies.clone(), ran: Arc::clone(&self.ran) };
        Turn {
            servers: crate::mcp::Servers::none(),
            workspace: &self.workspace,
            folder: &self.session,
            state: None,
            elapsed_before_ms: log.history().spent().elapsed_ms,
            has_failed_to_summarise: false,
            log,
            registry: Arc::new(self.registry(&settings)),
            settings,
            connected: Connected {
                provider: Box::new(player),
                provider_name: "fake".to_owned(),
                model_name: "model".to_owned(),
                context_tokens: None,
                takes_no_choice: true,
                takes_images: false,
                key_variables: Vec::new(),
            },
            rules: Rules::new(self.workspace.root.path(), rules),
            memory: crate::call::repeated::Memory::default(),
            interrupt: &hall.interrupt,
            reporter: &hall.reporter,
            withheld_variables: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// A turn over what is on disk, for tests of a part of it.
    pub(super) fn with_turn<T>(&self, work: impl FnOnce(Turn<'_>) -> T) -> T {
        self.in_invocation(|hall| {
            let (log, _) = self.open().unwrap();
            work(self.turn(log, self.plot.settings.clone(), hall))
        })
    }
}

struct Hall {
    reporter: Reporter,
    interrupt: Interrupt,
}

/// Plays the reply that the conversation is at, and looks at every request: pairs are whole and in order.
struct Player {
    replies: Vec<Reply>,
    ran: Arc<Ran>,
}

impl Provider for Player {
    fn complete(
        &self,
        request: &Request<'_>,
        _: &Interrupt,
        _: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Reply, ProviderError> {
        if let Err(fault) = check_pairs(request.messages) {
            self.ran.faults.lock().unwrap().push(fault);
        }
        if request.tool_choice_none {
            return Ok(Reply { text: format!("summary of {}", request.messages.len()), ..of_calls(Vec::new()) });
        }
        let index = usize::try_from(request.replies_before).unwrap();
        Ok(self.replies.get(index).cloned().unwrap_or_else(|| of_calls(Vec::new())))
    }
}

/// What is wrong with the order of messages.
pub(super) fn check_pairs(messages: &[Message]) -> Result<(), String> {
    let mut wanted: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Results(results) => {
                let given: Vec<&str> = results.iter().map(|result| result.call_id.as_str()).collect();
                if given != wanted || given.is_empty() {
                    return Err(format!("results for {given:?} behind calls {wanted:?}"));
                }
                if results.iter().any(|result| result.content.trim().is_empty()) {
                    return Err("an empty result".to_owned());
                }
                wanted.clear();
            }
            _ if !wanted.is_empty() => return Err(format!("no results for {wanted:?}")),
            Message::Assistant(assistant) => {
                wanted = assistant.tool_calls.iter().map(|call| call.id.as_str()).collect();
            }
            Message::User { .. } => {}
        }
    }
    if wanted.is_empty() { Ok(()) } else { Err(format!("no results for {wanted:?}")) }
}

/// Takes events, and looks whether what they tell of is on disk.
struct Watcher {
    log: PathBuf,
    pending: PathBuf,
    ran: Arc<Ran>,
    events: Arc<Mutex<Vec<Value>>>,
    line: Vec<u8>,
}

impl Watcher {
    fn see(&self, event: Value) {
        let on_disk = match event["type"].as_str() {
            Some("tool_result") => fs_err::read_to_string(&self.log).unwrap().lines().any(|line| {
                let record: Value = serde_json::from_str(line).unwrap();
                let kind = if event["operation"].is_null() { "tool_result" } else { "operation_result" };
                record["type"] == kind
                    && record["call_id"] == event["call_id"]
                    && record["operation"] == event["operation"]
            }),
            Some("awaiting") => {
                let file: Value = serde_json::from_slice(&fs_err::read(&self.pending).unwrap()).unwrap();
                file["digest"] == event["digest"]
            }
            _ => true,
        };
        if !on_disk {
            self.ran.faults.lock().unwrap().push(format!("told before it was on disk: {event}"));
        }
        self.events.lock().unwrap().push(event);
    }
}

impl Write for Watcher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            self.see(serde_json::from_slice(&line).unwrap());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn brief(record: &Value) -> String {
    let kind = record["type"].as_str().unwrap();
    let word = |field: &str| record[field].as_str().map(|text| format!(" {text}")).unwrap_or_default();
    let operation = record["operation"].as_u64().map(|number| format!("#{number}")).unwrap_or_default();
    let id = format!("{}{operation}", word("call_id"));
    match kind {
        "decision" => format!("{kind}{id}{}", word("decision")),
        "tool_start" => format!("{kind}{id}"),
        "tool_result" | "operation_result" => format!("{kind}{id}{}{}", word("status"), word("code")),
        "turn_end" => format!("{kind}{}{}", word("status"), word("limit")),
        _ => kind.to_owned(),
    }
}
