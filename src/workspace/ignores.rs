//! What a walk leaves out because an ignore file says so: `.ignore`, `.gitignore`, `.git/info/exclude`, and the user's
//! own list of git.
//!
//! The files are read here rather than by the crate that walks, because they come from whoever wrote the workspace: each
//! is opened beneath a folder held open without following a link, must be a regular file, and is read up to a limit.
//! One that is anything else is passed over, and that is told. Of a worktree or submodule, whose `.git` is a file that
//! leads elsewhere, no `info/exclude` is read.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};
use rustix::fs::{FileType, OFlags};

use super::root::Root;

/// The largest ignore file that is followed.
const FILE_BYTES_MAX: usize = 256 * 1024;
/// All ignore files of a walk together: rules take some hundred times their text in memory.
const WALK_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How many files that were passed over are named.
const NAMED_FILES_MAX: usize = 3;
/// How many are remembered, so that those named are the first by their names.
const REMEMBERED_FILES_MAX: usize = 10_000;

/// The rules of one walk, read as it comes by.
pub(super) struct Ignores {
    /// The outermost folder whose rules count.
    root: Root,
    /// What names are told relative to.
    base: PathBuf,
    /// The user's own, of all repositories.
    global: Gitignore,
    /// By folder; a folder without rules of its own has those of the one above.
    levels: RwLock<HashMap<PathBuf, Option<Arc<Level>>>>,
    bytes: AtomicUsize,
    passed_over: Mutex<BTreeSet<PathBuf>>,
}

/// The rules that one folder adds.
struct Level {
    ignore: Gitignore,
    git_ignore: Gitignore,
    exclude: Gitignore,
    /// Git's own rules of the folders above do not reach into a repository.
    is_repository: bool,
    above: Option<Arc<Level>>,
}

impl Ignores {
    /// `outermost` is the folder from which rules count, absolute and resolved.
    pub(super) fn open(outermost: &Path, base: PathBuf) -> io::Result<Self> {
        Ok(Self {
            root: Root::open(outermost)?,
            base,
            global: global(outermost),
            levels: RwLock::default(),
            bytes: AtomicUsize::new(0),
            passed_over: Mutex::default(),
        })
    }

    /// Whether the rules leave out an entry, whose folder was not left out itself.
    pub(super) fn leaves_out(&self, path: &Path, is_folder: bool) -> bool {
        let mut next = path.parent().and_then(|folder| self.level(folder));
        // The nearest rule of a kind counts, and `.ignore` before `.gitignore` before the others, as ripgrep has it.
        let (mut ignore, mut git_ignore, mut exclude) = (ignore::Match::None, ignore::Match::None, ignore::Match::None);
        let mut is_within_repository = true;
        let mut held = Vec::new();
        while let Some(level) = next {
            next = level.above.as_ref().map(Arc::clone);
            held.push(level);
        }
        for level in &held {
            if ignore.is_none() {
                ignore = level.ignore.matched(path, is_folder);
            }
            if is_within_repository && git_ignore.is_none() {
                git_ignore = level.git_ignore.matched(path, is_folder);
            }
            if is_within_repository && exclude.is_none() {
                exclude = level.exclude.matched(path, is_folder);
            }
            is_within_repository &= !level.is_repository;
        }
        ignore.or(git_ignore).or(exclude).or(self.global.matched(path, is_folder)).is_ignore()
    }

    /// The line that tells which ignore files were passed over, if any were.
    pub(super) fn note(&self) -> Option<String> {
        let passed_over = self.passed_over.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |path: &PathBuf| path.strip_prefix(&self.base).unwrap_or(path).to_string_lossy().into_owned();
        let named: Vec<String> = passed_over.iter().take(NAMED_FILES_MAX).map(shown).collect();
        if named.is_empty() {
            return None;
        }
        let more = match passed_over.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let why = format!("a link, no regular file, unreadable, or too large (over {FILE_BYTES_MAX} bytes)");
        Some(format!("ignore rules not followed: {}{more}; {why}", named.join(", ")))
    }

    fn level(&self, folder: &Path) -> Option<Arc<Level>> {
        if let Some(known) = self.levels.read().unwrap_or_else(PoisonError::into_inner).get(folder) {
            return known.clone();
        }
        let relative = folder.strip_prefix(self.root.path()).ok()?;
        let above = if relative == Path::new("") { None } else { self.level(folder.parent()?) };
        let level = self.load(folder, relative, above);
        self.levels.write().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned(), level.clone());
        level
    }

    fn load(&self, folder: &Path, relative: &Path, above: Option<Arc<Level>>) -> Option<Arc<Level>> {
        // A folder that cannot be opened shows no entries either.
        let Ok(opened) = self.root.folder(relative) else { return above };
        let git = opened.metadata(Path::new(".git")).ok();
        let has_exclude = git.is_some_and(|git| FileType::from_raw_mode(git.st_mode).is_dir());
        let rules = |name: &str| self.rules(&opened, folder, Path::new(name));
        let level = Level {
            ignore: rules(".ignore"),
            git_ignore: rules(".gitignore"),
            exclude: if has_exclude { rules(".git/info/exclude") } else { Gitignore::empty() },
            is_repository: git.is_some(),
            above: above.clone(),
        };
        let is_plain = level.ignore.is_empty() && level.git_ignore.is_empty() && level.exclude.is_empty();
        if is_plain && !level.is_repository { above } else { Some(Arc::new(level)) }
    }

    fn rules(&self, opened: &Root, folder: &Path, name: &Path) -> Gitignore {
        let read = match opened.open_file(name) {
            Ok(file) => self.bounded(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Gitignore::empty(),
            Err(_) => None,
        };
        let compiled = read.and_then(|text| compile(folder, &text));
        compiled.unwrap_or_else(|| {
            let mut passed_over = self.passed_over.lock().unwrap_or_else(PoisonError::into_inner);
            if passed_over.len() < REMEMBERED_FILES_MAX {
                passed_over.insert(folder.join(name));
            }
            Gitignore::empty()
        })
    }

    /// The text of an opened ignore file, if it may be followed.
    fn bounded(&self, file: std::fs::File) -> Option<Vec<u8>> {
        let text = regular(file)?;
        let before = self.bytes.fetch_add(text.len(), Ordering::Relaxed);
        (before + text.len() <= WALK_BYTES_MAX).then_some(text)
    }
}

/// All of a regular file that is not too large.
fn regular(file: std::fs::File) -> Option<Vec<u8>> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text).ok()?;
    (text.len() <= FILE_BYTES_MAX).then_some(text)
}

/// The rules of a text. A line that is no rule is none, as git has it.
fn compile(folder: &Path, text: &[u8]) -> Option<Gitignore> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Ok(line) = std::str::from_utf8(line) {
            // Only its own line is lost where a glob is unsound.
            let _ = builder.add_line(None, line);
        }
    }
    builder.build().ok()
}

/// The rules that the user has for all repositories: the user's own file, so that links in its path are followed.
fn global(outermost: &Path) -> Gitignore {
    let open = |path: PathBuf| {
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        std::fs::OpenOptions::new().read(true).custom_flags(i32::try_from(flags).ok()?).open(path).ok()
    };
    gitconfig_excludes_path()
        .and_then(open)
        .and_then(regular)
        .and_then(|text| compile(outermost, &text))
        .unwrap_or_else(Gitignore::empty)
}

#[cfg(test)]
mod tests;
