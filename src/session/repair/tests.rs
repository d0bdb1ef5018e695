//! What a repair makes of the logs that are kept as fixtures, and of any mixture of lines.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::{Repair, repair_session};
use crate::session::check::{Violation, check_session};
use crate::session::folder::SessionFolder;
use crate::session::log::{FILE_NAME, Log};
use crate::workspace::Workspace;
use crate::workspace::root::Root;

struct Place {
    folder: tempfile::TempDir,
    workspace: Workspace,
    session: SessionFolder,
}

impl Place {
    fn with(log: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session");
        fs_err::create_dir(&path).unwrap();
        fs_err::write(path.join(FILE_NAME), log).unwrap();
        let session = SessionFolder { name: "main".to_owned(), root: Root::open(&path).unwrap() };
        Self { workspace: Workspace::open(folder.path()).unwrap(), session, folder }
    }

    fn log(&self) -> Vec<u8> {
        fs_err::read(self.folder.path().join("session").join(FILE_NAME)).unwrap()
    }

    fn violations(&self) -> Vec<Violation> {
        check_session(&self.session).unwrap().unwrap().violations
    }

    fn repair(&self) -> Repair {
        repair_session(&self.session, &self.workspace).unwrap().unwrap()
    }

    /// All or nothing, what was there is kept, and a second time there is nothing to do.
    fn assert_repaired(&self, before: &[u8]) -> Repair {
        let repair = self.repair();
        if !repair.unmendable.is_empty() {
            assert!(repair.deeds.is_empty() && repair.kept.is_empty() && self.log() == before);
            return repair;
        }
        assert_eq!(self.violations(), []);
        assert!(Log::read(&self.session).is_ok());
        let kept: Vec<Vec<u8>> = repair.kept.iter().map(|kept| fs_err::read(kept).unwrap()).collect();
        if self.log() == before {
            assert!(kept.is_empty());
        } else {
            assert_eq!(kept, [before]);
        }
        let again = self.repair();
        assert!(again.deeds.is_empty() && again.unmendable.is_empty(), "{again:?}");
        repair
    }
}

fn logs(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths: Vec<PathBuf> = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.display().to_string(), fs_err::read(path).unwrap())).collect()
}

#[test]
fn good_logs_stay_as_they_are() {
    for (name, log) in logs("fixtures/logs/good") {
        let place = Place::with(&log);
        assert_eq!(place.violations(), [], "{name}");
        let repair = place.assert_repaired(&log);
        assert!(repair.deeds.is_empty() && repair.unmendable.is_empty(), "{name}: {repair:?}");
        assert!(place.log() == log, "{name}");
    }
}

#[test]
fn broken_logs_are_found_out_and_mended_or_left_alone() {
    let mut unmendable = Vec::new();
    for (name, log) in logs("fixtures/logs/broken") {
        let place = Place::with(&log);
        assert_ne!(place.violations(), [], "{name}");
        let repair = place.assert_repaired(&log);
        assert_ne!(repair.deeds.is_empty(), repair.unmendable.is_empty(), "{name}: {repair:?}");
        if !repair.unmendable.is_empty() {
            unmendable.push(name.rsplit('/').next().unwrap().to_owned());
        }
    }
    unmendable.sort();
    assert_eq!(unmendable, ["reused-id.jsonl", "turn-back.jsonl", "unreadable-reply.jsonl"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_lines_of_a_log_are_mended_or_left_alone(
        choices in prop::collection::vec(0_usize..40, 0..25),
        cut in 0_usize..60,
    ) {
        let (_, good) = logs("fixtures/logs/good").into_iter().max_by_key(|(_, log)| log.len()).unwrap();
        let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
        let damaged: [&[u8]; 4] = [b"\0\0\0\n", b"garbage\n", b"\n", b"{\"type\":\"later\"}\n"];
        let mut log = lines[0].to_vec();
        for choice in choices {
            log.extend_from_slice(lines.get(choice).copied().unwrap_or(damaged[choice % damaged.len()]));
        }
        log.truncate((log.len() - cut.min(log.len() - 1)).max(1));
        Place::with(&log).assert_repaired(&log);
    }
}
