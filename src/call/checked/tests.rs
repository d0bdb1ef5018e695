//! What is refused before anyone is asked, and with which words.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{CheckedCall, check};
use crate::config::{Config, Run, ToolConfig};
use crate::session::record::ToolCall;
use crate::tool::fake::{Fake, Ran};
use crate::tool::registry::Registry;
use crate::tool::{Effect, Refusal};

fn registry(config: &Config) -> Registry {
    let ran = Arc::new(Ran::default());
    let tools = vec![Fake::tool("peek", Effect::Read, false, &ran), Fake::tool("poke", Effect::SideEffect, true, &ran)];
    Registry::new(tools, config, false, &config.fan_out()).0
}

/// The call's only operation.
fn alone<'r>(call: &ToolCall, registry: &'r Registry, truncated: bool) -> Result<CheckedCall<'r>, Refusal> {
    let mut operations = check(call, registry, truncated);
    assert_eq!(operations.len(), 1);
    operations.remove(0).1
}

fn checked(name: &str, arguments: &str, truncated: bool) -> Result<Value, (String, String)> {
    let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None };
    let registry = registry(&Config::default());
    match alone(&call, &registry, truncated) {
        Ok(checked) => {
            assert_eq!((checked.id.to_string().as_str(), checked.tool.name()), ("c", name));
            Ok(checked.arguments)
        }
        Err(refusal) => {
            Err((refusal.code.to_owned(), format!("{} | {}", refusal.message, refusal.detail.unwrap_or_default())))
        }
    }
}

#[test]
fn arguments_are_taken_as_they_are_meant() {
    for (arguments, expected) in [
        (r#"{"do":"ok"}"#, json!({"do": "ok", "n": 0})),
        (r#"{"do":"ok","n":"7"}"#, json!({"do": "ok", "n": 7})),
        (r#""{\"do\":\"fail\"}""#, json!({"do": "fail", "n": 0})),
    ] {
        assert_eq!(checked("poke", arguments, false), Ok(expected), "{arguments}");
    }
}

#[test]
fn each_refusal_has_its_code_and_says_what_would_be_right() {
    for (name, arguments, truncated, code, words) in [
        ("poke", "", false, "invalid_arguments", "the required `do` is missing"),
        ("poke", "[]", false, "invalid_arguments", "they are an array. They were: []"),
        ("poke", r#"{"do":"#, false, "invalid_arguments", "EOF while parsing"),
        ("poke", r#"{"do":"#, true, "truncated_reply", "cut at the output limit"),
        ("poke", r#"{"do":"ok","do":"ok"}"#, false, "invalid_arguments", "stands twice"),
        ("poke", r#"{"do":"ok","m":1,"n":"x"}"#, false, "invalid_arguments", "there is no `m`"),
        ("poke", r#"{"do":"ok","m":1,"n":"x"}"#, false, "invalid_arguments", "`n`: expected integer, found a string"),
        // A whole call of a cut reply is checked like any other.
        ("poke", r#"{"do":1}"#, true, "invalid_arguments", "The arguments do not fit poke"),
        (
            "pok",
            r#"{"do":"ok"}"#,
            false,
            "unknown_tool",
            "There is no tool named \"pok\". | the nearest names are poke",
        ),
        ("zzzzz", "{}", false, "unknown_tool", "the tools are peek, poke"),
        ("", "{}", false, "unknown_tool", "The call names no tool."),
        (" POKE", "{}", false, "unknown_tool", "There is no tool named \" POKE\""),
        // Unreadable arguments are told before an unknown name: both have to be mended.
        ("pok", "{", false, "invalid_arguments", "one JSON object"),
    ] {
        let (found, message) = checked(name, arguments, truncated).unwrap_err();
        assert_eq!(found, code, "{name} {arguments}: {message}");
        assert!(message.contains(words), "{name} {arguments}: {message}");
    }
}

#[test]
fn a_tool_that_is_not_offered_is_known_all_the_same_but_never_suggested() {
    let mut config = Config::default();
    config.tools.insert("poke".to_owned(), ToolConfig { run: Some(Run::Deny), ..ToolConfig::default() });
    let registry = registry(&config);
    let call = |name: &str| ToolCall {
        id: "c".to_owned(),
        name: name.to_owned(),
        arguments: r#"{"do":"ok"}"#.to_owned(),
        opaque: None,
    };
    assert!(alone(&call("poke"), &registry, false).is_ok(), "the rules deny it, and say why");
    let refusal = alone(&call("pokk"), &registry, false).err().unwrap();
    assert!(!refusal.detail.unwrap().contains("poke"));
}

#[test]
fn a_very_long_name_is_quoted_in_part() {
    let (_, message) = checked(&"x".repeat(5000), "{}", false).unwrap_err();
    assert!(message.len() < 300, "{message}");
}
