//! Tools of the project's own: programs that the config names, with the model's arguments in their words and on their
//! stdin.
//!
//! How a program runs is [`super::command`]'s; here is only which one. An argument becomes part of one word and is never
//! split or read again, but it may begin with `-`: where a program would take that for an option, the command in the
//! config has to say `--` before it.

mod template;

pub use template::Template;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::config::{Config, OwnToolConfig};
use crate::mcp::wire_schema;
use crate::permission::Access;
use crate::tool::command::{ensure_no_nul, execute};
use crate::tool::{Assessment, Effect, Outcome, Overlay, Preview, Refusal, Surroundings, Tool, Work};
use crate::workspace::child::Program;
use crate::workspace::{World, environment};

pub struct OwnTool {
    name: String,
    description: String,
    words: Vec<Template>,
    parameters: Value,
    advertised: Value,
}

/// The tools that a config adds.
pub fn tools(config: &Config) -> Vec<Arc<dyn Tool>> {
    let own = config.tools.iter().filter_map(|(name, tool)| Some((name, tool.own.as_ref()?)));
    own.map(|(name, own)| Arc::new(OwnTool::new(name, own)) as Arc<dyn Tool>).collect()
}

/// The schema of a tool's arguments: as the config gives it, unknown arguments refused unless it speaks of them.
pub fn parameters_of(own: &OwnToolConfig) -> Value {
    let mut schema = own.parameters.clone().unwrap_or_else(|| json!({}));
    if let Value::Object(schema) = &mut schema {
        schema.entry("type").or_insert_with(|| json!("object"));
        schema.entry("properties").or_insert_with(|| json!({}));
        schema.entry("additionalProperties").or_insert_with(|| json!(false));
    }
    schema
}

impl OwnTool {
    fn new(name: &str, own: &OwnToolConfig) -> Self {
        let parameters = parameters_of(own);
        let default = || format!("Runs `{}` in the workspace.", crate::report::shell_quote(&own.command));
        Self {
            name: name.to_owned(),
            description: own.description.clone().unwrap_or_else(default),
            words: own.command.iter().map(|word| Template::new(word)).collect(),
            advertised: wire_schema(&parameters),
            parameters,
        }
    }

    /// The program and its arguments, and the whole arguments as JSON for its stdin.
    fn prepare(&self, arguments: &Value) -> Result<(Vec<String>, String), Refusal> {
        let nothing = Map::new();
        let object = arguments.as_object().unwrap_or(&nothing);
        let argv: Vec<String> = self.words.iter().filter_map(|word| word.fill(object)).collect();
        ensure_no_nul(&argv)?;
        Ok((argv, arguments.to_string()))
    }
}

impl Tool for OwnTool {
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

    fn source(&self) -> &'static str {
        "config"
    }

    fn effect(&self) -> Effect {
        Effect::SideEffect
    }

    fn look(&self, _arguments: &Value, _surroundings: &Surroundings<'_>, _world: &mut World) {}

    fn assess(&self, arguments: &Value, _world: &World, _overlay: &Overlay) -> Result<Assessment, Refusal> {
        let (argv, stdin) = self.prepare(arguments)?;
        let summary = shlex::try_join(argv.iter().map(String::as_str))
            .map_err(|error| Refusal::new("invalid_arguments", error.to_string()))?;
        let preview = Preview::Command { argv, cwd: ".".to_owned(), stdin: Some(stdin), background: false };
        Ok(Assessment {
            summary,
            accesses: vec![Access::Tool],
            preview,
            files: Vec::new(),
            after: Overlay::new(),
            moot: None,
        })
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        let (argv, stdin) = match self.prepare(work.arguments) {
            Ok(prepared) => prepared,
            Err(refusal) => return refusal.into(),
        };
        let folder = match work.surroundings.workspace.root.folder(Path::new(".")) {
            Ok(folder) => folder,
            Err(error) => return Outcome::error("io_error", format!("the workspace cannot be opened: {error}")),
        };
        let program = Program {
            argv: &argv,
            folder: &folder,
            stdin: Some(stdin.as_bytes()),
            environment: &environment::for_commands(work.surroundings.withheld_variables),
            timeout: Some(work.surroundings.limits.command_timeout),
        };
        execute(&program, work)
    }
}
