//! Lines for people: text that is safe to print, and what it is, so that it can be coloured.

use std::borrow::Cow;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::escape::{escape, escape_exactly, escape_line, escape_line_exactly};

/// One line without its line end, masked and escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub tone: Tone,
    text: String,
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Heading,
    Dim,
    Warning,
    Error,
    Added,
    Removed,
    Hunk,
}

impl Line {
    /// One line; line ends in `text` are shown escaped.
    pub fn new(tone: Tone, text: &str) -> Self {
        Self { tone, text: escape_line(&crate::mask::apply(text)).into_owned() }
    }

    pub fn plain(text: &str) -> Self {
        Self::new(Tone::Plain, text)
    }

    pub fn empty() -> Self {
        Self { tone: Tone::Plain, text: String::new() }
    }

    /// As many lines as `text` has, each behind a prefix; so nothing in `text` passes for a line of attini's own.
    pub fn all(tone: Tone, first_prefix: &str, next_prefix: &str, text: &str) -> Vec<Self> {
        Self::split(tone, first_prefix, next_prefix, text, escape)
    }

    /// As [`Line::new`], for a path or an address that a person decides on.
    pub fn exactly(tone: Tone, text: &str) -> Self {
        Self { tone, text: escape_line_exactly(&crate::mask::apply(text)).into_owned() }
    }

    /// As [`Line::all`], for what a person decides on.
    pub fn all_exactly(tone: Tone, first_prefix: &str, next_prefix: &str, text: &str) -> Vec<Self> {
        Self::split(tone, first_prefix, next_prefix, text, escape_exactly)
    }

    fn split(
        tone: Tone,
        first_prefix: &str,
        next_prefix: &str,
        text: &str,
        escape: impl Fn(&str) -> Cow<'_, str>,
    ) -> Vec<Self> {
        let text = crate::mask::apply(text);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let prefixes = std::iter::once(first_prefix).chain(std::iter::repeat(next_prefix));
        let lines = text.split('\n').zip(prefixes);
        lines.map(|(line, prefix)| Self { tone, text: format!("{prefix}{}", escape(line)) }).collect()
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The lines as they are printed.
pub fn paint(lines: &[Line], colour: bool) -> String {
    let mut painted = String::new();
    for line in lines {
        let style = line.tone.style();
        if colour && style != Style::new() && !line.text.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(painted, "{style}{}{style:#}", line.text);
        } else {
            painted.push_str(&line.text);
            painted.push('\n');
        }
    }
    painted
}

impl Tone {
    const fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Heading => Style::new().bold(),
            Self::Dim => Style::new().dimmed(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Error | Self::Removed => AnsiColor::Red.on_default(),
            Self::Added => AnsiColor::Green.on_default(),
            Self::Hunk => AnsiColor::Cyan.on_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(Line::plain("a\nb\u{1b}").text(), "a\\nb\\x1b");
        let lines = Line::all(Tone::Plain, "$ ", "> ", "one\n\ntwo\n");
        assert_eq!(paint(&lines, false), "$ one\n> \n> two\n");
    }

    #[test]
    fn colour_frames_the_text_of_a_line() {
        let lines = [Line::new(Tone::Added, "+new"), Line::empty(), Line::plain("same")];
        assert_eq!(paint(&lines, true), "\u{1b}[32m+new\u{1b}[0m\n\nsame\n");
    }
}
