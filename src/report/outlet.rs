//! One of the process's own streams, written to so that a reader who has stopped reading cannot hold the end up.
//!
//! Each stream has a thread that does its writing; who prints waits for it, which keeps what is printed in order, and
//! stops waiting once the interrupt is raised. What is to be printed, and what it means that it was not, is decided
//! elsewhere.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::interrupt::Interrupt;

/// How long a write that does not end is still waited for once the interrupt is raised.
const GIVE_UP_AFTER: Duration = Duration::from_secs(1);
/// How often a write that does not end looks at the interrupt. A closer cannot wake it without a lock of the interrupt's,
/// which is held while an end is told of.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A handle; clones write to the same stream, one after the other.
#[derive(Clone)]
pub(super) struct Outlet {
    shared: Arc<Shared>,
    interrupt: Interrupt,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    /// Nothing was written yet, and there is no thread.
    New(Box<dyn Write + Send>),
    Idle,
    /// The thread has these bytes to write.
    Full(Vec<u8>),
    Writing,
    /// What the last write came to, until who waited for it has it.
    Failed(io::Error),
    /// A write was given up. Its thread may hang in it for ever, so nothing more can be written.
    GivenUp,
}

impl Outlet {
    pub(super) fn new(stream: Box<dyn Write + Send>, interrupt: &Interrupt) -> Self {
        let shared = Shared { state: Mutex::new(State::New(stream)), changed: Condvar::new() };
        Self { shared: Arc::new(shared), interrupt: interrupt.clone() }
    }

    pub(super) fn stdout(interrupt: &Interrupt) -> Self {
        Self::new(of_descriptor(io::stdout().as_fd(), || Box::new(io::stdout())), interrupt)
    }

    pub(super) fn stderr(interrupt: &Interrupt) -> Self {
        Self::new(of_descriptor(io::stderr().as_fd(), || Box::new(io::stderr())), interrupt)
    }

    /// Hands the bytes over if what was before is written within `patience`, and waits for nothing else; returns whether
    /// it did. An error is kept for the next write.
    pub(super) fn offer(&self, bytes: &[u8], patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.state();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match *state {
                State::New(_) | State::Idle => return self.hand_over(&mut state, bytes).is_ok(),
                State::Full(_) | State::Writing if !left.is_zero() => state = self.wait(state, left),
                State::Full(_) | State::Writing | State::Failed(_) | State::GivenUp => return false,
            }
        }
    }

    /// Gives the bytes to the thread, which is made for the first of them. The state is `New` or `Idle`.
    fn hand_over(&self, state: &mut State, bytes: &[u8]) -> io::Result<()> {
        if let State::New(stream) = std::mem::replace(state, State::Full(bytes.to_vec())) {
            let shared = Arc::clone(&self.shared);
            let made = std::thread::Builder::new().name("outlet".to_owned()).spawn(move || shared.write_to(stream));
            if let Err(error) = made {
                *state = State::GivenUp;
                return Err(error);
            }
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Waits until the thread has nothing to do; gives up after the interrupt.
    fn until_idle<'s>(&'s self, mut state: MutexGuard<'s, State>) -> io::Result<MutexGuard<'s, State>> {
        let mut give_up_at = None;
        loop {
            match *state {
                State::New(_) | State::Idle => return Ok(state),
                State::Failed(_) => {
                    return match std::mem::replace(&mut *state, State::Idle) {
                        State::Failed(error) => Err(error),
                        _ => Ok(state),
                    };
                }
                State::GivenUp => return Err(given_up()),
                State::Full(_) | State::Writing => {
                    if give_up_at.is_none() && self.interrupt.was_raised() {
                        give_up_at = Some(Instant::now() + GIVE_UP_AFTER);
                    }
                    if give_up_at.is_some_and(|at| at <= Instant::now()) {
                        *state = State::GivenUp;
                        return Err(given_up());
                    }
                    state = self.wait(state, LOOK_INTERVAL);
                }
            }
        }
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>, time: Duration) -> MutexGuard<'s, State> {
        self.shared.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Write for Outlet {
    /// Returns once all of it is written, or given up.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.until_idle(self.state())?;
        self.hand_over(&mut state, bytes)?;
        drop(self.until_idle(state)?);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// The thread's work, which ends with the process.
    fn write_to(&self, mut stream: Box<dyn Write + Send>) {
        let mut state = self.state();
        loop {
            match std::mem::replace(&mut *state, State::Writing) {
                State::Full(bytes) => {
                    drop(state);
                    let written = stream.write_all(&bytes).and_then(|()| stream.flush());
                    state = self.state();
                    if matches!(*state, State::Writing) {
                        *state = written.map_or_else(State::Failed, |()| State::Idle);
                        self.changed.notify_all();
                    }
                }
                other => {
                    *state = other;
                    if matches!(*state, State::GivenUp) {
                        return;
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A descriptor of its own for the stream: the standard library's would be locked by a write that hangs.
fn of_descriptor(
    descriptor: std::os::fd::BorrowedFd<'_>,
    otherwise: impl FnOnce() -> Box<dyn Write + Send>,
) -> Box<dyn Write + Send> {
    match descriptor.try_clone_to_owned() {
        Ok(own) => Box::new(File::from(own)),
        Err(_) => otherwise(),
    }
}

fn given_up() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "nobody reads it")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::exit::Signal;
    use crate::interrupt::Cause;

    /// A stream whose every write waits to be let through.
    struct Gate {
        opened: mpsc::Receiver<()>,
        seen: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.opened.recv().map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            let _ = self.seen.send(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated(interrupt: &Interrupt) -> (Outlet, mpsc::Sender<()>, mpsc::Receiver<Vec<u8>>) {
        let (open, opened) = mpsc::channel();
        let (seen, shown) = mpsc::channel();
        (Outlet::new(Box::new(Gate { opened, seen }), interrupt), open, shown)
    }

    #[test]
    fn a_write_waits_for_its_reader_and_keeps_the_order() {
        let (mut outlet, open, shown) = gated(&Interrupt::default());
        assert!(outlet.offer(b"first", Duration::ZERO));
        assert!(!outlet.offer(b"left out", Duration::ZERO), "the first is not written");
        let writing = std::thread::spawn(move || {
            outlet.write_all(b"second").unwrap();
            outlet
        });
        open.send(()).unwrap();
        open.send(()).unwrap();
        let mut outlet = writing.join().unwrap();
        assert_eq!([shown.recv().unwrap(), shown.recv().unwrap()], [b"first".to_vec(), b"second".to_vec()]);
        drop(open);
        assert_eq!(outlet.write_all(b"third").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn the_interrupt_ends_a_wait_for_good() {
        let interrupt = Interrupt::default();
        let (mut outlet, open, shown) = gated(&interrupt);
        let writing = std::thread::spawn(move || {
            let first = outlet.write_all(b"first").unwrap_err().kind();
            let begun = Instant::now();
            let second = outlet.write_all(b"second").unwrap_err().kind();
            (first, second, begun.elapsed())
        });
        interrupt.raise(Cause::Signal(Signal::Interrupt));
        let (first, second, took) = writing.join().unwrap();
        assert_eq!((first, second), (ErrorKind::TimedOut, ErrorKind::TimedOut));
        assert!(took < GIVE_UP_AFTER, "a stream that was given up is not waited for again");
        drop(open);
        assert!(shown.recv().is_err());
    }

    #[test]
    fn what_can_be_written_is_written_after_the_interrupt_too() {
        let interrupt = Interrupt::default();
        interrupt.raise(Cause::TimeLimit);
        let (mut outlet, open, shown) = gated(&interrupt);
        open.send(()).unwrap();
        outlet.write_all(b"the result").unwrap();
        assert_eq!(shown.recv().unwrap(), b"the result");
    }
}
