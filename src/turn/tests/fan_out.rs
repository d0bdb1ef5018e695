//! Calls of several operations: what becomes of each is what would have become of it as a call of its own; when they
//! run, what stops them, and what a kill or an interrupt leaves.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::house::{House, Plot, call, of_calls};
use crate::config::Run;
use crate::permission::Rule;
use crate::session::pending::PendingCall;
use crate::session::record::{OnAsk, OnError, OperationId, ResultStatus, ToolCall};
use crate::turn::decisions::Verdict;

const OK: &str = r#"{"do":"ok"}"#;
const TOOLS: [&str; 5] = ["peek", "glance", "look", "poke", "prod"];

/// The call `call_1` of a tool, with these operations.
fn several(name: &str, operations: &[Value]) -> ToolCall {
    call("", name, &json!({"ops": operations}).to_string())
}

fn plot(calls: Vec<ToolCall>) -> Plot {
    let mut plot = Plot::new(&[]).with(|settings| settings.result_bytes = 32 * 1024);
    plot.replies = vec![of_calls(calls)];
    plot
}

fn content(house: &House, call_id: &str) -> String {
    house.history().call(call_id).unwrap().1.result.as_ref().unwrap().content.clone()
}

/// The records behind the assistant's, up to the next one.
fn records(house: &House) -> Vec<String> {
    let lines = house.record_lines();
    lines.into_iter().skip(3).take_while(|line| !line.starts_with("assistant")).collect()
}

/// What a test can vary of one operation.
fn operation() -> impl Strategy<Value = Value> {
    let what = prop_oneof![
        5 => Just("ok"), 2 => Just("fail"), 1 => Just("panic"), 1 => Just("empty"), 1 => Just("refuse"), 1 => Just("dance"),
    ];
    let host = prop_oneof![
        3 => Just(None), 1 => Just(Some("asks.org")), 1 => Just(Some("allowed.org")), 1 => Just(Some("denied.org")),
    ];
    let number = prop_oneof![3 => Just(json!(3)), 1 => Just(json!("4")), 1 => Just(json!("five"))];
    (what, host, number, prop::bool::weighted(0.05)).prop_map(|(what, host, number, beside)| {
        let mut arguments = json!({"do": what, "n": number});
        if let Some(host) = host {
            arguments["host"] = json!(host);
        }
        if beside {
            arguments["m"] = json!(1);
        }
        arguments
    })
}

/// A person's answer to each operation that asks, and all else that a result may depend on.
#[derive(Debug, Clone)]
struct Policy {
    rules: Vec<(&'static str, bool)>,
    run: Option<Run>,
    concurrent: Option<bool>,
    own_concurrency: Option<u64>,
    concurrency: u64,
    on_ask: OnAsk,
    calls_per_reply: u64,
    read_only: bool,
    approves: Vec<bool>,
}

fn policy() -> impl Strategy<Value = Policy> {
    let rules = prop::collection::vec((prop::sample::select(&TOOLS[..]), any::<bool>()), 0..4);
    let run = prop_oneof![4 => Just(None), 1 => Just(Some(Run::Ask)), 1 => Just(Some(Run::Allow)), 1 => Just(Some(Run::Deny))];
    let on_ask = prop_oneof![4 => Just(OnAsk::Suspend), 1 => Just(OnAsk::Deny), 1 => Just(OnAsk::Fail)];
    let numbers = (prop::option::of(1_u64..4), 1_u64..4, prop_oneof![3 => Just(64_u64), 1 => 1_u64..6]);
    let approves = prop::collection::vec(prop::bool::weighted(0.7), 12);
    (rules, run, prop::option::of(any::<bool>()), numbers, on_ask, prop::bool::weighted(0.1), approves).prop_map(
        |(rules, run, concurrent, (own_concurrency, concurrency, calls_per_reply), on_ask, read_only, approves)| {
            Policy {
                rules,
                run,
                concurrent,
                own_concurrency,
                concurrency,
                on_ask,
                calls_per_reply,
                read_only,
                approves,
            }
        },
    )
}

/// Plays a reply to its end; the operation in place `n` of the reply is answered as `approves[n]` says.
fn played(calls: Vec<ToolCall>, tool: &str, policy: &Policy) -> House {
    let mut plot = plot(calls).with(|settings| {
        settings.on_ask = policy.on_ask;
        settings.concurrency = policy.concurrency;
        settings.calls_per_reply = policy.calls_per_reply;
        settings.read_only = policy.read_only;
    });
    plot = plot.configured(tool, policy.run, policy.concurrent).fanned(tool, policy.own_concurrency, OnError::Continue);
    for (name, allow) in &policy.rules {
        plot = plot.rule(name, *allow);
    }
    for (host, allow) in [("allowed.org", true), ("denied.org", false)] {
        plot.rules.push(Rule::Fetch { allow, host: host.to_owned(), turn: None });
    }
    let house = House::new(plot);
    house.tell("go");
    let next = || house.pending().and_then(|file| file.undecided().next().map(PendingCall::operation_id));
    while let Some(id) = next() {
        let verdict = if policy.approves[place(&house, &id)] {
            Verdict::Approve
        } else {
            Verdict::Deny { reason: Some("not now".to_owned()) }
        };
        house.decide(&[&id.to_string()], &verdict);
    }
    house.ensure_no_faults();
    house
}

/// Where an operation stands in its reply, every operation counted.
fn place(house: &House, id: &OperationId) -> usize {
    let history = house.history();
    let calls = history.last_round().unwrap().assistant.tool_calls.iter();
    let before = calls.take_while(|call| call.id != id.call_id).map(|call| {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        arguments["ops"].as_array().map_or(1, Vec::len)
    });
    before.sum::<usize>() + id.operation.map_or(0, |number| number as usize - 1)
}

/// Status, code and words.
type Said = (ResultStatus, Option<String>, String);

fn said_of_calls(house: &House) -> Vec<Said> {
    let history = house.history();
    let round = history.rounds().next().unwrap();
    let results = round.calls.iter().map(|call| call.result.as_ref().unwrap());
    results.map(|result| (result.status, result.code.clone(), result.content.clone())).collect()
}

fn word(status: ResultStatus) -> &'static str {
    match status {
        ResultStatus::Ok => "ok",
        ResultStatus::Error => "error",
        ResultStatus::Denied => "denied",
        ResultStatus::Cancelled => "cancelled",
        ResultStatus::Unknown => "unknown",
        ResultStatus::NotRun => "not run",
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn an_operation_is_told_what_it_would_be_told_as_a_call_of_its_own(
        tool in prop::sample::select(&TOOLS[..]),
        operations in prop::collection::vec(operation(), 1..7),
        around in (prop::option::of(prop::sample::select(&TOOLS[..])), prop::option::of(prop::sample::select(&TOOLS[..]))),
        policy in policy(),
    ) {
        let (before, after) = (around.0.map(|name| call("", name, OK)), around.1.map(|name| call("", name, OK)));
        let reply = |between: Vec<ToolCall>| before.iter().cloned().chain(between).chain(after.clone()).collect();
        let apart = reply(operations.iter().map(|one| call("", tool, &one.to_string())).collect());
        let apart = said_of_calls(&played(apart, tool, &policy));
        let house = played(reply(vec![several(tool, &operations)]), tool, &policy);
        let together = said_of_calls(&house);

        let count = operations.len();
        let first = usize::from(before.is_some());
        let own = &apart[first..first + count];
        prop_assert_eq!(&together[..first], &apart[..first]);
        prop_assert_eq!(&together[first + 1..], &apart[first + count..]);
        let (status, _, text) = &together[first];
        if let [only] = own {
            prop_assert_eq!(&together[first], only);
            return Ok(());
        }
        let sections: Vec<String> = (1..)
            .zip(own)
            .map(|(number, (status, _, words))| format!("[{number}/{count}] {}\n{words}", word(*status)))
            .collect();
        prop_assert_eq!(text, &sections.join("\n\n"));
        let gravest = [ResultStatus::Ok, ResultStatus::Unknown, ResultStatus::Error, ResultStatus::Denied, ResultStatus::Cancelled];
        let expected = gravest.into_iter().find(|status| own.iter().any(|one| one.0 == *status)).unwrap();
        prop_assert_eq!(*status, expected);
        let id = format!("call_{}", first + 1);
        let history = house.history();
        let codes: Vec<Option<String>> =
            history.call(&id).unwrap().1.operations.values().map(|one| one.result.as_ref().unwrap().code.clone()).collect();
        let own: Vec<Option<String>> = own.iter().map(|one| one.1.clone()).collect();
        prop_assert_eq!(codes, own);
    }
}

#[test]
fn one_after_the_other_or_side_by_side_and_to_the_first_failure_or_to_the_end() {
    let operations =
        [json!({"do": "ok"}), json!({"do": "fail"}), json!({"do": "ok"}), json!({"do": "panic"}), json!({"do": "ok"})];
    let ran = |numbers: &[u32]| numbers.iter().map(|number| format!("call_1.{number}")).collect::<Vec<_>>();
    for (name, concurrency, on_error, expected) in [
        ("poke", Some(1), OnError::Stop, &[1, 2][..]),
        ("poke", Some(1), OnError::Continue, &[1, 2, 3, 4, 5]),
        // A tool that runs alone runs its operations alone.
        ("poke", None, OnError::Stop, &[1, 2]),
        ("poke", None, OnError::Continue, &[1, 2, 3, 4, 5]),
        ("peek", Some(1), OnError::Stop, &[1, 2]),
        ("peek", Some(1), OnError::Continue, &[1, 2, 3, 4, 5]),
    ] {
        let plot = plot(vec![several(name, &operations)]).rule("poke", true).fanned(name, concurrency, on_error);
        let house = House::new(plot);
        house.tell("go");
        assert_eq!([house.effects(), house.reads()].concat(), ran(expected), "{name} {concurrency:?} {on_error:?}");
        let told = content(&house, "call_1");
        assert_eq!(told.matches("not run (stopped after operation 2 failed)").count(), 5 - expected.len(), "{told}");
        house.ensure_no_faults();
    }
}

/// What is left waits for what runs: `after` gives up only where the one it waits for cannot begin.
#[test]
fn as_many_run_beside_each_other_as_was_said() {
    for (name, concurrent, own, dispatch) in [
        ("poke", None, Some(2), 1),
        ("peek", None, Some(2), 1),
        // Without a number of its own the dispatch's holds.
        ("peek", None, None, 2),
        ("poke", Some(true), None, 2),
    ] {
        let operations = [json!({"do": "after", "n": 7}), json!({"do": "ok", "n": 7}), json!({"do": "fail"})];
        let plot = plot(vec![several(name, &operations)]).rule("poke", true).configured(name, None, concurrent);
        let house =
            House::new(plot.fanned(name, own, OnError::Continue).with(|settings| settings.concurrency = dispatch));
        house.tell("go");
        let told = content(&house, "call_1");
        let expected = format!("[1/3] ok\nafter 7\n\n[2/3] ok\n{name} did 7\n\n[3/3] error\nit failed");
        assert!(told.starts_with(&expected), "{name} {own:?}: {told}");
        house.ensure_no_faults();
    }
}

#[test]
fn what_is_known_to_fail_stops_those_behind_it_before_anybody_is_asked() {
    let operations = [json!({"do": "ok"}), json!({"do": "dance"}), json!({"do": "ok"})];
    let house = House::new(plot(vec![several("poke", &operations)]).fanned("poke", None, OnError::Stop));
    assert_eq!(house.tell("go").exit_code, 10);
    let pending: Vec<String> =
        house.pending().unwrap().calls.iter().map(|call| call.operation_id().to_string()).collect();
    assert_eq!(pending, ["call_1#1"]);
    assert_eq!(
        records(&house),
        [
            "operation_result call_1#2 error invalid_arguments",
            "operation_result call_1#3 not_run not_run",
            "turn_end awaiting_approval"
        ]
    );
    house.approve(&["call_1"]).unwrap();
    assert_eq!(house.effects(), ["call_1.1"]);
    house.ensure_no_faults();
}

#[test]
fn a_denied_operation_is_a_failure_and_a_call_of_which_all_was_denied_is_denied() {
    let operations = [json!({"do": "ok"}), json!({"do": "ok"}), json!({"do": "ok"})];
    for (on_error, third) in [(OnError::Stop, "not_run not_run"), (OnError::Continue, "ok")] {
        let house = House::new(plot(vec![several("poke", &operations)]).fanned("poke", None, on_error));
        house.tell("go");
        assert!(house.approve(&["call_1#1"]).is_none() && house.deny(&["call_1#2"]).is_none());
        house.approve(&["call_1"]).unwrap();
        let lines = records(&house);
        for line in ["call_1#1 ok", "call_1#2 denied denied", &format!("call_1#3 {third}")] {
            assert!(lines.contains(&format!("operation_result {line}")), "{line}: {lines:#?}");
        }
        assert!(content(&house, "call_1").contains("\n[2/3] denied\nThe user denied this call: not now"));
        assert_eq!(house.results(), ["call_1 ok"]);
        house.ensure_no_faults();
    }
    let house = House::new(plot(vec![several("poke", &operations)]).fanned("poke", None, OnError::Continue));
    house.tell("go");
    house.deny(&["call_1"]).unwrap();
    assert_eq!(house.results(), ["call_1 denied denied"]);
    let told = content(&house, "call_1");
    // Each says what to do next, and the whole says it no second time.
    assert_eq!((told.matches("] denied\n").count(), told.matches("next: ").count()), (3, 3), "{told}");
}

#[test]
fn an_interrupt_in_the_middle_leaves_what_was_recorded_and_cancels_the_rest() {
    let operations = [json!({"do": "ok"}), json!({"do": "raise"}), json!({"do": "ok"}), json!({"do": "ok"})];
    for (name, on_error, expected) in [
        // What broke off may have taken effect, and counts as failed.
        ("poke", OnError::Continue, ["ok", "unknown interrupted", "cancelled cancelled", "cancelled cancelled"]),
        ("poke", OnError::Stop, ["ok", "unknown interrupted", "cancelled cancelled", "cancelled cancelled"]),
        // A read did not fail: nothing behind it is put down to it.
        ("peek", OnError::Stop, ["ok", "cancelled cancelled", "cancelled cancelled", "cancelled cancelled"]),
    ] {
        let plot = plot(vec![several(name, &operations)]).rule("poke", true).fanned(name, Some(1), on_error);
        let house = House::new(plot);
        assert_eq!(house.tell("go").exit_code, 130);
        let lines = records(&house);
        for (number, line) in (1..).zip(expected) {
            let expected = format!("operation_result call_1#{number} {line}");
            assert!(lines.contains(&expected), "{name} {on_error:?} {expected}: {lines:#?}");
        }
        assert_eq!(house.results(), ["call_1 ok"]);
        let ran = (house.effects(), house.reads());
        assert_eq!(house.resume().unwrap().exit_code, 0);
        assert_eq!((house.effects(), house.reads()), ran, "nothing runs a second time");
        house.ensure_no_faults();
    }
}

/// A read that is carried and was not begun stays pending, whatever its neighbours came to.
#[test]
fn operations_that_an_interrupt_kept_from_beginning_stay_pending() {
    let operations = [json!({"do": "raise", "host": "asks.org"}), json!({"do": "ok"}), json!({"do": "ok"})];
    for on_error in [OnError::Continue, OnError::Stop] {
        let house = House::new(plot(vec![several("peek", &operations)]).fanned("peek", Some(1), on_error));
        assert_eq!(house.tell("go").exit_code, 10);
        assert_eq!(house.approve(&[]).unwrap().exit_code, 130);
        let lines = records(&house);
        assert!(lines.contains(&"operation_result call_1#1 cancelled cancelled".to_owned()), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("#2") || line.contains("#3")), "{on_error:?} {lines:#?}");
        assert_eq!(house.resume().unwrap().exit_code, 0);
        assert_eq!(house.reads(), ["call_1.1", "call_1.2", "call_1.3"]);
        assert_eq!(house.results(), ["call_1 ok"]);
        house.ensure_no_faults();
    }
}

#[test]
fn calls_of_several_and_of_one_keep_their_order_in_one_reply() {
    let two = [json!({"do": "ok", "n": 1}), json!({"do": "ok", "n": 2})];
    let calls = vec![
        several("peek", &two),
        call("", "poke", OK),
        several("prod", &two),
        several("prod", &two),
        call("", "peek", OK),
    ];
    let plot = plot(calls).rule("*", true).fanned("peek", None, OnError::Continue);
    let house = House::new(plot.fanned("prod", Some(2), OnError::Stop));
    assert_eq!(house.tell("go").exit_code, 0);
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok", "call_3 ok", "call_4 ok", "call_5 ok"]);
    let effects = house.effects();
    assert_eq!(effects[0], "call_2");
    // Two operations of one call run in any order; those of the next call come behind both.
    let calls: Vec<&str> = effects.iter().map(|label| label.split('.').next().unwrap()).collect();
    assert_eq!(calls, ["call_2", "call_3", "call_3", "call_4", "call_4"]);
    let whole: Vec<String> = records(&house)
        .into_iter()
        .filter(|line| line.starts_with("tool_result"))
        .map(|line| line[12..].to_owned())
        .collect();
    assert_eq!(whole, house.results());
    house.ensure_no_faults();
}
