//! What a model is told when the text to replace does not occur exactly once.
//!
//! It is told before anyone was asked, so nothing is said about content that a reader would have to ask for.

use super::nearest;
use super::passage::{Mismatch, OCCURRENCES_MAX, with_plain_ends};
use crate::tool::Refusal;

/// How many line numbers are named.
const NAMED_LINES_MAX: usize = 10;

/// For content that may not be told: a secret, a file outside, or what an earlier patch of the same reply, which nobody
/// has approved yet, may have moved from there.
pub(super) fn untold(number: usize, shown: &str) -> Refusal {
    let what = "whose present lines may not be shown unasked; read it first, once the patches before this one have run";
    Refusal::new("patch_mismatch", format!("edit {number}: `before` does not occur exactly once in {shown}, {what}"))
}

pub(super) fn refusal(
    why: &Mismatch,
    number: usize,
    shown: &str,
    text: &[u8],
    before: &str,
    is_edited: bool,
) -> Refusal {
    let refuse = |what: String| Refusal::new("patch_mismatch", format!("edit {number}: `before` {what}"));
    let since = if is_edited { ", as the edits before this one leave it" } else { "" };
    match why {
        Mismatch::Several(lines) => {
            let named: Vec<String> = lines.iter().take(NAMED_LINES_MAX).map(ToString::to_string).collect();
            let more = if lines.len() > NAMED_LINES_MAX { ", ..." } else { "" };
            let named = format!("{}{more}", named.join(", "));
            let count = match lines.len() {
                count if count > OCCURRENCES_MAX => format!("more than {OCCURRENCES_MAX}"),
                count => count.to_string(),
            };
            refuse(format!(
                "occurs {count} times in {shown}{since}, on lines {named}; add neighbouring lines until it is the only one"
            ))
            .detail(format!("it begins on lines {named}"))
        }
        Mismatch::Nowhere => match nearest::find(&with_plain_ends(text), before) {
            Some(near) => {
                let (first, last) = (near.first_line, near.last_line);
                let place = if first == last { format!("line {first}") } else { format!("lines {first}-{last}") };
                let lines = near.shown;
                refuse(format!("does not occur in {shown}{since}; the nearest is {place}:\n{lines}"))
                    .detail(format!("the nearest text is on {place} of {shown}"))
            }
            None if std::str::from_utf8(text).is_err() => {
                refuse(format!("does not occur in {shown}{since}, and nothing like it; the file is not UTF-8 text"))
            }
            None => refuse(format!("does not occur in {shown}{since}, and nothing like it")),
        },
    }
}
