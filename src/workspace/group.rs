//! A child process that leads a session and process group of its own: starting it, signalling all of the group, and
//! reaping the leader.
//!
//! The group's number stays taken while the leader is not reaped, so signals go out only before that: they cannot hit
//! strangers that got the number later.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use rustix::process::{Pid, Signal};

use super::root::Root;

pub(crate) struct Group {
    child: Child,
    leader: Pid,
    /// Reaped, or given up: there is nothing left to stop.
    settled: bool,
}

impl Group {
    /// Starts `command` in `folder`. The child dies with the calling thread, which therefore has to wait for it.
    pub(crate) fn spawn(mut command: Command, folder: &Root) -> io::Result<Self> {
        keep_ended_children();
        let folder = folder.as_fd().try_clone_to_owned()?;
        let parent = rustix::process::getpid();
        let prepare = move || {
            rustix::process::setsid()?;
            rustix::process::fchdir(&folder)?;
            die_with(parent)
        };
        #[expect(unsafe_code, reason = "the hook makes system calls alone: it neither allocates nor takes a lock")]
        // SAFETY: between fork and exec only async-signal-safe calls are made.
        unsafe {
            command.pre_exec(prepare);
        }
        let mut child = command.spawn()?;
        let Some(leader) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::other("the system gave the process a number out of range"));
        };
        Ok(Self { child, leader, settled: false })
    }

    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(crate) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Signals every process of the group. One that is gone is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        if !self.settled {
            let _ = rustix::process::kill_process_group(self.leader, signal);
        }
    }

    /// Whether a process of the group other than its leader still runs. Where that cannot be learned: yes.
    pub(crate) fn has_others(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Ok(entries) = fs_err::read_dir("/proc") {
            return entries
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
                .filter(|number| *number != self.leader.as_raw_pid())
                .any(|number| {
                    fs_err::read(format!("/proc/{number}/stat"))
                        .is_ok_and(|stat| runs_in_group(&stat, self.leader.as_raw_pid()))
                });
        }
        true
    }

    /// Waits for the leader's end and takes its status.
    pub(crate) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.settled = true;
        self.child.wait()
    }

    /// Leaves a leader that does not even end when killed (it hangs in the kernel) to the system.
    pub(crate) fn abandon(&mut self) {
        self.settled = true;
    }
}

impl Drop for Group {
    /// A panic on the way leaves no process behind.
    fn drop(&mut self) {
        if !self.settled {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Has the kernel kill the calling process when the thread that forked it ends; refuses if that is over already.
#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_parent: Pid) -> io::Result<()> {
    Ok(())
}

/// An attini that was started with SIGCHLD ignored would lose the exit status of its children, and they would inherit
/// it. A handler that does nothing undoes that.
fn keep_ended_children() {
    static KEPT: OnceLock<bool> = OnceLock::new();
    KEPT.get_or_init(|| {
        let seen = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGCHLD, seen).is_ok()
    });
}

/// Reads a line of `/proc/PID/stat`: state and group come behind the name, which stands in brackets and may hold any
/// byte.
#[cfg(target_os = "linux")]
fn runs_in_group(stat: &[u8], group: i32) -> bool {
    let Some(name_end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let Ok(rest) = std::str::from_utf8(&stat[name_end + 1..]) else { return false };
    let mut fields = rest.split_ascii_whitespace();
    let (state, _parent, found) = (fields.next(), fields.next(), fields.next());
    !matches!(state, None | Some("Z" | "X")) && found.and_then(|found| found.parse().ok()) == Some(group)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_state_and_group_whatever_its_name() {
        let cases: &[(&[u8], bool)] = &[
            (b"12 (sleep) S 1 77 77 0", true),
            (b"12 (a) S 1 5 (b) S 1 77 77 0", true),
            (b"12 (\xff\n) R 1 77 77 0", true),
            (b"12 (sleep) Z 1 77 77 0", false),
            (b"12 (sleep) S 77 78 78 0", false),
            (b"12 (sleep) S", false),
            (b"", false),
        ];
        for (stat, expected) in cases {
            assert_eq!(runs_in_group(stat, 77), *expected, "{}", String::from_utf8_lossy(stat));
        }
    }

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = Root::open(folder.path()).expect("the folder");
        let mut command = Command::new("sleep");
        command.arg("20");
        let start = || Group::spawn(command, &folder).expect("it starts");
        let mut group = std::thread::scope(|scope| scope.spawn(start).join().expect("no panic"));
        let status = group.reap().expect("its status");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }
}
