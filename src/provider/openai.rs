//! The Chat Completions format, as `OpenAI` and the many services that follow it speak it.
//!
//! Here is the exchange; what is sent is built in `request`, what comes is read in `reply`.

mod reply;
mod request;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;

use self::reply::Assembly;
use super::catalogue::Dialect;
use super::http::{Answer, Http};
use super::retry::Schedule;
use super::trouble::{self, Service, Trouble, shorten};
use super::{Progress, Provider, ProviderError, Reply, Request};
use crate::interrupt::Interrupt;
use crate::provider::sse;

/// Of a refusal, as much as is looked at.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// How long more is waited for once the reply is complete: usage, or the end of the stream.
const TAIL_SECONDS_MAX: u64 = 10;

/// Where services put what a model thought, in the order looked at.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];
/// In place of a field's name: the reasoning came as parts of the content.
const CONTENT_PARTS: &str = "content_parts";
/// In the opaque part of a message: the name of the field that held the reasoning.
const REASONING_FIELD: &str = "reasoning_field";
/// In the opaque part of a message: the fields that go back as they are.
const KEPT: &str = "fields";

/// What tells one service of this format from another.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The provider's name.
    pub provider: String,
    /// Of the whole endpoint.
    pub url: String,
    /// The environment variable of the key, for hints.
    pub key_variable: Option<String>,
    pub key: Option<String>,
    /// Whether a user text may stand right behind results.
    pub user_after_tool: bool,
    pub dialect: Dialect,
}

pub struct OpenAi {
    http: Http,
    settings: Settings,
    schedule: Schedule,
}

impl OpenAi {
    pub fn new(http: Http, settings: Settings) -> Self {
        Self { http, settings, schedule: Schedule::default() }
    }

    fn service(&self) -> Service<'_> {
        Service { provider: &self.settings.provider, key_variable: self.settings.key_variable.as_deref() }
    }

    fn send(
        &self,
        body: &[u8],
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Reply, Trouble> {
        let bearer = self.settings.key.as_ref().map(|key| format!("Bearer {key}"));
        let mut headers = vec![("Accept", "text/event-stream, application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        let mut answer = self.http.post(&self.settings.url, &headers, body.to_vec(), interrupt)?;
        if !(200..300).contains(&answer.status) {
            return Err(refused(self.service(), &mut answer));
        }
        let retry_after = answer.retry_after;
        read(self.service(), &mut answer, observe)
            .map_err(|trouble| Trouble { retry_after: trouble.retry_after.or(retry_after), ..trouble })
    }
}

impl Provider for OpenAi {
    fn complete(
        &self,
        request: &Request<'_>,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Reply, ProviderError> {
        let body = request::body(&self.settings, request).to_string().into_bytes();
        self.schedule.run(&self.settings.provider, interrupt, observe, |observe| self.send(&body, interrupt, observe))
    }
}

fn refused(service: Service<'_>, answer: &mut Answer) -> Trouble {
    match answer.read(REFUSAL_BYTES_MAX) {
        Err(trouble) if trouble.error.interrupted => trouble,
        // The status says enough where the words broke off.
        words => trouble::of_status(service, answer.status, &words.unwrap_or_default(), answer.retry_after),
    }
}

/// Reads the reply in whichever form it comes: no event stream begins with a brace.
fn read(service: Service<'_>, answer: &mut Answer, observe: &mut dyn FnMut(Progress<'_>)) -> Result<Reply, Trouble> {
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
        Some(b'{' | b'[') => read_whole(service, beginning, answer, observe),
        Some(b'<') => Err(not_a_reply(service, answer, &beginning)),
        _ => read_stream(service, &beginning, answer, observe),
    }
}

fn read_whole(
    service: Service<'_>,
    mut bytes: Vec<u8>,
    answer: &mut Answer,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<Reply, Trouble> {
    while let Some(piece) = answer.next(None)? {
        bytes.extend_from_slice(&piece);
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(error) if error.is_eof() => {
            return Err(Trouble::broken_off(format!("the reply of {} broke off", service.provider)));
        }
        Err(_) => return Err(not_a_reply(service, answer, &bytes)),
    };
    let mut assembly = Assembly::new(service);
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
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<Reply, Trouble> {
    let mut stream = Stream { parser: sse::Parser::default(), assembly: Assembly::new(service) };
    stream.push(service, beginning, observe)?;
    while !stream.assembly.is_done() {
        let patience = stream.assembly.is_complete().then_some(Duration::from_secs(TAIL_SECONDS_MAX));
        match answer.next(patience) {
            Ok(Some(piece)) => stream.push(service, &piece, observe)?,
            Ok(None) => {
                stream.end(observe)?;
                break;
            }
            Err(trouble) if stream.assembly.is_complete() && !trouble.error.interrupted => break,
            Err(trouble) => return Err(trouble),
        }
    }
    if stream.assembly.is_complete() {
        return Ok(stream.assembly.finish());
    }
    if !stream.assembly.has_begun() && answer.content_type != "text/event-stream" && !beginning.is_empty() {
        return Err(not_a_reply(service, answer, beginning));
    }
    Err(Trouble::broken_off(format!("the reply of {} broke off before it was complete", service.provider)))
}

struct Stream<'a> {
    parser: sse::Parser,
    assembly: Assembly<'a>,
}

impl Stream<'_> {
    fn push(
        &mut self,
        service: Service<'_>,
        piece: &[u8],
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), Trouble> {
        let mut events = Vec::new();
        let pushed = self.parser.push(piece, &mut events);
        for event in events {
            self.assembly.push_event(&event.name, &event.data, observe)?;
        }
        pushed.map_err(|sse::TooLong| {
            let message = format!("{} sent a line of more than {} bytes", service.provider, sse::LINE_BYTES_MAX);
            Trouble::lasting(message)
        })
    }

    /// Takes what stands behind the last empty line, unless it is cut off.
    fn end(&mut self, observe: &mut dyn FnMut(Progress<'_>)) -> Result<(), Trouble> {
        let Ok(Some(event)) = self.parser.finish() else { return Ok(()) };
        let is_whole = event.data.trim() == "[DONE]" || serde_json::from_str::<Value>(&event.data).is_ok();
        if is_whole { self.assembly.push_event(&event.name, &event.data, observe) } else { Ok(()) }
    }
}

fn not_a_reply(service: Service<'_>, answer: &Answer, body: &[u8]) -> Trouble {
    let kind = if answer.content_type.is_empty() { "something" } else { &answer.content_type };
    let text = String::from_utf8_lossy(&body[..body.len().min(REFUSAL_BYTES_MAX)]);
    let words = if text.trim_start().starts_with('<') { String::new() } else { format!(": {}", shorten(&text)) };
    let mut trouble =
        Trouble::lasting(format!("{} answered with {kind} that is not a model's reply{words}", service.provider));
    trouble.error.hint = Some("check the provider's base address".to_owned());
    trouble
}
