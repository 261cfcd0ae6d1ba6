//! The events: the envelope of each type with its object, as webhooks and live channels send it.

use super::names::{ENVELOPE, EVENT_ACTOR, EVENT_CAUSE, Names, RECORD_REFERENCE};
use super::{reference, responses};
use model::schema::{CollectionIx, Schema};
use model::webhook::catalogue::{About, EventKind};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The envelopes of these types, and what they refer to.
pub fn schemas(schema: &Schema, names: &Names, kinds: &[EventKind<'_>]) -> Map<String, Value> {
    let mut all = Map::new();
    let mut collections = BTreeSet::new();
    for kind in kinds {
        all.insert(names.event(kind.name).to_owned(), envelope(schema, names, kind));
        if let About::Record(collection) = kind.about {
            collections.insert(collection);
        }
    }
    for collection in collections {
        all.insert(names.snapshot(collection), snapshot(schema, collection));
        all.insert(names.previous(collection), previous(schema, collection));
        all.insert(names.events(collection), any_about(schema, names, collection, kinds));
    }
    all.insert(ENVELOPE.to_owned(), shared_members(schema));
    all.insert(RECORD_REFERENCE.to_owned(), record_reference());
    all.insert(EVENT_CAUSE.to_owned(), cause());
    all.insert(EVENT_ACTOR.to_owned(), actor());
    all
}

/// Any event about a record of the collection: all its types in one schema, because they differ
/// only in `type`.
fn any_about(
    schema: &Schema,
    names: &Names,
    collection: CollectionIx,
    kinds: &[EventKind<'_>],
) -> Value {
    let kinds = || kinds.iter().filter(|kind| kind.about == About::Record(collection));
    let mut description = format!("An event about a {}.", schema.collections[collection].object);
    for kind in kinds() {
        if let Some(about) = kind.description {
            description.push_str(&format!("\n- `{}`: {about}", kind.name));
        }
    }
    let mut data = json!({ "object": shown(names, collection) });
    if kinds().any(|kind| kind.has_previous) {
        data["previous_attributes"] = json!({
            "type": "object",
            "description": "After a change: old values of the fields that changed.",
        });
    }
    json!({
        "type": "object",
        "description": description,
        "allOf": [reference("schemas", ENVELOPE)],
        "properties": {
            "type": { "type": "string", "enum": kinds().map(|kind| kind.name).collect::<Vec<_>>() },
            "data": { "type": "object", "properties": data, "required": ["object"] },
        },
        "required": ["type", "data"],
    })
}

/// The members that events of all types have in the same form.
fn shared_members(schema: &Schema) -> Value {
    let members = envelope_members(schema);
    let required = required(&members);
    json!({
        "type": "object",
        "description": "The members of every event.",
        "properties": members,
        "required": required,
    })
}

/// One sentence about the events of a type.
pub fn about(schema: &Schema, kind: &EventKind<'_>) -> String {
    match (kind.description, kind.about) {
        (Some(description), _) => description.to_owned(),
        (None, About::Record(collection)) => {
            format!("An event about a {}.", schema.collections[collection].object)
        }
        (None, About::Published) => "An event that an application publishes.".to_owned(),
    }
}

fn envelope(schema: &Schema, names: &Names, kind: &EventKind<'_>) -> Value {
    let mut data = json!({ "object": object(names, kind) });
    if kind.has_previous {
        data["previous_attributes"] = match kind.about {
            About::Record(collection) => reference("schemas", &names.previous(collection)),
            About::Published => json!({
                "type": "object",
                "description": "Old values of the fields that changed.",
            }),
        };
    }
    let mut members = envelope_members(schema);
    members.insert("type".to_owned(), json!({ "type": "string", "const": kind.name }));
    let data = json!({ "type": "object", "properties": data, "required": ["object"] });
    members.insert("data".to_owned(), data);
    let required = required(&members);
    json!({
        "type": "object",
        "description": about(schema, kind),
        "properties": members,
        "required": required,
    })
}

/// Events from before there was an `actor` have none.
fn required(members: &Map<String, Value>) -> Vec<&String> {
    members.keys().filter(|name| *name != "actor").collect()
}

fn envelope_members(schema: &Schema) -> Map<String, Value> {
    let members = [
        (
            "id",
            json!({
                "type": "string",
                "description": "The same each time the event is sent: skip ids that you have \
                                processed.",
            }),
        ),
        ("object", json!({ "type": "string", "const": "event" })),
        (
            "api_version",
            json!({
                "type": "string",
                "const": schema.service.version,
                "description": "The version in which the event is written.",
            }),
        ),
        ("created", json!({ "type": "integer", "description": "Unix time in seconds." })),
        ("livemode", json!({ "type": "boolean" })),
        (
            "pending_webhooks",
            json!({
                "type": "integer",
                "minimum": 0,
                "description": "Deliveries that have not succeeded yet; 0 on live channels.",
            }),
        ),
        ("request", reference("schemas", EVENT_CAUSE)),
        ("actor", reference("schemas", EVENT_ACTOR)),
    ];
    members.into_iter().map(|(name, member)| (name.to_owned(), member)).collect()
}

fn object(names: &Names, kind: &EventKind<'_>) -> Value {
    match kind.about {
        About::Record(collection) => shown(names, collection),
        About::Published => json!({
            "type": "object",
            "description": "What the application sent.",
        }),
    }
}

/// A record in an event, or what is left of it.
pub fn shown(names: &Names, collection: CollectionIx) -> Value {
    json!({
        "anyOf": [
            reference("schemas", &names.snapshot(collection)),
            reference("schemas", RECORD_REFERENCE),
        ],
    })
}

fn snapshot(schema: &Schema, collection: CollectionIx) -> Value {
    let declared = &schema.collections[collection];
    let assigned = ["id", "object"].into_iter().chain(declared.timestamps().iter().copied());
    json!({
        "type": "object",
        "description": format!(
            "A {} after the change, or the last state of a deleted one. References are ids. A \
             field that was declared after the event is missing.",
            declared.object
        ),
        "properties": responses::members(schema, collection),
        "required": assigned.collect::<Vec<_>>(),
    })
}

fn previous(schema: &Schema, collection: CollectionIx) -> Value {
    let members = responses::members(schema, collection).into_iter();
    let object = &schema.collections[collection].object;
    json!({
        "type": "object",
        "description": format!("Old values of the fields of the {object} that changed."),
        "properties": members.filter(|(name, _)| name != "updated_at").collect::<Map<_, _>>(),
    })
}

fn record_reference() -> Value {
    json!({
        "type": "object",
        "description": "A record without its fields: the endpoint has `payload` `thin`, or the \
                        record was erased.",
        "properties": {
            "id": { "type": ["string", "integer"] },
            "object": { "type": "string" },
            "erased": { "type": "boolean", "const": true },
        },
        "required": ["id", "object"],
        "additionalProperties": false,
    })
}

fn actor() -> Value {
    json!({
        "type": "object",
        "description": "The key, and the user of a channel token, that caused the event. Missing \
                        if the service itself caused it.",
        "properties": {
            "key": { "type": ["string", "null"] },
            "user": { "type": ["string", "null"] },
        },
        "required": ["key", "user"],
    })
}

fn cause() -> Value {
    json!({
        "type": "object",
        "description": "The request that caused the event; null for timers and tasks of the \
                        service.",
        "properties": {
            "id": { "type": ["string", "null"] },
            "idempotency_key": { "type": ["string", "null"] },
        },
        "required": ["id", "idempotency_key"],
    })
}
