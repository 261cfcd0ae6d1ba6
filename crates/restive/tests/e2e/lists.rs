//! Lists: pages, filters, sorting and search.

use crate::harness::{Server, Start};
use serde_json::{Value, json};

/// Filterable and sortable fields of every kind.
const THINGS: &str = r#"
[collections.makers.fields]
name = "string"

[collections.things.fields]
name = { type = "string", filter = true, sort = true }
count = { type = "integer", filter = true, sort = true }
ratio = { type = "number", filter = true, sort = true }
ready = { type = "boolean", filter = true, sort = true }
at = { type = "timestamp", filter = true, sort = true }
day = { type = "date", filter = true, sort = true }
colour = { type = "string", enum = ["red", "green"], filter = true, sort = true }
maker = { ref = "makers" }
note = "string"
"#;

fn encode(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric();
    let escape = |byte: u8| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn shelf(server: &Server, count: usize) {
    for number in 0..count {
        let book = json!({"title": format!("b{number:03}"), "author": "A", "price": number});
        server.make("/v1/books", book);
    }
}

#[test]
fn an_offset_page_has_page_limit_total_and_total_pages() {
    let server = Server::bookshop();
    shelf(&server, 25);
    let first = server.get("/v1/books?page=1").expect(200);
    assert_eq!(first["object"], "list");
    let pagination = json!({"page": 1, "limit": 20, "total": 25, "total_pages": 2});
    assert_eq!(first["pagination"], pagination);
    assert_eq!(first["data"].as_array().unwrap().len(), 20);
    let last = server.get("/v1/books?page=2&limit=10&sort=title");
    assert_eq!(last.titles()[0], "b010");
    let pagination = json!({"page": 2, "limit": 10, "total": 25, "total_pages": 3});
    assert_eq!(last.json["pagination"], pagination);
    assert_eq!(last.header("link"), Some("</v1/books?limit=10&sort=title&page=3>; rel=\"next\""));
    let beyond = server.get("/v1/books?page=9&limit=10");
    assert_eq!((beyond.titles().len(), beyond.header("link")), (0, None));
    assert_eq!(beyond.json["pagination"]["total"], 25);
    let none = server.get("/v1/books?page=1&title=nope").expect(200);
    assert_eq!(none["pagination"], json!({"page": 1, "limit": 20, "total": 0, "total_pages": 0}));
    let filtered = server.get("/v1/books?page=1&min_price=20&limit=2").expect(200);
    assert_eq!(
        (&filtered["pagination"]["total"], &filtered["pagination"]["total_pages"]),
        (&json!(5), &json!(3))
    );
}

#[test]
fn a_cursor_page_has_next_cursor_and_has_more() {
    let server = Server::bookshop();
    let empty = server.get("/v1/books").expect(200);
    let end = json!({"next_cursor": null, "has_more": false});
    assert_eq!(empty, json!({"object": "list", "data": [], "pagination": end}));
    shelf(&server, 21);
    let first = server.get("/v1/books");
    assert_eq!(first.titles().len(), 20, "the default length");
    assert_eq!(first.titles()[0], "b020", "newest first");
    assert_eq!(first.json["pagination"]["has_more"], true);
    let cursor = first.json["pagination"]["next_cursor"].as_str().unwrap().to_owned();
    let last = server.get(&format!("/v1/books?after={cursor}"));
    assert_eq!(last.titles(), ["b000"]);
    assert_eq!(last.json["pagination"], json!({"next_cursor": null, "has_more": false}));
    let exact = server.get("/v1/books?limit=21").expect(200);
    assert_eq!(exact["pagination"]["has_more"], false, "a full last page is the last");
}

#[test]
fn a_large_page_limit_is_reduced_and_an_invalid_one_refused() {
    let schema = "[service]\nmax_page = 5\n[collections.books.fields]\ntitle = \"string\"\n";
    let server = Start::schema(schema).go();
    for number in 0..8 {
        server.make("/v1/books", json!({"title": number.to_string()}));
    }
    assert_eq!(server.get("/v1/books").titles().len(), 5, "the default is clamped too");
    for limit in ["5", "6", "1000", "9223372036854775807"] {
        assert_eq!(server.get(&format!("/v1/books?limit={limit}")).titles().len(), 5, "{limit}");
    }
    assert_eq!(server.get("/v1/books?limit=1").titles().len(), 1);
    for query in [
        "limit=0",
        "limit=-1",
        "limit=",
        "limit=ten",
        "limit=1.5",
        "limit=9223372036854775808",
        "limit=99999999999999999999999",
        "page=0",
        "page=-1",
        "page=x",
        "page=1000000000000000000",
        "page=99999999999999999999999",
        "limit=1&limit=2",
        "sort=",
        "sort=nope",
        "sort=-",
        "sort=created_at,-created_at",
        "sort=rank",
        "fields=",
        "fields=nope",
        "expand=nope",
        "min_created_at=soon",
    ] {
        let error = server.get(&format!("/v1/books?{query}")).error(400, "invalid_parameter");
        let name = query.split('=').next().unwrap();
        assert_eq!(error["param"], name, "{query}");
    }
    server.get("/v1/books?page=1&after=x").error(400, "invalid_parameter");
    for query in ["titel=x", "title=x", "min_title=x", "q=x", "offset=3", "%00=1", "=1"] {
        let error = server.get(&format!("/v1/books?{query}")).error(400, "unknown_parameter");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("there are"), "{query}: {message}");
    }
    let error = server.get("/v1/books?limit=0&page=x&foo=1").error(400, "invalid_parameter");
    assert_eq!(error["errors"].as_array().unwrap().len(), 3, "all at once: {error}");
    server.get("/v1/books?title=%ff").error(400, "invalid_parameter");
    server.post("/v1/books?x=1", json!({})).error(400, "unknown_parameter");
}

#[test]
fn every_kind_of_field_can_be_filtered_by() {
    let server = Start::schema(THINGS).go();
    let maker = server.make("/v1/makers", json!({"name": "m"}));
    let one = server.make(
        "/v1/things",
        json!({"name": "a,b", "count": 1, "ratio": 0.5, "ready": true, "maker": maker,
               "at": "2026-01-31T12:00:00Z", "day": "2026-01-31", "colour": "red"}),
    );
    let two = server.make(
        "/v1/things",
        json!({"name": "null", "count": -7, "ratio": 2, "ready": false,
               "at": "2026-06-30T12:00:00.123Z", "day": "2026-06-30", "colour": "green"}),
    );
    let three = server.make("/v1/things", json!({}));
    for (query, expected) in [
        (r#"name="a,b""#, vec![&one]),
        ("name=a", vec![]),
        ("name=a,b", vec![]),
        (r#"name="null""#, vec![&two]),
        ("name=null", vec![&three]),
        (r#"name=null,"null""#, vec![&two, &three]),
        (r#"name="a,b","null""#, vec![&one, &two]),
        ("name=A,B", vec![]),
        ("count=1", vec![&one]),
        ("count=-7,1", vec![&one, &two]),
        ("min_count=-7", vec![&one, &two]),
        ("max_count=0", vec![&two]),
        ("min_count=-7&max_count=0", vec![&two]),
        ("ratio=0.5", vec![&one]),
        ("ratio=2.0", vec![&two]),
        ("ratio=2e0", vec![&two]),
        ("min_ratio=0.6", vec![&two]),
        ("ready=true", vec![&one]),
        ("ready=false", vec![&two]),
        ("ready=null", vec![&three]),
        ("at=2026-01-31T12:00:00Z", vec![&one]),
        ("at=2026-01-31T13:00:00+01:00", vec![&one]),
        ("min_at=2026-02-01", vec![&two]),
        ("max_at=2026-06-30T12:00:00.122Z", vec![&one]),
        ("day=2026-01-31", vec![&one]),
        ("min_day=2026-02-01", vec![&two]),
        ("max_day=2026-06-30", vec![&one, &two]),
        ("colour=red", vec![&one]),
        ("colour=red,green", vec![&one, &two]),
        ("colour=red&count=-7", vec![]),
        ("min_created_at=2020-01-01", vec![&one, &two, &three]),
        ("max_updated_at=2020-01-01", vec![]),
    ] {
        let pairs: Vec<_> = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| format!("{name}={}", encode(value)))
            .collect();
        for page in ["", "&page=1"] {
            let answer =
                server.get(&format!("/v1/things?sort=created_at&{}{page}", pairs.join("&")));
            assert_eq!(
                answer.column("id"),
                json!(expected).as_array().unwrap().clone(),
                "{query}{page}"
            );
        }
    }
    assert_eq!(server.get(&format!("/v1/things?maker={maker}")).column("id"), [one.as_str()]);
    assert_eq!(server.get(&format!("/v1/things?id={one},{three}")).column("id").len(), 2);
    assert_eq!(server.get(&format!("/v1/things?id={maker}")).column("id").len(), 0);
}

#[test]
fn a_filter_value_of_the_wrong_type_is_refused_by_name() {
    let server = Start::schema(THINGS).go();
    for (query, word) in [
        ("count=1.5", "integer"),
        ("count=x", "integer"),
        ("ratio=NaN", "number"),
        ("ratio=inf", "number"),
        ("ready=1", "true or false"),
        ("at=yesterday", "timestamp"),
        ("day=2026-02-30", "date"),
        ("name=%22open", "quote"),
        ("name=%00", "NUL"),
        ("min_count=", "integer"),
    ] {
        let error = server.get(&format!("/v1/things?{query}")).error(400, "invalid_parameter");
        assert!(error["message"].as_str().unwrap().contains(word), "{query}: {error}");
    }
    for query in ["note=x", "min_name=a", "max_ready=true", "min_maker=x"] {
        server.get(&format!("/v1/things?{query}")).error(400, "unknown_parameter");
    }
}

#[test]
fn sql_in_a_filter_is_treated_as_text() {
    let server = Start::schema(THINGS).go();
    server.make("/v1/things", json!({"name": "x", "count": 1}));
    let evil = [
        "' OR '1'='1",
        "'; DROP TABLE things; --",
        "x' UNION SELECT * FROM keys --",
        "1 OR 1=1",
        "\\",
        "%",
        "_",
        "*",
        "\"",
        "')",
        "/*",
        "$1",
        "?1",
        ":name",
    ];
    for text in evil {
        let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        for name in ["name", "maker", "id"] {
            let answer = server.get(&format!("/v1/things?{name}={}", encode(&quoted)));
            assert_eq!(answer.column("id").len(), 0, "{name}={text}");
        }
        for name in [
            "colour",
            "count",
            "min_count",
            "ratio",
            "ready",
            "at",
            "day",
            "min_day",
            "limit",
            "page",
            "sort",
            "fields",
            "expand",
        ] {
            let answer = server.get(&format!("/v1/things?{name}={}", encode(text)));
            answer.error(400, "invalid_parameter");
        }
        server.get(&format!("/v1/things?after={}", encode(text))).error(400, "cursor_invalid");
        server.get(&format!("/v1/things?{}=1", encode(text))).error(400, "unknown_parameter");
        server.get(&format!("/v1/things/{}", encode(text))).error(404, "not_found");
        let made = server.post("/v1/things", json!({"name": text})).expect(201);
        assert_eq!(made["name"], text);
        let found = server.get(&format!("/v1/things?name={}", encode(&quoted)));
        assert_eq!(found.column("id"), [made["id"].clone()]);
    }
    assert_eq!(server.get("/v1/things?count=1").column("name"), ["x"]);
}

#[test]
fn lists_are_sorted_by_many_fields_in_any_direction() {
    let server = Start::schema(THINGS).go();
    let rows = [
        ("a", Some(1), Some(1.5)),
        ("b", Some(1), None),
        ("c", None, Some(2.0)),
        ("d", Some(-3), Some(1.5)),
        ("e", None, None),
        ("f", Some(1), Some(0.1)),
    ];
    for (name, count, ratio) in rows {
        server.make("/v1/things", json!({"name": name, "count": count, "ratio": ratio}));
    }
    for (sort, expected) in [
        ("name", "abcdef"),
        ("-name", "fedcba"),
        ("count,name", "cedabf"),
        ("-count,name", "abfdce"),
        ("count,-name", "ecdfba"),
        ("ratio,name", "befadc"),
        ("-ratio,-name", "cdafeb"),
        ("count,ratio,name", "ecdbfa"),
        ("-count,ratio", "bfadec"),
        ("count,-ratio", "cedafb"),
        ("created_at", "abcdef"),
        ("-created_at", "fedcba"),
    ] {
        for query in [format!("sort={sort}"), format!("sort={sort}&page=1")] {
            let names = server.get(&format!("/v1/things?{query}")).column("name");
            let text: String = names.iter().filter_map(Value::as_str).collect();
            assert_eq!(text, expected, "{query}");
        }
        let mut walked = String::new();
        let mut path = format!("/v1/things?sort={sort}&limit=2");
        loop {
            let page = server.get(&path);
            walked.extend(page.column("name").iter().filter_map(Value::as_str));
            let Some(next) = page.json["pagination"]["next_cursor"].as_str() else { break };
            path = format!("/v1/things?sort={sort}&limit=2&after={next}");
        }
        assert_eq!(walked, expected, "by cursor: {sort}");
    }
    let error = server.get("/v1/things?sort=note").error(400, "invalid_parameter");
    assert!(error["message"].as_str().unwrap().contains("count"), "tells what can be sorted by");
}

#[test]
fn search_finds_words_in_every_searched_field() {
    let server = Server::bookshop();
    for (title, author) in [
        ("Dune", "Frank Herbert"),
        ("Dune Messiah", "Frank Herbert"),
        ("Ästhetik für Anfänger", "José Núñez"),
        ("Les Misérables", "Victor Hugo"),
        ("C++ in depth", "A. Nonym"),
        ("NOT a book", "OR Author"),
    ] {
        server.make("/v1/books", json!({"title": title, "author": author}));
    }
    for (words, count) in [
        ("dune", 2),
        ("DUNE", 2),
        ("dune herbert", 2),
        ("herbert messiah", 1),
        ("dune hugo", 0),
        ("asthetik", 1),
        ("jose nunez", 1),
        ("misérables", 1),
        ("miserables", 1),
        ("für", 1),
        ("dune NOT messiah", 0),
        ("dune OR hugo", 0),
        ("not book", 1),
        ("or", 1),
        ("title:dune", 0),
        ("NEAR(dune messiah)", 0),
        ("\"dune messiah\"", 1),
        ("dune*", 2),
        ("(dune", 2),
        ("dune)", 2),
        ("\"dune", 2),
        ("dune\"", 2),
        ("-dune", 2),
        ("^dune", 2),
        ("'; DROP TABLE books", 0),
        ("{title}: dune", 0),
        ("dune + messiah", 1),
        ("c++", 1),
    ] {
        let path = format!("/v1/books?q={}", encode(words));
        assert_eq!(server.get(&path).titles().len(), count, "q={words}");
        let total =
            server.get(&format!("{path}&page=1")).expect(200)["pagination"]["total"].clone();
        assert_eq!(total, count, "q={words}&page=1");
    }
    for words in ["", "%20", "%2A", "%22%22", "%00", "%28%29"] {
        server.get(&format!("/v1/books?q={words}")).error(400, "invalid_parameter");
    }
    let many = vec!["w"; 21].join("+");
    server.get(&format!("/v1/books?q={many}")).error(400, "invalid_parameter");
    for (words, limit) in [("b.".repeat(33), "32 words"), ("b".repeat(257), "256 characters")] {
        let error = server.get(&format!("/v1/books?q={words}")).error(400, "invalid_parameter");
        assert!(error["message"].as_str().unwrap().contains(limit), "{error}");
    }
    let error = server.get("/v1/orders?q=x").error(400, "unknown_parameter");
    assert_eq!(error["param"], "q");
    let both = server.get("/v1/books?q=dune&sort=title&limit=1");
    assert_eq!(both.titles(), ["Dune"]);
    let next = both.json["pagination"]["next_cursor"].as_str().unwrap();
    let next = server.get(&format!("/v1/books?q=dune&sort=title&limit=1&after={next}"));
    assert_eq!(next.titles(), ["Dune Messiah"]);
    let ranked = server.get("/v1/books?q=dune&sort=rank&page=1").titles();
    assert_eq!(ranked, ["Dune", "Dune Messiah"], "the shorter text fits better");
    server.get("/v1/books?q=dune&sort=rank").error(400, "invalid_parameter");
    server.get("/v1/books?sort=rank&page=1").error(400, "invalid_parameter");
}

#[test]
fn a_search_sees_every_write_made_before_it() {
    let server = Server::bookshop();
    for number in 0..60 {
        let word = format!("word{number}");
        let id = server.book(&word);
        let found = |word: &str| server.get(&format!("/v1/books?q={word}")).column("id");
        assert_eq!(found(&word), [id.as_str()], "right after the create");
        let path = format!("/v1/books/{id}");
        server.patch(&path, json!({"title": format!("other{number}")})).expect(200);
        assert!(found(&word).is_empty(), "right after the change");
        assert_eq!(found(&format!("other{number}")), [id.as_str()]);
        server.delete(&path).expect(200);
        assert!(found(&format!("other{number}")).is_empty(), "right after the delete");
    }
}

#[test]
fn lists_of_children_filter_sort_and_search_within_their_parent() {
    let server = Server::bookshop();
    let books = [server.book("a"), server.book("b")];
    for (place, book) in books.iter().enumerate() {
        for rating in 1..=5 {
            let text = format!("stars{rating} of{place}");
            server.make(
                &format!("/v1/books/{book}/reviews"),
                json!({"rating": rating, "text": text}),
            );
        }
    }
    let reviews = format!("/v1/books/{}/reviews", books[1]);
    let ratings = |query: &str| server.get(&format!("{reviews}?{query}")).column("rating");
    assert_eq!(ratings("sort=rating"), [1, 2, 3, 4, 5]);
    assert_eq!(ratings("sort=-rating&min_rating=4"), [5, 4]);
    assert_eq!(ratings("q=stars2"), [2]);
    assert!(ratings("q=of0").is_empty());
    let total = server.get(&format!("{reviews}?page=1&limit=2")).expect(200);
    assert_eq!(total["pagination"]["total"], 5);
}
