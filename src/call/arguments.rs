//! Reading a call's arguments: one JSON object, strictly.
//!
//! `serde_json::Value` keeps the last of two equal keys without a word; a call that says two things is refused instead.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::tool::Refusal;

/// How much of unreadable arguments an error quotes.
const EXCERPT_CHARACTERS_MAX: usize = 200;

/// How deep arguments may be nested. The files that hold them nest them deeper still, and readers of JSON, our own
/// included, stop at 128.
const DEPTH_MAX: usize = 64;

/// Reads what the model sent: empty text is an empty object, an object sent as a JSON string is decoded once.
pub fn parse(text: &str) -> Result<Map<String, Value>, Refusal> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let value = match parse_value(text) {
        Ok(Value::String(inner)) => parse_value(&inner),
        other => other,
    };
    match value {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(unreadable(&format!("they are {}", kind(&other)), text)),
        Err(error) => Err(unreadable(&error, text)),
    }
}

/// Reads JSON, refusing duplicate keys, and numbers that would silently become other ones.
pub fn parse_value(text: &str) -> Result<Value, String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    match numbers(text).find(|number| becomes_another_whole_number(number)) {
        Some(number) => Err(format!("the number {number} has more digits than can be kept")),
        None => Ok(value),
    }
}

/// The numbers of valid JSON, as they are written.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(|letter: char| letter == '"' || letter == '-' || letter.is_ascii_digit())?;
            rest = &rest[start..];
            if let Some(string) = rest.strip_prefix('"') {
                rest = behind_string(string);
                continue;
            }
            let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, '-' | '+' | '.' | 'e' | 'E');
            let end = rest.find(|letter: char| !is_part(letter)).unwrap_or(rest.len());
            let (number, behind) = rest.split_at(end);
            rest = behind;
            return Some(number);
        }
    })
}

/// What follows a string whose opening quote was just read.
fn behind_string(mut rest: &str) -> &str {
    while let Some(at) = rest.find(['"', '\\']) {
        let is_end = rest[at..].starts_with('"');
        let mut behind = rest[at + 1..].chars();
        if is_end {
            return behind.as_str();
        }
        behind.next();
        rest = behind.as_str();
    }
    ""
}

/// Whether a number, as it is written, is not the whole number that a double makes of it. What a double rounds
/// otherwise stays a fraction, or is too large to be taken for a whole number at all.
fn becomes_another_whole_number(written: &str) -> bool {
    if !written.contains(['.', 'e', 'E']) {
        return false;
    }
    let Some(double) = written.parse::<f64>().ok().filter(|double| double.fract() == 0.0) else { return false };
    let (mantissa, exponent) = written.split_once(['e', 'E']).unwrap_or((written, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{}{behind}", before.trim_start_matches('-'));
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return false;
    }
    // Where the point stands among the significant digits.
    let leading = digits.len() - significant.len();
    let point = exponent.parse::<i64>().ok().map(|exponent| exponent.saturating_add(before_point(before, leading)));
    let Some(point) = point.and_then(|point| usize::try_from(point).ok()) else { return true };
    let significant = significant.trim_end_matches('0');
    // All digits behind the point, or digits before it that the double does not have.
    significant.len() > point
        || double.abs() <= WHOLE_MAX && format!("{:.0}", double.abs()) != format!("{significant:0<point$}")
}

/// Up to it every whole number is a double of its own; nothing above it is taken for a whole number.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

fn before_point(before: &str, leading_zeros: usize) -> i64 {
    let digits = before.trim_start_matches('-').len();
    i64::try_from(digits).unwrap_or(i64::MAX) - i64::try_from(leading_zeros).unwrap_or(i64::MAX)
}

/// Refuses arguments that are nested too deep, once all that came as JSON text in them is decoded.
pub fn ensure_shallow(arguments: &Value) -> Result<(), Refusal> {
    if is_at_most(arguments, DEPTH_MAX) {
        return Ok(());
    }
    Err(Refusal::new("invalid_arguments", format!("The arguments are nested deeper than {DEPTH_MAX}.")))
}

/// Whether a value is nested no deeper than that; the reader's own limit bounds the recursion.
fn is_at_most(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(values) => depth > 0 && values.iter().all(|value| is_at_most(value, depth - 1)),
        Value::Object(entries) => depth > 0 && entries.values().all(|value| is_at_most(value, depth - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn unreadable(what: &str, text: &str) -> Refusal {
    let text = crate::mask::apply(text);
    let mut excerpt: String = text.chars().take(EXCERPT_CHARACTERS_MAX).collect();
    let left = text.chars().count().saturating_sub(EXCERPT_CHARACTERS_MAX);
    if left > 0 {
        excerpt = format!("{excerpt} ... ({left} more characters)");
    }
    Refusal::new("invalid_arguments", format!("The arguments must be one JSON object; {what}. They were: {excerpt}"))
}

/// A JSON value's kind with its article, as errors name it.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Builds a [`Value`], refusing duplicate keys.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element_seed(Strict)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Strict)?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} stands twice in one object")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        parse(text).map(|object| Value::Object(object).to_string()).map_err(|refusal| refusal.message)
    }

    #[test]
    fn an_object_is_read_in_every_form_a_model_sends_it() {
        for (text, expected) in [
            ("", "{}"),
            ("  \n", "{}"),
            ("{}", "{}"),
            (r#"{"b":1,"a":[true,null,-2,1.5,"x"]}"#, r#"{"b":1,"a":[true,null,-2,1.5,"x"]}"#),
            (r#""{\"a\":1}""#, r#"{"a":1}"#),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn no_number_silently_becomes_another_whole_one() {
        for number in [
            "10.000000000000000001",
            "1.0000000000000001",
            "-1.0000000000000001",
            "9007199254740993.0",
            "1e-400",
            "100000000000000000001e-19",
        ] {
            let refused = parse_value(&format!("{{\"a\": [\"\\\"1.5\", {number}]}}")).unwrap_err();
            assert_eq!(refused, format!("the number {number} has more digits than can be kept"));
        }
        for number in [
            "1",
            "-0",
            "0.0",
            "10.0",
            "1.50",
            "0.1",
            "1e3",
            "1.5e1",
            "120e-1",
            "9007199254740992.0",
            "1e23",
            "18446744073709551616",
            "0e99999",
            "1.0000000000000002",
        ] {
            assert!(parse_value(number).is_ok(), "{number}");
        }
        assert!(parse_value("\"1.0000000000000001\"").is_ok());
    }

    #[test]
    fn depth_is_bounded() {
        for (brackets, inside) in [(("{\"a\":", "}"), "1"), (("[", "]"), "")] {
            let nested = |depth: usize| format!("{}{inside}{}", brackets.0.repeat(depth), brackets.1.repeat(depth));
            let ensured = |depth: usize| ensure_shallow(&parse_value(&nested(depth)).unwrap());
            assert!(ensured(DEPTH_MAX).is_ok());
            for depth in [DEPTH_MAX + 1, 127] {
                assert_eq!(ensured(depth).unwrap_err().message, "The arguments are nested deeper than 64.");
            }
            // The reader itself stops here.
            assert!(parse_value(&nested(5000)).unwrap_err().contains("recursion limit"));
        }
    }

    #[test]
    fn everything_else_is_refused_with_an_excerpt() {
        for (text, expected) in [
            ("[1]", "they are an array. They were: [1]"),
            ("null", "they are null. They were: null"),
            (r#""\"{}\"""#, r#"they are a string. They were: "\"{}\"""#),
            (
                r#"{"a":1,"a":2}"#,
                r#"the key "a" stands twice in one object at line 1 column 13. They were: {"a":1,"a":2}"#,
            ),
            (r#"{"a":{"b":1,"b":1}}"#, r#"the key "b" stands twice in one object"#),
            (r#"{"a":1} x"#, "trailing characters"),
            (r#"{"a":"#, "EOF while parsing"),
        ] {
            let message = read(text).expect_err(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
        let long = format!("[{}", "x".repeat(1000));
        let message = read(&long).expect_err("it is no JSON");
        assert!(message.ends_with(" ... (801 more characters)"), "{message}");
    }
}
