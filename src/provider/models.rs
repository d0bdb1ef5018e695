//! What a service offers: its list of models, in the shapes that services give it.
//!
//! The list is the service's own: it is bounded and shown, and decides nothing.

use serde_json::Value;

use super::http::Http;
use super::retry::Schedule;
use super::trouble::{Service, Trouble, of_status};
use super::{Progress, ProviderError};
use crate::interrupt::Interrupt;

/// Of one answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Of one list.
const MODELS_MAX: usize = 10_000;
/// Of a list that comes in parts.
const PAGES_MAX: usize = 100;
/// Of a model's id or name.
const NAME_BYTES_MAX: usize = 256;
/// How often a list is asked for: somebody waits for it, and can ask again.
const TRIES_MAX: u32 = 2;

/// A model that a service offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// What stands behind the provider's name in `PROVIDER/MODEL`.
    pub id: String,
    /// What the service calls it, where that is another name.
    pub name: Option<String>,
    /// How many tokens it takes, where the service says so.
    pub context_tokens: Option<u64>,
}

/// Asks `url` for the list, and for its further parts where the answer says that there are some.
pub(super) fn list(
    service: Service<'_>,
    http: &Http,
    url: &str,
    headers: &[(&str, &str)],
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Model>, ProviderError> {
    let schedule = Schedule { tries_max: TRIES_MAX, ..Schedule::default() };
    let mut models = Vec::new();
    let mut page_url = url.to_owned();
    for _ in 0..PAGES_MAX {
        let page = schedule.run(service.provider, interrupt, observe, |_| {
            let mut answer = http.get(&page_url, headers, interrupt)?;
            let body = answer.read(ANSWER_BYTES_MAX, None)?;
            if !(200..300).contains(&answer.status) {
                return Err(of_status(service, answer.status, &body, answer.retry_after));
            }
            serde_json::from_slice::<Value>(&body)
                .map_err(|_| Trouble::lasting(format!("the list of models of {} is not JSON", service.provider)))
        })?;
        let Some(part) = parse(&page) else {
            let message = format!("{} answered with something other than a list of models", service.provider);
            return Err(Trouble::lasting(message).error);
        };
        let is_last = part.is_empty() || page["has_more"] != true;
        models.extend(part);
        match page["last_id"].as_str().filter(|_| !is_last && models.len() < MODELS_MAX) {
            Some(last) => page_url = with_parameter(url, "after_id", last),
            None => break,
        }
    }
    models.truncate(MODELS_MAX);
    models.sort_by(|a, b| a.id.cmp(&b.id));
    models.dedup_by(|a, b| a.id == b.id);
    Ok(models)
}

fn with_parameter(url: &str, name: &str, value: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    let value: String = value
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    format!("{url}{separator}{name}={value}")
}

/// The models of one answer; `None` if it is no list.
fn parse(value: &Value) -> Option<Vec<Model>> {
    let list = value.as_array().or_else(|| value["data"].as_array()).or_else(|| value["models"].as_array())?;
    Some(list.iter().take(MODELS_MAX).filter_map(model).collect())
}

fn model(value: &Value) -> Option<Model> {
    let word = |key: &str| {
        let text = value[key].as_str().unwrap_or_default();
        Some(text).filter(|text| (1..=NAME_BYTES_MAX).contains(&text.len())).map(str::to_owned)
    };
    let id = word("id").or_else(|| word("name"))?;
    let id = id.strip_prefix("models/").map_or_else(|| id.clone(), str::to_owned);
    let counts = ["context_length", "context_window", "max_context_length", "max_model_len", "max_input_tokens"];
    let counts = counts.iter().map(|key| &value[*key]).chain([&value["meta"]["n_ctx"], &value["meta"]["n_ctx_train"]]);
    Some(Model {
        context_tokens: counts.filter_map(Value::as_u64).find(|tokens| *tokens > 0),
        name: word("display_name").or_else(|| word("name")).filter(|name| *name != id),
        id,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_shape_of_a_list_is_read() {
        let found = |value: Value| {
            let models = parse(&value)?;
            Some(models.into_iter().map(|model| (model.id, model.name, model.context_tokens)).collect::<Vec<_>>())
        };
        let one = |id: &str, name: Option<&str>, tokens| Some(vec![(id.to_owned(), name.map(str::to_owned), tokens)]);
        for (value, expected) in [
            (json!({"object": "list", "data": [{"id": "gpt-5", "object": "model"}]}), one("gpt-5", None, None)),
            (json!({"data": [{"id": "a/b", "name": "B", "context_length": 8}]}), one("a/b", Some("B"), Some(8))),
            (json!({"data": [{"id": "x", "context_window": 9}]}), one("x", None, Some(9))),
            (json!({"data": [{"id": "x", "max_model_len": 7}]}), one("x", None, Some(7))),
            (json!({"data": [{"id": "x", "meta": {"n_ctx_train": 6}}]}), one("x", None, Some(6))),
            (json!({"data": [{"id": "models/gemini-x"}]}), one("gemini-x", None, None)),
            (json!([{"id": "x", "context_length": -1}]), one("x", None, None)),
            (json!({"models": [{"name": "llama3"}]}), one("llama3", None, None)),
            (json!({"data": [{"id": ""}, {"id": 7}, 7, {"id": "y".repeat(257)}]}), Some(vec![])),
            (json!({"error": "no"}), None),
            (json!("no"), None),
        ] {
            assert_eq!(found(value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn a_parameter_is_added_to_any_address() {
        assert_eq!(with_parameter("http://a/models", "after_id", "x/1 ü"), "http://a/models?after_id=x%2F1%20%C3%BC");
        assert_eq!(with_parameter("http://a/models?b=c", "after_id", "x"), "http://a/models?b=c&after_id=x");
    }
}
