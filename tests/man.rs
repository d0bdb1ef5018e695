//! The manual pages: made from the command line's own definition, and compared with the ones in `man/`.
//!
//! `ATTINI_BLESS=1 cargo test` rewrites them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attini::cli::{Cli, ENVIRONMENT, FILES};
use attini::exit::Status;
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// What [`Cli`]'s long helps begin their examples with.
const EXAMPLES: &str = "Examples:\n";

/// Every page's text by its file's name.
fn pages() -> BTreeMap<String, String> {
    // The command is not built first: that would copy the global options into every page.
    let command = Cli::command();
    let mut pages = BTreeMap::new();
    add_pages(&mut pages, &command, "attini", "attini");
    pages
}

/// `name` is the page's, `typed` what stands on the command line.
fn add_pages(pages: &mut BTreeMap<String, String>, command: &clap::Command, name: &str, typed: &str) {
    let mut subcommands = Vec::new();
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let page = format!("{name}-{}", subcommand.get_name());
        add_pages(pages, subcommand, &page, &format!("{typed} {}", subcommand.get_name()));
        subcommands.push(page);
    }
    pages.insert(format!("{name}.1"), page(command, name, typed, &subcommands));
}

fn page(command: &clap::Command, name: &str, typed: &str, subcommands: &[String]) -> String {
    let is_main = name == "attini";
    let mut titled = command
        .clone()
        .display_name(name.to_owned())
        .bin_name(typed.to_owned())
        .disable_help_subcommand(true)
        // --help and --version are told of once, on the main page.
        .disable_help_flag(!is_main)
        .disable_version_flag(!is_main);
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let usage = titled.render_usage().to_string();
    let mut usage = usage.trim_start_matches("Usage:").trim().to_owned();
    if !usage.contains("[OPTIONS]") {
        // It has the global ones.
        usage = usage.replacen(typed, &format!("{typed} [OPTIONS]"), 1);
    }
    let titled = titled.override_usage(usage);
    let man = Man::new(titled);
    let mut bytes = Vec::new();
    man.render_name_section(&mut bytes).unwrap();
    man.render_synopsis_section(&mut bytes).unwrap();
    man.render_description_section(&mut bytes).unwrap();
    if is_main || has_options {
        man.render_options_section(&mut bytes).unwrap();
    }
    if !subcommands.is_empty() {
        man.render_subcommands_section(&mut bytes).unwrap();
    }
    let mut text = String::from_utf8(bytes).unwrap();
    let mut rest = Roff::new();
    if !is_main {
        rest.control("SH", ["GLOBAL OPTIONS"]);
        rest.text([roman("The options of every command are described in "), bold("attini"), roman("(1).")]);
    }
    exit_status(&mut rest, is_main);
    if is_main {
        table(&mut rest, "ENVIRONMENT", ENVIRONMENT);
        table(&mut rest, "FILES", FILES);
    }
    examples(&mut rest, command);
    see_also(&mut rest, name, subcommands);
    text.push_str(&rest.render());
    // The preamble that each section brings along is needed once.
    let preamble = Roff::new().render();
    let body = text.replace(&preamble, "");
    // A paragraph inside an option's help: a blank line would leave its indent to chance.
    let body = body.replace("\n.br\n\n.br\n", "\n.IP\n").replace("\n\n", "\n.IP\n");
    let lines: Vec<&str> = body.lines().map(str::trim_end).collect();
    let title =
        format!(".TH {} 1 \"\" \"attini {}\" \"attini manual\"", name.to_uppercase(), env!("CARGO_PKG_VERSION"));
    format!("{preamble}{title}\n{}\n", lines.join("\n"))
}

fn exit_status(roff: &mut Roff, is_main: bool) {
    roff.control("SH", ["EXIT STATUS"]);
    if !is_main {
        roff.text([roman("0 on success; the other codes are described in "), bold("attini"), roman("(1).")]);
        return;
    }
    for status in Status::ALL {
        roff.control("TP", []);
        roff.text([bold(status.code().to_string()), roman(format!(" ({})", status.name()))]);
        roff.text([roman(status.meaning())]);
    }
}

fn table(roff: &mut Roff, heading: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [heading]);
    for (name, meaning) in entries {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*meaning)]);
    }
}

fn examples(roff: &mut Roff, command: &clap::Command) {
    let Some(help) = command.get_after_long_help() else { return };
    let help = help.to_string();
    let lines = help.strip_prefix(EXAMPLES).expect("a long help's end holds examples alone");
    roff.control("SH", ["EXAMPLES"]);
    roff.control("nf", []);
    for line in lines.lines() {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
}

fn see_also(roff: &mut Roff, name: &str, subcommands: &[String]) {
    let parents = name.match_indices('-').map(|(end, _)| name[..end].to_owned());
    let others: Vec<String> = parents.chain(subcommands.iter().cloned()).collect();
    let mut line = Vec::new();
    for other in &others {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(other.as_str()), roman("(1)")]);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text(line);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man")
}

#[test]
fn pages_in_man_are_those_of_the_command_line() {
    let pages = pages();
    if std::env::var_os("ATTINI_BLESS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(folder()).unwrap();
        for name in names_in_folder() {
            std::fs::remove_file(folder().join(name)).unwrap();
        }
        for (name, text) in &pages {
            std::fs::write(folder().join(name), text).unwrap();
        }
    }
    let expected: Vec<&String> = pages.keys().collect();
    assert_eq!(names_in_folder().iter().collect::<Vec<_>>(), expected, "run ATTINI_BLESS=1 cargo test");
    for (name, text) in &pages {
        let stored = std::fs::read_to_string(folder().join(name)).unwrap();
        assert!(stored == *text, "man/{name} is stale; run ATTINI_BLESS=1 cargo test");
    }
}

fn names_in_folder() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn the_main_page_has_every_section_once() {
    let pages = pages();
    let page = &pages["attini.1"];
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
    let expected = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "\"GLOBAL OPTIONS\"",
        "SUBCOMMANDS",
        "\"EXIT STATUS\"",
        "ENVIRONMENT",
        "FILES",
        "EXAMPLES",
        "\"SEE ALSO\"",
    ];
    assert_eq!(headings, expected);
    for status in Status::ALL {
        assert!(page.contains(&format!("\\fB{}\\fR ({})", status.code(), status.name())), "{status}");
    }
}

#[test]
fn pages_are_named_as_they_are_asked_for() {
    let pages = pages();
    let page = &pages["attini-tools-call.1"];
    assert!(page.contains("\n.TH ATTINI-TOOLS-CALL 1 "), "{page}");
    assert!(page.contains("\nattini\\-tools\\-call \\- Run one call"), "{page}");
    assert!(page.contains("\n.SH SYNOPSIS\n\\fBattini tools call\\fR [OPTIONS] <NAME> <JSON>\n"), "{page}");
    for (name, text) in &pages {
        assert!(!text.contains("EXTRA"), "{name}");
        let tells_of_global_options = text.contains("\n\\fB\\-C\\fR, \\fB\\-\\-workspace\\fR");
        assert_eq!(tells_of_global_options, *name == "attini.1", "{name}");
        assert!(!text.contains("\n\n"), "{name}");
    }
}

/// groff tells of every request, escape or character that it does not know. Where the programs to compare with are
/// said to be installed, it has to be there.
#[test]
fn groff_has_nothing_to_say_against_the_pages() {
    for name in pages().keys() {
        let mut groff = std::process::Command::new("groff");
        groff.args(["-man", "-ww", "-z", "-Tutf8"]).arg(folder().join(name));
        match groff.output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && said.is_empty(), "{name}: {said}");
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let is_expected = std::env::var_os("ATTINI_TEST_PEERS").is_some_and(|value| value == "1");
                assert!(!is_expected, "groff is missing");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}
