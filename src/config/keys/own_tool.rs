//! The keys of a tool of the project's own, and whether they fit each other.

use anyhow::Result;

use super::reader::{Entry, Reader};
use crate::call::validation::Schema;
use crate::config::{OwnToolConfig, ToolConfig};
use crate::tool::own::{Template, parameters_of};
use crate::tool::registry::is_builtin_name;

/// Every model service takes so long a name.
const NAME_BYTES_MAX: usize = 64;

/// The keys of `[tools.NAME]` that make a tool.
pub(super) const KEYS: [&str; 3] = ["command", "description", "parameters"];

/// Takes one of [`KEYS`]; false where it is another.
pub(super) fn apply(tool: &mut ToolConfig, reader: &Reader<'_>, entry: &Entry<'_>) -> Result<bool> {
    match entry.key {
        "command" => tool.own.get_or_insert_default().command = reader.texts(entry)?,
        "description" => tool.own.get_or_insert_default().description = Some(reader.string(entry)?.to_owned()),
        "parameters" => tool.own.get_or_insert_default().parameters = Some(reader.json_object(entry)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Refuses a tool that could not work. `within`: its table.
pub(super) fn ensure_sound(tool: &ToolConfig, reader: &Reader<'_>, within: &Entry<'_>) -> Result<()> {
    let Some(own) = &tool.own else { return Ok(()) };
    let name = within.key;
    let refuse = |what: String| Err(reader.error_at_key(within, &what));
    if is_builtin_name(name) {
        return refuse(format!("[tools.{name}] is a built-in tool; a tool of your own needs another name"));
    }
    let fits = name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte != b'.');
    if !fits {
        return refuse(format!("`{name}` is no name of a tool of your own: letters, digits, `_` and `-`, at most 64"));
    }
    if own.command.is_empty() {
        return refuse(format!("[tools.{name}] has no `command`: the program to run, and its arguments"));
    }
    match check(own) {
        Some(what) => refuse(format!("[tools.{name}]: {what}")),
        None => Ok(()),
    }
}

/// What is wrong between the words and the schema.
fn check(own: &OwnToolConfig) -> Option<String> {
    let schema = parameters_of(own);
    if schema.get("type").and_then(|kind| kind.as_str()) != Some("object") {
        return Some("`parameters` is the schema of an object, `type = \"object\"`".to_owned());
    }
    let Some(properties) = schema.get("properties").and_then(|properties| properties.as_object()) else {
        return Some("the `properties` of `parameters` are a table".to_owned());
    };
    if let Err(what) = Schema::compile(&schema) {
        return Some(format!("`parameters` is no JSON Schema: {what}"));
    }
    let words: Vec<Template> = own.command.iter().map(|word| Template::new(word)).collect();
    if words.first().is_some_and(|program| program.arguments().next().is_some()) {
        return Some("the first word of `command` is the program, which no argument chooses".to_owned());
    }
    let unknown = words.iter().flat_map(Template::arguments).find(|name| !properties.contains_key(*name))?;
    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
    let known = if known.is_empty() { String::new() } else { format!("; its parameters are {}", known.join(", ")) };
    Some(format!(
        "`command` has {{{unknown}}}, and no parameter is named so{known}; {{{{{unknown}}}}} is the text itself"
    ))
}
