//! Resolves the paths of a call into facts for the plan.

use crate::tool::{Refusal, Surroundings};
use crate::workspace::{Kind, Location, Place, World};

/// Resolves each of `paths`, relative to the workspace, into `world.locations`.
pub fn gather(paths: &[&str], surroundings: &Surroundings<'_>, world: &mut World) {
    for &path in paths {
        world.locations.insert(path.to_owned(), resolve(path, surroundings));
    }
}

fn resolve(path: &str, surroundings: &Surroundings<'_>) -> Result<Location, Refusal> {
    let root = surroundings.workspace.root.path();
    let absent = |error: std::io::Error| Refusal::new("not_found", format!("{path}: {error}"));
    let absolute = root.join(path).canonicalize().map_err(absent)?;
    let metadata = absolute.metadata().map_err(absent)?;
    let kind = match (metadata.is_dir(), metadata.is_file()) {
        (true, _) => Kind::Folder,
        (false, true) => Kind::File,
        (false, false) => Kind::Other,
    };
    let (place, path) = match absolute.strip_prefix(root) {
        Ok(relative) => (Place::Workspace, relative.to_path_buf()),
        Err(_) => (Place::Outside, absolute.clone()),
    };
    let shown = match path.to_string_lossy() {
        shown if shown.is_empty() => ".".to_owned(),
        shown => shown.into_owned(),
    };
    Ok(Location { place, shown, path, absolute, kind, secret: false, never_writable: None, always_asks: false })
}
