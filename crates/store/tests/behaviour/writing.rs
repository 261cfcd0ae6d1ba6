//! What the writer of a node on PostgreSQL does with batches that are large or fail, and with a
//! COMMIT that got no answer.

use crate::nodes::{Wire, within};
use crate::postgres::Place;
use crate::support::*;
use model::Problem;
use model::schema::Kind;
use model::write::{Committed, Write};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::postgres::connect::Step;
use store::{Error, Store};

type Answer = Result<Result<Committed, Problem>, Error>;
type Writing = tokio::task::JoinHandle<Answer>;

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

/// A COMMIT got no answer, and what became of it cannot be found out for a long time.
#[tokio::test]
async fn a_node_writes_again_after_a_look_for_a_lost_commit_has_failed() {
    let Some(mut place) = Place::new() else { return };
    drop(place.open(schema(), None).unwrap());
    let (_, _, host, port, ..) = place.parts();
    let server = format!("{host}:{port}");
    let wire = Wire::to(server.clone());
    let direct = place.url.clone();
    place.url = place.url.replace(&server, &wire.address.to_string());
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
    wire.cut.send_replace(());
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
            newer.collections[BOOKS]
                .fields
                .push(field("extra", Kind::String, |f| f.filter = true));
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
