//! Date versions: each operation of the schema file, in every way to read, write, filter and be
//! refused.

use crate::harness::{Answer, Ask, Server, Start};
use serde_json::{Map, Value, json};

pub const OLD: &str = "2025-01-01";
pub const NEW: &str = "2026-01-01";

/// One collection per operation.
pub const OPERATIONS: &str = r#"
[[versions]]
date = "2026-01-01"

[[versions.changes]]
collection = "titles"
rename = { from = "name", to = "title" }

[[versions.changes]]
collection = "shifts"
move = { from = "isbn", to = "details.isbn" }

[[versions.changes]]
collection = "texts"
convert = { field = "number", from = { type = "string", pattern = "^[1-9][0-9]?$" },
  up = "int(value)", down = "string(value)" }

[[versions.changes]]
collection = "cents"
convert = { field = "price", from = { type = "number" },
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }

[[versions.changes]]
collection = "moments"
convert = { field = "at", from = { type = "integer" },
  up = "from_millis(value * 1000)", down = "to_millis(value) / 1000", lossy = true }

[[versions.changes]]
collection = "arrays"
convert = { field = "tags", from = { type = "string" },
  up = "[value]", down = "size(value) > 0 ? value[0] : null", lossy = true }

[[versions.changes]]
collection = "words"
enum_map = { field = "kind", values = { canceled = "cancelled" }, down = { refunded = "canceled" } }

[[versions.changes]]
collection = "defaults"
default = { field = "currency", was = "usd" }

[[versions.changes]]
collection = "options"
optional = { field = "note", fill = "none" }

[[versions.changes]]
collection = "musts"
required = { field = "note", fill = "none" }

[[versions.changes]]
collection = "secrets"
removed = { field = "nickname" }

[[versions.changes]]
collection = "ghosts"
removed = { field = { name = "rating", type = "integer" }, value = 5 }

[[versions.changes]]
collection = "novelties"
collection_added = true

[[versions.changes]]
collection = "relics"
collection_removed = true

[[versions]]
date = "2025-01-01"

[collections.titles.fields]
pages = { type = "integer", filter = true, sort = true }
[collections.titles.fields.title]
type = "string"
required = true
filter = true
sort = true
search = true
max_length = 20

[collections.shifts.fields]
details = "object"

[collections.texts.fields]
number = { type = "integer", filter = true }

[collections.cents.fields]
price = { type = "integer", filter = true, sort = true }

[collections.moments.fields]
at = { type = "timestamp", filter = true, sort = true }

[collections.arrays.fields]
tags = { type = "array", items = "string" }

[collections.words.fields]
kind = { type = "string", enum = ["open", "cancelled", "refunded"], filter = true }

[collections.defaults.fields]
currency = { type = "string", default = "eur" }

[collections.options.fields]
note = "string"

[collections.musts.fields]
note = { type = "string", required = true }

[collections.secrets.fields]
title = "string"
nickname = { type = "string", filter = true }

[collections.ghosts.fields]
title = "string"

[collections.novelties.fields]
title = "string"

[collections.relics.fields]
title = "string"
"#;

/// The expectations for one operation.
pub struct Case {
    pub collection: &'static str,
    /// A create in the old version, and the record in the old and in the new one.
    pub sent: &'static str,
    pub old: &'static str,
    pub new: &'static str,
    /// A PATCH in the old version, and the record in both.
    pub patch: &'static str,
    pub patched_old: &'static str,
    pub patched_new: &'static str,
    /// Queries of the old version that match the patched record, and that do not.
    finds: &'static [&'static str],
    misses: &'static [&'static str],
    /// Queries that are refused, since newer versions store the field in another form.
    refuses: &'static [&'static str],
}

pub const CASES: &[Case] = &[
    Case {
        collection: "titles",
        sent: r#"{"name":"Dune","pages":3}"#,
        old: r#"{"name":"Dune","pages":3}"#,
        new: r#"{"title":"Dune","pages":3}"#,
        patch: r#"{"name":"Emma"}"#,
        patched_old: r#"{"name":"Emma","pages":3}"#,
        patched_new: r#"{"title":"Emma","pages":3}"#,
        finds: &["name=Emma", "sort=name", "sort=-name,pages", "q=emma", "fields=name"],
        misses: &["name=Dune", "q=dune"],
        refuses: &[],
    },
    Case {
        collection: "shifts",
        sent: r#"{"isbn":"1"}"#,
        old: r#"{"isbn":"1"}"#,
        new: r#"{"details":{"isbn":"1"}}"#,
        patch: r#"{"isbn":"2"}"#,
        patched_old: r#"{"isbn":"2"}"#,
        patched_new: r#"{"details":{"isbn":"2"}}"#,
        finds: &["fields=isbn"],
        misses: &[],
        refuses: &[],
    },
    Case {
        collection: "texts",
        sent: r#"{"number":"7"}"#,
        old: r#"{"number":"7"}"#,
        new: r#"{"number":7}"#,
        patch: r#"{"number":"8"}"#,
        patched_old: r#"{"number":"8"}"#,
        patched_new: r#"{"number":8}"#,
        finds: &[],
        misses: &[],
        refuses: &["number=8", "number=x"],
    },
    Case {
        collection: "cents",
        sent: r#"{"price":9.5}"#,
        old: r#"{"price":9.5}"#,
        new: r#"{"price":950}"#,
        patch: r#"{"price":12}"#,
        patched_old: r#"{"price":12}"#,
        patched_new: r#"{"price":1200}"#,
        finds: &[],
        misses: &[],
        refuses: &["price=12", "min_price=11.99", "max_price=12", "sort=-price"],
    },
    Case {
        collection: "moments",
        sent: r#"{"at":1700000000}"#,
        old: r#"{"at":1700000000}"#,
        new: r#"{"at":"2023-11-14T22:13:20.000Z"}"#,
        patch: r#"{"at":1700000001}"#,
        patched_old: r#"{"at":1700000001}"#,
        patched_new: r#"{"at":"2023-11-14T22:13:21.000Z"}"#,
        finds: &[],
        misses: &[],
        refuses: &["at=1700000001", "min_at=1700000001", "sort=at"],
    },
    Case {
        collection: "arrays",
        sent: r#"{"tags":"a"}"#,
        old: r#"{"tags":"a"}"#,
        new: r#"{"tags":["a"]}"#,
        patch: r#"{"tags":"b"}"#,
        patched_old: r#"{"tags":"b"}"#,
        patched_new: r#"{"tags":["b"]}"#,
        finds: &[],
        misses: &[],
        refuses: &[],
    },
    Case {
        collection: "words",
        sent: r#"{"kind":"open"}"#,
        old: r#"{"kind":"open"}"#,
        new: r#"{"kind":"open"}"#,
        patch: r#"{"kind":"canceled"}"#,
        patched_old: r#"{"kind":"canceled"}"#,
        patched_new: r#"{"kind":"cancelled"}"#,
        finds: &["kind=canceled", "kind=open,canceled"],
        misses: &["kind=open"],
        refuses: &[],
    },
    Case {
        collection: "defaults",
        sent: "{}",
        old: r#"{"currency":"usd"}"#,
        new: r#"{"currency":"usd"}"#,
        patch: r#"{"currency":"chf"}"#,
        patched_old: r#"{"currency":"chf"}"#,
        patched_new: r#"{"currency":"chf"}"#,
        finds: &[],
        misses: &[],
        refuses: &[],
    },
    Case {
        collection: "options",
        sent: r#"{"note":"x"}"#,
        old: r#"{"note":"x"}"#,
        new: r#"{"note":"x"}"#,
        patch: r#"{"note":"none"}"#,
        patched_old: r#"{"note":"none"}"#,
        patched_new: r#"{"note":"none"}"#,
        finds: &[],
        misses: &[],
        refuses: &[],
    },
    Case {
        collection: "musts",
        sent: "{}",
        old: r#"{"note":"none"}"#,
        new: r#"{"note":"none"}"#,
        patch: r#"{"note":"x"}"#,
        patched_old: r#"{"note":"x"}"#,
        patched_new: r#"{"note":"x"}"#,
        finds: &[],
        misses: &[],
        refuses: &[],
    },
    Case {
        collection: "secrets",
        sent: r#"{"title":"Dune","nickname":"D"}"#,
        old: r#"{"title":"Dune","nickname":"D"}"#,
        new: r#"{"title":"Dune"}"#,
        patch: r#"{"nickname":"E"}"#,
        patched_old: r#"{"title":"Dune","nickname":"E"}"#,
        patched_new: r#"{"title":"Dune"}"#,
        finds: &["nickname=E", "fields=nickname"],
        misses: &["nickname=D"],
        refuses: &[],
    },
    Case {
        collection: "ghosts",
        sent: r#"{"title":"Dune"}"#,
        old: r#"{"title":"Dune","rating":5}"#,
        new: r#"{"title":"Dune"}"#,
        patch: r#"{"title":"Emma"}"#,
        patched_old: r#"{"title":"Emma","rating":5}"#,
        patched_new: r#"{"title":"Emma"}"#,
        finds: &["fields=rating"],
        misses: &[],
        refuses: &[],
    },
];

pub fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl Ask<'_> {
    /// In this version.
    pub fn version(self, date: &str) -> Self {
        self.header("restive-version", date)
    }
}

/// Without the fields that the service assigns.
#[track_caller]
fn own(record: &Value) -> Value {
    let mut own = record.as_object().unwrap_or_else(|| panic!("{record}")).clone();
    own.retain(|name, _| !matches!(name.as_str(), "id" | "object" | "created_at" | "updated_at"));
    Value::Object(own)
}

/// Compares all fields; expected null and missing are equal.
#[track_caller]
pub fn same(shown: &Value, expected: &str, about: &str) {
    let full = |value: Value| -> Map<String, Value> {
        let members = value.as_object().unwrap().clone();
        members.into_iter().filter(|(_, value)| !value.is_null()).collect()
    };
    assert_eq!(full(own(shown)), full(json_of(expected)), "{about}: {shown}");
}

impl Case {
    fn check(&self, server: &Server) {
        let list = format!("/v1/{}", self.collection);
        let about = self.collection;
        let ask =
            |method: &str, path: &str, version: &str| server.ask(method, path).version(version);
        let made = ask("POST", &list, OLD).json(&json_of(self.sent)).send();
        assert_eq!(made.status, 201, "{about}: {}", made.text);
        same(&made.json, self.old, about);
        let path = format!("{list}/{}", made.id());
        assert_eq!(made.header("location"), Some(path.as_str()));
        let read = |version: &str| ask("GET", &path, version).send();
        same(&read(OLD).expect(200), self.old, about);
        same(&read(NEW).expect(200), self.new, about);
        assert_eq!(read(OLD).json, made.json, "{about}: what was answered is what is read");
        self.sends_back(server, &path);
        let patched = ask("PATCH", &path, OLD).json(&json_of(self.patch)).send();
        same(&patched.expect(200), self.patched_old, about);
        same(&read(OLD).expect(200), self.patched_old, about);
        same(&read(NEW).expect(200), self.patched_new, about);
        self.finds(server, &list);
        let put = ask("PUT", &path, OLD).json(&json_of(self.sent)).send();
        same(&put.expect(200), self.old, about);
        same(&read(NEW).expect(200), self.new, about);
        ask("DELETE", &path, OLD).send().expect(200);
    }

    /// A client that sends back what it has read changes nothing.
    fn sends_back(&self, server: &Server, path: &str) {
        let before = server.ask("GET", path).version(OLD).send();
        let tag = before.header("etag").unwrap().to_owned();
        for method in ["PUT", "PATCH"] {
            let answer = server.ask(method, path).version(OLD).json(&before.json).send();
            assert_eq!(answer.header("etag"), Some(tag.as_str()), "{method} {path}");
            assert_eq!(answer.expect(200), before.json, "{method} {path}");
        }
    }

    fn finds(&self, server: &Server, list: &str) {
        let ask = |query: &str| {
            let answer = server.ask("GET", &format!("{list}?{query}")).version(OLD).send();
            assert_eq!(answer.status, 200, "{list}?{query}: {}", answer.text);
            answer.json["data"].as_array().unwrap().clone()
        };
        let all = ask("");
        assert_eq!(all.len(), 1, "{list}");
        same(&all[0], self.patched_old, list);
        for query in self.finds {
            assert_eq!(ask(query).len(), 1, "{list}?{query}");
        }
        for query in self.misses {
            assert_eq!(ask(query).len(), 0, "{list}?{query}");
        }
        for query in self.refuses {
            let answer = server.ask("GET", &format!("{list}?{query}")).version(OLD).send();
            let told = answer.error(400, "invalid_parameter");
            assert!(told.to_string().contains("in another form"), "{list}?{query}: {told}");
        }
        let chosen = json_of(self.patched_old);
        for (name, value) in chosen.as_object().unwrap() {
            assert_eq!(ask(&format!("fields={name}"))[0], json!({ name: value }), "{list}");
        }
    }
}

#[test]
fn each_operation_works_for_reads_writes_and_filters_in_the_old_version() {
    let server = Start::schema(OPERATIONS).go();
    for case in CASES {
        case.check(&server);
    }
}

#[test]
fn old_clients_see_values_of_new_clients_in_their_names() {
    let server = Start::schema(OPERATIONS).go();
    for (collection, sent, old, found) in [
        ("titles", r#"{"title":"Dune"}"#, r#"{"name":"Dune"}"#, "name=Dune"),
        ("shifts", r#"{"details":{"isbn":"1","x":2}}"#, r#"{"isbn":"1"}"#, ""),
        ("cents", r#"{"price":1}"#, r#"{"price":0.01}"#, ""),
        ("arrays", r#"{"tags":["a","b"]}"#, r#"{"tags":"a"}"#, ""),
        ("words", r#"{"kind":"refunded"}"#, r#"{"kind":"canceled"}"#, "kind=canceled"),
        ("defaults", "{}", r#"{"currency":"eur"}"#, ""),
        ("options", "{}", r#"{"note":"none"}"#, ""),
        ("musts", r#"{"note":"none"}"#, r#"{"note":"none"}"#, ""),
        ("moments", r#"{"at":"2023-11-14T22:13:20.9Z"}"#, r#"{"at":1700000000}"#, ""),
    ] {
        let list = format!("/v1/{collection}");
        server.ask("POST", &list).version(NEW).json(&json_of(sent)).send().expect(201);
        let listed = server.ask("GET", &format!("{list}?{found}")).version(OLD).send();
        let data = listed.json["data"].as_array().unwrap();
        assert_eq!(data.len(), 1, "{collection}: {}", listed.text);
        same(&data[0], old, collection);
    }
}

/// Fields that an old client cannot see stay when it writes.
#[test]
fn writes_of_old_clients_keep_fields_they_do_not_know() {
    let server = Start::schema(OPERATIONS).go();
    for (collection, made, version, change, new) in [
        (
            "shifts",
            json!({"details": {"x": 2}}),
            NEW,
            json!({"isbn": "1"}),
            json!({"x": 2, "isbn": "1"}),
        ),
        ("secrets", json!({"nickname": "N"}), OLD, json!({"title": "t"}), json!("N")),
    ] {
        let list = format!("/v1/{collection}");
        let id = server.ask("POST", &list).version(version).json(&made).send().id();
        let path = format!("{list}/{id}");
        let other = if version == NEW { OLD } else { NEW };
        for method in ["PATCH", "PUT"] {
            server.ask(method, &path).version(other).json(&change).send().expect(200);
            let shown = server.ask("GET", &path).version(version).send().expect(200);
            let kept = if collection == "shifts" { &shown["details"] } else { &shown["nickname"] };
            assert_eq!(kept, &new, "{method} {collection}");
        }
    }
}

#[test]
fn each_version_accepts_only_its_own_names() {
    let server = Start::schema(OPERATIONS).go();
    for (collection, version, body, field) in [
        ("titles", OLD, json!({"name": "x", "title": "x"}), "title"),
        ("titles", NEW, json!({"name": "x", "title": "x"}), "name"),
        ("shifts", OLD, json!({"details": {}}), "details"),
        ("secrets", NEW, json!({"nickname": "x"}), "nickname"),
        ("ghosts", NEW, json!({"rating": 5}), "rating"),
    ] {
        let path = format!("/v1/{collection}");
        let answer = server.ask("POST", &path).version(version).json(&body).send();
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["param"], field, "{collection} {version}: {error}");
        assert_eq!(error["errors"][0]["code"], "unknown_field");
    }
    for (path, version) in [
        ("/v1/titles?name=x", NEW),
        ("/v1/titles?title=x", OLD),
        ("/v1/titles?sort=title", OLD),
        ("/v1/titles?fields=title", OLD),
        ("/v1/secrets?nickname=x", NEW),
        ("/v1/secrets?fields=nickname", NEW),
        ("/v1/cents?price=abc", OLD),
    ] {
        let answer = server.ask("GET", path).version(version).send();
        assert_eq!(answer.status, 400, "{path} {version}: {}", answer.text);
    }
}

#[test]
fn errors_use_the_names_of_the_clients_version() {
    let server = Start::schema(OPERATIONS).go();
    let post = |path: &str, body: Value| server.ask("POST", path).version(OLD).json(&body).send();
    let error = post("/v1/titles", json!({})).error(422, "validation_failed");
    assert_eq!(
        (&error["param"], &error["errors"][0]["code"]),
        (&json!("name"), &json!("required"))
    );
    assert!(error["message"].as_str().unwrap().contains("`name`"), "{error}");
    assert!(!error.to_string().contains("title"), "{error}");
    let error = post("/v1/titles", json!({"name": "x".repeat(21)})).error(422, "validation_failed");
    assert_eq!(
        (&error["param"], &error["errors"][0]["code"]),
        (&json!("name"), &json!("too_long"))
    );
    // Half a cent cannot be stored: the error uses the names of the client.
    let error = post("/v1/cents", json!({"price": 0.005})).error(422, "validation_failed");
    assert_eq!(error["param"], "price");
    let path = format!("/v1/texts/{}", post("/v1/texts", json!({"number": "7"})).id());
    let patched = server.ask("PATCH", &path).version(OLD).json(&json!({"number": "x"})).send();
    assert_eq!(patched.error(422, "validation_failed")["param"], "number");
}

#[test]
fn a_collection_exists_only_in_its_versions() {
    let server = Start::schema(OPERATIONS).go();
    let ask = |path: &str, version: &str| server.ask("GET", path).version(version).send();
    ask("/v1/novelties", NEW).expect(200);
    let error = ask("/v1/novelties", OLD).error(404, "route_not_found");
    assert_eq!(
        error["message"],
        "`novelties` exists since version 2026-01-01; this request uses version 2025-01-01."
    );
    ask("/v1/relics", OLD).expect(200);
    let error = ask("/v1/relics", NEW).error(404, "route_not_found");
    assert_eq!(
        error["message"],
        "`relics` existed until version 2025-01-01; this request uses version 2026-01-01."
    );
    let made = server.ask("POST", "/v1/relics").version(OLD).json(&json!({"title": "x"})).send();
    ask(&format!("/v1/relics/{}", made.id()), OLD).expect(200);
    ask(&format!("/v1/relics/{}", made.id()), NEW).error(404, "route_not_found");
}

fn tag(answer: &Answer) -> String {
    answer.header("etag").unwrap_or_else(|| panic!("no ETag: {}", answer.text)).to_owned()
}

#[test]
fn etags_differ_between_versions_for_reads_and_guard_writes_of_all() {
    let server = Start::schema(OPERATIONS).go();
    let made = server.ask("POST", "/v1/titles").version(OLD).json(&json!({"name": "Dune"})).send();
    let path = format!("/v1/titles/{}", made.id());
    let read = |version: &str, tag: &str| {
        server.ask("GET", &path).version(version).header("if-none-match", tag).send()
    };
    let (old, new) = (tag(&read(OLD, "")), tag(&read(NEW, "")));
    assert_eq!(tag(&made), old);
    assert_ne!(old, new, "another body, another tag");
    assert_eq!((read(OLD, &old).status, read(NEW, &new).status), (304, 304));
    assert_eq!((read(OLD, &new).status, read(NEW, &old).status), (200, 200));
    let lists =
        [OLD, NEW].map(|version| tag(&server.ask("GET", "/v1/titles").version(version).send()));
    assert_ne!(lists[0], lists[1]);
    // A read in any version is a read of this state.
    let write = |tag: &str, title: &str| {
        let body = json!({"title": title});
        server.ask("PATCH", &path).version(NEW).header("if-match", tag).json(&body).send()
    };
    write(&old, "Emma").expect(200);
    write(&old, "Ulysses").error(412, "precondition_failed");
    write(&new, "Ulysses").error(412, "precondition_failed");
}

#[test]
fn a_repeated_request_is_replayed_only_in_its_version() {
    let server = Start::schema(OPERATIONS).go();
    let post = |version: &str, body: Value| {
        let ask = server.ask("POST", "/v1/titles").version(version);
        ask.header("idempotency-key", "k-1").json(&body).send()
    };
    let first = post(OLD, json!({"name": "Dune"}));
    assert_eq!(first.json["name"], "Dune");
    let again = post(OLD, json!({"name": "Dune"}));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!((again.status, &again.text, tag(&again)), (201, &first.text, tag(&first)));
    assert_eq!(again.header("restive-version"), Some(OLD));
    post(NEW, json!({"name": "Dune"})).error(422, "idempotency_key_reused");
}

#[test]
fn a_cursor_belongs_to_its_version() {
    let server = Start::schema(OPERATIONS).go();
    for number in 0..5 {
        let body = json!({"name": format!("b{number}"), "pages": number});
        server.ask("POST", "/v1/titles").version(OLD).json(&body).send().expect(201);
    }
    let mut names = Vec::new();
    let mut path = "/v1/titles?sort=name&limit=2".to_owned();
    let mut cursor = None;
    loop {
        let page = server.ask("GET", &path).version(OLD).send();
        names.extend(page.column("name"));
        cursor = cursor.or(page.json["pagination"]["next_cursor"].as_str().map(str::to_owned));
        let Some(link) = page.header("link") else { break };
        path = link.split(['<', '>']).nth(1).unwrap().to_owned();
    }
    assert_eq!(names, ["b0", "b1", "b2", "b3", "b4"]);
    let cursor = cursor.unwrap();
    let other = format!("/v1/titles?sort=title&limit=2&after={cursor}");
    server.ask("GET", &other).version(NEW).send().error(400, "cursor_invalid");
    let same = format!("/v1/titles?limit=2&after={cursor}");
    server.ask("GET", &same).version(NEW).send().error(400, "cursor_invalid");
}

const RELATED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "authors"
rename = { from = "name", to = "full_name" }
[[versions.changes]]
collection = "books"
rename = { from = "writer", to = "author" }
[[versions.changes]]
collection = "reviews"
rename = { from = "stars", to = "rating" }
[[versions]]
date = "2025-01-01"

[collections.authors.fields]
full_name = "string"
pin = { type = "string", write_only = true }

[collections.books.fields]
title = "string"
author = { type = "string", ref = "authors" }

[collections.reviews]
parent = "books"
fields = { rating = "integer" }
"#;

#[test]
fn embedded_records_have_the_shape_of_the_version() {
    let server = Start::schema(RELATED).go();
    let author = server.make("/v1/authors", json!({"full_name": "Ann", "pin": "0000"}));
    let book = server.make("/v1/books", json!({"title": "Dune", "author": author}));
    server.make(&format!("/v1/books/{book}/reviews"), json!({"rating": 5}));
    let old = |query: &str| {
        let path = format!("/v1/books/{book}?{query}");
        server.ask("GET", &path).version(OLD).send()
    };
    let shown = old("expand=writer,reviews").expect(200);
    assert_eq!(shown["writer"]["name"], "Ann");
    assert_eq!(shown["reviews"]["data"][0]["stars"], 5);
    let text = shown.to_string();
    for hidden in ["full_name", "rating", "0000", "\"author\":"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    old("expand=author").error(400, "invalid_parameter");
    let listed = server.ask("GET", "/v1/books?include=writer&fields=title").version(OLD).send();
    assert_eq!(listed.json["data"][0]["writer"]["name"], "Ann", "{}", listed.text);
    let found = server.ask("GET", &format!("/v1/books?writer={author}")).version(OLD).send();
    assert_eq!(found.column("writer"), [author.as_str()]);
    let made = server.ask("POST", "/v1/books").version(OLD);
    let error = made.json(&json!({"writer": "aut_none"})).send().error(422, "validation_failed");
    assert_eq!(
        (&error["param"], &error["errors"][0]["code"]),
        (&json!("writer"), &json!("bad_reference"))
    );
    let path = format!("/v1/books/{book}");
    let put = server.ask("PATCH", &path).version(OLD).json(&json!({"writer": "aut_none"})).send();
    assert_eq!(put.error(422, "validation_failed")["param"], "writer");
}

const STATES: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
enum_map = { field = "status", values = { canceled = "cancelled" } }
[[versions.changes]]
collection = "orders"
code = { from = "too_dear", to = "amount_too_large" }
[[versions.changes]]
collection = "orders"
rename = { from = "sum", to = "amount" }
[[versions]]
date = "2025-01-01"

[collections.orders]
fields = { amount = { type = "integer", filter = true } }
states = { field = "status", initial = "open", names = ["open", "paid", "cancelled"] }
[collections.orders.actions.cancel]
from = ["open"]
to = "cancelled"
[collections.orders.actions.pay]
from = ["open"]
to = "paid"
[[collections.orders.actions.pay.rules]]
when = "has(record.amount) && record.amount > 100"
status = 402
type = "card_error"
code = "amount_too_large"
message = "`amount` is too large."
"#;

#[test]
fn actions_states_and_codes_have_the_names_of_the_version() {
    let server = Start::schema(STATES).go();
    let post = |path: &str, version: &str, body: Value| {
        server.ask("POST", path).version(version).json(&body).send()
    };
    let dear = post("/v1/orders", OLD, json!({"sum": 200}));
    let path = format!("/v1/orders/{}", dear.id());
    let refused = |version: &str| post(&format!("{path}/pay"), version, json!({}));
    let error = refused(OLD).error(402, "too_dear");
    assert_eq!(error["message"], "`sum` is too large.");
    refused(NEW).error(402, "amount_too_large");
    let cancelled = post(&format!("{path}/cancel"), OLD, json!({})).expect(200);
    assert_eq!((&cancelled["status"], &cancelled["sum"]), (&json!("canceled"), &json!(200)));
    assert_eq!(server.ask("GET", &path).version(NEW).send().json["status"], "cancelled");
    let error = refused(OLD).error(409, "invalid_state");
    assert_eq!(error["current_state"], "canceled");
    assert_eq!(refused(NEW).error(409, "invalid_state")["current_state"], "cancelled");
    let found = server.ask("GET", "/v1/orders?status=canceled").version(OLD).send();
    assert_eq!(found.column("sum"), [200]);
    let key = |ask: Ask<'_>| ask.header("idempotency-key", "pay-1").json(&json!({})).send();
    let other = post("/v1/orders", OLD, json!({"sum": 300})).id();
    let pay = format!("/v1/orders/{other}/pay");
    let first = key(server.ask("POST", &pay).version(OLD));
    let again = key(server.ask("POST", &pay).version(OLD));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.json["error"]["code"], first.json["error"]["code"]);
    assert_eq!((again.status, &again.json["error"]["code"]), (402, &json!("too_dear")));
}
