//! The tools of MCP servers: programs that are spoken to over their stdin and stdout.
//!
//! The only place that knows tokio and the SDK. A server is started when one of its tools is called, or when its list of
//! tools is not known yet; lists are kept between invocations. Nothing that a server says decides what is allowed.

mod answer;
mod asking;
mod client;
mod connection;
mod host;
mod list;
mod name;
mod notes;
mod process;
mod schema;
mod serve;
mod servers;
mod tool;
mod transport;

pub use answer::CallEnd;
pub use notes::Warning;
pub use schema::wire_schema;
pub use serve::{Offered, Served, serve};
pub use servers::Servers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use self::connection::Surrounding;
use self::host::{Host, Slot};
use self::list::{CACHE, Lists, ToolList};
use self::notes::Warnings;
use self::tool::McpTool;
use crate::config::Config;
use crate::interrupt::Interrupt;
use crate::session::folder::StateFolder;
use crate::tool::Tool;
use crate::workspace::{Workspace, environment};

/// Names of variables that hold secrets, so that their values are masked wherever they turn up.
const SECRET_WORDS: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];

/// What servers are started in.
pub struct Ground<'a> {
    pub workspace: &'a Workspace,
    pub state: &'a StateFolder<'a>,
    /// Environment variables that no child gets.
    pub withheld_variables: &'a [String],
    pub interrupt: &'a Interrupt,
    /// Asks every server for its list, also where it is known.
    pub refresh: bool,
}

/// The tools of the configured servers, and the servers themselves.
pub struct Offer {
    pub tools: Vec<Arc<dyn Tool>>,
    /// They also have what is wrong with servers and their tools; those are left out.
    pub servers: Servers,
}

/// Gathers the tools of the configured servers. Servers whose list is not known are started, all at once. `taken`: names
/// that no server's tool may have.
pub fn offer(config: &Config, taken: &[&str], ground: &Ground<'_>) -> Offer {
    if config.mcp.is_empty() {
        return Offer { tools: Vec::new(), servers: Servers::none() };
    }
    mask_secrets(config);
    let warnings = Arc::new(Warnings::default());
    let folder = match ground.workspace.root.folder(Path::new(".")) {
        Ok(folder) => folder,
        Err(error) => {
            let warning = format!("the MCP servers are left out: the workspace cannot be opened: {error}");
            return Offer { tools: Vec::new(), servers: Servers::none_because(Some(warning)) };
        }
    };
    let lists = open_lists(ground, &warnings).map(Arc::new);
    let mut known: BTreeMap<String, ToolList> = BTreeMap::new();
    if let (Some(lists), false) = (&lists, ground.refresh) {
        known.extend(config.mcp.iter().filter_map(|(name, server)| Some((name.clone(), lists.load(server)?))));
    }
    let environment = environment::for_commands(ground.withheld_variables);
    let surrounding = Surrounding { folder, environment, warnings: Arc::clone(&warnings) };
    let slots = config.mcp.iter().map(|(name, server)| (name.clone(), Slot::new(server.clone()))).collect();
    let servers = Servers::new(Host { surrounding, lists, slots }, Arc::clone(&warnings), ground.interrupt.clone());
    let unknown: Vec<&str> = config.mcp.keys().map(String::as_str).filter(|name| !known.contains_key(*name)).collect();
    if !unknown.is_empty() {
        for (name, listed) in servers.desk().list(&unknown) {
            match listed {
                Ok(list) => drop(known.insert(name, list)),
                Err(why) => warnings.push(format!("the tools of the MCP server {name} are left out: it {why}")),
            }
        }
    }
    let tools = tools_of(config, known, taken, &servers, &warnings);
    warn_of_unknown_names(config, &tools, &warnings);
    Offer { tools, servers }
}

/// Whether config's `[tools.NAME]` may be about a tool of a configured server. What a server offers changes without the
/// config, so that such a name is never an error.
pub fn may_be_tool(config: &Config, name: &str) -> bool {
    config.mcp.keys().any(|server| name.starts_with(&name::prefix(server)))
}

/// The folder of the lists; `None`, with a warning, where lists cannot be kept or cannot be trusted.
fn open_lists(ground: &Ground<'_>, warnings: &Warnings) -> Option<Lists> {
    let folder = match ground.state.open_or_create_cache(CACHE) {
        Ok(folder) => folder,
        Err(error) => {
            warnings.push(format!("the tools of MCP servers cannot be kept in the cache: {error}"));
            return None;
        }
    };
    let lists = Lists::new(folder);
    if lists.are_foreseeable() && ground.state.tracks_cache(CACHE) {
        warnings.push("git tracks files in the cache of MCP servers' tools; the cache is not used".to_owned());
        return None;
    }
    Some(lists)
}

fn mask_secrets(config: &Config) {
    for server in config.mcp.values() {
        for (variable, value) in &server.env {
            let upper = variable.to_ascii_uppercase();
            if SECRET_WORDS.iter().any(|word| upper.contains(word)) {
                crate::mask::register(variable, value);
            }
        }
    }
}

fn tools_of(
    config: &Config,
    known: BTreeMap<String, ToolList>,
    taken: &[&str],
    servers: &Servers,
    warnings: &Warnings,
) -> Vec<Arc<dyn Tool>> {
    let listed = known
        .iter()
        .flat_map(|(server, list)| list.tools.iter().map(move |tool| (server.as_str(), tool.name.as_str())));
    let collisions = name::collisions(listed);
    for (name, tools) in &collisions {
        let tools: BTreeSet<&String> = tools.iter().collect();
        let tools = tools.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        warnings.push(format!("several tools of MCP servers would be called {name}; none of them is offered: {tools}"));
    }
    let mut offered: Vec<Arc<dyn Tool>> = Vec::new();
    for (server, list) in known {
        let timeout_s = config.mcp.get(&server).map_or(0, |config| config.timeout_s);
        for tool in list.tools {
            let name = name::offered_name(&server, &tool.name);
            if collisions.contains_key(&name) {
                continue;
            }
            if taken.contains(&name.as_str()) {
                warnings.push(format!("the tool {name} of the MCP server {server} is not offered: the name is taken"));
                continue;
            }
            if let Some(why) = &tool.unusable {
                warnings.push(format!("the tool {name} of the MCP server {server} is not offered: {why}"));
                continue;
            }
            offered.push(Arc::new(McpTool::new(name, &server, tool, timeout_s, servers.desk())));
        }
    }
    offered
}

fn warn_of_unknown_names(config: &Config, tools: &[Arc<dyn Tool>], warnings: &Warnings) {
    for name in config.tools.keys() {
        if may_be_tool(config, name) && tools.iter().all(|tool| tool.name() != name) {
            warnings.push(format!("[tools.{name}]: no MCP server offers a tool of that name"));
        }
    }
}
