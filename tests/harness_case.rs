//! The world of a case: hermetic, redacted, with every wait bounded.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::json;

use crate::support::{Case, Invocation, Redactor, assert_text_eq, expect_file, json_lines, wait_until};

#[test]
fn the_binary_runs_in_a_hermetic_world() {
    let case = Case::new().file("sub/a.txt", "one\n").env("EXTRA", "1").unset("LC_ALL");
    assert_eq!(case.read("sub/a.txt"), "one\n");
    assert!(case.exists("sub") && !case.exists("b.txt"));
    assert!(case.workspace().is_absolute() && case.home().is_dir());
    case.attini(["--version"]).current_folder("sub").env("MORE", "1").stdin("").run().exit(0);
    case.start(["--version"]).wait().exit(0);
}

#[test]
fn what_is_given_before_the_first_run_is_committed() {
    let case = Case::new().untracked("new.txt", "new\n").git().file("a.txt", "one\n").config("[limits]\nrounds = 3\n");
    assert_eq!(case.run_git(&["ls-files"]), ".attini/config.toml\na.txt\n");
    assert_eq!(case.run_git(&["status", "--porcelain"]), "?? new.txt\n");
    assert_eq!(case.run_git(&["log", "--format=%an %ae %at %s"]), "Case case@example.org 981173106 start\n");
    case.write("a.txt", "two\n");
    assert_eq!(case.run_git(&["status", "--porcelain"]), " M a.txt\n?? new.txt\n");
}

#[test]
fn rules_and_configs_are_written_where_attini_looks() {
    let rule = || json!({"type": "command", "allow": true, "args": ["true"]});
    let case = Case::new().rules([rule()]).user_rules([rule(), rule()]).user_config("model = \"x/y\"\n").untrusted();
    assert_eq!(case.read(".attini/permissions.jsonl"), format!("{}\n", rule()));
    let config = case.home().join(".config/attini");
    assert_eq!(std::fs::read_to_string(config.join("permissions.jsonl")).unwrap(), format!("{0}\n{0}\n", rule()));
    assert_eq!(std::fs::read_to_string(config.join("config.toml")).unwrap(), "model = \"x/y\"\n");
}

fn shell<'a>(case: &'a Case, script: &str) -> Invocation<'a> {
    case.program("sh", ["-c", script])
}

#[test]
fn streams_and_exit_codes_are_taken_whole() {
    let case = Case::new();
    let outcome = shell(&case, "cat; pwd >&2; exit 7").stdin("one\n").run().exit(7);
    outcome.stdout("one\n").stderr("[WORKSPACE]\n").stdout_contains("ne").stderr_contains("WORK").stderr_lacks("one");
    assert_eq!(outcome.stderr_bytes(), format!("{}\n", case.workspace().display()).as_bytes());
    let large = "0123456789abcde\n".repeat(64 * 1024);
    shell(&case, "cat").stdin(&large).run().exit(0).stdout(&large);
    shell(&case, "env -i true; attini --version").run().exit(0);
    shell(&case, "echo x 2>/dev/null || exit 9").full_stdout().run().exit(9);
    shell(&case, "trap '' PIPE; echo x 2>/dev/null || exit 9").closed_stdout().run().exit(9);
    let message = panic_of(|| drop(shell(&case, "echo why >&2; exit 3").run().exit(0)));
    assert!(message.contains("exit code 0 was expected") && message.contains("why"), "{message}");
}

#[test]
fn the_environment_holds_nothing_from_outside() {
    let case = Case::new().env("EXTRA", "1").unset("XDG_CACHE_HOME");
    let names = shell(&case, "env | cut -d= -f1 | grep -v -e _ -e PWD -e OLDPWD -e SHLVL | sort");
    names.env("MORE", "1").unset("TZ").run().exit(0).stdout("EXTRA\nHOME\nMORE\nPATH\nTMPDIR\n");
    let bare = Case::new().without_model();
    shell(&bare, "env | grep -c -e _API_KEY= -e _BASE_URL= -e ATTINI_MODEL=").run().exit(1).stdout("0\n");
    let speaks = Case::new().anthropic();
    shell(&speaks, "echo $ATTINI_MODEL $ANTHROPIC_BASE_URL")
        .run()
        .exit(0)
        .stdout("anthropic/test-model http://[SERVER]\n");
}

#[test]
fn json_and_events_are_checked_against_the_exit_code() {
    let case = Case::new();
    let outcome = shell(&case, r#"echo '{"type":"result","exit_code":3,"elapsed_ms":9}'; exit 3"#).run().exit(3);
    assert_eq!(outcome.json()["elapsed_ms"], 9);
    assert_eq!(outcome.redacted_json(), json!({"type": "result", "exit_code": 3, "elapsed_ms": "[MS]"}));
    let outcome = shell(&case, r#"echo '{"type":"warning"}'; echo '{"type":"result","exit_code":0}'"#).run().exit(0);
    assert_eq!(outcome.events_of("warning").len(), 1);
    assert!(panic_of(|| drop(outcome.json())).contains("2 objects instead of one"));
    for (script, expected) in [
        (r#"echo '{"type":"result","exit_code":1}'"#, "the exit code was 0"),
        ("echo '{}'", "an object without a type"),
        ("echo text", "expected"),
        (r#"printf '{"type":"result","exit_code":0}'"#, "does not end a line"),
    ] {
        let outcome = shell(&case, script).run().exit(0);
        let message = panic_of(|| drop(outcome.events()));
        assert!(message.contains(expected), "{script}: {message}");
    }
}

#[test]
fn a_run_beside_the_test_can_be_awaited_written_to_and_signalled() {
    let case = Case::new();
    let script = "trap 'echo caught >&2; exit 143' TERM; echo ready >&2; touch there; while :; do read line || sleep 0.01; echo \"got $line\"; done";
    let mut running = shell(&case, script).start();
    running.wait_stderr("ready");
    case.wait_file("there");
    running.write_stdin("one\n");
    running.wait_stdout("got one");
    assert!(running.is_running() && running.process_id() > 0);
    running.close_stdin();
    running.signal(15);
    running.wait().exit(143).stderr("ready\ncaught\n");

    let running = shell(&case, "kill -9 $$").start();
    running.wait().killed_by(9);
    let running = shell(&case, "sleep 60").start();
    running.signal_group(9);
    running.wait().killed_by(9);
}

#[test]
fn a_run_that_does_not_end_is_killed_with_all_it_started() {
    let case = Case::new();
    // Nobody gave it an input: it waits for one until the deadline.
    let script = "sleep 60 & echo $! > child; echo said; cat";
    let message = panic_of(|| drop(shell(&case, script).deadline(Duration::from_millis(500)).run().exit(0)));
    assert!(message.contains("did not end in time") && message.contains("said"), "{message}");
    let child = case.read("child").trim().to_owned();
    let is_gone = || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    wait_until("the child is gone", is_gone);
}

#[test]
fn streams_held_beyond_the_end_fail() {
    let case = Case::new();
    let message =
        panic_of(|| drop(shell(&case, "sleep 5 & exit 0").deadline(Duration::from_millis(200)).run().exit(0)));
    assert!(message.contains("still holds its streams"), "{message}");
}

#[test]
fn a_key_that_is_written_fails() {
    let case = Case::new();
    let message = panic_of(|| drop(shell(&case, "echo $OPENAI_API_KEY").run().exit(0)));
    assert!(message.contains("a key was written"), "{message}");
}

fn panic_of(run: impl FnOnce()) -> String {
    let message = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    message.downcast::<String>().map_or_else(|message| format!("{message:?}"), |message| *message)
}

fn planted() -> String {
    let at = "2001-02-03T04:05:06.789Z";
    let calls = json!([{"id": "call_1", "name": "read", "arguments": "{}"}]);
    let records = [
        json!({"type": "session", "format": 1, "id": "s", "at": at, "attini": "0.1.0"}),
        json!({"type": "user", "turn": 1, "at": at, "text": "go", "settings": {}}),
        json!({"type": "assistant", "turn": 1, "round": 1, "at": at, "text": "", "tool_calls": calls}),
        json!({"type": "tool_result", "call_id": "call_1", "at": at, "status": "ok", "content": "one"}),
    ];
    json_lines(records)
}

#[test]
fn a_planted_session_can_be_read() {
    let case = Case::new().planted_log("main", planted());
    assert_eq!(case.record_types(), ["session", "user", "assistant", "tool_result"]);
    assert_eq!(case.result("call_1")["content"], "one");
    assert_eq!(case.pending(), None);
    case.assert_invariants();
}

/// What the case says when it is dropped, if it fails.
fn failure(case: Case) -> Option<String> {
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(case)));
    ended.err().map(|message| *message.downcast::<String>().unwrap())
}

#[test]
fn a_case_that_ends_with_a_broken_session_fails() {
    let open = || planted().split_inclusive('\n').take(3).collect::<String>();
    let later = json!({"type": "user", "turn": 1, "at": "2001-02-03T04:05:06.789Z", "text": "go", "settings": {}});
    let broken = || format!("{}{later}\n", open());
    assert_eq!(failure(Case::new().planted_log("main", open())), None, "an open call of the latest reply");
    let message = failure(Case::new().planted_log("main", broken())).unwrap();
    assert!(message.contains("session main: line 4: turn 1 starts after turn 1"), "{message}");
    assert_eq!(failure(Case::new().planted_log("main", broken()).without_invariants()), None);
    let message = failure(Case::new().planted_log("main", open()).planted_pending("main", "{")).unwrap();
    assert!(message.contains("pending.json: "), "{message}");
}

#[test]
fn a_session_is_checked_after_each_run_but_not_beside_one() {
    let case = Case::new().planted_log("main", "{\n").planted_pending("main", "{");
    let beside = shell(&case, "read line").start();
    shell(&case, "true").run().exit(0);
    drop(beside);
    let message = panic_of(|| drop(shell(&case, "true").run().exit(0)));
    assert!(message.contains("invariants are broken") && message.contains("line 1: not JSON"), "{message}");
    assert!(failure(case).is_some());
}

#[test]
fn a_log_that_lost_a_record_fails_the_case() {
    let case = Case::new().planted_log("main", planted());
    case.assert_invariants();
    let path = case.session_path("main", "conversation.jsonl");
    std::fs::write(&path, planted().replace("\"one\"", "\"two\"")).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let message = failure(case).unwrap();
    assert!(message.contains("were changed or removed"), "{message}");
}

#[test]
fn what_differs_from_run_to_run_is_redacted() {
    let redactor = Redactor::new([("/tmp/c".to_owned(), "[CASE]"), ("/tmp/c/workspace".to_owned(), "[WORKSPACE]")]);
    let hex = "0123456789abcdef".repeat(4);
    let cases = [
        ("in /tmp/c/workspace/a and /tmp/c/b".to_owned(), "in [WORKSPACE]/a and [CASE]/b"),
        ("at 2001-02-03T04:05:06.789Z, 2001-02-03T04:05:06Z".to_owned(), "at [TIME], [TIME]"),
        (format!("sha256:{hex} {hex}."), "[DIGEST] [DIGEST]."),
        ("01234567-89ab-cdef-0123-456789abcdef".to_owned(), "[ID]"),
        ("{\"duration_ms\":12,\"turn\":3}".to_owned(), "{\"duration_ms\":[MS],\"turn\":3}"),
        ("naïve 2001-02-03 0123abcd é".to_owned(), "naïve 2001-02-03 0123abcd é"),
    ];
    for (text, expected) in cases {
        assert_eq!(redactor.text(&text), expected);
    }
    let longer = format!("{hex}0");
    assert_eq!(redactor.text(&longer), longer, "no digest");
    let value = json!({"at": "2001-02-03T04:05:06.789Z", "elapsed_ms": 5, "calls": [{"cwd": "/tmp/c"}], "turn": 1});
    let expected = json!({"at": "[TIME]", "elapsed_ms": "[MS]", "calls": [{"cwd": "[CASE]"}], "turn": 1});
    assert_eq!(redactor.value(&value), expected);
}

#[test]
fn texts_are_compared_whole() {
    assert_text_eq("a text", "one\ntwo\n", "one\ntwo\n");
    let differing = std::panic::catch_unwind(|| assert_text_eq("a text", "one\ntwo\n", "one\nthree\n"));
    let message = *differing.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("-two") && message.contains("+three"), "{message}");
    expect_file("harness.txt", "An expectation that is kept in a file.\n");
}

#[test]
fn a_server_asked_beyond_its_script_fails_the_case() {
    let case = Case::new();
    let url = format!("{}/chat/completions", case.server().openai_base_url());
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "go"}]});
    let sent = ureq::post(url).header("Authorization", "Bearer k").header("Content-Type", "application/json");
    assert!(sent.send(body.to_string()).is_err());
    let message = failure(case).unwrap();
    assert!(message.contains("request 1: the script has no reply left"), "{message}");
}
