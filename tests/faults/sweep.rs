//! The sweep itself: every point at which a fault can be injected, on all cores, with a count of them at the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

use super::has_strace;
use super::turn::{
    STAGES, assert_effects, assert_every_call_answered_or_pending, assert_tidy, assert_told_is_recorded, case, go_on,
    records,
};
use crate::support::{Case, Outcome};

/// What attini does to files and to the session's lock. `?`: not every machine has it, others do.
const SYSCALLS: [&str; 18] = [
    "?openat2",
    "openat",
    "write",
    "pwrite64",
    "?writev",
    "fdatasync",
    "fsync",
    "?rename",
    "renameat",
    "?renameat2",
    "?unlink",
    "unlinkat",
    "ftruncate",
    "?mkdir",
    "mkdirat",
    "?rmdir",
    "flock",
    "fcntl",
];

/// Those of them that every turn makes, and that change something.
const WRITES: [&str; 8] = ["write", "fdatasync", "fsync", "renameat", "unlinkat", "ftruncate", "mkdirat", "flock"];

/// The codes that an invocation which is hit by an error may end with: those of its stage, and those that name a failure.
const FAILURE_CODES: [i32; 6] = [1, 2, 12, 13, 15, 16];

/// What the dynamic loader ends with when it cannot open a library: attini itself has not begun.
const LOADER_CODE: i32 = 127;

/// So many points may fail before the rest is left out.
const FAILURES_MAX: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Kill,
    Error(&'static str),
    /// SIGINT, SIGTERM and SIGHUP by turns.
    Interrupt,
}

const ERRORS: [Fault; 3] = [Fault::Error("EIO"), Fault::Error("ENOSPC"), Fault::Error("EINTR")];

const SIGNALS: [(&str, i32); 3] = [("HUP", 129), ("INT", 130), ("TERM", 143)];

/// How soon an invocation ends that was interrupted.
const INTERRUPT_SECONDS_MAX: u64 = 3;

/// All points of one kind.
#[derive(Debug, Clone, Copy)]
struct Kind {
    stage: usize,
    syscall: &'static str,
    fault: Fault,
}

impl Kind {
    fn name(&self) -> String {
        let fault = match self.fault {
            Fault::Kill => "SIGKILL",
            Fault::Error(error) => error,
            Fault::Interrupt => "SIGHUP/SIGINT/SIGTERM",
        };
        format!("{} {fault}", self.syscall.trim_start_matches('?'))
    }

    fn strace(&self, case: &Case, number: u32) -> Vec<String> {
        let fault = match self.fault {
            Fault::Kill => "signal=KILL".to_owned(),
            Fault::Error(error) => format!("error={error}"),
            Fault::Interrupt => format!("signal={}", signal(number).0),
        };
        let mut words = vec!["-qq".to_owned(), "-o".to_owned(), case.home().join("trace").display().to_string()];
        words.extend(["-e".to_owned(), format!("trace={}", self.syscall)]);
        words.extend(["-e".to_owned(), format!("inject={}:{fault}:when={number}", self.syscall)]);
        words.extend([env!("CARGO_BIN_EXE_attini"), "--output", "events"].map(str::to_owned));
        words.extend(STAGES[self.stage].0.iter().map(|word| (*word).to_owned()));
        words
    }
}

/// The signal of a point that is interrupted, and the code it ends with.
fn signal(number: u32) -> (&'static str, i32) {
    SIGNALS[number as usize % SIGNALS.len()]
}

/// How a point ended.
struct Hit {
    /// Whether there was a call to inject the fault at.
    injected: bool,
    code: Option<i32>,
}

/// Breaks the turn at one point, and checks everything.
fn try_point(kind: &Kind, number: u32) -> Hit {
    let case = case();
    for (arguments, code) in &STAGES[..kind.stage] {
        let _ = case.run(*arguments).exit(*code);
    }
    let before = records(&case);
    let begun = Instant::now();
    let (code, outcome) = case.program("strace", kind.strace(&case, number)).start().wait().any();
    let took = begun.elapsed();
    let trace = fs::read_to_string(case.home().join("trace")).expect("strace writes what it saw");
    let injected = trace.contains("(INJECTED)")
        || code.is_none()
        || SIGNALS.iter().any(|(name, _)| trace.contains(&format!("--- SIG{name} ")));
    let after = records(&case);
    assert!(after.starts_with(&before), "records that were on disk are gone");
    match (kind.fault, code) {
        (Fault::Kill, None) => {}
        (_, None) => panic!("it was killed: {}", outcome.stderr_text()),
        (Fault::Interrupt, Some(code)) if injected && code == signal(number).1 => {
            assert!(took.as_secs() < INTERRUPT_SECONDS_MAX, "it ended after {took:?}");
            assert_eq!(outcome.events().pop().unwrap()["status"], "interrupted", "{}", outcome.stdout_text());
            assert_every_call_answered_or_pending(&case);
        }
        (_, Some(code)) => assert_ended_well(kind, injected, code, &outcome),
    }
    assert_told_is_recorded(&case, &outcome);
    go_on(&case, number);
    assert_effects(&case);
    assert_tidy(&case);
    Hit { injected, code }
}

fn assert_ended_well(kind: &Kind, injected: bool, code: i32, outcome: &Outcome) {
    let told = format!("{}\n{}", outcome.stdout_text(), outcome.stderr_text());
    let expected = STAGES[kind.stage].1;
    if !injected {
        assert_eq!(code, expected, "nothing was injected:\n{told}");
        return;
    }
    assert!(kind.fault != Fault::Kill, "a killed process ended by itself with {code}:\n{told}");
    if code == LOADER_CODE && told.contains("error while loading shared libraries") {
        return;
    }
    // A signal that comes when all is done changes nothing.
    let is_late = kind.fault == Fault::Interrupt && code == expected;
    assert!(is_late || kind.fault != Fault::Interrupt, "interrupted, and ended with {code}:\n{told}");
    assert!(code == expected || FAILURE_CODES.contains(&code), "ended with {code}:\n{told}");
    if kind.syscall == "write" {
        // The very line that the rest asks for may be the one that was lost.
        return;
    }
    let result: Value = outcome.events().pop().unwrap_or_default();
    assert_eq!(result["type"], "result", "{told}");
    assert_ne!(result["error"]["code"], "panic", "{told}");
    if code == 15 {
        assert_eq!(result["status"], "persistence_error", "{told}");
    }
}

#[derive(Default)]
struct Tally {
    points: BTreeMap<String, u32>,
    /// By kind of point: which codes the broken invocations ended with.
    codes: BTreeMap<String, BTreeMap<String, u32>>,
    failures: Vec<String>,
}

/// All points of a kind, up to the first run that is untouched.
fn try_kind(kind: &Kind, tally: &Mutex<Tally>) {
    for number in 1.. {
        let hit = catch_unwind(AssertUnwindSafe(|| try_point(kind, number)));
        let mut tally = tally.lock().unwrap();
        match hit {
            Ok(Hit { injected: false, .. }) => {
                tally.points.entry(kind.name()).or_default();
                return;
            }
            Ok(Hit { code, .. }) => {
                *tally.points.entry(kind.name()).or_default() += 1;
                let code = code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
                *tally.codes.entry(kind.name()).or_default().entry(code).or_default() += 1;
            }
            Err(payload) => {
                let message = payload.downcast_ref::<String>().cloned();
                let message = message.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let command = STAGES[kind.stage].0.join(" ");
                let place = format!("{} at call {number} of `attini {command}`", kind.name());
                tally.failures.push(format!("{place}: {}", message.unwrap_or_default()));
            }
        }
        if tally.failures.len() >= FAILURES_MAX {
            return;
        }
    }
}

/// Breaks the turn at every point of all these kinds. The points are told on stderr whatever the test runner captures.
fn sweep(what: &str, kinds: impl IntoIterator<Item = Kind>) {
    let begun = Instant::now();
    let kinds = Mutex::new(kinds.into_iter().collect::<VecDeque<_>>());
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let kind = kinds.lock().unwrap().pop_front();
                    match kind {
                        Some(kind) => try_kind(&kind, &tally),
                        None => return,
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    let total: u32 = tally.points.values().sum();
    let mut report = vec![format!("{what}: {total} points in {} s\n", begun.elapsed().as_secs())];
    for (name, points) in tally.points.iter().filter(|(_, points)| **points > 0) {
        let codes = tally.codes.get(name).into_iter().flatten();
        let codes: Vec<String> = codes.map(|(code, count)| format!("{code} x {count}")).collect();
        report.push(format!("  {name}: {points} points; ended with {}\n", codes.join(", ")));
    }
    std::io::stderr().write_all(report.concat().as_bytes()).unwrap();
    assert!(tally.failures.is_empty(), "{} points failed:\n{}", tally.failures.len(), tally.failures.join("\n\n"));
    let names: BTreeSet<&str> =
        tally.points.iter().filter(|(_, points)| **points > 0).map(|(name, _)| name.as_str()).collect();
    for syscall in WRITES {
        assert!(names.iter().any(|name| name.starts_with(syscall)), "no fault was injected at {syscall}");
    }
}

fn kinds(fault: Fault, syscalls: &[&'static str]) -> impl Iterator<Item = Kind> {
    (0..STAGES.len()).flat_map(move |stage| syscalls.iter().map(move |syscall| Kind { stage, syscall, fault }))
}

#[test]
fn a_kill_at_any_system_call_loses_nothing_and_doubles_nothing() {
    if !has_strace() {
        return;
    }
    sweep("kills", kinds(Fault::Kill, &SYSCALLS));
}

#[test]
fn an_error_of_any_system_call_loses_nothing_and_doubles_nothing() {
    if !has_strace() {
        return;
    }
    // Most calls of fcntl ask about a descriptor, and all their errors are treated alike: one stands for the others.
    let kinds = ERRORS.into_iter().flat_map(|fault| kinds(fault, &SYSCALLS));
    sweep("errors", kinds.filter(|kind| kind.syscall != "fcntl" || kind.fault == Fault::Error("EIO")));
}

#[test]
fn a_signal_at_any_write_ends_the_turn_in_order() {
    if !has_strace() {
        return;
    }
    sweep("signals", kinds(Fault::Interrupt, &WRITES));
}
