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
        | "proot" | "bwrap" | "firejail" | "caffeinate" | "pkexec" | "run0" | "capsh" | "linux32" | "linux64"
        | "dbus-run-session" | "xvfb-run" | "start-stop-daemon" | "script" | "su" | "runuser" | "gosu" | "su-exec"
        | "repeat" => Starter::Wrapper { operands: operands_of(name) },
        "timeout" | "gtimeout" | "chroot" | "flock" | "taskset" | "chrt" | "chpst" | "softlimit" => {
            Starter::Wrapper { operands: 1 }
        }
        "xargs" | "gxargs" => Starter::Feeder,
        "tini" | "dumb-init" | "numactl" | "arch" | "watchexec" | "entr" | "cpulimit" | "cgexec" | "catatonit" => {
            Starter::Wrapper { operands: 0 }
        }
        "faketime" | "setarch" | "nix-shell" => Starter::Wrapper { operands: 1 },
        "eval" | "trap" | "watch" | "ssh" | "parallel" | "hyperfine" | "tmux" | "screen" => Starter::Script,
        "mapfile" | "readarray" | "complete" | "compgen" | "bind" | "bindkey" | "fc" | "hash" | "emulate" | "sched"
        | "enable" | "zle" => Starter::Callback,
        "export" | "declare" | "typeset" | "readonly" | "local" | "set" => Starter::Declaration,
        "find" | "gfind" | "fd" | "fdfind" => Starter::Find,
        "alias" => Starter::Alias,
        "source" | "." => Starter::Shell { is_posix: true },
        _ if POSIX_SHELLS.contains(&without_version(name)) => Starter::Shell { is_posix: true },
        _ if OTHER_SHELLS.contains(&without_version(name)) => Starter::Shell { is_posix: false },
        // The loader starts the program that it is given.
        _ if name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld.so") => {
            Starter::Wrapper { operands: 0 }
        }
        _ if is_interpreter(name) => Starter::Interpreter,
        _ => return None,
    };
    Some(starter)
}

fn operands_of(name: &str) -> usize {
    usize::from(matches!(name, "gosu" | "su-exec" | "repeat"))
}

const POSIX_SHELLS: [&str; 13] =
    ["osh", "oil", "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "pdksh", "yash", "rbash", "rzsh"];

const OTHER_SHELLS: [&str; 11] = ["rc", "es", "ysh", "xonsh", "ion", "fish", "csh", "tcsh", "elvish", "nu", "pwsh"];

fn is_interpreter(name: &str) -> bool {
    const INTERPRETERS: &str = "python pypy perl ruby node nodejs php lua luajit tclsh wish expect awk gawk mawk nawk \
        osascript guile julia R Rscript octave tsx ts-node elixir iex erl runghc runhaskell ghci groovy jshell racket \
        m4 scala clojure raku sbcl gdb";
    INTERPRETERS.split_whitespace().any(|known| known == name || known == without_version(name))
}

/// The words behind which programs of many trades start others, with how many words of their own stand before the
/// command. An empty word: the command stands behind the program itself.
///
/// Not here: `cargo run`, `npm run` and their like, which run what the project holds, as its tests do.
pub(super) fn runs_behind(name: &str) -> &'static [(&'static str, usize)] {
    match name {
        "docker" | "podman" | "nerdctl" => &[("exec", 1), ("run", 1), ("compose", 2), ("create", 1)],
        "kubectl" | "oc" => &[("exec", 1), ("run", 1), ("debug", 1)],
        "npm" => &[("exec", 0), ("x", 0), ("init", 0), ("create", 0), ("explore", 1)],
        "pnpm" | "yarn" => &[("dlx", 0), ("exec", 0), ("create", 0), ("node", 0)],
        "deno" => &[("run", 0), ("eval", 0), ("serve", 0), ("repl", 0)],
        "bun" => &[("run", 0), ("x", 0), ("exec", 0), ("create", 0), ("repl", 0)],
        "uv" => &[("run", 0), ("tool", 1)],
        "pipx" | "poetry" | "pdm" | "hatch" | "rye" | "pipenv" | "conda" | "mamba" => &[("run", 0)],
        "bundle" | "opam" | "asdf" => &[("exec", 0)],
        "mise" | "direnv" => &[("exec", 1), ("x", 1)],
        "rustup" => &[("run", 1)],
        "nix" => &[("run", 1), ("shell", 1), ("develop", 1)],
        "perf" => &[("stat", 0), ("record", 0), ("trace", 0)],
        "git" => &[("bisect run", 0), ("submodule foreach", 0)],
        "npx" | "uvx" | "bunx" | "pnpx" => &[("", 0)],
        _ => &[],
    }
}

/// Options that take a program, or settings that name one, as their value.
fn options_with_programs(name: &str) -> &'static [&'static str] {
    match name {
        "git" => &["-c", "--config-env", "--exec-path", "--upload-pack", "--receive-pack", "-x", "--exec", "--extcmd"],
        "cargo" => &["--config"],
        "rsync" => &["-e", "--rsh", "--rsync-path"],
        "tar" => &["-I", "--use-compress-program", "--to-command", "--checkpoint-action", "-F"],
        "make" | "gmake" => &["-f", "--file", "--makefile", "--eval"],
        _ => &[],
    }
}

/// Where the words behind `wanted` start, options between its words left aside: the value of one may be any word.
fn behind(tail: &[String], wanted: &str) -> Option<usize> {
    let mut at = 0;
    for part in wanted.split_whitespace() {
        at += tail[at..].iter().position(|word| word == part)? + 1;
    }
    Some(at)
}

/// A program with words of its own before the command that it starts, and the words that are given to it.
fn runner_leaves_open<'w>(name: &'w str, tail: &'w [String]) -> Option<&'w str> {
    let last_takes_program = tail.last().is_some_and(|last| options_with_programs(name).contains(&last.as_str()));
    let is_bare = tail.iter().all(|word| word.starts_with('-'));
    let runs = runs_behind(name);
    // `git` alone is no wrapper; of the others the first word is what they start others by.
    if last_takes_program || (is_bare && name != "git" && !runs.is_empty()) {
        return Some(name);
    }
    runs.iter().find_map(|(wanted, operands)| wrapped_leaves_open(name, &tail[behind(tail, wanted)?..], *operands))
}

/// Whether more than project scripts may be started by this program's bare name only because of some of its words.
pub(super) fn has_subcommands(name: &str) -> bool {
    runs_behind(name).iter().any(|(wanted, _)| !wanted.is_empty())
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
    let Some(starter) = starter_of(name) else { return runner_leaves_open(name, tail) };
    let operands = match starter {
        // What these run stands anywhere among their words.
        Starter::Find | Starter::Script | Starter::Callback | Starter::Alias | Starter::Declaration => {
            return Some(name);
        }
        Starter::Shell { .. } | Starter::Interpreter => return (!names_script(tail)).then_some(name),
        Starter::Wrapper { operands } => operands,
        Starter::Feeder => 0,
    };
    wrapped_leaves_open(name, tail, operands)
}

/// The same for the words behind a wrapper's name.
fn wrapped_leaves_open<'w>(name: &'w str, tail: &'w [String], operands: usize) -> Option<&'w str> {
    if tail.len() >= BEGINNING_WORDS_MAX {
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
        if word == "--" {
            places.push((at + 1, operands));
        } else if word.starts_with('-') {
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
            ("npx eslint", None),
            ("setarch x86_64", Some("setarch")),
            ("/lib64/ld-linux-x86-64.so.2", Some("ld-linux-x86-64.so.2")),
            ("numactl -N 0", Some("numactl")),
            ("tini --", Some("tini")),
            ("faketime now", Some("faketime")),
            ("faketime now ls", None),
            ("perf stat", Some("perf")),
            ("perf stat ls", None),
            ("perf report", None),
            ("hyperfine", Some("hyperfine")),
            ("tmux new", Some("tmux")),
            ("screen", Some("screen")),
            ("git", None),
            ("git status", None),
            ("git -c", Some("git")),
            ("git -C x --config-env", Some("git")),
            ("git bisect", None),
            ("git bisect run", Some("git")),
            ("git bisect run sh", Some("sh")),
            ("git bisect run make", None),
            ("git submodule foreach --recursive", Some("git")),
            ("cargo --config", Some("cargo")),
            ("cargo run", None),
            ("docker", Some("docker")),
            ("docker exec", Some("docker")),
            ("docker exec box", Some("docker")),
            ("docker exec box sh", Some("sh")),
            ("docker exec box ls", None),
            ("docker ps", None),
            ("podman run", Some("podman")),
            ("kubectl exec", Some("kubectl")),
            ("npm exec", Some("npm")),
            ("npm exec -- eslint", None),
            ("npm test", None),
            ("npm run lint", None),
            ("pnpm dlx", Some("pnpm")),
            ("yarn exec", Some("yarn")),
            ("bunx", Some("bunx")),
            ("bun run", Some("bun")),
            ("deno run", Some("deno")),
            ("uv", Some("uv")),
            ("uv run", Some("uv")),
            ("uv run python", Some("python")),
            ("uv run pytest", None),
            ("uv sync", None),
            ("pipx run", Some("pipx")),
            ("poetry run", Some("poetry")),
            ("bundle exec", Some("bundle")),
            ("mise exec", Some("mise")),
            ("rustup run stable", Some("rustup")),
            ("julia", Some("julia")),
            ("Rscript", Some("Rscript")),
            ("Rscript x.R", None),
            ("m4", Some("m4")),
            ("elixir -e", Some("elixir")),
            ("osh", Some("osh")),
            ("rc -c", Some("rc")),
            ("cargo", None),
            ("cargo test", None),
            ("", None),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(leaves_open(&words), expected, "{line}");
        }
    }
}
