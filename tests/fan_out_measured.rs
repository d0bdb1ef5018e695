//! What one call for several operations saves: 14 ranges of 3 files, read one call a round, as parallel calls of one
//! reply, and as one call. Not run with the rest, since it measures; to see the figures:
//!
//! `cargo test --test main fan_out_measured -- --ignored --nocapture`
//!
//! The model's server waits 300 ms before each reply and says exactly what the script holds, so the rounds are given;
//! bytes are those of the request bodies, time is that of the whole process. What a model would need of words in between
//! is not in it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::*;

const ROUND: Duration = Duration::from_millis(300);
const RANGES: usize = 14;
const LINES: usize = 40;

fn ranges() -> Vec<Value> {
    (0..RANGES)
        .map(|index| {
            let start = 1 + (index / 3) * 100;
            json!({"path": format!("{}.txt", index % 3), "start_line": start, "end_line": start + LINES - 1})
        })
        .collect()
}

struct Measured {
    rounds: usize,
    sent_bytes: usize,
    elapsed: Duration,
    /// What was found, however it was framed.
    lines_read: usize,
}

fn measured(fan_out: bool, replies: Vec<Reply>) -> Measured {
    let content: String = (1..=600).map(|number| format!("    let value_{number} = compute({number});\n")).collect();
    let config = if fan_out { "[tools.read]\nfan_out = true\n" } else { "" };
    let replies = replies.into_iter().chain([reply().text("done")]);
    let case = (0..3)
        .fold(Case::new().git(), |case, index| case.file(&format!("{index}.txt"), &content))
        .config(config)
        .script(replies.map(|reply| reply.delay_before_headers(ROUND)));
    let begun = Instant::now();
    case.run(["tell", "read them"]).exit(0);
    let elapsed = begun.elapsed();
    let requests = case.server().requests();
    let results = case.server().last_request().results();
    Measured {
        rounds: requests.len(),
        sent_bytes: requests.iter().map(|request| request.body.to_string().len()).sum(),
        elapsed,
        lines_read: results.iter().map(|(_, content)| content.matches("= compute(").count()).sum(),
    }
}

#[test]
#[ignore = "it measures, and takes its time"]
fn fourteen_ranges_of_three_files() {
    let apart = ranges().into_iter().map(|range| reply().call("read", range)).collect();
    let beside = ranges().into_iter().fold(reply(), |reply, range| reply.call("read", range));
    let together = reply().call("read", json!({"ops": ranges()}));
    let ways = [
        ("one call a round", measured(false, apart)),
        ("parallel calls", measured(false, vec![beside])),
        ("one call", measured(true, vec![together])),
    ];
    println!("{:<20} {:>6} {:>12} {:>10}", "", "rounds", "bytes sent", "ms");
    for (name, way) in &ways {
        println!("{name:<20} {:>6} {:>12} {:>10}", way.rounds, way.sent_bytes, way.elapsed.as_millis());
        assert_eq!(way.lines_read, RANGES * LINES, "{name}: the same was read");
    }
    assert_eq!(ways.each_ref().map(|(_, way)| way.rounds), [RANGES + 1, 2, 2]);
}
