//! What the options of wrappers and shells are known to mean, and the words that `env` makes of a line.
//!
//! For rules that deny. What is not listed here is no error: it is in doubt, and then every word counts.

use super::carriers::is_run_by_git;
use super::script::Word;

/// The options of one program.
struct Grammar {
    flags: &'static str,
    valued: &'static str,
    long: &'static [&'static str],
}

/// The commonest wrappers; of all others nothing is taken for certain.
fn grammar_of(program: &str) -> Option<Grammar> {
    let (flags, valued, long): (_, _, &'static [&'static str]) = match program {
        "env" => ("i0v", "uC", &["--ignore-environment", "--null", "--debug", "--unset", "--chdir"]),
        "nice" => ("0123456789", "n", &["--adjustment"]),
        "timeout" => ("vfp", "ks", &["--preserve-status", "--foreground", "--verbose", "--kill-after", "--signal"]),
        "stdbuf" => ("", "ioe", &["--input", "--output", "--error"]),
        "xargs" => (
            "0rtpx",
            "nPILsdEa",
            &["--null", "--no-run-if-empty", "--verbose", "--max-args", "--max-procs", "--arg-file", "--delimiter"],
        ),
        "sudo" => ("nEHkSb", "ug", &["--non-interactive", "--preserve-env", "--user", "--group", "--set-home"]),
        "doas" => ("n", "u", &[]),
        "ionice" => ("t", "cn", &["--class", "--classdata", "--ignore"]),
        "time" => ("pva", "fo", &["--portability", "--verbose", "--append", "--format", "--output"]),
        "setsid" => ("wfc", "", &["--wait", "--fork", "--ctty"]),
        "exec" => ("cl", "a", &[]),
        "command" => ("pvV", "", &[]),
        "flock" => ("snueFxo", "wE", &["--shared", "--nonblock", "--exclusive", "--timeout", "--close"]),
        "chroot" => ("", "", &["--userspec", "--groups", "--skip-chdir"]),
        "taskset" => ("c", "", &["--cpu-list"]),
        "chronic" => ("ve", "", &[]),
        "choom" => ("", "np", &["--adjust", "--pid"]),
        "torsocks" => ("qdi", "upaP", &["--quiet", "--debug", "--isolate", "--user", "--pass", "--address", "--port"]),
        "proxychains" | "proxychains4" => ("q", "f", &[]),
        "sshpass" => ("ev", "fdpP", &[]),
        "aa-exec" => ("divh", "pn", &["--debug", "--immediate", "--verbose", "--profile", "--namespace"]),
        "nohup" | "builtin" | "busybox" | "toybox" | "repeat" | "linux32" | "linux64" | "ccache" | "sccache"
        | "distcc" | "torify" | "ifne" | "fakechroot" => ("", "", &[]),
        _ => return None,
    };
    Some(Grammar { flags, valued, long })
}

/// Whether anything is known of the wrapper's options.
pub(super) fn has_grammar(program: &str) -> bool {
    grammar_of(program).is_some()
}

/// Whether the wrapper's option is one that starts nothing. Shortened long options are not.
pub(super) fn is_understood(program: &str, option: &str) -> bool {
    let Some(grammar) = grammar_of(program) else { return false };
    if option.starts_with("--") {
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        return grammar.long.contains(&name);
    }
    for letter in option.chars().skip(1) {
        if grammar.valued.contains(letter) {
            return true;
        }
        if !grammar.flags.contains(letter) {
            return false;
        }
    }
    true
}

/// Whether a word is a cluster of a shell's options of which all is known; `o` and `O`, which take a value, only as the
/// last.
pub(super) fn is_understood_by_shell(option: &str, is_posix: bool) -> bool {
    // bash takes its long options behind one hyphen as well.
    if matches!(option, "-rcfile" | "-login" | "-posix" | "-noprofile" | "-norc" | "-help") {
        return false;
    }
    let letters = option.get(1..).unwrap_or("");
    let (known, last) =
        if is_posix { ("abcefhiklmnprstuvxBCDEHPT", letters.strip_suffix(['o', 'O'])) } else { ("cilef", None) };
    last.unwrap_or(letters).chars().all(|letter| known.contains(letter))
}

/// Long options of shells that take no value.
pub(super) fn is_shell_flag(name: &str) -> bool {
    matches!(name, "" | "norc" | "noprofile" | "login" | "posix" | "verbose" | "restricted" | "noediting")
}

/// Whether a long option, which may be shortened, takes a line to run.
pub(super) fn may_be_long_line_option(name: &str) -> bool {
    name.len() > 2 && ["--split-string", "--command", "--session-command"].iter().any(|whole| whole.starts_with(name))
}

/// Variables whose value is a program or a line that someone runs later.
pub(super) fn is_run_later(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let name = name.trim_end_matches('+');
    ["COMMAND", "CMD", "PAGER", "EDITOR", "ASKPASS", "WRAPPER", "RUNNER", "_SSH", "BASH_ENV"]
        .iter()
        .any(|end| name.ends_with(end))
        || matches!(
            name,
            "ENV" | "GIT_EXTERNAL_DIFF" | "VISUAL" | "SHELL" | "BROWSER" | "LESSOPEN" | "PS0" | "PS1" | "PS2" | "PS4"
        )
}

/// Whether a variable hands git settings that may hold anything to run, or a place where it finds programs.
pub(super) fn hides_programs_from_view(name: &str, value: &str) -> bool {
    if name.starts_with("GIT_CONFIG_KEY_") {
        return is_run_by_git(value);
    }
    match name {
        "GIT_CONFIG_PARAMETERS" => !value.is_empty(),
        "GIT_CONFIG_GLOBAL" | "GIT_CONFIG_SYSTEM" | "GIT_CONFIG" | "GIT_EXEC_PATH" | "GIT_TEMPLATE_DIR" => {
            !matches!(value, "" | "/dev/null")
        }
        _ => false,
    }
}

/// The words that `env -S` makes of a line; `None` where it has something that is not known.
pub(super) fn split_for_env(line: &str) -> Option<Vec<Word>> {
    let mut words = Vec::new();
    // The word being read, and whether something of it is known only to `env`.
    let mut part: Option<(String, bool)> = None;
    let mut quote = None;
    let mut characters = line.chars();
    let finish = |part: &mut Option<(String, bool)>, words: &mut Vec<Word>| {
        if let Some((text, is_unknown)) = part.take() {
            words.push(if is_unknown { Word::Unknown(String::new()) } else { Word::Known(text) });
        }
    };
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\'' | '"', None) => {
                quote = Some(character);
                part.get_or_insert_default();
            }
            (_, Some(open)) if character == open => quote = None,
            ('$', None | Some('"')) => part.get_or_insert_default().1 = true,
            ('\\', quoted) => match (characters.next()?, quoted) {
                (next @ ('\\' | '\''), Some('\'')) => part.get_or_insert_default().0.push(next),
                (next, Some('\'')) => part.get_or_insert_default().0.extend(['\\', next]),
                ('c', None) => break,
                ('_' | 'f' | 'n' | 'r' | 't' | 'v', None) => finish(&mut part, &mut words),
                ('_' | 'f' | 'n' | 'r' | 't' | 'v', Some(_)) => part.get_or_insert_default().0.push(' '),
                (next @ ('\\' | '\'' | '"' | '#' | '$'), _) => part.get_or_insert_default().0.push(next),
                (_, _) => return None,
            },
            (space, None) if space.is_whitespace() => finish(&mut part, &mut words),
            ('#', None) if part.is_none() => break,
            (plain, _) => part.get_or_insert_default().0.push(plain),
        }
    }
    if quote.is_some() {
        return None;
    }
    finish(&mut part, &mut words);
    Some(words)
}

/// The words that may be programs in a text that was not understood: parted by all that parts words in some shell or
/// language, and the same without the quotes and backslashes that may stand within a word.
pub(super) fn possible_programs(text: &str) -> impl Iterator<Item = String> {
    let parts = |character: char| character.is_whitespace() || ";&|<>(){}[]$`'\"\\,=:!@*?#%^~".contains(character);
    let bare: String = text.chars().filter(|character| !matches!(character, '\'' | '"' | '\\')).collect();
    // What a text says twice is looked at twice.
    let both = [text.to_owned(), bare];
    let words: Vec<String> =
        both.iter().flat_map(|text| text.split(parts)).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_env_splits_them() {
        for (line, expected) in [
            (r"rm\_x", "rm|x"),
            (r"-u X rm 'a b'", "-u|X|rm|a b"),
            (r#"r"m" "a\_b" x"#, "rm|a b|x"),
            (r"rm \c x", "rm"),
            ("rm # x", "rm"),
            ("${X} x", "?|x"),
            ("'' x", "|x"),
        ] {
            let words = split_for_env(line).unwrap();
            let shown = words.iter().map(|word| match word {
                Word::Known(text) => text.as_str(),
                Word::Unknown(_) | Word::Any(_) => "?",
            });
            assert_eq!(shown.collect::<Vec<_>>().join("|"), expected, "{line}");
        }
        for line in [r"\q", "'x", "\\"] {
            assert_eq!(split_for_env(line), None, "{line}");
        }
    }

    #[test]
    fn options_are_understood_whole_or_not_at_all() {
        for (program, option, expected) in [
            ("env", "-i", true),
            ("env", "-iuX", true),
            ("env", "-S", false),
            ("env", "-vS", false),
            ("env", "--unset=X", true),
            ("env", "--uns=X", false),
            ("timeout", "-k", true),
            ("su", "-c", false),
        ] {
            assert_eq!(is_understood(program, option), expected, "{program} {option}");
        }
    }
}
