//! The two config files and how they are laid over each other: the user's, then the workspace's.
//!
//! A workspace's file that is not trusted is not read for its keys at all, so that a command which forgets to refuse it
//! is not led by it either.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Config;
use super::environment::Environment;
use super::keys::{self, CONFIG_BYTES_MAX};
use super::own_file::{read_beneath, read_user_file};
use super::trust::Trust;
use crate::failure::Failure;
use crate::tool::find_tools;
use crate::workspace::Workspace;

/// Where a workspace's config lies, relative to the workspace.
pub const WORKSPACE_CONFIG: &str = ".attini/config.toml";

/// The user's config, in the folder of the user's config.
pub const USER_CONFIG: &str = "config.toml";

/// Names another user config file; it must exist.
pub const CONFIG_VARIABLE: &str = "ATTINI_CONFIG";

#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub config: Config,
    /// The files that `config` was made of, weakest first.
    pub sources: Vec<PathBuf>,
    /// The workspace's root, for the command to type.
    workspace: PathBuf,
    is_workspace_trusted: bool,
}

/// Reads both files. A wrong key or value is an error with file and line (exit code 2).
pub fn load(workspace: &Workspace, environment: &Environment, trust: &Trust) -> Result<Loaded> {
    let mut config = Config::default();
    let mut sources = Vec::new();
    if let Some((path, bytes)) = read_user_config(environment)? {
        keys::apply(&mut config, &bytes, &path.display().to_string())?;
        sources.push(path);
    }
    let path = workspace.root.path().join(WORKSPACE_CONFIG);
    let mut is_workspace_trusted = true;
    if let Some(bytes) = read_workspace_config(workspace)? {
        is_workspace_trusted = trust.is_trusted(&path, &bytes);
        if is_workspace_trusted {
            keys::apply(&mut config, &bytes, WORKSPACE_CONFIG)?;
            sources.push(path);
        }
    }
    Ok(Loaded { config, sources, workspace: workspace.root.path().to_owned(), is_workspace_trusted })
}

/// The workspace's config as it is, trusted or not; `None`: there is none.
pub fn read_workspace_config(workspace: &Workspace) -> Result<Option<Vec<u8>>> {
    read_beneath(&workspace.root, Path::new(WORKSPACE_CONFIG), CONFIG_BYTES_MAX)
}

fn read_user_config(environment: &Environment) -> Result<Option<(PathBuf, Vec<u8>)>> {
    if let Some(path) = environment.get(CONFIG_VARIABLE).map(PathBuf::from) {
        let Some(bytes) = read_user_file(&path, CONFIG_BYTES_MAX)? else {
            let message = format!("{CONFIG_VARIABLE} names {}, which does not exist", path.display());
            return Err(Failure::usage(message).into());
        };
        return Ok(Some((path, bytes)));
    }
    let Some(path) = environment.user_config_folder().map(|folder| folder.join(USER_CONFIG)) else { return Ok(None) };
    Ok(read_user_file(&path, CONFIG_BYTES_MAX)?.map(|bytes| (path, bytes)))
}

impl Loaded {
    /// Whether the workspace's config, if there is one, counts.
    pub fn is_workspace_trusted(&self) -> bool {
        self.is_workspace_trusted
    }

    /// Refuses an untrusted config (exit code 2). For every command that talks to a model or runs a tool.
    pub fn ensure_config_trusted(&self) -> Result<()> {
        if self.is_workspace_trusted {
            return Ok(());
        }
        let path = self.workspace.join(WORKSPACE_CONFIG);
        let message = format!("{} is not trusted: it came with the workspace, or was changed since", path.display());
        let hint = format!("look at it and trust it: {}", trust_command(&self.workspace));
        Err(Failure::usage(message).code("untrusted").hint(hint).into())
    }
}

/// The command that trusts the workspace at `root`, to be typed anywhere.
pub fn trust_command(root: &Path) -> String {
    let shown = root.display().to_string();
    let quoted = shlex::try_quote(&shown).map_or_else(|_| shown.clone(), std::borrow::Cow::into_owned);
    format!("attini trust -C {quoted}")
}

/// Refuses a config that names a tool nobody knows (exit code 2), with the nearest name.
/// What may be a tool of an MCP server is left to where those are listed; no tool of the project's own may be called so.
pub fn ensure_tools_exist(config: &Config, known: &[&str]) -> Result<()> {
    for (name, tool) in &config.tools {
        let may_be_of_server = crate::mcp::may_be_tool(config, name);
        if tool.own.is_some() && may_be_of_server {
            let message = format!("[tools.{name}]: a name that begins like this is that of an MCP server's tool");
            return Err(Failure::usage(message).hint("give the tool of your own another name").into());
        }
        let is_known = tool.own.is_some() || known.contains(&name.as_str()) || name == find_tools::NAME;
        if !is_known && !may_be_of_server {
            return Err(Failure::usage(keys::unknown_tool(name, known)).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OwnToolConfig, Run};
    use crate::exit::Status;
    use crate::workspace::root::Root;

    struct Case {
        folder: tempfile::TempDir,
        workspace: Workspace,
        variables: Vec<(String, String)>,
    }

    impl Case {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs_err::create_dir_all(folder.path().join("w/.attini")).unwrap();
            let workspace = Workspace::new(Root::open(&folder.path().join("w")).unwrap());
            let variables = vec![("HOME".to_owned(), folder.path().join("home").to_str().unwrap().to_owned())];
            Self { folder, workspace, variables }
        }

        fn file(self, path: &str, text: &str) -> Self {
            let path = self.folder.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
            self
        }

        fn variable(mut self, name: &str, value: &str) -> Self {
            self.variables.push((name.to_owned(), value.to_owned()));
            self
        }

        fn environment(&self) -> Environment {
            self.variables.iter().cloned().collect()
        }

        fn load(&self) -> Result<Loaded> {
            let environment = self.environment();
            load(&self.workspace, &environment, &Trust::load(&environment)?)
        }
    }

    #[test]
    fn without_files_all_is_at_its_default() {
        let loaded = Case::new().load().unwrap();
        assert_eq!(loaded.config, Config::default());
        assert!(loaded.is_workspace_trusted());
        loaded.ensure_config_trusted().unwrap();
    }

    #[test]
    fn the_workspace_is_laid_over_the_user_key_by_key() {
        let case = Case::new()
            .file(
                "home/.config/attini/config.toml",
                "model = \"a/b\"\ninstructions = [\"U\"]\n[limits]\nrounds = 3\ntool_calls = 4\n\
                 [tools.read]\nrun = \"ask\"\nconcurrent = false\n[providers.x]\napi = \"openai\"\n",
            )
            .file(
                "w/.attini/config.toml",
                "instructions = [\"W\"]\n[limits]\nrounds = 9\n[tools.read]\nrun = \"deny\"\n\
                 [providers.x]\nbase_url = \"http://h/v1\"\n",
            )
            .variable("ATTINI_TRUST_WORKSPACE", "1");
        let config = case.load().unwrap().config;
        assert_eq!(config.model.as_deref(), Some("a/b"));
        assert_eq!(config.instructions, ["W"]);
        assert_eq!((config.limits.rounds, config.limits.tool_calls), (9, 4));
        assert_eq!((config.tools["read"].run, config.tools["read"].concurrent), (Some(Run::Deny), Some(false)));
        assert_eq!(config.providers["x"].base_url.as_deref(), Some("http://h/v1"));
        assert!(config.providers["x"].api.is_some());
    }

    #[test]
    fn an_untrusted_config_is_refused_and_leads_nobody() {
        let case = Case::new().file("w/.attini/config.toml", "model = \"evil/model\"\n");
        let loaded = case.load().unwrap();
        assert_eq!(loaded.config, Config::default());
        let failure = Failure::of(&loaded.ensure_config_trusted().unwrap_err());
        assert_eq!(failure.status, Status::Usage);
        let root = case.workspace.root.path().display().to_string();
        assert_eq!(failure.hint, Some(format!("look at it and trust it: attini trust -C {root}")));

        let mut trust = Trust::load(&case.environment()).unwrap();
        let path = case.workspace.root.path().join(WORKSPACE_CONFIG);
        trust.record([(path.as_path(), b"model = \"evil/model\"\n".as_slice())]).unwrap();
        let loaded = case.load().unwrap();
        loaded.ensure_config_trusted().unwrap();
        assert_eq!(loaded.config.model.as_deref(), Some("evil/model"));

        let changed = case.file("w/.attini/config.toml", "model = \"evil/other\"\n");
        assert!(!changed.load().unwrap().is_workspace_trusted());
    }

    #[test]
    fn a_named_user_config_must_exist() {
        let case = Case::new().variable("ATTINI_CONFIG", "/nonexistent/config.toml");
        let failure = Failure::of(&case.load().unwrap_err());
        assert_eq!(failure.status, Status::Usage);
        assert_eq!(failure.message, "ATTINI_CONFIG names /nonexistent/config.toml, which does not exist");

        let case = Case::new().file("other.toml", "model = \"a/b\"");
        let path = case.folder.path().join("other.toml").to_str().unwrap().to_owned();
        let case =
            case.file("home/.config/attini/config.toml", "model = \"not/this\"").variable("ATTINI_CONFIG", &path);
        assert_eq!(case.load().unwrap().config.model.as_deref(), Some("a/b"));
        let case = case.variable("ATTINI_CONFIG", "");
        assert_eq!(case.load().unwrap().config.model.as_deref(), Some("not/this"));
    }

    #[test]
    fn a_linked_config_is_refused() {
        let case = Case::new().file("evil.toml", "");
        std::os::unix::fs::symlink("../../evil.toml", case.folder.path().join("w/.attini/config.toml")).unwrap();
        let failure = Failure::of(&case.load().unwrap_err());
        assert_eq!(failure.status, Status::Usage);
        assert!(failure.message.contains("is a link"), "{}", failure.message);
    }

    #[test]
    fn the_command_to_type_is_quoted() {
        assert_eq!(trust_command(Path::new("/a b")), "attini trust -C '/a b'");
    }

    #[test]
    fn a_tool_nobody_knows_is_refused_with_the_nearest_name() {
        let mut config = Config::default();
        config.tools.insert("serch".to_owned(), crate::config::ToolConfig::default());
        let failure = Failure::of(&ensure_tools_exist(&config, &["read", "search"]).unwrap_err());
        assert_eq!(failure.message, "[tools.serch]: there is no tool of that name; did you mean `search`?");
        ensure_tools_exist(&config, &["serch"]).unwrap();
        config.tools.insert("fs__gone".to_owned(), crate::config::ToolConfig::default());
        ensure_tools_exist(&config, &["serch"]).unwrap_err();
        config.mcp.insert("fs".to_owned(), crate::config::McpConfig::default());
        ensure_tools_exist(&config, &["serch"]).unwrap();

        let own = || crate::config::ToolConfig { own: Some(OwnToolConfig::default()), ..Default::default() };
        config.tools.insert("lint".to_owned(), own());
        ensure_tools_exist(&config, &["serch"]).unwrap();
        config.tools.insert("fs__gone".to_owned(), own());
        let failure = Failure::of(&ensure_tools_exist(&config, &["serch"]).unwrap_err());
        assert_eq!(failure.message, "[tools.fs__gone]: a name that begins like this is that of an MCP server's tool");
    }
}
