//! What `--output json` and `--output events` print: one JSON object a line, masked, and safe on a terminal too.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::escape::is_unsafe;
use super::event::{CallLabel, ErrorView, Event, TurnResult};
use crate::exit::Status;
use crate::failure::Failure;

/// The fields that every event has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common<'a> {
    pub(super) at: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) turn: Option<u64>,
}

/// The object of an event.
pub(super) fn of_event(common: Common<'_>, event: &Event) -> Value {
    let (name, call, fields) = match event {
        Event::TurnStarted { model } => ("turn_started", None, json!({"model": model})),
        Event::RoundStarted { round } => ("round_started", None, json!({"round": round})),
        Event::TextDelta { text } => ("text_delta", None, json!({"text": text})),
        Event::ReasoningDelta { text } => ("reasoning_delta", None, json!({"text": text})),
        Event::ToolStarted { call, arguments, summary: _ } => {
            ("tool_started", Some(call), json!({"arguments": arguments}))
        }
        Event::ToolHeartbeat { call, elapsed_ms, output_bytes } => {
            ("tool_heartbeat", Some(call), json!({"elapsed_ms": elapsed_ms, "output_bytes": output_bytes}))
        }
        Event::ToolResult { call, status, code, content, duration_ms } => (
            "tool_result",
            Some(call),
            json!({"status": status, "code": code, "content": content, "duration_ms": duration_ms}),
        ),
        Event::Awaiting { pending, digest } => ("awaiting", None, json!({"pending": pending, "digest": digest})),
        Event::Retrying { attempt, delay_ms, reason } => {
            ("retrying", None, json!({"attempt": attempt, "delay_ms": delay_ms, "reason": reason}))
        }
        Event::Compacted(compacted) => (
            "compacted",
            None,
            json!({
                "through_turn": compacted.through_turn,
                "through_round": compacted.through_round,
                "tokens_before": compacted.tokens_before,
                "tokens_after": compacted.tokens_after,
                "usage": compacted.usage,
            }),
        ),
        Event::Warning { message } => ("warning", None, json!({"message": message})),
    };
    let mut object = Map::new();
    object.insert("type".to_owned(), name.into());
    object.insert("at".to_owned(), common.at.into());
    object.insert("session".to_owned(), common.session.into());
    object.insert("turn".to_owned(), common.turn.into());
    if let Some(call) = call {
        insert_label(&mut object, call);
    }
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    crate::mask::value(Value::Object(object))
}

fn insert_label(object: &mut Map<String, Value>, call: &CallLabel) {
    object.insert("call_id".to_owned(), call.id.call_id.as_str().into());
    if let Some(operation) = call.id.operation {
        object.insert("operation".to_owned(), operation.into());
    }
    object.insert("name".to_owned(), call.name.as_str().into());
}

/// The object of a command that runs a turn.
pub(super) fn of_result(at: &str, result: &TurnResult) -> Value {
    let mut object = Map::new();
    object.insert("type".to_owned(), result.r#type.into());
    object.insert("at".to_owned(), at.into());
    object.insert("status".to_owned(), result.status.into());
    object.insert("exit_code".to_owned(), result.exit_code.into());
    // A result holds nothing that has no JSON form; should it ever, the outcome is still told.
    if let Ok(Value::Object(fields)) = serde_json::to_value(result) {
        object.extend(fields);
    }
    crate::mask::value(Value::Object(object))
}

/// The object of a command that runs no turn. `fields` come before `error` and may not name what is here already.
pub(super) fn of_command(
    at: &str,
    name: &str,
    status: Status,
    fields: Map<String, Value>,
    error: Option<&Failure>,
) -> Value {
    let mut object = Map::new();
    object.insert("type".to_owned(), name.into());
    object.insert("at".to_owned(), at.into());
    object.insert("status".to_owned(), status.name().into());
    object.insert("exit_code".to_owned(), status.code().into());
    for (field, value) in fields {
        let taken = object.contains_key(&field) || field == "error";
        debug_assert!(!taken, "the field {field} of the command {name} is taken");
        if !taken {
            object.insert(field, value);
        }
    }
    object.insert("error".to_owned(), json!(error.map(ErrorView::from)));
    crate::mask::value(Value::Object(object))
}

/// The beginning of a command's object whose last field but the outcome is a list.
pub(super) fn list_opening(at: &str, name: &str, fields: Map<String, Value>, list: &str) -> String {
    let mut object = Map::new();
    object.insert("type".to_owned(), name.into());
    object.insert("at".to_owned(), at.into());
    object.extend(fields);
    let json = to_json(&crate::mask::value(Value::Object(object)));
    let open = json.strip_suffix('}').unwrap_or(&json);
    format!("{open},{}:[", to_json(&list.into()))
}

pub(super) fn list_item(item: Value) -> String {
    to_json(&crate::mask::value(item))
}

/// What stands behind the list.
pub(super) fn list_closing(status: Status, error: Option<&Failure>) -> String {
    let outcome = crate::mask::value(json!({
        "status": status.name(),
        "exit_code": status.code(),
        "error": error.map(ErrorView::from),
    }));
    format!("],{}\n", to_json(&outcome).trim_start_matches('{'))
}

/// One line of JSON. Characters that a terminal would obey or hide are written `\u....`, which reads back the same.
pub fn to_json(value: &Value) -> String {
    escape_json(&value.to_string())
}

/// As [`to_json`], over several lines.
pub fn to_pretty_json(value: &Value) -> String {
    escape_json(&format!("{value:#}"))
}

/// `json` is valid JSON, in which such characters only stand inside strings.
fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for letter in json.chars() {
        if is_unsafe(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_masked_at_any_depth() {
        crate::mask::register("TEST_OBJECT_KEY", "sk-\"object\"-0123");
        let value = json!({"a": [{"sk-\"object\"-0123": "x sk-\"object\"-0123"}], "n": 1});
        let expected = json!({"a": [{"[TEST_OBJECT_KEY masked]": "x [TEST_OBJECT_KEY masked]"}], "n": 1});
        assert_eq!(crate::mask::value(value), expected);
    }

    proptest! {
        #[test]
        fn json_is_safe_to_show_and_reads_back(text in any::<String>(), letter in 0_u32..0xe_1000) {
            let value = json!({ "text": format!("{text}{}", char::from_u32(letter).unwrap_or(' ')) });
            for json in [to_json(&value), to_pretty_json(&value)] {
                prop_assert!(!json.contains(is_unsafe));
                prop_assert_eq!(&serde_json::from_str::<Value>(&json)?, &value);
            }
            prop_assert!(!to_json(&value).contains('\n'));
        }
    }
}
