//! The commands about what attini offers: tools, and the models of services.

use clap::{Args, Subcommand};

/// Offer the built-in tools to other agents
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini mcp serve
  attini -C ~/project mcp serve")]
pub struct McpArguments {
    #[command(subcommand)]
    pub command: McpCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub enum McpCommand {
    /// Serve any MCP client over stdin and stdout
    ///
    /// Every call passes the same gate as with attini tools call, without a session. What would need consent is refused,
    /// with the rule that would allow it; a rule that is added counts for the next call. Ends when stdin does, and ends
    /// what still runs then.
    Serve,
}

/// List the tools as the model would see them
///
/// With their source, whether they ask, run beside others, take several operations, and whether their schemas are left
/// out of the requests until the model asks for them (deferred).
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini tools
  attini tools --schema read
  attini tools --refresh
  attini tools call read '{\"path\": \"README.md\"}'")]
pub struct ToolsArguments {
    /// Print one tool's schema
    #[arg(long, value_name = "NAME")]
    pub schema: Option<String>,

    /// Ask all MCP servers for their tools, also where those are known
    ///
    /// The list of a server is kept in .attini/cache until its config changes or the server says that the list did.
    #[arg(long)]
    pub refresh: bool,

    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum ToolsCommand {
    /// Run one call, without a model or a session
    ///
    /// It passes the same gate as a model's call. What would need consent is refused, with the rule that would allow
    /// it.
    Call {
        /// The tool
        #[arg(value_name = "NAME")]
        name: String,
        /// Its arguments, a JSON object
        #[arg(value_name = "JSON")]
        arguments: String,
    },
}

/// List the models that a provider offers
///
/// As the provider's service tells them. Without PROVIDER: the one that the next turn would use.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  attini models
  attini models ollama
  attini --output json models openrouter | jq -r .models[].model")]
pub struct ModelsArguments {
    /// A built-in or configured provider
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,
}
