//! The judge by tables, and against a reference that is too simple to be wrong.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

fn rules(list: &[(Scope, &str)]) -> Rules {
    let parsed = list.iter().map(|(scope, text)| {
        let rule = match text.strip_prefix("deny ") {
            Some(text) => Rule::parse_option(text, false),
            None => Rule::parse_option(text.strip_prefix("allow ").unwrap(), true),
        };
        (*scope, rule.unwrap())
    });
    Rules::new(Path::new("/nonexistent/w"), parsed)
}

fn read(path: &str, secret: bool) -> Access {
    let path = PathBuf::from(path);
    let place = if path.as_os_str().is_empty() {
        Place::Session
    } else if path.starts_with("/nonexistent/w") {
        Place::Workspace
    } else {
        Place::Outside
    };
    Access::Read(ReadAccess { path, place, secret })
}

fn write(name: &str) -> WriteAccess {
    WriteAccess {
        path: Path::new("/nonexistent/w").join(name),
        shown: name.to_owned(),
        place: Place::Workspace,
        never: None,
        always_asks: false,
        revertible: None,
        why: "it is not tracked by git".to_owned(),
    }
}

fn command(line: &str) -> Access {
    let argv = line.split(' ').map(str::to_owned).collect();
    Access::Command(CommandAccess { argv, stdin: false, background: false, cwd_inside: true, cwd_is_root: true })
}

/// The verdict in one line.
fn judged(tool: &str, accesses: &[Access], run: Option<Run>, rules: &Rules) -> String {
    let effect = match tool {
        "read" | "find_tools" => Effect::Read,
        _ => Effect::SideEffect,
    };
    match judge(&Question { tool, effect, accesses, run }, rules) {
        Verdict::Allow { decided_by, never_asks: true } => format!("allow {:?}, never asks", decided_by.scope),
        Verdict::Allow { decided_by, never_asks: false } => format!("allow {:?}", decided_by.scope),
        Verdict::Ask { why } => format!("ask: {why}"),
        Verdict::Deny { decided_by, message } => format!("deny {:?}: {message}", decided_by.scope),
    }
}

const WORKSPACE: Scope = Scope::Workspace;

#[test]
fn without_rules_each_access_has_its_default() {
    let none = rules(&[]);
    let outside = WriteAccess { place: Place::Outside, revertible: Some("attini wrote it".to_owned()), ..write("x") };
    for (tool, access, expected) in [
        ("read", read("/nonexistent/w/a", false), "allow Builtin, never asks"),
        ("read", read("", false), "allow Builtin, never asks"),
        ("read", read("/nonexistent/w/.env", true), "ask: .env is named like a file that holds secrets"),
        ("read", read("/nonexistent/a", false), "ask: /nonexistent/a is outside the workspace"),
        ("patch", Access::Write(write("a")), "ask: a: it is not tracked by git"),
        (
            "patch",
            Access::Write(WriteAccess { revertible: Some("git has it".to_owned()), ..write("a") }),
            "allow Builtin",
        ),
        (
            "patch",
            Access::Write(WriteAccess {
                always_asks: true,
                revertible: Some("git has it".to_owned()),
                ..write(".envrc")
            }),
            "ask: .envrc always asks",
        ),
        ("patch", Access::Write(outside), "ask: x is outside the workspace"),
        (
            "patch",
            Access::Write(WriteAccess { never: Some("it is in .git".to_owned()), ..write(".git/x") }),
            "deny Builtin: .git/x may not be written: it is in .git",
        ),
        ("command", command("cargo test"), "ask: no rule allows it"),
        ("fetch", Access::Fetch(FetchAccess { host: "a.org".to_owned() }), "ask: no rule allows the host a.org"),
        ("fs__x", Access::Tool, "ask: no rule allows it"),
    ] {
        assert_eq!(judged(tool, &[access], None, &none), expected);
    }
    assert_eq!(judged("find_tools", &[], None, &none), "allow Builtin, never asks");
    assert_eq!(judged("fs__x", &[], None, &none), "ask: no rule allows it");
}

#[test]
fn the_last_rule_that_matches_decides_whatever_its_layer_says_before() {
    for (list, expected) in [
        (vec![(Scope::User, "allow command:cargo")], "allow User"),
        (
            vec![(Scope::User, "allow command:cargo"), (WORKSPACE, "deny command:cargo test")],
            "deny Workspace: the command is denied by a rule (the workspace's): \
             {\"type\":\"command\",\"allow\":false,\"args_prefix\":[\"cargo\",\"test\"]}",
        ),
        (
            vec![(WORKSPACE, "deny command:cargo test"), (Scope::User, "allow command:cargo")],
            "deny Workspace: the command \
          is denied by a rule (the workspace's): {\"type\":\"command\",\"allow\":false,\"args_prefix\":[\"cargo\",\"test\"]}",
        ),
        (
            vec![(Scope::User, "deny command:cargo"), (Scope::CommandLine, "allow command:cargo test")],
            "allow CommandLine",
        ),
        (vec![(Scope::Turn, "allow tool:com*"), (Scope::Session, "deny tool:command")], "allow Turn"),
        (vec![(WORKSPACE, "allow command:git")], "ask: no rule allows it"),
    ] {
        assert_eq!(judged("command", &[command("cargo test")], None, &rules(&list)), expected);
    }
}

#[test]
fn all_matches_are_recorded_weakest_first() {
    let list = rules(&[
        (Scope::User, "deny command:cargo"),
        (WORKSPACE, "allow command:make"),
        (WORKSPACE, "allow command:cargo test"),
    ]);
    let accesses = [command("cargo test")];
    let question = Question { tool: "command", effect: Effect::SideEffect, accesses: &accesses, run: None };
    let Verdict::Allow { decided_by, .. } = judge(&question, &list) else { panic!("it is allowed") };
    let entries = list.entries();
    assert_eq!(decided_by.matches, [entries[0].to_match(), entries[2].to_match()]);
    assert_eq!(decided_by.rule.as_ref(), Some(&entries[2].rule));
}

#[test]
fn a_call_is_as_good_as_its_worst_access() {
    let list = rules(&[(WORKSPACE, "allow write:a"), (WORKSPACE, "deny write:c")]);
    let file = |name: &str| Access::Write(write(name));
    assert_eq!(judged("patch", &[file("a"), file("a/x")], None, &list), "allow Workspace");
    assert_eq!(judged("patch", &[file("a"), file("b")], None, &list), "ask: b: it is not tracked by git");
    assert_eq!(
        judged("patch", &[file("b"), file("c"), file("a")], None, &list),
        "deny Workspace: writing c is denied by a rule (the workspace's): {\"type\":\"write\",\"allow\":false,\"path\":\"c\"}"
    );
}

#[test]
fn some_accesses_need_a_rule_of_their_own() {
    let env = || read("/nonexistent/w/.env", true);
    let asks = "ask: .env is named like a file that holds secrets";
    for (rule, expected) in [
        ("allow read:.env", "allow Workspace"),
        ("allow read:.", asks),
        ("allow tool:read", asks),
        ("allow tool:*", asks),
    ] {
        assert_eq!(judged("read", &[env()], None, &rules(&[(WORKSPACE, rule)])), expected, "{rule}");
    }
    assert_eq!(judged("read", &[env()], Some(Run::Allow), &rules(&[])), asks);

    let outside = || read("/nonexistent/shared/a", false);
    let asks = "ask: /nonexistent/shared/a is outside the workspace";
    assert_eq!(judged("read", &[outside()], None, &rules(&[(WORKSPACE, "allow read:../shared")])), "allow Workspace");
    assert_eq!(judged("read", &[outside()], None, &rules(&[(WORKSPACE, "allow tool:read")])), asks);
    assert_eq!(judged("read", &[outside()], Some(Run::Allow), &rules(&[])), asks);

    let always = || Access::Write(WriteAccess { always_asks: true, ..write(".envrc") });
    for rule in ["allow write:.envrc", "allow write:.", "allow tool:patch"] {
        assert_eq!(
            judged("patch", &[always()], None, &rules(&[(WORKSPACE, rule)])),
            "ask: .envrc always asks",
            "{rule}"
        );
    }
    assert_eq!(judged("patch", &[always()], Some(Run::Allow), &rules(&[])), "ask: .envrc always asks");

    let never = || Access::Write(WriteAccess { never: Some("no".to_owned()), ..write(".git/x") });
    for rule in ["allow write:.git", "allow write:/", "allow tool:*"] {
        let verdict = judged("patch", &[never()], Some(Run::Allow), &rules(&[(Scope::CommandLine, rule)]));
        assert_eq!(verdict, "deny Builtin: .git/x may not be written: no", "{rule}");
    }

    let local = || Access::Fetch(FetchAccess { host: "127.0.0.1".to_owned() });
    assert_eq!(judged("fetch", &[local()], None, &rules(&[(WORKSPACE, "allow fetch:127.0.0.1")])), "allow Workspace");
    for rule in ["allow fetch:*", "allow tool:fetch"] {
        assert_eq!(
            judged("fetch", &[local()], None, &rules(&[(WORKSPACE, rule)])),
            "ask: no rule allows the host 127.0.0.1"
        );
    }
    assert!(judged("fetch", &[local()], None, &rules(&[(WORKSPACE, "deny fetch:*")])).starts_with("deny"));
}

#[test]
fn the_config_decides_where_no_rule_does() {
    let none = rules(&[]);
    let inside = || read("/nonexistent/w/a", false);
    for (tool, access, run, expected) in [
        ("read", inside(), Run::Ask, "ask: [tools.read] run = \"ask\""),
        ("read", inside(), Run::Allow, "allow Config"),
        ("read", inside(), Run::Deny, "deny Config: [tools.read] run = \"deny\""),
        ("command", command("x"), Run::Allow, "allow Config"),
        ("patch", Access::Write(write("a")), Run::Allow, "allow Config"),
        ("fs__x", Access::Tool, Run::Allow, "allow Config"),
    ] {
        assert_eq!(judged(tool, &[access], Some(run), &none), expected);
    }
    let denied = rules(&[(WORKSPACE, "deny command:x")]);
    assert!(judged("command", &[command("x")], Some(Run::Allow), &denied).starts_with("deny Workspace"));
    let allowed = rules(&[(WORKSPACE, "allow read:a")]);
    assert_eq!(judged("read", &[inside()], Some(Run::Ask), &allowed), "allow Workspace");
}

#[test]
fn a_rule_that_nearly_allows_is_told() {
    let list = rules(&[(WORKSPACE, "allow command:cargo")]);
    let plain = CommandAccess {
        argv: vec!["cargo".to_owned()],
        stdin: false,
        background: false,
        cwd_inside: true,
        cwd_is_root: true,
    };
    for (access, expected) in [
        (
            CommandAccess { stdin: true, ..plain.clone() },
            "ask: no rule allows it: rules do not allow a command that is given input",
        ),
        (
            CommandAccess { background: true, ..plain.clone() },
            "ask: no rule allows it: the rule does not allow it in the background",
        ),
        (
            CommandAccess { cwd_inside: false, ..plain.clone() },
            "ask: no rule allows it: rules do not allow a command outside the workspace",
        ),
    ] {
        assert_eq!(judged("command", &[Access::Command(access)], None, &list), expected);
    }
}

/// The rules again, read once for each access from the strongest backwards, with nothing shared with the judge but the
/// question what "under a path" means.
fn reference(name: &str, list: &[(Scope, bool, String)]) -> Option<(Scope, bool)> {
    let mut layers: Vec<Scope> = list.iter().map(|(scope, _, _)| *scope).collect();
    layers.sort();
    layers.dedup();
    for layer in layers.into_iter().rev() {
        for (scope, allow, path) in list.iter().rev() {
            let fits = name == path || name.starts_with(&format!("{path}/"));
            if *scope == layer && fits {
                return Some((*scope, *allow));
            }
        }
    }
    None
}

proptest! {
    #[test]
    fn the_judge_agrees_with_the_reference(
        list in proptest::collection::vec(
            (
                proptest::sample::select(vec![
                    Scope::User, Scope::Workspace, Scope::Session, Scope::Turn, Scope::CommandLine,
                ]),
                any::<bool>(),
                "[ab](/[ab]){0,2}",
            ),
            0..8,
        ),
        names in proptest::collection::vec("[ab](/[ab]){0,3}", 1..4),
    ) {
        let parsed = list.iter().map(|(scope, allow, path)| {
            (*scope, Rule::Write { allow: *allow, path: path.clone(), turn: None })
        });
        let rules = Rules::new(Path::new("/nonexistent/w"), parsed);
        let accesses: Vec<Access> = names.iter().map(|name| Access::Write(write(name))).collect();
        let question = Question { tool: "patch", effect: Effect::SideEffect, accesses: &accesses, run: None };
        let expected: Vec<Option<(Scope, bool)>> = names.iter().map(|name| reference(name, &list)).collect();
        match judge(&question, &rules) {
            Verdict::Deny { decided_by, .. } => {
                let first = expected.iter().flatten().find(|(_, allow)| !allow);
                prop_assert_eq!(first.map(|(scope, _)| *scope), Some(decided_by.scope));
            }
            Verdict::Ask { .. } => {
                prop_assert!(expected.contains(&None));
                prop_assert!(expected.iter().flatten().all(|(_, allow)| *allow));
            }
            Verdict::Allow { decided_by, never_asks } => {
                prop_assert!(!never_asks);
                prop_assert!(expected.iter().all(|found| found.is_some_and(|(_, allow)| allow)));
                prop_assert_eq!(expected.iter().flatten().map(|(scope, _)| *scope).max(), Some(decided_by.scope));
            }
        }
    }
}
