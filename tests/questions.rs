//! Questions of the model to a person: they wait like calls that ask, are answered one by one, and the answer is the
//! call's result, once.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, OPENAI_KEY, json_lines, mark_rule, pending_digest, reply};

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n").rules([mark_rule("x", true)])
}

/// One question with choices.
fn asked() -> Case {
    let case = case().script([reply().ask("Which database?", &["sqlite", "postgres", "1"])]);
    case.run(["tell", "go"]).exit(11).stdout("");
    case
}

/// A command and a question.
fn mixed() -> Case {
    let case = case().script([reply().mark("a").ask("Why?", &[])]);
    case.run(["tell", "go"]).exit(10);
    case
}

fn files(case: &Case) -> [Vec<u8>; 2] {
    ["conversation.jsonl", "pending.json"].map(|name| fs::read(case.session_path("main", name)).unwrap_or_default())
}

#[track_caller]
fn assert_unchanged(case: &Case, arguments: &[&str], code: i32) {
    let before = files(case);
    case.run(arguments).exit(code).stdout("");
    assert!(before == files(case), "{arguments:?} changed the session's files");
}

fn decisions(case: &Case) -> Vec<String> {
    case.pending_calls().into_iter().map(|call| call.2).collect()
}

#[test]
fn a_question_suspends_the_turn_and_its_answer_is_the_result() {
    let case = case().script([reply().text("Let me ask.").ask("Which database?\nIt stays.", &["sqlite", "postgres"])]);
    let outcome = case.run(["--output", "events", "tell", "go"]).exit(11);
    let shown = json!({
        "id": "call_1",
        "name": "ask_user",
        "summary": "Which database? It stays.",
        "needs": "answer",
        "why": null,
        "decision": null,
        "preview": {"kind": "question", "question": "Which database?\nIt stays.", "choices": ["sqlite", "postgres"]},
        "grant": null,
    });
    let events = outcome.events();
    let (awaiting, result) = (&events[events.len() - 2], &events[events.len() - 1]);
    assert_eq!((&awaiting["type"], &awaiting["pending"]), (&json!("awaiting"), &json!([shown])));
    assert_eq!((&result["status"], &result["pending"]), (&json!("awaiting_answer"), &json!([shown])));
    assert_eq!(result["text"], "Let me ask.");
    let block = "\
call_1 (ask_user): Which database? It stays.
  ? Which database?
  ? It stays.
  1) sqlite
  2) postgres

To go on, type one of:
  attini answer call_1 '...'
  attini deny call_1 --reason '...'
";
    outcome.stderr_contains(block);
    case.run(["status"]).exit(0).stdout_contains(block).stdout_contains("waits for 1 answer");
    let pending = case.pending().unwrap();
    assert_eq!((&pending["status"], &pending["calls"][0]["needs"]), (&json!("awaiting_answer"), &json!("answer")));
    case.server().script([reply().text("done")]);
    case.run(["answer", "call_1", "postgres, as before"]).exit(0).stdout("done\n");
    assert_eq!(case.server().last_request().result("call_1"), "postgres, as before");
    let result = case.result("call_1");
    assert_eq!((&result["status"], &result["code"]), (&json!("ok"), &json!("answered")));
    let types = case.record_types();
    assert!(!types.contains(&"tool_start".to_owned()), "a question has no effects");
    let records = case.records();
    let decision = records.iter().find(|record| record["type"] == "decision").unwrap();
    assert_eq!((&decision["decision"], &decision["auto_decided_by"]["scope"]), (&json!("answer"), &json!("person")));
    assert_eq!(case.pending(), None);
}

#[test]
fn a_choice_is_named_by_its_text_or_its_number_and_any_other_answer_is_free() {
    for (typed, told) in [
        ("2", "postgres"),
        (" 2 ", "postgres"),
        ("1", "1"),
        ("sqlite", "sqlite"),
        ("-1", "-1"),
        ("2.", "2."),
        ("Sqlite, but\nin memory\n", "Sqlite, but\nin memory"),
    ] {
        let case = asked();
        case.server().script([reply().text("done")]);
        case.run(["answer", "call_1", "--", typed]).exit(0);
        assert_eq!(case.server().last_request().result("call_1"), told, "{typed:?}");
    }
}

#[test]
fn a_number_that_no_choice_has_is_refused_but_from_stdin() {
    let case = asked();
    for typed in ["4", "0", "99999999999999999999999"] {
        case.run(["answer", typed]).exit(2).stderr_contains("the choices are 1 to 3");
    }
    assert_eq!(case.pending().unwrap()["calls"][0]["decision"], json!(null));
    case.server().script([reply().text("done")]);
    case.attini(["answer", "call_1", "-"]).stdin("4\n").run().exit(0);
    assert_eq!(case.server().last_request().result("call_1"), "4");
}

#[test]
fn an_answer_may_come_from_stdin() {
    let case = asked();
    case.attini(["answer", "-"]).stdin(b"\xff").run().exit(2).stderr_contains("not UTF-8");
    case.attini(["answer", "-"]).stdin(" \n").run().exit(2).stderr_contains("empty");
    let long = "x".repeat(1024 * 1024 + 1);
    case.attini(["answer", "-"]).stdin(&long).run().exit(2).stderr_contains("longer than 1048576 bytes");
    case.run(["answer", ""]).exit(2);
    assert_eq!(decisions(&case), ["-"]);
    case.server().script([reply().text("done")]);
    case.attini(["answer", "-"]).stdin("two\nlines\n").run().exit(0);
    assert_eq!(case.result("call_1")["content"], "two\nlines");
}

#[test]
fn approve_never_answers_a_question_and_deny_does() {
    let case = asked();
    assert_unchanged(&case, &["approve"], 11);
    assert_unchanged(&case, &["resume"], 11);
    assert_unchanged(&case, &["approve", "call_1"], 2);
    assert_unchanged(&case, &["approve", "call_1", "--grant", "session"], 2);
    case.server().script([reply().text("done")]);
    case.run(["deny", "--reason", "find out yourself"]).exit(0);
    let result = case.result("call_1");
    assert_eq!(result["status"], "denied");
    assert!(result["content"].as_str().unwrap().starts_with("The user did not answer: find out yourself\nnext: "));
}

#[test]
fn questions_and_approvals_of_one_reply_are_decided_in_any_order() {
    let case = mixed();
    assert_eq!(case.pending().unwrap()["status"], "awaiting_approval");
    case.run(["answer", "because"]).exit(10).stderr_contains("attini approve");
    assert_eq!(decisions(&case), ["-", "answer"]);
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0).stdout("done\n");
    assert_eq!((case.order(), case.result("call_2")["content"].as_str()), (vec!["a".to_owned()], Some("because")));

    let case = mixed();
    let outcome = case.run(["--output", "json", "approve"]).exit(11).json();
    assert_eq!(outcome["status"], "awaiting_answer");
    assert_unchanged(&case, &["approve"], 11);
    assert_unchanged(&case, &["resume"], 11);
    case.server().script([reply().text("done")]);
    case.run(["answer", "because"]).exit(0);
    assert_eq!(case.order(), ["a"]);

    let case = mixed();
    case.server().script([reply().text("done")]);
    case.run(["answer", "because"]).exit(10);
    case.run(["deny"]).exit(0);
    assert_eq!((case.outcome_of("call_1").0.as_str(), case.outcome_of("call_2").0.as_str()), ("denied", "ok"));
}

#[test]
fn what_stands_behind_a_question_waits_for_its_answer() {
    let case = case().script([reply().read("a.txt").ask("?", &[]).mark("x").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(11);
    assert!(case.order().is_empty());
    let needs: Vec<String> = case.pending_calls().into_iter().map(|call| call.1).collect();
    assert_eq!(needs, ["answer", "nothing", "nothing"]);
    assert_unchanged(&case, &["answer", "call_3", "yes"], 2);
    case.run(["answer", "yes"]).exit(0);
    assert_eq!(case.order(), ["x"]);

    let case = self::case().script([reply().ask("?", &[]).mark("x").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(11);
    case.run(["deny"]).exit(0);
    assert!(case.order().is_empty());
    assert_eq!(case.outcome_of("call_2").1, "earlier_call_denied");
    assert_eq!(case.outcome_of("call_3").0, "ok");
}

#[test]
fn with_several_open_questions_an_answer_must_name_its_own() {
    let case = case().script([reply().ask("One?", &[]).ask("Two?", &["yes", "no"]), reply().text("done")]);
    case.run(["tell", "go"]).exit(11).stderr_contains("attini answer call_2 '...'").stderr_contains("attini review");
    case.run(["answer", "yes"]).exit(2).stderr_contains("open are call_1, call_2");
    assert_unchanged(&case, &["answer", "yes"], 2);
    assert_unchanged(&case, &["answer", "call_2"], 2);
    assert_unchanged(&case, &["answer", "call_9", "yes"], 3);
    case.run(["answer", "call_2", "2"]).exit(11);
    assert_unchanged(&case, &["answer", "call_2", "no"], 11);
    assert_unchanged(&case, &["answer", "call_2", "2"], 11);
    assert_unchanged(&case, &["answer", "call_2", "yes"], 17);
    assert_unchanged(&case, &["deny", "call_2"], 17);
    assert_unchanged(&case, &["approve", "call_2"], 2);
    case.run(["answer", "one"]).exit(0).stdout("done\n");
    assert_eq!(case.result("call_1")["content"], "one");
    assert_eq!(case.result("call_2")["content"], "no");
}

#[test]
fn a_decision_of_the_wrong_kind_is_refused() {
    let case = mixed();
    assert_unchanged(&case, &["answer", "call_1", "yes"], 2);
    assert_unchanged(&case, &["approve", "call_2"], 2);
    assert_unchanged(&case, &["approve", "call_1", "call_2"], 2);
    assert_unchanged(&case, &["answer", "call_2", "yes", "--if-digest", "sha256:0"], 17);
    case.run(["deny", "call_2"]).exit(10);
    assert_unchanged(&case, &["answer", "call_2", "yes"], 17);
    case.run(["answer", "yes"]).exit(3).stderr_contains("no question is open");
    let digest = case.pending().unwrap()["digest"].as_str().unwrap().to_owned();
    case.server().script([reply().text("done")]);
    case.run(["approve", "--if-digest", &digest]).exit(0);
}

/// A session in which all is decided and nothing carried out: what a kill right after the answer leaves.
fn answered() -> Case {
    let case = mixed();
    let mut pending = case.pending().unwrap();
    pending["calls"][0]["decision"] = json!("approve");
    pending["calls"][1]["decision"] = json!("answer");
    pending["calls"][1]["answer"] = json!("because");
    case.server().script([reply().text("done")]);
    case.planted_pending("main", pending.to_string())
}

#[test]
fn once_all_is_decided_the_same_answer_resume_and_approve_carry_it_out() {
    for arguments in [&["answer", "call_2", "because"][..], &["resume"], &["approve"], &["approve", "call_1"]] {
        let case = answered();
        case.run(arguments).exit(0).stdout("done\n");
        assert_eq!((case.order(), case.result("call_2")["content"].as_str()), (vec!["a".to_owned()], Some("because")));
    }
    let case = answered();
    case.server().allow_unplayed_replies();
    case.run(["answer", "because"]).exit(3).stderr_contains("attini resume");
    assert_unchanged(&case, &["answer", "because"], 3);
    assert_unchanged(&case, &["answer", "call_2", "other"], 17);
    assert_unchanged(&case, &["deny", "call_2"], 17);
    assert_unchanged(&case, &["deny"], 3);
}

#[test]
fn a_recorded_answer_becomes_the_result_when_a_new_prompt_drops_the_rest() {
    let case = answered();
    case.run(["tell", "something else"]).exit(0);
    assert!(case.order().is_empty());
    assert_eq!((case.outcome_of("call_1").0.as_str(), case.outcome_of("call_2").0.as_str()), ("cancelled", "ok"));
    assert_eq!(case.server().last_request().result("call_2"), "because");
    let case = asked();
    case.server().script([reply().text("done")]);
    case.run(["tell", "something else"]).exit(0);
    assert_eq!(case.outcome_of("call_1").0, "cancelled");
}

#[test]
fn after_a_kill_behind_any_record_each_answer_is_given_once() {
    let script = || [reply().mark("a").ask("One?", &[]).ask("Two?", &["yes", "no"]).mark("b"), reply().text("done")];
    let whole = case().script(script());
    whole.run(["tell", "go"]).exit(10);
    let suspended_at = whole.records().len();
    whole.run(["approve", "call_1", "call_4"]).exit(11);
    whole.run(["answer", "call_2", "one"]).exit(11);
    let mut pending = whole.pending().unwrap();
    pending["calls"][2]["decision"] = json!("answer");
    pending["calls"][2]["answer"] = json!("no");
    whole.run(["answer", "2"]).exit(0);
    let records = whole.records();
    let last_result = records.iter().rposition(|record| record["type"] == "tool_result").unwrap();
    for count in suspended_at..=last_result {
        let case = case()
            .planted_log("main", json_lines(records[..count].iter().cloned()))
            .planted_pending("main", pending.to_string())
            .script([reply().text("done")]);
        case.run(["resume"]).exit(0).stdout("done\n");
        assert_eq!(case.result("call_2")["content"], "one", "after record {count}");
        assert_eq!(case.result("call_3")["content"], "no", "after record {count}");
        let request = case.server().last_request();
        assert_eq!(request.results().len(), 4, "after record {count}");
    }
}

#[test]
fn rules_and_config_can_deny_a_question_and_none_can_answer_it() {
    let deny = json!({"type": "tool", "allow": false, "name": "ask_user"});
    let case = Case::new().rules([deny]).script([reply().ask("?", &[]), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    assert_eq!(case.outcome_of("call_1").0, "denied");

    let hidden =
        Case::new().config("[tools.ask_user]\nrun = \"deny\"\n").script([reply().ask("?", &[]), reply().text("done")]);
    hidden.run(["tell", "go"]).exit(0);
    assert_eq!(hidden.outcome_of("call_1").0, "denied");
    assert!(!hidden.server().last_request().tool_names().contains(&"ask_user"));

    let allow = json!({"type": "tool", "allow": true, "name": "*"});
    for config in ["[tools.ask_user]\nrun = \"allow\"\n", "[tools.ask_user]\nrun = \"ask\"\n"] {
        let case = Case::new().rules([allow.clone()]).config(config).script([reply().ask("?", &[])]);
        case.run(["tell", "go"]).exit(11);
        assert_eq!(case.pending().unwrap()["calls"][0]["grant"], Value::Null);
    }
}

#[test]
fn unattended_a_question_is_denied_or_ends_the_turn() {
    let case = case().script([reply().ask("?", &[]).mark("x"), reply().text("done")]);
    case.run(["tell", "go", "--on-ask", "deny"]).exit(0);
    assert_eq!(case.outcome_of("call_1").0, "denied");
    assert!(case.outcome_of("call_1").2.contains("only a person can answer it"));
    assert_eq!(case.order(), ["x"]);
    for (asking, code, status) in [
        (reply().ask("?", &[]).mark("x"), 11, "awaiting_answer"),
        (reply().ask("?", &[]).mark("a"), 10, "awaiting_approval"),
        (reply().mark("a").ask("?", &[]), 10, "awaiting_approval"),
    ] {
        let case = self::case().script([asking]);
        let outcome = case.run(["--output", "json", "tell", "go", "--on-ask", "fail"]).exit(code);
        let object = outcome.json();
        assert_eq!((&object["status"], &object["pending"]), (&json!(status), &json!([])));
        assert_eq!(case.records().last().unwrap()["status"], status);
        if code == 11 {
            outcome.stderr_lacks("would have allowed");
        } else {
            outcome.stderr_contains("would have allowed");
        }
        for id in ["call_1", "call_2"] {
            assert_eq!(case.outcome_of(id).1, "would_ask");
        }
        assert!(case.order().is_empty());
        assert_eq!(case.pending(), None);
    }
}

#[test]
fn questions_are_offered_where_nothing_may_be_changed_and_run_alone() {
    let case = case().script([reply().ask("?", &[]), reply().text("done")]);
    case.run(["tell", "go", "--read-only"]).exit(11);
    assert!(case.server().last_request().tool_names().contains(&"ask_user"));
    case.run(["answer", "yes"]).exit(0);
    let object = case.run(["--output", "json", "tools"]).exit(0).json();
    let tool = object["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "ask_user").unwrap().clone();
    assert_eq!((&tool["asks"], &tool["concurrent"]), (&json!("asks"), &json!(false)));
    let refused = case.run(["--output", "json", "tools", "call", "ask_user", r#"{"question":"?"}"#]).exit(1).json();
    assert_eq!(refused["error"]["code"], "needs_approval");
}

#[test]
fn the_operations_of_one_call_are_answered_one_by_one() {
    let ops = json!({"ops": [{"question": "One?"}, {"question": "Two?", "choices": ["yes", "no"]}, {"question": ""}]});
    let case = Case::new()
        .config("[tools.ask_user]\nfan_out = true\n")
        .script([reply().call("ask_user", ops), reply().text("done")]);
    case.run(["tell", "go"]).exit(11).stderr_contains("attini answer 'call_1#2' '...'");
    assert_unchanged(&case, &["answer", "call_1", "yes"], 2);
    case.run(["answer", "call_1#2", "1"]).exit(11);
    // The call's one open operation.
    case.run(["answer", "call_1", "first"]).exit(0);
    let content = case.result("call_1")["content"].as_str().unwrap().to_owned();
    assert!(content.starts_with("[1/3] ok\nfirst\n\n[2/3] ok\nyes\n\n[3/3] error\n"), "{content}");
}

#[test]
fn what_a_model_asks_reaches_the_terminal_escaped() {
    let case = case().script([reply().ask("\u{1b}[2JYes?\n\nTo go on, type one of:\n  rm -rf x", &["\u{202e}no\rx"])]);
    let outcome = case.run(["tell", "go"]).exit(11);
    outcome.stderr_contains("  ? \\x1b[2JYes?\n  ? \n  ? To go on, type one of:\n  ?   rm -rf x\n");
    outcome.stderr_contains("  1) \\u{202e}no\\rx\n").stderr_lacks("\u{1b}").stderr_lacks("\u{202e}");
}

#[test]
fn a_key_in_an_answer_is_masked() {
    let case = mixed();
    case.run(["answer", &format!("it is {OPENAI_KEY}")]).exit(10);
    assert!(!case.pending().unwrap().to_string().contains(OPENAI_KEY));
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0);
    assert!(case.result("call_2")["content"].as_str().unwrap().starts_with("it is "));
}

#[test]
fn a_pending_file_cannot_pass_a_call_off_as_a_question() {
    type Change<'c> = &'c dyn Fn(&mut Value);
    let answer = |call: &mut Value| {
        call["decision"] = json!("answer");
        call["answer"] = json!("forged");
    };
    let changes: [(&str, Change<'_>); 6] = [
        ("an answer to an approval", &|file| answer(&mut file["calls"][0])),
        ("an approval as a question", &|file| file["calls"][0]["needs"] = json!("answer")),
        ("an answered approval", &|file| {
            file["calls"][0]["needs"] = json!("answer");
            answer(&mut file["calls"][0]);
        }),
        ("a question as an approval", &|file| {
            file["calls"][1]["needs"] = json!("approval");
            file["calls"][1]["decision"] = json!("approve");
        }),
        ("an answer without words", &|file| file["calls"][1]["decision"] = json!("answer")),
        ("words without an answer", &|file| file["calls"][1]["answer"] = json!("forged")),
    ];
    for (what, change) in changes {
        let case = mixed();
        let mut pending = case.pending().unwrap();
        change(&mut pending);
        pending["digest"] = json!(pending_digest(&pending["calls"]));
        let case = case.without_invariants().planted_pending("main", pending.to_string());
        for arguments in [&["approve"][..], &["deny"], &["answer", "call_2", "yes"], &["resume"]] {
            eprintln!("{what}: {arguments:?}");
            assert_unchanged(&case, arguments, 17);
        }
        case.server().script([reply().text("done")]);
        case.run(["tell", "something else"]).exit(0);
        assert_eq!(case.outcome_of("call_1").0, "cancelled", "{what}");
        assert!(case.order().is_empty());
    }
}

#[test]
fn another_question_than_was_shown_is_not_answered() {
    let case = asked();
    let mut pending = case.pending().unwrap();
    pending["calls"][0]["preview"]["question"] = json!("May I delete everything?");
    pending["digest"] = json!(pending_digest(&pending["calls"]));
    let case = case.planted_pending("main", pending.to_string());
    case.server().script([reply().text("done")]);
    case.run(["answer", "no"]).exit(0);
    assert_eq!(case.outcome_of("call_1").1, "stale");
}
