//! Where loading begins: behind what the last summary covers, found from the log's end.
//!
//! What is before that is only looked through for the summary's own line, from behind and by blocks, so that neither
//! time nor memory depends on how long the conversation was.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use anyhow::Context;

use super::{LINE_BYTES_MAX, Loaded, damaged, fold};
use crate::session::history::History;
use crate::session::record::{Record, SummaryRecord};

/// How a summary's line begins, with the end of the line before. Within a record a line end is written `\n`, so that
/// nothing in a text can look like it.
const BEGINNING: &[u8] = b"\n{\"type\":\"summary\"";
/// How much is looked through at a time.
const BLOCK_BYTES: u64 = 1024 * 1024;

/// Loads the first `length` bytes of a log.
pub(super) fn load(file: &File, length: u64, shown: &str) -> anyhow::Result<Loaded> {
    let unreadable = || format!("{shown} cannot be read");
    let mut history = History::default();
    let Some((line_offset, summary)) = last_summary(file, length, shown)? else {
        let reader = reader_at(file, 0, length).with_context(unreadable)?;
        return fold(reader, shown, history, 0, &|| 0);
    };
    let line_number = |offset| count_lines(file, offset) + 1;
    let mut first = Vec::new();
    let reader = reader_at(file, 0, line_offset).with_context(unreadable)?;
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut first).with_context(unreadable)?;
    let session = Record::parse(&first).map_err(|error| damaged(shown, 1, &format!("it is not a record: {error}")))?;
    history.apply_line(&session, first.len() as u64).map_err(|violation| damaged(shown, 1, &violation))?;
    let offset = summary.through_offset;
    if !is_border(file, offset, first.len() as u64, line_offset).with_context(unreadable)? {
        let what = format!("the summary's through_offset {offset} is no border of a record before it");
        return Err(damaged(shown, line_number(line_offset), &what));
    }
    let begun = history.begin_at(&summary, line_offset);
    begun.map_err(|violation| damaged(shown, line_number(line_offset), &violation))?;
    let reader = reader_at(file, offset, length).with_context(unreadable)?;
    fold(reader, shown, history, offset, &|| count_lines(file, offset))
}

fn reader_at(file: &File, from: u64, to: u64) -> std::io::Result<impl BufRead> {
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(from))?;
    Ok(reader.take(to.saturating_sub(from)))
}

/// Whether a record ends right before the offset: behind the first one, and not behind the summary's own line.
fn is_border(file: &File, offset: u64, first: u64, line_offset: u64) -> std::io::Result<bool> {
    if offset < first || offset > line_offset {
        return Ok(false);
    }
    let mut before = [0];
    file.read_exact_at(&mut before, offset - 1)?;
    Ok(before == *b"\n")
}

/// The last summary and the offset of its line. One that was not written whole is none.
fn last_summary(file: &File, length: u64, shown: &str) -> anyhow::Result<Option<(u64, SummaryRecord)>> {
    let mut end = length;
    loop {
        let found = find_before(file, end).with_context(|| format!("{shown} cannot be read"))?;
        let Some(offset) = found else { return Ok(None) };
        let mut line = Vec::new();
        let reader = reader_at(file, offset, length)?;
        reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).with_context(|| format!("{shown} cannot be read"))?;
        match Record::parse(&line) {
            Ok(Record::Summary(summary)) => return Ok(Some((offset, *summary))),
            Err(error) if line.ends_with(b"\n") => {
                let what = format!("it is not a record: {error}");
                return Err(damaged(shown, count_lines(file, offset) + 1, &what));
            }
            // A fragment at the end, or the beginning of another type's name.
            Ok(_) | Err(_) => end = offset,
        }
    }
}

/// The offset of the last line before `end` that begins as a summary does.
fn find_before(file: &File, end: u64) -> std::io::Result<Option<u64>> {
    let finder = memchr::memmem::FinderRev::new(BEGINNING);
    let overlap = BEGINNING.len() as u64 - 1;
    let mut to = end;
    let mut block = Vec::new();
    while to > 0 {
        let from = to.saturating_sub(BLOCK_BYTES);
        // The beginning may reach over the border of two blocks, but not over the end.
        let until = (to + overlap).min(end);
        block.resize(usize::try_from(until - from).unwrap_or_default(), 0);
        file.read_exact_at(&mut block, from)?;
        if let Some(at) = finder.rfind(&block) {
            return Ok(Some(from + at as u64 + 1));
        }
        to = from;
    }
    Ok(None)
}

/// How many lines end before the offset; for messages alone, so that what cannot be read counts as none.
fn count_lines(file: &File, offset: u64) -> u64 {
    let mut count = 0_u64;
    let mut block = vec![0; usize::try_from(BLOCK_BYTES).unwrap_or_default()];
    let mut from = 0;
    while from < offset {
        let wanted = usize::try_from((offset - from).min(BLOCK_BYTES)).unwrap_or_default();
        if file.read_exact_at(&mut block[..wanted], from).is_err() {
            break;
        }
        count += memchr::memchr_iter(b'\n', &block[..wanted]).count() as u64;
        from += wanted as u64;
    }
    count
}
