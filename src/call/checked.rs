//! The second stage: a call whose tool is known and whose arguments are an object that fits the tool's schema; or a
//! refusal that the model can read and mend.

use serde_json::Value;

use super::{arguments, coercion};
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

/// Checks a call as the model wrote it. `truncated`: the reply was cut at the output limit, so arguments that do not
/// parse were never finished.
pub fn check<'r>(call: &ToolCall, registry: &'r Registry, truncated: bool) -> Result<CheckedCall<'r>, Refusal> {
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
    let mut arguments = Value::Object(object);
    coercion::apply(&mut arguments, tool.tool.parameters());
    let schema = tool.schema().map_err(|error| {
        Refusal::new("invalid_schema", format!("The schema of {} itself is unsound: {error}", tool.name()))
    })?;
    schema.ensure_fits(tool.name(), &arguments)?;
    Ok(CheckedCall { id: OperationId::whole(&call.id), tool, arguments })
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
        format!("the nearest names are {}", near.join(", "))
    };
    Refusal::new("unknown_tool", message).detail(detail)
}

#[cfg(test)]
mod tests;
