//! The README says what attini does: its outputs, tables and scripts are made here and compared, its command lines
//! parsed, its config and rules read, its links followed.
//!
//! `ATTINI_BLESS=1 cargo test` writes the outputs, tables and scripts anew.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use attini::cli::{Cli, FILES, Topic};
use attini::config::{Config, keys};
use attini::exit::Status;
use attini::permission::Rule;
use attini::provider::catalogue;
use clap::CommandFactory;
use serde_json::{Value, json};

use crate::support::{Case, assert_text_eq, reply, repository_path};

/// What the README calls the demo's folder.
const DEMO_FOLDER: &str = "/tmp/attini-demo-k3xQzt";

/// What the README shows in place of a digest.
const DIGEST: &str = "sha256:5d41402abc4b2a76b9719d911017c592ae1f8e0a4b6f1c3d7e9a2b5c8d0f1e2a";

const LANGUAGES: [&str; 5] = ["console", "json", "jsonl", "sh", "toml"];

const RECIPES: [&str; 3] = ["turn.sh", "decide.sh", "unattended.sh"];

fn readme() -> String {
    fs::read_to_string(repository_path("README.md")).unwrap()
}

/// A fenced block: its language and its text.
struct Block {
    language: String,
    text: String,
}

/// The README with each block's text replaced by what `make` gives for it; `None` keeps it.
fn with_blocks(readme: &str, mut make: impl FnMut(&Block) -> Option<String>) -> String {
    let mut made = String::new();
    let mut lines = readme.split_inclusive('\n');
    while let Some(line) = lines.next() {
        made.push_str(line);
        let Some(language) = line.strip_prefix("```") else { continue };
        let language = language.trim().to_owned();
        let text: String = lines.by_ref().take_while(|line| *line != "```\n").collect();
        let block = Block { language, text };
        made.push_str(&make(&block).unwrap_or(block.text));
        made.push_str("```\n");
    }
    made
}

fn blocks(language: &str) -> Vec<String> {
    let mut found = Vec::new();
    with_blocks(&readme(), |block| {
        if block.language == language {
            found.push(block.text.clone());
        }
        None
    });
    assert!(!found.is_empty(), "the README has no block of {language}");
    found
}

#[test]
fn the_readme_shows_what_is_there() {
    let stored = readme();
    let mut console = Console::new();
    let made = with_blocks(&stored, |block| match block.language.as_str() {
        "console" => Some(console.play(&block.text)),
        "json" => Some(suspended_result()),
        "sh" => recipe_of(&block.text),
        _ => None,
    });
    let made = with_table(&made, "provider", providers());
    let made = with_table(&made, "file", FILES.iter().map(|(file, meaning)| [code(file), (*meaning).to_owned()]));
    let made = with_table(
        &made,
        "code",
        Status::ALL.map(|status| [status.code().to_string(), code(status.name()), status.meaning().to_owned()]),
    );
    if std::env::var_os("ATTINI_BLESS").is_some_and(|value| value == "1") {
        fs::write(repository_path("README.md"), &made).unwrap();
        return;
    }
    assert_text_eq("README.md (ATTINI_BLESS=1 writes it)", &stored, &made);
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn providers() -> Vec<[String; 5]> {
    let entries = catalogue::ENTRIES.iter().filter(|entry| !entry.base_url.is_empty());
    let row = |entry: &catalogue::Entry| {
        let key = if entry.needs_key { code(entry.key_variable) } else { "none needed".to_owned() };
        let model = entry.default_model.map_or_else(String::new, code);
        [code(entry.name), key, model, entry.base_url.to_owned(), code(entry.base_url_variable)]
    };
    entries.map(row).collect()
}

/// The README with the rows of the table whose first column is called `first`.
fn with_table<const COLUMNS: usize>(
    readme: &str,
    first: &str,
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let start = readme.find(&format!("\n| {first} |")).unwrap_or_else(|| panic!("the README has no table of {first}"));
    let body = start + 1 + readme[start + 1..].match_indices('\n').nth(1).expect("a table has a rule below its head").0;
    let end = body
        + 1
        + readme[body + 1..]
            .split_inclusive('\n')
            .take_while(|line| line.starts_with('|'))
            .map(str::len)
            .sum::<usize>();
    let rows: Vec<String> = rows.into_iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
    let rows = rows.concat();
    format!("{}\n{rows}{}", &readme[..body], &readme[end..])
}

/// The fixture that a block shows, which says its name in its second line.
fn recipe_of(text: &str) -> Option<String> {
    let second = text.lines().nth(1)?;
    let name = RECIPES.iter().find(|name| second.starts_with(&format!("# {name}")))?;
    Some(fs::read_to_string(repository_path("fixtures/recipes").join(name)).unwrap())
}

#[test]
fn every_recipe_is_shown() {
    let shown = blocks("sh");
    let count = |name: &&str| {
        let recipe = fs::read_to_string(repository_path("fixtures/recipes").join(name)).unwrap();
        shown.iter().filter(|text| **text == recipe).count()
    };
    assert_eq!(RECIPES.iter().map(count).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(fs::read_dir(repository_path("fixtures/recipes")).unwrap().count(), RECIPES.len());
}

/// The README's terminal: its blocks are typed into it one after the other.
struct Console {
    case: Case,
    exit_code: i32,
}

impl Console {
    fn new() -> Self {
        let notes = "# Notes\n\nRun the tests before you commit.\n";
        let edit = json!({"path": "NOTES.md", "before": "Run the tests", "after": "Run the tests (sh test.sh)"});
        let turn = [
            reply().call("list", json!({})).call("read", json!({"path": "NOTES.md"})),
            reply().call("patch", json!({"edits": [edit]})),
            reply().text("NOTES.md now names the command."),
        ];
        let case = Case::new().git().file("test.sh", "echo 3 passed\n").untracked("NOTES.md", notes);
        Self { case: case.model("openai/gpt-5-mini").script(turn), exit_code: 0 }
    }

    /// The block with what its commands put out now.
    fn play(&mut self, text: &str) -> String {
        let typed = text.lines().filter_map(|line| line.strip_prefix("$ "));
        typed.fold(String::new(), |shown, typed| shown + "$ " + typed + "\n" + &self.run(typed))
    }

    /// Both streams of a command, as a terminal shows them.
    fn run(&mut self, typed: &str) -> String {
        let script = format!("(exit {})\n{}\ncode=$?\necho\necho $code", self.exit_code, self.to_case(typed));
        let outcome = self.case.program("sh", ["-c", &format!("exec 2>&1\n{script}")]).run().exit(0);
        let shown = String::from_utf8(outcome.stdout_bytes().to_vec()).unwrap();
        let (shown, code) = shown.trim_end().rsplit_once("\n\n").unwrap_or(("", shown.trim()));
        self.exit_code = code.trim().parse().unwrap();
        let shown = if shown.is_empty() { String::new() } else { format!("{shown}\n") };
        with_one_duration(&self.to_readme(&shown))
    }

    /// The demo's folder, once there is one.
    fn demo_folder(&self) -> Option<String> {
        let temporary = self.case.home().with_file_name("tmp");
        let mut paths = fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path().display().to_string());
        paths.find(|path| path.contains("attini-demo-"))
    }

    fn to_case(&self, text: &str) -> String {
        self.demo_folder().map_or_else(|| text.to_owned(), |folder| text.replace(DEMO_FOLDER, &folder))
    }

    fn to_readme(&self, text: &str) -> String {
        self.demo_folder().map_or_else(|| text.to_owned(), |folder| text.replace(&folder, DEMO_FOLDER))
    }
}

/// Every duration becomes the same one.
fn with_one_duration(text: &str) -> String {
    let mut made = String::new();
    for piece in text.split_inclusive(['(', '\n']) {
        let digits = piece.trim_start_matches(|character: char| character.is_ascii_digit() || character == '.');
        match digits.strip_prefix(" ms)").or_else(|| digits.strip_prefix(" s)")) {
            Some(rest) if digits.len() < piece.len() => {
                made.push_str("1 ms)");
                made.push_str(rest);
            }
            _ => made.push_str(piece),
        }
    }
    made
}

#[test]
fn durations_are_made_one() {
    let cases =
        [("read a (12 ms)\nb (1.5 s)\n", "read a (1 ms)\nb (1 ms)\n"), ("f(3 args)\n( ms)\n", "f(3 args)\n( ms)\n")];
    for (text, expected) in cases {
        assert_eq!(with_one_duration(text), expected);
    }
}

/// The object that a turn ends with which waits for a command.
fn suspended_result() -> String {
    let command =
        reply().text("I run the tests.").call("command", json!({"argv": ["cargo", "test"]})).usage(2114, 31, 1920);
    let case = Case::new().script([command]);
    let mut result = case.run(["--output", "json", "tell", "do the tests pass?"]).exit(10).json();
    result["at"] = json!("2026-11-30T16:06:51.819Z");
    result["digest"] = json!(DIGEST);
    layout(&result)
}

/// What belongs together on a line, and one field of a pending call a line.
fn layout(result: &Value) -> String {
    let fields = result.as_object().unwrap();
    let pair = |(key, value): (&String, &Value)| format!("{}: {value}", json!(key));
    let calls: Vec<String> = fields["pending"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call.as_object().unwrap().iter().map(pair).collect::<Vec<_>>().join(",\n   "))
        .collect();
    let mut text = String::new();
    for field in fields {
        text.push_str(match (field.0.as_str(), text.is_empty()) {
            (_, true) => "{",
            (
                "session" | "text" | "pending" | "digest" | "tool_calls" | "round_usage" | "session_usage" | "error",
                false,
            ) => ",\n ",
            (_, false) => ", ",
        });
        match field.0.as_str() {
            "pending" => text.extend(["\"pending\": [\n  {", &calls.join("},\n  {"), "}]"]),
            _ => text.push_str(&pair(field)),
        }
    }
    text + "}\n"
}

#[test]
fn the_result_is_laid_out_as_the_json_it_is() {
    let result = json!({"type": "result", "session": "s", "pending": [{"id": 1, "x": {}}, {"id": 2}], "error": null});
    let text = layout(&result);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), result, "{text}");
}

#[test]
fn blocks_are_of_languages_that_are_checked() {
    with_blocks(&readme(), |block| {
        assert!(LANGUAGES.contains(&block.language.as_str()), "a block of {:?}:\n{}", block.language, block.text);
        None
    });
}

#[test]
fn shell_blocks_can_be_typed() {
    for text in blocks("sh") {
        let status = Command::new("sh").args(["-n", "-c", &text]).status().unwrap();
        assert!(status.success(), "{text}");
        if recipe_of(&text).is_some() {
            continue;
        }
        for line in text.lines() {
            assert!(commands_of(line).iter().all(|words| parses(words)), "{line}");
        }
    }
    for text in blocks("console") {
        let typed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
        assert!(!typed.is_empty(), "{text}");
        assert!(typed.iter().all(|line| commands_of(line).iter().all(|words| parses(words))), "{text}");
    }
}

/// The words behind each `attini` of a line, up to what ends a command.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(&line.replace("cargo run --release --", "attini")).unwrap_or_else(|| panic!("{line}"));
    let starts = words.iter().enumerate().filter(|(_, word)| *word == "attini").map(|(index, _)| index + 1);
    let ends_command = |word: &&String| !matches!(word.as_str(), "|" | "<" | ">" | "&&" | "||" | ";");
    starts.map(|start| words[start..].iter().take_while(ends_command).cloned().collect()).collect()
}

fn parses(words: &[String]) -> bool {
    let words = std::iter::once("attini").chain(words.iter().map(String::as_str)).map(OsString::from);
    match attini::cli::parse(words, |_| None) {
        Ok(_) => true,
        Err(error) => error.topic == Topic::Help,
    }
}

#[test]
fn command_lines_are_found() {
    assert_eq!(commands_of("git diff | attini tell --stdin 'a | b' && true"), [["tell", "--stdin", "a | b"]]);
    assert_eq!(commands_of("cargo run --release -- demo"), [["demo"]]);
    assert!(!parses(&["tell".to_owned(), "--nonsense".to_owned()]));
}

/// What stands between single backticks outside of blocks.
fn quoted() -> Vec<String> {
    let mut prose = String::new();
    let mut in_block = false;
    for line in readme().lines() {
        in_block ^= line.starts_with("```");
        if !in_block && !line.starts_with("```") {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    assert_eq!(prose.matches('`').count() % 2, 0, "a backtick is left open");
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn command_lines_in_the_text_can_be_typed() {
    for text in quoted() {
        let typed = text.replace("COMMAND", "tell");
        // Some name a command only to say what it is about.
        for words in commands_of(&typed).iter().filter(|words| !words.is_empty()) {
            let is_bare = words.len() == 1 && Cli::command().find_subcommand(&words[0]).is_some();
            assert!(is_bare || parses(words), "{text}");
        }
    }
}

#[test]
fn options_in_the_text_exist() {
    let command = Cli::command();
    let with_own = std::iter::once(&command).chain(command.get_subcommands());
    let known: Vec<String> = with_own
        .flat_map(|one| one.get_arguments().filter_map(|argument| argument.get_long().map(|long| format!("--{long}"))))
        .chain(["--help".to_owned()])
        .collect();
    let words = quoted().into_iter().filter(|text| text.starts_with("--") || text.starts_with("attini"));
    for text in words {
        for option in text.split_whitespace().filter(|word| word.starts_with("--")) {
            let name = option.split('=').next().unwrap();
            assert!(known.iter().any(|one| one == name), "{option} in `{text}`");
        }
    }
}

#[test]
fn the_config_reference_has_every_key_at_its_default() {
    let [text] = &blocks("toml")[..] else { panic!("the README has several blocks of toml") };
    let mut config = Config::default();
    keys::apply(&mut config, text.as_bytes(), "README.md").unwrap();
    let defaults = Config::default();
    assert_eq!((&config.limits, &config.dispatch), (&defaults.limits, &defaults.dispatch));
    assert_eq!(config.environment_pass, defaults.environment_pass);

    let mut shown = Vec::new();
    let mut table = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[') {
            let mut segments: Vec<&str> = name.split(']').next().unwrap().split('.').collect();
            if let Some(name) = segments.get_mut(1) {
                *name = "NAME";
            }
            table = format!("{}.", segments.join("."));
        } else {
            shown.push(format!("{table}{}", line.split(" = ").next().unwrap()));
        }
    }
    let mut known = keys::names();
    known.sort();
    shown.sort();
    assert_eq!(shown, known);
}

#[test]
fn rules_are_rules() {
    for line in blocks("jsonl").iter().flat_map(|text| text.lines()) {
        assert_eq!(Rule::parse(line).unwrap_or_else(|what| panic!("{line}: {what}")).to_line(), line);
    }
}

#[test]
fn links_lead_somewhere() {
    let readme = readme();
    let targets: Vec<&str> =
        readme.split("](").skip(1).map(|rest| rest.split(')').next().unwrap_or_default()).collect();
    assert!(!targets.is_empty());
    for target in targets {
        assert!(Path::new(&repository_path(target)).exists(), "{target}");
    }
}

#[test]
fn it_can_be_read_in_one_sitting() {
    let readme = readme();
    let in_prose = |line: &&str| !line.starts_with('|');
    assert!(readme.lines().filter(in_prose).all(|line| line.chars().count() <= 120), "a line is too long");
    assert!(readme.lines().count() <= 460, "it has grown too long");
}
