//! HTML to Markdown for a reader that is a model: the text whole, its structure where Markdown has it, no scripts.
//!
//! The converter is htmd, which builds a tree and walks down it; and a page is hostile: trees of hostile pages are deep,
//! wide and slow. So it gets none of a page, but HTML that `clean` writes anew from html5ever's tokens, without a tree:
//! every depth and size of it is bounded, and the work grows with the page alone.

mod clean;
mod convert;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use ::url::Url;
use html5ever::Attribute;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

use self::clean::Clean;
use crate::interrupt::Interrupt;
use crate::provider::cut;

/// Some pages make the tokenizer itself slow (a tag of a million attributes).
const WORK_SECONDS_MAX: u64 = 10;
/// How much is read between two looks at the clock and the interrupt.
const PIECE_BYTES: usize = 4096;
const TITLE_CHARACTERS_MAX: usize = 300;
const LINK_BYTES_MAX: usize = 2048;
const LANGUAGE_CHARACTERS_MAX: usize = 30;
/// The first number of a list; the converter counts digits of larger ones wrongly.
const NUMBER_MAX: u32 = 9_999_999;

/// The page as Markdown, its title first; `base` is where it was found. `None`: interrupted.
pub(super) fn of(html: &str, base: &Url, interrupt: &Interrupt) -> Option<String> {
    within(html, base, interrupt, Duration::from_secs(WORK_SECONDS_MAX))
}

fn within(html: &str, base: &Url, interrupt: &Interrupt, time: Duration) -> Option<String> {
    let end = Instant::now() + time;
    let tokenizer = Tokenizer::new(Sink::new(base.clone()), TokenizerOpts::default());
    let queue = BufferQueue::default();
    let mut rest = html;
    let mut is_whole = true;
    while !rest.is_empty() {
        if interrupt.is_raised() {
            return None;
        }
        if Instant::now() > end || tokenizer.sink.is_full() {
            is_whole = false;
            break;
        }
        let (piece, behind) = rest.split_at(cut(rest, PIECE_BYTES).len());
        rest = behind;
        queue.push_back(StrTendril::from_slice(piece));
        // Whatever it waits for, the next piece goes on.
        let _ = tokenizer.feed(&queue);
    }
    if is_whole {
        tokenizer.end();
        is_whole = !tokenizer.sink.is_full();
    }
    let mut text = tokenizer.sink.finish();
    if !is_whole {
        text.push_str("\n\n[the rest of the page is left out: it is too large to be converted]");
    }
    Some(text)
}

/// Takes the tokens and tells the writer what they mean.
struct Sink {
    state: RefCell<State>,
}

struct State {
    base: Url,
    base_is_set: bool,
    title: Option<String>,
    clean: Clean,
    /// Inside an element whose content is not shown: its name, and how often it is open.
    skipping: Option<(String, u32)>,
    in_title: bool,
}

impl Sink {
    fn new(base: Url) -> Self {
        let state =
            State { base, base_is_set: false, title: None, clean: Clean::default(), skipping: None, in_title: false };
        Self { state: RefCell::new(state) }
    }

    fn is_full(&self) -> bool {
        self.state.borrow().clean.is_full()
    }

    fn finish(self) -> String {
        let state = self.state.into_inner();
        let title = state.title.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        let title: String = crate::mask::apply(&title).chars().take(TITLE_CHARACTERS_MAX).collect();
        let body = state.clean.finish();
        let mut clean = Clean::default();
        clean.start("h1");
        clean.text(&title);
        let heading = clean.finish();
        if title.is_empty() || body == heading || body.starts_with(&format!("{heading}\n")) {
            return body;
        }
        if body.is_empty() { heading } else { format!("{heading}\n\n{body}") }
    }
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut state = self.state.borrow_mut();
        match token {
            Token::CharacterTokens(text) => state.text(&text),
            Token::TagToken(tag) => return state.tag(&tag),
            Token::DoctypeToken(_)
            | Token::CommentToken(_)
            | Token::NullCharacterToken
            | Token::EOFToken
            | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}

impl State {
    fn text(&mut self, text: &str) {
        if self.in_title {
            let title = self.title.get_or_insert_default();
            if title.len() < LINK_BYTES_MAX {
                title.push_str(text);
            }
        } else if self.skipping.is_none() {
            self.clean.settle();
            self.clean.text(text);
        }
    }

    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        self.clean.settle();
        let name: &str = &tag.name;
        let starts = tag.kind == TagKind::StartTag;
        if let Some((skipped, depth)) = &mut self.skipping {
            if *skipped == name {
                *depth =
                    if starts { depth.saturating_add(u32::from(!tag.self_closing)) } else { depth.saturating_sub(1) };
                if *depth == 0 {
                    self.skipping = None;
                }
            }
            // In a drawing a slash ends the element.
            return raw_text(name, starts && !tag.self_closing);
        }
        match (name, starts) {
            ("title", true) => self.in_title = self.title.is_none(),
            ("title", false) => self.in_title = false,
            (
                "script" | "style" | "template" | "svg" | "iframe" | "noembed" | "noframes" | "canvas" | "annotation",
                true,
            ) => {
                // These two hold no elements, whatever a slash says.
                if !tag.self_closing || matches!(name, "script" | "style") {
                    self.skipping = Some((name.to_owned(), 1));
                }
            }
            (_, true) => self.start(name, &tag.attrs),
            (_, false) => self.clean.end(name),
        }
        raw_text(name, starts)
    }

    fn start(&mut self, name: &str, attributes: &[Attribute]) {
        match name {
            "base" if !self.base_is_set => {
                if let Some(base) = attribute(attributes, "href").and_then(|href| self.base.join(&href).ok())
                    && matches!(base.scheme(), "http" | "https")
                {
                    self.base = base;
                    self.base_is_set = true;
                }
            }
            "a" => {
                let href = attribute(attributes, "href").and_then(|href| self.absolute(&href));
                let label = ["aria-label", "title"].iter().find_map(|name| attribute(attributes, name));
                self.clean.start_link(href, label.unwrap_or_default());
            }
            "img" => {
                let alt = attribute(attributes, "alt").unwrap_or_default();
                let source = attribute(attributes, "src").and_then(|source| self.absolute(&source));
                self.clean.image(&alt, source.as_deref());
            }
            "ol" => {
                let start = attribute(attributes, "start").and_then(|start| start.trim().parse::<u32>().ok());
                self.clean.start_numbered(start.filter(|start| *start <= NUMBER_MAX));
            }
            "pre" | "listing" | "xmp" => self.clean.start_pre(language(attributes)),
            "code" | "kbd" | "samp" | "tt" => self.clean.start_code(language(attributes)),
            other => self.clean.start(other),
        }
    }

    /// A link's target as it is shown; `None` for those that lead nowhere outside the page.
    fn absolute(&self, reference: &str) -> Option<String> {
        let reference = reference.trim();
        if reference.is_empty() || reference.starts_with('#') || reference.len() > LINK_BYTES_MAX {
            return None;
        }
        let url = self.base.join(reference).ok()?;
        matches!(url.scheme(), "http" | "https" | "ftp" | "mailto" | "tel")
            .then(|| url.to_string())
            .filter(|url| url.len() <= LINK_BYTES_MAX)
    }
}

/// What the tokenizer has to know of an element whose content is not markup.
fn raw_text(name: &str, starts: bool) -> TokenSinkResult<()> {
    if !starts {
        return TokenSinkResult::Continue;
    }
    match name {
        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
        "style" | "xmp" | "iframe" | "noembed" | "noframes" => TokenSinkResult::RawData(RawKind::Rawtext),
        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
        "plaintext" => TokenSinkResult::Plaintext,
        _ => TokenSinkResult::Continue,
    }
}

fn attribute(attributes: &[Attribute], name: &str) -> Option<String> {
    attributes.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| attribute.value.to_string())
}

/// The language that a class names, as highlighters write it.
fn language(attributes: &[Attribute]) -> Option<String> {
    let classes = attribute(attributes, "class")?;
    let named = classes.split_ascii_whitespace().find_map(|class| {
        class.strip_prefix("language-").or_else(|| class.strip_prefix("lang-")).filter(|name| !name.is_empty())
    })?;
    let is_plain = named.chars().all(|character| character.is_ascii_alphanumeric() || "+-#._".contains(character));
    (is_plain && named.len() <= LANGUAGE_CHARACTERS_MAX).then(|| named.to_owned())
}

#[cfg(test)]
mod tests;
