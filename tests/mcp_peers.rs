//! Real MCP servers, where `ATTINI_TEST_PEERS` is set to 1: these need the network and other languages' tools, which
//! tests otherwise do without. What they need is installed by whoever sets the variable.

use serde_json::{Value, json};

use crate::support::{Case, peer_path, peers_folder, reply};

/// A case in which these servers are configured; `None` where no peers are to be tested.
fn case(servers: &[(&str, &[&str])]) -> Option<Case> {
    let folder = peers_folder()?;
    let config: Vec<String> = servers
        .iter()
        .map(|(name, command)| {
            let command: Vec<String> = command.iter().map(|word| peer_path(&folder, word)).collect();
            format!("[mcp.{name}]\ncommand = {command:?}\n")
        })
        .collect();
    let rules = servers.iter().map(|(name, _)| json!({"type": "tool", "allow": true, "name": format!("{name}__*")}));
    Some(Case::new().git().config(&config.concat()).rules(rules).file("a.txt", "one\n"))
}

fn call(case: &Case, name: &str, arguments: &Value, exit_code: i32) -> Value {
    let arguments = arguments.to_string();
    let outcome = case.run(["--output", "json", "tools", "call", name, &arguments]).exit(exit_code);
    outcome.json()["result"].clone()
}

#[test]
fn the_reference_server_with_everything() {
    let Some(case) = case(&[("all", &["PEERS/node_modules/.bin/mcp-server-everything"])]) else { return };
    case.run(["tools"]).exit(0).stdout_contains("all__echo (mcp:all, asks").stderr("");
    assert_eq!(call(&case, "all__echo", &json!({"message": "hi"}), 0)["content"], "Echo: hi");
    let sum = call(&case, "all__get-sum", &json!({"a": 2, "b": 3}), 0);
    assert!(sum["content"].as_str().unwrap().contains('5'), "{sum}");
    let image = call(&case, "all__get-tiny-image", &json!({}), 0);
    assert!(image["content"].as_str().unwrap().contains("[image, image/png"), "{image}");
    let structured = call(&case, "all__get-structured-content", &json!({"location": "Chicago"}), 0);
    assert!(structured["content"].as_str().unwrap().contains("temperature"), "{structured}");
    let refused = call(&case, "all__get-sum", &json!({"a": "x", "b": 3}), 2);
    assert_eq!(refused, Value::Null);
}

#[test]
fn the_reference_server_of_files() {
    let Some(case) = case(&[("fs", &["PEERS/node_modules/.bin/mcp-server-filesystem", "."])]) else { return };
    let case = case.script([reply().call("fs__read_text_file", json!({"path": "a.txt"})), reply().text("done")]);
    case.run(["tell", "read a.txt"]).exit(0).stderr_lacks("warning");
    assert_eq!(case.result("call_1")["content"], "one\n");
    let missing = call(&case, "fs__read_text_file", &json!({"path": "b.txt"}), 1);
    assert_eq!(missing["code"], "tool_error", "{missing}");
}

#[test]
fn the_reference_servers_of_git_and_time() {
    let git: &[&str] = &["PEERS/venv/bin/mcp-server-git"];
    let time: &[&str] = &["PEERS/venv/bin/mcp-server-time", "--local-timezone", "UTC"];
    let Some(case) = case(&[("git", git), ("time", time)]) else { return };
    let log = call(&case, "git__git_log", &json!({"repo_path": "."}), 0);
    assert!(log["content"].as_str().unwrap().contains("start"), "{log}");
    let now = call(&case, "time__get_current_time", &json!({"timezone": "UTC"}), 0);
    assert!(now["content"].as_str().unwrap().contains("UTC"), "{now}");
    let wrong = call(&case, "time__get_current_time", &json!({"timezone": "Nowhere/Land"}), 1);
    assert_eq!(wrong["code"], "tool_error", "{wrong}");
}
