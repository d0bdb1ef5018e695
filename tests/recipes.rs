//! The scripts that the README shows, run as a job would run them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Case, Ended, Reply, reply, repository_path};

const TEST: &str = "grep -q two notes.md\n";

fn recipe(name: &str) -> PathBuf {
    repository_path("fixtures/recipes").join(name)
}

/// A checkout with a file to change and a test.
fn checkout() -> Case {
    Case::new().git().file("notes.md", "one\n").file("test.sh", TEST)
}

fn artifact(case: &Case) -> PathBuf {
    case.home().join("artifact")
}

#[track_caller]
fn run_turn(case: &Case) -> Ended {
    let artifact = artifact(case);
    let arguments = [recipe("turn.sh"), artifact, "add a line".into()];
    case.program("sh", arguments).env("RETRY_SECONDS", "0").run()
}

#[track_caller]
fn kept(case: &Case, name: &str) -> String {
    let path = artifact(case).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[track_caller]
fn kept_result(case: &Case) -> Value {
    serde_json::from_str(&kept(case, "result.json")).unwrap()
}

fn patch() -> Value {
    json!({"edits": [{"path": "notes.md", "before": "one\n", "after": "one\ntwo\n"}]})
}

/// A reply that changes a file, which runs, and then runs a program, which asks.
fn change_and_test() -> Reply {
    reply().call("patch", patch()).call("command", json!({"argv": ["sh", "test.sh"]}))
}

#[test]
fn a_turn_that_ends_ends_the_job() {
    let case = checkout().script([reply().call("read", json!({"path": "notes.md"})), reply().text("One line.")]);
    run_turn(&case).exit(0).stdout("finished\n");
    assert_eq!(kept_result(&case)["text"], "One line.");
    let changes = kept(&case, "changes.patch");
    let changed: Vec<&str> = changes.lines().filter(|line| line.starts_with("diff ")).collect();
    assert!(changed.is_empty(), "{changed:?}");
}

#[test]
fn a_failing_service_is_asked_again() {
    let failing = || reply().error(400, "this model is being replaced");
    let case = checkout().script([failing(), failing(), reply().text("Here again.")]);
    run_turn(&case).exit(0).stdout("finished\n");
    assert_eq!(kept_result(&case)["text"], "Here again.");

    let case = checkout().script([failing(), failing(), failing()]);
    run_turn(&case).exit(13).stdout("").stderr_contains("the model service failed\n");
    assert_eq!(kept_result(&case)["error"]["retryable"], false);
}

#[test]
fn a_turn_at_its_limit_goes_on() {
    let read = || reply().call("read", json!({"path": "notes.md"}));
    let case = checkout().config("[limits]\nrounds = 1\n").script([read(), reply().text("One line.")]);
    run_turn(&case).exit(0).stdout("finished\n");
    let case = checkout().config("[limits]\nrounds = 1\n").script([read(), read(), read()]);
    run_turn(&case).exit(14).stderr_contains("stopped at a limit, still unfinished\n");
}

#[test]
fn a_wrong_setting_fails_the_job() {
    let case = checkout().without_model();
    run_turn(&case).exit(2).stdout("").stderr_contains("failed with exit code 2\n");
    assert_eq!(kept_result(&case)["status"], "usage");
}

/// Another checkout of the commit that the job started from, as another machine has it.
fn fresh_checkout(case: &Case) -> PathBuf {
    let path = case.home().join("checkout");
    if path.exists() {
        return path;
    }
    let mut git = Command::new("git");
    git.args(["clone", "--quiet"]).arg(case.workspace()).arg(&path).env_clear();
    git.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    assert!(git.status().unwrap().success());
    path
}

#[track_caller]
fn decide(case: &Case, decision: &str, digest: &str) -> Ended {
    fresh_checkout(case);
    let decide = recipe("decide.sh");
    let arguments = [decide.to_str().unwrap(), "../artifact", decision, digest];
    case.program("sh", arguments).current_folder("../home/checkout").run()
}

fn read_in_checkout(case: &Case, name: &str) -> String {
    fs::read_to_string(case.home().join("checkout").join(name)).unwrap()
}

#[test]
fn what_one_job_left_pending_another_one_approves() {
    let case = checkout().script([change_and_test(), reply().text("It passes.")]);
    let stdout = run_turn(&case).exit(0).stdout_text();
    assert_eq!(stdout, "waits for approval of [DIGEST]\n");
    let digest = kept(&case, "digest").trim().to_owned();
    assert_eq!(
        (kept_result(&case)["digest"].as_str(), kept_result(&case)["exit_code"].as_u64()),
        (Some(&*digest), Some(10))
    );
    decide(&case, "approve", &digest).exit(0).stdout_contains("It passes.\n");
    assert_eq!(read_in_checkout(&case, "notes.md"), "one\ntwo\n");
    let log = read_in_checkout(&case, ".attini/sessions/ci/conversation.jsonl");
    assert!(log.contains(r#""decision":"approve""#), "{log}");
}

#[test]
fn what_was_not_looked_at_is_not_approved() {
    let case = checkout().script([change_and_test()]);
    run_turn(&case).exit(0);
    for decision in ["approve", "deny"] {
        decide(&case, decision, "sha256:0").exit(17).stderr_contains("pending.json has the digest");
    }
}

#[test]
fn what_one_job_left_pending_another_one_denies() {
    let case = checkout().script([change_and_test(), reply().text("Then not.")]);
    run_turn(&case).exit(0);
    let digest = kept(&case, "digest").trim().to_owned();
    decide(&case, "deny", &digest).exit(0).stdout_contains("Then not.\n");
    let log = read_in_checkout(&case, ".attini/sessions/ci/conversation.jsonl");
    assert!(log.contains("a reviewer said no"), "{log}");
}

#[test]
fn nobody_is_asked_in_an_unattended_job() {
    let create = |path: &str| json!({"edits": [{"path": path, "content": "x\n"}]});
    let calls = reply()
        .call("patch", create("docs/usage.md"))
        .call("patch", create("docs/licence.md"))
        .call("command", json!({"argv": ["sh", "test.sh"]}))
        .call("command", json!({"argv": ["rm", "notes.md"]}));
    let case = checkout().untrusted().file("test.sh", "touch tested\n").script([calls, reply().text("Written.")]);
    case.program("sh", [recipe("unattended.sh"), "write the docs".into()])
        .run()
        .exit(0)
        .stdout("Written.\n")
        .stderr("");
    assert!(case.exists("docs/usage.md") && case.exists("tested"));
    assert!(!case.exists("docs/licence.md") && case.exists("notes.md"));
    let records = case.records_of("nightly");
    let statuses: Vec<&str> = records
        .iter()
        .filter(|record| record["type"] == "tool_result")
        .map(|record| record["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["ok", "denied", "ok", "denied"]);
}

#[test]
fn an_unattended_job_that_stops_says_how_to_go_on() {
    let case = checkout().script([reply().error(400, "no such model")]);
    let outcome = case.program("sh", [recipe("unattended.sh"), "write the docs".into()]).run().exit(13);
    outcome.stdout("").stderr_contains("not finished today; `attini -s nightly resume` goes on\n");
}
