//! A real server in another language, written by somebody else, that runs beside the test: started as its own package
//! starts it, on a port that is free, and killed with all it started when the test ends, however it ends.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use super::invocation::wait_until;

/// The folder where npm and pip have put the peers: `node_modules/.bin` and `venv/bin` lie in it.
const FOLDER: &str = "ATTINI_TEST_PEERS_FOLDER";

/// Where the peers are, or `None` where no peers are to be tested. Where they are, one that cannot be started is a
/// failure.
pub(crate) fn peers_folder() -> Option<PathBuf> {
    if std::env::var("ATTINI_TEST_PEERS").as_deref() != Ok("1") {
        return None;
    }
    Some(std::env::var_os(FOLDER).expect("ATTINI_TEST_PEERS=1 needs ATTINI_TEST_PEERS_FOLDER").into())
}

/// A server that answers. Dropped, it is killed.
#[must_use]
pub(crate) struct Peer {
    process: Child,
    address: String,
    agent: ureq::Agent,
    /// Its home, its current folder, and what it prints.
    _folder: TempDir,
}

impl Peer {
    /// Starts `program` (a path below the peers' folder) and waits until it prints a line with `ready` and then its
    /// address. `files` are put into its current folder. `None` where no peers are to be tested.
    #[track_caller]
    pub(crate) fn start(
        program: &str,
        arguments: &[&str],
        files: &[(&str, &Value)],
        environment: &[(&str, &str)],
        ready: &str,
    ) -> Option<Self> {
        let program = peers_folder()?.join(program);
        let folder = tempfile::Builder::new().prefix("attini-peer-").tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content.to_string()).unwrap();
        }
        let printed = folder.path().join("printed");
        let output = File::create(&printed).unwrap();
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(folder.path()).env_clear().process_group(0);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder.path());
        command.env("PYTHONDONTWRITEBYTECODE", "1").envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let process = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        // From here on it is killed, whatever fails.
        let agent = ureq::Agent::config_builder().proxy(None).http_status_as_error(false).build().new_agent();
        let mut peer = Self { process, address: String::new(), agent, _folder: folder };
        wait_until(&format!("{} prints {ready:?} and its address", program.display()), || {
            let ended = peer.process.try_wait().unwrap();
            let text = std::fs::read_to_string(&printed).unwrap_or_default();
            assert!(ended.is_none(), "{}: {ended:?}\n{text}", program.display());
            peer.address = address_in(&text, ready).unwrap_or_default();
            !peer.address.is_empty()
        });
        Some(peer)
    }

    /// `http://ADDRESS:PORT` and the path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let mut answer = self.agent.get(self.url(path)).call().unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        assert!(answer.status().is_success(), "{path}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    /// Sends JSON; fails where the peer does not take it.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) {
        let (status, text) = self.send(path, &[], body);
        assert!((200..300).contains(&status), "{path}: {status}: {text}");
    }

    /// Sends JSON with headers and returns status and text, whatever they are.
    #[track_caller]
    pub(crate) fn send(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
        let mut request = self.agent.post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = request.send_json(body).unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) {
        let answer = self.agent.delete(self.url(path)).call().unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
        let _ = self.process.wait();
    }
}

/// The address in the first whole line that holds `ready`.
fn address_in(text: &str, ready: &str) -> Option<String> {
    let line = text.split_inclusive('\n').find(|line| line.contains(ready) && line.ends_with('\n'))?;
    let start = line.find("http://")?;
    let end = line[start..].find(char::is_whitespace).map_or(line.len(), |length| start + length);
    Some(line[start..end].to_owned())
}

/// The path of a program among the peers, for a configuration.
pub(crate) fn peer_path(folder: &Path, word: &str) -> String {
    word.replace("PEERS", &folder.to_string_lossy())
}
