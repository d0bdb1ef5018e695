//! What is wrong with a command line, a config, a rules file, a service, a log or a disk: the right exit code, words that
//! name the object and the way on, and nothing changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::json;

use crate::support::{Case, mark_rule, reply};

/// Each of them needs a model or runs a tool.
const TURNS: [&[&str]; 4] = [&["tell", "go"], &["approve"], &["deny"], &["resume"]];

fn case() -> Case {
    Case::new().marks().file("a.txt", "alpha\n")
}

/// A session suspended on one approval.
fn suspended() -> Case {
    let case = case().script([reply().mark("a")]);
    case.run(["tell", "go"]).exit(10);
    case
}

fn session_files(case: &Case) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(case.session_path("main", ""))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && !path.ends_with("lock"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_wrong_command_line_is_a_usage_error_that_says_what_was_meant() {
    let case = case();
    for (arguments, part) in [
        (&["tell", "go", "--max-round", "3"][..], "--max-rounds"),
        (&["tel", "go"], "tell"),
        (&["tell", "go", "--max-rounds", "0"], "--max-rounds"),
        (&["tell", "go", "--on-ask", "maybe"], "suspend"),
        (&["tell", "go", "--output", "xml"], "events"),
        (&["tell", "go", "-s", ""], "session"),
        (&["tell", "go", "-s", ".hidden"], "session"),
        (&["tell", "go", "-s", "a/b"], "session"),
        (&["tell", "go", "-m", "no-slash"], "PROVIDER/MODEL"),
        (&["tell", "go", "--temperature", "3"], "--temperature"),
        (&["tell", "go", "--system", "missing.md"], "missing.md"),
        (&["tell", "go", "--output-schema", "a.txt"], "a.txt"),
        (&["tell", "go", "-C", "missing"], "missing"),
        (&["tell", "go", "-q", "-v"], "--quiet"),
        (&["tell", "go", "again"], "again"),
        (&["approve", "--prefix", "2"], "--grant"),
    ] {
        case.run(arguments).exit(2).stdout("").stderr_contains(part);
    }
    let long = "x".repeat(65);
    case.run(["tell", "go", "-s", &long]).exit(2);
    case.attini(["tell", "go"]).env("ATTINI_SESSION", "../x").run().exit(2).stderr_contains("session");
    case.attini(["tell", "go"]).env("ATTINI_OUTPUT", "xml").run().exit(2).stderr_contains("ATTINI_OUTPUT");
    case.attini(["tell", "go"]).env("ATTINI_MODEL", "x").run().exit(2).stderr_contains("PROVIDER/MODEL");
    case.attini(["tell", "go"]).env("ATTINI_WORKSPACE", "missing").run().exit(2).stderr_contains("missing");
    case.attini(["tell", "go"]).env("ATTINI_CONFIG", "missing.toml").run().exit(2).stderr_contains("missing.toml");
    assert!(!case.exists(".attini"));
}

#[test]
fn a_config_that_is_wrong_is_named_with_its_line() {
    for (text, parts) in [
        ("modle = \"x/y\"\n", ["config.toml:1: ", "model"]),
        ("\n\n[limits]\nround = 3\n", ["config.toml:4: ", "rounds"]),
        ("[limits]\nrounds = \"many\"\n", ["config.toml:2: ", "rounds"]),
        ("[limits]\nrounds = 0\n", ["config.toml:2: ", "rounds"]),
        ("[dispatch]\ntrailing_reads = \"drop\"\n", ["config.toml:2: ", "strand"]),
        ("model = \"x/y\"\n[tools.read]\nrun = \"always\"\n", ["config.toml:3: ", "ask"]),
        ("[tools.reed]\nrun = \"ask\"\n", ["reed", "read"]),
        ("model = \"x/y\"\nmodel = \"x/z\"\n", ["config.toml:2: ", "duplicate key"]),
        ("model = \n", ["config.toml:1: ", ""]),
    ] {
        let case = suspended();
        let before = session_files(&case);
        case.write(".attini/config.toml", text);
        for arguments in TURNS {
            // What stays suspended is told before anything else is looked at.
            if arguments == ["resume"] {
                continue;
            }
            let outcome = case.run(arguments).exit(2);
            outcome.stdout("");
            for part in parts {
                outcome.stderr_contains(part);
            }
        }
        assert!(before == session_files(&case), "{text}");
        let case = self::case().user_config(text);
        case.run(["tell", "go"]).exit(2).stderr_contains(parts[0]);
        assert!(!case.exists(".attini"));
    }
}

#[test]
fn a_rules_line_that_does_not_parse_is_named_with_its_line() {
    let good = mark_rule("x", true);
    for line in [
        "{\"type\":\"command\",\"allow\":true}",
        "{\"type\":\"command\",\"allow\":true,\"args\":[\"a\"],\"args_prefix\":[\"a\"]}",
        "{\"type\":\"comand\",\"allow\":true,\"args\":[\"a\"]}",
        "{\"type\":\"write\",\"alow\":true,\"path\":\"src\"}",
        "{\"type\":\"write\",\"allow\":true,\"path\":\"src\",\"turn\":1}",
        "{\"type\":\"write\"",
        "allow everything",
    ] {
        let case = suspended();
        let before = session_files(&case);
        case.write(".attini/permissions.jsonl", format!("# comment\n\n{good}\n{line}\n"));
        for arguments in [&["tell", "go"][..], &["approve"], &["deny"]] {
            case.run(arguments).exit(2).stdout("").stderr_contains("permissions.jsonl:4: ");
        }
        assert!(before == session_files(&case), "{line}");
    }
    let case = case();
    let folder = case.home().join(".config/attini");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("permissions.jsonl"), "nonsense\n").unwrap();
    case.run(["tell", "go"]).exit(2).stderr_contains("permissions.jsonl:1: ");
    assert!(!case.exists(".attini"));
}

#[test]
fn an_untrusted_config_is_refused_with_the_command_to_type() {
    let case = case().untrusted().script([reply().mark("a")]);
    case.run(["tell", "go"]).exit(10);
    case.write(".attini/config.toml", "[limits]\nrounds = 3\n");
    let before = session_files(&case);
    for arguments in [&["tell", "go"][..], &["approve"], &["deny"], &["tools", "call", "read", "{\"path\":\"a.txt\"}"]]
    {
        case.run(arguments).exit(2).stdout("").stderr_contains("is not trusted").stderr_contains("attini trust -C ");
    }
    assert!(before == session_files(&case) && case.order().is_empty());
    case.run(["status"]).exit(0);
    case.run(["trust"]).exit(0).stdout_contains(".attini/config.toml (not trusted)");
    case.run(["approve"]).exit(2);
    case.run(["trust", "--yes"]).exit(0);
    case.server().script([reply().text("done")]);
    case.run(["approve"]).exit(0);
    case.write(".attini/config.toml", "[limits]\nrounds = 4\n");
    case.run(["tell", "go"]).exit(2).stderr_contains("is not trusted");
    fs::remove_file(case.path(".attini/config.toml")).unwrap();
    case.server().script([reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
}

#[test]
fn untrusted_allow_rules_are_ignored_with_a_warning_and_deny_rules_count() {
    let case = case()
        .untrusted()
        .rules([mark_rule("x", true), mark_rule("n", false)])
        .script([reply().mark("n").mark("x"), reply().text("done")]);
    case.run(["tell", "go"]).exit(10).stderr_contains("warning: ").stderr_contains("attini trust");
    assert_eq!(case.outcome_of("call_1").0, "denied");
    assert!(case.order().is_empty());
    case.run(["trust", "--yes"]).exit(0);
    case.run(["deny"]).exit(0).stderr_lacks("warning: ");
    case.server().script([reply().mark("x"), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    assert_eq!(case.order(), ["x"]);
}

#[test]
fn without_a_model_the_ways_to_go_on_are_told() {
    let case = Case::new().without_model();
    let outcome = case.run(["tell", "go"]).exit(2);
    outcome.stdout("");
    for way in ["OPENAI_API_KEY", "ollama/", "demo"] {
        outcome.stderr_contains(way);
    }
    let outcome = case.run(["tell", "go", "-m", "openai/gpt"]).exit(2);
    outcome.stderr_contains("OPENAI_API_KEY").stderr_contains("demo");
    let object = case.run(["--output", "json", "tell", "go"]).exit(2).json();
    assert_eq!(object["error"]["code"], "missing_key");
    case.run(["tell", "go", "-m", "opnai/gpt"]).exit(2).stderr_contains("openai");
    assert!(!case.exists(".attini"));
}

#[test]
fn a_service_that_refuses_is_quoted_in_its_own_words() {
    for (status, message) in [(400, "the model is on holiday"), (401, "this key is worn out"), (404, "no such model")] {
        let case = case().script([reply().error(status, message)]);
        let outcome = case.run(["--output", "json", "tell", "go"]).exit(13);
        outcome.stderr_contains(message).stderr_contains(&status.to_string()).stderr_contains("openai");
        assert_eq!(outcome.json()["error"]["retryable"], false, "{status}");
        assert_eq!(case.server().request_count(), 1, "{status} is not retried");
        assert_eq!(case.records().last().unwrap()["status"], "provider_error");
    }
}

#[test]
fn a_service_that_is_not_there_is_named() {
    let case = case().env("OPENAI_BASE_URL", "http://127.0.0.1:1/v1");
    let outcome = case.run(["--output", "json", "tell", "go"]).exit(13);
    outcome.stderr_contains("openai").stderr_contains("hint: ");
    assert_eq!(outcome.json()["error"]["retryable"], true);
    assert_eq!(case.records().last().unwrap()["status"], "provider_error");
}

fn good_log() -> String {
    let case = case().rules([mark_rule("x", true)]).script([reply().mark("x"), reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap()
}

#[test]
fn a_damaged_log_is_refused_with_its_line_and_left_as_it_is() {
    let log = good_log();
    let lines: Vec<&str> = log.lines().collect();
    let without = |index: usize| {
        let mut lines = lines.clone();
        lines.remove(index);
        lines.join("\n") + "\n"
    };
    let with = |index: usize, line: &str| {
        let mut lines = lines.clone();
        lines.insert(index, line);
        lines.join("\n") + "\n"
    };
    let kind = |index: usize| serde_json::from_str::<serde_json::Value>(lines[index]).unwrap()["type"].clone();
    assert_eq!((kind(2), kind(5)), (json!("assistant"), json!("tool_result")));
    let damages = [
        (String::new(), 1),
        ("\n".to_owned(), 1),
        ("{\"type\":\"session\"".to_owned(), 1),
        (with(3, "garbage"), 4),
        (with(3, ""), 4),
        (with(3, "{\"type\":\"assistant\"}"), 4),
        (with(6, lines[5]), 7),
        (with(3, lines[2]), 4),
        (without(2), 3),
        (without(0), 1),
        (with(8, lines[1]), 9),
        (format!("{log}\u{0}\n"), lines.len() + 1),
        (log.replacen("\"format\":1", "\"format\":2", 1), 1),
    ];
    for (damaged, line) in damages {
        let case = case().without_invariants().planted_log("main", &damaged);
        let path = case.session_path("main", "conversation.jsonl");
        for arguments in TURNS.into_iter().chain([&["status"][..]]) {
            let outcome = case.run(arguments).exit(16);
            outcome.stdout("").stderr_contains(&format!("conversation.jsonl:{line}: "));
            assert!(fs::read(&path).unwrap() == damaged.as_bytes(), "{arguments:?} rewrote the log");
        }
        let place = if damaged.is_empty() { String::new() } else { format!("{line}: ") };
        case.run(["check"]).exit(16).stdout_contains(&format!("conversation.jsonl:{place}"));
        let names: Vec<String> = session_files(&case).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["conversation.jsonl"], "nothing is written beside it");
    }
}

#[test]
fn a_torn_tail_is_kept_beside_the_log_and_reported() {
    let log = good_log();
    let fragment = "{\"type\":\"user\",\"turn\":2,\"at\":\"1999-";
    let case =
        case().without_invariants().planted_log("main", format!("{log}{fragment}")).script([reply().text("more")]);
    let before = session_files(&case);
    case.run(["status"]).exit(0).stdout_contains("idle");
    assert!(before == session_files(&case), "status mends nothing");
    case.run(["tell", "and now"]).exit(0).stdout("more\n").stderr_contains("warning: ").stderr_contains(".torn-");
    let torn: Vec<(String, Vec<u8>)> =
        session_files(&case).into_iter().filter(|(name, _)| name.starts_with("conversation.jsonl.torn-")).collect();
    assert_eq!(torn.len(), 1);
    assert_eq!(torn[0].1, fragment.as_bytes());
    let now = fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap();
    assert!(now.starts_with(&log) && !now.contains(fragment));
    case.run(["check"]).exit(0);
}

#[test]
fn a_last_record_without_its_newline_counts() {
    let log = good_log();
    let case = case().planted_log("main", log.trim_end()).without_invariants().script([reply().text("more")]);
    case.run(["tell", "and now"]).exit(0).stderr_lacks("warning: ");
    let now = fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap();
    assert!(now.starts_with(&log));
    case.run(["check"]).exit(0);
}

#[test]
fn a_log_from_a_newer_attini_loads_with_what_it_does_not_know() {
    let log = good_log();
    let unknown = json!({"type": "weather", "at": "2001-02-03T04:05:06.789Z", "sky": "blue"});
    let newer = log.replace("{\"type\":\"user\"", "{\"type\":\"user\",\"mood\":\"good\"");
    let case = case().planted_log("main", format!("{newer}{unknown}\n")).script([reply().text("more")]);
    case.run(["tell", "and now"]).exit(0).stdout("more\n");
    let now = fs::read_to_string(case.session_path("main", "conversation.jsonl")).unwrap();
    assert!(now.starts_with(&format!("{newer}{unknown}\n")), "it is kept");
    case.run(["check"]).exit(0);
}

/// A file system of its own, gone with it.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(case: &Case, bytes: usize) -> Option<Self> {
        let place = case.home().join("disk");
        fs::create_dir(&place).unwrap();
        let options = format!("size={bytes},mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&place).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(place))
    }

    /// Leaves no more than so many bytes.
    fn fill(&self, bytes_left: usize) {
        let filler = self.0.join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(bytes_left as u64)).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_invocation_and_nothing_is_told_that_is_not_recorded() {
    let case = case().rules([mark_rule("x", true)]).without_invariants();
    let Some(disk) = Disk::mount(&case, 1024 * 1024) else {
        // Only where mounting is forbidden altogether; as root in a container of its own it is not.
        assert!(!is_root_that_may_mount(), "a tmpfs could not be mounted");
        return;
    };
    let state = disk.0.clone();
    let run = |arguments: &[&str]| case.attini(arguments).env("ATTINI_STATE_DIR", &state);
    case.server().script([reply().text("done")]);
    run(&["tell", "go"]).run().exit(0);
    let log = state.join("sessions/main/conversation.jsonl");
    disk.fill(8192);
    // The reply itself no longer fits.
    case.server().script([reply().text(&"long ".repeat(10_000)).mark("x")]);
    let outcome = run(&["--output", "events", "tell", "go"]).run().exit(15);
    assert_eq!(outcome.events_of("tool_result").len(), 0);
    assert_eq!(outcome.events_of("tool_started").len(), 0);
    assert_eq!(outcome.events().last().unwrap()["status"], "persistence_error");
    assert!(case.order().is_empty(), "no call runs whose reply is not on disk");
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.ends_with('\n') && text.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{text}");
    // With no room at all not even the prompt is taken.
    disk.fill(0);
    let before = fs::read(&log).unwrap();
    // It is longer than what may be left of the log's last page.
    run(&["tell", &"go ".repeat(3000)]).run().exit(15).stdout("").stderr_contains("conversation.jsonl");
    assert!(fs::read(&log).unwrap().starts_with(&before));
    run(&["-s", "new", "tell", "go"]).run().exit(15);
    run(&["-s", "new", "status"]).run().exit(0).stdout_contains("new");
    fs::remove_file(state.join("filler")).unwrap();
    case.server().script([reply().text("done")]);
    run(&["resume"]).run().exit(0).stdout("done\n");
    run(&["check"]).run().exit(0);
}

fn is_root_that_may_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0").trim().to_owned();
    // CAP_SYS_ADMIN
    u64::from_str_radix(&capabilities, 16).is_ok_and(|bits| bits & (1 << 21) != 0)
}

#[test]
fn a_state_folder_that_cannot_be_made_is_a_persistence_error() {
    let case = case();
    let below_a_file = case.path("a.txt").join("state");
    let outcome = case.attini(["tell", "go"]).env("ATTINI_STATE_DIR", &below_a_file).run().exit_any([15, 2]);
    assert!([15, 2].contains(&outcome));
    assert_eq!(case.read("a.txt"), "alpha\n");
}

#[test]
fn a_link_in_attinis_own_paths_is_refused() {
    for link in [".attini", ".attini/sessions", ".attini/sessions/main"] {
        let case = case();
        let elsewhere = case.home().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::create_dir_all(case.path(link).parent().unwrap()).unwrap();
        symlink(&elsewhere, case.path(link)).unwrap();
        for arguments in [&["tell", "go"][..], &["approve"], &["status"], &["check"]] {
            case.run(arguments).exit(2).stdout("");
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{link}");
    }
    for file in ["conversation.jsonl", "pending.json", "permissions.jsonl", "lock"] {
        let case = suspended().without_invariants();
        let elsewhere = case.home().join("elsewhere");
        let path = case.session_path("main", file);
        match fs::rename(&path, &elsewhere) {
            Ok(()) => {}
            Err(_) => fs::write(&elsewhere, "").unwrap(),
        }
        symlink(&elsewhere, &path).unwrap();
        let before = fs::read(&elsewhere).unwrap();
        case.run(["approve"]).exit(2).stdout("").stderr_contains(file);
        case.run(["tell", "go"]).exit(2).stdout("").stderr_contains(file);
        assert!(case.order().is_empty());
        assert!(fs::read(&elsewhere).unwrap() == before, "{file}");
    }
    for file in ["config.toml", "permissions.jsonl"] {
        let case = case();
        fs::create_dir(case.path(".attini")).unwrap();
        fs::write(case.home().join("file"), "").unwrap();
        symlink(case.home().join("file"), case.path(".attini").join(file)).unwrap();
        case.run(["tell", "go"]).exit(2).stdout("").stderr_contains(file);
    }
}

#[test]
fn a_session_that_git_tracks_is_refused() {
    let case = Case::new().git().file("a.txt", "alpha\n").planted_log("main", good_log());
    case.run_git(&["add", "--force", ".attini/sessions/main/conversation.jsonl"]);
    case.run_git(&["commit", "--quiet", "--message=session"]);
    let before = session_files(&case);
    for arguments in TURNS.into_iter().chain([&["status"][..]]) {
        case.run(arguments).exit(2).stdout("").stderr_contains("git rm -r --cached");
    }
    assert!(before == session_files(&case));
    case.server().script([reply().text("done").starts_history()]);
    case.run(["-s", "other", "tell", "go"]).exit(0);
}

#[test]
fn a_session_is_kept_out_of_commits_and_private() {
    let case = Case::new().git().script([reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    assert_eq!(case.run_git(&["status", "--porcelain", "--untracked-files=all"]), "?? .attini/.gitignore\n");
    assert_eq!(case.read(".attini/.gitignore"), "sessions/\ncache/\n");
    case.write(".attini/.gitignore", "mine\n");
    case.server().script([reply().text("done").starts_history()]);
    case.run(["-s", "other", "tell", "go"]).exit(0);
    assert_eq!(case.read(".attini/.gitignore"), "mine\nsessions/\ncache/\n");
}

#[test]
fn an_empty_session_folder_is_no_session() {
    let case = case();
    fs::create_dir_all(case.session_path("main", "")).unwrap();
    for arguments in [["approve"], ["deny"], ["resume"]] {
        case.run(arguments).exit(3);
    }
    case.run(["status"]).exit(0).stdout_contains("new");
}
