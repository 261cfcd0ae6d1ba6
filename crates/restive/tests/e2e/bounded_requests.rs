//! The work that one request causes has a limit: errors, bodies that repeat an Idempotency-Key,
//! pages and embedded records. Tests compare sizes and counts, not durations.

use crate::harness::{Server, Start};
use serde_json::{Map, Value, json};
use std::io::Write as _;

/// An error of `MAX_LISTED` entries, each with a name of 100 characters, fits into it.
const MAX_ERROR_BYTES: usize = 128 * 1024;
const NOT_LISTED: &str = "; others are not listed)";

fn many_fields(count: usize) -> Map<String, Value> {
    (0..count).map(|n| (format!("x{n}"), json!(n))).collect()
}

/// The length of the list of errors, and the message.
fn check_listed(what: &str, answer: crate::harness::Answer, status: u16, listed: usize) -> String {
    assert!(answer.text.len() <= MAX_ERROR_BYTES, "{what}: {} bytes", answer.text.len());
    assert_eq!(answer.status, status, "{what}: {}", answer.text);
    let error = &answer.json["error"];
    assert_eq!(error["errors"].as_array().unwrap().len(), listed, "{what}");
    error["message"].as_str().unwrap().to_owned()
}

#[test]
fn an_error_lists_a_hundred_unknown_names_and_mentions_others() {
    let server = Server::bookshop();
    let id = server.book("Emma");
    for (method, path) in [
        ("POST", "/v1/books".to_owned()),
        ("PATCH", format!("/v1/books/{id}")),
        ("POST", "/v1/channel-tokens".to_owned()),
    ] {
        let body = Value::Object(many_fields(60_000));
        let answer = server.ask(method, &path).json(&body).send();
        // A create lacks the required title and author as well.
        let listed = if path == "/v1/books" { 102 } else { 100 };
        let message = check_listed(&path, answer, 422, listed);
        assert!(message.ends_with(NOT_LISTED), "{method} {path}: {message}");
    }
    let body = json!({"y".repeat(1_000_000): 1});
    check_listed("one long name", server.post("/v1/channel-tokens", body), 422, 1);
    let commas = ",".repeat(7_000);
    for query in [
        format!("fields={commas}"),
        format!("sort={commas}"),
        (0..1_400).map(|n| format!("x{n}&")).collect(),
        "limit=1&".repeat(900),
    ] {
        let what = &query[..12];
        let message = check_listed(what, server.get(&format!("/v1/books?{query}")), 400, 100);
        assert!(message.ends_with(NOT_LISTED), "{what}: {message}");
    }
}

#[test]
fn unknown_fields_of_an_old_version_are_refused_before_the_writer_sees_them() {
    let schema = "
[collections.books.fields]
name = 'string'
[[versions]]
date = '2026-01-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'title', to = 'name' }
[[versions]]
date = '2025-01-01'
";
    let server = Start::schema(schema).go();
    let id = server.make("/v1/books", json!({"name": "Emma"}));
    let mut body = many_fields(40_000);
    body.insert("title".into(), json!("y".repeat(70_000)));
    let path = format!("/v1/books/{id}");
    let ask = server.ask("PATCH", &path).header("restive-version", "2025-01-01");
    let answer = ask.json(&Value::Object(body)).send();
    let message = check_listed("PATCH", answer, 422, 100);
    assert!(message.ends_with(NOT_LISTED), "{message}");
}

/// A body of 1 MiB whose gzip has about 1 KiB.
fn zipped(title: &str) -> Vec<u8> {
    let mut body = json!({"title": title, "author": "Ann Author"}).to_string().into_bytes();
    body.resize(1024 * 1024 - 1, b' ');
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_reused_idempotency_key_costs_quota_and_without_quota_few_bodies_are_read() {
    let server = Start::bookshop().arg("--rate-limit").arg("5/1d").go();
    let ask = |body: Vec<u8>| {
        let ask = server.ask("POST", "/v1/books").header("idempotency-key", "k");
        let ask = ask.header("content-type", "application/json");
        ask.header("content-encoding", "gzip").body(body).send()
    };
    let first = ask(zipped("Emma"));
    assert_eq!((first.status, first.header("x-ratelimit-remaining")), (201, Some("4")));
    for left in ["3", "2", "1", "0"] {
        let reused = ask(zipped("Persuasion"));
        assert_eq!(reused.header("x-ratelimit-remaining"), Some(left), "{}", reused.text);
        reused.error(422, "idempotency_key_reused");
    }
    // Without quota there is only the response to the first request.
    ask(zipped("Persuasion")).error(429, "rate_limited");
    let replay = ask(zipped("Emma"));
    assert_eq!((replay.status, &replay.text), (201, &first.text));
    for _ in 0..98 {
        ask(zipped("Persuasion")).error(429, "rate_limited");
    }
    // The server has read 100 bodies for no quota and reads no more in this window.
    ask(zipped("Emma")).error(429, "rate_limited");
    ask(b"not gzip".to_vec()).error(429, "rate_limited");
}

#[test]
fn a_request_without_quota_is_refused_before_its_body_is_read() {
    let server = Start::bookshop().arg("--rate-limit").arg("1/1d").go();
    server.get("/v1/books").expect(200);
    for path in ["/v1/books", "/v1/channel-tokens", "/v1/account"] {
        let key = server.key.clone();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: 100000\r\n\
             expect: 100-continue\r\nconnection: close\r\n\r\n"
        );
        let answer = server.raw(head.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 429"), "{path}: {answer}");
    }
}

const LARGE: &str = "
[service]
rate_limit = { requests = 1000000, window = '1s' }
[collections.docs.fields]
title = { type = 'string', sort = true }
text = { type = 'string', max_length = 900000 }
[collections.notes]
parent = 'docs'
[collections.notes.fields]
text = { type = 'string', max_length = 900000 }
[collections.orders.fields]
doc = { ref = 'docs' }
";
/// The sizes of `store::PAGE_BYTES` and `store::EMBEDDED_BYTES`.
const PAGE_BYTES: usize = 4 << 20;
const EMBEDDED_BYTES: usize = 8 << 20;
const DOC_BYTES: usize = 780_000;

/// Documents of 780 KB, titled in the order of their creation; returns their ids.
fn large_docs(server: &Server, count: usize) -> Vec<String> {
    let text = "x".repeat(DOC_BYTES);
    let doc = |n| json!({"title": format!("T{n:02}"), "text": text});
    (0..count).map(|n| server.make("/v1/docs", doc(n))).collect()
}

/// Reads a list from a cursor to its end; returns the ids, and how many pages there were.
fn read_all(server: &Server, list: &str, cursor: Option<&str>) -> (Vec<String>, usize) {
    let after = |cursor: &str| format!("&after={cursor}");
    let (mut ids, mut pages) = (Vec::new(), 0);
    let mut rest = cursor.map(after).unwrap_or_default();
    loop {
        let answer = server.get(&format!("{list}{rest}"));
        assert!(answer.text.len() < PAGE_BYTES + 1_100_000, "{list}: {} bytes", answer.text.len());
        let page = answer.expect(200);
        pages += 1;
        let data = page["data"].as_array().unwrap();
        assert!(!data.is_empty(), "{list}");
        ids.extend(data.iter().map(|doc| doc["id"].as_str().unwrap().to_owned()));
        let pagination = &page["pagination"];
        assert_eq!(pagination["has_more"], pagination["next_cursor"].is_string(), "{list}");
        match pagination["next_cursor"].as_str() {
            Some(cursor) => rest = after(cursor),
            None => return (ids, pages),
        }
    }
}

#[test]
fn a_page_of_large_records_ends_early_and_no_record_is_skipped() {
    let server = Start::schema(LARGE).go();
    let ids = large_docs(&server, 20);
    let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
    for (list, expected) in [
        ("/v1/docs?limit=100", &newest_first),
        ("/v1/docs?limit=100&sort=created_at", &ids),
        ("/v1/docs?limit=100&sort=title", &ids),
        ("/v1/docs?limit=100&sort=title&fields=id,text", &ids),
    ] {
        let (found, pages) = read_all(&server, list, None);
        assert_eq!(&found, expected, "{list}");
        // Six of them reach 4 MiB.
        assert_eq!(pages, 4, "{list}");
    }
    // Records that change between two pages keep their place.
    let first = server.get("/v1/docs?limit=100&sort=title").expect(200);
    for (n, id) in ids.iter().enumerate().skip(4).step_by(5) {
        let title = json!({"title": format!("A{n}")});
        server.patch(&format!("/v1/docs/{id}"), title).expect(200);
    }
    let cursor = first["pagination"]["next_cursor"].as_str().unwrap();
    let (mut found, _) = read_all(&server, "/v1/docs?limit=100&sort=title", Some(cursor));
    let seen = first["data"].as_array().unwrap();
    found.extend(seen.iter().map(|doc| doc["id"].as_str().unwrap().to_owned()));
    found.sort();
    let mut all = ids.clone();
    all.sort();
    assert_eq!(found, all);
    // An offset page cannot end early.
    let error = server.get("/v1/docs?page=1&limit=100").error(400, "invalid_parameter");
    assert_eq!(error["param"], "limit", "{error}");
    let page = server.get("/v1/docs?page=2&limit=5").expect(200);
    assert_eq!(page["pagination"]["total"], 20);
}

#[test]
fn embedded_records_have_a_limit_in_bytes_that_counts_every_copy() {
    let server = Start::schema(LARGE).go();
    let docs = large_docs(&server, 1);
    let notes = format!("/v1/docs/{}/notes", docs[0]);
    let text = "y".repeat(DOC_BYTES);
    server.make(&notes, json!({"text": text}));
    for _ in 0..20 {
        server.make("/v1/orders", json!({"doc": docs[0]}));
    }
    for (query, is_served) in [
        ("limit=10&expand=doc", true),
        ("limit=20&expand=doc", false),
        // A document and its note.
        ("limit=5&expand=doc.notes", true),
        ("limit=10&expand=doc.notes", false),
    ] {
        let answer = server.get(&format!("/v1/orders?{query}"));
        assert!(answer.text.len() < EMBEDDED_BYTES + 10_000, "{query}: {}", answer.text.len());
        match is_served {
            true => drop(answer.expect(200)),
            false => {
                let error = answer.error(400, "invalid_parameter");
                assert_eq!(error["param"], "expand", "{query}: {error}");
            }
        }
    }
    // Children that exceed it are not read.
    for _ in 0..11 {
        server.make(&notes, json!({"text": text}));
    }
    let path = format!("/v1/docs/{}?expand=notes", docs[0]);
    server.get(&path).error(400, "invalid_parameter");
}
