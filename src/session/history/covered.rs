//! What a summary covers: where it may end, what is carried over of it, and whether a record says that truly.

use std::collections::{BTreeMap, BTreeSet};

use super::{CallProgress, Entry, History, Keeps, SCHEMA_RETURNED, ensure_countable};
use crate::call::unwrapped::tool_name;
use crate::session::record::{
    Covered, ResultStatus, SummaryRecord, ToolCall, Totals, TurnEndRecord, TurnSoFar, TurnStatus, Usage,
};

/// How things stood right before an entry's record.
#[derive(Debug, Clone, Default)]
pub(super) struct Mark {
    offset: u64,
    /// Where the last record stands that is about the entry.
    pub(super) settled: u64,
    turn_end: Option<TurnEndRecord>,
    replied_since_end: bool,
    limit_reached: Option<TurnEndRecord>,
    summaries: Usage,
    turn_summaries: Usage,
}

/// A place at which a summary may end: all before it is closed.
#[derive(Debug, Clone, PartialEq)]
pub struct Border {
    /// How many of [`History::entries`] are before it.
    pub entries: usize,
    pub through_turn: u64,
    pub through_round: u64,
    pub through_offset: u64,
    pub covered: Covered,
}

impl History {
    /// Remembers how things stand before an entry that is about to be added.
    pub(super) fn mark(&mut self) {
        let mark = self.mark_now();
        self.marks.push(mark);
    }

    fn mark_now(&self) -> Mark {
        Mark {
            offset: self.offset,
            settled: self.offset,
            turn_end: self.turn_end.clone(),
            replied_since_end: self.replied_since_end,
            limit_reached: self.limit_reached.clone(),
            summaries: self.summaries,
            turn_summaries: self.turn_summaries,
        }
    }

    /// Begins with what a summary carries over, in place of all before its `through_offset`. `line_offset`: where the
    /// summary's own record stands, further on.
    pub fn begin_at(&mut self, summary: &SummaryRecord, line_offset: u64) -> Result<(), String> {
        ensure_countable(summary.through_turn)?;
        ensure_countable(summary.through_round)?;
        if summary.covered.user.as_ref().is_none_or(|user| user.turn != summary.through_turn) {
            return Err("the `summary` does not hold the prompt of the turn that it ends in".to_owned());
        }
        self.base = summary.covered.clone();
        self.written.clone_from(&self.base.written);
        self.fetched.clone_from(&self.base.fetched);
        self.delivered_tasks.clone_from(&self.base.delivered_tasks);
        self.turn_end.clone_from(&self.base.turn.turn_end);
        self.replied_since_end = self.base.turn.replied_since_end;
        self.limit_reached.clone_from(&self.base.turn.limit_reached);
        self.summaries = self.base.totals.summaries;
        self.turn_summaries = self.base.turn.summaries;
        self.summary = Some(summary.clone());
        self.offset = summary.through_offset;
        self.begun_at = line_offset;
        Ok(())
    }

    pub(super) fn apply_summary(&mut self, summary: &SummaryRecord) -> Result<(), String> {
        if let Some((call, _)) = self.open_calls().next() {
            return Err(format!("a `summary` while {} is not answered", call.id));
        }
        // One that a later summary, with which loading began, stands for.
        let is_superseded = self.offset < self.begun_at;
        if !is_superseded {
            let before = self.summary.as_ref().map_or(0, |before| before.through_offset);
            if summary.through_offset < before {
                return Err(format!("the summary goes back: {} follows {before}", summary.through_offset));
            }
            let covered = self.covered_entries_of(summary.through_offset)?;
            let border = self.border(covered);
            let is_sound = (summary.through_turn, summary.through_round, &summary.covered)
                == (border.through_turn, border.through_round, &border.covered);
            if !is_sound {
                return Err("what the `summary` carries over is not what it covers".to_owned());
            }
            self.base = border.covered;
            self.cover(covered);
            self.summary = Some(summary.clone());
            self.entries_at_summary = self.entries.len();
        }
        self.summaries += summary.usage;
        self.turn_summaries += summary.usage;
        Ok(())
    }

    /// How many of the entries lie before an offset, which must be a border between closed pairs.
    fn covered_entries_of(&self, offset: u64) -> Result<usize, String> {
        let marks = &self.marks[self.covered_entries..];
        let count = match marks.iter().position(|mark| mark.offset == offset) {
            Some(index) => index,
            None if offset == self.offset => marks.len(),
            None if self.summary.as_ref().is_some_and(|before| before.through_offset == offset) => 0,
            None => return Err(format!("the summary's through_offset {offset} is no border of an entry")),
        };
        if marks[..count].iter().any(|mark| mark.settled >= offset) {
            return Err("the summary covers a call whose result comes behind what it covers".to_owned());
        }
        Ok(count)
    }

    /// Takes the first of the entries out of what counts.
    fn cover(&mut self, count: usize) {
        if self.keeps == Keeps::All {
            self.covered_entries += count;
            return;
        }
        for entry in &self.entries[..count] {
            let Entry::Round(round) = entry else { continue };
            for call in &round.assistant.tool_calls {
                self.calls.remove(&call.id);
                if self.keeps == Keeps::Ids {
                    self.covered_ids.insert(call.id.clone());
                }
            }
        }
        self.entries.drain(..count);
        self.marks.drain(..count);
        for (round, _) in self.calls.values_mut() {
            *round -= count;
        }
    }

    /// The places at which a summary may end that covers at least one reply more than the last one, or one prompt that
    /// never got any, in order.
    pub fn borders(&self) -> Vec<usize> {
        let first = self.first_to_sum_up().filter(|_| self.open_calls().next().is_none());
        let Some(first) = first else { return Vec::new() };
        let marks = &self.marks[self.covered_entries..];
        let mut settled = marks[..first].iter().map(|mark| mark.settled).max().unwrap_or(0);
        let mut borders = Vec::new();
        for count in first + 1..=marks.len() {
            settled = settled.max(marks[count - 1].settled);
            if settled < marks.get(count).map_or(self.offset, |mark| mark.offset) {
                borders.push(count);
            }
        }
        borders
    }

    /// The first reply, or the first prompt behind which another came instead.
    fn first_to_sum_up(&self) -> Option<usize> {
        let mut unanswered = None;
        for (index, entry) in self.entries().iter().enumerate() {
            match entry {
                Entry::Round(_) => return Some(index),
                Entry::User(_) if unanswered.is_some() => return unanswered,
                Entry::User(_) => unanswered = Some(index),
                Entry::Notice(_) => {}
            }
        }
        None
    }

    /// What a summary of the first `count` entries has to say.
    pub fn border(&self, count: usize) -> Border {
        let now = self.mark_now();
        let mark = self.marks.get(self.covered_entries + count).unwrap_or(&now);
        let (before, behind) = self.entries().split_at(count);
        let mut covered = self.base.clone();
        let mut through = self.summary.as_ref().map_or((0, 0), |last| (last.through_turn, last.through_round));
        if count > 0 {
            for entry in before {
                add_entry(&mut covered, &mut through, entry);
            }
            covered.totals.summaries = mark.summaries;
            covered.turn.summaries = mark.turn_summaries;
            covered.turn.turn_end.clone_from(&mark.turn_end);
            covered.turn.replied_since_end = mark.replied_since_end;
            covered.turn.limit_reached.clone_from(&mark.limit_reached);
            covered.turn_open = match behind.iter().find(|entry| !matches!(entry, Entry::Notice(_))) {
                Some(Entry::User(_)) => false,
                Some(Entry::Round(_) | Entry::Notice(_)) => true,
                None => !mark
                    .turn_end
                    .as_ref()
                    .is_some_and(|end| matches!(end.status, TurnStatus::Completed | TurnStatus::Dropped)),
            };
        }
        Border {
            entries: count,
            through_turn: through.0,
            through_round: through.1,
            through_offset: if count == 0 {
                self.summary.as_ref().map_or(0, |last| last.through_offset)
            } else {
                mark.offset
            },
            covered,
        }
    }
}

fn add_entry(covered: &mut Covered, through: &mut (u64, u64), entry: &Entry) {
    match entry {
        Entry::User(user) => {
            *through = (user.turn, 0);
            covered.totals.turns += 1;
            covered.turn = TurnSoFar::default();
            covered.user = Some(user.clone());
        }
        Entry::Notice(notice) => covered.delivered_tasks.extend(notice.task_id.clone()),
        Entry::Round(round) => {
            *through = (round.assistant.turn, round.assistant.round);
            let Totals { turns: _, replies, calls, usage, summaries: _ } = &mut covered.totals;
            *replies += 1;
            *calls += round.calls.len() as u64;
            *usage += round.assistant.usage;
            covered.turn.rounds += 1;
            covered.turn.tool_calls += round.operation_count();
            covered.turn.usage += round.assistant.usage;
            for (call, progress) in round.assistant.tool_calls.iter().zip(&round.calls) {
                for (number, operation) in &progress.operations {
                    let Some(result) = &operation.result else { continue };
                    add_written(&mut covered.written, progress, *number, result.status);
                    add_fetched(&mut covered.fetched, call, result.code.as_deref(), &result.fetched);
                }
                if let Some(result) = &progress.result {
                    add_written(&mut covered.written, progress, None, result.status);
                    add_fetched(&mut covered.fetched, call, result.code.as_deref(), &result.fetched);
                }
            }
        }
    }
}

/// Adds what a patch that ended well left behind.
pub(super) fn add_written(
    written: &mut BTreeMap<String, String>,
    progress: &CallProgress,
    operation: Option<u32>,
    status: ResultStatus,
) {
    let operation = progress.operations.get(&operation).filter(|operation| !operation.is_foreign);
    let start = operation.and_then(|operation| operation.start.as_ref());
    for file in start.filter(|_| status == ResultStatus::Ok).into_iter().flat_map(|start| &start.files) {
        match &file.sha256_after {
            Some(after) => written.insert(file.path.clone(), after.clone()),
            None => written.remove(&file.path),
        };
    }
}

/// Adds the tools whose schemas a result gave the model: those it names, or the call's own.
pub(super) fn add_fetched(all: &mut BTreeSet<String>, call: &ToolCall, code: Option<&str>, fetched: &[String]) {
    all.extend(fetched.iter().cloned());
    if code == Some(SCHEMA_RETURNED) {
        all.insert(tool_name(call).into_owned());
    }
}
