//! `attini rules`: what stands where, what decides, and edits that keep what a person wrote.

use serde_json::json;

use crate::support::*;

const CARGO_TEST: &str = r#"{"type":"command","allow":true,"args_prefix":["cargo","test"]}"#;
const NO_PUSH: &str = r#"{"type":"command","allow":false,"args_prefix":["git","push"]}"#;

fn case() -> Case {
    let mut case = Case::new()
        .git()
        .file("tracked.txt", "one\n")
        .file(".env", "TOKEN=x\n")
        .file(".attini/permissions.jsonl", format!("# ours\n\n{CARGO_TEST}\n"))
        .user_rules([json!({"type": "command", "allow": false, "args_prefix": ["git", "push"]})]);
    case = case.untracked("new.txt", "two\n");
    case
}

#[test]
fn the_list_has_every_rule_with_its_line_and_whether_it_counts() {
    let case = case();
    let expected = format!(
        "user ([HOME]/.config/attini/permissions.jsonl)\n    1  {NO_PUSH}\n\
         workspace (.attini/permissions.jsonl)\n    3  {CARGO_TEST}\n"
    );
    let listed = case.run(["rules", "list"]).exit(0);
    assert_eq!(case.redactor().text(&listed.stdout_text()), expected);
    let object = case.run(["--output", "json", "rules", "list"]).exit(0).json();
    assert_eq!((&object["type"], &object["exit_code"]), (&json!("rules"), &json!(0)));
    assert_eq!(object["rules"][1]["line"], 3);
    assert_eq!(object["rules"][1]["rule"], serde_json::from_str::<serde_json::Value>(CARGO_TEST).unwrap());

    let untrusted = case.attini(["rules", "list"]).unset("ATTINI_TRUST_WORKSPACE").run().exit(0);
    untrusted.stdout_contains(&format!("    3  {CARGO_TEST}  (does not count: the file is not trusted)\n"));

    Case::new().run(["rules", "list"]).exit(0).stdout("there are no rules: each tool's own default decides\n");
}

#[test]
fn a_turns_own_rules_are_listed_above_the_sessions_and_count_in_that_turn_alone() {
    let case = Case::new();
    let touch = |name: &str| reply().call("command", json!({"argv": ["touch", name]}));
    case.server().script([touch("a"), touch("b"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "--grant", "turn"]).exit(10);
    let list = case.run(["rules", "list"]).exit(0);
    list.stdout_contains("turn (").stdout_contains(r#""args":["touch","a"],"turn":1}"#).stdout_contains("    1  ");
    assert!(!list.stdout_text().contains("does not count"), "{}", list.stdout_text());
    case.run(["rules", "test", "command", "touch", "a"]).exit(0).stdout_contains("runs unasked: touch a");
    case.run(["approve"]).exit(0);
    case.run(["rules", "test", "command", "touch", "a"]).exit(0).stdout_contains("asks: touch a");
}

#[test]
fn a_test_says_what_would_happen_and_which_rule_decides() {
    let case = case();
    for (arguments, expected) in [
        (
            &["command", "cargo", "test", "--lib"][..],
            format!(
                "runs unasked: cargo test --lib\n  decided by .attini/permissions.jsonl:3 (workspace): {CARGO_TEST}\n"
            ),
        ),
        (
            &["command", "sudo", "git", "push"],
            format!(
                "is denied: sudo git push\n  decided by [HOME]/.config/attini/permissions.jsonl:1 (user): {NO_PUSH}\n"
            ),
        ),
        (
            &["command", "cargo", "build"],
            "asks: cargo build\n  because: no rule allows it\n  this rule would let it \
             run: {\"type\":\"command\",\"allow\":true,\"args\":[\"cargo\",\"build\"]}\n"
                .to_owned(),
        ),
        (
            &["--stdin", "command", "cargo", "test"],
            "asks: cargo test\n  because: no rule allows it: rules do not \
             allow a command that is given input\n"
                .to_owned(),
        ),
        (
            &["write", "tracked.txt"],
            "runs unasked: tracked.txt\n  because: tracked.txt: git has these bytes\n".to_owned(),
        ),
        (
            &["write", "new.txt"],
            "asks: new.txt\n  because: new.txt: it is not tracked by git\n  this rule would let it \
             run: {\"type\":\"write\",\"allow\":true,\"path\":\"new.txt\"}\n"
                .to_owned(),
        ),
        (
            &["write", ".git/config"],
            "is denied: .git/config\n  because: .git/config may not be written: it lies in a \
             .git folder\n"
                .to_owned(),
        ),
        (&["read", "tracked.txt"], "runs unasked: tracked.txt\n  because: a read inside the workspace\n".to_owned()),
        (
            &["read", ".env"],
            "asks: .env\n  because: .env is named like a file that holds secrets\n  this rule would \
             let it run: {\"type\":\"read\",\"allow\":true,\"path\":\".env\"}\n"
                .to_owned(),
        ),
        (
            &["fetch", "docs.example.org"],
            "asks: docs.example.org\n  because: no rule allows the host \
             docs.example.org\n  this rule would let it run: \
             {\"type\":\"fetch\",\"allow\":true,\"host\":\"docs.example.org\"}\n"
                .to_owned(),
        ),
        (
            &["tool", "fs__read"],
            "asks: fs__read\n  because: no rule allows it\n  this rule would let it run: \
             {\"type\":\"tool\",\"allow\":true,\"name\":\"fs__read\"}\n"
                .to_owned(),
        ),
    ] {
        let outcome = case.run(["rules", "test"].iter().chain(arguments)).exit(0);
        assert_eq!(case.redactor().text(&outcome.stdout_text()), expected, "{arguments:?}");
    }
    let object = case.run(["--output", "json", "rules", "test", "command", "git", "push"]).exit(0).json();
    assert_eq!(
        (&object["verdict"], &object["rule"]["line"], &object["rule"]["scope"]),
        (&json!("deny"), &json!(1), &json!("user"))
    );
    assert!(!case.exists("new"), "nothing was run or written");
    assert_eq!(case.read("tracked.txt"), "one\n");
}

#[test]
fn weaker_rules_that_match_are_told_too() {
    let case = Case::new().rules([
        json!({"type": "tool", "allow": false, "name": "*"}),
        json!({"type": "write", "allow": true, "path": "a"}),
    ]);
    case.run(["rules", "test", "write", "a/b"]).exit(0).stdout(
        "runs unasked: a/b\n  decided by .attini/permissions.jsonl:2 (workspace): \
         {\"type\":\"write\",\"allow\":true,\"path\":\"a\"}\n  also matching, and weaker: \
         .attini/permissions.jsonl:1 (workspace): {\"type\":\"tool\",\"allow\":false,\"name\":\"*\"}\n",
    );
}

#[test]
fn edits_keep_every_other_byte_and_the_files_trust() {
    let text = "# by hand\r\n\r\n{\"type\":\"write\",\"allow\":true,\"path\":\"src\"}\r\n";
    let case = Case::new().untrusted().file(".attini/permissions.jsonl", text);
    let add = || case.run(["rules", "add", "command:cargo test"]);
    add().exit(2).stderr_contains("not trusted");
    case.run(["trust", "--yes"]).exit(0);
    add().exit(0).stdout(&format!(".attini/permissions.jsonl has {CARGO_TEST}\n"));
    add().exit(0);
    assert_eq!(case.read(".attini/permissions.jsonl"), format!("{text}{CARGO_TEST}\r\n"));
    case.run(["rules", "test", "command", "cargo", "test"]).exit(0).stdout_contains("runs unasked");
    case.run(["rules", "remove", "command:cargo test"])
        .exit(0)
        .stdout("1 line removed from .attini/permissions.jsonl\n");
    assert_eq!(case.read(".attini/permissions.jsonl"), text);
    case.run(["rules", "test", "write", "src/x"]).exit(0).stdout_contains("runs unasked");
    case.run(["rules", "remove", "command:cargo test"]).exit(3).stderr_contains("has no such rule");
}

#[test]
fn rules_of_other_layers_are_edited_where_they_stand() {
    let case = Case::new();
    case.run(["rules", "add", "--scope", "user", "--deny", "command:git push", "tool:*"]).exit(0);
    let stored = std::fs::read_to_string(case.home().join(".config/attini/permissions.jsonl")).unwrap();
    assert_eq!(stored, format!("{NO_PUSH}\n{{\"type\":\"tool\",\"allow\":false,\"name\":\"*\"}}\n"));
    case.run(["rules", "add", "--scope", "session", "read:../x"]).exit(2).stderr_contains("there is no session main");
    case.server().script([reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    case.run(["rules", "add", "--scope", "session", "read:../x"]).exit(0);
    case.run(["rules", "list"]).exit(0).stdout_contains("session (").stdout_contains(r#""path":"../x""#);
    // Removing one that allows leaves the one that denies.
    case.run(["rules", "remove", "--scope", "user", r#"{"type":"tool","allow":true,"name":"*"}"#]).exit(3);
    case.run(["rules", "remove", "--scope", "user", r#"{"type":"tool","allow":false,"name":"*"}"#]).exit(0);
}

#[test]
fn what_cannot_be_a_rule_or_a_call_is_refused() {
    let case = case();
    for (arguments, expected) in [
        (&["add", "comand:x"][..], "unknown type `comand`; did you mean `command`?"),
        (&["add", r#"{"type":"write","allow":true,"path":"a","turn":1}"#], "`turn` has a meaning in a session's file"),
        (&["add", "--deny", r#"{"type":"write","allow":true,"path":"a"}"#], "contradicts"),
        (&["remove", "write:"], "the path is empty"),
        (&["test", "write", "a", "b"], "one argument is expected, and behind it stands: b"),
        (&["test", "--stdin", "read", "a"], "--stdin, --background and --cwd are for commands"),
        (&["test", "fetch", "ftp://x/"], "such a call fails whatever the rules say"),
        (&["add"], "RULE"),
    ] {
        case.run(["rules"].iter().chain(arguments)).exit(2).stderr_contains(expected);
        let object = case.run(["--output", "json", "rules"].iter().chain(arguments)).exit(2).json();
        assert_eq!(object["exit_code"], 2, "{arguments:?}");
    }
    assert_eq!(case.read(".attini/permissions.jsonl"), format!("# ours\n\n{CARGO_TEST}\n"));
    case.write(".attini/permissions.jsonl", "{}\n");
    case.run(["rules", "list"]).exit(2).stderr_contains("permissions.jsonl:1: ");
    case.run(["rules", "add", "write:src"]).exit(2).stderr_contains("permissions.jsonl:1: ");
}
