//! The tools that a turn's requests hold: what it was started with, and what is different now.
//!
//! The array of tools and the system prompt are the head of every request; where they change, nothing that the service
//! kept of earlier requests serves any more, and the model may remember tools that are gone.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::provider::AdvertisedTool;
use crate::session::record::TurnSettings;
use crate::tool::deferral::note;
use crate::tool::registry::Registry;
use crate::workspace::git::hex;

/// How many digits of a hash tell two schemas apart.
const HASH_DIGITS: usize = 16;
/// How many names a warning tells of each kind.
const NAMES_TOLD_MAX: usize = 10;

/// Takes the tools down into the settings of a turn that begins, or returns what is different from what a turn that
/// goes on was started with.
pub fn take_down(settings: &mut TurnSettings, registry: &Registry) -> Option<String> {
    let (tools, deferred) = (hashes(&registry.advertised()), note(registry.deferred()));
    // What an older attini wrote says nothing of the tools.
    if settings.tools.is_empty() {
        settings.tools = tools;
        settings.deferred = deferred;
        return None;
    }
    let mut kinds: Vec<String> = [
        ("new: ", names(&tools, |name, _| !settings.tools.contains_key(name))),
        ("gone: ", names(&settings.tools, |name, _| !tools.contains_key(name))),
        ("changed: ", names(&tools, |name, hash| settings.tools.get(name).is_some_and(|before| before != hash))),
    ]
    .into_iter()
    .filter(|(_, names)| !names.is_empty())
    .map(|(kind, names)| format!("{kind}{}", enumeration(&names)))
    .collect();
    if deferred != settings.deferred {
        kinds.push("those that the system prompt lists by name are others".to_owned());
    }
    (!kinds.is_empty()).then(|| format!("the tools are not those that the turn was started with: {}", kinds.join("; ")))
}

fn hashes(tools: &[AdvertisedTool]) -> BTreeMap<String, String> {
    let hash = |tool: &AdvertisedTool| {
        let mut hash = hex(&Sha256::digest(format!("{}\n{}", tool.description, tool.parameters).as_bytes()));
        hash.truncate(HASH_DIGITS);
        hash
    };
    tools.iter().map(|tool| (tool.name.clone(), hash(tool))).collect()
}

fn names(tools: &BTreeMap<String, String>, wanted: impl Fn(&str, &str) -> bool) -> Vec<&str> {
    tools.iter().filter(|(name, hash)| wanted(name, hash)).map(|(name, _)| name.as_str()).collect()
}

fn enumeration(names: &[&str]) -> String {
    let told = names.iter().take(NAMES_TOLD_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_TOLD_MAX) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{Config, Defer, McpConfig};
    use crate::tool::fake::{Fake, Ran};
    use crate::tool::{Effect, Tool};

    fn registry(names: &[&'static str], deferred: usize) -> Registry {
        let ran = Arc::new(Ran::default());
        let mut tools: Vec<Arc<dyn Tool>> =
            names.iter().map(|name| Fake::tool(name, Effect::Read, false, &ran)).collect();
        tools.extend((0..deferred).map(|number| Fake::of_server("s", number, Effect::SideEffect, &ran)));
        let mut config = Config::default();
        config.mcp.insert("s".to_owned(), McpConfig { defer: Defer::Always, ..McpConfig::default() });
        Registry::new(tools, &config, false, &config.fan_out()).0
    }

    #[test]
    fn what_is_not_as_it_was_is_told() {
        let mut settings = TurnSettings::default();
        assert_eq!(take_down(&mut settings, &registry(&["a", "b"], 0)), None);
        let begun = settings.clone();
        assert_eq!((begun.tools.len(), begun.deferred.as_str()), (2, ""));
        assert_eq!(take_down(&mut settings, &registry(&["b", "a"], 0)), None);
        settings.tools.insert("a".to_owned(), "another".to_owned());
        let told = take_down(&mut settings, &registry(&["a", "c"], 1)).unwrap();
        assert_eq!(
            told,
            "the tools are not those that the turn was started with: new: c, find_tools, run_tool; gone: b; changed: a; \
             those that the system prompt lists by name are others"
        );
        // What the turn was started with stays what it is.
        assert_eq!((settings.tools.len(), settings.deferred.as_str()), (2, ""));
    }
}
