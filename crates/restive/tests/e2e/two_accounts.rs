//! Two accounts on one server: bulk requests of one do not delay the other. Tests compare the order
//! of responses, never their duration.

use crate::harness::{Server, Start, eventually};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SCHEMA: &str = "
[service]
rate_limit = { requests = 1000000, window = '1s' }
[collections.books.fields]
title = { type = 'string', sort = true }
author = { type = 'string', filter = true }
[collections.orders.states]
names = ['open', 'late']
[collections.orders.fields]
note = 'string'
[[collections.orders.timed]]
from = 'open'
to = 'late'
after = '1s'
";

fn second_key(server: &Server) -> String {
    let (text, error, code) = server.tool(&["accounts", "create", "other"]);
    assert_eq!(code, 0, "{error}");
    text.split_whitespace().find(|word| word.starts_with("sk_test_")).unwrap().to_owned()
}

#[test]
fn deep_offsets_of_one_account_do_not_delay_another() {
    const CLIENTS: usize = 12;
    const EACH: usize = 25;
    let server = Start::schema(SCHEMA).go();
    let other = second_key(&server);
    std::thread::scope(|scope| {
        for part in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for n in 0..150 {
                    let book = json!({"title": format!("T{part}-{n}"), "author": "x"});
                    server.post("/v1/books", book).expect(201);
                }
            });
        }
    });
    let body = json!({"title": "Theirs", "author": "x"});
    server.ask("POST", "/v1/books").key(&other).json(&body).send().expect(201);
    let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let page = "/v1/books?author=x,y&sort=title&page=11&limit=100";
                    let answer = server.get(page);
                    // An account with too many waiting requests is refused with Retry-After.
                    let refused = answer.status == 503 && answer.header("retry-after").is_some();
                    assert!(answer.status == 200 || refused, "{answer:?}");
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        eventually("the first pages are read", || done.load(Ordering::SeqCst) > CLIENTS);
        let before = done.load(Ordering::SeqCst);
        for _ in 0..10 {
            let list = server.ask("GET", "/v1/books?author=x,y&sort=title&page=1").key(&other);
            assert_eq!(list.send().expect(200)["pagination"]["total"], 1);
        }
        let passed = done.load(Ordering::SeqCst) - before;
        stop.store(true, Ordering::SeqCst);
        // In a common queue, twelve would precede each of the ten.
        assert!(passed <= 100, "{passed} requests of the other account came first");
    });
}

#[test]
fn timers_of_one_account_do_not_delay_another_and_all_fire() {
    let server = Start::schema(SCHEMA).go();
    let other = second_key(&server);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..75 {
                    server.post("/v1/orders", json!({"note": "x"})).expect(201);
                }
            });
        }
    });
    let made = server.ask("POST", "/v1/orders").key(&other).json(&json!({"note": "y"})).send();
    let path = format!("/v1/orders/{}", made.expect(201)["id"].as_str().unwrap());
    eventually("the other account's timer fires", || {
        server.ask("GET", &path).key(&other).send().expect(200)["status"] == "late"
    });
    eventually("all timers fire", || {
        let late = server.get("/v1/events?type=order.late&limit=100&page=1").expect(200);
        late["pagination"]["total"] == 600
    });
    let metrics = server.ask_anonymously("GET", "/metrics").send().text;
    assert!(metrics.contains("restive_timers_failed_total 0\n"), "{metrics}");
}

#[test]
fn an_acknowledged_erasure_survives_a_kill() {
    let server = Start::schema(SCHEMA).go();
    let id = server.make("/v1/books", json!({"title": "Secret"}));
    let path = format!("/v1/books/{id}");
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (server, path) = (&server, &path);
            scope.spawn(move || {
                for n in 0..200 {
                    let title = format!("Secret {part} {n}");
                    server.patch(path, json!({ "title": title })).expect(200);
                }
            });
        }
    });
    let keyed = |server: &Server| {
        let ask = server.ask("PATCH", &path).header("idempotency-key", "same");
        ask.json(&json!({"author": "Secret author"})).send()
    };
    keyed(&server).expect(200);
    let erasure = server.post("/v1/erasures", json!({"resource": id})).expect(201);
    assert_eq!(erasure["events"], 802);
    let folder = server.kill();
    let server = Start::schema(SCHEMA).on(&folder).go();
    for page in 1..=9 {
        let list = server.get(&format!("/v1/events?resource={id}&limit=100&page={page}"));
        assert!(!list.text.contains("Secret"), "{}", list.text);
    }
    let again = keyed(&server);
    assert!(!again.text.contains("Secret"), "{}", again.text);
    assert_eq!(again.expect(200), json!({"id": id, "object": "book", "erased": true}));
}

#[test]
fn pagination_over_an_erased_sort_key_must_start_again() {
    let server = Start::schema(SCHEMA).go();
    let books: Vec<String> =
        (0..6).map(|n| server.make("/v1/books", json!({"title": format!("T{n}")}))).collect();
    let page = server.get("/v1/books?sort=title&limit=2").expect(200);
    let cursor = page["pagination"]["next_cursor"].as_str().unwrap().to_owned();
    let next = format!("/v1/books?sort=title&limit=2&after={cursor}");
    server.patch(&format!("/v1/books/{}", books[4]), json!({"title": "A"})).expect(200);
    server.get(&next).expect(200);
    server.post("/v1/erasures", json!({"resource": books[4]})).expect(201);
    server.get(&next).error(410, "cursor_expired");
}
