//! The tools of an invocation, what config makes of each, and which of them the model is offered.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::call::fanned;
use crate::call::validation::Schema;
use crate::config::{Config, Run};
use crate::provider::AdvertisedTool;
use crate::session::record::FanOut;
use crate::tool::ask_user::AskUser;
use crate::tool::command::Command;
use crate::tool::deferral::{self, RUN_TOOL};
use crate::tool::fetch::Fetch;
use crate::tool::find_tools::{self, Catalogue, FindTools};
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
    /// `run_tool`, where a tool is deferred. It is no tool of its own: it is taken off a call before the tool is looked up.
    run_tool: Option<AdvertisedTool>,
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
    /// The model knows its name alone, until it asks for more.
    pub deferred: bool,
    /// How its calls carry several operations, and the schema of the envelope around them.
    pub fan_out: Option<(FanOut, Value)>,
    schema: OnceLock<Result<Schema, String>>,
}

impl RegisteredTool {
    fn of(
        tool: Arc<dyn Tool>,
        config: &Config,
        read_only: bool,
        fan_out: &BTreeMap<String, FanOut>,
        warnings: &mut Vec<String>,
    ) -> Self {
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
        let concurrent =
            configured.and_then(|configured| configured.concurrent).unwrap_or_else(|| tool.is_concurrent());
        let fan_out = fan_out.get(tool.name()).and_then(|settings| {
            match fanned::envelope(tool.parameters(), tool.advertised_parameters()) {
                Ok(envelope) => Some((*settings, envelope)),
                Err(why) => {
                    warnings.push(format!("{} cannot carry several operations: {why}", tool.name()));
                    None
                }
            }
        });
        Self { tool, run, concurrent, withheld, deferred: false, fan_out, schema: OnceLock::new() }
    }

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
        let mut registered = |tool| RegisteredTool::of(tool, config, read_only, fan_out, &mut warnings);
        let mut tools: Vec<RegisteredTool> = tools.into_iter().map(&mut registered).collect();
        deferral::mark(&mut tools, config);
        let mut run_tool = None;
        if tools.iter().any(|tool| tool.deferred) {
            run_tool = Some(deferral::run_tool());
            let find_tools = registered(Arc::new(FindTools::new(Catalogue::of(&tools))));
            tools.insert(first_from_outside(&tools), find_tools);
        }
        (Self { tools, run_tool }, warnings)
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

    pub fn deferred(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.tools.iter().filter(|tool| tool.deferred)
    }

    /// `run_tool` as the model is told of it, where there is something to run by it.
    pub fn run_tool(&self) -> Option<&AdvertisedTool> {
        self.run_tool.as_ref()
    }

    /// What the model is told of; the same all through an invocation.
    pub fn advertised(&self) -> Vec<AdvertisedTool> {
        let advertised = |registered: &RegisteredTool| AdvertisedTool {
            name: registered.name().to_owned(),
            description: registered.description(),
            parameters: registered.advertised_parameters().clone(),
        };
        let (builtin, outside) = self.tools.split_at(first_from_outside(&self.tools));
        let given = |tool: &&RegisteredTool| tool.withheld.is_none() && !tool.deferred;
        let builtin = builtin.iter().filter(given).map(advertised);
        builtin.chain(self.run_tool.clone()).chain(outside.iter().filter(given).map(advertised)).collect()
    }

    /// The names of what [`Self::advertised`] holds.
    pub fn advertised_names(&self) -> Vec<&str> {
        let offered = self.offered().filter(|tool| !tool.deferred).map(RegisteredTool::name);
        offered.chain(self.run_tool.as_ref().map(|tool| tool.name.as_str())).collect()
    }
}

/// Where the first tool stands that is not built in.
fn first_from_outside(tools: &[RegisteredTool]) -> usize {
    tools.iter().position(|tool| tool.tool.source() != "builtin").unwrap_or(tools.len())
}

/// The known names that are most like `name`, best first.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Vec<&'k str> {
    let wanted = name.to_lowercase();
    let mut near: Vec<(f64, &str)> = known
        .map(|known| (likeness(&wanted, &known.to_lowercase()), known))
        .filter(|(likeness, _)| *likeness >= NEAR_LIKENESS)
        .collect();
    near.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(right.1)));
    near.into_iter().take(NEAR_NAMES_MAX).map(|(_, known)| known).collect()
}

/// How like two names are, from 0 to 1. A server's name before the tool's own may be missing or another.
fn likeness(wanted: &str, known: &str) -> f64 {
    let own = |name: &str| name.split_once("__").map_or(name, |(_, own)| own).to_owned();
    strsim::jaro_winkler(wanted, known).max(strsim::jaro_winkler(&own(wanted), &own(known)))
}

/// Names of built-in tools that are offered only sometimes.
const OCCASIONAL_NAMES: [&str; 6] = ["ask_user", find_tools::NAME, RUN_TOOL, "task_output", "task_stop", "delegate"];

/// Whether no other tool may have that name.
pub fn is_builtin_name(name: &str) -> bool {
    OCCASIONAL_NAMES.contains(&name) || builtin_tools().iter().any(|tool| tool.name() == name)
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
        Arc::new(AskUser::new()),
    ]
}
