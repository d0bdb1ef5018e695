//! `list`: what a folder holds. It tells names, kinds and sizes, and reads no file.

use std::path::Path;

use ignore::DirEntry;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::target::{self, Wanted};
use super::{Assessment, Effect, Outcome, Overlay, Refusal, Surroundings, Tool, Work, schema};
use crate::permission::ReadDenials;
use crate::workspace::walk::{self, Filter, Glob};
use crate::workspace::{Kind, Location, World};

pub const NAME: &str = "list";

const DEPTH_MAX: u32 = 64;
const ENTRIES_MAX: u32 = 10_000;
/// How many entries beyond those shown are counted.
const COUNTED_ENTRIES_MAX: u64 = 100_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The folder, relative to the workspace.
    #[serde(default = "here")]
    path: String,
    /// How many levels to show; 1 is the folder's own entries.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    depth: u32,
    /// Shows only entries that match, as in a .gitignore: `*.rs`, `src/**/*.ts`, `!*.lock`.
    glob: Option<String>,
    /// Shows names that begin with a dot as well.
    #[serde(default)]
    hidden: bool,
    /// How many entries to show at most.
    #[serde(default = "two_hundred")]
    #[schemars(range(min = 1, max = 10000))]
    max_entries: u32,
}

fn here() -> String {
    ".".to_owned()
}

fn one() -> u32 {
    1
}

fn two_hundred() -> u32 {
    200
}

/// The tool `list`.
pub struct List {
    parameters: Value,
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    pub fn new() -> Self {
        Self { parameters: schema::of::<Arguments>() }
    }
}

impl Tool for List {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> &'static str {
        include_str!("list.md").trim_ascii_end()
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn look(&self, arguments: &Value, surroundings: &Surroundings<'_>, world: &mut World) {
        if let Ok(arguments) = target::arguments::<Arguments>(arguments) {
            target::look(&arguments.path, surroundings, world);
        }
    }

    fn assess(&self, arguments: &Value, world: &World, overlay: &Overlay) -> Result<Assessment, Refusal> {
        let arguments: Arguments = target::arguments(arguments)?;
        let location = target::location(&arguments.path, world)?;
        filter(&arguments, location, &ReadDenials::default())?;
        Ok(target::assess(location, Wanted::Folder, location.shown.clone(), overlay))
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        list(work).unwrap_or_else(Outcome::from)
    }
}

fn filter(arguments: &Arguments, location: &Location, read_denials: &ReadDenials) -> Result<Filter, Refusal> {
    let glob = arguments.glob.as_deref().map(|glob| Glob::parse(glob, location)).transpose()?;
    let depth = Some(arguments.depth.clamp(1, DEPTH_MAX) as usize);
    Ok(Filter { hidden: arguments.hidden, glob, depth, read_denials: read_denials.clone() })
}

fn list(work: &Work<'_>) -> Result<Outcome, Refusal> {
    let arguments: Arguments = target::arguments(work.arguments)?;
    let location = target::location(&arguments.path, work.world)?;
    let failed = |error: &std::io::Error| match location.kind {
        Kind::File => target::not_a_folder(location),
        Kind::Other => target::not_regular(location),
        Kind::Absent | Kind::Folder => target::open_failure(location, error, work),
    };
    let (root, path) =
        work.surroundings.workspace.root_for(location, work.surroundings.session).map_err(|error| failed(&error))?;
    let folder = root.folder(&path).map_err(|error| failed(&error))?;
    let filter = filter(&arguments, location, work.surroundings.read_denials)?;
    let entries_max = u64::from(arguments.max_entries.clamp(1, ENTRIES_MAX));

    let (builder, omissions) = walk::builder(location, &filter);
    let mut lines = Vec::new();
    let (mut seen, mut unreadable) = (0u64, 0u64);
    for entry in builder.build() {
        if work.interrupt.is_raised() {
            return Ok(target::interrupted());
        }
        let Ok(entry) = entry else {
            unreadable += 1;
            continue;
        };
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        if entry.depth() == 0 || filter.glob.as_ref().is_some_and(|glob| !glob.shows(entry.path(), is_folder)) {
            continue;
        }
        seen += 1;
        if seen <= entries_max {
            lines.push(line(location, &entry));
        } else if seen - entries_max > COUNTED_ENTRIES_MAX {
            break;
        }
    }
    if !walk::is_still(&folder, &location.absolute) {
        return Err(target::stale(location));
    }
    if lines.is_empty() {
        lines.push(nothing(location, &arguments));
    }
    lines.extend(left_out(seen, entries_max));
    if unreadable > 0 {
        lines.push(format!("[{unreadable} entries could not be read]"));
    }
    lines.extend(omissions.notes().into_iter().map(|note| format!("[{note}]")));
    Ok(Outcome::ok(lines.join("\n")))
}

fn line(location: &Location, entry: &DirEntry) -> String {
    let relative = entry.path().strip_prefix(&location.absolute).unwrap_or(entry.path());
    let shown = walk::shown_below(location, relative);
    match entry.file_type() {
        Some(kind) if kind.is_dir() => format!("{shown}/"),
        Some(kind) if kind.is_symlink() => {
            let target = entry.path().read_link().unwrap_or_default();
            format!("{shown} -> {}", Path::display(&target))
        }
        Some(kind) if kind.is_file() => match entry.metadata() {
            Ok(metadata) if metadata.len() == 1 => format!("{shown}  1 byte"),
            Ok(metadata) => format!("{shown}  {} bytes", metadata.len()),
            Err(_) => format!("{shown}  size unknown"),
        },
        _ => format!("{shown}  device, socket or pipe"),
    }
}

fn nothing(location: &Location, arguments: &Arguments) -> String {
    let shown = &location.shown;
    match &arguments.glob {
        Some(glob) => {
            let levels =
                if arguments.depth == 1 { "1 level".to_owned() } else { format!("{} levels", arguments.depth) };
            format!("{shown}: nothing within {levels} matches {glob}")
        }
        None if arguments.hidden => format!("{shown}: no entries, but for what .gitignore leaves out"),
        None => format!("{shown}: no entries, but for hidden ones and what .gitignore leaves out"),
    }
}

fn left_out(seen: u64, entries_max: u64) -> Option<String> {
    let rest = seen.saturating_sub(entries_max);
    let count = match rest {
        0 => return None,
        rest if rest > COUNTED_ENTRIES_MAX => format!("more than {COUNTED_ENTRIES_MAX}"),
        rest => rest.to_string(),
    };
    Some(format!("[{count} more left out; narrow it with path, depth or glob, or raise max_entries]"))
}

#[cfg(test)]
mod tests;
