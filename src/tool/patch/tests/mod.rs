//! The tool as a whole: a workspace to try it in, and what the tests share.

mod diffs;
mod effects;
mod rules;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::recover::{Recovery, clean_temporary_files, recover};
use super::write::{Failure, FileWrite, Places, State};
use super::*;
use crate::interrupt::Interrupt;
use crate::session::folder::SessionFolder;
use crate::session::record::ResultStatus;
use crate::tool::Limits;
use crate::workspace::root::{Root, TEMPORARY_PREFIX};
use crate::workspace::{FileState, Workspace};

const LIMITS: Limits = Limits { result_bytes: 32768, output_bytes: 1 << 30, command_timeout: Duration::from_secs(5) };

/// A workspace in a temporary folder, beside the folder of a session.
static NO_DENIALS: crate::permission::ReadDenials = crate::permission::ReadDenials::NONE;

struct Case {
    folder: tempfile::TempDir,
    workspace: Workspace,
    session: SessionFolder,
    written: BTreeMap<String, String>,
}

impl Case {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "session"] {
            fs_err::create_dir(folder.path().join(name)).unwrap();
        }
        let open = |name: &str| Root::open(&folder.path().join(name)).unwrap();
        let workspace = Workspace::new(open("work"));
        let session = SessionFolder { name: "main".to_owned(), root: open("session") };
        let case = Self { workspace, session, folder, written: BTreeMap::new() };
        for (path, bytes) in files {
            let path = case.path(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, bytes).unwrap();
        }
        case
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.workspace.root.path().join(relative)
    }

    fn read(&self, relative: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path(relative)).ok()
    }

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            workspace: &self.workspace,
            session: Some(&self.session),
            written: &self.written,
            limits: &LIMITS,
            withheld_variables: &[],
            fetch_verdict: &|_| crate::permission::HostVerdict::Asks,
            read_denials: &NO_DENIALS,
            state: None,
        }
    }

    fn world(&self, edits: &Value) -> World {
        let mut world = World::default();
        Patch::new().look(edits, &self.surroundings(), &mut world);
        world
    }

    fn assess(&self, edits: &Value) -> Result<Assessment, Refusal> {
        assess(edits, &self.world(edits), &Overlay::new())
    }

    fn run_as(&self, edits: &Value, files: &[PlannedFile]) -> Outcome {
        Patch::new().run(&Work {
            arguments: edits,
            surroundings: &self.surroundings(),
            world: &self.world(edits),
            files,
            label: "call_1",
            interrupt: &Interrupt::default(),
            approved_by_person: false,
            answer: None,
            asked: None,
            live: &|_| {},
            output_bytes: &std::sync::atomic::AtomicU64::new(0),
        })
    }

    fn run(&self, edits: &Value) -> Outcome {
        let assessment = self.assess(edits).unwrap();
        self.run_as(edits, &assessment.files)
    }

    /// Every path below the workspace with what it holds, so that nothing is overlooked.
    fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                if path.is_symlink() {
                    found.insert(name, format!("-> {}", path.read_link().unwrap().display()).into_bytes());
                } else if path.is_dir() {
                    found.insert(format!("{name}/"), Vec::new());
                    walk(root, &path, found);
                } else {
                    found.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(self.workspace.root.path(), self.workspace.root.path(), &mut found);
        found
    }
}

fn edits(edits: &Value) -> Value {
    json!({ "edits": edits })
}

fn plan(files: &[PlannedFile]) -> Vec<(&str, Change, bool, bool)> {
    files
        .iter()
        .map(|file| (file.path.as_str(), file.change, file.sha256_before.is_some(), file.sha256_after.is_some()))
        .collect()
}

fn tree(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
}

/// What a patch comes to; one that would fail as its refusal.
fn assess(edits: &Value, world: &World, overlay: &Overlay) -> Result<Assessment, Refusal> {
    let assessment = Patch::new().assess(edits, world, overlay)?;
    match &assessment.moot {
        Some(moot) => Err(moot.refusal().clone()),
        None => Ok(assessment),
    }
}
