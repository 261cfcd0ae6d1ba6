//! `/v1/requests` and `/v1/stats`: what an account did lately, for itself only.

use crate::auth::{account, create};
use crate::harness::{KEY, PATIENCE, Server, eventually};
use crate::live_client::{Opened, bearer, token};
use crate::sink::Sink;
use serde_json::{Value, json};

#[test]
fn recent_requests_are_listed_filtered_and_paged_for_their_account_only() {
    let server = Server::bookshop();
    let (_, other, _) = account(&server, "other");
    let book = server.book("Dune");
    let missing = server.get("/v1/books/book_missing?fields=title");
    let id = missing.header("request-id").unwrap().to_owned();
    missing.error(404, "not_found");
    for _ in 0..2 {
        let ask = server.ask("POST", "/v1/books").header("idempotency-key", "once");
        let body = json!({ "title": "Emma", "author": "Jane Austen" });
        ask.json(&body).send().expect(201);
    }
    let ask = token(&server, json!({ "user": "ann" }));
    server.ask("GET", "/api/messages").key(&ask).send().expect(200);
    server.ask("GET", "/v1/orders").key(&other).send().expect(200);
    let shown = server.get(&format!("/v1/requests/{id}")).expect(200);
    for (member, expected) in [
        ("object", json!("request")),
        ("id", json!(id)),
        ("method", json!("GET")),
        ("path", json!("/v1/books/book_missing")),
        ("route", json!("/v1/books/{book_id}")),
        ("status", json!(404)),
        ("code", json!("not_found")),
        ("user", Value::Null),
        ("idempotent_replayed", json!(false)),
        ("ip", json!("127.0.0.1")),
    ] {
        assert_eq!(shown[member], expected, "{member}");
    }
    assert!(shown["message"].as_str().unwrap().contains("book_missing"), "{shown}");
    assert!(shown["duration_ms"].as_f64().is_some() && shown["key"].is_string(), "{shown}");
    let listed = |query: &str| server.get(&format!("/v1/requests?{query}"));
    assert_eq!(listed("status=4xx&code=not_found").column("id"), [json!(id)]);
    assert_eq!(listed("status=404&method=get").column("id"), [json!(id)]);
    let created = listed("method=POST&route=/v1/books");
    assert_eq!(created.column("idempotent_replayed"), [json!(true), json!(false), json!(false)]);
    let polls = listed("route=/api/messages");
    assert_eq!(polls.column("user"), [json!("ann")]);
    let mine = listed("limit=100");
    assert!(!mine.text.contains("/v1/orders"), "{}", mine.text);
    assert!(!mine.text.contains("sk_test") && !mine.text.contains(&ask), "no secrets");
    // Pages continue where the last one ended.
    let first = listed("limit=2&method=POST&route=/v1/books");
    let cursor = first.json["pagination"]["next_cursor"].as_str().unwrap();
    let next = listed(&format!("limit=2&method=POST&route=/v1/books&after={cursor}"));
    assert_eq!((next.column("id").len(), &next.json["pagination"]["has_more"]), (1, &json!(false)));
    let theirs = server.ask("GET", "/v1/requests").key(&other).send();
    assert!(theirs.column("path").contains(&json!("/v1/orders")), "{}", theirs.text);
    assert!(!theirs.text.contains(&book), "{}", theirs.text);
    let one = server.ask("GET", &format!("/v1/requests/{id}")).key(&other);
    one.send().error(404, "not_found");
}

#[test]
fn wrong_questions_about_requests_are_refused() {
    let server = Server::bookshop();
    let listed = |query: &str| server.get(&format!("/v1/requests?{query}"));
    for (query, code) in [
        ("status=4x", "invalid_parameter"),
        ("status=999", "invalid_parameter"),
        ("status=%2B404", "invalid_parameter"),
        ("status=0404", "invalid_parameter"),
        // Larger than a 64-bit integer.
        ("limit=9223372036854775808", "invalid_parameter"),
        ("limit=0", "invalid_parameter"),
        ("limit=x", "invalid_parameter"),
        ("after=req_0", "cursor_invalid"),
        ("path=/v1/books", "unknown_parameter"),
        ("status=404&status=500", "invalid_parameter"),
    ] {
        listed(query).error(400, code);
    }
    server.get("/v1/requests/req_0").error(404, "not_found");
    server.post("/v1/requests", json!({})).error(405, "method_not_allowed");
    let (_, books) = create(&server, &["--scope", "books:read"]);
    let (_, reader) = create(&server, &["--scope", "requests:read", "--scope", "stats:read"]);
    for path in ["/v1/requests", "/v1/stats"] {
        server.ask("GET", path).key(&books).send().error(403, "permission_denied");
        server.ask("GET", path).key(&reader).send().expect(200);
        server.ask_anonymously("GET", path).send().error(401, "authentication_required");
    }
}

#[test]
fn statistics_count_requests_errors_deliveries_and_connections_of_one_account() {
    let server = Server::bookshop();
    let (_, other, _) = account(&server, "other");
    let sink = Sink::start();
    let endpoint = json!({ "url": sink.url(), "enabled_events": ["book.*"] });
    server.make("/v1/webhook-endpoints", endpoint);
    for title in ["Dune", "Emma", "Ulysses"] {
        server.book(title);
    }
    for _ in 0..2 {
        server.get("/v1/books/book_missing").error(404, "not_found");
    }
    let last = server.post("/v1/books", json!({}));
    let last_id = last.header("request-id").unwrap().to_owned();
    last.error(422, "validation_failed");
    let headers = [bearer(KEY)];
    let _stream = Opened::try_get(server.address, "/api/events", &headers, PATIENCE).unwrap();
    let of = |key: &str| server.ask("GET", "/v1/stats").key(key).send().expect(200);
    eventually("the deliveries are counted", || of(KEY)["deliveries"]["delivered"] == 4);
    let stats = of(KEY);
    assert_eq!((&stats["object"], &stats["interval"]), (&json!("stats"), &json!(60)));
    let points = stats["points"].as_array().unwrap();
    assert_eq!(points.len(), 60);
    let sum = |name: &str| -> u64 { points.iter().filter_map(|one| one[name].as_u64()).sum() };
    assert!(sum("requests") >= 8, "{stats}");
    assert_eq!((sum("client_errors"), sum("server_errors"), sum("commits")), (3, 0, 4));
    let now = points.iter().rev().find(|one| one["requests"] != 0).unwrap();
    let (p50, p99) = (now["p50_ms"].as_f64().unwrap(), now["p99_ms"].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99, "{now}");
    assert_eq!(points[0]["p50_ms"], Value::Null);
    let errors = stats["errors"].as_array().unwrap();
    assert_eq!(errors[0]["code"], "not_found");
    assert_eq!(
        (&errors[0]["count"], &errors[0]["route"]),
        (&json!(2), &json!("/v1/books/{book_id}"))
    );
    assert_eq!(
        (&errors[1]["code"], &errors[1]["last_request"]),
        (&json!("validation_failed"), &json!(last_id))
    );
    assert_eq!(stats["versions"].as_array().unwrap().len(), 1);
    assert_eq!(stats["connections"], json!({ "sse": 1, "websocket": 0, "poll": 0 }));
    let deliveries = &stats["deliveries"];
    assert_eq!((&deliveries["pending"], &deliveries["failed"]), (&json!(0), &json!(0)));
    assert_eq!(deliveries["oldest_pending_at"], Value::Null);
    let theirs = of(&other);
    assert_eq!((&theirs["errors"], &theirs["deliveries"]["delivered"]), (&json!([]), &json!(0)));
    assert_eq!(theirs["connections"]["sse"], 0);
    server.get("/v1/stats?x=1").error(400, "unknown_parameter");
    // Events say who caused them.
    let own = server.get("/v1/keys").column("id");
    let created = server.get("/v1/events?type=book.created&limit=1");
    assert_eq!(created.column("actor"), [json!({ "key": own[0], "user": null })]);
    assert!(created.column("request")[0]["id"].as_str().unwrap().starts_with("req_"));
    let sent = sink.of("book.created");
    assert_eq!(sent[0].event()["actor"]["key"], own[0]);
    // Deliveries say what they are about. They are counted before they are written down.
    eventually("all are listed with their types", || {
        let mut types = server.get("/v1/deliveries").column("event_type");
        types.sort_by_key(Value::to_string);
        types == ["book.created", "book.created", "book.created", "ping"]
    });
}
