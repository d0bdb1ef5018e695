//! A server's tool among attini's own.
//!
//! It counts as one with side effects, whatever its server says of it, and is judged by its name alone.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::answer::{self, CallEnd};
use super::asking;
use super::list::ListedTool;
use super::schema::{own_schema, wire_schema};
use super::servers::Desk;
use crate::permission::Access;
use crate::session::record::ResultStatus;
use crate::tool::{Assessment, Effect, Outcome, Overlay, Preview, Refusal, Surroundings, Tool, Waits, Work};
use crate::workspace::World;

/// Of a description, as the model gets it.
const DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// How often a call is sent again because its server says so and asks nobody.
const ROUNDS_UNASKED_MAX: u32 = 8;
/// The longer a server wants to be called again, the longer that is put off.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct McpTool {
    name: String,
    server: String,
    source: String,
    /// As the server names it.
    remote_name: String,
    description: String,
    parameters: Value,
    advertised: Value,
    timeout_s: u64,
    desk: Arc<Desk>,
}

impl McpTool {
    /// `name`: as it is offered. The schema was found to be usable.
    pub(super) fn new(name: String, server: &str, listed: ListedTool, timeout_s: u64, desk: Arc<Desk>) -> Self {
        let description = crate::tool::output::shorten(&listed.description, DESCRIPTION_BYTES_MAX, None).into_owned();
        let advertised = wire_schema(&listed.schema);
        Self {
            name,
            server: server.to_owned(),
            source: format!("mcp:{server}"),
            remote_name: listed.name,
            description,
            advertised,
            parameters: own_schema(listed.schema),
            timeout_s,
            desk,
        }
    }
}

impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn advertised_parameters(&self) -> &Value {
        &self.advertised
    }

    fn source(&self) -> &str {
        &self.source
    }

    fn effect(&self) -> Effect {
        Effect::SideEffect
    }

    fn look(&self, _arguments: &Value, _surroundings: &Surroundings<'_>, _world: &mut World) {}

    fn assess(&self, arguments: &Value, _world: &World, _overlay: &Overlay) -> Result<Assessment, Refusal> {
        Ok(Assessment {
            summary: arguments.to_string(),
            accesses: vec![Access::Tool],
            preview: Preview::Tool { arguments: arguments.clone() },
            files: Vec::new(),
            after: Overlay::new(),
            moot: None,
        })
    }

    fn asked_back(&self, asked: &Waits, round: u32) -> Option<Preview> {
        Some(asking::preview(asked, round))
    }

    fn ensure_answers(&self, asked: &Waits, answer: &str) -> Result<(), Refusal> {
        asking::ensure_answers(asked, answer)
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        let Value::Object(arguments) = work.arguments.clone() else {
            return Outcome::error("invalid_arguments", "the arguments are no JSON object");
        };
        let workspace = work.surroundings.workspace.root.path();
        let mut resumption = match work.asked.map(|asked| asking::resumption(&asked.state, work.answer, workspace)) {
            None => None,
            Some(Ok(resumption)) => Some(resumption),
            Some(Err(violations)) => {
                let content = format!("The answer does not fit what was asked: {}", violations.join("; "));
                return Outcome::error("tool_error", content);
            }
        };
        for round in 0..ROUNDS_UNASKED_MAX {
            let called = self.desk.call(&self.server, &self.remote_name, arguments.clone(), resumption.take());
            let Some(called) = called else {
                let content =
                    "The thread for MCP servers failed by a fault of its own; the call may have taken effect.";
                return Outcome { status: ResultStatus::Unknown, ..Outcome::error("panic", content) };
            };
            match answer::call_end(&self.server, &self.remote_name, self.timeout_s, called, work) {
                CallEnd::Settled(outcome) => return outcome,
                CallEnd::Waits(waits) => return answer::asked(&self.server, waits),
                CallEnd::Again(state) => resumption = asking::resumption(&state, None, workspace).ok(),
            }
            // It may only be busy.
            if work.interrupt.wait(PAUSE * round) {
                break;
            }
        }
        let content = format!(
            "The MCP server {} did not go on with the call, but wanted it again and again; it may have taken effect.",
            self.server
        );
        Outcome::error("tool_error", content)
    }
}
