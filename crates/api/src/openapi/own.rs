//! Rules for the bodies of built-in collections beyond their fields, as far as JSON Schema can
//! express them, and the response of a ping, which is not a record of its collection.

use super::names::{Names, PING_OUTCOME};
use super::{reference, requests};
use model::schema::{Builtin, CollectionIx, Kind, Schema};
use model::webhook::{endpoint, pattern};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub fn shared(schema: &Schema, names: &Names) -> Map<String, Value> {
    let shown = |builtin| reference("schemas", names.record(schema.own(builtin)));
    let mut attempt = shown(Builtin::Attempt);
    attempt["description"] = "The newest attempt, if there is one.".into();
    let outcome = json!({
        "description": "The delivery of a ping with its attempt. If there is no result in time, \
                        only its event, endpoint and the status `pending`.",
        "allOf": [shown(Builtin::Delivery)],
        "type": "object",
        "properties": { "attempt": attempt },
        "required": ["object", "event", "endpoint", "status"],
    });
    Map::from_iter([(PING_OUTCOME.to_owned(), outcome)])
}

/// Restricts the schema of a body to what the service accepts.
pub fn refine(schema: &Schema, index: CollectionIx, body: &mut Value) {
    let Some(builtin) = schema.collections[index].builtin else { return };
    let properties = &mut body["properties"];
    match builtin {
        Builtin::Event => {
            let kinds: Vec<&str> =
                schema.events.published.iter().map(|kind| kind.name.as_str()).collect();
            if !kinds.is_empty() {
                properties["type"] = json!({ "type": "string", "enum": kinds });
            }
            let member = |about: &str| {
                let mut member = requests::item(&Kind::Object);
                member["description"] = about.into();
                member
            };
            properties["data"] = json!({
                "type": "object",
                "properties": {
                    "object": member("The record at the time of the event."),
                    "previous_attributes": member("For updates: old values of the changed fields."),
                },
                "required": ["object"],
                "additionalProperties": false,
            });
        }
        Builtin::Endpoint => {
            let patterns = patterns(schema);
            properties["enabled_events"]["items"]["enum"] = json!(patterns);
            let dates = schema.versions.iter().map(|version| Some(version.date.as_str()));
            let known: Vec<Option<&str>> = dates.chain([None]).collect();
            properties["api_version"] = json!({ "enum": known });
            properties["retry_schedule"]["items"]["minimum"] = 1.into();
            properties["retry_schedule"]["items"]["maximum"] = endpoint::MAX_RETRY_SECONDS.into();
        }
        Builtin::Replay => {
            properties["types"]["items"]["enum"] = json!(patterns(schema));
        }
        _ => {}
    }
}

/// Every pattern that matches a type.
pub fn patterns(schema: &Schema) -> BTreeSet<String> {
    let kinds = pattern::catalogue(schema);
    let mut all: BTreeSet<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    for kind in kinds {
        let dots = kind.match_indices('.');
        all.extend(dots.map(|(place, _)| format!("{}*", &kind[..=place])));
    }
    all.insert("*".to_owned());
    all
}
