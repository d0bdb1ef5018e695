//! Real programs, each bounded by a time limit of its own.

use super::*;

/// No test's program may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

struct Case {
    folder: tempfile::TempDir,
    argv: Vec<String>,
    stdin: Option<Vec<u8>>,
    timeout: Duration,
    interrupt: Interrupt,
}

impl Case {
    fn new(argv: &[&str]) -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            stdin: None,
            timeout: PATIENCE,
            interrupt: Interrupt::default(),
        }
    }

    fn shell(script: &str) -> Self {
        Self::new(&["sh", "-c", script])
    }

    fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = Some(bytes.to_vec());
        self
    }

    fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn try_run(&self, see: &mut dyn FnMut(&[u8])) -> io::Result<(Ended, Vec<u8>)> {
        let path = std::env::var_os("PATH").expect("a PATH");
        let environment = [("PATH".into(), path), ("GREETING".into(), "hello".into())];
        let program = Program {
            argv: &self.argv,
            folder: &Root::open(self.folder.path()).expect("the folder"),
            stdin: self.stdin.as_deref(),
            environment: &environment,
            timeout: Some(self.timeout),
        };
        let mut output = Vec::new();
        let ended = run(&program, &self.interrupt, &mut |piece| {
            output.extend_from_slice(piece);
            see(&output);
        })?;
        assert_eq!(ended.output_bytes, output.len() as u64);
        Ok((ended, output))
    }

    #[track_caller]
    fn run(&self) -> (Ended, String) {
        let (ended, output) = self.try_run(&mut |_| ()).expect("it starts");
        (ended, String::from_utf8_lossy(&output).into_owned())
    }

    /// Runs it and interrupts it as soon as it says so.
    #[track_caller]
    fn interrupt_when_ready(&self) -> (Ended, String) {
        let mut see = |output: &[u8]| {
            if output.ends_with(b"ready\n") {
                self.interrupt.raise(crate::interrupt::Cause::TimeLimit);
            }
        };
        let (ended, output) = self.try_run(&mut see).expect("it starts");
        (ended, String::from_utf8_lossy(&output).into_owned())
    }
}

/// Waits until the process is gone, or dead and only not reaped by its new parent.
fn assert_gone(number: &str) {
    let number = number.trim();
    assert!(number.parse::<i32>().is_ok(), "{number} is no process number");
    let started = Instant::now();
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    while runs() {
        assert!(started.elapsed() < Duration::from_secs(20), "{number} still runs");
        std::thread::yield_now();
    }
}

#[test]
fn the_end_of_a_program_is_told_as_it_was() {
    let cases = [
        ("exit 0", How::Exited(0)),
        ("exit 1", How::Exited(1)),
        ("exit 255", How::Exited(255)),
        ("kill -KILL $$", How::Signalled(9)),
        ("kill -TERM $$", How::Signalled(15)),
        ("kill -PIPE $$", How::Signalled(13)),
    ];
    for (script, expected) in cases {
        let (ended, output) = Case::shell(script).run();
        assert_eq!((ended.how, output.as_str()), (expected, ""), "{script}");
    }
}

#[test]
fn stdout_and_stderr_interleave_as_they_were_written() {
    let (_, output) = Case::shell("for n in 1 2 3; do echo out $n; echo err $n >&2; done").run();
    assert_eq!(output, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
}

#[test]
fn a_program_that_cannot_be_started_is_an_error() {
    let case = Case::new(&["no-such-program-anywhere"]);
    assert_eq!(case.try_run(&mut |_| ()).expect_err("no such program").kind(), io::ErrorKind::NotFound);
    let case = Case::new(&["./data"]);
    std::fs::write(case.folder.path().join("data"), "no program").expect("a file");
    assert_eq!(case.try_run(&mut |_| ()).expect_err("not executable").kind(), io::ErrorKind::PermissionDenied);
    let case = Case::new(&[]);
    assert_eq!(case.try_run(&mut |_| ()).expect_err("nothing to run").kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_program_with_a_slash_is_relative_to_its_folder() {
    let case = Case::new(&["./here"]);
    let shell = ["/bin/sh", "/usr/bin/sh"].into_iter().find(|path| std::path::Path::new(path).exists());
    std::os::unix::fs::symlink(shell.expect("a shell"), case.folder.path().join("here")).expect("a link");
    let (ended, _) = case.stdin(b"exit 7").run();
    assert_eq!(ended.how, How::Exited(7));
}

#[test]
fn the_environment_is_what_was_given_and_the_folder() {
    let case = Case::new(&["env"]);
    let (_, output) = case.run();
    let mut lines: Vec<&str> = output.lines().filter(|line| !line.starts_with("PATH=")).collect();
    lines.sort_unstable();
    let folder = case.folder.path().canonicalize().expect("a folder");
    assert_eq!(lines, ["GREETING=hello", &format!("PWD={}", folder.display())]);
    let case = Case::shell("pwd -P");
    let folder = case.folder.path().canonicalize().expect("a folder");
    assert_eq!(case.run().1, format!("{}\n", folder.display()));
}

#[test]
fn the_program_leads_its_own_session_and_has_no_terminal() {
    let (_, output) = Case::shell("cat /proc/$$/stat; (: < /dev/tty) 2>/dev/null || echo none").run();
    let (stat, terminal) = output.split_once('\n').expect("two lines");
    let number = stat.split(' ').next().expect("a number");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    assert_eq!(fields[2..5], [number, number, "0"], "group, session, terminal");
    assert_eq!(terminal, "none\n");
}

#[test]
fn stdin_is_closed_unless_given() {
    for (case, expected) in [
        (Case::new(&["cat"]), ""),
        (Case::new(&["cat"]).stdin(b""), ""),
        (Case::new(&["cat"]).stdin(b"given\n"), "given\n"),
    ] {
        let (ended, output) = case.run();
        assert_eq!((ended.how, output.as_str()), (How::Exited(0), expected));
    }
}

#[test]
fn a_long_stdin_and_a_long_output_do_not_block_each_other() {
    let bytes: Vec<u8> = (0..4 * 1024 * 1024_u32).map(|number| (number % 251) as u8).collect();
    let (ended, output) = Case::new(&["cat"]).stdin(&bytes).try_run(&mut |_| ()).expect("it starts");
    assert_eq!(ended.how, How::Exited(0));
    assert!(output == bytes, "cat gave {} other bytes", output.len());
}

#[test]
fn a_program_that_reads_no_stdin_is_not_waited_for() {
    let (ended, output) = Case::shell("exec 0<&-; echo done").stdin(&vec![b'x'; 1024 * 1024]).run();
    assert_eq!((ended.how, output.as_str()), (How::Exited(0), "done\n"));
    let (ended, output) = Case::shell("echo done").stdin(&vec![b'x'; 1024 * 1024]).run();
    assert_eq!((ended.how, output.as_str()), (How::Exited(0), "done\n"));
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_hold_the_turn() {
    let (ended, output) = Case::shell("sleep 300 & echo $!").run();
    assert_eq!(ended.how, How::Exited(0));
    assert!(ended.elapsed < Duration::from_secs(20), "{:?}", ended.elapsed);
    // It was left alone: only a program that is stopped takes its group along.
    let grandchild = output.trim().parse().ok().and_then(Pid::from_raw).expect("a process number");
    rustix::process::kill_process(grandchild, Signal::KILL).expect("it still runs");
}

#[test]
fn a_grandchild_that_floods_the_pipe_does_not_hold_the_turn() {
    let (ended, output) = Case::shell("yes & echo the end").run();
    assert_eq!(ended.how, How::Exited(0));
    assert!(ended.elapsed < Duration::from_secs(20), "{:?}", ended.elapsed);
    assert!(output.contains("the end\n"));
}

#[test]
fn all_that_the_program_wrote_is_read_though_others_hold_the_pipe() {
    // As much as the pipe takes, written at the very end.
    let (_, output) = Case::shell("sleep 300 & head -c 60000 /dev/zero | tr '\\0' x; echo $!").run();
    let (text, grandchild) = output.split_at(60000);
    assert!(text.bytes().all(|byte| byte == b'x'));
    let grandchild = grandchild.trim().parse().ok().and_then(Pid::from_raw).expect("a process number");
    rustix::process::kill_process(grandchild, Signal::KILL).expect("it still runs");
}

#[test]
fn a_timeout_stops_the_whole_group() {
    let case = Case::shell("sleep 300 & echo $!; wait").timeout(Duration::from_millis(500));
    let (ended, output) = case.run();
    assert_eq!(ended.how, How::TimedOut);
    assert!(ended.elapsed >= Duration::from_millis(500) && ended.elapsed < Duration::from_secs(20));
    assert_gone(&output);
}

#[test]
fn a_group_that_ignores_term_is_killed() {
    let (ended, output) = Case::shell("trap '' TERM; sleep 300 & echo $!; echo ready; wait").interrupt_when_ready();
    assert_eq!(ended.how, How::Interrupted);
    assert!(ended.elapsed >= STOP_GRACE && ended.elapsed < Duration::from_secs(20), "{:?}", ended.elapsed);
    assert_gone(output.trim_end_matches("ready\n"));
}

#[test]
fn an_interrupted_program_can_still_say_something() {
    let script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let (ended, output) = Case::shell(script).interrupt_when_ready();
    assert_eq!(ended.how, How::Interrupted);
    // In between the shell may tell of its sleep, which got the signal too.
    assert!(output.starts_with("ready\n") && output.ends_with("bye\n"), "{output}");
}

#[test]
fn a_grandchild_has_its_grace_though_its_leader_is_gone() {
    let work = "trap 'sleep 0.2; echo done > done; exit' TERM; echo ready; exec > /dev/null 2>&1; \
                while :; do sleep 0.05; done";
    let case = Case::shell(&format!("( {work} ) & trap 'exit 0' TERM; wait"));
    assert_eq!(case.interrupt_when_ready().0.how, How::Interrupted);
    let written = std::fs::read_to_string(case.folder.path().join("done")).expect("it could finish");
    assert_eq!(written, "done\n");
}

#[test]
fn an_interrupt_from_before_stops_it_at_once() {
    let case = Case::new(&["sleep", "300"]);
    case.interrupt.raise(crate::interrupt::Cause::TimeLimit);
    assert_eq!(case.run().0.how, How::Interrupted);
}

#[test]
fn a_panic_on_the_way_leaves_no_process_behind() {
    let case = Case::shell("sleep 300 & echo $!; wait");
    let mut seen = String::new();
    let mut see = |output: &[u8]| {
        seen = String::from_utf8_lossy(output).into_owned();
        panic!("broken receiver");
    };
    let run = std::panic::AssertUnwindSafe(|| case.try_run(&mut see).map(|_| ()));
    assert!(std::panic::catch_unwind(run).is_err());
    assert_gone(&seen);
}

#[test]
fn bytes_come_as_they_are() {
    let (_, output) = Case::shell(r"printf '\377\000\303'").try_run(&mut |_| ()).expect("it starts");
    assert_eq!(output, b"\xff\0\xc3");
}
