//! What single services want beyond the format that they speak, and how their failures are told, from the command
//! line.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::support::{Case, Format, OPENAI_KEY, RecordedRequest, Reply, reply};

/// A case that can speak to any service of the common format: each is the same server.
fn case(services: &[&str]) -> Case {
    let mut case = Case::new().file("a.txt", "alpha\n");
    for service in services {
        let service = service.to_uppercase();
        let address = case.server().openai_base_url();
        case = case.env(&format!("{service}_API_KEY"), OPENAI_KEY).env(&format!("{service}_BASE_URL"), address);
    }
    case
}

fn called(request: &RecordedRequest) -> Vec<&Value> {
    request.messages().iter().filter_map(|message| message["tool_calls"].as_array()).flatten().collect()
}

#[test]
fn ids_and_names_are_changed_on_the_wire_alone() {
    let long = "n".repeat(70);
    let case = case(&["mistral"]).script([
        reply().raw_call("call_00_long", "read", "{\"path\": \"a.txt\"}").raw_call("aB3dE6gH9", &long, "{}"),
        reply().text("done"),
        reply().text("done again"),
        reply().text("and here"),
    ]);
    case.run(["tell", "-m", "mistral/mistral-test", "go"]).exit(0);
    let first = case.server().last_request();
    let ids: Vec<&str> = called(&first).iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert!(ids.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())), "{ids:?}");
    assert_eq!(ids[1], "aB3dE6gH9");
    let answered: Vec<String> = first.results().into_iter().map(|(id, _)| id).collect();
    assert_eq!(answered, ids);
    let name = called(&first)[1]["function"]["name"].as_str().unwrap();
    assert!(name.len() <= 64 && name.starts_with(&long[..50]), "{name}");
    // Another invocation says the same; another service gets what it takes.
    case.run(["tell", "-m", "mistral/mistral-test", "more"]).exit(0);
    assert_eq!(called(&case.server().last_request()), called(&first));
    case.run(["tell", "-m", "openai/test-model", "more"]).exit(0);
    assert_eq!(called(&case.server().last_request())[0]["id"], "call_00_long");
    let recorded = case.records().into_iter().find(|record| record["type"] == "assistant").unwrap();
    let calls = &recorded["tool_calls"];
    assert_eq!((&calls[0]["id"], &calls[1]["name"]), (&json!("call_00_long"), &json!(long)));
}

#[test]
fn thoughts_go_to_their_own_model_and_the_field_to_all_where_it_is_wanted() {
    let case = case(&["deepseek"]).script([
        reply().reasoning("First.").read("a.txt"),
        reply().text("one"),
        reply().reasoning("Second.").read("a.txt"),
        reply().text("two"),
        reply().text("three"),
        reply().text("four"),
    ]);
    let thoughts = || {
        let request = case.server().last_request();
        let said = request.messages().iter().filter(|message| message["role"] == "assistant");
        said.map(|message| message["reasoning_content"].clone()).collect::<Vec<Value>>()
    };
    case.run(["tell", "go"]).exit(0);
    assert_eq!(thoughts(), [json!("First.")]);
    case.run(["tell", "-m", "deepseek/deepseek-test", "--reasoning-effort", "max", "go"]).exit(0);
    assert_eq!(thoughts(), ["", "", "Second."]);
    let body = case.server().last_request().body;
    assert_eq!((&body["thinking"], &body["reasoning_effort"]), (&json!({"type": "enabled"}), &json!("max")));
    case.run(["tell", "-m", "deepseek/deepseek-other", "go"]).exit(0);
    assert_eq!(thoughts(), ["", "", "", ""], "another model is another one's");
    case.run(["tell", "-m", "openai/test-model", "--reasoning-effort", "max", "go"]).exit(0);
    assert_eq!(thoughts(), [json!("First."), Value::Null, Value::Null, Value::Null, Value::Null]);
    assert_eq!(case.server().last_request().body["reasoning_effort"], "xhigh");
    let told = case.run(["tell", "--reasoning-effort", "loads", "go"]).exit(2);
    told.stderr_contains("no reasoning effort \"loads\"").stderr_contains("--reasoning-effort takes none, minimal");
}

#[test]
fn anthropic_is_asked_for_the_form_of_the_answer_which_is_validated_all_the_same() {
    let schema = json!({
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false,
    });
    let mut bounded = schema.clone();
    bounded["properties"]["n"]["minimum"] = json!(1);
    let case = Case::new().model("anthropic/claude-sonnet-4-5");
    let case = case.file("schema.json", schema.to_string()).file("bounded.json", bounded.to_string());
    let formats = |count: usize| {
        let requests = case.server().requests();
        requests[requests.len() - count..]
            .iter()
            .map(|request| request.body["output_config"]["format"].clone())
            .collect()
    };
    case.server().script([reply().text("{\"n\": \"one\"}"), reply().text("{\"n\": 1}")]);
    case.run(["tell", "count", "--output-schema", "schema.json"]).exit(0).stdout("{\"n\": 1}\n");
    let asked: Vec<Value> = formats(2);
    assert_eq!(asked, vec![json!({"type": "json_schema", "schema": schema}); 2]);
    // What it could not enforce it is not asked for.
    case.server().script([reply().text("{\"n\": 0}"), reply().text("{\"n\": 2}")]);
    case.run(["tell", "again", "--output-schema", "bounded.json"]).exit(0).stdout("{\"n\": 2}\n");
    let asked: Vec<Value> = formats(2);
    assert_eq!(asked, [Value::Null, Value::Null]);
}

/// What is told of a request that fails for good.
#[track_caller]
fn told_of(format: Format, failure: Reply) -> (String, Value) {
    let case = Case::new();
    let case = if format == Format::Anthropic { case.anthropic() } else { case }.script([failure]);
    let outcome = case.run(["--output", "json", "tell", "go"]).exit(13);
    assert_eq!(case.server().request_count(), 1);
    (outcome.stderr_text(), outcome.json()["error"].take())
}

#[test]
fn failures_name_provider_and_status_and_quote_the_service_within_bounds() {
    for (format, provider) in [(Format::OpenAi, "openai"), (Format::Anthropic, "anthropic")] {
        let words = format!("the key {OPENAI_KEY} is not yours {}", "x".repeat(10_000));
        let (_, error) = told_of(format, reply().error(402, &words));
        let message = error["message"].as_str().unwrap();
        let beginning = format!("{provider} answered with HTTP status 402: the key ");
        assert!(message.starts_with(&beginning) && message.contains("is not yours"), "{message}");
        assert!(!message.contains(OPENAI_KEY) && message.len() < 3000, "{message}");
    }
}

#[test]
fn a_wait_that_is_too_long_is_left_to_the_user() {
    let in_an_hour = http_date(SystemTime::now(), 3600);
    for format in [Format::OpenAi, Format::Anthropic] {
        let (_, error) = told_of(format, reply().error(429, "slow down").header("Retry-After", "61"));
        assert_eq!((&error["code"], &error["retryable"]), (&json!("rate_limited"), &json!(true)));
        assert!(error["hint"].as_str().unwrap().starts_with("try again in 61 s (at 2"), "{error}");
        let (_, error) = told_of(format, reply().error(503, "closed").header("Retry-After", &in_an_hour));
        let hint = error["hint"].as_str().unwrap();
        let seconds: u64 = hint.trim_start_matches("try again in ").split(' ').next().unwrap().parse().unwrap();
        assert!((3500..=3600).contains(&seconds), "{hint}");
    }
}

/// An HTTP date so many seconds later.
fn http_date(now: SystemTime, seconds: i64) -> String {
    let at = jiff::Timestamp::try_from(now).unwrap() + jiff::SignedDuration::from_secs(seconds);
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[test]
fn each_wait_is_shown_with_its_reason() {
    let case = Case::new().script([
        reply().error(429, "slow down").header("Retry-After", "0.001"),
        reply().text("Hel").error_in_stream("overloaded_error").header("Retry-After", "0.001"),
        reply().text("Hello"),
    ]);
    let told = case.run(["tell", "go"]).exit(0).stderr_text();
    assert!(told.contains("attempt 2 in 1 ms: openai answered with HTTP status 429: slow down"), "{told}");
    assert!(told.contains("attempt 3 in 1 ms: openai reported an error in its reply: overloaded_error"), "{told}");
}
