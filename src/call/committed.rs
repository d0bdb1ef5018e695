//! The last stage: a result becomes a fact on disk, and only then an event.
//!
//! One result per call, in call order. The results of a run of reads share one sync.

use super::decided::Grounds;
use super::executed::Executed;
use super::hints;
use super::planned::Answer;
use crate::clock;
use crate::mask;
use crate::report::Reporter;
use crate::report::event::{CallLabel, Event};
use crate::session::folder::SessionFolder;
use crate::session::log::Log;
use crate::session::record::{Attachment, DecidedBy, OperationId, Record, ResultStatus, ToolResultRecord};
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
    /// A decision that goes before the result, unless it is recorded already.
    pub grounds: Option<Grounds>,
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
            grounds: answer.grounds,
        }
    }

    pub fn of_execution(id: OperationId, name: &str, executed: Executed) -> Self {
        let outcome = executed.outcome;
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
            grounds: None,
        }
    }

    /// Brings the content into the form in which the model reads it: masked, never empty, within `bytes_max`, with what
    /// to do next behind a failure. What is cut off is kept whole in the session's outputs.
    fn shape(&mut self, folder: &SessionFolder, bytes_max: usize) {
        self.content = mask::apply(&self.content).into_owned();
        if self.content.trim().is_empty() {
            "(no output)".clone_into(&mut self.content);
        }
        let next = match (self.status, &self.code) {
            (ResultStatus::Ok, _) | (_, None) => None,
            (_, Some(code)) => hints::next_line(code, self.detail.as_deref().map(mask::apply).as_deref()),
        };
        let next = next.map(|line| shorten(&line, bytes_max / 4, None).into_owned());
        let room = bytes_max.saturating_sub(next.as_ref().map_or(0, |line| line.len() + 1));
        if self.content.len() > room {
            if self.output_file.is_none() {
                self.output_file = keep_whole(folder, &self.id, &self.content);
            }
            self.content = shorten(&self.content, room, self.output_file.as_deref()).into_owned();
        }
        if let Some(next) = next {
            self.content = format!("{}\n{next}", self.content.trim_end_matches('\n'));
        }
    }

    fn record(&self) -> Record {
        Record::ToolResult(ToolResultRecord {
            call_id: self.id.call_id.clone(),
            at: clock::now(),
            status: self.status,
            code: self.code.clone(),
            content: self.content.clone(),
            attachments: self.attachments.clone(),
            reason: self.reason.as_deref().map(|reason| mask::apply(reason).into_owned()),
            auto_decided_by: self.auto_decided_by.clone(),
            duration_ms: self.duration_ms,
            output_file: self.output_file.clone(),
        })
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

/// How long results may be.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub result_bytes: usize,
    /// What is left of `round_result_bytes` for this reply.
    pub round_bytes: usize,
}

/// Even a reply of very many calls leaves each result this much.
const RESULT_BYTES_MIN: usize = 512;

/// Commits results in the order given: records, one sync, events.
pub fn commit(
    log: &mut Log,
    folder: &SessionFolder,
    reporter: &Reporter,
    budget: &mut Budget,
    settlements: Vec<Settlement>,
) -> anyhow::Result<()> {
    let turn = log.history().turn();
    let mut events = Vec::with_capacity(settlements.len());
    for mut settlement in settlements {
        settlement.shape(folder, budget.result_bytes.min(budget.round_bytes).max(RESULT_BYTES_MIN));
        budget.round_bytes = budget.round_bytes.saturating_sub(settlement.content.len());
        append_decision(log, &settlement.id, settlement.grounds.as_ref())?;
        log.append(&settlement.record())?;
        events.push(settlement.event());
    }
    log.barrier()?;
    for event in &events {
        reporter.tell(Some(turn), event);
    }
    Ok(())
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
