//! A sign of life on a terminal while nothing else is printed.
//!
//! It draws on stderr by itself, so whoever prints has to take it away first: [`Spinner::clear`] returns when its line
//! is gone and nothing more will be drawn.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::escape::escape_line;

const TICK: Duration = Duration::from_millis(120);

/// Shows one message, or nothing.
pub(super) struct Spinner {
    /// Where it draws; `None`: nowhere, ever.
    target: Option<fn() -> ProgressDrawTarget>,
    bar: Option<ProgressBar>,
}

impl Spinner {
    pub(super) fn on_stderr() -> Self {
        Self { target: Some(ProgressDrawTarget::stderr), bar: None }
    }

    pub(super) fn none() -> Self {
        Self { target: None, bar: None }
    }

    /// Shows `message` from now on, in place of the one before.
    pub(super) fn show(&mut self, message: &str) {
        let Some(target) = self.target else { return };
        let message = escape_line(&crate::mask::apply(message)).into_owned();
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use indicatif::TermLike;

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
        let mut spinner =
            Spinner { target: Some(|| ProgressDrawTarget::term_like_with_hz(Box::new(Recorder), 60)), bar: None };
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
