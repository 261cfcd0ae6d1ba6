//! Webhook endpoints as a resource: validation, and the fields that responses show.

use crate::harness::{Server, Start};
use serde_json::{Value, json};

/// A service that is not in development: https only, public addresses only.
const STRICT: &str = "[collections.orders.fields]\nnote = 'string'";

fn endpoint(with: Value) -> Value {
    let mut body = json!({"url": "https://hooks.example.com/in"});
    body.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    body
}

#[test]
fn a_new_endpoint_has_its_defaults_and_shows_its_secret_once() {
    let server = Start::schema(STRICT).go();
    let made = server.ask("POST", "/v1/webhook-endpoints").header("idempotency-key", "e1");
    let made = made.json(&endpoint(json!({}))).send();
    assert_eq!(made.status, 201, "{}", made.text);
    let body = &made.json;
    let secret = body["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 38, "{secret}");
    for (name, value) in [
        ("object", json!("webhook_endpoint")),
        ("enabled_events", json!(["*"])),
        ("payload", json!("fat")),
        ("signature", json!("timestamped")),
        ("retry_schedule", json!([60, 300, 1800, 7200, 43_200, 43_200, 43_200])),
        ("timeout", json!(20)),
        ("ordering", json!("none")),
        ("status", json!("enabled")),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
    let path = format!("/v1/webhook-endpoints/{}", made.id());
    for shown in [server.get(&path), server.get("/v1/webhook-endpoints"), server.get("/v1/events")]
    {
        assert!(!shown.text.contains("whsec_"), "{}", shown.text);
    }
    // A client that lost the response has lost the secret, so the repetition shows it again.
    let again = server.ask("POST", "/v1/webhook-endpoints").header("idempotency-key", "e1");
    assert_eq!(again.json(&endpoint(json!({}))).send().text, made.text);
    let own = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
    let brought = server.post("/v1/webhook-endpoints", endpoint(json!({"secret": own})));
    assert_eq!(brought.expect(201)["secret"], own);
    let rotated = server.post(&format!("{path}/rotate-secret"), json!({})).expect(200);
    assert_ne!(rotated["secret"], secret);
    server.patch(&path, json!({"secret": own})).error(422, "validation_failed");
    server.put(&path, endpoint(json!({}))).error(405, "method_not_allowed");
    let (_, folder) = server.stop();
    let server = Start::schema(STRICT).on(&folder).go();
    assert!(!server.get(&path).text.contains("whsec_"));
}

#[test]
fn an_endpoint_is_disabled_enabled_changed_and_deleted() {
    let server = Start::schema(STRICT).go();
    let made = server.post("/v1/webhook-endpoints", endpoint(json!({})));
    let path = format!("/v1/webhook-endpoints/{}", made.id());
    let act = |action: &str| server.post(&format!("{path}/{action}"), json!({})).expect(200);
    assert_eq!(act("disable")["status"], "disabled");
    assert_eq!(act("enable")["status"], "enabled");
    let patched = server.patch(&path, json!({"enabled_events": ["order.*"], "status": "disabled"}));
    assert_eq!(patched.expect(200)["enabled_events"], json!(["order.*"]));
    server.patch(&path, json!({"enabled_events": ["ordr.*"]})).error(422, "validation_failed");
    server.delete(&path).expect(200);
    let kinds = server.get("/v1/events?type=webhook_endpoint.*&sort=created").column("type");
    let expected = ["created", "disabled", "enabled", "updated", "deleted"]
        .map(|w| format!("webhook_endpoint.{w}"));
    assert_eq!(kinds, expected);
}

#[test]
fn forbidden_endpoint_urls_are_refused_in_every_spelling() {
    let server = Start::schema(STRICT).go();
    for url in [
        "http://hooks.example.com/",
        "ftp://hooks.example.com/",
        "javascript:alert(1)",
        "hooks.example.com/in",
        "https://",
        "https://user:pass@hooks.example.com/",
        "https://hooks.example.com/#part",
        "https://hooks.example.com:0/",
        "https://hooks example.com/",
        "https://localhost/",
        "https://shop.local/",
        "https://intranet/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://10.1.2.3/",
        "https://192.168.1.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://100.64.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:a9fe:a9fe]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[fd00:ec2::254]/",
        "https://[fe80::1%25eth0]/",
        "https://[fe80::1]/",
        "https://bücher.example/",
    ] {
        let answer = server.post("/v1/webhook-endpoints", json!({"url": url}));
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["errors"][0]["field"], "url", "{url}");
    }
    for url in [
        "https://hooks.example.com:8443/in?x=1",
        "https://93.184.216.34/",
        "https://[2606:2800::1]/",
    ] {
        server.post("/v1/webhook-endpoints", json!({"url": url})).expect(201);
    }
    let open = Server::bookshop();
    for url in ["http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/", "http://10.0.0.1/"]
    {
        open.post("/v1/webhook-endpoints", json!({"url": url, "status": "disabled"})).expect(201);
    }
    for url in
        ["http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://[::ffff:169.254.169.254]/"]
    {
        open.post("/v1/webhook-endpoints", json!({"url": url})).error(422, "validation_failed");
    }
}

#[test]
fn all_errors_of_an_endpoint_are_reported_at_once() {
    let server = Start::schema(STRICT).go();
    for (field, value) in [
        ("enabled_events", json!([])),
        ("enabled_events", json!(["order.lost"])),
        ("enabled_events", json!(["*.created"])),
        ("enabled_events", json!(["key.created"])),
        ("enabled_events", json!(null)),
        ("api_version", json!("2020-01-01")),
        ("payload", json!("slim")),
        ("filter", json!("event.type ==")),
        ("headers", json!({"Host": "x"})),
        ("headers", json!({"Webhook-Id": "x"})),
        ("headers", json!({"Content-Type": "x"})),
        ("headers", json!({"X-Bad Name": "x"})),
        ("headers", json!({"X-Line": "a\r\nX-Evil: b"})),
        ("headers", json!({"X-Number": 7})),
        ("headers", json!({"X-Long": "x".repeat(5000)})),
        ("rate_limit", json!(0)),
        ("max_in_flight", json!(101)),
        ("signature", json!("none")),
        ("retry_schedule", json!([0])),
        ("retry_schedule", json!([1_000_000])),
        ("retry_schedule", json!(vec![1; 21])),
        ("timeout", json!(4)),
        ("timeout", json!(31)),
        ("ordering", json!("global")),
        ("status", json!("paused")),
        ("secret", json!("hunter2")),
        ("secret", json!("whsec_short")),
        ("colour", json!("red")),
        ("failing_since", json!("2026-01-01T00:00:00Z")),
    ] {
        let answer = server.post("/v1/webhook-endpoints", endpoint(json!({field: value.clone()})));
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["errors"][0]["field"], field, "{field} {value}: {error}");
        assert!(!error.to_string().contains("hunter2"), "a secret is not echoed");
    }
    let both = json!({"url": "http://127.0.0.1/", "enabled_events": ["nothing.*"]});
    let error = server.post("/v1/webhook-endpoints", both).error(422, "validation_failed");
    assert_eq!(error["errors"].as_array().unwrap().len(), 2);
}

#[test]
fn a_restricted_key_needs_the_scope_of_endpoints() {
    let server = Start::schema(STRICT).go();
    let (out, err, code) = server.tool(&["keys", "create", "--scope", "webhook-endpoints:read"]);
    assert_eq!(code, 0, "{err}");
    let key = out.split_whitespace().find(|word| word.starts_with("rk_test_")).unwrap();
    server.ask("GET", "/v1/webhook-endpoints").key(key).send().expect(200);
    let make = server.ask("POST", "/v1/webhook-endpoints").key(key).json(&endpoint(json!({})));
    assert_eq!(make.send().status, 403);
    assert_eq!(server.ask("GET", "/v1/events").key(key).send().status, 403);
    let (out, err, code) = server.tool(&["keys", "create", "--scope", "events:read"]);
    assert_eq!(code, 0, "{err}");
    let key = out.split_whitespace().find(|word| word.starts_with("rk_test_")).unwrap();
    server.ask("GET", "/v1/events").key(key).send().expect(200);
}
