//! A session's folder: its place, its private modes, and the names of what lies in it.

use crate::workspace::root::Root;

/// Mode of session folders.
pub const FOLDER_MODE: u32 = 0o700;
/// Mode of the files in them.
pub const FILE_MODE: u32 = 0o600;

/// An existing session folder, opened without following links.
#[derive(Debug)]
pub struct SessionFolder {
    pub name: String,
    pub root: Root,
}
