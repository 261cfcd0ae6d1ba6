//! The messages that the service sends: events, records of feeds, what is not in the log, and what
//! the channels report about themselves.

use super::{Contract, Listed, position};
use crate::openapi::events;
use crate::openapi::reference;
use model::schema::CollectionIx;
use model::webhook::catalogue::{self, About, EventKind};
use serde_json::{Map, Value, json};

/// The content of a message on both channels.
struct Sent {
    name: String,
    summary: String,
    /// The data of a block; the member `data` of a WebSocket message.
    data: Value,
    has_position: bool,
}

impl Contract<'_> {
    /// The blocks of the event stream.
    pub(super) fn stream_messages(&self) -> Listed {
        let closing = Sent {
            name: "stream.closing".to_owned(),
            summary: "The stream ends.".to_owned(),
            data: object(
                &[("reason", json!({ "enum": ["token_expired", "key_revoked", "slow_resume"] }))],
                &["reason"],
            ),
            has_position: false,
        };
        let block = |sent: Sent| {
            let mut headers = Map::new();
            headers.insert("event".to_owned(), json!({ "type": "string", "const": sent.name }));
            if sent.has_position {
                headers.insert("id".to_owned(), position());
            }
            let required: Vec<String> = headers.keys().cloned().collect();
            let message = json!({
                "name": sent.name,
                "title": sent.name,
                "summary": sent.summary,
                "headers": {
                    "type": "object",
                    "description": "The other fields of the block.",
                    "properties": headers,
                    "required": required,
                },
                "payload": sent.data,
            });
            (sent.name, message)
        };
        let ephemeral = [
            ("typing", "A user is typing.", object(&typing(), &["user", "data"])),
            ("online", "A user comes or goes.", object(&online(), &["user", "online"])),
        ];
        let ephemeral = ephemeral.map(|(name, summary, data)| Sent {
            name: name.to_owned(),
            summary: summary.to_owned(),
            data,
            has_position: false,
        });
        let all = self.logged().into_iter().chain(ephemeral).chain(resets()).chain([closing]);
        all.map(block).collect()
    }

    /// The messages of a WebSocket.
    pub(super) fn socket_messages(&self) -> Listed {
        let framed = |sent: Sent| {
            let mut members = vec![];
            if sent.has_position {
                members.push(("position", position()));
            }
            members.push(("data", sent.data));
            let required: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
            frame(&sent.name, &sent.summary, &members, &required)
        };
        let framed = self.logged().into_iter().chain(resets()).map(framed);
        framed.chain(replies()).collect()
    }

    /// The events of the log: the new records of feeds under their live name, all others under
    /// their type.
    fn logged(&self) -> Vec<Sent> {
        let live = self.kinds.iter().filter(|kind| catalogue::is_live(kind));
        let mut all: Vec<Sent> = live.map(|kind| self.event(kind)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn event(&self, kind: &EventKind<'_>) -> Sent {
        if let About::Record(collection) = kind.about {
            let declared = &self.schema.collections[collection];
            if let Some(feed) =
                declared.feed.as_ref().filter(|_| declared.events.created == kind.name)
            {
                return Sent {
                    name: feed.live_name.clone(),
                    summary: format!("A new record of `{}`.", declared.name),
                    data: events::shown(self.names, collection),
                    has_position: true,
                };
            }
        }
        Sent {
            name: kind.name.to_owned(),
            summary: events::about(self.schema, kind),
            data: reference("schemas", self.names.event(kind.name)),
            has_position: true,
        }
    }

    /// The response to a poll.
    pub(super) fn poll_message(&self, feed: CollectionIx) -> Value {
        let name = &self.schema.collections[feed].name;
        json!({
            "name": name,
            "title": name,
            "summary": "The records after `since`, in the order of their ids.",
            "headers": {
                "type": "object",
                "properties": {
                    "X-Stream-Position": position(),
                    "X-Stream-Gap": {
                        "type": "string",
                        "enum": ["true"],
                        "description": "The poll could not continue from `since`: read the list \
                                        again.",
                    },
                },
                "required": ["X-Stream-Position"],
            },
            "payload": {
                "type": "array",
                "items": reference("schemas", self.names.record(feed)),
            },
        })
    }
}

/// What a client receives that missed something.
fn resets() -> [Sent; 2] {
    let text = || json!({ "type": "string" });
    let paths = |about: &str| json!({ "type": "array", "items": text(), "description": about });
    let stream = [
        ("reason", json!({ "enum": ["expired", "other_epoch", "ahead_of_log"] })),
        ("requested", json!({ "anyOf": [position(), { "type": "null" }] })),
        ("resumed_at", position()),
        ("refetch", paths("Paths of the lists to read again.")),
    ];
    let missed = json!({
        "type": "array",
        "items": { "type": "string", "enum": live::EPHEMERAL },
        "description": "The types of which messages were missed.",
    });
    let presence = [("missed", missed), ("refetch", paths("Paths to read instead."))];
    [
        Sent {
            name: "stream.reset".to_owned(),
            summary: "The stream cannot continue from the requested position and begins here."
                .to_owned(),
            data: object(&stream, &["reason", "requested", "resumed_at", "refetch"]),
            has_position: true,
        },
        Sent {
            name: "presence.reset".to_owned(),
            summary: "Some `typing` or `online` messages were missed.".to_owned(),
            data: object(&presence, &["missed", "refetch"]),
            has_position: false,
        },
    ]
}

fn typing() -> Vec<(&'static str, Value)> {
    let resource = json!({ "type": "string", "description": "Id of the record that it is about." });
    vec![
        ("user", json!({ "type": ["string", "null"] })),
        ("resource", resource),
        ("data", json!({ "description": "What the sender sent." })),
    ]
}

fn online() -> Vec<(&'static str, Value)> {
    vec![("user", json!({ "type": "string" })), ("online", json!({ "type": "boolean" }))]
}

/// The messages of a WebSocket that are not made from `Sent`.
fn replies() -> Listed {
    let echoed = || {
        let about = "The `ref` of the message that this replies to.";
        ("ref", json!({ "type": ["string", "null"], "description": about }))
    };
    let mut failed = frame("error", "A message was refused.", &[echoed()], &["ref"]);
    failed.1["payload"]["allOf"] = json!([reference("schemas", "Error")]);
    let acknowledged = [
        echoed(),
        ("id", json!({ "type": "integer", "description": "Id of the record that was created." })),
        (
            "replayed",
            json!({ "type": "boolean", "const": true,
            "description": "An earlier message with this `ref` created the record." }),
        ),
        ("position", position()),
    ];
    vec![
        frame("welcome", "The first message.", &[("position", position())], &["position"]),
        frame("typing", "A user is typing.", &typing(), &["user", "data"]),
        frame("online", "A user comes or goes.", &online(), &["user", "online"]),
        frame("ack", "A message was accepted.", &acknowledged, &["ref"]),
        failed,
        frame("pong", "The answer to `ping`.", &[], &[]),
    ]
}

/// A message of a WebSocket: an object with a `type` and these members.
pub fn frame(
    name: &str,
    summary: &str,
    members: &[(&str, Value)],
    required: &[&str],
) -> (String, Value) {
    let kind = ("type", json!({ "type": "string", "const": name }));
    let members: Vec<(&str, Value)> =
        std::iter::once(kind).chain(members.iter().cloned()).collect();
    let required: Vec<&str> = std::iter::once("type").chain(required.iter().copied()).collect();
    let message = json!({
        "name": name,
        "title": name,
        "summary": summary,
        "payload": object(&members, &required),
    });
    (name.to_owned(), message)
}

pub fn object(members: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}
