//! Keeps the values of attini's keys out of whatever it records, prints or sends.
//!
//! The keys of an invocation are registered where they are read from the environment, and from then on every text that
//! leaves is masked, whatever path it takes; so that a new path cannot forget it, the register is the process's own.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use memchr::memmem;
use serde_json::Value;

/// A value of this length is a secret, whatever it is made of.
pub const SECRET_BYTES_MIN: usize = 20;
/// A value of this length is a secret if it mixes letters and digits, or letters of both cases.
pub const MIXED_SECRET_BYTES_MIN: usize = 8;
/// A value of this length is a secret if it is more than one word.
pub const PHRASE_SECRET_BYTES_MIN: usize = 12;
/// How the keys of many services begin; nothing but a key does.
const SECRET_PREFIX: &str = "sk-";

static KEYS: RwLock<Vec<Key>> = RwLock::new(Vec::new());

#[derive(Clone)]
struct Key {
    variable: String,
    value: String,
}

impl Key {
    fn replacement(&self) -> String {
        format!("[{} masked]", self.variable)
    }
}

/// Whether a key's value looks like a secret. Local services take any word for a key (`ollama`, `not-needed`), and
/// masking an ordinary word would tear what a model writes: the calls that are run are those recorded.
pub fn is_secret(value: &str) -> bool {
    let has = |kind: fn(char) -> bool| value.contains(kind);
    let mixes = has(char::is_alphabetic) && has(|letter| letter.is_ascii_digit())
        || has(char::is_lowercase) && has(char::is_uppercase);
    let phrase = value.contains(|letter: char| !letter.is_alphanumeric());
    value.len() >= SECRET_BYTES_MIN
        || mixes && value.len() >= MIXED_SECRET_BYTES_MIN
        || phrase && value.len() >= PHRASE_SECRET_BYTES_MIN
        || value.starts_with(SECRET_PREFIX) && value.len() > SECRET_PREFIX.len()
}

/// Masks `value` from now on, as the value of the environment variable of that name, if it looks like a secret.
pub fn register(variable: &str, value: &str) {
    if !is_secret(value) {
        return;
    }
    let mut keys = KEYS.write().unwrap_or_else(PoisonError::into_inner);
    if keys.iter().any(|key| key.value == value) {
        return;
    }
    keys.push(Key { variable: variable.to_owned(), value: value.to_owned() });
    // A key that holds another is masked as a whole.
    keys.sort_by_key(|key| std::cmp::Reverse(key.value.len()));
}

/// Whether the text holds a key's value.
pub fn holds_key(text: &str) -> bool {
    matches!(apply(text), Cow::Owned(_))
}

fn keys() -> Vec<Key> {
    KEYS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The text with every key's value replaced by the key's name.
pub fn apply(text: &str) -> Cow<'_, str> {
    let mut masked = Cow::Borrowed(text);
    for key in keys() {
        if masked.contains(&key.value) {
            masked = Cow::Owned(masked.replace(&key.value, &key.replacement()));
        }
    }
    masked
}

/// The value with every key's value replaced in every string, names of fields included.
pub fn value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(apply(&text).into_owned()),
        Value::Array(items) => Value::Array(items.into_iter().map(self::value).collect()),
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(name, item)| (apply(&name).into_owned(), self::value(item))).collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// JSON text with every key's value replaced, also one that the text writes with escapes. A text that is no JSON, or
/// holds no key, stays as it is otherwise.
pub fn json_text(text: &str) -> Cow<'_, str> {
    let masked = apply(text);
    let Ok(read) = serde_json::from_str::<Value>(&masked) else { return masked };
    let clean = value(read.clone());
    if clean == read { masked } else { Cow::Owned(clean.to_string()) }
}

/// As [`apply`], for text that may not be UTF-8.
pub fn apply_bytes(text: &[u8]) -> Cow<'_, [u8]> {
    let mut stream = Stream::new();
    if stream.finders.iter().all(|finder| finder.find(text).is_none()) {
        return Cow::Borrowed(text);
    }
    let mut masked = stream.push(text);
    masked.extend(stream.finish());
    Cow::Owned(masked)
}

/// Masks a stream of bytes that comes in pieces of any size; what may be the beginning of a key is held back until the
/// next piece tells.
pub struct Stream {
    keys: Vec<Key>,
    /// One for each key, for outputs may be long.
    finders: Vec<memmem::Finder<'static>>,
    held: Vec<u8>,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    pub fn new() -> Self {
        let keys = keys();
        let finders = keys.iter().map(|key| memmem::Finder::new(key.value.as_bytes()).into_owned()).collect();
        Self { keys, finders, held: Vec::new() }
    }

    /// Takes a piece and returns what is certain of it and of those before.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        let (mut out, end) = self.replace(&bytes);
        let certain = bytes.len() - self.uncertain(&bytes[end..]);
        self.held = bytes.split_off(certain);
        if end == 0 {
            return bytes;
        }
        out.extend_from_slice(&bytes[end..]);
        out
    }

    /// Returns what was held back, at the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Replaces whole keys; returns what lies up to the end of the last one, replaced, and where that end is.
    fn replace(&self, bytes: &[u8]) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        let mut end = 0;
        let mut next: Vec<Option<usize>> = self.finders.iter().map(|finder| finder.find(bytes)).collect();
        // Of two keys at one place the first is the longer one.
        while let Some((at, key)) =
            next.iter().zip(&self.keys).filter_map(|(at, key)| Some(((*at)?, key))).min_by_key(|(at, _)| *at)
        {
            out.extend_from_slice(&bytes[end..at]);
            out.extend_from_slice(key.replacement().as_bytes());
            end = at + key.value.len();
            for (next, finder) in next.iter_mut().zip(&self.finders) {
                if next.is_some_and(|at| at < end) {
                    *next = finder.find(&bytes[end..]).map(|at| end + at);
                }
            }
        }
        (out, end)
    }

    /// How many bytes at the end of `rest` are the beginning of a key.
    fn uncertain(&self, rest: &[u8]) -> usize {
        let longest = self.keys.first().map_or(0, |key| key.value.len() - 1).min(rest.len());
        (1..=longest)
            .rev()
            .find(|&length| {
                let end = &rest[rest.len() - length..];
                self.keys.iter().any(|key| key.value.as_bytes().starts_with(end))
            })
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_word_is_no_secret() {
        for word in ["", "x", "ollama", "EMPTY", "sk-", "function", "lm-studio", "not-needed"] {
            assert!(!is_secret(word), "{word}");
        }
        for number in ["12345678", "1234567", "a234567"] {
            assert!(!is_secret(number), "{number}");
        }
        for secret in [
            "sk-12345",
            "sk-test",
            "sk-no-key-required",
            "secret-of-ours",
            "MixedCase",
            "0123456789abcdef",
            "hf_NoDigitsButQuiteLong",
            "sk-proj-0123456789",
        ] {
            assert!(is_secret(secret), "{secret}");
        }
    }

    #[test]
    fn a_word_that_serves_as_a_key_is_left_alone() {
        register("TEST_WORD_KEY", "function");
        assert_eq!(apply("function greet() {}"), "function greet() {}");
        assert!(!holds_key("function"));
    }

    #[test]
    fn a_key_is_masked_in_json_however_it_is_written() {
        register("TEST_JSON_KEY", "sk-json-\"0123456789");
        for (text, expected) in [
            (r#"{"a": "sk-json-\"0123456789"}"#, r#"{"a":"[TEST_JSON_KEY masked]"}"#),
            (r#"{"a": ["\u0073k-json-\"0123456789"]}"#, r#"{"a":["[TEST_JSON_KEY masked]"]}"#),
            (r#"{"a":  "none"}"#, r#"{"a":  "none"}"#),
            (r#"{"a": sk-json-"0123456789"#, r#"{"a": [TEST_JSON_KEY masked]"#),
        ] {
            assert_eq!(json_text(text), expected);
        }
    }

    #[test]
    fn a_key_is_masked_however_the_stream_is_cut() {
        register("TEST_MASK_KEY", "sk-mask-0123456789");
        let whole = "before sk-mask-0123456789 after sk-mask-01 sk-sk-mask-0123456789";
        let expected = "before [TEST_MASK_KEY masked] after sk-mask-01 sk-[TEST_MASK_KEY masked]";
        assert_eq!(apply(whole), expected);
        for size in 1..=whole.len() {
            let mut stream = Stream::new();
            let mut out = Vec::new();
            for piece in whole.as_bytes().chunks(size) {
                out.extend(stream.push(piece));
            }
            out.extend(stream.finish());
            assert_eq!(String::from_utf8_lossy(&out), expected, "pieces of {size} bytes");
        }
        assert_eq!(apply_bytes(whole.as_bytes()), expected.as_bytes());
        assert_eq!(apply_bytes(b"\xffsk-mask-01"), b"\xffsk-mask-01".as_slice());
    }

    #[test]
    fn of_keys_that_overlap_the_first_is_masked_and_of_two_at_one_place_the_longer() {
        register("TEST_OVERLAP_LONG", "~overlap~abc~def");
        register("TEST_OVERLAP_SHORT", "~overlap~abc");
        register("TEST_OVERLAP_LATE", "~def~ijkl0123");
        for (whole, expected) in [
            ("~overlap~abc~def~ijkl0123", "[TEST_OVERLAP_LONG masked]~ijkl0123"),
            (
                "~overlap~abc ~def~ijkl0123 ~overlap~abc",
                "[TEST_OVERLAP_SHORT masked] [TEST_OVERLAP_LATE masked] [TEST_OVERLAP_SHORT masked]",
            ),
        ] {
            let mut stream = Stream::new();
            let mut out = stream.push(whole.as_bytes());
            out.extend(stream.finish());
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
