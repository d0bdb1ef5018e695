//! Whatever the model asks for, whatever the rules say and wherever the process dies: every call ends with one result,
//! and no side effect happens twice.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::house::{Disk, House, Plot, call, of_calls};
use crate::call::fanned::{self, Part};
use crate::config::Run;
use crate::session::check::check_session;
use crate::session::history::{CallProgress, History, OperationProgress, Standing};
use crate::session::pending::{Needs, PendingFile};
use crate::session::record::{
    DecidedBy, Decision, OnAsk, OnError, OperationId, Record, ResultStatus, Scope, ToolCall, ToolResultRecord,
    TrailingReads, TurnStatus,
};
use crate::tool::patch::recover::Recovery;
use crate::turn::decisions::is_answered;
use crate::turn::images::Images;
use crate::turn::prompt::build_messages;
use crate::turn::resume::repair_orphaned_tool_calls;

const TOOLS: [&str; 5] = ["peek", "glance", "look", "poke", "prod"];
const SIDE_EFFECTS: [&str; 2] = ["poke", "prod"];

/// What a person types.
#[derive(Debug, Clone, Copy)]
enum Move {
    Tell,
    Resume,
    Approve,
    ApproveFirst,
    Deny,
    DenyLast,
}

/// Where an invocation dies.
#[derive(Debug, Clone)]
struct Crash {
    /// Behind which of its records.
    at: Index,
    /// How much of the next record is written: nothing, a part, or all but the newline.
    torn: Option<Index>,
    /// Where two states of pending.json, or of a started effect, are possible: the later one.
    late: bool,
}

fn arguments() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => Just(r#"{"do":"ok"}"#),
        2 => Just(r#"{"do":"fail"}"#),
        1 => Just(r#"{"do":"panic"}"#),
        1 => Just(r#"{"do":"empty","n":"3"}"#),
        1 => Just(r#"{"do":"long"}"#),
        1 => Just(r#"{"do":"refuse"}"#),
        1 => Just(r#"{"do":"dance"}"#),
        1 => Just("{\"do\":"),
        1 => Just(""),
        1 => Just(r#"{"ops":[{"do":"ok"}]}"#),
        3 => Just(r#"{"ops":[{"do":"ok"},{"do":"ok","n":1}]}"#),
        2 => Just(r#"{"ops":[{"do":"ok"},{"do":"fail"},{"do":"ok"},{"do":"long"}]}"#),
        2 => Just(r#"{"ops":[{"do":"panic"},{"do":"ok","n":"2"},"{\"do\":\"ok\"}"]}"#),
        2 => Just(r#"{"ops":[{"do":"ok"},{"do":"dance"},{"do":"refuse"},{"do":"ok"}]}"#),
        1 => Just(r#"{"ops":[{"do":"ok"},7]}"#),
        1 => Just(r#"{"ops":[]}"#),
    ]
}

fn tool_call() -> impl Strategy<Value = ToolCall> {
    let name = prop_oneof![
        2 => Just("peek"), 1 => Just("glance"), 2 => Just("look"), 3 => Just("poke"), 3 => Just("prod"),
        1 => Just("pok"), 1 => Just(""),
    ];
    let id = prop_oneof![4 => Just(""), 1 => Just("twice"), 1 => Just("call_2"), 1 => Just("a b")];
    (id, name, arguments()).prop_map(|(id, name, arguments)| call(id, name, arguments))
}

fn plot() -> impl Strategy<Value = Plot> {
    let replies = prop::collection::vec(prop::collection::vec(tool_call(), 0..7), 1..4);
    let rule = prop_oneof![3 => Just(None), 2 => Just(Some(true)), 1 => Just(Some(false))];
    let run = prop_oneof![4 => Just(None), 1 => Just(Some(Run::Ask)), 1 => Just(Some(Run::Allow)), 1 => Just(Some(Run::Deny))];
    let tools = prop::collection::vec((rule, run, prop_oneof![4 => Just(None), 1 => any::<bool>().prop_map(Some)]), 5);
    let fan_out = prop::option::weighted(0.6, (prop::option::of(1_u64..4), any::<bool>()));
    let fan_out = prop::collection::vec(fan_out, 5);
    let on_ask = prop_oneof![6 => Just(OnAsk::Suspend), 1 => Just(OnAsk::Deny), 1 => Just(OnAsk::Fail)];
    let limits = (1_u64..8, 2_u64..20, prop_oneof![1 => Just(false), 3 => Just(true)]);
    // Past the first summary is due after about every round, past the last after some.
    let compact = prop_oneof![2 => Just(0_u64), 1 => Just(1_u64), 1 => 150_u64..400];
    let limits = (limits, compact);
    (replies, tools, fan_out, any::<bool>(), on_ask, 1_u64..5, limits).prop_map(
        |(replies, tools, fan_out, strand, on_ask, concurrency, (limits, compact))| {
            let (calls_per_reply, max_tool_calls, unlimited) = limits;
            let mut plot = Plot::new(&[]).with(|settings| {
                settings.trailing_reads = if strand { TrailingReads::Strand } else { TrailingReads::Carry };
                settings.on_ask = on_ask;
                settings.concurrency = concurrency;
                settings.compact_at_tokens = compact;
                if !unlimited {
                    settings.calls_per_reply = calls_per_reply;
                    settings.max_tool_calls = max_tool_calls;
                }
            });
            plot.replies = replies.into_iter().map(of_calls).collect();
            for (name, (rule, run, concurrent)) in TOOLS.into_iter().zip(tools) {
                plot = plot.configured(name, run, concurrent);
                if let Some(allow) = rule {
                    plot = plot.rule(name, allow);
                }
            }
            for (name, fan_out) in TOOLS.into_iter().zip(fan_out) {
                if let Some((concurrency, stops)) = fan_out {
                    let on_error = if stops { OnError::Stop } else { OnError::Continue };
                    plot = plot.fanned(name, concurrency, on_error);
                }
            }
            plot
        },
    )
}

fn moves() -> impl Strategy<Value = Vec<(Move, Option<Crash>)>> {
    let one = prop_oneof![
        2 => Just(Move::Tell), 3 => Just(Move::Resume), 3 => Just(Move::Approve), 2 => Just(Move::ApproveFirst),
        1 => Just(Move::Deny), 2 => Just(Move::DenyLast),
    ];
    let crash = (any::<Index>(), prop::option::of(any::<Index>()), any::<bool>()).prop_map(|(at, torn, late)| Crash {
        at,
        torn,
        late,
    });
    prop::collection::vec((one, prop::option::weighted(0.7, crash)), 1..7)
}

proptest! {

    #[test]
    fn every_call_ends_with_one_result_wherever_the_process_dies(plot in plot(), moves in moves(), first in prop::option::of(any::<(Index, bool)>())) {
        let house = House::new(plot);
        let first = first.map(|(at, late)| Crash { at, torn: None, late });
        step(&house, Move::Tell, first.as_ref());
        for (one, crash) in &moves {
            step(&house, *one, crash.as_ref());
        }
        finish(&house);
    }
}

/// Plays a move; where it dies, only what was written until then is left.
fn step(house: &House, one: Move, crash: Option<&Crash>) {
    let before = house.disk();
    let known = whole_records(&before);
    let pending = in_force(house, one, &before);
    let ran = (house.effects().len(), house.reads().len());
    play(house, one);
    ensure_sound(house, &before);
    ensure_nothing_recorded_ran_again(house, &known, ran);
    ensure_approvals_count(house, &pending);
    let Some(crash) = crash else { return };
    let after = house.disk();
    let lines = lines(&after);
    // A log comes into being with two records in it.
    let first = known.len().max(2);
    let kept = first + crash.at.index(lines.len() - first + 1);
    let mut log = lines[..kept].concat();
    if let (Some(torn), Some(next)) = (&crash.torn, lines.get(kept)) {
        log.extend(&next[..torn.index(next.len())]);
    }
    let left = Disk { log: Some(log), pending: pending_at(&pending, &after, kept, crash.late) };
    house.put(&left);
    forget_effects(house, crash.late);
    repairs_once(&house.history());
}

/// What a person approved is not given up by a repair, unless a new prompt dropped it.
fn ensure_approvals_count(house: &House, in_force: &InForce) {
    let Some(bytes) = in_force.bytes.as_deref().filter(|_| !in_force.dropped) else { return };
    let file: PendingFile = serde_json::from_slice(bytes).unwrap();
    let history = house.history();
    for call in file.calls.iter().filter(|call| call.decision == Some(Decision::Approve)) {
        let id = call.operation_id();
        let Some(result) = result_of(&history, &id) else { continue };
        // A new prompt that was killed may have dropped this one, and not yet the others.
        if in_force.answered.contains(&id.to_string()) {
            continue;
        }
        assert!(
            result.0 != ResultStatus::Cancelled || result.1.as_deref() == Some("would_ask"),
            "{id} was approved: {:#?}",
            house.record_lines()
        );
    }
}

fn play(house: &House, one: Move) {
    let pending = house.pending();
    let open: Vec<String> = pending
        .iter()
        .filter(|file| !is_answered(file, &house.history()))
        .flat_map(PendingFile::undecided)
        .map(|call| call.operation_id().to_string())
        .collect();
    let (first, last) = (open.first().map(String::as_str), open.last().map(String::as_str));
    match (one, first, last) {
        (Move::Tell, _, _) => drop(house.tell("next")),
        (Move::Approve, Some(_), _) => drop(house.approve(&[])),
        (Move::ApproveFirst, Some(first), _) => drop(house.approve(&[first])),
        (Move::Deny, Some(_), _) => drop(house.deny(&[])),
        (Move::DenyLast, _, Some(last)) => drop(house.deny(&[last])),
        (Move::Resume | Move::Approve | Move::ApproveFirst | Move::Deny | Move::DenyLast, _, _) => {
            drop(house.resume());
        }
    }
}

/// The pending.json that an invocation works by: with the decisions that it writes before anything else.
struct InForce {
    bytes: Option<Vec<u8>>,
    /// Whether it makes way for a new prompt.
    dropped: bool,
    /// How many records there were.
    records: usize,
    /// The operations that had their result.
    answered: Vec<String>,
}

fn in_force(house: &House, one: Move, before: &Disk) -> InForce {
    let records = whole_records(before);
    let result = |record: &Record| match record {
        Record::ToolResult(result) => Some(result.call_id.clone()),
        Record::OperationResult(result) => Some(format!("{}#{}", result.call_id, result.operation)),
        _ => None,
    };
    let answered = records.iter().filter_map(result).collect();
    let records = records.len();
    let dropped = matches!(one, Move::Tell);
    // One whose calls are all answered is removed before anything else.
    let file = house.pending().filter(|file| !is_answered(file, &house.history()));
    let mut bytes = before.pending.clone().filter(|_| file.is_some());
    if let (Some(mut file), Move::Approve | Move::ApproveFirst | Move::Deny | Move::DenyLast) = (file, one) {
        let undecided: Vec<usize> = (0..file.calls.len()).filter(|&index| file.calls[index].is_undecided()).collect();
        let selected = match one {
            Move::ApproveFirst => undecided.first().copied().into_iter().collect(),
            Move::DenyLast => undecided.last().copied().into_iter().collect(),
            Move::Tell | Move::Resume | Move::Approve | Move::Deny => undecided,
        };
        let verdict = match one {
            Move::Approve | Move::ApproveFirst | Move::Tell | Move::Resume => crate::turn::decisions::Verdict::Approve,
            Move::Deny | Move::DenyLast => crate::turn::decisions::Verdict::Deny { reason: Some("not now".to_owned()) },
        };
        crate::turn::decisions::decide(&mut file, &selected, &verdict);
        bytes = Some(serde_json::to_vec(&file).unwrap());
    }
    InForce { bytes, dropped, records, answered }
}

/// pending.json as it is when `kept` records are written. At most two states are possible, by the order of writes.
fn pending_at(before: &InForce, after: &Disk, kept: usize, late: bool) -> Option<Vec<u8>> {
    let records = whole_records(after);
    let lines = lines(after);
    let mut history = History::whole();
    // How many records there are when it is removed.
    let mut removed_at = usize::MAX;
    for (index, record) in records.iter().enumerate() {
        history.apply_line(record, lines[index].len() as u64).unwrap();
        let count = index + 1;
        let over = if before.dropped {
            matches!(record, Record::TurnEnd(end) if end.status == TurnStatus::Dropped)
        } else {
            history.open_calls().next().is_none()
        };
        if removed_at == usize::MAX && over && count > before.records {
            removed_at = count;
        }
    }
    let old = before.bytes.clone().filter(|_| kept < removed_at || (kept == removed_at && !late));
    if kept == records.len() && late { after.pending.clone().or(old) } else { old }
}

/// An effect whose start is not on disk has not happened; one that was started and not recorded may have.
fn forget_effects(house: &House, late: bool) {
    let history = house.history();
    let happened = |label: &String| {
        let id = operation_of(label);
        history.operation(&id).is_some_and(|one| one.start.is_some() && (late || result_of(&history, &id).is_some()))
    };
    house.ran.effects.lock().unwrap().retain(happened);
    house.ran.reads.lock().unwrap().retain(|label| history.has_call(&operation_of(label).call_id));
}

/// The operation that a fake noted down under the name of its files.
fn operation_of(label: &str) -> OperationId {
    OperationId::parse(&label.replace('.', "#"))
}

/// Status and code of an operation's own result.
fn result_of(history: &History, id: &OperationId) -> Option<(ResultStatus, Option<String>)> {
    if id.operation.is_none() {
        return history.call(&id.call_id)?.1.result.as_ref().map(|result| (result.status, result.code.clone()));
    }
    history.operation(id)?.result.as_ref().map(|result| (result.status, result.code.clone()))
}

/// What has its result is done, whatever died behind it.
fn ensure_nothing_recorded_ran_again(house: &House, known: &[Record], (effects, reads): (usize, usize)) {
    let mut history = History::default();
    // A summary covers what it covers; here all of it counts.
    for record in known.iter().filter(|record| !matches!(record, Record::Summary(_))) {
        history.apply(record).unwrap();
    }
    for label in house.effects().iter().skip(effects).chain(house.reads().iter().skip(reads)) {
        let result = result_of(&history, &operation_of(label));
        assert!(result.is_none(), "{label} ran again: {:#?}", house.record_lines());
    }
}

fn lines(disk: &Disk) -> Vec<Vec<u8>> {
    let log = disk.log.as_deref().unwrap_or_default();
    log.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn whole_records(disk: &Disk) -> Vec<Record> {
    lines(disk).iter().map_while(|line| serde_json::from_slice(line).ok()).collect()
}

/// A repair answers exactly what is open, in order, and a second one finds nothing to do.
fn repairs_once(history: &History) {
    let open: Vec<(String, ResultStatus)> = history.open_calls().flat_map(expected_repairs).collect();
    let repair = |history: &History| repair_orphaned_tool_calls(history, |_| false, |_| false, |_| Recovery::AllBefore);
    let settlements = repair(history);
    assert_eq!(settlements.iter().map(|one| (one.id.to_string(), one.status)).collect::<Vec<_>>(), open);
    let kept = |id: &OperationId| open.first().is_some_and(|(first, _)| id.to_string() == *first);
    assert_eq!(
        repair_orphaned_tool_calls(history, kept, |_| false, |_| Recovery::AllBefore).len(),
        open.len().saturating_sub(1)
    );
}

/// The results that a repair gives an open call: one for each of its operations without one, where there are several
/// and anything is recorded of them, else one for the call.
fn expected_repairs((call, progress): (&ToolCall, &CallProgress)) -> Vec<(String, ResultStatus)> {
    let status = |operation: Option<&OperationProgress>| {
        let started = operation.is_some_and(|operation| operation.start.is_some());
        if started { ResultStatus::Unknown } else { ResultStatus::Cancelled }
    };
    if !progress.operations.keys().any(Option::is_some) {
        return vec![(call.id.clone(), status(progress.operations.get(&None)))];
    }
    let open = (1..=operations_in(call)).map(|number| (number, progress.operations.get(&Some(number))));
    open.filter(|(_, operation)| operation.is_none_or(|operation| operation.result.is_none()))
        .map(|(number, operation)| (format!("{}#{number}", call.id), status(operation)))
        .collect()
}

fn operations_in(call: &ToolCall) -> u32 {
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
    u32::try_from(arguments["ops"].as_array().unwrap().len()).unwrap()
}

/// Goes on, yes to everything, until the last turn has its answer.
fn finish(house: &House) {
    const INVOCATIONS_MAX: usize = 60;
    for _ in 0..INVOCATIONS_MAX {
        let before = house.disk();
        let undecided = house.pending().is_some_and(|file| file.undecided().next().is_some());
        drop(if undecided { house.approve(&[]) } else { house.resume() });
        ensure_sound(house, &before);
        let history = house.history();
        let finished = crate::command::opened::standing(&history) == Standing::Finished;
        if finished && history.turn_end().is_some() && house.pending().is_none() {
            assert_eq!(history.open_calls().count(), 0);
            assert_eq!(check_session(&house.session).unwrap().map(|findings| findings.violations), Some(Vec::new()));
            assert!(house.resume().is_none(), "there is nothing left to do");
            assert_eq!(house.disk().log, fs_err::read(house.log_path()).ok());
            return;
        }
    }
    panic!("it does not come to an end: {:#?}", house.record_lines());
}

/// What holds after every invocation that was not killed.
fn ensure_sound(house: &House, before: &Disk) {
    house.ensure_no_faults();
    // Nothing recorded was changed.
    let whole: Vec<u8> =
        lines(before).into_iter().filter(|line| serde_json::from_slice::<Record>(line).is_ok()).flatten().collect();
    assert!(house.disk().log.unwrap().starts_with(&whole), "{:#?}", house.record_lines());
    let history = house.history();
    ensure_loaded_alike(&house.loaded_history(), &history);
    let calls: Vec<(&ToolCall, &CallProgress)> =
        history.rounds().flat_map(|round| round.assistant.tool_calls.iter().zip(&round.calls)).collect();
    let place: HashMap<&str, usize> =
        calls.iter().enumerate().map(|(index, (call, _))| (call.id.as_str(), index)).collect();
    ensure_effects_fit(house, &calls, &place);
    for (call, progress) in &calls {
        ensure_folded(call, progress);
    }
    ensure_nothing_ran_behind_what_asks(house, &place);
    ensure_results_in_order(house, before, &place);
}

/// Whoever begins at the last summary knows the same as whoever has read everything.
fn ensure_loaded_alike(loaded: &History, whole: &History) {
    assert_eq!(build_messages(loaded, Images::none()), build_messages(whole, Images::none()));
    assert_eq!((loaded.turn(), loaded.next_round()), (whole.turn(), whole.next_round()));
    assert_eq!((loaded.reply_count(), loaded.call_count()), (whole.reply_count(), whole.call_count()));
    assert_eq!((loaded.spent(), loaded.spent_before_limits()), (whole.spent(), whole.spent_before_limits()));
    assert_eq!((loaded.written(), loaded.fetched()), (whole.written(), whole.fetched()));
    assert_eq!((loaded.turn_end(), loaded.user()), (whole.turn_end(), whole.user()));
    assert_eq!(loaded.session_usage(), whole.session_usage());
    assert_eq!((loaded.borders(), loaded.entries().len()), (whole.borders(), whole.entries().len()));
    let (end, entries) = (loaded.entries().len(), loaded.summary());
    assert_eq!((loaded.border(end), entries), (whole.border(end), whole.summary()));
}

fn ensure_effects_fit(house: &House, calls: &[(&ToolCall, &CallProgress)], place: &HashMap<&str, usize>) {
    let effects = house.effects();
    let serial = SIDE_EFFECTS.iter().all(|name| house.plot.config.tools[*name].concurrent != Some(true));
    let places: Vec<usize> = effects.iter().map(|label| place[operation_of(label).call_id.as_str()]).collect();
    if serial {
        assert!(places.is_sorted(), "side effects out of order: {effects:?}");
    }
    for label in &effects {
        let count = effects.iter().filter(|other| *other == label).count();
        assert!(count <= 1, "{label} happened {count} times");
    }
    for (call, progress) in calls {
        let several = progress.operations.keys().any(Option::is_some);
        if !several && let Some(ToolResultRecord { status, code, .. }) = &progress.result {
            let operation = progress.operations.get(&None);
            ensure_effect_fits(&effects, call, &OperationId::whole(&call.id), operation, (*status, code.as_deref()));
        }
        for (number, operation) in progress.operations.iter().filter(|_| several) {
            let Some(result) = &operation.result else { continue };
            let id = OperationId { call_id: call.id.clone(), operation: *number };
            ensure_effect_fits(&effects, call, &id, Some(operation), (result.status, result.code.as_deref()));
        }
    }
}

fn ensure_effect_fits(
    effects: &[String],
    call: &ToolCall,
    id: &OperationId,
    operation: Option<&OperationProgress>,
    (status, code): (ResultStatus, Option<&str>),
) {
    let count = effects.iter().filter(|label| **label == id.file_name()).count();
    let ran_by_code = matches!(code, Some("failed" | "panic"));
    if !SIDE_EFFECTS.contains(&call.name.as_str()) {
        assert_eq!(count, 0);
    } else if status == ResultStatus::Ok || ran_by_code {
        assert_eq!(count, 1, "{id}: {status:?} {code:?}");
    } else if status == ResultStatus::Unknown {
        assert!(operation.is_some_and(|operation| operation.start.is_some()), "{id}: {code:?}");
    } else {
        assert_eq!(count, 0, "{id}: {status:?} {code:?}");
    }
    let decision = operation.and_then(|operation| operation.decision.as_ref());
    let said_no = decision.filter(|decision| decision.auto_decided_by.scope == Scope::Person);
    if said_no.is_some_and(|decision| decision.decision == Decision::Deny) {
        assert_eq!(status, ResultStatus::Denied);
        assert_eq!(count, 0);
    }
}

/// The result of a call of several operations is made of theirs, whether they were recorded in one go or across kills.
fn ensure_folded(call: &ToolCall, progress: &CallProgress) {
    let Some(whole) = progress.result.as_ref().filter(|_| progress.operations.keys().any(Option::is_some)) else {
        return;
    };
    let results: Vec<_> = progress.operations.values().filter_map(|operation| operation.result.as_ref()).collect();
    assert_eq!(results.len(), operations_in(call) as usize, "{} has a result before all of its operations", call.id);
    let parts = results.iter().map(|result| Part {
        status: result.status,
        content: &result.content,
        stopped_by: result.stopped_by,
    });
    let (status, content) = fanned::fold(&parts.collect::<Vec<_>>());
    assert_eq!((whole.status, whole.output_file.is_some() || whole.content == content), (status, true), "{}", call.id);
    for result in results.iter().filter(|result| result.status == ResultStatus::NotRun) {
        let by = result.stopped_by.unwrap();
        let failed = results.iter().find(|other| other.operation == by).unwrap();
        assert!(by < result.operation && fanned::is_failure(failed.status), "{}#{}", call.id, result.operation);
    }
}

fn ensure_nothing_ran_behind_what_asks(house: &House, place: &HashMap<&str, usize>) {
    let Some(file) = house.pending() else { return };
    let parked = file.calls.iter().filter(|call| call.needs == Needs::Approval && call.is_undecided());
    let Some(first) = parked.map(|call| place[call.id.as_str()]).min() else { return };
    for id in house.effects().iter().chain(&house.reads()) {
        assert!(
            place[operation_of(id).call_id.as_str()] < first,
            "{id} ran behind a call that asks: {:#?}",
            house.record_lines()
        );
    }
}

/// In one invocation results are recorded in the order of the calls, but for what a repair adds behind strand mode.
fn ensure_results_in_order(house: &House, before: &Disk, place: &HashMap<&str, usize>) {
    let new = whole_records(&house.disk()).split_off(whole_records(before).len());
    let repaired = |by: Option<&DecidedBy>| by.is_some_and(|by| by.scope == Scope::Repair);
    let is_repair_of = |record: &Record, call_id: &str| match record {
        Record::ToolResult(result) => result.call_id == call_id && repaired(result.auto_decided_by.as_ref()),
        Record::OperationResult(result) => result.call_id == call_id && repaired(result.auto_decided_by.as_ref()),
        _ => false,
    };
    let places: Vec<usize> = new
        .iter()
        .filter_map(|record| match record {
            Record::ToolResult(result) => Some(result.call_id.as_str()),
            _ => None,
        })
        .filter(|call_id| !new.iter().any(|record| is_repair_of(record, call_id)))
        .map(|call_id| place[call_id])
        .collect();
    assert!(places.is_sorted(), "results out of order: {:#?}", house.record_lines());
}
