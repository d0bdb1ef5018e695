//! The file as it is stored, loaded and removed, and what its digest is over.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;

use super::{FILE_NAME, Needs, PendingCall, PendingFile};
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::Rule;
use crate::session::folder::SessionFolder;
use crate::session::record::{Decision, OperationId};
use crate::tool::Preview;
use crate::workspace::root::Root;

fn session() -> (tempfile::TempDir, SessionFolder, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let path = folder.path().join(FILE_NAME);
    (folder, SessionFolder { name: "main".to_owned(), root }, path)
}

fn call(id: &str) -> PendingCall {
    PendingCall {
        id: id.to_owned(),
        operation: None,
        name: "command".to_owned(),
        arguments: json!({"argv": ["cargo", "test"]}),
        needs: Needs::Approval,
        why: Some("no rule allows it".to_owned()),
        summary: Some("cargo test".to_owned()),
        preview: Some(Preview::Tool { arguments: json!({}) }),
        grant: Some(vec![Rule::Tool { allow: true, name: "command".to_owned(), turn: None }]),
        decision: None,
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
        turn: 3,
        at: "2026-11-30T15:04:05.678Z".to_owned(),
        status: "awaiting_approval".to_owned(),
        digest: PendingFile::digest_of(&calls),
        calls,
    }
}

#[test]
fn it_is_stored_whole_and_removed_for_good() {
    let (_folder, session, path) = session();
    assert_eq!(PendingFile::load(&session).unwrap(), None);
    PendingFile::remove(&session).unwrap();
    for calls in [vec![call("c1")], vec![call("c1"), call("c2")], Vec::new()] {
        let stored = file(calls);
        stored.store(&session).unwrap();
        assert_eq!(PendingFile::load(&session).unwrap(), Some(stored));
    }
    PendingFile::remove(&session).unwrap();
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_read_is_corrupt_and_stays() {
    let (_folder, session, path) = session();
    let newer = json!({"format": 2, "session": "", "turn": 1, "at": "", "status": "", "digest": "", "calls": []});
    for (bytes, words) in [
        (Vec::new(), "EOF while parsing"),
        (b"{".to_vec(), "EOF while parsing"),
        (b"[]".to_vec(), "invalid"),
        (b"{}".to_vec(), "missing field `format`"),
        (vec![0, 0], "expected value"),
        (newer.to_string().into_bytes(), "it has format 2, and this attini knows 1"),
    ] {
        fs_err::write(&path, &bytes).unwrap();
        let failure = Failure::of(&PendingFile::load(&session).unwrap_err());
        assert_eq!(failure.status, Status::Corrupt);
        assert!(failure.message.contains(FILE_NAME) && failure.message.contains(words), "{}", failure.message);
        assert_eq!(fs_err::read(&path).unwrap(), bytes);
    }
    fs_err::remove_file(&path).unwrap();
    fs_err::create_dir(&path).unwrap();
    assert_eq!(Failure::of(&PendingFile::load(&session).unwrap_err()).status, Status::Corrupt);
}

#[test]
fn fields_of_a_newer_attini_are_no_hindrance() {
    let (_folder, session, path) = session();
    let mut value = serde_json::to_value(file(vec![call("c1")])).unwrap();
    value["more"] = json!(1);
    value["calls"][0]["more"] = json!({"x": []});
    fs_err::write(&path, value.to_string()).unwrap();
    assert_eq!(PendingFile::load(&session).unwrap(), Some(file(vec![call("c1")])));
}

#[test]
fn the_digest_is_over_what_was_shown_and_not_over_what_was_decided() {
    let calls = || vec![call("c1"), call("c2")];
    let digest = PendingFile::digest_of(&calls());
    assert!(digest.starts_with("sha256:") && digest.len() == "sha256:".len() + 64, "{digest}");
    let changed = |change: fn(&mut PendingCall)| {
        let mut calls = calls();
        change(&mut calls[1]);
        PendingFile::digest_of(&calls)
    };
    let shown: [fn(&mut PendingCall); 7] = [
        |call| call.id.push('x'),
        |call| call.operation = Some(1),
        |call| call.name.push('x'),
        |call| call.arguments = json!({}),
        |call| call.needs = Needs::Nothing,
        |call| call.preview = None,
        |call| call.grant = None,
    ];
    for (index, change) in shown.into_iter().enumerate() {
        assert_ne!(changed(change), digest, "{index}");
    }
    let decided: [fn(&mut PendingCall); 4] = [
        |call| call.decision = Some(Decision::Deny),
        |call| call.reason = Some("no".to_owned()),
        |call| call.answer = Some("yes".to_owned()),
        |call| call.decided_at = Some("now".to_owned()),
    ];
    for (index, change) in decided.into_iter().enumerate() {
        assert_eq!(changed(change), digest, "{index}");
    }
    let mut swapped = calls();
    swapped.swap(0, 1);
    assert_ne!(PendingFile::digest_of(&swapped), digest);
}

#[test]
fn what_is_undecided_and_whether_it_is_questions_alone() {
    let with = |needs, decision| PendingCall { needs, decision, ..call("c") };
    for (calls, undecided, questions) in [
        (vec![with(Needs::Approval, None), with(Needs::Answer, None)], 2, false),
        (vec![with(Needs::Nothing, None), with(Needs::Answer, None)], 1, true),
        (vec![with(Needs::Approval, Some(Decision::Stale)), with(Needs::Nothing, None)], 0, true),
    ] {
        let file = file(calls);
        assert_eq!((file.undecided().count(), file.awaits_answers_alone()), (undecided, questions));
    }
    let file = file(vec![call("c1"), PendingCall { operation: Some(2), ..call("c2") }]);
    assert!(file.call(&OperationId::parse("c1")).is_some());
    assert!(file.call(&OperationId::parse("c2")).is_none());
    assert!(file.call(&OperationId::parse("c2#2")).is_some());
}

proptest! {
    #[test]
    fn no_bytes_make_loading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_folder, session, path) = session();
        fs_err::write(&path, &bytes).unwrap();
        prop_assert!(PendingFile::load(&session).is_err());
    }
}

#[test]
fn a_file_of_an_earlier_day_loads() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/pending/suspended.json");
    let file = PendingFile::parse(&fs_err::read(path).unwrap()).unwrap();
    assert_eq!(file.digest, PendingFile::digest_of(&file.calls));
    assert_eq!(file.undecided().count(), 1);
}
