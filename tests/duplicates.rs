//! Reads that are answered from memory within one invocation, and all that must be done anew.

use serde_json::{Value, json};

use crate::support::*;

fn list() -> (&'static str, Value) {
    ("list", json!({"path": "src"}))
}

fn read() -> (&'static str, Value) {
    ("read", json!({"path": "src/a.txt"}))
}

fn run(argv: &[&str]) -> (&'static str, Value) {
    ("command", json!({"argv": argv}))
}

fn edit(path: &str) -> (&'static str, Value) {
    ("patch", json!({"edits": [{"path": path, "content": "new\n"}]}))
}

fn case() -> Case {
    Case::new().file("src/a.txt", "one\n").file("src/b.txt", "two\n").file("doc/c.txt", "three\n").rules([
        json!({"type": "command", "allow": true, "args_prefix": []}),
        json!({"type": "write", "allow": true, "path": "."}),
    ])
}

/// The calls, one a reply or all in one, and which of them were answered from memory.
fn repeated(case: &Case, calls: &[(&'static str, Value)], one_a_round: bool) -> Vec<bool> {
    let is_new = !case.session_path("main", "conversation.jsonl").exists();
    let before = if is_new { 0 } else { case.records().len() };
    if one_a_round {
        case.server().script(calls.iter().map(|(name, arguments)| reply().call(name, arguments.clone())));
    } else {
        let all = calls.iter().fold(reply(), |reply, (name, arguments)| reply.call(name, arguments.clone()));
        case.server().script([all]);
    }
    case.server().script([reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    let records = case.records();
    let results = records[before..].iter().filter(|record| record["type"] == "tool_result");
    results.map(|result| result["code"] == "repeated").collect()
}

#[test]
fn reads_are_remembered_until_something_may_have_changed_what_they_read() {
    let shell = |script: &str| ("command", json!({"argv": ["sh", "-c", script]}));
    let canonical = ("read", json!({"path": "./doc/../src/a.txt"}));
    let text = ("list", json!({"path": "src", "depth": "1", "hidden": false}));
    let search = |path: &str| ("search", json!({"pattern": "o", "path": path}));
    let missing = ("read", json!({"path": "src/none.txt"}));
    for (what, calls, expected) in [
        ("the same read", vec![read(), read(), read()], &[false, true, true][..]),
        ("another spelling of it", vec![read(), canonical], &[false, true]),
        ("defaults written out", vec![list(), text], &[false, true]),
        ("another read", vec![read(), ("read", json!({"path": "src/b.txt"}))], &[false, false]),
        ("a failure", vec![missing.clone(), missing], &[false, false]),
        ("a command between", vec![list(), run(&["true"]), list()], &[false, false, false]),
        ("a command twice", vec![run(&["true"]), run(&["true"])], &[false, false]),
        ("a command that changes it", vec![read(), shell("echo 2 > src/a.txt"), read()], &[false, false, false]),
        ("a failed command", vec![list(), run(&["false"]), list()], &[false, false, false]),
        ("a patch of the file", vec![read(), edit("src/a.txt"), read()], &[false, false, false]),
        (
            "a patch elsewhere",
            vec![read(), list(), edit("doc/c.txt"), read(), list()],
            &[false, false, false, true, true],
        ),
        ("a patch in the folder", vec![list(), search("src"), edit("src/new.txt"), list(), search("src")], &[false; 5]),
        (
            "a patch of .gitignore",
            vec![read(), list(), edit(".gitignore"), read(), list()],
            &[false, false, false, true, false],
        ),
    ] {
        assert_eq!(repeated(&case(), &calls, true), expected, "{what}, one call a round");
        // In one reply nothing behind a side effect counts on what stood before it.
        let effect = calls.iter().position(|(name, _)| ["command", "patch"].contains(name)).unwrap_or(calls.len());
        let flags = repeated(&case(), &calls, false);
        assert_eq!(flags[..effect], expected[..effect], "{what}, in one reply");
        for (index, (flag, allowed)) in flags.iter().zip(expected).enumerate().skip(effect) {
            assert!(!flag || *allowed, "{what}, in one reply: call {index} was answered from memory");
        }
    }
}

#[test]
fn what_is_repeated_says_what_the_first_said() {
    let case = case();
    assert_eq!(repeated(&case, &[read(), read()], false), [false, true]);
    assert_eq!(case.result("call_1")["content"], case.result("call_2")["content"]);
    assert_eq!(case.result("call_2")["status"], "ok");
}

#[test]
fn memory_ends_with_the_invocation() {
    let case = case();
    assert_eq!(repeated(&case, &[read()], true), [false]);
    assert_eq!(repeated(&case, &[read()], true), [false]);
}

#[test]
fn a_file_that_someone_else_changed_is_read_again() {
    let case = case();
    let latch = Latch::new();
    let (name, arguments) = read();
    let again = reply().call(name, arguments.clone()).hold(&latch);
    case.server().script([reply().call(name, arguments), again, reply().text("done")]);
    let running = case.start(["tell", "go"]);
    case.server().wait_requests(2);
    // As long as before, so that the size does not tell.
    case.write("src/a.txt", "two\n");
    latch.release();
    running.wait().exit(0);
    assert_eq!(case.result("call_2")["code"], Value::Null);
    assert!(case.result("call_2")["content"].as_str().unwrap().ends_with("1\ttwo"));
}

#[test]
fn a_read_that_waits_for_a_person_behind_another_is_not_answered_from_memory() {
    // What is carried runs after the decision: the approved command may have changed the file.
    let case = Case::new().file("src/a.txt", "one\n");
    let (name, arguments) = read();
    let asks = json!({"argv": ["sh", "-c", "echo 2 > src/a.txt"]});
    let calls = reply().call(name, arguments.clone()).call("command", asks).call(name, arguments);
    case.server().script([calls, reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve"]).exit(0);
    assert_eq!(case.result("call_3")["code"], Value::Null);
    assert!(case.result("call_3")["content"].as_str().unwrap().ends_with("1\t2"));
}
