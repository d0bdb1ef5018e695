//! What a server answered, as the outcome of a call.
//!
//! Text is kept as it is; images become attachments; everything else that is no text is a line with its type and size.
//! Bytes in base64 never reach the model.

use std::fmt::Write;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use super::asking::{self, Asked};
use super::connection::Reply;
use super::host::Called;
use crate::session::record::{Attachment, ResultStatus};
use crate::tool::read::{IMAGE_BYTES_MAX, attach_image};
use crate::tool::{Outcome, Waits, Work};

/// The most images of one result that are attached.
const IMAGES_MAX: usize = 16;
/// The most parts of one result that are read.
const PARTS_MAX: usize = 10_000;
/// Of what a server says of itself in one line: a name, a type, an address.
const WORD_CHARACTERS_MAX: usize = 300;
/// A longer text is an answer of a tool, not the complaint that there is none.
const COMPLAINT_BYTES_MAX: usize = 500;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    Settled(Outcome),
    /// The server wants a person's answer before it goes on.
    Waits(Waits),
    /// It wants to be called again with what attini itself answers, from this state.
    Again(Value),
}

/// Reads how a call of `server`'s `tool` ended.
pub(super) fn call_end(server: &str, tool: &str, timeout_s: u64, called: Called, work: &Work<'_>) -> CallEnd {
    let (reply, declined) = match called {
        Called::NotStarted(why) if work.asked.is_some() => {
            let content = format!(
                "The answer was not passed on, and the call was not gone on with: the MCP server {server} {why}\nWhat it \
                 did before it asked stands."
            );
            return CallEnd::Settled(Outcome {
                status: ResultStatus::Unknown,
                ..Outcome::error("unknown_outcome", content)
            });
        }
        Called::NotStarted(why) => {
            let content = format!("The tool was not called: the MCP server {server} {why}");
            return CallEnd::Settled(if work.interrupt.is_raised() {
                Outcome { status: ResultStatus::Cancelled, ..Outcome::error("cancelled", content) }
            } else {
                Outcome::error("server_failed", content)
            });
        }
        Called::UnknownTool(words) => {
            let content = format!(
                "The MCP server {server} has no tool {tool} any more; it says: {words}\nIts list of tools was read \
                 again and counts from the next turn on."
            );
            return CallEnd::Settled(Outcome::error("unknown_tool", content));
        }
        Called::Replied { reply, declined } => (reply, declined),
    };
    let mut outcome = match reply {
        Reply::Result(result) => match read_result(server, &result, work) {
            CallEnd::Settled(outcome) => outcome,
            asks @ (CallEnd::Waits(_) | CallEnd::Again(_)) => return asks,
        },
        Reply::Refused { code, message } => {
            Outcome::error("tool_error", format!("The MCP server {server} refused the call: {message} ({code})"))
        }
        Reply::TimedOut => {
            let content = format!(
                "The MCP server {server} did not answer within {timeout_s} s. The call was cancelled and the server \
                 ended; the call may have taken effect."
            );
            Outcome::error("timeout", content)
        }
        Reply::Interrupted => {
            let content = format!(
                "Interrupted: the call was cancelled and the MCP server {server} ended; the call may have taken effect."
            );
            Outcome { status: ResultStatus::Unknown, ..Outcome::error("interrupted", content) }
        }
        Reply::Died(how) => {
            let content =
                format!("The MCP server {server} did not live to answer: the call may have taken effect. It {how}");
            Outcome { status: ResultStatus::Unknown, ..Outcome::error("unknown_outcome", content) }
        }
    };
    for question in declined {
        // Writing to a string cannot fail.
        let _ = write!(
            outcome.content,
            "\n[In mid-call the server asked: {}. It was told that nobody answers.]",
            clip(&question)
        );
    }
    CallEnd::Settled(outcome)
}

/// The outcome of a call whose server asks; where nobody can be asked, that is its end.
pub(super) fn asked(server: &str, waits: Waits) -> Outcome {
    let question = &waits.question;
    let content = format!("The MCP server {server} cannot go on without an answer; it asks: {question}");
    Outcome { waits: Some(Box::new(waits)), ..Outcome::error("input_required", content) }
}

/// Whether a reply may mean that the server has no such tool, and in what words. Servers say it in any way there is: as
/// an error of the protocol, as an error of the tool, or as its text.
pub(super) fn looks_unknown(reply: &Reply, tool: &str) -> Option<String> {
    let words = match reply {
        Reply::Refused { message, .. } => message.clone(),
        Reply::Result(result) => match result.get("content").and_then(Value::as_array).map(Vec::as_slice) {
            Some([only]) => only.get("text").and_then(Value::as_str)?.to_owned(),
            _ => return None,
        },
        Reply::TimedOut | Reply::Interrupted | Reply::Died(_) => return None,
    };
    if words.len() > COMPLAINT_BYTES_MAX {
        return None;
    }
    let lower = words.to_lowercase();
    let is_of_tools = lower.contains("tool") || lower.contains("method") || lower.contains(&tool.to_lowercase());
    let says_unknown = [
        "unknown",
        "not found",
        "not exist",
        "no such",
        "not registered",
        "not available",
        "unrecognized",
        "invalid tool",
    ];
    (is_of_tools && says_unknown.iter().any(|phrase| lower.contains(phrase))).then(|| words.trim().to_owned())
}

fn read_result(server: &str, result: &Value, work: &Work<'_>) -> CallEnd {
    match result.get("resultType").and_then(Value::as_str) {
        Some("input_required") => {
            return match asking::read(result) {
                Asked::Person(waits) => CallEnd::Waits(waits),
                Asked::Nobody(state) => CallEnd::Again(state),
                Asked::Refused(why) => {
                    let content = format!("The call was not gone on with: the MCP server {server} {why}.");
                    CallEnd::Settled(Outcome::error("tool_error", content))
                }
            };
        }
        Some("task") => {
            let content = "The server began a task and gives its result later, which attini does not wait for.";
            return CallEnd::Settled(Outcome::error("tool_error", content));
        }
        Some(_) | None => {}
    }
    if let Some(flaw) = flaw(result) {
        let content = format!(
            "The MCP server {server} answered the call with what is no result of the protocol: {flaw}. The call may have \
             taken effect."
        );
        let outcome = Outcome::error("unknown_outcome", content);
        return CallEnd::Settled(Outcome { status: ResultStatus::Unknown, ..outcome });
    }
    let mut parts = Parts { work, texts: Vec::new(), has_text: false, attachments: Vec::new() };
    let content = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for part in content.iter().take(PARTS_MAX) {
        parts.take(part);
    }
    if let Some(left_out) = content.len().checked_sub(PARTS_MAX).filter(|count| *count > 0) {
        parts.texts.push(format!("[{left_out} more parts left out]"));
    }
    // Servers that give structured content give it as text too; where they do not, it is all there is.
    match result.get("structuredContent") {
        Some(Value::Null) | None => {}
        Some(structured) if !parts.has_text => parts.texts.push(structured.to_string()),
        Some(_) => {}
    }
    let text = parts.texts.join("\n");
    let mut outcome = if result.get("isError").and_then(Value::as_bool) == Some(true) {
        let text = if text.trim().is_empty() { "The tool failed and gave no reason.".to_owned() } else { text };
        Outcome::error("tool_error", text)
    } else {
        Outcome::ok(text)
    };
    outcome.attachments = parts.attachments;
    CallEnd::Settled(outcome)
}

/// What makes an answer no result of a call. A result of structured content alone, or of a failure without words, is
/// taken for one.
fn flaw(result: &Value) -> Option<String> {
    let Value::Object(object) = result else {
        return Some(match result.as_str() {
            Some(words) => clip(words),
            None => format!("it is {}", clip(&result.to_string())),
        });
    };
    let given = |key: &str| object.get(key).filter(|value| !value.is_null());
    match given("resultType") {
        Some(kind) if !matches!(kind.as_str(), Some("" | "complete")) => {
            return Some(format!("its type is {}", clip(&kind.to_string())));
        }
        Some(_) | None => {}
    }
    let is_error = given("isError");
    if let Some(word) = is_error.filter(|word| !word.is_boolean()) {
        return Some(format!("`isError` is {}", clip(&word.to_string())));
    }
    match given("content") {
        Some(Value::Array(parts)) => {
            let has_no_text = |part: &&Value| part["type"] == "text" && !part["text"].is_string();
            let part = parts.iter().take(PARTS_MAX).find(has_no_text)?;
            Some(format!("a part of its text has none: {}", clip(&part.to_string())))
        }
        Some(other) => Some(format!("`content` is {}", clip(&other.to_string()))),
        None if given("structuredContent").is_some() || is_error.is_some() => None,
        None => Some(format!("it has no `content`: {}", clip(&result.to_string()))),
    }
}

/// The parts of a result as they are gathered.
struct Parts<'a> {
    work: &'a Work<'a>,
    texts: Vec<String>,
    /// Whether the server gave any text of its own.
    has_text: bool,
    attachments: Vec<Attachment>,
}

impl Parts<'_> {
    fn take(&mut self, part: &Value) {
        let word = |key: &str| part.get(key).and_then(Value::as_str);
        match word("type") {
            Some("text") => {
                self.has_text |= word("text").is_some_and(|text| !text.trim().is_empty());
                self.texts.push(word("text").unwrap_or_default().to_owned());
            }
            Some("image") => self.take_bytes("image", word("mimeType"), word("data")),
            Some("audio") => self.take_bytes("audio", word("mimeType"), word("data")),
            Some("resource") => self.take_resource(part.get("resource").unwrap_or(&Value::Null)),
            Some("resource_link") => self.texts.push(link(part)),
            Some(other) => self.texts.push(format!("[a part of the unknown type {} left out]", clip(other))),
            None => self.texts.push("[a part without a type left out]".to_owned()),
        }
    }

    fn take_resource(&mut self, resource: &Value) {
        let word = |key: &str| resource.get(key).and_then(Value::as_str);
        let shown = clip(word("uri").unwrap_or("without an address"));
        match (word("text"), word("blob")) {
            (Some(text), _) => {
                self.has_text = true;
                self.texts.push(format!("[resource {shown}{}]\n{text}", of_type(word("mimeType"))));
            }
            (None, blob) => self.take_bytes(&format!("resource {shown}"), word("mimeType"), blob),
        }
    }

    /// Bytes are told by a line; if they are an image they are attached as well.
    fn take_bytes(&mut self, what: &str, media_type: Option<&str>, data: Option<&str>) {
        let kind = of_type(media_type);
        let Some(bytes) = data.and_then(decode) else {
            self.texts.push(format!("[{what}{kind}, its data cannot be read]"));
            return;
        };
        let size = bytes.len();
        let fate = match self.attach(&bytes) {
            Ok(Some(attachment)) => {
                self.attachments.push(attachment);
                "attached"
            }
            Ok(None) => "not shown",
            Err(_) => "could not be kept",
        };
        self.texts.push(format!("[{what}{kind}, {size} bytes, {fate}]"));
    }

    fn attach(&self, bytes: &[u8]) -> std::io::Result<Option<Attachment>> {
        let Some(session) = self.work.surroundings.session else { return Ok(None) };
        if self.attachments.len() >= IMAGES_MAX || bytes.len() as u64 > IMAGE_BYTES_MAX {
            return Ok(None);
        }
        let label = format!("{}-{}", self.work.label, self.attachments.len() + 1);
        attach_image(session, &label, bytes)
    }
}

fn link(part: &Value) -> String {
    let word = |key: &str| part.get(key).and_then(Value::as_str);
    let mut line = format!("[link to {}", clip(word("uri").unwrap_or("an unnamed resource")));
    if let Some(name) = word("title").or_else(|| word("name")) {
        let _ = write!(line, ": {}", clip(name));
    }
    if let Some(description) = word("description") {
        let _ = write!(line, ", {}", clip(description));
    }
    line.push_str(&of_type(word("mimeType")));
    if let Some(size) = part.get("size").and_then(Value::as_u64) {
        let _ = write!(line, ", {size} bytes");
    }
    line.push(']');
    line
}

fn of_type(media_type: Option<&str>) -> String {
    media_type.map(|media_type| format!(", {}", clip(media_type))).unwrap_or_default()
}

fn decode(data: &str) -> Option<Vec<u8>> {
    let packed: String = data.chars().filter(|character| !character.is_ascii_whitespace()).collect();
    BASE64.decode(packed).ok()
}

/// One line of a server's own, bounded.
pub(super) fn clip(text: &str) -> String {
    crate::mask::apply(text)
        .chars()
        .map(|character| if character == '\n' { ' ' } else { character })
        .take(WORD_CHARACTERS_MAX)
        .collect()
}

#[cfg(test)]
mod tests;
