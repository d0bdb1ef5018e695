//! Reads replies in the Chat Completions format: the chunks of a stream, or one whole object.
//!
//! What services make of the format is taken in all its variety; what is missing is left empty, never guessed.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{CONTENT_PARTS, KEPT, REASONING_FIELD, REASONING_FIELDS};
use crate::provider::assemble::{CALLS_MAX, Calls};
use crate::provider::reading::Assembly;
use crate::provider::surrogate;
use crate::provider::trouble::{self, Service, Trouble};
use crate::provider::{Finish, Progress, Reply};
use crate::session::record::Usage;

/// How long more is waited for once the reply is complete: usage, or the end of the stream.
const TAIL_SECONDS_MAX: u64 = 10;
/// The finish reasons of a reply that the service gave up: an error, a request that it dropped, too many others.
const BROKEN_OFF: [&str; 3] = ["error", "abort", "insufficient_system_resource"];
/// Where services put usage elsewhere than in `usage` of the chunk.
const USAGE_ELSEWHERE: [&str; 2] = ["/x_groq/usage", "/choices/0/usage"];
/// The finish reason of a reply whose text came as a refusal.
const REFUSAL: &str = "refusal";
/// Fields of a message that are understood, or that say something of the reply alone. All others go back: their
/// service may want them.
const MESSAGE_FIELDS_NOT_KEPT: [&str; 13] = [
    "role",
    "content",
    "tool_calls",
    "function_call",
    "refusal",
    "reasoning_content",
    "reasoning",
    "annotations",
    "audio",
    "images",
    "logprobs",
    "token_ids",
    "prefix",
];
/// Most fields that are kept of a message.
const FIELDS_KEPT_MAX: usize = 64;

/// A reply that is coming in.
pub(super) struct ReplySoFar<'a> {
    service: Service<'a>,
    text: String,
    reasoning: String,
    /// Where the reasoning stood.
    reasoning_field: Option<&'static str>,
    calls: Calls,
    finish_reason: Option<String>,
    refused: bool,
    usage: Usage,
    kept: Map<String, Value>,
    /// `[DONE]` was seen.
    is_done: bool,
    /// Anything that belongs to the format was seen.
    has_begun: bool,
}

impl<'a> ReplySoFar<'a> {
    pub(super) fn new(service: Service<'a>) -> Self {
        Self {
            service,
            text: String::new(),
            reasoning: String::new(),
            reasoning_field: None,
            calls: Calls::default(),
            finish_reason: None,
            refused: false,
            usage: Usage::default(),
            kept: Map::new(),
            is_done: false,
            has_begun: false,
        }
    }

    fn push_choice(&mut self, choice: &Value, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        if is_error(choice.get("error")) {
            return self.report(trouble::of_error_object(self.service, choice, None));
        }
        let delta = choice.get("delta").filter(|delta| delta.as_object().is_some_and(|fields| !fields.is_empty()));
        if let Some(message) = delta.or_else(|| choice.get("message")).and_then(Value::as_object) {
            self.push_message(message, observe)?;
        }
        match choice.get("finish_reason").and_then(Value::as_str) {
            None | Some("" | "null") => Ok(()),
            Some(reason) if BROKEN_OFF.contains(&reason) => {
                self.report(Trouble::broken_off(format!("{} broke its reply off: {reason}", self.service.provider)))
            }
            Some(reason) => {
                let is_better = |known: &String| {
                    Finish::of(known) == Finish::Unfamiliar && Finish::of(reason) != Finish::Unfamiliar
                };
                if self.finish_reason.as_ref().is_none_or(is_better) {
                    self.finish_reason = Some(reason.to_owned());
                }
                Ok(())
            }
        }
    }

    /// Once the reply has ended it is there, whatever becomes of the service.
    fn report(&self, trouble: Trouble) -> Result<(), Trouble> {
        if self.finish_reason.is_some() { Ok(()) } else { Err(trouble) }
    }

    fn push_message(
        &mut self,
        message: &Map<String, Value>,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), Trouble> {
        let reasoning = REASONING_FIELDS.into_iter().find_map(|field| Some((field, non_empty(message.get(field))?)));
        if let Some((field, reasoning)) = reasoning {
            self.push_reasoning(field, reasoning, observe);
        }
        match message.get("content") {
            Some(Value::String(text)) => self.push_text(text, observe),
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.push_part(part, observe)),
            _ => {}
        }
        if let Some(refusal) = non_empty(message.get("refusal")) {
            self.refused = true;
            self.push_text(refusal, observe);
        }
        for (field, value) in message {
            if !value.is_null() && !MESSAGE_FIELDS_NOT_KEPT.contains(&field.as_str()) {
                keep(&mut self.kept, field, value);
            }
        }
        self.push_calls(message)
    }

    fn push_calls(&mut self, message: &Map<String, Value>) -> Result<(), Trouble> {
        self.calls.begin_delta();
        let listed = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        // The single call of the format's first version.
        let single = message.get("function_call").filter(|call| call.is_object());
        for call in listed.chain(single) {
            self.calls.push_value(call).map_err(|_| {
                let provider = self.service.provider;
                Trouble::lasting(format!("the reply of {provider} asks for more than {CALLS_MAX} calls"))
            })?;
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str, observe: &mut dyn FnMut(Progress<'_>)) {
        if !text.is_empty() {
            self.text.push_str(text);
            observe(Progress::Text(text));
        }
    }

    fn push_reasoning(&mut self, field: &'static str, text: &str, observe: &mut dyn FnMut(Progress<'_>)) {
        self.reasoning_field.get_or_insert(field);
        self.reasoning.push_str(text);
        observe(Progress::Reasoning(text));
    }

    fn push_part(&mut self, part: &Value, observe: &mut dyn FnMut(Progress<'_>)) {
        if part.get("type").and_then(Value::as_str) == Some("thinking") {
            let inner = part.get("thinking");
            let texts = inner.and_then(Value::as_array).into_iter().flatten().map(|text| text.get("text"));
            for text in texts.chain([inner]).filter_map(non_empty) {
                self.push_reasoning(CONTENT_PARTS, text, observe);
            }
        } else if let Some(text) = part.as_str().or_else(|| non_empty(part.get("text"))) {
            self.push_text(text, observe);
        }
    }

    fn take_usage(&mut self, value: &Value) {
        let elsewhere = USAGE_ELSEWHERE.into_iter().map(|pointer| value.pointer(pointer));
        let usage = std::iter::once(value.get("usage")).chain(elsewhere).flatten().find(|usage| usage.is_object());
        let Some(usage) = usage else { return };
        let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
        if count("/prompt_tokens").is_none() && count("/completion_tokens").is_none() {
            return;
        }
        let cached = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
        self.usage = Usage {
            input_tokens: count("/prompt_tokens").unwrap_or(0),
            output_tokens: count("/completion_tokens").unwrap_or(0),
            cached_input_tokens: cached.into_iter().find_map(count).unwrap_or(0),
        };
    }
}

impl Assembly for ReplySoFar<'_> {
    fn is_done(&self) -> bool {
        self.is_done
    }

    fn patience(&self) -> Option<Duration> {
        let is_complete = self.is_done || self.finish_reason.is_some();
        is_complete.then_some(Duration::from_secs(TAIL_SECONDS_MAX))
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn push_event(&mut self, name: &str, data: &str, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        let data = data.trim();
        if data == "[DONE]" {
            self.is_done = true;
            self.has_begun = true;
            return Ok(());
        }
        if data.is_empty() {
            return Ok(());
        }
        let Ok(value) = surrogate::parse(data) else {
            let provider = self.service.provider;
            if name == "error" {
                return self.report(trouble::of_error_object(self.service, &Value::String(data.to_owned()), None));
            }
            return self.report(Trouble::broken_off(format!("{provider} sent an event that is not JSON")));
        };
        if name == "error" {
            return self.report(trouble::of_error_object(self.service, &value, None));
        }
        self.push_object(&value, observe)
    }

    /// Takes a chunk, or a whole reply.
    fn push_object(&mut self, value: &Value, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        let first = value.get(0).unwrap_or(value);
        if is_error(first.get("error")) || first.get("object").and_then(Value::as_str) == Some("error") {
            return self.report(trouble::of_error_object(self.service, value, None));
        }
        self.take_usage(value);
        let Some(choices) = value.get("choices").and_then(Value::as_array) else { return Ok(()) };
        self.has_begun = true;
        for choice in choices {
            if choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0 {
                self.push_choice(choice, observe)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Reply {
        let mut finish_reason = self.finish_reason.unwrap_or_default();
        // What ended so has no word of its own in this format, and what is recorded is the word.
        if self.refused && Finish::of(&finish_reason) != Finish::ContentFilter {
            REFUSAL.clone_into(&mut finish_reason);
        }
        let finish = Finish::of(&finish_reason);
        let mut opaque = Map::new();
        if let Some(field) = self.reasoning_field {
            opaque.insert(REASONING_FIELD.to_owned(), Value::String(field.to_owned()));
        }
        if !self.kept.is_empty() {
            opaque.insert(KEPT.to_owned(), Value::Object(self.kept));
        }
        Reply {
            text: self.text,
            reasoning: self.reasoning,
            tool_calls: self.calls.finish(),
            finish,
            finish_reason,
            usage: self.usage,
            opaque: if opaque.is_empty() { None } else { Some(Value::Object(opaque)) },
        }
    }
}

fn non_empty(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn is_error(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
    }
}

/// Keeps a field that may come in pieces: lists and texts are put together, all else is replaced. A text that comes again
/// as it was so far is a label, which some services put on every piece.
fn keep(kept: &mut Map<String, Value>, field: &str, value: &Value) {
    let is_full = kept.len() == FIELDS_KEPT_MAX;
    match (kept.get_mut(field), value) {
        (Some(Value::Array(items)), Value::Array(more)) => more.iter().for_each(|item| keep_item(items, item)),
        (Some(Value::String(text)), Value::String(more)) if text == more => {}
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (None, _) if is_full => {}
        _ => {
            kept.insert(field.to_owned(), value.clone());
        }
    }
}

/// Adds an element of a list, or continues the last one if it is the next piece of the same: same type, same index.
fn keep_item(items: &mut Vec<Value>, item: &Value) {
    let is_same = |last: &Value| {
        item.get("index").is_some() && ["index", "type"].iter().all(|key| last.get(key) == item.get(key))
    };
    let (Some(last), Some(fields)) = (items.last_mut().filter(|last| is_same(last)), item.as_object()) else {
        items.push(item.clone());
        return;
    };
    for (key, value) in fields {
        match (&mut last[key.as_str()], value) {
            (_, Value::Null) => {}
            (Value::String(text), Value::String(more)) if matches!(key.as_str(), "text" | "summary" | "data") => {
                text.push_str(more);
            }
            (slot, value) => *slot = value.clone(),
        }
    }
}
