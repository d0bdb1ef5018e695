//! The format against streams as services send them, against a server that misbehaves, and against a history that
//! another provider began.

mod exchanges;
mod requests;
mod streams;
mod switching;

use serde_json::{Value, json};

use super::*;
use crate::provider::{AssistantMessage, Message, ResultMessage};
use crate::session::record::ToolCall;

const SERVICE: Service<'_> = Service { provider: "acme", key_variable: Some("ACME_API_KEY") };

fn settings(url: &str) -> Settings {
    Settings {
        provider: "acme".to_owned(),
        url: format!("{url}/v1/messages"),
        models_url: String::new(),
        key_variable: Some("ACME_API_KEY".to_owned()),
        key: Some("test-key-acme".to_owned()),
        takes_output_schema: true,
    }
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None }
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

fn assistant(text: &str, calls: Vec<ToolCall>, opaque: Option<Value>) -> Message {
    Message::Assistant(AssistantMessage {
        provider: "acme".to_owned(),
        model: "m".to_owned(),
        text: text.to_owned(),
        reasoning: String::new(),
        tool_calls: calls,
        opaque,
    })
}

fn result(id: &str, content: &str, is_error: bool) -> ResultMessage {
    ResultMessage {
        call_id: id.to_owned(),
        name: "read".to_owned(),
        content: content.to_owned(),
        is_error,
        images: Vec::new(),
    }
}
