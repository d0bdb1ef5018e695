//! `run_tool`: a call that names another tool and carries that one's arguments. It is taken off once, before anything
//! else looks at the call, so that rules, pending.json and duplicates know the tool that runs.
//!
//! It is taken off by its name alone, whatever is offered now: what a conversation holds keeps its meaning.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::arguments::{self, kind, parse_value};
use crate::session::record::ToolCall;
use crate::tool::Refusal;
use crate::tool::deferral::RUN_TOOL;

/// The tool that a call is about, and the arguments meant for it.
pub fn unwrap(name: &str, object: Map<String, Value>) -> Result<(Cow<'_, str>, Map<String, Value>), Refusal> {
    if name != RUN_TOOL {
        return Ok((Cow::Borrowed(name), object));
    }
    let mut object = object;
    let (name, arguments) = (object.remove("name"), object.remove("arguments"));
    let name = match name {
        Some(Value::String(name)) if name == RUN_TOOL => {
            return Err(invalid("run_tool cannot run itself; `name` is the tool that is to run".to_owned()));
        }
        Some(Value::String(name)) => name,
        Some(other) => {
            return Err(invalid(format!("`name` must be the tool's name, a string; it is {}", kind(&other))));
        }
        None => return Err(invalid("`name`, the tool that is to run, is missing".to_owned())),
    };
    if let Some(beside) = object.keys().next() {
        return Err(invalid(format!(
            "`{beside}` stands beside `name` and `arguments`; what is meant for {name} goes into `arguments`"
        )));
    }
    Ok((Cow::Owned(name), inner_arguments(arguments)?))
}

/// An object, or JSON text of one, decoded once.
fn inner_arguments(arguments: Option<Value>) -> Result<Map<String, Value>, Refusal> {
    let value = match arguments {
        None => return Ok(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(Map::new()),
        Some(Value::String(text)) => parse_value(&text).map_err(|error| {
            invalid(format!("`arguments` must be a JSON object; it is a text that is no JSON: {error}"))
        })?,
        Some(value) => value,
    };
    match value {
        Value::Object(object) => Ok(object),
        other => Err(invalid(format!("`arguments` must be a JSON object; it is {}", kind(&other)))),
    }
}

/// The tool that a recorded call is about; `run_tool` itself where it names none.
pub fn tool_name(call: &ToolCall) -> Cow<'_, str> {
    if call.name != RUN_TOOL {
        return Cow::Borrowed(&call.name);
    }
    tool_arguments(call).map_or(Cow::Borrowed(&call.name), |(name, _)| name)
}

/// The same with the arguments; `None` where they cannot be read.
pub fn tool_arguments(call: &ToolCall) -> Option<(Cow<'_, str>, Map<String, Value>)> {
    unwrap(&call.name, arguments::parse(&call.arguments).ok()?).ok()
}

fn invalid(message: String) -> Refusal {
    Refusal::new("invalid_arguments", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unwrapped(arguments: Value) -> Result<(String, Value), String> {
        let Value::Object(object) = arguments else { panic!("no object") };
        match unwrap(RUN_TOOL, object) {
            Ok((name, arguments)) => Ok((name.into_owned(), Value::Object(arguments))),
            Err(refusal) => {
                assert_eq!(refusal.code, "invalid_arguments");
                Err(refusal.message)
            }
        }
    }

    #[test]
    fn the_inner_call_is_read_in_every_form_a_model_sends_it() {
        for (arguments, name, expected) in [
            (json!({"name": "a", "arguments": {"x": 1}}), "a", json!({"x": 1})),
            (
                json!({"arguments": {"name": "b", "arguments": {}}, "name": "a"}),
                "a",
                json!({"name": "b", "arguments": {}}),
            ),
            (json!({"name": "a"}), "a", json!({})),
            (json!({"name": "a", "arguments": ""}), "a", json!({})),
            (json!({"name": "a", "arguments": "{\"x\":\"{}\"}"}), "a", json!({"x": "{}"})),
            (json!({"name": ""}), "", json!({})),
        ] {
            assert_eq!(unwrapped(arguments.clone()), Ok((name.to_owned(), expected)), "{arguments}");
        }
    }

    #[test]
    fn what_is_no_inner_call_is_refused_in_words() {
        for (arguments, expected) in [
            (json!({}), "`name`, the tool that is to run, is missing"),
            (json!({"name": 7}), "`name` must be the tool's name, a string; it is a number"),
            (json!({"name": "run_tool"}), "run_tool cannot run itself"),
            (
                json!({"name": "a", "path": "x"}),
                "`path` stands beside `name` and `arguments`; what is meant for a goes",
            ),
            (json!({"name": "a", "arguments": null}), "`arguments` must be a JSON object; it is null"),
            (json!({"name": "a", "arguments": []}), "`arguments` must be a JSON object; it is an array"),
            (json!({"name": "a", "arguments": "\"{}\""}), "`arguments` must be a JSON object; it is a string"),
            (json!({"name": "a", "arguments": "{\"x\":1,\"x\":2}"}), "stands twice in one object"),
            (json!({"name": "a", "arguments": "x"}), "it is a text that is no JSON"),
        ] {
            let message = unwrapped(arguments.clone()).expect_err("it is no inner call");
            assert!(message.contains(expected), "{arguments}: {message}");
        }
    }

    #[test]
    fn every_other_call_is_left_as_it_is() {
        let call = |name: &str, arguments: &str| ToolCall {
            id: "c".to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            opaque: None,
        };
        for (name, arguments, expected) in [
            ("read", r#"{"name":"a"}"#, "read"),
            ("run_tool", r#"{"name":"a"}"#, "a"),
            ("run_tool", r#""{\"name\":\"a\"}""#, "a"),
            ("run_tool", "{", "run_tool"),
            ("run_tool", "{}", "run_tool"),
            ("run_tool", r#"{"name":"run_tool","arguments":{"name":"a"}}"#, "run_tool"),
        ] {
            assert_eq!(tool_name(&call(name, arguments)), expected, "{arguments}");
        }
        let object = json!({"name": "a", "arguments": {}}).as_object().cloned().unwrap();
        assert_eq!(unwrap("read", object.clone()).unwrap(), (Cow::Borrowed("read"), object));
    }
}
