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

fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("title").is_some_and(Value::is_string) {
                object.remove("title");
            }
            object.remove("format");
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
                "title": {"type": "integer", "minimum": 0},
                "count": {"type": "integer", "default": 10, "minimum": 0},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        assert_eq!(of::<Arguments>(), expected);
    }
}
