//! What a session is on disk, and what its records mean.

pub mod archive;
pub mod check;
pub mod collection;
pub mod folder;
pub mod fork;
pub mod history;
pub mod lock;
pub mod log;
pub mod pending;
pub mod reading;
pub mod record;
pub mod repair;

/// A session's id: 32 hex digits that no other session has.
pub fn new_id() -> String {
    use sha2::{Digest, Sha256};
    let nanoseconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    // The standard library's hasher keys come from the system's random numbers.
    let random = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), nanoseconds);
    let hash = Sha256::digest(format!("{nanoseconds} {} {random}", std::process::id()));
    crate::workspace::git::hex(&hash[..16])
}
