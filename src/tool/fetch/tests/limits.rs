//! Time and size, and what ends a call from outside.

use std::io::{Read, Write};
use std::sync::mpsc::channel;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::exit::Signal;
use crate::interrupt::Cause;

const BODY_BYTES: u64 = 100_000;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn fitting(bytes: u64) -> Vec<u8> {
    vec![b'x'; usize::try_from(bytes).unwrap()]
}

#[test]
fn size_is_bounded_however_it_comes() {
    let server = Server::start(|path, stream| match path {
        "/fits" => answer(stream, 200, "Content-Type: text/plain\r\n", &fitting(BODY_BYTES)),
        "/declared" => answer(stream, 200, "Content-Type: text/plain\r\n", &fitting(BODY_BYTES + 1)),
        "/endless" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        }
        "/chunked" => {
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
            let _ = stream.write_all(head);
            let chunk = [b"1000\r\n".to_vec(), vec![b'x'; 4096], b"\r\n".to_vec()].concat();
            while stream.write_all(&chunk).is_ok() {}
        }
        "/zipped" => {
            let body = gzip(&fitting(BODY_BYTES));
            answer(stream, 200, "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", &body);
        }
        "/members" => {
            let body = [gzip(b"one "), gzip(b"two")].concat();
            answer(stream, 200, "Content-Type: text/plain\r\nContent-Encoding: x-gzip\r\n", &body);
        }
        "/bomb" => {
            let body = gzip(&fitting(BODY_BYTES * 900));
            assert!(body.len() as u64 <= BODY_BYTES);
            answer(stream, 200, "Content-Type: text/html\r\nContent-Encoding: GZIP\r\n", &body);
        }
        "/broken" => answer(stream, 200, "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", b"no gzip"),
        "/brotli" => answer(stream, 200, "Content-Type: text/plain\r\nContent-Encoding: br\r\n", b"x"),
        "/huge.iso" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-iso\r\nContent-Length: 99999999999\r\n\r\n";
            let _ = stream.write_all(head.as_bytes());
        }
        "/cut" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf");
        }
        "/head" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            let line = format!("X-Filler: {}\r\n", "x".repeat(8000));
            while stream.write_all(line.as_bytes()).is_ok() {}
        }
        other => panic!("{other}"),
    });
    let mut case = Case::new(&named);
    case.bounds.body_bytes = BODY_BYTES;
    for (path, code, words) in [
        ("/fits", None, "100000 bytes]\nxxx"),
        ("/declared", Some("too_large"), "100001 bytes by the server's word"),
        ("/endless", Some("too_large"), "larger than the 100000 bytes"),
        ("/chunked", Some("too_large"), "larger than the 100000 bytes"),
        ("/zipped", None, "100000 bytes]\nxxx"),
        ("/members", None, "one two"),
        ("/bomb", Some("too_large"), "text/html"),
        ("/broken", Some("fetch_failed"), "broke off"),
        ("/brotli", Some("fetch_failed"), "\"br\""),
        ("/huge.iso", None, "application/x-iso, 99999999999 bytes]\n[not shown"),
        ("/cut", Some("fetch_failed"), "broke off"),
        ("/head", Some("fetch_failed"), "cannot reach"),
    ] {
        let outcome = case.fetch(&server.url(path));
        assert_eq!(outcome.code, code, "{path}: {outcome:?}");
        assert!(outcome.content.contains(words), "{path}: {:.300}", outcome.content);
    }
}

#[test]
fn time_is_bounded_over_the_whole_call() {
    let server = Server::start(|path, stream| match path {
        "/silent" => {
            // Until the client hangs up.
            let _ = stream.read(&mut [0]);
        }
        "/dripping" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        other => panic!("{other}"),
    });
    let mut case = Case::new(&named);
    case.bounds.total = Duration::from_millis(300);
    for path in ["/silent", "/dripping"] {
        let begun = Instant::now();
        let outcome = case.fetch(&server.url(path));
        assert_eq!(outcome.code, Some("timeout"), "{path}: {outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{path}");
    }
}

#[test]
fn an_interrupt_ends_it_at_once() {
    let (sender, arrived) = channel();
    let sender = Mutex::new(sender);
    let server = Server::start(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nhalf");
        sender.lock().unwrap().send(()).unwrap();
        let _ = stream.read(&mut [0]);
    });
    let case = Case::new(&named);
    let interrupt = case.interrupt.clone();
    let raiser = std::thread::spawn(move || {
        arrived.recv().unwrap();
        interrupt.raise(Cause::Signal(Signal::Interrupt));
    });
    let begun = Instant::now();
    let outcome = case.fetch(&server.url("/"));
    assert_eq!(outcome.status, ResultStatus::Cancelled, "{outcome:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    raiser.join().unwrap();
}
