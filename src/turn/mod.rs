//! One turn: a prompt and all that follows until the answer, over one or more invocations.
//!
//! The turn owns the control flow. Leaves compute; the turn applies, records, and only then tells. All that it needs to
//! know of the past stands in the log, so that every invocation goes on where the last one stopped, however it stopped.

pub mod compaction;
pub mod decisions;
pub mod dispatch;
pub mod ending;
pub mod images;
mod journal;
pub mod offered;
pub mod prompt;
pub mod resume;
pub mod rounds;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod transcript;
pub mod verification;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::repeated::Memory;
use crate::config::Run;
use crate::interrupt::Interrupt;
use crate::mcp::Servers;
use crate::permission::{ReadDenials, Rules, host_verdict};
use crate::provider::Connected;
use crate::report::Reporter;
use crate::session::folder::SessionFolder;
use crate::session::history::{History, Spent};
use crate::session::log::Log;
use crate::session::record::TurnSettings;
use crate::tool::Surroundings;
use crate::tool::registry::Registry;
use crate::workspace::Workspace;
use crate::workspace::root::Root;

/// A turn that this invocation runs.
pub struct Turn<'a> {
    pub workspace: &'a Workspace,
    pub folder: &'a SessionFolder,
    /// The folder that holds `cache/`.
    pub state: Option<Root>,
    pub log: Log,
    pub settings: TurnSettings,
    pub registry: Arc<Registry>,
    /// The MCP servers behind some of the tools; they end with the turn.
    pub servers: Servers,
    pub connected: Connected,
    pub rules: Rules,
    pub interrupt: &'a Interrupt,
    pub reporter: &'a Reporter,
    /// Environment variables that no child gets.
    pub withheld_variables: Vec<String>,
    /// What the reads of this invocation have found.
    pub memory: Memory,
    /// When this invocation began to work on the turn.
    pub begun: Instant,
    /// What the turn's earlier invocations took.
    pub elapsed_before_ms: u64,
    /// No summary could be had in this invocation; it is not asked for again until the service refuses a request.
    pub has_failed_to_summarise: bool,
}

impl Turn<'_> {
    pub fn history(&self) -> &History {
        self.log.history()
    }

    /// What the turn has used, this invocation's time included.
    pub fn spent(&self) -> Spent {
        let own_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        Spent { elapsed_ms: self.elapsed_before_ms.saturating_add(own_ms), ..self.history().spent() }
    }

    /// What counts against the limits: all since the last one was reached.
    pub fn spent_of_limits(&self) -> Spent {
        let spent = self.spent();
        let before = self.history().spent_before_limits();
        Spent {
            rounds: spent.rounds.saturating_sub(before.rounds),
            tool_calls: spent.tool_calls.saturating_sub(before.tool_calls),
            elapsed_ms: spent.elapsed_ms.saturating_sub(before.elapsed_ms),
            usage: spent.usage,
        }
    }

    /// What config says of the tool `fetch`, for the hosts that it is led to.
    pub(crate) fn fetch_run(&self) -> Option<Run> {
        self.registry.find("fetch").and_then(|tool| tool.run)
    }

    /// Calls `work` with what surrounds the turn's calls.
    pub(crate) fn with_surroundings<T>(&self, work: impl FnOnce(&Surroundings<'_>) -> T) -> T {
        let limits = self.settings.tool_limits();
        let (rules, fetch_run) = (&self.rules, self.fetch_run());
        work(&Surroundings {
            workspace: self.workspace,
            session: Some(self.folder),
            written: self.history().written(),
            limits: &limits,
            withheld_variables: &self.withheld_variables,
            fetch_verdict: &|host| host_verdict(host, fetch_run, rules),
            read_denials: &ReadDenials::of(rules),
            state: self.state.as_ref(),
        })
    }

    /// From now on the turn's time limit, if it has one, raises the interrupt.
    pub fn watch_time(&self) -> anyhow::Result<()> {
        if self.settings.max_time_s == 0 {
            return Ok(());
        }
        let limit_ms = self.settings.max_time_s.saturating_mul(1000);
        let left_ms = limit_ms.saturating_sub(self.spent_of_limits().elapsed_ms);
        self.interrupt.raise_at(Instant::now() + Duration::from_millis(left_ms))?;
        Ok(())
    }

    /// Tells what is to be told of MCP servers since this was last done.
    pub(crate) fn warn_of_servers(&self) {
        self.reporter.warn_of_servers(&self.servers, Some(self.history().turn()));
    }

    pub(crate) fn warn(&self, message: impl Into<String>) {
        let event = crate::report::event::Event::Warning { message: message.into() };
        self.reporter.tell(Some(self.history().turn()), &event);
    }
}
