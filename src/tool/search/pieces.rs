//! Lines of any length in bounded memory: a line that is too long is handed on in pieces that overlap, each as a line of
//! its own, and what was a piece of which line is remembered.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::rc::Rc;

/// The longest line that is handed on as a whole, and the length of a piece.
pub(super) const PIECE_BYTES: usize = 2 * 1024 * 1024;
/// What two pieces that follow each other have in common; a longer match across their border is not found.
pub(super) const OVERLAP_BYTES: usize = 64 * 1024;
/// How much is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Which of the lines handed on are pieces.
#[derive(Debug, Default)]
pub(super) struct Borders {
    /// By the number of the piece as a line that was handed on.
    pieces: BTreeMap<u64, Piece>,
    /// How many lines handed on were no lines of the file, by the number of the line they came before.
    extra: BTreeMap<u64, u64>,
}

/// A line that was handed on and is only part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where it begins in its line.
    pub(super) offset: u64,
    pub(super) is_last: bool,
}

impl Borders {
    /// The number in the file of a line that was handed on.
    pub(super) fn number(&self, handed_on: u64) -> u64 {
        handed_on - self.extra.range(..=handed_on).next_back().map_or(0, |(_, extra)| *extra)
    }

    pub(super) fn piece(&self, handed_on: u64) -> Option<Piece> {
        self.pieces.get(&handed_on).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

/// The file as lines that are never much longer than a piece.
pub(super) struct Pieces<R> {
    source: R,
    borders: Rc<RefCell<Borders>>,
    /// What was read of the current line and is still to be repeated in its next piece: its last bytes.
    tail: Vec<u8>,
    /// What is to be handed on before more is read.
    ready: Vec<u8>,
    handed: usize,
    /// The length of the current piece so far.
    length: usize,
    /// The number of the line that is being handed on, from 1.
    number: u64,
    extra: u64,
    /// Where the current piece begins in its line.
    offset: u64,
    chunk: Vec<u8>,
}

impl<R: Read> Pieces<R> {
    pub(super) fn new(source: R, borders: Rc<RefCell<Borders>>) -> Self {
        Self {
            source,
            borders,
            tail: Vec::new(),
            ready: Vec::new(),
            handed: 0,
            length: 0,
            number: 1,
            extra: 0,
            offset: 0,
            chunk: vec![0; CHUNK_BYTES],
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = part;
            // The end of the line never makes a piece of its own.
            while self.length + rest.len() > PIECE_BYTES && rest != b"\n" && rest != b"\r\n" {
                let (now, later) = rest.split_at(PIECE_BYTES - self.length);
                self.hand_on(now);
                self.cut();
                rest = later;
            }
            self.hand_on(rest);
            if rest.ends_with(b"\n") {
                self.number += 1;
                self.length = 0;
                self.offset = 0;
                self.tail.clear();
            }
        }
    }

    fn hand_on(&mut self, bytes: &[u8]) {
        self.ready.extend_from_slice(bytes);
        self.length += bytes.len();
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > 2 * OVERLAP_BYTES {
            self.tail.drain(..self.tail.len() - OVERLAP_BYTES);
        }
    }

    /// Ends a piece, and begins the next one with the end of this one.
    fn cut(&mut self) {
        let overlap = self.tail.split_off(self.tail.len().saturating_sub(OVERLAP_BYTES));
        let next = self.offset + (self.length - overlap.len()) as u64;
        let mut borders = self.borders.borrow_mut();
        borders.pieces.insert(self.number, Piece { offset: self.offset, is_last: false });
        self.number += 1;
        self.extra += 1;
        borders.pieces.insert(self.number, Piece { offset: next, is_last: true });
        borders.extra.insert(self.number, self.extra);
        drop(borders);
        self.offset = next;
        self.ready.push(b'\n');
        self.ready.extend_from_slice(&overlap);
        self.length = overlap.len();
        self.tail = overlap;
    }
}

impl<R: Read> Read for Pieces<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.handed == self.ready.len() {
            self.ready.clear();
            self.handed = 0;
            let mut chunk = std::mem::take(&mut self.chunk);
            let count = self.source.read(&mut chunk);
            if let Ok(count) = count {
                self.take(&chunk[..count]);
            }
            self.chunk = chunk;
            count?;
        }
        let count = buffer.len().min(self.ready.len() - self.handed);
        buffer[..count].copy_from_slice(&self.ready[self.handed..self.handed + count]);
        self.handed += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lines_come_through_as_they_are() {
        let text = b"one\r\ntwo\n\nlast";
        let borders = Rc::default();
        let mut out = Vec::new();
        Pieces::new(text.as_slice(), Rc::clone(&borders)).read_to_end(&mut out).unwrap();
        assert_eq!(out, text);
        assert!(borders.borrow().is_empty());
    }

    #[test]
    fn a_long_line_comes_in_pieces_that_overlap_and_keeps_its_number() {
        for length in [PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 5] {
            for end in ["\n", "\r\n"] {
                let line: Vec<u8> = (0..length).map(|index| b'a' + u8::try_from(index * 7 % 23).unwrap()).collect();
                let text = [b"first\n", line.as_slice(), end.as_bytes(), b"third\n"].concat();
                let borders = Rc::default();
                let mut out = Vec::new();
                Pieces::new(text.as_slice(), Rc::clone(&borders)).read_to_end(&mut out).unwrap();
                let borders = borders.borrow();
                let mut whole = Vec::new();
                let parts: Vec<&[u8]> = out.split_inclusive(|byte| *byte == b'\n').collect();
                for (index, part) in parts.iter().enumerate().skip(1).take(parts.len() - 2) {
                    let number = index as u64 + 1;
                    assert_eq!(borders.number(number), 2);
                    assert!(part.len() <= PIECE_BYTES + 2);
                    let piece = borders.piece(number);
                    assert_eq!(piece.is_none_or(|piece| piece.is_last), index == parts.len() - 2);
                    whole.truncate(usize::try_from(piece.map_or(0, |piece| piece.offset)).unwrap());
                    whole.extend_from_slice(part.strip_suffix(b"\n").unwrap());
                }
                assert_eq!(whole.strip_suffix(b"\r").unwrap_or(&whole), line, "{length}");
                assert_eq!(borders.number(parts.len() as u64), 3);
                assert_eq!(borders.number(1), 1);
            }
        }
    }
}
