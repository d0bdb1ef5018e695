//! The checks of requests, by themselves: what a strict service takes, and every kind of thing it refuses.

use serde_json::{Value, json};

use crate::support::{check_anthropic, check_openai};

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "Reads", "parameters": {
        "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]
    }}})
}

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}})
}

fn calls(ids: &[&str]) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>()})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "text"})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn says(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn openai(messages: &[Value]) -> Value {
    json!({"model": "m", "messages": messages, "tools": [tool("read")]})
}

/// A request whose only call is changed by `change`.
fn with_call(change: impl Fn(&mut Value)) -> Value {
    let mut request = openai(&[user("go"), calls(&["c1"]), result("c1")]);
    change(&mut request["messages"][1]["tool_calls"][0]);
    request
}

/// A request whose only tool is changed by `change`.
fn with_tool(change: impl Fn(&mut Value)) -> Value {
    let mut request = openai(&[user("go")]);
    change(&mut request["tools"][0]["function"]);
    request
}

fn with(mut request: Value, key: &str, value: Value) -> Value {
    request[key] = value;
    request
}

#[test]
fn openai_histories_that_are_taken() {
    let system = json!({"role": "system", "content": "You are attini."});
    let parts = json!({"role": "user", "content": [
        {"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    ]});
    let silent = json!({"role": "assistant", "content": "", "tool_calls": [call("c1")]});
    let referring = with_tool(|tool| {
        tool["parameters"]["$defs"] = json!({"line": {"type": "integer"}});
        tool["parameters"]["properties"]["line"] = json!({"$ref": "#/$defs/line"});
    });
    let taken = [
        ("plain", json!({"messages": [user("go")]})),
        ("system first", openai(&[system, user("go")])),
        ("one round", openai(&[user("go"), calls(&["c1"]), result("c1")])),
        ("two results", openai(&[user("go"), calls(&["c1", "c2"]), result("c1"), result("c2")])),
        ("two rounds", openai(&[user("go"), calls(&["c1"]), result("c1"), calls(&["c2"]), result("c2")])),
        ("a second turn", openai(&[user("go"), calls(&["c1"]), result("c1"), says("done"), user("more")])),
        ("user behind results", openai(&[user("go"), calls(&["c1"]), result("c1"), user("a task has ended")])),
        ("parts", openai(&[parts])),
        ("calls with empty text", openai(&[user("go"), silent, result("c1")])),
        ("references that lead somewhere", referring),
        ("the longest id", openai(&[user("go"), calls(&[&"c".repeat(64)]), result(&"c".repeat(64))])),
        ("tool choice none", with(openai(&[user("go")]), "tool_choice", "none".into())),
        ("stream", with(with(openai(&[user("go")]), "stream", true.into()), "stream_options", json!({}))),
    ];
    for (name, request) in taken {
        assert_eq!(check_openai(&request), Vec::<String>::new(), "{name}");
    }
}

/// Each request breaks one rule, and the violation names it.
#[test]
fn openai_histories_that_are_refused() {
    let system = json!({"role": "system", "content": "You are attini."});
    let mut two_tools = openai(&[user("go")]);
    two_tools["tools"] = json!([tool("read"), tool("read")]);
    let refused = [
        ("not an object", json!([])),
        ("messages is not a non-empty array", json!({"messages": []})),
        ("messages is not a non-empty array", json!({})),
        ("\"c1\" has no result", openai(&[user("go"), calls(&["c1"]), user("more")])),
        ("\"c1\" has no result", openai(&[user("go"), calls(&["c1"])])),
        ("\"c2\" has no result", openai(&[user("go"), calls(&["c1", "c2"]), result("c1")])),
        ("\"c1\" has no call", openai(&[user("go"), result("c1")])),
        ("\"zz\" has no call", openai(&[user("go"), calls(&["c1"]), result("c1"), result("zz")])),
        ("\"c1\" has two results", openai(&[user("go"), calls(&["c1"]), result("c1"), result("c1")])),
        ("\"c1\" has no call", openai(&[user("go"), calls(&["c1"]), result("c1"), says("x"), user("y"), result("c1")])),
        ("\"c1\" has no call", openai(&[user("go"), calls(&["c1"]), user("between"), result("c1")])),
        ("not in call order", openai(&[user("go"), calls(&["c1", "c2"]), result("c2"), result("c1")])),
        ("\"c1\" is used twice", openai(&[user("go"), calls(&["c1"]), result("c1"), calls(&["c1"]), result("c1")])),
        ("\"c1\" is used twice", openai(&[user("go"), calls(&["c1", "c1"]), result("c1")])),
        ("without tool_call_id", openai(&[user("go"), json!({"role": "tool", "content": "x"})])),
        ("empty", openai(&[user("go"), calls(&["c1"]), json!({"role": "tool", "tool_call_id": "c1", "content": ""})])),
        ("call id \"\" is not of", openai(&[user("go"), calls(&[""]), result("")])),
        ("call id \"a b\" is not of", openai(&[user("go"), calls(&["a b"]), result("a b")])),
        ("is not of", openai(&[user("go"), calls(&[&"c".repeat(65)]), result(&"c".repeat(65))])),
        ("the call has no id", with_call(|call| call["id"] = Value::Null)),
        ("not of type function", with_call(|call| call["type"] = Value::Null)),
        ("tool name \"\"", with_call(|call| call["function"]["name"] = "".into())),
        ("tool name \"a.b\"", with_call(|call| call["function"]["name"] = "a.b".into())),
        ("the tool has no name", with_call(|call| call["function"]["name"] = Value::Null)),
        ("arguments", with_call(|call| call["function"]["arguments"] = json!({"path": "a"}))),
        ("arguments", with_call(|call| call["function"]["arguments"] = "{\"path\":".into())),
        ("arguments", with_call(|call| call["function"]["arguments"] = "[1]".into())),
        ("arguments", with_call(|call| call["function"]["arguments"] = "".into())),
        (
            "tool_calls is not a non-empty array",
            openai(&[user("go"), json!({"role": "assistant", "content": "x", "tool_calls": []}), user("more")]),
        ),
        ("not the first", openai(&[user("go"), system.clone()])),
        ("not the first", openai(&[system.clone(), system.clone(), user("go")])),
        ("nothing but a system message", openai(&[system])),
        ("empty", openai(&[user("")])),
        ("empty", openai(&[json!({"role": "user", "content": []})])),
        ("empty", openai(&[json!({"role": "user", "content": [{"type": "text", "text": ""}]})])),
        ("empty", openai(&[json!({"role": "user"})])),
        ("empty", openai(&[user("go"), says(""), user("more")])),
        ("role \"robot\" is unknown", openai(&[json!({"role": "robot", "content": "x"})])),
        ("two user messages", openai(&[user("go"), user("more")])),
        ("two assistant messages", openai(&[user("go"), says("a"), says("b"), user("more")])),
        ("the assistant speaks first", openai(&[says("hello"), user("go")])),
        ("last message is the assistant's", openai(&[user("go"), says("done")])),
        ("tools is not a non-empty array", with(openai(&[user("go")]), "tools", json!([]))),
        ("offered twice", two_tools),
        ("tool name \"a b\"", with_tool(|tool| tool["name"] = "a b".into())),
        ("parameters is not an object", with_tool(|tool| tool["parameters"] = Value::Null)),
        ("the schema's type is not object", with_tool(|tool| tool["parameters"]["type"] = "string".into())),
        ("no properties object", with_tool(|tool| tool["parameters"]["properties"] = Value::Null)),
        ("is not a schema", with_tool(|tool| tool["parameters"]["properties"]["path"] = 1.into())),
        ("required names", with_tool(|tool| tool["parameters"]["required"] = json!(["other"]))),
        ("required names", with_tool(|tool| tool["parameters"]["required"] = json!(["path", "path"]))),
        ("required is not an array", with_tool(|tool| tool["parameters"]["required"] = true.into())),
        ("leads nowhere", with_tool(|tool| tool["parameters"]["properties"]["path"] = json!({"$ref": "#/$defs/x"}))),
        ("anyOf stands at the root", with_tool(|tool| tool["parameters"]["anyOf"] = json!([]))),
        ("the description is not a text", with_tool(|tool| tool["description"] = 1.into())),
        ("neither a known word", with(openai(&[user("go")]), "tool_choice", "maybe".into())),
        ("tool_choice without tools", json!({"messages": [user("go")], "tool_choice": "none"})),
        ("stream_options without stream", with(openai(&[user("go")]), "stream_options", json!({}))),
        ("max_tokens", with(openai(&[user("go")]), "max_tokens", 0.into())),
        ("temperature", with(openai(&[user("go")]), "temperature", 3.into())),
        ("model is not a name", with(openai(&[user("go")]), "model", "".into())),
    ];
    for (expected, request) in refused {
        let found = check_openai(&request);
        assert!(found.iter().any(|violation| violation.contains(expected)), "{expected}: {found:?} for {request}");
    }
}

fn anthropic(messages: &[Value]) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    json!({
        "model": "m", "max_tokens": 10, "messages": messages,
        "tools": [{"name": "read", "description": "Reads", "input_schema": schema}],
    })
}

fn uses(ids: &[&str]) -> Value {
    let block = |id: &&str| json!({"type": "tool_use", "id": id, "name": "read", "input": {"path": "a"}});
    json!({"role": "assistant", "content": ids.iter().map(block).collect::<Vec<_>>()})
}

fn results(ids: &[&str]) -> Value {
    let block = |id: &&str| json!({"type": "tool_result", "tool_use_id": id, "content": "text"});
    json!({"role": "user", "content": ids.iter().map(block).collect::<Vec<_>>()})
}

fn blocks(role: &str, blocks: &[Value]) -> Value {
    json!({"role": role, "content": blocks})
}

/// A request whose only call is changed by `change`.
fn with_use(change: impl Fn(&mut Value)) -> Value {
    let mut request = anthropic(&[user("go"), uses(&["t1"]), results(&["t1"])]);
    change(&mut request["messages"][1]["content"][0]);
    request
}

fn with_result(change: impl Fn(&mut Value)) -> Value {
    let mut request = anthropic(&[user("go"), uses(&["t1"]), results(&["t1"])]);
    change(&mut request["messages"][2]["content"][0]);
    request
}

/// The same with a budget for thinking.
fn thinks(messages: &[Value]) -> Value {
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    with(with(anthropic(messages), "max_tokens", 2048.into()), "thinking", thinking)
}

#[test]
fn anthropic_histories_that_are_taken() {
    let text = json!({"type": "text", "text": "a task has ended"});
    let marked = json!({"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}]});
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let call = json!({"type": "tool_use", "id": "t1", "name": "read", "input": {}});
    let (thought, used, adaptive) = (thinking.clone(), call.clone(), json!({"type": "adaptive"}));
    let taken = [
        ("plain", json!({"messages": [user("go")], "max_tokens": 32})),
        ("one round", anthropic(&[user("go"), uses(&["t1"]), results(&["t1"])])),
        ("two results", anthropic(&[user("go"), uses(&["t1", "t2"]), results(&["t1", "t2"])])),
        ("text behind results", anthropic(&[user("go"), uses(&["t1"]), blocks("user", &[result.clone(), text])])),
        ("thinking", anthropic(&[user("go"), blocks("assistant", &[thinking, call]), blocks("user", &[result])])),
        ("a breakpoint", anthropic(&[blocks("user", &[marked])])),
        ("a second turn", anthropic(&[user("go"), says("done"), user("more")])),
        ("system", with(anthropic(&[user("go")]), "system", json!([{"type": "text", "text": "You are attini."}]))),
        ("an error result", with_result(|block| block["is_error"] = true.into())),
        ("tool choice none", with(anthropic(&[user("go")]), "tool_choice", json!({"type": "none"}))),
        ("a budget", thinks(&[user("go")])),
        ("a budget in mid-turn", thinks(&[user("go"), blocks("assistant", &[thought, used]), results(&["t1"])])),
        ("a budget in the next turn", thinks(&[user("go"), uses(&["t1"]), results(&["t1"]), says("a"), user("b")])),
        ("an effort", with(anthropic(&[user("go")]), "output_config", json!({"effort": "max"}))),
        ("adaptive", with(anthropic(&[user("go"), uses(&["t1"]), results(&["t1"])]), "thinking", adaptive)),
    ];
    for (name, request) in taken {
        assert_eq!(check_anthropic(&request), Vec::<String>::new(), "{name}");
    }
}

/// Each request breaks one rule, and the violation names it.
#[test]
fn anthropic_histories_that_are_refused() {
    let text = json!({"type": "text", "text": "x"});
    let blank = json!({"type": "text", "text": " \n"});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": "x"});
    let unsigned = json!({"type": "thinking", "thinking": "hm", "signature": ""});
    let marked = json!({"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}});
    let permanent = json!({"type": "text", "text": "go", "cache_control": {"type": "permanent"}});
    let refused = [
        ("not an object", json!("x")),
        ("messages is not a non-empty array", json!({"messages": [], "max_tokens": 1})),
        ("max_tokens is missing", json!({"messages": [user("go")]})),
        ("max_tokens is not a positive", with(anthropic(&[user("go")]), "max_tokens", (-1).into())),
        ("\"t1\" has no result", anthropic(&[user("go"), uses(&["t1"]), user("more")])),
        ("\"t1\" has no result", anthropic(&[user("go"), uses(&["t1"])])),
        ("\"t2\" has no result", anthropic(&[user("go"), uses(&["t1", "t2"]), results(&["t1"])])),
        ("\"t1\" has no call", anthropic(&[results(&["t1"])])),
        ("\"t1\" has two results", anthropic(&[user("go"), uses(&["t1"]), results(&["t1", "t1"])])),
        ("not in call order", anthropic(&[user("go"), uses(&["t1", "t2"]), results(&["t2", "t1"])])),
        (
            "\"t1\" is used twice",
            anthropic(&[user("go"), uses(&["t1"]), results(&["t1"]), uses(&["t1"]), results(&["t1"])]),
        ),
        (
            "behind something else",
            anthropic(&[user("go"), uses(&["t1"]), blocks("user", &[text.clone(), result.clone()])]),
        ),
        ("is not of", anthropic(&[user("go"), uses(&["t.1"]), results(&["t.1"])])),
        ("the call has no id", with_use(|block| block["id"] = Value::Null)),
        ("tool name", with_use(|block| block["name"] = "".into())),
        ("the input is not an object", with_use(|block| block["input"] = "{}".into())),
        ("an empty result", with_result(|block| block["content"] = "".into())),
        ("an empty result", with_result(|block| block["content"] = json!([]))),
        ("a blank text", with_result(|block| block["content"] = json!([blank]))),
        ("without tool_use_id", with_result(|block| block["tool_use_id"] = Value::Null)),
        ("is_error", with_result(|block| block["is_error"] = "no".into())),
        ("a blank text", anthropic(&[user(" ")])),
        ("a blank text", anthropic(&[blocks("user", &[text.clone(), blank])])),
        ("empty", anthropic(&[blocks("user", &[])])),
        ("does not belong here", anthropic(&[user("go"), blocks("assistant", &[result]), user("more")])),
        ("does not belong here", anthropic(&[blocks("user", &[json!({"type": "tool_use", "id": "t1"})])])),
        ("signature", anthropic(&[user("go"), blocks("assistant", &[unsigned, text]), user("more")])),
        ("role \"system\" is unknown", anthropic(&[json!({"role": "system", "content": "x"}), user("go")])),
        ("two user messages", anthropic(&[user("go"), user("more")])),
        ("two assistant messages", anthropic(&[user("go"), says("a"), says("b"), user("more")])),
        ("the assistant speaks first", anthropic(&[says("hello"), user("go")])),
        ("last message is the assistant's", anthropic(&[user("go"), says("done")])),
        ("system is blank", with(anthropic(&[user("go")]), "system", "".into())),
        ("no tools are sent", json!({"max_tokens": 1, "messages": [user("go"), uses(&["t1"]), results(&["t1"])]})),
        ("input_schema is not an object", with(anthropic(&[user("go")]), "tools", json!([{"name": "read"}]))),
        ("tool name \"a b\"", with(anthropic(&[user("go")]), "tools", json!([{"name": "a b"}]))),
        ("neither a known type", with(anthropic(&[user("go")]), "tool_choice", json!({"type": "tool", "name": "x"}))),
        ("thinking in the middle", thinks(&[user("go"), uses(&["t1"]), results(&["t1"])])),
        ("a budget of 1024", with(thinks(&[user("go")]), "max_tokens", 1024.into())),
        ("a budget of 0", with(anthropic(&[user("go")]), "thinking", json!({"type": "enabled"}))),
        ("of no known kind", with(anthropic(&[user("go")]), "thinking", json!({"type": "hard"}))),
        ("a temperature beside", with(thinks(&[user("go")]), "temperature", 0.5.into())),
        ("a forced call", with(thinks(&[user("go")]), "tool_choice", json!({"type": "any"}))),
        ("does not take effort", with(anthropic(&[user("go")]), "output_config", json!({"effort": "none"}))),
        ("does not take format", with(anthropic(&[user("go")]), "output_config", json!({"format": {}}))),
        ("5 cache breakpoints", anthropic(&[blocks("user", &vec![marked; 5])])),
        ("not ephemeral", anthropic(&[blocks("user", &[permanent])])),
    ];
    for (expected, request) in refused {
        let found = check_anthropic(&request);
        assert!(found.iter().any(|violation| violation.contains(expected)), "{expected}: {found:?} for {request}");
    }
}
