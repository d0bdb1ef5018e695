//! The integration tests: one crate, a file a topic.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod support;

mod decisions;
mod harness_case;
mod harness_log;
mod harness_pairing;
mod harness_server;
mod inventory;
mod links;
mod man;
mod provider_anthropic;
mod recipes;
mod states;
mod suspension;
mod tampering;
mod turn_grants;
