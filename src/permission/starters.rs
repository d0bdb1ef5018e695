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
        "env"
        | "nice"
        | "nohup"
        | "sudo"
        | "doas"
        | "stdbuf"
        | "setsid"
        | "time"
        | "ionice"
        | "command"
        | "exec"
        | "builtin"
        | "busybox"
        | "toybox"
        | "unshare"
        | "nsenter"
        | "strace"
        | "ltrace"
        | "valgrind"
        | "fakeroot"
        | "eatmydata"
        | "systemd-run"
        | "setpriv"
        | "prlimit"
        | "catchsegv"
        | "unbuffer"
        | "rlwrap"
        | "proot"
        | "bwrap"
        | "firejail"
        | "caffeinate"
        | "pkexec"
        | "run0"
        | "capsh"
        | "linux32"
        | "linux64"
        | "dbus-run-session"
        | "xvfb-run"
        | "start-stop-daemon"
        | "script"
        | "su"
        | "runuser"
        | "gosu"
        | "su-exec"
        | "repeat"
        | "ccache"
        | "sccache"
        | "distcc"
        | "chronic"
        | "choom"
        | "torsocks"
        | "torify"
        | "proxychains"
        | "proxychains4"
        | "sshpass"
        | "aa-exec"
        | "mpirun"
        | "mpiexec"
        | "orterun"
        | "srun"
        | "run-parts"
        | "coreutils"
        | "ifne"
        | "setuidgid"
        | "s6-setuidgid"
        | "envdir"
        | "pidproxy"
        | "heaptrack"
        | "rr"
        | "uftrace"
        | "systemd-inhibit"
        | "gnome-session-inhibit"
        | "fakechroot"
        | "ssh-agent"
        | "dbus-launch"
        | "sg"
        | "nsjail"
        | "minijail0"
        | "xterm" => Starter::Wrapper { operands: operands_of(name) },
        "timeout" | "chroot" | "flock" | "taskset" | "chrt" | "chpst" | "softlimit" => Starter::Wrapper { operands: 1 },
        "xargs" => Starter::Feeder,
        "tini" | "dumb-init" | "numactl" | "arch" | "watchexec" | "entr" | "cpulimit" | "cgexec" | "catatonit" => {
            Starter::Wrapper { operands: 0 }
        }
        "faketime" | "setarch" | "nix-shell" => Starter::Wrapper { operands: 1 },
        "eval" | "trap" | "watch" | "ssh" | "parallel" | "hyperfine" | "tmux" | "screen" => Starter::Script,
        "mapfile" | "readarray" | "complete" | "compgen" | "bind" | "bindkey" | "fc" | "hash" | "emulate" | "sched"
        | "enable" | "zle" => Starter::Callback,
        "export" | "declare" | "typeset" | "readonly" | "local" | "set" => Starter::Declaration,
        "find" | "fd" | "fdfind" => Starter::Find,
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
    usize::from(matches!(name, "gosu" | "su-exec" | "repeat" | "setuidgid" | "s6-setuidgid" | "envdir" | "sg"))
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
            ("git", Some("git")),
            ("git status", None),
            ("git -c", Some("git")),
            ("git -C x --config-env", Some("git")),
            ("git bisect", Some("git")),
            ("git bisect run", Some("git")),
            ("git bisect run sh", Some("git")),
            ("git bisect run make", Some("git")),
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
            ("bash -c -l", Some("bash")),
            ("perl -e 1", Some("perl")),
            ("perl x.pl", None),
            ("node -e 1", Some("node")),
            ("awk {print}", Some("awk")),
            ("gdb x", Some("gdb")),
            ("vim x", Some("vim")),
            ("cargo", None),
            ("cargo test", None),
            ("", None),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(leaves_open(&words), expected, "{line}");
        }
    }

    fn open_word(line: &str) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        leaves_open(&words).map(str::to_owned)
    }

    #[test]
    fn options_behind_a_beginning_may_name_another_program() {
        for line in [
            "tar",
            "tar xf",
            "gtar cf",
            "bsdtar",
            "sed",
            "sed -n",
            "gsed s/a/b/",
            "make",
            "make test",
            "gmake",
            "ninja",
            "rg",
            "rg foo",
            "rsync -a",
            "split x",
            "sort",
            "less",
            "man ls",
            "gcc x.c",
            "scp a",
            "zip a",
            "sqlite3 db",
            "cmake --build build",
            "timeout 5 make",
            "env A=1 tar xf",
            "nice rg",
            "find .",
            "xargs ls -e sh",
        ] {
            let expected = !matches!(line, "xargs ls -e sh");
            assert_eq!(open_word(line).is_some(), expected, "{line}");
        }
        for line in ["cargo", "go test", "ls", "grep -r", "cat", "wc -l", "npm test", "pytest -q", "jq .", "head"] {
            assert_eq!(open_word(line), None, "{line}");
        }
    }

    #[test]
    fn a_beginning_of_git_is_its_subcommand() {
        for line in [
            "git",
            "git -C .",
            "git --no-pager log",
            "git -c a.b=c status",
            "git --git-dir=x status",
            "git submodule",
            "git submodule foreach",
            "git rebase",
            "git rebase -i",
            "git bisect",
            "git bisect run make",
            "git config",
            "git filter-branch",
            "git difftool",
            "git mergetool",
            "git grep",
            "git fetch",
            "git pull",
            "git push",
            "git push origin",
            "git clone",
            "git ls-remote",
            "git archive",
            "git init",
            "git submodule--helper",
            "/usr/bin/git -p",
            "git.exe -C",
            "env A=1 git",
            "git for-each-repo",
            "git merge-index",
        ] {
            assert!(open_word(line).is_some(), "{line}");
        }
        for line in
            ["git status", "git log --oneline", "git diff", "git add", "git commit -m", "git show", "git.exe log"]
        {
            assert_eq!(open_word(line), None, "{line}");
        }
    }

    #[test]
    fn programs_are_known_by_other_names() {
        for (name, expected) in [
            ("bash.exe", "bash"),
            ("BASH.EXE", "BASH"),
            ("git.exe", "git"),
            ("python3-dbg", "python3"),
            ("python3.12d", "python3.12"),
            ("bash-static", "bash"),
            ("busybox.static", "busybox"),
            ("vim.tiny", "vim"),
            ("sudo-rs", "sudo"),
            ("gtar", "tar"),
            ("gsed", "sed"),
            ("gxargs", "xargs"),
            ("gmake", "make"),
            ("sed", "sed"),
            ("fd", "fd"),
            ("m4", "m4"),
            ("ts", "ts"),
            (".exe", ".exe"),
            ("é.exe", "é"),
            ("", ""),
            ("node-gyp", "node-gyp"),
            ("bash-language-server", "bash-language-server"),
        ] {
            assert_eq!(known_name(name), expected, "{name}");
        }
    }

    #[test]
    fn starters_of_all_kinds_are_known() {
        for name in [
            "ccache",
            "chronic",
            "choom",
            "torsocks",
            "sshpass",
            "aa-exec",
            "mpirun",
            "mpiexec",
            "srun",
            "run-parts",
            "micromamba",
            "ipython",
            "ipython3",
            "emacs",
            "nvim",
            "vim",
            "vi",
            "java",
            "swift",
            "bash.exe",
            "python3-dbg",
            "python3.12-dbg",
            "coreutils",
            "proxychains4",
            "setuidgid",
            "genv",
            "gtimeout",
            "gfind",
            "lua5.4",
            "ruby3.1",
            "perl5.36.0",
            "zsh-static",
            "sh.exe",
            "env.exe",
        ] {
            assert!(is_starter(name), "{name}");
            assert!(open_word(name).is_some(), "{name}");
        }
        for name in ["git", "make", "cargo", "ls", "node-gyp", "rc-service", "time-it"] {
            assert!(!is_starter(name), "{name}");
        }
    }
}
