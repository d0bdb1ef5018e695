//! A scripted reply as `OpenAI`'s Chat Completions send it, streamed and whole.

use serde_json::{Value, json};

use super::reply::Reply;
use super::wire_anthropic::pieces;

/// The events of a stream, each with the empty line that ends it.
pub(super) fn stream(reply: &Reply, request: &Value) -> Vec<Vec<u8>> {
    let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
    events.extend(pieces(&reply.reasoning).map(|piece| chunk(&json!({"reasoning_content": piece}), None)));
    events.extend(pieces(&reply.text).map(|piece| chunk(&json!({"content": piece}), None)));
    for (index, call) in reply.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let opening = json!({"index": index, "id": call.id, "type": "function", "function": function});
        events.push(chunk(&json!({"tool_calls": [opening]}), None));
        for piece in pieces(&call.arguments) {
            let more = json!({"index": index, "function": {"arguments": piece}});
            events.push(chunk(&json!({"tool_calls": [more]}), None));
        }
    }
    if let Some(error_type) = &reply.stream_error {
        let error = json!({"error": {"message": error_type, "type": error_type, "code": error_type}});
        events.push(event(&error.to_string()));
        return events;
    }
    events.push(chunk(&json!({}), Some(&finish_reason(reply))));
    if request.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)) {
        let mut last = envelope("chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = usage(reply);
        events.push(event(&last.to_string()));
    }
    if reply.done_marker {
        events.push(event("[DONE]"));
    }
    events
}

/// The same as one document.
pub(super) fn whole(reply: &Reply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text});
    if reply.text.is_empty() {
        message["content"] = Value::Null;
    }
    if !reply.reasoning.is_empty() {
        message["reasoning_content"] = reply.reasoning.clone().into();
    }
    if !reply.calls.is_empty() {
        let calls = reply.calls.iter().map(|call| {
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
        });
        message["tool_calls"] = calls.collect();
    }
    let mut document = envelope("chat.completion");
    document["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish_reason(reply)}]);
    document["usage"] = usage(reply);
    document
}

fn finish_reason(reply: &Reply) -> String {
    let usual = if reply.calls.is_empty() { "stop" } else { "tool_calls" };
    reply.finish_reason.clone().unwrap_or_else(|| usual.to_owned())
}

fn envelope(object: &str) -> Value {
    json!({"id": "chatcmpl-1", "object": object, "created": 1, "model": "test-model"})
}

fn usage(reply: &Reply) -> Value {
    let usage = reply.usage;
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input},
    })
}

fn chunk(delta: &Value, finish_reason: Option<&str>) -> Vec<u8> {
    let mut chunk = envelope("chat.completion.chunk");
    chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish_reason}]);
    event(&chunk.to_string())
}

fn event(data: &str) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}
