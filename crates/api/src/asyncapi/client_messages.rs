//! The messages that clients send over a WebSocket.

use super::server_messages::{frame, object};
use super::{Contract, Listed, position};
use crate::openapi::names::LIVE_TYPE;
use crate::openapi::reference;
use serde_json::{Value, json};

/// What a message asks for, and the messages that reply to it.
pub fn explain(name: &str) -> (&'static str, &'static [&'static str]) {
    match name {
        "typing" => ("Is sent on to other connections.", &["error"]),
        "subscribe" => ("Adds a subscription; the first replaces that of the query.", ANSWERS),
        "unsubscribe" => ("Ends a subscription, or all without members.", ANSWERS),
        "ping" => ("Asks for a `pong`.", &["pong"]),
        _ => ("Creates a record of the feed with this live name.", ANSWERS),
    }
}

const ANSWERS: &[&str] = &["ack", "error"];

impl Contract<'_> {
    pub(super) fn client_messages(&self) -> Listed {
        let reference_of = |about: &str| {
            let schema = json!({
                "type": ["string", "null"], "minLength": 1, "maxLength": 128, "description": about,
            });
            ("ref", schema)
        };
        let echoed = || reference_of("Repeated in the reply.");
        let subscription = || {
            let id = |about: &str| json!({ "type": ["string", "null"], "description": about });
            let types = json!({
                "description": "Types, patterns and live names, in a list or separated by commas.",
                "anyOf": [
                    { "type": "null" },
                    { "type": "string" },
                    { "type": "array", "items": reference("schemas", LIVE_TYPE) },
                ],
            });
            let since = json!({
                "description": "Start after this position.",
                "anyOf": [{ "type": "null" }, { "type": "integer" }, position()],
            });
            vec![
                echoed(),
                ("types", types),
                ("resource", id("Only events of the record with this id.")),
                ("parent", id("Only events of the children of this record.")),
                ("since", since),
            ]
        };
        let typing = [
            echoed(),
            ("resource", json!({ "type": ["string", "null"] })),
            ("data", json!({ "description": "Sent on; at most 1 KiB." })),
        ];
        let fixed = [
            ("typing", &typing[..]),
            ("subscribe", &subscription()[..]),
            ("unsubscribe", &subscription()[..]),
            ("ping", &[echoed()][..]),
        ];
        let fixed = fixed.map(|(name, members)| frame(name, explain(name).0, members, &[]));
        let feeds = self.schema.routed().filter(|(_, c)| c.operations.create);
        let feeds = feeds.filter_map(|(feed, declared)| {
            let name = &declared.feed.as_ref()?.live_name;
            let repeated = "A message with a `ref` that was used before creates no second record.";
            let mut required = vec![];
            if declared.require_idempotency_key {
                required.push("ref");
            }
            let members = [reference_of(repeated)];
            let (name, mut message) = frame(name, explain(name).0, &members, &required);
            message["payload"] = posted(message["payload"].take(), &self.names.create(feed));
            Some((name, message))
        });
        feeds.chain(fixed).collect()
    }
}

/// The fields of a new record are in `data`, or next to `type`.
fn posted(envelope: Value, fields: &str) -> Value {
    let data = object(&[("data", reference("schemas", fields))], &["data"]);
    let beside = json!({
        "description": "The fields of the record, next to `type`.",
        "not": { "required": ["data"] },
    });
    json!({ "allOf": [envelope, { "anyOf": [data, beside] }], "type": "object" })
}
