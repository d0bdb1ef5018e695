//! Tools of the project's own: programs that the config names.

use serde_json::{Value, json};

use crate::support::{Case, reply};

/// The tool `show`, which puts out its words one a line, then its stdin.
const SHOW: &str = r#"
[tools.show]
description = "Shows what it is given."
command = ["sh", "show.sh", "--", "{file}", "--level={level}", "{{file}}", "{flags}"]
parameters = { type = "object", properties = { file = { type = "string" }, level = { type = "integer" }, flags = { type = "array" } }, required = ["file"] }
"#;

const SHOW_SCRIPT: &str = "for word in \"$@\"; do echo \"[$word]\"; done\ncat\n";

fn case(more: &str) -> Case {
    Case::new().config(&format!("{SHOW}{more}\n")).file("show.sh", SHOW_SCRIPT)
}

#[test]
fn an_argument_is_part_of_one_word_whatever_it_holds() {
    let evil = "-rf a\nb; $(touch evil) '\" {level} *";
    let case = case("run = \"allow\"").script([
        reply().call("show", json!({"file": evil, "level": "3", "flags": ["a", 1]})).call("show", json!({"file": ""})),
        reply().text("done"),
    ]);
    case.run(["tell", "go"]).exit(0);
    let stdin = json!({"file": evil, "level": 3, "flags": ["a", 1]});
    let content = case.result("call_1")["content"].as_str().unwrap().to_owned();
    let expected = format!("exit code 0\n[--]\n[{evil}]\n[--level=3]\n[{{file}}]\n[[\"a\",1]]\n");
    let given = content.strip_prefix(&expected).unwrap_or_else(|| panic!("{content}"));
    assert_eq!(serde_json::from_str::<Value>(given).unwrap(), stdin);
    assert!(!case.exists("evil"));
    // A word goes with an absent argument, an empty argument is an empty word.
    assert_eq!(case.result("call_2")["content"], "exit code 0\n[--]\n[]\n[{file}]\n{\"file\":\"\"}");
    let request = case.server().last_request();
    let told = &request.body["tools"].as_array().unwrap().last().unwrap()["function"];
    assert_eq!((&told["name"], &told["description"]), (&json!("show"), &json!("Shows what it is given.")));
    assert_eq!(told["parameters"]["additionalProperties"], false);
}

#[test]
fn it_asks_and_the_whole_command_is_shown() {
    let case = case("").script([
        reply().call("show", json!({"file": "a b", "level": 2})).call("show", json!({"fil": "x"})),
        reply().text("done"),
    ]);
    let outcome = case.run(["tell", "go"]).exit(10);
    outcome.stderr_contains(
        "call_1 (show): sh show.sh -- 'a b' '--level=2' '{file}'\n  $ sh show.sh -- 'a b' '--level=2' '{file}'\n  with this on its stdin:\n  < {\"file\":\"a b\",\"level\":2}\n  asks because: no rule allows it\n",
    );
    let call = case.pending().unwrap()["calls"][0].clone();
    assert_eq!(call["grant"], json!([{"type": "tool", "allow": true, "name": "show"}]));
    assert_eq!(call["preview"]["argv"], json!(["sh", "show.sh", "--", "a b", "--level=2", "{file}"]));
    assert_eq!(case.outcome_of("call_2").1, "invalid_arguments");
    case.run(["approve"]).exit(0);
    assert_eq!(case.result("call_1")["status"], "ok");
}

#[test]
fn what_was_approved_is_what_runs() {
    let case = case("").script([reply().call("show", json!({"file": "a"})), reply().text("done")]);
    case.run(["tell", "go"]).exit(10);
    case.write(".attini/config.toml", SHOW.replace("\"show.sh\"", "\"other.sh\""));
    case.run(["approve"]).exit(0);
    assert_eq!(case.outcome_of("call_1").1, "stale");
}

#[test]
fn rules_name_it_and_its_end_is_that_of_a_command() {
    let more = "[tools.fail]\ncommand = [\"sh\", \"-c\", \"echo no; exit 3\"]\n[tools.hang]\ncommand = [\"sh\", \"-c\", \"echo on; sleep 60\"]\n[tools.gone]\ncommand = [\"no-such-program\"]\n[tools.env]\ncommand = [\"sh\", \"-c\", \"echo $OPENAI_API_KEY $PAGER; pwd\"]\n[limits]\ncommand_timeout_s = 1";
    let case = case(more)
        .rules([
            json!({"type": "tool", "allow": true, "name": "*"}),
            json!({"type": "tool", "allow": false, "name": "show"}),
        ])
        .script([
            reply()
                .call("fail", json!({}))
                .call("hang", json!({}))
                .call("gone", json!({}))
                .call("env", json!({}))
                .call("show", json!({"file": "a"}))
                .call("env", json!({"x": 1})),
            reply().text("done"),
        ]);
    case.run(["tell", "go"]).exit(0);
    let workspace = case.workspace().display().to_string();
    for (number, status, code, content) in [
        (1, "error", "exit_nonzero", "exit code 3\nno\n".to_owned()),
        (2, "error", "timeout", "timed out after 1 s".to_owned()),
        (3, "error", "spawn_failed", "cannot start no-such-program".to_owned()),
        (4, "ok", "", format!("exit code 0\ncat\n{workspace}")),
        (5, "denied", "denied", "the tool show is denied by a rule".to_owned()),
        (6, "error", "invalid_arguments", "The arguments do not fit env:\n- arguments: there is no `x`".to_owned()),
    ] {
        let result = case.result(&format!("call_{number}"));
        let code_of = result["code"].as_str().unwrap_or_default();
        assert_eq!((result["status"].as_str(), code_of), (Some(status), code), "{result}");
        assert!(result["content"].as_str().unwrap().starts_with(&content), "{result}");
    }
    assert_eq!(case.record_types().iter().filter(|kind| *kind == "tool_start").count(), 4);
}

#[test]
fn it_carries_several_operations_where_the_config_says_so() {
    let case = case("run = \"allow\"\nfan_out = true")
        .script([reply().call("show", json!({"ops": [{"file": "a"}, {"file": "b"}]})), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    let content = case.result("call_1")["content"].as_str().unwrap().to_owned();
    assert!(content.starts_with("[1/2] ok\nexit code 0\n[--]\n[a]\n"), "{content}");
}

#[test]
fn it_is_listed_and_called_without_a_model() {
    let case = case("");
    case.run(["tools"])
        .exit(0)
        .stdout_contains("show (config, asks, runs alone, offered)\n  Shows what it is given.\n");
    case.run(["tools", "--schema", "show"]).exit(0).stdout_contains("\"additionalProperties\": false");
    let call = ["tools", "call", "show", "{\"file\":\"a\"}"];
    case.run(call).exit(1).stderr_contains(r#"{"type":"tool","allow":true,"name":"show"}"#);
    let case = self::case("run = \"allow\"");
    case.run(call).exit(0).stdout("exit code 0\n[--]\n[a]\n[{file}]\n{\"file\":\"a\"}\n");
}

#[test]
fn a_config_that_cannot_be_meant_is_refused_before_anything_runs() {
    for (config, expected) in [
        ("[tools.read]\ncommand = [\"a\"]", "config.toml:1: [tools.read] is a built-in tool"),
        ("[tools.x]\ncommand = [\"a\", \"{b}\"]", "`command` has {b}, and no parameter is named so"),
        (
            "[mcp.fs]\ncommand = [\"a\"]\n[tools.fs__x]\ncommand = [\"a\"]",
            "[tools.fs__x]: a name that begins like this",
        ),
    ] {
        let case = Case::new().config(config);
        case.run(["tell", "go"]).exit(2).stderr_contains(expected);
        case.run(["tools"]).exit(2).stderr_contains(expected);
    }
    let case = Case::new().config("[tools.x]\ncommand = [\"sh\", \"-c\", \"touch evil\"]\nrun = \"allow\"").untrusted();
    case.run(["tools", "call", "x", "{}"]).exit(2).stderr_contains("is not trusted");
    assert!(!case.exists("evil"));
    case.run(["trust"]).exit(0).stdout_contains("tool x runs sh -c 'touch evil'");
}
