//! A table while it is read, and as Markdown.

/// A row may have so many cells; further ones are shown as text of the last.
pub(super) const COLUMNS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
    /// Whether the last row still takes cells.
    row_is_open: bool,
    in_head: bool,
}

#[derive(Debug, Default)]
struct Row {
    cells: Vec<Cell>,
    is_head: bool,
}

#[derive(Debug)]
struct Cell {
    text: String,
    is_head: bool,
    /// It holds lists, code or the like, which no cell of Markdown can.
    is_block: bool,
}

/// How a table is shown.
pub(super) enum Shown {
    /// Lines of a table.
    Lines(Vec<String>),
    /// The content of the cells, one after the other: it only lays things out.
    Blocks(Vec<String>),
}

impl Table {
    pub(super) fn start_row(&mut self) {
        self.row_is_open = false;
    }

    pub(super) fn set_head(&mut self, in_head: bool) {
        self.row_is_open = false;
        self.in_head = in_head;
    }

    pub(super) fn add(&mut self, text: String, is_head: bool, is_block: bool) {
        if !self.row_is_open {
            self.rows.push(Row { cells: Vec::new(), is_head: self.in_head });
            self.row_is_open = true;
        }
        let Some(row) = self.rows.last_mut() else { return };
        let is_wide = row.cells.len() >= COLUMNS_MAX;
        match row.cells.last_mut() {
            Some(last) if is_wide => {
                last.text.push(' ');
                last.text.push_str(&text);
                last.is_block |= is_block;
            }
            _ => row.cells.push(Cell { text, is_head, is_block }),
        }
    }

    pub(super) fn show(self) -> Shown {
        let columns = self.rows.iter().map(|row| row.cells.len()).max().unwrap_or_default();
        let mut cells = self.rows.iter().flat_map(|row| &row.cells);
        if columns <= 1 || cells.any(|cell| cell.is_block) {
            let cells = self.rows.into_iter().flat_map(|row| row.cells);
            return Shown::Blocks(cells.map(|cell| cell.text).filter(|text| !text.is_empty()).collect());
        }
        let mut rows = self.rows.iter().filter(|row| row.cells.iter().any(|cell| !cell.text.is_empty())).peekable();
        let is_head = |row: &Row| row.is_head || row.cells.iter().all(|cell| cell.is_head);
        let head = rows.next_if(|row| is_head(row));
        let mut lines = Vec::new();
        lines.push(head.map_or_else(|| format!("|{}", "  |".repeat(columns)), |row| row.line(columns)));
        lines.push(format!("|{}", " --- |".repeat(columns)));
        lines.extend(rows.map(|row| row.line(row.cells.len())));
        Shown::Lines(lines)
    }
}

impl Row {
    fn line(&self, columns: usize) -> String {
        let mut line = String::from("|");
        for cell in &self.cells {
            line.push(' ');
            let words = cell.text.split_ascii_whitespace();
            for (index, word) in words.enumerate() {
                if index > 0 {
                    line.push(' ');
                }
                line.push_str(&word.replace('|', "\\|"));
            }
            line.push_str(" |");
        }
        line.push_str(&"  |".repeat(columns.saturating_sub(self.cells.len())));
        line
    }
}
