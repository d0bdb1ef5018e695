//! Pages kept for half an hour, for all sessions: `cache/pages/` in the state folder, one file a URL.
//!
//! A kept page is as it came; who may see it is judged at each hit, elsewhere. What is damaged, too old or not ours is as
//! good as absent, and no failure here is one of the call.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::BODY_BYTES_MAX;
use super::exchange::ACCEPT;
use super::link::Link;
use super::page::Page;
use crate::session::folder::{FILE_MODE, FOLDER_MODE};
use crate::workspace::root::Root;

const KEPT_SECONDS_MAX: u64 = 30 * 60;
/// Of all kept pages together.
const CACHE_BYTES_MAX: u64 = 256 * 1024 * 1024;
const HEAD_BYTES_MAX: u64 = 64 * 1024;
const FOLDER: &str = "cache/pages";
/// Changes with the form of a file.
const FORM: &str = "1";

/// The first line of a file; the body follows.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    /// As it was asked for.
    url: String,
    final_url: String,
    status: u16,
    content_type: String,
    private: bool,
    unread_bytes: Option<u64>,
    /// Seconds since 1970.
    at: u64,
    /// SHA-256 of the body, 64 hex digits.
    body_sha256: String,
}

/// The page of a URL, if it was fetched within half an hour.
pub(super) fn load(state: &Root, link: &Link, now: SystemTime) -> Option<Page> {
    let mut bytes = state.read(&file_of(link), HEAD_BYTES_MAX + BODY_BYTES_MAX).ok()?;
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
    bytes.drain(..=end);
    let age = seconds(now).checked_sub(head.at).filter(|age| *age < KEPT_SECONDS_MAX)?;
    if head.url != link.as_str() || head.body_sha256 != hex(&Sha256::digest(&bytes)) {
        return None;
    }
    Some(Page {
        link: Link::parse(&head.final_url).ok()?,
        status: head.status,
        content_type: head.content_type,
        body: bytes,
        unread_bytes: head.unread_bytes,
        private: head.private,
        age: Some(Duration::from_secs(age)),
    })
    .filter(Page::is_success)
}

/// Keeps a page, and makes room for it.
pub(super) fn store(state: &Root, link: &Link, page: &Page, now: SystemTime) -> io::Result<()> {
    let head = Head {
        url: link.as_str().to_owned(),
        final_url: page.link.as_str().to_owned(),
        status: page.status,
        content_type: page.content_type.clone(),
        private: page.private,
        unread_bytes: page.unread_bytes,
        at: seconds(now),
        body_sha256: hex(&Sha256::digest(&page.body)),
    };
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(&page.body);
    state.make_folders(Path::new(FOLDER), FOLDER_MODE)?;
    state.replace(&file_of(link), &bytes, FILE_MODE)?;
    make_room(state, CACHE_BYTES_MAX, now)
}

/// Removes what is too old, left-overs of killed processes among it, and then the oldest until the rest fits.
fn make_room(state: &Root, bytes_max: u64, now: SystemTime) -> io::Result<()> {
    let folder = state.folder(Path::new(FOLDER))?;
    let mut kept = Vec::new();
    for name in folder.entries(Path::new("."))? {
        let path = PathBuf::from(name);
        let Ok(metadata) = folder.metadata(&path) else { continue };
        // Not ours.
        if FileType::from_raw_mode(metadata.st_mode).is_dir() {
            continue;
        }
        let modified = u64::try_from(metadata.st_mtime).unwrap_or_default();
        if modified.saturating_add(KEPT_SECONDS_MAX) <= seconds(now) {
            remove(&folder, &path)?;
        } else {
            kept.push((modified, path, u64::try_from(metadata.st_size).unwrap_or_default()));
        }
    }
    kept.sort();
    let mut total: u64 = kept.iter().map(|(_, _, bytes)| bytes).sum();
    for (_, path, bytes) in kept {
        if total <= bytes_max {
            break;
        }
        remove(&folder, &path)?;
        total -= bytes;
    }
    Ok(())
}

/// Another session may have been faster.
fn remove(folder: &Root, path: &Path) -> io::Result<()> {
    match folder.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// By the URL and all that the request says beside it; how a page is shown is decided at each return.
fn file_of(link: &Link) -> PathBuf {
    let mut digest = Sha256::new();
    for part in [FORM, ACCEPT, link.as_str()] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    Path::new(FOLDER).join(hex(&digest.finalize()))
}

fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Files are as old as the system's clock says.
    fn now() -> u64 {
        seconds(SystemTime::now())
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn page(body: &[u8]) -> Page {
        Page {
            link: Link::parse("https://b.org/final").unwrap(),
            status: 200,
            content_type: "text/plain".to_owned(),
            body: body.to_vec(),
            unread_bytes: None,
            private: false,
            age: None,
        }
    }

    fn state() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        (folder, root)
    }

    #[test]
    fn a_page_is_kept_for_half_an_hour_and_no_longer() {
        let begin = now();
        let (_folder, state) = state();
        let link = Link::parse("https://a.org/x").unwrap();
        assert_eq!(load(&state, &link, at(begin)), None);
        store(&state, &link, &page(b"one\ntwo\0"), at(begin)).unwrap();
        for (after, expected) in [(0, true), (KEPT_SECONDS_MAX - 1, true), (KEPT_SECONDS_MAX, false)] {
            let found = load(&state, &link, at(begin + after));
            let kept = Page { age: Some(Duration::from_secs(after)), ..page(b"one\ntwo\0") };
            assert_eq!(found, expected.then_some(kept), "after {after} s");
        }
        // A clock that was put back.
        assert_eq!(load(&state, &link, at(begin - 1)), None);
        let other = Link::parse("https://a.org/y").unwrap();
        assert_eq!(load(&state, &other, at(begin)), None);
    }

    #[test]
    fn what_is_damaged_or_led_elsewhere_is_absent() {
        type Spoil = fn(&mut Vec<u8>);
        let begin = now();
        let link = Link::parse("https://a.org/x").unwrap();
        let damage: [(&str, Spoil); 5] = [
            ("body", |bytes| *bytes.last_mut().unwrap() ^= 1),
            ("cut", |bytes| {
                bytes.pop();
            }),
            ("no head", |bytes| bytes.retain(|byte| *byte != b'\n')),
            ("empty", Vec::clear),
            ("another's", |bytes| {
                let text = String::from_utf8(bytes.clone()).unwrap();
                *bytes = text.replacen("https://a.org/x", "https://a.org/z", 1).into_bytes();
            }),
        ];
        for (name, spoil) in damage {
            let (folder, state) = state();
            store(&state, &link, &page(b"text"), at(begin)).unwrap();
            let path = folder.path().join(file_of(&link));
            let mut bytes = fs_err::read(&path).unwrap();
            spoil(&mut bytes);
            fs_err::write(&path, bytes).unwrap();
            assert_eq!(load(&state, &link, at(begin)), None, "{name}");
        }
        let (folder, state) = state();
        store(&state, &link, &page(b"text"), at(begin)).unwrap();
        let path = folder.path().join(file_of(&link));
        fs_err::rename(&path, folder.path().join("moved")).unwrap();
        fs_err::os::unix::fs::symlink("../../moved", &path).unwrap();
        assert_eq!(load(&state, &link, at(begin)), None);
    }

    #[test]
    fn files_are_private_and_a_linked_folder_is_not_written_to() {
        let begin = now();
        let link = Link::parse("https://a.org/x").unwrap();
        let (folder, root) = state();
        store(&root, &link, &page(b"text"), at(begin)).unwrap();
        let mode = |path: &Path| fs_err::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(Path::new(FOLDER)), mode(&file_of(&link))), (0o700, 0o600));
        let (folder, root) = state();
        fs_err::create_dir(folder.path().join("elsewhere")).unwrap();
        fs_err::os::unix::fs::symlink("elsewhere", folder.path().join("cache")).unwrap();
        assert!(store(&root, &link, &page(b"text"), at(begin)).is_err());
        assert_eq!(fs_err::read_dir(folder.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn the_oldest_go_first_when_room_is_needed() {
        let begin = now();
        let (folder, state) = state();
        let path = |name: &str| folder.path().join(FOLDER).join(name);
        fs_err::create_dir_all(folder.path().join(FOLDER).join("a folder")).unwrap();
        for (name, age) in [("expired", KEPT_SECONDS_MAX), ("old", 300), ("middle", 200), ("new", 100)] {
            let file = std::fs::File::create(path(name)).unwrap();
            file.set_len(100).unwrap();
            file.set_modified(at(begin - age)).unwrap();
        }
        make_room(&state, 1 << 20, at(begin)).unwrap();
        let names = || -> Vec<String> {
            let entries = fs_err::read_dir(folder.path().join(FOLDER)).unwrap();
            let files = entries.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_file());
            let mut names: Vec<_> = files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["middle", "new", "old"]);
        make_room(&state, 250, at(begin)).unwrap();
        assert_eq!(names(), ["middle", "new"]);
        make_room(&state, 0, at(begin)).unwrap();
        assert!(names().is_empty());
    }
}
