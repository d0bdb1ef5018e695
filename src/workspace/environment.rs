//! The environment of child processes: attini's own, less its keys and its own variables, with everything switched off
//! that would wait for a person or a terminal.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

/// Ends of the names of variables that hold keys of model services, whether attini knows the service or not.
const KEY_ENDS: [&str; 1] = ["_API_KEY"];
/// Start of the names of attini's own variables: they are meant for this invocation, not for what it runs.
const OWN_START: &str = "ATTINI_";

/// Pagers, editors, prompts and colours off. An empty `GIT_ASKPASS` makes git ask no program at all; `true` as an
/// editor takes the proposed text as it is.
const SET: [(&str, &str); 20] = [
    ("PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GH_PAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("AWS_PAGER", ""),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("GCM_INTERACTIVE", "never"),
    ("GH_PROMPT_DISABLED", "1"),
    ("SSH_ASKPASS", "false"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("PIP_NO_INPUT", "1"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
];

/// Variables that would beat `NO_COLOR`.
const REMOVED: [&str; 3] = ["FORCE_COLOR", "CLICOLOR_FORCE", "CARGO_TERM_COLOR"];

/// The environment of a command, whole.
pub fn for_commands(withheld: &[String]) -> Vec<(OsString, OsString)> {
    for_commands_among(std::env::vars_os(), withheld)
}

/// The names of the variables that children must not get: `key_variables`, whatever else in the environment looks like
/// the key of a model service, and attini's own variables; less `pass`. Sorted, each once.
pub fn withheld_variables(pass: &[String], key_variables: &[String]) -> Vec<String> {
    withheld_among(std::env::vars_os().map(|(name, _)| name), pass, key_variables)
}

fn for_commands_among(
    variables: impl Iterator<Item = (OsString, OsString)>,
    withheld: &[String],
) -> Vec<(OsString, OsString)> {
    let is_dropped = |name: &OsStr| {
        withheld.iter().any(|other| name == other.as_str())
            || REMOVED.iter().any(|other| name == *other)
            || SET.iter().any(|(other, _)| name == *other)
    };
    let mut environment: Vec<_> = variables.filter(|(name, _)| !is_dropped(name)).collect();
    environment.extend(SET.map(|(name, value)| (name.into(), value.into())));
    environment
}

fn withheld_among(names: impl Iterator<Item = OsString>, pass: &[String], key_variables: &[String]) -> Vec<String> {
    let looks_withheld = |name: &String| name.starts_with(OWN_START) || KEY_ENDS.iter().any(|end| name.ends_with(end));
    let found = names.filter_map(|name| name.into_string().ok()).filter(looks_withheld);
    let mut withheld: BTreeSet<String> = found.chain(key_variables.iter().cloned()).collect();
    withheld.retain(|name| !pass.contains(name));
    withheld.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn keys_and_own_variables_are_withheld_unless_passed() {
        let environment = ["PATH", "OPENAI_API_KEY", "MISTRAL_API_KEY", "ATTINI_TRUST_WORKSPACE", "GITHUB_TOKEN"];
        let cases: &[(&[&str], &[&str], &[&str])] = &[
            (&[], &[], &["ATTINI_TRUST_WORKSPACE", "MISTRAL_API_KEY", "OPENAI_API_KEY"]),
            (
                &["OPENAI_API_KEY"],
                &["OPENAI_API_KEY", "LOCAL_TOKEN"],
                &["ATTINI_TRUST_WORKSPACE", "LOCAL_TOKEN", "MISTRAL_API_KEY"],
            ),
            (&["ATTINI_TRUST_WORKSPACE", "MISTRAL_API_KEY", "OPENAI_API_KEY"], &[], &[]),
        ];
        for (pass, keys, expected) in cases {
            let found = withheld_among(environment.iter().map(OsString::from), &names(pass), &names(keys));
            assert_eq!(found, names(expected), "pass {pass:?}, keys {keys:?}");
        }
    }

    #[test]
    fn commands_get_all_but_what_is_withheld_and_nothing_twice() {
        let variables = [("PATH", "/bin"), ("A_KEY", "secret"), ("PAGER", "less"), ("FORCE_COLOR", "1")];
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let environment = for_commands_among(variables.into_iter(), &names(&["A_KEY"]));
        let value = |name: &str| {
            let values: Vec<_> =
                environment.iter().filter(|(other, _)| other == name).map(|(_, value)| value).collect();
            assert!(values.len() < 2, "{name} is there twice");
            values.first().map(|value| value.to_string_lossy().into_owned())
        };
        assert_eq!(value("PATH").as_deref(), Some("/bin"));
        assert_eq!(value("PAGER").as_deref(), Some("cat"));
        assert_eq!(value("GIT_TERMINAL_PROMPT").as_deref(), Some("0"));
        assert_eq!(value("A_KEY"), None);
        assert_eq!(value("FORCE_COLOR"), None);
    }
}
