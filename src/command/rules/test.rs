//! `attini rules test`: a call as it would be judged now, told with every rule that had a say.
//!
//! The call is made by the tool itself, so that paths are resolved, secrets known and git asked as in a turn.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Placed, layer, placed};
use crate::cli::{RuleKind, RulesTestArguments};
use crate::command::invocation::Invocation;
use crate::command::opened::standing;
use crate::config::Config;
use crate::exit::Status;
use crate::failure::Failure;
use crate::permission::{Access, HostVerdict, Question, ReadDenials, Rule, Rules, Verdict, grant, judge};
use crate::report::line::{Line, Tone};
use crate::report::shell_quote;
use crate::session::folder::SessionFolder;
use crate::session::history::{History, Standing};
use crate::session::log::Log;
use crate::session::record::{DecidedBy, RuleMatch};
use crate::tool::registry::builtin_tools;
use crate::tool::{Effect, Limits, Overlay, Surroundings};
use crate::workspace::World;

/// Nothing is run, so there is nothing to bound.
const NO_LIMITS: Limits =
    Limits { result_bytes: u64::MAX, output_bytes: u64::MAX, command_timeout: Duration::from_secs(1) };

/// What a file would hold after the patch that is tested: hardly what it holds now.
const OTHER_CONTENT: &str = "whatever attini rules test would write\n";

/// The turn that a session is in.
pub(super) struct OpenTurn {
    pub(super) number: u64,
    deny: Vec<Rule>,
    history: History,
}

/// The turn whose own rules count; `None` where none is open.
pub(super) fn open_turn(folder: Option<&SessionFolder>) -> anyhow::Result<Option<OpenTurn>> {
    let Some(history) = folder.map(Log::read).transpose()?.flatten() else { return Ok(None) };
    if standing(&history) == Standing::Finished {
        return Ok(None);
    }
    let deny = history.user().map(|user| user.settings.deny.clone()).unwrap_or_default();
    Ok(Some(OpenTurn { number: history.turn(), deny, history }))
}

/// The call that is tested.
struct Tested {
    tool: String,
    effect: Effect,
    accesses: Vec<Access>,
    /// As the person typed it.
    shown: String,
}

pub(super) fn run(invocation: &Invocation, arguments: &RulesTestArguments) -> anyhow::Result<Status> {
    ensure_options_fit(arguments)?;
    let trust = invocation.trust()?;
    let config = invocation.trusted_config(&trust)?.config;
    let folder = invocation.folder()?;
    let turn = open_turn(folder.as_ref())?;
    let number = turn.as_ref().map(|turn| turn.number);
    let recorded = turn.as_ref().map(|turn| turn.deny.as_slice()).unwrap_or_default();
    let rules = invocation.rules(folder.as_ref(), number, recorded, &trust)?;
    let tested = tested(invocation, arguments, folder.as_ref(), turn.as_ref())?;
    let places = placed(invocation, folder.as_ref(), number, &trust)?;
    let run = config.tools.get(&tested.tool).and_then(|tool| tool.run);
    let question = Question { tool: &tested.tool, effect: tested.effect, accesses: &tested.accesses, run };
    let told = Told::of(judge(&question, &rules), &question, &rules);
    tell(invocation, &config, &tested, &told, &places);
    Ok(Status::Completed)
}

fn ensure_options_fit(arguments: &RulesTestArguments) -> Result<(), Failure> {
    let has_command_options = arguments.stdin || arguments.background || arguments.cwd.is_some();
    if has_command_options && arguments.kind != RuleKind::Command {
        return Err(Failure::usage("--stdin, --background and --cwd are for commands"));
    }
    let takes_one = match arguments.kind {
        RuleKind::Command => false,
        RuleKind::Write | RuleKind::Read | RuleKind::Fetch | RuleKind::Tool => true,
    };
    if takes_one && arguments.arguments.len() > 1 {
        let surplus = shell_quote(&arguments.arguments[1..]);
        return Err(Failure::usage(format!("one argument is expected, and behind it stands: {surplus}"))
            .hint("options of attini come before the kind"));
    }
    if let (RuleKind::Command, [only]) = (arguments.kind, arguments.arguments.as_slice())
        && only.contains(' ')
    {
        return Err(Failure::usage(format!("{only:?} is one word, so the name of a program with spaces in it"))
            .hint("give the words of the command one by one: attini rules test command cargo test"));
    }
    Ok(())
}

fn tested(
    invocation: &Invocation,
    arguments: &RulesTestArguments,
    folder: Option<&SessionFolder>,
    turn: Option<&OpenTurn>,
) -> anyhow::Result<Tested> {
    let words = &arguments.arguments;
    let only = words.first().map_or("", String::as_str);
    let (tool, call) = match arguments.kind {
        RuleKind::Command => {
            let mut call = json!({"argv": words});
            if let Some(cwd) = &arguments.cwd {
                call["cwd"] = json!(cwd);
            }
            if arguments.stdin {
                call["stdin"] = json!("");
            }
            ("command", call)
        }
        RuleKind::Write => ("patch", json!({"edits": [{"path": only, "content": OTHER_CONTENT}]})),
        RuleKind::Read => ("read", json!({"path": only})),
        RuleKind::Fetch if only.contains("://") => ("fetch", json!({"url": only})),
        RuleKind::Fetch => ("fetch", json!({"url": format!("https://{only}/")})),
        RuleKind::Tool => return Ok(by_name(only)),
    };
    let tools = builtin_tools();
    let Some(tool) = tools.iter().find(|known| known.name() == tool) else {
        return Err(Failure::new(Status::Error, format!("there is no tool {tool}")).into());
    };
    let nothing_written = BTreeMap::new();
    let surroundings = Surroundings {
        workspace: &invocation.workspace,
        session: folder,
        written: turn.map_or(&nothing_written, |turn| turn.history.written()),
        limits: &NO_LIMITS,
        withheld_variables: &[],
        fetch_verdict: &|_| HostVerdict::Asks,
        read_denials: &ReadDenials::default(),
        state: None,
    };
    let mut world = World::default();
    tool.look(&call, &surroundings, &mut world);
    let mut assessment = tool
        .assess(&call, &world, &Overlay::new())
        .map_err(|refusal| Failure::usage(format!("such a call fails whatever the rules say: {}", refusal.message)))?;
    for access in &mut assessment.accesses {
        if let Access::Command(command) = access {
            command.background = arguments.background;
        }
    }
    Ok(Tested {
        tool: tool.name().to_owned(),
        effect: tool.effect(),
        accesses: assessment.accesses,
        shown: shell_quote(words),
    })
}

/// A call judged by its tool's name alone, as those of MCP servers are.
fn by_name(name: &str) -> Tested {
    let known = builtin_tools().into_iter().find(|tool| tool.name() == name);
    Tested {
        tool: name.to_owned(),
        effect: known.map_or(Effect::SideEffect, |tool| tool.effect()),
        accesses: vec![Access::Tool],
        shown: name.to_owned(),
    }
}

/// A verdict in the words of this command.
struct Told {
    verdict: &'static str,
    why: String,
    rule: Option<RuleMatch>,
    matches: Vec<RuleMatch>,
    suggested: Option<Vec<Rule>>,
}

impl Told {
    fn of(verdict: Verdict, question: &Question<'_>, rules: &Rules) -> Self {
        match verdict {
            Verdict::Allow { decided_by, .. } => Self::decided("allow", decided_by),
            Verdict::Deny { decided_by, message } => Self { why: message, ..Self::decided("deny", decided_by) },
            Verdict::Ask { why } => Self {
                verdict: "ask",
                why,
                rule: None,
                matches: Vec::new(),
                suggested: grant::suggest(question, rules.root()),
            },
        }
    }

    fn decided(verdict: &'static str, by: DecidedBy) -> Self {
        let rule = by.rule.map(|rule| RuleMatch { scope: by.scope, rule });
        let why = by.reason.unwrap_or_else(|| "a rule decides".to_owned());
        Self { verdict, why, rule, matches: by.matches, suggested: None }
    }
}

fn tell(invocation: &Invocation, config: &Config, tested: &Tested, told: &Told, places: &[Placed]) {
    let heading = match told.verdict {
        "allow" => "runs unasked",
        "deny" => "is denied",
        _ => "asks",
    };
    let mut lines = vec![Line::exactly(Tone::Heading, &format!("{heading}: {}", tested.shown))];
    match &told.rule {
        Some(rule) => lines.push(Line::exactly(Tone::Plain, &format!("  decided by {}", located(rule, places)))),
        None => lines.push(Line::plain(&format!("  because: {}", told.why))),
    }
    let others: Vec<&RuleMatch> = told.matches.iter().filter(|one| told.rule.as_ref() != Some(*one)).collect();
    for other in &others {
        lines.push(Line::exactly(Tone::Plain, &format!("  also matching, and weaker: {}", located(other, places))));
    }
    for rule in told.suggested.iter().flatten() {
        lines.push(Line::exactly(Tone::Plain, &format!("  this rule would let it run: {}", rule.to_line())));
    }
    invocation.reporter.print(&lines);
    let place = |one: &RuleMatch| places.iter().rev().find(|placed| is_at(one, placed)).map(Placed::to_json);
    let fields = json!({
        "tool": tested.tool,
        "verdict": told.verdict,
        "why": told.why,
        "rule": told.rule.as_ref().map(|rule| place(rule).unwrap_or_else(|| json!(rule))),
        "matches": told.matches.iter().map(|one| place(one).unwrap_or_else(|| json!(one))).collect::<Vec<_>>(),
        "run": config.tools.get(&tested.tool).and_then(|tool| tool.run).map(|run| format!("{run:?}").to_lowercase()),
        "suggested": told.suggested,
    });
    let fields = if let Value::Object(fields) = fields { fields } else { Map::new() };
    invocation.reporter.finish_command("rules", Status::Completed, fields, None);
}

fn is_at(one: &RuleMatch, placed: &Placed) -> bool {
    placed.scope == one.scope && placed.rule == one.rule && placed.why_not.is_none()
}

/// A rule with its layer and, where it stands in a file, its line.
fn located(one: &RuleMatch, places: &[Placed]) -> String {
    match places.iter().rev().find(|placed| is_at(one, placed)) {
        Some(placed) => {
            format!("{}:{} ({}): {}", placed.file, placed.line, layer(placed.scope), placed.rule.to_line())
        }
        None => format!("the {}'s: {}", layer(one.scope), one.rule.to_line()),
    }
}
