//! A record that cannot be written: nothing is told, nothing more runs, and what is on disk goes on later.

use super::house::{House, Plot};
use crate::command::opened::run;

const OK: &str = r#"{"do":"ok"}"#;

#[test]
fn nothing_runs_and_nothing_is_told_once_the_log_cannot_be_written() {
    let house = House::new(Plot::new(&[("poke", OK), ("peek", OK)]));
    house.tell("go");
    let mut file = house.pending().unwrap();
    crate::turn::decisions::decide(&mut file, &[0], &crate::turn::decisions::Verdict::Approve);
    file.store(&house.session).unwrap();
    let before = house.record_lines();
    house.events.lock().unwrap().clear();
    house.with_turn(|mut turn| {
        turn.log.make_unwritable(&house.session);
        let result = run(turn, Some(&file), |_| {});
        assert_eq!((result.exit_code, result.status), (15, "persistence_error"));
    });
    assert!(house.effects().is_empty());
    assert_eq!(house.record_lines(), before);
    let events = house.events.lock().unwrap().clone();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["turn_started", "result"]);
    assert_eq!(house.resume().unwrap().exit_code, 0);
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok"]);
    house.ensure_no_faults();
}

#[test]
fn a_reply_that_cannot_be_recorded_is_not_told_of() {
    let house = House::new(Plot::new(&[]));
    house.tell("go");
    let before = house.record_lines();
    let user = crate::command::opened::user_record(2, "again", &house.plot.settings);
    house.with_turn(|mut turn| {
        turn.log.append(&user).unwrap();
        turn.log.barrier().unwrap();
        turn.log.make_unwritable(&house.session);
        let result = run(turn, None, |_| {});
        assert_eq!(result.exit_code, 15);
        assert_eq!((result.text.as_deref(), result.rounds), (Some(""), Some(0)));
    });
    assert_eq!(house.record_lines().len(), before.len() + 1);
    assert_eq!(house.resume().unwrap().text.as_deref(), Some("done"));
}
