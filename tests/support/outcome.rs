//! How a run ended and what it wrote. The exit code comes first: nothing else can be looked at before it was checked.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::Value;

use super::case::KEYS;
use super::redact::Redactor;
use super::snapshot::{assert_text_eq, expect_file};

/// A run whose exit code nobody has looked at yet.
#[must_use = "the exit code is to be checked"]
pub(crate) struct Ended {
    command: String,
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    redactor: Redactor,
}

impl Ended {
    #[track_caller]
    pub(super) fn new(
        command: String,
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        redactor: Redactor,
    ) -> Self {
        let ended = Self { command, status, stdout, stderr, redactor };
        let written = ended.describe();
        assert!(!KEYS.iter().any(|key| written.contains(key)), "{}: a key was written\n{written}", ended.command);
        ended
    }

    /// It ended by itself with that code.
    #[track_caller]
    pub(crate) fn exit(self, code: i32) -> Outcome {
        assert!(
            self.status.code() == Some(code),
            "{}: exit code {code} was expected\n{}",
            self.command,
            self.describe()
        );
        Outcome { code, ended: self }
    }

    /// It ended by itself with one of those codes, which is returned.
    #[track_caller]
    pub(crate) fn exit_any(self, codes: impl IntoIterator<Item = i32>) -> i32 {
        let ended = self.status.code().filter(|code| codes.into_iter().any(|expected| expected == *code));
        ended.unwrap_or_else(|| panic!("{}: another exit code was expected\n{}", self.command, self.describe()))
    }

    /// However it ended: with the code it ended with by itself, or `None` where a signal killed it.
    pub(crate) fn any(self) -> (Option<i32>, Outcome) {
        let code = self.status.code();
        let shown = code.unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0));
        (code, Outcome { code: shown, ended: self })
    }

    /// A signal killed it.
    #[track_caller]
    pub(crate) fn killed_by(self, signal: i32) -> Outcome {
        let fits = self.status.signal() == Some(signal);
        assert!(fits, "{}: death by signal {signal} was expected\n{}", self.command, self.describe());
        Outcome { code: 128 + signal, ended: self }
    }

    fn describe(&self) -> String {
        let (stdout, stderr) = (String::from_utf8_lossy(&self.stdout), String::from_utf8_lossy(&self.stderr));
        format!("{}\n--- stdout\n{stdout}\n--- stderr\n{stderr}", self.status)
    }
}

/// What a run wrote, redacted but for the bytes. Each check gives the outcome back, for the next.
pub(crate) struct Outcome {
    code: i32,
    ended: Ended,
}

impl Outcome {
    /// The whole of stdout, redacted.
    #[track_caller]
    pub(crate) fn stdout(&self, expected: &str) -> &Self {
        assert_text_eq(&self.name("stdout"), expected, &self.stdout_text());
        self
    }

    /// The whole of stderr, redacted.
    #[track_caller]
    pub(crate) fn stderr(&self, expected: &str) -> &Self {
        assert_text_eq(&self.name("stderr"), expected, &self.stderr_text());
        self
    }

    /// The whole of stdout against `tests/expected/NAME`.
    #[track_caller]
    pub(crate) fn stdout_file(&self, name: &str) -> &Self {
        expect_file(name, &self.stdout_text());
        self
    }

    /// The whole of stderr against `tests/expected/NAME`.
    #[track_caller]
    pub(crate) fn stderr_file(&self, name: &str) -> &Self {
        expect_file(name, &self.stderr_text());
        self
    }

    #[track_caller]
    pub(crate) fn stdout_contains(&self, part: &str) -> &Self {
        let text = self.stdout_text();
        assert!(text.contains(part), "{} does not hold {part:?}:\n{text}", self.name("stdout"));
        self
    }

    #[track_caller]
    pub(crate) fn stderr_contains(&self, part: &str) -> &Self {
        let text = self.stderr_text();
        assert!(text.contains(part), "{} does not hold {part:?}:\n{text}", self.name("stderr"));
        self
    }

    #[track_caller]
    pub(crate) fn stderr_lacks(&self, part: &str) -> &Self {
        let text = self.stderr_text();
        assert!(!text.contains(part), "{} holds {part:?}:\n{text}", self.name("stderr"));
        self
    }

    pub(crate) fn stdout_text(&self) -> String {
        self.ended.redactor.text(&String::from_utf8_lossy(&self.ended.stdout))
    }

    pub(crate) fn stderr_text(&self) -> String {
        self.ended.redactor.text(&String::from_utf8_lossy(&self.ended.stderr))
    }

    pub(crate) fn stdout_bytes(&self) -> &[u8] {
        &self.ended.stdout
    }

    pub(crate) fn stderr_bytes(&self) -> &[u8] {
        &self.ended.stderr
    }

    /// The one object that `--output json` prints, as it is. Fails where stdout holds anything else.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let objects = self.events();
        assert!(objects.len() == 1, "{}: {} objects instead of one", self.ended.command, objects.len());
        objects[0].clone()
    }

    /// The same, redacted: for whole expectations.
    #[track_caller]
    pub(crate) fn redacted_json(&self) -> Value {
        self.ended.redactor.value(&self.json())
    }

    /// The objects that `--output events` prints. Fails where a line is none, or where the last one, which is the
    /// result, names another exit code than the process had.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = String::from_utf8(self.ended.stdout.clone()).expect("stdout is UTF-8");
        assert!(text.ends_with('\n'), "{}: stdout does not end a line: {text:?}", self.ended.command);
        let parse = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            assert!(value["type"].is_string(), "an object without a type: {line}");
            value
        };
        let events: Vec<Value> = text.lines().map(parse).collect();
        let last = events.last().expect("a line was printed");
        assert!(last["exit_code"] == self.code, "{}: the exit code was {}: {last}", self.ended.command, self.code);
        events
    }

    /// The events of one type.
    #[track_caller]
    pub(crate) fn events_of(&self, event_type: &str) -> Vec<Value> {
        let mut events = self.events();
        events.retain(|event| event["type"] == event_type);
        events
    }

    fn name(&self, stream: &str) -> String {
        format!("{}: {stream}", self.ended.command)
    }
}
