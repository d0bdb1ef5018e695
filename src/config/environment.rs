//! The environment variables of this invocation, read once.
//!
//! Everything that depends on the environment takes this, so that tests never change the process's own. An empty
//! variable counts as unset. What children get is decided where they are started, not here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::failure::Failure;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The variable's value, unless it is unset or empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The variable's value as text; one that is not UTF-8 is a usage error that names it.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.to_str() {
            Some(text) => Ok(Some(text)),
            None => Err(Failure::usage(format!("the environment variable {name} is not UTF-8")).into()),
        }
    }

    /// `$XDG_CONFIG_HOME/attini`, else `~/.config/attini`; `None` without a home.
    pub fn user_config_folder(&self) -> Option<PathBuf> {
        self.user_folder("XDG_CONFIG_HOME", ".config")
    }

    /// `$XDG_STATE_HOME/attini`, else `~/.local/state/attini`; `None` without a home.
    pub fn user_state_folder(&self) -> Option<PathBuf> {
        self.user_folder("XDG_STATE_HOME", ".local/state")
    }

    /// A relative path in these variables is to be ignored, says the base directory specification.
    fn user_folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let absolute = |name| self.get(name).map(Path::new).filter(|path| path.is_absolute());
        let base = match absolute(variable) {
            Some(path) => path.to_owned(),
            None => absolute("HOME")?.join(below_home),
        };
        Some(base.join("attini"))
    }
}

impl<Name: Into<OsString>, Value: Into<OsString>> FromIterator<(Name, Value)> for Environment {
    fn from_iter<Pairs: IntoIterator<Item = (Name, Value)>>(pairs: Pairs) -> Self {
        Self { variables: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let environment: Environment = [("A", ""), ("B", "b")].into_iter().collect();
        assert_eq!(environment.get("A"), None);
        assert_eq!(environment.get("B"), Some(OsStr::new("b")));
        assert_eq!(environment.get("C"), None);
    }

    #[test]
    fn user_folders_come_from_xdg_then_home() {
        for (variables, expected) in [
            (vec![("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")], Some("/c/attini")),
            (vec![("XDG_CONFIG_HOME", ""), ("HOME", "/h")], Some("/h/.config/attini")),
            (vec![("XDG_CONFIG_HOME", "relative"), ("HOME", "/h")], Some("/h/.config/attini")),
            (vec![], None),
        ] {
            let environment: Environment = variables.into_iter().collect();
            assert_eq!(environment.user_config_folder(), expected.map(PathBuf::from));
        }
        let environment: Environment = [("HOME", "/h")].into_iter().collect();
        assert_eq!(environment.user_state_folder(), Some(PathBuf::from("/h/.local/state/attini")));
    }
}
