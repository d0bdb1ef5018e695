//! Several patches, each made on top of those before it, as the one change that they come to: for `attini diff`, since
//! `git apply` takes no file twice in one input.
//!
//! For each file: what it is before the first of them and after the last. Nothing is written or judged here.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::apply::FileChange;
use super::{Patch, diff};
use crate::session::record::PlannedFile;
use crate::tool::{Overlay, Refusal, Surroundings, Tool};
use crate::workspace::{Place, World};

/// What each of several patches changes, by what the files hold now.
#[derive(Debug, Default)]
pub struct Stack {
    patches: Vec<Result<Vec<FileChange>, Refusal>>,
}

/// One file's part of a net diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetPart {
    /// As [`PlannedFile::path`].
    pub path: String,
    pub moved_from: Option<String>,
    /// Whether it, or the place it is moved from, is none of the workspace's.
    pub is_outside: bool,
    /// In the exact form of [`diff`].
    pub bytes: Vec<u8>,
}

impl Stack {
    /// Makes each patch again, on top of those before it that can be made. The arguments fit the schema.
    pub fn look(arguments: &[&Value], surroundings: &Surroundings<'_>) -> Self {
        let tool = Patch::new();
        let mut overlay = Overlay::new();
        let mut stack = Self::default();
        for arguments in arguments {
            let mut world = World::default();
            tool.look(arguments, surroundings, &mut world);
            let changes = super::changes(arguments, &world, &overlay);
            overlay.extend(changes.as_deref().map(super::overlay_of).unwrap_or_default());
            stack.patches.push(changes);
        }
        stack
    }

    /// The files of one patch; `None`: it can no longer be made, or there is none of that number.
    pub fn files(&self, index: usize) -> Option<Vec<PlannedFile>> {
        let changes = self.patches.get(index)?.as_ref().ok()?;
        Some(changes.iter().map(|change| change.planned.clone()).collect())
    }

    /// What the patches of these numbers, in order, come to. What they stand on is to be among them; one that can no
    /// longer be made counts as none.
    pub fn net(&self, indices: &[usize]) -> Vec<NetPart> {
        let mut net = Net { files: Vec::new() };
        for index in indices {
            if let Some(Ok(changes)) = self.patches.get(*index) {
                net.add(changes);
            }
        }
        net.parts()
    }
}

struct Net<'s> {
    /// In the order first touched.
    files: Vec<NetFile<'s>>,
}

struct NetFile<'s> {
    change: &'s FileChange,
    before: Option<&'s Arc<[u8]>>,
    now: Option<&'s Arc<[u8]>>,
    executable: [bool; 2],
    /// The file that the content was moved from, through all moves.
    origin: Option<usize>,
}

impl<'s> Net<'s> {
    fn position(&self, path: &Path) -> Option<usize> {
        self.files.iter().position(|file| file.change.location.absolute == path)
    }

    fn add(&mut self, changes: &'s [FileChange]) {
        // All of a patch happens at once: where its files come from is told by what was there before all of it.
        let origins: Vec<Option<usize>> = self.files.iter().map(|file| file.origin).collect();
        for change in changes {
            if self.position(&change.location.absolute).is_none() {
                self.files.push(NetFile {
                    change,
                    before: change.before.as_ref(),
                    now: change.before.as_ref(),
                    executable: [change.executable[0]; 2],
                    origin: None,
                });
            }
        }
        for change in changes {
            let Some(index) = self.position(&change.location.absolute) else { continue };
            let origin = match (&change.origin, &change.before, &change.after) {
                (_, _, None) | (None, None, Some(_)) => None,
                (Some((path, _)), _, Some(_)) => {
                    self.position(path).map(|source| origins.get(source).copied().flatten().unwrap_or(source))
                }
                (None, Some(_), Some(_)) => origins.get(index).copied().flatten(),
            };
            let file = &mut self.files[index];
            file.now = change.after.as_ref();
            file.executable[1] = change.executable[1];
            // A file that comes back to where it was is no move at all.
            file.origin = origin.filter(|origin| *origin != index);
        }
    }

    fn parts(&self) -> Vec<NetPart> {
        let target_of = |origin: usize| {
            let is_target = |file: &NetFile<'_>| file.origin == Some(origin) && file.before.is_none();
            let is_gone = self.files[origin].before.is_some() && self.files[origin].now.is_none();
            self.files.iter().position(|file| is_target(file) && file.now.is_some()).filter(|_| is_gone)
        };
        let mut parts = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            let is_same = file.before == file.now && file.executable[0] == file.executable[1];
            // A move is told by the part of its target.
            if is_same || target_of(index).is_some() {
                continue;
            }
            let source =
                file.origin.filter(|origin| target_of(*origin) == Some(index)).map(|origin| &self.files[origin]);
            parts.push(part(file, source));
        }
        parts
    }
}

fn part(file: &NetFile<'_>, source: Option<&NetFile<'_>>) -> NetPart {
    let moved_from = source.and_then(|source| Some((source.change.planned.path.as_str(), source.before?.as_ref())));
    let path = &file.change.planned.path;
    let is_outside = |file: &NetFile<'_>| file.change.location.place != Place::Workspace;
    NetPart {
        path: path.clone(),
        moved_from: moved_from.map(|(path, _)| path.to_owned()),
        is_outside: is_outside(file) || source.is_some_and(is_outside),
        bytes: diff::exact(&diff::Part {
            path,
            before: file.before.map(AsRef::as_ref),
            after: file.now.map(AsRef::as_ref),
            moved_from,
            executable: [source.unwrap_or(file).executable[0], file.executable[1]],
        }),
    }
}
