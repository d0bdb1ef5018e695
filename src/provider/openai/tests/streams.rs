//! Streams as services send them, whole, in pieces and cut off.

use super::*;
use crate::provider::Finish;
use crate::provider::reading::{Assembly, Stream};
use crate::session::record::Usage;

struct Case {
    name: &'static str,
    stream: &'static str,
    expected: Reply,
}

fn reply(text: &str, reasoning: &str, calls: Vec<ToolCall>, finish_reason: &str, tokens: [u64; 3]) -> Reply {
    let [input_tokens, output_tokens, cached_input_tokens] = tokens;
    Reply {
        text: text.to_owned(),
        reasoning: reasoning.to_owned(),
        tool_calls: calls,
        finish: Finish::of(finish_reason),
        finish_reason: finish_reason.to_owned(),
        usage: Usage { input_tokens, output_tokens, cached_input_tokens },
        opaque: None,
    }
}

fn with_opaque(reply: Reply, opaque: Value) -> Reply {
    Reply { opaque: Some(opaque), ..reply }
}

macro_rules! stream {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../fixtures/wire/openai/", $name, ".sse")))
    };
}

fn cases() -> Vec<Case> {
    let details = json!([{
        "type": "reasoning.text", "text": "Hm, well.", "format": "anthropic-claude-v1", "index": 0, "signature": "c2ln",
    }]);
    let two_reads = || vec![call("call_x1", "read", "{\"path\":\"a\"}"), call("call_x2", "read", "{\"path\":\"b\"}")];
    let two_calls = vec![call("call_Aa1", "read", "{\"path\":\"src/größe.rs\"}"), call("call_Bb2", "list", "{}")];
    let one_call = vec![call("aB3dE6gH9", "read", "{\"path\": \"a\"}")];
    let list = [
        (stream!("openai-two-calls"), reply("", "", two_calls, "tool_calls", [1200, 40, 1024])),
        (
            stream!("deepseek-reasoning"),
            with_opaque(
                reply("Four 🙂.", "Two and two make four.", vec![], "stop", [18, 11, 16]),
                json!({"reasoning_field": "reasoning_content"}),
            ),
        ),
        (
            stream!("ollama-calls-without-done"),
            with_opaque(
                reply("", "Look first.", two_reads(), "tool_calls", [0, 0, 0]),
                json!({"reasoning_field": "reasoning"}),
            ),
        ),
        (stream!("llamacpp-length"), reply("It is cut", "", vec![], "length", [20, 3, 0])),
        (
            stream!("mistral-parts"),
            with_opaque(
                reply("I read it.", "The file first.", one_call, "tool_calls", [124, 22, 0]),
                json!({"reasoning_field": "content_parts"}),
            ),
        ),
        (
            stream!("openrouter-details"),
            with_opaque(
                reply("Yes.", "Hm, well.", vec![], "stop", [9, 8, 0]),
                json!({"reasoning_field": "reasoning", "fields": {"reasoning_details": details}}),
            ),
        ),
    ];
    list.into_iter().map(|((name, stream), expected)| Case { name, stream, expected }).collect()
}

/// The reply, or `None` if it is not complete; with the deltas that were told, put together.
fn play<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> (Option<Reply>, String, String) {
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut observe = |progress: Progress<'_>| match progress {
        Progress::Text(delta) => text.push_str(delta),
        Progress::Reasoning(delta) => reasoning.push_str(delta),
        Progress::Retrying { .. } => panic!("a stream does not retry"),
    };
    let mut stream = Stream::new(SERVICE, ReplySoFar::new(SERVICE));
    for piece in pieces {
        stream.push(piece, &mut observe).unwrap();
    }
    stream.end(&mut observe).unwrap();
    let reply = stream.assembly.patience().map(|_| stream.assembly.finish());
    (reply, text, reasoning)
}

#[test]
fn every_service_is_understood_whole_and_byte_by_byte() {
    for Case { name, stream, expected } in cases() {
        for size in [stream.len(), 1, 2, 7, 64] {
            let (reply, text, reasoning) = play(stream.as_bytes().chunks(size));
            assert_eq!(reply.as_ref(), Some(&expected), "{name} in pieces of {size} bytes");
            assert_eq!((text, reasoning), (expected.text.clone(), expected.reasoning.clone()), "{name}");
        }
    }
}

#[test]
fn a_stream_cut_anywhere_is_whole_or_no_reply() {
    for Case { name, stream, expected } in cases() {
        let mut complete = 0;
        for end in 0..stream.len() {
            let (reply, _, _) = play([&stream.as_bytes()[..end]]);
            let Some(reply) = reply else {
                assert_eq!(complete, 0, "{name}: incomplete again at byte {end}");
                continue;
            };
            complete += 1;
            // Usage may stand behind the end of the reply itself.
            assert_eq!(Reply { usage: expected.usage, ..reply }, expected, "{name} cut at byte {end}");
        }
        assert!(complete > 0 && complete < stream.len() / 2, "{name}: {complete}");
    }
}

fn chunks(chunks: &[Value]) -> Result<Reply, Trouble> {
    let mut assembly = ReplySoFar::new(SERVICE);
    for chunk in chunks {
        assembly.push_event("", &chunk.to_string(), &mut |_| ())?;
    }
    Ok(assembly.finish())
}

#[test]
fn endings_are_told_apart() {
    let chunk = |delta: Value, reason: Value| json!({"choices": [{"delta": delta, "finish_reason": reason}]});
    let text = || chunk(json!({"content": "x"}), Value::Null);
    let cases = [
        (vec![text(), chunk(json!({}), json!("stop"))], Finish::End, "stop"),
        (vec![text(), chunk(json!({}), json!("function_call"))], Finish::End, "function_call"),
        (
            vec![text(), chunk(json!({}), json!("tool_calls")), chunk(json!({}), json!("stop"))],
            Finish::End,
            "tool_calls",
        ),
        (vec![text(), chunk(json!({}), json!("")), chunk(json!({}), json!("length"))], Finish::Length, "length"),
        (vec![text(), chunk(json!({}), json!("odd")), chunk(json!({}), json!("stop"))], Finish::End, "stop"),
        (vec![text(), chunk(json!({}), json!("odd"))], Finish::Unfamiliar, "odd"),
        (vec![chunk(json!({}), json!("content_filter"))], Finish::ContentFilter, "content_filter"),
        (vec![chunk(json!({"refusal": "I will not."}), json!("stop"))], Finish::Refusal, "refusal"),
    ];
    for (list, finish, reason) in cases {
        let reply = chunks(&list).unwrap();
        assert_eq!((reply.finish, reply.finish_reason.as_str()), (finish, reason), "{list:?}");
    }
    assert_eq!(chunks(&[chunk(json!({"refusal": "I will not."}), json!("stop"))]).unwrap().text, "I will not.");
    let trouble = chunks(&[text(), chunk(json!({}), json!("error"))]).unwrap_err();
    assert!(trouble.again);
}

#[test]
fn other_choices_and_foreign_shapes_are_passed_over() {
    let reply = chunks(&[
        json!({"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]}),
        json!({"choices": null}),
        json!({"choices": [7, {"delta": null}, {"delta": {"content": 7, "tool_calls": "x"}}], "usage": 7}),
        json!([]),
        json!("text"),
        json!({"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": -1}}),
    ])
    .unwrap();
    assert_eq!((reply.text.as_str(), reply.usage), ("yes", Usage::default()));
}

#[test]
fn the_first_versions_single_call_is_read() {
    let reply = chunks(&[
        json!({"choices": [{"delta": {"function_call": {"name": "read", "arguments": ""}}}]}),
        json!({"choices": [{"delta": {"function_call": {"arguments": "{\"path\":"}}}]}),
        json!({"choices": [{"delta": {"function_call": {"arguments": "\"a\"}"}}, "finish_reason": "function_call"}]}),
    ])
    .unwrap();
    assert_eq!(reply.tool_calls, [call("", "read", "{\"path\":\"a\"}")]);
}

#[test]
fn fields_that_are_not_known_are_kept_in_pieces_or_whole() {
    let delta = |delta: Value| json!({"choices": [{"delta": delta}]});
    let reply = chunks(&[
        delta(json!({"role": "assistant", "content": "a", "annotations": [], "new": null, "mark": "xy"})),
        delta(json!({"mark": "z", "state": {"n": 1}, "list": [1]})),
        delta(json!({"state": {"n": 2}, "list": [2]})),
        json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    ])
    .unwrap();
    assert_eq!(reply.opaque, Some(json!({"fields": {"mark": "xyz", "state": {"n": 2}, "list": [1, 2]}})));
    let many: serde_json::Map<String, Value> = (0..100).map(|number| (format!("f{number}"), json!(1))).collect();
    let reply = chunks(&[json!({"choices": [{"message": many, "finish_reason": "stop"}]})]).unwrap();
    assert_eq!(reply.opaque.unwrap()["fields"].as_object().unwrap().len(), 64);
}
