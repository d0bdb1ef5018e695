//! Which command does what in which state of a session: every cell, the killed states included.
//!
//! A kill is played by what it leaves: the log of a whole turn, cut behind each of its records in turn.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, Latch, json_lines, mark_rule, reply};

const COMMANDS: [&[&str]; 6] =
    [&["approve"], &["deny"], &["resume"], &["approve", "call_1"], &["answer", "yes"], &["answer", "call_1", "yes"]];

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n").rules([mark_rule("x", true)])
}

/// A session with one finished turn.
fn finished() -> Case {
    let case = case().script([reply().text("first")]);
    case.run(["tell", "go"]).exit(0).stdout("first\n");
    case
}

/// A session suspended on two approvals, with a read carried behind them.
fn suspended() -> Case {
    let case = case().script([reply().mark("a").mark("b").read("a.txt")]);
    case.run(["tell", "go"]).exit(10);
    case
}

/// The session's files, byte for byte.
fn files(case: &Case) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(case.session_path("main", ""))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file() && entry.file_name() != "lock")
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[track_caller]
fn assert_unchanged(case: &Case, arguments: &[&str], code: i32) {
    let before = files(case);
    case.run(arguments).exit(code);
    assert!(before == files(case), "{arguments:?} changed the session's files");
}

fn last_status(case: &Case) -> Value {
    case.records().last().unwrap()["status"].clone()
}

#[test]
fn without_a_session_only_tell_does_anything() {
    let case = case().script([reply().text("hello")]);
    for arguments in COMMANDS {
        case.run(arguments).exit(3).stdout("").stderr_contains("attini tell").stderr_lacks("attini resume");
        assert!(!case.exists(".attini/sessions"), "{arguments:?} made something");
    }
    case.run(["status"]).exit(0).stdout_contains("new");
    case.run(["diff"]).exit(0).stdout("");
    case.run(["tell", "go"]).exit(0).stdout("hello\n");
}

#[test]
fn after_a_finished_turn_only_tell_does_anything() {
    let case = finished();
    for arguments in COMMANDS {
        assert_unchanged(&case, arguments, 3);
        case.run(arguments).exit(3).stderr_contains("attini tell").stderr_lacks("attini resume");
    }
    assert_unchanged(&case, &["status"], 0);
    assert_unchanged(&case, &["diff"], 0);
    case.server().script([reply().text("second")]);
    case.run(["tell", "go"]).exit(0).stdout("second\n");
    assert_eq!(case.records().iter().filter(|record| record["type"] == "user").count(), 2);
}

#[test]
fn a_new_prompt_drops_what_is_pending() {
    let case = suspended();
    case.server().script([reply().text("something else")]);
    case.run(["deny", "call_1", "--reason", "not like that"]).exit(10);
    case.run(["tell", "do something else"]).exit(0).stdout("something else\n");
    assert!(case.order().is_empty());
    assert_eq!(case.pending(), None);
    assert_eq!(case.outcome_of("call_1").0, "denied", "a recorded denial becomes the result");
    assert!(case.outcome_of("call_1").2.contains("not like that"));
    for id in ["call_2", "call_3"] {
        assert_eq!(case.outcome_of(id).0, "cancelled");
        assert_eq!(case.result(id)["reason"], "unanswered_tool_call_repair");
    }
    let types = case.record_types();
    let user = types.iter().rposition(|kind| kind == "user").unwrap();
    let records = case.records();
    assert_eq!((&records[user - 1]["type"], &records[user - 1]["status"]), (&json!("turn_end"), &json!("dropped")));
    assert_eq!((&records[user - 1]["turn"], &records[user]["turn"]), (&json!(1), &json!(2)));
    let request = case.server().last_request();
    assert_eq!(request.results().len(), 3);
    assert_eq!(request.last_user_text().as_deref(), Some("do something else"));
}

#[test]
fn an_approval_recorded_before_a_new_prompt_runs_nothing() {
    let case = suspended();
    case.server().script([reply().text("done")]);
    case.run(["approve", "call_1"]).exit(10);
    case.run(["tell", "no, wait"]).exit(0);
    assert!(case.order().is_empty());
    assert_eq!(case.outcome_of("call_1").0, "cancelled");
}

#[test]
fn while_a_call_is_undecided_decisions_are_recorded_alone() {
    let case = suspended();
    let records = case.records();
    let outcome = case.run(["--output", "json", "approve", "call_2"]).exit(10).json();
    let decisions: Vec<&Value> = outcome["pending"].as_array().unwrap().iter().map(|call| &call["decision"]).collect();
    assert_eq!(decisions, [&json!(null), &json!("approve"), &json!(null)]);
    assert_eq!(case.records(), records, "a partial decision writes pending.json alone");
    assert_unchanged(&case, &["resume"], 10);
    assert_unchanged(&case, &["status"], 0);
    assert_unchanged(&case, &["check"], 0);
    case.server().script([reply().text("done")]);
    case.run(["deny"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["b"]);
    assert_eq!(case.outcome_of("call_1").0, "denied");
}

#[test]
fn the_same_decision_again_changes_nothing_and_the_opposite_is_refused() {
    let case = suspended();
    case.run(["approve", "call_1"]).exit(10);
    assert_unchanged(&case, &["approve", "call_1"], 10);
    assert_unchanged(&case, &["deny", "call_1"], 17);
    case.server().script([reply().text("done")]);
    case.run(["deny", "call_2"]).exit(0);
    assert_eq!(case.order(), ["a"]);
}

#[test]
fn ids_are_checked_before_anything_is_decided() {
    let case = suspended();
    for (arguments, code) in [
        (&["approve", "call_9"][..], 3),
        (&["approve", "call_1", "call_9"], 3),
        (&["deny", "call_1", "call_9"], 3),
        (&["approve", "call_1#2"], 3),
        (&["approve", ""], 3),
        (&["approve", "call_3"], 2),
        (&["deny", "call_3"], 2),
        (&["approve", "call_1", "call_3"], 2),
        (&["approve", "--if-digest", "sha256:0"], 17),
        (&["approve", "call_9", "--if-digest", "sha256:0"], 17),
    ] {
        assert_unchanged(&case, arguments, code);
    }
    assert!(case.order().is_empty());
    let digest = case.pending().unwrap()["digest"].as_str().unwrap().to_owned();
    case.run(["approve", "call_1", "--if-digest", &digest]).exit(10);
    assert_eq!(case.pending().unwrap()["digest"].as_str(), Some(digest.as_str()), "decisions are not in the digest");
    case.server().script([reply().text("done")]);
    case.run(["approve", "call_2", "--if-digest", &digest]).exit(0);
    assert_eq!(case.order(), ["a", "b"]);
}

/// A session in which all is decided and nothing carried out: what a kill right after the decision leaves.
fn decided(decisions: [&str; 2]) -> Case {
    let case = suspended();
    let mut pending = case.pending().unwrap();
    for (index, decision) in decisions.into_iter().enumerate() {
        pending["calls"][index]["decision"] = json!(decision);
    }
    let case = case.planted_pending("main", pending.to_string());
    case.server().script([reply().text("done")]);
    case
}

#[test]
fn once_all_is_decided_approve_and_resume_carry_it_out() {
    for arguments in [&["approve"][..], &["resume"], &["approve", "call_1"], &["deny", "call_2"]] {
        let case = decided(["approve", "deny"]);
        case.run(arguments).exit(0).stdout("done\n");
        assert_eq!(case.order(), ["a"]);
        assert_eq!(case.outcome_of("call_2").0, "denied");
        assert_eq!(case.outcome_of("call_3").0, "ok");
        assert_eq!(case.pending(), None);
    }
}

#[test]
fn once_all_is_decided_deny_has_nothing_to_act_on() {
    let case = decided(["approve", "deny"]);
    case.run(["deny"]).exit(3).stderr_contains("attini resume");
    assert_unchanged(&case, &["deny"], 3);
    assert_unchanged(&case, &["deny", "call_1"], 17);
    assert_unchanged(&case, &["approve", "call_2"], 17);
    assert_unchanged(&case, &["approve", "call_9"], 3);
    case.run(["tell", "never mind"]).exit(0);
    assert!(case.order().is_empty());
    assert_eq!((case.outcome_of("call_1").0.as_str(), case.outcome_of("call_2").0.as_str()), ("cancelled", "denied"));
}

/// The ways to leave a turn unfinished with nothing pending and every call answered.
fn unfinished() -> Vec<(&'static str, Case)> {
    let failed = case().script([reply().mark("x"), reply().error(400, "the request is wrong")]);
    failed.run(["tell", "go"]).exit(13);
    let limited = case().script([reply().mark("x")]);
    limited.run(["tell", "go", "--max-rounds", "1"]).exit(14);
    let asked = case().script([reply().mark("x").mark("a")]);
    asked.run(["tell", "go", "--on-ask", "fail"]).exit(10);
    let latch = Latch::new();
    let interrupted = case().script([reply().mark("x"), reply().text("never heard").hold(&latch)]);
    let running = interrupted.start(["tell", "go"]);
    interrupted.server().wait_requests(2);
    running.signal(15);
    running.wait().exit(143).stdout("");
    latch.release();
    let latch = Latch::new();
    let killed = case().script([reply().mark("x"), reply().text("never heard").hold(&latch)]);
    let running = killed.start(["tell", "go"]);
    killed.server().wait_requests(2);
    running.signal(9);
    running.wait().killed_by(9);
    latch.release();
    vec![
        ("a provider error", failed),
        ("a limit", limited),
        ("--on-ask fail", asked),
        ("an interrupt", interrupted),
        ("a kill", killed),
    ]
}

#[test]
fn an_unfinished_turn_without_open_calls_goes_on_with_resume_alone() {
    for (what, case) in unfinished() {
        for arguments in [
            &["approve"][..],
            &["deny"],
            &["approve", "call_1"],
            &["deny", "call_1"],
            &["answer", "yes"],
            &["answer", "call_1", "yes"],
        ] {
            assert_unchanged(&case, arguments, 3);
            case.run(arguments).exit(3).stderr_contains("`attini resume` goes on").stderr_lacks("attini tell");
        }
        case.run(["status"]).exit(0).stdout_contains("unfinished");
        assert_eq!(case.order(), ["x"], "{what}");
        case.server().script([reply().text("done")]);
        case.run(["resume"]).exit(0).stdout("done\n");
        assert_eq!(case.order(), ["x"], "{what}");
        assert_eq!(case.records().iter().filter(|record| record["type"] == "user").count(), 1, "{what}");
        assert_eq!(last_status(&case), "completed", "{what}");
        assert_unchanged(&case, &["resume"], 3);
    }
}

#[test]
fn an_unfinished_turn_gives_way_to_a_new_prompt() {
    for (what, case) in unfinished() {
        case.server().script([reply().text("done")]);
        case.run(["tell", "another thing"]).exit(0).stdout("done\n");
        assert_eq!(case.order(), ["x"], "{what}");
        assert_eq!(case.records().iter().filter(|record| record["type"] == "user").count(), 2, "{what}");
    }
}

/// The log of a turn with everything in it, and the pending.json of its suspension with all decided.
struct Whole {
    records: Vec<Value>,
    pending: Value,
    /// How many records there are before and after `pending.json` exists.
    suspended_at: usize,
}

fn whole_turn() -> Whole {
    let script = [reply().read("a.txt").mark("x"), reply().mark("a").read("a.txt").mark("b"), reply().text("done")];
    let case = case().script(script);
    case.run(["tell", "go"]).exit(10);
    let mut pending = case.pending().unwrap();
    let suspended_at = case.records().len();
    for call in pending["calls"].as_array_mut().unwrap() {
        if call["needs"] == "approval" {
            call["decision"] = json!("approve");
        }
    }
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["x", "a", "b"]);
    Whole { records: case.records(), pending, suspended_at }
}

impl Whole {
    /// What a kill behind the record number `count` leaves. What the log says was done is not done in this workspace,
    /// so that whatever is done here was done by the invocations that follow.
    fn cut(&self, count: usize, with_pending: bool) -> Case {
        let case = case().planted_log("main", json_lines(self.records[..count].iter().cloned()));
        if with_pending { case.planted_pending("main", self.pending.to_string()) } else { case }
    }

    fn has(&self, count: usize, record_type: &str, call_id: &str) -> bool {
        self.records[..count].iter().any(|record| record["type"] == record_type && record["call_id"] == call_id)
    }

    fn has_answer(&self, count: usize) -> bool {
        self.records[..count].iter().any(|record| record["type"] == "assistant" && record["text"] == "done")
    }

    fn has_call(&self, count: usize, call_id: &str) -> bool {
        let of = |record: &Value| record["tool_calls"].as_array().cloned().unwrap_or_default();
        self.records[..count].iter().flat_map(of).any(|call| call["id"] == call_id)
    }

    /// The states that a kill can leave: how many records, and whether pending.json is there.
    fn cuts(&self) -> Vec<(usize, bool)> {
        let last_result =
            self.records.iter().rposition(|record| record["type"] == "tool_result").expect("there are results") + 1;
        let before = (2..=self.suspended_at).map(|count| (count, false));
        let during = (self.suspended_at..=last_result).map(|count| (count, true));
        let after = (last_result..=self.records.len()).map(|count| (count, false));
        before.chain(during).chain(after).collect()
    }

    /// What a mark must have come to: recorded results stay, what was started is unknown, the rest is cancelled unless
    /// it was approved.
    #[track_caller]
    fn assert_mark(&self, case: &Case, count: usize, runs: bool, (letter, call_id): (&str, &str)) {
        if !self.has_call(count, call_id) {
            return;
        }
        let started = self.has(count, "tool_start", call_id);
        let expected = match (self.has(count, "tool_result", call_id), started, runs) {
            (true, _, _) | (false, false, true) => "ok",
            (false, true, _) => "unknown",
            (false, false, false) => "cancelled",
        };
        assert_eq!(case.outcome_of(call_id).0, expected, "{call_id} after record {count}");
        let ran = case.order().iter().filter(|mark| *mark == letter).count();
        assert_eq!(ran, usize::from(runs && !started), "{letter} after record {count}");
    }
}

const MARKS: [(&str, &str); 3] = [("x", "call_2"), ("a", "call_3"), ("b", "call_5")];

#[test]
fn after_a_kill_behind_any_record_resume_ends_the_turn_and_repeats_nothing() {
    let whole = whole_turn();
    for (count, with_pending) in whole.cuts() {
        let case = whole.cut(count, with_pending);
        let is_over = count == whole.records.len();
        if is_over {
            assert_unchanged(&case, &["resume"], 3);
            continue;
        }
        if !whole.has_answer(count) {
            case.server().script([reply().text("done")]);
        }
        case.run(["resume"]).exit(0).stdout("done\n");
        for mark in MARKS {
            whole.assert_mark(&case, count, with_pending && mark.0 != "x", mark);
        }
        assert_eq!(case.pending(), None);
        assert_eq!(last_status(&case), "completed", "after record {count}");
        assert_unchanged(&case, &["resume"], 3);
        case.run(["check"]).exit(0);
    }
}

#[test]
fn after_a_kill_behind_any_record_a_new_prompt_drops_what_was_open() {
    let whole = whole_turn();
    for (count, with_pending) in whole.cuts() {
        let case = whole.cut(count, with_pending).script([reply().text("anew")]);
        case.run(["tell", "another thing"]).exit(0).stdout("anew\n");
        assert!(case.order().is_empty());
        for mark in MARKS {
            whole.assert_mark(&case, count, false, mark);
        }
        let ends: Vec<Value> = case
            .records()
            .iter()
            .filter(|record| record["type"] == "turn_end" && record["turn"] == 1)
            .map(|record| record["status"].clone())
            .collect();
        if whole.has_answer(count) {
            assert_eq!(ends.last(), Some(&json!("completed")), "after record {count}");
        } else if with_pending && !whole.has(count, "tool_result", "call_5") {
            assert_eq!(ends.last(), Some(&json!("dropped")), "after record {count}");
        }
        assert_eq!(case.pending(), None);
        case.run(["check"]).exit(0);
    }
}

#[test]
fn after_a_kill_behind_any_record_approve_goes_on_only_where_a_call_is_open() {
    let whole = whole_turn();
    for (count, with_pending) in whole.cuts() {
        let case = whole.cut(count, with_pending);
        let is_open = |call: &Value| !whole.has(count, "tool_result", call["id"].as_str().unwrap());
        let calls = whole.records[..count].iter().filter_map(|record| record["tool_calls"].as_array()).flatten();
        let has_open_call = calls.into_iter().any(is_open);
        if !has_open_call {
            case.run(["approve"]).exit(3);
            assert_eq!(case.pending(), None, "a stale file is removed");
            continue;
        }
        case.server().script([reply().text("done")]);
        case.run(["approve"]).exit(0).stdout("done\n");
        for mark in MARKS {
            whole.assert_mark(&case, count, with_pending && mark.0 != "x", mark);
        }
    }
}

#[test]
fn after_a_kill_behind_any_record_deny_finds_nothing_to_deny() {
    let whole = whole_turn();
    for (count, with_pending) in whole.cuts() {
        let case = whole.cut(count, with_pending);
        let log = fs::read(case.session_path("main", "conversation.jsonl")).unwrap();
        let told = if whole.has_answer(count) { "attini tell" } else { "attini resume" };
        case.run(["deny"]).exit(3).stderr_contains(told);
        assert_eq!(fs::read(case.session_path("main", "conversation.jsonl")).unwrap(), log, "after record {count}");
    }
}

#[test]
fn what_only_looks_changes_nothing_after_a_kill_behind_any_record() {
    let whole = whole_turn();
    for (count, with_pending) in whole.cuts() {
        let case = whole.cut(count, with_pending);
        for arguments in [["status"], ["diff"]] {
            assert_unchanged(&case, &arguments, 0);
        }
        assert_unchanged(&case, &["check"], 0);
        let is_left_over = with_pending && whole.has(count, "tool_result", "call_5");
        let notes = case.run(["--output", "json", "check"]).exit(0).json()["notes"].clone();
        assert_eq!(notes.as_array().unwrap().len(), usize::from(is_left_over), "after record {count}: {notes}");
    }
}

#[test]
fn status_lists_what_waits_and_nothing_that_was_carried_out() {
    let whole = whole_turn();
    for (count, with_pending) in whole.cuts() {
        let case = whole.cut(count, with_pending);
        let status = case.run(["--output", "json", "status"]).exit(0).json();
        let listed: Vec<&str> =
            status["pending"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap()).collect();
        let waits = |id: &&str| !whole.has(count, "tool_start", id) && !whole.has(count, "tool_result", id);
        let expected: Vec<&str> =
            if with_pending { ["call_3", "call_4", "call_5"].into_iter().filter(waits).collect() } else { Vec::new() };
        assert_eq!(listed, expected, "after record {count}");
        let text = case.run(["status"]).exit(0).stdout_text();
        if with_pending && !whole.has(count, "tool_result", "call_5") {
            assert_eq!(status["state"], "suspended", "after record {count}");
            assert!(text.contains("everything is decided") && text.contains("attini resume"), "{text}");
        }
        for (_, id) in MARKS {
            let is_broken_off = whole.has(count, "tool_start", id) && !whole.has(count, "tool_result", id);
            let told = text.contains(&format!("{id} was started and broken off"));
            assert_eq!(told, is_broken_off, "after record {count}: {text}");
        }
    }
}

#[test]
fn an_interrupted_continuation_shows_and_diffs_only_what_is_left() {
    let case = case().file("wait.sh", WAIT_SCRIPT).file("b.txt", "beta\n").script([
        reply()
            .replace("a.txt", "alpha", "one")
            .command(&["sh", "wait.sh"])
            .replace("a.txt", "one", "two")
            .replace("b.txt", "beta", "three"),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(10);
    let running = case.start(["--output", "json", "approve"]);
    case.wait_file("started");
    running.signal(2);
    let outcome = running.wait().exit(130).json();
    assert_eq!(outcome["pending"], json!([]), "nothing is undecided");
    let status = case.run(["--output", "json", "status"]).exit(0).json();
    let listed: Vec<&Value> = status["pending"].as_array().unwrap().iter().map(|call| &call["id"]).collect();
    assert_eq!((&status["state"], listed), (&json!("suspended"), vec![&json!("call_3"), &json!("call_4")]));
    let diff = case.run(["diff"]).exit(0).stdout_text();
    assert!(diff.contains("-one\n+two\n") && diff.contains("+three\n") && !diff.contains("alpha"), "{diff}");
    case.run(["diff", "call_1"]).exit(3);
    case.run(["check"]).exit(0).stdout_contains("no violation");
    case.run(["resume"]).exit(0).stdout("done\n");
    assert_eq!((case.read("a.txt"), case.read("b.txt")), ("two\n".to_owned(), "three\n".to_owned()));
}

#[test]
fn what_an_interrupt_leaves_over_is_noted_and_a_torn_record_is_a_violation() {
    let case = suspended();
    let pending = fs::read(case.session_path("main", "pending.json")).unwrap();
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0);
    let case = case.without_invariants().planted_pending("main", pending);
    case.run(["check"]).exit(0).stdout_contains("note: ").stdout_contains("the next turn removes it");
    let path = case.session_path("main", "conversation.jsonl");
    let log = fs::read(&path).unwrap();
    fs::write(&path, &log[..log.len() - 5]).unwrap();
    let object = case.run(["--output", "json", "check"]).exit(16).json();
    assert_eq!(object["violations"].as_array().unwrap().len(), 1, "{object}");
    assert_eq!(object["notes"].as_array().unwrap().len(), 1, "{object}");
}

#[test]
fn a_turn_that_lacks_only_its_end_is_finished() {
    let whole = whole_turn();
    let count = whole.records.len() - 1;
    let case = whole.cut(count, false);
    case.run(["status"]).exit(0).stdout_contains("idle");
    let outcome = case.run(["--output", "json", "resume"]).exit(0).json();
    assert_eq!((&outcome["status"], &outcome["text"]), (&json!("completed"), &json!("done")));
    assert_eq!(last_status(&case), "completed");
    assert_eq!(case.server().request_count(), 0, "the model is not asked again");
}

#[test]
fn a_turn_whose_last_reply_was_no_answer_goes_on() {
    for (reason, text, code) in
        [("length", "cut off in the mid", 14), ("content_filter", "I may not say", 13), ("refusal", "No.", 13)]
    {
        let case = case().script([reply().text(text).finish(reason)]);
        case.run(["tell", "go"]).exit(code).stdout("");
        case.run(["status"]).exit(0).stdout_contains("unfinished");
        for arguments in [["approve"], ["deny"]] {
            assert_unchanged(&case, &arguments, 3);
        }
        case.server().script([reply().text("done"), reply().text("more")]);
        case.run(["resume"]).exit(0).stdout("done\n");
        case.run(["tell", "and now?"]).exit(0).stdout("more\n");
    }
}

#[test]
fn an_answer_that_violates_the_output_schema_is_no_answer() {
    let schema = json!({"type": "object", "required": ["ok"]}).to_string();
    let wrong = || reply().text("{}");
    let case = case().file("schema.json", schema).script([wrong(), wrong(), wrong()]);
    case.run(["tell", "go", "--output-schema", "schema.json"]).exit(13).stdout("");
    case.run(["status"]).exit(0).stdout_contains("unfinished");
    case.server().script([reply().text(r#"{"ok": true}"#)]);
    case.run(["resume"]).exit(0).stdout("{\"ok\": true}\n");
    assert_unchanged(&case, &["resume"], 3);
    let reminders = |request: &crate::support::RecordedRequest| {
        request.messages().iter().filter(|message| message["content"].to_string().contains("JSON Schema that")).count()
    };
    let counts: Vec<usize> = case.server().requests().iter().map(reminders).collect();
    assert_eq!(counts, [0, 1, 2, 3], "each wrong answer is followed by what is wrong with it");
}

const WAIT_SCRIPT: &str = "echo started > started\nwhile [ ! -e go ]; do sleep 0.01; done\necho finished > finished\n";

#[test]
fn a_command_that_a_kill_cut_short_is_unknown_and_not_run_again() {
    let case = case()
        .file("wait.sh", WAIT_SCRIPT)
        .script([reply().command(&["sh", "wait.sh"]).mark("b").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let running = case.start(["approve"]);
    case.wait_file("started");
    running.signal(9);
    running.wait().killed_by(9);
    fs::remove_file(case.path("started")).unwrap();
    case.run(["status"]).exit(0).stdout_contains("everything is decided");
    assert_unchanged(&case, &["deny"], 3);
    case.run(["approve"]).exit(0).stdout("done\n");
    assert!(!case.exists("started") && !case.exists("finished"));
    assert_eq!(case.outcome_of("call_1").0, "unknown");
    assert_eq!(case.order(), ["b"], "what was not started runs");
    assert_eq!(case.outcome_of("call_3").0, "ok");
}

/// The log of a patch up to where it is started.
fn started_patch() -> Case {
    let whole = case().script([reply().create("docs/a.txt", "new\n"), reply().text("done")]);
    whole.run(["tell", "go", "--allow", "write:docs"]).exit(0);
    let records = whole.records();
    let started = records.iter().position(|record| record["type"] == "tool_start").expect("it was started") + 1;
    case().planted_log("main", json_lines(records[..started].iter().cloned()))
}

#[test]
fn the_temporary_files_of_a_patch_that_a_kill_cut_short_are_removed() {
    for arguments in [&["resume"][..], &["approve"], &["tell", "go on"]] {
        let case = started_patch();
        // The highest process id that Linux allows is 4194304, so that nobody has this one.
        let (left, others) = ("docs/.attini-tmp-4999999-17-0", ["docs/.attini-tmp-mine", ".attini-tmp-4999999-17-0"]);
        case.write(left, "ne");
        for path in others {
            case.write(path, "kept");
        }
        case.server().script([reply().text("done")]);
        case.run(arguments).exit(0);
        assert_eq!(case.outcome_of("call_1").0, "cancelled");
        assert!(!case.exists(left) && !case.exists("docs/a.txt"), "{arguments:?}");
        assert!(others.iter().all(|path| case.exists(path)), "{arguments:?}");
    }
}

#[test]
fn an_interrupted_continuation_leaves_what_was_not_started_pending() {
    let case = case()
        .file("wait.sh", WAIT_SCRIPT)
        .script([reply().command(&["sh", "wait.sh"]).mark("b").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let running = case.start(["--output", "json", "approve"]);
    case.wait_file("started");
    running.signal(2);
    let outcome = running.wait().exit(130).json();
    assert_eq!(outcome["status"], "interrupted");
    assert_eq!(case.outcome_of("call_1").0, "unknown");
    assert!(case.order().is_empty());
    assert!(case.pending().is_some());
    assert_unchanged(&case, &["deny", "call_2"], 17);
    case.run(["resume"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["b"]);
    assert!(!case.exists("finished"));
}

#[test]
fn a_pending_file_whose_calls_are_all_answered_is_reported_and_removed() {
    let case = suspended();
    let pending = fs::read(case.session_path("main", "pending.json")).unwrap();
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0);
    let case = case.without_invariants().planted_pending("main", pending);
    case.run(["status"]).exit(0).stdout_contains("idle");
    assert!(case.pending().is_some(), "status removes nothing");
    case.run(["approve"]).exit(3).stderr_contains("pending.json was left over");
    assert_eq!(case.pending(), None);
}

#[test]
fn with_only_a_question_left_approve_changes_nothing() {
    // No built-in tool asks: the question is of a tool that is gone, which approve must not get as far as to notice.
    let case = case().script([reply().mark("a").call("poll", json!({}))]);
    case.run(["tell", "go"]).exit(10);
    let log = fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap();
    let log: String = log.split_inclusive('\n').filter(|line| !line.contains("\"tool_result\"")).collect();
    let mut pending = case.pending().unwrap();
    pending["calls"][0]["decision"] = json!("approve");
    let question = json!({"id": "call_2", "operation": null, "name": "poll", "arguments": {}, "needs": "answer",
        "summary": "which?", "decision": null});
    pending["calls"].as_array_mut().unwrap().push(question);
    pending["digest"] = json!(crate::support::pending_digest(&pending["calls"]));
    pending["status"] = json!("awaiting_answer");
    let other = self::case().planted_log("main", log).planted_pending("main", pending.to_string());
    let outcome = other.run(["--output", "json", "approve"]).exit(11).json();
    assert_eq!(outcome["status"], "awaiting_answer");
    assert_unchanged(&other, &["approve"], 11);
    assert_unchanged(&other, &["resume"], 11);
    assert_unchanged(&other, &["approve", "call_2"], 2);
    other.run(["status"]).exit(0).stdout_contains("1 answer");
    other.server().script([reply().text("done")]);
    other.run(["deny"]).exit(0).stdout("done\n");
    assert_eq!(other.order(), ["a"]);
    assert_eq!(other.outcome_of("call_2").0, "denied");
}

#[test]
fn a_locked_session_refuses_what_would_change_it() {
    let latch = Latch::new();
    let case = case().script([reply().text("done").hold(&latch)]);
    let running = case.start(["tell", "go"]);
    case.server().wait_requests(1);
    for arguments in [&["tell", "go"][..], &["approve"], &["deny"], &["resume"]] {
        case.run(arguments).exit(12).stdout("").stderr_contains("held by process");
    }
    case.run(["status"]).exit(0).stdout_contains("locked");
    case.run(["check"]).exit(0);
    let waiting = case.start(["resume", "--wait"]);
    waiting.wait_stderr("waiting for the session");
    latch.release();
    running.wait().exit(0).stdout("done\n");
    waiting.wait().exit(3);
}

#[test]
fn sessions_do_not_know_of_each_other() {
    let case = suspended();
    let before = files(&case);
    case.server().script([reply().text("other").starts_history()]);
    case.run(["-s", "other", "approve"]).exit(3);
    case.run(["-s", "other", "tell", "go"]).exit(0).stdout("other\n");
    case.attini(["status"]).env("ATTINI_SESSION", "other").run().exit(0).stdout_contains("idle");
    assert!(before == files(&case));
}
