//! Fan-out: the envelope that lets one call carry several operations. Advertise, split, fold; pure functions.
//!
//! The tool itself knows nothing of it. Who may run what, and when, is decided for each operation by the other stages.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::arguments::{kind, parse_value};
use super::validation::Schema;
use super::{coercion, unwrapped};
use crate::session::record::{ResultStatus, ToolCall};
use crate::tool::Refusal;

/// The envelope's one key.
pub const OPERATIONS: &str = "ops";

/// How deep a schema's references and branches are followed for an `ops` of its own.
const DECLARATION_DEPTH_MAX: usize = 16;

const SENTENCE: &str = "Put every operation that you already know into one call: `ops` takes several, each with its own \
                        arguments, and each gets its own result.";

/// The keywords that a reference can lead to; they move to the envelope's root.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The description of a tool that takes several operations.
pub fn description(own: &str) -> String {
    let own = own.trim_end();
    if own.is_empty() { SENTENCE.to_owned() } else { format!("{own}\n\n{SENTENCE}") }
}

/// The schema of the envelope around a tool, as services are told of it: its operations are `advertised`. The error
/// says why there can be none; `own`, by which they are validated, is looked at as well.
pub fn envelope(own: &Value, advertised: &Value) -> Result<Value, String> {
    let whole = find_reference(own, &|reference| reference == "#");
    let led_astray = whole.or_else(|| find_reference(advertised, &|reference| !is_movable(reference)));
    if let Some(reference) = led_astray {
        return Err(format!("its schema refers to {reference}, which is another place under the envelope"));
    }
    let mut item = advertised.clone();
    let mut definitions = Map::new();
    if let Some(object) = item.as_object_mut() {
        for keyword in DEFINITIONS {
            if let Some(moved) = object.remove(keyword) {
                definitions.insert(keyword.to_owned(), moved);
            }
        }
        // Below the root they would begin a schema of its own, from which references find no definitions any more.
        for keyword in ["$schema", "$id", "id"] {
            object.remove(keyword);
        }
    }
    let mut schema = json!({
        "type": "object",
        "properties": {OPERATIONS: {"type": "array", "minItems": 1, "items": item}},
        "required": [OPERATIONS],
        "additionalProperties": false,
    });
    if let Some(object) = schema.as_object_mut() {
        object.extend(definitions);
    }
    Ok(schema)
}

/// References to the definitions move with them; those to no place in the schema never led there.
fn is_movable(reference: &str) -> bool {
    !reference.starts_with('#')
        || DEFINITIONS.iter().any(|keyword| {
            reference
                .strip_prefix("#/")
                .is_some_and(|rest| rest.strip_prefix(keyword).is_some_and(|rest| rest.starts_with('/')))
        })
}

fn find_reference(schema: &Value, wanted: &impl Fn(&str) -> bool) -> Option<String> {
    match schema {
        Value::Object(object) => object.iter().find_map(|(keyword, value)| match (keyword.as_str(), value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) if wanted(reference) => {
                Some(reference.clone())
            }
            // What is named here is a schema, whatever its name.
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(named),
            ) => named.values().find_map(|schema| find_reference(schema, wanted)),
            // These are data.
            ("const" | "enum" | "default" | "examples" | "example" | "required", _) => None,
            _ => find_reference(value, wanted),
        }),
        Value::Array(values) => values.iter().find_map(|value| find_reference(value, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// What a call of a tool that takes several operations turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// An ordinary call: its arguments are the tool's own.
    Bare(Value),
    /// The arguments of each operation, in the order written; at least one.
    Envelope(Vec<Value>),
}

/// Splits a call. `own` is the tool's own schema, `compiled` the same, compiled.
pub fn split(
    arguments: Map<String, Value>,
    own: &Value,
    compiled: &Schema,
    operations_max: u64,
) -> Result<Shape, Refusal> {
    if declares_operations(own) {
        return split_by_fit(arguments, own, compiled, operations_max);
    }
    let Some(operations) = arguments.get(OPERATIONS) else { return Ok(Shape::Bare(Value::Object(arguments))) };
    if let Some(beside) = arguments.keys().find(|name| *name != OPERATIONS) {
        return Err(invalid(format!(
            "`{beside}` stands beside `{OPERATIONS}`; put everything into the operations, nothing beside them"
        )));
    }
    let operations = decode_array(operations).ok_or_else(|| {
        invalid(format!("`{OPERATIONS}` must be a non-empty array of objects; it is {}", kind(operations)))
    })?;
    if operations.is_empty() {
        return Err(invalid(format!("`{OPERATIONS}` is empty; it takes at least one operation")));
    }
    ensure_few(&operations, operations_max)?;
    let decoded = operations.into_iter().enumerate().map(|(index, operation)| {
        decode_object(&operation)
            .ok_or_else(|| invalid(format!("operation {} must be an object; it is {}", index + 1, kind(&operation))))
    });
    decoded.collect::<Result<Vec<Value>, Refusal>>().map(Shape::Envelope)
}

/// How many operations a call carries whose operations are recorded one by one: the length of its envelope. Such a call
/// was split, so its arguments are an envelope.
pub fn operation_count(call: &ToolCall) -> Option<usize> {
    let (_, object) = unwrapped::tool_arguments(call)?;
    decode_array(object.get(OPERATIONS)?).map(|operations| operations.len())
}

fn ensure_few(operations: &[Value], operations_max: u64) -> Result<(), Refusal> {
    if operations.len() as u64 <= operations_max {
        return Ok(());
    }
    Err(invalid(format!(
        "`{OPERATIONS}` holds {} operations, and one call may carry {operations_max}; split it",
        operations.len()
    )))
}

/// Whether an argument of the tool itself is called `ops`, wherever its schema says so.
fn declares_operations(own: &Value) -> bool {
    declares(own, own, 0)
}

fn declares(root: &Value, schema: &Value, depth: usize) -> bool {
    const BRANCHES: [&str; 3] = ["allOf", "anyOf", "oneOf"];
    if depth > DECLARATION_DEPTH_MAX {
        return false;
    }
    let has_property = schema.get("properties").is_some_and(|properties| properties.get(OPERATIONS).is_some());
    let required = schema.get("required").and_then(Value::as_array);
    if has_property || required.is_some_and(|names| names.iter().any(|name| name == OPERATIONS)) {
        return true;
    }
    let reference = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    let referred = reference.and_then(|pointer| root.pointer(pointer));
    let branches = BRANCHES.iter().filter_map(|keyword| schema.get(keyword).and_then(Value::as_array)).flatten();
    let conditional = ["if", "then", "else"].iter().filter_map(|keyword| schema.get(keyword));
    referred.into_iter().chain(branches).chain(conditional).any(|schema| declares(root, schema, depth + 1))
}

/// A tool with an `ops` of its own: an envelope only where every element is a whole call of the tool.
fn split_by_fit(
    arguments: Map<String, Value>,
    own: &Value,
    compiled: &Schema,
    operations_max: u64,
) -> Result<Shape, Refusal> {
    let elements = match arguments.get(OPERATIONS) {
        Some(Value::Array(elements)) if arguments.len() == 1 && !elements.is_empty() => elements,
        _ => return Ok(Shape::Bare(Value::Object(arguments))),
    };
    let fits = |element: &Value| {
        let mut copy = element.clone();
        coercion::apply(&mut copy, own);
        element.is_object() && compiled.check_violations(&copy).is_empty()
    };
    if !elements.iter().all(fits) {
        return Ok(Shape::Bare(Value::Object(arguments)));
    }
    // It is an envelope, if one that is too long: to run it as something else would be another call.
    ensure_few(elements, operations_max)?;
    Ok(Shape::Envelope(elements.clone()))
}

fn decode_array(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(elements) => Some(elements.clone()),
        Value::String(text) => match parse_value(text).ok()? {
            Value::Array(elements) => Some(elements),
            _ => None,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn decode_object(value: &Value) -> Option<Value> {
    match value {
        Value::Object(_) => Some(value.clone()),
        Value::String(text) => parse_value(text).ok().filter(Value::is_object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

fn invalid(message: String) -> Refusal {
    Refusal::new("invalid_arguments", message)
}

/// Whether an operation that came to this counts as failed. What was cancelled did not fail, nor was it begun.
pub fn is_failure(status: ResultStatus) -> bool {
    match status {
        ResultStatus::Error | ResultStatus::Denied | ResultStatus::Unknown => true,
        ResultStatus::Ok | ResultStatus::Cancelled | ResultStatus::NotRun => false,
    }
}

/// The result of one operation, as the fold needs it.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub status: ResultStatus,
    pub content: &'a str,
    /// For an operation that was not run: the one whose failure stopped it.
    pub stopped_by: Option<u32>,
}

/// The call's own status and content, from the results of its operations in the order written. One operation's result
/// stands bare.
pub fn fold(parts: &[Part<'_>]) -> (ResultStatus, String) {
    if let [only] = parts {
        return (only.status, only.content.to_owned());
    }
    let count = parts.len();
    let mut text = String::new();
    let mut frame_before = false;
    for (index, part) in parts.iter().enumerate() {
        let number = index + 1;
        if index > 0 {
            let both_short = frame_before && part.status == ResultStatus::NotRun;
            text.push_str(if both_short { "\n" } else { "\n\n" });
        }
        frame_before = part.status == ResultStatus::NotRun;
        // Writing to a string cannot fail.
        let _ = match (part.status, part.stopped_by) {
            (ResultStatus::NotRun, Some(by)) => {
                write!(text, "[{number}/{count}] not run (stopped after operation {by} failed)")
            }
            (ResultStatus::NotRun, None) => write!(text, "[{number}/{count}] not run"),
            (status, _) => write!(text, "[{number}/{count}] {}\n{}", word(status), guarded(part.content)),
        };
    }
    (folded_status(parts), text)
}

/// The word of a frame.
pub fn word(status: ResultStatus) -> &'static str {
    match status {
        ResultStatus::Ok => "ok",
        ResultStatus::Error => "error",
        ResultStatus::Denied => "denied",
        ResultStatus::Cancelled => "cancelled",
        ResultStatus::Unknown => "unknown",
        ResultStatus::NotRun => "not run",
    }
}

/// Ok if any operation is, else the gravest of what occurs.
fn folded_status(parts: &[Part<'_>]) -> ResultStatus {
    let order =
        [ResultStatus::Ok, ResultStatus::Unknown, ResultStatus::Error, ResultStatus::Denied, ResultStatus::Cancelled];
    let occurs = |status: &ResultStatus| parts.iter().any(|part| part.status == *status);
    order.into_iter().find(occurs).unwrap_or(ResultStatus::Cancelled)
}

/// The content with every line that could be taken for a frame indented by a space.
fn guarded(content: &str) -> String {
    let content = content.trim_end_matches('\n');
    let mut text = String::with_capacity(content.len());
    for line in content.split_inclusive(ENDS_LINE) {
        if looks_like_frame(line) {
            text.push(' ');
        }
        text.push_str(line);
    }
    text
}

/// By how many bytes a content grows in the fold.
pub fn indented_bytes(content: &str) -> usize {
    content.split_inclusive(ENDS_LINE).filter(|line| looks_like_frame(line)).count()
}

/// The shortest line that could be taken for a frame: `[1/2]`.
pub const FRAME_LIKE_BYTES_MIN: usize = 5;

/// Whatever begins a new line for some reader.
const ENDS_LINE: [char; 7] = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];

/// `[2/5] ...`, however many digits.
fn looks_like_frame(line: &str) -> bool {
    let Some((inside, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return false };
    let Some((number, count)) = inside.split_once('/') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(number) && digits(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Value {
        json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
            "required": ["path"],
            "additionalProperties": false,
        })
    }

    fn split_text(text: &str, own: &Value) -> Result<Shape, String> {
        let Value::Object(arguments) = serde_json::from_str(text).unwrap() else { panic!("{text}") };
        let compiled = Schema::compile(own).unwrap();
        split(arguments, own, &compiled, 3).map_err(|refusal| refusal.message)
    }

    #[test]
    fn an_envelope_is_split_and_a_bare_call_is_not() {
        let own = own();
        for (text, expected) in [
            (r#"{"path":"a"}"#, Shape::Bare(json!({"path": "a"}))),
            (r#"{"ops":[{"path":"a"}]}"#, Shape::Envelope(vec![json!({"path": "a"})])),
            (r#"{"ops":[{"path":"a"},{}]}"#, Shape::Envelope(vec![json!({"path": "a"}), json!({})])),
            (r#"{"ops":"[{\"path\":\"a\"}]"}"#, Shape::Envelope(vec![json!({"path": "a"})])),
            (r#"{"ops":["{\"path\":\"a\"}"]}"#, Shape::Envelope(vec![json!({"path": "a"})])),
        ] {
            assert_eq!(split_text(text, &own), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_broken_envelope_is_one_error_that_names_the_operation() {
        let own = own();
        for (text, expected) in [
            (
                r#"{"ops":[{"path":"a"}],"path":"b"}"#,
                "`path` stands beside `ops`; put everything into the operations, nothing beside them",
            ),
            (r#"{"ops":null}"#, "`ops` must be a non-empty array of objects; it is null"),
            (r#"{"ops":{}}"#, "`ops` must be a non-empty array of objects; it is an object"),
            (r#"{"ops":"x"}"#, "`ops` must be a non-empty array of objects; it is a string"),
            (r#"{"ops":[]}"#, "`ops` is empty; it takes at least one operation"),
            (r#"{"ops":[{"path":"a"},7]}"#, "operation 2 must be an object; it is a number"),
            (r#"{"ops":["[]"]}"#, "operation 1 must be an object; it is a string"),
            (r#"{"ops":[{},{},{},{}]}"#, "`ops` holds 4 operations, and one call may carry 3; split it"),
        ] {
            assert_eq!(split_text(text, &own), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_tool_with_its_own_ops_is_split_only_where_every_element_is_a_call() {
        let own = json!({
            "type": "object",
            "properties": {"ops": {"type": "array", "items": {"type": "object"}}, "n": {"type": "integer"}},
            "required": ["ops"],
        });
        let whole = json!({"ops": [{"ops": []}, {"ops": [], "n": "1"}]});
        let elements = vec![json!({"ops": []}), json!({"ops": [], "n": "1"})];
        for (text, expected) in [
            (whole.to_string(), Shape::Envelope(elements)),
            (r#"{"ops":[{"x":1}]}"#.to_owned(), Shape::Bare(json!({"ops": [{"x": 1}]}))),
            (r#"{"ops":[]}"#.to_owned(), Shape::Bare(json!({"ops": []}))),
            (r#"{"ops":[{"ops":[]}],"n":1}"#.to_owned(), Shape::Bare(json!({"ops": [{"ops": []}], "n": 1}))),
            (r#"{"ops":[{"ops":[]},7]}"#.to_owned(), Shape::Bare(json!({"ops": [{"ops": []}, 7]}))),
        ] {
            assert_eq!(split_text(&text, &own), Ok(expected), "{text}");
        }
        let many = json!({"ops": [{"ops": []}, {"ops": []}, {"ops": []}, {"ops": []}]}).to_string();
        let expected = "`ops` holds 4 operations, and one call may carry 3; split it";
        assert_eq!(split_text(&many, &own), Err(expected.to_owned()));
    }

    #[test]
    fn the_envelope_carries_the_definitions_and_refuses_what_would_lead_astray() {
        let own = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#/definitions/b"}},
            "$defs": {"a": {"type": "string"}},
            "definitions": {"b": {"type": "integer"}},
        });
        let expected = json!({
            "type": "object",
            "properties": {"ops": {"type": "array", "minItems": 1, "items": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#/definitions/b"}},
            }}},
            "required": ["ops"],
            "additionalProperties": false,
            "$defs": {"a": {"type": "string"}},
            "definitions": {"b": {"type": "integer"}},
        });
        assert_eq!(envelope(&own, &own), Ok(expected));
        for reference in ["#", "#/properties/a", "#/$defsx/a", "#anchor"] {
            let own = json!({"type": "object", "properties": {"a": {"$ref": reference}}});
            assert!(envelope(&own, &own).unwrap_err().contains(reference), "{reference}");
        }
        let named = json!({"properties": {"default": {"items": {"$ref": "#"}}}});
        assert!(envelope(&named, &named).is_err(), "a property may have any name");
        let data = json!({"properties": {"a": {"default": {"$ref": "#"}, "enum": [{"$ref": "#"}]}}});
        assert!(envelope(&data, &data).is_ok(), "data refers to nothing");
    }

    /// What services are told may be another schema than the one that arguments are validated against.
    #[test]
    fn the_envelope_is_made_of_what_is_advertised() {
        let advertised = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let own =
            json!({"anyOf": [{"properties": {"a": {"$ref": "#/anyOf/1/properties/b"}}}, {"properties": {"b": {}}}]});
        assert_eq!(envelope(&own, &advertised).unwrap()["properties"][OPERATIONS]["items"], advertised);
        let recursive = json!({"type": "object", "properties": {"a": {"$ref": "#"}}});
        assert!(envelope(&recursive, &advertised).unwrap_err().contains("refers to #,"));
    }

    #[test]
    fn an_own_ops_is_found_wherever_the_schema_declares_it() {
        let ops = json!({"properties": {"ops": {"type": "array"}}});
        for (own, expected) in [
            (ops.clone(), true),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": ops}}), true),
            (json!({"anyOf": [{"properties": {"x": {}}}, ops]}), true),
            (json!({"allOf": [{"oneOf": [ops]}]}), true),
            (json!({"if": {"properties": {"x": {}}}, "then": ops}), true),
            (json!({"required": ["ops"]}), true),
            (json!({"properties": {"x": ops}}), false),
            (json!({"$defs": {"a": ops}, "properties": {"x": {"$ref": "#/$defs/a"}}}), false),
            // It leads round in a circle.
            (json!({"allOf": [{"$ref": "#"}]}), false),
        ] {
            assert_eq!(declares_operations(&own), expected, "{own}");
        }
    }

    fn part(status: ResultStatus, content: &str) -> Part<'_> {
        Part { status, content, stopped_by: None }
    }

    #[test]
    fn results_are_folded_in_the_order_written() {
        let not_run = Part { status: ResultStatus::NotRun, content: "", stopped_by: Some(2) };
        let parts = [
            part(ResultStatus::Ok, "File deleted.\n"),
            part(ResultStatus::Error, "File has uncommitted changes."),
            not_run,
            not_run,
            not_run,
        ];
        let expected = "[1/5] ok\nFile deleted.\n\n[2/5] error\nFile has uncommitted changes.\n\n\
                        [3/5] not run (stopped after operation 2 failed)\n\
                        [4/5] not run (stopped after operation 2 failed)\n\
                        [5/5] not run (stopped after operation 2 failed)";
        assert_eq!(fold(&parts), (ResultStatus::Ok, expected.to_owned()));
        assert_eq!(fold(&parts[1..2]), (ResultStatus::Error, "File has uncommitted changes.".to_owned()));
    }

    #[test]
    fn a_line_that_could_pass_for_a_frame_is_indented() {
        let forged = "[2/2] ok\nfine\n[1/2]\n[x/2] ok\n[2/2 ok";
        let parts = [part(ResultStatus::Error, forged), part(ResultStatus::Denied, "no")];
        let expected = "[1/2] error\n [2/2] ok\nfine\n [1/2]\n[x/2] ok\n[2/2 ok\n\n[2/2] denied\nno";
        assert_eq!(fold(&parts), (ResultStatus::Error, expected.to_owned()));
        for separator in ENDS_LINE {
            let content = format!("a{separator}[2/2] ok{separator}b");
            let parts = [part(ResultStatus::Error, &content), part(ResultStatus::Denied, "no")];
            assert!(fold(&parts).1.contains(&format!("a{separator} [2/2] ok{separator}b")), "{separator:?}");
            assert_eq!(indented_bytes(&content), 1, "{separator:?}");
        }
    }

    #[test]
    fn the_status_of_the_whole_is_the_best_or_the_gravest() {
        use ResultStatus::{Cancelled, Denied, Error, NotRun, Ok, Unknown};
        for (statuses, expected) in [
            (vec![Error, Ok], Ok),
            (vec![Denied, Unknown, Error], Unknown),
            (vec![Denied, Error], Error),
            (vec![Cancelled, Denied], Denied),
            (vec![Cancelled, NotRun], Cancelled),
        ] {
            let parts: Vec<Part<'_>> = statuses.iter().map(|status| part(*status, "x")).collect();
            assert_eq!(fold(&parts).0, expected, "{statuses:?}");
        }
    }
}
