//! Which encodings a passage cannot be replaced in: those whose characters are more than a byte, so that the bytes of
//! ASCII text occur where the text does not.

/// How much of a file is looked at where it has no mark.
const SAMPLE_BYTES: usize = 4096;
/// Of three characters of unmarked text so many must be ASCII for it to be known: short strings that end in NUL look a
/// little like it.
const ASCII_OF_THREE_MIN: usize = 2;

/// UTF-16 or UTF-32, by its name, if the bytes look like that; `None` for everything else, whatever it is.
pub(super) fn wide(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        _ if bytes.len() % 2 == 1 => return None,
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => return Some("UTF-32"),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => return Some("UTF-16"),
        _ => {}
    }
    let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    let is_text = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    let ascii_at =
        |high: usize, low: usize| sample.chunks_exact(2).filter(|pair| pair[high] == 0 && is_text(pair[low])).count();
    let pairs = sample.len() / 2;
    let has_no_nul_pair = !sample.chunks_exact(2).any(|pair| pair == [0, 0]);
    let ascii = ascii_at(0, 1).max(ascii_at(1, 0));
    let is_utf_16 = pairs > 1 && has_no_nul_pair && ascii * 3 >= pairs * ASCII_OF_THREE_MIN;
    is_utf_16.then_some("UTF-16")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf_16(text: &str, mark: bool, big: bool) -> Vec<u8> {
        let mark = if mark { "\u{feff}" } else { "" };
        let units: Vec<u16> = mark.encode_utf16().chain(text.encode_utf16()).collect();
        units.iter().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    }

    #[test]
    fn wide_text_is_known_and_nothing_else_is() {
        for text in ["alpha beta\r\n", "na\u{ef}ve \u{2192} caf\u{e9}", "smile = \u{1f600}\n"] {
            for (mark, big) in [(true, true), (true, false), (false, true), (false, false)] {
                assert_eq!(wide(&utf_16(text, mark, big)), Some("UTF-16"), "{text} {mark} {big}");
            }
        }
        let utf_32: Vec<u8> = "\u{feff}ab".chars().flat_map(|character| u32::from(character).to_le_bytes()).collect();
        assert_eq!(wide(&utf_32), Some("UTF-32"));
        for other in [
            b"".as_slice(),
            b"alpha beta",
            b"a\0",
            b"caf\xe9 au lait",
            b"\xff\xfe\n",
            b"\0\0\0\0",
            b"\x7fELF\x02\x01\0\0\0\0",
            "\u{feff}marked".as_bytes(),
            b"one\0two\0three\0",
        ] {
            assert_eq!(wide(other), None, "{other:?}");
        }
    }
}
