//! Questions on the side (`ask`), the lists of models (`models`), and answers that must fit a schema.

use serde_json::{Value, json};

use crate::support::{Case, reply};

#[test]
fn a_question_is_answered_without_touching_anything() {
    for anthropic in [false, true] {
        let case = if anthropic { Case::new().anthropic() } else { Case::new() };
        let case = case.marks().file("a.txt", "alpha\n");
        case.run(["ask", "what?"]).exit(3);
        case.server().script([
            reply().read("a.txt").mark("a"),
            reply().text("It would mark a.").usage(90, 9, 80).on_the_side(),
            reply().text("From stdin.").on_the_side(),
            reply().text("done"),
        ]);
        case.run(["tell", "go"]).exit(10);
        let files = || {
            ["conversation.jsonl", "pending.json"].map(|name| std::fs::read(case.session_path("main", name)).unwrap())
        };
        let before = files();
        let answered = case.run(["ask", "what would it do?"]).exit(0);
        answered.stdout("It would mark a.\n").stderr_contains("90 tokens in (80 cached), 9 out");
        let request = case.server().last_request();
        assert!(request.last_user_text().unwrap().ends_with("what would it do?"));
        assert_eq!(request.results().len(), 2);
        assert!(request.result("call_2").contains("no result yet"));
        let told = case.attini(["--output", "json", "ask", "-"]).stdin("and this?\n").run().exit(0).json();
        assert_eq!((&told["type"], &told["text"]), (&json!("ask"), &json!("From stdin.")));
        assert_eq!(told["usage"]["input_tokens"], 10);
        assert_eq!(files(), before);
        case.run(["approve"]).exit(0).stdout("done\n");
        case.run(["ask", " "]).exit(2);
    }
}

#[test]
fn a_question_waits_for_no_lock() {
    let latch = crate::support::Latch::new();
    let case = Case::new().file("a.txt", "alpha\n");
    case.server().script([
        reply().read("a.txt"),
        reply().text("done").hold(&latch),
        reply().text("It reads.").on_the_side(),
    ]);
    let running = case.start(["tell", "go"]);
    case.server().wait_requests(2);
    case.run(["ask", "what does it do?"]).exit(0).stdout("It reads.\n");
    latch.release();
    running.wait().exit(0).stdout("done\n");
}

#[test]
fn a_question_that_fails_says_why() {
    let case = Case::new().script([
        reply().text("hello"),
        reply().error(401, "who are you?").on_the_side(),
        reply().error(401, "who are you?").on_the_side(),
        reply().read("a.txt").on_the_side(),
        reply().read("a.txt").on_the_side(),
    ]);
    case.run(["tell", "go"]).exit(0);
    let told = case.run(["--output", "json", "ask", "what?"]).exit(13).json();
    assert_eq!((&told["type"], &told["error"]["code"]), (&json!("ask"), &json!("unauthorized")));
    case.run(["ask", "what?"]).exit(13).stderr_contains("no text");
    assert_eq!(case.record_types(), ["session", "user", "assistant", "turn_end"]);
}

#[test]
fn the_models_of_a_provider_are_listed() {
    let case = Case::new();
    case.run(["models"]).exit(0).stdout("openai/other-model  Other Model\nopenai/test-model   Test Model\n");
    let told = case.run(["--output", "json", "models", "anthropic"]).exit(0).json();
    assert_eq!((&told["type"], &told["provider"]), (&json!("models"), &json!("anthropic")));
    let names: Vec<&Value> = told["models"].as_array().unwrap().iter().map(|model| &model["model"]).collect();
    assert_eq!(names, ["anthropic/other-model", "anthropic/test-model"]);
    case.run(["models", "scripted"]).exit(0).stdout("scripted/demo\n");
    case.run(["models", "opnai"]).exit(2).stderr_contains("did you mean openai?");
    case.run(["models", "groq"]).exit(2).stderr_contains("GROQ_API_KEY");
    let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let case = Case::new().env("OLLAMA_BASE_URL", format!("http://{nobody}/v1"));
    case.run(["models", "ollama"]).exit(13).stderr_contains("cannot reach ollama").stderr_contains("is the server");
    Case::new().without_model().run(["models"]).exit(2).stderr_contains("no model is configured");
}

#[test]
fn an_answer_that_does_not_fit_goes_back_twice() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    for anthropic in [false, true] {
        let case = Case::new().file("schema.json", schema.to_string());
        let case = if anthropic { case.anthropic() } else { case };
        case.server().script([reply().text("one"), reply().text("{\"n\": \"1\"}"), reply().text("{\"n\": 1}")]);
        case.run(["tell", "count", "--output-schema", "schema.json"]).exit(0).stdout("{\"n\": 1}\n");
        let requests = case.server().requests();
        for request in &requests {
            let asked = request.body.pointer("/response_format/json_schema/schema");
            assert_eq!(asked, (!anthropic).then_some(&schema), "where the service can be asked, it is");
            assert!(request.system().contains("valid under this JSON Schema"));
        }
        assert!(requests[1].last_user_text().unwrap().contains("not JSON"));
        assert!(requests[2].last_user_text().unwrap().contains("integer"));

        case.server().script([reply().text("a"), reply().text("b"), reply().text("c")]);
        let outcome = case.run(["--output", "json", "tell", "again", "--output-schema", "schema.json"]).exit(13).json();
        assert_eq!((&outcome["error"]["code"], &outcome["rounds"]), (&json!("output_schema"), &json!(3)));
        assert_eq!(case.server().request_count(), 6);
    }
}
