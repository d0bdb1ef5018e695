//! The elements that mean something in Markdown, and what they put at the beginning of a line.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool::fetch::markdown) enum Mark {
    Strong,
    Emphasis,
    Struck,
    /// `<sup>`: 10<sup>6</sup> is not 106.
    Raised,
}

impl Mark {
    pub(super) fn opener(self) -> &'static str {
        match self {
            Self::Strong => "**",
            Self::Emphasis => "*",
            Self::Struck => "~~",
            Self::Raised => "^",
        }
    }

    pub(super) fn closer(self) -> &'static str {
        match self {
            Self::Raised => "",
            Self::Strong | Self::Emphasis | Self::Struck => self.opener(),
        }
    }
}

/// An element that is open and means something.
#[derive(Debug)]
pub(super) enum Open {
    Quote { is_fresh: bool },
    List { next: Option<i64> },
    Item { marker: String, is_written: bool },
    Heading { level: u8 },
    Mark { mark: Mark, is_written: bool },
    Link { href: Option<String>, label: String, is_written: bool, had_words: bool },
}

impl Open {
    /// Whether it stands at the beginning of each of its lines.
    pub(super) fn is_container(&self) -> bool {
        matches!(self, Self::Quote { .. } | Self::Item { .. })
    }

    pub(super) fn is_nesting(&self) -> bool {
        matches!(self, Self::Quote { .. } | Self::List { .. })
    }
}

/// What stands at the beginning of a line within these elements. Those of `fresh` write their marker now.
pub(super) fn prefix(open: &[Open], fresh: &mut [Open]) -> String {
    let mut text = String::new();
    for element in open {
        match element {
            Open::Quote { .. } => text.push_str("> "),
            Open::Item { marker, .. } => text.push_str(&" ".repeat(marker.len())),
            Open::List { .. } | Open::Heading { .. } | Open::Mark { .. } | Open::Link { .. } => {}
        }
    }
    for element in fresh {
        match element {
            Open::Quote { is_fresh } => {
                *is_fresh = false;
                text.push_str("> ");
            }
            Open::Item { marker, is_written } => {
                if std::mem::replace(is_written, true) {
                    text.push_str(&" ".repeat(marker.len()));
                } else {
                    text.push_str(marker);
                }
            }
            Open::List { .. } | Open::Heading { .. } | Open::Mark { .. } | Open::Link { .. } => {}
        }
    }
    text
}

/// A link's target in parentheses of its own.
pub(super) fn target(url: &str) -> String {
    if url.contains(['(', ')']) { format!("<{url}>") } else { url.to_owned() }
}

/// Whether a word at the beginning of a line would be read as a marker.
pub(super) fn needs_escape(word: &str) -> bool {
    let numbered = word.trim_start_matches(|character: char| character.is_ascii_digit());
    matches!(word, "-" | "+" | "*" | "---" | "***" | "===")
        || word.starts_with('>')
        || word.starts_with("```")
        || word.starts_with("~~~")
        || word.bytes().all(|byte| byte == b'#')
        || (numbered.len() < word.len() && matches!(numbered, "." | ")"))
}

/// The length of the longest run of backticks.
pub(super) fn longest_run(text: &str) -> usize {
    text.split(|character| character != '`').map(str::len).max().unwrap_or_default()
}

/// Elements that begin and end a line.
pub(super) fn is_block(name: &str) -> bool {
    is_line(name)
        || matches!(
            name,
            "address"
                | "article"
                | "aside"
                | "blockquote"
                | "body"
                | "center"
                | "details"
                | "dialog"
                | "div"
                | "dl"
                | "fieldset"
                | "figcaption"
                | "figure"
                | "footer"
                | "form"
                | "h1"
                | "h2"
                | "h3"
                | "h4"
                | "h5"
                | "h6"
                | "head"
                | "header"
                | "hgroup"
                | "hr"
                | "html"
                | "main"
                | "nav"
                | "ol"
                | "p"
                | "section"
                | "summary"
                | "table"
                | "ul"
        )
}

/// Those that need no empty line around them.
pub(super) fn is_line(name: &str) -> bool {
    matches!(name, "dd" | "dt" | "legend" | "li" | "option" | "optgroup" | "select" | "textarea" | "tr")
}
