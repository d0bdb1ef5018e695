//! The rules of all layers as one list, weakest first.
//!
//! Where they come from, which of them count, and what to warn of; what they mean for a call is [`super::judge`]'s.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Rule;
use super::file::{self, RulesFile};
use super::path::RulePath;
use super::starters::{has_subcommands, is_starter, leaves_open, program_name};
use crate::config::Trust;
use crate::session::folder::SessionFolder;
use crate::session::record::{RuleMatch, Scope};
use crate::workspace::Workspace;

/// The rules that count, weakest first; the last one that matches decides.
#[derive(Debug, Clone)]
pub struct Rules {
    root: PathBuf,
    entries: Vec<Entry>,
}

/// A rule with the layer it stands in.
#[derive(Debug, Clone)]
pub struct Entry {
    pub scope: Scope,
    pub rule: Rule,
    /// What a `read` or `write` rule's path resolves to.
    pub(super) path: Option<RulePath>,
}

impl Entry {
    pub fn to_match(&self) -> RuleMatch {
        RuleMatch { scope: self.scope, rule: self.rule.clone() }
    }
}

impl Rules {
    /// `root` is the workspace's, absolute and without links. Within a layer the order given is kept.
    pub fn new(root: &Path, list: impl IntoIterator<Item = (Scope, Rule)>) -> Self {
        let mut entries: Vec<Entry> = list.into_iter().map(|(scope, rule)| entry(root, scope, rule)).collect();
        entries.sort_by_key(|entry| entry.scope);
        Self { root: root.to_owned(), entries }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The workspace's root, where relative paths in rules start.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The same with `granted` at the end of a layer, as if they had been stored.
    #[must_use]
    pub fn with(&self, scope: Scope, granted: &[Rule]) -> Self {
        let added = granted.iter().map(|rule| (scope, rule.clone()));
        Self::new(&self.root, self.entries.iter().map(|entry| (entry.scope, entry.rule.clone())).chain(added))
    }

    /// The same without what `--allow` allows, which counts in this invocation alone.
    #[must_use]
    pub fn lasting(&self) -> Self {
        let lasts = |entry: &&Entry| entry.scope != Scope::CommandLine || !entry.rule.allows();
        Self { root: self.root.clone(), entries: self.entries.iter().filter(lasts).cloned().collect() }
    }

    /// Resolves the paths of all rules again, for after something changed what they lead to.
    pub fn refresh(&mut self) {
        for one in &mut self.entries {
            one.path = resolved(&self.root, &one.rule);
        }
    }
}

fn entry(root: &Path, scope: Scope, rule: Rule) -> Entry {
    Entry { scope, path: resolved(root, &rule), rule }
}

fn resolved(root: &Path, rule: &Rule) -> Option<RulePath> {
    match rule {
        Rule::Write { path: written, .. } | Rule::Read { path: written, .. } => Some(RulePath::new(root, written)),
        Rule::Command { .. } | Rule::Fetch { .. } | Rule::Tool { .. } => None,
    }
}

/// Where the rules of an invocation come from.
pub struct Sources<'a> {
    pub workspace: &'a Workspace,
    /// `None` where there is no session.
    pub session: Option<&'a SessionFolder>,
    /// The turn whose own rules count.
    pub turn: Option<u64>,
    /// Of `--allow` and `--deny`, in the order typed; recorded `--deny` rules of the turn before those typed now.
    pub options: &'a [Rule],
    /// The folder of the user's own rules; see `Environment::user_config_folder`.
    pub user_config_folder: Option<&'a Path>,
    pub trust: &'a Trust,
}

/// Reads all layers. A line that does not parse is an error with file and line (exit code 2). The second half are
/// warnings: allowing rules that do not count because their file is not trusted, and rules that allow very much.
pub fn load(sources: &Sources<'_>) -> Result<(Rules, Vec<String>)> {
    let mut list: Vec<(Scope, Rule)> = Vec::new();
    let mut warnings = Vec::new();
    let files = [
        sources.user_config_folder.map(RulesFile::user),
        Some(RulesFile::workspace(sources.workspace)),
        sources.session.map(RulesFile::session),
    ];
    for rules_file in files.into_iter().flatten() {
        let Some((bytes, is_trusted)) = rules_file.read_judged(sources.trust)? else { continue };
        let rules = file::parse(&bytes, &rules_file.shown(), rules_file.scope())?;
        let mut ignored = 0_usize;
        for rule in rules {
            let scope = match (rule.turn(), sources.turn) {
                (None, _) => rules_file.scope(),
                (Some(turn), Some(now)) if turn == now => Scope::Turn,
                (Some(_), _) => continue,
            };
            if rule.allows() && !is_trusted {
                ignored += 1;
                continue;
            }
            warnings.extend(breadth_warning(&rule).map(|why| format!("{}: {why}", rules_file.shown())));
            list.push((scope, rule));
        }
        if ignored > 0 {
            warnings.push(format!(
                "{} is not trusted: {ignored} of its rules would allow something and {} ignored; look at it, then: {}",
                rules_file.shown(),
                if ignored == 1 { "is" } else { "are" },
                crate::config::layers::trust_command(sources.workspace.root.path()),
            ));
        }
    }
    for rule in sources.options {
        warnings.extend(
            breadth_warning(rule).map(|why| format!("{}: {why}", if rule.allows() { "--allow" } else { "--deny" })),
        );
        list.push((Scope::CommandLine, rule.clone()));
    }
    let rules = Rules::new(sources.workspace.root.path(), list);
    warnings.extend(rules.entries.iter().filter_map(stray_warning));
    warnings.extend(rules.entries.iter().filter_map(|entry| own_place_warning(entry, sources.workspace)));
    Ok((rules, warnings))
}

/// What to warn of where a link leads an allowing rule's path out of the workspace.
fn stray_warning(entry: &Entry) -> Option<String> {
    let path = entry.path.as_ref().filter(|path| path.strays && entry.rule.allows())?;
    Some(format!(
        "{} allows nothing: a link leads its path out of the workspace, to {}; a rule for that place names it itself",
        entry.rule.to_line(),
        path.resolved.display()
    ))
}

/// What to warn of where an allowing rule is for one of attini's own places alone, whatever it is called.
fn own_place_warning(entry: &Entry, workspace: &Workspace) -> Option<String> {
    let is_write = matches!(entry.rule, Rule::Write { allow: true, .. });
    let path = entry.path.as_ref().filter(|path| is_write && workspace.own_places.hold(&path.resolved))?;
    let is_told = matches!(&entry.rule, Rule::Write { path, .. } if is_never_writable(path)) || path.strays;
    (!is_told).then(|| nothing_writable(&entry.rule))
}

fn nothing_writable(rule: &Rule) -> String {
    format!("{} allows nothing: no rule allows writing there", rule.to_line())
}

/// What to warn of in a rule that a person wrote: it means more, or less, than it seems to.
pub fn breadth_warning(rule: &Rule) -> Option<String> {
    let line = || rule.to_line();
    match rule {
        Rule::Write { path, .. } | Rule::Read { path, .. } if path.contains('*') => {
            Some(format!("{}: a path is no pattern, so `*` stands for itself alone", line()))
        }
        Rule::Command { args: Some(words), .. } | Rule::Command { args_prefix: Some(words), .. }
            if shell_word(words).is_some() =>
        {
            let word = shell_word(words).unwrap_or_default();
            Some(format!("{}: no shell reads a rule, so `{word}` stands for itself alone", line()))
        }
        _ if !rule.allows() => None,
        Rule::Write { path, .. } if is_never_writable(path) => Some(nothing_writable(rule)),
        Rule::Command { args_prefix: Some(words), .. } if words.is_empty() => {
            Some(format!("{} allows every command", line()))
        }
        Rule::Command { args_prefix: Some(words), .. } => leaves_open(words)
            .map(|program| format!("{} allows whatever `{program}` is told to run, so every command", line())),
        Rule::Tool { name, .. } if name == "*" => Some(format!("{} allows calls of every tool", line())),
        Rule::Command { .. } | Rule::Write { .. } | Rule::Read { .. } | Rule::Fetch { .. } | Rule::Tool { .. } => None,
    }
}

/// A word of a command's rule that means something to a shell, and was hardly meant as it stands.
fn shell_word(words: &[String]) -> Option<&str> {
    const OPERATORS: [&str; 9] = ["&&", "||", "|", ";", "&", ">", ">>", "<", "*"];
    // After `sh -c` and the like a word may hold anything.
    let program = words.first().map(|program| program_name(program));
    let is_meant = program.is_some_and(|program| is_starter(program) && !has_subcommands(program));
    let odd = |word: &&str| OPERATORS.contains(word) || word.ends_with(":*");
    words.iter().map(String::as_str).find(odd).filter(|_| !is_meant)
}

/// Whether a path lies where nothing may ever be written, by its letters.
fn is_never_writable(path: &str) -> bool {
    path.split('/').any(|part| part.eq_ignore_ascii_case(".git") || part.eq_ignore_ascii_case(".attini"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;
    use crate::exit::Status;
    use crate::failure::Failure;
    use crate::workspace::root::Root;

    struct Case {
        folder: tempfile::TempDir,
        workspace: Workspace,
        session: SessionFolder,
    }

    impl Case {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs_err::create_dir_all(folder.path().join("w/.attini/sessions/main")).unwrap();
            fs_err::create_dir_all(folder.path().join("user")).unwrap();
            let workspace = Workspace::new(Root::open(&folder.path().join("w")).unwrap());
            let root = workspace.root.folder(Path::new(".attini/sessions/main")).unwrap();
            Self { folder, workspace, session: SessionFolder { name: "main".to_owned(), root } }
        }

        fn file(&self, path: &str, lines: &[&str]) -> &Self {
            fs_err::write(self.folder.path().join(path), lines.join("\n")).unwrap();
            self
        }

        fn trust(&self, variables: &[(&str, &str)]) -> Trust {
            let home = self.folder.path().join("home");
            let environment: Environment =
                variables.iter().copied().chain([("HOME", home.to_str().unwrap())]).collect();
            Trust::load(&environment).unwrap()
        }

        fn load(&self, trust: &Trust, options: &[Rule]) -> Result<(Rules, Vec<String>)> {
            load(&Sources {
                workspace: &self.workspace,
                session: Some(&self.session),
                turn: Some(2),
                options,
                user_config_folder: Some(&self.folder.path().join("user")),
                trust,
            })
        }
    }

    fn shown(rules: &Rules) -> Vec<String> {
        rules.entries().iter().map(|entry| format!("{:?} {}", entry.scope, entry.rule.to_line())).collect()
    }

    const USER: &str = r#"{"type":"tool","allow":true,"name":"user"}"#;
    const DENY: &str = r#"{"type":"tool","allow":false,"name":"deny"}"#;
    const ALLOW: &str = r#"{"type":"tool","allow":true,"name":"allow"}"#;
    const TURN_1: &str = r#"{"type":"tool","allow":true,"name":"one","turn":1}"#;
    const TURN_2: &str = r#"{"type":"tool","allow":true,"name":"two","turn":2}"#;

    fn filled() -> Case {
        let case = Case::new();
        case.file("user/permissions.jsonl", &["# mine", USER])
            .file("w/.attini/permissions.jsonl", &[ALLOW, DENY])
            .file("w/.attini/sessions/main/permissions.jsonl", &[TURN_2, TURN_1, DENY]);
        case
    }

    #[test]
    fn trusted_layers_are_one_list_weakest_first() {
        let option = Rule::parse_option("tool:x", false).unwrap();
        let case = filled();
        let (rules, warnings) = case.load(&case.trust(&[("ATTINI_TRUST_WORKSPACE", "1")]), &[option]).unwrap();
        assert_eq!(
            shown(&rules),
            [
                format!("User {USER}"),
                format!("Workspace {ALLOW}"),
                format!("Workspace {DENY}"),
                format!("Session {DENY}"),
                format!("Turn {TURN_2}"),
                "CommandLine {\"type\":\"tool\",\"allow\":false,\"name\":\"x\"}".to_owned(),
            ]
        );
        assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn without_trust_only_denials_of_the_workspace_and_the_session_count() {
        let case = filled();
        let (rules, warnings) = case.load(&case.trust(&[]), &[]).unwrap();
        assert_eq!(shown(&rules), [format!("User {USER}"), format!("Workspace {DENY}"), format!("Session {DENY}")]);
        let root = case.workspace.root.path().display();
        assert_eq!(
            warnings,
            [
                format!(
                    ".attini/permissions.jsonl is not trusted: 1 of its rules would allow something and is ignored; \
                     look at it, then: attini trust -C {root}"
                ),
                format!(
                    "{root}/.attini/sessions/main/permissions.jsonl is not trusted: 1 of its rules would allow \
                     something and is ignored; look at it, then: attini trust -C {root}"
                ),
            ]
        );
    }

    #[test]
    fn each_file_is_trusted_by_itself() {
        let case = filled();
        let mut trust = case.trust(&[]);
        let file = RulesFile::workspace(&case.workspace);
        trust.record([(file.path().as_path(), file.read().unwrap().unwrap().as_slice())]).unwrap();
        let (rules, warnings) = case.load(&trust, &[]).unwrap();
        assert!(shown(&rules).contains(&format!("Workspace {ALLOW}")));
        assert!(!shown(&rules).contains(&format!("Turn {TURN_2}")));
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn a_broken_line_in_any_layer_is_an_error() {
        for path in
            ["user/permissions.jsonl", "w/.attini/permissions.jsonl", "w/.attini/sessions/main/permissions.jsonl"]
        {
            let case = Case::new();
            case.file(path, &["", "{}"]);
            let failure = Failure::of(&case.load(&case.trust(&[]), &[]).unwrap_err());
            assert_eq!(failure.status, Status::Usage);
            assert!(failure.message.contains("permissions.jsonl:2: the field `type`"), "{}", failure.message);
        }
    }

    #[test]
    fn a_rule_that_a_link_leads_out_is_warned_of() {
        let case = Case::new();
        let root = case.workspace.root.path();
        std::os::unix::fs::symlink("../user", root.join("dir")).unwrap();
        let option = |text, allow| Rule::parse_option(text, allow).unwrap();
        let options = [option("write:dir/n", true), option("write:dir/n", false), option("read:../user", true)];
        let (_, warnings) = case.load(&case.trust(&[]), &options).unwrap();
        let leads_to = root.parent().unwrap().join("user/n");
        assert_eq!(
            warnings,
            [format!(
                "{{\"type\":\"write\",\"allow\":true,\"path\":\"dir/n\"}} allows nothing: a link leads its path out of \
                 the workspace, to {}; a rule for that place names it itself",
                leads_to.display()
            )]
        );
    }

    #[test]
    fn rules_that_mean_more_than_they_seem_to_are_warned_of() {
        for (text, allow, expected) in [
            ("command:bash -c", true, Some("allows whatever `bash` is told to run")),
            ("command:python3", true, Some("allows whatever `python3` is told to run")),
            ("command:sudo", true, Some("allows whatever `sudo` is told to run")),
            ("command:sudo", false, None),
            ("command:cargo", true, None),
            ("command:git", true, Some("allows whatever `git` is told to run")),
            ("command:git", false, None),
            ("command:git status", true, None),
            ("command:tar", true, Some("allows whatever `tar` is told to run")),
            ("command:make *", true, Some("so `*` stands for itself alone")),
            (r#"{"type":"command","args":["git"]}"#, true, None),
            (r#"{"type":"command","args_prefix":[]}"#, true, Some("allows every command")),
            ("tool:*", true, Some("allows calls of every tool")),
            ("tool:fs__*", true, None),
            ("write:src/*.rs", false, Some("a path is no pattern")),
            ("command:npm run *", true, Some("so `*` stands for itself alone")),
            ("command:git:*", false, Some("so `git:*` stands for itself alone")),
            ("command:a && b", true, Some("so `&&` stands for itself alone")),
            ("command:sh -c 'a && b'", true, None),
            ("command:grep -F '|x'", true, None),
            ("write:.git", true, Some("no rule allows writing there")),
            ("write:src/.Attini/x", true, Some("no rule allows writing there")),
            ("write:.git", false, None),
        ] {
            let warning = breadth_warning(&Rule::parse_option(text, allow).unwrap());
            match expected {
                Some(part) => assert!(warning.as_ref().is_some_and(|text| text.contains(part)), "{text}: {warning:?}"),
                None => assert_eq!(warning, None, "{text}"),
            }
        }
    }
}
