//! Which JSON Schemas for an answer a service can enforce while it writes: those made of little more than types.
//!
//! What is none of these is not asked for. The answer is validated in any case, against the schema as it was given.

use serde_json::{Map, Value};

/// How deep a schema may be, with what it refers to.
const DEPTH_MAX: usize = 32;
/// How many schemas one may hold, with what it refers to each time.
const SCHEMAS_MAX: usize = 1000;
/// How many properties may be left out, and how many schemas may be of several types, in the whole schema.
const OPTIONAL_PROPERTIES_MAX: usize = 24;
const UNIONS_MAX: usize = 16;
/// Formats that are enforced.
const FORMATS: [&str; 9] = ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6"];
/// What says nothing of the answer's form, and is not sent.
const REMARKS: [&str; 5] = ["$schema", "$id", "$comment", "examples", "deprecated"];

/// The schema as a service takes it to enforce it; `None` if it cannot.
pub(super) fn enforceable(schema: &Value) -> Option<Value> {
    let sent = without_remarks(schema);
    let mut survey = Survey { root: &sent, schemas: 0, optional: 0, unions: 0 };
    let is_plain_object =
        sent["type"] == "object" && !["$ref", "anyOf", "allOf"].iter().any(|key| sent.get(key).is_some());
    let fits = is_plain_object && survey.fits(&sent, &mut Vec::new());
    (fits && survey.optional <= OPTIONAL_PROPERTIES_MAX && survey.unions <= UNIONS_MAX).then_some(sent)
}

/// Whether an enforceable schema leaves no property out, has no defaults and puts no schemas together: some services
/// ask for that too.
pub(super) fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().all(is_strict),
        Value::Object(object) => {
            let properties = object.get("properties").and_then(Value::as_object);
            let count = object.get("required").and_then(Value::as_array).map_or(0, Vec::len);
            let is_object = object.get("type") == Some(&Value::from("object"));
            let is_whole = !is_object || properties.is_some_and(|properties| properties.len() == count);
            is_whole
                && !object.contains_key("default")
                && !object.contains_key("allOf")
                && object.iter().all(|(key, value)| match key.as_str() {
                    "properties" | "$defs" | "definitions" => {
                        value.as_object().is_some_and(|schemas| schemas.values().all(is_strict))
                    }
                    "items" | "anyOf" => is_strict(value),
                    _ => true,
                })
        }
        _ => true,
    }
}

/// Leaves names of properties alone, which may be any.
fn without_remarks(schema: &Value) -> Value {
    let Value::Object(object) = schema else { return schema.clone() };
    let kept = object.iter().filter(|(key, _)| !REMARKS.contains(&key.as_str()));
    let cleaned = kept.map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                schemas.iter().map(|(name, schema)| (name.clone(), without_remarks(schema))).collect()
            }
            ("anyOf" | "allOf", Value::Array(schemas)) => schemas.iter().map(without_remarks).collect(),
            ("items", schema) => without_remarks(schema),
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    Value::Object(cleaned.collect())
}

struct Survey<'s> {
    root: &'s Value,
    schemas: usize,
    optional: usize,
    unions: usize,
}

impl<'s> Survey<'s> {
    /// `within`: the references that led here, none of which may come again.
    fn fits(&mut self, schema: &'s Value, within: &mut Vec<&'s str>) -> bool {
        self.schemas += 1;
        let Some(object) = schema.as_object() else { return false };
        if self.schemas > SCHEMAS_MAX || within.len() >= DEPTH_MAX {
            return false;
        }
        if object.contains_key("anyOf") || object.get("type").is_some_and(Value::is_array) {
            self.unions += 1;
        }
        let says_something =
            ["type", "enum", "const", "anyOf", "allOf", "$ref"].iter().any(|key| object.contains_key(*key));
        says_something && self.is_closed(object) && object.iter().all(|(key, value)| self.fits_word(key, value, within))
    }

    /// Nothing but the properties that are named may stand in an object; each that is required is named.
    fn is_closed(&mut self, object: &Map<String, Value>) -> bool {
        let is_object = match object.get("type") {
            Some(Value::Array(types)) => types.iter().any(|name| name == "object"),
            Some(name) => name == "object",
            None => object.contains_key("properties"),
        };
        if !is_object {
            return true;
        }
        let Some(properties) = object.get("properties").and_then(Value::as_object) else { return false };
        let required: Vec<&str> =
            object.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        self.optional += properties.keys().filter(|name| !required.contains(&name.as_str())).count();
        object.get("additionalProperties") == Some(&Value::Bool(false))
            && required.iter().all(|name| properties.contains_key(*name))
    }

    fn fits_word(&mut self, key: &str, value: &'s Value, within: &mut Vec<&'s str>) -> bool {
        let is_scalar = |value: &Value| !value.is_array() && !value.is_object();
        match key {
            "type" | "title" | "description" | "default" | "required" | "additionalProperties" => true,
            // They are looked at where they are referred to.
            "$defs" | "definitions" => value.is_object(),
            "enum" => value.as_array().is_some_and(|values| !values.is_empty() && values.iter().all(is_scalar)),
            "const" => is_scalar(value),
            "format" => value.as_str().is_some_and(|format| FORMATS.contains(&format) || format == "uuid"),
            "minItems" => matches!(value.as_u64(), Some(0 | 1)),
            "properties" => value.as_object().is_some_and(|properties| {
                within.push("");
                let fits = properties.values().all(|schema| self.fits(schema, within));
                within.pop();
                fits
            }),
            "items" => self.fits_within("", value, within),
            "anyOf" => value.as_array().is_some_and(|schemas| {
                !schemas.is_empty() && schemas.iter().all(|schema| self.fits_within("", schema, within))
            }),
            "allOf" => value.as_array().is_some_and(|schemas| {
                let fits = |schema: &'s Value| schema.get("$ref").is_none() && self.fits_within("", schema, within);
                !schemas.is_empty() && schemas.iter().all(fits)
            }),
            "$ref" => value.as_str().is_some_and(|reference| {
                let is_known = reference.starts_with("#/$defs/") || reference.starts_with("#/definitions/");
                let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
                is_known
                    && !within.contains(&reference)
                    && target.is_some_and(|schema| self.fits_within(reference, schema, within))
            }),
            _ => false,
        }
    }

    fn fits_within(&mut self, reference: &'s str, schema: &'s Value, within: &mut Vec<&'s str>) -> bool {
        within.push(reference);
        let fits = self.fits(schema, within);
        within.pop();
        fits
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(properties: &Value) -> Value {
        let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    #[test]
    fn plain_schemas_are_enforced_and_all_others_not() {
        let cases = [
            (json!({"a": {"type": "string"}}), true),
            (json!({"a": {"type": ["string", "null"], "description": "d", "default": "x"}}), true),
            (json!({"a": {"enum": ["x", 1, null]}, "b": {"const": 1}}), true),
            (json!({"a": {"type": "array", "items": {"type": "integer"}, "minItems": 1}}), true),
            (json!({"a": {"type": "string", "format": "date-time"}}), true),
            (json!({"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}), true),
            (json!({"a": object(&json!({"minimum": {"type": "number"}}))}), true),
            (json!({"$comment": {"type": "string"}}), true),
            (json!({"a": {"type": "string", "minLength": 1}}), false),
            (json!({"a": {"type": "string", "pattern": "x"}}), false),
            (json!({"a": {"type": "integer", "minimum": 1}}), false),
            (json!({"a": {"type": "array", "items": {"type": "integer"}, "minItems": 2}}), false),
            (json!({"a": {"type": "object", "properties": {}}}), false),
            (json!({"a": {"type": "object", "additionalProperties": false}}), false),
            (json!({"a": {"enum": [{"x": 1}]}}), false),
            (json!({"a": {"oneOf": [{"type": "string"}]}}), false),
            (json!({"a": {"type": "string", "format": "regex"}}), false),
            (json!({"a": {}}), false),
            (json!({"a": true}), false),
            (json!({"a": {"$ref": "https://example.org/x"}}), false),
            (json!({"a": {"$ref": "#"}}), false),
            (json!({"a": {"$ref": "#/$defs/none"}}), false),
        ];
        for (properties, expected) in cases {
            let schema = object(&properties);
            assert_eq!(enforceable(&schema), expected.then(|| schema.clone()), "{properties}");
        }
        for root in [json!({"type": "string"}), json!({"anyOf": [object(&json!({}))]}), json!(true), json!({})] {
            assert_eq!(enforceable(&root), None, "{root}");
        }
    }

    #[test]
    fn references_are_followed_and_never_in_circles() {
        let with = |defs: Value| {
            let mut schema = object(&json!({"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}));
            schema["$defs"] = defs;
            schema
        };
        let next = json!({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/x"}]});
        for (defs, expected) in [
            (json!({"x": {"type": "string"}}), true),
            (json!({"x": {"type": "string", "pattern": "x"}}), false),
            (json!({"x": object(&json!({"next": next}))}), false),
            (json!({"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}), false),
        ] {
            assert_eq!(enforceable(&with(defs.clone())).is_some(), expected, "{defs}");
        }
        // Each refers to the next one twice: it would be looked at for ever.
        let twice = |next: usize| {
            object(&json!({"l": {"$ref": format!("#/$defs/{next}")}, "r": {"$ref": format!("#/$defs/{next}")}}))
        };
        let mut defs: Map<String, Value> = (0..25).map(|level| (level.to_string(), twice(level + 1))).collect();
        defs.insert("25".to_owned(), json!({"type": "string"}));
        let mut schema = twice(0);
        schema["$defs"] = Value::Object(defs);
        assert_eq!(enforceable(&schema), None);
        let deep = (0..200).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        assert_eq!(enforceable(&object(&json!({"a": deep}))), None);
    }

    #[test]
    fn remarks_are_left_out_and_names_of_properties_stay() {
        let plain = object(&json!({"examples": {"type": "string"}}));
        let mut remarked = plain.clone();
        remarked["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        remarked["properties"]["examples"]["examples"] = json!(["x"]);
        assert_eq!(enforceable(&remarked), Some(plain));
    }

    #[test]
    fn what_may_be_left_out_is_limited_and_never_strict() {
        let optional = |count: usize| {
            let properties: Map<String, Value> =
                (0..count).map(|number| (number.to_string(), json!({"type": "string"}))).collect();
            json!({"type": "object", "properties": properties, "additionalProperties": false})
        };
        assert!(enforceable(&optional(24)).is_some() && enforceable(&optional(25)).is_none());
        let union = json!({"type": ["string", "null"]});
        let unions = |count: usize| {
            object(&(0..count).map(|number| (number.to_string(), union.clone())).collect::<Map<_, _>>().into())
        };
        assert!(enforceable(&unions(16)).is_some() && enforceable(&unions(17)).is_none());
        assert!(is_strict(&unions(3)) && !is_strict(&optional(1)) && is_strict(&object(&json!({}))));
        assert!(!is_strict(&object(&json!({"a": {"type": "array", "items": optional(1)}}))));
        assert!(!is_strict(&object(&json!({"a": {"type": "string", "default": "x"}}))));
    }
}
