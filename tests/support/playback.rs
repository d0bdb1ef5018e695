//! How a scripted reply goes over a connection: its chunks and their borders, its pauses, where it is held or cut.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::pairing::Format;
use super::reply::{Body, Reply};
use super::{wire_anthropic, wire_openai};

/// Answers the request with the reply; whether the connection can be kept. `gave_up` ends the wait of a held reply.
pub(super) fn play(
    writer: &mut TcpStream,
    format: Format,
    reply: &Reply,
    request: &Value,
    gave_up: &dyn Fn() -> bool,
) -> io::Result<bool> {
    if let Some(latch) = &reply.held_before_headers {
        latch.wait(gave_up);
    }
    std::thread::sleep(reply.delay_before_headers);
    let streamed = reply.streamed && request["stream"] == true;
    let events = match (&reply.body, format) {
        (Body::Error { status, bytes }, _) => {
            send_document(writer, *status, &reply.headers, bytes)?;
            return Ok(true);
        }
        (Body::Raw(bytes), _) => vec![bytes.clone()],
        (Body::Said, Format::OpenAi) if streamed => wire_openai::stream(reply, request),
        (Body::Said, Format::Anthropic) if streamed => wire_anthropic::stream(reply),
        (Body::Said, Format::OpenAi) => vec![wire_openai::whole(reply).to_string().into_bytes()],
        (Body::Said, Format::Anthropic) => vec![wire_anthropic::whole(reply).to_string().into_bytes()],
    };
    let is_document = matches!(reply.body, Body::Said) && !streamed;
    let media_type = if is_document { "application/json" } else { "text/event-stream" };
    let mut head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked\r\n");
    head += &header_lines(&reply.headers);
    writer.write_all(format!("{head}\r\n").as_bytes())?;
    send_chunks(writer, reply, &borders(reply, events), gave_up)
}

/// The chunks of the body: one an event or one every so many bytes, with a border where the reply is held or cut.
fn borders(reply: &Reply, events: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let chunks: Vec<Vec<u8>> = match reply.chunk_bytes {
        Some(bytes) => events.concat().chunks(bytes).map(<[u8]>::to_vec).collect(),
        None => events,
    };
    let marks = [reply.held_after.as_ref().map(|(bytes, _)| *bytes), reply.cut_after_bytes];
    let mut offset = 0;
    let mut bordered = Vec::new();
    for chunk in chunks {
        let end = offset + chunk.len();
        let mut cuts: Vec<usize> =
            marks.into_iter().flatten().filter(|mark| (offset + 1..end).contains(mark)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut start = offset;
        for cut in cuts.into_iter().chain([end]) {
            bordered.push(chunk[start - offset..cut - offset].to_vec());
            start = cut;
        }
        offset = end;
    }
    bordered
}

fn send_chunks(
    writer: &mut TcpStream,
    reply: &Reply,
    chunks: &[Vec<u8>],
    gave_up: &dyn Fn() -> bool,
) -> io::Result<bool> {
    let mut sent = 0;
    for (index, chunk) in chunks.iter().enumerate() {
        if reply.cut_after_bytes.is_some_and(|bytes| sent >= bytes) {
            return Ok(false);
        }
        if let Some((bytes, latch)) = &reply.held_after
            && sent >= *bytes
        {
            latch.wait(gave_up);
        }
        if index > 0 && reply.delay_between_chunks > Duration::ZERO {
            std::thread::sleep(reply.delay_between_chunks);
        }
        writer.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
        writer.write_all(chunk)?;
        writer.write_all(b"\r\n")?;
        sent += chunk.len();
    }
    if let Some((_, latch)) = &reply.held_after {
        latch.wait(gave_up);
    }
    if reply.cut_after_bytes.is_some() {
        return Ok(false);
    }
    writer.write_all(b"0\r\n\r\n")?;
    Ok(true)
}

pub(super) fn send_document(
    writer: &mut TcpStream,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\n");
    head += &header_lines(headers);
    writer.write_all(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes())?;
    writer.write_all(body)
}

fn header_lines(headers: &[(String, String)]) -> String {
    headers.iter().map(|(name, value)| [name, ": ", value, "\r\n"].concat()).collect()
}
