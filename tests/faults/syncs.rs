//! What a power cut would leave: whatever is told, sent or started, all that was written before it is synced by then.
//!
//! A kill leaves what the kernel holds, so only the order of the calls themselves shows this.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::has_strace;
use super::turn::{STAGES, case};
use crate::support::Case;

/// Files and folders that were changed and not synced since.
#[derive(Default)]
struct Disk {
    unsynced: BTreeSet<String>,
    /// By thread: what a call that has not returned yet will have synced.
    syncing: BTreeMap<String, String>,
    reached: BTreeSet<&'static str>,
}

/// From where on the rest must not depend on anything that a power cut would take back, and how its line is known.
const BARRIERS: [(&str, &[&str]); 7] = [
    ("a result is told", &["write(", "<pipe:", r#"{\"type\":\"tool_result\""#]),
    ("a suspension is told", &["write(", "<pipe:", r#"{\"type\":\"awaiting\""#]),
    ("the end is told", &["write(", "<pipe:", r#"{\"type\":\"result\""#]),
    ("a request is sent", &["\"POST /v1/"]),
    ("a command starts", &["execve(", "\"mark.sh\""]),
    ("pending.json appears", &["renameat(", "\"pending.json\""]),
    ("pending.json goes", &["unlinkat(", "\"pending.json\""]),
];

impl Disk {
    fn see(&mut self, line: &str) {
        let (thread, call) = line.split_once(' ').expect("a line begins with its thread");
        let call = call.trim_start();
        if call.contains("resumed>") {
            let synced = self.syncing.remove(thread);
            assert!(synced.is_none() || call.ends_with("= 0"), "{line}");
            self.unsynced.retain(|path| Some(path) != synced.as_ref());
            return;
        }
        for (name, parts) in BARRIERS {
            if parts.iter().all(|part| call.contains(part)) {
                self.reached.insert(name);
                assert!(
                    self.unsynced.is_empty(),
                    "{name}, and {:?} would be lost by a power cut:\n{line}",
                    self.unsynced
                );
            }
        }
        let Some(path) = call.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path) else {
            return;
        };
        if call.starts_with("fsync(") || call.starts_with("fdatasync(") {
            if call.contains("<unfinished") {
                self.syncing.insert(thread.to_owned(), path.to_owned());
            } else {
                assert!(call.ends_with("= 0"), "{line}");
                self.unsynced.remove(path);
            }
        } else if call.starts_with("renameat(") {
            self.rename(path, call, line);
        } else if is_kept(path) && !call.contains("= -1") {
            self.unsynced.insert(path.to_owned());
        }
    }

    fn rename(&mut self, folder: &str, call: &str, line: &str) {
        let names: Vec<&str> = call.split('"').skip(1).step_by(2).collect();
        let [from, _] = names[..] else { panic!("two names are expected: {line}") };
        assert!(!self.unsynced.contains(&format!("{folder}/{from}")), "a file is renamed before it is synced: {line}");
        self.unsynced.insert(folder.to_owned());
    }
}

/// Pipes and sockets are no files, and what the lock holds serves messages alone.
fn is_kept(path: &str) -> bool {
    path.starts_with('/') && !path.ends_with("/lock") && !path.starts_with("/dev/")
}

fn traced(case: &Case, arguments: &[&str], code: i32) -> String {
    let trace = case.home().join("trace");
    let calls = "trace=write,pwrite64,ftruncate,sendto,fdatasync,fsync,renameat,unlinkat,mkdirat,execve";
    let shown = trace.display().to_string();
    let words =
        ["-qq", "-f", "-y", "-s", "400", "-b", "execve", "-o", &shown, "-e", calls, env!("CARGO_BIN_EXE_attini")];
    let words = words.iter().chain(&["--output", "events"]).chain(arguments);
    case.program("strace", words).run().exit(code);
    fs::read_to_string(&trace).expect("strace writes what it saw")
}

#[test]
fn whatever_is_told_sent_or_started_stands_on_what_a_power_cut_leaves() {
    if !has_strace() {
        return;
    }
    let case = case();
    let mut reached = BTreeSet::new();
    for (arguments, code) in STAGES {
        let mut disk = Disk::default();
        traced(&case, arguments, code).lines().for_each(|line| disk.see(line));
        assert!(disk.unsynced.is_empty(), "{arguments:?} ends, and {:?} would be lost by a power cut", disk.unsynced);
        reached.extend(disk.reached);
    }
    assert_eq!(reached.len(), BARRIERS.len(), "only these were seen: {reached:?}");
}
