//! Schemas of servers' tools: which cannot be used at all, and what model services are told of the others.
//!
//! Only what services refuse is changed, and only in what they are told ([`wire_schema`]): arguments are validated
//! against the schema as the server gave it. What a service is told may therefore allow more than the tool takes; the
//! refusal of a call then says what is wrong.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::call::validation::Schema;

/// A larger schema would drown the prompt, and is no schema of arguments.
pub(super) const SCHEMA_BYTES_MAX: usize = 512 * 1024;
/// How many references in a row the root may be.
const ROOT_HOPS_MAX: usize = 16;
const PROPERTY_NAME_BYTES_MAX: usize = 64;
/// How many names of branches a description tells.
const BRANCHES_TOLD_MAX: usize = 8;
/// Where references may lead on the wire.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// At the root these say what an object must be beyond its properties; no service takes them there.
const ROOT_COMBINATORS: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "enum"];
/// These name the schema or its dialect; some services take them for unknown keywords.
const ROOT_NAMES: [&str; 3] = ["$schema", "$id", "id"];
/// The dialect in which `items` may be a list.
const OLDER_DIALECT: &str = "http://json-schema.org/draft-07/schema#";
/// The dialect in which the exclusive limits say whether the others are exclusive.
const OLDEST_DIALECT: &str = "http://json-schema.org/draft-04/schema#";
/// How older dialects, and recursive schemas, refer to what they hold.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// What the references beyond `$ref` are led by; on the wire there are none.
const RECURSION_MARKS: [&str; 2] = ["$dynamicAnchor", "$recursiveAnchor"];

/// Why no call could ever be validated against a schema; `Ok` if it can be used.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let Value::Object(root) = schema else {
        return Err("its schema is no JSON object".to_owned());
    };
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        return Err(format!("its schema has {bytes} bytes, more than the {SCHEMA_BYTES_MAX} that are taken"));
    }
    if !allows_object(root.get("type")) {
        return Err("its schema wants something other than an object".to_owned());
    }
    let mut references = BTreeSet::new();
    gather_references(schema, &mut references);
    for reference in references {
        if !reference.starts_with('#') {
            return Err(format!("its schema refers to {reference}, which is elsewhere and never fetched"));
        }
        if target(schema, &reference).is_none() {
            return Err(format!("its schema refers to {reference}, which is not in it"));
        }
    }
    // Every call of it would be refused.
    Schema::compile(&own_schema(schema.clone())).map(drop).map_err(|why| format!("its schema is not sound: {why}"))
}

/// The schema to validate against: as it was given, in the dialect that it is plainly written in.
pub(super) fn own_schema(schema: Value) -> Value {
    let mut schema = schema;
    let dialect = if holds(&schema, &|keyword, value| is_limit_flag(keyword) && value.is_boolean()) {
        Some(OLDEST_DIALECT)
    } else if holds(&schema, &|keyword, value| keyword == "items" && value.is_array()) {
        Some(OLDER_DIALECT)
    } else {
        None
    };
    if let (Some(dialect), Value::Object(root)) = (dialect, &mut schema)
        && !root.contains_key("$schema")
    {
        root.insert("$schema".to_owned(), json!(dialect));
    }
    schema
}

/// What model services are told of a schema that [`check`] passes.
pub fn wire_schema(schema: &Value) -> Value {
    let mut moved = Moved::default();
    let mut root = match adapt(schema, &mut moved) {
        Value::Object(root) => root,
        _ => Map::new(),
    };
    // What was moved may itself refer to what has to be moved. Every target is moved once, so that this ends.
    let mut definitions = Map::new();
    while let Some((name, reference)) = moved.next() {
        let original = target(schema, &reference).unwrap_or(&Value::Bool(true));
        let mut adapted = adapt(original, &mut moved);
        if let (true, Value::Object(object)) = (reference == "#", &mut adapted) {
            for name in DEFINITIONS {
                object.remove(name);
            }
        }
        definitions.insert(name, adapted);
    }
    if !definitions.is_empty() {
        let present = root.entry("$defs").or_insert_with(|| json!({}));
        if let Value::Object(present) = present {
            present.extend(definitions);
        }
    }
    for name in ROOT_NAMES {
        root.remove(name);
    }
    flatten_root(&mut root);
    Value::Object(root)
}

fn allows_object(kind: Option<&Value>) -> bool {
    match kind {
        None => true,
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        Some(_) => false,
    }
}

/// The places where a schema holds further schemas by name; the names are no keywords.
fn holds_by_name(keyword: &str) -> bool {
    matches!(keyword, "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas")
}

/// The keywords whose values are data and no schemas.
fn holds_data(keyword: &str) -> bool {
    matches!(keyword, "const" | "enum" | "default" | "examples" | "example" | "required")
}

fn gather_references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            for (keyword, value) in object {
                match value {
                    Value::String(reference) if REFERENCES.contains(&keyword.as_str()) => {
                        found.insert(reference.clone());
                    }
                    Value::Object(named) if holds_by_name(keyword) => {
                        named.values().for_each(|schema| gather_references(schema, found));
                    }
                    _ if holds_data(keyword) => {}
                    _ => gather_references(value, found),
                }
            }
        }
        Value::Array(schemas) => schemas.iter().for_each(|schema| gather_references(schema, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_limit_flag(keyword: &str) -> bool {
    matches!(keyword, "exclusiveMinimum" | "exclusiveMaximum")
}

/// Whether a schema, or one within it, has a keyword with a value that `wanted` is true of.
fn holds(schema: &Value, wanted: &impl Fn(&str, &Value) -> bool) -> bool {
    match schema {
        Value::Object(object) => object.iter().any(|(keyword, value)| match value {
            _ if wanted(keyword, value) => true,
            Value::Object(named) if holds_by_name(keyword) => named.values().any(|schema| holds(schema, wanted)),
            _ => !holds_data(keyword) && holds(value, wanted),
        }),
        Value::Array(schemas) => schemas.iter().any(|schema| holds(schema, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What a local reference leads to: a JSON pointer, or an anchor.
fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let fragment = reference.strip_prefix('#')?;
    if fragment.is_empty() || fragment.starts_with('/') {
        let pointer = percent_decoded(fragment)?;
        return root.pointer(&pointer).filter(|target| target.is_object() || target.is_boolean());
    }
    anchor(root, fragment)
}

fn anchor<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    match schema {
        Value::Object(object) => {
            let is_named = |keyword| object.get(keyword).and_then(Value::as_str) == Some(name);
            if is_named("$anchor") || is_named("$dynamicAnchor") {
                return Some(schema);
            }
            object.iter().filter(|(keyword, _)| !holds_data(keyword)).find_map(|(_, value)| anchor(value, name))
        }
        Value::Array(schemas) => schemas.iter().find_map(|schema| anchor(schema, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Whether every service follows a reference as it is: to an entry of the root's definitions.
fn leads_to_definition(reference: &str) -> bool {
    DEFINITIONS.iter().any(|definitions| {
        let behind = reference.strip_prefix("#/").and_then(|rest| rest.strip_prefix(definitions));
        behind.and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
        })
    })
}

/// References that lead elsewhere than to a definition; each gets a definition of its own.
#[derive(Default)]
struct Moved {
    names: BTreeMap<String, String>,
    waiting: Vec<(String, String)>,
}

impl Moved {
    fn name_of(&mut self, reference: &str) -> String {
        if let Some(name) = self.names.get(reference) {
            return name.clone();
        }
        let name = format!("reference_{}", self.names.len() + 1);
        self.names.insert(reference.to_owned(), name.clone());
        self.waiting.push((name.clone(), reference.to_owned()));
        name
    }

    fn next(&mut self) -> Option<(String, String)> {
        self.waiting.pop()
    }
}

/// Changes what services refuse anywhere in a schema: references that lead elsewhere than to a definition, or that are
/// not plain ones; lists without `items`, `items` that are a list, an empty `required`, and limits as draft 4 has them.
fn adapt(schema: &Value, moved: &mut Moved) -> Value {
    let object = match schema {
        Value::Object(object) => object,
        // `true` and `false` as schemas: nothing is to be said, or nothing fits, which validation tells.
        Value::Bool(_) => return json!({}),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => return schema.clone(),
    };
    let mut adapted = Map::new();
    for (keyword, value) in object {
        let mut keyword = keyword.as_str();
        let value = match value {
            Value::String(reference) if REFERENCES.contains(&keyword) => {
                keyword = "$ref";
                if leads_to_definition(reference) {
                    value.clone()
                } else {
                    json!(format!("#/$defs/{}", moved.name_of(reference)))
                }
            }
            Value::Array(required) if keyword == "required" && required.is_empty() => continue,
            _ if RECURSION_MARKS.contains(&keyword) => continue,
            Value::Bool(_) if is_limit_flag(keyword) => continue,
            _ if holds_data(keyword) => value.clone(),
            Value::Bool(_) if matches!(keyword, "additionalProperties" | "unevaluatedProperties") => value.clone(),
            Value::Object(named) if holds_by_name(keyword) => {
                named.iter().map(|(name, schema)| (name.clone(), adapt(schema, moved))).collect()
            }
            Value::Array(items) if keyword == "items" => {
                json!({"anyOf": items.iter().map(|schema| adapt(schema, moved)).collect::<Vec<_>>()})
            }
            Value::Array(schemas) => schemas.iter().map(|schema| adapt_element(schema, moved)).collect(),
            Value::Object(_) => adapt(value, moved),
            Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => value.clone(),
        };
        adapted.insert(keyword.to_owned(), value);
    }
    for (limit, flag) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if object.get(flag) == Some(&Value::Bool(true))
            && let Some(number) = adapted.remove(limit)
        {
            adapted.insert(flag.to_owned(), number);
        }
    }
    let is_list = match adapted.get("type") {
        Some(Value::String(name)) => name == "array",
        Some(Value::Array(names)) => names.iter().any(|name| name == "array"),
        _ => false,
    };
    if is_list && !adapted.contains_key("items") {
        adapted.insert("items".to_owned(), json!({}));
    }
    Value::Object(adapted)
}

fn adapt_element(schema: &Value, moved: &mut Moved) -> Value {
    if schema.is_object() { adapt(schema, moved) } else { schema.clone() }
}

/// Makes the root a plain object with properties: what a reference or the branches of a combinator say of properties is
/// gathered there, and what of that can be required is.
fn flatten_root(root: &mut Map<String, Value>) {
    let branches = gathered(&Value::Object(root.clone()), root, ROOT_HOPS_MAX);
    let has_combinator =
        ROOT_COMBINATORS.iter().any(|keyword| root.contains_key(*keyword)) || root.contains_key("$ref");
    if let Some(told) = branches.told.filter(|_| has_combinator) {
        tell(root, &told);
    }
    for keyword in ROOT_COMBINATORS.into_iter().chain(["$ref", "const"]) {
        root.remove(keyword);
    }
    if has_combinator {
        // It would refuse the properties that only a branch knew.
        root.remove("additionalProperties");
        root.remove("unevaluatedProperties");
        root.remove("required");
        if !branches.required.is_empty() {
            root.insert("required".to_owned(), json!(branches.required));
        }
    }
    root.insert("type".to_owned(), json!("object"));
    let (properties, others): (Map<_, _>, Map<_, _>) =
        branches.properties.into_iter().partition(|(name, _)| is_property_name(name));
    root.insert("properties".to_owned(), Value::Object(properties));
    leave_out(root, &others);
}

/// The names of properties that every service takes.
fn is_property_name(name: &str) -> bool {
    (1..=PROPERTY_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// Properties whose names a service would refuse are told in words alone.
fn leave_out(root: &mut Map<String, Value>, properties: &Map<String, Value>) {
    if properties.is_empty() {
        return;
    }
    if let Some(Value::Array(required)) = root.get_mut("required") {
        required.retain(|name| name.as_str().is_none_or(|name| !properties.contains_key(name)));
    }
    root.remove("additionalProperties");
    let names: Vec<String> = properties.keys().map(|name| format!("{name:?}")).collect();
    tell(root, &format!("It also takes {}.", names.join(", ")));
}

fn tell(root: &mut Map<String, Value>, sentence: &str) {
    let before = root.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = if before.is_empty() { sentence.to_owned() } else { format!("{before} {sentence}") };
    root.insert("description".to_owned(), json!(description));
}

/// What a schema says of an object's properties, through references and combinators.
#[derive(Default)]
struct Gathered {
    properties: Map<String, Value>,
    required: Vec<String>,
    /// Which properties go together, in words.
    told: Option<String>,
}

fn gathered(schema: &Value, root: &Map<String, Value>, hops_left: usize) -> Gathered {
    let mut result = Gathered::default();
    let (Value::Object(object), Some(hops_left)) = (schema, hops_left.checked_sub(1)) else { return result };
    if let Some(Value::Object(properties)) = object.get("properties") {
        result.properties.clone_from(properties);
    }
    let required = object.get("required").and_then(Value::as_array).into_iter().flatten();
    result.required.extend(required.filter_map(Value::as_str).map(str::to_owned));
    if let Some(target) = object.get("$ref").and_then(Value::as_str).and_then(|name| definition(root, name)) {
        result.take_all(gathered(target, root, hops_left));
    }
    for branch in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        result.take_all(gathered(branch, root, hops_left));
    }
    for keyword in ["if", "then", "else"] {
        if let Some(branch) = object.get(keyword) {
            result.take_properties(gathered(branch, root, hops_left).properties);
        }
    }
    if let Some(Value::Object(branches)) = object.get("dependentSchemas") {
        for branch in branches.values() {
            result.take_properties(gathered(branch, root, hops_left).properties);
        }
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = object.get(keyword) else { continue };
        let branches: Vec<Gathered> = branches.iter().map(|branch| gathered(branch, root, hops_left)).collect();
        result.take_either(branches);
    }
    result
}

fn definition<'s>(root: &'s Map<String, Value>, reference: &str) -> Option<&'s Value> {
    let (definitions, name) = reference.strip_prefix("#/")?.split_once('/')?;
    root.get(definitions)?.get(name)
}

impl Gathered {
    fn take_all(&mut self, other: Self) {
        self.take_properties(other.properties);
        for name in other.required {
            if !self.required.contains(&name) {
                self.required.push(name);
            }
        }
        self.told = self.told.take().or(other.told);
    }

    fn take_either(&mut self, branches: Vec<Self>) {
        let common: Vec<String> = match branches.split_first() {
            Some((first, others)) => {
                let in_all = |name: &&String| others.iter().all(|other| other.required.contains(*name));
                first.required.iter().filter(in_all).cloned().collect()
            }
            None => Vec::new(),
        };
        let groups: Vec<String> = branches
            .iter()
            .take(BRANCHES_TOLD_MAX)
            .filter(|branch| !branch.required.is_empty())
            .map(|branch| format!("`{}`", branch.required.join("`, `")))
            .collect();
        if groups.len() > 1 {
            self.told
                .get_or_insert_with(|| format!("Give one of these groups of properties: {}.", groups.join("; or ")));
        }
        for branch in branches {
            self.take_properties(branch.properties);
        }
        for name in common {
            if !self.required.contains(&name) {
                self.required.push(name);
            }
        }
    }

    /// A property that several branches know may be what either of them says.
    fn take_properties(&mut self, properties: Map<String, Value>) {
        for (name, schema) in properties {
            let Some(known) = self.properties.get_mut(&name) else {
                self.properties.insert(name, schema);
                continue;
            };
            if *known == schema {
                continue;
            }
            match known.get_mut("anyOf").and_then(Value::as_array_mut) {
                Some(choices) if choices.contains(&schema) => {}
                Some(choices) => choices.push(schema),
                None => *known = json!({"anyOf": [known.take(), schema]}),
            }
        }
    }
}

#[cfg(test)]
mod tests;
