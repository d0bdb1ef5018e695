//! How much a model may say, and how much of that it may think: the format wants both as numbers of tokens.

use serde_json::Value;

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

/// The budget for thinking within a reply of `max_tokens`, of which a quarter at least is left for what is said.
/// `None` if the model is not to think, or has no room to.
pub(super) fn budget(provider: &str, effort: Option<&str>, max_tokens: u64) -> Result<Option<u64>, Trouble> {
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

/// Whether the service lets the model think at this point. It does not where an assistant's turn is under way, calls
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
