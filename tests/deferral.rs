//! Many tools of MCP servers: known by name, found when they are wanted, run through the same gate.

use serde_json::{Value, json};

use crate::support::{Case, reply, repository_path};

/// A workspace whose server `x` offers so many tools.
fn case(count: usize, more: &str) -> Case {
    Case::new().config(&config(count, more))
}

fn config(count: usize, more: &str) -> String {
    let server = repository_path("fixtures/mcp/server.sh").display().to_string();
    format!("[mcp.x]\ncommand = [\"sh\", {server:?}, \"many\", \"{count}\"]\n{more}\n")
}

fn allow() -> [Value; 1] {
    [json!({"type": "tool", "allow": true, "name": "x__*"})]
}

fn run_tool(name: &str, arguments: Value) -> Value {
    let mut call = json!({"name": name});
    call["arguments"] = arguments;
    call
}

/// The tools array of the last request, in bytes.
fn array_bytes(case: &Case) -> usize {
    case.server().last_request().body["tools"].to_string().len()
}

#[test]
fn three_hundred_tools_are_worked_with_and_cost_the_requests_little() {
    let case = case(300, "").rules(allow()).script([
        reply()
            .call("find_tools", json!({"query": "create issue"}))
            .call("find_tools", json!({"query": "select: X__GET_ISSUE_1, x__get_isue_1"})),
        reply()
            .call("run_tool", run_tool("x__create_issue_2", json!({"id": "7"})))
            .call("run_tool", run_tool("x__get_issue_1", json!("{\"id\": \"8\", \"limit\": \"3\"}")))
            .call("x__update_issue_3", json!({"id": "9"})),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0);

    let request = case.server().last_request();
    let names = request.tool_names();
    assert!(names.ends_with(&["find_tools", "run_tool"]) && names.len() < 20, "{names:?}");
    // A token has some four bytes.
    assert!(array_bytes(&case) / 4 < 2000, "{} bytes", array_bytes(&case));
    let whole = case.run(["--output", "json", "tools"]).exit(0).json()["tools"].to_string().len();
    assert!(whole > 40_000, "the tools are too small to mean anything: {whole}");
    let system = request.system();
    let listed: Vec<&str> = system.lines().find(|line| line.starts_with("x__")).unwrap().split(", ").collect();
    assert_eq!((listed.len(), listed.is_sorted()), (300, true));

    let found = case.result("call_1");
    assert_eq!(
        found["fetched"],
        json!([
            "x__create_issue_102",
            "x__create_issue_127",
            "x__create_issue_152",
            "x__create_issue_177",
            "x__create_issue_2"
        ])
    );
    assert!(found["content"].as_str().unwrap().starts_with("12 tools were found; at most 5 of a server are shown."));
    let selected = case.result("call_2");
    assert_eq!(selected["fetched"], json!(["x__get_issue_1"]));
    assert!(selected["content"].as_str().unwrap().contains("\"required\":[\"id\"]"));
    assert!(
        selected["content"].as_str().unwrap().contains("There is no tool named \"x__get_isue_1\"; the nearest names")
    );

    let contents: Vec<Value> =
        (3..=5).map(|number| case.result(&format!("call_{number}"))["content"].clone()).collect();
    assert_eq!(
        contents,
        [
            "'name':'create_issue_2','arguments':{'id':'7'}",
            "'name':'get_issue_1','arguments':{'id':'8','limit':3}",
            "'name':'update_issue_3','arguments':{'id':'9'}",
        ]
    );
}

#[test]
fn few_tools_are_given_whole_unless_the_config_says_otherwise() {
    for (count, more, offers_find_tools) in
        [(16, "", false), (17, "", true), (1, "defer = true", true), (40, "defer = false", false)]
    {
        let case = case(count, more).script([reply().text("hello")]);
        case.run(["tell", "hello"]).exit(0);
        let request = case.server().last_request();
        let names = request.tool_names();
        assert_eq!(names.contains(&"find_tools"), offers_find_tools, "{count} {more}");
        assert_eq!(names.contains(&"run_tool"), offers_find_tools, "{count} {more}");
        assert_eq!(names.contains(&"x__get_issue_1"), !offers_find_tools, "{count} {more}");
        assert_eq!(request.system().contains("x__get_issue_1"), offers_find_tools, "{count} {more}");
        case.run(["tools", "--schema", "x__get_issue_1"]).exit(0).stdout_contains("\"maximum\": 100");
    }
}

#[test]
fn two_thousand_tools_are_searched_and_their_list_is_bounded() {
    let case = case(2000, "")
        .script([reply().call("find_tools", json!({"query": "select: x__get_issue_1976"})), reply().text("done")]);
    case.run(["tell", "go"]).exit(0).stderr_lacks("warning");
    let request = case.server().last_request();
    assert!(array_bytes(&case) / 4 < 2000);
    let system = request.system();
    let left = system.lines().find_map(|line| line.strip_prefix("and ")?.split(' ').next()?.parse::<usize>().ok());
    let listed = system.matches("x__").count();
    assert_eq!(left, Some(2000 - listed));
    assert!((300..1000).contains(&listed) && system.len() < 20_000, "{listed} names, {} bytes", system.len());
    assert_eq!(case.result("call_1")["fetched"], json!(["x__get_issue_1976"]));
}

#[test]
fn what_was_seen_is_known_in_another_process() {
    let bad = || json!({"id": 7});
    let case = case(20, "").rules(allow()).script([
        reply().call("find_tools", json!({"query": "select: x__get_issue_1"})),
        reply().text("seen"),
        reply()
            .call("run_tool", run_tool("x__get_issue_1", bad()))
            .call("run_tool", run_tool("x__create_issue_2", bad()))
            .call("x__create_issue_2", bad())
            .call("x__update_issue_3", bad()),
        reply().text("tried"),
        reply()
            .call("run_tool", run_tool("x__update_issue_3", bad()))
            .call("run_tool", run_tool("x__delete_issue_4", json!({}))),
        reply().text("done"),
    ]);
    for prompt in ["one", "two", "three"] {
        case.run(["tell", prompt]).exit(0);
    }
    let codes: Vec<Value> = (2..=7).map(|number| case.result(&format!("call_{number}"))["code"].clone()).collect();
    let (known, taught) = ("invalid_arguments", "schema_returned");
    assert_eq!(codes, [known, taught, known, taught, known, taught]);
    let content = case.result("call_3")["content"].as_str().unwrap().to_owned();
    assert!(
        content.starts_with("The arguments do not fit x__create_issue_2:\n- `id`: expected string, found a number\n")
    );
    assert!(content.contains("\"required\":[\"id\"]"), "{content}");
    assert!(content.ends_with("\nnext: call it again with arguments that fit the schema"), "{content}");
    let starts = case.read("started");
    assert_eq!(starts.lines().count(), 1, "a server was started for a call that cannot run");
}

#[test]
fn a_schema_that_was_cut_was_not_seen() {
    // Each schema is some 600 bytes, and a result has 1024; 512 are kept free for the second.
    let case = case(20, "[limits]\nresult_bytes = 1024\nround_result_bytes = 1250").rules(allow()).script([
        reply()
            .call("find_tools", json!({"query": "select: x__get_issue_1, x__create_issue_2"}))
            .call("find_tools", json!({"query": "select: x__update_issue_3, x__delete_issue_4"})),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0);
    let first = case.result("call_1");
    assert_eq!(first["fetched"], json!(["x__get_issue_1"]), "{first}");
    assert!(first["content"].as_str().unwrap().contains("There was no room for x__create_issue_2"));
    let second = case.result("call_2");
    assert_eq!((&second["fetched"], second["output_file"].is_string()), (&Value::Null, true), "{second}");
}

#[test]
fn rules_and_pending_calls_know_the_tool_that_runs() {
    let case = case(20, "")
        .rules([
            json!({"type": "tool", "allow": true, "name": "run_tool"}),
            json!({"type": "tool", "allow": false, "name": "x__delete_*"}),
        ])
        .script([
            reply()
                .call("run_tool", run_tool("x__delete_issue_4", json!({"id": "1"})))
                .call("run_tool", run_tool("x__get_issue_1", json!({"id": "2", "limit": "3"}))),
            reply().text("done"),
        ]);
    case.run(["tell", "go"]).exit(10).stderr_contains("call_2 (x__get_issue_1)");
    assert_eq!(case.outcome_of("call_1").1, "denied");
    let pending = case.pending().unwrap()["calls"].clone();
    assert_eq!(pending.as_array().unwrap().len(), 1);
    let arguments = json!({"id": "2", "limit": 3});
    assert_eq!((&pending[0]["name"], &pending[0]["arguments"]), (&json!("x__get_issue_1"), &arguments));
    assert_eq!(pending[0]["preview"], json!({"kind": "tool", "arguments": arguments}));
    assert_eq!(pending[0]["grant"], json!([{"type": "tool", "allow": true, "name": "x__get_issue_1"}]));
    let events = case.run(["--output", "events", "approve"]).exit(0).events_of("tool_result");
    assert_eq!(events[0]["name"], "x__get_issue_1");
    assert_eq!(case.result("call_2")["status"], "ok");
}

#[test]
fn several_operations_are_carried_inside_run_tool() {
    let more = "[tools.x__get_issue_1]\nfan_out = true\n";
    let ops = json!([{"id": "1"}, {"id": 2}, {"id": "3"}]);
    let case = case(20, more)
        .script([reply().call("run_tool", run_tool("x__get_issue_1", json!({"ops": ops}))), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    let ids: Vec<String> = case.pending_calls().into_iter().map(|(id, _, _)| id).collect();
    assert_eq!(ids, ["call_1", "call_1"]);
    assert_eq!(case.pending().unwrap()["calls"][1]["operation"], 3);
    case.run(["deny", "call_1#3", "--reason", "not that"]).exit(10);
    case.run(["approve"]).exit(0);
    let content = case.result("call_1")["content"].as_str().unwrap().to_owned();
    assert!(
        content.starts_with(
            "[1/3] ok\n'name':'get_issue_1','arguments':{'id':'1'}\n\n[2/3] error\nThe arguments do not fit"
        ),
        "{content}"
    );
    assert!(content.contains("[3/3] denied\nThe user denied this call: not that"), "{content}");
}

#[test]
fn a_new_prompt_drops_operations_inside_run_tool_one_by_one() {
    let more = "[tools.x__get_issue_1]\nfan_out = true\n";
    let case = case(20, more).script([
        reply().call("run_tool", run_tool("x__get_issue_1", json!({"ops": [{"id": "1"}, {"id": "2"}]}))),
        reply().text("something else"),
    ]);
    case.run(["tell", "go"]).exit(10);
    case.run(["tell", "never mind"]).exit(0);
    let content = case.result("call_1")["content"].as_str().unwrap().to_owned();
    assert!(content.starts_with("[1/2] cancelled\n") && content.contains("[2/2] cancelled\n"), "{content}");
}

#[test]
fn refusals_of_both_tools_teach() {
    let case = case(20, "").script([
        reply()
            .call("run_tool", run_tool("get_issue_1", json!({})))
            .call("run_tool", run_tool("run_tool", json!({"name": "x__get_issue_1"})))
            .call("run_tool", json!({"name": "x__get_issue_1", "id": "1"}))
            .call("find_tools", json!({"query": "creat isue"}))
            .call("find_tools", json!({"query": " "})),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0);
    for (number, code, words) in [
        (1, json!("unknown_tool"), "the nearest names are x__get_issue_1"),
        (2, json!("invalid_arguments"), "run_tool cannot run itself"),
        (3, json!("invalid_arguments"), "what is meant for x__get_issue_1 goes into `arguments`"),
        (4, Value::Null, "20 tools can be found; try fewer or other words."),
        (5, json!("invalid_arguments"), "there are 20 tools to find"),
    ] {
        let result = case.result(&format!("call_{number}"));
        assert_eq!(result["code"], code, "{result}");
        assert!(result["content"].as_str().unwrap().contains(words), "{result}");
    }
    assert_eq!(case.read("started").lines().count(), 1);
}

#[test]
fn tools_that_are_others_than_at_the_turns_start_are_told() {
    let case = case(20, "")
        .script([reply().call("run_tool", run_tool("x__get_issue_1", json!({"id": "2"}))), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.write(".attini/config.toml", config(20, "defer = false\n[tools.fetch]\nrun = \"deny\""));
    case.server().allow_changed_prefix();
    case.run(["approve"]).exit(0).stderr_contains(
        "the tools are not those that the turn was started with: new: x__create_branch_17, \
         x__create_file_12, x__create_issue_2, x__create_page_7, x__delete_branch_19, x__delete_file_14, \
         x__delete_issue_4, x__delete_page_9, x__get_branch_16, x__get_file_11 and 10 more; gone: fetch, find_tools, run_tool; \
         those that the system prompt lists by name are others",
    );
    assert_eq!(case.result("call_1")["status"], "ok");
}

#[test]
fn deferred_tools_are_listed_and_called_without_a_model() {
    let case = case(20, "").rules(allow());
    let outcome = case.run(["tools"]).exit(0);
    outcome
        .stdout_contains("x__get_issue_1 (mcp:x, asks, runs alone, deferred)\n")
        .stdout_contains("find_tools (built in, asks outside the workspace, runs beside others, offered)\n")
        .stdout_contains("run_tool (built in, stands for the tool that it names, offered)\n");
    let listed = case.run(["--output", "json", "tools"]).exit(0).json();
    let deferred = listed["tools"].as_array().unwrap().iter().filter(|tool| tool["deferred"] == true).count();
    assert_eq!(deferred, 20);
    case.run(["tools", "--schema", "run_tool"]).exit(0).stdout_contains("\"arguments\"");
    let call = json!({"name": "x__get_issue_1", "arguments": {"id": "1"}}).to_string();
    let expected = "'name':'get_issue_1','arguments':{'id':'1'}\n";
    case.run(["tools", "call", "run_tool", &call]).exit(0).stdout(expected);
    case.run(["tools", "call", "x__get_issue_1", "{\"id\":\"1\"}"]).exit(0).stdout(expected);
    case.run(["tools", "call", "find_tools", "{\"query\":\"get page\"}"]).exit(0).stdout_contains("## x__get_page_6\n");
    case.run(["tools", "call", "x__get_isue_1", "{}"]).exit(2).stderr_contains("did you mean x__get_issue_1?");
}

#[test]
fn the_other_format_takes_it_as_well() {
    let case = case(20, "").rules(allow()).anthropic().script([
        reply().call("find_tools", json!({"query": "get page"})),
        reply()
            .call("run_tool", run_tool("x__get_page_6", json!({"id": "1"})))
            .call("x__get_issue_1", json!({"id": "2"})),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0);
    assert_eq!((case.outcome_of("call_2").0, case.outcome_of("call_3").0), ("ok".to_owned(), "ok".to_owned()));
}
