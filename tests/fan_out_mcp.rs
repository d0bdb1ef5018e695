//! Calls of several operations of MCP servers' tools: their schemas under the envelope, their results inside operations.

use serde_json::{Value, json};

use crate::support::*;

/// A server whose tools take several operations, and may be called.
fn case(more: &str) -> Case {
    let server = repository_path("fixtures/mcp/server.sh").display().to_string();
    let tools = ["echo", "either", "tree", "named", "batch"];
    let tools: String =
        tools.iter().map(|name| format!("[tools.x__{name}.fan_out]\nenabled = true\n{more}\n")).collect();
    Case::new()
        .config(&format!("[mcp.x]\ncommand = {:?}\n{tools}", ["sh", &server, "several"]))
        .rules([json!({"type": "tool", "allow": true, "name": "x__*"})])
}

fn played(case: Case, name: &str, arguments: Value) -> Case {
    let case = case.script([reply().call(name, arguments), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    case
}

fn told(case: &Case) -> String {
    case.result("call_1")["content"].as_str().unwrap().to_owned()
}

/// The parameters of a tool, as the model was told of them.
fn parameters(case: &Case, name: &str) -> Value {
    let body = case.server().last_request().body.clone();
    let tools = body["tools"].as_array().unwrap().iter();
    tools.map(|tool| &tool["function"]).find(|tool| tool["name"] == name).unwrap()["parameters"].clone()
}

#[test]
fn the_envelope_is_made_of_what_services_take_and_calls_are_checked_by_the_tools_own_schema() {
    let operations = json!({"ops": [{"id": "a"}, {"n": "7"}, {"id": 5}]});
    let case = played(case(""), "x__either", operations);
    let items = parameters(&case, "x__either")["properties"]["ops"]["items"].clone();
    assert!(items.get("anyOf").is_none(), "{items}");
    assert_eq!(items["properties"], json!({"id": {"type": "string"}, "n": {"type": "integer"}}));
    // On the wire nothing says that one of the two is needed; the tool's own schema does.
    let told = told(&case);
    assert!(told.starts_with("[1/3] ok\n{'id':'a'}\n\n[2/3] "), "{told}");
    assert!(told.contains("[3/3] error\nThe arguments do not fit x__either"), "{told}");
}

#[test]
fn definitions_move_to_the_root_of_the_envelope() {
    let operations = json!({"ops": [{"a": "x", "b": "1", "c": "y"}, {"a": 1}]});
    let case = played(case(""), "x__named", operations);
    let parameters = parameters(&case, "x__named");
    let items = &parameters["properties"]["ops"]["items"];
    assert!(items.get("$defs").is_none() && items.get("definitions").is_none(), "{items}");
    for name in ["a", "b", "c"] {
        let reference = items["properties"][name]["$ref"].as_str().unwrap().trim_start_matches('#');
        assert!(parameters.pointer(reference).is_some(), "{name}: {parameters}");
    }
    let told = told(&case);
    assert!(told.starts_with("[1/2] ok\n{'a':'x','b':1,'c':'y'}\n\n[2/2] error\n"), "{told}");
}

#[test]
fn a_schema_that_refers_to_its_own_root_takes_one_operation_and_a_warning_names_the_tool() {
    let case = case("")
        .script([reply().call("x__tree", json!({"name": "a", "below": [{"name": "b"}]})), reply().text("done")]);
    let warning = "x__tree cannot carry several operations: its schema refers to #,";
    case.run(["tell", "go"]).exit(0).stderr_contains(warning);
    assert!(parameters(&case, "x__tree")["properties"].get("ops").is_none());
    assert!(parameters(&case, "x__echo")["properties"].get("ops").is_some());
    assert_eq!(told(&case), "{'name':'a','below':[{'name':'b'}]}");
    case.run(["tools"]).exit(0).stderr_contains(warning);
}

#[test]
fn a_tool_with_an_ops_of_its_own_is_called_as_its_arguments_say() {
    for (arguments, expected) in [
        // Both readings are valid: it is an envelope.
        (
            json!({"ops": [{"ops": []}, {"ops": [{}], "n": "2"}]}),
            "[1/2] ok\n{'ops':[]}\n\n[2/2] ok\n{'ops':[{}],'n':2}",
        ),
        (json!({"ops": [{"ops": [{"ops": []}]}]}), "{'ops':[{'ops':[]}]}"),
        (json!({"ops": [{"x": 1}, {"x": 2}]}), "{'ops':[{'x':1},{'x':2}]}"),
        (json!({"ops": [{"ops": []}, {"x": 2}]}), "{'ops':[{'ops':[]},{'x':2}]}"),
        (json!({"ops": []}), "{'ops':[]}"),
        (json!({"ops": [{"ops": []}], "n": 1}), "{'ops':[{'ops':[]}],'n':1}"),
        // Text is an argument of the tool's own, coerced as any.
        (json!({"ops": "[{\"ops\":[]},{\"ops\":[]}]"}), "{'ops':[{'ops':[]},{'ops':[]}]}"),
    ] {
        assert_eq!(told(&played(case(""), "x__batch", arguments.clone())), expected, "{arguments}");
    }
    let many = json!({"ops": vec![json!({"ops": []}); 65]});
    assert!(told(&played(case(""), "x__batch", many)).contains("`ops` holds 65 operations"));
}

#[test]
fn rich_results_keep_what_comes_with_them() {
    let texts = ["image", "data", "plain", "image"];
    let operations: Vec<Value> = texts.map(|text| json!({"text": text})).to_vec();
    let operations = json!({"ops": operations});
    let case = played(case(""), "x__echo", operations);
    let attachments: Vec<Value> = case.result("call_1")["attachments"].as_array().unwrap().clone();
    let attached = |number: u32| json!({"media_type": "image/png", "file": format!("outputs/call_1.{number}-1.png")});
    assert_eq!(attachments, [attached(1), attached(4)]);
    for number in [1, 4] {
        assert!(case.session_path("main", &format!("outputs/call_1.{number}-1.png")).exists());
    }
    let told = told(&case);
    assert!(told.starts_with("[1/4] ok\n [2/2] ok\n[image, image/png, 70 bytes"), "{told}");
    assert!(told.contains("\n\n[2/4] ok\nseen\n") && told.contains("[3/4] ok\n{'text':'plain'}"), "{told}");
}

#[test]
fn a_server_that_dies_in_the_middle_is_an_unknown_outcome_and_a_failure() {
    let operations: Vec<Value> = ["a", "die", "b"].map(|text| json!({"text": text})).to_vec();
    let operations = json!({"ops": operations});
    for (more, third) in
        [("", "[3/3] ok\n{'text':'b'}"), ("on_error = \"stop\"", "[3/3] not run (stopped after operation 2 failed)")]
    {
        let case = played(case(more), "x__echo", operations.clone());
        let told = told(&case);
        assert!(told.starts_with("[1/3] ok\n{'text':'a'}\n\n[2/3] unknown\n") && told.ends_with(third), "{told}");
    }
}

#[test]
fn operations_of_a_server_are_asked_about_one_by_one() {
    let case = case("")
        .rules([])
        .script([reply().call("x__echo", json!({"ops": [{"text": "a"}, {"text": "b"}]})), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let previews: Vec<Value> =
        case.pending().unwrap()["calls"].as_array().unwrap().iter().map(|call| call["preview"].clone()).collect();
    let preview = |text: &str| json!({"kind": "tool", "arguments": {"text": text}});
    assert_eq!(previews, [preview("a"), preview("b")]);
    case.run(["deny", "call_1#1"]).exit(10);
    case.run(["approve"]).exit(0);
    let told = told(&case);
    assert!(told.starts_with("[1/2] denied\n") && told.ends_with("\n\n[2/2] ok\n{'text':'b'}"), "{told}");
}
