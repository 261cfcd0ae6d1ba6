//! Filters that cannot judge an event: it is not sent, its delivery says why, and a replay counts
//! it.

use crate::deliveries::{attempts, endpoint, figure, wait_for};
use crate::harness::{Server, Start, eventually};
use crate::sink::{Manner, Sink};
use serde_json::{Value, json};

const SHOP: &str = r#"
[webhooks]
development = true
[collections.orders]
fields.total = { type = "integer", required = true }
fields.parts = { type = "integer", required = true }
"#;

/// True for 2 parts, false for 20, and a division by zero for none.
const FILTER: &str = "event.data.object.total / event.data.object.parts > 1";
const ERASED: &str = "the record was erased, so the filter cannot judge the event";

fn order(server: &Server, parts: i64) -> String {
    server.make("/v1/orders", json!({"total": 10, "parts": parts}))
}

/// Runs a replay to its end: its total, how many events are done, and how many were delivered.
#[track_caller]
fn replay(server: &Server, body: Value) -> [i64; 3] {
    let path = format!("/v1/replays/{}", server.make("/v1/replays", body));
    let mut shown = Value::Null;
    eventually("the replay ends", || {
        shown = server.get(&path).expect(200);
        shown["status"] != "pending" && shown["status"] != "running"
    });
    assert_eq!(shown["status"], "succeeded", "{shown}");
    ["total", "done", "succeeded"].map(|name| shown[name].as_i64().unwrap())
}

fn skipped(server: &Server) -> f64 {
    figure(server, "restive_webhook_deliveries_total{outcome=\"skipped\"}").unwrap()
}

#[test]
fn a_replay_records_and_counts_events_that_the_filter_cannot_judge() {
    let server = Start::schema(SHOP).go();
    let sink = Sink::start();
    for parts in [2, 0, 20, 0] {
        order(&server, parts);
    }
    let id = endpoint(&server, &sink, json!({"filter": FILTER, "enabled_events": ["order.*"]}));
    assert_eq!(replay(&server, json!({"endpoint": id, "dry_run": true})), [3, 0, 0]);
    assert_eq!(skipped(&server), 0.0, "a dry run records nothing");
    assert_eq!(replay(&server, json!({"endpoint": id})), [3, 3, 1]);
    assert_eq!(sink.of("order.created").len(), 1);
    let statuses = || {
        let all = server.get(&format!("/v1/deliveries?endpoint={id}")).expect(200);
        let all = all["data"].as_array().unwrap().clone();
        all.into_iter().filter(|delivery| delivery["status"] == "skipped").collect::<Vec<_>>()
    };
    assert_eq!((statuses().len(), skipped(&server)), (2, 2.0));
    // Those that did not succeed are tried again, and found to be as they were.
    let again = json!({"endpoint": id, "without_success": true, "types": ["order.*"]});
    assert_eq!(replay(&server, again), [2, 2, 0]);
    for delivery in statuses() {
        let tried = attempts(&server, &delivery);
        assert_eq!((tried.len(), &delivery["attempts"]), (2, &json!(2)));
        for attempt in tried {
            assert_eq!(
                (&attempt["trigger"], &attempt["error"]),
                (&json!("replay"), &json!("filter"))
            );
            let message = attempt["error_message"].as_str().unwrap();
            assert!(message.contains("Division by zero"), "{attempt}");
        }
    }
    assert_eq!((sink.of("order.created").len(), skipped(&server)), (1, 4.0));
}

/// A manual retry is an order of its own: no filter is asked.
#[test]
fn a_manual_retry_sends_a_delivery_that_a_filter_skipped() {
    let server = Start::schema(SHOP).go();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"filter": FILTER, "enabled_events": ["order.*"]}));
    order(&server, 0);
    let delivery = wait_for(&server, &id, &["skipped"]).remove(0);
    assert!(sink.of("order.created").is_empty());
    let path = format!("/v1/deliveries/{}", delivery["id"].as_str().unwrap());
    server.post(&format!("{path}/retry"), json!({})).expect(200);
    eventually("the event is sent", || sink.of("order.created").len() == 1);
    eventually("it is recorded", || server.get(&path).expect(200)["status"] == "succeeded");
}

#[test]
fn a_replay_that_cannot_judge_an_event_cancels_no_retry_of_it() {
    let server = Start::schema(SHOP).go();
    let sink = Sink::start();
    let id = endpoint(&server, &sink, json!({"retry_schedule": [3600]}));
    eventually("the ping came", || !sink.received().is_empty());
    sink.will(Manner::status(500));
    order(&server, 0);
    let before = wait_for(&server, &id, &["pending"]).remove(0);
    let filter = json!({"filter": FILTER, "enabled_events": ["order.*"]});
    server.patch(&format!("/v1/webhook-endpoints/{id}"), filter).expect(200);
    assert_eq!(replay(&server, json!({"endpoint": id})), [1, 1, 0]);
    let after = wait_for(&server, &id, &["pending"]).remove(0);
    assert_eq!(after["next_attempt_at"], before["next_attempt_at"]);
    let tried = attempts(&server, &after);
    assert_eq!((tried.len(), &tried[1]["error"]), (2, &json!("filter")), "{tried:?}");
}

/// Without the fields of the record the first filter has no value, and the others would decide by
/// what is missing.
#[test]
fn a_replay_asks_no_filter_about_an_event_whose_record_was_erased() {
    let server = Start::schema(SHOP).go();
    let sink = Sink::start();
    let erased = order(&server, 2);
    server.post("/v1/erasures", json!({"resource": erased})).expect(201);
    for filter in [FILTER, "!has(event.data.object.parts)", "'parts' in event.data.object"] {
        let with = json!({"filter": filter, "enabled_events": ["order.*"]});
        let id = endpoint(&server, &sink, with);
        assert_eq!(replay(&server, json!({"endpoint": id})), [1, 1, 0], "{filter}");
        let delivery = wait_for(&server, &id, &["skipped"]).remove(0);
        assert_erased(&server, &delivery);
    }
    assert!(sink.of("order.created").is_empty(), "nothing of an erased record is sent");
}

#[track_caller]
fn assert_erased(server: &Server, delivery: &Value) {
    let told = attempts(server, delivery).pop().unwrap();
    assert_eq!((&told["error"], &told["error_message"]), (&json!("filter"), &json!(ERASED)));
}

#[test]
fn an_endpoint_that_is_behind_asks_no_filter_about_an_erased_event() {
    let server = Start::schema(SHOP).go();
    let sink = Sink::start();
    // The endpoint asks for a pause, so it reads the event when that is erased already.
    sink.will(Manner::Answer(429, "retry-after: 3\r\n", String::new()));
    let id = endpoint(&server, &sink, json!({"filter": FILTER, "enabled_events": ["order.*"]}));
    eventually("the pause begins", || {
        server.get("/v1/deliveries").expect(200)["data"][0]["status"] == "failed"
    });
    sink.will(Manner::status(200));
    let erased = order(&server, 2);
    server.post("/v1/erasures", json!({"resource": erased})).expect(201);
    order(&server, 5);
    let found = wait_for(&server, &id, &["succeeded", "skipped"]);
    assert_erased(&server, &found[1]);
    assert_eq!(sink.of("order.created").len(), 1, "the other one is sent");
}
