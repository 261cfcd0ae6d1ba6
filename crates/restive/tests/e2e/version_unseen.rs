//! What a version cannot see: it is not named there, and it stays when clients of that version
//! write beside it.

use crate::harness::Start;
use serde_json::{Value, json};

/// Members of an object became fields, whose values older versions cannot all say.
const FINER: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
retype = { field = "tags", from = "string", by = "list" }
[[versions.changes]]
collection = "books"
enum_map = { field = "kind", values = { soft = "paper" }, down = { audio = "soft" } }
[[versions.changes]]
collection = "books"
retype = { field = "price", from = { type = "number", max = 5 }, factor = 100 }
[[versions.changes]]
collection = "books"
retype = { field = "last", from = "string", by = "list" }
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
[[versions.changes]]
collection = "books"
split = { from = { name = "author", type = "string" }, to = ["first", "last"], by = " " }
[[versions]]
date = "2024-01-01"

[collections.books.fields]
info = "object"
tags = { type = "array", items = "string" }
kind = { type = "string", enum = ["paper", "audio"] }
price = "integer"
first = "string"
last = { type = "array", items = "string" }
"#;

#[test]
fn what_is_not_seen_stays_when_something_beside_it_is_written() {
    let server = Start::schema(FINER).go();
    let fine = json!({ "tags": ["a", "b"], "kind": "audio", "price": 1234, "info": { "y": 1 },
                       "first": "Ada", "last": ["King", "Noel"] });
    let path = format!("/v1/books/{}", server.make("/v1/books", fine.clone()));
    let old = |method: &str, body: Value| {
        server.ask(method, &path).version("2024-01-01").json(&body).send().expect(200)
    };
    let shown = json!({ "tags": "a", "kind": "soft", "price": 12.34, "y": 1 });
    let read = server.ask("GET", &path).version("2024-01-01").send().expect(200);
    assert_eq!((&read["info"], &read["author"]), (&shown, &json!("Ada King")));
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
    old("PATCH", json!({ "author": "Eve King" }));
    expected["first"] = json!("Eve");
    is(&expected);
    let mut whole = shown;
    (whole["tags"], whole["z"]) = (json!("c"), json!(3));
    old("PUT", json!({ "info": whole, "author": "Eve King" }));
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

/// Texts that were one of a few words once, and a field that newer clients do not know.
const WORDS: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
retype = { field = "grade", from = { type = "string", enum = ["1", "2"] }, by = "text" }
[[versions.changes]]
collection = "books"
retype = { field = "tags", from = { type = "string", enum = ["a", "b"] }, by = "list" }
[[versions.changes]]
collection = "books"
split = { from = { name = "size", type = "string", enum = ["a b"] }, to = ["w", "h"], by = " " }
[[versions.changes]]
collection = "books"
[versions.changes.merge]
to = "place"
by = " "
from = [
  { name = "room", type = "string", enum = ["north"], required = true },
  { name = "row", type = "string", enum = ["x"] },
]
[[versions.changes]]
collection = "books"
removed = { field = "code" }
[[versions]]
date = "2025-01-01"

[collections.books.fields]
grade = { type = "integer", filter = true }
tags = { type = "array", items = "string" }
w = "string"
h = "string"
place = "string"
code = { type = "string", required = true }
"#;

#[test]
fn words_that_an_old_enum_does_not_have_are_null_there_as_its_contract_says() {
    let server = Start::schema(WORDS).go();
    let old = |method: &str, path: &str| server.ask(method, path).version("2025-01-01");
    let contract = server.get("/openapi.json?version=2025-01-01").expect(200);
    let declared = &contract["components"]["schemas"]["Book"]["properties"];
    let names = ["grade", "tags", "size", "room", "row", "code"];
    let pick = |record: &Value| names.map(|name| record[name].clone());
    for (kept, shown) in [
        (
            json!({"grade": 2, "tags": ["b", "z"], "w": "a", "h": "b", "place": "north x"}),
            json!(["2", "b", "a b", "north", "x", null]),
        ),
        (
            json!({"grade": 9, "tags": ["z", "b"], "w": "q", "h": "r", "place": "south y"}),
            json!([null, null, null, null, null, null]),
        ),
    ] {
        let path = format!("/v1/books/{}", server.make("/v1/books", kept.clone()));
        let read = old("GET", &path).send().expect(200);
        assert_eq!(json!(pick(&read)), shown, "{kept}");
        for (name, value) in names.iter().zip(pick(&read)) {
            let (kinds, words) = (&declared[name]["type"], &declared[name]["enum"]);
            let nullable = kinds.as_array().is_some_and(|kinds| kinds.contains(&json!("null")));
            assert!(!value.is_null() || nullable, "{name}: {kinds}");
            assert!(words.as_array().is_none_or(|words| words.contains(&value)), "{name}: {words}");
        }
        // What is sent back as it is shown stays, said or not.
        old("PATCH", &path).json(&json!({"grade": read["grade"]})).send().expect(200);
        let now = server.get(&path).expect(200);
        for (name, value) in kept.as_object().unwrap() {
            assert_eq!(now[name], *value, "{name}");
        }
    }
    let found = |filter: &str| {
        let list = old("GET", &format!("/v1/books?{filter}")).send().expect(200);
        list["data"].as_array().unwrap().len()
    };
    assert_eq!([found("grade=2"), found("grade=1"), found("grade=null")], [1, 0, 1]);
}

/// A text that was put together from three and split in two since; a number that became a text in
/// two pieces; members that became fields.
const PARTS: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
split = { from = { name = "label", type = "string" }, to = ["shelf", "place"], by = "-" }
[[versions.changes]]
collection = "books"
split = { from = { name = "count", type = "string" }, to = ["sign", "digits"], by = "-" }
[[versions.changes]]
collection = "books"
move = { from = "info.pages", to = "pages" }
[[versions]]
date = "2025-01-01"
[[versions.changes]]
collection = "books"
[versions.changes.merge]
to = "label"
by = "-"
from = [
  { name = "room", type = "string", pattern = "^[^-]+$", required = true },
  { name = "row", type = "string", pattern = "^[^-]+$", required = true },
  { name = "spot", type = "string" },
]
[[versions.changes]]
collection = "books"
retype = { field = "count", from = "integer", by = "text" }
[[versions.changes]]
collection = "books"
move = { from = "info.year", to = "year" }
[[versions]]
date = "2024-01-01"
[[versions.changes]]
collection = "books"
optional = { field = "spot", fill = "top" }
[[versions]]
date = "2023-01-01"

[collections.books.fields]
shelf = "string"
place = "string"
sign = "string"
digits = "string"
pages = "integer"
year = "integer"
info = "object"
"#;

#[test]
fn parts_that_an_old_client_leaves_alone_stay_as_they_are_kept() {
    let server = Start::schema(PARTS).go();
    let empty = json!({ "shelf": null, "place": null, "sign": null, "digits": null, "pages": null,
                        "year": null, "info": null });
    let with = |base: &Value, members: &Value| {
        let mut base = base.clone();
        base.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        base
    };
    for (kept, patch, expected) in [
        // What stands for nothing is not stored, nor read as the part before it.
        (json!({"shelf": "A"}), json!({"room": "B"}), json!({"shelf": "B"})),
        (json!({"shelf": "A"}), json!({"row": "2"}), json!({"shelf": "A", "place": "2"})),
        (
            json!({"shelf": "A", "place": "2-low"}),
            json!({"row": "3"}),
            json!({"shelf": "A", "place": "3-low"}),
        ),
        (json!({"sign": "", "digits": "12"}), json!({"count": null}), json!({})),
        (json!({"sign": "", "digits": "12"}), json!({"count": 7}), json!({"sign": "7"})),
        (
            json!({"pages": 90, "year": 1999}),
            json!({"info": {"pages": 91}}),
            json!({"pages": 91, "year": 1999}),
        ),
        (
            json!({"pages": 90, "info": {"x": 1}}),
            json!({"info": {"pages": null, "y": 2}}),
            json!({"info": {"x": 1, "y": 2}}),
        ),
    ] {
        let path = format!("/v1/books/{}", server.make("/v1/books", kept.clone()));
        let old = |method: &str| server.ask(method, &path).version("2023-01-01");
        let mut wanted = old("GET").send().expect(200);
        for (name, change) in patch.as_object().unwrap() {
            match change.as_object() {
                Some(_) => wanted[name] = with(&wanted[name], change),
                None => wanted[name] = change.clone(),
            }
        }
        let (name, _) = patch.as_object().unwrap().iter().next().unwrap();
        if let Some(members) = wanted[name].as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        let answer = old("PATCH").json(&patch).send().expect(200);
        assert_eq!(answer[name], wanted[name], "{patch} on {kept}");
        let now = server.get(&path).expect(200);
        for (name, value) in with(&empty, &expected).as_object().unwrap() {
            assert_eq!(now[name], *value, "{name} after {patch} on {kept}");
        }
    }
    let path = format!("/v1/books/{}", server.make("/v1/books", json!({"shelf": "A"})));
    let refused = server.ask("PATCH", &path).version("2023-01-01").json(&json!({"spot": "low"}));
    let error = refused.send().expect(422);
    assert_eq!(error["error"]["param"], "spot", "{error}");
    assert_eq!(server.get(&path).expect(200)["shelf"], "A");
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
fn what_a_version_has_no_word_for_is_told_without_its_name() {
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
        let described = &contract["components"]["responses"]["UnprocessableEntity"]["description"];
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
    // What can be mended is told by name, and first.
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
fn what_a_version_lost_is_not_named_there_either() {
    let server = Start::schema(PARTED).go();
    let made = json!({ "sku": "A1" });
    server.ask("POST", "/v1/orders").version("2025-01-01").json(&made).send().expect(201);
    let order = server.make("/v1/orders", json!({}));
    for (version, known) in [("2025-01-01", true), ("2026-01-01", false), ("2026-06-01", false)] {
        for (code, told, message) in [
            ("none", "unmarked", "The `sku` is none."),
            ("A1", "validation_failed", "Another order has this sku."),
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
