//! The check of a session's log, by itself: a good one passes, and each broken one is named.

use serde_json::{Value, json};

use crate::support::{check_log, check_session_folder, json_lines};

const AT: &str = "2001-02-03T04:05:06.789Z";

fn session() -> Value {
    json!({"type": "session", "format": 1, "id": "s", "at": AT, "attini": "0.1.0"})
}

fn user(turn: u64) -> Value {
    json!({"type": "user", "turn": turn, "at": AT, "text": "go", "settings": {"trailing_reads": "carry"}})
}

fn assistant(turn: u64, round: u64, calls: &[&str]) -> Value {
    let calls: Vec<Value> = calls.iter().map(|id| json!({"id": id, "name": "command", "arguments": "{}"})).collect();
    json!({"type": "assistant", "turn": turn, "round": round, "at": AT, "text": "well", "tool_calls": calls,
        "finish_reason": "stop"})
}

fn decision(id: &str, decision: &str) -> Value {
    json!({"type": "decision", "call_id": id, "operation": null, "decision": decision,
        "auto_decided_by": {"scope": "user"}})
}

fn start(id: &str) -> Value {
    json!({"type": "tool_start", "call_id": id, "operation": null, "at": AT})
}

fn result(id: &str, status: &str) -> Value {
    json!({"type": "tool_result", "call_id": id, "at": AT, "status": status, "content": "text"})
}

fn operation_result(id: &str, operation: u64, status: &str) -> Value {
    json!({"type": "operation_result", "call_id": id, "operation": operation, "status": status, "content": "text"})
}

fn end(turn: u64, status: &str) -> Value {
    json!({"type": "turn_end", "turn": turn, "at": AT, "status": status})
}

fn pending(calls: &[Value]) -> Value {
    json!({"format": 1, "session": "main", "turn": 1, "status": "awaiting_approval",
        "digest": format!("sha256:{}", "0a".repeat(32)), "calls": calls})
}

fn parked(id: &str) -> Value {
    json!({"id": id, "needs": "approval", "decision": null})
}

fn text(records: &[Value]) -> String {
    json_lines(records.iter().cloned())
}

fn with(mut record: Value, key: &str, value: Value) -> Value {
    record[key] = value;
    record
}

/// A log that begins as it must.
fn log(records: &[Value]) -> String {
    text(&[&[session(), user(1)], records].concat())
}

#[test]
fn good_logs_pass() {
    let run = [assistant(1, 1, &["c1"]), decision("c1", "allow"), start("c1"), result("c1", "ok")];
    let fanned = [
        assistant(1, 1, &["c1"]),
        with(decision("c1", "allow"), "operation", 1.into()),
        with(start("c1"), "operation", 1.into()),
        operation_result("c1", 1, "error"),
        operation_result("c1", 2, "not_run"),
        result("c1", "error"),
    ];
    let good = [
        ("just begun", log(&[])),
        ("an answer", log(&[assistant(1, 1, &[]), end(1, "completed")])),
        ("a run command", log(&[&run[..], &[assistant(1, 2, &[]), end(1, "completed")]].concat())),
        ("in mid-turn", log(&run[..3])),
        ("fan-out", log(&fanned)),
        ("denied", log(&[assistant(1, 1, &["c1"]), decision("c1", "deny"), result("c1", "denied")])),
        ("two turns", log(&[assistant(1, 1, &[]), end(1, "completed"), user(2), assistant(2, 1, &[])])),
        ("a newer record", log(&[json!({"type": "dream", "at": 1})])),
    ];
    for (name, text) in good {
        assert_eq!(check_log(&text, 0, None), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn broken_logs_are_named() {
    let answered = [assistant(1, 1, &["c1"]), result("c1", "error")];
    let after = |record: Value| log(&[&answered[..], &[record]].concat());
    let open = |records: &[Value]| log(&[&[assistant(1, 1, &["c1"])], records].concat());
    let broken = [
        ("does not begin with", text(&[user(1)])),
        ("does not begin with", text(&[session()])),
        ("two session records", log(&[session()])),
        ("does not end in a newline", log(&[]).trim_end().to_owned()),
        ("line 3: not JSON", format!("{}{{\n", log(&[]))),
        ("line 3: not an object", format!("{}1\n", log(&[]))),
        ("a record without a type", log(&[json!({})])),
        ("the format is 2", text(&[with(session(), "format", 2.into()), user(1)])),
        ("not RFC 3339", log(&[with(assistant(1, 1, &[]), "at", "2001-02-03T04:05:06Z".into())])),
        ("turn 1 starts after turn 1", log(&[user(1)])),
        ("turn 2 round 1 comes after", log(&[assistant(2, 1, &[])])),
        ("turn 1 round 1 comes after turn 1 round 2", log(&[assistant(1, 2, &[]), assistant(1, 1, &[])])),
        ("an empty answer", log(&[with(assistant(1, 1, &[]), "text", "".into())])),
        ("\"c1\" is used twice", after(assistant(1, 2, &["c1"]))),
        ("\"c1\" is used twice", log(&[assistant(1, 1, &["c1", "c1"])])),
        ("is not of", log(&[assistant(1, 1, &["c 1"])])),
        ("a reply comes before the result of \"c1\"", open(&[assistant(1, 2, &[])])),
        ("a prompt comes before the result of \"c1\"", open(&[user(2)])),
        ("the end of the turn comes before the result", open(&[end(1, "completed")])),
        ("of an earlier reply has no result", open(&[assistant(1, 2, &[])])),
        ("\"c1\", which is answered already", after(result("c1", "ok"))),
        ("\"zz\", which does not exist", open(&[result("zz", "error")])),
        ("decision of the call \"c1\", which is answered", after(decision("c1", "deny"))),
        ("has a decision already", open(&[decision("c1", "allow"), decision("c1", "allow")])),
        ("the decision \"maybe\" is unknown", open(&[decision("c1", "maybe")])),
        ("without a decision that allows it", open(&[start("c1")])),
        ("without a decision that allows it", open(&[decision("c1", "deny"), start("c1")])),
        ("was started before", open(&[decision("c1", "allow"), start("c1"), start("c1")])),
        ("after the start", open(&[start("c1"), decision("c1", "allow")])),
        ("was never started", open(&[result("c1", "ok")])),
        ("the status \"fine\"", open(&[result("c1", "fine")])),
        ("the status \"not_run\"", open(&[result("c1", "not_run")])),
        ("without content", open(&[with(result("c1", "error"), "content", "".into())])),
        ("the scope \"luck\"", open(&[with(result("c1", "error"), "auto_decided_by", json!({"scope": "luck"}))])),
        ("is settled already", open(&[operation_result("c1", 1, "ok"), operation_result("c1", 1, "ok")])),
        ("operation_result of the call \"c1\", which is answered", after(operation_result("c1", 1, "ok"))),
        ("call_waiting of the call \"c1\"", after(json!({"type": "call_waiting", "call_id": "c1"}))),
        ("a notice comes before", open(&[json!({"type": "notice", "at": AT, "task_id": "1"})])),
        ("no border of a record", log(&[json!({"type": "summary", "at": AT, "through_offset": 3})])),
        ("turn 2 ends within turn 1", log(&[end(2, "error")])),
    ];
    for (expected, text) in broken {
        let found = check_log(&text, 0, None);
        assert!(found.iter().any(|violation| violation.contains(expected)), "{expected}: {found:?} for\n{text}");
    }
}

#[test]
fn what_the_test_planted_may_be_answered_late() {
    let records = [assistant(1, 1, &["c1"]), user(2), result("c1", "cancelled"), assistant(2, 1, &[])];
    assert_eq!(check_log(&log(&records), 4, None), Vec::<String>::new());
    assert_ne!(check_log(&log(&records), 0, None), Vec::<String>::new());
    let still_open = [assistant(1, 1, &["c1"]), user(2), assistant(2, 1, &[])];
    assert_ne!(check_log(&log(&still_open), 4, None), Vec::<String>::new(), "a reply while a call is open");
}

#[test]
fn pending_lists_what_is_open() {
    let suspended = log(&[assistant(1, 1, &["c1", "c2"]), end(1, "awaiting_approval")]);
    let whole = pending(&[parked("c1"), json!({"id": "c2", "needs": "nothing", "decision": null})]);
    assert_eq!(check_log(&suspended, 0, Some(&whole)), Vec::<String>::new());
    let answered = log(&[assistant(1, 1, &["c1"]), result("c1", "error"), end(1, "awaiting_approval")]);
    let cases = [
        ("does not list the open call \"c2\"", &suspended, pending(&[parked("c1")])),
        ("\"zz\" does not exist", &suspended, pending(&[parked("c1"), parked("c2"), parked("zz")])),
        ("\"c1\" is answered", &answered, pending(&[parked("c1")])),
        ("the digest is", &suspended, with(whole.clone(), "digest", "sha256:0".into())),
        ("turn 2", &suspended, with(whole.clone(), "turn", 2.into())),
        ("the status is", &suspended, with(whole, "status", "awaiting_answer".into())),
    ];
    for (expected, text, pending) in cases {
        let found = check_log(text, 0, Some(&pending));
        assert!(found.iter().any(|violation| violation.contains(expected)), "{expected}: {found:?}");
    }
    let strands = text(&[
        session(),
        with(user(1), "settings", json!({"trailing_reads": "strand"})),
        assistant(1, 1, &["c1", "c2"]),
        end(1, "awaiting_approval"),
    ]);
    assert_eq!(check_log(&strands, 0, Some(&pending(&[parked("c1")]))), Vec::<String>::new());
}

#[test]
fn a_session_folder_is_private_and_holds_what_its_records_name() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(check_session_folder(path, 0), Vec::<String>::new(), "no log, no session");
    let named = with(result("c1", "error"), "output_file", "outputs/c1".into());
    fs::write(path.join("conversation.jsonl"), log(&[assistant(1, 1, &["c1"]), named])).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(path.join("conversation.jsonl"), Permissions::from_mode(0o644)).unwrap();
    let found = check_session_folder(path, 0).join("\n");
    assert!(found.contains("has mode 644") && found.contains("\"outputs/c1\", which is no file"), "{found}");

    fs::set_permissions(path.join("conversation.jsonl"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(path.join("outputs")).unwrap();
    fs::set_permissions(path.join("outputs"), Permissions::from_mode(0o700)).unwrap();
    fs::write(path.join("outputs/c1"), "text").unwrap();
    fs::set_permissions(path.join("outputs/c1"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(check_session_folder(path, 0), Vec::<String>::new());
}
