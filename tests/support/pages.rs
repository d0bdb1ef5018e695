//! A web server of a few pages, for what fetches them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Ends with the test's process.
pub(crate) struct Pages {
    address: SocketAddr,
    load: Arc<Load>,
}

#[derive(Default)]
struct Load {
    requests: AtomicUsize,
    now: AtomicUsize,
    highest: AtomicUsize,
}

/// How long `/slow/...` takes.
pub(crate) const SLOW: Duration = Duration::from_millis(500);

impl Pages {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let load = Arc::new(Load::default());
        let count = Arc::clone(&load);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let load = Arc::clone(&count);
                load.requests.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let now = load.now.fetch_add(1, Ordering::SeqCst) + 1;
                    load.highest.fetch_max(now, Ordering::SeqCst);
                    serve(stream, || load.now.fetch_sub(1, Ordering::SeqCst));
                });
            }
        });
        Self { address, load }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address())
    }

    pub(crate) fn requests(&self) -> usize {
        self.load.requests.load(Ordering::SeqCst)
    }

    /// How many requests were under way at once, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.load.highest.load(Ordering::SeqCst)
    }
}

/// `answering` is called before the answer is written: whoever reads it may ask again at once.
fn serve(mut stream: TcpStream, answering: impl FnOnce() -> usize) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let (status, field, body): (&str, &str, &[u8]) = match path {
        "/page" | "/raw" => ("200 OK", "Content-Type: text/html", b"<title>Page</title><p>It says <b>this</b>"),
        "/text" => ("200 OK", "Content-Type: text/plain", b"plain words\n"),
        "/json" => ("200 OK", "Content-Type: application/json", br#"{"a": 1}"#),
        "/bytes" => ("200 OK", "Content-Type: application/octet-stream", b"\x00\x01\x02\xff"),
        "/moved" => ("301 Moved Permanently", "Location: /text", b""),
        "/round" => ("302 Found", "Location: /round", b""),
        "/away" => ("302 Found", "Location: http://elsewhere.test/secret", b""),
        slow if slow.starts_with("/slow/") => {
            std::thread::sleep(SLOW);
            ("200 OK", "Content-Type: text/plain", b"at last\n")
        }
        _ => ("404 Not Found", "Content-Type: text/plain", b"there is no such page\n"),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{field}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    answering();
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
}
