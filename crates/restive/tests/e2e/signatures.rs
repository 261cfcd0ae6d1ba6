//! The libraries of others verify what the service sends, also while a secret is being rotated.

use crate::harness::{Server, eventually};
use crate::receivers::{Case, Language};
use crate::sink::{Received, Sink};
use serde_json::json;

/// Whether each library of each language takes a request with this secret.
fn verdicts(request: &Received, secret: &str, families: &[&str]) -> Vec<String> {
    let headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let cases: Vec<Case<'_>> = families
        .iter()
        .map(|family| Case { family, secret, headers: &headers, body: &request.body })
        .collect();
    Language::ALL.iter().flat_map(|language| language.verify(&cases)).collect()
}

const TIMESTAMPED: [&str; 3] = ["stripe", "standardwebhooks", "svix"];

#[test]
fn the_libraries_of_others_accept_every_delivery_during_rotation_too() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let made = server.post("/v1/webhook-endpoints", json!({"url": sink.url()})).expect(201);
    let (id, old) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    server.book("A");
    eventually("it came", || sink.of("book.created").len() == 1);
    let first = sink.of("book.created").remove(0);
    assert_eq!(verdicts(&first, old, &TIMESTAMPED), ["ok"; 6]);
    let path = format!("/v1/webhook-endpoints/{id}/rotate-secret");
    let rotated = server.post(&path, json!({"overlap": 3600})).expect(200);
    let new = rotated["secret"].as_str().unwrap();
    server
        .patch(
            &format!("/v1/books/{}", first.event()["data"]["object"]["id"].as_str().unwrap()),
            json!({"title": "B"}),
        )
        .expect(200);
    eventually("it came", || sink.of("book.updated").len() == 1);
    let second = sink.of("book.updated").remove(0);
    assert_eq!(verdicts(&second, old, &TIMESTAMPED), ["ok"; 6], "the old secret still holds");
    assert_eq!(verdicts(&second, new, &TIMESTAMPED), ["ok"; 6]);
    let wrong = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY";
    assert!(verdicts(&second, wrong, &TIMESTAMPED).iter().all(|told| told.starts_with("error")));
    // Without an overlap the old one ends at once.
    server.post(&path, json!({"overlap": 0})).expect(200);
    server.book("C");
    eventually("it came", || sink.of("book.created").len() == 2);
    let third = sink.of("book.created").remove(1);
    assert!(verdicts(&third, new, &TIMESTAMPED).iter().all(|told| told.starts_with("error")));
}

#[test]
fn the_plain_digest_is_githubs() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let body = json!({"url": sink.url(), "signature": "plain"});
    let made = server.post("/v1/webhook-endpoints", body).expect(201);
    server.book("A");
    eventually("it came", || sink.of("book.created").len() == 1);
    let got = sink.of("book.created").remove(0);
    let secret = made["secret"].as_str().unwrap();
    assert_eq!(verdicts(&got, secret, &["github", "standardwebhooks", "svix"]), ["ok"; 6]);
}
