//! A tool that does nothing but remember that it was run, and fails in whatever way it is asked to. Tests alone use it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Assessment, Effect, Outcome, Overlay, Preview, Refusal, Surroundings, Tool, Work};
use crate::exit::Signal;
use crate::interrupt::Cause;
use crate::permission::{Access, FetchAccess};
use crate::session::record::ResultStatus;
use crate::workspace::World;

/// How long a call waits for another; only a fault lets it wait so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What ran, shared by the fakes of a test.
#[derive(Default)]
pub(crate) struct Ran {
    /// Ids of the calls whose side effects took place, in that order.
    pub(crate) effects: Mutex<Vec<String>>,
    /// Ids of the reads that ran.
    pub(crate) reads: Mutex<Vec<String>>,
    /// What should never have happened.
    pub(crate) faults: Mutex<Vec<String>>,
    /// The `n` of every call that is over.
    over: Mutex<Vec<i64>>,
    one_is_over: Condvar,
}

pub(crate) struct Fake {
    name: String,
    source: String,
    effect: Effect,
    /// Whether it asks where no rule says anything.
    asks: bool,
    parameters: Value,
    ran: Arc<Ran>,
}

impl Fake {
    pub(crate) fn tool(name: &'static str, effect: Effect, asks: bool, ran: &Arc<Ran>) -> Arc<dyn Tool> {
        let parameters = json!({
            "type": "object",
            "properties": {
                "do": {"enum": ["ok", "fail", "panic", "empty", "long", "refuse", "after", "raise", "raise_ok"]},
                "n": {"type": "integer", "default": 0},
                "host": {"type": "string"},
            },
            "required": ["do"],
            "additionalProperties": false,
        });
        let (name, source) = (name.to_owned(), "builtin".to_owned());
        Arc::new(Self { name, source, effect, asks, parameters, ran: Arc::clone(ran) })
    }

    /// One of the tools of an MCP server: `server__fake_3`.
    pub(crate) fn of_server(server: &str, number: usize, effect: Effect, ran: &Arc<Ran>) -> Arc<dyn Tool> {
        let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let (name, source) = (format!("{server}__fake_{number}"), format!("mcp:{server}"));
        Arc::new(Self { name, source, effect, asks: true, parameters, ran: Arc::clone(ran) })
    }

    fn act(&self, work: &Work<'_>) -> Outcome {
        let number = work.arguments["n"].as_i64().unwrap_or_default();
        match work.arguments["do"].as_str().unwrap_or_default() {
            "ok" => Outcome::ok(format!("{} did {number}", self.name)),
            "fail" => Outcome::error("failed", "it failed"),
            "panic" => std::panic::panic_any("a fault of the fake".to_owned()),
            "empty" => Outcome::ok(""),
            "long" => Outcome::ok("0123456789 abcdefghij\n".repeat(400)),
            "after" => self.after(number),
            "raise" => {
                work.interrupt.raise(Cause::Signal(Signal::Interrupt));
                let (status, code) = match self.effect {
                    Effect::Read => (ResultStatus::Cancelled, "cancelled"),
                    Effect::SideEffect => (ResultStatus::Unknown, "interrupted"),
                };
                Outcome { status, ..Outcome::error(code, "broken off half way") }
            }
            "raise_ok" => {
                work.interrupt.raise(Cause::Signal(Signal::Terminate));
                Outcome::ok("finished all the same")
            }
            other => Outcome::error("failed", format!("{other:?} is nothing to do")),
        }
    }

    /// Waits until the call with that `n` is over.
    fn after(&self, number: i64) -> Outcome {
        let over = self.ran.over.lock().unwrap();
        let (over, _) =
            self.ran.one_is_over.wait_timeout_while(over, PATIENCE, |over| !over.contains(&number)).unwrap();
        if over.contains(&number) { Outcome::ok(format!("after {number}")) } else { Outcome::error("timeout", "alone") }
    }

    /// A side effect has its decision and its start on disk.
    fn ensure_recorded(&self, work: &Work<'_>) {
        let session = work.surroundings.session.unwrap();
        let log = session.root.read(Path::new(crate::session::log::FILE_NAME), u64::MAX - 1).unwrap();
        // Another operation's record may be on its way at this very moment: its line is not whole yet.
        let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let text = String::from_utf8(log[..whole].to_vec()).unwrap();
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (call_id, operation) = match work.label.split_once('.') {
            Some((call_id, number)) => (call_id, number.parse::<u32>().map_or(Value::Null, Value::from)),
            None => (work.label, Value::Null),
        };
        let place = |kind: &str| {
            records.iter().position(|record| {
                record["type"] == kind && record["call_id"] == call_id && record["operation"] == operation
            })
        };
        if !matches!((place("decision"), place("tool_start")), (Some(decision), Some(start)) if decision < start) {
            self.ran.faults.lock().unwrap().push(format!("{} ran before its start was on disk", work.label));
        }
    }
}

impl Tool for Fake {
    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self) -> &str {
        &self.source
    }

    fn description(&self) -> &'static str {
        "A fake."
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    /// Each run of it is to be seen, like ones included.
    fn asks_anew(&self, _arguments: &Value) -> bool {
        true
    }

    fn look(&self, _: &Value, _: &Surroundings<'_>, _: &mut World) {}

    fn assess(&self, arguments: &Value, _: &World, _: &Overlay) -> Result<Assessment, Refusal> {
        if arguments["do"] == "refuse" {
            return Err(Refusal::new("not_found", "it does not apply"));
        }
        Ok(Assessment {
            summary: format!("{} {}", self.name, arguments["do"]),
            accesses: match arguments["host"].as_str() {
                Some(host) => vec![Access::Fetch(FetchAccess { host: host.to_owned() })],
                None if self.asks => vec![Access::Tool],
                None => Vec::new(),
            },
            preview: Preview::Tool { arguments: arguments.clone() },
            files: Vec::new(),
            after: Overlay::new(),
            moot: None,
        })
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        match self.effect {
            Effect::Read => self.ran.reads.lock().unwrap().push(work.label.to_owned()),
            Effect::SideEffect => {
                self.ensure_recorded(work);
                self.ran.effects.lock().unwrap().push(work.label.to_owned());
            }
        }
        let outcome = self.act(work);
        self.ran.over.lock().unwrap().push(work.arguments["n"].as_i64().unwrap_or_default());
        self.ran.one_is_over.notify_all();
        outcome
    }
}
