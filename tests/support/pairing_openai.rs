//! The rules of `OpenAI` Chat Completions, as the strictest of the services that speak it has them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::pairing::{
    ENDS_WITH_ASSISTANT, check_common, check_id, check_name, check_positive, check_results, check_tool, is_image,
};

/// All violations of a request body.
pub(crate) fn check_openai(request: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if !request.is_object() {
        return vec!["the request is not an object".to_owned()];
    }
    check_common(request, &mut found);
    check_positive(request, "max_tokens", &mut found);
    check_positive(request, "max_completion_tokens", &mut found);
    if request.get("stream_options").is_some() && request["stream"] != Value::Bool(true) {
        found.push("stream_options without stream".to_owned());
    }
    let names = check_tools(request, &mut found);
    check_tool_choice(request, &names, &mut found);
    match request["messages"].as_array() {
        Some(messages) if !messages.is_empty() => check_messages(messages, &mut found),
        _ => found.push("messages is not a non-empty array".to_owned()),
    }
    found
}

fn check_tools(request: &Value, found: &mut Vec<String>) -> Vec<String> {
    let mut names = Vec::new();
    let Some(tools) = request.get("tools") else { return names };
    let Some(tools) = tools.as_array().filter(|tools| !tools.is_empty()) else {
        found.push("tools is not a non-empty array".to_owned());
        return names;
    };
    for (index, tool) in tools.iter().enumerate() {
        let place = format!("tools[{index}]");
        if tool["type"] != "function" || !tool["function"].is_object() {
            found.push(format!("{place}: not of type function"));
            continue;
        }
        check_tool(&tool["function"], "parameters", &place, &mut names, found);
    }
    names
}

fn check_tool_choice(request: &Value, names: &[String], found: &mut Vec<String>) {
    let Some(choice) = request.get("tool_choice") else { return };
    if request.get("tools").is_none() {
        found.push("tool_choice without tools".to_owned());
    }
    let fits = match choice {
        Value::String(word) => ["none", "auto", "required"].contains(&word.as_str()),
        Value::Object(_) => {
            let name = choice.pointer("/function/name").and_then(Value::as_str);
            choice["type"] == "function" && name.is_some_and(|name| names.iter().any(|other| other == name))
        }
        _ => false,
    };
    if !fits {
        found.push("tool_choice is neither a known word nor an offered tool".to_owned());
    }
}

fn check_messages(messages: &[Value], found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut results: Vec<String> = Vec::new();
    let mut previous = "";
    for (index, message) in messages.iter().enumerate() {
        let place = format!("messages[{index}]");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" {
            check_results(&open, &results, &format!("before messages[{index}]"), found);
            open.clear();
            results.clear();
        }
        if role == previous && ["user", "assistant"].contains(&role) {
            found.push(format!("{place}: two {role} messages in a row"));
        }
        if role == "assistant" && ["", "system", "developer"].contains(&previous) {
            found.push(format!("{place}: the assistant speaks first"));
        }
        match role {
            "system" | "developer" if index > 0 => {
                found.push(format!("{place}: a system message that is not the first"));
            }
            "system" | "developer" | "user" => check_content(&message["content"], &place, found),
            "assistant" => open = check_assistant(message, &place, &mut seen, found),
            "tool" => {
                check_content(&message["content"], &place, found);
                let parts = message["content"].as_array().into_iter().flatten();
                if parts.into_iter().any(|part| part["type"] != "text") {
                    found.push(format!("{place}: a result that is more than text"));
                }
                match message["tool_call_id"].as_str() {
                    Some(id) => results.push(id.to_owned()),
                    None => found.push(format!("{place}: a result without tool_call_id")),
                }
            }
            _ => found.push(format!("{place}: the role {} is unknown", message["role"])),
        }
        previous = role;
    }
    check_results(&open, &results, "at the end", found);
    match previous {
        "assistant" => found.push(ENDS_WITH_ASSISTANT.to_owned()),
        "system" | "developer" => found.push("there is nothing but a system message".to_owned()),
        _ => {}
    }
}

/// Returns the ids of its calls, each of which must be answered by the messages right behind it.
fn check_assistant(message: &Value, place: &str, seen: &mut BTreeSet<String>, found: &mut Vec<String>) -> Vec<String> {
    let calls = match message.get("tool_calls") {
        None => &[],
        Some(Value::Array(calls)) if !calls.is_empty() => calls.as_slice(),
        Some(_) => {
            found.push(format!("{place}: tool_calls is not a non-empty array"));
            return Vec::new();
        }
    };
    let content = &message["content"];
    let silent = content.is_null() || content == "";
    if calls.is_empty() || !silent {
        check_content(content, place, found);
    }
    let mut open = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let place = format!("{place}.tool_calls[{index}]");
        if let Some(id) = check_id(&call["id"], &place, seen, found) {
            open.push(id.to_owned());
        }
        if call["type"] != "function" {
            found.push(format!("{place}: not of type function"));
        }
        check_name(&call["function"]["name"], &place, found);
        let arguments = call["function"]["arguments"].as_str();
        if arguments.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok()).is_none() {
            found.push(format!("{place}: the arguments are not the text of a JSON object"));
        }
    }
    open
}

/// A text, or parts of which each says something.
fn check_content(content: &Value, place: &str, found: &mut Vec<String>) {
    let says_something = match content {
        Value::String(text) => !text.is_empty(),
        Value::Array(parts) => !parts.is_empty() && parts.iter().all(is_part),
        _ => false,
    };
    if !says_something {
        found.push(format!("{place}: empty, or not a text or an array of parts"));
    }
}

/// An address, or the image itself.
fn is_image_url(url: &str) -> bool {
    match url.strip_prefix("data:").map(|data| data.split_once(";base64,")) {
        None => url.starts_with("https://"),
        Some(Some((media_type, data))) => is_image(media_type, data),
        Some(None) => false,
    }
}

fn is_part(part: &Value) -> bool {
    match part["type"].as_str() {
        Some("text") => part["text"].as_str().is_some_and(|text| !text.is_empty()),
        Some("image_url") => part.pointer("/image_url/url").and_then(Value::as_str).is_some_and(is_image_url),
        Some("file" | "input_audio") => true,
        _ => false,
    }
}
