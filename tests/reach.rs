//! What a call may learn or change on its way is bound by the same rules as a call for that alone.

use serde_json::{Value, json};

use crate::support::*;

fn patch(edits: &Value) -> (&'static str, Value) {
    ("patch", json!({"edits": edits}))
}

/// A workspace in which everything may be written and `private` may not be read.
fn guarded() -> Case {
    Case::new()
        .file("private/x.txt", "CODE=4711\n")
        .file("private/open.txt", "CODE=open\n")
        .file("a.txt", "CODE=a\n")
        .rules([
            json!({"type": "write", "allow": true, "path": "."}),
            json!({"type": "read", "allow": false, "path": "private"}),
            json!({"type": "read", "allow": true, "path": "private/open.txt"}),
        ])
}

/// What each call was answered, all of them in one turn without a person.
fn told(case: &Case, calls: &[(&str, Value)]) -> Vec<String> {
    let first = case.server().request_count();
    let all = calls.iter().fold(reply(), |reply, (name, arguments)| reply.call(name, arguments.clone()));
    case.server().script([all, reply().text("done")]);
    case.run(["tell", "--on-ask", "deny", "go"]).exit(0);
    let records = case.records();
    let results = records.iter().filter(|record| record["type"] == "tool_result");
    assert_eq!(case.server().request_count(), first + 2);
    results.map(|result| result["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_rule_that_denies_reading_binds_whatever_comes_upon_the_file() {
    let told = told(
        &guarded(),
        &[
            ("read", json!({"path": "private/x.txt"})),
            ("search", json!({"pattern": "CODE"})),
            ("search", json!({"pattern": "CODE", "glob": "private/**"})),
            ("list", json!({"depth": 3})),
            ("read", json!({"path": "private/y.txt"})),
            patch(&json!([{"path": "private/x.txt", "before": "CODE=4712", "after": "y"}])),
            patch(&json!([{"path": "private/x.txt", "before": "CODE=4711", "after": "y"}])),
            patch(&json!([{"path": "private/x.txt", "content": "CODE=new\n"}])),
            patch(&json!([{"path": "private/x.txt", "move_to": "b.txt"}])),
            ("read", json!({"path": "private/open.txt"})),
        ],
    );
    for (index, content) in told.iter().enumerate() {
        assert!(!content.contains("4711\n") && !content.contains("=4711"), "{index}: {content}");
    }
    assert!(told[1].contains("a.txt:1:CODE=a") && told[1].contains("private/open.txt:1:CODE=open"), "{}", told[1]);
    assert!(told[1].contains("1 file or folder that a rule denies was skipped"), "{}", told[1]);
    assert!(!told[3].contains("x.txt"), "{}", told[3]);
    assert!(!told[4].contains("x.txt"), "no name either: {}", told[4]);
    for index in [0, 4, 5, 6, 7, 8] {
        assert!(told[index].contains("is denied by a rule"), "{index}: {}", told[index]);
    }
    assert!(told[9].contains("CODE=open"));
}

/// Whether a passage occurs says what a file holds: one that is not read unasked must not tell it either.
#[test]
fn a_patch_tells_nothing_of_a_file_that_is_not_read_unasked() {
    let guess = |path: &str, text: &str| patch(&json!([{"path": path, "before": text, "after": "X"}]));
    let both = |path: &str, text: &str| {
        patch(&json!([
            {"path": path, "before": text, "after": "X"}, {"path": "nowhere", "before": "a", "after": "b"}
        ]))
    };
    let case =
        Case::new().file(".env", "TOKEN=hunter2\n").rules([json!({"type": "write", "allow": true, "path": "."})]);
    let outside = case.home().join("notes.txt");
    std::fs::write(&outside, "TOKEN=hunter2\n").unwrap();
    let outside = outside.to_str().unwrap();
    for path in [".env", outside] {
        let told = told(
            &case,
            &[guess(path, "hunter2"), guess(path, "hunter3"), both(path, "hunter2"), both(path, "hunter3")],
        );
        let last = &told[told.len() - 4..];
        for content in last {
            assert!(content.starts_with("Denied: it would have to ask a person"), "{path}: {content}");
            assert_eq!(content.replace("as things stand it would fail", ""), *content, "{content}");
        }
        assert_eq!((&last[0], &last[2]), (&last[1], &last[3]), "right and wrong guesses look the same");
    }
    assert_eq!(case.read(".env"), "TOKEN=hunter2\n");
}

#[test]
fn a_person_decides_about_a_patch_of_a_secret_before_the_model_learns_whether_it_fits() {
    let case = Case::new().file(".env", "TOKEN=hunter2\n");
    let (name, arguments) = patch(&json!([{"path": ".env", "before": "hunter3", "after": "X"}]));
    case.server().script([reply().call(name, arguments), reply().text("done")]);
    case.run(["tell", "go"]).exit(10).stderr_contains("as things stand it would fail");
    case.run(["approve"]).exit(0);
    assert_eq!(case.result("call_1")["code"], "patch_mismatch");
    assert_eq!(case.read(".env"), "TOKEN=hunter2\n");
}

#[test]
fn a_secret_is_not_moved_to_where_it_would_be_read() {
    let case =
        Case::new().file(".env", "TOKEN=hunter2\n").rules([json!({"type": "write", "allow": true, "path": "."})]);
    let moved = patch(&json!([{"path": ".env", "move_to": "plain.txt"}]));
    assert!(told(&case, &[moved])[0].starts_with("Denied: it would have to ask a person"));
    assert!(!case.exists("plain.txt"));
}

/// What was shown may still not run where a rule denies it by now.
#[test]
fn an_approval_does_not_beat_a_rule_that_denies() {
    let touch = || reply().call("command", json!({"argv": ["touch", "ran"]}));
    let case = Case::new().script([touch(), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.write(
        ".attini/permissions.jsonl",
        json_lines([json!({"type": "command", "allow": false, "args_prefix": ["touch"]})]),
    );
    case.run(["approve"]).exit(0);
    assert_eq!(case.result("call_1")["status"], "denied");
    assert!(!case.exists("ran"));
    let case = Case::new().script([touch(), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "--deny", "command:touch"]).exit(0);
    assert_eq!(case.result("call_1")["status"], "denied");
    assert!(!case.exists("ran"));
}
