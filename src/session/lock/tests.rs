//! One holder at a time, told by name; waiting that ends.

use std::time::Duration;

use super::{FILE_NAME, Lock, Patience};
use crate::exit::{Signal, Status};
use crate::failure::Failure;
use crate::interrupt::{Cause, Interrupt};
use crate::session::folder::SessionFolder;
use crate::workspace::root::Root;

fn session() -> (tempfile::TempDir, SessionFolder) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    (folder, SessionFolder { name: "main".to_owned(), root })
}

fn nobody(holder: &str) {
    panic!("it need not wait for {holder}");
}

#[test]
fn one_holds_it_and_another_is_told_who() {
    let (folder, session) = session();
    let interrupt = Interrupt::default();
    assert_eq!(Lock::holder(&session), None);
    let lock = Lock::take(&session, Patience::Short, &interrupt, nobody).unwrap();
    let holder = Lock::holder(&session).unwrap();
    assert!(holder.starts_with(&format!("process {} on ", std::process::id())), "{holder}");
    let failure = Failure::of(&Lock::take(&session, Patience::Short, &interrupt, nobody).unwrap_err());
    assert_eq!((failure.status, failure.retryable), (Status::Locked, true));
    assert!(failure.message.contains(&holder), "{}", failure.message);
    drop(lock);
    assert_eq!(Lock::holder(&session), None);
    assert!(folder.path().join(FILE_NAME).exists(), "the file stays");
    Lock::take(&session, Patience::Short, &interrupt, nobody).unwrap();
}

#[test]
fn a_reader_takes_it_from_nobody_and_makes_nothing() {
    let (folder, session) = session();
    assert_eq!(Lock::holder(&session), None);
    assert!(!folder.path().join(FILE_NAME).exists());
    // What the file holds is for messages alone.
    fs_err::write(folder.path().join(FILE_NAME), "process 1 on moon\n").unwrap();
    assert_eq!(Lock::holder(&session), None);
    let lock = Lock::take(&session, Patience::Short, &Interrupt::default(), nobody).unwrap();
    fs_err::write(folder.path().join(FILE_NAME), [0xff, 0xfe]).unwrap();
    assert_eq!(Lock::holder(&session).as_deref(), Some("another invocation"));
    drop(lock);
}

#[test]
fn who_waits_says_so_once_and_gets_it_when_it_is_free() {
    let (_folder, session) = session();
    let lock = Lock::take(&session, Patience::Short, &Interrupt::default(), nobody).unwrap();
    let mut held = Some(lock);
    let mut told = Vec::new();
    Lock::take(&session, Patience::Forever, &Interrupt::default(), |holder| {
        told.push(holder.to_owned());
        held.take();
    })
    .unwrap();
    assert_eq!(told.len(), 1);
}

#[test]
fn waiting_ends_with_its_time_or_with_an_interrupt() {
    let (_folder, session) = session();
    let _lock = Lock::take(&session, Patience::Short, &Interrupt::default(), nobody).unwrap();
    let patience = Patience::For(Duration::from_millis(300));
    let mut told = 0;
    let error = Lock::take(&session, patience, &Interrupt::default(), |_| told += 1).unwrap_err();
    assert_eq!((Failure::of(&error).status, told), (Status::Locked, 1));
    for (cause, status) in [
        (Cause::Signal(Signal::Terminate), Status::Interrupted(Signal::Terminate)),
        (Cause::TimeLimit, Status::LimitReached),
    ] {
        let interrupt = Interrupt::default();
        let error = Lock::take(&session, Patience::Forever, &interrupt, |_| interrupt.raise(cause)).unwrap_err();
        assert_eq!(Failure::of(&error).status, status);
    }
}
