//! The format against streams as services send them, and against a server that misbehaves.

mod exchanges;
mod requests;
mod streams;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::session::record::ToolCall;

const SERVICE: Service<'_> = Service { provider: "acme", key_variable: Some("ACME_API_KEY") };

fn settings(url: &str) -> Settings {
    Settings {
        provider: "acme".to_owned(),
        url: format!("{url}/chat/completions"),
        models_url: String::new(),
        key_variable: Some("ACME_API_KEY".to_owned()),
        key: Some("test-key-acme".to_owned()),
        user_after_tool: true,
        dialect: Dialect::COMMON,
    }
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None }
}
