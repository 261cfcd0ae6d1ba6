//! Request bodies: what `model::validate` accepts, as JSON Schema. Fields that the service assigns
//! are omitted, although a replace or update accepts them unchanged.

use super::names::Names;
use super::own;
use super::{Members, filters, reference};
use model::schema::{Builtin, CollectionIx, Field, Kind, OnDelete, Schema};
use model::validate::{MAX_ARRAY_ITEMS, MAX_INTEGER, MAX_OBJECT_BYTES, MAX_STRING_CHARS};
use serde_json::{Map, Value, json};

/// Any character except NUL, which no database column accepts.
pub const TEXT: &str = r"^[^\u0000]*$";

/// Which body a schema describes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// Omitted fields get their default or null; required fields must be present.
    Whole,
    /// Omitted fields stay unchanged.
    Patch,
}

/// Schemas that the bodies of all collections share.
pub fn shared() -> Map<String, Value> {
    let mut all = Map::new();
    all.insert(
        "Timestamp".into(),
        json!({
            "type": "string",
            "format": "date-time",
            "pattern": filters::timestamp(),
            "description": "An ISO 8601 timestamp with an offset. It is stored in UTC, to the \
                            millisecond.",
        }),
    );
    all.insert("Date".into(), json!({ "type": "string", "format": "date" }));
    all.insert("JsonObject".into(), free_object());
    all
}

fn free_object() -> Value {
    json!({
        "type": "object",
        "description": format!(
            "Any JSON object of at most {MAX_OBJECT_BYTES} bytes, without NUL in its texts."
        ),
        "propertyNames": { "pattern": TEXT },
        // Not a schema of all JSON values: some generators cannot read one that refers to itself.
        "additionalProperties": true,
    })
}

/// The bodies of one collection: create (also for a replace), update, and the parameters of its
/// actions.
pub fn schemas(
    schema: &Schema,
    names: &Names,
    index: CollectionIx,
    members: &Members,
) -> Map<String, Value> {
    let collection = &schema.collections[index];
    let object = &collection.object;
    let body = |fields: &[Field], body, about: String| {
        let is_record = std::ptr::eq(fields, collection.fields.as_slice());
        let known = |field: &Field| {
            let name = field.alias_of.as_ref().unwrap_or(&field.name);
            members.get(name).filter(|_| is_record).map_or(&[][..], Vec::as_slice)
        };
        let property = |field: &Field| property(schema, field, known(field), body);
        let mut object = object_of(fields, &property, body, &about);
        if is_record {
            own::refine(schema, index, &mut object);
            // The field has an action of its own that changes it.
            if body == Body::Patch
                && collection.builtin == Some(Builtin::Endpoint)
                && let Some(properties) = object["properties"].as_object_mut()
            {
                properties.remove("secret");
            }
        }
        object
    };
    let mut all = Map::new();
    let about = format!("A whole {object}: omitted fields get their default or null.");
    all.insert(names.create(index), body(&collection.fields, Body::Whole, about));
    let about = format!("The fields of the {object} to change; null clears a field (RFC 7396).");
    all.insert(names.update(index), body(&collection.fields, Body::Patch, about));
    for action in &collection.actions {
        let about = format!("Parameters of `{}`.", action.name);
        all.insert(names.params(index, action), body(&action.params, Body::Whole, about));
    }
    all
}

fn object_of(
    fields: &[Field],
    property: &dyn Fn(&Field) -> Value,
    body: Body,
    description: &str,
) -> Value {
    let writable = || fields.iter().filter(|field| field.is_writable());
    let properties: Map<String, Value> =
        writable().map(|field| (field.name.clone(), property(field))).collect();
    let mut object = json!({
        "type": "object",
        "description": description,
        "properties": properties,
        "additionalProperties": false,
    });
    let (either, required): (Vec<Vec<&str>>, Vec<Vec<&str>>) = writable()
        .filter(|field| field.must_be_sent() && field.alias_of.is_none())
        .map(|field| names_of(fields, field))
        .partition(|names| names.len() > 1);
    if body == Body::Whole && !required.is_empty() {
        object["required"] = required.concat().into();
    }
    if body == Body::Whole && !either.is_empty() {
        object["allOf"] = either.iter().map(|names| one_of(names)).collect();
    }
    object
}

/// The field's name, and its old names that still work.
fn names_of<'a>(fields: &'a [Field], field: &'a Field) -> Vec<&'a str> {
    let aliases = fields.iter().filter(|alias| alias.is_alias_of(field));
    std::iter::once(field).chain(aliases).map(name).collect()
}

fn one_of(names: &[&str]) -> Value {
    let choices: Vec<Value> = names.iter().map(|name| json!({ "required": [name] })).collect();
    json!({ "anyOf": choices })
}

fn name(field: &Field) -> &str {
    &field.name
}

/// A field of a body; for an object, with the members that have rules.
fn property(schema: &Schema, field: &Field, members: &[Field], body: Body) -> Value {
    let mut property = match members {
        [] => value(field),
        members => {
            // Members have no default: an object is stored as sent.
            let member = |one: &Field| (one.name.clone(), property(schema, one, &[], Body::Patch));
            let mut object = free_object();
            object["properties"] = members.iter().map(member).collect::<Map<_, _>>().into();
            object
        }
    };
    if !field.required {
        property = nullable(property);
    }
    if let Some(description) = description(schema, field) {
        property["description"] = description.into();
    }
    if field.write_only {
        property["writeOnly"] = true.into();
    }
    if field.deprecated.is_some() {
        property["deprecated"] = true.into();
    }
    if let Some(default) = field.default.as_ref().filter(|_| body == Body::Whole) {
        property["default"] = default.clone();
    }
    property
}

/// The author's description, and rules that JSON Schema cannot express.
pub fn description(schema: &Schema, field: &Field) -> Option<String> {
    let mut sentences: Vec<String> = field.description.iter().cloned().collect();
    if let Some(target) = field.reference {
        let target = &schema.collections[target];
        sentences.push(format!("Id of a record in `{}`.", target.name));
        if target.operations.delete && !field.read_only && target.builtin.is_none() {
            let then = match field.on_delete() {
                OnDelete::Restrict => {
                    "That record cannot be deleted while this field refers to it."
                }
                OnDelete::Cascade => "This record is deleted with that record.",
                OnDelete::SetNull => "Becomes null when that record is deleted.",
            };
            sentences.push(then.to_owned());
        }
    }
    if field.unique {
        sentences.push("No two records share a value.".to_owned());
    }
    if let Some(pattern) = &field.pattern
        && !portable(pattern.0.as_str())
    {
        sentences.push(format!("Must match the regular expression `{}`.", pattern.0.as_str()));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// A value of the field that is not null.
fn value(field: &Field) -> Value {
    match &field.kind {
        Kind::String => text(field),
        Kind::Integer | Kind::Number => number(field),
        Kind::Array(items) => json!({
            "type": "array",
            "items": item(items),
            "minItems": field.min_length.unwrap_or(0),
            "maxItems": field.max_length.unwrap_or(MAX_ARRAY_ITEMS),
        }),
        kind => item(kind),
    }
}

fn text(field: &Field) -> Value {
    if !field.choices.is_empty() {
        return json!({ "type": "string", "enum": field.choices });
    }
    let mut text = json!({
        "type": "string",
        "maxLength": field.max_length.unwrap_or(MAX_STRING_CHARS),
    });
    if let Some(min) = field.min_length {
        text["minLength"] = min.into();
    }
    match field.pattern.as_ref().map(|pattern| pattern.0.as_str()).filter(|p| portable(p)) {
        Some(pattern) => {
            text["pattern"] = pattern.into();
            if !excludes_nul(pattern) {
                text["allOf"] = json!([{ "pattern": TEXT }]);
            }
        }
        None => text["pattern"] = TEXT.into(),
    }
    text
}

fn number(field: &Field) -> Value {
    if field.kind == Kind::Number {
        let mut number = json!({ "type": "number" });
        for (keyword, bound) in [("minimum", field.min), ("maximum", field.max)] {
            if let Some(bound) = bound {
                number[keyword] = plain(bound);
            }
        }
        return number;
    }
    let least = field.min.map_or(-MAX_INTEGER as f64, |min| min.max(-MAX_INTEGER as f64));
    let most = field.max.map_or(MAX_INTEGER as f64, |max| max.min(MAX_INTEGER as f64));
    json!({ "type": "integer", "format": "int64", "minimum": plain(least), "maximum": plain(most) })
}

/// A number; whole numbers without a decimal point.
fn plain(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() <= MAX_INTEGER as f64 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

/// A value of a kind without the limits of a field, for items of an array.
pub fn item(kind: &Kind) -> Value {
    match kind {
        Kind::String => json!({ "type": "string", "pattern": TEXT }),
        Kind::Integer => json!({
            "type": "integer",
            "format": "int64",
            "minimum": -MAX_INTEGER,
            "maximum": MAX_INTEGER,
        }),
        Kind::Number => json!({ "type": "number" }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Timestamp => reference("schemas", "Timestamp"),
        Kind::Date => reference("schemas", "Date"),
        Kind::Object => reference("schemas", "JsonObject"),
        Kind::Array(items) => json!({ "type": "array", "items": item(items) }),
    }
}

/// The schema, with null allowed.
pub fn nullable(mut schema: Value) -> Value {
    let Some(Value::String(kind)) = schema.get("type").cloned() else {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    };
    schema["type"] = json!([kind, "null"]);
    if let Some(choices) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        choices.push(Value::Null);
    }
    schema
}

/// Whether one of our patterns means the same in ECMAScript, the dialect of JSON Schema.
fn portable(pattern: &str) -> bool {
    const OURS_ONLY: &[&str] = &["(?P<", "(?i", "(?m", "(?s", "(?x", "(?u", "(?-", "(?U", "(?R"];
    const OUR_CLASSES: &[&str] = &["[[:", "&&", "--", "~~", r"\p", r"\P", r"\A", r"\z", r"\x{"];
    !OURS_ONLY.iter().chain(OUR_CLASSES).any(|construct| pattern.contains(construct))
}

/// Whether text that matches the pattern cannot contain NUL: it is anchored and has no negated or
/// wildcard class.
fn excludes_nul(pattern: &str) -> bool {
    const LOOSE: &[&str] = &["[^", r"\D", r"\W", r"\S", "|"];
    let dots = pattern.replace(r"\.", "");
    pattern.starts_with('^')
        && pattern.ends_with('$')
        && !dots.contains('.')
        && !LOOSE.iter().any(|construct| pattern.contains(construct))
}
