//! Arguments against a tool's schema: every violation at once, in words that let the model mend its call.
//!
//! The only place that knows the `jsonschema` crate.

use std::fmt::Write;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::coercion::schema_at;
use crate::tool::Refusal;
use crate::tool::registry::nearest;

/// How many violations are listed; the rest are counted.
const VIOLATIONS_MAX: usize = 20;
/// How much of a value or of the crate's own wording is quoted.
const QUOTE_CHARACTERS_MAX: usize = 200;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    source: Value,
}

impl Schema {
    /// Compiles a schema. The error says what is wrong with the schema itself. Remote references are never fetched.
    pub fn compile(source: &Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(source).map_err(|error| clip(&error.to_string()))?;
        Ok(Self { validator, source: source.clone() })
    }

    /// Every violation, one a line: where, and what was expected there.
    pub fn check_violations(&self, value: &Value) -> Vec<String> {
        self.validator.iter_errors(value).flat_map(|error| self.describe(&error)).collect()
    }

    /// Refuses arguments that do not fit.
    pub fn ensure_fits(&self, tool: &str, arguments: &Value) -> Result<(), Refusal> {
        let violations = self.check_violations(arguments);
        if violations.is_empty() {
            return Ok(());
        }
        let mut message = format!("The arguments do not fit {tool}:");
        for violation in violations.iter().take(VIOLATIONS_MAX) {
            let _ = write!(message, "\n- {violation}");
        }
        if violations.len() > VIOLATIONS_MAX {
            let _ = write!(message, "\n- and {} more", violations.len() - VIOLATIONS_MAX);
        }
        Err(Refusal::new("invalid_arguments", message))
    }

    fn describe(&self, error: &ValidationError<'_>) -> Vec<String> {
        let path = error.instance_path().to_string();
        let at = if path.is_empty() { "arguments".to_owned() } else { format!("`{}`", path.trim_start_matches('/')) };
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                unexpected.iter().map(|name| self.describe_unknown(&path, &at, name)).collect()
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().map_or_else(|| property.to_string(), str::to_owned);
                vec![format!("{at}: the required `{name}` is missing{}", self.expected_at(&path, &name))]
            }
            ValidationErrorKind::Type { kind } => {
                let expected = match kind {
                    TypeKind::Single(one) => one.to_string(),
                    TypeKind::Multiple(several) => {
                        several.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or ")
                    }
                };
                let found = super::arguments::kind(error.instance());
                vec![format!("{at}: expected {expected}, found {found}")]
            }
            _ => vec![format!("{at}: {}", clip(&error.to_string()))],
        }
    }

    fn describe_unknown(&self, path: &str, at: &str, name: &str) -> String {
        let known = self.names_at(path);
        let mut text = format!("{at}: there is no `{}`", clip(name));
        if let Some(near) = nearest(name, known.iter().map(String::as_str)).first() {
            let _ = write!(text, "; did you mean `{near}`?");
        } else if !known.is_empty() {
            let _ = write!(text, "; it takes {}", known.join(", "));
        }
        text
    }

    fn names_at(&self, path: &str) -> Vec<String> {
        let schema = schema_at(&self.source, &segments(path));
        let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
    }

    fn expected_at(&self, path: &str, name: &str) -> String {
        let mut segments = segments(path);
        segments.push(name.to_owned());
        match schema_at(&self.source, &segments).and_then(|schema| schema.get("type")).and_then(Value::as_str) {
            Some(expected) => format!(" ({expected})"),
            None => String::new(),
        }
    }
}

/// The names and indexes of a JSON pointer.
fn segments(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect()
}

fn clip(text: &str) -> String {
    let text = &*crate::mask::apply(text);
    if text.chars().count() <= QUOTE_CHARACTERS_MAX {
        return text.to_owned();
    }
    text.chars().take(QUOTE_CHARACTERS_MAX).chain(" ...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_violation_is_told_with_its_place_and_the_nearest_name() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "start_line": {"type": "integer", "minimum": 1},
                "edits": {"type": "array", "items": {"type": "object", "properties": {"before": {"type": "string"}}, "additionalProperties": false}},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let compiled = Schema::compile(&schema).expect("the schema is sound");
        let arguments = json!({"startline": 3, "start_line": 0, "edits": [{"befor": "x"}, 7]});
        let refusal = compiled.ensure_fits("read", &arguments).expect_err("they do not fit");
        let mut lines: Vec<&str> = refusal.message.lines().collect();
        lines[1..].sort_unstable();
        assert_eq!(
            lines,
            [
                "The arguments do not fit read:",
                "- `edits/0`: there is no `befor`; did you mean `before`?",
                "- `edits/1`: expected object, found a number",
                "- `start_line`: 0 is less than the minimum of 1",
                "- arguments: the required `path` is missing (string)",
                "- arguments: there is no `startline`; did you mean `start_line`?",
            ]
        );
        assert!(compiled.ensure_fits("read", &json!({"path": "x"})).is_ok());
    }
}
