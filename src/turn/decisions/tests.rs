//! Which calls an ID names, what may still be said of them, and what else a denial decides.

use serde_json::json;

use super::{Verdict, decide, ensure_fits, is_answered, select, waits};
use crate::exit::Status;
use crate::session::history::History;
use crate::session::pending::{Needs, PendingCall, PendingFile};
use crate::session::record::{Change, Decision, PlannedFile, Record};
use crate::tool::Preview;

fn call(id: &str, needs: Needs, decision: Option<Decision>) -> PendingCall {
    PendingCall {
        id: id.split('#').next().unwrap().to_owned(),
        operation: id.split('#').nth(1).map(|number| number.parse().unwrap()),
        name: "poke".to_owned(),
        arguments: json!({}),
        needs,
        why: None,
        summary: None,
        preview: None,
        grant: None,
        decision,
        reason: None,
        answer: None,
        granted: None,
        decided_at: None,
    }
}

fn file(calls: Vec<PendingCall>) -> PendingFile {
    PendingFile {
        format: 1,
        session: "main".to_owned(),
        turn: 1,
        at: String::new(),
        status: "awaiting_approval".to_owned(),
        digest: PendingFile::digest_of(&calls),
        calls,
    }
}

fn patch(id: &str, paths: &[&str], decision: Option<Decision>) -> PendingCall {
    let planned = |path: &&str| PlannedFile {
        path: (*path).to_owned(),
        change: Change::Update,
        sha256_before: None,
        sha256_after: None,
    };
    let files = paths.iter().map(planned).collect();
    let preview = Preview::Patch { diff: String::new(), files, why: String::new() };
    PendingCall { preview: Some(preview), ..call(id, Needs::Approval, decision) }
}

fn deny() -> Verdict {
    Verdict::Deny { reason: Some("no".to_owned()) }
}

fn mixed() -> PendingFile {
    file(vec![
        call("c1", Needs::Approval, None),
        call("c2", Needs::Nothing, None),
        call("c3", Needs::Answer, None),
        call("c4", Needs::Approval, Some(Decision::Approve)),
        call("c5", Needs::Approval, Some(Decision::Deny)),
        call("c6", Needs::Approval, Some(Decision::Stale)),
        call("c7#1", Needs::Approval, None),
        call("c7#2", Needs::Approval, Some(Decision::Deny)),
        call("c7#3", Needs::Approval, None),
        call("c8", Needs::Approval, Some(Decision::Allow)),
        call("d1#1", Needs::Approval, Some(Decision::Deny)),
        call("d1#2", Needs::Approval, Some(Decision::Deny)),
        call("d2#1", Needs::Approval, Some(Decision::Approve)),
        call("d2#2", Needs::Approval, Some(Decision::Deny)),
        call("d3#1", Needs::Nothing, None),
        call("d3#2", Needs::Approval, Some(Decision::Deny)),
        call("d4#1", Needs::Nothing, None),
        call("d4#2", Needs::Nothing, None),
        call("d5#1", Needs::Approval, Some(Decision::Stale)),
        call("d5#2", Needs::Approval, Some(Decision::Stale)),
    ])
}

#[test]
fn ids_select_what_is_undecided() {
    for (ids, verdict, expected) in [
        (&[][..], Verdict::Approve, &[0, 6, 8][..]),
        (&[], deny(), &[0, 2, 6, 8]),
        (&["c1"], Verdict::Approve, &[0]),
        (&["c1", "c1"], Verdict::Approve, &[0]),
        (&["c7"], Verdict::Approve, &[6, 8]),
        (&["c7"], deny(), &[6, 8]),
        (&["c7#3", "c7"], deny(), &[8, 6]),
        (&["c7#2"], deny(), &[7]),
        (&["c3"], deny(), &[2]),
        // The same again is no error.
        (&["c4"], Verdict::Approve, &[3]),
        (&["c8"], Verdict::Approve, &[9]),
        (&["c5"], deny(), &[4]),
        (&["d1"], deny(), &[10, 11]),
        (&["d2"], Verdict::Approve, &[12]),
        (&["d2"], deny(), &[13]),
        (&["d3"], deny(), &[15]),
    ] {
        let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
        assert_eq!(select(&mixed(), &ids, &verdict).unwrap(), expected, "{ids:?} {verdict:?}");
    }
}

#[test]
fn what_does_not_fit_has_its_status() {
    for (id, verdict, status, words) in [
        ("c9", Verdict::Approve, Status::NothingPending, "no pending call has the ID \"c9\""),
        ("c1#1", Verdict::Approve, Status::NothingPending, "no pending call"),
        ("", deny(), Status::NothingPending, "no pending call"),
        ("c2", Verdict::Approve, Status::Usage, "c2 is carried"),
        ("c2", deny(), Status::Usage, "c2 is carried"),
        ("c3", Verdict::Approve, Status::Usage, "c3 is a question"),
        ("c4", deny(), Status::Conflict, "c4 is approved already"),
        ("c8", deny(), Status::Conflict, "c8 is approved already"),
        ("c5", Verdict::Approve, Status::Conflict, "c5 is denied already"),
        ("c7#2", Verdict::Approve, Status::Conflict, "c7#2 is denied already"),
        ("c6", Verdict::Approve, Status::Conflict, "c6 is void"),
        ("c6", deny(), Status::Conflict, "c6 is void"),
        // A whole call of which every operation was decided, and none so.
        ("d1", Verdict::Approve, Status::Conflict, "d1#1 is denied already"),
        ("d3", Verdict::Approve, Status::Conflict, "d3#2 is denied already"),
        ("d4", Verdict::Approve, Status::Usage, "d4#1 is carried"),
        ("d5", deny(), Status::Conflict, "d5#1 is void"),
    ] {
        let failure = select(&mixed(), &[id.to_owned()], &verdict).unwrap_err();
        assert_eq!(failure.status, status, "{id}");
        assert!(failure.message.contains(words), "{id}: {}", failure.message);
        assert!(failure.hint.is_some());
    }
    let unknown = select(&mixed(), &["c9".to_owned()], &deny()).unwrap_err();
    assert!(!unknown.hint.unwrap().contains("c2"), "a carried call is nothing to decide on");
}

#[test]
fn deciding_writes_once_and_the_same_again_changes_nothing() {
    let mut decided = mixed();
    decide(&mut decided, &[0, 6], &deny());
    let once = decided.clone();
    assert_eq!(decided.calls[0].decision, Some(Decision::Deny));
    assert_eq!(decided.calls[0].reason.as_deref(), Some("no"));
    assert!(decided.calls[0].decided_at.is_some());
    assert_eq!(decided.digest, PendingFile::digest_of(&decided.calls), "decisions are no part of the digest");
    decide(&mut decided, &[0, 6], &Verdict::Deny { reason: Some("another".to_owned()) });
    assert_eq!(decided, once);
    decide(&mut decided, &[8], &Verdict::Approve);
    let decisions: Vec<_> = decided.calls[6..9].iter().map(|call| call.decision).collect();
    assert_eq!(decisions, [Some(Decision::Deny), Some(Decision::Deny), Some(Decision::Approve)]);
}

#[test]
fn denying_a_patch_voids_the_undecided_ones_that_stand_on_it() {
    let stack = || {
        file(vec![
            patch("c1", &["a"], None),
            patch("c2", &["a", "b"], None),
            call("c3", Needs::Approval, None),
            patch("c4", &["b"], None),
            patch("c5", &["a"], Some(Decision::Approve)),
            patch("c6", &["c"], None),
        ])
    };
    let (deny_, stale, approve) = (Some(Decision::Deny), Some(Decision::Stale), Some(Decision::Approve));
    for (selected, expected) in [
        (&[0][..], [deny_, stale, None, stale, approve, None]),
        (&[1], [None, deny_, None, stale, approve, None]),
        (&[3], [None, None, None, deny_, approve, None]),
        (&[5], [None, None, None, None, approve, deny_]),
        // What a person denies together is denied.
        (&[0, 1, 3], [deny_, deny_, None, deny_, approve, None]),
        (&[0, 3], [deny_, stale, None, deny_, approve, None]),
    ] {
        let mut decided = stack();
        decide(&mut decided, selected, &deny());
        let decisions: Vec<_> = decided.calls.iter().map(|call| call.decision).collect();
        assert_eq!(decisions, expected, "{selected:?}");
        for call in &decided.calls {
            assert_eq!(call.reason.is_some(), call.decision == deny_, "{selected:?}");
        }
    }
    let mut approved = stack();
    decide(&mut approved, &[0], &Verdict::Approve);
    assert_eq!(approved.calls[1].decision, None);
}

fn history(lines: &[serde_json::Value]) -> History {
    let mut history = History::default();
    for line in lines {
        history.apply(&serde_json::from_value::<Record>(line.clone()).unwrap()).unwrap();
    }
    history
}

#[test]
fn a_file_fits_the_latest_reply_or_is_a_conflict() {
    let calls = json!([
        {"id": "c1", "name": "poke", "arguments": "{}"},
        {"id": "c2", "name": "poke", "arguments": "{}"},
    ]);
    let mut lines = vec![
        json!({"type": "session", "format": 1, "id": "", "at": "", "attini": ""}),
        json!({"type": "user", "turn": 1, "at": "", "text": "go", "settings": {}}),
        json!({"type": "assistant", "turn": 1, "round": 1, "at": "", "provider": "", "model": "", "text": "",
            "tool_calls": calls, "finish_reason": "stop"}),
    ];
    let both = || file(vec![call("c1", Needs::Approval, None), call("c2", Needs::Nothing, None)]);
    assert!(ensure_fits(&both(), &history(&lines)).is_ok());
    assert!(!is_answered(&both(), &history(&lines)));
    let mut other_turn = both();
    other_turn.turn = 2;
    let mut changed = both();
    changed.calls[0].arguments = json!({"do": "other"});
    let stranger = file(vec![call("c9", Needs::Approval, None)]);
    let twice = file(vec![call("c1", Needs::Approval, None), call("c1", Needs::Approval, None)]);
    for (file, words) in [
        (other_turn, "it is about turn 2, and the latest is 1"),
        (changed, "its digest is not that of its calls"),
        (stranger, "the latest reply has no call c9"),
        (twice, "it lists c1 twice"),
    ] {
        let failure = ensure_fits(&file, &history(&lines)).unwrap_err();
        assert_eq!(failure.status, Status::Conflict);
        assert!(failure.message.contains(words), "{}", failure.message);
    }
    for id in ["c1", "c2"] {
        assert!(!is_answered(&both(), &history(&lines)));
        lines.push(json!({"type": "tool_result", "call_id": id, "at": "", "status": "ok", "content": "x"}));
    }
    assert!(is_answered(&both(), &history(&lines)));
    lines.push(json!({"type": "user", "turn": 2, "at": "", "text": "go", "settings": {}}));
    assert!(ensure_fits(&both(), &history(&lines)).is_err());
}

#[test]
fn a_call_whose_operations_are_recorded_still_waits_for_its_own_result() {
    let mut lines = vec![
        json!({"type": "session", "format": 1, "id": "", "at": "", "attini": ""}),
        json!({"type": "user", "turn": 1, "at": "", "text": "go", "settings": {}}),
        json!({"type": "assistant", "turn": 1, "round": 1, "at": "", "provider": "", "model": "", "text": "",
            "tool_calls": [{"id": "c1", "name": "poke", "arguments": "{}"}], "finish_reason": "tool_calls"}),
    ];
    let both = file(vec![call("c1#1", Needs::Approval, None), call("c1#2", Needs::Approval, None)]);
    let state = |lines: &[serde_json::Value]| {
        let history = history(lines);
        let waiting: Vec<bool> = both.calls.iter().map(|call| waits(&call.operation_id(), &history)).collect();
        (waiting, is_answered(&both, &history))
    };
    assert_eq!(state(&lines), (vec![true, true], false));
    lines.push(json!({"type": "tool_start", "call_id": "c1", "operation": 1, "at": ""}));
    assert_eq!(state(&lines), (vec![false, true], false), "what was started waits for nobody");
    for operation in [1, 2] {
        lines.push(
            json!({"type": "operation_result", "call_id": "c1", "operation": operation, "at": "", "status": "ok",
            "content": "x"}),
        );
    }
    assert_eq!(state(&lines), (vec![false, false], false));
    lines.push(json!({"type": "tool_result", "call_id": "c1", "at": "", "status": "ok", "content": "x"}));
    assert_eq!(state(&lines), (vec![false, false], true));
}
