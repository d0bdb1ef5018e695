//! The integration tests: one crate, a file a topic.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod support;

mod adversity;
mod asking;
mod bad_input;
mod compaction;
mod decisions;
mod deferral;
mod diff;
mod duplicates;
mod fan_out;
mod fetch;
mod harness_case;
mod harness_log;
mod harness_pairing;
mod harness_server;
mod inventory;
mod limits;
mod links;
mod man;
mod mcp;
mod mcp_peers;
mod options;
mod own_tools;
mod places;
mod provider_anthropic;
mod readme;
mod recipes;
mod results;
mod rules;
mod states;
mod streams;
mod suspension;
mod tampering;
mod turn_grants;
mod undo;
