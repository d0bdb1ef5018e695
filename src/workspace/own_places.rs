//! Where attini keeps what decides on the model's calls, outside of any `.attini` folder: the user's config and rules,
//! trust.json, a state folder elsewhere. Such a place may lie in the workspace under any name, and be an ordinary file
//! of it by all else that is known.
//!
//! Nothing is read or written here; it only says whether a path is such a place.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::resolve::resolved;

/// Files, and folders with all that they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnPlaces {
    absolute: Vec<PathBuf>,
}

impl OwnPlaces {
    /// Absolute paths; they need not exist.
    pub fn new(absolute: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { absolute: absolute.into_iter().collect() }
    }

    /// Whether a path without links is such a place or lies in one. Links on the way to a place are followed now, since
    /// they may have been laid since the last time; what exists is also known by its device and number, whatever name it
    /// goes by. Letters are compared in any case, as for `.attini`.
    pub fn hold(&self, path: &Path) -> bool {
        self.absolute.iter().any(|place| {
            let place = resolved(place).unwrap_or_else(|| place.clone());
            lies_in(path, &place) || is_same_as_one_above(path, &place)
        })
    }
}

fn lies_in(path: &Path, place: &Path) -> bool {
    let mut names = path.components();
    place.components().all(|wanted| {
        names.next().is_some_and(|name| name.as_os_str().as_bytes().eq_ignore_ascii_case(wanted.as_os_str().as_bytes()))
    })
}

fn is_same_as_one_above(path: &Path, place: &Path) -> bool {
    let identity = |path: &Path| path.symlink_metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let Some(wanted) = identity(place) else { return false };
    path.ancestors().any(|one| identity(one) == Some(wanted))
}
