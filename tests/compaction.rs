//! Long conversations: older rounds are summarised by the model, in mid-turn too, and everything goes on from there.

use serde_json::{Value, json};

use crate::support::{Case, Latch, Reply, mark_rule, reply};

/// A workspace in which a conversation of 1000 tokens is long, and the marks `x` to `z` run unasked.
fn case() -> Case {
    let rules = ["x", "y", "z"].map(|letter| mark_rule(letter, true));
    Case::new().marks().file("a.txt", "alpha\n").rules(rules).config("[limits]\ncompact_at_tokens = 1000\n")
}

fn summary(text: &str) -> Reply {
    reply().text(text).usage(700, 30, 600).on_the_side()
}

/// A reply that makes the conversation too long.
fn long() -> Reply {
    reply().text(&"many words ".repeat(300)).read("a.txt").usage(1200, 50, 100)
}

fn compacted(case: &Case) -> Vec<Value> {
    case.records().into_iter().filter(|record| record["type"] == "summary").collect()
}

#[test]
fn older_rounds_are_summarised_in_mid_turn_and_the_prompt_stays_whole() {
    for anthropic in [false, true] {
        let case = if anthropic { case().anthropic() } else { case() };
        let case = case.script([
            reply().mark("x").usage(500, 10, 0),
            long(),
            summary("x was marked."),
            reply().mark("y").usage(300, 10, 0).starts_history(),
            reply().text("done").usage(350, 10, 300),
        ]);
        let events = case.run(["--output", "events", "tell", "mark x and y"]).exit(0).events();
        let told: Vec<&Value> = events.iter().filter(|event| event["type"] == "compacted").collect();
        assert_eq!(told.len(), 1);
        assert_eq!((&told[0]["through_turn"], &told[0]["through_round"]), (&json!(1), &json!(2)));
        assert!(told[0]["tokens_before"].as_u64() > Some(1000) && told[0]["tokens_after"].is_u64());
        assert!(!events.iter().any(|event| event["text"] == "x was marked."), "its words are no answer");
        let requests = case.server().requests();
        // The request for it is the conversation as it was sent, with the same tools and one text more.
        let (before, asked, after) = (&requests[1], &requests[2], &requests[3]);
        assert_eq!((before.system(), before.tool_names()), (asked.system(), asked.tool_names()));
        // Cache breakpoints move on.
        let plain =
            |messages: &[Value]| json!(messages).to_string().replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "");
        let sent = before.messages();
        assert_eq!(plain(&asked.messages()[..sent.len()]), plain(sent));
        assert_eq!(asked.results().len(), 2);
        assert_eq!((after.system(), after.tool_names()), (before.system(), before.tool_names()));
        assert_eq!(
            after.messages().iter().filter(|message| message["role"] == "system").count(),
            usize::from(!anthropic)
        );
        assert!(after.results().is_empty(), "what is covered is not sent");
        let text = after.last_user_text().unwrap();
        assert!(text.contains("x was marked.") && text.ends_with("mark x and y"), "{text}");
        assert_eq!(case.order(), ["x", "y"]);
        let result = events.last().unwrap();
        let usage = |input: u64, output: u64, cached: u64| json!({"input_tokens": input, "output_tokens": output, "cached_input_tokens": cached});
        assert_eq!((&result["rounds"], &result["tool_calls"]), (&json!(4), &json!(3)));
        assert_eq!(result["usage"], usage(500 + 1200 + 700 + 300 + 350, 10 + 50 + 30 + 10 + 10, 100 + 600 + 300));
        assert_eq!(result["round_usage"], usage(350, 10, 300));
        assert_eq!(result["session_usage"], result["usage"]);
        let status = case.run(["--output", "json", "status"]).exit(0).json();
        assert_eq!((&status["usage"], &status["session_usage"]), (&result["usage"], &result["usage"]));
        assert_eq!(status["round_usage"], result["round_usage"]);
        // Behind a summary every id says which round it is of.
        assert_eq!(case.outcome_of("call_1_3_1").0, "ok");
        case.run(["check"]).exit(0);
        case.server().script([reply().read("a.txt"), reply().text("yes")]);
        case.run(["tell", "and now"]).exit(0).stdout("yes\n");
        assert_eq!(case.outcome_of("call_2_1_1").0, "ok");
        let sum = case.run(["--output", "json", "status"]).exit(0).json();
        assert_eq!(sum["session_usage"]["input_tokens"], 500 + 1200 + 700 + 300 + 350 + 20);
    }
}

#[test]
fn a_second_summary_stands_on_the_first() {
    let case = case().script([
        long(),
        summary("first"),
        long().starts_history(),
        summary("second"),
        reply().mark("x").starts_history(),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0).stdout("done\n");
    let requests = case.server().requests();
    assert!(requests[3].messages().iter().any(|message| message.to_string().contains("first")));
    let text = requests[4].last_user_text().unwrap();
    assert!(text.contains("second") && !text.contains("first"), "{text}");
    let summaries = compacted(&case);
    let covered: Vec<&Value> = summaries.iter().map(|record| &record["covered"]["totals"]["replies"]).collect();
    assert_eq!(covered, [1, 2]);
    case.run(["check"]).exit(0);
    assert_eq!(case.run(["--output", "json", "status"]).exit(0).json()["rounds"], 4);
}

#[test]
fn recent_rounds_stay_as_they_are() {
    let case = case().script([
        reply().text(&"old words ".repeat(400)).usage(900, 1000, 0),
        summary("old"),
        reply().mark("x").starts_history(),
        reply().text("done"),
    ]);
    case.run(["tell", "the first"]).exit(0);
    case.run(["tell", "the second"]).exit(0).stdout("done\n");
    let request = case.server().requests()[2].clone();
    let text = request.messages().iter().map(|message| message["content"].to_string()).collect::<String>();
    assert!(!text.contains("the first") && text.contains("the second"), "{text}");
    // The file is what it was, and more.
    assert!(case.records().iter().any(|record| record["text"] == "the first"));
    assert_eq!(compacted(&case)[0]["through_turn"], 1);
}

/// As services say it.
const OVERFLOW: &str = "This model's maximum context length is 1000 tokens. However, you requested 2000 tokens.";

#[test]
fn an_overflow_is_mended_by_a_summary_once() {
    let case = case().config("[limits]\ncompact_at_tokens = 100000\n").script([
        reply().mark("x"),
        reply().error(400, OVERFLOW),
        summary("x was marked."),
        reply().text("done").starts_history(),
    ]);
    case.run(["tell", "go"]).exit(0).stdout("done\n");
    let asked = case.server().requests()[2].clone();
    assert!(asked.tool_names().is_empty() && asked.messages().len() == 2, "as one text, which is shorter");
    assert!(asked.last_user_text().unwrap().contains("Call call_1 of command"));
    assert_eq!(case.order(), ["x"]);

    case.server().script([
        reply().mark("y"),
        reply().error(400, OVERFLOW),
        summary("y was marked."),
        reply().error(400, OVERFLOW).starts_history(),
    ]);
    let outcome = case.run(["--output", "json", "tell", "more"]).exit(13).json();
    assert_eq!(outcome["error"]["code"], "context_overflow");
    assert_eq!(compacted(&case).len(), 2);
    // Nothing is left to summarise then.
    case.server().script([reply().error(400, OVERFLOW)]);
    let outcome = case.run(["--output", "json", "resume"]).exit(13).json();
    assert_eq!(outcome["error"]["code"], "context_overflow");
    assert!(outcome["error"]["hint"].as_str().unwrap().contains("nothing left to summarise"), "{outcome}");
    case.server().script([reply().text("done")]);
    case.run(["resume"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["x", "y"]);
}

#[test]
fn a_prompt_that_was_too_long_spoils_no_later_one() {
    let case = case().config("[limits]\ncompact_at_tokens = 100000\n").script([reply().error(400, OVERFLOW)]);
    let first = case.run(["--output", "json", "tell", &"many words ".repeat(2000)]).exit(13).json();
    assert_eq!(first["error"]["code"], "context_overflow");
    assert!(first["error"]["hint"].as_str().unwrap().contains("a shorter prompt"), "{first}");
    // How much the model takes is not known, so that even the text of it may be too long at first.
    case.server().script([
        reply().error(400, OVERFLOW),
        reply().error(400, OVERFLOW).on_the_side(),
        summary("The user sent many words."),
        reply().text("done").starts_history(),
    ]);
    case.run(["tell", "short"]).exit(0).stdout("done\n");
    let lengths: Vec<usize> =
        case.server().requests()[2..4].iter().map(|asked| asked.last_user_text().unwrap().len()).collect();
    assert!(lengths[1] < lengths[0], "{lengths:?}");
    case.run(["check"]).exit(0);
}

#[test]
fn a_summary_is_not_held_to_the_length_of_replies() {
    let case = case().script([long(), summary("s"), reply().text("done").starts_history()]);
    case.run(["tell", "go", "--max-tokens", "40"]).exit(0);
    let limits: Vec<Value> =
        case.server().requests().iter().map(|asked| asked.body["max_completion_tokens"].clone()).collect();
    assert_eq!(limits, [json!(40), json!(2048), json!(40)]);
}

#[test]
fn a_summary_that_fails_costs_nothing() {
    // It was a precaution: the turn goes on, and the next invocation asks again.
    let refused = || reply().error(401, "no").on_the_side();
    let case = case().script([long(), refused(), refused(), reply().read("a.txt").usage(1300, 5, 0), long()]);
    let ended = case.run(["--output", "json", "tell", "go", "--max-rounds", "3"]).exit(14);
    ended.stderr_contains("older rounds are not summarised: openai answered with HTTP status 401");
    assert_eq!(case.server().requests().len(), 5, "asked for once");
    assert!(compacted(&case).is_empty());
    // One without words is asked for as a text, and there are none then either.
    let silent = || reply().call("read", json!({"path": "a.txt"})).on_the_side();
    case.server().script([silent(), silent(), reply().text("done")]);
    case.run(["resume"]).exit(0).stdout("done\n").stderr_contains("sent no text");
    assert!(compacted(&case).is_empty());
    case.run(["check"]).exit(0);
}

#[test]
fn a_summary_longer_than_what_it_stands_for_is_none() {
    let case = case().script([long(), summary(&"words ".repeat(4000)), reply().text("done")]);
    case.run(["tell", "go"]).exit(0).stdout("done\n").stderr_contains("more than what the summary would stand for");
    assert!(compacted(&case).is_empty());
}

#[test]
fn what_the_model_has_not_seen_is_not_summarised() {
    let case = case()
        .file("b.txt", "old words here\n".repeat(1500))
        .file("c.txt", "new words here\n".repeat(1500))
        .config("[limits]\ncompact_at_tokens = 16000\n")
        .script([
            reply().read("b.txt").usage(3000, 50, 0),
            reply().read("c.txt").usage(12000, 50, 0),
            summary("b.txt was read."),
            reply().text("done").starts_history(),
        ]);
    case.run(["tell", "go"]).exit(0).stdout("done\n");
    let sent = case.server().last_request().body.to_string();
    assert!(sent.contains("new words here") && !sent.contains("old words"), "{sent}");
    assert_eq!(compacted(&case).len(), 1);
    case.run(["check"]).exit(0);
}

#[test]
fn a_kill_while_the_summary_is_written_loses_nothing() {
    let latch = Latch::new();
    let case = case().script([long(), summary("never seen").hold(&latch)]).with_unplayed_replies();
    let running = case.start(["tell", "go"]);
    case.server().wait_requests(2);
    running.signal(9);
    running.wait().killed_by(9);
    latch.release();
    assert!(compacted(&case).is_empty());
    case.server().script([summary("read it"), reply().text("done").starts_history()]);
    case.run(["resume"]).exit(0).stdout("done\n");

    // A record that was not written whole is cut off, and what came before counts.
    let path = case.session_path("main", "conversation.jsonl");
    let log = std::fs::read_to_string(&path).unwrap();
    let at = log.find("{\"type\":\"summary\"").unwrap();
    for torn in [1, 18, 100] {
        let case = self::case().planted_log("main", &log[..at + torn]);
        case.server().script([summary("again"), reply().text("done").starts_history()]);
        case.run(["resume"]).exit(0).stdout("done\n").stderr_contains("not written whole");
        case.run(["check"]).exit(0);
    }
}

#[test]
fn an_interrupt_ends_the_request_for_a_summary() {
    let latch = Latch::new();
    let case = case().script([long(), summary("never seen").hold(&latch)]);
    let running = case.start(["--output", "json", "tell", "go"]);
    case.server().wait_requests(2);
    running.signal(2);
    let outcome = running.wait().exit(130).json();
    latch.release();
    assert_eq!(outcome["status"], "interrupted");
    assert!(compacted(&case).is_empty());
}

#[test]
fn compact_summarises_when_it_is_told_to() {
    let case = Case::new().file("a.txt", "alpha\n");
    case.run(["compact"]).exit(3);
    case.server().script([
        reply().read("a.txt"),
        reply().text("It says alpha. ".repeat(20).trim()),
        summary("a.txt says alpha."),
        reply().text("still alpha").starts_history(),
    ]);
    case.run(["tell", "what is in a.txt?"]).exit(0);
    let told = case.run(["--output", "json", "compact"]).exit(0).json();
    assert_eq!((&told["type"], &told["through_turn"]), (&json!("compact"), &json!(1)));
    assert_eq!(told["summary"], "a.txt says alpha.");
    case.run(["compact"]).exit(3);
    case.run(["tell", "still?"]).exit(0).stdout("still alpha\n");
    let text = case.server().last_request().last_user_text().unwrap();
    assert!(text.contains("a.txt says alpha.") && text.ends_with("still?"), "{text}");
    assert!(!text.contains("what is in a.txt?"), "that turn is over");
    case.run(["check"]).exit(0);
}

#[test]
fn compact_leaves_alone_what_a_person_is_to_decide() {
    let case = case().script([reply().mark("a"), summary("a was marked"), reply().text("done").starts_history()]);
    case.run(["tell", "go"]).exit(10);
    let log = std::fs::read(case.session_path("main", "conversation.jsonl")).unwrap();
    case.run(["compact"]).exit(17).stderr_contains("wait for a decision");
    assert_eq!(std::fs::read(case.session_path("main", "conversation.jsonl")).unwrap(), log);
    // An unfinished turn in which nothing is pending is closed first, and goes on afterwards.
    std::fs::remove_file(case.session_path("main", "pending.json")).unwrap();
    case.run(["compact"]).exit(0);
    assert_eq!(case.outcome_of("call_1").0, "cancelled");
    case.run(["resume"]).exit(0).stdout("done\n");
    assert!(case.server().last_request().last_user_text().unwrap().ends_with("go"), "its prompt is sent whole");
}

#[test]
fn a_summary_keeps_what_attini_wrote_and_what_can_be_undone() {
    let patch = json!({"edits": [{"path": "a.txt", "before": "alpha", "after": "beta"}]});
    let case = case().rules([json!({"type": "write", "allow": true, "path": "a.txt"})]).script([
        reply().call("patch", patch),
        reply().text("patched"),
        summary("a.txt was patched"),
    ]);
    case.run(["tell", "go"]).exit(0);
    case.run(["compact"]).exit(0);
    assert_eq!(case.read("a.txt"), "beta\n");
    case.run(["undo"]).exit(0);
    assert_eq!(case.read("a.txt"), "alpha\n");
    case.run(["check"]).exit(0);
}

#[test]
fn a_summary_that_lies_is_found() {
    let case = case().script([long(), summary("s"), reply().text("done").starts_history()]);
    case.run(["tell", "go"]).exit(0);
    let log = std::fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap();
    let offset = compacted(&case)[0]["through_offset"].as_u64().unwrap();
    let change = |from: &str, to: &str| {
        assert!(log.contains(from), "{from}: {log}");
        log.replace(from, to)
    };
    let at = |offset: u64| change(&compacted_offset(&log), &format!("\"through_offset\":{offset},"));
    for (broken, loads) in [
        (at(offset + 1), false),
        (at(offset - 1), false),
        (at(0), false),
        (at(9_999_999), false),
        (change("\"replies\":1", "\"replies\":7"), true),
        (change("\"through_round\":1", "\"through_round\":2"), true),
        (change("\"turn_open\":true", "\"turn_open\":false"), true),
    ] {
        let case = self::case().planted_log("main", &broken).without_invariants();
        let found = case.run(["--output", "json", "check"]).exit(16).json();
        assert_eq!(
            found["violations"][0]["line"].as_u64(),
            log.lines().position(|line| line.contains("\"summary\"")).map(|line| line as u64 + 1)
        );
        case.run(["status"]).exit(if loads { 0 } else { 16 });
    }
}

fn compacted_offset(log: &str) -> String {
    let at = log.find("\"through_offset\"").unwrap();
    let end = log[at..].find(',').unwrap();
    log[at..=at + end].to_owned()
}

#[test]
fn a_fork_goes_on_from_the_summary() {
    let case = case().script([
        long(),
        summary("first"),
        long().starts_history(),
        summary("second"),
        reply().text("done").starts_history(),
        reply().text("in the fork").starts_history(),
    ]);
    case.run(["tell", "go"]).exit(0);
    case.run(["sessions", "fork", "main", "other"]).exit(0);
    case.run(["-s", "other", "check"]).exit(0);
    case.run(["-s", "other", "tell", "more"]).exit(0).stdout("in the fork\n");
    assert!(case.server().last_request().messages().iter().any(|message| message.to_string().contains("second")));
}
