//! The model server by itself, asked with a client of its own: both formats, streams, cuts, delays, refusals.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Latch, ModelServer, Reply, SIGNATURE, reply};

/// A status and a body; an error where the connection broke off.
type Answer = Result<(u16, String), String>;

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    config.timeout_global(Some(Duration::from_secs(20))).build().into()
}

fn post(agent: &ureq::Agent, url: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let request = headers.iter().fold(agent.post(url), |request, (name, value)| request.header(*name, *value));
    let response = request.send(body).map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let mut text = Vec::new();
    let read = response.into_body().into_reader().read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    read.map(|_| (status, text.clone())).map_err(|error| format!("{error} after {} bytes", text.len()))
}

const OPENAI_HEADERS: [(&str, &str); 2] = [("Authorization", "Bearer k"), ("Content-Type", "application/json")];
const ANTHROPIC_HEADERS: [(&str, &str); 3] =
    [("x-api-key", "k"), ("anthropic-version", "2023-06-01"), ("Content-Type", "application/json")];

fn ask_openai(server: &ModelServer, body: &Value) -> Answer {
    let url = format!("{}/chat/completions", server.openai_base_url());
    post(&agent(), &url, &OPENAI_HEADERS, &body.to_string())
}

fn ask_anthropic(server: &ModelServer, body: &Value) -> Answer {
    let url = format!("{}/v1/messages", server.anthropic_base_url());
    post(&agent(), &url, &ANTHROPIC_HEADERS, &body.to_string())
}

fn openai(messages: &[Value]) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    let tool = json!({"type": "function", "function": {"name": "read", "parameters": schema}});
    json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": messages, "tools": [tool]})
}

fn anthropic(messages: &[Value]) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    let tool = json!({"name": "read", "input_schema": schema});
    json!({"model": "m", "stream": true, "max_tokens": 9, "messages": messages, "tools": [tool]})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn says(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn scripted(replies: impl IntoIterator<Item = Reply>) -> ModelServer {
    let server = ModelServer::start();
    server.script(replies);
    server
}

/// The data of every event, parsed; `[DONE]` as a text.
fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| data.into())).collect()
}

/// All texts at a pointer, joined.
fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

#[test]
fn openai_streams_text_calls_and_usage() {
    let said = reply().text("I look at it first.").call("read", json!({"path": "a.txt"})).call("read", json!({}));
    let server = scripted([said.usage(7, 3, 2)]);
    let (status, stream) = ask_openai(&server, &openai(&[user("go")])).unwrap();
    let events = events(&stream);
    assert_eq!(status, 200);
    assert_eq!(joined(&events, "/choices/0/delta/content"), "I look at it first.");
    assert_eq!(joined(&events, "/choices/0/delta/tool_calls/0/id"), "call_1call_2");
    assert_eq!(joined(&events, "/choices/0/delta/tool_calls/0/function/arguments"), "{\"path\":\"a.txt\"}{}");
    assert_eq!(joined(&events, "/choices/0/finish_reason"), "tool_calls");
    let usage = &events[events.len() - 2]["usage"];
    assert_eq!(usage["prompt_tokens"], 7);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 2);
    assert_eq!(events.last().unwrap(), "[DONE]");
    server.finish();
}

#[test]
fn anthropic_streams_reasoning_text_and_calls() {
    let said = reply().reasoning("Let me see.").text("I look.").raw_call("toolu_1", "read", "{\"path\":\"a.txt\"}");
    let server = scripted([said]);
    let (status, stream) = ask_anthropic(&server, &anthropic(&[user("go")])).unwrap();
    let events = events(&stream);
    assert_eq!(status, 200);
    assert_eq!(joined(&events, "/delta/thinking"), "Let me see.");
    assert_eq!(joined(&events, "/delta/signature"), SIGNATURE);
    assert_eq!(joined(&events, "/delta/text"), "I look.");
    assert_eq!(joined(&events, "/content_block/id"), "toolu_1");
    assert_eq!(joined(&events, "/delta/partial_json"), "{\"path\":\"a.txt\"}");
    assert_eq!(joined(&events, "/delta/stop_reason"), "tool_use");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    server.finish();
}

#[test]
fn a_reply_can_be_one_document() {
    let said = || reply().text("hi").call("read", json!({"path": "a"})).unstreamed();
    let server = scripted([said(), said().finish("length")]);
    let (_, text) = ask_openai(&server, &openai(&[user("go")])).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["choices"][0]["message"]["content"], "hi");
    assert_eq!(document["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"path\":\"a\"}");
    let (_, text) = ask_anthropic(&server, &anthropic(&[user("go")])).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["content"][1]["input"], json!({"path": "a"}));
    assert_eq!(document["stop_reason"], "max_tokens");
    server.finish();
}

#[test]
fn chunk_borders_do_not_change_the_body() {
    let said = || reply().text("naïve, ありがとう");
    let server = scripted([said(), said().chunk_bytes(1), said().chunk_bytes(1000)]);
    let answers: Vec<_> = (0..3).map(|_| ask_openai(&server, &openai(&[user("go")])).unwrap()).collect();
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    server.finish();
}

#[test]
fn a_cut_breaks_the_connection_behind_the_last_byte_sent() {
    let server =
        scripted([reply().text("hello").cut_after(20), reply().text("hello").cut_after(0), reply().text("hello")]);
    let cut = ask_openai(&server, &openai(&[user("go")]));
    assert!(cut.as_ref().is_err_and(|error| error.ends_with("after 20 bytes")), "{cut:?}");
    let cut = ask_openai(&server, &openai(&[user("go")]));
    assert!(cut.as_ref().is_err_and(|error| error.ends_with("after 0 bytes")), "{cut:?}");
    ask_openai(&server, &openai(&[user("go")])).unwrap();
    server.finish();
}

#[test]
fn errors_raw_bytes_and_errors_in_a_stream_are_played_as_written() {
    let server = scripted([
        reply().error(429, "slow down").header("Retry-After", "7"),
        reply().raw(": nothing but a comment\n\n"),
        reply().text("well").error_in_stream("overloaded_error"),
        reply().text("well").without_done(),
    ]);
    let (status, body) = ask_anthropic(&server, &anthropic(&[user("go")])).unwrap();
    assert_eq!(status, 429);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["error"]["message"], "slow down");
    let (_, body) = ask_anthropic(&server, &anthropic(&[user("go")])).unwrap();
    assert_eq!(body, ": nothing but a comment\n\n");
    let (_, body) = ask_anthropic(&server, &anthropic(&[user("go")])).unwrap();
    assert_eq!(events(&body).last().unwrap()["error"]["type"], "overloaded_error");
    let (_, body) = ask_openai(&server, &openai(&[user("go")])).unwrap();
    assert!(!body.contains("[DONE]") && body.contains("\"finish_reason\":\"stop\""), "{body}");
    server.finish();
}

#[test]
fn delays_are_kept() {
    let pause = Duration::from_millis(20);
    let server = scripted([reply().text("hi").delay_before_headers(pause).delay_between_chunks(pause)]);
    let start = Instant::now();
    ask_openai(&server, &openai(&[user("go")])).unwrap();
    // The role, the text, the finish reason, the usage and the end: four pauses between five chunks.
    assert!(start.elapsed() >= 5 * pause, "{:?}", start.elapsed());
    server.finish();
}

#[test]
fn a_held_reply_waits_for_the_test() {
    let (before, within) = (Latch::new(), Latch::new());
    let server = scripted([reply().text("hello").hold(&before).hold_after(30, &within)]);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask_openai(&server, &openai(&[user("go")])).unwrap());
        server.wait_requests(1);
        assert!(!asking.is_finished());
        before.release();
        within.release();
        assert_eq!(joined(&events(&asking.join().unwrap().1), "/choices/0/delta/content"), "hello");
    });
    server.finish();
}

#[test]
fn a_connection_is_kept_between_requests() {
    let server = scripted([reply().text("a"), reply().error(500, "oops"), reply().text("b")]);
    let agent = agent();
    let url = format!("{}/chat/completions", server.openai_base_url());
    for _ in 0..3 {
        post(&agent, &url, &OPENAI_HEADERS, &openai(&[user("go")]).to_string()).unwrap();
    }
    assert_eq!(server.request_count(), 3);
    assert!(server.requests().iter().all(|request| request.connection == 1), "one connection");
    assert_eq!(server.last_request().header("authorization"), Some("Bearer k"));
    server.finish();
}

#[test]
fn a_bad_request_is_refused_and_plays_nothing() {
    let server = scripted([reply().text("well")]);
    let call = json!({"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}});
    let open = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let (status, body) = ask_openai(&server, &openai(&[user("go"), open, user("more")])).unwrap();
    assert_eq!(status, 400);
    assert!(body.contains("has no result behind its message"), "{body}");
    assert_eq!(server.take_violations().len(), 1);
    assert_eq!(ask_openai(&server, &openai(&[user("go")])).unwrap().0, 200);
    server.finish();
}

#[test]
fn what_comes_around_the_messages_is_checked() {
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Headers, &str, Value); 7] = [
        ("no key was sent", &OPENAI_HEADERS[1..], "/v1/chat/completions", openai(&[user("go")])),
        ("the content type is", &OPENAI_HEADERS[..1], "/v1/chat/completions", openai(&[user("go")])),
        ("no key was sent", &ANTHROPIC_HEADERS[1..], "/v1/messages", anthropic(&[user("go")])),
        ("model is missing", &OPENAI_HEADERS, "/v1/chat/completions", json!({"messages": [user("go")]})),
        ("anthropic-version", &[ANTHROPIC_HEADERS[0], ANTHROPIC_HEADERS[2]], "/v1/messages", anthropic(&[user("go")])),
        ("no such address", &OPENAI_HEADERS, "/v1/v1/chat/completions", openai(&[user("go")])),
        ("the body is not JSON", &OPENAI_HEADERS, "/v1/chat/completions", Value::Null),
    ];
    for (expected, headers, path, body) in cases {
        let server = scripted([reply().text("never said")]);
        let url = format!("{}{path}", server.anthropic_base_url());
        let body = if body.is_null() { "{".to_owned() } else { body.to_string() };
        let (status, _) = post(&agent(), &url, headers, &body).unwrap();
        assert!(status == 400 || status == 404, "{expected}: {status}");
        let found = server.take_violations().join("\n");
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let server = scripted([reply().text("said")]);
    server.allow_no_key();
    let url = format!("{}/chat/completions", server.openai_base_url());
    assert_eq!(post(&agent(), &url, &OPENAI_HEADERS[1..], &openai(&[user("go")]).to_string()).unwrap().0, 200);
    server.finish();
}

#[test]
fn beyond_the_script_everything_is_refused() {
    let server = scripted([]);
    assert_eq!(ask_openai(&server, &openai(&[user("go")])).unwrap().0, 400);
    assert!(server.take_violations().join("\n").contains("no reply left"));
}

#[test]
fn what_was_refused_or_not_played_fails_the_end() {
    let refused = scripted([]);
    ask_openai(&refused, &openai(&[user("go")])).unwrap();
    let unplayed = scripted([reply().text("never asked for")]);
    for (server, expected) in [(refused, "refused"), (unplayed, "never asked for")] {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.finish()));
        let message = ended.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains(expected), "{message}");
    }
    let stopped = scripted([reply().text("never asked for")]);
    stopped.allow_unplayed_replies();
    stopped.finish();
}

#[test]
fn each_request_continues_an_earlier_one() {
    let first = [user("go"), says("one"), user("more")];
    let next = |messages: &[Value]| [&first[..], messages].concat();
    // What is sent second, and whether it is taken.
    let cases: [(&str, Vec<Value>, bool); 6] = [
        ("the same again", first.to_vec(), true),
        ("more", next(&[says("two"), user("still more")]), true),
        ("the last text grew", vec![user("go"), says("one"), user("more\n\nand more")], true),
        ("less", vec![user("go")], false),
        ("an earlier text changed", vec![user("Go"), says("one"), user("more"), says("two"), user("x")], false),
        ("an answer changed", vec![user("go"), says("One"), user("more")], false),
    ];
    for (name, second, taken) in &cases {
        for speak in [ask_openai, ask_anthropic] {
            let server = scripted([reply().text("a"), reply().text("b")]);
            server.allow_unplayed_replies();
            let body = |messages: &[Value]| json!({"model": "m", "max_tokens": 9, "messages": messages});
            assert_eq!(speak(&server, &body(&first)).unwrap().0, 200, "{name}");
            assert_eq!(speak(&server, &body(second)).unwrap().0 == 200, *taken, "{name}");
            let found = server.take_violations().join("\n");
            assert_eq!(found.contains("do not continue"), !taken, "{name}: {found}");
        }
    }
}

#[test]
fn a_history_that_is_scripted_to_start_anew_may() {
    let server =
        scripted([reply().text("a"), reply().text("b").starts_history(), reply().text("c"), reply().text("d")]);
    for messages in [
        vec![user("go")],
        vec![user("aside")],
        vec![user("go"), says("a"), user("more")],
        vec![user("aside"), says("b"), user("more")],
    ] {
        assert_eq!(ask_openai(&server, &openai(&messages)).unwrap().0, 200, "{messages:?}");
    }
    server.finish();

    let server = scripted([reply().text("a"), reply().text("b")]);
    server.allow_rewritten_history();
    ask_openai(&server, &openai(&[user("go")])).unwrap();
    ask_openai(&server, &openai(&[user("a summary")])).unwrap();
    server.finish();
}

#[test]
fn moving_cache_breakpoints_and_added_results_continue_a_history() {
    let marked = |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
    let call = json!({"type": "tool_use", "id": "t1", "name": "read", "input": {}});
    let answered = json!({"type": "tool_result", "tool_use_id": "t1", "content": "x"});
    let assistant = json!({"role": "assistant", "content": [call]});
    let server = scripted([reply().text("a"), reply().text("b"), reply().text("c")]);
    let content = |blocks: &[Value]| json!({"role": "user", "content": blocks});
    for messages in [
        vec![content(&[marked("go")])],
        vec![user("go"), assistant.clone(), content(std::slice::from_ref(&answered))],
        vec![user("go"), assistant, content(&[answered, marked("a task has ended")])],
    ] {
        assert_eq!(ask_anthropic(&server, &anthropic(&messages)).unwrap().0, 200, "{messages:?}");
    }
    server.finish();
}

#[test]
fn prompt_and_tools_stay_within_a_turn() {
    let system = |text: &str| json!({"role": "system", "content": text});
    let mut other_tools = openai(&[system("s"), user("go")]);
    other_tools["tools"][0]["function"]["description"] = "other".into();
    let cases = [
        ("the tools array changed", other_tools.clone()),
        ("the system prompt changed", openai(&[system("t"), user("go")])),
        ("", openai(&[system("t"), user("go"), says("a"), user("a new turn")])),
    ];
    for (expected, second) in cases {
        let server = scripted([reply().text("a"), reply().text("b")]);
        server.allow_unplayed_replies();
        ask_openai(&server, &openai(&[system("s"), user("go")])).unwrap();
        ask_openai(&server, &second).unwrap();
        let found = server.take_violations();
        assert!(found.iter().all(|violation| violation.contains(expected)), "{found:?}");
        assert_eq!(found.is_empty(), expected.is_empty(), "{expected}");
    }
    let server = scripted([reply().text("a"), reply().text("b")]);
    server.allow_changed_prefix();
    ask_openai(&server, &openai(&[system("s"), user("go")])).unwrap();
    ask_openai(&server, &other_tools).unwrap();
    server.finish();
}

#[test]
fn a_paused_reply_may_be_sent_back_as_the_last_message() {
    let server = scripted([reply().text("part").finish("pause_turn"), reply().text("rest")]);
    ask_anthropic(&server, &anthropic(&[user("go")])).unwrap();
    assert_eq!(ask_anthropic(&server, &anthropic(&[user("go"), says("part")])).unwrap().0, 200);
    assert_eq!(ask_anthropic(&server, &anthropic(&[user("go"), says("part"), user("x"), says("y")])).unwrap().0, 400);
    assert!(server.take_violations().join("\n").contains("the last message is the assistant's"));
}

#[test]
fn recorded_requests_can_be_looked_into() {
    let server = scripted([reply().text("a"), reply().text("b")]);
    let call = json!({"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}});
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "one"});
    let open = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let system = json!({"role": "system", "content": "You are attini."});
    ask_openai(&server, &openai(&[system, user("go"), open, result])).unwrap();
    let request = server.last_request();
    assert_eq!(request.system(), "You are attini.");
    assert_eq!(request.tool_names(), ["read"]);
    assert_eq!(request.result("c1"), "one");
    assert_eq!(request.last_user_text(), None);

    let call = json!({"type": "tool_use", "id": "t1", "name": "read", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "two"}]});
    let mut body = anthropic(&[
        user("go"),
        json!({"role": "assistant", "content": [call]}),
        json!({"role": "user", "content": [result, {"type": "text", "text": "and more"}]}),
    ]);
    body["system"] = json!([{"type": "text", "text": "You are attini."}]);
    ask_anthropic(&server, &body).unwrap();
    let request = server.last_request();
    assert_eq!(request.system(), "You are attini.");
    assert_eq!(request.tool_names(), ["read"]);
    assert_eq!(request.results(), [("t1".to_owned(), "two".to_owned())]);
    assert_eq!(request.last_user_text().as_deref(), Some("and more"));
    server.finish();
}

#[test]
fn models_are_listed() {
    let server = scripted([]);
    let mut response = agent().get(format!("{}/models", server.openai_base_url())).call().unwrap();
    let models: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(models["data"][0]["id"], "test-model");
    server.finish();
}
