//! What happens to a reply that holds a call which must ask: what runs before it, what waits behind it, and what
//! becomes of it all once a person has decided.

use serde_json::{Value, json};

use crate::support::{Case, OPENAI_KEY, mark_rule, reply};

const CARRY: &str = "[dispatch]\ntrailing_reads = \"carry\"\n";
const STRAND: &str = "[dispatch]\ntrailing_reads = \"strand\"\n";

/// A workspace whose marks `x`, `y` and `z` run unasked, and all others ask.
fn case(config: &str) -> Case {
    let rules = ["x", "y", "z"].map(|letter| mark_rule(letter, true));
    Case::new().marks().file("a.txt", "alpha\n").file("b.txt", "beta\n").config(config).rules(rules)
}

fn triple(id: &str, needs: &str, decision: &str) -> (String, String, String) {
    (id.to_owned(), needs.to_owned(), decision.to_owned())
}

#[track_caller]
fn assert_outcome(case: &Case, call_id: &str, status: &str, code: &str) {
    let (found_status, found_code, content) = case.outcome_of(call_id);
    assert_eq!((found_status.as_str(), found_code.as_str()), (status, code), "{call_id}: {content}");
}

/// The ids of the calls that have a result, in the order of the log.
fn answered(case: &Case) -> Vec<String> {
    let records = case.records();
    let results = records.iter().filter(|record| record["type"] == "tool_result");
    results.map(|record| record["call_id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The ids that a log's records of one type name, in order.
fn named_by(case: &Case, record_type: &str) -> Vec<String> {
    let records = case.records();
    let found = records.iter().filter(|record| record["type"] == record_type);
    found.map(|record| record["call_id"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn two_that_ask_are_parked_and_decided_together() {
    for config in [CARRY, STRAND] {
        let case = case(config).script([reply().mark("a").mark("b"), reply().text("done")]);
        let outcome = case.run(["--output", "json", "tell", "go"]).exit(10).json();
        assert_eq!(outcome["status"], "awaiting_approval");
        assert_eq!(case.pending_calls(), [triple("call_1", "approval", "-"), triple("call_2", "approval", "-")]);
        assert!(case.order().is_empty() && answered(&case).is_empty());
        case.run(["approve"]).exit(0).stdout("done\n");
        assert_eq!(case.order(), ["a", "b"]);
        assert_eq!(answered(&case), ["call_1", "call_2"]);
        assert_eq!(case.pending(), None);
        assert_eq!(case.server().request_count(), 2, "one request carries all results");
    }
}

#[test]
fn a_read_behind_one_that_asks_is_carried_and_runs_after_the_decision_in_place() {
    let case = case(CARRY).script([reply().mark("a").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    assert_eq!(case.pending_calls(), [triple("call_1", "approval", "-"), triple("call_2", "nothing", "-")]);
    assert!(answered(&case).is_empty());
    case.write("a.txt", "changed since\n");
    case.run(["approve"]).exit(0);
    assert_eq!(answered(&case), ["call_1", "call_2"]);
    assert!(case.server().last_request().result("call_2").contains("changed since"));
}

#[test]
fn a_read_behind_one_that_asks_is_stranded_and_repaired() {
    let case = case(STRAND).script([reply().mark("a").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    assert_eq!(case.pending_calls(), [triple("call_1", "approval", "-")]);
    case.run(["approve"]).exit(0);
    assert_outcome(&case, "call_1", "ok", "");
    assert_outcome(&case, "call_2", "cancelled", "cancelled");
    let repaired = case.result("call_2");
    assert_eq!(repaired["reason"], "unanswered_tool_call_repair");
    assert_eq!(repaired["auto_decided_by"]["scope"], "repair");
    assert!(!case.server().last_request().result("call_2").contains("alpha"));
}

#[test]
fn a_read_before_one_that_asks_runs_now() {
    for config in [CARRY, STRAND] {
        let case = case(config).script([reply().read("a.txt").mark("a"), reply().text("done")]);
        case.run(["tell", "go"]).exit(10);
        assert_eq!(answered(&case), ["call_1"]);
        assert_outcome(&case, "call_1", "ok", "");
        assert_eq!(case.pending_calls(), [triple("call_2", "approval", "-")]);
        case.run(["approve"]).exit(0);
        assert_eq!(answered(&case), ["call_1", "call_2"]);
    }
}

#[test]
fn two_reads_both_run() {
    for config in [CARRY, STRAND] {
        let case = case(config).script([reply().read("a.txt").read("b.txt"), reply().text("done")]);
        case.run(["tell", "go"]).exit(0);
        let request = case.server().last_request();
        assert!(request.result("call_1").contains("alpha") && request.result("call_2").contains("beta"));
    }
}

#[test]
fn an_allowed_side_effect_behind_one_that_asks_is_carried() {
    let case = case(CARRY).script([reply().mark("a").mark("x").read("order"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let expected =
        [triple("call_1", "approval", "-"), triple("call_2", "nothing", "-"), triple("call_3", "nothing", "-")];
    assert_eq!(case.pending_calls(), expected);
    assert!(case.order().is_empty(), "nothing behind the flag runs");
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["a", "x"]);
    let seen = case.server().last_request().result("call_3");
    assert!(seen.contains("1\ta\n") && seen.contains("2\tx"), "the carried read sees what ran before it: {seen}");
}

#[test]
fn an_allowed_side_effect_behind_one_that_asks_is_left_and_repaired_in_strand_mode() {
    let case = case(STRAND).script([reply().mark("a").mark("x"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    assert_eq!(case.pending_calls(), [triple("call_1", "approval", "-")]);
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["a"]);
    assert_outcome(&case, "call_2", "cancelled", "cancelled");
}

// A call that was stranded between two approved ones kept the second from running.
#[test]
fn what_was_approved_behind_a_stranded_call_runs() {
    let script = [reply().mark("a").read("a.txt").mark("b").mark("x").mark("c"), reply().text("done")];
    let case = case(STRAND).script(script);
    case.run(["tell", "go"]).exit(10);
    let parked = ["call_1", "call_3", "call_5"].map(|id| triple(id, "approval", "-"));
    assert_eq!(case.pending_calls(), parked);
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["a", "b", "c"]);
    for (id, status) in [("call_1", "ok"), ("call_2", "cancelled"), ("call_3", "ok"), ("call_4", "cancelled")] {
        assert_eq!(case.result(id)["status"], status, "{id}");
    }
    let numbers: Vec<String> = case.server().last_request().results().into_iter().map(|(id, _)| id).collect();
    assert_eq!(numbers, ["call_1", "call_2", "call_3", "call_4", "call_5"], "sent in call order");
}

#[test]
fn side_effects_keep_the_order_the_model_wrote() {
    let script =
        [reply().mark("x").mark("a").mark("y").mark("b").mark("z").mark("c"), reply().mark("x"), reply().text("done")];
    let case = case(CARRY).script(script);
    case.run(["tell", "go"]).exit(10);
    assert_eq!(case.order(), ["x"], "what stands before the flag runs at once");
    // Decided in another order than written.
    case.run(["approve", "call_6"]).exit(10);
    case.run(["approve", "call_2"]).exit(10);
    assert_eq!(case.order(), ["x"]);
    case.run(["approve", "call_4"]).exit(0);
    assert_eq!(case.order(), ["x", "a", "y", "b", "z", "c", "x"]);
    assert_eq!(named_by(&case, "tool_start"), ["call_1", "call_2", "call_3", "call_4", "call_5", "call_6", "call_7"]);
}

#[test]
fn calls_behind_the_flag_that_need_no_execution_are_answered_at_once() {
    for config in [CARRY, STRAND] {
        let script = [
            reply()
                .mark("a")
                .call("read", json!({"pth": "a.txt"}))
                .call("reed", json!({"path": "a.txt"}))
                .mark("n")
                .raw_call("raw", "read", "not json")
                .mark("b"),
            reply().text("done"),
        ];
        let rules = json!({"type": "command", "allow": false, "args": ["sh", "mark.sh", "n"]});
        let case = case(config).user_rules([rules]).script(script);
        case.run(["tell", "go"]).exit(10);
        assert_outcome(&case, "call_2", "error", "invalid_arguments");
        assert_outcome(&case, "call_3", "error", "unknown_tool");
        assert_outcome(&case, "call_4", "denied", "denied");
        assert_outcome(&case, "raw", "error", "invalid_arguments");
        assert_eq!(case.pending_calls()[0], triple("call_1", "approval", "-"));
        let parked: Vec<String> =
            case.pending_calls().into_iter().filter(|call| call.1 == "approval").map(|call| call.0).collect();
        assert_eq!(parked, ["call_1", "call_5"]);
        case.run(["approve"]).exit(0);
        assert_eq!(case.order(), ["a", "b"]);
    }
}

#[test]
fn a_carried_call_that_is_denied_by_now_is_denied() {
    let case = case(CARRY).script([reply().mark("a").mark("x").mark("y"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let rules = [mark_rule("x", true), mark_rule("y", true), mark_rule("x", false)];
    let rules = rules.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    case.write(".attini/permissions.jsonl", rules);
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["a", "y"]);
    assert_outcome(&case, "call_2", "denied", "denied");
    assert_outcome(&case, "call_3", "ok", "");
}

#[test]
fn a_carried_call_that_asks_by_now_is_parked_again_and_what_was_approved_behind_it_stays_so() {
    let case = case(CARRY).script([reply().mark("a").mark("x").mark("b").read("order"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let first = case.pending().unwrap();
    case.write(".attini/permissions.jsonl", "");
    let outcome = case.run(["--output", "json", "approve"]).exit(10).json();
    assert_eq!(case.order(), ["a"]);
    let expected =
        [triple("call_2", "approval", "-"), triple("call_3", "approval", "approve"), triple("call_4", "nothing", "-")];
    assert_eq!(case.pending_calls(), expected);
    let second = case.pending().unwrap();
    assert_ne!(first["digest"], second["digest"]);
    assert_eq!(outcome["digest"], second["digest"]);
    case.run(["approve", "call_2", "--if-digest", first["digest"].as_str().unwrap()]).exit(17);
    case.run(["approve", "call_2"]).exit(0);
    assert_eq!(case.order(), ["a", "x", "b"]);
    assert!(case.server().last_request().result("call_4").contains("3\tb"));
    assert_eq!(named_by(&case, "decision"), ["call_1", "call_2", "call_3"]);
}

#[test]
fn after_a_denial_carried_reads_run_and_carried_side_effects_are_cancelled() {
    let script = [reply().mark("a").read("a.txt").mark("x").mark("b").mark("y"), reply().text("done")];
    let case = case(CARRY).script(script);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_4"]).exit(10);
    case.run(["deny", "call_1", "--reason", "not like that"]).exit(0);
    assert_eq!(case.order(), ["b"], "what a person approved by name runs");
    assert_outcome(&case, "call_1", "denied", "denied");
    assert_outcome(&case, "call_2", "ok", "");
    assert_outcome(&case, "call_3", "cancelled", "earlier_call_denied");
    assert_outcome(&case, "call_5", "cancelled", "earlier_call_denied");
    assert_eq!(answered(&case), ["call_1", "call_2", "call_3", "call_4", "call_5"]);
}

#[test]
fn carried_side_effects_before_the_denied_call_run() {
    let case = case(CARRY).script([reply().mark("a").mark("x").mark("b").mark("y"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1"]).exit(10);
    case.run(["deny", "call_3"]).exit(0);
    assert_eq!(case.order(), ["a", "x"]);
    assert_outcome(&case, "call_4", "cancelled", "earlier_call_denied");
}

/// In a suspended reply nothing is left to chance after a denial that was carried out before a second suspension.
#[test]
fn a_denial_counts_for_what_is_behind_it_also_after_it_was_parked_again() {
    let case = case(CARRY).script([reply().mark("a").read("../outside").mark("x"), reply().text("done")]);
    let allow = json!({"type": "read", "allow": true, "path": "../outside"});
    let case = case.rules([mark_rule("x", true), allow]);
    std::fs::write(case.path("../outside"), "beyond\n").unwrap();
    case.run(["tell", "go"]).exit(10);
    let needs: Vec<String> = case.pending_calls().into_iter().map(|call| call.1).collect();
    assert_eq!(needs, ["approval", "nothing", "nothing"]);
    case.write(".attini/permissions.jsonl", format!("{}\n", mark_rule("x", true)));
    case.run(["deny"]).exit(10);
    assert_outcome(&case, "call_1", "denied", "denied");
    assert_eq!(case.pending_calls()[0], triple("call_2", "approval", "-"));
    case.run(["approve"]).exit(0);
    assert!(case.server().last_request().result("call_2").contains("beyond"));
    assert_outcome(&case, "call_3", "cancelled", "earlier_call_denied");
    assert!(case.order().is_empty());
}

#[test]
fn previews_are_made_after_what_runs_now_has_run() {
    let case = case(CARRY)
        .file("grow.sh", "printf 'two\\n' >> new.txt\n")
        .file("new.txt", "one\n")
        .rules([json!({"type": "command", "allow": true, "args": ["sh", "grow.sh"]})])
        .script([
            reply().command(&["sh", "grow.sh"]).replace("new.txt", "one\ntwo\n", "three\n"),
            reply().text("done"),
        ]);
    case.run(["tell", "go"]).exit(10);
    let pending = case.pending().unwrap();
    let diff = pending["calls"][0]["preview"]["diff"].as_str().unwrap().to_owned();
    assert!(diff.contains("-one\n-two\n+three\n"), "{diff}");
    case.run(["approve"]).exit(0);
    assert_eq!(case.read("new.txt"), "three\n");
}

#[test]
fn a_call_that_no_longer_applies_gets_its_error_instead_of_being_parked() {
    let case = case(CARRY)
        .file("empty.sh", ": > new.txt\n")
        .file("new.txt", "one\n")
        .rules([json!({"type": "command", "allow": true, "args": ["sh", "empty.sh"]})])
        .script([reply().command(&["sh", "empty.sh"]).replace("new.txt", "one", "two"), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    assert_outcome(&case, "call_2", "error", "patch_mismatch");
}

#[test]
fn stacked_patches_are_shown_and_written_on_top_of_each_other() {
    let case = case(CARRY).script([
        reply().replace("a.txt", "alpha", "one").replace("a.txt", "one", "two").read("a.txt"),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(10);
    let pending = case.pending().unwrap();
    let diff = |index: usize| pending["calls"][index]["preview"]["diff"].as_str().unwrap().to_owned();
    assert!(diff(0).contains("-alpha\n+one\n") && diff(1).contains("-one\n+two\n"), "{}{}", diff(0), diff(1));
    assert_eq!(
        pending["calls"][0]["preview"]["files"][0]["sha256_after"],
        pending["calls"][1]["preview"]["files"][0]["sha256_before"]
    );
    case.run(["approve"]).exit(0);
    assert_eq!(case.read("a.txt"), "two\n");
    assert!(case.server().last_request().result("call_3").contains("1\ttwo"));
}

#[test]
fn denying_a_patch_makes_those_stacked_on_it_stale_at_once() {
    let script = [
        reply()
            .replace("a.txt", "alpha", "one")
            .replace("a.txt", "one", "two")
            .replace("b.txt", "beta", "three")
            .replace("a.txt", "two", "four"),
        reply().text("done"),
    ];
    let case = case(CARRY).script(script);
    case.run(["tell", "go"]).exit(10);
    case.run(["deny", "call_1"]).exit(10);
    let expected = [
        triple("call_1", "approval", "deny"),
        triple("call_2", "approval", "stale"),
        triple("call_3", "approval", "-"),
        triple("call_4", "approval", "stale"),
    ];
    assert_eq!(case.pending_calls(), expected);
    case.run(["approve", "call_2"]).exit(17);
    case.run(["approve"]).exit(0);
    assert_eq!((case.read("a.txt").as_str(), case.read("b.txt").as_str()), ("alpha\n", "three\n"));
    assert_outcome(&case, "call_1", "denied", "denied");
    assert_outcome(&case, "call_2", "error", "stale");
    assert_outcome(&case, "call_3", "ok", "");
    assert_outcome(&case, "call_4", "error", "stale");
}

#[test]
fn a_patch_approved_before_the_one_it_stands_on_was_denied_is_stale_too() {
    let script = [reply().replace("a.txt", "alpha", "one").replace("a.txt", "one", "two"), reply().text("done")];
    let case = case(CARRY).script(script);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_2"]).exit(10);
    case.run(["deny", "call_1"]).exit(0);
    assert_eq!(case.read("a.txt"), "alpha\n");
    assert_outcome(&case, "call_2", "error", "stale");
    assert!(case.result("call_2")["content"].as_str().unwrap().contains("a.txt"), "{}", case.result("call_2"));
}

#[test]
fn a_file_changed_between_preview_and_approval_is_not_written() {
    let edits = json!({"edits": [
        {"path": "b.txt", "before": "beta", "after": "two"},
        {"path": "a.txt", "before": "alpha", "after": "one"},
    ]});
    let case = case(CARRY).script([reply().call("patch", edits), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.write("a.txt", "alpha\nand a line of a person's own\n");
    case.run(["approve"]).exit(0);
    assert_eq!(case.read("a.txt"), "alpha\nand a line of a person's own\n");
    assert_eq!(case.read("b.txt"), "beta\n", "nothing of the patch is written");
    assert_outcome(&case, "call_1", "error", "stale");
    let told = case.server().last_request().result("call_1");
    assert!(told.contains("a.txt") && told.contains("next: "), "{told}");
}

#[test]
fn a_file_that_a_command_in_between_touched_is_stale() {
    let case = case(CARRY)
        .file("touch.sh", "echo more >> a.txt\n")
        .script([reply().command(&["sh", "touch.sh"]).replace("a.txt", "alpha", "one"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve"]).exit(0);
    assert_eq!(case.read("a.txt"), "alpha\nmore\n");
    assert_outcome(&case, "call_2", "error", "stale");
}

#[test]
fn a_file_made_where_a_patch_would_make_one_is_kept() {
    let case = case(CARRY).script([reply().create("new.txt", "attini's\n"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.write("new.txt", "a person's\n");
    case.run(["approve"]).exit(0);
    assert_eq!(case.read("new.txt"), "a person's\n");
    assert_outcome(&case, "call_1", "error", "stale");
}

#[test]
fn an_approved_command_runs_exactly_once() {
    let case = case(CARRY).script([reply().mark("a"), reply().text("done"), reply().text("and again")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1"]).exit(0);
    case.run(["approve", "call_1"]).exit(3);
    case.run(["approve"]).exit(3);
    case.run(["resume"]).exit(3);
    case.run(["tell", "go on"]).exit(0);
    assert_eq!(case.order(), ["a"]);
    assert_eq!(named_by(&case, "tool_start"), ["call_1"]);
}

#[test]
fn a_reply_may_suspend_again_and_again() {
    let case = case(CARRY).script([reply().mark("a"), reply().mark("b"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let outcome = case.run(["--output", "json", "approve"]).exit(10).json();
    assert_eq!((&outcome["rounds"], &outcome["tool_calls"]), (&json!(2), &json!(2)));
    assert_eq!(case.pending_calls(), [triple("call_2", "approval", "-")]);
    case.run(["deny"]).exit(0);
    assert_eq!(case.order(), ["a"]);
}

#[test]
fn the_system_prompt_says_what_the_mode_needs() {
    let system = |config: &str| {
        let case = case(config).script([reply().text("done")]);
        case.run(["tell", "go"]).exit(0);
        case.server().last_request().system()
    };
    let (carry, strand) = (system(CARRY), system(STRAND));
    assert!(carry.contains("# Tool call batching") && strand.contains("# Tool call batching"));
    assert_ne!(carry, strand);
    let note = |text: &str| text.split("# Tool call batching").nth(1).unwrap().to_owned();
    assert!(note(&strand).contains("cancelled"), "{strand}");
    assert!(!note(&carry).contains("cancelled"), "{carry}");
}

#[test]
fn records_stand_in_the_order_that_recovery_relies_on() {
    let case = case(CARRY).script([reply().mark("x").mark("a").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let expected = ["session", "user", "assistant", "decision", "tool_start", "tool_result", "turn_end"];
    assert_eq!(case.record_types(), expected);
    let end = |case: &Case| case.records().last().unwrap()["status"].clone();
    assert_eq!(end(&case), "awaiting_approval");
    case.run(["approve"]).exit(0);
    let expected = ["decision", "tool_start", "tool_result", "tool_result", "assistant", "turn_end"];
    assert_eq!(case.record_types()[7..], expected);
    assert_eq!(end(&case), "completed");
    let decision: Value = case.records()[7].clone();
    assert_eq!((&decision["decision"], &decision["auto_decided_by"]["scope"]), (&json!("approve"), &json!("person")));
}

#[test]
fn a_key_in_what_is_shown_is_kept_nowhere_and_what_was_approved_still_counts() {
    let text = format!("before\nkey = {OPENAI_KEY}\nold\n");
    let escaped = OPENAI_KEY.replacen('s', "\\u0073", 1);
    let case = case(CARRY).file("settings", &text).script([
        reply().replace("settings", "old", "new").raw_call(
            "call_echo",
            "command",
            &format!(r#"{{"argv": ["echo", "{escaped}"]}}"#),
        ),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(10);
    let folder = case.session_path("main", "");
    for file in ["pending.json", "conversation.jsonl"] {
        let kept = std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(!kept.contains(OPENAI_KEY) && !kept.contains("\\u0073k-openai"), "{file}: {kept}");
    }
    let pending = case.pending().unwrap();
    let diff = pending["calls"][0]["preview"]["diff"].as_str().unwrap();
    assert!(diff.contains(" key = [OPENAI_API_KEY masked]\n-old\n+new"), "{diff}");
    assert_eq!(pending["calls"][1]["arguments"]["argv"][1], "[OPENAI_API_KEY masked]");
    let digest = pending["digest"].as_str().unwrap();
    case.run(["approve", "--if-digest", digest]).exit(0);
    assert_eq!(case.read("settings"), text.replace("old", "new"));
    assert_outcome(&case, "call_1", "ok", "");
    let echoed = case.result("call_echo")["content"].clone();
    assert!(echoed.as_str().unwrap().contains("[OPENAI_API_KEY masked]"), "{echoed}");
}
