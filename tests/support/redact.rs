//! What differs from run to run becomes a word in brackets, so that expectations can be whole.

use serde_json::Value;

/// Knows the paths and addresses of one case; times, digests and durations it knows by their form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Redactor {
    /// Longest first, so that a path inside another is found before it.
    places: Vec<(String, &'static str)>,
}

impl Redactor {
    pub(crate) fn new(places: impl IntoIterator<Item = (String, &'static str)>) -> Self {
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Self { places }
    }

    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (place, word) in &self.places {
            text = text.replace(place, word);
        }
        redact_forms(&text)
    }

    /// The same within a JSON value: its texts, and numbers whose key ends in `_ms`.
    pub(crate) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| {
                    let is_duration = key.ends_with("_ms") && value.is_number();
                    (key.clone(), if is_duration { "[MS]".into() } else { self.value(value) })
                })
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

fn redact_forms(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut redacted = String::with_capacity(text.len());
    let mut position = 0;
    while position < bytes.len() {
        let fresh = position == 0 || !bytes[position - 1].is_ascii_alphanumeric();
        let form = if fresh { form_at(&bytes[position..]) } else { None };
        if let Some((length, word)) = form {
            redacted.push_str(word);
            position += length;
            continue;
        }
        let length = text[position..].chars().next().map_or(1, char::len_utf8);
        redacted.push_str(&text[position..position + length]);
        position += length;
    }
    redacted
}

/// The length and the word of what stands at the start of `bytes`.
fn form_at(bytes: &[u8]) -> Option<(usize, &'static str)> {
    const FORMS: [(&str, &str); 5] = [
        ("dddd-dd-ddTdd:dd:dd.dddZ", "[TIME]"),
        ("dddd-dd-ddTdd:dd:ddZ", "[TIME]"),
        ("sha256:H64", "[DIGEST]"),
        ("H64", "[DIGEST]"),
        ("H8-H4-H4-H4-H12", "[ID]"),
    ];
    for (form, word) in FORMS {
        if let Some(length) = form_length(form, bytes)
            && bytes.get(length).is_none_or(|next| !next.is_ascii_alphanumeric())
        {
            return Some((length, word));
        }
    }
    let key_length = bytes.iter().take_while(|byte| byte.is_ascii_lowercase() || **byte == b'_').count();
    let rest = bytes[..key_length].ends_with(b"_ms").then(|| bytes[key_length..].strip_prefix(b"\":"))??;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // The key stays readable only where the whole is one of a few known ones.
    let word = match &bytes[..key_length] {
        b"duration_ms" => "duration_ms\":[MS]",
        b"elapsed_ms" => "elapsed_ms\":[MS]",
        b"delay_ms" => "delay_ms\":[MS]",
        _ => return None,
    };
    (digits > 0).then_some((key_length + 2 + digits, word))
}

/// `d` is a digit, `H` and a number so many hexadecimal digits; every other character is itself.
fn form_length(form: &str, bytes: &[u8]) -> Option<usize> {
    let mut form = form.bytes().peekable();
    let mut position = 0;
    while let Some(expected) = form.next() {
        let mut count = 1;
        if expected == b'H' {
            count = 0;
            while let Some(digit) = form.next_if(u8::is_ascii_digit) {
                count = count * 10 + usize::from(digit - b'0');
            }
        }
        let run = bytes.get(position..position + count)?;
        let fits = run.iter().all(|byte| match expected {
            b'd' => byte.is_ascii_digit(),
            b'H' => byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase(),
            other => *byte == other,
        });
        if !fits {
            return None;
        }
        position += count;
    }
    Some(position)
}
