//! What ends an invocation from outside: a signal, or the turn's own time limit.
//!
//! Everything that waits asks here, or registers a closer that ends its waiting. Until there is anything to end in order,
//! a signal ends the process at once, whatever it waits for: a prompt on stdin, a file that is a pipe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::exit::Signal;

/// How long telling of the end may hold it up: whoever reads stdout may have stopped reading.
const TELL_SECONDS_MAX: u64 = 1;

/// Why the invocation is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Signal(Signal),
    /// The turn's `max_time_s`.
    TimeLimit,
    /// Whoever asked for the work no longer wants it.
    Cancelled,
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
    /// That there is a cause, for who must not wait for the state.
    is_raised: AtomicBool,
}

#[derive(Default)]
struct State {
    cause: Option<Cause>,
    deadline: Option<Instant>,
    /// What tells of the end by a signal while nothing has to be ended in order.
    tell: Option<Box<dyn FnOnce(Signal) + Send>>,
    closers_made: u64,
    closers: Vec<(u64, Box<dyn Fn() + Send>)>,
}

impl Interrupt {
    /// Listens for SIGHUP, SIGINT and SIGTERM. Before [`Interrupt::end_in_order`] the first one ends the process with
    /// the exit code of that signal, once `tell` has told of it; after that it raises the interrupt. A second one ends
    /// the process at once (the log stays valid: records are appended whole or cut off at load).
    pub fn listen(&self, tell: impl FnOnce(Signal) + Send + 'static) -> std::io::Result<()> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        self.state().tell = Some(Box::new(tell));
        let interrupt = self.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut seen = false;
            for number in signals.forever() {
                let Some(signal) = Signal::from_number(number) else { continue };
                if std::mem::replace(&mut seen, true) {
                    signal_hook::low_level::exit(128 + number);
                }
                interrupt.end_at_once(signal);
                interrupt.raise(Cause::Signal(signal));
            }
        })?;
        Ok(())
    }

    /// From now on there is something that a signal must not just break off: a turn, a command that runs.
    pub fn end_in_order(&self) {
        self.state().tell = None;
    }

    /// Ends the process, unless it has to end in order. The state stays locked, so that nothing begins meanwhile.
    fn end_at_once(&self, signal: Signal) {
        let mut state = self.state();
        let Some(tell) = state.tell.take() else { return };
        let (done, told) = std::sync::mpsc::channel();
        let telling = std::thread::Builder::new().name("last words".to_owned()).spawn(move || {
            tell(signal);
            // Nobody listens any more if it took too long.
            let _ = done.send(());
        });
        if telling.is_ok() {
            let _ = told.recv_timeout(Duration::from_secs(TELL_SECONDS_MAX));
        }
        signal_hook::low_level::exit(128 + signal.number());
    }

    /// Raises the interrupt and runs the closers. The first cause stays.
    pub fn raise(&self, cause: Cause) {
        let mut state = self.state();
        if state.cause.is_some() {
            return;
        }
        state.cause = Some(cause);
        self.shared.is_raised.store(true, Ordering::Relaxed);
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

    /// As [`Interrupt::is_raised`], a moment late where a time limit raises it, and without waiting: for what is also
    /// asked while an end is told of.
    pub fn was_raised(&self) -> bool {
        self.shared.is_raised.load(Ordering::Relaxed)
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
