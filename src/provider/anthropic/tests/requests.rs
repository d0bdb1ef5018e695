//! What is sent, compared whole.

use super::*;
use crate::provider::AdvertisedTool;
use crate::provider::anthropic::request::body;

/// Without the breakpoints, which have a test of their own.
fn messages(list: &[Message]) -> Value {
    let request = Request { model: "m", messages: list, ..Request::default() };
    let mut messages = body(&settings(""), &request).unwrap()["messages"].take();
    for message in messages.as_array_mut().unwrap() {
        for block in message["content"].as_array_mut().unwrap() {
            block.as_object_mut().unwrap().remove("cache_control");
        }
    }
    messages
}

fn texts(role: &str, texts: &[&str]) -> Value {
    let blocks: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
    json!({"role": role, "content": blocks})
}

fn tool(name: &str) -> AdvertisedTool {
    let parameters = json!({"type": "object", "properties": {}});
    AdvertisedTool { name: name.to_owned(), description: "Reads.".to_owned(), parameters }
}

#[test]
fn a_whole_request_is_as_documented() {
    let list = [
        user("a"),
        user(" \n"),
        user("b"),
        assistant("Both.", vec![call("c1", "read", "{\"p\":1}"), call("c2", "read", "")], None),
        Message::Results(vec![result("c1", "one", false), result("c2", " ", true)]),
        user("c"),
    ];
    let request = Request {
        model: "claude-sonnet-4-5",
        system: "Be brief.",
        messages: &list,
        tools: &[tool("read"), tool("list")],
        temperature: Some(0.5),
        ..Request::default()
    };
    let schema = json!({"type": "object", "properties": {}});
    let point = json!({"type": "ephemeral"});
    let expected = json!({
        "model": "claude-sonnet-4-5",
        "stream": true,
        "max_tokens": 32000,
        "temperature": 0.5,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": point}],
        "tools": [
            {"name": "read", "description": "Reads.", "input_schema": schema},
            {"name": "list", "description": "Reads.", "input_schema": schema, "cache_control": point},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a\n\nb", "cache_control": point}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "Both."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"p": 1}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "(no output)", "is_error": true},
                {"type": "text", "text": "c", "cache_control": point},
            ]},
        ],
    });
    let sent = body(&settings(""), &request).unwrap();
    assert_eq!(sent, expected);
    assert_eq!(sent.to_string(), body(&settings(""), &request).unwrap().to_string());
}

#[test]
fn only_what_is_asked_for_is_sent() {
    let sent = body(&settings(""), &Request { model: "m", messages: &[user("a")], ..Request::default() }).unwrap();
    let keys: Vec<&String> = sent.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["model", "stream", "max_tokens", "messages"]);
    assert_eq!(sent["max_tokens"], 8192);
    let limited = Request { model: "m", messages: &[user("a")], max_tokens: Some(7), ..Request::default() };
    assert_eq!(body(&settings(""), &limited).unwrap()["max_tokens"], 7);
}

#[test]
fn thinking_displaces_the_temperature() {
    let asked = Request {
        model: "claude-sonnet-4-5",
        messages: &[user("a")],
        temperature: Some(0.5),
        reasoning_effort: Some("medium"),
        ..Request::default()
    };
    let sent = body(&settings(""), &asked).unwrap();
    assert_eq!(sent["thinking"], json!({"type": "enabled", "budget_tokens": 8192}));
    assert!(sent["max_tokens"].as_u64().unwrap() > 8192 && sent.get("temperature").is_none());
    let begun =
        [user("a"), assistant("", vec![call("c1", "f", "{}")], None), Message::Results(vec![result("c1", "x", false)])];
    for other in [
        Request { max_tokens: Some(1000), ..asked },
        Request { reasoning_effort: Some("none"), ..asked },
        Request { messages: &begun, ..asked },
    ] {
        let sent = body(&settings(""), &other).unwrap();
        assert_eq!((sent.get("thinking"), &sent["temperature"]), (None, &json!(0.5)));
    }
    let unknown = Request { reasoning_effort: Some("loads"), ..asked };
    assert!(body(&settings(""), &unknown).unwrap_err().error.message.contains("\"loads\""));
}

#[test]
fn no_tool_may_be_called_where_the_history_alone_needs_them() {
    let list = [
        user("a"),
        assistant("", vec![call("c1", "re ad", "{}"), call("c2", "re ad", "{}")], None),
        Message::Results(vec![result("c1", "x", false), result("c2", "x", false)]),
    ];
    let request = Request { model: "m", messages: &list, ..Request::default() };
    let sent = body(&settings(""), &request).unwrap();
    assert_eq!(sent["tool_choice"], json!({"type": "none"}));
    let names: Vec<&Value> = sent["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, [&sent["messages"][1]["content"][0]["name"]]);
    let tools = [tool("read")];
    let offered = Request { tools: &tools, ..request };
    assert_eq!(body(&settings(""), &offered).unwrap().get("tool_choice"), None);
    let forbidden = Request { tool_choice_none: true, ..offered };
    let sent = body(&settings(""), &forbidden).unwrap();
    assert_eq!((&sent["tool_choice"]["type"], &sent["tools"][0]["name"]), (&json!("none"), &json!("read")));
}

#[test]
fn what_a_model_wrote_badly_is_made_valid_the_same_way_each_time() {
    let long = "n".repeat(70);
    let calls = vec![
        call("functions.read:0", "re.ad é", "{\"a\": 1}"),
        call(&"x".repeat(65), "", "{\"a\": "),
        call("", &long, "[1]"),
        call("c4", "f", "\"{\\\"a\\\":1}\""),
    ];
    let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
    let answers = ids.iter().map(|id| result(id, "x", false)).collect();
    let list = [user("a"), assistant("", calls, None), Message::Results(answers), user("b")];
    let sent = messages(&list);
    let used = sent[1]["content"].as_array().unwrap();
    let of = |key: &str| used.iter().map(|block| block[key].clone()).collect::<Vec<_>>();
    let names = of("name");
    assert_eq!((names[1].as_str(), names[3].as_str()), (Some("unknown"), Some("f")));
    assert!(names[0].as_str().unwrap().starts_with("re_ad___"), "{names:?}");
    assert!(names[2].as_str().unwrap().starts_with(&long[..55]), "{names:?}");
    assert_eq!(of("input"), [json!({"a": 1}), json!({}), json!({}), json!({"a": 1})]);
    let sent_ids = of("id");
    for id in &sent_ids {
        let id = id.as_str().unwrap();
        assert!(!id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    }
    assert_eq!(sent_ids[3], "c4");
    let answered: Vec<Value> = (0..4).map(|at| sent[2]["content"][at]["tool_use_id"].clone()).collect();
    assert_eq!(answered, sent_ids);
    assert_eq!(messages(&list[..3])[1], sent[1]);
}

#[test]
fn blocks_go_back_as_they_came_to_their_own_model_only() {
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "s"});
    let hidden = json!({"type": "redacted_thinking", "data": "ZA=="});
    let unknown = json!({"type": "compaction", "content": "x", "more": [1]});
    let opaque = json!({"blocks": [
        thought, hidden, {"type": "text", "bytes": 1}, {"type": "text", "bytes": 4}, {"type": "tool_use"},
        unknown, {"type": "thinking", "thinking": "cut off"}, {"type": "thinking", "thinking": "x", "signature": ""},
        {"type": "redacted_thinking"}, {"type": "text", "bytes": 4}, 7, {"type": "tool_use"}, {"type": "tool_use"},
        thought,
    ]});
    let calls = vec![call("c1", "f", "{}"), call("c2", "g", "{}"), call("c3", "h", "{}")];
    let message = assistant(" One.Two.", calls, Some(opaque));
    let answers = || Message::Results(["c1", "c2", "c3"].map(|id| result(id, "x", false)).to_vec());
    let send = |message: &Message| messages(&[user("a"), message.clone(), answers()])[1].take();
    let used = |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    let said = |text: &str| json!({"type": "text", "text": text});
    let own = json!({"role": "assistant", "content": [
        thought, hidden, said("One."), used("c1", "f"), unknown, said("Two."), used("c2", "g"), used("c3", "h"),
    ]});
    assert_eq!(send(&message), own);
    let Message::Assistant(message) = message else { unreachable!() };
    for (provider, model) in [("acme", "other"), ("other", "m")] {
        let other = AssistantMessage { provider: provider.to_owned(), model: model.to_owned(), ..message.clone() };
        let expected = json!({"role": "assistant", "content": [
            said(" One.Two."), used("c1", "f"), used("c2", "g"), used("c3", "h"),
        ]});
        assert_eq!(send(&Message::Assistant(other)), expected, "{provider}/{model}");
    }
    // Another version's opaque part, or a damaged one, costs the thoughts and nothing else.
    let text = |bytes: Value| json!({"type": "text", "bytes": bytes});
    let plain = json!([said(" One.Two."), used("c1", "f"), used("c2", "g"), used("c3", "h")]);
    for odd in [
        json!({"blocks": 7}),
        json!([]),
        json!({"blocks": []}),
        json!({"blocks": [text(json!(3)), text(json!(99)), {"type": "tool_use"}]}),
        json!({"blocks": [text(json!(3)), {"type": "thinking"}, {"type": "tool_use"}]}),
        json!({"blocks": [text(json!(-1)), text(Value::Null)]}),
    ] {
        let odd = AssistantMessage { opaque: Some(odd), ..message.clone() };
        assert_eq!(send(&Message::Assistant(odd))["content"], plain);
    }
}

#[test]
fn nobody_speaks_twice_and_the_assistant_not_last() {
    let thought = json!({"blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]});
    let half = || assistant("half", vec![], None);
    let cases = [
        (vec![user("a"), assistant(" ", vec![], None), user("b")], vec![texts("user", &["a\n\nb"])]),
        (vec![user("a"), assistant("", vec![], Some(thought)), user("b")], vec![texts("user", &["a\n\nb"])]),
        (
            vec![user("a"), half()],
            vec![texts("user", &["a"]), texts("assistant", &["half"]), texts("user", &["Please go on."])],
        ),
        (
            vec![user("a"), half(), half(), user("b")],
            vec![
                texts("user", &["a"]),
                texts("assistant", &["half"]),
                texts("user", &["Please go on."]),
                texts("assistant", &["half"]),
                texts("user", &["b"]),
            ],
        ),
    ];
    for (list, expected) in cases {
        assert_eq!(messages(&list), Value::Array(expected), "{list:?}");
    }
}

#[test]
fn a_pause_goes_on_from_the_message_as_it_is() {
    let search = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "s"});
    let opaque = json!({"blocks": [{"type": "text", "bytes": 5}, search, thought], "paused": true});
    let paused = assistant("Wait.", vec![], Some(opaque));
    let as_it_is = json!([{"type": "text", "text": "Wait."}, search, thought]);
    let sent = messages(&[user("a"), paused.clone()]);
    assert_eq!(sent, json!([texts("user", &["a"]), {"role": "assistant", "content": as_it_is}]));
    let sent = messages(&[user("a"), paused.clone(), assistant("Done.", vec![], None), user("b")]);
    let mut joined = as_it_is.as_array().unwrap().clone();
    joined.push(json!({"type": "text", "text": "Done."}));
    assert_eq!(sent[1], json!({"role": "assistant", "content": joined}));
    assert_eq!(sent[2], texts("user", &["b"]));
    // To any other model it is a message like others.
    let Message::Assistant(message) = paused else { unreachable!() };
    let other = Message::Assistant(AssistantMessage { model: "other".to_owned(), ..message });
    assert_eq!(messages(&[user("a"), other])[2], texts("user", &["Please go on."]));
}

#[test]
fn breakpoints_are_at_most_four_and_the_rest_is_a_prefix() {
    let mut list = vec![user("a")];
    for round in 0..5 {
        let id = format!("c{round}");
        list.push(assistant("", vec![call(&id, "read", "{}")], None));
        list.push(Message::Results(vec![result(&id, "x", false)]));
    }
    let tools = [tool("read"), tool("list")];
    let mut before: Vec<Value> = Vec::new();
    for end in (1..=list.len()).step_by(2) {
        let request = Request { model: "m", system: "s", tools: &tools, messages: &list[..end], ..Request::default() };
        let text = body(&settings(""), &request).unwrap().to_string();
        let expected = if end == 1 { 3 } else { 4 };
        assert_eq!(text.matches("cache_control").count(), expected, "{text}");
        let sent = messages(&list[..end]);
        let sent = sent.as_array().unwrap();
        assert_eq!(sent[..before.len()], before);
        before.clone_from(sent);
    }
}

#[test]
fn newer_models_are_told_an_effort_and_go_on_thinking_anywhere() {
    let begun =
        [user("a"), assistant("", vec![call("c1", "f", "{}")], None), Message::Results(vec![result("c1", "x", false)])];
    let asked = Request {
        model: "claude-opus-4-6",
        messages: &begun,
        temperature: Some(0.5),
        max_tokens: Some(500),
        reasoning_effort: Some("xhigh"),
        ..Request::default()
    };
    let sent = body(&settings(""), &asked).unwrap();
    assert_eq!(sent["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!((&sent["output_config"], sent.get("temperature")), (&json!({"effort": "high"}), None));
    let sent = body(&settings(""), &Request { reasoning_effort: Some("none"), ..asked }).unwrap();
    assert_eq!((sent.get("thinking"), sent.get("output_config")), (None, None));
    assert_eq!(sent["temperature"], 0.5);
}

#[test]
fn an_answers_schema_is_enforced_where_model_and_schema_allow_it() {
    let schema = json!({
        "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false,
    });
    let open = json!({"type": "object"});
    let paused = [user("a"), assistant("Wait.", vec![], Some(json!({"blocks": [{"type": "text"}], "paused": true})))];
    let settings = settings("");
    let asked = Request {
        model: "claude-sonnet-4-5",
        messages: &[user("a")],
        output_schema: Some(&schema),
        ..Request::default()
    };
    let config =
        |settings: &Settings, request: Request<'_>| body(settings, &request).unwrap().get("output_config").cloned();
    let format = json!({"type": "json_schema", "schema": schema});
    assert_eq!(config(&settings, asked), Some(json!({"format": format})));
    let newer = Request { model: "claude-opus-4-7", reasoning_effort: Some("max"), ..asked };
    assert_eq!(config(&settings, newer), Some(json!({"effort": "max", "format": format})));
    for other in [
        Request { output_schema: Some(&open), ..asked },
        Request { model: "claude-sonnet-4-20250514", ..asked },
        Request { model: "m", ..asked },
    ] {
        assert_eq!(config(&settings, other), None, "{other:?}");
    }
    let foreign = Settings { takes_output_schema: false, ..settings.clone() };
    assert_eq!(config(&foreign, asked), None);
    // The service goes on from its message, which a form would cut in two.
    let own = |message: &Message| match message {
        Message::Assistant(message) => {
            Message::Assistant(AssistantMessage { model: "claude-sonnet-4-5".to_owned(), ..message.clone() })
        }
        other => other.clone(),
    };
    let paused: Vec<Message> = paused.iter().map(own).collect();
    assert_eq!(config(&settings, Request { messages: &paused, ..asked }), None);
}
