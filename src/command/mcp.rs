//! `attini mcp serve`: the built-in tools for any MCP client, behind the same gate as `attini tools call`.

use serde_json::{Map, Value};

use super::invocation::Invocation;
use super::lone::{Bench, Ended, next_line};
use crate::call::hints;
use crate::cli::{McpArguments, McpCommand};
use crate::config::Config;
use crate::config::layers::ensure_tools_exist;
use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::{Cause, Interrupt};
use crate::mask;
use crate::mcp::{Offered, Served, serve};
use crate::session::record::{ResultStatus, ToolCall};
use crate::tool::output::shorten;
use crate::tool::registry::{Registry, builtin_tools};
use crate::tool::{Effect, ask_user, find_tools};
use crate::turn::settings::concurrency;

pub fn run(invocation: &Invocation, arguments: &McpArguments) -> anyhow::Result<Status> {
    match arguments.command {
        McpCommand::Serve => serve_tools(invocation),
    }
}

fn serve_tools(invocation: &Invocation) -> anyhow::Result<Status> {
    let trust = invocation.trust()?;
    let config = invocation.trusted_config(&trust)?.config;
    let mut tools = builtin_tools();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
    ensure_tools_exist(&config, &names)?;
    // There is nobody here whom a question could be put to.
    tools.retain(|tool| tool.name() != ask_user::NAME);
    let (registry, warnings) = Registry::new(tools, &config, false, &config.fan_out());
    for warning in warnings {
        invocation.reporter.warning(&warning);
    }
    invocation.interrupt.end_in_order();
    let concurrency = usize::try_from(concurrency(&config)).unwrap_or(usize::MAX);
    let bench = Bench { invocation, registry: &registry, config: &config, concurrency };
    let call = |name: &str, arguments: Map<String, Value>, interrupt: &Interrupt| {
        call(&bench, name, arguments, interrupt).unwrap_or_else(|error| {
            let failure = Failure::of(&error);
            failed(&failure.code, &failure.message, failure.hint)
        })
    };
    let served = serve(offered(&registry), concurrency, &invocation.interrupt, &call);
    if let Some(Cause::Signal(signal)) = invocation.interrupt.cause() {
        // The end needs no words: stdout is the protocol's alone.
        return Ok(Status::Interrupted(signal));
    }
    served.map(|()| Status::Completed)
}

/// The tools as clients are told of them. There is no catalogue to fetch a schema from, so none is deferred.
fn offered(registry: &Registry) -> Vec<Offered> {
    registry
        .offered()
        .filter(|tool| tool.name() != find_tools::NAME)
        .map(|tool| Offered {
            name: tool.name().to_owned(),
            description: tool.description(),
            schema: tool.advertised_parameters().as_object().cloned().unwrap_or_default(),
            reads: tool.concurrent && tool.tool.effect() == Effect::Read,
        })
        .collect()
}

fn call(bench: &Bench<'_>, name: &str, arguments: Map<String, Value>, interrupt: &Interrupt) -> anyhow::Result<Served> {
    let invocation = bench.invocation;
    // Read for each call, so that a rule that is added counts at once.
    let trust = invocation.trust()?;
    let mut rules = invocation.rules(None, None, &[], &trust)?;
    let arguments = Value::Object(arguments).to_string();
    let call = ToolCall { id: "call".to_owned(), name: name.to_owned(), arguments, opaque: None };
    Ok(match bench.run(&call, &mut rules, interrupt, &|_| {}) {
        Ended::Unfit(refusal) => {
            let next = hints::next_line(refusal.code, refusal.detail.as_deref());
            failed(refusal.code, &refusal.message, next)
        }
        Ended::Answered(answer) if answer.status == ResultStatus::Ok => done(bench.config, answer.content),
        Ended::Answered(answer) => {
            let next = hints::next_line(answer.code, answer.detail.as_deref());
            failed(answer.code, &answer.content, next)
        }
        Ended::WouldAsk(asked) => {
            let message = format!("{name} would have to ask: {}", asked.why);
            failed("needs_approval", &message, Some(asked.hint()))
        }
        Ended::Ran(outcome) if outcome.status == ResultStatus::Ok => done(bench.config, outcome.content),
        Ended::Ran(outcome) => {
            let next = next_line(&outcome);
            let content = done(bench.config, outcome.content).text;
            failed(outcome.code.unwrap_or("error"), &content, next)
        }
    })
}

fn done(config: &Config, content: String) -> Served {
    let content = if content.trim().is_empty() { "(no output)".to_owned() } else { content };
    let bytes_max = usize::try_from(config.limits.result_bytes).unwrap_or(usize::MAX);
    let masked = mask::apply(&content);
    Served { text: shorten(&masked, bytes_max, None).into_owned(), is_error: false }
}

/// A failure says its code, for whoever looks for that alone, and what to do next.
fn failed(code: &str, message: &str, next: Option<String>) -> Served {
    let next = next.map(|next| format!("\n{next}")).unwrap_or_default();
    let text = format!("{code}: {}{next}", message.trim_end_matches('\n'));
    Served { text: mask::apply(&text).into_owned(), is_error: true }
}
