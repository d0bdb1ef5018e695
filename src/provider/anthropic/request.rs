//! Builds requests in Anthropic's Messages format: the conversation as a strict service takes it.
//!
//! The same conversation always gives the same bytes, and a longer one begins with those of the shorter but for the
//! cache breakpoints, which move on and are no part of what is cached.

use serde_json::{Map, Value, json};

use super::thinking::{Thinking, Version, default_max_tokens, is_thinking, may_think};
use super::{BLOCKS, PAUSED, Settings, TEXT_BYTES};
use crate::provider::output_schema;
use crate::provider::trouble::Trouble;
use crate::provider::wire::{GO_ON, IdForm, Ids, object_of, valid_name};
use crate::provider::{AdvertisedTool, AssistantMessage, Image, Message, Request, ResultMessage};
use crate::session::record::ToolCall;

/// How many of the last user messages end with a breakpoint: the last, for the next request to find, and the one
/// before, where the last request set it. System prompt and tools have one each, and the service takes four.
const USER_BREAKPOINTS: usize = 2;
/// In place of a result that holds nothing, which the service refuses.
const NO_OUTPUT: &str = "(no output)";

/// The body of a request.
pub(super) fn body(settings: &Settings, request: &Request<'_>) -> Result<Value, Trouble> {
    let max_tokens = request.max_tokens.unwrap_or_else(|| default_max_tokens(request.model));
    let mut messages = messages(settings, request);
    let tools = tools(request);
    let thinking = Thinking::of(&settings.provider, request.model, request.reasoning_effort, max_tokens)?;
    let thinking = thinking.filter(|thinking| matches!(thinking, Thinking::Adaptive(_)) || may_think(&messages));
    let output_config = output_config(settings, request, thinking, &messages);
    set_breakpoints(&mut messages);
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
    set("model", json!(request.model));
    set("stream", json!(true));
    set("max_tokens", json!(max_tokens));
    match (thinking, request.temperature) {
        // The service takes no temperature beside thinking.
        (Some(thinking), _) => {
            set("thinking", thinking.field());
        }
        (None, Some(temperature)) => {
            set("temperature", json!(temperature));
        }
        (None, None) => {}
    }
    if !output_config.is_empty() {
        set("output_config", Value::Object(output_config));
    }
    if !request.system.trim().is_empty() {
        let mut block = json!({"type": "text", "text": request.system});
        set_breakpoint(&mut block);
        set("system", json!([block]));
    }
    if !tools.is_empty() {
        if request.tool_choice_none || request.tools.is_empty() {
            set("tool_choice", json!({"type": "none"}));
        }
        set("tools", Value::Array(tools));
    }
    set("messages", Value::Array(messages));
    Ok(Value::Object(body))
}

/// How hard the model is to try, and the form of its answer. A message that goes on cannot be held to a form.
fn output_config(
    settings: &Settings,
    request: &Request<'_>,
    thinking: Option<Thinking>,
    messages: &[Value],
) -> Map<String, Value> {
    let mut config = Map::new();
    if let Some(Thinking::Adaptive(effort)) = thinking {
        config.insert("effort".to_owned(), json!(effort));
    }
    let goes_on = messages.last().is_some_and(|message| message["role"] == "assistant");
    let takes_schema = settings.takes_output_schema
        && !goes_on
        && Version::of(request.model).is_some_and(Version::takes_output_schema);
    let schema = request.output_schema.filter(|_| takes_schema).and_then(output_schema::enforceable);
    if let Some(schema) = schema {
        config.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
    }
    config
}

/// The tools that are offered. Where there are none, those that the history speaks of: the service takes no call or
/// result without tools.
fn tools(request: &Request<'_>) -> Vec<Value> {
    let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
    if tools.is_empty() {
        let mut names: Vec<String> = Vec::new();
        for message in request.messages {
            let Message::Assistant(message) = message else { continue };
            for name in message.tool_calls.iter().map(|call| valid_name(&call.name)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let schema = json!({"type": "object", "properties": {}});
        tools.extend(names.iter().map(|name| json!({"name": name, "input_schema": schema})));
    }
    if let Some(last) = tools.last_mut() {
        set_breakpoint(last);
    }
    tools
}

fn with_images(text: &str, images: &[Image]) -> Value {
    let mut blocks = vec![json!({"type": "text", "text": text})];
    blocks.extend(images.iter().map(|image| {
        let source = json!({"type": "base64", "media_type": image.media_type, "data": image.base64});
        json!({"type": "image", "source": source})
    }));
    Value::Array(blocks)
}

fn tool(tool: &AdvertisedTool) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
}

fn set_breakpoint(value: &mut Value) {
    value["cache_control"] = json!({"type": "ephemeral"});
}

fn set_breakpoints(messages: &mut [Value]) {
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user");
    for message in users.take(USER_BREAKPOINTS) {
        if let Some(block) = message["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            set_breakpoint(block);
        }
    }
}

fn messages(settings: &Settings, request: &Request<'_>) -> Vec<Value> {
    let mut wire =
        Wire { settings, model: request.model, messages: Vec::new(), is_paused: false, ids: Ids::new(IdForm::Word) };
    for message in request.messages {
        match message {
            Message::User { text } => wire.push_user(text),
            Message::Assistant(message) => wire.push_assistant(message),
            Message::Results(results) => wire.push_results(results),
        }
    }
    if wire.last_role() == "assistant" && !wire.is_paused {
        wire.push_user(GO_ON);
    }
    wire.messages
}

struct Wire<'a> {
    settings: &'a Settings,
    model: &'a str,
    /// All with an array of blocks as their content.
    messages: Vec<Value>,
    /// The last message is one that the service goes on from.
    is_paused: bool,
    ids: Ids,
}

impl Wire<'_> {
    fn last_role(&self) -> &str {
        self.messages.last().and_then(|message| message["role"].as_str()).unwrap_or_default()
    }

    /// Adds blocks to the last message if it is of that role, or begins another.
    fn push(&mut self, role: &str, blocks: Vec<Value>) {
        let last = self.messages.last_mut().filter(|message| message["role"] == role);
        match last.and_then(|message| message["content"].as_array_mut()) {
            Some(content) => content.extend(blocks),
            None => self.messages.push(json!({"role": role, "content": blocks})),
        }
    }

    fn push_user(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let last = self.messages.last_mut().filter(|message| message["role"] == "user");
        let block = last.and_then(|message| message["content"].as_array_mut()?.last_mut());
        if let Some(Value::String(content)) = block.and_then(|block| block.get_mut("text")) {
            content.push_str("\n\n");
            content.push_str(text);
            return;
        }
        self.push("user", vec![json!({"type": "text", "text": text})]);
    }

    fn push_results(&mut self, results: &[ResultMessage]) {
        let mut blocks = Vec::new();
        for result in results {
            let content = if result.content.trim().is_empty() { NO_OUTPUT } else { &result.content };
            let id = self.ids.valid(&result.call_id);
            let content = if result.images.is_empty() { json!(content) } else { with_images(content, &result.images) };
            let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": content});
            if result.is_error {
                block["is_error"] = json!(true);
            }
            blocks.push(block);
        }
        if !blocks.is_empty() {
            self.push("user", blocks);
        }
    }

    fn push_assistant(&mut self, message: &AssistantMessage) {
        let is_own = message.provider == self.settings.provider && message.model == self.model;
        let opaque = message.opaque.as_ref().filter(|_| is_own);
        let is_paused = opaque.is_some_and(|opaque| opaque[PAUSED] == true);
        let mut blocks = match opaque.and_then(|opaque| opaque[BLOCKS].as_array()) {
            Some(kept) => self.kept_blocks(message, kept),
            None => self.plain_blocks(message),
        };
        if !is_paused {
            // The service takes no message that ends with a thought.
            while blocks.last().is_some_and(is_thinking) {
                blocks.pop();
            }
        }
        if blocks.is_empty() {
            return;
        }
        if self.last_role() == "assistant" && !self.is_paused {
            self.push_user(GO_ON);
        }
        self.push("assistant", blocks);
        self.is_paused = is_paused;
    }

    fn plain_blocks(&mut self, message: &AssistantMessage) -> Vec<Value> {
        let mut blocks: Vec<Value> = text_block(&message.text).into_iter().collect();
        blocks.extend(message.tool_calls.iter().map(|call| self.call(call)));
        blocks
    }

    /// The blocks as the service had them; the texts and calls among them are the message's, in their order.
    fn kept_blocks(&mut self, message: &AssistantMessage, kept: &[Value]) -> Vec<Value> {
        let mut calls = message.tool_calls.iter();
        let mut texts = split(&message.text, kept).into_iter();
        let mut blocks = Vec::new();
        for block in kept {
            match block["type"].as_str() {
                Some("text") => blocks.extend(texts.next().and_then(text_block)),
                Some("tool_use") => blocks.extend(calls.next().map(|call| with_fields(self.call(call), block))),
                // What came without its signature, or without content, would be refused.
                Some("thinking") if is_empty(&block["signature"]) || !block["thinking"].is_string() => {}
                Some("redacted_thinking") if is_empty(&block["data"]) => {}
                Some(_) => blocks.push(block.clone()),
                None => {}
            }
        }
        blocks.extend(texts.filter_map(text_block));
        blocks.extend(calls.map(|call| self.call(call)));
        blocks
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        let input = object_of(&call.arguments).map(|(object, _)| object).unwrap_or_default();
        json!({"type": "tool_use", "id": self.ids.valid(&call.id), "name": valid_name(&call.name), "input": input})
    }
}

/// Adds what the service said of a call besides what every call has.
fn with_fields(mut call: Value, kept: &Value) -> Value {
    if let (Some(call), Some(kept)) = (call.as_object_mut(), kept.as_object()) {
        for (key, value) in kept {
            call.entry(key).or_insert_with(|| value.clone());
        }
    }
    call
}

/// The message's text, a part for each text among the blocks. Where they do not fit together any more, as when a key
/// was masked in it, the first part is the whole.
fn split<'a>(text: &'a str, kept: &[Value]) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut rest = text;
    for block in kept.iter().filter(|block| block["type"] == "text") {
        let bytes = block[TEXT_BYTES].as_u64().and_then(|bytes| usize::try_from(bytes).ok());
        let Some((part, behind)) = bytes.and_then(|bytes| rest.split_at_checked(bytes)) else { return vec![text] };
        parts.push(part);
        rest = behind;
    }
    if rest.is_empty() { parts } else { vec![text] }
}

/// The service refuses a blank one.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn is_empty(value: &Value) -> bool {
    value.as_str().is_none_or(str::is_empty)
}
