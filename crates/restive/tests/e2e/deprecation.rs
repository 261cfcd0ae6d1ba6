//! Deprecated versions, collections and fields: every interface with headers announces them, and
//! their use is counted by account, so that an operator knows who still uses them.

use crate::harness::{Answer, PATIENCE, Server, Start, eventually};
use crate::live_client::{Events, Opened, Socket, bearer, figures, open_connections};
use crate::version_doors::restricted;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NEW: &str = "2026-06-01";
const OLD: &str = "2026-01-01";

/// A version, two collections and a field, each with both dates and a link.
const LEAVING: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "books"
rename = { from = "rack", to = "shelf" }
[[versions.changes]]
collection = "novelties"
collection_added = true
[[versions]]
date = "2026-01-01"
deprecated = "2026-02-01"
sunset = "2027-02-01"
link = "https://shop.example/version"

[collections.pens.fields]
title = { type = "string", max_length = 20 }
[collections.novelties.fields]
title = "string"
[collections.notes]
feed = true
fields = { text = "string" }

[collections.clubs]
deprecated = "2026-03-01"
sunset = "2027-03-01"
link = "https://shop.example/collection"
fields = { title = "string" }
[collections.members]
parent = "clubs"
fields = { name = "string" }
[collections.rumours]
feed = true
deprecated = "2026-03-01"
sunset = "2027-03-01"
link = "https://shop.example/collection"
fields = { text = "string" }

[collections.books.fields]
title = "string"
[collections.books.fields.shelf]
type = "string"
filter = true
sort = true
deprecated = "2026-04-01"
sunset = "2027-04-01"
link = "https://shop.example/field"
[collections.books.actions.move]
params = { shelf = "string" }
"#;

/// `Deprecation`, `Sunset` and the links.
type Told = (String, String, Vec<String>);

fn nothing() -> Told {
    (String::new(), String::new(), Vec::new())
}

fn of_version() -> Told {
    told("@1769904000", "Mon, 01 Feb 2027 00:00:00 GMT", &["version"])
}

fn of_collection() -> Told {
    told("@1772323200", "Mon, 01 Mar 2027 00:00:00 GMT", &["collection"])
}

fn of_field() -> Told {
    told("@1775001600", "Thu, 01 Apr 2027 00:00:00 GMT", &["field"])
}

fn told(since: &str, until: &str, links: &[&str]) -> Told {
    let link = |about: &&str| format!("<https://shop.example/{about}>; rel=\"deprecation\"");
    (since.to_owned(), until.to_owned(), links.iter().map(link).collect())
}

fn tells(answer: &Answer) -> Told {
    let one = |name: &str| answer.header(name).unwrap_or_default().to_owned();
    let links = answer.headers("link").into_iter();
    let links = links.filter(|link| link.contains("deprecation")).map(str::to_owned);
    (one("deprecation"), one("sunset"), links.collect())
}

/// The same for a response that stays open, whose header names are in lower case.
fn opening_tells(opened: &Opened) -> Told {
    let one = |name: &str| opened.header(name).unwrap_or_default().to_owned();
    let links = opened.head.lines().filter_map(|line| line.strip_prefix("link: "));
    (one("deprecation"), one("sunset"), links.map(str::to_owned).collect())
}

fn in_small((since, until, links): Told) -> Told {
    (since, until.to_ascii_lowercase(), links)
}

#[test]
fn deprecation_headers_of_versions_collections_and_fields_have_both_dates_and_a_link() {
    let server = Start::schema(LEAVING).go();
    let get =
        |version: &str, target: &str| tells(&server.ask("GET", target).version(version).send());
    assert_eq!(get(OLD, "/v1/pens"), of_version());
    assert_eq!(get(NEW, "/v1/clubs"), of_collection());
    for query in ["shelf=a", "sort=-shelf", "fields=title,shelf"] {
        assert_eq!(get(NEW, &format!("/v1/books?{query}")), of_field(), "{query}");
    }
    for target in ["/v1/pens", "/v1/books", "/v1/books?fields=title", "/api/notes", "/health"] {
        assert_eq!(get(NEW, target), nothing(), "{target}");
    }
    // The earliest dates, and every link.
    let (since, until, _) = of_version();
    let both = |one: &str| {
        let (_, _, links) = told("", "", &[one, "version"]);
        (since.clone(), until.clone(), links)
    };
    assert_eq!(get(OLD, "/v1/clubs"), both("collection"));
    assert_eq!(get(OLD, "/v1/books?rack=a"), both("field"), "by the name it had");
}

#[test]
fn every_response_in_a_deprecated_version_has_deprecation_headers() {
    let server = Start::schema(LEAVING).go();
    let ask = |method: &str, target: &str| server.ask(method, target).version(OLD);
    let pen = server.make("/v1/pens", json!({ "title": "quill" }));
    let one = format!("/v1/pens/{pen}");
    let tag = server.ask("GET", &one).version(OLD).send().header("etag").unwrap().to_owned();
    let body = json!({ "title": "reed" });
    let keyed = || ask("POST", "/v1/pens").header("idempotency-key", "k").json(&body).send();
    let reader = restricted(&server, "books:read");
    let long = json!({ "title": "x".repeat(21) });
    for (status, answer) in [
        (200, ask("GET", "/v1/pens").send()),
        (200, ask("GET", &one).send()),
        (200, ask("HEAD", &one).send()),
        (304, ask("GET", &one).header("if-none-match", &tag).send()),
        (201, keyed()),
        (201, keyed()),
        (200, ask("PATCH", &one).json(&body).send()),
        (200, ask("PUT", &one).json(&body).send()),
        (200, ask("DELETE", &one).send()),
        (404, ask("GET", &one).send()),
        (404, ask("GET", "/v1/novelties").send()),
        (422, ask("POST", "/v1/pens").json(&long).send()),
        (400, ask("POST", "/v1/pens").body("{").header("content-type", "application/json").send()),
        (400, ask("GET", "/v1/pens?nothing=1").send()),
        (405, ask("DELETE", "/v1/pens").send()),
        (401, server.ask_anonymously("GET", &one).version(OLD).send()),
        (403, ask("GET", &one).key(&reader).send()),
        (200, ask("GET", "/v1/account").send()),
        (200, ask("GET", "/v1/version-usage").send()),
        (200, ask("GET", "/v1/presence").send()),
        (201, ask("POST", "/v1/channel-tokens").json(&json!({})).send()),
        (200, ask("GET", "/api/notes").send()),
        (200, server.get(&format!("/api/notes?version={OLD}"))),
        (200, ask("HEAD", "/api/events").send()),
        (426, ask("GET", "/ws").send()),
    ] {
        assert_eq!((answer.status, tells(&answer)), (status, of_version()), "{}", answer.text);
    }
    assert_eq!(keyed().header("idempotent-replayed"), Some("true"));
    // The pin has the same effect as the header.
    server.post("/v1/account", json!({ "api_version": OLD })).expect(200);
    assert_eq!(tells(&server.get("/v1/pens")), of_version());
    let refused = server.ask("GET", "/v1/pens").key(&reader).send();
    assert_eq!((refused.status, tells(&refused)), (403, of_version()));
}

#[test]
fn every_response_about_a_deprecated_collection_has_deprecation_headers() {
    let server = Start::schema(LEAVING).go();
    let club = server.post("/v1/clubs", json!({ "title": "a" }));
    let one = format!("/v1/clubs/{}", club.id());
    let members = format!("{one}/members");
    let limit = "/v1/clubs?limit=1";
    server.make("/v1/clubs", json!({}));
    let page = server.get(limit);
    assert!(page.headers("link").iter().any(|link| link.contains("rel=\"next\"")), "{page:?}");
    for answer in [
        club,
        page,
        server.get(&one),
        server.patch(&one, json!({ "title": "b" })),
        server.post("/v1/clubs", json!({ "nothing": 1 })),
        server.post(&members, json!({ "name": "Ada" })),
        server.get(&members),
        server.get("/v1/clubs/none"),
        server.get("/api/rumours"),
        server.ask("HEAD", "/api/events?types=club.created").send(),
    ] {
        assert_eq!(tells(&answer), of_collection(), "{} {}", answer.status, answer.text);
    }
    // A subscription to everything names no type.
    assert_eq!(tells(&server.ask("HEAD", "/api/events?types=*,pen.*").send()), nothing());
}

#[test]
fn a_request_that_names_a_deprecated_field_gets_deprecation_headers() {
    let server = Start::schema(LEAVING).go();
    let made = server.post("/v1/books", json!({ "title": "Dune", "shelf": "a" }));
    let one = format!("/v1/books/{}", made.id());
    for answer in [
        made,
        server.patch(&one, json!({ "shelf": "b" })),
        server.post("/v1/books", json!({ "shelf": 3 })),
        server.get(&format!("{one}?fields=shelf")),
        server.get("/v1/books?shelf=a&nothing=1"),
    ] {
        assert_eq!(tells(&answer), of_field(), "{} {}", answer.status, answer.text);
    }
    // A response that shows the field does not name it, and a parameter of an action is not a
    // field.
    assert_eq!(tells(&server.get(&one)), nothing());
    let moved = server.post(&format!("{one}/move"), json!({ "shelf": "c" }));
    assert_eq!((moved.status, tells(&moved)), (200, nothing()));
}

#[test]
fn opening_a_channel_returns_deprecation_headers() {
    let server = Start::schema(LEAVING).go();
    let open = |target: &str| {
        let headers = [bearer(&server.key), "Accept: text/event-stream".to_owned()];
        Opened::try_get(server.address, target, &headers, PATIENCE).unwrap()
    };
    let upgrade = |target: &str| {
        Socket::ask(server.address, target, &[bearer(&server.key)], PATIENCE).unwrap()
    };
    let (version, collection) = (in_small(of_version()), in_small(of_collection()));
    for (query, expected) in [
        ("", in_small(nothing())),
        (&format!("?version={OLD}")[..], version),
        ("?types=rumour", collection.clone()),
        ("?types=club.*,book.created", collection),
    ] {
        let stream = open(&format!("/api/events{query}"));
        assert_eq!((stream.status, opening_tells(&stream)), (200, expected.clone()), "{query}");
        let socket = upgrade(&format!("/ws{query}"));
        assert_eq!((socket.status, opening_tells(&socket)), (101, expected), "{query}");
    }
    // A long poll.
    let position = server.get("/v1/pens").header("x-stream-position").unwrap().to_owned();
    let target = format!("/api/rumours?since={position}&wait=true");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.get(&target));
        eventually("it waits", || open_connections(&server, "poll") > 0.0);
        server.post("/v1/rumours", json!({ "text": "psst" })).expect(201);
        let answer = waiting.join().unwrap();
        assert_eq!((answer.status, tells(&answer)), (200, of_collection()));
    });
}

/// The counts of deprecated collections and fields in `/v1/version-usage`.
fn used(server: &Server) -> BTreeMap<String, u64> {
    let usage = server.get("/v1/version-usage").expect(200);
    let mut counts = BTreeMap::new();
    let mut add = |name: String, one: &Value| {
        let requests = one["requests"].as_u64().unwrap();
        assert_eq!(one["last_used_at"].is_null(), requests == 0, "{one}");
        counts.insert(name, requests);
    };
    for one in usage["deprecated_collections"].as_array().unwrap() {
        assert_eq!(one["object"], "collection_usage");
        add(one["collection"].as_str().unwrap().to_owned(), one);
    }
    for one in usage["deprecated_fields"].as_array().unwrap() {
        assert_eq!(
            (&one["object"], &one["deprecated"]),
            (&json!("field_usage"), &"2026-04-01".into())
        );
        let names = ["collection", "field"].map(|name| one[name].as_str().unwrap());
        add(names.join("."), one);
    }
    counts
}

fn counts(clubs: u64, rumours: u64, shelf: u64, rack: u64) -> BTreeMap<String, u64> {
    let all =
        [("clubs", clubs), ("rumours", rumours), ("books.shelf", shelf), ("books.rack", rack)];
    all.map(|(name, count)| (name.to_owned(), count)).into()
}

#[test]
fn usage_counts_of_deprecated_things_survive_a_restart() {
    let server = Start::schema(LEAVING).go();
    assert_eq!(used(&server), counts(0, 0, 0, 0));
    let book = server.make("/v1/books", json!({ "shelf": "a" }));
    for target in ["?shelf=a", "?sort=shelf", "?fields=shelf", ""] {
        server.get(&format!("/v1/books{target}")).expect(200);
    }
    server.post(&format!("/v1/books/{book}/move"), json!({ "shelf": "c" })).expect(200);
    server.ask("GET", "/v1/books?rack=a").version(OLD).send().expect(200);
    let club = server.make("/v1/clubs", json!({}));
    server.get(&format!("/v1/clubs/{club}/members")).expect(200);
    server.get("/v1/clubs/none").error(404, "not_found");
    drop(Events::open(&server, "/api/events?types=club.created"));
    drop(Events::open(&server, "/api/events"));
    server.get("/api/rumours").expect(200);
    let mut socket = Socket::open(&server, "/ws?types=rumour");
    let said = socket.ask_for(json!({ "type": "rumour", "data": { "text": "psst" } }));
    assert_eq!(said["type"], "ack", "{said}");
    let said = socket.ask_for(json!({ "type": "subscribe", "types": ["club.*", "book.*"] }));
    assert_eq!(said["type"], "ack", "{said}");
    drop(socket);
    let expected = counts(5, 3, 4, 1);
    assert_eq!(used(&server), expected);
    let account = server.get("/v1/account").expect(200)["id"].as_str().unwrap().to_owned();
    let told = |server: &Server| {
        let figures = figures(server);
        for (kind, labels, count) in [
            ("collection", "collection=\"clubs\"", 5.0),
            ("collection", "collection=\"rumours\"", 3.0),
            ("field", "collection=\"books\",field=\"shelf\"", 4.0),
            ("field", "collection=\"books\",field=\"rack\"", 1.0),
            ("version", &format!("version=\"{OLD}\""), 1.0),
        ] {
            let name = format!("restive_deprecated_{kind}_requests_total");
            let series = format!("{name}{{{labels},account=\"{account}\"}}");
            assert_eq!(figures.get(&series), Some(&count), "{series}");
        }
    };
    told(&server);
    let server = Start::schema(LEAVING).on(&server.stop().1).go();
    // Before the first request: the counters continue from the saved counts.
    told(&server);
    assert_eq!(used(&server), expected);
    // Another account has separate counts.
    let (said, _, _) = server.tool(&["accounts", "create", "late"]);
    let key = said.lines().find_map(|line| line.strip_prefix("test key ")).unwrap();
    server.ask("GET", "/v1/clubs").key(key).send().expect(200);
    let usage = server.ask("GET", "/v1/version-usage").key(key).send().expect(200);
    assert_eq!(usage["deprecated_collections"][0]["requests"], 1);
    assert_eq!(used(&server), expected);
}

#[test]
fn saved_usage_counts_survive_a_kill() {
    let server = Start::schema(LEAVING).go();
    for _ in 0..3 {
        server.ask("GET", "/v1/clubs").version(OLD).send().expect(200);
    }
    let unkept = |server: &Server| figures(server)["restive_usage_unkept_requests"];
    // The counts are saved every few seconds; later ones may be lost.
    eventually("the counts are kept", || unkept(&server) == 0.0);
    let server = Start::schema(LEAVING).on(&server.kill()).go();
    assert_eq!(used(&server), counts(3, 0, 0, 0));
    let usage = server.get("/v1/version-usage").expect(200);
    assert_eq!(
        (&usage["data"][1]["version"], &usage["data"][1]["requests"]),
        (&json!(OLD), &json!(3))
    );
}

/// Orders of books; the author of a book and the country of an author are deprecated.
const PATHS: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "books"
rename = { from = "writer", to = "author" }
[[versions]]
date = "2026-01-01"

[collections.countries.fields]
name = "string"
[collections.authors.fields]
country = { ref = "countries" }
[collections.books.fields.author]
ref = "authors"
deprecated = "2026-04-01"
sunset = "2027-04-01"
link = "https://shop.example/field"
[collections.reviews]
parent = "books"
fields = { text = "string" }
[collections.orders.fields]
book = { ref = "books" }
"#;

#[test]
fn a_path_that_names_a_deprecated_field_gets_deprecation_headers() {
    let server = Start::schema(PATHS).go();
    let author = server.make("/v1/authors", json!({}));
    let book = server.post("/v1/books", json!({ "author": author })).id();
    let order = server.make("/v1/orders", json!({ "book": book }));
    let review = server.make(&format!("/v1/books/{book}/reviews"), json!({ "text": "good" }));
    let get =
        |version: &str, target: &str| tells(&server.ask("GET", target).version(version).send());
    let one = format!("/v1/orders/{order}");
    let below = format!("/v1/books/{book}/reviews/{review}");
    for target in [
        "/v1/books?expand=author",
        "/v1/orders?expand=book.author",
        "/v1/orders?expand[]=data.book.author.country",
        "/v1/orders?include=book,book.author",
        &format!("{one}?expand=book.author"),
        &format!("{below}?expand=book.author"),
        // The request is refused, but it named the field.
        "/v1/orders?expand=book.author.nothing",
    ] {
        assert_eq!(get(NEW, target), of_field(), "{target}");
    }
    assert_eq!(get(OLD, "/v1/orders?expand=book.writer"), of_field(), "by the name it had");
    for target in ["/v1/orders?expand=book", "/v1/orders?expand=book.reviews", "/v1/orders"] {
        assert_eq!(get(NEW, target), nothing(), "{target}");
    }
    assert_eq!(get(OLD, "/v1/orders?expand=book.author"), nothing(), "it has no such name");
    let usage = server.get("/v1/version-usage").expect(200);
    let fields = usage["deprecated_fields"].as_array().unwrap().iter();
    let counts: Vec<_> = fields.map(|one| (&one["field"], &one["requests"])).collect();
    // The book that was created with one, and the seven requests that named it.
    assert_eq!(counts, [(&json!("author"), &json!(8)), (&json!("writer"), &json!(1))]);
}

/// Chips of gems are deprecated.
const EMBEDDED: &str = r#"
[collections.gems.fields]
name = "string"
[collections.chips]
parent = "gems"
fields = { text = "string" }
deprecated = "2026-04-01"
[collections.rings.fields]
gem = { ref = "gems" }
"#;

#[test]
fn embedding_records_of_a_deprecated_collection_gets_deprecation_headers() {
    let server = Start::schema(EMBEDDED).go();
    let gem = server.make("/v1/gems", json!({ "name": "opal" }));
    let ring = server.make("/v1/rings", json!({ "gem": gem }));
    for target in [
        &format!("/v1/gems/{gem}?expand=chips"),
        "/v1/gems?include=chips",
        &format!("/v1/rings/{ring}?expand=gem.chips"),
        &format!("/v1/gems/{gem}/chips"),
    ] {
        let answer = server.get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text);
        assert!(answer.header("deprecation").is_some(), "{target}");
    }
    let silent = server.get("/v1/rings?expand=gem");
    assert_eq!(silent.header("deprecation"), None);
    let usage = server.get("/v1/version-usage").expect(200);
    let collections = usage["deprecated_collections"].as_array().unwrap();
    let counts: Vec<_> =
        collections.iter().map(|one| (&one["collection"], &one["requests"])).collect();
    assert_eq!(counts, [(&json!("chips"), &json!(4))]);
}

/// All fields had another type, other members or another place before.
const CHANGED: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "books"
convert = { field = "price", from = "number",
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }
[[versions.changes]]
collection = "books"
move = { from = "isbn", to = "numbers.isbn" }
[[versions]]
date = "2026-05-01"
[[versions.changes]]
collection = "books"
rename = { from = "cost", to = "price" }
[[versions]]
date = "2026-01-01"
[collections.books.fields]
title = "string"
price = { type = "integer", deprecated = "2026-01-01", filter = true }
numbers = { type = "object", deprecated = "2026-01-04" }
"#;

#[test]
fn a_deprecated_field_gets_deprecation_headers_under_its_older_form_too() {
    let server = Start::schema(CHANGED).go();
    let id = server.make("/v1/books", json!({ "title": "Ada" }));
    let path = format!("/v1/books/{id}");
    for (field, value, since) in [
        ("cost", json!(1.5), Some("@1767225600")),
        ("isbn", json!("1"), Some("@1767484800")),
        ("title", json!("Emma"), None),
    ] {
        let answer = server.ask("PATCH", &path).version(OLD).json(&json!({ field: value })).send();
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("deprecation"), since, "{field}");
    }
    let usage = server.get("/v1/version-usage").expect(200);
    let told = usage["deprecated_fields"].as_array().unwrap();
    let requests = |name: &str| {
        let one = told.iter().find(|one| one["field"] == name).unwrap_or(&Value::Null);
        one["requests"].as_i64()
    };
    assert_eq!(requests("cost"), Some(1), "{usage}");
    assert_eq!(requests("isbn"), Some(1), "{usage}");
    let contract = server.get(&format!("/openapi.json?version={OLD}")).expect(200);
    let book = &contract["components"]["schemas"]["Book"]["properties"];
    for name in ["cost", "isbn"] {
        assert_eq!(book[name]["deprecated"], true, "{name}: {book}");
    }
    assert_eq!(book["title"].get("deprecated"), None);
}
