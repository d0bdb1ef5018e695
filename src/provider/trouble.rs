//! What a service's refusal means: which words to show, which code it gets, and whether to try again.
//!
//! Shared by the wire formats. What the words are is up to the service: they are bounded and masked, and decide
//! nothing but the code and whether the same request is sent again.

use std::time::Duration;

use serde_json::Value;

use super::{ProviderError, cut};
use crate::mask;

/// What is quoted of a service's own words.
pub const WORDS_BYTES_MAX: usize = 2048;

/// The code of a request that is longer than the model takes.
pub const CONTEXT_OVERFLOW: &str = "context_overflow";

/// Why one try of a request brought no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub error: ProviderError,
    /// Whether this invocation sends the same request again.
    pub again: bool,
    /// How long the service asked to wait.
    pub retry_after: Option<Duration>,
}

impl Trouble {
    /// A connection that failed or broke off, or a reply that did: sent again.
    pub fn broken_off(message: impl Into<String>) -> Self {
        Self { error: provider_error(message, true), again: true, retry_after: None }
    }

    /// Sending it again would not help.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { error: provider_error(message, false), again: false, retry_after: None }
    }

    pub fn interrupted(provider: &str) -> Self {
        let error = ProviderError {
            code: "interrupted".to_owned(),
            message: format!("the request to {provider} was interrupted"),
            hint: None,
            retryable: true,
            interrupted: true,
        };
        Self { error, again: false, retry_after: None }
    }
}

fn provider_error(message: impl Into<String>, retryable: bool) -> ProviderError {
    ProviderError {
        code: "provider_error".to_owned(),
        message: mask::apply(&message.into()).into_owned(),
        hint: None,
        retryable,
        interrupted: false,
    }
}

/// Who was asked, for messages.
#[derive(Debug, Clone, Copy)]
pub struct Service<'a> {
    /// The provider's name.
    pub provider: &'a str,
    /// The environment variable of its key, if it takes one.
    pub key_variable: Option<&'a str>,
}

/// An answer with a status other than 2xx. `body` may be cut off anywhere.
pub fn of_status(service: Service<'_>, status: u16, body: &[u8], retry_after: Option<Duration>) -> Trouble {
    let text = String::from_utf8_lossy(body);
    let value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let words = words(&value).unwrap_or_else(|| plain_words(&text));
    let says = if words.is_empty() { String::new() } else { format!(": {}", shorten(&words)) };
    let provider = service.provider;
    let again = is_temporary(status);
    let mut error = provider_error(format!("{provider} answered with HTTP status {status}{says}"), again);
    // Some services say of a request that is too long for the model no more than that it is too large.
    if status == 413 || (status != 429 && is_overflow(&value, &words)) {
        return overflow(error, retry_after);
    }
    match status {
        401 | 403 => {
            "unauthorized".clone_into(&mut error.code);
            error.hint = Some(match service.key_variable {
                Some(variable) => format!("check the key in {variable}, and that it may use this model"),
                None => format!("set api_key_env in [providers.{provider}] if the service needs a key"),
            });
        }
        404 => error.hint = Some("check the model's name and the provider's base address".to_owned()),
        429 => "rate_limited".clone_into(&mut error.code),
        300..=399 => {
            error.hint = Some("it redirects, which is not followed: check the provider's base address".to_owned());
        }
        _ => {}
    }
    Trouble { error, again, retry_after }
}

/// An error object where a reply was to come: `value` is the object that holds `error`, or that object itself.
pub fn of_error_object(service: Service<'_>, value: &Value, retry_after: Option<Duration>) -> Trouble {
    let words = words(value).unwrap_or_else(|| value.to_string());
    let again = !is_lasting(value);
    let message = format!("{} reported an error in its reply: {}", service.provider, shorten(&words));
    let mut error = provider_error(message, again);
    if is_overflow(value, &words) {
        return overflow(error, retry_after);
    }
    if status_of(value) == Some(429) || kinds(value).any(|kind| kind == "rate_limit_error") {
        "rate_limited".clone_into(&mut error.code);
    }
    Trouble { error, again, retry_after }
}

fn overflow(error: ProviderError, retry_after: Option<Duration>) -> Trouble {
    let error = ProviderError { code: CONTEXT_OVERFLOW.to_owned(), retryable: false, ..error };
    Trouble { error, again: false, retry_after }
}

fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500..600)
}

/// Whether an error object says of itself that the request is at fault. All others may be an overload.
fn is_lasting(value: &Value) -> bool {
    if let Some(status) = status_of(value) {
        return !is_temporary(status);
    }
    let is_final = |kind: &str| {
        let kind = kind.to_ascii_lowercase();
        [
            "invalid",
            "authentication",
            "permission",
            "billing",
            "not_found",
            "too_large",
            "unsupported",
            "content_filter",
            "context_length",
        ]
        .iter()
        .any(|word| kind.contains(word))
    };
    kinds(value).any(is_final)
}

/// The HTTP status that an error object names.
fn status_of(value: &Value) -> Option<u16> {
    let error = error_object(value);
    ["status", "status_code", "code"]
        .iter()
        .filter_map(|key| error.get(key))
        .filter_map(|status| match status {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64().and_then(|status| u16::try_from(status).ok()),
        })
        .find(|status| (400..600).contains(status))
}

fn kinds(value: &Value) -> impl Iterator<Item = &str> {
    let error = error_object(value);
    ["code", "type"].into_iter().filter_map(move |key| error.get(key)).filter_map(Value::as_str)
}

fn is_overflow(value: &Value, words: &str) -> bool {
    if kinds(value).any(|kind| matches!(kind, "context_length_exceeded" | "exceed_context_size_error")) {
        return true;
    }
    let words = words.to_ascii_lowercase();
    [
        "maximum context length",
        "context length exceeded",
        "exceeds the context window",
        "exceed context limit",
        "exceeds the available context size",
        "prompt is too long",
        "input is too long",
        "exceeds the maximum number of tokens",
        "too large for model with",
        "maximum prompt length",
        "max context length",
        "exceeds the context length",
        "input token count exceeds",
        "context window exceeded",
    ]
    .iter()
    .any(|wording| words.contains(wording))
}

/// The object that describes the error: `error` of the value, of its first element, or the value itself.
fn error_object(value: &Value) -> &Value {
    let value = value.get(0).unwrap_or(value);
    value.get("error").unwrap_or(value)
}

/// The service's own words in an error object of any known shape.
fn words(value: &Value) -> Option<String> {
    let error = error_object(value);
    let found = match error {
        Value::String(_) => Some(error),
        _ => ["message", "detail", "msg"].iter().find_map(|key| error.get(key)),
    }?;
    match found {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// A text that is no JSON; of a web page only that it is one.
fn plain_words(text: &str) -> String {
    let text = text.trim();
    if text.starts_with('<') { "a web page".to_owned() } else { text.to_owned() }
}

/// One line of at most [`WORDS_BYTES_MAX`] bytes. Masked before it is cut, so that no part of a key is left over.
pub fn shorten(words: &str) -> String {
    let words = mask::apply(words).split_whitespace().collect::<Vec<_>>().join(" ");
    if words.len() <= WORDS_BYTES_MAX {
        return words;
    }
    format!("{}...", cut(&words, WORDS_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SERVICE: Service<'_> = Service { provider: "acme", key_variable: Some("ACME_API_KEY") };

    #[test]
    fn a_status_decides_the_code_and_whether_to_try_again() {
        let overflow = json!({"error": {"message": "too long", "code": "context_length_exceeded"}}).to_string();
        let wording = json!({"message": "This model's maximum context length is 10 tokens, however you requested 20"})
            .to_string();
        let cases = [
            (400, "{}", "provider_error", false),
            (401, "{}", "unauthorized", false),
            (403, "{}", "unauthorized", false),
            (404, "{}", "provider_error", false),
            (408, "{}", "provider_error", true),
            (409, "{}", "provider_error", true),
            (413, "{}", "context_overflow", false),
            (422, "{}", "provider_error", false),
            (429, "{}", "rate_limited", true),
            (500, "{}", "provider_error", true),
            (503, "{}", "provider_error", true),
            (529, "{}", "provider_error", true),
            (302, "", "provider_error", false),
            (400, overflow.as_str(), "context_overflow", false),
            (500, overflow.as_str(), "context_overflow", false),
            (400, wording.as_str(), "context_overflow", false),
            (429, wording.as_str(), "rate_limited", true),
        ];
        for (status, body, code, again) in cases {
            let trouble = of_status(SERVICE, status, body.as_bytes(), None);
            assert_eq!((trouble.error.code.as_str(), trouble.again), (code, again), "{status} {body}");
            assert_eq!(trouble.error.retryable, again, "{status} {body}");
            assert!(trouble.error.message.contains("acme answered with HTTP status"), "{}", trouble.error.message);
        }
        let hint = of_status(SERVICE, 401, b"", None).error.hint.unwrap();
        assert!(hint.contains("ACME_API_KEY"), "{hint}");
    }

    /// As each service says it: status and body.
    #[test]
    fn an_overflow_is_known_for_each_service() {
        let message = |words: &str| json!({"error": {"message": words, "code": 400}});
        for (service, status, body) in [
            (
                "openai",
                400,
                json!({"error": {"message": "Your input exceeds the context window of this model.", "type":
                    "invalid_request_error", "param": "input", "code": "context_length_exceeded"}}),
            ),
            (
                "anthropic",
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error", "message":
                    "prompt is too long: 207046 tokens > 200000 maximum"}}),
            ),
            (
                "anthropic",
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error", "message":
                    "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length"}}),
            ),
            (
                "gemini",
                400,
                json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message":
                    "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."}}]),
            ),
            (
                "mistral",
                400,
                json!({"object": "error", "type": "invalid_request_prompt", "code": "3051", "message":
                    "Prompt contains 40969 tokens and 0 draft tokens, too large for model with 32768 maximum context length"}),
            ),
            (
                "deepseek",
                400,
                message("This model's maximum context length is 131072 tokens. However, you requested 140000 tokens."),
            ),
            (
                "groq",
                400,
                json!({"error": {"message": "Please reduce the length of the messages or completion.", "type":
                    "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}),
            ),
            (
                "openrouter",
                400,
                message(
                    "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens.",
                ),
            ),
            (
                "llamacpp",
                400,
                json!({"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096,
                    "message": "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"}}),
            ),
            (
                "vllm",
                400,
                json!({"object": "error", "type": "BadRequestError", "code": 400, "message":
                    "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens."}),
            ),
            (
                "ollama",
                400,
                json!({"error": {"message": "the input length exceeds the context length", "type": "api_error"}}),
            ),
            ("ollama", 500, json!({"error": "prompt too long; exceeded max context length by 904 tokens"})),
        ] {
            let trouble = of_status(SERVICE, status, body.to_string().as_bytes(), None);
            assert_eq!((trouble.error.code.as_str(), trouble.again), (CONTEXT_OVERFLOW, false), "{service}: {body}");
            let in_stream = of_error_object(SERVICE, &body, None);
            assert_eq!(
                (in_stream.error.code.as_str(), in_stream.again),
                (CONTEXT_OVERFLOW, false),
                "{service}: {body}"
            );
        }
        // The length of what one reply may be is another matter, and so is what a minute may bring, unless one request
        // is more than that.
        let reply = "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens";
        let minute = "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 8000";
        for (status, words, expected) in [(400, reply, false), (429, minute, false), (413, minute, true)] {
            let code = of_status(SERVICE, status, message(words).to_string().as_bytes(), None).error.code;
            assert_eq!(code == CONTEXT_OVERFLOW, expected, "{status} {words}");
        }
    }

    #[test]
    fn the_services_words_are_found_in_every_shape() {
        let cases = [
            (json!({"error": {"message": "no credit", "type": "x"}}).to_string(), ": no credit"),
            (json!({"error": "no credit"}).to_string(), ": no credit"),
            (json!({"object": "error", "message": "no credit"}).to_string(), ": no credit"),
            (json!({"detail": [{"msg": "no"}]}).to_string(), ": [{\"msg\":\"no\"}]"),
            (json!([{"error": {"code": 400, "message": "no\n  credit"}}]).to_string(), ": no credit"),
            ("no credit\n".to_owned(), ": no credit"),
            ("<html><body>oh</body></html>".to_owned(), ": a web page"),
            (String::new(), ""),
        ];
        for (body, expected) in cases {
            let message = of_status(SERVICE, 418, body.as_bytes(), None).error.message;
            assert_eq!(message, format!("acme answered with HTTP status 418{expected}"), "{body}");
        }
    }

    #[test]
    fn words_are_bounded_and_masked() {
        mask::register("TEST_TROUBLE_KEY", "sk-trouble-0123456789");
        let long = format!("sk-trouble-0123456789 {}", "é".repeat(WORDS_BYTES_MAX));
        let message = of_status(SERVICE, 500, long.as_bytes(), None).error.message;
        assert!(message.contains("[TEST_TROUBLE_KEY masked]"), "{message}");
        assert!(message.len() < WORDS_BYTES_MAX + 100);
    }

    #[test]
    fn an_error_object_is_tried_again_unless_the_request_is_at_fault() {
        let cases = [
            (json!({"error": {"message": "overloaded", "type": "overloaded_error"}}), "provider_error", true),
            (json!({"error": {"message": "bad gateway", "code": 502}}), "provider_error", true),
            (json!({"error": {"message": "slow down", "code": "429"}}), "rate_limited", true),
            (json!({"type": "error", "error": {"message": "x", "type": "rate_limit_error"}}), "rate_limited", true),
            (json!({"error": {"message": "no", "type": "request_too_large"}}), "provider_error", false),
            (json!({"error": {"message": "no", "code": 400}}), "provider_error", false),
            (json!({"error": {"message": "no", "type": "invalid_request_error"}}), "provider_error", false),
            (json!({"error": {"message": "x", "code": "context_length_exceeded"}}), "context_overflow", false),
            (json!({"error": "something happened"}), "provider_error", true),
        ];
        for (value, code, again) in cases {
            let trouble = of_error_object(SERVICE, &value, None);
            assert_eq!((trouble.error.code.as_str(), trouble.again), (code, again), "{value}");
        }
    }
}
