//! Times and numbers that older versions count in another unit.

use crate::harness::{Start, run};
use serde_json::{Value, json};

/// Counted in seconds once, in milliseconds then, as an instant now.
const COUNTED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "visits"
retype = { field = "at", from = { type = "integer" }, by = "milliseconds" }
[[versions]]
date = "2025-06-01"
[[versions.changes]]
collection = "visits"
retype = { field = "at", from = { type = "timestamp" }, by = "milliseconds" }
[[versions]]
date = "2025-01-01"
[[versions.changes]]
collection = "visits"
retype = { field = "at", from = { type = "integer" }, by = "seconds" }
[[versions]]
date = "2024-01-01"
[collections.visits.fields]
at = { type = "timestamp", filter = true }
"#;

#[test]
fn the_whole_of_a_second_is_found_however_often_it_was_counted_otherwise() {
    let server = Start::schema(COUNTED).go();
    server.make("/v1/visits", json!({"at": "2023-11-14T22:13:20.900Z"}));
    for (query, found) in [
        ("at=1700000000", 1),
        ("max_at=1700000000", 1),
        ("min_at=1700000000", 1),
        ("max_at=1699999999", 0),
        ("min_at=1700000001", 0),
    ] {
        let list = server.ask("GET", &format!("/v1/visits?{query}")).version("2024-01-01").send();
        assert_eq!(list.column("at").len(), found, "{query}: {}", list.text);
    }
}

/// Lengths were whole centimetres and had to be there; now they are metres, of any number.
const GROWN: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "walks"
retype = { field = "length", from = { type = "integer", required = true }, factor = 0.01 }
[[versions]]
date = "2025-01-01"
[collections.walks.fields]
length = { type = "number", filter = true, required = true }
"#;

#[test]
fn numbers_that_are_too_large_for_the_version_are_found_as_nothing() {
    const OLD: &str = "2025-01-01";
    let server = Start::schema(GROWN).go();
    for length in [json!(1e20), json!(-1e20), json!(2), json!(0.123)] {
        server.make("/v1/walks", json!({ "length": length }));
    }
    let shown = server.ask("GET", "/v1/walks").version(OLD).send();
    assert_eq!(shown.column("length"), [json!(12), json!(200), Value::Null, Value::Null]);
    for (query, found) in [
        ("min_length=100", 1),
        ("max_length=100", 1),
        ("min_length=-100", 2),
        ("length=null", 2),
        ("length=null,12", 3),
        ("length=200", 1),
    ] {
        let list = server.ask("GET", &format!("/v1/walks?{query}")).version(OLD).send();
        assert_eq!(list.column("length").len(), found, "{query}: {}", list.text);
    }
    let contract = server.get(&format!("/openapi.json?version={OLD}")).expect(200);
    let length = &contract["components"]["schemas"]["Walk"]["properties"]["length"];
    assert_eq!(length["type"], json!(["integer", "null"]), "{length}");
}

/// Each in another unit than before.
const UNITS: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "walks"
retype = { field = "steps", from = "integer", factor = 1.1 }
[[versions.changes]]
collection = "walks"
retype = { field = "weight", from = "number", factor = 2 }
[[versions.changes]]
collection = "walks"
retype = { field = "length", from = "number", factor = 3 }
[[versions.changes]]
collection = "walks"
retype = { field = "depth", from = { type = "number", min = 1, max = 1.3 }, factor = 1.1 }
[[versions]]
date = "2025-01-01"
[collections.walks.fields]
steps = "number"
weight = "number"
length = "integer"
depth = "number"
"#;

/// Also where it has more digits than the other unit keeps.
#[test]
fn numbers_of_another_unit_come_back_as_they_were_sent_or_are_refused() {
    const OLD: &str = "2025-01-01";
    let server = Start::schema(UNITS).go();
    let id = server.make("/v1/walks", json!({}));
    let path = format!("/v1/walks/{id}");
    let send = |method: &str, path: &str, body: &Value| {
        server.ask(method, path).version(OLD).json(body).send()
    };
    for (field, sent, taken) in [
        ("steps", json!(8_606_342_099_091_030_i64), false),
        ("steps", json!(8_606_342_099_091_031_i64), true),
        ("weight", json!(9_007_199_254_740_993_i64), false),
        ("weight", json!(0.1), true),
        ("weight", json!(0.30000000000000004), true),
        ("depth", json!(1.0000000000000002), true),
        ("depth", json!(1.2999999999999998), true),
        ("length", json!(0.3333333333333333), true),
        ("length", json!(0.3333333333333334), false),
        ("length", json!(0.333333333333333), false),
    ] {
        let body = json!({ field: sent });
        for (method, path, status) in [("POST", "/v1/walks", 201), ("PATCH", path.as_str(), 200)] {
            let answer = send(method, path, &body);
            if taken {
                let made = answer.expect(status);
                assert_eq!(made[field], sent, "{method}");
                let at = format!("/v1/walks/{}", made["id"].as_str().unwrap());
                let read = server.ask("GET", &at).version(OLD).send().expect(200);
                assert_eq!(read[field], sent, "{method}");
            } else {
                let error = answer.error(422, "validation_failed");
                let told = &error["errors"][0];
                assert_eq!((&told["field"], &told["value"]), (&json!(field), &sent), "{error}");
            }
        }
    }
}

/// Metres that are feet now, and prices that are cents.
fn rounded(word: &str) -> String {
    format!(
        r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "walks"
retype = {{ field = "length", from = "number", factor = 3.281{word} }}
[[versions.changes]]
collection = "walks"
retype = {{ field = "price", from = "number", factor = 100, nearest = true }}
[[versions]]
date = "2025-01-01"
[collections.walks.fields]
length = {{ type = "number", filter = true }}
price = {{ type = "integer", filter = true }}
"#
    )
}

#[test]
fn the_nearest_number_of_another_unit_is_kept_only_where_the_schema_says_so() {
    const OLD: &str = "2025-01-01";
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("exact.toml"), rounded("")).unwrap();
    let (_, failed, code) = run(folder.path(), &["check", "exact.toml"]);
    assert_eq!(code, 1, "{failed}");
    let begin = "exact.toml:6:1: this change loses data: { length = ";
    assert!(failed.starts_with(begin), "{failed}");
    let said = "`nearest = true` in the change says that the nearest number will do";
    assert!(failed.contains(said), "{failed}");
    let digits = failed[begin.len()..].split(' ').next().unwrap();
    let lost: Value = serde_json::from_str(digits).unwrap();

    // The records of before have the nearest, too.
    let schema = rounded(", nearest = true");
    let fields = "[collections.walks.fields]\nlength = 'number'\nprice = 'number'\n";
    let before = format!("[service]\nversion = \"{OLD}\"\n{fields}");
    let server = Start::schema(&before).go();
    let body = json!({"length": lost, "price": 0.1 + 0.2});
    let id = server.make("/v1/walks", body.clone());
    assert_eq!(server.get(&format!("/v1/walks/{id}")).expect(200)["length"], lost);
    let (_, folder) = server.stop();
    let server = Start::schema(&schema).on(&folder).go();
    let old = |method: &str, path: &str| server.ask(method, path).version(OLD);
    let kept = old("GET", &format!("/v1/walks/{id}")).send().expect(200);
    assert_ne!(kept["length"], lost);
    assert_eq!(kept["price"], 0.3);
    let made = old("POST", "/v1/walks").json(&body).send().expect(201);
    assert_eq!((&made["length"], &made["price"]), (&kept["length"], &kept["price"]));
    let near = (made["length"].as_f64().unwrap() - lost.as_f64().unwrap()).abs();
    assert!(near < 1e-14, "{made}");
    // What is shown is found, and sent back it stays.
    let found = old("GET", &format!("/v1/walks?length={}&price=0.3", made["length"])).send();
    assert_eq!(found.column("id").len(), 2, "{}", found.text);
    let again = old("POST", "/v1/walks").json(&json!({"length": made["length"]})).send();
    assert_eq!(again.expect(201)["length"], made["length"]);
    let newest = server.ask("GET", &format!("/v1/walks/{id}")).version("2026-01-01").send();
    assert_eq!(newest.expect(200)["price"], 30);
    let page = server.ask_anonymously("GET", "/changelog").send();
    assert!(page.text.contains("times 100, or the nearest there is"), "{}", page.text);
}

/// Numbers that are texts now.
const SPELT: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "walks"
retype = { field = "steps", from = "number", by = "text" }
[[versions]]
date = "2025-01-01"
[collections.walks.fields]
steps = { type = "string", filter = true }
"#;

/// Floats, by which lists are asked, stand for many of them.
#[test]
fn numbers_that_no_float_holds_are_found_by_their_digits() {
    let server = Start::schema(SPELT).go();
    for steps in [json!(9_007_199_254_740_993_i64), json!(7_943_365_160_951_631_295_i64)] {
        let body = json!({ "steps": steps });
        let post = server.ask("POST", "/v1/walks").version("2025-01-01").json(&body).send();
        assert_eq!(post.expect(201)["steps"], steps);
        let path = format!("/v1/walks?steps={steps}");
        let list = server.ask("GET", &path).version("2025-01-01").send();
        assert_eq!(list.column("steps"), [steps], "{}", list.text);
    }
}

/// Columns hold floats, records all digits.
#[test]
fn numbers_that_no_float_holds_are_found_in_another_unit() {
    let schema = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "walks"
retype = { field = "steps", from = "number", factor = 7, nearest = true }
[[versions]]
date = "2025-01-01"
[collections.walks.fields]
steps = { type = "number", filter = true, sort = true }
"#;
    let server = Start::schema(schema).go();
    let kept = [-9_007_199_254_740_993_i64, 12_345_678_901_234_567, 7];
    let ids = kept.map(|steps| server.make("/v1/walks", json!({ "steps": steps })));
    for id in &ids {
        let old = |path: &str| server.ask("GET", path).version("2025-01-01").send();
        let steps = old(&format!("/v1/walks/{id}")).expect(200)["steps"].clone();
        for query in ["steps=", "min_steps=", "max_steps="] {
            let list = old(&format!("/v1/walks?{query}{steps}"));
            let found = list.column("id");
            assert!(found.contains(&json!(id)), "{query}{steps}: {}", list.text);
        }
        assert_eq!(old(&format!("/v1/walks?steps={steps}")).column("id"), [json!(id)]);
    }
}

/// An action sets what it is sent, in fields that were others.
const SET: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
retype = { field = "price", from = "number", factor = 100 }
[[versions.changes]]
collection = "books"
enum_map = { field = "kind", values = { soft = "paper" } }
[[versions.changes]]
collection = "books"
retype = { field = "tags", from = "string", by = "list" }
[[versions.changes]]
collection = "books"
merge = { from = [
  { name = "first", type = "string", pattern = "^[^ ]*$", required = true },
  { name = "last", type = "string" },
], to = "name", by = " " }
[[versions]]
date = "2025-01-01"

[collections.books.fields]
price = { type = "integer", min = -500, max = 1000 }
kind = { type = "string", enum = ["paper", "hard"] }
tags = { type = "array", items = "string", max_length = 1 }
name = { type = "string", max_length = 8, required = true }
[collections.books.actions.mark.params]
price = "integer"
kind = "string"
tags = { type = "array", items = "string" }
name = "string"
[collections.books.actions.mark.set]
price = "=request.price"
kind = "=request.kind"
tags = "=request.tags"
name = "=request.name != null ? request.name : record.name"
"#;

#[test]
fn what_an_action_may_not_set_is_told_in_the_units_of_the_version() {
    let server = Start::schema(SET).go();
    let book = server.make("/v1/books", json!({"name": "Ada King"}));
    let refused = |version: &str, params: Value| {
        let ask = server.ask("POST", &format!("/v1/books/{book}/mark")).version(version);
        ask.json(&params).send().error(422, "validation_failed")
    };
    for (params, param, newest, old) in [
        (
            json!({"price": 1001}),
            "price",
            "`price` must be at most 1000.",
            "`price` must be at most 10.",
        ),
        (
            json!({"price": -501}),
            "price",
            "`price` must be at least -500.",
            "`price` must be at least -5.",
        ),
        (
            json!({"kind": "thin"}),
            "kind",
            "`kind` must be one of: paper, hard.",
            "`kind` has a value that newer versions of this service do not take.",
        ),
        (
            json!({"tags": ["a", "b"]}),
            "tags",
            "`tags` must have at most 1 item.",
            "`tags` is longer than newer versions of this service keep it.",
        ),
        (
            json!({"name": "Ada Lovelace"}),
            "last",
            "`name` must have at most 8 characters.",
            "`last` is longer than newer versions of this service keep it.",
        ),
        (
            json!({"name": "Augustina K"}),
            "first",
            "`name` must have at most 8 characters.",
            "`first` is longer than newer versions of this service keep it.",
        ),
    ] {
        assert_eq!(refused("2026-01-01", params.clone())["message"], newest);
        let error = refused("2025-01-01", params);
        assert_eq!((&error["message"], &error["param"]), (&json!(old), &json!(param)));
        assert_eq!(error["errors"][0]["field"], param);
    }
}
