//! The live channels: polls, the event stream, the WebSocket, their tokens and presence. OpenAPI
//! cannot describe messages on an open connection, so descriptions in prose do, and `asyncapi` in
//! full.

use super::errors::{self, Facets};
use super::names::{
    EVENT_PATTERN, LIVE_TYPE, Names, POSITION, PRESENCE, PRESENCE_LIST, TOKEN, TOKEN_REQUEST,
};
use super::operation::{JSON, Operation, answer, body, unchanged_list};
use super::{headers, parameters, reference};
use crate::route::{self, Channel};
use crate::token;
use model::schema::{CollectionIx, Schema};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Tag of the routes for live updates.
pub const TAG: &str = "live";
/// Security scheme of the credentials that may be sent in a URL.
pub const TOKEN_SCHEME: &str = "channelToken";

/// A position in the log, with or without the epoch.
const POSITION_FORM: &str = r"^(?:[0-9A-Fa-f]{8}\.)?[0-9]{1,18}$";
/// Any characters except control characters.
const USER_FORM: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

pub fn paths(schema: &Schema, names: &Names) -> Map<String, Value> {
    // A feed without `list` cannot be polled.
    let is_offered = |channel: Channel| match channel {
        Channel::Poll(feed) => schema.collections[feed].operations.list,
        _ => true,
    };
    let item = |channel: Channel| match channel {
        Channel::Poll(feed) => ("get", poll(schema, names, feed)),
        Channel::Stream => ("get", stream(schema)),
        Channel::Socket => ("get", socket(schema)),
        Channel::Tokens => ("post", tokens()),
        Channel::Presence => ("get", presence()),
    };
    route::channels(schema)
        .filter(|(_, channel)| channel.is_in(schema) && is_offered(*channel))
        .map(|(path, channel)| {
            let (method, operation) = item(channel);
            (path, json!({ method: operation }))
        })
        .collect()
}

pub fn schemas(schema: &Schema) -> Map<String, Value> {
    let all = [
        (POSITION, position()),
        (LIVE_TYPE, live_type(schema)),
        (TOKEN, token()),
        (TOKEN_REQUEST, token_request(schema)),
        (PRESENCE, present()),
        (PRESENCE_LIST, presence_list()),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The parameters that several channels share.
pub fn parameter_components(schema: &Schema) -> Map<String, Value> {
    let id =
        || json!({ "type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$" });
    let place = || reference("schemas", POSITION);
    let types = parameters::commas(
        "types",
        "Only these: event types, patterns such as `order.*`, live names of feeds, `typing` \
         and `online`. Without it, everything except the events of built-in objects.",
        json!({
            "type": "array",
            "items": reference("schemas", LIVE_TYPE),
            "minItems": 1,
            "maxItems": live::MAX_TYPES,
        }),
    );
    let query = parameters::query;
    let user = json!({
        "type": "string", "minLength": 1, "maxLength": token::MAX_USER_CHARS,
        "pattern": USER_FORM,
    });
    let about_user = "The user of the connection, who is online while it is open. Only for \
                      connections opened with an API key: a channel token already names its \
                      user.";
    let since = "Continue after this position: the `id` of the last event, an X-Stream-Position, \
                 or the id of a record in a feed. Without it, from now on.";
    let header = "Sent by the browser when it reconnects; takes precedence over `since`.";
    let version = "The API version, for web pages, which cannot set the header; takes precedence \
                   over `Restive-Version`.";
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
    let all = all.into_iter().chain(poll_parameters(schema));
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The query parameters of polls.
fn poll_parameters(schema: &Schema) -> [(&'static str, Value); 3] {
    let most = schema.service.max_page;
    let since = "Only records after this position: the id of the last record, or an \
                 X-Stream-Position. Without it, from the first record on.";
    let wait = format!(
        "If there is no record yet, wait for one, at most {} seconds. The response is sent as soon \
         as a record is committed; after the wait it is empty.",
        schema.live.poll_timeout.as_secs()
    );
    let limit = json!({
        "type": "integer", "format": "int64", "minimum": 1,
        "default": live::POLL_LIMIT.min(most),
    });
    let about = format!("Maximum records in the response, oldest first. The limit is {most}.");
    let query = parameters::query;
    [
        ("PollSince", query("since", since, reference("schemas", POSITION))),
        ("PollWait", query("wait", &wait, json!({ "enum": ["true", "false", "1", "0"] }))),
        ("PollLimit", query("limit", &about, limit)),
    ]
}

/// Everything that a subscription can name.
fn live_type(schema: &Schema) -> Value {
    let more: BTreeSet<String> =
        live_names(schema).chain(live::EPHEMERAL.map(str::to_owned)).collect();
    json!({
        "description": "A type or pattern of events, a live name of a feed, `typing` or `online`.",
        "anyOf": [reference("schemas", EVENT_PATTERN), { "type": "string", "enum": more }],
    })
}

fn live_names(schema: &Schema) -> impl Iterator<Item = String> {
    schema.routed().filter_map(|(_, c)| Some(c.feed.as_ref()?.live_name.clone()))
}

/// An operation on a channel, which also accepts a channel token.
fn channel(operation: Operation) -> Value {
    let mut value = operation.into_value(TAG);
    value["security"] = json!([{ "bearerAuth": [] }, { TOKEN_SCHEME: [] }]);
    value
}

fn failures(socket: bool) -> Map<String, Value> {
    let facets = Facets { resource: true, channel: Some(socket), ..Facets::default() };
    errors::responses(&facets)
}

fn poll(schema: &Schema, names: &Names, feed: CollectionIx) -> Value {
    let collection = &schema.collections[feed];
    let name = &collection.name;
    let records = json!({
        "type": "array",
        "items": reference("schemas", names.record(feed)),
        "description": "In the order of their ids.",
    });
    let mut responses = failures(false);
    let shown = ["ETag", "X-Stream-Position", "X-Stream-Gap"];
    responses.insert("200".into(), answer("The records after `since`.", &shown, records));
    responses.insert("304".into(), unchanged_list());
    channel(Operation {
        id: names.operation("poll", feed),
        summary: format!("Poll {name}"),
        description: format!(
            "Returns the `{name}` after a position in the log: at once, or with `wait=true` as \
             soon as there are some. Poll again with the id of the last record, or with the \
             X-Stream-Position of the response."
        ),
        parameters: vec![
            parameters::shared("PollSince"),
            parameters::shared("PollWait"),
            parameters::shared("PollLimit"),
            parameters::shared("StreamUser"),
            parameters::shared("StreamVersion"),
            parameters::shared("IfNoneMatch"),
            parameters::shared("RestiveVersion"),
        ],
        body: None,
        responses,
    })
}

/// The parameters of both a stream and a socket.
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
        false => format!(
            " A new record of a feed has its live name as event type ({}).",
            feeds.join(", ")
        ),
    };
    let blocks =
        "Blocks in the EventSource format. The first block has `retry`, and as `id` the position \
         at which the stream begins. Then, for each event: `event`, its type; `id`, its position; \
         `data`, the event as in `GET /v1/events/{id}`, or the record of a feed. \
         `typing` and `online` have no `id`. `stream.reset`: the stream cannot continue from the \
         requested position; it names the lists to fetch again. `presence.reset`: some `typing` \
         or `online` messages were missed; it names them in `missed`, and what to fetch instead. \
         `stream.closing`: the credentials expire. Comments keep an idle connection open. \
         `/asyncapi.json` has the schema of each."
            .replace("/v1", &schema.service.mount);
    let mut responses = failures(false);
    let success = json!({
        "description": blocks,
        "content": { "text/event-stream": { "schema": { "type": "string" } } },
    });
    responses.insert("200".into(), success);
    channel(Operation {
        id: "stream".to_owned(),
        summary: "Stream events".to_owned(),
        description: format!(
            "Server-sent events: everything that the credentials may read, as soon as it is \
             committed, or from `since` on; without gaps and without duplicates.{feeds} If the \
             server has no room, a client whose Accept names `text/event-stream` gets 200 with a \
             `retry`, and the stream ends, because an EventSource does not reconnect after an \
             error status."
        ),
        parameters: subscription(),
        body: None,
        responses,
    })
}

fn socket(schema: &Schema) -> Value {
    let close = "Close codes 4000 to 4099: do not reconnect; 4100 to 4199: reconnect after a \
                 pause; 4200 to 4299: reconnect at once; 1012: the server restarts.";
    let mut responses = failures(true);
    let text = |about: &str| json!({ "description": about, "schema": { "type": "string" } });
    let mut agreed = headers::with(&[]);
    for (name, about) in [
        ("Sec-WebSocket-Protocol", "`restive.v1`, if the client offered it."),
        ("Sec-WebSocket-Extensions", "`permessage-deflate`, if the client offered it."),
    ] {
        agreed[name] = text(about);
    }
    let mut upgraded = agreed.clone();
    upgraded["Upgrade"] = text("`websocket`.");
    upgraded["Sec-WebSocket-Accept"] = text("Hash of the client's key (RFC 6455).");
    responses.insert(
        "101".into(),
        json!({
            "description": format!(
                "The connection is a WebSocket. Messages are JSON objects with a `type`. The \
                 server begins with `welcome`, then sends events and records of feeds with \
                 `type`, `position` and `data`, `typing`, `online`, `stream.reset`, \
                 `presence.reset`, `ack` and `error`. The client sends `subscribe`, \
                 `unsubscribe`, `typing`, `ping`, and records of feeds under their live name. \
                 `/asyncapi.json` has the schema of each. {close}"
            ),
            "headers": upgraded,
        }),
    );
    let extended = "The same on HTTP/2 and HTTP/3, which open a WebSocket with CONNECT (RFC 8441, \
                    RFC 9220).";
    responses.insert("200".into(), json!({ "description": extended, "headers": agreed }));
    let example = schema.live.origins.first().map_or("https://shop.example", String::as_str);
    let mut parameters = subscription();
    let offered = "Subprotocols: `restive.v1`, and `access_token.<channel token>` to keep the \
                   token out of the URL.";
    let text = json!({ "type": "string" });
    parameters.push(parameters::header("Sec-WebSocket-Protocol", false, offered, text));
    channel(Operation {
        id: "socket".to_owned(),
        summary: "Open a WebSocket".to_owned(),
        description: format!(
            "The event stream in both directions (RFC 6455). Opened with `Upgrade: \
             websocket` and its other headers; any other request gets 426. The schema must list \
             the origins of pages other than the service's own, such as `{example}`."
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
        description: "Creates credentials for one client of the live channels, above all a \
                      browser, which cannot send headers. A token reads what its key may read, \
                      or less. It writes only to the feeds in `publish`. It ends with its key, \
                      and open connections end with it."
            .to_owned(),
        parameters: vec![parameters::shared("RestiveVersion")],
        body: Some(body("What the token allows.", &[JSON], TOKEN_REQUEST, false)),
        responses,
    };
    operation.into_value(TAG)
}

fn presence() -> Value {
    let mut responses = errors::responses(&Facets { resource: true, ..Facets::default() });
    let list = reference("schemas", PRESENCE_LIST);
    responses.insert("200".into(), answer("Users who are online.", &["X-Stream-Position"], list));
    let operation = Operation {
        id: "presence".to_owned(),
        summary: "List online users".to_owned(),
        description: "Users with an open connection, by name. Each user appears once, even with \
                      several connections, and stays for some seconds after the last one ended. \
                      A stream with `types=online` reports when users come and go."
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
        "description": "A position in the log: `<epoch>.<number>`, or the number alone.",
        "pattern": POSITION_FORM,
    })
}

fn token_request(schema: &Schema) -> Value {
    let feeds: BTreeSet<String> = live_names(schema).collect();
    let mut publish = json!({
        "type": ["array", "null"],
        "description": "Live names of the feeds that the token may write to. Without it, none.",
        "items": { "type": "string", "enum": feeds },
        "maxItems": token::MAX_ITEMS,
    });
    if feeds.is_empty() {
        publish["items"] = json!({ "type": "string" });
        publish["maxItems"] = 0.into();
    }
    let ids = |about: &str| {
        json!({
            "type": "array",
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
        "description": "The permissions of a token.",
        "properties": {
            "user": {
                "type": ["string", "null"],
                "description": "The user of the token, who is online while a connection is open.",
                "minLength": 1,
                "maxLength": token::MAX_USER_CHARS,
                "pattern": USER_FORM,
            },
            "types": {
                "type": "array",
                "description": "Types, patterns and live names to receive. Without it, all \
                                that the key may read.",
                "items": reference("schemas", LIVE_TYPE),
                "minItems": 1,
                "maxItems": token::MAX_ITEMS,
            },
            "publish": publish,
            "resources": ids("Ids of the records to receive events of. With `parents`, either \
                              matches; without both, all records."),
            "parents": ids("Ids of records whose children's events to receive."),
            "expires_in": {
                "type": ["integer", "null"],
                "description": "Lifetime in seconds.",
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
        "description": "Credentials for one client of the live channels. They are not stored.",
        "properties": {
            "object": { "type": "string", "const": "channel_token" },
            "token": {
                "type": "string",
                "description": "The value of `access_token`, or of `Authorization` after `Bearer`.",
                "pattern": r"^ct_[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$",
            },
            "user": { "type": ["string", "null"] },
            "types": texts("What it receives; empty: all that its key may read."),
            "publish": texts("Live names of the feeds it may write to."),
            "resources": texts("Records whose events it receives; if empty like `parents`: all."),
            "parents": texts("Records whose children's events it receives."),
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
        "description": "Online users. Beyond a thousand users, only the total includes the rest.",
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
