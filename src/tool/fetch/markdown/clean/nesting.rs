//! Lines, and the elements that hold lines: how they begin and end whatever the page says.

use std::fmt::Write as _;

use super::{Clean, OPEN_MAX, Open, PREFIX_BYTES};
use crate::tool::fetch::markdown::convert::{LAYOUT, TABLE, TABLE_CELL, TABLE_HEAD, TABLE_ROW};

const CELLS: &[&str] = &[TABLE_CELL, TABLE_HEAD];
/// The deepest that begins at once: a table, its row, its cell.
const BEGUN_MAX: usize = 3;

impl Clean {
    pub(super) fn begin_line(&mut self) {
        self.prefix_bytes += PREFIX_BYTES * self.open.len();
        let is_first = self.open.last().is_some_and(|open| open.is_empty);
        // The first words of an item or a cell are no paragraph: lists stay close.
        let tag = self.heading.unwrap_or(if is_first { "" } else { "p" });
        if !tag.is_empty() {
            self.push_tag(&format!("<{tag}>"));
        }
        self.line = Some(tag);
        self.fill();
    }

    /// Ends the line and the heading that is open.
    pub(super) fn end_line(&mut self) {
        self.end_code();
        self.lay_down_marks(0);
        if let Some(tag) = self.line.take().filter(|tag| !tag.is_empty()) {
            let _ = write!(self.html, "</{tag}>");
        }
        self.heading = None;
        self.due = 0;
        self.space = false;
    }

    /// `due` line ends stand before the next word, at least. Within a heading they are a space.
    pub(super) fn part(&mut self, due: u8) {
        if due == 0 {
            return;
        }
        self.end_code();
        if self.heading.is_some() {
            self.space = true;
        } else {
            self.due = self.due.max(due);
            self.space = false;
        }
    }

    /// Begins a list, a quote or a table.
    pub(super) fn nest(&mut self, tag: &'static str, attributes: &str) {
        if !self.has_room() {
            self.passed_over += 1;
            return self.part(1);
        }
        self.lay_out();
        self.begin(tag, attributes);
    }

    /// Ends the innermost of these, with all that is open within it. What is no table is not sought beyond a cell.
    pub(super) fn end_nested(&mut self, tags: &[&str]) {
        if self.passed_over > 0 {
            self.passed_over -= 1;
            return self.part(1);
        }
        self.part(2);
        self.close(tags, if tags == [TABLE] { &[] } else { CELLS });
    }

    /// An item, in a list that is opened if there is none.
    pub(super) fn item(&mut self, tag: &'static str) {
        if self.passed_over > 0 {
            return self.part(1);
        }
        self.end_line();
        let (before, list) = if tag == "li" { ("li", "ul") } else { ("dd", "dl") };
        if self.open.last().is_some_and(|open| open.tag == before) {
            self.close_to(self.open.len() - 1);
        }
        let is_in_list = self.open.last().is_some_and(|open| open.tag == list || (open.tag == "ol" && tag == "li"));
        if !is_in_list {
            if !self.has_room() {
                return self.part(1);
            }
            self.nest(list, "");
        }
        if tag == "dt" {
            self.heading = Some(tag);
        } else {
            self.begin(tag, "");
        }
    }

    pub(super) fn end_item(&mut self, tag: &str) {
        if self.passed_over == 0 {
            self.close(&[tag], &["ul", "ol", "dl", TABLE_CELL, TABLE_HEAD]);
        }
        self.part(1);
    }

    pub(super) fn table_part(&mut self, name: &str) {
        let table = self.open.iter().rposition(|open| open.tag == TABLE);
        let Some(table) = table.filter(|_| self.passed_over == 0) else { return self.part(1) };
        let is_cell = matches!(name, "td" | "th");
        let in_row = is_cell && self.open.get(table + 1).is_some_and(|open| open.tag == TABLE_ROW);
        self.close_to(table + if in_row { 2 } else { 1 });
        if matches!(name, "thead" | "tbody" | "tfoot") {
            self.open[table].in_head = name == "thead";
        }
        if name == "tr" || (is_cell && !in_row) {
            self.begin(TABLE_ROW, "");
        }
        if is_cell {
            self.open[table + 1].cells += 1;
            self.begin(if name == "th" || self.open[table].in_head { TABLE_HEAD } else { TABLE_CELL }, "");
        }
    }

    pub(super) fn end_table_part(&mut self, name: &str) {
        if self.passed_over > 0 {
            return self.part(1);
        }
        match name {
            "td" | "th" => self.close(CELLS, &[TABLE]),
            "tr" | "thead" | "tbody" | "tfoot" => self.close(&[TABLE_ROW], &[TABLE]),
            _ => {}
        }
        self.part(if name == "caption" { 2 } else { 1 });
        if name == "thead"
            && let Some(table) = self.open.last_mut()
        {
            table.in_head = false;
        }
    }

    /// Ends the innermost of `tags`, unless one of `barriers` is open within it.
    pub(super) fn close(&mut self, tags: &[&str], barriers: &[&str]) {
        let is_either = |open: &Open| tags.contains(&open.tag) || barriers.contains(&open.tag);
        if let Some(index) = self.open.iter().rposition(is_either)
            && tags.contains(&self.open[index].tag)
        {
            self.close_to(index);
        }
    }

    /// Ends all but the first `count` elements.
    pub(super) fn close_to(&mut self, count: usize) {
        self.end_line();
        while self.open.len() > count {
            let Some(open) = self.open.pop() else { break };
            if open.is_empty && !CELLS.contains(&open.tag) {
                self.html.truncate(open.start);
                continue;
            }
            if open.tag == TABLE && (open.is_layout || open.cells <= 1) {
                self.html.push(LAYOUT);
            }
            let _ = write!(self.html, "</{}>", open.tag);
            self.fill();
            if let Some(outer) = self.open.last_mut() {
                outer.cells = outer.cells.max(if open.tag == TABLE_ROW { open.cells } else { 0 });
            }
        }
        self.marks.retain(|mark| mark.depth <= count);
    }

    /// How many elements are open up to the innermost cell: marks that began before it are none within it.
    pub(super) fn cell_depth(&self) -> usize {
        self.open.iter().rposition(|open| CELLS.contains(&open.tag)).map_or(0, |index| index + 1)
    }

    /// The table whose cell is open holds blocks.
    pub(super) fn lay_out(&mut self) {
        if let Some(table) = self.open.iter_mut().rfind(|open| open.tag == TABLE) {
            table.is_layout = true;
        }
    }

    /// The innermost element is not empty.
    pub(super) fn fill(&mut self) {
        if let Some(open) = self.open.last_mut() {
            open.is_empty = false;
        }
    }

    fn begin(&mut self, tag: &'static str, attributes: &str) {
        self.end_line();
        let start = self.html.len();
        self.push_tag(&format!("<{tag}{attributes}>"));
        self.open.push(Open { tag, start, is_empty: true, cells: 0, is_layout: false, in_head: false });
    }

    fn has_room(&self) -> bool {
        self.open.len() + BEGUN_MAX <= OPEN_MAX
    }
}
