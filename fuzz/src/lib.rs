//! What the fuzz targets share: a session folder to fill, and what must hold for any log in it.
//!
//! A target does more than wait for a panic; each says in its own first lines which property it tries.

use std::path::PathBuf;

use attini::session::check::{Findings, check_session};
use attini::session::folder::SessionFolder;
use attini::session::history::History;
use attini::session::log::Log;
use attini::session::repair::{Repair, repair_session};
use attini::workspace::Workspace;
use attini::workspace::root::Root;

/// A workspace and a session folder in it. Each try syncs many files, so `TMPDIR` had better be in memory. It stays when
/// the process ends.
pub struct Place {
    folder: tempfile::TempDir,
    pub workspace: Workspace,
    pub session: SessionFolder,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("attini-fuzz-").tempdir().expect("a folder can be made");
        let session_path = folder.path().join("session");
        std::fs::create_dir(&session_path).expect("a folder can be made");
        let workspace = Workspace::discover(Some(folder.path()), folder.path()).expect("it is a workspace");
        let root = Root::open(&session_path).expect("the folder was just made");
        Self { folder, workspace, session: SessionFolder { name: "main".to_owned(), root } }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("session").join(name)
    }

    /// Empties the session's folder.
    pub fn clear(&self) {
        for entry in std::fs::read_dir(self.path("")).expect("the folder is there").flatten() {
            let path = entry.path();
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.expect("it can be removed");
        }
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("the place can be written to");
    }

    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path(name)).ok()
    }

    fn check(&self) -> Option<Findings> {
        check_session(&self.session).expect("the files can be read")
    }

    fn repair(&self) -> Option<Repair> {
        repair_session(&self.session, &self.workspace).expect("the files can be read and written")
    }

    /// What a session's folder holds under names that say it was kept.
    fn kept(&self, name: &str) -> Vec<Vec<u8>> {
        let entries = std::fs::read_dir(self.path("")).expect("the folder is there").flatten();
        let prefix = format!("{name}.before-repair-");
        let kept = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        kept.map(|entry| std::fs::read(entry.path()).expect("it can be read")).collect()
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

const LOG: &str = "conversation.jsonl";
const PENDING: &str = "pending.json";

/// A log loads the same each time, and checking finds a fault wherever loading does. Opening it for writing loads the
/// same, and changes nothing but the tail. A repair mends everything, and keeps what was there, or changes nothing; a
/// second one finds nothing to do.
pub fn try_log(place: &Place, log: &[u8], pending: Option<&[u8]>) {
    let plant = || {
        place.clear();
        place.write(LOG, log);
        if let Some(pending) = pending {
            place.write(PENDING, pending);
        }
    };
    plant();
    let load =
        || Log::read(&place.session).map(|history| history.as_ref().map(told)).map_err(|error| error.to_string());
    let loaded = load();
    assert_eq!(loaded, load(), "the same log loads in two ways");
    let findings = place.check().expect("there is a log");
    let in_log = findings.violations.iter().filter(|violation| violation.file.ends_with(LOG));
    if loaded.is_err() {
        assert!(in_log.count() > 0, "loading finds a fault and checking none: {loaded:?}");
    } else {
        let hard: Vec<_> = in_log.filter(|violation| !violation.what.contains("the next turn")).collect();
        assert!(hard.is_empty(), "checking finds a fault and loading none: {hard:?}");
    }
    if let Ok(Some((opened, _))) = Log::open(&place.session) {
        assert_eq!(loaded, Ok(Some(told(opened.history()))), "opening loads otherwise");
        let after = place.read(LOG).expect("the log stays");
        assert!(log.starts_with(&after) || after == [log, b"\n"].concat(), "opening changed more than the tail");
    } else {
        assert_eq!(place.read(LOG).as_deref(), Some(log), "what cannot be loaded was changed");
    }
    plant();
    try_repair(place, log, pending, findings.violations.is_empty());
}

/// Everything that a history tells, in an order of its own.
fn told(history: &History) -> String {
    let ids = history.open_calls().map(|(call, progress)| (&call.id, progress.is_started())).collect::<Vec<_>>();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {ids:?}",
        history.session(),
        history.entries(),
        history.turn_end(),
        history.spent(),
        history.written()
    )
}

fn try_repair(place: &Place, log: &[u8], pending: Option<&[u8]>, was_clean: bool) {
    let repair = place.repair().expect("there is a log");
    if !repair.unmendable.is_empty() {
        assert!(!was_clean && repair.deeds.is_empty() && repair.kept.is_empty());
        assert_eq!(place.read(LOG).as_deref(), Some(log), "what cannot be mended was changed");
        assert_eq!(place.read(PENDING).as_deref(), pending, "what cannot be mended was changed");
        return;
    }
    for (name, before) in [(LOG, Some(log)), (PENDING, pending)] {
        let now = place.read(name);
        if now.as_deref() != before {
            assert_eq!(place.kept(name), [before.unwrap_or_default()], "the original is not beside it");
        } else {
            assert!(place.kept(name).is_empty(), "nothing was changed, and yet it is kept");
        }
    }
    let Some(left) = place.check() else {
        assert!(log.is_empty(), "a log is gone");
        return;
    };
    assert!(left.violations.is_empty(), "after a repair: {:?}", left.violations);
    assert!(Log::read(&place.session).is_ok(), "after a repair the log does not load");
    let second = place.repair().expect("there is a log");
    assert!(second.deeds.is_empty() && second.unmendable.is_empty(), "a second repair: {second:?}");
}
