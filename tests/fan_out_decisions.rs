//! Calls of several operations that a person is asked about, and those that end in the middle.

use serde_json::{Value, json};

use crate::support::*;

/// Marks are left by operations of one call of `command`.
fn case(more: &str) -> Case {
    Case::new().git().marks().config(&format!("[tools.command.fan_out]\nenabled = true\n{more}\n"))
}

fn marks(letters: &[&str]) -> Value {
    json!({"ops": letters.iter().map(|letter| json!({"argv": mark(letter)})).collect::<Vec<_>>()})
}

fn pending(case: &Case) -> Vec<String> {
    let pending = case.pending().unwrap();
    let calls = pending["calls"].as_array().unwrap().iter();
    calls.map(|call| format!("{}#{} {}", call["id"].as_str().unwrap(), call["operation"], call["needs"])).collect()
}

/// The operation results on disk, in short.
fn settled(case: &Case) -> Vec<String> {
    let records = case.records().into_iter().filter(|record| record["type"] == "operation_result");
    records.map(|one| format!("{} {}", one["operation"], one["status"].as_str().unwrap())).collect()
}

#[test]
fn nothing_of_a_call_runs_before_all_of_it_is_decided() {
    let case = case("")
        .rules([mark_rule("a", true), mark_rule("d", false)])
        .script([reply().call("command", marks(&["a", "b", "c", "d"])), reply().text("done")]);
    let outcome = case.run(["tell", "go"]).exit(10);
    outcome.stderr_contains("call_1#2");
    assert_eq!(pending(&case), ["call_1#1 \"nothing\"", "call_1#2 \"approval\"", "call_1#3 \"approval\""]);
    assert_eq!((case.order(), settled(&case)), (vec![], vec!["4 denied".to_owned()]));
    case.run(["approve", "call_1#3"]).exit(10);
    assert!(case.order().is_empty());
    case.run(["approve", "call_1#1"]).exit(2).stderr_contains("call_1#1 is carried");
    case.run(["approve", "call_1#4"]).exit(3);
    case.run(["approve", "call_1"]).exit(0);
    assert_eq!(case.order(), ["a", "b", "c"]);
    let told = case.server().last_request().result("call_1");
    assert!(told.starts_with("[1/4] ok\n") && told.contains("\n\n[4/4] denied\n"), "{told}");
}

#[test]
fn what_was_decided_is_not_decided_again_by_naming_the_whole_call() {
    let case = case("").script([reply().call("command", marks(&["a", "b"])).mark("c"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["deny", "call_1", "--reason", "not these"]).exit(10);
    case.run(["approve", "call_1"]).exit(17).stderr_contains("call_1#1 is denied already");
    case.run(["deny", "call_1"]).exit(10);
    case.run(["approve", "call_2"]).exit(0);
    assert_eq!(case.order(), ["c"]);
    let result = case.result("call_1");
    assert_eq!((&result["status"], &result["code"]), (&json!("denied"), &json!("denied")));
    let told = result["content"].as_str().unwrap();
    let section = "denied\nThe user denied this call: not these\nnext: do not repeat the call; take another way, or say \
                   what you would need it for";
    assert_eq!(told, format!("[1/2] {section}\n\n[2/2] {section}"));
}

/// In one call as between calls: what was allowed by a rule alone does not run behind what a person denied.
#[test]
fn a_denial_cancels_the_carried_effects_behind_it_in_its_own_call() {
    let case = case("")
        .rules([mark_rule("a", true), mark_rule("c", true)])
        .script([reply().call("command", marks(&["a", "b", "c", "d"])), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["deny", "call_1#2"]).exit(10);
    case.run(["approve", "call_1#4"]).exit(0);
    assert_eq!(case.order(), ["a", "d"]);
    let mut settled = settled(&case);
    settled.sort();
    assert_eq!(settled, ["1 ok", "2 denied", "3 cancelled", "4 ok"]);
}

#[test]
fn with_stop_a_denied_operation_stops_those_behind_it() {
    let case =
        case("on_error = \"stop\"").script([reply().call("command", marks(&["a", "b", "c"])), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1#1"]).exit(10);
    case.run(["approve", "call_1#3"]).exit(10);
    case.run(["deny", "call_1#2"]).exit(0);
    assert_eq!(case.order(), ["a"]);
    let told = case.server().last_request().result("call_1");
    assert!(told.ends_with("\n\n[3/3] not run (stopped after operation 2 failed)"), "{told}");
    assert_eq!(case.result("call_1")["status"], "ok");
}

#[test]
fn a_grant_settles_the_operations_that_it_covers() {
    let case = case("").script([reply().call("command", marks(&["a", "a", "b"])), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1#1", "--grant", "session"]).exit(10);
    let decisions: Vec<String> = case.pending_calls().into_iter().map(|call| call.2).collect();
    assert_eq!(decisions, ["approve", "allow", "-"]);
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["a", "a", "b"]);
}

#[test]
fn two_such_calls_and_ordinary_ones_in_one_reply() {
    let case = case("").rules([mark_rule("a", true), mark_rule("b", true)]).script([
        reply()
            .call("command", marks(&["a", "b"]))
            .mark("a")
            .call("command", marks(&["a", "x"]))
            .mark("b")
            .call("command", marks(&["b"])),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(10);
    assert_eq!(case.order(), ["a", "b", "a"], "what stands before the call that asks");
    let waiting =
        ["call_3#1 \"nothing\"", "call_3#2 \"approval\"", "call_4#null \"nothing\"", "call_5#null \"nothing\""];
    assert_eq!(pending(&case), waiting);
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["a", "b", "a", "a", "x", "b", "b"]);
    let numbers: Vec<String> = case.server().last_request().results().into_iter().map(|(id, _)| id).collect();
    assert_eq!(numbers, ["call_1", "call_2", "call_3", "call_4", "call_5"]);
}

/// The second operation waits until the test has done its worst.
fn in_the_middle() -> Case {
    case("on_error = \"continue\"")
        .file("wait.sh", "touch begun\nwhile [ ! -e over ]; do sleep 0.02; done\n")
        .rules([json!({"type": "command", "allow": true, "args_prefix": []})])
        .script([
            reply().call(
                "command",
                json!({"ops": [{"argv": mark("a")}, {"argv": ["sh", "wait.sh"]}, {"argv": mark("c")}]}),
            ),
            reply().text("done"),
        ])
}

#[test]
fn a_kill_in_the_middle_loses_no_settled_operation() {
    let case = in_the_middle();
    let running = case.start(["tell", "go"]);
    case.wait_file("begun");
    running.signal(9);
    drop(running.wait().killed_by(9));
    assert_eq!(settled(&case), ["1 ok"]);
    case.write("over", "");
    case.run(["resume"]).exit(0);
    assert_eq!(settled(&case), ["1 ok", "2 unknown", "3 cancelled"]);
    assert_eq!(case.order(), ["a"], "nothing runs a second time");
    let told = case.server().last_request().result("call_1");
    assert!(told.starts_with("[1/3] ok\n") && told.contains("\n\n[2/3] unknown\nIt was started"), "{told}");
    assert!(told.contains("\n\n[3/3] cancelled\n"), "{told}");
}

#[test]
fn an_interrupt_in_the_middle_answers_every_operation() {
    let case = in_the_middle();
    let running = case.start(["tell", "go"]);
    case.wait_file("begun");
    running.signal(2);
    running.wait().exit(130);
    assert_eq!(settled(&case), ["1 ok", "2 unknown", "3 cancelled"]);
    assert_eq!((case.result("call_1")["status"].clone(), case.order()), (json!("ok"), vec!["a".to_owned()]));
    case.run(["resume"]).exit(0);
    assert_eq!(case.order(), ["a"]);
}

#[test]
fn a_new_prompt_drops_a_call_operation_by_operation() {
    let case = case("")
        .rules([mark_rule("a", true)])
        .script([reply().call("command", marks(&["a", "b", "c"])), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["deny", "call_1#2", "--reason", "no"]).exit(10);
    case.run(["tell", "something else"]).exit(0);
    assert_eq!(settled(&case), ["1 cancelled", "2 denied", "3 cancelled"]);
    assert_eq!(case.result("call_1")["status"], "denied");
    assert!(case.order().is_empty());
}

#[test]
fn events_name_the_operation() {
    let case = case("")
        .rules([json!({"type": "command", "allow": true, "args_prefix": []})])
        .script([reply().call("command", marks(&["a", "b"])), reply().text("done")]);
    let outcome = case.run(["--output", "events", "tell", "go"]).exit(0);
    let told =
        |kind: &str| -> Vec<Value> { outcome.events_of(kind).iter().map(|event| event["operation"].clone()).collect() };
    assert_eq!(told("tool_started"), [1, 2]);
    assert_eq!(told("tool_result"), [json!(1), json!(2), Value::Null]);
}
