//! What is shown of a command while it runs, written behind the back of who reads the command's output.
//!
//! Whoever runs a command has to keep its time limit, however slowly a person or a script reads; so what it puts out is
//! handed over here, and what finds no room is left out and counted. Nothing that is a record's goes this way.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// At most so much waits to be written.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// How long the hand-over waits for room before it leaves out: a reader that reads is not outrun by a burst.
const PATIENCE: Duration = Duration::from_millis(100);

/// One thing to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<E> {
    Output(Vec<u8>),
    /// So many bytes of output were left out here.
    Gap(u64),
    /// A sign of life; one that nobody has seen yet stands for the next ones too.
    Beat(E),
}

/// The pieces on their way. Clones are the same.
pub(super) struct Live<E> {
    shared: Arc<Shared<E>>,
}

impl<E> Clone for Live<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<E> {
    state: Mutex<State<E>>,
    changed: Condvar,
}

struct State<E> {
    pieces: VecDeque<Piece<E>>,
    waiting_bytes: usize,
    /// There was no room; until much of what waits is written, all is left out, so that one gap tells of it.
    is_leaving_out: bool,
    has_thread: bool,
    /// How many pieces were handed over, and how many of them are done.
    taken: u64,
    done: u64,
}

impl<E: Send + 'static> Live<E> {
    pub(super) fn new() -> Self {
        let state = State {
            pieces: VecDeque::new(),
            waiting_bytes: 0,
            is_leaving_out: false,
            has_thread: false,
            taken: 0,
            done: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }) }
    }

    /// Hands output over. `show` is what writes a piece, on a thread that is made for the first one.
    pub(super) fn output(&self, bytes: &[u8], show: impl FnMut(Piece<E>) + Send + 'static) {
        let mut state = self.room_for(bytes.len());
        if state.is_leaving_out {
            let left_out = bytes.len() as u64;
            if let Some(Piece::Gap(gap)) = state.pieces.back_mut() {
                *gap += left_out;
                return;
            }
            state.push(Piece::Gap(left_out));
        } else {
            state.waiting_bytes += bytes.len();
            state.push(Piece::Output(bytes.to_vec()));
        }
        self.start(state, show);
    }

    /// Hands a sign of life over.
    pub(super) fn beat(&self, event: E, show: impl FnMut(Piece<E>) + Send + 'static) {
        let mut state = self.state();
        if !state.pieces.iter().any(|piece| matches!(piece, Piece::Beat(_))) {
            state.push(Piece::Beat(event));
        }
        self.start(state, show);
    }

    /// Waits until all that was handed over before is shown or given up.
    pub(super) fn settle(&self) {
        let mut state = self.state();
        let until = state.taken;
        while state.done < until {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits a little for room; without it, this and what follows is left out.
    fn room_for(&self, bytes: usize) -> MutexGuard<'_, State<E>> {
        let end = Instant::now() + PATIENCE;
        let mut state = self.state();
        if state.is_leaving_out {
            state.is_leaving_out = state.waiting_bytes > WAITING_BYTES_MAX / 2;
            return state;
        }
        while state.waiting_bytes > 0 && state.waiting_bytes.saturating_add(bytes) > WAITING_BYTES_MAX {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.is_leaving_out = true;
                break;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    fn start(&self, mut state: MutexGuard<'_, State<E>>, mut show: impl FnMut(Piece<E>) + Send + 'static) {
        if state.has_thread {
            self.shared.changed.notify_all();
            return;
        }
        let shared = Arc::clone(&self.shared);
        let made = std::thread::Builder::new().name("live output".to_owned()).spawn(move || {
            loop {
                let piece = shared.next();
                // Who waits for it must not wait for ever; the crash hook has told of the panic.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| show(piece)));
                shared.finish_one();
            }
        });
        state.has_thread = made.is_ok();
        if made.is_err() {
            // Nobody will show it, and nobody is to wait for it.
            state.pieces.clear();
            state.waiting_bytes = 0;
            state.done = state.taken;
        }
    }

    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.shared.state()
    }
}

impl<E> State<E> {
    fn push(&mut self, piece: Piece<E>) {
        self.pieces.push_back(piece);
        self.taken += 1;
    }
}

impl<E> Shared<E> {
    fn next(&self) -> Piece<E> {
        let mut state = self.state();
        loop {
            if let Some(piece) = state.pieces.pop_front() {
                if let Piece::Output(bytes) = &piece {
                    state.waiting_bytes -= bytes.len();
                    self.changed.notify_all();
                }
                return piece;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finish_one(&self) {
        self.state().done += 1;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_reader_that_stops_costs_output_and_no_time_and_is_told_how_much() {
        let piece = vec![b'a'; 64 * 1024];
        let live = Live::<&str>::new();
        let (open, opened) = mpsc::channel::<()>();
        let (shown, seen) = mpsc::channel();
        let show = move |piece| {
            // Closed once the reader reads again.
            let _ = opened.recv();
            let _ = shown.send(piece);
        };
        // A thread takes the first closure; the others are never called.
        live.output(&piece, show);
        let begun = Instant::now();
        for _ in 0..200 {
            live.output(&piece, |_| ());
            live.beat("beat", |_| ());
        }
        assert!(begun.elapsed() < PATIENCE * 20, "{:?}", begun.elapsed());
        drop(open);
        live.settle();
        live.output(b"again", |_| ());
        live.settle();
        let pieces: Vec<Piece<&str>> = seen.try_iter().collect();
        let bytes = |piece: &Piece<&str>| match piece {
            Piece::Output(bytes) => bytes.len() as u64,
            Piece::Gap(bytes) => *bytes,
            Piece::Beat(_) => 0,
        };
        assert_eq!(pieces.iter().map(bytes).sum::<u64>(), 201 * piece.len() as u64 + 5);
        assert_eq!(pieces.iter().filter(|piece| matches!(piece, Piece::Gap(_))).count(), 1);
        assert_eq!(pieces.iter().filter(|piece| matches!(piece, Piece::Beat(_))).count(), 1);
        assert_eq!(pieces.last(), Some(&Piece::Output(b"again".to_vec())));
    }

    #[test]
    fn a_reader_that_reads_gets_everything() {
        let live = Live::<()>::new();
        let (shown, seen) = mpsc::channel();
        let show = move |piece| {
            let _ = shown.send(piece);
        };
        live.output(b"0", show);
        let mut expected = b"0".to_vec();
        for number in 0..1000_u32 {
            let bytes = number.to_string().repeat(500).into_bytes();
            live.output(&bytes, |_| ());
            expected.extend(bytes);
        }
        live.settle();
        let output: Vec<u8> = seen
            .try_iter()
            .flat_map(|piece| match piece {
                Piece::Output(bytes) => bytes,
                Piece::Gap(_) | Piece::Beat(()) => Vec::new(),
            })
            .collect();
        assert!(output == expected);
    }
}
