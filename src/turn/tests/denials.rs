//! What a person says no to, what a new prompt drops, and what may not ask.

use super::house::{House, Plot};
use crate::exit::Status;
use crate::session::record::{OnAsk, ResultStatus};
use crate::turn::decisions::{Verdict, decide, ensure_fits};
use crate::turn::rounds::Ending;

const OK: &str = r#"{"do":"ok"}"#;

#[test]
fn a_new_prompt_writes_recorded_denials_as_results_in_call_order() {
    let house = House::new(Plot::new(&[("poke", OK), ("prod", OK), ("poke", OK), ("peek", OK)]));
    house.tell("go");
    assert!(house.deny(&["call_2"]).is_none());
    assert!(house.approve(&["call_3"]).is_none());
    let before = house.record_lines().len();
    assert_eq!(house.tell("something else").exit_code, 0);
    assert_eq!(
        house.record_lines()[before..],
        [
            "tool_result call_1 cancelled cancelled",
            "decision call_2 deny",
            "tool_result call_2 denied denied",
            "tool_result call_3 cancelled cancelled",
            "tool_result call_4 cancelled cancelled",
            "turn_end dropped",
            "user",
            "assistant",
            "turn_end completed",
        ]
    );
    let history = house.history();
    let result = history.call("call_2").unwrap().1.result.clone().unwrap();
    assert_eq!(result.reason.as_deref(), Some("not now"));
    assert!(result.content.starts_with("The user denied this call: not now"), "{}", result.content);
    assert!(house.effects().is_empty());
    assert!(house.pending().is_none());
    house.ensure_no_faults();
}

#[test]
fn a_pending_file_that_lists_a_call_twice_is_a_conflict_and_a_new_prompt_drops_it() {
    let house = House::new(Plot::new(&[("poke", OK), ("prod", OK)]));
    house.tell("go");
    let mut file = house.pending().unwrap();
    decide(&mut file, &[0], &Verdict::Deny { reason: None });
    let twice = file.calls[0].clone();
    file.calls.push(twice);
    file.digest = crate::session::pending::PendingFile::digest_of(&file.calls);
    file.store(&house.session).unwrap();
    let failure = ensure_fits(&file, &house.history()).unwrap_err();
    assert_eq!(failure.status, Status::Conflict);
    assert!(failure.message.ends_with("it lists call_1 twice"), "{}", failure.message);
    assert_eq!(house.tell("else").exit_code, 0);
    assert_eq!(house.results(), ["call_1 denied denied", "call_2 cancelled cancelled"]);
}

#[test]
fn behind_a_denial_carried_effects_are_cancelled_and_carried_reads_run() {
    let calls = [("poke", OK), ("prod", OK), ("peek", OK), ("poke", OK)];
    let house = House::new(Plot::new(&calls).rule("prod", true));
    house.tell("go");
    assert!(house.deny(&["call_1"]).is_none());
    assert_eq!(house.approve(&["call_4"]).unwrap().exit_code, 0);
    assert_eq!(
        house.results(),
        ["call_1 denied denied", "call_2 cancelled earlier_call_denied", "call_3 ok", "call_4 ok"]
    );
    assert_eq!(house.effects(), ["call_4"]);
    house.ensure_no_faults();
}

#[test]
fn a_carried_call_is_judged_again_and_may_have_to_ask_after_all() {
    let calls = [("poke", OK), ("prod", OK), ("poke", OK), ("peek", OK)];
    let mut house = House::new(Plot::new(&calls).rule("prod", true));
    house.tell("go");
    house.plot.rules.clear();
    let result = house.approve(&[]).unwrap();
    assert_eq!(result.exit_code, 10);
    assert_eq!(house.effects(), ["call_1"], "the approved third one keeps its place behind the second");
    let file = house.pending().unwrap();
    let shown: Vec<_> = file.calls.iter().map(|call| (call.id.as_str(), call.is_undecided())).collect();
    assert_eq!(shown, [("call_2", true), ("call_3", false), ("call_4", false)]);
    assert_eq!(house.approve(&[]).unwrap().exit_code, 0);
    assert_eq!(house.effects(), ["call_1", "call_2", "call_3"]);
    // Or it is denied by then.
    let mut house = House::new(Plot::new(&calls).rule("prod", true));
    house.tell("go");
    house.plot = house.plot.clone().rule("prod", false);
    house.approve(&[]).unwrap();
    assert_eq!(house.results(), ["call_1 ok", "call_2 denied denied", "call_3 ok", "call_4 ok"]);
    house.ensure_no_faults();
}

#[test]
fn where_nobody_may_be_asked_denials_stay_denials_and_nothing_is_left_open() {
    let calls = [("poke", OK), ("prod", OK), ("poke", OK), ("peek", OK)];
    let mut house = House::new(Plot::new(&calls).rule("prod", true));
    house.tell("go");
    let mut file = house.pending().unwrap();
    decide(&mut file, &[0], &Verdict::Approve);
    decide(&mut file, &[2], &Verdict::Deny { reason: None });
    file.store(&house.session).unwrap();
    house.plot.rules.clear();
    house.plot.settings.on_ask = OnAsk::Fail;
    house.with_turn(|mut turn| {
        let ending = turn.go_on(Some(&file)).unwrap();
        assert!(
            matches!(&ending, Ending::WouldAsk(asked) if asked.rules.len() == 1 && !asked.questions_alone),
            "{ending:?}"
        );
        assert_eq!(turn.end(ending).unwrap().exit_code, 10);
    });
    assert_eq!(
        house.results(),
        ["call_1 ok", "call_2 cancelled would_ask", "call_3 denied denied", "call_4 cancelled would_ask"]
    );
    assert!(house.pending().is_none());
    assert_eq!(house.resume().unwrap().exit_code, 0);
    house.ensure_no_faults();
}

#[test]
fn a_call_that_would_ask_is_denied_and_the_turn_goes_on_if_so_wished() {
    let plot = Plot::new(&[("peek", OK), ("poke", OK), ("prod", OK)]).rule("prod", true);
    let house = House::new(plot.with(|settings| settings.on_ask = OnAsk::Deny));
    assert_eq!(house.tell("go").exit_code, 0);
    assert_eq!(house.results(), ["call_1 ok", "call_2 denied denied", "call_3 ok"]);
    house.ensure_no_faults();
}

#[test]
fn a_tool_that_is_gone_gives_an_error_and_one_no_longer_offered_a_denial() {
    let house = House::new(Plot::new(&[("poke", OK), ("prod", OK)]));
    house.tell("go");
    assert_eq!(house.approve(&["call_1"]).map(|result| result.exit_code), None);
    let mut file = house.pending().unwrap();
    decide(&mut file, &[0, 1], &Verdict::Approve);
    file.store(&house.session).unwrap();
    let ending = house.resume_with(|settings| settings.read_only = true).unwrap();
    assert_eq!(ending.exit_code, 0);
    let history = house.history();
    for id in ["call_1", "call_2"] {
        let (_, progress) = history.call(id).unwrap();
        assert_eq!(progress.result.as_ref().unwrap().status, ResultStatus::Denied);
    }
    assert!(house.effects().is_empty());
}
