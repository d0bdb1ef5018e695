use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use serde_json::json;

use super::*;
use crate::interrupt::{Cause, Interrupt};
use crate::session::folder::SessionFolder;
use crate::tool::Limits;

static NO_DENIALS: crate::permission::ReadDenials = crate::permission::ReadDenials::NONE;

struct Case {
    folder: tempfile::TempDir,
    workspace: Workspace,
    session: SessionFolder,
    limits: Limits,
    withheld: Vec<String>,
    interrupt: Interrupt,
    /// What was shown live.
    live: Mutex<Vec<u8>>,
    output_bytes: AtomicU64,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["work", "session"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let open = |name: &str| Root::open(&folder.path().join(name)).expect("the folder");
        Self {
            workspace: Workspace::new(open("work")),
            session: SessionFolder { name: "main".to_owned(), root: open("session") },
            limits: Limits { result_bytes: 4096, output_bytes: 1 << 30, command_timeout: Duration::from_secs(60) },
            withheld: Vec::new(),
            interrupt: Interrupt::default(),
            live: Mutex::default(),
            output_bytes: AtomicU64::new(0),
            folder,
        }
    }

    fn surroundings<'a>(&'a self, written: &'a BTreeMap<String, String>) -> Surroundings<'a> {
        Surroundings {
            workspace: &self.workspace,
            session: Some(&self.session),
            written,
            limits: &self.limits,
            withheld_variables: &self.withheld,
            fetch_verdict: &|_| crate::permission::HostVerdict::Asks,
            read_denials: &NO_DENIALS,
            state: None,
        }
    }

    fn assess(&self, arguments: &Value) -> Result<Assessment, Refusal> {
        let mut world = World::default();
        Command::new().look(arguments, &self.surroundings(&BTreeMap::new()), &mut world);
        Command::new().assess(arguments, &world, &Overlay::new())
    }

    /// Looks, lets `meanwhile` happen, and runs.
    fn run_after(&self, arguments: &Value, meanwhile: impl FnOnce()) -> Outcome {
        let written = BTreeMap::new();
        let surroundings = self.surroundings(&written);
        let mut world = World::default();
        let tool = Command::new();
        tool.look(arguments, &surroundings, &mut world);
        tool.assess(arguments, &world, &Overlay::new()).expect("it can run");
        meanwhile();
        let live = |bytes: &[u8]| {
            let mut live = self.live.lock().expect("no panic");
            live.extend_from_slice(bytes);
            if live.ends_with(b"ready\n") {
                self.interrupt.raise(Cause::TimeLimit);
            }
        };
        tool.run(&Work {
            arguments,
            surroundings: &surroundings,
            world: &world,
            files: &[],
            label: "call_1",
            interrupt: &self.interrupt,
            approved_by_person: false,
            answer: None,
            asked: None,
            live: &live,
            output_bytes: &self.output_bytes,
        })
    }

    fn run(&self, arguments: &Value) -> Outcome {
        self.run_after(arguments, || ())
    }

    fn shell(&self, script: &str) -> Outcome {
        self.run(&json!({"argv": ["sh", "-c", script]}))
    }
}

#[test]
fn the_schema_is_what_the_model_is_to_send() {
    let expected = json!({
        "type": "object",
        "properties": {
            "argv": {
                "description":
                    "The program and its arguments, one word each. A program with a slash is a path relative to cwd.",
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
            },
            "cwd": {
                "description": "The folder to start in, relative to the workspace.",
                "type": "string",
                "default": ".",
            },
            "stdin": {
                "description": "Text for its standard input; without it, standard input is closed.",
                "type": "string",
            },
        },
        "required": ["argv"],
        "additionalProperties": false,
    });
    assert_eq!(*Command::new().parameters(), expected);
}

#[test]
fn a_call_is_assessed_by_what_it_runs_and_where() {
    let case = Case::new();
    std::fs::create_dir(case.workspace.root.path().join("sub")).expect("a folder");
    let argv = ["echo", "two words", "it's", ""].map(str::to_owned).to_vec();
    let assessment = case.assess(&json!({"argv": argv, "cwd": "sub", "stdin": "in"})).expect("it can run");
    let summary = shlex::split(&assessment.summary).expect("a shell can read it");
    assert_eq!(summary, argv);
    let access =
        CommandAccess { argv: argv.clone(), stdin: true, background: false, cwd_inside: true, cwd_is_root: false };
    assert_eq!(assessment.accesses, [Access::Command(access)]);
    let preview = Preview::Command { argv, cwd: "sub".to_owned(), stdin: Some("in".to_owned()), background: false };
    assert_eq!(assessment.preview, preview);

    let at_root = case.assess(&json!({"argv": ["ls"]})).expect("it can run");
    let access = CommandAccess {
        argv: vec!["ls".to_owned()],
        stdin: false,
        background: false,
        cwd_inside: true,
        cwd_is_root: true,
    };
    assert_eq!(at_root.accesses, [Access::Command(access)]);

    let outside = case.assess(&json!({"argv": ["ls"], "cwd": "/"})).expect("it can run");
    assert_eq!(outside.summary, "ls");
    let access = CommandAccess {
        argv: vec!["ls".to_owned()],
        stdin: false,
        background: false,
        cwd_inside: false,
        cwd_is_root: false,
    };
    assert_eq!(outside.accesses, [Access::Command(access)]);
}

#[test]
fn a_call_that_cannot_run_is_refused() {
    let case = Case::new();
    std::fs::write(case.workspace.root.path().join("file"), "").expect("a file");
    let cases = [
        (json!({"argv": []}), "invalid_arguments"),
        (json!({"argv": ["", "x"]}), "invalid_arguments"),
        (json!({"argv": ["echo", "a\0b"]}), "invalid_arguments"),
        (json!({"argv": "ls"}), "invalid_arguments"),
        (json!({"argv": ["ls"], "cwd": "absent"}), "not_found"),
        (json!({"argv": ["ls"], "cwd": "file"}), "not_a_folder"),
    ];
    for (arguments, expected) in cases {
        assert_eq!(case.assess(&arguments).expect_err("a refusal").code, expected, "{arguments}");
    }
}

#[test]
fn the_outcome_says_how_it_ended() {
    let cases = [
        ("echo hi", ResultStatus::Ok, None, "exit code 0\nhi\n"),
        ("true", ResultStatus::Ok, None, "exit code 0, no output"),
        ("echo no >&2; exit 3", ResultStatus::Error, Some("exit_nonzero"), "exit code 3\nno\n"),
        ("kill -KILL $$", ResultStatus::Error, Some("signal"), "ended by signal 9 (SIGKILL), no output"),
        (
            r"printf 'a\377'",
            ResultStatus::Ok,
            None,
            "exit code 0 (bytes that are no text are shown as \u{fffd})\na\u{fffd}",
        ),
    ];
    for (script, status, code, content) in cases {
        let outcome = Case::new().shell(script);
        assert_eq!((outcome.status, outcome.code, outcome.content.as_str()), (status, code, content), "{script}");
    }
}

#[test]
fn a_program_that_is_not_there_was_not_run() {
    let outcome = Case::new().run(&json!({"argv": ["no-such-program-anywhere"]}));
    assert_eq!((outcome.status, outcome.code), (ResultStatus::Error, Some("spawn_failed")));
    let expected = "cannot start no-such-program-anywhere: No such file or directory (os error 2); nothing was run";
    assert_eq!(outcome.content, expected);
    assert_eq!(outcome.detail.as_deref(), Some("check that the program exists and is spelt right"));
}

#[test]
fn why_a_program_does_not_start_is_told_by_its_cause() {
    use std::os::unix::fs::PermissionsExt;
    let case = Case::new();
    let root = case.workspace.root.path().to_owned();
    for (name, text, mode) in [("plain", "x", 0o644), ("lost", "#!/no/such/interpreter\n", 0o755)] {
        std::fs::write(root.join(name), text).expect("a file");
        std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(mode)).expect("its mode");
    }
    std::fs::create_dir(root.join("folder")).expect("a folder");
    let large = "x".repeat(3 << 20);
    for (argv, advice) in [
        (json!(["./missing"]), "check that the program exists"),
        (json!(["./folder"]), "./folder is a folder, not a program"),
        (json!(["./plain"]), "./plain may not be executed"),
        (json!(["./lost"]), "./lost is there, but the interpreter"),
        (json!(["echo", large]), "give less as arguments"),
    ] {
        let outcome = case.run(&json!({"argv": argv}));
        assert_eq!(outcome.code, Some("spawn_failed"), "{advice}: {}", outcome.content);
        let detail = outcome.detail.unwrap_or_default();
        assert!(detail.starts_with(advice), "{detail} does not begin with {advice}");
    }
}

#[test]
fn it_runs_where_and_with_what_the_call_says() {
    let case = Case::new();
    std::fs::create_dir(case.workspace.root.path().join("sub")).expect("a folder");
    let outcome = case.run(&json!({"argv": ["sh", "-c", "pwd -P; echo $PWD; cat"], "cwd": "sub", "stdin": "in\n"}));
    let folder = case.workspace.root.path().join("sub");
    assert_eq!(outcome.content, format!("exit code 0\n{0}\n{0}\nin\n", folder.display()));
    let outside = case.folder.path().canonicalize().expect("a folder");
    let outcome = case.run(&json!({"argv": ["pwd"], "cwd": outside}));
    assert_eq!(outcome.content, format!("exit code 0\n{}\n", outside.display()));
}

#[test]
fn a_folder_that_was_swapped_for_a_link_is_stale() {
    for cwd in ["sub", "../aside"] {
        let case = Case::new();
        let folder = case.workspace.root.path().join(cwd);
        std::fs::create_dir(&folder).expect("a folder");
        let outcome = case.run_after(&json!({"argv": ["touch", "run"], "cwd": folder}), || {
            std::fs::remove_dir(&folder).expect("it is empty");
            std::os::unix::fs::symlink(case.session.root.path(), &folder).expect("a link");
        });
        assert_eq!((outcome.status, outcome.code), (ResultStatus::Error, Some("stale")), "{cwd}");
        assert!(!case.session.root.path().join("run").exists());
    }
}

#[test]
fn withheld_variables_do_not_reach_it() {
    let mut case = Case::new();
    let home = std::env::var("PATH").expect("a PATH");
    assert_eq!(case.shell("echo $PATH $PAGER $GIT_TERMINAL_PROMPT").content, format!("exit code 0\n{home} cat 0\n"));
    // Without PATH a program is still found where the system looks by default.
    case.withheld = vec!["PATH".to_owned()];
    assert!(!case.run(&json!({"argv": ["env"]})).content.contains("\nPATH="));
}

#[test]
fn a_timeout_keeps_the_output_so_far() {
    let mut case = Case::new();
    case.limits.command_timeout = Duration::from_millis(500);
    let outcome = case.shell("echo begun; sleep 300");
    assert_eq!((outcome.status, outcome.code), (ResultStatus::Error, Some("timeout")));
    let (status, output) = outcome.content.split_once('\n').expect("two lines");
    assert!(
        status.starts_with("timed out after 0.5 s and was") && status.ends_with("it may have taken effect"),
        "{status}"
    );
    assert_eq!(output, "begun\n");
}

#[test]
fn a_timeout_is_told_by_its_limit_however_long_the_stopping_took() {
    let ended = Ended { how: How::TimedOut, elapsed: Duration::from_millis(2004), output_bytes: 0 };
    for (limit_ms, expected) in [(1000, "1 s"), (1500, "1.5 s"), (600_000, "600 s")] {
        let line = status_line(&ended, Some(Duration::from_millis(limit_ms)));
        assert!(line.starts_with(&format!("timed out after {expected} and was stopped")), "{line}");
    }
    let line = status_line(&Ended { how: How::Interrupted, ..ended }, Some(Duration::from_secs(600)));
    assert!(line.starts_with("interrupted after 2.0 s"), "{line}");
}

#[test]
fn an_interrupt_keeps_the_output_so_far_and_leaves_the_rest_unknown() {
    let case = Case::new();
    let outcome = case.shell("echo ready; sleep 300");
    assert_eq!((outcome.status, outcome.code), (ResultStatus::Unknown, Some("interrupted")));
    assert!(outcome.content.starts_with("interrupted after "), "{}", outcome.content);
    assert!(outcome.content.ends_with("may still run\nready\n"), "{}", outcome.content);
    let outcome = case.shell("touch run");
    assert_eq!((outcome.status, outcome.code), (ResultStatus::Cancelled, Some("cancelled")));
    assert!(!case.workspace.root.path().join("run").exists());
}

#[test]
fn output_is_shown_live_and_counted_as_it_comes() {
    let case = Case::new();
    case.shell("echo one; echo two >&2");
    assert_eq!(*case.live.lock().expect("no panic"), b"one\ntwo\n");
    assert_eq!(case.output_bytes.load(Ordering::Relaxed), 8);
}

#[test]
fn an_output_of_many_mebibytes_is_on_disk_whole_and_short_for_the_model() {
    const LINES: usize = 13 * 1024 * 1024;
    let case = Case::new();
    let outcome = case.shell(&format!("yes 0123456 | head -n {LINES}; echo the end"));
    assert_eq!(outcome.status, ResultStatus::Ok);
    assert!(outcome.content.len() <= 4096, "{}", outcome.content.len());
    assert!(outcome.content.starts_with("exit code 0\n0123456\n") && outcome.content.ends_with("0123456\nthe end\n"));
    assert!(outcome.content.contains("`read` on session:outputs/call_1.txt has the whole"));
    assert_eq!(outcome.output_file.as_deref(), Some("outputs/call_1.txt"));
    let file = case.session.root.open_file(std::path::Path::new("outputs/call_1.txt")).expect("the output");
    assert_eq!(file.metadata().expect("metadata").len(), (LINES * 8 + 8) as u64);
}
