//! Deliveries while the wall clock is set: retries keep their schedule, an endpoint that fails for
//! days is disabled after warnings, and old events are removed.

use crate::clock::Clock;
use crate::deliveries::{attempts, endpoint, figure, wait_for};
use crate::harness::{Start, eventually};
use crate::sink::{Manner, Sink};
use serde_json::json;

const HOUR: i64 = 3600;

/// Without a rate limit, because tests poll often.
fn bookshop() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off")
}

#[test]
fn a_clock_jump_neither_delays_nor_repeats_a_retry() {
    let clock = Clock::new();
    let server = clock.of(bookshop()).go();
    let sink = Sink::start();
    let with = json!({"enabled_events": ["book.*"], "retry_schedule": [2, 2, 7200, 7200]});
    let id = endpoint(&server, &sink, with);
    eventually("the ping came", || !sink.received().is_empty());
    sink.will(Manner::status(500));
    server.book("A");
    wait_for(&server, &id, &["pending"]);
    clock.set(-HOUR);
    eventually("tried as scheduled", || sink.of("book.created").len() >= 2);
    clock.set(-48 * HOUR);
    eventually("and again", || sink.of("book.created").len() == 3);
    let got = sink.of("book.created");
    let signed = |n: usize| got[n].header("webhook-timestamp").unwrap().parse::<i64>().unwrap();
    assert!(signed(0) - signed(2) > 47 * HOUR, "signed by the clock as it is set");
    // After a jump ahead, a due delivery is tried once.
    let delivery = wait_for(&server, &id, &["pending"]).remove(0);
    eventually("the third is written down", || attempts(&server, &delivery).len() == 3);
    clock.set(24 * HOUR);
    eventually("tried once more", || attempts(&server, &delivery).len() == 4);
    let last = wait_for(&server, &id, &["pending"]).remove(0);
    assert_eq!(last["attempts"], 4, "{last}");
    sink.will(Manner::status(200));
    clock.set(48 * HOUR);
    wait_for(&server, &id, &["succeeded"]);
    assert_eq!(sink.of("book.created").len(), 5);
}

#[test]
fn the_age_of_the_oldest_waiting_delivery_grows_in_the_metrics() {
    let clock = Clock::new();
    let server = clock.of(bookshop()).go();
    let sink = Sink::start();
    let with = json!({"enabled_events": ["book.*"], "retry_schedule": [7200]});
    let id = endpoint(&server, &sink, with);
    eventually("the ping came", || !sink.received().is_empty());
    sink.will(Manner::status(500));
    server.book("A");
    wait_for(&server, &id, &["pending"]);
    clock.set(HOUR);
    let own = "restive_webhook_queue_age_seconds";
    let age = HOUR as f64;
    eventually("its endpoint's queue is as old", || figure(&server, own) >= Some(age));
    let oldest = "restive_webhook_oldest_pending_seconds";
    assert!(figure(&server, oldest) >= Some(age));
    assert_eq!(sink.of("book.created").len(), 1, "it is not due yet");
    sink.will(Manner::status(200));
    clock.set(3 * HOUR);
    wait_for(&server, &id, &["succeeded"]);
    eventually("nothing waits any more", || figure(&server, oldest) == Some(0.0));
}

#[test]
fn an_endpoint_that_fails_for_five_days_causes_three_warnings_and_is_disabled() {
    let clock = Clock::new();
    let server = clock.of(bookshop()).go();
    let [failing, owner] = [Sink::start(), Sink::start()];
    failing.will(Manner::status(500));
    let with = json!({"enabled_events": ["book.*"], "retry_schedule": []});
    let id = endpoint(&server, &failing, with);
    let kinds = json!(["webhook_endpoint.failing", "webhook_endpoint.disabled"]);
    endpoint(&server, &owner, json!({"enabled_events": kinds}));
    let path = format!("/v1/webhook-endpoints/{id}");
    for n in 0..5 {
        server.book(&n.to_string());
    }
    wait_for(&server, &id, &["failed"; 5]);
    eventually("it is said to fail", || server.get(&path).expect(200)["failing_since"].is_string());
    let since = server.get(&path).expect(200)["failing_since"].clone();
    // Restarts in between lose no warnings.
    let mut server = server;
    for (warning, hours) in [(0, 29), (0, 58), (1, 61), (2, 85), (3, 109)] {
        let (_, folder) = server.stop();
        clock.set(hours * HOUR);
        server = clock.of(bookshop()).on(&folder).go();
        let before = failing.received().len();
        server.book("later");
        eventually("it fails again", || failing.received().len() > before);
        eventually("its owner is warned", || owner.of("webhook_endpoint.failing").len() == warning);
        let told = server.get(&path).expect(200);
        assert_eq!((&told["status"], &told["failing_since"]), (&json!("enabled"), &since));
        let reason = told["disabled_reason"].as_str().unwrap_or_default();
        assert_eq!(reason.contains(&format!("warning {warning} of 3")), warning > 0, "{reason}");
    }
    assert_eq!(owner.of("webhook_endpoint.disabled").len(), 0);
    clock.set(121 * HOUR);
    server.book("too late");
    eventually("its owner is told", || owner.of("webhook_endpoint.disabled").len() == 1);
    let told = server.get(&path).expect(200);
    assert_eq!((&told["status"], &told["failing_since"]), (&json!("disabled"), &since));
    assert!(told["disabled_reason"].as_str().unwrap().starts_with("failing since "), "{told}");
    let shown = owner.of("webhook_endpoint.disabled")[0].event();
    assert_eq!(shown["data"]["object"]["id"], json!(id));
    assert_eq!(shown["data"]["object"]["status"], "disabled");
    let sent = failing.received().len();
    server.book("after the end");
    let first = |server: &crate::harness::Server| {
        server.get(&format!("/v1/deliveries?endpoint={id}")).column("status")[0].clone()
    };
    eventually("what follows is skipped", || first(&server) == "skipped");
    assert_eq!(failing.received().len(), sent);
}

#[test]
fn expired_events_are_removed_with_their_deliveries() {
    let schema = "[events]\nretention = '7d'\n[webhooks]\ndevelopment = true\n\
                  [collections.books.fields]\ntitle = 'string'";
    let clock = Clock::new();
    let server = clock.of(Start::schema(schema)).go();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"enabled_events": ["book.*"]}));
    let book = server.make("/v1/books", json!({"title": "old"}));
    let old = wait_for(&server, &id, &["succeeded"]).remove(0);
    let event = format!("/v1/events/{}", old["event"].as_str().unwrap());
    let delivery = format!("/v1/deliveries/{}", old["id"].as_str().unwrap());
    let (_, folder) = server.stop();
    // Just before its retention ends, the event still exists.
    clock.set(7 * 24 * HOUR - 600);
    let server = clock.of(Start::schema(schema)).on(&folder).go();
    server.make("/v1/books", json!({"title": "young"}));
    wait_for(&server, &id, &["succeeded", "succeeded"]);
    server.get(&event).expect(200);
    let (_, folder) = server.stop();
    clock.set(7 * 24 * HOUR + 600);
    let server = clock.of(Start::schema(schema)).on(&folder).go();
    eventually("the old event is gone", || server.get(&event).status == 404);
    server.get(&delivery).error(404, "not_found");
    let left = server.get("/v1/events?type=book.*").column("type");
    assert_eq!(left, ["book.created"], "the young one is kept");
    assert_eq!(server.get("/v1/deliveries").column("endpoint").len(), 1);
    assert_eq!(server.get(&format!("/v1/books/{book}")).expect(200)["title"], "old");
    // Deliveries continue after the removed events.
    server.make("/v1/books", json!({"title": "new"}));
    eventually("the newest is delivered", || sink.of("book.created").len() == 3);
}

#[test]
fn undelivered_events_are_kept_longer_and_their_removal_is_reported() {
    let schema = "[events]\nretention = '7d'\nmax_backlog = '1d'\n[webhooks]\n\
                  development = true\n[collections.books.fields]\ntitle = 'string'";
    let clock = Clock::new();
    let server = clock.of(Start::schema(schema)).go();
    let (sink, owner) = (Sink::start(), Sink::start());
    sink.will(Manner::status(500));
    let more = json!({"enabled_events": ["book.*"], "retry_schedule": [604800, 604800]});
    let id = endpoint(&server, &sink, more);
    let kinds = json!(["webhook_endpoint.events_skipped"]);
    endpoint(&server, &owner, json!({ "enabled_events": kinds }));
    server.make("/v1/books", json!({"title": "old"}));
    let old = wait_for(&server, &id, &["pending"]).remove(0);
    let event = format!("/v1/events/{}", old["event"].as_str().unwrap());
    let delivery = format!("/v1/deliveries/{}", old["id"].as_str().unwrap());
    let (_, folder) = server.stop();
    // Beyond its retention, but not delivered yet.
    clock.set(7 * 24 * HOUR + 600);
    let server = clock.of(Start::schema(schema)).on(&folder).go();
    server.make("/v1/books", json!({"title": "young"}));
    eventually("the young one was tried", || sink.of("book.created").len() >= 2);
    server.get(&event).expect(200);
    server.get(&delivery).expect(200);
    let (_, folder) = server.stop();
    clock.set(8 * 24 * HOUR + 600);
    let server = clock.of(Start::schema(schema)).on(&folder).go();
    eventually("the old event is gone", || server.get(&event).status == 404);
    eventually("its owner is told", || owner.of("webhook_endpoint.events_skipped").len() == 1);
    let told = owner.of("webhook_endpoint.events_skipped").remove(0);
    assert_eq!(told.event()["data"]["object"]["id"], json!(id));
    assert!(told.event()["data"]["object"]["skipped_until"].is_string());
    let skipped = server.get(&format!("/v1/deliveries?endpoint={id}&status=skipped"));
    let skipped = skipped.expect(200)["data"][0].clone();
    assert_eq!(skipped["event"], json!(null));
    let attempts = format!("/v1/deliveries/{}/attempts", skipped["id"].as_str().unwrap());
    assert_eq!(server.get(&attempts).expect(200)["data"][0]["error"], "expired");
    let retry = format!("/v1/deliveries/{}/retry", skipped["id"].as_str().unwrap());
    let refused = server.post(&retry, json!({}));
    assert!(refused.text.contains("removed from the log"), "{}", refused.text);
    refused.error(409, "invalid_state");
}
