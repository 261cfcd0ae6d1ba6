//! A wall clock that somebody sets: back, retries come as their schedule says; ahead, no more is
//! sent at a time than ever.

use crate::bed::{Bed, limits, linger, until};
use crate::sink::{Reply, Sink};
use serde_json::json;
use std::time::Duration;
use store::Status;
use webhooks::Limits;

const HOUR: i64 = 3600;

/// Fails everything but pings.
async fn refusing() -> Sink {
    Sink::new(|request, _| match request.kind() {
        "ping" => Reply::Status(200),
        _ => Reply::Status(500),
    })
    .await
}

#[tokio::test]
async fn a_clock_that_is_set_back_delays_no_retry() {
    let bed = Bed::new();
    let sink = refusing().await;
    let (number, _) = bed.endpoint(&sink, json!({ "retry_schedule": [1, 1, 1] })).await;
    let engine = bed.start();
    bed.tell(&["book_1"]);
    let seq = bed.newest();
    let attempts = |count| bed.row(number, seq).is_some_and(|row| row.attempts == count);
    until("the first attempt", || attempts(1)).await;
    bed.clock.advance(-HOUR);
    until("the second attempt", || attempts(2)).await;
    // What is planned by the clock as it is now goes by it, too.
    until("the third attempt", || attempts(3)).await;
    engine.stop().await;
    // A clock set back while nobody looked.
    bed.clock.advance(-24 * HOUR);
    let engine = bed.start();
    until("the last attempt", || attempts(4)).await;
    engine.stop().await;
    let seen = sink.events();
    let gaps = seen.windows(2).map(|pair| pair[1].at - pair[0].at);
    for gap in gaps {
        assert!(gap >= Duration::from_millis(995), "no retry comes before its time: {gap:?}");
    }
    // Whoever verifies a signature looks at the clock as it is.
    let signed = |n: usize| seen[n].headers["webhook-timestamp"].parse::<i64>().unwrap();
    assert!(signed(0) - signed(1) > HOUR - 30, "{} {}", signed(0), signed(1));
}

#[tokio::test]
async fn a_clock_that_is_set_ahead_causes_each_retry_once_and_few_at_a_time() {
    let bed = Bed::new();
    let sink = refusing().await;
    let schedule = json!({ "retry_schedule": [60, 60, 60, 60, 60], "max_in_flight": 2 });
    let (number, _) = bed.endpoint(&sink, schedule).await;
    // Nothing is held back for its failures: only the window is between the clock and a storm.
    let engine = bed.start_with(Limits { hold_after: 1000, ..limits() });
    let many: Vec<String> = (0..20).map(|n| format!("book_{n}")).collect();
    bed.tell(&many.iter().map(String::as_str).collect::<Vec<_>>());
    until("all failed once", || bed.rows_waiting() == 20).await;
    for round in 2..=3 {
        bed.clock.advance(10 * 24 * HOUR);
        let tried = || sink.events().len() == 20 * round && bed.rows_waiting() == 20;
        until("each is tried once more", tried).await;
        linger().await;
        assert_eq!(sink.events().len(), 20 * round, "and waits by its schedule again");
    }
    assert!(sink.most() <= 2, "{} at a time", sink.most());
    assert_eq!(bed.rows(number, Status::Pending), 20, "nobody was disabled");
    engine.stop().await;
}
