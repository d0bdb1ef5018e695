//! A pipe that nobody reads, as stdout or stderr: it holds up no time limit and no signal, and loses no record.

use std::fs::File;
use std::io::Read;

use serde_json::{Value, json};

use crate::support::{Case, Reply, Running, reply, wait_until};

/// More than a pipe and what attini keeps waiting hold, and then no end.
const NOISY: &str = "yes 0123456789012345678901234567890123456789 | head -c 4000000; exec sleep 1000";
/// As noisy, and done.
const NOISY_END: &str = "yes 0123456789012345678901234567890123456789 | head -c 4000000";

fn case(replies: impl IntoIterator<Item = Reply>) -> Case {
    let case = Case::new()
        .rules([NOISY, NOISY_END].map(|script| json!({"type": "command", "allow": true, "args": ["sh", "-c", script]})))
        .script(replies);
    case.program("mkfifo", ["fifo"]).run().exit(0);
    case
}

fn start(case: &Case, command: &str) -> (Running, File) {
    let running = case.program("sh", ["-c", command]).start();
    (running, File::open(case.path("fifo")).unwrap())
}

fn read(mut pipe: File) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text
}

/// Whether a record of the type is in the log, whose last line may still be being written.
fn has_record(case: &Case, record_type: &str) -> bool {
    let log = std::fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap_or_default();
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().any(|line| line.starts_with(&format!("{{\"type\":\"{record_type}\"")))
}

#[test]
fn a_command_ends_at_its_time_limit_though_nobody_reads_its_output() {
    let case =
        case([reply().command(&["sh", "-c", NOISY]), reply().text("done")]).config("[limits]\ncommand_timeout_s = 1\n");
    let (running, pipe) = start(&case, "exec attini tell go 2> fifo");
    wait_until("the call has its result", || has_record(&case, "tool_result"));
    assert_eq!(case.result("call_1")["code"], "timeout");
    let shown = read(pipe);
    running.wait().exit(0).stdout("done\n");
    assert!(shown.contains("bytes of output are not shown: stderr was read too slowly)"), "{shown:.2000}");
    assert!(shown.contains("timeout"), "what has a record is told, however late");
}

#[test]
fn a_command_comes_to_its_end_though_nobody_reads_its_output() {
    let case = case([reply().command(&["sh", "-c", NOISY_END]), reply().text("done")]);
    let (running, pipe) = start(&case, "exec attini tell go 2> fifo");
    wait_until("the call has its result", || has_record(&case, "tool_result"));
    assert_eq!(case.result("call_1")["status"], "ok");
    read(pipe);
    running.wait().exit(0).stdout("done\n");
}

#[test]
fn the_first_signal_ends_a_turn_whose_streams_nobody_reads() {
    for redirect in ["tell go 2> fifo", "--output events tell go > fifo"] {
        for number in [1, 2, 15] {
            let long = "x".repeat(200_000);
            let case = case([reply().text(&long).command(&["sh", "-c", NOISY])]).with_unplayed_replies();
            let (running, pipe) = start(&case, &format!("exec attini --verbose {redirect}"));
            case.server().wait_requests(1);
            if !redirect.contains("events") {
                wait_until("the command is begun", || has_record(&case, "tool_start"));
            }
            running.signal(number);
            running.wait().exit(128 + number);
            drop(pipe);
        }
    }
}

#[test]
fn the_turns_time_limit_ends_it_though_nobody_reads() {
    for redirect in ["2> fifo", "> fifo"] {
        let case = case([reply().text(&"x".repeat(200_000)).command(&["sh", "-c", NOISY])]).with_unplayed_replies();
        let (running, pipe) =
            start(&case, &format!("exec attini --verbose --output events tell --max-time 2 go {redirect}"));
        running.wait().exit(14);
        drop(pipe);
        assert_eq!(case.records().last().unwrap()["limit"], "time");
    }
}

#[test]
fn a_turn_that_is_over_keeps_its_exit_code_when_its_result_is_not_read() {
    let answer = "x".repeat(200_000);
    let case = case([reply().text(&answer)]);
    let (running, pipe) = start(&case, "exec attini --output json tell go > fifo");
    wait_until("the turn is over", || has_record(&case, "turn_end"));
    running.signal(2);
    running.wait().exit(0);
    drop(pipe);
}

#[test]
fn a_reader_that_goes_on_reading_gets_every_event() {
    let case = case([reply().text(&"word ".repeat(40_000)).command(&["sh", "-c", NOISY_END]), reply().text("done")]);
    let (running, pipe) = start(&case, "exec attini --quiet --output events tell go > fifo");
    case.server().wait_requests(1);
    let text = read(pipe);
    running.wait().exit(0);
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a whole event")).collect();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("tool_started"), of("tool_result"), of("result")), (1, 1, 1));
    let deltas = events.iter().filter(|event| event["type"] == "text_delta").filter_map(|event| event["text"].as_str());
    assert_eq!(deltas.map(str::len).sum::<usize>(), 200_000 + "done".len());
}
