//! The plan as a table: what becomes of each call of a reply.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::{CallLimit, Next, OpenOperation, Planned, Situation, plan};
use crate::call::checked::check;
use crate::call::repeated::Memory;
use crate::call::settled::Decisions;
use crate::config::{Config, Run, ToolConfig};
use crate::permission::{Rule, Rules};
use crate::session::pending::{Needs, PendingCall, PendingFile};
use crate::session::record::{Decision, OnAsk, OperationId, Scope, ToolCall, TrailingReads};
use crate::tool::fake::{Fake, Ran};
use crate::tool::registry::Registry;
use crate::tool::{Effect, Preview};
use crate::workspace::World;

const OK: &str = r#"{"do":"ok"}"#;
const REFUSE: &str = r#"{"do":"refuse"}"#;

/// A reply and all that its plan depends on. `peek` reads and never asks, `look` reads and asks, `poke` asks, `prod` is
/// allowed by a rule, `pinch` is denied by one, `hide` is not offered.
struct Table {
    calls: Vec<ToolCall>,
    registry: Registry,
    rules: Rules,
    trailing_reads: TrailingReads,
    on_ask: OnAsk,
    operations_max: u64,
    denied_index: Option<u64>,
    pending: Option<PendingFile>,
}

impl Table {
    fn new(calls: &[(&str, &str)]) -> Self {
        let ran = Arc::new(Ran::default());
        let tools = [("peek", Effect::Read, false), ("look", Effect::Read, true)];
        let effects = ["poke", "prod", "pinch", "hide"].map(|name| (name, Effect::SideEffect, true));
        let tools = tools.into_iter().chain(effects);
        let mut config = Config::default();
        config.tools.insert("hide".to_owned(), ToolConfig { run: Some(Run::Deny), ..ToolConfig::default() });
        let registry = Registry::new(
            tools.map(|(name, effect, asks)| Fake::tool(name, effect, asks, &ran)).collect(),
            &config,
            false,
            &config.fan_out(),
        );
        let rule = |name: &str, allow| (Scope::CommandLine, Rule::Tool { allow, name: name.to_owned(), turn: None });
        Self {
            calls: calls.iter().enumerate().map(|(index, (name, arguments))| call(index, name, arguments)).collect(),
            registry: registry.0,
            rules: Rules::new(Path::new("/nonexistent"), [rule("prod", true), rule("pinch", false)]),
            trailing_reads: TrailingReads::Carry,
            on_ask: OnAsk::Suspend,
            operations_max: 64,
            denied_index: None,
            pending: None,
        }
    }

    fn decided(mut self, decisions: &[(usize, Option<Decision>)]) -> Self {
        let calls = decisions.iter().map(|(index, decision)| {
            let call = &self.calls[*index];
            let checked = check(call, &self.registry, false).remove(0).1.unwrap();
            let arguments = checked.arguments.clone();
            PendingCall {
                id: call.id.clone(),
                operation: None,
                name: call.name.clone(),
                needs: if decision.is_some() { Needs::Approval } else { Needs::Nothing },
                why: None,
                summary: None,
                preview: decision.is_some().then(|| Preview::Tool { arguments: arguments.clone() }),
                arguments,
                grant: None,
                decision: *decision,
                reason: None,
                answer: None,
                granted: None,
                decided_at: None,
            }
        });
        let calls: Vec<PendingCall> = calls.collect();
        self.pending = Some(PendingFile {
            format: 1,
            session: "main".to_owned(),
            turn: 1,
            at: String::new(),
            status: "awaiting_approval".to_owned(),
            digest: PendingFile::digest_of(&calls),
            calls,
        });
        self
    }

    fn plan(&self) -> Vec<String> {
        let operations: Vec<OpenOperation<'_>> = self
            .calls
            .iter()
            .enumerate()
            .map(|(index, call)| OpenOperation {
                id: OperationId::whole(&call.id),
                name: call.name.as_str().into(),
                checked: check(call, &self.registry, false).remove(0).1,
                index: index as u64,
                stops: false,
                waiting: None,
            })
            .collect();
        let world = World::default();
        let planned = plan(
            &operations,
            &Situation {
                world: &world,
                memory: &Memory::default(),
                failed: &HashMap::new(),
                rules: &self.rules,
                decisions: self.pending.as_ref().map(Decisions::of).unwrap_or_default(),
                denied_index: self.denied_index,
                trailing_reads: self.trailing_reads,
                on_ask: self.on_ask,
                operations_max: self.operations_max,
                limit: CallLimit::Reply,
            },
        );
        planned.iter().map(brief).collect()
    }
}

fn call(index: usize, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: format!("c{index}"), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None }
}

fn brief(planned: &Planned<'_>) -> String {
    match &planned.next {
        Next::Answered(answer) => {
            let decided = answer.grounds.as_ref().map(|grounds| format!(" by {:?}", grounds.by.scope));
            format!("{}{}", answer.code, decided.unwrap_or_default())
        }
        Next::Run(ready) => match ready.permit.grounds() {
            Some(grounds) => format!("run, {:?} by {:?}", grounds.decision, grounds.by.scope),
            None => "run".to_owned(),
        },
        Next::Park(parked) if parked.before.is_some() => "park again".to_owned(),
        Next::Park(parked) => format!("park: {}", parked.why),
        Next::RunUnlessRepeated { of, .. } => format!("run unless {of}"),
        Next::Carry { .. } => "carry".to_owned(),
        Next::Strand => "strand".to_owned(),
        Next::WouldAsk { answer, why: _, needs: _, grant } => {
            format!("{} with {} rules", answer.code, grant.as_ref().map_or(0, Vec::len))
        }
    }
}

const PARK: &str = "park: no rule allows it";
const RUN_BY_RULE: &str = "run, Allow by CommandLine";

#[test]
fn each_call_has_its_outcome() {
    for (calls, expected) in [
        (&[("peek", OK)][..], &["run"][..]),
        (&[("prod", OK)], &[RUN_BY_RULE]),
        (&[("poke", OK)], &[PARK]),
        (&[("look", OK)], &[PARK]),
        (&[("pinch", OK)], &["denied by CommandLine"]),
        (&[("hide", OK)], &["denied by Config"]),
        (&[("pok", OK)], &["unknown_tool"]),
        (&[("poke", "{")], &["invalid_arguments"]),
        (&[("poke", "{}")], &["invalid_arguments"]),
        // Nobody is asked about what cannot run.
        (&[("poke", REFUSE)], &["not_found"]),
        // The suspension table.
        (&[("poke", OK), ("look", OK)], &[PARK, PARK]),
        (&[("poke", OK), ("peek", OK)], &[PARK, "carry"]),
        (&[("peek", OK), ("poke", OK)], &["run", PARK]),
        (&[("peek", OK), ("peek", OK)], &["run", "run"]),
        (&[("poke", OK), ("prod", OK)], &[PARK, "carry"]),
        // What needs no execution is answered at once, in front of the call that asks and behind it.
        (
            &[("poke", "1"), ("poke", OK), ("pinch", OK), ("pok", OK), ("poke", "{"), ("peek", REFUSE), ("prod", OK)],
            &[
                "invalid_arguments",
                PARK,
                "denied by CommandLine",
                "unknown_tool",
                "invalid_arguments",
                "not_found",
                "carry",
            ],
        ),
    ] {
        assert_eq!(Table::new(calls).plan(), expected, "{calls:?}");
    }
}

#[test]
fn in_strand_mode_what_would_be_carried_is_left() {
    let calls = [("peek", OK), ("poke", OK), ("peek", OK), ("prod", OK), ("look", OK), ("pok", OK)];
    let table = Table { trailing_reads: TrailingReads::Strand, ..Table::new(&calls) };
    assert_eq!(table.plan(), ["run", PARK, "strand", "strand", PARK, "unknown_tool"]);
}

#[test]
fn calls_beyond_the_limit_are_not_run_and_not_asked_about() {
    let calls = [("peek", OK), ("poke", OK), ("peek", OK), ("poke", OK), ("pok", OK), ("pinch", OK)];
    let table = Table { operations_max: 2, ..Table::new(&calls) };
    assert_eq!(table.plan(), ["run", PARK, "limit", "limit", "unknown_tool", "limit"]);
}

#[test]
fn where_nobody_may_be_asked_it_is_denied_or_ends() {
    let calls = [("peek", OK), ("poke", OK), ("prod", OK), ("pok", OK)];
    let deny = Table { on_ask: OnAsk::Deny, ..Table::new(&calls) };
    assert_eq!(deny.plan(), ["run", "denied by CommandLine", RUN_BY_RULE, "unknown_tool"]);
    let fail = Table { on_ask: OnAsk::Fail, ..Table::new(&calls) };
    assert_eq!(fail.plan(), ["run", "would_ask with 1 rules", "would_ask with 0 rules", "would_ask with 0 rules"]);
}

#[test]
fn decisions_are_carried_out_in_order() {
    let calls = [("poke", OK), ("peek", OK), ("look", OK), ("prod", OK), ("poke", OK)];
    let approve = Some(Decision::Approve);
    let all = Table::new(&calls).decided(&[(0, approve), (1, None), (2, approve), (3, None), (4, approve)]);
    let by_person = "run, Approve by Person";
    assert_eq!(all.plan(), [by_person, "run", by_person, RUN_BY_RULE, by_person]);
    let granted = Table::new(&calls[..1]).decided(&[(0, Some(Decision::Allow))]);
    assert_eq!(granted.plan(), ["run, Allow by Session"]);
    // Behind a denial: carried reads run, carried effects do not, what was approved does.
    let denied =
        Table::new(&calls).decided(&[(0, Some(Decision::Deny)), (1, None), (2, approve), (3, None), (4, approve)]);
    assert_eq!(denied.plan(), ["denied by Person", "run", by_person, "earlier_call_denied", by_person]);
    // The same where the denial has its result already.
    let recorded = Table { denied_index: Some(0), ..Table::new(&calls).decided(&[(1, None), (2, approve), (3, None)]) };
    assert_eq!(recorded.plan(), ["strand", "run", by_person, "earlier_call_denied", "strand"]);
    let stale = Table::new(&calls[..1]).decided(&[(0, Some(Decision::Stale))]);
    assert_eq!(stale.plan(), ["stale"]);
}

#[test]
fn a_carried_call_is_judged_when_its_turn_comes() {
    let calls = [("prod", OK), ("peek", OK), ("poke", OK)];
    let decided = || Table::new(&calls).decided(&[(0, None), (1, None), (2, Some(Decision::Approve))]);
    // Now it asks: it is parked, and nothing behind it runs, approved or not.
    let asks = Table { rules: Rules::new(Path::new("/nonexistent"), []), ..decided() };
    assert_eq!(asks.plan(), [PARK, "carry", "park again"]);
    // Now it is denied: the rest goes on.
    let rule = Rule::Tool { allow: false, name: "prod".to_owned(), turn: None };
    let denied = Table { rules: Rules::new(Path::new("/nonexistent"), [(Scope::User, rule)]), ..decided() };
    assert_eq!(denied.plan(), ["denied by User", "run", "run, Approve by Person"]);
    // Nobody may be asked any more: what a person denied stays denied.
    let mut fails = Table::new(&calls).decided(&[(0, None), (1, None), (2, Some(Decision::Deny))]);
    fails.rules = Rules::new(Path::new("/nonexistent"), []);
    fails.on_ask = OnAsk::Fail;
    assert_eq!(fails.plan(), ["would_ask with 1 rules", "would_ask with 0 rules", "denied by Person"]);
}

#[test]
fn an_approved_call_that_is_not_what_was_shown_is_stale() {
    let mut table = Table::new(&[("poke", OK)]).decided(&[(0, Some(Decision::Approve))]);
    table.calls[0] = call(0, "poke", r#"{"do":"fail"}"#);
    assert_eq!(table.plan(), ["stale"]);
    table.calls[0] = call(0, "poke", REFUSE);
    assert_eq!(table.plan(), ["stale"]);
    // Its tool is gone.
    table.calls[0] = call(0, "pok", OK);
    assert_eq!(table.plan(), ["unknown_tool"]);
    // Or no longer offered.
    let hidden = Table::new(&[("hide", OK)]).decided(&[(0, Some(Decision::Approve))]);
    assert_eq!(hidden.plan(), ["denied by Config"]);
}

#[test]
fn a_plan_depends_on_nothing_else() {
    let calls = [("peek", OK), ("poke", OK), ("prod", OK), ("pok", OK), ("pinch", OK)];
    let table = Table::new(&calls);
    assert_eq!(table.plan(), table.plan());
}
