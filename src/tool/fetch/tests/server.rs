//! A server on this machine, and a resolver that leads any name to it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Answers one request; `path` is the second word of its first line.
pub(super) type Answering = dyn Fn(&str, &mut TcpStream) + Send + Sync;

pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// The head of each request, in order.
    pub(super) heads: Arc<Mutex<Vec<String>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(answering: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let (noted, stop) = (Arc::clone(&heads), Arc::clone(&ended));
        let answering: Arc<Answering> = Arc::new(answering);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (noted, answering) = (Arc::clone(&noted), Arc::clone(&answering));
                std::thread::spawn(move || serve(stream.unwrap(), &noted, &*answering));
            }
        });
        Self { address, heads, ended, thread: Some(thread) }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn requests(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

fn serve(mut stream: TcpStream, noted: &Mutex<Vec<String>>, answering: &Answering) {
    while let Some(head) = head(&mut stream) {
        let words: Vec<String> = head.split(' ').map(str::to_owned).collect();
        noted.lock().unwrap().push(head);
        if words[0] == "CONNECT" {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            continue;
        }
        answering(&words[1], &mut stream);
        return;
    }
}

fn head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(bytes).unwrap())
}

/// A whole answer with its length; the connection is closed behind it.
pub(super) fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
    // The client may have had enough.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// Leads names to addresses; what it does not know is not found.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) known: BTreeMap<String, Vec<SocketAddr>>,
    pub(super) asked: Mutex<Vec<String>>,
}

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().unwrap();
        self.asked.lock().unwrap().push(host.to_owned());
        let mut found = self.empty();
        let literal = uri.authority().unwrap().as_str().parse().ok();
        for address in self.known.get(host).into_iter().flatten().copied().chain(literal) {
            found.push(address);
        }
        if found.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(found) }
    }
}
