//! Edits in order over the contents of files: what each file is to hold afterwards, or why the patch cannot be.
//!
//! Pure: what the files hold comes from the caller, and nothing is written here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::edits::Edit;
use super::encoding;
use super::mismatch;
use super::passage;
use crate::session::record::{Change, PlannedFile};
use crate::tool::Refusal;
use crate::workspace::{Kind, Location, Place};

/// How large a file may be, before and after.
pub const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How many refusals are told at once; the rest are counted.
const VIOLATIONS_MAX: usize = 20;

pub type Locations = BTreeMap<String, Result<Location, Refusal>>;

/// What a file holds before the patch; `None`: there is none.
pub type Present<'a> = dyn Fn(&Location) -> Result<Option<Content>, Refusal> + 'a;

#[derive(Debug, Clone)]
pub struct Content {
    pub bytes: Arc<[u8]>,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// Whether the model may be told of it before anyone is asked.
    pub may_be_told: bool,
    /// As [`crate::workspace::FileState::identity`]; `None` also where an earlier patch makes it anew.
    pub identity: Option<(u64, u64)>,
    pub links: u64,
}

/// One file that the patch leaves different from what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub location: Location,
    pub planned: PlannedFile,
    pub before: Option<Arc<[u8]>>,
    pub after: Option<Arc<[u8]>>,
    /// Whether its owner may execute it, before and after. One that is replaced keeps its mode, one that takes the place
    /// of another takes that one's.
    pub executable: [bool; 2],
    /// The file whose place a new one takes: its [`Location::absolute`] and its [`PlannedFile::path`].
    pub origin: Option<(PathBuf, String)>,
    /// The number of the last edit that changes it.
    pub edit: usize,
    /// What there is to know beyond the diff, in words behind its path.
    pub notes: Vec<String>,
}

/// The files that `edits` change, in the order first named; never empty.
///
/// What is wrong is told of all edits at once; `edits` are as [`super::edits::parse`] gives them.
pub fn apply(
    edits: &[Result<Edit, Refusal>],
    locations: &Locations,
    present: &Present<'_>,
) -> Result<Vec<FileChange>, Refusal> {
    let mut files = Files { locations, present, slots: Vec::new() };
    let mut violations = Vec::new();
    // Which edit failed first on a path: those behind it may fail for no other reason.
    let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, edit) in edits.iter().enumerate() {
        let number = index + 1;
        let result = match edit {
            Ok(edit) => files.edit(number, edit).map_err(|refusal| {
                let first = edit.paths().find_map(|path| failed.get(path).copied());
                edit.paths().for_each(|path| _ = failed.entry(path).or_insert(number));
                match first {
                    Some(first) => Refusal {
                        message: format!("{} (edit {first} on the same file fails, too)", refusal.message),
                        ..refusal
                    },
                    None => refusal,
                }
            }),
            Err(refusal) => Err(refusal.clone()),
        };
        violations.extend(result.err());
    }
    violations.extend(files.check_names());
    if let Some(refusal) = all_of(violations) {
        return Err(refusal);
    }
    let changes = changes(&files.slots);
    if changes.is_empty() {
        return Err(Refusal::new("no_change", "the edits leave every file as it is"));
    }
    Ok(changes)
}

/// Several refusals as one; `None` of none. The code is theirs if they have it in common.
pub(super) fn all_of(mut refusals: Vec<Refusal>) -> Option<Refusal> {
    if refusals.len() < 2 {
        return refusals.pop();
    }
    let code = refusals[0].code;
    let code = if refusals.iter().all(|refusal| refusal.code == code) { code } else { "invalid_arguments" };
    let more = refusals.len().saturating_sub(VIOLATIONS_MAX);
    let shown = &refusals[..refusals.len() - more];
    let mut message = shown.iter().map(|refusal| refusal.message.as_str()).collect::<Vec<_>>().join("\n");
    if more > 0 {
        message = format!("{message}\nand {more} more");
    }
    let details: Vec<&str> = shown.iter().filter_map(|refusal| refusal.detail.as_deref()).collect();
    let refusal = Refusal::new(code, message);
    Some(if details.is_empty() { refusal } else { refusal.detail(details.join("; ")) })
}

/// The 64 hex digits of a content's SHA-256.
pub fn sha256_of(bytes: &[u8]) -> String {
    use sha2::Digest;
    use std::fmt::Write;
    sha2::Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// The path by which records name a file: relative to the workspace, or absolute for everything outside it, the
/// session's own files among them.
pub(super) fn planned_path(location: &Location) -> Result<String, Refusal> {
    let path: &Path = match location.place {
        Place::Workspace => &location.path,
        Place::Session | Place::Outside => &location.absolute,
    };
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Refusal::new("invalid_arguments", format!("{} has a name that is not UTF-8; use a command", location.shown))
    })
}

struct Files<'a> {
    locations: &'a Locations,
    present: &'a Present<'a>,
    slots: Vec<Slot>,
}

/// One file, however it is named.
struct Slot {
    location: Location,
    path: String,
    before: Option<Arc<[u8]>>,
    now: Option<Arc<[u8]>>,
    /// Whether its owner may execute it before the patch.
    executable: bool,
    /// The slot that the content was moved from.
    origin: Option<usize>,
    /// Whether what it holds now may be told; it goes with the content when that is moved.
    may_be_told: bool,
    /// What an earlier edit did to it, if it is gone.
    gone: Option<String>,
    /// The last edit that gave it content, if one did.
    edited_by: Option<usize>,
    /// The last edit that changed it in any way.
    changed_by: usize,
    identity: Option<(u64, u64)>,
    links: u64,
    /// Text that is not ASCII was put among bytes that are not UTF-8.
    is_mixed: bool,
}

impl Files<'_> {
    fn edit(&mut self, number: usize, edit: &Edit) -> Result<(), Refusal> {
        match edit {
            Edit::Replace { path, before, after } => self.replace(number, path, before, after),
            Edit::Content { path, content } => {
                let index = self.slot(number, path)?;
                ensure_size(number, &self.slots[index].location, content.len())?;
                let slot = &mut self.slots[index];
                slot.now = Some(Arc::from(content.as_bytes()));
                slot.gone = None;
                slot.edited_by = Some(number);
                slot.changed_by = number;
                slot.is_mixed = false;
                Ok(())
            }
            Edit::Delete { path } => {
                let (index, _) = self.existing(number, path)?;
                let slot = &mut self.slots[index];
                slot.now = None;
                slot.origin = None;
                slot.gone = Some(format!("edit {number} deletes it"));
                slot.changed_by = number;
                Ok(())
            }
            Edit::Move { path, move_to } => self.move_file(number, path, move_to),
        }
    }

    fn replace(&mut self, number: usize, path: &str, before: &str, after: &str) -> Result<(), Refusal> {
        let (index, text) = self.existing(number, path)?;
        let slot = &mut self.slots[index];
        if let Some(name) = encoding::wide(&text) {
            let shown = &slot.location.shown;
            let what = format!(
                "edit {number}: {shown} is {name} text, and a passage is replaced in UTF-8 text alone; convert it \
                 with a command, or replace the whole with `content`"
            );
            return Err(Refusal::new("wrong_encoding", what));
        }
        let found = passage::replace(&text, before, after).map_err(|why| {
            let shown = &slot.location.shown;
            if slot.may_be_told {
                mismatch::refusal(&why, number, shown, &text, before, slot.edited_by.is_some())
            } else {
                mismatch::untold(number, shown)
            }
        })?;
        ensure_size(number, &slot.location, found.len())?;
        slot.is_mixed |= !after.is_ascii() && std::str::from_utf8(&text).is_err();
        slot.now = Some(Arc::from(found));
        slot.edited_by = Some(number);
        slot.changed_by = number;
        Ok(())
    }

    fn move_file(&mut self, number: usize, path: &str, move_to: &str) -> Result<(), Refusal> {
        let (from, bytes) = self.existing(number, path)?;
        let to = self.slot(number, move_to)?;
        let target = &self.slots[to].location.shown;
        if from == to {
            let what = format!("edit {number}: {path} and {move_to} name the same file");
            return Err(Refusal::new("invalid_arguments", what));
        }
        if self.slots[to].now.is_some() {
            let what = format!("edit {number}: {target} exists already; a file is not moved onto another");
            return Err(Refusal::new("exists", what));
        }
        let may_be_told = self.slots[from].may_be_told && self.slots[to].may_be_told;
        let gone = format!("edit {number} moves it to {target}");
        // A file that comes back to where it was is no move at all.
        let origin = Some(self.slots[from].origin.unwrap_or(from)).filter(|origin| *origin != to);
        let source = &mut self.slots[from];
        source.now = None;
        source.origin = None;
        source.gone = Some(gone);
        source.changed_by = number;
        let is_mixed = source.is_mixed;
        let target = &mut self.slots[to];
        target.now = Some(bytes);
        target.origin = origin;
        target.may_be_told = may_be_told;
        target.gone = None;
        target.changed_by = number;
        target.is_mixed = is_mixed;
        Ok(())
    }

    /// The slot of the file that `path` names, which need not exist.
    fn slot(&mut self, number: usize, path: &str) -> Result<usize, Refusal> {
        let numbered = |refusal: Refusal| Refusal { message: format!("edit {number}: {}", refusal.message), ..refusal };
        let location = match self.locations.get(path) {
            Some(Ok(location)) => location,
            Some(Err(refusal)) => return Err(numbered(refusal.clone())),
            None => return Err(numbered(Refusal::new("not_found", format!("{path} was not looked at")))),
        };
        if let Some(index) = self.slots.iter().position(|slot| slot.location.absolute == location.absolute) {
            return Ok(index);
        }
        match location.kind {
            Kind::File | Kind::Absent => {}
            Kind::Folder => {
                let what = format!("{} is a folder; an edit names a file (folders are left alone)", location.shown);
                return Err(numbered(Refusal::new("is_a_folder", what)));
            }
            Kind::Other => {
                let what = format!("{} is no regular file", location.shown);
                return Err(numbered(Refusal::new("not_a_file", what)));
            }
        }
        let content = (self.present)(location).map_err(numbered)?;
        // What would have to be asked for, were it read, is not told here either.
        let is_free = !location.secret && location.place != Place::Outside;
        let may_be_told = is_free && content.as_ref().is_none_or(|content| content.may_be_told);
        let executable = content.as_ref().is_some_and(|content| content.executable);
        let identity = content.as_ref().and_then(|content| content.identity);
        let links = content.as_ref().map_or(1, |content| content.links);
        let before = content.map(|content| content.bytes);
        ensure_size(number, location, before.as_ref().map_or(0, |bytes| bytes.len()))?;
        self.slots.push(Slot {
            path: planned_path(location).map_err(numbered)?,
            location: location.clone(),
            now: before.clone(),
            before,
            executable,
            origin: None,
            may_be_told,
            gone: None,
            edited_by: None,
            changed_by: number,
            identity,
            links,
            is_mixed: false,
        });
        Ok(self.slots.len() - 1)
    }

    /// Content for one file under two of its names: each would become a file of its own.
    fn check_names(&self) -> Vec<Refusal> {
        let edited = |slot: &&Slot| slot.identity.is_some() && slot.edited_by.is_some() && slot.now.is_some();
        let slots: Vec<&Slot> = self.slots.iter().filter(edited).collect();
        let mut found = Vec::new();
        for (index, slot) in slots.iter().enumerate() {
            if let Some(first) = slots[..index].iter().find(|first| first.identity == slot.identity) {
                let number = slot.edited_by.unwrap_or_default();
                let (one, other) = (&first.location.shown, &slot.location.shown);
                let what =
                    format!("edit {number}: {other} and {one} are two names of one file; edit it by one of them");
                found.push(Refusal::new("invalid_arguments", what));
            }
        }
        found
    }

    /// The slot and the bytes of a file that must be there.
    fn existing(&mut self, number: usize, path: &str) -> Result<(usize, Arc<[u8]>), Refusal> {
        let index = self.slot(number, path)?;
        let slot = &self.slots[index];
        if let Some(bytes) = &slot.now {
            return Ok((index, bytes.clone()));
        }
        let shown = &slot.location.shown;
        if let Some(gone) = &slot.gone {
            let what = format!("edit {number}: {shown} is gone by then, because {gone}");
            return Err(Refusal::new("invalid_arguments", what));
        }
        let refusal = Refusal::new("not_found", format!("edit {number}: there is no file {shown}"));
        Err(match self.nearest_name(shown) {
            Some(name) => refusal.detail(format!("the nearest name is {name}")),
            None => refusal,
        })
    }

    /// The most similar name among the files that the patch names and that exist.
    fn nearest_name(&self, wanted: &str) -> Option<&str> {
        const LIKENESS_MIN: f64 = 0.85;
        let known = self.locations.values().flatten().filter(|location| location.kind == Kind::File);
        known
            .map(|location| (strsim::jaro_winkler(wanted, &location.shown), location.shown.as_str()))
            .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, shown)| shown)
    }
}

fn ensure_size(number: usize, location: &Location, bytes: usize) -> Result<(), Refusal> {
    if bytes <= FILE_BYTES_MAX {
        return Ok(());
    }
    let shown = &location.shown;
    let what = format!("edit {number}: {shown} has {bytes} bytes, and at most {FILE_BYTES_MAX} can be patched");
    Err(Refusal::new("too_large", what))
}

fn notes(slot: &Slot, change: Change) -> Vec<String> {
    let mut notes = Vec::new();
    let is_replaced = match change {
        Change::Update => true,
        Change::Move => slot.before.is_some(),
        Change::Add | Change::Delete => false,
    };
    if slot.links > 1 && is_replaced {
        let links = slot.links;
        notes.push(format!("it is one of {links} names of a file (hard links); the others keep what it held"));
    }
    if slot.is_mixed {
        notes.push("it is not UTF-8, but the new text is, so that it holds two encodings".to_owned());
    }
    let wide = |bytes: &Option<Arc<[u8]>>| bytes.as_ref().and_then(|bytes| encoding::wide(bytes));
    if let (Some(name), None, Some(_)) = (wide(&slot.before), wide(&slot.now), &slot.now) {
        notes.push(format!("it was {name} text, and is UTF-8 now"));
    }
    notes
}

fn changes(slots: &[Slot]) -> Vec<FileChange> {
    // A file is moved where it ends up as a new one and its old place is empty; only the first new one counts.
    let target_of = |origin: usize| {
        slots.iter().position(|slot| slot.origin == Some(origin) && slot.before.is_none() && slot.now.is_some())
    };
    let is_moved = |origin: usize| slots[origin].before.is_some() && slots[origin].now.is_none();
    let mut found = Vec::new();
    for (index, slot) in slots.iter().enumerate() {
        let change = match (&slot.before, &slot.now) {
            (None, None) => continue,
            (Some(before), Some(now)) if before == now => continue,
            (Some(_), Some(_)) => Change::Update,
            (Some(_), None) if target_of(index).is_some() => Change::Move,
            (Some(_), None) => Change::Delete,
            (None, Some(_)) => match slot.origin {
                Some(origin) if is_moved(origin) && target_of(origin) == Some(index) => Change::Move,
                Some(_) | None => Change::Add,
            },
        };
        let executable_after = match (&slot.before, &slot.now) {
            (_, None) => false,
            (Some(_), Some(_)) => slot.executable,
            (None, Some(_)) => slot.origin.is_some_and(|origin| slots[origin].executable),
        };
        let digest = |bytes: &Option<Arc<[u8]>>| bytes.as_ref().map(|bytes| sha256_of(bytes));
        found.push(FileChange {
            location: slot.location.clone(),
            planned: PlannedFile {
                path: slot.path.clone(),
                change,
                sha256_before: digest(&slot.before),
                sha256_after: digest(&slot.now),
            },
            before: slot.before.clone(),
            after: slot.now.clone(),
            executable: [slot.executable, executable_after],
            origin: slot.origin.map(|origin| (slots[origin].location.absolute.clone(), slots[origin].path.clone())),
            edit: slot.changed_by,
            notes: notes(slot, change),
        });
    }
    found
}
