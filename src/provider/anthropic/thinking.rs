//! How much a model may say, and how much of that it may think: a number of tokens for models up to 4.5, and for those
//! behind them a word, by which the model decides itself.

use serde_json::{Value, json};

use super::super::trouble::Trouble;

/// What replies may have, by the beginning of the model's name; the first that fits counts. The service refuses more
/// than a model can do.
const MAX_TOKENS: [(&str, u64); 5] = [
    ("claude-3-haiku", 4096),
    ("claude-3-sonnet", 4096),
    ("claude-3-opus", 4096),
    ("claude-3-5-", 8192),
    ("claude-", 32_000),
];
/// For models that are not known: what nearly all of them can do.
const MAX_TOKENS_UNKNOWN_MODEL: u64 = 8192;

/// The budget of tokens for thinking that each `--reasoning-effort` stands for.
const BUDGET_TOKENS: [(&str, u64); 7] = [
    ("none", 0),
    ("minimal", 1024),
    ("low", 2048),
    ("medium", 8192),
    ("high", 16_384),
    ("xhigh", 24_000),
    ("max", 24_000),
];
/// The service refuses a smaller budget.
const BUDGET_TOKENS_MIN: u64 = 1024;

/// How many tokens a reply may have where nobody said it.
pub(super) fn default_max_tokens(model: &str) -> u64 {
    let known = MAX_TOKENS.iter().find(|(beginning, _)| model.starts_with(beginning));
    known.map_or(MAX_TOKENS_UNKNOWN_MODEL, |(_, tokens)| *tokens)
}

/// Models from this version on decide themselves how much they think; from 4.7 on they refuse a budget.
const ADAPTIVE_FROM: Version = Version(4, 6);
/// Models from this version on know the effort between high and max.
const EXTRA_HIGH_FROM: Version = Version(4, 7);
/// Models from this version on can be held to a JSON Schema.
const OUTPUT_SCHEMA_FROM: Version = Version(4, 5);

/// Which of the service's models it is. What a name without a number or of another service means is up to the
/// callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32);

impl Version {
    /// The version in a model's name: `claude-sonnet-4-5-20250929`, `anthropic/claude-opus-4.6`. A name in which none
    /// stands is that of a model newer than all that are known here. `None`: the model is not one of the service's own.
    pub(super) fn of(model: &str) -> Option<Self> {
        // Of a date there are too many digits.
        const DIGITS_MAX: usize = 2;
        let (_, name) = model.split_once("claude-")?;
        let words: Vec<&str> = name.split(['-', '.', '@', ':']).collect();
        let number = |word: &&str| word.parse().ok().filter(|_| word.len() <= DIGITS_MAX);
        let Some(at) = words.iter().position(|word| word.starts_with(|first: char| first.is_ascii_digit())) else {
            return Some(if name.starts_with("instant") { Self(1, 0) } else { Self(u32::MAX, 0) });
        };
        let major = words.get(at).and_then(number)?;
        Some(Self(major, words.get(at + 1).and_then(number).unwrap_or(0)))
    }

    pub(super) fn takes_output_schema(self) -> bool {
        self >= OUTPUT_SCHEMA_FROM
    }
}

/// What a request says of thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    Budget(u64),
    /// As much as the model thinks fit, at this effort.
    Adaptive(&'static str),
}

impl Thinking {
    /// `None` if the model is not to think, or has no room to.
    pub(super) fn of(
        provider: &str,
        model: &str,
        effort: Option<&str>,
        max_tokens: u64,
    ) -> Result<Option<Self>, Trouble> {
        let budget = budget(provider, effort, max_tokens)?;
        let version = Version::of(model).filter(|version| *version >= ADAPTIVE_FROM);
        let Some(version) = version else { return Ok(budget.map(Self::Budget)) };
        Ok(match effort {
            None | Some("none") => None,
            Some("minimal" | "low") => Some(Self::Adaptive("low")),
            Some("medium") => Some(Self::Adaptive("medium")),
            Some("xhigh") if version >= EXTRA_HIGH_FROM => Some(Self::Adaptive("xhigh")),
            Some("max") => Some(Self::Adaptive("max")),
            Some(_) => Some(Self::Adaptive("high")),
        })
    }

    /// The field `thinking` of the request.
    pub(super) fn field(self) -> Value {
        match self {
            Self::Budget(tokens) => json!({"type": "enabled", "budget_tokens": tokens}),
            // Some of these models tell nothing of it unless they are asked to.
            Self::Adaptive(_) => json!({"type": "adaptive", "display": "summarized"}),
        }
    }
}

/// The budget for thinking within a reply of `max_tokens`, of which a quarter at least is left for what is said.
/// `None` if the model is not to think, or has no room to.
fn budget(provider: &str, effort: Option<&str>, max_tokens: u64) -> Result<Option<u64>, Trouble> {
    let Some(effort) = effort else { return Ok(None) };
    let Some((_, budget)) = BUDGET_TOKENS.iter().find(|(name, _)| *name == effort) else {
        let names: Vec<&str> = BUDGET_TOKENS.iter().map(|(name, _)| *name).collect();
        let mut trouble = Trouble::lasting(format!("{provider} has no reasoning effort {effort:?}"));
        trouble.error.hint = Some(format!("--reasoning-effort takes {}", names.join(", ")));
        return Err(trouble);
    };
    let budget = (*budget).min(max_tokens - max_tokens / 4);
    Ok((budget >= BUDGET_TOKENS_MIN).then_some(budget))
}

pub(super) fn is_thinking(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

/// Whether the service lets a model with a budget think at this point. It does not where an assistant's turn is under way, calls
/// and results, that began without thinking: another model began it, or this one when it was not to think.
pub(super) fn may_think(messages: &[Value]) -> bool {
    let is_result = |block: &Value| block["type"] == "tool_result";
    let begins_turn = |message: &Value| {
        message["role"] == "user" && message["content"].as_array().is_some_and(|blocks| !blocks.iter().all(is_result))
    };
    let turn = messages.iter().rposition(begins_turn).map_or(0, |position| position + 1);
    messages.get(turn).is_none_or(|message| is_thinking(&message["content"][0]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_budget_leaves_room_for_what_is_said() {
        let cases = [
            (None, 32_000, None),
            (Some("none"), 32_000, None),
            (Some("minimal"), 32_000, Some(1024)),
            (Some("low"), 32_000, Some(2048)),
            (Some("medium"), 32_000, Some(8192)),
            (Some("high"), 32_000, Some(16_384)),
            (Some("max"), 32_000, Some(24_000)),
            (Some("high"), 8192, Some(6144)),
            (Some("low"), 1366, Some(1025)),
            (Some("low"), 1364, None),
            (Some("max"), 0, None),
            (Some("max"), u64::MAX, Some(24_000)),
        ];
        for (effort, max_tokens, expected) in cases {
            let found = budget("acme", effort, max_tokens).unwrap();
            assert_eq!(found, expected, "{effort:?} of {max_tokens}");
            assert!(found.is_none_or(|budget| budget < max_tokens));
        }
        let trouble = budget("acme", Some("loads"), 9).unwrap_err();
        assert_eq!(trouble.error.message, "acme has no reasoning effort \"loads\"");
        assert!(!trouble.again && trouble.error.hint.unwrap().contains("minimal, low"));
    }

    #[test]
    fn a_models_version_stands_in_its_name() {
        let newest = Version(u32::MAX, 0);
        for (model, expected) in [
            ("claude-3-5-haiku-latest", Some(Version(3, 5))),
            ("claude-3-opus-20240229", Some(Version(3, 0))),
            ("claude-2.1", Some(Version(2, 1))),
            ("claude-instant-1.2", Some(Version(1, 2))),
            ("claude-instant", Some(Version(1, 0))),
            ("claude-sonnet-4-20250514", Some(Version(4, 0))),
            ("claude-sonnet-4-5-20250929", Some(Version(4, 5))),
            ("anthropic/claude-opus-4.6", Some(Version(4, 6))),
            ("eu.anthropic.claude-opus-4-7-v1:0", Some(Version(4, 7))),
            ("claude-haiku-4-5@20251001", Some(Version(4, 5))),
            ("claude-opus-5", Some(Version(5, 0))),
            ("claude-later-preview", Some(newest)),
            ("claude-sonnet-20250514", None),
            ("deepseek-chat", None),
            ("m", None),
        ] {
            assert_eq!(Version::of(model), expected, "{model}");
        }
    }

    #[test]
    fn an_effort_is_a_budget_or_a_word() {
        let thinking = |model: &str, effort| Thinking::of("acme", model, effort, 32_000).unwrap();
        for model in ["claude-3-7-sonnet-latest", "claude-opus-4-5", "kimi-k2"] {
            assert_eq!(thinking(model, Some("medium")), Some(Thinking::Budget(8192)), "{model}");
            assert_eq!(thinking(model, Some("none")), None, "{model}");
        }
        for (effort, older, newer) in [
            (None, None, None),
            (Some("none"), None, None),
            (Some("minimal"), Some("low"), Some("low")),
            (Some("low"), Some("low"), Some("low")),
            (Some("medium"), Some("medium"), Some("medium")),
            (Some("high"), Some("high"), Some("high")),
            (Some("xhigh"), Some("high"), Some("xhigh")),
            (Some("max"), Some("max"), Some("max")),
        ] {
            assert_eq!(thinking("claude-sonnet-4-6", effort), older.map(Thinking::Adaptive), "{effort:?}");
            assert_eq!(thinking("claude-opus-4-7", effort), newer.map(Thinking::Adaptive), "{effort:?}");
        }
        assert!(Thinking::of("acme", "claude-opus-4-7", Some("loads"), 32_000).is_err());
    }

    #[test]
    fn replies_are_as_long_as_the_model_can() {
        let cases = [
            ("claude-3-haiku-20240307", 4096),
            ("claude-3-5-haiku-latest", 8192),
            ("claude-3-7-sonnet-latest", 32_000),
            ("claude-sonnet-4-5", 32_000),
            ("other", 8192),
        ];
        for (model, tokens) in cases {
            assert_eq!(default_max_tokens(model), tokens, "{model}");
        }
    }

    #[test]
    fn a_turn_that_began_without_thinking_goes_on_without() {
        let user = || json!({"role": "user", "content": [{"type": "text", "text": "go"}]});
        let results = || json!({"role": "user", "content": [{"type": "tool_result"}]});
        let both = || json!({"role": "user", "content": [{"type": "tool_result"}, {"type": "text", "text": "go"}]});
        let says = |kinds: &[&str]| {
            let blocks: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind})).collect();
            json!({"role": "assistant", "content": blocks})
        };
        let (thought, plain) = (|| says(&["thinking", "tool_use"]), || says(&["tool_use"]));
        let cases = [
            (vec![], true),
            (vec![user()], true),
            (vec![user(), thought(), results()], true),
            (vec![user(), says(&["redacted_thinking", "tool_use"]), results(), plain(), results()], true),
            (vec![user(), plain(), results()], false),
            (vec![user(), plain(), results(), thought(), results()], false),
            (vec![user(), plain(), both()], true),
            (vec![user(), plain(), results(), plain(), user()], true),
        ];
        for (messages, expected) in cases {
            assert_eq!(may_think(&messages), expected, "{messages:?}");
        }
    }
}
