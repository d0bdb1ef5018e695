//! What a person's decisions come to: what the model is told, which rules a grant stores and when, and how a
//! pending.json that is not what the conversation says is refused.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, mark, mark_rule, pending_digest, reply};

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n")
}

/// Two commands that ask, and a patch that asks.
fn suspended() -> Case {
    let case = case().script([reply().mark("a").mark("b").replace("a.txt", "alpha", "one")]);
    case.run(["tell", "go"]).exit(10);
    case
}

fn session_rules(case: &Case) -> Vec<Value> {
    rules_in(&case.session_path("main", "permissions.jsonl"))
}

fn workspace_rules(case: &Case) -> Vec<Value> {
    rules_in(&case.path(".attini/permissions.jsonl"))
}

fn rules_in(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn decisions(case: &Case) -> Vec<String> {
    case.pending_calls().into_iter().map(|call| call.2).collect()
}

fn decision_record(case: &Case, call_id: &str) -> Value {
    let records = case.records();
    let found = records.iter().find(|record| record["type"] == "decision" && record["call_id"] == call_id);
    found.unwrap_or_else(|| panic!("no decision on {call_id}")).clone()
}

/// A change to a pending.json on disk.
type Change<'c> = &'c dyn Fn(&mut Value);

#[test]
fn the_model_is_told_who_denied_and_why() {
    let case = suspended();
    case.server().script([reply().text("done")]);
    case.run(["deny", "call_1", "--reason", "use the other script"]).exit(10);
    case.run(["deny", "call_2"]).exit(10);
    case.run(["approve", "call_3"]).exit(0);
    assert_eq!(case.read("a.txt"), "one\n");
    assert!(case.order().is_empty());
    let request = case.server().last_request();
    let told = request.result("call_1");
    assert!(told.contains("denied") && told.contains("use the other script") && told.contains("\nnext: "), "{told}");
    assert!(request.result("call_2").contains("gave no reason"));
    let record = decision_record(&case, "call_1");
    assert_eq!(
        (&record["decision"], &record["auto_decided_by"]["scope"], &record["reason"]),
        (&json!("deny"), &json!("person"), &json!("use the other script"))
    );
    let result = case.result("call_1");
    assert_eq!(
        (&result["status"], &result["code"], &result["reason"]),
        (&json!("denied"), &json!("denied"), &json!("use the other script"))
    );
}

#[test]
fn several_ids_are_decided_at_once() {
    let case = suspended();
    case.server().script([reply().text("done")]);
    case.run(["approve", "call_3", "call_1", "call_3"]).exit(10);
    assert_eq!(decisions(&case), ["approve", "-", "approve"]);
    case.run(["deny"]).exit(0);
    assert_eq!(case.order(), ["a"]);
    assert_eq!(case.read("a.txt"), "one\n");
}

#[test]
fn what_waits_is_shown_with_the_commands_to_type() {
    let case = suspended();
    let shown = case.run(["status"]).exit(0);
    let text = shown.stdout_text();
    for part in ["$ sh mark.sh a", "$ sh mark.sh b", "-alpha", "+one", "attini approve call_1", "attini deny call_2"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    case.run(["approve", "call_1"]).exit(10).stdout("").stderr_contains("attini approve call_2");
    let prefixed = case.run(["-s", "main", "-C", ".", "approve", "call_1"]).exit(10);
    prefixed.stderr_contains("attini -C . -s main approve call_2");
}

/// A person changed the file after the approval: that holds up the rule, and not the turn.
#[test]
fn an_approval_stands_where_its_rule_can_no_longer_be_stored() {
    let case = Case::new().marks().untrusted().script([reply().mark("a").mark("b"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1", "--grant", "workspace"]).exit(10);
    let edited = format!("{}\n", mark_rule("c", true));
    case.write(".attini/permissions.jsonl", &edited);
    let before = case.pending();
    case.run(["approve", "call_2", "--grant", "workspace"]).exit(2).stderr_contains("is not trusted");
    assert_eq!(case.pending(), before, "who asks for the grant now is told before anything is recorded");
    let ended = case.run(["approve"]).exit(0);
    ended
        .stdout("done\n")
        .stderr_contains(
            "call_1 is approved, and the rule granted with it was not stored: .attini/permissions.jsonl is not",
        )
        .stderr_contains("attini trust -C ")
        .stderr_contains("then attini rules add --scope workspace '{\"type\":\"command\",\"allow\":true,\"args\":");
    assert_eq!(case.order(), ["a", "b"]);
    assert_eq!(case.read(".attini/permissions.jsonl"), edited);
}

/// Neither knows of the other; both edit the same two files.
#[test]
fn grants_at_the_same_time_are_all_stored() {
    const SESSIONS: [&str; 4] = ["a", "b", "c", "d"];
    let case = Case::new().marks().untrusted();
    for session in SESSIONS {
        case.server().script([reply().mark(session).starts_history()]);
        case.run(["-s", session, "tell", "go"]).exit(10);
    }
    case.server().script(SESSIONS.map(|_| reply().text("done").starts_history()));
    let running: Vec<_> =
        SESSIONS.iter().map(|session| case.start(["-s", session, "approve", "--grant", "workspace"])).collect();
    for one in running {
        one.wait().exit(0).stdout("done\n").stderr_lacks("warning");
    }
    assert_eq!(workspace_rules(&case).len(), SESSIONS.len());
    let running: Vec<_> =
        ["w", "x", "y", "z"].iter().map(|name| case.start(["rules", "add", &format!("write:{name}")])).collect();
    for one in running {
        one.wait().exit(0);
    }
    assert_eq!(workspace_rules(&case).len(), SESSIONS.len() + 4);
    case.run(["rules", "list"]).exit(0).stderr_lacks("not trusted");
}

#[test]
fn a_grant_is_stored_where_its_scope_says_once_the_turn_goes_on() {
    let rule = || json!({"type": "command", "allow": true, "args": mark("a")});
    for (scope, session, workspace) in [
        ("turn", vec![json!({"type": "command", "allow": true, "args": mark("a"), "turn": 1})], vec![]),
        ("session", vec![rule()], vec![]),
        ("workspace", vec![], vec![rule()]),
    ] {
        let case = suspended();
        case.server().script([reply().mark("a").mark("c")]);
        case.run(["approve", "call_1", "--grant", scope]).exit(10);
        assert!(session_rules(&case).is_empty() && workspace_rules(&case).is_empty(), "not before it goes on");
        assert_eq!(case.pending().unwrap()["calls"][0]["granted"]["scope"], scope);
        case.run(["status"]).exit(0).stdout_contains(&format!("\n  stores for the {scope}: {{\"type\":\"command\""));
        let ended = case.run(["deny"]).exit(10);
        ended
            .stderr_contains("granted with call_1, stored in ")
            .stderr_contains("permissions.jsonl: {\"type\":\"command\"");
        assert_eq!(case.order(), ["a", "a"], "{scope}: the rule counts for the next reply");
        assert_eq!(session_rules(&case), session, "{scope}");
        assert_eq!(workspace_rules(&case), workspace, "{scope}");
        assert_eq!(decision_record(&case, "call_1")["granted"]["scope"], scope);
        let by_rule = decision_record(&case, "call_4");
        assert_eq!((&by_rule["decision"], &by_rule["auto_decided_by"]["scope"]), (&json!("allow"), &json!(scope)));
        case.server().script([reply().text("done"), reply().mark("a")]);
        case.run(["deny"]).exit(0);
        if scope == "turn" {
            assert_eq!(session_rules(&case), Vec::<Value>::new(), "it goes at the turn's end");
            case.run(["tell", "again"]).exit(10);
            assert_eq!(case.order(), ["a", "a"]);
        } else {
            case.server().script([reply().text("done")]);
            case.run(["tell", "again"]).exit(0);
            assert_eq!(case.order(), ["a", "a", "a"]);
        }
    }
}

#[test]
fn a_grant_of_a_patch_is_a_rule_a_file() {
    let edits = json!({"edits": [{"path": "new/one.txt", "content": "1\n"}, {"path": "a.txt", "content": "2\n"}]});
    let case = case().script([reply().call("patch", edits), reply().create("a.txt", "3\n"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "--grant", "session"]).exit(0);
    assert_eq!(case.read("a.txt"), "3\n");
    let expected = ["new/one.txt", "a.txt"].map(|path| json!({"type": "write", "allow": true, "path": path}));
    assert_eq!(session_rules(&case), expected);
}

#[test]
fn a_grant_is_stored_once() {
    let case = case().script([reply().mark("a"), reply().text("done")]).rules([mark_rule("b", true)]);
    case.run(["tell", "go"]).exit(10);
    case.write(".attini/permissions.jsonl", format!("# mine\n{}\n\n{}\n", mark_rule("a", false), mark_rule("a", true)));
    let before = case.read(".attini/permissions.jsonl");
    case.run(["approve", "--grant", "workspace"]).exit(0);
    assert_eq!(case.read(".attini/permissions.jsonl"), before);
}

#[test]
fn a_grant_settles_the_other_calls_that_it_covers() {
    let case = case().script([reply().mark("a").mark("a").mark("b").mark("a"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_2", "--grant", "session"]).exit(10);
    assert_eq!(decisions(&case), ["allow", "approve", "-", "allow"]);
    case.run(["approve"]).exit(0);
    assert_eq!(case.order(), ["a", "a", "b", "a"]);
    let settled = decision_record(&case, "call_1");
    assert_eq!((&settled["decision"], &settled["auto_decided_by"]["scope"]), (&json!("allow"), &json!("session")));
    assert_eq!(session_rules(&case), [mark_rule("a", true)]);
}

#[test]
fn a_prefix_grants_the_first_words() {
    let case = case().script([reply().mark("a").mark("b"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1", "--grant", "session", "--prefix", "2"]).exit(0);
    assert_eq!(case.order(), ["a", "b"]);
    assert_eq!(session_rules(&case), [json!({"type": "command", "allow": true, "args_prefix": ["sh", "mark.sh"]})]);
}

#[test]
fn a_grant_that_cannot_be_is_refused_before_anything_is_decided() {
    let outside = json!({"argv": ["ls"], "cwd": ".."});
    let fed = json!({"argv": ["cat"], "stdin": "words"});
    let case = case().script([reply()
        .mark("a")
        .call("command", json!({"argv": ["bash", "-c", "ls"]}))
        .call("command", fed)
        .call("command", outside)
        .create(".envrc", "x\n")]);
    case.run(["tell", "go"]).exit(10);
    let before = case.pending().unwrap();
    for arguments in [
        &["approve", "--grant", "session"][..],
        &["approve", "call_1", "call_2", "--grant", "session"],
        &["approve", "call_2", "--grant", "session", "--prefix", "1"],
        &["approve", "call_2", "--grant", "session", "--prefix", "2"],
        &["approve", "call_1", "--grant", "session", "--prefix", "1"],
        &["approve", "call_1", "--grant", "session", "--prefix", "4"],
        &["approve", "call_1", "--grant", "session", "--prefix", "0"],
        &["approve", "call_1", "--prefix", "2"],
        &["approve", "call_1", "--grant", "user"],
        &["approve", "call_3", "--grant", "session"],
        &["approve", "call_5", "--grant", "session"],
        &["approve", "call_5", "--grant", "session", "--prefix", "1"],
    ] {
        case.run(arguments).exit(2).stdout("");
        assert_eq!(case.pending().unwrap(), before, "{arguments:?}");
        assert!(session_rules(&case).is_empty() && case.order().is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_grant_into_a_file_that_is_not_trusted_is_refused() {
    let case = case().untrusted().script([reply().mark("a")]);
    case.run(["tell", "go"]).exit(10);
    case.write(".attini/permissions.jsonl", format!("{}\n", mark_rule("b", true)));
    case.run(["approve", "--grant", "workspace"]).exit(2).stderr_contains("trust");
    assert_eq!(workspace_rules(&case), [mark_rule("b", true)]);
    assert_eq!(decisions(&case), ["-"]);
    assert!(case.order().is_empty());
}

#[test]
fn what_attini_stored_itself_is_trusted() {
    for scope in ["session", "workspace"] {
        let case = case().untrusted().script([reply().mark("a"), reply().mark("a"), reply().text("done")]);
        case.run(["tell", "go"]).exit(10);
        case.run(["approve", "--grant", scope]).exit(0).stdout("done\n");
        assert_eq!(case.order(), ["a", "a"], "{scope}");
        case.server().script([reply().mark("a"), reply().text("done")]);
        case.run(["tell", "again"]).exit(0).stderr_lacks("trust");
        assert_eq!(case.order(), ["a", "a", "a"], "{scope}");
    }
}

#[test]
fn a_grant_with_a_decision_that_was_dropped_is_not_stored() {
    let case = suspended();
    case.server().script([reply().text("done")]);
    case.run(["approve", "call_1", "--grant", "workspace"]).exit(10);
    case.run(["tell", "something else"]).exit(0);
    assert!(session_rules(&case).is_empty() && workspace_rules(&case).is_empty());
}

/// Changes pending.json by hand; `mends_digest` as somebody who knows how it is made.
fn tampered(change: &dyn Fn(&mut Value), mends_digest: bool, decided: bool) -> Case {
    let case = suspended();
    let mut pending = case.pending().unwrap();
    if decided {
        for call in pending["calls"].as_array_mut().unwrap() {
            call["decision"] = json!("approve");
        }
    }
    change(&mut pending);
    if mends_digest {
        pending["digest"] = json!(pending_digest(&pending["calls"]));
    }
    case.without_invariants().planted_pending("main", pending.to_string())
}

#[track_caller]
fn assert_refused(case: &Case, arguments: &[&str]) {
    let path = |name: &str| case.session_path("main", name);
    let files = || ["conversation.jsonl", "pending.json"].map(|name| fs::read(path(name)).unwrap());
    let before = files();
    let outcome = case.run(arguments).exit(17);
    outcome.stdout("").stderr_contains("attini tell");
    assert!(before == files(), "{arguments:?} changed the session");
    assert!(case.order().is_empty() && session_rules(case).is_empty());
    assert_eq!(case.read("a.txt"), "alpha\n");
}

#[test]
fn a_pending_file_that_was_changed_is_refused_and_nothing_is_done() {
    let argv = json!({"argv": ["sh", "mark.sh", "evil"], "cwd": "."});
    let changes: [(&str, Change<'_>); 9] = [
        ("arguments", &|file| file["calls"][0]["arguments"] = argv.clone()),
        ("a name", &|file| file["calls"][0]["name"] = json!("read")),
        ("a preview", &|file| file["calls"][0]["preview"]["argv"][2] = json!("harmless")),
        ("a grant", &|file| file["calls"][0]["grant"] = json!([{"type": "command", "allow": true, "args_prefix": []}])),
        ("a missing grant", &|file| file["calls"][0]["grant"] = json!(null)),
        ("a digest", &|file| file["digest"] = json!(format!("sha256:{}", "0".repeat(64)))),
        ("a call taken away", &|file| drop(file["calls"].as_array_mut().unwrap().remove(0))),
        ("another order", &|file| file["calls"].as_array_mut().unwrap().swap(0, 1)),
        ("a call that need not be asked about", &|file| file["calls"][0]["needs"] = json!("nothing")),
    ];
    for (what, change) in changes {
        for (arguments, decided) in [
            (&["approve"][..], false),
            (&["approve", "call_2"], false),
            (&["deny", "call_2"], false),
            (&["resume"], true),
            (&["approve"], true),
        ] {
            let case = tampered(change, false, decided);
            eprintln!("{what}: {arguments:?}");
            assert_refused(&case, arguments);
        }
    }
}

#[test]
fn what_would_run_is_computed_again_whatever_the_digest_says() {
    let argv = json!({"argv": ["sh", "mark.sh", "evil"], "cwd": ".", "stdin": null});
    let changes: [(&str, Change<'_>); 8] = [
        ("arguments", &|file| file["calls"][0]["arguments"] = argv.clone()),
        ("a name", &|file| file["calls"][0]["name"] = json!("read")),
        ("a tool that never was", &|file| file["calls"][0]["name"] = json!("frobnicate")),
        ("a grant", &|file| file["calls"][0]["grant"] = json!([{"type": "command", "allow": true, "args_prefix": []}])),
        ("a missing grant", &|file| file["calls"][0]["grant"] = json!(null)),
        ("another turn", &|file| file["turn"] = json!(2)),
        ("a call that never was", &|file| file["calls"][0]["id"] = json!("call_9")),
        ("arguments of the patch", &|file| file["calls"][2]["arguments"]["edits"][0]["after"] = json!("two")),
    ];
    for (what, change) in changes {
        for (arguments, decided) in [(&["approve"][..], false), (&["approve"], true), (&["resume"], true)] {
            let case = tampered(change, true, decided);
            eprintln!("{what}: {arguments:?}");
            assert_refused(&case, arguments);
        }
    }
}

#[test]
fn a_preview_that_says_something_else_runs_nothing() {
    let changes: [&dyn Fn(&mut Value); 2] =
        [&|file| file["calls"][0]["preview"]["argv"][2] = json!("harmless"), &|file| {
            file["calls"][0]["preview"] = json!(null);
        }];
    for change in changes {
        let case = tampered(change, true, false);
        case.server().script([reply().text("done")]);
        let outcome = case.run(["approve"]).exit_any([0, 17]);
        if outcome == 17 {
            case.server().allow_unplayed_replies();
        }
        assert!(!case.order().contains(&"a".to_owned()), "what was not shown ran");
    }
}

#[test]
fn the_arguments_of_what_is_denied_do_not_matter() {
    let case = suspended();
    let mut pending = case.pending().unwrap();
    for call in pending["calls"].as_array_mut().unwrap() {
        call["decision"] = json!("deny");
    }
    pending["calls"][0]["arguments"] = json!({"argv": ["something", "else"]});
    pending["digest"] = json!(pending_digest(&pending["calls"]));
    let case = case.planted_pending("main", pending.to_string()).script([reply().text("done")]);
    case.run(["resume"]).exit(0);
    assert!(case.order().is_empty());
}

#[test]
fn a_new_prompt_drops_a_pending_file_that_was_changed() {
    let case = tampered(&|file| file["digest"] = json!("sha256:0"), false, false);
    case.server().script([reply().text("done")]);
    case.run(["tell", "something else"]).exit(0).stdout("done\n");
    assert!(case.order().is_empty());
    assert_eq!(case.pending(), None);
}

#[test]
fn a_pending_file_that_does_not_parse_is_corrupt() {
    for content in ["", "{", "[]", "null", "{\"format\": 1}", "{\"format\": 99}"] {
        let case = suspended().without_invariants().planted_pending("main", content);
        let log = fs::read(case.session_path("main", "conversation.jsonl")).unwrap();
        for arguments in [&["approve"][..], &["deny"], &["resume"], &["tell", "go"], &["diff"], &["check"]] {
            case.run(arguments).exit(16);
        }
        assert_eq!(fs::read(case.session_path("main", "conversation.jsonl")).unwrap(), log);
        assert_eq!(fs::read(case.session_path("main", "pending.json")).unwrap(), content.as_bytes());
    }
}

#[test]
fn a_tool_that_is_gone_gives_its_error_result() {
    let case = suspended();
    let path = case.session_path("main", "conversation.jsonl");
    let log = fs::read_to_string(&path).unwrap().replacen("\"name\":\"command\"", "\"name\":\"lint\"", 1);
    let mut pending = case.pending().unwrap();
    pending["calls"][0]["name"] = json!("lint");
    pending["digest"] = json!(pending_digest(&pending["calls"]));
    let other = self::case().planted_log("main", log).planted_pending("main", pending.to_string());
    other.server().script([reply().text("done")]);
    other.run(["approve"]).exit(0).stdout("done\n");
    assert_eq!(other.outcome_of("call_1").1, "unknown_tool");
    assert_eq!(other.order(), ["b"]);
    assert_eq!(other.read("a.txt"), "one\n");
}

#[test]
fn an_approved_call_of_a_tool_that_is_no_longer_offered_is_denied() {
    let case = suspended();
    case.server().script([reply().text("done")]);
    case.server().allow_changed_prefix();
    case.write(".attini/config.toml", "[tools.command]\nrun = \"deny\"\n");
    case.run(["approve"]).exit(0);
    assert!(case.order().is_empty());
    assert_eq!((case.outcome_of("call_1").0.as_str(), case.outcome_of("call_2").0.as_str()), ("denied", "denied"));
    assert_eq!(case.read("a.txt"), "one\n");

    let case = suspended();
    case.server().script([reply().text("done")]);
    case.server().allow_changed_prefix();
    case.run(["approve", "--read-only"]).exit(0);
    assert!(case.order().is_empty());
    assert_eq!((case.outcome_of("call_1").0.as_str(), case.outcome_of("call_3").0.as_str()), ("denied", "denied"));
    assert_eq!(case.read("a.txt"), "alpha\n");
}

#[test]
fn another_machine_can_approve_and_continue() {
    let case = suspended();
    let read = |name: &str| fs::read(case.session_path("main", name)).unwrap();
    let other =
        self::case().planted_log("main", read("conversation.jsonl")).planted_pending("main", read("pending.json"));
    other.server().script([reply().text("done")]);
    other.run(["approve"]).exit(0).stdout("done\n");
    assert_eq!(other.order(), ["a", "b"]);
    assert_eq!(other.read("a.txt"), "one\n");
}

#[test]
fn the_diff_of_what_is_pending_applies() {
    let case = Case::new().git().marks().untracked("a.txt", "alpha\n").untracked("b.txt", "beta\n").script([reply()
        .replace("a.txt", "alpha", "one")
        .mark("a")
        .replace("a.txt", "one", "two")
        .replace("b.txt", "beta", "three")]);
    case.run(["tell", "go"]).exit(10);
    let whole = case.run(["diff"]).exit(0).stdout_text();
    assert!(whole.contains("-beta\n+three\n"), "{whole}");
    case.program("sh", ["-c", "attini diff | git apply --check && attini diff call_3 | git apply --check"])
        .run()
        .exit(0);
    let one = case.run(["diff", "call_4"]).exit(0).stdout_text();
    assert!(one.contains("b.txt") && !one.contains("a.txt"), "{one}");
    let stacked = case.run(["diff", "call_3"]).exit(0).stdout_text();
    assert!(stacked.contains("-alpha\n") && stacked.contains("+two\n"), "it includes what it stands on: {stacked}");
    assert!(!stacked.contains("b.txt"), "{stacked}");
    case.run(["diff", "call_9"]).exit(3).stdout("");
    let object = case.run(["--output", "json", "diff"]).exit(0).json();
    assert_eq!(object["type"], "diff");
}
