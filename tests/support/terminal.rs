//! A terminal of a test's own: a pseudo terminal whose other end is the stdin and stderr of the program under test.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

pub(super) struct Terminal {
    controller: File,
}

impl Terminal {
    pub(super) fn open(rows: u16, columns: u16) -> Self {
        let controller: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).unwrap();
        Self { controller: controller.into() }
    }

    /// Makes it the program's stdin and stderr, and the terminal that controls it, so that its keys send signals.
    #[expect(unsafe_code, reason = "only the new process itself can take a controlling terminal")]
    pub(super) fn give_to(&self, command: &mut Command) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let end: File = ioctl_tiocgptpeer(&self.controller, flags).unwrap().into();
        command.stdin(Stdio::from(end.try_clone().unwrap())).stderr(Stdio::from(end));
        let take = || {
            setsid()?;
            ioctl_tiocsctty(io::stdin())?;
            Ok(())
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(take) };
    }

    pub(super) fn type_keys(&self, keys: &str) {
        (&self.controller).write_all(keys.as_bytes()).unwrap();
    }

    /// What the program shows, to its end.
    pub(super) fn output(&self) -> impl Read + Send + 'static {
        self.controller.try_clone().unwrap()
    }

    pub(super) fn is_in_line_mode(&self) -> bool {
        let modes = tcgetattr(&self.controller).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }
}
