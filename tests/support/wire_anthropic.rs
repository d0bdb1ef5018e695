//! A scripted reply as Anthropic's Messages send it, streamed and whole.

use serde_json::{Value, json};

use super::reply::Reply;

/// The signature of every scripted thinking block: what must come back unchanged.
pub(crate) const SIGNATURE: &str = "c2lnbmF0dXJl";

/// Splits a text into pieces of a few characters, so that every stream has borders in mid-word.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = String> {
    const PIECE_CHARACTERS: usize = 9;
    let characters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = characters.chunks(PIECE_CHARACTERS).map(|piece| piece.iter().collect()).collect();
    pieces.into_iter()
}

/// The events of a stream, each with the empty line that ends it.
pub(super) fn stream(reply: &Reply) -> Vec<Vec<u8>> {
    let mut message = message(reply);
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["usage"]["output_tokens"] = 1.into();
    let mut events =
        vec![event(&json!({"type": "message_start", "message": message})), event(&json!({"type": "ping"}))];
    for (index, block) in blocks(reply).into_iter().enumerate() {
        let (empty, deltas) = opened(reply, &block, index);
        events.push(event(&json!({"type": "content_block_start", "index": index, "content_block": empty})));
        for delta in deltas {
            events.push(event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
        }
        events.push(event(&json!({"type": "content_block_stop", "index": index})));
    }
    if let Some(error_type) = &reply.stream_error {
        events.push(event(&json!({"type": "error", "error": {"type": error_type, "message": error_type}})));
        return events;
    }
    let delta = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
    let usage = json!({"output_tokens": reply.usage.output});
    events.push(event(&json!({"type": "message_delta", "delta": delta, "usage": usage})));
    events.push(event(&json!({"type": "message_stop"})));
    events
}

/// The same as one document.
pub(super) fn whole(reply: &Reply) -> Value {
    message(reply)
}

fn message(reply: &Reply) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "test-model",
        "content": blocks(reply), "stop_reason": stop_reason(reply), "stop_sequence": null,
        "usage": {
            "input_tokens": reply.usage.input - reply.usage.cached_input,
            "cache_read_input_tokens": reply.usage.cached_input,
            "cache_creation_input_tokens": 0,
            "output_tokens": reply.usage.output,
        },
    })
}

fn blocks(reply: &Reply) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !reply.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": reply.reasoning, "signature": SIGNATURE}));
    }
    if !reply.text.is_empty() {
        blocks.push(json!({"type": "text", "text": reply.text}));
    }
    for call in &reply.calls {
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| call.arguments.clone().into());
        blocks.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    blocks
}

/// A block as it is opened, and the deltas that fill it.
fn opened(reply: &Reply, block: &Value, index: usize) -> (Value, Vec<Value>) {
    let mut empty = block.clone();
    if block["type"] == "thinking" {
        empty["thinking"] = "".into();
        empty["signature"] = "".into();
        let mut deltas: Vec<Value> =
            pieces(&reply.reasoning).map(|piece| json!({"type": "thinking_delta", "thinking": piece})).collect();
        deltas.push(json!({"type": "signature_delta", "signature": SIGNATURE}));
        return (empty, deltas);
    }
    if block["type"] == "text" {
        empty["text"] = "".into();
        return (empty, pieces(&reply.text).map(|piece| json!({"type": "text_delta", "text": piece})).collect());
    }
    empty["input"] = json!({});
    let calls_before = usize::from(!reply.reasoning.is_empty()) + usize::from(!reply.text.is_empty());
    let arguments = &reply.calls[index - calls_before].arguments;
    let deltas = pieces(arguments).map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect();
    (empty, deltas)
}

fn stop_reason(reply: &Reply) -> String {
    let usual = if reply.calls.is_empty() { "stop" } else { "tool_calls" };
    match reply.finish_reason.as_deref().unwrap_or(usual) {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    }
    .to_owned()
}

fn event(data: &Value) -> Vec<u8> {
    let name = data["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}
