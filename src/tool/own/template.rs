//! A word of an own tool's command: text with placeholders for arguments.
//!
//! `{name}` is a placeholder where `name` is letters, digits, `_` and `-`; `{{name}}` stands for the text `{name}`; every
//! other brace is itself, so that programs of other languages need no care.

use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The argument of that name.
    Argument(String),
}

impl Template {
    pub fn new(word: &str) -> Self {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = word;
        while let Some((before, behind)) = rest.split_once('{') {
            text.push_str(before);
            let (inner, is_doubled) = behind.strip_prefix('{').map_or((behind, false), |inner| (inner, true));
            let end = inner.find(|character: char| !is_in_name(character)).unwrap_or(inner.len());
            let (name, close) = inner.split_at(end);
            match (is_doubled, close.strip_prefix('}')) {
                (false, Some(after)) if !name.is_empty() => {
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(Part::Argument(name.to_owned()));
                    rest = after;
                }
                (true, Some(after)) if !name.is_empty() && after.starts_with('}') => {
                    text.push('{');
                    text.push_str(name);
                    text.push('}');
                    rest = &after[1..];
                }
                _ => {
                    text.push('{');
                    rest = behind;
                }
            }
        }
        text.push_str(rest);
        if !text.is_empty() || parts.is_empty() {
            parts.push(Part::Text(text));
        }
        Self { parts }
    }

    /// The names of its placeholders.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Argument(name) => Some(name.as_str()),
        })
    }

    /// The word for these arguments: strings as they are, all else as JSON. `None`: an argument that it needs is absent,
    /// and with it the whole word.
    pub fn fill(&self, arguments: &Map<String, Value>) -> Option<String> {
        let mut word = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => word.push_str(text),
                Part::Argument(name) => match arguments.get(name)? {
                    Value::String(text) => word.push_str(text),
                    other => word.push_str(&other.to_string()),
                },
            }
        }
        Some(word)
    }
}

fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn filled(word: &str, arguments: &Value) -> Option<String> {
        Template::new(word).fill(arguments.as_object().unwrap())
    }

    #[test]
    fn a_placeholder_is_replaced_and_nothing_is_split() {
        let arguments = json!({"file": "a b; rm -rf {n} $(x) '\"", "n": 7, "on": true, "list": ["a", 1], "none": null,
            "dash": "--force", "empty": "", "text-id": "x"});
        for (word, expected) in [
            ("{file}", "a b; rm -rf {n} $(x) '\""),
            ("--file={file}!", "--file=a b; rm -rf {n} $(x) '\"!"),
            ("{n}{on}", "7true"),
            ("{list}", "[\"a\",1]"),
            ("{none}", "null"),
            ("{dash}", "--force"),
            ("{empty}", ""),
            ("{text-id}", "x"),
            ("", ""),
            ("plain", "plain"),
            ("{{n}}", "{n}"),
            ("{{n}}={n}", "{n}=7"),
            ("{{n}", "{7"),
            ("{n}}", "7}"),
            ("{{{n}}}", "{{n}}"),
            ("{}", "{}"),
            ("{ print $1 }", "{ print $1 }"),
            ("{{.Name}}", "{{.Name}}"),
            ("a{", "a{"),
            ("größe{n}ß", "größe7ß"),
        ] {
            assert_eq!(filled(word, &arguments).as_deref(), Some(expected), "{word}");
        }
    }

    #[test]
    fn a_word_goes_with_an_absent_argument() {
        for word in ["{a}", "--a={a}", "{n}{a}"] {
            assert_eq!(filled(word, &json!({"n": 1})), None, "{word}");
        }
        assert_eq!(Template::new("x{a}{{b}}{c-d}").arguments().collect::<Vec<_>>(), ["a", "c-d"]);
    }

    proptest! {
        /// Whatever an argument holds, it stands in the word once and unchanged, and the rest is as it was written.
        #[test]
        fn an_argument_is_never_read_again(before in "[a-z={} ]{0,6}", value in "\\PC{0,20}", behind in "[a-z= ]{0,6}") {
            prop_assume!(!before.ends_with('{') && !before.contains("{a}"));
            let whole = Template::new(&format!("{before}{{a}}{behind}"));
            prop_assume!(whole.arguments().count() == 1);
            let arguments = json!({"a": value});
            let word = whole.fill(arguments.as_object().unwrap());
            let head = filled(&before, &json!({}));
            prop_assume!(head.is_some());
            prop_assert_eq!(word, Some(format!("{}{}{}", head.unwrap_or_default(), value, behind)));
        }
    }
}
