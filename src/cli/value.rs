//! What the values of options may be, told before anything is done.
//!
//! Form alone: whether a model, a tool or a session of that name exists is for others to say.

use clap::builder::{RangedU64ValueParser, TypedValueParser};

/// The longest time an option takes: a year. More than any turn needs, and far from where clocks overflow.
pub const SECONDS_MAX: u64 = 365 * 24 * 60 * 60;
/// The largest count an option takes.
const COUNT_MAX: u64 = u32::MAX as u64;
/// The most words of a command that a rule can name by `--prefix`.
const PREFIX_WORDS_MAX: u64 = 1000;
const SESSION_NAME_BYTES_MAX: usize = 64;
const MODEL_BYTES_MAX: usize = 256;
const EFFORT_BYTES_MAX: usize = 32;
const RULE_BYTES_MAX: usize = 64 * 1024;
const TEMPERATURE_MAX: f64 = 2.0;

/// A session's name, or why it is none. Names become folders, so nothing in them may mean anything to a path.
pub fn parse_session_name(text: &str) -> Result<String, String> {
    let fits = text.len() <= SESSION_NAME_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
    if fits {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a session's name has 1 to {SESSION_NAME_BYTES_MAX} letters, digits, dots, underscores and hyphens, and begins \
         with a letter or digit"
    ))
}

/// `PROVIDER/MODEL`, or why it is not. A model's own name may hold further slashes.
pub fn parse_model(text: &str) -> Result<String, String> {
    let named = text.split_once('/').is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty());
    if !named {
        return Err("a model is written PROVIDER/MODEL, as in openai/gpt-5-mini".to_owned());
    }
    if text.len() > MODEL_BYTES_MAX || text.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return Err(format!("a model's name has at most {MODEL_BYTES_MAX} bytes and no spaces"));
    }
    Ok(text.to_owned())
}

pub(super) fn session_name(text: &str) -> Result<String, String> {
    parse_session_name(text)
}

pub(super) fn model(text: &str) -> Result<String, String> {
    parse_model(text)
}

pub(super) fn temperature(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=TEMPERATURE_MAX).contains(&value) {
        return Err(format!("it must lie between 0 and {TEMPERATURE_MAX}"));
    }
    Ok(value)
}

pub(super) fn effort(text: &str) -> Result<String, String> {
    let fits = (1..=EFFORT_BYTES_MAX).contains(&text.len())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter));
    if fits { Ok(text.to_owned()) } else { Err("a level is one word, as in low, medium or high".to_owned()) }
}

/// A rule's outer form; what it says is read where rules are known.
pub(super) fn rule(text: &str) -> Result<String, String> {
    if text.len() > RULE_BYTES_MAX {
        return Err(format!("a rule has at most {RULE_BYTES_MAX} bytes"));
    }
    if !text.trim_start().starts_with('{') && !text.contains(':') {
        return Err("a rule is its JSON object, or KIND:WHAT as in 'command:cargo test' or write:src".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn count_from(least: u64) -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(least..=COUNT_MAX)
}

pub(super) fn seconds_from(least: u64) -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(least..=SECONDS_MAX)
}

pub(super) fn prefix_words() -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(1..=PREFIX_WORDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_names_are_safe_as_folders() {
        let long = "a".repeat(SESSION_NAME_BYTES_MAX);
        for name in ["main", "a", "7", "A.b_c-d", "ci-2026.11.30", &long] {
            assert_eq!(parse_session_name(name).as_deref(), Ok(name));
        }
        let too_long = format!("{long}a");
        for name in ["", ".", "..", ".hidden", "-x", "_x", "a/b", "a b", "a\n", "ä", "a\0", &too_long] {
            assert!(parse_session_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn models_name_their_provider() {
        for name in ["openai/gpt-5-mini", "openrouter/meta-llama/llama-4", "scripted/replies/one.json"] {
            assert_eq!(parse_model(name).as_deref(), Ok(name));
        }
        for name in ["", "gpt-5-mini", "/x", "openai/", "openai/a b", "openai/\u{1b}"] {
            assert!(parse_model(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_temperature_is_a_number_in_range() {
        assert_eq!(temperature("0.7"), Ok(0.7));
        for text in ["", "warm", "NaN", "inf", "-0.1", "2.1"] {
            assert!(temperature(text).is_err(), "{text:?}");
        }
    }
}
