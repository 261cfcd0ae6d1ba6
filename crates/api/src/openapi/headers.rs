//! Response headers, each described once.

use super::names::POSITION;
use super::reference;
use model::schema::Schema;
use serde_json::{Map, Value, json};

/// Headers of every answer to an authenticated call.
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

/// The headers of an answer: those that are always there and these.
pub fn with(more: &[&str]) -> Value {
    let names = ALWAYS.iter().chain(more);
    names.map(|name| ((*name).to_owned(), reference("headers", name))).collect()
}

/// The headers of an answer that needed no key.
pub fn public() -> Value {
    let names = ["Request-Id", "Restive-Version", "Cache-Control", "Deprecation", "Sunset", "Link"];
    names.into_iter().map(|name| (name.to_owned(), reference("headers", name))).collect()
}

pub fn components(schema: &Schema) -> Map<String, Value> {
    let dates: Vec<&str> = schema.versions.iter().map(|version| version.date.as_str()).collect();
    let text = || json!({ "type": "string" });
    let whole = || json!({ "type": "integer", "minimum": 0 });
    let pattern = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let table = [
        ("Request-Id", "Names this request in the logs of the service.", text()),
        ("Restive-Version", "The API version of the answer.", json!({ "enum": dates })),
        (
            "Deprecation",
            "Since when the version, the collection or a field of the request shall not be used \
             any more (RFC 9745).",
            pattern("^@[0-9]+$"),
        ),
        ("Sunset", "Until when it is served, as an HTTP date (RFC 8594).", text()),
        ("X-RateLimit-Limit", "Requests allowed in the window.", whole()),
        ("X-RateLimit-Remaining", "Requests left in the window.", whole()),
        ("X-RateLimit-Reset", "Unix time at which the window ends.", whole()),
        ("RateLimit", "What is left of the quota, as a structured field.", text()),
        ("RateLimit-Policy", "The quota, as a structured field.", text()),
        ("ETag", "Version of what is shown, for If-None-Match and If-Match.", pattern(ENTITY_TAG)),
        ("Last-Modified", "When the record last changed, as an HTTP date.", text()),
        ("Cache-Control", "Who may keep the answer, and how long.", text()),
        (
            "Link",
            "The next page of a list, with `rel=\"next\"`, when there is one; with \
             `rel=\"deprecation\"`, where it is explained what shall not be used any more.",
            text(),
        ),
        ("Content-Location", "Path of the record that the body shows.", text()),
        ("Restive-Error-Code", "The code of the error, for those who read no body.", text()),
        ("Retry-After", "Seconds to wait before trying again.", whole()),
        (
            "X-Stream-Gap",
            "`true` when `since` could not be gone on from: it is ahead of the log, or of another \
             log. What came in between was missed; read the list anew.",
            json!({ "type": "string", "enum": ["true"] }),
        ),
        (
            "Restive-Search-Behind",
            "How many of the newest events the search index lacks. Only while it cannot be \
             written, such as on a full disk.",
            json!({ "type": "integer", "minimum": 1 }),
        ),
        (
            "Idempotent-Replayed",
            "`true` when the answer is that of an earlier request with the same Idempotency-Key.",
            json!({ "type": "string", "enum": ["true"] }),
        ),
    ];
    let demanded = [
        (
            "X-Stream-Position",
            "Where the log stood: a live channel that goes on from here misses nothing that the \
             answer does not show.",
            reference("schemas", POSITION),
        ),
        ("Location", "Path of the new record.", text()),
        ("WWW-Authenticate", "How to authenticate.", text()),
        ("Allow", "The methods that this path takes.", text()),
    ];
    let entry = |(name, description, schema): (&str, &str, Value), required: bool| {
        let mut header = json!({ "description": description, "schema": schema });
        if required {
            header["required"] = Value::Bool(true);
        }
        (name.to_owned(), header)
    };
    let optional = table.into_iter().map(|row| entry(row, false));
    optional.chain(demanded.into_iter().map(|row| entry(row, true))).collect()
}
