//! A field is renamed in the schema file, and the server restarted: webhooks, streams, sockets and
//! polls send the same events to clients of both versions, each with its names.

use crate::harness::{Server, Start, eventually};
use crate::live_client::{Events, Socket};
use crate::receivers::{Case, Language};
use crate::sink::{Manner, Received, Sink};
use serde_json::{Value, json};

const OLD: &str = "2025-06-01";
const NEW: &str = "2026-11-01";

const FIRST: &str = r#"
[service]
version = "2025-06-01"
[webhooks]
development = true
[collections.books.fields]
name = { type = "string", required = true, filter = true }
nickname = "string"
price = "number"
[collections.messages]
feed = { live_name = "message" }
[collections.messages.fields]
text = { type = "string", required = true }
"#;

const SECOND: &str = r#"
[service]
version = "2026-11-01"
[webhooks]
development = true
[collections.books.fields]
title = { type = "string", required = true, filter = true }
nickname = "string"
price = "integer"
[collections.shelves.fields]
name = "string"
[collections.messages]
feed = { live_name = "message" }
[collections.messages.fields]
body = { type = "string", required = true }

[[versions]]
date = "2026-11-01"
[[versions.changes]]
collection = "books"
rename = { from = "name", to = "title" }
[[versions.changes]]
collection = "books"
removed = { field = "nickname" }
[[versions.changes]]
collection = "books"
convert = { field = "price", from = { type = "number" },
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }
[[versions.changes]]
collection = "shelves"
collection_added = true
[[versions.changes]]
collection = "messages"
rename = { from = "text", to = "body" }
[[versions]]
date = "2025-06-01"
"#;

/// The server with the renamed fields, on the data of an earlier one.
fn renamed(server: Server) -> Server {
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    let server = Start::schema(SECOND).on(&folder).go();
    // Its first request pinned the account to the newest version at that time.
    assert_eq!(server.get("/v1/account").expect(200)["api_version"], OLD);
    server.post("/v1/account", json!({ "api_version": NEW })).expect(200);
    server
}

/// An endpoint of the version, and its secret.
fn endpoint(server: &Server, sink: &Sink, version: Option<&str>) -> (String, String) {
    // Long enough for a restart on a busy machine.
    let retry_schedule = [1; 8];
    let url = sink.url();
    let body = json!({ "url": url, "api_version": version, "retry_schedule": retry_schedule });
    let made = server.post("/v1/webhook-endpoints", body).expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("secret"))
}

#[track_caller]
fn is_signed(request: &Received, secret: &str) {
    let headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let (family, body) = ("standardwebhooks", request.body.as_str());
    let case = [Case { family, secret, headers: &headers, body }];
    let verdicts = Language::ALL.iter().flat_map(|language| language.verify(&case));
    assert_eq!(verdicts.collect::<Vec<_>>(), ["ok"; Language::ALL.len()], "{request:?}");
}

/// The parts of an event that differ between the versions.
#[track_caller]
fn tells(envelope: &Value, version: &str, object: Value, previous: Value) {
    assert_eq!(envelope["api_version"], version, "{envelope}");
    for (name, expected) in object.as_object().unwrap() {
        match expected {
            Value::Null => assert_eq!(envelope["data"]["object"].get(name), None, "{name}"),
            value => assert_eq!(envelope["data"]["object"][name], *value, "{name}: {envelope}"),
        }
    }
    assert_eq!(envelope["data"]["previous_attributes"], previous, "{envelope}");
}

const NONE: Value = Value::Null;

fn old_created() -> Value {
    json!({ "name": "Dune", "nickname": "sand", "price": 9.5, "title": null })
}

fn new_created() -> Value {
    json!({ "title": "Dune", "price": 950, "name": null, "nickname": null })
}

fn old_updated() -> Value {
    json!({ "name": "Dune II", "nickname": "sand", "price": 10, "title": null })
}

fn new_updated() -> Value {
    json!({ "title": "Dune II", "price": 1000, "name": null, "nickname": null })
}

fn old_before() -> Value {
    json!({ "name": "Dune", "price": 9.5 })
}

fn new_before() -> Value {
    json!({ "title": "Dune", "price": 950 })
}

fn dune(server: &Server) -> String {
    let body = json!({ "name": "Dune", "nickname": "sand", "price": 9.5 });
    server.make("/v1/books", body)
}

fn change(server: &Server, id: &str) {
    let patch = json!({ "title": "Dune II", "price": 1000 });
    server.patch(&format!("/v1/books/{id}"), patch).expect(200);
}

#[test]
fn endpoints_of_both_versions_get_the_same_events_in_the_shape_of_their_version() {
    let server = Start::schema(FIRST).go();
    let (old_sink, new_sink) = (Sink::start(), Sink::start());
    let old = endpoint(&server, &old_sink, Some(OLD));
    let new = endpoint(&server, &new_sink, None);
    // The second endpoint gets the refused events after the restart.
    new_sink.will(Manner::status(500));
    let id = dune(&server);
    eventually("both were told", || {
        old_sink.of("book.created").len() == 1 && !new_sink.of("book.created").is_empty()
    });
    tells(&old_sink.of("book.created")[0].event(), OLD, old_created(), NONE);
    tells(&new_sink.of("book.created")[0].event(), OLD, old_created(), NONE);
    let server = renamed(server);
    new_sink.will(Manner::status(200));
    let shown = |sink: &Sink, kind: &str| sink.of(kind).pop().map(|got| got.event());
    eventually("the retry came in the new shape", || {
        shown(&new_sink, "book.created").is_some_and(|event| event["api_version"] == NEW)
    });
    let retried = new_sink.of("book.created").pop().unwrap();
    tells(&retried.event(), NEW, new_created(), NONE);
    is_signed(&retried, &new.1);
    server.make("/v1/shelves", json!({ "name": "A" }));
    change(&server, &id);
    eventually("both were told", || {
        !old_sink.of("book.updated").is_empty() && !new_sink.of("book.updated").is_empty()
    });
    let (one, other) =
        (old_sink.of("book.updated").remove(0), new_sink.of("book.updated").remove(0));
    assert_eq!(one.id(), other.id());
    tells(&one.event(), OLD, old_updated(), old_before());
    tells(&other.event(), NEW, new_updated(), new_before());
    is_signed(&one, &old.1);
    is_signed(&other, &new.1);
    // A version gets no events of collections that it lacks.
    assert_eq!(new_sink.of("shelf.created").len(), 1);
    assert!(old_sink.of("shelf.created").is_empty());
    // Replayed, events of the old version have the shape of each endpoint.
    for (endpoint, _) in [&old, &new] {
        let body = json!({ "endpoint": endpoint, "types": ["book.created"] });
        server.post("/v1/replays", body).expect(201);
    }
    eventually("both were told once more", || {
        old_sink.of("book.created").len() == 2 && new_sink.of("book.created").len() >= 3
    });
    tells(&shown(&old_sink, "book.created").unwrap(), OLD, old_created(), NONE);
    tells(&shown(&new_sink, "book.created").unwrap(), NEW, new_created(), NONE);
}

#[test]
fn an_endpoint_with_an_unknown_version_is_refused() {
    let server = Start::schema(SECOND).go();
    let sink = Sink::start();
    let body = |version: &str| json!({ "url": sink.url(), "api_version": version });
    let error = server.post("/v1/webhook-endpoints", body("2025-06-02"));
    let error = error.error(422, "validation_failed");
    assert_eq!(error["param"], "api_version");
    assert!(error["message"].as_str().unwrap().contains(OLD), "{error}");
    let (id, _) = endpoint(&server, &sink, Some(OLD));
    let path = format!("/v1/webhook-endpoints/{id}");
    server.patch(&path, body("2020-01-01")).error(422, "validation_failed");
    server.patch(&path, body(NEW)).expect(200);
    server.make("/v1/books", json!({ "title": "Emma" }));
    eventually("it was told", || !sink.of("book.created").is_empty());
    assert_eq!(sink.of("book.created")[0].event()["api_version"], NEW);
}

#[test]
fn thin_payloads_and_filters_use_the_version_of_the_endpoint() {
    let server = Start::schema(SECOND).go();
    let (thin, filtered) = (Sink::start(), Sink::start());
    let body = json!({ "url": thin.url(), "api_version": OLD, "payload": "thin" });
    server.post("/v1/webhook-endpoints", body).expect(201);
    // A filter sees the names and values of the sent event, and all of it even with thin payloads.
    for (version, filter) in [
        (OLD, "event.data.object.name == 'Emma' && event.data.object.price == 9.5"),
        (NEW, "event.data.object.title == 'Emma' && event.data.object.price == 950"),
    ] {
        let filter = format!("event.type == 'book.created' && {filter}");
        let body = json!({ "url": filtered.url(), "api_version": version, "filter": filter });
        server.post("/v1/webhook-endpoints", body).expect(201);
    }
    server.make("/v1/books", json!({ "title": "Dune", "price": 950 }));
    server.make("/v1/books", json!({ "title": "Emma", "price": 950 }));
    eventually("both were told", || {
        thin.of("book.created").len() == 2 && filtered.of("book.created").len() == 2
    });
    let told = thin.of("book.created").remove(0).event();
    assert_eq!(told["api_version"], OLD);
    let members: Vec<&String> = told["data"]["object"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["id", "object"]);
    let told = filtered.of("book.created");
    let told: Vec<Value> = told.iter().map(|got| got.event()["data"]["object"].clone()).collect();
    assert_eq!(told.iter().filter(|object| object["name"] == "Emma").count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|object| object["title"] == "Emma").count(), 1, "{told:?}");
}

#[test]
fn streams_resume_after_a_restart_in_their_version() {
    let server = Start::schema(FIRST).go();
    let mut stream = Events::open(&server, "/api/events");
    let begin = stream.next().id.unwrap();
    let id = dune(&server);
    let created = stream.event();
    tells(&created.json(), OLD, old_created(), NONE);
    let server = renamed(server);
    let target = |version: &str| format!("/api/events?version={version}");
    let mut old = Events::open_from(&server, &target(OLD), Some(&begin));
    let mut new = Events::open_from(&server, &target(NEW), Some(&begin));
    let mut plain = Events::open_from(&server, "/api/events", Some(&begin));
    let told = old.event();
    assert_eq!(told, created, "byte for byte what it was");
    tells(&new.event().json(), NEW, new_created(), NONE);
    tells(&plain.event().json(), NEW, new_created(), NONE);
    server.make("/v1/shelves", json!({ "name": "A" }));
    change(&server, &id);
    let told = old.event();
    assert!(told.is("book.updated"), "no shelf: {told:?}");
    tells(&told.json(), OLD, old_updated(), old_before());
    assert!(new.event().is("shelf.created"));
    tells(&new.named("book.updated").json(), NEW, new_updated(), new_before());
    server.post("/v1/messages", json!({ "body": "hello" })).expect(201);
    let (one, other) = (old.named("message"), new.named("message"));
    assert_eq!((&one.json()["text"], one.json().get("body")), (&json!("hello"), None));
    assert_eq!((&other.json()["body"], other.json().get("text")), (&json!("hello"), None));
    assert_eq!(one.id, other.id);
}

#[test]
fn sockets_send_each_version_and_share_positions() {
    let server = Start::schema(FIRST).go();
    let mut socket = Socket::open(&server, "/ws");
    let begin = socket.typed("welcome")["position"].as_str().unwrap().to_owned();
    let id = dune(&server);
    let created = socket.typed("book.created");
    let server = renamed(server);
    let target = |version: &str| format!("/ws?version={version}&since={begin}");
    let mut old = Socket::open(&server, &target(OLD));
    let mut new = Socket::open(&server, &target(NEW));
    assert_eq!(old.typed("book.created"), created);
    let told = new.typed("book.created");
    tells(&told["data"], NEW, new_created(), NONE);
    assert_eq!(told["position"], created["position"]);
    change(&server, &id);
    tells(&old.typed("book.updated")["data"], OLD, old_updated(), old_before());
    tells(&new.typed("book.updated")["data"], NEW, new_updated(), new_before());
    // A new subscription has the version of the connection too.
    old.ask_for(json!({ "type": "subscribe", "types": ["message"], "since": begin }));
    server.post("/v1/messages", json!({ "body": "hello" })).expect(201);
    assert_eq!(old.typed("message")["data"]["text"], "hello");
    assert_eq!(new.typed("message")["data"]["body"], "hello");
}

#[test]
fn polls_of_a_feed_return_the_shape_of_the_version() {
    let server = Start::schema(FIRST).go();
    server.post("/v1/messages", json!({ "text": "before" })).expect(201);
    let server = renamed(server);
    server.post("/v1/messages", json!({ "body": "after" })).expect(201);
    let column = |target: &str, name: &str| {
        let records = server.get(target).expect(200);
        let values = records.as_array().unwrap().iter().map(|record| record[name].clone());
        values.collect::<Vec<Value>>()
    };
    let both = [json!("before"), json!("after")];
    assert_eq!(column(&format!("/api/messages?version={OLD}"), "text"), both);
    assert_eq!(column(&format!("/api/messages?version={NEW}"), "body"), both);
    assert_eq!(column("/api/messages", "body"), both);
    // A long poll is answered from memory.
    let position = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    let target = format!("/api/messages?since={position}&wait=true&version={OLD}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| column(&target, "text"));
        eventually("it waits", || crate::live_client::open_connections(&server, "poll") > 0.0);
        server.post("/v1/messages", json!({ "body": "now" })).expect(201);
        assert_eq!(waiting.join().unwrap(), [json!("now")]);
    });
}

#[test]
fn a_cursor_expires_when_records_are_converted() {
    let sorted = |file: &str, name: &str| {
        let declared = format!("{name} = {{ type = \"string\", required = true");
        assert!(file.contains(&declared), "{declared}");
        file.replacen(&declared, &format!("{declared}, sort = true"), 1)
    };
    let (first, second) = (sorted(FIRST, "name"), sorted(SECOND, "title"));
    let server = Start::schema(&first).go();
    for price in 1..6 {
        server.make("/v1/books", json!({ "name": format!("b{price}"), "price": price }));
    }
    let cursor = |server: &Server, path: &str| {
        let page = server.ask("GET", path).header("Restive-Version", OLD).send().expect(200);
        page["pagination"]["next_cursor"].as_str().unwrap().to_owned()
    };
    let by_name = "/v1/books?sort=name&limit=2";
    let after = cursor(&server, by_name);
    // An additional field changes no row.
    let more = first.replace("nickname = \"string\"", "nickname = \"string\"\npages = \"integer\"");
    let server = Start::schema(&more).on(&server.stop().1).go();
    let page = server.get(&format!("{by_name}&after={after}"));
    assert_eq!(page.column("price"), [3, 4]);
    let second =
        second.replace("nickname = \"string\"", "nickname = \"string\"\npages = \"integer\"");
    let server = Start::schema(&second).on(&server.stop().1).go();
    let go_on = |path: &str, after: &str| {
        let ask = server.ask("GET", &format!("{path}&after={after}"));
        ask.header("Restive-Version", OLD).send()
    };
    assert_eq!(go_on(by_name, &after).error(410, "cursor_expired")["param"], "after");
    let fresh = cursor(&server, by_name);
    assert_eq!(go_on(by_name, &fresh).column("price"), [3, 4]);
}

/// Orders whose `large` sum is refused.
fn sums(past: &str, fields: &str, large: &str) -> String {
    let orders = "collections.orders";
    format!(
        "{past}
[{orders}]
fields = {{ {fields} = \"integer\", amount = \"integer\" }}
[[{orders}.actions.pay.rules]]
when = \"has(record.{large}) && record.{large} > 100\"
code = \"too_much\"
message = \"`{large}` is too large.\"
"
    )
}

/// Three dates in which one name stands for two fields, one after the other.
const RENAMED_TWICE: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
rename = { from = "fee", to = "amount" }
[[versions]]
date = "2025-01-01"
[[versions.changes]]
collection = "orders"
rename = { from = "amount", to = "total" }
[[versions]]
date = "2024-01-01"
"#;

#[test]
fn a_repeated_write_is_replayed_unchanged_although_fields_were_added() {
    let server = Start::schema(FIRST).go();
    let book = dune(&server);
    let ask = |server: &Server, method: &str, path: &str, body: Value| {
        let ask = server.ask(method, path).header("Restive-Version", OLD);
        ask.header("Idempotency-Key", &body.to_string()).json(&body).send()
    };
    let write = |server: &Server| {
        let create = json!({ "name": "Emma", "price": 4.5, "nickname": "E" });
        let path = format!("/v1/books/{book}");
        [
            ask(server, "POST", "/v1/books", create),
            ask(server, "PATCH", &path, json!({ "price": 2.25 })),
            // Changes nothing, and has no event.
            ask(server, "PATCH", &path, json!({ "price": 2.25, "name": "Dune" })),
        ]
    };
    let before = write(&server);
    let fields = "price = \"integer\"\nsubtitle = \"string\"\n\
                  pages = { type = \"integer\", default = 1 }";
    let second = SECOND.replace("price = \"integer\"", fields);
    let server = Start::schema(&second).on(&server.stop().1).go();
    for (again, before) in write(&server).iter().zip(&before) {
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{}", again.text);
        assert_eq!((again.status, &again.text), (before.status, &before.text), "byte for byte");
    }
    let read = server.ask("GET", &format!("/v1/books/{book}")).header("Restive-Version", OLD);
    assert_eq!(read.send().json["subtitle"], Value::Null, "it was added");
}

#[test]
fn a_stored_refusal_is_replayed_unchanged_after_a_restart_and_only_in_its_version() {
    let first = sums("service.version = \"2024-01-01\"", "fee", "amount");
    let server = Start::schema(&first).go();
    let order = server.make("/v1/orders", json!({ "amount": 101, "fee": 1 }));
    let pay = |server: &Server, version: &str, key: &str| {
        let ask = server.ask("POST", &format!("/v1/orders/{order}/pay"));
        let ask = ask.header("Restive-Version", version).header("Idempotency-Key", key);
        ask.json(&json!({})).send()
    };
    let refused = pay(&server, "2024-01-01", "one");
    assert_eq!(refused.clone().error(422, "too_much")["message"], "`amount` is too large.");
    let second = sums(RENAMED_TWICE, "total", "total");
    let server = Start::schema(&second).on(&server.stop().1).go();
    let again = pay(&server, "2024-01-01", "one");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!((again.status, &again.text), (422, &refused.text), "byte for byte");
    // A refusal now, with the names of the old version and the newest.
    let now = pay(&server, "2024-01-01", "two");
    assert_eq!(now.clone().error(422, "too_much")["message"], "`amount` is too large.");
    assert_eq!(pay(&server, "2024-01-01", "two").text, now.text);
    let newest = pay(&server, "2026-01-01", "three");
    assert_eq!(newest.error(422, "too_much")["message"], "`total` is too large.");
    pay(&server, "2026-01-01", "one").error(422, "idempotency_key_reused");
}

#[test]
fn a_channel_with_an_unknown_version_is_refused() {
    let server = Start::schema(SECOND).go();
    let old = SECOND.lines().rev().find_map(|line| line.strip_prefix("date = ")).unwrap();
    let old = old.trim_matches('"');
    server.post("/v1/account", json!({ "api_version": old })).expect(200);
    let used = || {
        let usage = server.get("/v1/version-usage").expect(200);
        usage["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["requests"].clone())
            .collect::<Vec<_>>()
    };
    let before = used();
    let by_url = ["/api/messages?version=2020-01-01", "/api/events?version=new"];
    let mut answers: Vec<_> = by_url.into_iter().map(|target| server.get(target)).collect();
    answers.push(server.ask("GET", "/api/messages").version("2020-01-01").send());
    for answer in answers {
        // However an unknown version is requested, the response does not have the version of the
        // account.
        assert_eq!(answer.header("restive-version"), Some("2026-11-01"));
        answer.error(400, "unknown_version");
    }
    assert_eq!(used(), before);
}

#[test]
fn events_have_the_shape_of_the_requests_version() {
    let server = Start::schema(FIRST).go();
    let id = dune(&server);
    let server = renamed(server);
    change(&server, &id);
    let read = |target: &str, version: &str| {
        server.ask("GET", target).header("Restive-Version", version).send().expect(200)
    };
    let of_book = format!("/v1/events?resource={id}&sort=created");
    let (old, new) = (read(&of_book, OLD), read(&of_book, NEW));
    tells(&old["data"][0], OLD, old_created(), NONE);
    tells(&old["data"][1], OLD, old_updated(), old_before());
    tells(&new["data"][0], NEW, new_created(), NONE);
    tells(&new["data"][1], NEW, new_updated(), new_before());
    let one = format!("/v1/events/{}", old["data"][1]["id"].as_str().unwrap());
    tells(&read(&one, OLD), OLD, old_updated(), old_before());
    tells(&read(&one, NEW), NEW, new_updated(), new_before());
    let tag = |version: &str| {
        let answer = server.ask("GET", &one).header("Restive-Version", version).send();
        answer.header("etag").unwrap().to_owned()
    };
    assert_ne!(tag(OLD), tag(NEW));
}

/// As with Stripe, where accounts of every version get new event types: the log is a record of what
/// happened, and omitting types that a version lacks would make it different for each reader.
#[test]
fn lists_have_all_events_in_every_version_while_channels_omit_unknown_types() {
    let server = Start::schema(SECOND).go();
    let mut streams = [OLD, NEW]
        .map(|version| (version, Events::open(&server, &format!("/api/events?version={version}"))));
    server.make("/v1/shelves", json!({ "name": "A" }));
    server.make("/v1/books", json!({ "title": "Dune" }));
    let ask = |version: &str, target: &str| {
        server.ask("GET", target).header("Restive-Version", version).send()
    };
    for (version, stream) in &mut streams {
        let log = ask(version, "/v1/events?sort=created");
        assert_eq!(log.column("type"), ["shelf.created", "book.created"], "{version}");
        // It has its only shape.
        let shelf = &log.json["data"][0];
        assert_eq!(
            (&shelf["api_version"], &shelf["data"]["object"]["name"]),
            (&json!(version), &json!("A"))
        );
        let one = ask(version, &format!("/v1/events/{}", shelf["id"].as_str().unwrap()));
        assert_eq!(one.expect(200), *shelf);
        let first = if *version == OLD { "book.created" } else { "shelf.created" };
        assert!(stream.event().is(first), "{version}");
    }
    ask(OLD, "/v1/shelves").error(404, "route_not_found");
}
