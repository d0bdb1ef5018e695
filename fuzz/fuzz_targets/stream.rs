//! Any bytes as a service's answer, in both wire formats: however they are cut into pieces, the same comes of them, and
//! what was told on the way is what the reply holds. What the format is and how they are cut follows from the
//! bytes.

#![no_main]

use attini::provider::recorded::{Format, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    // A recorded stream begins with `data:` or with `event:`, and so is tried in its own format.
    let choice = body.first().copied().unwrap_or_default();
    let format = if choice % 2 == 0 { Format::OpenAi } else { Format::Anthropic };
    let content_type = if choice % 4 < 2 { "text/event-stream" } else { "" };
    let size = 1 + body.iter().map(|byte| usize::from(*byte)).sum::<usize>() % 97;
    let whole = read(format, content_type, [body.to_vec()]);
    let cut_up = read(format, content_type, body.chunks(size).map(<[u8]>::to_vec));
    assert_eq!(whole, cut_up, "in pieces of {size} bytes something else comes of it");
    if let Ok(reply) = &whole.reply {
        assert_eq!(letters(&reply.text), letters(&whole.text), "told was something else");
        assert_eq!(letters(&reply.reasoning), letters(&whole.reasoning), "told was something else");
    }
});

/// What a text consists of. Blocks that come interleaved are told as they come and stand in the reply by their number.
fn letters(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}
