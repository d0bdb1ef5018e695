//! SIGHUP, SIGINT and SIGTERM while a turn does what can take long: the code, the time it takes, what is left running,
//! and what the log holds. Where attini itself writes, a sweep of its own signals at every call (`faults`).

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Case, Latch, Outcome, Running, mark_rule, reply, wait_until};

const SIGNALS: [(i32, i32); 3] = [(1, 129), (2, 130), (15, 143)];

/// How long an orderly end may take.
const END_MAX: Duration = Duration::from_secs(3);

/// Starts a child, tells of both processes, and waits for ever. What it is told to do at TERM is its first argument.
const HANG_SCRIPT: &str = "trap \"$1\" TERM\nsleep 1000 &\necho $$ $! > processes.new\nmv processes.new processes\n\
                           while :; do wait; done\n";

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n").file("hang.sh", HANG_SCRIPT).rules([
        mark_rule("before", true),
        mark_rule("behind", true),
        json!({"type": "command", "allow": true, "args_prefix": ["sh", "hang.sh"]}),
    ])
}

/// Signals, and waits for the end, which comes in time and with the signal's code.
#[track_caller]
fn interrupt(running: Running, signal: i32, code: i32) -> Outcome {
    let begun = Instant::now();
    running.signal(signal);
    let outcome = running.wait().exit(code);
    assert!(begun.elapsed() < END_MAX, "it took {:?}", begun.elapsed());
    let events = outcome.events();
    let result = events.last().expect("there is a result");
    assert_eq!((&result["type"], &result["status"]), (&json!("result"), &json!("interrupted")));
    outcome
}

/// Waits until the two processes of the script are there, and returns them.
#[track_caller]
fn hanging(case: &Case) -> Vec<String> {
    case.wait_file("processes");
    case.read("processes").split_whitespace().map(str::to_owned).collect()
}

fn is_gone(process: &str) -> bool {
    // Whoever has ended and was not asked for its status yet is gone too.
    let state = fs::read_to_string(format!("/proc/{process}/stat")).ok();
    state.is_none_or(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

#[track_caller]
fn assert_goes_on(case: &Case) {
    case.assert_invariants();
    case.server().script([reply().text("done")]);
    case.run(["resume"]).exit(0).stdout("done\n");
    case.run(["check"]).exit(0);
}

#[test]
fn while_the_service_lets_wait_for_its_headers() {
    for (signal, code) in SIGNALS {
        let latch = Latch::new();
        let case = case().script([reply().text("never").hold(&latch)]);
        let running = case.start(["--output", "events", "tell", "go"]);
        case.server().wait_requests(1);
        interrupt(running, signal, code);
        assert_goes_on(&case);
    }
}

#[test]
fn in_the_middle_of_a_stream() {
    for (signal, code) in SIGNALS {
        let latch = Latch::new();
        // The call is whole, the reply is not: nothing of it is kept.
        let stream = reply().text("a text of some length, in many pieces").mark("before").hold_after(600, &latch);
        let case = case().script([stream]);
        let running = case.start(["--output", "events", "tell", "go"]);
        running.wait_stdout("text_delta");
        interrupt(running, signal, code);
        assert!(case.order().is_empty());
        assert_eq!(case.record_types(), ["session", "user", "turn_end"]);
        assert_goes_on(&case);
    }
}

#[test]
fn while_the_next_try_is_waited_for() {
    for (signal, code) in SIGNALS {
        let case = case().script([reply().error(503, "{}").header("retry-after", "20")]);
        let running = case.start(["--output", "events", "tell", "go"]);
        running.wait_stdout("retrying");
        interrupt(running, signal, code);
        assert_goes_on(&case);
    }
}

#[test]
fn while_a_command_runs_between_other_calls() {
    for (signal, code) in SIGNALS {
        for at_term in ["exit 0", ":"] {
            let calls = reply().mark("before").command(&["sh", "hang.sh", at_term]).mark("behind").read("a.txt");
            let case = case().script([calls]);
            let running = case.start(["--output", "events", "tell", "go"]);
            let processes = hanging(&case);
            interrupt(running, signal, code);
            assert!(processes.iter().all(|process| is_gone(process)), "{processes:?} still run");
            let statuses = ["call_1", "call_2", "call_3", "call_4"].map(|id| case.outcome_of(id).0);
            assert_eq!(statuses, ["ok", "unknown", "cancelled", "cancelled"]);
            assert_eq!(case.order(), ["before"]);
            assert_goes_on(&case);
            assert_eq!(case.order(), ["before"], "nothing is run again");
        }
    }
}

#[test]
fn while_an_approved_command_runs() {
    for (signal, code) in SIGNALS {
        let case = case().script([reply().mark("asks").command(&["sh", "hang.sh", ":"]).read("a.txt")]);
        case.run(["tell", "go"]).exit(10);
        let running = case.start(["--output", "events", "approve"]);
        let processes = hanging(&case);
        interrupt(running, signal, code);
        assert!(processes.iter().all(|process| is_gone(process)), "{processes:?} still run");
        assert_eq!(case.outcome_of("call_2").0, "unknown");
        let waiting: Vec<String> = case.pending_calls().into_iter().map(|(id, ..)| id).collect();
        assert!(waiting.contains(&"call_3".to_owned()), "what was not started stays pending: {waiting:?}");
        assert_goes_on(&case);
        assert_eq!(case.order(), ["asks"]);
        assert_eq!(case.outcome_of("call_3").0, "ok");
    }
}

#[test]
fn while_the_sessions_lock_is_waited_for() {
    for (signal, code) in SIGNALS {
        let latch = Latch::new();
        let case = case().script([reply().text("done").hold(&latch)]);
        let holder = case.start(["tell", "go"]);
        case.server().wait_requests(1);
        let waiting = case.start(["--output", "events", "resume", "--wait"]);
        waiting.wait_stderr("waiting for the session");
        interrupt(waiting, signal, code);
        latch.release();
        holder.wait().exit(0).stdout("done\n");
    }
}

#[test]
fn a_second_signal_ends_at_once_and_the_log_is_whole() {
    for (signal, code) in SIGNALS {
        // It tells of TERM and stays, so the first signal alone would take until KILL.
        let case = case().script([reply().mark("before").command(&["sh", "hang.sh", "echo > asked"])]);
        let running = case.start(["--output", "events", "tell", "go"]);
        let processes = hanging(&case);
        running.signal(signal);
        case.wait_file("asked");
        running.signal(signal);
        let (ended_with, _) = running.wait().any();
        assert_eq!(ended_with, Some(code));
        let last = case.record_types().pop();
        assert_eq!(last.as_deref(), Some("tool_start"), "it did not wait for the command to end");
        // The command itself dies with attini; what it had started may still run, which its result says.
        wait_until("the command is gone", || is_gone(&processes[0]));
        let left = processes[1].parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
        let _ = rustix::process::kill_process(left, rustix::process::Signal::KILL);
        assert_goes_on(&case);
        assert_eq!(case.outcome_of("call_1").0, "ok");
        assert_eq!(case.outcome_of("call_2").0, "unknown");
        assert_eq!(case.order(), ["before"]);
    }
}
