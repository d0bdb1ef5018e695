//! Every recorded answer in `fixtures/wire`, against what is to come of it: whole, byte by byte, and cut off.
//!
//! An answer is `NAME.sse` (a stream) or `NAME.json` (one object). `NAME.expected.json` stands beside it: what it is
//! about, and text, reasoning, calls, finish reason, usage and what goes back, or else the error. What is left out there
//! is empty.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::recorded::{Format, Reading, read};
use super::{Finish, Reply};

const EXPECTED: &str = ".expected.json";

struct Recorded {
    name: String,
    format: Format,
    content_type: &'static str,
    bytes: Vec<u8>,
    expected: Map<String, Value>,
}

impl Recorded {
    fn load(format: Format, path: &Path) -> Self {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let beside = path.with_extension("").to_string_lossy().into_owned() + EXPECTED;
        let expected: Value = serde_json::from_slice(&fs_err::read(beside).unwrap()).unwrap();
        let content_type = if path.extension().is_some_and(|extension| extension == "sse") {
            "text/event-stream"
        } else {
            "application/json"
        };
        let expected = expected.as_object().unwrap().clone();
        Self { name, format, content_type, bytes: fs_err::read(path).unwrap(), expected }
    }

    fn read(&self, pieces: impl IntoIterator<Item = Vec<u8>>) -> Reading {
        read(self.format, self.content_type, pieces)
    }
}

/// All answers, in the order of their names.
fn corpus() -> Vec<Recorded> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/wire");
    let mut all = Vec::new();
    for (folder, format) in [("openai", Format::OpenAi), ("anthropic", Format::Anthropic)] {
        let entries = fs_err::read_dir(root.join(folder)).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let (beside, answers): (Vec<PathBuf>, Vec<PathBuf>) =
            paths.into_iter().partition(|path| path.to_string_lossy().ends_with(EXPECTED));
        assert_eq!(beside.len(), answers.len(), "an expectation without its answer");
        all.extend(answers.iter().map(|path| Recorded::load(format, path)));
    }
    all
}

/// What came of an answer, in the words of the expectations.
fn outcome(reading: &Reading) -> Map<String, Value> {
    let mut outcome = Map::new();
    let mut put = |key: &str, value: Value| {
        let is_empty = match &value {
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            other => other.is_null(),
        };
        if !is_empty {
            outcome.insert(key.to_owned(), value);
        }
    };
    match &reading.reply {
        Ok(reply) => {
            put("text", json!(reply.text));
            put("reasoning", json!(reply.reasoning));
            put("calls", json!(reply.tool_calls));
            put("finish", json!(format!("{:?}", reply.finish)));
            put("finish_reason", json!(reply.finish_reason));
            put("usage", json!(reply.usage));
            put("opaque", reply.opaque.clone().unwrap_or_default());
        }
        Err(error) => {
            let shown = json!({"code": error.code, "message": error.message, "retryable": error.retryable});
            put("error", shown);
        }
    }
    outcome
}

#[test]
fn every_answer_is_understood_whole_and_byte_by_byte() {
    for recorded in corpus() {
        let name = &recorded.name;
        let whole = recorded.read([recorded.bytes.clone()]);
        let mut expected = recorded.expected.clone();
        assert!(expected.remove("about").is_some_and(|about| about.is_string()), "{name} says not what it is about");
        expected.remove("complete_earlier");
        let found = outcome(&whole);
        assert_eq!(found, expected, "{name} came out as\n{}", serde_json::to_string_pretty(&found).unwrap());
        if let Ok(reply) = &whole.reply {
            assert_eq!((&reply.text, &reply.reasoning), (&whole.text, &whole.reasoning), "{name}: told was other");
        }
        for size in [1, 2, 7, 1000] {
            let pieces = recorded.bytes.chunks(size).map(<[u8]>::to_vec);
            assert_eq!(recorded.read(pieces), whole, "{name} in pieces of {size} bytes");
        }
    }
}

/// A service that ends its reply more than once has a whole one each time: then all of it is the beginning of the
/// longer one.
fn is_beginning(part: &Reply, whole: &Reply) -> bool {
    whole.text.starts_with(&part.text)
        && whole.reasoning.starts_with(&part.reasoning)
        && whole.tool_calls.starts_with(&part.tool_calls)
}

#[test]
fn what_is_cut_off_is_a_whole_reply_or_to_be_asked_for_again() {
    for recorded in corpus() {
        let name = &recorded.name;
        let whole = recorded.read([recorded.bytes.clone()]).reply;
        let ends_early = recorded.expected.contains_key("complete_earlier");
        let (mut broken, mut complete) = (0, 0);
        for cut in 0..recorded.bytes.len() {
            match (recorded.read([recorded.bytes[..cut].to_vec()]).reply, &whole) {
                (Ok(reply), Ok(whole)) => {
                    complete += 1;
                    // Usage may stand behind the end of the reply itself.
                    let is_whole = Reply { usage: whole.usage, ..reply.clone() } == *whole;
                    let is_sound = is_whole || (ends_early && is_beginning(&reply, whole));
                    assert!(is_sound, "{name} cut at byte {cut} is taken for {reply:?}");
                }
                (Ok(reply), Err(_)) => panic!("{name} cut at byte {cut} is taken for {reply:?}"),
                (Err(error), Err(whole)) if error == *whole => broken += 1,
                (Err(error), _) => {
                    broken += 1;
                    assert!(error.retryable, "{name} cut at byte {cut}: {error:?}");
                    assert!(complete == 0 || ends_early, "{name}: incomplete again at byte {cut}");
                }
            }
        }
        assert!(broken > 0, "{name} was never cut in the middle of the reply");
    }
}

#[test]
fn every_service_is_there_with_a_text_and_with_two_calls() {
    let corpus = corpus();
    let services =
        ["openai", "deepseek", "mistral", "groq", "openrouter", "gemini", "ollama", "llamacpp", "vllm", "anthropic"];
    let finish = json!(format!("{:?}", Finish::End));
    for service in services {
        let of_service = |recorded: &&Recorded| {
            recorded.expected["finish"] == finish
                && match recorded.format {
                    Format::Anthropic => service == "anthropic",
                    Format::OpenAi => recorded.name.starts_with(&format!("{service}-")),
                }
        };
        let replies: Vec<&Recorded> =
            corpus.iter().filter(|recorded| recorded.expected.contains_key("finish")).filter(of_service).collect();
        let calls = |recorded: &Recorded| recorded.expected.get("calls").and_then(Value::as_array).map_or(0, Vec::len);
        assert!(replies.iter().any(|recorded| calls(recorded) == 0), "{service} without calls");
        assert!(replies.iter().any(|recorded| calls(recorded) == 2), "{service} with two calls");
    }
}
