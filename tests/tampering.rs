//! Files that somebody else wrote, and words that a model chose: what must not come of them.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, json_lines, mark, mark_rule, pending_digest, reply};

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n")
}

/// Two commands that ask, one of them twice, two patches of which the second stands on the first, and a carried read.
fn suspended() -> Case {
    let case = case().script([reply()
        .mark("a")
        .mark("b")
        .mark("a")
        .replace("a.txt", "alpha", "one")
        .replace("a.txt", "one", "two")
        .read("a.txt")]);
    case.run(["tell", "go"]).exit(10);
    case
}

/// The same with pending.json changed; its digest fits.
fn changed(change: Change<'_>) -> Case {
    let case = suspended();
    let mut pending = case.pending().unwrap();
    change(&mut pending);
    pending["digest"] = json!(pending_digest(&pending["calls"]));
    case.without_invariants().planted_pending("main", pending.to_string())
}

/// A change to a pending.json.
type Change<'c> = &'c dyn Fn(&mut Value);

fn decide(file: &mut Value, decisions: [&str; 5]) {
    for (index, decision) in decisions.into_iter().enumerate() {
        file["calls"][index]["decision"] = if decision.is_empty() { Value::Null } else { json!(decision) };
    }
}

fn rules(case: &Case) -> Vec<Value> {
    let paths = [case.session_path("main", "permissions.jsonl"), case.path(".attini/permissions.jsonl")];
    let texts = paths.map(|path| fs::read_to_string(path).unwrap_or_default());
    texts.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn assert_refused(case: &Case, what: &str) {
    let files =
        || ["conversation.jsonl", "pending.json"].map(|name| fs::read(case.session_path("main", name)).unwrap());
    let before = files();
    for arguments in [&["approve"][..], &["approve", "call_1"], &["deny", "call_2"], &["resume"]] {
        eprintln!("{what}: {arguments:?}");
        case.run(arguments).exit(17).stdout("").stderr_contains("attini tell");
        assert!(before == files(), "{what}: {arguments:?} changed the session");
        assert!(case.order().is_empty() && rules(case).is_empty(), "{what}: {arguments:?}");
        assert_eq!(case.read("a.txt"), "alpha\n");
    }
    case.run(["status"]).exit(0).stdout_contains("suspended");
    case.run(["check"]).exit_any([0, 16]);
    case.server().script([reply().text("else")]);
    case.run(["tell", "something else"]).exit(0).stdout("else\n");
    assert!(case.order().is_empty() && rules(case).is_empty(), "{what}: a new prompt");
    assert_eq!(case.pending(), None);
}

/// What is granted with a call: rules in a scope.
fn granted(scope: &str, rules: impl IntoIterator<Item = Value>) -> Value {
    json!({"scope": scope, "rules": rules.into_iter().collect::<Vec<Value>>()})
}

fn prefix(words: &[&str]) -> Value {
    json!({"type": "command", "allow": true, "args_prefix": words})
}

const ALL: [&str; 5] = ["approve"; 5];

#[test]
fn rules_that_nobody_can_have_granted_are_refused() {
    let every_command = prefix(&[]);
    let own = mark_rule("a", true);
    let hostile = [
        granted("workspace", [every_command.clone()]),
        granted("session", [every_command.clone()]),
        granted("turn", [every_command.clone()]),
        granted("workspace", [own.clone(), every_command]),
        granted("workspace", [prefix(&["sh"])]),
        granted("workspace", [prefix(&["sh", "mark.sh", "a", "b"])]),
        granted("workspace", [prefix(&["sh", "other.sh"])]),
        granted("workspace", [mark_rule("b", true)]),
        granted("workspace", [mark_rule("a", false)]),
        granted("workspace", []),
        granted("workspace", [json!({"type": "write", "allow": true, "path": "."})]),
        granted("session", [json!({"type": "command", "allow": true, "args": mark("a"), "turn": 7})]),
        granted("session", [json!({"type": "command", "allow": true, "args": mark("a"), "background": true})]),
        granted("user", [own.clone()]),
        granted("command_line", [own.clone()]),
        granted("person", [own]),
    ];
    for granted in hostile {
        for decisions in [["approve", "", "", "", ""], ALL] {
            let case = changed(&|file| {
                decide(file, decisions);
                file["calls"][0]["granted"] = granted.clone();
            });
            assert_refused(&case, &granted.to_string());
        }
    }
}

#[test]
fn rules_granted_with_what_was_not_approved_are_refused() {
    let own = || granted("session", [mark_rule("a", true)]);
    for decisions in [["", "", "", "", ""], ["deny", "", "", "", ""]] {
        let case = changed(&|file| {
            decide(file, decisions);
            file["calls"][0]["granted"] = own();
        });
        assert_refused(&case, decisions[0]);
    }
    let case = changed(&|file| file["calls"][5]["granted"] = own());
    assert_refused(&case, "a carried call");
}

#[test]
fn a_grant_as_a_person_makes_it_is_carried_out() {
    for (granted_rules, turn_rule) in [
        (vec![mark_rule("a", true)], json!({"type": "command", "allow": true, "args": mark("a"), "turn": 1})),
        (
            vec![prefix(&["sh", "mark.sh"])],
            json!({"type": "command", "allow": true, "args_prefix": ["sh", "mark.sh"], "turn": 1}),
        ),
    ] {
        for scope in ["turn", "session", "workspace"] {
            let case = changed(&|file| {
                decide(file, ALL);
                file["calls"][0]["granted"] = granted(scope, granted_rules.clone());
            });
            case.server().script([reply().mark("z"), reply().text("done")]);
            let code = case.run(["resume"]).exit_any([0, 10]);
            let stored = if scope == "turn" { vec![turn_rule.clone()] } else { granted_rules.clone() };
            let is_over = code == 0;
            assert_eq!(rules(&case), if is_over && scope == "turn" { Vec::new() } else { stored }, "{scope}");
            assert_eq!(is_over, granted_rules[0]["args_prefix"].is_array(), "a prefix covers the next command too");
            if !is_over {
                case.server().allow_unplayed_replies();
            }
        }
    }
}

#[test]
fn a_decision_of_the_wrong_kind_is_refused() {
    let cases: [(&str, Change<'_>); 9] = [
        ("an answer to an approval", &|file| {
            decide(file, ["answer", "approve", "approve", "approve", "approve"]);
            file["calls"][0]["answer"] = json!("yes");
        }),
        ("an approval of a question", &|file| {
            decide(file, ALL);
            file["calls"][0]["needs"] = json!("answer");
        }),
        ("a command that passes for a question", &|file| {
            decide(file, ["answer", "approve", "approve", "approve", "approve"]);
            file["calls"][0]["needs"] = json!("answer");
            file["calls"][0]["answer"] = json!("yes");
        }),
        ("an undecided command that passes for a question", &|file| file["calls"][0]["needs"] = json!("answer")),
        ("an approval of a carried call", &|file| file["calls"][5]["decision"] = json!("approve")),
        ("allowed by no rule", &|file| decide(file, ["allow", "approve", "approve", "approve", "approve"])),
        ("stale without a denial", &|file| decide(file, ["approve", "approve", "approve", "approve", "stale"])),
        ("a stale command", &|file| decide(file, ["deny", "stale", "approve", "approve", "approve"])),
        ("a decision that there is not", &|file| decide(file, ["approve", "allow", "approve", "approve", "approve"])),
    ];
    for (what, change) in cases {
        assert_refused(&changed(change), what);
    }
}

#[test]
fn what_is_allowed_must_follow_from_what_was_granted() {
    let own = || granted("session", [mark_rule("a", true)]);
    let cases: [(&str, Change<'_>); 4] = [
        ("granted with no approval", &|file| {
            decide(file, ["approve", "approve", "allow", "approve", "approve"]);
            file["calls"][2]["granted"] = own();
        }),
        ("granted in another scope", &|file| {
            decide(file, ["approve", "approve", "allow", "approve", "approve"]);
            file["calls"][0]["granted"] = own();
            file["calls"][2]["granted"] = granted("workspace", [mark_rule("a", true)]);
        }),
        ("not covered", &|file| {
            decide(file, ["approve", "allow", "approve", "approve", "approve"]);
            file["calls"][0]["granted"] = own();
            file["calls"][1]["granted"] = own();
        }),
        ("each grants itself", &|file| {
            decide(file, ["allow", "approve", "allow", "approve", "approve"]);
            file["calls"][0]["granted"] = own();
            file["calls"][2]["granted"] = own();
        }),
    ];
    for (what, change) in cases {
        assert_refused(&changed(change), what);
    }
}

#[test]
fn what_a_grant_settled_stays_settled_whatever_was_typed_besides() {
    let case = suspended();
    case.run(["approve", "call_1", "--grant", "session", "--allow", "command:sh mark.sh b"]).exit(10);
    let decisions: Vec<String> = case.pending_calls().into_iter().map(|call| call.2).collect();
    assert_eq!(decisions, ["approve", "-", "allow", "-", "-", "-"], "what --allow covers was not granted");
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0).stdout("done\n");
    assert_eq!(case.order(), ["a", "b", "a"]);
    assert_eq!(rules(&case), [mark_rule("a", true)]);
}

#[test]
fn what_was_granted_is_told_again_after_a_kill_and_stored_once() {
    let case = suspended();
    case.run(["approve", "call_1", "--grant", "session"]).exit(10);
    case.server().script([reply().text("done")]);
    let mut pending = case.pending().unwrap();
    case.run(["approve"]).exit(0);
    let records = case.records();
    decide(&mut pending, ["approve", "approve", "allow", "approve", "approve"]);
    let first_result = records.iter().position(|record| record["type"] == "tool_result").unwrap() + 1;
    // Killed behind the first result, the rules stored; and the same with another rule put in its place.
    for evil in [false, true] {
        let mut pending = pending.clone();
        if evil {
            for index in [0, 2] {
                pending["calls"][index]["granted"] = granted("session", [prefix(&[])]);
            }
        }
        let other = self::case()
            .without_invariants()
            .planted_log("main", json_lines(records[..first_result].iter().cloned()))
            .planted_pending("main", pending.to_string());
        if evil {
            other.run(["resume"]).exit(17);
            assert!(rules(&other).is_empty() && other.order().is_empty());
        } else {
            other.server().script([reply().text("done")]);
            other.run(["resume"]).exit(0).stdout("done\n");
            assert_eq!(other.order(), ["b", "a"]);
        }
    }
}

#[test]
fn a_call_that_no_longer_is_what_was_shown_leaves_no_rule() {
    let case = case().script([reply().replace("a.txt", "alpha", "one").mark("b")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "call_1", "--grant", "workspace"]).exit(10);
    case.write("a.txt", "alpha\nbeta\n");
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0).stderr_contains("the rule granted with it is not stored");
    assert_eq!(case.outcome_of("call_1").1, "stale");
    assert!(rules(&case).is_empty());
    assert_eq!(case.order(), ["b"]);
}

#[test]
fn a_pending_file_that_lists_no_call_is_refused() {
    let case = changed(&|file| file["calls"] = json!([]));
    assert_refused(&case, "no call");
}

#[test]
fn a_pending_file_without_its_reply_is_refused() {
    let case = suspended();
    let pending = fs::read(case.session_path("main", "pending.json")).unwrap();
    let records = case.records();
    let until_reply = records.iter().position(|record| record["type"] == "assistant").unwrap();
    let other = self::case()
        .without_invariants()
        .planted_log("main", json_lines(records[..until_reply].iter().cloned()))
        .planted_pending("main", pending);
    assert_refused(&other, "no reply");
}

#[test]
fn a_pending_file_beside_a_finished_turn_ends_it_no_second_time() {
    let case = suspended();
    let pending = fs::read(case.session_path("main", "pending.json")).unwrap();
    let other = self::case().without_invariants().script([reply().text("first"), reply().text("second")]);
    other.run(["tell", "go"]).exit(0);
    let other = other.planted_pending("main", pending);
    other.run(["approve"]).exit(17);
    other.run(["tell", "again"]).exit(0).stdout("second\n");
    assert_eq!(other.pending(), None);
    let ends: Vec<Value> = other.records().into_iter().filter(|record| record["type"] == "turn_end").collect();
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(ends.iter().all(|end| end["status"] == "completed"));
}

#[test]
fn an_id_that_a_command_line_would_take_for_something_else_is_replaced() {
    let words = |letter: &str| json!({"argv": mark(letter)}).to_string();
    for id in ["-q", "--all", "-", "--", "call_1#2", "a b", "$(id)", "\u{1b}[2K"] {
        let case =
            case().script([reply().raw_call(id, "command", &words("a")).raw_call("good-id", "command", &words("b"))]);
        let shown = case.run(["tell", "go"]).exit(10);
        shown
            .stderr_contains("approve call_1\n")
            .stderr_contains("deny call_1 ")
            .stderr_lacks(&format!("approve {id}"));
        let ids: Vec<String> = case.pending_calls().into_iter().map(|call| call.0).collect();
        assert_eq!(ids, ["call_1", "good-id"], "{id}");
        case.server().script([reply().text("done")]);
        case.run(["deny", "call_1"]).exit(10);
        case.run(["approve", "good-id"]).exit(0);
        assert_eq!(case.order(), ["b"]);
    }
}

#[test]
fn an_id_that_only_a_foreign_log_can_hold_is_not_decided_on() {
    let case = suspended();
    for id in ["-q", "call_9#2"] {
        let log = fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap();
        let mut pending = case.pending().unwrap();
        pending["calls"][0]["id"] = json!(id);
        pending["digest"] = json!(pending_digest(&pending["calls"]));
        let other = self::case()
            .without_invariants()
            .planted_log("main", log.replace("\"call_1\"", &format!("\"{id}\"")))
            .planted_pending("main", pending.to_string());
        assert_refused(&other, id);
    }
}

/// The line that lists a call is read by whoever decides.
#[test]
fn what_a_call_is_listed_as_cannot_be_made_up() {
    assert_refused(&changed(&|file| file["calls"][0]["summary"] = json!("ls -la")), "another summary");
    for field in ["summary", "why"] {
        let case = suspended();
        let mut pending = case.pending().unwrap();
        pending["calls"][0][field] = json!("it only reads");
        // The digest is the one that was shown.
        let case = case.without_invariants().planted_pending("main", pending.to_string());
        assert_refused(&case, field);
    }
}
