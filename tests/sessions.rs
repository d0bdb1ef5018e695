//! `attini sessions`: a session is listed, copied, taken elsewhere and removed as a whole.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::*;

/// Everything below a folder but locks: path and bytes.
fn tree(root: &Path) -> Vec<(String, Vec<u8>)> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else if path.file_name().is_some_and(|name| name != "lock") {
                found.push((path.strip_prefix(root).unwrap().display().to_string(), fs::read(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort();
    found
}

/// Writes a file as private as a session's own.
fn write_private(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn names(case: &Case) -> Vec<String> {
    let entries = fs::read_dir(case.path(".attini/sessions")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A copy of the workspace's own files beside it.
fn other_workspace(case: &Case) -> PathBuf {
    let other = case.path("../other");
    fs::create_dir(&other).unwrap();
    for entry in fs::read_dir(case.workspace()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, other.join(path.file_name().unwrap())).unwrap();
        }
    }
    other
}

fn suspended(case: Case) -> Case {
    let case = case.script([
        reply().command(&["seq", "20000"]),
        reply().replace("a.txt", "one", "eins").command(&["sh", "-c", "echo ran > ran.txt"]),
    ]);
    case.run(["tell", "go", "--allow", "command:seq"]).exit(10);
    case
}

#[test]
fn sessions_are_listed_with_their_state_the_last_used_first() {
    let case = Case::new().script([reply().text("done"), reply().mark("a")]).with_unplayed_replies();
    case.run(["sessions", "list"]).exit(0).stdout("").stderr("");
    case.run(["tell", "go", "-s", "old"]).exit(0);
    fs::File::options()
        .append(true)
        .open(case.session_path("old", "conversation.jsonl"))
        .and_then(|file| file.set_modified(std::time::SystemTime::UNIX_EPOCH))
        .unwrap();
    case.run(["tell", "go"]).exit(10);
    case.run(["sessions", "list"]).exit(0).stdout_contains("old   idle               [TIME]     1 turn");
    let object = case.run(["sessions", "list", "--output", "json"]).exit(0).json();
    let listed = object["sessions"].as_array().unwrap();
    let states: Vec<_> = listed.iter().map(|one| (&one["name"], &one["state"], &one["turns"])).collect();
    assert_eq!(
        states,
        [(&json!("main"), &json!("awaiting_approval"), &json!(1)), (&json!("old"), &json!("idle"), &json!(1))]
    );
    assert!(listed.iter().all(|one| one["size_bytes"].as_u64().is_some_and(|bytes| bytes > 100)));
}

#[test]
fn a_session_is_removed_as_a_whole_and_not_while_it_waits_or_runs() {
    let latch = Latch::new();
    let case = Case::new().script([reply().mark("a"), reply().text("done").hold(&latch)]);
    case.run(["tell", "go"]).exit(10);
    case.run(["sessions", "rm", "other"]).exit(3);
    case.run(["sessions", "rm", "../main"]).exit(2);
    case.run(["sessions", "rm", "main"]).exit(17).stderr_contains("waits for a decision");
    let running = case.start(["approve"]);
    case.server().wait_requests(2);
    case.run(["sessions", "rm", "main", "--force"]).exit(12);
    case.run(["sessions", "fork", "main", "copy"]).exit(12);
    case.run(["sessions", "export", "main", "x.tar.gz"]).exit(12);
    latch.release();
    running.wait().exit(0);
    case.run(["sessions", "rm", "main"]).exit(0).stdout("removed the session main\n");
    assert_eq!(names(&case), Vec::<String>::new());
    case.run(["sessions", "rm", "main"]).exit(3);
}

#[test]
fn a_suspended_session_is_removed_by_force() {
    let case = suspended(Case::new().git().file("a.txt", "one\n"));
    case.run(["sessions", "rm", "main", "--force"]).exit(0);
    assert_eq!(names(&case), Vec::<String>::new());
}

#[test]
fn a_fork_is_a_session_of_its_own_in_which_nothing_waits() {
    let case = suspended(Case::new().git().file("a.txt", "one\n"));
    case.server().script([reply().text("forked"), reply().text("approved")]);
    let before = tree(&case.session_path("main", ""));
    let object = case.run(["sessions", "fork", "main", "copy", "--output", "json"]).exit(0).json();
    assert_eq!((&object["session"], &object["cancelled"]), (&json!("copy"), &json!(["call_3"])));
    assert_eq!(tree(&case.session_path("main", "")), before, "the source is as it was");
    let (main, copy) = (case.records(), case.records_of("copy"));
    assert_ne!(main[0]["id"], copy[0]["id"]);
    assert_eq!(copy[0]["forked_from"], main[0]["id"]);
    assert_eq!(&copy[1..main.len()], &main[1..]);
    let [repair] = &copy[main.len()..] else { panic!("{copy:?}") };
    assert_eq!((&repair["status"], &repair["reason"]), (&json!("cancelled"), &json!("unanswered_tool_call_repair")));
    for folder in ["outputs", "before"] {
        assert_eq!(tree(&case.session_path("copy", folder)), tree(&case.session_path("main", folder)), "{folder}");
        assert_ne!(tree(&case.session_path("copy", folder)), []);
    }
    case.run(["sessions", "fork", "main", "copy"]).exit(2).stderr_contains("there is a session copy already");
    case.run(["approve", "-s", "copy"]).exit(3);
    case.server().allow_rewritten_history();
    case.run(["resume", "-s", "copy"]).exit(0).stdout("forked\n");
    case.run(["approve"]).exit(0).stdout("approved\n");
    assert_eq!(names(&case), ["copy", "main"]);
}

#[test]
fn rules_go_with_a_fork_and_those_of_the_turn_do_not() {
    let case = Case::new()
        .untrusted()
        .script([
            reply().mark("a").mark("b"),
            reply().mark("a").command(&["echo", "no"]),
            reply().text("done"),
            reply().mark("a"),
            reply().text("forked"),
        ])
        .with_unplayed_replies();
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1", "--grant", "session"]).exit(10);
    case.run(["approve", "call_2", "--grant", "turn"]).exit(10);
    case.run(["sessions", "fork", "main", "copy"]).exit(0);
    let rules = fs::read_to_string(case.session_path("copy", "permissions.jsonl")).unwrap();
    assert_eq!(rules.lines().count(), 1, "{rules}");
    // The rule was trusted, and is.
    case.server().script([]);
    let shown = case.run(["trust", "-s", "copy"]).exit(0);
    shown.stdout_contains("copy/permissions.jsonl (trusted)");
}

#[test]
fn an_exported_session_is_approved_elsewhere() {
    for state_elsewhere in [false, true] {
        let case = suspended(Case::new().git().file("a.txt", "one\n"));
        case.server().script([reply().text("approved there")]);
        case.run(["sessions", "export", "main", "../main.tar.gz"]).exit(0);
        case.run(["sessions", "export", "main", "../again.tar.gz"]).exit(0);
        let bytes = fs::read(case.path("../main.tar.gz")).unwrap();
        assert_eq!(bytes, fs::read(case.path("../again.tar.gz")).unwrap());
        let piped = case.run(["sessions", "export", "main", "-"]).exit(0);
        assert_eq!(piped.stdout_bytes(), bytes);
        case.run(["--output", "json", "sessions", "export", "main", "-"]).exit(2);
        let other = other_workspace(&case);
        let state = case.path("../state");
        let there = |arguments: &[&str], code: i32| {
            let place = ["-C", other.to_str().unwrap()];
            let mut invocation = case.attini(place.iter().chain(arguments));
            if state_elsewhere {
                invocation = invocation.env("ATTINI_STATE_DIR", &state);
            }
            invocation.run().exit(code)
        };
        there(&["sessions", "import", "../main.tar.gz"], 0).stdout("imported the session main\n");
        there(&["sessions", "import", "../main.tar.gz"], 2).stderr_contains("--as NAME");
        there(&["sessions", "import", "../main.tar.gz", "--as", "main"], 2);
        let sessions = if state_elsewhere { state.join("sessions") } else { other.join(".attini/sessions") };
        let log = String::from_utf8(fs::read(sessions.join("main/conversation.jsonl")).unwrap()).unwrap();
        let mut expected = tree(&case.session_path("main", ""));
        let (_, original) = expected.iter_mut().find(|(path, _)| path == "conversation.jsonl").unwrap();
        let added = log.as_bytes().strip_prefix(original.as_slice()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(added).unwrap()["type"], "imported");
        original.extend(added);
        assert_eq!(tree(&sessions.join("main")), expected);
        assert!(!log.contains(case.workspace().to_str().unwrap()), "no place of the first machine is in it");
        there(&["approve"], 0).stdout("approved there\n");
        assert!(other.join("ran.txt").exists() && !case.exists("ran.txt"));
    }
}

#[test]
fn a_patch_whose_files_differ_there_is_stale() {
    let case =
        Case::new().file("a.txt", "one\n").script([reply().replace("a.txt", "one", "eins"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["sessions", "export", "main", "../main.tar.gz"]).exit(0);
    let other = other_workspace(&case);
    fs::write(other.join("a.txt"), "one\nmore\n").unwrap();
    let place = ["-C", other.to_str().unwrap()];
    case.run(place.iter().chain(&["sessions", "import", "../main.tar.gz", "--as", "ci"])).exit(0);
    case.run(place.iter().chain(&["-s", "ci", "approve"])).exit(0).stdout("done\n");
    assert_eq!(fs::read_to_string(other.join("a.txt")).unwrap(), "one\nmore\n");
    assert!(case.server().last_request().result("call_1").contains("a.txt"));
    let log = fs::read_to_string(other.join(".attini/sessions/ci/conversation.jsonl")).unwrap();
    let result =
        log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).find(|one| one["type"] == "tool_result");
    assert_eq!(result.unwrap()["code"], "stale");
}

#[test]
fn what_was_allowed_elsewhere_is_not_allowed_here() {
    let case = Case::new().script([reply().mark("a").mark("b"), reply().text("done")]).with_unplayed_replies();
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1"]).exit(10);
    let rules = "# kept\n{\"type\":\"command\",\"allow\":true,\"args_prefix\":[]}\n{\"type\":\"read\",\"allow\":false,\"path\":\"x\"}\n";
    write_private(&case.session_path("main", "permissions.jsonl"), rules);
    case.run(["sessions", "export", "main", "../main.tar.gz"]).exit(0);
    let import = |name: &str, more: &[&str]| {
        let arguments = ["sessions", "import", "../main.tar.gz", "--as", name];
        case.run(arguments.iter().chain(more)).exit(0)
    };
    import("strict", &[]).stderr(
        "warning: 1 rule that would allow something left out; --with-rules keeps them\n\
         warning: 1 approval left out; look at the calls, and approve them again\n",
    );
    let kept = fs::read_to_string(case.session_path("strict", "permissions.jsonl")).unwrap();
    assert_eq!(kept, "# kept\n{\"type\":\"read\",\"allow\":false,\"path\":\"x\"}\n");
    import("whole", &["--with-rules"]).stderr_contains("they count once");
    assert_eq!(fs::read_to_string(case.session_path("whole", "permissions.jsonl")).unwrap(), rules);
    let decisions = |session: &str| {
        let pending = fs::read(case.session_path(session, "pending.json")).unwrap();
        let pending: Value = serde_json::from_slice(&pending).unwrap();
        assert_eq!(pending["session"], session);
        let calls = pending["calls"].as_array().unwrap();
        calls.iter().map(|call| call["decision"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(decisions("strict"), [Value::Null, Value::Null]);
    assert_eq!(decisions("whole"), [json!("approve"), Value::Null]);
    // An allowing rule counts only once it is trusted.
    let untrusted = case.attini(["trust", "-s", "whole"]).unset("ATTINI_TRUST_WORKSPACE").run().exit(0);
    untrusted.stdout_contains("whole/permissions.jsonl (not trusted)");
}

/// An archive may say that anything was granted with a call; nothing of it is stored here.
#[test]
fn rules_that_were_granted_elsewhere_are_not_stored_here() {
    let case = Case::new().marks().script([reply().mark("a").mark("b").mark("a")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1", "--grant", "workspace"]).exit(10);
    case.run(["sessions", "export", "main", "../main.tar.gz"]).exit(0);
    for (name, more, first) in [("strict", &[][..], Value::Null), ("whole", &["--with-rules"], json!("approve"))] {
        let arguments = ["sessions", "import", "../main.tar.gz", "--as", name];
        let ended = case.run(arguments.iter().chain(more)).exit(0);
        ended.stderr_contains("warning: rules that were granted with 2 calls left out; nothing is stored here\n");
        let pending: Value =
            serde_json::from_slice(&fs::read(case.session_path(name, "pending.json")).unwrap()).unwrap();
        let calls = pending["calls"].as_array().unwrap();
        assert!(calls.iter().all(|call| call.get("granted").is_none()), "{pending}");
        let decisions: Vec<&Value> = calls.iter().map(|call| &call["decision"]).collect();
        assert_eq!(decisions, [&first, &Value::Null, &Value::Null], "what a granted rule settled asks again");
        case.server().script([reply().text("done")]);
        case.run(["-s", name, "approve"]).exit(0).stdout("done\n").stderr_lacks("stored in");
        assert!(!case.exists(".attini/permissions.jsonl"));
    }
    assert_eq!(case.order(), ["a", "b", "a", "a", "b", "a"]);
}

/// The archive says that attini wrote a file; here it is the user's own.
#[test]
fn what_was_written_elsewhere_is_not_attinis_here() {
    for more in [&[][..], &["--with-rules"]] {
        let case = Case::new().file("a.txt", "before\n").rules([json!({"type": "write", "allow": true, "path": "."})]);
        case.server().script([
            reply().replace("a.txt", "before", "after"),
            reply().text("done"),
            reply().replace("a.txt", "after", "lost"),
            reply().text("approved"),
        ]);
        case.run(["tell", "go"]).exit(0);
        case.run(["sessions", "export", "main", "../main.tar.gz"]).exit(0);
        let other = case.path("../other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("a.txt"), "after\n").unwrap();
        let there = |arguments: &[&str], code: i32| {
            case.run(["-C", other.to_str().unwrap()].iter().chain(arguments)).exit(code)
        };
        let import = ["sessions", "import", "../main.tar.gz"];
        there(&import.iter().chain(more).copied().collect::<Vec<_>>(), 0);
        there(&["undo"], 3).stderr_contains("before the session came here");
        there(&["sessions", "fork", "main", "copy"], 0);
        there(&["undo", "-s", "copy"], 3);
        there(&["check"], 0);
        assert_eq!(fs::read_to_string(other.join("a.txt")).unwrap(), "after\n");
        // It would run unasked if the file counted as attini's.
        there(&["tell", "again"], 10);
        assert_eq!(fs::read_to_string(other.join("a.txt")).unwrap(), "after\n");
        there(&["approve"], 0);
        assert_eq!(fs::read_to_string(other.join("a.txt")).unwrap(), "lost\n");
        there(&["undo"], 0).stdout("as it was: a.txt\n");
        assert_eq!(fs::read_to_string(other.join("a.txt")).unwrap(), "after\n");
    }
}

#[test]
fn what_is_no_file_is_left_out_and_said_so() {
    let case = Case::new().script([reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    fs::create_dir_all(case.session_path("main", "scratchpad/deep")).unwrap();
    fs::set_permissions(case.session_path("main", "scratchpad"), fs::Permissions::from_mode(0o700)).unwrap();
    case.write(".attini/sessions/main/scratchpad/note", "kept");
    case.program("mkfifo", [".attini/sessions/main/scratchpad/deep/pipe"]).run().exit(0);
    let warning = "warning: scratchpad/deep/pipe is no regular file; it is left out\n";
    case.run(["sessions", "export", "main", "x.tar.gz"]).exit(0).stderr(warning);
    case.run(["sessions", "fork", "main", "copy"]).exit(0).stderr(warning);
    case.run(["sessions", "import", "x.tar.gz", "--as", "third"]).exit(0).stderr("");
    for session in ["copy", "third"] {
        assert_eq!(fs::read_to_string(case.session_path(session, "scratchpad/note")).unwrap(), "kept");
        assert!(!case.session_path(session, "scratchpad/deep/pipe").exists());
    }
    case.run(["sessions", "rm", "main"]).exit(0);
}

#[test]
fn what_is_no_sound_session_is_not_imported_and_leaves_nothing() {
    let case = Case::new().script([reply().text("done")]).without_invariants();
    case.run(["tell", "go"]).exit(0);
    let log = case.session_path("main", "conversation.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let last = whole.lines().last().unwrap();
    fs::write(&log, format!("{whole}{{\"type\":\"turn_end\"}}\n{last}\n")).unwrap();
    case.run(["sessions", "export", "main", "x.tar.gz"]).exit(16);
    // Packed by other means, as an enemy would.
    let packed = case.program("tar", ["czf", "enemy.tar.gz", "--format=gnu", "-C", ".attini/sessions", "main"]).run();
    packed.exit(0);
    case.run(["sessions", "import", "enemy.tar.gz", "--as", "x"]).exit(2).stderr_contains("main/lock");
    let without_lock = ["czf", "enemy.tar.gz", "--exclude=lock", "-C", ".attini/sessions", "main"];
    case.program("tar", without_lock).run().exit(0);
    let refused = case.run(["sessions", "import", "enemy.tar.gz", "--as", "x"]).exit(16);
    refused.stdout("").stderr_contains("conversation.jsonl:").stderr_contains("nothing was imported");
    case.write("nonsense", "no archive");
    case.run(["sessions", "import", "nonsense", "--as", "x"]).exit(2);
    case.run(["sessions", "import", "missing", "--as", "x"]).exit(2);
    assert_eq!(names(&case), ["main"]);
}

#[test]
fn pruning_takes_what_was_left_and_what_is_old() {
    let case =
        Case::new().script([reply().text("done"), reply().text("done"), reply().mark("a")]).with_unplayed_replies();
    for (session, code) in [("old", 0), ("new", 0), ("waits", 10)] {
        case.run(["tell", "go", "-s", session]).exit(code);
    }
    for session in ["old", "waits"] {
        for file in ["conversation.jsonl", "pending.json"] {
            if let Ok(file) = fs::File::options().append(true).open(case.session_path(session, file)) {
                file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            }
        }
    }
    let trash = case.path(".attini/sessions/.attini-tmp-1-2/outputs");
    fs::create_dir_all(&trash).unwrap();
    fs::write(trash.join("x"), "x").unwrap();
    write_private(&case.session_path("new", ".attini-tmp-1-3"), "x");
    let would = "would remove .attini-tmp-1-2\nwould remove old\n";
    case.run(["sessions", "prune", "--older-than", "30", "--dry-run"]).exit(0).stdout(would);
    case.run(["sessions", "prune"]).exit(0).stdout("removed .attini-tmp-1-2\n");
    assert_eq!(names(&case), ["new", "old", "waits"]);
    assert!(!case.session_path("new", ".attini-tmp-1-3").exists());
    let object = case.run(["sessions", "prune", "--older-than", "30", "--output", "json"]).exit(0).json();
    assert_eq!(object["removed"], json!(["old"]));
    assert_eq!(names(&case), ["new", "waits"]);
    case.run(["sessions", "prune", "--older-than", "30"]).exit(0).stdout("");
}
