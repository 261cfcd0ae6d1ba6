//! Endpoints that lag behind read the log themselves, miss nothing and get nothing twice.

use crate::bed::{Bed, limits, until};
use crate::sink::{Reply, Sink};
use model::schema::Builtin;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use store::Status;
use webhooks::Limits;

fn each_once(sink: &Sink, count: usize) {
    let seen = sink.events();
    let ids: BTreeSet<_> = seen.iter().map(|request| request.id().to_owned()).collect();
    assert_eq!((ids.len(), seen.len()), (count, count));
}

#[tokio::test]
async fn an_endpoint_that_lags_and_catches_up_gets_every_event_once() {
    let bed = Bed::new();
    let (first, second) = (Sink::willing().await, Sink::willing().await);
    let (one, _) = bed.endpoint(&first, json!({})).await;
    let (two, _) = bed.endpoint(&second, json!({ "rate_limit": 500 })).await;
    let engine = bed.start_with(Limits { queue: 8, batch: 16, ..limits() });
    for round in 0..40 {
        let many: Vec<String> = (0..round).map(|n| format!("book_{round}_{n}")).collect();
        bed.tell(&many.iter().map(String::as_str).collect::<Vec<_>>());
        tokio::task::yield_now().await;
        if round % 5 == 0 {
            let all = || bed.rows(one, Status::Succeeded) as i64;
            until("the first is at the head again", || all() > i64::from(round)).await;
        }
    }
    let count = (0..40).sum::<i32>() as usize;
    until("all at the first", || bed.rows(one, Status::Succeeded) == count + 1).await;
    until("all at the second", || bed.rows(two, Status::Succeeded) == count + 1).await;
    engine.stop().await;
    each_once(&first, count);
    each_once(&second, count);
    let newest = bed.newest();
    assert_eq!((bed.position(one), bed.position(two)), (newest, newest));
}

#[tokio::test]
async fn a_long_backlog_is_read_in_small_pieces() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, _) = bed.endpoint(&sink, json!({ "enabled_events": ["book.created"] })).await;
    bed.store.append((0..20_000).map(|n| {
        let mut event = bed.event("book_1");
        if n % 20 != 0 {
            event.kind = "book.updated".into();
        }
        event
    }));
    let engine = bed.start_with(Limits { batch: 64, loaded_bytes: 64 << 10, ..limits() });
    until("all", || bed.rows(number, Status::Succeeded) == 1001).await;
    engine.stop().await;
    each_once(&sink, 1000);
    assert!(bed.store.largest_read.load(SeqCst) <= 64);
}

#[tokio::test]
async fn a_failing_endpoint_leaves_its_events_in_the_log() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.kind() {
        "ping" => Reply::Status(200),
        _ => Reply::Status(500),
    })
    .await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    until("the ping", || sink.count() == 1).await;
    let before = bed.newest();
    for _ in 0..50 {
        bed.tell(&["book_1"; 100]);
    }
    until("held back", || bed.rows(number, Status::Pending) >= 6).await;
    let loaded = || {
        let figures = bed.figures();
        let line = figures.lines().find(|line| line.starts_with("restive_webhook_loaded_bytes"));
        line.unwrap().rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    // The ring of the head, and next to nothing else.
    until("little is held", || loaded() < 300 * 1200).await;
    engine.stop().await;
    let tried = bed.rows(number, Status::Pending) as i64;
    assert!(tried < 100, "{tried}");
    assert_eq!(bed.position(number), before + tried);
}

#[tokio::test]
async fn a_ping_reaches_a_failing_endpoint_at_once_and_only_once() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.kind() {
        "ping" => Reply::Status(200),
        _ => Reply::Status(500),
    })
    .await;
    let (number, id) = bed.endpoint(&sink, json!({ "retry_schedule": [] })).await;
    let hold_longest = std::time::Duration::from_millis(100);
    let engine = bed.start_with(Limits { batch: 40, hold_longest, ..limits() });
    let pings = || sink.seen().iter().filter(|request| request.kind() == "ping").count();
    until("the first ping", || pings() == 1).await;
    bed.tell(&["book_1"; 40]);
    until("held back", || bed.rows(number, Status::Failed) >= 6).await;
    bed.act(Builtin::Endpoint, &id, "ping").await;
    until("another ping", || bed.rows(number, Status::Succeeded) == 2).await;
    assert!(bed.rows(number, Status::Failed) < 40, "it waited for the backlog");
    // The log brings it again to whoever reads through the backlog.
    bed.tell(&["book_2"]);
    until("the backlog is gone", || bed.rows(number, Status::Failed) == 41).await;
    engine.stop().await;
    assert_eq!(pings(), 2);
    assert_eq!(bed.position(number), bed.newest());
}

#[tokio::test]
async fn an_endpoint_that_fails_now_and_then_still_gets_every_event_once() {
    let bed = Bed::new();
    let sink = Sink::new(|_, number| match number % 200 {
        100..120 => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let schedule = json!({ "retry_schedule": [] });
    let (number, _) = bed.endpoint(&sink, schedule).await;
    bed.tell(&["book_1"; 600]);
    let engine = bed.start_with(Limits {
        batch: 40,
        hold_first: std::time::Duration::from_millis(2),
        hold_longest: std::time::Duration::from_millis(10),
        ..limits()
    });
    let count = || bed.rows(number, Status::Succeeded) + bed.rows(number, Status::Failed);
    until("half", || count() > 300).await;
    bed.tell(&["book_2"; 600]);
    until("all", || count() == 1201).await;
    engine.stop().await;
    each_once(&sink, 1200);
    assert_eq!(bed.position(number), bed.newest());
}
