//! Cursors: altered ones are refused, they survive restarts, and pagination returns every row once
//! despite concurrent writes.

use crate::harness::{Server, Start};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

fn shelf(server: &Server, count: usize) -> Vec<String> {
    let book = |number: usize| {
        let price = if number.is_multiple_of(7) { Value::Null } else { json!(number % 5) };
        json!({"title": format!("b{number:04}"), "author": "A", "price": price})
    };
    (0..count).map(|number| server.make("/v1/books", book(number))).collect()
}

fn next(server: &Server, path: &str) -> String {
    let page = server.get(path).expect(200);
    page["pagination"]["next_cursor"].as_str().expect("there is more").to_owned()
}

#[test]
fn an_altered_cursor_or_one_of_another_list_is_refused() {
    let server = Server::bookshop();
    shelf(&server, 5);
    let other = server.make("/v1/books", json!({"title": "other", "author": "A"}));
    for rating in 1..=3 {
        server.make(&format!("/v1/books/{other}/reviews"), json!({"rating": rating}));
    }
    let cursor = next(&server, "/v1/books?limit=2");
    for place in 0..cursor.len() {
        let mut bytes = cursor.clone().into_bytes();
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
        let bent = String::from_utf8(bytes).unwrap();
        let answer = server.get(&format!("/v1/books?limit=2&after={bent}"));
        answer.error(400, "cursor_invalid");
    }
    for bent in ["", "x", "%00", &cursor[1..], &cursor[..cursor.len() - 1], &cursor.repeat(2)] {
        let answer = server.get(&format!("/v1/books?after={bent}"));
        assert_eq!(answer.error(400, "cursor_invalid")["param"], "after");
    }
    for path in [
        "/v1/orders?after=",
        "/v1/books?sort=title&after=",
        "/v1/books?author=A&after=",
        "/v1/books?min_price=0&after=",
        "/v1/books?q=other&after=",
        &format!("/v1/books/{other}/reviews?after="),
    ] {
        server.get(&format!("{path}{cursor}")).error(400, "cursor_invalid");
    }
    let (live, _, code) = server.tool(&["keys", "create", "--mode", "live"]);
    assert_eq!(code, 0);
    let (account, _, code) = server.tool(&["accounts", "create", "Other"]);
    assert_eq!(code, 0);
    let keys = [&live, &account].map(|text| {
        let mut words = text.split_whitespace();
        words.find(|word| word.starts_with("sk_")).expect("a key").to_owned()
    });
    for key in keys {
        let ask = server.ask("GET", &format!("/v1/books?after={cursor}")).key(&key);
        ask.send().error(400, "cursor_invalid");
    }
    server.get(&format!("/v1/books?limit=1&after={cursor}")).expect(200);
}

#[test]
fn a_cursor_survives_a_restart_and_allows_another_limit() {
    let server = Server::bookshop();
    shelf(&server, 10);
    let cursor = next(&server, "/v1/books?sort=title&limit=4");
    let folder = server.kill();
    let server = Start::bookshop().on(&folder).go();
    let page = server.get(&format!("/v1/books?sort=title&limit=3&after={cursor}"));
    assert_eq!(page.titles(), ["b0004", "b0005", "b0006"]);
}

#[test]
fn pagination_continues_after_a_kill_although_rows_moved() {
    let server = Server::bookshop();
    let ids = shelf(&server, 12);
    let first = server.get("/v1/books?sort=title&limit=4");
    let cursor = first.json["pagination"]["next_cursor"].as_str().unwrap().to_owned();
    let rename = |server: &Server, id: &str, title: &str| {
        server.patch(&format!("/v1/books/{id}"), json!({"title": title})).expect(200);
    };
    rename(&server, &ids[1], "z behind the end");
    rename(&server, &ids[9], "a before the start");
    let folder = server.kill();
    let server = Start::bookshop().on(&folder).go();
    rename(&server, &ids[2], "z again");
    rename(&server, &ids[8], "a again");
    server.delete(&format!("/v1/books/{}", ids[10])).expect(200);
    server.book("b0005 and a half");
    let mut seen = first.column("id");
    let mut path = format!("/v1/books?sort=title&limit=4&after={cursor}");
    loop {
        let page = server.get(&path);
        seen.extend(page.column("id"));
        let Some(next) = page.json["pagination"]["next_cursor"].as_str() else { break };
        path = format!("/v1/books?sort=title&limit=4&after={next}");
    }
    for (place, id) in ids.iter().enumerate().filter(|(place, _)| *place != 10) {
        assert_eq!(seen.iter().filter(|other| *other == id).count(), 1, "row {place}");
    }
}

#[test]
fn a_cursor_works_after_its_row_is_deleted() {
    let server = Server::bookshop();
    let ids = shelf(&server, 6);
    let cursor = next(&server, "/v1/books?sort=title&limit=3");
    server.delete(&format!("/v1/books/{}", ids[2])).expect(200);
    let page = server.get(&format!("/v1/books?sort=title&limit=3&after={cursor}"));
    assert_eq!(page.titles(), ["b0003", "b0004", "b0005"]);
}

#[test]
fn following_link_headers_returns_every_record_once() {
    let server = Server::bookshop();
    let ids = shelf(&server, 23);
    for query in ["limit=4", "page=1&limit=4", "sort=-price,title&limit=5", "author=A&q=b0001"] {
        let mut path = format!("/v1/books?{query}");
        let mut seen = Vec::new();
        loop {
            let page = server.get(&path);
            seen.extend(page.column("id"));
            let Some(link) = page.header("link") else { break };
            let url = link.strip_prefix('<').and_then(|rest| rest.split_once(">; rel=\"next\""));
            path = url.expect("a link to the next page").0.to_owned();
        }
        let expected = if query.contains("q=") { 1 } else { ids.len() };
        assert_eq!(seen.len(), expected, "{query}");
        let mut unique: Vec<_> = seen.iter().filter_map(Value::as_str).collect();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), expected, "{query}");
    }
}

/// Inserts, deletes and moves rows in the sort order during the pagination.
fn hammer(server: &Server, stable: &[String], stop: &AtomicBool, seed: usize) {
    let mut extra: Vec<String> = Vec::new();
    let mut number = seed;
    while !stop.load(Ordering::Relaxed) {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let random = number >> 33;
        let title = format!("b{:04}", random % 300);
        match random % 4 {
            0 => {
                let body = json!({"title": title, "author": "new", "price": random % 6});
                extra.push(server.make("/v1/books", body));
            }
            1 if !extra.is_empty() => {
                let id = extra.swap_remove(random % extra.len());
                server.delete(&format!("/v1/books/{id}")).expect(200);
            }
            _ => {
                let id = &stable[random % stable.len()];
                let price = if random.is_multiple_of(9) { Value::Null } else { json!(random % 6) };
                let body = json!({"title": title, "price": price});
                server.patch(&format!("/v1/books/{id}"), body).expect(200);
            }
        }
    }
}

#[test]
fn pagination_during_writes_returns_every_unchanged_row_once() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let stable = shelf(&server, 120);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let server = &server;
        for seed in 1..=3 {
            let (stable, stop) = (&stable, &stop);
            threads.spawn(move || hammer(server, stable, stop, seed * 7919));
        }
        for sort in
            ["", "title", "-title", "price", "-price,title", "updated_at", "-updated_at,price"]
        {
            let base = match sort {
                "" => "/v1/books?limit=7".to_owned(),
                sort => format!("/v1/books?limit=7&sort={sort}"),
            };
            let seen = walk(server, &base);
            let wrong: Vec<_> =
                stable.iter().filter(|id| seen.get(*id).copied() != Some(1)).collect();
            if !wrong.is_empty() {
                stop.store(true, Ordering::Relaxed);
                panic!("sort={sort}: not seen exactly once: {wrong:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// How often each id was returned up to the last page.
fn walk(server: &Server, base: &str) -> HashMap<String, u32> {
    let mut seen = HashMap::new();
    let mut path = base.to_owned();
    loop {
        let page = server.get(&path);
        for id in page.column("id") {
            *seen.entry(id.as_str().unwrap().to_owned()).or_insert(0) += 1;
        }
        let Some(next) = page.json["pagination"]["next_cursor"].as_str() else { return seen };
        path = format!("{base}&after={next}");
    }
}
