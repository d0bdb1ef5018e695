//! A preview a screen at a time. What is left out is always said, with how to see it.

use crate::report::line::{Line, Tone};

/// Rows of a screen that are kept for the keys, and for what says how much is left out.
const ROWS_KEPT: usize = 4;
/// The least that is shown at once, however small the terminal says it is.
const ROWS_MIN: usize = 4;

pub(super) struct Pages {
    lines: Vec<Line>,
    /// How many lines were shown.
    shown: usize,
}

impl Pages {
    pub(super) fn of(lines: Vec<Line>) -> Self {
        Self { lines, shown: 0 }
    }

    pub(super) fn has_more(&self) -> bool {
        self.shown < self.lines.len()
    }

    pub(super) fn rewind(&mut self) {
        self.shown = 0;
    }

    pub(super) fn whole(&mut self) -> Vec<Line> {
        self.shown = self.lines.len();
        self.lines.clone()
    }

    /// As many of the lines that follow as fit the screen, at least one; and how many are left out.
    pub(super) fn next(&mut self, (rows, columns): (usize, usize)) -> Vec<Line> {
        let mut room = rows.saturating_sub(ROWS_KEPT).max(ROWS_MIN);
        let rest = &self.lines[self.shown..];
        let mut count = 0;
        for line in rest {
            let needed = rows_of(line, columns);
            if needed > room && count > 0 {
                break;
            }
            room = room.saturating_sub(needed);
            count += 1;
        }
        let mut page = rest[..count].to_vec();
        self.shown += count;
        let left = self.lines.len() - self.shown;
        if left > 0 {
            let lines = if left == 1 { "line" } else { "lines" };
            let note = format!("... {left} more {lines} not shown: s shows the next screen, w the whole");
            page.push(Line::new(Tone::Warning, &note));
        }
        page
    }
}

/// How many rows a line takes. What is not ASCII may be as wide as two.
fn rows_of(line: &Line, columns: usize) -> usize {
    let width: usize = line.text().chars().map(|letter| if letter.is_ascii() { 1 } else { 2 }).sum();
    width.div_ceil(columns.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(lines: &[&str]) -> Pages {
        Pages::of(lines.iter().map(|line| Line::plain(line)).collect())
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn what_fits_is_shown_at_once() {
        let mut pages = pages(&["a", "b"]);
        assert_eq!(texts(&pages.next((24, 80))), ["a", "b"]);
        assert!(!pages.has_more());
    }

    #[test]
    fn each_line_is_shown_once_and_what_is_left_out_is_counted() {
        let lines: Vec<String> = (1..=11).map(|number| number.to_string()).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut pages = pages(&lines);
        let left = |count: &str| format!("... {count} not shown: s shows the next screen, w the whole");
        assert_eq!(texts(&pages.next((9, 80))), ["1", "2", "3", "4", "5", &left("6 more lines")]);
        assert!(pages.has_more());
        assert_eq!(texts(&pages.next((9, 80))), ["6", "7", "8", "9", "10", &left("1 more line")]);
        assert_eq!(texts(&pages.next((9, 80))), ["11"]);
        assert!(!pages.has_more());
        pages.rewind();
        assert_eq!(pages.next((9, 80)).len(), 6);
        assert_eq!(texts(&pages.whole()), lines);
        assert!(!pages.has_more());
    }

    #[test]
    fn long_lines_take_the_rows_that_they_take() {
        let wide = "ü".repeat(40);
        let long = "x".repeat(161);
        let mut pages = pages(&[&long, &wide, "end"]);
        assert_eq!(pages.next((8, 80)).len(), 3, "three rows, one row, and the note");
        let mut narrow = self::pages(&[&long, "end"]);
        assert_eq!(narrow.next((1, 0)).len(), 2, "a line that fits no screen is shown whole");
        assert_eq!(texts(&narrow.next((1, 0))), ["end"]);
    }
}
