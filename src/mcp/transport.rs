//! Messages to and from a server, a line each, over its stdin and stdout.
//!
//! What is no message is skipped and told of, with the server's name. Lists of tools are brought into the form that the
//! SDK reads, so that one odd entry does not cost the others.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::notes::Notes;
use super::process::Ends;

/// A longer line is no message that attini reads; images come in lines of some megabytes.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How much is read at a time, at least.
const PIECE_BYTES: usize = 64 * 1024;

pub(super) struct Pipes {
    stdin: Arc<Mutex<Option<pipe::Sender>>>,
    stdout: pipe::Receiver,
    /// What was read and is no whole line yet.
    unread: Vec<u8>,
    /// So much of `unread` is known to hold no line end.
    searched: usize,
    messages: VecDeque<Value>,
    notes: Arc<Notes>,
    probe: Probe,
}

/// What can be seen of an answer whose strings cannot be read.
#[derive(Deserialize)]
struct Envelope {
    id: RequestId,
    method: Option<IgnoredAny>,
}

/// Whether the server speaks a protocol without a handshake is asked first. One that never answers counts as older.
struct Probe {
    patience: Duration,
    /// The question, and when it counts as not understood.
    open: Option<(RequestId, Instant)>,
    /// A late answer to it belongs to nothing.
    given_up: Option<RequestId>,
}

impl Pipes {
    /// `probe_patience`: how long a server may leave the first question of the newer protocol unanswered.
    pub(super) fn new(ends: Ends, notes: Arc<Notes>, probe_patience: Duration) -> Self {
        Self {
            stdin: Arc::new(Mutex::new(Some(ends.stdin))),
            stdout: ends.stdout,
            unread: Vec::new(),
            searched: 0,
            messages: VecDeque::new(),
            notes,
            probe: Probe { patience: probe_patience, open: None, given_up: None },
        }
    }

    /// Takes the next whole line out of what was read.
    fn next_line(&mut self) -> Option<Vec<u8>> {
        let found = memchr::memchr(b'\n', &self.unread[self.searched..]);
        let Some(end) = found.map(|at| self.searched + at) else {
            self.searched = self.unread.len();
            return None;
        };
        self.searched = 0;
        let rest = self.unread.split_off(end + 1);
        Some(std::mem::replace(&mut self.unread, rest))
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        match serde_json::from_slice(line) {
            Ok(Value::Array(batch)) => self.messages.extend(batch),
            Ok(message) => self.messages.push_back(message),
            // Whoever asked need not wait for what has come.
            Err(error) => match serde_json::from_slice::<Envelope>(line) {
                Ok(Envelope { id, method: None }) => {
                    let result = format!("the line cannot be read: {error}");
                    self.messages.push_back(json!({"jsonrpc": "2.0", "id": id, "result": result}));
                }
                Ok(Envelope { id: _, method: Some(_) }) | Err(_) => self.notes.skip_line(line, "not JSON"),
            },
        }
    }

    fn read_message(&mut self, mut message: Value) -> Option<RxJsonRpcMessage<RoleClient>> {
        mend(&mut message, &self.notes);
        let Ok(message) = RxJsonRpcMessage::<RoleClient>::deserialize(&message) else {
            self.notes.skip_line(message.to_string().as_bytes(), "no message of the protocol");
            return None;
        };
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if let Some(answered) = answered {
            if self.probe.given_up.as_ref() == Some(answered) {
                return None;
            }
            self.probe.open.take_if(|(id, _)| id == answered);
        }
        Some(message)
    }

    /// Reads more; whether there was any.
    async fn read_more(&mut self) -> bool {
        self.unread.reserve(PIECE_BYTES);
        match self.stdout.read_buf(&mut self.unread).await {
            Ok(count @ 1..) => count > 0,
            Ok(0) | Err(_) => false,
        }
    }

    /// Answers the first question in the server's stead.
    fn give_up_probe(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let (id, _) = self.probe.open.take()?;
        self.probe.given_up = Some(id.clone());
        let error = ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, "no answer", None);
        Some(JsonRpcMessage::error(error, Some(id)))
    }
}

impl Transport<RoleClient> for Pipes {
    type Error = io::Error;

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("stdio")
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            self.probe.open = Some((request.id.clone(), Instant::now() + self.probe.patience));
        }
        let line = serde_json::to_vec(&item);
        let stdin = Arc::clone(&self.stdin);
        async move {
            let mut line = line?;
            line.push(b'\n');
            match stdin.lock().await.as_mut() {
                Some(stdin) => stdin.write_all(&line).await,
                None => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // This future may be dropped whenever it waits; all that it has read is kept in `self`.
        loop {
            while let Some(message) = self.messages.pop_front() {
                if let Some(message) = self.read_message(message) {
                    return Some(message);
                }
            }
            if let Some(line) = self.next_line() {
                self.take_line(&line);
                continue;
            }
            if self.unread.len() > MESSAGE_BYTES_MAX {
                self.notes.warn(&format!("wrote a line of more than {MESSAGE_BYTES_MAX} bytes; it is not read on"));
                return None;
            }
            let deadline = self.probe.open.as_ref().map(|(_, deadline)| *deadline);
            let has_more = match deadline {
                None => self.read_more().await,
                Some(deadline) => match timeout_at(deadline, self.read_more()).await {
                    Ok(has_more) => has_more,
                    Err(_) => return self.give_up_probe(),
                },
            };
            if !has_more {
                return None;
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // A write that is stuck holds the lock; it ends with the server.
        if let Ok(mut stdin) = self.stdin.try_lock() {
            *stdin = None;
        }
        Ok(())
    }
}

/// Mends what servers get wrong and the SDK would refuse as a whole.
fn mend(message: &mut Value, notes: &Notes) {
    if let Some(error) = message.get_mut("error") {
        let code = error.get("code").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
        let text = error.get("message").and_then(Value::as_str).map_or_else(|| error.to_string(), str::to_owned);
        let data = error.get("data").cloned();
        *error = json!({"code": code.unwrap_or(rmcp::model::ErrorCode::INTERNAL_ERROR.0), "message": text});
        if let (Some(data), Some(error)) = (data, error.as_object_mut()) {
            error.insert("data".to_owned(), data);
        }
    }
    let Some(Value::Object(result)) = message.get_mut("result") else { return };
    if let Some(Value::Array(tools)) = result.get_mut("tools") {
        *tools = tools.iter().filter_map(|tool| mended_tool(tool, notes)).collect();
        if result.get("nextCursor").is_some_and(|cursor| !cursor.is_string()) {
            result.remove("nextCursor");
        }
    }
}

/// What attini uses of a tool's description, in the form that the SDK reads; `None`, and a note, where there is too
/// little of it.
fn mended_tool(tool: &Value, notes: &Notes) -> Option<Value> {
    let Some(name) = tool.get("name").and_then(Value::as_str) else {
        notes.warn("lists a tool without a name, which is left out");
        return None;
    };
    let titles = [tool.get("description"), tool.get("title"), tool.pointer("/annotations/title")];
    let description = titles.into_iter().flatten().find_map(Value::as_str);
    let schema = match tool.get("inputSchema") {
        Some(Value::Object(schema)) => schema.clone(),
        None | Some(Value::Null) => Map::new(),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            notes.warn(&format!("lists the tool {name} with a schema that is no JSON object; it is left out"));
            return None;
        }
    };
    Some(json!({"name": name, "description": description.unwrap_or_default(), "inputSchema": schema}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_odd_tool_does_not_cost_the_others() {
        let notes = Notes::new("fs", Arc::default());
        let mut message = json!({"jsonrpc": "2.0", "id": 1, "result": {"nextCursor": null, "tools": [
            {"name": "a", "inputSchema": {"type": "object"}, "outputSchema": 7, "annotations": "?"},
            {"name": "b", "title": "B.", "inputSchema": null},
            {"name": "c", "inputSchema": "none"},
            {"description": "nameless"},
        ]}});
        mend(&mut message, &notes);
        let tools = json!([
            {"name": "a", "description": "", "inputSchema": {"type": "object"}},
            {"name": "b", "description": "B.", "inputSchema": {}},
        ]);
        assert_eq!(message["result"], json!({"tools": tools}));
        assert_eq!(
            notes.take_warnings(),
            [
                "the MCP server fs lists the tool c with a schema that is no JSON object; it is left out",
                "the MCP server fs lists a tool without a name, which is left out",
            ]
        );
        assert!(serde_json::from_value::<RxJsonRpcMessage<RoleClient>>(message).is_ok());
    }

    #[test]
    fn an_odd_error_is_still_an_answer() {
        let notes = Notes::new("fs", Arc::default());
        for (error, expected) in [
            (
                json!({"code": -32602, "message": "m", "data": [1]}),
                json!({"code": -32602, "message": "m", "data": [1]}),
            ),
            (json!({"code": "x", "message": "m"}), json!({"code": -32603, "message": "m"})),
            (json!("broken"), json!({"code": -32603, "message": "\"broken\""})),
        ] {
            let mut message = json!({"jsonrpc": "2.0", "id": 1, "error": error});
            mend(&mut message, &notes);
            assert_eq!(message["error"], expected);
            assert!(serde_json::from_value::<RxJsonRpcMessage<RoleClient>>(message).is_ok());
        }
    }
}
