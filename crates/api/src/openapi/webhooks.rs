//! The webhooks: what the service posts to endpoints, one entry for each type of event, with the
//! headers of a delivery and the effect of each response.

use super::names::Names;
use super::operation::{JSON, Operation};
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

pub fn all(schema: &Schema, names: &Names, kinds: &[EventKind<'_>]) -> Map<String, Value> {
    let entry = |kind: &EventKind<'_>| (kind.name.to_owned(), delivery(schema, names, kind));
    kinds.iter().map(entry).collect()
}

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
    let envelope = names.event(kind.name);
    let operation = Operation {
        id: format!("receive{envelope}"),
        summary: format!("Receive {}", kind.name),
        description: format!(
            "{} Sent to the endpoints that subscribe to `{}`, at least once. Verify the \
             signature over the bytes of the body, respond at once, then do the work.",
            events::about(schema, kind),
            kind.name
        ),
        parameters: SIGNATURES.into_iter().map(parameters::shared).collect(),
        body: Some(json!({
            "required": true,
            "content": { JSON: { "schema": reference("schemas", envelope) } },
        })),
        responses: responses(),
    };
    let about = match kind.about {
        About::Record(collection) => collection,
        About::Published => schema.own(Builtin::Event),
    };
    let mut value = operation.into_value(&schema.collections[about].name);
    // Deliveries are signed and have no API key.
    value["security"] = json!([]);
    json!({ "post": value })
}

/// What each response of the endpoint means.
fn responses() -> Map<String, Value> {
    let control = json!({ "webhook-delivery": reference("headers", "webhook-delivery") });
    let retry = json!({ "Retry-After": reference("headers", "Retry-After") });
    let wait = "Nothing is sent to the endpoint until `Retry-After` has passed.";
    let all = [
        ("200", json!({ "description": "Any 2xx: the delivery succeeded.", "headers": control })),
        ("410", json!({ "description": "The endpoint is disabled." })),
        ("429", json!({ "description": wait, "headers": retry })),
        ("503", json!({ "description": wait, "headers": retry })),
        (
            "default",
            json!({
                "description": "Everything else, also 3xx and no response in time: the event is \
                                sent again after the next delay of `retry_schedule`.",
                "headers": control,
            }),
        ),
    ];
    all.into_iter().map(|(status, response)| (status.to_owned(), response)).collect()
}
