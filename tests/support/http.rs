//! As much of HTTP/1.1 as a model service's clients use: requests with a length or in chunks, kept-alive connections,
//! `Expect: 100-continue`. No TLS, no pipelining, no trailers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

const HEAD_BYTES_MAX: u64 = 64 * 1024;
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// In the order sent, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// Reads one request to its last byte; `None` where the client has closed the connection between two requests.
pub(crate) fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<HttpRequest>> {
    let Some(first) = read_line(reader)? else { return Ok(None) };
    let mut words = first.split(' ');
    let (Some(method), Some(path), Some("HTTP/1.1"), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(invalid(format!("not an HTTP/1.1 request line: {first:?}")));
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?.ok_or_else(|| invalid("the head of a request is cut".to_owned()))?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid(format!("not a header: {line:?}")))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = HttpRequest { method, path, headers, body: Vec::new() };
    if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    request.body = read_body(reader, &request)?;
    Ok(Some(request))
}

fn read_body(reader: &mut BufReader<TcpStream>, request: &HttpRequest) -> io::Result<Vec<u8>> {
    if request.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        return read_chunks(reader);
    }
    let Some(length) = request.header("content-length") else { return Ok(Vec::new()) };
    let length: usize = length.parse().map_err(|_| invalid(format!("not a content length: {length:?}")))?;
    if length > BODY_BYTES_MAX {
        return Err(invalid(format!("a body of {length} bytes")));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(reader: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let cut = || invalid("a chunked body is cut".to_owned());
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?.ok_or_else(cut)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| invalid(format!("not a chunk size: {line:?}")))?;
        if body.len() + size > BODY_BYTES_MAX {
            return Err(invalid("a chunked body without end".to_owned()));
        }
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        if !read_line(reader)?.ok_or_else(cut)?.is_empty() {
            return Err(invalid("a chunk is longer than it says".to_owned()));
        }
        if size == 0 {
            return Ok(body);
        }
    }
}

/// One line without its CRLF; `None` at the end of the stream.
fn read_line(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.by_ref().take(HEAD_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let text = line.strip_suffix(b"\r\n").ok_or_else(|| invalid("a line that does not end in CRLF".to_owned()))?;
    String::from_utf8(text.to_vec()).map(Some).map_err(|_| invalid("a head that is not UTF-8".to_owned()))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
