//! `attini mcp serve`: attini's tools for any MCP client, behind the same gate.

use std::fs;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};

use crate::support::{Case, mark, mark_rule, repository_path, wait_until};

fn case() -> Case {
    Case::new()
        .marks()
        .file("a.txt", "alpha\n")
        .rules([mark_rule("x", true), json!({"type": "command", "allow": true, "args": ["sh", "wait.sh"]})])
}

fn line(id: u64, method: &str, params: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

fn initialize() -> String {
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    format!("{}{}\n", line(0, "initialize", &params), json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
}

fn call(id: u64, name: &str, arguments: &Value) -> String {
    line(id, "tools/call", &json!({"name": name, "arguments": arguments}))
}

/// Sends these requests, numbered from 1, and returns each one's answer; with what was on stdout beside them.
fn served(case: &Case, requests: &[String]) -> Vec<Value> {
    let mut running = case.start(["mcp", "serve"]);
    running.write_stdin(initialize());
    running.wait_stdout("\"id\":0");
    for (number, request) in (1..).zip(requests) {
        running.write_stdin(request);
        running.wait_stdout(&format!("\"id\":{number},"));
    }
    running.close_stdin();
    let outcome = running.wait().exit(0);
    outcome.stdout_text().lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(answer: &Value) -> (bool, &str) {
    let result = &answer["result"];
    (result["isError"] == true, result["content"][0]["text"].as_str().unwrap_or_default())
}

#[test]
fn calls_pass_the_same_gate() {
    let case = case();
    let requests = [
        line(1, "tools/list", &json!({})),
        call(2, "read", &json!({"path": "a.txt"})),
        call(3, "command", &json!({"argv": mark("x")})),
        call(4, "command", &json!({"argv": mark("y")})),
        call(5, "read", &json!({"path": "missing.txt"})),
        call(6, "read", &json!({"paht": "a.txt"})),
        call(7, "ask_user", &json!({"question": "?"})),
        call(8, "run_tool", &json!({"name": "command", "arguments": {"argv": mark("x")}})),
        line(9, "ping", &json!({})),
    ];
    let answers = served(&case, &requests);
    let names: Vec<&str> =
        answers[0]["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["list", "read", "search", "fetch", "patch", "command"]);
    assert!(text(&answers[1]).1.contains("alpha"), "{}", answers[1]);
    assert!(text(&answers[2]).1.contains("marked x"), "{}", answers[2]);
    let (is_error, refused) = text(&answers[3]);
    assert!(is_error && refused.starts_with("needs_approval: command would have to ask: "), "{refused}");
    assert!(refused.contains(r#"{"type":"command","allow":true,"args":["sh","mark.sh","y"]}"#), "{refused}");
    assert!(text(&answers[4]).0 && text(&answers[4]).1.starts_with("not_found: "), "{}", answers[4]);
    assert!(text(&answers[5]).0 && text(&answers[5]).1.starts_with("invalid_arguments: "), "{}", answers[5]);
    for unknown in &answers[6..8] {
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
    assert_eq!(answers[8]["result"], json!({}));
    assert_eq!(case.order(), ["x"]);
    assert!(!case.exists(".attini/sessions/main"), "no session is made");
}

#[test]
fn a_rule_that_is_added_counts_at_once() {
    let case = case();
    let mut running = case.start(["mcp", "serve"]);
    running.write_stdin(initialize());
    running.write_stdin(call(1, "command", &json!({"argv": mark("y")})));
    running.wait_stdout("needs_approval");
    case.run(["rules", "add", &mark_rule("y", true).to_string()]).exit(0);
    running.write_stdin(call(2, "command", &json!({"argv": mark("y")})));
    running.wait_stdout("marked y");
    running.close_stdin();
    running.wait().exit(0);
}

#[test]
fn one_call_carries_several_operations() {
    let case = case().file("b.txt", "beta\n").config("[tools.read]\nfan_out = true\n[tools.command]\nfan_out = true\n");
    let answers = served(
        &case,
        &[
            call(1, "read", &json!({"ops": [{"path": "a.txt"}, {"path": "none"}, {"path": "b.txt"}]})),
            call(2, "command", &json!({"ops": [{"argv": mark("x")}, {"argv": mark("y")}]})),
            call(3, "command", &json!({"ops": [{"argv": mark("x")}, {"argv": mark("x")}]})),
        ],
    );
    let (_, read) = text(&answers[0]);
    assert!(read.contains("alpha") && read.contains("beta") && read.contains("none"), "{read}");
    assert!(text(&answers[1]).1.starts_with("needs_approval: "), "{}", answers[1]);
    assert_eq!(text(&answers[2]).1.matches("marked x").count(), 2, "{}", answers[2]);
    assert_eq!(case.order(), ["x", "x"], "nothing of a call runs that would have to ask");
}

/// A command that says who it is, at once and whole, and waits for the file `go`.
const WAIT: &str = "echo $$ > said\nmv said waiting\nwhile [ ! -e go ]; do sleep 0.02; done\necho waited >> order\n";

fn waiting() -> Case {
    case().file("wait.sh", WAIT)
}

fn wait_call(id: u64) -> String {
    call(id, "command", &json!({"argv": ["sh", "wait.sh"]}))
}

fn is_gone(case: &Case) -> bool {
    let process = case.read("waiting");
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn calls_run_one_at_a_time_in_the_order_sent() {
    let case = waiting();
    let mut running = case.start(["mcp", "serve"]);
    running.write_stdin(initialize());
    running.write_stdin(wait_call(1));
    running.write_stdin(call(2, "command", &json!({"argv": mark("x")})));
    case.wait_file("waiting");
    assert_eq!(case.order(), Vec::<String>::new());
    case.write("go", "");
    running.wait_stdout("\"id\":2,");
    running.close_stdin();
    running.wait().exit(0);
    assert_eq!(case.order(), ["waited", "x"]);
}

#[test]
fn a_cancelled_call_is_ended_and_the_next_runs() {
    let case = waiting();
    let mut running = case.start(["mcp", "serve"]);
    running.write_stdin(initialize());
    running.write_stdin(wait_call(1));
    case.wait_file("waiting");
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    running.write_stdin(format!("{cancelled}\n"));
    running.write_stdin(call(2, "command", &json!({"argv": mark("x")})));
    running.wait_stdout("\"id\":2,");
    assert!(is_gone(&case));
    running.close_stdin();
    running.wait().exit(0);
    assert_eq!(case.order(), ["x"]);
}

#[test]
fn the_end_of_stdin_and_signals_end_what_runs() {
    for (signal, exit_code) in [(None, 0), (Some(2), 130), (Some(15), 143)] {
        let case = waiting();
        let mut running = case.start(["mcp", "serve"]);
        running.write_stdin(initialize());
        running.write_stdin(wait_call(1));
        case.wait_file("waiting");
        match signal {
            Some(signal) => running.signal(signal),
            None => running.close_stdin(),
        }
        let outcome = running.wait().exit(exit_code);
        for line in outcome.stdout_text().lines() {
            assert_eq!(serde_json::from_str::<Value>(line).unwrap()["jsonrpc"], "2.0");
        }
        wait_until("the command is gone", || is_gone(&case));
        assert_eq!(case.order(), Vec::<String>::new());
    }
}

#[test]
fn what_is_no_message_is_answered_as_an_error() {
    let case = case();
    let mut running = case.start(["--output", "json", "mcp", "serve"]);
    running.write_stdin(initialize());
    running.wait_stdout("\"id\":0");
    running.write_stdin("no json\n\n7\n");
    running.wait_stdout("-32700");
    running.wait_stdout("-32600");
    running.write_stdin(call(1, "read", &json!({"path": "a.txt"})));
    running.wait_stdout("alpha");
    running.close_stdin();
    let outcome = running.wait().exit(0);
    assert_eq!(outcome.stdout_text().lines().count(), 4, "{}", outcome.stdout_text());
    // Nobody was ever there.
    case.attini(["mcp", "serve"]).stdin("").run().exit(0).stdout("");
    case.attini(["mcp", "serve"]).stdin("hello\n").run().exit(0);
}

#[test]
fn a_request_that_is_wrong_is_told_why_and_the_next_is_answered() {
    let case = case();
    let mut running = case.start(["mcp", "serve"]);
    // Even before anything else was said.
    running.write_stdin(line(70, "initialize", &json!({"protocolVersion": 5})));
    running.wait_stdout("\"id\":70");
    running.write_stdin(initialize());
    running.wait_stdout("\"id\":0,");
    for (number, params) in [(1, json!({"name": 5})), (2, json!({"arguments": {}})), (3, json!([1])), (4, json!("a"))] {
        running.write_stdin(line(number, "tools/call", &params));
        running.wait_stdout(&format!("\"id\":{number},"));
    }
    running.write_stdin(line(5, "tools/unheard", &json!({})));
    running.wait_stdout("\"id\":5,");
    for id in [json!(1.5), json!(null), json!([1]), json!(true)] {
        running.write_stdin(format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})));
    }
    let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"{}\"}}\n", "x".repeat(17 * 1024 * 1024));
    running.write_stdin(long);
    running.wait_stdout("16777216 bytes");
    running.write_stdin(call(7, "read", &json!({"path": "a.txt"})));
    running.wait_stdout("alpha");
    running.close_stdin();
    let outcome = running.wait().exit(0);
    let told: Vec<(Value, Value)> = outcome
        .stdout_text()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|answer| (answer["id"].clone(), answer["error"]["code"].clone()))
        .collect();
    let none = Value::Null;
    let mut expected = vec![(json!(70), json!(-32602)), (json!(0), none.clone())];
    expected.extend((1..=4).map(|number| (json!(number), json!(-32602))));
    expected.push((json!(5), json!(-32601)));
    expected.extend((0..5).map(|_| (none.clone(), json!(-32600))));
    expected.push((json!(7), none));
    assert_eq!(told, expected, "{}", outcome.stdout_text());
}

#[test]
fn an_untrusted_workspace_is_not_served() {
    let case = case().config("[tools.read]\nrun = \"allow\"\n").untrusted();
    case.attini(["mcp", "serve"]).stdin(initialize()).run().exit(2).stdout("");
}

#[test]
fn the_sdks_own_client_is_served() {
    let case = case();
    case.run(["tools"]).exit(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_attini"))
            .args(["mcp", "serve"])
            .current_dir(case.workspace())
            .env_clear()
            .envs(case.environment())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let client = ().serve((child.stdout.take().unwrap(), child.stdin.take().unwrap())).await.unwrap();
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools.len(), 6);
        let mut texts = Vec::new();
        for (name, arguments) in [("read", json!({"path": "a.txt"})), ("command", json!({"argv": mark("y")}))] {
            let arguments = arguments.as_object().unwrap().clone();
            let result = client.call_tool(CallToolRequestParams::new(name).with_arguments(arguments)).await.unwrap();
            let result = serde_json::to_value(result).unwrap();
            texts.push((result["isError"] == true, result["content"][0]["text"].as_str().unwrap().to_owned()));
        }
        assert!(!texts[0].0 && texts[0].1.contains("alpha"), "{texts:?}");
        assert!(texts[1].0 && texts[1].1.contains("needs_approval"), "{texts:?}");
        client.cancel().await.unwrap();
        assert!(child.wait().await.unwrap().success());
    });
}

#[test]
fn the_python_sdks_client_is_served() {
    if std::env::var("ATTINI_TEST_PEERS").as_deref() != Ok("1") {
        return;
    }
    let folder = std::env::var("ATTINI_TEST_PEERS_FOLDER").expect("ATTINI_TEST_PEERS=1 needs ATTINI_TEST_PEERS_FOLDER");
    let case = case();
    let client = repository_path("fixtures/mcp/client.py").display().to_string();
    let arguments = [client.as_str(), env!("CARGO_BIN_EXE_attini"), "mcp", "serve"];
    let outcome = case.program(&format!("{folder}/venv/bin/python"), arguments).run().exit(0);
    let told: Value = serde_json::from_str(&outcome.stdout_text()).unwrap();
    assert_eq!((&told["server"], told["tools"].as_array().unwrap().len()), (&json!("attini"), 6));
    assert_eq!(told["read"][0], false);
    assert!(told["read"][1].as_str().unwrap().contains("alpha"), "{told}");
    assert_eq!(told["refused"][0], true);
    assert!(told["refused"][1].as_str().unwrap().contains("needs_approval"), "{told}");
}
