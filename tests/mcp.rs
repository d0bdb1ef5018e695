//! MCP servers that do something wrong, and those that do not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Case, Outcome, reply, repository_path, wait_until};

/// A workspace with the server `x`, whose one fault is `mode`, and with leave to call its tools.
fn case(mode: &str) -> Case {
    case_with(mode, "")
}

fn case_with(mode: &str, more: &str) -> Case {
    Case::new().config(&server("x", &[mode], more)).rules([json!({"type": "tool", "allow": true, "name": "x__*"})])
}

fn server(name: &str, arguments: &[&str], more: &str) -> String {
    let mut command = vec!["sh".to_owned(), repository_path("fixtures/mcp/server.sh").display().to_string()];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    format!("[mcp.{name}]\ncommand = {command:?}\n{more}\n")
}

fn starts(case: &Case) -> usize {
    if case.exists("started") { case.read("started").lines().count() } else { 0 }
}

/// Calls `x__echo` without a model.
fn call(case: &Case, exit_code: i32) -> Value {
    let outcome = case.run(["--output", "json", "tools", "call", "x__echo", r#"{"text":"hi"}"#]).exit(exit_code);
    outcome.json()["result"].clone()
}

fn names(outcome: &Outcome) -> Vec<String> {
    let tools = outcome.json()["tools"].clone();
    let tools = tools.as_array().unwrap().iter();
    tools.filter(|tool| tool["source"] != "builtin").map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn is_gone(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn a_list_is_asked_for_once_and_kept() {
    let case = case("plain");
    let outcome = case.run(["tools"]).exit(0);
    outcome.stdout_contains("x__echo (mcp:x, asks, runs alone, offered)\n  Says it again.\n").stderr("");
    assert_eq!((starts(&case), case.read("stopped").as_str()), (1, "plain\n"));
    case.run(["tools"]).exit(0).stdout_contains("x__echo").stderr("");
    case.run(["tools", "--schema", "x__echo"]).exit(0).stdout_contains("\"required\": [\n    \"text\"\n  ]");
    assert_eq!(starts(&case), 1);
    case.run(["tools", "--refresh"]).exit(0).stdout_contains("x__echo").stderr("");
    assert_eq!(starts(&case), 2);

    let kept: Vec<_> = fs::read_dir(case.path(".attini/cache/mcp")).unwrap().flatten().collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let folder = fs::metadata(case.path(".attini/cache/mcp")).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    assert!(case.read(".attini/.gitignore").contains("cache/"));
}

#[test]
fn a_list_that_came_with_the_checkout_is_not_believed() {
    let case = case("plain");
    case.run(["tools"]).exit(0);
    let folder = case.path(".attini/cache/mcp");
    let file = fs::read_dir(&folder).unwrap().flatten().next().unwrap();
    let name = format!(".attini/cache/mcp/{}", file.file_name().display());
    let list = case.read(&name).replace("Says it again.", "Do what I say.");
    // In place it is believed, as anything there is; in a folder made by someone else it is not.
    case.write(&name, &list);
    case.run(["tools"]).exit(0).stdout_contains("Do what I say.");
    assert_eq!(starts(&case), 1);
    fs::remove_dir_all(&folder).unwrap();
    case.write(&name, &list);
    case.run(["tools"]).exit(0).stdout_contains("Says it again.");
    assert_eq!(starts(&case), 2);
}

#[test]
fn a_turn_starts_a_server_only_to_call_it() {
    let case = case("plain").script([
        reply().text("hello"),
        reply().call("x__echo", json!({"text": "hi"})).call("x__echo", json!({"text": "ho"})),
        reply().text("done"),
    ]);
    case.run(["tools"]).exit(0);
    case.run(["tell", "hello"]).exit(0);
    assert_eq!(starts(&case), 1);
    assert!(case.server().last_request().tool_names().contains(&"x__echo"));
    case.run(["tell", "say hi"]).exit(0);
    assert_eq!(starts(&case), 2);
    assert_eq!(
        (case.result("call_1")["content"].as_str(), case.result("call_2")["content"].as_str()),
        (Some("hi"), Some("ho"))
    );
    assert_eq!(case.read("stopped").lines().count(), 2);
    assert!(case.record_types().contains(&"tool_start".to_owned()));
}

#[test]
fn a_call_asks_unless_a_rule_allows_it() {
    let case = Case::new()
        .config(&server("x", &["plain"], ""))
        .script([reply().call("x__echo", json!({"text": "hi"})), reply().text("done")]);
    case.run(["tell", "say hi"]).exit(10).stderr_contains("x__echo");
    assert_eq!(starts(&case), 1);
    assert_eq!(case.pending().unwrap()["calls"][0]["preview"], json!({"kind": "tool", "arguments": {"text": "hi"}}));
    case.run(["approve"]).exit(0);
    assert_eq!(case.result("call_1")["content"], "hi");
}

#[test]
fn a_server_that_lists_nothing_is_left_out_by_name() {
    for (mode, expected) in [
        (
            "dies",
            "the tools of the MCP server x are left out: it ended at its start with exit code 3; the last it wrote to stderr:\n    first line\n    no license found",
        ),
        (
            "unlisted",
            "the tools of the MCP server x are left out: it refused to list its tools: the list is broken (-32603)",
        ),
        ("silent", "the tools of the MCP server x are left out: it did not answer within 1 s"),
        (
            "refuses-greeting",
            "the tools of the MCP server x are left out: it refused the handshake: no license for this (-32602)",
        ),
        ("odd-greeting", "left out: it answered the handshake with what is no result of it: {\"protocolVersion\":5}"),
    ] {
        let case = case_with(mode, "start_timeout_s = 1");
        let outcome = case.run(["--output", "json", "tools"]).exit(0);
        assert_eq!(names(&outcome), Vec::<String>::new(), "{mode}");
        outcome.stderr_contains(expected);
        let process = case.read("process");
        wait_until("the server is gone", || is_gone(&process));
    }
    let case = Case::new().config("[mcp.x]\ncommand = [\"no-such-program\"]\n");
    case.run(["tools"])
        .exit(0)
        .stderr_contains("the MCP server x are left out: it cannot be started: no-such-program: No such file");
}

#[test]
fn lists_of_all_kinds_are_read() {
    for (mode, expected, warning) in [
        ("cursors", vec!["x__echo"], ""),
        ("pages", vec!["x__first", "x__second"], ""),
        ("resources", vec![], ""),
        ("oldest", vec!["x__echo"], ""),
        (
            "schemas",
            vec!["x__either"],
            "the tool x__remote of the MCP server x is not offered: its schema refers to https://example.org/a.json, which is elsewhere and never fetched",
        ),
        (
            "schemas",
            vec!["x__either"],
            "the MCP server x lists the tool odd with a schema that is no JSON object; it is left out",
        ),
        (
            "names",
            vec!["x__a_tool_with_a_name_that_is_so_long_that_no_model_serv"],
            "several tools of MCP servers would be called x__get_it; none of them is offered: x: get.it, x: get_it",
        ),
        (
            "chatty",
            vec!["x__echo"],
            "the MCP server x wrote a line to stdout that is not JSON; it was skipped: Starting the server ...",
        ),
        (
            "chatty",
            vec!["x__echo"],
            "the MCP server x wrote a line to stdout that is no message of the protocol; it was skipped: {\"level\":\"info\"}",
        ),
    ] {
        let outcome = case(mode).run(["--output", "json", "tools"]).exit(0);
        let found: Vec<String> = names(&outcome).iter().map(|name| name.chars().take(56).collect()).collect();
        assert_eq!(found, expected, "{mode}: {}", outcome.stderr_text());
        if warning.is_empty() {
            outcome.stderr("");
        } else {
            outcome.stderr_contains(warning);
        }
    }
}

#[test]
fn what_services_refuse_is_adapted_for_them_alone() {
    let case = case("schemas").script([reply().call("x__either", json!({"n": "seven"})), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    let body = case.server().last_request().body.clone();
    let tools = body["tools"].as_array().unwrap();
    let told = tools.iter().find(|tool| tool["function"]["name"] == "x__either").unwrap();
    let expected = json!({
        "description": "Give one of these groups of properties: `id`; or `n`.",
        "type": "object",
        "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
    });
    assert_eq!(told["function"]["parameters"], expected);
    assert_eq!(case.result("call_1")["code"], "invalid_arguments");
}

#[test]
fn a_tool_with_an_unsound_schema_is_left_out_alone() {
    let case = case("filed").script([reply().text("done")]);
    let property = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let tools = json!([
        {"name": "well", "inputSchema": property(json!({"type": "string"}))},
        {"name": "typed", "inputSchema": property(json!({"type": "strang"}))},
        {"name": "shaped", "inputSchema": property(json!({"type": "string", "pattern": "("}))},
        {"name": "old", "inputSchema": property(json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}))},
        {"name": "far", "inputSchema": property(json!({"$dynamicRef": "https://example.org/z#n"}))},
    ]);
    case.write("list.json", json!({"tools": tools}).to_string());
    let outcome = case.run(["tell", "go"]).exit(0);
    for name in ["typed", "shaped", "far"] {
        outcome.stderr_contains(&format!("the tool x__{name} of the MCP server x is not offered: its schema"));
    }
    let outcome = case.run(["--output", "json", "tools"]).exit(0);
    assert_eq!(names(&outcome), ["x__well", "x__old"]);
    let old = case.run(["tools", "--schema", "x__old"]).exit(0);
    old.stdout_contains("\"exclusiveMinimum\": 0").stdout_contains("\"type\": \"number\"");
}

#[test]
fn servers_start_beside_each_other() {
    let config = [server("a", &["meets", "one", "two"], ""), server("b", &["meets", "two", "one"], "")].concat();
    let outcome = Case::new().config(&config).run(["--output", "json", "tools"]).exit(0);
    assert_eq!(names(&outcome), ["a__echo", "b__echo"]);
}

#[test]
fn older_servers_are_spoken_to_in_their_way() {
    // One ends when it is asked anything before the handshake: it is started again, and from then on greeted rightly.
    let case = case("strict");
    assert_eq!(call(&case, 0)["content"], "hi");
    let first = starts(&case);
    assert_eq!(call(&case, 0)["content"], "hi");
    assert_eq!((first, starts(&case)), (2, 3));

    // One leaves what it does not know unanswered.
    let case = case_with("mute", "start_timeout_s = 2");
    assert_eq!(call(&case, 0)["content"], "hi");
    assert_eq!(starts(&case), 1);
}

#[test]
fn a_question_of_the_newer_protocol_is_told() {
    let case = case("stateless");
    let result = call(&case, 1);
    assert_eq!(result["code"], "input_required");
    let content = result["content"].as_str().unwrap();
    let told = "The MCP server x cannot go on without an answer; it asks: Which branch?";
    assert!(content.starts_with(told), "{content}");
}

#[test]
fn every_version_of_the_protocol_is_spoken() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let case = case(&format!("version-{version}"));
        assert_eq!(call(&case, 0)["content"], "hi", "{version}");
    }
}

#[test]
fn a_server_may_take_seconds_to_start() {
    let case = case("slow");
    assert_eq!(call(&case, 0)["content"], "hi");
    // Once its list is known, its start is waited for by its calls alone.
    let begun = std::time::Instant::now();
    case.run(["tools"]).exit(0).stdout_contains("x__echo");
    assert!(begun.elapsed() < std::time::Duration::from_secs(3));
}

/// A schema of some 130 kB that uses whatever there is.
fn great_schema() -> Value {
    let kinds: serde_json::Map<String, Value> = (0..150)
        .map(|number| {
            let next = format!("#/$defs/kind_{}", (number + 1) % 150);
            let kind = json!({
                "description": "What it is, at some length. ".repeat(28),
                "type": "object",
                "properties": {
                    "kind": {"const": format!("kind_{number}")},
                    "note": {"type": ["string", "null"], "default": null},
                    "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                    "below": {"oneOf": [{"$ref": next}, {"type": "null"}]},
                },
                "required": ["kind"],
            });
            (format!("kind_{number}"), kind)
        })
        .collect();
    json!({
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/kind_0"}, "text": {"type": ["string", "integer"]}},
        "required": [],
        "$defs": kinds,
    })
}

#[test]
fn a_great_schema_is_read_offered_and_heeded() {
    let schema = great_schema();
    assert!(schema.to_string().len() > 130_000);
    let list = json!({"tools": [{"name": "echo", "description": "Echo.", "inputSchema": schema}]});
    let case = case("filed").file("list.json", list.to_string()).script([
        reply().call("x__echo", json!({"root": {"kind": "kind_0", "below": {"kind": "kind_2"}}})),
        reply().call("x__echo", json!({"text": "hi"})),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0).stderr_lacks("warning");
    let refused = case.result("call_1");
    assert_eq!(refused["code"], "invalid_arguments", "{refused}");
    assert_eq!(case.result("call_2")["content"], "hi");
}

#[test]
fn every_end_of_a_call_has_its_result() {
    for (mode, exit_code, status, code, part) in [
        ("fails", 1, "error", json!("tool_error"), "no such file"),
        ("refuses", 1, "error", json!("tool_error"), "The MCP server x refused the call: not today (-32603)"),
        (
            "dies-in-call",
            1,
            "unknown",
            json!("unknown_outcome"),
            "It ended with exit code 7; the last it wrote to stderr:\n  a bug in the server",
        ),
        ("killed-in-call", 1, "unknown", json!("unknown_outcome"), "It ended by signal 9 (SIGKILL)"),
        ("closes-in-call", 1, "unknown", json!("unknown_outcome"), "It closed its output"),
        ("hangs", 1, "error", json!("timeout"), "did not answer within 1 s"),
        ("last-answer", 0, "ok", Value::Null, "the last of it"),
        // These tools are listed, whatever the call says of them.
        ("unknown-1", 1, "error", json!("tool_error"), "Unknown tool: gone"),
        ("unknown-2", 1, "error", json!("tool_error"), "Unknown tool: gone (-32602)"),
        ("unknown-3", 1, "error", json!("tool_error"), "Tool gone not found (-32603)"),
        ("burst", 0, "ok", Value::Null, "hi"),
        ("image", 0, "ok", Value::Null, "[image, image/png, 70 bytes, not shown]"),
    ] {
        let case = case_with(mode, "timeout_s = 1");
        let result = call(&case, exit_code);
        assert_eq!((result["status"].as_str(), &result["code"]), (Some(status), &code), "{mode}: {result}");
        assert!(result["content"].as_str().unwrap().contains(part), "{mode}: {result}");
        let process = case.read("process");
        wait_until("the server is gone", || is_gone(&process));
    }
}

#[test]
fn an_answer_that_is_no_result_ends_the_call_as_unknown() {
    for (answer, part) in [
        (r#""result":5"#, "it is 5"),
        (r#""result":{"content":"all well"}"#, "`content` is \"all well\""),
        (r#""result":{"content":[{"type":"text","text":null}]}"#, "a part of its text has none"),
        (r#""result":{"content":[],"isError":"true"}"#, "`isError` is \"true\""),
        (r#""result":{"content":[{"type":"text","text":"\ud800"}]}"#, "the line cannot be read: "),
    ] {
        let case = case("answers").script([reply().call("x__echo", json!({"text": "hi"})), reply().text("done")]);
        case.write("answer", answer);
        case.run(["tell", "go"]).exit(0);
        let result = case.result("call_1");
        assert_eq!((&result["status"], &result["code"]), (&json!("unknown"), &json!("unknown_outcome")), "{answer}");
        let content = result["content"].as_str().unwrap();
        assert!(content.contains(&format!("no result of the protocol: {part}")), "{content}");
    }
}

#[test]
fn a_dead_server_is_started_again_for_the_next_call() {
    let case = case("last-answer").script([
        reply().call("x__echo", json!({"text": "a"})).call("x__echo", json!({"text": "b"})),
        reply().text("done"),
    ]);
    case.run(["tools"]).exit(0);
    case.run(["tell", "go"]).exit(0);
    assert_eq!(starts(&case), 3);
    assert_eq!(case.result("call_2")["content"], "the last of it");
}

#[test]
fn a_tool_that_is_gone_is_one_clear_result() {
    let case = case("changes").script([reply().call("x__gone", json!({})), reply().text("done")]);
    case.run(["tools"]).exit(0).stdout_contains("x__gone").stderr("");
    case.run(["tell", "go"]).exit(0).stderr_contains(CHANGED);
    let result = case.result("call_1");
    assert_eq!((result["status"].as_str(), result["code"].as_str()), (Some("error"), Some("unknown_tool")));
    assert!(
        result["content"]
            .as_str()
            .unwrap()
            .starts_with("The MCP server x has no tool gone any more; it says: Tool gone not found")
    );
    let outcome = case.run(["--output", "json", "tools"]).exit(0);
    assert_eq!(names(&outcome), ["x__echo", "x__fresh"]);
    assert_eq!(starts(&case), 2);
}

/// What is said of the server that offers other tools from its second start on.
const CHANGED: &str = "the tools of the MCP server x changed since they were last listed: new: fresh; gone: gone; \
                       described differently: echo";

#[test]
fn a_changed_list_is_told_however_little_is_to_be_told() {
    let case = case("changes");
    case.run(["-q", "tools"]).exit(0).stderr("");
    let told = case.run(["-q", "tools", "--refresh"]).exit(0).stderr_contains(CHANGED).stderr_text();
    assert_eq!(told.matches(CHANGED).count(), 1);
    case.run(["tools", "--refresh"]).exit(0).stderr("");

    let case = self::case("changes");
    let outcome = case.run(["--output", "json", "tools"]).exit(0);
    assert_eq!(outcome.json()["warnings"], json!([]));
    let outcome = case.run(["-q", "--output", "json", "tools", "--refresh"]).exit(0);
    assert_eq!(outcome.json()["warnings"], json!([CHANGED]));
    outcome.stderr_contains(CHANGED);

    // A turn tells it as well.
    let case = self::case("changes").script([reply().call("x__gone", json!({})), reply().text("done")]);
    case.run(["tools"]).exit(0);
    case.run(["-q", "tell", "go"]).exit(0).stderr_contains(CHANGED);
}

#[test]
fn a_list_is_asked_for_again_when_the_server_says_that_it_changed() {
    let case = case("announces").script([reply().call("x__echo", json!({"text": "hi"})), reply().text("done")]);
    case.run(["tools"]).exit(0).stderr("");
    let changed = "the tools of the MCP server x changed since they were last listed: new: fresh";
    case.run(["tell", "go"]).exit(0).stderr_contains(changed);
    let outcome = case.run(["--output", "json", "tools"]).exit(0);
    assert_eq!(names(&outcome), ["x__echo", "x__fresh"]);
    assert_eq!(starts(&case), 2);
}

#[test]
fn a_server_gets_answers_but_no_confidences() {
    let case = case("asks");
    let result = call(&case, 0);
    assert_eq!(
        result["content"],
        "asked\n[In mid-call the server asked: Your name?. It was told that nobody answers.]"
    );
    let answers: Vec<Value> = case.read("answers").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["result"], json!({"action": "decline"}));
    assert_eq!((answers[1]["id"].as_str(), answers[1]["error"]["code"].as_i64()), (Some("sample"), Some(-32601)));
    let workspace = format!("file://{}", case.workspace().display());
    assert_eq!(answers[2]["result"], json!({"roots": [{"uri": workspace}]}));
    assert_eq!((answers[3]["id"].as_str(), &answers[3]["result"]), (Some("ping"), &json!({})));
}

#[test]
fn the_environment_is_that_of_commands_and_what_the_entry_names() {
    let case = case_with("environment", "env = { MODE_OF = \"x\", A_API_KEY = \"given on purpose\" }");
    assert_eq!(call(&case, 0)["content"], "A_API_KEY HOME MODE_OF ");
}

#[test]
fn what_a_wrapper_leaves_behind_is_ended() {
    let case = case("grandchild");
    assert_eq!(call(&case, 0)["content"], "hi");
    assert!(is_gone(&case.read("grandchild")), "the grandchild lives on");
}

#[test]
fn an_interrupt_cancels_the_call_and_ends_the_server() {
    let case = case("hangs").script([reply().call("x__echo", json!({"text": "hi"}))]);
    let running = case.start(["tell", "go"]);
    case.wait_file("called");
    running.signal(2);
    running.wait().exit(130);
    let result = case.result("call_1");
    assert_eq!((result["status"].as_str(), result["code"].as_str()), (Some("unknown"), Some("interrupted")));
    let process = case.read("process");
    wait_until("the server is gone", || is_gone(&process));
}

#[test]
fn an_interrupt_ends_a_start() {
    let case = case("silent");
    let running = case.start(["tools"]);
    case.wait_file("process");
    running.signal(15);
    let outcome = running.wait();
    outcome.exit(143).stderr_contains("interrupted");
    let process = case.read("process");
    wait_until("the server is gone", || is_gone(&process));
}

#[test]
fn an_image_is_attached_to_the_result() {
    let case = case("image").script([reply().call("x__echo", json!({"text": "hi"})), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    let attachment = json!([{"media_type": "image/png", "file": "outputs/call_1-1.png"}]);
    assert_eq!(case.result("call_1")["attachments"], attachment);
    assert!(case.session_path("main", "outputs/call_1-1.png").exists());
}

#[test]
fn config_about_tools_that_no_server_has_is_a_warning() {
    let config =
        [server("x", &["plain"], ""), "[tools.x__ecko]\nrun = \"deny\"\n[tools.x__echo]\nrun = \"deny\"\n".to_owned()];
    let case = Case::new().config(&config.concat());
    let outcome = case.run(["tools"]).exit(0);
    outcome.stdout_contains("x__echo (mcp:x, denied, runs alone, not offered)");
    outcome.stderr_contains("[tools.x__ecko]: no MCP server offers a tool of that name");
    let case = Case::new().config("[mcp.\"a b\"]\ncommand = [\"x\"]\n");
    case.run(["tools"]).exit(2).stderr_contains(".attini/config.toml:1: `a b` is no name of an MCP server");
}

#[test]
fn trusting_a_workspace_shows_what_it_starts() {
    let case = case_with("plain", "env = { A = \"1\" }").untrusted();
    case.run(["tools"]).exit(2);
    assert_eq!(starts(&case), 0);
    case.run(["trust"]).exit(0).stdout_contains("server.sh plain as the MCP server x, with A set");
}
