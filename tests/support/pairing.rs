//! What both services ask of a request: well-formed ids, names and schemas. The formats' own rules stand beside it.
//!
//! Each check returns all violations as sentences; an empty list is a request that a strict service takes. Where the
//! services differ from each other, the strictest is followed, since attini is to speak to all of them.

use std::collections::BTreeSet;

use base64::Engine;
use serde_json::{Map, Value};

pub(crate) use super::pairing_anthropic::check_anthropic;
pub(crate) use super::pairing_openai::check_openai;

/// The one violation that a service's own `pause_turn` makes lawful.
pub(super) const ENDS_WITH_ASSISTANT: &str = "the last message is the assistant's";

/// The wire format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Format {
    OpenAi,
    Anthropic,
}

impl Format {
    pub(crate) fn check(self, request: &Value) -> Vec<String> {
        match self {
            Self::OpenAi => check_openai(request),
            Self::Anthropic => check_anthropic(request),
        }
    }
}

pub(super) fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Whether a service takes it for an image: a type that it knows, and bytes in base64.
pub(super) fn is_image(media_type: &str, data: &str) -> bool {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&media_type);
    known && base64::engine::general_purpose::STANDARD.decode(data).is_ok_and(|bytes| !bytes.is_empty())
}

/// A call's id: its form, and that the history has it once. Returns it where it is a text at all.
pub(super) fn check_id<'a>(
    id: &'a Value,
    place: &str,
    seen: &mut BTreeSet<String>,
    found: &mut Vec<String>,
) -> Option<&'a str> {
    let Some(id) = id.as_str() else {
        found.push(format!("{place}: the call has no id"));
        return None;
    };
    if !is_word(id) {
        found.push(format!("{place}: the call id {id:?} is not of [A-Za-z0-9_-]{{1,64}}"));
    }
    if !seen.insert(id.to_owned()) {
        found.push(format!("{place}: the call id {id:?} is used twice"));
    }
    Some(id)
}

pub(super) fn check_name(name: &Value, place: &str, found: &mut Vec<String>) {
    match name.as_str() {
        Some(name) if is_word(name) => {}
        Some(name) => found.push(format!("{place}: the tool name {name:?} is not of [A-Za-z0-9_-]{{1,64}}")),
        None => found.push(format!("{place}: the tool has no name")),
    }
}

/// The results behind one assistant message: each open call once, in order, and nothing else.
pub(super) fn check_results(open: &[String], results: &[String], place: &str, found: &mut Vec<String>) {
    for id in open.iter().filter(|id| !results.contains(id)) {
        found.push(format!("{place}: the call {id:?} has no result behind its message"));
    }
    for (index, id) in results.iter().enumerate() {
        if !open.contains(id) {
            found.push(format!("{place}: the result {id:?} has no call right before it"));
        } else if results[..index].contains(id) {
            found.push(format!("{place}: the call {id:?} has two results"));
        }
    }
    let in_call_order = open.iter().filter(|id| results.contains(id));
    let as_sent = results.iter().filter(|id| open.contains(id));
    if !in_call_order.eq(as_sent) && open.iter().all(|id| results.iter().filter(|other| *other == id).count() == 1) {
        found.push(format!("{place}: the results are not in call order"));
    }
}

/// One tool's name and schema; `names` collects the names of the array.
pub(super) fn check_tool(
    tool: &Value,
    schema_key: &str,
    place: &str,
    names: &mut Vec<String>,
    found: &mut Vec<String>,
) {
    check_name(&tool["name"], place, found);
    if let Some(name) = tool["name"].as_str() {
        if names.iter().any(|other| other == name) {
            found.push(format!("{place}: the tool {name:?} is offered twice"));
        }
        names.push(name.to_owned());
    }
    if tool.get("description").is_some_and(|description| !description.is_string()) {
        found.push(format!("{place}: the description is not a text"));
    }
    let Some(schema) = tool[schema_key].as_object() else {
        found.push(format!("{place}: {schema_key} is not an object"));
        return;
    };
    check_schema(schema, place, found);
}

fn check_schema(schema: &Map<String, Value>, place: &str, found: &mut Vec<String>) {
    if schema.get("type") != Some(&Value::from("object")) {
        found.push(format!("{place}: the schema's type is not object"));
    }
    for word in ["oneOf", "anyOf", "allOf", "enum", "not"] {
        if schema.contains_key(word) {
            found.push(format!("{place}: {word} stands at the root of the schema"));
        }
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        found.push(format!("{place}: the schema has no properties object"));
        return;
    };
    for (name, property) in properties {
        if !property.is_object() && !property.is_boolean() {
            found.push(format!("{place}: the property {name:?} is not a schema"));
        }
    }
    match schema.get("required") {
        None => {}
        Some(Value::Array(required)) => {
            let mut names = BTreeSet::new();
            for name in required {
                let known = name.as_str().is_some_and(|name| properties.contains_key(name));
                if !known || !names.insert(name.to_string()) {
                    found.push(format!("{place}: required names {name}, which is no property or stands twice"));
                }
            }
        }
        Some(_) => found.push(format!("{place}: required is not an array")),
    }
    let root = Value::Object(schema.clone());
    for reference in references(&root) {
        if reference.strip_prefix('#').is_none_or(|pointer| root.pointer(pointer).is_none()) {
            found.push(format!("{place}: the reference {reference:?} leads nowhere"));
        }
    }
}

fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(object) => object
            .iter()
            .flat_map(|(key, value)| match value {
                Value::String(reference) if key == "$ref" => vec![reference.as_str()],
                _ => references(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// Whether a field that must be a positive whole number, where it stands, is one.
pub(super) fn check_positive(request: &Value, key: &str, found: &mut Vec<String>) {
    if request.get(key).is_some_and(|value| value.as_u64().is_none_or(|number| number == 0)) {
        found.push(format!("{key} is not a positive whole number"));
    }
}

/// Fields that both formats know, with their types.
pub(super) fn check_common(request: &Value, found: &mut Vec<String>) {
    if request.get("model").is_some_and(|model| model.as_str().is_none_or(str::is_empty)) {
        found.push("model is not a name".to_owned());
    }
    if request.get("stream").is_some_and(|stream| !stream.is_boolean()) {
        found.push("stream is not a boolean".to_owned());
    }
    let temperature = request.get("temperature");
    if temperature.is_some_and(|value| value.as_f64().is_none_or(|number| !(0.0..=2.0).contains(&number))) {
        found.push("temperature is not a number from 0 to 2".to_owned());
    }
}
