//! Response headers, each described once.

use super::names::POSITION;
use super::reference;
use model::schema::Schema;
use serde_json::{Map, Value, json};

/// Headers of every response to an authenticated request.
const ALWAYS: &[&str] = &[
    "Request-Id",
    "Restive-Version",
    "Cache-Control",
    "Deprecation",
    "Sunset",
    "Link",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit",
    "RateLimit-Policy",
];

/// One or more entity tags, or `*`.
pub const ENTITY_TAGS: &str = r#"^(?:\*|(?:W/)?"[!#-~]*"(?:, ?(?:W/)?"[!#-~]*")*)$"#;
const ENTITY_TAG: &str = r#"^(?:W/)?"[!#-~]*"$"#;

/// These headers of a response. Those of every response are not repeated for each operation: the
/// description of the document and the error responses name them.
pub fn with(names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), reference("headers", name))).collect()
}

/// The headers of every response, and these.
pub fn of_every_response(more: &[&str]) -> Value {
    with(&[ALWAYS, more].concat())
}

// tidy: table
pub fn components(schema: &Schema) -> Map<String, Value> {
    let dates: Vec<&str> = schema.versions.iter().map(|version| version.date.as_str()).collect();
    let text = || json!({ "type": "string" });
    let whole = || json!({ "type": "integer", "minimum": 0 });
    let pattern = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let table = [
        ("Request-Id", "Identifies this request in the logs of the service.", text()),
        ("Restive-Version", "The API version of the response.", json!({ "enum": dates })),
        (
            "Deprecation",
            "The date since which the version, the collection or a field of the request is \
             deprecated (RFC 9745).",
            pattern("^@[0-9]+$"),
        ),
        ("Sunset", "The date until which it is served, as an HTTP date (RFC 8594).", text()),
        ("X-RateLimit-Limit", "Requests allowed in the window.", whole()),
        ("X-RateLimit-Remaining", "Requests left in the window.", whole()),
        ("X-RateLimit-Reset", "Unix time at which the window ends.", whole()),
        ("RateLimit", "The remaining quota, as a structured field.", text()),
        ("RateLimit-Policy", "The quota, as a structured field.", text()),
        ("ETag", "Version of the response, for If-None-Match and If-Match.", pattern(ENTITY_TAG)),
        ("Last-Modified", "Time of the last change of the record, as an HTTP date.", text()),
        ("Cache-Control", "Which caches may store the response, and for how long.", text()),
        (
            "Link",
            "The next page of a list, with `rel=\"next\"`, when there is one; with \
             `rel=\"deprecation\"`, the page that explains a deprecation.",
            text(),
        ),
        ("Content-Location", "Path of the record in the body.", text()),
        ("Restive-Error-Code", "The error code, for clients that do not read the body.", text()),
        ("Retry-After", "Seconds to wait before trying again.", whole()),
        ("WWW-Authenticate", "How to authenticate; with 401.", text()),
        ("Allow", "The methods that this path supports; with 405.", text()),
        (
            "webhook-delivery",
            "Sent by a receiver of webhooks: `disable` disables the endpoint, `abort-message` ends \
             the attempts to deliver this event.",
            json!({ "type": "string", "enum": ["disable", "abort-message"] }),
        ),
        (
            "X-Stream-Gap",
            "`true` if the poll could not continue from `since`: it is ahead of the log, or from \
             another log. Records in between were missed; read the list again.",
            json!({ "type": "string", "enum": ["true"] }),
        ),
        (
            "Restive-Search-Behind",
            "Number of newest events that the search index lacks. Only while it cannot be \
             written, such as on a full disk.",
            json!({ "type": "integer", "minimum": 1 }),
        ),
        (
            "Idempotent-Replayed",
            "`true` if this is the response to an earlier request with the same Idempotency-Key.",
            json!({ "type": "string", "enum": ["true"] }),
        ),
    ];
    let always_sent = [
        (
            "X-Stream-Position",
            "Position of the log: a live channel from here on delivers everything that the \
             response does not show.",
            reference("schemas", POSITION),
        ),
        ("Location", "Path of the new record.", text()),
    ];
    let entry = |(name, description, schema): (&str, &str, Value), required: bool| {
        let mut header = json!({ "description": description, "schema": schema });
        if required {
            header["required"] = Value::Bool(true);
        }
        (name.to_owned(), header)
    };
    let optional = table.into_iter().map(|row| entry(row, false));
    optional.chain(always_sent.into_iter().map(|row| entry(row, true))).collect()
}
