//! `config.toml`: its keys, its layers, and whether a workspace's own is trusted.
//!
//! What the command line and the environment set beyond it is put on top where a turn starts.

pub mod candidates;
pub mod environment;
pub mod keys;
pub mod layers;
pub mod nearest;
pub mod own_file;
pub mod trust;

pub use environment::Environment;
pub use layers::{Loaded, load};
pub use trust::Trust;

use std::collections::BTreeMap;

use crate::session::record::{FanOut, OPERATIONS_MAX, OnError};

/// The effective configuration: user, then workspace, keys that neither sets at their defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    pub model: Option<String>,
    /// Files added to the system prompt, relative to the workspace.
    pub instructions: Vec<String>,
    pub providers: BTreeMap<String, ProviderConfig>,
    pub limits: LimitsConfig,
    pub dispatch: DispatchConfig,
    /// Names of variables that children get although attini would withhold them.
    pub environment_pass: Vec<String>,
    pub tools: BTreeMap<String, ToolConfig>,
    /// MCP servers by name.
    pub mcp: BTreeMap<String, McpConfig>,
}

/// Adds to the built-in providers, or changes one. A key that is `None` keeps what the built-in one has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderConfig {
    pub api: Option<Api>,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub context_tokens: Option<u64>,
    pub user_after_tool: Option<bool>,
    pub images: Option<bool>,
    /// How long the service may send nothing at all.
    pub idle_timeout_s: Option<u64>,
}

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    OpenAi,
    Anthropic,
    Scripted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    pub rounds: u64,
    pub tool_calls: u64,
    pub calls_per_reply: u64,
    /// 0: none.
    pub time_s: u64,
    pub command_timeout_s: u64,
    pub result_bytes: u64,
    pub round_result_bytes: u64,
    pub output_bytes: u64,
    pub compact_at_tokens: u64,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            rounds: 50,
            tool_calls: 1000,
            calls_per_reply: 64,
            time_s: 0,
            command_timeout_s: 180,
            result_bytes: 32 * 1024,
            round_result_bytes: 128 * 1024,
            output_bytes: 1024 * 1024 * 1024,
            compact_at_tokens: 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DispatchConfig {
    /// 0: half the cores, at least 3.
    pub concurrency: u64,
    pub trailing_reads: crate::session::record::TrailingReads,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolConfig {
    pub run: Option<Run>,
    pub concurrent: Option<bool>,
    pub fan_out: FanOutConfig,
    /// The tool is one of the project's own.
    pub own: Option<OwnToolConfig>,
}

/// A tool that is a program of the project's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnToolConfig {
    /// The program and its arguments, with placeholders; not empty.
    pub command: Vec<String>,
    pub description: Option<String>,
    /// The JSON Schema of the tool's arguments; `None`: it takes none.
    pub parameters: Option<serde_json::Value>,
}

/// `fan_out = true`, or a table; a key that is `None` is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FanOutConfig {
    pub enabled: Option<bool>,
    /// 0: no limit of its own.
    pub concurrency: Option<u64>,
    pub on_error: Option<OnError>,
    pub max_operations: Option<u64>,
}

impl Config {
    /// The tools whose calls carry several operations, and how.
    pub fn fan_out(&self) -> BTreeMap<String, FanOut> {
        let enabled = self.tools.iter().filter(|(_, tool)| tool.fan_out.enabled == Some(true));
        enabled
            .map(|(name, tool)| {
                let fan_out = FanOut {
                    concurrency: tool.fan_out.concurrency.filter(|number| *number > 0),
                    on_error: tool.fan_out.on_error.unwrap_or_default(),
                    max_operations: tool.fan_out.max_operations.unwrap_or(OPERATIONS_MAX),
                };
                (name.clone(), fan_out)
            })
            .collect()
    }
}

/// An MCP server: a program that is spoken to over its stdin and stdout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpConfig {
    /// The program and its arguments; not empty.
    pub command: Vec<String>,
    /// What it gets beside the environment that commands get.
    pub env: BTreeMap<String, String>,
    /// For its start, until its tools are listed.
    pub start_timeout_s: u64,
    /// For one call.
    pub timeout_s: u64,
    pub defer: Defer,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self { command: Vec::new(), env: BTreeMap::new(), start_timeout_s: 20, timeout_s: 60, defer: Defer::default() }
    }
}

/// Whether the schemas of a server's tools are left out of the requests until the model asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Defer {
    /// Where there are many MCP tools.
    #[default]
    Auto,
    Always,
    Never,
}

/// What happens to a tool's calls that no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    Allow,
    Ask,
    /// The tool is not offered.
    Deny,
}
