//! Fields that a version cannot see: errors do not name them, and writes of its clients keep them.

use crate::harness::Start;
use serde_json::{Value, json};

/// Members of an object became fields, whose values older versions cannot all represent.
const FINER: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
convert = { field = "tags", from = "string", up = "[value]", down = "value[0]", lossy = true }
[[versions.changes]]
collection = "books"
enum_map = { field = "kind", values = { soft = "paper" }, down = { audio = "soft" } }
[[versions.changes]]
collection = "books"
convert = { field = "price", from = { type = "number", max = 5 },
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }
[[versions]]
date = "2025-01-01"
[[versions.changes]]
collection = "books"
move = { from = "info.tags", to = "tags" }
[[versions.changes]]
collection = "books"
move = { from = "info.kind", to = "kind" }
[[versions.changes]]
collection = "books"
move = { from = "info.price", to = "price" }
[[versions]]
date = "2024-01-01"

[collections.books.fields]
info = "object"
tags = { type = "array", items = "string" }
kind = { type = "string", enum = ["paper", "audio"] }
price = "integer"
first = "string"
"#;

#[test]
fn an_update_keeps_fields_that_the_version_does_not_show() {
    let server = Start::schema(FINER).go();
    let fine = json!({ "tags": ["a", "b"], "kind": "audio", "price": 1234, "info": { "y": 1 },
                       "first": "Ada" });
    let path = format!("/v1/books/{}", server.make("/v1/books", fine.clone()));
    let old = |method: &str, body: Value| {
        server.ask(method, &path).version("2024-01-01").json(&body).send().expect(200)
    };
    let shown = json!({ "tags": "a", "kind": "soft", "price": 12.34, "y": 1 });
    let read = server.ask("GET", &path).version("2024-01-01").send().expect(200);
    assert_eq!(read["info"], shown);
    let is = |expected: &Value| {
        let now = server.get(&path).expect(200);
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(now[name], *value, "{name}");
        }
    };
    let mut expected = fine;
    old("PATCH", json!({ "info": { "x": 2 } }));
    expected["info"] = json!({ "y": 1, "x": 2 });
    is(&expected);
    old("PATCH", json!({ "first": "Eve" }));
    expected["first"] = json!("Eve");
    is(&expected);
    let mut whole = shown;
    (whole["tags"], whole["z"]) = (json!("c"), json!(3));
    old("PUT", json!({ "info": whole, "first": "Eve" }));
    (expected["tags"], expected["info"]) = (json!(["c"]), json!({ "y": 1, "z": 3 }));
    is(&expected);
    let events = server.get("/v1/events?type=book.updated&sort=created").expect(200);
    let named = |event: &Value| {
        let previous = event["data"]["previous_attributes"].as_object().unwrap();
        previous.keys().cloned().collect::<Vec<_>>()
    };
    let named: Vec<_> = events["data"].as_array().unwrap().iter().map(named).collect();
    assert_eq!(named, [vec!["info"], vec!["first"], vec!["info", "tags"]]);
}

/// A member that became a field, of an object that the oldest version does not have.
const UNSEEN: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "orders"
move = { from = "info.sku", to = "sku" }
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
move = { from = "note", to = "info.note" }
[[versions.changes]]
collection = "orders"
rename = { from = "label", to = "tag" }
[[versions]]
date = "2025-01-01"

[collections.orders.fields]
info = "object"
sku = { type = "string", unique = true, max_length = 4 }
tag = { type = "string", max_length = 8 }
[collections.orders.actions.mark]
params = { code = "string" }
set = { sku = "=request.code", tag = "=request.code" }
[[collections.orders.actions.mark.rules]]
when = "request.code == 'none'"
code = "no_sku"
param = "sku"
message = "The `sku` is none; see `info.lang`, `info.note` and `code`."
"#;

#[test]
fn errors_about_fields_that_the_version_lacks_do_not_name_them() {
    let server = Start::schema(UNSEEN).go();
    server.make("/v1/orders", json!({"sku": "A1"}));
    let order = server.make("/v1/orders", json!({}));
    let marked = |version: &str, code: &str| {
        let ask = server.ask("POST", &format!("/v1/orders/{order}/mark"));
        ask.version(version).json(&json!({ "code": code })).send()
    };
    let unseen = "(`…` is of another version.)";
    for (version, param, message) in [
        ("2026-06-01", json!("sku"), "The `sku` is none; see `info.lang`, `info.note` and `code`."),
        (
            "2026-01-01",
            json!("info.sku"),
            "The `info.sku` is none; see `info.lang`, `info.note` and `code`.",
        ),
        (
            "2025-01-01",
            Value::Null,
            &format!("The `…` is none; see `…`, `note` and `code`. {unseen}"),
        ),
    ] {
        let error = marked(version, "none").error(422, "no_sku");
        assert_eq!((&error["param"], &error["message"]), (&param, &json!(message)), "{version}");
        let contract = server.get(&format!("/openapi.json?version={version}")).expect(200);
        let described = &contract["components"]["responses"]["ClientError"]["description"];
        let line = format!("- `no_sku`: {message}");
        assert!(described.as_str().unwrap().lines().any(|told| told == line), "{described}");
    }
    for (code, message) in
        [("A1", "Another order has this `…`."), ("A12345", "`…` must have at most 4 characters.")]
    {
        let error = marked("2025-01-01", code).error(422, "validation_failed");
        assert_eq!(error["message"], format!("{message} {unseen}"));
        assert_eq!((&error["param"], &error["errors"]), (&Value::Null, &json!([])), "{error}");
        assert!(error.get("value").is_none(), "{error}");
        let newer = marked("2026-01-01", code).error(422, "validation_failed");
        assert_eq!(newer["errors"][0]["field"], "info.sku");
    }
    // Errors that the client can fix are reported by name, and first.
    let error = marked("2025-01-01", "A12345678").error(422, "validation_failed");
    let told = (&error["param"], &error["errors"][0]["field"]);
    assert_eq!(told, (&json!("label"), &json!("label")), "{error}");
    assert_eq!(error["message"], "`label` must have at most 8 characters. (and 1 more)");
    assert_eq!(error["errors"].as_array().unwrap().len(), 1, "{error}");
}

/// A field that only the oldest version has.
const PARTED: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "orders"
default = { field = "note" }
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
removed = { field = "sku" }
[[versions]]
date = "2025-01-01"

[collections.orders.fields]
sku = { type = "string", unique = true, max_length = 4 }
note = { type = "string", default = "none" }
[collections.orders.actions.mark]
params = { code = "string" }
set = { sku = "=request.code" }
[[collections.orders.actions.mark.rules]]
when = "request.code == 'none'"
code = "unmarked"
param = "sku"
message = "The `sku` is none."
"#;

#[test]
fn errors_do_not_name_fields_that_the_version_removed() {
    let server = Start::schema(PARTED).go();
    let made = json!({ "sku": "A1" });
    server.ask("POST", "/v1/orders").version("2025-01-01").json(&made).send().expect(201);
    let order = server.make("/v1/orders", json!({}));
    for (version, known) in [("2025-01-01", true), ("2026-01-01", false), ("2026-06-01", false)] {
        for (code, told, message) in [
            ("none", "unmarked", "The `sku` is none."),
            ("A1", "validation_failed", "Another order has this `sku`."),
            ("A12345", "validation_failed", "`sku` must have at most 4 characters."),
        ] {
            let ask = server.ask("POST", &format!("/v1/orders/{order}/mark"));
            let ask = ask.version(version).json(&json!({ "code": code }));
            let error = ask.send().error(422, told);
            let unnamed = message.replace("`sku`", "`…`").replace(" sku.", " `…`.");
            let (param, message) = match known {
                true => (json!("sku"), message.to_owned()),
                false => (Value::Null, format!("{unnamed} (`…` is of another version.)")),
            };
            assert_eq!((&error["param"], &error["message"]), (&param, &json!(message)));
            assert!(known || !error.to_string().contains("sku\""), "{error}");
        }
        let contract = server.get(&format!("/openapi.json?version={version}")).text;
        assert_eq!(contract.contains("The `sku` is none."), known, "{version}");
    }
}
