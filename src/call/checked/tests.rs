//! What is refused before anyone is asked, and with which words.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{CheckedCall, check, check_knowing};
use crate::config::{Config, Defer, FanOutConfig, McpConfig, Run, ToolConfig};
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

/// A registry in which the tools of the server `s` are deferred.
fn deferring() -> Registry {
    let ran = Arc::new(Ran::default());
    let mut config = Config::default();
    config.mcp.insert("s".to_owned(), McpConfig { defer: Defer::Always, ..McpConfig::default() });
    let fan_out = FanOutConfig { enabled: Some(true), ..FanOutConfig::default() };
    config.tools.insert("s__fake_1".to_owned(), ToolConfig { fan_out, ..ToolConfig::default() });
    let servers = (0..3).map(|number| Fake::of_server("s", number, Effect::SideEffect, &ran));
    let tools = std::iter::once(Fake::tool("peek", Effect::Read, false, &ran)).chain(servers).collect();
    Registry::new(tools, &config, false, &config.fan_out()).0
}

fn call_of(name: &str, arguments: &Value) -> ToolCall {
    ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments: arguments.to_string(), opaque: None }
}

#[test]
fn a_deferred_tool_is_called_by_run_tool_or_by_its_name() {
    let registry = deferring();
    for call in [
        call_of("run_tool", &json!({"name": "s__fake_0", "arguments": {"n": "7"}})),
        call_of("run_tool", &json!({"name": "s__fake_0", "arguments": "{\"n\":7}"})),
        call_of("s__fake_0", &json!({"n": 7})),
    ] {
        let checked = alone(&call, &registry, false).unwrap();
        assert_eq!((checked.tool.name(), checked.arguments), ("s__fake_0", json!({"n": 7})));
    }
    let ops = json!([{"n": 1}, {"n": "x"}, {"n": 3}]);
    for ops in [ops.clone(), Value::from(ops.to_string())] {
        let call = call_of("run_tool", &json!({"name": "s__fake_1", "arguments": {"ops": ops}}));
        let operations = check(&call, &registry, false);
        let ids: Vec<String> = operations.iter().map(|(id, _)| id.to_string()).collect();
        assert_eq!(ids, ["c#1", "c#2", "c#3"]);
        assert_eq!(operations.iter().filter(|(_, checked)| checked.is_ok()).count(), 2);
        assert_eq!(crate::call::fanned::operation_count(&call), Some(3));
    }
}

#[test]
fn what_run_tool_cannot_run_is_refused_with_what_would_be_right() {
    let registry = deferring();
    for (arguments, code, words) in [
        (json!({"name": "fake_2"}), "unknown_tool", "the nearest names are s__fake_2, s__fake_0, s__fake_1"),
        (
            json!({"name": "zzz"}),
            "unknown_tool",
            "the tools are peek, find_tools, run_tool, and 3 more that `find_tools` searches",
        ),
        (json!({"name": "run_tool", "arguments": {"name": "peek"}}), "invalid_arguments", "run_tool cannot run itself"),
        (json!({"name": "s__fake_0", "n": 1}), "invalid_arguments", "`n` stands beside `name` and `arguments`"),
    ] {
        let refusal = alone(&call_of("run_tool", &arguments), &registry, false).map(|_| ()).unwrap_err();
        let text = format!("{} | {}", refusal.message, refusal.detail.unwrap_or_default());
        assert_eq!(refusal.code, code, "{arguments}");
        assert!(text.contains(words), "{arguments}: {text}");
    }
}

#[test]
fn a_schema_that_was_not_seen_comes_with_the_refusal_and_once() {
    let registry = deferring();
    let mut fetched = BTreeSet::from(["s__fake_2".to_owned()]);
    let mut codes = |name: &str, arguments: &Value| -> Vec<String> {
        let operations = check_knowing(&call_of(name, arguments), &registry, false, &mut fetched);
        let refusals = operations.into_iter().map(|(_, checked)| checked.map(|_| ()).unwrap_err());
        refusals
            .map(|refusal| {
                let has_schema = refusal.message.contains(r#""required":["n"]"#);
                assert_eq!(refusal.code == "schema_returned", has_schema, "{}", refusal.message);
                assert!(refusal.message.contains("do not fit"), "{}", refusal.message);
                refusal.code.to_owned()
            })
            .collect()
    };
    assert_eq!(codes("run_tool", &json!({"name": "s__fake_0"})), ["schema_returned"]);
    assert_eq!(codes("s__fake_0", &json!({"n": "x"})), ["invalid_arguments"]);
    assert_eq!(codes("run_tool", &json!({"name": "s__fake_2"})), ["invalid_arguments"]);
    let several = json!({"name": "s__fake_1", "arguments": {"ops": [{}, {}]}});
    assert_eq!(codes("run_tool", &several), ["schema_returned", "invalid_arguments"]);
    assert_eq!(codes("peek", &json!({})), ["invalid_arguments"]);
    // Whoever is no model needs no schema.
    let refusal = alone(&call_of("s__fake_0", &json!({})), &registry, false).map(|_| ()).unwrap_err();
    assert_eq!(refusal.code, "invalid_arguments");
}
