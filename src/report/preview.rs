//! Pending calls as a person reads them before deciding: everything that would be done, why it asks, what a grant would
//! store, and the commands to type.
//!
//! All of it comes from a model: each line stands behind an indent, so that no preview can imitate attini's own words.

use serde_json::Value;

use super::event::PendingView;
use super::line::{Line, Tone};
use super::object;
use super::shell::shell_quote;
use crate::permission::Rule;
use crate::session::pending::Needs;
use crate::session::record::Decision;
use crate::tool::Preview;

/// For so many calls the commands are written out; the person sees by then how they go.
const CALLS_WITH_COMMANDS_MAX: usize = 8;

/// A suspended turn: each pending call, and then the commands to type. `prefix` is how attini has to be called, as
/// [`super::shell::command_prefix`] makes it. Empty if nothing is pending.
pub fn suspended(pending: &[PendingView], prefix: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    for view in pending {
        lines.extend(call(view));
        lines.push(Line::empty());
    }
    if !pending.is_empty() {
        lines.push(Line::new(Tone::Heading, "To go on, type one of:"));
        lines.extend(commands(pending, prefix));
    }
    lines
}

/// One pending call, whole if a person still has to decide on it.
pub fn call(view: &PendingView) -> Vec<Line> {
    let heading = format!("{} ({}): {}", view.id, view.name, view.summary);
    let mut lines = vec![Line::exactly(Tone::Heading, &heading)];
    match (view.decision, view.needs) {
        (Some(decision), _) => {
            lines.push(Line::plain(&format!("  {}", decided(decision))));
            lines.extend(granted(view));
        }
        (None, Needs::Nothing) => lines.push(Line::plain("  its turn comes when the calls before it are decided")),
        (None, Needs::Approval | Needs::Answer) => lines.extend(undecided(view)),
    }
    lines
}

/// The rules that the approval stores. What another approval covers names that one's rules, which are told there.
fn granted(view: &PendingView) -> Vec<Line> {
    let granted = view.granted.as_ref().filter(|_| view.decision == Some(Decision::Approve));
    let Some(granted) = granted else { return Vec::new() };
    let scope = object::to_json(&serde_json::to_value(granted.scope).unwrap_or(Value::Null));
    let line = |rule: &Rule| format!("  stores for the {}: {}", scope.trim_matches('"'), rule.to_line());
    granted.rules.iter().map(|rule| Line::exactly(Tone::Plain, &line(rule))).collect()
}

fn undecided(view: &PendingView) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut why = view.why.as_deref();
    if let Some(preview) = &view.preview {
        lines.extend(body(preview));
        if why.is_none()
            && let Preview::Patch { why: because, .. } | Preview::Read { why: because, .. } = preview
        {
            why = Some(because);
        }
    }
    if let Some(why) = why.filter(|why| !why.is_empty()) {
        lines.extend(Line::all_exactly(Tone::Plain, "  asks because: ", "    ", why));
    }
    for rule in view.grant.iter().flatten() {
        let rule = serde_json::to_value(rule).unwrap_or(Value::Null);
        lines.push(Line::exactly(Tone::Plain, &format!("  --grant would store: {}", object::to_json(&rule))));
    }
    lines
}

/// What was decided, in words.
pub fn decided(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allowed by a rule, runs when the turn goes on",
        Decision::Approve => "approved, runs when the turn goes on",
        Decision::Deny => "denied",
        Decision::Answer => "answered",
        Decision::Stale => "no longer applies: a patch it stands on was denied",
    }
}

/// What a call would do, without why it asks.
pub fn body(preview: &Preview) -> Vec<Line> {
    match preview {
        Preview::Command { argv, cwd, stdin, background } => command(argv, cwd, stdin.as_deref(), *background),
        Preview::Patch { diff, .. } => self::diff(diff, "  "),
        Preview::Read { path, .. } => vec![Line::exactly(Tone::Plain, &format!("  reads {path}"))],
        Preview::Fetch { url } => vec![Line::exactly(Tone::Plain, &format!("  fetches {url}"))],
        Preview::Question { question, choices, schema: _, round: _ } => self::question(question, choices),
        Preview::Tool { arguments } => {
            let pretty = object::to_pretty_json(arguments);
            Line::all_exactly(Tone::Plain, "  ", "  ", &pretty)
        }
    }
}

fn command(argv: &[String], cwd: &str, stdin: Option<&str>, background: bool) -> Vec<Line> {
    let mut lines = Line::all(Tone::Plain, "  $ ", "  > ", &shell_quote(argv));
    if !matches!(cwd, "" | ".") {
        lines.push(Line::exactly(Tone::Plain, &format!("  in {cwd}")));
    }
    if background {
        lines.push(Line::plain("  in the background, so it goes on after the turn"));
    }
    if let Some(stdin) = stdin {
        lines.push(Line::plain("  with this on its stdin:"));
        lines.extend(Line::all_exactly(Tone::Plain, "  < ", "  < ", stdin));
    }
    lines
}

fn question(question: &str, choices: &[String]) -> Vec<Line> {
    let mut lines = Line::all(Tone::Plain, "  ? ", "  ? ", question);
    for (index, choice) in choices.iter().enumerate() {
        let number = format!("  {}) ", index + 1);
        lines.extend(Line::all(Tone::Plain, &number, &" ".repeat(number.len()), choice));
    }
    lines
}

/// A unified diff, a line each, behind `indent`.
pub fn diff(text: &str, indent: &str) -> Vec<Line> {
    let mut lines = Line::all_exactly(Tone::Plain, indent, indent, text);
    let mut in_hunk = false;
    for line in &mut lines {
        let text = &line.text()[indent.len()..];
        // Inside a hunk `---` is a removed line that begins with two hyphens, not a file's name.
        in_hunk = match text.as_bytes().first() {
            Some(b'@') => true,
            Some(b'+' | b'-' | b' ' | b'\\') | None => in_hunk,
            Some(_) => false,
        };
        line.tone = match text.as_bytes().first() {
            Some(b'@') => Tone::Hunk,
            Some(b'+') if in_hunk => Tone::Added,
            Some(b'-') if in_hunk => Tone::Removed,
            Some(b' ' | b'\\') | None => Tone::Plain,
            Some(_) => Tone::Heading,
        };
    }
    lines
}

/// The commands that decide on what is pending, as they can be pasted.
pub fn commands(pending: &[PendingView], prefix: &str) -> Vec<Line> {
    let undecided: Vec<&PendingView> = pending.iter().filter(|view| is_undecided(view)).collect();
    let mut typed: Vec<String> = Vec::new();
    if undecided.is_empty() {
        typed.push("resume".to_owned());
    }
    let approvals = undecided.iter().filter(|view| view.needs == Needs::Approval).count();
    if approvals > 0 {
        typed.push("approve".to_owned());
    }
    for view in undecided.iter().take(CALLS_WITH_COMMANDS_MAX) {
        let id = shell_quote([&view.id]);
        match view.needs {
            // Without an ID it is the same.
            Needs::Approval if approvals == 1 => {}
            Needs::Approval => typed.push(format!("approve {id}")),
            Needs::Answer => typed.push(format!("answer {id} '...'")),
            Needs::Nothing => continue,
        }
        if view.grant.as_ref().is_some_and(|rules| !rules.is_empty()) {
            typed.push(format!("approve {id} --grant session"));
        }
        typed.push(format!("deny {id} --reason '...'"));
    }
    if undecided.iter().any(|view| matches!(view.preview, Some(Preview::Patch { .. }))) {
        typed.push("diff".to_owned());
    }
    // One key each, where there is more than one to decide on.
    if undecided.len() > 1 {
        typed.push("review".to_owned());
    }
    let mut lines: Vec<Line> = typed.iter().map(|words| Line::plain(&format!("  {prefix} {words}"))).collect();
    let left = undecided.len().saturating_sub(CALLS_WITH_COMMANDS_MAX);
    if left > 0 {
        lines.push(Line::plain(&format!("  ... and the same for the other {left}")));
    }
    lines
}

fn is_undecided(view: &PendingView) -> bool {
    view.needs != Needs::Nothing && view.decision.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::line::paint;

    fn view(id: &str, needs: Needs, preview: Option<Preview>) -> PendingView {
        PendingView {
            id: id.to_owned(),
            name: "command".to_owned(),
            summary: "it".to_owned(),
            needs,
            why: None,
            decision: None,
            preview,
            grant: None,
            granted: None,
        }
    }

    fn command_preview(argv: &[&str]) -> Preview {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        Preview::Command { argv, cwd: ".".to_owned(), stdin: None, background: false }
    }

    #[test]
    fn a_command_is_shown_whole_and_cannot_pass_for_our_words() {
        let argv = ["sh", "-c", "true\n\nTo go on, type one of:\n  rm \u{1b}[2K-rf"].map(str::to_owned).to_vec();
        let preview = Preview::Command {
            argv,
            cwd: "sub\ndir".to_owned(),
            stdin: Some("y\n\u{202e}n\n".to_owned()),
            background: true,
        };
        assert_eq!(
            paint(&body(&preview), false),
            "  $ sh -c $'true\\n\\nTo go on, type one of:\\n  rm \\x1b[2K-rf'\n  in sub\\ndir\n  in the background, so it \
             goes on after the turn\n  with this on its stdin:\n  < y\n  < \\u{202e}n\n"
        );
        let plain = command_preview(&["sh", "-c", "one\n$ two"]);
        assert_eq!(paint(&body(&plain), false), "  $ sh -c 'one\n  > $ two'\n");
    }

    #[test]
    fn a_url_is_shown_whole_and_escaped() {
        let url = format!("https://example.org/{}\u{202e}?x", "a".repeat(500));
        let shown = paint(&body(&Preview::Fetch { url: url.clone() }), false);
        assert_eq!(shown, format!("  fetches {}\n", url.replace('\u{202e}', "\\u{202e}")));
    }

    #[test]
    fn nothing_without_a_shape_hides_in_what_is_decided_on() {
        let hidden = "x\u{fe0f}\u{2800}y";
        let shown = "x\\u{fe0f}\\u{2800}y";
        let path = hidden.to_owned();
        for (preview, expected) in [
            (
                Preview::Patch { diff: format!("+{hidden}\n"), files: Vec::new(), why: String::new() },
                format!("  +{shown}\n"),
            ),
            (Preview::Fetch { url: path.clone() }, format!("  fetches {shown}\n")),
            (Preview::Tool { arguments: serde_json::json!(hidden) }, format!("  \"{shown}\"\n")),
        ] {
            assert_eq!(paint(&body(&preview), false), expected);
        }
        let view = PendingView { summary: path, ..view("call_1", Needs::Approval, None) };
        assert_eq!(paint(&call(&view), false), format!("call_1 (command): {shown}\n"));
    }

    #[test]
    fn a_diff_is_coloured_by_what_its_lines_are() {
        use Tone::{Added, Heading, Hunk, Plain, Removed};
        let text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n--- old\n+++ new\n\\ No newline at end of file\n\
                    diff --git a/y b/y\n--- a/y\n";
        let tones: Vec<Tone> = diff(text, "  ").iter().map(|line| line.tone).collect();
        assert_eq!(tones, [Heading, Heading, Hunk, Plain, Removed, Added, Plain, Heading, Heading]);
        assert_eq!(paint(&diff("-a\r\n+b\n", "  "), false), "  -a\\r\n  +b\n");
    }

    #[test]
    fn a_suspended_turn_ends_with_what_can_be_typed() {
        let rule = Rule::Command {
            allow: true,
            args: Some(vec!["cargo".to_owned(), "test".to_owned()]),
            args_prefix: None,
            background: false,
            turn: None,
        };
        let patch = Preview::Patch {
            diff: "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n".to_owned(),
            files: Vec::new(),
            why: "x is not tracked by git".to_owned(),
        };
        let pending = [
            PendingView {
                summary: "cargo test".to_owned(),
                why: Some("no rule allows it".to_owned()),
                grant: Some(vec![rule]),
                ..view("call_2", Needs::Approval, Some(command_preview(&["cargo", "test"])))
            },
            PendingView { name: "patch".to_owned(), ..view("call_7#2", Needs::Approval, Some(patch)) },
            PendingView { decision: Some(Decision::Deny), ..view("call_8", Needs::Approval, None) },
            view("call_9", Needs::Nothing, None),
        ];
        assert_eq!(
            paint(&suspended(&pending, "attini -C /w"), false),
            "\
call_2 (command): cargo test
  $ cargo test
  asks because: no rule allows it
  --grant would store: {\"type\":\"command\",\"allow\":true,\"args\":[\"cargo\",\"test\"]}

call_7#2 (patch): it
  --- a/x
  +++ b/x
  @@ -1 +1 @@
  -a
  +b
  asks because: x is not tracked by git

call_8 (command): it
  denied

call_9 (command): it
  its turn comes when the calls before it are decided

To go on, type one of:
  attini -C /w approve
  attini -C /w approve call_2
  attini -C /w approve call_2 --grant session
  attini -C /w deny call_2 --reason '...'
  attini -C /w approve 'call_7#2'
  attini -C /w deny 'call_7#2' --reason '...'
  attini -C /w diff
  attini -C /w review
"
        );
        assert!(suspended(&[], "attini").is_empty());
        assert_eq!(
            paint(&commands(&pending[..1], "attini"), false),
            "  attini approve\n  attini approve call_2 --grant session\n  attini deny call_2 --reason '...'\n"
        );
    }

    #[test]
    fn questions_are_answered_and_decided_calls_resumed() {
        let choices = vec!["the first\nof them".to_owned(), "\u{202e}2".to_owned()];
        let question =
            Preview::Question { question: "which\u{9b}\n1) neither?".to_owned(), choices, schema: None, round: None };
        let pending = [view("call_1", Needs::Answer, Some(question))];
        assert_eq!(
            paint(&suspended(&pending, "attini"), false),
            "call_1 (command): it\n  ? which\\u{9b}\n  ? 1) neither?\n  1) the first\n     of them\n  2) \\u{202e}2\n\nTo \
             go on, type one of:\n  attini answer call_1 '...'\n  attini deny call_1 --reason '...'\n"
        );
        let pending = [PendingView { decision: Some(Decision::Approve), ..view("call_1", Needs::Approval, None) }];
        assert_eq!(paint(&commands(&pending, "attini"), false), "  attini resume\n");
    }

    #[test]
    fn many_calls_do_not_flood_the_screen_with_commands() {
        let pending: Vec<_> = (1..=20).map(|number| view(&format!("call_{number}"), Needs::Approval, None)).collect();
        let lines = commands(&pending, "attini");
        assert_eq!(lines.len(), 1 + 2 * CALLS_WITH_COMMANDS_MAX + 2);
        assert_eq!(lines.last().map(Line::text), Some("  ... and the same for the other 12"));
    }
}
