//! Images that tools attach: sent to a model that takes them, in its service's form, and told of in words to any other.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{Case, reply};

/// The beginning of an image is enough to be recognised.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

fn case() -> Case {
    Case::new().file("dot.png", PNG).file("a.txt", "alpha\n")
}

fn messages(case: &Case) -> Vec<Value> {
    case.server().last_request().body["messages"].as_array().unwrap().clone()
}

#[test]
fn openai_gets_an_image_in_a_users_message_behind_the_results() {
    let case = case().script([
        reply().read("dot.png").read("a.txt"),
        reply().read("a.txt"),
        reply().text("a dot"),
        reply().text("bye"),
    ]);
    case.run(["tell", "what is it?"]).exit(0);
    let url = format!("data:image/png;base64,{}", STANDARD.encode(PNG));
    let sent = messages(&case);
    let roles: Vec<&str> = sent.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool"]);
    assert!(sent[3]["content"].as_str().unwrap().contains("attached"));
    assert_eq!(
        sent[5]["content"],
        json!([
            {"type": "text", "text": "Attached to the result of call_1:"},
            {"type": "image_url", "image_url": {"url": url}},
        ])
    );
    // The prefix of the next turn is what was sent, which the server checks.
    case.run(["tell", "thanks"]).exit(0);
}

#[test]
fn a_prompt_right_behind_images_joins_their_message() {
    let case = case()
        .script([reply().read("dot.png"), reply().error(400, "no"), reply().text("done")])
        .config("[limits]\nrounds = 1\n");
    case.run(["tell", "look"]).exit(14);
    case.run(["tell", "go on"]).exit_any([0, 13, 14]);
    let sent = case.server().last_request().body["messages"].as_array().unwrap().clone();
    let last = sent.last().unwrap()["content"].as_array().unwrap();
    assert_eq!(last.last().unwrap(), &json!({"type": "text", "text": "go on"}));
    case.server().allow_unplayed_replies();
}

#[test]
fn anthropic_gets_an_image_in_the_result() {
    let case = case().anthropic().script([reply().read("dot.png"), reply().text("a dot")]);
    case.run(["tell", "what is it?"]).exit(0);
    let sent = messages(&case);
    let content = &sent.last().unwrap()["content"][0]["content"];
    assert_eq!(content[0]["type"], "text");
    assert_eq!(
        content[1],
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": STANDARD.encode(PNG)}})
    );
}

#[test]
fn a_model_that_takes_no_images_is_told_so() {
    let case = case()
        .config("[providers.openai]\nimages = false\n")
        .script([reply().read("dot.png"), reply().text("nothing to see")]);
    case.run(["tell", "what is it?"]).exit(0);
    let sent = messages(&case);
    let result = sent.last().unwrap();
    assert_eq!(result["role"], "tool");
    let text = result["content"].as_str().unwrap();
    assert!(text.ends_with("[image/png, 29 bytes, not sent: the model takes no images]"), "{text}");
    assert!(text.contains("image/png, 29 bytes"), "{text}");
}
