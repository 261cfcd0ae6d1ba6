//! Idempotency-Key: a retry has no second effect and gets the first response.

use crate::clock::shifted;
use crate::harness::{Answer, Server, Start};
use serde_json::{Value, json};

fn post(server: &Server, key: &str, path: &str, body: &Value) -> Answer {
    server.ask("POST", path).header("idempotency-key", key).json(body).send()
}

fn count(server: &Server) -> usize {
    server.get("/v1/books?limit=100").column("id").len()
}

fn dune() -> Value {
    json!({"title": "Dune", "author": "Frank Herbert"})
}

/// Both responses are equal, and the second is marked as a replay.
#[track_caller]
fn assert_replay(first: &Answer, second: &Answer) {
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(second.header("idempotent-replayed"), Some("true"), "{}", second.text);
    assert_eq!((first.status, &first.text), (second.status, &second.text));
    for name in ["etag", "location", "content-location", "content-type", "last-modified"] {
        assert_eq!(first.header(name), second.header(name), "{name}");
    }
}

#[test]
fn a_repeated_create_is_replayed_byte_for_byte() {
    let server = Server::bookshop();
    let first = post(&server, "k1", "/v1/books", &dune());
    assert_eq!(first.status, 201, "{}", first.text);
    let path = first.header("location").unwrap().to_owned();
    server.patch(&path, json!({"title": "changed since"})).expect(200);
    let second = post(&server, "k1", "/v1/books", &dune());
    assert_replay(&first, &second);
    assert_replay(&first, &post(&server, "\"k1\"", "/v1/books", &dune()));
    server.delete(&path).expect(200);
    assert_replay(&first, &post(&server, "k1", "/v1/books", &dune()));
    assert_eq!(count(&server), 0, "no second effect");
    let other = post(&server, "k2", "/v1/books", &dune());
    assert_ne!(other.id(), first.id(), "another key is another request");
}

#[test]
fn an_idempotency_key_is_refused_for_another_request() {
    let server = Server::bookshop();
    let book = post(&server, "k", "/v1/books", &dune()).id();
    let other = json!({"title": "Other", "author": "X"});
    let reviews = format!("/v1/books/{book}/reviews");
    for (path, body) in
        [("/v1/books", other), ("/v1/orders", dune()), (reviews.as_str(), json!({"rating": 1}))]
    {
        let error = post(&server, "k", path, &body).error(422, "idempotency_key_reused");
        assert_eq!(error["type"], "idempotency_error");
    }
    let path = format!("/v1/books/{book}");
    let patch = server.ask("PATCH", &path).header("idempotency-key", "k").json(&dune()).send();
    patch.error(422, "idempotency_key_reused");
    assert_eq!(count(&server), 1);
}

#[test]
fn idempotency_keys_work_for_patch_and_actions() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let path = format!("/v1/books/{book}");
    let patch = |price: i64| {
        let ask = server.ask("PATCH", &path).header("idempotency-key", "p1");
        ask.json(&json!({"price": price})).send()
    };
    let first = patch(5);
    server.patch(&path, json!({"price": 6})).expect(200);
    assert_replay(&first, &patch(5));
    assert_eq!(server.get(&path).expect(200)["price"], 6);
    patch(7).error(422, "idempotency_key_reused");
    let order = server.make("/v1/orders", json!({"book": book}));
    let pay = format!("/v1/orders/{order}/pay");
    let first = post(&server, "a1", &pay, &json!({}));
    assert_eq!(first.clone().expect(200)["status"], "paid");
    assert_replay(&first, &post(&server, "a1", &pay, &json!({})));
    post(&server, "a2", &pay, &json!({})).error(409, "invalid_state");
}

#[test]
fn put_and_delete_ignore_the_idempotency_key() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    for title in ["one", "two"] {
        let ask = server.ask("PUT", &path).header("idempotency-key", "k");
        let answer = ask.json(&json!({"title": title, "author": "A"})).send();
        assert_eq!(answer.header("idempotent-replayed"), None);
        assert_eq!(answer.expect(200)["title"], title);
    }
    let answer = server.ask("DELETE", &path).header("idempotency-key", "").send();
    answer.expect(200);
}

#[test]
fn a_request_refused_before_it_ran_is_not_stored_for_its_key() {
    let server = Server::bookshop();
    let bad = json!({"title": ""});
    post(&server, "k", "/v1/books", &bad).error(422, "validation_failed");
    post(&server, "k", "/v1/orders", &json!({"book": "book_x"})).error(422, "validation_failed");
    let text = server.ask("POST", "/v1/books").header("idempotency-key", "k").body("{").send();
    text.error(415, "unsupported_media_type");
    let ask = server.ask("POST", "/v1/books").key("sk_test_wrong").header("idempotency-key", "k");
    ask.json(&dune()).send().error(401, "invalid_api_key");
    let made = post(&server, "k", "/v1/books", &dune());
    assert_eq!((made.status, made.header("idempotent-replayed")), (201, None));
}

#[test]
fn a_refusal_by_a_rule_is_stored_for_its_key() {
    let server = Server::bookshop();
    let body = json!({"amount": 5, "currency": "eur", "payment_method": "pm_card_declined"});
    let intent = server.make("/v1/payment-intents", body);
    let confirm = format!("/v1/payment-intents/{intent}/confirm");
    let first = post(&server, "k", &confirm, &json!({}));
    assert_eq!(first.status, 402);
    let path = format!("/v1/payment-intents/{intent}");
    server.patch(&path, json!({"payment_method": "pm_card_visa"})).expect(200);
    assert_replay(&first, &post(&server, "k", &confirm, &json!({})));
    post(&server, "k2", &confirm, &json!({})).expect(200);
    post(&server, "k3", &confirm, &json!({})).error(409, "invalid_state");
}

#[test]
fn an_idempotency_key_is_separate_per_account_and_mode() {
    let server = Server::bookshop();
    let (text, _, code) = server.tool(&["accounts", "create", "Other"]);
    assert_eq!(code, 0);
    let mut keys: Vec<&str> = text.split_whitespace().filter(|w| w.starts_with("sk_")).collect();
    let (live, _, _) = server.tool(&["keys", "create", "--mode", "live"]);
    keys.push(live.split_whitespace().nth(1).unwrap());
    assert_eq!(keys.len(), 3);
    let mut ids = vec![post(&server, "k", "/v1/books", &dune()).id()];
    for key in keys {
        let ask = server.ask("POST", "/v1/books").key(key).header("idempotency-key", "k");
        let answer = ask.json(&dune()).send();
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None));
        ids.push(answer.id());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn a_replay_needs_the_scope_of_the_request() {
    let server = Server::bookshop();
    post(&server, "k", "/v1/books", &dune());
    let (text, _, _) = server.tool(&["keys", "create", "--scope", "books:read"]);
    let narrow = text.split_whitespace().nth(1).unwrap();
    let ask = server.ask("POST", "/v1/books").key(narrow).header("idempotency-key", "k");
    ask.json(&dune()).send().error(403, "permission_denied");
}

#[test]
fn twenty_concurrent_creates_with_one_key_create_one_record() {
    let server = Server::bookshop();
    for round in 0..5 {
        let key = format!("round{round}");
        let answers: Vec<Answer> = std::thread::scope(|threads| {
            let callers: Vec<_> = (0..20)
                .map(|_| threads.spawn(|| post(&server, &key, "/v1/books", &dune())))
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|answer| answer.status == 201));
        assert!(answers.iter().all(|answer| answer.text == answers[0].text));
        let fresh = |answer: &&Answer| answer.header("idempotent-replayed").is_none();
        assert_eq!(answers.iter().filter(fresh).count(), 1, "exactly one did it");
        assert_eq!(count(&server), round + 1);
    }
}

#[test]
fn a_replay_costs_no_quota_and_works_without_any_left() {
    let server = Start::bookshop().arg("--rate-limit").arg("2/1d").go();
    let first = post(&server, "k", "/v1/books", &dune());
    assert_eq!(first.header("x-ratelimit-remaining"), Some("1"));
    for _ in 0..5 {
        let again = post(&server, "k", "/v1/books", &dune());
        assert_replay(&first, &again);
        assert_eq!(again.header("x-ratelimit-remaining"), Some("1"));
    }
    server.get("/v1/books").expect(200);
    server.get("/v1/books").error(429, "rate_limited");
    assert_replay(&first, &post(&server, "k", "/v1/books", &dune()));
    post(&server, "other", "/v1/books", &dune()).error(429, "rate_limited");
}

#[test]
fn an_invalid_idempotency_key_is_refused() {
    let server = Server::bookshop();
    for key in ["", "\"\"", "two words", &"x".repeat(256), "\u{fc}"] {
        let error = post(&server, key, "/v1/books", &dune()).error(400, "invalid_header");
        assert_eq!(error["param"], "Idempotency-Key", "{key}");
    }
    let ask = server.ask("POST", "/v1/books").header("idempotency-key", "a");
    ask.header("idempotency-key", "b").json(&dune()).send().error(400, "invalid_header");
    assert_eq!(count(&server), 0);
    assert_eq!(post(&server, &"x".repeat(255), "/v1/books", &dune()).status, 201);
}

#[test]
fn a_collection_can_require_an_idempotency_key() {
    let schema = "[collections.books]\nrequire_idempotency_key = true\n\
                  actions.touch.set = { title = \"touched\" }\nfields = { title = \"string\" }\n";
    let server = Start::schema(schema).go();
    let error = server.post("/v1/books", json!({})).error(400, "idempotency_key_required");
    assert_eq!(error["param"], "Idempotency-Key");
    let id = post(&server, "k", "/v1/books", &json!({})).id();
    let touch = format!("/v1/books/{id}/touch");
    server.post(&touch, json!({})).error(400, "idempotency_key_required");
    assert_eq!(post(&server, "t", &touch, &json!({})).expect(200)["title"], "touched");
    server.patch(&format!("/v1/books/{id}"), json!({"title": "x"})).expect(200);
}

#[test]
fn a_replay_survives_a_kill_and_a_restart() {
    let server = Server::bookshop();
    let first = post(&server, "k", "/v1/books", &dune());
    let folder = server.kill();
    let server = Start::bookshop().on(&folder).go();
    assert_replay(&first, &post(&server, "k", "/v1/books", &dune()));
    assert_eq!(count(&server), 1);
}

#[test]
fn an_idempotency_key_expires_after_a_day() {
    let server = Server::bookshop();
    let first = post(&server, "k", "/v1/books", &dune());
    let folder = server.kill();
    let server = shifted(Start::bookshop().on(&folder), "+86340s").go();
    assert_replay(&first, &post(&server, "k", "/v1/books", &dune()));
    let folder = server.kill();
    let server = shifted(Start::bookshop().on(&folder), "+86460s").go();
    let fresh = post(&server, "k", "/v1/books", &dune());
    assert_eq!((fresh.status, fresh.header("idempotent-replayed")), (201, None));
    assert_ne!(fresh.id(), first.id());
    assert_eq!(count(&server), 2);
}
