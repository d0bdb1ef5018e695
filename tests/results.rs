//! What a result looks like to the model, shape by shape: `fixtures/results/TOOL.txt` holds the calls of one reply and
//! what each was answered, so that a change of any word is seen. `ATTINI_BLESS=1` writes the answers anew.
//!
//! ```text
//! === what is shown
//! read {"path": "text.txt"}
//! --- ok
//! text.txt: 1 line
//! ```

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use crate::support::*;

/// Every result is recorded with its text; a shape longer than this is a mistake of the fixture.
const RESULT_BYTES: usize = 2048;

struct Shape {
    title: String,
    name: String,
    arguments: String,
}

fn fixture_path(file: &str) -> std::path::PathBuf {
    repository_path("fixtures/results").join(format!("{file}.txt"))
}

fn shapes(file: &str) -> Vec<Shape> {
    let text = fs::read_to_string(fixture_path(file)).unwrap();
    let mut shapes = Vec::new();
    for section in text.split("=== ").skip(1) {
        let mut lines = section.lines();
        let title = lines.next().unwrap().to_owned();
        let (name, arguments) = lines.next().unwrap().split_once(' ').unwrap();
        shapes.push(Shape { title, name: name.to_owned(), arguments: arguments.to_owned() });
    }
    shapes
}

/// What was answered, in the fixture's form: status, code and the text, control characters escaped.
fn answer(case: &Case, pages: &Pages, result: &Value) -> String {
    let content = result["content"].as_str().unwrap();
    assert!(content.len() < 3 * RESULT_BYTES, "{content}");
    let content = case.redactor().text(content).replace(&pages.address(), "{pages}");
    let visible = |character: char| match character {
        '\n' | '\t' => character.to_string(),
        other if other.is_control() => other.escape_default().to_string(),
        other => other.to_string(),
    };
    let content: String = without_time(&content).chars().map(visible).collect();
    let code = result["code"].as_str().map(|code| format!(" {code}")).unwrap_or_default();
    let file = result["output_file"].as_str().map(|file| format!("\noutput_file: {file}")).unwrap_or_default();
    let kind = |attachment: &Value| format!("\nattachment: {}", attachment["media_type"].as_str().unwrap());
    let attachments: String = result["attachments"].as_array().into_iter().flatten().map(kind).collect();
    format!("--- {}{code}\n{content}{file}{attachments}", result["status"].as_str().unwrap())
}

/// How long something ran until it was interrupted differs in each run.
fn without_time(content: &str) -> String {
    let Some(rest) = content.strip_prefix("interrupted after ") else { return content.to_owned() };
    let (_, rest) = rest.split_once(" s ").expect("the time is in seconds");
    format!("interrupted after [SECONDS] s {rest}")
}

fn case() -> Case {
    const DOT: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\0\0\0\nIDATx\x9cc`\0\0\0\x02\0\x01H\xaf\xa4q\0\0\0\0IEND\xaeB`\x82";
    let long: String = (1..=1000).map(|line| format!("line {line}\n")).collect();
    let mut case = Case::new()
        .git()
        .config(&format!(
            "[limits]\nresult_bytes = {RESULT_BYTES}\ncommand_timeout_s = 1\n[tools.list]\nfan_out = false\n"
        ))
        .file("text.txt", "first line\nsecond line with a needle\nthird line\n")
        .file("open.txt", "no newline at the end")
        .file("empty.txt", "")
        .file("dos.txt", "one\r\ntwo\r\n")
        .file("mixed.txt", "one\r\ntwo\n")
        .file("mark.txt", "\u{feff}marked\n")
        .file("latin.txt", b"caf\xe9\n")
        .file("data.bin", b"binary\0data\n")
        .file("dot.png", DOT)
        .file("long.txt", long)
        .file("wide.txt", "w".repeat(10_000))
        .file(".env", "TOKEN=needle\n")
        .file(".gitignore", "ignored.txt\n")
        .file("ignored.txt", "needle\n")
        .file("src/main.rs", "fn main() {}\n// a.c( and a needle\n")
        .file("src/deep/lib.rs", "// nothing\n")
        .rules([
            json!({"type": "command", "allow": true, "args_prefix": []}),
            json!({"type": "write", "allow": true, "path": "."}),
            json!({"type": "fetch", "allow": true, "host": "127.0.0.1"}),
            json!({"type": "command", "allow": false, "args_prefix": ["rm"]}),
            json!({"type": "read", "allow": false, "path": "../secret"}),
        ]);
    for number in 1..=5 {
        case = case.file(&format!("many/{number}.txt"), "");
    }
    fs::create_dir(case.path("empty")).unwrap();
    case.program("mkfifo", ["pipe"]).run().exit(0);
    case
}

/// Plays one file's calls in one reply, and holds what each was answered against the file.
fn play(file: &str, case: &Case) {
    let pages = Pages::start();
    let shapes = shapes(file);
    let mut calls = reply();
    for (index, shape) in shapes.iter().enumerate() {
        let arguments = shape.arguments.replace("{pages}", &pages.address());
        calls = calls.raw_call(&format!("{file}_{index}"), &shape.name, &arguments);
    }
    case.server().script([calls, reply().text("done")]);
    // What asks is approved; the calls behind it run then.
    if case.run(["tell", "go"]).exit_any([0, 10]) == 10 {
        case.run(["approve"]).exit(0);
    }
    let mut text = String::new();
    for (index, shape) in shapes.iter().enumerate() {
        let result = case.result(&format!("{file}_{index}"));
        let answer = answer(case, &pages, &result);
        writeln!(text, "=== {}\n{} {}\n{answer}", shape.title, shape.name, shape.arguments).unwrap();
    }
    expect_fixture(file, &text);
}

fn expect_fixture(file: &str, text: &str) {
    if std::env::var_os("ATTINI_BLESS").is_some_and(|value| value == "1") {
        fs::write(fixture_path(file), text).unwrap();
        return;
    }
    assert_text_eq(&format!("fixtures/results/{file}.txt"), &fs::read_to_string(fixture_path(file)).unwrap(), text);
}

#[test]
fn results_of_list() {
    play("list", &case());
}

#[test]
fn results_of_read() {
    play("read", &case());
}

#[test]
fn results_of_search() {
    play("search", &case());
}

#[test]
fn results_of_patch() {
    play("patch", &case());
}

#[test]
fn results_of_command() {
    play("command", &case());
}

#[test]
fn results_of_fetch() {
    play("fetch", &case());
}

#[test]
fn results_of_calls_that_are_not_as_they_should_be() {
    play("intake", &case());
}

#[test]
fn results_of_calls_with_several_operations() {
    let fan_out = "[limits]\nresult_bytes = 2048\n[tools.read]\nfan_out = true\n\
                   [tools.command.fan_out]\nconcurrency = 1\non_error = \"stop\"\n";
    play("fan_out", &case().config(fan_out));
}

/// Results that more than one call decides: each scene's text, built by the test, stands in `ends.txt`.
struct Ends(String);

impl Ends {
    fn add(&mut self, title: &str, case: &Case, id: &str) {
        let pages = Pages::start();
        writeln!(self.0, "=== {title}\n{}", answer(case, &pages, &case.result(id))).unwrap();
    }
}

fn command(argv: &[&str]) -> Value {
    json!({"argv": argv})
}

fn edit() -> Value {
    json!({"edits": [{"path": "new.txt", "content": "made\n"}]})
}

#[test]
fn results_of_calls_that_did_not_run_to_their_end() {
    let mut ends = Ends(String::new());
    decided_by_a_person(&mut ends);
    decided_by_settings(&mut ends);
    cut_short(&mut ends);
    expect_fixture("ends", &ends.0);
}

fn decided_by_a_person(ends: &mut Ends) {
    let asked = || reply().call("command", command(&["touch", "a"]));
    let case = Case::new().script([asked(), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["deny", "--reason", "not on a Friday"]).exit(0);
    ends.add("denied with a reason", &case, "call_1");

    let allowed = json!({"type": "command", "allow": true, "args": ["true"]});
    let case = Case::new().file("a.txt", "one\n").rules([allowed]).script([
        asked().call("command", command(&["true"])).call("read", json!({"path": "a.txt"})),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(10);
    case.run(["deny"]).exit(0);
    ends.add("denied without one", &case, "call_1");
    ends.add("a side effect behind it", &case, "call_2");
    ends.add("a read behind it", &case, "call_3");

    let case = Case::new().script([reply().call("patch", edit()), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.write("new.txt", "someone else's\n");
    case.run(["approve"]).exit(0);
    ends.add("approved, and no longer what was shown", &case, "call_1");

    let case = Case::new().script([asked(), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.run(["tell", "never mind"]).exit(0);
    ends.add("dropped by a new prompt", &case, "call_1");
}

fn decided_by_settings(ends: &mut Ends) {
    let asked = || reply().call("command", command(&["touch", "a"]));
    let case = Case::new().script([asked(), reply().text("done")]);
    case.run(["tell", "--on-ask", "deny", "go"]).exit(0);
    ends.add("nobody there to ask", &case, "call_1");

    let case = Case::new().script([asked().call("list", json!({}))]);
    case.run(["tell", "--on-ask", "fail", "go"]).exit(10);
    ends.add("nobody to be asked", &case, "call_1");
    ends.add("a read behind it, then", &case, "call_2");

    let case = Case::new().script([asked(), reply().text("done")]);
    case.run(["tell", "--read-only", "go"]).exit(0);
    ends.add("a tool that is not offered", &case, "call_1");

    let case = Case::new().config("[limits]\ncalls_per_reply = 1\n");
    case.server().script([reply().call("list", json!({})).call("list", json!({"depth": 2})), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    ends.add("more calls than a reply may hold", &case, "call_2");

    let case = Case::new();
    let cut = reply().raw_call("cut", "patch", r#"{"edits": [{"path": "a"#).finish("length");
    case.server().script([cut, reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    ends.add("a reply cut at its limit", &case, "cut");
}

fn cut_short(ends: &mut Ends) {
    let rule = json!({"type": "command", "allow": true, "args_prefix": ["sh"]});
    let argv = ["sh", "-c", "echo begun; touch started; exec sleep 600"];
    for (title, signal) in [("interrupted", 2), ("killed", 9)] {
        let case = Case::new().rules([rule.clone()]);
        let calls = reply().call("command", command(&argv)).call("list", json!({}));
        case.server().script([calls, reply().text("done")]);
        let running = case.start(["tell", "go"]);
        case.wait_file("started");
        running.wait_stderr("begun");
        running.signal(signal);
        if signal == 9 {
            let _ = running.wait().killed_by(9);
        } else {
            running.wait().exit(130);
        }
        case.run(["resume"]).exit(0);
        ends.add(&format!("{title} while it ran"), &case, "call_1");
        ends.add(&format!("{title} before it began"), &case, "call_2");
    }
}
