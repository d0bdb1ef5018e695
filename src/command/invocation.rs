//! What an invocation knows before it does anything: the workspace, the environment, trust, config, where sessions are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::{GlobalOptions, Parsed, RuleOption};
use crate::config::Config;
use crate::config::environment::Environment;
use crate::config::layers::{self, Loaded};
use crate::config::trust::{self, Trust};
use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::{Cause, Interrupt};
use crate::mcp::{self, Servers};
use crate::permission::{self, Rule, Rules, RulesFile};
use crate::provider;
use crate::report::{Mode, ReportOptions, Reporter, command_prefix, program_word};
use crate::session::folder::{SessionFolder, StateFolder, ensure_name};
use crate::tool::Tool;
use crate::workspace::Workspace;
use crate::workspace::own_places::OwnPlaces;

/// The session that is used where nothing names another.
pub const DEFAULT_SESSION: &str = "main";

/// Names a folder to keep sessions and the cache in.
const STATE_VARIABLE: &str = "ATTINI_STATE_DIR";

/// What attini keeps in that folder.
const OWN_FOLDERS: [&str; 2] = ["sessions", "cache"];

pub struct Invocation {
    pub environment: Environment,
    pub workspace: Workspace,
    pub session: String,
    pub interrupt: Interrupt,
    /// `--allow` and `--deny`, in the order typed.
    pub rule_options: Vec<Rule>,
    /// How attini has to be called to meet this session again.
    pub command_prefix: String,
    pub reporter: Reporter,
}

impl Invocation {
    /// Finds workspace and session. Nothing is read of either yet.
    pub fn new(parsed: &Parsed, environment: Environment, interrupt: Interrupt) -> anyhow::Result<Self> {
        // Before anything is told or kept. Those that a config adds follow once it may count.
        provider::register_keys(&Config::default(), &environment);
        let mut workspace = find_workspace(&parsed.global, &environment)?;
        workspace.own_places = own_places(&environment, workspace.root.path());
        let session = match (&parsed.global.session, environment.text("ATTINI_SESSION")?) {
            (Some(name), _) => name.clone(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => DEFAULT_SESSION.to_owned(),
        };
        ensure_name(&session)?;
        let rule_options: Result<Vec<Rule>, Failure> = parsed.rules.iter().map(parse_rule).collect();
        let rule_options = rule_options?;
        let mut options = report_options(parsed, &environment);
        options.session = Some(session.clone());
        let command_prefix = options.command_prefix.clone();
        let reporter = Reporter::new(options, &interrupt);
        Ok(Self { environment, workspace, session, interrupt, rule_options, command_prefix, reporter })
    }

    /// Where the sessions are kept.
    pub fn state(&self) -> StateFolder<'_> {
        StateFolder::new(&self.workspace, self.environment.get(STATE_VARIABLE).map(PathBuf::from))
    }

    /// The session's folder, if there is one.
    pub fn folder(&self) -> anyhow::Result<Option<SessionFolder>> {
        self.state().open(&self.session)
    }

    /// All layers of rules; what is wrong with them is told as warnings. `recorded`: the turn's own `--deny` rules.
    pub fn rules(
        &self,
        session: Option<&SessionFolder>,
        turn: Option<u64>,
        recorded: &[Rule],
        trust: &Trust,
    ) -> anyhow::Result<Rules> {
        let options: Vec<Rule> = recorded.iter().chain(&self.rule_options).cloned().collect();
        let user_config_folder = self.environment.user_config_folder();
        let (rules, warnings) = permission::load(&permission::Sources {
            workspace: &self.workspace,
            session,
            turn,
            options: &options,
            user_config_folder: user_config_folder.as_deref(),
            trust,
        })?;
        for warning in warnings {
            self.reporter.warning(&warning);
        }
        Ok(rules)
    }

    /// Adds the tools of the configured MCP servers; what is wrong with them is told as warnings. `refresh`: all servers
    /// are asked for their tools, also where those are known.
    pub fn add_mcp_tools(
        &self,
        tools: &mut Vec<Arc<dyn Tool>>,
        config: &Config,
        withheld_variables: &[String],
        refresh: bool,
    ) -> anyhow::Result<Servers> {
        let taken: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        let offer = mcp::offer(
            config,
            &taken,
            &mcp::Ground {
                workspace: &self.workspace,
                state: &self.state(),
                withheld_variables,
                interrupt: &self.interrupt,
                refresh,
            },
        );
        self.reporter.warn_of_servers(&offer.servers, None);
        if let Some(Cause::Signal(signal)) = self.interrupt.cause() {
            let message = "interrupted while MCP servers were asked for their tools";
            return Err(Failure::new(Status::Interrupted(signal), message).into());
        }
        tools.extend(offer.tools);
        Ok(offer.servers)
    }

    pub fn trust(&self) -> anyhow::Result<Trust> {
        Trust::load(&self.environment)
    }

    /// The config, refused where it is not trusted.
    pub fn trusted_config(&self, trust: &Trust) -> anyhow::Result<Loaded> {
        let loaded = layers::load(&self.workspace, &self.environment, trust)?;
        loaded.ensure_config_trusted()?;
        provider::register_keys(&loaded.config, &self.environment);
        Ok(loaded)
    }
}

/// The config, the rules and the sessions that lie in no `.attini` folder.
fn own_places(environment: &Environment, workspace: &Path) -> OwnPlaces {
    let config_folder = environment.user_config_folder();
    let state_folder = environment.user_state_folder();
    let mut places: Vec<PathBuf> = Vec::new();
    // The user's own counts again once the variable is gone.
    places.extend(environment.get(layers::CONFIG_VARIABLE).map(PathBuf::from));
    places.extend(config_folder.iter().map(|folder| folder.join(layers::USER_CONFIG)));
    places.extend(config_folder.iter().map(|folder| RulesFile::user(folder).path()));
    places.extend(state_folder.map(|folder| folder.join(trust::FILE_NAME)));
    if let Some(folder) = environment.get(STATE_VARIABLE).map(absolute) {
        places.extend(OWN_FOLDERS.map(|name| folder.join(name)));
        // What lies beside these is attini's where the folder is a part of the workspace, and else not known.
        let folder = folder.canonicalize().unwrap_or(folder);
        places.extend((folder != workspace && folder.starts_with(workspace)).then_some(folder));
    }
    OwnPlaces::new(places.into_iter().map(absolute))
}

fn absolute(path: impl AsRef<Path>) -> PathBuf {
    // As the system takes a relative path when it opens it.
    std::env::current_dir().map_or_else(|_| path.as_ref().to_owned(), |current| current.join(path.as_ref()))
}

fn parse_rule(option: &RuleOption) -> Result<Rule, Failure> {
    Rule::parse_option(&option.text, option.allow).map_err(|what| {
        let name = if option.allow { "--allow" } else { "--deny" };
        Failure::usage(format!("{name} {:?}: {what}", option.text))
    })
}

/// The options that were typed to name workspace and session.
fn prefix(parsed: &Parsed, environment: &Environment) -> String {
    let program = program_word(std::env::args_os().next().as_deref(), environment.get("PATH"));
    let workspace = parsed.global.workspace.as_ref().map(|path| path.display().to_string());
    command_prefix(&program, workspace.as_deref(), parsed.global.session.as_deref())
}

/// How to report for a command line that parsed.
pub fn report_options(parsed: &Parsed, environment: &Environment) -> ReportOptions {
    let options = ReportOptions {
        mode: Mode::from(parsed.output),
        volume: super::volume(&parsed.global),
        command_prefix: prefix(parsed, environment),
        ..ReportOptions::default()
    };
    options.with_streams(super::colour_asked_for(parsed.global.color))
}

fn find_workspace(global: &GlobalOptions, environment: &Environment) -> anyhow::Result<Workspace> {
    let named = global.workspace.clone().or_else(|| environment.get("ATTINI_WORKSPACE").map(PathBuf::from));
    let current = std::env::current_dir()
        .map_err(|error| Failure::usage(format!("the current folder cannot be found: {error}")))?;
    Workspace::discover(named.as_deref(), &current)
}
