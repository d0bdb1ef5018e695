//! The file that a session is exported to: whole under its name, or not there.
//!
//! Where the system can, it has no name at all until it is whole, so that a kill leaves nothing. Elsewhere it has the
//! name of a temporary file meanwhile, and the next export to the same folder removes what a kill left.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;

use crate::session::folder::FILE_MODE;
use crate::tool::patch::recover::clean_folder;
use crate::workspace::root::{Root, temporary_beside};

/// Writes a file as a whole; one of that name is replaced. Returns what `fill` returns.
pub(super) fn write_whole<T>(target: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let parent = target.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let Some(name) = target.file_name().map(Path::new) else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it names no file"));
    };
    let folder = Root::open(parent)?;
    // What cannot be tidied up is in nobody's way.
    let _ = clean_folder(&folder, Path::new("."));
    let temporary = temporary_beside(name);
    let nameless = nameless(&folder);
    let file = match &nameless {
        Some(file) => file.try_clone()?,
        None => folder.create_new(&temporary, FILE_MODE)?,
    };
    let written = (|| {
        let mut stream = BufWriter::new(&file);
        let filled = fill(&mut stream)?;
        stream.flush()?;
        drop(stream);
        file.sync_all()?;
        if let Some(nameless) = &nameless {
            match link(nameless, &folder, name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => link(nameless, &folder, &temporary)?,
                linked => return linked.map(|()| filled),
            }
        }
        folder.rename(&temporary, name).map(|()| filled)
    })();
    if written.is_err() {
        // The first error is the one to tell.
        let _ = folder.remove_file(&temporary);
    }
    let filled = written?;
    folder.sync().map(|()| filled)
}

/// A file in that folder without a name; `None` where the system has none such, or could not name it later.
#[cfg(target_os = "linux")]
fn nameless(folder: &Root) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder.as_fd(), ".", flags, Mode::from_raw_mode(FILE_MODE)).ok()?;
    let file = File::from(fd);
    std::fs::metadata(descriptor(&file)).is_ok().then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn nameless(_: &Root) -> Option<File> {
    None
}

/// What the open file is called among the process's own.
fn descriptor(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn link(file: &File, folder: &Root, name: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD};
    Ok(rustix::fs::linkat(CWD, descriptor(file), folder.as_fd(), name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_whole_or_as_it_was_and_what_a_kill_left_goes() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.tar.gz");
        let names = || {
            let entries = fs_err::read_dir(folder.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        for content in ["first", "second"] {
            // The highest id that Linux allows is 4194304, so that no process has this one.
            fs_err::write(folder.path().join(".attini-tmp-4999999-7"), "half").unwrap();
            write_whole(&target, |stream| stream.write_all(content.as_bytes())).unwrap();
            assert_eq!(names(), ["x.tar.gz"]);
            assert_eq!(fs_err::read_to_string(&target).unwrap(), content);
            assert_eq!(fs_err::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let failed = write_whole(&target, |stream| -> io::Result<()> {
            stream.write_all(b"third")?;
            Err(io::Error::other("no more"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(names(), ["x.tar.gz"]);
        assert_eq!(fs_err::read_to_string(&target).unwrap(), "second");
        assert!(write_whole(Path::new(".."), |_| Ok(())).is_err());
        assert!(write_whole(&folder.path().join("missing/x"), |_| Ok(())).is_err());
    }
}
