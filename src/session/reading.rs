//! A conversation read record by record, for those who only look: nothing is locked, built up or mended.
//!
//! What an invocation is about to write at the end counts once it is whole. Where a line in the middle is no record, all
//! before it is still given.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::folder::SessionFolder;
use super::log::{FILE_NAME, LINE_BYTES_MAX, damaged};
use super::record::{Record, TurnStatus};
use crate::exit::Status;
use crate::failure::Failure;

/// How many ranges of turns are remembered to say which there are; a gap among them is a curiosity.
const RANGES_MAX: usize = 64;

/// A log opened for reading.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    /// As messages name it.
    shown: String,
    line: Vec<u8>,
    /// Of the line that is read next.
    offset: u64,
    /// Of the line that was read last, from 1.
    number: u64,
}

/// Where something lies in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// In bytes.
    pub offset: u64,
    /// How many lines are before it.
    pub lines_before: u64,
}

/// Which part of a conversation is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    All,
    Turn(u64),
    LastTurn,
}

/// A part of a conversation: whole turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub from: Place,
    /// `None`: up to the end.
    pub to: Option<u64>,
}

/// What a look ahead finds between here and the end of the invocation that wrote the records from here on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outlook {
    /// `PROVIDER/MODEL` of the next reply.
    pub model: Option<String>,
    /// No reply comes, and a new prompt drops what waits.
    pub is_dropped: bool,
}

/// The turns that there are, as ranges in order.
#[derive(Debug, Default)]
struct Turns {
    ranges: Vec<(u64, u64)>,
    more: bool,
}

impl Reader {
    /// Opens a session's log. `None`: there is none, so the folder is no session.
    pub fn open(folder: &SessionFolder) -> anyhow::Result<Option<Self>> {
        match folder.root.open_file(Path::new(FILE_NAME)) {
            Ok(file) => Ok(Some(Self {
                file: BufReader::with_capacity(256 * 1024, file),
                shown: folder.display(FILE_NAME),
                line: Vec::new(),
                offset: 0,
                number: 0,
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(folder.unopened(FILE_NAME, &error, |what| Failure::new(Status::Error, what)).into()),
        }
    }

    /// Where the next record begins.
    pub fn place(&self) -> Place {
        Place { offset: self.offset, lines_before: self.number }
    }

    pub fn go_to(&mut self, place: Place) -> anyhow::Result<()> {
        self.file.seek(SeekFrom::Start(place.offset)).with_context(|| format!("{} cannot be read", self.shown))?;
        (self.offset, self.number) = (place.offset, place.lines_before);
        Ok(())
    }

    /// The next whole line without its line end; `None` at the end, or where the rest is not written whole yet.
    pub fn next_line(&mut self) -> anyhow::Result<Option<&[u8]>> {
        self.line.clear();
        let read = (&mut self.file).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        let read = read.with_context(|| format!("{} cannot be read", self.shown))? as u64;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.offset += read;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if read == LINE_BYTES_MAX {
            return Err(self.damaged(&format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        } else if serde_json::from_slice::<IgnoredAny>(&self.line).is_err() {
            return Ok(None);
        }
        Ok(Some(&self.line))
    }

    /// The next record.
    pub fn next_record(&mut self) -> anyhow::Result<Option<Record>> {
        if self.next_line()?.is_none() {
            return Ok(None);
        }
        match Record::parse(&self.line) {
            Ok(record) => Ok(Some(record)),
            Err(error) => Err(self.damaged(&format!("it is not a record: {error}"))),
        }
    }

    /// The line that was read last, without its line end.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// What is wrong with the line that was read last.
    pub fn damaged(&self, what: &str) -> anyhow::Error {
        damaged(&self.shown, self.number, what)
    }

    /// Finds the wanted part; only the beginnings of turns are looked at. A turn that there is not is an error (3) that
    /// says which there are. A line that is no record ends the search: what is before it can still be read.
    pub fn find(&mut self, wanted: Wanted) -> anyhow::Result<Part> {
        if wanted == Wanted::All {
            return Ok(Part { from: self.place(), to: None });
        }
        let mut turns = Turns::default();
        let mut found: Option<Part> = None;
        loop {
            let place = self.place();
            let Ok(Some(line)) = self.next_line() else { break };
            let Ok(head) = Head::parse(line) else { break };
            let Head::User { turn } = head else { continue };
            turns.add(turn);
            match (wanted, &mut found) {
                (Wanted::Turn(number), None) if number == turn => found = Some(Part { from: place, to: None }),
                (Wanted::Turn(_), Some(part)) => {
                    part.to = Some(place.offset);
                    break;
                }
                (Wanted::LastTurn, _) => found = Some(Part { from: place, to: None }),
                (Wanted::Turn(_) | Wanted::All, _) => {}
            }
        }
        found.ok_or_else(|| turns.refusal(wanted).into())
    }

    /// Looks ahead from `place`, and comes back to where it was.
    pub fn look_ahead(&mut self, place: Place) -> anyhow::Result<Outlook> {
        let here = self.place();
        self.go_to(place)?;
        let outlook = self.outlook();
        self.go_to(here)?;
        Ok(outlook)
    }

    fn outlook(&mut self) -> Outlook {
        // What is damaged is told of when its turn comes.
        while let Ok(Some(line)) = self.next_line() {
            match Head::parse(line) {
                Ok(Head::Assistant { provider, model }) => {
                    return Outlook { model: Some(format!("{provider}/{model}")), is_dropped: false };
                }
                Ok(Head::User { .. }) => return Outlook { model: None, is_dropped: true },
                Ok(Head::TurnEnd { status }) => {
                    return Outlook { model: None, is_dropped: status == TurnStatus::Dropped };
                }
                Ok(Head::Other) => {}
                Err(_) => break,
            }
        }
        Outlook::default()
    }
}

/// As much of a record as says where turns and invocations begin.
#[derive(Debug)]
enum Head {
    User { turn: u64 },
    Assistant { provider: String, model: String },
    TurnEnd { status: TurnStatus },
    Other,
}

impl Head {
    /// As [`Record::parse`] does it, what is unknown is passed over and not built.
    fn parse(line: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Type {
            r#type: String,
        }
        #[derive(Deserialize)]
        struct User {
            turn: u64,
        }
        #[derive(Deserialize)]
        struct Assistant {
            provider: String,
            model: String,
        }
        #[derive(Deserialize)]
        struct TurnEnd {
            status: TurnStatus,
        }
        let head: Type = serde_json::from_slice(line)?;
        Ok(match head.r#type.as_str() {
            "user" => {
                let User { turn } = serde_json::from_slice(line)?;
                Self::User { turn }
            }
            "assistant" => {
                let Assistant { provider, model } = serde_json::from_slice(line)?;
                Self::Assistant { provider, model }
            }
            "turn_end" => {
                let TurnEnd { status } = serde_json::from_slice(line)?;
                Self::TurnEnd { status }
            }
            _ => Self::Other,
        })
    }
}

impl Turns {
    fn add(&mut self, turn: u64) {
        let has_room = self.ranges.len() < RANGES_MAX;
        match self.ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(turn) => *last = turn,
            _ if has_room => self.ranges.push((turn, turn)),
            _ => self.more = true,
        }
    }

    fn refusal(&self, wanted: Wanted) -> Failure {
        let listed: Vec<String> = self
            .ranges
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first} to {last}") })
            .collect();
        let more = if self.more { " and more" } else { "" };
        let message = match wanted {
            Wanted::Turn(number) => format!("there is no turn {number}"),
            Wanted::All | Wanted::LastTurn => "there is no turn".to_owned(),
        };
        let failure = Failure::new(Status::NothingPending, message);
        if listed.is_empty() { failure } else { failure.hint(format!("the turns are {}{more}", listed.join(", "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(numbers: &[u64]) -> Option<String> {
        let mut turns = Turns::default();
        for number in numbers {
            turns.add(*number);
        }
        turns.refusal(Wanted::Turn(99)).hint
    }

    #[test]
    fn the_turns_that_there_are_are_named() {
        assert_eq!(turns(&[]), None);
        assert_eq!(turns(&[1, 2, 3, 5, 7, 8]).as_deref(), Some("the turns are 1 to 3, 5, 7 to 8"));
        let apart: Vec<u64> = (0..100).map(|number| number * 2).collect();
        assert!(turns(&apart).is_some_and(|hint| hint.ends_with(", 126 and more")));
    }

    #[test]
    fn heads_are_read_past_what_is_unknown() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let line = format!("{{\"x\":{deep},\"type\":\"user\",\"turn\":4,\"y\":{deep}}}");
        assert!(matches!(Head::parse(line.as_bytes()), Ok(Head::User { turn: 4 })));
        assert!(matches!(Head::parse(b"{\"type\":\"new\",\"turn\":\"x\"}"), Ok(Head::Other)));
        assert!(Head::parse(b"{\"turn\":1}").is_err());
    }
}
