//! Builds requests in the Chat Completions format: the conversation as a strict service takes it.
//!
//! The same conversation always gives the same bytes, and a longer one begins with the bytes of the shorter, so that
//! prompt caches hold.

use serde_json::{Map, Value, json};

use super::{CONTENT_PARTS, KEPT, REASONING_FIELD, REASONING_FIELDS, Settings, effort};
use crate::provider::output_schema;
use crate::provider::trouble::Trouble;
use crate::provider::wire::{GO_ON, IdForm, Ids, object_of, valid_name};
use crate::provider::{AdvertisedTool, AssistantMessage, Message, Request, ResultMessage};
use crate::session::record::ToolCall;

/// Stands between results and a user text where a service wants the roles to alternate.
const BETWEEN: &str = "I have the results.";

/// The body of a request.
pub(in crate::provider) fn body(settings: &Settings, request: &Request<'_>) -> Result<Value, Trouble> {
    let mut body = Map::new();
    let effort = request
        .reasoning_effort
        .map(|effort| effort::fields(&settings.provider, settings.dialect.effort, request.model, effort));
    let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
    set("model", json!(request.model));
    set("stream", json!(true));
    if settings.dialect.asks_for_usage {
        set("stream_options", json!({"include_usage": true}));
    }
    if let Some(max_tokens) = request.max_tokens {
        set(settings.dialect.max_tokens_field, json!(max_tokens));
    }
    if let Some(temperature) = request.temperature {
        set("temperature", json!(temperature));
    }
    for (key, value) in effort.transpose()?.unwrap_or_default() {
        set(key, value);
    }
    if let Some(schema) =
        request.output_schema.filter(|schema| settings.dialect.takes_output_schema && is_of_object(schema))
    {
        set("response_format", response_format(schema));
    }
    if !request.tools.is_empty() {
        set("tools", request.tools.iter().map(tool).collect());
        if request.tool_choice_none {
            set("tool_choice", json!("none"));
        }
    }
    set("messages", Value::Array(messages(settings, request)));
    Ok(Value::Object(body))
}

/// Services take no other schema for an answer, and refuse the request that has one.
fn is_of_object(schema: &Value) -> bool {
    schema["type"] == "object" && ["anyOf", "oneOf", "allOf", "$ref"].iter().all(|key| schema.get(*key).is_none())
}

/// The service enforces a schema only if it is told to, and then refuses those that it cannot enforce.
fn response_format(schema: &Value) -> Value {
    let format = match output_schema::enforceable(schema).filter(output_schema::is_strict) {
        Some(schema) => json!({"name": "answer", "strict": true, "schema": schema}),
        None => json!({"name": "answer", "schema": schema}),
    };
    json!({"type": "json_schema", "json_schema": format})
}

fn tool(tool: &AdvertisedTool) -> Value {
    json!({
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    })
}

fn messages(settings: &Settings, request: &Request<'_>) -> Vec<Value> {
    let nine = settings.dialect.nine_character_ids;
    let id_form = if nine { IdForm::NineCharacters } else { IdForm::Word };
    let mut wire = Wire { settings, model: request.model, messages: Vec::new(), ids: Ids::new(id_form) };
    if !request.system.is_empty() {
        wire.messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in request.messages {
        match message {
            Message::User { text } => wire.push_user(text),
            Message::Assistant(message) => wire.push_assistant(message),
            Message::Results(results) => {
                for result in results {
                    let id = wire.ids.valid(&result.call_id);
                    wire.messages.push(json!({"role": "tool", "tool_call_id": id, "content": result.content}));
                }
                wire.push_images(results);
            }
        }
    }
    if wire.last_role() == "assistant" {
        wire.push_user(GO_ON);
    }
    wire.messages
}

struct Wire<'a> {
    settings: &'a Settings,
    model: &'a str,
    messages: Vec<Value>,
    ids: Ids,
}

impl Wire<'_> {
    fn last_role(&self) -> &str {
        self.messages.last().and_then(|message| message["role"].as_str()).unwrap_or_default()
    }

    fn push_user(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let last = self.messages.last_mut().filter(|message| message["role"] == "user");
        match last.map(|message| &mut message["content"]) {
            Some(Value::String(content)) => {
                content.push_str("\n\n");
                content.push_str(text);
            }
            // Behind images; a text that follows another one there is a part of its own.
            Some(Value::Array(parts)) => parts.push(text_part(text)),
            Some(_) | None => self.begin_user(&json!(text)),
        }
    }

    fn begin_user(&mut self, content: &Value) {
        if self.last_role() == "tool" && !self.settings.user_after_tool {
            self.messages.push(json!({"role": "assistant", "content": BETWEEN}));
        }
        self.messages.push(json!({"role": "user", "content": content}));
    }

    /// A result is a text in this format; its images stand behind all results, in a message of the user's.
    fn push_images(&mut self, results: &[ResultMessage]) {
        let mut parts = Vec::new();
        for result in results.iter().filter(|result| !result.images.is_empty()) {
            parts.push(text_part(&format!("Attached to the result of {}:", self.ids.valid(&result.call_id))));
            for image in &result.images {
                let url = format!("data:{};base64,{}", image.media_type, image.base64);
                parts.push(json!({"type": "image_url", "image_url": {"url": url}}));
            }
        }
        if !parts.is_empty() {
            self.begin_user(&Value::Array(parts));
        }
    }

    fn push_assistant(&mut self, message: &AssistantMessage) {
        if message.text.is_empty() && message.tool_calls.is_empty() {
            return;
        }
        // It was sent behind the message when that was the last one.
        if self.last_role() == "assistant" {
            self.push_user(GO_ON);
        }
        let is_own = message.provider == self.settings.provider && message.model == self.model;
        let content = if message.text.is_empty() { Value::Null } else { json!(message.text) };
        let mut wire = Map::from_iter([("role".to_owned(), json!("assistant")), ("content".to_owned(), content)]);
        if is_own && let Some(opaque) = &message.opaque {
            give_back(&mut wire, message, opaque);
        }
        if self.settings.dialect.wants_reasoning {
            wire.entry(REASONING_FIELDS[0]).or_insert_with(|| json!(""));
        }
        if !message.tool_calls.is_empty() {
            let calls = message.tool_calls.iter().map(|call| self.call(call, is_own)).collect();
            wire.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        self.messages.push(Value::Object(wire));
    }

    fn call(&mut self, call: &ToolCall, is_own: bool) -> Value {
        let mut wire = Map::new();
        wire.insert("id".to_owned(), json!(self.ids.valid(&call.id)));
        wire.insert("type".to_owned(), json!("function"));
        let arguments = object_of(&call.arguments).map_or_else(|| "{}".to_owned(), |(_, text)| text);
        let function = json!({"name": valid_name(&call.name), "arguments": arguments});
        wire.insert("function".to_owned(), function);
        if is_own && let Some(Value::Object(kept)) = &call.opaque {
            for (key, value) in kept {
                wire.entry(key).or_insert_with(|| value.clone());
            }
        }
        Value::Object(wire)
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Puts reasoning and kept fields back where the service had them.
fn give_back(wire: &mut Map<String, Value>, message: &AssistantMessage, opaque: &Value) {
    let field = opaque.get(REASONING_FIELD).and_then(Value::as_str).filter(|_| !message.reasoning.is_empty());
    match field {
        Some(field) if REASONING_FIELDS.contains(&field) => {
            wire.insert(field.to_owned(), json!(message.reasoning));
        }
        Some(CONTENT_PARTS) => {
            let mut parts = vec![json!({
                "type": "thinking",
                "thinking": [{"type": "text", "text": message.reasoning}],
            })];
            if !message.text.is_empty() {
                parts.push(json!({"type": "text", "text": message.text}));
            }
            wire.insert("content".to_owned(), Value::Array(parts));
        }
        _ => {}
    }
    for (key, value) in opaque.get(KEPT).and_then(Value::as_object).into_iter().flatten() {
        wire.entry(key).or_insert_with(|| value.clone());
    }
}
