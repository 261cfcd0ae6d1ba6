//! Stored responses on disk: the room that they take, and their removal.

use crate::support::*;
use model::schema::Builtin;
use model::write::{Committed, Response};
use model::{Timestamp, Write};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use store::sqlite::{Clock, Options, Role, SqliteStore};

const HOUR: i64 = 60 * 60 * 1000;

fn serve(path: &Path) -> Bed {
    let time = Arc::new(AtomicI64::new(START));
    let hand = time.clone();
    let clock: Clock = Arc::new(move || Timestamp(hand.load(Ordering::Relaxed)));
    let options =
        Options { role: Role::Server, steady: Some(clock.clone()), clock, ..Options::default() };
    let store = SqliteStore::open_with(path, Arc::new(schema()), options).unwrap();
    Bed { store, time, _keep: Box::new(()) }
}

fn raw(path: &Path, sql: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

async fn replayed(bed: &Bed, write: Write) -> Response {
    match bed.commit(write).await.unwrap().unwrap() {
        Committed::Replayed { response, .. } => response,
        fresh => panic!("not replayed: {fresh:?}"),
    }
}

#[tokio::test]
async fn updates_that_change_nothing_do_not_store_the_record_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = serve(&path);
    let made = bed.put(book(&"x".repeat(200_000), json!(1))).await;
    let same =
        |key: usize| keyed(merge(BOOKS, &made.id, json!({"price": 1})), &format!("k{key}"), 1);
    let texts = || raw(&path, "SELECT count(*) FROM remembered WHERE text IS NOT NULL");
    for key in 0..40 {
        bed.put(same(key)).await;
    }
    bed.pass(5 * HOUR);
    bed.put(same(40)).await;
    assert_eq!(texts(), 1, "they share one text");
    bed.pass(2 * HOUR);
    bed.put(same(41)).await;
    bed.put(same(42)).await;
    assert_eq!(texts(), 2, "a text is shared for some hours");
    // The answer stays the same, whatever becomes of the record.
    bed.put(merge(BOOKS, &made.id, json!({"price": 2}))).await;
    for key in 0..43 {
        assert_eq!(replayed(&bed, same(key)).await, Response::Updated(made.clone()), "k{key}");
    }
    // A key that has expired is used again: others still share what was stored under it.
    bed.pass(17 * HOUR);
    for key in 0..40 {
        bed.put(keyed(book("other", json!(1)), &format!("k{key}"), 2)).await;
    }
    bed.pass(4 * HOUR);
    drop(bed);
    let bed = serve(&path);
    bed.pass(28 * HOUR);
    for key in 40..43 {
        assert_eq!(replayed(&bed, same(key)).await, Response::Updated(made.clone()), "k{key}");
    }
}

#[tokio::test]
async fn an_erasure_covers_answers_that_share_a_text_and_not_those_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = serve(&path);
    let made = bed.put(book(&"Secret".repeat(1000), json!(1))).await;
    let same =
        |key: usize| keyed(merge(BOOKS, &made.id, json!({"price": 1})), &format!("k{key}"), 1);
    for key in 0..3 {
        bed.put(same(key)).await;
    }
    let erasures = schema().own(Builtin::Erasure);
    bed.put(create(erasures, json!({ "resource": made.id }))).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let pending = raw(&path, "SELECT count(*) FROM erasing");
        for key in 0..3 {
            let Response::Updated(shown) = replayed(&bed, same(key)).await else { panic!() };
            assert!(shown.body.contains("\"erased\":true"), "{}", shown.body);
        }
        if pending == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "the erasure never ends");
    }
    for key in 3..5 {
        bed.put(same(key)).await;
        assert_eq!(replayed(&bed, same(key)).await, Response::Updated(made.clone()));
    }
}

#[tokio::test]
async fn large_expired_answers_are_all_removed_while_others_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    drop(serve(&path));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i LIMIT 2000) \
             INSERT INTO remembered (scope, digest, fingerprint, created, kind, seq, number, \
             updated, record, text, request) SELECT 20, randomblob(16), zeroblob(32), 1, 1, n, 1, \
             1, 'x', iif(n % 20 = 0, hex(zeroblob(100000)), NULL), '' FROM i",
        )
        .unwrap();
    drop(connection);
    let bed = serve(&path);
    let deadline = Instant::now() + Duration::from_secs(60);
    for n in 0.. {
        bed.put(keyed(book("T", json!(n)), &format!("k{n}"), 1)).await;
        let expired = raw(&path, "SELECT count(*) FROM remembered WHERE created = 1");
        if expired == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{expired} are left");
    }
}
