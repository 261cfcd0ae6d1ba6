//! OpenAPI 3.1 of a service, generated from its schema: every route, parameter, header, body, error
//! and webhook. It describes exactly what `model` accepts: a request that a tool generates from it
//! is never refused for its form, and a request that violates it always is. Pure: takes a schema,
//! returns JSON.

mod activity;
mod admin;
pub(crate) mod channels;
mod errors;
pub(crate) mod events;
mod expansions;
mod filters;
mod headers;
pub(crate) mod names;
mod operation;
mod own;
mod parameters;
mod paths;
mod requests;
pub(crate) mod responses;
mod versions;
mod webhooks;

pub use errors::{Listed as ListedError, catalogue as errors, markdown as errors_markdown};

use model::schema::rule::Rule;
use model::schema::{CollectionIx, Field, Mount, Schema};
use model::version::{Lens, View};
use model::webhook::catalogue::{self, EventKind};
use names::Names;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The document of one version, below the mount that serves it.
pub fn of_version(view: &View, server_url: Option<&str>) -> Value {
    let mut schema = served(view);
    for (index, collection) in schema.collections.iter_mut().enumerate() {
        for (place, action) in collection.actions.iter_mut().enumerate() {
            action.rules.iter_mut().for_each(|rule| convert_rule(view, (index, place), rule));
        }
    }
    let members = |index| view.lens(index).map(Lens::members).unwrap_or_default();
    compose(&schema, &members, server_url)
}

/// The schema of a version, with the mount that serves it.
pub fn served(view: &View) -> Schema {
    let mut schema = Schema::clone(&view.schema);
    let serves = |mount: &&Mount| mount.serves(view.index);
    if let Some(mount) = schema.mounts.iter().find(serves) {
        schema.service.mount.clone_from(&mount.path);
    }
    schema
}

/// Converts a rule to the names of the version.
fn convert_rule(view: &View, (collection, action): (CollectionIx, usize), rule: &mut Rule) {
    let refused = view.explain_rule(collection, action, rule.refusal());
    rule.message.clone_from(&refused.message);
    rule.param.clone_from(&refused.param);
    if let Some(declared) = &refused.declared {
        rule.code.clone_from(&declared.code);
    }
}

/// The document of the newest version. Without a server URL it describes the server that it is
/// fetched from.
pub fn document(schema: &Schema, server_url: Option<&str>) -> Value {
    compose(schema, &|_| Members::new(), server_url)
}

/// By object field of a collection: the members that have rules.
pub(crate) type Members = BTreeMap<String, Vec<Field>>;

fn compose(
    schema: &Schema,
    members: &dyn Fn(CollectionIx) -> Members,
    server_url: Option<&str>,
) -> Value {
    let kinds = catalogue::of(schema);
    let names = Names::new(schema, &kinds);
    let server = server_url.map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty());
    let mut document = json!({
        "openapi": "3.1.0",
        "info": info(schema),
        "servers": [{ "url": server.unwrap_or("/"), "description": "This service." }],
        "security": [{ "bearerAuth": [] }],
        "tags": tags(schema),
        // The page with the changes of each version. No `externalDocs`, because that must be an
        // absolute URL.
        "x-changelog": format!("{}/changelog", server.unwrap_or_default()),
        "paths": paths::all(schema, &names),
        "webhooks": webhooks::all(&names, &kinds),
        "components": {
            "securitySchemes": security_schemes(),
            "schemas": schemas(schema, &names, &kinds, members),
            "parameters": parameter_components(schema, &names),
            "headers": headers::components(schema),
            "responses": response_components(schema, &names),
            "pathItems": webhooks::path_items(schema, &names, &kinds),
        },
    });
    prune(&mut document, &["paths", "webhooks"]);
    document
}

/// The parameters that several operations share.
fn parameter_components(schema: &Schema, names: &Names) -> Map<String, Value> {
    let mut all = parameters::components(schema, names);
    all.extend(channels::parameter_components(schema));
    all.extend(webhooks::parameter_components());
    all
}

/// The responses that several operations share.
fn response_components(schema: &Schema, names: &Names) -> Map<String, Value> {
    let mut all = errors::components(schema);
    all.extend(paths::response_components(schema, names));
    all.extend(webhooks::response_components());
    all
}

pub(crate) fn reference(section: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{section}/{name}") })
}

fn info(schema: &Schema) -> Value {
    let service = &schema.service;
    let about = service
        .description
        .clone()
        .unwrap_or_else(|| format!("The resources of {}, as JSON over HTTP.", service.name));
    let description = format!(
        "{about}\n\n\
         Ids are opaque. Timestamps are ISO 8601 in UTC. Clients must ignore members they do not \
         know. Query parameters that a route does not know are refused with 400, unknown \
         members of a body with 422. Every response has a `Request-Id` and the \
         `Restive-Version` that it is written in; to requests with a key also the quota \
         (`RateLimit`, `RateLimit-Policy`)."
    );
    json!({
        "title": service.name,
        "description": description,
        "version": service.version,
        "contact": { "name": format!("Operators of {}", service.name) },
        "license": {
            "name": "As agreed with the operators",
            "identifier": "LicenseRef-as-agreed-with-the-operators",
        },
    })
}

fn tags(schema: &Schema) -> Value {
    let collections = schema.routed().map(|(_, collection)| {
        let about = collection.description.clone();
        let about = about.unwrap_or_else(|| format!("The collection `{}`.", collection.name));
        json!({ "name": collection.name, "description": about })
    });
    let service = json!({
        "name": operation::SERVICE_TAG,
        "description": "State and description of the service itself. No key is needed.",
    });
    let live = json!({
        "name": channels::TAG,
        "description": "Changes as they happen: polls, server-sent events, WebSockets.",
    });
    collections.chain([live, service]).collect()
}

fn security_schemes() -> Value {
    json!({
        "bearerAuth": {
            "type": "http",
            "scheme": "bearer",
            // Not a scheme of its own: generated clients would send the key in both forms at once.
            "description": "An API key: `Authorization: Bearer <key>`. HTTP Basic with the key as \
                            the user name and an empty password works too.",
        },
        channels::TOKEN_SCHEME: {
            "type": "apiKey",
            "in": "query",
            "name": crate::channel::ACCESS_TOKEN,
            "description": "A channel token, for the live channels only. It can also be sent after \
                            `Bearer`.",
        },
    })
}

pub(crate) fn schemas(
    schema: &Schema,
    names: &Names,
    kinds: &[EventKind<'_>],
    members: &dyn Fn(CollectionIx) -> Members,
) -> Map<String, Value> {
    let mut all = errors::schemas(schema);
    all.extend(filters::schemas());
    all.extend(requests::shared());
    all.extend(responses::shared());
    all.extend(own::shared(schema));
    all.extend(responses::ping(schema, names));
    all.extend(channels::schemas(schema));
    all.extend(versions::schemas(schema));
    all.extend(admin::schemas(schema, names));
    all.extend(activity::schemas(schema));
    all.extend(events::schemas(schema, names, kinds));
    for (index, _) in schema.routed() {
        all.extend(requests::schemas(schema, names, index, &members(index)));
        all.extend(responses::schemas(schema, names, index));
    }
    all
}

/// Removes the components that nothing in these sections refers to: the schema decides which are
/// needed.
pub(crate) fn prune(document: &mut Value, sections: &[&str]) {
    let mut used = BTreeSet::new();
    let mut fresh = BTreeSet::new();
    sections.iter().for_each(|section| collect(&document[*section], &mut fresh));
    while let Some(pointer) = fresh.pop_first() {
        if used.insert(pointer.clone())
            && let Some(target) = document.pointer(&pointer)
        {
            collect(target, &mut fresh);
        }
    }
    let Some(sections) = document["components"].as_object_mut() else { return };
    for (section, entries) in sections.iter_mut().filter(|(name, _)| *name != "securitySchemes") {
        if let Some(entries) = entries.as_object_mut() {
            entries.retain(|name, _| used.contains(&format!("/components/{section}/{name}")));
        }
    }
    sections.retain(|_, entries| entries.as_object().is_none_or(|entries| !entries.is_empty()));
}

/// Collects every `$ref` below a value, as a JSON pointer.
fn collect(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str().and_then(|text| text.strip_prefix('#')) {
                    Some(pointer) if name == "$ref" => _ = into.insert(pointer.to_owned()),
                    _ => collect(member, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
