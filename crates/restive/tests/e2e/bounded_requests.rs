//! The work that one request causes has a limit: errors, bodies that repeat an Idempotency-Key,
//! pages and embedded records. Tests compare sizes and counts, not durations.

use crate::harness::{Server, Start};
use serde_json::{Map, Value, json};

/// An error of `MAX_LISTED` entries, each with a name of 100 characters, fits into it.
const MAX_ERROR_BYTES: usize = 128 * 1024;
const NOT_LISTED: &str = "; others are not listed)";

fn many_fields(count: usize) -> Map<String, Value> {
    (0..count).map(|n| (format!("x{n}"), json!(n))).collect()
}

/// The length of the list of errors, and the message.
fn check_listed(what: &str, answer: crate::harness::Answer, status: u16, listed: usize) -> String {
    assert!(answer.text.len() <= MAX_ERROR_BYTES, "{what}: {} bytes", answer.text.len());
    assert_eq!(answer.status, status, "{what}: {}", answer.text);
    let error = &answer.json["error"];
    assert_eq!(error["errors"].as_array().unwrap().len(), listed, "{what}");
    error["message"].as_str().unwrap().to_owned()
}

#[test]
fn an_error_lists_a_hundred_unknown_names_and_mentions_others() {
    let server = Server::bookshop();
    let id = server.book("Emma");
    for (method, path) in [
        ("POST", "/v1/books".to_owned()),
        ("PATCH", format!("/v1/books/{id}")),
        ("POST", "/v1/channel-tokens".to_owned()),
    ] {
        let body = Value::Object(many_fields(60_000));
        let answer = server.ask(method, &path).json(&body).send();
        // A create lacks the required title as well.
        let listed = if path == "/v1/books" { 101 } else { 100 };
        let message = check_listed(&path, answer, 422, listed);
        assert!(message.ends_with(NOT_LISTED), "{method} {path}: {message}");
    }
    let body = json!({"y".repeat(1_000_000): 1});
    check_listed("one long name", server.post("/v1/channel-tokens", body), 422, 1);
    let commas = ",".repeat(7_000);
    for query in [
        format!("fields={commas}"),
        format!("sort={commas}"),
        (0..1_400).map(|n| format!("x{n}&")).collect(),
        "limit=1&".repeat(900),
    ] {
        let what = &query[..12];
        let message = check_listed(what, server.get(&format!("/v1/books?{query}")), 400, 100);
        assert!(message.ends_with(NOT_LISTED), "{what}: {message}");
    }
}

#[test]
fn unknown_fields_of_an_old_version_are_refused_before_the_writer_sees_them() {
    let schema = "
[collections.books.fields]
name = 'string'
[[versions]]
date = '2026-01-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'title', to = 'name' }
[[versions]]
date = '2025-01-01'
";
    let server = Start::schema(schema).go();
    let id = server.make("/v1/books", json!({"name": "Emma"}));
    let mut body = many_fields(40_000);
    body.insert("title".into(), json!("y".repeat(70_000)));
    let path = format!("/v1/books/{id}");
    let ask = server.ask("PATCH", &path).header("restive-version", "2025-01-01");
    let answer = ask.json(&Value::Object(body)).send();
    let message = check_listed("PATCH", answer, 422, 100);
    assert!(message.ends_with(NOT_LISTED), "{message}");
}
