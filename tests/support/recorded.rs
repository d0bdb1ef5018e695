//! A request as the model server got it, and what tests look for in it, whichever the format.

use std::time::Instant;

use serde_json::Value;

use super::pairing::Format;

/// A request as it came, kept for assertions.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) format: Format,
    pub(crate) body: Value,
    pub(crate) bytes: Vec<u8>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) arrived: Instant,
    /// Counts the connections to the server, from 1.
    pub(crate) connection: usize,
}

impl RecordedRequest {
    pub(crate) fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The system prompt's text, whichever the format.
    pub(crate) fn system(&self) -> String {
        let content = match self.format {
            Format::OpenAi => {
                self.messages().first().filter(|message| message["role"] == "system").map(|m| &m["content"])
            }
            Format::Anthropic => self.body.get("system"),
        };
        content.map_or_else(String::new, text_of)
    }

    /// The offered tools, in order.
    pub(crate) fn tool_names(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool.pointer("/function/name").or(tool.get("name"))?.as_str()).collect()
    }

    /// All results the request carries, as (call id, text), in the order sent.
    pub(crate) fn results(&self) -> Vec<(String, String)> {
        let id_and_text =
            |value: &Value, key: &str| value[key].as_str().map(|id| (id.to_owned(), text_of(&value["content"])));
        match self.format {
            Format::OpenAi => {
                self.messages().iter().filter_map(|message| id_and_text(message, "tool_call_id")).collect()
            }
            Format::Anthropic => {
                let blocks = self.messages().iter().filter_map(|message| message["content"].as_array()).flatten();
                blocks.filter_map(|block| id_and_text(block, "tool_use_id")).collect()
            }
        }
    }

    /// The text of one call's result. Fails where there is none.
    #[track_caller]
    pub(crate) fn result(&self, call_id: &str) -> String {
        let results = self.results();
        let found = results.iter().find(|(id, _)| id == call_id);
        found.unwrap_or_else(|| panic!("no result of {call_id} in {results:?}")).1.clone()
    }

    /// The text of the last message, if it is the user's.
    pub(crate) fn last_user_text(&self) -> Option<String> {
        let last = self.messages().last().filter(|message| message["role"] == "user")?;
        Some(text_of(&last["content"]))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A text, or the texts of parts or blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
