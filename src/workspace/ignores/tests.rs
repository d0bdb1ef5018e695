use std::process::Command;

use super::*;
use crate::workspace::walk::{self, Filter};
use crate::workspace::{Kind, Location, Place};

fn location(folder: &Path) -> Location {
    Location {
        place: Place::Workspace,
        shown: ".".to_owned(),
        path: PathBuf::from("."),
        absolute: folder.canonicalize().unwrap(),
        kind: Kind::Folder,
        secret: false,
        never_writable: None,
        always_asks: false,
    }
}

/// The files that a walk shows, and what it tells.
fn walked(folder: &Path) -> (Vec<String>, Vec<String>) {
    let location = location(folder);
    let (walk, omissions) = walk::builder(
        &location,
        &Filter { hidden: true, glob: None, depth: None, read_denials: crate::permission::ReadDenials::NONE },
    );
    let shown = |entry: ignore::DirEntry| {
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        is_file.then(|| entry.path().strip_prefix(&location.absolute).unwrap().to_string_lossy().into_owned())
    };
    let mut files: Vec<String> = walk.build().filter_map(Result::ok).filter_map(shown).collect();
    files.sort();
    (files, omissions.notes())
}

fn write(folder: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = folder.join(path);
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, text).unwrap();
}

fn git(folder: &Path, arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new("git").args(arguments).current_dir(folder).output().ok()?;
    output.status.success().then(|| {
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    })
}

/// A tree of files and ignore files, the same for the same seed.
fn generated(folder: &Path, seed: u64, with_dot_ignore: bool) {
    const RULES: [&str; 20] = [
        "*.log",
        "!keep.log",
        "/build",
        "build/",
        "a/**/x",
        "**/y",
        "c/*",
        "!c/y",
        "b",
        "/b/c",
        "# b",
        "\\!odd",
        "x ",
        "*.t?t",
        "[ab].log",
        "!/a",
        "a/",
        "c/**",
        "",
        "d/e",
    ];
    const NAMES: [&str; 9] = ["a", "b", "c", "d", "build", "e", "f", "g", "h"];
    const FILES: [&str; 8] = ["x", "y", "a.log", "keep.log", "n.txt", "!odd", "b", "build"];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let mut folders = vec![String::new()];
    for _ in 0..14 {
        let parent = folders[next(folders.len())].clone();
        folders.push(format!("{parent}{}/", NAMES[next(NAMES.len())]));
    }
    for of in &folders {
        fs_err::create_dir_all(folder.join(of)).unwrap();
        for _ in 0..4 {
            let path = folder.join(format!("{of}{}", FILES[next(FILES.len())]));
            if !path.is_dir() && fs_err::create_dir_all(path.parent().unwrap()).is_ok() {
                let _ = fs_err::write(path, "x");
            }
        }
        if next(3) == 0 || of.is_empty() {
            let rules: Vec<&str> = (0..5).map(|_| RULES[next(RULES.len())]).collect();
            write(folder, &format!("{of}.gitignore"), rules.join(if next(2) == 0 { "\n" } else { "\r\n" }));
        }
        if with_dot_ignore && next(4) == 0 {
            let rules: Vec<&str> = (0..3).map(|_| RULES[next(RULES.len())]).collect();
            write(folder, &format!("{of}.ignore"), rules.join("\n"));
        }
    }
}

fn generate(folder: &Path, seed: u64, with_dot_ignore: bool) {
    // A file may stand where a folder is to be; such a tree is made from the next seed.
    for attempt in 0.. {
        let tree = tempfile::tempdir_in(folder).unwrap();
        let made = std::panic::catch_unwind(|| generated(tree.path(), seed + attempt * 1000, with_dot_ignore));
        if made.is_ok() {
            fs_err::rename(tree.keep(), folder.join("tree")).unwrap();
            return;
        }
    }
}

#[test]
fn a_walk_shows_what_git_does_not_ignore() {
    for seed in 1..=25 {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), seed, false);
        let tree = folder.path().join("tree");
        if git(&tree, &["init", "-q"]).is_none() {
            return;
        }
        write(&tree, ".git/info/exclude", "h\n!f\n");
        let expected = git(&tree, &["-c", "core.quotePath=false", "ls-files", "-co", "--exclude-standard"]).unwrap();
        assert_eq!(walked(&tree), (expected, Vec::new()), "seed {seed}");
    }
}

#[test]
fn a_walk_shows_what_ripgrep_shows() {
    for seed in 1..=25 {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), seed, true);
        let tree = folder.path().join("tree");
        let ripgrep = Command::new("rg")
            .args(["--files", "--hidden", "--no-require-git", "--no-ignore-parent", "--sort=path"])
            .current_dir(&tree)
            .output();
        let Ok(output) = ripgrep else { return };
        let mut expected: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        expected.sort();
        assert_eq!(walked(&tree), (expected, Vec::new()), "seed {seed}");
    }
}

#[test]
fn rules_reach_as_far_as_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path();
    for file in ["in/a.x", "in/b", "in/nested/a.x", "in/nested/.git/config", "in/nested/b", "in/nested/c"] {
        write(top, file, "");
    }
    write(top, ".git/config", "");
    write(top, ".gitignore", "*.x\n");
    write(top, "in/.ignore", "c\n");
    write(top, "in/nested/.git/info/exclude", "b\n");
    let (files, notes) = walked(&top.join("in"));
    assert_eq!(notes, [] as [&str; 0]);
    assert_eq!(files, [".ignore", "b", "nested/a.x"]);
}

#[test]
fn an_ignore_file_that_is_none_is_passed_over_and_told() {
    type Make = fn(&Path);
    let make: [(&str, Make); 6] = [
        ("an endless device", |at| std::os::unix::fs::symlink("/dev/zero", at).unwrap()),
        ("a pipe", |at| {
            assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
        }),
        ("a link to rules elsewhere", |at| {
            let rules = at.with_file_name("rules");
            fs_err::write(&rules, "shown\n").unwrap();
            std::os::unix::fs::symlink("rules", at).unwrap();
        }),
        ("a folder", |at| fs_err::create_dir(at).unwrap()),
        ("a huge file", |at| fs_err::File::create(at).unwrap().set_len(3 << 30).unwrap()),
        ("a file just too large", |at| {
            fs_err::write(at, "shown\n".repeat(FILE_BYTES_MAX / 6 + 1)).unwrap();
        }),
    ];
    for (what, make) in make {
        for name in [".gitignore", ".ignore", "sub/.gitignore", "sub/.ignore", ".git/info/exclude"] {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), "sub/shown", "");
            write(folder.path(), ".git/info/other", "");
            make(&folder.path().join(name));
            let (files, notes) = walked(folder.path());
            assert!(files.contains(&"sub/shown".to_owned()), "{what} {name}: {files:?}");
            let expected = format!("ignore rules not followed: {name}; a link, no regular file");
            assert!(notes.len() == 1 && notes[0].starts_with(&expected), "{what} {name}: {notes:?}");
        }
    }
}

#[test]
fn all_rules_together_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let rules = format!("{}\nshown\n", "#".repeat(FILE_BYTES_MAX - 100));
    for number in 10..20 {
        write(folder.path(), &format!("{number}/.gitignore"), &rules);
        write(folder.path(), &format!("{number}/shown"), "");
    }
    let (files, notes) = walked(folder.path());
    let shown = files.iter().filter(|file| file.ends_with("shown")).count();
    assert_eq!(shown, 10 - WALK_BYTES_MAX / FILE_BYTES_MAX, "{files:?}");
    assert!(notes[0].contains("18/.gitignore, 19/.gitignore"), "{notes:?}");
}

#[test]
fn a_line_that_is_no_rule_loses_itself_alone() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), ".gitignore", b"\xef\xbb\xbfone\nbad[\n\xff\ntwo\r\n");
    for file in ["one", "two", "three"] {
        write(folder.path(), file, "");
    }
    assert_eq!(walked(folder.path()), (vec![".gitignore".to_owned(), "three".to_owned()], Vec::new()));
}
