//! A person at a terminal: one key, or one line, at a time.
//!
//! What was typed before something was shown is not meant for it, so it is thrown away; and what comes in one piece is
//! more than a key: a paste, an arrow. The terminal is out of its own mode only while a key is awaited, and is put back
//! on every way out: the answer, an error, a panic, a signal.

use std::io::{self, IsTerminal, Read, Write};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::interrupt::{CloserGuard, Interrupt};

/// How much is read at once: the longest that a single key sends.
const CHUNK_BYTES: usize = 64;
/// For a terminal that does not know its size.
const ROWS_DEFAULT: usize = 24;
const COLUMNS_DEFAULT: usize = 80;

const CONTROL_D: u8 = 0x04;
const CONTROL_Z: u8 = 0x1a;
/// A special character that nothing stands for.
const DISABLED: u8 = 0;

/// The terminal that stdin and stderr are.
pub struct Terminal<'i> {
    interrupt: &'i Interrupt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A key that is a plain character.
    Letter(char),
    /// Something that is no single such key: nothing may be decided by it.
    Other,
    /// The process was stopped and goes on: the screen may hold something else by now.
    Resumed,
    /// There will be no more.
    End,
    /// The interrupt was raised.
    Interrupted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    /// Without its line end.
    Line(String),
    /// Too long, or no UTF-8.
    NotText,
    /// The person closed it with nothing said.
    End,
    Interrupted,
}

impl<'i> Terminal<'i> {
    /// `None` where stdin or stderr is something else. Signals are from now on for whoever asks the interrupt.
    pub fn of_process(interrupt: &'i Interrupt) -> Option<Self> {
        (io::stdin().is_terminal() && io::stderr().is_terminal()).then(|| {
            interrupt.end_in_order();
            Self { interrupt }
        })
    }

    /// How many rows and columns it shows.
    pub fn size(&self) -> (usize, usize) {
        let known = tcgetwinsize(io::stderr()).ok();
        let or = |count: Option<u16>, default| count.filter(|count| *count > 0).map_or(default, usize::from);
        (or(known.map(|size| size.ws_row), ROWS_DEFAULT), or(known.map(|size| size.ws_col), COLUMNS_DEFAULT))
    }

    /// Calls `show`, then waits for one key.
    pub fn key(&self, show: impl FnOnce()) -> io::Result<Key> {
        let mode = KeyMode::enter(self.interrupt)?;
        show();
        let mut chunk = [0; CHUNK_BYTES];
        let Some(count) = self.read(&mut chunk)? else { return Ok(Key::Interrupted) };
        drop(mode);
        Ok(match &chunk[..count] {
            [] | [CONTROL_D] => Key::End,
            [CONTROL_Z] => {
                // As the terminal itself would have done.
                kill_current_process_group(Signal::TSTP)?;
                Key::Resumed
            }
            [byte] if byte.is_ascii_graphic() => Key::Letter(char::from(*byte)),
            _ => Key::Other,
        })
    }

    /// Calls `show`, then waits for one line, which the person can edit as the terminal lets them.
    pub fn line(&self, bytes_max: usize, show: impl FnOnce()) -> io::Result<Words> {
        tcflush(io::stdin(), QueueSelector::IFlush)?;
        show();
        let mut line = Vec::new();
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            let Some(count) = self.read(&mut chunk)? else { return Ok(Words::Interrupted) };
            if count == 0 && line.is_empty() {
                return Ok(Words::End);
            }
            let ended = count == 0 || chunk[..count].ends_with(b"\n");
            // What is too much is still read, so that it is no answer to anything else.
            let room = bytes_max.saturating_add(2).saturating_sub(line.len());
            line.extend_from_slice(&chunk[..count.min(room)]);
            if ended {
                break;
            }
        }
        if line.ends_with(b"\n") {
            line.pop();
        }
        if line.len() > bytes_max {
            return Ok(Words::NotText);
        }
        Ok(String::from_utf8(line).map_or(Words::NotText, Words::Line))
    }

    /// Reads what there is once there is something; `None`: the interrupt was raised.
    fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let stdin = io::stdin();
        let (mut woken, waker) = io::pipe()?;
        let _closer = self.interrupt.on_raise(move || drop((&waker).write(b"!")));
        loop {
            let mut waited = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&woken, PollFlags::IN)];
            match poll(&mut waited, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let [typed, raised] = waited.map(|waited| !waited.revents().is_empty());
            if raised {
                let _ = woken.read(&mut [0]);
                return Ok(None);
            }
            if typed {
                return match rustix::io::read(&stdin, &mut *buffer) {
                    Ok(count) => Ok(Some(count)),
                    Err(rustix::io::Errno::INTR) => continue,
                    // The terminal has gone away.
                    Err(rustix::io::Errno::IO) => Ok(Some(0)),
                    Err(error) => Err(error.into()),
                };
            }
        }
    }
}

/// Keys come one by one and are not echoed, until this is dropped or the interrupt is raised.
struct KeyMode {
    before: Termios,
    _closer: CloserGuard,
}

impl KeyMode {
    fn enter(interrupt: &Interrupt) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut mode = before.clone();
        mode.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL;
        mode.special_codes[SpecialCodeIndex::VMIN] = 1;
        mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Else the shell would get the terminal in this mode; see `Terminal::key`.
        mode.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
        // Made first, so that no signal comes between.
        let kept = before.clone();
        let closer = interrupt.on_raise(move || put_back(&kept));
        let entered = Self { before, _closer: closer };
        if !interrupt.is_raised() {
            tcsetattr(io::stdin(), OptionalActions::Flush, &mode)?;
            if interrupt.is_raised() {
                put_back(&entered.before);
            }
        }
        Ok(entered)
    }
}

impl Drop for KeyMode {
    fn drop(&mut self) {
        put_back(&self.before);
    }
}

fn put_back(mode: &Termios) {
    // Where the terminal has gone away there is nothing to put back.
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, mode);
}
