//! Writes Markdown as elements begin and end, in any order that a page may bring them.
//!
//! Every table cell is a sheet of its own, laid aside until its table ends. On a sheet, blocks are told apart by breaks
//! that wait for the next word, and marks such as `**` are written only around words, so that nothing empty is marked.

mod cells;
mod element;
mod words;

pub(super) use self::element::Mark;
use self::element::{Open, is_block, is_line, needs_escape, target};
use super::table::Table;

/// Elements that mean something and are open within each other; deeper ones are passed over, their text is not.
const OPEN_MAX: usize = 64;
/// Lists and quotes within each other: each adds to every line.
const NESTED_MAX: usize = 12;
/// Tables within each other.
const SHEETS_MAX: usize = 8;
/// Of all that is written, cells that are written twice included.
const WRITTEN_BYTES_MAX: usize = 24 * 1024 * 1024;

/// What is written in one go: the page, or a cell of a table.
#[derive(Debug, Default)]
struct Sheet {
    text: String,
    /// How many line ends are due before the next word.
    due: u8,
    /// A space is due before the next word.
    space: bool,
    open: Vec<Open>,
    /// How many elements are open that were passed over, as there were too many.
    passed_over: usize,
    /// The same of lists and quotes that were too deep.
    passed_nested: usize,
    /// The least number of elements open since the last word: an empty line belongs to these alone.
    lowest: usize,
    /// The table that is being read on this sheet.
    table: Option<Table>,
    ignored_tables: usize,
    /// Of a cell: it is a `th`.
    is_head: bool,
    is_block: bool,
    /// The text of an open `code`.
    code: Option<String>,
    /// How many marks and links are open within it; they are not shown.
    marks_in_code: usize,
}

#[derive(Debug)]
struct Pre {
    text: String,
    language: Option<String>,
}

#[derive(Debug)]
pub(super) struct Writer {
    /// The page and, above it, the cells that are open within each other. Never empty.
    sheets: Vec<Sheet>,
    pre: Option<Pre>,
    written_bytes: usize,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self { sheets: vec![Sheet::default()], pre: None, written_bytes: 0 }
    }

    /// Whether so much was written that the rest is left out.
    pub(super) fn is_full(&self) -> bool {
        self.written_bytes > WRITTEN_BYTES_MAX
    }

    pub(super) fn finish(mut self) -> String {
        self.end_pre();
        while self.sheets.len() > 1 {
            self.end_cell();
        }
        self.end_table();
        self.end_code();
        self.lay_down_marks(0);
        let text = self.sheets.pop().unwrap_or_default().text;
        text.trim_end().to_owned()
    }

    pub(super) fn text(&mut self, text: &str) {
        if let Some(pre) = &mut self.pre {
            self.written_bytes += text.len();
            pre.text.push_str(text);
            return;
        }
        if let Some(code) = &mut self.top().code {
            code.push_str(text);
            self.written_bytes += text.len();
            return;
        }
        let mut is_first = true;
        for word in text.split([' ', '\t', '\n', '\r', '\u{c}', '\u{a0}']) {
            let sheet = self.top();
            sheet.space |= !is_first;
            is_first = false;
            if !word.is_empty() {
                let begins_line = self.begin_word();
                if begins_line && needs_escape(word) { self.escaped(word) } else { self.push(word) }
            }
        }
    }

    /// An element without a method of its own begins.
    pub(super) fn start(&mut self, name: &str) {
        if self.pre.is_some() {
            return self.in_pre(name);
        }
        match name {
            "br" => {
                let due = self.top().due;
                if self.top().text.is_empty() {
                    return;
                }
                self.part(if due == 0 { 1 } else { 2 });
            }
            "hr" => {
                self.part(2);
                self.begin_word();
                self.push("---");
                self.part(2);
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_heading();
                self.part(2);
                let level = name.as_bytes().get(1).map_or(1, |digit| digit - b'0');
                self.open(Open::Heading { level });
            }
            "blockquote" => {
                self.part(2);
                self.open(Open::Quote { is_fresh: true });
                self.top().is_block = true;
            }
            "li" => self.start_item(),
            "dt" => {
                self.end_description();
                self.part(2);
            }
            "dd" => {
                self.end_description();
                self.part(1);
                self.open(Open::Item { marker: ": ".to_owned(), is_written: false });
            }
            "table" | "caption" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th" => self.start_table_part(name),
            _ if is_block(name) => self.part(if is_line(name) { 1 } else { 2 }),
            _ => {}
        }
    }

    pub(super) fn end(&mut self, name: &str) {
        if self.pre.is_some() {
            if matches!(name, "pre" | "listing" | "xmp") {
                self.end_pre();
            } else {
                self.in_pre(name);
            }
            return;
        }
        let is_mark = matches!(name, "a" | "b" | "strong" | "i" | "em" | "del" | "s" | "strike" | "sup");
        if is_mark && self.top().marks_in_code > 0 {
            self.top().marks_in_code -= 1;
            return;
        }
        match name {
            // So does a browser.
            "br" => self.start("br"),
            "a" => self.close(|open| matches!(open, Open::Link { .. })),
            "b" | "strong" => self.close_mark(Mark::Strong),
            "i" | "em" => self.close_mark(Mark::Emphasis),
            "del" | "s" | "strike" => self.close_mark(Mark::Struck),
            "sup" => self.close_mark(Mark::Raised),
            "code" | "kbd" | "samp" | "tt" => self.end_code(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_heading();
                self.part(2);
            }
            "blockquote" => {
                self.close(|open| matches!(open, Open::Quote { .. }));
                self.part(2);
            }
            "ul" | "ol" | "menu" | "dir" => {
                self.close(|open| matches!(open, Open::List { .. }));
                let is_inner = self.top().open.iter().any(|open| matches!(open, Open::List { .. }));
                self.part(if is_inner { 1 } else { 2 });
            }
            "li" => {
                self.close_item();
                self.part(1);
            }
            "dd" | "dt" | "dl" => {
                self.end_description();
                self.part(if name == "dl" { 2 } else { 1 });
            }
            "table" | "caption" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th" => self.end_table_part(name),
            _ if is_block(name) => self.part(if is_line(name) { 1 } else { 2 }),
            _ => {}
        }
    }

    pub(super) fn start_mark(&mut self, mark: Mark) {
        if self.pre.is_none() && !self.passes_in_code() {
            self.open(Open::Mark { mark, is_written: false });
        }
    }

    pub(super) fn start_link(&mut self, href: Option<String>, label: String) {
        if self.pre.is_none() && !self.passes_in_code() {
            self.close(|open| matches!(open, Open::Link { .. }));
            self.open(Open::Link { href, label, is_written: false, had_words: false });
        }
    }

    pub(super) fn image(&mut self, alt: &str, source: Option<&str>) {
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.pre.is_some() || self.top().code.is_some() || alt.is_empty() {
            return;
        }
        self.begin_word();
        match source {
            Some(source) => self.push(&format!("![{alt}]({})", target(source))),
            None => self.push(&alt),
        }
    }

    pub(super) fn start_list(&mut self, next: Option<i64>) {
        if self.pre.is_some() {
            return self.in_pre("ul");
        }
        let is_inner = self.top().open.iter().any(|open| matches!(open, Open::Item { .. }));
        self.end_heading();
        self.part(if is_inner { 1 } else { 2 });
        self.open(Open::List { next });
        self.top().is_block = true;
    }

    pub(super) fn start_pre(&mut self, language: Option<String>) {
        if self.pre.is_some() {
            return;
        }
        self.end_heading();
        self.part(2);
        self.top().is_block = true;
        self.pre = Some(Pre { text: String::new(), language });
    }

    /// Code within a line, or the language of an open block.
    pub(super) fn start_code(&mut self, language: Option<String>) {
        match &mut self.pre {
            Some(pre) if pre.language.is_none() => pre.language = language,
            Some(_) => {}
            None => {
                self.top().code.get_or_insert_default();
            }
        }
    }

    /// Whether `code` is open, in which a mark or link that begins is not shown.
    fn passes_in_code(&mut self) -> bool {
        let sheet = self.top();
        let is_open = sheet.code.is_some();
        sheet.marks_in_code += usize::from(is_open);
        is_open
    }

    fn top(&mut self) -> &mut Sheet {
        if self.sheets.is_empty() {
            self.sheets.push(Sheet::default());
        }
        let last = self.sheets.len() - 1;
        &mut self.sheets[last]
    }

    fn open(&mut self, element: Open) {
        let sheet = self.top();
        let nested = sheet.open.iter().filter(|open| open.is_nesting()).count();
        if element.is_nesting() && nested >= NESTED_MAX {
            sheet.passed_nested += 1;
        } else if sheet.open.len() >= OPEN_MAX {
            sheet.passed_over += 1;
        } else {
            sheet.open.push(element);
        }
    }

    /// Ends the innermost element of a kind, if one is open. What is open within it stays open, but for a container's
    /// and a list's content.
    fn close(&mut self, is_it: impl Fn(&Open) -> bool) {
        self.end_code();
        let sheet = self.top();
        let Some(index) = sheet.open.iter().rposition(is_it) else { return };
        if sheet.passed_nested > 0 && sheet.open[index].is_nesting() {
            sheet.passed_nested -= 1;
            return;
        }
        if sheet.passed_over > 0 && sheet.open.len() >= OPEN_MAX {
            sheet.passed_over -= 1;
            return;
        }
        let is_structure = matches!(sheet.open[index], Open::Quote { .. } | Open::Item { .. } | Open::List { .. });
        self.label_link(index);
        self.lay_down_marks(index);
        let sheet = self.top();
        if is_structure {
            sheet.open.truncate(index);
        } else {
            sheet.open.remove(index);
        }
        sheet.lowest = sheet.lowest.min(index);
    }

    fn close_mark(&mut self, wanted: Mark) {
        self.close(|open| matches!(open, Open::Mark { mark, .. } if *mark == wanted));
    }

    fn end_heading(&mut self) {
        self.close(|open| matches!(open, Open::Heading { .. }));
    }

    fn start_item(&mut self) {
        self.end_heading();
        self.close_item();
        self.part(1);
        if self.top().passed_nested > 0 {
            return;
        }
        let list = self.top().open.iter_mut().rev().find_map(|open| match open {
            Open::List { next } => Some(next),
            Open::Quote { .. } | Open::Item { .. } | Open::Heading { .. } | Open::Mark { .. } | Open::Link { .. } => {
                None
            }
        });
        let marker = match list {
            Some(Some(next)) => {
                let marker = format!("{next}. ");
                *next = next.saturating_add(1);
                marker
            }
            Some(None) | None => "- ".to_owned(),
        };
        self.open(Open::Item { marker, is_written: false });
    }

    /// Ends the item of the innermost list, if one is open.
    fn close_item(&mut self) {
        let open = &self.top().open;
        let list = open.iter().rposition(|open| matches!(open, Open::List { .. }));
        let item = open.iter().rposition(|open| matches!(open, Open::Item { .. }));
        if item > list && self.top().passed_nested == 0 {
            self.close(|open| matches!(open, Open::Item { .. }));
        }
    }

    fn end_description(&mut self) {
        self.end_heading();
        let is_description = |open: &Open| matches!(open, Open::Item { marker, .. } if marker == ": ");
        let open = &self.top().open;
        let list = open.iter().rposition(|open| matches!(open, Open::List { .. }));
        if open.iter().rposition(is_description) > list {
            self.close(is_description);
        }
    }
}
