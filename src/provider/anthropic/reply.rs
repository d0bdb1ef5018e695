//! Reads replies in Anthropic's Messages format: the events of a stream, or one whole object.
//!
//! Blocks are kept as they came, so that what the service wants back goes back unchanged; of blocks and events that
//! are not known, nothing is understood.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{BLOCKS, PAUSED, TEXT_BYTES};
use crate::provider::reading::Assembly;
use crate::provider::surrogate;
use crate::provider::trouble::{self, Service, Trouble};
use crate::provider::{Finish, Progress, Reply};
use crate::session::record::{ToolCall, Usage};

/// Most blocks of one reply, of every kind.
const BLOCKS_MAX: usize = 16 * 1024;
/// How long more is waited for behind the reason to stop: the event that ends the message.
const STOP_SECONDS_MAX: u64 = 10;
/// How long more is waited for behind that event: the end of the answer.
const TAIL_SECONDS_MAX: u64 = 1;

/// A block that is coming in.
#[derive(Debug)]
struct Block {
    fields: Map<String, Value>,
    /// The pieces of `input`, as they came.
    input: String,
}

/// A reply that is coming in.
pub(super) struct ReplySoFar<'a> {
    service: Service<'a>,
    blocks: Vec<Block>,
    /// The positions in `blocks` by the indexes of the message that is coming in.
    by_index: BTreeMap<u64, usize>,
    /// Where in `blocks` that message begins.
    message_start: usize,
    stop_reason: Option<String>,
    /// `message_stop` was seen, and no other message has begun since.
    is_stopped: bool,
    has_begun: bool,
    /// Of that message.
    usage: Usage,
    /// Of the messages before.
    usage_before: Usage,
}

impl<'a> ReplySoFar<'a> {
    pub(super) fn new(service: Service<'a>) -> Self {
        Self {
            service,
            blocks: Vec::new(),
            by_index: BTreeMap::new(),
            message_start: 0,
            stop_reason: None,
            is_stopped: false,
            has_begun: false,
            usage: Usage::default(),
            usage_before: Usage::default(),
        }
    }

    fn is_complete(&self) -> bool {
        self.is_stopped || self.stop_reason.is_some()
    }

    fn take_event(&mut self, event: &Value, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        match event["type"].as_str() {
            Some("message_start") => return self.begin_message(&event["message"], observe),
            Some("content_block_start") => {
                self.has_begun = true;
                return self.begin_block(event["index"].as_u64(), &event["content_block"], observe);
            }
            Some("content_block_delta") => {
                self.has_begun = true;
                return self.extend_block(event["index"].as_u64(), &event["delta"], observe);
            }
            Some("message_delta") => {
                self.has_begun = true;
                self.take_usage(&event["usage"]);
                self.take_stop_reason(&event["delta"]);
            }
            Some("message_stop") => {
                self.has_begun = true;
                self.is_stopped = true;
            }
            // `content_block_stop` and `ping` say nothing that is not known by other means.
            _ => {}
        }
        Ok(())
    }

    /// A message that begins behind a complete one goes on with the reply. One that begins in the middle of another
    /// replaces it: the service lost it and began anew. One that the service did not have to wait for is whole in this
    /// event: its blocks are in it, and why it ended.
    fn begin_message(&mut self, message: &Value, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        if self.is_complete() {
            self.message_start = self.blocks.len();
            self.usage_before += self.usage;
        } else {
            let lost = self.blocks.drain(self.message_start..);
            if lost.filter(|block| !block.text().is_empty()).count() > 0 {
                let reason = format!("{} began its reply anew", self.service.provider);
                observe(Progress::Retrying { attempt: 2, delay_ms: 0, reason: &reason });
            }
        }
        self.has_begun = true;
        self.by_index.clear();
        self.usage = Usage::default();
        self.stop_reason = None;
        self.is_stopped = false;
        self.take_usage(&message["usage"]);
        let blocks = message["content"].as_array().filter(|blocks| !blocks.is_empty());
        for (index, block) in (0_u64..).zip(blocks.into_iter().flatten()) {
            self.begin_block(Some(index), block, observe)?;
        }
        // Of a message that is still to come a reason to stop would say nothing.
        if blocks.is_some() {
            self.take_stop_reason(message);
        }
        Ok(())
    }

    fn begin_block(
        &mut self,
        index: Option<u64>,
        block: &Value,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), Trouble> {
        let Some(fields) = block.as_object() else { return Ok(()) };
        let block = Block { fields: fields.clone(), input: String::new() };
        if self.blocks.len() == BLOCKS_MAX {
            let message = format!("the reply of {} holds more than {BLOCKS_MAX} blocks", self.service.provider);
            return Err(Trouble::lasting(message));
        }
        tell(&block, block.text(), observe);
        if let Some(index) = index {
            self.by_index.insert(index, self.blocks.len());
        }
        self.blocks.push(block);
        Ok(())
    }

    fn extend_block(
        &mut self,
        index: Option<u64>,
        delta: &Value,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), Trouble> {
        let Some(kind) = delta["type"].as_str().and_then(|name| name.strip_suffix("_delta")) else { return Ok(()) };
        let known = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.blocks.len().checked_sub(1).filter(|last| *last >= self.message_start),
        };
        let position = match known {
            Some(position) => position,
            // A text needs no more than its pieces to be understood, whether its block was announced or not.
            None if matches!(kind, "text" | "thinking") => {
                self.begin_block(index, &json!({"type": kind}), observe)?;
                self.blocks.len() - 1
            }
            None => return Ok(()),
        };
        let Some(block) = self.blocks.get_mut(position) else { return Ok(()) };
        match (block.kind(), kind) {
            (_, "input_json") => block.input.push_str(delta["partial_json"].as_str().unwrap_or_default()),
            ("text", "text") | ("thinking", "thinking") => {
                let piece = delta[kind].as_str().unwrap_or_default();
                append(&mut block.fields, kind, piece);
                tell(block, piece, observe);
            }
            // Where a text was taken from is not shown.
            ("text" | "tool_use", _) => {}
            // A signature; or what fills a block that is not known, in fields of the same names.
            _ => {
                for (key, value) in delta.as_object().into_iter().flatten() {
                    if let Some(piece) = value.as_str().filter(|_| key != "type") {
                        append(&mut block.fields, key, piece);
                        // Whatever the service calls the delta: what the reply holds was told.
                        if block.kind() == key {
                            tell(block, piece, observe);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn take_stop_reason(&mut self, holder: &Value) {
        if let Some(reason) = holder["stop_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.stop_reason = Some(reason.to_owned());
        }
    }

    /// Each count replaces the one before, unless it is 0, which some services send for what they do not know.
    fn take_usage(&mut self, usage: &Value) {
        let count = |key: &str| usage[key].as_u64().unwrap_or(0);
        let cached = count("cache_read_input_tokens");
        let input = count("input_tokens").saturating_add(cached).saturating_add(count("cache_creation_input_tokens"));
        if input > 0 {
            self.usage.input_tokens = input;
            self.usage.cached_input_tokens = cached;
        }
        if count("output_tokens") > 0 {
            self.usage.output_tokens = count("output_tokens");
        }
    }

    /// What goes back to the service besides text and calls; `None` if there is nothing but a text and calls behind.
    fn opaque(&self, is_paused: bool) -> Option<Value> {
        let kinds: Vec<&str> = self.blocks.iter().map(Block::kind).collect();
        let texts = kinds.iter().take_while(|kind| **kind == "text").count();
        let has_fields =
            self.blocks.iter().any(|block| block.kind() == "tool_use" && block.call_fields().next().is_some());
        if !is_paused && !has_fields && kinds[texts..].iter().all(|kind| *kind == "tool_use") {
            return None;
        }
        let blocks: Vec<Value> = self.blocks.iter().map(Block::kept).collect();
        let mut opaque = json!({BLOCKS: blocks});
        if is_paused {
            opaque[PAUSED] = json!(true);
        }
        Some(opaque)
    }
}

impl Assembly for ReplySoFar<'_> {
    fn push_event(&mut self, name: &str, data: &str, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        let data = data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let event = surrogate::parse(data);
        let is_error = name == "error" || event.as_ref().is_ok_and(|event| event["type"] == "error");
        match event {
            // The reply is there, whatever became of the service since.
            _ if is_error && self.is_complete() => Ok(()),
            Ok(event) if is_error => Err(trouble::of_error_object(self.service, &event, None)),
            Ok(event) => self.take_event(&event, observe),
            Err(_) if is_error => Err(trouble::of_error_object(self.service, &Value::String(data.to_owned()), None)),
            Err(_) if self.is_complete() => Ok(()),
            Err(_) => Err(Trouble::broken_off(format!("{} sent an event that is not JSON", self.service.provider))),
        }
    }

    fn push_object(&mut self, value: &Value, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        if value["type"] == "error" || !value["error"].is_null() {
            return Err(trouble::of_error_object(self.service, value, None));
        }
        let Some(blocks) = value["content"].as_array() else { return Ok(()) };
        self.has_begun = true;
        self.is_stopped = true;
        for block in blocks {
            self.begin_block(None, block, observe)?;
        }
        self.take_usage(&value["usage"]);
        self.take_stop_reason(value);
        Ok(())
    }

    /// Only the end of the answer says so.
    fn is_done(&self) -> bool {
        false
    }

    fn patience(&self) -> Option<Duration> {
        let seconds = if self.is_stopped { TAIL_SECONDS_MAX } else { STOP_SECONDS_MAX };
        self.is_complete().then_some(Duration::from_secs(seconds))
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn finish(self) -> Reply {
        let finish_reason = self.stop_reason.clone().unwrap_or_default();
        let finish = Finish::of(&finish_reason);
        // Each for itself, so that each is as long as its block says.
        let whole = |block| surrogate::join(Block::text(block));
        let joined = |kind: &str| self.blocks.iter().filter(|block| block.kind() == kind).map(whole).collect();
        let mut usage = self.usage_before;
        usage += self.usage;
        Reply {
            text: joined("text"),
            reasoning: joined("thinking"),
            tool_calls: self.blocks.iter().filter_map(Block::call).collect(),
            finish,
            opaque: self.opaque(finish == Finish::Pause),
            finish_reason,
            usage,
        }
    }
}

impl Block {
    fn kind(&self) -> &str {
        self.fields.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// Of a text or thinking block; empty for any other.
    fn text(&self) -> &str {
        match self.kind() {
            kind @ ("text" | "thinking") => self.fields.get(kind).and_then(Value::as_str).unwrap_or_default(),
            _ => "",
        }
    }

    fn call(&self) -> Option<ToolCall> {
        let field = |key: &str| self.fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        (self.kind() == "tool_use").then(|| ToolCall {
            id: field("id"),
            name: field("name"),
            arguments: self.arguments(),
            opaque: None,
        })
    }

    /// The pieces as they came; where there were none, what the block began with.
    fn arguments(&self) -> String {
        if !self.input.is_empty() {
            return self.input.clone();
        }
        match self.fields.get("input") {
            None | Some(Value::Null) => "{}".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(input) => input.to_string(),
        }
    }

    /// What the service says of a call besides what every call has. Breakpoints are set by the one who asks.
    fn call_fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        let known = ["type", "id", "name", "input", "cache_control"];
        self.fields.iter().filter(move |(key, value)| !known.contains(&key.as_str()) && !value.is_null())
    }

    fn kept(&self) -> Value {
        match self.kind() {
            "tool_use" => {
                let kind = ("type".to_owned(), json!("tool_use"));
                let fields = self.call_fields().map(|(key, value)| (key.clone(), value.clone()));
                return Value::Object([kind].into_iter().chain(fields).collect());
            }
            "text" => return json!({"type": "text", TEXT_BYTES: surrogate::join(self.text()).len()}),
            _ => {}
        }
        let mut fields = self.fields.clone();
        if !self.input.is_empty() {
            let input = serde_json::from_str(&surrogate::join(&self.input)).unwrap_or_else(|_| json!({}));
            fields.insert("input".to_owned(), input);
        }
        Value::Object(fields)
    }
}

fn append(fields: &mut Map<String, Value>, key: &str, piece: &str) {
    match fields.get_mut(key) {
        Some(Value::String(text)) => text.push_str(piece),
        _ => {
            fields.insert(key.to_owned(), Value::String(piece.to_owned()));
        }
    }
}

fn tell(block: &Block, piece: &str, observe: &mut dyn FnMut(Progress<'_>)) {
    match block.kind() {
        _ if piece.is_empty() => {}
        "text" => observe(Progress::Text(piece)),
        "thinking" => observe(Progress::Reasoning(piece)),
        _ => {}
    }
}
