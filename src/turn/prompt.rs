//! What the model is sent: the system prompt, and the conversation in wire order.

use std::fmt::Write;

use serde_json::Value;

use super::images::Images;
use crate::call::validation::Schema;
use crate::provider::{AssistantMessage, Finish, Message, ResultMessage};
use crate::session::history::{Entry, History, Round};
use crate::session::record::{ResultStatus, ToolCall, ToolResultRecord, TrailingReads};

/// What the system prompt is made of besides attini's own words.
pub struct SystemParts<'a> {
    /// `2026-11-30`, of the turn's start.
    pub date: &'a str,
    pub trailing_reads: TrailingReads,
    /// Name and text of each file that `instructions` and `--system` name.
    pub files: &'a [(String, String)],
    pub output_schema: Option<&'a Value>,
}

/// The whole system prompt; the same bytes for the same parts.
pub fn build_system(parts: &SystemParts<'_>) -> String {
    let mut text = format!(
        "You are a coding agent working through attini, a command-line program, in the user's workspace. You act only \
         through the tools. Work until the request is done, then answer in plain text without calls; that ends the turn.\n\
         \n\
         # Workspace\n\
         System: {} ({}). Date: {}. Paths are relative to the workspace.\n\
         \n\
         # Results\n\
         Every call gets exactly one result. A failed result ends with a line `next: ...` that says what to do about it. \
         A result that was too long is cut in the middle and names the file that holds all of it; `read` it there. A call \
         whose result says that its outcome is unknown may have taken effect: look before you repeat it.\n\
         \n\
         # Your own session\n\
         Paths that begin with `session:` are this session's own files: `session:outputs/` has whole outputs, \
         `session:conversation.jsonl` the record of the conversation, `session:scratchpad/` is for notes of your own \
         (writing there asks like any other write to a file that git does not track).\n",
        std::env::consts::OS,
        std::env::consts::ARCH,
        parts.date,
    );
    text.push('\n');
    text.push_str(&render_tool_batching_note(parts.trailing_reads));
    if let Some(schema) = parts.output_schema {
        let _ = write!(
            text,
            "\n# Answer\nYour final answer must be one JSON value and nothing else, valid under this JSON Schema:\n{schema}\n"
        );
    }
    for (name, contents) in parts.files {
        let _ = write!(text, "\n# {name}\n{}\n", contents.trim_end());
    }
    text
}

/// What the model needs to know about several calls in one reply.
pub fn render_tool_batching_note(trailing_reads: TrailingReads) -> String {
    let mut note = "# Tool call batching\n\
         Put independent calls into one reply; adjacent reads run together. Some calls need a person's approval, and \
         nothing behind such a call runs before the person has decided: put it last in a reply, or alone.\n"
        .to_owned();
    match trailing_reads {
        TrailingReads::Carry => {
            note.push_str("Calls behind it wait and run after the decision, in the order you wrote them.\n");
        }
        TrailingReads::Strand => {
            note.push_str("Calls behind it, reads included, are cancelled; you would have to ask for them again.\n");
        }
    }
    note
}

/// The conversation as messages: each result right behind its own assistant message, in call order, wherever in the
/// file it stands.
pub fn build_messages(history: &History, images: Images<'_>) -> Vec<Message> {
    build_messages_of(history, history.entries().len(), images)
}

/// The beginning of those: what stands for the first `count` entries, and what a summary before them does.
pub fn build_messages_of(history: &History, count: usize, mut images: Images<'_>) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut schema = None;
    if let Some(summary) = history.summary() {
        messages.push(Message::User { text: render_summary(&summary.text) });
        if let Some(user) = history.covered_open_user() {
            schema = user.settings.output_schema.as_ref();
            messages.push(Message::User { text: user.text.clone() });
        }
    }
    for (index, entry) in history.entries().iter().enumerate().take(count) {
        match entry {
            Entry::User(user) => {
                schema = user.settings.output_schema.as_ref();
                messages.push(Message::User { text: user.text.clone() });
            }
            Entry::Notice(notice) => messages.push(Message::User { text: notice.text.clone() }),
            Entry::Round(round) => {
                messages.push(Message::Assistant(AssistantMessage {
                    provider: round.assistant.provider.clone(),
                    model: round.assistant.model.clone(),
                    text: round.assistant.text.clone(),
                    reasoning: round.assistant.reasoning.clone(),
                    tool_calls: round.assistant.tool_calls.clone(),
                    opaque: round.assistant.opaque.clone(),
                }));
                let results = results(round, &mut images);
                if !results.is_empty() {
                    messages.push(Message::Results(results));
                }
                let mut behind = history.entries()[index + 1..].iter();
                let next = behind.find(|entry| !matches!(entry, Entry::Notice(_)));
                if !matches!(next, Some(Entry::User(_)))
                    && let Some(text) = schema_reminder(schema, round)
                {
                    messages.push(Message::User { text });
                }
            }
        }
    }
    messages
}

/// What stands in place of older rounds: a text like the user's, never a system message.
fn render_summary(text: &str) -> String {
    format!(
        "[What came before was left out to save space. This is your own summary of it; all of it is in \
         session:conversation.jsonl.]\n\n{}\n\n[End of the summary.]",
        text.trim()
    )
}

fn results(round: &Round, images: &mut Images<'_>) -> Vec<ResultMessage> {
    let answered = round.assistant.tool_calls.iter().zip(&round.calls);
    answered
        .filter_map(|(call, progress)| progress.result.as_ref().map(|result| result_message(call, result, images)))
        .collect()
}

fn result_message(call: &ToolCall, result: &ToolResultRecord, images: &mut Images<'_>) -> ResultMessage {
    let mut content = result.content.clone();
    let mut sent = Vec::new();
    for attachment in &result.attachments {
        match images.load(attachment) {
            Ok(image) => sent.push(image),
            Err(line) => {
                content.push('\n');
                content.push_str(&line);
            }
        }
    }
    ResultMessage {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content,
        is_error: result.status != ResultStatus::Ok,
        images: sent,
    }
}

/// Tells the model what is wrong with an answer that does not fit the output schema. It follows from the log alone, so
/// it needs no record; it stays where it was sent, so that each request begins with the one before.
fn schema_reminder(schema: Option<&Value>, round: &Round) -> Option<String> {
    let ended = matches!(Finish::of(&round.assistant.finish_reason), Finish::End | Finish::Unfamiliar);
    if !ended || !round.assistant.tool_calls.is_empty() {
        return None;
    }
    let found = violations(schema, &round.assistant.text);
    (!found.is_empty()).then(|| {
        format!("Your answer does not fit the JSON Schema that it must fit:\n- {}\nAnswer again.", found.join("\n- "))
    })
}

/// What is wrong with a final text under the output schema; nothing without one.
pub fn violations(schema: Option<&Value>, text: &str) -> Vec<String> {
    let Some(schema) = schema else { return Vec::new() };
    match (Schema::compile(schema), serde_json::from_str::<Value>(text)) {
        (Err(error), _) => vec![format!("the schema itself is unsound: {error}")],
        (_, Err(error)) => vec![format!("the answer is not JSON: {error}")],
        (Ok(schema), Ok(value)) => schema.check_violations(&value),
    }
}
