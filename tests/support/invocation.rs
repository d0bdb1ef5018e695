//! One run of the attini binary, or of a script that uses it, to its end or beside the test. Every wait has a deadline; none sleeps blindly.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::DEADLINE;
use super::case::Case;
use super::outcome::Ended;
use super::redact::Redactor;
use super::terminal::Terminal;

/// How often a condition is looked at that nothing announces.
const POLL: Duration = Duration::from_millis(5);

/// Looks until the condition holds. Fails past the deadline.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(POLL);
    }
}

enum Output {
    Captured,
    /// A pipe whose reader is gone.
    Closed,
    /// A device on which nothing can be written.
    Full,
}

impl Output {
    fn stdio(&self) -> Stdio {
        match self {
            Self::Captured => Stdio::piped(),
            Self::Closed => Stdio::from(std::io::pipe().expect("a pipe can be made").1),
            Self::Full => Stdio::from(File::options().write(true).open("/dev/full").expect("/dev/full exists")),
        }
    }
}

/// A run that has not started.
#[must_use]
pub(crate) struct Invocation<'a> {
    case: &'a Case,
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, Option<OsString>)>,
    folder: PathBuf,
    /// `None`: an open pipe in which nothing ever comes, so that a read of stdin that nobody asked for fails the test.
    stdin: Option<Vec<u8>>,
    stdout: Output,
    stderr: Output,
    deadline: Duration,
    terminal: Option<Terminal>,
}

impl<'a> Invocation<'a> {
    pub(super) fn new(case: &'a Case, program: OsString, arguments: Vec<OsString>) -> Self {
        Self {
            case,
            program,
            arguments,
            environment: Vec::new(),
            folder: case.workspace(),
            stdin: None,
            stdout: Output::Captured,
            stderr: Output::Captured,
            deadline: DEADLINE,
            terminal: None,
        }
    }

    /// With a terminal of its own as stdin and stderr, on which that was typed before it starts.
    pub(crate) fn on_terminal(mut self, rows: u16, columns: u16, typed_ahead: &str) -> Self {
        let terminal = Terminal::open(rows, columns);
        terminal.type_keys(typed_ahead);
        self.terminal = Some(terminal);
        self
    }

    /// Another time limit than usual.
    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// What stdin holds, to its end.
    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.stdin = Some(bytes.as_ref().to_vec());
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((key.into(), Some(value.as_ref().to_owned())));
        self
    }

    pub(crate) fn unset(mut self, key: &str) -> Self {
        self.environment.push((key.into(), None));
        self
    }

    /// The current folder, relative to the workspace.
    pub(crate) fn current_folder(mut self, relative: &str) -> Self {
        self.folder = self.case.path(relative);
        self
    }

    /// Writing to stdout fails with a broken pipe.
    pub(crate) fn closed_stdout(mut self) -> Self {
        self.stdout = Output::Closed;
        self
    }

    pub(crate) fn closed_stderr(mut self) -> Self {
        self.stderr = Output::Closed;
        self
    }

    /// Writing to stdout fails for want of space.
    pub(crate) fn full_stdout(mut self) -> Self {
        self.stdout = Output::Full;
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run(self) -> Ended {
        let case = self.case;
        let ended = self.start().wait();
        case.after_run();
        ended
    }

    /// Starts it in a process group of its own.
    #[track_caller]
    pub(crate) fn start(self) -> Running {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).env_clear().envs(self.case.environment());
        for (key, value) in &self.environment {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command.stdout(self.stdout.stdio());
        match &self.terminal {
            Some(terminal) => terminal.give_to(&mut command),
            None => drop(command.stdin(Stdio::piped()).stderr(self.stderr.stdio()).process_group(0)),
        }
        let name = Path::new(&self.program).file_name().unwrap_or_default();
        let words = std::iter::once(name).chain(self.arguments.iter().map(OsString::as_os_str));
        let shown = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
        let child = command.spawn().unwrap_or_else(|error| panic!("{shown} cannot be started: {error}"));
        // The other end is the child's alone from here on, so that its end ends the stream.
        drop(command);
        let mut running = Running::new(child, shown, self.case, self.deadline);
        if let Some(terminal) = self.terminal {
            running.stderr = Captured::collect(Some(terminal.output()));
            running.terminal = Some(terminal);
        }
        if let Some(bytes) = self.stdin {
            running.feed(bytes);
        }
        running
    }
}

/// What a stream has given so far.
#[derive(Default)]
struct Captured {
    state: Mutex<(Vec<u8>, bool)>,
    grown: Condvar,
}

impl Captured {
    fn collect(stream: Option<impl Read + Send + 'static>) -> Arc<Self> {
        let captured = Arc::new(Self::default());
        let Some(mut stream) = stream else {
            captured.state.lock().unwrap().1 = true;
            return captured;
        };
        let collecting = Arc::clone(&captured);
        std::thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            loop {
                let count = stream.read(&mut buffer).unwrap_or(0);
                let mut state = collecting.state.lock().unwrap();
                state.0.extend_from_slice(&buffer[..count]);
                state.1 |= count == 0;
                collecting.grown.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        captured
    }

    /// What there is once `enough` holds or the stream has ended, and whether one of them came in time.
    fn wait(&self, deadline: Duration, enough: impl Fn(&[u8]) -> bool) -> (Vec<u8>, bool) {
        let state = self.state.lock().unwrap();
        let (state, waited) =
            self.grown.wait_timeout_while(state, deadline, |(bytes, ended)| !*ended && !enough(bytes)).unwrap();
        (state.0.clone(), !waited.timed_out())
    }
}

/// A run beside the test. Dropped before its end, it is killed with its process group.
#[must_use]
pub(crate) struct Running {
    process: Pid,
    command: String,
    redactor: Redactor,
    stdin: Option<ChildStdin>,
    terminal: Option<Terminal>,
    stdout: Arc<Captured>,
    stderr: Arc<Captured>,
    ended: Receiver<ExitStatus>,
    status: Option<ExitStatus>,
    deadline: Duration,
    _presence: Arc<()>,
}

impl Running {
    fn new(mut child: Child, command: String, case: &Case, deadline: Duration) -> Self {
        let process = Pid::from_child(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            if let Ok(status) = child.wait() {
                // Nobody listens where the test has ended before.
                let _ = sender.send(status);
            }
        });
        let (stdout, stderr) = (Captured::collect(stdout), Captured::collect(stderr));
        Self {
            process,
            command,
            redactor: case.redactor(),
            stdin,
            terminal: None,
            stdout,
            stderr,
            ended,
            status: None,
            deadline,
            _presence: case.presence(),
        }
    }

    /// Writes and closes stdin, beside the test: more than a pipe holds may come before anybody reads.
    fn feed(&mut self, bytes: Vec<u8>) {
        let Some(mut stdin) = self.stdin.take() else { return };
        // A program that does not read its input to the end breaks no rule.
        std::thread::spawn(move || stdin.write_all(&bytes).is_ok());
    }

    /// Writes to stdin and leaves it open.
    #[track_caller]
    pub(crate) fn write_stdin(&mut self, bytes: impl AsRef<[u8]>) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes.as_ref()).unwrap();
    }

    /// Types on the terminal that it was started on.
    #[track_caller]
    pub(crate) fn type_keys(&self, keys: &str) {
        self.terminal.as_ref().expect("it has a terminal").type_keys(keys);
    }

    /// Whether the terminal echoes and gives whole lines, as it did at the start.
    #[track_caller]
    pub(crate) fn is_in_line_mode(&self) -> bool {
        self.terminal.as_ref().expect("it has a terminal").is_in_line_mode()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal to attini alone.
    #[track_caller]
    pub(crate) fn signal(&self, number: i32) {
        kill_process(self.process, signal(number)).expect("attini is still there");
    }

    /// Sends a signal to attini's process group, as a terminal does.
    #[track_caller]
    pub(crate) fn signal_group(&self, number: i32) {
        kill_process_group(self.process, signal(number)).expect("attini is still there");
    }

    pub(crate) fn process_id(&self) -> i32 {
        self.process.as_raw_nonzero().get()
    }

    /// Waits until stderr holds the text.
    #[track_caller]
    pub(crate) fn wait_stderr(&self, text: &str) {
        self.wait_stream(&self.stderr, "stderr", text);
    }

    /// Waits until stderr holds the text so many times.
    #[track_caller]
    pub(crate) fn wait_stderr_times(&self, text: &str, times: usize) {
        let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).matches(text).count() >= times;
        let (bytes, _) = self.stderr.wait(self.deadline, holds);
        let shown = String::from_utf8_lossy(&bytes);
        assert!(holds(&bytes), "{}: stderr never held {text:?} {times} times:\n{shown}", self.command);
    }

    /// Waits until stdout holds the text.
    #[track_caller]
    pub(crate) fn wait_stdout(&self, text: &str) {
        self.wait_stream(&self.stdout, "stdout", text);
    }

    #[track_caller]
    fn wait_stream(&self, stream: &Captured, name: &str, text: &str) {
        let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
        let (bytes, _) = stream.wait(self.deadline, holds);
        assert!(holds(&bytes), "{}: {name} never held {text:?}:\n{}", self.command, String::from_utf8_lossy(&bytes));
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.ended.try_recv().ok();
        }
        self.status.is_none()
    }

    /// Waits for its end, and for the end of its streams. Stdin stays as it is: what waits for it runs into the
    /// deadline.
    #[track_caller]
    pub(crate) fn wait(mut self) -> Ended {
        let status = match self.status {
            Some(status) => status,
            None => match self.ended.recv_timeout(self.deadline) {
                Ok(status) => status,
                Err(RecvTimeoutError::Timeout) => {
                    let (stdout, _) = self.stdout.wait(self.deadline, |_| true);
                    let (stderr, _) = self.stderr.wait(self.deadline, |_| true);
                    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
                    panic!("{} did not end in time; stdout:\n{stdout}\nstderr:\n{stderr}", self.command)
                }
                Err(RecvTimeoutError::Disconnected) => panic!("{}: its end could not be awaited", self.command),
            },
        };
        self.status = Some(status);
        let (stdout, stdout_ended) = self.stdout.wait(self.deadline, |_| false);
        let (stderr, stderr_ended) = self.stderr.wait(self.deadline, |_| false);
        if !stdout_ended || !stderr_ended {
            // The group lives on in what holds the streams.
            let _ = kill_process_group(self.process, Signal::KILL);
        }
        assert!(stdout_ended && stderr_ended, "{}: something it started still holds its streams", self.command);
        Ended::new(self.command.clone(), status, stdout, stderr, self.redactor.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            // It may have ended in between.
            let _ = kill_process_group(self.process, Signal::KILL);
            // What it writes last is to be there before the folder is looked at or removed.
            let _ = self.ended.recv_timeout(DEADLINE);
        }
    }
}

#[track_caller]
fn signal(number: i32) -> Signal {
    Signal::from_named_raw(number).unwrap_or_else(|| panic!("{number} is no signal"))
}
