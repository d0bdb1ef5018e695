//! A server's list of tools: what is kept of it between invocations, and what changed since it was last seen.
//!
//! Lists lie in `cache/mcp/`, each under a hash of its server's config and of the folder that it was written in, and may
//! be deleted at any time. A list that came with a checkout is thus never found: it would put words into the prompt.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::schema;
use crate::config::McpConfig;
use crate::session::folder::FILE_MODE;
use crate::workspace::git::hex;
use crate::workspace::root::Root;

/// The folder of the lists in the cache.
pub(super) const CACHE: &str = "mcp";
const FORMAT: u32 = 3;
/// A larger file is no list that attini wrote.
const LIST_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How many names a warning about changes tells of each kind.
const NAMES_TOLD_MAX: usize = 10;

/// One tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ListedTool {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    /// The schema of its arguments.
    pub(super) schema: RawSchema,
    /// Why no call could be validated against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unusable: Option<String>,
}

impl ListedTool {
    pub(super) fn new(name: String, description: String, schema: &Value) -> Self {
        let unusable = schema::check(schema).err();
        Self { name, description, schema: RawSchema::of(schema), unusable }
    }
}

/// A schema as its text: of most tools it is never read.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct RawSchema(Box<RawValue>);

impl RawSchema {
    fn of(schema: &Value) -> Self {
        // A value is always written, and so is what takes its place.
        Self(serde_json::value::to_raw_value(schema).unwrap_or_default())
    }

    /// What cannot be read fits no call either.
    pub(super) fn read(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }
}

impl PartialEq for RawSchema {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get() || self.read() == other.read()
    }
}

/// How a server wants to be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Lifecycle {
    /// With a handshake, as all protocols before 2026-07-28 have it.
    Handshake,
    /// Each request says all there is to say.
    Stateless,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolList {
    format: u32,
    pub(super) lifecycle: Lifecycle,
    /// It is not to be offered any more, but is what was last seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_stale: bool,
    pub(super) tools: Vec<ListedTool>,
}

impl ToolList {
    pub(super) fn new(lifecycle: Lifecycle, tools: Vec<ListedTool>) -> Self {
        Self { format: FORMAT, lifecycle, is_stale: false, tools }
    }
}

/// The lists that are kept.
pub(super) struct Lists {
    folder: Root,
    /// [`Root::birth`] of the folder.
    birth: Option<String>,
}

impl Lists {
    pub(super) fn new(folder: Root) -> Self {
        let birth = folder.birth();
        Self { folder, birth }
    }

    /// Whether lists that someone else put here would be believed.
    pub(super) fn are_foreseeable(&self) -> bool {
        self.birth.is_none()
    }

    /// What makes a server the same one: the program and its environment. How long it may take does not.
    fn file_of(&self, server: &McpConfig) -> PathBuf {
        let identity = json!({"format": FORMAT, "folder": self.birth, "command": server.command, "env": server.env});
        PathBuf::from(format!("{}.json", hex(&Sha256::digest(identity.to_string().as_bytes()))))
    }

    /// The list to offer; `None` where there is none, or none that still holds: it is then asked for again.
    pub(super) fn load(&self, server: &McpConfig) -> Option<ToolList> {
        self.last_seen(server).filter(|list| !list.is_stale)
    }

    /// The list as it was last seen, whether or not it still holds; `None` where there is none that can be read.
    pub(super) fn last_seen(&self, server: &McpConfig) -> Option<ToolList> {
        let bytes = self.folder.read(&self.file_of(server), LIST_BYTES_MAX).ok()?;
        let list: ToolList = serde_json::from_slice(&bytes).ok()?;
        (list.format == FORMAT).then_some(list)
    }

    pub(super) fn store(&self, server: &McpConfig, list: &ToolList) -> io::Result<()> {
        self.folder.replace(&self.file_of(server), &serde_json::to_vec(list)?, FILE_MODE)
    }

    /// The list is asked for again next time, and what changed is then told.
    pub(super) fn mark_stale(&self, server: &McpConfig) {
        let Some(list) = self.load(server) else { return };
        // What cannot be written is only offered once more.
        let _ = self.store(server, &ToolList { is_stale: true, ..list });
    }
}

/// What is different in `new`, in words; `None` if nothing is.
pub(super) fn changes(old: &[ListedTool], new: &[ListedTool]) -> Option<String> {
    let find = |tools: &[ListedTool], name: &str| tools.iter().find(|tool| tool.name == name).cloned();
    let kinds: [(&str, Vec<&str>); 4] = [
        ("new: ", names(new, |tool| find(old, &tool.name).is_none())),
        ("gone: ", names(old, |tool| find(new, &tool.name).is_none())),
        (
            "described differently: ",
            names(new, |tool| find(old, &tool.name).is_some_and(|before| before.description != tool.description)),
        ),
        (
            "with another schema: ",
            names(new, |tool| find(old, &tool.name).is_some_and(|before| before.schema != tool.schema)),
        ),
    ];
    let told: Vec<String> = kinds
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| format!("{kind}{}", enumeration(&names)))
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn names(tools: &[ListedTool], wanted: impl Fn(&ListedTool) -> bool) -> Vec<&str> {
    tools.iter().filter(|tool| wanted(tool)).map(|tool| tool.name.as_str()).collect()
}

fn enumeration(names: &[&str]) -> String {
    let told = names.iter().take(NAMES_TOLD_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMES_TOLD_MAX) {
        None | Some(0) => told,
        Some(more) => format!("{told} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn tool(name: &str, description: &str, schema: &Value) -> ListedTool {
        ListedTool::new(name.to_owned(), description.to_owned(), schema)
    }

    fn server(word: &str) -> McpConfig {
        McpConfig { command: vec![word.to_owned()], ..McpConfig::default() }
    }

    #[test]
    fn a_list_is_kept_for_one_config() {
        let folder = tempfile::tempdir().unwrap();
        let lists = Lists::new(Root::open(folder.path()).unwrap());
        let list = ToolList::new(Lifecycle::Handshake, vec![tool("a", "A.", &json!({"type": "object"}))]);
        assert_eq!(lists.load(&server("x")), None);
        lists.store(&server("x"), &list).unwrap();
        assert_eq!(lists.load(&server("x")), Some(list.clone()));
        assert_eq!(lists.load(&server("y")), None);
        let patient = McpConfig { timeout_s: 7, start_timeout_s: 8, ..server("x") };
        assert_eq!(lists.load(&patient), Some(list.clone()));
        let other = McpConfig { env: [("A".to_owned(), "1".to_owned())].into(), ..server("x") };
        assert_eq!(lists.load(&other), None);
        let path = folder.path().join(lists.file_of(&server("x")));
        assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        for broken in ["", "{}", r#"{"format":1,"lifecycle":"handshake","tools":[]}"#] {
            fs_err::write(&path, broken).unwrap();
            assert_eq!(lists.load(&server("x")), None, "{broken}");
        }
        fs_err::write(&path, r#"{"format":3,"lifecycle":"stateless","tools":[],"later":1}"#).unwrap();
        assert_eq!(lists.load(&server("x")), Some(ToolList::new(Lifecycle::Stateless, Vec::new())));
        lists.mark_stale(&server("x"));
        lists.mark_stale(&server("x"));
        assert_eq!(lists.load(&server("x")), None);
        assert_eq!(lists.last_seen(&server("x")).map(|list| list.lifecycle), Some(Lifecycle::Stateless));
    }

    #[test]
    fn changes_are_told_by_kind() {
        let old = [tool("a", "A.", &json!({})), tool("b", "B.", &json!({})), tool("c", "C.", &json!({}))];
        let new = [tool("a", "Other.", &json!({"x": 1})), tool("c", "C.", &json!({})), tool("d", "D.", &json!({}))];
        assert_eq!(
            changes(&old, &new).as_deref(),
            Some("new: d; gone: b; described differently: a; with another schema: a")
        );
        let turned: Vec<ListedTool> = old.iter().rev().cloned().collect();
        assert_eq!(changes(&old, &turned), None);
        let many: Vec<ListedTool> = (0..12).map(|number| tool(&format!("t{number}"), "", &json!({}))).collect();
        assert_eq!(changes(&[], &many).as_deref(), Some("new: t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 2 more"));
    }
}
