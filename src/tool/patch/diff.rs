//! A patch as a unified diff with git's headers, so that `git apply` takes it.
//!
//! Lines end at LF alone, as git sees them. There are two forms. The exact one holds the very bytes of every file, text
//! or not, and applies. The readable one is text for a person and a model: bytes that are no UTF-8 are shown as `\xNN`,
//! a binary file is only named, and such a part says that it is for reading.

use std::fmt::Write;

use similar::{Algorithm, DiffOp, DiffTag};

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;
/// Stands in a readable part whose lines are not what the files hold.
const NOT_EXACT: &str = "For reading: bytes that are no UTF-8 are shown as \\xNN. `attini diff` has them as they are.";
/// How far into a file git looks for a NUL byte.
const BINARY_PROBE_BYTES: usize = 8000;

/// One file's part of a diff.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub path: &'a str,
    pub before: Option<&'a [u8]>,
    pub after: Option<&'a [u8]>,
    /// For a file that was moved: where it was, and what it held.
    pub moved_from: Option<(&'a str, &'a [u8])>,
    /// Whether its owner may execute it, before and after.
    pub executable: [bool; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form<'a> {
    Exact,
    Readable {
        /// Why the content is not to be shown.
        withheld: Option<&'a str>,
    },
}

/// The diff of one file in the readable form: headers and hunks, each line ended.
pub fn readable(part: &Part<'_>, withheld: Option<&str>) -> String {
    let bytes = of(part, Form::Readable { withheld });
    // All that goes into this form is text.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The diff of one file in the exact form.
pub fn exact(part: &Part<'_>) -> Vec<u8> {
    of(part, Form::Exact)
}

fn of(part: &Part<'_>, form: Form<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    let old_path = part.moved_from.map_or(part.path, |(path, _)| path);
    let (old_name, new_name) = (quoted("a/", old_path), quoted("b/", part.path));
    let before = part.moved_from.map(|(_, bytes)| bytes).or(part.before);
    line(&mut text, &format!("diff --git {old_name} {new_name}"));
    modes(&mut text, part, before.is_some());
    if part.moved_from.is_some() {
        if before == part.after {
            line(&mut text, "similarity index 100%");
        }
        line(&mut text, &format!("rename from {}", quoted("", old_path)));
        line(&mut text, &format!("rename to {}", quoted("", part.path)));
    }
    let old_name = if before.is_some() { &old_name } else { "/dev/null" };
    let new_name = if part.after.is_some() { &new_name } else { "/dev/null" };
    let (before, after) = (before.unwrap_or_default(), part.after.unwrap_or_default());
    if before == after {
        return text;
    }
    if let Form::Readable { withheld } = form {
        if let Some(why) = withheld {
            line(&mut text, &format!("Files {old_name} and {new_name} differ ({why})"));
            return text;
        }
        if is_binary(before) || is_binary(after) {
            line(&mut text, &format!("Binary files {old_name} and {new_name} differ"));
            return text;
        }
        if [before, after].iter().any(|bytes| std::str::from_utf8(bytes).is_err()) {
            line(&mut text, NOT_EXACT);
        }
    }
    // A tab ends a name with a space in it, as git writes it.
    let end_of = |name: &str| if name.contains(' ') && !name.starts_with('"') { "\t" } else { "" };
    line(&mut text, &format!("--- {old_name}{}", end_of(old_name)));
    line(&mut text, &format!("+++ {new_name}{}", end_of(new_name)));
    hunks(&mut text, before, after, form);
    text
}

/// The lines about the file's mode, as far as they say something.
fn modes(text: &mut Vec<u8>, part: &Part<'_>, is_there_before: bool) {
    let [before, after] = part.executable.map(|executable| if executable { "100755" } else { "100644" });
    if !is_there_before {
        line(text, &format!("new file mode {after}"));
    } else if part.after.is_none() {
        line(text, &format!("deleted file mode {before}"));
    } else if before != after {
        line(text, &format!("old mode {before}"));
        line(text, &format!("new mode {after}"));
    }
}

/// The parts of a diff, each from its `diff --git` line on. No line of a file begins like that in a diff.
pub fn parts(diff: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = diff;
    while !rest.is_empty() {
        let end = rest.find("\ndiff --git ").map_or(rest.len(), |at| at + 1);
        found.push(&rest[..end]);
        rest = &rest[end..];
    }
    found
}

fn line(text: &mut Vec<u8>, line: &str) {
    text.extend_from_slice(line.as_bytes());
    text.push(b'\n');
}

/// Text with NUL bytes is shown whole: it applies, and a person has to see what is written.
fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(BINARY_PROBE_BYTES)].contains(&0) && std::str::from_utf8(bytes).is_err()
}

fn hunks(text: &mut Vec<u8>, before: &[u8], after: &[u8], form: Form<'_>) {
    let old: Vec<&[u8]> = before.split_inclusive(|byte| *byte == b'\n').collect();
    let new: Vec<&[u8]> = after.split_inclusive(|byte| *byte == b'\n').collect();
    let operations = similar::capture_diff_slices(Algorithm::Myers, &old, &new);
    for group in similar::group_diff_ops(operations, CONTEXT_LINES) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        line(text, &format!("@@ -{} +{} @@", range(&old_range), range(&new_range)));
        for operation in &group {
            hunk_lines(text, operation, [&old, &new], form);
        }
    }
}

fn hunk_lines(text: &mut Vec<u8>, operation: &DiffOp, [old, new]: [&[&[u8]]; 2], form: Form<'_>) {
    let (tag, old_range, new_range) = operation.as_tag_tuple();
    match tag {
        DiffTag::Equal => put_lines(text, b' ', &old[old_range], form),
        DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
            put_lines(text, b'-', &old[old_range], form);
            put_lines(text, b'+', &new[new_range], form);
        }
    }
}

fn put_lines(text: &mut Vec<u8>, sign: u8, lines: &[&[u8]], form: Form<'_>) {
    for bytes in lines {
        text.push(sign);
        match form {
            Form::Exact => text.extend_from_slice(bytes),
            Form::Readable { .. } => push_readable(text, bytes),
        }
        if !bytes.ends_with(b"\n") {
            text.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

fn push_readable(text: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        for byte in chunk.invalid() {
            text.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
}

/// Lines as a hunk's header counts them, from 1; an empty range names the line before it.
fn range(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

/// A path as git writes it: in C quotes where it holds a control character, a quote, a backslash or a byte above ASCII.
fn quoted(prefix: &str, path: &str) -> String {
    let is_plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if path.bytes().all(is_plain) {
        return format!("{prefix}{path}");
    }
    let mut text = format!("\"{prefix}");
    for byte in path.bytes() {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            b'\r' => text.push_str("\\r"),
            byte if is_plain(byte) => text.push(char::from(byte)),
            byte => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}
