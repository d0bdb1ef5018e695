//! Programs whose work is to start others: wrappers, shells and interpreters.
//!
//! A rule that denies looks behind them; a rule that allows one of them by its bare name allows everything.

use std::collections::BTreeSet;

use super::carriers::{git_leaves_open, may_start_any, runs_behind, starting_options};
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
    let name = known_name(name);
    exact_starter_of(name).or_else(|| exact_starter_of(without_version(name)))
}

fn exact_starter_of(name: &str) -> Option<Starter> {
    let starter = match name {
        "xargs" => Starter::Feeder,
        "eval" | "trap" | "watch" | "ssh" | "parallel" | "hyperfine" | "tmux" | "screen" => Starter::Script,
        "mapfile" | "readarray" | "complete" | "compgen" | "bind" | "bindkey" | "fc" | "hash" | "emulate" | "sched"
        | "enable" | "zle" => Starter::Callback,
        "export" | "declare" | "typeset" | "readonly" | "local" | "set" => Starter::Declaration,
        "find" | "fd" | "fdfind" => Starter::Find,
        "alias" => Starter::Alias,
        "source" | "." => Starter::Shell { is_posix: true },
        _ if holds(WRAPPERS, name) => Starter::Wrapper { operands: 0 },
        _ if holds(WRAPPERS_WITH_OPERAND, name) => Starter::Wrapper { operands: 1 },
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

/// The command stands behind their options.
const WRAPPERS: &str = "env nice nohup sudo doas stdbuf setsid time ionice command exec builtin busybox toybox unshare \
    nsenter strace ltrace valgrind fakeroot eatmydata systemd-run setpriv prlimit catchsegv unbuffer \
    rlwrap proot bwrap firejail caffeinate pkexec run0 capsh linux32 linux64 dbus-run-session xvfb-run \
    start-stop-daemon script su runuser ccache sccache distcc chronic choom torsocks torify proxychains \
    proxychains4 sshpass aa-exec mpirun mpiexec orterun srun run-parts coreutils ifne pidproxy heaptrack \
    rr uftrace systemd-inhibit gnome-session-inhibit fakechroot ssh-agent dbus-launch nsjail minijail0 \
    xterm tini dumb-init numactl arch watchexec entr cpulimit cgexec catatonit";

/// One word of their own stands before the command.
const WRAPPERS_WITH_OPERAND: &str = "gosu su-exec repeat setuidgid s6-setuidgid envdir sg timeout chroot flock taskset chrt chpst \
    softlimit faketime setarch nix-shell";

fn holds(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}

const POSIX_SHELLS: [&str; 13] =
    ["osh", "oil", "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "pdksh", "yash", "rbash", "rzsh"];

const OTHER_SHELLS: [&str; 11] = ["rc", "es", "ysh", "xonsh", "ion", "fish", "csh", "tcsh", "elvish", "nu", "pwsh"];

fn is_interpreter(name: &str) -> bool {
    const INTERPRETERS: &str = "python pypy perl ruby node nodejs php lua luajit tclsh wish expect awk gawk mawk nawk \
        osascript guile julia R Rscript octave tsx ts-node elixir iex erl runghc runhaskell ghci groovy jshell racket \
        m4 scala clojure raku sbcl gdb ipython bpython jython jruby micropython java swift kotlin emacs emacsclient \
        vim vi nvim view ex vimdiff gvim rvim ed lldb ocaml ghc gnuplot bpftrace stap dc hy fennel janet csi gosh";
    INTERPRETERS.split_whitespace().any(|known| known == name || known == without_version(name))
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
    let known = known_name(name);
    if may_start_any(known) || (known == "git" && git_leaves_open(tail)) {
        return Some(name);
    }
    let options = starting_options(known);
    let takes_program = |last: &String| options.lines.iter().chain(options.texts).any(|option| option == last);
    let is_bare = tail.iter().all(|word| word.starts_with('-'));
    let runs = runs_behind(known);
    // The first word is what they start others by.
    if tail.last().is_some_and(takes_program) || (is_bare && !runs.is_empty()) {
        return Some(name);
    }
    runs.iter().find_map(|(wanted, operands)| wrapped_leaves_open(name, &tail[behind(tail, wanted)?..], *operands))
}

/// Whether the program does nothing of its own but to start what it is told.
pub(super) fn is_starter(name: &str) -> bool {
    let known = known_name(name);
    starter_of(known).is_some() || (known != "git" && !runs_behind(known).is_empty())
}

/// Whether more than project scripts may be started by this program's bare name only because of some of its words.
pub(super) fn has_subcommands(name: &str) -> bool {
    runs_behind(known_name(name)).iter().any(|(wanted, _)| !wanted.is_empty())
}

/// `python3.12` is `python`.
fn without_version(name: &str) -> &str {
    name.trim_end_matches(|character: char| character.is_ascii_digit() || matches!(character, '.' | '-'))
}

/// The name by which a program is known here: `bash.exe` and `bash-static` are `bash`, `python3.12-dbg` is `python3.12`,
/// `gxargs` is GNU's `xargs`.
pub(super) fn known_name(name: &str) -> &str {
    const GNU: [&str; 14] = [
        "awk", "chroot", "env", "find", "install", "make", "nice", "nohup", "sed", "sort", "split", "stdbuf", "tar",
        "time",
    ];
    const BUILDS: [&str; 14] =
        ["dbg", "debug", "static", "dm", "d", "t", "m", "rs", "nox", "gtk", "tiny", "basic", "nogui", "intel64"];
    let mut name = without_exe(name);
    for build in BUILDS {
        let Some(rest) = name.strip_suffix(build) else { continue };
        // `python3.8d`, `python3-dbg`, `vim.tiny`; but `sed` ends in no build's letter.
        let whole = rest.trim_end_matches(['-', '.']);
        if !whole.is_empty() && (whole.len() < rest.len() || whole.ends_with(|last: char| last.is_ascii_digit())) {
            name = whole;
            break;
        }
    }
    match name.strip_prefix('g') {
        Some(plain) if GNU.contains(&plain) || matches!(plain, "timeout" | "xargs") => plain,
        _ => name,
    }
}

/// Some systems run `NAME.exe` where `NAME` is asked for.
pub(super) fn without_exe(name: &str) -> &str {
    match name.len().checked_sub(4).and_then(|at| name.split_at_checked(at)) {
        Some((stem, end)) if !stem.is_empty() && end.eq_ignore_ascii_case(".exe") => stem,
        _ => name,
    }
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
        Starter::Shell { .. } => return (!names_script(tail, true)).then_some(name),
        Starter::Interpreter => {
            let known = without_version(known_name(name));
            let is_settled = !reads_on(known) && names_script(tail, matches!(known, "python" | "pypy"));
            return (!is_settled).then_some(name);
        }
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

/// Interpreters and editors that go on to read options, scripts or commands behind their script.
pub(super) fn reads_on(known: &str) -> bool {
    matches!(
        known,
        "awk"
            | "gawk"
            | "mawk"
            | "nawk"
            | "gdb"
            | "lldb"
            | "m4"
            | "sbcl"
            | "ghci"
            | "ghc"
            | "erl"
            | "iex"
            | "R"
            | "octave"
            | "jshell"
            | "clojure"
            | "emacs"
            | "emacsclient"
            | "vim"
            | "vi"
            | "nvim"
            | "view"
            | "ex"
            | "vimdiff"
            | "gvim"
            | "rvim"
            | "ed"
            | "gnuplot"
            | "dc"
            | "bpftrace"
            | "stap"
            | "ocaml"
    )
}

/// Whether the words behind a shell or an interpreter hold its script, or the file with it, and what follows is for the
/// script. `ends_with_script`: nothing behind a script among the options (`-c`, `-m`) is an option.
fn names_script(words: &[String], ends_with_script: bool) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with(['-', '+']) {
            return true;
        }
        let takes_script = ends_with_script && !word.starts_with("--") && word.ends_with(['c', 'm']);
        // Behind any other option the next word may be its value; and `bash -c -l` awaits its script still.
        if words.next().is_some_and(|next| !next.starts_with(['-', '+'])) && takes_script {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
