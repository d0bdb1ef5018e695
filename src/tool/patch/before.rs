//! What patched files held before, kept in the session's `before/` folder so that a patch can be undone.
//!
//! For each patch an index `LABEL.json`, written last, and one image a file that existed, `LABEL.NUMBER`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::apply::FILE_BYTES_MAX;
use crate::session::folder::{FILE_MODE, FOLDER_MODE, SessionFolder};
use crate::session::record::PlannedFile;

/// The version of the index's format.
pub const FORMAT: u32 = 1;
/// The folder's name in the session folder.
pub const FOLDER: &str = "before";
const INDEX_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The files of one patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    pub format: u32,
    pub files: Vec<KeptFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// `path`, `change`, `sha256_before` and `sha256_after`.
    #[serde(flatten)]
    pub planned: PlannedFile,
    /// The permission bits it had; `None`: it did not exist.
    pub mode: Option<u32>,
    /// The name of its image in the same folder; `None`: it did not exist.
    pub image: Option<String>,
}

/// A file as it was before a patch.
#[derive(Debug, Clone)]
pub struct Image {
    pub planned: PlannedFile,
    pub mode: Option<u32>,
    pub bytes: Option<Arc<[u8]>>,
}

/// Keeps the images of one patch; when this returns they are on disk, or none is.
pub fn keep(session: &SessionFolder, label: &str, images: &[Image]) -> io::Result<()> {
    keep_all(session, label, images).inspect_err(|_| {
        for index in 0..images.len() {
            let _ = session.root.remove_file(&inside(&format!("{label}.{index}")));
        }
    })
}

fn keep_all(session: &SessionFolder, label: &str, images: &[Image]) -> io::Result<()> {
    let root = &session.root;
    root.make_folders(Path::new(FOLDER), FOLDER_MODE)?;
    let mut files = Vec::with_capacity(images.len());
    for (index, image) in images.iter().enumerate() {
        let name = image.bytes.as_ref().map(|_| format!("{label}.{index}"));
        if let (Some(name), Some(bytes)) = (&name, &image.bytes) {
            root.replace(&inside(name), bytes, FILE_MODE)?;
        }
        files.push(KeptFile { planned: image.planned.clone(), mode: image.mode, image: name });
    }
    let text = serde_json::to_vec(&Index { format: FORMAT, files })?;
    root.replace(&inside(&format!("{label}.json")), &text, FILE_MODE)
}

/// Takes back what was kept for a patch that changed nothing.
pub fn discard(session: &SessionFolder, label: &str) {
    // The index goes first: images without one mean nothing.
    let Ok(Some(index)) = load_index(session, label) else { return };
    if session.root.remove_file(&inside(&format!("{label}.json"))).is_ok() {
        for name in index.files.iter().filter_map(|file| file.image.as_deref()) {
            let _ = session.root.remove_file(&inside(name));
        }
    }
}

/// The images kept for a patch; `None` where nothing was kept.
pub fn load(session: &SessionFolder, label: &str) -> io::Result<Option<Vec<Image>>> {
    let Some(index) = load_index(session, label)? else { return Ok(None) };
    let load_image = |file: KeptFile| -> io::Result<Image> {
        let bytes = match &file.image {
            Some(name) => Some(Arc::from(session.root.read(&inside(name), FILE_BYTES_MAX as u64)?)),
            None => None,
        };
        let digest = bytes.as_ref().map(|bytes: &Arc<[u8]>| super::apply::sha256_of(bytes));
        if digest != file.planned.sha256_before {
            let what = format!("the image of {} in {FOLDER}/ is not what was kept", file.planned.path);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Image { planned: file.planned, mode: file.mode, bytes })
    };
    index.files.into_iter().map(load_image).collect::<io::Result<Vec<_>>>().map(Some)
}

fn load_index(session: &SessionFolder, label: &str) -> io::Result<Option<Index>> {
    match session.root.read(&inside(&format!("{label}.json")), INDEX_BYTES_MAX) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn inside(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}
