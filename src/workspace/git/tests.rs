use super::*;

struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    fn new(format: &str) -> Self {
        let repository = Self { folder: tempfile::tempdir().unwrap() };
        repository.git(&["init", "-q", "--object-format", format]);
        repository
    }

    #[track_caller]
    fn git(&self, arguments: &[&str]) {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
            command.env_remove(name);
        }
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "nobody").env(format!("GIT_{role}_EMAIL"), "nobody@localhost");
        }
        let output = command
            .args(["-c", "protocol.file.allow=always", "-c", "core.autocrlf=false"])
            .args(arguments)
            .current_dir(self.folder.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    #[track_caller]
    fn answers(&self, cases: &[(&str, &str, Result<&str, &str>)]) {
        let files: Vec<Candidate<'_>> =
            cases.iter().map(|(path, bytes, _)| Candidate { path: Path::new(path), bytes: bytes.as_bytes() }).collect();
        let answers = gives_back(self.folder.path(), &files, &[]);
        for ((path, _, expected), answer) in cases.iter().zip(&answers) {
            let answer = answer.as_ref().map(String::as_str).map_err(String::as_str);
            assert_eq!(answer, *expected, "{path}");
        }
        assert_eq!(answers.len(), cases.len());
    }
}

const HAS_IT: Result<&str, &str> = Ok("git has these bytes");
const UNTRACKED: Result<&str, &str> = Err("it is not tracked by git");
const DIFFERS: Result<&str, &str> = Err("its bytes differ from those in git's index");

#[test]
fn only_the_very_bytes_of_the_index_can_be_given_back() {
    for format in ["sha1", "sha256"] {
        let repository = Repository::new(format);
        for path in ["same", "changed", "sub/b c\t\u{e9}.txt", "*", ":(glob)x", "skipped", "assumed", "program"] {
            repository.write(path, "text\n");
        }
        repository.write("empty", "");
        repository.git(&["add", "-A"]);
        repository.git(&["update-index", "--skip-worktree", "skipped"]);
        repository.git(&["update-index", "--assume-unchanged", "assumed"]);
        repository.git(&["update-index", "--chmod=+x", "program"]);
        repository.write("new", "text\n");
        repository.write("intended", "text\n");
        repository.git(&["add", "-N", "intended"]);
        repository.answers(&[
            ("same", "text\n", HAS_IT),
            ("changed", "other\n", DIFFERS),
            ("sub/b c\t\u{e9}.txt", "text\n", HAS_IT),
            ("*", "text\n", HAS_IT),
            (":(glob)x", "text\n", HAS_IT),
            ("program", "text\n", HAS_IT),
            ("empty", "", HAS_IT),
            ("new", "text\n", UNTRACKED),
            ("absent", "text\n", UNTRACKED),
            ("sub", "text\n", UNTRACKED),
            ("intended", "text\n", DIFFERS),
            ("skipped", "text\n", Err("git is told to leave it alone (skip-worktree)")),
            ("assumed", "text\n", Err("git is told to take it for unchanged (assume-unchanged)")),
        ]);
    }
}

#[test]
fn a_file_that_a_filter_changed_cannot_be_given_back() {
    let repository = Repository::new("sha1");
    repository.write(".gitattributes", "*.txt text eol=crlf\n*.up filter=up\n");
    repository.git(&["config", "filter.up.clean", "tr a-z A-Z"]);
    repository.write("dos.txt", "one\r\n");
    repository.write("x.up", "text\n");
    repository.git(&["add", "-A"]);
    // If the filter ran now, the bytes would seem to be those of the index.
    repository.git(&["config", "filter.up.clean", "touch ran; tr a-z A-Z"]);
    repository.answers(&[("dos.txt", "one\r\n", DIFFERS), ("x.up", "text\n", DIFFERS)]);
    assert!(!repository.folder.path().join("ran").exists());
}

#[test]
fn hooks_and_fsmonitor_do_not_run() {
    let repository = Repository::new("sha1");
    repository.write("a", "a");
    repository.git(&["add", "-A"]);
    let ran = repository.folder.path().join("ran");
    repository.git(&["config", "core.fsmonitor", &format!("touch {} #", ran.display())]);
    repository.answers(&[("a", "a", HAS_IT)]);
    assert!(!ran.exists());
}

#[test]
fn bytes_that_git_has_lost_cannot_be_given_back() {
    for format in ["sha1", "sha256"] {
        let repository = Repository::new(format);
        for path in ["kept", "lost", "emptied"] {
            repository.write(path, path);
        }
        repository.git(&["add", "-A"]);
        let length = if format == "sha1" { 40 } else { 64 };
        let object = |path: &str| {
            let name = blob_name(path.as_bytes(), length).unwrap();
            repository.folder.path().join(".git/objects").join(&name[..2]).join(&name[2..])
        };
        fs_err::remove_file(object("lost")).unwrap();
        repository.answers(&[
            ("kept", "kept", HAS_IT),
            ("lost", "lost", Err("git's index names these bytes, and git has lost them")),
        ]);
        fs_err::remove_file(object("emptied")).unwrap();
        fs_err::write(object("emptied"), "").unwrap();
        let files = [Candidate { path: Path::new("emptied"), bytes: b"emptied" }];
        assert!(gives_back(repository.folder.path(), &files, &[])[0].is_err());
    }
}

#[test]
fn links_submodules_and_conflicts_are_no_files_of_git() {
    let repository = Repository::new("sha1");
    std::os::unix::fs::symlink("target", repository.folder.path().join("link")).unwrap();
    repository.write("both", "base\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-qm", "base"]);
    repository.git(&["checkout", "-qb", "side"]);
    repository.write("both", "side\n");
    repository.git(&["commit", "-qam", "side"]);
    repository.git(&["checkout", "-q", "-"]);
    repository.write("both", "here\n");
    repository.git(&["commit", "-qam", "here"]);
    repository.git(&["read-tree", "-m", "HEAD~1", "HEAD", "side"]);
    let commit = "1234567890123456789012345678901234567890";
    repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},module")]);
    repository.answers(&[
        ("both", "here\n", Err("it has an unresolved merge conflict in git")),
        ("link", "target", Err("git has a link in its place")),
        ("module", "x", Err("git has a submodule in its place")),
        ("module/file", "x", UNTRACKED),
    ]);
}

#[test]
fn a_workspace_may_be_part_of_a_repository_or_none() {
    let repository = Repository::new("sha1");
    repository.write("part/a", "a");
    repository.git(&["add", "-A"]);
    let files = [Candidate { path: Path::new("a"), bytes: b"a" }];
    let part = repository.folder.path().join("part");
    assert_eq!(gives_back(&part, &files, &[]), [Ok("git has these bytes".to_owned())]);

    let none = tempfile::tempdir().unwrap();
    let answer = gives_back(none.path(), &files, &[]);
    assert_eq!(answer, [Err("the workspace is not in a git repository".to_owned())]);

    // A folder that looks like a bare repository is none, so that its config is not believed.
    let bare = tempfile::tempdir().unwrap();
    for folder in ["objects", "refs"] {
        fs_err::create_dir(bare.path().join(folder)).unwrap();
    }
    fs_err::write(bare.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
    assert!(gives_back(bare.path(), &files, &[])[0].is_err());
}

#[test]
fn git_may_not_take_for_ever() {
    let mut command = Command::new("sleep");
    command.arg("60").stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let begun = Instant::now();
    let answer = answer(Some(command), begun + Duration::from_millis(20));
    assert_eq!(answer, Err("git did not answer within 10 s".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(30));
    let missing = super::answer(None, begun);
    assert_eq!(missing, Err("there is no git program to ask".to_owned()));
}
