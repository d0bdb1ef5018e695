//! Words and lines: what is due before them, and the marks around them.

use super::element::{Open, is_block, longest_run, prefix, target};
use super::{Pre, Writer};

impl Writer {
    pub(super) fn push(&mut self, text: &str) {
        self.written_bytes += text.len();
        self.top().text.push_str(text);
    }

    /// Writes what is due before a word: line ends, markers, marks. Returns whether the word begins a line.
    pub(super) fn begin_word(&mut self) -> bool {
        let begins_line = self.begin_line();
        let mut before = String::new();
        let mut marked = Vec::new();
        for open in &mut self.top().open {
            match open {
                Open::Mark { mark, is_written } => {
                    // Twice bold is bold.
                    if !*is_written && !marked.contains(mark) {
                        *is_written = true;
                        before.push_str(mark.opener());
                    }
                    marked.push(*mark);
                }
                Open::Link { href, is_written, had_words, .. } => {
                    *had_words = true;
                    if href.is_some() && !*is_written {
                        *is_written = true;
                        before.push('[');
                    }
                }
                Open::Quote { .. } | Open::List { .. } | Open::Item { .. } | Open::Heading { .. } => {}
            }
        }
        self.push(&before);
        begins_line
    }

    /// The same without the marks, for lines that are written as they are.
    pub(super) fn begin_line(&mut self) -> bool {
        let sheet = self.top();
        let begins_line = sheet.due > 0 || sheet.text.is_empty();
        let mut before = String::new();
        if begins_line {
            if !sheet.text.is_empty() {
                if sheet.due > 1 {
                    before.push('\n');
                    before.push_str(prefix(&sheet.open[..sheet.lowest.min(sheet.open.len())], &mut []).trim_end());
                }
                before.push('\n');
            }
            let lowest = sheet.open.len();
            before.push_str(&prefix(&[], &mut sheet.open));
            for open in &sheet.open {
                if let Open::Heading { level } = open {
                    before.push_str(&"#".repeat(usize::from(*level)));
                    before.push(' ');
                }
            }
            sheet.lowest = lowest;
        } else if sheet.space {
            before.push(' ');
        }
        sheet.due = 0;
        sheet.space = false;
        self.push(&before);
        begins_line
    }

    /// A word that would be taken for a marker at the beginning of a line.
    pub(super) fn escaped(&mut self, word: &str) {
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        self.push(&word[..digits]);
        self.push("\\");
        self.push(&word[digits..]);
    }

    /// Ends the line: `due` line ends stand before the next word, at least. Within a heading it is a space.
    pub(super) fn part(&mut self, due: u8) {
        self.end_code();
        if self.top().open.iter().any(|open| matches!(open, Open::Heading { .. })) {
            self.top().space = true;
            return;
        }
        self.lay_down_marks(0);
        let sheet = self.top();
        sheet.space = false;
        sheet.lowest = sheet.lowest.min(sheet.open.len());
        // Behind a marker that waits for its first word there is no empty line.
        let is_fresh = match sheet.open.iter().rfind(|open| open.is_container()) {
            Some(Open::Item { is_written, .. }) => !is_written,
            Some(Open::Quote { is_fresh }) => *is_fresh,
            Some(Open::List { .. } | Open::Heading { .. } | Open::Mark { .. } | Open::Link { .. }) | None => false,
        };
        if !is_fresh {
            sheet.due = sheet.due.max(due);
        }
    }

    /// Writes the closers of all marks and links from `index` on; they open again at the next word.
    pub(super) fn lay_down_marks(&mut self, index: usize) {
        let sheet = self.top();
        let mut closers = String::new();
        for open in sheet.open.iter_mut().skip(index).rev() {
            match open {
                Open::Mark { mark, is_written } => {
                    if std::mem::take(is_written) {
                        closers.push_str(mark.closer());
                    }
                }
                Open::Link { href, is_written, .. } => {
                    if std::mem::take(is_written) {
                        closers.push_str("](");
                        closers.push_str(&target(href.as_deref().unwrap_or_default()));
                        closers.push(')');
                    }
                }
                Open::Quote { .. } | Open::List { .. } | Open::Item { .. } | Open::Heading { .. } => {}
            }
        }
        self.push(&closers);
    }

    /// A link around nothing but a picture without words still has a name.
    pub(super) fn label_link(&mut self, index: usize) {
        let Some(Open::Link { href: Some(_), label, had_words: false, .. }) = self.top().open.get(index) else {
            return;
        };
        let label = label.split_whitespace().collect::<Vec<_>>().join(" ");
        if !label.is_empty() {
            self.begin_word();
            self.push(&label);
        }
    }

    pub(super) fn end_code(&mut self) {
        let Some(code) = self.top().code.take() else { return };
        self.top().marks_in_code = 0;
        let words = code.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        self.top().space |= code.starts_with([' ', '\n', '\t']);
        if words.is_empty() {
            return;
        }
        let fence = "`".repeat(longest_run(&words) + 1);
        let pad = if words.starts_with('`') || words.ends_with('`') { " " } else { "" };
        self.begin_word();
        self.push(&format!("{fence}{pad}{words}{pad}{fence}"));
        self.top().space |= code.ends_with([' ', '\n', '\t']);
    }

    /// An element within a block of code: where it begins and ends a line of its own, so does its text.
    pub(super) fn in_pre(&mut self, name: &str) {
        let Some(pre) = &mut self.pre else { return };
        if name == "br" || (is_block(name) && !pre.text.is_empty() && !pre.text.ends_with('\n')) {
            pre.text.push('\n');
        }
    }

    pub(super) fn end_pre(&mut self) {
        let Some(Pre { text, language }) = self.pre.take() else { return };
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text = text.strip_prefix('\n').unwrap_or(&text).trim_end();
        if text.is_empty() {
            return;
        }
        let fence = "`".repeat(longest_run(text).max(2) + 1);
        let block = format!("{fence}{}\n{text}\n{fence}", language.unwrap_or_default());
        self.block(&block);
    }

    /// Lines that are written as they are, as a block of their own.
    pub(super) fn block(&mut self, lines: &str) {
        self.part(2);
        for line in lines.lines() {
            if line.is_empty() {
                let sheet = self.top();
                let empty = prefix(&sheet.open, &mut []);
                self.push("\n");
                self.push(empty.trim_end());
            } else {
                self.begin_line();
                self.push(line);
            }
            self.top().due = 1;
        }
        self.part(2);
    }
}
