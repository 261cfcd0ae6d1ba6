//! Filters of deliveries and events by the state of delivery.

use crate::deliveries::{endpoint, wait_for};
use crate::harness::{Server, eventually};
use crate::sink::{Manner, Sink};
use serde_json::{Value, json};

/// Ids of the deliveries that a query returns, in order.
fn found(server: &Server, query: &str) -> Vec<Value> {
    server.get(&format!("/v1/deliveries?sort=created_at&{query}")).column("id")
}

#[test]
fn deliveries_can_be_listed_by_id_and_by_each_of_their_times() {
    let server = Server::bookshop();
    let [good, bad] = [Sink::start(), Sink::start()];
    bad.will(Manner::status(500));
    let with = |schedule: Value| json!({"enabled_events": ["book.*"], "retry_schedule": schedule});
    let first = endpoint(&server, &good, with(json!([])));
    server.book("A");
    let done = wait_for(&server, &first, &["succeeded"]).remove(0);
    let soon = endpoint(&server, &bad, with(json!([3600])));
    let late = endpoint(&server, &bad, with(json!([36_000])));
    server.book("B");
    let soon = wait_for(&server, &soon, &["pending"]).remove(0);
    let late = wait_for(&server, &late, &["pending"]).remove(0);
    wait_for(&server, &first, &["succeeded", "succeeded"]);
    let id = |delivery: &Value| delivery["id"].clone();
    let text = |delivery: &Value, name: &str| delivery[name].as_str().unwrap().to_owned();
    assert_eq!(found(&server, &format!("id={}", text(&soon, "id"))), [id(&soon)]);
    let both = format!("id={},{}", text(&done, "id"), text(&late, "id"));
    assert_eq!(found(&server, &both), [id(&done), id(&late)]);
    assert_eq!(found(&server, "id=dlv_none"), [Value::Null; 0]);
    // Bounds are inclusive.
    let [near, far] = [&soon, &late].map(|delivery| text(delivery, "next_attempt_at"));
    for (query, expected) in [
        (format!("next_attempt_at={near}"), vec![id(&soon)]),
        (format!("max_next_attempt_at={near}"), vec![id(&soon)]),
        (format!("min_next_attempt_at={far}"), vec![id(&late)]),
        (format!("max_next_attempt_at={far}&min_next_attempt_at={far}"), vec![id(&late)]),
        ("max_next_attempt_at=2020-01-01".to_owned(), vec![]),
        ("min_next_attempt_at=2120-01-01".to_owned(), vec![]),
        ("status=pending&min_attempts=2".to_owned(), vec![]),
    ] {
        assert_eq!(found(&server, &query), expected, "{query}");
    }
    let window = format!("min_next_attempt_at={near}&max_next_attempt_at={far}");
    assert_eq!(found(&server, &window).len(), 2);
    let all = found(&server, "").len();
    for name in ["created_at", "updated_at"] {
        let moment = text(&done, name);
        assert!(found(&server, &format!("{name}={moment}")).contains(&id(&done)));
        let [until, since] = ["max", "min"].map(|end| format!("{end}_{name}={moment}"));
        let until = found(&server, &until);
        assert!(until.contains(&id(&done)) && !until.contains(&id(&late)), "{name}: {until:?}");
        let since = found(&server, &since);
        assert!(since.contains(&id(&done)) && since.contains(&id(&late)), "{name}: {since:?}");
        // Several deliveries may share a millisecond.
        assert!(until.len() + since.len() > all, "{name}: {until:?} {since:?}");
        assert_eq!(found(&server, &format!("max_{name}=2020-01-01")), [Value::Null; 0]);
    }
    for bad in ["updated_at=yesterday", "min_next_attempt_at=soon", "min_id=dlv_1", "max_status=x"]
    {
        let answer = server.get(&format!("/v1/deliveries?{bad}"));
        let param = bad.split('=').next().unwrap();
        assert_eq!((answer.status, &answer.json["error"]["param"]), (400, &json!(param)));
    }
}

#[test]
fn events_with_pending_deliveries_can_be_listed() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let books = json!({"enabled_events": ["book.*"], "retry_schedule": [3600]});
    let id = endpoint(&server, &sink, books);
    server.book("A");
    wait_for(&server, &id, &["succeeded"]);
    let pending = || server.get("/v1/events?delivery=pending").column("id");
    eventually("nothing is pending", || pending().is_empty());
    sink.will(Manner::status(500));
    server.book("B");
    let waits = wait_for(&server, &id, &["pending", "succeeded"]).remove(0);
    assert_eq!(pending(), [waits["event"].clone()], "what waits for a retry");
    let event = format!("/v1/events/{}", waits["event"].as_str().unwrap());
    assert_eq!(server.get(&event).expect(200)["pending_webhooks"], 1);
    assert_eq!(server.get("/v1/events?delivery=pending,succeeded").column("id").len(), 3);
    // A delivery without an attempt: another receiver does not respond.
    let silent = Sink::start();
    let orders = json!({"enabled_events": ["order.*"], "max_in_flight": 1});
    endpoint(&server, &silent, orders);
    eventually("its ping came", || silent.received().len() == 1);
    eventually("and is settled", || pending().len() == 1);
    silent.will(Manner::Silence);
    let book = server.book("C");
    wait_for(&server, &id, &["pending", "pending", "succeeded"]);
    server.make("/v1/orders", json!({"book": book, "quantity": 1}));
    eventually("it is under way", || silent.of("order.created").len() == 1);
    let order = server.get("/v1/events?type=order.created").column("id");
    assert_eq!(pending().len(), 3);
    assert_eq!(server.get("/v1/events?delivery=pending&type=order.*").column("id"), order);
}
