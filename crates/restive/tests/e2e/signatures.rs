//! Third-party libraries verify the signatures, also during a rotation of the secret.

use crate::clock::Clock;
use crate::harness::{Server, Start, eventually};
use crate::receivers::{Case, Language};
use crate::sink::{Received, Sink};
use serde_json::json;

/// Whether each library of each language accepts a request with this secret.
fn verdicts(request: &Received, secret: &str, families: &[&str]) -> Vec<String> {
    let pairs: Vec<_> = families.iter().map(|family| (*family, secret)).collect();
    judged(request, &pairs)
}

/// The same for pairs of a library and a secret, grouped by language.
fn judged(request: &Received, pairs: &[(&str, &str)]) -> Vec<String> {
    let headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let cases: Vec<Case<'_>> = pairs
        .iter()
        .map(|(family, secret)| Case { family, secret, headers: &headers, body: &request.body })
        .collect();
    Language::ALL.iter().flat_map(|language| language.verify(&cases)).collect()
}

const TIMESTAMPED: [&str; 3] = ["stripe", "standardwebhooks", "svix"];

#[test]
fn standard_webhooks_libraries_accept_every_delivery_even_during_rotation() {
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
    // Without an overlap the old secret ends at once.
    server.post(&path, json!({"overlap": 0})).expect(200);
    server.book("C");
    eventually("it came", || sink.of("book.created").len() == 2);
    let third = sink.of("book.created").remove(1);
    assert!(verdicts(&third, new, &TIMESTAMPED).iter().all(|told| told.starts_with("error")));
}

#[test]
fn every_secret_signs_until_its_overlap_ends_even_after_several_rotations() {
    let clock = Clock::new();
    let server = clock.of(Start::bookshop()).go();
    let sink = Sink::start();
    let made = server.post("/v1/webhook-endpoints", json!({"url": sink.url()})).expect(201);
    let path = format!("/v1/webhook-endpoints/{}", made["id"].as_str().unwrap());
    let rotate =
        |overlap: u32| server.post(&format!("{path}/rotate-secret"), json!({"overlap": overlap}));
    let ping = || {
        server.post(&format!("{path}/ping"), json!({})).expect(200);
        sink.of("ping").pop().unwrap()
    };
    let count = |ping: &Received| {
        let standard = ping.header("webhook-signature").unwrap().split(' ').count();
        let timestamped = ping.header("restive-signature").unwrap().matches(",v1=").count();
        assert_eq!(standard, timestamped, "{ping:?}");
        standard
    };
    let mut secrets = vec![made["secret"].as_str().unwrap().to_owned()];
    // The last rotated secret is not the last to end.
    for (round, hours) in [20, 2, 10, 5].into_iter().enumerate() {
        let rotated = rotate(hours * 3600).expect(200);
        secrets.push(rotated["secret"].as_str().unwrap().to_owned());
        assert_eq!(count(&ping()), round + 2);
    }
    let each = |family| secrets.iter().map(move |secret| (family, secret.as_str()));
    let pairs: Vec<_> = TIMESTAMPED.into_iter().flat_map(each).collect();
    assert_eq!(judged(&ping(), &pairs), ["ok"; 30]);
    let error = rotate(3600).error(409, "too_many_records");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("5 secrets") && message.contains("overlap"), "{message}");
    assert!(!message.contains("whsec_"));
    assert_eq!(count(&ping()), 5, "what was refused changed nothing");
    // The two hours of the second secret are over.
    clock.set(3 * 3600);
    let later = ping();
    assert_eq!(count(&later), 4);
    let pairs: Vec<_> = each("stripe").collect();
    let taken: Vec<bool> = judged(&later, &pairs).iter().map(|told| told == "ok").collect();
    assert_eq!(taken, [true, false, true, true, true].repeat(2));
    rotate(3600).expect(200);
    assert_eq!(count(&ping()), 5, "there is room again");
    // In an emergency all older secrets end at once.
    rotate(0).expect(200);
    assert_eq!(count(&ping()), 1);
}

#[test]
fn the_plain_signature_matches_the_format_of_github() {
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
