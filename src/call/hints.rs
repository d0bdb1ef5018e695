//! The line `next: ...` at the end of a failed result: what to do about it, from a fixed table by code.

/// For every code that a failed result can have.
const ADVICE: [(&str, &str); 41] = [
    ("cancelled", "call it again if it is still needed"),
    ("denied", "do not repeat the call; take another way, or say what you would need it for"),
    ("earlier_call_denied", "think again in the light of the denial; call it again only if it still makes sense"),
    ("exists", "choose another path, or change the file that is there"),
    ("exit_nonzero", "read what it put out, mend the cause, then run it again"),
    ("interrupted", "look at what it left behind before you repeat it"),
    ("invalid_arguments", "mend the arguments and call again"),
    ("invalid_pattern", "mend the pattern and call again"),
    ("invalid_schema", "do without this tool; its own description is at fault"),
    ("io_error", "look at the path with `list`; repeat it only if the cause is gone"),
    ("is_a_folder", "name a file"),
    ("limit", "go on with fewer calls in one reply"),
    ("link_loop", "name the file itself, or mend the links"),
    ("no_change", "check that the change is not there already"),
    ("not_a_file", "use `list` for a folder"),
    ("not_a_folder", "mend the path; a file holds no others"),
    ("not_found", "check the path with `list` or `search`"),
    ("not_run", "mend what failed before it, then call it again"),
    ("outside_reach", "use a path inside the workspace"),
    ("panic", "take another way; the tool itself is at fault"),
    ("patch_mismatch", "`read` the lines again and give `before` exactly as they are"),
    ("schema_returned", "call it again with arguments that fit the schema"),
    ("signal", "read what it put out before you run it again"),
    ("spawn_failed", "nothing was run; mend the command and call again"),
    ("stale", "`read` the present state, then decide again"),
    ("status_lost", "look at what it left behind before you repeat it"),
    ("timeout", "run something narrower"),
    ("too_large", "take a smaller part"),
    ("turn_limit", "make no more calls; end the turn with what is done and what is left to do"),
    ("truncated_reply", "send a shorter reply, with fewer or smaller calls"),
    ("unknown_outcome", "look at what it left behind before you repeat it"),
    ("wrong_encoding", "convert the file with a command first, or give its whole `content`"),
    ("unknown_tool", "call one of the tools that exist"),
    ("would_ask", "nobody can be asked now; go on without what asks, or say what you would need it for"),
    ("http_status", "check the address, or take another source"),
    ("redirect_refused", "ask for the address it leads to, or take another source"),
    ("fetch_failed", "check the address; try again later if the cause may pass"),
    ("private_address", "do not repeat the call; take a public source"),
    ("tool_error", "read what the tool says, then mend the call or take another way"),
    ("server_failed", "do without this server's tools, or say what it lacks"),
    ("input_required", "ask the person for it in your answer, or take another way"),
];

/// What the model should do next about a result with that code; `detail` is what this very call adds.
pub fn next_line(code: &str, detail: Option<&str>) -> Option<String> {
    let advice = ADVICE.iter().find(|(known, _)| *known == code).map(|(_, advice)| *advice);
    match (advice, detail) {
        (Some(advice), Some(detail)) => Some(format!("next: {advice}; {detail}")),
        (Some(advice), None) => Some(format!("next: {advice}")),
        (None, Some(detail)) => Some(format!("next: {detail}")),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Every string literal that stands where a failed result gets its code.
    fn codes_in(folder: &Path, found: &mut Vec<String>) {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                codes_in(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !["hints.rs", "fake.rs"].iter().any(|own| path.ends_with(own))
            {
                let text = fs_err::read_to_string(&path).unwrap();
                for maker in [
                    "Refusal::new(",
                    "Outcome::error(",
                    "ResultStatus::Error,",
                    "ResultStatus::Cancelled,",
                    "CallLimit::Turn => (",
                ] {
                    for (position, _) in text.match_indices(maker) {
                        let behind = text[position + maker.len()..].trim_start();
                        let literal = behind.strip_prefix('"').and_then(|literal| literal.split('"').next());
                        let is_code =
                            |literal: &&str| literal.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                        found.extend(literal.filter(is_code).map(str::to_owned));
                    }
                }
            }
        }
    }

    #[test]
    fn every_code_has_its_advice() {
        let mut codes = Vec::new();
        codes_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut codes);
        assert!(codes.len() > 20, "the codes are no longer found: {codes:?}");
        let unknown: Vec<&String> = codes.iter().filter(|code| next_line(code, None).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn what_the_call_adds_stands_behind_the_advice() {
        assert_eq!(next_line("timeout", None).as_deref(), Some("next: run something narrower"));
        assert_eq!(
            next_line("unknown_tool", Some("the nearest name is read")).as_deref(),
            Some("next: call one of the tools that exist; the nearest name is read")
        );
        assert_eq!(next_line("new", Some("x")).as_deref(), Some("next: x"));
        assert_eq!(next_line("new", None), None);
    }
}
