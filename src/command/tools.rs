//! `attini tools`: the tools as the model would see them, and one call through the same gate without a model.

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use super::lone::{Bench, Ended};
use crate::call::hints;
use crate::cli::{ToolsArguments, ToolsCommand};
use crate::config::layers::ensure_tools_exist;
use crate::config::{Config, Run};
use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::Cause;
use crate::mcp::Servers;
use crate::permission::Rules;
use crate::report::line::{Line, Tone};
use crate::session::record::{ResultStatus, ToolCall};
use crate::tool::ask_user;
use crate::tool::deferral::RUN_TOOL;
use crate::tool::own;
use crate::tool::registry::builtin_tools;
use crate::tool::registry::{RegisteredTool, Registry, nearest};
use crate::tool::{Effect, Outcome, Refusal};
use crate::turn::settings::concurrency;
use crate::workspace::environment::withheld_variables;

pub fn run(invocation: &Invocation, arguments: &ToolsArguments) -> anyhow::Result<Status> {
    let trust = invocation.trust()?;
    let config = invocation.trusted_config(&trust)?.config;
    let mut tools = builtin_tools();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
    ensure_tools_exist(&config, &names)?;
    tools.extend(own::tools(&config));
    let withheld_variables = withheld_variables(&config.environment_pass, &crate::provider::key_variables(&config));
    let servers = invocation.add_mcp_tools(&mut tools, &config, &withheld_variables, arguments.refresh)?;
    let (registry, warnings) = Registry::new(tools, &config, false, &config.fan_out());
    for warning in warnings {
        invocation.reporter.warning(&warning);
    }
    match (&arguments.command, &arguments.schema) {
        (Some(ToolsCommand::Call { name, arguments }), _) => {
            let mut rules = invocation.rules(None, None, &[], &trust)?;
            call(invocation, &registry, &config, &mut rules, &servers, (name, arguments))
        }
        (None, Some(name)) => {
            end(invocation, &servers);
            schema(invocation, &registry, name, &servers)
        }
        (None, None) => {
            end(invocation, &servers);
            Ok(list(invocation, &registry, &servers))
        }
    }
}

/// Ends the MCP servers that run, and tells what is to be told of them.
fn end(invocation: &Invocation, servers: &Servers) {
    servers.end();
    invocation.reporter.warn_of_servers(servers, None);
}

fn list(invocation: &Invocation, registry: &Registry, servers: &Servers) -> Status {
    let mut lines = Vec::new();
    let mut listed = Vec::new();
    for tool in registry.tools() {
        let asks = asks(tool);
        let source = match tool.tool.source() {
            "builtin" => "built in",
            other => other,
        };
        let mut traits = vec![
            source,
            asks,
            if tool.concurrent { "runs beside others" } else { "runs alone" },
            match (&tool.withheld, tool.deferred) {
                (Some(_), _) => "not offered",
                (None, true) => "deferred",
                (None, false) => "offered",
            },
        ];
        if tool.fan_out.is_some() {
            traits.push("takes several operations");
        }
        let first = tool.tool.description().lines().next().unwrap_or_default();
        lines.push(Line::new(Tone::Heading, &format!("{} ({})", tool.name(), traits.join(", "))));
        lines.push(Line::plain(&format!("  {first}")));
        listed.push(json!({
            "name": tool.name(),
            "description": tool.description(),
            "source": tool.tool.source(),
            "asks": asks,
            "concurrent": tool.concurrent,
            "fan_out": tool.fan_out.is_some(),
            "deferred": tool.deferred,
            "offered": tool.withheld.is_none(),
        }));
    }
    if let Some(tool) = registry.run_tool() {
        lines.push(Line::new(
            Tone::Heading,
            &format!("{} (built in, stands for the tool that it names, offered)", tool.name),
        ));
        lines.push(Line::plain(&format!("  {}", tool.description)));
        listed.push(json!({
            "name": tool.name,
            "description": tool.description,
            "source": "builtin",
            "asks": "as the tool that it names",
            "concurrent": false,
            "fan_out": false,
            "deferred": false,
            "offered": true,
        }));
    }
    invocation.reporter.print(&lines);
    let fields = [("tools".to_owned(), Value::Array(listed)), warnings(servers)];
    invocation.reporter.finish_command("tools", Status::Completed, Map::from_iter(fields), None);
    Status::Completed
}

/// What was told of the MCP servers, for whoever reads the result alone.
fn warnings(servers: &Servers) -> (String, Value) {
    ("warnings".to_owned(), json!(servers.warnings_told()))
}

/// Whether its calls ask where no rule matches.
fn asks(tool: &RegisteredTool) -> &'static str {
    match (tool.run, tool.tool.effect()) {
        (Some(Run::Ask | Run::Allow) | None, _) if tool.name() == ask_user::NAME => "asks",
        (Some(Run::Deny), _) => "denied",
        (Some(Run::Allow), _) => "does not ask",
        (Some(Run::Ask), _) | (None, Effect::SideEffect) => "asks",
        (None, Effect::Read) => "asks outside the workspace",
    }
}

fn schema(invocation: &Invocation, registry: &Registry, name: &str, servers: &Servers) -> anyhow::Result<Status> {
    let run_tool = registry.run_tool().filter(|tool| tool.name == name).map(|tool| &tool.parameters);
    let parameters = run_tool.or_else(|| registry.find(name).map(RegisteredTool::advertised_parameters));
    let parameters = parameters.ok_or_else(|| unknown(name, registry))?;
    invocation.reporter.print_data(&format!("{}\n", serde_json::to_string_pretty(parameters)?));
    let fields = [("name".to_owned(), json!(name)), ("schema".to_owned(), parameters.clone()), warnings(servers)];
    invocation.reporter.finish_command("tools", Status::Completed, Map::from_iter(fields), None);
    Ok(Status::Completed)
}

fn unknown(name: &str, registry: &Registry) -> Failure {
    let near = nearest(name, registry.tools().iter().map(RegisteredTool::name));
    let hint = match near.first() {
        Some(near) => format!("did you mean {near}?"),
        None => format!("the tools are {}", registry.advertised_names().join(", ")),
    };
    Failure::usage(format!("there is no tool {name:?}")).hint(hint)
}

/// One call: checked, judged and run as a model's would be. What would ask is refused.
fn call(
    invocation: &Invocation,
    registry: &Registry,
    config: &Config,
    rules: &mut Rules,
    servers: &Servers,
    (name, arguments): (&str, &str),
) -> anyhow::Result<Status> {
    if registry.find(name).is_none() && name != RUN_TOOL {
        return Err(unknown(name, registry).into());
    }
    let call = ToolCall { id: "call".to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None };
    invocation.interrupt.end_in_order();
    let concurrency = usize::try_from(concurrency(config)).unwrap_or(usize::MAX);
    let bench = Bench { invocation, registry, config, concurrency };
    let ended = bench.run(&call, rules, &invocation.interrupt, &|bytes| invocation.reporter.live(bytes));
    end(invocation, servers);
    match ended {
        Ended::Unfit(refusal) => refused(refusal, Status::Usage),
        Ended::Answered(answer) if answer.status == ResultStatus::Denied => {
            Err(Failure::new(Status::Error, answer.content).code(answer.code).into())
        }
        Ended::Answered(answer) => {
            refused(Refusal { code: answer.code, message: answer.content, detail: answer.detail }, Status::Error)
        }
        Ended::WouldAsk(asked) => {
            let failure = Failure::new(Status::Error, format!("{name} would have to ask: {}", asked.why));
            Err(failure.code("needs_approval").hint(asked.hint()).into())
        }
        Ended::Ran(outcome) => told(invocation, name, outcome, servers),
    }
}

fn refused(refusal: Refusal, status: Status) -> anyhow::Result<Status> {
    let failure = Failure::new(status, refusal.message).code(refusal.code);
    Err(match hints::next_line(refusal.code, refusal.detail.as_deref()) {
        Some(next) => failure.hint(next.trim_start_matches("next: ").to_owned()),
        None => failure,
    }
    .into())
}

fn told(invocation: &Invocation, name: &str, outcome: Outcome, servers: &Servers) -> anyhow::Result<Status> {
    let ended_well = outcome.status == ResultStatus::Ok;
    if let Some(Cause::Signal(signal)) = invocation.interrupt.cause() {
        return Err(Failure::new(Status::Interrupted(signal), outcome.content).into());
    }
    let mut text = outcome.content.clone();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    invocation.reporter.print_data(&text);
    let status = if ended_well { Status::Completed } else { Status::Error };
    let fields = [
        ("name".to_owned(), json!(name)),
        ("result".to_owned(), json!({"status": outcome.status, "code": outcome.code, "content": outcome.content})),
        warnings(servers),
    ];
    let failure = (!ended_well)
        .then(|| Failure::new(status, format!("{name} ended in an error")).code(outcome.code.unwrap_or("error")))
        .map(|failure| {
            let next = outcome.code.and_then(|code| hints::next_line(code, outcome.detail.as_deref()));
            match next {
                Some(next) => failure.hint(next.trim_start_matches("next: ").to_owned()),
                None => failure,
            }
        });
    invocation.reporter.finish_command("tools", status, Map::from_iter(fields), failure.as_ref());
    Ok(status)
}
