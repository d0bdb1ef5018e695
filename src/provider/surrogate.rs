//! Halves of characters in a service's JSON: escapes of UTF-16 that stand alone, which no text of ours can hold.
//!
//! A service that cuts its text between the two escapes of one character sends a half with each piece. Halves are read
//! as marks; where pieces are put together two marks become the character, and a mark that is left alone U+FFFD.

use std::borrow::Cow;

use serde_json::Value;

use super::{Progress, Reply};
use crate::session::record::ToolCall;

/// Stands before every mark; no text holds it, since it is no character.
const MARK: char = '\u{fdd0}';
/// The mark of the first surrogate; one of a private character follows for each other.
const FIRST_MARK: u32 = 0x10_f800;
const FIRST_SURROGATE: u16 = 0xd800;
const FIRST_LOW_SURROGATE: u16 = 0xdc00;
const LAST_SURROGATE: u16 = 0xdfff;

/// Reads JSON, with halves of characters as marks.
pub(super) fn parse(json: &str) -> serde_json::Result<Value> {
    match serde_json::from_str(json) {
        Err(error) if !error.is_eof() => match marked(json) {
            Cow::Owned(marked) => serde_json::from_str(&marked),
            Cow::Borrowed(_) => Err(error),
        },
        read => read,
    }
}

/// The JSON with a mark in place of every escape of half a character.
fn marked(json: &str) -> Cow<'_, str> {
    let mut marked = String::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &json.as_bytes()[at..]) {
        at += found;
        match surrogate(&json[at..]) {
            None => at += 2,
            Some(high) if high < FIRST_LOW_SURROGATE && json.get(at + 6..).and_then(surrogate).is_some_and(is_low) => {
                at += 12;
            }
            Some(half) => {
                marked.push_str(&json[from..at]);
                marked.extend([MARK, mark(half)]);
                at += 6;
                from = at;
            }
        }
        if at >= json.len() {
            break;
        }
    }
    if from == 0 {
        return Cow::Borrowed(json);
    }
    marked.push_str(&json[from..]);
    Cow::Owned(marked)
}

/// The surrogate whose escape the text begins with.
fn surrogate(text: &str) -> Option<u16> {
    let digits =
        text.strip_prefix("\\u")?.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok().filter(|unit| (FIRST_SURROGATE..=LAST_SURROGATE).contains(unit))
}

fn is_low(unit: u16) -> bool {
    unit >= FIRST_LOW_SURROGATE
}

fn mark(half: u16) -> char {
    char::from_u32(FIRST_MARK + u32::from(half - FIRST_SURROGATE)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn half_of(mark: char) -> Option<u16> {
    let half = u32::from(mark).checked_sub(FIRST_MARK)?;
    u16::try_from(half).ok().map(|half| FIRST_SURROGATE + half)
}

/// Puts the characters of a text together that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    /// The first half of a character, whose other half may come with the next piece.
    high: Option<u16>,
}

impl Joiner {
    /// The piece, without the half at its end that waits for the next one.
    pub(super) fn push<'t>(&mut self, piece: &'t str) -> Cow<'t, str> {
        if piece.is_empty() || (self.high.is_none() && !piece.contains(MARK)) {
            return Cow::Borrowed(piece);
        }
        let mut joined = String::with_capacity(piece.len());
        let mut rest = piece.chars();
        while let Some(letter) = rest.next() {
            let half = if letter == MARK { rest.clone().next().and_then(half_of) } else { None };
            if half.is_some() {
                rest.next();
            }
            match (self.high.take(), half) {
                (Some(high), Some(low)) if is_low(low) => {
                    joined.extend(
                        char::decode_utf16([high, low]).map(|joined| joined.unwrap_or(char::REPLACEMENT_CHARACTER)),
                    );
                    continue;
                }
                (Some(_), _) => joined.push(char::REPLACEMENT_CHARACTER),
                (None, _) => {}
            }
            match half {
                None => joined.push(letter),
                Some(low) if is_low(low) => joined.push(char::REPLACEMENT_CHARACTER),
                Some(high) => self.high = Some(high),
            }
        }
        Cow::Owned(joined)
    }

    /// What stands for a half that waited in vain.
    pub(super) fn finish(&mut self) -> &'static str {
        if self.high.take().is_some() { "\u{fffd}" } else { "" }
    }
}

/// A whole text, its halves put together.
pub(super) fn join(text: &str) -> Cow<'_, str> {
    let mut joiner = Joiner::default();
    match joiner.push(text) {
        Cow::Borrowed(text) => Cow::Borrowed(text),
        Cow::Owned(joined) => Cow::Owned(joined + joiner.finish()),
    }
}

/// A reply whose texts were put together from pieces with marks in them.
pub(super) fn join_reply(reply: Reply) -> Reply {
    let text = |text: String| join(&text).into_owned();
    let call = |call: ToolCall| ToolCall {
        id: text(call.id),
        name: text(call.name),
        arguments: text(call.arguments),
        opaque: call.opaque.map(join_value),
    };
    Reply {
        text: text(reply.text),
        reasoning: text(reply.reasoning),
        tool_calls: reply.tool_calls.into_iter().map(call).collect(),
        finish: reply.finish,
        finish_reason: text(reply.finish_reason),
        usage: reply.usage,
        opaque: reply.opaque.map(join_value),
    }
}

fn join_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(join(&text).into_owned()),
        Value::Array(items) => Value::Array(items.into_iter().map(join_value).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, item)| (join(&name).into_owned(), join_value(item))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// Shows progress with whole characters alone.
#[derive(Debug, Default)]
pub(super) struct Observed {
    text: Joiner,
    reasoning: Joiner,
}

impl Observed {
    pub(super) fn pass_on(&mut self, progress: Progress<'_>, observe: &mut dyn FnMut(Progress<'_>)) {
        match progress {
            Progress::Text(piece) => {
                let piece = self.text.push(piece);
                if !piece.is_empty() {
                    observe(Progress::Text(&piece));
                }
            }
            Progress::Reasoning(piece) => {
                let piece = self.reasoning.push(piece);
                if !piece.is_empty() {
                    observe(Progress::Reasoning(&piece));
                }
            }
            Progress::Retrying { .. } => {
                *self = Self::default();
                observe(progress);
            }
        }
    }

    /// Shows what waited in vain.
    pub(super) fn finish(&mut self, observe: &mut dyn FnMut(Progress<'_>)) {
        let (text, reasoning) = (self.text.finish(), self.reasoning.finish());
        if !reasoning.is_empty() {
            observe(Progress::Reasoning(reasoning));
        }
        if !text.is_empty() {
            observe(Progress::Text(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(json: &str) -> String {
        join(parse(json).unwrap().as_str().unwrap()).into_owned()
    }

    #[test]
    fn halves_are_read_and_nothing_else_is_changed() {
        for (json, expected) in [
            (r#""a\ud800b""#, "a\u{fffd}b"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\uD83D\ud83d\uDE00""#, "\u{fffd}😀"),
            (r#""\\ud83d \ud83d\"é\\\ud83d""#, "\\ud83d \u{fffd}\"é\\\u{fffd}"),
            (r#""\ud83dé""#, "\u{fffd}é"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
        ] {
            assert_eq!(read(json), expected, "{json}");
        }
        for json in [r#""\ud83"#, r#""\ud83x""#, r#""\ud83d"#, "{\"a\": \"\\ud83d\"", "\\", r#""a\"#, r"\ud83d\é"] {
            assert!(parse(json).is_err(), "{json}");
        }
    }

    proptest! {
        #[test]
        fn a_text_comes_out_whole_however_it_is_cut(units in proptest::collection::vec(
            prop_oneof![Just(0xd83d_u16), Just(0xde00), Just(u16::from(b'a')), any::<u16>()], 0..12), cut in 0..12_usize) {
            let cut = cut.min(units.len());
            let json = |units: &[u16]| {
                let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
                format!("\"{escapes}\"")
            };
            let mut joiner = Joiner::default();
            let mut text = String::new();
            for piece in [&units[..cut], &units[cut..]] {
                let piece = parse(&json(piece)).unwrap();
                text.push_str(&joiner.push(piece.as_str().unwrap()));
            }
            text.push_str(joiner.finish());
            prop_assume!(!units.contains(&0xfdd0));
            prop_assert_eq!(text, String::from_utf16_lossy(&units));
        }
    }
}
