//! Putting back what patches changed: from the images kept before them, and only where nothing else changed the files.
//!
//! Which patches these are is for the caller to say; what the files hold now is looked at here. All files are put back
//! or none is.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::apply::sha256_of;
use super::before::Image;
use super::write::{Attributes, Failure, FileWrite, Places, write_all};

/// One patch that took effect, or may have.
pub struct Applied {
    pub images: Vec<Image>,
    /// Its outcome is unknown: each of its files holds what it held before or what the patch leaves.
    pub is_uncertain: bool,
}

/// A file to be put back.
#[derive(Debug)]
pub struct Restoration {
    /// As [`crate::session::record::PlannedFile::path`].
    pub path: String,
    now: Option<Arc<[u8]>>,
    to: Option<Arc<[u8]>>,
    mode: Option<u32>,
}

/// What is to be done about the files of some patches.
#[derive(Debug, Default)]
pub struct Plan {
    pub restorations: Vec<Restoration>,
    /// The files that hold already what they held before.
    pub already: Vec<String>,
    /// The files that something else changed, each with what was found.
    pub changed: Vec<(String, String)>,
}

/// A file through the patches: what it was before them, and what it can hold behind the last one seen.
struct Course<'p> {
    first: &'p Image,
    possible: Vec<Option<&'p str>>,
    /// What a patch found was nothing that those before it leave.
    is_broken: bool,
}

/// Finds what is to be put back; `patches` in the order they were applied. Nothing is changed.
pub fn plan(patches: &[Applied], places: &Places<'_>) -> Plan {
    let mut order: Vec<&str> = Vec::new();
    let mut courses: BTreeMap<&str, Course<'_>> = BTreeMap::new();
    for patch in patches {
        for image in &patch.images {
            let file = &image.planned;
            let (before, after) = (file.sha256_before.as_deref(), file.sha256_after.as_deref());
            let course = courses.entry(&file.path).or_insert_with(|| {
                order.push(&file.path);
                Course { first: image, possible: vec![before], is_broken: false }
            });
            // Put back in between, it starts anew from what it was.
            let starts_anew = course.first.planned.sha256_before.as_deref() == before;
            course.is_broken |= !course.possible.contains(&before) && !starts_anew;
            course.possible = if patch.is_uncertain { vec![before, after] } else { vec![after] };
        }
    }
    let mut plan = Plan::default();
    for path in order {
        if let Some(course) = courses.remove(path) {
            plan.add(path, &course, places);
        }
    }
    plan
}

impl Plan {
    fn add(&mut self, path: &str, course: &Course<'_>, places: &Places<'_>) {
        let (now, bytes) = match places.read(path) {
            Ok(found) => (found.as_ref().map(|(bytes, _)| sha256_of(bytes)), found.map(|(bytes, _)| bytes)),
            Err(error) => return self.changed.push((path.to_owned(), error.to_string())),
        };
        if now.as_deref() == course.first.planned.sha256_before.as_deref() {
            self.already.push(path.to_owned());
        } else if course.is_broken {
            self.changed.push((path.to_owned(), "it was changed between two patches of the turn".to_owned()));
        } else if !course.possible.contains(&now.as_deref()) {
            let what = if now.is_some() { "it was changed since" } else { "it was removed since" };
            self.changed.push((path.to_owned(), what.to_owned()));
        } else {
            let Image { bytes: to, mode, .. } = course.first;
            self.restorations.push(Restoration { path: path.to_owned(), now: bytes, to: to.clone(), mode: *mode });
        }
    }
}

impl Restoration {
    /// What happens to the file, in words behind its path.
    pub fn words(&self) -> &'static str {
        match (&self.now, &self.to) {
            (_, None) => "removed",
            (None, Some(_)) => "made again",
            (Some(_), Some(_)) => "as it was",
        }
    }
}

/// Puts the files back.
pub fn put_back(restorations: &[Restoration], places: &Places<'_>) -> io::Result<()> {
    let writes: Vec<FileWrite> = restorations
        .iter()
        .map(|one| FileWrite {
            path: one.path.clone(),
            before: one.now.clone(),
            after: one.to.clone(),
            attributes: one.mode.map(Attributes::of_mode),
        })
        .collect();
    write_all(places, &writes).map_err(|failure| match failure {
        Failure::Unchanged(why) => io::Error::other(format!("nothing was put back: {why}")),
        Failure::Unknown(why, states) => {
            // Seen from here, what a file held when this began is "before".
            let states: Vec<String> =
                states.iter().map(|(path, state)| format!("{path} is {}", state.words())).collect();
            io::Error::other(format!("the files were put back in part: {why}; {}", states.join("; ")))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::record::{Change, PlannedFile};
    use crate::workspace::Workspace;
    use crate::workspace::root::Root;

    fn image(path: &str, before: Option<&str>, after: Option<&str>) -> Image {
        let digest = |text: Option<&str>| text.map(|text| sha256_of(text.as_bytes()));
        let planned = PlannedFile {
            path: path.to_owned(),
            change: Change::Update,
            sha256_before: digest(before),
            sha256_after: digest(after),
        };
        Image { planned, mode: before.map(|_| 0o755), bytes: before.map(|text| Arc::from(text.as_bytes())) }
    }

    fn sure(images: Vec<Image>) -> Applied {
        Applied { images, is_uncertain: false }
    }

    /// The plan in words for a file `f` that holds `now`.
    fn planned(patches: &[Applied], now: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        if let Some(text) = now {
            fs_err::write(folder.path().join("f"), text).unwrap();
        }
        let workspace = Workspace::new(Root::open(folder.path()).unwrap());
        let places = Places::open(&workspace).unwrap();
        let plan = plan(patches, &places);
        let words: Vec<String> = plan.restorations.iter().map(|one| one.words().to_owned()).collect();
        put_back(&plan.restorations, &places).unwrap();
        let held = fs_err::read_to_string(folder.path().join("f")).unwrap_or_else(|_| "absent".to_owned());
        let changed: Vec<&str> = plan.changed.iter().map(|(_, why)| why.as_str()).collect();
        format!(
            "{}{}{}: {held}",
            words.concat(),
            changed.concat(),
            if plan.already.is_empty() { "" } else { "already" }
        )
    }

    #[test]
    fn a_file_is_put_back_where_nothing_else_changed_it() {
        let edit = |before, after| sure(vec![image("f", Some(before), Some(after))]);
        let made = || sure(vec![image("f", None, Some("B"))]);
        let gone = || sure(vec![image("f", Some("A"), None)]);
        let unsure = || Applied { images: vec![image("f", Some("A"), Some("B"))], is_uncertain: true };
        for (patches, now, expected) in [
            (vec![edit("A", "B")], Some("B"), "as it was: A"),
            (vec![edit("A", "B"), edit("B", "C")], Some("C"), "as it was: A"),
            (vec![edit("A", "B"), edit("B", "A")], Some("A"), "already: A"),
            (vec![edit("A", "B")], Some("A"), "already: A"),
            (vec![edit("A", "B")], Some("X"), "it was changed since: X"),
            (vec![edit("A", "B")], None, "it was removed since: absent"),
            (vec![edit("A", "B"), edit("X", "C")], Some("C"), "it was changed between two patches of the turn: C"),
            // Undone in mid-turn, then patched again.
            (vec![edit("A", "B"), edit("A", "C")], Some("C"), "as it was: A"),
            (vec![made()], Some("B"), "removed: absent"),
            (vec![made(), edit("B", "C")], Some("C"), "removed: absent"),
            (vec![made()], None, "already: absent"),
            (vec![gone()], None, "made again: A"),
            (vec![gone()], Some("X"), "it was changed since: X"),
            (vec![unsure()], Some("B"), "as it was: A"),
            (vec![unsure()], Some("A"), "already: A"),
            (vec![unsure(), edit("A", "C")], Some("C"), "as it was: A"),
            (vec![unsure()], Some("X"), "it was changed since: X"),
        ] {
            assert_eq!(planned(&patches, now), expected);
        }
    }

    #[test]
    fn a_file_made_again_has_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::new(Root::open(folder.path()).unwrap());
        let places = Places::open(&workspace).unwrap();
        let plan = plan(&[sure(vec![image("f", Some("A"), None)])], &places);
        put_back(&plan.restorations, &places).unwrap();
        let mode = fs_err::metadata(folder.path().join("f")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn a_recorded_mode_lends_nobodys_rights() {
        use std::os::unix::fs::PermissionsExt;
        for (recorded, expected) in
            [(0o4755, 0o755), (0o2711, 0o711), (0o1777, 0o777), (0o10_4700, 0o700), (u32::MAX, 0o777)]
        {
            let folder = tempfile::tempdir().unwrap();
            let workspace = Workspace::new(Root::open(folder.path()).unwrap());
            let places = Places::open(&workspace).unwrap();
            let gone = Image { mode: Some(recorded), ..image("f", Some("A"), None) };
            put_back(&plan(&[sure(vec![gone])], &places).restorations, &places).unwrap();
            let mode = fs_err::metadata(folder.path().join("f")).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, expected, "{recorded:o}");
        }
    }
}
