//! Rules of a collection that must hold at every door: states, required headers, operations, and
//! fields that responses must not show any more.

use crate::harness::{Answer, Server, Start};
use crate::live_client::{Events, Socket};
use serde_json::{Value, json};

const JOBS: &str = "[collections.jobs.fields]\ntitle = \"string\"\nstatus = \"string\"\n";
const JOBS_WITH_STATES: &str = r#"
[collections.jobs]
fields = { title = "string" }
states = { field = "status", names = ["a", "b", "c"] }
actions.go = { from = "b", to = "c" }
actions.note = {}
"#;

#[test]
fn a_record_without_a_state_gets_the_initial_state_when_states_are_declared() {
    let server = Start::schema(JOBS).go();
    let none = server.make("/v1/jobs", json!({ "title": "without" }));
    let some = server.make("/v1/jobs", json!({ "title": "with", "status": "b" }));
    let (_, folder) = server.stop();
    let server = Start::schema(JOBS_WITH_STATES).on(&folder).arg("--accept-changes").go();
    let go = |id: &str| server.post(&format!("/v1/jobs/{id}/go"), json!({}));
    assert_eq!(server.get(&format!("/v1/jobs/{none}")).expect(200)["status"], "a");
    assert_eq!(server.get("/v1/jobs?status=a").column("id"), [json!(none)]);
    let error = go(&none).error(409, "invalid_state");
    assert_eq!(error["current_state"], "a");
    assert_eq!(go(&some).expect(200)["status"], "c");
    // Nothing is left to do at the next start.
    let (_, folder) = server.stop();
    let server = Start::schema(JOBS_WITH_STATES).on(&folder).go();
    assert_eq!(server.get(&format!("/v1/jobs/{none}")).expect(200)["status"], "a");
}

#[test]
fn states_are_not_declared_over_values_that_are_no_states() {
    let server = Start::schema(JOBS).go();
    let odd = server.make("/v1/jobs", json!({ "title": "odd", "status": "done" }));
    let (_, folder) = server.stop();
    let start = || Start::schema(JOBS_WITH_STATES).on(&folder).arg("--accept-changes");
    let (code, error) = start().fails();
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("`status`") && error.contains(&odd), "{error}");
    let server = Start::schema(JOBS).on(&folder).go();
    server.patch(&format!("/v1/jobs/{odd}"), json!({ "status": "b" })).expect(200);
    let (_, folder) = server.stop();
    let server = Start::schema(JOBS_WITH_STATES).on(&folder).arg("--accept-changes").go();
    server.post(&format!("/v1/jobs/{odd}/go"), json!({})).expect(200);
}

#[test]
fn a_required_idempotency_key_is_required_on_a_socket_too() {
    let schema = "[collections.messages]\nfeed = true\nrequire_idempotency_key = true\n\
                  fields = { text = \"string\" }\n";
    let server = Start::schema(schema).go();
    server.post("/v1/messages", json!({ "text": "x" })).error(400, "idempotency_key_required");
    let mut socket = Socket::open(&server, "/ws");
    socket.say(json!({ "type": "message", "text": "without a ref" }));
    let refused = socket.typed("error");
    assert_eq!(refused["error"]["code"], "idempotency_key_required", "{refused}");
    assert_eq!(refused["error"]["param"], "ref");
    socket.say(json!({ "type": "message", "ref": "r1", "text": "with a ref" }));
    assert_eq!(socket.typed("ack")["ref"], "r1");
    assert_eq!(server.get("/v1/messages").column("text"), ["with a ref"]);
}

#[test]
fn a_collection_without_get_and_list_cannot_be_read_by_a_poll_or_an_expansion() {
    let schema = r#"
[collections.messages]
feed = true
operations = ["create"]
fields = { text = "string" }
[collections.secrets]
operations = ["create"]
fields = { text = "string" }
[collections.notes]
fields = { secret = { ref = "secrets" } }
[collections.answers]
parent = "notes"
operations = ["create", "get"]
fields = { text = "string" }
"#;
    let server = Start::schema(schema).go();
    server.post("/v1/messages", json!({ "text": "hidden message" })).expect(201);
    for path in ["/api/messages", "/api/messages?since=0", "/api/messages?since=0&wait=true"] {
        let answer = server.get(path);
        assert_eq!(answer.header("allow"), Some("OPTIONS"), "{path}: {}", answer.text);
        answer.error(405, "method_not_allowed");
    }
    let document = server.get("/openapi.json").expect(200);
    assert_eq!(document["paths"].get("/api/messages"), None, "it is not documented either");
    let secret = server.make("/v1/secrets", json!({ "text": "hidden secret" }));
    let note = server.make("/v1/notes", json!({ "secret": secret }));
    server.make(&format!("/v1/notes/{note}/answers"), json!({ "text": "an answer" }));
    for path in ["/v1/notes?expand=".to_owned(), format!("/v1/notes/{note}?expand=")] {
        for name in ["secret", "answers"] {
            let error = server.get(&format!("{path}{name}")).error(400, "invalid_parameter");
            assert_eq!(error["param"], "expand", "{error}");
        }
    }
    assert_eq!(server.get(&format!("/v1/notes/{note}")).expect(200)["secret"], json!(secret));
}

/// A value that was readable is readable nowhere once the operator accepted its loss.
#[test]
fn a_field_that_became_write_only_is_erased_from_events_and_stored_responses() {
    let first = "[collections.cards.fields]\nname = \"string\"\npin = \"string\"\n";
    let second = "[collections.cards.fields]\nname = \"string\"\n\
                  pin = { type = \"string\", write_only = true }\n";
    let server = Start::schema(first).go();
    let card = server.ask("POST", "/v1/cards").header("idempotency-key", "k1");
    let card = card.json(&json!({ "name": "ann", "pin": "pin-7731" })).send().expect(201);
    let path = format!("/v1/cards/{}", card["id"].as_str().unwrap());
    let same = |server: &Server| -> Answer {
        let ask = server.ask("PATCH", &path).header("idempotency-key", "k2");
        ask.json(&json!({ "name": "ann" })).send()
    };
    // An update without an effect has no event, so its response is stored with its own text.
    assert_eq!(same(&server).expect(200)["pin"], "pin-7731");
    server.patch(&path, json!({ "pin": "pin-7732" })).expect(200);
    server.delete(&path).expect(200);
    let (_, folder) = server.stop();
    let server = Start::schema(second).on(&folder).arg("--accept-data-loss").go();
    let listed = server.get("/v1/events");
    assert_eq!(listed.column("type").len(), 3, "{}", listed.text);
    let again = server.ask("POST", "/v1/cards").header("idempotency-key", "k1");
    let again = again.json(&json!({ "name": "ann", "pin": "pin-7731" })).send();
    assert_eq!((again.status, &again.json["name"]), (201, &json!("ann")), "{}", again.text);
    let updated = same(&server);
    assert_eq!((updated.status, &updated.json["name"]), (200, &json!("ann")), "{}", updated.text);
    let mut stream = Events::open(&server, "/api/events?since=0");
    let sent: Vec<Value> = (0..3).map(|_| stream.event().json()).collect();
    for text in [listed.text, again.text, updated.text, json!(sent).to_string()] {
        assert!(text.contains("ann") && !text.contains("pin-77"), "{text}");
    }
}

#[test]
fn a_required_if_match_needs_the_tag_of_the_record() {
    let schema = "[collections.books]\nrequire_if_match = true\n[collections.books.fields]\n\
                  title = \"string\"\n";
    let server = Start::schema(schema).go();
    let made = server.post("/v1/books", json!({ "title": "a" }));
    let (path, tag) = (format!("/v1/books/{}", made.id()), made.header("etag").unwrap());
    let ask = |name: &str, value: &str| {
        let ask = server.ask("PATCH", &path).header(name, value);
        ask.json(&json!({ "title": "b" })).send()
    };
    for (name, value) in [
        ("if-match", "*"),
        ("if-unmodified-since", "Tue, 31 Dec 2999 23:59:59 GMT"),
        ("if-none-match", "\"7-1\""),
    ] {
        let error = ask(name, value).error(428, "precondition_required");
        assert_eq!(error["param"], "If-Match", "{name}");
    }
    // Another way to write the same version is another tag.
    for sign in ["+", "0"] {
        let other = format!("\"{sign}{}", tag.trim_start_matches('"'));
        ask("if-match", &other).error(412, "precondition_failed");
    }
    assert_eq!(server.get(&path).expect(200)["title"], "a");
    ask("if-match", &format!("\"1-1\", {tag}")).expect(200);
    server.ask("DELETE", &path).header("if-match", "*").send().error(428, "precondition_required");
}

#[test]
fn events_do_not_show_the_values_of_an_endpoints_headers() {
    let server = Start::schema("[collections.orders.fields]\nnote = 'string'").go();
    let body = json!({
        "url": "https://hooks.example.com/in",
        "headers": { "Authorization": "Bearer theirs-1", "X-Shop": "theirs-2" },
    });
    let make = || {
        let ask = server.ask("POST", "/v1/webhook-endpoints").header("idempotency-key", "e1");
        ask.json(&body).send()
    };
    let made = make();
    assert_eq!(made.json["headers"], body["headers"], "{}", made.text);
    assert_eq!(make().text, made.text, "the repetition is the same response");
    let path = format!("/v1/webhook-endpoints/{}", made.id());
    server.patch(&path, json!({ "headers": { "X-Shop": "theirs-3" } })).expect(200);
    assert_eq!(server.get(&path).expect(200)["headers"]["X-Shop"], "theirs-3");
    server.post(&format!("{path}/disable"), json!({})).expect(200);
    server.delete(&path).expect(200);
    let listed = server.get("/v1/events?sort=created");
    // The second is the ping.
    let shown = listed.column("data");
    assert_eq!(shown.len(), 5, "{}", listed.text);
    let masked = json!({ "Authorization": "********", "X-Shop": "********" });
    assert_eq!(shown[0]["object"]["headers"], masked);
    assert_eq!(shown[1]["object"]["headers"], masked);
    assert_eq!(shown[2]["previous_attributes"]["headers"], masked);
    let mut stream = Events::open(&server, "/api/events?since=0&types=webhook_endpoint.*");
    let sent: Vec<Value> = (0..4).map(|_| stream.event().json()).collect();
    for text in [listed.text, json!(sent).to_string()] {
        assert!(text.contains("X-Shop") && !text.contains("theirs"), "{text}");
    }
}
