//! The integration tests: one crate, a file a topic.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod support;

mod adversity;
mod bad_input;
mod decisions;
mod deferral;
mod diff;
mod duplicates;
mod fan_out;
mod fan_out_decisions;
mod fan_out_mcp;
mod fan_out_measured;
mod faults;
mod fetch;
mod harness_case;
mod harness_log;
mod harness_pairing;
mod harness_server;
mod interrupts;
mod inventory;
mod limits;
mod links;
mod locks;
mod man;
mod mcp;
mod mcp_peers;
mod options;
mod own_tools;
mod places;
mod provider_anthropic;
mod questions;
mod readme;
mod recipes;
mod results;
mod review;
mod rules;
mod sessions;
mod show;
mod states;
mod streams;
mod suspension;
mod tampering;
mod turn_grants;
mod undo;
