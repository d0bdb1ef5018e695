//! What the integration tests stand on: a hermetic place to run attini in ([`Case`]), a model service that refuses
//! what real ones refuse ([`ModelServer`]), and whole expectations with what changes from run to run redacted.
//!
//! Nothing here uses attini's own code: what is checked must not be checked by itself.
#![allow(dead_code, unused_imports, reason = "each topic uses its own part of the harness")]

mod calls;
mod case;
mod continuity;
mod http;
mod invocation;
mod log;
mod model_server;
mod outcome;
mod pages;
mod pairing;
mod pairing_anthropic;
mod pairing_openai;
mod peer;
mod playback;
mod recorded;
mod redact;
mod reply;
mod session_folder;
mod snapshot;
mod terminal;
mod wire_anthropic;
mod wire_openai;

pub(crate) use calls::{mark, mark_rule, pending_digest};
pub(crate) use case::{ANTHROPIC_KEY, Case, KEYS, OPENAI_KEY, fixture, json_lines, repository_path};
pub(crate) use invocation::{Invocation, Running, wait_until};
pub(crate) use log::check_log;
pub(crate) use model_server::ModelServer;
pub(crate) use outcome::{Ended, Outcome};
pub(crate) use pages::{Pages, SLOW};
pub(crate) use pairing::{Format, check_anthropic, check_openai};
pub(crate) use peer::{Peer, peer_path, peers_folder};
pub(crate) use recorded::RecordedRequest;
pub(crate) use redact::Redactor;
pub(crate) use reply::{Latch, Reply, reply};
pub(crate) use session_folder::check_session_folder;
pub(crate) use snapshot::{assert_text_eq, expect_file};
pub(crate) use wire_anthropic::SIGNATURE;

use std::time::Duration;

/// No single wait of a test, and no run of attini, takes longer than this.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
