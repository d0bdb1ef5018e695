//! Both streams as one, as a terminal shows them: what a replay writes to, in large pieces, to stdout.
//!
//! Whoever stops reading (`| head`) has had enough; a disk that is full is an error, and is remembered.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BUFFER_BYTES: usize = 64 * 1024;

/// A handle to the screen; all clones write to the same one.
#[derive(Clone)]
pub struct Screen(Arc<Mutex<State>>);

struct State {
    stream: BufWriter<Box<dyn Write + Send>>,
    failed: Option<io::Error>,
}

impl Screen {
    pub fn on_stdout() -> Self {
        Self::onto(Box::new(io::stdout()))
    }

    pub fn onto(stream: Box<dyn Write + Send>) -> Self {
        let stream = BufWriter::with_capacity(BUFFER_BYTES, stream);
        Self(Arc::new(Mutex::new(State { stream, failed: None })))
    }

    /// Whether writing on is of no use.
    pub fn is_lost(&self) -> bool {
        self.state().failed.is_some()
    }

    /// Writes what is still held back. The error says what was lost on the way; a reader that has gone is none.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.failed.is_none() {
            state.failed = state.stream.flush().err();
        }
        match &state.failed {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(io::Error::new(error.kind(), format!("stdout cannot be written: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        if let Some(error) = &state.failed {
            return Err(error.kind().into());
        }
        let written = state.stream.write_all(bytes);
        match written {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let kind = error.kind();
                state.failed = Some(error);
                Err(kind.into())
            }
        }
    }

    /// Nobody waits for a line of a replay; [`Screen::finish`] writes the rest.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
