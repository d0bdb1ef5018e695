//! Any mixture of records of a conversation, with damaged lines between them, and a pending.json: the same properties
//! as for any bytes, but deep into the invariants. Each byte of the input stands for a line.

#![no_main]

use std::sync::LazyLock;

use attini_fuzz::{Place, try_log};
use libfuzzer_sys::fuzz_target;

static PLACE: LazyLock<Place> = LazyLock::new(Place::new);
static LINES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(lines);

fuzz_target!(|choices: &[u8]| {
    let Some((first, choices)) = choices.split_first() else { return };
    // A log that does not begin as one is soon done with.
    let mut log = if *first < 240 { LINES[0].clone() } else { Vec::new() };
    for choice in choices.iter().take(40) {
        log.extend_from_slice(&LINES[usize::from(*choice) % LINES.len()]);
    }
    // The last line may lack its newline.
    if first % 4 == 1 && log.ends_with(b"\n") {
        log.pop();
    }
    let pending: Option<String> = match first / 4 % 4 {
        1 => Some(pending("null")),
        2 => Some(pending("\"approve\"")),
        3 => Some(pending("\"deny\"").replace("\"turn\":1", "\"turn\":2")),
        _ => None,
    };
    try_log(&PLACE, &log, pending.as_deref().map(str::as_bytes));
});

fn pending(decision: &str) -> String {
    let call = format!(
        r#"{{"id":"a","operation":null,"name":"command","arguments":{{}},"needs":"approval","decision":{decision}}}"#
    );
    let calls = serde_json::from_str(&format!("[{call}]")).expect("it is JSON");
    let calls: Vec<attini::session::pending::PendingCall> = serde_json::from_value(calls).expect("it is a call");
    let digest = attini::session::pending::PendingFile::digest_of(&calls);
    format!(
        r#"{{"format":1,"session":"main","turn":1,"at":"T","status":"awaiting_approval","digest":"{digest}","calls":[{call}]}}"#
    )
}

fn lines() -> Vec<Vec<u8>> {
    let mut lines: Vec<String> = vec![
        r#"{"type":"session","format":1,"id":"0","at":"T","attini":"0"}"#.to_owned(),
        r#"{"type":"session","format":2,"id":"0","at":"T","attini":"0"}"#.to_owned(),
        r#"{"type":"later","at":"T"}"#.to_owned(),
        r#"{"type":"notice","at":"T","turn":1,"outcome":"undone","text":"x"}"#.to_owned(),
        String::new(),
        "garbage".to_owned(),
        "\0\0\0".to_owned(),
        "{\"type\":\"tool_result\",\"call_id\":\"a\"".to_owned(),
    ];
    let usage = r#"{"input_tokens":1,"output_tokens":1,"cached_input_tokens":0}"#;
    for turn in [1, 2] {
        lines.push(format!(r#"{{"type":"user","turn":{turn},"at":"T","text":"go","settings":{{}}}}"#));
        for status in ["completed", "interrupted", "awaiting_approval"] {
            lines.push(format!(
                r#"{{"type":"turn_end","turn":{turn},"at":"T","status":"{status}","elapsed_ms":1,"rounds":1,"tool_calls":1,"usage":{usage}}}"#
            ));
        }
        for (round, ids) in [(1, "a"), (1, "ab"), (2, "c"), (3, "")] {
            let ops = r#"{\"ops\":[{},{}]}"#;
            let calls: Vec<String> = ids
                .chars()
                .map(|id| {
                    let arguments = if id == 'b' { ops } else { "{}" };
                    format!(r#"{{"id":"{id}","name":"command","arguments":"{arguments}"}}"#)
                })
                .collect();
            lines.push(format!(
                r#"{{"type":"assistant","turn":{turn},"round":{round},"at":"T","provider":"p","model":"m","text":"x","tool_calls":[{}],"finish_reason":"stop"}}"#,
                calls.join(",")
            ));
        }
    }
    for (id, operations) in [("a", &["null"][..]), ("b", &["1", "2"]), ("c", &["null"])] {
        for operation in operations {
            lines.push(format!(
                r#"{{"type":"decision","call_id":"{id}","operation":{operation},"decision":"allow","auto_decided_by":{{"scope":"user"}}}}"#
            ));
            lines.push(format!(r#"{{"type":"tool_start","call_id":"{id}","operation":{operation},"at":"T"}}"#));
            if *operation != "null" {
                lines.push(format!(
                    r#"{{"type":"operation_result","call_id":"{id}","operation":{operation},"at":"T","status":"ok","content":"y"}}"#
                ));
            }
        }
        for status in ["ok", "cancelled"] {
            lines.push(format!(
                r#"{{"type":"tool_result","call_id":"{id}","at":"T","status":"{status}","content":"y"}}"#
            ));
        }
    }
    lines.push(format!("\0\0{}", lines[lines.len() - 1]));
    let mut lines: Vec<Vec<u8>> = lines.into_iter().map(|line| (line + "\n").into_bytes()).collect();
    // Half a character, and a record whose newline is lost.
    lines.push(b"{\"type\":\"later\",\"text\":\"\xc3\n".to_vec());
    lines.push(b"{\"type\":\"later\"}".to_vec());
    lines
}
