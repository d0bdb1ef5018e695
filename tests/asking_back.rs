//! MCP servers that ask back in mid-call: the call waits as a question, and a new process takes the answer back.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, mark_rule, reply, repository_path};

/// A workspace with the server `x`, which asks as `mode` says, and with leave to call it.
fn case(mode: &str) -> Case {
    case_with(mode, "")
}

fn case_with(mode: &str, more: &str) -> Case {
    let server = repository_path("fixtures/mcp/server.sh").display().to_string();
    let config = format!("[mcp.x]\ncommand = {:?}\n{more}\n", ["sh", &server, mode]);
    let rules = [json!({"type": "tool", "allow": true, "name": "x__*"}), mark_rule("after", true)];
    Case::new().marks().config(&config).rules(rules)
}

/// The turn of one call, suspended.
fn asked(mode: &str) -> Case {
    let case = case(mode).script([reply().call("x__echo", json!({"text": "hi"}))]);
    case.run(["tell", "go"]).exit(11);
    case.server().script([reply().text("done")]);
    case
}

fn calls(case: &Case) -> Vec<Value> {
    let text = case.read("calls");
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["params"].clone()).collect()
}

/// The session as a kill leaves it right behind the last record of a type, with this pending.json.
fn killed(case: &Case, mode: &str, behind: &str, pending: Option<&Value>) -> Case {
    let text = fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap();
    let end = text.rfind(&format!("\"type\":\"{behind}\"")).unwrap();
    let end = end + text[end..].find('\n').unwrap() + 1;
    let left = self::case(mode).planted_log("main", &text[..end]);
    let left = match pending {
        Some(pending) => left.planted_pending("main", pending.to_string()),
        None => left,
    };
    left.script([reply().text("done")])
}

/// pending.json with this answer to its question.
fn answered(case: &Case, answer: &str) -> Value {
    let mut pending = case.pending().unwrap();
    pending["calls"][0]["decision"] = json!("answer");
    pending["calls"][0]["answer"] = json!(answer);
    pending
}

#[test]
fn the_answer_goes_back_with_the_servers_state() {
    let case = case("back").script([reply().call("x__echo", json!({"text": "hi"}))]);
    let outcome = case.run(["--output", "json", "tell", "go"]).exit(11);
    let result = outcome.json();
    assert_eq!(result["status"], "awaiting_answer");
    let pending = &result["pending"][0];
    assert_eq!(
        (&pending["id"], &pending["name"], &pending["needs"]),
        (&json!("call_1"), &json!("x__echo"), &json!("answer"))
    );
    assert_eq!(
        pending["preview"],
        json!({"kind": "question", "question": "Which branch?\n- branch", "choices": [], "round": 1})
    );
    let records = case.records();
    let waiting = records.iter().find(|record| record["type"] == "call_waiting").unwrap();
    assert_eq!((&waiting["call_id"], &waiting["question"]), (&json!("call_1"), &json!("Which branch?\n- branch")));
    assert_eq!(waiting["state"]["request_state"], "s1 of the server");
    case.run(["status"]).exit(0).stdout_contains("waits for 1 answer").stdout_contains("attini answer call_1");
    case.run(["approve"]).exit(11);

    case.server().script([reply().text("done")]);
    case.run(["answer", "main-line"]).exit(0).stdout("done\n");
    let result = case.result("call_1");
    assert_eq!(result["content"], "{'q':{'action':'accept','content':{'branch':'main-line'}}} s1 of the server");
    let calls = calls(&case);
    assert_eq!(
        (calls.len(), &calls[0]["arguments"], &calls[1]["arguments"]),
        (2, &json!({"text": "hi"}), &json!({"text": "hi"}))
    );
    let decisions: Vec<Value> = case.records().into_iter().filter(|record| record["type"] == "decision").collect();
    assert_eq!((&decisions[0]["decision"], &decisions[1]["decision"]), (&json!("allow"), &json!("answer")));
    assert_eq!(
        (&decisions[1]["reason"], &decisions[1]["auto_decided_by"]["scope"]),
        (&json!("main-line"), &json!("person"))
    );
    assert_eq!(case.pending(), None);
    case.run(["check"]).exit(0);
}

#[test]
fn a_server_may_ask_more_than_once() {
    let case = asked("back-twice");
    case.run(["answer", "first"]).exit(11);
    assert_eq!(case.pending().unwrap()["calls"][0]["preview"]["round"], 2);
    case.run(["answer", "second"]).exit(0);
    let content = case.result("call_1")["content"].clone();
    assert_eq!(content, "{'q':{'action':'accept','content':{'branch':'second'}}} s2 of the server");
    assert_eq!(calls(&case).len(), 3);
}

#[test]
fn an_answer_that_does_not_fit_leaves_the_call_pending() {
    let case = asked("back-form");
    case.run(["answer", "three"]).exit(2).stderr_contains("no JSON").stderr_contains("{\"n\":1,\"force\":true}");
    let refused = case.run(["answer", r#"{"n":"3","force":1}"#]).exit(2);
    refused.stderr_contains("`n`").stderr_contains("`force`").stderr_contains("call_1 still waits");
    assert_eq!(case.pending().unwrap()["calls"][0]["decision"], Value::Null);
    case.run(["answer", "call_1", r#"{"n":3}"#]).exit(0);
    assert_eq!(case.result("call_1")["content"], "{'q':{'action':'accept','content':{'n':3}}} s1 of the server");

    let case = asked("back").with_unplayed_replies();
    case.run(["answer", "x"]).exit(2).stderr_contains("`branch`");
}

#[test]
fn it_can_be_denied_and_dropped() {
    let case = asked("back");
    case.run(["deny", "--reason", "not now"]).exit(0);
    let result = case.result("call_1");
    assert_eq!((&result["status"], &result["code"]), (&json!("denied"), &json!("denied")));

    let before = asked("back").with_unplayed_replies();
    for (pending, part) in [
        (before.pending().unwrap(), "asked something back and got no answer"),
        (answered(&before, "main-line"), "the user answered \"main-line\". The answer was not passed on"),
    ] {
        let case = killed(&before, "back", "turn_end", Some(&pending));
        case.run(["tell", "something else"]).exit(0);
        let result = case.result("call_1");
        assert_eq!((&result["status"], &result["code"]), (&json!("cancelled"), &json!("cancelled")));
        assert!(result["content"].as_str().unwrap().contains(part), "{result}");
        assert!(!case.exists("calls"));
    }
}

#[test]
fn an_answer_that_a_new_prompt_overtakes_is_told_and_recorded() {
    let case = case("back");
    let asks = reply().call("x__echo", json!({"text": "hi"})).call("x__echo", json!({"text": "ho"}));
    let case = case.script([asks]);
    case.run(["tell", "go"]).exit(11);
    // The second call waits for its turn behind the first, and asks only then.
    let mut pending = answered(&case, "main-line");
    pending["calls"][1]["decision"] = Value::Null;
    let case = killed(&case, "back", "turn_end", Some(&pending));
    case.run(["tell", "something else"]).exit(0);
    assert!(case.result("call_1")["content"].as_str().unwrap().contains("\"main-line\""));
    let records = case.records();
    let decision =
        records.iter().find(|record| record["type"] == "decision" && record["decision"] == "answer").unwrap();
    assert_eq!(
        (&decision["call_id"], &decision["reason"], &decision["auto_decided_by"]["scope"]),
        (&json!("call_1"), &json!("main-line"), &json!("person"))
    );
    case.run(["check"]).exit(0);

    // An answer to the first question is none to the second.
    let before = asked("back-twice").with_unplayed_replies();
    let left = answered(&before, "first");
    before.run(["answer", "first"]).exit(11);
    let case = killed(&before, "back-twice", "call_waiting", Some(&left));
    case.run(["tell", "something else"]).exit(0);
    assert!(case.result("call_1")["content"].as_str().unwrap().contains("got no answer"));
}

#[test]
fn a_server_that_is_gone_when_the_answer_comes_leaves_what_it_did() {
    for config in ["[mcp.x]\ncommand = [\"./no-such-program\"]\n", "# No server any more.\n"] {
        let before = asked("back").with_unplayed_replies();
        let text = fs::read_to_string(before.session_path("main", "conversation.jsonl")).unwrap();
        let left = case("back").config(config).planted_log("main", &text);
        let left = left.planted_pending("main", answered(&before, "main-line").to_string());
        let left = left.script([reply().text("done")]);
        left.run(["resume"]).exit(0);
        let result = left.result("call_1");
        assert_eq!((&result["status"], &result["code"]), (&json!("unknown"), &json!("unknown_outcome")), "{result}");
        assert!(result["content"].as_str().unwrap().contains("What it did before it asked stands"), "{result}");
        assert!(!left.exists("calls"));
    }
}

#[test]
fn what_stands_behind_it_waits() {
    let case = case("back").script([reply().call("x__echo", json!({"text": "hi"})).mark("after")]);
    case.run(["tell", "go"]).exit(11);
    assert_eq!(case.order(), Vec::<String>::new());
    case.server().script([reply().text("done")]);
    case.run(["answer", "main-line"]).exit(0);
    assert_eq!(case.order(), ["after"]);
}

#[test]
fn a_kill_before_anyone_was_asked_loses_nothing() {
    let before = asked("back").with_unplayed_replies();
    let case = killed(&before, "back", "call_waiting", None);
    assert!(!case.run(["status"]).exit(0).stdout_text().contains("unknown"));
    // A summary would stand for a call that is not at its end.
    case.run(["compact"]).exit(17).stderr_contains("asked something back");
    case.run(["resume"]).exit(11);
    assert_eq!(case.pending().unwrap()["calls"][0]["preview"]["round"], 1);
    case.run(["answer", "main-line"]).exit(0);
    assert_eq!(calls(&case).len(), 1);
    assert!(case.result("call_1")["content"].as_str().unwrap().contains("'main-line'"));

    // A new prompt goes another way.
    let case = killed(&before, "back", "call_waiting", None);
    case.run(["tell", "something else"]).exit(0);
    assert_eq!(case.result("call_1")["status"], "cancelled");
}

#[test]
fn a_kill_before_the_second_question_was_put_takes_no_answer_for_it() {
    let before = asked("back-twice").with_unplayed_replies();
    let left = answered(&before, "first");
    before.run(["answer", "first"]).exit(11);
    let case = killed(&before, "back-twice", "call_waiting", Some(&left));
    case.run(["resume"]).exit(11);
    assert_eq!(case.pending().unwrap()["calls"][0]["preview"]["round"], 2);
    case.run(["answer", "second"]).exit(0);
    assert!(case.result("call_1")["content"].as_str().unwrap().contains("'second'"));
    assert_eq!(calls(&case).len(), 1);
}

#[test]
fn an_answer_that_was_recorded_and_not_sent_is_sent() {
    let before = asked("back").with_unplayed_replies();
    let case = killed(&before, "back", "turn_end", Some(&answered(&before, "main-line")));
    case.run(["resume"]).exit(0);
    assert!(case.result("call_1")["content"].as_str().unwrap().contains("'main-line'"));
}

#[test]
fn a_kill_after_the_answer_was_sent_is_unknown() {
    let before = asked("back");
    let left = answered(&before, "main-line");
    before.run(["answer", "main-line"]).exit(0);
    let case = killed(&before, "back", "tool_start", Some(&left));
    case.run(["resume"]).exit(0);
    assert_eq!(case.result("call_1")["status"], "unknown");
    assert!(!case.exists("calls"), "it is not called again");
}

#[test]
fn a_server_that_dies_with_the_answer_is_unknown() {
    let case = asked("back-dies");
    case.run(["answer", "main-line"]).exit(0);
    let result = case.result("call_1");
    assert_eq!((&result["status"], &result["code"]), (&json!("unknown"), &json!("unknown_outcome")));
}

#[test]
fn what_nobody_can_answer_is_a_result() {
    for (mode, part) in [("back-busy", "done"), ("back-sampling", "asks in mid-call for sampling/createMessage")] {
        let case = case(mode).script([reply().call("x__echo", json!({"text": "hi"})), reply().text("done")]);
        case.run(["tell", "go"]).exit(0);
        let content = case.result("call_1")["content"].clone();
        assert!(content.as_str().unwrap().contains(part), "{mode}: {content}");
    }
    for (on_ask, exit_code, status) in [("deny", 0, "denied"), ("fail", 11, "cancelled")] {
        let asks = reply().call("x__echo", json!({"text": "hi"}));
        let replies = if exit_code == 0 { vec![asks, reply().text("done")] } else { vec![asks] };
        let case = case("back").script(replies);
        case.run(["tell", "--on-ask", on_ask, "go"]).exit(exit_code);
        assert_eq!(case.result("call_1")["status"], status);
    }
}

#[test]
fn operations_behind_one_that_asks_are_held() {
    let more = "[tools.x__echo]\nfan_out = true\n";
    let ops = json!({"ops": [{"text": "a"}, {"text": "b"}]});
    let case = case_with("back", more).script([reply().call("x__echo", ops)]);
    case.run(["tell", "go"]).exit(11);
    assert_eq!(calls(&case).len(), 1);
    let pending: Vec<(Value, Value)> = case.pending().unwrap()["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["operation"].clone(), call["needs"].clone()))
        .collect();
    assert_eq!(pending, [(json!(1), json!("answer")), (json!(2), json!("nothing"))]);
    case.server().script([reply().text("done")]);
    case.run(["answer", "call_1#1", "one-1"]).exit(11);
    case.run(["answer", "two-2"]).exit(0);
    let content = case.result("call_1")["content"].as_str().unwrap().to_owned();
    assert!(content.contains("'one-1'") && content.contains("'two-2'"), "{content}");
    assert_eq!(calls(&case).len(), 4);
}
