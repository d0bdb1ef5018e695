//! Makes text that comes from outside safe to show: nothing in it can steer a terminal, or hide or reorder what a
//! person reads before deciding.
//!
//! Each such character becomes a visible escape (`\x1b`, `\r`, `\u{202e}`). Everything else stays as it is, a backslash
//! included, so the result is for reading and cannot be turned back. Escaping twice changes nothing more.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` with control and hidden characters shown; line ends and tabs stay.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_where(text, is_unsafe)
}

/// As [`escape`], for what has to stay on one line: line ends and tabs are shown too.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape_where(text, |letter| is_unsafe(letter) || matches!(letter, '\n' | '\t'))
}

/// As [`escape`], for what a person decides on: nothing without a shape of its own stays, common or not.
pub fn escape_exactly(text: &str) -> Cow<'_, str> {
    escape_where(text, |letter| is_unsafe(letter) || is_shapeless(letter))
}

/// As [`escape_line`], for a command's words, a path or an address: what could pass for a plain blank is shown too.
pub fn escape_line_exactly(text: &str) -> Cow<'_, str> {
    escape_where(text, |letter| is_deceptive(letter) || matches!(letter, '\n' | '\t'))
}

/// Whether a character must never reach a terminal as it is.
pub fn is_unsafe(letter: char) -> bool {
    (letter.is_control() && !matches!(letter, '\n' | '\t')) || is_hidden(letter)
}

/// Whether a character could make a command or a path look like another one: what is unsafe, and also what is left alone
/// in running text, where it is common and deceives nobody.
pub fn is_deceptive(letter: char) -> bool {
    is_unsafe(letter)
        || is_shapeless(letter)
        || matches!(letter, '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// What has no shape and is common in running text all the same: the wish for an emoji's colours, and braille's blank.
fn is_shapeless(letter: char) -> bool {
    matches!(letter, '\u{fe0f}' | '\u{2800}')
}

/// Characters without a shape of their own: they format, reorder, join or select, and what holds them can look like
/// something else. U+FE0F alone stays, which only asks for an emoji's colours and is common in models' answers.
fn is_hidden(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
        | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

fn escape_where(text: &str, shown: impl Fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = position(text, &shown) else { return Cow::Borrowed(text) };
    let mut escaped = String::with_capacity(text.len() + 16);
    let (plain, mut rest) = text.split_at(first);
    escaped.push_str(plain);
    while let Some(letter) = rest.chars().next() {
        push_shown(&mut escaped, letter);
        rest = &rest[letter.len_utf8()..];
        let (plain, after) = rest.split_at(position(rest, &shown).unwrap_or(rest.len()));
        escaped.push_str(plain);
        rest = after;
    }
    Cow::Owned(escaped)
}

/// Where the first character is that has to be shown.
fn position(text: &str, shown: impl Fn(char) -> bool) -> Option<usize> {
    /// Bytes that are looked at at a time.
    const BLOCK_BYTES: usize = 64;
    // Most of what is shown is plain text in lines, which is told much faster by its bytes: no ASCII but line ends and
    // control characters is ever shown.
    let mut from = 0;
    for block in text.as_bytes().chunks(BLOCK_BYTES) {
        let is_plain = block.iter().all(|byte| (b' '..0x7f).contains(byte) || *byte == b'\n');
        if !is_plain || (block.contains(&b'\n') && shown('\n')) {
            break;
        }
        from += block.len();
    }
    text[from..].find(shown).map(|at| from + at)
}

fn push_shown(text: &mut String, letter: char) {
    match letter {
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        '\r' => text.push_str("\\r"),
        // Writing to a String cannot fail.
        letter if letter.is_ascii() => drop(write!(text, "\\x{:02x}", u32::from(letter))),
        letter => drop(write!(text, "\\u{{{:x}}}", u32::from(letter))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_steers_or_hides_is_shown() {
        for (text, expected) in [
            ("plain text\n\twith lines", "plain text\n\twith lines"),
            ("\u{1b}[2Jgone", "\\x1b[2Jgone"),
            ("one\r\ntwo\u{7}", "one\\r\ntwo\\x07"),
            ("\u{7f}\u{9b}31m\0", "\\x7f\\u{9b}31m\\x00"),
            ("if a\u{202e} {\u{2066}// b", "if a\\u{202e} {\\u{2066}// b"),
            ("zero\u{200b}width\u{feff}\u{61c}\u{180e}\u{ad}", "zero\\u{200b}width\\u{feff}\\u{61c}\\u{180e}\\u{ad}"),
            ("tag\u{e0041}\u{e0100}", "tag\\u{e0041}\\u{e0100}"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
            ("C:\\new\\x1b", "C:\\new\\x1b"),
            ("grüße ✔\u{fe0f} 日本", "grüße ✔\u{fe0f} 日本"),
        ] {
            assert_eq!(escape(text), expected);
        }
        assert_eq!(escape_line("a\n\tb"), "a\\n\\tb");
        let text = "✔\u{fe0f} \u{2800}\u{a0}\n\tb\u{200b}";
        assert_eq!(escape(text), "✔\u{fe0f} \u{2800}\u{a0}\n\tb\\u{200b}");
        assert_eq!(escape_exactly(text), "✔\\u{fe0f} \\u{2800}\u{a0}\n\tb\\u{200b}");
        assert_eq!(escape_line_exactly(text), "✔\\u{fe0f} \\u{2800}\\u{a0}\\n\\tb\\u{200b}");
        for blank in ['\u{a0}', '\u{1680}', '\u{2000}', '\u{200a}', '\u{202f}', '\u{205f}', '\u{3000}'] {
            let text = format!("rm{blank}x");
            assert_eq!(escape(&text), text);
            assert_eq!(escape_line_exactly(&text), format!("rm\\u{{{:x}}}x", u32::from(blank)));
        }
        // Whatever is a blank to Unicode and is not the plain one is shown.
        let blanks = (0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|letter| letter.is_whitespace());
        assert!(blanks.filter(|letter| !matches!(letter, ' ' | '\n' | '\t')).all(is_deceptive));
        assert!(matches!(escape("nothing to do"), Cow::Borrowed(_)));
    }

    /// Any text, with the characters in question far more often than chance would bring them.
    fn hostile() -> impl Strategy<Value = String> {
        let letter = prop_oneof![
            any::<char>(),
            (0_u32..0xa0).prop_filter_map("a character", char::from_u32),
            (0x2000_u32..0x2070).prop_filter_map("a character", char::from_u32),
            (0xe_0000_u32..0xe_1000).prop_filter_map("a character", char::from_u32),
            prop::sample::select(vec!['\u{61c}', '\u{180e}', '\u{feff}', '\u{fe00}', '\\', '\n', '\t']),
        ];
        prop::collection::vec(letter, 0..60).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn no_such_character_is_left(text in hostile()) {
            let escaped = escape(&text);
            for letter in escaped.chars() {
                prop_assert!(!letter.is_control() || letter == '\n' || letter == '\t');
                let refused = matches!(
                    letter,
                    '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
                    | '\u{61c}' | '\u{180e}' | '\u{e0000}'..='\u{e007f}'
                );
                prop_assert!(!refused, "{:?} is left", letter);
            }
            prop_assert_eq!(escape(&escaped), escaped.as_ref());
            prop_assert!(!escape_line(&text).contains(['\n', '\t']));
        }

        #[test]
        fn escaping_pieces_is_escaping_the_whole(text in hostile(), other in hostile()) {
            let whole = format!("{text}{other}");
            prop_assert_eq!(format!("{}{}", escape(&text), escape(&other)), escape(&whole));
        }
    }
}
