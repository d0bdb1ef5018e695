//! A `permissions.jsonl`: read whole, edited line by line.
//!
//! What a person wrote stays as it is: comments, blank lines, the order, the ends of lines. Edits are atomic and made
//! under the lock of the folder; a workspace's and a session's file are known to trust.json before they get their name.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Rule;
use super::rule::ensure_turn_fits;
use crate::config::Trust;
use crate::config::layers::trust_command;
use crate::config::own_file::{FolderLock, read_beneath, read_user_file};
use crate::failure::Failure;
use crate::session::folder::{FILE_MODE, SessionFolder};
use crate::session::record::Scope;
use crate::workspace::Workspace;
use crate::workspace::root::Root;

/// A larger file is refused.
pub const RULES_BYTES_MAX: u64 = 4 * 1024 * 1024;

const FILE_NAME: &str = "permissions.jsonl";
const WORKSPACE_FOLDER: &str = ".attini";
const WORKSPACE_FOLDER_MODE: u32 = 0o755;
const WORKSPACE_FILE_MODE: u32 = 0o644;
const USER_FILE_MODE: u32 = 0o600;

/// One of the three files.
#[derive(Debug, Clone, Copy)]
pub struct RulesFile<'a>(Home<'a>);

#[derive(Debug, Clone, Copy)]
enum Home<'a> {
    User(&'a Path),
    Workspace(&'a Workspace),
    Session(&'a SessionFolder),
}

/// The folder of a file, held open, and the file's name in it.
struct Opened {
    folder: Root,
    name: PathBuf,
}

impl<'a> RulesFile<'a> {
    /// The user's own, in the folder of the user's config.
    pub fn user(folder: &'a Path) -> Self {
        Self(Home::User(folder))
    }

    pub fn workspace(workspace: &'a Workspace) -> Self {
        Self(Home::Workspace(workspace))
    }

    pub fn session(folder: &'a SessionFolder) -> Self {
        Self(Home::Session(folder))
    }

    pub fn scope(self) -> Scope {
        match self.0 {
            Home::User(_) => Scope::User,
            Home::Workspace(_) => Scope::Workspace,
            Home::Session(_) => Scope::Session,
        }
    }

    /// The absolute path, as trust.json names it.
    pub fn path(self) -> PathBuf {
        match self.0 {
            Home::User(folder) => folder.join(FILE_NAME),
            Home::Workspace(workspace) => workspace.root.path().join(WORKSPACE_FOLDER).join(FILE_NAME),
            Home::Session(folder) => folder.root.path().join(FILE_NAME),
        }
    }

    /// The path for messages.
    pub fn shown(self) -> String {
        match self.0 {
            Home::Workspace(_) => format!("{WORKSPACE_FOLDER}/{FILE_NAME}"),
            Home::User(_) | Home::Session(_) => self.path().display().to_string(),
        }
    }

    /// The file's bytes; `None`: there is none. Beneath the workspace and in a session no link is followed.
    pub fn read(self) -> Result<Option<Vec<u8>>> {
        match self.0 {
            Home::User(_) => read_user_file(&self.path(), RULES_BYTES_MAX),
            Home::Workspace(workspace) => {
                read_beneath(&workspace.root, &Path::new(WORKSPACE_FOLDER).join(FILE_NAME), RULES_BYTES_MAX)
            }
            Home::Session(folder) => read_beneath(&folder.root, Path::new(FILE_NAME), RULES_BYTES_MAX),
        }
    }

    /// The file's bytes, and whether the allowing rules in it count. What looks untrusted is looked at again under the
    /// lock: another invocation may have stored a rule since `trust` was read.
    pub fn read_judged(self, trust: &Trust) -> Result<Option<(Vec<u8>, bool)>> {
        let Some(bytes) = self.read()? else { return Ok(None) };
        if self.is_trusted(trust, &bytes) {
            return Ok(Some((bytes, true)));
        }
        let mut trust = trust.clone();
        let again = self.open().and_then(|opened| {
            let lock = FolderLock::take(&opened.folder)?;
            trust.refresh()?;
            let bytes = read_beneath(&opened.folder, &opened.name, RULES_BYTES_MAX)?;
            drop(lock);
            Ok(bytes)
        });
        // Where nothing can be locked, what was seen stands, and allows nothing.
        Ok(match again {
            Ok(Some(bytes)) => {
                let is_trusted = self.is_trusted(&trust, &bytes);
                Some((bytes, is_trusted))
            }
            Ok(None) | Err(_) => Some((bytes, false)),
        })
    }

    /// Whether the allowing rules in it count. The user's own need no trust.
    pub fn is_trusted(self, trust: &Trust, bytes: &[u8]) -> bool {
        match self.0 {
            Home::User(_) => true,
            Home::Workspace(_) | Home::Session(_) => trust.is_trusted(&self.path(), bytes),
        }
    }

    /// Stores those rules that the file does not hold yet, at its end. Refused (exit code 2) where the file is not
    /// trusted, since its other rules would come to count with them.
    pub fn add(self, rules: &[Rule], trust: &mut Trust) -> Result<()> {
        self.edit(trust, |file, text, trust| file.with_added(text, rules, trust))
    }

    /// Refuses what [`RulesFile::add`] would refuse, before anything is changed.
    pub fn ensure_storable(self, rules: &[Rule], trust: &Trust) -> Result<()> {
        if self.read()?.is_none() {
            // Then the folder may be missing too, and is not made for a question.
            return self.with_added("", rules, trust).map(|_| ());
        }
        let opened = self.open()?;
        let lock = FolderLock::take(&opened.folder)?;
        let mut trust = trust.clone();
        trust.refresh()?;
        let before = read_beneath(&opened.folder, &opened.name, RULES_BYTES_MAX)?.unwrap_or_default();
        drop(lock);
        self.with_added(text_of(&before, &self.shown())?, rules, &trust).map(|_| ())
    }

    /// The file's text with these rules at its end.
    fn with_added(self, text: &str, rules: &[Rule], trust: &Trust) -> Result<String> {
        for rule in rules {
            ensure_turn_fits(rule, self.scope()).map_err(Failure::usage)?;
        }
        self.ensure_trusted(trust, text.as_bytes())?;
        let known = parse(text.as_bytes(), &self.shown(), self.scope())?;
        let after = appended(text, &known, rules);
        self.ensure_size(&after)?;
        Ok(after)
    }

    fn ensure_size(self, text: &str) -> Result<()> {
        if text.len() as u64 > RULES_BYTES_MAX {
            let message = format!("{} would be larger than the limit of {RULES_BYTES_MAX} bytes", self.shown());
            return Err(Failure::usage(message).into());
        }
        Ok(())
    }

    fn ensure_trusted(self, trust: &Trust, bytes: &[u8]) -> Result<()> {
        if self.is_trusted(trust, bytes) {
            return Ok(());
        }
        let mut failure = Failure::usage(format!("{} is not trusted, so nothing is stored in it", self.shown()));
        if let Home::Workspace(workspace) = self.0 {
            failure = failure.hint(format!("look at it, then: {}", trust_command(workspace.root.path())));
        }
        Err(failure.code("untrusted").into())
    }

    /// Takes away every line that holds one of these rules; returns how many lines these were.
    pub fn remove(self, rules: &[Rule], trust: &mut Trust) -> Result<usize> {
        self.remove_where(trust, |rule| rules.contains(rule))
    }

    /// Takes away the rules that counted in that turn alone, at its end, and those that a kill left of turns before it.
    pub fn remove_turns(self, through_turn: u64, trust: &mut Trust) -> Result<()> {
        self.remove_where(trust, |rule| rule.turn().is_some_and(|turn| turn <= through_turn)).map(|_| ())
    }

    fn remove_where(self, trust: &mut Trust, goes: impl Fn(&Rule) -> bool) -> Result<usize> {
        if self.read()?.is_none() {
            return Ok(0);
        }
        let mut gone = 0;
        self.edit(trust, |file, text, _| {
            parse(text.as_bytes(), &file.shown(), file.scope())?;
            let goes = |line: &&str| Rule::parse(line.trim()).is_ok_and(|rule| goes(&rule));
            gone = text.split_inclusive('\n').filter(goes).count();
            Ok(text.split_inclusive('\n').filter(|line| !goes(line)).collect())
        })?;
        Ok(gone)
    }

    fn open(self) -> Result<Opened> {
        let cannot = || format!("cannot open the folder of {}", self.shown());
        match self.0 {
            Home::User(folder) => {
                fs_err::create_dir_all(folder)?;
                // The user may have put a link there; what it leads to is edited, the link stays.
                let path = fs_err::canonicalize(self.path()).unwrap_or_else(|_| self.path());
                let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(Failure::usage(format!("{} is no file", path.display())).into());
                };
                Ok(Opened { folder: Root::open(parent).with_context(cannot)?, name: PathBuf::from(name) })
            }
            Home::Workspace(workspace) => {
                let relative = Path::new(WORKSPACE_FOLDER);
                workspace.root.make_folders(relative, WORKSPACE_FOLDER_MODE).with_context(cannot)?;
                Ok(Opened { folder: workspace.root.folder(relative).with_context(cannot)?, name: FILE_NAME.into() })
            }
            Home::Session(folder) => {
                let folder = folder.root.folder(Path::new(".")).with_context(cannot)?;
                Ok(Opened { folder, name: FILE_NAME.into() })
            }
        }
    }

    /// Replaces the file's text by what `change` makes of it, if that is another.
    fn edit(self, trust: &mut Trust, change: impl FnOnce(Self, &str, &Trust) -> Result<String>) -> Result<()> {
        let opened = self.open()?;
        let lock = FolderLock::take(&opened.folder)?;
        // Both as they are now: what another invocation stored since `trust` was read is no foreign edit.
        trust.refresh()?;
        let before = read_beneath(&opened.folder, &opened.name, RULES_BYTES_MAX)?;
        let text = text_of(before.as_deref().unwrap_or_default(), &self.shown())?;
        let after = change(self, text, trust)?;
        if after == text {
            return Ok(());
        }
        self.ensure_size(&after)?;
        let mode = match (before.is_some(), self.0) {
            (true, _) => opened.folder.metadata(&opened.name)?.st_mode & 0o777,
            (false, Home::User(_)) => USER_FILE_MODE,
            (false, Home::Workspace(_)) => WORKSPACE_FILE_MODE,
            (false, Home::Session(_)) => FILE_MODE,
        };
        if !matches!(self.0, Home::User(_)) {
            trust.record_edit(&self.path(), before.as_deref(), after.as_bytes())?;
        }
        opened
            .folder
            .replace(&opened.name, after.as_bytes(), mode)
            .map_err(|error| Failure::persistence(format!("cannot write {}: {error}", self.shown())))?;
        drop(lock);
        Ok(())
    }
}

/// The rules of a file in the order written. `shown` names it in errors, which are `FILE:LINE: ...` (exit code 2).
pub fn parse(bytes: &[u8], shown: &str, scope: Scope) -> Result<Vec<Rule>> {
    Ok(parse_lines(bytes, shown, scope)?.into_iter().map(|(_, rule)| rule).collect())
}

/// The same, each rule with the number of its line, from 1.
pub fn parse_lines(bytes: &[u8], shown: &str, scope: Scope) -> Result<Vec<(usize, Rule)>> {
    let mut rules = Vec::new();
    for (index, line) in text_of(bytes, shown)?.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let rule = Rule::parse(line)
            .and_then(|rule| ensure_turn_fits(&rule, scope).map(|()| rule))
            .map_err(|why| Failure::usage(format!("{shown}:{}: {why}", index + 1)))?;
        rules.push((index + 1, rule));
    }
    Ok(rules)
}

fn text_of<'b>(bytes: &'b [u8], shown: &str) -> Result<&'b str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        Failure::usage(format!("{shown}:{line}: the text is not UTF-8")).into()
    })
}

/// `text` with the rules that it does not hold behind it, one a line.
fn appended(text: &str, known: &[Rule], rules: &[Rule]) -> String {
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut new: Vec<&Rule> = Vec::new();
    for rule in rules {
        if !known.contains(rule) && !new.contains(&rule) {
            new.push(rule);
        }
    }
    let mut after = Cow::Borrowed(text);
    if !new.is_empty() && !text.is_empty() && !text.ends_with('\n') {
        after.to_mut().push_str(end);
    }
    for rule in new {
        after.to_mut().push_str(&rule.to_line());
        after.to_mut().push_str(end);
    }
    after.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;
    use crate::exit::Status;

    struct Case {
        folder: tempfile::TempDir,
        workspace: Workspace,
        session: SessionFolder,
    }

    impl Case {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs_err::create_dir_all(folder.path().join("w/.attini/sessions/main")).unwrap();
            let workspace = Workspace::new(Root::open(&folder.path().join("w")).unwrap());
            let root = workspace.root.folder(Path::new(".attini/sessions/main")).unwrap();
            Self { folder, workspace, session: SessionFolder { name: "main".to_owned(), root } }
        }

        fn trust(&self) -> Trust {
            let environment: Environment = [("HOME", self.folder.path().join("home"))].into_iter().collect();
            Trust::load(&environment).unwrap()
        }
    }

    fn write(file: RulesFile<'_>, text: &str) {
        fs_err::create_dir_all(file.path().parent().unwrap()).unwrap();
        fs_err::write(file.path(), text).unwrap();
    }

    fn text(file: RulesFile<'_>) -> String {
        String::from_utf8(file.read().unwrap().unwrap()).unwrap()
    }

    fn rule(line: &str) -> Rule {
        Rule::parse(line).unwrap()
    }

    const READ: &str = r#"{"type":"read","allow":true,"path":"../x"}"#;
    const WRITE: &str = r#"{"type":"write","allow":true,"path":"src"}"#;
    const TURN: &str = r#"{"type":"write","allow":true,"path":"src","turn":3}"#;

    #[test]
    fn a_line_that_does_not_parse_is_told_with_its_place() {
        let bytes = format!("# a comment\n\n{READ}\n{{\"type\":\"raed\"}}\n");
        let failure = Failure::of(&parse(bytes.as_bytes(), "f.jsonl", Scope::User).unwrap_err());
        assert_eq!(failure.status, Status::Usage);
        assert_eq!(failure.message, "f.jsonl:4: unknown type `raed`; did you mean `read`?");
        let failure = Failure::of(&parse(TURN.as_bytes(), "f.jsonl", Scope::Workspace).unwrap_err());
        assert_eq!(failure.message, "f.jsonl:1: `turn` has a meaning in a session's file alone");
        assert_eq!(parse(TURN.as_bytes(), "f.jsonl", Scope::Session).unwrap(), [rule(TURN)]);
        let failure = Failure::of(&parse(b"\n\xff", "f.jsonl", Scope::User).unwrap_err());
        assert_eq!(failure.message, "f.jsonl:2: the text is not UTF-8");
    }

    #[test]
    fn rules_are_added_behind_what_a_person_wrote() {
        for (before, expected) in [
            ("", format!("{WRITE}\n")),
            ("# mine", format!("# mine\n{WRITE}\n")),
            ("# mine\r\n", format!("# mine\r\n{WRITE}\r\n")),
            (&format!("{READ}\n\n"), format!("{READ}\n\n{WRITE}\n")),
            (&format!("  {WRITE}"), format!("  {WRITE}")),
        ] {
            let known = parse(before.as_bytes(), "f", Scope::User).unwrap();
            assert_eq!(appended(before, &known, &[rule(WRITE), rule(WRITE)]), expected, "{before:?}");
        }
    }

    #[test]
    fn what_attini_stores_is_trusted_and_stays_so() {
        let case = Case::new();
        let mut trust = case.trust();
        for file in [RulesFile::workspace(&case.workspace), RulesFile::session(&case.session)] {
            file.add(&[rule(READ)], &mut trust).unwrap();
            file.add(&[rule(WRITE), rule(READ)], &mut trust).unwrap();
            assert_eq!(text(file), format!("{READ}\n{WRITE}\n"));
            file.remove(&[rule(READ)], &mut trust).unwrap();
            assert_eq!(text(file), format!("{WRITE}\n"));
            assert!(file.is_trusted(&case.trust(), text(file).as_bytes()));
        }
    }

    #[test]
    fn what_another_invocation_stored_since_is_no_foreign_edit() {
        let case = Case::new();
        let file = RulesFile::workspace(&case.workspace);
        let stale = case.trust();
        file.add(&[rule(READ)], &mut case.trust()).unwrap();
        file.add(&[rule(WRITE)], &mut case.trust()).unwrap();
        let (bytes, is_trusted) = file.read_judged(&stale).unwrap().unwrap();
        assert!(is_trusted && !file.is_trusted(&stale, &bytes));
        file.ensure_storable(&[rule(READ)], &stale).unwrap();
        let other = r#"{"type":"tool","allow":true,"name":"x"}"#;
        file.add(&[rule(other)], &mut stale.clone()).unwrap();
        assert_eq!(text(file), format!("{READ}\n{WRITE}\n{other}\n"));
        write(file, &format!("{WRITE}\n"));
        assert!(file.ensure_storable(&[rule(READ)], &case.trust()).is_err());
        assert!(!file.read_judged(&case.trust()).unwrap().unwrap().1);
    }

    #[test]
    fn rules_stored_at_the_same_time_are_all_there() {
        const THREADS: usize = 8;
        let case = Case::new();
        let file = RulesFile::workspace(&case.workspace);
        // All of them know the state before the first edit.
        let trusts: Vec<Trust> = (0..THREADS).map(|_| case.trust()).collect();
        std::thread::scope(|scope| {
            for (index, mut trust) in trusts.into_iter().enumerate() {
                let own = rule(&format!(r#"{{"type":"tool","allow":true,"name":"tool{index}"}}"#));
                scope.spawn(move || file.add(&[own], &mut trust).unwrap());
            }
        });
        let bytes = file.read().unwrap().unwrap();
        assert_eq!(parse(&bytes, "f", Scope::Workspace).unwrap().len(), THREADS);
        assert!(file.is_trusted(&case.trust(), &bytes));
    }

    #[test]
    fn nothing_is_stored_in_an_untrusted_file() {
        let case = Case::new();
        let file = RulesFile::workspace(&case.workspace);
        write(file, &format!("{READ}\n"));
        let failure = Failure::of(&file.add(&[rule(WRITE)], &mut case.trust()).unwrap_err());
        assert_eq!(failure.status, Status::Usage);
        assert!(failure.hint.unwrap().contains("attini trust -C "));
        assert_eq!(text(file), format!("{READ}\n"));
        // Removing is no widening; it does not make the rest trusted either.
        write(file, &format!("{READ}\n{WRITE}\n"));
        file.remove(&[rule(WRITE)], &mut case.trust()).unwrap();
        assert_eq!(text(file), format!("{READ}\n"));
        assert!(!file.is_trusted(&case.trust(), text(file).as_bytes()));
    }

    #[test]
    fn a_turns_rules_go_at_its_end() {
        let case = Case::new();
        let mut trust = case.trust();
        let file = RulesFile::session(&case.session);
        file.remove_turns(3, &mut trust).unwrap();
        assert_eq!(file.read().unwrap(), None);
        file.add(&[rule(READ), rule(TURN), rule(WRITE).with_turn(Some(2)), rule(WRITE).with_turn(Some(4))], &mut trust)
            .unwrap();
        file.remove_turns(3, &mut trust).unwrap();
        assert_eq!(text(file), format!("{READ}\n{}\n", rule(WRITE).with_turn(Some(4)).to_line()));
        let refused = RulesFile::workspace(&case.workspace).add(&[rule(TURN)], &mut trust);
        assert_eq!(Failure::of(&refused.unwrap_err()).status, Status::Usage);
    }

    #[test]
    fn the_users_link_stays_and_its_target_is_edited() {
        let case = Case::new();
        let folder = case.folder.path().join("config");
        let file = RulesFile::user(&folder);
        write(file, "");
        fs_err::rename(file.path(), case.folder.path().join("dotfile")).unwrap();
        std::os::unix::fs::symlink("../dotfile", file.path()).unwrap();
        file.add(&[rule(READ)], &mut case.trust()).unwrap();
        assert!(fs_err::symlink_metadata(file.path()).unwrap().is_symlink());
        assert_eq!(text(file), format!("{READ}\n"));
    }

    #[test]
    fn a_linked_workspace_file_is_refused() {
        let case = Case::new();
        let file = RulesFile::workspace(&case.workspace);
        fs_err::write(case.folder.path().join("evil"), READ).unwrap();
        std::os::unix::fs::symlink("../../evil", file.path()).unwrap();
        for error in [file.read().map(drop), file.add(&[rule(WRITE)], &mut case.trust())] {
            assert_eq!(Failure::of(&error.unwrap_err()).status, Status::Usage);
        }
        assert_eq!(fs_err::read_to_string(case.folder.path().join("evil")).unwrap(), READ);
    }

    #[test]
    fn a_file_with_every_kind_of_rule_is_read_and_written_again() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/rules/every-kind.jsonl");
        let rules = parse(&fs_err::read(path).unwrap(), "rules", Scope::Workspace).unwrap();
        assert_eq!(rules.len(), 6);
        for rule in rules {
            assert_eq!(Rule::parse(&rule.to_line()), Ok(rule));
        }
    }
}
