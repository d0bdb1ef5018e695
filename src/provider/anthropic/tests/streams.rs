//! What the events of a stream mean, each by itself, and the same as one object; whole streams are in `fixtures/wire`.

use super::*;
use crate::provider::Finish;
use crate::provider::reading::{Assembly, Stream};
use crate::session::record::Usage;

fn reply(text: &str, calls: Vec<ToolCall>, finish_reason: &str, tokens: [u64; 3]) -> Reply {
    let [input_tokens, output_tokens, cached_input_tokens] = tokens;
    Reply {
        text: text.to_owned(),
        reasoning: String::new(),
        tool_calls: calls,
        finish: Finish::of(finish_reason),
        finish_reason: finish_reason.to_owned(),
        usage: Usage { input_tokens, output_tokens, cached_input_tokens },
        opaque: None,
    }
}

fn with_opaque(reply: Reply, reasoning: &str, opaque: Value) -> Reply {
    Reply { reasoning: reasoning.to_owned(), opaque: Some(opaque), ..reply }
}

/// The reply, or `None` if it is not complete.
fn play(stream: &[u8]) -> Option<Reply> {
    let mut so_far = Stream::new(SERVICE, ReplySoFar::new(SERVICE));
    so_far.push(stream, &mut |_| ()).unwrap();
    so_far.end(&mut |_| ()).unwrap();
    so_far.assembly.patience().map(|_| so_far.assembly.finish())
}

#[test]
fn messages_behind_each_other_are_one_reply() {
    let stream = include_bytes!("../../../../fixtures/wire/anthropic/two-messages.sse");
    let blocks = json!([{"type": "text", "bytes": 7}, {"type": "tool_use"}, {"type": "text", "bytes": 7}]);
    let calls = vec![call("toolu_08", "read", "{\"path\":\"a\"}")];
    let expected =
        with_opaque(reply("First. Second.", calls.clone(), "end_turn", [40, 11, 0]), "", json!({"blocks": blocks}));
    assert_eq!(play(stream), Some(expected.clone()));
    let first = reply("First. ", calls, "tool_use", [10, 5, 0]);
    let mut seen = vec![None];
    for end in 0..stream.len() {
        let reply = play(&stream[..end]);
        if seen.last() != Some(&reply) {
            seen.push(reply);
        }
    }
    assert_eq!(seen, [None, Some(first), None, Some(expected)]);
}

fn events(events: &[Value]) -> Result<Reply, Trouble> {
    let mut so_far = ReplySoFar::new(SERVICE);
    for event in events {
        so_far.push_event("", &event.to_string(), &mut |_| ())?;
    }
    assert!(so_far.patience().is_some(), "{events:?}");
    Ok(so_far.finish())
}

fn text() -> Value {
    json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}})
}

fn ending(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}})
}

#[test]
fn endings_are_told_apart() {
    let cases = [
        ("end_turn", Finish::End),
        ("tool_use", Finish::End),
        ("stop_sequence", Finish::End),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("refusal", Finish::Refusal),
        ("pause_turn", Finish::Pause),
        ("odd", Finish::Unfamiliar),
    ];
    for (reason, finish) in cases {
        let reply = events(&[text(), ending(reason)]).unwrap();
        assert_eq!((reply.finish, reply.finish_reason.as_str(), reply.text.as_str()), (finish, reason, "x"));
    }
    let reply = events(&[text(), json!({"type": "message_stop"})]).unwrap();
    assert_eq!((reply.finish, reply.finish_reason.as_str()), (Finish::End, ""));
}

#[test]
fn an_error_in_the_stream_ends_it_unless_it_was_complete() {
    let error = |kind: &str, words: &str| json!({"type": "error", "error": {"type": kind, "message": words}});
    let cases = [
        (error("overloaded_error", "Overloaded"), "provider_error", true),
        (error("api_error", "Internal server error"), "provider_error", true),
        (error("rate_limit_error", "slow down"), "rate_limited", true),
        (error("invalid_request_error", "no"), "provider_error", false),
        (error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "context_overflow", false),
        (error("authentication_error", "no"), "provider_error", false),
    ];
    for (event, code, again) in cases {
        let trouble = events(&[text(), event.clone()]).unwrap_err();
        assert_eq!((trouble.error.code.as_str(), trouble.again), (code, again), "{event}");
        assert!(trouble.error.message.starts_with("acme reported an error in its reply: "), "{event}");
        assert_eq!(events(&[text(), ending("end_turn"), event]).unwrap().text, "x");
    }
    let mut so_far = ReplySoFar::new(SERVICE);
    assert!(so_far.push_event("error", "oh no", &mut |_| ()).unwrap_err().again);
    assert!(so_far.push_event("ping", "{", &mut |_| ()).unwrap_err().again);
}

#[test]
fn foreign_shapes_are_passed_over() {
    let block =
        |index: Value, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: Value, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let reply = events(&[
        json!([]),
        json!("text"),
        json!({"type": 7}),
        json!({"type": "message_start"}),
        delta(Value::Null, json!({"type": "signature_delta", "signature": "x"})),
        block(json!(-1), json!("text")),
        block(json!(0), json!({"type": "text", "text": null})),
        delta(json!(0), json!({"type": "text_delta", "text": 7})),
        delta(json!(0), json!({"type": "thinking_delta", "thinking": "no"})),
        delta(json!(0), json!("text_delta")),
        delta(json!(0), json!({"type": "text_delta", "text": "yes"})),
        json!({"type": "content_block_stop", "index": 99}),
        json!({"type": "message_delta", "delta": {"stop_reason": 7}, "usage": {"output_tokens": -1, "input_tokens": "x"}}),
        ending("end_turn"),
    ])
    .unwrap();
    assert_eq!(reply, super::streams::reply("yes", vec![], "end_turn", [0, 0, 0]));
}

#[test]
fn blocks_and_calls_are_limited() {
    let many = |kind: &str, count: usize| {
        let block = json!({"type": "content_block_start", "content_block": {"type": kind}});
        let mut list = vec![block; count];
        list.push(ending("end_turn"));
        events(&list)
    };
    assert_eq!(many("tool_use", 16 * 1024).unwrap().tool_calls.len(), 16 * 1024);
    assert!(many("text", 16 * 1024).is_ok());
    for kind in ["text", "tool_use"] {
        let error = many(kind, 16 * 1024 + 1).unwrap_err().error;
        let expected = ("the reply of acme holds more than 16384 blocks", false);
        assert_eq!((error.message.as_str(), error.retryable), expected);
    }
}

#[test]
fn one_object_says_the_same_as_a_stream() {
    let object = |content: Value, reason: &str| {
        let usage = json!({"input_tokens": 12, "cache_creation_input_tokens": 8, "cache_read_input_tokens": 4,
            "output_tokens": 3});
        let mut so_far = ReplySoFar::new(SERVICE);
        let message = json!({"type": "message", "content": content, "stop_reason": reason, "usage": usage});
        so_far.push_object(&message, &mut |_| ()).unwrap();
        assert!(so_far.has_begun());
        so_far.finish()
    };
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "s"});
    let spoken = json!({"type": "text", "text": "Yes."});
    let used = json!({"type": "tool_use", "id": "t1", "name": "read", "input": {"b": 1, "a": [2.0]}});
    let calls = vec![call("t1", "read", "{\"b\":1,\"a\":[2.0]}")];
    let expected = with_opaque(
        reply("Yes.", calls, "tool_use", [24, 3, 4]),
        "Hm.",
        json!({"blocks": [thought, {"type": "text", "bytes": 4}, {"type": "tool_use"}]}),
    );
    assert_eq!(object(json!([thought, spoken, used]), "tool_use"), expected);
    // Arguments that are no object are for others to judge.
    let odd = object(json!([{"type": "tool_use", "input": "{\"a\""}, {"type": "tool_use", "input": [1]}]), "end_turn");
    assert_eq!(odd.tool_calls, [call("", "", "{\"a\""), call("", "", "[1]")]);
    for foreign in [json!({"object": "list"}), json!([]), json!({"content": "x"})] {
        let mut so_far = ReplySoFar::new(SERVICE);
        so_far.push_object(&foreign, &mut |_| ()).unwrap();
        assert!(!so_far.has_begun(), "{foreign}");
    }
    let mut so_far = ReplySoFar::new(SERVICE);
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    assert!(so_far.push_object(&error, &mut |_| ()).unwrap_err().again);
}

#[test]
fn what_a_service_says_of_its_calls_comes_back_to_it() {
    let caller = json!({"type": "direct"});
    let start = json!({"type": "content_block_start", "index": 0, "content_block": {
        "type": "tool_use", "id": "toolu_01", "name": "read", "input": {}, "caller": caller, "cache_control": {"type": "x"},
    }});
    let reply = events(&[start, ending("tool_use")]).unwrap();
    assert_eq!(reply.opaque, Some(json!({"blocks": [{"type": "tool_use", "caller": caller}]})));
    let message = Message::Assistant(AssistantMessage {
        provider: "acme".to_owned(),
        model: "m".to_owned(),
        text: String::new(),
        reasoning: String::new(),
        tool_calls: reply.tool_calls.clone(),
        opaque: reply.opaque,
    });
    let results = Message::Results(vec![super::result("toolu_01", "one", false)]);
    let list = [super::user("a"), message, results];
    let sent = |model| {
        let request = Request { model, messages: &list, ..Request::default() };
        request::body(&settings(""), &request).unwrap()["messages"][1]["content"][0].take()
    };
    let plain = json!({"type": "tool_use", "id": "toolu_01", "name": "read", "input": {}});
    let mut own = plain.clone();
    own["caller"] = caller;
    assert_eq!((sent("m"), sent("other")), (own, plain));
}
