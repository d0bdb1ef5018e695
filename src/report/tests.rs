//! Whole streams for sequences of events, in every output mode.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::event::{CallLabel, ErrorView, PendingView};
use super::seen::Seen;
use super::*;
use crate::permission::Rule;
use crate::session::pending::Needs;
use crate::session::record::{OperationId, ResultStatus, Usage};
use crate::tool::Preview;

/// A stream that nobody reads any more.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

fn clock() -> String {
    "T".to_owned()
}

fn options(mode: Mode) -> ReportOptions {
    ReportOptions {
        mode,
        session: Some("main".to_owned()),
        command_prefix: "attini -C /w".to_owned(),
        ..ReportOptions::default()
    }
}

fn on_terminal(mode: Mode) -> ReportOptions {
    ReportOptions { stdout_is_terminal: true, stderr_is_terminal: true, ..options(mode) }
}

/// Runs `act` and returns what stdout and stderr got.
fn seen(options: ReportOptions, act: impl FnOnce(&Reporter)) -> (String, String) {
    let (stdout, stderr) = (Seen::default(), Seen::default());
    let reporter = Reporter::with_streams(options, Box::new(stdout.clone()), Box::new(stderr.clone()), clock);
    act(&reporter);
    (stdout.text(), stderr.text())
}

fn call(id: &str, name: &str) -> CallLabel {
    CallLabel { id: OperationId::parse(id), name: name.to_owned() }
}

fn started(id: &str, name: &str, summary: &str) -> Event {
    Event::ToolStarted { call: call(id, name), arguments: json!({"path": summary}), summary: summary.to_owned() }
}

fn ended(id: &str, name: &str, status: ResultStatus, code: Option<&str>, content: &str) -> Event {
    let code = code.map(str::to_owned);
    Event::ToolResult { call: call(id, name), status, code, content: content.to_owned(), duration_ms: 12 }
}

fn delta(text: &str) -> Event {
    Event::TextDelta { text: text.to_owned() }
}

fn result(status: Status) -> TurnResult {
    TurnResult {
        r#type: "result",
        status: status.name(),
        exit_code: status.code(),
        session: Some("main".to_owned()),
        turn: Some(3),
        rounds: Some(2),
        text: Some("Done.".to_owned()),
        finish_reason: Some("stop".to_owned()),
        pending: Vec::new(),
        digest: None,
        tool_calls: Some(1),
        usage: Some(Usage { input_tokens: 10, output_tokens: 5, cached_input_tokens: 0 }),
        round_usage: None,
        session_usage: None,
        error: None,
    }
}

/// A turn that reads, is retried, and answers.
fn completed_turn(reporter: &Reporter) {
    let turn = Some(3);
    reporter.tell(turn, &Event::TurnStarted { model: "openai/x".to_owned() });
    reporter.tell(turn, &Event::RoundStarted { round: 1 });
    reporter.tell(turn, &Event::ReasoningDelta { text: "Hm.".to_owned() });
    reporter.tell(turn, &delta("I look."));
    reporter.tell(turn, &started("call_1", "read", "src/x"));
    reporter.tell(turn, &ended("call_1", "read", ResultStatus::Ok, None, "1 fn\u{1b}\n"));
    reporter.tell(turn, &Event::RoundStarted { round: 2 });
    reporter.tell(turn, &delta("Do"));
    reporter.tell(turn, &Event::Retrying { attempt: 2, delay_ms: 1500, reason: "503".to_owned() });
    reporter.tell(turn, &delta("Do"));
    reporter.tell(turn, &delta("ne."));
    reporter.answer("Done.\n\n");
    reporter.finish(&result(Status::Completed));
}

const RESULT_LINE: &str = "{\"type\":\"result\",\"at\":\"T\",\"status\":\"completed\",\"exit_code\":0,\"session\":\"main\",\
                           \"turn\":3,\"rounds\":2,\"text\":\"Done.\",\"finish_reason\":\"stop\",\"pending\":[],\
                           \"digest\":null,\"tool_calls\":1,\"usage\":{\"input_tokens\":10,\"output_tokens\":5,\
                           \"cached_input_tokens\":0},\"round_usage\":null,\"session_usage\":null,\"error\":null}\n";

const PROGRESS: &str = "turn 3: openai/x\nread src/x (12 ms)\nattempt 2 in 1.5 s: 503\n";

#[test]
fn off_a_terminal_text_is_the_answer_alone() {
    assert_eq!(seen(options(Mode::Text), completed_turn), ("Done.\n".to_owned(), PROGRESS.to_owned()));
}

#[test]
fn json_is_one_object() {
    assert_eq!(seen(options(Mode::Json), completed_turn), (RESULT_LINE.to_owned(), PROGRESS.to_owned()));
}

#[test]
fn events_are_a_line_each_and_end_with_the_result() {
    let (stdout, stderr) = seen(options(Mode::Events), completed_turn);
    let common = "\"at\":\"T\",\"session\":\"main\",\"turn\":3";
    let expected = format!(
        "{{\"type\":\"turn_started\",{common},\"model\":\"openai/x\"}}
{{\"type\":\"round_started\",{common},\"round\":1}}
{{\"type\":\"reasoning_delta\",{common},\"text\":\"Hm.\"}}
{{\"type\":\"text_delta\",{common},\"text\":\"I look.\"}}
{{\"type\":\"tool_started\",{common},\"call_id\":\"call_1\",\"name\":\"read\",\"arguments\":{{\"path\":\"src/x\"}}}}
{{\"type\":\"tool_result\",{common},\"call_id\":\"call_1\",\"name\":\"read\",\"status\":\"ok\",\"code\":null,\
         \"content\":\"1 fn\\u001b\\n\",\"duration_ms\":12}}
{{\"type\":\"round_started\",{common},\"round\":2}}
{{\"type\":\"text_delta\",{common},\"text\":\"Do\"}}
{{\"type\":\"retrying\",{common},\"attempt\":2,\"delay_ms\":1500,\"reason\":\"503\"}}
{{\"type\":\"text_delta\",{common},\"text\":\"Do\"}}
{{\"type\":\"text_delta\",{common},\"text\":\"ne.\"}}
{RESULT_LINE}"
    );
    assert_eq!((stdout, stderr), (expected, PROGRESS.to_owned()));
}

#[test]
fn on_a_terminal_text_streams_and_lines_do_not_mix() {
    let (stdout, stderr) = seen(on_terminal(Mode::Text), completed_turn);
    assert_eq!(stdout, "I look.\nDo\nDone.\n");
    assert_eq!(
        stderr,
        "turn 3: openai/x\nread src/x (12 ms)\nattempt 2 in 1.5 s: 503; the reply begun above does not count\n"
    );
}

#[test]
fn on_a_terminal_an_answer_that_was_not_streamed_is_printed() {
    let (stdout, _) = seen(on_terminal(Mode::Text), |reporter| reporter.answer("Done\u{202e}.\n\n"));
    assert_eq!(stdout, "Done\\u{202e}.\n");
}

#[test]
fn verbose_tells_more_and_quiet_less() {
    let (_, stderr) = seen(ReportOptions { volume: Volume::Verbose, ..options(Mode::Text) }, completed_turn);
    assert_eq!(
        stderr,
        "turn 3: openai/x\nround 1\n  ~ Hm.\nread src/x: {\"path\":\"src/x\"}\nread src/x (12 ms)\n  | 1 \
         fn\\x1b\nround 2\nattempt 2 in 1.5 s: 503\ncompleted: 2 rounds, 1 calls, 10 tokens in, 5 out\n"
    );
    let quiet = ReportOptions { volume: Volume::Quiet, ..options(Mode::Text) };
    assert_eq!(seen(quiet, completed_turn), ("Done.\n".to_owned(), String::new()));
}

/// A turn that stops at a command that needs consent.
fn suspended_turn(reporter: &Reporter) {
    let rule = Rule::Write { allow: true, path: "src".to_owned(), turn: None };
    let preview = Preview::Command {
        argv: ["cargo", "test"].map(str::to_owned).to_vec(),
        cwd: ".".to_owned(),
        stdin: None,
        background: false,
    };
    let pending = vec![PendingView {
        id: "call_2".to_owned(),
        name: "command".to_owned(),
        summary: "cargo test".to_owned(),
        needs: Needs::Approval,
        why: Some("no rule allows it".to_owned()),
        decision: None,
        preview: Some(preview),
        grant: Some(vec![rule]),
        granted: None,
    }];
    reporter.tell(Some(3), &Event::Awaiting { pending: pending.clone(), digest: "sha256:0".to_owned() });
    reporter.finish(&TurnResult {
        pending,
        digest: Some("sha256:0".to_owned()),
        text: Some(String::new()),
        finish_reason: Some("tool_calls".to_owned()),
        ..result(Status::AwaitingApproval)
    });
}

#[test]
fn a_suspended_turn_shows_previews_and_commands_in_every_mode() {
    let expected = "\
call_2 (command): cargo test
  $ cargo test
  asks because: no rule allows it
  --grant would store: {\"type\":\"write\",\"allow\":true,\"path\":\"src\"}

To go on, type one of:
  attini -C /w approve
  attini -C /w approve call_2 --grant session
  attini -C /w deny call_2 --reason '...'
";
    let pending = "[{\"id\":\"call_2\",\"name\":\"command\",\"summary\":\"cargo test\",\"needs\":\"approval\",\"why\":\"no \
                   rule allows it\",\"decision\":null,\"preview\":{\"kind\":\"command\",\"argv\":[\"cargo\",\"test\"],\
                   \"cwd\":\".\",\"stdin\":null,\"background\":false},\"grant\":[{\"type\":\"write\",\"allow\":true,\
                   \"path\":\"src\"}]}],\"digest\":\"sha256:0\"";
    let object = format!(
        "{{\"type\":\"result\",\"at\":\"T\",\"status\":\"awaiting_approval\",\"exit_code\":10,\"session\":\"main\",\
         \"turn\":3,\"rounds\":2,\"text\":\"\",\"finish_reason\":\"tool_calls\",\"pending\":{pending},\"tool_calls\":1,\
         \"usage\":{{\"input_tokens\":10,\"output_tokens\":5,\"cached_input_tokens\":0}},\"round_usage\":null,\"session_usage\":null,\"error\":null}}\n"
    );
    let event = format!(
        "{{\"type\":\"awaiting\",\"at\":\"T\",\"session\":\"main\",\"turn\":3,\"pending\":{pending}}}\n{object}"
    );
    for (mode, stdout) in [(Mode::Text, String::new()), (Mode::Json, object), (Mode::Events, event)] {
        // A blank line sets it apart from the progress above it, where there is any.
        for (volume, above) in [(Volume::Normal, "\n"), (Volume::Quiet, "")] {
            let options = ReportOptions { volume, ..options(mode) };
            assert_eq!(seen(options, suspended_turn), (stdout.clone(), format!("{above}{expected}")), "{mode:?}");
        }
    }
}

#[test]
fn live_output_is_framed_and_never_mixes_with_lines() {
    let act = |reporter: &Reporter| {
        reporter.tell(Some(1), &started("call_1", "command", "make"));
        reporter.live(b"one\ntw");
        reporter.live(b"o \xc3");
        reporter.live(b"\xbc\x1b[2J");
        reporter.warning("slow");
        reporter.live(b"three\xff");
        reporter.tell(
            Some(1),
            &Event::ToolHeartbeat { call: call("call_1", "command"), elapsed_ms: 5_000, output_bytes: 20 },
        );
        let error = ended("call_1", "command", ResultStatus::Error, Some("exit_nonzero"), "\nexit code 2\nmore\n");
        reporter.tell(Some(1), &error);
    };
    let (stdout, stderr) = seen(options(Mode::Text), act);
    assert_eq!(stdout, "");
    assert_eq!(
        stderr,
        "command make\n  | one\n  | two ü\\x1b[2J\nwarning: slow\n  | three\\xff\ncommand make: running for 5.0 s, 20 \
         bytes of output\ncommand make: exit_nonzero (12 ms)\n  exit code 2\n"
    );
    let (_, stderr) = seen(ReportOptions { volume: Volume::Quiet, ..options(Mode::Text) }, act);
    assert_eq!(stderr, "");
}

#[test]
fn results_say_how_they_ended() {
    let (stdout, stderr) = seen(options(Mode::Events), |reporter| {
        for (id, status, code) in [
            ("call_1", ResultStatus::Denied, Some("denied")),
            ("call_2", ResultStatus::Cancelled, Some("earlier_call_denied")),
            ("call_3", ResultStatus::Unknown, None),
            ("call_4#2", ResultStatus::NotRun, None),
        ] {
            reporter.tell(None, &ended(id, "patch", status, code, "words"));
        }
    });
    assert_eq!(
        stderr,
        "patch call_1: denied\npatch call_2: cancelled (earlier_call_denied)\npatch call_3: unknown, it may have taken \
         effect\npatch call_4#2: not run\n"
    );
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["call_id"], &last["operation"], &last["turn"]), (&json!("call_4"), &json!(2), &Value::Null));
}

#[test]
fn errors_are_told_on_stderr_and_in_the_object() {
    let failure = Failure::usage("no model\n is configured \u{7}").hint("set ATTINI_MODEL");
    let stderr = "attini: no model\n   is configured \\x07\nhint: set ATTINI_MODEL\n".to_owned();
    let error = json!(ErrorView::from(&failure));
    for mode in [Mode::Text, Mode::Json, Mode::Events] {
        let (turn_stdout, turn_stderr) = seen(options(mode), |reporter| reporter.finish(&TurnResult::failed(&failure)));
        let (stdout, command_stderr) = seen(options(mode), |reporter| {
            reporter.finish_command("status", Status::Usage, Map::new(), Some(&failure));
        });
        assert_eq!((&turn_stderr, &command_stderr), (&stderr, &stderr));
        if mode == Mode::Text {
            assert_eq!((turn_stdout, stdout), (String::new(), String::new()));
            continue;
        }
        let object: Value = serde_json::from_str(&turn_stdout).unwrap();
        assert_eq!((&object["type"], &object["exit_code"], &object["error"]), (&json!("result"), &json!(2), &error));
        let object: Value = serde_json::from_str(&stdout).unwrap();
        let expected = json!({"type": "status", "at": "T", "status": "usage", "exit_code": 2, "error": error});
        assert_eq!(object, expected);
    }
    let (_, only_told) = seen(options(Mode::Json), |reporter| reporter.error(&failure));
    assert_eq!(only_told, stderr);
}

#[test]
fn hints_name_commands_as_they_have_to_be_typed() {
    let failure = Failure::usage("stopped").hint("`attini resume` goes on, `attini status` says where");
    for (prefix, expected) in [
        ("", "`attini resume` goes on, `attini status` says where"),
        ("target/attini -s ci", "`target/attini -s ci resume` goes on, `target/attini -s ci status` says where"),
    ] {
        let options = ReportOptions { command_prefix: prefix.to_owned(), ..options(Mode::Json) };
        let (stdout, stderr) = seen(options, |reporter| reporter.finish(&TurnResult::failed(&failure)));
        assert_eq!(stderr, format!("attini: stopped\nhint: {expected}\n"));
        let object: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(object["error"]["hint"], json!(failure.hint));
    }
}

#[test]
fn commands_print_text_or_one_object() {
    let act = |reporter: &Reporter| {
        reporter.print(&[Line::plain("session main\u{1b}")]);
        reporter.print_data("+a\u{1b}\r\n");
        reporter.notice(&[Line::plain("left out: /etc/x")]);
        let fields = Map::from_iter([("state".to_owned(), json!("idle\u{9b}"))]);
        reporter.finish_command("status", Status::Completed, fields, None);
    };
    let notice = "left out: /etc/x\n".to_owned();
    let text = "session main\\x1b\n+a\u{1b}\r\n".to_owned();
    assert_eq!(seen(options(Mode::Text), act), (text, notice.clone()));
    let shown = "session main\\x1b\n+a\\x1b\\r\n".to_owned();
    assert_eq!(seen(on_terminal(Mode::Text), act), (shown, notice.clone()));
    let object = "{\"type\":\"status\",\"at\":\"T\",\"status\":\"completed\",\"exit_code\":0,\"state\":\"idle\\u009b\",\
                  \"error\":null}\n";
    for mode in [Mode::Json, Mode::Events] {
        assert_eq!(seen(options(mode), act), (object.to_owned(), notice.clone()));
    }
}

#[test]
fn a_key_is_masked_even_where_pieces_cut_it() {
    crate::mask::register("TEST_REPORT_KEY", "sk-report-0123456789");
    let act = |reporter: &Reporter| {
        reporter.tell(None, &Event::RoundStarted { round: 1 });
        reporter.tell(None, &delta("a sk-report-01"));
        reporter.tell(None, &delta("23456789 b sk-rep"));
        reporter.tell(None, &started("call_1", "command", "echo sk-report-0123456789"));
        reporter.live(b"sk-report-0123");
        reporter.live(b"456789");
        reporter.tell(None, &ended("call_1", "command", ResultStatus::Error, None, "sk-report-0123456789"));
        reporter.answer("sk-report-0123456789");
    };
    for options in [options(Mode::Events), on_terminal(Mode::Text), options(Mode::Text)] {
        let (stdout, stderr) = seen(ReportOptions { volume: Volume::Verbose, ..options }, act);
        assert!(!stdout.contains("0123456789"), "{stdout}");
        assert!(!stderr.contains("0123456789"), "{stderr}");
        assert!(stdout.contains("[TEST_REPORT_KEY masked]"), "{stdout}");
    }
}

#[test]
fn closed_streams_stop_nothing() {
    for mode in [Mode::Text, Mode::Json, Mode::Events] {
        let seen = Seen::default();
        let reporter = Reporter::with_streams(options(mode), Box::new(Closed), Box::new(seen.clone()), clock);
        completed_turn(&reporter);
        suspended_turn(&reporter);
        assert!(reporter.writer().stdout_error().is_some() && reporter.writer().stderr_error().is_none());
        assert!(seen.text().contains("approve call_2"));
        let seen = Seen::default();
        let reporter = Reporter::with_streams(options(mode), Box::new(seen.clone()), Box::new(Closed), clock);
        completed_turn(&reporter);
        assert!(reporter.writer().stderr_error().is_some() && reporter.writer().stdout_error().is_none());
        assert!(seen.text().contains("Done."));
    }
}

#[test]
fn threads_do_not_tear_each_others_lines() {
    let (stdout, stderr) = seen(options(Mode::Events), |reporter| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for number in 0..50 {
                        let id = format!("call_{thread}_{number}");
                        reporter.tell(Some(1), &started(&id, "read", "x"));
                        reporter.tell(Some(1), &ended(&id, "read", ResultStatus::Ok, None, "words"));
                    }
                });
            }
        });
    });
    assert_eq!(stdout.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 400);
    assert_eq!(stderr, "read x (12 ms)\n".repeat(200));
}
