//! AsyncAPI 3.0 of a service, generated from its schema: the live channels with every message that
//! the service and its clients send. The payloads are those of `openapi`, from the same functions.
//! Pure: takes a schema, returns JSON.

mod client_messages;
mod server_messages;

use crate::openapi::channels::{self, TOKEN_SCHEME};
use crate::openapi::names::{Names, POSITION};
use crate::openapi::{self, prune, reference};
use crate::route::{self, Channel};
use model::schema::{CollectionIx, Schema};
use model::version::{Lens, View};
use model::webhook::catalogue::{self, EventKind};
use serde_json::{Map, Value, json};

/// The name of the event stream, as a channel and as an operation.
const STREAM: &str = "stream";
const SOCKET: &str = "socket";
/// Servers of the document: one for each protocol.
const HTTP: &str = "http";
const WEBSOCKET: &str = "websocket";
/// The channel token in a WebSocket's subprotocol.
const SUBPROTOCOL_SCHEME: &str = "channelTokenSubprotocol";
/// Versions of the bindings that describe the requests.
const HTTP_BINDING: &str = "0.3.0";
const WEBSOCKET_BINDING: &str = "0.1.0";

/// The document of one version. Without a server URL it describes the server that it is fetched
/// from.
pub fn of_version(view: &View, server_url: Option<&str>) -> Value {
    let schema = openapi::served(view);
    let kinds = catalogue::of(&schema);
    let names = Names::new(&schema, &kinds);
    let members = |index| view.lens(index).map(Lens::members).unwrap_or_default();
    let contract = Contract { schema: &schema, names: &names, kinds: &kinds };
    let mut document = json!({
        "asyncapi": "3.0.0",
        "info": contract.info(),
        "defaultContentType": "application/json",
        "servers": servers(server_url),
        "channels": contract.channels(),
        "operations": contract.operations(),
        "components": {
            "messages": contract.messages(),
            "schemas": openapi::schemas(&schema, &names, &kinds, &members),
            "securitySchemes": security_schemes(),
        },
    });
    prune(&mut document, &["channels", "operations"]);
    document
}

/// What the document describes.
struct Contract<'a> {
    schema: &'a Schema,
    names: &'a Names,
    kinds: &'a [EventKind<'a>],
}

/// A message of a channel: its name there, and its component.
type Listed = Vec<(String, Value)>;

impl Contract<'_> {
    fn info(&self) -> Value {
        let service = &self.schema.service;
        let description = format!(
            "The live channels of {}: changes as they are committed. Every channel reads the same \
             log, in which each event has a position; a client that reconnects with its last \
             position misses nothing. The HTTP API is described in `/openapi.json`.",
            service.name
        );
        json!({
            "title": service.name,
            "version": service.version,
            "description": description,
            "contact": { "name": format!("Operators of {}", service.name) },
            "license": { "name": "As agreed with the operators" },
            "tags": [{
                "name": channels::TAG,
                "description": "Changes as they happen: polls, server-sent events, WebSockets.",
            }],
        })
    }

    /// The feeds that can be polled, with the path of the poll.
    fn polls(&self) -> impl Iterator<Item = (String, CollectionIx)> {
        let schema = self.schema;
        route::channels(schema).filter_map(move |(path, channel)| match channel {
            Channel::Poll(feed) => {
                let offered = channel.is_in(schema) && schema.collections[feed].operations.list;
                offered.then_some((path, feed))
            }
            _ => None,
        })
    }

    fn channels(&self) -> Value {
        let live = &self.schema.live;
        let mut channels = Map::new();
        let stream = "Server-sent events: every committed change that the credentials may read. \
                      The first block has `retry`, and as `id` the position at which the stream \
                      begins. Comments keep an idle connection open.";
        let listed = |messages: Listed, family: &str| -> Map<String, Value> {
            let component = |name: &str| reference("messages", &format!("{family}.{name}"));
            messages.into_iter().map(|(name, _)| (name.clone(), component(&name))).collect()
        };
        channels.insert(
            STREAM.to_owned(),
            json!({
                "address": format!("{}/events", live.mount),
                "title": "Event stream",
                "description": stream,
                "servers": [server(HTTP)],
                "messages": listed(self.stream_messages(), STREAM),
            }),
        );
        let mut messages = listed(self.socket_messages(), SOCKET);
        messages.extend(self.client_messages().into_iter().map(|(name, _)| {
            let name = client_message(&name);
            (name.clone(), reference("messages", &name))
        }));
        channels.insert(
            SOCKET.to_owned(),
            json!({
                "address": live.socket,
                "title": "WebSocket",
                "description": SOCKET_DESCRIPTION,
                "servers": [server(WEBSOCKET)],
                "messages": messages,
                "bindings": {
                    "ws": {
                        "method": "GET",
                        "query": self.query(&SUBSCRIPTION),
                        "headers": socket_headers(),
                        "bindingVersion": WEBSOCKET_BINDING,
                    },
                },
            }),
        );
        for (path, feed) in self.polls() {
            let name = self.poll_name(feed);
            let about = &self.schema.collections[feed].name;
            let channel = json!({
                "address": path,
                "title": format!("Poll {about}"),
                "description": format!(
                    "Returns the `{about}` after a position: at once, or with `wait=true` as soon \
                     as there are some."
                ),
                "servers": [server(HTTP)],
                "messages": { "records": reference("messages", &format!("{name}.records")) },
            });
            channels.insert(name, channel);
        }
        Value::Object(channels)
    }

    fn operations(&self) -> Value {
        let mut operations = Map::new();
        let sent = |channel: &str, messages: &[(String, Value)]| -> Vec<Value> {
            messages.iter().map(|(name, _)| message(channel, name)).collect()
        };
        let mut stream = operation("send", STREAM, "Stream events", STREAM_OPERATION);
        stream["messages"] = sent(STREAM, &self.stream_messages()).into();
        stream["bindings"] = self.get(&SUBSCRIPTION);
        operations.insert(STREAM.to_owned(), stream);
        let mut socket = operation("send", SOCKET, "Send events", SOCKET_OPERATION);
        socket["messages"] = sent(SOCKET, &self.socket_messages()).into();
        operations.insert(SOCKET.to_owned(), socket);
        for (name, _) in self.client_messages() {
            let (summary, replies) = client_messages::explain(&name);
            let about = format!("{summary} The client sends it over the WebSocket.");
            let mut received = operation("receive", SOCKET, &format!("Receive {name}"), &about);
            received["messages"] = json!([message(SOCKET, &client_message(&name))]);
            let replies: Vec<Value> = replies.iter().map(|name| message(SOCKET, name)).collect();
            received["reply"] = json!({ "channel": channel(SOCKET), "messages": replies });
            operations.insert(format!("{SOCKET}.{name}"), received);
        }
        for (_, feed) in self.polls() {
            let name = self.poll_name(feed);
            let about = format!("Poll {}", self.schema.collections[feed].name);
            let mut poll = operation("send", &name, &about, POLL_OPERATION);
            poll["messages"] = json!([message(&name, "records")]);
            poll["bindings"] = self.get(&POLL);
            operations.insert(name, poll);
        }
        Value::Object(operations)
    }

    fn messages(&self) -> Value {
        let named = |family: &'static str, messages: Listed| {
            messages.into_iter().map(move |(name, message)| (format!("{family}.{name}"), message))
        };
        let clients = self.client_messages().into_iter();
        let clients = clients.map(|(name, message)| (client_message(&name), message));
        let polls = self.polls().map(|(_, feed)| {
            let name = format!("{}.records", self.poll_name(feed));
            (name, self.poll_message(feed))
        });
        named(STREAM, self.stream_messages())
            .chain(named(SOCKET, self.socket_messages()))
            .chain(clients)
            .chain(polls)
            .collect::<Map<_, _>>()
            .into()
    }

    /// The same as the operation of the OpenAPI document.
    fn poll_name(&self, feed: CollectionIx) -> String {
        self.names.operation("poll", feed)
    }

    /// The binding of a GET request with these query parameters.
    fn get(&self, parameters: &[&str]) -> Value {
        json!({
            "http": {
                "method": "GET",
                "query": self.query(parameters),
                "bindingVersion": HTTP_BINDING,
            },
        })
    }

    /// The query parameters of a channel, from those of the OpenAPI document.
    fn query(&self, parameters: &[&str]) -> Value {
        let components = channels::parameter_components(self.schema);
        let property = |component: &&str| {
            let parameter = &components[*component];
            let mut property = parameter["schema"].clone();
            let list = if property["type"] == "array" { " Separated by commas." } else { "" };
            let about = parameter["description"].as_str().unwrap_or_default();
            if property.get("$ref").is_some() {
                property = json!({ "allOf": [property] });
            }
            property["description"] = format!("{about}{list}").into();
            (parameter["name"].as_str().unwrap_or_default().to_owned(), property)
        };
        let properties: Map<String, Value> = parameters.iter().map(property).collect();
        json!({ "type": "object", "properties": properties })
    }
}

const SUBSCRIPTION: [&str; 7] = [
    "StreamTypes",
    "StreamResource",
    "StreamParent",
    "StreamSince",
    "StreamLastEventId",
    "StreamUser",
    "StreamVersion",
];
const POLL: [&str; 5] = ["PollSince", "PollWait", "PollLimit", "StreamUser", "StreamVersion"];

const STREAM_OPERATION: &str = "The service sends each committed event once and in log order, from \
    now on or after `since`. A client reconnects with the `id` of its last event in \
    `Last-Event-ID` or `since`.";
const SOCKET_OPERATION: &str = "The service begins with `welcome`, then sends each committed event \
    once and in log order. A client reconnects with the `position` of its last message in `since`.";
const POLL_OPERATION: &str = "The service responds with the records after `since`, oldest first. \
    Poll again with the id of the last record, or with the X-Stream-Position of the response.";
const SOCKET_DESCRIPTION: &str = "Messages are JSON objects with a `type`, in text frames of at \
    most 64 KiB. Close codes 4000 to 4099: do not reconnect; 4100 to 4199: reconnect after a \
    pause; 4200 to 4299: reconnect at once; 1012: the server restarts.";

fn operation(action: &str, channel: &str, title: &str, description: &str) -> Value {
    json!({
        "action": action,
        "channel": self::channel(channel),
        "title": title,
        "description": description,
        "tags": [{ "name": channels::TAG }],
    })
}

/// The name of a message that clients send. No event type has a hyphen.
fn client_message(name: &str) -> String {
    format!("client-{name}")
}

fn channel(name: &str) -> Value {
    json!({ "$ref": format!("#/channels/{name}") })
}

fn server(name: &str) -> Value {
    json!({ "$ref": format!("#/servers/{name}") })
}

/// A message of a channel, as operations refer to it.
fn message(channel: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/channels/{channel}/messages/{name}") })
}

fn position() -> Value {
    reference("schemas", POSITION)
}

fn servers(url: Option<&str>) -> Value {
    let security = |schemes: &[&str]| -> Vec<Value> {
        schemes.iter().map(|scheme| reference("securitySchemes", scheme)).collect()
    };
    let common = ["bearerAuth", "basicAuth", TOKEN_SCHEME];
    let on_sockets = [&common[..], &[SUBPROTOCOL_SCHEME]].concat();
    let (scheme, rest) = url.and_then(|url| url.split_once("://")).unwrap_or(("http", ""));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let secure = scheme == "https";
    let one = |protocol: &str, security: Vec<Value>| {
        let mut server = json!({
            "host": host,
            "protocol": protocol,
            "description": "This service.",
            "security": security,
        });
        let path = path.trim_end_matches('/');
        if !path.is_empty() {
            server["pathname"] = path.into();
        }
        if host.is_empty() {
            server["host"] = "{host}".into();
            server["variables"] = json!({
                "host": {
                    "default": "localhost:8080",
                    "description": "Host and port from which this document was fetched.",
                },
            });
            server["description"] = format!("This service; with TLS, `{protocol}s`.").into();
        }
        server
    };
    let (http, socket) = if secure { ("https", "wss") } else { ("http", "ws") };
    json!({
        HTTP: one(http, security(&common)),
        WEBSOCKET: one(socket, security(&on_sockets)),
    })
}

fn security_schemes() -> Value {
    json!({
        "bearerAuth": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key or a channel token: `Authorization: Bearer <key>`.",
        },
        "basicAuth": {
            "type": "http",
            "scheme": "basic",
            "description": "An API key as the user name, with an empty password.",
        },
        TOKEN_SCHEME: {
            "type": "httpApiKey",
            "in": "query",
            "name": crate::channel::ACCESS_TOKEN,
            "description": "A channel token, for browsers.",
        },
        SUBPROTOCOL_SCHEME: {
            "type": "httpApiKey",
            "in": "header",
            "name": "Sec-WebSocket-Protocol",
            "description": "`access_token.<channel token>` among the subprotocols, which keeps the \
                            token out of the URL.",
        },
    })
}

fn socket_headers() -> Value {
    json!({
        "type": "object",
        "properties": {
            "Sec-WebSocket-Protocol": {
                "type": "string",
                "description": "Subprotocols: `restive.v1`, and `access_token.<channel token>`.",
            },
        },
    })
}

#[cfg(test)]
mod tests;
