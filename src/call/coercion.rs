//! Lossless mending of arguments before they are validated: a string that holds exactly what the schema asks for, and
//! defaults for what was left out.
//!
//! Nothing is guessed: a value that the schema takes as it is stays as it is, and a parameter that may be a string is
//! never decoded.

use serde_json::{Number, Value};

use super::arguments::parse_value;

/// How deep schemas and arguments are followed; what lies deeper is validated as it came.
const DEPTH_MAX: usize = 32;

/// Digits up to which a decimal number survives the way through a double.
const EXACT_DIGITS_MAX: usize = 15;

/// Coerces and fills in `value` by `schema`, in place.
pub fn apply(value: &mut Value, schema: &Value) {
    Walk { root: schema }.apply(value, schema, 0);
}

/// The schema that a value at `path` (names and indexes) is judged by, as far as it can be followed.
pub fn schema_at<'s>(schema: &'s Value, path: &[String]) -> Option<&'s Value> {
    let walk = Walk { root: schema };
    path.iter().try_fold(walk.resolve(schema, 0), |schema, name| {
        let below =
            schema.get("properties").and_then(|properties| properties.get(name)).or_else(|| schema.get("items"));
        below.map(|below| walk.resolve(below, 0))
    })
}

struct Walk<'s> {
    root: &'s Value,
}

impl<'s> Walk<'s> {
    fn apply(&self, value: &mut Value, schema: &'s Value, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        let schema = self.resolve(schema, depth);
        if let Some(coerced) = coerced(value, &types(schema)) {
            *value = coerced;
        }
        match value {
            Value::Object(object) => {
                let properties = schema.get("properties").and_then(Value::as_object);
                for (name, property) in properties.into_iter().flatten() {
                    if !object.contains_key(name)
                        && let Some(default) = self.resolve(property, depth).get("default")
                    {
                        object.insert(name.clone(), default.clone());
                    }
                }
                let others = schema.get("additionalProperties").filter(|others| others.is_object());
                for (name, value) in object.iter_mut() {
                    let property = properties.and_then(|properties| properties.get(name)).or(others);
                    if let Some(property) = property {
                        self.apply(value, property, depth + 1);
                    }
                }
            }
            Value::Array(values) => {
                if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
                    for value in values {
                        self.apply(value, items, depth + 1);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Follows local references.
    fn resolve(&self, schema: &'s Value, depth: usize) -> &'s Value {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return schema };
        if depth > DEPTH_MAX {
            return schema;
        }
        match reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) {
            Some(target) => self.resolve(target, depth + 1),
            None => schema,
        }
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The value that the schema asks for, if this one holds exactly that in another form.
fn coerced(value: &Value, types: &[&str]) -> Option<Value> {
    match value {
        Value::String(text) if !types.is_empty() && !types.contains(&"string") => {
            // With blanks around it, it is a text that holds a value, and not exactly one.
            let value = parse_value(text).ok().filter(|_| text.trim() == text)?;
            let fits = match &value {
                Value::Null => types.contains(&"null"),
                Value::Bool(_) => types.contains(&"boolean"),
                Value::Number(number) if is_exact(number, text) => {
                    return match whole(number) {
                        Some(whole) if types.contains(&"integer") => Some(whole),
                        _ => types.contains(&"number").then_some(value),
                    };
                }
                Value::Number(_) | Value::String(_) => false,
                Value::Array(_) => types.contains(&"array"),
                Value::Object(_) => types.contains(&"object"),
            };
            fits.then_some(value)
        }
        // A schema takes 3.0 for an integer; a tool's argument type does not.
        Value::Number(number) if number.is_f64() && types.contains(&"integer") => whole(number),
        _ => None,
    }
}

fn is_exact(number: &Number, text: &str) -> bool {
    if !number.is_f64() {
        return true;
    }
    text.chars().filter(char::is_ascii_digit).count() <= EXACT_DIGITS_MAX && text.contains(['.', 'e', 'E'])
}

/// The number as an integer, if it is one.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked, and within it every whole double is exact")]
fn whole(number: &Number) -> Option<Value> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if number.is_i64() || number.is_u64() {
        return Some(Value::Number(number.clone()));
    }
    let double = number.as_f64().filter(|double| double.fract() == 0.0 && double.abs() <= EXACT_MAX)?;
    Some(Value::from(double as i64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_loses_nothing_is_coerced() {
        for (types, value, expected) in [
            (json!("integer"), json!("12"), json!(12)),
            (json!("integer"), json!("-3"), json!(-3)),
            (json!("integer"), json!("3.0"), json!(3)),
            (json!("integer"), json!(3.0), json!(3)),
            (json!("integer"), json!("3.5"), json!("3.5")),
            (json!("integer"), json!(3.5), json!(3.5)),
            (json!("integer"), json!("123456789012345678901234567890"), json!("123456789012345678901234567890")),
            (json!("number"), json!("1.50"), json!(1.5)),
            (json!("number"), json!("0.1234567890123456789"), json!("0.1234567890123456789")),
            (json!("number"), json!(" 1 "), json!(" 1 ")),
            (json!("integer"), json!(" 1"), json!(" 1")),
            (json!("integer"), json!("2\n"), json!("2\n")),
            (json!("boolean"), json!("false "), json!("false ")),
            (json!("null"), json!("\tnull"), json!("\tnull")),
            (json!("array"), json!(" []"), json!(" []")),
            (json!("object"), json!("{}\n"), json!("{}\n")),
            (json!("integer"), json!("10.000000000000000001"), json!("10.000000000000000001")),
            (json!("number"), json!("1.0000000000000001"), json!("1.0000000000000001")),
            (json!("number"), json!("1x"), json!("1x")),
            (json!("boolean"), json!("true"), json!(true)),
            (json!("boolean"), json!("True"), json!("True")),
            (json!("boolean"), json!("1"), json!("1")),
            (json!("null"), json!("null"), json!(null)),
            (json!("array"), json!("[\"a\", 1]"), json!(["a", 1])),
            (json!("array"), json!("{}"), json!("{}")),
            (json!("object"), json!("{\"a\":\"1\"}"), json!({"a": "1"})),
            (json!("object"), json!("{\"a\":1,\"a\":2}"), json!("{\"a\":1,\"a\":2}")),
            (json!("string"), json!("12"), json!("12")),
            (json!("string"), json!(12), json!(12)),
            (json!(["string", "integer"]), json!("12"), json!("12")),
            (json!(["integer", "null"]), json!("null"), json!(null)),
        ] {
            let schema = json!({"type": "object", "properties": {"x": {"type": types}}});
            let mut arguments = json!({"x": value});
            apply(&mut arguments, &schema);
            assert_eq!(arguments["x"], expected, "{schema}: {value}");
        }
    }

    #[test]
    fn defaults_and_coercion_reach_into_arrays_and_references() {
        let schema = json!({
            "type": "object",
            "properties": {
                "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
                "depth": {"type": "integer", "default": 1},
            },
            "$defs": {"edit": {"type": "object", "properties": {"line": {"type": "integer"}, "all": {"type": "boolean", "default": false}}}},
        });
        let mut arguments = json!({"edits": "[{\"line\": \"4\"}]"});
        apply(&mut arguments, &schema);
        assert_eq!(arguments, json!({"edits": [{"line": 4, "all": false}], "depth": 1}));
    }
}
