//! `attini undo`: the files of a turn's patches put back, all or none, and the model told.

use std::fs;

use serde_json::{Value, json};

use crate::support::*;

fn patch(edits: &Value) -> Reply {
    reply().call("patch", json!({"edits": edits}))
}

/// A workspace in which any patch runs.
fn case() -> Case {
    Case::new()
        .file("a.txt", "one\n")
        .file("b.txt", "two\n")
        .file("gone.sh", "#!/bin/sh\n")
        .rules([json!({"type": "write", "allow": true, "path": "."})])
}

/// One turn that edits, makes, removes and moves.
fn changed() -> Case {
    let case = case().script([
        patch(&json!([
            {"path": "a.txt", "before": "one", "after": "1"},
            {"path": "new/c.txt", "content": "made\n"},
            {"path": "gone.sh", "delete": true},
            {"path": "b.txt", "move_to": "moved.txt"}
        ])),
        patch(&json!([{"path": "a.txt", "before": "1", "after": "uno"}])),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0);
    case
}

fn texts(request: &RecordedRequest) -> String {
    request.body["messages"].to_string()
}

#[test]
fn every_file_of_the_turn_is_put_back_and_the_model_is_told_once() {
    let case = changed();
    case.run(["undo", "--dry-run"]).exit(0).stdout(
        "would be as it was: a.txt\nwould be removed: new/c.txt\nwould be made again: gone.sh\n\
         would be made again: b.txt\nwould be removed: moved.txt\n",
    );
    assert_eq!(case.read("a.txt"), "uno\n");
    case.run(["undo"])
        .exit(0)
        .stdout("as it was: a.txt\nremoved: new/c.txt\nmade again: gone.sh\nmade again: b.txt\nremoved: moved.txt\n");
    assert_eq!((case.read("a.txt"), case.read("b.txt")), ("one\n".to_owned(), "two\n".to_owned()));
    assert_eq!(case.read("gone.sh"), "#!/bin/sh\n");
    assert!(!case.exists("new/c.txt") && !case.exists("moved.txt"));
    case.run(["undo"]).exit(3).stderr_contains("turn 1 is undone already");
    case.server().script([reply().text("I see."), reply().text("Again.")]);
    case.run(["tell", "and now?"]).exit(0);
    let sent = texts(&case.server().last_request());
    assert!(sent.contains("The user has undone what your patches changed in turn 1") && sent.contains("and now?"));
    assert!(sent.contains("gone.sh (made again)"), "{sent}");
    case.run(["tell", "once more"]).exit(0);
    assert_eq!(texts(&case.server().last_request()).matches("has undone").count(), 1);
    case.run(["check"]).exit(0);
}

#[test]
fn json_names_what_was_put_back() {
    let case = changed();
    let object = case.run(["--output", "json", "undo", "1"]).exit(0).json();
    assert_eq!((&object["type"], &object["turn"], &object["dry_run"]), (&json!("undo"), &json!(1), &json!(false)));
    assert_eq!(object["files"][0], json!({"path": "a.txt", "outcome": "as it was"}));
}

#[test]
fn nothing_is_touched_where_one_file_was_changed_since() {
    for spoil in [
        |case: &Case| case.write("a.txt", "someone else's\n"),
        |case: &Case| fs::remove_file(case.path("a.txt")).unwrap(),
        |case: &Case| case.write("gone.sh", "back by hand\n"),
        |case: &Case| {
            fs::remove_file(case.path("a.txt")).unwrap();
            std::os::unix::fs::symlink("b.txt", case.path("a.txt")).unwrap();
        },
    ] {
        let case = changed();
        spoil(&case);
        let refused = case.run(["undo"]).exit(17);
        refused.stderr_contains("turn 1 cannot be undone, and nothing was touched");
        assert!(case.exists("new/c.txt") && case.exists("moved.txt"));
        assert!(!case.record_types().contains(&"notice".to_owned()));
    }
}

#[test]
fn what_is_as_it_was_already_needs_nothing() {
    let case = changed();
    case.write("a.txt", "one\n");
    case.run(["undo"]).exit(0);
    assert_eq!(case.read("b.txt"), "two\n");
}

#[test]
fn an_earlier_turn_is_undone_where_later_ones_left_its_files_alone() {
    let case = case().script([
        patch(&json!([{"path": "a.txt", "content": "first\n"}])),
        reply().text("done"),
        patch(&json!([{"path": "b.txt", "content": "second\n"}])),
        reply().text("done"),
        patch(&json!([{"path": "b.txt", "content": "third\n"}])),
        reply().text("done"),
        reply().text("nothing to do"),
    ]);
    for prompt in ["1", "2", "3", "4"] {
        case.run(["tell", prompt]).exit(0);
    }
    case.run(["undo"]).exit(3).stderr_contains("these turns have patches: 1, 2, 3");
    case.run(["undo", "2"]).exit(17).stderr_contains("b.txt (it was changed since)");
    case.run(["undo", "1"]).exit(0).stdout("as it was: a.txt\n");
    case.run(["undo", "3"]).exit(0);
    assert_eq!(case.read("b.txt"), "second\n");
    case.run(["undo", "2"]).exit(0);
    assert_eq!(case.read("b.txt"), "two\n");
    case.run(["undo", "9"]).exit(3);
    case.run(["undo", "0"]).exit(2);
}

#[test]
fn a_turn_that_waits_is_not_undone() {
    let case = case().script([
        patch(&json!([{"path": "a.txt", "content": "first\n"}])).call("command", json!({"argv": ["true"]})),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(10);
    case.run(["undo"]).exit(17).stderr_contains("the call call_2 has no result yet");
    case.run(["deny"]).exit(0);
    case.run(["undo"]).exit(0).stdout("as it was: a.txt\n");
}

#[test]
fn operations_of_one_call_are_undone_each() {
    let case = case().config("[tools.patch]\nfan_out = true\n").script([
        reply().call(
            "patch",
            json!({"ops": [
                {"edits": [{"path": "a.txt", "before": "one", "after": "1"}]},
                {"edits": [{"path": "a.txt", "before": "1", "after": "uno"}]}
            ]}),
        ),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0);
    assert_eq!(case.read("a.txt"), "uno\n");
    case.run(["undo"]).exit(0);
    assert_eq!(case.read("a.txt"), "one\n");
}

#[test]
fn what_lies_outside_is_put_back_when_asked_for_and_what_may_not_be_written_never() {
    let case = case();
    let outside = case.home().join("notes.txt");
    fs::write(&outside, "mine\n").unwrap();
    let path = outside.to_str().unwrap();
    case.server().script([patch(&json!([{"path": path, "content": "theirs\n"}])), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve"]).exit(0);
    case.run(["undo"]).exit(17).stderr_contains("it lies outside the workspace");
    case.run(["undo", "--outside"]).exit(0);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine\n");
}

/// A session from elsewhere may say anything of itself; what it would write is held to the same bounds.
#[test]
fn a_session_that_lies_puts_nothing_where_nothing_may_be_written() {
    let case = changed().without_invariants();
    let log = case.session_path("main", "conversation.jsonl");
    let index = case.session_path("main", "before/call_1.json");
    let honest = (fs::read_to_string(&log).unwrap(), fs::read_to_string(&index).unwrap());
    let hook = |text: &str| text.replace("\"gone.sh\"", "\".git/hooks/post-checkout\"");
    fs::write(&index, hook(&honest.1)).unwrap();
    case.run(["undo"]).exit(17).stderr_contains("what was kept is of other files");
    fs::write(&log, hook(&honest.0)).unwrap();
    case.run(["undo"]).exit(17).stderr_contains(".git/hooks/post-checkout is not put back");
    assert!(!case.exists(".git/hooks/post-checkout"));
    assert_eq!(case.read("a.txt"), "uno\n", "all or nothing");
    fs::write(&log, &honest.0).unwrap();
    fs::write(&index, &honest.1).unwrap();
    fs::write(case.session_path("main", "before/call_1.0"), "another image").unwrap();
    case.run(["undo"]).exit(17).stderr_contains("is not what was kept");
    fs::remove_file(&index).unwrap();
    case.run(["undo"]).exit(17).stderr_contains("nothing was kept");
}

/// A kill in the middle leaves temporary files beside the sources, and the trace that tells where.
#[test]
fn what_a_killed_undo_left_goes_with_whatever_comes_next() {
    for next in [&["undo"][..], &["undo", "--dry-run"], &["tell", "go on"], &["sessions", "prune"]] {
        let case = changed();
        if next[0] == "tell" {
            case.server().script([reply().text("went on")]);
        }
        fs::create_dir_all(case.path("new")).unwrap();
        // The highest id that Linux allows is 4194304, so that no process has this one.
        let left = [".attini-tmp-4999999-7-0", "new/.attini-tmp-4999999-7-1"];
        for path in left {
            case.write(path, "half");
        }
        let trace = case.session_path("main", "undo.json");
        fs::write(&trace, json!({"paths": ["a.txt", "new/c.txt"]}).to_string()).unwrap();
        fs::set_permissions(&trace, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        case.run(next).exit(0);
        assert!(left.iter().all(|path| !case.exists(path)) && !trace.exists(), "{next:?}");
    }
    let case = changed();
    case.run(["undo"]).exit(0);
    assert!(!case.session_path("main", "undo.json").exists());
}

#[test]
fn without_a_session_there_is_nothing_to_undo() {
    Case::new().run(["undo"]).exit(3).stderr_contains("there is no session main");
}
