//! Many endpoints that enable none of the newest events: creating, stopping, killing and starting
//! costs them no reads and no positions of their own, and they miss no event.

use crate::bed::{Bed, HERE, limits, until};
use crate::sink::{Reply, Sink};
use model::event::Event;
use serde_json::json;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use store::Status;
use webhooks::Limits;

const ENDPOINTS: usize = 300;
const EVENTS: usize = 3_000;
const BATCH: usize = 64;
const POSITION_ROWS: usize = 100;

async fn quiet_endpoints(bed: &Bed, sink: &Sink, count: usize) -> Vec<i64> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        let enabled = json!({ "enabled_events": ["order.created"] });
        numbers.push(bed.endpoint(sink, enabled).await.0);
    }
    numbers
}

/// Events of the type that quiet endpoints enable.
fn tell_wanted(bed: &Bed, count: usize) {
    let event = || Event { kind: "order.created".into(), ..bed.event("order_1") };
    bed.store.append((0..count).map(|_| event()));
}

/// Every endpoint is at the newest event, by what is durable.
fn all_at_newest(bed: &Bed) -> bool {
    let newest = bed.newest();
    let inner = bed.store.look();
    inner.head == Some(newest) && inner.positions.is_empty()
}

/// Starts after a kill that left the endpoints behind by `EVENTS`. Until all have caught up: reads
/// of the log, and most positions written at a time.
async fn catch_up(with_rows: bool) -> (usize, usize) {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let numbers = quiet_endpoints(&bed, &sink, ENDPOINTS).await;
    let engine = bed.start();
    let sent = || bed.rows_of_all(Status::Succeeded);
    until("the pings", || sent() == ENDPOINTS).await;
    until("the head", || all_at_newest(&bed)).await;
    engine.crash().await;
    if with_rows {
        // As if killed before the first outcome was reflected in a position.
        let rows = numbers.iter().map(|number| (*number, *number));
        bed.store.look().positions.extend(rows);
    }
    bed.tell_large(HERE, EVENTS, 10);
    bed.store.look().most_positions = 0;
    let before = bed.store.reads.load(SeqCst);
    let tick = Duration::from_millis(200);
    let position_rows = POSITION_ROWS;
    let engine = bed.start_with(Limits { batch: BATCH, tick, position_rows, ..limits() });
    until("all caught up", || all_at_newest(&bed)).await;
    let reads = bed.store.reads.load(SeqCst) - before;
    let most_positions = bed.store.look().most_positions;
    tell_wanted(&bed, 2);
    until("nothing is lost", || sent() == ENDPOINTS * 3).await;
    engine.stop().await;
    assert_eq!(sink.count(), ENDPOINTS * 3, "nothing is sent twice");
    (reads, most_positions)
}

#[tokio::test]
async fn quiet_endpoints_catch_up_after_a_kill_with_one_read_for_all_and_without_positions() {
    let (reads, most_positions) = catch_up(false).await;
    assert!(reads <= EVENTS / BATCH + 10, "{reads} reads");
    assert_eq!(most_positions, 0);
}

#[tokio::test]
async fn quiet_endpoints_with_positions_of_their_own_share_reads_and_write_few_positions_at_a_time()
{
    let (reads, most_positions) = catch_up(true).await;
    // Their creation and their pings, too, are in the range.
    assert!(reads <= (EVENTS + 2 * ENDPOINTS) / BATCH + 10, "{reads} reads");
    assert!(most_positions <= POSITION_ROWS, "{most_positions} positions at a time");
}

#[tokio::test]
async fn endpoints_that_are_created_faster_than_the_engine_looks_at_them_do_not_fall_behind() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let engine = bed.start_with(Limits { steps: 1, tick: Duration::from_secs(60), ..limits() });
    quiet_endpoints(&bed, &sink, 2 * ENDPOINTS).await;
    until("the pings", || sink.count() == 2 * ENDPOINTS).await;
    engine.stop().await;
    assert!(all_at_newest(&bed), "{} positions", bed.store.look().positions.len());
}

#[tokio::test]
async fn a_stop_leaves_quiet_endpoints_at_the_newest_event_and_the_others_before_theirs() {
    let bed = Bed::new();
    let (sink, busy) = (Sink::willing().await, Sink::willing().await);
    quiet_endpoints(&bed, &sink, 20).await;
    let (number, _) = bed.endpoint(&busy, json!({ "enabled_events": ["book.created"] })).await;
    let engine = bed.start_with(Limits { batch: BATCH, ..limits() });
    until("the pings", || bed.rows_of_all(Status::Succeeded) == 21).await;
    bed.tell_large(HERE, EVENTS, 10);
    engine.stop().await;
    let (newest, head) = (bed.newest(), bed.store.look().head);
    assert_eq!(head, Some(newest));
    let behind: Vec<i64> = bed.store.look().positions.keys().copied().collect();
    assert!(behind.is_empty() || behind == [number], "{behind:?}");
    let engine = bed.start();
    until("nothing is lost", || bed.rows(number, Status::Succeeded) == EVENTS + 1).await;
    engine.stop().await;
    assert!(all_at_newest(&bed));
    assert_eq!(busy.events().len(), EVENTS);
}

/// Rounds of events that some endpoints enable, each ended by a kill at another moment, with fewer
/// rows of positions than there are endpoints behind.
#[tokio::test]
async fn kills_at_any_moment_lose_no_event_of_endpoints_that_share_the_stored_head() {
    let bed = Bed::new();
    let sink = Sink::new(|_, number| match number % 7 {
        0 => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let quiet = quiet_endpoints(&bed, &sink, 20).await;
    let mut busy = Vec::new();
    for _ in 0..10 {
        let enabled = json!({ "enabled_events": ["book.created"], "retry_schedule": [] });
        busy.push(bed.endpoint(&sink, enabled).await.0);
    }
    let hurried = Limits {
        batch: 16,
        position_rows: 2,
        tick: Duration::from_millis(3),
        settle_rest: Duration::from_millis(1),
        hold_first: Duration::from_millis(2),
        hold_longest: Duration::from_millis(5),
        ..limits()
    };
    let (mut books, mut orders) = (0, 0);
    for round in 0..24 {
        let engine = bed.start_with(hurried.clone());
        bed.tell_large(HERE, 20, 10);
        books += 20;
        // waits for: the moment of the kill
        tokio::time::sleep(Duration::from_millis(round * 5 % 31)).await;
        if round % 3 == 0 {
            tell_wanted(&bed, 1);
            orders += 1;
        }
        match round % 8 {
            7 => engine.stop().await,
            _ => engine.crash().await,
        }
    }
    let engine = bed.start_with(hurried);
    let has = |number: i64, kind: &str| {
        let inner = bed.store.look();
        let wanted = inner.events.iter().filter(|event| event.kind == kind);
        wanted.filter(|event| inner.rows.contains_key(&(number, event.seq))).count()
    };
    until("all", || {
        quiet.iter().all(|number| has(*number, "order.created") == orders)
            && busy.iter().all(|number| has(*number, "book.created") == books)
    })
    .await;
    until("all at the newest", || all_at_newest(&bed)).await;
    engine.stop().await;
}
