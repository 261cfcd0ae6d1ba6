//! Concurrency, rate and order of the deliveries to one endpoint.

use crate::deliveries::{attempts, endpoint, figure, wait_for};
use crate::harness::{Server, Start, eventually};
use crate::sink::{Manner, Sink};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn a_replay_respects_the_limits_and_responses_of_the_endpoint() {
    let server = Server::bookshop();
    let sink = Sink::start();
    for n in 0..6 {
        server.book(&n.to_string());
    }
    let id = endpoint(&server, &sink, json!({"max_in_flight": 1, "timeout": 5}));
    sink.will(Manner::Silence);
    server.post("/v1/replays", json!({"endpoint": id})).expect(201);
    let mut most = 0.0_f64;
    eventually("the first attempt is given up", || {
        most = most.max(figure(&server, "restive_webhook_in_flight").unwrap_or(0.0));
        figure(&server, "restive_webhook_failed_attempts_total") > Some(0.0)
    });
    assert_eq!(most, 1.0, "one at a time, whoever sends it");
    // 410 disables the endpoint even if it is the response to a replay.
    sink.will(Manner::status(410));
    eventually("it is disabled", || {
        let endpoint = server.get(&format!("/v1/webhook-endpoints/{id}")).expect(200);
        endpoint["status"] == "disabled"
    });
}

/// Events that a hanging endpoint received before it hung, and events that wait for it.
const ANSWERED: usize = 10;

/// An endpoint with a concurrency of three that used all of it and then stops responding.
fn hanging(server: &Server, sink: &Sink, timeout: u32) -> String {
    let few = json!({"max_in_flight": 3, "timeout": timeout, "retry_schedule": []});
    let id = endpoint(server, sink, few);
    (0..ANSWERED).for_each(|n| drop(server.book(&n.to_string())));
    wait_for(server, &id, &["succeeded"; ANSWERED]);
    sink.will(Manner::Silence);
    (0..ANSWERED).for_each(|n| drop(server.book(&n.to_string())));
    id
}

#[test]
fn concurrent_deliveries_stay_within_the_limit_of_an_endpoint_and_leave_a_slot_for_pings() {
    let server = Server::bookshop();
    let sink = Sink::start();
    hanging(&server, &sink, 5);
    let (mut most, mut age, mut oldest) = (0.0_f64, 0.0_f64, 0.0_f64);
    let own = "restive_webhook_queue_age_seconds";
    eventually("the first attempt is given up", || {
        most = most.max(figure(&server, "restive_webhook_in_flight").unwrap_or(0.0));
        age = age.max(figure(&server, own).unwrap_or(0.0));
        oldest = oldest.max(figure(&server, "restive_webhook_oldest_pending_seconds").unwrap());
        figure(&server, "restive_webhook_failed_attempts_total") > Some(0.0)
    });
    assert_eq!(most, 2.0, "one place is kept for who waits");
    // Both are written with milliseconds.
    assert!(age > 1.0 && oldest > age - 0.001, "{age} {oldest}");
}

#[test]
fn a_ping_gets_through_while_everything_else_hangs() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = hanging(&server, &sink, 30);
    eventually("the log has its places", || sink.of("book.created").len() == ANSWERED + 2);
    sink.will(Manner::status(200));
    let began = Instant::now();
    let ping = server.post(&format!("/v1/webhook-endpoints/{id}/ping"), json!({})).expect(200);
    assert_eq!(ping["status"], "succeeded", "{ping}");
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for no deadline");
}

#[test]
fn deliveries_stay_within_the_rate_limit_of_an_endpoint() {
    const RATE: usize = 5;
    const EVENTS: usize = 20;
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let [slow, quick] = [Sink::start(), Sink::start()];
    let books = json!({"enabled_events": ["book.*"], "rate_limit": RATE, "max_in_flight": 50});
    let id = endpoint(&server, &slow, books);
    endpoint(&server, &quick, json!({"enabled_events": ["book.*"]}));
    for n in 0..EVENTS {
        server.book(&n.to_string());
    }
    eventually("the other is not held up", || quick.of("book.created").len() == EVENTS);
    eventually("and this one gets all", || slow.of("book.created").len() == EVENTS);
    let times: Vec<_> = slow.of("book.created").iter().map(|request| request.at).collect();
    // The events of one second may arrive together; on a busy machine some arrive late.
    for pair in times.windows(2 * RATE + 1) {
        let passed = pair[2 * RATE] - pair[0];
        assert!(passed > Duration::from_millis(600), "{} within {passed:?}", pair.len());
    }
    let all = times[EVENTS - 1] - times[0];
    assert!(all > Duration::from_millis(2_200), "{EVENTS} within {all:?}");
    // A higher rate takes effect at once.
    let path = format!("/v1/webhook-endpoints/{id}");
    server.patch(&path, json!({"rate_limit": 1000})).expect(200);
    for n in 0..EVENTS {
        server.book(&n.to_string());
    }
    eventually("all come", || slow.of("book.created").len() == 2 * EVENTS);
    let times: Vec<_> = slow.of("book.created").iter().map(|request| request.at).collect();
    assert!(times[2 * EVENTS - 1] - times[EVENTS] < all, "faster than before");
}

#[test]
fn a_retry_requested_during_an_attempt_runs_after_it() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"timeout": 5, "retry_schedule": [1, 36_000]}));
    eventually("the ping came", || !sink.received().is_empty());
    sink.will(Manner::status(500));
    server.book("A");
    let delivery = wait_for(&server, &id, &["pending"]).remove(0);
    sink.will(Manner::Silence);
    eventually("the second try is under way", || sink.of("book.created").len() == 2);
    // For the next attempt; the current one may have been given up.
    sink.will(Manner::status(200));
    let retry = format!("/v1/deliveries/{}/retry", delivery["id"].as_str().unwrap());
    server.post(&retry, json!({})).expect(200);
    wait_for(&server, &id, &["succeeded"]);
    let triggers = attempts(&server, &delivery);
    let triggers: Vec<_> = triggers.iter().map(|attempt| &attempt["trigger"]).collect();
    assert_eq!(triggers, ["event", "schedule", "retry"]);
}
