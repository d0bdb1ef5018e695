//! One call that carries several operations: each has its own result, and the call's is folded from them.

use std::fs;

use serde_json::json;

use crate::support::*;

fn case() -> Case {
    let two = json!({"ops": [{"path": "a.txt"}, {"path": "b.txt"}]});
    Case::new()
        .git()
        .file("a.txt", "one\n")
        .file("b.txt", "two\n")
        .config("[tools.read]\nfan_out = true\n")
        .script([reply().call("read", two), reply().text("done")])
}

const FOLDED: &str = "[1/2] ok\na.txt: 1 line\n1\tone\n\n[2/2] ok\nb.txt: 1 line\n1\ttwo";

#[test]
fn the_calls_result_is_folded_from_those_of_its_operations() {
    let case = case();
    case.run(["tell", "go"]).exit(0).stdout("done\n");
    assert_eq!(case.result("call_1")["content"], FOLDED);
    let sent = case.server().requests();
    assert!(sent[0].body["tools"].to_string().contains("\"ops\""), "the envelope is advertised");
}

#[test]
fn a_kill_between_the_last_operation_and_the_calls_own_result_loses_neither() {
    let case = case().without_invariants();
    // The log is cut back to where a kill would have left it.
    let log = case.session_path("main", "conversation.jsonl");
    case.run(["tell", "go", "--max-rounds", "1"]).exit(14);
    let whole = fs::read_to_string(&log).unwrap();
    let operations = whole.find("{\"type\":\"tool_result\"").unwrap();
    fs::write(&log, &whole[..operations]).unwrap();
    case.run(["resume", "--max-rounds", "9"]).exit(0).stdout("done\n");
    assert_eq!(case.result("call_1")["content"], FOLDED);
}
