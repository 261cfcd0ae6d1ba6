//! Old names that still work (`beside`) while clients migrate: requests may use either, responses
//! have both.

use crate::harness::Start;
use serde_json::{Value, json};

const OLD: &str = "2025-01-01";

const BESIDE: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
rename = { from = "name", to = "title", beside = true }
[[versions]]
date = "2025-01-01"
[collections.books.fields]
title = { type = "string", required = true, filter = true }
"#;

#[test]
fn a_rename_with_beside_shows_and_accepts_both_names() {
    let server = Start::schema(BESIDE).go();
    for body in [
        json!({"name": "Dune"}),
        json!({"title": "Dune"}),
        json!({"name": "Dune", "title": "Dune"}),
    ] {
        let made = server.post("/v1/books", body.clone()).expect(201);
        assert_eq!((&made["name"], &made["title"]), (&json!("Dune"), &json!("Dune")), "{body}");
    }
    let error = server.post("/v1/books", json!({"name": "Dune", "title": "Emma"}));
    assert_eq!(error.error(422, "validation_failed")["param"], "name");
    let old = server.ask("GET", "/v1/books?name=Dune").version(OLD).send();
    assert_eq!(old.column("name").len(), 3);
    assert_eq!(old.column("title"), vec![Value::Null; 3]);
    for name in ["title", "name"] {
        let found = server.get(&format!("/v1/books?{name}=Dune"));
        assert_eq!(found.column("name").len(), 3, "{name}: {}", found.text);
    }
}

#[test]
fn an_old_name_of_a_required_field_is_not_reported_as_missing() {
    let plain = "[collections.books.fields]\nname = { type = 'string', required = true }\n\
                 [[versions]]\ndate = '2025-01-01'\n";
    let newer = format!(
        "[[versions]]\ndate = '2026-02-01'\n[[versions.changes]]\ncollection = 'books'\n\
         default = {{ field = 'pages' }}\n{BESIDE}pages = {{ type = 'integer', default = 1 }}\n"
    );
    let server = Start::schema(plain).go();
    let id = server.make("/v1/books", json!({"name": "Dune"}));
    let (_, folder) = server.stop();
    let (_, folder) = Start::schema(BESIDE).on(&folder).go().stop();
    let server = Start::schema(&newer).on(&folder).go();
    let path = format!("/v1/books/{id}");
    let book = server.ask("GET", &path).version("2026-02-01").send().expect(200);
    assert_eq!((&book["name"], &book["title"]), (&json!("Dune"), &json!("Dune")));
}

/// The field with two names was required, and later is not.
const FREED: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "books"
optional = { field = "title", fill = "untitled" }
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
rename = { from = "name", to = "title", beside = true }
[[versions]]
date = "2025-01-01"
[collections.books.fields]
title = { type = "string", filter = true }
"#;

#[test]
fn a_required_field_with_an_old_name_needs_one_of_both_names() {
    const MIDDLE: &str = "2026-01-01";
    let server = Start::schema(FREED).go();
    let send = |method: &str, path: &str, version: &str, body: Value| {
        server.ask(method, path).version(version).json(&body).send()
    };
    let made = send("POST", "/v1/books", MIDDLE, json!({"name": "Dune"})).expect(201);
    let path = format!("/v1/books/{}", made["id"].as_str().unwrap());
    for (method, path) in [("POST", "/v1/books"), ("PUT", path.as_str())] {
        for (version, name) in [(OLD, "name"), (MIDDLE, "title")] {
            let error = send(method, path, version, json!({})).error(422, "validation_failed");
            assert_eq!(error["errors"].as_array().unwrap().len(), 1, "{error}");
            assert_eq!(error["errors"][0]["code"], "required", "{error}");
            assert_eq!(error["param"], name, "{method} {version}");
        }
    }
    for name in ["name", "title"] {
        for (method, path) in [("POST", "/v1/books"), ("PUT", &path), ("PATCH", &path)] {
            let refused = send(method, path, MIDDLE, json!({ name: null }));
            let error = refused.error(422, "validation_failed");
            let found = (&error["param"], &error["errors"][0]["code"]);
            assert_eq!(found, (&json!(name), &json!("required")), "{method} {error}");
        }
        let said = send("PUT", &path, MIDDLE, json!({ name: "Emma" })).expect(200);
        assert_eq!((&said["name"], &said["title"]), (&json!("Emma"), &json!("Emma")), "{name}");
    }
    send("PATCH", &path, "2026-06-01", json!({"title": null})).expect(200);
    let shown = server.ask("GET", &path).version(MIDDLE).send().expect(200);
    assert_eq!((&shown["name"], &shown["title"]), (&json!("untitled"), &json!("untitled")));
}

#[test]
fn the_openapi_document_requires_one_of_both_names() {
    let server = Start::schema(FREED).go();
    let described = |version: &str| {
        let file = server.get(&format!("/openapi.json?version={version}")).expect(200);
        file["components"]["schemas"]["BookCreate"].clone()
    };
    let middle = described("2026-01-01");
    let either = json!([{ "anyOf": [{ "required": ["title"] }, { "required": ["name"] }] }]);
    assert_eq!(middle["allOf"], either, "{middle}");
    assert_eq!(middle["required"], Value::Null, "{middle}");
    for name in ["title", "name"] {
        assert_eq!(middle["properties"][name]["type"], "string", "{middle}");
    }
    let old = described("2025-01-01");
    assert_eq!((&old["required"], &old["allOf"]), (&json!(["name"]), &Value::Null), "{old}");
    let new = described("2026-06-01");
    assert_eq!((&new["required"], &new["allOf"]), (&Value::Null, &Value::Null), "{new}");
}

const KEYED: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "books"
convert = { field = "price", from = "number",
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
rename = { from = "isbn", to = "number", beside = true }
[[versions.changes]]
collection = "books"
rename = { from = "writer", to = "author", beside = true }
[[versions.changes]]
collection = "books"
rename = { from = "cost", to = "price", beside = true }
[[versions]]
date = "2025-01-01"
[collections.authors.fields]
name = "string"
[collections.books.fields]
number = { type = "string", unique = true }
author = { ref = "authors" }
price = { type = "integer", max = 1000 }
"#;

#[test]
fn errors_use_the_field_name_that_was_sent() {
    let server = Start::schema(KEYED).go();
    let book = server.make("/v1/books", json!({"isbn": "1"}));
    let other = format!("/v1/books/{}", server.make("/v1/books", json!({"isbn": "2"})));
    for (name, value, code) in [
        ("isbn", json!("1"), "not_unique"),
        ("number", json!("1"), "not_unique"),
        ("writer", json!("none"), "bad_reference"),
        ("author", json!("none"), "bad_reference"),
        ("cost", json!(10.01), "too_large"),
        ("price", json!(10.01), "too_large"),
        ("cost", json!(0.001), "unsuitable"),
        ("price", json!(0.001), "unsuitable"),
    ] {
        for (method, path) in [("POST", "/v1/books"), ("PUT", &other), ("PATCH", &other)] {
            let ask = server.ask(method, path).version("2026-01-01");
            let error = ask.json(&json!({ name: value })).send().error(422, "validation_failed");
            assert_eq!(error["errors"][0]["code"], code, "{method} {name}: {error}");
            assert_eq!(
                (&error["param"], &error["errors"][0]["field"]),
                (&json!(name), &json!(name))
            );
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(name), "{method} {name}: {message}");
        }
    }
    let shown = server.get(&format!("/v1/books/{book}"));
    assert_eq!(shown.expect(200)["number"], "1");
}

#[test]
fn conflicting_values_of_a_secret_field_are_not_echoed() {
    let server = Start::schema(
        "[collections.books.fields]
        word = { type = 'string', write_only = true }
        [[versions]]
        date = '2026-06-01'
        [[versions.changes]]
        collection = 'books'
        rename = { from = 'pass', to = 'word', beside = true }
        [[versions]]
        date = '2026-01-01'",
    )
    .go();
    let refused = server.post("/v1/books", json!({"word": "SECRET1", "pass": "SECRET2"}));
    let told = refused.text.clone();
    refused.error(422, "validation_failed");
    assert!(!told.contains("SECRET"), "{told}");
}
