//! A log that can no longer be written, from any of its records on: one result says so, nothing else happens any more,
//! and what is on disk still loads.

use std::fs;

use super::has_strace;
use super::turn::{STAGES, assert_effects, assert_told_is_recorded, case, go_on, records};
use crate::support::Case;

/// The words that run a stage under `strace`, with every call on the session's log failing from that one on.
fn words(case: &Case, stage: usize, syscall: &str, number: u32) -> Vec<String> {
    let log = case.session_path("main", "conversation.jsonl").display().to_string();
    let trace = case.home().join("trace").display().to_string();
    let inject = format!("inject={syscall}:error=ENOSPC:when={number}+");
    let shown = format!("trace={syscall}");
    let words = ["-qq", "-o", &trace, "-P", &log, "-e", &shown, "-e", &inject, env!("CARGO_BIN_EXE_attini")];
    words.iter().chain(&["--output", "events"]).chain(STAGES[stage].0).map(|word| (*word).to_owned()).collect()
}

/// Returns whether there was a call to fail.
fn try_record(stage: usize, syscall: &str, number: u32) -> bool {
    let case = case();
    for (arguments, code) in &STAGES[..stage] {
        let _ = case.run(*arguments).exit(*code);
    }
    let before = records(&case);
    let (code, outcome) = case.program("strace", words(&case, stage, syscall, number)).start().wait().any();
    let trace = fs::read_to_string(case.home().join("trace")).expect("strace writes what it saw");
    if !trace.contains("(INJECTED)") {
        assert_eq!(code, Some(STAGES[stage].1), "{}", outcome.stderr_text());
        return false;
    }
    assert_eq!(code, Some(15), "{syscall} {number} of stage {stage}: {}", outcome.stderr_text());
    let results = outcome.events_of("result");
    assert_eq!(results.len(), 1, "{}", outcome.stdout_text());
    assert_eq!(results[0]["error"]["code"], "persistence_error");
    assert_told_is_recorded(&case, &outcome);
    let after = records(&case);
    assert!(after.starts_with(&before), "records that were on disk are gone");
    let replies = after.iter().filter(|line| line.contains("\"type\":\"assistant\"")).count();
    // The last one asked for may be the very reply that could not be written down.
    assert!(case.server().request_count() <= replies + 1, "the model is asked although nothing can be written down");
    let started = after.iter().filter(|line| line.contains("\"type\":\"tool_start\"")).count();
    assert!(case.order().len() <= started, "a command ran whose start is not on disk");
    go_on(&case, number);
    assert_effects(&case);
    true
}

#[test]
fn a_log_that_cannot_be_written_any_more_ends_everything() {
    if !has_strace() {
        return;
    }
    for stage in 0..STAGES.len() {
        for syscall in ["write", "fdatasync"] {
            let mut number = 1;
            while try_record(stage, syscall, number) {
                number += 1;
            }
            assert!(number > 1, "no {syscall} of stage {stage} failed");
        }
    }
}
