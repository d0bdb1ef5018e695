//! The images of results as a model gets them: read from the session's files, bounded, or told of in a line.
//!
//! Which files are attached was decided by the tools; what a service makes of an image is for its wire format.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::provider::Image;
use crate::session::folder::SessionFolder;
use crate::session::record::Attachment;

/// The largest image that is sent: 5 MiB in base64, which every service takes. One that a service refuses would be
/// refused with every later request too.
const IMAGE_BYTES_MAX: u64 = 5 * 1024 * 1024 / 4 * 3;
/// Of all images of a request, as they are in their files. Services take some 20 MB of base64 and more.
const REQUEST_IMAGE_BYTES_MAX: u64 = 12 * 1024 * 1024;
/// Most images of a request.
const REQUEST_IMAGES_MAX: usize = 64;
/// What services take.
const MEDIA_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Reads the images of a conversation, from its beginning on: whether one is sent depends on those before it alone, so
/// that each request begins with the one before.
pub struct Images<'f> {
    folder: Option<&'f SessionFolder>,
    /// Whether the model takes any.
    is_taken: bool,
    bytes: u64,
    count: usize,
}

impl<'f> Images<'f> {
    pub fn of(folder: &'f SessionFolder, takes_images: bool) -> Self {
        Self { folder: Some(folder), is_taken: takes_images, bytes: 0, count: 0 }
    }

    /// No image is sent, and no file is looked at.
    pub fn none() -> Self {
        Self { folder: None, is_taken: false, bytes: 0, count: 0 }
    }

    /// The image, or a line about it in its place.
    pub fn load(&mut self, attachment: &Attachment) -> Result<Image, String> {
        let media_type = attachment.media_type.as_str();
        let file = Path::new(&attachment.file);
        let stat = self.folder.and_then(|folder| folder.root.metadata(file).ok());
        let size = stat.and_then(|stat| u64::try_from(stat.st_size).ok()).unwrap_or(0);
        let not_sent = |why: &str| Err(format!("[{media_type}, {size} bytes, not sent: {why}]"));
        let Some(folder) = self.folder.filter(|_| self.is_taken) else {
            return not_sent("the model takes no images");
        };
        if !MEDIA_TYPES.contains(&media_type) {
            return not_sent("it is of no type that a model takes");
        }
        if size > IMAGE_BYTES_MAX {
            return not_sent(&format!("it is larger than {IMAGE_BYTES_MAX} bytes"));
        }
        if self.count == REQUEST_IMAGES_MAX || self.bytes.saturating_add(size) > REQUEST_IMAGE_BYTES_MAX {
            return not_sent(&format!(
                "a conversation takes {REQUEST_IMAGES_MAX} images and {REQUEST_IMAGE_BYTES_MAX} bytes of them"
            ));
        }
        let bytes = folder.root.read(file, size).unwrap_or_default();
        if bytes.is_empty() {
            return not_sent(&format!("{} cannot be read as one", attachment.file));
        }
        self.count += 1;
        self.bytes += bytes.len() as u64;
        Ok(Image { media_type: media_type.to_owned(), base64: STANDARD.encode(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root::Root;

    fn attachment(file: &str) -> Attachment {
        Attachment { media_type: "image/png".to_owned(), file: file.to_owned() }
    }

    #[test]
    fn images_are_bounded_from_the_beginning_on() {
        let place = tempfile::tempdir().unwrap();
        let folder = SessionFolder { root: Root::open(place.path()).unwrap(), name: "main".to_owned() };
        std::fs::write(place.path().join("huge"), vec![b'x'; 4 * 1024 * 1024]).unwrap();
        std::fs::write(place.path().join("large"), vec![b'x'; 3 * 1024 * 1024]).unwrap();
        std::fs::write(place.path().join("small"), b"abc").unwrap();
        std::fs::write(place.path().join("empty"), b"").unwrap();
        let mut images = Images::of(&folder, true);
        let line = images.load(&attachment("huge")).unwrap_err();
        assert_eq!(line, "[image/png, 4194304 bytes, not sent: it is larger than 3932160 bytes]");
        for _ in 0..4 {
            assert!(images.load(&attachment("large")).is_ok());
        }
        let line = images.load(&attachment("small")).unwrap_err();
        assert!(line.starts_with("[image/png, 3 bytes, not sent: a conversation takes 64 images"), "{line}");
        let mut images = Images::of(&folder, true);
        assert_eq!(images.load(&attachment("small")).unwrap().base64, "YWJj");
        for file in ["empty", "missing", "../outside"] {
            let line = images.load(&attachment(file)).unwrap_err();
            assert_eq!(line, format!("[image/png, 0 bytes, not sent: {file} cannot be read as one]"));
        }
        let other = Attachment { media_type: "image/svg+xml".to_owned(), ..attachment("small") };
        let line = images.load(&other).unwrap_err();
        assert_eq!(line, "[image/svg+xml, 3 bytes, not sent: it is of no type that a model takes]");
        let line = Images::of(&folder, false).load(&attachment("small")).unwrap_err();
        assert_eq!(line, "[image/png, 3 bytes, not sent: the model takes no images]");
        let loaded = (0..100).filter(|_| images.load(&attachment("small")).is_ok()).count();
        assert_eq!(loaded, REQUEST_IMAGES_MAX - 1);
    }
}
