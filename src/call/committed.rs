//! The last stage: a result becomes a fact on disk, and only then an event.
//!
//! One result per call, in call order. The results of a run of reads share one sync.

use super::decided::Grounds;
use super::executed::Executed;
use super::fanned::{self, Part};
use super::hints;
use super::planned::Answer;
use super::unwrapped;
use crate::clock;
use crate::mask;
use crate::provider::cut;
use crate::report::Reporter;
use crate::report::event::{CallLabel, Event};
use crate::session::folder::SessionFolder;
use crate::session::history::{History, Round};
use crate::session::log::Log;
use crate::session::record::{
    Attachment, DecidedBy, OperationId, OperationResultRecord, Record, ResultStatus, ToolResultRecord,
};
use crate::tool::output::{keep, shorten};

/// A result on its way to disk. It is consumed by the commit, so it cannot be committed twice.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub id: OperationId,
    pub name: String,
    pub status: ResultStatus,
    pub code: Option<String>,
    pub content: String,
    /// As in [`crate::tool::Refusal::detail`].
    pub detail: Option<String>,
    pub attachments: Vec<Attachment>,
    pub reason: Option<String>,
    pub auto_decided_by: Option<DecidedBy>,
    pub duration_ms: u64,
    pub output_file: Option<String>,
    /// As in [`ToolResultRecord::title`].
    pub title: Option<String>,
    /// A decision that goes before the result, unless it is recorded already.
    pub grounds: Option<Grounds>,
    /// Of an operation that was not run: the one whose failure stopped it.
    pub stopped_by: Option<u32>,
    /// As in [`crate::tool::Outcome::fetched`].
    pub fetched: Vec<String>,
    /// Its content is made of results, each of which says by itself what to do next.
    pub is_folded: bool,
}

/// What is to be committed of a call, or of one of its operations.
#[derive(Debug, Clone)]
pub enum Item {
    Settled(Box<Settlement>),
    /// An operation that was recorded when it settled, in the middle of its call.
    Recorded(OperationId),
}

impl Item {
    fn call_id(&self) -> &str {
        match self {
            Self::Settled(settlement) => &settlement.id.call_id,
            Self::Recorded(id) => &id.call_id,
        }
    }
}

impl From<Settlement> for Item {
    fn from(settlement: Settlement) -> Self {
        Self::Settled(Box::new(settlement))
    }
}

impl Settlement {
    pub fn of_answer(id: OperationId, name: &str, answer: Answer) -> Self {
        let decided_by = answer.grounds.as_ref().map(|grounds| grounds.by.clone());
        Self {
            id,
            name: name.to_owned(),
            status: answer.status,
            code: Some(answer.code.to_owned()),
            content: answer.content,
            detail: answer.detail,
            attachments: answer.attachments,
            reason: answer.reason,
            auto_decided_by: decided_by,
            duration_ms: 0,
            output_file: answer.output_file,
            title: None,
            grounds: answer.grounds,
            stopped_by: answer.stopped_by,
            fetched: Vec::new(),
            is_folded: false,
        }
    }

    pub fn of_execution(id: OperationId, name: &str, executed: &Executed) -> Self {
        let outcome = executed.outcome.clone();
        Self {
            id,
            name: name.to_owned(),
            status: outcome.status,
            code: outcome.code.map(str::to_owned),
            content: outcome.content,
            detail: outcome.detail,
            attachments: outcome.attachments,
            reason: None,
            auto_decided_by: None,
            duration_ms: u64::try_from(executed.duration.as_millis()).unwrap_or(u64::MAX),
            output_file: outcome.output_file,
            title: None,
            grounds: None,
            stopped_by: executed.stopped_by,
            fetched: outcome.fetched,
            is_folded: false,
        }
    }

    /// The same, of an operation that was begun under this title.
    #[must_use]
    pub fn titled(mut self, title: String) -> Self {
        self.title = Some(title);
        self
    }

    /// Brings the content into the form in which the model reads it: masked, never empty, within `bytes_max`, with what
    /// to do next behind a failure. What is cut off is kept whole in the session's outputs.
    fn shape(&mut self, folder: &SessionFolder, bytes_max: usize) {
        self.content = mask::apply(&self.content).into_owned();
        if self.content.trim().is_empty() {
            "(no output)".clone_into(&mut self.content);
        }
        let next = match (self.status, &self.code) {
            (ResultStatus::Ok | ResultStatus::NotRun, _) | (_, None) => None,
            (_, Some(_)) if self.is_folded => None,
            (_, Some(code)) => hints::next_line(code, self.detail.as_deref().map(mask::apply).as_deref()),
        };
        let next = next.map(|line| {
            let mut line = shorten(&line, bytes_max / 4, None).into_owned();
            line.truncate(cut(&line, bytes_max / 4).len());
            line
        });
        let room = bytes_max.saturating_sub(next.as_ref().map_or(0, |line| line.len() + 1));
        if self.content.len() > room {
            if self.output_file.is_none() {
                self.output_file = keep_whole(folder, &self.id, &self.content);
            }
            self.content = shorten(&self.content, room, self.output_file.as_deref()).into_owned();
            // The line that says what was left out may not fit.
            self.content.truncate(cut(&self.content, room).len());
            // A schema that may have been cut was not seen.
            self.fetched.clear();
        }
        if let Some(next) = next {
            self.content = format!("{}\n{next}", self.content.trim_end_matches('\n'));
        }
    }

    fn record(&self) -> Record {
        let reason = self.reason.as_deref().map(|reason| mask::apply(reason).into_owned());
        let title = self.title.as_deref().map(|title| shortened_title(&mask::apply(title)));
        match self.id.operation {
            None => Record::ToolResult(ToolResultRecord {
                call_id: self.id.call_id.clone(),
                at: clock::now(),
                status: self.status,
                code: self.code.clone(),
                content: self.content.clone(),
                attachments: self.attachments.clone(),
                reason,
                auto_decided_by: self.auto_decided_by.clone(),
                duration_ms: self.duration_ms,
                output_file: self.output_file.clone(),
                title: title.clone(),
                fetched: self.fetched.clone(),
            }),
            Some(operation) => Record::OperationResult(OperationResultRecord {
                call_id: self.id.call_id.clone(),
                operation,
                at: clock::now(),
                status: self.status,
                code: self.code.clone(),
                content: self.content.clone(),
                attachments: self.attachments.clone(),
                reason,
                auto_decided_by: self.auto_decided_by.clone(),
                duration_ms: self.duration_ms,
                output_file: self.output_file.clone(),
                title: title.clone(),
                fetched: self.fetched.clone(),
                stopped_by: self.stopped_by,
            }),
        }
    }

    fn event(&self) -> Event {
        Event::ToolResult {
            call: CallLabel { id: self.id.clone(), name: self.name.clone() },
            status: self.status,
            code: self.code.clone(),
            content: self.content.clone(),
            duration_ms: self.duration_ms,
        }
    }
}

/// How much of a title is recorded. What an MCP tool is called by holds all its arguments, which the log has already.
const TITLE_BYTES_MAX: usize = 4096;

fn shortened_title(title: &str) -> String {
    if title.len() <= TITLE_BYTES_MAX {
        return title.to_owned();
    }
    let end = (0..=TITLE_BYTES_MAX).rev().find(|end| title.is_char_boundary(*end)).unwrap_or_default();
    format!("{} ...", &title[..end])
}

/// How long results may be.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub result_bytes: usize,
    /// What is left of `round_result_bytes` for this reply.
    pub round_bytes: usize,
    /// What is kept free for each result that is still to come.
    reserved_bytes: usize,
}

/// Kept free for each result of a reply, so that a long one leaves something for those behind it; a reply of so many
/// calls that this does not fit keeps an even share free for each.
const RESERVED_BYTES: usize = 512;
/// A result is never empty, so even where nothing is left it has this much; only there can `round_result_bytes` be
/// exceeded.
const RESULT_BYTES_MIN: usize = 16;

impl Budget {
    /// What is left for the results of a round that are still to come.
    pub fn of(round: &Round, result_bytes: u64, round_result_bytes: u64) -> Self {
        let bytes = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let results = round.calls.iter().filter_map(|call| call.result.as_ref());
        let used_bytes: usize = results.map(|result| result.content.len()).sum();
        Self {
            result_bytes: bytes(result_bytes),
            round_bytes: bytes(round_result_bytes).saturating_sub(used_bytes),
            reserved_bytes: (bytes(round_result_bytes) / round.calls.len().max(1)).min(RESERVED_BYTES),
        }
    }

    /// For results of several rounds, each bounded for itself.
    pub fn of_each(result_bytes: u64) -> Self {
        let result_bytes = usize::try_from(result_bytes).unwrap_or(usize::MAX);
        Self { result_bytes, round_bytes: usize::MAX, reserved_bytes: 0 }
    }

    /// What the next result may have, with so many still to come behind it.
    fn of_next(&self, behind: usize) -> usize {
        let free = self.round_bytes.saturating_sub(self.reserved_bytes.saturating_mul(behind));
        self.result_bytes.min(free).max(RESULT_BYTES_MIN)
    }
}

/// Commits what is settled in the order given: records, one sync, events. A call whose operations are all recorded
/// gets its own result, folded from theirs, behind the last of them. `events` are told first: those of operations that
/// were recorded before, and not synced.
pub fn commit(
    log: &mut Log,
    folder: &SessionFolder,
    reporter: &Reporter,
    budget: &mut Budget,
    items: Vec<Item>,
    mut events: Vec<Event>,
) -> anyhow::Result<()> {
    let turn = log.history().turn();
    events.extend(append_all(log, folder, budget, items)?);
    log.barrier()?;
    for event in &events {
        reporter.tell(Some(turn), event);
    }
    Ok(())
}

/// Appends what is settled in the order given, without a sync, and returns what is to be told once it is on disk.
pub fn append_all(
    log: &mut Log,
    folder: &SessionFolder,
    budget: &mut Budget,
    items: Vec<Item>,
) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    fold_what_a_kill_left(log, folder, budget, &mut events)?;
    let mut items = items.into_iter().peekable();
    while let Some(item) = items.next() {
        let call_id = item.call_id().to_owned();
        if let Item::Settled(settlement) = item {
            events.push(record(log, folder, budget, *settlement)?);
        }
        let is_last_of_call = items.peek().is_none_or(|next| next.call_id() != call_id);
        if is_last_of_call && let Some(folded) = folded(log.history(), &call_id) {
            events.push(record(log, folder, budget, folded)?);
        }
        fold_what_a_kill_left(log, folder, budget, &mut events)?;
    }
    Ok(events)
}

/// Folds the calls whose operations are all recorded, and that a kill left without a result of their own, each once all
/// calls of the reply before it are answered.
fn fold_what_a_kill_left(
    log: &mut Log,
    folder: &SessionFolder,
    budget: &mut Budget,
    events: &mut Vec<Event>,
) -> anyhow::Result<()> {
    while let Some(folded) = next_to_fold(log.history()) {
        events.push(record(log, folder, budget, folded)?);
    }
    Ok(())
}

/// The first open call of the latest reply, if nothing is left to do about it but to fold it.
pub fn next_to_fold(history: &History) -> Option<Settlement> {
    let (call, _) = history.last_round()?.open_calls().next()?;
    folded(history, &call.id)
}

/// Appends one result, without a sync, and returns what is to be told once it is on disk.
pub fn record(
    log: &mut Log,
    folder: &SessionFolder,
    budget: &mut Budget,
    mut settlement: Settlement,
) -> anyhow::Result<Event> {
    let whole = budget.of_next(calls_behind(log.history(), &settlement.id.call_id));
    let bytes_max = match settlement.id.operation {
        Some(_) => {
            let share = share(whole, operation_count(log.history(), &settlement.id.call_id));
            within_fold(&settlement.content, share.max(SHARE_BYTES_MIN))
        }
        None => whole,
    };
    settlement.shape(folder, bytes_max);
    if settlement.id.operation.is_none() {
        budget.round_bytes = budget.round_bytes.saturating_sub(settlement.content.len());
    }
    append_decision(log, &settlement.id, settlement.grounds.as_ref())?;
    log.append(&settlement.record())?;
    Ok(settlement.event())
}

/// What a frame of the fold takes at most, the lines around it included. Where an operation was not run it is longer,
/// and all there is.
const FRAME_BYTES: usize = 24;

/// Even a call of very many operations leaves each this much: room to say where the whole is.
const SHARE_BYTES_MIN: usize = 256;

/// Each operation's part of the bytes that its call's result may have.
fn share(bytes: usize, operations: usize) -> usize {
    let operations = operations.max(1);
    bytes.saturating_sub(operations * FRAME_BYTES) / operations
}

/// How many other calls of the same reply have no result yet.
fn calls_behind(history: &History, call_id: &str) -> usize {
    let round = history.last_round().into_iter();
    round.flat_map(Round::open_calls).filter(|(call, _)| call.id != call_id).count()
}

/// How much of a share its content may take, so that it still fits when the fold has indented what looks like a frame.
fn within_fold(content: &str, share: usize) -> usize {
    match fanned::indented_bytes(content) {
        0 => share,
        indented if content.len() + indented <= share => share,
        // However much is left out, no more than every line of the rest can grow.
        _ => share - share.div_ceil(fanned::FRAME_LIKE_BYTES_MIN + 2),
    }
}

fn operation_count(history: &History, call_id: &str) -> usize {
    history.call(call_id).and_then(|(call, _)| fanned::operation_count(call)).unwrap_or(1)
}

/// The result of a call of several operations, once every one of them is recorded.
fn folded(history: &History, call_id: &str) -> Option<Settlement> {
    let (call, progress) = history.call(call_id).filter(|(_, progress)| progress.is_open())?;
    let results: Vec<&OperationResultRecord> =
        progress.operations.values().filter_map(|operation| operation.result.as_ref()).collect();
    if results.is_empty() || results.len() < fanned::operation_count(call)? {
        return None;
    }
    let parts: Vec<Part<'_>> = results
        .iter()
        .map(|result| Part { status: result.status, content: &result.content, stopped_by: result.stopped_by })
        .collect();
    let (status, content) = fanned::fold(&parts);
    let decisive = results.iter().find(|result| result.status == status);
    Some(Settlement {
        id: OperationId::whole(call_id),
        name: unwrapped::tool_name(call).into_owned(),
        status,
        code: decisive.and_then(|result| result.code.clone()),
        content,
        detail: None,
        attachments: results.iter().flat_map(|result| result.attachments.clone()).collect(),
        reason: decisive.and_then(|result| result.reason.clone()),
        auto_decided_by: decisive.and_then(|result| result.auto_decided_by.clone()),
        duration_ms: results.iter().map(|result| result.duration_ms).sum(),
        output_file: None,
        title: None,
        grounds: None,
        stopped_by: None,
        fetched: Vec::new(),
        is_folded: true,
    })
}

/// Records a decision, once.
pub fn append_decision(log: &mut Log, id: &OperationId, grounds: Option<&Grounds>) -> anyhow::Result<()> {
    let recorded = log.history().operation(id).is_some_and(|operation| operation.decision.is_some());
    match grounds {
        Some(grounds) if !recorded => log.append(&Record::Decision(grounds.record(id))),
        _ => Ok(()),
    }
}

/// Keeps a whole result on disk before the shortened one names it. Where that fails the result says nothing of a file:
/// the log's own writes tell of a full disk.
fn keep_whole(folder: &SessionFolder, id: &OperationId, content: &str) -> Option<String> {
    keep(folder, &id.file_name(), content.as_bytes()).ok()
}
