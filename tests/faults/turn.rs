//! The turn that is broken at every place, and what must hold afterwards wherever that was.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, Outcome, RecordedRequest, Reply, mark, mark_rule, reply};

/// The turn's invocations, in order, with the code each ends with where nothing is broken.
pub(super) const STAGES: [(&[&str], i32); 3] =
    [(&["tell", "go"], 10), (&["approve"], 0), (&["tell", "what is next"], 0)];

/// The content of the file that the turn patches, before and after.
const BEFORE: &str = "before\n";
const AFTER: &str = "after\n";

/// The ids of the calls that do something.
const ALLOWED: &str = "call_3";
const PATCHED: &str = "call_4";
const APPROVED: &str = "call_5";

/// Two reads, a side effect that a rule allows, a patch and a command that ask, and a read that is carried behind them.
pub(super) fn case() -> Case {
    let case = Case::new().marks().rules([mark_rule("allowed", true)]);
    let case = case.file("a.txt", "alpha\n").file("b.txt", "beta\n").file("patched.txt", BEFORE);
    case.server().respond(answer);
    case
}

fn answer(request: &RecordedRequest) -> Reply {
    match request.last_user_text() {
        Some(text) if text.ends_with("what is next") => reply().text("nothing is next"),
        Some(_) => reply()
            .read("a.txt")
            .read("b.txt")
            .call("command", json!({"argv": mark("allowed")}))
            .replace("patched.txt", BEFORE, AFTER)
            .call("command", json!({"argv": mark("approved")}))
            .read("patched.txt"),
        None => reply().text("done"),
    }
}

/// The whole records in the log of the session, none where there is no log.
pub(super) fn records(case: &Case) -> Vec<String> {
    let log = fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap_or_default();
    log.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
}

fn parsed(lines: &[String]) -> Vec<Value> {
    lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// What was told on stdout is on disk. The last line may be cut where the invocation was killed.
pub(super) fn assert_told_is_recorded(case: &Case, outcome: &Outcome) {
    let records = parsed(&records(case));
    let text = String::from_utf8_lossy(outcome.stdout_bytes()).into_owned();
    let holds = |kind: &str, fields: &[&str], event: &Value| {
        records
            .iter()
            .any(|record| record["type"] == kind && fields.iter().all(|field| record[*field] == event[*field]))
    };
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let is_recorded = match event["type"].as_str().unwrap_or_default() {
            "turn_started" => holds("user", &["turn"], &event),
            "tool_started" if event["name"] == "command" || event["name"] == "patch" => {
                holds("tool_start", &["call_id"], &event)
            }
            "tool_result" => holds("tool_result", &["call_id", "status"], &event),
            "awaiting" => case.pending().is_some_and(|pending| pending["digest"] == event["digest"]),
            "result" => match event["status"].as_str().unwrap_or_default() {
                "completed" => holds("assistant", &["turn", "text"], &event) && holds("turn_end", &["turn"], &event),
                "awaiting_approval" => case.pending().is_some_and(|pending| pending["digest"] == event["digest"]),
                _ => true,
            },
            _ => true,
        };
        assert!(is_recorded, "this was told and is not on disk: {line}");
    }
}

/// Whatever was broken, a person goes on with what `status` shows: three ways to begin, and all end with a next turn.
pub(super) fn go_on(case: &Case, way: u32) {
    let mut seen = records(case);
    let mut run = |arguments: &[&str], codes: &[i32]| {
        let words = ["--output", "events"].iter().chain(arguments);
        let (code, outcome) = case.run(words).any();
        let code = code.unwrap_or_else(|| panic!("{arguments:?} was killed"));
        let told = || format!("{}\n{}", outcome.stdout_text(), outcome.stderr_text());
        assert!(codes.contains(&code), "{arguments:?} ended with {code}, not one of {codes:?}:\n{}", told());
        assert_told_is_recorded(case, &outcome);
        let now = records(case);
        assert!(now.starts_with(&seen), "{arguments:?} lost records that were on disk");
        seen = now;
        code
    };
    run(&["status"], &[0]);
    match way % 3 {
        0 => {}
        1 => drop(run(&["approve"], &[0, 3, 10])),
        _ => drop(run(&["tell", "what is next"], &[0])),
    }
    for _ in 0..3 {
        if run(&["resume"], &[0, 3, 10]) != 10 {
            break;
        }
        run(&["approve"], &[0, 10]);
    }
    run(&["tell", "what is next"], &[0]);
    run(&["check"], &[0]);
}

/// Each side effect happened at most once, exactly once where its result says so, and never where that says it did not.
pub(super) fn assert_effects(case: &Case) {
    let statuses: BTreeMap<String, String> = parsed(&records(case))
        .iter()
        .filter(|record| record["type"] == "tool_result")
        .map(|record| (&record["call_id"], &record["status"]))
        .map(|(id, status)| {
            (id.as_str().unwrap_or_default().to_owned(), status.as_str().unwrap_or_default().to_owned())
        })
        .collect();
    let patched = case.read("patched.txt");
    assert!(patched == BEFORE || patched == AFTER, "the patched file holds {patched:?}");
    let order = case.order();
    let marks = |letter: &str| order.iter().filter(|mark| *mark == letter).count();
    for (call_id, count) in
        [(ALLOWED, marks("allowed")), (APPROVED, marks("approved")), (PATCHED, usize::from(patched == AFTER))]
    {
        let status = statuses.get(call_id).map(String::as_str);
        let fits = match status {
            Some("ok") => count == 1,
            Some("unknown" | "error") => count <= 1,
            Some("cancelled" | "denied") | None => count == 0,
            Some(other) => panic!("{call_id} has the status {other}"),
        };
        assert!(fits, "{call_id} took effect {count} times, and its result is {status:?}; marks: {order:?}");
    }
}

/// After an orderly end each call has its result, or waits in pending.json and was never started.
pub(super) fn assert_every_call_answered_or_pending(case: &Case) {
    let records = parsed(&records(case));
    let pending = if case.pending().is_some() { case.pending_calls() } else { Vec::new() };
    let names =
        |kind: &str, id: &Value| records.iter().any(|record| record["type"] == kind && record["call_id"] == *id);
    let replies = records.iter().filter(|record| record["type"] == "assistant");
    for call in replies.flat_map(|reply| reply["tool_calls"].as_array().into_iter().flatten()) {
        let id = &call["id"];
        let waits = pending.iter().any(|(listed, ..)| id == listed) && !names("tool_start", id);
        assert!(names("tool_result", id) || waits, "{id} has no result and does not wait for one");
    }
}

/// No temporary file of attini's own is left where the session's lock guards what is written. (In `.attini` itself,
/// where no lock is held, nobody can tell a left-over from what another invocation is about to rename.)
pub(super) fn assert_tidy(case: &Case) {
    let shared = case.path(".attini");
    let mut folders = vec![case.workspace(), case.home()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let is_left = entry.file_name().to_string_lossy().starts_with(".attini-tmp-") && folder != shared;
            assert!(!is_left, "{} is left", path.display());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
}
