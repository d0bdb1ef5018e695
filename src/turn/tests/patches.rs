//! Patches across kills and suspensions, with the real tool and real files.

use serde_json::json;

use super::house::{Disk, House, Plot};
use crate::permission::Rule;
use crate::session::record::Decision;
use crate::tool::Preview;

fn edit(path: &str, before: &str, after: &str) -> serde_json::Value {
    json!({"path": path, "before": before, "after": after})
}

fn edits(edits: &[serde_json::Value]) -> String {
    json!({"edits": edits}).to_string()
}

fn may_write(mut plot: Plot, path: &str) -> Plot {
    plot.rules.push(Rule::Write { allow: true, path: path.to_owned(), turn: None });
    plot
}

fn house(plot: Plot, files: &[(&str, &str)]) -> House {
    let house = House::new(plot);
    for (path, text) in files {
        fs_err::write(house.path(path), text).unwrap();
    }
    house
}

fn text(house: &House, path: &str) -> String {
    fs_err::read_to_string(house.path(path)).unwrap()
}

#[test]
fn a_patch_that_was_killed_is_known_by_its_files() {
    for (a, b, expected, words) in [
        ("new\n", "neu\n", "call_1 ok recovered", &["written whole"][..]),
        ("old\n", "alt\n", "call_1 cancelled cancelled", &["every file is as it was"]),
        ("new\n", "alt\n", "call_1 unknown unknown_outcome", &["a.txt: it is ", "b.txt: it is "]),
        ("else\n", "neu\n", "call_1 unknown unknown_outcome", &["a.txt: it is ", "b.txt: it is "]),
    ] {
        let both = edits(&[edit("a.txt", "old", "new"), edit("b.txt", "alt", "neu")]);
        let plot = may_write(Plot::new(&[("patch", both.as_str()), ("poke", r#"{"do":"ok"}"#)]), ".");
        let house = house(plot, &[("a.txt", "old\n"), ("b.txt", "alt\n")]);
        house.tell("go");
        assert_eq!((text(&house, "a.txt").as_str(), text(&house, "b.txt").as_str()), ("new\n", "neu\n"));
        let log = String::from_utf8(house.disk().log.unwrap()).unwrap();
        let killed: String = log.split_inclusive('\n').take(5).collect();
        house.put(&Disk { log: Some(killed.into_bytes()), pending: None });
        assert_eq!(house.record_lines().last().unwrap(), "tool_start call_1");
        fs_err::write(house.path("a.txt"), a).unwrap();
        fs_err::write(house.path("b.txt"), b).unwrap();
        assert_eq!(house.resume().unwrap().exit_code, 0);
        assert_eq!(house.results(), [expected, "call_2 cancelled cancelled"]);
        assert_eq!((text(&house, "a.txt").as_str(), text(&house, "b.txt").as_str()), (a, b), "nothing is written");
        let history = house.history();
        let result = history.call("call_1").unwrap().1.result.clone().unwrap();
        for word in words {
            assert!(result.content.contains(word), "{}", result.content);
        }
        assert_eq!(history.written().is_empty(), expected != "call_1 ok recovered");
        house.ensure_no_faults();
    }
}

#[test]
fn a_patch_that_asks_is_shown_on_top_of_one_that_is_carried() {
    let first = edits(&[edit("a.txt", "one", "two")]);
    let second = edits(&[edit("a.txt", "two", "three"), json!({"path": "new.txt", "content": "x\n"})]);
    let calls = [("poke", r#"{"do":"ok"}"#), ("patch", first.as_str()), ("patch", second.as_str())];
    let house = house(may_write(Plot::new(&calls), "a.txt"), &[("a.txt", "one\n")]);
    assert_eq!(house.tell("go").exit_code, 10);
    assert_eq!(house.results(), ["call_1 open", "call_2 open", "call_3 open"]);
    let file = house.pending().unwrap();
    let Some(Preview::Patch { diff, .. }) = &file.calls[2].preview else { panic!("{file:?}") };
    assert!(diff.contains("-two\n+three\n"), "{diff}");
    assert_eq!(house.approve(&[]).unwrap().exit_code, 0);
    assert_eq!(house.results(), ["call_1 ok", "call_2 ok", "call_3 ok"]);
    assert_eq!(text(&house, "a.txt"), "three\n");
    house.ensure_no_faults();
}

#[test]
fn what_stands_on_a_denied_patch_is_stale_and_the_rest_is_not() {
    let first = edits(&[edit("a.txt", "one", "two")]);
    let second = edits(&[edit("a.txt", "two", "three"), edit("b.txt", "one", "two")]);
    let third = edits(&[edit("b.txt", "two", "three")]);
    let fourth = edits(&[edit("c.txt", "one", "two")]);
    let calls = [&first, &second, &third, &fourth].map(|edits| ("patch", edits.as_str()));
    let files = [("a.txt", "one\n"), ("b.txt", "one\n"), ("c.txt", "one\n")];
    let house = house(Plot::new(&calls), &files);
    house.tell("go");
    assert!(house.deny(&["call_1"]).is_none());
    let decisions: Vec<Option<Decision>> = house.pending().unwrap().calls.iter().map(|call| call.decision).collect();
    assert_eq!(decisions, [Some(Decision::Deny), Some(Decision::Stale), Some(Decision::Stale), None]);
    assert_eq!(house.approve(&[]).unwrap().exit_code, 0);
    assert_eq!(house.results(), ["call_1 denied denied", "call_2 error stale", "call_3 error stale", "call_4 ok"]);
    assert_eq!(["a.txt", "b.txt", "c.txt"].map(|path| text(&house, path)), ["one\n", "one\n", "two\n"]);
    house.ensure_no_faults();
}

#[test]
fn a_file_that_someone_changed_makes_an_approved_patch_stale_and_is_no_conflict() {
    let first = edits(&[edit("a.txt", "one", "two")]);
    let house = house(Plot::new(&[("patch", first.as_str())]), &[("a.txt", "one\n")]);
    house.tell("go");
    fs_err::write(house.path("a.txt"), "one, and more\n").unwrap();
    assert_eq!(house.approve(&[]).unwrap().exit_code, 0);
    assert_eq!(house.results(), ["call_1 error stale"]);
    assert_eq!(text(&house, "a.txt"), "one, and more\n");
    house.ensure_no_faults();
}
