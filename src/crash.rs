//! The last resort: a panic, which is always a fault of attini's own, ends as an error like any other.
//!
//! It is caught where a command is run, behind the destructors that stop children and remove temporary files. What was
//! recorded before stays valid, as after a kill. Tools have a net of their own, nearer to them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::exit::Status;
use crate::failure::Failure;

/// How much of a panic's message is told.
const MESSAGE_CHARACTERS_MAX: usize = 2000;
/// What the standard library says in the thread that waits for the one that panicked.
const ECHO: &str = "a scoped thread panicked";

/// What the last panic of any thread said, and where.
static SAID: Mutex<Option<String>> = Mutex::new(None);

/// From now on panics are not written to stderr by themselves: they are told by whoever catches them.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|panic| {
        if message_of(panic.payload()) != ECHO {
            *SAID.lock().unwrap_or_else(PoisonError::into_inner) = Some(describe(panic));
        }
    }));
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let message: String =
        crate::mask::apply(message_of(panic.payload())).chars().take(MESSAGE_CHARACTERS_MAX).collect();
    match panic.location() {
        Some(place) => format!("{message} (at {}:{})", place.file(), place.line()),
        None => message,
    }
}

fn message_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Does `work`; a panic in it becomes a [`Failure`] with the code `panic`.
pub fn catch<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let said = SAID.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(failure(&said.unwrap_or_else(|| message_of(payload.as_ref()).to_owned())).into())
    })
}

fn failure(said: &str) -> Failure {
    Failure::new(Status::Error, format!("attini broke off by a fault of its own: {said}"))
        .code("panic")
        .hint("please report it, with this message and what you did; what was recorded is whole: `attini check`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_asks_to_be_reported() {
        let caught = catch::<()>(|| panic!("index {} is out of reach", 7)).unwrap_err();
        let failure = Failure::of(&caught);
        assert_eq!((failure.status, failure.code.as_str(), failure.retryable), (Status::Error, "panic", false));
        assert!(failure.message.contains("index 7 is out of reach"), "{}", failure.message);
        assert!(failure.hint.unwrap().contains("report"));
        let caught = catch::<()>(|| panic!("plain")).unwrap_err();
        assert!(Failure::of(&caught).message.ends_with("plain"));
    }

    #[test]
    fn what_does_not_panic_stays_as_it_is() {
        assert_eq!(catch(|| Ok(7)).unwrap(), 7);
        let error = catch::<()>(|| Err(Failure::usage("wrong").into())).unwrap_err();
        assert_eq!(Failure::of(&error).status, Status::Usage);
    }
}
