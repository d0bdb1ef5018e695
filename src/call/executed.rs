//! The stage that does it: a permit goes in, an outcome comes out. Nothing here records or reports.
//!
//! Adjacent reads run beside each other on threads of their own, at most so many at a time; everything else runs alone.
//! A tool that panics has an outcome like any other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::planned::Ready;
use crate::interrupt::Interrupt;
use crate::session::record::ResultStatus;
use crate::tool::heartbeat;
use crate::tool::{Effect, Outcome, Surroundings, Work};
use crate::workspace::World;

/// An operation that was run.
pub struct Executed {
    pub outcome: Outcome,
    pub duration: Duration,
    /// Whether the tool was called at all; it is not once the interrupt is raised.
    pub begun: bool,
}

/// What running needs beside the operation itself.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    pub surroundings: &'a Surroundings<'a>,
    pub world: &'a World,
    pub interrupt: &'a Interrupt,
    /// Takes a command's output as it comes.
    pub live: &'a (dyn Fn(&[u8]) + Sync),
    /// Is told when an operation begins; from any thread.
    pub started: &'a (dyn Fn(&Ready<'_>) + Sync),
    /// Is told every few seconds how long an operation has run, and how much it has put out.
    pub beat: &'a (dyn Fn(&Ready<'_>, Duration, u64) + Sync),
}

/// Runs the operations of a run of adjacent reads, or a single one of any kind. The outcomes stand in the order given.
pub fn execute(run: &[&Ready<'_>], concurrency: usize, ground: &Ground<'_>) -> Vec<Executed> {
    if let [alone] = run {
        return vec![execute_one(alone, ground)];
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Executed>>> = run.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..concurrency.clamp(1, run.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(ready), Some(slot)) = (run.get(index), slots.get(index)) else { break };
                    let executed = execute_one(ready, ground);
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(executed);
                }
            });
        }
    });
    slots
        .into_iter()
        .map(|slot| {
            let executed = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
            executed.unwrap_or_else(|| Executed { outcome: cancelled(), duration: Duration::ZERO, begun: false })
        })
        .collect()
}

fn execute_one(ready: &Ready<'_>, ground: &Ground<'_>) -> Executed {
    let begun = Instant::now();
    let tool = &ready.call.tool.tool;
    let reads = tool.effect() == Effect::Read;
    if ground.interrupt.is_raised() {
        return Executed { outcome: cancelled(), duration: begun.elapsed(), begun: false };
    }
    (ground.started)(ready);
    let label = ready.call.id.file_name();
    let output_bytes = AtomicU64::new(0);
    let work = Work {
        arguments: &ready.call.arguments,
        surroundings: ground.surroundings,
        world: ground.world,
        files: ready.permit.files(),
        label: &label,
        interrupt: ground.interrupt,
        live: ground.live,
        output_bytes: &output_bytes,
    };
    let beat = |elapsed: Duration, bytes: u64| (ground.beat)(ready, elapsed, bytes);
    let run = || heartbeat::during(heartbeat::INTERVAL, &output_bytes, beat, || tool.run(&work));
    let outcome = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome,
        Err(payload) => panicked(payload.as_ref(), reads),
    };
    Executed { outcome, duration: begun.elapsed(), begun: true }
}

/// The outcome of what was not begun because the invocation is to end.
fn cancelled() -> Outcome {
    Outcome {
        status: ResultStatus::Cancelled,
        ..Outcome::error("interrupted", "Not run: the invocation was interrupted before it began.")
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
