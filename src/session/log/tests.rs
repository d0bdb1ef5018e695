//! Making a log, every kind of tail that a kill or a crash leaves, and what is refused.

use std::path::PathBuf;

use super::{FILE_NAME, Log};
use crate::exit::Status;
use crate::failure::Failure;
use crate::session::folder::SessionFolder;
use crate::session::record::{FORMAT, Record, SessionRecord, TurnSettings, UserRecord};
use crate::workspace::root::{Root, TEMPORARY_PREFIX};

struct Place {
    folder: tempfile::TempDir,
    session: SessionFolder,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let session = SessionFolder { name: "main".to_owned(), root: Root::open(folder.path()).unwrap() };
        Self { folder, session }
    }

    fn with(bytes: &[u8]) -> Self {
        let place = Self::new();
        fs_err::write(place.path(), bytes).unwrap();
        place
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(FILE_NAME)
    }

    fn bytes(&self) -> Vec<u8> {
        fs_err::read(self.path()).unwrap()
    }

    fn torn(&self) -> Vec<Vec<u8>> {
        let names = fs_err::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let torn = names.filter(|path| path.to_string_lossy().contains(".torn-"));
        torn.map(|path| fs_err::read(path).unwrap()).collect()
    }
}

fn session() -> Record {
    Record::Session(SessionRecord { format: FORMAT, id: "s".to_owned(), at: String::new(), attini: "0".to_owned() })
}

fn user(turn: u64) -> Record {
    Record::User(UserRecord { turn, at: String::new(), text: "gö".to_owned(), settings: TurnSettings::default() })
}

fn bytes_of(records: &[Record]) -> Vec<u8> {
    records.iter().flat_map(|record| super::line(record).unwrap()).collect()
}

fn failure(error: &anyhow::Error) -> (Status, String) {
    let failure = Failure::of(error);
    (failure.status, failure.message)
}

#[test]
fn a_log_comes_into_being_as_a_whole_or_not_at_all() {
    let place = Place::new();
    assert!(Log::open(&place.session).unwrap().is_none());
    assert!(Log::read(&place.session).unwrap().is_none());
    let log = Log::create(&place.session, &[session(), user(1)]).unwrap();
    assert_eq!(log.history().turn(), 1);
    assert_eq!(place.bytes(), bytes_of(&[session(), user(1)]));
    // Records that contradict each other make none.
    let place = Place::new();
    assert!(Log::create(&place.session, &[user(1)]).is_err());
    // Nor does a folder in the way; nothing half-made is left.
    fs_err::create_dir(place.path()).unwrap();
    fs_err::write(place.path().join("in the way"), "").unwrap();
    let error = Log::create(&place.session, &[session(), user(1)]).unwrap_err();
    assert_eq!(failure(&error).0, Status::PersistenceError);
    let names: Vec<_> = place.session.root.entries(std::path::Path::new(".")).unwrap();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with(TEMPORARY_PREFIX)), "{names:?}");
}

#[test]
fn every_kind_of_torn_tail_is_cut_off_and_kept() {
    let whole = bytes_of(&[session(), user(1)]);
    let next = bytes_of(&[user(2)]);
    let next = &next[..next.len() - 1];
    let half_of_a_character = next.iter().position(|byte| *byte == 0xc3).unwrap() + 1;
    let mut tails: Vec<Vec<u8>> = vec![
        next[..1].to_vec(),
        next[..next.len() - 1].to_vec(),
        next[..half_of_a_character].to_vec(),
        vec![0; 7],
        [next, &[0; 4096][..]].concat(),
        [&next[..9], &[0; 12][..]].concat(),
        b" ".to_vec(),
        vec![0xff, 0xfe],
        b"{\"type\":\"tool_result\"}".to_vec(),
        b"12".to_vec(),
    ];
    tails.extend((1..next.len()).step_by(7).map(|length| next[..length].to_vec()));
    for tail in tails {
        let place = Place::with(&[&whole[..], &tail].concat());
        assert_eq!(Log::read(&place.session).unwrap().unwrap().turn(), 1);
        assert_eq!(place.bytes().len(), whole.len() + tail.len(), "reading mends nothing");
        let (mut log, warnings) = Log::open(&place.session).unwrap().unwrap();
        assert_eq!(warnings.len(), 1, "{tail:?}");
        assert!(warnings[0].contains(&format!("its {} bytes are kept", tail.len())), "{warnings:?}");
        assert_eq!(place.bytes(), whole);
        assert_eq!(place.torn(), [tail]);
        log.append(&user(2)).unwrap();
        log.barrier().unwrap();
        assert_eq!(place.bytes(), bytes_of(&[session(), user(1), user(2)]));
        let (_, warnings) = Log::open(&place.session).unwrap().unwrap();
        assert!(warnings.is_empty());
    }
}

#[test]
fn a_whole_record_without_its_newline_is_taken_and_gets_one() {
    for records in [vec![session()], vec![session(), user(1)], vec![session(), user(1), user(2)]] {
        let whole = bytes_of(&records);
        let place = Place::with(&whole[..whole.len() - 1]);
        assert_eq!(Log::read(&place.session).unwrap().unwrap().turn(), records.len() as u64 - 1);
        let (mut log, warnings) = Log::open(&place.session).unwrap().unwrap();
        assert!(warnings.is_empty());
        assert_eq!(place.bytes(), whole);
        log.append(&user(9)).unwrap();
        assert_eq!(place.bytes(), [&whole[..], &bytes_of(&[user(9)])].concat());
        assert!(place.torn().is_empty());
    }
}

#[test]
fn what_a_kill_does_not_leave_is_corrupt_and_stays_as_it_is() {
    let begun = bytes_of(&[session(), user(1)]);
    let first = bytes_of(&[session()]);
    for (bytes, line, words) in [
        (Vec::new(), 1, "the file is empty"),
        (first[..first.len() / 2].to_vec(), 1, "it is not a record"),
        (vec![0; 100], 1, "it is not a record"),
        (b"\n".to_vec(), 1, "it is not a record"),
        ([&begun[..], b"\n"].concat(), 3, "it is not a record"),
        ([&begun[..], b"{\"type\":\"us\n"].concat(), 3, "it is not a record"),
        ([&begun[..], b"\0\0\0\n", &bytes_of(&[user(2)])].concat(), 3, "it is not a record"),
        ([&begun[..], &b"\xff\n"[..]].concat(), 3, "it is not a record"),
        ([&begun[..], &bytes_of(&[user(1)])].concat(), 3, "the turn goes back: 1 follows 1"),
        // Whole, though without its newline.
        ([&begun[..], bytes_of(&[session()]).trim_ascii_end()].concat(), 3, "a second `session` record"),
        (bytes_of(&[user(1)]), 1, "the first record is not a `session` record"),
    ] {
        let place = Place::with(&bytes);
        for error in [Log::open(&place.session).err().unwrap(), Log::read(&place.session).err().unwrap()] {
            let (status, message) = failure(&error);
            assert_eq!(status, Status::Corrupt, "{message}");
            assert!(message.contains(&format!("{FILE_NAME}:{line}: {words}")), "{message}");
        }
        assert_eq!(place.bytes(), bytes);
        assert!(place.torn().is_empty());
    }
}

#[test]
fn after_a_write_that_failed_nothing_more_is_written_and_nothing_is_remembered() {
    let place = Place::new();
    let mut log = Log::create(&place.session, &[session(), user(1)]).unwrap();
    log.append(&user(2)).unwrap();
    let before = place.bytes();
    let writable = std::mem::replace(&mut log.file, fs_err::File::open(place.path()).unwrap().into_parts().0);
    let error = log.append(&user(3)).unwrap_err();
    assert_eq!(failure(&error).0, Status::PersistenceError);
    assert_eq!(log.history().turn(), 2, "what is not on disk is not in memory");
    log.file = writable;
    assert_eq!(failure(&log.append(&user(4)).unwrap_err()).0, Status::PersistenceError);
    assert_eq!(failure(&log.barrier().unwrap_err()).0, Status::PersistenceError);
    assert_eq!(place.bytes(), before);
    let (log, warnings) = Log::open(&place.session).unwrap().unwrap();
    assert_eq!((log.history().turn(), warnings.len()), (2, 0));
}

#[test]
fn a_record_that_contradicts_is_refused_and_leaves_no_trace() {
    let place = Place::new();
    let mut log = Log::create(&place.session, &[session(), user(1)]).unwrap();
    let failure = Failure::of(&log.append(&user(1)).unwrap_err());
    assert_eq!(failure.status, Status::Corrupt);
    assert_eq!(fs_err::read(place.path()).unwrap(), bytes_of(&[session(), user(1)]));
}

#[test]
fn links_are_not_followed() {
    let place = Place::new();
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    fs_err::write(elsewhere.path(), bytes_of(&[session(), user(1)])).unwrap();
    fs_err::os::unix::fs::symlink(elsewhere.path(), place.path()).unwrap();
    assert!(Log::open(&place.session).is_err());
    assert!(Log::read(&place.session).is_err());
}
