//! Which lines of a log stay: every record that fits, as it was written and, but for misplaced ones, where it stood.
//!
//! What is taken out is a line that is no record, a record that is there already, and one about a call that knows
//! better or does not exist. A line is never taken out where the conversation would come to forget by it that something
//! was done; then the log cannot be mended. Open calls are none of its business.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::Deed;
use crate::session::check::Violation;
use crate::session::log::draft::Draft;
use crate::session::log::lines::{Content, Line, Lines};
use crate::session::record::{FORMAT, Record};

/// What became of the lines.
#[derive(Debug)]
pub(super) struct Screening {
    /// As messages name the log.
    shown: String,
    pub(super) deeds: Vec<Deed>,
    pub(super) unmendable: Vec<Violation>,
    /// The lines that might have held anything.
    unreadable: Vec<u64>,
    /// Where each call was asked for.
    call_lines: HashMap<String, u64>,
    /// Records about calls that there were not yet.
    early: Vec<Held>,
    /// Records that may stand only where every call is answered.
    notices: Vec<Held>,
    /// Of every prompt and reply that stays.
    kept: HashSet<[u8; 32]>,
}

#[derive(Debug)]
struct Held {
    number: u64,
    bytes: Vec<u8>,
    record: Record,
    violation: String,
}

impl Screening {
    /// Reads a whole log and takes over into the draft what stays of it.
    pub(super) fn of(reader: impl BufRead, shown: &str, draft: &mut Draft<'_>) -> anyhow::Result<Self> {
        let mut screening = Self {
            shown: shown.to_owned(),
            deeds: Vec::new(),
            unmendable: Vec::new(),
            unreadable: Vec::new(),
            call_lines: HashMap::new(),
            early: Vec::new(),
            notices: Vec::new(),
            kept: HashSet::new(),
        };
        let mut lines = Lines::new(reader);
        while let Some(line) = lines.read_next().with_context(|| format!("{shown} cannot be read"))? {
            screening.take(line, draft)?;
            if draft.history().session().is_none() && !screening.unmendable.is_empty() {
                // Without knowing what the log is, nothing behind says anything.
                return Ok(screening);
            }
        }
        screening.give_up_early();
        if draft.history().session().is_none() {
            screening.refuse(1, "there is no record in it".to_owned());
        }
        Ok(screening)
    }

    /// Whether a line that might have held this call's start or result could not be read.
    pub(super) fn is_doubtful(&self, call_id: &str) -> bool {
        let asked_for = self.call_lines.get(call_id).copied().unwrap_or(0);
        self.unreadable.last().is_some_and(|unreadable| *unreadable > asked_for)
    }

    /// Whether something is told only once every call is answered.
    pub(super) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Puts what may stand only behind every result there, now that the results are there.
    pub(super) fn place_notices(&mut self, draft: &mut Draft<'_>) -> anyhow::Result<()> {
        for held in std::mem::take(&mut self.notices) {
            match draft.keep(&held.bytes, &held.record)? {
                Ok(()) => self.did(held.number, "it stood before a result; now it stands behind it".to_owned()),
                Err(violation) => self.refuse(held.number, format!("{violation}, which still waits")),
            }
        }
        Ok(())
    }

    fn take(&mut self, line: Line, draft: &mut Draft<'_>) -> anyhow::Result<()> {
        match line.content {
            Content::Record(record) => {
                let held = Held { number: line.number, bytes: line.bytes, record: *record, violation: String::new() };
                if !line.is_terminated {
                    self.did(line.number, "it had no newline at its end, and has one now".to_owned());
                }
                self.take_record(held, draft)
            }
            Content::Blank => {
                self.did(line.number, "the line is blank; it is taken out".to_owned());
                Ok(())
            }
            Content::Fragment | Content::Unreadable(_) => self.take_unreadable(&line, draft),
        }
    }

    fn take_unreadable(&mut self, line: &Line, draft: &mut Draft<'_>) -> anyhow::Result<()> {
        let number = line.number;
        let records = records_amid_zeros(&line.bytes);
        // What was never written whole at the end was no fact yet: a call's start is on disk before its effects begin.
        // Anything else that is lost may have been one, zeros with a record behind them too.
        let is_tail = matches!(line.content, Content::Fragment) && (records.is_empty() || line.bytes.ends_with(&[0]));
        if !is_tail {
            self.unreadable.push(number);
        }
        if records.is_empty() {
            if draft.history().session().is_none() {
                self.refuse(number, "the record that says what the log is cannot be read".to_owned());
                return Ok(());
            }
            let what = match &line.content {
                Content::Unreadable(why) => format!("{why}; the line is taken out"),
                Content::Fragment | Content::Record(_) | Content::Blank => {
                    "the last record is a fragment; it is taken out".to_owned()
                }
            };
            self.did(number, what);
            return Ok(());
        }
        self.did(number, "zero bytes stood beside a record; they are taken out".to_owned());
        for (bytes, record) in records {
            self.take_record(Held { number, bytes, record, violation: String::new() }, draft)?;
        }
        Ok(())
    }

    fn take_record(&mut self, mut held: Held, draft: &mut Draft<'_>) -> anyhow::Result<()> {
        match draft.keep(&held.bytes, &held.record)? {
            Ok(()) => self.follow(&held, draft),
            Err(violation) => {
                held.violation = violation;
                self.dispose(held, draft);
                Ok(())
            }
        }
    }

    /// What a record that stays brings with it.
    fn follow(&mut self, held: &Held, draft: &mut Draft<'_>) -> anyhow::Result<()> {
        if let Record::User(_) | Record::Assistant(_) = held.record {
            self.kept.insert(digest(&held.bytes));
        }
        let Record::Assistant(assistant) = &held.record else { return Ok(()) };
        for call in &assistant.tool_calls {
            self.call_lines.insert(call.id.clone(), held.number);
        }
        let early = std::mem::take(&mut self.early);
        for held in early {
            if !call_id(&held.record).is_some_and(|id| draft.history().has_call(id)) {
                self.early.push(held);
                continue;
            }
            let number = held.number;
            match draft.keep(&held.bytes, &held.record)? {
                Ok(()) => self.did(number, "it stood before its call; now it stands behind it".to_owned()),
                Err(violation) => self.did(number, format!("{violation}; it is taken out")),
            }
        }
        Ok(())
    }

    /// What becomes of a record that does not fit.
    fn dispose(&mut self, held: Held, draft: &Draft<'_>) {
        let Held { number, violation, .. } = &held;
        let number = *number;
        if draft.history().session().is_none() {
            self.refuse(number, violation.clone());
            return;
        }
        match &held.record {
            Record::Session(session) if session.format > FORMAT => self.refuse(number, violation.clone()),
            Record::User(_) | Record::Assistant(_) => {
                if self.kept.contains(&digest(&held.bytes)) {
                    self.did(number, format!("{violation}; it is there already, to the byte, and is taken out"));
                } else {
                    self.refuse(number, violation.clone());
                }
            }
            Record::Decision(_)
            | Record::ToolStart(_)
            | Record::CallWaiting(_)
            | Record::OperationResult(_)
            | Record::ToolResult(_) => {
                if call_id(&held.record).is_some_and(|id| draft.history().has_call(id)) {
                    self.did(number, format!("{violation}; the first counts, and this one is taken out"));
                } else {
                    self.early.push(held);
                }
            }
            Record::Notice(_) => self.notices.push(held),
            // What it stands for is all there; it is only longer to send.
            Record::Summary(_) => self.did(number, format!("{violation}; it is taken out, and what it covers counts")),
            Record::Session(_) | Record::TurnEnd(_) => self.did(number, format!("{violation}; it is taken out")),
            // Whatever it means, it breaks nothing.
            Record::Imported(_) | Record::Unknown => {}
        }
    }

    /// The records about calls that never came. Where the reply that asked for them may be what cannot be read, or one
    /// of them was started, they are all that is left of something that was done.
    fn give_up_early(&mut self) {
        let early = std::mem::take(&mut self.early);
        let started: HashSet<String> = early
            .iter()
            .filter(|held| matches!(held.record, Record::ToolStart(_)))
            .filter_map(|held| call_id(&held.record).map(str::to_owned))
            .collect();
        for held in early {
            let was_started = call_id(&held.record).is_some_and(|id| started.contains(id));
            if was_started || !self.unreadable.is_empty() {
                let why = if was_started { "it was started" } else { "its reply may be the line that cannot be read" };
                self.refuse(held.number, format!("{}; {why}", held.violation));
            } else {
                self.did(held.number, format!("{}; it is taken out", held.violation));
            }
        }
    }

    fn did(&mut self, number: u64, what: String) {
        self.deeds.push(Deed { file: self.shown.clone(), line: Some(number), what });
    }

    fn refuse(&mut self, number: u64, what: String) {
        self.unmendable.push(Violation { file: self.shown.clone(), line: Some(number), what });
    }
}

fn call_id(record: &Record) -> Option<&str> {
    match record {
        Record::Decision(decision) => Some(&decision.call_id),
        Record::ToolStart(start) => Some(&start.call_id),
        Record::CallWaiting(waiting) => Some(&waiting.call_id),
        Record::OperationResult(result) => Some(&result.call_id),
        Record::ToolResult(result) => Some(&result.call_id),
        Record::Session(_)
        | Record::User(_)
        | Record::Assistant(_)
        | Record::TurnEnd(_)
        | Record::Notice(_)
        | Record::Summary(_)
        | Record::Imported(_)
        | Record::Unknown => None,
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes.trim_ascii()).into()
}

/// The records that a line holds beside zero bytes, which a file system leaves where a write was lost. JSON has none, so
/// a record that goes from the line's beginning, or to its end, is a whole one; between two runs of zeros it might be a
/// part of another.
fn records_amid_zeros(line: &[u8]) -> Vec<(Vec<u8>, Record)> {
    if !line.contains(&0) {
        return Vec::new();
    }
    let parts: Vec<&[u8]> =
        line.split(|byte| *byte == 0).map(<[u8]>::trim_ascii).filter(|part| !part.is_empty()).collect();
    let mut outer: Vec<&[u8]> = parts.first().into_iter().copied().collect();
    if parts.len() > 1 {
        outer.extend(parts.last());
    }
    outer.into_iter().filter_map(|part| Some((part.to_vec(), Record::parse(part).ok()?))).collect()
}
