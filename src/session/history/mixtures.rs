//! Whatever the records are and however they are mixed, the fold refuses or takes in, and never panics.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A record of a log that somebody wrote by hand: few ids and numbers, so that they meet.
fn record() -> impl Strategy<Value = Value> {
    let number = prop_oneof![0..4_u64, Just(NUMBER_END - 1), Just(NUMBER_END), Just(u64::MAX)];
    let ids = prop::collection::vec(prop::sample::select(&["a", "b", "c", ""][..]), 0..4);
    let kinds = ["session", "user", "assistant", "decision", "tool_start", "operation_result", "tool_result"];
    let kind = prop::sample::select([&kinds[..], &["turn_end", "notice", "task"]].concat());
    let operation = prop_oneof![Just(None), (0..3_u32).prop_map(Some), Just(Some(u32::MAX))];
    let status = prop::sample::select(&["completed", "limit_reached", "dropped", "interrupted"][..]);
    (kind, number.clone(), number, ids, operation, status).prop_map(|(kind, turn, round, ids, operation, status)| {
        let calls: Vec<Value> =
            ids.iter().map(|id| json!({"id": id, "name": "read", "arguments": "{}"})).collect();
        let usage = json!({"input_tokens": turn, "output_tokens": round, "cached_input_tokens": u64::MAX});
        let file = json!({"path": "x", "change": "add", "sha256_before": null, "sha256_after": "0"});
        json!({
            "type": kind, "format": 1, "id": "0", "at": "", "attini": "0", "turn": turn, "round": round, "text": "",
            "settings": {}, "provider": "", "model": "", "tool_calls": if kind == "turn_end" { json!(round) } else { json!(calls) },
            "finish_reason": "stop", "usage": usage, "call_id": ids.first().copied().unwrap_or_default(),
            "operation": if kind == "operation_result" { json!(operation.unwrap_or(1)) } else { json!(operation) },
            "decision": "allow", "auto_decided_by": {"scope": "user"}, "files": [file], "content": "x",
            "status": if kind == "turn_end" { status } else { "ok" }, "elapsed_ms": turn, "rounds": round,
            "outcome": "undone",
        })
    })
}

/// Asks everything that can be asked.
fn look_at_all_of(history: &History) {
    let _ = (history.session(), history.user(), history.turn_end(), history.written(), history.spent_before_limits());
    let spent = history.spent();
    assert!(spent.rounds <= history.reply_count());
    assert_eq!(history.rounds().count() as u64, history.reply_count());
    assert!(history.open_calls().count() <= history.call_count());
    let last = history.entries().iter().rev().find(|entry| !matches!(entry, Entry::Notice(_)));
    assert_eq!(history.last_round().is_some(), matches!(last, Some(Entry::Round(_))));
    assert_eq!(history.latest_round().is_some(), history.reply_count() > 0);
    assert!(history.turn() < NUMBER_END);
    for fits in [true, false] {
        let _ = history.standing(|_, _| fits);
    }
    for round in history.rounds() {
        assert_eq!(round.assistant.tool_calls.len(), round.calls.len());
        for call in &round.assistant.tool_calls {
            assert!(history.has_call(&call.id) && history.call(&call.id).is_some_and(|(found, _)| found == call));
        }
    }
    for call_id in ["a", "b", "c", "", "none"] {
        assert_eq!(history.call(call_id).is_some(), history.has_call(call_id));
        for operation in [None, Some(1), Some(u32::MAX)] {
            let _ = history.operation(&OperationId { call_id: call_id.to_owned(), operation });
        }
    }
}

proptest! {
    #[test]
    fn no_record_makes_it_panic(
        records in prop::collection::vec((record(), 1..3_usize), 0..24).prop_shuffle(), starts_whole: bool
    ) {
        let mut history = History::default();
        let beginning = [
            json!({"type": "session", "format": 1, "id": "0", "at": "", "attini": "0"}),
            json!({"type": "user", "turn": 1, "at": "", "text": "go", "settings": {}}),
        ];
        let beginning = beginning.into_iter().filter(|_| starts_whole).map(|value| (value, 1));
        for (value, times) in beginning.chain(records) {
            let record: Record = serde_json::from_value(value).unwrap();
            for _ in 0..times {
                let before = (history.entries().len(), history.call_count());
                if history.apply(&record).is_err() {
                    prop_assert_eq!((history.entries().len(), history.call_count()), before);
                }
                look_at_all_of(&history);
            }
        }
    }
}

/// Each of these is refused, and the fold goes on behind it.
#[test]
fn what_would_leave_nothing_to_count_on_is_refused() {
    let user = |turn: u64| json!({"type": "user", "turn": turn, "at": "", "text": "go", "settings": {}});
    let assistant = |turn: u64, round: u64| {
        json!({
            "type": "assistant", "turn": turn, "round": round, "at": "", "provider": "", "model": "", "text": "",
            "finish_reason": "stop", "tool_calls": [{"id": format!("call_{round}"), "name": "read", "arguments": ""}],
        })
    };
    let session = json!({"type": "session", "format": 1, "id": "0", "at": "", "attini": "0"});
    for (last, words) in [
        (user(u64::MAX), "no number of a turn"),
        (user(NUMBER_END), "no number of a turn"),
        (assistant(1, u64::MAX), "no number of a turn or round"),
        (assistant(2, 1), "a reply of turn 2 while turn 1 is the latest"),
        (assistant(1, 1), "used a second time"),
    ] {
        let mut history = History::default();
        for value in [&session, &user(1), &assistant(1, 1)] {
            history.apply(&serde_json::from_value(value.clone()).unwrap()).unwrap();
        }
        let refused = history.apply(&serde_json::from_value(last).unwrap()).unwrap_err();
        assert!(refused.contains(words), "{refused}");
        history.apply(&serde_json::from_value(assistant(1, 2)).unwrap()).unwrap();
        look_at_all_of(&history);
    }
}
