//! Text that arrives in pieces of any size, made safe as it comes.
//!
//! A piece may end inside a key that has to be masked, or inside a character; what is uncertain is held back until the
//! next piece, or the end, tells.

use std::fmt::Write as _;

use crate::mask;

/// Masks pieces of text. The result is not escaped.
#[derive(Default)]
pub(super) struct TextStream {
    // Made with the first piece, so that it knows every key registered by then.
    mask: Option<mask::Stream>,
}

impl TextStream {
    /// What is certain of this piece and those before; may be empty.
    pub(super) fn push(&mut self, piece: &str) -> String {
        let bytes = self.mask.get_or_insert_default().push(piece.as_bytes());
        // The cut lies where a key begins, so at the border of a character.
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What was held back. The next piece begins a new stream.
    pub(super) fn finish(&mut self) -> String {
        let held = self.mask.take().map(|mut mask| mask.finish()).unwrap_or_default();
        String::from_utf8_lossy(&held).into_owned()
    }
}

/// Masks and decodes pieces of a child's output. Bytes that are no UTF-8 become `\xff`; the rest is not escaped.
#[derive(Default)]
pub(super) struct ByteStream {
    mask: Option<mask::Stream>,
    /// The beginning of a character, at most three bytes.
    begun: Vec<u8>,
}

impl ByteStream {
    pub(super) fn push(&mut self, piece: &[u8]) -> String {
        let bytes = self.mask.get_or_insert_default().push(piece);
        self.decode(&bytes)
    }

    pub(super) fn finish(&mut self) -> String {
        let held = self.mask.take().map(|mut mask| mask.finish()).unwrap_or_default();
        let mut text = self.decode(&held);
        push_bytes(&mut text, &std::mem::take(&mut self.begun));
        text
    }

    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let mut text = String::with_capacity(all.len());
        let mut rest = all.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(length) = error.error_len() else {
                        self.begun = after.to_vec();
                        return text;
                    };
                    push_bytes(&mut text, &after[..length]);
                    rest = &after[length..];
                }
            }
        }
    }
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_decode_the_same_however_they_are_cut() {
        let bytes = b"gr\xc3\xbc\xc3\x9fe \xff\xe6\x97\xa5 \xf0\x9f\xa6\x80 \xe6\x97";
        let expected = "grüße \\xff日 🦀 \\xe6\\x97";
        for size in 1..=bytes.len() {
            let mut stream = ByteStream::default();
            let mut text = String::new();
            for piece in bytes.chunks(size) {
                text.push_str(&stream.push(piece));
            }
            text.push_str(&stream.finish());
            assert_eq!(text, expected, "pieces of {size} bytes");
        }
    }

    #[test]
    fn a_key_cut_in_two_is_masked() {
        mask::register("TEST_STREAM_KEY", "sk-stream-0123456789");
        let mut text = TextStream::default();
        assert_eq!(text.push("so: sk-stream-01"), "so: ");
        assert_eq!(text.push("23456789."), "[TEST_STREAM_KEY masked].");
        assert_eq!(text.push("sk-stream-0"), "");
        assert_eq!(text.finish(), "sk-stream-0");
        let mut bytes = ByteStream::default();
        assert_eq!(bytes.push(b"sk-stream-01234"), "");
        assert_eq!(bytes.push(b"56789\n"), "[TEST_STREAM_KEY masked]\n");
    }
}
