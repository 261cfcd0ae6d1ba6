//! Formulas of a version that are costly for the values of one account: the responses, streams and
//! webhooks of another account do not wait for them. Tests compare the order of responses, never
//! their duration.

use crate::auth::account;
use crate::deliveries::endpoint;
use crate::harness::{PATIENCE, Server, Start, eventually};
use crate::live_client::{Events, Socket};
use crate::sink::Sink;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const OLD: &str = "2025-01-01";

/// `down` compiles a pattern for each tag.
const SHOP: &str = r#"
[service]
rate_limit = { requests = 1000000, window = "1s" }
[webhooks]
development = true
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "notes"
[versions.changes.convert]
field = "tags"
from = { type = "array", items = "string" }
up = "value"
down = "value.filter(tag, tag.matches('^([a-z]{1,40}-)?[a-z]{1,40}$'))"
lossy = true
[[versions]]
date = "2025-01-01"
[collections.notes.fields]
tags = { type = "array", items = "string" }
text = "string"
"#;

/// As many as the formulas of one record may look at.
const TAGS: usize = 15;

fn costly(text: &str) -> Value {
    let mut tags = vec!["Capital"];
    tags.resize(TAGS, "small");
    json!({ "text": text, "tags": tags })
}

fn write_costly(server: &Server, count: usize) {
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                for number in 0..count / 4 {
                    let note = costly(&format!("{part} {number}"));
                    server.post("/v1/notes", note).expect(201);
                }
            });
        }
    });
}

#[test]
fn lists_in_an_old_version_with_costly_formulas_do_not_delay_another_account() {
    const CLIENTS: usize = 8;
    let server = Start::schema(SHOP).go();
    let (_, other, _) = account(&server, "Other shop");
    write_costly(&server, 100);
    let theirs = server.ask("POST", "/v1/notes").key(&other).json(&costly("theirs")).send();
    let path = format!("/v1/notes/{}", theirs.id());
    let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let list = server.ask("GET", "/v1/notes?limit=100").version(OLD).send();
                    assert_eq!(list.status, 200, "{}", list.text);
                    let tags = list.column("tags");
                    assert!(tags.len() == 100 && tags[0].as_array().unwrap().len() == TAGS - 1);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        eventually("the first lists are read", || done.load(Ordering::SeqCst) > CLIENTS);
        let before = done.load(Ordering::SeqCst);
        for _ in 0..20 {
            server.ask("GET", &path).key(&other).send().expect(200);
        }
        let passed = done.load(Ordering::SeqCst) - before;
        stop.store(true, Ordering::SeqCst);
        // On the threads of the connections, each of the twenty would wait for several lists.
        assert!(passed <= 20, "{passed} lists of the other account came first");
    });
}

#[test]
fn streams_in_an_old_version_with_costly_formulas_do_not_delay_another_account() {
    const EVENTS: usize = 400;
    let server = Start::schema(SHOP).go();
    let (_, other, _) = account(&server, "Other shop");
    let begin = server.get("/v1/notes").header("x-stream-position").unwrap().to_owned();
    let open_theirs = || {
        let target = "/api/events?types=note.*";
        Events::try_open(server.address, &other, target, None, PATIENCE).unwrap()
    };
    let mut theirs = open_theirs();
    write_costly(&server, EVENTS);
    let received = AtomicUsize::new(0);
    let streams = format!("/api/events?types=note.*&version={OLD}&since={begin}");
    let sockets = format!("/ws?version={OLD}&types=note.*&since={begin}");
    std::thread::scope(|scope| {
        let (server, received) = (&server, &received);
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut events = Events::open(server, &streams);
            clients.push(scope.spawn(move || {
                for _ in 0..EVENTS {
                    let object = events.named("note.created").json()["data"]["object"].clone();
                    assert_eq!(object["tags"].as_array().unwrap().len(), TAGS - 1, "{object}");
                    received.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        let mut socket = Socket::open(server, &sockets);
        clients.push(scope.spawn(move || {
            for _ in 0..EVENTS {
                socket.typed("note.created");
            }
        }));
        eventually("the first events come", || received.load(Ordering::SeqCst) > 0);
        for number in 0..10 {
            let note = json!({ "text": format!("{number}"), "tags": [] });
            server.ask("POST", "/v1/notes").key(&other).json(&note).send().expect(201);
            let object = theirs.named("note.created").json()["data"]["object"].clone();
            assert_eq!(object["text"], format!("{number}"));
            server.ask("GET", "/v1/notes").key(&other).send().expect(200);
        }
        let passed = received.load(Ordering::SeqCst);
        // The other account did its work while most of the events were still being converted.
        assert!(passed < 4 * EVENTS / 2, "{passed} events came first");
        for client in clients {
            client.join().unwrap();
        }
    });
}

#[test]
fn webhooks_in_an_old_version_with_costly_formulas_do_not_delay_another_account() {
    const EVENTS: usize = 80;
    let server = Start::schema(SHOP).go();
    let (_, other, _) = account(&server, "Other shop");
    let (old, new) = (Sink::start(), Sink::start());
    endpoint(&server, &old, json!({"api_version": OLD, "enabled_events": ["note.*"]}));
    let body = json!({"url": new.url(), "enabled_events": ["note.*"]});
    server.ask("POST", "/v1/webhook-endpoints").key(&other).json(&body).send().expect(201);
    let first = std::thread::scope(|scope| {
        scope.spawn(|| write_costly(&server, EVENTS));
        eventually("the busy account has events", || !old.of("note.created").is_empty());
        let note = json!({ "text": "theirs", "tags": [] });
        server.ask("POST", "/v1/notes").key(&other).json(&note).send().expect(201);
        eventually("the other account has its event", || !new.of("note.created").is_empty());
        old.of("note.created").len()
    });
    assert!(first < EVENTS, "all events of the busy account came first");
    eventually("the busy account has all its events", || old.of("note.created").len() == EVENTS);
    for received in old.of("note.created") {
        let tags = received.event()["data"]["object"]["tags"].clone();
        assert_eq!(tags.as_array().unwrap().len(), TAGS - 1, "{tags}");
    }
}

/// What a value costs must not depend on what else is in the record, except where the sum is too
/// much: then the old version shows null, and a write in it is refused.
#[test]
fn formulas_of_one_record_have_a_common_limit() {
    let schema =
        SHOP.replace("text = \"string\"", "text = { type = \"string\" }\nmore = \"object\"");
    let server = Start::schema(&schema).go();
    let note = |tags: usize| json!({ "tags": vec!["small"; tags] });
    for (tags, is_shown) in [(TAGS, true), (100, false)] {
        let id = server.make("/v1/notes", note(tags));
        let shown = server.ask("GET", &format!("/v1/notes/{id}")).version(OLD).send().expect(200);
        assert_eq!(shown["tags"].is_array(), is_shown, "{tags}: {shown}");
    }
}
