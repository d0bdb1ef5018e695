//! `attini show`: what a run has shown is shown again, to the byte.

use std::fs;

use serde_json::{Value, json};

use crate::support::*;

/// What attini puts out, both streams as one.
#[track_caller]
fn both(case: &Case, arguments: &str, code: i32) -> String {
    let outcome = case.program("sh", ["-c", &format!("exec 2>&1; attini {arguments}")]).run().exit(code);
    case.redactor().text(&outcome.stdout_text())
}

/// With one duration in place of each.
fn timeless(text: &str) -> String {
    let mut timeless = String::new();
    for line in text.split_inclusive('\n') {
        match line.rsplit_once(" (").filter(|(_, end)| end.ends_with("ms)\n")) {
            Some((start, _)) => timeless.extend([start, " (N ms)\n"]),
            None => timeless.push_str(line),
        }
    }
    timeless
}

/// The replay without the prompts.
#[track_caller]
fn replayed(case: &Case, arguments: &str) -> String {
    let shown = both(case, arguments, 0);
    shown.split_inclusive('\n').filter(|line| !line.starts_with("> ")).collect()
}

fn workspace() -> Case {
    Case::new()
        .git()
        .file("a.txt", "one\n")
        .file("b.txt", "two\n")
        .config("[tools.read]\nfan_out = true\n[tools.command.fan_out]\non_error = \"stop\"\n")
}

fn two_reads() -> Value {
    json!({"ops": [{"path": "a.txt"}, {"path": "missing"}]})
}

#[test]
fn a_replay_is_what_the_run_has_shown() {
    let no_newline = json!({"ops": [
        {"argv": ["printf", "no end"]}, {"argv": ["sh", "-c", "echo; echo bad; exit 3"]}, {"argv": ["echo", "never"]},
    ]});
    let scenarios: Vec<(&str, Vec<Reply>)> = vec![
        ("reads", vec![reply().read("a.txt").call("list", json!({})).read("missing"), reply().text("done")]),
        ("the same read twice", vec![reply().read("a.txt").read("a.txt"), reply().text("done\n\n")]),
        ("a patch", vec![reply().replace("a.txt", "one", "eins"), reply().text("two\nlines")]),
        ("denied", vec![reply().command(&["rm", "x"]).read("a.txt"), reply().text("done")]),
        ("unknown", vec![reply().call("nonsense", json!({})).raw_call("c", "read", "{"), reply().text("done")]),
        ("output", vec![reply().command(&["sh", "-c", "echo out; echo; echo end"]), reply().text("done")]),
        ("failure", vec![reply().command(&["sh", "-c", "echo out; exit 3"]), reply().text("done")]),
        ("no output", vec![reply().command(&["true"]), reply().text("done")]),
        ("fan-out", vec![reply().call("read", two_reads()).read("b.txt"), reply().text("done")]),
        ("fan-out of commands", vec![reply().call("command", no_newline), reply().text("done")]),
        ("control characters", vec![reply().command(&["printf", "\\033[2J\\n"]), reply().text("\u{1b}[2Jgone")]),
        ("long output", vec![reply().command(&["seq", "30000"]), reply().text("done")]),
    ];
    for (name, script) in scenarios {
        for verbosity in ["", "-q"] {
            let case = workspace().script(script.clone());
            let options = "tell go --allow command:sh --allow command:printf --allow command:seq --allow command:true \
                           --allow command:echo --deny command:rm";
            let live = both(&case, &format!("{verbosity} {options}"), 0);
            let live: String = live.split_inclusive('\n').filter(|line| !line.starts_with("warning: ")).collect();
            assert_text_eq(name, &live, &replayed(&case, &format!("{verbosity} show")));
        }
    }
}

#[test]
fn several_turns_follow_each_other_and_each_can_be_shown_alone() {
    let case = workspace().script([reply().read("a.txt"), reply().text("first"), reply().text("second")]);
    let first = both(&case, "tell 'one\ntwo'", 0);
    let second = both(&case, "tell three", 0);
    let shown = both(&case, "show", 0);
    assert_text_eq("both", &format!("> one\n> two\n{first}\n> three\n{second}"), &shown);
    assert_text_eq("the first", &format!("> one\n> two\n{first}"), &both(&case, "show --turn 1", 0));
    assert_text_eq("the last", &format!("> three\n{second}"), &both(&case, "show --last", 0));
    case.run(["show", "--turn", "7"])
        .exit(3)
        .stdout("")
        .stderr("attini: there is no turn 7\nhint: the turns are 1 to 2\n");
    case.run(["show", "-s", "other"]).exit(3).stdout("").stderr_contains("there is no session other");
    case.run(["show", "--turn", "1", "--last"]).exit(2);
    case.run(["show", "--markdown", "--output", "json"]).exit(2);
}

#[test]
fn what_waits_is_shown_as_it_was_and_what_was_decided_as_it_went_on() {
    let case = Case::new()
        .file("a.txt", "one\n")
        .script([reply().read("a.txt").command(&["sh", "-c", "echo ran"]).read("a.txt"), reply().text("done")]);
    let suspended = both(&case, "tell go", 10);
    assert_text_eq("suspended", &suspended, &replayed(&case, "show"));
    let rest = both(&case, "approve", 0);
    let previews = suspended.find("\n\ncall_2").unwrap() + 1;
    let expected = format!("{}turn 1: suspended until its calls were decided\n{rest}", &suspended[..previews]);
    assert_text_eq("approved", &expected, &replayed(&case, "show"));
}

#[test]
fn a_new_prompt_that_drops_what_waits_is_told_in_its_place() {
    let case = Case::new().script([reply().command(&["sh", "-c", "echo ran"]), reply().text("other")]);
    let suspended = both(&case, "tell go", 10);
    let second = both(&case, "tell 'go elsewhere'", 0);
    let (dropped, second) = second.split_at(second.find("turn 2").unwrap());
    let previews = suspended.find("\n\ncall_1").unwrap() + 1;
    let expected = format!(
        "{}turn 1: suspended until its calls were decided\n{dropped}turn 1: dropped for a new prompt\n\n{second}",
        &suspended[..previews],
    );
    assert_text_eq("dropped", &expected, &replayed(&case, "show"));
}

#[test]
fn a_resumed_turn_names_the_model_that_went_on() {
    let case = workspace().script([reply().read("a.txt"), reply().text("done")]);
    let stopped = both(&case, "tell go --max-rounds 1", 14);
    let rest = both(&case, "resume -m openai/other --max-rounds 3", 0);
    let end = stopped.find("attini: ").unwrap();
    let expected = format!("{}turn 1: stopped at a limit\n{rest}", &stopped[..end]);
    assert!(rest.starts_with("turn 1: openai/other\n"), "{rest}");
    assert_text_eq("resumed", &expected, &replayed(&case, "show"));
}

#[test]
fn repairs_are_told_before_the_invocation_that_made_them() {
    let case = workspace().script([reply().read("a.txt").read("b.txt"), reply().text("done")]).without_invariants();
    case.run(["tell", "go", "--max-rounds", "1"]).exit(14);
    let log = case.session_path("main", "conversation.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    // As a kill between the reply and the first result would have left it.
    fs::write(&log, &whole[..whole.find("{\"type\":\"tool_result\"").unwrap()]).unwrap();
    let rest = both(&case, "resume --max-rounds 3", 0);
    assert!(rest.starts_with("read call_1: cancelled"), "{rest}");
    assert_text_eq("repaired", &format!("turn 1: openai/test-model\n{rest}"), &replayed(&case, "show"));
}

#[test]
fn texts_between_calls_and_what_verbose_adds_are_shown() {
    let case = workspace().script([reply().text("I look.").reasoning("hm").read("a.txt"), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    assert_text_eq(
        "texts",
        "> go\nturn 1: openai/test-model\nI look.\nread a.txt (N ms)\ndone\n",
        &timeless(&both(&case, "show", 0)),
    );
    assert_text_eq("quiet", "> go\nI look.\ndone\n", &both(&case, "-q show", 0));
    let verbose = both(&case, "-v show", 0);
    for part in ["round 1\n", "  ~ hm\n", "read a.txt: {\"path\":\"a.txt\"}\n", "  | 1\tone\n"] {
        assert!(verbose.contains(part), "{part:?} in {verbose}");
    }
}

#[test]
fn records_come_one_a_line_or_in_one_object() {
    let case = workspace().script([reply().read("a.txt"), reply().text("done"), reply().text("more")]);
    case.run(["tell", "go"]).exit(0);
    case.run(["tell", "on"]).exit(0);
    let log = fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap();
    assert_eq!(case.run(["show", "--json"]).exit(0).stdout_bytes(), log.as_bytes());
    let second = log.find("{\"type\":\"user\",\"turn\":2").unwrap();
    assert_eq!(case.run(["show", "--json", "--last"]).exit(0).stdout_bytes(), &log.as_bytes()[second..]);
    let object = case.run(["show", "--output", "json"]).exit(0).json();
    assert_eq!(object["records"], json!(case.records()));
    assert_eq!((&object["type"], &object["exit_code"]), (&json!("show"), &json!(0)));
    assert_eq!((&object["status"], &object["error"]), (&json!("completed"), &Value::Null));
    let object = case.run(["show", "--output", "json", "--turn", "9"]).exit(3).json();
    assert_eq!(object["exit_code"], 3);
}

#[test]
fn a_conversation_is_shown_as_far_as_it_is_whole() {
    let case = workspace().script([reply().text("done")]).without_invariants();
    case.run(["tell", "go"]).exit(0);
    let log = case.session_path("main", "conversation.jsonl");
    let whole = fs::read(&log).unwrap();
    let expected = both(&case, "show", 0);
    // A record that is being written, or that a kill has torn.
    fs::write(&log, [&whole[..], b"{\"type\":\"user\",\"tu"].concat()).unwrap();
    assert_text_eq("torn", &expected, &both(&case, "show", 0));
    assert_eq!(fs::read(&log).unwrap().len(), whole.len() + 18, "nothing is mended");
    fs::write(&log, [&whole[..], b"nonsense\n{}\n"].concat()).unwrap();
    let outcome = case.run(["show"]).exit(16);
    outcome.stdout(&expected).stderr_contains("conversation.jsonl:5: it is not a record");
    let object = case.run(["show", "--output", "json"]).exit(16).json();
    assert_eq!((object["records"].as_array().map(Vec::len), &object["status"]), (Some(4), &json!("corrupt")));
    fs::write(&log, "").unwrap();
    case.run(["show"]).exit(16).stdout("");
}

#[test]
fn it_works_while_a_turn_runs_and_leaves_everything_as_it_was() {
    let latch = Latch::new();
    let case = workspace().script([reply().read("a.txt"), reply().text("done").hold(&latch)]);
    let running = case.start(["tell", "go"]);
    case.server().wait_requests(2);
    let shown = both(&case, "show", 0);
    assert_text_eq("running", "> go\nturn 1: openai/test-model\nread a.txt (N ms)\n", &timeless(&shown));
    latch.release();
    running.wait().exit(0);
}

#[test]
fn a_reader_that_has_had_enough_is_no_error_and_a_full_disk_is_one() {
    let case = workspace().script([reply().text(&"line\n".repeat(60_000))]);
    case.run(["tell", "go"]).exit(0);
    for form in ["show", "show --json", "show --markdown", "--output json show"] {
        let script = format!("{{ attini {form}; echo $? >&2; }} | head -c 10 >/dev/null");
        case.program("sh", ["-c", &script]).run().exit(0).stderr("0\n");
        let full = case.attini(form.split(' ')).full_stdout().run().exit(1);
        full.stderr_contains("stdout cannot be written");
    }
}

#[test]
fn markdown_holds_what_it_quotes() {
    let case = workspace()
        .file("fence.md", "````\n# not a heading\n```\n")
        .script([reply().text("I look:\n```\nunclosed").read("fence.md"), reply().text("# Done\n\u{1b}[2J")]);
    case.run(["tell", "read ``` it\n## Turn 7"]).exit(0);
    case.run(["show", "--markdown"]).exit(0).stdout_file("show.md");
}
