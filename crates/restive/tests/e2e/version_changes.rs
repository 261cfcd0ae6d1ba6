//! Effects of single changes on feeds, OpenAPI documents, limits, and the order of lists.

use crate::harness::{PATIENCE, Start};
use crate::live_client::Socket;
use crate::version_doors::restricted;
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
fn a_feed_can_be_polled_only_in_versions_that_have_it() {
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
    // Restricted keys can publish there too.
    let (writer, target) = (restricted(&server, "rumours:write"), "/ws?version=2025-01-01");
    let mut socket = Socket::try_open(server.address, &writer, target, PATIENCE).unwrap();
    let said = socket.ask_for(json!({"type": "rumour", "data": {"text": "psst"}}));
    assert_eq!(said["type"], "ack", "{said}");
}

const LOSSY: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "people"
convert = { field = "age", from = { type = "integer", required = true },
  up = "string(value)", down = "int(value)", lossy = true }
[[versions.changes]]
collection = "people"
optional = { field = "note", fill = "none" }
[[versions]]
date = "2025-01-01"
[collections.people.fields]
age = { type = "string", required = true }
note = "string"
"#;

/// Old clients read null for values that new clients omit or write differently, even if they must
/// send them.
#[test]
fn old_openapi_documents_accept_records_written_by_newer_clients() {
    let server = Start::schema(LOSSY).go();
    server.make("/v1/people", json!({"age": "old enough"}));
    let document = server.get("/openapi.json?version=2025-01-01").expect(200);
    let schema = |name: &str| &document["components"]["schemas"][name];
    let kind = |name: &str, field: &str| schema(name)["properties"][field]["type"].clone();
    assert_eq!(kind("Person", "age"), json!(["integer", "null"]));
    assert_eq!(kind("Person", "note"), json!("string"), "always filled in");
    assert_eq!(kind("PersonCreate", "age"), json!("integer"), "must be sent");
    let shown = server.ask("GET", "/v1/people").version("2025-01-01").send().expect(200);
    assert_eq!(shown["data"][0]["age"], Value::Null, "{shown}");
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

/// Including values written before the removal.
#[test]
fn a_removed_field_can_be_searched_in_versions_that_have_it() {
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
convert = { field = "price", from = { type = "number", max = 10, required = true },
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }
[[versions.changes]]
collection = "toys"
limits = { field = "name", was = { max_length = 9, pattern = "^[a-z ]*$" } }
[[versions.changes]]
collection = "toys"
convert = { field = "age", from = { type = "integer", required = true },
  up = "string(value)", down = "int(value)", lossy = true }
[[versions]]
date = "2025-01-01"
[collections.toys.fields]
price = { type = "integer", required = true }
name = "string"
age = { type = "string", required = true }
colour = "string"
"#;

/// The limits of the version apply to values that its clients change.
#[test]
fn old_clients_can_send_back_values_beyond_their_limits() {
    const OLD: &str = "2025-01-01";
    let server = Start::schema(LOOSER).go();
    let made = json!({"price": 2500, "name": "Marionette", "age": "any", "colour": "red"});
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
    assert_eq!((&kept["price"], &kept["name"]), (&json!(2500), &json!("Marionette")), "{kept}");
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
            // An older state of the record may have shown just that.
            ask().header("If-Match", "\"9\"").send().error(412, "precondition_failed");
        }
    }
    let mut wrong = shown.clone();
    wrong["colour"] = json!(5);
    let ask = server.ask("PUT", &path).version(OLD).header("If-Match", "\"9\"");
    ask.json(&wrong).send().error(422, "validation_failed");
    // Limits are reported together with values of a wrong type.
    shown["price"] = json!(26);
    shown["colour"] = json!(5);
    let error = put(&shown).error(422, "validation_failed");
    let fields: Vec<_> = error["errors"].as_array().unwrap().iter().map(|e| &e["field"]).collect();
    assert!(fields.contains(&&json!("price")) && fields.contains(&&json!("colour")), "{error}");
}

const SORTED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "jobs"
enum_map = { field = "state", values = { zero = "idle", open = "busy" } }
[[versions.changes]]
collection = "jobs"
optional = { field = "level", fill = 5 }
[[versions]]
date = "2025-01-01"
[collections.jobs.fields]
state = { type = "string", enum = ["idle", "busy"], sort = true }
level = { type = "integer", sort = true, filter = true }
"#;

/// Page by page, even if records move in the order in between.
#[test]
fn lists_are_sorted_by_the_values_that_the_version_shows() {
    const OLD: &str = "2025-01-01";
    let server = Start::schema(SORTED).go();
    let make = |state: &str, level: Value| {
        let body = json!({"state": state, "level": level});
        let made = server.ask("POST", "/v1/jobs").version("2026-01-01").json(&body).send();
        made.expect(201)["id"].as_str().unwrap().to_owned()
    };
    let jobs = [
        make("idle", json!(7)),
        make("busy", json!(null)),
        make("idle", json!(3)),
        make("busy", json!(6)),
    ];
    let page = |query: &str| server.ask("GET", &format!("/v1/jobs?{query}")).version(OLD).send();
    for (sort, field, order) in [
        ("state", "state", json!(["open", "open", "zero", "zero"])),
        ("-state", "state", json!(["zero", "zero", "open", "open"])),
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
    // A record that moved since the first page is neither skipped nor repeated.
    let first = page("limit=2&sort=level");
    let path = format!("/v1/jobs/{}", jobs[0]);
    let change = json!({"level": 1});
    server.ask("PATCH", &path).version("2026-01-01").json(&change).send().expect(200);
    let cursor = first.json["pagination"]["next_cursor"].as_str().unwrap();
    let rest = page(&format!("limit=2&sort=level&after={cursor}"));
    assert_eq!(rest.column("id"), [jobs[3].as_str(), jobs[0].as_str()]);
    assert_eq!(rest.column("level"), [6, 1]);
    // The replacement of null can be filtered by and is in ranges.
    for (query, expected) in [("level=5", 1), ("min_level=5", 2), ("max_level=5", 3)] {
        let sort = "sort=-state,level";
        assert_eq!(page(&format!("{query}&{sort}")).column("id").len(), expected, "{query}");
    }
}
