//! `attini rules`: the rules of all layers as they stand, what decides about a call, and edits of the files.
//!
//! What a rule means is `permission`'s; here it is only told. Nothing is run, and no server is started.

mod test;

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use crate::cli::{RuleScope, RulesAddArguments, RulesArguments, RulesCommand, RulesRemoveArguments};
use crate::config::Trust;
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::file::parse_lines;
use crate::permission::layers::breadth_warning;
use crate::permission::{Rule, RulesFile};
use crate::report::line::{Line, Tone};
use crate::session::folder::SessionFolder;
use crate::session::record::Scope;

pub fn run(invocation: &Invocation, arguments: &RulesArguments) -> anyhow::Result<Status> {
    match &arguments.command {
        RulesCommand::List => list(invocation),
        RulesCommand::Test(arguments) => test::run(invocation, arguments),
        RulesCommand::Add(arguments) => add(invocation, arguments),
        RulesCommand::Remove(arguments) => remove(invocation, arguments),
    }
}

/// A rule where it stands.
struct Placed {
    /// For messages.
    file: String,
    /// From 1.
    line: usize,
    scope: Scope,
    rule: Rule,
    /// Why it does not count; `None`: it does.
    why_not: Option<String>,
}

/// The rules of all files, weakest layer first. `turn`: the turn that is open, whose own rules count.
fn placed(
    invocation: &Invocation,
    session: Option<&SessionFolder>,
    turn: Option<u64>,
    trust: &Trust,
) -> anyhow::Result<Vec<Placed>> {
    let user_config_folder = invocation.environment.user_config_folder();
    let files = [
        user_config_folder.as_deref().map(RulesFile::user),
        Some(RulesFile::workspace(&invocation.workspace)),
        session.map(RulesFile::session),
    ];
    let mut all = Vec::new();
    for file in files.into_iter().flatten() {
        let Some((bytes, is_trusted)) = file.read_judged(trust)? else { continue };
        for (line, rule) in parse_lines(&bytes, &file.shown(), file.scope())? {
            let why_not = match rule.turn() {
                Some(other) if turn != Some(other) => Some(format!("it is for turn {other} alone")),
                _ if rule.allows() && !is_trusted => Some("the file is not trusted".to_owned()),
                _ => None,
            };
            let scope = if rule.turn().is_some() { Scope::Turn } else { file.scope() };
            all.push(Placed { file: file.shown(), line, scope, rule, why_not });
        }
    }
    // The turn's rules stand in the session's file, and are stronger than it.
    all.sort_by_key(|placed| placed.scope);
    Ok(all)
}

fn list(invocation: &Invocation) -> anyhow::Result<Status> {
    let trust = invocation.trust()?;
    let folder = invocation.folder()?;
    let turn = test::open_turn(folder.as_ref())?.map(|turn| turn.number);
    let all = placed(invocation, folder.as_ref(), turn, &trust)?;
    let mut lines = Vec::new();
    let mut shown: Option<(Scope, &str)> = None;
    for placed in &all {
        if shown != Some((placed.scope, &placed.file)) {
            shown = Some((placed.scope, &placed.file));
            lines.push(Line::new(Tone::Heading, &format!("{} ({})", layer(placed.scope), placed.file)));
        }
        let rule = placed.rule.to_line();
        let (tone, note) = match &placed.why_not {
            Some(why) => (Tone::Dim, format!("  (does not count: {why})")),
            None => (Tone::Plain, String::new()),
        };
        lines.push(Line::exactly(tone, &format!("  {:>3}  {rule}{note}", placed.line)));
    }
    if all.is_empty() {
        lines.push(Line::plain("there are no rules: each tool's own default decides"));
    }
    invocation.reporter.print(&lines);
    for placed in all.iter().filter(|placed| placed.why_not.is_none()) {
        if let Some(why) = breadth_warning(&placed.rule) {
            invocation.reporter.warning(&format!("{}:{}: {why}", placed.file, placed.line));
        }
    }
    let listed: Vec<Value> = all.iter().map(Placed::to_json).collect();
    let fields = Map::from_iter([("rules".to_owned(), Value::Array(listed))]);
    invocation.reporter.finish_command("rules", Status::Completed, fields, None);
    Ok(Status::Completed)
}

impl Placed {
    fn to_json(&self) -> Value {
        json!({
            "scope": self.scope,
            "file": self.file,
            "line": self.line,
            "rule": self.rule,
            "counts": self.why_not.is_none(),
            "why_not": self.why_not,
        })
    }
}

/// The name of a layer.
fn layer(scope: Scope) -> &'static str {
    match scope {
        Scope::User => "user",
        Scope::Workspace => "workspace",
        Scope::Session => "session",
        Scope::Turn => "turn",
        Scope::CommandLine => "command line",
        Scope::Config => "config",
        Scope::Builtin => "built in",
        Scope::Person => "person",
        Scope::Repair => "repair",
    }
}

fn add(invocation: &Invocation, arguments: &RulesAddArguments) -> anyhow::Result<Status> {
    let rules = parse_all(&arguments.rules, |text| Rule::parse_option(text, !arguments.deny))?;
    let mut trust = invocation.trust()?;
    let edited = with_file(invocation, arguments.scope, |file| {
        file.add(&rules, &mut trust)?;
        Ok(file.shown())
    })?;
    for rule in &rules {
        if let Some(why) = breadth_warning(rule) {
            invocation.reporter.warning(&why);
        }
        invocation.reporter.print(&[Line::exactly(Tone::Plain, &format!("{edited} has {}", rule.to_line()))]);
    }
    let fields =
        Map::from_iter([("file".to_owned(), json!(edited)), ("rules".to_owned(), serde_json::to_value(&rules)?)]);
    invocation.reporter.finish_command("rules", Status::Completed, fields, None);
    Ok(Status::Completed)
}

fn remove(invocation: &Invocation, arguments: &RulesRemoveArguments) -> anyhow::Result<Status> {
    // What is typed without `allow` means both.
    let mut rules = Vec::new();
    for text in &arguments.rules {
        let (allowing, denying) = (Rule::parse_option(text, true), Rule::parse_option(text, false));
        match (allowing, denying) {
            (Err(what), Err(_)) => return Err(Failure::usage(format!("{text:?}: {what}")).into()),
            (allowing, denying) => rules.extend([allowing, denying].into_iter().flatten()),
        }
    }
    let mut trust = invocation.trust()?;
    let (edited, gone) = with_file(invocation, arguments.scope, |file| {
        let gone = file.remove(&rules, &mut trust)?;
        Ok((file.shown(), gone))
    })?;
    if gone == 0 {
        return Err(Failure::new(Status::NothingPending, format!("{edited} has no such rule"))
            .hint(format!("what there is: {} rules list", invocation.command_prefix))
            .into());
    }
    let lines = if gone == 1 { "line" } else { "lines" };
    invocation.reporter.print(&[Line::plain(&format!("{gone} {lines} removed from {edited}"))]);
    let fields = Map::from_iter([("file".to_owned(), json!(edited)), ("removed".to_owned(), json!(gone))]);
    invocation.reporter.finish_command("rules", Status::Completed, fields, None);
    Ok(Status::Completed)
}

fn parse_all(texts: &[String], parse: impl Fn(&str) -> Result<Rule, String>) -> Result<Vec<Rule>, Failure> {
    texts.iter().map(|text| parse(text).map_err(|what| Failure::usage(format!("{text:?}: {what}")))).collect()
}

/// Edits the file of a layer.
fn with_file<T>(
    invocation: &Invocation,
    scope: RuleScope,
    edit: impl FnOnce(RulesFile<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match scope {
        RuleScope::Workspace => edit(RulesFile::workspace(&invocation.workspace)),
        RuleScope::User => match invocation.environment.user_config_folder() {
            Some(folder) => edit(RulesFile::user(&folder)),
            None => Err(Failure::usage("there is no place for your own rules: HOME and XDG_CONFIG_HOME are unset")
                .hint("set HOME to an absolute path")
                .into()),
        },
        RuleScope::Session => match invocation.folder()? {
            Some(folder) => edit(RulesFile::session(&folder)),
            None => Err(Failure::usage(format!("there is no session {}", invocation.session))
                .hint("a session is made by its first `tell`, which takes --allow and --deny")
                .into()),
        },
    }
}
