//! A conversation of hundreds of rounds in which everything goes wrong that can, with a service that takes nothing but
//! what is right: other providers and models in the middle of it, faults of services, oddities of models, kills.
//!
//! What happens is drawn from a fixed seed, so that it is the same each time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::{Case, Format, Latch, Reply, mark_rule, reply};

const ROUNDS_MIN: usize = 200;
const SEED: u64 = 20_010_203;
/// Of Anthropic's, one that thinks by a budget and one that thinks as much as it likes.
const MODELS: [&str; 4] =
    ["openai/test-model", "anthropic/test-model", "openai/other-model", "anthropic/claude-opus-4-6"];
const EFFORTS: [&str; 3] = ["none", "low", "high"];
/// How often a request is sent at most.
const TRIES_MAX: usize = 5;

/// Numbers that look drawn by lot.
struct Lot(u64);

impl Lot {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound as u64).unwrap()
    }
}

/// How a turn ends, or is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Text,
    Length,
    Refusal,
    /// The service refuses the request for good.
    Refused,
    /// It fails as often as it is asked.
    Exhausted,
    KilledBeforeReply,
    KilledInReply,
}

const ENDS: [End; 9] = [
    End::Text,
    End::Text,
    End::Text,
    End::Length,
    End::Refusal,
    End::Refused,
    End::Exhausted,
    End::KilledBeforeReply,
    End::KilledInReply,
];

struct Conversation {
    case: Case,
    lot: Lot,
    replies: usize,
    retries_scripted: usize,
    retries_told: usize,
    ends: BTreeMap<End, usize>,
}

impl Conversation {
    fn begin() -> Self {
        let case = Case::new().marks().file("a.txt", "alpha\n").file("b.txt", "beta\n").rules([mark_rule("x", true)]);
        let lot = Lot(SEED);
        Self { case, lot, replies: 0, retries_scripted: 0, retries_told: 0, ends: BTreeMap::new() }
    }

    fn script(&self, reply: Reply) {
        self.case.server().script([reply]);
    }

    /// A reply that comes to nothing, and is asked for again at once.
    fn script_faults(&mut self) {
        for _ in 0..self.lot.below(3) {
            let fault = match self.lot.below(7) {
                0 => reply().error(429, "slow down"),
                1 => reply().error(500, "oh no"),
                2 => reply().error(529, "overloaded"),
                3 => reply().text("never to be seen").read("a.txt").cut_after(150 + self.lot.below(200)),
                4 => reply().raw("data: {\"choices\": nonsense\n\n"),
                5 => reply().text("never").error_in_stream("overloaded_error"),
                _ => reply().error(409, "somebody else is at it"),
            };
            self.script(fault.header("Retry-After", "0.001"));
            self.retries_scripted += 1;
        }
        if self.lot.below(10) == 0 {
            self.script(reply().text(" \n"));
            self.retries_scripted += 1;
        }
    }

    /// What marks everything that a model thought as its own.
    fn thought(model: &str) -> String {
        format!("<thought of {model}>")
    }

    fn dressed(&mut self, model: &str, mut reply: Reply) -> Reply {
        self.replies += 1;
        if self.lot.below(2) == 0 {
            reply = reply.reasoning(&Self::thought(model));
        }
        match self.lot.below(6) {
            0 => reply.unstreamed(),
            1 => reply.chunk_bytes(1 + self.lot.below(40)),
            2 => reply.without_done(),
            _ => reply,
        }
    }

    /// A reply with calls, good and bad ones.
    fn script_calls(&mut self, model: &str) {
        let mut said = if self.lot.below(2) == 0 { reply().text("I look.") } else { reply() };
        for _ in 0..=self.lot.below(3) {
            said = match self.lot.below(10) {
                0 => said.raw_call("", "read", "{\"path\": \"a.txt\"}"),
                1 => said.raw_call("call_1", "read", "{\"path\": \"b.txt\"}"),
                2 => said.raw_call("functions.read:0", "read", "{\"path\": \"a.txt\"}"),
                3 => said.raw_call("cut", "read", "{\"path\": \"a.t"),
                4 => said.raw_call("list", "read", "[\"a.txt\"]"),
                5 => said.raw_call("nobody", "no such/tool", "{}"),
                6 => said.raw_call("", &"n".repeat(90), "null"),
                7 => said.mark("x"),
                8 => said.call("list", json!({"path": "."})),
                _ => said.read("b.txt"),
            };
        }
        self.script_faults();
        let said = self.dressed(model, said);
        self.script(said);
    }

    /// Runs it to its end, which is as expected.
    #[track_caller]
    fn run(&mut self, arguments: &[&str], code: i32) {
        let arguments = ["--output", "events"].iter().chain(arguments);
        let outcome = self.case.run(arguments).exit(code);
        self.retries_told += outcome.events_of("retrying").len();
    }

    fn kill(&self, arguments: &[&str], held: Reply, latch: &Latch) {
        let before = self.case.server().request_count();
        let requests = before + 1;
        self.script(held);
        let running = self.case.start(arguments);
        self.case.server().wait_requests(requests);
        running.signal(9);
        drop(running.wait().killed_by(9));
        latch.release();
    }

    fn take_turn(&mut self, number: usize) {
        let model = MODELS[self.lot.below(MODELS.len())];
        let prompt = format!("go {number}");
        let effort = EFFORTS[self.lot.below(EFFORTS.len())];
        let tell = ["tell", "--model", model, "--reasoning-effort", effort, prompt.as_str()];
        let end = ENDS[self.lot.below(ENDS.len())];
        *self.ends.entry(end).or_default() += 1;
        if matches!(end, End::KilledBeforeReply | End::KilledInReply) {
            let latch = Latch::new();
            let held = reply().text("a text that is never to be read to its end").read("a.txt");
            let held = if end == End::KilledInReply { held.hold_after(200, &latch) } else { held.hold(&latch) };
            self.kill(&tell, held, &latch);
            return self.resume(model);
        }
        for _ in 0..=self.lot.below(7) {
            self.script_calls(model);
        }
        match end {
            End::Length => {
                let half = self.dressed(model, reply().text("Half of").finish("length"));
                self.script(half);
                self.run(&tell, 14);
            }
            End::Refusal => {
                let refusal = self.dressed(model, reply().text("I will not.").finish("content_filter"));
                self.script(refusal);
                self.run(&tell, 13);
            }
            End::Refused => {
                self.script(reply().error(400, "no"));
                self.run(&tell, 13);
                self.resume(model);
            }
            End::Exhausted => {
                for _ in 0..TRIES_MAX {
                    self.script(reply().error(503, "busy").header("Retry-After", "0.001"));
                }
                self.retries_scripted += TRIES_MAX - 1;
                self.run(&tell, 13);
                self.resume(model);
            }
            End::Text | End::KilledBeforeReply | End::KilledInReply => self.script_answer_and_run(model, &tell),
        }
    }

    fn script_answer_and_run(&mut self, model: &str, arguments: &[&str]) {
        self.script_faults();
        let answer = self.dressed(model, reply().text("Done."));
        self.script(answer);
        self.run(arguments, 0);
    }

    /// Goes on with the turn; sometimes the user says something new instead.
    fn resume(&mut self, model: &str) {
        if self.lot.below(3) == 0 {
            return;
        }
        for _ in 0..self.lot.below(3) {
            self.script_calls(model);
        }
        self.script_answer_and_run(model, &["resume"]);
    }
}

#[test]
fn hundreds_of_rounds_with_everything_that_goes_wrong() {
    let mut conversation = Conversation::begin();
    for number in 1.. {
        if conversation.replies >= ROUNDS_MIN && conversation.ends.len() == 7 {
            break;
        }
        conversation.take_turn(number);
    }
    let Conversation { case, replies, retries_scripted, retries_told, .. } = conversation;
    case.server().finish();
    case.run(["check"]).exit(0);
    assert_eq!(retries_told, retries_scripted, "every wait is told");

    let records = case.records();
    let of = |kind: &str| records.iter().filter(|record| record["type"] == kind).collect::<Vec<&Value>>();
    assert_eq!(of("assistant").len(), replies);
    let calls: Vec<&str> = of("assistant")
        .iter()
        .flat_map(|record| record["tool_calls"].as_array().into_iter().flatten())
        .map(|call| call["id"].as_str().unwrap())
        .collect();
    let results: Vec<&str> = of("tool_result").iter().map(|record| record["call_id"].as_str().unwrap()).collect();
    assert!(calls.len() > ROUNDS_MIN, "{}", calls.len());
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "no id comes twice");
    assert_eq!(calls, results, "each call has one result, in call order");

    let mut returned = BTreeSet::new();
    let mut formats = BTreeSet::new();
    for request in case.server().requests() {
        let provider = match request.format {
            Format::OpenAi => "openai",
            Format::Anthropic => "anthropic",
        };
        let own = format!("{provider}/{}", request.body["model"].as_str().unwrap());
        formats.insert(request.format);
        let text = request.body.to_string();
        for model in MODELS.iter().filter(|model| text.contains(&Conversation::thought(model))) {
            assert_eq!(**model, own, "thoughts went to another model");
            returned.insert(*model);
        }
    }
    assert_eq!((returned.len(), formats.len()), (MODELS.len(), 2));
}
