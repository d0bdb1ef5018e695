//! One history that two providers made by turns, as each of them is told of it.

use super::*;
use crate::provider::anthropic::request::body;
use crate::provider::catalogue::Dialect;
use crate::provider::openai;

fn by(provider: &str, text: &str, reasoning: &str, calls: Vec<ToolCall>, opaque: Value) -> Message {
    Message::Assistant(AssistantMessage {
        provider: provider.to_owned(),
        model: "m".to_owned(),
        text: text.to_owned(),
        reasoning: reasoning.to_owned(),
        tool_calls: calls,
        opaque: Some(opaque),
    })
}

/// Each provider thinks, calls, and answers; the second one's calls are named and identified as the first takes none.
fn history() -> Vec<Message> {
    let signed = call("toolu_01", "read", "{\"path\":\"a\"}");
    let mut other = call("functions.read:1", "read.file", "{\"path\":\"b\"");
    other.opaque = Some(json!({"extra_content": {"signature": "other"}}));
    let thought = json!({"type": "thinking", "thinking": "First.", "signature": "own"});
    vec![
        user("go"),
        by("acme", "", "First.", vec![signed], json!({"blocks": [thought, {"type": "tool_use"}]})),
        Message::Results(vec![result("toolu_01", "one", false)]),
        by("other", "Then b.", "Second.", vec![other], json!({"reasoning_field": "reasoning_content"})),
        Message::Results(vec![result("functions.read:1", "two", true)]),
        by("other", "Half", "", vec![], json!({"fields": {"reasoning_details": []}})),
    ]
}

fn request(messages: &[Message]) -> Request<'_> {
    Request { model: "m", messages, reasoning_effort: Some("low"), ..Request::default() }
}

#[test]
fn this_format_tells_nothing_of_the_others_thoughts() {
    let list = history();
    let sent = body(&settings(""), &request(&list)).unwrap();
    let text = sent.to_string();
    assert!(!text.contains("Second.") && !text.contains("reasoning") && !text.contains("extra_content"), "{text}");
    let kinds = |at: usize| {
        let blocks = sent["messages"][at]["content"].as_array().unwrap();
        blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(1), ["thinking", "tool_use"]);
    assert_eq!(sent["messages"][1]["content"][0]["signature"], "own");
    assert_eq!(kinds(3), ["text", "tool_use"]);
    let used = &sent["messages"][3]["content"][1];
    assert_eq!((&used["name"], &used["input"]), (&json!("read_file_dd32cdf5"), &json!({})));
    let id = used["id"].as_str().unwrap();
    assert!(id.bytes().all(|byte| byte.is_ascii_lowercase()), "{id}");
    assert_eq!(sent["messages"][4]["content"][0]["tool_use_id"], id);
    assert_eq!(sent["messages"][6]["content"][0]["text"], "Please go on.");
}

#[test]
fn the_other_format_tells_nothing_of_this_ones() {
    let list = history();
    let settings = openai::Settings {
        provider: "other".to_owned(),
        url: String::new(),
        models_url: String::new(),
        key_variable: None,
        key: None,
        user_after_tool: true,
        dialect: Dialect::COMMON,
    };
    let sent = openai::body(&settings, &request(&list)).unwrap();
    let text = sent.to_string();
    assert!(!text.contains("First.") && !text.contains("own") && !text.contains("blocks"), "{text}");
    let messages = &sent["messages"];
    assert_eq!(messages[1]["tool_calls"][0]["id"], "toolu_01");
    assert_eq!(messages[3]["reasoning_content"], "Second.");
    let called = &messages[3]["tool_calls"][0];
    assert_eq!(called["function"], json!({"name": "read_file_dd32cdf5", "arguments": "{}"}));
    assert_eq!(called["extra_content"], json!({"signature": "other"}));
    assert_eq!(called["id"], messages[4]["tool_call_id"]);
    // The same id stands for it in both formats.
    let own = body(&super::settings(""), &request(&list)).unwrap();
    assert_eq!(called["id"], own["messages"][3]["content"][1]["id"]);
}

#[test]
fn a_turn_that_the_other_began_goes_on_without_thinking() {
    let list = history();
    let sent = |list: &[Message]| body(&settings(""), &request(list)).unwrap();
    let thinks = |list: &[Message]| sent(list).get("thinking").is_some();
    assert!(thinks(&list[..3]) && thinks(&list[..5]));
    let other_began = [list[0].clone(), list[3].clone(), list[4].clone()];
    assert!(!thinks(&other_began));
    let next_turn = [other_began.as_slice(), &[list[5].clone(), user("and now?")]].concat();
    assert!(thinks(&next_turn));
}
