//! What is known of programs by their names, and which beginnings leave open what is run.

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
    for line in ["git status", "git log --oneline", "git diff", "git add", "git commit -m", "git show", "git.exe log"] {
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
