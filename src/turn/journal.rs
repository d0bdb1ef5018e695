//! What is written down while a group of operations runs: starts before they begin, results of several operations as
//! they settle. Its threads share it; the order of everything else is the dispatch's.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call::committed::{Budget, Settlement, append_decision, record};
use crate::call::executed::Executed;
use crate::call::planned::Ready;
use crate::call::repeated::Memory;
use crate::clock;
use crate::mask;
use crate::report::Reporter;
use crate::report::event::{CallLabel, Event, title_of};
use crate::session::folder::SessionFolder;
use crate::session::log::Log;
use crate::session::record::{CallWaitingRecord, Record, ToolStartRecord};
use crate::tool::{Effect, Waits};

/// What is written down while a group runs; shared by its threads.
pub(super) struct Journal<'j> {
    pub(super) log: &'j mut Log,
    pub(super) memory: &'j mut Memory,
    pub(super) folder: &'j SessionFolder,
    pub(super) root: &'j Path,
    pub(super) reporter: &'j Reporter,
    pub(super) budget: &'j mut Budget,
    pub(super) turn: u64,
    /// What is to be told once the run's records are on disk.
    pub(super) events: Vec<Event>,
    /// A record could not be written: nothing begins any more.
    pub(super) failure: Option<anyhow::Error>,
}

pub(super) fn locked<'l, 'j>(journal: &'l Mutex<Journal<'j>>) -> MutexGuard<'l, Journal<'j>> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal<'_> {
    /// Records that an operation begins, and tells of it. Returns whether it may.
    pub(super) fn begin(&mut self, ready: &Ready<'_>) -> bool {
        if self.failure.is_some() {
            return false;
        }
        if let Err(error) = self.record_start(ready) {
            self.failure = Some(error);
            return false;
        }
        let event = Event::ToolStarted {
            call: label(ready),
            arguments: ready.call.arguments.clone(),
            summary: ready.assessment.summary.clone(),
        };
        self.reporter.tell(Some(self.turn), &event);
        true
    }

    fn record_start(&mut self, ready: &Ready<'_>) -> anyhow::Result<()> {
        append_decision(self.log, &ready.call.id, ready.permit.grounds())?;
        if !has_effects(ready) {
            return Ok(());
        }
        self.log.append(&Record::ToolStart(ToolStartRecord {
            call_id: ready.call.id.call_id.clone(),
            operation: ready.call.id.operation,
            at: clock::now(),
            files: ready.permit.files().to_vec(),
        }))?;
        self.log.barrier()?;
        // From here on it may have taken effect.
        match ready.permit.files() {
            [] => self.memory.drop_local(),
            files => self.memory.drop_for_patch(files, self.root, &crate::workspace::mounts::Mounts::load()),
        }
        Ok(())
    }

    /// Records that an operation asked back, at once: it is not repeated, and waits even if attini is killed now.
    fn record_waiting(&mut self, ready: &Ready<'_>, waits: &Waits) -> anyhow::Result<()> {
        self.log.append(&Record::CallWaiting(CallWaitingRecord {
            call_id: ready.call.id.call_id.clone(),
            operation: ready.call.id.operation,
            question: mask::apply(&waits.question).into_owned(),
            state: waits.state.clone(),
        }))?;
        self.log.barrier()
    }

    /// Records what one of several operations came to. A call's only operation is recorded in call order, by the commit.
    pub(super) fn settle(&mut self, ready: &Ready<'_>, executed: &Executed) {
        if self.failure.is_some() {
            return;
        }
        if let Some(waits) = &executed.outcome.waits {
            if let Err(error) = self.record_waiting(ready, waits) {
                self.failure = Some(error);
            }
            return;
        }
        if ready.call.id.operation.is_none() {
            return;
        }
        let settlement = Settlement::of_execution(ready.call.id.clone(), ready.call.tool.name(), executed);
        let settlement = settlement.titled(title(ready));
        let recorded = record(self.log, self.folder, self.budget, settlement).and_then(|event| {
            // Reads share the sync of their run, and are told of behind it.
            if has_effects(ready) {
                self.log.barrier()?;
                self.reporter.tell(Some(self.turn), &event);
            } else {
                self.events.push(event);
            }
            Ok(())
        });
        if let Err(error) = recorded {
            self.failure = Some(error);
        }
    }
}

pub(super) fn has_effects(ready: &Ready<'_>) -> bool {
    ready.call.tool.tool.effect() == Effect::SideEffect
}

/// What a call that was begun is called on the screen.
pub(super) fn title(ready: &Ready<'_>) -> String {
    title_of(ready.call.tool.name(), &ready.assessment.summary)
}

pub(super) fn label(ready: &Ready<'_>) -> CallLabel {
    CallLabel { id: ready.call.id.clone(), name: ready.call.tool.name().to_owned() }
}
