//! A server that misbehaves, and one that does not.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use super::*;
use crate::interrupt::Cause;
use crate::provider::stand_in::{Server, answer, read_request, serve, sse_answer};
use crate::provider::{Message, sse};

const GOOD: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";

struct Asked {
    result: Result<Reply, ProviderError>,
    /// Deltas as they are, retries as `attempt/delay`.
    told: Vec<String>,
}

fn ask(url: &str, first_delay: Duration, interrupt: &Interrupt) -> Asked {
    let mut provider = OpenAi::new(Http::load("acme", url, &|_| None).unwrap(), settings(url));
    provider.schedule.first_delay = first_delay;
    let mut told = Vec::new();
    let mut observe = |progress: Progress<'_>| match progress {
        Progress::Text(text) | Progress::Reasoning(text) => told.push(text.to_owned()),
        Progress::Retrying { attempt, delay_ms, .. } => told.push(format!("{attempt}/{delay_ms}")),
    };
    let messages = [Message::User { text: "Hi".to_owned() }];
    let request = Request { model: "m", messages: &messages, ..Request::default() };
    let result = provider.complete(&request, interrupt, &mut observe);
    Asked { result, told }
}

fn ask_of(answers: Vec<Vec<u8>>) -> (Asked, Server) {
    let server = serve(answers);
    (ask(&server.url("/v1"), Duration::ZERO, &Interrupt::default()), server)
}

#[test]
fn a_stream_is_asked_for_and_read() {
    let (asked, server) = ask_of(vec![sse_answer(GOOD)]);
    assert_eq!(asked.result.unwrap().text, "Hello");
    assert_eq!(asked.told, ["Hello"]);
    let (head, body) = server.requests.recv().unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nauthorization: bearer test-key-acme\r\n"), "{head}");
    assert!(head.contains("\r\nuser-agent: attini/"), "{head}");
    assert_eq!(body["messages"], json!([{"role": "user", "content": "Hi"}]));
}

#[test]
fn a_reply_in_one_piece_is_taken_whatever_it_is_called() {
    let string = json!({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).to_string();
    let parts = json!({"choices": [{"message": {"content": [{"type": "text", "text": "Hello"}]}}]}).to_string();
    for body in [format!("\u{feff}\n {string}"), string, parts] {
        for kind in ["", "Content-Type: application/json\r\n", "Content-Type: text/event-stream\r\n"] {
            let (asked, _server) = ask_of(vec![answer("200 OK", kind, &body)]);
            assert_eq!(asked.result.unwrap().text, "Hello", "{kind} {body}");
        }
    }
    let (asked, _server) = ask_of(vec![answer("200 OK", "Content-Type: text/plain\r\n", GOOD)]);
    assert_eq!(asked.result.unwrap().text, "Hello");
}

#[test]
fn what_may_be_temporary_is_tried_again() {
    let overloaded =
        format!("{HALF}data: {{\"error\":{{\"message\":\"overloaded\",\"type\":\"overloaded_error\"}}}}\n\n");
    let mut cut = sse_answer(HALF);
    cut.truncate(cut.len() - 5);
    let unfinished = sse_answer(HALF);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{:x}\r\n{HALF}\r\n",
        HALF.len()
    );
    let body_less =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        ("429", answer("429 Too Many Requests", "Retry-After: 0\r\n", "{}"), &["2/0", "Hello"]),
        ("500", answer("500 Oops", "", "<html></html>"), &["2/0", "Hello"]),
        ("529", answer("529 Overloaded", "", ""), &["2/0", "Hello"]),
        ("overloaded", sse_answer(&overloaded), &["Hel", "2/0", "Hello"]),
        ("cut", cut, &["2/0", "Hello"]),
        ("unfinished", unfinished, &["Hel", "2/0", "Hello"]),
        ("cut between chunks", chunked.into_bytes(), &["Hel", "2/0", "Hello"]),
        ("hung up", b"HTTP/1.1 200".to_vec(), &["2/0", "Hello"]),
        ("no body", body_less.to_vec(), &["2/0", "Hello"]),
        ("not JSON", sse_answer("data: {\n\n"), &["2/0", "Hello"]),
        ("garbled", answer("200 OK", "Content-Type: application/json\r\n", "{no json: <<<"), &["2/0", "Hello"]),
    ];
    for (name, bad, told) in cases {
        let (asked, server) = ask_of(vec![bad, sse_answer(GOOD)]);
        assert_eq!(asked.result.map(|reply| reply.text).as_deref(), Ok("Hello"), "{name}");
        assert_eq!(asked.told, told, "{name}");
        assert_eq!(server.requests.recv().unwrap().1, server.requests.recv().unwrap().1, "{name}");
    }
}

#[test]
fn the_services_delay_replaces_the_schedule() {
    let server = serve(vec![answer("429 Too Many Requests", "Retry-After: 0\r\n", "{}"), sse_answer(GOOD)]);
    let asked = ask(&server.url("/v1"), Duration::from_secs(600), &Interrupt::default());
    assert_eq!(
        (asked.result.unwrap().text.as_str(), asked.told),
        ("Hello", vec!["2/0".to_owned(), "Hello".to_owned()])
    );
    let (asked, _server) = ask_of(vec![answer("503 Busy", "Retry-After: 3600\r\n", "busy")]);
    let error = asked.result.unwrap_err();
    assert_eq!(asked.told, Vec::<String>::new());
    assert_eq!(error.message, "acme answered with HTTP status 503: busy; it asks to wait for 3600 s");
    assert!(error.retryable && error.hint.unwrap().contains("3600 s"));
}

#[test]
fn five_tries_are_all() {
    let (asked, _server) = ask_of(vec![answer("500 Oops", "", "{\"error\":{\"message\":\"oh no\"}}"); 9]);
    let error = asked.result.unwrap_err();
    assert_eq!(asked.told, ["2/0", "3/0", "4/0", "5/0"]);
    assert_eq!(error.message, "acme answered with HTTP status 500: oh no (tried 5 times)");
    assert_eq!((error.code.as_str(), error.retryable), ("provider_error", true));
}

#[test]
fn what_lasts_is_told_at_once() {
    let overflow = "{\"error\":{\"message\":\"too long\",\"code\":\"context_length_exceeded\"}}";
    let html = answer("200 OK", "Content-Type: text/html\r\n", "<html>Hello</html>");
    let redirect = answer("307 Elsewhere", "Location: http://127.0.0.1:9/\r\n", "");
    let cases = [
        (answer("400 Bad", "", "{\"error\":\"no\"}"), "provider_error", "acme answered with HTTP status 400: no"),
        (answer("401 No", "", ""), "unauthorized", "acme answered with HTTP status 401"),
        (answer("400 Bad", "", overflow), "context_overflow", "acme answered with HTTP status 400: too long"),
        (redirect, "provider_error", "acme answered with HTTP status 307"),
        (html, "provider_error", "acme answered with text/html that is not a model's reply"),
        (
            answer("200 OK", "Content-Type: text/plain\r\n", "Hello there"),
            "provider_error",
            "acme answered with text/plain that is not a model's reply: Hello there",
        ),
        (
            answer("200 OK", "Content-Type: application/json\r\n", "{\"object\":\"list\"}"),
            "provider_error",
            "acme answered with application/json that is not a model's reply: {\"object\":\"list\"}",
        ),
        (
            sse_answer("data: {\"error\":{\"message\":\"bad tool\",\"type\":\"invalid_request_error\"}}\n\n"),
            "provider_error",
            "acme reported an error in its reply: bad tool",
        ),
    ];
    for (bad, code, message) in cases {
        let (asked, _server) = ask_of(vec![bad]);
        let error = asked.result.unwrap_err();
        assert_eq!((error.code.as_str(), error.message.as_str(), error.retryable), (code, message, false));
        assert_eq!(asked.told, Vec::<String>::new());
    }
}

#[test]
fn a_line_without_end_is_refused() {
    let huge = format!("data: {}", "x".repeat(sse::LINE_BYTES_MAX));
    let (asked, _server) = ask_of(vec![sse_answer(&huge)]);
    let error = asked.result.unwrap_err();
    assert_eq!((error.message.contains("a line of more than"), error.retryable), (true, false), "{}", error.message);
}

#[test]
fn nobody_there_is_told_at_once_on_this_machine() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let asked = ask(&url, Duration::ZERO, &Interrupt::default());
    let error = asked.result.unwrap_err();
    assert!(error.message.starts_with("cannot reach acme: "), "{}", error.message);
    assert!(error.retryable && error.hint.unwrap().contains("running"));
    assert_eq!(asked.told, Vec::<String>::new());
}

#[test]
fn an_interrupt_ends_the_waiting_for_head_and_body() {
    let mut stuck = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n".to_vec();
    stuck.extend_from_slice(HALF.as_bytes());
    for (name, first) in [("head", Vec::new()), ("body", stuck)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let interrupt = Interrupt::default();
        let raising = interrupt.clone();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_request(&stream);
            stream.write_all(&first).unwrap();
            let raised = Instant::now();
            raising.raise(Cause::TimeLimit);
            // The client hangs up, which ends this reading.
            let _ = stream.read(&mut [0]);
            raised
        });
        let asked = ask(&url, Duration::from_secs(600), &interrupt);
        let ended = Instant::now();
        let error = asked.result.unwrap_err();
        assert_eq!((error.interrupted, error.code.as_str()), (true, "interrupted"), "{name}");
        let raised = server.join().unwrap();
        assert!(ended.saturating_duration_since(raised) < Duration::from_secs(1), "{name}");
    }
}

#[test]
fn an_interrupt_ends_the_waiting_between_tries() {
    let server = serve(vec![answer("500 Oops", "", "")]);
    let interrupt = Interrupt::default();
    let raising = interrupt.clone();
    let url = server.url("/v1");
    let requests = server.requests;
    let raiser = std::thread::spawn(move || {
        requests.recv().unwrap();
        raising.raise(Cause::TimeLimit);
    });
    let asked = ask(&url, Duration::from_secs(600), &interrupt);
    raiser.join().unwrap();
    assert!(asked.result.unwrap_err().interrupted);
}

#[test]
fn a_connection_is_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..2 {
            read_request(&stream);
            let length = GOOD.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(format!("{head}{GOOD}").as_bytes()).unwrap();
        }
    });
    let http = Http::load("acme", &url, &|_| None).unwrap();
    let interrupt = Interrupt::default();
    for _ in 0..2 {
        let mut reply = http.post(&url, &[], b"{}".to_vec(), &interrupt).unwrap();
        // Read to its end, so that the connection is surely given back before the next request.
        assert_eq!(reply.read(usize::MAX, None).unwrap(), GOOD.as_bytes());
    }
    server.join().unwrap();
}
