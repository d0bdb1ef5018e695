//! The second stage: a call whose tool is known and whose arguments are an object that fits the tool's schema; or a
//! refusal that the model can read and mend.

use serde_json::Value;

use super::fanned::{self, Shape};
use super::validation::Schema;
use super::{arguments, coercion};
use crate::config::nearest::named;
use crate::session::record::{OperationId, ToolCall};
use crate::tool::Refusal;
use crate::tool::registry::{RegisteredTool, Registry, nearest};

/// How much of an unknown name is quoted.
const NAME_CHARACTERS_MAX: usize = 100;

/// One operation that can be judged and run.
#[derive(Clone)]
pub struct CheckedCall<'r> {
    pub id: OperationId,
    pub tool: &'r RegisteredTool,
    /// As they will be used: coerced, defaults filled in, validated.
    pub arguments: Value,
}

/// An operation that was checked, or why it cannot run.
pub type CheckedOperation<'r> = (OperationId, Result<CheckedCall<'r>, Refusal>);

/// Checks a call as the model wrote it, each of its operations by itself. `truncated`: the reply was cut at the output
/// limit, so arguments that do not parse were never finished.
pub fn check<'r>(call: &ToolCall, registry: &'r Registry, truncated: bool) -> Vec<CheckedOperation<'r>> {
    let whole = OperationId::whole(&call.id);
    let (tool, shape) = match shape(call, registry, truncated) {
        Ok(found) => found,
        Err(refusal) => return vec![(whole, Err(refusal))],
    };
    let operations = match shape {
        Shape::Bare(only) => vec![only],
        Shape::Envelope(operations) => operations,
    };
    let several = operations.len() > 1;
    let numbered = (1..).zip(operations);
    numbered
        .map(|(number, given)| {
            let operation = several.then_some(number);
            let id = OperationId { call_id: call.id.clone(), operation };
            (id.clone(), fit(id, tool, given))
        })
        .collect()
}

/// The call's tool, and its arguments as one object or several.
fn shape<'r>(call: &ToolCall, registry: &'r Registry, truncated: bool) -> Result<(&'r RegisteredTool, Shape), Refusal> {
    let object = arguments::parse(&call.arguments).map_err(|refusal| {
        if truncated {
            Refusal::new(
                "truncated_reply",
                "The reply was cut at the output limit before this call's arguments were whole; nothing was run.",
            )
        } else {
            refusal
        }
    })?;
    let tool = registry.find(&call.name).ok_or_else(|| unknown(&call.name, registry))?;
    let shape = match &tool.fan_out {
        Some((fan_out, _)) => fanned::split(object, tool.tool.parameters(), schema(tool)?, fan_out.max_operations)?,
        None => Shape::Bare(Value::Object(object)),
    };
    Ok((tool, shape))
}

/// Coerces, fills in and validates the arguments of one operation.
fn fit(id: OperationId, tool: &RegisteredTool, mut given: Value) -> Result<CheckedCall<'_>, Refusal> {
    coercion::apply(&mut given, tool.tool.parameters());
    arguments::ensure_shallow(&given)?;
    schema(tool)?.ensure_fits(tool.name(), &given)?;
    Ok(CheckedCall { id, tool, arguments: given })
}

fn schema(tool: &RegisteredTool) -> Result<&Schema, Refusal> {
    tool.schema().map_err(|error| {
        Refusal::new("invalid_schema", format!("The schema of {} itself is unsound: {error}", tool.name()))
    })
}

fn unknown(name: &str, registry: &Registry) -> Refusal {
    let shown: String = name.chars().take(NAME_CHARACTERS_MAX).collect();
    let near = nearest(name, registry.offered().map(RegisteredTool::name));
    let message = if name.trim().is_empty() {
        "The call names no tool.".to_owned()
    } else {
        format!("There is no tool named {shown:?}.")
    };
    let detail = if near.is_empty() {
        let all: Vec<&str> = registry.offered().map(RegisteredTool::name).collect();
        format!("the tools are {}", all.join(", "))
    } else {
        named("the nearest name", &near)
    };
    Refusal::new("unknown_tool", message).detail(detail)
}

#[cfg(test)]
mod tests;
