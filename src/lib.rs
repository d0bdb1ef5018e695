//! attini: a stateless, one-shot coding agent.

pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod exit;
pub mod failure;
pub mod interrupt;
pub mod mask;
pub mod permission;
pub mod provider;
pub mod report;
pub mod session;
pub mod tool;
pub mod workspace;
