//! The session's lock: who gets it, who waits, and what becomes of it when its holder dies.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::support::{Case, Latch, Running, reply, wait_until};

/// A turn that waits for the approval of a mark; the reply behind it is the next of the script.
fn suspended() -> Case {
    let case = Case::new().marks().script([reply().mark("asks")]);
    case.run(["tell", "go"]).exit(10);
    case
}

fn inode(case: &Case) -> u64 {
    fs::metadata(case.session_path("main", "lock")).unwrap().ino()
}

#[test]
fn of_all_that_come_at_once_one_wins_and_what_was_approved_runs_once() {
    for _ in 0..10 {
        let latch = Latch::new();
        let case = suspended().with_unplayed_replies();
        let lock = inode(&case);
        // The winner is held until all the others have given up.
        case.server().script([reply().text("done").hold(&latch)]);
        let mut running: Vec<Running> = ["approve", "deny", "resume", "approve", "resume"]
            .iter()
            .map(|command| case.start(["--output", "json", command]))
            .chain([case.start(["--output", "json", "tell", "other"])])
            .collect();
        // Two that end at once, `resume` where nothing is decided yet, may have come and gone before.
        case.server().wait_requests(2);
        wait_until("the others have ended", || {
            running.iter_mut().map(|run| u32::from(run.is_running())).sum::<u32>() <= 1
        });
        latch.release();
        let mut codes: Vec<i32> = running.into_iter().map(|run| run.wait().exit_any([0, 3, 10, 12])).collect();
        codes.sort_unstable();
        assert_eq!(codes[0], 0, "{codes:?}");
        assert!(codes[1..].iter().all(|code| [10, 12].contains(code)), "{codes:?}");
        assert!(codes.contains(&12), "{codes:?}");
        assert_eq!(case.server().request_count(), 2);
        case.assert_invariants();
        let starts = case.record_types().iter().filter(|kind| *kind == "tool_start").count();
        assert_eq!(case.order().len(), starts, "it runs once, or never where it was not approved");
        assert_eq!(inode(&case), lock, "the lock is still the same file");
        case.run(["status"]).exit(0).stdout_contains("idle");
    }
}

#[test]
fn two_approvals_at_once_run_the_call_once() {
    for _ in 0..10 {
        let case = suspended();
        case.server().script([reply().text("done")]);
        let running: Vec<Running> = (0..4).map(|_| case.start(["approve", "--wait"])).collect();
        let mut codes: Vec<i32> = running.into_iter().map(|run| run.wait().exit_any([0, 3])).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 3, 3, 3]);
        assert_eq!(case.order(), ["asks"]);
    }
}

#[test]
fn two_that_make_the_session_at_once_make_one() {
    for _ in 0..10 {
        let case = Case::new().script([reply().text("done"), reply().text("done")]);
        let running: Vec<Running> = (0..2).map(|_| case.start(["tell", "go", "--wait"])).collect();
        for run in running {
            run.wait().exit(0);
        }
        let turns: Vec<Value> = case.records().into_iter().filter(|record| record["type"] == "user").collect();
        assert_eq!(turns.len(), 2, "each had its turn, one behind the other");
        case.run(["check"]).exit(0);
    }
}

#[test]
fn a_killed_holder_blocks_nobody_whatever_the_lock_says() {
    let latch = Latch::new();
    let case = Case::new().script([reply().text("never").hold(&latch), reply().text("done")]);
    let holder = case.start(["tell", "go"]);
    case.server().wait_requests(1);
    let lock = inode(&case);
    let waiting = case.start(["resume", "--wait"]);
    waiting.wait_stderr(&format!("waiting for the session main, held by process {}", holder.process_id()));
    holder.signal(9);
    drop(holder.wait().killed_by(9));
    waiting.wait().exit(0).stdout("done\n");
    assert_eq!(inode(&case), lock, "the lock is still the same file");
    // What it says is for messages alone: not even a process that lives keeps anyone out.
    case.server().script([reply().text("two"), reply().text("three")]);
    for (text, answer) in
        [(format!("process {} on here\n", std::process::id()), "two\n"), ("\0\u{ff}".into(), "three\n")]
    {
        fs::write(case.session_path("main", "lock"), text).unwrap();
        case.run(["tell", "again"]).exit(0).stdout(answer);
        assert_eq!(inode(&case), lock);
    }
}

#[test]
fn waiting_ends_with_its_time() {
    let latch = Latch::new();
    let case = Case::new().script([reply().text("done").hold(&latch)]);
    let holder = case.start(["tell", "go"]);
    case.server().wait_requests(1);
    for command in
        [&["tell", "other", "--wait=1"][..], &["approve", "--wait=1"], &["deny", "--wait=1"], &["resume", "--wait=1"]]
    {
        let outcome = case.run(["--output", "json"].iter().chain(command)).exit(12);
        let holder = format!("held by process {}", holder.process_id());
        outcome.stderr_contains(&format!("waiting for the session main, {holder}"));
        let object = outcome.json();
        assert_eq!((&object["status"], &object["error"]["retryable"]), (&"locked".into(), &true.into()));
        assert!(object["error"]["message"].as_str().unwrap().contains(&holder), "{object}");
    }
    latch.release();
    holder.wait().exit(0).stdout("done\n");
    assert_eq!(case.record_types(), ["session", "user", "assistant", "turn_end"], "the others changed nothing");
}
