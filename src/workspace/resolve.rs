//! From a path as the model wrote it to where it really leads: links followed, `..` taken away, judged by what it
//! resolves to. Opening happens beneath the root, with the resolved path, so that a swap in between does not win.
//!
//! Nothing here decides whether a call may run; it only states facts.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::names;
use super::{Kind, Location, Place, Workspace};
use crate::session::folder::SessionFolder;
use crate::tool::Refusal;

/// What names the session's own files.
pub const SESSION_PREFIX: &str = "session:";
/// The longest path that is looked at, as written.
const PATH_BYTES_MAX: usize = 4096;
/// How many links one path may lead through; the kernel's own bound.
const LINKS_MAX: usize = 40;
/// The longest `.git` file that is read.
const GIT_FILE_BYTES_MAX: u64 = 8192;
/// The session's folders that the model may look into.
const SESSION_FOLDERS: [&str; 3] = ["outputs", "tasks", "scratchpad"];
/// The session's file that the model may look into.
const SESSION_FILE: &str = "conversation.jsonl";
/// The session's folder that the model may write to.
const SCRATCHPAD: &str = "scratchpad";
const IN_GIT_DIRECTORY: &str = "it lies in a git directory";
const IN_OWN_PLACE: &str = "it lies where attini keeps its own files";

/// Where a path led.
struct Followed {
    absolute: PathBuf,
    kind: Kind,
    /// The names of the links on the way: a link called `.git` is as guarded as a folder of that name.
    links: Vec<OsString>,
}

impl Workspace {
    /// Resolves a path as the model wrote it: relative to the workspace, absolute, or `session:PATH`. What does not
    /// exist yet is a location too ([`Kind::Absent`]): where it would be made.
    pub fn locate(&self, written: &str, session: Option<&SessionFolder>) -> Result<Location, Refusal> {
        if written.is_empty() {
            return Err(Refusal::new("invalid_arguments", "the path is empty; the workspace itself is `.`"));
        }
        if written.contains('\0') {
            return Err(Refusal::new("invalid_arguments", "the path holds a NUL byte"));
        }
        if written.len() > PATH_BYTES_MAX {
            return Err(Refusal::new("invalid_arguments", format!("the path is longer than {PATH_BYTES_MAX} bytes")));
        }
        if let Some(inner) = written.strip_prefix(SESSION_PREFIX) {
            return locate_in_session(inner, written, session);
        }
        let followed = follow(self.root.path(), Path::new(written), written)?;
        self.judge(followed, written, session)
    }

    fn judge(&self, followed: Followed, written: &str, session: Option<&SessionFolder>) -> Result<Location, Refusal> {
        let never_writable = self.never_writable(&followed, session);
        let Followed { absolute, kind, links } = followed;
        let (place, path) = match absolute.strip_prefix(self.root.path()) {
            Ok(relative) if relative == Path::new("") => (Place::Workspace, PathBuf::from(".")),
            Ok(relative) => (Place::Workspace, relative.to_owned()),
            Err(_) => (Place::Outside, absolute.clone()),
        };
        let Some(shown) = path.to_str().map(str::to_owned) else {
            return Err(Refusal::new("invalid_arguments", format!("`{written}` leads to a name that is not UTF-8")));
        };
        let secret = names::is_secret(&path) || links.iter().any(|name| names::is_secret(Path::new(name)));
        let always_asks =
            absolute.file_name().is_some_and(names::always_asks) || links.iter().any(|name| names::always_asks(name));
        Ok(Location { place, shown, path, absolute, kind, secret, never_writable, always_asks })
    }

    /// Why nothing may be written to where a path led, whatever a rule says.
    fn never_writable(&self, followed: &Followed, session: Option<&SessionFolder>) -> Option<String> {
        if let Some(name) = followed.links.iter().find(|name| names::is_guarded(name)) {
            return Some(format!("it is reached through the link {}", name.display()));
        }
        let scratchpad = session.map(|session| session.root.path().join(SCRATCHPAD));
        // Of the session's own scratchpad only what lies inside it counts.
        if let Some(scratchpad) = scratchpad
            && let Ok(inside) = followed.absolute.strip_prefix(&scratchpad)
        {
            return never_writable_inside(&scratchpad, inside);
        }
        if let Some(name) = names::guarded_component(&followed.absolute) {
            return Some(format!("it lies in a {} folder", name.display()));
        }
        if self.own_places.hold(&followed.absolute) {
            return Some(IN_OWN_PLACE.to_owned());
        }
        if lies_in_git_directory(followed.absolute.ancestors().skip(1)) {
            return Some(IN_GIT_DIRECTORY.to_owned());
        }
        let mut looked_at: Vec<&Path> = self.root.path().ancestors().collect();
        looked_at.extend(followed.absolute.ancestors().filter(|folder| !self.root.path().starts_with(folder)));
        let pointed = looked_at.into_iter().flat_map(git_folders).find(|folder| followed.absolute.starts_with(folder));
        pointed.map(|_| "it lies in the folder that a .git file points to".to_owned())
    }
}

fn locate_in_session(inner: &str, written: &str, session: Option<&SessionFolder>) -> Result<Location, Refusal> {
    let Some(session) = session else {
        return Err(Refusal::new("not_found", format!("`{written}` names a session's file, and there is no session")));
    };
    let mut path = PathBuf::new();
    for component in Path::new(inner).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                let message = format!("`{written}` may not leave the session; write no `..` and no absolute path");
                return Err(Refusal::new("outside_reach", message));
            }
        }
    }
    let first = path.components().next().map(|component| component.as_os_str().to_owned()).unwrap_or_default();
    let reachable = SESSION_FOLDERS.iter().any(|name| first == *name) || path == Path::new(SESSION_FILE);
    if !reachable {
        return Err(Refusal::new("outside_reach", format!("`{written}` is not among the session's readable files"))
            .detail("session:outputs/, session:tasks/, session:scratchpad/ and session:conversation.jsonl"));
    }
    let kind = match session.root.metadata(&path) {
        Ok(metadata) => match kind_of(FileType::from_raw_mode(metadata.st_mode)) {
            Some(kind) => kind,
            None => return Err(session_link(written)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Kind::Absent,
        Err(error) if is_link_error(&error) => return Err(session_link(written)),
        Err(error) => return Err(Refusal::new("io_error", format!("cannot look at `{written}`: {error}"))),
    };
    let never_writable = if first == SCRATCHPAD {
        let inside = path.strip_prefix(SCRATCHPAD).unwrap_or(&path);
        never_writable_inside(&session.root.path().join(SCRATCHPAD), inside)
    } else {
        Some("of the session's files only those in session:scratchpad/ can be written".to_owned())
    };
    let absolute = session.root.path().join(&path);
    let always_asks = path.file_name().is_some_and(names::always_asks);
    // Built from the text of the call, so it is UTF-8.
    let shown = format!("{SESSION_PREFIX}{}", path.display());
    Ok(Location { place: Place::Session, shown, path, absolute, kind, secret: false, never_writable, always_asks })
}

fn session_link(written: &str) -> Refusal {
    Refusal::new("outside_reach", format!("`{written}` leads through a link or a file; nothing is followed there"))
}

/// Whether an opening beneath a root failed because a link, or something that is no folder, is on the way.
pub fn is_link_error(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(rustix::io::Errno::LOOP.raw_os_error()) || code == Some(rustix::io::Errno::NOTDIR.raw_os_error())
}

/// Follows `written` from `start` by hand, so that a missing tail has a place too and every link is seen.
fn follow(start: &Path, written: &Path, shown: &str) -> Result<Followed, Refusal> {
    let mut current = start.to_owned();
    let mut links = Vec::new();
    // What is still ahead, the next one last.
    let mut ahead: Vec<Step> = steps(written);
    while let Some(step) = ahead.pop() {
        let name = match step {
            Step::Root => {
                current = PathBuf::from("/");
                continue;
            }
            Step::Up => {
                current.pop();
                continue;
            }
            Step::Into(name) => name,
        };
        let next = current.join(&name);
        match next.symlink_metadata() {
            Ok(metadata) if metadata.file_type().is_symlink() => {
                if links.len() == LINKS_MAX {
                    let message = format!("`{shown}` leads through more than {LINKS_MAX} links, maybe in a circle");
                    return Err(Refusal::new("link_loop", message));
                }
                let target = next.read_link().map_err(|error| unreadable(shown, &error))?;
                ahead.extend(steps(&target));
                links.push(name);
            }
            Ok(_) => current = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => current = next,
            Err(error) => return Err(unreadable(shown, &error)),
        }
    }
    let kind = match current.symlink_metadata() {
        Ok(metadata) if metadata.file_type().is_symlink() => {
            return Err(Refusal::new("stale", format!("`{shown}` changed while it was looked at")));
        }
        Ok(metadata) if metadata.is_file() => Kind::File,
        Ok(metadata) if metadata.is_dir() => Kind::Folder,
        Ok(_) => Kind::Other,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Kind::Absent,
        Err(error) => return Err(unreadable(shown, &error)),
    };
    Ok(Followed { absolute: current, kind, links })
}

/// Where an absolute path leads, links followed as far as it exists; `None` where that cannot be known.
pub(super) fn resolved(path: &Path) -> Option<PathBuf> {
    follow(Path::new("/"), path, "").ok().map(|followed| followed.absolute)
}

enum Step {
    Root,
    Up,
    Into(OsString),
}

/// The steps of a path, the first one last.
fn steps(path: &Path) -> Vec<Step> {
    let forward = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(Step::Into(name.to_owned())),
        Component::ParentDir => Some(Step::Up),
        Component::RootDir | Component::Prefix(_) => Some(Step::Root),
        Component::CurDir => None,
    });
    let mut steps: Vec<Step> = forward.collect();
    steps.reverse();
    steps
}

fn unreadable(shown: &str, error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotADirectory => {
            Refusal::new("not_a_folder", format!("`{shown}` leads through a file as if it were a folder"))
        }
        io::ErrorKind::InvalidFilename => {
            Refusal::new("invalid_arguments", format!("`{shown}` holds a name that is too long"))
        }
        _ => Refusal::new("io_error", format!("cannot look at `{shown}`: {error}")),
    }
}

/// `None`: a link.
fn kind_of(file_type: FileType) -> Option<Kind> {
    if file_type.is_symlink() {
        None
    } else if file_type.is_file() {
        Some(Kind::File)
    } else if file_type.is_dir() {
        Some(Kind::Folder)
    } else {
        Some(Kind::Other)
    }
}

/// Why nothing may be written at `inside`, by what lies below `top` alone.
fn never_writable_inside(top: &Path, inside: &Path) -> Option<String> {
    if let Some(name) = names::guarded_component(inside) {
        return Some(format!("it lies in a {} folder", name.display()));
    }
    let path = top.join(inside);
    let folders = path.ancestors().skip(1).take_while(|folder| *folder != top);
    lies_in_git_directory(folders).then(|| IN_GIT_DIRECTORY.to_owned())
}

/// Whether one of these folders, given from the innermost outwards, is a git directory, whatever its name and whoever
/// points to it. The search ends at the top of a work tree: a linked one may lie inside a bare repository, and its files
/// are no less ordinary for that.
fn lies_in_git_directory<'p>(folders: impl Iterator<Item = &'p Path>) -> bool {
    for folder in folders {
        if is_git_directory(folder) {
            return true;
        }
        if git_folders(folder).iter().any(|git| is_git_directory(git)) {
            return false;
        }
    }
    false
}

/// Whether git would take `folder` for a repository's own: `HEAD`, and objects and refs or the path to where they are.
fn is_git_directory(folder: &Path) -> bool {
    let is_folder = |name: &str| folder.join(name).is_dir();
    // HEAD may be a link that leads to a branch not yet born.
    folder.join("HEAD").symlink_metadata().is_ok()
        && ((is_folder("objects") && is_folder("refs")) || folder.join("commondir").symlink_metadata().is_ok())
}

/// The real folders that `.git` in `folder` stands for: where a link or a `gitdir:` file points to, and the common
/// folder of a linked worktree.
fn git_folders(folder: &Path) -> Vec<PathBuf> {
    let resolved = |start: &Path, path: &Path| follow(start, path, ".git").ok();
    let entry = folder.join(".git");
    if entry.symlink_metadata().is_err() {
        return Vec::new();
    }
    let Some(mut git) = resolved(folder, Path::new(".git")) else { return Vec::new() };
    if git.kind == Kind::File {
        let Some(target) = pointer(&git.absolute, "gitdir:") else { return Vec::new() };
        let Some(pointed) = resolved(folder, Path::new(&target)) else { return Vec::new() };
        git = pointed;
    }
    let common =
        pointer(&git.absolute.join("commondir"), "").and_then(|path| resolved(&git.absolute, Path::new(&path)));
    let mut folders = vec![git.absolute];
    folders.extend(common.map(|common| common.absolute));
    // A pointer to the root, or above the workspace's own files, would forbid everything.
    folders.retain(|pointed| !folder.starts_with(pointed));
    folders
}

/// The path in a one-line file behind `prefix`.
fn pointer(file: &Path, prefix: &str) -> Option<OsString> {
    use std::io::Read;
    use std::os::unix::ffi::OsStringExt;
    if !file.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs_err::File::open(file).ok()?.take(GIT_FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let path = bytes.strip_prefix(prefix.as_bytes())?.trim_ascii();
    if path.is_empty() || path.contains(&0) {
        return None;
    }
    Some(OsString::from_vec(path.to_vec()))
}

#[cfg(test)]
mod tests;
