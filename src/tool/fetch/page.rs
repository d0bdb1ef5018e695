//! A page that came, and what the model is shown of it.

use std::time::Duration;

use super::kind::{self, Kind};
use super::link::Link;
use super::markdown;
use crate::interrupt::Interrupt;
use crate::provider::cut;
use crate::tool::Outcome;
use crate::tool::target;

/// What is quoted of the page that comes with a failure.
const EXCERPT_BYTES_MAX: usize = 2048;

/// A page as it came; nothing of it is converted yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Page {
    /// Where it was found, after redirects.
    pub(super) link: Link,
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
    /// The declared size of a body that was not read.
    pub(super) unread_bytes: Option<u64>,
    /// It came from an address that is not public.
    pub(super) private: bool,
    /// How long ago it came, if it was kept.
    pub(super) age: Option<Duration>,
}

impl Page {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The result of the call for `asked`.
    pub(super) fn outcome(&self, asked: &Link, raw: bool, interrupt: &Interrupt) -> Outcome {
        let Some(text) = self.text(raw, interrupt) else { return target::interrupted() };
        let head = self.head(asked);
        if self.is_success() {
            return Outcome::ok(format!("[{head}]\n{text}"));
        }
        let text = crate::mask::apply(&text);
        let excerpt = cut(&text, EXCERPT_BYTES_MAX);
        let cut = if excerpt.len() < text.len() { "\n[...]" } else { "" };
        let outcome = Outcome::error("http_status", format!("[{head}]\n{excerpt}{cut}"));
        Outcome { detail: advice(self.status).map(str::to_owned), ..outcome }
    }

    fn head(&self, asked: &Link) -> String {
        let way = if self.link == *asked {
            asked.as_str().to_owned()
        } else {
            format!("{} redirected to {}", asked.as_str(), self.link.as_str())
        };
        let bytes = self.unread_bytes.unwrap_or(self.body.len() as u64);
        let kind = kind::shown(&self.content_type);
        let age = match self.age {
            None => String::new(),
            Some(age) if age.as_secs() < 60 => ", kept from less than a minute ago".to_owned(),
            Some(age) => format!(", kept from {} min ago", age.as_secs() / 60),
        };
        format!("{way}: status {}, {kind}, {bytes} bytes{age}", self.status)
    }

    /// `None`: interrupted.
    fn text(&self, raw: bool, interrupt: &Interrupt) -> Option<String> {
        let kind = kind::of(&self.content_type, &self.body);
        let text = match kind {
            Kind::Binary(what) => {
                let what = what.map_or_else(String::new, |what| format!(" (it is {what})"));
                return Some(format!("[not shown, as it is no text{what}]"));
            }
            Kind::Html if !raw => {
                let html = kind::decode(&self.content_type, &self.body);
                let markdown = markdown::of(&html, self.link.url(), interrupt)?;
                if markdown.is_empty() && !html.trim().is_empty() {
                    return Some(
                        "[the page holds no text of its own; scripts may write it, and raw: true shows its source]"
                            .to_owned(),
                    );
                }
                markdown
            }
            Kind::Html | Kind::Text => kind::decode(&self.content_type, &self.body),
        };
        Some(if text.is_empty() { "[empty]".to_owned() } else { text })
    }
}

/// What a status asks for that its number does not say.
fn advice(status: u16) -> Option<&'static str> {
    match status {
        401 | 403 | 407 => Some("the page wants credentials, or refuses programs; look for another source"),
        404 | 410 => Some("check the URL, or begin at a page above it"),
        408 | 429 | 500..600 => Some("the server may answer later"),
        _ => None,
    }
}
