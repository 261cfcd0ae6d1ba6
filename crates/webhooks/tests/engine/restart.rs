//! What a restart makes of what was known.

use crate::bed::{Bed, limits, until};
use crate::sink::{Reply, Sink};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use store::Status;
use webhooks::Limits;

#[tokio::test]
async fn a_restart_goes_on_from_positions_and_rows() {
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
    bed.store.look().positions.clear();
    bed.tell(&["book_3"]);
    let engine = bed.start();
    until("the last", || bed.rows(number, Status::Succeeded) == 102).await;
    engine.stop().await;
    assert_eq!(sink.events().len(), 101);
}

#[tokio::test]
async fn what_had_no_durable_outcome_is_sent_again_with_the_same_id() {
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
async fn a_retry_that_came_due_while_nobody_ran_is_made_at_the_start() {
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
async fn the_end_waits_for_what_is_under_way_but_not_for_ever() {
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
