//! The operations on a record: create, read, list, replace, update, delete.

use crate::harness::{Server, Start};
use serde_json::{Value, json};

#[test]
fn a_record_can_be_created_read_replaced_updated_and_deleted() {
    let server = Server::bookshop();
    let made = server.post(
        "/v1/books",
        json!({"title": "Dune", "author": "Frank Herbert", "price": 9.99, "isbn": "0-441-17271-7"}),
    );
    assert_eq!(made.status, 201, "{}", made.text);
    let id = made.id();
    let path = format!("/v1/books/{id}");
    assert_eq!(made.header("location"), Some(path.as_str()));
    assert!(id.starts_with("book_"));
    assert_eq!(made.json["title"], "Dune");
    assert_eq!(made.json["price"], 9.99);
    assert_eq!(made.json["created_at"], made.json["updated_at"]);

    let read = server.get(&path);
    assert_eq!(read.text, made.text);
    assert_eq!(read.header("etag"), made.header("etag"));

    let replaced = server.put(&path, json!({"title": "Dune 2", "author": "F. H."})).expect(200);
    assert_eq!(replaced["isbn"], json!(null), "PUT erases what is omitted");
    assert_eq!(replaced["id"], id);

    let updated = server.patch(&path, json!({"price": 3})).expect(200);
    assert_eq!((&updated["price"], &updated["title"]), (&json!(3), &json!("Dune 2")));

    let deleted = server.delete(&path).expect(200);
    assert_eq!(deleted, json!({"id": id, "object": "book", "deleted": true}));
    assert_eq!(server.delete(&path).expect(200), deleted, "repeating is safe");
    server.get(&path).error(404, "not_found");
    server.delete("/v1/books/book_never").error(404, "not_found");
}

fn codes(error: &Value) -> Vec<(String, String)> {
    let errors = error["errors"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or("?").to_owned();
    errors.iter().map(|entry| (text(entry, "field"), text(entry, "code"))).collect()
}

/// A field of every kind.
const KINDS: &str = r#"
[collections.things.fields]
name = { type = "string", required = true }
count = "integer"
ratio = "number"
ready = "boolean"
at = "timestamp"
day = "date"
free = "object"
tags = { type = "array", items = "string" }
colour = { type = "string", enum = ["red", "green"], default = "red" }
secret = { type = "string", write_only = true, max_length = 5 }
stamp = { type = "string", read_only = true }
code = { type = "string", unique = true }
"#;

#[test]
fn put_requires_every_required_field() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let before = server.get(&path);
    let error = server.put(&path, json!({"price": 1})).error(422, "validation_failed");
    assert_eq!(error["param"], "title");
    let missing = [("title", "required"), ("author", "required")];
    assert_eq!(codes(&error), missing.map(|(f, c)| (f.to_owned(), c.to_owned())));
    let error =
        server.put(&path, json!({"title": null, "author": "x"})).error(422, "validation_failed");
    assert_eq!(error["param"], "title");
    assert_eq!(server.get(&path).text, before.text, "nothing was changed");
}

#[test]
fn assigned_fields_may_be_sent_back_but_not_changed() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let mut whole = server.get(&path).expect(200);
    whole["price"] = json!(5);
    for method in ["PUT", "PATCH"] {
        let answer = server.ask(method, &path).json(&whole).send().expect(200);
        assert_eq!(answer["price"], 5);
        whole["updated_at"] = answer["updated_at"].clone();
        for (name, value) in [
            ("id", json!("book_other")),
            ("object", json!("order")),
            ("created_at", json!("2020-01-01T00:00:00.000Z")),
            ("updated_at", json!(null)),
        ] {
            let mut changed = whole.clone();
            changed[name] = value;
            let answer = server.ask(method, &path).json(&changed).send();
            let error = answer.error(422, "validation_failed");
            assert_eq!(codes(&error), [(name.to_owned(), "read_only".to_owned())], "{method}");
        }
    }
    let order = server.make("/v1/orders", json!({"book": whole["id"]}));
    let path = format!("/v1/orders/{order}");
    server.patch(&path, json!({"status": "created", "quantity": 2})).expect(200);
    let error = server.patch(&path, json!({"status": "paid"})).error(422, "validation_failed");
    assert_eq!(codes(&error), [("status".to_owned(), "read_only".to_owned())]);
    for name in ["id", "created_at", "updated_at", "object"] {
        let mut body = json!({"title": "T", "author": "A"});
        body[name] = json!("x");
        let error = server.post("/v1/books", body).error(422, "validation_failed");
        assert_eq!(codes(&error), [(name.to_owned(), "read_only".to_owned())], "on create");
    }
}

#[test]
fn patch_follows_rfc_7396() {
    let server = Start::schema(KINDS).go();
    let first = json!({"name": "n", "tags": ["a", "b"], "free": {"a": {"b": 1, "c": 2}, "d": [1]}});
    let path = format!("/v1/things/{}", server.make("/v1/things", first));
    for (patch, member, expected) in [
        (json!({"free": {"a": {"b": 9}}}), "free", json!({"a": {"b": 9, "c": 2}, "d": [1]})),
        (json!({"free": {"a": {"b": null}}}), "free", json!({"a": {"c": 2}, "d": [1]})),
        (json!({"free": {"d": [2, 3]}}), "free", json!({"a": {"c": 2}, "d": [2, 3]})),
        (
            json!({"free": {"a": 1, "e": {"f": null}}}),
            "free",
            json!({"a": 1, "d": [2, 3], "e": {}}),
        ),
        (json!({"tags": ["z"]}), "tags", json!(["z"])),
        (json!({"tags": null}), "tags", json!(null)),
        (json!({"free": null}), "free", json!(null)),
        (json!({"free": {"new": 1}}), "free", json!({"new": 1})),
        (json!({"count": 3}), "count", json!(3)),
        (json!({}), "name", json!("n")),
    ] {
        let sent =
            server.ask("PATCH", &path).header("content-type", "application/merge-patch+json");
        let answer = sent.body(patch.to_string()).send().expect(200);
        assert_eq!(answer[member], expected, "after {patch}");
        assert_eq!(answer["name"], "n", "what is not named stays");
        assert_eq!(server.get(&path).json, answer);
    }
    let error = server.patch(&path, json!({"name": null})).error(422, "validation_failed");
    assert_eq!(codes(&error), [("name".to_owned(), "required".to_owned())]);
    let answer = server.ask("PUT", &path).header("content-type", "application/merge-patch+json");
    answer.body("{}").send().error(415, "unsupported_media_type");
}

#[test]
fn an_update_without_changes_creates_no_new_version() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let before = server.get(&path);
    for answer in [
        server.patch(&path, json!({})),
        server.patch(&path, json!({"title": "Dune"})),
        server.patch(&path, json!({"price": null})),
        server.put(&path, json!({"title": "Dune", "author": "Ann Author"})),
    ] {
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("etag"), before.header("etag"));
        assert_eq!(answer.text, before.text);
    }
    let changed = server.patch(&path, json!({"title": "Dune II"}));
    assert_ne!(changed.header("etag"), before.header("etag"));
}

#[test]
fn values_are_normalised_and_all_invalid_ones_reported() {
    let server = Start::schema(KINDS).go();
    let made = server.post(
        "/v1/things",
        json!({"name": "\u{1F600} ü", "count": 3.0, "ratio": 2, "ready": false,
               "at": "2026-01-31T14:00:00+02:00", "day": "2026-02-28", "secret": "abc"}),
    );
    let record = made.clone().expect(201);
    assert_eq!(record["at"], "2026-01-31T12:00:00.000Z");
    assert_eq!((&record["count"], &record["ratio"]), (&json!(3), &json!(2)));
    assert_eq!((&record["colour"], &record["stamp"]), (&json!("red"), &json!(null)));
    assert_eq!(record["name"], "\u{1F600} ü");
    assert!(!made.text.contains("secret"), "a write-only field is never served");
    let wrong = json!({"count": 1.5, "ratio": "1", "ready": 1, "at": "soon", "day": "2026-02-30",
                       "free": [], "tags": [1], "colour": "blue", "secret": "toolong",
                       "stamp": "x", "nope": 1});
    let error = server.post("/v1/things", wrong).error(422, "validation_failed");
    let mut found = codes(&error);
    found.sort();
    let mut expected = [
        ("count", "wrong_type"),
        ("ratio", "wrong_type"),
        ("ready", "wrong_type"),
        ("at", "invalid_format"),
        ("day", "invalid_format"),
        ("free", "wrong_type"),
        ("tags", "wrong_type"),
        ("colour", "not_in_enum"),
        ("secret", "too_long"),
        ("stamp", "read_only"),
        ("nope", "unknown_field"),
        ("name", "required"),
    ]
    .map(|(field, code)| (field.to_owned(), code.to_owned()));
    expected.sort();
    assert_eq!(found, expected);
    assert!(!error.to_string().contains("toolong"), "a secret value is not echoed");
}

#[test]
fn numbers_keep_every_digit_and_can_be_filtered_by() {
    let schema = "[collections.books.fields]\nx = { type = \"number\", filter = true }";
    let server = Start::schema(schema).go();
    for text in ["198.33333333333334", "122.27272727272727", "0.31666666666666665", "5e-324"] {
        let number: f64 = text.parse().unwrap();
        let made = server.post("/v1/books", json!({ "x": number }));
        assert_eq!(made.status, 201, "{}", made.text);
        assert!(made.text.contains(&format!("\"x\":{text},")), "{text}: {}", made.text);
        let found = server.get(&format!("/v1/books?x={text}"));
        assert_eq!(found.column("id"), [made.id()], "{text}");
    }
}

#[test]
fn a_second_record_with_a_unique_value_is_refused() {
    let server = Start::schema(KINDS).go();
    let first = server.make("/v1/things", json!({"name": "a", "code": "X"}));
    let error = server
        .post("/v1/things", json!({"name": "b", "code": "X"}))
        .error(422, "validation_failed");
    assert_eq!(codes(&error), [("code".to_owned(), "not_unique".to_owned())]);
    let other = server.make("/v1/things", json!({"name": "c"}));
    server.make("/v1/things", json!({"name": "d"}));
    let path = format!("/v1/things/{other}");
    server.patch(&path, json!({"code": "X"})).error(422, "validation_failed");
    server.patch(&format!("/v1/things/{first}"), json!({"code": "Y"})).expect(200);
    server.patch(&path, json!({"code": "X"})).expect(200);
    server.delete(&path).expect(200);
    server.make("/v1/things", json!({"name": "e", "code": "X"}));
}

#[test]
fn one_of_many_concurrent_creates_gets_the_unique_value() {
    let server = Start::schema(KINDS).go();
    let mut statuses: Vec<u16> = std::thread::scope(|threads| {
        let body = json!({"name": "n", "code": "X"});
        let callers: Vec<_> = (0..12)
            .map(|_| {
                let ask = server.ask("POST", "/v1/things").json(&body);
                threads.spawn(move || ask.send().status)
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    statuses.sort();
    assert_eq!((statuses[0], statuses[1], statuses[11]), (201, 422, 422), "{statuses:?}");
}

#[test]
fn children_are_found_only_below_their_parent() {
    let server = Server::bookshop();
    let (one, two) = (server.book("One"), server.book("Two"));
    let reviews = format!("/v1/books/{one}/reviews");
    let made = server.post(&reviews, json!({"rating": 5, "text": "good"}));
    let path = format!("{reviews}/{}", made.id());
    assert_eq!(made.header("location"), Some(path.as_str()));
    assert_eq!(made.clone().expect(201)["book"], one);
    assert_eq!(server.get(&path).expect(200), made.json);
    assert_eq!(server.patch(&path, json!({"rating": 4})).expect(200)["rating"], 4);
    let replaced = server.put(&path, json!({"rating": 3})).expect(200);
    assert_eq!((&replaced["text"], &replaced["book"]), (&json!(null), &json!(one)));
    let error = server.patch(&path, json!({"book": two})).error(422, "validation_failed");
    assert_eq!(error["param"], "book", "a child does not change its parent");

    let foreign = format!("/v1/books/{two}/reviews/{}", made.id());
    for method in ["GET", "PUT", "PATCH", "DELETE"] {
        let mut ask = server.ask(method, &foreign);
        if method != "GET" && method != "DELETE" {
            ask = ask.json(&json!({"rating": 1}));
        }
        ask.send().error(404, "not_found");
    }
    assert_eq!(server.get(&format!("/v1/books/{two}/reviews")).column("id").len(), 0);
    server.get("/v1/books/book_none/reviews").error(404, "not_found");
    server.post("/v1/books/book_none/reviews", json!({"rating": 1})).error(404, "not_found");
    server.get(&format!("/v1/reviews/{}", made.id())).error(404, "route_not_found");

    server.delete(&format!("/v1/books/{one}")).expect(200);
    server.get(&path).error(404, "not_found");
    server.get(&reviews).error(404, "not_found");
}

#[test]
fn collections_nest_three_levels_deep() {
    let schema = r#"
        [collections.shops.fields]
        name = "string"
        [collections.shelves]
        parent = "shops"
        object = "shelf"
        fields = { label = "string" }
        [collections.boxes]
        parent = "shelves"
        fields = { size = { type = "integer", filter = true } }
    "#;
    let server = Start::schema(schema).go();
    let shops = ["a", "b"].map(|name| server.make("/v1/shops", json!({"name": name})));
    let shelves = shops.clone().map(|shop| {
        let path = format!("/v1/shops/{shop}/shelves");
        server.make(&path, json!({"label": "x"}))
    });
    let boxes = format!("/v1/shops/{}/shelves/{}/boxes", shops[0], shelves[0]);
    let made = server.post(&boxes, json!({"size": 3}));
    let path = format!("{boxes}/{}", made.id());
    assert_eq!(made.header("location"), Some(path.as_str()));
    assert_eq!(made.json["shelf"], shelves[0]);
    assert_eq!(server.get(&boxes).column("size"), [3]);
    server.patch(&path, json!({"size": 4})).expect(200);
    let crossed = format!("/v1/shops/{}/shelves/{}/boxes", shops[1], shelves[0]);
    server.get(&crossed).error(404, "not_found");
    server.post(&crossed, json!({"size": 1})).error(404, "not_found");
    let item = format!("{crossed}/{}", made.id());
    server.get(&item).error(404, "not_found");
    server.patch(&item, json!({"size": 1})).error(404, "not_found");
    server.delete(&item).error(404, "not_found");
    assert_eq!(server.get(&path).expect(200)["size"], 4);
    server.delete(&format!("/v1/shops/{}", shops[0])).expect(200);
    server.get(&path).error(404, "not_found");
}

#[test]
fn the_ids_of_a_feed_are_increasing_integers() {
    let server = Server::bookshop();
    let mut last = 0;
    for place in 0..20 {
        let made = server.post("/v1/messages", json!({"from": "a", "text": format!("m{place}")}));
        let id = made.json["id"].as_i64().expect("a number");
        assert!(id > last, "{}", made.text);
        assert_eq!(made.header("location"), Some(format!("/v1/messages/{id}").as_str()));
        assert_eq!(server.get(&format!("/v1/messages/{id}")).expect(200), made.json);
        last = id;
        server.book("something between");
    }
    let ids = server.get("/v1/messages?sort=created_at").column("id");
    assert_eq!(ids.len(), 20);
    assert!(ids.windows(2).all(|pair| pair[0].as_i64() < pair[1].as_i64()));
    let path = format!("/v1/messages/{last}");
    for method in ["PUT", "PATCH", "DELETE"] {
        server.ask(method, &path).json(&json!({})).send().error(405, "method_not_allowed");
    }
    server.get("/v1/messages/abc").error(404, "not_found");
    server.get("/v1/messages/-1").error(404, "not_found");
    server.get("/v1/messages/99999999999999999999").error(404, "not_found");
}

#[test]
fn a_reference_to_a_missing_record_is_refused() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    for bad in ["book_none", "", "order_1"] {
        let error = server.post("/v1/orders", json!({"book": bad})).error(422, "validation_failed");
        assert_eq!(codes(&error), [("book".to_owned(), "bad_reference".to_owned())]);
    }
    let order = server.post("/v1/orders", json!({"book": book})).expect(201);
    assert_eq!((&order["quantity"], &order["status"]), (&json!(1), &json!("created")));
}
