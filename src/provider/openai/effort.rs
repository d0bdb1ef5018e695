//! What `--reasoning-effort` becomes in a request: each service has words and fields of its own for how hard a model is
//! to think.
//!
//! A word that a service does not have becomes the nearest one below, or its lowest.

use serde_json::{Value, json};

use crate::provider::catalogue::{EFFORT_WORDS, Effort};
use crate::provider::trouble::Trouble;

const GPT_OSS_WORDS: &[&str] = &["low", "medium", "high"];

/// The fields that ask a service for that effort; none where it has no such notion.
pub(super) fn fields(
    provider: &str,
    form: Effort,
    model: &str,
    effort: &str,
) -> Result<Vec<(&'static str, Value)>, Trouble> {
    if form == Effort::AsGiven {
        return Ok(vec![("reasoning_effort", json!(effort))]);
    }
    let Some(rank) = EFFORT_WORDS.iter().position(|word| *word == effort) else {
        let mut trouble = Trouble::lasting(format!("{provider} has no reasoning effort {effort:?}"));
        trouble.error.hint = Some(format!("--reasoning-effort takes {}", EFFORT_WORDS.join(", ")));
        return Err(trouble);
    };
    let is_off = effort == "none";
    Ok(match form {
        Effort::Words(words) => vec![("reasoning_effort", json!(nearest(words, rank)))],
        Effort::Object(words) => vec![("reasoning", json!({"effort": nearest(words, rank)}))],
        Effort::Switch if is_off => vec![("thinking", json!({"type": "disabled"}))],
        Effort::Switch => vec![
            ("thinking", json!({"type": "enabled"})),
            ("reasoning_effort", json!(if matches!(effort, "xhigh" | "max") { "max" } else { "high" })),
        ],
        Effort::ByModel if model.contains("gpt-oss") => {
            vec![("reasoning_effort", json!(nearest(GPT_OSS_WORDS, rank)))]
        }
        Effort::ByModel if model.contains("qwen3") => {
            vec![("reasoning_effort", json!(if is_off { "none" } else { "default" }))]
        }
        Effort::ByModel | Effort::AsGiven => Vec::new(),
        Effort::Template if is_off => vec![("chat_template_kwargs", json!({"enable_thinking": false}))],
        Effort::Template => {
            let effort = nearest(GPT_OSS_WORDS, rank);
            vec![("chat_template_kwargs", json!({"enable_thinking": true, "reasoning_effort": effort}))]
        }
    })
}

/// The highest of a service's words, which stand in order, that asks for no more than the word of that rank, but for
/// nothing only if nothing is asked for.
fn nearest(words: &'static [&'static str], rank: usize) -> &'static str {
    let rank_of = |word: &str| EFFORT_WORDS.iter().position(|known| *known == word).unwrap_or(0);
    let fits = |word: &&&str| rank_of(word) <= rank && (rank == 0 || rank_of(word) > 0);
    let some = words.iter().find(|word| rank == 0 || rank_of(word) > 0);
    words.iter().rfind(fits).or(some).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::catalogue;

    #[test]
    fn each_service_is_asked_in_its_own_words() {
        let effort = |word: &str| json!({"reasoning_effort": word});
        let object = |word: &str| json!({"reasoning": {"effort": word}});
        let deepseek = |word: &str| json!({"thinking": {"type": "enabled"}, "reasoning_effort": word});
        let template =
            |word: &str| json!({"chat_template_kwargs": {"enable_thinking": true, "reasoning_effort": word}});
        let off = json!({"chat_template_kwargs": {"enable_thinking": false}});
        let disabled = json!({"thinking": {"type": "disabled"}});
        let none = json!({});
        let cases = [
            ("openai/gpt-5", ["none", "minimal", "medium", "xhigh"].map(effort)),
            ("openrouter/x", ["none", "minimal", "medium", "xhigh"].map(object)),
            ("gemini/gemini-3", ["none", "minimal", "medium", "high"].map(effort)),
            ("mistral/x", ["none", "high", "high", "high"].map(effort)),
            ("deepseek/x", [disabled, deepseek("high"), deepseek("high"), deepseek("max")]),
            ("groq/openai/gpt-oss-20b", ["low", "low", "medium", "high"].map(effort)),
            ("groq/qwen/qwen3-32b", ["none", "default", "default", "default"].map(effort)),
            ("groq/llama-3", [none.clone(), none.clone(), none.clone(), none]),
            ("ollama/x", ["none", "low", "medium", "high"].map(effort)),
            ("vllm/x", ["none", "low", "medium", "high"].map(effort)),
            ("llamacpp/x", [off, template("low"), template("medium"), template("high")]),
        ];
        for (name, expected) in cases {
            let (provider, model) = name.split_once('/').unwrap();
            let form = catalogue::find(provider).unwrap().dialect.effort;
            for (word, expected) in ["none", "minimal", "medium", "max"].into_iter().zip(expected) {
                let fields = fields(provider, form, model, word).unwrap();
                let fields: Value = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
                assert_eq!(fields, expected, "{name} {word}");
            }
            let trouble = fields(provider, form, model, "loads").unwrap_err();
            assert!(!trouble.again && trouble.error.hint.unwrap().contains("minimal, low"), "{name}");
        }
        let given = fields("acme", Effort::AsGiven, "m", "loads").unwrap();
        assert_eq!(given, [("reasoning_effort", json!("loads"))]);
    }
}
