//! The order of records: decision, start, result; results as the calls are written, however they finish.

use super::house::{House, Plot, call, of_calls};
use crate::session::record::TrailingReads;

const OK: &str = r#"{"do":"ok"}"#;

#[test]
fn each_decision_is_recorded_once_and_before_the_start() {
    let calls = [("poke", OK), ("peek", OK), ("nonsuch", OK), ("prod", OK), ("look", "{"), ("poke", OK), ("peek", OK)];
    let house = House::new(Plot::new(&calls).rule("poke", true));
    house.tell("go");
    assert_eq!(
        house.record_lines(),
        [
            "session",
            "user",
            "assistant",
            "decision call_1 allow",
            "tool_start call_1",
            "tool_result call_1 ok",
            "tool_result call_2 ok",
            "tool_result call_3 error unknown_tool",
            "tool_result call_5 error invalid_arguments",
            "turn_end awaiting_approval",
        ]
    );
    let before = house.record_lines().len();
    house.approve(&["call_4"]).unwrap();
    assert_eq!(
        house.record_lines()[before..],
        [
            "decision call_4 approve",
            "tool_start call_4",
            "tool_result call_4 ok",
            "decision call_6 allow",
            "tool_start call_6",
            "tool_result call_6 ok",
            "tool_result call_7 ok",
            "assistant",
            "turn_end completed",
        ]
    );
    house.ensure_no_faults();
}

#[test]
fn a_decision_that_was_recorded_before_a_kill_is_not_recorded_again() {
    let house = House::new(Plot::new(&[("poke", OK), ("prod", OK)]));
    house.tell("go");
    assert!(house.approve(&["call_1"]).is_none());
    let pending = house.disk().pending;
    house.approve(&[]).unwrap();
    let log = house.disk().log.unwrap();
    let end = String::from_utf8(log.clone()).unwrap().split_inclusive('\n').take(5).map(str::len).sum::<usize>();
    let mut file = house.pending();
    assert_eq!(file.take(), None);
    house.put(&super::house::Disk { log: Some(log[..end].to_vec()), pending });
    house.ran.effects.lock().unwrap().clear();
    assert_eq!(house.record_lines().last().unwrap(), "decision call_1 approve");
    house.approve(&[]).unwrap();
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok"]);
    let decisions = house.record_lines().iter().filter(|line| line.starts_with("decision call_1")).count();
    assert_eq!(decisions, 1);
    house.ensure_no_faults();
}

#[test]
fn reads_that_finish_in_another_order_are_recorded_and_told_in_that_of_the_calls() {
    let calls = [
        ("peek", r#"{"do":"after","n":7}"#),
        ("nonsuch", OK),
        ("glance", r#"{"do":"panic","n":1}"#),
        ("peek", r#"{"do":"fail","n":2}"#),
        ("glance", r#"{"do":"ok","n":7}"#),
    ];
    let house = House::new(Plot::new(&calls).with(|settings| settings.concurrency = 4));
    assert_eq!(house.tell("go").exit_code, 0);
    let expected = [
        "tool_result call_1 ok",
        "tool_result call_2 error unknown_tool",
        "tool_result call_3 error panic",
        "tool_result call_4 error failed",
        "tool_result call_5 ok",
    ];
    assert_eq!(house.record_lines()[3..8], expected);
    let events = house.events.lock().unwrap();
    let told: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "tool_result")
        .map(|event| event["call_id"].as_str().unwrap())
        .collect();
    assert_eq!(told, ["call_1", "call_2", "call_3", "call_4", "call_5"]);
    house.ensure_no_faults();
}

#[test]
fn with_one_slot_reads_run_in_order_and_a_serial_one_waits_for_all_before_it() {
    let calls = [("peek", OK), ("glance", OK), ("look", OK), ("peek", OK)];
    let plot = Plot::new(&calls).rule("look", true).configured("look", None, Some(false));
    let house = House::new(plot.with(|settings| settings.concurrency = 1));
    house.tell("go");
    assert_eq!(house.reads(), ["call_1", "call_2", "call_3", "call_4"]);
    let lines = house.record_lines();
    let position = |line: &str| lines.iter().position(|other| other == line).unwrap();
    assert!(position("tool_result call_2 ok") < position("decision call_3 allow"));
}

#[test]
fn side_effects_that_may_run_together_all_start_on_disk_before_any_runs() {
    let calls = [("poke", r#"{"do":"after","n":4}"#), ("prod", r#"{"do":"ok","n":4}"#)];
    let plot = Plot::new(&calls).rule("*", true).configured("poke", None, Some(true));
    let house = House::new(plot.configured("prod", None, Some(true)));
    house.tell("go");
    assert_eq!(
        house.record_lines()[3..9],
        [
            "decision call_1 allow",
            "tool_start call_1",
            "decision call_2 allow",
            "tool_start call_2",
            "tool_result call_1 ok",
            "tool_result call_2 ok",
        ]
    );
    house.ensure_no_faults();
}

#[test]
fn in_strand_mode_what_was_left_is_repaired_once_behind_the_decided() {
    let calls = [("poke", OK), ("peek", OK), ("nonsuch", OK), ("prod", OK)];
    let house = House::new(Plot::new(&calls).with(|settings| settings.trailing_reads = TrailingReads::Strand));
    house.tell("go");
    let listed: Vec<String> = house.pending().unwrap().calls.into_iter().map(|call| call.id).collect();
    assert_eq!(listed, ["call_1", "call_4"]);
    let before = house.record_lines().len();
    house.approve(&[]).unwrap();
    assert_eq!(
        house.record_lines()[before..],
        [
            "decision call_1 approve",
            "tool_start call_1",
            "tool_result call_1 ok",
            "decision call_4 approve",
            "tool_start call_4",
            "tool_result call_4 ok",
            "tool_result call_2 cancelled cancelled",
            "assistant",
            "turn_end completed",
        ]
    );
    house.ensure_no_faults();
}

#[test]
fn one_call_sent_twice_is_run_once_and_two_calls_of_one_id_twice() {
    let other = r#"{"do":"ok","n":2}"#;
    let calls = vec![call("x", "poke", OK), call("x", "poke", other), call("x", "poke", other), call("x", "poke", OK)];
    let mut plot = Plot::new(&[]).rule("poke", true);
    plot.replies = vec![of_calls(calls)];
    let house = House::new(plot);
    house.tell("go");
    assert_eq!(house.results(), ["x ok", "call_2 ok"]);
    assert_eq!(house.effects(), ["x", "call_2"]);
}
