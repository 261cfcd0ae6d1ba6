//! What single changes do where something else meets them: feeds, contracts, the proof at load,
//! limits, and the order of lists.

use crate::harness::{PATIENCE, Start, run};
use crate::live_client::Socket;
use crate::version_doors::restricted;
use crate::versions::names_merged;
use serde_json::{Value, json};

const FEEDS: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "news"
collection_added = true
[[versions.changes]]
collection = "rumours"
collection_removed = true
[[versions]]
date = "2025-01-01"
[collections.news]
object = "report"
feed = true
[collections.news.fields]
text = "string"
[collections.rumours]
feed = true
[collections.rumours.fields]
text = "string"
"#;

#[test]
fn a_feed_is_polled_in_the_versions_that_have_it() {
    let server = Start::schema(FEEDS).go();
    let poll = |feed: &str, version: &str| server.get(&format!("/api/{feed}?version={version}"));
    for (feed, there, elsewhere) in
        [("rumours", "2025-01-01", "2026-01-01"), ("news", "2026-01-01", "2025-01-01")]
    {
        let post = server.ask("POST", &format!("/v1/{feed}")).version(there);
        post.json(&json!({"text": "hear, hear"})).send().expect(201);
        assert_eq!(poll(feed, there).expect(200)[0]["text"], "hear, hear", "{feed}");
        let error = poll(feed, elsewhere).error(404, "route_not_found");
        assert!(error["message"].as_str().unwrap().contains(there), "{feed}: {error}");
    }
    let error = server.get("/api/nothing").error(404, "route_not_found");
    assert!(!error["message"].as_str().unwrap().contains("rumours"), "{error}");
    let paths = |version: &str| {
        let document = server.get(&format!("/openapi.json?version={version}")).expect(200);
        document["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert!(paths("2025-01-01").contains(&"/api/rumours".to_owned()));
    assert!(!paths("2026-01-01").contains(&"/api/rumours".to_owned()));
    // Restricted keys speak there, too.
    let (writer, target) = (restricted(&server, "rumours:write"), "/ws?version=2025-01-01");
    let mut socket = Socket::try_open(server.address, &writer, target, PATIENCE).unwrap();
    let said = socket.ask_for(json!({"type": "rumour", "data": {"text": "psst"}}));
    assert_eq!(said["type"], "ack", "{said}");
}

const LOSSY: &str = concat!(
    r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "people""#,
    names_merged!(),
    r#"[[versions.changes]]
collection = "people"
retype = { field = "age", from = { type = "integer", required = true }, by = "text" }
[[versions.changes]]
collection = "people"
optional = { field = "note", fill = "none" }
[[versions]]
date = "2025-01-01"
[collections.people.fields]
name = "string"
age = { type = "string", required = true }
note = "string"
"#
);

/// What new clients leave out or say otherwise, old ones read as null; also what they must send.
#[test]
fn old_contracts_admit_what_newer_clients_write() {
    let server = Start::schema(LOSSY).go();
    server.make("/v1/people", json!({"age": "old enough"}));
    let document = server.get("/openapi.json?version=2025-01-01").expect(200);
    let schema = |name: &str| &document["components"]["schemas"][name];
    let kind = |name: &str, field: &str| schema(name)["properties"][field]["type"].clone();
    assert_eq!(kind("Person", "first"), json!(["string", "null"]));
    assert_eq!(kind("Person", "age"), json!(["integer", "null"]));
    assert_eq!(kind("Person", "note"), json!("string"), "always filled in");
    assert_eq!(kind("PersonCreate", "age"), json!("integer"), "must be sent");
    let shown = server.ask("GET", "/v1/people").version("2025-01-01").send().expect(200);
    let person = &shown["data"][0];
    assert_eq!((&person["first"], &person["age"]), (&Value::Null, &Value::Null), "{person}");
}

/// The last name was a member of an object before it became part of the name.
const BUILT_UP: &str = concat!(
    r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "people""#,
    names_merged!(),
    r#"[[versions]]
date = "2025-01-01"
[[versions.changes]]
collection = "people"
move = { from = "details.last", to = "last" }
[[versions]]
date = "2024-01-01"
[collections.people.fields]
name = { type = "string", required = true }
details = "object"
"#
);

#[test]
fn a_change_is_proved_with_all_that_a_request_must_have() {
    let server = Start::schema(BUILT_UP).go();
    let post = server.ask("POST", "/v1/people").version("2024-01-01");
    let made = post.json(&json!({"first": "Ada", "details": {"last": "King"}})).send();
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.json["details"], json!({"last": "King"}));
    let newest = server.get(&format!("/v1/people/{}", made.id())).expect(200);
    assert_eq!(newest["name"], "Ada King");
    // Without the limit that keeps the two apart, something is lost.
    let folder = tempfile::TempDir::new().unwrap();
    let loose = BUILT_UP.replace(", pattern = \"^[^ ]*$\"", "");
    std::fs::write(folder.path().join("loose.toml"), loose).unwrap();
    let (_, failed, code) = run(folder.path(), &["check", "loose.toml"]);
    assert_eq!(code, 1, "{failed}");
    assert!(failed.contains("this change loses data"), "{failed}");
}

/// The price was a number with a fraction, then cents, then their text, and is part of the label
/// now; the weight went the same way and is a member of an object.
const PRICED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "goods"
[versions.changes.merge]
from = [
  { name = "name", type = "string", pattern = "^[^ ]*$", required = true },
  { name = "price", type = "string" },
]
to = "label"
by = " "
[[versions.changes]]
collection = "goods"
move = { from = { name = "weight", type = "integer" }, to = "details.weight" }
[[versions]]
date = "2025-06-01"
[[versions.changes]]
collection = "goods"
retype = { field = "price", from = { type = "integer" }, by = "text" }
[[versions.changes]]
collection = "goods"
retype = { field = "weight", from = { type = "number" }, factor = 100 }
[[versions]]
date = "2025-01-01"
[[versions.changes]]
collection = "goods"
retype = { field = "price", from = { type = "number" }, factor = 100 }
[[versions]]
date = "2024-01-01"
[collections.goods.fields]
label = { type = "string", required = true, max_length = 12 }
details = "object"
"#;

#[test]
fn what_is_wrong_with_one_of_several_fields_is_said_of_that_one() {
    let server = Start::schema(PRICED).go();
    let ask = |method: &str, path: &str, body: &Value| {
        server.ask(method, path).version("2024-01-01").json(body).send()
    };
    let good = json!({"name": "pear", "price": 0.25, "weight": 1.5});
    let made = ask("POST", "/v1/goods", &good).expect(201);
    let path = format!("/v1/goods/{}", made["id"].as_str().unwrap());
    for (change, param, code) in [
        (json!({"price": 0.005}), "price", "unsuitable"),
        (json!({"weight": 0.005}), "weight", "unsuitable"),
        (json!({"price": 1234567}), "price", "too_long"),
        (json!({"name": "a-whole-sentence"}), "name", "too_long"),
        (json!({"name": "a-whole-sentence", "price": 0.005}), "price", "unsuitable"),
    ] {
        let mut whole = good.clone();
        let members = change.as_object().unwrap().clone();
        whole.as_object_mut().unwrap().extend(members);
        for (method, path, body) in
            [("POST", "/v1/goods", &whole), ("PATCH", &path, &change), ("PUT", &path, &whole)]
        {
            let error = ask(method, path, body).error(422, "validation_failed");
            let told = (&error["param"], &error["errors"][0]["field"], &error["errors"][0]["code"]);
            assert_eq!(told, (&json!(param), &json!(param), &json!(code)), "{method}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(&format!("`{param}`")), "{method} {body}: {message}");
        }
    }
    assert_eq!(server.get(&path).expect(200)["details"], json!({"weight": 150}));
}

/// No two members have one name, which was made of two.
const NAMED: &str = concat!(
    r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "members""#,
    names_merged!(),
    r#"
[[versions]]
date = "2025-01-01"
[collections.members.fields]
name = { type = "string", required = true, unique = true }
"#
);

#[test]
fn a_name_that_another_has_is_said_of_the_part_that_made_it_so() {
    let server = Start::schema(NAMED).go();
    let ask = |version: &str, method: &str, path: &str, body: &Value| {
        server.ask(method, path).version(version).json(body).send()
    };
    let (old, new) = ("2025-01-01", "2026-01-01");
    let make = |body: Value| {
        let made = ask(old, "POST", "/v1/members", &body).expect(201);
        format!("/v1/members/{}", made["id"].as_str().unwrap())
    };
    make(json!({"first": "Ada"}));
    make(json!({"first": "Ada", "last": "King"}));
    let byron = make(json!({"first": "Ada", "last": "Byron"}));
    let eve = make(json!({"first": "Eve", "last": "King"}));
    let both = json!({"first": "Ada", "last": "King"});
    for (version, method, path, body, param) in [
        (old, "PATCH", &byron, json!({"last": "King"}), "last"),
        (old, "PATCH", &byron, both.clone(), "last"),
        (old, "PUT", &byron, both.clone(), "last"),
        (old, "PUT", &byron, json!({"first": "Ada"}), "last"),
        (old, "PATCH", &byron, json!({"first": "Eve", "last": "King"}), "first"),
        (old, "PATCH", &eve, json!({"first": "Ada"}), "first"),
        (old, "PATCH", &eve, both.clone(), "first"),
        (old, "PUT", &eve, both.clone(), "first"),
        (old, "POST", &"/v1/members".to_owned(), both.clone(), "first"),
        (new, "PATCH", &byron, json!({"name": "Ada King"}), "name"),
    ] {
        let error = ask(version, method, path, &body).error(422, "validation_failed");
        let told = &error["errors"][0];
        let about = format!("{method} {body}: {error}");
        assert_eq!((&error["param"], &told["field"]), (&json!(param), &json!(param)), "{about}");
        assert_eq!(told["code"], "not_unique", "{about}");
        assert_eq!(told["message"], format!("Another member has this {param}."), "{about}");
        assert_eq!(told["value"], body[param], "{about}");
    }
}

/// Sizes were numbers that had to be there, grades numbers from 1 to 2, lengths whole centimetres,
/// of which none were 35.1.
const WORDLESS: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "shirts"
retype = { field = "size", from = { type = "number" }, by = "text" }
[[versions.changes]]
collection = "shirts"
[versions.changes.retype]
field = "grade"
from = { type = "integer", min = 1, max = 2 }
map = { 1 = "good", 2 = "fair" }
[[versions.changes]]
collection = "shirts"
required = { field = "length", fill = 351 }
[[versions]]
date = "2025-01-01"
[[versions.changes]]
collection = "shirts"
optional = { field = "size", fill = 1.5 }
[[versions.changes]]
collection = "shirts"
optional = { field = "grade", fill = 2 }
[[versions.changes]]
collection = "shirts"
retype = { field = "length", from = { type = "integer" }, factor = 10 }
[[versions]]
date = "2024-01-01"
[collections.shirts.fields]
size = { type = "string", filter = true }
grade = { type = "string", filter = true }
length = { type = "integer", filter = true, required = true }
"#;

/// A filter finds what is shown as it asks, also where that stands for what the version cannot say.
#[test]
fn values_without_a_word_are_found_as_what_they_are_shown_as() {
    let server = Start::schema(WORDLESS).go();
    for (size, grade, length) in [
        (json!("large"), json!("good"), 353),
        (json!("1.5"), json!("fair"), 350),
        (json!("1.50"), json!("poor"), 351),
        (json!("3"), Value::Null, 347),
        (Value::Null, json!("good"), 355),
    ] {
        server.make("/v1/shirts", json!({"size": size, "grade": grade, "length": length}));
    }
    for (version, query, expected) in [
        ("2024-01-01", "size=1.5", 4),
        ("2024-01-01", "size=3", 1),
        ("2024-01-01", "size=3,1.5", 5),
        ("2024-01-01", "size=null", 0),
        ("2024-01-01", "grade=2", 3),
        ("2024-01-01", "grade=2&size=1.5", 2),
        ("2024-01-01", "grade=1", 2),
        ("2024-01-01", "length=35", 4),
        ("2024-01-01", "length=null", 0),
        ("2024-01-01", "length=36,null", 1),
        ("2024-01-01", "min_length=35&max_length=35", 4),
        ("2024-01-01", "min_length=36", 1),
        ("2024-01-01", "min_size=1.5", 5),
        ("2024-01-01", "min_size=2", 1),
        ("2024-01-01", "max_size=2", 4),
        ("2024-01-01", "min_grade=2", 3),
        ("2024-01-01", "max_grade=1&min_length=35", 2),
        ("2025-01-01", "min_length=351", 3),
        ("2025-01-01", "max_length=351", 3),
        ("2025-01-01", "min_size=1", 2),
        ("2025-01-01", "max_grade=2", 3),
        ("2025-01-01", "size=1.5", 1),
        ("2025-01-01", "size=null", 3),
        ("2025-01-01", "grade=null", 2),
        ("2025-01-01", "grade=null,1", 4),
    ] {
        let path = format!("/v1/shirts?{query}");
        let found = server.ask("GET", &path).version(version).send();
        assert_eq!(found.column("id").len(), expected, "{version} {query}: {}", found.text);
        // Page by page, too.
        let mut seen = 0;
        let mut page = server.ask("GET", &format!("{path}&limit=1")).version(version).send();
        while let Some(cursor) = page.json["pagination"]["next_cursor"].as_str() {
            seen += page.column("id").len();
            let next = format!("{path}&limit=1&after={cursor}");
            page = server.ask("GET", &next).version(version).send();
        }
        assert_eq!(seen + page.column("id").len(), expected, "{version} {query}: {}", page.text);
    }
}

const SHELVED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
removed = { field = "blurb" }
[[versions]]
date = "2025-01-01"
[collections.books.fields]
title = "string"
blurb = { type = "string", search = true }
"#;

/// Also what was written before it was removed.
#[test]
fn a_removed_field_is_searched_by_those_who_know_it() {
    let (_, fields) = SHELVED.split_once("[collections").unwrap();
    let first = format!("[service]\nversion = \"2025-01-01\"\n[collections{fields}");
    let server = Start::schema(&first).go();
    server.make("/v1/books", json!({"blurb": "A tale of sand"}));
    let (_, folder) = server.stop();
    let server = Start::schema(SHELVED).on(&folder).go();
    let old = |method: &str, path: &str| server.ask(method, path).version("2025-01-01");
    let more = json!({"blurb": "A tale of snow"});
    old("POST", "/v1/books").json(&more).send().expect(201);
    assert_eq!(old("GET", "/v1/books?q=sand").send().column("blurb"), ["A tale of sand"]);
    assert_eq!(old("GET", "/v1/books?q=tale").send().column("blurb").len(), 2);
    let new = server.ask("GET", "/v1/books?q=sand").version("2026-01-01").send();
    new.error(400, "unknown_parameter");
}

/// Prices were at most ten dollars, names were short, and ages were numbers.
const LOOSER: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "toys"
retype = { field = "price", from = { type = "number", max = 10, required = true }, factor = 100 }
[[versions.changes]]
collection = "toys"
split = { from = { name = "name", type = "string", max_length = 9, pattern = "^[a-z ]*$" },
          to = ["first", "second"], by = " " }
[[versions.changes]]
collection = "toys"
retype = { field = "age", from = { type = "integer", required = true }, by = "text" }
[[versions]]
date = "2025-01-01"
[collections.toys.fields]
price = { type = "integer", required = true }
first = "string"
second = "string"
age = { type = "string", required = true }
colour = "string"
"#;

/// The limits of the version hold for what its clients change.
#[test]
fn what_a_newer_client_wrote_beyond_old_limits_is_sent_back_and_kept() {
    const OLD: &str = "2025-01-01";
    let server = Start::schema(LOOSER).go();
    let made = json!({"price": 2500, "first": "Marionette", "age": "any", "colour": "red"});
    let id = server.make("/v1/toys", made);
    let path = format!("/v1/toys/{id}");
    let mut shown = server.ask("GET", &path).version(OLD).send().expect(200).clone();
    assert_eq!((&shown["price"], &shown["age"]), (&json!(25), &Value::Null), "{shown}");
    shown["colour"] = json!("blue");
    let put = |body: &Value| server.ask("PUT", &path).version(OLD).json(body).send();
    assert_eq!(put(&shown).expect(200)["colour"], "blue");
    shown.as_object_mut().unwrap().remove("updated_at");
    let mut short = shown.clone();
    short.as_object_mut().unwrap().remove("age");
    short["colour"] = json!("green");
    put(&short).expect(200);
    let patch = json!({"price": 25, "name": "Marionette", "age": null, "colour": "grey"});
    server.ask("PATCH", &path).version(OLD).json(&patch).send().expect(200);
    let kept = server.get(&path).expect(200);
    assert_eq!((&kept["price"], &kept["first"]), (&json!(2500), &json!("Marionette")), "{kept}");
    assert_eq!((&kept["age"], &kept["colour"]), (&json!("any"), &json!("grey")), "{kept}");
    for (field, value, code) in [
        ("price", json!(26), "too_large"),
        ("name", json!("Marionettes"), "too_long"),
        ("name", json!("A"), "pattern_mismatch"),
        ("price", json!(null), "required"),
    ] {
        let mut body = shown.clone();
        body[field] = value.clone();
        for method in ["PUT", "PATCH"] {
            let ask = || server.ask(method, &path).version(OLD).json(&body);
            let error = ask().send().error(422, "validation_failed");
            let told = &error["errors"][0];
            assert_eq!((&told["field"], &told["code"]), (&json!(field), &json!(code)));
            assert_eq!(error["errors"].as_array().unwrap().len(), 1, "{error}");
            if !value.is_null() {
                assert_eq!(told["value"], value, "{error}");
            }
            // What an older state of the record showed may have been just that.
            ask().header("If-Match", "\"9\"").send().error(412, "precondition_failed");
        }
    }
    let mut wrong = shown.clone();
    wrong["colour"] = json!(5);
    let ask = server.ask("PUT", &path).version(OLD).header("If-Match", "\"9\"");
    ask.json(&wrong).send().error(422, "validation_failed");
    // Beside what is no value of its type, limits are told at once.
    shown["price"] = json!(26);
    shown["colour"] = json!(5);
    let error = put(&shown).error(422, "validation_failed");
    let fields: Vec<_> = error["errors"].as_array().unwrap().iter().map(|e| &e["field"]).collect();
    assert!(fields.contains(&&json!("price")) && fields.contains(&&json!("colour")), "{error}");
}

/// Prices were any dollars, and are at most a hundred cents.
const TIGHTER: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "toys"
retype = { field = "price", from = { type = "number" }, factor = 100 }
[[versions.changes]]
collection = "toys"
retype = { field = "age", from = { type = "integer", max = 99 }, by = "text" }
[[versions]]
date = "2025-01-01"
[collections.toys.fields]
price = { type = "integer", max = 100 }
age = "string"
colour = { type = "string", max_length = 5 }
"#;

#[test]
fn what_newer_versions_refuse_is_told_with_all_else_that_is_wrong() {
    let server = Start::schema(TIGHTER).go();
    let id = server.make("/v1/toys", json!({"price": 50}));
    let path = format!("/v1/toys/{id}");
    let told = |method: &str, path: &str, body: Value| -> Vec<(String, String)> {
        let answer = server.ask(method, path).version("2025-01-01").json(&body).send();
        let error = answer.error(422, "validation_failed");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = error["errors"].as_array().unwrap().iter();
        let mut all: Vec<_> = all.map(|one| (text(&one["field"]), text(&one["code"]))).collect();
        all.sort();
        all
    };
    let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(field, code)| ((*field).to_owned(), (*code).to_owned())).collect()
    };
    let large = ("price", "too_large");
    for (body, expected) in [
        (json!({"price": 2, "colour": 5}), [("colour", "wrong_type"), large]),
        (json!({"price": 0.005, "size": 1}), [("price", "unsuitable"), ("size", "unknown_field")]),
        (json!({"price": 2, "age": 100}), [("age", "too_large"), large]),
    ] {
        assert_eq!(told("POST", "/v1/toys", body), pairs(&expected));
    }
    // One fault of a field is told once.
    assert_eq!(told("POST", "/v1/toys", json!({"price": "2"})), pairs(&[("price", "wrong_type")]));
    for method in ["PUT", "PATCH"] {
        let body = json!({"price": 2, "age": 100});
        assert_eq!(told(method, &path, body), pairs(&[("age", "too_large"), large]), "{method}");
    }
}

/// Amounts were whole dollars, times whole seconds.
const ROUNDED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "coins"
retype = { field = "worth", from = "integer", factor = 100 }
[[versions.changes]]
collection = "coins"
retype = { field = "minted", from = "integer", by = "seconds" }
[[versions]]
date = "2025-01-01"
[collections.coins.fields]
worth = { type = "integer", sort = true }
minted = { type = "timestamp", sort = true }
name = { type = "string", sort = true }
"#;

/// What an older version shows alike, the next key tells apart.
#[test]
fn several_sort_keys_go_by_what_the_version_shows() {
    let server = Start::schema(ROUNDED).go();
    for (name, worth) in [("n", 200), ("z", 150), ("a", 249), ("m", 151)] {
        let minted = format!("2026-01-01T00:00:00.{worth}Z");
        server.make("/v1/coins", json!({"name": name, "worth": worth, "minted": minted}));
    }
    for (version, sort, names) in [
        ("2025-01-01", "worth,name", ["a", "m", "n", "z"]),
        ("2025-01-01", "-worth,-name", ["z", "n", "m", "a"]),
        ("2025-01-01", "minted,name", ["a", "m", "n", "z"]),
        ("2025-01-01", "name,worth", ["a", "m", "n", "z"]),
        ("2026-01-01", "worth,name", ["z", "m", "n", "a"]),
    ] {
        let mut found = Vec::new();
        let mut next = format!("/v1/coins?sort={sort}&limit=3");
        loop {
            let page = server.ask("GET", &next).version(version).send().expect(200);
            let data = page["data"].as_array().unwrap();
            found.extend(data.iter().map(|coin| coin["name"].as_str().unwrap().to_owned()));
            let Some(cursor) = page["pagination"]["next_cursor"].as_str() else { break };
            next = format!("/v1/coins?sort={sort}&limit=3&after={cursor}");
        }
        assert_eq!(found, names, "{version} {sort}");
    }
}

const SORTED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "jobs"
enum_map = { field = "state", values = { zero = "idle", open = "busy" } }
[[versions.changes]]
collection = "jobs"
retype = { field = "size", from = "integer", by = "text" }
[[versions.changes]]
collection = "jobs"
optional = { field = "level", fill = 5 }
[[versions]]
date = "2025-01-01"
[collections.jobs.fields]
state = { type = "string", enum = ["idle", "busy"], sort = true }
size = { type = "string", sort = true }
level = { type = "integer", sort = true }
"#;

/// Page by page, also when records move in the order meanwhile.
#[test]
fn lists_are_in_the_order_of_what_the_version_shows() {
    const OLD: &str = "2025-01-01";
    let server = Start::schema(SORTED).go();
    let make = |state: &str, size: &str, level: Value| {
        let body = json!({"state": state, "size": size, "level": level});
        let made = server.ask("POST", "/v1/jobs").version("2026-01-01").json(&body).send();
        made.expect(201)["id"].as_str().unwrap().to_owned()
    };
    let jobs = [
        make("idle", "10", json!(7)),
        make("busy", "9", json!(null)),
        make("idle", "100", json!(3)),
        make("busy", "none", json!(6)),
    ];
    let page = |query: &str| server.ask("GET", &format!("/v1/jobs?{query}")).version(OLD).send();
    for (sort, field, order) in [
        ("state", "state", json!(["open", "open", "zero", "zero"])),
        ("-state", "state", json!(["zero", "zero", "open", "open"])),
        ("size", "size", json!([null, 9, 10, 100])),
        ("-size", "size", json!([100, 10, 9, null])),
        ("level", "level", json!([3, 5, 6, 7])),
        ("-level", "level", json!([7, 6, 5, 3])),
        ("state,-level", "level", json!([6, 5, 7, 3])),
    ] {
        assert_eq!(json!(page(&format!("sort={sort}")).column(field)), order, "{sort}");
        let mut walked = Vec::new();
        let mut query = format!("limit=1&sort={sort}");
        loop {
            let found = page(&query);
            walked.extend(found.column(field));
            let Some(cursor) = found.json["pagination"]["next_cursor"].as_str() else { break };
            query = format!("limit=1&sort={sort}&after={cursor}");
        }
        assert_eq!(json!(walked), order, "{sort}, page by page");
    }
    // What has moved since the first page is neither skipped nor repeated.
    let first = page("limit=2&sort=size");
    let change = json!({"size": "1"});
    let path = format!("/v1/jobs/{}", jobs[2]);
    server.ask("PATCH", &path).version("2026-01-01").json(&change).send().expect(200);
    let cursor = first.json["pagination"]["next_cursor"].as_str().unwrap();
    let rest = page(&format!("limit=2&sort=size&after={cursor}"));
    assert_eq!(rest.column("id"), [jobs[0].as_str(), jobs[2].as_str()]);
    assert_eq!(rest.column("size"), [10, 1]);
}

/// Lists were asked by all of these, each of which is in another form now.
const ASKED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "people"
[versions.changes.split]
from = { name = "name", type = "string", filter = true, sort = true }
to = ["first", "last"]
by = " "
[[versions.changes]]
collection = "people"
[versions.changes.merge]
from = [
    { name = "street", type = "string", pattern = "^[^,]*$", required = true, filter = true },
    { name = "town", type = "string", filter = true, sort = true },
]
to = "place"
by = ","
[[versions.changes]]
collection = "people"
move = { from = { name = "age", type = "integer", filter = true, sort = true }, to = "facts.age" }
[[versions.changes]]
collection = "people"
retype = { field = "phone", from = { type = "string", filter = true }, by = "list" }
[[versions]]
date = "2025-06-01"
[[versions.changes]]
collection = "people"
rename = { from = "years", to = "age" }
[[versions]]
date = "2025-01-01"
[collections.people]
object = "person"
[collections.people.fields]
first = { type = "string", sort = true }
last = "string"
place = { type = "string", required = true }
facts = "object"
phone = { type = "array", items = "string" }
"#;

#[test]
fn what_was_split_merged_moved_or_listed_is_asked_by_as_before() {
    let server = Start::schema(ASKED).go();
    let ask = |method: &str, path: &str| server.ask(method, path).version("2025-01-01");
    let mut ids = Vec::new();
    for (name, street, town, years, phone) in [
        ("Ada King", "Hill Road", json!("Kent"), json!(36), json!("1")),
        ("Ada Byron", "Hill Road", json!("Bath"), json!(8), json!("2")),
        ("Mary", "Low Road", json!(null), json!(null), json!(null)),
        ("Grace Hopper", "Low Road", json!("Bath"), json!(85), json!("1")),
    ] {
        let body = json!({"name": name, "street": street, "town": town, "years": years,
            "phone": phone});
        ids.push(ask("POST", "/v1/people").json(&body).send().expect(201)["id"].clone());
    }
    for (query, found) in [
        ("name=Ada%20King", &[0][..]),
        ("name=Mary", &[2]),
        ("name=King", &[]),
        ("street=Low%20Road", &[3, 2]),
        ("town=Bath", &[3, 1]),
        ("town=null", &[2]),
        ("town=null,Kent", &[2, 0]),
        ("street=Low%20Road&town=Bath", &[3]),
        ("years=36", &[0]),
        ("min_years=36", &[3, 0]),
        ("max_years=36", &[1, 0]),
        ("years=null", &[2]),
        ("phone=1", &[3, 0]),
        ("sort=name", &[1, 0, 3, 2]),
        ("sort=-years", &[3, 0, 1, 2]),
        ("sort=town,-name", &[2, 3, 1, 0]),
        ("sort=years&street=Hill%20Road", &[1, 0]),
    ] {
        let path = format!("/v1/people?{query}");
        let list = ask("GET", &path).send();
        let mut shown = list.column("id");
        let mut wanted: Vec<Value> = found.iter().map(|place| ids[*place].clone()).collect();
        if !query.contains("sort") {
            // The newest first is not what this is about.
            shown.sort_by_key(Value::to_string);
            wanted.sort_by_key(Value::to_string);
        }
        assert_eq!(shown, wanted, "{query}: {}", list.text);
        // Page by page, too.
        let mut seen = Vec::new();
        let mut page = ask("GET", &format!("{path}&limit=1")).send();
        loop {
            seen.extend(page.column("id"));
            let Some(cursor) = page.json["pagination"]["next_cursor"].as_str() else { break };
            page = ask("GET", &format!("{path}&limit=1&after={cursor}")).send();
        }
        assert_eq!(seen, list.column("id"), "{query}");
    }
    // Who moves in the order while it is walked is met where it was.
    let first = ask("GET", "/v1/people?sort=name&limit=2").send();
    let cursor = first.json["pagination"]["next_cursor"].as_str().unwrap().to_owned();
    let path = format!("/v1/people/{}", ids[3].as_str().unwrap());
    ask("PATCH", &path).json(&json!({"name": "Aa", "years": 1})).send().expect(200);
    let rest = ask("GET", &format!("/v1/people?sort=name&limit=2&after={cursor}")).send();
    assert_eq!(rest.column("id"), [ids[3].clone(), ids[2].clone()], "{}", rest.text);
    // The contract says so, and the newest has none of it.
    let contract = server.get("/openapi.json?version=2025-01-01").expect(200);
    let params = contract["paths"]["/v1/people"]["get"]["parameters"].to_string();
    for name in ["\"name\"", "\"min_years\"", "\"town\"", "\"phone\""] {
        assert!(params.contains(name), "{name}: {params}");
    }
    let newest = server.ask("GET", "/v1/people?place=x").version("2026-01-01").send();
    newest.error(400, "unknown_parameter");
    let unsorted = ask("GET", "/v1/people?sort=street").send();
    unsorted.error(400, "invalid_parameter");
}
