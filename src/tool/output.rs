//! Output of any size: kept whole on disk, shortened to its beginning and its end for the model, in bounded memory.
//!
//! Keys are masked before anything else sees the bytes.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::mask;
use crate::session::folder::{FILE_MODE, FOLDER_MODE, SessionFolder};
use crate::tool::Limits;

/// The folder of whole outputs in a session folder.
pub const OUTPUTS_FOLDER: &str = "outputs";
/// Left free in a result for its status line and the line about what was left out.
const FRAME_BYTES: usize = 512;
/// At most so much of one output is held for the model, however large a result may be.
const SHOWN_BYTES_MAX: usize = 1024 * 1024;
/// A cut moves to the border of a line if that costs at most one part in so many of what is shown on that side: half a
/// number at the cut could be taken for a whole one.
const LINE_BORDER_COST: usize = 8;
/// Files of one name that are tried before it is given up to find a free one.
const FILES_OF_A_NAME_MAX: u32 = 1000;

/// Takes an output as it comes.
pub struct Output<'a> {
    mask: mask::Stream,
    live: &'a (dyn Fn(&[u8]) + Sync),
    window: Window,
    whole: Whole<'a>,
}

/// What became of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What the model gets; empty if there was no output. What is no UTF-8, and NUL, is shown as U+FFFD.
    pub text: String,
    /// Whether something had to be shown as U+FFFD.
    pub is_replaced: bool,
    /// The file that holds the whole, relative to the session folder, if `text` is not all of it. Synced.
    pub output_file: Option<String>,
}

impl<'a> Output<'a> {
    /// `label` names the file, should there be one; `live` gets all output, masked. Without a session no file is made.
    pub fn new(
        session: Option<&'a SessionFolder>,
        label: &'a str,
        limits: &Limits,
        live: &'a (dyn Fn(&[u8]) + Sync),
    ) -> Self {
        let result_bytes = usize::try_from(limits.result_bytes).unwrap_or(usize::MAX);
        let shown_bytes = result_bytes.saturating_sub(FRAME_BYTES).max(result_bytes / 2).min(SHOWN_BYTES_MAX);
        Self {
            mask: mask::Stream::new(),
            live,
            window: Window::new(shown_bytes),
            whole: Whole {
                session,
                label,
                bytes_max: limits.output_bytes,
                dropped_bytes: 0,
                state: WholeState::Unneeded,
            },
        }
    }

    pub fn push(&mut self, piece: &[u8]) {
        let masked = self.mask.push(piece);
        self.take(&masked);
    }

    /// Ends the output: syncs its file and makes the text.
    pub fn finish(mut self) -> Kept {
        let rest = self.mask.finish();
        self.take(&rest);
        let shown = self.window.shown();
        let is_replaced = shown.is_replaced;
        if shown.is_whole() {
            return Kept { text: shown.head, is_replaced, output_file: None };
        }
        // Replaced bytes take more room, so that even what fitted the window may have become too long.
        self.whole.begin(&self.window);
        let (output_file, whereabouts) = self.whole.finish();
        Kept { text: shown.join(&whereabouts), is_replaced, output_file }
    }

    fn take(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.window.would_drop(bytes.len()) {
            self.whole.begin(&self.window);
        }
        self.whole.write(bytes);
        self.window.push(bytes);
        (self.live)(bytes);
    }
}

/// The text cut to at most about `bytes_max` bytes: beginning and end, cut between characters, and between them a line
/// that says how much was left out and how to get it. `whole_at` is the file that holds the whole, relative to the
/// session folder. The result is never longer than `bytes_max`, unless that is too little for the line itself.
pub fn shorten<'t>(text: &'t str, bytes_max: usize, whole_at: Option<&str>) -> Cow<'t, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let whereabouts = match whole_at {
        Some(file) => readable_at(file),
        None => "the whole was not kept".to_owned(),
    };
    // No count in the line can have more digits than those of the whole text.
    let line_bytes = line(text.len() as u64, text.len() as u64, &whereabouts).len() + 2;
    let budget = bytes_max.saturating_sub(line_bytes);
    let is_border = |at: &usize| text.is_char_boundary(*at);
    let head_end = (0..=budget - budget / 2).rev().find(is_border).unwrap_or(0);
    let tail_start = (text.len() - budget / 2..=text.len()).find(is_border).unwrap_or(text.len());
    let head_end = line_end(text[..head_end].bytes());
    let tail_start = text.len() - line_start(text[tail_start..].bytes());
    let (head, tail) = (&text[..head_end], &text[tail_start..]);
    let left_out = &text.as_bytes()[head_end..tail_start];
    let line = line(left_out.len() as u64, newlines(left_out), &whereabouts);
    Cow::Owned(join(head, &line, tail))
}

/// Keeps a text whole in the session's outputs, synced; returns the file, relative to the session folder.
pub fn keep(session: &SessionFolder, label: &str, text: &[u8]) -> io::Result<String> {
    let (mut file, name) = create(session, label)?;
    let written = file.write_all(text).and_then(|()| sync(session, &file));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = session.root.remove_file(Path::new(&name));
    }
    written.map(|()| name)
}

fn readable_at(file: &str) -> String {
    format!("`read` on session:{file} has the whole")
}

fn line(bytes: u64, lines: u64, whereabouts: &str) -> String {
    match lines {
        0 => format!("[... {bytes} bytes left out; {whereabouts} ...]"),
        1 => format!("[... {bytes} bytes, 1 line left out; {whereabouts} ...]"),
        _ => format!("[... {bytes} bytes, {lines} lines left out; {whereabouts} ...]"),
    }
}

fn join(head: &str, line: &str, tail: &str) -> String {
    let before = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    let after = if tail.is_empty() || tail.starts_with('\n') { "" } else { "\n" };
    format!("{head}{before}{line}{after}{tail}")
}

/// How much of a beginning is kept: up to its last line end, where that is near.
fn line_end(head: impl DoubleEndedIterator<Item = u8> + ExactSizeIterator) -> usize {
    let length = head.len();
    let behind = head.rev().take(length / LINE_BORDER_COST).position(|byte| byte == b'\n');
    length - behind.unwrap_or(0)
}

/// How much of an end is kept: from its first whole line on, where that is near.
fn line_start(tail: impl DoubleEndedIterator<Item = u8> + ExactSizeIterator) -> usize {
    let length = tail.len();
    let mut tail = tail.take(length / LINE_BORDER_COST);
    length - tail.position(|byte| byte == b'\n').map_or(0, |position| position + 1)
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Beginning and end of a stream. As long as nothing was dropped the two together are all of it.
struct Window {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_bytes_max: usize,
    tail_bytes_max: usize,
    total_bytes: u64,
    total_newlines: u64,
}

impl Window {
    fn new(bytes_max: usize) -> Self {
        let tail_bytes_max = bytes_max / 2;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_bytes_max: bytes_max - tail_bytes_max,
            tail_bytes_max,
            total_bytes: 0,
            total_newlines: 0,
        }
    }

    fn bytes_max(&self) -> usize {
        self.head_bytes_max + self.tail_bytes_max
    }

    fn would_drop(&self, more_bytes: usize) -> bool {
        self.total_bytes + more_bytes as u64 > self.bytes_max() as u64
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        self.total_newlines += newlines(bytes);
        let (to_head, rest) = bytes.split_at(bytes.len().min(self.head_bytes_max - self.head.len()));
        self.head.extend_from_slice(to_head);
        let to_tail = &rest[rest.len().saturating_sub(self.tail_bytes_max)..];
        let room = self.tail_bytes_max - to_tail.len();
        if self.tail.len() > room {
            self.tail.drain(..self.tail.len() - room);
        }
        self.tail.extend(to_tail);
    }

    fn shown(&self) -> Shown {
        let has_dropped = self.would_drop(0);
        let (before, after) = self.tail.as_slices();
        let tail = [before, after].concat();
        let (head_source, tail_source) = if has_dropped {
            (self.head[..whole_characters_end(&self.head)].to_vec(), tail[whole_characters_start(&tail)..].to_vec())
        } else {
            let all = [self.head.as_slice(), &tail].concat();
            let glyphs = glyphs(&all);
            if glyphs.iter().map(|glyph| glyph.character.len_utf8()).sum::<usize>() <= self.bytes_max() {
                return Shown::new(&glyphs, &[], None);
            }
            (all.clone(), all)
        };
        let head_glyphs = glyphs(&head_source);
        let head_count = fitting(head_glyphs.iter(), self.head_bytes_max);
        let head = &head_glyphs[..line_end(head_glyphs[..head_count].iter().map(Glyph::ascii))];
        let tail_glyphs = glyphs(&tail_source);
        let tail_count = fitting(tail_glyphs.iter().rev(), self.tail_bytes_max);
        let tail = &tail_glyphs[tail_glyphs.len() - tail_count..];
        let tail = &tail[tail.len() - line_start(tail.iter().map(Glyph::ascii))..];
        let source_bytes = |glyphs: &[Glyph]| glyphs.iter().map(|glyph| glyph.source_bytes as u64).sum::<u64>();
        let line_ends = |glyphs: &[Glyph]| glyphs.iter().filter(|glyph| glyph.character == '\n').count() as u64;
        let left_out = LeftOut {
            bytes: self.total_bytes.saturating_sub(source_bytes(head) + source_bytes(tail)),
            lines: self.total_newlines.saturating_sub(line_ends(head) + line_ends(tail)),
        };
        Shown::new(head, tail, Some(left_out))
    }
}

/// One character of the text, and how many bytes of the stream it stands for.
struct Glyph {
    character: char,
    source_bytes: usize,
    is_replaced: bool,
}

impl Glyph {
    /// Its byte, where it is one; 0 for others.
    fn ascii(&self) -> u8 {
        u8::try_from(self.character).unwrap_or(0)
    }
}

fn glyphs(bytes: &[u8]) -> Vec<Glyph> {
    let replaced = |source_bytes| Glyph { character: char::REPLACEMENT_CHARACTER, source_bytes, is_replaced: true };
    let mut glyphs = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        glyphs.extend(chunk.valid().chars().map(|character| match character {
            // Several services refuse a text with NUL.
            '\0' => replaced(1),
            _ => Glyph { character, source_bytes: character.len_utf8(), is_replaced: false },
        }));
        if !chunk.invalid().is_empty() {
            glyphs.push(replaced(chunk.invalid().len()));
        }
    }
    glyphs
}

/// How many of the glyphs fit.
fn fitting<'g>(glyphs: impl Iterator<Item = &'g Glyph>, bytes_max: usize) -> usize {
    let mut bytes = 0;
    glyphs
        .take_while(|glyph| {
            bytes += glyph.character.len_utf8();
            bytes <= bytes_max
        })
        .count()
}

/// Where a character begins that the cut behind `bytes` tore; the end if it tore none.
fn whole_characters_end(bytes: &[u8]) -> usize {
    let end = bytes.len();
    for back in 1..=end.min(3) {
        let length = match bytes[end - back] {
            0b1000_0000..=0b1011_1111 => continue,
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            _ => 1,
        };
        return if length > back { end - back } else { end };
    }
    end
}

/// Where the first character begins that the cut before `bytes` left whole.
fn whole_characters_start(bytes: &[u8]) -> usize {
    // More such bytes in a row are no torn character but no UTF-8 at all; cutting three of them harms nobody.
    bytes.iter().take(3).take_while(|byte| (0b1000_0000..=0b1011_1111).contains(*byte)).count()
}

struct LeftOut {
    bytes: u64,
    lines: u64,
}

struct Shown {
    head: String,
    tail: String,
    /// `None`: `head` is all.
    left_out: Option<LeftOut>,
    is_replaced: bool,
}

impl Shown {
    fn new(head: &[Glyph], tail: &[Glyph], left_out: Option<LeftOut>) -> Self {
        let text = |glyphs: &[Glyph]| glyphs.iter().map(|glyph| glyph.character).collect();
        let is_replaced = head.iter().chain(tail).any(|glyph| glyph.is_replaced);
        Self { head: text(head), tail: text(tail), left_out, is_replaced }
    }

    fn is_whole(&self) -> bool {
        self.left_out.is_none()
    }

    fn join(self, whereabouts: &str) -> String {
        match self.left_out {
            None => self.head,
            Some(LeftOut { bytes, lines }) => join(&self.head, &line(bytes, lines, whereabouts), &self.tail),
        }
    }
}

/// The whole output on disk, once it is too long to be shown.
struct Whole<'a> {
    session: Option<&'a SessionFolder>,
    label: &'a str,
    bytes_max: u64,
    dropped_bytes: u64,
    state: WholeState,
}

enum WholeState {
    Unneeded,
    Open {
        file: File,
        /// Relative to the session folder.
        name: String,
        bytes: u64,
    },
    /// Why there is none.
    Absent(String),
}

impl Whole<'_> {
    /// Makes the file, with all that is in the window: nothing was dropped yet. Does nothing if that was done before.
    fn begin(&mut self, window: &Window) {
        if !matches!(self.state, WholeState::Unneeded) {
            return;
        }
        let Some(session) = self.session else {
            self.state = WholeState::Absent("without a session the whole is not kept".to_owned());
            return;
        };
        match create(session, self.label) {
            Ok((file, name)) => {
                self.state = WholeState::Open { file, name, bytes: 0 };
                let (before, after) = window.tail.as_slices();
                for part in [window.head.as_slice(), before, after] {
                    self.write(part);
                }
            }
            Err(error) => self.state = WholeState::Absent(not_kept(&error)),
        }
    }

    fn write(&mut self, piece: &[u8]) {
        let WholeState::Open { file, bytes, .. } = &mut self.state else { return };
        let room = usize::try_from(self.bytes_max.saturating_sub(*bytes)).unwrap_or(usize::MAX);
        let kept = &piece[..piece.len().min(room)];
        self.dropped_bytes += (piece.len() - kept.len()) as u64;
        match file.write_all(kept) {
            Ok(()) => *bytes += kept.len() as u64,
            Err(error) => self.fail(&error),
        }
    }

    /// Takes back a file that cannot be written to its end: on a full disk the records need the room.
    fn fail(&mut self, error: &io::Error) {
        let absent = WholeState::Absent(not_kept(error));
        if let (WholeState::Open { name, .. }, Some(session)) =
            (std::mem::replace(&mut self.state, absent), self.session)
        {
            // The first error is the one to tell.
            let _ = session.root.remove_file(Path::new(&name));
        }
    }

    /// Syncs the file; returns it, and in words for the model where the whole is to be had.
    fn finish(mut self) -> (Option<String>, String) {
        if let (WholeState::Open { file, .. }, Some(session)) = (&self.state, self.session)
            && let Err(error) = sync(session, file)
        {
            self.fail(&error);
        }
        match self.state {
            WholeState::Unneeded => (None, String::new()),
            WholeState::Absent(why) => (None, why),
            WholeState::Open { name, .. } if self.dropped_bytes == 0 => {
                let whereabouts = readable_at(&name);
                (Some(name), whereabouts)
            }
            WholeState::Open { name, bytes, .. } => {
                let dropped = self.dropped_bytes;
                let whereabouts =
                    format!("`read` on session:{name} has the first {bytes} bytes, the last {dropped} were not kept");
                (Some(name), whereabouts)
            }
        }
    }
}

fn not_kept(error: &io::Error) -> String {
    format!("the whole could not be kept: {error}")
}

/// Makes a new file among the outputs; returns it and its name relative to the session folder.
fn create(session: &SessionFolder, label: &str) -> io::Result<(File, String)> {
    session.root.make_folders(Path::new(OUTPUTS_FOLDER), FOLDER_MODE)?;
    for number in 1..=FILES_OF_A_NAME_MAX {
        let name = match number {
            1 => format!("{OUTPUTS_FOLDER}/{label}.txt"),
            _ => format!("{OUTPUTS_FOLDER}/{label}-{number}.txt"),
        };
        match session.root.create_new(&PathBuf::from(&name), FILE_MODE) {
            Ok(file) => return Ok((file, name)),
            // A result that is on disk may name it: it is never written over.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("too many outputs are called {label}")))
}

fn sync(session: &SessionFolder, file: &File) -> io::Result<()> {
    file.sync_all()?;
    session.root.folder(Path::new(OUTPUTS_FOLDER))?.sync()
}

#[cfg(test)]
mod tests;
