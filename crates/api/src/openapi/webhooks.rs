//! The webhooks: what the service posts to endpoints, one entry for each type of event, with the
//! headers of a delivery and the effect of each response. The types of one collection share them.

use super::names::Names;
use super::operation::{self, JSON, Operation};
use super::{events, parameters, reference};
use model::schema::{Builtin, Schema};
use model::webhook::catalogue::{About, EventKind};
use serde_json::{Map, Value, json};

const SIGNATURES: [&str; 5] = [
    "WebhookIdHeader",
    "WebhookTimestampHeader",
    "WebhookSignatureHeader",
    "RestiveSignatureHeader",
    "HubSignatureHeader",
];

/// One entry for each type of event. The types of one collection share their description.
pub fn all(names: &Names, kinds: &[EventKind<'_>]) -> Map<String, Value> {
    let entry =
        |kind: &EventKind<'_>| (kind.name.to_owned(), reference("pathItems", &item(names, kind)));
    kinds.iter().map(entry).collect()
}

/// The descriptions that `all` refers to.
pub fn path_items(schema: &Schema, names: &Names, kinds: &[EventKind<'_>]) -> Map<String, Value> {
    kinds.iter().map(|kind| (item(names, kind), delivery(schema, names, kind))).collect()
}

/// The schema of the body, which is also the name of the description.
fn item(names: &Names, kind: &EventKind<'_>) -> String {
    match kind.about {
        About::Record(collection) => names.events(collection),
        About::Published => names.event(kind.name).to_owned(),
    }
}

/// The response components of deliveries.
pub fn response_components() -> Map<String, Value> {
    let control = json!({ "webhook-delivery": reference("headers", "webhook-delivery") });
    let mut more = control.clone();
    more["Retry-After"] = reference("headers", "Retry-After");
    let received = "The delivery succeeded.";
    let failed = "Everything else, also 3xx and no response in time: the event is sent again after \
                  the next delay of `retry_schedule`. 410 disables the endpoint. After 429 and \
                  503, nothing is sent to it until `Retry-After` has passed.";
    Map::from_iter([
        (RECEIVED.to_owned(), json!({ "description": received, "headers": control })),
        (NOT_RECEIVED.to_owned(), json!({ "description": failed, "headers": more })),
    ])
}

const RECEIVED: &str = "DeliveryReceived";
const NOT_RECEIVED: &str = "DeliveryNotReceived";

pub fn parameter_components() -> Map<String, Value> {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let headers = [
        ("webhook-id", true, "Id of the event: the same in every attempt.", text("^evt_")),
        (
            "webhook-timestamp",
            true,
            "Time of the attempt, Unix seconds. Refuse one that is more than five minutes off.",
            text("^[0-9]+$"),
        ),
        (
            "webhook-signature",
            true,
            "Standard Webhooks: `v1,<base64>` for each active secret, separated by spaces. Signs \
             `<id>.<timestamp>.<body>` with HMAC-SHA256.",
            text("^v1,[A-Za-z0-9+/=]+(?: v1,[A-Za-z0-9+/=]+)*$"),
        ),
        (
            "Restive-Signature",
            false,
            "`t=<timestamp>,v1=<hex>`, one `v1` for each active secret. Signs `<timestamp>.<body>` \
             with HMAC-SHA256. Only if the endpoint's `signature` is `timestamped`.",
            text("^t=[0-9]+(?:,v1=[0-9a-f]{64})+$"),
        ),
        (
            "X-Hub-Signature-256",
            false,
            "`sha256=<hex>`: HMAC-SHA256 of the body alone. Only if the endpoint's `signature` is \
             `plain`.",
            text("^sha256=[0-9a-f]{64}$"),
        ),
    ];
    let components = SIGNATURES.into_iter().zip(headers);
    let entry =
        |(component, (name, required, about, schema)): (&str, (&str, bool, &str, Value))| {
            (component.to_owned(), parameters::header(name, required, about, schema))
        };
    components.map(entry).collect()
}

fn delivery(schema: &Schema, names: &Names, kind: &EventKind<'_>) -> Value {
    let body = item(names, kind);
    let (about, what, tag) = match kind.about {
        About::Record(collection) => {
            let declared = &schema.collections[collection];
            (format!("An event about a {}.", declared.object), &*declared.object, collection)
        }
        About::Published => (events::about(schema, kind), kind.name, schema.own(Builtin::Event)),
    };
    let responses = [("2XX", RECEIVED), ("default", NOT_RECEIVED)];
    let responses = responses.map(|(status, name)| (status.into(), reference("responses", name)));
    let operation = Operation {
        id: format!("receive{body}"),
        summary: format!("Receive an event: {what}"),
        description: format!(
            "{about} Sent to the endpoints that subscribe to its type, at least once. Verify the \
             signature over the bytes of the body, respond at once, then do the work."
        ),
        parameters: SIGNATURES.into_iter().map(parameters::shared).collect(),
        body: Some(operation::body("The event.", &[JSON], &body, true)),
        responses: Map::from_iter(responses),
    };
    let mut value = operation.into_value(&schema.collections[tag].name);
    // Deliveries are signed and have no API key.
    value["security"] = json!([]);
    json!({ "post": value })
}
