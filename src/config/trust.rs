//! `trust.json`: which files of a workspace the user, or attini itself, vouches for.
//!
//! A workspace's config and rules come with its checkout, so they count only once their path and their very bytes are
//! recorded here, in the user's own state folder. What is left out without trust is decided where the files are read.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::environment::Environment;
use super::own_file::{FolderLock, read_beneath};
use crate::failure::Failure;
use crate::workspace::root::Root;

/// Trusts the workspace's files for this invocation when it is `1`; for CI.
pub const TRUST_VARIABLE: &str = "ATTINI_TRUST_WORKSPACE";

/// Its name in the user's state folder.
pub const FILE_NAME: &str = "trust.json";
const FORMAT: u32 = 1;
const TRUST_BYTES_MAX: u64 = 8 * 1024 * 1024;
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

#[derive(Debug, Clone)]
pub struct Trust {
    /// `None` without a home: nothing can be recorded.
    folder: Option<PathBuf>,
    whole_workspace: bool,
    records: Records,
}

/// SHA-256 (64 hex digits) of each file as it may be, by its absolute path.
type Records = BTreeMap<String, Vec<String>>;

#[derive(Serialize, Deserialize)]
struct TrustFile {
    format: u32,
    files: Vec<TrustedFile>,
}

#[derive(Serialize, Deserialize)]
struct TrustedFile {
    path: String,
    /// More than one only between an edit and the next: a kill in an edit leaves the old file or the new one.
    sha256: Vec<String>,
}

impl Trust {
    /// A trust.json that does not parse is an error (exit code 2); an absent one trusts nothing.
    pub fn load(environment: &Environment) -> Result<Self> {
        let folder = environment.user_state_folder();
        let whole_workspace = environment.get(TRUST_VARIABLE).is_some_and(|value| value == "1");
        let mut trust = Self { folder, whole_workspace, records: Records::new() };
        trust.refresh()?;
        Ok(trust)
    }

    /// Reads trust.json again: another invocation may have written it. To be called under the lock of the folder whose
    /// file is judged, since an edit records its new bytes here before they get the file's name.
    pub fn refresh(&mut self) -> Result<()> {
        if let Some(folder) = &self.folder
            && folder.is_dir()
        {
            self.records = read(&open(folder)?)?;
        }
        Ok(())
    }

    /// Whether what the file at `path` holds may count. Nothing in it needs no trust.
    pub fn is_trusted(&self, path: &Path, bytes: &[u8]) -> bool {
        self.whole_workspace || is_blank(bytes) || self.is_recorded(path, bytes)
    }

    /// The same, leaving aside that this invocation may trust the whole workspace.
    fn is_recorded(&self, path: &Path, bytes: &[u8]) -> bool {
        let digest = sha256(bytes);
        self.records.get(&name_of(path)).is_some_and(|known| known.contains(&digest))
    }

    /// Records that these files may count as they are now. Give the bytes that were looked at, not those read again.
    pub fn record<'f>(&mut self, files: impl IntoIterator<Item = (&'f Path, &'f [u8])>) -> Result<()> {
        let new: Vec<_> = files.into_iter().map(|(path, bytes)| (name_of(path), vec![sha256(bytes)])).collect();
        self.change(|records| records.extend(new))
    }

    /// Before attini's own edit of a file: what it will be counts beside what it is, if that counts. To be called
    /// before the new file gets its name. What only this invocation trusts is not trusted for good by an edit.
    pub fn record_edit(&mut self, path: &Path, before: Option<&[u8]>, after: &[u8]) -> Result<()> {
        let digests = match before {
            Some(before) if is_blank(before) || self.is_recorded(path, before) => vec![sha256(before), sha256(after)],
            Some(_) => return Ok(()),
            None => vec![sha256(after)],
        };
        self.change(|records| {
            records.insert(name_of(path), digests);
        })
    }

    /// Forgets files that are gone.
    pub fn forget<'f>(&mut self, paths: impl IntoIterator<Item = &'f Path>) -> Result<()> {
        let names: Vec<String> =
            paths.into_iter().map(name_of).filter(|name| self.records.contains_key(name)).collect();
        if names.is_empty() {
            return Ok(());
        }
        self.change(|records| records.retain(|name, _| !names.contains(name)))
    }

    fn change(&mut self, change: impl FnOnce(&mut Records)) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Err(Failure::usage("there is no place for trust.json: HOME and XDG_STATE_HOME are unset")
                .hint("set HOME to an absolute path")
                .into());
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let root = open(folder)?;
        let lock = FolderLock::take(&root)?;
        // Another invocation may have written since this one read it.
        let mut records = read(&root)?;
        change(&mut records);
        let files = records.iter().map(|(path, sha256)| TrustedFile { path: path.clone(), sha256: sha256.clone() });
        let mut bytes = serde_json::to_vec_pretty(&TrustFile { format: FORMAT, files: files.collect() })?;
        bytes.push(b'\n');
        root.replace(Path::new(FILE_NAME), &bytes, FILE_MODE)
            .with_context(|| format!("cannot write {}", folder.join(FILE_NAME).display()))?;
        drop(lock);
        self.records = records;
        Ok(())
    }
}

fn open(folder: &Path) -> Result<Root> {
    Root::open(folder).with_context(|| format!("cannot open {}", folder.display()))
}

fn read(folder: &Root) -> Result<Records> {
    let Some(bytes) = read_beneath(folder, Path::new(FILE_NAME), TRUST_BYTES_MAX)? else { return Ok(Records::new()) };
    let wrong = |why: String| {
        Failure::usage(format!("{}: {why}", folder.path().join(FILE_NAME).display()))
            .hint("mend it, or remove it and trust your workspaces again with `attini trust`")
    };
    let file: TrustFile = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if file.format != FORMAT {
        return Err(wrong(format!("its format is {}, and this attini knows {FORMAT}", file.format)).into());
    }
    Ok(file.files.into_iter().map(|file| (file.path, file.sha256)).collect())
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The path as JSON can hold it; one that is not UTF-8 is spelt in hex, behind a prefix no absolute path has.
fn name_of(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => path.as_os_str().as_bytes().iter().fold("bytes:".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Status;

    fn environment(home: &Path, pairs: &[(&str, &str)]) -> Environment {
        let home = [("HOME", home.to_str().unwrap())];
        home.iter().chain(pairs).copied().collect()
    }

    #[test]
    fn only_the_recorded_bytes_at_the_recorded_path_are_trusted() {
        let home = tempfile::tempdir().unwrap();
        let environment = environment(home.path(), &[]);
        let mut trust = Trust::load(&environment).unwrap();
        let path = Path::new("/w/.attini/config.toml");
        assert!(!trust.is_trusted(path, b"a = 1"));
        assert!(trust.is_trusted(path, b"\n"), "what holds nothing needs no trust");
        trust.record([(path, b"a = 1".as_slice())]).unwrap();
        for trust in [trust, Trust::load(&environment).unwrap()] {
            assert!(trust.is_trusted(path, b"a = 1"));
            assert!(!trust.is_trusted(path, b"a = 2"));
            assert!(!trust.is_trusted(Path::new("/v/.attini/config.toml"), b"a = 1"));
        }
    }

    #[test]
    fn an_edit_keeps_the_old_bytes_trusted_beside_the_new_until_the_next() {
        let home = tempfile::tempdir().unwrap();
        let mut trust = Trust::load(&environment(home.path(), &[])).unwrap();
        let path = Path::new("/w/.attini/permissions.jsonl");
        trust.record_edit(path, None, b"1").unwrap();
        trust.record_edit(path, Some(b"1"), b"2").unwrap();
        assert!(trust.is_trusted(path, b"1") && trust.is_trusted(path, b"2"));
        trust.record_edit(path, Some(b"2"), b"3").unwrap();
        assert!(!trust.is_trusted(path, b"1"));
        assert!(trust.is_trusted(path, b"2") && trust.is_trusted(path, b"3"));
        trust.forget([path]).unwrap();
        assert!(!trust.is_trusted(path, b"3"));
    }

    #[test]
    fn an_edit_of_an_unrecorded_file_does_not_make_it_trusted() {
        let home = tempfile::tempdir().unwrap();
        let mut trust = Trust::load(&environment(home.path(), &[(TRUST_VARIABLE, "1")])).unwrap();
        let path = Path::new("/w/.attini/permissions.jsonl");
        assert!(trust.is_trusted(path, b"1"));
        trust.record_edit(path, Some(b"1"), b"2").unwrap();
        let later = Trust::load(&environment(home.path(), &[])).unwrap();
        assert!(!later.is_trusted(path, b"2"));
    }

    #[test]
    fn two_invocations_lose_nothing_of_each_other() {
        let home = tempfile::tempdir().unwrap();
        let environment = environment(home.path(), &[]);
        let mut one = Trust::load(&environment).unwrap();
        let mut other = Trust::load(&environment).unwrap();
        one.record([(Path::new("/a"), b"a".as_slice())]).unwrap();
        other.record([(Path::new("/b"), b"b".as_slice())]).unwrap();
        let trust = Trust::load(&environment).unwrap();
        assert!(trust.is_trusted(Path::new("/a"), b"a") && trust.is_trusted(Path::new("/b"), b"b"));
    }

    #[test]
    fn a_broken_file_is_named_and_no_home_is_told() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".local/state/attini");
        fs_err::create_dir_all(&folder).unwrap();
        for text in ["{", r#"{"format":2,"files":[]}"#, ""] {
            fs_err::write(folder.join(FILE_NAME), text).unwrap();
            let failure = Failure::of(&Trust::load(&environment(home.path(), &[])).unwrap_err());
            assert_eq!(failure.status, Status::Usage);
            assert!(failure.message.contains("trust.json: "), "{}", failure.message);
        }
        fs_err::write(folder.join(FILE_NAME), r#"{"format":1,"files":[],"later":true}"#).unwrap();
        Trust::load(&environment(home.path(), &[])).unwrap();
        let mut nowhere = Trust::load(&Environment::default()).unwrap();
        let failure = Failure::of(&nowhere.record([(Path::new("/a"), b"a".as_slice())]).unwrap_err());
        assert_eq!(failure.status, Status::Usage);
    }

    #[test]
    fn the_file_and_its_folder_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let mut trust = Trust::load(&environment(home.path(), &[])).unwrap();
        trust.record([(Path::new("/a"), b"a".as_slice())]).unwrap();
        let folder = home.path().join(".local/state/attini");
        assert_eq!(fs_err::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs_err::metadata(folder.join(FILE_NAME)).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
