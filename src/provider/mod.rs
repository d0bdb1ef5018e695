//! One file a wire format, and what they share: HTTP, server-sent events, assembling calls, retries.
//!
//! A provider turns a [`Request`] into a complete [`Reply`] or a [`ProviderError`]. It knows nothing of sessions,
//! permissions or tools beyond their advertised schemas, and records nothing. Every byte of a reply is the service's
//! own: it is bounded here, and judged by others.

pub mod anthropic;
pub mod assemble;
pub mod catalogue;
mod connect;
#[cfg(test)]
mod corpus;
pub mod http;
pub mod models;
pub mod openai;
mod output_schema;
mod reading;
pub mod recorded;
pub mod retry;
pub mod scripted;
pub mod sse;
#[cfg(test)]
mod stand_in;
mod surrogate;
pub mod trouble;
mod wire;

use serde_json::Value;

pub use self::connect::{
    Connected, connect, connect_to_list, default_model, ensure_effort, key_variables, known_context_tokens,
    no_model_failure, register_keys,
};
use self::models::Model;
use crate::interrupt::Interrupt;
use crate::session::record::{ToolCall, Usage};

/// As much of the beginning of `text` as fits, without tearing a character.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Talks to one model service.
pub trait Provider {
    /// Sends the request and waits for the whole reply, retrying what may be retried. `observe` is told of deltas and
    /// of retries as they happen.
    fn complete(
        &self,
        request: &Request<'_>,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Reply, ProviderError>;

    /// Asks the service which models it offers. `observe` is told of retries.
    fn models(
        &self,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<Model>, ProviderError> {
        let _ = (interrupt, observe);
        Err(trouble::Trouble::lasting("this provider cannot be asked for its models").error)
    }
}

/// Everything a reply depends on. Within an invocation `system` and `tools` are the same bytes in every request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The model's name without the provider's.
    pub model: &'a str,
    pub system: &'a str,
    pub messages: &'a [Message],
    pub tools: &'a [AdvertisedTool],
    pub max_tokens: Option<u64>,
    pub temperature: Option<f64>,
    pub reasoning_effort: Option<&'a str>,
    pub output_schema: Option<&'a Value>,
    /// The tools are told of, so that the history makes sense, and none may be called.
    pub tool_choice_none: bool,
    /// How many assistant replies the session holds already; `scripted` plays the entry of that index.
    pub replies_before: u64,
}

/// A tool as the model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct AdvertisedTool {
    pub name: String,
    pub description: String,
    pub parameters: Value,
}

/// The conversation in wire order: results stand right behind the assistant message whose calls they answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    User {
        text: String,
    },
    Assistant(AssistantMessage),
    /// All results of the assistant message before, in call order.
    Results(Vec<ResultMessage>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct AssistantMessage {
    pub provider: String,
    pub model: String,
    pub text: String,
    pub reasoning: String,
    /// Names and arguments as the model wrote them; the wire format makes them valid.
    pub tool_calls: Vec<ToolCall>,
    /// To be sent back unchanged to this provider and model, and to no other.
    pub opaque: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResultMessage {
    pub call_id: String,
    pub name: String,
    pub content: String,
    /// Whether the service is told that it is an error, where it can be told.
    pub is_error: bool,
    /// Those that the service takes; where it takes none, the content tells of them.
    pub images: Vec<Image>,
}

/// An image that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    pub base64: String,
}

/// A complete reply. Ids may still be empty or doubled; intake mends them.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub text: String,
    pub reasoning: String,
    pub tool_calls: Vec<ToolCall>,
    pub finish: Finish,
    /// The service's own word.
    pub finish_reason: String,
    pub usage: Usage,
    pub opaque: Option<Value>,
}

/// What a finish reason means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// `stop`, `end_turn`, `eos`, `tool_calls`, `tool_use` and their kin.
    End,
    /// The output limit cut the reply.
    Length,
    Refusal,
    ContentFilter,
    /// The service wants the request to go on (`pause_turn`).
    Pause,
    /// Taken as an end, with a warning.
    Unfamiliar,
}

impl Finish {
    /// What a service's own word means, in any of the formats. An empty one is an end: the reply was marked as over by
    /// other means.
    pub fn of(reason: &str) -> Self {
        // What stands behind a colon is why: `content_filter: RECITATION`.
        let word = reason.split(':').next().unwrap_or_default().trim();
        match word.to_ascii_lowercase().as_str() {
            "" | "stop" | "tool_calls" | "function_call" | "tool_use" | "end_turn" | "stop_sequence" | "eos"
            | "eos_token" => Self::End,
            "length" | "max_tokens" | "max_output_tokens" | "model_length" | "model_context_window_exceeded" => {
                Self::Length
            }
            "content_filter" | "safety" => Self::ContentFilter,
            "refusal" => Self::Refusal,
            "pause_turn" => Self::Pause,
            _ => Self::Unfamiliar,
        }
    }
}

/// What happens while a reply comes in.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    Text(&'a str),
    Reasoning(&'a str),
    /// Voids the deltas so far.
    Retrying {
        /// The one that comes next, from 2.
        attempt: u32,
        delay_ms: u64,
        reason: &'a str,
    },
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    /// `provider_error`, or finer: `context_overflow`, `missing_key`, `rate_limited`, ...
    pub code: String,
    /// Names provider and status, and quotes the service's own words, bounded and masked.
    pub message: String,
    pub hint: Option<String>,
    pub retryable: bool,
    /// The interrupt ended it; nothing is wrong with the service.
    pub interrupted: bool,
}
