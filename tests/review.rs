//! `attini review` at a real terminal: one key a call, what is shown before it decides anything, and a terminal that is
//! as it was whatever ends the walk.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Case, Running, mark, reply};

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n").env("NO_COLOR", "1")
}

/// Two commands and a question.
fn suspended() -> Case {
    let case = case().script([reply().mark("a").mark("b").ask("Which?", &["red", "blue"])]);
    case.run(["tell", "go"]).exit(10);
    case
}

fn review(case: &Case) -> Running {
    case.attini(["review"]).on_terminal(24, 80, "").start()
}

fn decisions(case: &Case) -> Vec<String> {
    case.pending_calls().into_iter().map(|call| call.2).collect()
}

fn rules(case: &Case, session: bool) -> Vec<Value> {
    let path =
        if session { case.session_path("main", "permissions.jsonl") } else { case.path(".attini/permissions.jsonl") };
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn without_a_terminal_it_is_refused_with_what_to_type_instead() {
    let case = suspended();
    let outcome = case.run(["review"]).exit(2);
    outcome.stdout("").stderr_contains("terminal").stderr_contains("`attini approve ID`");
    assert_eq!(decisions(&case), ["-", "-", "-"]);
    let nothing = self::case().attini(["review"]).on_terminal(24, 80, "").start().wait().exit(3).stderr_text();
    assert!(nothing.contains("attini tell"), "{nothing}");
}

#[test]
fn one_key_decides_on_each_call_and_the_turn_goes_on() {
    let case = suspended();
    case.server().script([reply().text("done")]);
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 3 undecided: a approve, d deny, g approve and store the rule, w show whole");
    assert!(!running.is_in_line_mode());
    running.type_keys("a");
    running.wait_stderr("call_2, 1 of 2 undecided: ");
    assert_eq!(decisions(&case), ["approve", "-", "-"], "it is on disk before the next call is shown");
    running.type_keys("d");
    running.wait_stderr("why?");
    assert!(running.is_in_line_mode());
    running.type_keys("use the otherr\u{7f} one\n");
    running.wait_stderr("call_3, 1 of 1 undecided: 1-2 choose, t type an answer, d deny, w show whole");
    assert_eq!(decisions(&case), ["approve", "deny", "-"]);
    running.type_keys("2");
    running.wait_stdout("done");
    let outcome = running.wait().exit(0);
    outcome.stdout("done\n");
    for shown in ["$ sh mark.sh a", "call_1: approved", "call_2: denied", "? Which?", "2) blue", "call_3: answered"] {
        outcome.stderr_contains(shown);
    }
    assert_eq!(case.order(), ["a"]);
    assert!(case.outcome_of("call_2").2.contains("use the other one"));
    assert_eq!(case.result("call_3")["content"], "blue");
}

#[test]
fn an_answer_can_be_typed() {
    let case = suspended();
    case.run(["deny", "call_1", "call_2"]).exit(11);
    case.server().script([reply().text("done")]);
    let running = review(&case);
    running.wait_stderr("call_3, 1 of 1 undecided");
    running.type_keys("t");
    running.wait_stderr("your answer");
    running.type_keys("\n");
    running.wait_stderr_times("call_3, 1 of 1 undecided", 2);
    running.type_keys("t");
    running.wait_stderr_times("your answer", 2);
    running.type_keys("grün\n");
    running.wait().exit(0).stdout("done\n");
    assert_eq!(case.result("call_3")["content"], "grün");
}

#[test]
fn what_was_decided_before_quitting_stays_recorded() {
    let case = suspended();
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 3 undecided");
    running.type_keys("n");
    running.wait_stderr("call_2, 2 of 3 undecided");
    running.type_keys("a");
    running.wait_stderr("call_3, 2 of 2 undecided");
    running.type_keys("q");
    running.wait().exit(10).stdout("").stderr_contains("attini approve");
    assert_eq!(decisions(&case), ["-", "approve", "-"]);
    assert!(case.order().is_empty());
    case.run(["approve"]).exit(11);
    let running = review(&case);
    running.wait_stderr("call_3, 1 of 1 undecided");
    // The end of the input.
    running.type_keys("\u{4}");
    running.wait().exit(11);
}

#[test]
fn a_kill_loses_no_decision() {
    let case = suspended();
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 3 undecided");
    running.type_keys("a");
    running.wait_stderr("call_2, 1 of 2 undecided");
    running.signal(9);
    running.wait().killed_by(9);
    assert_eq!(decisions(&case), ["approve", "-", "-"]);
    case.server().script([reply().text("done")]);
    case.run(["deny"]).exit(0);
    assert_eq!(case.order(), ["a"]);
}

#[test]
fn a_signal_puts_the_terminal_back_and_keeps_what_was_decided() {
    for (number, code) in [(1, 129), (2, 130), (15, 143)] {
        let case = suspended();
        let running = review(&case);
        running.wait_stderr("call_1, 1 of 3 undecided");
        running.type_keys("a");
        running.wait_stderr("call_2, 1 of 2 undecided");
        assert!(!running.is_in_line_mode());
        if number == 2 {
            // As the key sends it.
            running.type_keys("\u{3}");
        } else {
            running.signal(number);
        }
        running.wait_stderr("`attini review` goes on");
        assert!(running.is_in_line_mode());
        running.wait().exit(code);
        assert_eq!(decisions(&case), ["approve", "-", "-"]);
    }
    let case = suspended();
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 3 undecided");
    running.type_keys("d");
    running.wait_stderr("why?");
    running.type_keys("half a rea\u{3}");
    running.wait().exit(130);
    assert_eq!(decisions(&case), ["-", "-", "-"]);
}

#[test]
fn keys_typed_before_a_call_was_shown_decide_nothing() {
    let case = suspended();
    let running = case.attini(["review"]).on_terminal(24, 80, "aaaaaa").start();
    running.wait_stderr("call_1, 1 of 3 undecided");
    running.type_keys("q");
    running.wait().exit(10);
    assert_eq!(decisions(&case), ["-", "-", "-"]);
}

#[test]
fn pastes_arrows_and_unknown_keys_decide_nothing() {
    let case = suspended();
    let running = review(&case);
    for (times, keys) in
        ["aa", "\u{1b}[A", "\u{1b}[3~", "A", "x", "1", "t", "ä", "\r", "\u{1b}", "\u{1a}", " "].iter().enumerate()
    {
        running.wait_stderr_times("call_1, 1 of 3 undecided", times + 1);
        running.type_keys(keys);
    }
    running.wait_stderr_times("call_1, 1 of 3 undecided", 13);
    running.type_keys("q");
    running.wait().exit(10);
    assert_eq!(decisions(&case), ["-", "-", "-"]);
}

#[test]
fn a_long_preview_is_shown_a_screen_at_a_time_or_whole() {
    let content: String = (1..=200).map(|number| format!("line {number}\n")).collect();
    let case = case().script([reply().create("long.txt", &content), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let running = review(&case);
    running.wait_stderr("s next screen, w show whole");
    running.wait_stderr("more lines not shown: s shows the next screen, w the whole");
    running.type_keys("s");
    running.wait_stderr_times("call_1, 1 of 1 undecided", 2);
    running.wait_stderr("+line 30");
    running.type_keys("w");
    running.wait_stderr("+line 200");
    running.wait_stderr_times("call_1, 1 of 1 undecided", 3);
    running.type_keys("a");
    let shown = running.wait().exit(0).stderr_text().replace('\r', "");
    let first = shown.split("call_1, 1 of 1 undecided").next().unwrap();
    assert!(first.lines().count() <= 24 && !first.contains("+line 30\n"), "{first}");
    // The file's lines are all those of the preview: five of git's own, the heading, why it asks, and the rule.
    let left: usize = first.split("... ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let visible = first.lines().filter(|line| line.starts_with("  +line")).count();
    let after = shown.split("call_1, 1 of 1 undecided").nth(2).unwrap();
    let whole = after.lines().skip(1).filter(|line| line.starts_with("  +line")).count();
    assert_eq!(whole, 200);
    assert_eq!(left + visible, 202, "{first}");
    assert_eq!(case.read("long.txt"), content);
}

#[test]
fn the_suggested_rule_is_shown_before_it_is_stored() {
    let case = case().script([reply().mark("a").mark("b").mark("a"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 3 undecided");
    running.type_keys("g");
    running.wait_stderr("store it for: t this turn, s this session, w this workspace");
    running.wait_stderr(r#"to be stored: {"type":"command","allow":true,"args":["sh","mark.sh","a"]}"#);
    running.type_keys("x");
    running.wait_stderr_times("call_1, 1 of 3 undecided", 2);
    assert_eq!(decisions(&case), ["-", "-", "-"]);
    running.type_keys("g");
    running.wait_stderr_times("store it for", 2);
    running.type_keys("s");
    running.wait_stderr("call_3: allowed by a rule");
    running.wait_stderr("call_2, 1 of 1 undecided");
    assert_eq!(decisions(&case), ["approve", "-", "allow"]);
    assert!(rules(&case, true).is_empty(), "not before the turn goes on");
    running.type_keys("d");
    running.wait_stderr("why?");
    running.type_keys("\n");
    running.wait().exit(0).stdout("done\n");
    assert_eq!(case.order(), ["a", "a"]);
    assert_eq!(rules(&case, true), [json!({"type": "command", "allow": true, "args": mark("a")})]);
    assert!(rules(&case, false).is_empty());
}

#[test]
fn a_rule_that_cannot_be_stored_leaves_the_call_undecided() {
    let case = case().untrusted().script([reply().mark("a"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.write(".attini/permissions.jsonl", "{\"type\":\"command\",\"allow\":true,\"args\":[\"ls\"]}\n");
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 1 undecided");
    running.type_keys("g");
    running.wait_stderr("store it for");
    running.type_keys("w");
    running.wait_stderr_times("call_1, 1 of 1 undecided", 2);
    running.wait_stderr("trust");
    assert_eq!(decisions(&case), ["-"]);
    running.type_keys("a");
    running.wait().exit(0);
    assert_eq!(case.order(), ["a"]);
}

#[test]
fn denying_a_patch_tells_which_others_no_longer_apply() {
    let case = case().script([reply().replace("a.txt", "alpha", "one").replace("a.txt", "one", "two").mark("a")]);
    case.run(["tell", "go"]).exit(10);
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 3 undecided");
    running.type_keys("d");
    running.wait_stderr("why?");
    // Taken back.
    running.type_keys("\u{4}");
    running.wait_stderr_times("call_1, 1 of 3 undecided", 2);
    assert_eq!(decisions(&case), ["-", "-", "-"]);
    running.type_keys("d");
    running.wait_stderr_times("why?", 2);
    running.type_keys("\n");
    running.wait_stderr("call_2: no longer applies");
    running.wait_stderr("call_3, 1 of 1 undecided");
    running.type_keys("q");
    running.wait().exit(10);
    assert_eq!(decisions(&case), ["deny", "stale", "-"]);
}

#[test]
fn a_pending_file_that_changes_under_the_walk_is_not_overwritten() {
    let case = suspended().without_invariants();
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 3 undecided");
    let mut pending = case.pending().unwrap();
    pending["calls"][1]["decision"] = json!("deny");
    let path = case.session_path("main", "pending.json");
    fs::write(&path, pending.to_string()).unwrap();
    running.type_keys("a");
    running.wait().exit(17).stdout("");
    assert_eq!(fs::read_to_string(&path).unwrap(), pending.to_string());
    assert!(case.order().is_empty());
}

#[test]
fn it_holds_the_sessions_lock_and_heeds_the_digest() {
    let case = suspended();
    let running = review(&case);
    running.wait_stderr("call_1, 1 of 3 undecided");
    case.run(["approve"]).exit(12);
    running.type_keys("q");
    running.wait().exit(10);
    let other = case.attini(["review", "--if-digest", "sha256:0"]).on_terminal(24, 80, "").start();
    other.wait().exit(17);
}

#[test]
fn once_all_is_decided_it_carries_it_out() {
    let case = suspended();
    let mut pending = case.pending().unwrap();
    for call in pending["calls"].as_array_mut().unwrap() {
        call["decision"] = json!("deny");
    }
    let case = case.planted_pending("main", pending.to_string()).script([reply().text("done")]);
    review(&case).wait().exit(0).stdout("done\n");
    assert_eq!(case.outcome_of("call_3").0, "denied");
}

#[test]
fn what_is_shown_is_escaped_and_fits_a_terminal_that_can_do_nothing() {
    let hostile = json!({"argv": ["sh", "mark.sh", "\u{1b}[2K\u{1b}]0;x\u{7}\u{202e}"]});
    let case = case().env("TERM", "dumb").script([reply().call("command", hostile)]);
    case.run(["tell", "go"]).exit(10);
    let running = case.attini(["review"]).on_terminal(0, 0, "").start();
    running.wait_stderr("call_1, 1 of 1 undecided");
    running.type_keys("q");
    let outcome = running.wait().exit(10);
    outcome.stderr_contains("\\x1b[2K").stderr_lacks("\u{1b}").stderr_lacks("\u{202e}").stderr_lacks("\u{7}");
}
