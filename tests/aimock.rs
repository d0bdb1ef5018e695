//! `@copilotkit/aimock`, a model server that plays what a file says, in both wire formats, where `ATTINI_TEST_PEERS` is
//! set to 1. It refuses what its file does not foresee, so that a request that is not as it must be fails the test.

use serde_json::{Value, json};

use crate::support::{ANTHROPIC_KEY, Case, OPENAI_KEY, Outcome, Peer, mark};

const ANSWER: &str = "This answer comes in many small pieces, so that it can be cut anywhere.";

/// How many of the faults are gone through at a time, in each format.
const AT_A_TIME: usize = 4;

/// Models that think, to the peer's knowledge, in the one format and in the other.
const MODELS: [&str; 2] = ["openai/gpt-5-mini", "anthropic/claude-sonnet-4-5"];

/// `None` where no peers are to be tested.
fn start(fixtures: &[Value], environment: &[(&str, &str)]) -> Option<Peer> {
    let arguments = ["-p", "0", "-f", "fixtures.json", "--strict", "--validate-on-load", "--chunk-size", "5"];
    let file = json!({"fixtures": fixtures});
    let ready = "server listening on";
    Peer::start("node_modules/.bin/llmock", &arguments, &[("fixtures.json", &file)], environment, ready)
}

fn case(peer: &Peer, model: &str) -> Case {
    Case::new()
        .git()
        .marks()
        .file("a.txt", "alpha\n")
        .user_config("[providers.openai]\nidle_timeout_s = 1\n[providers.anthropic]\nidle_timeout_s = 1\n")
        .model(model)
        .env("OPENAI_BASE_URL", peer.url("/v1"))
        .env("ANTHROPIC_BASE_URL", peer.url(""))
}

fn run(case: &Case, arguments: &[&str], code: i32) -> Outcome {
    case.run(["--output", "events"].iter().chain(arguments)).exit(code)
}

fn result(outcome: &Outcome) -> Value {
    outcome.events().pop().unwrap()
}

fn reasons(outcome: &Outcome) -> Vec<String> {
    let events = outcome.events_of("retrying");
    events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}

/// The statuses that the peer's journal holds, in order; it is empty afterwards.
fn statuses(peer: &Peer) -> Vec<u64> {
    let journal = peer.get("/__aimock/journal");
    peer.post("/__aimock/reset/journal", &json!({}));
    journal.as_array().unwrap().iter().map(|entry| entry["response"]["status"].as_u64().unwrap_or(0)).collect()
}

/// What the peer answers to the last user text, or to the result of a call.
fn to_text(text: &str, response: &Value) -> Value {
    json!({"match": {"userMessage": text, "hasToolResult": false}, "response": response})
}

fn to_result(call: &str, contains: &str, response: &Value) -> Value {
    json!({"match": {"toolCallId": call, "toolResultContains": contains}, "response": response})
}

fn tool_call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({"id": id, "name": name, "arguments": arguments})
}

#[test]
fn a_conversation_in_both_formats_and_from_one_to_the_other() {
    let read = |id: &str| tool_call(id, "read", &json!({"path": "a.txt"}));
    let marked = |id: &str| tool_call(id, "command", &json!({"argv": mark("a")}));
    let edit = json!({"edits": [{"path": "a.txt", "before": "alpha", "after": "beta"}]});
    let block = |mut call: Value| {
        call["type"] = json!("toolCall");
        call
    };
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107});
    let fixtures = [
        to_text(
            "look, then mark",
            &json!({"content": "I look.", "reasoning": "First I look.", "toolCalls": [read("call_1a"), marked("call_1b")],
                "reasoningSignature": "c2lnbmF0dXJl", "usage": usage}),
        ),
        to_result(
            "call_1b",
            "marked a",
            &json!({"reasoning": "Then I write.", "toolCalls": [tool_call("call_2", "patch", &edit)],
                "reasoningSignature": "c2lnbmF0dXJlIDI=", "usage": usage}),
        ),
        to_result("call_2", "a.txt", &json!({"content": "Both are done.", "usage": usage})),
        to_text(
            "again",
            &json!({"blocks": [block(read("call_3")), {"type": "text", "text": "And once more:"}, block(read("call_4"))]}),
        ),
        to_result("call_4", "beta", &json!({"content": ANSWER})),
        to_text("by the other", &json!({"toolCalls": [read("call_5")]})),
        to_result("call_5", "beta", &json!({"content": "Seen by the other."})),
    ];
    let Some(peer) = start(&fixtures, &[]) else { return };
    for (model, other) in [(MODELS[0], MODELS[1]), (MODELS[1], MODELS[0])] {
        let case = case(&peer, model);
        let outcome = run(&case, &["tell", "--reasoning-effort", "high", "look, then mark"], 10);
        let told: String =
            outcome.events_of("reasoning_delta").iter().map(|event| event["text"].as_str().unwrap()).collect();
        assert_eq!(told, "First I look.", "{model}");
        let outcome = run(&case, &["approve"], 0);
        let object = result(&outcome);
        assert_eq!((&object["text"], &object["rounds"]), (&json!("Both are done."), &json!(3)), "{model}");
        assert_eq!((&object["usage"]["input_tokens"], &object["usage"]["output_tokens"]), (&json!(300), &json!(21)));
        assert_eq!((case.order(), case.read("a.txt")), (vec!["a".to_owned()], "beta\n".to_owned()));
        assert_eq!(result(&run(&case, &["tell", "--reasoning-effort", "none", "again"], 0))["text"], ANSWER);
        let outcome = run(&case, &["tell", "-m", other, "by the other"], 0);
        assert_eq!(result(&outcome)["text"], "Seen by the other.");
        assert_eq!(statuses(&peer), [200; 7], "{model}");
        case.run(["check"]).exit(0);
    }
}

/// A fixture for the prompt `name` that meets with something the first time, and one that answers the second time.
fn once(name: &str, what: &Value) -> [Value; 2] {
    let mut first = json!({"match": {"userMessage": name, "sequenceIndex": 0}, "response": {"content": ANSWER}});
    for (key, value) in what.as_object().unwrap() {
        first[key] = value.clone();
    }
    [first, json!({"match": {"userMessage": name}, "response": {"content": ANSWER}})]
}

/// Meets with one fault, whose wait says `words`, and gets over it.
fn go_through(peer: &Peer, model: &str, name: &str, words: &str) {
    let case = case(peer, model);
    let outcome = run(&case, &["tell", &format!("{name}, {model}")], 0);
    let reasons = reasons(&outcome);
    assert!(reasons.len() == 1 && reasons[0].contains(words), "{name}, {model}: {reasons:?}");
    assert_eq!(result(&outcome)["text"], ANSWER, "{name}, {model}");
    let replies = case.records().iter().filter(|record| record["type"] == "assistant").count();
    assert_eq!(replies, 1, "{name}, {model}");
}

#[test]
fn faults_in_both_formats() {
    let error = |status: u64| json!({"response": {"error": {"message": "The peer's own words", "type": "x"}, "status": status}});
    let faults = [
        ("error 429", error(429), "status 429: The peer's own words"),
        ("error 500", error(500), "status 500: The peer's own words"),
        ("error 529", error(529), "status 529: The peer's own words"),
        ("cut", json!({"truncateAfterChunks": 3, "latency": 20}), "broke off"),
        ("disconnected", json!({"disconnectAfterMs": 100, "latency": 60}), "broke off"),
        ("stalled", json!({"streamingProfile": {"ttft": 10_000}}), "sent nothing for 1 s"),
        ("dropped", json!({"chaos": {"dropRate": 1}}), "status 500"),
        ("limited", json!({"chaos": {"rateLimitRate": 1}}), "status 429"),
        ("garbled", json!({"chaos": {"malformedRate": 1}}), "sent a reply that is not JSON"),
        ("hung up", json!({"chaos": {"disconnectRate": 1}}), ""),
    ];
    let fixtures: Vec<Value> = MODELS
        .iter()
        .flat_map(|model| faults.iter().flat_map(move |(name, what, _)| once(&format!("{name}, {model}"), what)))
        .collect();
    let Some(peer) = start(&fixtures, &[]) else { return };
    std::thread::scope(|scope| {
        for (model, first) in MODELS.into_iter().flat_map(|model| (0..AT_A_TIME).map(move |first| (model, first))) {
            let (peer, faults) = (&peer, &faults);
            scope.spawn(move || {
                for (name, _, words) in faults.iter().skip(first).step_by(AT_A_TIME) {
                    go_through(peer, model, name, words);
                }
            });
        }
    });
    // Each prompt was asked twice, and nothing else was.
    assert_eq!(statuses(&peer).len(), 2 * 2 * faults.len());
    peer.post("/__aimock/error", &json!({"status": 422, "body": {"message": "no", "type": "invalid_request_error"}}));
    let case = case(&peer, MODELS[0]);
    let outcome = run(&case, &["tell", &format!("cut, {}", MODELS[0])], 13);
    assert_eq!((reasons(&outcome).len(), &result(&outcome)["error"]["retryable"]), (0, &json!(false)));
    assert_eq!(result(&run(&case, &["resume"], 0))["text"], ANSWER);
}

/// The peer takes a key in the header of either service; what it does not know it refuses.
#[test]
fn keys_are_sent_as_each_service_takes_them() {
    let fixtures = [to_text("hello", &json!({"content": ANSWER}))];
    let keys = format!("{OPENAI_KEY},{ANTHROPIC_KEY}");
    let Some(peer) = start(&fixtures, &[("AIMOCK_API_KEYS", &keys)]) else { return };
    for (model, variable) in MODELS.into_iter().zip(["OPENAI_API_KEY", "ANTHROPIC_API_KEY"]) {
        assert_eq!(result(&run(&case(&peer, model), &["tell", "hello"], 0))["text"], ANSWER);
        let stranger = case(&peer, model).env(variable, "sk-of-somebody-else-0123456789");
        let outcome = run(&stranger, &["tell", "hello"], 13);
        assert_eq!(result(&outcome)["error"]["code"], "unauthorized");
        outcome.stderr_contains("status 401: Invalid API key").stderr_contains(variable);
    }
}
