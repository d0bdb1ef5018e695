//! A server's process: its start, its pipes, the last it wrote to stderr, and its end with all it started.
//!
//! It leads a session and process group of its own and dies with the thread that started it, which lives as long as any
//! server is wanted.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::config::McpConfig;
use crate::workspace::group::Group;
use crate::workspace::root::Root;

/// How long a server whose stdin was closed may take to end by itself.
const STDIN_GRACE: Duration = Duration::from_millis(500);
/// Between TERM and KILL.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// How long a killed process may take to end.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How often what a server left in its group is looked at while it is being stopped.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// How long the last of stderr is waited for once a server is in trouble.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(100);
/// How much of stderr is kept: the end of it.
const LAST_WORDS_BYTES_MAX: usize = 4096;
const LAST_WORDS_LINES_MAX: usize = 10;
const PIECE_BYTES: usize = 8192;

pub(super) struct Process {
    group: Mutex<Group>,
    ended: watch::Receiver<bool>,
    last_words: Arc<Mutex<VecDeque<u8>>>,
    /// Whether stderr was read to its end.
    heard_out: watch::Receiver<bool>,
    status: Mutex<Option<ExitStatus>>,
}

/// The two ends that messages pass through.
pub(super) struct Ends {
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: pipe::Receiver,
}

impl Process {
    /// Starts a server in `folder`, with `environment` and what its own entry names, and nothing else.
    pub(super) fn start(
        server: &McpConfig,
        folder: &Root,
        environment: &[(OsString, OsString)],
    ) -> io::Result<(Self, Ends)> {
        let Some((program, arguments)) = server.command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no program to run"));
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear();
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.env("PWD", folder.path()).env_remove("OLDPWD").envs(&server.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The thread is there before the child is: it must not fail to be made when a child already runs.
        let (watched, ended) = watch_end()?;
        let mut group = Group::spawn(command, folder)?;
        // The thread cannot have ended before it was told.
        let _ = watched.send(group.leader());
        let (Some(stdin), Some(stdout), Some(stderr)) = (group.take_stdin(), group.take_stdout(), group.take_stderr())
        else {
            return Err(io::Error::other("the pipes to the process are missing"));
        };
        let ends = Ends {
            stdin: pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?,
            stdout: pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?,
        };
        let last_words = Arc::default();
        let heard_out = listen(pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?, Arc::clone(&last_words));
        Ok((Self { group: Mutex::new(group), ended, last_words, heard_out, status: Mutex::default() }, ends))
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Returns when the server's own process has ended, whatever of its group still runs.
    pub(super) async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error says that the watching thread is gone, which it only is when the process has ended.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Ends the server and all of its group. Its stdin is closed already; it has a moment to end by itself.
    pub(super) async fn end(&self) {
        if !self.ends_within(STDIN_GRACE).await {
            self.group().signal(Signal::TERM);
            if !self.ends_within(STOP_GRACE).await {
                self.group().signal(Signal::KILL);
                if !self.ends_within(KILL_WAIT).await {
                    self.group().abandon();
                    return;
                }
            }
        }
        if self.status().is_some() {
            return;
        }
        self.end_rest_of_group().await;
        let reaped = self.group().reap();
        *self.status() = reaped.ok();
    }

    /// What a wrapper (npx, a shell) left behind. The group's number stays taken until its leader is reaped.
    async fn end_rest_of_group(&self) {
        if !self.group().has_others() {
            return;
        }
        self.group().signal(Signal::TERM);
        let deadline = Instant::now() + STOP_GRACE;
        while Instant::now() < deadline {
            sleep(STOP_CHECK).await;
            if !self.group().has_others() {
                return;
            }
        }
        self.group().signal(Signal::KILL);
    }

    /// How it ended, once [`Process::end`] is through: `with exit code 3`.
    pub(super) fn how_it_ended(&self) -> String {
        let status = *self.status();
        let by_signal = status.and_then(|status| status.signal());
        match (status.and_then(|status| status.code()), by_signal) {
            (Some(code), _) => format!("with exit code {code}"),
            (None, Some(number)) => match signal_hook::low_level::signal_name(number) {
                Some(name) => format!("by signal {number} ({name})"),
                None => format!("by signal {number}"),
            },
            (None, None) => "in an unknown way".to_owned(),
        }
    }

    /// The last lines of stderr as the end of a message: empty, or `; the last it wrote to stderr:` and these lines.
    pub(super) async fn last_words(&self) -> String {
        let mut heard_out = self.heard_out.clone();
        // What did not come within this time is not waited for.
        let _ = timeout(LAST_WORDS_WAIT, heard_out.wait_for(|heard| *heard)).await;
        let bytes: Vec<u8> = lock(&self.last_words).iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let text = crate::mask::apply(&text).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            return String::new();
        }
        let mut told = "; the last it wrote to stderr:".to_owned();
        for line in &lines[lines.len().saturating_sub(LAST_WORDS_LINES_MAX)..] {
            // Writing to a string cannot fail.
            let _ = write!(told, "\n  {line}");
        }
        told
    }

    async fn ends_within(&self, time: Duration) -> bool {
        timeout(time, self.ended()).await.is_ok()
    }

    fn group(&self) -> MutexGuard<'_, Group> {
        lock(&self.group)
    }

    fn status(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        lock(&self.status)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that waits for a process's end without reaping it.
fn watch_end() -> io::Result<(mpsc::Sender<Pid>, watch::Receiver<bool>)> {
    let (watched, to_watch) = mpsc::channel();
    let (has_ended, ended) = watch::channel(false);
    std::thread::Builder::new().name("mcp-waiter".to_owned()).spawn(move || {
        let Ok(leader) = to_watch.recv() else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(rustix::process::waitid(WaitId::Pid(leader), options), Err(rustix::io::Errno::INTR)) {}
        // Nobody listens any more if the process was given up.
        let _ = has_ended.send(true);
    })?;
    Ok((watched, ended))
}

/// Reads stderr to its end, so that a server never waits for room there, and keeps the last of it.
fn listen(mut stderr: pipe::Receiver, last_words: Arc<Mutex<VecDeque<u8>>>) -> watch::Receiver<bool> {
    let (is_heard_out, heard_out) = watch::channel(false);
    tokio::spawn(async move {
        let mut piece = vec![0; PIECE_BYTES];
        // Before the beginning is cut off: part of a key would not be known for one.
        let mut mask = crate::mask::Stream::new();
        let keep = |bytes: Vec<u8>| {
            let mut kept = lock(&last_words);
            kept.extend(bytes);
            let excess = kept.len().saturating_sub(LAST_WORDS_BYTES_MAX);
            kept.drain(..excess);
        };
        while let Ok(count @ 1..) = stderr.read(&mut piece).await {
            keep(mask.push(&piece[..count]));
        }
        keep(mask.finish());
        let _ = is_heard_out.send(true);
    });
    heard_out
}
