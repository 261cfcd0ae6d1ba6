//! Events that the disk of the database has damaged: those who follow the log for all accounts
//! leave them out, and go on.

use crate::deliveries::{endpoint, outcome, settle};
use crate::postgres::Place;
use crate::support::*;
use model::Timestamp;
use model::schema::Builtin;
use serde_json::json;
use store::postgres::connect::Address;
use store::{Follower, Status};

/// A byte that no text has.
const NO_TEXT: &str = "as_it_is('\\x7bff7d'::bytea)";

/// Whether the server makes a text that is none: its superuser has a function for that, if it has
/// the password of the tests.
async fn makes_no_text(place: &Place) -> bool {
    let (user, _, _, _, _, schema) = place.parts();
    let (scheme, rest) = place.url.split_once(&format!("{user}:")).unwrap();
    let address = Address::parse(&format!("{scheme}postgres:{rest}")).unwrap();
    let make = format!(
        "CREATE FUNCTION {schema}.as_it_is(bytea) RETURNS text LANGUAGE internal AS 'xmltotext'"
    );
    let made = match address.connect().await {
        Ok(client) => client.batch(&make).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &made {
        eprintln!("no damaged text can be made, nothing was tested: {error}");
    }
    made.is_ok()
}

async fn pages_go_on(bed: &Bed, first: i64) {
    for scope in [None, Some(HERE)] {
        let page = |after| bed.store.events_within(scope, after, 1, usize::MAX);
        let (one, two) = (page(first - 1).await.unwrap(), page(first + 2).await.unwrap());
        assert_eq!((one.events[0].seq, one.more), (first + 2, true));
        assert_eq!((two.events[0].seq, two.more), (first + 4, true));
        assert!(page(first + 4).await.unwrap().events.is_empty());
        // With a turn of its own, and without.
        for max in [10, 1_000] {
            let all = bed.store.events(scope, first - 1, max).await.unwrap();
            assert_eq!(all.iter().map(|one| one.seq - first).collect::<Vec<_>>(), [2, 4]);
        }
        let mut follower = Follower::new(bed.store.clone(), scope, first - 1);
        let seen = follower.next_batch(10).await.unwrap();
        assert_eq!(seen.len(), 2);
        assert_eq!(follower.position(), bed.newest());
    }
}

#[tokio::test]
async fn damaged_texts_end_no_page_before_those_behind_them() {
    let Some(place) = Place::new() else { return };
    let bed = place.open(schema(), None).unwrap();
    bed.put_all((0..5).map(|n| book("Dune", json!(n)))).await;
    if !makes_no_text(&place).await {
        return;
    }
    place.run(&format!("UPDATE log SET object = {NO_TEXT} WHERE seq IN (1, 4)"));
    // One that is read later than its row, because of its size.
    let large = format!("{NO_TEXT} || repeat('x', 9000000)");
    place.run(&format!("UPDATE log SET object = {large} WHERE seq = 2"));
    pages_go_on(&bed, 1).await;
}

/// The database itself reads what an erasure leaves of an event, and fails with the statement.
#[tokio::test]
async fn damaged_events_of_an_erasure_end_no_page_before_those_behind_them() {
    let Some(place) = Place::new() else { return };
    let bed = place.open(schema(), None).unwrap();
    let [broken, other, last] = ["A", "B", "C"].map(|title| book(title, json!(1)));
    let broken = bed.put(broken).await;
    let first = bed.put(merge(BOOKS, &broken.id, json!({"price": 2}))).await.version - 1;
    bed.put(other).await;
    bed.put(merge(BOOKS, &broken.id, json!({"price": 3}))).await;
    bed.put(last).await;
    place.run(&format!("UPDATE log SET object = 'broken' WHERE record = '{}'", broken.id));
    place.run(&format!(
        "INSERT INTO erasing (scope, record, upto, answers, seq, delivery, answer) \
         VALUES ({}, '{}', 1000, 0, 1000, 0, 0)",
        HERE.0, broken.id
    ));
    pages_go_on(&bed, first).await;
    let erasures = schema().own(Builtin::Erasure);
    assert!(bed.store.list(HERE, erasures, &query("-created_at", 1)).await.is_ok());
}

#[tokio::test]
async fn retries_of_damaged_and_missing_events_take_the_place_of_no_other() {
    let Some(place) = Place::new() else { return };
    let bed = place.open(schema(), None).unwrap();
    let hook = bed.put(endpoint(json!(["book.*"]))).await;
    let made = bed.put(book("Dune", json!(0))).await;
    bed.put_all((1..6).map(|n| book("Dune", json!(n)))).await;
    let first = made.version;
    let failed = |n| outcome(&hook, first + n, Status::Pending, Some(START + n / 2));
    settle(&bed, (0..6).map(failed).collect(), Vec::new()).await;
    let now = Timestamp(START + 50);
    let check = async |expected: &[i64]| {
        for most in 1..=6 {
            let found = bed.store.retries(hook.number, now, most, usize::MAX).await.unwrap();
            let due: Vec<i64> = found.due.iter().map(|retry| retry.event.seq - first).collect();
            assert_eq!(due, expected[..most.min(expected.len())]);
            assert_eq!(found.next.is_some(), most <= expected.len());
        }
    };
    check(&[0, 1, 2, 3, 4, 5]).await;
    place.run(&format!("DELETE FROM log WHERE seq = {}", first + 1));
    check(&[0, 2, 3, 4, 5]).await;
    place.run(&format!("UPDATE log SET object = 'broken' WHERE seq = {first}"));
    place.run(&format!(
        "INSERT INTO erasing (scope, record, upto, answers, seq, delivery, answer) \
         VALUES ({}, '{}', {}, 0, 1000, 0, 0)",
        HERE.0,
        made.id,
        first + 1
    ));
    check(&[2, 3, 4, 5]).await;
    if makes_no_text(&place).await {
        place.run(&format!("UPDATE log SET hidden = {NO_TEXT} WHERE seq = {}", first + 2));
        check(&[3, 4, 5]).await;
    }
}

/// Each event then looks damaged, and those who leave it out would never see it again.
#[tokio::test]
async fn a_fault_in_another_table_leaves_out_no_event() {
    let Some(place) = Place::new() else { return };
    let bed = place.open(schema(), None).unwrap();
    bed.put_all((0..3).map(|n| book("Dune", json!(n)))).await;
    place.run(
        "ALTER TABLE erasing RENAME TO erasures; \
         INSERT INTO erasures (scope, record, upto, answers, seq, delivery, answer) \
         VALUES (0, 'none', 1, 0, 1, 0, 0); \
         CREATE VIEW erasing AS SELECT 1 / (scope - scope) AS scope, \
         (1 / (scope - scope))::text AS record, 1 / (scope - scope) AS upto FROM erasures",
    );
    for scope in [None, Some(HERE)] {
        for max in [1, 100] {
            let read = bed.store.events(scope, 0, max).await;
            assert!(read.is_err(), "{read:?}");
        }
    }
    drop(bed);
    place.run("DROP VIEW erasing; ALTER TABLE erasures RENAME TO erasing");
    let bed = place.open(schema(), None).unwrap();
    assert_eq!(bed.store.events(None, 0, 100).await.unwrap().len(), 3);
}
