//! Validators and preconditions for caches and careful writers.

use crate::harness::{Answer, Server, Start};
use serde_json::{Value, json};

const LONG_AGO: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const FAR_AHEAD: &str = "Fri, 01 Jan 2100 00:00:00 GMT";

fn tag(answer: &Answer) -> String {
    answer.header("etag").unwrap_or_else(|| panic!("no ETag: {}", answer.text)).to_owned()
}

#[test]
fn reads_have_validators_and_cache_headers() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let record = server.get(&path);
    assert!(tag(&record).starts_with('"'), "strong");
    assert!(record.header("last-modified").unwrap().ends_with(" GMT"));
    let list = server.get("/v1/books");
    assert!(tag(&list).starts_with("W/\""), "weak");
    for answer in [&record, &list] {
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        for name in ["Accept", "Authorization", "Restive-Version"] {
            assert!(answer.header("vary").unwrap().contains(name));
        }
    }
    let written = server.patch(&path, json!({"price": 1}));
    assert_eq!(written.header("cache-control"), Some("no-store"));
    assert_eq!(tag(&written), tag(&server.get(&path)), "a write tells the new tag");
    let schema = "[collections.books]\ncache_control = \"public, max-age=60\"\n\
                  fields = { title = \"string\" }\n";
    let server = Start::schema(schema).go();
    let path = format!("/v1/books/{}", server.make("/v1/books", json!({})));
    for path in [path.as_str(), "/v1/books"] {
        assert_eq!(server.get(path).header("cache-control"), Some("public, max-age=60"));
    }
}

#[test]
fn an_unchanged_record_gets_304_without_a_body() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let first = server.get(&path);
    let (tag, date) = (tag(&first), first.header("last-modified").unwrap().to_owned());
    let weak = format!("W/{tag}");
    let several = format!("\"x-1\", {tag}");
    let ask = |name: &str, value: &str| server.ask("GET", &path).header(name, value).send();
    for (name, value, status) in [
        ("if-none-match", tag.as_str(), 304),
        ("if-none-match", &weak, 304),
        ("if-none-match", &several, 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"other\"", 200),
        ("if-none-match", "", 200),
        ("if-modified-since", &date, 304),
        ("if-modified-since", FAR_AHEAD, 304),
        ("if-modified-since", LONG_AGO, 200),
        ("if-modified-since", "yesterday", 200),
    ] {
        let answer = ask(name, value);
        assert_eq!(answer.status, status, "{name}: {value}");
        assert_eq!(answer.text.is_empty(), status == 304);
        for kept in ["etag", "vary", "cache-control", "last-modified"] {
            assert_eq!(answer.header(kept), first.header(kept), "{name}: {value}");
        }
    }
    let both = server.ask("GET", &path).header("if-none-match", "\"x\"");
    assert_eq!(both.header("if-modified-since", FAR_AHEAD).send().status, 200, "the tag wins");
    server.patch(&path, json!({"title": "Dune 2"})).expect(200);
    assert_eq!(ask("if-none-match", &tag).status, 200);
    let gone = server.ask("GET", "/v1/books/book_none").header("if-none-match", "*").send();
    gone.error(404, "not_found");
}

#[test]
fn a_list_gets_304_until_a_record_in_it_changes() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let order = server.make("/v1/orders", json!({"book": book}));
    let lists = ["/v1/orders", "/v1/orders?expand=book", "/v1/books", "/v1/orders?page=1&limit=5"];
    let tags = || lists.map(|path| tag(&server.get(path)));
    let before = tags();
    for (path, tag) in lists.iter().zip(&before) {
        let answer = server.ask("GET", path).header("if-none-match", tag).send();
        assert_eq!((answer.status, answer.text.as_str()), (304, ""), "{path}");
        assert_eq!(answer.header("etag"), Some(tag.as_str()));
    }
    server.post("/v1/messages", json!({"text": "not in any of them"})).expect(201);
    assert_eq!(tags(), before, "another collection");
    server.patch(&format!("/v1/books/{book}"), json!({"title": "New"})).expect(200);
    let after_book = tags();
    let changed: Vec<bool> = (0..4).map(|at| before[at] != after_book[at]).collect();
    assert_eq!(changed, [false, true, true, false], "where books are shown");
    server.post(&format!("/v1/orders/{order}/pay"), json!({})).expect(200);
    let after_order = tags();
    let changed: Vec<bool> = (0..4).map(|at| after_book[at] != after_order[at]).collect();
    assert_eq!(changed, [true, true, false, true], "where orders are shown");
    server.delete(&format!("/v1/orders/{order}")).expect(200);
    assert_ne!(tags()[0], after_order[0]);
    let folder = server.kill();
    let again = Start::bookshop().on(&folder).go();
    let list = again.get("/v1/orders");
    assert_eq!(list.column("id").len(), 0);
}

#[test]
fn a_deleted_child_or_parent_changes_the_list_of_children() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let reviews = format!("/v1/books/{book}/reviews");
    let review = server.make(&reviews, json!({"rating": 1}));
    let before = tag(&server.get(&format!("/v1/books/{book}?expand=reviews")));
    server.patch(&format!("{reviews}/{review}"), json!({"rating": 2})).expect(200);
    let after = tag(&server.get(&format!("/v1/books/{book}?expand=reviews")));
    assert_ne!(before, after, "the tag of a view covers what is embedded");
    let list = tag(&server.get(&reviews));
    server.delete(&format!("/v1/books/{book}")).expect(200);
    let answer = server.ask("GET", &reviews).header("if-none-match", &list).send();
    answer.error(404, "not_found");
}

#[test]
fn a_write_with_an_outdated_etag_is_refused() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let old = tag(&server.get(&path));
    server.patch(&path, json!({"price": 1})).expect(200);
    let now = server.get(&path);
    let write = |method: &str, name: &str, value: &str| {
        let body = json!({"title": "Mine", "author": "Me"});
        let ask = server.ask(method, &path).header(name, value);
        if method == "DELETE" { ask.send() } else { ask.json(&body).send() }
    };
    let weak = format!("W/{}", tag(&now));
    for method in ["PUT", "PATCH", "DELETE"] {
        for (name, value) in [
            ("if-match", old.as_str()),
            ("if-match", "\"nonsense\""),
            ("if-match", &weak),
            ("if-unmodified-since", LONG_AGO),
        ] {
            write(method, name, value).error(412, "precondition_failed");
        }
        write(method, "if-match", "no quotes").error(400, "invalid_header");
        write(method, "if-unmodified-since", "soon").error(400, "invalid_header");
    }
    assert_eq!(server.get(&path).text, now.text, "nothing was changed");
    let several = format!("{old}, {}", tag(&now));
    write("PATCH", "if-match", &several).expect(200);
    write("PUT", "if-match", "*").expect(200);
    write("PATCH", "if-unmodified-since", FAR_AHEAD).expect(200);
    write("DELETE", "if-match", &tag(&server.get(&path))).expect(200);
    write("PATCH", "if-match", "*").error(404, "not_found");
}

#[test]
fn an_etag_of_any_view_guards_a_write() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    for view in ["", "?fields=title", "?expand=reviews", "?fields=id&include=reviews"] {
        let tag = tag(&server.get(&format!("{path}{view}")));
        let body = json!({"title": format!("after {view}")});
        server.ask("PATCH", &path).header("if-match", &tag).json(&body).send().expect(200);
        let stale = server.ask("PATCH", &path).header("if-match", &tag).json(&json!({})).send();
        stale.error(412, "precondition_failed");
    }
    let order = server.make("/v1/orders", json!({"book": server.book("x")}));
    let path = format!("/v1/orders/{order}");
    let old = tag(&server.get(&path));
    server.patch(&path, json!({"quantity": 2})).expect(200);
    let pay = server.ask("POST", &format!("{path}/pay")).header("if-match", &old).send();
    pay.error(412, "precondition_failed");
    assert_eq!(server.get(&path).expect(200)["status"], "created");
}

#[test]
fn an_invalid_body_is_reported_before_an_outdated_etag() {
    let server = Server::bookshop();
    let book = server.book("A");
    let order = server.make("/v1/orders", json!({"book": book}));
    let url = "https://hooks.example.com/";
    let endpoint = server.make("/v1/webhook-endpoints", json!({"url": url, "status": "disabled"}));
    for (path, wrong, good) in [
        (format!("/v1/orders/{order}"), json!({"book": "book_none"}), json!({"quantity": 2})),
        (format!("/v1/webhook-endpoints/{endpoint}"), json!({"url": "x"}), json!({"url": url})),
    ] {
        let patch = |body: &Value| {
            server.ask("PATCH", &path).header("if-match", "\"1-1\"").json(body).send()
        };
        patch(&wrong).error(422, "validation_failed");
        patch(&good).error(412, "precondition_failed");
    }
}

#[test]
fn only_one_of_many_writers_with_the_same_etag_succeeds() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let tag = tag(&server.get(&path));
    let statuses: Vec<u16> = std::thread::scope(|threads| {
        let writers: Vec<_> = (0..16)
            .map(|number| {
                let body = json!({"price": number + 1});
                let ask = server.ask("PATCH", &path).header("if-match", &tag).json(&body);
                threads.spawn(move || ask.send().status)
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 412).count(), 15, "{statuses:?}");
}

#[test]
fn a_collection_can_require_if_match() {
    let schema = "[collections.books]\nrequire_if_match = true\n[collections.books.fields]\n\
                  title = \"string\"\n";
    let server = Start::schema(schema).go();
    let path = format!("/v1/books/{}", server.make("/v1/books", json!({"title": "a"})));
    for method in ["PUT", "PATCH", "DELETE"] {
        let ask = server.ask(method, &path);
        let ask = if method == "DELETE" { ask } else { ask.json(&json!({"title": "b"})) };
        let error = ask.send().error(428, "precondition_required");
        assert_eq!(error["param"], "If-Match");
    }
    let tag = tag(&server.get(&path));
    let body = json!({"title": "b"});
    let changed = server.ask("PATCH", &path).header("if-match", &tag).json(&body).send();
    let tag = changed.header("etag").unwrap();
    server.ask("DELETE", &path).header("if-match", tag).send().expect(200);
}

#[test]
fn head_is_get_without_the_body() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    for path in [
        path.as_str(),
        "/v1/books",
        "/v1/books?page=1",
        "/v1/books/book_none",
        "/v1/nope",
        "/health",
        "/openapi.json",
        "/errors",
    ] {
        let (get, head) = (server.get(path), server.ask("HEAD", path).send());
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        for name in
            ["etag", "last-modified", "content-type", "cache-control", "vary", "restive-error-code"]
        {
            assert_eq!(head.header(name), get.header(name), "{path}: {name}");
        }
        if get.status == 200 && path != "/health" {
            let length = get.text.len().to_string();
            assert_eq!(head.header("content-length"), Some(length.as_str()), "{path}");
        }
    }
}

#[test]
fn options_returns_methods_and_body_types() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let order = server.make("/v1/orders", json!({"book": book}));
    let patch = Some("application/merge-patch+json, application/json");
    for (path, allow, accept_patch, accept_post) in [
        ("/v1/books", "GET, HEAD, POST, OPTIONS", None, Some("application/json")),
        (&format!("/v1/books/{book}"), "GET, HEAD, PUT, PATCH, DELETE, OPTIONS", patch, None),
        (&format!("/v1/orders/{order}/pay"), "POST, OPTIONS", None, Some("application/json")),
        ("/v1/messages/1", "GET, HEAD, OPTIONS", None, None),
        ("/health", "GET, HEAD, OPTIONS", None, None),
    ] {
        let answer = server.ask_anonymously("OPTIONS", path).send();
        assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{path}");
        assert_eq!(answer.header("allow"), Some(allow), "{path}");
        assert_eq!(answer.header("accept-patch"), accept_patch, "{path}");
        assert_eq!(answer.header("accept-post"), accept_post, "{path}");
    }
}
