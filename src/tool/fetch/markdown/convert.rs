//! The Markdown of a stretch of the small HTML that `clean` writes: htmd's, with handlers for what it does not know.
//!
//! Tables are among these: htmd's own pads every cell to the width of its column and drops cells that it did not
//! expect. Its one flaw in words, `\_` within a name, is evaded by characters that stand in for others.

use htmd::element_handler::{HandlerResult, Handlers};
use htmd::options::{BulletListMarker, HrStyle, Options};
use htmd::{Element, HtmlToMarkdown};

/// How `clean` names a table and its parts: blocks that it has no other use for, and that a parser does not reorder.
pub(super) const TABLE: &str = "article";
pub(super) const TABLE_ROW: &str = "section";
pub(super) const TABLE_CELL: &str = "aside";
pub(super) const TABLE_HEAD: &str = "header";

/// Characters that Unicode keeps for such a use; those of a page are dropped.
pub(super) const STAND_INS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';
/// Stands for an underscore within a name, which htmd would escape.
pub(super) const UNDERSCORE: char = '\u{fdd0}';
/// At the end of a table that only lays things out: its cells are shown one after the other.
pub(super) const LAYOUT: char = '\u{fdd1}';
const ROW: char = '\u{fdd2}';
const CELL: char = '\u{fdd3}';
const HEAD_CELL: char = '\u{fdd4}';

pub(super) struct Converter(HtmlToMarkdown);

impl Default for Converter {
    fn default() -> Self {
        let options = Options {
            bullet_list_marker: BulletListMarker::Dash,
            hr_style: HrStyle::Dashes,
            ul_bullet_spacing: 1,
            ol_number_spacing: 1,
            ..Options::default()
        };
        let builder = HtmlToMarkdown::builder()
            .options(options)
            .add_handler(vec!["br"], shown(|_| "\n".to_owned()))
            .add_handler(vec!["del"], shown(|content| format!("~~{content}~~")))
            // 10<sup>6</sup> is not 106.
            .add_handler(vec!["sup"], shown(|content| format!("^{content}")))
            .add_handler(vec!["dt"], shown(|content| format!("\n\n{content}\n")))
            .add_handler(vec!["dd"], shown(description))
            .add_handler(vec![TABLE], shown(table))
            .add_handler(vec![TABLE_ROW], shown(|content| format!("{ROW}{content}")))
            .add_handler(vec![TABLE_CELL], shown(|content| format!("{CELL}{content}")))
            .add_handler(vec![TABLE_HEAD], shown(|content| format!("{HEAD_CELL}{content}")));
        Self(builder.build())
    }
}

impl Converter {
    pub(super) fn convert(&self, html: &str) -> String {
        match self.0.convert(html) {
            Ok(markdown) => markdown.replace(UNDERSCORE, "_"),
            Err(error) => format!("[a part of the page is left out: {error}]"),
        }
    }
}

/// A handler that makes an element's Markdown of that of its content.
fn shown(
    show: impl Fn(&str) -> String + Send + Sync,
) -> impl Fn(&dyn Handlers, Element) -> Option<HandlerResult> + Send + Sync {
    move |handlers, element| Some(show(&handlers.walk_children(element.node).content).into())
}

fn description(content: &str) -> String {
    let mut text = String::from(": ");
    for (index, line) in content.trim().lines().enumerate() {
        match (index, line) {
            (0, _) => {}
            (_, "") => text.push('\n'),
            (_, _) => text.push_str("\n  "),
        }
        text.push_str(line);
    }
    text.push('\n');
    text
}

fn table(content: &str) -> String {
    let blocks = if content.contains(LAYOUT) {
        let cells = content.split([ROW, CELL, HEAD_CELL, LAYOUT]).map(str::trim);
        cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("\n\n")
    } else {
        let mut rows = content.split(ROW);
        let caption = rows.next().unwrap_or_default().trim();
        format!("{caption}\n\n{}", lines(rows.collect()))
    };
    format!("\n\n{}\n\n", blocks.trim())
}

/// A table's rows as lines, each no wider than it is.
fn lines(mut rows: Vec<&str>) -> String {
    const CELLS: [char; 2] = [CELL, HEAD_CELL];
    rows.retain(|row| row.contains(|character: char| !CELLS.contains(&character) && !character.is_whitespace()));
    let Some(columns) = rows.iter().map(|row| row.matches(CELLS).count()).max() else { return String::new() };
    let mut rows = rows.into_iter().peekable();
    let head = rows.next_if(|row| !row.contains(CELL));
    let missing = columns - head.map_or(0, |row| row.matches(CELLS).count());
    let mut text = String::from("|");
    push_cells(&mut text, head.unwrap_or_default());
    text.push_str(&"  |".repeat(missing));
    text.push_str("\n|");
    text.push_str(&" --- |".repeat(columns));
    for row in rows {
        text.push_str("\n|");
        push_cells(&mut text, row);
    }
    text
}

fn push_cells(text: &mut String, row: &str) {
    for (index, cell) in row.split([CELL, HEAD_CELL]).enumerate() {
        let is_empty = cell.trim_ascii().is_empty();
        // Before the first cell there is text only on a broken page.
        if index == 0 && is_empty {
            continue;
        }
        for word in cell.split_ascii_whitespace() {
            text.push(' ');
            text.push_str(&word.replace('|', "\\|"));
        }
        text.push_str(if is_empty { "  |" } else { " |" });
    }
}
