//! One endpoint's trouble is nobody else's.

use crate::bed::{Bed, limits, until};
use crate::sink::{Reply, Sink};
use serde_json::json;
use std::time::{Duration, Instant};
use store::Status;
use webhooks::Limits;

#[tokio::test]
async fn endpoints_that_hang_do_not_slow_the_others() {
    let bed = Bed::new();
    let (hanging, willing) = (Sink::new(|_, _| Reply::Hang).await, Sink::willing().await);
    for _ in 0..10 {
        bed.endpoint(&hanging, json!({ "max_in_flight": 100, "timeout": 30 })).await;
    }
    let (number, _) = bed.endpoint(&willing, json!({})).await;
    let engine = bed.start_with(Limits { in_flight: 32, drain: Duration::ZERO, ..limits() });
    let begun = Instant::now();
    let many: Vec<String> = (0..1000).map(|n| format!("book_{n}")).collect();
    bed.tell(&many.iter().map(String::as_str).collect::<Vec<_>>());
    until("all reached the willing one", || bed.rows(number, Status::Succeeded) == 1001).await;
    // Far below the thirty seconds after which the others are given up.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    engine.stop().await;
}

#[tokio::test]
async fn endpoints_that_hung_while_they_were_trusted_leave_room_for_others() {
    let bed = Bed::new();
    let turned = Sink::new(|_, number| match number {
        0..300 => Reply::Status(200),
        _ => Reply::Hang,
    })
    .await;
    let willing = Sink::willing().await;
    bed.endpoint(&turned, json!({ "max_in_flight": 100 })).await;
    let (number, _) = bed.endpoint(&willing, json!({})).await;
    let engine = bed.start_with(Limits { in_flight: 32, drain: Duration::ZERO, ..limits() });
    let begun = Instant::now();
    for round in 0..10 {
        let many: Vec<String> = (0..100).map(|n| format!("book_{round}_{n}")).collect();
        bed.tell(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let all = 1 + 100 * (round + 1);
        until("a round", || bed.rows(number, Status::Succeeded) == all).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    engine.stop().await;
}

#[tokio::test]
async fn no_more_is_sent_than_an_endpoint_allows() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    bed.endpoint(&sink, json!({ "rate_limit": 20 })).await;
    let engine = bed.start();
    until("the ping", || sink.count() == 1).await;
    let many: Vec<String> = (0..30).map(|n| format!("book_{n}")).collect();
    bed.tell(&many.iter().map(String::as_str).collect::<Vec<_>>());
    until("all", || sink.events().len() == 30).await;
    engine.stop().await;
    let seen = sink.events();
    // A second's worth at once, the other ten in half a second.
    assert!(seen[29].at - seen[0].at >= Duration::from_millis(450));
    assert!(seen[19].at - seen[0].at < Duration::from_millis(450));
}
