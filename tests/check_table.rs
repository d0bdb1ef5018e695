//! Planted faults: where `attini check` finds each, to the line, and what `attini check --repair` makes of it.
#![allow(clippy::too_many_lines, reason = "a table is as long as it is")]

use std::fs;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::{Case, mark_rule, pending_digest, reply};

const LOG: &str = "conversation.jsonl";
const PENDING: &str = "pending.json";

/// A session's files; lines are counted from 1.
#[derive(Clone)]
struct Files {
    lines: Vec<Vec<u8>>,
    /// What follows the last newline.
    tail: Vec<u8>,
    pending: Option<Vec<u8>>,
}

impl Files {
    fn of(case: &Case) -> Self {
        let log = fs::read(case.session_path("main", LOG)).unwrap();
        let lines = log.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        Self { lines, tail: Vec::new(), pending: fs::read(case.session_path("main", PENDING)).ok() }
    }

    fn log(&self) -> Vec<u8> {
        [self.lines.concat(), self.tail.clone()].concat()
    }

    fn line(&self, number: usize) -> Vec<u8> {
        self.lines[number - 1].clone()
    }

    fn without(mut self, number: usize) -> Self {
        self.lines.remove(number - 1);
        self
    }

    /// What is inserted becomes line `number`.
    fn with(mut self, number: usize, line: impl AsRef<[u8]>) -> Self {
        self.lines.insert(number - 1, [line.as_ref().trim_ascii_end(), b"\n"].concat());
        self
    }

    fn instead(self, number: usize, line: impl AsRef<[u8]>) -> Self {
        self.without(number).with(number, line)
    }

    fn changed(self, number: usize, from: &str, to: &str) -> Self {
        let line = String::from_utf8(self.line(number)).unwrap();
        assert!(line.contains(from), "{from} is not in {line}");
        self.instead(number, line.replace(from, to))
    }

    fn tail(mut self, tail: impl AsRef<[u8]>) -> Self {
        self.tail = tail.as_ref().to_vec();
        self
    }

    fn without_last_newline(mut self) -> Self {
        self.lines.last_mut().unwrap().pop();
        self
    }

    fn pending(mut self, pending: impl AsRef<[u8]>) -> Self {
        self.pending = Some(pending.as_ref().to_vec());
        self
    }

    /// The digest fits what was changed.
    fn pending_changed(self, change: impl FnOnce(&mut Value)) -> Self {
        let mut pending: Value = serde_json::from_slice(self.pending.as_ref().unwrap()).unwrap();
        change(&mut pending);
        pending["digest"] = json!(pending_digest(&pending["calls"]));
        self.pending(pending.to_string())
    }

    fn planted(&self) -> Case {
        let case = case().without_invariants().planted_log("main", self.log());
        match &self.pending {
            Some(pending) => case.planted_pending("main", pending),
            None => case,
        }
    }
}

fn case() -> Case {
    let rules = ["x", "y"].map(|letter| mark_rule(letter, true));
    Case::new().marks().file("a.txt", "alpha\n").rules(rules)
}

fn types(files: &Files) -> Vec<String> {
    let kind = |line: &Vec<u8>| serde_json::from_slice::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
    files.lines.iter().map(kind).collect()
}

/// Two turns that are over: a read (`call_1`) and a command (`call_2`), then a command (`call_3`).
fn finished() -> Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    let make = || {
        let case = case().script([
            reply().read("a.txt").mark("x"),
            reply().text("one"),
            reply().mark("y"),
            reply().text("two"),
        ]);
        case.run(["tell", "go"]).exit(0);
        case.run(["tell", "on"]).exit(0);
        let files = Files::of(&case);
        let expected = [
            "session",
            "user",
            "assistant",
            "tool_result",
            "decision",
            "tool_start",
            "tool_result",
            "assistant",
            "turn_end",
            "user",
            "assistant",
            "decision",
            "tool_start",
            "tool_result",
            "assistant",
            "turn_end",
        ];
        assert_eq!(types(&files), expected);
        files
    };
    FILES.get_or_init(make).clone()
}

/// A turn that waits for two commands (`call_3`, `call_4`), with a read carried behind them (`call_5`).
fn suspended() -> Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    let make = || {
        let case = case().script([reply().read("a.txt").mark("x").mark("p").mark("q").read("a.txt")]);
        case.run(["tell", "go"]).exit(10);
        let files = Files::of(&case);
        let expected =
            ["session", "user", "assistant", "tool_result", "decision", "tool_start", "tool_result", "turn_end"];
        assert_eq!(types(&files), expected);
        files
    };
    FILES.get_or_init(make).clone()
}

fn result(call_id: &str) -> String {
    json!({"type": "tool_result", "call_id": call_id, "at": "2001-02-03T04:05:06.789Z", "status": "error", "code": null,
        "content": "another"})
    .to_string()
}

fn start(call_id: &str) -> String {
    json!({"type": "tool_start", "call_id": call_id, "operation": null, "at": "2001-02-03T04:05:06.789Z"}).to_string()
}

fn notice() -> String {
    json!({"type": "notice", "at": "2001-02-03T04:05:06.789Z", "turn": 1, "outcome": "undone", "text": "undone"})
        .to_string()
}

/// A line (0: none) and words of what is said of it.
type Said = (u64, &'static str);

enum Repaired {
    /// There is nothing to do, and nothing is done.
    Nothing,
    /// What was done, in order, and the status of results then.
    Mended(Vec<Said>, Vec<(&'static str, &'static str)>),
    /// What cannot be mended; nothing is changed.
    Refused(Vec<Said>),
}
use Repaired::{Mended, Nothing, Refused};

struct Row {
    name: &'static str,
    files: Files,
    found: Vec<Said>,
    repaired: Repaired,
}

fn row(name: &'static str, files: Files, found: impl Into<Vec<Said>>, repaired: Repaired) -> Row {
    Row { name, files, found: found.into(), repaired }
}

#[track_caller]
fn assert_said(name: &str, list: &Value, expected: &[Said]) {
    let list = list.as_array().unwrap();
    let said: Vec<(u64, &str)> =
        list.iter().map(|one| (one["line"].as_u64().unwrap_or(0), one["message"].as_str().unwrap())).collect();
    let fits = said.len() == expected.len()
        && said.iter().zip(expected).all(|(said, expected)| said.0 == expected.0 && said.1.contains(expected.1));
    assert!(fits, "{name}:\nsaid {said:#?}\nexpected {expected:#?}");
}

/// The files that a repair kept, by the name of what they were.
fn kept(case: &Case, name: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(case.session_path("main", "")).unwrap().flatten();
    let prefix = format!("{name}.before-repair-");
    let kept = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    kept.map(|entry| fs::read(entry.path()).unwrap()).collect()
}

fn now(case: &Case, name: &str) -> Option<Vec<u8>> {
    fs::read(case.session_path("main", name)).ok()
}

fn try_row(row: &Row) {
    let Row { name, files, found, repaired } = row;
    eprintln!("{name}");
    let case = files.planted();
    let object = case.run(["--output", "json", "check"]).exit(if found.is_empty() { 0 } else { 16 }).json();
    assert_said(name, &object["violations"], found);
    let refused = matches!(repaired, Refused(_));
    let object = case.run(["--output", "json", "check", "--repair"]).exit(if refused { 16 } else { 0 }).json();
    assert_said(name, &object["violations"], found);
    let is_as_it_was = || now(&case, LOG) == Some(files.log()) && now(&case, PENDING) == files.pending;
    match repaired {
        Nothing => {
            assert_said(name, &object["repairs"], &[]);
            assert!(is_as_it_was() && object["kept"] == json!([]), "{name}: something was changed");
        }
        Refused(faults) => {
            assert_said(name, &object["unmendable"], faults);
            assert!(object["error"]["hint"].as_str().unwrap().contains("-s NAME"), "{name}");
            assert!(is_as_it_was() && object["kept"] == json!([]), "{name}: something was changed");
            assert!(kept(&case, LOG).is_empty() && kept(&case, PENDING).is_empty(), "{name}");
            return;
        }
        Mended(did, results) => {
            assert_said(name, &object["repairs"], did);
            for (file, before) in [(LOG, Some(files.log())), (PENDING, files.pending.clone())] {
                let is_kept = now(&case, file) != before;
                let expected: Vec<Vec<u8>> = before.into_iter().filter(|_| is_kept).collect();
                assert!(kept(&case, file) == expected, "{name}: {file} is not kept as it was");
            }
            assert_eq!(object["kept"].as_array().unwrap().len(), kept(&case, LOG).len() + kept(&case, PENDING).len());
            for (call_id, status) in results {
                assert_eq!(case.outcome_of(call_id).0, *status, "{name}: {call_id}");
            }
        }
    }
    assert_well(name, &case);
}

/// The session is sound, a second repair does nothing, and a new prompt goes through.
fn assert_well(name: &str, case: &Case) {
    if now(case, LOG).is_some() {
        case.run(["check"]).exit(0);
        let again = case.run(["--output", "json", "check", "--repair"]).exit(0).json();
        assert_eq!((&again["repairs"], &again["kept"]), (&json!([]), &json!([])), "{name}");
    }
    case.server().script([reply().text("well")]);
    case.run(["tell", "and now"]).exit(0).stdout("well\n");
    assert!(case.order().is_empty(), "{name}: something was run");
    case.assert_invariants();
}

#[test]
fn results() {
    let foreign = "no call before it has that id";
    let base = finished;
    let rows = [
        row(
            "a read without a result",
            base().without(4),
            [(3, "the call call_1 has no `tool_result`")],
            Mended(vec![(0, "call_1 had no result, and is answered as cancelled")], vec![("call_1", "cancelled")]),
        ),
        row(
            "a command without a result",
            base().without(7),
            [(3, "the call call_2 has no `tool_result`")],
            Mended(vec![(0, "call_2 had no result, and is answered as unknown")], vec![("call_2", "unknown")]),
        ),
        row(
            "a command without a result in a turn that is over",
            base().without(14),
            [(11, "the call call_3 has no `tool_result`")],
            Mended(vec![(0, "call_3 had no result, and is answered as unknown")], vec![("call_3", "unknown")]),
        ),
        row(
            "a doubled result",
            base().with(5, base().line(4)),
            [(5, "a second `tool_result` for call_1")],
            Mended(vec![(5, "the first counts")], vec![("call_1", "ok")]),
        ),
        row(
            "a second result that says something else",
            base().with(17, result("call_2")),
            [(17, "a second `tool_result` for call_2")],
            Mended(vec![(17, "the first counts")], vec![("call_2", "ok")]),
        ),
        row(
            "a foreign result",
            base().with(5, result("call_99")),
            [(5, foreign)],
            Mended(vec![(5, "it is taken out")], vec![]),
        ),
        row(
            "a foreign result of what was started",
            base().with(5, start("call_99")).with(6, result("call_99")),
            [(5, foreign), (6, foreign)],
            Refused(vec![(5, "it was started"), (6, "it was started")]),
        ),
        row(
            "a result before its call",
            base().without(4).with(3, base().line(4)),
            [(3, foreign), (4, "the call call_1 has no `tool_result`")],
            Mended(vec![(3, "now it stands behind it")], vec![("call_1", "ok")]),
        ),
        row(
            "a notice while a call has no result",
            base().without(14).with(16, notice()),
            [(16, "a `notice` while call_3 is not answered"), (11, "the call call_3 has no `tool_result`")],
            Mended(
                vec![(16, "now it stands behind it"), (0, "call_3 had no result, and is answered as unknown")],
                vec![("call_3", "unknown")],
            ),
        ),
        row("a result that came late", base().without(7).with(16, base().line(7)), [], Nothing),
        row(
            "a doubled decision",
            base().with(6, base().line(5)),
            [(6, "a second `decision` for call_2")],
            Mended(vec![(6, "the first counts")], vec![]),
        ),
        row(
            "a doubled start",
            base().with(7, base().line(6)),
            [(7, "a second `tool_start` for call_2")],
            Mended(vec![(7, "the first counts")], vec![]),
        ),
        row(
            "a start behind its result",
            base().with(8, base().line(6)),
            [(8, "answered already")],
            Mended(vec![(8, "the first counts")], vec![]),
        ),
        row(
            "an operation's result of a call that is answered",
            base().with(8, result("call_2").replace("tool_result\"", "operation_result\",\"operation\":1")),
            [(8, "a `operation_result` for call_2#1, which is answered already")],
            Mended(vec![(8, "the first counts")], vec![("call_2", "ok")]),
        ),
    ];
    rows.iter().for_each(try_row);
}

#[test]
fn turns_and_ids() {
    let base = finished;
    let renamed = (11..=14).fold(base(), |files, number| files.changed(number, "call_3", "call_1"));
    let foreign = "no call before it has that id";
    let rows = [
        row(
            "a reused id",
            renamed,
            [
                (11, "the call id call_1 is used a second time"),
                (12, "answered already"),
                (13, "answered already"),
                (14, "a second `tool_result`"),
            ],
            Refused(vec![(11, "the call id call_1 is used a second time")]),
        ),
        row(
            "an id twice in a reply",
            base().changed(3, "\"call_2\"", "\"call_1\""),
            [(3, "the call id call_1 is used a second time"), (4, foreign), (5, foreign), (6, foreign), (7, foreign)],
            Refused(vec![
                (3, "used a second time"),
                (5, "it was started"),
                (6, "it was started"),
                (7, "it was started"),
            ]),
        ),
        row(
            "a reply that is there twice",
            base().with(5, base().line(3)),
            [(5, "the call id call_1 is used a second time")],
            Mended(vec![(5, "it is there already")], vec![("call_1", "ok"), ("call_2", "ok")]),
        ),
        row(
            "a turn that goes back",
            base().changed(10, "\"turn\":2", "\"turn\":1"),
            [
                (10, "the turn goes back: 1 follows 1"),
                (11, "a reply of turn 2 while turn 1 is the latest"),
                (12, foreign),
                (13, foreign),
                (14, foreign),
                (15, "a reply of turn 2"),
                (16, "a `turn_end` of turn 2"),
            ],
            Refused(vec![
                (10, "the turn goes back"),
                (11, "a reply of turn 2"),
                (12, "it was started"),
                (13, "it was started"),
                (14, "it was started"),
                (15, "a reply of turn 2"),
            ]),
        ),
        row(
            "a prompt that is there twice",
            base().with(10, base().line(2)),
            [(10, "the turn goes back: 1 follows 1")],
            Mended(vec![(10, "it is there already")], vec![]),
        ),
        row(
            "a round that goes back",
            base().with(9, base().line(3)).changed(9, "\"call_1\"", "\"call_8\"").changed(
                9,
                "\"call_2\"",
                "\"call_9\"",
            ),
            [(9, "the turn goes back: turn 1 round 1 follows turn 1 round 2")],
            Refused(vec![(9, "the turn goes back")]),
        ),
        row(
            "the end of another turn",
            base().changed(9, "\"turn\":1", "\"turn\":7"),
            [(9, "a `turn_end` of turn 7 while turn 1 is the latest")],
            Mended(vec![(9, "it is taken out")], vec![]),
        ),
        row(
            "a second session record",
            base().with(5, base().line(1)),
            [(5, "a second `session` record")],
            Mended(vec![(5, "it is taken out")], vec![]),
        ),
        row(
            "no session record",
            base().without(1),
            [(1, "the first record is not a `session` record")],
            Refused(vec![(1, "the first record is not a `session` record")]),
        ),
        row(
            "a newer format",
            base().changed(1, "\"format\":1", "\"format\":2"),
            [(1, "a newer attini reads it")],
            Refused(vec![(1, "a newer attini reads it")]),
        ),
        row(
            "records and fields of a newer attini",
            base().with(5, "{\"type\":\"weather\",\"sky\":{\"blue\":[1]}}").changed(
                4,
                "{\"type\"",
                "{\"mood\":[],\"type\"",
            ),
            [],
            Nothing,
        ),
    ];
    rows.iter().for_each(try_row);
}

#[test]
fn lines_that_cannot_be_read() {
    let base = finished;
    let (not, zeros) = ("it is not a record", [0; 64]);
    let half = b"{\"type\":\"later\",\"text\":\"g\xc3";
    let amid_zeros = [&zeros[..], &base().line(7)].concat();
    let foreign = "no call before it has that id";
    let in_line = "its reply may be the line that cannot be read";
    let rows = [
        row(
            "a torn tail",
            base().tail("{\"type\":\"user\",\"tu"),
            [(17, "a fragment")],
            Mended(vec![(17, "a fragment")], vec![]),
        ),
        row(
            "half a character at the end",
            base().tail(half),
            [(17, "a fragment")],
            Mended(vec![(17, "a fragment")], vec![]),
        ),
        row("zeros at the end", base().tail([0; 4096]), [(17, "a fragment")], Mended(vec![(17, "a fragment")], vec![])),
        row(
            "a torn result at the end",
            base().without(16).without(15).without(14).tail(&base().line(14)[..40]),
            [(14, "a fragment")],
            Mended(vec![(14, "a fragment")], vec![]),
        ),
        row("no newline at the end", base().without_last_newline(), [], Mended(vec![(16, "had no newline")], vec![])),
        row("a line of zeros", base().with(5, zeros), [(5, not)], Mended(vec![(5, "the line is taken out")], vec![])),
        row("half a character", base().with(5, half), [(5, not)], Mended(vec![(5, "the line is taken out")], vec![])),
        row("a blank line", base().with(5, ""), [(5, "blank")], Mended(vec![(5, "blank")], vec![])),
        row(
            "a result that zeros took the place of",
            base().instead(7, zeros),
            [(7, not), (3, "the call call_2 has no `tool_result`")],
            Mended(
                vec![(7, not), (0, "call_2 had no result, and is answered as unknown")],
                vec![("call_2", "unknown")],
            ),
        ),
        row(
            "a start and all behind it that zeros took the place of",
            base().without(7).without(6).instead(5, zeros),
            [(5, not), (3, "the call call_2 has no `tool_result`")],
            Mended(
                vec![(5, not), (0, "call_2 had no result, and is answered as unknown")],
                vec![("call_2", "unknown")],
            ),
        ),
        row(
            "zeros before a record",
            base().instead(7, amid_zeros),
            [(7, not), (3, "the call call_2 has no `tool_result`")],
            Mended(vec![(7, "zero bytes stood beside a record")], vec![("call_2", "ok")]),
        ),
        row(
            "a reply that cannot be read",
            base().instead(3, "{\"type\":\"assistant\""),
            [(3, not), (4, foreign), (5, foreign), (6, foreign), (7, foreign)],
            Refused(vec![(4, in_line), (5, "it was started"), (6, "it was started"), (7, "it was started")]),
        ),
        row(
            "an answer that cannot be read",
            base().instead(8, &base().line(8)[..30]),
            [(8, not)],
            Mended(vec![(8, not)], vec![("call_1", "ok"), ("call_2", "ok")]),
        ),
        row(
            "nothing but blank lines",
            Files { lines: vec![b"\n".to_vec(); 2], ..base() },
            [(1, "blank")],
            Refused(vec![(1, "there is no record in it")]),
        ),
        row(
            "a session record that cannot be read",
            base().instead(1, zeros),
            [(1, not)],
            Refused(vec![(1, "the record that says what the log is cannot be read")]),
        ),
    ];
    rows.iter().for_each(try_row);
}

#[test]
fn pending_files() {
    let base = suspended;
    let approved = |file: &mut Value| {
        for call in file["calls"].as_array_mut().unwrap().iter_mut().take(2) {
            call["decision"] = json!("approve");
        }
    };
    let cancelled = || {
        let mut said =
            ["call_3", "call_4", "call_5"].map(|_| (0, "had no result, and is answered as cancelled")).to_vec();
        said.push((0, "it is set aside"));
        Mended(said, vec![("call_3", "cancelled"), ("call_4", "cancelled"), ("call_5", "cancelled")])
    };
    let aside = || Mended(vec![(0, "it is set aside")], vec![]);
    let other_session = suspended().pending.unwrap();
    let rows = [
        row("an empty file", base().pending(""), [(0, "EOF while parsing")], cancelled()),
        row("half a file", base().pending("{\"format\":1,\"ca"), [(0, "EOF while parsing")], cancelled()),
        row("zeros", base().pending([0; 100]), [(0, "expected value")], cancelled()),
        row("an empty file beside a finished turn", finished().pending(""), [(0, "EOF while parsing")], aside()),
        row(
            "a file of another turn",
            base().pending_changed(|file| file["turn"] = json!(9)),
            [(0, "it is about turn 9, and the latest is 1")],
            cancelled(),
        ),
        row(
            "a file with another call",
            base().pending_changed(|file| file["calls"][0]["id"] = json!("call_9")),
            [(0, "the latest reply has no call call_9")],
            cancelled(),
        ),
        row(
            "a file that was changed, with a denial in it",
            base().pending_changed(|file| {
                file["turn"] = json!(9);
                file["calls"][0]["decision"] = json!("deny");
                file["calls"][0]["reason"] = json!("not that");
            }),
            [(0, "it is about turn 9")],
            Mended(
                vec![
                    (0, "call_3 had no result, and is answered as denied"),
                    (0, "call_4 had no result, and is answered as cancelled"),
                    (0, "call_5 had no result, and is answered as cancelled"),
                    (0, "it is set aside"),
                ],
                vec![("call_3", "denied"), ("call_4", "cancelled")],
            ),
        ),
        row(
            "a file beside a log that it does not fit",
            finished().pending(other_session),
            [(0, "it is about turn 1, and the latest is 2")],
            aside(),
        ),
        row(
            "a newer format",
            base().pending_changed(|file| file["format"] = json!(2)),
            [(0, "it has format 2")],
            Refused(vec![(0, "it has format 2")]),
        ),
        row(
            "a line of which approved calls may have told",
            base().pending_changed(approved).with(9, [0; 64]),
            [(9, "it is not a record")],
            Mended(
                vec![
                    (9, "the line is taken out"),
                    (0, "call_3 had no result, and is answered as unknown"),
                    (0, "call_4 had no result, and is answered as unknown"),
                    (0, "call_5 had no result, and is answered as unknown"),
                    (0, "all its calls are answered; it is set aside"),
                ],
                vec![("call_3", "unknown"), ("call_4", "unknown"), ("call_5", "unknown")],
            ),
        ),
        row(
            "a notice while calls wait",
            base().with(9, notice()),
            [(9, "a `notice` while call_3 is not answered")],
            Refused(vec![(9, "which still waits")]),
        ),
        row("calls that wait", base(), [], Nothing),
    ];
    rows.iter().for_each(try_row);
}

#[test]
fn calls_that_wait_keep_waiting() {
    let files = suspended().with(5, "garbage");
    let case = files.planted();
    case.run(["check", "--repair"]).exit(0).stdout_contains(":5: it is not a record").stdout_contains("mended");
    assert_eq!(kept(&case, LOG), [files.log()]);
    assert_eq!(now(&case, PENDING), files.pending);
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["p", "q"]);
    case.assert_invariants();
}

#[test]
fn a_stale_pending_file_is_set_aside() {
    let pending = suspended().pending.unwrap();
    let case = case().script([reply().read("a.txt").mark("x").mark("p").mark("q").read("a.txt"), reply().text("one")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["deny"]).exit(0);
    let files = Files::of(&case).pending(&pending);
    let case = files.planted();
    case.run(["check"]).exit(0).stdout_contains("all its calls are answered");
    case.run(["check", "--repair"]).exit(0).stdout_contains("all its calls are answered; it is set aside");
    assert_eq!((now(&case, LOG), now(&case, PENDING)), (Some(files.log()), None));
    assert_eq!(kept(&case, PENDING), [pending]);
    assert_well("stale", &case);
}

#[test]
fn an_empty_log_is_set_aside_and_the_session_starts_anew() {
    for pending in [None, Some(suspended().pending.unwrap())] {
        let empty = Files { lines: Vec::new(), tail: Vec::new(), pending: pending.clone() };
        let case = empty.planted();
        case.run(["check"]).exit(16).stdout_contains("the file is empty");
        case.run(["tell", "go"]).exit(16);
        let object = case.run(["--output", "json", "check", "--repair"]).exit(0).json();
        assert_eq!(object["repairs"].as_array().unwrap().len(), 1 + usize::from(pending.is_some()));
        assert_eq!((now(&case, LOG), now(&case, PENDING)), (None, None));
        assert_eq!(kept(&case, LOG), [Vec::<u8>::new()]);
        assert_eq!(kept(&case, PENDING), pending.into_iter().collect::<Vec<_>>());
        case.run(["check"]).exit(3);
        case.run(["check", "--repair"]).exit(3).stderr_contains("there is no session main");
        assert_well("empty", &case);
    }
}

#[test]
fn a_line_beyond_the_limit_is_one_line() {
    use std::io::{Seek, SeekFrom, Write};
    const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;
    let files = finished().instead(4, "");
    let case = files.planted();
    // Of a sparse file, so that it takes no room.
    let mut file = fs::File::create(case.session_path("main", LOG)).unwrap();
    file.write_all(&files.lines[..3].concat()).unwrap();
    file.seek(SeekFrom::Current(i64::try_from(LINE_BYTES_MAX).unwrap())).unwrap();
    file.write_all(b"\n").unwrap();
    file.write_all(&files.lines[4..].concat()).unwrap();
    let length = file.metadata().unwrap().len();
    drop(file);
    let found = case.run(["check"]).exit(16);
    found.stdout_contains(":4: the line is longer than 268435456 bytes").stdout_contains(":3: the call call_1 has no");
    assert_eq!(found.stdout_text().lines().count(), 2, "{}", found.stdout_text());
    case.run(["check", "--repair"]).exit(0).stdout_contains(":4: the line is longer");
    let entries = fs::read_dir(case.session_path("main", "")).unwrap().flatten();
    let lengths: Vec<u64> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("conversation.jsonl.before-repair-"))
        .map(|entry| entry.metadata().unwrap().len())
        .collect();
    assert_eq!(lengths, [length]);
    assert_eq!(case.outcome_of("call_1").0, "unknown", "the line may have held its result");
    assert_well("long", &case);
}

#[test]
fn a_repair_needs_the_lock_and_a_session() {
    let case = finished().without(4).planted();
    let before = now(&case, LOG);
    case.write("lock-holder.sh", "exec 9>>.attini/sessions/main/lock; flock 9; echo held > held; read line < gate\n");
    let made = std::process::Command::new("mkfifo").arg(case.path("gate")).status().unwrap();
    assert!(made.success());
    let holder = case.program("sh", ["lock-holder.sh"]).start();
    case.wait_file("held");
    case.run(["check", "--repair"]).exit(12).stderr_contains("is held by");
    assert_eq!(now(&case, LOG), before);
    case.run(["check"]).exit(16);
    fs::write(case.path("gate"), "go\n").unwrap();
    holder.wait().exit(0);
    case.run(["check", "--repair"]).exit(0);
    let none = Case::new();
    none.run(["check", "--repair"]).exit(3).stderr_contains("there is no session main");
    assert!(!none.exists(".attini/sessions/main"));
}
