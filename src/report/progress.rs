//! What a person who watches reads of an event: the lines on stderr, the same in every output mode.
//!
//! The deltas of the reply and the live output of commands are not told here but as they flow.

use std::collections::BTreeMap;

use super::event::{CallLabel, Event, title_of};
use super::line::{Line, Tone};
use super::object;
use crate::session::record::{OperationId, ResultStatus};

/// How much of a failed result is shown beside its status.
const DETAIL_CHARS_MAX: usize = 200;

/// What has to be remembered between events to word them.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// What the calls that run now are about; gone with their results.
    running: BTreeMap<OperationId, Running>,
    /// The one started last: live output is its own, as calls with output run alone.
    latest: Option<OperationId>,
    /// Whether this round's text was streamed to a terminal.
    pub(super) streamed: bool,
}

#[derive(Debug)]
struct Running {
    title: String,
    told: bool,
}

/// What an event gives to see.
#[derive(Debug, Default)]
pub(super) struct Telling {
    pub(super) lines: Vec<Line>,
    /// What to show while nothing else is printed.
    pub(super) waiting_for: Option<String>,
}

/// A warning as it is shown.
pub(super) fn warning(message: &str) -> Vec<Line> {
    Line::all(Tone::Warning, "warning: ", "  ", message)
}

impl Progress {
    pub(super) fn tell(&mut self, turn: Option<u64>, event: &Event, verbose: bool) -> Telling {
        let mut telling = Telling::default();
        match event {
            Event::TurnStarted { model } => {
                let turn = turn.map(|turn| format!("turn {turn}: ")).unwrap_or_default();
                telling.lines.push(Line::new(Tone::Dim, &format!("{turn}{model}")));
            }
            Event::RoundStarted { round } => {
                self.streamed = false;
                if verbose {
                    telling.lines.push(Line::new(Tone::Dim, &format!("round {round}")));
                }
                telling.waiting_for = Some("waiting for the model".to_owned());
            }
            Event::TextDelta { .. } | Event::ReasoningDelta { .. } | Event::Awaiting { .. } => {}
            Event::ToolStarted { call, arguments, summary } => {
                let title = title_of(&call.name, summary);
                if verbose {
                    telling.lines.push(Line::exactly(Tone::Dim, &format!("{title}: {}", object::to_json(arguments))));
                }
                telling.waiting_for = Some(title.clone());
                self.running.insert(call.id.clone(), Running { title, told: verbose });
                self.latest = Some(call.id.clone());
            }
            Event::ToolHeartbeat { call, elapsed_ms, output_bytes } => {
                let title = self.title(call);
                let line = format!("{title}: running for {}, {output_bytes} bytes of output", duration(*elapsed_ms));
                telling.waiting_for = Some(line);
            }
            Event::ToolResult { call, status, code, content, duration_ms } => {
                let title = self.title(call);
                self.running.remove(&call.id);
                telling.lines = result(&title, *status, code.as_deref(), content, *duration_ms, verbose);
            }
            Event::Retrying { attempt, delay_ms, reason } => {
                let void =
                    if std::mem::take(&mut self.streamed) { "; the reply begun above does not count" } else { "" };
                let line = format!("attempt {attempt} in {}: {reason}{void}", duration(*delay_ms));
                telling.lines.push(Line::new(Tone::Warning, &line));
                telling.waiting_for = Some("waiting to ask the model again".to_owned());
            }
            Event::Compacted(compacted) => {
                let line = format!(
                    "older rounds are summarised, through round {} of turn {}: about {} tokens instead of {}",
                    compacted.through_round, compacted.through_turn, compacted.tokens_after, compacted.tokens_before
                );
                telling.lines = vec![Line::new(Tone::Dim, &line)];
            }
            Event::Warning { message } => telling.lines = warning(message),
        }
        telling
    }

    /// The line above a call's live output, once.
    pub(super) fn heading_of_live_output(&mut self) -> Option<Line> {
        let running = self.running.get_mut(self.latest.as_ref()?)?;
        (!std::mem::replace(&mut running.told, true)).then(|| Line::exactly(Tone::Plain, &running.title))
    }

    fn title(&self, call: &CallLabel) -> String {
        match self.running.get(&call.id) {
            Some(running) => running.title.clone(),
            None => format!("{} {}", call.name, call.id),
        }
    }
}

fn result(
    title: &str,
    status: ResultStatus,
    code: Option<&str>,
    content: &str,
    duration_ms: u64,
    verbose: bool,
) -> Vec<Line> {
    let took = duration(duration_ms);
    let (line, tone) = match status {
        ResultStatus::Ok => (format!("{title} ({took})"), Tone::Plain),
        ResultStatus::Error => (format!("{title}: {} ({took})", code.unwrap_or("error")), Tone::Warning),
        ResultStatus::Denied => (format!("{title}: denied"), Tone::Warning),
        ResultStatus::Cancelled => (format!("{title}: cancelled{}", in_brackets(code)), Tone::Warning),
        ResultStatus::Unknown => (format!("{title}: unknown, it may have taken effect"), Tone::Warning),
        ResultStatus::NotRun => (format!("{title}: not run{}", in_brackets(code)), Tone::Warning),
    };
    let mut lines = vec![Line::exactly(tone, &line)];
    if verbose {
        lines.extend(Line::all(Tone::Dim, "  | ", "  | ", content));
    } else if status == ResultStatus::Error {
        let masked = crate::mask::apply(content);
        let first = masked.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let mut detail: String = first.chars().take(DETAIL_CHARS_MAX).collect();
        if detail.len() < first.len() {
            detail.push_str(" ...");
        }
        lines.push(Line::new(Tone::Dim, &format!("  {detail}")));
    }
    lines
}

fn in_brackets(code: Option<&str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// `12 ms`, `3.4 s`, `2 min 5 s`.
fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_show_what_could_pass_for_something_else() {
        let call = CallLabel { id: OperationId::whole("call_1"), name: "command".to_owned() };
        for (hidden, shown) in [
            ("\u{fe0f}", "\\u{fe0f}"),
            ("\u{2800}", "\\u{2800}"),
            ("\u{a0}", "\\u{a0}"),
            ("\u{1680}", "\\u{1680}"),
            ("\u{202e}", "\\u{202e}"),
            ("\n", "\\n"),
        ] {
            let started = || Event::ToolStarted {
                call: call.clone(),
                arguments: serde_json::json!({}),
                summary: format!("rm{hidden}x"),
            };
            let ended = || Event::ToolResult {
                call: call.clone(),
                status: ResultStatus::Ok,
                code: None,
                content: String::new(),
                duration_ms: 1,
            };
            let mut progress = Progress::default();
            let mut lines = progress.tell(None, &started(), true).lines;
            lines.extend(progress.tell(None, &ended(), false).lines);
            progress.tell(None, &started(), false);
            lines.extend(progress.heading_of_live_output());
            assert_eq!(lines.len(), 3);
            for line in lines {
                assert!(line.text().starts_with(&format!("command rm{shown}x")), "{line:?}");
            }
        }
    }

    #[test]
    fn durations_are_as_fine_as_they_are_short() {
        for (milliseconds, text) in
            [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (59_999, "59.9 s"), (60_000, "1 min 0 s")]
        {
            assert_eq!(duration(milliseconds), text);
        }
    }
}
