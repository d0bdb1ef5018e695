//! One test's world: a workspace and a home in a temporary folder, an environment with nothing of the developer's own,
//! and a model server that checks every request.
//!
//! When a case ends, its server must have refused nothing and its sessions must keep every invariant.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use super::invocation::{Invocation, Running, wait_until};
use super::model_server::ModelServer;
use super::outcome::Ended;
use super::redact::Redactor;
use super::reply::Reply;
use super::session_folder::check_session_folder;

/// The key a case sends to its server where that speaks `OpenAI`'s format.
pub(crate) const OPENAI_KEY: &str = "sk-openai-key-of-the-tests-0123456789";

/// The key it sends in Anthropic's.
pub(crate) const ANTHROPIC_KEY: &str = "sk-ant-key-of-the-tests-0123456789";

/// A record, an output or a request body that holds one of these was not masked, and fails the test.
pub(crate) const KEYS: [&str; 2] = [OPENAI_KEY, ANTHROPIC_KEY];

/// The binary under test.
const ATTINI: &str = env!("CARGO_BIN_EXE_attini");

/// A path in the repository.
pub(crate) fn repository_path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// The bytes of a file under `fixtures/`.
#[track_caller]
pub(crate) fn fixture(relative: &str) -> Vec<u8> {
    let path = repository_path("fixtures").join(relative);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[must_use]
pub(crate) struct Case {
    folder: TempDir,
    /// The folder without links in its path, as attini will name it.
    root: PathBuf,
    environment: BTreeMap<OsString, OsString>,
    server: ModelServer,
    in_git: bool,
    untracked: Vec<(String, Vec<u8>)>,
    is_prepared: Cell<bool>,
    checks_invariants: bool,
    /// Each run that has not ended holds another one.
    presence: Arc<()>,
    /// What each session's log held when it was last checked: it may only grow.
    seen_logs: RefCell<BTreeMap<String, Vec<u8>>>,
    /// The lines of each session's log that the test itself wrote.
    planted_lines: BTreeMap<String, usize>,
}

impl Case {
    /// An empty workspace outside git, trusted, with the `OpenAI` format's model configured by the environment.
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("attini-case-").tempdir().expect("a temporary folder can be made");
        let root = folder.path().canonicalize().expect("the folder was just made");
        for name in ["workspace", "home", "tmp"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let server = ModelServer::start();
        let home = root.join("home");
        let mut environment: BTreeMap<OsString, OsString> = BTreeMap::new();
        let mut set = |key: &str, value: OsString| environment.insert(key.into(), value);
        let binaries = Path::new(ATTINI).parent().expect("the binary is in a folder").to_owned();
        let outside = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(binaries).chain(std::env::split_paths(&outside)));
        set("PATH", path.expect("no colon in the target folder"));
        set("HOME", home.clone().into());
        set("XDG_CONFIG_HOME", home.join(".config").into());
        set("XDG_STATE_HOME", home.join(".local/state").into());
        set("XDG_DATA_HOME", home.join(".local/share").into());
        set("XDG_CACHE_HOME", home.join(".cache").into());
        set("TMPDIR", root.join("tmp").into());
        set("TZ", "UTC".into());
        set("LC_ALL", "C".into());
        set("GIT_CONFIG_GLOBAL", "/dev/null".into());
        set("GIT_CONFIG_NOSYSTEM", "1".into());
        set("GIT_CEILING_DIRECTORIES", root.clone().into());
        set("ATTINI_TRUST_WORKSPACE", "1".into());
        set("ATTINI_MODEL", "openai/test-model".into());
        set("OPENAI_API_KEY", OPENAI_KEY.into());
        set("OPENAI_BASE_URL", server.openai_base_url().into());
        set("ANTHROPIC_API_KEY", ANTHROPIC_KEY.into());
        set("ANTHROPIC_BASE_URL", server.anthropic_base_url().into());
        Self {
            folder,
            root,
            environment,
            server,
            in_git: false,
            untracked: Vec::new(),
            is_prepared: Cell::new(false),
            checks_invariants: true,
            presence: Arc::default(),
            seen_logs: RefCell::default(),
            planted_lines: BTreeMap::new(),
        }
    }

    /// The workspace is a git repository, and every file given to the builder is committed before the first run.
    pub(crate) fn git(mut self) -> Self {
        self.in_git = true;
        self
    }

    /// A file in the workspace, tracked where there is git.
    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.write(path, content);
        self
    }

    /// A file in the workspace that git does not know.
    pub(crate) fn untracked(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.untracked.push((path.to_owned(), content.as_ref().to_vec()));
        self
    }

    /// The workspace's `.attini/config.toml`.
    pub(crate) fn config(self, text: &str) -> Self {
        self.file(".attini/config.toml", text)
    }

    /// The user's `config.toml`.
    pub(crate) fn user_config(self, text: &str) -> Self {
        write(&self.root.join("home/.config/attini/config.toml"), text.as_bytes());
        self
    }

    /// The workspace's `.attini/permissions.jsonl`.
    pub(crate) fn rules(self, rules: impl IntoIterator<Item = Value>) -> Self {
        self.file(".attini/permissions.jsonl", json_lines(rules))
    }

    /// The user's `permissions.jsonl`.
    pub(crate) fn user_rules(self, rules: impl IntoIterator<Item = Value>) -> Self {
        write(&self.root.join("home/.config/attini/permissions.jsonl"), json_lines(rules).as_bytes());
        self
    }

    /// The workspace's config and rules count only as far as `attini trust` says.
    pub(crate) fn untrusted(self) -> Self {
        self.unset("ATTINI_TRUST_WORKSPACE")
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.insert(key.into(), value.as_ref().to_owned());
        self
    }

    pub(crate) fn unset(mut self, key: &str) -> Self {
        self.environment.remove(OsStr::new(key));
        self
    }

    /// The environment names no model, no key and no address.
    pub(crate) fn without_model(mut self) -> Self {
        self.environment.retain(|key, _| {
            let key = key.to_string_lossy();
            key != "ATTINI_MODEL" && !key.ends_with("_API_KEY") && !key.ends_with("_BASE_URL")
        });
        self
    }

    /// `PROVIDER/MODEL`, by the environment.
    pub(crate) fn model(self, name: &str) -> Self {
        self.env("ATTINI_MODEL", name)
    }

    /// The model speaks Anthropic's format.
    pub(crate) fn anthropic(self) -> Self {
        self.model("anthropic/test-model")
    }

    /// Adds replies to the server's script.
    pub(crate) fn script(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.server.script(replies);
        self
    }

    /// A session's log that the test wrote itself, good or broken.
    pub(crate) fn planted_log(mut self, session: &str, log: impl AsRef<[u8]>) -> Self {
        let log = log.as_ref();
        self.planted_lines.insert(session.to_owned(), log.split(|byte| *byte == b'\n').count());
        self.plant_session_file(session, "conversation.jsonl", log);
        self
    }

    /// A session's `pending.json` that the test wrote itself.
    pub(crate) fn planted_pending(self, session: &str, content: impl AsRef<[u8]>) -> Self {
        self.plant_session_file(session, "pending.json", content.as_ref());
        self
    }

    /// For sessions that the test breaks on purpose.
    pub(crate) fn without_invariants(mut self) -> Self {
        self.checks_invariants = false;
        self
    }

    /// For tests that stop attini before its script ends.
    pub(crate) fn with_unplayed_replies(self) -> Self {
        self.server.allow_unplayed_replies();
        self
    }

    /// Runs attini to its end. Fails past the deadline, and where a session's invariants are broken afterwards.
    #[track_caller]
    pub(crate) fn run(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
        self.attini(arguments).run()
    }

    /// Starts attini and goes on.
    #[track_caller]
    pub(crate) fn start(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Running {
        self.attini(arguments).start()
    }

    /// An invocation that can still be given input, variables and streams of its own.
    pub(crate) fn attini(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Invocation<'_> {
        self.program(ATTINI, arguments)
    }

    /// Another program in the same world; it finds attini in its PATH.
    pub(crate) fn program(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Invocation<'_> {
        self.prepare();
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        Invocation::new(self, program.into(), arguments)
    }

    pub(crate) fn server(&self) -> &ModelServer {
        &self.server
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// A path in the workspace.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.workspace().join(relative)
    }

    /// A path in a session's folder.
    pub(crate) fn session_path(&self, session: &str, relative: &str) -> PathBuf {
        self.path(".attini/sessions").join(session).join(relative)
    }

    pub(crate) fn exists(&self, relative: &str) -> bool {
        self.path(relative).symlink_metadata().is_ok()
    }

    #[track_caller]
    pub(crate) fn read(&self, relative: &str) -> String {
        let path = self.path(relative);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Writes a file in the workspace, at any time.
    pub(crate) fn write(&self, relative: &str, content: impl AsRef<[u8]>) {
        write(&self.path(relative), content.as_ref());
    }

    /// Waits until a file in the workspace exists.
    #[track_caller]
    pub(crate) fn wait_file(&self, relative: &str) {
        let path = self.path(relative);
        wait_until(&format!("{} exists", path.display()), || path.exists());
    }

    /// The records of the session `main`.
    #[track_caller]
    pub(crate) fn records(&self) -> Vec<Value> {
        self.records_of("main")
    }

    #[track_caller]
    pub(crate) fn records_of(&self, session: &str) -> Vec<Value> {
        let path = self.session_path(session, "conversation.jsonl");
        let log = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        log.lines().map(parse).collect()
    }

    /// The types of the records of `main`, in order.
    #[track_caller]
    pub(crate) fn record_types(&self) -> Vec<String> {
        self.records().iter().map(|record| record["type"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The result of one call of the session `main`. Fails where there is none.
    #[track_caller]
    pub(crate) fn result(&self, call_id: &str) -> Value {
        let records = self.records();
        let found = records.iter().find(|record| record["type"] == "tool_result" && record["call_id"] == call_id);
        found.unwrap_or_else(|| panic!("no tool_result of {call_id} in the log")).clone()
    }

    /// The session `main`'s `pending.json`, if there is one.
    #[track_caller]
    pub(crate) fn pending(&self) -> Option<Value> {
        let text = fs::read_to_string(self.session_path("main", "pending.json")).ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("pending.json: {error}: {text}")))
    }

    /// Runs git in the workspace and returns what it prints.
    #[track_caller]
    pub(crate) fn run_git(&self, arguments: &[&str]) -> String {
        self.prepare();
        self.git_command(arguments)
    }

    pub(crate) fn redactor(&self) -> Redactor {
        let place = |path: PathBuf| path.to_string_lossy().into_owned();
        Redactor::new([
            (place(self.workspace()), "[WORKSPACE]"),
            (place(self.home()), "[HOME]"),
            (place(self.root.clone()), "[CASE]"),
            (self.server.address(), "[SERVER]"),
        ])
    }

    /// Checks every session of the workspace: its log, its pending.json, its folder, and that the log only grew.
    #[track_caller]
    pub(crate) fn assert_invariants(&self) {
        let found = self.check_invariants();
        assert!(found.is_empty(), "the session's invariants are broken:\n{}", found.join("\n"));
    }

    fn check_invariants(&self) -> Vec<String> {
        let mut found = Vec::new();
        let Ok(sessions) = fs::read_dir(self.path(".attini/sessions")) else { return found };
        let mut names: Vec<String> =
            sessions.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        self.seen_logs.borrow_mut().retain(|name, _| names.contains(name));
        for name in names {
            let folder = self.session_path(&name, "");
            let planted_lines = self.planted_lines.get(&name).copied().unwrap_or(0);
            let violations = check_session_folder(&folder, planted_lines);
            found.extend(violations.into_iter().map(|violation| format!("session {name}: {violation}")));
            let Ok(log) = fs::read(folder.join("conversation.jsonl")) else { continue };
            if KEYS.iter().any(|key| String::from_utf8_lossy(&log).contains(key)) {
                found.push(format!("session {name}: the log holds a key"));
            }
            let mut seen_logs = self.seen_logs.borrow_mut();
            let seen = seen_logs.entry(name.clone()).or_default();
            let whole_lines = seen.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
            if !log.starts_with(&seen[..whole_lines]) {
                found.push(format!("session {name}: records that were on disk were changed or removed"));
            }
            *seen = log;
        }
        found
    }

    /// While another run goes on, its session may be between two writes: then nothing is checked.
    #[track_caller]
    pub(super) fn after_run(&self) {
        if self.checks_invariants && Arc::strong_count(&self.presence) == 1 {
            self.assert_invariants();
        }
    }

    pub(super) fn presence(&self) -> Arc<()> {
        Arc::clone(&self.presence)
    }

    pub(crate) fn environment(&self) -> &BTreeMap<OsString, OsString> {
        &self.environment
    }

    /// Once, before the first run: what is tracked becomes tracked, then what is not is written.
    fn prepare(&self) {
        if self.is_prepared.replace(true) {
            return;
        }
        if self.in_git {
            self.git_command(&["init", "--quiet", "--initial-branch=main"]);
            self.git_command(&["add", "--all", "--", ".", ":(exclude).attini/sessions"]);
            self.git_command(&["commit", "--quiet", "--allow-empty", "--message=start"]);
        }
        for (path, content) in &self.untracked {
            self.write(path, content);
        }
    }

    #[track_caller]
    fn git_command(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.workspace()).env_clear().envs(&self.environment);
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "Case").env(format!("GIT_{role}_EMAIL"), "case@example.org");
            command.env(format!("GIT_{role}_DATE"), "2001-02-03T04:05:06Z");
        }
        let output = command.output().expect("git can be started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "git {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    fn plant_session_file(&self, session: &str, name: &str, content: &[u8]) {
        let folder = self.session_path(session, "");
        fs::create_dir_all(self.path(".attini/sessions")).unwrap();
        if !folder.exists() {
            fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        }
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(folder.join(name)).unwrap();
        std::io::Write::write_all(&mut file, content).unwrap();
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.after_run();
        self.server.finish();
    }
}

/// JSON values, one a line.
pub(crate) fn json_lines(values: impl IntoIterator<Item = Value>) -> String {
    values.into_iter().fold(String::new(), |text, value| text + &value.to_string() + "\n")
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a file has a folder")).unwrap();
    fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
