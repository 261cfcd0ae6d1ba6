//! The routes of an account about its versions, and the page of changes.

use super::errors::{self, Facets};
use super::names::{ACCOUNT, ACCOUNT_UPDATE, COLLECTION_USAGE, FIELD_USAGE, USAGE, USAGE_LIST};
use super::operation::{JSON, Operation, SERVICE_TAG, answer, body};
use super::{parameters, reference};
use crate::route::Own;
use model::schema::Schema;
use serde_json::{Map, Value, json};

pub fn paths(schema: &Schema) -> Map<String, Value> {
    let path = |own: Own| format!("{}/{}", schema.service.mount, own.template());
    Map::from_iter([
        (path(Own::Account), json!({ "get": show(), "post": move_pin() })),
        (path(Own::VersionUsage), json!({ "get": usage() })),
    ])
}

pub fn schemas(schema: &Schema) -> Map<String, Value> {
    let all = [
        (ACCOUNT, account()),
        (ACCOUNT_UPDATE, account_update(schema)),
        (USAGE, version_usage()),
        (COLLECTION_USAGE, collection_usage()),
        (FIELD_USAGE, field_usage()),
        (USAGE_LIST, usage_list()),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The query parameter of the OpenAPI document itself.
pub fn chosen(schema: &Schema) -> Value {
    let about = "The version to describe; by default the newest.";
    parameters::query("version", about, json!({ "type": "string", "enum": dates(schema) }))
}

fn dates(schema: &Schema) -> Vec<&str> {
    schema.versions.iter().map(|version| version.date.as_str()).collect()
}

fn operation(
    id: &str,
    summary: &str,
    description: &str,
    body: Option<Value>,
    responses: Map<String, Value>,
) -> Value {
    let operation = Operation {
        id: id.to_owned(),
        summary: summary.to_owned(),
        description: description.to_owned(),
        parameters: vec![parameters::shared("RestiveVersion")],
        body,
        responses,
    };
    operation.into_value(SERVICE_TAG)
}

fn show() -> Value {
    let mut responses = errors::responses(&Facets { resource: true, ..Facets::default() });
    let shown = answer("The account.", &[], reference("schemas", ACCOUNT));
    responses.insert("200".into(), shown);
    let about = "Returns the account of the key, with the version it is pinned to.";
    operation("account", "Get the account", about, None, responses)
}

fn move_pin() -> Value {
    let facets = Facets { resource: true, body: true, write: true, ..Facets::default() };
    let mut responses = errors::responses(&facets);
    let shown = answer("The current account.", &[], reference("schemas", ACCOUNT));
    responses.insert("200".into(), shown);
    let about = "Pins the account to a version: requests that name no version use it from now on. \
                 An account is pinned to the newest version at its first request.";
    let body = body("The version.", &[JSON], ACCOUNT_UPDATE, true);
    operation("moveAccount", "Pin the account to a version", about, Some(body), responses)
}

fn usage() -> Value {
    let mut responses = errors::responses(&Facets { resource: true, ..Facets::default() });
    let about = "Every version, newest first, and the deprecated collections and fields.";
    let list = answer(about, &[], reference("schemas", USAGE_LIST));
    responses.insert("200".into(), list);
    let about = "How often the account used each version, and each deprecated collection and \
                 field, and the time of the last use.";
    operation("versionUsage", "List the versions in use", about, None, responses)
}

fn instant() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn account() -> Value {
    json!({
        "type": "object",
        "description": "An account.",
        "properties": {
            "id": { "type": "string" },
            "object": { "type": "string", "const": "account" },
            "name": { "type": ["string", "null"] },
            "api_version": {
                "type": ["string", "null"],
                "description": "The version of requests that name no version.",
            },
            "created_at": instant(),
            "updated_at": instant(),
        },
        "required": ["id", "object", "name", "api_version", "created_at", "updated_at"],
    })
}

fn account_update(schema: &Schema) -> Value {
    json!({
        "type": "object",
        "description": "The fields of an account that can be changed.",
        "properties": { "api_version": { "type": "string", "enum": dates(schema) } },
        "required": ["api_version"],
        "additionalProperties": false,
    })
}

/// The usage of one thing by the account: its identifying fields, and the counts.
fn usage_of(object: &str, about: &str, which: Value) -> Value {
    let date =
        |about: &str| json!({ "type": ["string", "null"], "format": "date", "description": about });
    let mut properties = json!({
        "object": { "type": "string", "const": object },
        "requests": { "type": "integer", "minimum": 0 },
        "last_used_at": { "type": ["string", "null"], "format": "date-time" },
        "deprecated": date("Date since which it is deprecated."),
        "sunset": date("Date until which it is served."),
    });
    for (name, property) in which.as_object().into_iter().flatten() {
        properties[name] = property.clone();
    }
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({
        "type": "object",
        "description": about,
        "required": required,
        "properties": properties,
    })
}

fn version_usage() -> Value {
    let version = json!({ "type": "string", "format": "date" });
    let which = json!({ "version": version, "pinned": { "type": "boolean" } });
    usage_of("version_usage", "How a version is used by the account.", which)
}

fn collection_usage() -> Value {
    let about = "How a deprecated collection is used by the account: requests that address it.";
    usage_of("collection_usage", about, json!({ "collection": { "type": "string" } }))
}

fn field_usage() -> Value {
    let about = "How a deprecated field is used by the account: requests that name it.";
    let text = json!({ "type": "string" });
    usage_of("field_usage", about, json!({ "collection": text, "field": text }))
}

fn usage_list() -> Value {
    let list = |name: &str| json!({ "type": "array", "items": reference("schemas", name) });
    json!({
        "type": "object",
        "description": "The versions of the service, and what is deprecated about it.",
        "properties": {
            "object": { "type": "string", "const": "list" },
            "data": list(USAGE),
            "deprecated_collections": list(COLLECTION_USAGE),
            "deprecated_fields": list(FIELD_USAGE),
            "since": instant(),
        },
        "required": ["object", "data", "deprecated_collections", "deprecated_fields", "since"],
    })
}
