use super::*;
use crate::call::validation::Schema;

#[test]
fn a_plain_schema_stays_as_it_is() {
    let schema = json!({
        "type": "object",
        "description": "What it takes.",
        "properties": {
            "path": {"type": "string", "const": "x"},
            "kind": {"oneOf": [{"type": "string"}, {"type": "null"}]},
            "map": {"type": "object", "additionalProperties": {"type": "number"}},
            "free": {"type": "object", "additionalProperties": true},
            "maybe": {"type": ["string", "null"], "default": null},
            "list": {"type": "array", "items": {"$ref": "#/$defs/item"}},
            "required": {"type": "string", "enum": ["$ref", "required"]},
        },
        "required": ["path"],
        "additionalProperties": false,
        "$defs": {"item": {"type": "object", "properties": {"next": {"$ref": "#/$defs/item"}}}},
    });
    check(&schema).unwrap();
    assert_eq!(wire_schema(&schema), schema);
    assert_eq!(own_schema(schema.clone()), schema);
}

#[test]
fn what_services_refuse_is_changed_on_the_wire() {
    for (schema, expected) in [
        (json!({}), json!({"type": "object", "properties": {}})),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": []}),
            json!({"type": "object", "properties": {}}),
        ),
        (json!({"type": ["object", "null"]}), json!({"type": "object", "properties": {}})),
        (
            json!({"type": "object", "properties": {
                "a": {"type": "array"},
                "b": {"type": "array", "items": [{"type": "string"}, true]},
                "d": true,
            }}),
            json!({"type": "object", "properties": {
                "a": {"type": "array", "items": {}},
                "b": {"type": "array", "items": {"anyOf": [{"type": "string"}, {}]}},
                "d": {},
            }}),
        ),
        (
            json!({"type": "object", "properties": {"a b": {"type": "string"}, "c": {}}, "required": ["a b", "c"],
                "additionalProperties": false}),
            json!({"type": "object", "properties": {"c": {}}, "required": ["c"],
                "description": "It also takes \"a b\"."}),
        ),
        (
            json!({"type": "object", "properties": {
                "a": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                "b": {"type": "number", "maximum": 9, "exclusiveMaximum": false},
                "exclusiveMinimum": {"type": "boolean", "default": true},
            }}),
            json!({"type": "object", "properties": {
                "a": {"type": "number", "exclusiveMinimum": 0},
                "b": {"type": "number", "maximum": 9},
                "exclusiveMinimum": {"type": "boolean", "default": true},
            }}),
        ),
        (
            json!({"type": "object", "$dynamicAnchor": "node", "properties": {"a": {"$dynamicRef": "#node"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/reference_1"}}, "$defs": {"reference_1":
                {"type": "object", "properties": {"a": {"$ref": "#/$defs/reference_1"}}}}}),
        ),
    ] {
        check(&schema).unwrap();
        assert_eq!(wire_schema(&schema), expected, "{schema}");
    }
}

#[test]
fn a_combinator_at_the_root_becomes_one_object() {
    let schema = json!({
        "description": "Finds.",
        "properties": {"limit": {"type": "integer"}},
        "required": ["limit"],
        "oneOf": [
            {"properties": {"id": {"type": "string"}, "kind": {"const": "id"}}, "required": ["id", "kind"]},
            {"$ref": "#/$defs/by_name"},
        ],
        "additionalProperties": false,
        "$defs": {"by_name": {"properties": {"name": {"type": "string"}, "kind": {"const": "name"}}, "required": ["kind", "name"]}},
    });
    let wire = wire_schema(&schema);
    assert_eq!(
        wire,
        json!({
            "description": "Finds. Give one of these groups of properties: `id`, `kind`; or `kind`, `name`.",
            "properties": {
                "limit": {"type": "integer"},
                "id": {"type": "string"},
                "kind": {"anyOf": [{"const": "id"}, {"const": "name"}]},
                "name": {"type": "string"},
            },
            "$defs": schema["$defs"],
            "required": ["limit", "kind"],
            "type": "object",
        })
    );
    // What the tool takes is still judged by what it says.
    let own = Schema::compile(&json!({"oneOf": schema["oneOf"], "$defs": schema["$defs"]})).unwrap();
    assert!(own.check_violations(&json!({"kind": "id", "id": "7"})).is_empty());
    assert!(!own.check_violations(&json!({"kind": "id", "name": "7"})).is_empty());
}

#[test]
fn all_of_and_a_reference_at_the_root_are_taken_in() {
    let schema = json!({
        "$ref": "#/definitions/args",
        "definitions": {
            "args": {"allOf": [{"$ref": "#/definitions/base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
            "base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        },
    });
    let wire = wire_schema(&schema);
    assert_eq!(wire["type"], "object");
    assert_eq!(wire["properties"], json!({"a": {"type": "string"}, "b": {"type": "integer"}}));
    assert_eq!(wire["required"], json!(["a", "b"]));
    assert!(wire.get("$ref").is_none());

    // A reference that leads in a circle ends.
    let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}});
    assert_eq!(wire_schema(&circle)["properties"], json!({}));
}

#[test]
fn references_lead_to_definitions_on_the_wire() {
    let schema = json!({
        "type": "object",
        "properties": {
            "point": {"type": "object", "properties": {"x": {"type": "number"}}},
            "again": {"$ref": "#/properties/point/properties/x"},
            "inner": {"$ref": "#"},
            "tagged": {"$ref": "#here"},
            "odd": {"$ref": "#/$defs/a%20b"},
        },
        "$defs": {"a b": {"$anchor": "here", "type": "string"}},
    });
    check(&schema).unwrap();
    let wire = wire_schema(&schema);
    let mut references = BTreeSet::new();
    gather_references(&wire, &mut references);
    assert!(references.iter().all(|reference| leads_to_definition(reference)), "{references:?}");
    assert!(references.iter().all(|reference| target(&wire, reference).is_some()), "{wire}");
    for (property, expected) in [("again", "number"), ("tagged", "string"), ("odd", "string"), ("inner", "object")] {
        let reference = wire["properties"][property]["$ref"].as_str().unwrap();
        assert_eq!(target(&wire, reference).unwrap()["type"], expected, "{property}");
    }
}

#[test]
fn a_schema_that_cannot_be_used_says_why() {
    for (schema, expected) in [
        (json!(true), "its schema is no JSON object"),
        (json!({"type": "string"}), "its schema wants something other than an object"),
        (
            json!({"properties": {"a": {"$ref": "https://example.org/s.json"}}}),
            "its schema refers to https://example.org/s.json, which is elsewhere and never fetched",
        ),
        (
            json!({"properties": {"a": {"items": [{"$ref": "other.json#/x"}]}}}),
            "its schema refers to other.json#/x, which is elsewhere and never fetched",
        ),
        (json!({"properties": {"a": {"$ref": "#/$defs/a"}}}), "its schema refers to #/$defs/a, which is not in it"),
        (
            json!({"properties": {"a": {"$dynamicRef": "https://example.org/z#n"}}}),
            "its schema refers to https://example.org/z#n, which is elsewhere and never fetched",
        ),
    ] {
        assert_eq!(check(&schema).unwrap_err(), expected);
    }
    for unsound in [
        json!({"properties": {"a": {"type": "strang"}}}),
        json!({"properties": {"a": {"type": "string", "pattern": "("}}}),
        json!({"properties": {"a": {"minimum": "low"}}}),
        json!({"properties": {"a": {"type": "array", "items": []}}}),
    ] {
        let why = check(&unsound).unwrap_err();
        assert!(why.starts_with("its schema is not sound: "), "{why}");
    }
    let own = |schema| Schema::compile(&own_schema(schema)).unwrap();
    let above = own(json!({"properties": {"n": {"minimum": 0, "exclusiveMinimum": true}}}));
    assert_eq!(above.check_violations(&json!({"n": 0})).len(), 1);
    assert_eq!(above.check_violations(&json!({"n": 1})), Vec::<String>::new());
    // A property of that name is no reference, nor is data.
    check(&json!({"properties": {"$ref": {"type": "string"}, "a": {"default": {"$ref": "http://x"}}}})).unwrap();
    let long = "x".repeat(SCHEMA_BYTES_MAX);
    assert!(check(&json!({"description": long})).unwrap_err().contains("more than the"));
}

#[test]
fn a_large_schema_of_many_references_is_taken() {
    let mut definitions = Map::new();
    let mut properties = Map::new();
    for number in 0..150 {
        let next = (number + 1) % 150;
        let description = "What this is for, at some length. ".repeat(25);
        definitions.insert(
            format!("part{number}"),
            json!({"type": "object", "description": description, "properties": {"next": {"$ref": format!("#/definitions/part{next}")}}}),
        );
        properties.insert(format!("p{number}"), json!({"$ref": format!("#/definitions/part{number}")}));
    }
    let schema = json!({"type": "object", "properties": properties, "definitions": definitions});
    assert!(schema.to_string().len() > 130 * 1024);
    check(&schema).unwrap();
    assert_eq!(wire_schema(&schema), schema);
    let own = Schema::compile(&schema).unwrap();
    assert_eq!(own.check_violations(&json!({"p0": {"next": {"next": 3}}})).len(), 1);
}

#[test]
fn lists_of_items_are_judged_in_the_dialect_they_are_of() {
    let schema = json!({"properties": {"a": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}}});
    let own = own_schema(schema);
    let compiled = Schema::compile(&own).unwrap();
    assert!(compiled.check_violations(&json!({"a": ["x", 1]})).is_empty());
    assert_eq!(compiled.check_violations(&json!({"a": [1, 1]})).len(), 1);
}
