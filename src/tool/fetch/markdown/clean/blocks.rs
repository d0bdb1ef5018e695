//! What the elements of a page do as they begin and end.

use super::{Clean, Pre};
use crate::tool::fetch::markdown::convert::TABLE;

impl Clean {
    /// An element without a method of its own begins.
    pub(in crate::tool::fetch::markdown) fn start(&mut self, name: &str) {
        if self.pre.is_some() {
            return self.break_in_pre(name);
        }
        if let Some(tag) = mark(name) {
            return self.start_mark(tag);
        }
        match name {
            "br" if self.line.is_some() => self.part(if self.due == 0 { 1 } else { 2 }),
            "hr" => {
                self.end_line();
                self.push_tag("<hr>");
                self.fill();
            }
            "blockquote" | "dl" => self.nest(if name == "dl" { "dl" } else { "blockquote" }, ""),
            "ul" | "menu" | "dir" => self.nest("ul", ""),
            "li" => self.item("li"),
            "dt" => self.item("dt"),
            "dd" => self.item("dd"),
            "table" => self.nest(TABLE, ""),
            "caption" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th" => self.table_part(name),
            _ => match heading(name) {
                Some(tag) => {
                    self.end_line();
                    self.heading = Some(tag);
                }
                None => self.part(line_ends(name)),
            },
        }
    }

    pub(in crate::tool::fetch::markdown) fn end(&mut self, name: &str) {
        if self.pre.is_some() {
            if matches!(name, "pre" | "listing" | "xmp") {
                self.end_pre();
            } else {
                self.break_in_pre(name);
            }
            return;
        }
        if let Some(tag) = mark(name) {
            return self.end_mark(tag);
        }
        match name {
            // So does a browser.
            "br" => self.start("br"),
            "code" | "kbd" | "samp" | "tt" => self.end_code(),
            "blockquote" => self.end_nested(&["blockquote"]),
            "ul" | "ol" | "menu" | "dir" => self.end_nested(&["ul", "ol"]),
            "dl" => self.end_nested(&["dl"]),
            "table" => self.end_nested(&[TABLE]),
            "li" | "dd" => self.end_item(name),
            "caption" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th" => self.end_table_part(name),
            _ if name == "dt" || heading(name).is_some() => {
                if self.heading.is_some() {
                    self.end_line();
                }
                self.part(2);
            }
            _ => self.part(line_ends(name)),
        }
    }

    pub(in crate::tool::fetch::markdown) fn start_numbered(&mut self, start: Option<u32>) {
        if self.pre.is_some() {
            return self.break_in_pre("ol");
        }
        self.nest("ol", &start.map(|start| format!(" start={start}")).unwrap_or_default());
    }

    pub(in crate::tool::fetch::markdown) fn start_pre(&mut self, language: Option<String>) {
        if self.pre.is_none() {
            self.end_line();
            self.lay_out();
            self.pre = Some(Pre { text: String::new(), language });
        }
    }

    /// Ends the block of code that is open, and returns one that goes on with it.
    pub(super) fn end_pre(&mut self) -> Option<Pre> {
        let Pre { text, language } = self.pre.take()?;
        let text = text.strip_prefix('\n').unwrap_or(&text).trim_end();
        if !text.is_empty() {
            let class = language.as_ref().map(|name| format!(" class=\"language-{name}\"")).unwrap_or_default();
            self.push_tag("<pre>");
            self.push_tag(&format!("<code{class}>"));
            self.push_text(text);
            self.html.push_str("</code></pre>");
            self.fill();
        }
        Some(Pre { text: String::new(), language })
    }

    /// An element within a block of code: where it begins and ends a line of its own, so does its text.
    fn break_in_pre(&mut self, name: &str) {
        let is_block = line_ends(name) > 0 || heading(name).is_some();
        if let Some(pre) = &mut self.pre
            && (name == "br" || (is_block && !pre.text.is_empty() && !pre.text.ends_with('\n')))
        {
            self.text("\n");
        }
    }
}

fn mark(name: &str) -> Option<&'static str> {
    match name {
        "b" | "strong" => Some("strong"),
        "i" | "em" => Some("em"),
        "del" | "s" | "strike" => Some("del"),
        "sup" => Some("sup"),
        "a" => Some("a"),
        _ => None,
    }
}

fn heading(name: &str) -> Option<&'static str> {
    ["h1", "h2", "h3", "h4", "h5", "h6"].into_iter().find(|tag| *tag == name)
}

/// How many line ends stand around an element, at least.
fn line_ends(name: &str) -> u8 {
    match name {
        "dd" | "dt" | "legend" | "li" | "option" | "optgroup" | "select" | "textarea" | "tr" => 1,
        "address" | "article" | "aside" | "blockquote" | "body" | "center" | "details" | "dialog" | "div" | "dl"
        | "fieldset" | "figcaption" | "figure" | "footer" | "form" | "head" | "header" | "hgroup" | "hr" | "html"
        | "main" | "nav" | "ol" | "p" | "section" | "summary" | "table" | "ul" => 2,
        _ => 0,
    }
}
