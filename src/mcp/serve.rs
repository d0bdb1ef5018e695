//! attini's own tools, offered to any client over stdin and stdout.
//!
//! The SDK speaks the protocol on a thread of its own; calls are run on the threads of whoever asked to serve, in the
//! order in which they come: reads beside each other, everything else alone. What a call may do is decided there.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest, ContentBlock, ErrorCode, ErrorData,
    Implementation, JsonRpcMessage, JsonRpcRequest, ListToolsResult, PaginatedRequestParams, RequestId,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer, RxJsonRpcMessage, TxJsonRpcMessage, serve_server};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, oneshot};

use super::answer::clip;
use crate::interrupt::{Cause, Interrupt};

/// A longer line is no message that attini reads.
const MESSAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How much of a line that is skipped is read at a time.
const PIECE_BYTES: u64 = 64 * 1024;
/// The requests that are answered; of these nothing but their parameters can be wrong.
const METHODS: [&str; 5] = ["initialize", "ping", "server/discover", "tools/list", "tools/call"];
/// How many lines may wait to be read.
const LINES_WAITING_MAX: usize = 16;
/// How long the last messages may take to be written: whoever reads them may have stopped.
const LAST_WRITE_WAIT: Duration = Duration::from_secs(1);

const INSTRUCTIONS: &str = "Every call passes attini's permission rules. One that a person would have to allow is \
                            refused with the code needs_approval and with the rule that would allow it; ask the person \
                            to add that rule if it is needed.";

/// A tool as clients are told of it.
pub struct Offered {
    pub name: String,
    pub description: String,
    pub schema: Map<String, Value>,
    /// Its calls may run beside each other.
    pub reads: bool,
}

/// How a call ended, as its client is told.
pub struct Served {
    pub text: String,
    pub is_error: bool,
}

/// Runs one call of an offered tool, until its own interrupt is raised.
pub(super) type Runner<'a> = dyn Fn(&str, Map<String, Value>, &Interrupt) -> Served + Sync + 'a;

/// A call of a client.
struct Job {
    name: String,
    arguments: Map<String, Value>,
    reads: bool,
    interrupt: Interrupt,
    answer: oneshot::Sender<Served>,
}

/// Serves until the client closes stdin or the interrupt is raised; what still runs then is ended. At most `concurrency`
/// reads run at a time.
pub fn serve(offered: Vec<Offered>, concurrency: usize, interrupt: &Interrupt, run: &Runner<'_>) -> anyhow::Result<()> {
    let (jobs, placed) = mpsc::channel();
    let session = Interrupt::default();
    let stop = Arc::new(Notify::new());
    let (ending, stopping) = (session.clone(), Arc::clone(&stop));
    let _closer = interrupt.on_raise(move || {
        ending.raise(Cause::Cancelled);
        stopping.notify_one();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let handler = Handler { offered: Arc::new(offered), jobs, session: session.clone() };
    let conversing = std::thread::Builder::new()
        .name("mcp".to_owned())
        .spawn(move || {
            let (done, all_written) = mpsc::channel::<Infallible>();
            let conversed = runtime.block_on(converse(handler, &stop, done));
            session.raise(Cause::Cancelled);
            // With it go the handlers that wait, and with those the last place that jobs and messages come from.
            drop(runtime);
            let _ = all_written.recv_timeout(LAST_WRITE_WAIT);
            conversed
        })
        .context("no thread to serve on")?;
    work(&placed, concurrency.max(1), run);
    conversing.join().map_err(|_| anyhow::anyhow!("the thread that serves failed by a fault of its own"))?
}

/// Runs jobs as they come, until no more can.
fn work(placed: &mpsc::Receiver<Job>, concurrency: usize, run: &Runner<'_>) {
    let run_job = |job: Job| {
        let served = run(&job.name, job.arguments, &job.interrupt);
        // Whoever asked may be gone.
        let _ = job.answer.send(served);
    };
    std::thread::scope(|scope| {
        let mut reading = VecDeque::new();
        for job in placed {
            let room = if job.reads { concurrency - 1 } else { 0 };
            while reading.len() > room {
                let first: Option<std::thread::ScopedJoinHandle<'_, ()>> = reading.pop_front();
                // A panic there was told where it was noticed.
                let _ = first.map(std::thread::ScopedJoinHandle::join);
            }
            if job.reads {
                reading.push_back(scope.spawn(|| run_job(job)));
            } else {
                run_job(job);
            }
        }
    });
}

/// Speaks with the client until it closes stdin, or until it is stopped. `done` is dropped when all is written.
async fn converse(handler: Handler, stop: &Notify, done: mpsc::Sender<Infallible>) -> anyhow::Result<()> {
    let (lines, written) = mpsc::channel();
    let stopper = handler.session.clone();
    std::thread::Builder::new()
        .name("stdout".to_owned())
        .spawn(move || {
            write_lines(&written);
            // Nobody reads any more.
            stopper.raise(Cause::Cancelled);
            drop(done);
        })
        .context("no thread to write on")?;
    let stdio = Stdio::new(lines)?;
    let serving = async {
        // A client that leaves before it has said a word is none.
        let Ok(service) = serve_server(handler, stdio).await else { return Ok(()) };
        service.waiting().await.map(drop).context("the thread that serves failed by a fault of its own")
    };
    tokio::select! {
        ended = serving => ended,
        () = stop.notified() => Ok(()),
    }
}

fn write_lines(written: &mpsc::Receiver<Vec<u8>>) {
    let mut stdout = std::io::stdout().lock();
    for line in written {
        if stdout.write_all(&line).and_then(|()| stdout.flush()).is_err() {
            return;
        }
    }
}

struct Handler {
    offered: Arc<Vec<Offered>>,
    jobs: mpsc::Sender<Job>,
    /// Raised when nobody is served any more.
    session: Interrupt,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("attini", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |offered: &Offered| {
            rmcp::model::Tool::new(offered.name.clone(), offered.description.clone(), Arc::new(offered.schema.clone()))
        };
        Ok(ListToolsResult::with_all_items(self.offered.iter().map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(offered) = self.offered.iter().find(|offered| offered.name == request.name) else {
            let known: Vec<&str> = self.offered.iter().map(|offered| offered.name.as_str()).collect();
            let message = format!("Unknown tool: {}; the tools are {}", request.name, known.join(", "));
            return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, message, None));
        };
        let interrupt = Interrupt::default();
        let ending = interrupt.clone();
        let _closer = self.session.on_raise(move || ending.raise(Cause::Cancelled));
        let (answer, mut answered) = oneshot::channel();
        let job = Job {
            name: offered.name.clone(),
            arguments: request.arguments.unwrap_or_default(),
            reads: offered.reads,
            interrupt: interrupt.clone(),
            answer,
        };
        let gone = || ErrorData::new(ErrorCode::INTERNAL_ERROR, "attini ends", None);
        self.jobs.send(job).map_err(|_| gone())?;
        let served = tokio::select! {
            served = &mut answered => served,
            () = context.ct.cancelled() => {
                interrupt.raise(Cause::Cancelled);
                answered.await
            }
        };
        let served = served.map_err(|_| gone())?;
        let content = vec![ContentBlock::text(served.text)];
        let result = if served.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
        Ok(result.into())
    }
}

/// A line of the client.
enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// Reads a line; `None` where there is none any more. Of one that is too long the rest is skipped by [`skip_line`].
fn read_line(input: &mut impl BufRead) -> Option<Line> {
    let mut line = Vec::new();
    let count = input.by_ref().take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line);
    match count {
        Ok(0) | Err(_) => None,
        Ok(_) if line.len() as u64 >= MESSAGE_BYTES_MAX && !line.ends_with(b"\n") => Some(Line::TooLong),
        Ok(_) => Some(Line::Whole(line)),
    }
}

/// Reads on to the end of a line, piece by piece.
fn skip_line(input: &mut impl BufRead) {
    let mut piece = Vec::new();
    while let Ok(1..) = input.by_ref().take(PIECE_BYTES).read_until(b'\n', &mut piece) {
        if piece.ends_with(b"\n") {
            return;
        }
        piece.clear();
    }
}

/// Messages from stdin and to stdout, a line each.
struct Stdio {
    read: tokio::sync::mpsc::Receiver<Line>,
    messages: VecDeque<Value>,
    lines: mpsc::Sender<Vec<u8>>,
}

impl Stdio {
    fn new(lines: mpsc::Sender<Vec<u8>>) -> anyhow::Result<Self> {
        let (found, read) = tokio::sync::mpsc::channel(LINES_WAITING_MAX);
        // It ends with the process: a read of stdin cannot be broken off.
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || {
                let mut stdin = BufReader::new(std::io::stdin());
                while let Some(line) = read_line(&mut stdin) {
                    let is_cut = matches!(line, Line::TooLong);
                    if found.blocking_send(line).is_err() {
                        return;
                    }
                    if is_cut {
                        skip_line(&mut stdin);
                    }
                }
            })
            .context("no thread to read on")?;
        Ok(Self { read, messages: VecDeque::new(), lines })
    }

    fn write(&self, message: &impl serde::Serialize) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.lines.send(line).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }

    /// Answers what is no message of the protocol; where nobody hears it the next read finds out.
    fn refuse(&self, id: &Value, code: ErrorCode, message: &str) {
        let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": message}});
        let _ = self.write(&error);
    }

    fn read_message(&self, message: &Value) -> Option<RxJsonRpcMessage<RoleServer>> {
        let id = message.get("id");
        if id.is_some_and(|id| RequestId::deserialize(id).is_err()) && message.get("error").is_none() {
            self.refuse(&Value::Null, ErrorCode::INVALID_REQUEST, "the id is neither a string nor an integer");
            return None;
        }
        let read = RxJsonRpcMessage::<RoleServer>::deserialize(message).ok();
        let is_custom = matches!(
            &read,
            Some(JsonRpcMessage::Request(JsonRpcRequest { request: ClientRequest::CustomRequest(_), .. })) | None
        );
        let method = message.get("method").and_then(Value::as_str);
        match (id, method) {
            // The SDK takes what it cannot read for a request that it does not know.
            (Some(id), Some(method)) if is_custom && (read.is_none() || METHODS.contains(&method)) => {
                let why = format!("the parameters do not fit {}", clip(method));
                self.refuse(id, ErrorCode::INVALID_PARAMS, &why);
                None
            }
            (_, None) if read.is_none() => {
                self.refuse(&Value::Null, ErrorCode::INVALID_REQUEST, "it is no message of the protocol");
                None
            }
            _ => read,
        }
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = std::io::Error;

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("stdio")
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        std::future::ready(self.write(&item))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            while let Some(message) = self.messages.pop_front() {
                if let Some(message) = self.read_message(&message) {
                    return Some(message);
                }
            }
            let line = match self.read.recv().await? {
                Line::Whole(line) => line,
                Line::TooLong => {
                    let why = format!("the line has more than the {MESSAGE_BYTES_MAX} bytes that are taken");
                    self.refuse(&Value::Null, ErrorCode::INVALID_REQUEST, &why);
                    continue;
                }
            };
            match serde_json::from_slice(line.trim_ascii()) {
                Ok(Value::Array(batch)) => self.messages.extend(batch),
                Ok(message) => self.messages.push_back(message),
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(error) => self.refuse(&Value::Null, ErrorCode::PARSE_ERROR, &error.to_string()),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.read.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_skipped_to_its_end() {
        let long = usize::try_from(MESSAGE_BYTES_MAX).unwrap();
        let mut text = vec![b'x'; long - 1];
        text.extend(b"\n");
        text.extend(vec![b'y'; 2 * long]);
        text.extend(b"\nlast");
        let mut input = BufReader::new(text.as_slice());
        let whole = |line| matches!(line, Some(Line::Whole(line)) if line.len() == long);
        assert!(whole(read_line(&mut input)));
        assert!(matches!(read_line(&mut input), Some(Line::TooLong)));
        skip_line(&mut input);
        assert!(matches!(read_line(&mut input), Some(Line::Whole(line)) if line == b"last"));
        assert!(read_line(&mut input).is_none());
    }
}
