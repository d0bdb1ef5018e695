//! Whole texts against what is expected of them; long ones are kept in `tests/expected/` and rewritten by
//! `ATTINI_BLESS=1`.

use std::fs;

use super::case::repository_path;

/// Compares with `tests/expected/NAME`. With `ATTINI_BLESS=1` the file is written instead.
#[track_caller]
pub(crate) fn expect_file(name: &str, text: &str) {
    let path = repository_path("tests/expected").join(name);
    if std::env::var_os("ATTINI_BLESS").is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().expect("a file under tests/expected")).unwrap();
        fs::write(&path, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error} (ATTINI_BLESS=1 writes it); the text is\n{text}", path.display()));
    assert_text_eq(&format!("tests/expected/{name}"), &expected, text);
}

/// Fails with a diff where the texts differ.
#[track_caller]
pub(crate) fn assert_text_eq(what: &str, expected: &str, actual: &str) {
    if expected == actual {
        return;
    }
    let difference = similar::TextDiff::from_lines(expected, actual);
    let difference = difference.unified_diff().header("expected", "actual").to_string();
    panic!("{what} is not as expected:\n{difference}\nexpected {expected:?}\nactual   {actual:?}");
}
