//! Writes a page anew as HTML that a converter can be trusted with: small, well-formed, shallow, in bounded stretches.
//!
//! Elements may begin and end here in any order. What is written has only elements that Markdown has something for,
//! balanced, with blocks never inside marks such as `<strong>`; what only lays text out becomes a break between lines.

mod blocks;
mod nesting;

use std::fmt::Write as _;

use super::convert::{Converter, STAND_INS, UNDERSCORE};

/// Elements that are open within each other. The converter recurses: so many fit its stack, with room.
pub(super) const OPEN_MAX: usize = 32;
/// A stretch ends where nothing is open, once it is so large.
const STRETCH_BYTES: usize = 256 * 1024;
/// It ends wherever it is, with all that is open, at so many bytes of Markdown or elements: the converter cannot be
/// interrupted, and its tree takes some hundred bytes for each element and text.
const STRETCH_BYTES_MAX: usize = 4 * 1024 * 1024;
const STRETCH_ELEMENTS_MAX: usize = 200_000;
/// Of all that is written.
const WRITTEN_BYTES_MAX: usize = 24 * 1024 * 1024;
/// What one element adds to the beginning of each line within it.
const PREFIX_BYTES: usize = 4;
/// Longer code within a line is shown as text.
const CODE_BYTES_MAX: usize = 4096;

/// A list, a quote, a table or a part of these, which is open.
struct Open {
    tag: &'static str,
    /// Where its tag stands: what stays empty is taken back.
    start: usize,
    is_empty: bool,
    /// Of a row its cells, of a table the most of them.
    cells: usize,
    /// Of a table: it holds blocks, which no cell of Markdown can.
    is_layout: bool,
    /// Of a table: its head is being read.
    in_head: bool,
}

/// An element within a line; it may go on in the next lines.
struct Mark {
    tag: &'static str,
    /// How many elements were open as it began; with these it ends.
    depth: usize,
    /// How often it is open within itself.
    again: usize,
    is_written: bool,
    /// Of a link. One without a target is not shown.
    href: Option<String>,
    label: String,
    had_words: bool,
}

/// Code within a line.
struct Code {
    text: String,
    /// How many marks were open before it; those that begin within it are not shown.
    marks: usize,
}

/// A block of code.
struct Pre {
    text: String,
    language: Option<String>,
}

#[derive(Default)]
pub(super) struct Clean {
    converter: Converter,
    markdown: String,
    /// The stretch that is being written.
    html: String,
    elements: usize,
    /// What its Markdown will have at the beginnings of its lines.
    prefix_bytes: usize,
    open: Vec<Open>,
    /// How many more are open that were too deep.
    passed_over: usize,
    marks: Vec<Mark>,
    /// The tag of the line that is being written; empty where it needs none.
    line: Option<&'static str>,
    /// A heading, or the like, that goes on until it ends: breaks within it are spaces.
    heading: Option<&'static str>,
    /// How many line ends are due before the next word.
    due: u8,
    /// A space is due before the next word.
    space: bool,
    code: Option<Code>,
    pre: Option<Pre>,
}

impl Clean {
    /// Whether so much was written that the rest is left out.
    pub(super) fn is_full(&self) -> bool {
        self.markdown.len() + self.stretch_bytes() > WRITTEN_BYTES_MAX
    }

    /// The Markdown of all that was written.
    pub(super) fn finish(mut self) -> String {
        self.end_pre();
        self.end_stretch();
        self.markdown
    }

    fn stretch_bytes(&self) -> usize {
        let pre = self.pre.as_ref().map_or(0, |pre| pre.text.len());
        self.html.len() + self.prefix_bytes + pre + self.code.as_ref().map_or(0, |code| code.text.len())
    }

    /// Ends the stretch if it is time to.
    pub(super) fn settle(&mut self) {
        let bytes = self.stretch_bytes();
        let between = self.open.is_empty()
            && (self.line.is_none() || self.due > 1)
            && self.heading.is_none()
            && self.code.is_none()
            && self.pre.is_none();
        if bytes > STRETCH_BYTES_MAX || self.elements > STRETCH_ELEMENTS_MAX || (between && bytes > STRETCH_BYTES) {
            let pre = self.end_pre();
            self.end_stretch();
            self.pre = pre;
        }
    }

    fn end_stretch(&mut self) {
        self.close_to(0);
        self.passed_over = 0;
        if self.html.is_empty() {
            return;
        }
        let markdown = self.converter.convert(&std::mem::take(&mut self.html));
        if !self.markdown.is_empty() && !markdown.is_empty() {
            self.markdown.push_str("\n\n");
        }
        self.markdown.push_str(&markdown);
        self.elements = 0;
        self.prefix_bytes = 0;
    }

    pub(super) fn text(&mut self, text: &str) {
        if let Some(pre) = &mut self.pre {
            self.prefix_bytes += PREFIX_BYTES * self.open.len() * text.matches('\n').count();
            pre.text.push_str(text);
        } else if let Some(code) = &mut self.code {
            code.text.push_str(text);
        } else {
            self.words(text);
        }
    }

    fn words(&mut self, text: &str) {
        for (index, word) in text.split([' ', '\t', '\n', '\r', '\u{c}', '\u{a0}']).enumerate() {
            self.space |= index > 0;
            if !word.is_empty() {
                self.begin_word();
                self.push_text(word);
            }
        }
    }

    pub(super) fn image(&mut self, alt: &str, source: Option<&str>) {
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.pre.is_some() || self.code.is_some() || alt.is_empty() {
            return;
        }
        let Some(source) = source else { return self.words(&alt) };
        self.begin_word();
        self.push_tag("<img alt=\"");
        self.push_text(&alt);
        self.html.push_str("\" src=\"");
        self.push_target(source);
        self.html.push_str("\">");
    }

    fn start_mark(&mut self, tag: &'static str) {
        let depth = self.open.len();
        match self.marks.iter_mut().find(|mark| mark.tag == tag && mark.depth == depth) {
            Some(mark) => mark.again += 1,
            None => self.push_mark(tag, None, String::new()),
        }
    }

    pub(super) fn start_link(&mut self, href: Option<String>, label: String) {
        if self.pre.is_some() {
            return;
        }
        self.end_mark("a");
        self.push_mark("a", href, label);
    }

    fn push_mark(&mut self, tag: &'static str, href: Option<String>, label: String) {
        let depth = self.open.len();
        self.marks.push(Mark { tag, depth, again: 0, is_written: false, href, label, had_words: false });
    }

    fn end_mark(&mut self, tag: &str) {
        let outside = self.cell_depth();
        let Some(index) = self.marks.iter().rposition(|mark| mark.tag == tag && mark.depth >= outside) else { return };
        let mark = &mut self.marks[index];
        if mark.again > 0 {
            mark.again -= 1;
            return;
        }
        if self.code.as_ref().is_some_and(|code| index < code.marks) {
            self.end_code();
        }
        let mark = &mut self.marks[index];
        // A link around nothing but a picture without words still has a name.
        if mark.href.is_some() && !mark.had_words && self.code.is_none() {
            let label = std::mem::take(&mut mark.label);
            self.words(&label);
        }
        self.lay_down_marks(index);
        self.marks.remove(index);
    }

    /// Code within a line, or the language of an open block.
    pub(super) fn start_code(&mut self, language: Option<String>) {
        match &mut self.pre {
            Some(pre) if pre.language.is_none() => pre.language = language,
            Some(_) => {}
            None => {
                let marks = self.marks.len();
                self.code.get_or_insert(Code { text: String::new(), marks });
            }
        }
    }

    fn end_code(&mut self) {
        let Some(Code { text: code, .. }) = self.code.take() else { return };
        if code.len() > CODE_BYTES_MAX {
            return self.words(&code);
        }
        let words = code.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        self.space |= code.starts_with([' ', '\n', '\t']);
        if words.is_empty() {
            return;
        }
        self.begin_word();
        // The converter takes a long time for very many that touch each other.
        if self.html.ends_with("</code>") {
            self.html.push(' ');
        }
        self.push_tag("<code>");
        self.push_text(&words);
        self.html.push_str("</code>");
        self.space = code.ends_with([' ', '\n', '\t']);
    }

    /// Writes what is due before a word: line ends, a space, marks.
    fn begin_word(&mut self) {
        if self.due > 1 {
            self.end_line();
        }
        if self.line.is_none() {
            self.begin_line();
        } else if self.due == 1 {
            self.push_tag("<br>");
            self.prefix_bytes += PREFIX_BYTES * self.open.len();
        } else if self.space {
            self.html.push(' ');
        }
        self.due = 0;
        self.space = false;
        let outside = self.cell_depth();
        let first = self.marks.iter().position(|mark| mark.depth >= outside).unwrap_or(self.marks.len());
        for index in first..self.marks.len() {
            let (before, rest) = self.marks.split_at_mut(index);
            let Some(mark) = rest.first_mut() else { break };
            mark.had_words = true;
            // Twice bold is bold.
            if mark.is_written || before.iter().skip(first).any(|other| other.tag == mark.tag) {
                continue;
            }
            if mark.tag == "a" {
                let Some(href) = mark.href.clone() else { continue };
                mark.is_written = true;
                self.push_tag("<a href=\"");
                self.push_target(&href);
                self.html.push_str("\">");
                continue;
            }
            mark.is_written = true;
            let tag = mark.tag;
            // One that ended just here goes on; and the converter takes a long time for very many of them.
            match self.html.strip_suffix(&format!("</{tag}>")).map(str::len) {
                Some(length) => self.html.truncate(length),
                None => self.push_tag(&format!("<{tag}>")),
            }
        }
    }

    /// Writes the closers of all marks from `index` on; they open again at the next word.
    fn lay_down_marks(&mut self, index: usize) {
        for mark in self.marks.iter_mut().skip(index).rev() {
            if std::mem::take(&mut mark.is_written) {
                let _ = write!(self.html, "</{}>", mark.tag);
            }
        }
    }

    fn push_tag(&mut self, tag: &str) {
        self.elements += 1;
        self.html.push_str(tag);
    }

    fn push_text(&mut self, text: &str) {
        let mut previous = self.html.chars().next_back();
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            let is_inner = |other: Option<char>| other.is_some_and(char::is_alphanumeric);
            match character {
                '&' => self.html.push_str("&amp;"),
                '<' => self.html.push_str("&lt;"),
                '>' => self.html.push_str("&gt;"),
                '"' => self.html.push_str("&quot;"),
                '_' if is_inner(previous) && is_inner(rest.peek().copied()) => self.html.push(UNDERSCORE),
                _ if STAND_INS.contains(&character) => {}
                _ => self.html.push(character),
            }
            previous = Some(character);
        }
    }

    /// A link's target, of which a parenthesis is no end.
    fn push_target(&mut self, url: &str) {
        self.push_text(&url.replace('(', "%28").replace(')', "%29"));
    }
}
