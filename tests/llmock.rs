//! `llmock`, a model server that breaks its answers as it is told and judges how the client took it, in both wire
//! formats, where `ATTINI_TEST_PEERS` is set to 1. Its verdict must hold neither an error nor a warning, but where it
//! is said why.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::support::{ANTHROPIC_KEY, Case, Format, OPENAI_KEY, Outcome, Peer, mark, mark_rule};

const ANSWER: &str = "This answer comes in many small pieces, so that it can be cut anywhere.";

/// So long does a configured service keep silent here; less than a stall of the peer.
const CONFIG: &str = "[providers.openai]\nidle_timeout_s = 1\n[providers.anthropic]\nidle_timeout_s = 1\n";

/// How many of the faults are gone through at a time.
const AT_A_TIME: usize = 10;

struct LlMock {
    peer: Peer,
}

impl LlMock {
    /// `None` where no peers are to be tested. Streams are paced, as a model's are: what is sent at once is sent before
    /// a client could stop reading it.
    fn start(options: &[&str]) -> Option<Self> {
        let arguments = [&["serve", "--port", "0", "--stream-chunk-delay-ms", "20"], options].concat();
        let peer = Peer::start("venv/bin/llmock", &arguments, &[], &[], "Uvicorn running on")?;
        Some(Self { peer })
    }

    /// A case whose model is this server's.
    fn case(&self, format: Format, model: &str) -> Case {
        let provider = match format {
            Format::OpenAi => "openai",
            Format::Anthropic => "anthropic",
        };
        Case::new()
            .git()
            .marks()
            .file("a.txt", "alpha\n")
            .user_config(CONFIG)
            .model(&format!("{provider}/{model}"))
            .env("OPENAI_BASE_URL", self.peer.url("/v1"))
            .env("ANTHROPIC_BASE_URL", self.peer.url("/anthropic"))
    }

    /// What the requests that come next meet with.
    #[track_caller]
    fn script(&self, behaviors: &[Value]) {
        self.peer.post("/_llmock/scenario", &json!({"behaviors": behaviors}));
    }

    /// Forgets what was asked; what is scripted and what is spent of a quota stay.
    fn forget_requests(&self) {
        self.peer.delete("/_llmock/requests");
    }

    /// What was asked, each fit for a strict service.
    #[track_caller]
    fn requests(&self) -> Vec<Value> {
        let requests = self.peer.get("/_llmock/requests")["requests"].as_array().unwrap().clone();
        for request in &requests {
            let format = if request["provider"] == "openai" { Format::OpenAi } else { Format::Anthropic };
            let found = format.check(&request["body"]);
            assert!(found.is_empty(), "{found:?}\n{}", request["body"]);
        }
        requests
    }

    /// The verdict holds nothing but these findings (their codes), over so many calls, attempts and faults; everything
    /// that was scripted has happened.
    #[track_caller]
    fn assert_verdict(&self, findings: &[&str], counts: [usize; 3]) {
        let (verdict, requests) = (self.peer.get("/_llmock/verdict"), self.requests());
        let found: Vec<&str> =
            verdict["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect();
        let seen = requests.iter().fold(String::new(), |mut text, request| {
            let field = |key: &str| request[key].clone();
            writeln!(
                text,
                "{} {}: {} {} {} s",
                field("seq"),
                field("model"),
                field("status"),
                field("fault"),
                field("duration")
            )
            .unwrap();
            text
        });
        assert_eq!(found, findings, "{verdict:#}\n{seen}");
        assert_eq!(verdict["passed"], true, "{verdict:#}\n{seen}");
        let counted = ["calls", "attempts", "faults_injected"].map(|key| verdict[key].as_u64().unwrap());
        assert_eq!(counted, counts.map(|count| count as u64), "calls, attempts, faults\n{seen}");
        if findings.is_empty() {
            let words = self.peer.get("/_llmock/verdict?format=text");
            assert!(words.as_str().unwrap().contains("PASS  the client handled every injected fault correctly."));
        }
        assert_eq!(self.peer.get("/_llmock/scenario"), json!({"pending": []}));
    }
}

/// Runs a test against a server of its own for each format, both at a time: most of it is waiting.
fn in_both_formats(options: &[&str], test: impl Fn(&LlMock, Format) + Sync) {
    std::thread::scope(|scope| {
        for format in [Format::OpenAi, Format::Anthropic] {
            let test = &test;
            scope.spawn(move || {
                if let Some(server) = LlMock::start(options) {
                    test(&server, format);
                }
            });
        }
    });
}

fn run(case: &Case, arguments: &[&str], code: i32) -> Outcome {
    case.run(["--output", "events"].iter().chain(arguments)).exit(code)
}

fn result(outcome: &Outcome) -> Value {
    outcome.events().pop().unwrap()
}

fn replies(case: &Case) -> Vec<Value> {
    let mut records = case.records();
    records.retain(|record| record["type"] == "assistant");
    records
}

/// The reasons of the waits, which are told on stderr and as events, and get longer unless the service says how long.
#[track_caller]
fn waits(outcome: &Outcome) -> Vec<String> {
    let events = outcome.events_of("retrying");
    let stderr = outcome.stderr_text();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["attempt"], index + 2);
        assert!(event["delay_ms"].as_u64().unwrap() >= 750, "{event}");
        let line = format!("attempt {} in ", index + 2);
        assert!(stderr.lines().any(|shown| shown.starts_with(&line)), "{line}\n{stderr}");
    }
    events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}

/// A fault that is temporary: what is scripted in front of the answer, and what each wait says.
struct Fault(Vec<Value>, &'static [&'static str]);

/// Each fault of the wire that asking again gets over.
fn temporary_faults() -> Vec<Fault> {
    let stream = |kind: &str, after_chunks: u64| {
        let reply = json!({"type": "reply", "text": "word ".repeat(100)});
        vec![json!({"type": "stream_fault", "kind": kind, "after_chunks": after_chunks, "stall_seconds": 10}), reply]
    };
    let status = |status: u64| vec![json!({"type": "fail", "status": status})];
    vec![
        Fault(vec![json!({"type": "fail", "status": 429, "retry_after": 1.2})], &["status 429: Rate limit exceeded"]),
        Fault(status(408), &["status 408: Request timeout"]),
        Fault(status(409), &["status 409: Conflict"]),
        Fault([status(500), status(502)].concat(), &["status 500: Internal server error", "status 502: Bad gateway"]),
        Fault(status(503), &["status 503: Service unavailable"]),
        Fault(status(504), &["status 504: Gateway timeout"]),
        Fault(status(529), &["status 529: Service overloaded"]),
        Fault(stream("disconnect", 0), &["broke off"]),
        Fault(stream("disconnect", 4), &["broke off: "]),
        Fault(stream("truncate", 0), &["broke off before it was complete"]),
        Fault(stream("truncate", 4), &["broke off before it was complete"]),
        Fault(stream("malformed", 0), &["sent an event that is not JSON"]),
        Fault(stream("malformed", 4), &["sent an event that is not JSON"]),
        Fault(stream("stall", 4), &["sent nothing for 1 s"]),
        Fault([stream("truncate", 2), stream("disconnect", 3)].concat(), &["before it was complete", "broke off: "]),
    ]
}

/// Goes through one fault, alone in a session of its own; the model's name tells the peer whose turn it is.
fn go_through(server: &LlMock, format: Format, model: &str, fault: &Fault) {
    let answer = json!({"type": "reply", "text": ANSWER});
    let mut behaviors = [&fault.0[..], &[answer]].concat();
    for behavior in &mut behaviors {
        behavior["match"] = json!({"model": model});
    }
    server.script(&behaviors);
    let case = server.case(format, model);
    let outcome = run(&case, &["tell", "go"], 0);
    let reasons = waits(&outcome);
    assert_eq!(reasons.len(), fault.1.len(), "{model}: {reasons:?}");
    for (reason, words) in reasons.iter().zip(fault.1) {
        assert!(reason.contains(words), "{model}: {reason}");
    }
    let result = result(&outcome);
    assert_eq!((&result["status"], &result["text"]), (&json!("completed"), &json!(ANSWER)), "{model}");
    let replies = replies(&case);
    assert_eq!(replies.len(), 1, "{model}: what was cut left something in the log");
    assert_eq!(replies[0]["text"], ANSWER, "{model}");
}

#[test]
fn every_temporary_fault_is_got_over() {
    let Some(server) = LlMock::start(&[]) else { return };
    let faults = temporary_faults();
    let formats = [Format::OpenAi, Format::Anthropic];
    let named: Vec<(String, Format, &Fault)> = formats
        .into_iter()
        .flat_map(|format| faults.iter().enumerate().map(move |(index, fault)| (format, index, fault)))
        .map(|(format, index, fault)| (format!("{format:?}-{index}"), format, fault))
        .collect();
    std::thread::scope(|scope| {
        for first in 0..AT_A_TIME {
            let (server, named) = (&server, &named);
            scope.spawn(move || {
                for (model, format, fault) in named.iter().skip(first).step_by(AT_A_TIME) {
                    go_through(server, *format, model, fault);
                }
            });
        }
    });
    let injected = named.iter().map(|(_, _, fault)| fault.1.len()).sum();
    server.assert_verdict(&[], [named.len(), named.len() + injected, injected]);
}

/// What asking again does not change is told at once; `resume` goes on once it is mended.
fn go_through_lasting_faults(server: &LlMock, format: Format) {
    for (status, code) in [
        (400, "provider_error"),
        (401, "unauthorized"),
        (403, "unauthorized"),
        (404, "provider_error"),
        (413, "context_overflow"),
        (422, "provider_error"),
    ] {
        server.script(&[json!({"type": "fail", "status": status, "message": "The peer's own words."})]);
        let case = server.case(format, "m");
        let outcome = run(&case, &["tell", "go"], 13);
        assert_eq!(waits(&outcome), [""; 0], "{status}");
        let error = result(&outcome)["error"].clone();
        assert_eq!((&error["code"], &error["retryable"]), (&json!(code), &json!(false)), "{status}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("status {status}: The peer's own words.")), "{message}");
        assert_eq!(replies(&case).len(), 0, "{status}");
        server.assert_verdict(&[], [1, 1, 1]);
        // To the peer a person who goes on is a client that repeats the same request.
        server.forget_requests();
        server.script(&[json!({"type": "reply", "text": ANSWER})]);
        assert_eq!(result(&run(&case, &["resume"], 0))["text"], ANSWER);
        server.assert_verdict(&[], [1, 1, 0]);
        server.forget_requests();
    }
}

/// A `Retry-After` that is waited for by nobody, and an outage that outlasts every try.
fn go_through_outages(server: &LlMock, format: Format) {
    let case = server.case(format, "m");
    server.script(&[json!({"type": "fail", "status": 429, "retry_after": 300})]);
    let outcome = run(&case, &["tell", "go"], 13);
    assert_eq!(waits(&outcome), [""; 0]);
    let error = result(&outcome)["error"].clone();
    assert_eq!((&error["code"], &error["retryable"]), (&json!("rate_limited"), &json!(true)));
    assert!(error["hint"].as_str().unwrap().starts_with("try again in 300 s (at 2"), "{error}");
    // The peer takes it for a client that does not know of retrying: it cannot see that a person was told when.
    server.assert_verdict(&["gave_up"], [1, 1, 1]);
    server.forget_requests();

    // The last refusal names no time, which an immediate `resume` would not keep.
    let refused = json!({"type": "fail", "status": 503, "retry_after": 1, "times": 4});
    server.script(&[refused, json!({"type": "fail", "status": 500})]);
    let outcome = run(&case, &["resume"], 13);
    assert_eq!(waits(&outcome).len(), 4);
    let error = result(&outcome)["error"].clone();
    assert_eq!(error["retryable"], true);
    assert!(error["message"].as_str().unwrap().ends_with("Internal server error. (tried 5 times)"), "{error}");
    server.script(&[json!({"type": "reply", "text": ANSWER})]);
    assert_eq!(result(&run(&case, &["resume"], 0))["text"], ANSWER);
    assert_eq!(replies(&case).len(), 1);
    server.assert_verdict(&[], [1, 6, 5]);
    server.forget_requests();
}

#[test]
fn lasting_faults_wrong_replies_and_outages() {
    in_both_formats(&[], |server, format| {
        go_through_lasting_faults(server, format);
        go_through_wrong_replies(server, format);
        go_through_outages(server, format);
    });
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

fn marked(letter: &str) -> Value {
    call("command", &json!({"argv": mark(letter)}))
}

fn says(text: &str, tool_calls: &[Value], times: u64) -> Value {
    json!({"type": "reply", "text": text, "tool_calls": tool_calls, "times": times})
}

/// The status and code of the results in the log, in order.
fn outcomes(case: &Case) -> Vec<(String, String)> {
    let records = case.records();
    let results = records.iter().filter(|record| record["type"] == "tool_result");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    results.map(|result| (text(&result["status"]), text(&result["code"]))).collect()
}

/// What is wrong in a reply that came whole: calls that cannot be run, and endings that are no answer.
fn go_through_wrong_replies(server: &LlMock, format: Format) {
    for (kind, code) in [("malformed_arguments", "invalid_arguments"), ("unknown_tool", "unknown_tool")] {
        let read = call("read", &json!({"path": "a.txt"}));
        server.script(&[
            says("", &[read.clone(), read], 1),
            json!({"type": "tool_fault", "kind": kind}),
            says(ANSWER, &[], 1),
        ]);
        let case = server.case(format, "m");
        let outcome = run(&case, &["tell", "go"], 0);
        assert_eq!(
            (result(&outcome)["text"].clone(), result(&outcome)["tool_calls"].clone()),
            (json!(ANSWER), json!(2))
        );
        let ok = ("ok".to_owned(), String::new());
        assert_eq!(outcomes(&case), [("error".to_owned(), code.to_owned()), ok]);
        server.assert_verdict(&[], [2, 2, 0]);
        server.forget_requests();
    }
    for (reason, exit_code, code) in [("length", 14, "limit_reached"), ("content_filter", 13, "")] {
        server.script(&[json!({"type": "reply", "text": "Half an", "finish_reason": reason}), says(ANSWER, &[], 1)]);
        let case = server.case(format, "m");
        let outcome = run(&case, &["tell", "go"], exit_code);
        assert_eq!(waits(&outcome), [""; 0]);
        let object = result(&outcome);
        assert_eq!((&object["text"], &object["error"]["retryable"]), (&json!("Half an"), &json!(exit_code == 14)));
        let refused = match format {
            Format::OpenAi => "content_filter",
            Format::Anthropic => "refusal",
        };
        assert_eq!(object["error"]["code"], if code.is_empty() { refused } else { code });
        assert_eq!(result(&run(&case, &["resume"], 0))["text"], ANSWER);
        server.assert_verdict(&[], [2, 2, 0]);
        server.forget_requests();
    }
}

/// The peer's own context window, past which it refuses a prompt in the words of the service it plays; one summary
/// makes the conversation fit again.
fn go_through_a_small_window(server: &LlMock, format: Format) {
    let case = server.case(format, "m").file("long.txt", "many words and more\n".repeat(800));
    server.script(&[
        says("", &[call("read", &json!({"path": "long.txt"}))], 1),
        says("This is lost with the request that is refused.", &[], 1),
        says("long.txt holds many words.", &[], 1),
        says(ANSWER, &[], 1),
    ]);
    let outcome = run(&case, &["tell", "look at long.txt"], 0);
    assert_eq!((result(&outcome)["text"].clone(), outcome.events_of("compacted").len()), (json!(ANSWER), 1));
    assert_eq!(waits(&outcome), [""; 0]);
    let requests = server.requests();
    let statuses: Vec<&Value> = requests.iter().map(|request| &request["status"]).collect();
    assert_eq!(statuses, [200, 400, 200, 200]);
    assert!(requests[3]["body"].to_string().contains("long.txt holds many words."));
    server.assert_verdict(&[], [4, 4, 1]);
}

/// A real quota of a request a second, spent before attini comes: each request is refused first, and told when.
fn go_through_a_quota(server: &LlMock, format: Format) {
    let (path, headers) = match format {
        Format::OpenAi => ("/v1/chat/completions", ("authorization", format!("Bearer {OPENAI_KEY}"))),
        Format::Anthropic => ("/anthropic/v1/messages", ("x-api-key", ANTHROPIC_KEY.to_owned())),
    };
    let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]});
    let spent = (0..200).find(|_| server.peer.send(path, &[(headers.0, &headers.1)], &body).0 == 429);
    assert!(spent.is_some(), "the quota has no end");
    server.forget_requests();
    // Nothing is scripted: the peer calls a tool of those that are offered, then says something.
    let case = server.case(format, "m");
    let mut refused = 0;
    for _ in 0..2 {
        let outcome = run(&case, &["tell", "--read-only", "list the files"], 0);
        assert_eq!((&result(&outcome)["rounds"], &result(&outcome)["tool_calls"]), (&json!(2), &json!(1)));
        for event in &outcome.events_of("retrying") {
            let reason = event["reason"].as_str().unwrap();
            assert!(reason.contains("Rate limit reached for requests per minute: limit 60"), "{reason}");
            assert_eq!(event["delay_ms"], 1000);
            refused += 1;
        }
    }
    assert!(refused > 0);
    server.assert_verdict(&[], [4, 4 + refused, refused]);
}

#[test]
fn a_small_window_and_a_quota() {
    in_both_formats(&["--context-window", "3000", "--rpm", "60"], |server, format| {
        go_through_a_small_window(server, format);
        server.forget_requests();
        go_through_a_quota(server, format);
    });
}

/// One session of three turns with every kind of fault in it, through a suspension and an outage.
fn go_through_a_conversation(server: &LlMock, format: Format) {
    let case = server.case(format, "m").rules([mark_rule("x", true)]);
    let broken = |kind: &str| json!({"type": "stream_fault", "kind": kind, "after_chunks": 3, "stall_seconds": 10});
    let read = || call("read", &json!({"path": "a.txt"}));
    let long = "I look at what is there, and then I do what I was asked to do, step by step. ".repeat(5);

    server.script(&[
        broken("disconnect"),
        broken("truncate"),
        says("I look.", &[read(), marked("x")], 3),
        says("May I?", &[marked("a"), read()], 1),
    ]);
    let outcome = run(&case, &["tell", "mark x, then a"], 10);
    assert_eq!(waits(&outcome).len(), 2);
    assert_eq!(case.order(), ["x"]);

    let edits = json!({"edits": [{"path": "a.txt", "before": "alpha", "after": "beta"}]});
    server.script(&[broken("malformed"), says(&long, &[call("patch", &edits)], 2), says("Both are marked.", &[], 1)]);
    let outcome = run(&case, &["approve"], 0);
    assert_eq!(waits(&outcome).len(), 1);
    assert_eq!((case.order(), case.read("a.txt")), (vec!["x".to_owned(), "a".to_owned()], "beta\n".to_owned()));

    server.script(&[
        broken("stall"),
        json!({"type": "tool_fault", "kind": "malformed_arguments", "times": 2}),
        json!({"type": "tool_fault", "kind": "unknown_tool"}),
        says("", &[marked("x")], 3),
        says("I cannot.", &[], 1),
    ]);
    let outcome = run(&case, &["tell", "mark x again"], 0);
    assert_eq!(waits(&outcome).len(), 1);
    assert_eq!(case.order(), ["x", "a"]);

    let refused = |status: u64| json!({"type": "fail", "status": status, "retry_after": 1});
    let last = json!({"type": "fail", "status": 500});
    server.script(&[refused(429), refused(529), refused(503), refused(429), last]);
    let outcome = run(&case, &["tell", "mark x now"], 13);
    assert_eq!((waits(&outcome).len(), &result(&outcome)["error"]["retryable"]), (4, &json!(true)));
    server.script(&[says("", &[marked("x")], 1), says("Now it is.", &[], 1)]);
    let outcome = run(&case, &["resume"], 0);
    assert_eq!(result(&outcome)["text"], "Now it is.");
    assert_eq!(case.order(), ["x", "a", "x"]);

    let text = |reply: &Value| reply["text"].as_str().unwrap_or_default().to_owned();
    let texts: Vec<String> = replies(&case).iter().map(text).collect();
    assert_eq!(texts, ["I look.", "May I?", &long, "Both are marked.", "", "", "I cannot.", "", "Now it is."]);
    let codes: Vec<String> = outcomes(&case).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes, ["", "", "", "", "", "invalid_arguments", "unknown_tool", ""]);
    case.run(["check"]).exit(0);
    server.assert_verdict(&[], [9, 18, 9]);
}

#[test]
fn a_conversation() {
    in_both_formats(&[], go_through_a_conversation);
}
