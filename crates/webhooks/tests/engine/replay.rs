//! Sending again what was sent before, or never was.

use crate::bed::{Bed, THERE, until};
use crate::sink::{Reply, Sink};
use model::record::Fields;
use model::schema::Builtin;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use store::Status;

async fn ended(bed: &Bed, id: &str) -> Fields {
    let over = |kind: &str| kind == "replay.updated" || kind == "replay.cancelled";
    until("the replay has ended", || {
        let inner = bed.store.look();
        let told = inner.events.iter().rev().find(|event| event.record == id && over(&event.kind));
        told.is_some_and(|event| {
            let object: Value = serde_json::from_str(&event.object).unwrap();
            !matches!(object["status"].as_str(), Some("pending" | "running"))
        })
    })
    .await;
    bed.fields(Builtin::Replay, id).await
}

#[tokio::test]
async fn a_replay_reaches_an_endpoint_created_after_the_event() {
    let bed = Bed::new();
    let engine = bed.start();
    bed.tell(&["book_1"; 30]);
    bed.clock.advance(1);
    let sink = Sink::willing().await;
    let (number, id) = bed.endpoint(&sink, json!({ "status": "disabled" })).await;
    let counted = bed.replay(&id, json!({ "dry_run": true })).await;
    let fields = ended(&bed, &counted).await;
    assert_eq!((&fields["status"], &fields["total"]), (&json!("succeeded"), &json!(30)));
    assert_eq!(sink.events().len(), 0);
    let replay = bed.replay(&id, json!({ "types": ["book.*"] })).await;
    let fields = ended(&bed, &replay).await;
    for (name, expected) in [
        ("status", json!("succeeded")),
        ("total", json!(30)),
        ("done", json!(30)),
        ("succeeded", json!(30)),
        ("error", Value::Null),
    ] {
        assert_eq!(fields[name], expected, "{name}");
    }
    engine.stop().await;
    assert_eq!(sink.events().len(), 30);
    // With the ping of its creation.
    assert_eq!(bed.rows(number, Status::Succeeded), 31);
    let row = bed.row(number, 1).unwrap();
    assert!(row.texts[0].contains("\"trigger\":\"replay\""));
}

#[tokio::test]
async fn a_replay_of_failures_sends_only_those_and_does_not_change_the_health() {
    let bed = Bed::new();
    let sink = Sink::new(|request, number| match request.body["data"]["object"]["id"].as_str() {
        Some("sick") if number < 20 => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let (number, id) = bed.endpoint(&sink, json!({ "retry_schedule": [] })).await;
    let engine = bed.start();
    bed.tell(&["book_1", "sick", "book_2", "sick"]);
    until("all tried", || sink.events().len() == 4).await;
    until("all recorded", || bed.rows(number, Status::Failed) == 2).await;
    bed.clock.advance(1);
    let only = json!({ "without_success": true });
    let fields = ended(&bed, &bed.replay(&id, only.clone()).await).await;
    let told = |fields: &Fields| ["total", "done", "succeeded"].map(|name| fields[name].clone());
    assert_eq!(told(&fields), [json!(2), json!(2), json!(0)]);
    for _ in 0..6 {
        ended(&bed, &bed.replay(&id, only.clone()).await).await;
    }
    assert_eq!(bed.rows(number, Status::Failed), 2);
    // Twelve failures by replays have not made the endpoint a failing one.
    assert_eq!(bed.fields(Builtin::Endpoint, &id).await["failing_since"], Value::Null);
    bed.tell(&["x"; 10]);
    until("enough for the sink to change its mind", || sink.count() >= 20).await;
    until("all recorded", || bed.rows(number, Status::Succeeded) == 13).await;
    let fields = ended(&bed, &bed.replay(&id, only).await).await;
    engine.stop().await;
    assert_eq!(told(&fields), [json!(2), json!(2), json!(2)]);
    assert_eq!(bed.rows(number, Status::Failed), 0);
}

#[tokio::test]
async fn a_replay_keeps_its_rate_survives_a_restart_and_can_be_cancelled() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    bed.tell(&["book_1"; 300]);
    bed.clock.advance(1);
    let (_, id) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    let replay = bed.replay(&id, json!({ "rate_limit": 50 })).await;
    until("under way", || sink.events().len() >= 60).await;
    engine.stop().await;
    let sent = sink.events().len() as u64;
    let fields = bed.fields(Builtin::Replay, &replay).await;
    assert_eq!((&fields["status"], &fields["done"]), (&json!("running"), &json!(sent)));
    let engine = bed.start();
    until("on its way again", || sink.events().len() as u64 >= sent + 60).await;
    bed.act(Builtin::Replay, &replay, "cancel").await;
    let fields = ended(&bed, &replay).await;
    assert_eq!(fields["status"], "cancelled");
    // What was under way comes in, and nothing after it.
    // waits for: the engine to hear of it, and what was under way
    tokio::time::sleep(Duration::from_millis(100)).await;
    until("none is under way", || bed.figure("restive_webhook_in_flight") == 0).await;
    let now = sink.events().len();
    // waits for: some 25 events that would wrongly be sent
    tokio::time::sleep(Duration::from_millis(500)).await;
    engine.stop().await;
    assert_eq!((sink.events().len(), now < 300), (now, true));
    assert_eq!(bed.fields(Builtin::Replay, &replay).await["status"], "cancelled");
    let ids: std::collections::BTreeSet<_> =
        sink.events().iter().map(|request| request.id().to_owned()).collect();
    assert_eq!(ids.len(), sink.events().len());
}

#[tokio::test]
async fn a_replay_keeps_the_rate_of_its_endpoint_too() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    bed.tell(&["book_1"; 100]);
    bed.clock.advance(1);
    let (_, id) = bed.endpoint(&sink, json!({ "rate_limit": 50 })).await;
    let engine = bed.start();
    let fields = ended(&bed, &bed.replay(&id, json!({})).await).await;
    engine.stop().await;
    assert_eq!((&fields["status"], &fields["done"]), (&json!("succeeded"), &json!(100)));
    let seen = sink.events();
    // A second's worth at once, and a second for the other half.
    let took = seen[seen.len() - 1].at - seen[0].at;
    assert!(took >= Duration::from_millis(900), "{took:?}");
}

#[tokio::test]
async fn a_replay_fails_if_its_endpoint_is_deleted() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    bed.tell(&["book_1"; 300]);
    bed.clock.advance(1);
    let (_, id) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    let replay = bed.replay(&id, json!({ "rate_limit": 20 })).await;
    until("under way", || sink.events().len() >= 5).await;
    bed.write(Builtin::Endpoint, Some(&id), model::Change::Delete).await;
    let fields = ended(&bed, &replay).await;
    engine.stop().await;
    assert_eq!(fields["status"], "failed");
    assert!(fields["error"].as_str().unwrap().contains("endpoint"));
}

#[tokio::test]
async fn waiting_replays_end_with_their_endpoint_and_others_continue() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    bed.tell(&["book_1"; 40]);
    bed.clock.advance(1);
    let (_, id) = bed.endpoint(&sink, json!({})).await;
    let (_, other) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    let slow = json!({ "rate_limit": 5 });
    let mut replays = Vec::new();
    for _ in 0..12 {
        replays.push(bed.replay(&id, slow.clone()).await);
    }
    let last = bed.replay(&other, json!({ "types": ["book.created"] })).await;
    until("under way", || sink.events().len() >= 5).await;
    bed.write(Builtin::Endpoint, Some(&id), model::Change::Delete).await;
    for replay in &replays {
        assert_eq!(ended(&bed, replay).await["status"], "failed");
    }
    assert_eq!(ended(&bed, &last).await["status"], "succeeded");
    engine.stop().await;
}

#[tokio::test]
async fn thousands_of_waiting_replays_delay_no_delivery() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (_, id) = bed.endpoint(&sink, json!({})).await;
    bed.tell(&["book_1"; 20]);
    bed.clock.advance(1);
    let other = Sink::willing().await;
    bed.endpoint_in(THERE, &other, json!({})).await;
    for _ in 0..3_000 {
        bed.replay(&id, json!({ "rate_limit": 1 })).await;
    }
    let engine = bed.start();
    for sent in 1..=20 {
        let begun = Instant::now();
        bed.tell_large(THERE, 1, 100);
        // Another one of them is created and one is cancelled at the same time.
        let more = bed.replay(&id, json!({ "rate_limit": 1 })).await;
        bed.act(Builtin::Replay, &more, "cancel").await;
        until("the other account is served", || other.events().len() == sent).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_paused_replay_holds_no_events_and_continues_afterwards() {
    let bed = Bed::new();
    let sink = Sink::new(|request, number| match request.kind() {
        "book.created" if number < 3 => Reply::With(503, "retry-after: 1\r\n"),
        _ => Reply::Status(200),
    })
    .await;
    bed.tell(&["book_1"; 30]);
    bed.clock.advance(1);
    let more = json!({ "max_in_flight": 4, "enabled_events": ["order.created"] });
    let (number, id) = bed.endpoint(&sink, more).await;
    let engine = bed.start();
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    let replay = bed.replay(&id, json!({ "types": ["book.created"] })).await;
    until("refused", || bed.store.look().pauses.contains_key(&number)).await;
    until("nothing is held", || bed.figure("restive_webhook_loaded_bytes") == 0).await;
    assert!(sink.events().len() < 30);
    let fields = ended(&bed, &replay).await;
    engine.stop().await;
    assert_eq!((&fields["status"], &fields["done"]), (&json!("succeeded"), &json!(30)));
    let ids: std::collections::BTreeSet<_> =
        sink.events().iter().map(|request| request.id().to_owned()).collect();
    assert_eq!((ids.len(), sink.events().len()), (30, 30), "each of them once");
}

#[tokio::test]
async fn a_replay_that_fails_leaves_a_waiting_delivery_to_its_schedule() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.kind() {
        "ping" => Reply::Status(200),
        _ => Reply::Status(500),
    })
    .await;
    let (number, id) = bed.endpoint(&sink, json!({ "retry_schedule": [60] })).await;
    let engine = bed.start();
    bed.tell(&["book_1"]);
    let seq = bed.newest();
    until("it waits", || bed.row(number, seq).is_some_and(|row| row.next.is_some())).await;
    let before = bed.row(number, seq).unwrap();
    bed.clock.advance(1);
    for attempts in 2..=8 {
        ended(&bed, &bed.replay(&id, json!({})).await).await;
        let row = bed.row(number, seq).unwrap();
        assert_eq!((row.attempts, row.status), (attempts, Status::Pending));
        assert_eq!(row.next, before.next, "its time stays");
    }
    assert_eq!(bed.fields(Builtin::Endpoint, &id).await["failing_since"], Value::Null);
    bed.clock.advance(66);
    until("its own last attempt", || bed.rows(number, Status::Failed) == 1).await;
    engine.stop().await;
    let row = bed.row(number, seq).unwrap();
    assert_eq!((row.attempts, row.next), (9, None));
    assert!(row.texts[8].contains("\"trigger\":\"schedule\""));
}

#[tokio::test]
async fn a_pause_of_a_replay_by_retry_after_survives_a_restart() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.kind() {
        "ping" => Reply::Status(200),
        _ => Reply::With(503, "retry-after: 600\r\n"),
    })
    .await;
    bed.tell(&["book_1"; 20]);
    bed.clock.advance(1);
    let more = json!({ "max_in_flight": 1, "enabled_events": ["order.created"] });
    let (number, id) = bed.endpoint(&sink, more).await;
    let engine = bed.start();
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    bed.replay(&id, json!({ "types": ["book.created"] })).await;
    until("refused", || sink.events().len() == 1).await;
    until("kept", || bed.store.look().pauses.contains_key(&number)).await;
    engine.stop().await;
    let engine = bed.start();
    crate::bed::linger().await;
    engine.stop().await;
    assert_eq!(sink.events().len(), 1);
}

#[tokio::test]
async fn a_replay_keeps_the_order_of_a_record_if_the_endpoint_is_ordered() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    bed.tell(&["book_1", "book_2"].repeat(40));
    bed.clock.advance(1);
    let more = json!({ "ordering": "resource", "enabled_events": ["order.created"] });
    let (_, id) = bed.endpoint(&sink, more).await;
    let engine = bed.start();
    let replay = bed.replay(&id, json!({ "types": ["book.created"] })).await;
    ended(&bed, &replay).await;
    engine.stop().await;
    for record in ["book_1", "book_2"] {
        let seen = sink.events().into_iter().filter(|request| request.record() == record);
        let seqs = seen.map(|request| request.id()[4..].parse::<i64>().unwrap());
        let seqs: Vec<i64> = seqs.collect();
        assert_eq!(seqs.len(), 40);
        assert!(seqs.is_sorted(), "{seqs:?}");
    }
    assert!(sink.most() <= 2, "one of each record at a time");
}
