//! Reads an answer to its end, in whichever form it comes: a stream of events, one whole object, or something else.
//!
//! What the events and the object mean is for the wire format, which gives an [`Assembly`].

use std::time::Duration;

use serde_json::Value;

use super::http::Answer;
use super::trouble::{self, Service, Trouble, shorten};
use super::{Progress, Reply, sse, surrogate};
use crate::mask;

/// Of a refusal, as much as is looked at.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// How long more of a refusal's words is waited for: the status has said the most.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);

/// A reply that is coming in, in one wire format.
pub(super) trait Assembly {
    /// Takes the data of an event; `name` is the event's.
    fn push_event(&mut self, name: &str, data: &str, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble>;

    /// Takes a whole reply.
    fn push_object(&mut self, value: &Value, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble>;

    /// Nothing more is to be read.
    fn is_done(&self) -> bool;

    /// How long more is waited for once the reply is complete; `None` as long as it is not.
    fn patience(&self) -> Option<Duration>;

    /// Anything that belongs to the format was seen.
    fn has_begun(&self) -> bool;

    fn finish(self) -> Reply;
}

/// What an answer with a status other than 2xx means.
fn refused(service: Service<'_>, answer: &mut Answer) -> Trouble {
    match answer.read(REFUSAL_BYTES_MAX, Some(REFUSAL_PATIENCE)) {
        Err(trouble) if trouble.error.interrupted => trouble,
        // The status says enough where the words broke off.
        words => trouble::of_status(service, answer.status, &words.unwrap_or_default(), answer.retry_after),
    }
}

/// Reads the reply, or says why there is none.
pub(super) fn read(
    service: Service<'_>,
    answer: &mut Answer,
    assembly: impl Assembly,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<Reply, Trouble> {
    if !(200..300).contains(&answer.status) {
        return Err(refused(service, answer));
    }
    let retry_after = answer.retry_after;
    let mut observed = surrogate::Observed::default();
    let read = read_any(service, answer, assembly, &mut |progress| observed.pass_on(progress, observe));
    if read.is_ok() {
        answer.mark_complete();
        observed.finish(observe);
    }
    read.map(surrogate::join_reply).map(without_keys).map_err(|mut trouble| {
        trouble.error.message = surrogate::join(&trouble.error.message).into_owned();
        Trouble { retry_after: trouble.retry_after.or(retry_after), ..trouble }
    })
}

/// What goes back unchanged cannot be masked where it is recorded: where it holds a key, it is given up.
fn without_keys(mut reply: Reply) -> Reply {
    let without_key = |opaque: &mut Option<Value>| {
        *opaque = opaque.take().filter(|opaque| !mask::holds_key(&opaque.to_string()));
    };
    without_key(&mut reply.opaque);
    reply.tool_calls.iter_mut().for_each(|call| without_key(&mut call.opaque));
    reply
}

/// No event stream begins with a brace.
fn read_any(
    service: Service<'_>,
    answer: &mut Answer,
    assembly: impl Assembly,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<Reply, Trouble> {
    let mut beginning = Vec::new();
    let first = loop {
        let Some(piece) = answer.next(None)? else { break None };
        beginning.extend_from_slice(&piece);
        let text = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&beginning);
        if let Some(byte) = text.iter().find(|byte| !byte.is_ascii_whitespace()) {
            break Some(*byte);
        }
    };
    match first {
        Some(b'{' | b'[') => read_whole(service, beginning, answer, assembly, observe),
        Some(b'<') => Err(not_a_reply(service, answer, &beginning)),
        _ => read_stream(service, &beginning, answer, assembly, observe),
    }
}

fn read_whole(
    service: Service<'_>,
    mut bytes: Vec<u8>,
    answer: &mut Answer,
    mut assembly: impl Assembly,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<Reply, Trouble> {
    while let Some(piece) = answer.next(None)? {
        bytes.extend_from_slice(&piece);
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let value = match surrogate::parse(&String::from_utf8_lossy(text)) {
        Ok(value) => value,
        Err(error) if error.is_eof() => {
            return Err(Trouble::broken_off(format!("the reply of {} broke off", service.provider)));
        }
        // As for an event that is no JSON: the address is right, and what came of it was garbled.
        Err(_) if answer.content_type == "application/json" => {
            return Err(Trouble::broken_off(format!("{} sent a reply that is not JSON", service.provider)));
        }
        Err(_) => return Err(not_a_reply(service, answer, &bytes)),
    };
    assembly.push_object(&value, observe)?;
    if !assembly.has_begun() {
        return Err(not_a_reply(service, answer, &bytes));
    }
    Ok(assembly.finish())
}

fn read_stream(
    service: Service<'_>,
    beginning: &[u8],
    answer: &mut Answer,
    assembly: impl Assembly,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<Reply, Trouble> {
    let mut stream = Stream::new(service, assembly);
    // What is quoted of something that is no reply is the same however it came in pieces.
    let mut quoted = beginning.to_vec();
    stream.push(beginning, observe)?;
    while !stream.assembly.is_done() {
        let patience = stream.assembly.patience();
        match answer.next(patience) {
            Ok(Some(piece)) => {
                if quoted.len() < REFUSAL_BYTES_MAX && !stream.assembly.has_begun() {
                    quoted.extend_from_slice(&piece);
                }
                stream.push(&piece, observe)?;
            }
            Ok(None) => {
                stream.end(observe)?;
                break;
            }
            Err(trouble) if patience.is_some() && !trouble.error.interrupted => break,
            Err(trouble) => return Err(trouble),
        }
    }
    if stream.assembly.patience().is_some() {
        return Ok(stream.assembly.finish());
    }
    if !stream.assembly.has_begun() && answer.content_type != "text/event-stream" && !beginning.is_empty() {
        return Err(not_a_reply(service, answer, &quoted));
    }
    Err(Trouble::broken_off(format!("the reply of {} broke off before it was complete", service.provider)))
}

/// An event stream, and what it has brought so far.
pub(super) struct Stream<'a, A> {
    service: Service<'a>,
    parser: sse::Parser,
    pub(super) assembly: A,
}

impl<'a, A: Assembly> Stream<'a, A> {
    pub(super) fn new(service: Service<'a>, assembly: A) -> Self {
        Self { service, parser: sse::Parser::default(), assembly }
    }

    pub(super) fn push(&mut self, piece: &[u8], observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        let mut events = Vec::new();
        let pushed = self.parser.push(piece, &mut events);
        for event in events {
            self.assembly.push_event(&event.name, &event.data, observe)?;
            // What stands behind is not read, whether it came in this piece or in the next.
            if self.assembly.is_done() {
                return Ok(());
            }
        }
        pushed.map_err(|sse::TooLong| {
            let message = format!("{} sent a line of more than {} bytes", self.service.provider, sse::LINE_BYTES_MAX);
            Trouble::lasting(message)
        })
    }

    /// Takes what stands behind the last empty line, unless it is cut off.
    pub(super) fn end(&mut self, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        let Ok(Some(event)) = self.parser.finish() else { return Ok(()) };
        let is_whole = event.data.trim() == "[DONE]" || surrogate::parse(&event.data).is_ok();
        if is_whole { self.assembly.push_event(&event.name, &event.data, observe) } else { Ok(()) }
    }
}

fn not_a_reply(service: Service<'_>, answer: &Answer, body: &[u8]) -> Trouble {
    let kind = if answer.content_type.is_empty() { "something" } else { &answer.content_type };
    let body = crate::mask::apply_bytes(body);
    let text = String::from_utf8_lossy(&body[..body.len().min(REFUSAL_BYTES_MAX)]);
    let words = if text.trim_start().starts_with('<') { String::new() } else { format!(": {}", shorten(&text)) };
    let mut trouble =
        Trouble::lasting(format!("{} answered with {kind} that is not a model's reply{words}", service.provider));
    trouble.error.hint = Some("check the provider's base address".to_owned());
    trouble
}
