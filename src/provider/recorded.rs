//! A recorded answer, read as if a service sent it just now: for whoever tries the readers without a network.

use super::http::Answer;
use super::trouble::Service;
use super::{Progress, ProviderError, Reply, anthropic, openai, reading};

/// The wire formats that come over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    OpenAi,
    Anthropic,
}

/// The reply of a recorded answer, or why there is none, and the text and the reasoning that were told on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub reply: Result<Reply, ProviderError>,
    pub text: String,
    pub reasoning: String,
}

/// Reads an answer that comes in these pieces.
pub fn read(format: Format, content_type: &str, pieces: impl IntoIterator<Item = Vec<u8>>) -> Reading {
    let service = Service { provider: "recorded", key_variable: None };
    let mut answer = Answer::recorded(service.provider, content_type, pieces);
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut observe = |progress: Progress<'_>| match progress {
        Progress::Text(delta) => text.push_str(delta),
        Progress::Reasoning(delta) => reasoning.push_str(delta),
        // It voids what was told so far.
        Progress::Retrying { .. } => {
            text.clear();
            reasoning.clear();
        }
    };
    let read = match format {
        Format::OpenAi => reading::read(service, &mut answer, openai::assembly(service), &mut observe),
        Format::Anthropic => reading::read(service, &mut answer, anthropic::assembly(service), &mut observe),
    };
    Reading { reply: read.map_err(|trouble| trouble.error), text, reasoning }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_reply_is_quoted_the_same_in_any_pieces() {
        let bytes = b"the model sleeps\nfrom noon to two\n".to_vec();
        let whole = read(Format::OpenAi, "text/plain", [bytes.clone()]);
        let message = whole.reply.clone().unwrap_err().message;
        assert!(message.contains("sleeps") && message.contains("to two"), "{message}");
        for size in [1, 4, 20] {
            assert_eq!(read(Format::OpenAi, "text/plain", bytes.chunks(size).map(<[u8]>::to_vec)), whole);
        }
    }

    #[test]
    fn what_the_reply_holds_was_told_whatever_a_delta_is_called() {
        let events = [
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"The file "}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"musing_delta","thinking":"first."}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Read."}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
            r#"{"type":"message_stop"}"#,
        ];
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let reading = read(Format::Anthropic, "text/event-stream", [stream.into_bytes()]);
        let reply = reading.reply.unwrap();
        assert_eq!((reply.text, reply.reasoning), (reading.text, reading.reasoning.clone()));
        assert_eq!(reading.reasoning, "The file first.");
    }

    #[test]
    fn what_stands_behind_the_end_is_not_read_in_whatever_piece_it_comes() {
        let chunk = r#"{"choices":[{"index":0,"delta":{"content":"Read."},"finish_reason":"stop"}]}"#;
        let stream = format!("data: {chunk}\n\ndata: [DONE]\n\ndata: no JSON\n\ndata: {{\"error\":\"no\"}}\n\n");
        for size in [1, 10, 100, 1000] {
            let pieces = stream.as_bytes().chunks(size).map(<[u8]>::to_vec);
            let reading = read(Format::OpenAi, "text/event-stream", pieces);
            assert_eq!(reading.reply.map(|reply| reply.text), Ok("Read.".to_owned()), "in pieces of {size} bytes");
        }
    }
}
