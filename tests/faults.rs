//! What a kill or a failing system call leaves, at every call that attini makes to files: `strace` injects the fault at
//! the first, second, third ... call of each kind until a run is untouched, and each time everything is looked at.
//!
//! The faults hit attini's main thread alone. All that is written down is written there, and `strace` without `-f`
//! leaves both the programs that attini starts (git, the model's commands: what they break is theirs) and the threads
//! that read beside it alone. A second, shorter sweep kills at the calls of those threads (`-f`, and `-b execve` lets
//! go of whatever becomes another program).
//!
//! `strace` is no part of the machines on which attini is built, so this runs where `ATTINI_TEST_PEERS` is set to 1.

mod sweep;
mod syncs;
mod turn;

/// Whether the programs that tests compare with are installed.
fn has_strace() -> bool {
    std::env::var_os("ATTINI_TEST_PEERS").is_some_and(|value| value == "1")
}
