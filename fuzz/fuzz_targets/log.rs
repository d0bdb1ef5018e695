//! Any bytes as a conversation.jsonl: what must hold for a log, see the library of these targets.

#![no_main]

use std::sync::LazyLock;

use attini_fuzz::{Place, try_log};
use libfuzzer_sys::fuzz_target;

static PLACE: LazyLock<Place> = LazyLock::new(Place::new);

fuzz_target!(|log: &[u8]| try_log(&PLACE, log, None));
