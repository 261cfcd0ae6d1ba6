//! What one account does is nobody else's trouble: while its receivers hang, its events are large
//! and its backlog is long, the other account's events arrive at once, and its own once it
//! recovers.

use crate::bed::{Bed, HERE, THERE, limits, until};
use crate::sink::{Gate, Sink};
use model::schema::Builtin;
use serde_json::json;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use store::Status;
use webhooks::Limits;

const LARGE: usize = 120 << 10;

/// The other account with a willing receiver.
struct Other {
    sink: Sink,
    number: i64,
    sent: usize,
}

impl Other {
    async fn new(bed: &Bed) -> Other {
        let sink = Sink::willing().await;
        let (number, _) = bed.endpoint_in(THERE, &sink, json!({})).await;
        Other { sink, number, sent: 0 }
    }

    /// Its events arrive soon, one after the other.
    async fn is_served(&mut self, bed: &Bed) {
        for _ in 0..20 {
            let begun = Instant::now();
            bed.tell_large(THERE, 1, 100);
            self.sent += 1;
            until("the other account is served", || self.sink.events().len() == self.sent).await;
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        }
        until("its outcomes", || bed.rows(self.number, Status::Succeeded) == self.sent + 1).await;
    }
}

/// Nothing moves, so nothing may be done either: the engine waits.
async fn is_quiet(bed: &Bed) {
    // waits for: what was begun to come to rest
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = bed.store.reads.load(SeqCst);
    // waits for: reads that would wrongly be made
    tokio::time::sleep(Duration::from_millis(300)).await;
    let reads = bed.store.reads.load(SeqCst) - before;
    assert!(reads < 40, "{reads} reads although nothing can move");
}

/// Stops within the time for draining, and holds nothing then.
async fn stops(engine: crate::bed::Running, limits: &Limits) {
    let begun = Instant::now();
    engine.stop().await;
    let most = limits.drain * 2 + Duration::from_secs(1);
    assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
}

fn hasty() -> Limits {
    Limits { drain: Duration::from_millis(100), ..limits() }
}

#[tokio::test]
async fn three_hundred_pings_to_a_hanging_endpoint_do_not_delay_other_accounts() {
    let (bed, gate) = (Bed::new(), Gate::closed());
    let sink = Sink::behind(&gate).await;
    let (number, id) = bed.endpoint(&sink, json!({ "timeout": 30 })).await;
    let mut other = Other::new(&bed).await;
    let engine = bed.start_with(hasty());
    for _ in 0..300 {
        bed.act(Builtin::Endpoint, &id, "ping").await;
    }
    other.is_served(&bed).await;
    is_quiet(&bed).await;
    gate.set(true);
    until("all pings", || bed.rows(number, Status::Succeeded) == 301).await;
    stops(engine, &hasty()).await;
}

#[tokio::test]
async fn twenty_hanging_endpoints_with_large_events_do_not_delay_other_accounts() {
    let (bed, gate) = (Bed::new(), Gate::closed());
    let sink = Sink::behind(&gate).await;
    let mut numbers = Vec::new();
    for _ in 0..20 {
        numbers.push(bed.endpoint(&sink, json!({ "timeout": 30 })).await.0);
    }
    let mut other = Other::new(&bed).await;
    let engine = bed.start_with(hasty());
    bed.tell_large(HERE, 150, LARGE);
    other.is_served(&bed).await;
    is_quiet(&bed).await;
    let held = bed.figure("restive_webhook_loaded_bytes") as usize;
    assert!(held <= hasty().loaded_bytes / 2 + 2 * LARGE, "{held}");
    gate.set(true);
    for number in numbers {
        until("all of it", || bed.rows(number, Status::Succeeded) == 151).await;
    }
    until("nothing is held", || bed.figure("restive_webhook_loaded_bytes") == 0).await;
    stops(engine, &hasty()).await;
}

#[tokio::test]
async fn forty_endpoints_that_hang_and_recover_get_all_events() {
    let (bed, gate) = (Bed::new(), Gate::closed());
    let sink = Sink::behind(&gate).await;
    let mut numbers = Vec::new();
    for _ in 0..40 {
        numbers.push(bed.endpoint(&sink, json!({ "timeout": 30 })).await.0);
    }
    let mut other = Other::new(&bed).await;
    let engine = bed.start_with(hasty());
    bed.tell_large(HERE, 100, 4 << 10);
    other.is_served(&bed).await;
    bed.tell_large(HERE, 100, 4 << 10);
    other.is_served(&bed).await;
    is_quiet(&bed).await;
    gate.set(true);
    for number in numbers {
        until("all of it", || bed.rows(number, Status::Succeeded) == 201).await;
    }
    other.is_served(&bed).await;
    stops(engine, &hasty()).await;
}

#[tokio::test]
async fn a_slow_replay_of_large_events_does_not_delay_other_accounts() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, id) = bed.endpoint(&sink, json!({})).await;
    let mut other = Other::new(&bed).await;
    let limits = Limits { loaded_bytes: 4 << 20, ..hasty() };
    let engine = bed.start_with(limits.clone());
    bed.tell_large(HERE, 100, LARGE);
    until("delivered", || bed.rows(number, Status::Succeeded) == 101).await;
    bed.replay(&id, json!({ "rate_limit": 1 })).await;
    until("it has begun", || sink.events().len() > 100).await;
    other.is_served(&bed).await;
    is_quiet(&bed).await;
    bed.tell_large(HERE, 5, LARGE);
    until("its own new events", || bed.rows(number, Status::Succeeded) == 106).await;
    stops(engine, &limits).await;
}

#[tokio::test]
async fn more_hanging_endpoints_than_slots_do_not_delay_other_accounts() {
    let (bed, gate) = (Bed::new(), Gate::closed());
    let sink = Sink::behind(&gate).await;
    for _ in 0..100 {
        bed.endpoint(&sink, json!({ "timeout": 30 })).await;
    }
    let mut other = Other::new(&bed).await;
    let limits = Limits { in_flight: 32, ..hasty() };
    let engine = bed.start_with(limits.clone());
    bed.tell_large(HERE, 20, 100);
    until("its share is taken", || sink.most() == 16).await;
    other.is_served(&bed).await;
    gate.set(true);
    until("all of it", || sink.events().len() == 2000).await;
    stops(engine, &limits).await;
}

#[tokio::test]
async fn ordered_events_that_wait_for_hours_hold_no_memory() {
    let bed = Bed::new();
    let sink = Sink::new(|request, number| match (request.kind(), number) {
        ("ping", _) => crate::sink::Reply::Status(200),
        (_, ..=1) => crate::sink::Reply::Status(500),
        _ => crate::sink::Reply::Status(200),
    })
    .await;
    let more = json!({ "ordering": "resource", "retry_schedule": [7200, 7200] });
    let (number, _) = bed.endpoint(&sink, more).await;
    let mut other = Other::new(&bed).await;
    let engine = bed.start_with(Limits { loaded_bytes: 2 << 20, ..hasty() });
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    for _ in 0..40 {
        bed.tell_large(HERE, 1, LARGE);
    }
    until("the first failed", || bed.rows(number, Status::Pending) == 1).await;
    other.is_served(&bed).await;
    until("nothing is held", || bed.figure("restive_webhook_loaded_bytes") == 0).await;
    // Two hours, and the jitter that is added to them.
    bed.clock.advance(4 * 3600);
    until("all of it", || bed.rows(number, Status::Succeeded) == 41).await;
    let seqs: Vec<_> = sink.events().iter().skip(1).map(|request| request.at).collect();
    assert!(seqs.is_sorted());
    stops(engine, &hasty()).await;
}

#[tokio::test]
async fn endpoints_that_keep_up_cost_no_writes() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    for _ in 0..500 {
        bed.endpoint(&sink, json!({ "enabled_events": ["order.created"] })).await;
    }
    let engine = bed.start();
    until("the pings", || bed.rows_of_all(Status::Succeeded) == 500).await;
    until("positions", || bed.store.look().positions.is_empty()).await;
    let before = bed.store.look().positions_written;
    for _ in 0..50 {
        bed.tell_large(HERE, 40, 10);
        // waits for: some ticks, at each of which positions are written
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let newest = bed.newest();
    until("the head", || bed.store.look().head == Some(newest)).await;
    assert_eq!(bed.store.look().positions_written, before);
    engine.stop().await;
}

#[tokio::test]
async fn failures_of_an_endpoint_survive_a_restart() {
    let bed = Bed::new();
    let sink = Sink::new(|_, _| crate::sink::Reply::Status(500)).await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    bed.tell_large(HERE, 3, 10);
    let failures = || bed.store.look().failures.get(&number).map(|failures| failures.count);
    until("counted", || failures() == Some(3)).await;
    engine.stop().await;
    let engine = bed.start();
    bed.tell_large(HERE, 2, 10);
    until("counted on", || failures() == Some(5)).await;
    engine.stop().await;
}

#[tokio::test]
async fn forty_greedy_accounts_leave_a_share_for_one_more() {
    let (bed, gate) = (Bed::new(), Gate::closed());
    let sink = Sink::behind(&gate).await;
    for account in 10..50 {
        let scope = model::Scope(2 * account);
        bed.endpoint_in(scope, &sink, json!({ "timeout": 30, "max_in_flight": 50 })).await;
        bed.tell_large(scope, 100, 4 << 10);
    }
    let limits = Limits { loaded_bytes: 1 << 20, ..hasty() };
    let engine = bed.start_with(limits.clone());
    let full = || bed.figure("restive_webhook_loaded_bytes") > (1 << 20) * 9 / 10;
    until("hardly any room is left", full).await;
    // This one begins with a read of the log: its endpoint is behind.
    let willing = Sink::willing().await;
    let last = model::Scope(200);
    let (_, id) = bed.endpoint_in(last, &willing, json!({ "status": "disabled" })).await;
    bed.act_in(last, Builtin::Endpoint, &id, "enable").await;
    let begun = Instant::now();
    bed.tell_large(last, 3, 100);
    until("it is served", || willing.events().len() == 3).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    gate.set(true);
    stops(engine, &limits).await;
}

#[tokio::test]
async fn endpoints_that_wait_for_a_slot_keep_their_turn_when_others_are_deleted() {
    let (bed, gate) = (Bed::new(), Gate::closed());
    let sink = Sink::behind(&gate).await;
    let mut hooks = Vec::new();
    for _ in 0..12 {
        hooks.push(bed.endpoint(&sink, json!({ "timeout": 30, "max_in_flight": 4 })).await);
    }
    let limits = Limits { in_flight: 4, ..hasty() };
    let engine = bed.start_with(limits.clone());
    bed.tell_large(HERE, 5, 100);
    until("all places of the account are taken", || sink.count() >= 2).await;
    // waits for: the others to find no place
    tokio::time::sleep(Duration::from_millis(50)).await;
    for (_, id) in hooks.drain(..8) {
        let delete = model::Change::Delete;
        bed.write_in(HERE, Builtin::Endpoint, Some(&id), delete).await;
    }
    gate.set(true);
    for (number, _) in hooks {
        until("all of it", || bed.rows(number, Status::Succeeded) == 6).await;
    }
    stops(engine, &limits).await;
}

#[tokio::test]
async fn enabling_an_endpoint_clears_its_failures() {
    let bed = Bed::new();
    let sink = Sink::new(|_, _| crate::sink::Reply::Status(500)).await;
    let more = json!({ "retry_schedule": [60, 60, 60, 60, 60, 60, 60, 60] });
    let (number, id) = bed.endpoint(&sink, more).await;
    let engine = bed.start();
    bed.tell_large(HERE, 3, 100);
    until("its failures are written", || bed.store.look().failures.contains_key(&number)).await;
    bed.act(Builtin::Endpoint, &id, "disable").await;
    bed.tell_large(HERE, 1, 100);
    until("it is disabled", || bed.rows(number, Status::Skipped) > 0).await;
    bed.act(Builtin::Endpoint, &id, "enable").await;
    until("they are forgotten", || !bed.store.look().failures.contains_key(&number)).await;
    engine.stop().await;
    assert!(!bed.store.look().failures.contains_key(&number));
    let engine = bed.start();
    crate::bed::linger().await;
    engine.stop().await;
    assert!(!bed.store.look().failures.contains_key(&number), "nothing failed since");
}
