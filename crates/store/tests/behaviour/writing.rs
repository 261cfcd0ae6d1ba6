//! What the writer of a node on PostgreSQL does with batches that are large or fail, and with a
//! COMMIT that got no answer.

use crate::deliveries::{outcome, settle};
use crate::nodes::wire::Wire;
use crate::nodes::within;
use crate::postgres::Place;
use crate::support::*;
use model::schema::Kind;
use model::write::{Committed, Write};
use model::{Problem, Timestamp};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::postgres::connect::Step;
use store::{Error, Outcome, Status, Store};

const ENDPOINTS: usize = 8;

type Answer = Result<Result<Committed, Problem>, Error>;
type Writing = tokio::task::JoinHandle<Answer>;

/// A store in a schema of its own; none without a server.
fn alone() -> Option<(Place, Bed)> {
    let place = Place::new()?;
    let bed = place.open(schema(), None).unwrap();
    Some((place, bed))
}

/// Waits until a question has an answer that is not 0.
async fn until(place: &Place, question: &str) {
    within(async {
        while place.ask(question) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await; // waits for: the next look
        }
    })
    .await;
}

fn spawn(store: &Arc<dyn Store>, write: Write) -> Writing {
    let store = store.clone();
    tokio::spawn(async move { store.commit(write).await })
}

/// Commits writes that have all been queued before the first of them is taken.
async fn together(place: &Place, bed: &Bed, writes: Vec<Write>) -> Vec<Answer> {
    let holder = place.address().connect().await.unwrap();
    holder.batch("BEGIN; LOCK TABLE log IN EXCLUSIVE MODE").await.unwrap();
    let first = spawn(&bed.store, create(ORDERS, json!({})));
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'log'::regclass AND NOT granted";
    until(place, waits).await;
    let count = writes.len() as u64;
    let writing: Vec<Writing> = writes.into_iter().map(|write| spawn(&bed.store, write)).collect();
    within(async {
        while bed.store.figures().queue < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
    holder.batch("ROLLBACK").await.unwrap();
    within(first).await.unwrap().unwrap().unwrap();
    let mut answers = Vec::new();
    for one in writing {
        answers.push(within(one).await.unwrap());
    }
    answers
}

/// The number of commits that appended to the log after an event.
fn commits(place: &Place, after: i64) -> i64 {
    place.ask(&format!("SELECT count(DISTINCT xmin::text) FROM log WHERE seq > {after}"))
}

#[tokio::test]
async fn heavy_deletes_of_one_account_share_no_commit_with_all_writes_of_another() {
    let Some((place, bed)) = alone() else { return };
    let mut deletes = Vec::new();
    for n in 0..8 {
        let made = bed.put(book(&format!("T{n}"), json!(n))).await;
        let review = |n| under(create(REVIEWS, json!({"rating": n})), &made.id);
        bed.put_all((0..250).map(review).collect::<Vec<_>>()).await;
        deletes.push(delete(BOOKS, &made.id));
    }
    deletes.push(Write { scope: THERE, ..book("Theirs", json!(1)) });
    for answer in together(&place, &bed, deletes).await {
        answer.unwrap().unwrap();
    }
    let theirs = format!("SELECT xmin FROM log WHERE scope = {}", THERE.0);
    let beside = format!(
        "SELECT count(*) FROM log WHERE type = 'book.deleted' AND xmin = ({theirs}) AND \
         collection = 'books'"
    );
    assert!(place.ask(&beside) <= 3, "{} deletes are in the same commit", place.ask(&beside));
    let later = "SELECT count(*) FROM log WHERE type = 'book.deleted' AND seq > \
                 (SELECT max(seq) FROM log WHERE collection = 'books' AND type = 'book.created')";
    assert!(place.ask(later) >= 5, "only {} deletes come after it", place.ask(later));
}

#[tokio::test]
async fn a_batch_ends_by_the_bytes_that_it_writes() {
    let Some((place, bed)) = alone() else { return };
    let (before, note) = (bed.newest(), "x".repeat(1 << 20));
    let large = |n: usize| create(BOOKS, json!({"title": n.to_string(), "author": note}));
    for answer in together(&place, &bed, (0..48).map(large).collect()).await {
        answer.unwrap().unwrap();
    }
    assert!(commits(&place, before) > 2);
    // The limit counts the record and its event, and the last write may go beyond it.
    let most = "SELECT max(bytes) FROM (SELECT sum(octet_length(object)) AS bytes FROM log \
                GROUP BY xmin::text) q";
    assert!(place.ask(most) <= 17 << 20, "{} bytes in one commit", place.ask(most));
    assert_eq!(place.ask("SELECT count(*) FROM r_books"), 48);
}

#[tokio::test]
async fn writes_that_exchange_unique_values_share_a_commit() {
    let Some((place, bed)) = alone() else { return };
    let with = |isbn: &str| create(BOOKS, json!({"title": "T", "author": "A", "isbn": isbn}));
    let (older, newer) = (bed.put(with("z")).await, bed.put(with("x")).await);
    let (one, two) = (bed.put(with("p")).await, bed.put(with("q")).await);
    let before = bed.newest();
    let give = |to: &model::Record, isbn: &str| merge(BOOKS, &to.id, json!({"isbn": isbn}));
    let mut writes = vec![
        give(&newer, "y"),
        give(&older, "x"),
        give(&one, "between"),
        give(&two, "p"),
        give(&one, "q"),
    ];
    let theirs = |n: i64| Write { scope: THERE, ..book(&format!("T{n}"), json!(n)) };
    writes.extend((0..60).map(theirs));
    for answer in together(&place, &bed, writes).await {
        answer.unwrap().unwrap();
    }
    for (record, isbn) in [(newer, "y"), (older, "x"), (one, "q"), (two, "p")] {
        let found = bed.record(BOOKS, &record.id).await.unwrap();
        assert_eq!(value(&found, "isbn"), json!(isbn));
    }
    // One, unless the time of a batch was over.
    assert!(commits(&place, before) <= 12, "{} commits", commits(&place, before));
    // A value that is taken in the end is still refused.
    assert_eq!(bed.refused(with("q")).await.violations.len(), 1);
}

#[tokio::test]
async fn a_write_that_the_database_refuses_leaves_the_others_in_large_batches() {
    let Some((place, bed)) = alone() else { return };
    place.run("ALTER TABLE r_books ADD CHECK (f_title <> 'refused')");
    let before = bed.newest();
    let theirs = |n: i64| Write { scope: THERE, ..book(&format!("T{n}"), json!(n)) };
    let mut writes: Vec<Write> = (0..64).map(theirs).collect();
    writes.insert(20, book("refused", json!(1)));
    for (n, answer) in together(&place, &bed, writes).await.into_iter().enumerate() {
        assert_eq!(matches!(answer, Err(Error::Failed(_))), n == 20, "{n}: {answer:?}");
    }
    assert_eq!(place.ask("SELECT count(*) FROM r_books"), 64);
    assert!(commits(&place, before) <= 24, "{} commits", commits(&place, before));
}

/// A COMMIT got no answer, and what became of it cannot be found out for a long time.
#[tokio::test]
async fn a_node_writes_again_after_a_look_for_a_lost_commit_has_failed() {
    let Some(mut place) = Place::new() else { return };
    drop(place.open(schema(), None).unwrap());
    let (_, _, host, port, ..) = place.parts();
    let server = format!("{host}:{port}");
    let wire = Wire::to(server.clone());
    let direct = place.url.clone();
    place.url = place.url.replace(&server, &wire.address());
    let node = place.open(schema(), None).unwrap();
    place.url = direct;
    node.put(book("before", json!(1))).await;
    let holder = place.address().connect().await.unwrap();
    holder.batch("BEGIN; LOCK TABLE log IN EXCLUSIVE MODE").await.unwrap();
    let writing = spawn(&node.store, book("lost", json!(1)));
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'log'::regclass AND NOT granted";
    until(&place, waits).await;
    // The first in the queue for the node's row: the node cannot see what its transaction left.
    let locker = place.address().connect().await.unwrap();
    let locking = tokio::spawn(async move {
        locker.batch("BEGIN; UPDATE writers SET seen = seen").await.unwrap();
        locker
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND \
                 query = 'BEGIN; UPDATE writers SET seen = seen'";
    until(&place, waits).await;
    wire.cut();
    holder.batch("ROLLBACK").await.unwrap();
    let locker = within(locking).await.unwrap();
    let lost = within(writing).await.unwrap();
    assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
    let refused = within(node.commit(book("meanwhile", json!(1)))).await;
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    locker.batch("ROLLBACK").await.unwrap();
    node.put(book("after", json!(1))).await;
    node.put(book("later", json!(1))).await;
}

#[tokio::test]
async fn a_node_does_not_take_the_edition_of_another_for_its_own() {
    let Some(place) = Place::new() else { return };
    drop(place.open(schema(), None).unwrap());
    let place = Arc::new(place);
    // The node waits inside its transaction, which has read the table `meta`.
    let reader = place.address().connect().await.unwrap();
    reader.batch("BEGIN; SELECT n FROM r_books LIMIT 1").await.unwrap();
    let opening = std::thread::spawn({
        let place = place.clone();
        move || {
            let mut newer = schema();
            newer.collections[BOOKS].fields.push(field("extra", Kind::String, |f| f.filter = true));
            place.open(newer, None).unwrap()
        }
    });
    let waits = |table: &str| {
        format!(
            "SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted"
        )
    };
    until(&place, &waits("r_books")).await;
    let other = place.address().connect().await.unwrap();
    let changing = tokio::spawn(async move {
        other
            .batch(
                "BEGIN; LOCK TABLE meta IN ACCESS EXCLUSIVE MODE; \
                 UPDATE meta SET value = 'another' WHERE name = 'edition'; COMMIT",
            )
            .await
            .unwrap();
    });
    until(&place, &waits("meta")).await;
    reader.batch("COMMIT").await.unwrap();
    within(changing).await.unwrap();
    let node = within(tokio::task::spawn_blocking(|| opening.join().unwrap())).await.unwrap();
    let refused = node.commit(book("A", json!(1))).await;
    assert!(matches!(refused, Err(Error::Outdated)), "{refused:?}");
}

#[tokio::test]
async fn what_the_client_cannot_send_is_refused_before_anything_is_sent() {
    let Some(place) = Place::new() else { return };
    place.run("CREATE TABLE written (n bigint)");
    let client = place.address().connect().await.unwrap();
    // Each message of PostgreSQL has less than 1 GiB.
    let large: &'static [u8] = Box::leak(vec![b'x'; 1 << 20].into_boxed_slice());
    let insert = Step::new("INSERT INTO written VALUES ($1)", &[1_i64.into()]);
    let count = "INSERT INTO written SELECT count(*) FROM unnest($1::bytea[])";
    let steps = [insert, Step { sql: count.into(), values: vec![vec![large; 1_100].into()] }];
    client.batch("BEGIN").await.unwrap();
    let ready = client.ready(&steps).await.map(drop);
    assert!(matches!(&ready, Err(Error::Failed(cause)) if cause.to_string().contains("bytes")));
    client.batch("ROLLBACK").await.unwrap();
    // The connection is as it was: nothing of it was lost.
    let error = client.query("SELECT '\0'", &[]).await.unwrap_err();
    assert!(matches!(error, Error::Failed(_)), "{error:?}");
    client.all(&steps[..1]).await.unwrap();
    assert_eq!(place.ask("SELECT count(*) FROM written"), 1);
}

/// A settlement whose COMMIT got no answer is sent again.
#[tokio::test]
async fn a_settlement_that_is_sent_again_counts_its_attempts_once() {
    let Some((place, bed)) = alone() else { return };
    let hook = bed.put(crate::deliveries::endpoint(json!(["*"]))).await;
    assert_eq!(schema().own(model::schema::Builtin::Endpoint), ENDPOINTS);
    let event = bed.put(book("A", json!(1))).await.version;
    let attempt = |number: u32, status, next: Option<i64>| Outcome {
        attempts: number,
        now: Timestamp(START + i64::from(number)),
        attempt: Some(json!({"id": format!("att_{number}"), "response_body": "no"}).to_string()),
        ..outcome(&hook, event, status, next)
    };
    let first = attempt(1, Status::Pending, Some(START + 5));
    let second = attempt(2, Status::Failed, None);
    let rows = "SELECT count(*) FROM attempts";
    for _ in 0..2 {
        settle(&bed, vec![first.clone(), second.clone()], Vec::new()).await;
        let found = bed.store.deliveries(hook.number, &[event]).await.unwrap().remove(0);
        assert_eq!((found.status, found.attempts, found.next), (Status::Failed, 2, None));
        assert_eq!(place.ask(rows), 2);
    }
    // Also after an erasure has removed what the receiver answered.
    place.run(
        "UPDATE attempts SET body = (SELECT '{' || string_agg(to_json(e.key)::text || ':' || \
         CASE WHEN e.key = 'response_body' THEN 'null' ELSE e.value::text END, ',' \
         ORDER BY e.place) || '}' FROM json_each(body::json) WITH ORDINALITY e(key, value, place))",
    );
    settle(&bed, vec![second.clone()], Vec::new()).await;
    assert_eq!(place.ask(rows), 2);
    // Another sender may count the same attempt.
    let other = Some(json!({"id": "att_2", "trigger": "replay"}).to_string());
    settle(&bed, vec![Outcome { attempt: other, ..second }], Vec::new()).await;
    let found = bed.store.deliveries(hook.number, &[event]).await.unwrap().remove(0);
    assert_eq!((found.attempts, place.ask(rows)), (3, 3));
}
