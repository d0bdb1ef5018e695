//! The options of a turn: what becomes of calls that ask, which rules count and how long, which model is asked, and what
//! a continuation takes over from the turn's start.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, mark, mark_rule, reply};

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n").rules([mark_rule("x", true)])
}

fn decision_scope(case: &Case, call_id: &str) -> String {
    let records = case.records();
    let found = records.iter().find(|record| record["type"] == "decision" && record["call_id"] == call_id);
    let found = found.unwrap_or_else(|| panic!("no decision on {call_id}"));
    found["auto_decided_by"]["scope"].as_str().unwrap().to_owned()
}

#[test]
fn on_ask_deny_denies_what_would_ask_and_goes_on() {
    let case = case().script([reply().mark("a").mark("x").read("a.txt"), reply().mark("b"), reply().text("done")]);
    case.run(["tell", "go", "--on-ask", "deny"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["x"]);
    assert_eq!((case.outcome_of("call_1").0.as_str(), case.outcome_of("call_4").0.as_str()), ("denied", "denied"));
    assert_eq!(case.outcome_of("call_3").0, "ok");
    assert_eq!(decision_scope(&case, "call_1"), "command_line");
    assert_eq!(case.pending(), None);
}

#[test]
fn on_ask_fail_cancels_what_would_ask_and_all_behind_it() {
    let script = reply().mark("x").mark("a").read("a.txt").mark("x").call("unknown", json!({})).mark("b");
    let case = case().script([script]);
    let ended = case.run(["--output", "json", "tell", "go", "--on-ask", "fail"]).exit(10);
    let outcome = ended.json();
    assert_eq!(outcome["status"], "awaiting_approval");
    assert_eq!((&outcome["pending"], &outcome["digest"]), (&json!([]), &json!(null)));
    for letter in ["a", "b"] {
        ended.stderr_contains(&mark_rule(letter, true).to_string());
    }
    ended.stderr_lacks(&mark_rule("x", true).to_string());
    assert_eq!(case.order(), ["x"]);
    for number in 2..=6 {
        let id = format!("call_{number}");
        assert_eq!((case.outcome_of(&id).0.as_str(), case.outcome_of(&id).1.as_str()), ("cancelled", "would_ask"));
    }
    assert_eq!(case.pending(), None);
    case.run(["approve"]).exit(3);
    case.server().script([reply().text("done")]);
    case.run(["resume"]).exit(0);
}

#[test]
fn what_becomes_of_asking_calls_holds_for_the_turn_unless_an_option_says_otherwise() {
    let case = case().script([reply().mark("a"), reply().mark("b"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "--on-ask", "deny"]).exit(0);
    assert_eq!(case.order(), ["a"]);
    let case = self::case().script([reply().error(400, "no")]);
    case.run(["tell", "go", "--on-ask", "deny"]).exit(13);
    case.server().script([reply().mark("a"), reply().text("done")]);
    case.run(["resume"]).exit(0);
    assert_eq!(case.outcome_of("call_1").0, "denied");
}

#[test]
fn read_only_offers_tools_without_side_effects_alone() {
    let case = case().script([reply().mark("x").create("new.txt", "1").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go", "--read-only"]).exit(0);
    assert!(case.order().is_empty() && !case.exists("new.txt"));
    assert_eq!((case.outcome_of("call_1").0.as_str(), case.outcome_of("call_2").0.as_str()), ("denied", "denied"));
    assert_eq!(case.outcome_of("call_3").0, "ok");
    let request = case.server().last_request();
    let names = request.tool_names();
    assert!(names.contains(&"read") && names.contains(&"search"), "{names:?}");
    assert!(!names.contains(&"patch") && !names.contains(&"command"), "{names:?}");
}

#[test]
fn read_only_holds_for_the_whole_turn() {
    let case = case().script([reply().error(400, "no")]);
    case.run(["tell", "go", "--read-only"]).exit(13);
    case.server().script([reply().mark("x"), reply().text("done"), reply().mark("x"), reply().text("done")]);
    case.run(["resume"]).exit(0);
    assert!(case.order().is_empty());
    case.server().allow_changed_prefix();
    case.run(["tell", "now"]).exit(0);
    assert_eq!(case.order(), ["x"]);
}

#[test]
fn rules_on_the_command_line_count_in_the_order_typed() {
    let all = "command:sh mark.sh";
    let one = "command:sh mark.sh a";
    let json_rule = json!({"type": "command", "args": mark("a")}).to_string();
    for (options, marks, a_status) in [
        (&["--deny", all, "--allow", one][..], &["a"][..], "ok"),
        (&["--allow", one, "--deny", all], &[], "denied"),
        (&["--allow", all, "--deny", one], &["x"], "denied"),
        (&["--deny", all, "--allow", &json_rule], &["a"], "ok"),
        (&["--allow", "tool:comm*"], &["x", "a"], "ok"),
        (&["--allow", "tool:command", "--deny", "tool:*"], &[], "denied"),
    ] {
        let case = case().script([reply().mark("x").mark("a"), reply().text("done")]);
        case.run(["tell", "go"].iter().chain(options)).exit(0);
        assert_eq!(case.order(), marks, "{options:?}");
        assert_eq!(case.outcome_of("call_2").0, a_status, "{options:?}");
        assert_eq!(decision_scope(&case, "call_2"), "command_line");
    }
}

#[test]
fn a_rule_that_does_not_parse_is_a_usage_error() {
    let case = case();
    for rule in ["", "command", "cmd:ls", "command:", "{\"type\":\"command\"}", "{", "command:'open"] {
        for option in ["--allow", "--deny"] {
            case.run(["tell", "go", option, rule]).exit(2).stdout("");
        }
    }
    assert!(!case.exists(".attini/sessions"));
}

#[test]
fn allow_counts_for_one_invocation() {
    let case = case().script([reply().mark("b").mark("a").mark("b"), reply().mark("b")]);
    case.run(["tell", "go", "--allow", "command:sh mark.sh b"]).exit(10);
    assert_eq!(case.order(), ["b"]);
    case.run(["approve"]).exit(10);
    assert_eq!(case.order(), ["b", "a"], "the carried call asks by now");
    case.run(["approve"]).exit(10);
    assert_eq!(case.order(), ["b", "a", "b"]);
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0);
}

#[test]
fn deny_counts_for_the_whole_turn() {
    let case = case().script([reply().mark("a"), reply().mark("x"), reply().text("done")]);
    case.run(["tell", "go", "--deny", "command:sh mark.sh x"]).exit(10);
    let settings = case.records()[1]["settings"].clone();
    assert_eq!(settings["deny"], json!([{"type": "command", "allow": false, "args_prefix": mark("x")}]));
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["a"]);
    assert_eq!(case.outcome_of("call_2").0, "denied");
    case.server().script([reply().mark("x"), reply().text("done")]);
    case.run(["tell", "and now"]).exit(0);
    assert_eq!(case.order(), ["a", "x"]);
}

fn asked_model(case: &Case) -> String {
    case.server().last_request().body["model"].as_str().unwrap().to_owned()
}

#[test]
fn the_model_is_chosen_by_precedence() {
    let case = Case::new().unset("ATTINI_MODEL").script((0..8).map(|_| reply().text("done")).collect::<Vec<_>>());
    case.run(["tell", "go"]).exit(0);
    let default = asked_model(&case);
    assert!(!default.is_empty() && default != "user-model", "{default}");
    let case = case.user_config("model = \"openai/user-model\"\n");
    case.run(["-s", "two", "tell", "go"]).exit(0);
    assert_eq!(asked_model(&case), "user-model");
    case.write(".attini/config.toml", "model = \"openai/workspace-model\"\n");
    case.run(["-s", "three", "tell", "go"]).exit(0);
    assert_eq!(asked_model(&case), "workspace-model");
    case.run(["-s", "two", "tell", "go"]).exit(0);
    assert_eq!(asked_model(&case), "user-model", "what the session used last beats config");
    case.attini(["-s", "two", "tell", "go"]).env("ATTINI_MODEL", "openai/env-model").run().exit(0);
    assert_eq!(asked_model(&case), "env-model");
    case.attini(["-s", "two", "tell", "go", "-m", "openai/option/model"])
        .env("ATTINI_MODEL", "openai/env-model")
        .run()
        .exit(0);
    assert_eq!(asked_model(&case), "option/model");
    case.attini(["-s", "two", "tell", "go"]).env("ATTINI_MODEL", "").run().exit(0);
    assert_eq!(asked_model(&case), "option/model", "an empty variable counts as unset");
    case.server().allow_unplayed_replies();
}

#[test]
fn what_a_continuation_was_told_to_ask_is_what_the_session_used_last() {
    let case = case().unset("ATTINI_MODEL").script([reply().mark("a"), reply().text("done"), reply().text("done")]);
    case.run(["tell", "go", "-m", "openai/one"]).exit(10);
    case.run(["approve", "-m", "openai/two"]).exit(0);
    assert_eq!(asked_model(&case), "two");
    case.run(["tell", "and now"]).exit(0);
    assert_eq!(asked_model(&case), "two");
}

#[test]
fn a_continuation_uses_what_its_turn_was_started_with() {
    let case = case().file("system.md", "Speak like a sailor.\n").script([
        reply().mark("a"),
        reply().mark("b"),
        reply().text("done"),
    ]);
    let options = ["-m", "openai/one", "--temperature", "0.5", "--max-tokens", "99", "--reasoning-effort", "low"];
    case.run(["tell", "go", "--system", "system.md"].iter().chain(&options)).exit(10);
    fs::remove_file(case.path("system.md")).unwrap();
    case.write(".attini/config.toml", "model = \"openai/other\"\ninstructions = [\"a.txt\"]\n");
    case.attini(["approve"]).env("ATTINI_MODEL", "openai/env-model").run().exit(10);
    case.run(["deny"]).exit(0);
    let requests = case.server().requests();
    let settings = |body: &Value| {
        ["model", "temperature", "max_tokens", "max_completion_tokens", "reasoning_effort"].map(|key| body[key].clone())
    };
    let first = settings(&requests[0].body);
    assert_eq!((&first[0], &first[1], &first[4]), (&json!("one"), &json!(0.5), &json!("low")));
    assert!(first[2] == 99 || first[3] == 99, "{first:?}");
    for request in &requests {
        assert_eq!(settings(&request.body), first);
        assert_eq!(request.system(), requests[0].system());
    }
    assert!(requests[0].system().contains("Speak like a sailor."));
}

#[test]
fn an_explicit_option_beats_what_the_turn_was_started_with() {
    let case = case()
        .file("system.md", "Speak like a sailor.\n")
        .file("other.md", "Speak like a lawyer.\n")
        .script([reply().mark("a"), reply().text("done")]);
    case.server().allow_changed_prefix();
    case.server().allow_rewritten_history();
    case.run(["tell", "go", "-m", "openai/one", "--temperature", "0.5", "--system", "system.md"]).exit(10);
    case.run(["approve", "-m", "openai/two", "--temperature", "1", "--system", "other.md"]).exit(0);
    let request = case.server().last_request();
    assert_eq!((&request.body["model"], &request.body["temperature"]), (&json!("two"), &json!(1.0)));
    assert!(request.system().contains("lawyer") && !request.system().contains("sailor"));
}

#[test]
fn the_commands_time_out_is_recorded_with_the_turn() {
    let case = case().file("long.sh", "sleep 60\n").script([reply().command(&["sh", "long.sh"]), reply().text("done")]);
    case.run(["tell", "go", "--command-timeout", "1"]).exit(10);
    case.run(["approve"]).exit(0);
    assert_eq!(case.outcome_of("call_1").1, "timeout");
}

#[test]
fn the_dispatch_settings_are_recorded_with_the_turn() {
    let case = case()
        .config("[dispatch]\ntrailing_reads = \"strand\"\n")
        .script([reply().mark("x"), reply().error(400, "no")]);
    case.run(["tell", "go"]).exit(13);
    case.write(".attini/config.toml", "[dispatch]\ntrailing_reads = \"carry\"\n");
    case.server().script([reply().mark("a").read("a.txt"), reply().text("done")]);
    case.run(["resume"]).exit(10);
    assert_eq!(case.pending_calls().len(), 1);
    case.run(["approve"]).exit(0);
    assert_eq!(case.outcome_of("call_3").0, "cancelled");
}

#[test]
fn what_the_environment_says_counts_unless_an_option_says_otherwise() {
    let case = case().script([reply().text("one"), reply().text("two").starts_history(), reply().text("three")]);
    let object =
        case.attini(["tell", "go"]).env("ATTINI_OUTPUT", "json").env("ATTINI_SESSION", "other").run().exit(0).json();
    assert_eq!((&object["session"], &object["text"]), (&json!("other"), &json!("one")));
    let other = case.attini(["--output", "text", "-s", "main", "tell", "go"]);
    other.env("ATTINI_OUTPUT", "json").env("ATTINI_SESSION", "other").run().exit(0).stdout("two\n");
    fs::create_dir(case.path("below")).unwrap();
    let below = case.attini(["tell", "go"]).current_folder("below").env("ATTINI_WORKSPACE", "..");
    below.run().exit(0).stdout("three\n");
    assert_eq!(case.records().iter().filter(|record| record["type"] == "user").count(), 2);
    assert!(!case.exists("below/.attini"));
}

#[test]
fn the_prompt_comes_from_the_argument_or_from_stdin() {
    let case = case().script((0..4).map(|_| reply().text("done")).collect::<Vec<_>>());
    let asked = || case.server().last_request().last_user_text().unwrap();
    case.run(["tell", "the argument"]).exit(0);
    assert_eq!(asked(), "the argument", "stdin is not read");
    case.attini(["tell"]).stdin("from stdin\n").run().exit(0);
    assert_eq!(asked().trim_end(), "from stdin");
    case.attini(["tell", "-"]).stdin("from stdin, too").run().exit(0);
    assert_eq!(asked(), "from stdin, too");
    case.attini(["tell", "look at this", "--stdin"]).stdin("some data\n").run().exit(0);
    assert!(asked().starts_with("look at this\n") && asked().contains("some data"));
    let large = "x".repeat(1024 * 1024 + 1);
    case.attini(["tell"]).stdin(&large).run().exit(2);
    case.attini(["tell"]).stdin(" \n").run().exit(2);
    case.attini(["tell"]).stdin([0xff, 0xfe]).run().exit(2);
    assert_eq!(case.records().iter().filter(|record| record["type"] == "user").count(), 4);
}
