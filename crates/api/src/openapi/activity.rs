//! The routes about the recent requests and the figures of an account.

use super::errors::{self, Facets};
use super::names::{REQUEST, REQUEST_LIST, STATS};
use super::operation::{Operation, SERVICE_TAG, answer};
use super::{parameters, reference};
use crate::route::Own;
use model::schema::Schema;
use serde_json::{Map, Value, json};

pub fn paths(schema: &Schema) -> Map<String, Value> {
    let path = |own: Own| format!("{}/{}", schema.service.mount, own.template());
    let mut one = json!({ "get": show() });
    one["parameters"] = json!([{
        "name": "request_id",
        "in": "path",
        "required": true,
        "description": "Id of the request, as the header `Request-Id` has it.",
        "schema": { "type": "string", "minLength": 1 },
    }]);
    Map::from_iter([
        (path(Own::Requests), json!({ "get": list() })),
        (path(Own::OneRequest), one),
        (path(Own::Stats), json!({ "get": stats() })),
    ])
}

pub fn schemas(schema: &Schema) -> Map<String, Value> {
    Map::from_iter([
        (REQUEST.to_owned(), request(schema)),
        (REQUEST_LIST.to_owned(), request_list()),
        (STATS.to_owned(), figures()),
    ])
}

fn operation(
    (id, summary, description): (&str, &str, &str),
    mut parameters: Vec<Value>,
    (about, shown): (&str, &str),
    facets: &Facets<'_>,
) -> Value {
    parameters.push(parameters::shared("RestiveVersion"));
    let mut responses = errors::responses(facets);
    responses.insert("200".into(), answer(about, &[], reference("schemas", shown)));
    let operation = Operation {
        id: id.to_owned(),
        summary: summary.to_owned(),
        description: description.to_owned(),
        parameters,
        body: None,
        responses,
    };
    operation.into_value(SERVICE_TAG)
}

fn list() -> Value {
    let text = || json!({ "type": "string" });
    let status = json!({ "type": "string", "pattern": "^(?:[1-5][0-9]{2}|[2-5]xx)$" });
    let query = vec![
        parameters::shared("Limit"),
        parameters::query(
            "after",
            "The `next_cursor` of the previous page. It is valid until the server restarts.",
            json!({ "type": "string", "pattern": "^req_[0-9a-f]{16}[0-9]{1,20}$" }),
        ),
        parameters::query("status", "A status, or a class of them such as `4xx`.", status),
        parameters::query("method", "Only requests with this method.", text()),
        parameters::query("route", "Only requests with this route, such as `/v1/books`.", text()),
        parameters::query("code", "Only requests that failed with this code.", text()),
        parameters::query("key", "Only requests with the key of this id.", text()),
    ];
    let about = "Lists the newest requests of the account in the mode of the key, newest first. \
                 They are kept in memory, failed requests longer than successful ones, and are \
                 gone after a restart. Needs the scope `requests:read`.";
    let names = ("listRequests", "List recent requests", about);
    let facets = Facets { resource: true, list: true, ..Facets::default() };
    operation(names, query, ("A page of requests.", REQUEST_LIST), &facets)
}

fn show() -> Value {
    let about = "Returns one recent request.";
    let names = ("getRequest", "Get a recent request", about);
    let facets = Facets { resource: true, addressed: true, ..Facets::default() };
    operation(names, Vec::new(), ("The request.", REQUEST), &facets)
}

fn stats() -> Value {
    let about = "Returns figures of the account in the mode of the key, over the last hour. Needs \
                 the scope `stats:read`.";
    let names = ("stats", "Get statistics", about);
    let facets = Facets { resource: true, ..Facets::default() };
    operation(names, Vec::new(), ("The figures.", STATS), &facets)
}

/// An object that has all its members.
fn complete(about: &str, properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({
        "type": "object",
        "description": about,
        "required": required,
        "properties": properties,
    })
}

fn request(schema: &Schema) -> Value {
    let text = json!({ "type": "string" });
    let maybe = json!({ "type": ["string", "null"] });
    let dates: Vec<&str> = schema.versions.iter().map(|version| version.date.as_str()).collect();
    complete(
        "A request that was answered.",
        json!({
            "object": { "type": "string", "const": "request" },
            "id": text,
            "created_at": { "type": "string", "format": "date-time" },
            "method": text,
            "path": { "type": "string", "description": "Without the query; cut if it is long." },
            "route": text,
            "status": { "type": "integer", "description": "499: the client left." },
            "code": maybe,
            "message": maybe,
            "duration_ms": { "type": "number", "minimum": 0 },
            "key": maybe,
            "user": { "type": ["string", "null"], "description": "Named by a channel token." },
            "version": { "type": "string", "enum": dates },
            "idempotent_replayed": { "type": "boolean" },
            "ip": text,
        }),
    )
}

fn request_list() -> Value {
    complete(
        "A page of requests.",
        json!({
            "object": { "type": "string", "const": "list" },
            "data": { "type": "array", "items": reference("schemas", REQUEST) },
            "pagination": reference("schemas", "Pagination"),
        }),
    )
}

fn figures() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let time = json!({ "type": ["number", "null"], "description": "Milliseconds." });
    let text = json!({ "type": "string" });
    let list = |item: Value| json!({ "type": "array", "items": item });
    let instant = json!({ "type": "string", "format": "date-time" });
    let point = complete(
        "One minute.",
        json!({
            "at": instant,
            "requests": count,
            "client_errors": count,
            "server_errors": count,
            "commits": count,
            "p50_ms": time,
            "p99_ms": time,
        }),
    );
    let error = complete(
        "Errors of one code and route.",
        json!({ "code": text, "route": text, "count": count, "last_request": text }),
    );
    let version = complete("Requests in a version.", json!({ "version": text, "requests": count }));
    let deliveries = complete(
        "What waits now, and the results of the last hour.",
        json!({
            "pending": count,
            "oldest_pending_at": { "type": ["string", "null"], "format": "date-time" },
            "delivered": count,
            "failed": count,
        }),
    );
    let connections = complete(
        "Open connections of the account.",
        json!({ "sse": count, "websocket": count, "poll": count }),
    );
    complete(
        "Figures of an account.",
        json!({
            "object": { "type": "string", "const": "stats" },
            "interval": { "type": "integer", "description": "Seconds between two points." },
            "points": list(point),
            "errors": list(error),
            "versions": list(version),
            "deliveries": deliveries,
            "connections": connections,
        }),
    )
}
