//! attini: a stateless, one-shot coding agent.
//!
//! One invocation loads a session's conversation from files, runs one turn, and exits. This is the map.
//!
//! # The life of a call
//!
//! A model's reply asks for calls; each ends in exactly one result, whatever dies in between. [`call`] holds its stages,
//! a file each; [`turn`] drives them: it applies, records, and only then tells.
//!
//! ```text
//! provider ──reply──▶ call::proposed ──▶ checked ──▶ decided / settled ──▶ planned ──▶ executed ──▶ committed
//!                      (ids)             (schema)    (rules / a person)    (pure)      (permit)     (record, event)
//! ```
//!
//! # The files
//!
//! Everything attini knows is in files ([`session`]): `conversation.jsonl` is the truth, a call in it without a result
//! is what "pending" means, and `pending.json` only adds why it waits, what was shown, and what was decided. Rules are
//! in `permissions.jsonl` ([`permission`]), settings in `config.toml` ([`config`]).
//!
//! # The invariants
//!
//! 1. Every call of every reply has exactly one result before the next request goes out.
//! 2. A result is on disk before it is an event or part of a request, and is never produced again.
//! 3. What can have effects runs only with a [`call::decided::Permit`], and with its start on disk.
//! 4. A path that was judged is the path that is opened ([`workspace`]).
//!
//! # The rest
//!
//! [`tool`]: one file a built-in tool. [`mcp`]: the tools of MCP servers, and the only place with an async runtime. [`provider`]: one file a wire format. [`report`]: events, text, JSON, and the
//! escaping of everything that comes from outside. [`cli`] and [`command`]: the command line, one file a subcommand.
//! [`exit`] and [`failure`]: how it can end, and what is told of it. [`crash`]: what becomes of a panic. [`interrupt`]:
//! what ends it from outside. [`terminal`]: a person at one, a key or a line at a time. [`mask`]: what keeps keys out of everything. [`clock`]: the time as it is written.

pub mod call;
pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod crash;
pub mod exit;
pub mod failure;
pub mod http;
pub mod interrupt;
pub mod mask;
pub mod mcp;
pub mod permission;
pub mod provider;
pub mod report;
pub mod session;
pub mod terminal;
pub mod tool;
pub mod turn;
pub mod workspace;
