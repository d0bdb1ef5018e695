//! What a turn may use up: rounds, calls, time, the length of a reply and of results; and that a turn which met a limit
//! goes on with fresh ones.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Case, Latch, mark_rule, reply};

/// A workspace in which the marks `x`, `y` and `z` run unasked.
fn case() -> Case {
    let rules = ["x", "y", "z"].map(|letter| mark_rule(letter, true));
    Case::new().marks().file("a.txt", "alpha\n").rules(rules)
}

fn allow(case: Case, argv: &[&str]) -> Case {
    case.rules([json!({"type": "command", "allow": true, "args": argv})])
}

/// The last `turn_end`: status and which limit.
fn end(case: &Case) -> (Value, Value) {
    let records = case.records();
    let last = records.last().unwrap();
    assert_eq!(last["type"], "turn_end");
    (last["status"].clone(), last["limit"].clone())
}

fn reached(limit: &str) -> (Value, Value) {
    (json!("limit_reached"), json!(limit))
}

#[test]
fn a_turn_ends_with_its_rounds_and_goes_on_with_as_many_again() {
    let case = case().script([reply().mark("x"), reply().mark("y")]);
    let outcome = case.run(["--output", "json", "tell", "go", "--max-rounds", "2"]).exit(14).json();
    assert_eq!((&outcome["status"], &outcome["rounds"]), (&json!("limit_reached"), &json!(2)));
    assert_eq!(outcome["error"]["retryable"], true);
    assert!(outcome["error"]["hint"].as_str().unwrap().contains("attini resume"));
    assert_eq!(case.order(), ["x", "y"], "the last round's calls are run");
    assert_eq!(end(&case), reached("rounds"));
    case.server().script([reply().mark("z"), reply().mark("x")]);
    let outcome = case.run(["--output", "json", "resume"]).exit(14).json();
    assert_eq!(outcome["rounds"], 4, "of the whole turn");
    case.server().script([reply().text("done")]);
    case.run(["resume", "--max-rounds", "1"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["x", "y", "z", "x"]);
}

#[test]
fn rounds_count_over_all_invocations_of_a_turn() {
    let case = case().script([reply().mark("a"), reply().mark("x")]);
    case.run(["tell", "go", "--max-rounds", "2"]).exit(10);
    case.run(["approve"]).exit(14);
    assert_eq!(case.order(), ["a", "x"]);
    case.server().script([reply().text("done"), reply().text("new"), reply().text("more")]);
    case.run(["resume"]).exit(0);
    case.run(["tell", "and now", "--max-rounds", "1"]).exit(0);
    case.run(["tell", "and now"]).exit(0);
}

#[test]
fn an_answer_in_the_last_round_ends_the_turn_well() {
    let case = case().script([reply().mark("x"), reply().text("done")]);
    case.run(["tell", "go", "--max-rounds", "2"]).exit(0).stdout("done\n");
}

#[test]
fn past_the_turns_calls_the_rest_of_the_reply_is_answered_and_the_turn_ends() {
    let case = case().script([reply().mark("x").mark("y").read("a.txt").mark("a").call("unknown", json!({}))]);
    let outcome = case.run(["--output", "json", "tell", "go", "--max-tool-calls", "1"]).exit(14).json();
    assert_eq!((&outcome["tool_calls"], &outcome["pending"]), (&json!(5), &json!([])));
    assert_eq!(case.order(), ["x"]);
    for id in ["call_2", "call_3", "call_4"] {
        assert_eq!(case.outcome_of(id).1, "turn_limit", "{id}");
    }
    assert_eq!(end(&case), reached("tool_calls"));
    assert_eq!(case.server().request_count(), 1);
    case.server().script([reply().mark("z"), reply().text("done")]);
    case.run(["resume"]).exit(0);
    assert_eq!(case.order(), ["x", "z"]);
}

#[test]
fn every_call_counts_whatever_became_of_it() {
    let case = case().script([reply().call("unknown", json!({})).read("missing"), reply().mark("x").mark("y")]);
    case.run(["tell", "go", "--max-tool-calls", "3"]).exit(14);
    assert_eq!(case.order(), ["x"]);
    assert_eq!(case.outcome_of("call_4").1, "turn_limit");
    let exact = self::case().script([reply().mark("x").mark("y"), reply().text("done")]);
    exact.run(["tell", "go", "--max-tool-calls", "2"]).exit(0);
}

#[test]
fn calls_that_were_shown_are_run_when_they_are_approved() {
    let case = case().script([reply().mark("x").mark("a").mark("y"), reply().text("done")]);
    case.run(["tell", "go", "--max-tool-calls", "3"]).exit(10);
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["x", "a", "y"]);
}

#[test]
fn a_reply_of_too_many_calls_costs_those_past_the_limit_alone() {
    let case = case()
        .config("[limits]\ncalls_per_reply = 2\n")
        .script([reply().mark("x").mark("y").mark("z"), reply().text("done")]);
    case.run(["tell", "go"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["x", "y"]);
    assert_eq!(case.outcome_of("call_3").1, "limit");
    assert!(case.server().last_request().result("call_3").contains("\nnext: "));
}

#[test]
fn time_ends_a_request_that_waits() {
    let latch = Latch::new();
    let case = case().script([reply().mark("x"), reply().text("too late").hold(&latch)]);
    let begun = Instant::now();
    let outcome = case.run(["--output", "json", "tell", "go", "--max-time", "1"]).exit(14).json();
    assert!(begun.elapsed() < Duration::from_secs(20));
    latch.release();
    assert_eq!((&outcome["status"], &outcome["rounds"]), (&json!("limit_reached"), &json!(1)));
    assert_eq!(end(&case), reached("time"));
    case.server().script([reply().text("done")]);
    case.run(["resume"]).exit(0).stdout("done\n");
}

#[test]
fn time_stops_a_command_whose_outcome_is_unknown_then() {
    let case = case().file("long.sh", "echo begun; touch started; sleep 60\n");
    let case = allow(case, &["sh", "long.sh"]).script([reply().command(&["sh", "long.sh"]).read("a.txt").mark("x")]);
    case.run(["tell", "go", "--max-time", "1"]).exit(14);
    assert!(case.exists("started"));
    assert_eq!(case.outcome_of("call_1").0, "unknown");
    assert!(case.result("call_1")["content"].as_str().unwrap().contains("begun"), "with the output so far");
    assert_eq!(
        (case.outcome_of("call_2").0.as_str(), case.outcome_of("call_3").0.as_str()),
        ("cancelled", "cancelled")
    );
    assert_eq!(end(&case), reached("time"));
}

#[test]
fn a_command_that_runs_too_long_fails_and_the_turn_goes_on() {
    let case = case().file("long.sh", "echo begun; sleep 60\n");
    let case = allow(case, &["sh", "long.sh"]).script([reply().command(&["sh", "long.sh"]), reply().text("done")]);
    case.run(["tell", "go", "--command-timeout", "1"]).exit(0).stdout("done\n");
    assert_eq!(case.outcome_of("call_1").1, "timeout");
    let told = case.server().last_request().result("call_1");
    assert!(told.contains("begun") && told.contains("may have taken effect") && told.contains("\nnext: "), "{told}");
}

#[test]
fn a_reply_cut_at_its_length_is_no_answer() {
    let case = case().script([reply().text("the first half").finish("length")]);
    case.run(["tell", "go"]).exit(14).stdout("").stderr_contains("length");
    assert_eq!(end(&case), reached("tokens"));
    case.server().script([reply().text("cut again").finish("length"), reply().text("done")]);
    let outcome = case.run(["--output", "json", "resume"]).exit(14).json();
    let fields = [&outcome["text"], &outcome["finish_reason"]];
    assert_eq!(fields, [&json!("cut again"), &json!("length")]);
    case.run(["resume"]).exit(0).stdout("done\n");
}

#[test]
fn a_reply_cut_within_its_calls_runs_those_that_are_whole() {
    let case = case().script([
        reply().mark("x").raw_call("cut", "command", "{\"argv\": [\"sh\", \"mark.sh\"").finish("length"),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["x"]);
    assert_eq!(case.outcome_of("cut").1, "truncated_reply");
}

#[test]
fn a_long_result_is_shortened_and_kept_whole() {
    let long = (0..4000).map(|number| format!("line {number}")).collect::<Vec<_>>().join("\n") + "\n";
    let case = case().config("[limits]\nresult_bytes = 2048\n").file("long.txt", &long);
    let case = allow(case, &["cat", "long.txt"]).script([reply().command(&["cat", "long.txt"]), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    let told = case.server().last_request().result("call_1");
    assert!(told.len() <= 2048, "{} bytes", told.len());
    assert!(told.contains("line 0\n") && told.contains("line 3999"), "head and tail: {told}");
    let file = case.result("call_1")["output_file"].as_str().unwrap().to_owned();
    assert!(told.contains(&format!("session:{file}")), "{told}");
    let kept = std::fs::read_to_string(case.session_path("main", &file)).unwrap();
    assert!(kept.contains(&long));
}

#[test]
fn the_results_of_one_reply_share_a_limit() {
    let long = "0123456789abcde\n".repeat(2000);
    let reads = (0..8).fold(reply(), |reply, number| reply.read(&format!("{number}.txt")));
    let case = (0..8).fold(case(), |case, number| case.file(&format!("{number}.txt"), &long));
    let case = case
        .config("[limits]\nresult_bytes = 8192\nround_result_bytes = 16384\n")
        .script([reads, reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    let request = case.server().last_request();
    let lengths: Vec<usize> = request.results().iter().map(|(_, text)| text.len()).collect();
    assert_eq!(lengths.len(), 8);
    assert!(lengths.iter().all(|length| (1..=8192).contains(length)), "{lengths:?}");
    // What comes last still says what it is.
    assert!(lengths.iter().sum::<usize>() <= 16384 && lengths.iter().all(|length| *length > 100), "{lengths:?}");
}

#[test]
fn the_results_of_very_many_calls_never_exceed_their_limit() {
    for (calls, config, round_bytes) in [
        (64, "[limits]\nround_result_bytes = 4096\n", 4096),
        (64, "[limits]\nround_result_bytes = 1024\n", 1024),
        (20, "", 131_072),
    ] {
        let long = "0123456789abcde\n".repeat(3000);
        let reply_of = (0..calls).fold(reply(), |reply, number| {
            if number % 2 == 0 {
                reply.command(&["cat", "long.txt"])
            } else {
                reply.read(&format!("missing-{number}.txt"))
            }
        });
        let case = allow(case(), &["cat", "long.txt"]).config(config).file("long.txt", &long);
        let case = case.script([reply_of, reply().text("done")]);
        case.run(["tell", "go"]).exit(0);
        let lengths: Vec<usize> = case.server().last_request().results().iter().map(|(_, text)| text.len()).collect();
        assert_eq!(lengths.len(), calls);
        assert!(lengths.iter().all(|length| *length > 0), "{lengths:?}");
        assert!(lengths.iter().sum::<usize>() <= round_bytes, "{lengths:?}");
    }
}
