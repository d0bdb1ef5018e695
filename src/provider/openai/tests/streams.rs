//! What the chunks of a stream mean, each by itself; whole streams as services send them are in `fixtures/wire`.

use super::*;
use crate::provider::Finish;
use crate::provider::reading::Assembly;
use crate::session::record::Usage;

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
