//! The rules that an approval may store: they cover what was shown, and no more.

use std::path::Path;

use super::command::depends_on_folder;
use super::judge::{Question, Verdict, judge};
use super::layers::Rules;
use super::starters::{is_starter, leaves_open, program_name};
use super::{Access, CommandAccess, Rule, path};
use crate::config::Run;
use crate::session::record::Scope;
use crate::tool::list;
use crate::workspace::Place;

/// The rules that would let this very call pass, for good; `None` where no rule can. `root` is the workspace's.
pub fn suggest(question: &Question<'_>, root: &Path) -> Option<Vec<Rule>> {
    // Reads that never ask need no rule, unless the config makes the tool ask for all that it does.
    let all_ask = question.run == Some(Run::Ask);
    let mut rules: Vec<Rule> = Vec::new();
    for access in question.accesses.iter().filter(|access| all_ask || !is_plain_read(access)) {
        let rule = suggest_one(question.tool, access, root)?;
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    if question.accesses.is_empty() {
        rules.push(suggest_one(question.tool, &Access::Tool, root)?);
    }
    if rules.is_empty() { None } else { Some(rules) }
}

fn is_plain_read(access: &Access) -> bool {
    match access {
        Access::Read(read) => match read.place {
            Place::Session => true,
            Place::Workspace => !read.secret,
            Place::Outside => false,
        },
        Access::Write(_) | Access::Command(_) | Access::Fetch(_) | Access::Tool => false,
    }
}

/// `None`: no rule can allow the access.
fn suggest_one(tool: &str, access: &Access, root: &Path) -> Option<Rule> {
    let (allow, turn) = (true, None);
    let rule = match access {
        Access::Read(read) if read.place == Place::Session => return None,
        // A listing shows names alone, and a rule for its folder would open what all files below it hold.
        Access::Read(_) if tool == list::NAME => return None,
        Access::Read(read) => Rule::Read { allow, path: path::written(root, &read.path)?, turn },
        Access::Write(write) if write.never.is_some() || write.always_asks => return None,
        Access::Write(write) => Rule::Write { allow, path: path::written(root, &write.path)?, turn },
        Access::Command(command) => {
            if why_no_rule(command).is_some() || is_bare_starter(&command.argv) {
                return None;
            }
            let args = Some(command.argv.clone());
            Rule::Command { allow, args, args_prefix: None, background: command.background, turn }
        }
        Access::Fetch(fetch) => Rule::Fetch { allow, host: fetch.host.clone(), turn },
        Access::Tool => Rule::Tool { allow, name: tool.to_owned(), turn },
    };
    // What a rule's file would not take back is no rule.
    Rule::parse(&rule.to_line()).is_ok().then_some(rule)
}

/// The rule for the first `words_count` words of the one command among `accesses`, for `--prefix`. Errors are for the
/// person who typed it.
pub fn suggest_prefix(accesses: &[Access], words_count: usize) -> Result<Vec<Rule>, String> {
    let [Access::Command(command)] = accesses else {
        return Err("only a command's rule can be cut to its first words".to_owned());
    };
    if let Some(why) = why_no_rule(command) {
        return Err(why.to_owned());
    }
    let count = command.argv.len();
    let Some(words) = command.argv.get(..words_count).filter(|words| !words.is_empty()) else {
        return Err(format!("the command has {count} words, so the prefix has from 1 to {count}"));
    };
    if let Some(program) = leaves_open(words) {
        return Err(format!(
            "the first {words_count} words leave open what `{program}` runs, so they would allow anything"
        ));
    }
    let args_prefix = Some(words.to_vec());
    Ok(vec![Rule::Command { allow: true, args: None, args_prefix, background: command.background, turn: None }])
}

fn why_no_rule(command: &CommandAccess) -> Option<&'static str> {
    if command.argv.is_empty() {
        Some("the command has no words")
    } else if command.stdin {
        Some("no rule can allow a command that is given input")
    } else if !command.cwd_inside {
        Some("no rule can allow a command outside the workspace")
    } else if depends_on_folder(command) {
        Some("no rule can allow a program written as a relative path outside the workspace's own folder")
    } else {
        None
    }
}

/// A shell, an interpreter or a wrapper with nothing behind its name.
fn is_bare_starter(argv: &[String]) -> bool {
    matches!(argv, [program] if is_starter(program_name(program)))
}

/// Whether the call would pass once `granted` were stored in the layer of `scope`: then the grant settles it too.
pub fn covers(question: &Question<'_>, rules: &Rules, scope: Scope, granted: &[Rule]) -> bool {
    match judge(question, &rules.with(scope, granted)) {
        Verdict::Allow { .. } => true,
        Verdict::Ask { .. } | Verdict::Deny { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::{FetchAccess, ReadAccess, WriteAccess};
    use super::*;
    use crate::tool::Effect;

    const ROOT: &str = "/nonexistent/w";

    fn command(line: &str) -> CommandAccess {
        CommandAccess {
            argv: shlex::split(line).unwrap(),
            stdin: false,
            background: false,
            cwd_inside: true,
            cwd_is_root: true,
        }
    }

    fn write(name: &str) -> WriteAccess {
        WriteAccess {
            path: Path::new(ROOT).join(name),
            shown: name.to_owned(),
            place: Place::Workspace,
            never: None,
            always_asks: false,
            revertible: None,
            why: "it is new".to_owned(),
        }
    }

    fn read(path: &str, place: Place, secret: bool) -> Access {
        Access::Read(ReadAccess { path: PathBuf::from(path), place, secret })
    }

    fn question<'a>(tool: &'a str, accesses: &'a [Access]) -> Question<'a> {
        let effect = if tool == "read" { Effect::Read } else { Effect::SideEffect };
        Question { tool, effect, accesses, run: Some(Run::Ask) }
    }

    fn suggested(tool: &str, accesses: &[Access]) -> Option<Vec<String>> {
        let rules = suggest(&question(tool, accesses), Path::new(ROOT))?;
        Some(rules.iter().map(Rule::to_line).collect())
    }

    /// One call of each kind that a rule can cover.
    fn coverable() -> Vec<(&'static str, Vec<Access>)> {
        vec![
            ("command", vec![Access::Command(command("cargo test"))]),
            ("command", vec![Access::Command(command("sh test.sh"))]),
            ("command", vec![Access::Command(CommandAccess { background: true, ..command("make") })]),
            ("patch", vec![Access::Write(write("src/a")), Access::Write(write("b")), Access::Write(write("b"))]),
            ("read", vec![read("/nonexistent/x", Place::Outside, false)]),
            (
                "read",
                vec![
                    read("/nonexistent/w/.env", Place::Workspace, true),
                    read("/nonexistent/w/b", Place::Workspace, false),
                ],
            ),
            ("read", vec![read("/nonexistent/w/a", Place::Workspace, false)]),
            ("fetch", vec![Access::Fetch(FetchAccess { host: "a.org".to_owned() })]),
            ("fetch", vec![Access::Fetch(FetchAccess { host: "[::1]".to_owned() })]),
            ("fs__x", vec![Access::Tool]),
        ]
    }

    #[test]
    fn a_suggestion_is_what_was_shown_in_rules() {
        let expected = [
            vec![r#"{"type":"command","allow":true,"args":["cargo","test"]}"#],
            vec![r#"{"type":"command","allow":true,"args":["sh","test.sh"]}"#],
            vec![r#"{"type":"command","allow":true,"args":["make"],"background":true}"#],
            vec![r#"{"type":"write","allow":true,"path":"src/a"}"#, r#"{"type":"write","allow":true,"path":"b"}"#],
            vec![r#"{"type":"read","allow":true,"path":"/nonexistent/x"}"#],
            vec![r#"{"type":"read","allow":true,"path":".env"}"#, r#"{"type":"read","allow":true,"path":"b"}"#],
            vec![r#"{"type":"read","allow":true,"path":"a"}"#],
            vec![r#"{"type":"fetch","allow":true,"host":"a.org"}"#],
            vec![r#"{"type":"fetch","allow":true,"host":"[::1]"}"#],
            vec![r#"{"type":"tool","allow":true,"name":"fs__x"}"#],
        ];
        for ((tool, accesses), expected) in coverable().into_iter().zip(expected) {
            assert_eq!(suggested(tool, &accesses), Some(expected.into_iter().map(str::to_owned).collect()));
        }
    }

    #[test]
    fn a_suggestion_covers_the_calls_that_ask_for_the_same_and_no_other() {
        let rules = Rules::new(Path::new(ROOT), []);
        for (tool, accesses) in coverable() {
            let granted = suggest(&question(tool, &accesses), Path::new(ROOT)).unwrap();
            for (other_tool, other) in coverable() {
                let question = question(other_tool, &other);
                let is_same = (tool, &accesses) == (other_tool, &other);
                assert_eq!(covers(&question, &rules, Scope::Session, &granted), is_same, "{granted:?} {other:?}");
            }
        }
    }

    #[test]
    fn reads_that_never_ask_are_left_out_of_a_suggestion() {
        let accesses =
            [read("/nonexistent/w/.env", Place::Workspace, true), read("/nonexistent/w/b", Place::Workspace, false)];
        let asked = Question { run: None, ..question("read", &accesses) };
        let granted = suggest(&asked, Path::new(ROOT)).unwrap();
        assert_eq!(granted, [Rule::Read { allow: true, path: ".env".to_owned(), turn: None }]);
        assert!(covers(&asked, &Rules::new(Path::new(ROOT), []), Scope::Session, &granted));
        assert_eq!(suggest(&Question { run: None, ..question("read", &accesses[1..]) }, Path::new(ROOT)), None);
    }

    #[test]
    fn where_no_rule_can_cover_none_is_suggested() {
        for accesses in [
            vec![Access::Command(CommandAccess { stdin: true, ..command("cat") })],
            vec![Access::Command(CommandAccess { cwd_inside: false, ..command("ls") })],
            vec![Access::Command(CommandAccess { cwd_is_root: false, ..command("./run.sh") })],
            vec![Access::Command(command("bash"))],
            vec![Access::Command(command("/usr/bin/env"))],
            vec![Access::Command(command("python3"))],
            vec![Access::Command(command(""))],
            vec![Access::Write(WriteAccess { never: Some("no".to_owned()), ..write("x") })],
            vec![Access::Write(write("a")), Access::Write(WriteAccess { always_asks: true, ..write(".envrc") })],
            vec![read("", Place::Session, false)],
        ] {
            assert_eq!(suggested("any", &accesses), None, "{accesses:?}");
        }
    }

    #[test]
    fn a_folder_that_was_searched_is_granted_and_one_that_was_listed_is_not() {
        for (place, secret) in [(Place::Outside, false), (Place::Workspace, true), (Place::Workspace, false)] {
            let accesses = [read("/nonexistent/w/folder", place, secret)];
            assert_eq!(suggested("list", &accesses), None, "{place:?}");
            assert!(suggested("search", &accesses).is_some(), "{place:?}");
        }
    }

    #[test]
    fn a_prefix_must_say_what_it_runs() {
        let prefix = |line: &str, count| {
            let rules = suggest_prefix(&[Access::Command(command(line))], count)?;
            Ok::<_, String>(rules.iter().map(Rule::to_line).collect::<Vec<_>>().join("\n"))
        };
        assert_eq!(
            prefix("cargo test --all", 2).as_deref(),
            Ok(r#"{"type":"command","allow":true,"args_prefix":["cargo","test"]}"#)
        );
        assert_eq!(
            prefix("python3 -m pytest -q", 3).as_deref(),
            Ok(r#"{"type":"command","allow":true,"args_prefix":["python3","-m","pytest"]}"#)
        );
        for (line, count, expected) in [
            ("cargo test", 0, "the command has 2 words, so the prefix has from 1 to 2"),
            ("cargo test", 3, "the command has 2 words, so the prefix has from 1 to 2"),
            ("bash -c ls", 2, "the first 2 words leave open what `bash` runs, so they would allow anything"),
            ("sudo -u root ls", 3, "the first 3 words leave open what `sudo` runs, so they would allow anything"),
            ("env A=1 sh x", 3, "the first 3 words leave open what `sh` runs, so they would allow anything"),
        ] {
            assert_eq!(prefix(line, count).unwrap_err(), expected);
        }
        for (line, count) in [
            ("git status", 1),
            ("git -C . log", 3),
            ("git --no-pager log", 3),
            ("git -c a.b=c status", 3),
            ("make test", 2),
        ] {
            assert!(prefix(line, count).unwrap_err().contains("so they would allow anything"), "{line}");
            assert!(suggested("command", &[Access::Command(command(line))]).is_some(), "{line}");
        }
        assert!(prefix("git status -s", 2).is_ok());
        let fed = Access::Command(CommandAccess { stdin: true, ..command("cat x") });
        assert_eq!(suggest_prefix(&[fed], 1).unwrap_err(), "no rule can allow a command that is given input");
        assert!(suggest_prefix(&[Access::Tool], 1).is_err());
    }

    #[test]
    fn a_stronger_denial_keeps_a_grant_from_settling_a_call() {
        let denied = Rule::parse_option("command:cargo", false).unwrap();
        let rules = Rules::new(Path::new(ROOT), [(Scope::CommandLine, denied)]);
        let accesses = [Access::Command(command("cargo test"))];
        let question = question("command", &accesses);
        let granted = suggest(&question, Path::new(ROOT)).unwrap();
        assert!(!covers(&question, &rules, Scope::Session, &granted));
    }
}
