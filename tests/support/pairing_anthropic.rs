//! The rules of Anthropic's Messages.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pairing::{
    ENDS_WITH_ASSISTANT, check_common, check_id, check_name, check_positive, check_results, check_tool, is_image,
};

const CACHE_BREAKPOINTS_MAX: usize = 4;

/// All violations of a request body.
pub(crate) fn check_anthropic(request: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if !request.is_object() {
        return vec!["the request is not an object".to_owned()];
    }
    check_common(request, &mut found);
    if request["max_tokens"].is_null() {
        found.push("max_tokens is missing".to_owned());
    } else {
        check_positive(request, "max_tokens", &mut found);
    }
    match request.get("system") {
        None => {}
        Some(Value::String(text)) if !text.trim().is_empty() => {}
        Some(Value::Array(blocks)) if blocks.iter().all(|block| block["type"] == "text" && is_said(&block["text"])) => {
        }
        Some(_) => found.push("system is blank, or not a text or text blocks".to_owned()),
    }
    check_thinking(request, &mut found);
    check_tools(request, &mut found);
    match request["messages"].as_array() {
        Some(messages) if !messages.is_empty() => check_messages(messages, &mut found),
        _ => found.push("messages is not a non-empty array".to_owned()),
    }
    check_breakpoints(request, &mut found);
    found
}

/// What is said of thinking, effort and form, and what may not stand beside it.
fn check_thinking(request: &Value, found: &mut Vec<String>) {
    let thinking = &request["thinking"];
    let mode = thinking["type"].as_str();
    match mode {
        Some("enabled") => {
            let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
            if budget < 1024 || budget >= request["max_tokens"].as_u64().unwrap_or(0) {
                found.push(format!("a budget of {budget} tokens for thinking"));
            }
            if !thinks_from_the_start(request) {
                found.push("thinking in the middle of a turn that began without".to_owned());
            }
        }
        Some("adaptive") if thinking.get("budget_tokens").is_none() => {}
        Some("disabled") => {}
        _ if thinking.is_null() => {}
        _ => found.push("thinking of no known kind".to_owned()),
    }
    if matches!(mode, Some("enabled" | "adaptive")) {
        if request.get("temperature").is_some_and(|value| value.as_f64() != Some(1.0)) {
            found.push("a temperature beside thinking".to_owned());
        }
        if matches!(request["tool_choice"]["type"].as_str(), Some("any" | "tool")) {
            found.push("a forced call beside thinking".to_owned());
        }
    }
    for (key, value) in request["output_config"].as_object().into_iter().flatten() {
        let is_known = match key.as_str() {
            "effort" => matches!(value.as_str(), Some("low" | "medium" | "high" | "xhigh" | "max")),
            "format" => value["type"] == "json_schema" && value["schema"]["additionalProperties"] == false,
            _ => false,
        };
        if !is_known {
            found.push(format!("output_config does not take {key} {value}"));
        }
    }
}

/// Whether the assistant's turn that is under way, if one is, began with a thought.
fn thinks_from_the_start(request: &Value) -> bool {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let speaks = |message: &Value| match &message["content"] {
        Value::Array(blocks) => blocks.iter().any(|block| block["type"] != "tool_result"),
        _ => true,
    };
    let begins = messages.iter().rposition(|message| message["role"] == "user" && speaks(message));
    let first = messages.get(begins.map_or(0, |index| index + 1));
    first.is_none_or(|first| matches!(first["content"][0]["type"].as_str(), Some("thinking" | "redacted_thinking")))
}

fn check_tools(request: &Value, found: &mut Vec<String>) {
    let mut names = Vec::new();
    match request.get("tools") {
        None => {
            let blocks = request["messages"].as_array().into_iter().flatten();
            let mut blocks = blocks.filter_map(|message| message["content"].as_array()).flatten();
            if blocks.any(|block| block["type"] == "tool_use" || block["type"] == "tool_result") {
                found.push("the history holds calls or results, and no tools are sent".to_owned());
            }
        }
        Some(Value::Array(tools)) => {
            for (index, tool) in tools.iter().enumerate() {
                check_tool(tool, "input_schema", &format!("tools[{index}]"), &mut names, found);
            }
        }
        Some(_) => found.push("tools is not an array".to_owned()),
    }
    let Some(choice) = request.get("tool_choice") else { return };
    if names.is_empty() {
        found.push("tool_choice without tools".to_owned());
    }
    let fits = match choice["type"].as_str() {
        Some("auto" | "any" | "none") => true,
        Some("tool") => choice["name"].as_str().is_some_and(|name| names.iter().any(|other| other == name)),
        _ => false,
    };
    if !fits {
        found.push("tool_choice is neither a known type nor an offered tool".to_owned());
    }
}

fn check_messages(messages: &[Value], found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut previous = "";
    for (index, message) in messages.iter().enumerate() {
        let place = format!("messages[{index}]");
        let role = message["role"].as_str().unwrap_or_default();
        if index == 0 && role == "assistant" {
            found.push(format!("{place}: the assistant speaks first"));
        }
        if role == previous {
            found.push(format!("{place}: two {role} messages in a row"));
        }
        let text_block;
        let blocks = match &message["content"] {
            Value::Array(blocks) => blocks.as_slice(),
            Value::String(text) => {
                text_block = [serde_json::json!({"type": "text", "text": text})];
                text_block.as_slice()
            }
            _ => &[],
        };
        if blocks.is_empty() {
            found.push(format!("{place}: empty, or not a text or an array of blocks"));
        }
        match role {
            "user" => {
                check_user(blocks, &open, &place, found);
                open.clear();
            }
            "assistant" => {
                check_results(&open, &[], &place, found);
                open = check_assistant(blocks, &place, &mut seen, found);
            }
            _ => found.push(format!("{place}: the role {} is unknown", message["role"])),
        }
        previous = role;
    }
    check_results(&open, &[], "at the end", found);
    if previous == "assistant" {
        found.push(ENDS_WITH_ASSISTANT.to_owned());
    }
}

fn check_user(blocks: &[Value], open: &[String], place: &str, found: &mut Vec<String>) {
    let mut results = Vec::new();
    let mut past_results = false;
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("{place}.content[{index}]");
        if block["type"] != "tool_result" {
            past_results = true;
            check_said(block, &place, found);
            continue;
        }
        if past_results {
            found.push(format!("{place}: a result behind something else"));
        }
        match block["tool_use_id"].as_str() {
            Some(id) => results.push(id.to_owned()),
            None => found.push(format!("{place}: a result without tool_use_id")),
        }
        if block.get("is_error").is_some_and(|value| !value.is_boolean()) {
            found.push(format!("{place}: is_error is not a boolean"));
        }
        match &block["content"] {
            Value::String(text) if !text.is_empty() => {}
            Value::Array(parts) if !parts.is_empty() => {
                for part in parts {
                    check_said(part, &place, found);
                }
            }
            _ => found.push(format!("{place}: an empty result")),
        }
    }
    check_results(open, &results, place, found);
}

/// Returns the ids of its calls, which the next message must answer.
fn check_assistant(blocks: &[Value], place: &str, seen: &mut BTreeSet<String>, found: &mut Vec<String>) -> Vec<String> {
    let mut open = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("{place}.content[{index}]");
        match block["type"].as_str() {
            Some("tool_use") => {
                if let Some(id) = check_id(&block["id"], &place, seen, found) {
                    open.push(id.to_owned());
                }
                check_name(&block["name"], &place, found);
                if !block["input"].is_object() {
                    found.push(format!("{place}: the input is not an object"));
                }
            }
            Some("thinking") => {
                let signed = block["signature"].as_str().is_some_and(|text| !text.is_empty());
                if !signed || !block["thinking"].is_string() || block.get("cache_control").is_some() {
                    found.push(format!("{place}: a thinking block without text or signature, or with a breakpoint"));
                }
            }
            Some("redacted_thinking") => {
                if !block["data"].is_string() {
                    found.push(format!("{place}: a redacted thinking block without data"));
                }
            }
            // What the service's own tools left: it comes back as it was.
            Some(kind) if kind == "server_tool_use" || kind.ends_with("_tool_result") => {}
            _ => check_said(block, &place, found),
        }
    }
    open
}

/// A text that is not blank, an image or a document.
fn check_said(block: &Value, place: &str, found: &mut Vec<String>) {
    match block["type"].as_str() {
        Some("text") if is_said(&block["text"]) => {}
        Some("text") => found.push(format!("{place}: a blank text")),
        Some("image") => {
            let of = |key: &str| block["source"][key].as_str().unwrap_or_default();
            let is_sound = match of("type") {
                "base64" => is_image(of("media_type"), of("data")),
                "url" => of("url").starts_with("https://"),
                _ => false,
            };
            if !is_sound {
                found.push(format!("{place}: an image that is none"));
            }
        }
        Some("document") if block["source"].is_object() => {}
        _ => found.push(format!("{place}: the block type {} does not belong here", block["type"])),
    }
}

fn is_said(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn check_breakpoints(request: &Value, found: &mut Vec<String>) {
    let messages = request["messages"].as_array().into_iter().flatten();
    let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    let rest = [&request["system"], &request["tools"]].into_iter().filter_map(Value::as_array).flatten();
    let breakpoints: Vec<&Value> = blocks.chain(rest).filter_map(|block| block.get("cache_control")).collect();
    if breakpoints.len() > CACHE_BREAKPOINTS_MAX {
        found.push(format!("{} cache breakpoints, more than {CACHE_BREAKPOINTS_MAX}", breakpoints.len()));
    }
    if breakpoints.iter().any(|breakpoint| breakpoint["type"] != "ephemeral") {
        found.push("a cache breakpoint that is not ephemeral".to_owned());
    }
}
