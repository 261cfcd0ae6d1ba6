//! What the bodies of the service's own collections hold beyond the form of their fields, as far as
//! a schema can say it, and the one answer that shows no record of its collection.

use super::names::{Names, PING_OUTCOME};
use super::{reference, requests};
use model::schema::{Builtin, CollectionIx, Kind, Schema};
use model::webhook::{endpoint, pattern};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub fn shared(schema: &Schema, names: &Names) -> Map<String, Value> {
    let shown = |builtin| reference("schemas", names.record(schema.own(builtin)));
    let mut attempt = shown(Builtin::Attempt);
    attempt["description"] = "The newest attempt, once one was made.".into();
    let outcome = json!({
        "description": "The delivery of a ping with its attempt. Where nothing is known in time, \
                        its event, endpoint and `pending` stand alone.",
        "allOf": [shown(Builtin::Delivery)],
        "type": "object",
        "properties": { "attempt": attempt },
        "required": ["object", "event", "endpoint", "status"],
    });
    Map::from_iter([(PING_OUTCOME.to_owned(), outcome)])
}

/// Makes the schema of a body as narrow as the service is.
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
                    "object": member("The resource at the event."),
                    "previous_attributes": member("For updates: the old values of what changed."),
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

/// Every pattern that means a type.
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
