//! Nothing is forgotten: every test file is compiled, every fixture and every expectation is used.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::repository_path;

/// All files below a folder; none where there is no such folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return files };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// All Rust sources that may use a fixture, as one text.
fn sources() -> String {
    let folders = ["src", "tests", "benches"].map(repository_path);
    let files = folders.iter().flat_map(|folder| files_below(folder)).filter(|path| is_rust(path));
    files.map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Whether sources name a file: by its path below the folder, or by a folder that holds it and is read as a whole
/// (`"fixtures/wire/openai"`).
fn is_named(root: &str, relative: &str, sources: &str) -> bool {
    let holders = Path::new(relative).ancestors().skip(1).filter(|holder| !holder.as_os_str().is_empty());
    let mut holders = holders.map(|holder| format!("\"{root}/{}\"", holder.display()));
    sources.contains(&format!("{relative}\"")) || holders.any(|holder| sources.contains(&holder))
}

#[test]
fn every_test_file_is_a_module() {
    let tests = repository_path("tests");
    let mut forgotten = Vec::new();
    for path in files_below(&tests).into_iter().filter(|path| is_rust(path)) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let folder = path.parent().unwrap();
        let parent = if folder == tests { tests.join("main.rs") } else { folder.join("mod.rs") };
        if path == parent {
            continue;
        }
        let declared = fs::read_to_string(&parent).unwrap_or_default();
        let declares = |line: &str| line.trim().trim_start_matches("pub(crate) ") == format!("mod {name};");
        if !declared.lines().any(declares) {
            forgotten.push(format!("{} is no module of {}", path.display(), parent.display()));
        }
    }
    assert!(forgotten.is_empty(), "{}", forgotten.join("\n"));
}

#[test]
fn every_fixture_is_used() {
    assert_all_named("fixtures", "fixtures");
}

#[test]
fn every_expectation_is_used() {
    assert_all_named("tests/expected", "tests/expected");
}

fn assert_all_named(folder: &str, root: &str) {
    let sources = sources();
    let folder = repository_path(folder);
    let relative = |path: PathBuf| path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
    let unused: Vec<String> = files_below(&folder)
        .into_iter()
        .map(relative)
        .filter(|path| !path.ends_with("README.md") && !is_named(root, path, &sources))
        .collect();
    assert!(unused.is_empty(), "nothing uses these files of {root}: {unused:?}");
}

#[test]
fn a_file_is_named_by_its_path_or_by_its_folder() {
    let cases = [
        ("logs/torn.jsonl", r#"fixture("logs/torn.jsonl")"#, true),
        ("logs/torn.jsonl", r#"include_str!("../fixtures/logs/torn.jsonl")"#, true),
        ("logs/torn.jsonl", r#"read_dir(repository_path("fixtures/logs"))"#, true),
        ("wire/openai/a.sse", r#"("fixtures/wire")"#, true),
        ("logs/torn.jsonl", r#"fixture("logs/whole.jsonl")"#, false),
        ("logs/torn.jsonl", r#"fixture("logs/torn.jsonl.bak")"#, false),
        ("torn.jsonl", r#"("fixtures")"#, false),
    ];
    for (path, source, expected) in cases {
        assert_eq!(is_named("fixtures", path, source), expected, "{path} in {source}");
    }
}
