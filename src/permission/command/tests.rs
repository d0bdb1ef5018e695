//! Which commands a rule that denies finds, and which it leaves alone.

use super::*;

fn words(line: &str) -> Vec<String> {
    shlex::split(line).unwrap()
}

fn access(line: &str) -> CommandAccess {
    CommandAccess { argv: words(line), stdin: false, background: false, cwd_inside: true, cwd_is_root: true }
}

/// Each runs `rm -rf`, or may.
const HIDING: &[&str] = &[
    "rm -rf x",
    "/bin/rm -rf x",
    "./rm -rf x",
    "env rm -rf x",
    "env -i A=1 rm -rf x",
    "env -u A rm -rf x",
    "env -S 'rm -rf x'",
    "env '-Srm -rf x'",
    "env '--split-string=rm -rf x'",
    "nice -n 5 rm -rf x",
    "nice rm -rf x",
    "nohup rm -rf x",
    "timeout 5 rm -rf x",
    "timeout -k 1 -s KILL 5 rm -rf x",
    "xargs rm -rf",
    "xargs rm",
    "xargs -n 1 -I{} rm -rf {}",
    "xargs",
    "sudo rm -rf x",
    "sudo -u root -- rm -rf x",
    "sudo A=1 rm -rf x",
    "doas rm -rf x",
    "stdbuf -oL rm -rf x",
    "setsid rm -rf x",
    "time rm -rf x",
    "ionice -c 3 rm -rf x",
    "chroot /x rm -rf x",
    "busybox rm -rf x",
    "command rm -rf x",
    "/usr/bin/env /bin/rm -rf x",
    "nohup nice sudo env rm -rf x",
    "sh -c 'rm -rf x'",
    "bash -lc 'rm -rf x'",
    "bash -c -l 'rm -rf x'",
    "bash --norc -c 'rm -rf x'",
    "bash -euo pipefail -c 'rm -rf x'",
    "zsh -c 'cd y && rm -rf x'",
    "bash -c 'a; rm -rf x'",
    "bash -c 'a | rm -rf x'",
    "bash -c 'echo $(rm -rf x)'",
    "bash -c 'echo `rm -rf x`'",
    "bash -c 'a\nrm -rf x'",
    "bash -c 'A=1 rm -rf x'",
    "bash -c 'env A=1 rm -rf x'",
    "bash -c '\"rm\" -rf x'",
    "bash -c 'r\\m -rf x'",
    "bash -c 'eval \"rm -rf x\"'",
    "bash -c 'eval rm -rf x'",
    "bash -c '$X -rf x'",
    "bash -c 'X=rm; \"$X\" -rf x'",
    "bash -c 'echo cm0= | base64 -d | sh'",
    "bash -c 'sh -c \"rm -rf x\"'",
    "bash -c 'find . | xargs rm -rf'",
    "bash -c 'if true; then rm -rf x; fi'",
    "bash -c '(rm -rf x)'",
    "bash -c '{ rm -rf x; }'",
    "bash -c 'exec rm -rf x'",
    "bash -c 'trap \"rm -rf x\" EXIT'",
    "fish --command='rm -rf x'",
    "busybox sh -c 'rm -rf x'",
    "su -c 'rm -rf x' root",
    "find . -name y -exec rm -rf {} +",
    "find . -execdir rm -rf {} ;",
    "find . -exec sh -c 'rm -rf $1' _ {} ;",
    "watch -n 1 'rm -rf x'",
    "flock /l -c 'rm -rf x'",
    "flock /l rm -rf x",
    "rm -v -rf x",
    "bash -c '2>&- rm -rf x'",
    "bash -c 'time -p rm -rf x'",
    "bash -c 'echo ${x:-\"}\"}; rm -rf x'",
    "bash -c \"echo \\${x:-'}'}; rm -rf x\"",
    "bash -c \"cat <<EOF\nit's\nEOF\nrm -rf x\"",
    "bash -c \"cat <<'E F'\n\\`\nE F\nrm -rf x\"",
    "bash -c 'sh <<EOF\nrm -rf x\nEOF'",
    "bash -c 'cat <<EOF\n$(rm -rf x)\nEOF'",
    "sh -c 'alias y=rm\ny -rf x'",
    "bash -c 'source <(echo rm)'",
    "bash -c '. /dev/stdin'",
    "zsh -c '=rm -rf x'",
    "zsh -c 'if [[ a ]] rm -rf x'",
    "zsh -c 'repeat 3 rm -rf x'",
    "zsh -c 'if true { rm -rf x }'",
    "fish -c 'true 2>| rm -rf x'",
    "fish -c \"echo 'a\\'' ; rm -rf x #'\"",
    "xargs -I% sh -c %",
    "bash -c 'ls | parallel'",
    "env - /bin/rm -rf x",
    "timeout 5 env - /bin/rm -rf x",
    "xargs -a names env - /bin/rm -rf",
    "env - PATH=/bin rm -rf x",
    "sh -c 'env - rm -rf x'",
    r"env -S 'rm\_-rf\_x'",
    "env -S '-u X rm -rf x'",
    "env -vS '-i rm -rf x'",
    "env -iS 'r\"m\" -rf' x",
    "env --split='rm -rf x'",
    "env --s 'rm -rf x'",
    r"env -S '\x'",
    "env 'a b=1' rm -rf x",
    "env =x rm -rf x",
    "env -a y rm -rf x",
    "env 'BASH_FUNC_ls%%=() { rm -rf x; }' bash -c ls",
    "env 'EDITOR=rm -rf x' git commit",
    "env BASH_ENV=rm bash -c ls",
    "sh -c - 'rm -rf x'",
    "sh -c -- 'rm -rf x'",
    "bash - -c 'rm -rf x'",
    "sh -c '>|f rm -rf x'",
    "sh -c 'x=1 >|f rm -rf x'",
    "sh -c '>|f >|g rm -rf x'",
    "sh -c 'if true; then >|f rm -rf x; fi'",
    "sh -c '>>|f rm -rf x'",
    "zsh -c '>! f rm -rf x'",
    "bash --rcfile f -c 'rm -rf x'",
    "bash --init-file f -c 'rm -rf x'",
    "bash -rcfile f -c 'rm -rf x'",
    "bash -oc pipefail 'rm -rf x'",
    "zsh -oerrexit -c 'rm -rf x'",
    "zsh --emulate sh -c 'rm -rf x'",
    "fish -C true -c 'rm -rf x'",
    "pwsh -Command rm -rf x",
    "nu --commands 'rm -rf x'",
    "bash -c 'mapfile -c 1 -C \"rm -rf x #\" a < x'",
    "bash -c 'readarray -C \"rm -rf\" a'",
    "bash -c 'complete -C \"rm -rf x\" ls'",
    "bash -c 'compgen -C \"rm -rf x\"'",
    "bash -c 'hash -p /bin/rm ls; ls -rf x'",
    r#"bash -c 'bind -x "\"a\": rm -rf x"'"#,
    "bash -ic 'PROMPT_COMMAND=\"rm -rf x\"'",
    "bash -ic 'export PROMPT_COMMAND=\"rm -rf x\"'",
    "bash -c 'trap \"rm -rf x\" EXIT'",
    "bash -c 'eval -- rm -rf x'",
    "bash -c 'command -p rm -rf x'",
    "bash -c 'builtin command rm -rf x'",
    "bash -c 'exec -ca y rm -rf x'",
    "bash -c 'coproc rm -rf x'",
    "bash -c 'coproc C { rm -rf x; }'",
    "zsh -c 'emulate sh -c \"rm -rf x\"'",
    "su root -c 'rm -rf x'",
    "su root --c 'rm -rf x'",
    "script f -c 'rm -rf x'",
    "flock --com 'rm -rf x' /l",
    "sudo -s 'rm -rf x'",
    "sudo -i rm -rf x",
    "sudo --shell 'rm -rf x'",
    "strace -o '|rm -rf x' ls",
    "softlimit -m1 rm -rf x",
    "chrt --idle rm -rf x",
    "npx rm -rf x",
    "uv run rm -rf x",
    "docker exec box rm -rf x",
    "npm exec -- rm -rf x",
    "tmux new 'rm -rf x'",
    "hyperfine 'rm -rf x'",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm -rf x",
    "setarch x86_64 rm -rf x",
    "faketime now rm -rf x",
    "git -c 'alias.x=!rm -rf x' x",
    "git bisect run rm -rf x",
    "git submodule foreach 'rm -rf x'",
    "fd . --exec=rm",
    "fd . -Hxrm",
    "ssh -o 'ProxyCommand=rm -rf x' host",
    "python3 -c 'import os; os.system(\"rm -rf x\")'",
    "perl -e 'exec qw(rm -rf x)'",
    "awk 'BEGIN { system(\"rm -rf x\") }'",
];

#[test]
fn a_denied_command_is_found_wherever_it_hides() {
    for line in HIDING {
        let rule = words("rm -rf");
        assert!(Denials::of(&access(line)).denied_by(Pattern::Beginning(&rule)), "{line}");
    }
    let rule = words("git push");
    for line in ["git -c a=b push", "git -C x --no-pager push", "git --git-dir=x push", "bash -c 'git $X'"] {
        assert!(Denials::of(&access(line)).denied_by(Pattern::Beginning(&rule)), "{line}");
    }
    let rule = words("./scripts/deploy.sh");
    for line in ["scripts/deploy.sh", "/w/scripts/deploy.sh", "sh scripts/deploy.sh", "env bash -e ./scripts/deploy.sh"]
    {
        assert!(Denials::of(&access(line)).denied_by(Pattern::Beginning(&rule)), "{line}");
    }
}

#[test]
fn what_options_and_settings_start_is_denied() {
    for line in [
        "git rebase -x 'rm -rf x' main",
        "git rebase '-xrm -rf x' main",
        "git rebase -ix 'rm -rf x' main",
        "git rebase --exec 'rm -rf x'",
        "git rebase --exec='rm -rf x'",
        "git rebase --ex='a; rm -rf x'",
        "git -C y rebase -x 'rm -rf x'",
        "git difftool -x 'rm -rf'",
        "git difftool --extcmd=rm",
        "git grep -Orm y",
        "git fetch --upload-pack 'rm -rf x' y",
        "git push --receive-pack='rm -rf x' y",
        "git filter-branch --tree-filter 'rm -rf x'",
        "git -c 'alias.y=!rm -rf x' y",
        "git -c 'alias.y=!f() { rm -rf x; }; f' y",
        "git -c 'core.sshCommand=rm -rf x' fetch",
        "git -c 'core.pager=echo cm0= | base64 -d | sh' log",
        "git -c 'core.editor=rm -rf' commit",
        "git -c 'diff.external=rm -rf x' diff",
        "git -c 'credential.helper=!rm -rf x' fetch",
        "git -c core.hooksPath=y commit",
        "git -c include.path=y status",
        "git --config-env=core.pager=Y log",
        "git --config-env alias.y=Y y",
        "git --exec-path=y status",
        "sh -c 'git -c \"core.pager=$Y\" log'",
        "sh -c 'git -c \"$Y\" log'",
        "split --filter='rm -rf x' y",
        "split --filter 'rm -rf x' y",
        "split --fil='rm -rf x' y",
        "sh -c 'split --filter=\"$Y\" y'",
        "tar cf y z --checkpoint=1 '--checkpoint-action=exec=rm -rf x'",
        "tar cf y z --checkpoint-action 'exec=rm -rf x'",
        "tar -I 'rm -rf x' -cf y z",
        "tar '-Irm -rf x' -cf y z",
        "tar -cI 'rm -rf x' -f y z",
        "tar cIf 'rm -rf x' y z",
        "tar --use-compress-program='rm -rf x' -cf y z",
        "tar --use='rm -rf x' -cf y z",
        "tar xf y --to-command='rm -rf x'",
        "gtar xf y --to-command='rm -rf x'",
        "rsync -e 'rm -rf x' a b:",
        "rsync -ae 'rm -rf x' a b:",
        "rsync '-erm -rf x' a b:",
        "rsync --rsh='rm -rf x' a b:",
        "rsync --rsh 'rm -rf x' a b:",
        "rg --pre rm y",
        "rg --pre=rm y",
        "sort --compress-program=rm y",
        "go test -exec 'rm -rf x'",
        "go test --exec='rm -rf x'",
        "gcc -wrapper rm,-rf y.c",
        "make SHELL='rm -rf x'",
        "make --eval='y:;rm -rf x'",
        "sed '1e rm -rf x' y",
        "sed -n -e '/a/,$ e rm -rf x' y",
        "sed 's/.*/rm -rf x/e' y",
        "xargs rsync a -e",
        "ccache rm -rf x",
        "chronic -v rm -rf x",
        "choom -n 5 -- rm -rf x",
        "torsocks rm -rf x",
        "sshpass -p y rm -rf x",
        "aa-exec -p y rm -rf x",
        "mpirun -np 4 rm -rf x",
        "srun -n 2 rm -rf x",
        "micromamba run -n y rm -rf x",
        "coreutils --coreutils-prog=rm -rf x",
        "bash.exe -c 'rm -rf x'",
        "rm.exe -rf x",
        "genv rm -rf x",
        "vim -c '!rm -rf x'",
        "vim '+!rm -rf x' y",
        "vim y -c '!rm -rf x'",
        "python3-dbg -c 'import os; os.system(\"rm -rf x\")'",
        "A=b rm -rf x",
        "A=b C=d env rm -rf x",
        "BASH_ENV=rm ls",
    ] {
        let rule = words(if line.contains("rm -rf") { "rm -rf" } else { "rm" });
        assert!(Denials::of(&access(line)).denied_by(Pattern::Beginning(&rule)), "{line}");
    }
}

#[test]
fn an_alias_given_to_git_is_what_it_stands_for() {
    let rule = words("git push");
    for (line, expected) in [
        ("git -c alias.p=push p", true),
        ("git -c Alias.P=push p", true),
        ("git -c alias.p=push -C x p origin", true),
        ("git -C x -c 'alias.p=-C y push --force' p", true),
        ("git -c alias.q=push -c alias.p=q p", true),
        ("git -c alias.p.command=push p", true),
        ("git -c 'alias.p=!git push' p", true),
        ("git -c 'alias.p=!cd x; exec git push' p", true),
        ("sh -c 'git -c alias.p=push \"$Y\"'", true),
        ("git.exe -c alias.p=push p", true),
        ("A=b git push", true),
        ("git -c alias.p=p p", true),
        ("env GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p", true),
        ("sh -c 'GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p'", true),
        ("env GIT_CONFIG_GLOBAL=x git p", true),
        ("env GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=push git log", false),
        ("git -c core.sshCommand='ssh -i k -o ProxyCommand=git' fetch", true),
        ("git -c core.sshCommand='ssh -i k' fetch", false),
        ("git -c alias.p=push log", false),
        ("git -c alias.p=log p", false),
        ("git -c alias.p=log p push", false),
        ("git -c user.name=push commit", false),
        ("git -c core.pager=cat log", false),
        ("git -c core.hooksPath=/dev/null commit -m push", false),
        ("git -c credential.helper= fetch", false),
        ("sh -c 'git -c user.name=\"$Y\" commit'", false),
        ("A=b git log", false),
    ] {
        assert_eq!(Denials::of(&access(line)).denied_by(Pattern::Beginning(&rule)), expected, "{line}");
    }
}

#[test]
fn other_commands_are_let_alone() {
    let rule = words("rm -rf");
    for line in [
        "rm x",
        "rm x -rf",
        "rmdir -rf x",
        "echo rm -rf",
        "env echo rm -rf x",
        "grep -r 'rm -rf' .",
        "bash -c 'echo rm -rf x'",
        "bash -c 'echo \"rm -rf x\"'",
        "bash -c 'ls > rm'",
        "timeout 5 cargo test",
        "find . -name rm",
        "bash -c 'for f in *; do wc -l \"$f\"; done'",
        "sh test.sh",
        "env",
        "cargo test rm",
        "git commit -m 'rm it'",
        "git -C rm status",
        "git -c a.b=c commit -m 'rm it'",
        "git bisect good rm",
        "npm test rm",
        "docker ps rm",
        "make rm",
        "env -i -u X PATH=/bin echo rm",
        "timeout -k 1 5 echo rm",
        "sudo -n -u root echo rm",
        "nice -n 5 grep rm x",
        "bash -lc 'echo rm'",
        "bash -euo pipefail -c 'grep rm x'",
        "bash -c 'echo x >| rm'",
        "bash --norc -c 'grep rm x'",
        "python3 test.py rm",
        "python3 -m pytest tests",
        "flock /l cargo test",
        "sudo cargo test",
        "su root -c 'cargo test'",
        "git rebase main rm",
        "git rebase -x 'cargo test' main",
        "git cherry-pick -x rm",
        "git push -u origin rm",
        "tar -czf rm x",
        "tar xzf rm",
        "tar cf y z --checkpoint-action=dot",
        "rsync -avz --exclude rm a b",
        "rsync -e ssh a rm",
        "split -n 3 rm",
        "rg --pre-glob rm y",
        "rg rm .",
        "sort rm",
        "make -j4 rm",
        "sh -c 'rg \"$X\" .'",
        "sed s/rm/x/g rm",
        "sed -i s/e/rm/ x",
        "gcc -o rm x.c",
        "go test ./rm",
        "ccache gcc rm",
        "swift build rm",
        "java -jar x.jar -rf rm.jar",
        "A=b cargo test rm",
    ] {
        assert!(!Denials::of(&access(line)).denied_by(Pattern::Beginning(&rule)), "{line}");
    }
    let rule = words("git push");
    for line in ["git add push", "git log push", "git add *", "bash -c 'git add *'"] {
        assert!(!Denials::of(&access(line)).denied_by(Pattern::Beginning(&rule)), "{line}");
    }
}

#[test]
fn a_whole_command_is_denied_as_a_whole() {
    let rule = words("make deploy");
    for (line, expected) in [
        ("make deploy", true),
        ("sudo make deploy", true),
        ("bash -c 'make deploy'", true),
        ("bash -c 'make $X'", true),
        ("bash -c 'make de\"$X\"'", true),
        ("bash -c 'make x\"$X\"'", false),
        ("xargs make", true),
        ("make deploy now", false),
        ("make", false),
    ] {
        assert_eq!(Denials::of(&access(line)).denied_by(Pattern::Whole(&rule)), expected, "{line}");
    }
}

#[test]
fn an_unseen_script_may_be_anything() {
    let rule = words("rm");
    let mut fed = access("sh");
    assert!(!Denials::of(&fed).denied_by(Pattern::Beginning(&rule)));
    fed.stdin = true;
    assert!(Denials::of(&fed).denied_by(Pattern::Beginning(&rule)));
    fed.argv = words("cat");
    assert!(!Denials::of(&fed).denied_by(Pattern::Beginning(&rule)));
    let deep: Vec<String> = std::iter::repeat_n("env".to_owned(), 100).collect();
    assert!(Denials::of(&CommandAccess { argv: deep, ..access("x") }).denied_by(Pattern::Beginning(&rule)));
}

#[test]
fn a_rule_that_allows_is_taken_by_the_letter() {
    let plain = access("cargo test --all");
    let fits = words("cargo test");
    assert!(allows(Pattern::Beginning(&fits), false, &plain));
    assert!(allows(Pattern::Beginning(&[]), false, &plain));
    assert!(!allows(Pattern::Whole(&fits), false, &plain));
    assert!(allows(Pattern::Whole(&plain.argv), false, &plain));
    for line in ["env cargo test", "/usr/bin/cargo test", "cargo --quiet test", "cargo testing", "sh -c 'cargo test'"] {
        assert!(!allows(Pattern::Beginning(&fits), false, &access(line)), "{line}");
    }
    for (changed, background_is_allowed) in [
        (CommandAccess { stdin: true, ..plain.clone() }, false),
        (CommandAccess { cwd_inside: false, ..plain.clone() }, false),
        (CommandAccess { background: true, ..plain.clone() }, true),
    ] {
        assert!(!allows(Pattern::Beginning(&fits), false, &changed), "{changed:?}");
        assert_eq!(allows(Pattern::Beginning(&fits), true, &changed), background_is_allowed, "{changed:?}");
    }
}

#[test]
fn a_relative_program_is_allowed_in_the_workspaces_own_folder_alone() {
    for (line, cwd_is_root, expected) in [
        ("./run.sh", true, true),
        ("./run.sh", false, false),
        ("bin/run", false, false),
        ("../run", false, false),
        ("/bin/run", false, true),
        ("cargo test", false, true),
    ] {
        let access = CommandAccess { cwd_is_root, ..access(line) };
        assert_eq!(allows(Pattern::Whole(&access.argv), false, &access), expected, "{line} {cwd_is_root}");
        assert!(Denials::of(&access).denied_by(Pattern::Whole(&access.argv)), "{line}");
    }
}

#[test]
fn a_command_made_to_take_long_is_given_up_on() {
    let rule = words("rm -rf");
    for line in ["eval ".repeat(20_000), "a;".repeat(100_000), format!("parallel {}", "'a b' ".repeat(10_000))] {
        let access = CommandAccess { argv: vec!["sh".to_owned(), "-c".to_owned(), line], ..access("x") };
        assert!(Denials::of(&access).denied_by(Pattern::Beginning(&rule)));
    }
    let mut argv = vec!["env".to_owned()];
    argv.extend(std::iter::repeat_n("-u".to_owned(), 50_000));
    assert!(!Denials::of(&CommandAccess { argv, ..access("x") }).denied_by(Pattern::Beginning(&rule)));
}

proptest::proptest! {
    #[test]
    fn any_command_is_looked_into_without_a_panic(argv in proptest::collection::vec("[a-z $(){}`'\";&|<>=-]{0,12}", 0..8)) {
        let access = CommandAccess { argv, stdin: true, background: false, cwd_inside: true, cwd_is_root: true };
        let _ = Denials::of(&access).denied_by(Pattern::Beginning(&words("rm -rf")));
    }

    #[test]
    fn wrapping_never_hides(wrappers in proptest::collection::vec(
        proptest::sample::select(vec!["env", "env A=1", "nice -n 3", "timeout 9", "sudo -E", "nohup", "xargs -0"]), 0..5
    )) {
        let line = format!("{} rm -rf x", wrappers.join(" "));
        let rule = words("rm -rf");
        proptest::prop_assert!(Denials::of(&access(line.trim())).denied_by(Pattern::Beginning(&rule)), "{line}");
    }
}
