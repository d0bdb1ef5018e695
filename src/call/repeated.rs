//! Duplicates: a read that was done before in this invocation is answered from memory, where that is true.
//!
//! Reads alone, successes alone, within one invocation alone. A side effect that starts drops the local reads that it
//! could change; a file's read counts only while the file's size, time and inode are what they were before it.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::checked::CheckedCall;
use crate::session::record::{Attachment, PlannedFile};
use crate::tool::{Effect, Locality};
use crate::workspace::mounts::Mounts;
use crate::workspace::{Kind, Place, World};

/// How much content is remembered; beyond it nothing new is.
const REMEMBERED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// `code` of a result that was given from memory.
pub const CODE: &str = "repeated";

/// A read by what it asks for: the tool's name and its canonical arguments, the path resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

/// What the reads of this invocation have found.
#[derive(Debug, Default)]
pub struct Memory {
    found: HashMap<Key, Found>,
    bytes: usize,
}

/// A result that may serve again.
#[derive(Debug, Clone)]
pub struct Found {
    pub content: String,
    pub attachments: Vec<Attachment>,
    pub output_file: Option<String>,
    reach: Reach,
}

/// Which part of the world a result depends on.
#[derive(Debug, Clone)]
enum Reach {
    /// One file, as it was before it was read.
    File { path: PathBuf, mark: Option<Mark> },
    /// Everything below a folder, and what `.gitignore` files say about it.
    Tree(PathBuf),
    /// Nothing on this machine.
    Elsewhere,
}

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// What a read about to run will depend on, looked at before it runs, so that a change meanwhile is noticed later.
#[derive(Debug, Clone)]
pub struct Prospect {
    key: Key,
    reach: Reach,
}

/// The key of a call that may be answered from memory; `None` for side effects, and for reads that ask anew each time.
pub fn key(call: &CheckedCall<'_>, world: &World) -> Option<Key> {
    if call.tool.tool.effect() != Effect::Read || call.tool.tool.asks_anew(&call.arguments) {
        return None;
    }
    let mut arguments = call.arguments.clone();
    if let Some(path) = arguments.get_mut("path")
        && let Some(location) = path.as_str().and_then(|written| world.locations.get(written))
    {
        *path = Value::from(location.as_ref().ok()?.absolute.to_str()?);
    }
    Some(Key(format!("{} {}", call.tool.name(), canonical(&arguments))))
}

/// What a call that is about to run will depend on; `None` where it is not to be remembered.
pub fn prospect(call: &CheckedCall<'_>, world: &World) -> Option<Prospect> {
    let key = key(call, world)?;
    let reach = match call.tool.tool.locality() {
        Locality::Elsewhere => Reach::Elsewhere,
        Locality::Here => {
            let written = call.arguments.get("path")?.as_str()?;
            let location = world.locations.get(written)?.as_ref().ok()?;
            match (location.kind, location.place) {
                (Kind::Folder, _) => Reach::Tree(location.absolute.clone()),
                (Kind::File | Kind::Absent | Kind::Other, Place::Workspace | Place::Outside | Place::Session) => {
                    Reach::File { path: location.absolute.clone(), mark: Mark::of(&location.absolute) }
                }
            }
        }
    };
    Some(Prospect { key, reach })
}

impl Memory {
    /// Keeps the content of a read that ended well.
    pub fn remember(
        &mut self,
        prospect: Prospect,
        content: &str,
        attachments: &[Attachment],
        output_file: Option<&str>,
    ) {
        if self.bytes + content.len() > REMEMBERED_BYTES_MAX {
            return;
        }
        self.bytes += content.len();
        let found = Found {
            content: content.to_owned(),
            attachments: attachments.to_vec(),
            output_file: output_file.map(str::to_owned),
            reach: prospect.reach,
        };
        if let Some(before) = self.found.insert(prospect.key, found) {
            self.bytes -= before.content.len();
        }
    }

    /// Drops what is no longer true of the files read; to be called before a plan asks.
    pub fn refresh(&mut self) {
        self.retain(|found| match &found.reach {
            Reach::File { path, mark } => mark.is_some() && Mark::of(path) == *mark,
            Reach::Tree(_) | Reach::Elsewhere => true,
        });
    }

    pub fn get(&self, key: &Key) -> Option<&Found> {
        self.found.get(key)
    }

    /// A patch of these files starts: drops the reads that cover them. `root` is the workspace's, `mounts` is what is
    /// mounted where: by its path alone a file is known to lie outside a folder only within one mount.
    pub fn drop_for_patch(&mut self, files: &[PlannedFile], root: &Path, mounts: &Mounts) {
        let changed: Vec<PathBuf> = files.iter().map(|file| root.join(&file.path)).collect();
        let ignores =
            changed.iter().any(|path| path.file_name().is_some_and(|name| name == ".gitignore" || name == ".ignore"));
        self.retain(|found| match &found.reach {
            Reach::File { path, .. } => !changed.contains(path),
            Reach::Tree(folder) => {
                !ignores && changed.iter().all(|path| !path.starts_with(folder) && mounts.holds_apart(folder, path))
            }
            Reach::Elsewhere => true,
        });
    }

    /// Something that may change anything here starts: drops every local read.
    pub fn drop_local(&mut self) {
        self.retain(|found| matches!(found.reach, Reach::Elsewhere));
    }

    fn retain(&mut self, keep: impl Fn(&Found) -> bool) {
        self.found.retain(|_, found| keep(found));
        self.bytes = self.found.values().map(|found| found.content.len()).sum();
    }
}

/// The value as text with the keys of every object sorted, so that equal arguments are equal texts.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<(&String, &Value)> = object.iter().collect();
            entries.sort_by_key(|(name, _)| name.as_str());
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(canonical).collect();
            format!("[{}]", values.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::record::Change;

    fn found_in(reach: Reach) -> Memory {
        let mut memory = Memory::default();
        memory.remember(Prospect { key: Key("x".to_owned()), reach }, "content", &[], None);
        memory
    }

    fn knows(memory: &Memory) -> bool {
        memory.get(&Key("x".to_owned())).is_some()
    }

    fn planned(path: &str) -> PlannedFile {
        PlannedFile { path: path.to_owned(), change: Change::Update, sha256_before: None, sha256_after: None }
    }

    #[test]
    fn equal_arguments_are_equal_whatever_their_order() {
        let one = json!({"b": [1, {"y": 1, "x": 2}], "a": "t"});
        let other = json!({"a": "t", "b": [1, {"x": 2, "y": 1}]});
        assert_eq!(canonical(&one), canonical(&other));
        assert_ne!(canonical(&one), canonical(&json!({"a": "t", "b": [{"x": 2, "y": 1}, 1]})));
        assert_ne!(canonical(&json!("1")), canonical(&json!(1)));
    }

    #[test]
    fn a_patch_drops_what_covers_its_paths_and_nothing_else() {
        let root = Path::new("/w");
        for (reach, patched, stays) in [
            (Reach::Tree("/w/src".into()), "src/a.rs", false),
            (Reach::Tree("/w/src".into()), "srcs/a.rs", true),
            (Reach::Tree("/w/src".into()), ".gitignore", false),
            (Reach::Tree("/w/src".into()), "doc/.gitignore", false),
            (Reach::Tree("/w/src".into()), ".ignore", false),
            (Reach::Tree("/w".into()), "doc/a.md", false),
            (Reach::File { path: "/w/a".into(), mark: None }, "a", false),
            (Reach::File { path: "/w/a".into(), mark: None }, "b", true),
            (Reach::File { path: "/w/a".into(), mark: None }, ".gitignore", true),
            (Reach::File { path: "/else/a".into(), mark: None }, "/else/a", false),
            (Reach::Elsewhere, "a", true),
        ] {
            let mut memory = found_in(reach.clone());
            memory.drop_for_patch(&[planned(patched)], root, &Mounts::of(&["/"]));
            assert_eq!(knows(&memory), stays, "{reach:?} {patched}");
        }
    }

    #[test]
    fn a_command_drops_every_local_read() {
        for (reach, stays) in [(Reach::Tree("/w".into()), false), (Reach::Elsewhere, true)] {
            let mut memory = found_in(reach);
            memory.drop_local();
            assert_eq!(knows(&memory), stays);
        }
    }

    #[test]
    fn a_file_that_changed_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs_err::write(&path, "one").unwrap();
        let mut memory = found_in(Reach::File { path: path.clone(), mark: Mark::of(&path) });
        memory.refresh();
        assert!(knows(&memory));
        fs_err::write(&path, "longer").unwrap();
        memory.refresh();
        assert!(!knows(&memory));
        let mut memory = found_in(Reach::File { path: path.clone(), mark: Mark::of(&path) });
        // The same size, in a new file under the old name.
        fs_err::write(folder.path().join("b"), "longer").unwrap();
        fs_err::rename(folder.path().join("b"), &path).unwrap();
        memory.refresh();
        assert!(!knows(&memory));
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        let large = "x".repeat(REMEMBERED_BYTES_MAX);
        let prospect = |name: &str| Prospect { key: Key(name.to_owned()), reach: Reach::Elsewhere };
        memory.remember(prospect("large"), &large, &[], None);
        memory.remember(prospect("more"), "x", &[], None);
        assert!(memory.get(&Key("more".to_owned())).is_none());
        memory.drop_local();
        memory.remember(prospect("large"), "small", &[], None);
        assert_eq!(memory.get(&Key("large".to_owned())).map(|found| found.content.as_str()), Some(large.as_str()));
    }
}
