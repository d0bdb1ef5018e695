//! What ends an invocation from outside: a signal, or the turn's own time limit.
//!
//! Everything that waits asks here, or registers a closer that ends its waiting.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::exit::Signal;

/// Why the invocation is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Signal(Signal),
    /// The turn's `max_time_s`.
    TimeLimit,
}

/// A handle that all who wait share. Clones are the same interrupt.
#[derive(Clone, Default)]
pub struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    cause: Option<Cause>,
    deadline: Option<Instant>,
    closers_made: u64,
    closers: Vec<(u64, Box<dyn Fn() + Send>)>,
}

impl Interrupt {
    /// Listens for SIGHUP, SIGINT and SIGTERM. The first one raises the interrupt; a second one ends the process at
    /// once with the exit code of that signal (the log stays valid: records are appended whole or cut off at load).
    pub fn listen(&self) -> std::io::Result<()> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let interrupt = self.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut seen = false;
            for number in signals.forever() {
                let Some(signal) = Signal::from_number(number) else { continue };
                if std::mem::replace(&mut seen, true) {
                    signal_hook::low_level::exit(128 + number);
                }
                interrupt.raise(Cause::Signal(signal));
            }
        })?;
        Ok(())
    }

    /// Raises the interrupt and runs the closers. The first cause stays.
    pub fn raise(&self, cause: Cause) {
        let mut state = self.state();
        if state.cause.is_some() {
            return;
        }
        state.cause = Some(cause);
        for (_, close) in &state.closers {
            close();
        }
        self.shared.changed.notify_all();
    }

    /// From then on [`Interrupt::cause`] is [`Cause::TimeLimit`], if nothing else came before. A thread watches, so
    /// that closers are run on time.
    pub fn raise_at(&self, deadline: Instant) -> std::io::Result<()> {
        self.state().deadline = Some(deadline);
        let interrupt = self.clone();
        std::thread::Builder::new().name("deadline".to_owned()).spawn(move || {
            if !interrupt.wait(deadline.saturating_duration_since(Instant::now())) {
                interrupt.raise(Cause::TimeLimit);
            }
        })?;
        Ok(())
    }

    /// Why the invocation is to end, if it is.
    pub fn cause(&self) -> Option<Cause> {
        let state = self.state();
        state.cause.or_else(|| state.deadline.filter(|deadline| *deadline <= Instant::now()).map(|_| Cause::TimeLimit))
    }

    pub fn is_raised(&self) -> bool {
        self.cause().is_some()
    }

    /// Sleeps for that long, or until the interrupt is raised; returns whether it was.
    pub fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.state();
        while state.cause.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Runs `close` when the interrupt is raised, at once if it already is, until the guard is dropped. It must not
    /// wait and must not call back into the interrupt.
    pub fn on_raise(&self, close: impl Fn() + Send + 'static) -> CloserGuard {
        let mut state = self.state();
        let number = state.closers_made;
        state.closers_made += 1;
        if state.cause.is_some() {
            close();
        } else {
            state.closers.push((number, Box::new(close)));
        }
        CloserGuard { interrupt: self.clone(), number }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a closer back when dropped.
#[must_use = "the closer is taken back when this is dropped"]
pub struct CloserGuard {
    interrupt: Interrupt,
    number: u64,
}

impl Drop for CloserGuard {
    fn drop(&mut self) {
        let number = self.number;
        self.interrupt.state().closers.retain(|(other, _)| *other != number);
    }
}
