//! Counts all lines of a stream and keeps those of a range, in memory that is bounded whatever the stream holds.

use std::fmt::Write;

use crate::tool::Refusal;

/// How much of one line is shown among others; a line that is asked for alone may fill the result.
pub(super) const LINE_BYTES_MAX: usize = 8192;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Lines from 1, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: Option<u64>,
}

impl Range {
    fn holds(self, number: u64) -> bool {
        number >= self.first && self.last.is_none_or(|last| number <= last)
    }
}

pub(super) struct Lines {
    range: Range,
    line_bytes_max: usize,
    bytes_left: usize,
    shown: String,
    shown_count: u64,
    cut_count: u64,
    /// The line of the range that no longer fitted.
    first_left_out: Option<u64>,
    /// The current line's number.
    number: u64,
    /// What is kept of the current line, and how long it really is so far.
    current: Vec<u8>,
    current_bytes: u64,
    ends_in_carriage_return: bool,
    carriage_return_ends: u64,
    plain_ends: u64,
    ends_without_newline: bool,
    begins_with_mark: bool,
    encoding: Encoding,
}

impl Lines {
    /// Keeps at most `bytes_max` bytes of lines with their numbers, but always some of the first one.
    pub(super) fn new(range: Range, bytes_max: usize) -> Self {
        let alone = range.last == Some(range.first);
        // The number and the note about the cut need their room too.
        let line_bytes_max = bytes_max.saturating_sub(128).max(128);
        Self {
            range,
            line_bytes_max: if alone { line_bytes_max } else { line_bytes_max.min(LINE_BYTES_MAX) },
            bytes_left: bytes_max,
            shown: String::new(),
            shown_count: 0,
            cut_count: 0,
            first_left_out: None,
            number: 1,
            current: Vec::new(),
            current_bytes: 0,
            ends_in_carriage_return: false,
            carriage_return_ends: 0,
            plain_ends: 0,
            ends_without_newline: false,
            begins_with_mark: false,
            encoding: Encoding::default(),
        }
    }

    /// Takes the next bytes, cut anywhere.
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        self.encoding.feed(chunk);
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (body, ended) = match piece.split_last() {
                Some((b'\n', body)) => (body, true),
                _ => (piece, false),
            };
            if let Some(last) = body.last() {
                self.ends_in_carriage_return = *last == b'\r';
            }
            self.current_bytes += body.len() as u64;
            if self.first_left_out.is_none() && self.range.holds(self.number) {
                // A little more, for the carriage return and the byte order mark that will be taken away.
                let room = (self.line_bytes_max + 1 + BYTE_ORDER_MARK.len()).saturating_sub(self.current.len());
                self.current.extend_from_slice(&body[..body.len().min(room)]);
            }
            if ended {
                if self.ends_in_carriage_return {
                    self.carriage_return_ends += 1;
                } else {
                    self.plain_ends += 1;
                }
                self.end_line(self.ends_in_carriage_return);
            }
        }
    }

    fn end_line(&mut self, takes_carriage_return: bool) {
        if self.first_left_out.is_none() && self.range.holds(self.number) {
            self.keep_line(takes_carriage_return);
        }
        self.number += 1;
        self.current.clear();
        self.current_bytes = 0;
        self.ends_in_carriage_return = false;
    }

    fn keep_line(&mut self, takes_carriage_return: bool) {
        let mut bytes = self.current_bytes - u64::from(takes_carriage_return);
        let mut kept = self.current.as_slice();
        if self.number == 1
            && let Some(rest) = kept.strip_prefix(BYTE_ORDER_MARK)
        {
            self.begins_with_mark = true;
            bytes -= BYTE_ORDER_MARK.len() as u64;
            kept = rest;
        }
        let whole = bytes <= self.line_bytes_max as u64;
        let kept = if whole {
            // It is all there, and perhaps the carriage return.
            &kept[..kept.len() - usize::from(takes_carriage_return && kept.len() as u64 > bytes)]
        } else {
            at_character_border(&kept[..kept.len().min(self.line_bytes_max)])
        };
        let text = String::from_utf8_lossy(kept);
        let mut line = format!("{}\t{text}", self.number);
        if !whole {
            // Writing to a string cannot fail.
            let _ = write!(line, " [{} more bytes of this line]", bytes - kept.len() as u64);
        }
        line.push('\n');
        if line.len() > self.bytes_left && self.shown_count > 0 {
            self.first_left_out = Some(self.number);
            return;
        }
        self.bytes_left = self.bytes_left.saturating_sub(line.len());
        self.shown.push_str(&line);
        self.shown_count += 1;
        self.cut_count += u64::from(!whole);
    }

    /// The result: what is said of the file, its lines, and how to get the others.
    pub(super) fn finish(mut self, name: &str) -> Result<String, Refusal> {
        if self.current_bytes > 0 {
            self.ends_without_newline = true;
            self.end_line(false);
        }
        let total = self.number - 1;
        if total == 0 {
            return Ok(format!("{name}: the file is empty"));
        }
        if self.range.first > total {
            let message = format!("start_line {} is beyond the end: {name} has {}", self.range.first, lines(total));
            return Err(Refusal::new("invalid_arguments", message));
        }
        let last = self.range.first + self.shown_count - 1;
        let mut text = format!("{name}: {}", lines(total));
        if self.shown_count < total {
            let _ = write!(text, ", {}-{last} shown", self.range.first);
        }
        for note in self.notes() {
            text.push_str("; ");
            text.push_str(note);
        }
        text.push('\n');
        text.push_str(&self.shown);
        if let Some(next) = self.first_left_out {
            let _ = writeln!(text, "[cut at the size of a result; go on with start_line {next}]");
        } else if last < total && self.range.last.is_none() {
            let _ = writeln!(text, "[go on with start_line {}]", last + 1);
        }
        if self.cut_count > 0 {
            let how =
                if self.shown_count == 1 { "use search for the rest" } else { "read one alone to see more of it" };
            let _ = writeln!(text, "[long lines were cut; {how}]");
        }
        text.pop();
        Ok(text)
    }

    fn notes(&self) -> Vec<&'static str> {
        let mut notes = Vec::new();
        match (self.carriage_return_ends, self.plain_ends) {
            (0, _) => {}
            (_, 0) => notes.push("line ends are CRLF"),
            (_, _) => notes.push("line ends are mixed, CRLF and LF"),
        }
        if self.ends_without_newline {
            notes.push("no newline at the end");
        }
        if self.begins_with_mark {
            notes.push("it begins with a byte order mark");
        }
        if !self.encoding.is_valid() {
            notes.push("it is not UTF-8, and what is invalid is shown as \u{fffd}");
        }
        notes
    }
}

fn lines(count: u64) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

/// Without the beginning of a character that is cut at the end.
pub(in crate::tool) fn at_character_border(bytes: &[u8]) -> &[u8] {
    let mut cut = bytes.len();
    while cut > 0 && bytes.len() - cut < 4 {
        match bytes[cut - 1] {
            // A continuation; its first byte stands before it.
            0x80..=0xBF => cut -= 1,
            first if first >= 0xC0 => {
                let whole = std::str::from_utf8(&bytes[cut - 1..]).is_ok();
                return if whole { bytes } else { &bytes[..cut - 1] };
            }
            _ => break,
        }
    }
    bytes
}

/// Whether a stream is UTF-8, however it is cut.
#[derive(Default)]
struct Encoding {
    invalid: bool,
    /// The beginning of a character at the end of the last piece.
    open: Vec<u8>,
}

impl Encoding {
    fn feed(&mut self, chunk: &[u8]) {
        if self.invalid {
            return;
        }
        let mut bytes = std::mem::take(&mut self.open);
        bytes.extend_from_slice(chunk);
        if let Err(error) = std::str::from_utf8(&bytes) {
            match error.error_len() {
                Some(_) => self.invalid = true,
                None => self.open = bytes.split_off(error.valid_up_to()),
            }
        }
    }

    fn is_valid(&self) -> bool {
        !self.invalid && self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(bytes: &[u8], chunk: usize, range: Range, bytes_max: usize) -> Result<String, Refusal> {
        let mut lines = Lines::new(range, bytes_max);
        bytes.chunks(chunk).for_each(|chunk| lines.feed(chunk));
        lines.finish("f")
    }

    const ALL: Range = Range { first: 1, last: None };

    #[test]
    fn lines_are_numbered_and_their_ends_are_named() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "f: the file is empty"),
            (b"a", "f: 1 line; no newline at the end\n1\ta"),
            (b"a\n", "f: 1 line\n1\ta"),
            (b"\n\n", "f: 2 lines\n1\t\n2\t"),
            (b"a\r\nb\r\n", "f: 2 lines; line ends are CRLF\n1\ta\n2\tb"),
            (b"a\r\nb\n", "f: 2 lines; line ends are mixed, CRLF and LF\n1\ta\n2\tb"),
            (b"\xef\xbb\xbfa\n", "f: 1 line; it begins with a byte order mark\n1\ta"),
            (b"caf\xe9\n", "f: 1 line; it is not UTF-8, and what is invalid is shown as \u{fffd}\n1\tcaf\u{fffd}"),
        ];
        for (bytes, expected) in cases {
            for chunk in [1, 2, 3, 100] {
                assert_eq!(shown(bytes, chunk, ALL, 10_000).unwrap(), *expected, "in pieces of {chunk}");
            }
        }
    }

    #[test]
    fn a_range_says_what_is_left() {
        let text = b"1\n2\n3\n4\n5\n";
        let range = |first, last| Range { first, last };
        for (range, expected) in [
            (range(2, Some(3)), "f: 5 lines, 2-3 shown\n2\t2\n3\t3"),
            (range(4, None), "f: 5 lines, 4-5 shown\n4\t4\n5\t5"),
            (range(4, Some(99)), "f: 5 lines, 4-5 shown\n4\t4\n5\t5"),
            (range(1, Some(5)), "f: 5 lines\n1\t1\n2\t2\n3\t3\n4\t4\n5\t5"),
        ] {
            assert_eq!(shown(text, 4, range, 1000).unwrap(), expected);
        }
        let refusal = shown(text, 4, range(6, None), 1000).unwrap_err();
        assert_eq!(refusal, Refusal::new("invalid_arguments", "start_line 6 is beyond the end: f has 5 lines"));
        let cut = shown(text, 4, ALL, 9).unwrap();
        assert_eq!(cut, "f: 5 lines, 1-2 shown\n1\t1\n2\t2\n[cut at the size of a result; go on with start_line 3]");
    }

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        let line = "\u{e9}".repeat(LINE_BYTES_MAX);
        let text = format!("x{line}\nend\n");
        let cut = shown(text.as_bytes(), 1000, ALL, 100_000).unwrap();
        let kept = (LINE_BYTES_MAX - 1) / 2;
        let rest = 1 + line.len() - 1 - kept * 2;
        let expected = format!(
            "f: 2 lines\n1\tx{} [{rest} more bytes of this line]\n2\tend\n[long lines were cut; read one alone to see \
             more of it]",
            "\u{e9}".repeat(kept)
        );
        assert_eq!(cut, expected);
        let alone = shown(text.as_bytes(), 1000, Range { first: 1, last: Some(1) }, 100_000).unwrap();
        assert_eq!(alone, format!("f: 2 lines, 1-1 shown\n1\tx{line}"));
    }

    proptest! {
        #[test]
        fn the_cut_of_the_stream_does_not_matter(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200),
            chunk in 1usize..20,
            bytes_max in 1usize..400,
            first in 1u64..20,
        ) {
            let range = Range { first, last: None };
            let whole = shown(&bytes, 1000, range, bytes_max);
            prop_assert_eq!(&shown(&bytes, chunk, range, bytes_max), &whole);
        }
    }
}
