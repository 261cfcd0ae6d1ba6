//! Erasures: unreadable at once, removed from the file in slices, also after a restart.

use crate::fairness::until;
use crate::files::open;
use crate::support::*;
use model::query::{Page, Query};
use model::schema::Builtin;
use model::write::{Committed, Response};
use serde_json::json;
use std::path::Path;
use store::Error;
use store::sqlite::Role;

fn erasures() -> usize {
    schema().own(Builtin::Erasure)
}

fn raw(path: &Path, sql: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn an_erasure_applies_at_once_and_is_finished_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = open(&path, schema(), Role::Server).unwrap();
    let made = bed.put(book("Secret 0", json!(1))).await;
    for from in (1..6_000).step_by(500) {
        let changes = (from..from + 500)
            .map(|n| merge(BOOKS, &made.id, json!({ "title": format!("Secret {n}") })));
        bed.put_all(changes.collect::<Vec<_>>()).await;
    }
    let events = bed.newest();
    // Another account tells of a resource of the same name.
    let said = json!({"type": "report.ready", "resource": made.id,
        "data": {"object": {"title": "Theirs"}}});
    let theirs = schema().own(Builtin::Event);
    let theirs = model::Write { scope: THERE, ..create(theirs, said) };
    bed.put(theirs).await;
    let erasure = bed.put(create(erasures(), json!({"resource": made.id}))).await;
    assert_eq!(value(&erasure, "events"), events);
    let told = bed.store.events(Some(HERE), 0, 256).await.unwrap();
    assert!(told.iter().all(|event| !event.object.contains("Secret")), "nobody reads it");
    assert!(told.iter().all(|event| event.previous.is_none()));
    let later = bed.put(merge(BOOKS, &made.id, json!({"title": "Public"}))).await;
    // As after a crash: the files as they are at this moment.
    let crashed = directory.path().join("crashed.db");
    std::fs::copy(&path, &crashed).unwrap();
    std::fs::copy(path.with_extension("db-wal"), crashed.with_extension("db-wal")).unwrap();
    for path in [&path, &crashed] {
        let bed = match path == &crashed {
            true => Some(open(path, schema(), Role::Server).unwrap()),
            false => None,
        };
        let (secrets, pending) = (
            "SELECT count(*) FROM log WHERE (object LIKE '%Secret%' OR previous LIKE '%Secret%') \
             AND scope = 20 AND seq < (SELECT max(seq) FROM log)",
            "SELECT count(*) FROM erasing",
        );
        until("the file is clean", || raw(path, pending) == 0).await;
        assert_eq!(raw(path, secrets), 0);
        assert_eq!(raw(path, "SELECT count(*) FROM log WHERE object LIKE '%Theirs%'"), 1);
        assert_eq!(raw(path, "SELECT count(*) FROM log WHERE object LIKE '%Public%'"), 1);
        drop(bed);
    }
    let event = bed.store.events(Some(HERE), later.version - 1, 1).await.unwrap().remove(0);
    assert!(event.object.contains("Public"), "what was said since then stays");
}

#[tokio::test]
async fn an_erasure_that_fails_holds_up_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = open(&path, schema(), Role::Server).unwrap();
    let broken = bed.put(book("Broken", json!(1))).await;
    let other = bed.put(book("Mine", json!(1))).await;
    let theirs = bed.put(model::Write { scope: THERE, ..book("Theirs", json!(1)) }).await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    let stop = format!(
        "CREATE TRIGGER stop BEFORE UPDATE ON log WHEN old.record = '{}' \
         BEGIN SELECT RAISE(ABORT, 'broken'); END",
        broken.id
    );
    connection.execute_batch(&stop).unwrap();
    for (scope, id) in [(HERE, &broken.id), (HERE, &other.id), (THERE, &theirs.id)] {
        let write = create(erasures(), json!({"resource": id}));
        bed.put(model::Write { scope, ..write }).await;
    }
    let left = "SELECT count(*) FROM erasing";
    until("the others are erased", || raw(&path, left) == 1).await;
    connection.execute_batch("DROP TRIGGER stop").unwrap();
    until("the last one is erased", || raw(&path, left) == 0).await;
}

#[tokio::test]
async fn an_erasure_covers_remembered_responses() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = open(&path, schema(), Role::Server).unwrap();
    let create_it = || keyed(book("Secret", json!(1)), "create", 1);
    let made = bed.put(create_it()).await;
    let same = || keyed(merge(BOOKS, &made.id, json!({"title": "Secret"})), "same", 2);
    bed.put(same()).await;
    let publish = || {
        let said = json!({"type": "report.ready", "resource": made.id,
            "data": {"object": {"object": "report", "title": "Secret"}}});
        keyed(create(schema().own(Builtin::Event), said), "publish", 3)
    };
    let published = bed.put(publish()).await;
    bed.put(create(erasures(), json!({"resource": made.id}))).await;
    let check = async || {
        let erased = json!({"id": made.id, "object": "book", "erased": true});
        for again in [create_it(), same(), publish()] {
            let answer = bed.commit(again).await.unwrap().unwrap();
            let Committed::Replayed { response, .. } = answer else { panic!("not replayed") };
            let (Response::Created(record) | Response::Updated(record)) = response else {
                panic!("no record")
            };
            assert!(!record.body.contains("Secret"), "{}", record.body);
            let body: serde_json::Value = serde_json::from_str(&record.body).unwrap();
            if record.id == published.id {
                let left = json!({"id": made.id, "object": "report", "erased": true});
                assert_eq!(body["data"], json!({ "object": left }));
            } else {
                assert_eq!(body, erased);
            }
        }
    };
    check().await;
    until("the file is clean", || raw(&path, "SELECT count(*) FROM erasing") == 0).await;
    assert_eq!(raw(&path, "SELECT count(*) FROM remembered WHERE text LIKE '%Secret%'"), 0);
    check().await;
    let fresh = bed.put(keyed(merge(BOOKS, &made.id, json!({"title": "New"})), "new", 4)).await;
    assert_eq!(value(&fresh, "title"), "New");
}

#[tokio::test]
async fn a_list_that_reaches_an_erased_sort_key_ends_instead_of_skipping_rows() {
    let directory = tempfile::tempdir().unwrap();
    let bed = open(&directory.path().join("data.db"), schema(), Role::Server).unwrap();
    let mut books = Vec::new();
    for n in 0..6 {
        books.push(bed.put(book(&format!("T{n}"), json!(n))).await);
    }
    let first = query("title", 2);
    let page = bed.list(&first).await;
    let next = Query { page: Page::After(page.position.unwrap()), ..first };
    bed.put(merge(BOOKS, &books[4].id, json!({"title": "A"}))).await;
    assert_eq!(titles(&bed.list(&next).await.records), ["T2", "T3"], "it moved behind us");
    bed.put(create(erasures(), json!({"resource": books[4].id}))).await;
    let refused = bed.store.list(HERE, BOOKS, &next).await;
    assert!(matches!(refused, Err(Error::SnapshotTooOld)), "{refused:?}");
}
