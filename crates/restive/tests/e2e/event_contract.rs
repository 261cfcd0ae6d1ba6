//! The catalogue of events: `/openapi.json` describes every webhook, `/asyncapi.json` every message
//! of the live channels. Everything that the server sends must match its description.

use crate::harness::{PATIENCE, Server, Start, eventually, run};
use crate::live_client::{Events, Socket, token};
use crate::sink::{Received, Sink};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tempfile::TempDir;

/// Events of every origin: requests, timers, rules, deletions of other records, applications.
const SHOP: &str = r#"
[webhooks]
development = true
[events.types."report.ready"]
[collections.books.fields]
title = { type = "string", required = true }
secret = { type = "string", write_only = true }
pages = "integer"
weight = "number"
lent = "boolean"
seen = "timestamp"
printed = "date"
info = "object"
labels = { type = "array", items = "string" }
cover = { type = "string", enum = ["hard", "soft"] }
[collections.reviews]
parent = "books"
operations = ["list", "create"]
[collections.reviews.fields]
stars = "integer"
[collections.loans]
operations = ["list", "create"]
[collections.loans.fields]
book = { ref = "books" }
[collections.loans.states]
names = ["asked", "late", "given"]
[collections.loans.actions.give]
from = "asked"
to = "given"
[[collections.loans.actions.give.rules]]
when = "record.book == null"
message = "There is no book."
to = "late"
event = "loan.refused"
[[collections.loans.timed]]
from = "given"
to = "late"
after = "10ms"
[collections.notes]
feed = { live_name = "note", author = "from" }
[collections.notes.fields]
from = "string"
text = { type = "string", required = true }
"#;

/// Everything that the shop can do.
fn use_the_shop(server: &Server) {
    let book = json!({"title": "Dune", "secret": "s", "pages": 412, "weight": 0.5, "lent": false,
        "seen": "2026-01-31T08:30:00Z", "printed": "1965-08-01", "info": {"a": [1, null]},
        "labels": ["sand"], "cover": "soft"});
    let book = server.make("/v1/books", book);
    let bare = server.make("/v1/books", json!({"title": "Emma"}));
    server.patch(&format!("/v1/books/{bare}"), json!({"title": "Persuasion"})).expect(200);
    server.put(&format!("/v1/books/{bare}"), json!({"title": "Emma", "pages": 1})).expect(200);
    server.make(&format!("/v1/books/{book}/reviews"), json!({"stars": 5}));
    let loan = server.make("/v1/loans", json!({"book": book}));
    server.post(&format!("/v1/loans/{loan}/give"), json!({})).expect(200);
    let refused = server.make("/v1/loans", json!({}));
    server.post(&format!("/v1/loans/{refused}/give"), json!({})).error(422, "guard_failed");
    server.delete(&format!("/v1/books/{book}")).expect(200);
    server.post("/v1/notes", json!({"from": "ann", "text": "hello"})).expect(201);
    let report = json!({"type": "report.ready", "data": {"object": {"id": "r1", "rows": 3}}});
    server.post("/v1/events", report).expect(201);
    server.post("/v1/erasures", json!({"resource": bare})).expect(201);
}

const HAPPENED: [&str; 11] = [
    "book.created",
    "book.updated",
    "book.deleted",
    "review.created",
    "review.deleted",
    "loan.created",
    "loan.given",
    "loan.late",
    "loan.refused",
    "loan.updated",
    "report.ready",
];

/// Validators of one document, made once for each schema.
struct Contract {
    document: Value,
    made: BTreeMap<String, Validator>,
}

impl Contract {
    fn of(server: &Server, page: &str) -> Contract {
        Contract { document: server.get(page).expect(200), made: BTreeMap::new() }
    }

    /// Checks a value against the schema at a pointer.
    #[track_caller]
    fn check(&mut self, pointer: &str, value: &Value) {
        let document = &self.document;
        let validator = self.made.entry(pointer.to_owned()).or_insert_with(|| {
            let found = document.pointer(pointer);
            let mut schema = found.unwrap_or_else(|| panic!("{pointer} is missing")).clone();
            schema["components"] = document["components"].clone();
            jsonschema::validator_for(&schema).unwrap()
        });
        let wrong: Vec<String> = validator.iter_errors(value).map(|e| e.to_string()).collect();
        assert!(wrong.is_empty(), "{pointer}: {wrong:?}: {value}");
    }

    /// The pointer of a webhook's operation, which the types of one collection share.
    fn webhook(&self, kind: &str) -> String {
        let entry = &self.document["webhooks"][kind];
        let shared = entry["$ref"].as_str().unwrap_or_else(|| panic!("{kind}: {entry}"));
        format!("{}/post", &shared[1..])
    }

    /// Checks a request to an endpoint: its body and its headers.
    fn check_delivery(&mut self, request: &Received) {
        let webhook = self.webhook(&request.kind());
        let body = format!("{webhook}/requestBody/content/application~1json/schema");
        self.check(&body, &request.event());
        let parameters = self.document.pointer(&format!("{webhook}/parameters")).unwrap().clone();
        for parameter in parameters.as_array().unwrap() {
            let component = parameter["$ref"].as_str().unwrap()[1..].to_owned();
            let header = self.document.pointer(&component).unwrap().clone();
            let name = header["name"].as_str().unwrap().to_lowercase();
            match request.header(&name) {
                Some(value) => self.check(&format!("{component}/schema"), &json!(value)),
                None => assert_eq!(header["required"], false, "{name} is missing"),
            }
        }
    }
}

fn endpoint(server: &Server, sink: &Sink, more: &Value) {
    let mut body = json!({ "url": sink.url(),
        "enabled_events": ["*", "webhook_endpoint.*", "erasure.*"] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.post("/v1/webhook-endpoints", body).expect(201);
}

#[test]
fn every_delivery_matches_its_webhook_in_the_openapi_document() {
    let server = Start::schema(SHOP).go();
    let sinks = [Sink::start(), Sink::start()];
    endpoint(&server, &sinks[0], &json!({}));
    endpoint(&server, &sinks[1], &json!({"payload": "thin", "signature": "plain"}));
    use_the_shop(&server);
    let mut expected: BTreeSet<&str> = HAPPENED.into();
    expected.extend(["note.created", "ping", "erasure.created"]);
    let mut contract = Contract::of(&server, "/openapi.json");
    for sink in &sinks {
        eventually("every type is delivered", || {
            let received: BTreeSet<String> = sink.received().iter().map(Received::kind).collect();
            expected.iter().all(|kind| received.contains(*kind))
        });
        sink.received().iter().for_each(|request| contract.check_delivery(request));
    }
    assert_eq!(sinks[0].of("webhook_endpoint.created").len(), 1, "of the second endpoint");
    // Events of erased records are sent without their fields.
    let events = server.get("/v1/events?type=book.*&limit=100").expect(200);
    let erased = |event: &&Value| event["data"]["object"]["erased"] == true;
    let erased: Vec<&Value> = events["data"].as_array().unwrap().iter().filter(erased).collect();
    assert!(erased.len() >= 3, "{events}");
    for event in erased {
        let kind = event["type"].as_str().unwrap();
        let body = "requestBody/content/application~1json/schema";
        contract.check(&format!("{}/{body}", contract.webhook(kind)), event);
    }
}

/// One of each kind, and two that are refused.
fn client_messages() -> Vec<Value> {
    vec![
        json!({"type": "ping"}),
        json!({"type": "note", "ref": "n1", "data": {"text": "one"}}),
        json!({"type": "note", "ref": "n1", "data": {"text": "one"}}),
        json!({"type": "note", "text": "two"}),
        json!({"type": "note", "ref": "n2", "data": {}}),
        json!({"type": "nonsense"}),
        json!({"type": "typing", "data": {"room": "lobby"}}),
        json!({"type": "subscribe", "ref": "s1", "types": ["book.*"], "since": "1"}),
        json!({"type": "unsubscribe", "ref": "s1", "types": ["book.*"]}),
        json!({"type": "subscribe", "types": "erasure.*", "since": 999_999}),
    ]
}

#[test]
fn every_message_of_the_live_channels_matches_the_asyncapi_document() {
    let server = Start::schema(SHOP).go();
    let mut contract = Contract::of(&server, "/asyncapi.json");
    let all = "types=*,typing,online,erasure.*";
    let mut stream = Events::open(&server, &format!("/api/events?{all}&user=eve"));
    let mut socket = Socket::open(&server, &format!("/ws?{all}&user=ann"));
    use_the_shop(&server);
    let mut seen = BTreeSet::new();
    let mut read = |socket: &mut Socket, until: &dyn Fn(&BTreeSet<String>) -> bool| {
        while !until(&seen) {
            let message = socket.message();
            let kind = message["type"].as_str().unwrap().to_owned();
            contract.check(&format!("/components/messages/socket.{kind}/payload"), &message);
            seen.insert(kind);
        }
    };
    let expected = HAPPENED.into_iter().chain(["welcome", "note"]);
    read(&mut socket, &|seen| expected.clone().all(|kind| seen.contains(kind)));
    for sent in client_messages() {
        socket.say(sent);
    }
    let expected = ["pong", "ack", "error", "stream.reset"];
    read(&mut socket, &|seen| expected.iter().all(|kind| seen.contains(*kind)));
    let is_valid = |sent: &Value| sent["type"] != "nonsense" && sent["ref"] != "n2";
    for sent in client_messages().into_iter().filter(is_valid) {
        let kind = sent["type"].as_str().unwrap();
        contract.check(&format!("/components/messages/client-{kind}/payload"), &sent);
    }
    let mut seen = BTreeSet::new();
    while !seen.contains("typing") || !seen.contains("erasure.created") {
        let block = stream.event();
        let kind = block.event.clone().unwrap();
        contract.check(&format!("/components/messages/stream.{kind}/payload"), &block.json());
        let mut headers = json!({ "event": kind });
        if let Some(id) = &block.id {
            headers["id"] = json!(id);
        }
        contract.check(&format!("/components/messages/stream.{kind}/headers"), &headers);
        seen.insert(kind);
    }
    for kind in HAPPENED.into_iter().chain(["note", "typing", "online"]) {
        assert!(seen.contains(kind), "{kind} in {seen:?}");
    }
    let polled = server.get("/api/notes?since=0").expect(200);
    assert!(polled.as_array().is_some_and(|records| records.len() == 3), "{polled}");
    contract.check("/components/messages/pollNote.records/payload", &polled);
    let brief = token(&server, json!({"expires_in": 5, "types": ["note"]}));
    let stream = Events::try_open(server.address, &brief, "/api/events", None, PATIENCE);
    let mut stream = stream.unwrap();
    let closing = stream.named("stream.closing");
    contract.check("/components/messages/stream.stream.closing/payload", &closing.json());
}

#[test]
fn the_asyncapi_document_is_served_for_each_version_and_printed_by_the_command() {
    let versions = "[[versions]]\ndate = '2026-01-01'\n[[versions.changes]]\n\
        collection = 'books'\nrename = { from = 'name', to = 'title' }\n\
        [[versions]]\ndate = '2025-01-01'\n[collections.books.fields]\ntitle = 'string'\n";
    let server = Start::schema(versions).go();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("s.toml");
    std::fs::write(&file, versions).unwrap();
    for (date, field) in [("2026-01-01", "title"), ("2025-01-01", "name")] {
        let answer =
            server.ask_anonymously("GET", &format!("/asyncapi.json?version={date}")).send();
        assert_eq!(answer.header("restive-version"), Some(date));
        let served = answer.expect(200);
        let shown = &served["components"]["schemas"]["BookSnapshot"]["properties"];
        assert!(shown[field].is_object(), "{date}");
        let arguments = ["asyncapi", "--schema", "s.toml", "--api-version", date];
        let (printed, error, code) = run(folder.path(), &arguments);
        assert_eq!((code, error.as_str()), (0, ""));
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), served);
    }
    let newest = server.get("/asyncapi.json").expect(200);
    assert_eq!(newest["info"]["version"], "2026-01-01");
    server.get("/asyncapi.json?version=2024-01-01").error(400, "unknown_version");
    server.get("/asyncapi.json?x=1").error(400, "unknown_parameter");
    server.post("/asyncapi.json", json!({})).error(405, "method_not_allowed");
    let (_, error, code) = run(folder.path(), &["asyncapi", "--api-version", "2000-01-01"]);
    assert!(code == 1 && error.contains("there is no version 2000-01-01"), "{error}");
}

/// Every kind of change that shows in the fields of an event.
const CHANGED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
rename = { from = "name", to = "title" }
[[versions.changes]]
collection = "books"
convert = { field = "price", from = "number",
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }
[[versions.changes]]
collection = "books"
enum_map = { field = "cover", values = { soft = "paper" }, down = { audio = "soft" } }
[[versions.changes]]
collection = "books"
required = { field = "pages", fill = 1 }
[[versions.changes]]
collection = "books"
removed = { field = "shelf" }
[[versions]]
date = "2025-01-01"
[collections.books.fields]
title = "string"
price = "integer"
pages = { type = "integer", required = true }
shelf = "string"
cover = { type = "string", enum = ["paper", "audio"] }
"#;

#[test]
fn events_match_the_document_of_the_version_they_are_read_in() {
    let server = Start::schema(CHANGED).go();
    let old = json!({"name": "Emma", "price": 9.5, "cover": "soft", "shelf": "a"});
    let ask = server.ask("POST", "/v1/books").version("2025-01-01").json(&old);
    let emma = ask.send().expect(201)["id"].as_str().unwrap().to_owned();
    let new = json!({"title": "Dune", "price": 950, "cover": "audio", "pages": 412});
    let dune = server.make("/v1/books", new);
    for id in [emma, dune] {
        let path = format!("/v1/books/{id}");
        server.patch(&path, json!({"price": null, "cover": "paper", "title": "Both"})).expect(200);
        server.delete(&path).expect(200);
    }
    for (version, shown, hidden) in
        [("2026-01-01", "title", "name"), ("2025-01-01", "name", "title")]
    {
        let mut contract = Contract::of(&server, &format!("/openapi.json?version={version}"));
        let events = server.ask("GET", "/v1/events?type=book.*").version(version).send();
        let events = events.expect(200);
        assert_eq!(events["data"].as_array().unwrap().len(), 6, "{events}");
        for event in events["data"].as_array().unwrap() {
            let kind = event["type"].as_str().unwrap();
            let body = "requestBody/content/application~1json/schema";
            contract.check(&format!("{}/{body}", contract.webhook(kind)), event);
        }
        let described = "/components/schemas/BookSnapshot/properties";
        let described = contract.document.pointer(described).unwrap();
        assert!(described.get(shown).is_some() && described.get(hidden).is_none(), "{version}");
    }
}
