//! What a restart makes of what was known.

use crate::bed::{Bed, limits, linger, until};
use crate::sink::{Reply, Sink};
use model::Timestamp;
use model::schema::Builtin;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use store::{Status, Upkeep};
use webhooks::Limits;

#[tokio::test]
async fn a_restart_continues_from_positions_and_rows() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    bed.tell(&["book_1"; 50]);
    until("the first fifty", || bed.rows(number, Status::Succeeded) == 51).await;
    engine.stop().await;
    bed.tell(&["book_2"; 50]);
    let engine = bed.start();
    until("a hundred", || bed.rows(number, Status::Succeeded) == 101).await;
    engine.stop().await;
    // As after a crash: outcomes are durable, the position lags behind.
    bed.store.look().head = None;
    bed.tell(&["book_3"]);
    let engine = bed.start();
    until("the last", || bed.rows(number, Status::Succeeded) == 102).await;
    engine.stop().await;
    assert_eq!(sink.events().len(), 101);
}

#[tokio::test]
async fn a_requested_pause_survives_a_restart_and_ends_when_the_endpoint_is_enabled() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.body["data"]["object"]["id"].as_str() {
        Some("busy") => Reply::With(503, "retry-after: 600\r\n"),
        _ => Reply::Status(200),
    })
    .await;
    let (number, id) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    bed.tell(&["busy"]);
    until("refused", || bed.rows(number, Status::Pending) == 1).await;
    until("kept", || bed.store.look().pauses.contains_key(&number)).await;
    engine.stop().await;
    let engine = bed.start();
    bed.tell(&["book_1"]);
    until("it waits", || bed.rows_waiting() == 1).await;
    linger().await;
    assert_eq!(sink.events().len(), 1, "only the one that asked for the pause");
    bed.act(Builtin::Endpoint, &id, "disable").await;
    until("what waits is skipped", || bed.rows(number, Status::Skipped) >= 1).await;
    bed.act(Builtin::Endpoint, &id, "enable").await;
    bed.tell(&["book_2"]);
    until("sent again", || sink.events().len() >= 2).await;
    engine.stop().await;
    assert_eq!(bed.store.look().pauses[&number], Timestamp(0));
}

#[tokio::test]
async fn an_event_without_a_durable_outcome_is_sent_again_with_the_same_id() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    bed.tell(&["book_1"; 20]);
    until("twenty", || bed.rows(number, Status::Succeeded) == 21).await;
    engine.stop().await;
    // As after a crash before the last outcomes were durable.
    let newest = bed.newest();
    bed.store.look().rows.retain(|(_, seq), _| *seq <= newest - 5);
    bed.store.look().positions.insert(number, newest - 10);
    let engine = bed.start();
    until("five again", || bed.rows(number, Status::Succeeded) == 21).await;
    engine.stop().await;
    let seen = sink.events();
    let ids: BTreeSet<_> = seen.iter().map(|request| request.id().to_owned()).collect();
    assert_eq!((seen.len(), ids.len()), (25, 20));
}

#[tokio::test]
async fn a_crash_repeats_only_requests_in_flight() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.body["data"]["object"]["id"].as_str() {
        Some("hangs") => Reply::Hang,
        _ => Reply::Status(200),
    })
    .await;
    let (number, _) = bed.endpoint(&sink, json!({ "max_in_flight": 4 })).await;
    let engine = bed.start();
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    bed.store.full.store(true, SeqCst);
    bed.tell(&["book_1"; 300]);
    bed.tell(&["hangs"; 3]);
    until("all sent", || sink.events().len() == 303).await;
    engine.crash().await;
    assert_eq!(bed.rows(number, Status::Succeeded), 1);
    bed.store.full.store(false, SeqCst);
    bed.tell(&["book_2"]);
    let engine = bed.start();
    until("what hung again, and the new one", || sink.events().len() == 307).await;
    until("outcomes", || bed.rows(number, Status::Succeeded) == 302).await;
    engine.stop().await;
    let seen = sink.events();
    let ids: BTreeSet<_> = seen.iter().map(|request| request.id().to_owned()).collect();
    assert_eq!((seen.len(), ids.len()), (307, 304));
    // Its attempt is known in full, as if nothing had happened.
    let row = bed.row(number, bed.newest() - 10).unwrap();
    assert_eq!((row.attempts, row.texts.len()), (1, 1));
    assert!(row.texts[0].contains("\"status\":200"), "{}", row.texts[0]);
}

#[tokio::test]
async fn a_damaged_journal_or_one_of_another_log_is_ignored() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    bed.tell(&["book_1"; 2]);
    let newest = bed.newest();
    let line = |seq: i64, event: &str| {
        json!({
            "endpoint": number, "seq": seq, "event": event, "scope": 20, "delivery": "dlv_1",
            "status": 1, "attempts": 1, "next": null, "now": 0, "attempt": null,
        })
    };
    let first = format!("{}\n{{\"endpoint\":1\n", line(newest, "evt_of_another_log"));
    std::fs::write(bed.folder.path().join("outcomes.0"), first).unwrap();
    let second = format!("{}\n{}", line(newest, "evt_cut"), "\0".repeat(5000));
    std::fs::write(bed.folder.path().join("outcomes.1"), second).unwrap();
    let engine = bed.start();
    until("all are sent", || bed.rows(number, Status::Succeeded) == 3).await;
    engine.stop().await;
    assert_eq!(sink.events().len(), 2);
}

#[tokio::test]
async fn journal_pages_alternate_and_stay_small() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    let mut largest = 0;
    for round in 1..=10 {
        bed.tell(&["book_1"; 1000]);
        until("a thousand more", || bed.rows(number, Status::Succeeded) > round * 1000).await;
        let sizes = ["outcomes.0", "outcomes.1"]
            .map(|name| std::fs::metadata(bed.folder.path().join(name)).unwrap().len());
        largest = largest.max(sizes[0]).max(sizes[1]);
    }
    engine.stop().await;
    assert!(largest > 100_000, "{largest}");
    assert!(largest < 2 << 20, "{largest}");
    assert_eq!(sink.events().len(), 10_000);
}

#[tokio::test]
async fn a_retry_that_came_due_during_downtime_is_made_at_the_start() {
    let bed = Bed::new();
    let sink = Sink::new(|_, number| match number {
        1 | 2 => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    until("the ping", || sink.count() == 1).await;
    bed.tell(&["book_1", "book_2"]);
    until("both failed", || bed.rows(number, Status::Pending) == 2).await;
    engine.stop().await;
    bed.clock.advance(100);
    let engine = bed.start();
    until("both tried again", || bed.rows(number, Status::Succeeded) == 3).await;
    engine.stop().await;
    assert_eq!(sink.count(), 5);
}

#[tokio::test]
async fn the_shutdown_waits_for_requests_in_flight_but_not_for_ever() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.body["data"]["object"]["id"].as_str() {
        Some("hangs") => Reply::Hang,
        _ => Reply::Status(200),
    })
    .await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start_with(Limits { drain: Duration::from_millis(300), ..limits() });
    bed.tell(&["book_1", "hangs"]);
    let newest = bed.newest();
    until("both sent", || sink.events().len() == 2).await;
    let begun = std::time::Instant::now();
    engine.stop().await;
    assert!(begun.elapsed() >= Duration::from_millis(290));
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert!(bed.row(number, newest - 1).is_some());
    assert!(bed.row(number, newest).is_none());
    assert_eq!(bed.position(number), newest - 1);
}

#[tokio::test]
async fn a_start_that_cannot_read_the_store_shows_in_the_health_report() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    bed.store.deaf.store(true, SeqCst);
    let engine = bed.start();
    let silent = |longer| bed.store.watchdog().stuck(longer).iter().any(|l| l.name == "webhooks");
    until("the engine counts as stuck", || silent(Duration::from_millis(50))).await;
    bed.store.deaf.store(false, SeqCst);
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    assert!(!silent(Duration::from_secs(5)));
    engine.stop().await;
}
