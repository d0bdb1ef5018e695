//! The tools of an invocation, what config makes of each, and which of them the model is offered.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::call::fanned;
use crate::call::validation::Schema;
use crate::config::{Config, Run};
use crate::provider::AdvertisedTool;
use crate::session::record::FanOut;
use crate::tool::command::Command;
use crate::tool::fetch::Fetch;
use crate::tool::list::List;
use crate::tool::patch::Patch;
use crate::tool::read::Read;
use crate::tool::search::Search;
use crate::tool::{Effect, Tool};

/// How many near names an error lists.
const NEAR_NAMES_MAX: usize = 3;
/// From this likeness on (0 to 1) a name counts as near.
const NEAR_LIKENESS: f64 = 0.6;

/// Every tool that exists, in the order advertised.
pub struct Registry {
    tools: Vec<RegisteredTool>,
}

/// A tool and what config says of it.
pub struct RegisteredTool {
    pub tool: Arc<dyn Tool>,
    /// `[tools.NAME] run`.
    pub run: Option<Run>,
    /// May run beside its neighbours.
    pub concurrent: bool,
    /// Why the model is not offered it.
    pub withheld: Option<String>,
    /// How its calls carry several operations, and the schema of the envelope around them.
    pub fan_out: Option<(FanOut, Value)>,
    schema: OnceLock<Result<Schema, String>>,
}

impl RegisteredTool {
    pub fn name(&self) -> &str {
        self.tool.name()
    }

    /// What the model reads about it.
    pub fn description(&self) -> String {
        match &self.fan_out {
            Some(_) => fanned::description(self.tool.description()),
            None => self.tool.description().to_owned(),
        }
    }

    /// The schema that the model sees.
    pub fn advertised_parameters(&self) -> &Value {
        self.fan_out.as_ref().map_or_else(|| self.tool.advertised_parameters(), |(_, envelope)| envelope)
    }

    /// The compiled schema; compiled when the tool is first called.
    pub fn schema(&self) -> Result<&Schema, String> {
        let compiled = self.schema.get_or_init(|| Schema::compile(self.tool.parameters()));
        compiled.as_ref().map_err(Clone::clone)
    }
}

impl Registry {
    /// `read_only` offers tools without side effects only; `fan_out` names the tools whose calls carry several
    /// operations. The second half are warnings.
    pub fn new(
        tools: Vec<Arc<dyn Tool>>,
        config: &Config,
        read_only: bool,
        fan_out: &BTreeMap<String, FanOut>,
    ) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let tools = tools.into_iter().map(|tool| {
            let configured = config.tools.get(tool.name());
            let run = configured.and_then(|configured| configured.run);
            let reads = tool.effect() == Effect::Read;
            let withheld = if run == Some(Run::Deny) {
                Some(format!("[tools.{}] run = \"deny\" in config.toml", tool.name()))
            } else if read_only && !reads {
                Some("--read-only".to_owned())
            } else {
                None
            };
            let concurrent = configured.and_then(|configured| configured.concurrent).unwrap_or(reads);
            let fan_out = fan_out.get(tool.name()).and_then(|settings| {
                match fanned::envelope(tool.parameters(), tool.advertised_parameters()) {
                    Ok(envelope) => Some((*settings, envelope)),
                    Err(why) => {
                        warnings.push(format!("{} cannot carry several operations: {why}", tool.name()));
                        None
                    }
                }
            });
            RegisteredTool { tool, run, concurrent, withheld, fan_out, schema: OnceLock::new() }
        });
        let tools = tools.collect();
        (Self { tools }, warnings)
    }

    pub fn find(&self, name: &str) -> Option<&RegisteredTool> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    pub fn tools(&self) -> &[RegisteredTool] {
        &self.tools
    }

    pub fn offered(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.tools.iter().filter(|tool| tool.withheld.is_none())
    }

    /// What the model is told of; the same all through an invocation.
    pub fn advertised(&self) -> Vec<AdvertisedTool> {
        self.offered()
            .map(|registered| AdvertisedTool {
                name: registered.name().to_owned(),
                description: registered.description(),
                parameters: registered.advertised_parameters().clone(),
            })
            .collect()
    }
}

/// The known names that are most like `name`, best first.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Vec<&'k str> {
    let wanted = name.to_lowercase();
    let mut near: Vec<(f64, &str)> = known
        .map(|known| (strsim::jaro_winkler(&wanted, &known.to_lowercase()), known))
        .filter(|(likeness, _)| *likeness >= NEAR_LIKENESS)
        .collect();
    near.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(right.1)));
    near.into_iter().take(NEAR_NAMES_MAX).map(|(_, known)| known).collect()
}

/// Every tool that is built in, in the order advertised.
pub fn builtin_tools() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(List::new()),
        Arc::new(Read::new()),
        Arc::new(Search::new()),
        Arc::new(Fetch::new()),
        Arc::new(Patch::new()),
        Arc::new(Command::new()),
    ]
}
