//! Which folder a turn works in. Git is not asked: a `.git` on the way up is enough.

use std::path::{Path, PathBuf};

use super::Workspace;
use crate::failure::Failure;

/// The folder of the workspace's own config, rules and sessions.
const ATTINI_FOLDER: &str = ".attini";

impl Workspace {
    /// The workspace of an invocation: the folder that was named (`-C`, `ATTINI_WORKSPACE`), else the nearest one with
    /// `.attini/` from `cwd` up to the git top level, else the git top level, else `cwd`.
    pub fn discover(explicit: Option<&Path>, cwd: &Path) -> anyhow::Result<Self> {
        let folder = match explicit {
            Some(named) => cwd.join(named),
            None => nearest_workspace(&cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned())),
        };
        Self::open(&folder).map_err(|error| {
            let failure = Failure::usage(format!("cannot use {} as the workspace: {error}", folder.display()));
            failure.hint("name an existing folder with -C or ATTINI_WORKSPACE").into()
        })
    }
}

fn nearest_workspace(cwd: &Path) -> PathBuf {
    let Some(top) = git_top_level(cwd) else { return cwd.to_owned() };
    cwd.ancestors()
        .take_while(|folder| folder.starts_with(top))
        .find(|folder| folder.join(ATTINI_FOLDER).is_dir())
        .unwrap_or(top)
        .to_owned()
}

/// The nearest folder from `folder` up that holds `.git`: a folder, or the file of a worktree or submodule.
pub fn git_top_level(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_attini_folder_wins_up_to_the_git_top_level() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        for path in
            ["repository/.git", "repository/service/.attini", "repository/service/src", "repository/docs", "loose/a"]
        {
            fs_err::create_dir_all(base.join(path)).unwrap();
        }
        fs_err::create_dir_all(base.join("worktree/src")).unwrap();
        fs_err::write(base.join("worktree/.git"), "gitdir: ../repository/.git/worktrees/w\n").unwrap();
        // Above a git top level nothing counts.
        fs_err::create_dir(base.join(".attini")).unwrap();
        for (cwd, expected) in [
            ("repository/service/src", "repository/service"),
            ("repository/service", "repository/service"),
            ("repository/docs", "repository"),
            ("repository", "repository"),
            ("worktree/src", "worktree"),
            ("loose/a", "loose/a"),
        ] {
            let found = Workspace::discover(None, &base.join(cwd)).unwrap();
            assert_eq!(found.root.path(), base.join(expected), "from {cwd}");
        }
        let named = Workspace::discover(Some(Path::new("../docs")), &base.join("repository/service")).unwrap();
        assert_eq!(named.root.path(), base.join("repository/docs"));
    }

    #[test]
    fn a_named_workspace_must_be_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("file"), "").unwrap();
        for name in ["file", "absent"] {
            let error = Workspace::discover(Some(Path::new(name)), folder.path()).unwrap_err();
            let failure = Failure::of(&error);
            assert_eq!(failure.status, crate::exit::Status::Usage, "{name}");
            assert!(failure.message.contains(name), "{}", failure.message);
        }
    }
}
