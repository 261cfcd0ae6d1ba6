//! What single changes do where something else meets them: feeds, contracts, the proof at load,
//! times that were counted otherwise, parameters of actions.

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
        ("2024-01-01", "length=35", 3),
        ("2024-01-01", "length=null", 1),
        ("2024-01-01", "length=36,null", 2),
        ("2024-01-01", "min_length=35&max_length=35", 3),
        ("2024-01-01", "min_length=36", 1),
        ("2024-01-01", "min_size=1.5", 5),
        ("2024-01-01", "min_size=2", 1),
        ("2024-01-01", "max_size=2", 4),
        ("2024-01-01", "min_grade=2", 3),
        ("2024-01-01", "max_grade=1&min_length=35", 2),
        ("2025-01-01", "min_length=351", 2),
        ("2025-01-01", "max_length=351", 2),
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

const PAYING: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
action = "pay"
rename = { from = "sum", to = "amount" }
[[versions.changes]]
collection = "orders"
action = "pay"
enum_map = { field = "way", values = { card = "credit_card" } }
[[versions.changes]]
collection = "orders"
action = "pay"
required = { field = "currency", fill = "eur" }
[[versions.changes]]
collection = "orders"
action = "pay"
removed = { field = { name = "note", type = "string" } }
[[versions]]
date = "2025-01-01"

[collections.orders.fields]
paid = "string"
[collections.orders.actions.pay]
set = { paid = "=string(request.amount) + ' ' + request.currency + ' by ' + request.way" }
[collections.orders.actions.pay.params]
amount = { type = "integer", required = true, max = 100 }
way = { type = "string", enum = ["credit_card", "cash"], default = "cash" }
currency = { type = "string", required = true }
"#;

#[test]
fn parameters_of_actions_are_those_of_the_version() {
    let server = Start::schema(PAYING).go();
    let order = server.make("/v1/orders", json!({}));
    let pay = |version: &str, params: Value| {
        let ask = server.ask("POST", &format!("/v1/orders/{order}/pay"));
        ask.version(version).json(&params).send()
    };
    let (old, new) = ("2025-01-01", "2026-01-01");
    for (version, params, paid) in [
        (old, json!({"sum": 5, "way": "card", "note": "thanks"}), "5 eur by credit_card"),
        (old, json!({"sum": 6, "currency": "usd"}), "6 usd by cash"),
        (
            new,
            json!({"amount": 7, "way": "credit_card", "currency": "eur"}),
            "7 eur by credit_card",
        ),
    ] {
        assert_eq!(pay(version, params).expect(200)["paid"], paid);
    }
    for (version, params, wrong) in [
        (old, json!({"amount": 5}), vec!["amount", "sum"]),
        (old, json!({"sum": 101}), vec!["sum"]),
        (old, json!({"sum": 5, "way": "credit_card"}), vec!["way"]),
        (new, json!({"sum": 5, "currency": "eur"}), vec!["sum", "amount"]),
        (new, json!({"amount": 5, "way": "card"}), vec!["way", "currency"]),
    ] {
        let error = pay(version, params).error(422, "validation_failed");
        let fields = error["errors"].as_array().unwrap().iter().map(|one| &one["field"]);
        let mut fields: Vec<&str> = fields.map(|field| field.as_str().unwrap()).collect();
        let mut wrong = wrong;
        fields.sort_unstable();
        wrong.sort_unstable();
        assert_eq!(fields, wrong, "{version}: {error}");
    }
    let contract = |version: &str| server.get(&format!("/openapi.json?version={version}")).text;
    assert!(contract(old).contains("\"sum\"") && !contract(old).contains("\"amount\""));
    assert!(contract(new).contains("\"amount\"") && !contract(new).contains("\"sum\""));
    let changes = server.get("/changelog").text;
    assert!(changes.contains("- `orders`, parameters of `pay`: "), "{changes}");
}

/// Orders were paid in no certain way if none was said, then in coins. Another change makes the
/// parameters differ: they are brought up, defaults or not.
const DEFAULTED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
action = "pay"
default = { field = "way", was = "coins" }
[[versions.changes]]
collection = "orders"
action = "pay"
rename = { from = "sum", to = "amount" }
[[versions]]
date = "2025-06-01"
[[versions.changes]]
collection = "orders"
action = "pay"
default = { field = "way" }
[[versions]]
date = "2025-01-01"

[collections.orders.fields]
paid = "string"
[collections.orders.actions.pay]
params = { way = { type = "string", default = "card" }, amount = "integer" }
set = { paid = "=request.way != null ? request.way : 'somehow'" }
"#;

#[test]
fn a_parameter_that_is_not_sent_has_the_default_of_the_version_or_none() {
    let server = Start::schema(DEFAULTED).go();
    let order = server.make("/v1/orders", json!({}));
    for (version, default) in
        [("2025-01-01", "somehow"), ("2025-06-01", "coins"), ("2026-01-01", "card")]
    {
        for (params, paid) in [(json!({}), default), (json!({"way": "cheque"}), "cheque")] {
            let ask = server.ask("POST", &format!("/v1/orders/{order}/pay")).version(version);
            assert_eq!(ask.json(&params).send().expect(200)["paid"], paid, "{version} {params}");
        }
    }
}

/// A parameter has the name that a field had, and the rule speaks of both.
const JUDGED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
action = "pay"
rename = { from = "sum", to = "amount" }
[[versions.changes]]
collection = "orders"
rename = { from = "bound", to = "amount" }
[[versions.changes]]
collection = "orders"
rename = { from = "due", to = "total" }
[[versions]]
date = "2025-01-01"

[collections.orders.fields]
amount = "integer"
total = "integer"
[collections.orders.actions.pay]
params = { amount = "integer", way = "string" }
[[collections.orders.actions.pay.rules]]
when = "request.amount > record.total"
code = "too_much"
param = "amount"
message = "The `amount` is more than the `total`; choose another `way`."
"#;

#[test]
fn rules_name_parameters_as_the_version_calls_them() {
    let server = Start::schema(JUDGED).go();
    let order = server.make("/v1/orders", json!({"amount": 1, "total": 5}));
    let refused = |version: &str, params: Value| {
        let ask = server.ask("POST", &format!("/v1/orders/{order}/pay"));
        ask.version(version).json(&params).send().error(422, "too_much")
    };
    for (version, sent, due) in [("2025-01-01", "sum", "due"), ("2026-01-01", "amount", "total")] {
        let error = refused(version, json!({ sent: 6 }));
        assert_eq!(error["param"], sent, "{error}");
        let message = format!("The `{sent}` is more than the `{due}`; choose another `way`.");
        assert_eq!(error["message"], message);
    }
}

#[test]
fn changes_of_parameters_are_checked_and_planned() {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let told = |edit: (&str, &str)| {
        assert!(PAYING.contains(edit.0), "{}", edit.0);
        write("wrong.toml", &PAYING.replacen(edit.0, edit.1, 1));
        let (_, told, code) = run(folder.path(), &["check", "wrong.toml"]);
        assert_eq!(code, 1, "{edit:?}");
        told
    };
    let missing = told(("action = \"pay\"", "action = \"pya\""));
    assert!(missing.contains(":6:10: `pya` is no action of `orders` (did you mean"), "{missing}");
    let unknown = told(("to = \"amount\"", "to = \"amuont\""));
    assert!(unknown.contains(":7:1: `amuont` is no field of `orders.pay`"), "{unknown}");
    let unfit = told(("to = \"amount\"", "to = \"amount\", beside = true"));
    assert!(unfit.contains(":6:10: parameters can be changed by rename, split"), "{unfit}");
    let (params, first) =
        (PAYING.split("[collections.orders.fields]").nth(1).unwrap(), "first.toml");
    let params = params.replace("amount", "sum").replace("credit_card", "card");
    let params = params
        .replace("currency = { type = \"string\", required = true }", "currency = \"string\"");
    let params = format!("{params}note = \"string\"\n");
    write(first, &format!("service.version = \"2025-01-01\"\n[collections.orders.fields]{params}"));
    write("second.toml", PAYING);
    let (said, failed, code) = run(folder.path(), &["plan", first, "second.toml"]);
    assert_eq!(code, 0, "{said}{failed}");
}
