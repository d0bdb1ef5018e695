//! The lines of a file that are most like a passage which does not occur in it, so that a model can see its mistake.
//!
//! Bounded in work and in size: it looks at so many lines, compares so much of each, and shows so many.

use std::collections::HashMap;

/// How many lines of a file are looked at.
pub const LINES_MAX: usize = 20_000;
/// How many lines of the passage are compared.
pub const PASSAGE_LINES_MAX: usize = 40;
/// How many lines are shown.
pub const SHOWN_LINES_MAX: usize = 12;
/// How much of a line is compared and shown.
pub const LINE_CHARACTERS_MAX: usize = 200;
/// How alike a place must be to be shown at all, in hundredths.
const LIKENESS_MIN: usize = 40;

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// From 1.
    pub first_line: usize,
    pub last_line: usize,
    /// The lines from the first on, numbered; fewer where there are too many.
    pub shown: String,
}

/// The place in `text` that is most like `passage`, if any is.
pub fn find(text: &[u8], passage: &str) -> Option<Nearest> {
    // Before a line is cut: part of a key would not be known for one.
    let text = &*crate::mask::apply_bytes(text);
    let lines: Vec<String> = text.split(|byte| *byte == b'\n').take(LINES_MAX).map(shortened).collect();
    let wanted: Vec<String> =
        passage.trim_end().lines().take(PASSAGE_LINES_MAX).map(|line| shortened(line.as_bytes())).collect();
    let weights: Vec<usize> = wanted.iter().map(|line| line.trim().chars().count()).collect();
    let (longest, _) = weights.iter().enumerate().rev().max_by_key(|(_, weight)| **weight)?;
    let total: usize = weights.iter().sum();
    if total == 0 {
        return None;
    }
    let mut scores = vec![0_usize; lines.len()];
    let mut offsets_of: HashMap<&str, Vec<usize>> = HashMap::new();
    for (offset, line) in wanted.iter().enumerate() {
        offsets_of.entry(line.trim()).or_default().push(offset);
    }
    for (number, line) in lines.iter().enumerate() {
        // A line speaks for each place at which it would stand where the passage has it.
        for offset in offsets_of.get(line.trim()).into_iter().flatten().filter(|offset| **offset <= number) {
            scores[number - offset] += weights[*offset] * 100;
        }
        // The longest line of the passage says most; it counts for what it is like, too.
        if longest <= number && line.trim() != wanted[longest].trim() {
            scores[number - longest] += weights[longest] * likeness(line.trim(), wanted[longest].trim());
        }
    }
    let (first, score) = scores.iter().enumerate().rev().max_by_key(|(_, score)| **score)?;
    if *score < total * LIKENESS_MIN {
        return None;
    }
    let last = (first + wanted.len()).min(lines.len());
    let numbered = lines[first..last].iter().take(SHOWN_LINES_MAX).enumerate();
    let shown: Vec<String> = numbered.map(|(index, line)| format!("{}: {line}", first + index + 1)).collect();
    Some(Nearest { first_line: first + 1, last_line: last, shown: shown.join("\n") })
}

/// From 0 (nothing in common) to 100.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the coefficient lies between 0 and 1")]
fn likeness(one: &str, other: &str) -> usize {
    (strsim::sorensen_dice(one, other) * 100.0) as usize
}

fn shortened(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A character takes at most four bytes, so this is enough of the line to cut it at a character's border.
    let line = &line[..line.len().min(LINE_CHARACTERS_MAX * 4)];
    String::from_utf8_lossy(line).chars().take(LINE_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"fn one() {\n    start(1);\n}\n\nfn two() {\r\n    finish(22);\r\n}\r\n";

    #[test]
    fn a_key_is_masked_before_its_line_is_cut() {
        crate::mask::register("TEST_NEAREST_KEY", "sk-nearest-0123456789");
        for before in 170..LINE_CHARACTERS_MAX {
            let text = format!("{}sk-nearest-0123456789\n", "x".repeat(before));
            let near = find(text.as_bytes(), &"x".repeat(before - 1)).expect("it is near");
            assert!(!near.shown.contains("sk-"), "{before}: {}", near.shown);
        }
    }

    #[test]
    fn the_likest_place_is_found() {
        let cases = [
            ("indentation", "fn two() {\n  finish(22);\n}\n", 5, 7),
            ("a typing error", "    finnish(22);\n}", 6, 7),
            ("a short line that fits everywhere", "start(2);\n}\n", 2, 3),
            ("blank lines in front", "\n\nfn two() {", 3, 5),
        ];
        for (name, passage, first, last) in cases {
            let nearest = find(TEXT, passage).expect(name);
            assert_eq!((nearest.first_line, nearest.last_line), (first, last), "{name}");
        }
        let nearest = find(TEXT, "fn two(){\n  finish(2);").expect("it is near");
        assert_eq!(nearest.shown, "5: fn two() {\n6:     finish(22);");
    }

    #[test]
    fn nothing_is_shown_where_nothing_is_like_it() {
        for passage in ["zzzz qqqq wwww", "\n", "   "] {
            assert_eq!(find(TEXT, passage), None, "{passage:?}");
        }
        assert_eq!(find(b"", "anything"), None);
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let text = format!("{}\n", "wide ".repeat(1000)).repeat(100);
        let passage = format!("{}x\n", "wide ".repeat(1000)).repeat(100);
        let nearest = find(text.as_bytes(), &passage).expect("it is near");
        assert_eq!(nearest.shown.lines().count(), SHOWN_LINES_MAX);
        assert!(nearest.shown.len() < SHOWN_LINES_MAX * (LINE_CHARACTERS_MAX + 10));
    }
}
