//! What a kill or a failing system call leaves, at every call that attini makes to files: `strace` injects the fault at
//! the first, second, third ... call of each kind until a run is untouched, and each time everything is looked at.
//!
//! The faults hit attini's main thread alone, since `strace` is not told to follow (`-f`). All that is written down is
//! written there. The programs that attini starts (git, the model's commands) are not hit: what they break is theirs,
//! and a point that broke git would leave attini's own next call untried. Nor are the threads that read beside the main
//! one: `strace` counts the calls of each thread by itself, so theirs could not be told from the main one's.
//!
//! `strace` is no part of the machines on which attini is built, so this runs where `ATTINI_TEST_PEERS` is set to 1.

mod full;
mod sweep;
mod syncs;
mod turn;

/// Whether the programs that tests compare with are installed.
fn has_strace() -> bool {
    std::env::var_os("ATTINI_TEST_PEERS").is_some_and(|value| value == "1")
}
