//! A hostile or broken world: paths, logs, signals and streams that nobody would make on purpose, and what is told then.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::support::{Case, Running, json_lines, reply, wait_until};

/// A whole turn with one call, as records.
fn turn(number: u64, call_id: &str) -> Vec<Value> {
    let at = "2026-01-01T00:00:00.000Z";
    let call = json!({"id": call_id, "name": "read", "arguments": "{\"path\":\"a.txt\"}"});
    let assistant = |round: u64, text: &str, calls: &[&Value]| {
        json!({
            "type": "assistant", "turn": number, "round": round, "at": at, "provider": "openai", "model": "test-model",
            "text": text, "tool_calls": calls, "finish_reason": if calls.is_empty() { "stop" } else { "tool_calls" },
        })
    };
    vec![
        json!({"type": "user", "turn": number, "at": at, "text": "go", "settings": {"model": "openai/test-model"}}),
        assistant(1, "", &[&call]),
        json!({"type": "tool_result", "call_id": call_id, "at": at, "status": "ok", "content": "alpha"}),
        assistant(2, "done", &[]),
        json!({
            "type": "turn_end", "turn": number, "at": at, "status": "completed", "elapsed_ms": 1, "rounds": 2,
            "tool_calls": 1, "usage": {},
        }),
    ]
}

fn session() -> Value {
    json!({"type": "session", "format": 1, "id": "0", "at": "2026-01-01T00:00:00.000Z", "attini": "0.1.0"})
}

fn log(records: impl IntoIterator<Item = Value>) -> String {
    json_lines(std::iter::once(session()).chain(records))
}

#[test]
fn a_workspace_whose_path_is_not_utf_8_is_one_like_any_other() {
    let case = Case::new().script([reply().create("new.txt", "x\n"), reply().text("done")]);
    let odd = case.path("").join(OsStr::from_bytes(b"odd-\xff\xfe"));
    fs::create_dir(&odd).unwrap();
    let run = |words: &[&str]| {
        let mut arguments: Vec<OsString> = vec!["-C".into(), odd.clone().into(), "--output".into(), "json".into()];
        arguments.extend(words.iter().map(OsString::from));
        case.run(arguments)
    };
    for words in [&["status"][..], &["trust"], &["tools"], &["diff"], &["tools", "call", "list", "{}"]] {
        let object = run(words).exit(0).json();
        if let Some(workspace) = object["workspace"].as_str() {
            assert!(workspace.ends_with("odd-\u{fffd}\u{fffd}"), "{workspace}");
        }
    }
    run(&["tell", "go"]).exit(10);
    run(&["status"]).exit(0);
    run(&["diff"]).exit(0);
    run(&["check"]).exit(0);
    run(&["approve", "--grant", "workspace"]).exit(0);
    run(&["trust", "--yes"]).exit(0);
    assert_eq!(fs::read(odd.join("new.txt")).unwrap(), b"x\n");
}

#[test]
fn a_log_whose_numbers_cannot_be_counted_on_is_corrupt() {
    let cases = [
        log(turn(u64::MAX, "call_1")),
        log(turn(1 << 53, "call_1")),
        log(turn(1, "call_1").into_iter().map(|mut record| {
            if record["type"] == "assistant" {
                record["round"] = u64::MAX.into();
            }
            record
        })),
        log(turn(1, "call_1").into_iter().map(|mut record| {
            if record["type"] == "assistant" {
                record["turn"] = 7.into();
            }
            record
        })),
    ];
    for text in cases {
        let case = Case::new().without_invariants().planted_log("main", &text);
        for command in [&["tell", "go"][..], &["resume"], &["status"], &["check"]] {
            let mut arguments = vec!["--output", "json"];
            arguments.extend(command);
            let object = case.run(arguments).exit(16).json();
            assert_eq!(object["status"], "corrupt", "{command:?}");
        }
        assert_eq!(fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap(), text);
    }
}

#[test]
fn the_last_turn_that_can_be_counted_has_none_behind_it() {
    let case = Case::new().without_invariants().planted_log("main", log(turn((1 << 53) - 1, "call_1")));
    case.run(["status"]).exit(0);
    let object = case.run(["--output", "json", "tell", "go"]).exit(16).json();
    assert_eq!(object["error"]["code"], "corrupt");
}

#[test]
fn every_fault_of_a_log_with_doubled_and_shuffled_lines_is_listed() {
    let whole: Vec<Value> = [turn(1, "call_1"), turn(2, "call_2")].concat();
    let mut logs: Vec<Vec<Value>> = Vec::new();
    for index in 0..whole.len() {
        let mut doubled = whole.clone();
        doubled.insert(index, whole[index].clone());
        logs.push(doubled);
        let mut swapped = whole.clone();
        swapped.swap(index, (index + 3) % whole.len());
        logs.push(swapped);
    }
    logs.push(whole.iter().rev().cloned().collect());
    for records in logs {
        let case = Case::new().without_invariants().planted_log("main", log(records));
        let checked = case.run(["--output", "json", "check"]).exit_any([0, 16]);
        case.run(["--output", "json", "status"]).exit_any([0, 16]);
        let told = case.run(["--output", "json", "resume"]).exit_any([0, 3, 13, 16]);
        assert!(checked == 16 || told != 16);
    }
}

#[test]
fn counts_of_tokens_never_overflow() {
    let usage = json!({"input_tokens": u64::MAX, "output_tokens": u64::MAX, "cached_input_tokens": u64::MAX});
    let records = turn(1, "call_1").into_iter().map(|mut record| {
        if record["type"] == "assistant" || record["type"] == "turn_end" {
            record["usage"] = usage.clone();
            record["elapsed_ms"] = u64::MAX.into();
            record["tool_calls"] =
                if record["type"] == "turn_end" { u64::MAX.into() } else { record["tool_calls"].clone() };
        }
        record
    });
    let case = Case::new().without_invariants().planted_log("main", log(records)).script([reply().text("done")]);
    let status = case.run(["--output", "json", "status"]).exit(0).json();
    assert_eq!(status["context_tokens"], u64::MAX);
    case.run(["tell", "go"]).exit(0).stdout("done\n");
}

/// Waits until attini listens for signals: before that, one kills it as it kills any program.
#[track_caller]
fn wait_listening(running: &Running) {
    let threads = format!("/proc/{}/task", running.process_id());
    let is_listener = |name: String| name.trim_end() == "signals";
    wait_until("attini listens for signals", || {
        let threads = fs::read_dir(&threads).into_iter().flatten().flatten();
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok()).any(is_listener)
    });
}

#[test]
fn a_signal_ends_at_once_what_has_not_begun_anything() {
    let case = Case::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, case.path("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    case.write("schema.json", "{}");
    for (arguments, signal) in [
        (&["tell"][..], 1),
        (&["tell"], 2),
        (&["tell", "-"], 15),
        (&["tell", "what is this?", "--stdin"], 2),
        (&["tell", "go", "--system", "fifo"], 2),
        (&["tell", "go", "--output-schema", "fifo"], 15),
        (&["tell", "go", "--system", "fifo", "--output-schema", "schema.json"], 1),
    ] {
        let words = ["--output", "json"].iter().chain(arguments);
        let mut running = case.start(words);
        if arguments.len() < 3 {
            running.write_stdin("half a prom");
        }
        wait_listening(&running);
        running.signal(signal);
        let object = running.wait().exit(128 + signal).json();
        assert_eq!((&object["type"], &object["status"]), (&json!("result"), &json!("interrupted")), "{arguments:?}");
        assert!(!case.exists(".attini/sessions"), "{arguments:?} made something");
    }
    let running = case.attini(["tools", "--output", "json"]).env("ATTINI_CONFIG", case.path("fifo")).start();
    wait_listening(&running);
    running.signal(15);
    let object = running.wait().exit(143).json();
    assert_eq!((&object["type"], &object["status"]), (&json!("tools"), &json!("interrupted")));
}

#[test]
fn instructions_may_come_through_a_pipe() {
    let case = Case::new().script([reply().text("done")]);
    let script = "attini tell go --system <(echo be brief)";
    case.program("bash", ["-c", script]).run().exit(0).stdout("done\n");
    assert!(case.server().last_request().system().contains("be brief"));
}
