//! What a query finds, in which order, and what is said of the rest.

use serde_json::{Value, json};

use super::{Catalogue, Entry, told};

fn entry(name: &str, description: &str) -> Entry {
    let server = name.split("__").next().unwrap_or_default().to_owned();
    let schema = json!({"type": "object"}).to_string();
    Entry {
        name: name.to_owned(),
        server,
        description: description.to_owned(),
        schema: Box::new(move || schema.clone()),
    }
}

fn catalogue(tools: &[(&str, &str)]) -> Catalogue {
    let mut entries: Vec<Entry> = tools.iter().map(|(name, description)| entry(name, description)).collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Catalogue { entries, advertised: ["read".to_owned()].into() }
}

fn small() -> Catalogue {
    catalogue(&[
        ("git__log", "Shows commits."),
        ("git__commit", "Records a commit with a message."),
        ("git__recommit", "Does it again."),
        ("hub__add_comment", "Adds a comment to an Issue or to a commit."),
        ("hub__create_issue", "Opens an issue."),
        ("hub__issues_create", "Opens several."),
    ])
}

fn found(catalogue: &Catalogue, query: &str) -> (Vec<String>, String) {
    match catalogue.find(query) {
        Ok(found) => {
            let outcome = told(&found, 100_000);
            assert!(outcome.fetched.iter().all(|name| outcome.content.contains(&format!("## {name}\n"))));
            (outcome.fetched, outcome.content)
        }
        Err(refusal) => {
            (Vec::new(), format!("{}: {} | {}", refusal.code, refusal.message, refusal.detail.unwrap_or_default()))
        }
    }
}

#[test]
fn a_name_ranks_before_a_description_and_a_whole_part_before_a_piece() {
    for (query, expected) in [
        ("commit", vec!["git__commit", "git__recommit", "git__log", "hub__add_comment"]),
        ("COMMIT record", vec!["git__commit"]),
        ("issue", vec!["hub__create_issue", "hub__issues_create", "hub__add_comment"]),
        ("issue create", vec!["hub__create_issue", "hub__issues_create"]),
        ("hub", vec!["hub__add_comment", "hub__create_issue", "hub__issues_create"]),
        ("git__log", vec!["git__log"]),
    ] {
        assert_eq!(found(&small(), query).0, expected, "{query}");
    }
}

#[test]
fn names_are_selected_whatever_their_case_and_the_others_told() {
    let (names, text) = found(&small(), "Select: HUB__create_issue,git__lgo,  git__log, READ, hub__create_issue");
    assert_eq!(names, ["hub__create_issue", "git__log"]);
    assert!(
        text.starts_with(
            "## hub__create_issue\nOpens an issue.\nSchema of its arguments: {\"type\":\"object\"}\n\n## git__log\n"
        ),
        "{text}"
    );
    assert!(text.ends_with("There is no tool named \"git__lgo\"; the nearest names are git__log, git__commit, git__recommit.\nread is one of the tools that you are given; call it directly."), "{text}");
    let (names, text) = found(&small(), "select:zzz");
    assert_eq!(names, Vec::<String>::new());
    assert_eq!(
        text,
        "unknown_tool: No schema was found.\nThere is no tool named \"zzz\". | there are 6 tools to find, and `find_tools` searches them by words"
    );
    assert!(found(&small(), "select: ,").1.starts_with("invalid_arguments: "));
}

#[test]
fn a_search_without_hits_says_what_there_is() {
    let (names, text) = found(&small(), "create_isue now");
    assert_eq!(names, Vec::<String>::new());
    assert_eq!(
        text,
        "No tool has all of \"create_isue now\" in its name and description; names that are near: hub__create_issue. 6 tools can be found; try fewer or other words."
    );
    let (_, text) = found(&small(), "issue commit nothing");
    assert!(text.contains("\"issue\" alone finds 3; \"commit\" alone finds 4."), "{text}");
}

#[test]
fn a_server_has_at_most_five_hits() {
    let names: Vec<String> = (0..40).map(|number| format!("a__x_{number:02}")).chain(["b__x".to_owned()]).collect();
    let tools: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let (names, text) = found(&catalogue(&tools), "x");
    assert_eq!(names, ["a__x_00", "a__x_01", "a__x_02", "a__x_03", "a__x_04", "b__x"]);
    assert!(text.starts_with("41 tools were found; at most 5 of a server are shown.\n\n## a__x_00\nSchema"), "{text}");
    assert!(text.ends_with("Also found: a__x_05, a__x_06, a__x_07, a__x_08, a__x_09, a__x_10, a__x_11, a__x_12, a__x_13, a__x_14, a__x_15, a__x_16, a__x_17, a__x_18, a__x_19, a__x_20, a__x_21, a__x_22, a__x_23, a__x_24 and 15 more"), "{text}");
}

#[test]
fn what_finds_no_room_does_not_count_as_seen() {
    let mut catalogue = small();
    for entry in &mut catalogue.entries {
        entry.schema = Box::new(|| Value::from("x".repeat(600)).to_string());
    }
    let outcome = told(&catalogue.find("hub").unwrap(), 1500);
    assert_eq!(outcome.fetched, ["hub__add_comment", "hub__create_issue"]);
    assert!(outcome.content.ends_with("There was no room for hub__issues_create; `select:` gives one alone."));
    assert!(outcome.content.len() <= 1500, "{}", outcome.content.len());
    // One that is too large by itself is given all the same.
    assert_eq!(told(&catalogue.find("select: git__log").unwrap(), 100).fetched, ["git__log"]);
}
