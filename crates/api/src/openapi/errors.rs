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
    /// Changes a key that may be revoked or damaged.
    pub invalid_state: bool,
    /// Can end the access of the key or the account that asks.
    pub own_access: bool,
    /// Deletes an account, which must be empty.
    pub account_in_use: bool,
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
        InvalidState => {
            let refuses =
                |action: &Action| !action.from.is_empty() || action.native == Some(Native::Retry);
            facets.invalid_state || facets.action.is_some_and(refuses)
        }
        GuardFailed | RuleFailed => facets.action.is_some(),
        ActionHandlerFailed | HandlerInvalid | ActionInProgress => {
            facets.action.is_some_and(|action| action.handler.is_some())
        }
        TooManyChildren => facets.takes_others,
        StillReferenced => facets.restricted,
        TooManyRecords => facets.counted,
        OwnAccess => facets.own_access,
        AccountInUse => facets.account_in_use,
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

/// The statuses that an operation lists by themselves: what the caller did conflicts with the state
/// of the service. Every other status is one of a class, `4XX` or `5XX`: the document stays small.
const LISTED: [StatusCode; 2] = [StatusCode::CONFLICT, StatusCode::PRECONDITION_REQUIRED];

/// Component of the responses with a status from 400 to 499.
const CLIENT_ERROR: &str = "ClientError";
/// Component of the responses with a status from 500 to 599.
const SERVER_ERROR: &str = "ServerError";

/// The error responses of an operation, by status or class of statuses.
pub fn responses(facets: &Facets<'_>) -> Map<String, Value> {
    let mut by_status: BTreeMap<StatusCode, BTreeSet<&str>> = BTreeMap::new();
    for code in Code::ALL.iter().filter(|code| occurs(**code, facets)) {
        for status in statuses(*code).into_iter().filter(|status| LISTED.contains(status)) {
            by_status.entry(status).or_default().insert(code.name());
        }
    }
    for (status, code) in facets.action.into_iter().flat_map(declared) {
        by_status.entry(status).or_default().insert(code);
    }
    let mut all: Map<String, Value> = by_status
        .into_iter()
        .map(|(status, codes)| {
            let mut response = reference("responses", component(status));
            let codes: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
            response["description"] = format!("{}.", codes.join(", ")).into();
            (status.as_str().to_owned(), response)
        })
        .collect();
    let mut refused = reference("responses", CLIENT_ERROR);
    if facets.action.is_some_and(|action| action.handler.is_some()) {
        refused["description"] =
            "Refused by the service, or by the operator's action handler with a code of its own."
                .into();
    }
    all.insert("4XX".into(), refused);
    all.insert("5XX".into(), reference("responses", SERVER_ERROR));
    all
}

/// Error codes that the rules of an action declare.
fn declared(action: &Action) -> impl Iterator<Item = (StatusCode, &str)> {
    action.rules.iter().filter_map(|rule| {
        let status = StatusCode::from_u16(rule.status).ok()?;
        Some((status, rule.code.as_str()))
    })
}

fn component(status: StatusCode) -> &'static str {
    if status.is_server_error() { SERVER_ERROR } else { CLIENT_ERROR }
}

/// One response for each class of statuses. Codes that the schema declares are explained here;
/// `/errors` explains all of them.
pub fn components(schema: &Schema) -> Map<String, Value> {
    let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for rule in actions(schema).flat_map(|action| &action.rules) {
        if let Ok(status) = StatusCode::from_u16(rule.status) {
            let line = format!("\n- `{}`: {}", rule.code, rule.message);
            let lines = lines.entry(component(status)).or_default();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let about = [
        (
            CLIENT_ERROR,
            "Refused, nothing was changed. `/errors` explains every code. `Accept: \
             application/problem+json` asks for the format of RFC 9457.",
        ),
        (SERVER_ERROR, "The service failed. `/errors` explains every code."),
    ];
    let entry = |(name, about): (&str, &str)| {
        let text =
            format!("{about}{}", lines.get(name).map(|lines| lines.concat()).unwrap_or_default());
        (name.to_owned(), response(schema, &text))
    };
    about.into_iter().map(entry).collect()
}

fn response(schema: &Schema, description: &str) -> Value {
    let more = ["Restive-Error-Code", "Retry-After", "WWW-Authenticate", "Allow"];
    json!({
        "description": description,
        "headers": headers::of_every_response(&more),
        "content": {
            "application/json": { "schema": reference("schemas", shape(schema)) },
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
    all.insert("FlatError".into(), flat());
    all.insert("Violation".into(), violation());
    all.insert(CODE.into(), code(schema));
    all.insert(VIOLATION_CODE.into(), violation_code());
    all
}

const CODE: &str = "ErrorCode";
const VIOLATION_CODE: &str = "ViolationCode";

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
                    "code": reference("schemas", CODE),
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

fn flat() -> Value {
    json!({
        "type": "object",
        "description": "A failed request.",
        "properties": {
            "message": text("A text for people."),
            "code": reference("schemas", CODE),
            "documentation_url": link(),
            "request_id": text("Value of the Request-Id header."),
            "errors": {
                "type": "array",
                "description": "All errors, by field.",
                "items": {
                    "type": "object",
                    "properties": {
                        "field": text("Dotted path of the field, or name of the parameter."),
                        "code": reference("schemas", VIOLATION_CODE),
                        "message": text("A text for people."),
                    },
                    "required": ["field", "code", "message"],
                },
            },
        },
        "required": ["message", "code", "documentation_url", "request_id", "errors"],
    })
}

fn violation() -> Value {
    json!({
        "type": "object",
        "description": "One error of one field or parameter.",
        "properties": {
            "field": text("Dotted path of the field, or name of the parameter."),
            "pointer": text("The same as a JSON pointer (RFC 6901)."),
            "code": reference("schemas", VIOLATION_CODE),
            "message": text("A text for people."),
            "value": { "description": "The invalid value, shortened." },
        },
        "required": ["field", "pointer", "code", "message"],
    })
}

fn violation_code() -> Value {
    // Codes of whole requests never stand inside `errors`, except those of query parameters.
    let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    json!({ "type": "string", "description": "What is wrong with the value.", "enum": codes })
}

fn link() -> Value {
    json!({
        "type": "string",
        "format": "uri-reference",
        "description": "Where the code is explained.",
    })
}

/// One code of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub code: String,
    /// Several if the code has several, separated by commas.
    pub status: String,
    pub kind: String,
    pub explanation: String,
    /// The actions whose rules declare the code, `orders/pay`; empty for codes of the service.
    pub actions: Vec<String>,
}

/// Every code that a service with this schema can return, except those that its action handlers
/// define: first the codes that every service has, then those of the rules.
pub fn catalogue(schema: Option<&Schema>) -> Vec<Listed> {
    let mut all: Vec<Listed> = Code::ALL.iter().map(|code| of_every_service(*code)).collect();
    for (_, collection) in schema.into_iter().flat_map(Schema::routed) {
        for (action, rule) in collection
            .actions
            .iter()
            .flat_map(|action| action.rules.iter().map(move |r| (action, r)))
        {
            let place = format!("{}/{}", collection.name, action.name);
            match all.iter_mut().find(|one| one.code == rule.code) {
                // A rule may use a code of the service, which has its explanation already.
                Some(known) if known.actions.is_empty() => {}
                Some(known) if known.actions.contains(&place) => {}
                Some(known) => known.actions.push(place),
                None => all.push(Listed {
                    code: rule.code.clone(),
                    status: rule.status.to_string(),
                    kind: rule.kind.clone(),
                    explanation: rule.message.clone(),
                    actions: vec![place],
                }),
            }
        }
    }
    all
}

fn of_every_service(code: Code) -> Listed {
    let statuses: Vec<String> =
        statuses(code).iter().map(|status| status.as_u16().to_string()).collect();
    Listed {
        code: code.name().to_owned(),
        status: statuses.join(", "),
        kind: error::classify(code).1.to_owned(),
        explanation: code.explanation().to_owned(),
        actions: Vec::new(),
    }
}

/// The catalogue as Markdown: without a schema it is `docs/errors.md`.
pub fn markdown(schema: Option<&Schema>) -> String {
    let mut text = String::from(
        "# Error codes\n\n\
         The response to a failed request has a status, a type and a code. Codes are stable: \
         programs may\nrely on them, messages are for people. Codes about one field are in \
         `errors`, inside a\n`validation_failed`. Actions can declare their own codes in the \
         schema; `/errors` of a service\nlists them too, and its OpenAPI document.\n\n\
         | Status | Type | Code | What it means and what to do |\n|---|---|---|---|\n",
    );
    for Listed { code, status, kind, explanation, actions } in catalogue(schema) {
        let cell = |text: &str| text.replace(['\n', '\r'], " ").replace('|', "\\|");
        let (mut code, mut kind, mut explanation) = (code, cell(&kind), cell(&explanation));
        // A text of the schema must not become HTML.
        if !actions.is_empty() {
            code.retain(|c| !matches!(c, '"' | '<' | '>' | '&' | '|' | '`' | '\n' | '\r'));
            for text in [&mut kind, &mut explanation] {
                *text = text.replace('&', "&amp;").replace('<', "&lt;");
            }
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {status} | `{kind}` | <a id=\"{code}\"></a>`{code}` | {explanation} |"
        );
    }
    text
}
