//! One file: its matching lines and those around them, kept as far as a result can show them.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch,
};

use super::pieces::{Borders, Pieces};
use crate::interrupt::Interrupt;
use crate::mask;
use crate::tool::read::at_character_border;

/// How much of one line is shown.
const LINE_BYTES_MAX: usize = 500;
/// How much is shown before a match that lies far behind in its line.
const BEFORE_MATCH_BYTES: usize = 100;
/// Room for the longest piece of a line, with as many around it as can be asked for.
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
    /// It holds NUL bytes: the search ended before the first one. Its lines are not shown.
    pub(super) binary: bool,
    /// Some line was so long that it was searched in pieces.
    pub(super) in_pieces: bool,
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
        self.matches == 0 && !self.binary && !self.in_pieces
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
    let borders: Rc<RefCell<Borders>> = Rc::default();
    let lines = Pieces::new(Interruptible { file, interrupt }, Rc::clone(&borders));
    let mut collect = Collect { query, found: Found::default(), borders, last_number: 0, last_shown: 0 };
    searcher.search_reader(&query.matcher, lines, &mut collect)?;
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
    borders: Rc<RefCell<Borders>>,
    /// The last line that matched.
    last_number: u64,
    /// The last line that was kept: the pieces of one line are shown once.
    last_shown: u64,
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
        let handed_on = matched.line_number().unwrap_or_default();
        let line = without_end(matched.bytes());
        let (number, start, offset) = {
            let borders = self.borders.borrow();
            let piece = borders.piece(handed_on);
            let (is_first, is_last) = piece.map_or((true, true), |piece| (piece.offset == 0, piece.is_last));
            let start = match_in_piece(&self.query.matcher, line, is_first, is_last);
            (borders.number(handed_on), start, piece.map_or(0, |piece| piece.offset))
        };
        let Some(start) = start else { return Ok(true) };
        if number == self.last_number {
            // Another piece of a line that matched.
            return Ok(true);
        }
        self.last_number = number;
        self.found.matches += 1;
        if self.keeps() {
            self.last_shown = number;
            self.keep(Line::Match(number, shown(&self.query.matcher, line, start, offset)));
        }
        Ok(self.found.matches <= self.query.counted_max)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        match context.kind() {
            SinkContextKind::Before | SinkContextKind::After | SinkContextKind::Other => {}
        }
        let number = self.borders.borrow().number(context.line_number().unwrap_or_default());
        if self.keeps() && number != self.last_shown {
            self.last_shown = number;
            self.keep(Line::Context(number, shown(&self.query.matcher, without_end(context.bytes()), 0, 0)));
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
            self.found.binary = true;
            self.found.lines.clear();
        }
        self.found.in_pieces = !self.borders.borrow().is_empty();
        Ok(())
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Where the first match begins that is no artefact of the line's having been cut: one that begins at the cut belongs to
/// the piece before, and one that ends at the cut must hold whatever follows.
fn match_in_piece(matcher: &RegexMatcher, piece: &[u8], is_first: bool, is_last: bool) -> Option<usize> {
    let from = if is_first { 0 } else { 1.min(piece.len()) };
    let found = matcher.find_at(piece, from).ok().flatten()?;
    if is_last || found.end() < piece.len() {
        return Some(found.start());
    }
    let longer = [piece, b"x"].concat();
    matcher.find_at(&longer, from).ok().flatten().map(|found| found.start()).filter(|start| *start < piece.len())
}

/// The part of a line around its match, at character borders; `offset` is where `line` begins, if it is a piece of one.
fn shown(matcher: &RegexMatcher, line: &[u8], match_start: usize, offset: u64) -> String {
    // Before the line is cut: part of a key would not be known for one.
    let masked = mask::apply_bytes(line);
    let match_start = match &masked {
        std::borrow::Cow::Borrowed(_) => match_start,
        std::borrow::Cow::Owned(masked) => matcher
            .find_at(masked, match_start.min(masked.len()))
            .ok()
            .flatten()
            .or_else(|| matcher.find(masked).ok().flatten())
            .map_or(0, |found| found.start()),
    };
    let line = &*masked;
    if line.len() <= LINE_BYTES_MAX && offset == 0 {
        return String::from_utf8_lossy(line).into_owned();
    }
    let mut from = match_start.saturating_sub(BEFORE_MATCH_BYTES);
    if match_start + BEFORE_MATCH_BYTES < LINE_BYTES_MAX {
        from = 0;
    }
    // Up to three continuation bytes belong to a character before.
    from += line[from..].iter().take(3).take_while(|byte| (0x80..=0xBF).contains(*byte)).count();
    let part = at_character_border(&line[from..line.len().min(from + LINE_BYTES_MAX)]);
    let left_out = offset + from as u64;
    let before = if left_out > 0 { format!("[{left_out} bytes] ") } else { String::new() };
    let rest = line.len() - from - part.len();
    let after = if rest > 0 { format!(" [{rest} bytes]") } else { String::new() };
    format!("{before}{}{after}", String::from_utf8_lossy(part))
}
