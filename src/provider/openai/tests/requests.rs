//! What is sent, compared whole.

use super::*;
use crate::provider::openai::request::body;
use crate::provider::stand_in;
use crate::provider::{AdvertisedTool, AssistantMessage, Message, ResultMessage};

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

fn assistant(text: &str, calls: Vec<ToolCall>) -> AssistantMessage {
    AssistantMessage {
        provider: "acme".to_owned(),
        model: "m".to_owned(),
        text: text.to_owned(),
        reasoning: String::new(),
        tool_calls: calls,
        opaque: None,
    }
}

fn results(ids: &[&str]) -> Message {
    let result = |id: &&str| ResultMessage {
        call_id: (*id).to_owned(),
        name: "read".to_owned(),
        content: format!("result of {id}"),
        is_error: false,
        images: Vec::new(),
    };
    Message::Results(ids.iter().map(result).collect())
}

fn messages(settings: &Settings, list: &[Message]) -> Value {
    body(settings, &Request { model: "m", messages: list, ..Request::default() }).unwrap()["messages"].take()
}

#[test]
fn a_whole_request_is_as_documented() {
    let parameters = json!({"type": "object", "properties": {}});
    let tools =
        [AdvertisedTool { name: "read".to_owned(), description: "Reads.".to_owned(), parameters: parameters.clone() }];
    let schema = json!({"type": "object"});
    let request = Request {
        model: "m",
        system: "Be brief.",
        messages: &[user("a"), user("b")],
        tools: &tools,
        max_tokens: Some(100),
        temperature: Some(0.5),
        reasoning_effort: Some("low"),
        output_schema: Some(&schema),
        tool_choice_none: false,
        replies_before: 0,
    };
    let expected = json!({
        "model": "m",
        "stream": true,
        "stream_options": {"include_usage": true},
        "max_tokens": 100,
        "temperature": 0.5,
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "tools": [{
            "type": "function",
            "function": {"name": "read", "description": "Reads.", "parameters": parameters},
        }],
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\n\nb"}],
    });
    let mut settings = settings("");
    assert_eq!(
        body(&settings, &request).unwrap().get("response_format"),
        None,
        "where it could break calls it is left out"
    );
    settings.dialect.takes_output_schema = true;
    assert_eq!(body(&settings, &request).unwrap(), expected);
    let schema = json!({
        "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false,
    });
    let sent = body(&settings, &Request { output_schema: Some(&schema), ..request }).unwrap();
    assert_eq!(sent["response_format"]["json_schema"], json!({"name": "answer", "strict": true, "schema": schema}));
    settings.dialect = Dialect { max_tokens_field: "max_completion_tokens", asks_for_usage: false, ..settings.dialect };
    let sent = body(&settings, &request).unwrap();
    assert_eq!(sent["max_completion_tokens"], 100);
    assert_eq!((sent.get("max_tokens"), sent.get("stream_options")), (None, None));
    let bare = body(&settings, &Request { model: "m", messages: &[user("a")], ..Request::default() }).unwrap();
    assert_eq!(bare, json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "a"}]}));
}

#[test]
fn calls_are_valid_and_results_follow_them() {
    let long = "x".repeat(80);
    let calls = vec![
        call("c1", "re/ad\u{e9}", "{\"a\": 1}"),
        call("c2", "", "{\"a\": "),
        call("c3", &long, "[1]"),
        call("c4", "f", "\"{\\\"a\\\":1}\""),
    ];
    let list = [user("a"), Message::Assistant(assistant("", calls)), results(&["c1", "c2", "c3", "c4"]), user("b")];
    let function = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": format!("result of {id}")});
    let expected = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": null, "tool_calls": [
            function("c1", "re_ad__8f17c9e8", "{\"a\": 1}"),
            function("c2", "unknown", "{}"),
            function("c3", &format!("{}_d929cdee", &long[..55]), "{}"),
            function("c4", "f", "{\"a\":1}"),
        ]},
        result("c1"), result("c2"), result("c3"), result("c4"),
        {"role": "user", "content": "b"},
    ]);
    assert_eq!(messages(&settings(""), &list), expected);

    let strict = Settings { user_after_tool: false, ..settings("") };
    let sent = messages(&strict, &list);
    assert_eq!(sent[6], json!({"role": "assistant", "content": "I have the results."}));
    assert_eq!(sent[7], json!({"role": "user", "content": "b"}));
}

#[test]
fn an_empty_reply_is_left_out_and_a_cut_one_is_followed() {
    let empty = Message::Assistant(assistant("", vec![]));
    let sent = messages(&settings(""), &[user("a"), empty, user("b")]);
    assert_eq!(sent, json!([{"role": "user", "content": "a\n\nb"}]));
    let cut = Message::Assistant(assistant("half", vec![]));
    let sent = messages(&settings(""), &[user("a"), cut]);
    let expected = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "half"},
        {"role": "user", "content": "Please go on."},
    ]);
    assert_eq!(sent, expected);
}

#[test]
fn reasoning_goes_back_to_its_own_model_only() {
    let kept = json!({"reasoning_details": [{"index": 0}], "role": "system"});
    let mut message = assistant("yes", vec![call("c1", "f", "{}")]);
    message.reasoning = "hm".to_owned();
    message.opaque = Some(json!({"reasoning_field": "reasoning", "fields": kept}));
    message.tool_calls[0].opaque = Some(json!({"extra_content": {"s": 1}, "id": "other"}));
    let send = |message: &AssistantMessage| {
        messages(&settings(""), &[user("a"), Message::Assistant(message.clone()), results(&["c1"])])[1].take()
    };
    let plain = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let mut own = plain.clone();
    own["extra_content"] = json!({"s": 1});
    let expected = json!({
        "role": "assistant", "content": "yes", "reasoning": "hm", "reasoning_details": [{"index": 0}],
        "tool_calls": [own],
    });
    assert_eq!(send(&message), expected);
    for (provider, model) in [("acme", "other"), ("other", "m")] {
        let other = AssistantMessage { provider: provider.to_owned(), model: model.to_owned(), ..message.clone() };
        let expected = json!({"role": "assistant", "content": "yes", "tool_calls": [plain]});
        assert_eq!(send(&other), expected, "{provider}/{model}");
    }
    message.opaque = Some(json!({"reasoning_field": "content_parts"}));
    let parts = json!([
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"},
    ]);
    assert_eq!(send(&message)["content"], parts);
}

#[test]
fn a_service_that_wants_nine_characters_gets_them() {
    let dialect = Dialect { nine_character_ids: true, ..Dialect::COMMON };
    let settings = Settings { dialect, ..settings("") };
    let calls = vec![call("call_1", "f", "{}"), call("aB3dE6gH9", "f", "{}"), call("call_2", "f", "{}")];
    let list = [user("a"), Message::Assistant(assistant("", calls)), results(&["call_1", "aB3dE6gH9", "call_2"])];
    let sent = messages(&settings, &list);
    let ids: Vec<&str> = (0..3).map(|at| sent[1]["tool_calls"][at]["id"].as_str().unwrap()).collect();
    assert!(ids.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())), "{ids:?}");
    assert_eq!(ids[1], "aB3dE6gH9");
    assert_ne!(ids[0], ids[2]);
    let answered: Vec<&str> = (2..5).map(|at| sent[at]["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(answered, ids);
    assert_eq!(messages(&settings, &list[..2])[1], sent[1]);
}

#[test]
fn a_service_that_wants_every_thought_is_told_where_there_was_none() {
    let dialect = Dialect { wants_reasoning: true, ..Dialect::COMMON };
    let settings = Settings { dialect, ..settings("") };
    let mut own = assistant("", vec![call("c1", "f", "{}")]);
    own.reasoning = "hm".to_owned();
    own.opaque = Some(json!({"reasoning_field": "reasoning_content"}));
    let unthought = assistant("", vec![call("c2", "f", "{}")]);
    let other = AssistantMessage { provider: "other".to_owned(), ..own.clone() };
    let list = [
        user("a"),
        Message::Assistant(own),
        results(&["c1"]),
        Message::Assistant(unthought),
        results(&["c2"]),
        Message::Assistant(AssistantMessage { tool_calls: vec![call("c3", "f", "{}")], ..other.clone() }),
        results(&["c3"]),
        Message::Assistant(AssistantMessage { tool_calls: Vec::new(), text: "b".to_owned(), ..other }),
        user("c"),
    ];
    let sent = messages(&settings, &list);
    let thoughts: Vec<&Value> = [1, 3, 5, 7].iter().map(|at| &sent[*at]["reasoning_content"]).collect();
    assert_eq!(thoughts, ["hm", "", "", ""]);
    let plain = messages(&Settings { dialect: Dialect::COMMON, ..settings }, &list);
    let has = [1, 3, 5, 7].map(|at| plain[at].get("reasoning_content").is_some());
    assert_eq!(has, [true, false, false, false]);
}

#[test]
fn a_name_that_no_service_takes_is_sent_as_another_and_comes_back() {
    let name = "read.file";
    let sent = messages(&settings(""), &[user("a"), Message::Assistant(assistant("", vec![call("c1", name, "{}")]))]);
    let other = sent[1]["tool_calls"][0]["function"]["name"].as_str().unwrap().to_owned();
    assert!(other.starts_with("read_file_"), "{other}");
    let list = [user("a"), Message::Assistant(assistant("", vec![call("c1", name, "{}")])), results(&["c1"])];
    let reply = json!({"choices": [{"message": {"tool_calls": [
        {"id": "c2", "function": {"name": other, "arguments": "{}"}},
    ]}, "finish_reason": "tool_calls"}]});
    let server = stand_in::serve(vec![stand_in::answer("200 OK", "", &reply.to_string())]);
    let url = server.url("/v1");
    let provider = OpenAi::new(Http::load("acme", &url, &|_| None).unwrap(), settings(&url));
    let request = Request { model: "m", messages: &list, ..Request::default() };
    let reply = provider.complete(&request, &Interrupt::default(), &mut |_| {}).unwrap();
    assert_eq!(other, server.requests.recv().unwrap().1["messages"][1]["tool_calls"][0]["function"]["name"]);
    assert_eq!(reply.tool_calls[0].name, name);
}
