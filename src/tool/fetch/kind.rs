//! What a page is, by its media type or else by how it begins, and its text in Unicode.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

use super::sniff;

/// How far a page may name its own charset.
const PRESCAN_BYTES: usize = 1024;
const TYPE_CHARACTERS_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    /// Any other text, shown as it came.
    Text,
    /// Not shown; what it is, where the media type does not say.
    Binary(Option<&'static str>),
}

/// The media type alone, in lower case.
fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The media type as it is shown; it comes from the server.
pub(super) fn shown(content_type: &str) -> String {
    let clean: String =
        content_type.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    let clean = clean.trim();
    if clean.is_empty() {
        return "no type given".to_owned();
    }
    crate::mask::apply(clean).chars().take(TYPE_CHARACTERS_MAX).collect()
}

fn is_html(essence: &str) -> bool {
    matches!(essence, "text/html" | "application/xhtml+xml")
}

fn is_text(essence: &str) -> bool {
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || essence.ends_with("+yaml")
        || matches!(
            essence,
            "application/json"
                | "application/ld+json"
                | "application/json5"
                | "application/jsonl"
                | "application/x-ndjson"
                | "application/ndjson"
                | "application/xml"
                | "application/xml-dtd"
                | "application/javascript"
                | "application/x-javascript"
                | "application/ecmascript"
                | "application/typescript"
                | "application/yaml"
                | "application/x-yaml"
                | "application/toml"
                | "application/sql"
                | "application/graphql"
                | "application/x-sh"
                | "application/x-shellscript"
                | "application/x-httpd-php"
                | "application/x-tex"
                | "application/x-www-form-urlencoded"
                | "application/rtf"
                | "message/rfc822"
        )
}

/// Types that say nothing of what it is.
fn is_vague(essence: &str) -> bool {
    matches!(essence, "" | "application/octet-stream" | "binary/octet-stream" | "application/x-unknown" | "*/*")
}

/// Whether a body of that type is never shown, so that it need not be read.
pub(super) fn is_never_text(content_type: &str) -> bool {
    let essence = essence(content_type);
    !is_html(&essence) && !is_text(&essence) && !is_vague(&essence)
}

/// What a page is. Text that holds NUL bytes, and is not in UTF-16, is none.
pub(super) fn of(content_type: &str, body: &[u8]) -> Kind {
    let essence = essence(content_type);
    let is_wide = Encoding::for_bom(body).is_some()
        || charset_parameter(content_type).is_some_and(|encoding| !encoding.is_ascii_compatible());
    let sniffed = || match sniff::content(body) {
        sniff::Content::Text => None,
        sniff::Content::Image { media_type, .. } => Some(media_type),
        sniff::Content::Binary(what) => Some(what),
    };
    if is_html(&essence) || is_text(&essence) {
        return match sniffed().filter(|_| !is_wide) {
            Some(what) => Kind::Binary(Some(what)),
            None if is_html(&essence) => Kind::Html,
            None => Kind::Text,
        };
    }
    if !is_vague(&essence) {
        return Kind::Binary(None);
    }
    match sniffed().filter(|_| !is_wide) {
        Some(what) => Kind::Binary(Some(what)),
        None if looks_like_html(body) => Kind::Html,
        None => Kind::Text,
    }
}

fn looks_like_html(body: &[u8]) -> bool {
    let beginning = String::from_utf8_lossy(&body[..body.len().min(PRESCAN_BYTES)]);
    let beginning = beginning.trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| beginning.starts_with(tag))
}

/// The text of a page: by its byte order mark, else by the server's word, else by its own, else UTF-8 where it fits and
/// Windows-1252 where it does not. What cannot be read becomes U+FFFD.
pub(super) fn decode(content_type: &str, body: &[u8]) -> String {
    let encoding = charset_parameter(content_type)
        .or_else(|| prescan(body))
        .unwrap_or_else(|| if std::str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 });
    // A byte order mark beats it.
    let (text, _, _) = encoding.decode(body);
    text.into_owned()
}

fn charset_parameter(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(value.as_bytes()))?
    })
}

/// The charset that the beginning of a page names: `<meta charset=...>`, the same in a `content`, or that of an XML
/// declaration.
fn prescan(body: &[u8]) -> Option<&'static Encoding> {
    let beginning = String::from_utf8_lossy(&body[..body.len().min(PRESCAN_BYTES)]).to_ascii_lowercase();
    let declared = beginning.strip_prefix("<?xml").and_then(|rest| {
        let declaration = rest.split("?>").next()?;
        label_after(declaration, "encoding")
    });
    let in_meta = || {
        beginning.split("<meta").skip(1).find_map(|rest| {
            let tag = rest.split('>').next()?;
            label_after(tag, "charset")
        })
    };
    let encoding = declared.or_else(in_meta)?;
    // A page that could be read this far is not in UTF-16, whatever it says.
    Some(if encoding.is_ascii_compatible() { encoding } else { UTF_8 })
}

fn label_after(text: &str, name: &str) -> Option<&'static Encoding> {
    let (_, rest) = text.split_once(name)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let end =
        rest.find(|character: char| matches!(character, '"' | '\'' | ';' | '/' | '>') || character.is_whitespace());
    Encoding::for_label(&rest.as_bytes()[..end.unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_by_its_type_and_its_bytes() {
        let cases: &[(&str, &[u8], Kind)] = &[
            ("text/html; charset=utf-8", b"<p>x", Kind::Html),
            ("TEXT/HTML", b"", Kind::Html),
            ("application/xhtml+xml", b"<p/>", Kind::Html),
            ("text/plain", b"<html>", Kind::Text),
            ("text/plain", b"a\0b", Kind::Binary(Some("a binary file"))),
            ("text/plain; charset=utf-16le", b"a\0b\0", Kind::Text),
            ("text/plain", b"\xff\xfea\0b\0", Kind::Text),
            ("application/json", b"{}", Kind::Text),
            ("application/problem+json", b"{}", Kind::Text),
            ("image/svg+xml", b"<svg/>", Kind::Text),
            ("image/png", b"\x89PNG\r\n\x1a\n", Kind::Binary(None)),
            ("application/pdf", b"%PDF-1.7", Kind::Binary(None)),
            ("text/plain", b"%PDF-1.7", Kind::Binary(Some("a PDF document"))),
            ("", b"hello", Kind::Text),
            ("", b" <!DOCTYPE html><p>", Kind::Html),
            ("application/octet-stream", b"# readme", Kind::Text),
            ("application/octet-stream", b"\x7fELF\0", Kind::Binary(Some("an ELF program or library"))),
        ];
        for (content_type, body, expected) in cases {
            assert_eq!(of(content_type, body), *expected, "{content_type} {body:?}");
        }
        for (content_type, expected) in
            [("image/png", true), ("text/css", false), ("", false), ("application/octet-stream", false)]
        {
            assert_eq!(is_never_text(content_type), expected, "{content_type}");
        }
    }

    #[test]
    fn the_charset_is_found_where_it_stands() {
        let cases: &[(&str, &[u8], &str)] = &[
            ("text/html", "é".as_bytes(), "é"),
            ("text/html", b"\xe9", "é"),
            ("text/html; charset=iso-8859-1", b"\xe9", "é"),
            ("text/html; Charset=\"UTF-8\"", b"\xc3\xa9", "é"),
            ("text/html;charset='utf-8'", b"\xe9", "\u{fffd}"),
            ("text/html; charset=unheard-of", "é".as_bytes(), "é"),
            ("text/html; charset=shift_jis", b"\x82\xa0", "あ"),
            ("text/html; charset=windows-1251", b"\xcf", "П"),
            ("text/html; charset=windows-1251", b"\xef\xbb\xbf\xc3\xa9", "é"),
            ("text/html", b"\xff\xfee\0", "e"),
            ("text/html", b"\xfe\xff\0e", "e"),
            ("text/html", b"<meta charset=koi8-r>\xf0", "<meta charset=koi8-r>П"),
            ("text/html", b"<META Charset = 'koi8-r' >\xf0", "<META Charset = 'koi8-r' >П"),
            (
                "text/html",
                b"<meta http-equiv=Content-Type content=\"text/html; charset=euc-jp\">\xa4\xa2",
                "<meta http-equiv=Content-Type content=\"text/html; charset=euc-jp\">あ",
            ),
            ("text/html", b"<meta charset=utf-16>\xc3\xa9", "<meta charset=utf-16>é"),
            (
                "text/xml",
                b"<?xml version='1.0' encoding='iso-8859-2'?>\xb1",
                "<?xml version='1.0' encoding='iso-8859-2'?>ą",
            ),
            ("text/html; charset=koi8-r", b"<meta charset=utf-8>\xf0", "<meta charset=utf-8>П"),
        ];
        for (content_type, body, expected) in cases {
            assert_eq!(decode(content_type, body), *expected, "{content_type} {body:?}");
        }
    }

    #[test]
    fn a_type_is_shown_bounded_and_clean() {
        assert_eq!(shown(""), "no type given");
        assert_eq!(shown(" text/html;\tcharset=x\u{1b}[2J "), "text/html; charset=x [2J");
        assert_eq!(shown(&"x".repeat(1000)).len(), TYPE_CHARACTERS_MAX);
    }
}
