//! Errors: their bodies, one response per status, and which operation can return which code. All of
//! it follows from the catalogue in `model::problem` and the mapping in `crate::error`. A new code
//! does not compile until `occurs` has it.

use super::{headers, reference};
use crate::error;
use http::StatusCode;
use model::problem::Code;
use model::schema::{Action, ErrorShape, Native, Schema};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Properties of an operation that decide which errors it can return.
#[derive(Clone, Copy, Default)]
pub struct Facets<'a> {
    /// Works on resources: needs a key, has a version and a fixed set of query parameters.
    pub resource: bool,
    /// Its path contains ids.
    pub addressed: bool,
    pub list: bool,
    pub body: bool,
    pub write: bool,
    /// Accepts If-Match; whether it is required.
    pub if_match: Option<bool>,
    /// Accepts an Idempotency-Key; whether it is required.
    pub idempotency: Option<bool>,
    /// Deletes a record that other records may be below or refer to.
    pub takes_others: bool,
    /// Deletes a record whose referrers may prevent the deletion.
    pub restricted: bool,
    /// Creates a record of a collection with a limited number of records.
    pub counted: bool,
    /// Opens a connection that stays open; whether it is a WebSocket.
    pub channel: Option<bool>,
    pub action: Option<&'a Action>,
    /// Names a version in its query.
    pub chosen: bool,
}

/// Whether an operation can return a code.
fn occurs(code: Code, facets: &Facets<'_>) -> bool {
    use Code::*;
    match code {
        MalformedRequest | UrlTooLong | HeadersTooLarge | RequestTimeout | MethodNotAllowed
        | Overloaded | Internal => true,
        // A body with an unknown transfer coding. An unknown method is not an operation.
        NotImplemented => facets.write,
        // A request line with another HTTP version belongs to no operation.
        HttpVersionNotSupported => false,
        MalformedJson | DuplicateKey | TooDeep | BodyNotObject | UnsupportedMediaType => {
            facets.body
        }
        // Every write has its body read, even a DELETE.
        BodyIncomplete | BodyTooLarge | StorageFull | OutcomeUnknown => facets.write,
        UnknownVersion | InvalidParameter => facets.resource || facets.chosen,
        UnknownParameter
        | InvalidHeader
        | NotAcceptable
        | AuthenticationRequired
        | InvalidApiKey
        | PermissionDenied
        | RateLimited
        | StorageFailed => facets.resource,
        CursorInvalid | CursorExpired | QueryTimeout => facets.list,
        RouteNotFound | NotFound => facets.addressed,
        ValidationFailed => facets.body,
        PreconditionFailed => facets.if_match.is_some(),
        PreconditionRequired => facets.if_match == Some(true),
        InvalidState => facets
            .action
            .is_some_and(|action| !action.from.is_empty() || action.native == Some(Native::Retry)),
        GuardFailed | RuleFailed => facets.action.is_some(),
        ActionHandlerFailed | HandlerInvalid | ActionInProgress => {
            facets.action.is_some_and(|action| action.handler.is_some())
        }
        TooManyChildren => facets.takes_others,
        StillReferenced => facets.restricted,
        TooManyRecords => facets.counted,
        TooManyConnections => facets.channel.is_some(),
        UpgradeRequired => facets.channel == Some(true),
        IdempotencyKeyReused | IdempotencyKeyInUse => facets.idempotency.is_some(),
        IdempotencyKeyRequired => facets.idempotency == Some(true),
        // These appear inside a `validation_failed`, never alone.
        Required | UnknownField | WrongType | TooShort | TooLong | TooSmall | TooLarge
        | PatternMismatch | NotInEnum | NotUnique | BadReference | ReadOnly | InvalidCharacters
        | InvalidFormat | Unsuitable => false,
    }
}

/// The statuses of a code. A handler that times out has another status than one that fails.
fn statuses(code: Code) -> Vec<StatusCode> {
    match code {
        Code::ActionHandlerFailed => vec![error::classify(code).0, StatusCode::GATEWAY_TIMEOUT],
        _ => vec![error::classify(code).0],
    }
}

/// The error responses of an operation, by status.
pub fn responses(facets: &Facets<'_>) -> Map<String, Value> {
    let mut by_status: BTreeMap<StatusCode, BTreeSet<&str>> = BTreeMap::new();
    for code in Code::ALL.iter().filter(|code| occurs(**code, facets)) {
        for status in statuses(*code) {
            by_status.entry(status).or_default().insert(code.name());
        }
    }
    for (status, code) in facets.action.into_iter().flat_map(declared) {
        by_status.entry(status).or_default().insert(code);
    }
    let mut all: Map<String, Value> = by_status
        .into_iter()
        .map(|(status, codes)| {
            let mut response = reference("responses", &component(status));
            let codes: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
            let reason = status.canonical_reason().unwrap_or("Refused");
            response["description"] = format!("{reason}: {}.", codes.join(", ")).into();
            (status.as_str().to_owned(), response)
        })
        .collect();
    if facets.action.is_some_and(|action| action.handler.is_some()) {
        all.insert("4XX".into(), reference("responses", REFUSED_BY_HANDLER));
    }
    all
}

const REFUSED_BY_HANDLER: &str = "RefusedByHandler";

/// Error codes that the rules of an action declare.
fn declared(action: &Action) -> impl Iterator<Item = (StatusCode, &str)> {
    action.rules.iter().filter_map(|rule| {
        let status = StatusCode::from_u16(rule.status).ok()?;
        Some((status, rule.code.as_str()))
    })
}

/// `Not Found` becomes `NotFound`, a status without a name `Status499`.
fn component(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => reason.chars().filter(char::is_ascii_alphanumeric).collect(),
        None => format!("Status{}", status.as_u16()),
    }
}

/// One response for each status that any operation can return.
pub fn components(schema: &Schema) -> Map<String, Value> {
    let mut by_status: BTreeMap<StatusCode, Vec<String>> = BTreeMap::new();
    for code in Code::ALL {
        for status in statuses(*code) {
            let line = format!("- `{}`: {}", code.name(), code.explanation());
            by_status.entry(status).or_default().push(line);
        }
    }
    for rule in actions(schema).flat_map(|action| &action.rules) {
        if let Ok(status) = StatusCode::from_u16(rule.status) {
            let line = format!("- `{}`: {}", rule.code, rule.message);
            let lines = by_status.entry(status).or_default();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let mut all: Map<String, Value> = by_status
        .into_iter()
        .map(|(status, lines)| {
            let more: &[&str] = match status {
                StatusCode::UNAUTHORIZED => &["WWW-Authenticate"],
                StatusCode::METHOD_NOT_ALLOWED => &["Allow"],
                StatusCode::CONFLICT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE => &["Retry-After"],
                _ => &[],
            };
            (component(status), response(schema, &lines.join("\n"), more))
        })
        .collect();
    let refused =
        "Refused by the operator's action handler, with a status and code that it defines.";
    all.insert(REFUSED_BY_HANDLER.into(), response(schema, refused, &["Retry-After"]));
    all
}

fn response(schema: &Schema, description: &str, more: &[&str]) -> Value {
    json!({
        "description": description,
        "headers": headers::with(&[&["Restive-Error-Code"], more].concat()),
        "content": {
            "application/json": { "schema": reference("schemas", shape(schema)) },
            "application/problem+json": { "schema": reference("schemas", "ProblemDetails") },
        },
    })
}

/// The component of an error body in `application/json`.
pub fn shape(schema: &Schema) -> &'static str {
    match schema.service.errors {
        ErrorShape::Structured => "Error",
        ErrorShape::Flat => "FlatError",
    }
}

fn actions(schema: &Schema) -> impl Iterator<Item = &Action> {
    schema.routed().flat_map(|(_, collection)| &collection.actions)
}

pub fn schemas(schema: &Schema) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("Error".into(), structured(schema));
    all.insert("FlatError".into(), flat(schema));
    all.insert("ProblemDetails".into(), problem_details(schema));
    all.insert("Violation".into(), violation());
    all
}

/// A closed list of words, unless handlers may add their own.
fn words(schema: &Schema, words: BTreeSet<&str>, about: &str) -> Value {
    let closed = actions(schema).all(|action| action.handler.is_none());
    match closed {
        true => json!({ "type": "string", "description": about, "enum": words }),
        false => json!({
            "type": "string",
            "description": about,
            "anyOf": [{ "enum": words }, { "description": "Defined by an action handler." }],
        }),
    }
}

fn code(schema: &Schema) -> Value {
    let rules = actions(schema).flat_map(|action| &action.rules);
    let codes = Code::ALL.iter().map(|code| code.name()).chain(rules.map(|rule| &*rule.code));
    words(schema, codes.collect(), "Machine-readable; stable.")
}

fn kind(schema: &Schema) -> Value {
    let rules = actions(schema).flat_map(|action| &action.rules);
    let kinds = Code::ALL.iter().map(|code| error::classify(*code).1);
    words(schema, kinds.chain(rules.map(|rule| &*rule.kind)).collect(), "Family of the code.")
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn violations() -> Value {
    json!({
        "type": "array",
        "items": reference("schemas", "Violation"),
        "description": "All errors, by field.",
    })
}

fn structured(schema: &Schema) -> Value {
    json!({
        "type": "object",
        "description": "A failed request.",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "type": kind(schema),
                    "code": code(schema),
                    "message": text("A text for people."),
                    "param": {
                        "type": ["string", "null"],
                        "description": "The first invalid field or parameter.",
                    },
                    "value": { "description": "The invalid value, shortened." },
                    "doc_url": link(),
                    "request_id": text("Value of the Request-Id header."),
                    "errors": violations(),
                },
                "required":
                    ["type", "code", "message", "param", "doc_url", "request_id", "errors"],
            },
        },
        "required": ["error"],
    })
}

fn flat(schema: &Schema) -> Value {
    json!({
        "type": "object",
        "description": "A failed request.",
        "properties": {
            "message": text("A text for people."),
            "code": code(schema),
            "documentation_url": link(),
            "request_id": text("Value of the Request-Id header."),
            "errors": {
                "type": "array",
                "description": "All errors, by field.",
                "items": {
                    "type": "object",
                    "properties": {
                        "field": text("Dotted path of the field, or name of the parameter."),
                        "code": violation_code(),
                        "message": text("A text for people."),
                    },
                    "required": ["field", "code", "message"],
                },
            },
        },
        "required": ["message", "code", "documentation_url", "request_id", "errors"],
    })
}

fn problem_details(schema: &Schema) -> Value {
    json!({
        "type": "object",
        "description": "A failed request in the format of RFC 9457. Sent if Accept asks for it.",
        "properties": {
            "type": link(),
            "title": text("What the code means."),
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": text("What went wrong this time."),
            "instance": { "type": "string", "description": "This occurrence, as a URN." },
            "code": code(schema),
            "param": text("The first invalid field or parameter."),
            "request_id": text("Value of the Request-Id header."),
            "errors": violations(),
        },
        "required":
            ["type", "title", "status", "detail", "instance", "code", "request_id", "errors"],
    })
}

fn violation() -> Value {
    json!({
        "type": "object",
        "description": "One error of one field or parameter.",
        "properties": {
            "field": text("Dotted path of the field, or name of the parameter."),
            "pointer": text("The same as a JSON pointer (RFC 6901)."),
            "code": violation_code(),
            "message": text("A text for people."),
            "value": { "description": "The invalid value, shortened." },
        },
        "required": ["field", "pointer", "code", "message"],
    })
}

fn violation_code() -> Value {
    let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    json!({ "type": "string", "enum": codes })
}

fn link() -> Value {
    json!({
        "type": "string",
        "format": "uri-reference",
        "description": "Where the code is explained.",
    })
}

/// The catalogue as Markdown: `docs/errors.md` is this text.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Error codes\n\n\
         The response to a failed request has a status, a type and a code. Codes are stable: \
         programs may\nrely on them, messages are for people. Codes about one field are in \
         `errors`, inside a\n`validation_failed`. Actions can declare their own codes in the \
         schema; the OpenAPI document of a\nservice lists them too.\n\n\
         | Status | Type | Code | What it means and what to do |\n|---|---|---|---|\n",
    );
    for code in Code::ALL {
        let statuses: Vec<String> =
            statuses(*code).iter().map(|status| status.as_u16().to_string()).collect();
        let (name, (_, kind)) = (code.name(), error::classify(*code));
        let explanation = code.explanation().replace('|', "\\|");
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | `{kind}` | <a id=\"{name}\"></a>`{name}` | {explanation} |",
            statuses.join(", "),
        );
    }
    text
}
