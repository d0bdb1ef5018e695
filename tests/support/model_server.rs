//! A model service on a loopback port that plays a script and checks every request as strictly as the strictest real
//! service would: it answers a violation with 400 and remembers it, and the test fails at the end.
//!
//! It speaks `OpenAI` Chat Completions and Anthropic Messages at the same address; what a script says is told apart
//! from how it is carried.

use std::collections::VecDeque;
use std::io::{self, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use super::DEADLINE;
use super::case::KEYS;
use super::continuity::{Continuity, Demands};
use super::http::{HttpRequest, read_request};
use super::pairing::{ENDS_WITH_ASSISTANT, Format};
use super::playback::{play, send_document};
use super::recorded::RecordedRequest;
use super::reply::Reply;

/// What a model says to a request, whenever and however often it comes.
pub(crate) type Responder = fn(&RecordedRequest) -> Reply;

#[derive(Debug)]
struct State {
    script: VecDeque<Reply>,
    /// What answers in place of the script.
    responder: Option<Responder>,
    scripted_calls: usize,
    requests: Vec<RecordedRequest>,
    violations: Vec<String>,
    continuity: Continuity,
    demands: Demands,
    key_required: bool,
    script_must_be_played: bool,
    /// The last reply's own word was that the request goes on.
    paused: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    closing: AtomicBool,
}

/// The service. Ends with its value; [`ModelServer::finish`] says what it refused.
#[derive(Debug)]
pub(crate) struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl ModelServer {
    /// Listens on a free loopback port, with an empty script and every check on.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        let state = State {
            script: VecDeque::new(),
            responder: None,
            scripted_calls: 0,
            requests: Vec::new(),
            violations: Vec::new(),
            continuity: Continuity::default(),
            demands: Demands { append_only: true, stable_prefix: true },
            key_required: true,
            script_must_be_played: true,
            paused: false,
        };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), arrived: Condvar::new(), closing: AtomicBool::new(false) });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                if accepting.closing.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let connection = Arc::clone(&accepting);
                std::thread::spawn(move || serve(stream, index + 1, &connection));
            }
        });
        Self { address, shared }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// What `OPENAI_BASE_URL` takes.
    pub(crate) fn openai_base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What `ANTHROPIC_BASE_URL` takes.
    pub(crate) fn anthropic_base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds replies to the script. Calls without an id are numbered here.
    pub(crate) fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        let mut state = self.state();
        for mut reply in replies {
            for call in &mut reply.calls {
                if call.id.is_none() {
                    state.scripted_calls += 1;
                    call.id = Some(format!("call_{}", state.scripted_calls));
                }
            }
            state.script.push_back(reply);
        }
    }

    /// Answers each request by what it says instead of by a script: for tests that do not know which ones will come.
    /// The calls of each reply are numbered from 1.
    pub(crate) fn respond(&self, responder: Responder) {
        self.state().responder = Some(responder);
    }

    /// Switches off the check that a request's messages begin with those of an earlier one.
    pub(crate) fn allow_rewritten_history(&self) {
        self.state().demands.append_only = false;
    }

    /// Switches off the check that system prompt and tools stay the same within a turn.
    pub(crate) fn allow_changed_prefix(&self) {
        self.state().demands.stable_prefix = false;
    }

    /// For local providers, which need no key.
    pub(crate) fn allow_no_key(&self) {
        self.state().key_required = false;
    }

    /// For tests that stop attini before its script ends.
    pub(crate) fn allow_unplayed_replies(&self) {
        self.state().script_must_be_played = false;
    }

    /// All requests so far, refused ones and retries included.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.state().requests.clone()
    }

    /// The last request. Fails where there was none.
    #[track_caller]
    pub(crate) fn last_request(&self) -> RecordedRequest {
        self.state().requests.last().expect("the model was asked").clone()
    }

    pub(crate) fn request_count(&self) -> usize {
        self.state().requests.len()
    }

    /// Waits until that many requests have arrived in all, each read to its end.
    #[track_caller]
    pub(crate) fn wait_requests(&self, count: usize) {
        let state = self.state();
        let waiting = |state: &mut State| state.requests.len() < count;
        let (state, _) = self.shared.arrived.wait_timeout_while(state, DEADLINE, waiting).unwrap();
        let arrived = state.requests.len();
        drop(state);
        assert!(arrived >= count, "{arrived} requests arrived, {count} were waited for");
    }

    /// What was refused so far, and forgets it: for tests of refusals.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().violations)
    }

    /// Fails if any request was refused, or if the script was not played to its end.
    #[track_caller]
    pub(crate) fn finish(&self) {
        let (violations, unplayed) = {
            let mut state = self.state();
            let unplayed = if state.script_must_be_played { state.script.len() } else { 0 };
            state.script.clear();
            (std::mem::take(&mut state.violations), unplayed)
        };
        assert!(violations.is_empty(), "the model server refused:\n{}", violations.join("\n"));
        assert!(unplayed == 0, "{unplayed} scripted replies were never asked for");
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then ends.
        drop(TcpStream::connect(self.address));
    }
}

/// One connection, for as long as both sides keep it.
fn serve(stream: TcpStream, connection: usize, shared: &Shared) {
    let Ok(mut writer) = stream.try_clone() else { return };
    // Otherwise each piece waits until the one before is acknowledged, which takes its time.
    let _ = writer.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    loop {
        match read_request(&mut reader) {
            Ok(Some(request)) => {
                let close = request.wants_close();
                let kept = answer(&mut writer, &request, connection, shared).unwrap_or(false);
                if close || !kept {
                    // The client may be gone already.
                    let _ = writer.shutdown(Shutdown::Both);
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                // A client that is killed in mid-request breaks no rule; one that sends nonsense does.
                if error.kind() == io::ErrorKind::InvalidData {
                    shared.state.lock().unwrap().violations.push(format!("malformed HTTP: {error}"));
                }
                return;
            }
        }
    }
}

/// Whether the connection can be kept; an error where the client is gone.
fn answer(writer: &mut TcpStream, request: &HttpRequest, connection: usize, shared: &Shared) -> io::Result<bool> {
    let path = request.path.split_once('?').map_or(request.path.as_str(), |(path, _query)| path);
    let format = match (request.method.as_str(), path) {
        ("POST", "/v1/chat/completions" | "/chat/completions") => Format::OpenAi,
        ("POST", "/v1/messages") => Format::Anthropic,
        ("GET", "/v1/models" | "/models") => {
            let models = json!({"object": "list", "has_more": false, "data": [
                {"id": "test-model", "object": "model", "type": "model", "display_name": "Test Model"},
                {"id": "other-model", "object": "model", "type": "model", "display_name": "Other Model"},
            ]});
            return send_document(writer, 200, &[], models.to_string().as_bytes()).map(|()| true);
        }
        (method, path) => {
            shared.state.lock().unwrap().violations.push(format!("no such address: {method} {path}"));
            return send_document(writer, 404, &[], b"{\"error\":{\"message\":\"not found\"}}").map(|()| true);
        }
    };
    match judge(format, request, connection, shared) {
        Ok((reply, body)) => {
            let gave_up = || shared.closing.load(Ordering::SeqCst);
            play(writer, format, &reply, &body, &gave_up)
        }
        Err(violations) => {
            let error = json!({"type": "invalid_request_error", "message": violations.join("; ")});
            let body = json!({"type": "error", "error": error});
            send_document(writer, 400, &[], body.to_string().as_bytes()).map(|()| true)
        }
    }
}

/// Records the request, and gives the reply that the script has for it, or every reason to refuse it.
fn judge(
    format: Format,
    request: &HttpRequest,
    connection: usize,
    shared: &Shared,
) -> Result<(Reply, Value), Vec<String>> {
    let mut state = shared.state.lock().unwrap();
    let parsed = serde_json::from_slice::<Value>(&request.body);
    let body = parsed.as_ref().cloned().unwrap_or_default();
    state.requests.push(RecordedRequest {
        format,
        body: body.clone(),
        bytes: request.body.clone(),
        headers: request.headers.clone(),
        arrived: Instant::now(),
        connection,
    });
    let number = state.requests.len();
    shared.arrived.notify_all();
    if let (Some(responder), Some(request)) = (state.responder, state.requests.last()) {
        let mut reply = responder(request);
        for (index, call) in reply.calls.iter_mut().enumerate() {
            call.id.get_or_insert_with(|| format!("call_{}", index + 1));
        }
        state.script = VecDeque::from([reply]);
    }
    let mut found = check_envelope(format, request, &body, state.key_required);
    match parsed {
        Ok(_) => found.extend(format.check(&body)),
        Err(error) => found.push(format!("the body is not JSON: {error}")),
    }
    if KEYS.iter().any(|key| body.to_string().contains(key)) {
        found.push("the body holds a key".to_owned());
    }
    if state.paused {
        found.retain(|violation| violation != ENDS_WITH_ASSISTANT);
    }
    let starts_history = state.script.front().is_some_and(|reply| reply.starts_history);
    if found.is_empty() {
        let demands = state.demands;
        found.extend(state.continuity.check(format, &body, starts_history, demands));
    }
    if found.is_empty() && state.script.is_empty() {
        found.push("the script has no reply left".to_owned());
    }
    if let Some(reply) = state.script.front() {
        found.extend(check_purpose(&body, reply.for_words));
    }
    let found: Vec<String> = found.into_iter().map(|violation| format!("request {number}: {violation}")).collect();
    match state.script.pop_front() {
        Some(reply) if found.is_empty() => {
            state.paused = reply.finish_reason.as_deref() == Some("pause_turn");
            Ok((reply, body))
        }
        unused => {
            if let Some(reply) = unused {
                state.script.push_front(reply);
            }
            if state.responder.is_some() {
                state.script.clear();
            }
            state.violations.extend(found.iter().cloned());
            Err(found)
        }
    }
}

/// Whether a request lets the model make calls just where the script means it to.
fn check_purpose(body: &Value, for_words: bool) -> Option<String> {
    let choice = &body["tool_choice"];
    let forbids = choice == "none" || choice["type"] == "none";
    if for_words && !forbids && body.get("tools").is_some() {
        return Some("the request is for words alone, and lets calls be made".to_owned());
    }
    (!for_words && forbids).then(|| "the request forbids calls in the middle of a turn".to_owned())
}

/// What a service asks of a request besides its messages and tools.
fn check_envelope(format: Format, request: &HttpRequest, body: &Value, key_required: bool) -> Vec<String> {
    let mut found = Vec::new();
    let media_type = request.header("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media_type != "application/json" {
        found.push(format!("the content type is {media_type:?}"));
    }
    let has_key = match format {
        Format::OpenAi => {
            let key = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
            key.is_some_and(|key| !key.trim().is_empty())
        }
        Format::Anthropic => request.header("x-api-key").is_some_and(|key| !key.trim().is_empty()),
    };
    if key_required && !has_key {
        found.push("no key was sent".to_owned());
    }
    if format == Format::Anthropic && request.header("anthropic-version").is_none_or(str::is_empty) {
        found.push("anthropic-version is missing".to_owned());
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        found.push("model is missing".to_owned());
    }
    found
}
