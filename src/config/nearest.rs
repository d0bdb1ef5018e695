//! The known name that a misspelt one most likely meant.
//!
//! It only ever goes into messages; nothing is corrected by it.

/// Below this likeness (0 to 1) a suggestion would be a guess.
const LIKENESS_MIN: f64 = 0.6;

/// A longer word was not meant as any of ours, and comparing costs the product of the lengths.
const WORD_BYTES_MAX: usize = 256;

/// The candidate most like `word`, if any is like it at all; of equals the first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let word = word.to_lowercase();
    let mut best = None;
    let mut best_likeness = LIKENESS_MIN;
    for candidate in candidates {
        let likeness = strsim::normalized_damerau_levenshtein(&word, &candidate.to_lowercase());
        if likeness > best_likeness || (best.is_none() && likeness >= best_likeness) {
            best = Some(candidate);
            best_likeness = likeness;
        }
    }
    best
}

/// `; did you mean X?`, or what the known names are.
pub fn suggestion(word: &str, known: &[&str], what: &str) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!("; the {what} are {}", known.join(", ")),
    }
}

/// `WHAT is X`, or `WHATs are X, Y`: names found near a wrong one, for the model.
pub fn named(what: &str, names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [only] => format!("{what} is {only}"),
        several => format!("{what}s are {}", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likest_name_is_found_or_none() {
        let known = ["rounds", "tool_calls", "result_bytes"];
        for (word, expected) in [
            ("round", Some("rounds")),
            ("toolcalls", Some("tool_calls")),
            ("Result_Byte", Some("result_bytes")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest(&"rounds".repeat(1000), known), None);
    }
}
