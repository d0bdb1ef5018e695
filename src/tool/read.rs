//! `read`: the lines of a text file of any size, or the name of what a file is instead.

mod lines;
pub(in crate::tool) mod sniff;

use std::fs::File;
use std::io::{self, Read as _};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub(in crate::tool) use self::lines::at_character_border;
use self::lines::{Lines, Range};
use self::sniff::Content;
use super::target::{self, Wanted};
use super::{Assessment, Effect, Outcome, Overlay, Refusal, Surroundings, Tool, Work, schema};
use crate::mask;
use crate::session::folder::{FILE_MODE, FOLDER_MODE, SessionFolder};
use crate::session::record::Attachment;
use crate::workspace::{Kind, Location, World};

/// The largest image that is attached.
pub(crate) const IMAGE_BYTES_MAX: u64 = 5 * 1024 * 1024;
/// How much is read at a time, and all of what a file is recognised by.
const CHUNK_BYTES: usize = 64 * 1024;
/// The session's folder for attachments.
const OUTPUTS: &str = "outputs";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
    /// The first line to show, from 1.
    #[schemars(range(min = 1))]
    start_line: Option<u64>,
    /// The last line to show.
    #[schemars(range(min = 1))]
    end_line: Option<u64>,
}

impl Arguments {
    fn range(&self) -> Result<Range, Refusal> {
        let first = self.start_line.unwrap_or(1).max(1);
        match self.end_line {
            Some(last) if last < first => {
                let message = format!("end_line {last} is before start_line {first}");
                Err(Refusal::new("invalid_arguments", message))
            }
            last => Ok(Range { first, last }),
        }
    }

    fn summary(&self, location: &Location) -> String {
        let shown = &location.shown;
        match (self.start_line, self.end_line) {
            (None, None) => shown.clone(),
            (first, Some(last)) => format!("{shown}, lines {}-{last}", first.unwrap_or(1)),
            (Some(first), None) => format!("{shown}, from line {first}"),
        }
    }
}

/// The tool `read`.
pub struct Read {
    parameters: Value,
}

impl Default for Read {
    fn default() -> Self {
        Self::new()
    }
}

impl Read {
    pub fn new() -> Self {
        Self { parameters: schema::of::<Arguments>() }
    }
}

impl Tool for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn description(&self) -> &'static str {
        include_str!("read.md").trim_ascii_end()
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
        arguments.range()?;
        let location = target::location(&arguments.path, world)?;
        Ok(target::assess(location, Wanted::File, arguments.summary(location), overlay))
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        read(work).unwrap_or_else(Outcome::from)
    }
}

fn read(work: &Work<'_>) -> Result<Outcome, Refusal> {
    let arguments: Arguments = target::arguments(work.arguments)?;
    let range = arguments.range()?;
    let location = target::location(&arguments.path, work.world)?;
    let (mut file, size) = open(location, work)?;
    let failed = |error: io::Error| Refusal::new("io_error", format!("cannot read {}: {error}", location.shown));
    let beginning = next_chunk(&mut file).map_err(failed)?;
    match sniff::content(&beginning) {
        Content::Text => {}
        Content::Image { media_type, extension } => {
            return image(location, work, beginning, file, media_type, extension).map_err(failed);
        }
        Content::Binary(what) => {
            return Ok(Outcome::ok(format!("{}: {what}, {size} bytes; it is not shown as text", location.shown)));
        }
    }
    let mut lines = Lines::new(range, budget(work));
    // Before a line is cut: part of a key would not be known for one.
    let mut mask = mask::Stream::new();
    let mut chunk = beginning;
    while !chunk.is_empty() {
        if work.interrupt.is_raised() {
            return Ok(target::interrupted());
        }
        lines.feed(&mask.push(&chunk));
        chunk = next_chunk(&mut file).map_err(failed)?;
    }
    lines.feed(&mask.finish());
    lines.finish(&location.shown).map(Outcome::ok)
}

/// What the lines may take of a result; the rest is for what is said about them.
fn budget(work: &Work<'_>) -> usize {
    let bytes = work.surroundings.limits.result_bytes;
    usize::try_from(bytes - (bytes / 4).min(1024)).unwrap_or(usize::MAX)
}

/// Opens the resolved path; a file that became something else, or a link, is `stale`.
fn open(location: &Location, work: &Work<'_>) -> Result<(File, u64), Refusal> {
    match location.kind {
        Kind::Folder => return Err(target::is_a_folder(location)),
        Kind::Other => return Err(target::not_regular(location)),
        Kind::File | Kind::Absent => {}
    }
    let (root, path) = work
        .surroundings
        .workspace
        .root_for(location, work.surroundings.session)
        .map_err(|error| target::open_failure(location, &error, work))?;
    let file = root.open_file(&path).map_err(|error| target::open_failure(location, &error, work))?;
    let metadata = file.metadata().map_err(|error| target::open_failure(location, &error, work))?;
    if metadata.is_file() {
        return Ok((file, metadata.len()));
    }
    Err(match location.kind {
        Kind::Absent if metadata.is_dir() => target::is_a_folder(location),
        Kind::Absent | Kind::File | Kind::Folder | Kind::Other => target::stale(location),
    })
}

/// The next bytes of the file, as many as fit unless it ends; empty at its end.
fn next_chunk(file: &mut File) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    file.take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
    Ok(chunk)
}

/// Copies an image into the session, so that it can be sent and is still there when the file is not.
fn image(
    location: &Location,
    work: &Work<'_>,
    mut bytes: Vec<u8>,
    file: File,
    media_type: &str,
    extension: &str,
) -> io::Result<Outcome> {
    file.take(IMAGE_BYTES_MAX + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
    let shown = &location.shown;
    if bytes.len() as u64 > IMAGE_BYTES_MAX {
        let text = format!("{shown}: {media_type}, larger than the {IMAGE_BYTES_MAX} bytes that can be attached");
        return Ok(Outcome::ok(text));
    }
    let size = bytes.len();
    let Some(session) = work.surroundings.session else {
        return Ok(Outcome::ok(format!("{shown}: {media_type}, {size} bytes; not attached, as there is no session")));
    };
    let file = attach(session, work.label, extension, &bytes)?;
    let mut outcome = Outcome::ok(format!("{shown}: {media_type}, {size} bytes, attached"));
    outcome.attachments.push(Attachment { media_type: media_type.to_owned(), file });
    Ok(outcome)
}

/// Keeps an image that came from elsewhere, for it to be sent; `None` if the bytes are no image that can be.
pub(crate) fn attach_image(session: &SessionFolder, label: &str, bytes: &[u8]) -> io::Result<Option<Attachment>> {
    match sniff::content(bytes) {
        sniff::Content::Image { media_type, extension } if bytes.len() as u64 <= IMAGE_BYTES_MAX => {
            let file = attach(session, label, extension, bytes)?;
            Ok(Some(Attachment { media_type: media_type.to_owned(), file }))
        }
        sniff::Content::Image { .. } | sniff::Content::Text | sniff::Content::Binary(_) => Ok(None),
    }
}

fn attach(session: &SessionFolder, label: &str, extension: &str, bytes: &[u8]) -> io::Result<String> {
    session.root.make_folders(OUTPUTS.as_ref(), FOLDER_MODE)?;
    let file = format!("{OUTPUTS}/{label}.{extension}");
    session.root.replace(file.as_ref(), bytes, FILE_MODE)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
