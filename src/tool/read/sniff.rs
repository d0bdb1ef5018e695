//! What a file is, told by how it begins; its name says nothing.

/// How far NUL bytes are looked for: what holds one there is no text.
const NUL_SEARCH_BYTES: usize = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) enum Content {
    /// Text, or what can be shown as such.
    Text,
    Image {
        media_type: &'static str,
        extension: &'static str,
    },
    /// Anything else, named for the reader.
    Binary(&'static str),
}

const SIGNATURES: [(&[u8], &str); 12] = [
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive, or a document or package made of one"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\0asm", "a WebAssembly module"),
    (b"\xff\xfe", "text in UTF-16, little end first"),
    (b"\xfe\xff", "text in UTF-16, big end first"),
];

/// `beginning` is the whole file, or at least [`NUL_SEARCH_BYTES`] of it.
pub(in crate::tool) fn content(beginning: &[u8]) -> Content {
    if let Some(image) = image(beginning) {
        return image;
    }
    if !beginning.starts_with(b"%PDF-") && !beginning[..beginning.len().min(NUL_SEARCH_BYTES)].contains(&0) {
        // Compressed data without a NUL is told by its signature alone, if it is no valid text.
        let signature = named(beginning).filter(|_| std::str::from_utf8(text_part(beginning)).is_err());
        return signature.map_or(Content::Text, Content::Binary);
    }
    Content::Binary(named(beginning).unwrap_or("a binary file"))
}

fn named(beginning: &[u8]) -> Option<&'static str> {
    SIGNATURES.iter().find(|(signature, _)| beginning.starts_with(signature)).map(|(_, what)| *what)
}

/// The first bytes alone, without a character that is cut at the end.
fn text_part(beginning: &[u8]) -> &[u8] {
    let part = &beginning[..beginning.len().min(NUL_SEARCH_BYTES)];
    match std::str::from_utf8(part) {
        Err(error) if error.error_len().is_none() => &part[..error.valid_up_to()],
        _ => part,
    }
}

fn image(beginning: &[u8]) -> Option<Content> {
    let (media_type, extension) = if beginning.starts_with(b"\x89PNG\r\n\x1a\n") {
        ("image/png", "png")
    } else if beginning.starts_with(b"\xff\xd8\xff") {
        ("image/jpeg", "jpg")
    } else if beginning.starts_with(b"GIF87a") || beginning.starts_with(b"GIF89a") {
        ("image/gif", "gif")
    } else if beginning.starts_with(b"RIFF") && beginning.get(8..12) == Some(b"WEBP") {
        ("image/webp", "webp")
    } else {
        return None;
    };
    Some(Content::Image { media_type, extension })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_by_how_it_begins() {
        let cases: &[(&[u8], Content)] = &[
            (b"", Content::Text),
            (b"fn main() {}\n", Content::Text),
            ("\u{feff}h\u{e9}".as_bytes(), Content::Text),
            (b"caf\xe9 in Latin-1\n", Content::Text),
            (b"BZh is how a note may begin", Content::Text),
            (b"\x89PNG\r\n\x1a\n....", Content::Image { media_type: "image/png", extension: "png" }),
            (b"\xff\xd8\xff\xe0", Content::Image { media_type: "image/jpeg", extension: "jpg" }),
            (b"GIF89a..", Content::Image { media_type: "image/gif", extension: "gif" }),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Content::Image { media_type: "image/webp", extension: "webp" }),
            (b"RIFF\x10\0\0\0WAVEfmt ", Content::Binary("a binary file")),
            (b"%PDF-1.7\n", Content::Binary("a PDF document")),
            (b"\x7fELF\x02\x01\0", Content::Binary("an ELF program or library")),
            (b"\x1f\x8b\x08\xff\xfe", Content::Binary("gzip data")),
            (b"\xff\xfeh\0i\0", Content::Binary("text in UTF-16, little end first")),
            (b"a\0b", Content::Binary("a binary file")),
        ];
        for (bytes, expected) in cases {
            assert_eq!(content(bytes), *expected, "{}", bytes.escape_ascii());
        }
    }
}
