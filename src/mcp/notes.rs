//! What is to be told of a server beside its results: warnings for the person, and what it asked of attini meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many skipped lines of a server are quoted; the rest are counted.
const LINES_QUOTED_MAX: u64 = 3;
/// How much of a skipped line is quoted.
const QUOTE_CHARACTERS_MAX: usize = 200;
/// How many warnings are kept until someone takes them.
const WARNINGS_MAX: usize = 200;
/// How many declined questions a result tells of.
const DECLINED_MAX: usize = 5;

/// Something that the person should know of a server.
pub struct Warning {
    pub text: String,
    /// It is told even where little is to be told.
    pub is_pressing: bool,
}

/// A list of tools that is not what was last seen. Only once that is told does it count as seen.
pub(super) struct Change {
    pub(super) text: String,
    /// Keeps the new list.
    pub(super) keep: Box<dyn FnOnce() -> io::Result<()> + Send>,
}

/// The warnings of all servers, until they are told.
#[derive(Default)]
pub(super) struct Warnings {
    waiting: Mutex<Vec<String>>,
    /// By server. No number of other warnings crowds them out.
    changes: Mutex<BTreeMap<String, Change>>,
    /// What was told before.
    told: Mutex<Vec<String>>,
}

impl Warnings {
    pub(super) fn push(&self, warning: String) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < WARNINGS_MAX {
            waiting.push(warning);
        }
    }

    /// What changed in a server's list since it was last seen; `None` takes back what was said of that before.
    pub(super) fn set_change(&self, server: &str, change: Option<Change>) {
        let mut changes = lock(&self.changes);
        match change {
            Some(change) => drop(changes.insert(server.to_owned(), change)),
            None => drop(changes.remove(server)),
        }
    }

    /// Hands over what waits, one by one, and keeps the lists whose changes are thereby told.
    pub(super) fn tell(&self, mut tell: impl FnMut(&Warning)) {
        let mut tell = |text: String, is_pressing| {
            let warning = Warning { text, is_pressing };
            tell(&warning);
            lock(&self.told).push(warning.text);
        };
        let (waiting, changes) = (self.take(), std::mem::take(&mut *lock(&self.changes)));
        for text in waiting {
            tell(text, false);
        }
        for (server, change) in changes {
            tell(change.text, true);
            if let Err(error) = (change.keep)() {
                tell(format!("the tools of the MCP server {server} cannot be kept: {error}"), false);
            }
        }
    }

    /// All that was told so far.
    pub(super) fn told(&self) -> Vec<String> {
        lock(&self.told).clone()
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.waiting))
    }
}

/// The notes on one server that runs.
pub(super) struct Notes {
    server: String,
    warnings: Arc<Warnings>,
    lines_skipped: AtomicU64,
    has_changed_list: AtomicBool,
    declined: Mutex<Vec<String>>,
}

impl Notes {
    pub(super) fn new(server: &str, warnings: Arc<Warnings>) -> Self {
        Self {
            server: server.to_owned(),
            warnings,
            lines_skipped: AtomicU64::new(0),
            has_changed_list: AtomicBool::new(false),
            declined: Mutex::default(),
        }
    }

    /// `what` goes on where `the MCP server NAME` ends.
    pub(super) fn warn(&self, what: &str) {
        self.warnings.push(format!("the MCP server {} {what}", self.server));
    }

    /// A line on stdout that is skipped, and why.
    pub(super) fn skip_line(&self, line: &[u8], why: &str) {
        if self.lines_skipped.fetch_add(1, Ordering::Relaxed) >= LINES_QUOTED_MAX {
            return;
        }
        let text = String::from_utf8_lossy(line);
        let text = crate::mask::apply(&text);
        let quote: String = text.chars().take(QUOTE_CHARACTERS_MAX).collect();
        let cut = if quote.len() < text.len() { " ..." } else { "" };
        self.warn(&format!("wrote a line to stdout that is {why}; it was skipped: {quote}{cut}"));
    }

    /// Tells how many more lines were skipped than were quoted.
    pub(super) fn close(&self) {
        let more = self.lines_skipped.swap(0, Ordering::Relaxed).saturating_sub(LINES_QUOTED_MAX);
        if more > 0 {
            self.warn(&format!("wrote {more} more such lines to stdout"));
        }
    }

    /// The server said that its tools are no longer those it listed.
    pub(super) fn mark_list_changed(&self) {
        self.has_changed_list.store(true, Ordering::Relaxed);
    }

    /// Whether it said so since this was last asked.
    pub(super) fn take_list_changed(&self) -> bool {
        self.has_changed_list.swap(false, Ordering::Relaxed)
    }

    /// A question to the person that the server asked in mid-call.
    pub(super) fn decline(&self, question: String) {
        let mut declined = lock(&self.declined);
        if declined.len() < DECLINED_MAX {
            declined.push(question);
        }
    }

    pub(super) fn take_declined(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.declined))
    }

    #[cfg(test)]
    pub(super) fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_as_seen_once_it_is_told() {
        let warnings = Warnings::default();
        let kept = Arc::new(AtomicU64::new(0));
        let change = |text: &str| {
            let kept = Arc::clone(&kept);
            let keep = move || {
                kept.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            Some(Change { text: text.to_owned(), keep: Box::new(keep) })
        };
        for number in 0..WARNINGS_MAX + 5 {
            warnings.push(number.to_string());
        }
        warnings.set_change("a", change("a is other"));
        warnings.set_change("a", change("a is quite other"));
        warnings.set_change("b", change("b is other"));
        warnings.set_change("b", None);
        assert_eq!(kept.load(Ordering::Relaxed), 0);
        let mut pressing = Vec::new();
        let mut tell = |warning: &Warning| pressing.extend(warning.is_pressing.then(|| warning.text.clone()));
        warnings.tell(&mut tell);
        warnings.tell(&mut tell);
        assert_eq!((pressing, kept.load(Ordering::Relaxed)), (vec!["a is quite other".to_owned()], 1));
        assert_eq!(warnings.told().len(), WARNINGS_MAX + 1);
    }

    #[test]
    fn a_chatty_server_is_told_of_within_bounds() {
        let notes = Notes::new("fs", Arc::default());
        for number in 0..9 {
            notes.skip_line(format!("line {number} {}", "x".repeat(300)).as_bytes(), "not JSON");
        }
        notes.close();
        notes.close();
        let warnings = notes.take_warnings();
        assert_eq!(warnings.len(), 4);
        assert!(
            warnings[0]
                .starts_with("the MCP server fs wrote a line to stdout that is not JSON; it was skipped: line 0 x")
        );
        assert!(warnings[0].len() < 300 && warnings[0].ends_with("xx ..."));
        assert_eq!(warnings[3], "the MCP server fs wrote 6 more such lines to stdout");
    }
}
