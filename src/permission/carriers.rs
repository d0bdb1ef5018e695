//! Programs of many trades that start others by some of their options or words: which these are.
//!
//! Not here: wrappers, shells and interpreters, whose work it is to start others.

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
        "pipx" | "poetry" | "pdm" | "hatch" | "rye" | "pipenv" | "conda" | "mamba" | "micromamba" | "pixi"
        | "flatpak" | "snap" => &[("run", 0)],
        "bundle" | "opam" | "asdf" | "rbenv" | "pyenv" | "nodenv" | "singularity" | "apptainer" => &[("exec", 0)],
        "mise" | "direnv" => &[("exec", 1), ("x", 1)],
        "rustup" => &[("run", 1)],
        "nix" => &[("run", 1), ("shell", 1), ("develop", 1)],
        "perf" => &[("stat", 0), ("record", 0), ("trace", 0)],
        "ip" => &[("exec", 1)],
        "git" => &[("bisect run", 0), ("submodule foreach", 0), ("for-each-repo", 0), ("merge-index", 0)],
        "npx" | "uvx" | "bunx" | "pnpx" => &[("", 0)],
        _ => &[],
    }
}

/// Options of a program that make it start another. A short one is a letter behind a hyphen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StartingOptions {
    /// Those whose value is a program, or a line of one.
    pub(super) lines: &'static [&'static str],
    /// Those whose value names one somewhere.
    pub(super) texts: &'static [&'static str],
}

pub(super) fn starting_options(name: &str) -> StartingOptions {
    let (lines, texts): (&'static [&'static str], &'static [&'static str]) = match name {
        "tar" | "bsdtar" => (
            &[
                "-I",
                "-F",
                "--use-compress-program",
                "--to-command",
                "--checkpoint-action",
                "--info-script",
                "--new-volume-script",
                "--rsh-command",
                "--rmt-command",
            ],
            &[],
        ),
        "rsync" => (&["-e", "--rsh", "--rsync-path"], &[]),
        "rg" => (&["--pre", "--hostname-bin"], &[]),
        "split" => (&["--filter"], &[]),
        "sort" => (&["--compress-program"], &[]),
        "make" | "bmake" => (&[], &["-E", "--eval"]),
        "scp" | "sftp" => (&["-S", "-D"], &["-o"]),
        "zip" => (&["-TT", "--unzip-command"], &[]),
        "wget" => (&["--use-askpass"], &["-e", "--execute"]),
        "cpio" => (&["--rsh-command", "--rmt-command"], &[]),
        "man" => (&["-P", "--pager"], &[]),
        "bat" | "batcat" | "ag" => (&["--pager"], &[]),
        "tcpdump" => (&["-z"], &[]),
        "nc" | "ncat" | "netcat" => (&["-e", "-c", "--exec", "--sh-exec"], &[]),
        "fzf" | "sk" => (&["--preview"], &["--bind"]),
        "gcc" | "g++" | "cc" | "c++" | "gfortran" => (&[], &["-wrapper"]),
        "go" => (&["-exec", "-toolexec", "-vettool"], &[]),
        "install" => (&["--strip-program"], &[]),
        "sdiff" | "diff3" => (&["--diff-program"], &[]),
        "svn" => (&["--diff-cmd", "--diff3-cmd", "--editor-cmd"], &["--config-option"]),
        "apt" | "apt-get" => (&[], &["-o", "--option"]),
        "dpkg" => (&["--pre-invoke", "--post-invoke"], &[]),
        "helm" => (&["--post-renderer"], &[]),
        "rpm" | "rpmbuild" => (&["--pipe"], &["-E", "--eval", "-D", "--define"]),
        "cargo" | "hg" => (&[], &["--config"]),
        _ => (&[], &[]),
    };
    StartingOptions { lines, texts }
}

/// Those of git's subcommands.
pub(super) fn starting_options_of_git(subcommand: &str) -> StartingOptions {
    let lines: &'static [&'static str] = match subcommand {
        "rebase" => &["-x", "--exec"],
        "difftool" => &["-x", "--extcmd"],
        "grep" => &["-O", "--open-files-in-pager"],
        "clone" | "ls-remote" | "fetch" | "pull" | "fetch-pack" => &["-u", "--upload-pack", "--exec"],
        "push" | "send-pack" | "archive" => &["--receive-pack", "--exec"],
        "filter-branch" => &[
            "--setup",
            "--env-filter",
            "--tree-filter",
            "--index-filter",
            "--parent-filter",
            "--msg-filter",
            "--commit-filter",
            "--tag-name-filter",
        ],
        _ => &[],
    };
    StartingOptions { lines, texts: &[] }
}

/// Whether some word behind the program's name may make it start any other. Programs that run what the project holds
/// are not meant, though an option of theirs may do so as well.
pub(super) fn may_start_any(name: &str) -> bool {
    const OTHERS: &str = "sed ninja cmake ctest just rake scons ant less more most mail mutt socat openvpn nmap at batch \
        crontab clang clang++ tex latex pdftex pdflatex xelatex lualatex latexmk gs sqlite3 psql mysql \
        mariadb ftp ansible";
    if matches!(name, "cargo" | "go") {
        return false;
    }
    let options = starting_options(name);
    !(options.lines.is_empty() && options.texts.is_empty()) || OTHERS.split_whitespace().any(|known| known == name)
}

/// Whether the words behind git's name leave open what it runs: it is told by anything but a subcommand first, or that
/// subcommand runs what it is given, or takes an option that names a program.
pub(super) fn git_leaves_open(tail: &[String]) -> bool {
    const RUNNING: &str = "submodule bisect config mergetool merge-index for-each-repo init hook remote-ext send-email svn \
        p4 daemon instaweb web help upload-pack shell credential maintenance";
    let Some(subcommand) = tail.first().filter(|word| !word.starts_with('-')) else { return true };
    // `submodule--helper` is a part of `submodule`.
    let subcommand = subcommand.split_once("--").map_or(subcommand.as_str(), |(name, _)| name);
    !starting_options_of_git(subcommand).lines.is_empty() || RUNNING.split_whitespace().any(|known| known == subcommand)
}

/// Whether git runs what this setting holds, or reads from there what it runs.
pub(super) fn is_run_by_git(key: &str) -> bool {
    const SECTIONS: [&str; 14] = [
        "alias.",
        "pager.",
        "filter.",
        "credential.",
        "difftool.",
        "mergetool.",
        "gpg.",
        "browser.",
        "man.",
        "trailer.",
        "sendemail.",
        "instaweb.",
        "hook.",
        "guitool.",
    ];
    const ENDS: [&str; 22] = [
        "core.sshcommand",
        "core.pager",
        "core.editor",
        "core.fsmonitor",
        "core.askpass",
        "core.gitproxy",
        "core.alternaterefscommand",
        "sequence.editor",
        "interactive.difffilter",
        "diff.external",
        ".driver",
        ".command",
        ".textconv",
        ".uploadpack",
        ".receivepack",
        ".vcs",
        ".update",
        ".packobjectshook",
        ".insteadof",
        ".pushinsteadof",
        ".helper",
        ".path",
    ];
    let key = key.to_ascii_lowercase();
    SECTIONS.iter().any(|section| key.starts_with(section))
        || ENDS.iter().any(|end| key.ends_with(end))
        || is_read_by_git(&key)
}

/// Whether this setting, in small letters, names a file or folder in which git finds what it runs.
pub(super) fn is_read_by_git(key: &str) -> bool {
    matches!(key, "core.hookspath" | "init.templatedir")
        || (key.starts_with("include") && key.rsplit('.').next() == Some("path"))
}
