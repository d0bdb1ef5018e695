//! Whether a call may run, must ask, or is denied: a pure function of what it would touch and of the rules.
//!
//! For each access the last rule that matches decides; where none does, `[tools.NAME] run`, else what the access is. A
//! rule that allows, and may not open an access, does not match it. Some accesses are opened by nothing so general as a
//! tool's name or `run = "allow"`: secrets, what lies outside the workspace, and files that always ask. A secret needs a
//! `read` rule for that very path, since a rule for the folder was hardly meant for it. A path that is written as one in
//! the workspace opens nothing outside it; see [`super::path`].

use std::path::Path;

use super::command::{Denials, Pattern, allows, why_nearly};
use super::layers::{Entry, Rules};
use super::{Access, CommandAccess, FetchAccess, ReadAccess, Rule, WriteAccess, host, path};
use crate::config::Run;
use crate::session::record::{DecidedBy, RuleMatch, Scope};
use crate::tool::Effect;
use crate::workspace::Place;

/// A call put to the judge.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The tool's own name, a wrapper such as `run_tool` taken away.
    pub tool: &'a str,
    pub effect: Effect,
    pub accesses: &'a [Access],
    /// What the config says of the tool.
    pub run: Option<Run>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Allow {
        decided_by: DecidedBy,
        /// It is a read of a kind that never asks, and no rule had a say: no decision is recorded.
        never_asks: bool,
    },
    Ask {
        /// For a person.
        why: String,
    },
    Deny {
        decided_by: DecidedBy,
        /// For the model.
        message: String,
    },
}

/// What was found for one access.
struct Finding<'r> {
    outcome: Outcome,
    scope: Scope,
    /// The rule that decided.
    rule: Option<&'r Entry>,
    reason: String,
    never_asks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Allow,
    Ask,
    Deny,
}

pub fn judge(question: &Question<'_>, rules: &Rules) -> Verdict {
    let mut findings = Vec::new();
    let mut matched: Vec<bool> = vec![false; rules.entries().len()];
    let nothing_known = [Access::Tool];
    // A tool that says nothing of what it touches may touch anything.
    let accesses = match (question.accesses, question.effect) {
        ([], Effect::SideEffect) => &nothing_known,
        (accesses, Effect::Read | Effect::SideEffect) => accesses,
    };
    for access in accesses {
        findings.push(find(question, Some(access), rules, &mut matched));
    }
    if findings.is_empty() {
        findings.push(find(question, None, rules, &mut matched));
    }
    let matches = rules.entries().iter().zip(&matched).filter(|(_, hit)| **hit).map(|(entry, _)| entry.to_match());
    verdict(question, &findings, matches.collect())
}

fn verdict(question: &Question<'_>, findings: &[Finding<'_>], matches: Vec<RuleMatch>) -> Verdict {
    if let Some(denied) = findings.iter().find(|finding| finding.outcome == Outcome::Deny) {
        let message = match denied.rule {
            Some(entry) => {
                let rule = entry.rule.to_line();
                format!("{} is denied by a rule ({}): {rule}", denied.reason, scope_words(entry.scope))
            }
            None => denied.reason.clone(),
        };
        return Verdict::Deny { decided_by: decided_by(denied, matches), message };
    }
    let mut whys: Vec<&str> = Vec::new();
    for asking in findings.iter().filter(|finding| finding.outcome == Outcome::Ask) {
        if !whys.contains(&asking.reason.as_str()) {
            whys.push(&asking.reason);
        }
    }
    if !whys.is_empty() {
        return Verdict::Ask { why: whys.join("; ") };
    }
    // What allowed the access that needed it most is told.
    let never_asks = question.effect == Effect::Read && findings.iter().all(|finding| finding.never_asks);
    let strongest = findings.iter().reduce(|one, other| if other.scope > one.scope { other } else { one });
    let decided_by = match strongest {
        Some(finding) => decided_by(finding, matches),
        None => DecidedBy { scope: Scope::Builtin, reason: None, rule: None, matches },
    };
    Verdict::Allow { decided_by, never_asks }
}

fn decided_by(finding: &Finding<'_>, matches: Vec<RuleMatch>) -> DecidedBy {
    DecidedBy {
        scope: finding.scope,
        reason: finding.rule.is_none().then(|| finding.reason.clone()),
        rule: finding.rule.map(|entry| entry.rule.clone()),
        matches,
    }
}

fn scope_words(scope: Scope) -> &'static str {
    match scope {
        Scope::Builtin => "built in",
        Scope::Config => "the config",
        Scope::User => "the user's",
        Scope::Workspace => "the workspace's",
        Scope::Session => "the session's",
        Scope::Turn => "this turn's",
        Scope::CommandLine => "the command line's",
        Scope::Person => "a person's",
        Scope::Repair => "repair",
    }
}

/// Judges one access; `None` stands for a call that touches nothing at all.
fn find<'r>(question: &Question<'_>, access: Option<&Access>, rules: &'r Rules, matched: &mut [bool]) -> Finding<'r> {
    let judged = Judged::new(question.tool, access, rules.root());
    let mut last = None;
    for (entry, hit) in rules.entries().iter().zip(matched) {
        if judged.is_matched_by(entry) {
            *hit = true;
            last = Some(entry);
        }
    }
    // Before any rule: nothing whatever lets this be written.
    if let Some(Access::Write(WriteAccess { never: Some(why), shown, .. })) = access {
        return Finding::builtin(Outcome::Deny, format!("{shown} may not be written: {why}"));
    }
    if let Some(entry) = last {
        let outcome = if entry.rule.allows() { Outcome::Allow } else { Outcome::Deny };
        return Finding { outcome, scope: entry.scope, rule: Some(entry), reason: judged.subject(), never_asks: false };
    }
    let tool = question.tool;
    let configured = |outcome, word| Finding {
        outcome,
        scope: Scope::Config,
        rule: None,
        reason: format!("[tools.{tool}] run = \"{word}\""),
        never_asks: false,
    };
    match question.run {
        Some(Run::Deny) => configured(Outcome::Deny, "deny"),
        Some(Run::Ask) => configured(Outcome::Ask, "ask"),
        Some(Run::Allow) if !judged.needs_own_rule() => configured(Outcome::Allow, "allow"),
        Some(Run::Allow) | None => judged.by_default(rules),
    }
}

impl Finding<'_> {
    fn builtin(outcome: Outcome, reason: String) -> Self {
        Self { outcome, scope: Scope::Builtin, rule: None, reason, never_asks: false }
    }
}

/// One access with what judging it takes.
struct Judged<'a> {
    tool: &'a str,
    access: Option<&'a Access>,
    root: &'a Path,
    /// Made once, at the first rule that wants it.
    denials: std::cell::OnceCell<Denials>,
}

impl<'a> Judged<'a> {
    fn new(tool: &'a str, access: Option<&'a Access>, root: &'a Path) -> Self {
        Self { tool, access, root, denials: std::cell::OnceCell::new() }
    }

    fn is_matched_by(&self, entry: &Entry) -> bool {
        let rule = &entry.rule;
        match (rule, self.access) {
            (Rule::Tool { allow, name, .. }, _) => tool_matches(name, self.tool) && (!allow || !self.needs_own_rule()),
            (Rule::Command { allow, args, args_prefix, background, .. }, Some(Access::Command(command))) => {
                let Some(pattern) = Pattern::new(args.as_ref(), args_prefix.as_ref()) else { return false };
                if *allow {
                    allows(pattern, *background, command)
                } else {
                    self.denials.get_or_init(|| Denials::of(command)).denied_by(pattern)
                }
            }
            (Rule::Read { allow, .. }, Some(Access::Read(read))) => {
                let Some(path) = &entry.path else { return false };
                // The session's own files have no path that a rule could name.
                read.place != Place::Session
                    && path.covers(&read.path, *allow)
                    && (!allow || !read.secret || path.resolved == read.path)
            }
            (Rule::Write { allow, .. }, Some(Access::Write(write))) => {
                let Some(path) = &entry.path else { return false };
                path.covers(&write.path, *allow) && (!allow || !(write.always_asks || write.never.is_some()))
            }
            (Rule::Fetch { allow, host, .. }, Some(Access::Fetch(fetch))) => {
                host::matches(host, &fetch.host) || (!allow && host == "*")
            }
            (Rule::Command { .. } | Rule::Read { .. } | Rule::Write { .. } | Rule::Fetch { .. }, _) => false,
        }
    }

    /// Whether only a rule of its own kind opens it, or a person.
    fn needs_own_rule(&self) -> bool {
        match self.access {
            Some(Access::Read(read)) => read.secret || read.place == Place::Outside,
            Some(Access::Write(write)) => write.always_asks || write.never.is_some() || write.place == Place::Outside,
            Some(Access::Command(command)) => !command.cwd_inside,
            Some(Access::Fetch(fetch)) => !host::matches("*", &fetch.host),
            Some(Access::Tool) | None => false,
        }
    }

    /// What is decided about, for messages.
    fn subject(&self) -> String {
        match self.access {
            Some(Access::Read(read)) => format!("reading {}", self.shown(&read.path)),
            Some(Access::Write(write)) => format!("writing {}", write.shown),
            Some(Access::Command(_)) => "the command".to_owned(),
            Some(Access::Fetch(fetch)) => format!("fetching from {}", fetch.host),
            Some(Access::Tool) | None => format!("the tool {}", self.tool),
        }
    }

    fn shown(&self, path: &Path) -> String {
        path::written(self.root, path).unwrap_or_else(|| path.display().to_string())
    }

    fn by_default<'r>(&self, rules: &Rules) -> Finding<'r> {
        match self.access {
            None => Finding { never_asks: true, ..Finding::builtin(Outcome::Allow, "it touches nothing".to_owned()) },
            Some(Access::Read(read)) => self.read_by_default(read),
            Some(Access::Write(write)) => write_by_default(write),
            Some(Access::Command(command)) => Finding::builtin(Outcome::Ask, command_asks(command, rules)),
            Some(Access::Fetch(FetchAccess { host })) => {
                Finding::builtin(Outcome::Ask, format!("no rule allows the host {host}"))
            }
            Some(Access::Tool) => Finding::builtin(Outcome::Ask, "no rule allows it".to_owned()),
        }
    }

    fn read_by_default<'r>(&self, read: &ReadAccess) -> Finding<'r> {
        match read.place {
            Place::Outside => {
                Finding::builtin(Outcome::Ask, format!("{} is outside the workspace", self.shown(&read.path)))
            }
            Place::Workspace | Place::Session if read.secret => {
                let why = format!("{} is named like a file that holds secrets", self.shown(&read.path));
                Finding::builtin(Outcome::Ask, why)
            }
            Place::Workspace => Finding {
                never_asks: true,
                ..Finding::builtin(Outcome::Allow, "a read inside the workspace".to_owned())
            },
            Place::Session => Finding {
                never_asks: true,
                ..Finding::builtin(Outcome::Allow, "a read of the session's own files".to_owned())
            },
        }
    }
}

fn write_by_default<'r>(write: &WriteAccess) -> Finding<'r> {
    let shown = &write.shown;
    if write.always_asks {
        return Finding::builtin(Outcome::Ask, format!("{shown} always asks"));
    }
    match (write.place, &write.revertible) {
        (Place::Outside, _) => Finding::builtin(Outcome::Ask, format!("{shown} is outside the workspace")),
        (Place::Workspace | Place::Session, Some(why)) => Finding::builtin(Outcome::Allow, format!("{shown}: {why}")),
        (Place::Workspace | Place::Session, None) => Finding::builtin(Outcome::Ask, format!("{shown}: {}", write.why)),
    }
}

/// Why a command asks; where a rule has its words and still does not cover it, that is said.
fn command_asks(command: &CommandAccess, rules: &Rules) -> String {
    let nearly = rules.entries().iter().rev().find_map(|entry| match &entry.rule {
        Rule::Command { allow: true, args, args_prefix, background, .. } => {
            why_nearly(Pattern::new(args.as_ref(), args_prefix.as_ref())?, *background, command)
        }
        _ => None,
    });
    match nearly {
        Some(why) => format!("no rule allows it: {why}"),
        None => "no rule allows it".to_owned(),
    }
}

fn tool_matches(name: &str, tool: &str) -> bool {
    match name.strip_suffix('*') {
        Some(stem) => tool.starts_with(stem),
        None => tool == name,
    }
}

#[cfg(test)]
mod tests;
