//! What a path's names alone say: that it may hold secrets, that nothing may be written there, that writing always
//! asks. Where the path lies, and what is there, is none of this module's business.

use std::ffi::OsStr;
use std::path::{Component, Path};

/// Folders that no rule may open for writing, in any case and at any depth.
const GUARDED_NAMES: [&str; 2] = [".git", ".attini"];

/// Files that decide what git or a shell does later: writing them asks, whatever a rule says.
const ASKING_NAMES: [&str; 3] = [".gitattributes", ".gitmodules", ".envrc"];

/// Files that hold secrets, by their whole name.
const SECRET_NAMES: [&str; 14] = [
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "credentials.yml",
    "credentials.yaml",
    "credentials.ini",
    "application_default_credentials.json",
];

/// Files that hold secrets because of the folder they lie in, as the last names of a path.
const SECRET_ENDINGS: [&[&str]; 5] = [
    &[".docker", "config.json"],
    &[".kube", "config"],
    &["gh", "hosts.yml"],
    &[".m2", "settings.xml"],
    &[".gem", "credentials"],
];

/// Whether nothing may ever be written below a folder of that name.
pub fn is_guarded(name: &OsStr) -> bool {
    is_one_of(name, &GUARDED_NAMES)
}

/// Whether writing a file of that name asks, whatever a rule says.
pub fn always_asks(name: &OsStr) -> bool {
    is_one_of(name, &ASKING_NAMES)
}

/// The first component of `path` that no rule may open for writing.
pub fn guarded_component(path: &Path) -> Option<&OsStr> {
    normal_names(path).find(|name| is_guarded(name))
}

/// Whether `path` is named like a file that holds secrets. `.env*` counts for folders as well, so that what lies in
/// `.env/` or `.envs/` is no less secret than `.env` itself.
pub fn is_secret(path: &Path) -> bool {
    let names: Vec<String> = normal_names(path).map(|name| name.to_string_lossy().to_ascii_lowercase()).collect();
    if names.iter().any(|name| name.starts_with(".env")) {
        return true;
    }
    let Some(last) = names.last() else { return false };
    SECRET_NAMES.contains(&last.as_str())
        || last.starts_with("id_")
        || matches!(last.rsplit_once('.'), Some((_, "pem" | "key")))
        || SECRET_ENDINGS.iter().any(|ending| {
            names.len() >= ending.len() && names[names.len() - ending.len()..].iter().eq(ending.iter().copied())
        })
}

fn is_one_of(name: &OsStr, names: &[&str]) -> bool {
    names.iter().any(|one| name.eq_ignore_ascii_case(one))
}

fn normal_names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_by_their_names() {
        let secret = [
            ".env",
            ".env.local",
            "app/.ENV",
            ".envs/production/postgres",
            "server.pem",
            "tls/Server.KEY",
            ".ssh/id_rsa",
            "id_ed25519.pub",
            ".netrc",
            ".npmrc",
            ".pypirc",
            "credentials",
            ".git-credentials",
            ".aws/credentials",
            "/home/me/.docker/config.json",
            ".kube/config",
        ];
        for path in secret {
            assert!(is_secret(Path::new(path)), "{path}");
        }
        let plain = [
            "",
            ".",
            "src/main.rs",
            "env",
            "environment.rs",
            "pem",
            "key.rs",
            "monkey",
            "src/credentials.rs",
            "paid_in.txt",
            "config.json",
            "docker/config.json",
        ];
        for path in plain {
            assert!(!is_secret(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn guarded_folders_are_told_in_any_case_and_depth() {
        for (path, guarded) in [
            (".git/config", true),
            ("a/b/.GIT", true),
            (".Attini/config.toml", true),
            ("/x/.git/y/z", true),
            (".gitignore", false),
            ("git/.github/x", false),
            ("attini", false),
        ] {
            assert_eq!(guarded_component(Path::new(path)).is_some(), guarded, "{path}");
        }
        assert!(always_asks(OsStr::new(".GitAttributes")));
        assert!(always_asks(OsStr::new(".envrc")));
        assert!(!always_asks(OsStr::new(".gitignore")));
    }
}
