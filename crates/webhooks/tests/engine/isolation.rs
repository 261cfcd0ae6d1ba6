//! One endpoint's trouble is nobody else's.

use crate::bed::{Bed, HERE, THERE, limits, linger, until};
use crate::sink::{Reply, Sink};
use model::event::Event;
use model::record::Fields;
use model::schema::Builtin;
use model::{Change, Scope};
use serde_json::json;
use std::sync::atomic::Ordering::SeqCst;
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
async fn endpoints_that_hang_after_successes_do_not_block_others() {
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
async fn the_rate_limit_of_an_endpoint_is_respected() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let engine = bed.start();
    let other = Sink::willing().await;
    bed.endpoint(&other, json!({})).await;
    until("the engine runs", || other.count() == 1).await;
    bed.endpoint(&sink, json!({ "rate_limit": 20 })).await;
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

/// Each change of an endpoint is read from the store before the head goes on.
#[tokio::test]
async fn frequent_changes_of_endpoints_do_not_delay_events() {
    const CHANGES: u64 = 400;
    let bed = Bed::new();
    let (busy, willing) = (Sink::willing().await, Sink::willing().await);
    let (_, id) = bed.endpoint(&busy, json!({})).await;
    bed.endpoint_in(THERE, &willing, json!({})).await;
    let engine = bed.start();
    until("both have their pings", || busy.count() + willing.count() == 2).await;
    // Nothing is read until all of it is there.
    bed.store.deaf.store(true, SeqCst);
    for number in 0..CHANGES {
        let mut patch = Fields::new();
        patch.insert("description".to_owned(), json!(number.to_string()));
        bed.write(Builtin::Endpoint, Some(&id), Change::Merge { patch }).await;
    }
    bed.store.append([Event { scope: THERE, ..bed.event("book_1") }]);
    let before = bed.clock.looks.load(SeqCst);
    bed.store.deaf.store(false, SeqCst);
    until("the event behind the changes", || willing.events().len() == 1).await;
    let passes = bed.clock.looks.load(SeqCst) - before;
    // One pass for each change, and whatever other accounts do in each pass would come in between.
    assert!(passes < CHANGES / 4, "{passes} passes for {CHANGES} changes");
    engine.stop().await;
}

/// An account pays for the time of its filters together with those that pay at the same time, not
/// with all that ever had a filter.
#[tokio::test]
async fn filters_of_idle_accounts_do_not_slow_down_other_filters() {
    const ACCOUNTS: i64 = 100;
    const EVENTS: usize = 1000;
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let filter = "has(event.data.object.title) && type(event.data.object.title) == string && \
                  event.data.object.title.matches('^[A-Z][a-z]+$')";
    for account in 0..ACCOUNTS {
        bed.endpoint_in(Scope(20 * account + 40), &sink, json!({ "filter": filter })).await;
    }
    let (number, _) = bed.endpoint(&sink, json!({ "filter": filter })).await;
    let engine = bed.start();
    until("the pings", || sink.count() == ACCOUNTS as usize + 1).await;
    let event = |scope: Scope| Event { scope, ..bed.event("book_1") };
    bed.store.append((0..ACCOUNTS).map(|account| event(Scope(20 * account + 40))));
    until("one event each", || sink.events().len() == ACCOUNTS as usize).await;
    // A few ticks, in which those are forgotten that have paid.
    linger().await;
    let begun = Instant::now();
    bed.store.append((0..EVENTS).map(|_| event(HERE)));
    until("all of them", || bed.rows(number, Status::Succeeded) == EVENTS + 1).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    engine.stop().await;
}
