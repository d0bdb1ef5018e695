//! Plays assistant replies from a file, without a network: for demonstrations, recipes and tests.
//!
//! It keeps no state: how many replies the session holds already says which entry is next. It looks at nothing else of
//! a request.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::models::Model;
use super::trouble::Trouble;
use super::{Finish, Progress, Provider, ProviderError, Reply, Request};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::session::record::{ToolCall, Usage};
use crate::workspace::root::Root;

/// The name of the script that is built in.
pub const DEMO: &str = "demo";
/// Of a script.
pub const SCRIPT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How much text is shown at a time, as a service's stream would.
const DELTA_CHARACTERS: usize = 24;

const DEMO_SCRIPT: &str = include_str!("../../fixtures/demo.json");

#[derive(Debug)]
pub struct Scripted {
    /// For messages: the file as it was named.
    name: String,
    entries: Vec<Entry>,
}

/// One reply of a script.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Entry {
    text: String,
    reasoning: String,
    tool_calls: Vec<Call>,
    finish_reason: Option<String>,
    usage: Usage,
    /// How long the reply lets wait for itself.
    delay_ms: u64,
    /// The reply fails instead, at once.
    error: Option<ScriptedError>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    #[serde(default)]
    name: String,
    /// A text stands for itself, whether it is JSON or not; anything else is written as JSON.
    #[serde(default = "no_arguments")]
    arguments: Value,
    /// Empty: whoever records the reply makes one.
    #[serde(default)]
    id: String,
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedError {
    #[serde(default = "provider_error")]
    code: String,
    message: String,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    retryable: bool,
}

fn provider_error() -> String {
    "provider_error".to_owned()
}

impl Scripted {
    /// Reads the script `name`: [`DEMO`], or a file of the workspace.
    pub fn load(name: &str, root: &Root) -> anyhow::Result<Self> {
        if name == DEMO {
            return Self::parse(name, DEMO_SCRIPT);
        }
        let bytes = root.read(Path::new(name), SCRIPT_BYTES_MAX).map_err(|error| {
            Failure::usage(format!("the script {name} cannot be read: {error}"))
                .hint(format!("name a JSON file of the workspace, or take scripted/{DEMO}"))
        })?;
        let text = String::from_utf8(bytes).map_err(|_| Failure::usage(format!("the script {name} is not UTF-8")))?;
        Self::parse(name, &text)
    }

    fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        // The error tells line and column itself.
        let entries = serde_json::from_str(text)
            .map_err(|error| Failure::usage(format!("the script {name} is not a list of replies: {error}")))?;
        Ok(Self { name: name.to_owned(), entries })
    }
}

impl Provider for Scripted {
    fn complete(
        &self,
        request: &Request<'_>,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Reply, ProviderError> {
        // A script holds the replies of a conversation; what is asked on the side is none of them.
        if request.tool_choice_none {
            let text =
                format!("(A scripted model has no words of its own. Replies so far: {}.)", request.replies_before);
            return Ok(Entry { text, ..Entry::default() }.reply());
        }
        let position = usize::try_from(request.replies_before).unwrap_or(usize::MAX);
        let Some(entry) = self.entries.get(position) else {
            let count = self.entries.len();
            let number = request.replies_before.saturating_add(1);
            let message = format!(
                "the script {} holds {count} replies, and reply {number} was asked for; `-m PROVIDER/MODEL` goes on with another",
                self.name
            );
            return Err(Trouble::lasting(message).error);
        };
        if interrupt.wait(Duration::from_millis(entry.delay_ms)) || interrupt.is_raised() {
            return Err(Trouble::interrupted("scripted").error);
        }
        if let Some(error) = &entry.error {
            let ScriptedError { code, message, hint, retryable } = error.clone();
            return Err(ProviderError { code, message, hint, retryable, interrupted: false });
        }
        for delta in deltas(&entry.reasoning) {
            observe(Progress::Reasoning(delta));
        }
        for delta in deltas(&entry.text) {
            observe(Progress::Text(delta));
        }
        Ok(entry.reply())
    }

    fn models(&self, _: &Interrupt, _: &mut dyn FnMut(Progress<'_>)) -> Result<Vec<Model>, ProviderError> {
        Ok(vec![Model { id: DEMO.to_owned(), name: None, context_tokens: None }])
    }
}

impl Entry {
    fn reply(&self) -> Reply {
        let usual = if self.tool_calls.is_empty() { "stop" } else { "tool_calls" };
        let finish_reason = self.finish_reason.clone().unwrap_or_else(|| usual.to_owned());
        Reply {
            text: self.text.clone(),
            reasoning: self.reasoning.clone(),
            tool_calls: self.tool_calls.iter().map(Call::tool_call).collect(),
            finish: Finish::of(&finish_reason),
            finish_reason,
            usage: self.usage,
            opaque: None,
        }
    }
}

impl Call {
    fn tool_call(&self) -> ToolCall {
        let arguments = match &self.arguments {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        ToolCall { id: self.id.clone(), name: self.name.clone(), arguments, opaque: None }
    }
}

/// The text in pieces of [`DELTA_CHARACTERS`].
fn deltas(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = text.char_indices().nth(DELTA_CHARACTERS).map_or(text.len(), |(end, _)| end);
        let (delta, rest) = text.split_at(end);
        text = rest;
        (!delta.is_empty()).then_some(delta)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Status;
    use crate::interrupt::Cause;

    fn play(script: &str, replies_before: u64, interrupt: &Interrupt) -> (Result<Reply, ProviderError>, Vec<String>) {
        let scripted = Scripted::parse("script.json", script).unwrap();
        let request = Request { replies_before, ..Request::default() };
        let mut told = Vec::new();
        let mut observe = |progress: Progress<'_>| match progress {
            Progress::Text(text) => told.push(format!("text {text}")),
            Progress::Reasoning(text) => told.push(format!("reasoning {text}")),
            Progress::Retrying { .. } => told.push("retrying".to_owned()),
        };
        let result = scripted.complete(&request, interrupt, &mut observe);
        (result, told)
    }

    const SCRIPT: &str = r#"[
        {"tool_calls": [{"name": "read", "arguments": {"path": "a"}}, {"name": "x", "arguments": "{", "id": "c"}, {}]},
        {"text": "Twenty-four characters at a time, und auch ä.", "reasoning": "Hm.", "usage": {"input_tokens": 3}},
        {"text": "half", "finish_reason": "length"},
        {"error": {"message": "out of luck", "code": "rate_limited", "retryable": true}},
        {"delay_ms": 600000}
    ]"#;

    #[test]
    fn the_entry_of_the_reply_is_played() {
        let interrupt = Interrupt::default();
        let (reply, told) = play(SCRIPT, 0, &interrupt);
        let reply = reply.unwrap();
        let call = |id: &str, name: &str, arguments: &str| ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            opaque: None,
        };
        assert_eq!(reply.tool_calls, [call("", "read", "{\"path\":\"a\"}"), call("c", "x", "{"), call("", "", "{}")]);
        assert_eq!((reply.finish, reply.finish_reason.as_str()), (Finish::End, "tool_calls"));
        assert_eq!(told, Vec::<String>::new());

        let (reply, told) = play(SCRIPT, 1, &interrupt);
        let reply = reply.unwrap();
        assert_eq!((reply.finish_reason.as_str(), reply.usage.input_tokens), ("stop", 3));
        assert_eq!(told, ["reasoning Hm.", "text Twenty-four characters a", "text t a time, und auch ä."]);
        assert_eq!(play(SCRIPT, 2, &interrupt).0.unwrap().finish, Finish::Length);
    }

    #[test]
    fn errors_are_told_and_the_end_is_one() {
        let interrupt = Interrupt::default();
        let error = play(SCRIPT, 3, &interrupt).0.unwrap_err();
        assert_eq!((error.code.as_str(), error.retryable), ("rate_limited", true));
        let error = play(SCRIPT, 5, &interrupt).0.unwrap_err();
        assert_eq!((error.code.as_str(), error.retryable), ("provider_error", false));
        assert_eq!(
            error.message,
            "the script script.json holds 5 replies, and reply 6 was asked for; `-m PROVIDER/MODEL` goes on with another"
        );
        assert!(play(SCRIPT, u64::MAX, &interrupt).0.is_err());
        interrupt.raise(Cause::TimeLimit);
        assert!(play(SCRIPT, 4, &interrupt).0.unwrap_err().interrupted);
    }

    #[test]
    fn a_script_that_is_wrong_is_named_with_its_line() {
        for (script, words) in
            [("[\n{\"text\": 1}]", "line 2"), ("[\n\n{\"tekst\": \"\"}]", "line 3"), ("{}", "line 1")]
        {
            let failure = Failure::of(&Scripted::parse("script.json", script).unwrap_err());
            assert_eq!(failure.status, Status::Usage);
            assert!(failure.message.contains("script.json") && failure.message.contains(words), "{}", failure.message);
        }
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for name in ["missing.json", "../outside.json", "/etc/passwd", "."] {
            let failure = Failure::of(&Scripted::load(name, &root).unwrap_err());
            assert!(failure.message.contains(name), "{}", failure.message);
        }
        fs_err::write(folder.path().join("script.json"), "[{\"text\": \"x\"}]").unwrap();
        assert_eq!(Scripted::load("script.json", &root).unwrap().entries.len(), 1);
    }

    /// The demonstration mends the program that it is shipped with: what its calls say is true of those files.
    #[test]
    fn the_demonstration_fits_its_workspace() {
        let greet = include_str!("../../fixtures/demo/greet.sh");
        let entries = Scripted::parse(DEMO, DEMO_SCRIPT).unwrap().entries;
        let calls: Vec<&Call> = entries.iter().flat_map(|entry| &entry.tool_calls).collect();
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["list", "read", "search", "patch", "command"]);
        let edit = &calls[3].arguments["edits"][0];
        let (before, after) = (edit["before"].as_str().unwrap(), edit["after"].as_str().unwrap());
        assert_eq!(greet.matches(before).count(), 1);
        let pattern = calls[2].arguments["pattern"].as_str().unwrap();
        assert!(include_str!("../../fixtures/demo/test.sh").contains(pattern));
        let last = entries.last().unwrap();
        assert!(last.tool_calls.is_empty() && !last.text.is_empty());

        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("test.sh"), include_str!("../../fixtures/demo/test.sh")).unwrap();
        let argv: Vec<&str> =
            calls[4].arguments["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let passes = |program: &str| {
            fs_err::write(folder.path().join("greet.sh"), program).unwrap();
            let mut command = std::process::Command::new(argv[0]);
            command.args(&argv[1..]).current_dir(folder.path()).output().unwrap().status.success()
        };
        assert!(!passes(greet));
        assert!(passes(&greet.replace(before, after)));
    }
}
