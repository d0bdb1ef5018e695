//! One passage of a file's bytes, found and replaced, with every byte outside it kept.
//!
//! Line ends match either way (LF or CRLF), and those that the new text brings take the form of their neighbours. The
//! bytes around need not be text at all. What is told where nothing matches is in [`super::nearest`].

use std::borrow::Cow;

use memchr::memmem;

/// How many places are counted before "more than" is said.
pub const OCCURRENCES_MAX: usize = 100;

/// Why a passage was not replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    Nowhere,
    /// The lines, from 1, on which it begins; one more than [`OCCURRENCES_MAX`] of them where there are too many.
    Several(Vec<usize>),
}

/// `text` with the one occurrence of `before` replaced by `after`.
///
/// What `before` and `after` have in common at their start and end is taken from `text`, so that its line ends stay
/// even where they are mixed.
pub fn replace(text: &[u8], before: &str, after: &str) -> Result<Vec<u8>, Mismatch> {
    let plain = with_plain_ends(text);
    let old = before.replace("\r\n", "\n");
    let start = only_occurrence(&plain, old.as_bytes())?;
    if !text.contains(&b'\n') {
        // There is no line end to take after, and so none in `before`: the new text is taken as it was written.
        return Ok([&text[..start], after.as_bytes(), &text[start + old.len()..]].concat());
    }
    let new = after.replace("\r\n", "\n");
    let (old, new) = (old.as_bytes(), new.as_bytes());
    let shared = old.len().min(new.len());
    let head = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let tail =
        old.iter().rev().zip(new.iter().rev()).take(shared - head).take_while(|(one, other)| one == other).count();
    let (mut from, mut to) = (start + head, start + old.len() - tail);
    if matches!(plain, Cow::Owned(_)) {
        (from, to) = (original_offset(text, from), original_offset(text, to));
    }
    let middle = with_ends_of_neighbours(&new[head..new.len() - tail], text, from, to);
    Ok([&text[..from], &middle, &text[to..]].concat())
}

/// `text` with every CRLF as LF.
pub fn with_plain_ends(text: &[u8]) -> Cow<'_, [u8]> {
    if memmem::find(text, b"\r\n").is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, b"\r\n") {
        plain.extend_from_slice(&rest[..at]);
        plain.push(b'\n');
        rest = &rest[at + 2..];
    }
    plain.extend_from_slice(rest);
    Cow::Owned(plain)
}

fn only_occurrence(plain: &[u8], wanted: &[u8]) -> Result<usize, Mismatch> {
    let finder = memmem::Finder::new(wanted);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = finder.find(&plain[from..]) {
        places.push(from + at);
        // Places that overlap are as ambiguous as those that do not.
        from += at + 1;
        if places.len() > OCCURRENCES_MAX {
            break;
        }
    }
    match places.as_slice() {
        [] => Err(Mismatch::Nowhere),
        [only] => Ok(*only),
        _ => Err(Mismatch::Several(line_numbers(plain, &places))),
    }
}

/// The line on which each of the ascending `places` lies, from 1.
fn line_numbers(plain: &[u8], places: &[usize]) -> Vec<usize> {
    let (mut line, mut counted_to) = (1, 0);
    places
        .iter()
        .map(|place| {
            line += memchr::memchr_iter(b'\n', &plain[counted_to..*place]).count();
            counted_to = *place;
            line
        })
        .collect()
}

/// Where in `text` the byte lies that is at `offset` once every CRLF is LF.
fn original_offset(text: &[u8], offset: usize) -> usize {
    let mut original = 0;
    for _ in 0..offset {
        original += if text[original..].starts_with(b"\r\n") { 2 } else { 1 };
    }
    original
}

/// `new`, whose line ends are plain, to be put in the place of `text[from..to]`: its first line ends take the form of
/// the replaced ones in turn; those beyond take that of the last one replaced. Where none is, a part of a line takes the
/// line's own, and what is put between takes that of the line above; where there is none, the other.
fn with_ends_of_neighbours(new: &[u8], text: &[u8], from: usize, to: usize) -> Vec<u8> {
    let is_crlf = |newline: usize| newline > 0 && text[newline - 1] == b'\r';
    let replaced: Vec<bool> = memchr::memchr_iter(b'\n', &text[from..to]).map(|at| is_crlf(from + at)).collect();
    let above = || memchr::memrchr(b'\n', &text[..from]).map(is_crlf);
    let below = || memchr::memchr(b'\n', &text[to..]).map(|at| is_crlf(to + at));
    let last = match replaced.last() {
        Some(last) => Some(*last),
        None if from < to => below().or_else(above),
        None => above().or_else(below),
    };
    let last = last.unwrap_or(false);
    let mut ends = replaced.into_iter().chain(std::iter::repeat(last));
    let mut found = Vec::with_capacity(new.len());
    for byte in new {
        if *byte == b'\n' && ends.next() == Some(true) {
            found.push(b'\r');
        }
        found.push(*byte);
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Name, text, `before`, `after`, what comes of it.
    type Row = (&'static str, &'static [u8], &'static str, &'static str, &'static [u8]);

    #[test]
    fn only_the_passage_changes() {
        let cases: &[Row] = &[
            ("plain", b"a\nb\nc\n", "b\n", "B\n", b"a\nB\nc\n"),
            ("within a line", b"one two three", "two", "2", b"one 2 three"),
            ("CRLF kept", b"a\r\nb\r\nc\r\n", "b\n", "B\nB\n", b"a\r\nB\r\nB\r\nc\r\n"),
            ("CRLF asked, LF there", b"a\nb\nc\n", "a\r\nb\r\n", "a\r\nB\r\nC\r\n", b"a\nB\nC\nc\n"),
            ("CRLF to LF is no change of ends", b"a\r\nb\r\n", "a\nb\n", "x\ny\n", b"x\r\ny\r\n"),
            ("mixed ends stay", b"a\r\nb\nc\r\n", "a\nb\nc\n", "a\nB\nc\n", b"a\r\nB\nc\r\n"),
            ("replaced ends in turn", b"1\r\n2\n3\n", "1\n2\n", "x\ny\nz\n", b"x\r\ny\r\nz\n3\n"),
            ("a split line keeps its end", b"a\nb c\r\nd\n", "b c", "b\nc", b"a\nb\r\nc\r\nd\n"),
            ("inserted takes the end before", b"a\r\nb\n", "a\n", "a\nnew\n", b"a\r\nnew\r\nb\n"),
            ("inserted first takes the end behind", b"a\r\nb\n", "a", "new\na", b"new\r\na\r\nb\n"),
            ("no final newline", b"a\nlast", "last", "end", b"a\nend"),
            ("appended to no final newline", b"a\r\nlast", "last", "last\nmore", b"a\r\nlast\r\nmore"),
            ("no line end at all", b"one", "one", "one\r\ntwo", b"one\r\ntwo"),
            ("BOM", b"\xef\xbb\xbfa\nb\n", "a\n", "A\n", b"\xef\xbb\xbfA\nb\n"),
            ("BOM asked for", b"\xef\xbb\xbfa\nb\n", "\u{feff}a\n", "\u{feff}A\n", b"\xef\xbb\xbfA\nb\n"),
            ("Latin-1 around", b"\xe9t\xe9 = x\n\xff\n", "= x", "= y", b"\xe9t\xe9 = y\n\xff\n"),
            ("NUL around", b"\0\0key=1\0", "key=1", "key=22", b"\0\0key=22\0"),
            ("starts with a line end", b"a\r\nb", "\nb", "\nc", b"a\r\nc"),
            ("ends before a line end", b"a\r\nb", "a", "c", b"c\r\nb"),
            ("lone CR is a byte like any other", b"a\rb\r\nc", "a\rb", "x", b"x\r\nc"),
            ("CR before CRLF", b"a\r\r\nb", "a\r\r\n", "c\n", b"c\r\nb"),
            ("joined lines", b"a\r\nb\r\nc", "a\nb", "a b", b"a b\r\nc"),
            ("all of it", b"a\nb", "a\nb", "", b""),
            ("within a character", "straße".as_bytes(), "ß", "ã", "straãe".as_bytes()),
        ];
        for (name, text, before, after, expected) in cases {
            assert_eq!(replace(text, before, after).as_deref(), Ok(*expected), "{name}");
        }
    }

    #[test]
    fn a_passage_must_be_the_only_one() {
        assert_eq!(replace(b"a\nb\n", "c", "d"), Err(Mismatch::Nowhere));
        assert_eq!(replace(b"", "c", "d"), Err(Mismatch::Nowhere));
        assert_eq!(replace(b"a\r\nb\r\na\r\n", "a\n", "d"), Err(Mismatch::Several(vec![1, 3])));
        assert_eq!(replace(b"aaa", "aa", "d"), Err(Mismatch::Several(vec![1, 1])));
        let Err(Mismatch::Several(lines)) = replace(&b"x\n".repeat(5000), "x", "d") else { panic!("one place") };
        assert_eq!(lines.len(), OCCURRENCES_MAX + 1);
    }

    /// Lines with their ends, the last one perhaps without.
    fn lines() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
        let byte = prop_oneof![Just(b'x'), Just(b' '), Just(0xff), Just(0xc3), Just(0)];
        prop::collection::vec((prop::collection::vec(byte, 0..4), any::<bool>()), 0..6)
    }

    fn joined(lines: &[(Vec<u8>, bool)]) -> Vec<u8> {
        let ended = |(text, crlf): &(Vec<u8>, bool)| [text.as_slice(), if *crlf { b"\r\n" } else { b"\n" }].concat();
        lines.iter().flat_map(ended).collect()
    }

    proptest! {
        /// The reference: whole lines around a marked block stay byte by byte, and the block reads as it was asked for.
        #[test]
        fn all_outside_is_kept(
            above in lines(), below in lines(), first_end in any::<bool>(), second_end in any::<bool>(),
            asked_with_crlf in any::<bool>(), new in "[a-w\n]{0,12}",
        ) {
            let end = |crlf| if crlf { "\r\n" } else { "\n" };
            let (above, below) = (joined(&above), joined(&below));
            let block = format!("MARK{}END{}", end(first_end), end(second_end));
            let text = [&above, block.as_bytes(), &below].concat();
            let asked = end(asked_with_crlf);
            let before = format!("MARK{asked}END{asked}");
            let after = format!("{}{asked}", new.replace('\n', asked));
            let found = replace(&text, &before, &after).expect("it is there once");
            prop_assert!(found.starts_with(&above) && found.ends_with(&below));
            let changed = &found[above.len()..found.len() - below.len()];
            prop_assert_eq!(with_plain_ends(changed).into_owned(), format!("{new}\n").into_bytes());
            if first_end == second_end {
                let expected = format!("{}{}", new.replace('\n', end(first_end)), end(first_end));
                prop_assert_eq!(changed, expected.as_bytes());
            }
        }

        #[test]
        fn any_bytes_are_taken(text in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'\r'), Just(b'\n'), any::<u8>()], 0..40),
            before in "[a\r\n]{1,4}", after in "[ab\r\n]{0,4}") {
            let plain = with_plain_ends(&text).into_owned();
            let wanted = before.replace("\r\n", "\n");
            let count = (0..plain.len()).filter(|at| plain[*at..].starts_with(wanted.as_bytes())).count();
            match replace(&text, &before, &after) {
                Ok(_) => prop_assert_eq!(count, 1),
                Err(Mismatch::Nowhere) => prop_assert_eq!(count, 0),
                Err(Mismatch::Several(lines)) => prop_assert_eq!(lines.len(), count),
            }
        }
    }
}
