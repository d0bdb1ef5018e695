//! A rule's path: what it resolves to, and what lies under it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows before it gives up.
const LINKS_MAX: usize = 40;

/// The absolute path that `written` means in the workspace at `root`, links followed as far as the path exists and
/// `..` taken away by what it leads to. What does not exist is taken as written.
pub(super) fn resolve(root: &Path, written: &str) -> PathBuf {
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
pub(super) fn covers(rule: &Path, path: &Path) -> bool {
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
