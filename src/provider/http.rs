//! Sends a request to a model service and hands out the answer's bytes as they come.
//!
//! One agent for one base address: time limits, certificates, proxy. A status is never an error here, redirects are
//! not followed, and nothing is retried.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use super::retry;
use super::trouble::{Trouble, shorten};
use crate::failure::Failure;
use crate::http::{USER_AGENT, Variable, load_proxy, load_tls};
use crate::interrupt::{CloserGuard, Interrupt};

/// For resolving the name, and again for connecting with proxy and TLS handshakes.
pub const CONNECT_SECONDS_MAX: u64 = 15;
/// Between two pieces of an answer, and before the first, where the configuration does not say otherwise. A large prompt
/// on a local model, or a model that thinks without telling, takes minutes.
pub const IDLE_SECONDS_DEFAULT: u64 = 300;
/// For a whole answer, however lively.
pub const TOTAL_SECONDS_MAX: u64 = 3600;
/// Of an answer's body.
pub const REPLY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// What is read of an answer behind its end, so that the connection can be used again.
const DRAIN_BYTES_MAX: usize = 16 * 1024;
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Pieces that wait to be looked at; reading stops while there are that many.
const PIECES_WAITING_MAX: usize = 16;

#[derive(Debug, Clone)]
pub struct Http {
    agent: ureq::Agent,
    provider: String,
    /// Between two pieces of an answer, and before the first.
    idle_limit: Duration,
    /// The host is this machine: a refused connection means that no server runs, which waiting does not change, unless
    /// one did run a moment ago and may be starting again.
    is_local: bool,
    /// Shared by all exchanges: the service answered before.
    has_answered: Arc<AtomicBool>,
    /// The environment variable that names the proxy in use.
    proxy_variable: Option<&'static str>,
}

/// An answer whose head has come.
pub struct Answer {
    pub status: u16,
    /// Without parameters, in lower case; empty if the service gave none.
    pub content_type: String,
    pub retry_after: Option<Duration>,
    body: Body,
}

struct Body {
    provider: String,
    pieces: Receiver<Piece>,
    /// Shared with the thread that reads: what is still to come may be read for the connection's sake.
    is_complete: Arc<AtomicBool>,
    idle_limit: Duration,
    interrupt: Interrupt,
    deadline: Instant,
    bytes: u64,
    ended: bool,
    _closer: CloserGuard,
}

enum Piece {
    Head {
        status: u16,
        content_type: String,
        retry_after: Option<Duration>,
    },
    Bytes(Vec<u8>),
    End,
    Failed(Trouble),
    /// Wakes the one who waits; whether the interrupt is raised is asked of the interrupt.
    Wake,
}

impl Http {
    /// `base` decides whether certificates and which proxy are needed.
    pub fn load(provider: &str, base: &str, variable: Variable<'_>) -> anyhow::Result<Self> {
        Self::load_with(provider, base, Duration::from_secs(IDLE_SECONDS_DEFAULT), variable)
    }

    /// As [`Http::load`], with another limit between two pieces of an answer.
    pub fn load_with(provider: &str, base: &str, idle_limit: Duration, variable: Variable<'_>) -> anyhow::Result<Self> {
        let uri: ureq::http::Uri = base
            .parse()
            .map_err(|_| Failure::usage(format!("the base address of provider {provider} is not a URL: {base:?}")))?;
        let scheme = uri.scheme_str().unwrap_or_default();
        let (true, Some(host)) = (matches!(scheme, "http" | "https"), uri.host()) else {
            let message = format!("the base address of provider {provider} does not begin with http:// or https://");
            return Err(Failure::usage(message).into());
        };
        let (proxy_variable, proxy) = load_proxy(scheme, host, variable)?.unzip();
        let config = ureq::Agent::config_builder()
            .user_agent(USER_AGENT)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_resolve(Some(Duration::from_secs(CONNECT_SECONDS_MAX)))
            .timeout_connect(Some(Duration::from_secs(CONNECT_SECONDS_MAX)))
            .timeout_per_read(Some(idle_limit))
            .timeout_per_write(Some(idle_limit))
            .tls_config(load_tls(scheme, variable)?)
            .proxy(proxy.clone())
            .build();
        let is_local = proxy.is_none() && matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        Ok(Self {
            agent: config.new_agent(),
            provider: provider.to_owned(),
            idle_limit,
            is_local,
            has_answered: Arc::default(),
            proxy_variable,
        })
    }

    /// Sends `body` as JSON and waits for the head of the answer. The work is done on a thread of its own, so that an
    /// interrupt ends the waiting at once, whatever it waits for: a name, a connection or a byte. After an interrupt
    /// this agent sends nothing any more.
    pub fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
        interrupt: &Interrupt,
    ) -> Result<Answer, Trouble> {
        let mut request = self.agent.post(url).header("Content-Type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.exchange(interrupt, move || request.send(&body))
    }

    /// Asks for what is at an address, as [`Http::post`] sends something there.
    pub fn get(&self, url: &str, headers: &[(&str, &str)], interrupt: &Interrupt) -> Result<Answer, Trouble> {
        let mut request = self.agent.get(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.exchange(interrupt, move || request.call())
    }

    fn exchange(
        &self,
        interrupt: &Interrupt,
        send: impl FnOnce() -> Result<ureq::http::Response<ureq::Body>, ureq::Error> + Send + 'static,
    ) -> Result<Answer, Trouble> {
        let (sender, pieces) = sync_channel(PIECES_WAITING_MAX);
        let (agent, waker) = (self.agent.clone(), sender.clone());
        let closer = interrupt.on_raise(move || {
            agent.clone().shutdown();
            // If there is no room, the other side is not waiting.
            let _ = waker.try_send(Piece::Wake);
        });
        let is_complete = Arc::new(AtomicBool::new(false));
        let exchange = Exchange { http: self.clone(), sender, is_complete: Arc::clone(&is_complete) };
        std::thread::Builder::new()
            .name("model request".to_owned())
            .spawn(move || exchange.run(send))
            .map_err(|error| Trouble::lasting(format!("cannot start a thread for the request: {error}")))?;
        let body = Body {
            provider: self.provider.clone(),
            pieces,
            is_complete,
            idle_limit: self.idle_limit,
            interrupt: interrupt.clone(),
            deadline: Instant::now() + Duration::from_secs(TOTAL_SECONDS_MAX),
            bytes: 0,
            ended: false,
            _closer: closer,
        };
        // Name, connection and the first byte have a limit each.
        let patience = Duration::from_secs(2 * CONNECT_SECONDS_MAX) + 2 * self.idle_limit;
        match body.receive(patience)? {
            Piece::Head { status, content_type, retry_after } => Ok(Answer { status, content_type, retry_after, body }),
            Piece::Failed(trouble) => Err(trouble),
            Piece::Bytes(_) | Piece::End | Piece::Wake => {
                Err(Trouble::broken_off(format!("the answer of {} has no head", self.provider)))
            }
        }
    }
}

impl Answer {
    /// A good answer whose body is known already, and comes in these pieces.
    pub fn recorded(provider: &str, content_type: &str, pieces: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let interrupt = Interrupt::default();
        let pieces: Vec<Vec<u8>> = pieces.into_iter().collect();
        let (sender, receiver) = sync_channel(pieces.len() + 1);
        for piece in pieces.into_iter().map(Piece::Bytes).chain([Piece::End]) {
            // There is room for all of them, and the receiver is right here.
            let _ = sender.try_send(piece);
        }
        let body = Body {
            provider: provider.to_owned(),
            pieces: receiver,
            is_complete: Arc::default(),
            idle_limit: Duration::from_secs(IDLE_SECONDS_DEFAULT),
            deadline: Instant::now() + Duration::from_secs(TOTAL_SECONDS_MAX),
            bytes: 0,
            ended: false,
            _closer: interrupt.on_raise(|| {}),
            interrupt,
        };
        Self { status: 200, content_type: content_type.to_owned(), retry_after: None, body }
    }

    /// The next bytes of the body; `None` at its end. `patience` shortens the idle limit.
    pub fn next(&mut self, patience: Option<Duration>) -> Result<Option<Vec<u8>>, Trouble> {
        if self.body.ended {
            return Ok(None);
        }
        // The thread that reads has the same limit, and says more exactly what took too long.
        let piece = self.body.receive(patience.unwrap_or(self.body.idle_limit + Duration::from_secs(1)));
        let result = match piece {
            Ok(Piece::Bytes(bytes)) => self.body.count(&bytes).map(|()| Some(bytes)),
            Ok(Piece::Failed(trouble)) | Err(trouble) => Err(trouble),
            Ok(Piece::End | Piece::Head { .. } | Piece::Wake) => Ok(None),
        };
        self.body.ended = !matches!(result, Ok(Some(_)));
        result
    }

    /// Says that nothing is missing, although the body may not have been read to its end: the connection is kept. An
    /// answer that is dropped without this was given up, and its connection is closed as soon as more of it comes, so
    /// that the service stops sending, and counting, what nobody reads.
    pub fn mark_complete(&self) {
        self.body.is_complete.store(true, Ordering::Release);
    }

    /// The rest of the body, up to `bytes_max` bytes, as far as it comes within `patience` of each piece.
    pub fn read(&mut self, bytes_max: usize, patience: Option<Duration>) -> Result<Vec<u8>, Trouble> {
        let mut bytes = Vec::new();
        while bytes.len() < bytes_max {
            match self.next(patience) {
                Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                Err(trouble) if patience.is_none() || trouble.error.interrupted => return Err(trouble),
                Ok(None) | Err(_) => break,
            }
        }
        bytes.truncate(bytes_max);
        Ok(bytes)
    }
}

impl Body {
    /// The next piece that is not a mere wake-up.
    fn receive(&self, patience: Duration) -> Result<Piece, Trouble> {
        let end = self.deadline.min(Instant::now() + patience);
        loop {
            let received = self.pieces.recv_timeout(end.saturating_duration_since(Instant::now()));
            // Asked behind each wait: closing the socket may look like the end of an answer.
            if self.interrupt.is_raised() {
                return Err(Trouble::interrupted(&self.provider));
            }
            match received {
                Ok(Piece::Wake) => {}
                Ok(piece) => return Ok(piece),
                Err(RecvTimeoutError::Timeout) => {
                    let trouble = Trouble::broken_off(format!("the answer of {} took too long", self.provider));
                    return Err(Trouble { again: end < self.deadline, ..trouble });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Trouble::broken_off(format!("the connection to {} broke off", self.provider)));
                }
            }
        }
    }

    fn count(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.bytes += bytes.len() as u64;
        if self.bytes > REPLY_BYTES_MAX {
            let message = format!("the reply of {} is larger than the limit of {REPLY_BYTES_MAX} bytes", self.provider);
            return Err(Trouble::lasting(message));
        }
        Ok(())
    }
}

/// The thread's side of a request.
struct Exchange {
    http: Http,
    sender: SyncSender<Piece>,
    is_complete: Arc<AtomicBool>,
}

impl Exchange {
    fn run(&self, send: impl FnOnce() -> Result<ureq::http::Response<ureq::Body>, ureq::Error>) {
        let last = match send() {
            Ok(response) => self.pass_on(response),
            Err(error) => Some(Piece::Failed(self.explain(&error))),
        };
        if let Some(last) = last {
            // Nobody listens any more if this fails.
            let _ = self.sender.send(last);
        }
    }

    /// Returns what is to be said last; `None` if nobody listens.
    fn pass_on(&self, response: ureq::http::Response<ureq::Body>) -> Option<Piece> {
        self.http.has_answered.store(true, Ordering::Release);
        let (head, body) = response.into_parts();
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = text("content-type").split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let retry_after = retry::parse_retry_after(text("retry-after"), SystemTime::now());
        self.sender.send(Piece::Head { status: head.status.as_u16(), content_type, retry_after }).ok()?;
        let mut reader = body.into_reader();
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Some(Piece::End),
                Ok(count) => {
                    if self.sender.send(Piece::Bytes(buffer[..count].to_vec())).is_err() {
                        if self.is_complete.load(Ordering::Acquire) {
                            drain(&mut reader, &mut buffer);
                        }
                        return None;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.get_ref().is_some_and(|inner| inner.downcast_ref().is_some_and(is_silence)) => {
                    return Some(Piece::Failed(self.silent()));
                }
                Err(error) => {
                    let reason = shorten(&error.to_string());
                    let message = format!("the connection to {} broke off: {reason}", self.http.provider);
                    return Some(Piece::Failed(Trouble::broken_off(message)));
                }
            }
        }
    }

    fn silent(&self) -> Trouble {
        let Http { provider, idle_limit, .. } = &self.http;
        let mut trouble = Trouble::broken_off(format!("{provider} sent nothing for {} s", idle_limit.as_secs_f64()));
        trouble.error.hint = Some(format!("idle_timeout_s in [providers.{provider}] sets how long is waited"));
        trouble
    }

    fn explain(&self, error: &ureq::Error) -> Trouble {
        if is_silence(error) {
            return self.silent();
        }
        let provider = &self.http.provider;
        let through = self.http.proxy_variable.map_or_else(String::new, |name| format!(" through the proxy of {name}"));
        let message = format!("cannot reach {provider}{through}: {}", shorten(&error.to_string()));
        let refused = match error {
            ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
            other => matches!(other, ureq::Error::ConnectionFailed),
        };
        if refused && self.http.is_local && !self.http.has_answered.load(Ordering::Acquire) {
            let mut trouble = Trouble::broken_off(message);
            trouble.again = false;
            trouble.error.hint = Some(format!("is the server of {provider} running, and at that address?"));
            return trouble;
        }
        match error {
            // Whether the proxy wants a name or forbids the address: it will say the same again.
            ureq::Error::ConnectProxyFailed(words) if words.contains("responded 4") => Trouble::lasting(message),
            ureq::Error::Io(error) if error.kind() != std::io::ErrorKind::InvalidData => Trouble::broken_off(message),
            ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Protocol(_)
            | ureq::Error::ConnectProxyFailed(_) => Trouble::broken_off(message),
            _ => Trouble::lasting(message),
        }
    }
}

/// The connection is there, and nothing comes.
fn is_silence(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Timeout(ureq::Timeout::PerRead))
}

/// Reads a little further, in the hope of the end.
fn drain(reader: &mut impl Read, buffer: &mut [u8]) {
    let mut left = DRAIN_BYTES_MAX;
    while left > 0
        && let Ok(count @ 1..) = reader.read(buffer)
    {
        left = left.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_cannot_be_used_is_named() {
        let none = |_: &str| None;
        for (base, expected) in [("nonsense", "http://"), ("ftp://x/v1", "http://"), ("http://a b", "not a URL")] {
            let error = Http::load("acme", base, &none).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{base}: {error:#}");
        }
        let variable = |name: &str| (name == "SSL_CERT_FILE").then(|| "/nowhere/certificates.pem".to_owned());
        let error = Http::load("acme", "https://acme.test", &variable).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/certificates.pem"), "{error:#}");
        assert!(Http::load("acme", "http://acme.test", &variable).is_ok());
    }

    /// Sends the head and the first piece of an answer, waits for `go_on`, sends a second piece and no end; says whether
    /// the connection was closed before the time was up.
    fn half_an_answer(go_on: Receiver<()>) -> (String, std::thread::JoinHandle<bool>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.ends_with(b"{}") {
                let count = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..count]);
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(format!("{head}1\r\na\r\n").as_bytes()).unwrap();
            // An error: the test is over.
            let _ = go_on.recv();
            stream.write_all(b"1\r\nb\r\n").unwrap();
            match stream.read(&mut buffer) {
                Ok(count) => count == 0,
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        });
        (url, server)
    }

    #[test]
    fn an_answer_that_is_given_up_is_not_read_on() {
        for (is_complete, is_closed) in [(false, true), (true, false)] {
            let (send_go_on, go_on) = std::sync::mpsc::channel();
            let (url, server) = half_an_answer(go_on);
            let http = Http::load("acme", &url, &|_| None).unwrap();
            let mut answer = http.post(&url, &[], b"{}".to_vec(), &Interrupt::default()).unwrap();
            assert_eq!(answer.next(None).unwrap().unwrap(), b"a");
            if is_complete {
                answer.mark_complete();
            }
            drop(answer);
            send_go_on.send(()).unwrap();
            assert_eq!(server.join().unwrap(), is_closed, "complete: {is_complete}");
        }
    }

    #[test]
    fn a_service_that_falls_silent_is_left_after_the_idle_limit() {
        let (_send_go_on, go_on) = std::sync::mpsc::channel();
        let (url, _server) = half_an_answer(go_on);
        let http = Http::load_with("acme", &url, Duration::from_millis(50), &|_| None).unwrap();
        let mut answer = http.post(&url, &[], b"{}".to_vec(), &Interrupt::default()).unwrap();
        assert_eq!(answer.next(None).unwrap().unwrap(), b"a");
        let trouble = answer.next(None).unwrap_err();
        assert!(trouble.again, "{}", trouble.error.message);
        assert_eq!(trouble.error.message, "acme sent nothing for 0.05 s");
    }
}
