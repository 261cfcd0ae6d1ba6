//! One account that asks for much delays only itself. Which of several requests comes first is
//! compared, never how long one takes.

use crate::support::*;
use model::Code;
use model::query::Page;
use model::record::Scalar;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use store::Error;

/// A list that looks at every row of the account, many times over.
fn deep(page: u64) -> model::query::Query {
    let filters = vec![any_of("author", vec![Scalar::Text("Somebody".into()), Scalar::Null])];
    model::query::Query { page: Page::Offset(page), filters, ..query("title", 5) }
}

pub async fn long_reads_of_one_account_delay_only_itself(bed: Bed) {
    let rows = (0..2_000).map(|n| book(&format!("T{n}"), json!(n)));
    bed.put_all(rows.collect::<Vec<_>>()).await;
    let theirs = model::Write { scope: THERE, ..book("Theirs", json!(1)) };
    bed.put(theirs).await;
    let done = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..120)
        .map(|_| {
            let (store, done) = (bed.store.clone(), done.clone());
            tokio::spawn(async move {
                let page = store.list(HERE, BOOKS, &deep(390)).await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
                assert_eq!(page.total, Some(2_000));
            })
        })
        .collect();
    until("the first is done", || done.load(Ordering::SeqCst) > 0).await;
    for _ in 0..3 {
        let before = done.load(Ordering::SeqCst);
        let page = bed.store.list(THERE, BOOKS, &deep(1)).await.unwrap();
        assert_eq!(page.total, Some(1));
        let passed = done.load(Ordering::SeqCst) - before;
        // In one queue for all, more than a hundred would. Whoever is answered may be woken late.
        assert!(passed <= 40, "{passed} reads of another account came first");
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
}

pub async fn an_account_with_too_many_long_reads_is_refused_alone(bed: Bed) {
    bed.put_all((0..1_000).map(|n| book(&format!("T{n}"), json!(n))).collect::<Vec<_>>()).await;
    let tasks: Vec<_> = (0..400)
        .map(|_| {
            let store = bed.store.clone();
            tokio::spawn(async move { store.list(HERE, BOOKS, &deep(190)).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let theirs = bed.store.list(THERE, BOOKS, &deep(1)).await.unwrap();
    assert_eq!(theirs.total, Some(0));
    let (mut served, mut busy) = (0, 0);
    for task in tasks {
        match tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap() {
            Ok(_) => served += 1,
            Err(Error::Busy) => busy += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(served >= 120 && busy > 0, "{served} served, {busy} refused");
}

pub async fn pages_of_large_records_end_by_their_bytes_and_delay_nobody(bed: Bed) {
    let (large, small) = ("x".repeat(1 << 20), "y".repeat(1 << 10));
    for n in 0..30 {
        let text = if n % 6 == 5 { &small } else { &large };
        let title = format!("T{n:02}");
        let fields = json!({"title": title, "author": "A", "price": n % 7, "note": text});
        bed.put(create(BOOKS, fields)).await;
    }
    let theirs = bed.put(model::Write { scope: THERE, ..book("Theirs", json!(1)) }).await;
    for sort in ["-created_at", "title", "price,title", "-price,title"] {
        let whole: Vec<_> = bed.walk(BOOKS, &query(sort, 3)).await;
        assert_eq!(bed.walk(BOOKS, &query(sort, 100)).await, whole, "{sort}");
        let page = bed.list(&query(sort, 100)).await;
        let full = 4 * (1 << 20);
        let size = |one: &model::Record| one.body.len() + one.hidden.as_ref().unwrap().len();
        let bytes: Vec<usize> = page.records.iter().map(size).collect();
        let (last, before) = bytes.split_last().unwrap();
        let before: usize = before.iter().sum();
        assert!(page.has_more && before < full && before + last >= full, "{sort}: {bytes:?}");
    }
    let all = bed.walk(BOOKS, &query("title", 3)).await;
    let ids: Vec<String> = all.into_iter().map(|record| record.id).collect();
    let done = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..60)
        .map(|_| {
            let (store, done) = (bed.store.clone(), done.clone());
            tokio::spawn(async move {
                let page = store.list(HERE, BOOKS, &query("title", 100)).await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
                assert!(page.has_more);
            })
        })
        .collect();
    until("the first is done", || done.load(Ordering::SeqCst) > 0).await;
    let before = done.load(Ordering::SeqCst);
    let found = bed.store.record(THERE, BOOKS, None, &theirs.id).await.unwrap();
    assert!(found.is_some());
    let passed = done.load(Ordering::SeqCst) - before;
    assert!(passed <= 20, "{passed} pages of another account came first");
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
    let all = bed.store.by_ids(HERE, BOOKS, &ids[..7]).await.unwrap();
    assert_eq!(all.len(), 7);
    assert!(matches!(bed.store.by_ids(HERE, BOOKS, &ids).await, Err(Error::TooLarge)));
}

pub async fn timers_of_one_account_do_not_hold_up_another(bed: Bed) {
    let order = |scope| model::Write { scope, ..create(ORDERS, json!({"quantity": 1})) };
    let pay = |scope, id: &str| {
        let change = model::Change::Act { action: PAY, params: fields(json!({})), callout: None };
        model::Write { scope, ..write(ORDERS, Some(id), change) }
    };
    for _ in 0..60 {
        let made = bed.put(order(HERE)).await;
        bed.put(pay(HERE, &made.id)).await;
    }
    bed.pass(500);
    let made = bed.put(order(THERE)).await;
    bed.put(pay(THERE, &made.id)).await;
    bed.pass(5_000);
    let now = model::Timestamp(bed.time.load(Ordering::Relaxed));
    let due = bed.store.due(now, 16).await.unwrap();
    let theirs = due.timers.iter().filter(|timer| timer.scope == THERE).count();
    assert_eq!(theirs, 1, "although sixty of another account are older");
    assert!(due.next.is_some_and(|next| next <= now), "more are due");
    assert_eq!(bed.store.due(now, 100).await.unwrap().timers.len(), 61);
}

pub async fn tombstones_go_with_the_events_that_tell_of_them(bed: Bed) {
    let moment = model::Timestamp;
    let made = bed.put(book("Dune", json!(1))).await;
    bed.commit(delete(BOOKS, &made.id)).await.unwrap().unwrap();
    bed.pass(10_000);
    bed.put(book("Emma", json!(1))).await;
    // Reads its own writes, so the index has read the log.
    bed.list(&search(&["somebody"])).await;
    let again = || bed.commit(delete(BOOKS, &made.id));
    again().await.unwrap().unwrap();
    bed.store.expire(moment(START), moment(START), 100).await.unwrap();
    again().await.unwrap().unwrap();
    bed.store.expire(moment(START + 5_000), moment(START + 5_000), 100).await.unwrap();
    assert_eq!(again().await.unwrap().unwrap_err().code, Code::NotFound);
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await; // waits for: the next look
    }
}
