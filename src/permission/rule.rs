//! One rule as people write it: a line of JSON, or short on the command line.
//!
//! What cannot be understood is an error that says what was meant, never a rule that is silently something else. What
//! a rule matches is decided in [`super::judge`].

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{Rule, host};
use crate::config::nearest::{nearest, suggestion};
use crate::session::record::Scope;

/// A longer line is refused.
pub const RULE_BYTES_MAX: usize = 64 * 1024;

const TYPES: [&str; 5] = ["command", "write", "read", "fetch", "tool"];

/// How much of a wrong value an error shows.
const SHOWN_CHARACTERS_MAX: usize = 60;

impl Rule {
    /// Reads one line of a `permissions.jsonl`.
    pub fn parse(line: &str) -> Result<Self, String> {
        Fields::read(line)?.into_rule(None)
    }

    /// Reads RULE of `--allow` and `--deny`: JSON, which need not repeat `allow`, or short, `command:cargo test`.
    pub fn parse_option(text: &str, allow: bool) -> Result<Self, String> {
        let rule = if text.trim_start().starts_with('{') {
            Fields::read(text)?.into_rule(Some(allow))?
        } else {
            parse_short(text, allow)?
        };
        if rule.turn().is_some() {
            return Err("`turn` has a meaning in a session's file alone".to_owned());
        }
        Ok(rule)
    }

    pub fn allows(&self) -> bool {
        match self {
            Self::Command { allow, .. }
            | Self::Write { allow, .. }
            | Self::Read { allow, .. }
            | Self::Fetch { allow, .. }
            | Self::Tool { allow, .. } => *allow,
        }
    }

    pub fn turn(&self) -> Option<u64> {
        match self {
            Self::Command { turn, .. }
            | Self::Write { turn, .. }
            | Self::Read { turn, .. }
            | Self::Fetch { turn, .. }
            | Self::Tool { turn, .. } => *turn,
        }
    }

    /// The same rule, for one turn only or, with `None`, for good.
    #[must_use]
    pub fn with_turn(mut self, new: Option<u64>) -> Self {
        match &mut self {
            Self::Command { turn, .. }
            | Self::Write { turn, .. }
            | Self::Read { turn, .. }
            | Self::Fetch { turn, .. }
            | Self::Tool { turn, .. } => *turn = new,
        }
        self
    }

    /// The rule as a line of a file, without the line's end.
    pub fn to_line(&self) -> String {
        // A rule is made of strings, numbers and booleans; that cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Refuses `turn` in any but a session's file.
pub fn ensure_turn_fits(rule: &Rule, scope: Scope) -> Result<(), String> {
    if rule.turn().is_some() && !matches!(scope, Scope::Session | Scope::Turn) {
        return Err("`turn` has a meaning in a session's file alone".to_owned());
    }
    Ok(())
}

fn parse_short(text: &str, allow: bool) -> Result<Rule, String> {
    let Some((kind, rest)) = text.split_once(':') else {
        return Err(format!(
            "`{}` is no rule: write KIND:WHAT, such as `command:cargo test`, `write:src`, `read:../x`, \
             `fetch:docs.example.org` or `tool:fs__*`, or a rule's JSON",
            excerpt(text)
        ));
    };
    let rest_text = rest.to_owned();
    let turn = None;
    match kind {
        "command" => {
            let Some(words) = shlex::split(rest) else {
                return Err(format!("`{}` does not split into words: a quote is left open", excerpt(rest)));
            };
            if words.is_empty() {
                let every = if allow { "--allow" } else { "--deny" };
                return Err(format!("`command:` names no command; for every command write `{every} tool:command`"));
            }
            Ok(Rule::Command { allow, args: None, args_prefix: Some(words), background: false, turn })
        }
        "write" => Ok(Rule::Write { allow, path: checked_path(rest_text)?, turn }),
        "read" => Ok(Rule::Read { allow, path: checked_path(rest_text)?, turn }),
        "fetch" => Ok(Rule::Fetch { allow, host: checked_host(rest_text)?, turn }),
        "tool" => Ok(Rule::Tool { allow, name: checked_tool_name(rest_text)?, turn }),
        unknown => Err(unknown_type(unknown)),
    }
}

/// The fields of a JSON object as they stand there; an object type would keep the last of two equal ones in silence.
struct Fields(Vec<(String, Value)>);

impl Fields {
    fn read(text: &str) -> Result<Self, String> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object such as {\"type\":\"read\",\"allow\":true,\"path\":\"../x\"}")
            }

            fn visit_map<Map: MapAccess<'de>>(self, mut map: Map) -> Result<Fields, Map::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        if text.len() > RULE_BYTES_MAX {
            return Err(format!("a rule has at most {RULE_BYTES_MAX} bytes"));
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let fields = deserializer.deserialize_map(FieldsVisitor).map_err(|error| not_json(&error))?;
        deserializer.end().map_err(|error| not_json(&error))?;
        for (index, (name, _)) in fields.0.iter().enumerate() {
            if fields.0[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(format!("the field `{name}` stands there twice"));
            }
        }
        Ok(fields)
    }

    /// `option` is what the option says where `allow` may be left out.
    fn into_rule(mut self, option: Option<bool>) -> Result<Rule, String> {
        let kind = match self.take("type") {
            Some(Value::String(kind)) => kind,
            Some(other) => return Err(wrong("type", "a string", &other)),
            None => return Err(format!("the field `type` is missing; it is one of {}", TYPES.join(", "))),
        };
        let own_fields: &[&str] = match kind.as_str() {
            "command" => &["type", "allow", "args", "args_prefix", "background", "turn"],
            "write" | "read" => &["type", "allow", "path", "turn"],
            "fetch" => &["type", "allow", "host", "turn"],
            "tool" => &["type", "allow", "name", "turn"],
            unknown => return Err(unknown_type(unknown)),
        };
        for (name, _) in &self.0 {
            if !own_fields.contains(&name.as_str()) {
                let meant = suggestion(name, own_fields, "fields");
                return Err(format!("a {kind} rule has no field `{}`{meant}", excerpt(name)));
            }
        }
        let allow = self.take_allow(option)?;
        let turn = match self.take("turn") {
            None => None,
            Some(value) => Some(value.as_u64().ok_or_else(|| wrong("turn", "the number of a turn", &value))?),
        };
        match kind.as_str() {
            "command" => self.into_command(allow, turn),
            "write" => Ok(Rule::Write { allow, path: checked_path(self.take_text(&kind, "path")?)?, turn }),
            "read" => Ok(Rule::Read { allow, path: checked_path(self.take_text(&kind, "path")?)?, turn }),
            "fetch" => Ok(Rule::Fetch { allow, host: checked_host(self.take_text(&kind, "host")?)?, turn }),
            _ => Ok(Rule::Tool { allow, name: checked_tool_name(self.take_text(&kind, "name")?)?, turn }),
        }
    }

    fn into_command(mut self, allow: bool, turn: Option<u64>) -> Result<Rule, String> {
        let args = self.take_words("args")?;
        let args_prefix = self.take_words("args_prefix")?;
        match (&args, &args_prefix) {
            (Some(_), Some(_)) => {
                return Err(
                    "`args` (the whole command) and `args_prefix` (its first words) exclude each other".to_owned()
                );
            }
            (None, None) => {
                return Err(
                    "a command rule needs `args` (the whole command) or `args_prefix` (its first words)".to_owned()
                );
            }
            (Some(words), None) if words.is_empty() => {
                return Err("`args` is a whole command and has at least one word; for every command write \
                            `\"args_prefix\":[]`"
                    .to_owned());
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
        let background = match self.take("background") {
            None => false,
            Some(Value::Bool(background)) => background,
            Some(other) => return Err(wrong("background", "true or false", &other)),
        };
        if background && !allow {
            return Err("`background` widens rules that allow; a rule that denies matches either way".to_owned());
        }
        Ok(Rule::Command { allow, args, args_prefix, background, turn })
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.0.iter().position(|(field, _)| field == name)?;
        Some(self.0.remove(index).1)
    }

    fn take_allow(&mut self, option: Option<bool>) -> Result<bool, String> {
        match (self.take("allow"), option) {
            (Some(Value::Bool(allow)), Some(option)) if allow != option => {
                let option = if option { "--allow" } else { "--deny" };
                Err(format!("`\"allow\":{allow}` contradicts {option}"))
            }
            (Some(Value::Bool(allow)), _) => Ok(allow),
            (Some(other), _) => Err(wrong("allow", "true or false", &other)),
            (None, Some(option)) => Ok(option),
            (None, None) => Err("the field `allow` is missing; it is true or false".to_owned()),
        }
    }

    fn take_text(&mut self, kind: &str, name: &str) -> Result<String, String> {
        match self.take(name) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(wrong(name, "a string", &other)),
            None => Err(format!("a {kind} rule needs the field `{name}`")),
        }
    }

    fn take_words(&mut self, name: &str) -> Result<Option<Vec<String>>, String> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let words = value.as_array().and_then(|array| {
            array.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
        });
        match words {
            Some(words) if words.first().is_some_and(String::is_empty) => {
                Err(format!("the first word of `{name}` is the program and not empty"))
            }
            Some(words) => Ok(Some(words)),
            None => Err(wrong(name, "an array of strings", &value)),
        }
    }
}

fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // A rule is one line; its number would be taken for the file's.
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(before, _)| before);
    format!("it is not a rule's JSON: {text} (column {})", error.column())
}

fn unknown_type(kind: &str) -> String {
    match nearest(kind, TYPES) {
        Some(meant) => format!("unknown type `{}`; did you mean `{meant}`?", excerpt(kind)),
        None => format!("unknown type `{}`; the types are {}", excerpt(kind), TYPES.join(", ")),
    }
}

fn wrong(name: &str, wanted: &str, found: &Value) -> String {
    format!("`{name}` is {wanted}, not {}", excerpt(&found.to_string()))
}

fn excerpt(text: &str) -> String {
    let text = &*crate::mask::apply(text);
    let mut shown: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

fn checked_path(path: String) -> Result<String, String> {
    if path.is_empty() {
        return Err("the path is empty; the whole workspace is `.`".to_owned());
    }
    if path == "~" || path.starts_with("~/") {
        return Err("`~` is not expanded: write the path out, or `./~` for a file of that name".to_owned());
    }
    if path.contains('\0') {
        return Err("a path holds no NUL byte".to_owned());
    }
    Ok(path)
}

fn checked_host(text: String) -> Result<String, String> {
    if text.is_empty() {
        return Err("the host is empty; `*` is every public host".to_owned());
    }
    if host::is_pattern(&text) {
        return Ok(text);
    }
    Err(format!(
        "`{}` is no host: write `docs.example.org`, `*.example.org` or `*`, without scheme, port or path",
        excerpt(&text)
    ))
}

fn checked_tool_name(name: String) -> Result<String, String> {
    let stem = name.strip_suffix('*').unwrap_or(&name);
    if name.is_empty() {
        return Err("the tool's name is empty; `*` is every tool".to_owned());
    }
    if stem.contains(|character: char| character == '*' || character.is_whitespace()) {
        return Err(format!("`{}` is no tool's name: a `*` stands at the end alone", excerpt(&name)));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_rule_is_read_and_written_back() {
        for line in [
            r#"{"type":"command","allow":true,"args":["cargo","test"]}"#,
            r#"{"type":"command","allow":true,"args_prefix":["cargo","test"],"background":true}"#,
            r#"{"type":"command","allow":false,"args_prefix":[]}"#,
            r#"{"type":"write","allow":true,"path":"src"}"#,
            r#"{"type":"read","allow":true,"path":"../shared","turn":3}"#,
            r#"{"type":"fetch","allow":true,"host":"*.example.org"}"#,
            r#"{"type":"tool","allow":true,"name":"fs__*"}"#,
        ] {
            let rule = Rule::parse(line).unwrap();
            assert_eq!(rule.to_line(), line);
            assert_eq!(serde_json::from_str::<Rule>(line).unwrap(), rule, "the derived reader agrees");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_told_with_what_was_meant() {
        for (line, expected) in [
            (r#"{"type":"comand","allow":true}"#, "unknown type `comand`; did you mean `command`?"),
            (r#"{"type":"zzz"}"#, "unknown type `zzz`; the types are command, write, read, fetch, tool"),
            (r#"{"allow":true}"#, "the field `type` is missing; it is one of command, write, read, fetch, tool"),
            (r#"{"type":1}"#, "`type` is a string, not 1"),
            (r#"{"type":"read","path":"x"}"#, "the field `allow` is missing; it is true or false"),
            (r#"{"type":"read","allow":"yes","path":"x"}"#, "`allow` is true or false, not \"yes\""),
            (r#"{"type":"read","allow":true,"paht":"x"}"#, "a read rule has no field `paht`; did you mean `path`?"),
            (
                r#"{"type":"read","allow":true,"path":"x","zz":1}"#,
                "a read rule has no field `zz`; the fields are type, allow, path, turn",
            ),
            (r#"{"type":"write","allow":true}"#, "a write rule needs the field `path`"),
            (r#"{"type":"write","allow":true,"path":""}"#, "the path is empty; the whole workspace is `.`"),
            (
                r#"{"type":"write","allow":true,"path":"~/x"}"#,
                "`~` is not expanded: write the path out, or `./~` for a file of that name",
            ),
            (r#"{"type":"read","allow":true,"path":["x"]}"#, "`path` is a string, not [\"x\"]"),
            (r#"{"type":"read","allow":true,"allow":false,"path":"x"}"#, "the field `allow` stands there twice"),
            (
                r#"{"type":"command","allow":true}"#,
                "a command rule needs `args` (the whole command) or `args_prefix` (its first words)",
            ),
            (
                r#"{"type":"command","allow":true,"args":["a"],"args_prefix":["a"]}"#,
                "`args` (the whole command) and `args_prefix` (its first words) exclude each other",
            ),
            (
                r#"{"type":"command","allow":true,"args":[]}"#,
                "`args` is a whole command and has at least one word; for every command write `\"args_prefix\":[]`",
            ),
            (r#"{"type":"command","allow":true,"args":[""]}"#, "the first word of `args` is the program and not empty"),
            (
                r#"{"type":"command","allow":true,"args":"cargo test"}"#,
                "`args` is an array of strings, not \"cargo test\"",
            ),
            (r#"{"type":"command","allow":true,"args":["a"],"background":1}"#, "`background` is true or false, not 1"),
            (
                r#"{"type":"command","allow":false,"args":["a"],"background":true}"#,
                "`background` widens rules that allow; a rule that denies matches either way",
            ),
            (
                r#"{"type":"fetch","allow":true,"host":"https://x.org/"}"#,
                "`https://x.org/` is no host: write `docs.example.org`, `*.example.org` or `*`, without scheme, port or \
                 path",
            ),
            (r#"{"type":"fetch","allow":true,"host":""}"#, "the host is empty; `*` is every public host"),
            (r#"{"type":"tool","allow":true,"name":""}"#, "the tool's name is empty; `*` is every tool"),
            (r#"{"type":"tool","allow":true,"name":"*x"}"#, "`*x` is no tool's name: a `*` stands at the end alone"),
            (r#"{"type":"tool","allow":true,"name":"x","turn":-1}"#, "`turn` is the number of a turn, not -1"),
            (
                "[1]",
                "it is not a rule's JSON: invalid type: sequence, expected an object such as \
                 {\"type\":\"read\",\"allow\":true,\"path\":\"../x\"} (column 0)",
            ),
            (
                r#"{"type":"read","allow":true,"path":"x"} x"#,
                "it is not a rule's JSON: trailing characters (column 41)",
            ),
            ("{", "it is not a rule's JSON: EOF while parsing an object (column 1)"),
        ] {
            assert_eq!(Rule::parse(line).unwrap_err(), expected, "{line}");
        }
        assert!(Rule::parse(&" ".repeat(RULE_BYTES_MAX + 1)).unwrap_err().starts_with("a rule has at most"));
    }

    #[test]
    fn short_rules_are_read() {
        for (text, expected) in [
            ("command:cargo test", r#"{"type":"command","allow":true,"args_prefix":["cargo","test"]}"#),
            (
                "command:git commit -m 'a b'",
                r#"{"type":"command","allow":true,"args_prefix":["git","commit","-m","a b"]}"#,
            ),
            ("write:src", r#"{"type":"write","allow":true,"path":"src"}"#),
            ("read:../x:y", r#"{"type":"read","allow":true,"path":"../x:y"}"#),
            ("fetch:docs.example.org", r#"{"type":"fetch","allow":true,"host":"docs.example.org"}"#),
            ("tool:fs__*", r#"{"type":"tool","allow":true,"name":"fs__*"}"#),
            (r#"{"type":"tool","name":"x"}"#, r#"{"type":"tool","allow":true,"name":"x"}"#),
            (r#" {"type":"tool","allow":true,"name":"x"}"#, r#"{"type":"tool","allow":true,"name":"x"}"#),
        ] {
            assert_eq!(Rule::parse_option(text, true).unwrap().to_line(), expected);
        }
        assert!(!Rule::parse_option("write:src", false).unwrap().allows());
    }

    #[test]
    fn short_rules_that_are_none_are_told() {
        for (text, expected) in [
            ("comand:x", "unknown type `comand`; did you mean `command`?"),
            ("command:", "`command:` names no command; for every command write `--deny tool:command`"),
            ("command:a 'b", "`a 'b` does not split into words: a quote is left open"),
            ("read:", "the path is empty; the whole workspace is `.`"),
            (r#"{"type":"tool","allow":true,"name":"x"}"#, "`\"allow\":true` contradicts --deny"),
            (r#"{"type":"tool","name":"x","turn":1}"#, "`turn` has a meaning in a session's file alone"),
        ] {
            assert_eq!(Rule::parse_option(text, false).unwrap_err(), expected, "{text}");
        }
        assert!(
            Rule::parse_option("cargo test", true).unwrap_err().starts_with("`cargo test` is no rule: write KIND:WHAT")
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_rule_or_an_error(text in ".{0,60}") {
            let _ = Rule::parse(&text);
            let _ = Rule::parse_option(&text, true);
        }
    }
}
