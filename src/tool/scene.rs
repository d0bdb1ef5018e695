//! What a test of a tool needs around it: a workspace and a session in a temporary folder. Tests alone use it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::{Assessment, Limits, Outcome, Overlay, Refusal, Surroundings, Tool, Work};
use crate::interrupt::Interrupt;
use crate::permission::{HostVerdict, ReadDenials};
use crate::session::folder::SessionFolder;
use crate::workspace::root::Root;
use crate::workspace::{Workspace, World};

pub(crate) struct Scene {
    folder: tempfile::TempDir,
    pub(crate) workspace: Workspace,
    pub(crate) session: SessionFolder,
    pub(crate) written: BTreeMap<String, String>,
    pub(crate) limits: Limits,
    pub(crate) read_denials: ReadDenials,
    pub(crate) interrupt: Interrupt,
}

impl Scene {
    /// A workspace `work` with these files, beside a folder `outside`, and with an empty session `main`.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        let session = work.join(".attini/sessions/main");
        for name in ["outputs", "tasks", "scratchpad"] {
            fs_err::create_dir_all(session.join(name)).unwrap();
        }
        fs_err::write(session.join("conversation.jsonl"), "{}\n").unwrap();
        fs_err::create_dir(folder.path().join("outside")).unwrap();
        let scene = Self {
            workspace: Workspace::open(&work).unwrap(),
            session: SessionFolder { name: "main".to_owned(), root: Root::open(&session).unwrap() },
            folder,
            written: BTreeMap::new(),
            limits: Limits {
                result_bytes: 32 * 1024,
                output_bytes: 1024 * 1024,
                command_timeout: Duration::from_secs(10),
            },
            read_denials: ReadDenials::default(),
            interrupt: Interrupt::default(),
        };
        for (path, text) in files {
            scene.write(path, text);
        }
        scene
    }

    /// A path relative to the workspace; `../outside/...` lies outside.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        let base = self.folder.path().canonicalize().unwrap();
        match path.strip_prefix("../") {
            Some(outside) => base.join(outside),
            None => base.join("work").join(path),
        }
    }

    pub(crate) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, bytes).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::os::unix::fs::symlink(target, path).unwrap();
    }

    /// Moves a folder away and puts a link in its place.
    pub(crate) fn swap(&self, path: &str, target: &str) {
        fs_err::rename(self.path(path), self.path("../swapped")).unwrap();
        self.link(path, target);
    }

    pub(crate) fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            workspace: &self.workspace,
            session: Some(&self.session),
            written: &self.written,
            limits: &self.limits,
            withheld_variables: &[],
            fetch_verdict: &|_| HostVerdict::Asks,
            read_denials: &self.read_denials,
            state: None,
        }
    }

    pub(crate) fn look(&self, tool: &dyn Tool, arguments: &Value) -> World {
        let mut world = World::default();
        tool.look(arguments, &self.surroundings(), &mut world);
        world
    }

    pub(crate) fn assess(&self, tool: &dyn Tool, arguments: &Value) -> Result<Assessment, Refusal> {
        tool.assess(arguments, &self.look(tool, arguments), &Overlay::new())
    }

    pub(crate) fn run_on(&self, tool: &dyn Tool, arguments: &Value, world: &World) -> Outcome {
        tool.run(&Work {
            arguments,
            surroundings: &self.surroundings(),
            world,
            files: &[],
            label: "call_1",
            interrupt: &self.interrupt,
            approved_by_person: false,
            answer: None,
            asked: None,
            live: &|_| {},
            output_bytes: &std::sync::atomic::AtomicU64::new(0),
        })
    }

    /// Looks, assesses and runs, as a call that needs nobody's word.
    #[track_caller]
    pub(crate) fn run(&self, tool: &dyn Tool, arguments: &Value) -> Outcome {
        let world = self.look(tool, arguments);
        match tool.assess(arguments, &world, &Overlay::new()) {
            Ok(_) => self.run_on(tool, arguments, &world),
            Err(refusal) => refusal.into(),
        }
    }
}
