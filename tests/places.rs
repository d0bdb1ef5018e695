//! How far a rule's path reaches, and what no rule ever opens.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::support::{Case, reply};

/// A workspace beside a folder `outside`, with `dir` as a link to it.
fn beside_outside() -> Case {
    let case = Case::new().file("src/a.txt", "alpha\n");
    let outside = case.path("../outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("n"), "outside\n").unwrap();
    symlink("../outside", case.path("dir")).unwrap();
    symlink("src", case.path("within")).unwrap();
    case
}

#[test]
fn a_rule_for_a_place_in_the_workspace_opens_nothing_that_a_link_leads_to_outside() {
    for (rule, code) in [
        ("write:dir", 10),
        ("write:dir/n", 10),
        ("write:.", 10),
        ("write:src/../dir/n", 10),
        ("write:../outside", 0),
        ("write:../outside/n", 0),
    ] {
        let case = beside_outside();
        case.server().script([reply().create("dir/n", "written\n"), reply().text("done")]);
        let case = if code == 10 { case.with_unplayed_replies() } else { case };
        case.run(["tell", "go", "--allow", rule]).exit(code);
        let expected = if code == 10 { "outside\n" } else { "written\n" };
        assert_eq!(case.read("../outside/n"), expected, "{rule}");
    }
    for (rule, code) in [("read:dir", 10), ("read:dir/n", 10), ("read:.", 10), ("read:../outside", 0)] {
        let case = beside_outside();
        case.server().script([reply().read("dir/n"), reply().text("done")]);
        let case = if code == 10 { case.with_unplayed_replies() } else { case };
        case.run(["tell", "go", "--allow", rule]).exit(code);
    }
}

#[test]
fn a_rule_follows_links_within_the_workspace_and_a_denial_follows_every_link() {
    for rule in ["write:within", "write:within/a.txt", "write:src"] {
        let case = beside_outside();
        case.server().script([reply().create("within/a.txt", "beta\n"), reply().text("done")]);
        case.run(["tell", "go", "--allow", rule]).exit(0);
        assert_eq!(case.read("src/a.txt"), "beta\n", "{rule}");
    }
    for path in ["dir/n", "../outside/n"] {
        let case = beside_outside();
        case.server().script([reply().create(path, "written\n"), reply().text("done")]);
        case.run(["tell", "go", "--allow", "write:../outside", "--deny", "write:dir"]).exit(0);
        assert_eq!(case.outcome_of("call_1").1, "denied", "{path}");
        assert_eq!(case.read("../outside/n"), "outside\n");
    }
}

#[test]
fn a_folder_that_becomes_a_link_in_the_middle_of_a_turn_takes_no_rule_with_it() {
    let case = Case::new().file("real/n", "inside\n").file("swap.sh", "rm -r real\nln -s ../outside real\n");
    fs::create_dir(case.path("../outside")).unwrap();
    case.server().script([
        reply().create("real/n", "first\n"),
        reply().command(&["sh", "swap.sh"]).create("real/n", "second\n"),
    ]);
    case.run(["tell", "go", "--allow", "write:real/n", "--allow", "command:sh swap.sh"]).exit(10);
    assert_eq!(case.result("call_1")["status"], json!("ok"));
    assert!(!case.exists("../outside/n"), "it waits for a person");
    assert_eq!(case.pending_calls(), [("call_3".to_owned(), "approval".to_owned(), "-".to_owned())]);
}

#[test]
fn a_git_directory_is_never_written_wherever_it_is() {
    let case = Case::new().git().file("a.txt", "alpha\n");
    fs::create_dir(case.path("meta")).unwrap();
    case.run_git(&["init", "--quiet", "--separate-git-dir=meta/g", "sub"]);
    case.run_git(&["init", "--quiet", "--bare", "store"]);
    case.run_git(&["init", "--quiet", "--bare", "../elsewhere"]);
    let hooks = ["meta/g/hooks/pre-commit", "store/hooks/update", "../elsewhere/hooks/update"];
    let replies = hooks.map(|path| reply().create(path, "#!/bin/sh\n"));
    case.server().script(replies.into_iter().chain([reply().create("sub/plain.txt", "plain\n"), reply().text("done")]));
    case.run(["tell", "go", "--allow", "write:.", "--allow", "write:/"]).exit(0);
    for (index, path) in hooks.iter().enumerate() {
        let (status, _, content) = case.outcome_of(&format!("call_{}", index + 1));
        assert_eq!(status, "denied", "{path}: {content}");
        assert!(content.contains("git directory"), "{path}: {content}");
        assert!(!case.exists(path), "{path}");
    }
    assert_eq!(case.read("sub/plain.txt"), "plain\n");
}

#[test]
fn a_git_in_the_workspace_is_never_run() {
    let fake = "#!/bin/sh\ntouch \"$HOME/fooled\"\nexit 1\n";
    for path in [".:", ":", "bin:.:./bin:"] {
        let case = Case::new().git().file("a.txt", "alpha\n");
        for name in ["git", "bin/git"] {
            case.write(name, fake);
            fs::set_permissions(case.path(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let outside = std::env::var("PATH").unwrap();
        case.server().script([reply().replace("a.txt", "alpha", "beta"), reply().text("done")]);
        // Git has the file, so that the patch runs unasked: the true git was asked.
        let run = case.attini(["tell", "go"]).env("PATH", format!("{path}{outside}")).run();
        run.exit(0);
        assert_eq!(case.read("a.txt"), "beta\n", "{path}");
        assert!(!case.home().join("fooled").exists(), "{path}");
    }
    // Without any other git, none is asked, and the patch asks.
    let case = Case::new().git().file("a.txt", "alpha\n").file("git", fake).with_unplayed_replies();
    fs::set_permissions(case.path("git"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    case.server().script([reply().replace("a.txt", "alpha", "beta")]);
    case.run_git(&["status"]);
    let run = case.attini(["tell", "go"]).env("PATH", ".").run();
    run.exit(10).stderr_contains("there is no git program to ask");
    assert!(!case.home().join("fooled").exists());
    let demo = case.attini(["demo", "-C", "play"]).env("PATH", ".").run();
    demo.exit(1).stderr_contains("there is no git in the PATH");
    assert!(!case.home().join("fooled").exists());
}

/// A model that could write these would make its own rules.
#[test]
fn what_attini_keeps_in_the_workspace_is_written_by_no_patch() {
    let own = [
        "xdg/attini/config.toml",
        "xdg/attini/permissions.jsonl",
        "dots/named.toml",
        "local/attini/trust.json",
        "state/sessions/other/permissions.jsonl",
    ];
    let content = "# alpha\n";
    let trust = "{\"format\": 1, \"files\": []} \n";
    let case = own.iter().fold(Case::new().git(), |case, path| {
        case.file(path, if path.ends_with("trust.json") { trust } else { content })
    });
    symlink("dots", case.path("linked")).unwrap();
    let (xdg, local, state) = (case.path("xdg"), case.path("local"), case.path("state"));
    let case = case
        .env("XDG_CONFIG_HOME", xdg)
        .env("XDG_STATE_HOME", local)
        .env("ATTINI_CONFIG", "linked/named.toml")
        .env("ATTINI_STATE_DIR", state);
    let written = own.iter().chain(&["linked/../linked/named.toml"]).fold(reply(), |reply, path| {
        if path.ends_with("trust.json") { reply.replace(path, "1", "2") } else { reply.replace(path, "alpha", "beta") }
    });
    let written = written.create("state/sessions/new/permissions.jsonl", "{}\n").create("xdg/attini/free", "x\n");
    case.server().script([written, reply().text("done")]);
    let ended = case.run(["tell", "go", "--allow", "write:.", "--allow", "write:xdg/attini/config.toml"]).exit(0);
    ended.stderr_contains("\"path\":\"xdg/attini/config.toml\"} allows nothing: no rule allows writing there");
    for path in own {
        assert_eq!(case.read(path), if path.ends_with("trust.json") { trust } else { content }, "{path}");
    }
    assert!(!case.exists("state/sessions/new/permissions.jsonl"));
    assert_eq!(case.read("xdg/attini/free"), "x\n", "what lies beside them is an ordinary file");
    let log = case.read("state/sessions/main/conversation.jsonl");
    assert_eq!(log.matches("it lies where attini keeps its own files\\nnext:").count(), 7, "{log}");
}

/// A listing shows names, and lets nothing be read below its folder.
#[test]
fn a_listing_outside_the_workspace_cannot_be_granted() {
    let case = beside_outside().script([reply().call("list", json!({"path": "../outside"}))]).with_unplayed_replies();
    case.run(["tell", "go"]).exit(10);
    assert_eq!(case.pending().unwrap()["calls"][0].get("grant"), None);
    case.run(["approve", "--grant", "session"]).exit(2).stderr_contains("no rule can cover call_1");
}
