use std::sync::atomic::AtomicU64;

use serde_json::json;

use super::*;
use crate::interrupt::Cause;
use crate::tool::scene::Scene;
use crate::workspace::World;

/// The smallest PNG.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn end_in(scene: &Scene, with_session: bool, called: Called) -> CallEnd {
    let mut surroundings = scene.surroundings();
    if !with_session {
        surroundings.session = None;
    }
    let work = Work {
        arguments: &Value::Null,
        surroundings: &surroundings,
        world: &World::default(),
        files: &[],
        label: "call_1",
        interrupt: &scene.interrupt,
        answer: None,
        asked: None,
        live: &|_| {},
        approved_by_person: false,
        output_bytes: &AtomicU64::new(0),
    };
    call_end("fs", "get", 60, called, &work)
}

fn end(called: Called) -> CallEnd {
    end_in(&Scene::new(&[]), true, called)
}

fn replied(reply: Reply) -> Called {
    Called::Replied { reply, declined: Vec::new() }
}

fn settled(end: CallEnd) -> Outcome {
    match end {
        CallEnd::Settled(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

fn content_of(result: Value) -> String {
    settled(end(replied(Reply::Result(result)))).content
}

#[test]
fn parts_become_text_without_base64() {
    for (result, expected) in [
        (json!({"content": [{"type": "text", "text": "a\n"}, {"type": "text", "text": "b"}]}), "a\n\nb"),
        (json!({"content": [], "structuredContent": {"a": 1}}), r#"{"a":1}"#),
        (json!({"content": [{"type": "text", "text": " "}], "structuredContent": [1]}), " \n[1]"),
        (json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"a": 1}}), "a"),
        (json!({"content": []}), ""),
        (json!({"resultType": "", "content": [], "isError": null}), ""),
        (json!({"resultType": "complete", "structuredContent": [2]}), "[2]"),
        (
            json!({"content": [{"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}]}),
            "[audio, audio/wav, 3 bytes, not shown]",
        ),
        (
            json!({"content": [{"type": "image", "mimeType": "image/png", "data": "?"}]}),
            "[image, image/png, its data cannot be read]",
        ),
        (
            json!({"content": [{"type": "resource", "resource": {"uri": "x://a", "mimeType": "text/plain", "text": "t"}}]}),
            "[resource x://a, text/plain]\nt",
        ),
        (
            json!({"content": [{"type": "resource", "resource": {"uri": "x://b", "blob": "AAAA"}}]}),
            "[resource x://b, 3 bytes, not shown]",
        ),
        (
            json!({"content": [{"type": "resource_link", "uri": "x://c", "name": "C", "description": "c\nd", "size": 7}]}),
            "[link to x://c: C, c d, 7 bytes]",
        ),
        (
            json!({"content": [{"type": "hologram"}, {}, 7]}),
            "[a part of the unknown type hologram left out]\n[a part without a type left out]\n[a part without a type left out]",
        ),
    ] {
        assert_eq!(content_of(result.clone()), expected, "{result}");
    }
}

#[test]
fn images_are_attached_where_there_is_a_session() {
    let scene = Scene::new(&[]);
    let image = json!({"type": "image", "mimeType": "image/png", "data": PNG});
    let result = || json!({"content": [image, {"type": "text", "text": "two"}, image]});
    let outcome = settled(end_in(&scene, true, replied(Reply::Result(result()))));
    assert_eq!(outcome.content, "[image, image/png, 70 bytes, attached]\ntwo\n[image, image/png, 70 bytes, attached]");
    let files: Vec<&str> = outcome.attachments.iter().map(|attachment| attachment.file.as_str()).collect();
    assert_eq!(files, ["outputs/call_1-1.png", "outputs/call_1-2.png"]);
    assert_eq!(outcome.attachments[0].media_type, "image/png");

    let outcome = settled(end_in(&scene, false, replied(Reply::Result(result()))));
    assert!(outcome.attachments.is_empty() && outcome.content.contains("70 bytes, not shown"), "{}", outcome.content);
    // What calls itself an image is not attached for that.
    let lie = json!({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]});
    let outcome = settled(end_in(&scene, true, replied(Reply::Result(lie))));
    assert!(outcome.attachments.is_empty());
}

#[test]
fn every_end_has_its_status_and_code() {
    let refused = || Reply::Refused { code: -32603, message: "no".to_owned() };
    for (called, status, code, part) in [
        (replied(Reply::Result(json!({"isError": true}))), ResultStatus::Error, "tool_error", "gave no reason"),
        (replied(Reply::Result(json!({"resultType": "task"}))), ResultStatus::Error, "tool_error", "began a task"),
        (replied(refused()), ResultStatus::Error, "tool_error", "refused the call: no (-32603)"),
        (replied(Reply::TimedOut), ResultStatus::Error, "timeout", "within 60 s"),
        (replied(Reply::Interrupted), ResultStatus::Unknown, "interrupted", "may have taken effect"),
        (
            replied(Reply::Died("ended with exit code 3".to_owned())),
            ResultStatus::Unknown,
            "unknown_outcome",
            "exit code 3",
        ),
        (Called::NotStarted("is away".to_owned()), ResultStatus::Error, "server_failed", "the MCP server fs is away"),
        (Called::UnknownTool("what?".to_owned()), ResultStatus::Error, "unknown_tool", "it says: what?"),
    ] {
        let outcome = settled(end(called));
        assert_eq!((outcome.status, outcome.code), (status, Some(code)), "{}", outcome.content);
        assert!(outcome.content.contains(part), "{}", outcome.content);
        assert!(crate::call::hints::next_line(code, None).is_some(), "{code}");
    }
    let scene = Scene::new(&[]);
    scene.interrupt.raise(Cause::TimeLimit);
    let outcome = settled(end_in(&scene, true, Called::NotStarted("was interrupted at its start".to_owned())));
    assert_eq!(outcome.status, ResultStatus::Cancelled);
}

#[test]
fn what_is_no_result_is_not_taken_for_success() {
    for (result, flaw) in [
        (json!(5), "it is 5."),
        (json!(null), "it is null."),
        (json!([1]), "it is [1]."),
        (json!("a line that cannot be read"), "a line that cannot be read."),
        (json!({}), "it has no `content`: {}."),
        (json!({"foo": 1}), "it has no `content`: {\"foo\":1}."),
        (json!({"content": null}), "it has no `content`"),
        (json!({"content": "str"}), "`content` is \"str\"."),
        (json!({"content": [{"type": "text", "text": null}]}), "a part of its text has none: {"),
        (
            json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": 5}]}),
            "a part of its text has none",
        ),
        (json!({"content": [], "resultType": "weird"}), "its type is \"weird\"."),
        (json!({"content": [], "resultType": 7}), "its type is 7."),
        (json!({"content": [], "isError": "true"}), "`isError` is \"true\"."),
    ] {
        let outcome = settled(end(replied(Reply::Result(result.clone()))));
        assert_eq!((outcome.status, outcome.code), (ResultStatus::Unknown, Some("unknown_outcome")), "{result}");
        assert!(outcome.content.contains(&format!("is no result of the protocol: {flaw}")), "{}", outcome.content);
    }
}

#[test]
fn what_was_declined_is_said() {
    let declined = vec!["Your name?".to_owned()];
    let outcome = settled(end(Called::Replied { reply: Reply::Result(json!({"content": []})), declined }));
    assert_eq!(outcome.content, "\n[In mid-call the server asked: Your name?. It was told that nobody answers.]");
}

#[test]
fn a_question_waits_and_is_told_where_nobody_can_be_asked() {
    let requests = json!({"a": {"method": "elicitation/create", "params": {"message": "Which branch?", "requestedSchema":
        {"type": "object", "properties": {"branch": {"type": "string", "description": "Its name."}}}}}});
    let result = json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"});
    let question = "Which branch?\n- branch: Its name.".to_owned();
    let waits = Waits { question: question.clone(), state: json!({"requests": requests, "request_state": "s"}) };
    assert_eq!(end(replied(Reply::Result(result))), CallEnd::Waits(waits.clone()));
    let outcome = asked("fs", waits.clone());
    assert_eq!((outcome.code, outcome.waits), (Some("input_required"), Some(Box::new(waits))));
    assert!(outcome.content.ends_with(&question));
}

#[test]
fn an_unknown_tool_is_recognised_in_every_form() {
    let text = |text: &str, is_error: bool| {
        Reply::Result(json!({"content": [{"type": "text", "text": text}], "isError": is_error}))
    };
    let refused = |code: i32, message: &str| Reply::Refused { code, message: message.to_owned() };
    for (reply, expected) in [
        (refused(-32602, "Unknown tool: get"), true),
        (refused(-32602, "MCP error -32602: Tool get not found"), true),
        (refused(-32603, "tool 'get' does not exist"), true),
        (refused(-32601, "Method not found"), true),
        (text("Unknown tool: get", true), true),
        (text("Tool get not found", false), true),
        (refused(-32602, "missing argument path"), false),
        (text("all is well", false), false),
        (text(&format!("Unknown tool: get {}", "x".repeat(600)), false), false),
        (Reply::TimedOut, false),
    ] {
        assert_eq!(looks_unknown(&reply, "get").is_some(), expected);
    }
}
