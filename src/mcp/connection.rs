//! One server that runs: its start and handshake, its list of tools, calls, its end.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ErrorCode, ListToolsRequest, PaginatedRequestParams,
    ProtocolVersion, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RoleClient, RunningService,
};
use serde_json::{Map, Value};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};

use super::asking::Resumption;
use super::client::Client;
use super::list::{Lifecycle, ListedTool};
use super::notes::{Notes, Warnings};
use super::process::Process;
use super::transport::Pipes;
use crate::config::McpConfig;
use crate::workspace::root::Root;

/// The most pages of a list that are read.
const PAGES_MAX: usize = 100;
/// The most tools of one server that are taken.
const TOOLS_MAX: usize = 5000;
/// Of a server's own words in a message.
const WORDS_CHARACTERS_MAX: usize = 1000;
/// A server may leave the first question unanswered for this part of its time to start.
const PROBE_PATIENCE_PART: u32 = 4;
/// How long the connection may take to close before the process is ended anyway.
const CLOSE_WAIT: Duration = Duration::from_millis(500);
/// How long a cancellation may take to be sent.
const CANCEL_WAIT: Duration = Duration::from_millis(200);
/// An answer may still be on its way when its server has ended.
const LAST_ANSWER_WAIT: Duration = Duration::from_millis(200);

pub(super) struct Connection {
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, Client>>>,
    process: Process,
    pub(super) notes: Arc<Notes>,
    pub(super) lifecycle: Lifecycle,
}

/// What all servers are started with.
pub(super) struct Surrounding {
    pub(super) folder: Root,
    /// The base; a server's own entry comes on top.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) warnings: Arc<Warnings>,
}

/// How a request ended.
pub(super) enum Reply {
    Result(Value),
    Refused {
        code: i32,
        message: String,
    },
    TimedOut,
    Interrupted,
    /// The server ended, or closed its output; in what words. The request may have been heard.
    Died(String),
}

/// Why there is no connection.
pub(super) struct NoStart {
    pub(super) why: String,
    /// Whether the other way of speaking to the server may go better.
    is_worth_another: bool,
}

impl Connection {
    /// Starts the server and greets it. `seen`: how it wanted to be spoken to when it was last started. A server of one
    /// kind may end when it is spoken to in the other's way, so that it gets a second chance.
    pub(super) async fn open(
        name: &str,
        server: &McpConfig,
        seen: Option<Lifecycle>,
        surrounding: &Surrounding,
    ) -> Result<Self, NoStart> {
        let ways = match seen {
            Some(Lifecycle::Handshake) => [Way::Handshake, Way::Probe],
            Some(Lifecycle::Stateless) | None => [Way::Probe, Way::Handshake],
        };
        let mut result = Self::open_in(ways[0], name, server, surrounding).await;
        if result.as_ref().is_err_and(|failure| failure.is_worth_another) {
            result = Self::open_in(ways[1], name, server, surrounding).await;
        }
        result
    }

    async fn open_in(way: Way, name: &str, server: &McpConfig, surrounding: &Surrounding) -> Result<Self, NoStart> {
        let started = Process::start(server, &surrounding.folder, &surrounding.environment);
        let (process, ends) = started.map_err(|error| NoStart {
            why: format!("cannot be started: {}: {error}", server.command.first().map_or("", String::as_str)),
            is_worth_another: false,
        })?;
        let notes = Arc::new(Notes::new(name, Arc::clone(&surrounding.warnings)));
        let patience = Duration::from_secs(server.start_timeout_s);
        let pipes = Pipes::new(ends, Arc::clone(&notes), patience / PROBE_PATIENCE_PART);
        let client = Client::new(surrounding.folder.path(), Arc::clone(&notes));
        let greeting = tokio::select! {
            greeting = client.serve_with_lifecycle(pipes, way.mode()) => greeting.map_err(|error| Greeting::Failed(Box::new(error))),
            () = async { process.ended().await; sleep(LAST_ANSWER_WAIT).await } => Err(Greeting::Ended),
            () = sleep(patience) => Err(Greeting::TimedOut),
        };
        let service = match greeting {
            Ok(service) => service,
            Err(failed) => return Err(failed.explain(&process, server).await),
        };
        let peer = service.peer().clone();
        let version = peer.peer_info().map(|info| info.protocol_version.clone());
        let is_stateless = version.is_some_and(|version| !version.has_initialize());
        let lifecycle = if is_stateless { Lifecycle::Stateless } else { Lifecycle::Handshake };
        let connection = Self { peer, service: Mutex::new(Some(service)), process, notes, lifecycle };
        connection.follow_changes();
        Ok(connection)
    }

    /// Servers without a handshake tell of changes to their list only where that is asked for.
    fn follow_changes(&self) {
        let info = self.peer.peer_info();
        let tells = info
            .is_some_and(|info| info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true)));
        if self.lifecycle != Lifecycle::Stateless || !tells {
            return;
        }
        let (peer, notes) = (self.peer.clone(), Arc::clone(&self.notes));
        tokio::spawn(async move {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let Ok(mut subscription) = peer.listen(filter).await else { return };
            while let Ok(Some(_)) = subscription.next().await {
                notes.mark_list_changed();
            }
        });
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.peer.is_transport_closed() && !self.process.has_ended()
    }

    /// All pages of the server's list.
    pub(super) async fn list(&self, time: Duration) -> Result<Vec<ListedTool>, String> {
        match timeout(time, self.list_pages()).await {
            Ok(listed) => listed,
            Err(_) => Err(format!("did not list its tools within {} s", time.as_secs())),
        }
    }

    async fn list_pages(&self) -> Result<Vec<ListedTool>, String> {
        let mut tools: Vec<ListedTool> = Vec::new();
        let mut cursors = HashSet::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
            let page = match self.request(request, None, None).await {
                Ok(ServerResult::ListToolsResult(page)) => page,
                Ok(_) => return Err("answered tools/list with something that is no list of tools".to_owned()),
                // A server that offers resources alone knows no such question.
                Err(Reply::Refused { code, .. }) if code == ErrorCode::METHOD_NOT_FOUND.0 => return Ok(tools),
                Err(Reply::Refused { code, message }) => {
                    return Err(format!("refused to list its tools: {message} ({code})"));
                }
                Err(Reply::Died(how)) => return Err(how),
                Err(Reply::Result(_) | Reply::TimedOut | Reply::Interrupted) => {
                    return Err("did not list its tools".to_owned());
                }
            };
            for tool in page.tools {
                let schema = Value::Object(Map::clone(&tool.input_schema));
                let description = tool.description.unwrap_or_default().into_owned();
                let tool = ListedTool::new(tool.name.into_owned(), description, &schema);
                if !tools.contains(&tool) {
                    tools.push(tool);
                }
            }
            if tools.len() > TOOLS_MAX {
                self.notes.warn(&format!("lists more than {TOOLS_MAX} tools; those beyond are left out"));
                tools.truncate(TOOLS_MAX);
                return Ok(tools);
            }
            match page.next_cursor {
                Some(next) if cursors.insert(next.clone()) => cursor = Some(next),
                Some(_) | None => return Ok(tools),
            }
        }
        self.notes.warn(&format!("lists its tools on more than {PAGES_MAX} pages; those beyond are left out"));
        Ok(tools)
    }

    /// One call of a tool, sent once. `interrupt` ends it.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        resumption: Option<Resumption>,
        time: Duration,
        interrupt: &Notify,
    ) -> Reply {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        if let Some(Resumption { responses, request_state }) = resumption {
            params = params.with_input_responses(responses);
            params.request_state = request_state;
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match self.request(request, Some(time), Some(interrupt)).await {
            Ok(result) => match serde_json::to_value(result) {
                Ok(value) => Reply::Result(value),
                Err(error) => Reply::Refused { code: ErrorCode::INTERNAL_ERROR.0, message: error.to_string() },
            },
            Err(reply) => reply,
        }
    }

    async fn request(
        &self,
        request: ClientRequest,
        time: Option<Duration>,
        interrupt: Option<&Notify>,
    ) -> Result<ServerResult, Reply> {
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(self.failed(error).await),
        };
        let cut_short = tokio::select! {
            biased;
            answer = &mut handle.rx => return self.answered(answer).await,
            () = self.process.ended() => None,
            () = maybe(time.map(sleep)) => Some(Reply::TimedOut),
            () = maybe(interrupt.map(Notify::notified)) => Some(Reply::Interrupted),
        };
        let Some(reply) = cut_short else {
            return match timeout(LAST_ANSWER_WAIT, &mut handle.rx).await {
                Ok(answer) => self.answered(answer).await,
                Err(_) => Err(self.died().await),
            };
        };
        // The server is told; that it heeds it cannot be relied on.
        let _ = timeout(CANCEL_WAIT, handle.cancel(Some("given up".to_owned()))).await;
        Err(reply)
    }

    async fn answered<Lost>(
        &self,
        answer: Result<Result<ServerResult, ServiceError>, Lost>,
    ) -> Result<ServerResult, Reply> {
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(self.failed(error).await),
            Err(_) => Err(self.died().await),
        }
    }

    async fn failed(&self, error: ServiceError) -> Reply {
        match error {
            ServiceError::McpError(error) => {
                Reply::Refused { code: error.code.0, message: clip(&error.message).trim().to_owned() }
            }
            _ => self.died().await,
        }
    }

    /// Ends what is left of the server, and says what became of it.
    async fn died(&self) -> Reply {
        let had_ended = timeout(LAST_ANSWER_WAIT, self.process.ended()).await.is_ok();
        self.end().await;
        let how =
            if had_ended { format!("ended {}", self.process.how_it_ended()) } else { "closed its output".to_owned() };
        Reply::Died(format!("{how}{}", self.process.last_words().await))
    }

    /// Closes the connection and ends the server with all that it started.
    pub(super) async fn end(&self) {
        if let Some(mut service) = self.service.lock().await.take() {
            // However that ends, the process is ended next.
            let _ = service.close_with_timeout(CLOSE_WAIT).await;
        }
        self.process.end().await;
        self.notes.close();
    }
}

/// Waits for what may not be there: then for ever.
async fn maybe<Waiting: Future<Output = ()>>(waiting: Option<Waiting>) {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}

/// How a server is greeted.
#[derive(Clone, Copy)]
enum Way {
    /// By asking whether it knows the protocol without a handshake; if it does not, with the handshake.
    Probe,
    Handshake,
}

impl Way {
    fn mode(self) -> ClientLifecycleMode {
        match self {
            Self::Probe => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::LATEST],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Self::Handshake => ClientLifecycleMode::Initialize,
        }
    }
}

/// Why a greeting came to nothing.
enum Greeting {
    Failed(Box<ClientInitializeError>),
    Ended,
    TimedOut,
}

impl Greeting {
    async fn explain(self, process: &Process, server: &McpConfig) -> NoStart {
        let is_worth_another = !matches!(self, Self::TimedOut);
        let ended = matches!(self, Self::Ended) || timeout(LAST_ANSWER_WAIT, process.ended()).await.is_ok();
        process.end().await;
        let why = match self {
            Self::TimedOut => format!("did not answer within {} s", server.start_timeout_s),
            // That it ends once the connection is closed for that is no wonder.
            Self::Failed(error) if is_answer(&error) => in_words(&error),
            Self::Ended | Self::Failed(_) if ended => format!("ended at its start {}", process.how_it_ended()),
            Self::Failed(error) => in_words(&error),
            Self::Ended => "ended at its start".to_owned(),
        };
        NoStart { why: format!("{why}{}", process.last_words().await), is_worth_another }
    }
}

/// Whether the server said something that ended the greeting.
fn is_answer(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. }
        | ClientInitializeError::Cancelled => false,
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_answer(fallback),
        _ => true,
    }
}

fn in_words(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => {
            "closed the connection at its start".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("refused the handshake: {} ({})", clip(&error.message), error.code.0)
        }
        ClientInitializeError::ExpectedInitResult(Some(result)) => {
            let result = serde_json::to_string(result).unwrap_or_default();
            format!("answered the handshake with what is no result of it: {}", clip(&result))
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => in_words(fallback),
        other => format!("did not complete the handshake: {}", clip(&other.to_string())),
    }
}

fn clip(text: &str) -> String {
    crate::mask::apply(text).chars().take(WORDS_CHARACTERS_MAX).collect()
}
