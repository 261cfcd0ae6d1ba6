//! The API client of restive-kit against the real server, also over connections that break, and
//! against servers that answer otherwise.

use crate::harness::{KEY, Server, Start};
use crate::relay::{Plan, Relay};
use restive_kit::client::{Builder, Client, Error, Method};
use restive_kit::follow::{Channel, Follower, Update};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Runs a test of asynchronous code, with a deadline.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(120), test).await };
    runtime.block_on(limited).expect("the test takes too long")
}

pub fn client_of(server: &Server) -> Client {
    builder(&format!("http://{}", server.address)).build().unwrap()
}

fn builder(url: &str) -> Builder {
    Client::builder(url).key(KEY)
}

#[test]
fn records_are_created_read_changed_and_deleted() {
    let server = Server::bookshop();
    run(async {
        let books = client_of(&server).resource("books");
        let made = books.create(&json!({ "title": "Dune", "author": "Frank" })).await.unwrap();
        assert_eq!(made.status(), 201);
        let id = made.value().unwrap()["id"].as_str().unwrap().to_owned();
        let read = books.get(&id).expand(&["reviews"]).send().await.unwrap();
        assert_eq!(read.value().unwrap()["reviews"]["data"], json!([]), "{:?}", read.value());
        let tag = books.get(&id).send().await.unwrap().etag().unwrap().to_owned();
        let changed = books.update(&id, &json!({ "price": 5 })).await.unwrap().value().unwrap();
        assert_eq!((&changed["title"], &changed["price"]), (&json!("Dune"), &json!(5)));
        let stale = books.on(Method::PUT, &id, "").json(&json!({ "title": "x", "author": "y" }));
        let error = stale.if_match(&tag).send().await.unwrap_err();
        assert!(error.is_code("precondition_failed"), "{error}");
        let replaced = books.replace(&id, &json!({ "title": "Emma", "author": "Jane" })).await;
        assert_eq!(replaced.unwrap().value().unwrap()["price"], Value::Null);
        let reviews = books.below(&id, "reviews");
        reviews.create(&json!({ "rating": 5 })).await.unwrap();
        assert_eq!(reviews.list().records::<Value>().next().await.unwrap().unwrap()["rating"], 5);
        let order = json!({ "book": id });
        let orders = client_of(&server).resource("orders");
        let order = orders.create(&order).await.unwrap().value().unwrap();
        let paid = orders.act(order["id"].as_str().unwrap(), "pay", &json!({})).await.unwrap();
        assert_eq!(paid.value().unwrap()["status"], "paid");
        let other = books.create(&json!({ "title": "b", "author": "c" })).await.unwrap();
        let other = other.value().unwrap()["id"].as_str().unwrap().to_owned();
        assert!(books.delete(&other).await.unwrap().status() < 300);
        let error = books.get(&other).send().await.unwrap_err();
        assert_eq!(error.api().unwrap().status, 404);
    });
}

#[test]
fn errors_have_type_code_param_request_id_and_all_fields() {
    let server = Server::bookshop();
    run(async {
        let client = client_of(&server);
        let error = client.resource("books").create(&json!({ "title": 7, "prise": 1 })).await;
        let error = error.unwrap_err();
        let api = error.api().unwrap();
        assert_eq!((api.status, &*api.kind), (422, "invalid_request_error"));
        assert_eq!((&*api.code, api.param.as_deref()), ("validation_failed", Some("prise")));
        assert!(api.request_id.as_ref().unwrap().starts_with("req_"));
        let fields: Vec<&str> = api.errors.iter().map(|error| &*error.field).collect();
        assert_eq!(fields, ["prise", "title", "author"]);
        assert!(error.to_string().contains(api.request_id.as_ref().unwrap()), "{error}");
        let wrong = Client::builder(&server.url("")).key("sk_test_wrong").build().unwrap();
        let error = wrong.get("/v1/books").send().await.unwrap_err();
        assert_eq!(error.api().unwrap().status, 401);
        assert!(!format!("{wrong:?} {error:?}").contains("sk_test"), "{wrong:?}");
        for (path, told) in [("v1/books", "must begin with /"), ("/v1/a b", "not a valid")] {
            let error = client.get(path).send().await.unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        let old = client.get("/v1/books").version("1999-01-01").send().await.unwrap_err();
        assert!(old.is_code("unknown_version"), "{old}");
    });
}

#[test]
fn a_list_is_read_over_all_pages_in_order_despite_broken_connections() {
    let server = Server::bookshop();
    let titles: Vec<String> = (0..45).map(|number| format!("book {number:02}")).collect();
    titles.iter().for_each(|title| drop(server.book(title)));
    run(async {
        let relay = Relay::to(server.address);
        relay.plan([Plan::Cut(700), Plan::Pass]);
        let client = builder(&relay.url()).build().unwrap();
        let list = client.resource("books").list().query("sort", "title").query("limit", "10");
        let mut records = list.records::<Value>();
        let mut read = Vec::new();
        while let Some(book) = records.next().await.unwrap() {
            read.push(book["title"].as_str().unwrap().to_owned());
            if read.len() % 20 == 0 {
                relay.cut();
                relay.plan([Plan::Refuse]);
            }
        }
        assert_eq!(read, titles);
        assert!(records.position().unwrap().contains('.'));
    });
}

#[test]
fn a_post_whose_response_is_lost_is_repeated_and_creates_one_record() {
    let server = Server::bookshop();
    run(async {
        let relay = Relay::to(server.address);
        relay.plan([Plan::Cut(0), Plan::Cut(30), Plan::html(502)]);
        let client = builder(&relay.url()).build().unwrap();
        let made = client.resource("books").create(&json!({ "title": "a", "author": "b" })).await;
        let made = made.unwrap();
        assert!(made.is_replayed(), "the first request arrived, its response did not");
        assert_eq!(relay.connections(), 4);
        assert_eq!(server.get("/v1/books").column("id"), [made.value().unwrap()["id"].clone()]);
    });
}

#[test]
fn a_refusal_that_goes_away_is_waited_for_and_others_are_returned_at_once() {
    let server = Server::bookshop();
    let in_use = r#"{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}"#;
    let json = "content-type: application/json\r\n";
    run(async {
        let relay = Relay::to(server.address);
        let client = builder(&relay.url()).build().unwrap();
        let begin = Instant::now();
        relay.plan([
            Plan::status(429, "retry-after: 1\r\n", ""),
            Plan::html(503),
            Plan::status(409, json, in_use),
        ]);
        let made = client.resource("books").create(&json!({ "title": "a", "author": "b" })).await;
        assert_eq!(made.unwrap().status(), 201);
        assert!(begin.elapsed() >= Duration::from_secs(1), "Retry-After counts");
        // More than the client waits.
        relay.plan([Plan::status(503, "retry-after: 3600\r\n", "")]);
        let fresh = builder(&relay.url()).build().unwrap();
        let error = fresh.get("/v1/books").send().await.unwrap_err();
        assert_eq!(error.api().unwrap().retry_after, Some(Duration::from_secs(3600)));
        // A page of a portal, and a redirect, are no JSON and no success.
        relay.plan([Plan::html(200), Plan::status(302, "location: https://elsewhere\r\n", "")]);
        let answer = builder(&relay.url()).build().unwrap().get("/v1/books").send().await.unwrap();
        assert!(matches!(answer.value(), Err(Error::NotJson { status: 200, .. })), "{answer:?}");
        let error = builder(&relay.url()).build().unwrap().get("/v1/books").send().await;
        assert_eq!(error.unwrap_err().api().unwrap().status, 302);
        // Without a key, a request that may have arrived is not repeated.
        relay.plan([Plan::Cut(0)]);
        let client = builder(&relay.url()).build().unwrap();
        let books = client.post("/v1/books").without_idempotency_key();
        let error = books.json(&json!({ "title": "c", "author": "d" })).send().await.unwrap_err();
        assert!(matches!(error, Error::Network { sent: true, .. }), "{error}");
        assert_eq!(relay.planned(), 0);
    });
}

#[test]
fn sizes_and_times_are_limited() {
    let server = Server::bookshop();
    run(async {
        let client = builder(&server.url("")).max_response_bytes(100).build().unwrap();
        server.book("a");
        let error = client.get("/v1/books").send().await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit_bytes: 100 }), "{error}");
        // A server that accepts and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let limit = Duration::from_millis(200);
        let client = builder(&url).attempt_timeout(limit).retries(1).build().unwrap();
        let error = client.get("/v1/books").send().await.unwrap_err();
        assert!(matches!(error, Error::Timeout(given) if given == limit), "{error}");
        // Nobody listens.
        drop(silent);
        let client = builder(&url).retries(0).build().unwrap();
        let error = client.get("/v1/books").send().await.unwrap_err();
        assert!(matches!(error, Error::Network { sent: false, .. }), "{error}");
    });
}

#[test]
fn an_unchanged_record_is_not_sent_again_and_a_changed_one_is() {
    let server = Server::bookshop();
    run(async {
        let client = client_of(&server);
        let books = client.resource("books");
        let id = server.book("Dune");
        let first = books.get(&id).send().await.unwrap();
        let second = books.get(&id).send().await.unwrap();
        assert_eq!((first.is_cached(), second.is_cached()), (false, true));
        assert_eq!(first.body(), second.body());
        server.patch(&format!("/v1/books/{id}"), json!({ "title": "Emma" })).expect(200);
        let third = books.get(&id).send().await.unwrap();
        assert!(!third.is_cached());
        assert_eq!(third.value().unwrap()["title"], "Emma");
    });
}

#[test]
fn a_refused_token_is_replaced_once() {
    let server = Server::bookshop();
    run(async {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let tokens = move || -> restive_kit::client::TokenFuture {
            let call = counted.fetch_add(1, Relaxed);
            let token = if call.is_multiple_of(2) { "sk_test_old" } else { KEY };
            Box::pin(async move { Ok(token.to_owned()) })
        };
        let client = Client::builder(&server.url("")).tokens(tokens).build().unwrap();
        client.get("/v1/books").send().await.unwrap();
        client.get("/v1/orders").send().await.unwrap();
        assert_eq!(calls.load(Relaxed), 2, "the second token is kept");
        let refused = Client::builder(&server.url(""))
            .tokens(|| Box::pin(async { Ok("sk_test_wrong".to_owned()) }));
        let error = refused.build().unwrap().get("/v1/books").send().await.unwrap_err();
        assert_eq!(error.api().unwrap().status, 401);
    });
}

#[test]
fn https_needs_a_known_authority() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    let pem = std::fs::read(server.data().join("self-signed.crt")).unwrap();
    run(async {
        let url = format!("https://localhost:{}", server.address.port());
        let client = builder(&url).authorities(&pem).build().unwrap();
        assert_eq!(client.get("/v1/books").send().await.unwrap().status(), 200);
        for channel in [Channel::ServerSentEvents, Channel::WebSocket] {
            let builder = Follower::builder(client.clone(), channel).types(&["book.*"]);
            let mut follower = builder.since("0").build();
            client.resource("books").create(&json!({ "title": "a", "author": "b" })).await.unwrap();
            let update = follower.next().await.unwrap();
            assert!(matches!(&update, Update::Event(event) if event.kind() == "book.created"));
        }
        let other = Start::bookshop().arg("--tls").arg("self-signed").go();
        let other = std::fs::read(other.data().join("self-signed.crt")).unwrap();
        let stranger = builder(&url).authorities(&other).retries(0).build().unwrap();
        let error = stranger.get("/v1/books").send().await.unwrap_err();
        assert!(matches!(error, Error::Network { sent: false, .. }), "{error}");
    });
}
