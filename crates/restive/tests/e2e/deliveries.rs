//! Deliveries of events to endpoints: which endpoint gets which event, which responses count as
//! success, and retries.

use crate::harness::{Server, Start, eventually};
use crate::sink::{Manner, Received, Sink};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Creates an endpoint for a sink; returns its id.
pub fn endpoint(server: &Server, sink: &Sink, with: Value) -> String {
    let mut body = json!({"url": sink.url()});
    body.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    server.make("/v1/webhook-endpoints", body)
}

/// Deliveries of an endpoint except its pings, newest first.
fn deliveries(server: &Server, endpoint: &str) -> Vec<Value> {
    let all = server.get(&format!("/v1/deliveries?endpoint={endpoint}")).expect(200);
    let kept = |delivery: &Value| {
        let event = delivery["event"].as_str().unwrap();
        server.get(&format!("/v1/events/{event}")).expect(200)["type"] != "ping"
    };
    all["data"].as_array().unwrap().iter().filter(|d| kept(d)).cloned().collect()
}

pub fn attempts(server: &Server, delivery: &Value) -> Vec<Value> {
    let id = delivery["id"].as_str().unwrap();
    let all = server.get(&format!("/v1/deliveries/{id}/attempts?sort=created_at")).expect(200);
    all["data"].as_array().unwrap().clone()
}

/// Waits until the deliveries of the endpoint have these statuses, newest first.
#[track_caller]
pub fn wait_for(server: &Server, endpoint: &str, statuses: &[&str]) -> Vec<Value> {
    let mut found = Vec::new();
    eventually(&format!("{statuses:?}"), || {
        found = deliveries(server, endpoint);
        found
            .iter()
            .map(|delivery| delivery["status"].as_str().unwrap())
            .eq(statuses.iter().copied())
    });
    found
}

#[test]
fn an_event_is_delivered_to_exactly_the_endpoints_that_enable_it() {
    let server = Server::bookshop();
    let [books, orders, all] = [Sink::start(), Sink::start(), Sink::start()];
    let first = endpoint(&server, &books, json!({"enabled_events": ["book.created"]}));
    endpoint(&server, &orders, json!({"enabled_events": ["order.*"]}));
    endpoint(&server, &all, json!({}));
    let book = server.book("Dune");
    let order = server.make("/v1/orders", json!({"book": book, "quantity": 1}));
    server.post(&format!("/v1/orders/{order}/cancel"), json!({})).expect(200);
    eventually("all have theirs", || {
        all.received().len() == 4 && books.received().len() == 2 && orders.received().len() == 3
    });
    let kinds = |sink: &Sink| {
        let mut kinds: Vec<String> = sink.received().iter().map(|r| r.kind()).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&books), ["book.created", "ping"]);
    assert_eq!(kinds(&orders), ["order.cancelled", "order.created", "ping"]);
    assert_eq!(kinds(&all), ["book.created", "order.cancelled", "order.created", "ping"]);
    let got = books.of("book.created").remove(0);
    let event = server.get(&format!("/v1/events/{}", got.id())).expect(200);
    assert_eq!(got.event()["data"], event["data"]);
    assert_eq!(got.event()["pending_webhooks"], 2, "two endpoints were to get it");
    assert_eq!(got.header("webhook-id"), event["id"].as_str());
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert!(got.header("user-agent").unwrap().starts_with("restive/"));
    assert_eq!(got.path, "/hook");
    let delivery = wait_for(&server, &first, &["succeeded"]).remove(0);
    assert_eq!((&delivery["event"], &delivery["attempts"]), (&event["id"], &json!(1)));
    eventually("nothing is pending", || {
        let path = format!("/v1/events/{}", got.id());
        server.get(&path).expect(200)["pending_webhooks"] == 0
    });
    eventually("every outcome is written down", || {
        server.get("/v1/events?delivery=succeeded").column("type").len() == 6
    });
}

#[test]
fn an_attempt_records_the_response_and_its_duration() {
    let server = Server::bookshop();
    let sink = Sink::start();
    sink.will(Manner::Answer(201, "X-Answer: 42\r\n", "thanks".to_owned()));
    let id = endpoint(&server, &sink, json!({}));
    server.book("A");
    let delivery = wait_for(&server, &id, &["succeeded"]).remove(0);
    let attempt = attempts(&server, &delivery).remove(0);
    assert_eq!(attempt["object"], "attempt");
    assert_eq!((&attempt["status"], &attempt["number"]), (&json!(201), &json!(1)));
    assert_eq!(attempt["response_headers"]["x-answer"], "42");
    assert_eq!(attempt["response_body"], "thanks");
    assert_eq!(attempt["remote_address"], sink.address.ip().to_string());
    assert_eq!(attempt["delivery"], delivery["id"]);
    assert_eq!(attempt["trigger"], "event");
    assert_eq!((&attempt["error"], &attempt["next_attempt_at"]), (&Value::Null, &Value::Null));
    assert!(attempt["latency"]["total_ms"].as_f64().unwrap() > 0.0, "{attempt}");
    assert!(attempt["latency"]["first_byte_ms"].as_f64().unwrap() > 0.0, "{attempt}");
    for stage in ["dns_ms", "connect_ms", "tls_ms"] {
        assert!(attempt["latency"].get(stage).is_some(), "{attempt}");
    }
    let one = delivery["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/deliveries/{one}")).expect(200), delivery);
    let event = delivery["event"].as_str().unwrap();
    let both = || server.get("/v1/deliveries?status=succeeded").column("id").len() == 2;
    eventually("the ping is written down, too", both);
    for (query, count) in [
        (format!("event={event}"), 1),
        (format!("endpoint={id}&status=succeeded&attempts=1"), 2),
        ("status=failed".to_owned(), 0),
        ("min_created_at=2020-01-01".to_owned(), 2),
        ("next_attempt_at=null".to_owned(), 2),
        ("endpoint=we_none".to_owned(), 0),
    ] {
        let found = server.get(&format!("/v1/deliveries?{query}"));
        assert_eq!(found.column("id").len(), count, "{query}");
    }
}

#[test]
fn a_filter_by_an_impossible_value_is_refused() {
    let server = Server::bookshop();
    let deliveries = "pending, succeeded, failed, skipped";
    for (list, param, values) in [
        ("deliveries", "status", deliveries),
        ("events", "delivery", deliveries),
        ("replays", "status", "pending, running, succeeded, failed, cancelled"),
        ("webhook-endpoints", "status", "enabled, disabled"),
    ] {
        for bad in ["nonsense", "null", "", "failed,nonsense"] {
            let path = format!("/v1/{list}?{param}={bad}");
            let error = server.get(&path).error(400, "invalid_parameter");
            assert_eq!(error["param"], param, "{path}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(values), "{path}: {message}");
        }
        let all = values.replace(' ', "");
        assert_eq!(server.get(&format!("/v1/{list}?{param}={all}")).column("id").len(), 0);
    }
}

#[test]
fn only_2xx_is_success_and_redirects_are_not_followed() {
    let server = Server::bookshop();
    let [sink, elsewhere] = [Sink::start(), Sink::start()];
    let id = endpoint(&server, &sink, json!({"retry_schedule": [1]}));
    eventually("the ping came", || !sink.received().is_empty());
    let location = format!("Location: {}\r\n", elsewhere.url());
    sink.will(Manner::Answer(302, Box::leak(location.into_boxed_str()), String::new()));
    server.book("A");
    let delivery = wait_for(&server, &id, &["pending"]).remove(0);
    let attempt = attempts(&server, &delivery).remove(0);
    assert_eq!((&attempt["status"], &attempt["error"]), (&json!(302), &json!("redirect")));
    assert_eq!(attempt["next_attempt_at"], delivery["next_attempt_at"]);
    assert!(attempt["next_attempt_reason"].is_string(), "{attempt}");
    let failed = wait_for(&server, &id, &["failed"]).remove(0);
    assert_eq!((&failed["attempts"], &failed["next_attempt_at"]), (&json!(2), &Value::Null));
    let all = attempts(&server, &failed);
    assert_eq!((&all[1]["number"], &all[1]["trigger"]), (&json!(2), &json!("schedule")));
    assert!(elsewhere.received().is_empty());
    let got = sink.of("book.created");
    assert_eq!(got[0].id(), got[1].id(), "the id stays");
    assert_ne!(got[0].header("webhook-signature"), got[1].header("webhook-signature"));
    assert_eq!(server.get("/v1/events?delivery=failed").column("id"), [got[0].id()]);
    // A failed delivery can be sent again manually.
    sink.will(Manner::status(204));
    let path = format!("/v1/deliveries/{}/retry", failed["id"].as_str().unwrap());
    assert_eq!(server.post(&path, json!({})).expect(200)["status"], "pending");
    let done = wait_for(&server, &id, &["succeeded"]).remove(0);
    assert_eq!(attempts(&server, &done)[2]["trigger"], "retry");
}

#[test]
fn a_manual_retry_honours_idempotency_key_and_if_match() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({}));
    server.book("A");
    let delivery = wait_for(&server, &id, &["succeeded"]).remove(0);
    let path = format!("/v1/deliveries/{}/retry", delivery["id"].as_str().unwrap());
    let stale = server.ask("POST", &path).header("if-match", "\"1-1\"").json(&json!({})).send();
    stale.error(412, "precondition_failed");
    let ask = || server.ask("POST", &path).header("idempotency-key", "r1").json(&json!({})).send();
    let first = ask();
    assert_eq!((first.status, &first.json["status"]), (200, &json!("pending")), "{}", first.text);
    let count = || attempts(&server, &delivery).len();
    eventually("sent again", || count() == 2);
    let again = ask();
    assert_eq!((&again.text, again.header("idempotent-replayed")), (&first.text, Some("true")));
    // A request after the repetition would be the third attempt.
    server.post(&path, json!({})).expect(200);
    eventually("sent once more", || count() == 3);
    assert_eq!(sink.of("book.created").len(), 3);
}

#[test]
fn a_list_of_deliveries_has_changed_once_a_retry_was_requested() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({}));
    server.book("A");
    let delivery = wait_for(&server, &id, &["succeeded"]).remove(0);
    sink.will(Manner::Silence);
    let (path, mut tag) = ("/v1/deliveries?status=pending", String::new());
    eventually("everything is settled", || {
        let before = std::mem::replace(&mut tag, server.get(path).header("etag").unwrap().into());
        before == tag
    });
    let retry = format!("/v1/deliveries/{}/retry", delivery["id"].as_str().unwrap());
    server.post(&retry, json!({})).expect(200);
    let after = server.ask("GET", path).header("if-none-match", &tag).send();
    assert_eq!(after.status, 200, "the delivery is pending now");
    assert_eq!(after.json["data"][0]["id"], delivery["id"]);
}

#[test]
fn a_retry_is_at_most_a_tenth_late() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"retry_schedule": [2, 2]}));
    eventually("the ping came", || !sink.received().is_empty());
    sink.will(Manner::status(500));
    server.book("A");
    eventually("the first attempt", || sink.of("book.created").len() == 1);
    let first = Instant::now();
    sink.will(Manner::status(200));
    eventually("the second", || sink.of("book.created").len() == 2);
    let waited = first.elapsed();
    assert!(waited > Duration::from_millis(1900), "{waited:?}");
    let delivery = wait_for(&server, &id, &["succeeded"]).remove(0);
    let all = attempts(&server, &delivery);
    let instant = |text: &Value| model_millis(text.as_str().unwrap());
    // An attempt ends when it is updated. On a busy machine that is much later than its beginning.
    let planned = instant(&all[0]["next_attempt_at"]) - instant(&all[0]["updated_at"]);
    assert!((2000..=2210).contains(&planned), "jitter only adds, at most a tenth: {planned}");
}

/// Milliseconds of the day of `…THH:MM:SS.mmmZ`.
fn model_millis(text: &str) -> i64 {
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().unwrap();
    ((number(11, 13) * 60 + number(14, 16)) * 60 + number(17, 19)) * 1000 + number(20, 23)
}

#[test]
fn retry_after_pauses_the_endpoint() {
    const PAUSE: Duration = Duration::from_secs(6);
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"retry_schedule": [1, 60]}));
    eventually("the ping came", || !sink.received().is_empty());
    sink.will(Manner::Answer(429, "Retry-After: 6\r\n", String::new()));
    server.book("A");
    eventually("the first attempt", || sink.of("book.created").len() == 1);
    let first = sink.of("book.created")[0].at;
    wait_for(&server, &id, &["pending"]);
    sink.will(Manner::status(200));
    server.book("B");
    let made = first.elapsed();
    assert!(made < PAUSE, "it is too late to tell whether B waits: {made:?}");
    eventually("both are taken", || sink.of("book.created").len() == 3);
    // A retry of A would be due after a second and B at once; both wait until the pause ends.
    let titles = ["A", "B"].map(|title| {
        let later = sink.of("book.created").into_iter().skip(1);
        let all: Vec<_> =
            later.filter(|got| got.event()["data"]["object"]["title"] == title).collect();
        assert_eq!(all.len(), 1, "{title} comes once more");
        all[0].at - first
    });
    // The server measures from the arrival of the response, which is after the request.
    assert!(titles.iter().all(|waited| *waited > PAUSE - Duration::from_millis(100)), "{titles:?}");
    wait_for(&server, &id, &["succeeded", "succeeded"]);
}

#[test]
fn an_endpoint_can_reject_a_message_or_disable_itself() {
    let server = Server::bookshop();
    for (manner, status) in [
        (Manner::status(410), "disabled"),
        (Manner::Answer(500, "webhook-delivery: disable\r\n", String::new()), "disabled"),
        (Manner::Answer(400, "webhook-delivery: abort-message\r\n", String::new()), "enabled"),
    ] {
        let sink = Sink::start();
        let id = endpoint(&server, &sink, json!({"enabled_events": ["message.*"]}));
        eventually("the ping came", || !sink.received().is_empty());
        sink.will(manner);
        server.post("/v1/messages", json!({"from": "a", "text": "b"})).expect(201);
        wait_for(&server, &id, &["failed"]);
        let path = format!("/v1/webhook-endpoints/{id}");
        eventually(status, || server.get(&path).expect(200)["status"] == status);
        if status == "disabled" {
            assert!(server.get(&path).expect(200)["disabled_reason"].is_string());
        }
        server.delete(&path).expect(200);
    }
    let told = server.get("/v1/events?type=webhook_endpoint.disabled").column("type");
    assert_eq!(told.len(), 2);
}

#[test]
fn events_during_a_disabled_endpoint_are_skipped_and_can_be_replayed() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"enabled_events": ["book.*"]}));
    server.post(&format!("/v1/webhook-endpoints/{id}/disable"), json!({})).expect(200);
    for title in ["A", "B", "C"] {
        server.book(title);
    }
    wait_for(&server, &id, &["skipped", "skipped", "skipped"]);
    assert_eq!(server.get("/v1/events?delivery=skipped").column("id").len(), 3);
    server.post(&format!("/v1/webhook-endpoints/{id}/enable"), json!({})).expect(200);
    server.book("D");
    wait_for(&server, &id, &["succeeded", "skipped", "skipped", "skipped"]);
    assert_eq!(sink.of("book.created").len(), 1, "only the fourth came");
    let replay = json!({"endpoint": id, "without_success": true});
    let counted = server.make("/v1/replays", json!({"endpoint": id, "dry_run": true}));
    let done = |replay: &str| {
        let path = format!("/v1/replays/{replay}");
        let mut shown = Value::Null;
        eventually("the replay ends", || {
            shown = server.get(&path).expect(200);
            shown["status"] != "pending" && shown["status"] != "running"
        });
        shown
    };
    assert_eq!(done(&counted)["total"], 4);
    assert_eq!(sink.of("book.created").len(), 1, "a dry run sends nothing");
    let shown = done(&server.make("/v1/replays", replay));
    assert_eq!(shown["status"], "succeeded", "{shown}");
    assert_eq!((&shown["total"], &shown["succeeded"]), (&json!(3), &json!(3)));
    assert_eq!(sink.of("book.created").len(), 4);
    wait_for(&server, &id, &["succeeded"; 4]);
    // An endpoint that was created later can receive them too.
    let late = Sink::start();
    let other = endpoint(&server, &late, json!({"enabled_events": ["order.*"]}));
    let types = json!({"endpoint": other, "types": ["book.*"], "rate_limit": 100});
    done(&server.make("/v1/replays", types));
    assert_eq!(late.of("book.created").len(), 4);
    let (earlier, later) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    for (bad, field) in [
        (json!({}), "endpoint"),
        (json!({"endpoint": "we_none"}), "endpoint"),
        (json!({"endpoint": other, "types": ["bok.*"]}), "types"),
        (json!({"endpoint": other, "since": "2026-02-01"}), "since"),
        (json!({"endpoint": other, "since": later, "until": earlier}), "until"),
        (json!({"endpoint": other, "since": "2126-01-01T00:00:00Z"}), "until"),
    ] {
        let error = server.post("/v1/replays", bad.clone()).error(422, "validation_failed");
        assert_eq!(error["errors"][0]["field"], field, "{bad}");
    }
}

#[test]
fn failures_of_replays_and_manual_retries_never_disable_an_endpoint() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let sink = Sink::start();
    let with = json!({"enabled_events": ["book.*"], "retry_schedule": []});
    let id = endpoint(&server, &sink, with);
    let all = format!("/v1/deliveries?endpoint={id}");
    eventually("the ping is written down", || server.get(&all).column("id").len() == 1);
    let ping = format!("/v1/deliveries/{}", server.get(&all).column("id")[0].as_str().unwrap());
    for n in 0..12 {
        server.book(&n.to_string());
    }
    wait_for(&server, &id, &["succeeded"; 12]);
    // Far more failures than would disable the endpoint, but they do not count.
    sink.will(Manner::status(500));
    let path = format!("/v1/replays/{}", server.make("/v1/replays", json!({"endpoint": id})));
    eventually("the replay ends", || server.get(&path).expect(200)["status"] == "succeeded");
    let shown = server.get(&path).expect(200);
    assert_eq!(
        (&shown["done"], &shown["succeeded"]),
        (&json!(12), &json!(0)),
        "pings are left out"
    );
    let kept = wait_for(&server, &id, &["succeeded"; 12]);
    assert!(kept.iter().all(|one| one["attempts"] == 2), "what has succeeded stays so: {kept:?}");
    for delivery in kept.iter().take(6) {
        let retry = format!("/v1/deliveries/{}/retry", delivery["id"].as_str().unwrap());
        server.post(&retry, json!({})).expect(200);
        eventually("tried by hand", || attempts(&server, delivery).len() == 3);
    }
    server.post(&format!("{ping}/retry"), json!({})).expect(200);
    eventually("the ping is tried again, once", || {
        let shown = server.get(&ping).expect(200);
        shown["status"] == "failed" && shown["attempts"] == 2
    });
    let told = server.get(&format!("/v1/webhook-endpoints/{id}")).expect(200);
    assert_eq!((&told["status"], &told["failing_since"]), (&json!("enabled"), &Value::Null));
    // The endpoint is not slowed down either: a failing endpoint would get single attempts with
    // pauses.
    sink.will(Manner::status(200));
    let before = sink.received().len();
    for n in 0..12 {
        server.book(&n.to_string());
    }
    eventually("all come", || sink.received().len() == before + 12);
}

#[test]
fn a_replay_sends_the_events_between_two_times() {
    let server = Server::bookshop();
    let made = |title: &str| {
        let book = server.post("/v1/books", json!({"title": title, "author": "A"})).expect(201);
        book["created_at"].as_str().unwrap().to_owned()
    };
    let first = made("A");
    let mut second = made("B");
    // Times have milliseconds, so two books may share one.
    let mut before = 1;
    while second == first {
        second = made("B");
        before += 1;
    }
    made("C");
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"enabled_events": ["order.*"]}));
    let total = |more: Value| {
        let mut wish = json!({"endpoint": id, "types": ["book.created"], "dry_run": true});
        wish.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = format!("/v1/replays/{}", server.make("/v1/replays", wish));
        let mut shown = Value::Null;
        eventually("it is counted", || {
            shown = server.get(&path).expect(200);
            shown["status"] == "succeeded"
        });
        shown["total"].as_i64().unwrap()
    };
    let all = total(json!({}));
    assert_eq!(total(json!({"until": second})), before);
    assert_eq!(total(json!({"since": second})), all - before);
    assert_eq!(total(json!({"since": first, "until": second})), before);
}

#[test]
fn an_old_secret_signs_for_a_day_by_default() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({}));
    let path = format!("/v1/webhook-endpoints/{id}");
    let signatures = || {
        server.post(&format!("{path}/ping"), json!({})).expect(200);
        let ping = sink.of("ping").pop().unwrap();
        ping.header("webhook-signature").unwrap().split(' ').count()
    };
    assert_eq!(signatures(), 1);
    for (overlap, expected) in [(json!({}), 2), (json!({"overlap": null}), 3)] {
        server.post(&format!("{path}/rotate-secret"), overlap.clone()).expect(200);
        assert_eq!(signatures(), expected, "{overlap}");
    }
    server.post(&format!("{path}/rotate-secret"), json!({"overlap": 0})).expect(200);
    assert_eq!(signatures(), 1);
}

#[test]
fn a_slow_replay_shows_its_progress_and_can_be_cancelled() {
    let server = Server::bookshop();
    for n in 0..40 {
        server.book(&n.to_string());
    }
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({}));
    let replay = json!({"endpoint": id, "types": ["book.*"], "rate_limit": 5});
    let path = format!("/v1/replays/{}", server.make("/v1/replays", replay));
    eventually("some are done", || {
        let shown = server.get(&path).expect(200);
        shown["total"] == 40 && shown["done"].as_i64().unwrap_or(0) > 0
    });
    let cancelled = server.post(&format!("{path}/cancel"), json!({})).expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    let sent = sink.of("book.created").len();
    assert!(sent < 40, "{sent}");
    nothing_more(&sink, sent, Duration::from_secs(2));
    // New events are still delivered: only the replay was cancelled.
    server.book("after");
    eventually("the next event comes", || {
        let title = |got: &Received| got.event()["data"]["object"]["title"] == "after";
        sink.of("book.created").iter().any(title)
    });
    let after = sink.of("book.created").len();
    assert!(after <= sent + 2, "{sent} were sent before the cancel, {after} in all");
    let shown = server.get(&path).expect(200);
    assert_eq!(shown["status"], "cancelled");
    assert!(shown["done"].as_u64().unwrap() < 40, "{shown}");
    server.post(&format!("{path}/cancel"), json!({})).error(409, "invalid_state");
}

/// A cancelled replay sends no more than the events in progress. `time` is long enough for several
/// events.
#[track_caller]
pub fn nothing_more(sink: &Sink, sent: usize, time: Duration) {
    std::thread::sleep(time); // waits for: the moments at which it would have sent the next ones
    let now = sink.of("book.created").len();
    assert!(now <= sent + 1, "{sent} were sent before the cancel, {now} a while later");
}

#[test]
fn a_ping_is_sent_at_creation_and_on_request_and_returns_its_result() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"enabled_events": ["order.*"]}));
    let all = format!("/v1/deliveries?endpoint={id}");
    // The connection is free for the next ping once the response is read.
    eventually("the first ping", || server.get(&all).column("status") == ["succeeded"]);
    assert_eq!(sink.of("ping").len(), 1);
    let path = format!("/v1/webhook-endpoints/{id}/ping");
    let told = server.post(&path, json!({})).expect(200);
    assert_eq!((&told["status"], &told["attempt"]["status"]), (&json!("succeeded"), &json!(200)));
    assert_eq!(told["endpoint"], json!(id));
    let pings = sink.of("ping");
    assert_eq!(pings.len(), 2);
    assert_eq!(pings[0].connection, pings[1].connection, "connections are kept");
    sink.will(Manner::status(500));
    let told = server.post(&path, json!({})).expect(200);
    assert_eq!(told["attempt"]["status"], 500);
    assert_eq!(
        server.get(&format!("/v1/webhook-endpoints/{id}")).expect(200)["failing_since"],
        Value::Null
    );
}

#[test]
fn the_response_of_a_ping_matches_the_openapi_document() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({}));
    let path = format!("/v1/webhook-endpoints/{id}/ping");
    let document = server.get("/openapi.json").expect(200);
    let described = "/paths/~1v1~1webhook-endpoints~1{webhook_endpoint_id}~1ping/post\
                     /responses/200/content/application~1json/schema";
    let mut schema = document.pointer(described).unwrap().clone();
    let component = schema["$ref"].as_str().unwrap().trim_start_matches('#').to_owned();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let check = |told: &Value| assert!(validator.validate(told).is_ok(), "{told}");
    let ask = || server.ask("POST", &path).header("idempotency-key", "p1").json(&json!({})).send();
    let first = ask();
    check(&first.json);
    let again = ask();
    assert_eq!((&again.text, again.header("idempotent-replayed")), (&first.text, Some("true")));
    sink.will(Manner::status(500));
    let told = server.post(&path, json!({})).expect(200);
    assert_eq!((&told["status"], &told["object"]), (&json!("failed"), &json!("delivery")));
    check(&told);
    // The document names every member.
    let outcome = document.pointer(&component).unwrap();
    let delivery = &document["components"]["schemas"]["Delivery"]["properties"];
    for name in told.as_object().unwrap().keys() {
        let known = delivery.get(name).or_else(|| outcome["properties"].get(name));
        assert!(known.is_some(), "{name}");
    }
    // The response if there is no result in time.
    let mut bare = json!({"object": "delivery", "event": told["event"], "endpoint": id,
        "status": "pending"});
    check(&bare);
    bare.as_object_mut().unwrap().remove("event");
    assert!(validator.validate(&bare).is_err());
}

#[test]
fn an_endpoint_can_set_payload_filter_headers_and_plain_signature() {
    let server = Server::bookshop();
    let [thin, filtered] = [Sink::start(), Sink::start()];
    endpoint(
        &server,
        &thin,
        json!({"payload": "thin", "signature": "plain",
        "headers": {"Authorization": "Bearer theirs", "X-Shop": "7"}}),
    );
    let dear = "event.type == 'book.created' && has(event.data.object.price) && \
                event.data.object.price > 10.0";
    endpoint(&server, &filtered, json!({"filter": dear}));
    let id = server.make("/v1/books", json!({"title": "Cheap", "author": "A", "price": 5.5}));
    server.make("/v1/books", json!({"title": "Dear", "author": "A", "price": 50.5}));
    eventually("both came", || {
        thin.of("book.created").len() == 2 && filtered.of("book.created").len() == 1
    });
    // The two deliveries may arrive in any order.
    let got = thin.of("book.created").into_iter();
    let thin = json!({"object": {"id": id, "object": "book"}});
    let got = got.into_iter().find(|request| request.event()["data"] == thin).unwrap();
    assert_eq!(got.header("authorization"), Some("Bearer theirs"));
    assert_eq!(got.header("x-shop"), Some("7"));
    assert!(got.header("x-hub-signature-256").unwrap().starts_with("sha256="));
    assert_eq!(got.header("restive-signature"), None);
    assert_eq!(filtered.of("book.created")[0].event()["data"]["object"]["title"], "Dear");
}

#[test]
fn an_ordered_endpoint_receives_the_events_of_one_resource_in_order() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let ordered = json!({"ordering": "resource", "retry_schedule": [1, 1, 1, 1]});
    let id = endpoint(&server, &sink, ordered);
    eventually("the ping came", || !sink.received().is_empty());
    sink.will(Manner::status(500));
    let book = server.book("0");
    eventually("the first attempt failed", || sink.of("book.created").len() == 1);
    for n in 1..=5 {
        server.patch(&format!("/v1/books/{book}"), json!({"title": n.to_string()})).expect(200);
    }
    sink.will(Manner::status(200));
    wait_for(&server, &id, &["succeeded"; 6]);
    let titles: Vec<String> = sink
        .received()
        .iter()
        .skip(2)
        .map(|request| request.event()["data"]["object"]["title"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(titles, ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn hostile_responses_are_classified_and_hold_no_connection_beyond_the_deadline() {
    let server = Server::bookshop();
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n";
    let hostile = [
        (Manner::Silence, "timeout"),
        (Manner::Close, "reset"),
        (Manner::Raw("SSH-2.0-OpenSSH_9.2\r\n\r\n"), "invalid_response"),
        (Manner::Drip("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", "x"), "timeout"),
        (Manner::Drip("", "HTTP/1.1 100 Continue\r\n\r\n"), "too_large"),
        (
            Manner::Drip(
                "HTTP/1.1 200 OK\r\n",
                "x-more: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
            ),
            "timeout",
        ),
        (Manner::Drip(head, Box::leak("x".repeat(4096).into_boxed_str())), ""),
    ];
    let mut ids = Vec::new();
    for (manner, class) in &hostile {
        let sink = Sink::start();
        sink.will(manner.clone());
        let with = json!({"timeout": 5, "retry_schedule": [], "enabled_events": ["order.*"]});
        ids.push((endpoint(&server, &sink, with), *class));
    }
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = refused.local_addr().unwrap();
    drop(refused);
    let good = Sink::start();
    for (url, class) in [
        (format!("http://{gone}/"), "connect"),
        (format!("https://{}/", good.address), "tls"),
        ("http://no-such-host.invalid/".to_owned(), "dns"),
    ] {
        let body = json!({"url": url, "timeout": 5, "retry_schedule": []});
        ids.push((server.make("/v1/webhook-endpoints", body), class));
    }
    let began = Instant::now();
    for (id, class) in &ids {
        let path = format!("/v1/deliveries?endpoint={id}");
        let mut settled = Value::Null;
        eventually(class, || {
            settled = server.get(&path).expect(200)["data"][0].clone();
            settled["status"].is_string() && settled["status"] != "pending"
        });
        let attempt = attempts(&server, &settled).remove(0);
        let told = attempt["error"].as_str().unwrap_or("");
        assert_eq!(told, *class, "{attempt}");
        let total = attempt["latency"]["total_ms"].as_f64().unwrap();
        assert!(total < 6000.0, "{attempt}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn the_address_of_an_endpoint_is_checked_at_each_attempt() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"retry_schedule": []}));
    eventually("development allows it", || sink.received().len() == 1);
    let (_, folder) = server.stop();
    let strict = model_schema().replace("development = true", "development = false");
    let server = Start::schema(&strict).on(&folder).go();
    server.book("A");
    let failed = wait_for(&server, &id, &["failed"]).remove(0);
    let attempt = attempts(&server, &failed).remove(0);
    assert_eq!(attempt["error"], "forbidden_address", "{attempt}");
    assert!(!attempt.to_string().contains("127.0.0.1"), "not the receiver's to know: {attempt}");
    assert_eq!(sink.received().len(), 1);
}

/// The built-in schema as text.
fn model_schema() -> String {
    let folder = tempfile::tempdir().unwrap();
    let (_, error, code) = crate::harness::run(folder.path(), &["init"]);
    assert_eq!(code, 0, "{error}");
    std::fs::read_to_string(folder.path().join("restive.toml")).unwrap()
}

#[test]
fn deliveries_continue_after_a_restart() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({}));
    server.book("A");
    wait_for(&server, &id, &["succeeded"]);
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    let server = Start::bookshop().on(&folder).go();
    server.book("B");
    wait_for(&server, &id, &["succeeded", "succeeded"]);
    assert_eq!(sink.of("book.created").len(), 2, "nothing is sent twice after a clean stop");
}

#[test]
fn deliveries_are_counted() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({}));
    server.book("A");
    wait_for(&server, &id, &["succeeded"]);
    // The ping counts too.
    eventually("both are counted", || {
        figure(&server, "restive_webhook_deliveries_total{outcome=\"succeeded\"}") == Some(2.0)
    });
    assert_eq!(figure(&server, "restive_webhook_latency_seconds_count"), Some(2.0));
    assert_eq!(figure(&server, "restive_webhook_failed_attempts_total"), Some(0.0));
    sink.will(Manner::status(500));
    let doomed = endpoint(&server, &sink, json!({"retry_schedule": []}));
    server.book("B");
    wait_for(&server, &doomed, &["failed"]);
    eventually("failures are counted", || {
        figure(&server, "restive_webhook_deliveries_total{outcome=\"failed\"}") >= Some(1.0)
    });
}

/// One line of the metrics page.
pub fn figure(server: &Server, name: &str) -> Option<f64> {
    let page = server.get("/metrics").text;
    let line = page.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn an_erased_event_is_not_delivered_even_if_it_was_queued_in_memory() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let one = json!({"max_in_flight": 1, "timeout": 5, "retry_schedule": [1]});
    let id = endpoint(&server, &sink, one);
    sink.will(Manner::Silence);
    server.book("The one in the way");
    eventually("it is under way", || sink.of("book.created").len() == 1);
    let secret = server.book("Secret title");
    server.post("/v1/erasures", json!({"resource": secret})).expect(201);
    sink.will(Manner::status(200));
    wait_for(&server, &id, &["succeeded"; 2]);
    let told: Vec<_> = sink.of("book.created").iter().map(|one| one.event()).collect();
    let about = told.iter().find(|event| event["data"]["object"]["id"] == secret.as_str());
    let about = about.expect("the event is delivered");
    assert_eq!(about["data"]["object"], json!({"id": secret, "object": "book", "erased": true}));
    assert!(!told.iter().any(|event| event.to_string().contains("Secret title")));
}

#[test]
fn an_erased_event_does_not_say_who_caused_it() {
    let server = Server::bookshop();
    let body = json!({"title": "A", "author": "x"});
    let key = "socket:ann@example.com";
    let book = server.ask("POST", "/v1/books").header("idempotency-key", key).json(&body).send();
    let book = book.id();
    let event = || {
        let events = server.get("/v1/events?type=book.created").expect(200);
        events["data"][0].clone()
    };
    assert_eq!(event()["request"]["idempotency_key"], key);
    assert!(event()["actor"]["key"].is_string());
    let request = event()["request"]["id"].clone();
    server.post("/v1/erasures", json!({"resource": book})).expect(201);
    let is_erased = |event: &Value| {
        assert_eq!(event["request"], json!({"id": request, "idempotency_key": null}));
        assert_eq!(event.get("actor"), None, "{event}");
    };
    is_erased(&event());
    let (_, folder) = server.stop();
    let server = Start::bookshop().on(&folder).go();
    let events = server.get("/v1/events?type=book.created").expect(200);
    is_erased(&events["data"][0]);
}
