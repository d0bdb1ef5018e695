//! JSON Schemas of the built-in tools, derived from their argument types.
//!
//! Inline, without `$schema`, titles or nullable unions: an optional argument is one that may be left out. Each type
//! says `#[serde(deny_unknown_fields)]` and gives its defaults with `#[serde(default = ...)]`.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The schema of a type of arguments.
pub fn of<Arguments: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<Arguments>().to_value();
    simplify(&mut schema);
    schema
}

/// The largest integer of a format; of the widest ones the largest that every reader of JSON takes for an integer.
fn largest(format: &str) -> Option<u64> {
    const EXACT_MAX: u64 = (1 << 53) - 1;
    match format {
        "uint8" => Some(u64::from(u8::MAX)),
        "uint16" => Some(u64::from(u16::MAX)),
        "uint32" => Some(u64::from(u32::MAX)),
        "uint64" | "uint" | "int64" => Some(EXACT_MAX),
        _ => None,
    }
}

fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("title").is_some_and(Value::is_string) {
                object.remove("title");
            }
            // What no integer type can hold is told with the others, and by its place.
            let format = object.remove("format");
            if let Some(maximum) = format.as_ref().and_then(Value::as_str).and_then(largest)
                && object.get("maximum").is_none()
            {
                object.insert("maximum".to_owned(), Value::from(maximum));
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".to_owned(), only);
                }
            }
            object.values_mut().for_each(simplify);
        }
        Value::Array(values) => values.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// Reads something.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "the schema is all that matters here")]
    struct Arguments {
        /// Where.
        path: String,
        title: Option<u32>,
        #[serde(default = "ten")]
        count: u32,
    }

    fn ten() -> u32 {
        10
    }

    #[test]
    fn a_schema_is_as_plain_as_the_type() {
        let expected = json!({
            "description": "Reads something.",
            "type": "object",
            "properties": {
                "path": {"description": "Where.", "type": "string"},
                "title": {"type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32},
                "count": {"type": "integer", "default": 10, "minimum": 0, "maximum": 4_294_967_295_u32},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        assert_eq!(of::<Arguments>(), expected);
    }
}
