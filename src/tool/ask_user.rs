//! `ask_user`: a question to the person. It always waits, and touches nothing.
//!
//! Putting the question and taking the answer is a person's decision like any other (`turn::decisions`); what is run here
//! only hands the answer on.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::target;
use super::{Assessment, Effect, Outcome, Overlay, Preview, Refusal, Surroundings, Tool, Work, schema};
use crate::workspace::World;

pub const NAME: &str = "ask_user";

/// How much of a question its one-line summary shows.
const SUMMARY_CHARACTERS_MAX: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What the person is asked, in plain text.
    #[schemars(length(min = 1, max = 8000))]
    question: String,
    /// Answers to choose from, each different.
    #[serde(default)]
    #[schemars(length(max = 20), inner(length(min = 1, max = 500)))]
    choices: Vec<String>,
}

/// The tool `ask_user`.
pub struct AskUser {
    parameters: Value,
}

impl Default for AskUser {
    fn default() -> Self {
        Self::new()
    }
}

impl AskUser {
    pub fn new() -> Self {
        Self { parameters: schema::of::<Arguments>() }
    }
}

impl Tool for AskUser {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> &'static str {
        include_str!("ask_user.md").trim_ascii_end()
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn is_concurrent(&self) -> bool {
        false
    }

    /// The same question later may have another answer.
    fn asks_anew(&self, _arguments: &Value) -> bool {
        true
    }

    fn look(&self, _arguments: &Value, _surroundings: &Surroundings<'_>, _world: &mut World) {}

    fn assess(&self, arguments: &Value, _world: &World, _overlay: &Overlay) -> Result<Assessment, Refusal> {
        let Arguments { question, choices } = target::arguments(arguments)?;
        ensure_askable(&question, &choices)?;
        Ok(Assessment {
            summary: summary(&question),
            accesses: Vec::new(),
            preview: Preview::Question { question, choices, schema: None, round: None },
            files: Vec::new(),
            after: Overlay::new(),
            moot: None,
        })
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        match work.answer {
            Some(answer) => Outcome { code: Some("answered"), ..Outcome::ok(answer) },
            None => Outcome::error("panic", "The question was not answered; this is a fault of attini's own."),
        }
    }
}

fn ensure_askable(question: &str, choices: &[String]) -> Result<(), Refusal> {
    let refuse = |message: &str| Err(Refusal::new("invalid_arguments", message));
    if question.trim().is_empty() {
        return refuse("the question is empty");
    }
    if choices.iter().any(|choice| choice.trim().is_empty()) {
        return refuse("one of the choices is empty");
    }
    let different: HashSet<&str> = choices.iter().map(|choice| choice.trim()).collect();
    if different.len() < choices.len() {
        return refuse("two of the choices are the same");
    }
    Ok(())
}

/// The question on one line, or its beginning. The whole stands in the preview.
fn summary(question: &str) -> String {
    let line = question.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SUMMARY_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::validation::Schema;

    fn assess(arguments: &Value) -> Result<Assessment, Refusal> {
        AskUser::new().assess(arguments, &World::default(), &Overlay::new())
    }

    #[test]
    fn a_question_is_shown_whole_and_touches_nothing() {
        let question = "Which one?\n\tThe first\u{1b} or the second?".to_owned();
        let assessment = assess(&json!({"question": question, "choices": ["one", "two"]})).unwrap();
        assert_eq!(assessment.summary, "Which one? The first\u{1b} or the second?");
        assert_eq!(assessment.accesses, []);
        let choices = vec!["one".to_owned(), "two".to_owned()];
        let shown = |question, choices| Preview::Question { question, choices, schema: None, round: None };
        assert_eq!(assessment.preview, shown(question, choices));
        let long = assess(&json!({"question": "ü".repeat(4000)})).unwrap();
        assert_eq!(long.summary.chars().count(), SUMMARY_CHARACTERS_MAX + 3);
        assert_eq!(long.preview, shown("ü".repeat(4000), Vec::new()));
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for (arguments, words) in [
            (json!({"question": " \n"}), "question is empty"),
            (json!({"question": "?", "choices": ["a", " "]}), "choices is empty"),
            (json!({"question": "?", "choices": ["a", "b", "a "]}), "are the same"),
        ] {
            let refusal = assess(&arguments).unwrap_err();
            assert_eq!(refusal.code, "invalid_arguments");
            assert!(refusal.message.contains(words), "{}", refusal.message);
        }
    }

    #[test]
    fn questions_and_choices_are_bounded_by_the_schema() {
        let tool = AskUser::new();
        let schema = Schema::compile(tool.parameters()).unwrap();
        let fits = |arguments: Value| schema.check_violations(&arguments).is_empty();
        assert!(fits(json!({"question": "?"})));
        assert!(fits(json!({"question": "?".repeat(8000), "choices": vec!["c"; 20]})));
        for arguments in [
            json!({}),
            json!({"question": ""}),
            json!({"question": "?".repeat(8001)}),
            json!({"question": "?", "choices": vec!["c"; 21]}),
            json!({"question": "?", "choices": [""]}),
            json!({"question": "?", "choices": ["c".repeat(501)]}),
            json!({"question": "?", "choices": "a"}),
            json!({"question": "?", "default": "a"}),
        ] {
            assert!(!fits(arguments.clone()), "{arguments}");
        }
    }
}
