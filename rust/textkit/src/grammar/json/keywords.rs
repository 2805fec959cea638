//! The keywords of JSON Schema, by what they are about.

use serde_json::{Map, Value};

/// Keywords that are about values of any type and are met one by one.
pub const IN_PLACE: [&str; 14] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "enum",
];

pub fn applies_in_place(s: &Map<String, Value>) -> bool {
    IN_PLACE.iter().any(|k| s.contains_key(*k))
}

pub const NUMERIC: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
pub const TEXTUAL: [&str; 4] = ["minLength", "maxLength", "pattern", "format"];
pub const OF_ARRAYS: [&str; 10] = [
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
];
pub const OF_OBJECTS: [&str; 8] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "unevaluatedProperties",
];

/// Formats that the engine enforces; others are annotations.
pub const FORMATS: [&str; 10] = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
