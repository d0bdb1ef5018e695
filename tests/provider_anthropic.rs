//! Anthropic's format against the strict model server: whole conversations, and one that two formats share.

use std::fs;
use std::path::PathBuf;

use attini::config::{Api, Config, ProviderConfig};
use attini::interrupt::Interrupt;
use attini::provider::anthropic::{Anthropic, Settings};
use attini::provider::http::Http;
use attini::provider::{
    AdvertisedTool, AssistantMessage, Finish, Message, Progress, Provider, ProviderError, Reply, Request,
    ResultMessage, connect,
};
use attini::workspace::Workspace;
use attini::workspace::root::Root;
use serde_json::{Value, json};

use crate::support::{ANTHROPIC_KEY, Case, ModelServer, SIGNATURE, reply, repository_path};

/// A conversation with one server, which a turn would hold.
struct Conversation {
    server: ModelServer,
    provider: Box<dyn Provider>,
    provider_name: &'static str,
    messages: Vec<Message>,
}

impl Conversation {
    fn begin(replies: impl IntoIterator<Item = crate::support::Reply>) -> Self {
        let server = ModelServer::start();
        server.script(replies);
        let provider = anthropic(&server);
        Self { server, provider, provider_name: "anthropic", messages: vec![user("go")] }
    }

    /// Speaks to the same server in that format from here on.
    fn switch(&mut self, name: &'static str, api: Api) {
        let base_url = match api {
            Api::OpenAi => self.server.openai_base_url(),
            Api::Anthropic | Api::Scripted => self.server.anthropic_base_url(),
        };
        self.server.allow_no_key();
        let mut config = Config::default();
        let configured = ProviderConfig { api: Some(api), base_url: Some(base_url), ..ProviderConfig::default() };
        config.providers.insert(name.to_owned(), configured);
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::new(Root::open(folder.path()).unwrap());
        let connected = connect(&format!("{name}/test-model"), &config, &workspace).unwrap();
        (self.provider, self.provider_name) = (connected.provider, name);
    }

    fn try_ask(&self, tool_choice_none: bool) -> (Result<Reply, ProviderError>, usize) {
        let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        let tool = |name: &str| AdvertisedTool {
            name: name.to_owned(),
            description: "Reads.".to_owned(),
            parameters: parameters.clone(),
        };
        let request = Request {
            model: "test-model",
            system: "You are attini.",
            messages: &self.messages,
            tools: &[tool("read"), tool("list")],
            temperature: Some(0.5),
            reasoning_effort: Some("low"),
            tool_choice_none,
            ..Request::default()
        };
        let mut retries = 0;
        let mut observe =
            |progress: Progress<'_>| retries += usize::from(matches!(progress, Progress::Retrying { .. }));
        let result = self.provider.complete(&request, &Interrupt::default(), &mut observe);
        (result, retries)
    }

    /// Asks, and adds the reply and a result of each of its calls to the conversation.
    #[track_caller]
    fn ask(&mut self) -> Reply {
        let reply = self.try_ask(false).0.unwrap();
        self.messages.push(Message::Assistant(AssistantMessage {
            provider: self.provider_name.to_owned(),
            model: "test-model".to_owned(),
            text: reply.text.clone(),
            reasoning: reply.reasoning.clone(),
            tool_calls: reply.tool_calls.clone(),
            opaque: reply.opaque.clone(),
        }));
        let results: Vec<ResultMessage> = reply
            .tool_calls
            .iter()
            .map(|call| ResultMessage {
                call_id: call.id.clone(),
                name: call.name.clone(),
                content: format!("result of {}", call.id),
                is_error: call.name != "read",
                images: Vec::new(),
            })
            .collect();
        if !results.is_empty() {
            self.messages.push(Message::Results(results));
        }
        reply
    }

    fn last_messages(&self) -> Vec<Value> {
        self.server.last_request().messages().to_vec()
    }
}

fn anthropic(server: &ModelServer) -> Box<dyn Provider> {
    let settings = Settings {
        provider: "anthropic".to_owned(),
        models_url: String::new(),
        url: format!("{}/v1/messages", server.anthropic_base_url()),
        key_variable: Some("ANTHROPIC_API_KEY".to_owned()),
        key: Some(ANTHROPIC_KEY.to_owned()),
        takes_output_schema: true,
    };
    Box::new(Anthropic::new(Http::load("anthropic", &server.anthropic_base_url(), &|_| None).unwrap(), settings))
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

#[test]
fn rounds_of_calls_go_on_with_the_thoughts_before_them() {
    let mut conversation = Conversation::begin([
        reply()
            .reasoning("Look first.")
            .text("I look.")
            .call("read", json!({"path": "a"}))
            .call("list", json!({}))
            .usage(1200, 30, 1000),
        reply().call("read", json!({"path": "b"})).unstreamed(),
        reply().text("Half").finish("length"),
        reply().text("and half.").chunk_bytes(1),
    ]);
    let first = conversation.ask();
    assert_eq!((first.text.as_str(), first.reasoning.as_str()), ("I look.", "Look first."));
    assert_eq!((first.usage.input_tokens, first.usage.cached_input_tokens), (1200, 1000));
    conversation.ask();
    let sent = conversation.last_messages();
    assert_eq!(sent[1]["content"][0], json!({"type": "thinking", "thinking": "Look first.", "signature": SIGNATURE}));
    assert_eq!(sent[2]["content"][1]["is_error"], true);
    let half = conversation.ask();
    assert_eq!(half.finish, Finish::Length);
    assert_eq!(conversation.ask().text, "and half.");
    assert_eq!(conversation.server.last_request().last_user_text().unwrap(), "Please go on.");
    conversation.messages.push(user("thanks"));
    conversation.server.script([reply().text("Bye.")]);
    conversation.ask();
    let request = conversation.server.last_request();
    assert_eq!(
        (request.body["thinking"]["budget_tokens"].as_u64(), request.body.get("temperature")),
        (Some(2048), None)
    );
    assert_eq!(request.header("x-api-key"), Some(ANTHROPIC_KEY));
    conversation.server.finish();
}

#[test]
fn calls_that_a_model_writes_badly_are_sent_back_as_a_service_takes_them() {
    let mut conversation = Conversation::begin([
        reply().raw_call("functions.read:0", "read.file", "{\"path\": ").raw_call("b c", "", "[]"),
        reply().text(" \n").finish("stop"),
        reply().text("Done."),
    ]);
    assert_eq!(conversation.ask().tool_calls[0].arguments, "{\"path\": ");
    conversation.ask();
    conversation.messages.push(user("and now?"));
    assert_eq!(conversation.ask().text, "Done.");
    assert_eq!(conversation.last_messages().len(), 3);
    conversation.server.finish();
}

#[test]
fn a_pause_is_gone_on_from() {
    let mut conversation =
        Conversation::begin([reply().text("Wait.").finish("pause_turn"), reply().text("Done."), reply().text("Yes.")]);
    assert_eq!(conversation.ask().finish, Finish::Pause);
    assert_eq!(conversation.ask().text, "Done.");
    assert_eq!(conversation.last_messages().last().unwrap()["role"], "assistant");
    conversation.messages.push(user("sure?"));
    assert_eq!(conversation.ask().text, "Yes.");
    conversation.server.finish();
}

#[test]
fn a_question_on_the_side_offers_the_tools_and_forbids_them() {
    let answer = reply().text("A file.").on_the_side();
    let mut conversation = Conversation::begin([reply().call("read", json!({"path": "a"})), answer]);
    conversation.ask();
    assert_eq!(conversation.try_ask(true).0.unwrap().text, "A file.");
    let request = conversation.server.last_request();
    assert_eq!(request.body["tool_choice"], json!({"type": "none"}));
    assert_eq!(request.tool_names(), ["read", "list"]);
    conversation.switch("other", Api::OpenAi);
    conversation.server.script([reply().text("The same.").on_the_side()]);
    assert_eq!(conversation.try_ask(true).0.unwrap().text, "The same.");
    assert_eq!(conversation.server.last_request().body["tool_choice"], "none");
    conversation.server.finish();
}

#[test]
fn what_may_be_temporary_is_tried_again_and_the_rest_is_told() {
    let now = |reply: crate::support::Reply| reply.header("Retry-After", "0.001");
    let conversation = Conversation::begin([
        now(reply().error(529, "Overloaded")),
        now(reply().text("Hel").error_in_stream("overloaded_error")),
        now(reply().text("Hello").cut_after(400)),
        reply().text("Hello"),
        reply().error(400, "prompt is too long: 200001 tokens > 200000 maximum"),
        reply().finish("content_filter"),
    ]);
    let (result, retries) = conversation.try_ask(false);
    assert_eq!((result.unwrap().text.as_str(), retries), ("Hello", 3));
    let (result, retries) = conversation.try_ask(false);
    assert_eq!((result.unwrap_err().code.as_str(), retries), ("context_overflow", 0));
    assert_eq!(conversation.try_ask(false).0.unwrap().finish, Finish::Refusal);
    conversation.server.finish();
}

/// The recorded streams of a format that are replies, by name, with what is to come of each.
fn recorded_replies(format: &str) -> Vec<(PathBuf, Value)> {
    let folder = repository_path("fixtures/wire").join(format);
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|name| name.extension().is_some_and(|extension| extension == "sse"));
    names.sort();
    let expected = |name: &PathBuf| {
        let beside = name.with_extension("expected.json");
        serde_json::from_slice::<Value>(&fs::read(beside).unwrap()).unwrap()
    };
    let replies = names.into_iter().map(|name| (name.clone(), expected(&name)));
    replies.filter(|(_, expected)| expected.get("error").is_none()).collect()
}

#[test]
fn every_stream_comes_through_a_connection() {
    for format in ["anthropic", "openai"] {
        let replies = recorded_replies(format);
        assert!(replies.len() > 15, "{replies:?}");
        let mut conversation = Conversation::begin([]);
        if format == "openai" {
            conversation.switch("other", Api::OpenAi);
        }
        for (name, expected) in replies {
            let bytes = fs::read(&name).unwrap();
            conversation.server.script([reply().raw(&bytes), reply().raw(&bytes).chunk_bytes(11)]);
            let (whole, retries) = conversation.try_ask(false);
            let (pieces, _) = conversation.try_ask(false);
            let name = name.display();
            assert_eq!(whole.as_ref().unwrap(), pieces.as_ref().unwrap(), "{name}");
            let reply = whole.unwrap();
            assert_eq!(reply.text, expected["text"].as_str().unwrap_or_default(), "{name}");
            let calls = expected["calls"].as_array().map_or(0, Vec::len);
            assert_eq!(reply.tool_calls.len(), calls, "{name}");
            let anew = usize::from(name.to_string().ends_with("begun-anew.sse"));
            assert_eq!(retries, anew, "{name}");
        }
        conversation.server.finish();
    }
}

#[test]
fn a_session_is_taken_from_one_format_to_the_other_and_back() {
    let mut conversation = Conversation::begin([
        reply().reasoning("First.").text("I look.").call("read", json!({"path": "a"})),
        reply().reasoning("Second.").raw_call("functions.read:1", "read.file", "{\"path\""),
        reply().reasoning("Third.").call("list", json!({})),
        reply().text("Done."),
    ]);
    conversation.ask();
    conversation.switch("other", Api::OpenAi);
    conversation.ask();
    assert!(!conversation.server.last_request().body.to_string().contains("First."));
    conversation.ask();
    assert!(conversation.server.last_request().body.to_string().contains("Second."));
    conversation.provider = anthropic(&conversation.server);
    conversation.provider_name = "anthropic";
    assert_eq!(conversation.ask().text, "Done.");
    let sent = conversation.last_messages();
    assert_eq!(sent[1]["content"][0]["signature"], SIGNATURE);
    let text = Value::Array(sent).to_string();
    assert!(text.contains("First.") && !text.contains("Second.") && !text.contains("Third."), "{text}");
    // The same format at another service is another provider.
    conversation.switch("acme", Api::Anthropic);
    conversation.server.script([reply().text("Yes.").starts_history()]);
    conversation.messages.push(user("sure?"));
    assert_eq!(conversation.ask().text, "Yes.");
    assert!(!Value::Array(conversation.last_messages()).to_string().contains("First."));
    conversation.server.finish();
}

#[test]
fn the_command_line_speaks_it_and_changes_providers_between_turns() {
    let case = Case::new().anthropic().file("a.txt", "one\n").script([
        reply().reasoning("First.").call("read", json!({"path": "a.txt"})).call("list", json!({})),
        reply().text("It says one."),
        reply().reasoning("Second.").call("read", json!({"path": "a.txt"})),
        reply().text("Still one."),
        reply().text("Both agree."),
    ]);
    case.run(["tell", "What does it say?"]).exit(0).stdout_contains("It says one.");
    let request = case.server().last_request();
    assert_eq!(request.messages()[1]["content"][0]["signature"], SIGNATURE);
    assert!(request.results()[0].1.contains("one"));
    case.run(["tell", "--model", "openai/test-model", "And now?"]).exit(0).stdout_contains("Still one.");
    assert!(!case.server().last_request().body.to_string().contains("First."));
    case.run(["tell", "--model", "anthropic/test-model", "Well?"]).exit(0).stdout_contains("Both agree.");
    let text = case.server().last_request().body.to_string();
    assert!(text.contains("First.") && !text.contains("Second."), "{text}");
    case.server().finish();
}
