//! Where a program that attini itself runs is found: at an absolute path of PATH.
//!
//! A relative entry (`.`, or an empty one) names another folder in each workspace, and a workspace that nobody trusts may
//! hold a program of any name. What a person or a model asks to run is looked up elsewhere, and as it always was.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Where the system looks without a PATH.
const DEFAULT_PATH: &str = "/usr/bin:/bin";

/// The absolute entries of this process's PATH, for the program's own children as well.
pub fn absolute_path() -> OsString {
    absolute_entries(std::env::var_os("PATH").as_deref())
}

/// The program of that name in the absolute entries of `path`; `None`: there is none.
pub fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    // An empty path is one empty entry.
    std::env::split_paths(path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|program| {
        let metadata = std::fs::metadata(program);
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

fn absolute_entries(path: Option<&OsStr>) -> OsString {
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let entries = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    // What was split at colons holds none.
    std::env::join_paths(entries).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_entries_are_left_out() {
        for (path, expected) in [
            ("/usr/bin:/bin", "/usr/bin:/bin"),
            (".:/usr/bin", "/usr/bin"),
            (":/usr/bin:", "/usr/bin"),
            ("bin:/a::./b:../c:/d", "/a:/d"),
            (".", ""),
            ("", ""),
        ] {
            assert_eq!(absolute_entries(Some(OsStr::new(path))), expected, "{path}");
        }
        assert_eq!(absolute_entries(None), DEFAULT_PATH);
    }

    #[test]
    fn the_first_program_of_the_name_is_found() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("a/tool", 0o644), ("c/tool", 0o755), ("d/tool", 0o755)] {
            let path = folder.path().join(name);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(&path, "").unwrap();
            fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        fs_err::create_dir_all(folder.path().join("b/tool")).unwrap();
        let path = std::env::join_paths(["a", "b", "c", "d"].map(|name| folder.path().join(name))).unwrap();
        assert_eq!(find("tool", &path), Some(folder.path().join("c/tool")));
        assert_eq!(find("other", &path), None);
        let here = std::env::current_dir().unwrap();
        let top = "../".repeat(here.components().count());
        let relative = format!("{top}{}", folder.path().join("c").strip_prefix("/").unwrap().display());
        assert!(std::path::Path::new(&relative).join("tool").exists());
        for path in ["", &relative, &format!(":{relative}:.")] {
            assert_eq!(find("tool", OsStr::new(path)), None);
        }
    }
}
