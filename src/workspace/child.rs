//! Runs a program to its end, its time limit or an interrupt, and hands its output on as it comes.
//!
//! The program has a session and process group of its own, no terminal, and one pipe for stdout and stderr, so that
//! they interleave as they were written. What it leaves running in the background holds nobody up: reading stops shortly
//! after the program itself has ended. Whether it may run, and what becomes of its output, is decided elsewhere.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::group::Group;
use super::root::Root;
use crate::interrupt::Interrupt;

/// At most so much output is held at a time.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Between TERM and KILL.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// While a group is stopping and its leader is gone: how often the rest is looked at.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// How long output of others is still read after the program has ended.
const DRAIN_GRACE: Duration = Duration::from_millis(200);
/// How long a killed process may take to end.
const KILL_WAIT: Duration = Duration::from_secs(5);

const WAKE_ENDED: u8 = b'e';
const WAKE_INTERRUPTED: u8 = b'i';

/// What to run, and where.
pub struct Program<'a> {
    /// Not empty. A first word with a `/` is a path relative to `folder`, any other is looked up in the `PATH` of
    /// `environment`.
    pub argv: &'a [String],
    pub folder: &'a Root,
    /// `None`: stdin is closed (it is `/dev/null`).
    pub stdin: Option<&'a [u8]>,
    /// All of it; nothing else is inherited but `PWD`, which names `folder`.
    pub environment: &'a [(OsString, OsString)],
    /// `None`: it may run for ever.
    pub timeout: Option<Duration>,
}

/// How a program that was started ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Exited(i32),
    Signalled(i32),
    /// Its whole process group was stopped.
    TimedOut,
    /// Its whole process group was stopped.
    Interrupted,
    /// It ended, but the system did not tell how.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub how: How,
    pub elapsed: Duration,
    pub output_bytes: u64,
}

/// Runs `program` and gives its output to `take`, in pieces of any size. An error says that nothing was run.
pub fn run(program: &Program<'_>, interrupt: &Interrupt, take: &mut dyn FnMut(&[u8])) -> io::Result<Ended> {
    let started = Instant::now();
    let (wake, waker) = io::pipe()?;
    let waiter = Waiter::new(waker.try_clone()?)?;
    let (output, output_end) = io::pipe()?;
    let mut group = Group::spawn(command(program, output_end)?, program.folder)?;
    waiter.watch(group.leader());
    let _closer = interrupt.on_raise(move || {
        // It only wakes: the interrupt itself is asked for the cause.
        let _ = (&waker).write(&[WAKE_INTERRUPTED]);
    });
    let feed = group.take_stdin().zip(program.stdin).and_then(|(pipe, bytes)| Feed::new(pipe, bytes));
    let mut watch = Watch {
        group,
        interrupt,
        deadline: program.timeout.and_then(|timeout| started.checked_add(timeout)),
        wake: Some(wake),
        output: Some(output),
        output_bytes: 0,
        feed,
        leader_ended: false,
        stopped: None,
        phase: Phase::Running,
        buffer: vec![0; PIECE_BYTES_MAX],
    };
    while let Some(until) = watch.advance(Instant::now()) {
        watch.wait(until, take);
    }
    let how = watch.how();
    Ok(Ended { how, elapsed: started.elapsed(), output_bytes: watch.output_bytes })
}

fn command(program: &Program<'_>, output: PipeWriter) -> io::Result<Command> {
    let Some((name, arguments)) = program.argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no program to run"));
    };
    let mut command = Command::new(name);
    command.args(arguments).env_clear();
    command.envs(program.environment.iter().map(|(name, value)| (name, value)));
    command.env("PWD", program.folder.path()).env_remove("OLDPWD");
    command.stdin(if program.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(output.try_clone()?).stderr(output);
    Ok(command)
}

/// A thread that waits for the leader's end without reaping it, so that one `poll` can wait for that and for output.
struct Waiter {
    leader: mpsc::Sender<Pid>,
}

impl Waiter {
    /// The thread is there before the child is: it must not fail to be made when a child already runs.
    fn new(mut waker: PipeWriter) -> io::Result<Self> {
        let (leader, to_watch) = mpsc::channel();
        std::thread::Builder::new().name("waiter".to_owned()).spawn(move || {
            let Ok(leader) = to_watch.recv() else { return };
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(rustix::process::waitid(WaitId::Pid(leader), options), Err(rustix::io::Errno::INTR)) {}
            // Nobody listens any more if the process was given up.
            let _ = waker.write_all(&[WAKE_ENDED]);
        })?;
        Ok(Self { leader })
    }

    fn watch(self, leader: Pid) {
        // The thread cannot have ended before it was told.
        let _ = self.leader.send(leader);
    }
}

/// What the program still gets on stdin. The pipe does not block, so a program that reads nothing holds nobody up.
struct Feed<'a> {
    pipe: ChildStdin,
    bytes: &'a [u8],
}

impl<'a> Feed<'a> {
    fn new(pipe: ChildStdin, bytes: &'a [u8]) -> Option<Self> {
        rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).ok()?;
        Some(Self { pipe, bytes })
    }

    /// Writes what fits; returns whether there is more to write.
    fn write(&mut self) -> bool {
        while !self.bytes.is_empty() {
            match self.pipe.write(self.bytes) {
                Ok(count) => self.bytes = &self.bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        false
    }
}

#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// TERM was sent.
    Stopping {
        kill_at: Instant,
    },
    /// KILL was sent.
    Killed {
        give_up_at: Instant,
    },
    /// The leader has ended. `owed_bytes` were in the pipe at that moment and are read however long it takes.
    Draining {
        until: Instant,
        owed_bytes: u64,
    },
}

struct Watch<'a> {
    group: Group,
    interrupt: &'a Interrupt,
    deadline: Option<Instant>,
    /// `None` at their end.
    wake: Option<PipeReader>,
    output: Option<PipeReader>,
    output_bytes: u64,
    feed: Option<Feed<'a>>,
    leader_ended: bool,
    /// Why it was stopped from outside, if it was.
    stopped: Option<How>,
    phase: Phase,
    buffer: Vec<u8>,
}

impl Watch<'_> {
    /// Takes the steps that are due; returns until when to wait for the next event (`Some(None)`: for ever), or `None`
    /// when all is over.
    #[expect(clippy::option_option, reason = "over, and no time to wake at, are different things")]
    fn advance(&mut self, now: Instant) -> Option<Option<Instant>> {
        loop {
            match self.phase {
                Phase::Running | Phase::Killed { .. } if self.leader_ended => self.drain(now),
                Phase::Running if self.interrupt.is_raised() => self.stop(How::Interrupted, now),
                Phase::Running if self.deadline.is_some_and(|deadline| deadline <= now) => {
                    self.stop(How::TimedOut, now);
                }
                Phase::Running => return Some(self.deadline),
                Phase::Stopping { kill_at } if now >= kill_at || (self.leader_ended && !self.group.has_others()) => {
                    self.group.signal(Signal::KILL);
                    self.phase = Phase::Killed { give_up_at: now + KILL_WAIT };
                }
                Phase::Stopping { kill_at } if self.leader_ended => return Some(Some(kill_at.min(now + STOP_CHECK))),
                Phase::Stopping { kill_at } => return Some(Some(kill_at)),
                Phase::Killed { give_up_at } if now >= give_up_at => {
                    self.group.abandon();
                    return None;
                }
                Phase::Killed { give_up_at } => return Some(Some(give_up_at)),
                Phase::Draining { until, owed_bytes } => {
                    let over = self.output.is_none() || (owed_bytes == 0 && now >= until);
                    return (!over).then_some(Some(until));
                }
            }
        }
    }

    fn stop(&mut self, why: How, now: Instant) {
        self.stopped = Some(why);
        self.feed = None;
        self.group.signal(Signal::TERM);
        self.phase = Phase::Stopping { kill_at: now + STOP_GRACE };
    }

    fn drain(&mut self, now: Instant) {
        self.feed = None;
        let owed_bytes = self.output.as_ref().and_then(|output| rustix::io::ioctl_fionread(output).ok()).unwrap_or(0);
        self.phase = Phase::Draining { until: now + DRAIN_GRACE, owed_bytes };
    }

    /// Waits for something to happen, and takes it in.
    fn wait(&mut self, until: Option<Instant>, take: &mut dyn FnMut(&[u8])) {
        let [wake, output, feed] = self.ready(until);
        if wake {
            self.read_wake();
        }
        if output {
            self.read_output(take);
        }
        if feed && !self.feed.as_mut().is_some_and(Feed::write) {
            self.feed = None;
        }
    }

    /// Which of wake pipe, output and stdin can be used without waiting. None of them when the time is over.
    fn ready(&self, until: Option<Instant>) -> [bool; 3] {
        let mut polled = Vec::with_capacity(3);
        let wake = self.wake.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let output = self.output.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let feed = self.feed.as_ref().map(|feed| PollFd::new(&feed.pipe, PollFlags::OUT));
        for (place, fd) in [wake, output, feed].into_iter().enumerate() {
            polled.extend(fd.map(|fd| (place, fd)));
        }
        let (places, mut fds): (Vec<usize>, Vec<PollFd<'_>>) = polled.into_iter().unzip();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut ready = [false; 3];
        // The one error that these descriptors allow is an interruption by a signal, after which all is looked at again.
        if rustix::event::poll(&mut fds, left.as_ref()).is_ok() {
            for (place, fd) in places.into_iter().zip(&fds) {
                ready[place] = !fd.revents().is_empty();
            }
        }
        ready
    }

    fn read_wake(&mut self) {
        let mut reasons = [0; 8];
        match self.wake.as_mut().map(|wake| wake.read(&mut reasons)) {
            Some(Ok(count)) if count > 0 => self.leader_ended |= reasons[..count].contains(&WAKE_ENDED),
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Some(Ok(_) | Err(_)) | None => self.wake = None,
        }
    }

    fn read_output(&mut self, take: &mut dyn FnMut(&[u8])) {
        let Some(output) = &mut self.output else { return };
        match output.read(&mut self.buffer) {
            Ok(count) if count > 0 => {
                self.output_bytes += count as u64;
                if let Phase::Draining { owed_bytes, .. } = &mut self.phase {
                    *owed_bytes = owed_bytes.saturating_sub(count as u64);
                }
                take(&self.buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => self.output = None,
        }
    }

    fn how(&mut self) -> How {
        let status = if self.leader_ended { self.group.reap().ok() } else { None };
        let exited = status.and_then(|status| status.code()).map(How::Exited);
        let signalled = status.and_then(|status| status.signal()).map(How::Signalled);
        self.stopped.or(exited).or(signalled).unwrap_or(How::Lost)
    }
}

#[cfg(test)]
mod tests;
