//! What a person or a script gets to see: events, text, JSON; and the escaping of everything that comes from outside.
//!
//! The only place that writes to stdout and stderr. Nothing here decides anything, and a stream that cannot be written
//! to stops nothing: the turn goes on, and the failure is remembered. A reader that is slow is waited for where a record
//! is told of, until the interrupt is raised; what a command puts out while it runs waits for nobody.

pub mod escape;
pub mod event;
pub mod line;
mod live;
pub mod markdown;
mod object;
mod open_calls;
mod outlet;
pub mod preview;
mod progress;
pub mod replay;
pub mod screen;
#[cfg(test)]
pub(crate) mod seen;
pub mod shell;
mod spinner;
mod stream;
mod writer;

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::mcp::Servers;

use event::{Event, TurnResult};
use line::{Line, Tone};
use live::{Live, Piece};
use outlet::Outlet;
use screen::Screen;
use spinner::Spinner;
use writer::Writer;

pub use object::{to_json, to_pretty_json};
pub use shell::{command_prefix, program_word, shell_quote};

/// What stdout gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    Text,
    Json,
    Events,
}

/// How much stderr gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Volume {
    /// Errors, previews and commands to type alone.
    Quiet,
    #[default]
    Normal,
    /// Arguments, results and reasoning too.
    Verbose,
}

#[derive(Debug, Clone, Default)]
pub struct ReportOptions {
    pub mode: Mode,
    pub volume: Volume,
    /// Whether stderr is coloured, and stdout where it is for people.
    pub colour: bool,
    pub stdout_is_terminal: bool,
    pub stderr_is_terminal: bool,
    /// The session's name, as events carry it.
    pub session: Option<String>,
    /// How attini has to be called to meet this session again, as [`command_prefix`] makes it.
    pub command_prefix: String,
}

impl ReportOptions {
    /// Fills in what the process's own streams are, and whether they are coloured: `colour` as asked for, or by what
    /// stderr is and the environment says (`NO_COLOR` and its like).
    #[must_use]
    pub fn with_streams(mut self, colour: Option<bool>) -> Self {
        self.stdout_is_terminal = std::io::stdout().is_terminal();
        self.stderr_is_terminal = std::io::stderr().is_terminal();
        self.colour =
            colour.unwrap_or_else(|| anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never);
        self
    }
}

/// Text that was laid out elsewhere (by the command line's parser), in both its forms.
#[derive(Debug, Clone, Copy)]
pub struct ReadyText<'a> {
    pub plain: &'a str,
    pub coloured: &'a str,
}

/// Tells of one invocation. It may be shared between threads; what one call prints stays together.
pub struct Reporter {
    writer: Arc<Mutex<Writer>>,
    /// What is shown without being waited for: output of a running command, and signs of life.
    live: Live<(Option<u64>, Event)>,
    is_quiet: bool,
}

impl Reporter {
    /// Writes to the process's own streams, and waits for no reader once `interrupt` is raised.
    pub fn new(options: ReportOptions, interrupt: &Interrupt) -> Self {
        let (stdout, stderr) = (Outlet::stdout(interrupt), Outlet::stderr(interrupt));
        let spinner = if options.stderr_is_terminal && options.volume != Volume::Quiet {
            Spinner::on(stderr.clone())
        } else {
            Spinner::none()
        };
        Self::of(options, Box::new(stdout), Box::new(stderr), spinner, crate::clock::now)
    }

    /// Writes to streams of the caller's, without a spinner. `clock` gives the `at` of events.
    pub fn with_streams(
        options: ReportOptions,
        stdout: Box<dyn Write + Send>,
        stderr: Box<dyn Write + Send>,
        clock: fn() -> String,
    ) -> Self {
        Self::of(options, stdout, stderr, Spinner::none(), clock)
    }

    fn of(
        options: ReportOptions,
        stdout: Box<dyn Write + Send>,
        stderr: Box<dyn Write + Send>,
        spinner: Spinner,
        clock: fn() -> String,
    ) -> Self {
        let is_quiet = options.volume == Volume::Quiet;
        let writer = Writer::new(options, stdout, stderr, spinner, clock);
        Self { writer: Arc::new(Mutex::new(writer)), live: Live::new(), is_quiet }
    }

    /// A reporter with this one's options that tells people of everything on one screen, and how much it tells.
    pub fn onto_screen(&self, screen: &Screen) -> (Self, Volume) {
        let own = &self.writer().options;
        let options = ReportOptions {
            mode: Mode::Text,
            colour: own.colour && own.stdout_is_terminal,
            stdout_is_terminal: true,
            stderr_is_terminal: true,
            ..own.clone()
        };
        let (volume, stream) = (options.volume, || Box::new(screen.clone()));
        (Self::with_streams(options, stream(), stream(), crate::clock::now), volume)
    }

    /// Tells of an event. Its record, if it has one, is on disk.
    pub fn tell(&self, turn: Option<u64>, event: &Event) {
        self.writer().tell(turn, event);
    }

    /// The assistant's answer in text mode, once the reply that holds it is on disk. In the other modes the result
    /// object has it.
    pub fn answer(&self, text: &str) {
        self.writer().answer(text);
    }

    /// What a running command puts out, shown on stderr as it comes. It returns soon, however slowly stderr is read:
    /// what finds no room is left out, and said to be.
    pub fn live(&self, bytes: &[u8]) {
        // Nobody sees it, and there may be much of it.
        if !self.is_quiet {
            self.live.output(bytes, self.showing());
        }
    }

    /// As [`Reporter::tell`], for an event that has no record; it returns soon, and one that nobody has seen yet stands
    /// for the next ones.
    pub fn beat(&self, turn: Option<u64>, event: Event) {
        self.live.beat((turn, event), self.showing());
    }

    fn showing(&self) -> impl FnMut(Piece<(Option<u64>, Event)>) + Send + 'static {
        let writer = Arc::clone(&self.writer);
        move |piece| {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            match piece {
                Piece::Output(bytes) => writer.live(&bytes),
                Piece::Gap(bytes) => writer.gap(bytes),
                Piece::Beat((turn, event)) => writer.tell(turn, &event),
            }
        }
    }

    /// Ends an invocation that ran a turn: what is pending and the error on stderr, then the result object.
    pub fn finish(&self, result: &TurnResult) {
        self.writer().finish(result);
    }

    /// Ends a command that ran no turn. In text mode its output was printed with [`Reporter::print`] and its kin; in the
    /// other modes the one object is `fields` between `type` (the command's `name`), `at`, `status`, `exit_code` and
    /// `error`, which `fields` may not name.
    pub fn finish_command(&self, name: &str, status: Status, fields: Map<String, Value>, error: Option<&Failure>) {
        self.writer().finish_command(name, status, fields, error);
    }

    /// Ends an invocation that asked for a text alone (`help`, `version`): on stdout, or as `text` of the one object.
    pub fn finish_with_text(&self, name: &str, text: ReadyText<'_>) {
        self.writer().finish_with_text(name, text);
    }

    /// Ends an invocation whose command line is wrong: `text` on stderr, then the one object, named after the command
    /// or, with no `name`, the result of a turn.
    pub fn refuse(&self, name: Option<&str>, failure: &Failure, text: ReadyText<'_>) {
        self.writer().refuse(name, failure, text);
    }

    /// The output of a command that runs no turn, in text mode.
    pub fn print(&self, lines: &[Line]) {
        self.writer().print(lines);
    }

    /// As [`Reporter::print`], for output that programs read (a diff, a script): off a terminal its bytes are kept, but
    /// for masked keys.
    pub fn print_data(&self, text: &str) {
        self.writer().print_data(text.as_bytes());
    }

    /// As [`Reporter::print_data`], for bytes that need not be text; on a terminal those that are none are shown.
    pub fn print_bytes(&self, bytes: &[u8]) {
        self.writer().print_data(bytes);
    }

    /// Something the person should know; an event as well.
    pub fn warning(&self, message: &str) {
        let mut writer = self.writer();
        let turn = writer.turn;
        writer.tell(turn, &Event::Warning { message: message.to_owned() });
    }

    /// What is to be told of MCP servers. That one offers other tools than it did is told with `--quiet` too.
    pub fn warn_of_servers(&self, servers: &Servers, turn: Option<u64>) {
        servers.tell_warnings(|warning| {
            let mut writer = self.writer();
            let turn = turn.or(writer.turn);
            writer.tell(turn, &Event::Warning { message: warning.text.clone() });
            if self.is_quiet && warning.is_pressing {
                writer.write_stderr(&progress::warning(&warning.text));
            }
        });
    }

    /// Lines on stderr that are part of what was asked for, so that `--quiet` keeps them: rules to add, a file left out.
    pub fn notice(&self, lines: &[Line]) {
        self.writer().write_stderr(lines);
    }

    /// A line on stderr for whoever looks on; `--quiet` leaves it out.
    pub fn remark(&self, text: &str) {
        self.writer().remark(text);
    }

    /// `attini: ...` and `hint: ...` on stderr, for an error that is in no result object.
    pub fn error(&self, failure: &Failure) {
        self.writer().write_error(&failure.message, failure.hint.as_deref());
    }

    /// Whether text is what stdout gets; else it is JSON.
    pub fn is_text(&self) -> bool {
        self.writer().options.mode == Mode::Text
    }

    /// Whether nothing that is printed arrives any more.
    pub fn is_stdout_lost(&self) -> bool {
        self.writer().stdout_error().is_some()
    }

    /// As [`Reporter::finish_command`], for a command that lists more than should be held at once: the object gets a
    /// field `list` with the items as they come. Where one of them fails, the object ends with that error, and its
    /// status is what stands there; the exit code is the failure's.
    pub fn finish_command_with_list(
        &self,
        name: &str,
        fields: Map<String, Value>,
        list: &str,
        items: &mut dyn FnMut() -> anyhow::Result<Option<Value>>,
    ) -> Status {
        self.writer().finish_command_with_list(name, fields, list, items)
    }

    /// What became of a command whose output is its result: an error where that was lost, told on stderr. A reader that
    /// has gone away has had enough, and that is none.
    pub fn ensure_printed(&self, status: Status) -> Status {
        let mut writer = self.writer();
        let lost = writer.stdout_error().filter(|error| error.kind() != ErrorKind::BrokenPipe).map(ToString::to_string);
        let Some(error) = lost else { return status };
        writer.write_error(&format!("stdout cannot be written: {error}"), None);
        if status == Status::Completed { Status::Error } else { status }
    }

    /// The writer, once all that was handed over before is shown.
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.live.settle();
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hints name commands as `` `attini ...` ``; they are shown as they have to be typed here, after `command_prefix`.
fn error_lines(message: &str, hint: Option<&str>, command_prefix: &str) -> Vec<Line> {
    let mut lines = Line::all(Tone::Error, "attini: ", "  ", message);
    if let Some(hint) = hint {
        let typed = if command_prefix.is_empty() { "attini" } else { command_prefix };
        let hint = hint.replace("`attini ", &format!("`{typed} "));
        lines.extend(Line::all(Tone::Plain, "hint: ", "  ", &hint));
    }
    lines
}

#[cfg(test)]
mod tests;
