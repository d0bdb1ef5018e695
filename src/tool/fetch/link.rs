//! The URL of a call or of a redirect: what it may look like, and the host that is judged.

use std::fmt::Write as _;

use ::url::{Host, Url};

use crate::mask;
use crate::tool::Refusal;

pub(super) const URL_BYTES_MAX: usize = 8192;

/// An address of a page: http or https, with a host, without credentials and without the part behind `#`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    url: Url,
}

impl Link {
    /// Reads a URL as a browser does; the reason why it cannot be one stands in the error.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        ensure_short(text)?;
        let url = Url::parse(text.trim()).map_err(|error| format!("it is not an absolute URL ({error})"))?;
        Self::of(url)
    }

    /// The URL that a page at this one means by `reference`.
    pub(super) fn join(&self, reference: &str) -> Result<Self, String> {
        ensure_short(reference)?;
        Self::of(self.url.join(reference.trim()).map_err(|error| format!("it is not a URL ({error})"))?)
    }

    fn of(mut url: Url) -> Result<Self, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("its scheme is {}, and only http and https are fetched", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it holds a user name or password, which is never sent".to_owned());
        }
        let host = match url.host() {
            // A dot at the end names the same host, and would slip past its rules.
            Some(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
            Some(Host::Ipv4(_) | Host::Ipv6(_)) => String::new(),
            None => return Err("it names no host".to_owned()),
        };
        if url.domain().is_some_and(|name| name != host) {
            url.set_host(Some(&host)).map_err(|error| format!("its host is not a host ({error})"))?;
        }
        url.set_fragment(None);
        ensure_short(url.as_str())?;
        if mask::apply(url.as_str()) != url.as_str() {
            return Err("it holds the value of one of attini's keys".to_owned());
        }
        Ok(Self { url })
    }

    pub(super) fn as_str(&self) -> &str {
        self.url.as_str()
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn scheme(&self) -> &str {
        self.url.scheme()
    }

    /// In lower case and ASCII, an IPv6 address in brackets.
    pub(super) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether the other one leads to the same server; from http to https on their own ports counts as the same.
    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        let ports = (self.url.port_or_known_default(), other.url.port_or_known_default());
        let same = self.scheme() == other.scheme() && ports.0 == ports.1;
        let safer = (self.scheme(), other.scheme()) == ("http", "https") && ports == (Some(80), Some(443));
        self.host() == other.host() && (same || safer)
    }

    /// As it is sent. A browser leaves some characters as they are that no request line may hold.
    pub(super) fn on_the_wire(&self) -> String {
        let mut text = String::with_capacity(self.as_str().len());
        for character in self.as_str().chars() {
            match character {
                '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}' => {
                    // Writing to a string does not fail.
                    let _ = write!(text, "%{:02X}", u32::from(character));
                }
                other => text.push(other),
            }
        }
        text
    }
}

fn ensure_short(text: &str) -> Result<(), String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("it is longer than {URL_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// The URL of a call, or why it is none.
pub(super) fn of_call(text: &str) -> Result<Link, Refusal> {
    Link::parse(text).map_err(|why| Refusal::new("invalid_arguments", format!("url cannot be fetched: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_browsers_do() {
        for (text, url, host) in [
            ("https://Example.ORG", "https://example.org/", "example.org"),
            (" https://example.org./a?b#c ", "https://example.org/a?b", "example.org"),
            ("http://example.org:80/", "http://example.org/", "example.org"),
            ("http://bücher.example/ä", "http://xn--bcher-kva.example/%C3%A4", "xn--bcher-kva.example"),
            ("http://0x7f.1/", "http://127.0.0.1/", "127.0.0.1"),
            ("http://2130706433", "http://127.0.0.1/", "127.0.0.1"),
            ("http://[0:0::1]:8080/", "http://[::1]:8080/", "[::1]"),
            ("http://example.org/a\\..\\b", "http://example.org/b", "example.org"),
            ("http://１２７.0.0.1/", "http://127.0.0.1/", "127.0.0.1"),
        ] {
            let link = Link::parse(text).unwrap();
            assert_eq!((link.as_str(), link.host()), (url, host), "{text}");
        }
    }

    #[test]
    fn what_is_no_page_is_refused() {
        mask::register("TEST_LINK_KEY", "sk-link-0123456789");
        let long = format!("https://example.org/{}", "a".repeat(URL_BYTES_MAX));
        for (text, why) in [
            ("example.org", "absolute"),
            ("", "absolute"),
            ("/etc/passwd", "absolute"),
            ("file:///etc/passwd", "scheme is file"),
            ("ftp://example.org", "scheme is ftp"),
            ("javascript:alert(1)", "scheme is javascript"),
            ("https://user@example.org/", "user name"),
            ("https://:secret@example.org/", "user name"),
            ("https://", "not an absolute URL"),
            ("https://exa mple.org", "not an absolute URL"),
            ("https://example.org:99999/", "not an absolute URL"),
            ("https://example.org/?sk-link-0123456789", "keys"),
            (&long, "longer"),
        ] {
            let refusal = of_call(text).unwrap_err();
            assert!(refusal.message.contains(why) && refusal.code == "invalid_arguments", "{text}: {refusal:?}");
        }
    }

    #[test]
    fn a_place_is_a_server_and_may_become_safer() {
        let from = |text: &str| Link::parse(text).unwrap();
        for (one, other, expected) in [
            ("http://a.org/x", "http://a.org/y", true),
            ("http://a.org/x", "https://a.org/x", true),
            ("https://a.org/x", "http://a.org/x", false),
            ("http://a.org/", "http://a.org:8080/", false),
            ("http://a.org:8080/", "https://a.org/", false),
            ("http://a.org/", "http://www.a.org/", false),
        ] {
            assert_eq!(from(one).is_same_place(&from(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn everything_that_is_sent_fits_a_request_line() {
        let link = Link::parse("https://example.org/a|b^c`{d}?\"<e>|`{}\\#f").unwrap();
        let sent = link.on_the_wire();
        assert!(sent.parse::<ureq::http::Uri>().is_ok(), "{sent}");
        assert!(sent.ends_with("/a%7Cb%5Ec%60%7Bd%7D?%22%3Ce%3E%7C%60%7B%7D%5C"), "{sent}");
        let reference = link.join("../x#y").unwrap();
        assert_eq!(reference.as_str(), "https://example.org/x");
    }
}
