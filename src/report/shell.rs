//! Commands as a person can paste them into a shell.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::escape::is_unsafe;

/// The words as one line of a POSIX shell. A word with control or hidden characters is written `$'...'`, which bash,
/// zsh and ksh read, so that the line is safe to show and still means exactly these words. Line ends stay line ends.
pub fn shell_quote<Word: AsRef<str>>(words: impl IntoIterator<Item = Word>) -> String {
    words.into_iter().map(|word| quote_word(word.as_ref()).into_owned()).collect::<Vec<_>>().join(" ")
}

/// How attini has to be called to meet the same workspace and session again: `attini`, `attini -C /path -s ci`.
pub fn command_prefix(workspace: Option<&str>, session: Option<&str>) -> String {
    let options = [("-C", workspace), ("-s", session)];
    let given = options.into_iter().filter_map(|(option, value)| Some([option, value?]));
    shell_quote(std::iter::once("attini").chain(given.flatten()))
}

fn quote_word(word: &str) -> Cow<'_, str> {
    if !word.contains(is_unsafe)
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
            // Writing to a String cannot fail.
            letter if is_unsafe(letter) && letter.is_ascii() => drop(write!(quoted, "\\x{:02x}", u32::from(letter))),
            letter if is_unsafe(letter) => drop(write!(quoted, "\\U{:08x}", u32::from(letter))),
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
            (vec!["printf", "it's \u{1b}[0m\r\u{202e}\\"], "printf $'it\\'s \\x1b[0m\\r\\U0000202e\\\\'"),
            (vec!["python", "-c", "a\nb"], "python -c 'a\nb'"),
        ] {
            assert_eq!(shell_quote(words), expected);
        }
    }

    #[test]
    fn the_prefix_holds_what_is_needed() {
        assert_eq!(command_prefix(None, None), "attini");
        assert_eq!(command_prefix(Some("/tmp/my work"), Some("ci")), "attini -C '/tmp/my work' -s ci");
    }

    #[test]
    fn bash_reads_an_escaped_word_as_it_was() {
        let word = "a'\\\u{1b}\r\u{202e}ü\u{7f} \u{e0041}";
        let script = format!("LC_ALL=C.UTF-8; printf %s {}", shell_quote([word]));
        let Ok(output) = std::process::Command::new("bash").args(["-c", &script]).output() else { return };
        assert_eq!(String::from_utf8_lossy(&output.stdout), word);
    }

    proptest! {
        #[test]
        fn words_without_hidden_characters_come_back(words in prop::collection::vec("[ -~\n\tü]{0,12}", 1..5)) {
            prop_assert_eq!(shlex::split(&shell_quote(&words)), Some(words));
        }
    }
}
