//! `attini sessions import`: a session of an archive that may be anybody's.

use std::path::Path;

use serde_json::{Value, json};

use super::lines_where;
use crate::clock;
use crate::command::invocation::Invocation;
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::{RulesFile, file};
use crate::report::line::Line;
use crate::session::archive::{Bounds, unpack};
use crate::session::check::check_session;
use crate::session::collection::{Collection, exists};
use crate::session::folder::{FILE_MODE, SessionFolder};
use crate::session::fork::open_log;
use crate::session::pending::PendingFile;
use crate::session::record::{Decision, ImportedRecord, Record};

/// What a fresh session is called until the archive says its name.
const UNNAMED: &str = "import";

/// How many violations are told of.
const VIOLATIONS_SHOWN_MAX: usize = 3;

/// What was left out, most of it for want of `--with-rules`.
#[derive(Default)]
struct LeftOut {
    rules: usize,
    approvals: usize,
    /// Calls with rules that would have been stored when the turn goes on, always left out: nobody here granted them.
    grants: usize,
}

pub(super) fn run(
    invocation: &Invocation,
    archive: &Path,
    name: Option<&str>,
    with_rules: bool,
) -> anyhow::Result<Value> {
    let stream = std::fs::File::open(archive)
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", archive.display())))?;
    let collection = Collection { root: invocation.state().make_sessions()? };
    if let Some(name) = name.filter(|name| collection.holds(name)) {
        return Err(exists(name).into());
    }
    super::prune::remove_leftovers(&collection);
    let mut nascent = collection.begin(name.unwrap_or(UNNAMED), &invocation.interrupt)?;
    let exported = unpack(stream, &nascent.folder, Bounds::default())?;
    let name = name.unwrap_or(&exported).to_owned();
    nascent.folder.name.clone_from(&name);
    if collection.holds(&name) {
        return Err(exists(&name).hint("`attini sessions import --as NAME` gives it another name").into());
    }
    ensure_sound(&nascent.folder)?;
    mark_imported(&nascent.folder)?;
    let mut left_out = LeftOut::default();
    let kept_rules = take_rules(&nascent.folder, with_rules, &mut left_out)?;
    take_pending(&nascent.folder, with_rules, &mut left_out)?;
    nascent.appear()?;
    tell(invocation, &name, &exported, kept_rules, &left_out);
    Ok(json!({
        "session": name,
        "exported_as": exported,
        "rules_left_out": left_out.rules,
        "approvals_left_out": left_out.approvals,
        "grants_left_out": left_out.grants,
    }))
}

/// Ends what the archive says: whatever it tells of patches, no file here was written by them.
fn mark_imported(folder: &SessionFolder) -> anyhow::Result<()> {
    let mut log = open_log(folder)?;
    log.append(&Record::Imported(ImportedRecord { at: clock::now() }))?;
    log.barrier()
}

fn ensure_sound(folder: &SessionFolder) -> anyhow::Result<()> {
    let refused = |what: String| {
        Failure::new(Status::Corrupt, format!("the archive is refused: {what}")).hint("nothing was imported")
    };
    let Some(findings) = check_session(folder)? else {
        return Err(refused("it holds no conversation".to_owned()).into());
    };
    if findings.violations.is_empty() {
        return Ok(());
    }
    let count = findings.violations.len();
    let shown: Vec<String> = findings
        .violations
        .iter()
        .take(VIOLATIONS_SHOWN_MAX)
        .map(|violation| {
            let file = Path::new(&violation.file).file_name().map(|name| name.to_string_lossy().into_owned());
            let line = violation.line.map(|line| format!(":{line}")).unwrap_or_default();
            format!("{}{line}: {}", file.unwrap_or_default(), violation.what)
        })
        .collect();
    let more = if count > shown.len() { format!("; and {} more", count - shown.len()) } else { String::new() };
    Err(refused(format!("{}{more}", shown.join("; "))).into())
}

/// Leaves out what would allow something. Returns how many such rules stay.
fn take_rules(folder: &SessionFolder, with_rules: bool, left_out: &mut LeftOut) -> anyhow::Result<usize> {
    let rules_file = RulesFile::session(folder);
    let Some(bytes) = rules_file.read()? else { return Ok(0) };
    let rules = file::parse(&bytes, "permissions.jsonl of the archive", rules_file.scope())?;
    let allowing = rules.iter().filter(|rule| rule.allows()).count();
    if with_rules || allowing == 0 {
        return Ok(allowing);
    }
    left_out.rules = allowing;
    let kept = lines_where(&bytes, |rule| !rule.allows());
    let name = rules_file.path().file_name().map(ToOwned::to_owned).unwrap_or_default();
    folder
        .root
        .replace(Path::new(&name), &kept, FILE_MODE)
        .map_err(|error| Failure::persistence(format!("{} cannot be written: {error}", rules_file.shown())))?;
    Ok(0)
}

/// Takes back grants, and approvals, that nobody gave here, and gives pending.json the session's name.
fn take_pending(folder: &SessionFolder, with_rules: bool, left_out: &mut LeftOut) -> anyhow::Result<()> {
    let Some(mut file) = PendingFile::load(folder)? else { return Ok(()) };
    for call in &mut file.calls {
        left_out.grants += usize::from(call.granted.take().is_some());
        let is_left_out = match call.decision {
            Some(Decision::Approve) => !with_rules,
            // It follows from a rule that was granted.
            Some(Decision::Allow) => true,
            Some(Decision::Deny | Decision::Answer | Decision::Stale) | None => false,
        };
        if is_left_out {
            left_out.approvals += 1;
            (call.decision, call.decided_at) = (None, None);
        }
    }
    if left_out.approvals == 0 && left_out.grants == 0 && file.session == folder.name {
        return Ok(());
    }
    file.session.clone_from(&folder.name);
    file.store(folder)
}

fn tell(invocation: &Invocation, name: &str, exported: &str, kept_rules: usize, left_out: &LeftOut) {
    let said = if name == exported { String::new() } else { format!(", exported as {exported}") };
    invocation.reporter.print(&[Line::plain(&format!("imported the session {name}{said}"))]);
    let count = |number: usize, what: &str| if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") };
    if left_out.rules > 0 {
        let rules = count(left_out.rules, "rule");
        invocation.reporter.warning(&format!("{rules} that would allow something left out; --with-rules keeps them"));
    }
    if left_out.approvals > 0 {
        let approvals = count(left_out.approvals, "approval");
        invocation.reporter.warning(&format!("{approvals} left out; look at the calls, and approve them again"));
    }
    if left_out.grants > 0 {
        let calls = count(left_out.grants, "call");
        invocation.reporter.warning(&format!("rules that were granted with {calls} left out; nothing is stored here"));
    }
    if kept_rules > 0 {
        let rules = count(kept_rules, "rule");
        invocation.reporter.warning(&format!(
            "{rules} that would allow something kept; they count once `{} trust` has seen them",
            invocation.command_prefix
        ));
    }
}
