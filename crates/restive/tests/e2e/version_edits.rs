//! Edits of the versions in a file, with existing data: dates that are removed or changed, and
//! fields that only older versions show.

use crate::harness::{Server, Start};
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

const FIRST: &str = r#"
[service]
version = "2024-01-01"
[collections.books.fields]
name = { type = "string", required = true }
price = "number"
author = "string"
shelf = "string"
"#;

/// The same service later, with its history.
const LATER: &str = r#"
[collections.books.fields]
title = { type = "string", required = true }
price = "integer"
writer = "string"
shelf = "string"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
rename = { from = "name", to = "title" }
[[versions]]
date = "2025-01-01"
[[versions.changes]]
collection = "books"
convert = { field = "price", from = "number",
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }
[[versions.changes]]
collection = "books"
rename = { from = "author", to = "writer" }
[[versions]]
date = "2024-01-01"
"#;

fn events(server: &Server, version: &str) -> Vec<Value> {
    let page = server.ask("GET", "/v1/events?type=book.*").version(version).send().expect(200);
    let all = page["data"].as_array().unwrap().clone();
    all.into_iter().map(|event| event["data"].clone()).collect()
}

/// A book without the fields that the service adds.
fn book(data: &Value) -> Value {
    let mut object = data.as_object().unwrap().clone();
    object.retain(|name, _| {
        !["id", "object", "shelf", "created_at", "updated_at"].contains(&&**name)
    });
    Value::Object(object)
}

/// A book that was created and changed in 2024, and is served by the later file since.
fn grown() -> (String, Arc<TempDir>) {
    let server = Start::schema(FIRST).go();
    let made = json!({"name": "Dune", "price": 1.5, "author": "F H", "shelf": "A1"});
    let id = server.make("/v1/books", made);
    server.patch(&format!("/v1/books/{id}"), json!({"price": 2.5, "author": "G H"})).expect(200);
    let (_, folder) = server.stop();
    let server = Start::schema(LATER).on(&folder).go();
    (id, server.stop().1)
}

#[test]
fn events_stay_readable_after_their_version_is_removed() {
    let (id, folder) = grown();
    let without = LATER.replace("[[versions]]\ndate = \"2024-01-01\"\n", "");
    let at = without.find("[[versions]]\ndate = \"2025-01-01\"").unwrap();
    let without = format!("{}[[versions]]\ndate = \"2025-01-01\"\n", &without[..at]);
    let (code, error) = Start::schema(&without).on(&folder).fails();
    assert_eq!(code, 1);
    assert!(error.contains("version 2024-01-01 is gone"), "{error}");
    assert!(error.contains("pinned to it be served 2025-01-01"), "{error}");
    let server = Start::schema(&without).on(&folder).arg("--accept-changes").go();
    for version in ["2026-01-01", "2025-01-01"] {
        let name = if version == "2026-01-01" { "title" } else { "name" };
        let told = events(&server, version);
        let after = json!({name: "Dune", "price": 250, "writer": "G H"});
        assert_eq!(book(&told[0]["object"]), after, "{version}");
        let before = json!({"price": 150, "writer": "F H"});
        assert_eq!(told[0]["previous_attributes"], before, "{version}");
        let made = json!({name: "Dune", "price": 150, "writer": "F H"});
        assert_eq!(book(&told[1]["object"]), made, "{version}");
        let kept = server.ask("GET", &format!("/v1/books/{id}")).version(version).send();
        assert_eq!(book(&kept.expect(200)), after, "{version}");
    }
}

#[test]
fn changing_the_date_of_the_newest_version_keeps_records_and_log() {
    let (id, folder) = grown();
    let redated = LATER.replace("2026-01-01", "2026-02-01");
    let (_, error) = Start::schema(&redated).on(&folder).fails();
    assert!(error.contains("records, which have its shape, are taken for the newest"), "{error}");
    let server = Start::schema(&redated).on(&folder).arg("--accept-changes").go();
    let after = json!({"title": "Dune", "price": 250, "writer": "G H"});
    let path = format!("/v1/books/{id}");
    let kept = server.ask("GET", &path).version("2026-02-01").send().expect(200);
    assert_eq!(book(&kept), after);
    assert_eq!(book(&events(&server, "2026-02-01")[0]["object"]), after);
    let old = json!({"name": "Dune", "price": 2.5, "author": "G H"});
    assert_eq!(book(&server.ask("GET", &path).version("2024-01-01").send().expect(200)), old);
    assert_eq!(book(&events(&server, "2024-01-01")[0]["object"]), old);
}

#[test]
fn a_removed_field_with_a_fill_value_keeps_its_data_until_loss_is_accepted() {
    let (_, folder) = grown();
    let gone = r#"
[[versions]]
date = "2026-03-01"
[[versions.changes]]
collection = "books"
removed = { field = { name = "shelf", type = "string" }, value = "?" }
[[versions]]
date = "2026-01-01""#;
    let gone = LATER
        .replace("shelf = \"string\"\n", "")
        .replace("\n[[versions]]\ndate = \"2026-01-01\"", gone);
    for flag in [None, Some("--accept-changes")] {
        let start = Start::schema(&gone).on(&folder);
        let (code, error) = flag.into_iter().fold(start, Start::arg).fails();
        assert_eq!(code, 1);
        assert!(error.contains("books.shelf: removed, and kept nowhere"), "{error}");
        assert!(error.contains("--accept-data-loss"), "{error}");
    }
    let server = Start::schema(LATER).on(&folder).go();
    let kept = server.ask("GET", "/v1/books").version("2026-01-01").send();
    assert_eq!(kept.column("shelf"), ["A1"]);
    let (_, folder) = server.stop();
    let server = Start::schema(&gone).on(&folder).arg("--accept-data-loss").go();
    let shown = server.ask("GET", "/v1/books").version("2026-01-01").send();
    assert_eq!(shown.column("shelf"), ["?"]);
}

#[test]
fn reverting_a_schema_file_converts_the_events_back() {
    let server = Start::schema(FIRST).go();
    let id = server.make("/v1/books", json!({"name": "Dune", "price": 1.5, "author": "F H"}));
    let (_, folder) = server.stop();
    let server = Start::schema(LATER).on(&folder).go();
    let ask = server.ask("PATCH", &format!("/v1/books/{id}")).version("2026-01-01");
    ask.json(&json!({"title": "Emma", "price": 250})).send().expect(200);
    // The old file could not represent it.
    server.ask("DELETE", &format!("/v1/books/{id}")).send();
    let (_, folder) = server.stop();
    let server = Start::schema(FIRST).on(&folder).arg("--accept-data-loss").go();
    let told = events(&server, "2024-01-01");
    assert_eq!(told.len(), 3);
    let told = &told[1..];
    assert_eq!(
        book(&told[0]["object"]),
        json!({"name": "Emma", "price": 2.5, "author": "F H"}),
        "{told:?}"
    );
    assert_eq!(told[0]["previous_attributes"], json!({"name": "Dune", "price": 1.5}));
    assert_eq!(
        book(&told[1]["object"]),
        json!({"name": "Dune", "price": 1.5, "author": "F H"}),
        "{told:?}"
    );
}

#[test]
fn restoring_a_removed_field_shows_its_old_data() {
    let first = "[service]\nversion = \"2025-01-01\"\n[collections.books.fields]\n\
                 b = \"string\"\nr = { type = \"string\", filter = true }\n";
    let removed = first.replace("[service]\nversion = \"2025-01-01\"\n", "").to_owned()
        + "[[versions]]\ndate = \"2026-06-01\"\n[[versions.changes]]\ncollection = \"books\"\n\
           removed = { field = \"r\" }\n[[versions]]\ndate = \"2025-01-01\"\n";
    let server = Start::schema(first).go();
    let id = server.make("/v1/books", json!({"b": "x", "r": "secret"}));
    let (_, folder) = server.stop();
    let server = Start::schema(&removed).on(&folder).go();
    let path = format!("/v1/books/{id}");
    let newest =
        |server: &Server| server.ask("GET", &path).version("2026-06-01").send().expect(200);
    assert_eq!(newest(&server).get("r"), None);
    let (_, folder) = server.stop();
    // With the version that had it removed, all versions have it again.
    let again = first.replace("2025-01-01", "2026-06-01");
    let server = Start::schema(&again).on(&folder).arg("--accept-changes").go();
    assert_eq!(newest(&server)["r"], "secret");
    server.ask("PATCH", &path).version("2026-06-01").json(&json!({"b": "y"})).send().expect(200);
    assert_eq!(newest(&server)["r"], "secret");
    let (_, folder) = server.stop();
    let server = Start::schema(&removed).on(&folder).arg("--accept-changes").go();
    assert_eq!(newest(&server).get("r"), None);
    let old = server.ask("GET", &path).version("2025-01-01").send().expect(200);
    assert_eq!((&old["r"], &old["b"]), (&json!("secret"), &json!("y")));
}

/// The records of today can be converted, an event of the past cannot.
#[test]
fn removing_a_version_whose_events_would_lose_values_is_refused_until_loss_is_accepted() {
    let first = "[service]\nversion = \"2025-01-01\"\n[collections.goods.fields]\ncode = \
                 \"string\"\n";
    let both = "[[versions]]\ndate = \"2026-01-01\"\n[[versions.changes]]\ncollection = \"goods\"\n\
                convert = { field = \"code\", from = \"string\", up = \"int(value)\", \
                down = \"string(value)\" }\n[[versions]]\ndate = \"2025-01-01\"\n\
                [collections.goods.fields]\ncode = \"integer\"\n";
    let last = "[service]\nversion = \"2026-01-01\"\n[collections.goods.fields]\ncode = \
                \"integer\"\n";
    let server = Start::schema(first).go();
    let id = server.make("/v1/goods", json!({"code": "none"}));
    server.patch(&format!("/v1/goods/{id}"), json!({"code": "7"})).expect(200);
    let codes = |server: &Server, version: &str| {
        let list = server.ask("GET", "/v1/events?type=good.created,good.updated").version(version);
        let list = list.send().expect(200);
        let events = list["data"].as_array().unwrap().iter();
        events.map(|event| event["data"]["object"]["code"].clone()).collect::<Vec<_>>()
    };
    let written = [json!("7"), json!("none")];
    assert_eq!(codes(&server, "2025-01-01"), written);
    let (_, folder) = server.stop();
    let server = Start::schema(both).on(&folder).go();
    assert_eq!(codes(&server, "2025-01-01"), written);
    let (_, mut folder) = server.stop();
    for flag in [None, Some("--accept-changes")] {
        let start = Start::schema(last).on(&folder);
        let (code, error) = flag.into_iter().fold(start, Start::arg).fails();
        assert_eq!(code, 1, "{error}");
        if flag.is_some() {
            let part = "1 of its events have values that version 2026-01-01 cannot express";
            assert!(error.contains(part) && error.contains("--accept-data-loss"), "{error}");
        }
        // Nothing was changed.
        let server = Start::schema(both).on(&folder).go();
        assert_eq!(codes(&server, "2025-01-01"), written);
        (_, folder) = server.stop();
    }
    let server = Start::schema(last).on(&folder).arg("--accept-data-loss").go();
    assert_eq!(codes(&server, "2026-01-01"), [json!(7), json!(null)]);
    assert_eq!(server.get(&format!("/v1/goods/{id}")).expect(200)["code"], 7);
}
