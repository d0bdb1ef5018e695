//! One request and its answer: through the proxy or to a checked address, within bounds of time and size.
//!
//! It follows no redirect and judges no host. The work is done on a thread of its own, so that an interrupt or the time
//! limit ends the waiting at once, whatever it waits for.

use std::io::{self, Read};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::read::MultiGzDecoder;
use ureq::http::HeaderMap;
use ureq::unversioned::resolver::Resolver;
use ureq::unversioned::transport::DefaultConnector;

use super::address;
use super::kind;
use super::link::Link;
use super::resolve::{Checked, ProxyAlone, Reach, Seen};
use super::{Bounds, Stop};
use crate::http::{USER_AGENT, Variable, load_proxy, load_tls};
use crate::interrupt::Interrupt;
use crate::tool::Refusal;

/// For resolving the name, and again for connecting with proxy and TLS handshakes.
const CONNECT_SECONDS_MAX: u64 = 15;
/// Of an answer's status line and headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Of a header's value that is shown or followed.
const VALUE_BYTES_MAX: usize = super::link::URL_BYTES_MAX;
/// Of the page that comes with a failure, for an excerpt.
const FAILURE_BYTES_MAX: u64 = 64 * 1024;
/// What an error of the network says at most.
const WORDS_CHARACTERS_MAX: usize = 300;
/// One for the answer, one for the wake-up.
const MESSAGES_WAITING_MAX: usize = 2;
pub(super) const ACCEPT: &str =
    "text/html,application/xhtml+xml,text/markdown,text/plain,application/json;q=0.9,*/*;q=0.5";

/// What came back, whatever its status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    /// With its parameters, as it came; empty if the server gave none.
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
    /// The body's size as the server declares it, where it was not read: nothing of it would be shown.
    pub(super) unread_bytes: Option<u64>,
    /// It came from an address that is not public.
    pub(super) private: bool,
}

/// What every request of a call shares.
pub(super) struct Network<'a> {
    pub(super) variable: Variable<'a>,
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) bounds: Bounds,
    pub(super) deadline: Instant,
    pub(super) interrupt: &'a Interrupt,
}

enum Message {
    Done(Result<Answer, Refusal>),
    /// Wakes the one who waits; whether the interrupt is raised is asked of the interrupt.
    Wake,
}

impl Network<'_> {
    /// Asks for a page. `reach` says which addresses may be connected to.
    pub(super) fn get(&self, link: &Link, reach: Reach) -> Result<Answer, Stop> {
        let unusable = |error: anyhow::Error| Stop::Because(Refusal::new("fetch_failed", format!("{error:#}")));
        let proxy = load_proxy(link.scheme(), link.host(), self.variable).map_err(unusable)?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let limit = |seconds| Some(left.min(Duration::from_secs(seconds)));
        let config = ureq::Agent::config_builder()
            .user_agent(USER_AGENT)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_response_header_size(HEAD_BYTES_MAX)
            .timeout_global(Some(left))
            .timeout_resolve(limit(CONNECT_SECONDS_MAX))
            .timeout_connect(limit(CONNECT_SECONDS_MAX))
            .tls_config(load_tls(link.scheme(), self.variable).map_err(unusable)?)
            .proxy(proxy.as_ref().map(|(_, proxy)| proxy.clone()))
            .build();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let inner = Arc::clone(&self.resolver);
        let connector = DefaultConnector::default();
        let agent = match &proxy {
            None => ureq::Agent::with_parts(config, connector, Checked { inner, reach, seen: Arc::clone(&seen) }),
            Some((_, proxy)) => {
                // The address is not ours to see; what the name says of it is all there is.
                lock(&seen).private = address::is_private_host(link.host());
                ureq::Agent::with_parts(config, connector, ProxyAlone { inner, host: proxy.host().to_owned() })
            }
        };
        let through = proxy.map(|(variable, _)| variable);
        let exchange = Exchange { agent, link: link.clone(), seen, through, bounds: self.bounds };
        self.wait_for(exchange)
    }

    fn wait_for(&self, exchange: Exchange) -> Result<Answer, Stop> {
        let (sender, messages) = sync_channel(MESSAGES_WAITING_MAX);
        let (agent, waker) = (exchange.agent.clone(), sender.clone());
        let _closer = self.interrupt.on_raise(move || {
            agent.clone().shutdown();
            // If there is no room, the other side is not waiting.
            let _ = waker.try_send(Message::Wake);
        });
        let (agent, shown) = (exchange.agent.clone(), exchange.link.as_str().to_owned());
        std::thread::Builder::new()
            .name("fetch".to_owned())
            .spawn(move || exchange.run(&sender))
            .map_err(|error| Refusal::new("fetch_failed", format!("cannot start a thread for the request: {error}")))?;
        loop {
            let received = messages.recv_timeout(self.deadline.saturating_duration_since(Instant::now()));
            // Asked behind each wait: closing the socket may look like the end of an answer.
            if self.interrupt.is_raised() {
                return Err(Stop::Interrupted);
            }
            match received {
                Ok(Message::Wake) => {}
                Ok(Message::Done(result)) => return Ok(result?),
                Err(RecvTimeoutError::Timeout) => {
                    agent.shutdown();
                    return Err(timed_out(&shown, self.bounds).into());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let message = format!("the request for {shown} failed by a fault of its own");
                    return Err(Refusal::new("fetch_failed", message).into());
                }
            }
        }
    }
}

fn timed_out(shown: &str, bounds: Bounds) -> Refusal {
    let message = format!("{shown} did not come within {} seconds", bounds.total.as_secs_f32());
    Refusal::new("timeout", message)
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's side of a request.
struct Exchange {
    agent: ureq::Agent,
    link: Link,
    seen: Arc<Mutex<Seen>>,
    /// The variable that names the proxy.
    through: Option<&'static str>,
    bounds: Bounds,
}

impl Exchange {
    fn run(&self, sender: &SyncSender<Message>) {
        let result = self.ask();
        // Nobody listens any more if this fails.
        let _ = sender.send(Message::Done(result));
    }

    fn ask(&self) -> Result<Answer, Refusal> {
        let request = self.agent.get(self.link.on_the_wire()).header("Accept", ACCEPT);
        let response = request.header("Accept-Encoding", "gzip").call().map_err(|error| self.explain(&error))?;
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let mut answer = Answer {
            status,
            location: value(&head.headers, "location").filter(|_| is_redirect(status)),
            content_type: value(&head.headers, "content-type").unwrap_or_default(),
            body: Vec::new(),
            unread_bytes: None,
            private: lock(&self.seen).private,
        };
        if answer.location.is_some() {
            return Ok(answer);
        }
        let is_success = head.status.is_success();
        let declared = body.content_length();
        if is_success && kind::is_never_text(&answer.content_type) && declared.is_some() {
            answer.unread_bytes = declared;
            return Ok(answer);
        }
        let encoding = value(&head.headers, "content-encoding").unwrap_or_default().to_ascii_lowercase();
        answer.body = if is_success {
            if declared.is_some_and(|declared| declared > self.bounds.body_bytes) {
                return Err(self.too_large(&answer.content_type, declared));
            }
            let (bytes, ending) = self.read(body, &encoding, self.bounds.body_bytes)?;
            ending.map_err(|error| self.broken_off(&error))?;
            if bytes.len() as u64 > self.bounds.body_bytes {
                return Err(self.too_large(&answer.content_type, declared));
            }
            bytes
        } else {
            // What explains a failure may be cut anywhere.
            self.read(body, &encoding, FAILURE_BYTES_MAX).map(|(bytes, _)| bytes).unwrap_or_default()
        };
        Ok(answer)
    }

    /// Up to one byte more than `bytes_max`, and how the reading ended.
    fn read(&self, body: ureq::Body, encoding: &str, bytes_max: u64) -> Result<(Vec<u8>, io::Result<()>), Refusal> {
        let more = bytes_max.saturating_add(1);
        // The compressed bytes are bounded like those that come of them.
        let wire = body.into_reader().take(more);
        let mut bytes = Vec::new();
        let ending = match encoding.trim() {
            "" | "identity" => wire.take(more).read_to_end(&mut bytes),
            "gzip" | "x-gzip" => MultiGzDecoder::new(wire).take(more).read_to_end(&mut bytes),
            other => {
                let message = format!("{} came compressed as {other:?}, which was not asked for", self.link.as_str());
                return Err(Refusal::new("fetch_failed", message));
            }
        };
        Ok((bytes, ending.map(|_| ())))
    }

    fn too_large(&self, content_type: &str, declared: Option<u64>) -> Refusal {
        let size = declared.map_or_else(String::new, |bytes| format!(", {bytes} bytes by the server's word"));
        let bounds = self.bounds.body_bytes;
        let message =
            format!("{} is larger than the {bounds} bytes that are fetched ({content_type}{size})", self.link.as_str());
        Refusal::new("too_large", message)
    }

    fn broken_off(&self, error: &io::Error) -> Refusal {
        let is_timeout = error.kind() == io::ErrorKind::TimedOut
            || error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()).is_some_and(is_timeout);
        if is_timeout {
            return timed_out(self.link.as_str(), self.bounds);
        }
        let words = shorten(&error.to_string());
        Refusal::new("fetch_failed", format!("{} broke off: {words}", self.link.as_str()))
    }

    fn explain(&self, error: &ureq::Error) -> Refusal {
        let shown = self.link.as_str();
        if let Some(refused) = lock(&self.seen).refused.filter(|_| matches!(error, ureq::Error::HostNotFound)) {
            return private_address(&self.link, &format!("leads to {refused}, which is not a public address"));
        }
        if is_timeout(error) {
            return Refusal::new("timeout", format!("{shown} did not come in time ({})", shorten(&error.to_string())));
        }
        let through = self.through.map_or_else(String::new, |name| format!(" through the proxy of {name}"));
        let message = format!("cannot reach {shown}{through}: {}", shorten(&error.to_string()));
        Refusal::new("fetch_failed", message)
    }
}

/// The refusal of a host that is no public one. `why` goes on from the host's name.
pub(super) fn private_address(link: &Link, why: &str) -> Refusal {
    let host = link.host();
    let message = format!("{} was not fetched: {host} {why}", link.as_str());
    Refusal::new("private_address", message).detail(format!(
        "only a rule that names this very host lets it pass ({}), or a person's approval of this very URL",
        super::rule_line(host)
    ))
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn is_timeout(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Timeout(_) => true,
        ureq::Error::Io(error) => error.kind() == io::ErrorKind::TimedOut,
        _ => false,
    }
}

fn value(headers: &HeaderMap, name: &str) -> Option<String> {
    let bytes = headers.get(name)?.as_bytes();
    if bytes.len() > VALUE_BYTES_MAX {
        return None;
    }
    // Servers send addresses in raw UTF-8.
    Some(String::from_utf8_lossy(bytes).trim().to_owned())
}

fn shorten(words: &str) -> String {
    let line = crate::mask::apply(words).split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(WORDS_CHARACTERS_MAX).collect()
}
