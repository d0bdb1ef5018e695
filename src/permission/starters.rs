//! Programs whose work is to start others: wrappers, shells and interpreters.
//!
//! A rule that denies looks behind them; a rule that allows one of them by its bare name allows everything.

use std::collections::BTreeSet;

use super::script::{Word, is_assignment};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Starter {
    /// Its options, then `operands` words of its own, then the command.
    Wrapper {
        operands: usize,
    },
    /// The same, and it adds words to the command.
    Feeder,
    /// Takes a script after `-c`, or from a file, or from its input. Others than those of POSIX quote in other ways.
    Shell {
        is_posix: bool,
    },
    /// Takes a line for a shell as its words.
    Script,
    /// Takes a line for later somewhere among its words.
    Callback,
    Find,
    /// Gives a line another name.
    Alias,
    /// Sets variables, of which some are run.
    Declaration,
    Interpreter,
}

/// What a program starts, by the name without its folder; `None`: nothing that is known.
pub(super) fn starter_of(name: &str) -> Option<Starter> {
    let starter = match name {
        "env" | "nice" | "nohup" | "sudo" | "doas" | "stdbuf" | "setsid" | "time" | "gtime" | "ionice" | "command"
        | "exec" | "builtin" | "busybox" | "toybox" | "unshare" | "nsenter" | "strace" | "ltrace" | "valgrind"
        | "fakeroot" | "eatmydata" | "systemd-run" | "setpriv" | "prlimit" | "catchsegv" | "unbuffer" | "rlwrap"
        | "proot" | "bwrap" | "firejail" | "caffeinate" | "pkexec" | "run0" | "capsh" | "setarch" | "linux32"
        | "linux64" | "dbus-run-session" | "xvfb-run" | "start-stop-daemon" | "script" | "su" | "runuser" | "gosu"
        | "su-exec" | "repeat" => Starter::Wrapper { operands: operands_of(name) },
        "timeout" | "gtimeout" | "chroot" | "flock" | "taskset" | "chrt" | "chpst" | "softlimit" => {
            Starter::Wrapper { operands: 1 }
        }
        "xargs" | "gxargs" => Starter::Feeder,
        "eval" | "trap" | "watch" | "ssh" | "parallel" => Starter::Script,
        "mapfile" | "readarray" | "complete" | "compgen" | "bind" | "bindkey" | "fc" | "hash" | "emulate" | "sched"
        | "enable" | "zle" => Starter::Callback,
        "export" | "declare" | "typeset" | "readonly" | "local" | "set" => Starter::Declaration,
        "find" | "gfind" | "fd" | "fdfind" => Starter::Find,
        "alias" => Starter::Alias,
        "source" | "." => Starter::Shell { is_posix: true },
        _ if POSIX_SHELLS.contains(&without_version(name)) => Starter::Shell { is_posix: true },
        _ if OTHER_SHELLS.contains(&without_version(name)) => Starter::Shell { is_posix: false },
        _ if is_interpreter(name) => Starter::Interpreter,
        _ => return None,
    };
    Some(starter)
}

fn operands_of(name: &str) -> usize {
    usize::from(matches!(name, "gosu" | "su-exec" | "repeat"))
}

const POSIX_SHELLS: [&str; 11] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "pdksh", "yash", "rbash", "rzsh"];

const OTHER_SHELLS: [&str; 6] = ["fish", "csh", "tcsh", "elvish", "nu", "pwsh"];

fn is_interpreter(name: &str) -> bool {
    const INTERPRETERS: [&str; 24] = [
        "python",
        "pypy",
        "perl",
        "ruby",
        "node",
        "nodejs",
        "deno",
        "bun",
        "php",
        "lua",
        "luajit",
        "tclsh",
        "wish",
        "expect",
        "awk",
        "gawk",
        "mawk",
        "nawk",
        "osascript",
        "Rscript",
        "guile",
        "npx",
        "uvx",
        "bunx",
    ];
    INTERPRETERS.contains(&without_version(name))
}

/// `python3.12` is `python`.
fn without_version(name: &str) -> &str {
    name.trim_end_matches(|character: char| character.is_ascii_digit() || matches!(character, '.' | '-'))
}

/// The last part of a program's path.
pub(super) fn program_name(program: &str) -> &str {
    let trimmed = program.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}

/// A longer beginning is not looked through for what it runs.
const BEGINNING_WORDS_MAX: usize = 64;

/// Whether a command that starts with these words may go on to run anything: a shell, an interpreter or a wrapper of
/// which the words do not say for certain what it runs. Returns that program's name.
pub(super) fn leaves_open(words: &[String]) -> Option<&str> {
    let (program, tail) = words.split_first()?;
    let name = program_name(program);
    let operands = match starter_of(name)? {
        // What these run stands anywhere among their words.
        Starter::Find | Starter::Script | Starter::Callback | Starter::Alias | Starter::Declaration => {
            return Some(name);
        }
        Starter::Shell { .. } | Starter::Interpreter => return (!names_script(tail)).then_some(name),
        Starter::Wrapper { operands } => operands,
        Starter::Feeder => 0,
    };
    if words.len() > BEGINNING_WORDS_MAX {
        return Some(name);
    }
    // A word behind an option may be its value or the command: open if either reading is.
    let mut places = vec![(0, operands)];
    let mut seen = BTreeSet::new();
    while let Some((at, operands)) = places.pop() {
        if !seen.insert((at, operands)) {
            continue;
        }
        let Some(word) = tail.get(at) else { return Some(name) };
        if word.starts_with('-') {
            places.extend([(at + 1, operands), ((at + 2).min(tail.len()), operands)]);
        } else if is_assignment(&Word::Known(word.clone())) {
            places.push((at + 1, operands));
        } else if operands > 0 {
            places.push((at + 1, operands - 1));
        } else if let Some(inner) = leaves_open(&tail[at..]) {
            return Some(inner);
        }
    }
    None
}

/// Whether the words behind a shell or an interpreter hold its script, or the file with it.
fn names_script(words: &[String]) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with(['-', '+']) {
            return true;
        }
        let takes_script = !word.starts_with("--") && word.ends_with(['c', 'e', 'm']);
        // Behind any other option the next word may be its value.
        if words.next().is_some() && takes_script {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_starters_leave_open_what_is_run() {
        for (line, expected) in [
            ("sh", Some("sh")),
            ("bash -c", Some("bash")),
            ("bash -lc", Some("bash")),
            ("bash -c ls", None),
            ("sh test.sh", None),
            ("/usr/bin/python3.12", Some("python3.12")),
            ("python3 -m", Some("python3")),
            ("python3 -m pytest", None),
            ("env", Some("env")),
            ("env A=1 B=2", Some("env")),
            ("env A=1 cargo", None),
            ("env bash", Some("bash")),
            ("sudo -n", Some("sudo")),
            ("timeout 5", Some("timeout")),
            ("timeout -k 5 10", Some("timeout")),
            ("timeout -k 5 10 cargo", None),
            ("sudo -n -u root", Some("sudo")),
            ("sudo -u root cargo", None),
            ("bash -o pipefail", Some("bash")),
            ("bash -o pipefail -c ls", None),
            ("timeout 5 cargo", None),
            ("nohup nice", Some("nice")),
            ("xargs", Some("xargs")),
            ("find .", Some("find")),
            ("npx", Some("npx")),
            ("cargo", None),
            ("cargo test", None),
            ("", None),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(leaves_open(&words), expected, "{line}");
        }
    }
}
