//! The invariants of a conversation's log, written down a second time, apart from attini's own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// One call of an assistant record, and what became of it so far.
#[derive(Debug, Default)]
struct Call {
    /// The number of its assistant record.
    reply: usize,
    tool: String,
    answered: bool,
    allowed: BTreeSet<Option<u64>>,
    decided: BTreeSet<Option<u64>>,
    started: BTreeSet<Option<u64>>,
    settled: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Log {
    calls: BTreeMap<String, Call>,
    replies: usize,
    turn: u64,
    round: u64,
    last_end: Option<String>,
    strands: bool,
    tasks: BTreeSet<String>,
    line_ends: BTreeSet<u64>,
    /// The record at hand was written by the test itself.
    planted: bool,
    found: Vec<String>,
}

/// All violations of a log, with line numbers. The first `planted_lines` lines were written by the test itself: a
/// repair may answer their calls later than attini would have let them wait.
pub(crate) fn check_log(text: &str, planted_lines: usize, pending: Option<&Value>) -> Vec<String> {
    let mut log = Log::default();
    if !text.ends_with('\n') {
        log.found.push("the log does not end in a newline".to_owned());
    }
    let mut offset = 0;
    let mut types = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let before = log.found.len();
        match serde_json::from_str::<Value>(line) {
            Ok(record) if record.is_object() => {
                types.push(record["type"].as_str().unwrap_or_default().to_owned());
                log.planted = index < planted_lines;
                log.check_record(&record);
            }
            Ok(_) => log.found.push("not an object".to_owned()),
            Err(error) => log.found.push(format!("not JSON: {error}")),
        }
        for violation in &mut log.found[before..] {
            *violation = format!("line {}: {violation}", index + 1);
        }
        offset += line.len() as u64 + 1;
        log.line_ends.insert(offset);
    }
    if types.first().is_none_or(|first| first != "session") || types.get(1).is_none_or(|second| second != "user") {
        log.found.push("the log does not begin with a session and a user record".to_owned());
    }
    if types.iter().filter(|kind| *kind == "session").count() > 1 {
        log.found.push("the log holds two session records".to_owned());
    }
    log.check_end(pending);
    log.found
}

impl Log {
    fn check_record(&mut self, record: &Value) {
        let kind = record["type"].as_str().unwrap_or_default();
        let timed = ["session", "user", "assistant", "tool_start", "tool_result", "notice", "summary", "turn_end"];
        if timed.contains(&kind) && !record["at"].as_str().is_some_and(is_time) {
            self.found.push(format!("{kind}: at is {}, not RFC 3339 UTC with milliseconds", record["at"]));
        }
        match kind {
            "" => self.found.push("a record without a type".to_owned()),
            "session" if record["format"] != 1 => self.found.push(format!("the format is {}", record["format"])),
            "user" => self.check_user(record),
            "assistant" => self.check_assistant(record),
            "decision" => self.check_decision(record),
            "tool_start" => self.check_start(record),
            "call_waiting" => self.check_waiting(record),
            "operation_result" => self.check_operation_result(record),
            "tool_result" => self.check_tool_result(record),
            "notice" => self.check_notice(record),
            "summary" => self.check_summary(record),
            "turn_end" => self.check_turn_end(record),
            _ => {}
        }
    }

    fn check_user(&mut self, record: &Value) {
        let turn = record["turn"].as_u64().unwrap_or(0);
        if turn <= self.turn {
            self.found.push(format!("turn {turn} starts after turn {}", self.turn));
        }
        (self.turn, self.round, self.last_end) = (turn, 0, None);
        if !record["settings"].is_object() && !self.planted {
            self.found.push("a user record without settings".to_owned());
        }
        self.strands = record["settings"]["trailing_reads"] == "strand";
        self.check_all_answered("a prompt");
    }

    fn check_assistant(&mut self, record: &Value) {
        let turn = record["turn"].as_u64().unwrap_or(0);
        let round = record["round"].as_u64().unwrap_or(0);
        if turn != self.turn || round == 0 || round < self.round {
            let (last_turn, last_round) = (self.turn, self.round);
            self.found.push(format!("turn {turn} round {round} comes after turn {last_turn} round {last_round}"));
        }
        self.round = round;
        self.check_all_answered("a reply");
        self.replies += 1;
        let calls = record["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        // A refusal or a reply that was cut short may say nothing; an answer may not.
        let ended_well = ["stop", "end_turn"].iter().any(|reason| record["finish_reason"] == *reason);
        if ended_well && calls.is_empty() && record["text"].as_str().is_none_or(str::is_empty) {
            self.found.push("an empty answer is recorded".to_owned());
        }
        for call in calls {
            let id = call["id"].as_str().unwrap_or_default();
            let is_word = (1..=64).contains(&id.len())
                && !id.starts_with('-')
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
            if !is_word {
                self.found.push(format!("the call id {id:?} is not of [A-Za-z0-9_-]{{1,64}}, or begins with a hyphen"));
            }
            if !call["name"].is_string() || !call["arguments"].is_string() {
                self.found.push(format!("the call {id:?} has no name or no arguments"));
            }
            let tool = call["name"].as_str().unwrap_or_default().to_owned();
            let call = Call { reply: self.replies, tool, ..Call::default() };
            if self.calls.insert(id.to_owned(), call).is_some() {
                self.found.push(format!("the call id {id:?} is used twice"));
            }
        }
    }

    fn check_decision(&mut self, record: &Value) {
        let operation = record["operation"].as_u64();
        let decision = record["decision"].as_str().unwrap_or_default();
        let scope = record.pointer("/auto_decided_by/scope").and_then(Value::as_str);
        let Some(call) = self.open_call(record, "decision") else { return };
        let twice = !call.decided.insert(operation);
        let late = call.started.contains(&operation);
        if decision == "allow" || decision == "approve" {
            call.allowed.insert(operation);
        }
        if twice {
            self.found.push("the call has a decision already".to_owned());
        }
        if late {
            self.found.push("the decision comes after the start".to_owned());
        }
        if !["allow", "approve", "deny", "answer"].contains(&decision) {
            self.found.push(format!("the decision {decision:?} is unknown"));
        }
        self.check_scope(scope);
    }

    fn check_start(&mut self, record: &Value) {
        let operation = record["operation"].as_u64();
        let Some(call) = self.open_call(record, "tool_start") else { return };
        let twice = !call.started.insert(operation);
        let allowed = call.allowed.contains(&operation) || call.allowed.contains(&None);
        if twice {
            self.found.push("the call was started before".to_owned());
        }
        if !allowed {
            self.found.push("the call was started without a decision that allows it".to_owned());
        }
    }

    /// What asks back was started; it is decided and started anew with the answer.
    fn check_waiting(&mut self, record: &Value) {
        let operation = record["operation"].as_u64();
        let Some(call) = self.open_call(record, "call_waiting") else { return };
        let was_started = call.started.remove(&operation);
        call.decided.remove(&operation);
        if !was_started {
            self.found.push("the call asks back and was not started".to_owned());
        }
        if !record["question"].is_string() || record["state"].is_null() {
            self.found.push("a call_waiting without a question or a state".to_owned());
        }
    }

    fn check_operation_result(&mut self, record: &Value) {
        let operation = record["operation"].as_u64();
        let Some(call) = self.open_call(record, "operation_result") else { return };
        let fresh = operation.is_some_and(|operation| operation > 0 && call.settled.insert(operation));
        if !fresh {
            self.found.push(format!("the operation {} is settled already, or none", record["operation"]));
        }
        self.check_result(record, &["ok", "error", "denied", "cancelled", "unknown", "not_run"]);
    }

    fn check_tool_result(&mut self, record: &Value) {
        // Somebody goes on with the turn: pending.json stays until all its calls are answered.
        self.last_end = None;
        self.check_result(record, &["ok", "error", "denied", "cancelled", "unknown"]);
        let Some(call) = self.open_call(record, "tool_result") else { return };
        call.answered = true;
        let has_effects = ["patch", "command"].contains(&call.tool.as_str());
        let unmarked = has_effects && call.started.is_empty() && record["status"] == "ok";
        if unmarked {
            self.found.push("a call with side effects is ok and was never started".to_owned());
        }
    }

    fn check_result(&mut self, record: &Value, statuses: &[&str]) {
        let status = record["status"].as_str().unwrap_or_default();
        if !statuses.contains(&status) {
            self.found.push(format!("the status {status:?} is unknown"));
        }
        if record["content"].as_str().is_none_or(str::is_empty) {
            self.found.push("a result without content".to_owned());
        }
        self.check_scope(record.pointer("/auto_decided_by/scope").and_then(Value::as_str));
    }

    fn check_notice(&mut self, record: &Value) {
        if let Some(task) = record["task_id"].as_str()
            && !self.tasks.insert(task.to_owned())
        {
            self.found.push(format!("the end of task {task:?} is told twice"));
        }
        self.check_all_answered("a notice");
    }

    fn check_summary(&mut self, record: &Value) {
        match record["through_offset"].as_u64() {
            Some(offset) if self.line_ends.contains(&offset) => {}
            _ => self.found.push(format!("through_offset {} is no border of a record", record["through_offset"])),
        }
        self.check_all_answered("a summary");
    }

    fn check_turn_end(&mut self, record: &Value) {
        let turn = record["turn"].as_u64().unwrap_or(0);
        if turn != self.turn {
            self.found.push(format!("turn {turn} ends within turn {}", self.turn));
        }
        let status = record["status"].as_str().unwrap_or_default();
        if ["completed", "dropped"].contains(&status) {
            self.check_all_answered("the end of the turn");
        }
        if status.is_empty() {
            self.found.push("a turn_end without status".to_owned());
        }
        self.last_end = Some(status.to_owned());
    }

    fn check_end(&mut self, pending: Option<&Value>) {
        for (id, call) in &self.calls {
            if !call.answered && call.reply != self.replies {
                self.found.push(format!("the call {id:?} of an earlier reply has no result"));
            }
        }
        if let Some(pending) = pending {
            self.check_pending(pending);
        }
    }

    fn check_pending(&mut self, pending: &Value) {
        if pending["format"] != 1 || pending["turn"] != self.turn {
            self.found.push(format!("pending.json is of format {}, turn {}", pending["format"], pending["turn"]));
        }
        let digest = pending["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        let is_digest = |hex: &str| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !digest.is_some_and(is_digest) {
            self.found.push(format!("pending.json: the digest is {}", pending["digest"]));
        }
        let listed: Vec<&Value> = pending["calls"].as_array().into_iter().flatten().collect();
        let open = |needs: &str| listed.iter().any(|call| call["needs"] == needs && call["decision"].is_null());
        let status =
            if open("approval") { Some("awaiting_approval") } else { open("answer").then_some("awaiting_answer") };
        if status.is_some_and(|status| pending["status"] != status) {
            self.found.push(format!("pending.json: the status is {}", pending["status"]));
        }
        let ids: BTreeSet<&str> = listed.iter().filter_map(|call| call["id"].as_str()).collect();
        let suspended = self.last_end.as_ref().is_some_and(|end| end.starts_with("awaiting_"));
        for id in &ids {
            match self.calls.get(*id) {
                None => self.found.push(format!("pending.json: the call {id:?} does not exist")),
                Some(call) if call.reply != self.replies => {
                    self.found.push(format!("pending.json: the call {id:?} is of an earlier reply"));
                }
                Some(call) if call.answered && suspended => {
                    self.found.push(format!("pending.json: the call {id:?} is answered"));
                }
                Some(_) => {}
            }
        }
        for (id, call) in &self.calls {
            if !call.answered && !ids.contains(id.as_str()) && !self.strands {
                self.found.push(format!("pending.json does not list the open call {id:?}"));
            }
        }
    }

    /// The call a record is about, which must exist and not be answered yet.
    fn open_call(&mut self, record: &Value, kind: &str) -> Option<&mut Call> {
        let id = record["call_id"].as_str().unwrap_or_default();
        match self.calls.get_mut(id) {
            None => {
                self.found.push(format!("{kind} of the call {id:?}, which does not exist"));
                None
            }
            Some(call) if call.answered => {
                self.found.push(format!("{kind} of the call {id:?}, which is answered already"));
                None
            }
            Some(call) => Some(call),
        }
    }

    fn check_all_answered(&mut self, before: &str) {
        if self.planted {
            return;
        }
        for (id, call) in &self.calls {
            if !call.answered {
                self.found.push(format!("{before} comes before the result of {id:?}"));
            }
        }
    }

    fn check_scope(&mut self, scope: Option<&str>) {
        const SCOPES: [&str; 9] =
            ["person", "command_line", "turn", "session", "workspace", "user", "config", "builtin", "repair"];
        if let Some(scope) = scope
            && !SCOPES.contains(&scope)
        {
            self.found.push(format!("the scope {scope:?} is unknown"));
        }
    }
}

/// `2001-02-03T04:05:06.789Z`.
fn is_time(text: &str) -> bool {
    let form = "dddd-dd-ddTdd:dd:dd.dddZ";
    text.len() == form.len()
        && text
            .bytes()
            .zip(form.bytes())
            .all(|(byte, form)| if form == b'd' { byte.is_ascii_digit() } else { byte == form })
}
