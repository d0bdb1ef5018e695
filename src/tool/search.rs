//! `search`: which lines match a regular expression, with ripgrep's own libraries.
//!
//! The walk is made first and in parallel, then the files are searched in parallel, taken in the order of their paths.
//! What is searched is therefore always a prefix of the sorted files, and the result is the same whatever the threads do.

mod file;
mod pieces;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use ignore::WalkState;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::file::{Found, Query};
use self::pieces::{OVERLAP_BYTES, PIECE_BYTES};
use super::target::{self, Wanted};
use super::{Assessment, Effect, Outcome, Overlay, Refusal, Surroundings, Tool, Work, schema};
use crate::permission::ReadDenials;
use crate::workspace::root::Root;
use crate::workspace::walk::{self, Filter, Glob};
use crate::workspace::{Kind, Location, World};

const PATTERN_BYTES_MAX: usize = 4096;
/// Of a compiled pattern, and of the cache that it searches with.
const REGEX_BYTES_MAX: usize = 10 * 1024 * 1024;
const NEST_MAX: u32 = 100;
const CONTEXT_LINES_MAX: u32 = 20;
const RESULTS_MAX: u32 = 1000;
/// How many matches beyond those shown are counted.
const COUNTED_RESULTS_MAX: u64 = 1000;
/// How many files one search looks at.
const FILES_MAX: usize = 500_000;
const THREADS_MAX: usize = 8;
/// How many of the files that were not searched, or not as a whole, are named.
const NAMED_FILES_MAX: usize = 5;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A regular expression in Rust's syntax; it is matched against each line.
    pattern: String,
    /// The file or folder to search, relative to the workspace.
    #[serde(default = "here")]
    path: String,
    /// Searches only files that match, as in a .gitignore: `*.rs`, `src/**/*.ts`, `!*.lock`.
    glob: Option<String>,
    /// Takes the pattern as plain text.
    #[serde(default)]
    literal: bool,
    /// Takes upper and lower case for the same.
    #[serde(default)]
    ignore_case: bool,
    /// How many lines to show before and after each match.
    #[serde(default)]
    #[schemars(range(max = 20))]
    context: u32,
    /// How many matching lines to show at most.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 1000))]
    max_results: u32,
}

fn here() -> String {
    ".".to_owned()
}

fn fifty() -> u32 {
    50
}

/// The tool `search`.
pub struct Search {
    parameters: Value,
}

impl Default for Search {
    fn default() -> Self {
        Self::new()
    }
}

impl Search {
    pub fn new() -> Self {
        Self { parameters: schema::of::<Arguments>() }
    }
}

impl Tool for Search {
    fn name(&self) -> &'static str {
        "search"
    }

    fn description(&self) -> &'static str {
        include_str!("search.md").trim_ascii_end()
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
        matcher(&arguments)?;
        let location = target::location(&arguments.path, world)?;
        filter(&arguments, location, &ReadDenials::default())?;
        let summary = format!("{:?} in {}", arguments.pattern, location.shown);
        Ok(target::assess(location, Wanted::FileOrFolder, summary, overlay))
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        search(work).unwrap_or_else(Outcome::from)
    }
}

fn matcher(arguments: &Arguments) -> Result<RegexMatcher, Refusal> {
    let invalid = |message: String| Refusal::new("invalid_pattern", message);
    if arguments.pattern.is_empty() {
        return Err(invalid("the pattern is empty".to_owned()));
    }
    if arguments.pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid(format!("the pattern is longer than {PATTERN_BYTES_MAX} bytes")));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(arguments.ignore_case)
        .fixed_strings(arguments.literal)
        .multi_line(true)
        .crlf(true)
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(REGEX_BYTES_MAX)
        .nest_limit(NEST_MAX)
        .build(&arguments.pattern)
        .map_err(|error| {
            let refusal = invalid(format!("the pattern is not valid: {error}"));
            if arguments.literal { refusal } else { refusal.detail("for plain text, set `literal`") }
        })
}

fn filter(arguments: &Arguments, location: &Location, read_denials: &ReadDenials) -> Result<Filter, Refusal> {
    let glob = arguments.glob.as_deref().map(|glob| Glob::parse(glob, location)).transpose()?;
    Ok(Filter { hidden: true, glob, depth: None, read_denials: read_denials.clone() })
}

fn search(work: &Work<'_>) -> Result<Outcome, Refusal> {
    let arguments: Arguments = target::arguments(work.arguments)?;
    let location = target::location(&arguments.path, work.world)?;
    let query = Query {
        matcher: matcher(&arguments)?,
        context: arguments.context.min(CONTEXT_LINES_MAX) as usize,
        results_max: u64::from(arguments.max_results.clamp(1, RESULTS_MAX)),
        counted_max: u64::from(arguments.max_results.clamp(1, RESULTS_MAX)) + COUNTED_RESULTS_MAX,
        text_bytes_max: usize::try_from(work.surroundings.limits.result_bytes).unwrap_or(usize::MAX),
    };
    if location.kind == Kind::Other {
        return Err(target::not_regular(location));
    }
    let opening = |error: std::io::Error| target::open_failure(location, &error, work);
    let (root, path) = work.surroundings.workspace.root_for(location, work.surroundings.session).map_err(opening)?;
    let folder = match location.kind {
        Kind::Folder => Some(root.folder(&path).map_err(opening)?),
        Kind::File => None,
        Kind::Absent | Kind::Other => root.folder(&path).ok(),
    };
    let Some(folder) = folder else {
        let file = root.open_file(&path).map_err(opening)?;
        if !file.metadata().map_err(opening)?.is_file() {
            return Err(target::stale(location));
        }
        let found = file::search(&query, file, work.interrupt);
        if work.interrupt.is_raised() {
            return Ok(target::interrupted());
        }
        let found =
            found.map_err(|error| Refusal::new("io_error", format!("cannot search {}: {error}", location.shown)))?;
        let files = [PathBuf::new()];
        return Ok(report(location, &arguments, &query, &files, vec![(0, Ok(found))], Vec::new()));
    };
    search_folder(location, &arguments, &query, &folder, work)
}

fn search_folder(
    location: &Location,
    arguments: &Arguments,
    query: &Query,
    folder: &Root,
    work: &Work<'_>,
) -> Result<Outcome, Refusal> {
    let (builder, omissions) = walk::builder(location, &filter(arguments, location, work.surroundings.read_denials)?);
    let files = walk_files(location, arguments, builder, work)?;
    let mut notes = Vec::new();
    if files.len() >= FILES_MAX {
        notes.push(format!("only {FILES_MAX} files were looked at; narrow the search with path"));
    }
    let found = search_files(query, folder, &files, work);
    if work.interrupt.is_raised() {
        return Ok(target::interrupted());
    }
    // Each file was opened beneath the folder that was judged; the names came from a path that may lead elsewhere now.
    if !walk::is_still(folder, &location.absolute) {
        return Err(target::stale(location));
    }
    notes.extend(omissions.notes());
    Ok(report(location, arguments, query, &files, found, notes))
}

/// The files to search, relative to the location and sorted by their paths.
fn walk_files(
    location: &Location,
    arguments: &Arguments,
    mut builder: ignore::WalkBuilder,
    work: &Work<'_>,
) -> Result<Vec<PathBuf>, Refusal> {
    let filter = filter(arguments, location, work.surroundings.read_denials)?;
    let files = Mutex::new(Vec::new());
    builder.threads(threads()).build_parallel().run(|| {
        Box::new(|entry| {
            if work.interrupt.is_raised() {
                return WalkState::Quit;
            }
            let Ok(entry) = entry else { return WalkState::Continue };
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if !is_file || filter.glob.as_ref().is_some_and(|glob| !glob.shows(entry.path(), false)) {
                return WalkState::Continue;
            }
            if let Ok(relative) = entry.path().strip_prefix(&location.absolute) {
                let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
                files.push(relative.to_owned());
                if files.len() >= FILES_MAX {
                    return WalkState::Quit;
                }
            }
            WalkState::Continue
        })
    });
    let mut files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
    files.sort_unstable();
    Ok(files)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX)
}

type Results = Vec<(usize, std::io::Result<Found>)>;

/// Searches the files in order until enough is found; returns what was found where, in order.
fn search_files(query: &Query, folder: &Root, files: &[PathBuf], work: &Work<'_>) -> Results {
    let next = AtomicUsize::new(0);
    let matches = AtomicU64::new(0);
    let results: Mutex<Results> = Mutex::new(Vec::new());
    let search_some = || {
        while !work.interrupt.is_raised() && matches.load(Ordering::Relaxed) <= query.counted_max {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(index) else { return };
            let found = search_one(query, folder, path, work);
            if let Ok(found) = &found
                && !found.binary
            {
                matches.fetch_add(found.matches, Ordering::Relaxed);
            }
            if !matches!(&found, Ok(found) if found.is_nothing()) {
                results.lock().unwrap_or_else(PoisonError::into_inner).push((index, found));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads().min(files.len()) {
            scope.spawn(search_some);
        }
        search_some();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(index, _)| *index);
    results
}

fn search_one(query: &Query, folder: &Root, path: &Path, work: &Work<'_>) -> std::io::Result<Found> {
    let file = match folder.open_file(path) {
        Ok(file) => file,
        // It went, or became a link, since the walk saw it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::default()),
        Err(error) if crate::workspace::resolve::is_link_error(&error) => return Ok(Found::default()),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(Found::default());
    }
    file::search(query, file, work.interrupt)
}

fn report(
    location: &Location,
    arguments: &Arguments,
    query: &Query,
    files: &[PathBuf],
    results: Results,
    mut notes: Vec<String>,
) -> Outcome {
    let mut text = String::new();
    let (mut total, mut shown) = (0u64, 0u64);
    let mut unsearched = Unsearched::default();
    for (index, result) in results {
        let Some(path) = files.get(index) else { continue };
        let name = walk::shown_below(location, path);
        match result {
            Err(error) => unsearched.failed.push((name, error.to_string())),
            Ok(found) => {
                if found.in_pieces {
                    unsearched.in_pieces.push(name.clone());
                }
                if found.binary {
                    let list = if found.matches > 0 { &mut unsearched.binary_matches } else { &mut unsearched.binary };
                    list.push(name);
                    continue;
                }
                total += found.matches;
                let room = query.text_bytes_max.saturating_sub(text.len());
                shown += found.write(&mut text, &name, query.results_max - shown, room, query.context > 0);
            }
        }
        // How far the threads came beyond this depends on chance.
        if total > query.counted_max {
            break;
        }
    }
    if total == 0 {
        text = unsearched.nothing(&arguments.pattern, &location.shown, location.kind == Kind::File);
    }
    notes.extend(unsearched.notes(location.kind == Kind::File));
    for note in left_out(query, total, shown).into_iter().chain(notes) {
        text.push('[');
        text.push_str(&note);
        text.push_str("]\n");
    }
    text.pop();
    Outcome::ok(text)
}

/// The files of which not all was searched.
#[derive(Debug, Default)]
struct Unsearched {
    /// Each with what went wrong.
    failed: Vec<(String, String)>,
    binary: Vec<String>,
    binary_matches: Vec<String>,
    in_pieces: Vec<String>,
}

impl Unsearched {
    /// The line in place of matches, which says no more than what is known.
    fn nothing(&self, pattern: &str, shown: &str, is_file: bool) -> String {
        let is_partial = !self.failed.is_empty() || !self.binary.is_empty() || !self.binary_matches.is_empty();
        match (is_partial, is_file) {
            (false, _) => format!("no match for {pattern:?} in {shown}\n"),
            (true, true) => String::new(),
            (true, false) => format!("no match for {pattern:?} in the text of {shown} that was searched\n"),
        }
    }

    fn notes(&self, is_file: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if is_file && let [name] = self.binary.as_slice() {
            notes.push(format!("{name} is a binary file, and was not searched"));
        } else if !self.binary.is_empty() {
            let files = if self.binary.len() == 1 { "file was" } else { "files were" };
            let count = self.binary.len();
            notes.push(format!("{count} binary {files} not searched: {}", named(&self.binary)));
        }
        if !self.binary_matches.is_empty() {
            let names = named(&self.binary_matches);
            notes.push(format!("a match before the first NUL byte of a binary file, not shown: {names}"));
        }
        if !self.in_pieces.is_empty() {
            notes.push(format!(
                "lines over {PIECE_BYTES} bytes were searched in pieces, and a match longer than {OVERLAP_BYTES} bytes \
                 may be missing: {}",
                named(&self.in_pieces)
            ));
        }
        if let Some((_, why)) = self.failed.first() {
            let names: Vec<String> = self.failed.iter().map(|(name, _)| name.clone()).collect();
            let files = if names.len() == 1 { "file" } else { "files" };
            notes.push(format!("{} {files} could not be searched: {} ({why})", names.len(), named(&names)));
        }
        notes
    }
}

/// The first of some names, and how many more there are.
fn named(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_FILES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_FILES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn left_out(query: &Query, total: u64, shown: u64) -> Option<String> {
    let count = match total - shown {
        0 => return None,
        _ if total > query.counted_max => format!("more than {} more", query.counted_max - shown),
        rest => format!("{rest} more"),
    };
    let why = if shown < query.results_max { "at the size of a result" } else { "at max_results" };
    Some(format!("{count} left out {why}; narrow it with path, glob or pattern"))
}

#[cfg(test)]
mod tests;
