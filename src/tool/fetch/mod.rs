//! `fetch`: a page of the web as text. It reads, and sends nothing but the URL.
//!
//! Who may be asked is decided thrice: before the call by the rules, at each redirect by the same rules, and at each
//! connection by the address that a name leads to.

mod address;
mod cache;
mod exchange;
mod follow;
mod kind;
mod link;
mod markdown;
mod page;
mod resolve;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use ureq::unversioned::resolver::{DefaultResolver, Resolver};

use self::exchange::Network;
use self::follow::Journey;
use super::read::sniff;
use super::target;
use super::{Assessment, Effect, Locality, Outcome, Overlay, Preview, Refusal, Surroundings, Tool, Work, schema};
use crate::http::environment_variable;
use crate::permission::{Access, FetchAccess, Rule};
use crate::workspace::World;

/// For a whole call, its redirects included.
pub const TOTAL_SECONDS_MAX: u64 = 60;
/// Of a page, compressed or not.
pub const BODY_BYTES_MAX: u64 = 10 * 1024 * 1024;
pub const REDIRECTS_MAX: u32 = 5;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The page's address, with `http://` or `https://`.
    #[schemars(length(min = 1, max = 8192))]
    url: String,
    /// Shows HTML as it came instead of as Markdown.
    #[serde(default)]
    raw: bool,
    /// Asks the server even if the page was fetched a short while ago.
    #[serde(default)]
    refresh: bool,
}

/// The bounds of one call; the constants above, but for tests.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    total: Duration,
    body_bytes: u64,
}

/// Why a call brings no page.
#[derive(Debug)]
enum Stop {
    Interrupted,
    Because(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Because(refusal)
    }
}

type OwnedVariable = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The tool `fetch`.
pub struct Fetch {
    parameters: Value,
    variable: OwnedVariable,
    resolver: Arc<dyn Resolver>,
    bounds: Bounds,
    now: fn() -> SystemTime,
}

impl Default for Fetch {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetch {
    /// With the proxy and certificates that the environment names, and the system's resolver.
    pub fn new() -> Self {
        Self {
            parameters: schema::of::<Arguments>(),
            variable: Box::new(environment_variable),
            resolver: Arc::new(DefaultResolver::default()),
            bounds: Bounds { total: Duration::from_secs(TOTAL_SECONDS_MAX), body_bytes: BODY_BYTES_MAX },
            now: SystemTime::now,
        }
    }

    fn fetch(&self, work: &Work<'_>) -> Result<Outcome, Stop> {
        let arguments: Arguments = target::arguments(work.arguments)?;
        let link = link::of_call(&arguments.url)?;
        let journey =
            Journey { start: &link, verdict: work.surroundings.fetch_verdict, approved: work.approved_by_person };
        journey.reach(&link)?;
        let state = work.surroundings.state;
        if !arguments.refresh
            && let Some(page) = state.and_then(|state| cache::load(state, &link, (self.now)()))
            && journey.may_see(&page)
        {
            return Ok(page.outcome(&link, arguments.raw, work.interrupt));
        }
        let network = Network {
            variable: &*self.variable,
            resolver: Arc::clone(&self.resolver),
            bounds: self.bounds,
            deadline: Instant::now() + self.bounds.total,
            interrupt: work.interrupt,
        };
        let page = journey.travel(&network)?;
        if let Some(state) = state.filter(|_| page.is_success()) {
            // A page that cannot be kept is fetched again: nothing is lost.
            let _ = cache::store(state, &link, &page, (self.now)());
        }
        Ok(page.outcome(&link, arguments.raw, work.interrupt))
    }
}

impl Tool for Fetch {
    fn name(&self) -> &'static str {
        "fetch"
    }

    fn description(&self) -> &'static str {
        include_str!("../fetch.md").trim_ascii_end()
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn locality(&self) -> Locality {
        Locality::Elsewhere
    }

    fn asks_anew(&self, arguments: &Value) -> bool {
        arguments.get("refresh") == Some(&Value::Bool(true))
    }

    fn look(&self, _: &Value, _: &Surroundings<'_>, _: &mut World) {}

    fn assess(&self, arguments: &Value, _: &World, _: &Overlay) -> Result<Assessment, Refusal> {
        let arguments: Arguments = target::arguments(arguments)?;
        let link = link::of_call(&arguments.url)?;
        Ok(Assessment {
            summary: link.as_str().to_owned(),
            accesses: vec![Access::Fetch(FetchAccess { host: link.host().to_owned() })],
            preview: Preview::Fetch { url: link.as_str().to_owned() },
            files: Vec::new(),
            after: Overlay::new(),
            moot: None,
        })
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        match self.fetch(work) {
            Ok(outcome) => outcome,
            Err(Stop::Interrupted) => target::interrupted(),
            Err(Stop::Because(refusal)) => refusal.into(),
        }
    }
}

/// The rule that allows a host, as a line of a rules file.
fn rule_line(host: &str) -> String {
    Rule::Fetch { allow: true, host: host.to_owned(), turn: None }.to_line()
}

#[cfg(test)]
mod tests;
