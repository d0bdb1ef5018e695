//! The built-in providers: where they are, what their key is called, and where they differ from the format they speak.
//!
//! A table only; what the configuration and the environment make of it is decided in `connect`.

use crate::config::Api;

/// A built-in provider.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub api: Api,
    /// As the service's own library takes it; empty where there is none.
    pub base_url: &'static str,
    pub base_url_variable: &'static str,
    /// Empty where no key is ever sent.
    pub key_variable: &'static str,
    pub needs_key: bool,
    /// Whether its usual models take images.
    pub takes_images: bool,
    /// What is used when nothing but this provider's key is there to go by.
    pub default_model: Option<&'static str>,
    pub dialect: Dialect,
    /// How many tokens a model takes, by the beginning of its name; the first that fits counts.
    pub context_tokens: &'static [(&'static str, u64)],
}

/// Where a service differs from the common form of its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a difference of its own")]
pub struct Dialect {
    /// The name of the field that limits a reply.
    pub max_tokens_field: &'static str,
    /// Whether usage has to be asked for, and may be.
    pub asks_for_usage: bool,
    /// Ids of calls must be nine letters and digits.
    pub nine_character_ids: bool,
    /// Whether tools may be told of and forbidden (`tool_choice` `none`), so that a history with calls makes sense.
    pub takes_no_choice: bool,
    /// Whether a JSON Schema for the answer may stand beside tools, and leaves calls possible.
    pub takes_output_schema: bool,
    /// How it is told how hard to think.
    pub effort: Effort,
    /// Every message of the assistant's must say what was thought, be it nothing.
    pub wants_reasoning: bool,
    /// Takes a user message right behind a tool's.
    pub takes_user_after_tool: bool,
}

/// How a service of the Chat Completions format is told how hard to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// `reasoning_effort`, the word as it is: for services that nothing is known of.
    AsGiven,
    /// `reasoning_effort`, with these words.
    Words(&'static [&'static str]),
    /// `reasoning`, an object with the word; `OpenRouter`'s.
    Object(&'static [&'static str]),
    /// `DeepSeek`'s: `thinking` on or off, and how much of it.
    Switch,
    /// Groq's, where each family of models has its own words, and others have no such notion.
    ByModel,
    /// Arguments of the model's own template, which overlooks those that it does not know.
    Template,
}

impl Dialect {
    pub const COMMON: Self = Self {
        max_tokens_field: "max_tokens",
        asks_for_usage: true,
        nine_character_ids: false,
        takes_no_choice: true,
        takes_output_schema: false,
        effort: Effort::AsGiven,
        wants_reasoning: false,
        takes_user_after_tool: true,
    };
}

/// What `--reasoning-effort` takes where the provider is built in, from the least to the most.
pub const EFFORT_WORDS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

const OPENAI_CONTEXTS: &[(&str, u64)] = &[
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
];

const fn hosted(name: &'static str, base_url: &'static str, variables: [&'static str; 2]) -> Entry {
    Entry {
        name,
        api: Api::OpenAi,
        base_url,
        base_url_variable: variables[0],
        key_variable: variables[1],
        needs_key: true,
        takes_images: false,
        default_model: None,
        dialect: Dialect::COMMON,
        context_tokens: &[],
    }
}

const fn local(name: &'static str, base_url: &'static str, variables: [&'static str; 2]) -> Entry {
    Entry { needs_key: false, ..hosted(name, base_url, variables) }
}

pub const ENTRIES: [Entry; 11] = [
    Entry {
        takes_images: true,
        default_model: Some("gpt-5-mini"),
        dialect: Dialect {
            max_tokens_field: "max_completion_tokens",
            takes_output_schema: true,
            effort: Effort::Words(&["none", "minimal", "low", "medium", "high", "xhigh"]),
            ..Dialect::COMMON
        },
        context_tokens: OPENAI_CONTEXTS,
        ..hosted("openai", "https://api.openai.com/v1", ["OPENAI_BASE_URL", "OPENAI_API_KEY"])
    },
    Entry {
        api: Api::Anthropic,
        takes_images: true,
        default_model: Some("claude-sonnet-4-5"),
        dialect: Dialect { takes_output_schema: true, ..Dialect::COMMON },
        context_tokens: &[("claude-", 200_000)],
        ..hosted("anthropic", "https://api.anthropic.com", ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"])
    },
    Entry {
        default_model: Some("deepseek-chat"),
        // While it thinks it refuses a message of the assistant's without the field, whoever wrote it.
        dialect: Dialect { effort: Effort::Switch, wants_reasoning: true, ..Dialect::COMMON },
        context_tokens: &[("deepseek-", 128_000)],
        ..hosted("deepseek", "https://api.deepseek.com", ["DEEPSEEK_BASE_URL", "DEEPSEEK_API_KEY"])
    },
    Entry {
        takes_images: true,
        default_model: Some("openai/gpt-5-mini"),
        // It drops the field for models that cannot heed it.
        dialect: Dialect {
            takes_output_schema: true,
            effort: Effort::Object(&["none", "minimal", "low", "medium", "high", "xhigh"]),
            ..Dialect::COMMON
        },
        context_tokens: &[("openai/gpt-5", 400_000), ("anthropic/claude-", 200_000)],
        ..hosted("openrouter", "https://openrouter.ai/api/v1", ["OPENROUTER_BASE_URL", "OPENROUTER_API_KEY"])
    },
    Entry {
        takes_images: true,
        default_model: Some("gemini-2.5-flash"),
        dialect: Dialect { effort: Effort::Words(&["none", "minimal", "low", "medium", "high"]), ..Dialect::COMMON },
        context_tokens: &[("gemini-", 1_048_576)],
        ..hosted(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            ["GEMINI_BASE_URL", "GEMINI_API_KEY"],
        )
    },
    Entry {
        default_model: Some("mistral-medium-latest"),
        // It reports usage without being asked, and refuses fields that it does not know.
        dialect: Dialect {
            takes_user_after_tool: false,
            asks_for_usage: false,
            nine_character_ids: true,
            effort: Effort::Words(&["none", "high"]),
            ..Dialect::COMMON
        },
        ..hosted("mistral", "https://api.mistral.ai/v1", ["MISTRAL_BASE_URL", "MISTRAL_API_KEY"])
    },
    Entry {
        default_model: Some("openai/gpt-oss-120b"),
        dialect: Dialect { effort: Effort::ByModel, ..Dialect::COMMON },
        ..hosted("groq", "https://api.groq.com/openai/v1", ["GROQ_BASE_URL", "GROQ_API_KEY"])
    },
    Entry {
        // It overlooks the tool choice.
        dialect: Dialect {
            takes_no_choice: false,
            effort: Effort::Words(&["none", "low", "medium", "high"]),
            ..Dialect::COMMON
        },
        ..local("ollama", "http://127.0.0.1:11434/v1", ["OLLAMA_BASE_URL", "OLLAMA_API_KEY"])
    },
    Entry {
        dialect: Dialect { effort: Effort::Template, ..Dialect::COMMON },
        ..local("llamacpp", "http://127.0.0.1:8080/v1", ["LLAMACPP_BASE_URL", "LLAMACPP_API_KEY"])
    },
    Entry {
        dialect: Dialect { effort: Effort::Words(&["none", "low", "medium", "high"]), ..Dialect::COMMON },
        ..local("vllm", "http://127.0.0.1:8000/v1", ["VLLM_BASE_URL", "VLLM_API_KEY"])
    },
    Entry { api: Api::Scripted, ..local("scripted", "", ["", ""]) },
];

pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// How many tokens the model takes, where it is known.
    pub fn context_tokens_of(&self, model: &str) -> Option<u64> {
        self.context_tokens.iter().find(|(beginning, _)| model.starts_with(beginning)).map(|(_, tokens)| *tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for (position, entry) in ENTRIES.iter().enumerate() {
            assert!(ENTRIES[..position].iter().all(|other| other.name != entry.name), "{}", entry.name);
            let is_scripted = entry.api == Api::Scripted;
            assert_eq!(entry.base_url.is_empty(), is_scripted, "{}", entry.name);
            assert!(!entry.base_url.ends_with('/'), "{}", entry.name);
            assert!(!entry.needs_key || entry.base_url.starts_with("https://"), "{}", entry.name);
            let upper = entry.name.to_ascii_uppercase();
            if !is_scripted {
                assert_eq!(entry.key_variable, format!("{upper}_API_KEY"));
                assert_eq!(entry.base_url_variable, format!("{upper}_BASE_URL"));
            }
            assert_eq!(entry.default_model.is_some(), entry.needs_key, "{}", entry.name);
        }
    }
}
