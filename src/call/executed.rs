//! The stage that does it: a permit goes in, an outcome comes out. Nothing here records or reports.
//!
//! Adjacent reads, and the operations of a call that says so, run beside each other on threads of their own, at most so
//! many at a time; everything else runs alone.
//! A tool that panics has an outcome like any other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::fanned::is_failure;
use super::planned::Ready;
use crate::interrupt::Interrupt;
use crate::session::record::{OnError, ResultStatus, Scope};
use crate::tool::heartbeat;
use crate::tool::{Effect, Outcome, Surroundings, Work};
use crate::workspace::World;

/// An operation that was run.
pub struct Executed {
    pub outcome: Outcome,
    pub duration: Duration,
    /// Whether the tool was called at all; it is not once the interrupt is raised.
    pub begun: bool,
    /// The operation whose failure kept this one from running.
    pub stopped_by: Option<u32>,
    /// It was kept from running since an operation before it in its call waits for an answer. It is no result yet.
    pub held: bool,
}

/// Who writes down what begins and what ends; called from any thread.
#[derive(Clone, Copy)]
pub struct Journal<'a> {
    /// Before the tool is called. Where it says no, the tool is not.
    pub begin: &'a (dyn Fn(&Ready<'_>) -> bool + Sync),
    /// When the tool has returned.
    pub settle: &'a (dyn Fn(&Ready<'_>, &Executed) + Sync),
}

/// What running needs beside the operation itself.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    pub surroundings: &'a Surroundings<'a>,
    pub world: &'a World,
    pub interrupt: &'a Interrupt,
    /// Takes a command's output as it comes.
    pub live: &'a (dyn Fn(&[u8]) + Sync),
    pub journal: Journal<'a>,
    /// Is told every few seconds how long an operation has run, and how much it has put out.
    pub beat: &'a (dyn Fn(&Ready<'_>, Duration, u64) + Sync),
}

/// Runs the operations of a group: adjacent reads, the operations of one call, or a single one of any kind. At most
/// `concurrency` run at a time, but for those of a call with a number of its own. They are begun in the order given,
/// and the outcomes stand in that order.
pub fn execute(group: &[&Ready<'_>], concurrency: usize, ground: &Ground<'_>) -> Vec<Executed> {
    if let [alone] = group {
        return vec![execute_one(alone, ground)];
    }
    let lanes = Lanes::of(group, concurrency);
    let workers = lanes.workers_max().clamp(1, group.len());
    let state = Mutex::new(Schedule { states: vec![State::Waiting; group.len()], lanes, shared_running: 0 });
    let freed = Condvar::new();
    let slots: Vec<Mutex<Option<Executed>>> = group.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(index) = next_of(&state, &freed) {
                    let executed = execute_one(group[index], ground);
                    let waits = executed.outcome.waits.is_some();
                    let failed = !waits && is_failure(executed.outcome.status);
                    *slots[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(executed);
                    let mut schedule = state.lock().unwrap_or_else(PoisonError::into_inner);
                    schedule.finish(index, group[index].call.id.operation.filter(|_| failed), waits);
                    freed.notify_all();
                }
            });
        }
    });
    let schedule = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    slots
        .into_iter()
        .enumerate()
        .map(|(index, slot)| {
            let executed = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
            executed.unwrap_or_else(|| {
                let stopped_by = schedule.stopped_by(index);
                let held = stopped_by.is_none() && schedule.is_held(index);
                Executed { held, ..Executed::not_run(stopped_by) }
            })
        })
        .collect()
}

/// Waits for the next operation that may begin; `None`: there will be none.
fn next_of(state: &Mutex<Schedule>, freed: &Condvar) -> Option<usize> {
    let mut schedule = state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match schedule.take() {
            Offer::Begin(index) => return Some(index),
            Offer::Never => return None,
            Offer::Wait => schedule = freed.wait(schedule).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Which call each operation of a group belongs to, and how many of each may run at a time.
struct Lanes {
    /// By operation.
    of: Vec<usize>,
    calls: Vec<Lane>,
    concurrency: usize,
}

/// The operations of one call.
struct Lane {
    /// A number of its own, taken as given; `None`: it shares the dispatch's.
    slots: Option<usize>,
    running: usize,
    stops: bool,
    /// The operation that failed, where that keeps the rest from beginning.
    stopped_by: Option<u32>,
    /// One of the operations waits for an answer; the rest begins after that.
    held: bool,
}

impl Lanes {
    fn of(group: &[&Ready<'_>], concurrency: usize) -> Self {
        let mut calls: Vec<Lane> = Vec::new();
        let mut of = Vec::new();
        let mut last: Option<&str> = None;
        for ready in group {
            let call_id = ready.call.id.call_id.as_str();
            if last != Some(call_id) {
                let fan_out = ready.call.tool.fan_out.as_ref().map(|(fan_out, _)| fan_out);
                let own = fan_out.and_then(|fan_out| fan_out.concurrency);
                calls.push(Lane {
                    slots: own.map(|own| usize::try_from(own).unwrap_or(usize::MAX)),
                    running: 0,
                    stops: fan_out.is_some_and(|fan_out| fan_out.on_error == OnError::Stop),
                    stopped_by: None,
                    held: false,
                });
                last = Some(call_id);
            }
            of.push(calls.len() - 1);
        }
        Self { of, calls, concurrency: concurrency.max(1) }
    }

    fn workers_max(&self) -> usize {
        let own = self.calls.iter().filter_map(|lane| lane.slots);
        own.fold(self.concurrency, usize::saturating_add)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Begun,
}

/// Who may begin next.
struct Schedule {
    states: Vec<State>,
    lanes: Lanes,
    /// How many run of the calls without a number of their own.
    shared_running: usize,
}

enum Offer {
    Begin(usize),
    /// Something that runs has to end first.
    Wait,
    Never,
}

impl Schedule {
    fn take(&mut self) -> Offer {
        let mut waits = false;
        for (index, state) in self.states.iter_mut().enumerate() {
            let lane = &mut self.lanes.calls[self.lanes.of[index]];
            if *state == State::Begun || lane.stopped_by.is_some() || lane.held {
                continue;
            }
            let free = match lane.slots {
                Some(slots) => lane.running < slots,
                None => self.shared_running < self.lanes.concurrency,
            };
            if free {
                *state = State::Begun;
                lane.running += 1;
                self.shared_running += usize::from(lane.slots.is_none());
                return Offer::Begin(index);
            }
            waits = true;
        }
        if waits { Offer::Wait } else { Offer::Never }
    }

    /// An operation ended. A failure is noted before its slot is free, so that nothing begins in between.
    fn finish(&mut self, index: usize, failed: Option<u32>, waits: bool) {
        let lane = &mut self.lanes.calls[self.lanes.of[index]];
        lane.held |= waits;
        if lane.stops && lane.stopped_by.is_none() {
            lane.stopped_by = failed;
        }
        lane.running -= 1;
        self.shared_running -= usize::from(lane.slots.is_none());
    }

    fn is_held(&self, index: usize) -> bool {
        self.lanes.calls[self.lanes.of[index]].held
    }

    fn stopped_by(&self, index: usize) -> Option<u32> {
        self.lanes.calls[self.lanes.of[index]].stopped_by
    }
}

impl Executed {
    /// It was never begun: a failure before it in its call kept it from running, or the interrupt.
    fn not_run(stopped_by: Option<u32>) -> Self {
        let outcome = match stopped_by {
            Some(by) => Outcome {
                status: ResultStatus::NotRun,
                ..Outcome::error("not_run", format!("Not run: stopped after operation {by} failed."))
            },
            None => cancelled(),
        };
        Self { outcome, duration: Duration::ZERO, begun: false, stopped_by, held: false }
    }
}

fn execute_one(ready: &Ready<'_>, ground: &Ground<'_>) -> Executed {
    let begun = Instant::now();
    let tool = &ready.call.tool.tool;
    let reads = tool.effect() == Effect::Read;
    if ground.interrupt.is_raised() {
        return Executed::not_run(None);
    }
    if !(ground.journal.begin)(ready) {
        return Executed::not_run(None);
    }
    let label = ready.call.id.file_name();
    let output_bytes = AtomicU64::new(0);
    let work = Work {
        arguments: &ready.call.arguments,
        surroundings: ground.surroundings,
        world: ground.world,
        files: ready.permit.files(),
        label: &label,
        interrupt: ground.interrupt,
        approved_by_person: ready.permit.grounds().is_some_and(|grounds| grounds.by.scope == Scope::Person),
        answer: ready.permit.answer(),
        asked: ready.permit.asked(),
        live: ground.live,
        output_bytes: &output_bytes,
    };
    let beat = |elapsed: Duration, bytes: u64| (ground.beat)(ready, elapsed, bytes);
    let run = || heartbeat::during(heartbeat::INTERVAL, &output_bytes, beat, || tool.run(&work));
    let outcome = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome,
        Err(payload) => panicked(payload.as_ref(), reads),
    };
    let executed = Executed { outcome, duration: begun.elapsed(), begun: true, stopped_by: None, held: false };
    (ground.journal.settle)(ready, &executed);
    executed
}

/// The outcome of what was not begun because the invocation is to end.
fn cancelled() -> Outcome {
    Outcome {
        status: ResultStatus::Cancelled,
        ..Outcome::error("cancelled", "Not run: the invocation was interrupted before it began.")
    }
}

fn panicked(payload: &(dyn Any + Send), reads: bool) -> Outcome {
    let message = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let effect = if reads { "" } else { " It may have taken effect." };
    Outcome::error("panic", format!("The tool failed by a fault of its own: {message}.{effect}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of `count` operations in a lane of its own.
    fn schedule(count: usize, slots: Option<usize>, stops: bool) -> Schedule {
        let lane = Lane { slots, running: 0, stops, stopped_by: None, held: false };
        let lanes = Lanes { of: vec![0; count], calls: vec![lane], concurrency: 3 };
        Schedule { states: vec![State::Waiting; count], lanes, shared_running: 0 }
    }

    fn begun(schedule: &mut Schedule) -> Vec<usize> {
        std::iter::from_fn(|| match schedule.take() {
            Offer::Begin(index) => Some(index),
            Offer::Wait | Offer::Never => None,
        })
        .collect()
    }

    #[test]
    fn slots_are_taken_in_the_order_written() {
        for (slots, at_first, next) in [
            (Some(1), &[0][..], &[1][..]),
            (Some(2), &[0, 1], &[2]),
            (Some(9), &[0, 1, 2, 3, 4], &[]),
            (None, &[0, 1, 2], &[3]),
        ] {
            let mut schedule = schedule(5, slots, false);
            assert_eq!(begun(&mut schedule), at_first, "{slots:?}");
            schedule.finish(0, Some(1), false);
            assert_eq!(begun(&mut schedule), next, "{slots:?}");
        }
    }

    #[test]
    fn a_failure_is_noted_with_the_slot_it_frees() {
        for slots in [Some(1), Some(2), None] {
            let mut schedule = schedule(5, slots, true);
            let running = begun(&mut schedule);
            schedule.finish(0, Some(1), false);
            // What runs beside it finishes, and a later failure is not the one that stopped the rest.
            running.iter().skip(1).for_each(|&index| schedule.finish(index, u32::try_from(index + 1).ok(), false));
            assert!(matches!(schedule.take(), Offer::Never), "{slots:?}");
            assert_eq!(schedule.stopped_by(4), Some(1), "{slots:?}");
        }
    }

    #[test]
    fn a_call_that_is_stopped_stops_no_other() {
        let lane = |stops| Lane { slots: Some(1), running: 0, stops, stopped_by: None, held: false };
        let lanes = Lanes { of: vec![0, 0, 1, 1], calls: vec![lane(true), lane(true)], concurrency: 1 };
        let mut schedule = Schedule { states: vec![State::Waiting; 4], lanes, shared_running: 0 };
        assert_eq!(begun(&mut schedule), [0, 2]);
        schedule.finish(0, Some(1), false);
        schedule.finish(2, None, false);
        assert_eq!(begun(&mut schedule), [3]);
        assert_eq!((schedule.stopped_by(1), schedule.stopped_by(3)), (Some(1), None));
    }
}
