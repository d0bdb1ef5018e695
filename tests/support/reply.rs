//! What the model is to say: scripted replies, told apart from the wire format that carries them.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;

/// A door that a test opens: a reply waits before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn release(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits until it is released, or until `gave_up` says that nobody will.
    pub(super) fn wait(&self, gave_up: &dyn Fn() -> bool) {
        let mut open = self.0.0.lock().unwrap();
        while !*open && !gave_up() {
            open = self.0.1.wait_timeout(open, Duration::from_millis(20)).unwrap().0;
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Empty: the server numbers it (`call_1`, `call_2`, ... over the whole script) when the script is given to it.
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// Tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
}

/// The body, where the script says more than what a well-behaved model would.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// Rendered in the wire format that was asked for.
    Said,
    /// A status other than 200 with these bytes.
    Error { status: u16, bytes: Vec<u8> },
    /// 200 and these bytes, as an event stream.
    Raw(Vec<u8>),
}

/// One reply of a script.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "a script switches each by itself")]
#[must_use]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) finish_reason: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) body: Body,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) delay_before_headers: Duration,
    pub(crate) delay_between_chunks: Duration,
    pub(crate) held_before_headers: Option<Latch>,
    /// The body bytes that are sent before the latch is waited for.
    pub(crate) held_after: Option<(usize, Latch)>,
    pub(crate) cut_after_bytes: Option<usize>,
    pub(crate) chunk_bytes: Option<usize>,
    pub(crate) streamed: bool,
    pub(crate) done_marker: bool,
    pub(crate) stream_error: Option<String>,
    pub(crate) starts_history: bool,
    /// The request is for words alone: no call may be made.
    pub(crate) for_words: bool,
}

/// A reply that says nothing yet.
pub(crate) fn reply() -> Reply {
    Reply {
        text: String::new(),
        reasoning: String::new(),
        calls: Vec::new(),
        finish_reason: None,
        usage: Usage { input: 10, output: 5, cached_input: 0 },
        body: Body::Said,
        headers: Vec::new(),
        delay_before_headers: Duration::ZERO,
        delay_between_chunks: Duration::ZERO,
        held_before_headers: None,
        held_after: None,
        cut_after_bytes: None,
        chunk_bytes: None,
        streamed: true,
        done_marker: true,
        stream_error: None,
        starts_history: false,
        for_words: false,
    }
}

impl Reply {
    pub(crate) fn text(mut self, text: &str) -> Self {
        text.clone_into(&mut self.text);
        self
    }

    pub(crate) fn reasoning(mut self, text: &str) -> Self {
        text.clone_into(&mut self.reasoning);
        self
    }

    /// A call whose id the server chooses: `call_N`, counted over the server's whole script.
    #[expect(clippy::needless_pass_by_value, reason = "callers write json!(...) in place")]
    pub(crate) fn call(mut self, name: &str, arguments: Value) -> Self {
        self.calls.push(Call { id: None, name: name.to_owned(), arguments: arguments.to_string() });
        self
    }

    /// A call as a misbehaving model writes it: any id, any name, arguments that need not parse.
    pub(crate) fn raw_call(mut self, id: &str, name: &str, arguments: &str) -> Self {
        self.calls.push(Call { id: Some(id.to_owned()), name: name.to_owned(), arguments: arguments.to_owned() });
        self
    }

    /// `OpenAI`'s words; `stop`, `tool_calls`, `length` and `content_filter` become Anthropic's where that is spoken.
    /// Without it: `tool_calls` if there are calls, else `stop`.
    pub(crate) fn finish(mut self, reason: &str) -> Self {
        self.finish_reason = Some(reason.to_owned());
        self
    }

    pub(crate) fn usage(mut self, input_tokens: u64, output_tokens: u64, cached_input_tokens: u64) -> Self {
        self.usage = Usage { input: input_tokens, output: output_tokens, cached_input: cached_input_tokens };
        self
    }

    /// An error status, with a message in the service's own form.
    pub(crate) fn error(self, status: u16, message: &str) -> Self {
        let body = serde_json::json!({
            "type": "error", "error": {"type": "scripted_error", "message": message, "code": null}
        });
        self.error_bytes(status, body.to_string().as_bytes())
    }

    /// An error status with any body.
    pub(crate) fn error_bytes(mut self, status: u16, bytes: &[u8]) -> Self {
        self.body = Body::Error { status, bytes: bytes.to_vec() };
        self
    }

    /// 200 and exactly these bytes as an event stream; the other fields of what is said do not matter then.
    pub(crate) fn raw(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.body = Body::Raw(bytes.as_ref().to_vec());
        self
    }

    /// An error event of that type in place of the end of a 200 stream.
    pub(crate) fn error_in_stream(mut self, error_type: &str) -> Self {
        self.stream_error = Some(error_type.to_owned());
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn delay_before_headers(mut self, delay: Duration) -> Self {
        self.delay_before_headers = delay;
        self
    }

    pub(crate) fn delay_between_chunks(mut self, delay: Duration) -> Self {
        self.delay_between_chunks = delay;
        self
    }

    /// Nothing is sent before the test releases the latch.
    pub(crate) fn hold(mut self, latch: &Latch) -> Self {
        self.held_before_headers = Some(latch.clone());
        self
    }

    /// The headers and that many bytes of the body are sent; the rest waits for the latch.
    pub(crate) fn hold_after(mut self, body_bytes: usize, latch: &Latch) -> Self {
        self.held_after = Some((body_bytes, latch.clone()));
        self
    }

    /// The connection is closed behind that many bytes of the body.
    pub(crate) fn cut_after(mut self, body_bytes: usize) -> Self {
        self.cut_after_bytes = Some(body_bytes);
        self
    }

    /// Chunk borders at every so many bytes, wherever they fall, instead of one chunk an event.
    pub(crate) fn chunk_bytes(mut self, bytes: usize) -> Self {
        assert!(bytes > 0, "a chunk holds at least a byte");
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Answered as one JSON document although a stream was asked for.
    pub(crate) fn unstreamed(mut self) -> Self {
        self.streamed = false;
        self
    }

    /// Leaves out `[DONE]` (`OpenAI`) behind the finish reason.
    pub(crate) fn without_done(mut self) -> Self {
        self.done_marker = false;
        self
    }

    /// The request that gets this reply asks on the side, for a summary or an answer: it forbids calls, or offers no
    /// tools, and continues nothing.
    pub(crate) fn on_the_side(mut self) -> Self {
        self.for_words = true;
        self.starts_history()
    }

    /// The request that gets this reply need not continue an earlier one's messages (another session, a summary, a
    /// delegation).
    pub(crate) fn starts_history(mut self) -> Self {
        self.starts_history = true;
        self
    }
}
