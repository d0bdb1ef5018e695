//! Commands as a person can paste them into a shell.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use super::escape::is_deceptive;

/// The words as one line of a POSIX shell. A word with control or hidden characters is written `$'...'`, which bash,
/// zsh and ksh read, so that the line is safe to show and still means exactly these words. Line ends stay line ends.
pub fn shell_quote<Word: AsRef<str>>(words: impl IntoIterator<Item = Word>) -> String {
    words.into_iter().map(|word| quote_word(word.as_ref()).into_owned()).collect::<Vec<_>>().join(" ")
}

/// How attini has to be called to meet the same workspace and session again: `attini`, `attini -C /path -s ci`.
/// `program`: as [`program_word`] finds it.
pub fn command_prefix(program: &str, workspace: Option<&str>, session: Option<&str>) -> String {
    let options = [("-C", workspace), ("-s", session)];
    let given = options.into_iter().filter_map(|(option, value)| Some([option, value?]));
    shell_quote(std::iter::once(program).chain(given.flatten()))
}

/// The word that starts this very program from the same shell: `attini` where that is what the search path finds, else
/// the path that was typed.
pub fn program_word(typed: Option<&OsStr>, search_path: Option<&OsStr>) -> String {
    const NAME: &str = "attini";
    let Some(typed) = typed.map(Path::new).filter(|typed| typed.components().count() > 1) else {
        return NAME.to_owned();
    };
    let found = search_path
        .into_iter()
        .flat_map(std::env::split_paths)
        .map(|folder| folder.join(NAME))
        .find_map(|candidate| candidate.canonicalize().ok());
    match (found, typed.canonicalize(), typed.to_str()) {
        (Some(found), Ok(own), _) if found == own => NAME.to_owned(),
        (_, Ok(_), Some(typed)) => typed.to_owned(),
        _ => NAME.to_owned(),
    }
}

fn quote_word(word: &str) -> Cow<'_, str> {
    if !word.contains(is_deceptive)
        && let Ok(quoted) = shlex::try_quote(word)
    {
        return quoted;
    }
    Cow::Owned(quote_escaped(word))
}

fn quote_escaped(word: &str) -> String {
    let mut quoted = String::from("$'");
    for letter in word.chars() {
        match letter {
            '\\' | '\'' => {
                quoted.push('\\');
                quoted.push(letter);
            }
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            // Byte by byte, for a shell without a UTF-8 locale would not make the same bytes of `\\U`.
            letter if is_deceptive(letter) => {
                for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                    // Writing to a String cannot fail.
                    let _ = write!(quoted, "\\x{byte:02x}");
                }
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_quoted_where_they_must_be() {
        for (words, expected) in [
            (vec!["cargo", "test"], "cargo test"),
            (vec!["echo", "a b", ""], "echo 'a b' ''"),
            (vec!["sh", "-c", "echo $HOME"], "sh -c 'echo $HOME'"),
            (vec!["printf", "it's \u{1b}[0m\r\u{202e}\\"], "printf $'it\\'s \\x1b[0m\\r\\xe2\\x80\\xae\\\\'"),
            // What shows nothing, or a blank, in the name of a file.
            (vec!["rm", "file\u{fe0f}"], "rm $'file\\xef\\xb8\\x8f'"),
            (vec!["rm", "a\u{a0}b", "\u{2800}"], "rm $'a\\xc2\\xa0b' $'\\xe2\\xa0\\x80'"),
            (vec!["python", "-c", "a\nb"], "python -c 'a\nb'"),
        ] {
            assert_eq!(shell_quote(words), expected);
        }
    }

    #[test]
    fn the_prefix_holds_what_is_needed() {
        assert_eq!(command_prefix("attini", None, None), "attini");
        assert_eq!(command_prefix("attini", Some("/tmp/my work"), Some("ci")), "attini -C '/tmp/my work' -s ci");
    }

    #[test]
    fn the_program_is_named_as_it_can_be_typed() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        for place in [&here, &there] {
            fs_err::create_dir(place).unwrap();
            fs_err::write(place.join("attini"), "").unwrap();
        }
        let typed = here.join("attini");
        for (typed, search_path, expected) in [
            (None, Some(&here), "attini"),
            (Some(OsStr::new("attini")), None, "attini"),
            (Some(typed.as_os_str()), Some(&here), "attini"),
            (Some(typed.as_os_str()), Some(&there), typed.to_str().unwrap()),
            (Some(typed.as_os_str()), None, typed.to_str().unwrap()),
            (Some(OsStr::new("gone/attini")), None, "attini"),
        ] {
            assert_eq!(program_word(typed, search_path.map(|path| path.as_os_str())), expected);
        }
    }

    #[test]
    fn bash_reads_an_escaped_word_as_it_was() {
        let word = "a'\\\u{1b}\r\u{202e}ü\u{7f} \u{e0041}";
        let script = format!("printf %s {}", shell_quote([word]));
        for locale in ["C", "C.UTF-8"] {
            let mut bash = std::process::Command::new("bash");
            let Ok(output) = bash.args(["-c", &script]).env("LC_ALL", locale).output() else { return };
            assert_eq!(String::from_utf8_lossy(&output.stdout), word, "{locale}");
        }
    }

    proptest! {
        #[test]
        fn words_without_hidden_characters_come_back(words in prop::collection::vec("[ -~\n\tü]{0,12}", 1..5)) {
            prop_assert_eq!(shlex::split(&shell_quote(&words)), Some(words));
        }
    }
}
