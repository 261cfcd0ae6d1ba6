//! The fields of events, webhook endpoints, deliveries with their attempts, replays and erasures,
//! with the limits and defaults of endpoints.

use super::{Builtin, own};
use crate::outgoing;
use crate::schema::{Action, Collection, CollectionIx, Field, Kind, Native, Operations, States};
use crate::schema::{Assignment, rule::Template};
use serde_json::{Value, json};

/// Delays after each failure, in seconds (spec 6.1: 1 min, 5 min, 30 min, 2 h, 12 h), until the
/// eighth attempt.
const RETRY_SCHEDULE: [u32; 7] = [60, 300, 1800, 7200, 43_200, 43_200, 43_200];
const READ: Operations = Operations {
    list: true,
    get: true,
    create: false,
    replace: false,
    update: false,
    delete: false,
};

fn text(name: &str) -> Field {
    Field::new(name, Kind::String)
}

fn integer(name: &str) -> Field {
    Field::new(name, Kind::Integer)
}

fn instant(name: &str) -> Field {
    Field::new(name, Kind::Timestamp)
}

fn texts(name: &str) -> Field {
    Field::new(name, Kind::Array(Box::new(Kind::String)))
}

/// The log as a collection. Posting to it publishes an event of the declared catalogue.
pub fn events() -> Collection {
    let mut kind = text("type").required().filtered().sized(1, 100);
    kind.wildcards = true;
    let fields = vec![
        kind.about("Kind of event. Filter by several, or by patterns such as `order.*`."),
        text("api_version").assigned(),
        integer("created").assigned().filtered().about("Unix time in seconds."),
        Field::new("data", Kind::Object).required().about("`object`: the resource at the event."),
        Field::new("livemode", Kind::Boolean).assigned(),
        integer("pending_webhooks").assigned().about("Deliveries that have not succeeded yet."),
        Field::new("request", Kind::Object).assigned(),
        Field::new("actor", Kind::Object)
            .assigned()
            .about("The `key` and the `user` that caused it; missing for the service itself."),
        text("resource").filter_only().sized(1, 200).about("Id of the record the event is about."),
        text("delivery").filter_only().assigned().among(&[
            "pending",
            "succeeded",
            "failed",
            "skipped",
        ]),
    ];
    let mut events = own(Builtin::Event, "events", "event", "evt", fields);
    events.operations = Operations { create: true, ..READ };
    events.description = Some("Everything that happened, oldest kept by `retention`.".to_owned());
    events
}

pub fn endpoints() -> Collection {
    let mut secret = text("secret").sized(1, 100);
    secret.write_only = true;
    let hidden = |field: Field| {
        let mut field = field.assigned();
        field.write_only = true;
        field
    };
    let whole = Kind::Array(Box::new(Kind::Integer));
    let fields = vec![
        text("url").required().sized(1, 2048).about("Where events are posted; https."),
        texts("enabled_events")
            .default(json!(["*"]))
            .required()
            .sized(1, 100)
            .about("Event types: exact, `order.*`, or `*`."),
        text("description").sized(0, 500),
        text("api_version")
            .sized(10, 10)
            .about("Version of the payloads; default: the account's, or else the newest."),
        text("payload").among(&["fat", "thin"]).default("fat").required(),
        text("filter").sized(1, 2000).about("CEL over `event`; false: not delivered."),
        Field::new("headers", Kind::Object).about("Sent with every delivery."),
        integer("rate_limit").within(1, 10_000).about("Deliveries per second, at most."),
        integer("max_in_flight").within(1, 100).default(20).required(),
        text("signature").among(&["timestamped", "plain"]).default("timestamped").required(),
        Field::new("retry_schedule", whole)
            .default(json!(RETRY_SCHEDULE))
            .required()
            .sized(0, 20)
            .about("Seconds to wait after each failure."),
        integer("timeout").within(5, 30).default(20).required().about("Seconds for one attempt."),
        text("ordering").among(&["none", "resource"]).default("none").required(),
        text("status").among(&["enabled", "disabled"]).default("enabled").required().filtered(),
        text("disabled_reason").assigned(),
        instant("failing_since").assigned().about("No attempt has succeeded since."),
        instant("skipped_until").assigned().about("Events up to this were removed undelivered."),
        secret,
        hidden(Field::new("previous_secrets", Kind::Array(Box::new(Kind::Object)))),
        // Where there was one at most, before there was room for several.
        hidden(text("previous_secret")),
        hidden(instant("previous_secret_expires_at")),
    ];
    let mut endpoints =
        own(Builtin::Endpoint, "webhook-endpoints", "webhook_endpoint", "we", fields);
    // PUT would erase the secret, which nobody can send back.
    endpoints.operations.replace = false;
    endpoints.actions = vec![
        action("enable", "webhook_endpoint.enabled", None, vec![set("status", json!("enabled"))]),
        action(
            "disable",
            "webhook_endpoint.disabled",
            None,
            vec![set("status", json!("disabled"))],
        ),
        action("rotate-secret", "webhook_endpoint.updated", Some(Native::RotateSecret), Vec::new()),
        action("ping", "ping", Some(Native::Ping), Vec::new()),
    ];
    endpoints.actions[0].set.push(set("disabled_reason", Value::Null));
    endpoints.actions[0].set.push(set("failing_since", Value::Null));
    endpoints.actions[3].description = Some("Sends a test event and returns its result.".into());
    endpoints.actions[2].params = vec![
        integer("overlap")
            .within(0, 604_800)
            .default(outgoing::OVERLAP_SECONDS)
            .about("Seconds during which the old secret still signs; 0 ends all older ones, too."),
        text("secret").sized(1, 100).about("The new secret; default: a random one."),
    ];
    endpoints
}

/// The result of one event at one endpoint. Rows are the delivery engine's, not records.
pub fn deliveries() -> Collection {
    let fields = vec![
        text("event").assigned().filtered(),
        text("event_type").assigned().about("Type of the event, while it is in the log."),
        text("endpoint").assigned().filtered(),
        text("status").assigned().filtered().among(STATUSES),
        integer("attempts").assigned().filtered(),
        instant("next_attempt_at").assigned().filtered(),
    ];
    let mut deliveries = own(Builtin::Delivery, "deliveries", "delivery", "dlv", fields);
    deliveries.operations = READ;
    deliveries.actions = vec![action("retry", "", Some(Native::Retry), Vec::new())];
    deliveries
}

/// `status` of a delivery, in the order of its stored numbers.
pub const STATUSES: &[&str] = &["pending", "succeeded", "failed", "skipped"];

pub fn attempts(deliveries: CollectionIx) -> Collection {
    let mut parent = text("delivery").assigned().required();
    parent.reference = Some(deliveries);
    let fields = vec![
        parent,
        integer("number").assigned(),
        text("trigger").assigned().among(&["event", "schedule", "retry", "replay"]),
        integer("status").assigned().about("HTTP status; null without an answer."),
        text("error").assigned().about("Class of the failure."),
        text("error_message").assigned(),
        Field::new("latency", Kind::Object).assigned().about("Milliseconds by stage."),
        text("remote_address").assigned(),
        Field::new("response_headers", Kind::Object).assigned(),
        text("response_body").assigned().about("The first bytes of it."),
        instant("next_attempt_at").assigned(),
        text("next_attempt_reason").assigned(),
    ];
    let mut attempts = own(Builtin::Attempt, "attempts", "attempt", "att", fields);
    attempts.parent = Some(deliveries);
    attempts.operations = Operations { get: false, ..READ };
    attempts
}

pub fn replays(endpoints: CollectionIx) -> Collection {
    let mut endpoint = text("endpoint").required();
    endpoint.reference = Some(endpoints);
    let count = |name: &str| integer(name).assigned();
    let flag = |name: &str| Field::new(name, Kind::Boolean).default(false).required();
    let names = ["pending", "running", "succeeded", "failed", "cancelled"];
    let fields = vec![
        endpoint.about("Who gets the events again, or for the first time."),
        instant("since").about("Events from here on; default: as far back as they are kept."),
        instant("until").about("Events before this; default: when the replay was made."),
        texts("types").sized(1, 100).about("Only these event types or patterns."),
        flag("without_success").about("Only events without a successful delivery there."),
        flag("dry_run").about("Only count them."),
        integer("rate_limit").within(1, 10_000).about("Deliveries per second, at most."),
        text("status").assigned().filtered().among(&names),
        count("total").about("Events to deliver; known once they were counted."),
        count("done"),
        count("succeeded"),
        count("position").about("Place in the log up to which it has come."),
        text("error").assigned(),
    ];
    let mut replays = own(Builtin::Replay, "replays", "replay", "rpl", fields);
    replays.operations = Operations { create: true, ..READ };
    replays.states = Some(States {
        field: "status".into(),
        initial: "pending".into(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    });
    let mut cancel = action("cancel", "replay.cancelled", None, Vec::new());
    cancel.from = vec!["pending".into(), "running".into()];
    cancel.to = Some("cancelled".into());
    replays.actions = vec![cancel];
    replays
}

/// Making one removes the payloads of a resource from the log; ids and outcomes stay.
pub fn erasures() -> Collection {
    let fields = vec![
        text("resource").required().sized(1, 200).filtered().about("Id of the record."),
        integer("events").assigned().about("How many events lost their payload."),
    ];
    let mut erasures = own(Builtin::Erasure, "erasures", "erasure", "ers", fields);
    erasures.operations = Operations { create: true, ..READ };
    erasures
}

fn action(name: &str, event: &str, native: Option<Native>, set: Vec<Assignment>) -> Action {
    Action {
        name: name.into(),
        description: None,
        from: Vec::new(),
        to: None,
        params: Vec::new(),
        rules: Vec::new(),
        set,
        event: event.into(),
        handler: None,
        native,
    }
}

fn set(field: &str, value: Value) -> Assignment {
    Assignment { field: field.into(), value: Template::Fixed(value) }
}
