//! A recorded conversation as a Markdown document.
//!
//! Prompts, arguments and results stand in fences longer than any run of backticks in them; what the model wrote stands
//! in quotes, where whatever it leaves open ends with it. So nothing in them passes for a part of the document.

use std::io::{self, Write};

use serde_json::Value;

use super::escape::{escape, escape_line};
use super::object;
use super::open_calls::OpenCalls;
use super::screen::Screen;
use crate::session::record::{
    AssistantRecord, OperationId, Record, ResultStatus, TurnEndRecord, TurnStatus, UserRecord,
};

const FENCE_BACKTICKS_MIN: usize = 3;

/// Writes records one after the other.
pub struct Document {
    screen: Screen,
    calls: OpenCalls,
}

/// What is told of a result.
struct Told<'r> {
    id: OperationId,
    title: Option<&'r str>,
    status: ResultStatus,
    code: Option<&'r str>,
    content: &'r str,
}

impl Document {
    /// Begins the document of a session.
    pub fn begin(screen: Screen, session: &str) -> io::Result<Self> {
        let mut document = Self { screen, calls: OpenCalls::default() };
        document.write(&format!("# Session {}\n", span(session)))?;
        Ok(document)
    }

    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::User(user) => self.add_prompt(user),
            Record::Assistant(reply) => self.add_reply(reply),
            Record::OperationResult(result) => self.add_result(&Told {
                id: OperationId { call_id: result.call_id.clone(), operation: Some(result.operation) },
                title: result.title.as_deref(),
                status: result.status,
                code: result.code.as_deref(),
                content: &result.content,
            }),
            Record::ToolResult(result) => {
                self.add_result(&Told {
                    id: OperationId::whole(&result.call_id),
                    title: result.title.as_deref(),
                    status: result.status,
                    code: result.code.as_deref(),
                    content: &result.content,
                })?;
                self.calls.remove(&result.call_id);
                Ok(())
            }
            Record::TurnEnd(end) => self.add_end(end),
            Record::Notice(notice) => self.write(&format!("\n### Notice\n\n{}", fenced("text", &notice.text))),
            Record::Summary(summary) => {
                self.write(&format!("\n### Summary of what came before\n\n{}", fenced("text", &summary.text)))
            }
            Record::Session(_)
            | Record::Decision(_)
            | Record::ToolStart(_)
            | Record::CallWaiting(_)
            | Record::Imported(_)
            | Record::Unknown => Ok(()),
        }
    }

    /// Ends the document with the calls that have no result.
    pub fn finish(mut self) -> io::Result<()> {
        let open: Vec<String> = self
            .calls
            .in_order()
            .into_iter()
            .map(|(id, call)| {
                let arguments = fenced("json", &object::to_pretty_json(&call.arguments(None)));
                format!("\n#### {}: no result yet\n\n{arguments}", span(&format!("{} {id}", call.name)))
            })
            .collect();
        self.write(&open.concat())
    }

    fn add_prompt(&mut self, user: &UserRecord) -> io::Result<()> {
        let (turn, model, at) = (user.turn, span(&user.settings.model), span(&user.at));
        let prompt = fenced("text", &user.text);
        self.write(&format!("\n## Turn {turn}\n\n{model}, {at}\n\n### Prompt\n\n{prompt}"))
    }

    fn add_reply(&mut self, reply: &AssistantRecord) -> io::Result<()> {
        self.calls.add(&reply.tool_calls, true);
        if reply.text.trim().is_empty() {
            return Ok(());
        }
        let heading = if reply.tool_calls.is_empty() { "Answer" } else { "Reply" };
        self.write(&format!("\n### {heading}\n\n{}", quoted(&reply.text)))
    }

    fn add_result(&mut self, told: &Told<'_>) -> io::Result<()> {
        let call = self.calls.get(&told.id.call_id);
        let arguments = call.map_or(Value::Null, |call| call.arguments(told.id.operation));
        let title = match (told.title, call) {
            (Some(title), _) => title.to_owned(),
            (None, Some(call)) => format!("{} {}", call.name, told.id),
            (None, None) => told.id.to_string(),
        };
        let status = match (told.status, told.code) {
            (ResultStatus::Ok, _) => "ok".to_owned(),
            (ResultStatus::Error, Some(code)) => span(code),
            (ResultStatus::Error, None) => "error".to_owned(),
            (ResultStatus::Denied, _) => "denied".to_owned(),
            (ResultStatus::Cancelled, _) => "cancelled".to_owned(),
            (ResultStatus::Unknown, _) => "unknown, it may have taken effect".to_owned(),
            (ResultStatus::NotRun, _) => "not run".to_owned(),
        };
        let arguments = fenced("json", &object::to_pretty_json(&arguments));
        let content = fenced("text", told.content);
        self.write(&format!("\n#### {}: {status}\n\n{arguments}\n{content}", span(&title)))
    }

    fn add_end(&mut self, end: &TurnEndRecord) -> io::Result<()> {
        match end.status {
            TurnStatus::Completed => Ok(()),
            status => self.write(&format!("\nTurn {}: {}\n", end.turn, span(status.name()))),
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.screen.write_all(text.as_bytes())
    }
}

/// The longest run of backticks.
fn longest_run(text: &str) -> usize {
    let (mut longest, mut run) = (0, 0);
    for byte in text.bytes() {
        run = if byte == b'`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// A block that nothing in `text` ends.
fn fenced(language: &str, text: &str) -> String {
    let masked = crate::mask::apply(text);
    let shown = escape(&masked);
    let fence = "`".repeat((longest_run(&shown) + 1).max(FENCE_BACKTICKS_MIN));
    let end = if shown.is_empty() || shown.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{shown}{end}{fence}\n")
}

/// Code within a line.
fn span(text: &str) -> String {
    let masked = crate::mask::apply(text);
    let shown = escape_line(&masked);
    if shown.trim().is_empty() {
        return "(none)".to_owned();
    }
    let ticks = "`".repeat(longest_run(&shown) + 1);
    let is_bare = !shown.starts_with(['`', ' ']) && !shown.ends_with(['`', ' ']);
    let pad = if is_bare { "" } else { " " };
    format!("{ticks}{pad}{shown}{pad}{ticks}")
}

/// Markdown of the model's own, in a quote.
fn quoted(text: &str) -> String {
    let masked = crate::mask::apply(text);
    let shown = escape(&masked);
    let mut quote = String::with_capacity(shown.len() + 16);
    for line in shown.trim_end_matches('\n').split('\n') {
        quote.push_str(if line.is_empty() { ">" } else { "> " });
        quote.push_str(line);
        quote.push('\n');
    }
    quote
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fences_and_spans_are_longer_than_what_they_hold() {
        assert_eq!(fenced("text", "a"), "```text\na\n```\n");
        assert_eq!(fenced("text", "```\nb\n````\n"), "`````text\n```\nb\n````\n`````\n");
        assert_eq!(span("read a"), "`read a`");
        assert_eq!(span("`x`"), "`` `x` ``");
        assert_eq!(span("a\nb"), "`a\\nb`");
        assert_eq!(quoted("a\n\n```\nb\u{1b}\n"), "> a\n>\n> ```\n> b\\x1b\n");
    }

    proptest! {
        #[test]
        fn no_line_of_the_content_ends_its_fence(text in "[`~a\n \t]{0,60}") {
            let block = fenced("text", &text);
            let lines: Vec<&str> = block.lines().collect();
            let fence = lines[lines.len() - 1];
            prop_assert!(fence.bytes().all(|byte| byte == b'`'));
            for line in &lines[1..lines.len() - 1] {
                prop_assert!(!line.contains(fence));
            }
        }

        #[test]
        fn every_line_of_a_quote_is_quoted(text in "[`>a\n <!-]{0,60}") {
            prop_assert!(quoted(&text).lines().all(|line| line.starts_with('>')));
        }
    }
}
