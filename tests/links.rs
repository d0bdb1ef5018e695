//! A link, or anything but what belongs there, in the way to attini's own files: refused with 2, named, and untouched.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{Case, reply};

const COMMANDS: [&[&str]; 7] =
    [&["tell", "go"], &["approve"], &["deny"], &["resume"], &["status"], &["check"], &["diff"]];

/// What stands where a file or folder belongs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Obstacle {
    Link,
    DanglingLink,
    Pipe,
    /// A folder in place of a file, a file in place of a folder.
    Swapped,
}

impl Obstacle {
    /// Puts it there; a link leads to what was there before, kept elsewhere.
    fn put(self, case: &Case, path: &Path, is_folder: bool) {
        let kept = case.path("kept");
        if path.symlink_metadata().is_ok() {
            fs::rename(path, &kept).unwrap();
        } else if is_folder {
            fs::create_dir(&kept).unwrap();
        } else {
            fs::write(&kept, "").unwrap();
        }
        match self {
            Self::Link => symlink(&kept, path).unwrap(),
            Self::DanglingLink => symlink("nowhere", path).unwrap(),
            Self::Pipe => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
            Self::Swapped if is_folder => fs::write(path, "").unwrap(),
            Self::Swapped => fs::create_dir(path).unwrap(),
        }
    }
}

const OBSTACLES: [Obstacle; 4] = [Obstacle::Link, Obstacle::DanglingLink, Obstacle::Pipe, Obstacle::Swapped];

/// All files below, with what they hold, and where links lead.
fn snapshot(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        let held = if kind.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else if kind.is_file() {
            fs::read_to_string(&path).unwrap()
        } else {
            String::new()
        };
        if kind.is_dir() {
            found.extend(snapshot(&path));
        }
        found.push((path, held));
    }
    found.sort();
    found
}

#[track_caller]
fn assert_refused(case: &Case, arguments: &[&str], path: &Path) {
    let before = snapshot(&case.workspace());
    let outcome = case.run(arguments).exit(2);
    outcome.stdout("").stderr_contains(&path.strip_prefix(case.workspace()).unwrap().display().to_string());
    outcome.stderr_lacks(&format!("{}/", path.strip_prefix(case.workspace()).unwrap().display()));
    assert!(before == snapshot(&case.workspace()), "{arguments:?} changed something");
}

#[test]
fn nothing_in_a_session_folder_may_be_a_link() {
    let files = ["conversation.jsonl", "pending.json", "permissions.jsonl", "lock"].map(|name| (name, false));
    let folders = ["outputs", "before", "tasks", "scratchpad"].map(|name| (name, true));
    for (name, is_folder) in files.into_iter().chain(folders) {
        for obstacle in OBSTACLES {
            let case = Case::new().marks().script([reply().mark("a")]);
            case.run(["tell", "go"]).exit(10);
            let case = case.without_invariants();
            let path = case.session_path("main", name);
            obstacle.put(&case, &path, is_folder);
            for arguments in COMMANDS {
                eprintln!("{name}: {obstacle:?}: {arguments:?}");
                assert_refused(&case, arguments, &path);
            }
        }
    }
}

#[test]
fn no_folder_above_a_session_may_be_a_link() {
    for (name, leads) in
        [(".attini", true), (".attini/sessions", true), (".attini/sessions/main", true), (".attini/sessions", false)]
    {
        let case = Case::new().marks().script([reply().mark("a")]);
        case.run(["tell", "go"]).exit(10);
        let case = case.without_invariants();
        let path = case.path(name);
        let obstacle = if leads { Obstacle::Link } else { Obstacle::DanglingLink };
        obstacle.put(&case, &path, true);
        for arguments in COMMANDS {
            eprintln!("{name}: {obstacle:?}: {arguments:?}");
            assert_refused(&case, arguments, &path);
        }
    }
}

#[test]
fn what_keeps_sessions_out_of_commits_may_be_no_link_either() {
    for obstacle in OBSTACLES {
        let case = Case::new().file(".attini/.gitignore", "*.log\n");
        let path = case.path(".attini/.gitignore");
        obstacle.put(&case, &path, false);
        eprintln!("{obstacle:?}");
        assert_refused(&case, &["tell", "go"], &path);
        assert!(!case.exists(".attini/sessions"));
    }
}

#[test]
fn the_workspaces_rules_and_config_may_be_no_link() {
    for name in [".attini/permissions.jsonl", ".attini/config.toml"] {
        for obstacle in OBSTACLES {
            let case = Case::new().file(name, "");
            let path = case.path(name);
            obstacle.put(&case, &path, false);
            eprintln!("{name}: {obstacle:?}");
            assert_refused(&case, &["tell", "go"], &path);
        }
    }
}
