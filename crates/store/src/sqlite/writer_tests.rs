//! What the writer does about panics, and whose writes it takes first.

use super::testbed::{Bed, HERE, THERE, within};
use crate::usage::Used;
use crate::{Error, Log, Outbox, Records, Settlement, Upkeep};
use model::query::{Page, Query, SortKey};
use model::write::{Change, Committed, Response};
use model::{Scope, Timestamp, Write};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SCHEMA: &str = "
[collections.books.fields]
title = { type = 'string', search = true }
[collections.orders.fields]
title = 'string'
";

fn titled(bed: &Bed, scope: Scope, title: &str) -> Write {
    bed.create(scope, "books", json!({ "title": title }))
}

#[tokio::test]
async fn a_panic_fails_only_its_own_write() {
    let bed = Bed::new(SCHEMA);
    let title = |n: usize| if n % 7 == 3 { "panic" } else { "fine" };
    let mut writes: Vec<Write> = (0..60).map(|n| titled(&bed, HERE, title(n))).collect();
    writes.extend((0..60).map(|_| titled(&bed, THERE, "fine")));
    for (n, task) in bed.spawn(writes).into_iter().enumerate() {
        let answer = within(task).await.unwrap();
        let panics = n < 60 && title(n) == "panic";
        assert_eq!(matches!(answer, Err(Error::Failed(_))), panics, "{n}: {answer:?}");
    }
    let events = bed.store.events(None, 0, 200).await.unwrap();
    assert_eq!(events.len(), 51 + 60, "what panicked left nothing");
    assert!(events.windows(2).all(|pair| pair[1].seq == pair[0].seq + 1));
    within(bed.store.health()).await.unwrap();
}

#[tokio::test]
async fn a_panic_in_upkeep_fails_only_its_own_call() {
    let bed = Bed::new(SCHEMA);
    let faults = &bed.store.shared.state.faults;
    let used =
        || Used { account: "acct_1".into(), subject: "v".into(), requests: 1, last: Timestamp(1) };
    faults.set("usage");
    assert!(within(bed.store.add_usage(vec![used()])).await.is_err());
    within(bed.store.add_usage(vec![used()])).await.unwrap();
    faults.set("expire");
    assert!(within(bed.store.expire(Timestamp(1), Timestamp(1), 10)).await.is_err());
    within(bed.store.expire(Timestamp(1), Timestamp(1), 10)).await.unwrap();
    faults.set("settle");
    assert!(within(bed.store.settle(Settlement::default())).await.is_err());
    within(bed.store.settle(Settlement::default())).await.unwrap();
    // It is durable, so it is answered and written once, whatever fails afterwards.
    faults.set("publish");
    let made = bed.put(titled(&bed, HERE, "Dune")).await;
    bed.put(titled(&bed, HERE, "Emma")).await;
    assert_eq!(bed.store.events(None, 0, 9).await.unwrap().len(), 2);
    let found = bed.store.record(HERE, 0, None, &made.id).await.unwrap();
    assert_eq!(found.map(|record| record.id), Some(made.id));
    faults.set("search");
    bed.put(titled(&bed, HERE, "Ulysses")).await;
    let reached = || within(bed.store.writer.search_reaches(HERE, bed.store.shared.state.newest()));
    // After a failure the index is left alone for a moment, and searches are answered behind it.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !reached().await.unwrap() {
        assert!(std::time::Instant::now() < deadline, "the index is never fed again");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await; // waits for: the pause
    }
    let alive = bed.store.watchdog().silences();
    assert!(alive.iter().any(|one| one.name == "writer"), "{alive:?}");
}

#[tokio::test]
async fn a_timer_that_panics_is_set_aside_and_the_next_ones_fire() {
    poison_a_timer(false).await;
}

#[tokio::test]
async fn a_timer_that_panics_in_a_batch_of_its_own_is_set_aside_too() {
    poison_a_timer(true).await;
}

async fn poison_a_timer(alone: bool) {
    let bed = Bed::new(
        "
[collections.orders.states]
names = ['open', 'late']
[collections.orders.fields]
title = 'string'
[[collections.orders.timed]]
from = 'open'
to = 'late'
after = '1s'
",
    );
    for _ in 0..3 {
        bed.put(bed.create(HERE, "orders", json!({"title": "x"}))).await;
    }
    let later = Timestamp(1_700_000_100_000);
    let due = bed.store.due(later, 10).await.unwrap();
    assert_eq!(due.timers.len(), 3);
    let mut poisoned = due.timers[0].clone();
    // The panic is asked for by the id.
    let raw = rusqlite::Connection::open(&bed.store.shared.path).unwrap();
    for (table, column) in [("timers", "record"), ("r_orders", "id")] {
        let sql = format!("UPDATE {table} SET {column} = 'panic' WHERE {column} = ?1");
        assert_eq!(raw.execute(&sql, [&poisoned.id]).unwrap(), 1);
    }
    poisoned.id = "panic".into();
    let fire = |timer: &crate::Timer| {
        let change = Change::Timed { transition: timer.transition };
        Write { now: later, ..bed.write(HERE, "orders", Some(&timer.id), change) }
    };
    let mut writes: Vec<Write> = [&due.timers[1], &due.timers[2]].map(fire).into();
    let mut expected = vec![true, true];
    if alone {
        assert!(within(bed.store.commit(fire(&poisoned))).await.is_err());
    } else {
        writes.insert(0, fire(&poisoned));
        expected.insert(0, false);
    }
    let mut answers = Vec::new();
    for task in bed.spawn(writes) {
        answers.push(within(task).await.unwrap().is_ok());
    }
    assert_eq!(answers, expected);
    // It was set aside before its write was answered.
    assert!(bed.store.due(later, 10).await.unwrap().timers.is_empty());
    assert_eq!(bed.store.figures().timers_failed, 1);
    let left: i64 = raw.query_row("SELECT count(*) FROM timers", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 1, "it is kept, and never due");
}

#[tokio::test]
async fn an_account_with_many_slow_writes_delays_only_itself() {
    let bed = Bed::new(SCHEMA);
    let done = Arc::new(AtomicUsize::new(0));
    let slow: Vec<_> = (0..40).map(|_| titled(&bed, HERE, "slow")).collect();
    let slow: Vec<_> = bed
        .spawn(slow)
        .into_iter()
        .map(|task| {
            let done = done.clone();
            tokio::spawn(async move {
                task.await.unwrap().unwrap().unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while done.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        // By the numbers of the events: whoever is answered may be woken late.
        let before = bed.store.shared.state.newest();
        let made = bed.put(titled(&bed, THERE, "quick")).await;
        let passed = made.version - before - 1;
        assert!(passed <= 2, "{passed} writes of another account came first");
    }
    // Several at a time do not wait for a slow write each.
    let before = bed.store.shared.state.newest();
    let quick = bed.spawn((0..10).map(|_| titled(&bed, THERE, "quick")).collect());
    let mut last = before;
    for task in quick {
        let answer = within(task).await.unwrap().unwrap().unwrap();
        let Committed::Fresh(Response::Created(record)) = answer else { panic!("{answer:?}") };
        last = last.max(record.version);
    }
    let passed = last - before - 10;
    assert!(passed <= 4, "{passed} slow writes of another account came between");
    for task in slow {
        within(task).await.unwrap();
    }
}

#[tokio::test]
async fn a_search_waits_for_its_own_account_alone() {
    let bed = Bed::new(SCHEMA);
    let made = bed.put(titled(&bed, HERE, "Dune")).await;
    let query = Query {
        parent: None,
        filters: Vec::new(),
        sort: vec![SortKey::new("created_at", true)],
        words: vec!["dune".into()],
        revealed: Vec::new(),
        page: Page::First,
        limit: 5,
    };
    let found = within(bed.store.list(HERE, bed.ix("books"), &query)).await.unwrap();
    assert_eq!((found.search_behind, found.records.len()), (0, 1));
    // From now on the index is behind for a moment.
    bed.store.shared.state.faults.set("search");
    bed.put(titled(&bed, THERE, "Emma")).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !bed.store.shared.state.failing.load(Ordering::Acquire) {
        assert!(Instant::now() < deadline, "the index is never fed");
        tokio::task::yield_now().await;
    }
    let found = within(bed.store.list(HERE, bed.ix("books"), &query)).await.unwrap();
    assert_eq!(found.search_behind, 0);
    assert_eq!(found.records[0].id, made.id);
}

#[tokio::test]
async fn a_search_waits_a_bounded_time_for_the_index() {
    let bed = Bed::new(SCHEMA);
    bed.put(titled(&bed, HERE, "Dune")).await;
    // As if there were a backlog that takes long.
    let far = bed.store.shared.state.newest() + 1_000;
    assert!(!within(bed.store.writer.search_reaches(HERE, far)).await.unwrap());
    bed.put(titled(&bed, HERE, "Emma")).await;
    let near = bed.store.shared.state.newest();
    assert!(within(bed.store.writer.search_reaches(HERE, near)).await.unwrap());
}
