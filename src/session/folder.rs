//! A session's folder: its place, its private modes, and the names of what lies in it.
//!
//! Sessions lie in `.attini/sessions/NAME` beneath the workspace, or in `$ATTINI_STATE_DIR/sessions/NAME`. A folder
//! without a log is no session yet.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::config::own_file::{ensure_kind, link_in_the_way};
use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::workspace::root::{Root, TEMPORARY_PREFIX};

/// Mode of session folders.
pub const FOLDER_MODE: u32 = 0o700;
/// Mode of the files in them.
pub const FILE_MODE: u32 = 0o600;
/// `.attini` itself also holds what the workspace shares; it is made like any folder of it.
const SHARED_FOLDER_MODE: u32 = 0o777;
const SHARED_FILE_MODE: u32 = 0o666;

/// The longest session name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// What `.attini/.gitignore` must hold so that no session ends up in a commit.
const IGNORED: [&str; 2] = ["sessions/", "cache/"];
const GITIGNORE: &str = ".attini/.gitignore";
const GITIGNORE_BYTES_MAX: u64 = 1024 * 1024;

/// What lies in a session folder by a name of its own.
const FILES: [&str; 5] = ["conversation.jsonl", "pending.json", "permissions.jsonl", "undo.json", "lock"];
const FOLDERS: [&str; 4] = ["outputs", "before", "tasks", "scratchpad"];

/// A session folder, opened without following links.
#[derive(Debug)]
pub struct SessionFolder {
    pub name: String,
    pub root: Root,
}

/// Where the sessions of an invocation are kept.
#[derive(Debug)]
pub struct StateFolder<'a> {
    workspace: &'a Workspace,
    /// `$ATTINI_STATE_DIR`, where it is set.
    elsewhere: Option<PathBuf>,
}

/// Refuses what is no session name.
pub fn ensure_name(name: &str) -> Result<(), Failure> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if first && rest && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::usage(format!("{name:?} is not a session name")).hint(format!(
        "a name has 1 to {NAME_BYTES_MAX} letters, digits, dots, underscores or hyphens, and begins with a letter or digit"
    )))
}

impl<'a> StateFolder<'a> {
    pub fn new(workspace: &'a Workspace, elsewhere: Option<PathBuf>) -> Self {
        Self { workspace, elsewhere }
    }

    /// The folder that holds sessions and the cache, if there is one.
    pub fn root(&self) -> Option<Root> {
        match &self.elsewhere {
            None => self.workspace.root.folder(Path::new(".attini")),
            Some(elsewhere) => Root::open(elsewhere),
        }
        .ok()
    }

    /// The folder of an existing session; `None` where there is no such folder.
    pub fn open(&self, name: &str) -> anyhow::Result<Option<SessionFolder>> {
        ensure_name(name)?;
        let relative = self.relative(name);
        let opened = match &self.elsewhere {
            None => self.workspace.root.folder(&relative),
            Some(elsewhere) => Root::open(elsewhere).and_then(|root| root.folder(&relative)),
        };
        match opened {
            Ok(root) => {
                self.ensure_untracked(&relative)?;
                let folder = SessionFolder { name: name.to_owned(), root };
                folder.ensure_kinds()?;
                Ok(Some(folder))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.refused(name, &error).into()),
        }
    }

    /// The folder of a session, made if it is missing, together with a `.gitignore` that keeps it out of commits.
    pub fn open_or_create(&self, name: &str) -> anyhow::Result<SessionFolder> {
        ensure_name(name)?;
        if let Some(folder) = self.open(name)? {
            return Ok(folder);
        }
        if self.elsewhere.is_none() {
            self.ignore_state().map_err(|error| self.refused_gitignore(&error))?;
        }
        self.create(name).map_err(|error| self.refused(name, &error))?;
        let opened = self.open(name)?;
        opened.ok_or_else(|| {
            Failure::persistence(format!("{} vanished while it was made", self.shown(name).display())).into()
        })
    }

    /// The folder that holds the sessions' own; `None` where there is none yet.
    pub fn sessions(&self) -> anyhow::Result<Option<Root>> {
        let relative = self.relative("");
        let opened = match &self.elsewhere {
            None => self.workspace.root.folder(&relative),
            Some(elsewhere) => Root::open(elsewhere).and_then(|root| root.folder(&relative)),
        };
        match opened {
            Ok(root) => Ok(Some(root)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.refused("", &error).into()),
        }
    }

    /// The same folder, made if it is missing.
    pub fn make_sessions(&self) -> anyhow::Result<Root> {
        if self.elsewhere.is_none() {
            self.ignore_state().map_err(|error| self.refused_gitignore(&error))?;
        }
        self.create("").map_err(|error| self.refused("", &error))?;
        self.sessions()?.ok_or_else(|| Failure::persistence("the folder of sessions vanished while it was made").into())
    }

    fn create(&self, name: &str) -> io::Result<()> {
        self.base()?.make_folders(&self.relative(name), FOLDER_MODE)?;
        Ok(())
    }

    /// The folder that all state lies beneath, made with what keeps it out of commits.
    fn base(&self) -> io::Result<Root> {
        match &self.elsewhere {
            None => {
                self.ignore_state()?;
                self.workspace.root.folder(Path::new("."))
            }
            Some(elsewhere) => {
                make_elsewhere(elsewhere)?;
                Root::open(elsewhere)
            }
        }
    }

    /// A folder of the cache, made if it is missing: `cache/NAME` where the sessions' folder is.
    pub fn open_or_create_cache(&self, name: &str) -> io::Result<Root> {
        let relative = self.cache(name);
        let present = match &self.elsewhere {
            None => self.workspace.root.folder(&relative),
            Some(elsewhere) => Root::open(elsewhere).and_then(|root| root.folder(&relative)),
        };
        match present {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let base = self.base()?;
                base.make_folders(&relative, FOLDER_MODE)?;
                base.folder(&relative)
            }
            present => present,
        }
    }

    /// Whether git tracks anything in that folder of the cache: then it came with a checkout, and is someone else's.
    pub fn tracks_cache(&self, name: &str) -> bool {
        self.elsewhere.is_none() && crate::workspace::git::tracks_below(self.workspace, &self.cache(name))
    }

    fn cache(&self, name: &str) -> PathBuf {
        let cache = if self.elsewhere.is_some() { "cache" } else { ".attini/cache" };
        Path::new(cache).join(name)
    }

    /// Adds to `.attini/.gitignore` what it lacks.
    fn ignore_state(&self) -> io::Result<()> {
        let (root, path) = (&self.workspace.root, Path::new(GITIGNORE));
        root.make_folders(Path::new(".attini"), SHARED_FOLDER_MODE)?;
        let present = match root.read(path, GITIGNORE_BYTES_MAX) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let lines: Vec<&str> = present.lines().map(str::trim).collect();
        let missing: Vec<&str> = IGNORED.into_iter().filter(|entry| !lines.contains(entry)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut wanted = present.clone();
        if !wanted.is_empty() && !wanted.ends_with('\n') {
            wanted.push('\n');
        }
        for entry in missing {
            wanted.push_str(entry);
            wanted.push('\n');
        }
        root.replace(path, wanted.as_bytes(), SHARED_FILE_MODE)
    }

    fn refused_gitignore(&self, error: &io::Error) -> Failure {
        match ensure_kind(&self.workspace.root, Path::new(GITIGNORE), FileType::RegularFile) {
            Err(failure) => failure,
            Ok(()) => Failure::persistence(format!("{GITIGNORE} cannot be read or written: {error}"))
                .hint("set ATTINI_STATE_DIR to keep sessions elsewhere"),
        }
    }

    fn relative(&self, name: &str) -> PathBuf {
        let sessions = if self.elsewhere.is_some() { "sessions" } else { ".attini/sessions" };
        Path::new(sessions).join(name)
    }

    fn shown(&self, name: &str) -> PathBuf {
        match &self.elsewhere {
            None => self.relative(name),
            Some(elsewhere) => elsewhere.join(self.relative(name)),
        }
    }

    /// A session that came with a checkout would be someone else's conversation, with decisions in it.
    fn ensure_untracked(&self, relative: &Path) -> anyhow::Result<()> {
        if self.elsewhere.is_none() && crate::workspace::git::tracks_below(self.workspace, relative) {
            return Err(Failure::usage(format!("git tracks files in {}", relative.display()))
                .hint(format!(
                    "a session must not come with a checkout; take it out of the index with `git rm -r --cached {}`",
                    relative.display()
                ))
                .into());
        }
        Ok(())
    }

    fn refused(&self, name: &str, error: &io::Error) -> Failure {
        let root = match &self.elsewhere {
            None => self.workspace.root.folder(Path::new(".")),
            Some(elsewhere) => Root::open(elsewhere),
        };
        if let Some(failure) = root.ok().and_then(|root| link_in_the_way(&root, &self.relative(name))) {
            return failure;
        }
        let shown = self.shown(name);
        let shown = shown.display();
        let not_folder = rustix::io::Errno::NOTDIR.raw_os_error();
        match error.raw_os_error() {
            Some(number) if is_link(error) || number == not_folder => {
                Failure::usage(format!("{shown}: a part of this path is a link or no folder"))
                    .hint("attini follows no links to its own files; put a real folder there, or set ATTINI_STATE_DIR")
            }
            _ => Failure::persistence(format!("{shown} cannot be opened or made: {error}"))
                .hint("set ATTINI_STATE_DIR to keep sessions elsewhere"),
        }
    }
}

impl SessionFolder {
    /// Refuses (2) a session in which a link, or anything else, stands where a file or folder of its own belongs. Each
    /// is opened without following links later; here all are told of alike, before anything is done.
    fn ensure_kinds(&self) -> Result<(), Failure> {
        for name in FILES {
            ensure_kind(&self.root, Path::new(name), FileType::RegularFile)?;
        }
        for name in FOLDERS {
            ensure_kind(&self.root, Path::new(name), FileType::Directory)?;
        }
        Ok(())
    }

    /// A file of the session as messages name it.
    pub fn display(&self, file: &str) -> String {
        self.root.path().join(file).display().to_string()
    }

    /// The failure to open one of the session's files, if a link in its place was the cause (2), else `otherwise`: what
    /// a link leads to is not the session's.
    pub fn unopened(&self, file: &str, error: &io::Error, otherwise: impl FnOnce(String) -> Failure) -> Failure {
        let shown = self.display(file);
        if is_link(error) {
            return Failure::usage(format!("{shown} is a link"))
                .hint("attini follows no links to its own files; put the file itself there");
        }
        otherwise(format!("{shown} cannot be opened: {error}"))
    }

    /// Removes what a killed invocation left half-written, in the session's folder and in those below it that attini
    /// writes to. Only under the lock.
    pub fn clean(&self) -> io::Result<()> {
        for folder in [".", "outputs", "before"].map(Path::new) {
            let names = match self.root.entries(folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                names => names?,
            };
            for name in names.iter().filter(|name| name.to_string_lossy().starts_with(TEMPORARY_PREFIX)) {
                self.root.remove_file(&folder.join(name))?;
            }
        }
        Ok(())
    }
}

/// Whether opening failed because of a link where none is followed.
fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Makes the folder that the user named, and what is missing above it.
fn make_elsewhere(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    for made in folder.ancestors().skip(1).take_while(|above| !above.as_os_str().is_empty()) {
        std::fs::File::open(made)?.sync_all()?;
    }
    Ok(())
}
