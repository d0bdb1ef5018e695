//! What exists near a path that does not: for the message that tells a model so.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::walk::{self, Filter};
use super::{Location, Place, Workspace, names};
use crate::session::folder::SessionFolder;

/// How many paths are suggested.
const SUGGESTIONS_MAX: usize = 5;
/// How many entries of the workspace are looked at for a file of the same name.
const ENTRIES_MAX: usize = 20_000;
/// How alike two names must be, from 0 to 1.
const LIKENESS_MIN: f64 = 0.75;

impl Workspace {
    /// The existing paths nearest to an absent one, as the model would write them: files of the same name elsewhere in
    /// the workspace, then names like the missing one where the path breaks off. Nothing is told of what lies outside.
    pub fn nearest(&self, location: &Location, session: Option<&SessionFolder>) -> Vec<String> {
        if location.place == Place::Outside {
            return Vec::new();
        }
        let Ok((root, path)) = self.root_for(location, session) else { return Vec::new() };
        let mut found = match (location.place, path.file_name()) {
            (Place::Workspace, Some(name)) => self.same_name(name),
            (Place::Workspace | Place::Session | Place::Outside, _) => Vec::new(),
        };
        for similar in similar_names(&root, &path) {
            if found.len() < SUGGESTIONS_MAX && !found.contains(&similar) {
                found.push(similar);
            }
        }
        let prefix = if location.place == Place::Session { super::resolve::SESSION_PREFIX } else { "" };
        found.iter().map(|path| format!("{prefix}{}", path.display())).collect()
    }

    fn same_name(&self, name: &OsStr) -> Vec<PathBuf> {
        let Ok(whole) = self.locate(".", None) else { return Vec::new() };
        let (walk, _) = walk::builder(
            &whole,
            &Filter { hidden: false, glob: None, depth: None, read_denials: crate::permission::ReadDenials::default() },
        );
        walk.build()
            .take(ENTRIES_MAX)
            .filter_map(Result::ok)
            .filter(|entry| entry.depth() > 0 && entry.file_name().eq_ignore_ascii_case(name))
            .filter_map(|entry| entry.path().strip_prefix(self.root.path()).ok().map(Path::to_owned))
            .take(SUGGESTIONS_MAX)
            .collect()
    }
}

/// Names like the first missing component of `path`, in the folder that should hold it. Where the rest of the path
/// exists below such a name, that is what is meant.
fn similar_names(root: &super::root::Root, path: &Path) -> Vec<PathBuf> {
    let mut folder = PathBuf::new();
    let mut rest = path.components().map(std::path::Component::as_os_str);
    let missing = loop {
        let Some(name) = rest.next() else { return Vec::new() };
        if root.metadata(&folder.join(name)).is_err() {
            break name;
        }
        folder.push(name);
    };
    let rest: PathBuf = rest.collect();
    let wanted = missing.to_string_lossy().to_lowercase();
    let Ok(entries) = root.entries(&folder) else { return Vec::new() };
    let mut ranked: Vec<(f64, PathBuf)> = entries
        .into_iter()
        .take(ENTRIES_MAX)
        .map(|name| folder.join(name))
        .filter(|path| names::guarded_component(path).is_none() && !names::is_secret(path))
        .filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().to_lowercase();
            let likeness = likeness(&wanted, &name);
            (likeness >= LIKENESS_MIN).then_some((likeness, path))
        })
        .collect();
    ranked.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    let meant = |path: PathBuf| {
        if rest == Path::new("") {
            return path;
        }
        let whole = path.join(&rest);
        if root.metadata(&whole).is_ok() { whole } else { path }
    };
    ranked.into_iter().take(SUGGESTIONS_MAX).map(|(_, path)| meant(path)).collect()
}

/// How alike two names are; one that differs in its ending alone is alike.
fn likeness(wanted: &str, name: &str) -> f64 {
    let stem = |name: &str| Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    if stem(wanted) == stem(name) {
        return 0.9;
    }
    strsim::jaro_winkler(wanted, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_paths_are_of_the_same_name_or_a_like_one() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["src/tool/reader.rs", "src/main.rs", "docs/guide.md", ".env.mine", ".git/guide.md"] {
            let path = folder.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, "x").unwrap();
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        let cases: &[(&str, &[&str])] = &[
            ("main.rs", &["src/main.rs"]),
            ("guide.md", &["docs/guide.md"]),
            ("src/tools/reader.rs", &["src/tool/reader.rs"]),
            ("src/tool/raeder.rs", &["src/tool/reader.rs"]),
            ("src/main.py", &["src/main.rs"]),
            ("doc/zzz", &["docs"]),
            (".env.mime", &[]),
            ("quite/different", &[]),
            ("../main.rs", &[]),
        ];
        for (written, expected) in cases {
            let location = workspace.locate(written, None).unwrap();
            assert_eq!(location.kind, crate::workspace::Kind::Absent, "{written}");
            assert_eq!(workspace.nearest(&location, None), *expected, "{written}");
        }
    }
}
