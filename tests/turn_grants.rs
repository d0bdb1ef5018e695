//! `--grant turn`: the rule counts until the turn is over, however many invocations that takes, and is gone then.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, json_lines, mark, mark_rule, reply};

fn turn_rule(letter: &str, turn: u64) -> Value {
    json!({"type": "command", "allow": true, "args": mark(letter), "turn": turn})
}

/// A turn in which the mark `a` was granted, and then something else asked.
fn granted() -> Case {
    let case = Case::new().marks().script([reply().mark("a"), reply().mark("a").mark("b")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["approve", "--grant", "turn"]).exit(10);
    assert_eq!(case.order(), ["a", "a"]);
    assert_eq!(rules(&case), [turn_rule("a", 1)]);
    case
}

fn rules(case: &Case) -> Vec<Value> {
    let text = fs::read_to_string(case.session_path("main", "permissions.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Nothing is left of the grant, and it does not count any more.
#[track_caller]
fn assert_gone(case: &Case) {
    assert_eq!(rules(case), Vec::<Value>::new());
    case.server().script([reply().mark("a")]);
    case.run(["tell", "again"]).exit(10);
}

#[test]
fn it_lasts_over_every_invocation_of_the_turn() {
    let case = granted();
    case.server().script([reply().mark("a").mark("c"), reply().mark("a"), reply().error(400, "wrong")]);
    case.run(["approve"]).exit(10);
    case.run(["deny"]).exit(13);
    assert_eq!(case.order(), ["a", "a", "b", "a", "a"]);
    assert_eq!(rules(&case), [turn_rule("a", 1)], "the turn is not over");
    case.server().script([reply().mark("a")]);
    case.run(["resume", "--max-rounds", "5"]).exit(14);
    assert_eq!(rules(&case), [turn_rule("a", 1)]);
    case.server().script([reply().mark("a"), reply().text("done")]);
    case.run(["resume"]).exit(0).stdout("done\n");
    assert_eq!(case.order().iter().filter(|mark| *mark == "a").count(), 6);
    assert_gone(&case);
}

#[test]
fn it_goes_with_a_turn_that_is_dropped() {
    let case = granted();
    case.server().script([reply().mark("a")]);
    case.run(["tell", "something else"]).exit(10);
    assert_eq!(case.order(), ["a", "a"], "it does not count in the next turn");
    assert_eq!(rules(&case), Vec::<Value>::new());
}

#[test]
fn it_goes_with_an_unfinished_turn_that_gives_way_to_another() {
    let case = granted();
    case.server().script([reply().error(400, "wrong")]);
    case.run(["deny"]).exit(13);
    case.server().script([reply().mark("a")]);
    case.run(["tell", "something else"]).exit(10);
    assert_eq!(case.order(), ["a", "a"]);
    assert_eq!(rules(&case), Vec::<Value>::new());
}

#[test]
fn it_goes_with_a_turn_whose_end_a_kill_took() {
    for command in ["resume", "tell"] {
        let case = granted();
        case.server().script([reply().text("done")]);
        case.run(["deny"]).exit(0);
        let records = case.records();
        let log = json_lines(records[..records.len() - 1].iter().cloned());
        let other = Case::new().marks().planted_log("main", log);
        let path = other.session_path("main", "permissions.jsonl");
        fs::write(&path, format!("{}\n{}\n", turn_rule("a", 1), mark_rule("b", false))).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        if command == "resume" {
            other.run(["resume"]).exit(0).stdout("done\n");
        } else {
            other.server().script([reply().text("more")]);
            other.run(["tell", "more"]).exit(0);
        }
        assert_eq!(rules(&other), [mark_rule("b", false)], "{command}: what was stored for good stays");
    }
}

#[test]
fn what_a_kill_left_of_an_earlier_turn_goes_with_a_later_one() {
    let case = Case::new().marks().script([reply().text("one"), reply().text("two"), reply().text("three")]);
    case.run(["tell", "go"]).exit(0);
    case.run(["tell", "go"]).exit(0);
    let path = case.session_path("main", "permissions.jsonl");
    fs::write(&path, format!("{}\n{}\n", turn_rule("a", 1), turn_rule("a", 9))).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    case.run(["tell", "go"]).exit(0);
    assert_eq!(rules(&case), [turn_rule("a", 9)]);
}
