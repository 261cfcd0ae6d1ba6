//! Rules for the bodies of built-in collections beyond their fields, as far as JSON Schema can
//! express them, and the patterns of event types that they name.

use super::names::EVENT_PATTERN;
use super::{reference, requests};
use model::schema::{Builtin, CollectionIx, Kind, Schema};
use model::webhook::{endpoint, pattern};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub fn shared(schema: &Schema) -> Map<String, Value> {
    let pattern = json!({
        "type": "string",
        "description": "A type of event; or a pattern: `order.*`, `*`.",
        "enum": patterns(schema),
    });
    Map::from_iter([(EVENT_PATTERN.to_owned(), pattern)])
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
            properties["enabled_events"]["items"] = reference("schemas", EVENT_PATTERN);
            let dates = schema.versions.iter().map(|version| Some(version.date.as_str()));
            let known: Vec<Option<&str>> = dates.chain([None]).collect();
            properties["api_version"] = json!({ "enum": known });
            properties["retry_schedule"]["items"]["minimum"] = 1.into();
            properties["retry_schedule"]["items"]["maximum"] = endpoint::MAX_RETRY_SECONDS.into();
        }
        Builtin::Replay => {
            properties["types"]["items"] = reference("schemas", EVENT_PATTERN);
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
