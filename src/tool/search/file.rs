//! One file: its matching lines and those around them, kept as far as a result can show them.

use std::fs::File;
use std::io::{self, Read};

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch,
};

use crate::interrupt::Interrupt;
use crate::tool::read::at_character_border;

/// How much of one line is shown.
const LINE_BYTES_MAX: usize = 500;
/// How much is shown before a match that lies far behind in its line.
const BEFORE_MATCH_BYTES: usize = 100;
/// The longest line, with its context, that is searched.
const HEAP_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(super) struct Query {
    pub(super) matcher: RegexMatcher,
    /// Lines before and after each match.
    pub(super) context: usize,
    /// Matching lines shown, over all files.
    pub(super) results_max: u64,
    /// Matching lines counted; beyond it the number no longer matters.
    pub(super) counted_max: u64,
    pub(super) text_bytes_max: usize,
}

/// What one file gave.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) matches: u64,
    /// It holds NUL bytes; what matches before the first one says nothing.
    pub(super) binary: bool,
    lines: Vec<Line>,
    /// Of the lines that are kept.
    bytes: usize,
}

#[derive(Debug)]
enum Line {
    Match(u64, String),
    Context(u64, String),
    Break,
}

impl Found {
    pub(super) fn is_nothing(&self) -> bool {
        self.matches == 0 && !self.binary
    }

    /// Adds its lines to a result: at most `matches_max` matches in at most `bytes_max` bytes, but always one match if
    /// the result holds none yet. Returns how many matches it added.
    pub(super) fn write(
        &self,
        text: &mut String,
        name: &str,
        matches_max: u64,
        bytes_max: usize,
        with_breaks: bool,
    ) -> u64 {
        let mut matches = 0;
        let mut added = String::new();
        let begins = text.len();
        // What is written is cut behind the last match that fits and the context behind it.
        for line in &self.lines {
            let written = match line {
                Line::Match(..) | Line::Break if matches == matches_max => break,
                Line::Match(number, line) => format!("{name}:{number}:{line}\n"),
                Line::Context(number, line) => format!("{name}-{number}-{line}\n"),
                Line::Break => "--\n".to_owned(),
            };
            let is_first = begins == 0 && matches == 0;
            if added.len() + written.len() > bytes_max && !is_first {
                break;
            }
            added.push_str(&written);
            matches += u64::from(matches!(line, Line::Match(..)));
        }
        if matches == 0 {
            return 0;
        }
        if with_breaks && begins > 0 {
            text.push_str("--\n");
        }
        text.push_str(added.strip_suffix("--\n").unwrap_or(&added));
        matches
    }
}

/// Searches an opened file from where it stands to its end.
pub(super) fn search(query: &Query, file: File, interrupt: &Interrupt) -> io::Result<Found> {
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .line_terminator(grep_matcher::LineTerminator::crlf())
        .before_context(query.context)
        .after_context(query.context)
        .heap_limit(Some(HEAP_BYTES_MAX))
        .binary_detection(BinaryDetection::quit(0))
        .build();
    let mut collect = Collect { query, found: Found::default() };
    searcher.search_reader(&query.matcher, Interruptible { file, interrupt }, &mut collect)?;
    Ok(collect.found)
}

/// A file that seems to end in an error once the interrupt is raised.
struct Interruptible<'i> {
    file: File,
    interrupt: &'i Interrupt,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.interrupt.is_raised() {
            return Err(io::Error::other("interrupted"));
        }
        self.file.read(buffer)
    }
}

struct Collect<'q> {
    query: &'q Query,
    found: Found,
}

impl Collect<'_> {
    /// Whether lines are still kept: a file cannot show more than a whole result does.
    fn keeps(&self) -> bool {
        self.found.bytes <= self.query.text_bytes_max && self.found.matches <= self.query.results_max
    }

    fn keep(&mut self, line: Line) {
        self.found.bytes += match &line {
            Line::Match(_, text) | Line::Context(_, text) => text.len() + 1,
            Line::Break => 3,
        };
        self.found.lines.push(line);
    }
}

impl Sink for Collect<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, matched: &SinkMatch<'_>) -> io::Result<bool> {
        self.found.matches += 1;
        if self.keeps() {
            let line = without_end(matched.bytes());
            let start = self.query.matcher.find(line).ok().flatten().map_or(0, |found| found.start());
            let number = matched.line_number().unwrap_or_default();
            self.keep(Line::Match(number, shown(line, start)));
        }
        Ok(self.found.matches <= self.query.counted_max)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        match context.kind() {
            SinkContextKind::Before | SinkContextKind::After | SinkContextKind::Other => {}
        }
        if self.keeps() {
            let number = context.line_number().unwrap_or_default();
            self.keep(Line::Context(number, shown(without_end(context.bytes()), 0)));
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        if self.keeps() {
            self.keep(Line::Break);
        }
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        if finish.binary_byte_offset().is_some() {
            self.found = Found { binary: true, ..Found::default() };
        }
        Ok(())
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The part of a line around its match, at character borders.
fn shown(line: &[u8], match_start: usize) -> String {
    if line.len() <= LINE_BYTES_MAX {
        return String::from_utf8_lossy(line).into_owned();
    }
    let mut from = match_start.saturating_sub(BEFORE_MATCH_BYTES);
    if match_start + BEFORE_MATCH_BYTES < LINE_BYTES_MAX {
        from = 0;
    }
    // Up to three continuation bytes belong to a character before.
    from += line[from..].iter().take(3).take_while(|byte| (0x80..=0xBF).contains(*byte)).count();
    let part = at_character_border(&line[from..line.len().min(from + LINE_BYTES_MAX)]);
    let before = if from > 0 { format!("[{from} bytes] ") } else { String::new() };
    let rest = line.len() - from - part.len();
    let after = if rest > 0 { format!(" [{rest} bytes]") } else { String::new() };
    format!("{before}{}{after}", String::from_utf8_lossy(part))
}
