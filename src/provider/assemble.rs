//! Puts tool calls together from the pieces of a stream, however a service numbers, names or repeats them.
//!
//! What was sent is kept as it is; whether the arguments are valid is judged elsewhere.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::cut;
use crate::session::record::ToolCall;

/// Most calls of one reply: each is kept, and each has its result. Far above what a turn's own limit lets run.
pub const CALLS_MAX: usize = 16 * 1024;
/// What is kept of a name.
pub const NAME_BYTES_MAX: usize = 1024;

/// Fields of a call that are understood. All others go back: their service may want them.
const CALL_FIELDS_KNOWN: [&str; 6] = ["index", "id", "type", "function", "name", "arguments"];
/// Most fields that are kept of a call.
const FIELDS_KEPT_MAX: usize = 64;

/// One piece of a call. Absent and empty texts are the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Piece<'a> {
    pub index: Option<u64>,
    pub id: &'a str,
    pub name: &'a str,
    pub arguments: &'a str,
    /// The object that the piece was read from, for the fields that are kept.
    pub source: Option<&'a Map<String, Value>>,
}

/// The reply asks for more calls than are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

#[derive(Debug, Default)]
pub struct Calls {
    open: Vec<Open>,
    /// The position in `open` of the call last opened under an index.
    by_index: BTreeMap<u64, usize>,
    /// The position of the call that was last opened or added to.
    last: Option<usize>,
    deltas: u64,
}

#[derive(Debug, Default)]
struct Open {
    call: ToolCallParts,
    nesting: Nesting,
    /// The delta that last added to it.
    delta: u64,
}

#[derive(Debug, Default)]
struct ToolCallParts {
    id: String,
    name: String,
    arguments: String,
    kept: Map<String, Value>,
}

impl Calls {
    /// A new message begins: pieces that stand beside each other in one message without an index are different calls.
    pub fn begin_delta(&mut self) {
        self.deltas += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Reads an element of a `tool_calls` array.
    pub fn push_value(&mut self, value: &Value) -> Result<(), TooMany> {
        let Some(source) = value.as_object() else { return Ok(()) };
        let function = source.get("function").and_then(Value::as_object).unwrap_or(source);
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        let id = match source.get("id") {
            Some(Value::Number(number)) => number.to_string(),
            other => text(other).to_owned(),
        };
        let index = source.get("index").and_then(Value::as_u64);
        self.push(Piece {
            index,
            id: &id,
            name: text(function.get("name")),
            arguments: &arguments,
            source: Some(source),
        })
    }

    pub fn push(&mut self, piece: Piece<'_>) -> Result<(), TooMany> {
        if piece.id.is_empty() && piece.name.is_empty() && piece.arguments.is_empty() && piece.index.is_none() {
            return Ok(());
        }
        let position = match self.find(&piece) {
            Some(position) => position,
            None => self.begin_call(piece.index)?,
        };
        self.last = Some(position);
        let open = &mut self.open[position];
        open.delta = self.deltas;
        if open.call.id.is_empty() {
            piece.id.clone_into(&mut open.call.id);
        }
        if open.call.name != piece.name {
            let room = NAME_BYTES_MAX.saturating_sub(open.call.name.len());
            open.call.name.push_str(cut(piece.name, room));
        }
        open.nesting.push(piece.arguments);
        open.call.arguments.push_str(piece.arguments);
        for (key, value) in piece.source.into_iter().flatten() {
            let is_kept = open.call.kept.len() < FIELDS_KEPT_MAX && !CALL_FIELDS_KNOWN.contains(&key.as_str());
            if is_kept && !value.is_null() {
                open.call.kept.insert(key.clone(), value.clone());
            }
        }
        Ok(())
    }

    pub fn finish(self) -> Vec<ToolCall> {
        self.open
            .into_iter()
            .map(|Open { call, .. }| ToolCall {
                id: call.id,
                name: call.name,
                arguments: call.arguments,
                opaque: if call.kept.is_empty() { None } else { Some(Value::Object(call.kept)) },
            })
            .collect()
    }

    /// The call that the piece continues; `None` if it opens one.
    fn find(&self, piece: &Piece<'_>) -> Option<usize> {
        let position = match piece.index {
            Some(index) => *self.by_index.get(&index)?,
            None if !piece.id.is_empty() => self.find_by_id(piece.id)?,
            None => self.last?,
        };
        let open = &self.open[position];
        let names_it = !piece.id.is_empty() || !piece.name.is_empty();
        let other_id = !piece.id.is_empty() && !open.call.id.is_empty() && piece.id != open.call.id;
        // A name may come in pieces under an index, but not once arguments have begun.
        let other_name = !piece.name.is_empty()
            && !open.call.name.is_empty()
            && piece.name != open.call.name
            && (piece.index.is_none() || !open.call.arguments.is_empty());
        // An object that is closed cannot go on: what names itself and brings arguments is another call.
        let is_closed = open.nesting.is_closed() && names_it && !piece.arguments.trim().is_empty();
        let beside = piece.index.is_none() && !piece.name.is_empty() && open.delta == self.deltas;
        let opens = other_id || other_name || is_closed || beside;
        (!opens).then_some(position)
    }

    /// Without an index, the call with that id; or the last one, if it has no id yet and so may be given this one.
    fn find_by_id(&self, id: &str) -> Option<usize> {
        self.open
            .iter()
            .rposition(|open| open.call.id == id)
            .or_else(|| self.last.filter(|last| self.open[*last].call.id.is_empty()))
    }

    fn begin_call(&mut self, index: Option<u64>) -> Result<usize, TooMany> {
        let position = self.open.len();
        if position == CALLS_MAX {
            return Err(TooMany);
        }
        // A delta number that no message has: the call was not added to yet.
        self.open.push(Open { delta: u64::MAX, ..Open::default() });
        if let Some(index) = index {
            self.by_index.insert(index, position);
        }
        Ok(position)
    }
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ObjectState {
    #[default]
    Open,
    Closed,
    /// It does not begin with an object, or goes on behind it.
    NoObject,
}

/// Tells when a text that comes in pieces has closed the object that it began with.
#[derive(Debug, Default)]
struct Nesting {
    depth: u64,
    in_string: bool,
    after_backslash: bool,
    state: ObjectState,
}

impl Nesting {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            self.push_byte(byte);
        }
    }

    fn push_byte(&mut self, byte: u8) {
        if self.in_string {
            if self.after_backslash {
                self.after_backslash = false;
            } else if byte == b'\\' {
                self.after_backslash = true;
            } else if byte == b'"' {
                self.in_string = false;
            }
            return;
        }
        if byte.is_ascii_whitespace() {
            return;
        }
        if self.state == ObjectState::Closed || (self.depth == 0 && byte != b'{') {
            self.state = ObjectState::NoObject;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 && self.state == ObjectState::Open {
                    self.state = ObjectState::Closed;
                }
            }
            _ => {}
        }
    }

    fn is_closed(&self) -> bool {
        self.state == ObjectState::Closed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A name, the messages, and the calls (id, name, arguments) that come of them.
    type Case = (&'static str, Value, &'static [(&'static str, &'static str, &'static str)]);

    /// Each inner array is the `tool_calls` of one message.
    fn assemble(messages: &Value) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for message in messages.as_array().unwrap() {
            calls.begin_delta();
            for value in message.as_array().unwrap() {
                calls.push_value(value).unwrap();
            }
        }
        calls.finish().into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
    }

    fn full(index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: &Value) -> Value {
        let mut call = json!({"type": "function", "function": {"arguments": arguments}});
        if let Some(index) = index {
            call["index"] = json!(index);
        }
        if let Some(id) = id {
            call["id"] = json!(id);
        }
        if let Some(name) = name {
            call["function"]["name"] = json!(name);
        }
        call
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn every_oddity_is_assembled() {
        let piece = |index, id, name, arguments: &str| full(index, id, name, &json!(arguments));
        let cases: Vec<Case> = vec![
            (
                "as documented, two at a time",
                json!([
                    [piece(Some(0), Some("a"), Some("read"), "")],
                    [piece(Some(0), None, None, "{\"p\"")],
                    [piece(Some(1), Some("b"), Some("list"), "")],
                    [piece(Some(0), None, None, ":1}"), piece(Some(1), None, None, "{}")],
                ]),
                &[("a", "read", "{\"p\":1}"), ("b", "list", "{}")],
            ),
            (
                "no index, ids",
                json!([
                    [piece(None, Some("a"), Some("read"), "{\"p\"")],
                    [piece(None, None, None, ":1}")],
                    [piece(None, Some("b"), Some("read"), "{\"p\":2}")],
                ]),
                &[("a", "read", "{\"p\":1}"), ("b", "read", "{\"p\":2}")],
            ),
            (
                "no index, id repeated in each piece",
                json!([
                    [piece(None, Some("a"), Some("read"), "{\"p\"")],
                    [piece(None, Some("b"), Some("list"), "{")],
                    [piece(None, Some("a"), Some("read"), ":1}")],
                    [piece(None, Some("b"), Some("list"), "}")],
                ]),
                &[("a", "read", "{\"p\":1}"), ("b", "list", "{}")],
            ),
            (
                "no index, no ids, a new name",
                json!([
                    [piece(None, None, Some("read"), "{\"p\"")],
                    [piece(None, None, None, ":1}")],
                    [piece(None, None, Some("list"), "{}")],
                ]),
                &[("", "read", "{\"p\":1}"), ("", "list", "{}")],
            ),
            (
                "no index, no ids, the same name, whole",
                json!([[piece(None, None, Some("read"), "{\"p\":1}"), piece(None, None, Some("read"), "{\"p\":2}")]]),
                &[("", "read", "{\"p\":1}"), ("", "read", "{\"p\":2}")],
            ),
            (
                "no index, no ids, the same name, no arguments",
                json!([[piece(None, None, Some("list"), ""), piece(None, None, Some("list"), "")]]),
                &[("", "list", ""), ("", "list", "")],
            ),
            (
                "all under index 0, ids tell them apart",
                json!([
                    [piece(Some(0), Some("a"), Some("read"), "{\"p\":1}")],
                    [piece(Some(0), Some("b"), Some("read"), "{\"p\"")],
                    [piece(Some(0), None, None, ":2}")],
                ]),
                &[("a", "read", "{\"p\":1}"), ("b", "read", "{\"p\":2}")],
            ),
            (
                "all under index 0, no ids",
                json!([
                    [piece(Some(0), Some(""), Some("read"), "{\"p\":1}")],
                    [piece(Some(0), Some(""), Some("read"), "{\"p\":2}")],
                    [piece(Some(0), Some(""), Some("list"), "{}")],
                ]),
                &[("", "read", "{\"p\":1}"), ("", "read", "{\"p\":2}"), ("", "list", "{}")],
            ),
            (
                "a full name repeated",
                json!([
                    [piece(Some(0), Some("a"), Some("read"), "")],
                    [piece(Some(0), Some("a"), Some("read"), "{\"p\":")],
                    [piece(Some(0), Some("a"), Some("read"), "1}")],
                ]),
                &[("a", "read", "{\"p\":1}")],
            ),
            (
                "a name in pieces",
                json!([
                    [piece(Some(0), Some("a"), Some("find_"), "")],
                    [piece(Some(0), None, Some("tools"), "")],
                    [piece(Some(0), None, None, "{}")],
                ]),
                &[("a", "find_tools", "{}")],
            ),
            (
                "ids that become empty, null or come late",
                json!([
                    [piece(Some(0), Some("a"), Some("read"), "")],
                    [piece(Some(0), Some(""), Some(""), "{}")],
                    [piece(Some(1), None, Some("list"), "")],
                    [piece(Some(1), Some("b"), None, "{}")],
                    [json!({"index": 1, "id": null, "function": {"name": null, "arguments": null}})],
                ]),
                &[("a", "read", "{}"), ("b", "list", "{}")],
            ),
            (
                "an object in place of a string",
                json!([[full(Some(0), Some("a"), Some("read"), &json!({"p": {"q": "}"}}))]]),
                &[("a", "read", "{\"p\":{\"q\":\"}\"}}")],
            ),
            (
                "indexes that do not begin at 0",
                json!([[piece(Some(7), Some("a"), Some("read"), "{")], [piece(Some(7), None, None, "}")]]),
                &[("a", "read", "{}")],
            ),
            ("a bare piece with nothing to continue", json!([[piece(None, None, None, "{}")]]), &[("", "", "{}")]),
            ("no call at all", json!([[json!(7), json!({}), json!({"function": null})]]), &[]),
            (
                "function without its wrapper",
                json!([[{"id": "a", "name": "read", "arguments": "{}"}]]),
                &[("a", "read", "{}")],
            ),
        ];
        for (name, messages, expected) in cases {
            let expected: Vec<_> = expected
                .iter()
                .map(|(id, name, arguments)| ((*id).to_owned(), (*name).to_owned(), (*arguments).to_owned()))
                .collect();
            assert_eq!(assemble(&messages), expected, "{name}");
        }
    }

    #[test]
    fn what_the_service_wants_back_is_kept() {
        let mut calls = Calls::default();
        calls.begin_delta();
        let extra = json!({"google": {"thought_signature": "abc"}});
        let value =
            json!({"id": "a", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra, "other": 1});
        calls.push_value(&value).unwrap();
        assert_eq!(calls.finish()[0].opaque, Some(json!({"extra_content": extra, "other": 1})));
    }

    #[test]
    fn calls_and_names_are_bounded() {
        let mut calls = Calls::default();
        for _ in 0..CALLS_MAX {
            calls.begin_delta();
            calls.push(Piece { name: &"é".repeat(NAME_BYTES_MAX), arguments: "{}", ..Piece::default() }).unwrap();
        }
        assert_eq!(calls.push(Piece { id: "x", name: "x", ..Piece::default() }), Err(TooMany));
        assert!(calls.finish().iter().all(|call| call.name.len() == NAME_BYTES_MAX));
    }
}
