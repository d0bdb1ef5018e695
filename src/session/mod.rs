//! What a session is on disk, and what its records mean.

pub mod folder;
pub mod pending;
pub mod record;
