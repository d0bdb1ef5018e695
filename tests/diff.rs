//! `attini diff`: what git makes of its output is what approving makes of the files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Case, Reply, reply};

/// What every file in a folder holds, and whether its owner may execute it; git's and attini's own left out.
fn tree(root: &Path) -> BTreeMap<String, (bool, Vec<u8>)> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, (bool, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != ".attini" && name != ".git" {
                    walk(root, &path, found);
                }
            } else {
                let executes = path.metadata().unwrap().permissions().mode() & 0o100 != 0;
                found.insert(name, (executes, fs::read(&path).unwrap()));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

/// Writes what was found into another folder.
fn copy(found: &BTreeMap<String, (bool, Vec<u8>)>, to: &Path) {
    for (name, (executes, bytes)) in found {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(if *executes { 0o755 } else { 0o644 })).unwrap();
    }
}

#[track_caller]
fn git_apply(folder: &Path, options: &[&str], diff: &[u8]) -> Result<(), String> {
    let mut child = Command::new("git")
        .args(["-c", "core.autocrlf=false", "apply", "--whitespace=nowarn"])
        .args(options)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), diff).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// A script of one reply with a patch for each list of edits.
fn patches(lists: &[Value]) -> Reply {
    lists.iter().fold(reply(), |reply, edits| reply.call("patch", json!({ "edits": edits })))
}

fn files() -> Case {
    let long = (1..=40).fold(String::new(), |text, number| format!("{text}line {number}\n"));
    let case = Case::new()
        .file("f", "one\ntwo\nthree\n")
        .file("g", "gee\n")
        .file("long", long)
        .file("run.sh", "#!/bin/sh\necho run\n")
        .file("latin", b"caf\xe9 one\nplain two\n")
        .file("binary", b"\0\x01\xff\xfe\n\0end")
        .file("crlf", "1\r\n2\r\n")
        .file("open", "no end")
        .file("empty", "");
    fs::set_permissions(case.path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    case
}

fn edit(path: &str, before: &str, after: &str) -> Value {
    json!([{"path": path, "before": before, "after": after}])
}

fn create(path: &str, content: &str) -> Value {
    json!([{"path": path, "content": content}])
}

fn delete(path: &str) -> Value {
    json!([{"path": path, "delete": true}])
}

fn move_to(path: &str, to: &str) -> Value {
    json!([{"path": path, "move_to": to}])
}

fn stacks() -> Vec<Vec<Value>> {
    vec![
        vec![edit("f", "one", "eins")],
        vec![edit("f", "one", "eins"), move_to("f", "m"), edit("m", "two", "zwei")],
        vec![move_to("f", "m"), move_to("m", "n/o")],
        vec![create("n", "new\n"), move_to("n", "o")],
        vec![create("n", "new\n"), move_to("n", "o"), edit("o", "new", "newer")],
        vec![create("n", "new\n"), delete("n"), edit("g", "gee", "ji")],
        vec![move_to("f", "m"), move_to("m", "f"), edit("f", "two", "zwei")],
        vec![edit("f", "one", "eins"), edit("f", "eins", "one"), edit("g", "gee", "ji")],
        vec![delete("f"), create("f", "another\n")],
        vec![delete("f"), move_to("g", "f")],
        vec![move_to("f", "m"), create("f", "another\n"), edit("m", "two", "zwei")],
        vec![move_to("f", "t"), move_to("g", "f"), move_to("t", "g")],
        vec![move_to("run.sh", "go.sh"), edit("go.sh", "echo run", "echo go"), create("run.sh", "plain\n")],
        vec![move_to("run.sh", "go.sh"), delete("go.sh")],
        vec![move_to("run.sh", "go.sh"), create("new", "x\n"), move_to("new", "run.sh")],
        vec![edit("latin", "plain two", "plain 2")],
        vec![edit("latin", "plain two", "plain 2"), move_to("latin", "n/latin"), edit("n/latin", "plain 2", "3")],
        vec![delete("latin"), delete("binary")],
        vec![create("binary", "text now\n")],
        vec![move_to("binary", "n/binary"), create("binary", "text\n")],
        vec![move_to("binary", "b"), edit("b", "end", "ende"), move_to("b", "c")],
        vec![edit("crlf", "2", "zwei"), edit("open", "no end", "no end still"), create("empty", "x")],
        vec![move_to("empty", "e"), move_to("open", "o"), edit("o", "no end", "end\n")],
        vec![edit("long", "line 3\n", ""), edit("long", "line 30\n", "x\n"), edit("long", "line 31\n", "y\n")],
        vec![json!([{"path": "f", "move_to": "m"}, {"path": "m", "before": "one", "after": "1"}]), move_to("m", "mm")],
        vec![create("with space", "1\n"), move_to("with space", "täb\tand \"quotes\"")],
    ]
}

#[test]
fn git_makes_of_the_diff_what_approving_makes() {
    for stack in stacks() {
        let case = files();
        case.server().script([patches(&stack), reply().text("done")]);
        case.run(["tell", "go"]).exit(10);
        let shown = case.run(["diff"]).exit(0);
        shown.stderr("");
        let diff = shown.stdout_bytes();
        let before = tree(&case.workspace());
        let text = String::from_utf8_lossy(diff);
        if let Err(complaint) = git_apply(&case.workspace(), &["--check"], diff) {
            panic!("{stack:?}: {complaint}\n{text}");
        }
        let other = case.path("../other");
        copy(&before, &other);
        assert_eq!(git_apply(&other, &[], diff), Ok(()), "{stack:?}\n{text}");
        case.run(["approve"]).exit(0);
        for number in 1..=stack.len() {
            assert_eq!(case.outcome_of(&format!("call_{number}")).0, "ok", "{stack:?}");
        }
        assert_eq!(tree(&other), tree(&case.workspace()), "{stack:?}\n{text}");
    }
}

#[test]
fn a_patch_is_shown_with_what_it_stands_on_and_nothing_else() {
    let stack = [edit("f", "one", "eins"), edit("g", "gee", "ji"), move_to("f", "m"), edit("m", "two", "zwei")];
    let case = files().with_unplayed_replies();
    case.server().script([patches(&stack)]);
    case.run(["tell", "go"]).exit(10);
    case.run(["diff", "call_4"]).exit(0).stderr("").stdout(
        "diff --git a/f b/m\nrename from f\nrename to m\n--- a/f\n+++ b/m\n@@ -1,3 +1,3 @@\n-one\n-two\n+eins\n+zwei\n three\n",
    );
    let first = case.run(["diff", "call_1"]).exit(0);
    first.stdout("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-one\n+eins\n two\n three\n");
    case.run(["diff", "call_9"]).exit(3);
    let object = case.run(["diff", "call_2", "--output", "json"]).exit(0).json();
    assert_eq!((&object["exact"], &object["outside"]), (&json!(true), &json!([])));
    assert!(object["diff"].as_str().unwrap().contains("-gee\n+ji\n"));
}

#[test]
fn what_a_rule_allows_is_shown_where_something_stands_on_it() {
    let case = files().with_unplayed_replies();
    let stack = [edit("g", "gee", "ji"), edit("f", "one", "eins"), edit("g", "ji", "tschi"), edit("f", "two", "zwei")];
    case.server().script([patches(&stack)]);
    // The first one asks; the second one waits behind it, and the fourth stands on that.
    case.run(["tell", "go", "--allow", "write:f"]).exit(10);
    let shown = case.run(["diff"]).exit(0);
    assert_eq!(git_apply(&case.workspace(), &["--check"], shown.stdout_bytes()), Ok(()), "{}", shown.stdout_text());
    assert!(shown.stdout_text().contains("+tschi"));
}

#[test]
fn parts_outside_the_workspace_are_left_out_whole() {
    let case = files().with_unplayed_replies();
    case.write("../elsewhere/h", "aitch\n");
    let stack = [
        move_to("f", "../elsewhere/f"),
        edit("g", "gee", "ji"),
        move_to("../elsewhere/h", "h"),
        edit("../elsewhere/f", "one", "eins"),
    ];
    case.server().script([patches(&stack)]);
    case.run(["tell", "go"]).exit(10);
    let shown = case.run(["diff"]).exit(0);
    shown.stdout("diff --git a/g b/g\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-gee\n+ji\n").stderr(
        "left out, since it lies outside the workspace: [CASE]/elsewhere/f, to which f is moved\n\
         left out, since it lies outside the workspace: h, to which [CASE]/elsewhere/h is moved\n",
    );
    assert_eq!(git_apply(&case.workspace(), &["--check"], shown.stdout_bytes()), Ok(()));
    let object = case.run(["diff", "--output", "json"]).exit(0).redacted_json();
    assert_eq!(object["outside"], json!(["[CASE]/elsewhere/f", "[CASE]/elsewhere/h"]));
}

#[test]
fn where_files_have_changed_since_what_was_shown_is_printed_and_that_is_said() {
    let case = files().with_unplayed_replies();
    case.server().script([patches(&[edit("f", "one", "eins"), move_to("g", "../elsewhere")])]);
    case.run(["tell", "go"]).exit(10);
    case.write("f", "one\nchanged\n");
    let shown = case.run(["diff"]).exit(0);
    shown.stdout("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-one\n+eins\n two\n three\n");
    shown.stderr_contains("warning: files have changed since").stderr_contains("[CASE]/elsewhere");
    assert_eq!(case.run(["diff", "--output", "json"]).exit(0).json()["exact"], json!(false));
}

#[test]
fn what_people_are_shown_of_bytes_that_are_no_text_says_so() {
    let case = files().with_unplayed_replies();
    case.server().script([patches(&[edit("latin", "plain two", "plain 2")])]);
    let told = case.run(["tell", "go"]).exit(10);
    told.stderr_contains("For reading: bytes that are no UTF-8 are shown as \\xNN").stderr_contains("caf\\xe9 one");
    let diff = case.run(["diff"]).exit(0);
    assert!(diff.stdout_bytes().windows(4).any(|bytes| bytes == b"caf\xe9"));
    assert_eq!(case.run(["diff", "--output", "json"]).exit(0).json()["exact"], json!(false));
}
