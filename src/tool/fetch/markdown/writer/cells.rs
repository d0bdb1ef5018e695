//! Tables: each cell is written on a sheet of its own.

use super::super::table::{Shown, Table};
use super::{SHEETS_MAX, Sheet, Writer};

impl Writer {
    pub(super) fn start_table_part(&mut self, name: &str) {
        if self.top().ignored_tables > 0 && name != "table" {
            return self.part(1);
        }
        if name == "table" {
            self.end_heading();
            if self.sheets.len() >= SHEETS_MAX {
                self.top().ignored_tables += 1;
                return self.part(1);
            }
            self.end_table();
            self.part(2);
            self.top().is_block = true;
            self.top().table = Some(Table::default());
            return;
        }
        self.end_cell_of_table();
        let Some(table) = &mut self.top().table else { return self.part(1) };
        match name {
            "tr" => table.start_row(),
            "thead" | "tbody" | "tfoot" => table.set_head(name == "thead"),
            "caption" => self.part(2),
            // A cell.
            _ => self.sheets.push(Sheet { is_head: name == "th", ..Sheet::default() }),
        }
    }

    pub(super) fn end_table_part(&mut self, name: &str) {
        if self.top().ignored_tables > 0 {
            self.top().ignored_tables -= usize::from(name == "table");
            return self.part(1);
        }
        match name {
            "caption" => self.part(2),
            "table" => {
                self.end_cell_of_table();
                self.end_table();
            }
            "td" | "th" => self.end_cell_of_table(),
            // A row or a part.
            _ => {
                self.end_cell_of_table();
                if let Some(table) = &mut self.top().table {
                    if name == "tr" { table.start_row() } else { table.set_head(false) }
                }
            }
        }
    }

    /// Ends the cell that is open, unless a table within it is.
    pub(super) fn end_cell_of_table(&mut self) {
        if self.sheets.len() > 1 && self.top().table.is_none() {
            self.end_cell();
        }
    }

    pub(super) fn end_cell(&mut self) {
        self.end_table();
        self.end_code();
        self.lay_down_marks(0);
        let Some(cell) = self.sheets.pop() else { return };
        if let Some(table) = &mut self.top().table {
            table.add(cell.text, cell.is_head, cell.is_block);
        }
    }

    pub(super) fn end_table(&mut self) {
        let Some(table) = self.top().table.take() else { return };
        match table.show() {
            Shown::Lines(lines) => self.block(&lines.join("\n")),
            Shown::Blocks(blocks) => {
                for block in blocks {
                    if self.is_full() {
                        return;
                    }
                    self.block(&block);
                }
            }
        }
    }
}
