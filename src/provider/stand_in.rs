//! A server for the unit tests of the formats: it says what it is told to, byte by byte, and judges nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

/// A server that gives each connection the next answer, then leaves it to the client to hang up.
pub(super) struct Server {
    address: SocketAddr,
    /// The head and the body of each request.
    pub(super) requests: Receiver<(String, Value)>,
}

impl Server {
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

pub(super) fn serve(answers: Vec<Vec<u8>>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            if sender.send(read_request(&stream)).is_err() {
                return;
            }
            // The client may hang up in the middle of it.
            let _ = stream.write_all(&answer);
            if answer.is_empty() {
                open.push(stream);
            }
        }
        // A connection that was never answered stays open until the test ends.
        for stream in open {
            let _ = (&stream).read(&mut [0]);
        }
    });
    Server { address, requests }
}

pub(super) fn read_request(stream: &TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

pub(super) fn sse_answer(body: &str) -> Vec<u8> {
    answer("200 OK", "Content-Type: text/event-stream\r\n", body)
}
