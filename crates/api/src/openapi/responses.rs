//! Response bodies: records, lists, deletions. A record has all its members; only the parameter
//! `fields` can omit some, and its description says so. Expansion can replace an id by a record, so
//! references allow both.

use super::names::{Names, PING_OUTCOME};
use super::reference;
use super::requests::{description, nullable};
use model::expand::child_name;
use model::schema::{Builtin, CollectionIx, Field, Kind, Schema};
use serde_json::{Map, Value, json};

pub fn shared() -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("Pagination".into(), pagination());
    all.insert(
        "Deleted".into(),
        json!({
            "type": "object",
            "description": "A deleted record.",
            "properties": {
                "id": { "type": ["string", "integer"] },
                "object": { "type": "string" },
                "deleted": { "type": "boolean", "const": true },
            },
            "required": ["id", "object", "deleted"],
        }),
    );
    all.insert(
        "Health".into(),
        json!({
            "type": "object",
            "description": "Whether this instance can handle requests.",
            "properties": {
                "status": { "type": "string", "enum": ["ok", "draining", "store_failed", "stuck"] },
                "service": { "type": "string" },
                "version": { "type": "string" },
                "uptime_seconds": { "type": "integer", "minimum": 0 },
                "position": { "type": "integer", "description": "Newest commit in the log." },
                "reason": { "type": ["string", "null"] },
                "stuck": {
                    "type": "array",
                    "description": "Loops of the service without progress for 10 s.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "loop": { "type": "string" },
                            "silent_seconds": { "type": "integer", "minimum": 0 },
                        },
                        "required": ["loop", "silent_seconds"],
                    },
                },
            },
            "required": ["status"],
        }),
    );
    all
}

/// The response of a ping, which is not a record of its collection.
pub fn ping(schema: &Schema, names: &Names) -> Map<String, Value> {
    let mut attempt = reference("schemas", names.record(schema.own(Builtin::Attempt)));
    attempt["description"] = "The newest attempt, if there is one.".into();
    let mut members = members(schema, schema.own(Builtin::Delivery));
    members.insert("attempt".to_owned(), attempt);
    let outcome = json!({
        "description": "The delivery of a ping with its attempt. If there is no result in time, \
                        only its event, endpoint and the status `pending`.",
        "type": "object",
        "properties": members,
        "required": ["object", "event", "endpoint", "status"],
    });
    Map::from_iter([(PING_OUTCOME.to_owned(), outcome)])
}

/// The record and the list of one collection.
pub fn schemas(schema: &Schema, names: &Names, index: CollectionIx) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert(names.record(index).to_owned(), record(schema, names, index));
    all.insert(names.list(index), list(schema, names, index));
    all
}

/// The members of both kinds of pages in one object: a union would make every client distinguish
/// the kinds before it reads a member.
fn pagination() -> Value {
    let count = |about: &str| json!({ "type": "integer", "minimum": 0, "description": about });
    json!({
        "type": "object",
        "description": "Without `page` in the request: `next_cursor` and `has_more`. With it: the \
                        number of the page and the totals.",
        "properties": {
            "next_cursor": {
                "type": ["string", "null"],
                "description": "Value of `after` for the next page; null on the last one.",
            },
            "has_more": { "type": "boolean", "description": "Whether there is a next page." },
            "page": { "type": "integer", "minimum": 1, "description": "Number of this page." },
            "limit": { "type": "integer", "minimum": 1, "description": "Records per page." },
            "total": count("Records in the whole list."),
            "total_pages": count("Pages in the whole list."),
        },
    })
}

fn list(schema: &Schema, names: &Names, index: CollectionIx) -> Value {
    json!({
        "type": "object",
        "description": format!("A page of `{}`.", schema.collections[index].name),
        "properties": {
            "object": { "type": "string", "const": "list" },
            "url": { "type": "string", "description": "Path of the whole list, when embedded." },
            "data": { "type": "array", "items": reference("schemas", names.record(index)) },
            "pagination": reference("schemas", "Pagination"),
        },
        "required": ["object", "data", "pagination"],
    })
}

fn record(schema: &Schema, names: &Names, index: CollectionIx) -> Value {
    let collection = &schema.collections[index];
    let mut properties = Map::new();
    for (child, declared) in
        schema.children(index).filter(|(_, c)| !c.internal && !c.removed && !c.is_view())
    {
        let mut property = reference("schemas", &names.list(child));
        let about = format!("The newest of its `{}`, if they are included.", declared.name);
        property["description"] = about.into();
        properties.insert(child_name(&declared.name), property);
    }
    for field in collection.fields.iter().filter(|field| field.is_served()) {
        properties.insert(field.name.clone(), property(schema, names, index, field));
    }
    let public: Vec<&str> = collection.public_names().collect();
    let assigned = assigned(collection.feed.is_some(), &collection.object);
    for (name, value) in assigned.into_iter().filter(|(name, _)| public.contains(name)) {
        properties.insert(name.to_owned(), value);
    }
    if collection.builtin == Some(Builtin::Endpoint) {
        let about = "Shown once, in the response that creates it.";
        let secret = json!({ "type": "string", "description": about });
        properties.insert("secret".to_owned(), secret);
    }
    // Events of the service itself, and of earlier releases, have no actor.
    let is_event = collection.builtin == Some(Builtin::Event);
    let required: Vec<&str> =
        public.into_iter().filter(|name| !is_event || *name != "actor").collect();
    let about = collection.description.clone();
    json!({
        "type": "object",
        "description": about.unwrap_or_else(|| format!("A record of `{}`.", collection.name)),
        "properties": properties,
        "required": required,
    })
}

/// The members of a whole record, without their descriptions: references are ids, and nothing is
/// embedded.
pub fn members(schema: &Schema, index: CollectionIx) -> Map<String, Value> {
    let collection = &schema.collections[index];
    let assigned = assigned(collection.feed.is_some(), &collection.object);
    let assigned = Map::from_iter(assigned.map(|(name, value)| (name.to_owned(), value)));
    let member = |name: &str| {
        let mut member = match collection.field(name) {
            Some(field) => described(schema, index, field, plain(field)),
            None => assigned.get(name).cloned().unwrap_or_default(),
        };
        if let Some(keywords) = member.as_object_mut() {
            keywords.remove("description");
        }
        member
    };
    collection.public_names().map(|name| (name.to_owned(), member(name))).collect()
}

/// The fields that the service adds to every record.
fn assigned(feed: bool, object: &str) -> [(&'static str, Value); 4] {
    let id = match feed {
        true => json!({
            "type": "integer",
            "format": "int64",
            "minimum": 1,
            "description": "Position in the log: later records have larger ids.",
        }),
        false => json!({ "type": "string", "description": "Opaque." }),
    };
    let instant = || json!({ "type": "string", "format": "date-time" });
    [
        ("id", id),
        ("object", json!({ "type": "string", "const": object })),
        ("created_at", instant()),
        ("updated_at", instant()),
    ]
}

fn property(schema: &Schema, names: &Names, index: CollectionIx, field: &Field) -> Value {
    let mut property = plain(field);
    let served = |target: &CollectionIx| {
        let target = &schema.collections[*target];
        !target.internal && !target.removed
    };
    let target = field.reference.filter(served);
    if let Some(target) = target {
        property = json!({
            "anyOf": [property, reference("schemas", names.record(target))],
        });
    }
    described(schema, index, field, property)
}

/// The values of a field that are not null; of a reference, the ids.
fn plain(field: &Field) -> Value {
    let mut property = shown(&field.kind);
    if !field.choices.is_empty() {
        property["enum"] = field.choices.clone().into();
    }
    property
}

/// The schema of a field's values, with everything else that is known about the field.
fn described(schema: &Schema, index: CollectionIx, field: &Field, mut property: Value) -> Value {
    if !schema.is_never_null(index, field) {
        property = match property.get_mut("anyOf").and_then(Value::as_array_mut) {
            Some(choices) => {
                choices.push(json!({ "type": "null" }));
                property
            }
            None => nullable(property),
        };
    }
    if let Some(description) = description(schema, field) {
        property["description"] = description.into();
    }
    if field.read_only {
        property["readOnly"] = true.into();
    }
    if field.deprecated.is_some() {
        property["deprecated"] = true.into();
    }
    property
}

/// The schema of a value of a kind. Limits are not repeated: older records may be outside of them.
fn shown(kind: &Kind) -> Value {
    match kind {
        Kind::String => json!({ "type": "string" }),
        Kind::Integer => json!({ "type": "integer", "format": "int64" }),
        Kind::Number => json!({ "type": "number" }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Timestamp => json!({ "type": "string", "format": "date-time" }),
        Kind::Date => json!({ "type": "string", "format": "date" }),
        Kind::Object => json!({ "type": "object" }),
        Kind::Array(items) => json!({ "type": "array", "items": shown(items) }),
    }
}
