//! Limits of calls and rounds: the rest of a reply is answered, the turn ends before the next request, and a
//! continuation starts afresh.

use super::house::{House, Plot};

const OK: &str = r#"{"do":"ok"}"#;

#[test]
fn calls_beyond_those_of_one_reply_are_answered_and_the_turn_goes_on() {
    let calls = [("poke", OK), ("peek", OK), ("poke", OK), ("peek", "no json"), ("prod", OK)];
    let plot = Plot::new(&calls).then(&[("poke", OK)]).rule("poke", true);
    let house = House::new(plot.with(|settings| settings.calls_per_reply = 2));
    assert_eq!(house.tell("go").exit_code, 0);
    // What is wrong with a call is told first; a call that would ask is not asked about.
    assert_eq!(
        house.results(),
        [
            "call_1 ok",
            "call_2 ok",
            "call_3 error limit",
            "call_4 error invalid_arguments",
            "call_5 error limit",
            "call_6 ok"
        ]
    );
    assert_eq!(house.effects(), ["call_1", "call_6"]);
    house.ensure_no_faults();
}

#[test]
fn calls_beyond_those_of_the_turn_end_it_and_limits_are_fresh_on_resume() {
    let plot = Plot::new(&[("poke", OK)]).then(&[("poke", OK), ("poke", OK)]).then(&[("poke", OK), ("peek", OK)]);
    let house = House::new(plot.then(&[("peek", OK)]).rule("poke", true).with(|settings| settings.max_tool_calls = 2));
    let result = house.tell("go");
    assert_eq!((result.exit_code, result.rounds, result.tool_calls), (14, Some(2), Some(3)));
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok", "call_3 error turn_limit"]);
    assert_eq!(house.record_lines().last().unwrap(), "turn_end limit_reached tool_calls");
    // Two more fit, and the third is one too many.
    assert_eq!(house.resume().unwrap().exit_code, 14);
    assert_eq!(
        house.results()[3..],
        ["call_4 ok", "call_5 ok", "call_6 error turn_limit"],
        "{:#?}",
        house.record_lines()
    );
    assert_eq!(house.resume().unwrap().exit_code, 0);
    assert_eq!(house.effects(), ["call_1", "call_2", "call_4"]);
    house.ensure_no_faults();
}

#[test]
fn exactly_as_many_calls_as_allowed_are_no_reason_to_end() {
    let house = House::new(Plot::new(&[("peek", OK), ("peek", OK)]).with(|settings| settings.max_tool_calls = 2));
    assert_eq!(house.tell("go").exit_code, 0);
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok"]);
}

#[test]
fn a_limit_behind_a_call_that_asks_is_told_at_once_and_ends_the_turn_after_the_decision() {
    let calls = [("poke", OK), ("peek", OK), ("peek", OK), ("poke", OK)];
    let house = House::new(Plot::new(&calls).with(|settings| settings.max_tool_calls = 2));
    assert_eq!(house.tell("go").exit_code, 10);
    assert_eq!(house.results(), ["call_1 open", "call_2 open", "call_3 error turn_limit", "call_4 error turn_limit"]);
    let result = house.approve(&[]).unwrap();
    assert_eq!((result.exit_code, result.rounds), (14, Some(1)));
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok", "call_3 error turn_limit", "call_4 error turn_limit"]);
    assert!(house.pending().is_none());
    assert_eq!(house.resume().unwrap().exit_code, 0);
    house.ensure_no_faults();
}

#[test]
fn rounds_are_counted_anew_as_well() {
    let house = House::new(Plot::new(&[("peek", OK)]).then(&[("peek", OK)]).with(|settings| settings.max_rounds = 1));
    assert_eq!(house.tell("go").exit_code, 14);
    assert_eq!(house.record_lines().last().unwrap(), "turn_end limit_reached rounds");
    assert_eq!(house.resume().unwrap().exit_code, 14);
    let result = house.resume().unwrap();
    assert_eq!((result.exit_code, result.rounds), (0, Some(3)));
    house.ensure_no_faults();
}
