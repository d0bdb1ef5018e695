//! The lines of a log, one at a time and with their numbers, whatever they hold.
//!
//! Loading stops at the first line that it cannot take; who lists or mends every fault reads on behind it.

use std::io::{self, BufRead, Read};

use super::LINE_BYTES_MAX;
use crate::session::record::Record;

/// What a line is.
#[derive(Debug)]
pub enum Content {
    Record(Box<Record>),
    /// White space alone.
    Blank,
    /// The last line, without its newline, and no whole record: what a kill leaves.
    Fragment,
    /// Anything else; a sentence says why it is no record.
    Unreadable(String),
}

/// A line with its end, if it has one. Of a line that is too long only the beginning is there.
#[derive(Debug)]
pub struct Line {
    /// From 1.
    pub number: u64,
    pub bytes: Vec<u8>,
    pub is_terminated: bool,
    pub content: Content,
}

/// Reads a log line by line.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    line_bytes_max: u64,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, line_bytes_max: LINE_BYTES_MAX, number: 0 }
    }

    /// The next line; `None` behind the last one.
    pub fn read_next(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(self.line_bytes_max).read_until(b'\n', &mut bytes)? as u64;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let is_terminated = bytes.ends_with(b"\n");
        if !is_terminated && read == self.line_bytes_max && !self.reader.fill_buf()?.is_empty() {
            self.reader.skip_until(b'\n')?;
            let why = format!("the line is longer than {} bytes", self.line_bytes_max);
            let content = Content::Unreadable(why);
            return Ok(Some(Line { number: self.number, bytes, is_terminated: true, content }));
        }
        let content = content_of(&bytes, is_terminated, self.number);
        Ok(Some(Line { number: self.number, bytes, is_terminated, content }))
    }
}

fn content_of(bytes: &[u8], is_terminated: bool, number: u64) -> Content {
    match Record::parse(bytes) {
        Ok(record) => Content::Record(Box::new(record)),
        // A log begins whole.
        Err(_) if !is_terminated && number > 1 => Content::Fragment,
        Err(_) if bytes.trim_ascii().is_empty() => Content::Blank,
        Err(error) => Content::Unreadable(format!("it is not a record: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], line_bytes_max: u64) -> Vec<(u64, &'static str, usize)> {
        let mut lines = Lines { reader: bytes, line_bytes_max, number: 0 };
        let mut found = Vec::new();
        while let Some(line) = lines.read_next().unwrap() {
            let word = match line.content {
                Content::Record(_) => "record",
                Content::Blank => "blank",
                Content::Fragment => "fragment",
                Content::Unreadable(_) => "unreadable",
            };
            found.push((line.number, word, line.bytes.len()));
        }
        found
    }

    #[test]
    fn each_line_is_one_however_long() {
        let long = format!("{{\"type\":\"x\"}}\n{}\n{{\"type\":\"y\"}}", "a".repeat(100));
        assert_eq!(read(long.as_bytes(), 20), [(1, "record", 13), (2, "unreadable", 20), (3, "record", 12)]);
        // A line that ends where the limit does is within it; so is a last one without an end.
        assert_eq!(
            read(b"{\"type\":\"x\"}\n\n{\"type\":\"y\"}", 13),
            [(1, "record", 13), (2, "blank", 1), (3, "record", 12)]
        );
        assert_eq!(read(b"{\"type\":\"x\"}", 12), [(1, "record", 12)]);
        assert_eq!(read(b"{\"ty", 13), [(1, "unreadable", 4)]);
        assert_eq!(read(b"\n{\"ty", 13), [(1, "blank", 1), (2, "fragment", 4)]);
        assert_eq!(read(b"", 13), []);
    }
}
