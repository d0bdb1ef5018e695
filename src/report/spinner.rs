//! A sign of life on a terminal while nothing else is printed.
//!
//! It draws on stderr by itself, so whoever prints has to take it away first: [`Spinner::clear`] returns when its line
//! is gone and nothing more will be drawn. A terminal that takes nothing (it was paused) is not waited for.

use std::fmt::Write as _;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use super::escape::escape_line_exactly;
use super::outlet::Outlet;

const TICK: Duration = Duration::from_millis(120);
/// Drawings a second, at most.
const DRAWS_PER_SECOND: u8 = 20;
/// How long a drawing waits for what is printed before it.
const PATIENCE: Duration = Duration::from_millis(100);
/// Of a terminal that does not know its size.
const COLUMNS_DEFAULT: u16 = 80;
/// The widest character has to fit into a line, or indicatif miscounts and panics.
const COLUMNS_MIN: u16 = 2;

/// Shows one message, or nothing.
pub(super) struct Spinner {
    /// Where it draws; `None`: nowhere, ever.
    target: Option<Box<dyn Fn() -> ProgressDrawTarget + Send>>,
    bar: Option<ProgressBar>,
}

impl Spinner {
    /// Draws on the terminal that `outlet` writes to, which is stderr.
    pub(super) fn on(outlet: Outlet) -> Self {
        let target = move || {
            let screen = Screen { outlet: outlet.clone(), drawn: Mutex::default() };
            ProgressDrawTarget::term_like_with_hz(Box::new(screen), DRAWS_PER_SECOND)
        };
        Self { target: Some(Box::new(target)), bar: None }
    }

    pub(super) fn none() -> Self {
        Self { target: None, bar: None }
    }

    /// Shows `message` from now on, in place of the one before.
    pub(super) fn show(&mut self, message: &str) {
        let Some(target) = &self.target else { return };
        let message = escape_line_exactly(&crate::mask::apply(message)).into_owned();
        if let Some(bar) = &self.bar {
            bar.set_message(message);
            return;
        }
        let bar = ProgressBar::with_draw_target(None, target());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_message(message);
        bar.enable_steady_tick(TICK);
        self.bar = Some(bar);
    }

    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.disable_steady_tick();
            bar.finish_and_clear();
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A terminal that is drawn on one whole drawing at a time, or not at all.
struct Screen {
    outlet: Outlet,
    /// What the drawing is made of so far.
    drawn: Mutex<String>,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Screen")
    }
}

impl Screen {
    fn draw(&self, codes: std::fmt::Arguments<'_>) -> io::Result<()> {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        drawn.write_fmt(codes).map_err(io::Error::other)
    }

    fn moved(&self, count: usize, code: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.draw(format_args!("\u{1b}[{count}{code}")) }
    }
}

/// How wide a terminal is taken to be that says it is `told` wide.
fn columns(told: u16) -> u16 {
    if told == 0 { COLUMNS_DEFAULT } else { told.max(COLUMNS_MIN) }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        columns(rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col))
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.moved(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.moved(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.moved(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.moved(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.draw(format_args!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(format_args!("{text}"))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw(format_args!("\r\x1b[2K"))
    }

    fn flush(&self) -> io::Result<()> {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if !drawn.is_empty() {
            // A drawing that finds no room is left out; the next one draws over what is there.
            self.outlet.offer(std::mem::take(&mut *drawn).as_bytes(), PATIENCE);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static DRAWN: Mutex<String> = Mutex::new(String::new());

    #[derive(Debug)]
    struct Recorder;

    impl TermLike for Recorder {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            DRAWN.lock().unwrap().push_str(text);
            Ok(())
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            DRAWN.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            DRAWN.lock().unwrap().push_str("<cleared>");
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn its_line_is_gone_when_clear_returns() {
        let mut spinner = Spinner {
            target: Some(Box::new(|| ProgressDrawTarget::term_like_with_hz(Box::new(Recorder), 60))),
            bar: None,
        };
        spinner.show("waiting\u{1b}[2J");
        if let Some(bar) = &spinner.bar {
            bar.tick();
        }
        assert!(DRAWN.lock().unwrap().contains("waiting\\x1b[2J"));
        spinner.clear();
        let drawn = DRAWN.lock().unwrap().clone();
        assert!(drawn.trim_end().ends_with("<cleared>"), "{drawn:?}");
        spinner.clear();
        assert_eq!(*DRAWN.lock().unwrap(), drawn);
    }

    #[test]
    fn nowhere_means_nothing() {
        let mut spinner = Spinner::none();
        spinner.show("waiting");
        assert!(spinner.bar.is_none());
    }
}
