//! What stands on stdout and stderr, to the byte: text off a terminal, one object with json, one a line with events; and
//! that nothing is told before it is on disk, and nothing recorded is lost with the reader.

use std::fs;
use std::io::Read;

use serde_json::{Value, json};

use crate::support::{Case, Latch, Outcome, mark_rule, reply};

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n").rules([mark_rule("x", true)])
}

/// How long something took differs from run to run.
fn without_durations(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once(" (") {
        Some((start, end)) if end.ends_with(" ms)") || end.ends_with(" s)") => format!("{start} (TIME)\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[track_caller]
fn assert_stderr(outcome: &Outcome, expected: &str) {
    crate::support::assert_text_eq("stderr", expected, &without_durations(&outcome.stderr_text()));
}

#[test]
fn text_off_a_terminal_is_the_answer_alone_and_progress_goes_to_stderr() {
    let case = case().script([
        reply().text("I look first.").read("a.txt").mark("x").call("reed", json!({})),
        reply().text("The answer,\nin two lines.\n\n\n"),
    ]);
    let outcome = case.run(["tell", "go"]).exit(0);
    outcome.stdout("The answer,\nin two lines.\n");
    assert_stderr(
        &outcome,
        "turn 1: openai/test-model\n\
         read a.txt (TIME)\n\
         command sh mark.sh x\n  | marked x\n\
         command sh mark.sh x (TIME)\n\
         reed call_3: unknown_tool (TIME)\n  There is no tool named \"reed\".\n",
    );
}

#[test]
fn a_suspended_turn_ends_on_stderr_with_previews_and_the_commands_to_type() {
    let case = case().script([reply().text("I would run this.").mark("a").read("a.txt")]);
    let outcome = case.run(["tell", "go"]).exit(10);
    outcome.stdout("");
    assert_stderr(
        &outcome,
        "turn 1: openai/test-model\n\
         \n\
         call_1 (command): sh mark.sh a\n  $ sh mark.sh a\n  asks because: no rule allows it\n  \
         --grant would store: {\"type\":\"command\",\"allow\":true,\"args\":[\"sh\",\"mark.sh\",\"a\"]}\n\
         \n\
         call_2 (read): a.txt\n  its turn comes when the calls before it are decided\n\
         \n\
         To go on, type one of:\n  attini approve\n  \
         attini approve call_1 --grant session\n  attini deny call_1 --reason '...'\n",
    );
}

#[test]
fn stderr_is_the_same_in_all_three_modes() {
    let stderr = |mode: &str| {
        let case = case().script([reply().read("a.txt").mark("x").mark("a")]);
        without_durations(&case.run(["--output", mode, "tell", "go"]).exit(10).stderr_text())
    };
    let text = stderr("text");
    assert_eq!((stderr("json"), stderr("events")), (text.clone(), text));
}

#[test]
fn quiet_and_verbose_change_stderr_alone() {
    let script = || [reply().reasoning("hm").read("a.txt"), reply().text("done")];
    let case = case().script(script());
    case.run(["-q", "tell", "go"]).exit(0).stdout("done\n").stderr("");
    let case = self::case().script(script());
    let verbose = case.run(["-v", "tell", "go"]).exit(0);
    verbose.stdout("done\n").stderr_contains("alpha").stderr_contains("  ~ hm").stderr_contains("round 2");
    let case = self::case().script([reply().mark("a")]);
    case.run(["-q", "tell", "go"])
        .exit(10)
        .stdout("")
        .stderr_contains("$ sh mark.sh a")
        .stderr_contains("attini approve");
}

#[test]
fn the_result_object_is_whole() {
    let case =
        case().script([reply().text("I look.").read("a.txt").usage(100, 20, 80), reply().text("done").usage(7, 3, 0)]);
    let object = case.run(["--output", "json", "tell", "go"]).exit(0).redacted_json();
    let expected = json!({
        "type": "result", "at": "[TIME]", "status": "completed", "exit_code": 0, "session": "main", "turn": 1,
        "rounds": 2, "text": "done", "finish_reason": "stop", "pending": [], "digest": null, "tool_calls": 1,
        "usage": {"input_tokens": 107, "output_tokens": 23, "cached_input_tokens": 80},
        "round_usage": {"input_tokens": 7, "output_tokens": 3, "cached_input_tokens": 0},
        "session_usage": {"input_tokens": 107, "output_tokens": 23, "cached_input_tokens": 80}, "error": null,
    });
    assert_eq!(object, expected);
}

#[test]
fn the_result_object_of_a_suspended_turn_lists_what_is_pending() {
    let case = case().script([reply().text("May I?").mark("a").read("a.txt")]);
    let object = case.run(["--output", "json", "tell", "go"]).exit(10).json();
    let pending = case.pending().unwrap();
    assert_eq!(object["digest"], pending["digest"]);
    assert_eq!((&object["text"], &object["finish_reason"]), (&json!("May I?"), &json!("tool_calls")));
    let first = &object["pending"][0];
    assert_eq!(
        (&first["id"], &first["name"], &first["summary"], &first["needs"], &first["decision"]),
        (&json!("call_1"), &json!("command"), &json!("sh mark.sh a"), &json!("approval"), &json!(null))
    );
    assert_eq!(first["preview"], pending["calls"][0]["preview"]);
    assert_eq!(first["grant"], json!([mark_rule("a", true)]));
    assert_eq!(object["pending"].as_array().unwrap().len(), 2);
}

/// Runs it with `--output json` and returns the one object, whose code must be the process's.
#[track_caller]
fn one_object(case: &Case, arguments: &[&str], code: i32) -> Value {
    let object = case.run(["--output", "json"].iter().chain(arguments)).exit(code).json();
    assert_eq!(object["exit_code"], code, "{arguments:?}");
    if code != 0 && code != 10 {
        assert!(object["error"]["message"].is_string() && object["error"]["code"].is_string(), "{object}");
        assert!(object["error"]["retryable"].is_boolean(), "{object}");
    }
    object
}

#[test]
fn json_prints_exactly_one_object_whatever_happens() {
    let case = case();
    for (arguments, code, kind) in [
        (&["tell", "go", "--no-such-option"][..], 2, "result"),
        (&["no-such-command"], 2, "result"),
        (&["tell", "go", "-s", "../x"], 2, "result"),
        (&["tell", "go", "-m", "nonsense"], 2, "result"),
        (&["tell", "go", "-m", "nobody/knows"], 2, "result"),
        (&["tell", "go", "--max-rounds", "none"], 2, "result"),
        (&["tell", ""], 2, "result"),
        (&["tell", "go", "-C", "missing"], 2, "result"),
        (&["approve"], 3, "result"),
        (&["deny"], 3, "result"),
        (&["resume"], 3, "result"),
        (&["status"], 0, "status"),
        (&["status", "--no-such-option"], 2, "status"),
        (&["diff"], 0, "diff"),
        (&["check"], 3, "check"),
        (&["tools"], 0, "tools"),
        (&["tools", "call", "read", "{\"path\":\"a.txt\"}"], 0, "tools"),
        (&["tools", "call", "read", "{\"path\":\"missing\"}"], 1, "tools"),
        (&["tools", "call", "command", "{\"argv\":[\"ls\"]}"], 1, "tools"),
        (&["trust"], 0, "trust"),
        (&["completions", "bash"], 0, "completions"),
        (&["--version"], 0, "version"),
        (&["--help"], 0, "help"),
    ] {
        let object = one_object(&case, arguments, code);
        assert_eq!(object["type"], kind, "{arguments:?}");
    }
    assert!(!case.exists(".attini/sessions"));
}

#[test]
fn json_prints_exactly_one_object_of_a_session_in_any_state() {
    let latch = Latch::new();
    let case = case().script([
        reply().error(400, "the request is wrong"),
        reply().mark("a"),
        reply().text("done").hold(&latch),
    ]);
    let object = one_object(&case, &["tell", "go"], 13);
    assert!(object["error"]["message"].as_str().unwrap().contains("the request is wrong"));
    assert_eq!((&object["session"], &object["turn"], &object["rounds"]), (&json!("main"), &json!(1), &json!(0)));
    one_object(&case, &["resume"], 10);
    assert_eq!(one_object(&case, &["status"], 0)["state"], "awaiting_approval");
    one_object(&case, &["approve", "call_9"], 3);
    one_object(&case, &["approve", "--if-digest", "sha256:0"], 17);
    one_object(&case, &["resume"], 10);
    let running = case.start(["--output", "json", "approve"]);
    case.server().wait_requests(3);
    let locked = one_object(&case, &["tell", "go"], 12);
    assert_eq!((&locked["status"], &locked["error"]["retryable"]), (&json!("locked"), &json!(true)));
    assert_eq!(one_object(&case, &["status"], 0)["state"], "locked");
    latch.release();
    assert_eq!(running.wait().exit(0).json()["text"], "done");
    assert_eq!(one_object(&case, &["status"], 0)["state"], "idle");
    assert_eq!(one_object(&case, &["check"], 0)["violations"], json!([]));

    let case = case.without_invariants().planted_log("main", "not a log\n");
    for arguments in [&["tell", "go"][..], &["approve"], &["deny"], &["resume"], &["status"], &["check"]] {
        let object = one_object(&case, arguments, 16);
        assert_eq!(object["status"], "corrupt", "{arguments:?}");
    }
}

#[test]
fn events_come_in_order_and_end_with_the_result() {
    let case = case()
        .script([reply().text("I look.").reasoning("hm").read("a.txt").mark("x").mark("a"), reply().text("done")]);
    let events = case.run(["--output", "events", "tell", "go"]).exit(10).events();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let mut folded = kinds.clone();
    folded.dedup();
    let expected = [
        "turn_started",
        "round_started",
        "reasoning_delta",
        "text_delta",
        "tool_started",
        "tool_result",
        "tool_started",
        "tool_result",
        "awaiting",
        "result",
    ];
    assert_eq!(folded, expected);
    for event in &events[..events.len() - 1] {
        assert!(event["at"].is_string() && event["session"] == "main" && event["turn"] == 1, "{event}");
    }
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<Value>>();
    assert_eq!(of("turn_started")[0]["model"], "openai/test-model");
    assert_eq!(of("round_started")[0]["round"], 1);
    let text: String = of("text_delta").iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(text, "I look.");
    let started = &of("tool_started")[1];
    assert_eq!((&started["call_id"], &started["name"]), (&json!("call_2"), &json!("command")));
    assert_eq!(started["arguments"]["argv"], json!(["sh", "mark.sh", "x"]));
    let result = &of("tool_result")[1];
    assert_eq!(
        (&result["call_id"], &result["status"], &result["code"]),
        (&json!("call_2"), &json!("ok"), &json!(null))
    );
    assert_eq!(result["content"], case.result("call_2")["content"]);
    assert!(result["duration_ms"].is_u64());
    let pending = case.pending().unwrap();
    assert_eq!(of("awaiting")[0]["digest"], pending["digest"]);
    assert_eq!(of("awaiting")[0]["pending"], of("result")[0]["pending"]);
    let events = case.run(["--output", "events", "approve"]).exit(0).events();
    assert_eq!(events[0]["type"], "turn_started");
    assert_eq!(events.last().unwrap()["text"], "done");
}

#[test]
fn results_made_by_repair_are_told_too() {
    let case = case().script([reply().mark("a").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let results = case.run(["--output", "events", "tell", "another thing"]).exit(0).events_of("tool_result");
    let told: Vec<(&Value, &Value)> = results.iter().map(|event| (&event["call_id"], &event["status"])).collect();
    assert_eq!(told, [(&json!("call_1"), &json!("cancelled")), (&json!("call_2"), &json!("cancelled"))]);
}

#[test]
fn retries_void_what_was_told_before() {
    let case = case().script([reply().text("half a reply, cut off").cut_after(150), reply().text("done")]);
    let outcome = case.run(["--output", "events", "tell", "go"]).exit(0);
    let retrying = outcome.events_of("retrying");
    assert_eq!(retrying.len(), 1);
    assert_eq!(retrying[0]["attempt"], 2);
    assert!(retrying[0]["delay_ms"].is_u64() && retrying[0]["reason"].is_string());
    let replies = case.records().iter().filter(|record| record["type"] == "assistant").count();
    assert_eq!(replies, 1, "a stream that is cut leaves nothing in the log");
}

/// Reads a fifo up to `text`, and no further: what writes to it is stuck in that line.
struct Slow {
    file: fs::File,
    seen: Vec<u8>,
}

impl Slow {
    fn open(case: &Case) -> Self {
        Self { file: fs::File::open(case.path("fifo")).unwrap(), seen: Vec::new() }
    }

    fn read_to(&mut self, text: &str) {
        let mut piece = [0; 64];
        while !String::from_utf8_lossy(&self.seen).contains(text) {
            let count = self.file.read(&mut piece).unwrap();
            assert!(count > 0, "{text} never came: {}", String::from_utf8_lossy(&self.seen));
            self.seen.extend_from_slice(&piece[..count]);
        }
    }

    fn read_to_end(&mut self) {
        self.file.read_to_end(&mut self.seen).unwrap();
    }
}

/// A text longer than what a pipe holds.
fn longer_than_a_pipe() -> String {
    (0..40_000).map(|number| format!("{number:07}\n")).collect()
}

#[test]
fn a_result_is_on_disk_before_its_event_is_told() {
    let case = case()
        .config("[limits]\nresult_bytes = 400000\nround_result_bytes = 4000000\n")
        .file("long.txt", longer_than_a_pipe())
        .rules([json!({"type": "command", "allow": true, "args": ["cat", "long.txt"]})])
        .script([reply().command(&["cat", "long.txt"]), reply().text("done")]);
    case.program("mkfifo", ["fifo"]).run().exit(0);
    let running = case.program("sh", ["-c", "exec attini -q --output events tell go > fifo"]).start();
    let mut slow = Slow::open(&case);
    slow.read_to("\"type\":\"tool_result\"");
    // The rest of that line does not fit into the pipe, so attini cannot have gone on from there.
    assert_eq!(case.result("call_1")["status"], "ok");
    assert_eq!(case.server().request_count(), 1);
    slow.read_to_end();
    running.wait().exit(0);
}

#[test]
fn pending_json_is_on_disk_before_awaiting_is_told() {
    let case = case().script([reply().create("new.txt", &longer_than_a_pipe())]);
    case.program("mkfifo", ["fifo"]).run().exit(0);
    let running = case.program("sh", ["-c", "exec attini -q --output events tell go > fifo 2> errors"]).start();
    let mut slow = Slow::open(&case);
    slow.read_to("\"type\":\"awaiting\"");
    let pending = case.pending().expect("it is there");
    assert_eq!(pending["calls"][0]["id"], "call_1");
    assert_eq!(case.records().last().unwrap()["status"], "awaiting_approval");
    slow.read_to_end();
    running.wait().exit(10);
}

#[test]
fn the_answer_is_on_disk_before_it_is_written() {
    let answer = longer_than_a_pipe();
    let case = case().script([reply().text(&answer)]);
    case.program("mkfifo", ["fifo"]).run().exit(0);
    let running = case.program("sh", ["-c", "exec attini tell go > fifo"]).start();
    let mut slow = Slow::open(&case);
    slow.read_to("0000000");
    let records = case.records();
    let reply = records.iter().find(|record| record["type"] == "assistant").expect("the reply is on disk");
    assert_eq!(reply["text"].as_str(), Some(answer.as_str()));
    assert_eq!(records.last().unwrap()["status"], "completed");
    slow.read_to_end();
    assert_eq!(String::from_utf8(slow.seen).unwrap(), answer);
    running.wait().exit(0);
}

#[test]
fn a_stream_that_is_closed_or_full_loses_no_record() {
    for mode in ["text", "json", "events"] {
        for kind in ["closed stdout", "full stdout", "closed stderr"] {
            let case = case().script([reply().mark("x"), reply().text("done").mark("a"), reply().text("done")]);
            let attini = |arguments: &[&str]| {
                let run = case.attini(["--output", mode].iter().chain(arguments));
                match kind {
                    "closed stdout" => run.closed_stdout(),
                    "full stdout" => run.full_stdout(),
                    _ => run.closed_stderr(),
                }
            };
            attini(&["tell", "go"]).run().exit(10);
            assert!(case.pending().is_some());
            // What was asked for is lost; a reader that went away had enough.
            attini(&["status"]).run().exit(i32::from(kind == "full stdout"));
            attini(&["approve"]).run().exit(0);
            assert_eq!(case.order(), ["x", "a"], "{mode}, {kind}");
            assert_eq!(case.records().last().unwrap()["status"], "completed", "{mode}, {kind}");
            assert_eq!(case.result("call_1")["status"], "ok");
        }
    }
}

/// Escape sequences, a carriage return, a C1 control, a right-to-left override, a zero-width space, a tag.
const NASTY: &str = "red\u{1b}[31m\u{1b}]0;title\u{7}\rover\u{9b}1m\u{202e}txt\u{200b}\u{e0041}\u{0}";

#[track_caller]
fn assert_harmless(what: &str, text: &str) {
    let bad = |letter: char| {
        (letter.is_control() && letter != '\n' && letter != '\t')
            || matches!(letter, '\u{200b}' | '\u{202e}' | '\u{e0041}')
    };
    assert!(!text.contains(bad), "{what}: {text:?}");
}

#[test]
fn a_terminal_without_a_size_or_hardly_any_breaks_off_no_turn() {
    for columns in [0, 1, 2, 3] {
        let case = case().file("\u{6587}.txt", "x\n").script([reply().read("\u{6587}.txt"), reply().text("Done.")]);
        let outcome = case.attini(["tell", "go"]).on_terminal(0, columns, "").start().wait().exit(0);
        outcome.stdout("Done.\n");
    }
}

#[test]
fn nothing_from_outside_reaches_a_terminal_as_it_is() {
    let name = "evil\u{1b}[2J\u{202e}.txt";
    let script = || {
        [
            reply()
                .text(NASTY)
                .reasoning(NASTY)
                .command(&["cat", "nasty.txt"])
                .read(name)
                .call(&format!("tool{NASTY}"), json!({}))
                .command(&["cat", "missing\u{1b}[31m"]),
            reply().text(NASTY),
        ]
    };
    let allow = json!({"type": "command", "allow": true, "args_prefix": ["cat"]});
    for mode in ["text", "json", "events"] {
        for volume in ["-q", "-v"] {
            let case = case().file("nasty.txt", NASTY).file(name, NASTY).rules([allow.clone()]).script(script());
            let outcome = case.run([volume, "--output", mode, "tell", NASTY.trim_end_matches('\0')]).exit(0);
            assert_harmless("stdout", &outcome.stdout_text());
            assert_harmless("stderr", &outcome.stderr_text());
            if mode == "json" {
                assert_eq!(outcome.json()["text"], NASTY, "it reads back the same");
            }
        }
    }
}

#[test]
fn nothing_in_a_preview_reaches_a_terminal_as_it_is() {
    let name = "evil\u{1b}[2J\u{202e}.txt";
    let script =
        reply().command(&["printf", NASTY.trim_end_matches('\0')]).create(name, NASTY).read(&format!("../{name}"));
    let case = case().script([script]);
    for arguments in [&["tell", "go"][..], &["status"], &["--output", "json", "status"], &["approve", "call_1"]] {
        let code = if arguments.contains(&"status") { 0 } else { 10 };
        let outcome = case.run(arguments).exit(code);
        assert_harmless("stdout", &outcome.stdout_text());
        assert_harmless("stderr", &outcome.stderr_text());
    }
    let ended = case.run(["approve", &format!("call{NASTY}").replace('\0', "")]).exit(3);
    assert_harmless("stderr", &ended.stderr_text());
    let ended = case.run(["tell", "go", "-s", "x\u{1b}[2J"]).exit(2);
    assert_harmless("stderr", &ended.stderr_text());
}

#[test]
fn no_output_line_passes_for_one_of_attinis_own() {
    let case = case()
        .file("lie.txt", "To go on, type one of:\n  attini approve --grant workspace\nattini: all is well\n")
        .rules([json!({"type": "command", "allow": true, "args": ["cat", "lie.txt"]})])
        .script([reply().command(&["cat", "lie.txt"]), reply().text("done")]);
    let outcome = case.run(["tell", "go"]).exit(0);
    for line in outcome.stderr_text().lines() {
        assert!(!line.starts_with("To go on") && !line.starts_with("attini: "), "{line}");
    }
}
