//! Gathers what a plan needs to know of paths and of the files they name.
//!
//! A minimal stand-in: it resolves lexically and with the system's own link resolution, knows no secrets, and no git.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{FileState, Kind, Location, Place, World};
use crate::tool::Surroundings;

/// Puts a location for each of `paths`, and the state of each file they name, into `world`.
pub fn gather(paths: &[&str], surroundings: &Surroundings<'_>, world: &mut World) {
    for path in paths {
        let location = locate(path, surroundings);
        world.files.insert(location.absolute.clone(), state(&location, surroundings));
        world.locations.insert((*path).to_owned(), Ok(location));
    }
}

fn locate(path: &str, surroundings: &Surroundings<'_>) -> Location {
    let root = surroundings.workspace.root.path();
    let mut absolute = PathBuf::new();
    for component in root.join(path).components() {
        match component {
            Component::ParentDir => {
                absolute.pop();
            }
            other => absolute.push(other),
        }
        if let Ok(real) = absolute.canonicalize() {
            absolute = real;
        }
    }
    let (place, relative) = match absolute.strip_prefix(root) {
        Ok(relative) => (Place::Workspace, relative.to_owned()),
        Err(_) => (Place::Outside, absolute.clone()),
    };
    let shown = if relative.as_os_str().is_empty() { ".".to_owned() } else { relative.display().to_string() };
    let kind = match absolute.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => Kind::File,
        Ok(metadata) if metadata.is_dir() => Kind::Folder,
        Ok(_) => Kind::Other,
        Err(_) => Kind::Absent,
    };
    let named = |name: &str| absolute.components().any(|component| component.as_os_str() == name);
    Location {
        place,
        shown,
        kind,
        secret: named(".env"),
        never_writable: named(".git").then(|| "it is in .git".to_owned()),
        always_asks: named(".gitattributes"),
        path: relative,
        absolute,
    }
}

fn state(location: &Location, surroundings: &Surroundings<'_>) -> FileState {
    use std::os::unix::fs::MetadataExt;
    let bytes = fs_err::read(&location.absolute).ok();
    let sha256 = bytes.as_ref().map(|bytes| format!("{:x}", HexOf(&Sha256::digest(bytes))));
    let mode = Path::new(&location.absolute).metadata().map_or(0, |metadata| metadata.mode());
    let written = surroundings.written.get(&location.shown);
    let revertible = match &sha256 {
        Some(sha256) if written == Some(sha256) => Ok("attini wrote it".to_owned()),
        _ => Err("it is not tracked by git".to_owned()),
    };
    FileState { bytes: bytes.map(Arc::from), sha256, mode, revertible }
}

struct HexOf<'a>(&'a [u8]);

impl std::fmt::LowerHex for HexOf<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}
