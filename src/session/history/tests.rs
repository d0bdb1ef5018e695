//! Each way in which a log can contradict itself, and the sentence that says so.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{History, Standing};
use crate::session::record::Record;

fn record(value: &Value) -> Record {
    serde_json::from_value(value.clone()).unwrap()
}

fn session() -> Value {
    json!({"type": "session", "format": 1, "id": "s", "at": "", "attini": "0"})
}

fn user(turn: u64) -> Value {
    json!({"type": "user", "turn": turn, "at": "", "text": "go", "settings": {}})
}

fn assistant(turn: u64, round: u64, ids: &[&str]) -> Value {
    let calls: Vec<Value> = ids.iter().map(|id| json!({"id": id, "name": "poke", "arguments": "{}"})).collect();
    json!({"type": "assistant", "turn": turn, "round": round, "at": "", "provider": "p", "model": "m", "text": "t",
        "tool_calls": calls, "finish_reason": "stop"})
}

fn decision(id: &str) -> Value {
    json!({"type": "decision", "call_id": id, "decision": "allow", "auto_decided_by": {"scope": "builtin"}})
}

fn start(id: &str) -> Value {
    json!({"type": "tool_start", "call_id": id, "at": ""})
}

fn operation_result(id: &str, operation: u32) -> Value {
    json!({"type": "operation_result", "call_id": id, "operation": operation, "at": "", "status": "ok", "content": "x"})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "call_id": id, "at": "", "status": "ok", "content": "x"})
}

fn turn_end(turn: u64, status: &str) -> Value {
    json!({"type": "turn_end", "turn": turn, "at": "", "status": status, "elapsed_ms": 5, "rounds": 1, "tool_calls": 2,
        "usage": {}})
}

/// Applies all but the last, then the last.
fn last_of(values: &[Value]) -> Result<(), String> {
    let mut history = History::default();
    let (last, before) = values.split_last().unwrap();
    for value in before {
        history.apply(&record(value)).unwrap();
    }
    let untouched = format!("{history:?}").len();
    let applied = history.apply(&record(last));
    if applied.is_err() {
        let entries = history.entries().len();
        assert!(history.call_count() <= entries * 4);
        assert_eq!(format!("{history:?}").len(), untouched, "a refused record leaves no trace: {last}");
    }
    applied
}

#[test]
fn each_contradiction_has_its_sentence() {
    let begun = |more: &[Value]| [&[session(), user(1), assistant(1, 1, &["a", "b"])], more].concat();
    for (values, sentence) in [
        (vec![user(1)], "the first record is not a `session` record"),
        (vec![json!({"type": "from_the_future"})], "the first record is not a `session` record"),
        (vec![session(), session()], "a second `session` record"),
        (
            vec![json!({"type": "session", "format": 2, "id": "", "at": "", "attini": ""})],
            "the log has format 2, and this attini knows formats up to 1; a newer attini reads it",
        ),
        (vec![session(), user(0)], "the turn goes back: 0 follows 0"),
        (vec![session(), user(2), user(2)], "the turn goes back: 2 follows 2"),
        (vec![session(), user(2), user(1)], "the turn goes back: 1 follows 2"),
        (vec![session(), user(1), assistant(5, 1, &[])], "a reply of turn 5 while turn 1 is the latest"),
        (vec![session(), user(u64::MAX)], "18446744073709551615 is no number of a turn or round"),
        (vec![session(), user(1), assistant(1, u64::MAX, &[])], "18446744073709551615 is no number of a turn or round"),
        (vec![session(), assistant(1, 1, &[])], "an `assistant` record before any `user` record"),
        (begun(&[assistant(1, 0, &[])]), "the turn goes back: turn 1 round 0 follows turn 1 round 1"),
        (vec![session(), user(2), assistant(1, 7, &[])], "the turn goes back: turn 1 round 7 follows turn 2 round 0"),
        (begun(&[assistant(1, 2, &["c", "a"])]), "the call id a is used a second time"),
        (vec![session(), user(1), assistant(1, 1, &["a", "a"])], "the call id a is used a second time"),
        (begun(&[result("a"), result("a")]), "a second `tool_result` for a"),
        (begun(&[result("z")]), "a `tool_result` for z, and no call before it has that id"),
        (begun(&[decision("z")]), "a `decision` for z, and no call before it has that id"),
        (begun(&[decision("a"), decision("a")]), "a second `decision` for a"),
        (begun(&[result("a"), decision("a")]), "a `decision` for a, which is answered already"),
        (begun(&[start("z")]), "a `tool_start` for z, and no call before it has that id"),
        (begun(&[start("a"), start("a")]), "a second `tool_start` for a"),
        (begun(&[result("a"), start("a")]), "a `tool_start` for a, which is answered already"),
        (begun(&[operation_result("z", 1)]), "a `operation_result` for z, and no call before it has that id"),
        (begun(&[operation_result("a", 1), operation_result("a", 1)]), "a second `operation_result` for a#1"),
        (begun(&[result("a"), operation_result("a", 2)]), "a `operation_result` for a#2, which is answered already"),
        (begun(&[turn_end(2, "completed")]), "a `turn_end` of turn 2 while turn 1 is the latest"),
        (vec![session(), turn_end(1, "completed")], "a `turn_end` of turn 1 while turn 0 is the latest"),
    ] {
        assert_eq!(last_of(&values).unwrap_err(), sentence, "{values:?}");
    }
}

#[test]
fn what_may_stand_in_a_log_is_taken() {
    let values = [
        session(),
        json!({"type": "from_the_future", "anything": 1}),
        user(1),
        assistant(1, 1, &["a", "b"]),
        decision("b"),
        start("b"),
        operation_result("b", 1),
        operation_result("b", 2),
        result("a"),
        turn_end(1, "interrupted"),
        turn_end(1, "another_word"),
        // A turn that another attini left out, and a repair that comes late.
        user(3),
        result("b"),
        assistant(3, 1, &["c"]),
        assistant(3, 1, &[]),
        result("c"),
    ];
    let mut history = History::default();
    for value in &values {
        history.apply(&record(value)).unwrap();
    }
    assert_eq!((history.turn(), history.reply_count(), history.call_count()), (3, 3, 3));
    assert_eq!(history.open_calls().count(), 0);
    assert!(history.turn_end().is_none(), "the end of an earlier turn is not that of the latest");
}

#[test]
fn a_turn_is_over_with_an_answer_or_once_it_is_dropped() {
    let fits = |_: &crate::session::record::UserRecord, text: &str| text == "t";
    let with_finish = |reason: &str, ids: &[&str]| {
        let mut value = assistant(1, 1, ids);
        value["finish_reason"] = json!(reason);
        value
    };
    for (more, expected) in [
        (vec![], Standing::Unfinished),
        (vec![with_finish("stop", &[])], Standing::Finished),
        (vec![with_finish("a_new_word", &[])], Standing::Finished),
        (vec![with_finish("length", &[])], Standing::Unfinished),
        (vec![with_finish("refusal", &[])], Standing::Unfinished),
        (vec![with_finish("content_filter", &[])], Standing::Unfinished),
        (vec![with_finish("pause_turn", &[])], Standing::Unfinished),
        (vec![with_finish("stop", &["a"]), result("a")], Standing::Unfinished),
        (vec![with_finish("stop", &["a"]), turn_end(1, "awaiting_approval")], Standing::Unfinished),
        (vec![with_finish("stop", &["a"]), result("a"), turn_end(1, "dropped")], Standing::Finished),
        (vec![turn_end(1, "provider_error")], Standing::Unfinished),
        (vec![turn_end(1, "provider_error"), turn_end(1, "completed")], Standing::Finished),
        (vec![turn_end(1, "completed"), user(2)], Standing::Unfinished),
    ] {
        let mut history = History::default();
        for value in [session(), user(1)].iter().chain(&more) {
            history.apply(&record(value)).unwrap();
        }
        assert_eq!(history.standing(fits), expected, "{more:?}");
    }
    let mut unfit = History::default();
    for value in [session(), user(1), assistant(1, 1, &[])] {
        unfit.apply(&record(&value)).unwrap();
    }
    assert_eq!(unfit.standing(|_, _| false), Standing::Unfinished);
    assert_eq!(History::default().standing(fits), Standing::Finished);
}

#[test]
fn limits_count_from_the_last_one_that_was_reached() {
    let mut history = History::default();
    for value in [session(), user(1), assistant(1, 1, &["a", "b"]), turn_end(1, "limit_reached")] {
        history.apply(&record(&value)).unwrap();
    }
    let before = history.spent_before_limits();
    assert_eq!((before.rounds, before.tool_calls, before.elapsed_ms), (1, 2, 5));
    history.apply(&record(&turn_end(1, "interrupted"))).unwrap();
    assert_eq!(history.spent_before_limits(), before);
    assert_eq!(history.spent().tool_calls, 2);
    history.apply(&record(&user(2))).unwrap();
    assert_eq!(history.spent_before_limits().rounds, 0);
    assert_eq!(history.spent().tool_calls, 0);
}

fn any_record() -> impl Strategy<Value = Value> {
    let id = || prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")];
    prop_oneof![
        1 => Just(session()),
        3 => (0_u64..4).prop_map(user),
        4 => (0_u64..4, 0_u64..4, prop::collection::vec(id(), 0..3)).prop_map(|(turn, round, ids)| assistant(turn, round, &ids)),
        2 => id().prop_map(decision),
        2 => id().prop_map(start),
        2 => (id(), 1_u32..3).prop_map(|(id, number)| operation_result(id, number)),
        3 => id().prop_map(result),
        1 => (0_u64..4).prop_map(|turn| turn_end(turn, "completed")),
    ]
}

proptest! {
    /// Whoever lists every fault goes on behind each: nothing panics, and what was refused left no trace.
    #[test]
    fn any_sequence_of_records_is_taken_or_refused(values in prop::collection::vec(any_record(), 0..40)) {
        let mut all = History::default();
        all.apply(&record(&session())).unwrap();
        let mut taken = all.clone();
        for value in &values {
            let record = record(value);
            if all.apply(&record).is_ok() {
                prop_assert_eq!(taken.apply(&record), Ok(()));
            }
            let open = all.open_calls().count();
            prop_assert!(open <= all.call_count());
            for id in ["a", "b", "c", "d"] {
                prop_assert_eq!(all.has_call(id), all.call(id).is_some());
            }
            let _ = (all.spent(), all.last_round(), all.standing(|_, _| true));
        }
        prop_assert_eq!(all.entries().len(), taken.entries().len());
        prop_assert_eq!(all.open_calls().count(), taken.open_calls().count());
    }
}
