//! The wall clock jumps while the server runs. Durations (deliveries, streams, timers, quotas,
//! idempotency keys) follow monotonic time; dates (the expiry of keys) follow the wall clock.

use crate::auth::create;
use crate::clock::Clock;
use crate::deliveries::endpoint;
use crate::harness::{Answer, Server, Start, eventually};
use crate::live_client::Events;
use crate::sink::{Manner, Sink};
use serde_json::json;
use std::time::{Duration, Instant};

const HOUR: i64 = 3600;
/// Jumps back and ahead, shorter and longer than the day for which idempotency keys are stored.
const JUMPS: [i64; 4] = [-48 * HOUR, -HOUR, HOUR, 48 * HOUR];

fn post(server: &Server, key: &str) -> Answer {
    let ask = server.ask("POST", "/v1/books").header("idempotency-key", key);
    ask.json(&json!({"title": key, "author": "a"})).send()
}

#[test]
fn deliveries_streams_and_timers_continue_after_a_clock_jump() {
    for jump in JUMPS {
        let clock = Clock::new();
        let server = clock.of(Start::bookshop().arg("--rate-limit").arg("off")).go();
        let sink = Sink::start();
        let with = json!({"enabled_events": ["book.*"], "retry_schedule": [2, 2, 2]});
        endpoint(&server, &sink, with);
        eventually("the ping came", || !sink.received().is_empty());
        let mut stream = Events::open(&server, "/api/events?types=book.*");
        let confirmed = || {
            let card = json!({"amount": 500, "currency": "eur", "payment_method": "pm_card_visa"});
            let intent = server.make("/v1/payment-intents", card);
            let path = format!("/v1/payment-intents/{intent}");
            server.post(&format!("{path}/confirm"), json!({})).expect(200);
            path
        };
        sink.will(Manner::status(500));
        let before = server.book("before");
        eventually("a delivery failed", || sink.of("book.created").len() == 1);
        let waiting = confirmed();
        clock.set(jump);
        sink.will(Manner::status(200));
        let after = server.book("after");
        let later = confirmed();
        let began = Instant::now();
        for timer in [waiting, later] {
            let done = || server.get(&timer).expect(200)["status"] == "succeeded";
            eventually("the timer fires", done);
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{jump}: timers do not wait for the clock"
        );
        for book in [&before, &after] {
            let block = stream.named("book.created");
            assert_eq!(block.json()["data"]["object"]["id"], **book, "{jump}");
        }
        eventually("both are delivered", || {
            let taken = sink.of("book.created");
            let of = |book: &str| {
                taken.iter().filter(|r| r.event()["data"]["object"]["id"] == book).count()
            };
            of(&before) == 2 && of(&after) == 1
        });
    }
}

#[test]
fn a_clock_jump_opens_no_new_rate_limit_window() {
    for jump in JUMPS {
        let clock = Clock::new();
        let server = clock.of(Start::bookshop().arg("--rate-limit").arg("3/24h")).go();
        for _ in 0..3 {
            server.get("/v1/books").expect(200);
        }
        server.get("/v1/books").error(429, "rate_limited");
        clock.set(jump);
        for _ in 0..3 {
            let refused = server.get("/v1/books");
            let wait: i64 = refused.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=24 * HOUR).contains(&wait), "{jump}: {wait}");
            refused.error(429, "rate_limited");
        }
    }
}

#[test]
fn a_clock_jump_removes_no_idempotency_key() {
    for jump in JUMPS {
        let clock = Clock::new();
        let server = clock.of(Start::bookshop()).go();
        let first = post(&server, "k");
        assert_eq!(first.status, 201);
        clock.set(jump);
        // A write triggers the removal of expired keys.
        server.book("in between");
        let again = post(&server, "k");
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{jump}");
        assert_eq!((again.status, again.id()), (201, first.id()), "{jump}");
        // A key that was used after the jump is still known when the clock is right again.
        let second = post(&server, "l");
        clock.set(0);
        server.book("right again");
        assert_eq!(post(&server, "l").id(), second.id(), "{jump}");
        assert_eq!(server.get("/v1/books?page=1").expect(200)["pagination"]["total"], 4);
    }
}

#[test]
fn a_key_expires_by_the_current_wall_clock() {
    let clock = Clock::new();
    let server = clock.of(Start::bookshop()).go();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let ends = model::Timestamp(i64::try_from(now.as_millis()).unwrap() + 24 * HOUR * 1000);
    let (_, key) = create(&server, &["--expires-at", &ends.to_iso()]);
    for (jump, status) in [(0, 200), (48 * HOUR, 401), (-48 * HOUR, 200), (HOUR, 200)] {
        clock.set(jump);
        let answer = server.ask("GET", "/v1/books").key(&key).send();
        assert_eq!(answer.status, status, "{jump}: {}", answer.text);
    }
}
