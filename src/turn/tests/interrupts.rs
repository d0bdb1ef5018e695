//! An interrupt at each stage: what was started has a result, what is pending and was not begun stays pending, all else
//! is cancelled, and the turn goes on later.

use super::house::{House, Plot};
use crate::exit::Signal;
use crate::interrupt::Cause;
use crate::session::record::TrailingReads;
use crate::turn::decisions::{Verdict, decide};
use crate::turn::rounds::Ending;

const OK: &str = r#"{"do":"ok"}"#;
const RAISE: &str = r#"{"do":"raise"}"#;
const RAISE_OK: &str = r#"{"do":"raise_ok"}"#;

#[test]
fn a_reply_in_the_middle_gets_all_its_results() {
    for (calls, code, expected) in [
        (
            &[("poke", RAISE), ("poke", OK), ("peek", OK), ("nonsuch", OK)][..],
            130,
            &[
                "call_1 unknown interrupted",
                "call_2 cancelled cancelled",
                "call_3 cancelled cancelled",
                "call_4 cancelled cancelled",
            ][..],
        ),
        // What finished keeps its real outcome.
        (&[("poke", RAISE_OK), ("poke", OK)], 143, &["call_1 ok", "call_2 cancelled cancelled"]),
        (
            &[("peek", OK), ("peek", RAISE), ("peek", OK)],
            130,
            &["call_1 ok", "call_2 cancelled cancelled", "call_3 cancelled cancelled"],
        ),
        // A call that would have asked was never shown.
        (&[("poke", RAISE_OK), ("prod", OK)], 143, &["call_1 ok", "call_2 cancelled cancelled"]),
    ] {
        let house = House::new(Plot::new(calls).rule("poke", true).with(|settings| settings.concurrency = 1));
        let result = house.tell("go");
        assert_eq!((result.exit_code, result.status), (code, "interrupted"), "{calls:?}");
        assert_eq!(house.results(), expected, "{calls:?}");
        assert_eq!(house.record_lines().last().unwrap(), "turn_end interrupted");
        assert!(house.pending().is_none());
        let before = (house.effects(), house.reads());
        assert_eq!(house.resume().unwrap().exit_code, 0);
        assert_eq!((house.effects(), house.reads()), before, "nothing runs a second time");
        house.ensure_no_faults();
    }
}

#[test]
fn approved_calls_that_were_not_begun_stay_pending() {
    let house = House::new(Plot::new(&[("poke", RAISE), ("prod", OK), ("peek", OK)]));
    assert_eq!(house.tell("go").exit_code, 10);
    assert_eq!(house.approve(&[]).unwrap().exit_code, 130);
    assert_eq!(house.results(), ["call_1 unknown interrupted", "call_2 open", "call_3 open"]);
    assert!(!house.record_lines().contains(&"tool_start call_2".to_owned()));
    assert!(house.pending().unwrap().undecided().next().is_none());
    assert_eq!(house.resume().unwrap().exit_code, 0);
    assert_eq!(house.results(), ["call_1 unknown interrupted", "call_2 ok", "call_3 ok"]);
    assert_eq!(house.effects(), ["call_1", "call_2"]);
    assert!(house.pending().is_none());
    house.ensure_no_faults();
}

#[test]
fn carried_reads_of_a_group_that_were_not_begun_stay_pending() {
    let calls = [("poke", OK), ("peek", RAISE_OK), ("look", OK), ("peek", OK)];
    let plot = Plot::new(&calls).rule("look", true).with(|settings| settings.concurrency = 1);
    let house = House::new(plot);
    house.tell("go");
    assert_eq!(house.approve(&[]).unwrap().exit_code, 143);
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok", "call_3 open", "call_4 open"]);
    assert_eq!(house.resume().unwrap().exit_code, 0);
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok", "call_3 ok", "call_4 ok"]);
    assert_eq!(house.reads(), ["call_2", "call_3", "call_4"]);
    house.ensure_no_faults();
}

#[test]
fn stranded_calls_are_cancelled_with_the_rest_of_their_reply() {
    let calls = [("poke", RAISE), ("peek", OK), ("prod", OK)];
    let house = House::new(Plot::new(&calls).with(|settings| settings.trailing_reads = TrailingReads::Strand));
    house.tell("go");
    assert_eq!(house.results(), ["call_1 open", "call_2 open", "call_3 open"]);
    house.approve(&[]).unwrap();
    assert_eq!(house.results(), ["call_1 unknown interrupted", "call_2 cancelled cancelled", "call_3 open"]);
    assert_eq!(house.resume().unwrap().exit_code, 0);
    assert_eq!(house.results(), ["call_1 unknown interrupted", "call_2 cancelled cancelled", "call_3 ok"]);
    assert_eq!(house.effects(), ["call_1", "call_3"]);
    house.ensure_no_faults();
}

#[test]
fn an_interrupt_before_the_first_call_starts_nothing() {
    let house = House::new(Plot::new(&[("poke", OK), ("peek", OK)]));
    house.tell("go");
    let mut file = house.pending().unwrap();
    decide(&mut file, &[0], &Verdict::Approve);
    file.store(&house.session).unwrap();
    let records = house.record_lines();
    house.with_turn(|mut turn| {
        turn.interrupt.raise(Cause::Signal(Signal::Hangup));
        let ending = turn.go_on(Some(&file)).unwrap();
        assert!(matches!(ending, Ending::Interrupted(Signal::Hangup)), "{ending:?}");
    });
    assert_eq!(house.record_lines(), records);
    assert_eq!(house.pending(), Some(file));
    assert_eq!(house.resume().unwrap().exit_code, 0);
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok"]);
    house.ensure_no_faults();
}
