//! Whether each request continues an earlier one: its messages begin with those sent before, and within a turn the
//! system prompt and the tools array are the same. Prompt caches and a model's trust in its own past rest on it.
//!
//! One server may see several histories (sessions, delegations, a question on the side): a request must continue one
//! of them, which it then replaces, or be scripted as the start of its own.

use serde_json::{Value, json};

use super::pairing::Format;

#[derive(Debug, Default)]
pub(super) struct Continuity {
    heads: Vec<Head>,
}

/// The last request of one history.
#[derive(Debug)]
struct Head {
    /// Another model sees another history (opaque fields are not sent to it).
    format: Format,
    model: Value,
    items: Vec<Item>,
    system: String,
    tools: String,
}

/// A message, or one block of a user message: what adjacent texts are merged from stays comparable.
#[derive(Debug, Clone, PartialEq)]
struct Item {
    role: String,
    content: Value,
}

/// What is asked for; the switches of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demands {
    pub(super) append_only: bool,
    pub(super) stable_prefix: bool,
}

impl Continuity {
    /// All violations of a request that is lawful by itself.
    pub(super) fn check(
        &mut self,
        format: Format,
        body: &Value,
        starts_history: bool,
        demands: Demands,
    ) -> Vec<String> {
        let (system, items) = items(format, body);
        let head = Head { format, model: body["model"].clone(), items, system, tools: body["tools"].to_string() };
        let same_model = |other: &&Head| other.format == head.format && other.model == head.model;
        if starts_history || !self.heads.iter().any(|other| same_model(&other)) {
            self.heads.push(head);
            return Vec::new();
        }
        let continued = (0..self.heads.len())
            .filter(|index| same_model(&&self.heads[*index]) && continues(&self.heads[*index].items, &head.items))
            .max_by_key(|index| self.heads[*index].items.len());
        let Some(index) = continued else {
            let found = if demands.append_only {
                self.heads.iter().rfind(same_model).map(|other| difference(&other.items, &head.items))
            } else {
                None
            };
            self.heads.push(head);
            return found.into_iter().collect();
        };
        let mut found = Vec::new();
        let previous = &self.heads[index];
        if demands.stable_prefix && !starts_turn(&previous.items, &head.items) {
            if previous.system != head.system {
                found.push(format!("the system prompt changed within a turn:\n{}\n{}", previous.system, head.system));
            }
            if previous.tools != head.tools {
                found.push(format!("the tools array changed within a turn:\n{}\n{}", previous.tools, head.tools));
            }
        }
        self.heads[index] = head;
        found
    }
}

/// The system prompt, and the rest as items. Cache breakpoints move on and do not count.
fn items(format: Format, body: &Value) -> (String, Vec<Item>) {
    let mut system = body["system"].to_string();
    let mut items = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        if role == "system" || role == "developer" {
            system = message["content"].to_string();
            continue;
        }
        if format == Format::OpenAi && role != "user" {
            items.push(Item { role, content: message.clone() });
            continue;
        }
        match &message["content"] {
            Value::Array(blocks) => {
                items
                    .extend(blocks.iter().map(|block| Item { role: role.clone(), content: without_breakpoint(block) }));
            }
            text => items.push(Item { role, content: json!({"type": "text", "text": text}) }),
        }
    }
    (system, items)
}

fn without_breakpoint(block: &Value) -> Value {
    let mut block = block.clone();
    if let Some(fields) = block.as_object_mut() {
        fields.shift_remove("cache_control");
    }
    block
}

/// Whether `new` begins with `old`. The last user text of `old` may have grown: adjacent texts are merged.
fn continues(old: &[Item], new: &[Item]) -> bool {
    let Some((last, before)) = old.split_last() else { return true };
    new.len() >= old.len() && before == &new[..before.len()] && continues_item(last, &new[before.len()])
}

fn continues_item(old: &Item, new: &Item) -> bool {
    if old == new {
        return true;
    }
    match (user_text(old), user_text(new)) {
        (Some(old), Some(new)) => new.starts_with(old),
        _ => false,
    }
}

fn user_text(item: &Item) -> Option<&str> {
    if item.role == "user" && item.content["type"] == "text" { item.content["text"].as_str() } else { None }
}

/// A user text more than before: a new turn, which may have another prompt and other tools.
fn starts_turn(old: &[Item], new: &[Item]) -> bool {
    let grown = old.last().is_some_and(|last| *last != new[old.len() - 1]);
    grown || new[old.len()..].iter().any(|item| user_text(item).is_some())
}

fn difference(old: &[Item], new: &[Item]) -> String {
    let index = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let show = |items: &[Item]| {
        items.get(index).map_or_else(|| "nothing".to_owned(), |item| format!("{}: {}", item.role, item.content))
    };
    format!(
        "the messages do not continue those sent before; item {index} was\n  {}\nand is\n  {}",
        show(old),
        show(new)
    )
}
