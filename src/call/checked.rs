//! The second stage: a call whose tool is known and whose arguments are an object that fits the tool's schema; or a
//! refusal that the model can read and mend.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::fanned::{self, Shape};
use super::validation::Schema;
use super::{arguments, coercion, unwrapped};
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
    check_operations(call, registry, truncated, &mut |_| false)
}

/// The same for a model that has seen the schemas of the deferred tools in `fetched` alone: arguments that do not fit
/// another one are answered with its schema, which then counts as seen.
pub fn check_knowing<'r>(
    call: &ToolCall,
    registry: &'r Registry,
    truncated: bool,
    fetched: &mut BTreeSet<String>,
) -> Vec<CheckedOperation<'r>> {
    check_operations(call, registry, truncated, &mut |tool| tool.deferred && fetched.insert(tool.name().to_owned()))
}

fn check_operations<'r>(
    call: &ToolCall,
    registry: &'r Registry,
    truncated: bool,
    teaches: &mut dyn FnMut(&RegisteredTool) -> bool,
) -> Vec<CheckedOperation<'r>> {
    let whole = OperationId::whole(&call.id);
    let (tool, arguments) = match tool_of(call, registry, truncated) {
        Ok(found) => found,
        Err(refusal) => return vec![(whole, Err(refusal))],
    };
    let mut taught = |refusal: Refusal| {
        if refusal.code == "invalid_arguments" && teaches(tool) { with_schema(tool, &refusal) } else { refusal }
    };
    let operations = match shape(tool, arguments) {
        Ok(Shape::Bare(arguments)) => vec![arguments],
        Ok(Shape::Envelope(operations)) => operations,
        Err(refusal) => return vec![(whole, Err(taught(refusal)))],
    };
    let several = operations.len() > 1;
    let numbered = (1..).zip(operations);
    numbered
        .map(|(number, given)| {
            let operation = several.then_some(number);
            let id = OperationId { call_id: call.id.clone(), operation };
            (id.clone(), fit(id, tool, given).map_err(&mut taught))
        })
        .collect()
}

/// The tool that the call is about, and the arguments meant for it.
fn tool_of<'r>(
    call: &ToolCall,
    registry: &'r Registry,
    truncated: bool,
) -> Result<(&'r RegisteredTool, Map<String, Value>), Refusal> {
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
    let (name, arguments) = unwrapped::unwrap(&call.name, object)?;
    let tool = registry.find(&name).ok_or_else(|| unknown(&name, registry))?;
    Ok((tool, arguments))
}

/// The call's arguments as one object or several.
fn shape(tool: &RegisteredTool, arguments: Map<String, Value>) -> Result<Shape, Refusal> {
    match &tool.fan_out {
        Some((fan_out, _)) => fanned::split(arguments, tool.tool.parameters(), schema(tool)?, fan_out.max_operations),
        None => Ok(Shape::Bare(Value::Object(arguments))),
    }
}

/// Coerces, fills in and validates the arguments of one operation.
fn fit(id: OperationId, tool: &RegisteredTool, mut given: Value) -> Result<CheckedCall<'_>, Refusal> {
    coercion::apply(&mut given, tool.tool.parameters());
    arguments::ensure_shallow(&given)?;
    schema(tool)?.ensure_fits(tool.name(), &given)?;
    Ok(CheckedCall { id, tool, arguments: given })
}

/// The refusal of a call whose schema the model has not seen: what is wrong, and the schema.
fn with_schema(tool: &RegisteredTool, refusal: &Refusal) -> Refusal {
    let message = format!(
        "{}\nThe schema of its arguments, which you had not seen: {}",
        refusal.message,
        tool.advertised_parameters()
    );
    Refusal::new("schema_returned", message)
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
        let known = registry.advertised_names();
        let more = registry.deferred().count();
        let more = if more == 0 { String::new() } else { format!(", and {more} more that `find_tools` searches") };
        format!("the tools are {}{more}", known.join(", "))
    } else {
        named("the nearest name", &near)
    };
    Refusal::new("unknown_tool", message).detail(detail)
}

#[cfg(test)]
mod tests;
