//! The live channels: polls, the event stream, the WebSocket, the tokens that open them and who is
//! online. What happens on a connection that stays open is told in words: OpenAPI has no others.

use super::errors::{self, Facets};
use super::names::{Names, POSITION, PRESENCE, PRESENCE_LIST, TOKEN, TOKEN_REQUEST};
use super::operation::{JSON, Operation, answer, unchanged};
use super::{headers, own, parameters, reference};
use crate::route::{self, Channel};
use crate::token;
use model::schema::{CollectionIx, Schema};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Tag of the routes that tell of changes.
pub const TAG: &str = "live";
/// Scheme of the credentials that may stand in a URL.
pub const TOKEN_SCHEME: &str = "channelToken";

/// A place in the log, with or without the name of the log.
const POSITION_FORM: &str = r"^(?:[0-9A-Fa-f]{8}\.)?[0-9]{1,18}$";
/// Everything but control characters.
const USER_FORM: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

pub fn paths(schema: &Schema, names: &Names) -> Map<String, Value> {
    let item = |channel: Channel| match channel {
        Channel::Poll(feed) => ("get", poll(schema, names, feed)),
        Channel::Stream => ("get", stream(schema)),
        Channel::Socket => ("get", socket(schema)),
        Channel::Tokens => ("post", tokens()),
        Channel::Presence => ("get", presence()),
    };
    route::channels(schema)
        .filter(|(_, channel)| channel.is_in(schema))
        .map(|(path, channel)| {
            let (method, operation) = item(channel);
            (path, json!({ method: operation }))
        })
        .collect()
}

pub fn schemas(schema: &Schema) -> Map<String, Value> {
    let all = [
        (POSITION, position()),
        (TOKEN, token()),
        (TOKEN_REQUEST, token_request(schema)),
        (PRESENCE, present()),
        (PRESENCE_LIST, presence_list()),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The parameters that mean the same on several channels.
pub fn parameter_components(schema: &Schema) -> Map<String, Value> {
    let id =
        || json!({ "type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$" });
    let place = || reference("schemas", POSITION);
    let types = parameters::commas(
        "types",
        "Only these: types of events, patterns such as `order.*`, live names of feeds, `typing` \
         and `online`. Without it, everything but the events of the service's own objects.",
        json!({
            "type": "array",
            "items": { "type": "string", "enum": types(schema) },
            "minItems": 1,
            "maxItems": live::MAX_TYPES,
        }),
    );
    let query = parameters::query;
    let user = json!({
        "type": "string", "minLength": 1, "maxLength": token::MAX_USER_CHARS,
        "pattern": USER_FORM,
    });
    let about_user = "For whom the connection is: while it is open, they are online. For \
                      connections that are opened with an API key; a channel token names its user \
                      itself.";
    let since = "Go on behind this place: the `id` of the last event, an X-Stream-Position, or the \
                 id of a feed's record. Without it, from now on.";
    let header = "Sent by the browser when it connects anew; goes before `since`.";
    let version = "The API version to speak, for pages, which cannot set the header; goes before \
                   `Restive-Version`.";
    let versions = json!({ "type": "string", "enum": [schema.service.version] });
    let all = [
        ("StreamTypes", types),
        ("StreamResource", query("resource", "Only events of the record with this id.", id())),
        ("StreamParent", query("parent", "Only events of this record's children.", id())),
        ("StreamSince", query("since", since, place())),
        ("StreamLastEventId", query("last_event_id", "The same as `since`.", place())),
        ("StreamUser", query("user", about_user, user)),
        ("StreamVersion", query(live::VERSION, version, versions)),
        ("LastEventId", parameters::header("Last-Event-ID", false, header, place())),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Everything that a subscription can name.
fn types(schema: &Schema) -> BTreeSet<String> {
    let mut all = own::patterns(schema);
    all.extend(live_names(schema));
    all.extend(live::EPHEMERAL.map(str::to_owned));
    all
}

fn live_names(schema: &Schema) -> impl Iterator<Item = String> {
    schema.routed().filter_map(|(_, c)| Some(c.feed.as_ref()?.live_name.clone()))
}

/// An operation on a channel, which a channel token opens too.
fn channel(operation: Operation) -> Value {
    let mut value = operation.into_value(TAG);
    value["security"] = json!([{ "bearerAuth": [] }, { "basicAuth": [] }, { TOKEN_SCHEME: [] }]);
    value
}

fn failures(socket: bool) -> Map<String, Value> {
    let facets = Facets { resource: true, channel: Some(socket), ..Facets::default() };
    errors::responses(&facets)
}

fn poll(schema: &Schema, names: &Names, feed: CollectionIx) -> Value {
    let collection = &schema.collections[feed];
    let (name, live) = (&collection.name, &schema.live);
    let most = schema.service.max_page;
    let since = "Only records behind this place: the id of the last one, or an X-Stream-Position. \
                 Without it, from the first one on.";
    let wait = format!(
        "Where there is nothing yet, wait for it, {} seconds at most. The answer comes the moment \
         a record is committed, or is empty.",
        live.poll_timeout.as_secs()
    );
    let limit = json!({
        "type": "integer", "format": "int64", "minimum": 1,
        "default": live::POLL_LIMIT.min(most),
    });
    let about = format!("Records in the answer, the oldest first. More than {most} are not sent.");
    let records = json!({
        "type": "array",
        "items": reference("schemas", names.record(feed)),
        "description": "In the order of their ids.",
    });
    let mut responses = failures(false);
    let shown = ["ETag", "X-Stream-Position", "X-Stream-Gap"];
    responses.insert("200".into(), answer("The records behind `since`.", &shown, records));
    let mut fresh = unchanged();
    fresh["headers"]["X-Stream-Position"] = reference("headers", "X-Stream-Position");
    responses.insert("304".into(), fresh);
    channel(Operation {
        id: names.operation("poll", feed),
        summary: format!("Poll {name}"),
        description: format!(
            "Answers with the `{name}` behind a place in the log, at once, or with `wait=true` as \
             soon as there are some. Ask again with the id of the last record, or with the \
             X-Stream-Position of the answer."
        ),
        parameters: vec![
            parameters::query("since", since, reference("schemas", POSITION)),
            parameters::query("wait", &wait, json!({ "enum": ["true", "false", "1", "0"] })),
            parameters::query("limit", &about, limit),
            parameters::shared("StreamUser"),
            parameters::shared("StreamVersion"),
            parameters::shared("IfNoneMatch"),
            parameters::shared("RestiveVersion"),
        ],
        body: None,
        responses,
    })
}

/// What may be asked of a stream and of a socket alike.
fn subscription() -> Vec<Value> {
    let names = [
        "StreamTypes",
        "StreamResource",
        "StreamParent",
        "StreamSince",
        "StreamLastEventId",
        "StreamUser",
        "StreamVersion",
        "LastEventId",
        "RestiveVersion",
    ];
    names.into_iter().map(parameters::shared).collect()
}

fn stream(schema: &Schema) -> Value {
    let feeds: Vec<String> = live_names(schema).map(|name| format!("`{name}`")).collect();
    let feeds = match feeds.is_empty() {
        true => String::new(),
        false => format!(" A new record of a feed goes by its live name ({}).", feeds.join(", ")),
    };
    let blocks =
        "Blocks as EventSource reads them. The first one holds `retry` and `id`, where the \
         stream begins. Then, for each event: `event`, its type; `id`, its place in the log; \
         `data`, the event as `GET /v1/events/{id}` shows it, or the record of a feed. \
         `typing` and `online` come without an `id`. `stream.reset` says that the place asked for \
         cannot be gone on from, and which lists to fetch anew; `presence.reset` that some of \
         `typing` or `online` was missed, which `missed` names, and what to fetch instead; \
         `stream.closing` that the credentials end. Comments keep a quiet connection open."
            .replace("/v1", &schema.service.mount);
    let mut responses = failures(false);
    let success = json!({
        "description": blocks,
        "headers": headers::with(&[]),
        "content": { "text/event-stream": { "schema": { "type": "string" } } },
    });
    responses.insert("200".into(), success);
    channel(Operation {
        id: "stream".to_owned(),
        summary: "Stream events".to_owned(),
        description: format!(
            "Server-sent events: everything that the credentials may read, as it is committed, or \
             from `since` on; nothing is left out and nothing comes twice.{feeds} Where there is \
             no room, a client that accepts `text/event-stream` by name is answered 200 with a \
             `retry` and the end, because an EventSource never comes back after an error."
        ),
        parameters: subscription(),
        body: None,
        responses,
    })
}

fn socket(schema: &Schema) -> Value {
    let close = "Close codes of 4000 to 4099 mean not to come again, 4100 to 4199 after a pause, \
         4200 to 4299 at once; 1012 means that the server goes and its successor comes.";
    let mut responses = failures(true);
    let text = |about: &str| json!({ "description": about, "schema": { "type": "string" } });
    let mut agreed = headers::with(&[]);
    for (name, about) in [
        ("Sec-WebSocket-Protocol", "`restive.v1`, where the client offered it."),
        ("Sec-WebSocket-Extensions", "`permessage-deflate`, where the client offered it."),
    ] {
        agreed[name] = text(about);
    }
    let mut upgraded = agreed.clone();
    upgraded["Upgrade"] = text("`websocket`.");
    upgraded["Sec-WebSocket-Accept"] = text("Proof of the key; RFC 6455.");
    responses.insert(
        "101".into(),
        json!({
            "description": format!(
                "The connection is a WebSocket. Messages are JSON objects with a `type`. The \
                 server begins with `welcome`, then sends events and records of feeds with \
                 `type`, `position` and `data`, `typing`, `online`, `stream.reset`, \
                 `presence.reset`, `ack` and `error`. The client sends `subscribe`, \
                 `unsubscribe`, `typing`, `ping`, and records of feeds under their live name. \
                 {close}"
            ),
            "headers": upgraded,
        }),
    );
    let extended = "The same on HTTP/2 and HTTP/3, which ask for it with CONNECT (RFC 8441, \
                    RFC 9220).";
    responses.insert("200".into(), json!({ "description": extended, "headers": agreed }));
    let example = schema.live.origins.first().map_or("https://shop.example", String::as_str);
    let mut parameters = subscription();
    let offered = "Subprotocols: `restive.v1`, and `access_token.<channel token>` where the token \
                   shall stand in no URL.";
    let text = json!({ "type": "string" });
    parameters.push(parameters::header("Sec-WebSocket-Protocol", false, offered, text));
    channel(Operation {
        id: "socket".to_owned(),
        summary: "Open a WebSocket".to_owned(),
        description: format!(
            "The stream, and a client that talks back (RFC 6455). Asked for with `Upgrade: \
             websocket` and its other headers; anything else is answered 426. Pages of other \
             origins than the service's own must be named in its schema, such as `{example}`."
        ),
        parameters,
        body: None,
        responses,
    })
}

fn tokens() -> Value {
    let mut responses =
        errors::responses(&Facets { resource: true, body: true, write: true, ..Facets::default() });
    let made = answer("The token. It is shown once.", &[], reference("schemas", TOKEN));
    responses.insert("201".into(), made);
    let operation = Operation {
        id: "tokens".to_owned(),
        summary: "Create a channel token".to_owned(),
        description: "Makes credentials for one client of the live channels, above all a browser, \
                      which can send no header. A token reads what its key may read, or less; it \
                      writes to the feeds in `publish` alone. It ends with its key, and open \
                      connections end with it."
            .to_owned(),
        parameters: vec![parameters::shared("RestiveVersion")],
        body: Some(json!({
            "required": false,
            "content": { JSON: { "schema": reference("schemas", TOKEN_REQUEST) } },
        })),
        responses,
    };
    operation.into_value(TAG)
}

fn presence() -> Value {
    let mut responses = errors::responses(&Facets { resource: true, ..Facets::default() });
    let list = reference("schemas", PRESENCE_LIST);
    responses.insert("200".into(), answer("Who is online.", &["X-Stream-Position"], list));
    let operation = Operation {
        id: "presence".to_owned(),
        summary: "List who is online".to_owned(),
        description: "Users with an open connection, by name; a user is there once, however many \
                      connections there are, and stays for some seconds after the last one ended. \
                      A stream with `types=online` tells of coming and going."
            .to_owned(),
        parameters: vec![parameters::shared("RestiveVersion")],
        body: None,
        responses,
    };
    operation.into_value(TAG)
}

fn position() -> Value {
    json!({
        "type": "string",
        "description": "A place in the log: `<epoch>.<number>`, or the number alone.",
        "pattern": POSITION_FORM,
    })
}

fn token_request(schema: &Schema) -> Value {
    let feeds: BTreeSet<String> = live_names(schema).collect();
    let mut publish = json!({
        "type": ["array", "null"],
        "description": "Live names of the feeds that may be written to. Without it, none.",
        "items": { "type": "string", "enum": feeds },
        "maxItems": token::MAX_ITEMS,
    });
    if feeds.is_empty() {
        publish["items"] = json!({ "type": "string" });
        publish["maxItems"] = 0.into();
    }
    let ids = |about: &str| {
        json!({
            "type": ["array", "null"],
            "description": about,
            "items": {
                "type": "string",
                "minLength": 1,
                "maxLength": token::MAX_ID_CHARS,
                "pattern": "^[A-Za-z0-9_-]+$",
            },
            "minItems": 1,
            "maxItems": token::MAX_IDS,
        })
    };
    json!({
        "type": "object",
        "description": "What a token shall allow.",
        "properties": {
            "user": {
                "type": ["string", "null"],
                "description": "For whom it is. They are online while a connection is open.",
                "minLength": 1,
                "maxLength": token::MAX_USER_CHARS,
                "pattern": USER_FORM,
            },
            "types": {
                "type": ["array", "null"],
                "description": "Types, patterns and live names to be heard of. Without it, all \
                                that the key may read.",
                "items": { "type": "string", "enum": types(schema) },
                "minItems": 1,
                "maxItems": token::MAX_ITEMS,
            },
            "publish": publish,
            "resources": ids("Ids of the records to be heard of. With `parents`, either counts; \
                              without both, all records."),
            "parents": ids("Ids of records whose children are to be heard of."),
            "expires_in": {
                "type": ["integer", "null"],
                "description": "Seconds that it is good for.",
                "minimum": token::LIFE.start(),
                "maximum": token::LIFE.end(),
                "default": token::USUAL_LIFE,
            },
        },
        "additionalProperties": false,
    })
}

fn token() -> Value {
    let item = || json!({ "type": "string" });
    let texts = |about: &str| json!({ "type": "array", "items": item(), "description": about });
    json!({
        "type": "object",
        "description": "Credentials for one client of the live channels. Nothing of it is kept.",
        "properties": {
            "object": { "type": "string", "const": "channel_token" },
            "token": {
                "type": "string",
                "description": "For `access_token`, or after `Bearer`.",
                "pattern": r"^ct_[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$",
            },
            "user": { "type": ["string", "null"] },
            "types": texts("What it may hear of; empty: all that its key may read."),
            "publish": texts("Live names of the feeds it may write to."),
            "resources": texts("Records it hears of; empty with `parents`: all."),
            "parents": texts("Records whose children it hears of."),
            "expires_at": { "type": "string", "format": "date-time" },
            "livemode": { "type": "boolean" },
        },
        "required": [
            "object", "token", "user", "types", "publish", "resources", "parents", "expires_at",
            "livemode",
        ],
    })
}

fn present() -> Value {
    json!({
        "type": "object",
        "description": "A user who is online.",
        "properties": {
            "object": { "type": "string", "const": "presence" },
            "user": { "type": "string" },
            "connections": {
                "type": "integer",
                "minimum": 0,
                "description": "Open connections; 0 in the seconds after the last one ended.",
            },
            "since": { "type": "string", "format": "date-time" },
        },
        "required": ["object", "user", "connections", "since"],
    })
}

fn presence_list() -> Value {
    json!({
        "type": "object",
        "description": "Who is online. Above a thousand users the rest is only counted.",
        "properties": {
            "object": { "type": "string", "const": "list" },
            "data": { "type": "array", "items": reference("schemas", PRESENCE) },
            "pagination": {
                "type": "object",
                "properties": {
                    "total": { "type": "integer", "minimum": 0 },
                    "has_more": { "type": "boolean" },
                },
                "required": ["total", "has_more"],
            },
        },
        "required": ["object", "data", "pagination"],
    })
}
