//! The first stage, intake: the calls of a complete reply get ids that are unique for good, and are bounded.
//!
//! Names and arguments stay as the model wrote them, whether they make sense or not; the next stage says so.

use std::collections::{HashMap, HashSet};

use crate::session::history::History;
use crate::session::record::ToolCall;

/// The longest id that every service takes.
const ID_BYTES_MAX: usize = 64;
/// The longest name that is kept.
const NAME_BYTES_MAX: usize = 256;
/// The longest arguments that are kept of one call; what is cut no longer parses, and is answered so.
pub const ARGUMENTS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How many calls of one reply are kept at all, the same as a provider takes; `calls_per_reply` answers those past the
/// turn's own limit.
pub const CALLS_MAX: usize = crate::provider::assemble::CALLS_MAX;

/// Takes in the calls of a reply that follows `history`, the latest turn's `round`.
pub fn take_in(calls: Vec<ToolCall>, history: &History, round: u64) -> Vec<ToolCall> {
    let mut taken: Vec<ToolCall> = Vec::new();
    // By the id that the model gave, the places of the calls that were taken under it.
    let mut sent: HashMap<String, Vec<usize>> = HashMap::new();
    for mut call in calls {
        bound(&mut call.name, NAME_BYTES_MAX);
        bound(&mut call.arguments, ARGUMENTS_BYTES_MAX);
        let same_id = sent.get(&call.id).filter(|_| !call.id.is_empty());
        if let Some(&index) = same_id.into_iter().flatten().find(|&&index| is_one_call(&taken[index], &call)) {
            if call.arguments.len() > taken[index].arguments.len() {
                taken[index].arguments = call.arguments;
            }
            continue;
        }
        if taken.len() == CALLS_MAX {
            break;
        }
        sent.entry(call.id.clone()).or_default().push(taken.len());
        taken.push(call);
    }
    let mut used: HashSet<String> = HashSet::new();
    // The ids that a summary covers are not known any more, and none of them may come again.
    if history.summary().is_some() {
        for (index, call) in taken.iter_mut().enumerate() {
            call.id = format!("call_{}_{round}_{}", history.turn(), index + 1);
        }
        return taken;
    }
    let mut number = history.call_count();
    for call in &mut taken {
        number += 1;
        if is_reserved(&call.id) || !is_valid_id(&call.id) || history.has_call(&call.id) || used.contains(&call.id) {
            call.id = fresh_id(&mut number, history, &used);
        }
        used.insert(call.id.clone());
    }
    taken
}

/// Whether the second of two calls with one id is the first sent again, whole or in part.
fn is_one_call(first: &ToolCall, second: &ToolCall) -> bool {
    let same_name = first.name == second.name || first.name.is_empty() || second.name.is_empty();
    same_name && (first.arguments.starts_with(&second.arguments) || second.arguments.starts_with(&first.arguments))
}

/// Whether a call may keep this id. People type ids after a command, so none may begin as an option does; `#` separates
/// an operation's number.
pub fn is_valid_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len())
        && !id.starts_with('-')
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Whether it looks like an id of a reply behind a summary: `call_TURN_ROUND_N`.
fn is_reserved(id: &str) -> bool {
    let numbers = id.strip_prefix("call_").unwrap_or_default();
    numbers.split('_').count() == 3 && numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// `call_N`, short because people type it; N counts the calls of the session.
fn fresh_id(number: &mut usize, history: &History, used: &HashSet<String>) -> String {
    loop {
        let id = format!("call_{number}");
        if !history.has_call(&id) && !used.contains(&id) {
            return id;
        }
        *number += 1;
    }
}

fn bound(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None }
    }

    fn ids_and_arguments(calls: Vec<ToolCall>) -> Vec<(String, String)> {
        take_in(calls, &History::default(), 1).into_iter().map(|call| (call.id, call.arguments)).collect()
    }

    #[test]
    fn ids_become_unique_and_calls_sent_twice_become_one() {
        let long = "x".repeat(65);
        for (calls, expected) in [
            (vec![call("a", "read", "{}")], vec![("a", "{}")]),
            (vec![call("", "read", "{}"), call("", "read", "{}")], vec![("call_1", "{}"), ("call_2", "{}")]),
            (vec![call("a b", "read", "1"), call(&long, "read", "2")], vec![("call_1", "1"), ("call_2", "2")]),
            (
                vec![
                    call("-q", "read", "1"),
                    call("--", "read", "2"),
                    call("a#2", "read", "3"),
                    call("a-q", "read", "4"),
                ],
                vec![("call_1", "1"), ("call_2", "2"), ("call_3", "3"), ("a-q", "4")],
            ),
            (vec![call("a", "read", "{}"), call("a", "read", "{}")], vec![("a", "{}")]),
            (vec![call("a", "read", ""), call("a", "read", "{\"x\":1}")], vec![("a", "{\"x\":1}")]),
            (vec![call("a", "read", "{\"x\":1}"), call("a", "read", "{\"x\"")], vec![("a", "{\"x\":1}")]),
            (
                vec![call("a", "read", "{\"x\":1}"), call("a", "read", "{\"x\":2}")],
                vec![("a", "{\"x\":1}"), ("call_2", "{\"x\":2}")],
            ),
            (
                vec![call("a", "read", "{\"x\":1}"), call("a", "read", "{\"x\":2}"), call("a", "read", "{\"x\":2}")],
                vec![("a", "{\"x\":1}"), ("call_2", "{\"x\":2}")],
            ),
            (vec![call("a", "read", "{}"), call("a", "list", "{}")], vec![("a", "{}"), ("call_2", "{}")]),
            (vec![call("call_2", "read", "1"), call("", "read", "2")], vec![("call_2", "1"), ("call_3", "2")]),
            (
                vec![call("call_1_2_3", "read", "1"), call("call_1_2", "read", "2"), call("call_1_2_x", "read", "3")],
                vec![("call_1", "1"), ("call_1_2", "2"), ("call_1_2_x", "3")],
            ),
        ] {
            let expected: Vec<(String, String)> =
                expected.into_iter().map(|(id, arguments)| (id.to_owned(), arguments.to_owned())).collect();
            assert_eq!(ids_and_arguments(calls), expected);
        }
    }
}
