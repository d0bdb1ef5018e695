//! Deferred tools: those that the model knows by name alone until it asks for their schemas.
//!
//! Which they are, what the system prompt says of them, and `run_tool`, by which they are called. Finding them is
//! [`super::find_tools`]; taking `run_tool` off a call is `call::unwrapped`.

use std::fmt::Write;

use serde_json::json;

use super::registry::RegisteredTool;
use crate::config::{Config, Defer};
use crate::provider::AdvertisedTool;

pub const RUN_TOOL: &str = "run_tool";

/// With `defer = "auto"`, so many tools of MCP servers are still advertised whole.
const ADVERTISED_MCP_TOOLS_MAX: usize = 16;
/// How much of the system prompt the names may take.
const NAMES_BYTES_MAX: usize = 12 * 1024;

const RUN_TOOL_DESCRIPTION: &str = "Runs a tool that you know by name alone, with arguments by its own schema.";

/// Marks the tools that are deferred. Those that are not offered count for nothing.
pub(super) fn mark(tools: &mut [RegisteredTool], config: &Config) {
    let of_servers = tools.iter().filter(|tool| tool.withheld.is_none() && server_of(tool).is_some()).count();
    for tool in tools {
        let server = server_of(tool).and_then(|server| config.mcp.get(server));
        tool.deferred = tool.withheld.is_none()
            && server.is_some_and(|server| match server.defer {
                Defer::Always => true,
                Defer::Never => false,
                Defer::Auto => of_servers > ADVERTISED_MCP_TOOLS_MAX,
            });
    }
}

/// The MCP server that a tool belongs to.
pub(super) fn server_of(tool: &RegisteredTool) -> Option<&str> {
    tool.tool.source().strip_prefix("mcp:")
}

/// `run_tool` as the model is told of it.
pub(super) fn run_tool() -> AdvertisedTool {
    AdvertisedTool {
        name: RUN_TOOL.to_owned(),
        description: RUN_TOOL_DESCRIPTION.to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "object"},
            },
            "required": ["name"],
            "additionalProperties": false,
        }),
    }
}

/// What the system prompt says of deferred tools: their names, sorted, those of a server on a line. Where they are too
/// many, each server has as many as the others, and the rest are counted.
pub fn note<'t>(deferred: impl Iterator<Item = &'t RegisteredTool>) -> String {
    let mut names: Vec<(&str, &str)> =
        deferred.map(|tool| (tool.name(), server_of(tool).unwrap_or_default())).collect();
    if names.is_empty() {
        return String::new();
    }
    names.sort_unstable();
    let lines: Vec<&[(&str, &str)]> = names.chunk_by(|one, other| one.1 == other.1).collect();
    let shown = shares(&lines);
    let mut text = "# Tools by name\n\
                    Beside the tools that you are given there are these. Their schemas are left out here: `find_tools` \
                    gives them, `run_tool` calls one.\n"
        .to_owned();
    for (line, count) in lines.iter().zip(&shown).filter(|(_, count)| **count > 0) {
        let names: Vec<&str> = line[..*count].iter().map(|(name, _)| *name).collect();
        let _ = writeln!(text, "{}", names.join(", "));
    }
    let left_out = names.len() - shown.iter().sum::<usize>();
    if left_out > 0 {
        let _ = writeln!(text, "and {left_out} more, which are not listed; `find_tools` searches them as well");
    }
    text
}

/// How many names of each line fit: one more of each in turn, until the next would be too much.
fn shares(lines: &[&[(&str, &str)]]) -> Vec<usize> {
    let mut shown = vec![0; lines.len()];
    let mut bytes = 0;
    let longest = lines.iter().map(|line| line.len()).max().unwrap_or_default();
    for index in 0..longest {
        for (line, count) in lines.iter().zip(&mut shown) {
            let Some((name, _)) = line.get(index) else { continue };
            bytes += name.len() + ", ".len();
            if bytes > NAMES_BYTES_MAX {
                return shown;
            }
            *count += 1;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::McpConfig;
    use crate::tool::fake::{Fake, Ran};
    use crate::tool::registry::{Registry, builtin_tools};
    use crate::tool::{Effect, Tool};

    fn registry(servers: &[(&'static str, Defer, usize)], read_only: bool) -> Registry {
        let ran = Arc::new(Ran::default());
        let mut tools: Vec<Arc<dyn Tool>> = builtin_tools();
        let mut config = Config::default();
        for (server, defer, count) in servers {
            config.mcp.insert((*server).to_owned(), McpConfig { defer: *defer, ..McpConfig::default() });
            tools.extend((0..*count).map(|number| Fake::of_server(server, number, Effect::SideEffect, &ran)));
        }
        Registry::new(tools, &config, read_only, &config.fan_out()).0
    }

    fn counts(registry: &Registry) -> (usize, usize) {
        let given = registry.advertised();
        let is_told = |name: &str| given.iter().any(|tool| tool.name == name);
        assert_eq!(is_told("find_tools"), registry.deferred().next().is_some());
        assert_eq!(is_told("find_tools"), is_told("run_tool"));
        (given.iter().filter(|tool| tool.name.contains("__")).count(), registry.deferred().count())
    }

    #[test]
    fn tools_are_deferred_where_there_are_many_or_the_config_says_so() {
        use Defer::{Always, Auto, Never};
        for (servers, expected) in [
            (vec![], (0, 0)),
            (vec![("a", Auto, 16)], (16, 0)),
            (vec![("a", Auto, 17)], (0, 17)),
            (vec![("a", Auto, 8), ("b", Auto, 9)], (0, 17)),
            (vec![("a", Auto, 8), ("b", Never, 9)], (9, 8)),
            (vec![("a", Always, 1), ("b", Auto, 2)], (2, 1)),
            (vec![("a", Never, 30)], (30, 0)),
        ] {
            assert_eq!(counts(&registry(&servers, false)), expected, "{servers:?}");
        }
        // What is not offered is not there to be found.
        assert_eq!(counts(&registry(&[("a", Always, 3)], true)), (0, 0));
    }

    #[test]
    fn names_are_listed_by_server_and_bounded() {
        assert_eq!(note(registry(&[("a", Defer::Never, 3)], false).deferred()), "");
        let text = note(registry(&[("b", Defer::Always, 1), ("a", Defer::Always, 2)], false).deferred());
        assert!(text.ends_with("calls one.\na__fake_0, a__fake_1\nb__fake_0\n"), "{text}");

        let text = note(registry(&[("a", Defer::Always, 1900), ("b", Defer::Always, 100)], false).deferred());
        assert!(text.len() < NAMES_BYTES_MAX + 512, "{}", text.len());
        let listed = text.matches("__fake_").count();
        assert_eq!(text.matches("b__fake_").count(), 100);
        assert!(
            text.ends_with(&format!(
                "and {} more, which are not listed; `find_tools` searches them as well\n",
                2000 - listed
            )),
            "{text}"
        );
    }
}
