//! What a server's tools are called where the model sees them: `server__tool`.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::workspace::git::hex;

/// The longest name of a tool, in bytes, that every model service takes.
const NAME_BYTES_MAX: usize = 64;
/// How much of a hash ends a name that was too long.
const HASH_DIGITS: usize = 8;
/// Between the server's name and the tool's.
const SEPARATOR: &str = "__";

/// The name under which a server's tool is offered.
pub(super) fn offered_name(server: &str, tool: &str) -> String {
    let whole = format!("{}{tool}", prefix(server));
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    let name: String = whole.chars().map(|character| if is_plain(character) { character } else { '_' }).collect();
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    // The hash is of the name as the server says it, so that names that differ only beyond the cut stay apart.
    let hash = hex(&Sha256::digest(whole.as_bytes()));
    format!("{}{}", &name[..NAME_BYTES_MAX - HASH_DIGITS], &hash[..HASH_DIGITS])
}

/// What every name of a server's tool begins with.
pub(super) fn prefix(server: &str) -> String {
    format!("{server}{SEPARATOR}")
}

/// The offered names that more than one tool would have, each with those tools (`server: tool`) in the order given.
pub(super) fn collisions<'t>(tools: impl Iterator<Item = (&'t str, &'t str)>) -> BTreeMap<String, Vec<String>> {
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (server, tool) in tools {
        by_name.entry(offered_name(server, tool)).or_default().push(format!("{server}: {tool}"));
    }
    by_name.retain(|_, tools| tools.len() > 1);
    by_name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_made_of_what_every_service_takes() {
        let long = "x".repeat(70);
        for (tool, expected) in [
            ("read_file", "fs__read_file".to_owned()),
            ("get.some/thing else", "fs__get_some_thing_else".to_owned()),
            ("größe", "fs__gr__e".to_owned()),
            ("", "fs__".to_owned()),
            (&long[..60], format!("fs__{}", &long[..60])),
        ] {
            assert_eq!(offered_name("fs", tool), expected);
        }
        let cut = offered_name("fs", &long);
        assert_eq!(cut.len(), 64);
        assert!(cut.starts_with(&format!("fs__{}", &long[..52])));
        assert!(cut[56..].bytes().all(|byte| byte.is_ascii_hexdigit()), "{cut}");
        assert_ne!(cut, offered_name("fs", &format!("{long}y")));
    }

    #[test]
    fn tools_of_one_name_are_found_across_servers() {
        let tools = [("a", "b__c"), ("a__b", "c"), ("a", "d.e"), ("a", "d_e"), ("a", "f")];
        let found = collisions(tools.into_iter());
        let expected = [
            ("a__b__c".to_owned(), vec!["a: b__c".to_owned(), "a__b: c".to_owned()]),
            ("a__d_e".to_owned(), vec!["a: d.e".to_owned(), "a: d_e".to_owned()]),
        ];
        assert_eq!(found, expected.into());
    }

    proptest! {
        #[test]
        fn every_name_fits(tool in any::<String>()) {
            let name = offered_name("server", &tool);
            prop_assert!(name.len() <= NAME_BYTES_MAX);
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')));
            prop_assert!(name.starts_with("server__"));
        }
    }
}
