//! The two streams as one place: what follows what, whose line is unfinished, and what has to go first.
//!
//! What events look like is known to `progress` and `object`; here they only find their stream and their order.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::escape::{escape, is_unsafe};
use super::event::{Event, TurnResult};
use super::line::{Line, Tone, paint};
use super::object::{self, Common};
use super::progress::Progress;
use super::spinner::Spinner;
use super::stream::{ByteStream, TextStream};
use super::{Mode, ReadyText, ReportOptions, Volume, error_lines, preview};
use crate::exit::Status;
use crate::failure::Failure;

pub(super) struct Writer {
    pub(super) options: ReportOptions,
    stdout: Sink,
    stderr: Sink,
    spinner: Spinner,
    clock: fn() -> String,
    progress: Progress,
    text: TextStream,
    reasoning: TextStream,
    live: ByteStream,
    /// What the unfinished line on stderr belongs to.
    flow: Flow,
    /// The turn of the last event.
    pub(super) turn: Option<u64>,
}

/// What is shown on stderr as it comes, in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Live,
    Reasoning,
}

impl Flow {
    /// In front of each line, so that nothing in it passes for a line of attini's own.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Live => "  | ",
            Self::Reasoning => "  ~ ",
        }
    }
}

/// A stream that may be gone.
struct Sink {
    stream: Box<dyn Write + Send>,
    /// Why nothing more is written.
    failed: Option<io::Error>,
    mid_line: bool,
}

impl Sink {
    fn write(&mut self, text: &str) {
        self.write_bytes(text.as_bytes());
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.failed.is_some() {
            return;
        }
        self.mid_line = !bytes.ends_with(b"\n");
        let written = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        // Whoever read is gone, or the disk is full: what is told is lost, what is recorded is not.
        self.failed = written.err();
    }

    fn end_line(&mut self) {
        if self.mid_line {
            self.write("\n");
        }
    }
}

impl Writer {
    pub(super) fn new(
        options: ReportOptions,
        stdout: Box<dyn Write + Send>,
        stderr: Box<dyn Write + Send>,
        spinner: Spinner,
        clock: fn() -> String,
    ) -> Self {
        let sink = |stream| Sink { stream, failed: None, mid_line: false };
        Self {
            options,
            stdout: sink(stdout),
            stderr: sink(stderr),
            spinner,
            clock,
            progress: Progress::default(),
            text: TextStream::default(),
            reasoning: TextStream::default(),
            live: ByteStream::default(),
            flow: Flow::Live,
            turn: None,
        }
    }

    pub(super) fn tell(&mut self, turn: Option<u64>, event: &Event) {
        self.turn = turn;
        match event {
            Event::TextDelta { text } => {
                self.flush_reasoning();
                let certain = self.text.push(text);
                self.text_delta(certain);
            }
            Event::ReasoningDelta { text } => {
                self.flush_text();
                let certain = self.reasoning.push(text);
                self.reasoning_delta(certain);
            }
            Event::TurnStarted { .. }
            | Event::RoundStarted { .. }
            | Event::ToolStarted { .. }
            | Event::ToolHeartbeat { .. }
            | Event::ToolResult { .. }
            | Event::Awaiting { .. }
            | Event::Retrying { .. }
            | Event::Compacted(_)
            | Event::Warning { .. } => {
                self.flush_text();
                self.flush_reasoning();
                if matches!(event, Event::ToolResult { .. }) {
                    self.flush_live();
                }
                self.event_object(event);
                self.show_progress(event);
            }
        }
    }

    fn show_progress(&mut self, event: &Event) {
        let telling = self.progress.tell(self.turn, event, self.is_verbose());
        if self.is_quiet() {
            return;
        }
        self.write_stderr(&telling.lines);
        let Some(waiting_for) = telling.waiting_for else { return };
        if self.options.stderr_is_terminal {
            // A spinner would be drawn over an unfinished line.
            let unfinished = self.stderr.mid_line || (self.is_shared() && self.stdout.mid_line);
            if !unfinished {
                self.spinner.show(&waiting_for);
            }
        } else if matches!(event, Event::ToolHeartbeat { .. }) {
            self.write_stderr(&[Line::exactly(Tone::Dim, &waiting_for)]);
        }
    }

    pub(super) fn answer(&mut self, text: &str) {
        self.flush_text();
        self.flush_reasoning();
        if self.options.mode != Mode::Text {
            return;
        }
        if self.options.stdout_is_terminal && self.progress.streamed {
            self.end_stdout_line();
            return;
        }
        let masked = crate::mask::apply(text);
        self.write_stdout(&format!("{}\n", escape(masked.trim_end_matches('\n'))));
    }

    pub(super) fn live(&mut self, bytes: &[u8]) {
        if self.stderr.failed.is_some() {
            return;
        }
        if let Some(heading) = self.progress.heading_of_live_output() {
            self.write_stderr(&[heading]);
        }
        let certain = self.live.push(bytes);
        self.flowing(Flow::Live, &certain);
    }

    /// Output that was left out, since stderr was not read.
    pub(super) fn gap(&mut self, bytes: u64) {
        self.flush_live();
        let line = format!("({bytes} bytes of output are not shown: stderr was read too slowly)");
        self.write_stderr(&[Line::new(Tone::Dim, &line)]);
    }

    pub(super) fn finish(&mut self, result: &TurnResult) {
        self.flush_all();
        let mut suspended = preview::suspended(&result.pending, &self.options.command_prefix);
        if !suspended.is_empty() && !self.is_quiet() {
            suspended.insert(0, Line::empty());
        }
        self.write_stderr(&suspended);
        if self.is_verbose()
            && let (Some(rounds), Some(calls), Some(usage)) = (result.rounds, result.tool_calls, result.usage)
        {
            let tokens = format!("{} tokens in, {} out", usage.input_tokens, usage.output_tokens);
            let line = format!("{}: {rounds} rounds, {calls} calls, {tokens}", result.status);
            self.write_stderr(&[Line::new(Tone::Dim, &line)]);
        }
        if let Some(error) = &result.error {
            self.write_error(&error.message, error.hint.as_deref());
        }
        let at = (self.clock)();
        self.final_object(|| object::of_result(&at, result));
    }

    pub(super) fn finish_command(
        &mut self,
        name: &str,
        status: Status,
        fields: Map<String, Value>,
        error: Option<&Failure>,
    ) {
        self.flush_all();
        if let Some(failure) = error {
            self.write_error(&failure.message, failure.hint.as_deref());
        }
        let at = (self.clock)();
        self.final_object(|| object::of_command(&at, name, status, fields, error));
    }

    /// The object is written as its items come. What its status is shows only behind the last of them, so that it stands
    /// at its end, with the error.
    pub(super) fn finish_command_with_list(
        &mut self,
        name: &str,
        fields: Map<String, Value>,
        list: &str,
        items: &mut dyn FnMut() -> anyhow::Result<Option<Value>>,
    ) -> Status {
        self.flush_all();
        let at = (self.clock)();
        self.write_stdout(&object::list_opening(&at, name, fields, list));
        let mut separator = "";
        let failure = loop {
            match items() {
                Ok(Some(item)) if self.stdout.failed.is_none() => {
                    self.write_stdout(&format!("{separator}{}", object::list_item(item)));
                    separator = ",";
                }
                Ok(_) => break None,
                Err(error) => break Some(Failure::of(&error)),
            }
        };
        let status = failure.as_ref().map_or(Status::Completed, |failure| failure.status);
        if let Some(failure) = &failure {
            self.write_error(&failure.message, failure.hint.as_deref());
        }
        self.write_stdout(&object::list_closing(status, failure.as_ref()));
        status
    }

    pub(super) fn finish_with_text(&mut self, name: &str, text: ReadyText<'_>) {
        let at = (self.clock)();
        match self.options.mode {
            Mode::Text => {
                let shown = ready(text, self.options.colour && self.options.stdout_is_terminal);
                self.write_stdout(&shown);
            }
            Mode::Json | Mode::Events => {
                let fields = Map::from_iter([("text".to_owned(), Value::from(text.plain))]);
                self.object_line(&object::of_command(&at, name, Status::Completed, fields, None));
            }
        }
    }

    pub(super) fn refuse(&mut self, name: Option<&str>, failure: &Failure, text: ReadyText<'_>) {
        let shown = ready(text, self.options.colour);
        self.stderr.write(&shown);
        let at = (self.clock)();
        self.final_object(|| match name {
            Some(name) => object::of_command(&at, name, failure.status, Map::new(), Some(failure)),
            None => object::of_result(&at, &TurnResult::failed(failure)),
        });
    }

    pub(super) fn print(&mut self, lines: &[Line]) {
        if self.options.mode == Mode::Text {
            let painted = paint(lines, self.options.colour && self.options.stdout_is_terminal);
            self.write_stdout(&painted);
        }
    }

    pub(super) fn print_data(&mut self, bytes: &[u8]) {
        if self.options.mode != Mode::Text {
            return;
        }
        if self.options.stdout_is_terminal {
            let mut stream = ByteStream::default();
            let text = stream.push(bytes) + &stream.finish();
            self.write_stdout(&escape(&text));
        } else {
            let mut mask = crate::mask::Stream::new();
            let mut masked = mask.push(bytes);
            masked.extend(mask.finish());
            self.write_stdout_bytes(&masked);
        }
    }

    pub(super) fn remark(&mut self, text: &str) {
        if !self.is_quiet() {
            self.write_stderr(&[Line::new(Tone::Dim, text)]);
        }
    }

    pub(super) fn write_error(&mut self, message: &str, hint: Option<&str>) {
        let lines = error_lines(message, hint, &self.options.command_prefix);
        self.write_stderr(&lines);
    }

    pub(super) fn write_stderr(&mut self, lines: &[Line]) {
        if lines.is_empty() {
            return;
        }
        self.make_way_for_stderr();
        self.stderr.end_line();
        let painted = paint(lines, self.options.colour);
        self.stderr.write(&painted);
    }

    pub(super) fn stdout_error(&self) -> Option<&io::Error> {
        self.stdout.failed.as_ref()
    }

    #[cfg(test)]
    pub(super) fn stderr_error(&self) -> Option<&io::Error> {
        self.stderr.failed.as_ref()
    }

    fn text_delta(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        if self.options.mode == Mode::Text && self.options.stdout_is_terminal {
            self.progress.streamed = true;
            self.write_stdout(&escape(&text));
        }
        self.event_object(&Event::TextDelta { text });
    }

    fn reasoning_delta(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        if self.is_verbose() {
            self.flowing(Flow::Reasoning, &text);
        }
        self.event_object(&Event::ReasoningDelta { text });
    }

    /// Shows a piece on stderr, which may begin and end anywhere in a line.
    fn flowing(&mut self, flow: Flow, text: &str) {
        if text.is_empty() {
            return;
        }
        self.make_way_for_stderr();
        if self.flow != flow {
            self.stderr.end_line();
            self.flow = flow;
        }
        // Line ends stay as they are, so that it can be cut into lines afterwards.
        let text = escape(text);
        let ends: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1).collect();
        let mut shown = String::with_capacity(text.len() + (ends.len() + 1) * flow.prefix().len());
        let mut from = 0;
        let is_begun = self.stderr.mid_line;
        // What is behind the last line end is a line that goes on with the next piece.
        for to in ends.into_iter().chain([text.len()]) {
            if from < to {
                if from > 0 || !is_begun {
                    shown.push_str(flow.prefix());
                }
                shown.push_str(&text[from..to]);
            }
            from = to;
        }
        self.stderr.write(&shown);
    }

    fn flush_text(&mut self) {
        let held = self.text.finish();
        self.text_delta(held);
    }

    fn flush_reasoning(&mut self) {
        let held = self.reasoning.finish();
        self.reasoning_delta(held);
    }

    fn flush_live(&mut self) {
        let held = self.live.finish();
        self.flowing(Flow::Live, &held);
    }

    fn flush_all(&mut self) {
        self.flush_text();
        self.flush_reasoning();
        self.flush_live();
        self.spinner.clear();
        self.end_stdout_line();
        self.stderr.end_line();
    }

    fn event_object(&mut self, event: &Event) {
        if self.options.mode != Mode::Events {
            return;
        }
        let at = (self.clock)();
        let common = Common { at: &at, session: self.options.session.as_deref(), turn: self.turn };
        let object = object::of_event(common, event);
        self.object_line(&object);
    }

    fn final_object(&mut self, object: impl FnOnce() -> Value) {
        match self.options.mode {
            Mode::Text => {}
            Mode::Json | Mode::Events => self.object_line(&object()),
        }
    }

    fn object_line(&mut self, object: &Value) {
        self.write_stdout(&format!("{}\n", object::to_json(object)));
    }

    fn write_stdout(&mut self, text: &str) {
        self.write_stdout_bytes(text.as_bytes());
    }

    fn write_stdout_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.options.stdout_is_terminal {
            self.spinner.clear();
        }
        if self.is_shared() {
            self.stderr.end_line();
        }
        self.stdout.write_bytes(bytes);
    }

    fn end_stdout_line(&mut self) {
        if self.stdout.mid_line {
            self.write_stdout("\n");
        }
    }

    fn make_way_for_stderr(&mut self) {
        self.spinner.clear();
        if self.is_shared() {
            self.stdout.end_line();
        }
    }

    fn is_quiet(&self) -> bool {
        self.options.volume == Volume::Quiet
    }

    fn is_verbose(&self) -> bool {
        self.options.volume == Volume::Verbose
    }

    /// Whether both streams meet on one screen.
    fn is_shared(&self) -> bool {
        self.options.stdout_is_terminal && self.options.stderr_is_terminal
    }
}

/// The text as it may be shown: coloured only if nothing in it does more to a terminal than colouring, else plain and
/// escaped.
fn ready(text: ReadyText<'_>, colour: bool) -> String {
    let masked = crate::mask::apply(text.plain);
    if colour && masked == text.plain && !without_colours(text.coloured).contains(is_unsafe) {
        text.coloured.to_owned()
    } else {
        escape(&masked).into_owned()
    }
}

/// The text without its colour codes (`ESC [ digits m`); other codes stay.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut rest = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let after = piece.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ';');
        match after.strip_prefix('m') {
            Some(plain) => rest.push_str(plain),
            None => rest.extend(["\u{1b}[", piece]),
        }
    }
    rest
}
