//! What the rules say of what a call is led to or comes upon, after the call itself was judged.

use std::path::Path;
use std::sync::Arc;

use super::judge::{Question, Verdict, judge};
use super::layers::Rules;
use super::{Access, FetchAccess, HostVerdict, ReadAccess, Rule, host};
use crate::config::Run;
use crate::tool::Effect;
use crate::workspace::Place;

/// Judges a host as if the tool `fetch` had been called for it. `run` is what config says of that tool.
pub fn host_verdict(host: &str, run: Option<Run>, rules: &Rules) -> HostVerdict {
    let accesses = [Access::Fetch(FetchAccess { host: host.to_owned() })];
    let question = Question { tool: "fetch", effect: Effect::Read, accesses: &accesses, run };
    match judge(&question, rules) {
        Verdict::Ask { .. } => HostVerdict::Asks,
        Verdict::Deny { .. } => HostVerdict::Denied,
        Verdict::Allow { decided_by, .. } => {
            let names_it = |rule: &Rule| match rule {
                Rule::Fetch { allow: true, host: named, .. } => !named.starts_with('*') && host::matches(named, host),
                Rule::Fetch { .. }
                | Rule::Command { .. }
                | Rule::Write { .. }
                | Rule::Read { .. }
                | Rule::Tool { .. } => false,
            };
            let is_named = decided_by.matches.iter().any(|found| names_it(&found.rule));
            if is_named { HostVerdict::Named } else { HostVerdict::Covered }
        }
    }
}

/// The files that a rule keeps from being read, for what comes upon them on its way: a search from a folder above.
#[derive(Debug, Clone, Default)]
pub struct ReadDenials(Option<Arc<Rules>>);

impl ReadDenials {
    /// No rule denies reading anything.
    pub const NONE: Self = Self(None);

    pub fn of(rules: &Rules) -> Self {
        let denies = rules.entries().iter().any(|entry| matches!(entry.rule, Rule::Read { allow: false, .. }));
        Self(denies.then(|| Arc::new(rules.clone())))
    }

    /// Whether the last rule that matches the path, absolute and resolved, denies reading it.
    pub fn denies(&self, path: &Path) -> bool {
        let Some(rules) = &self.0 else { return false };
        let place = if path.starts_with(rules.root()) { Place::Workspace } else { Place::Outside };
        let accesses = [Access::Read(ReadAccess { path: path.to_owned(), place, secret: false })];
        let question = Question { tool: "", effect: Effect::Read, accesses: &accesses, run: None };
        matches!(judge(&question, rules), Verdict::Deny { .. })
    }

    /// Whether nothing in a folder may be read: it is denied, and no rule allows anything in it.
    pub fn denies_all_below(&self, folder: &Path) -> bool {
        let Some(rules) = &self.0 else { return false };
        let allows_below = rules.entries().iter().any(|entry| {
            let path = entry.path.as_ref().filter(|_| matches!(entry.rule, Rule::Read { allow: true, .. }));
            path.is_some_and(|path| path.resolved.starts_with(folder))
        });
        self.denies(folder) && !allows_below
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::session::record::Scope;

    #[test]
    fn only_a_rule_for_the_very_host_names_it() {
        let fetch = |allow, host: &str| Rule::Fetch { allow, host: host.to_owned(), turn: None };
        let tool = Rule::Tool { allow: true, name: "fetch".to_owned(), turn: None };
        let cases: &[(&[Rule], &str, Option<Run>, HostVerdict)] = &[
            (&[], "a.org", None, HostVerdict::Asks),
            (&[], "a.org", Some(Run::Allow), HostVerdict::Covered),
            (&[], "127.0.0.1", Some(Run::Allow), HostVerdict::Asks),
            (&[tool], "a.org", None, HostVerdict::Covered),
            (&[fetch(true, "a.org")], "a.org", None, HostVerdict::Named),
            (&[fetch(true, "a.org")], "b.a.org", None, HostVerdict::Asks),
            (&[fetch(true, "*.a.org")], "b.a.org", None, HostVerdict::Covered),
            (&[fetch(true, "*.a.org")], "a.org", None, HostVerdict::Covered),
            (&[fetch(true, "*")], "a.org", None, HostVerdict::Covered),
            (&[fetch(true, "*")], "localhost", None, HostVerdict::Asks),
            (&[fetch(true, "::1")], "[::1]", None, HostVerdict::Named),
            (&[fetch(true, "a.org"), fetch(true, "*")], "a.org", None, HostVerdict::Named),
            (&[fetch(true, "a.org"), fetch(false, "*")], "a.org", None, HostVerdict::Denied),
            (&[fetch(false, "a.org"), fetch(true, "*")], "a.org", None, HostVerdict::Covered),
        ];
        for (rules, host, run, expected) in cases {
            let list = rules.iter().map(|rule| (Scope::Workspace, rule.clone()));
            let found = host_verdict(host, *run, &Rules::new(Path::new("/w"), list));
            assert_eq!(found, *expected, "{host} {rules:?} {run:?}");
        }
    }
}
