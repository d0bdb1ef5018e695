//! Server-sent events: bytes in, events out, whatever the borders of the pieces.
//!
//! It knows nothing of what the events mean, and does not reconnect: `id` and `retry` fields are ignored.

/// Longest line that is taken. A whole reply may come in one line.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most data of one event, over all its lines.
pub const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Of the `event` field; empty if there was none.
    pub name: String,
    /// The `data` fields, joined by line feeds. Never from an event without one.
    pub data: String,
}

/// A line or an event is longer than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Reads one stream. A line is decoded when it is whole, so that a character that is split between two pieces is not
/// torn; bytes that are no UTF-8 become replacement characters.
#[derive(Debug)]
pub struct Parser {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    is_first_line: bool,
    line_bytes_max: usize,
    event_bytes_max: usize,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new(LINE_BYTES_MAX, EVENT_BYTES_MAX)
    }
}

impl Parser {
    pub fn new(line_bytes_max: usize, event_bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            event: Event::default(),
            has_data: false,
            after_return: false,
            is_first_line: true,
            line_bytes_max,
            event_bytes_max,
        }
    }

    /// Takes a piece and adds the events that it completes to `events`.
    pub fn push(&mut self, mut piece: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        if self.after_return && !piece.is_empty() {
            self.after_return = false;
            piece = piece.strip_prefix(b"\n").unwrap_or(piece);
        }
        while let Some(end) = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&piece[..end])?;
            self.end_line(events)?;
            let is_return = piece[end] == b'\r';
            piece = &piece[end + 1..];
            if is_return {
                self.after_return = piece.is_empty();
                piece = piece.strip_prefix(b"\n").unwrap_or(piece);
            }
        }
        self.extend_line(piece)
    }

    /// The event that the end of the stream left without its empty line. Its data may be cut off anywhere.
    pub fn finish(&mut self) -> Result<Option<Event>, TooLong> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut events)?;
        }
        self.end_event(&mut events);
        Ok(events.pop())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > self.line_bytes_max {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.line);
        let mut bytes = line.as_slice();
        if std::mem::replace(&mut self.is_first_line, false) {
            bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        }
        if bytes.is_empty() {
            self.end_event(events);
            return Ok(());
        }
        let text = String::from_utf8_lossy(bytes);
        // A comment is a field with an empty name.
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.event.data.len() + value.len() + 1 > self.event_bytes_max {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            // Two ways in which servers say beside the format that they failed: as a field of its own, and as an
            // object on a bare line.
            "error" if is_object(value) && !self.has_data => self.take_error(value),
            _ if is_object(&text) && !self.has_data => self.take_error(&text),
            _ => {}
        }
        Ok(())
    }

    fn take_error(&mut self, value: &str) {
        "error".clone_into(&mut self.event.name);
        value.clone_into(&mut self.event.data);
        self.has_data = true;
    }

    fn end_event(&mut self, events: &mut Vec<Event>) {
        let event = std::mem::take(&mut self.event);
        if std::mem::replace(&mut self.has_data, false) {
            events.push(event);
        }
    }
}

fn is_object(text: &str) -> bool {
    text.starts_with('{') && text.ends_with('}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    fn parse(pieces: &[&[u8]]) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut events).unwrap();
        }
        events.extend(parser.finish().unwrap());
        events
    }

    #[test]
    fn every_form_of_a_field_is_read() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("data: a\n\n", &[("", "a")]),
            ("data:a\n\n", &[("", "a")]),
            ("data:  a\n\n", &[("", " a")]),
            ("data: a\r\n\r\n", &[("", "a")]),
            ("data: a\r\r", &[("", "a")]),
            ("data: a\ndata: b\n\n", &[("", "a\nb")]),
            ("data\n\n", &[("", "")]),
            ("event: error\ndata: a\n\ndata: b\n\n", &[("error", "a"), ("", "b")]),
            (": a comment\n\n: another\ndata: a\n\n", &[("", "a")]),
            ("event: ping\n\n", &[]),
            ("error: {\"code\":500}\n\ndata: b\n\n", &[("error", "{\"code\":500}"), ("", "b")]),
            ("data: a\n\n{\"error\":\"b: c\"}\n", &[("", "a"), ("error", "{\"error\":\"b: c\"}")]),
            ("data: {\n{\"a\":1}\nerror: {}\n\n", &[("", "{")]),
            ("error: b\n\n{\n{ data: c\n\n", &[]),
            ("id: 7\nretry: 10\nother: x\ndata: a\n\n", &[("", "a")]),
            ("\u{feff}data: a\n\n", &[("", "a")]),
            ("data: a\n\n\u{feff}data: b\n\n", &[("", "a")]),
            ("data: a", &[("", "a")]),
            ("data: a\n", &[("", "a")]),
            ("\n\n\r\n", &[]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            let expected: Vec<Event> = expected.iter().map(|(name, data)| event(name, data)).collect();
            assert_eq!(parse(&[text.as_bytes()]), expected, "{text:?}");
        }
    }

    #[test]
    fn lines_and_events_have_limits() {
        let mut events = Vec::new();
        let mut parser = Parser::new(10, 12);
        assert_eq!(parser.push(b"data: 1234", &mut events), Ok(()));
        assert_eq!(parser.push(b"5", &mut events), Err(TooLong));
        let mut parser = Parser::new(10, 12);
        assert_eq!(parser.push(b"data: 1234\ndata: 5678\n", &mut events), Ok(()));
        assert_eq!(parser.push(b"data: 9\ndata: 0\n", &mut events), Err(TooLong));
        assert_eq!(events, []);
    }

    proptest! {
        #[test]
        fn borders_of_pieces_change_nothing(
            lines in proptest::collection::vec(
                "(data: ?|event: |: |)[a-zé€😀:]{0,6}(\n|\r|\r\n)(\n|\r|\r\n|)", 0..12
            ),
            cuts in proptest::collection::vec(0_usize..400, 0..20),
        ) {
            let text = lines.concat();
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            let whole = parse(&[bytes]);
            prop_assert_eq!(&parse(&pieces), &whole);
            prop_assert_eq!(&parse(&single), &whole);
            // Said once more by other means: lines first, then events.
            let plain = text.replace("\r\n", "\n").replace('\r', "\n");
            let expected: Vec<String> = plain
                .split("\n\n")
                .map(|block| block.lines().filter_map(|line| line.strip_prefix("data:")).collect::<Vec<_>>())
                .filter(|data| !data.is_empty())
                .map(|data| data.iter().map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>().join("\n"))
                .collect();
            let found: Vec<String> = whole.into_iter().map(|event| event.data).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
