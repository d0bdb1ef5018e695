//! What the records of a conversation mean: a fold over them, in which a call and its result find each other.
//!
//! The same fold runs when a log is loaded and when a record is appended, so that what is in memory is always what is
//! on disk. It refuses what loading cannot mend (a second result, a result without a call, a repeated id, a turn that
//! goes back); calls without a result are no fault here, they are what "pending" and "to be repaired" mean.

mod covered;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub use self::covered::Border;
use self::covered::Mark;
use crate::provider::Finish;
use crate::session::record::{
    AssistantRecord, CallWaitingRecord, Covered, DecisionRecord, FORMAT, NoticeRecord, OperationId,
    OperationResultRecord, Record, ResultStatus, SessionRecord, SummaryRecord, ToolCall, ToolResultRecord,
    ToolStartRecord, TurnEndRecord, TurnStatus, Usage, UserRecord,
};
use crate::tool::Waits;

/// Turns and rounds are counted below this: what every reader of JSON keeps exact, and far beyond any conversation.
const NUMBER_END: u64 = 1 << 53;
/// The code of a result that gave the model the schema of the tool that was called.
const SCHEMA_RETURNED: &str = "schema_returned";

/// A conversation, or the beginning of one.
#[derive(Debug, Clone, Default)]
pub struct History {
    session: Option<SessionRecord>,
    entries: Vec<Entry>,
    /// Where each call stands: its round's index in `entries`, its index in the round.
    calls: HashMap<String, (usize, usize)>,
    /// The last `turn_end` of the latest turn.
    turn_end: Option<TurnEndRecord>,
    /// Whether a reply came since then: an earlier invocation ended the turn, a later one went on with it.
    replied_since_end: bool,
    /// What the latest turn had used when it last reached a limit; limits count from there.
    limit_reached: Option<TurnEndRecord>,
    /// SHA-256 of each file as a patch last left it here, by its resolved path.
    written: BTreeMap<String, String>,
    /// The deferred tools whose schemas the model was given.
    fetched: BTreeSet<String>,
    /// The background tasks whose end the model was told.
    delivered_tasks: BTreeSet<String>,
    /// What precedes the entries that count: a summary stands for it.
    base: Covered,
    /// The last summary.
    summary: Option<SummaryRecord>,
    /// How many of the entries the summary covers; none unless they are kept.
    covered_entries: usize,
    /// How many entries there were when the last summary came.
    entries_at_summary: usize,
    /// What requests for summaries have used, in the session and in its latest turn.
    summaries: Usage,
    turn_summaries: Usage,
    /// One for each entry.
    marks: Vec<Mark>,
    /// Where the next record begins in the log.
    offset: u64,
    /// Where the summary stands that loading began at.
    begun_at: u64,
    keeps: Keeps,
    /// With [`Keeps::Ids`]: those of all calls that summaries cover.
    covered_ids: HashSet<String>,
}

/// What stays in memory of what a summary covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Keeps {
    #[default]
    Nothing,
    /// To find an id that is used again.
    Ids,
    /// To show it, or to put back what it changed.
    All,
}

#[derive(Debug, Clone)]
pub enum Entry {
    User(UserRecord),
    Round(Round),
    Notice(NoticeRecord),
}

/// An assistant record and what became of its calls.
#[derive(Debug, Clone)]
pub struct Round {
    pub assistant: AssistantRecord,
    /// One for each call, in the order written.
    pub calls: Vec<CallProgress>,
}

/// How far a call has come.
#[derive(Debug, Clone, Default)]
pub struct CallProgress {
    pub result: Option<ToolResultRecord>,
    /// By operation number; `None` for a call with a single operation.
    pub operations: BTreeMap<Option<u32>, OperationProgress>,
}

#[derive(Debug, Clone, Default)]
pub struct OperationProgress {
    pub decision: Option<DecisionRecord>,
    pub start: Option<ToolStartRecord>,
    pub result: Option<OperationResultRecord>,
    /// It asked back when it was started last; decision and start are those that came since.
    pub waiting: Option<Waiting>,
    /// It was started before the session came here: what it wrote is not here, if anywhere.
    pub is_foreign: bool,
}

/// What an operation asked back.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub record: CallWaitingRecord,
    /// How often it has asked, this time included.
    pub round: u32,
}

impl Waiting {
    /// As its tool said it.
    pub fn asked(&self) -> Waits {
        Waits { question: self.record.question.clone(), state: self.record.state.clone() }
    }
}

impl OperationProgress {
    /// What it asked back, as long as nothing was begun with an answer.
    pub fn waiting(&self) -> Option<&Waiting> {
        self.waiting.as_ref().filter(|_| self.start.is_none() && self.result.is_none())
    }
}

impl CallProgress {
    pub fn is_open(&self) -> bool {
        self.result.is_none()
    }

    /// Whether anything of it was started.
    pub fn is_started(&self) -> bool {
        self.operations.values().any(|operation| operation.start.is_some())
    }
}

impl Round {
    /// How many operations its calls count for.
    pub fn operation_count(&self) -> u64 {
        self.calls.iter().map(CallProgress::operation_count).sum()
    }

    /// The calls without a result, in the order written.
    pub fn open_calls(&self) -> impl Iterator<Item = (&ToolCall, &CallProgress)> {
        self.assistant.tool_calls.iter().zip(&self.calls).filter(|(_, progress)| progress.is_open())
    }
}

/// What a turn has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    pub rounds: u64,
    pub tool_calls: u64,
    pub elapsed_ms: u64,
    pub usage: Usage,
}

/// Where the conversation stands, pending.json aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There is no turn, or the last one ended with an answer or was dropped.
    Finished,
    /// The last turn goes on with the next invocation.
    Unfinished,
}

impl History {
    /// A conversation in which what summaries cover is remembered by its calls' ids alone.
    pub fn checking() -> Self {
        Self { keeps: Keeps::Ids, ..Self::default() }
    }

    /// A conversation in which everything is kept, whether a summary covers it or not.
    pub fn whole() -> Self {
        Self { keeps: Keeps::All, ..Self::default() }
    }

    /// Takes in the next record of a log, which is that many bytes long.
    pub fn apply_line(&mut self, record: &Record, bytes: u64) -> Result<(), String> {
        let applied = self.apply(record);
        self.offset = self.offset.saturating_add(bytes);
        applied
    }

    /// Where the next record begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Passes over that many bytes of a log.
    pub fn skip(&mut self, bytes: u64) {
        self.offset = self.offset.saturating_add(bytes);
    }

    /// Takes in the next record. The error is a sentence that says which invariant it breaks.
    pub fn apply(&mut self, record: &Record) -> Result<(), String> {
        if self.session.is_none() && !matches!(record, Record::Session(_)) {
            return Err("the first record is not a `session` record".to_owned());
        }
        match record {
            Record::Session(session) => self.apply_session(session),
            Record::User(user) => self.apply_user(user),
            Record::Assistant(assistant) => self.apply_assistant(assistant),
            Record::Decision(decision) => {
                let id = OperationId { call_id: decision.call_id.clone(), operation: decision.operation };
                let operation = self.open_operation(&id, "decision")?;
                if operation.decision.is_some() {
                    return Err(format!("a second `decision` for {id}"));
                }
                operation.decision = Some(decision.clone());
                Ok(())
            }
            Record::ToolStart(start) => {
                let id = OperationId { call_id: start.call_id.clone(), operation: start.operation };
                let operation = self.open_operation(&id, "tool_start")?;
                if operation.start.is_some() {
                    return Err(format!("a second `tool_start` for {id}"));
                }
                operation.start = Some(start.clone());
                Ok(())
            }
            Record::CallWaiting(waiting) => self.apply_waiting(waiting),
            Record::OperationResult(result) => {
                let id = OperationId { call_id: result.call_id.clone(), operation: Some(result.operation) };
                let operation = self.open_operation(&id, "operation_result")?;
                if operation.result.is_some() {
                    return Err(format!("a second `operation_result` for {id}"));
                }
                operation.result = Some(result.clone());
                self.note_written(&id, result.status);
                self.note_fetched(&result.call_id, result.code.as_deref(), &result.fetched);
                Ok(())
            }
            Record::ToolResult(result) => self.apply_result(result),
            Record::TurnEnd(end) => self.apply_turn_end(end),
            Record::Notice(notice) => self.apply_notice(notice),
            Record::Summary(summary) => self.apply_summary(summary),
            Record::Imported(_) => {
                self.disown();
                Ok(())
            }
            Record::Unknown => Ok(()),
        }
    }

    fn apply_session(&mut self, session: &SessionRecord) -> Result<(), String> {
        if self.session.is_some() {
            return Err("a second `session` record".to_owned());
        }
        if session.format > FORMAT {
            return Err(format!(
                "the log has format {}, and this attini knows formats up to {FORMAT}; a newer attini reads it",
                session.format
            ));
        }
        self.session = Some(session.clone());
        Ok(())
    }

    fn apply_user(&mut self, user: &UserRecord) -> Result<(), String> {
        let last = self.last_turn_and_round().0;
        if user.turn <= last {
            return Err(format!("the turn goes back: {} follows {last}", user.turn));
        }
        ensure_countable(user.turn)?;
        self.mark();
        self.turn_end = None;
        self.limit_reached = None;
        self.turn_summaries = Usage::default();
        self.entries.push(Entry::User(user.clone()));
        Ok(())
    }

    fn apply_assistant(&mut self, assistant: &AssistantRecord) -> Result<(), String> {
        if self.turn() == 0 {
            return Err("an `assistant` record before any `user` record".to_owned());
        }
        let last = self.last_turn_and_round();
        let this = (assistant.turn, assistant.round);
        if this < last {
            return Err(format!(
                "the turn goes back: turn {} round {} follows turn {} round {}",
                this.0, this.1, last.0, last.1
            ));
        }
        if this.0 != self.turn() {
            return Err(format!("a reply of turn {} while turn {} is the latest", this.0, self.turn()));
        }
        ensure_countable(this.1)?;
        let round = self.entries.len();
        let mut calls = HashMap::new();
        for (index, call) in assistant.tool_calls.iter().enumerate() {
            let before = calls.insert(call.id.clone(), (round, index));
            if before.is_some() || self.has_call(&call.id) {
                return Err(format!("the call id {} is used a second time", call.id));
            }
        }
        // Only a record that is taken in as a whole leaves a trace: who lists every fault goes on behind a refused one.
        self.calls.extend(calls);
        let calls = vec![CallProgress::default(); assistant.tool_calls.len()];
        self.mark();
        self.entries.push(Entry::Round(Round { assistant: assistant.clone(), calls }));
        self.replied_since_end = true;
        Ok(())
    }

    /// Where the last record that counts stands; what follows may not lie before it.
    fn last_turn_and_round(&self) -> (u64, u64) {
        match self.last_entry() {
            Some(Entry::Round(round)) => (round.assistant.turn, round.assistant.round),
            Some(Entry::User(user)) => (user.turn, 0),
            Some(Entry::Notice(_)) | None => {
                self.summary.as_ref().map_or((0, 0), |summary| (summary.through_turn, summary.through_round))
            }
        }
    }

    fn apply_result(&mut self, result: &ToolResultRecord) -> Result<(), String> {
        let id = OperationId::whole(&result.call_id);
        let progress = self.progress_mut(&result.call_id, "tool_result")?;
        if progress.result.is_some() {
            return Err(format!("a second `tool_result` for {}", result.call_id));
        }
        progress.result = Some(result.clone());
        self.note_written(&id, result.status);
        self.note_fetched(&result.call_id, result.code.as_deref(), &result.fetched);
        Ok(())
    }

    /// From here on the operation is as if it had not been started: what was decided let it begin, and it began; it needs
    /// an answer, and another start.
    fn apply_waiting(&mut self, waiting: &CallWaitingRecord) -> Result<(), String> {
        let id = OperationId { call_id: waiting.call_id.clone(), operation: waiting.operation };
        let operation = self.open_operation(&id, "call_waiting")?;
        if operation.result.is_some() {
            return Err(format!("a `call_waiting` for {id}, which has its result already"));
        }
        let round = operation.waiting.as_ref().map_or(0, |before| before.round).saturating_add(1);
        *operation = OperationProgress {
            waiting: Some(Waiting { record: waiting.clone(), round }),
            ..OperationProgress::default()
        };
        Ok(())
    }

    fn apply_turn_end(&mut self, end: &TurnEndRecord) -> Result<(), String> {
        let last = self.turn();
        if end.turn != last {
            return Err(format!("a `turn_end` of turn {} while turn {last} is the latest", end.turn));
        }
        if end.status == TurnStatus::LimitReached {
            self.limit_reached = Some(end.clone());
        }
        self.turn_end = Some(end.clone());
        self.replied_since_end = false;
        Ok(())
    }

    fn apply_notice(&mut self, notice: &NoticeRecord) -> Result<(), String> {
        if let Some((call, _)) = self.open_calls().next() {
            return Err(format!("a `notice` while {} is not answered", call.id));
        }
        self.mark();
        self.delivered_tasks.extend(notice.task_id.clone());
        self.entries.push(Entry::Notice(notice.clone()));
        Ok(())
    }

    fn progress_mut(&mut self, call_id: &str, record: &str) -> Result<&mut CallProgress, String> {
        let missing = || format!("a `{record}` for {call_id}, and no call before it has that id");
        let &(round, index) = self.calls.get(call_id).ok_or_else(missing)?;
        self.marks[round].settled = self.offset;
        match &mut self.entries[round] {
            Entry::Round(round) => Ok(&mut round.calls[index]),
            Entry::User(_) | Entry::Notice(_) => Err(missing()),
        }
    }

    fn open_operation(&mut self, id: &OperationId, record: &str) -> Result<&mut OperationProgress, String> {
        let progress = self.progress_mut(&id.call_id, record)?;
        if progress.result.is_some() {
            return Err(format!("a `{record}` for {id}, which is answered already"));
        }
        Ok(progress.operations.entry(id.operation).or_default())
    }

    /// Everything so far was done elsewhere, or is made up: no file here is attini's for it.
    fn disown(&mut self) {
        self.written.clear();
        self.base.written.clear();
        for entry in &mut self.entries {
            let Entry::Round(round) = entry else { continue };
            for operation in round.calls.iter_mut().flat_map(|call| call.operations.values_mut()) {
                operation.is_foreign |= operation.start.is_some();
            }
        }
    }

    /// Remembers what a patch that ended well left behind.
    fn note_written(&mut self, id: &OperationId, status: ResultStatus) {
        let mut written = std::mem::take(&mut self.written);
        if let Some((_, progress)) = self.call(&id.call_id) {
            covered::add_written(&mut written, progress, id.operation, status);
        }
        self.written = written;
    }

    /// Remembers which schemas a result gave the model: those it names, or that of the call's own tool.
    fn note_fetched(&mut self, call_id: &str, code: Option<&str>, fetched: &[String]) {
        let mut all = std::mem::take(&mut self.fetched);
        if let Some((call, _)) = self.call(call_id) {
            covered::add_fetched(&mut all, call, code, fetched);
        }
        self.fetched = all;
    }

    pub fn session(&self) -> Option<&SessionRecord> {
        self.session.as_ref()
    }

    /// What no summary covers.
    pub fn entries(&self) -> &[Entry] {
        &self.entries[self.covered_entries..]
    }

    /// All that is in memory: with [`History::whole`] also what summaries cover.
    pub fn all_entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The last summary: it stands for all that is before the entries.
    pub fn summary(&self) -> Option<&SummaryRecord> {
        self.summary.as_ref()
    }

    /// The turn whose beginning the summary covers, and which goes on behind it: its prompt is sent whole.
    pub fn covered_open_user(&self) -> Option<&UserRecord> {
        self.base.user.as_ref().filter(|_| self.base.turn_open)
    }

    /// Whether the last round came before the last summary: what a prompt was then says nothing of the next one.
    pub fn is_before_summary(&self, round: &Round) -> bool {
        let since = &self.entries[self.entries_at_summary.min(self.entries.len())..];
        let is_it = |entry: &Entry| match entry {
            Entry::Round(other) => {
                (other.assistant.turn, other.assistant.round) == (round.assistant.turn, round.assistant.round)
            }
            Entry::User(_) | Entry::Notice(_) => false,
        };
        !since.iter().any(is_it)
    }

    /// The latest turn's number; 0 where there is none.
    pub fn turn(&self) -> u64 {
        self.user().map_or(0, |user| user.turn)
    }

    /// The number of the round that comes next in the latest turn.
    pub fn next_round(&self) -> u64 {
        self.last_turn_and_round().1.saturating_add(1)
    }

    /// The prompt of the latest turn.
    pub fn user(&self) -> Option<&UserRecord> {
        let user = self.entries.iter().rev().find_map(|entry| match entry {
            Entry::User(user) => Some(user),
            Entry::Round(_) | Entry::Notice(_) => None,
        });
        user.or(self.base.user.as_ref())
    }

    pub fn rounds(&self) -> impl DoubleEndedIterator<Item = &Round> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Round(round) => Some(round),
            Entry::User(_) | Entry::Notice(_) => None,
        })
    }

    pub fn notices(&self) -> impl Iterator<Item = &NoticeRecord> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Notice(notice) => Some(notice),
            Entry::User(_) | Entry::Round(_) => None,
        })
    }

    /// The last entry that is no notice.
    fn last_entry(&self) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| !matches!(entry, Entry::Notice(_)))
    }

    /// The latest round of the latest turn.
    pub fn last_round(&self) -> Option<&Round> {
        match self.last_entry() {
            Some(Entry::Round(round)) => Some(round),
            Some(Entry::User(_) | Entry::Notice(_)) | None => None,
        }
    }

    /// The latest round of any turn; its model is what the session used last.
    pub fn latest_round(&self) -> Option<&Round> {
        self.rounds().next_back()
    }

    pub fn call(&self, call_id: &str) -> Option<(&ToolCall, &CallProgress)> {
        let &(round, index) = self.calls.get(call_id)?;
        match &self.entries[round] {
            Entry::Round(round) => Some((&round.assistant.tool_calls[index], &round.calls[index])),
            Entry::User(_) | Entry::Notice(_) => None,
        }
    }

    pub fn operation(&self, id: &OperationId) -> Option<&OperationProgress> {
        self.call(&id.call_id)?.1.operations.get(&id.operation)
    }

    /// What an operation waits to be told since it asked back.
    pub fn waiting(&self, id: &OperationId) -> Option<&Waiting> {
        self.operation(id)?.waiting()
    }

    pub fn has_call(&self, call_id: &str) -> bool {
        self.calls.contains_key(call_id) || self.covered_ids.contains(call_id)
    }

    /// How many calls there are, those included that a summary covers.
    pub fn call_count(&self) -> usize {
        let before = usize::try_from(self.base.totals.calls).unwrap_or(usize::MAX);
        before.saturating_add(self.uncovered_rounds().map(|round| round.calls.len()).sum())
    }

    /// How many turns there are, those included that a summary covers.
    pub fn user_count(&self) -> u64 {
        let uncovered = self.entries().iter().filter(|entry| matches!(entry, Entry::User(_))).count() as u64;
        self.base.totals.turns.saturating_add(uncovered)
    }

    /// How many assistant replies there are, those included that a summary covers.
    pub fn reply_count(&self) -> u64 {
        self.base.totals.replies.saturating_add(self.uncovered_rounds().count() as u64)
    }

    /// What the session has used: all its replies and summaries.
    pub fn session_usage(&self) -> Usage {
        let mut usage = self.base.totals.usage;
        usage += self.summaries;
        for round in self.uncovered_rounds() {
            usage += round.assistant.usage;
        }
        usage
    }

    /// Whether the model was told of the end of that background task.
    pub fn is_delivered(&self, task_id: &str) -> bool {
        self.delivered_tasks.contains(task_id)
    }

    fn uncovered_rounds(&self) -> impl DoubleEndedIterator<Item = &Round> {
        self.entries().iter().filter_map(|entry| match entry {
            Entry::Round(round) => Some(round),
            Entry::User(_) | Entry::Notice(_) => None,
        })
    }

    /// Every call without a result, in the order written.
    pub fn open_calls(&self) -> impl Iterator<Item = (&ToolCall, &CallProgress)> {
        self.rounds().flat_map(Round::open_calls)
    }

    /// Where the latest turn was left; `None` where its latest reply came after that, or it was never left in order.
    pub fn turn_end(&self) -> Option<&TurnEndRecord> {
        self.turn_end.as_ref().filter(|_| !self.replied_since_end)
    }

    pub fn written(&self) -> &BTreeMap<String, String> {
        &self.written
    }

    pub fn fetched(&self) -> &BTreeSet<String> {
        &self.fetched
    }

    fn turn_rounds(&self) -> impl Iterator<Item = &Round> {
        let turn = self.turn();
        self.uncovered_rounds().rev().take_while(move |round| round.assistant.turn == turn)
    }

    /// What the latest turn has used, by its records; time is that of the invocations that told of their end.
    pub fn spent(&self) -> Spent {
        let mut spent =
            Spent { elapsed_ms: self.turn_end.as_ref().map_or(0, |end| end.elapsed_ms), ..Spent::default() };
        if self.base.user.as_ref().is_some_and(|user| user.turn == self.turn()) {
            let before = &self.base.turn;
            (spent.rounds, spent.tool_calls, spent.usage) = (before.rounds, before.tool_calls, before.usage);
        }
        spent.usage += self.turn_summaries;
        for round in self.turn_rounds() {
            spent.rounds += 1;
            spent.tool_calls += round.calls.iter().map(CallProgress::operation_count).sum::<u64>();
            spent.usage += round.assistant.usage;
        }
        spent
    }

    /// What the latest turn had used when its limits last began to count.
    pub fn spent_before_limits(&self) -> Spent {
        self.limit_reached.as_ref().map_or_else(Spent::default, |end| Spent {
            rounds: end.rounds,
            tool_calls: end.tool_calls,
            elapsed_ms: end.elapsed_ms,
            usage: end.usage,
        })
    }

    /// Whether the latest turn has ended, by its records or, where a kill took its `turn_end`, by its last reply.
    /// `fits` says whether a final text is what the turn's output schema asks for.
    pub fn standing(&self, fits: impl Fn(&UserRecord, &str) -> bool) -> Standing {
        let Some(user) = self.user() else { return Standing::Finished };
        if let Some(end) = &self.turn_end
            && matches!(end.status, TurnStatus::Completed | TurnStatus::Dropped)
        {
            return Standing::Finished;
        }
        match self.last_round() {
            Some(round)
                if round.assistant.tool_calls.is_empty()
                    && matches!(Finish::of(&round.assistant.finish_reason), Finish::End | Finish::Unfamiliar)
                    && fits(user, &round.assistant.text) =>
            {
                Standing::Finished
            }
            _ => Standing::Unfinished,
        }
    }
}

/// Refuses a number that nothing could follow.
fn ensure_countable(number: u64) -> Result<(), String> {
    if number < NUMBER_END { Ok(()) } else { Err(format!("{number} is no number of a turn or round")) }
}

impl CallProgress {
    /// How many operations it counts for; at least one, whatever became of it.
    pub fn operation_count(&self) -> u64 {
        let numbered = self.operations.keys().filter(|number| number.is_some()).count() as u64;
        numbered.max(1)
    }
}

#[cfg(test)]
mod mixtures;
#[cfg(test)]
mod tests;
