//! `find_tools`: descriptions and schemas of deferred tools, by words or by name.
//!
//! It searches what the registry holds; no server is started for it. What it returned is recorded by name, so that the
//! conversation knows what the model has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::deferral::server_of;
use super::registry::{RegisteredTool, nearest};
use crate::config::nearest::named;
use crate::tool::{Assessment, Effect, Locality, Outcome, Overlay, Preview, Refusal, Surroundings, Tool, Work, schema};
use crate::workspace::World;

pub const NAME: &str = "find_tools";

/// How many tools of one server a search by words returns.
const HITS_PER_SERVER_MAX: usize = 5;
/// How many names are told of what was found and is not shown.
const NAMES_TOLD_MAX: usize = 20;
/// How much of a query is quoted.
const QUOTE_CHARACTERS_MAX: usize = 100;
/// How a query begins that names tools.
const SELECT: &str = "select:";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    query: String,
}

pub struct FindTools {
    parameters: Value,
    catalogue: Catalogue,
}

/// The deferred tools, by name.
pub(super) struct Catalogue {
    entries: Vec<Entry>,
    /// Names of the tools that the model is given whole.
    advertised: BTreeSet<String>,
}

struct Entry {
    name: String,
    server: String,
    description: String,
    /// As JSON; made when it is asked for, as most never are.
    schema: Box<dyn Fn() -> String + Send + Sync>,
}

/// What a query found: the tools to show, and what is to be said before them and behind them.
struct Found<'c> {
    before: String,
    entries: Vec<&'c Entry>,
    after: String,
}

impl Catalogue {
    pub(super) fn of(tools: &[RegisteredTool]) -> Self {
        let deferred = tools.iter().filter(|tool| tool.deferred);
        let mut entries: Vec<Entry> = deferred
            .map(|tool| Entry {
                name: tool.name().to_owned(),
                server: server_of(tool).unwrap_or_default().to_owned(),
                description: tool.description().trim().to_owned(),
                schema: schema_of(tool),
            })
            .collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let advertised = tools.iter().filter(|tool| tool.withheld.is_none() && !tool.deferred);
        Self { entries, advertised: advertised.map(|tool| tool.name().to_owned()).collect() }
    }

    /// `Err`: a selection that found nothing at all.
    fn find(&self, query: &str) -> Result<Found<'_>, Refusal> {
        let head = query.get(..SELECT.len()).filter(|head| head.eq_ignore_ascii_case(SELECT));
        match head {
            Some(_) => self.select(&query[SELECT.len()..]),
            None => Ok(self.search(query)),
        }
    }

    fn select(&self, names: &str) -> Result<Found<'_>, Refusal> {
        let mut entries: Vec<&Entry> = Vec::new();
        let mut unknown = Vec::new();
        let mut given = Vec::new();
        for name in names.split([',', ' ', '\n', '\t']).filter(|name| !name.is_empty()) {
            if let Some(entry) = self.entries.iter().find(|entry| entry.name.eq_ignore_ascii_case(name)) {
                if entries.iter().all(|other| other.name != entry.name) {
                    entries.push(entry);
                }
            } else if let Some(name) = self.advertised.iter().find(|known| known.eq_ignore_ascii_case(name)) {
                given.push(format!("{name} is one of the tools that you are given; call it directly."));
            } else {
                unknown.push(self.unknown(name));
            }
        }
        let after = [unknown, given].concat().join("\n");
        if entries.is_empty() && after.is_empty() {
            return Err(Refusal::new("invalid_arguments", "`select:` is followed by no name."));
        }
        if entries.is_empty() {
            return Err(Refusal::new("unknown_tool", format!("No schema was found.\n{after}")).detail(self.count()));
        }
        Ok(Found { before: String::new(), entries, after })
    }

    fn unknown(&self, name: &str) -> String {
        let near = self.near(name);
        let near = if near.is_empty() { String::new() } else { format!("; {}", named("the nearest name", &near)) };
        format!("There is no tool named {:?}{near}.", quote(name))
    }

    fn near(&self, name: &str) -> Vec<&str> {
        nearest(name, self.entries.iter().map(|entry| entry.name.as_str()))
    }

    fn count(&self) -> String {
        format!("there are {} tools to find, and `find_tools` searches them by words", self.entries.len())
    }

    fn search(&self, query: &str) -> Found<'_> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let mut hits: Vec<(Rank, &Entry)> =
            self.entries.iter().filter_map(|entry| Some((Rank::of(entry, &words)?, entry))).collect();
        hits.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.name.cmp(&other.1.name)));
        if hits.is_empty() {
            return Found { before: self.nothing_for(query, &words), entries: Vec::new(), after: String::new() };
        }
        let mut of_server: BTreeMap<&str, usize> = BTreeMap::new();
        let (shown, left): (Vec<_>, Vec<_>) = hits.iter().map(|(_, entry)| *entry).partition(|entry| {
            let count = of_server.entry(&entry.server).or_default();
            *count += 1;
            *count <= HITS_PER_SERVER_MAX
        });
        let before = match left.len() {
            0 => String::new(),
            _ => format!("{} tools were found; at most {HITS_PER_SERVER_MAX} of a server are shown.", hits.len()),
        };
        let after = if left.is_empty() { String::new() } else { format!("Also found: {}", enumeration(&left)) };
        Found { before, entries: shown, after }
    }

    /// No hit is no failure; but it says what would be one.
    fn nothing_for(&self, query: &str, words: &[String]) -> String {
        let mut text = format!("No tool has all of {:?} in its name and description", quote(query));
        let mut near: Vec<&str> = Vec::new();
        for name in words.iter().flat_map(|word| self.near(word)) {
            if near.len() < HITS_PER_SERVER_MAX && !near.contains(&name) {
                near.push(name);
            }
        }
        if !near.is_empty() {
            let _ = write!(text, "; names that are near: {}", near.join(", "));
        }
        let partly = words.iter().filter_map(|word| {
            let hits =
                self.entries.iter().filter(|entry| Rank::of(entry, std::slice::from_ref(word)).is_some()).count();
            (words.len() > 1 && hits > 0).then(|| format!("{word:?} alone finds {hits}"))
        });
        for part in partly {
            let _ = write!(text, "; {part}");
        }
        let _ = write!(text, ". {} tools can be found; try fewer or other words.", self.entries.len());
        text
    }
}

fn schema_of(tool: &RegisteredTool) -> Box<dyn Fn() -> String + Send + Sync> {
    if let Some((_, envelope)) = &tool.fan_out {
        let text = envelope.to_string();
        return Box::new(move || text.clone());
    }
    let tool = Arc::clone(&tool.tool);
    Box::new(move || tool.advertised_parameters().to_string())
}

/// How well a tool fits: the more words its name has, and the more of them as a whole part of it, the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    in_name: usize,
    whole_parts: usize,
}

impl Rank {
    /// `None`: a word hits neither name nor description. `words` are in lower case.
    fn of(entry: &Entry, words: &[String]) -> Option<Self> {
        if words.is_empty() {
            return None;
        }
        let name = entry.name.to_lowercase();
        let description = entry.description.to_lowercase();
        if !words.iter().all(|word| name.contains(word.as_str()) || description.contains(word.as_str())) {
            return None;
        }
        let in_name = words.iter().filter(|word| name.contains(word.as_str())).count();
        let is_part = |word: &&String| name.split(['_', '-']).any(|part| part == word.as_str());
        Some(Self { in_name, whole_parts: words.iter().filter(is_part).count() })
    }
}

fn enumeration(entries: &[&Entry]) -> String {
    let names: Vec<&str> = entries.iter().take(NAMES_TOLD_MAX).map(|entry| entry.name.as_str()).collect();
    match entries.len().saturating_sub(NAMES_TOLD_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn quote(text: &str) -> String {
    text.trim().chars().take(QUOTE_CHARACTERS_MAX).collect()
}

impl FindTools {
    pub(super) fn new(catalogue: Catalogue) -> Self {
        Self { parameters: schema::of::<Arguments>(), catalogue }
    }
}

impl Tool for FindTools {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> &'static str {
        include_str!("find_tools.md")
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

    fn look(&self, _arguments: &Value, _surroundings: &Surroundings<'_>, _world: &mut World) {}

    fn assess(&self, arguments: &Value, _world: &World, _overlay: &Overlay) -> Result<Assessment, Refusal> {
        let arguments = parse(arguments)?;
        if arguments.query.trim().is_empty() {
            return Err(Refusal::new("invalid_arguments", "`query` is empty.").detail(self.catalogue.count()));
        }
        Ok(Assessment {
            summary: arguments.query.clone(),
            accesses: Vec::new(),
            preview: Preview::Tool { arguments: serde_json::json!({"query": arguments.query}) },
            files: Vec::new(),
            after: Overlay::new(),
            moot: None,
        })
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        let found = parse(work.arguments).and_then(|arguments| self.catalogue.find(arguments.query.trim()));
        match found {
            Ok(found) => told(&found, usize::try_from(work.surroundings.limits.result_bytes).unwrap_or(usize::MAX)),
            Err(refusal) => refusal.into(),
        }
    }
}

fn parse(arguments: &Value) -> Result<Arguments, Refusal> {
    Arguments::deserialize(arguments).map_err(|error| Refusal::new("invalid_arguments", error.to_string()))
}

/// The tools one behind the other, each whole, as many as `bytes_max` holds. A single one that is larger is given all
/// the same; the result is then shortened where it is committed, and does not count as seen.
fn told(found: &Found<'_>, bytes_max: usize) -> Outcome {
    let mut parts: Vec<String> = Some(found.before.clone()).filter(|text| !text.is_empty()).into_iter().collect();
    // What stands behind the tools, and the names of those that find no room.
    let reserve =
        found.after.len() + found.entries.iter().take(NAMES_TOLD_MAX).map(|one| one.name.len() + 2).sum::<usize>();
    let mut bytes = found.before.len() + reserve;
    let mut fetched: Vec<String> = Vec::new();
    let mut left: Vec<&Entry> = Vec::new();
    for entry in &found.entries {
        let mut part = format!("## {}\n", entry.name);
        if !entry.description.is_empty() {
            let _ = writeln!(part, "{}", entry.description);
        }
        let _ = write!(part, "Schema of its arguments: {}", (entry.schema)());
        if !fetched.is_empty() && bytes + part.len() > bytes_max {
            left.push(entry);
            continue;
        }
        bytes += part.len() + 2;
        parts.push(part);
        fetched.push(entry.name.clone());
    }
    if !left.is_empty() {
        parts.push(format!("There was no room for {}; `select:` gives one alone.", enumeration(&left)));
    }
    if !found.after.is_empty() {
        parts.push(found.after.clone());
    }
    Outcome { fetched, ..Outcome::ok(parts.join("\n\n")) }
}

#[cfg(test)]
mod tests;
