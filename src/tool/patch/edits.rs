//! The arguments of `patch`, and the four forms that an edit can take.
//!
//! The schema is one plain object with optional properties, because not every model service takes alternatives; which
//! properties go together is decided here.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::tool::Refusal;

/// How many edits one call may hold.
pub const EDITS_MAX: usize = 256;

const FORMS: &str = "an edit is {path, before, after}, {path, content}, {path, delete: true} or {path, move_to}";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The edits, applied in order, all or none.
    pub(super) edits: Vec<EditArguments>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditArguments {
    /// The file, relative to the workspace.
    pub(super) path: String,
    /// With `after`: the text to replace.
    #[serde(default)]
    pub(super) before: Option<String>,
    /// With `before`: the text to put in its place.
    #[serde(default)]
    pub(super) after: Option<String>,
    /// The whole content of a new file, or of one to be replaced.
    #[serde(default)]
    pub(super) content: Option<String>,
    /// `true` deletes the file.
    #[serde(default)]
    pub(super) delete: Option<bool>,
    /// Where the file is moved to.
    #[serde(default)]
    pub(super) move_to: Option<String>,
}

/// One edit, its form known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    Replace { path: String, before: String, after: String },
    Content { path: String, content: String },
    Delete { path: String },
    Move { path: String, move_to: String },
}

impl Edit {
    /// The paths that it names, as they were written.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let (path, other) = match self {
            Self::Replace { path, .. } | Self::Content { path, .. } | Self::Delete { path } => (path, None),
            Self::Move { path, move_to } => (path, Some(move_to)),
        };
        std::iter::once(path).chain(other).map(String::as_str)
    }
}

/// The edits of a call, each or what is wrong with it, so that all that is wrong can be told at once.
pub fn parse(arguments: &Value) -> Result<Vec<Result<Edit, Refusal>>, Refusal> {
    let arguments = Arguments::deserialize(arguments)
        .map_err(|error| Refusal::new("invalid_arguments", format!("the arguments do not fit: {error}; {FORMS}")))?;
    let count = arguments.edits.len();
    if count == 0 {
        return Err(Refusal::new("invalid_arguments", format!("`edits` is empty; {FORMS}")));
    }
    if count > EDITS_MAX {
        return Err(Refusal::new(
            "invalid_arguments",
            format!("there are {count} edits, and at most {EDITS_MAX} are allowed in one call; use several calls"),
        ));
    }
    Ok(arguments.edits.into_iter().enumerate().map(|(index, edit)| form(index + 1, edit)).collect())
}

/// Every path that the arguments name, whether they make sense or not, each once.
pub fn paths(arguments: &Value) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for edit in arguments.get("edits").and_then(Value::as_array).into_iter().flatten().take(EDITS_MAX) {
        for key in ["path", "move_to"] {
            if let Some(path) = edit.get(key).and_then(Value::as_str)
                && !found.contains(&path)
            {
                found.push(path);
            }
        }
    }
    found
}

/// Whether an edit of a path that `names` means tells by its outcome what is in that file, or gives it another name.
pub fn reveals(arguments: &Value, names: impl Fn(&str) -> bool) -> bool {
    let edits = arguments.get("edits").and_then(Value::as_array);
    edits.into_iter().flatten().take(EDITS_MAX).any(|edit| {
        let tells = ["before", "move_to"].iter().any(|key| edit.get(key).is_some());
        tells && edit.get("path").and_then(Value::as_str).is_some_and(&names)
    })
}

fn form(number: usize, edit: EditArguments) -> Result<Edit, Refusal> {
    let EditArguments { path, before, after, content, delete, move_to } = edit;
    // `delete: false` says nothing: some services make models fill in every property.
    let delete = delete.filter(|delete| *delete);
    let given: Vec<&str> = [
        ("before", before.is_some()),
        ("after", after.is_some()),
        ("content", content.is_some()),
        ("delete", delete.is_some()),
        ("move_to", move_to.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_given)| is_given.then_some(name))
    .collect();
    match (before, after, content, delete, move_to) {
        (Some(before), Some(after), None, None, None) => replacement(number, path, before, after),
        (None, None, Some(content), None, None) => Ok(Edit::Content { path, content }),
        (None, None, None, Some(_), None) => Ok(Edit::Delete { path }),
        (None, None, None, None, Some(move_to)) => Ok(Edit::Move { path, move_to }),
        _ => {
            let has = if given.is_empty() { "nothing beside its path".to_owned() } else { given.join(", ") };
            Err(Refusal::new("invalid_arguments", format!("edit {number} ({path}) has {has}; {FORMS}")))
        }
    }
}

fn replacement(number: usize, path: String, before: String, after: String) -> Result<Edit, Refusal> {
    let refuse = |what: &str| Err(Refusal::new("invalid_arguments", format!("edit {number} ({path}): {what}")));
    if before.is_empty() {
        return refuse("`before` is empty; give the text to replace, or `content` for a whole file");
    }
    if before == after {
        return refuse("`before` and `after` are equal, so nothing would change");
    }
    if before.replace("\r\n", "\n") == after.replace("\r\n", "\n") {
        return refuse(
            "`before` and `after` differ in line ends alone, and line ends are kept; give `content` to change them",
        );
    }
    Ok(Edit::Replace { path, before, after })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(arguments: &Value) -> Result<Vec<Edit>, Refusal> {
        super::parse(arguments)?.into_iter().collect()
    }

    #[test]
    fn the_four_forms_are_told_apart() {
        let edits = parse(&json!({"edits": [
            {"path": "a", "before": "x", "after": ""},
            {"path": "b", "content": ""},
            {"path": "c", "delete": true},
            {"path": "d", "move_to": "e", "delete": false},
        ]}));
        let expected = vec![
            Edit::Replace { path: "a".into(), before: "x".into(), after: String::new() },
            Edit::Content { path: "b".into(), content: String::new() },
            Edit::Delete { path: "c".into() },
            Edit::Move { path: "d".into(), move_to: "e".into() },
        ];
        assert_eq!(edits, Ok(expected));
    }

    #[test]
    fn what_fits_no_form_is_refused_by_its_number() {
        let cases = [
            (json!({"path": "a"}), "edit 2 (a) has nothing beside its path"),
            (json!({"path": "a", "delete": false}), "edit 2 (a) has nothing beside its path"),
            (json!({"path": "a", "before": "x"}), "edit 2 (a) has before;"),
            (json!({"path": "a", "after": "x"}), "edit 2 (a) has after;"),
            (json!({"path": "a", "content": "x", "delete": true}), "edit 2 (a) has content, delete;"),
            (json!({"path": "a", "before": "x", "after": "y", "move_to": "b"}), "has before, after, move_to;"),
            (json!({"path": "a", "before": "", "after": "y"}), "edit 2 (a): `before` is empty"),
            (json!({"path": "a", "before": "y", "after": "y"}), "edit 2 (a): `before` and `after` are equal"),
            (json!({"path": "a", "before": "y\r\n", "after": "y\n"}), "differ in line ends alone"),
            (json!({"path": "a", "contents": "y"}), "unknown field `contents`"),
        ];
        for (edit, expected) in cases {
            let arguments = json!({"edits": [{"path": "fine", "content": "x"}, edit]});
            let refusal = parse(&arguments).expect_err(expected);
            assert_eq!(refusal.code, "invalid_arguments");
            assert!(refusal.message.contains(expected), "{} lacks {expected}", refusal.message);
        }
    }

    #[test]
    fn the_number_of_edits_is_bounded() {
        let edits = |count: usize| json!({"edits": vec![json!({"path": "a", "content": "x"}); count]});
        assert_eq!(parse(&edits(EDITS_MAX)).map(|edits| edits.len()), Ok(EDITS_MAX));
        let refusal = parse(&edits(EDITS_MAX + 1)).expect_err("too many");
        assert!(refusal.message.contains("there are 257 edits"), "{}", refusal.message);
        assert!(parse(&edits(0)).expect_err("none").message.contains("`edits` is empty"));
    }

    #[test]
    fn paths_are_found_whatever_else_is_wrong() {
        let arguments = json!({"edits": [{"path": "a"}, 7, {"path": 1, "move_to": "b"}, {"path": "a", "content": 2}]});
        assert_eq!(paths(&arguments), ["a", "b"]);
    }
}
