//! Calls whose result is still to come, while records go by.

use std::collections::HashMap;

use serde_json::Value;

use crate::call::fanned::OPERATIONS;
use crate::call::unwrapped::tool_name;
use crate::session::record::ToolCall;

/// Calls that are remembered. Only the latest reply of a sound log has any without a result.
const OPEN_CALLS_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    calls: HashMap<String, OpenCall>,
    /// How many there ever were.
    count: u64,
}

#[derive(Debug)]
pub(super) struct OpenCall {
    number: u64,
    /// Of the tool itself, where the call came by way of another.
    pub(super) name: String,
    /// As the model wrote them; empty where nobody will see them.
    arguments: String,
}

impl OpenCalls {
    /// Remembers the calls of a reply, their arguments only where they are wanted.
    pub(super) fn add(&mut self, calls: &[ToolCall], with_arguments: bool) {
        if self.calls.len().saturating_add(calls.len()) > OPEN_CALLS_MAX {
            self.calls.clear();
        }
        for call in calls.iter().take(OPEN_CALLS_MAX) {
            self.count += 1;
            let arguments = if with_arguments { call.arguments.clone() } else { String::new() };
            self.calls.insert(
                call.id.clone(),
                OpenCall { number: self.count, name: tool_name(call).into_owned(), arguments },
            );
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<&OpenCall> {
        self.calls.get(id)
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.calls.remove(id);
    }

    /// Those that are left, in the order written.
    pub(super) fn in_order(&self) -> Vec<(&str, &OpenCall)> {
        let mut left: Vec<(&str, &OpenCall)> = self.calls.iter().map(|(id, call)| (id.as_str(), call)).collect();
        left.sort_by_key(|(_, call)| call.number);
        left
    }
}

impl OpenCall {
    /// The arguments of the call, or of one of its operations, as far as they can be read.
    pub(super) fn arguments(&self, operation: Option<u32>) -> Value {
        let whole: Value = serde_json::from_str(&self.arguments).unwrap_or_else(|_| self.arguments.as_str().into());
        let index = operation.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
        match index.and_then(|index| whole.get(OPERATIONS)?.get(index)) {
            Some(own) => own.clone(),
            None => whole,
        }
    }
}
