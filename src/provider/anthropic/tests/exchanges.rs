//! A server that misbehaves, and one that does not. What holds for every format is tested beside the first.

use std::time::Duration;

use super::*;
use crate::provider::stand_in::{Server, answer, serve, sse_answer};

const START: &str = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
    \"content_block\":{\"type\":\"text\",\"text\":\"Hel\"}}\n\n";
const REST: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
    \"delta\":{\"type\":\"text_delta\",\"text\":\"lo\"}}\n\n";
const REASON: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\
    \"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn good() -> Vec<u8> {
    sse_answer(&[START, REST, REASON, STOP].concat())
}

fn error(status: &str, kind: &str, words: &str) -> Vec<u8> {
    let body = json!({"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"});
    answer(status, "Content-Type: application/json\r\n", &body.to_string())
}

fn ask(answers: Vec<Vec<u8>>) -> (Result<Reply, ProviderError>, Vec<String>, Server) {
    let server = serve(answers);
    let url = server.url("");
    let mut provider = Anthropic::new(Http::load("acme", &url, &|_| None).unwrap(), settings(&url));
    provider.schedule.first_delay = Duration::ZERO;
    let mut told = Vec::new();
    let mut observe = |progress: Progress<'_>| match progress {
        Progress::Text(text) | Progress::Reasoning(text) => told.push(text.to_owned()),
        Progress::Retrying { attempt, delay_ms, .. } => told.push(format!("{attempt}/{delay_ms}")),
    };
    let request = Request { model: "m", messages: &[user("Hi")], ..Request::default() };
    let result = provider.complete(&request, &Interrupt::default(), &mut observe);
    (result, told, server)
}

#[test]
fn a_stream_is_asked_for_and_read() {
    let (result, told, server) = ask(vec![good()]);
    assert_eq!(result.unwrap().text, "Hello");
    assert_eq!(told, ["Hel", "lo"]);
    let (head, body) = server.requests.recv().unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/messages http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nx-api-key: test-key-acme\r\n"), "{head}");
    assert!(head.contains("\r\nanthropic-version: 2023-06-01\r\n"), "{head}");
    assert!(!head.contains("authorization"), "{head}");
    assert_eq!((&body["stream"], &body["messages"][0]["content"][0]["text"]), (&json!(true), &json!("Hi")));
}

#[test]
fn a_reply_in_one_piece_is_taken() {
    let body = json!({"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"});
    for kind in ["", "Content-Type: application/json\r\n", "Content-Type: text/event-stream\r\n"] {
        let (result, told, _server) = ask(vec![answer("200 OK", kind, &body.to_string())]);
        assert_eq!((result.unwrap().text.as_str(), told), ("Hello", vec!["Hello".to_owned()]), "{kind}");
    }
}

#[test]
fn what_may_be_temporary_is_tried_again() {
    let in_stream = |kind: &str| {
        let data = json!({"type": "error", "error": {"type": kind, "message": kind}});
        sse_answer(&format!("{START}event: error\ndata: {data}\n\n"))
    };
    let mut cut = good();
    cut.truncate(cut.len() - REASON.len() - STOP.len());
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        ("429", error("429 Too Many Requests", "rate_limit_error", "slow down"), &["2/0", "Hel", "lo"]),
        ("500", error("500 Oops", "api_error", "oh no"), &["2/0", "Hel", "lo"]),
        ("529", error("529 Overloaded", "overloaded_error", "Overloaded"), &["2/0", "Hel", "lo"]),
        ("overloaded", in_stream("overloaded_error"), &["Hel", "2/0", "Hel", "lo"]),
        ("api error", in_stream("api_error"), &["Hel", "2/0", "Hel", "lo"]),
        ("cut", cut, &["Hel", "lo", "2/0", "Hel", "lo"]),
        ("unfinished", sse_answer(START), &["Hel", "2/0", "Hel", "lo"]),
        ("no event", sse_answer(": nothing\n\n"), &["2/0", "Hel", "lo"]),
    ];
    for (name, bad, expected) in cases {
        let (result, told, server) = ask(vec![bad, good()]);
        assert_eq!(result.map(|reply| reply.text).as_deref(), Ok("Hello"), "{name}");
        assert_eq!(told, expected, "{name}");
        assert_eq!(server.requests.recv().unwrap().1, server.requests.recv().unwrap().1, "{name}");
    }
}

#[test]
fn a_connection_that_breaks_behind_the_reason_to_stop_costs_nothing() {
    let mut cut = good();
    cut.truncate(cut.len() - STOP.len());
    let (result, told, _server) = ask(vec![cut]);
    assert_eq!((result.unwrap().text.as_str(), told.len()), ("Hello", 2));
}

#[test]
fn what_lasts_is_told_at_once() {
    let too_long = "prompt is too long: 200001 tokens > 200000 maximum";
    let no_room = "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000";
    let cases = [
        (error("400 Bad", "invalid_request_error", "no"), "provider_error", "acme answered with HTTP status 400: no"),
        (error("400 Bad", "invalid_request_error", too_long), "context_overflow", too_long),
        (error("400 Bad", "invalid_request_error", no_room), "context_overflow", no_room),
        (error("401 No", "authentication_error", "invalid x-api-key"), "unauthorized", "401: invalid x-api-key"),
        (error("403 No", "permission_error", "no"), "unauthorized", "403: no"),
        (error("404 No", "not_found_error", "model: m"), "provider_error", "404: model: m"),
        (error("413 Big", "request_too_large", "too big"), "context_overflow", "413: too big"),
        (
            answer("200 OK", "Content-Type: application/json\r\n", "{\"object\":\"list\"}"),
            "provider_error",
            "that is not a model's reply",
        ),
        (
            sse_answer(
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\
                \"message\":\"bad tool\"}}\n\n",
            ),
            "provider_error",
            "acme reported an error in its reply: bad tool",
        ),
    ];
    for (bad, code, words) in cases {
        let (result, told, _server) = ask(vec![bad]);
        let error = result.unwrap_err();
        assert_eq!((error.code.as_str(), error.retryable), (code, false), "{}", error.message);
        assert!(error.message.contains(words), "{}", error.message);
        assert_eq!(told, Vec::<String>::new());
    }
}

#[test]
fn an_effort_that_is_not_known_is_refused_before_anything_is_sent() {
    let server = serve(vec![good()]);
    let url = server.url("");
    let provider = Anthropic::new(Http::load("acme", &url, &|_| None).unwrap(), settings(&url));
    let request =
        Request { model: "m", messages: &[user("Hi")], reasoning_effort: Some("loads"), ..Request::default() };
    let error = provider.complete(&request, &Interrupt::default(), &mut |_| ()).unwrap_err();
    assert!(!error.retryable && error.hint.unwrap().contains("medium"));
    assert!(server.requests.try_recv().is_err());
}

#[test]
fn thoughts_that_hold_a_key_are_not_kept() {
    crate::mask::register("TEST_THOUGHT_KEY", "sk-thought-0123456789");
    for (thought, is_kept) in [("It is sk-thought-0123456789.", false), ("It is a key.", true)] {
        let content = json!([
            {"type": "thinking", "thinking": thought, "signature": "s"}, {"type": "text", "text": "Done."},
        ]);
        let body = json!({"type": "message", "content": content, "stop_reason": "end_turn"});
        let (result, _, _server) = ask(vec![answer("200 OK", "", &body.to_string())]);
        let reply = result.unwrap();
        assert_eq!((reply.text.as_str(), reply.opaque.is_some()), ("Done.", is_kept), "{thought}");
    }
}
