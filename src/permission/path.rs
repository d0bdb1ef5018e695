//! A rule's path: what it resolves to, and what lies under it.
//!
//! A path that lies in the workspace as it is written names a place in the workspace: if a link leads it out, a rule
//! that allows opens nothing there, since the link may be younger than the rule, and made by whoever is to be held by
//! it. Links between places of the workspace are followed. What lies outside is opened by a rule that says so itself,
//! by an absolute path or by `..`; such a path is followed wherever it leads. A rule that denies follows every link:
//! wherever it led, it only takes away.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows before it gives up.
const LINKS_MAX: usize = 40;

/// What a rule's written path comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RulePath {
    /// Absolute, links followed.
    pub(super) resolved: PathBuf,
    /// Written as a place in the workspace, but led out of it by a link.
    pub(super) strays: bool,
}

impl RulePath {
    pub(super) fn new(root: &Path, written: &str) -> Self {
        let resolved = resolve(root, written);
        let strays = is_written_inside(root, written) && !resolved.starts_with(root);
        Self { resolved, strays }
    }

    /// Whether the path that an access resolved to is this one or lies under it, for a rule that allows or denies.
    pub(super) fn covers(&self, path: &Path, allow: bool) -> bool {
        covers(&self.resolved, path) && !(allow && self.strays)
    }
}

/// Whether the path lies in the workspace by its letters alone, no link followed.
fn is_written_inside(root: &Path, written: &str) -> bool {
    let mut lexical = PathBuf::from("/");
    for part in parts(&root.join(written)) {
        if part == ".." {
            lexical.pop();
        } else {
            lexical.push(part);
        }
    }
    lexical.starts_with(root)
}

/// The absolute path that `written` means in the workspace at `root`, links followed as far as the path exists and
/// `..` taken away by what it leads to. What does not exist is taken as written.
fn resolve(root: &Path, written: &str) -> PathBuf {
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    let mut left: VecDeque<OsString> = parts(&root.join(written)).collect();
    while let Some(part) = left.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let path = resolved.join(&part);
        match fs_err::read_link(&path) {
            Ok(target) if links < LINKS_MAX => {
                links += 1;
                if target.is_absolute() {
                    resolved = PathBuf::from("/");
                }
                for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    left.push_front(part);
                }
            }
            // It is no link, or does not exist.
            Ok(_) | Err(_) => resolved = path,
        }
    }
    resolved
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Whether `path` is the rule's path or lies under it, by whole segments.
fn covers(rule: &Path, path: &Path) -> bool {
    path.starts_with(rule)
}

/// How a rule writes this path: relative to the workspace where it lies inside. `None`: JSON cannot hold it.
pub(super) fn written(root: &Path, path: &Path) -> Option<String> {
    let text = match path.strip_prefix(root) {
        Ok(relative) if relative.as_os_str().is_empty() => ".",
        Ok(relative) => relative.to_str()?,
        Err(_) => path.to_str()?,
    };
    // A rule takes a bare `~` for a mistake.
    if text == "~" || text.starts_with("~/") { Some(format!("./{text}")) } else { Some(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let root = base.join("w");
        fs_err::create_dir_all(root.join("src/deep")).unwrap();
        fs_err::create_dir_all(base.join("shared/inner")).unwrap();
        let link = std::os::unix::fs::symlink::<&str, PathBuf>;
        link("../shared/inner", root.join("out")).unwrap();
        link("loop", root.join("loop")).unwrap();
        link("nowhere/x", root.join("dangling")).unwrap();
        for (written, expected) in [
            (".", root.clone()),
            ("src", root.join("src")),
            ("./src//deep/", root.join("src/deep")),
            ("src/../x", root.join("x")),
            ("../shared", base.join("shared")),
            ("out", base.join("shared/inner")),
            ("out/new", base.join("shared/inner/new")),
            ("out/..", base.join("shared")),
            ("dangling", root.join("nowhere/x")),
            ("absent/a/../b", root.join("absent/b")),
            ("/", PathBuf::from("/")),
            ("/../..", PathBuf::from("/")),
            ("loop", root.join("loop")),
        ] {
            assert_eq!(resolve(&root, written), expected, "{written}");
        }
    }

    #[test]
    fn only_a_path_that_says_so_opens_what_is_outside() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let root = base.join("w");
        fs_err::create_dir_all(root.join("src")).unwrap();
        fs_err::create_dir_all(base.join("outside")).unwrap();
        let link = std::os::unix::fs::symlink::<&str, PathBuf>;
        link("../outside", root.join("dir")).unwrap();
        link("src", root.join("within")).unwrap();
        link("../w/src", root.join("round")).unwrap();
        link("w", base.join("alias")).unwrap();
        let outside = base.join("outside/n");
        let absolute = |name: &str| root.join(name).to_str().unwrap().to_owned();
        for (written, target, strays) in [
            ("dir/n".to_owned(), outside.clone(), true),
            ("dir".to_owned(), outside.clone(), true),
            ("./src/../dir/n".to_owned(), outside.clone(), true),
            (absolute("dir/n"), outside.clone(), true),
            ("../w/dir/n".to_owned(), outside.clone(), true),
            ("dir/../outside".to_owned(), outside.clone(), true),
            ("../outside".to_owned(), outside.clone(), false),
            ("dir/../../outside".to_owned(), base.join("x"), false),
            ("../alias/dir".to_owned(), outside.clone(), false),
            (base.join("outside").to_str().unwrap().to_owned(), outside.clone(), false),
            ("within".to_owned(), root.join("src/n"), false),
            ("round/n".to_owned(), root.join("src/n"), false),
            (".".to_owned(), root.join("src/n"), false),
        ] {
            let path = RulePath::new(&root, &written);
            assert_eq!(path.strays, strays, "{written}");
            let is_under = target.starts_with(&path.resolved);
            assert_eq!(path.covers(&target, false), is_under, "{written}: a denial");
            assert_eq!(path.covers(&target, true), is_under && !strays, "{written}: an allowance");
        }
    }

    #[test]
    fn whole_segments_are_compared() {
        for (rule, path, expected) in [
            ("/w/src", "/w/src", true),
            ("/w/src", "/w/src/a", true),
            ("/w/src", "/w/src2", false),
            ("/w/src/a", "/w/src", false),
            ("/", "/w", true),
        ] {
            assert_eq!(covers(Path::new(rule), Path::new(path)), expected, "{rule} {path}");
        }
        assert_eq!(written(Path::new("/w"), Path::new("/w/a/b")).as_deref(), Some("a/b"));
        assert_eq!(written(Path::new("/w"), Path::new("/w")).as_deref(), Some("."));
        assert_eq!(written(Path::new("/w"), Path::new("/x/a")).as_deref(), Some("/x/a"));
        assert_eq!(written(Path::new("/w"), Path::new("/w/~/a")).as_deref(), Some("./~/a"));
    }
}
