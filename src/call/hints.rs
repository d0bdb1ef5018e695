//! The line `next: ...` at the end of a failed result: what to do about it, from a fixed table by code.

/// What the model should do next about a result with that code; `detail` is what this very call adds.
pub fn next_line(code: &str, detail: Option<&str>) -> Option<String> {
    let advice = match code {
        "not_found" => "check the path with `list` or `search`",
        "patch_mismatch" => "`read` the lines again and give `before` exactly as they are",
        "invalid_arguments" | "invalid_pattern" => "mend the arguments and call again",
        "unknown_tool" => "call one of the tools that exist",
        "denied" | "would_ask" => "do not repeat the call; take another way, or say what you would need it for",
        "earlier_call_denied" => "think again in the light of the denial; call it again only if it still makes sense",
        "stale" => "`read` the present state, then decide again",
        "timeout" => "run something narrower",
        "limit" => "go on with fewer calls in one reply",
        "truncated_reply" => "send a shorter reply, with fewer or smaller calls",
        "not_a_file" => "use `list` for a folder",
        "not_a_folder" => "use `read` for a file",
        "outside_reach" => "use a path inside the workspace",
        "too_large" => "take a smaller part",
        "spawn_failed" => "check that the program exists and is spelt right",
        "unknown_outcome" | "interrupted" => "look at what it left behind before you repeat it",
        _ => return detail.map(|detail| format!("next: {detail}")),
    };
    Some(match detail {
        Some(detail) => format!("next: {advice}; {detail}"),
        None => format!("next: {advice}"),
    })
}
