//! What is mounted where, to tell whether two paths can lead to one file: a folder that is mounted a second time has two
//! paths, and neither is a link.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where Linux tells it.
const TABLE: &str = "/proc/self/mountinfo";
/// Which of a line's words is the path.
const PATH_WORD: usize = 4;

/// The paths at which something is mounted; `None`: it cannot be known.
#[derive(Debug, Clone)]
pub struct Mounts(Option<Vec<PathBuf>>);

impl Mounts {
    /// As it is now.
    pub fn load() -> Self {
        let table = std::fs::read(TABLE).ok();
        Self(table.map(|table| table.split(|byte| *byte == b'\n').filter_map(path_of).collect()))
    }

    #[cfg(test)]
    pub(crate) fn of(paths: &[&str]) -> Self {
        Self(Some(paths.iter().map(PathBuf::from).collect()))
    }

    /// Whether what does not lie below `folder` by its path does not lie below it at all: both are in one mount, and
    /// nothing is mounted below the folder. Both are absolute and without links.
    pub fn holds_apart(&self, folder: &Path, path: &Path) -> bool {
        let Some(mounts) = &self.0 else { return false };
        let covering = |path: &Path| {
            mounts.iter().filter(|mount| path.starts_with(mount)).max_by_key(|mount| mount.components().count())
        };
        let has_some_below = mounts.iter().any(|mount| mount != folder && mount.starts_with(folder));
        covering(folder).is_some() && covering(folder) == covering(path) && !has_some_below
    }
}

fn path_of(line: &[u8]) -> Option<PathBuf> {
    let word = line.split(|byte| *byte == b' ').nth(PATH_WORD)?;
    // Blanks and backslashes stand there as a backslash and three octal digits.
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\');
        path.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &behind[3..] } else { behind };
    }
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart_within_one_mount_alone() {
        for (mounts, folder, path, expected) in [
            (&["/"][..], "/w/m", "/w/d/f", true),
            (&["/", "/w"], "/w/m", "/w/d/f", true),
            // `mount --bind d m`, seen from m, from a folder in it, from one above, and from d.
            (&["/", "/w/m"], "/w/m", "/w/d/f", false),
            (&["/", "/w/m"], "/w/m/in", "/w/d/f", false),
            (&["/", "/w/x/m"], "/w/x", "/w/d/f", false),
            (&["/", "/w/m"], "/w/d", "/w/m/f", false),
            (&["/", "/w/m"], "/w/e", "/w/d/f", true),
            (&["/", "/tmp/x"], "/tmp/x/y", "/w/d/f", false),
            (&[], "/w/m", "/w/d/f", false),
        ] {
            assert_eq!(
                Mounts::of(mounts).holds_apart(Path::new(folder), Path::new(path)),
                expected,
                "{mounts:?} {folder} {path}"
            );
        }
        assert!(!Mounts(None).holds_apart(Path::new("/a"), Path::new("/b")));
    }

    #[test]
    fn a_line_of_the_table_is_read() {
        let line = br"36 35 98:0 /mnt1 /a\040b\134c rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(path_of(line), Some(PathBuf::from(r"/a b\c")));
        assert_eq!(path_of(b""), None);
        #[cfg(target_os = "linux")]
        assert!(Mounts::load().0.is_some_and(|mounts| mounts.contains(&PathBuf::from("/"))));
    }
}
