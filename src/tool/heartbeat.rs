//! Tells of a tool that runs for long: every few seconds, how long it has run and how much output there was.
//!
//! It reports and decides nothing; what is made of a beat is the turn's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Between two beats.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Runs `work` in the calling thread and calls `beat` (elapsed, output bytes) from another after each `interval`; never
/// once `work` has returned. Where no thread can be made, the work is done without beats.
pub fn during<T>(
    interval: Duration,
    output_bytes: &AtomicU64,
    beat: impl Fn(Duration, u64) + Send + Sync,
    work: impl FnOnce() -> T,
) -> T {
    let started = Instant::now();
    let (done, until_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let _ = std::thread::Builder::new().name("heartbeat".to_owned()).spawn_scoped(scope, move || {
            let mut next = started + interval;
            loop {
                match until_done.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {
                        beat(started.elapsed(), output_bytes.load(Ordering::Relaxed));
                        // A beat that was held up is not made up for.
                        next = (next + interval).max(Instant::now());
                    }
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        // Dropped on the way out of a panic too, so that the thread ends and the scope with it.
        let _done = done;
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_come_while_the_work_runs() {
        let output_bytes = AtomicU64::new(0);
        let (sender, beats) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let beat = |elapsed, bytes| {
            if let Ok(sender) = sender.lock() {
                let _ = sender.send((elapsed, bytes));
            }
        };
        let interval = Duration::from_millis(5);
        let answer = during(interval, &output_bytes, beat, || {
            output_bytes.store(7, Ordering::Relaxed);
            // The first beat may have been taken before the store.
            let first: (Duration, u64) = beats.recv().expect("a first beat");
            let second = beats.recv().expect("a second beat");
            assert!(first.0 >= interval && second.0 > first.0);
            assert_eq!(second.1, 7);
            42
        });
        assert_eq!(answer, 42);
    }

    #[test]
    fn work_that_is_done_at_once_has_no_beat() {
        let beat = |_, _| panic!("there is nothing to tell");
        assert_eq!(during(Duration::from_secs(3600), &AtomicU64::new(0), beat, || 1), 1);
    }

    #[test]
    fn a_panic_of_the_work_gets_through() {
        let caught = std::panic::catch_unwind(|| {
            during(Duration::from_secs(3600), &AtomicU64::new(0), |_, _| (), || panic!("broken tool"));
        });
        assert!(caught.is_err());
    }
}
