//! The integration tests: one crate, a file a topic.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod support;

mod harness_case;
mod harness_log;
mod harness_pairing;
mod harness_server;
mod inventory;
mod man;
mod mcp;
mod mcp_peers;
