//! The calls that most tests make: a program that leaves a mark when it runs, a patch, a read.

use serde_json::{Value, json};
use sha2::Digest;

use super::case::Case;
use super::reply::Reply;

/// Appends its argument to the file `order`.
const MARK_SCRIPT: &str = "echo \"$1\" >> order\necho \"marked $1\"\n";

impl Case {
    /// The script that [`Reply::mark`] runs.
    pub(crate) fn marks(self) -> Self {
        self.file("mark.sh", MARK_SCRIPT)
    }

    /// The marks left so far, in the order left.
    pub(crate) fn order(&self) -> Vec<String> {
        if self.exists("order") { self.read("order").lines().map(str::to_owned).collect() } else { Vec::new() }
    }

    /// Status, code and the first line of the content of one call's result.
    #[track_caller]
    pub(crate) fn outcome_of(&self, call_id: &str) -> (String, String, String) {
        let result = self.result(call_id);
        let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("code"), text("content").lines().next().unwrap_or_default().to_owned())
    }

    /// The ids that pending.json lists, with what each needs and what was decided (`-`: nothing yet).
    #[track_caller]
    pub(crate) fn pending_calls(&self) -> Vec<(String, String, String)> {
        let pending = self.pending().expect("there is a pending.json");
        let calls = pending["calls"].as_array().expect("it lists calls").iter();
        let text = |call: &Value, key: &str| call[key].as_str().unwrap_or("-").to_owned();
        calls.map(|call| (text(call, "id"), text(call, "needs"), text(call, "decision"))).collect()
    }
}

/// The argv of a mark.
pub(crate) fn mark(letter: &str) -> Vec<String> {
    ["sh", "mark.sh", letter].map(str::to_owned).to_vec()
}

/// The rule that lets a mark be left unasked, or never.
pub(crate) fn mark_rule(letter: &str, allow: bool) -> Value {
    json!({"type": "command", "allow": allow, "args": mark(letter)})
}

/// The digest of pending.json over its calls, as somebody who changed them would make it fit again.
pub(crate) fn pending_digest(calls: &Value) -> String {
    let fields = ["id", "operation", "name", "arguments", "needs", "why", "summary", "preview", "grant"];
    let shown = |call: &Value| fields.iter().map(|field| ((*field).to_owned(), call[field].clone())).collect::<Value>();
    let shown: Value = calls.as_array().into_iter().flatten().map(shown).collect();
    let hash = sha2::Sha256::digest(shown.to_string());
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

impl Reply {
    /// A command that leaves a mark; it asks unless a rule allows it.
    pub(crate) fn mark(self, letter: &str) -> Self {
        self.call("command", json!({"argv": mark(letter)}))
    }

    /// A question to the person.
    pub(crate) fn ask(self, question: &str, choices: &[&str]) -> Self {
        self.call("ask_user", json!({"question": question, "choices": choices}))
    }

    pub(crate) fn command(self, argv: &[&str]) -> Self {
        self.call("command", json!({"argv": argv}))
    }

    pub(crate) fn read(self, path: &str) -> Self {
        self.call("read", json!({"path": path}))
    }

    /// A patch of one file. Where git cannot give the content back it asks.
    pub(crate) fn replace(self, path: &str, before: &str, after: &str) -> Self {
        self.call("patch", json!({"edits": [{"path": path, "before": before, "after": after}]}))
    }

    pub(crate) fn create(self, path: &str, content: &str) -> Self {
        self.call("patch", json!({"edits": [{"path": path, "content": content}]}))
    }
}
