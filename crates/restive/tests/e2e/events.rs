//! The event log as a resource: events, their cause, and events that applications publish.

use crate::auth::account;
use crate::harness::{Server, Start};
use serde_json::{Value, json};

fn kinds(server: &Server, query: &str) -> Vec<String> {
    let column = server.get(&format!("/v1/events?{query}")).column("type");
    column.iter().map(|kind| kind.as_str().unwrap_or("?").to_owned()).collect()
}

#[test]
fn every_change_is_an_event_with_the_envelope_of_the_spec() {
    let server = Server::bookshop();
    let made = server.ask("POST", "/v1/books").header("idempotency-key", "k1");
    let made = made.json(&json!({"title": "Dune", "author": "Frank Herbert"})).send();
    let id = made.id();
    let changed = server.patch(&format!("/v1/books/{id}"), json!({"title": "Dune Messiah"}));
    server.delete(&format!("/v1/books/{id}")).expect(200);
    let listed = server.get("/v1/events?limit=3").expect(200);
    let [deleted, updated, created] = [0, 1, 2].map(|place| listed["data"][place].clone());
    assert_eq!(created["object"], "event");
    assert_eq!(created["type"], "book.created");
    assert_eq!(created["data"]["object"], made.json);
    assert_eq!(created["data"].get("previous_attributes"), None);
    assert_eq!(created["api_version"], "2026-11-01");
    assert!(created["created"].as_i64().unwrap() > 1_700_000_000);
    assert_eq!(created["livemode"], false);
    assert_eq!(created["pending_webhooks"], 0);
    let request = json!({"id": made.header("request-id").unwrap(), "idempotency_key": "k1"});
    assert_eq!(created["request"], request);
    assert_eq!(updated["type"], "book.updated");
    assert_eq!(updated["data"]["object"], changed.json);
    assert_eq!(updated["data"]["previous_attributes"], json!({"title": "Dune"}));
    assert_eq!(deleted["type"], "book.deleted");
    let members: Vec<&str> = created.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = vec![
        "id",
        "object",
        "type",
        "api_version",
        "created",
        "data",
        "livemode",
        "pending_webhooks",
        "request",
        "actor",
    ];
    expected.sort_unstable();
    assert_eq!(members, expected, "these members and no others");
    let path = format!("/v1/events/{}", created["id"].as_str().unwrap());
    assert_eq!(server.get(&path).expect(200), created);
}

#[test]
fn events_are_filtered_by_type_time_resource_and_walked_by_cursor() {
    let server = Server::bookshop();
    let id = server.book("A");
    server.make("/v1/orders", json!({"book": id, "quantity": 1}));
    server.patch(&format!("/v1/books/{id}"), json!({"title": "B"})).expect(200);
    assert_eq!(kinds(&server, "type=book.*"), ["book.updated", "book.created"]);
    assert_eq!(
        kinds(&server, "type=order.created,book.created"),
        ["order.created", "book.created"]
    );
    assert_eq!(kinds(&server, "type=*.created"), ["order.created", "book.created"]);
    assert_eq!(kinds(&server, &format!("resource={id}")), ["book.updated", "book.created"]);
    assert_eq!(kinds(&server, "min_created=4000000000"), [""; 0]);
    assert_eq!(kinds(&server, "max_created=4000000000&sort=created").len(), 3);
    let first = server.get("/v1/events?limit=2&sort=created").expect(200);
    let cursor = first["pagination"]["next_cursor"].as_str().unwrap();
    let rest = server.get(&format!("/v1/events?limit=2&sort=created&after={cursor}"));
    assert_eq!(rest.column("type"), ["book.updated"]);
    for (bad, param) in [
        ("type=book'*", "type"),
        ("delivery=lost", "delivery"),
        ("min_created=yesterday", "min_created"),
        ("sort=type", "sort"),
        ("created_at=2026-01-01", "created_at"),
    ] {
        let answer = server.get(&format!("/v1/events?{bad}"));
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text);
        assert_eq!(answer.json["error"]["param"], param);
    }
    server.get("/v1/events/evt_none").error(404, "not_found");
    server.delete(&format!("/v1/events/{id}")).error(405, "method_not_allowed");
}

#[test]
fn an_application_can_publish_events_of_declared_types() {
    let server = Server::bookshop();
    let said = json!({
        "type": "report.ready", "resource": "report_1",
        "data": {"object": {"id": "report_1", "pages": 7}},
    });
    let publish = |body: &Value| {
        server.ask("POST", "/v1/events").header("idempotency-key", "r1").json(body).send()
    };
    let made = publish(&said);
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.header("location"), Some(format!("/v1/events/{}", made.id()).as_str()));
    assert_eq!(made.json["data"], said["data"]);
    assert_eq!(made.json["request"]["idempotency_key"], "r1");
    assert_eq!(publish(&said).text, made.text, "repeated, not published again");
    assert_eq!(kinds(&server, "resource=report_1"), ["report.ready"]);
    for (bad, field) in [
        (json!({"type": "report.lost", "data": {"object": {}}}), "type"),
        (json!({"type": "book.created", "data": {"object": {}}}), "type"),
        (json!({"type": "report.ready", "data": {}}), "data"),
        (json!({"type": "report.ready", "data": {"object": 7}}), "data"),
        (json!({"type": "report.ready", "data": {"object": {}, "more": 1}}), "data"),
        (json!({"type": "report.ready"}), "data"),
        (json!({"type": "report.ready", "data": {"object": {}}, "livemode": true}), "livemode"),
        (json!({"type": "report.ready", "data": {"object": {}}, "delivery": "x"}), "delivery"),
    ] {
        let error = server.post("/v1/events", bad.clone()).error(422, "validation_failed");
        assert_eq!(error["errors"][0]["field"], field, "{bad}");
    }
}

#[test]
fn erasing_a_resource_removes_its_payloads_and_leaves_the_events() {
    let server = Server::bookshop();
    let id = server.book("Secret title");
    server.patch(&format!("/v1/books/{id}"), json!({"title": "Other"})).expect(200);
    let erasure = server.post("/v1/erasures", json!({"resource": id})).expect(201);
    assert_eq!(erasure["events"], 2);
    let left = server.get(&format!("/v1/events?resource={id}"));
    assert_eq!(left.column("type"), ["book.updated", "book.created"]);
    assert!(!left.text.contains("Secret title"), "{}", left.text);
    assert_eq!(left.json["data"][0]["data"]["object"]["erased"], true);
    server.post("/v1/erasures", json!({"resource": "book_none"})).error(422, "validation_failed");
}

#[test]
fn events_belong_to_one_account_and_mode_and_keys_create_no_visible_events() {
    let server = Server::bookshop();
    server.book("A");
    let (out, _, code) = server.tool(&["keys", "create", "--mode", "live"]);
    assert_eq!(code, 0);
    let live = out.split_whitespace().find(|word| word.starts_with("sk_live_")).unwrap();
    let theirs = server.ask("GET", "/v1/events").key(live).send();
    assert_eq!(theirs.column("type"), [""; 0]);
    assert_eq!(kinds(&server, ""), ["book.created"], "the key that was made is nobody's event");
    let (_, other, other_live) = account(&server, "other");
    let seen = |key: &str| server.ask("GET", "/v1/events").key(key).send();
    assert_eq!(seen(&other).column("type"), [""; 0], "a new account has no events");
    let theirs = json!({"from": "b", "text": "theirs"});
    let made = server.ask("POST", "/v1/messages").key(&other).json(&theirs).send();
    made.expect(201);
    assert_eq!(seen(&other).column("type"), ["message.created"]);
    assert_eq!(kinds(&server, ""), ["book.created"], "nobody else sees it");
    for key in [live, &other_live] {
        assert_eq!(seen(key).column("type"), [""; 0], "nor does the other mode");
    }
    // Neither by its id nor by the id of its record.
    let own = server.get("/v1/events").expect(200)["data"][0].clone();
    let path = format!("/v1/events/{}", own["id"].as_str().unwrap());
    server.get(&path).expect(200);
    let resource = format!("/v1/events?resource={}", own["data"]["object"]["id"].as_str().unwrap());
    assert_eq!(server.get(&resource).column("id").len(), 1);
    for key in [live, &other, &other_live] {
        server.ask("GET", &path).key(key).send().error(404, "not_found");
        let found = server.ask("GET", &resource).key(key).send();
        assert_eq!(found.column("id").len(), 0, "{key}");
    }
}

#[test]
fn publishing_without_declared_types_is_refused_with_advice() {
    let server = Start::schema("[collections.books.fields]\ntitle = 'string'").go();
    let body = json!({"type": "report.ready", "data": {"object": {}}});
    let error = server.post("/v1/events", body).error(422, "validation_failed");
    assert!(error["message"].as_str().unwrap().contains("[events.types]"), "{error}");
}
