//! Any bytes as a pending.json: what loads is stored and loads again as the same, its digest is over what was shown and
//! not over what was decided, and what contradicts itself or the conversation is refused before anything is done.

#![no_main]

use attini::session::history::History;
use attini::session::pending::PendingFile;
use attini::turn::decisions::{Verdict, decide, ensure_fits, is_answered, select};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = PendingFile::parse(bytes) else { return };
    let stored = serde_json::to_vec(&file).expect("what was loaded can be stored");
    let again = PendingFile::parse(&stored).expect("what was stored can be loaded");
    assert_eq!(file, again, "stored, it loads as something else");
    let history = History::default();
    assert!(ensure_fits(&file, &history).is_err(), "it fits an empty conversation");
    assert!(!is_answered(&file, &history), "in an empty conversation it is answered");
    let digest = PendingFile::digest_of(&file.calls);
    for verdict in [Verdict::Approve, Verdict::Deny { reason: Some("no".to_owned()) }] {
        let mut decided = file.clone();
        let Ok(selected) = select(&decided, &[], &verdict) else { continue };
        decide(&mut decided, &selected, &verdict);
        assert_eq!(PendingFile::digest_of(&decided.calls), digest, "a decision changed the digest");
        for (before, after) in file.calls.iter().zip(&decided.calls) {
            assert!(before.decision.is_none() || before == after, "what was decided was decided anew");
        }
        for index in selected {
            assert!(decided.calls[index].decision.is_some(), "what was selected is not decided");
        }
    }
});
