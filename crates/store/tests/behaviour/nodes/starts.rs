//! Starts that change tables while another session reads them, as pg_dump does for as long as it
//! takes.

use crate::postgres::Place;
use crate::support::*;
use model::Schema;
use model::schema::Kind;
use serde_json::json;
use std::time::{Duration, Instant};
use store::Error;

/// Starts a node of a schema while a session reads the books. Meanwhile another node writes: how
/// long its slowest write took, what became of the start, and how long it took.
async fn start_beside_a_reader(
    place: &Place,
    new: Schema,
) -> (Duration, Result<Bed, Error>, Duration) {
    let old = place.open(schema(), None).unwrap();
    old.put(book("A", json!(1))).await;
    let reader = place.address().connect().await.unwrap();
    reader.batch("BEGIN; SELECT n FROM r_books LIMIT 1").await.unwrap();
    let (began, address) = (Instant::now(), place.address());
    let starting = tokio::task::spawn_blocking(move || {
        let opened = Place::open_at(&address, new, None);
        (opened, began.elapsed())
    });
    let mut slowest = Duration::ZERO;
    while !starting.is_finished() && began.elapsed() < Duration::from_secs(20) {
        let writing = Instant::now();
        old.put(book("T", json!(1))).await;
        slowest = slowest.max(writing.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the start
    }
    reader.batch("COMMIT").await.unwrap();
    let (opened, took) = starting.await.unwrap();
    (slowest, opened, took)
}

#[tokio::test]
async fn a_start_that_must_change_a_table_that_is_read_is_refused_and_holds_no_write_up() {
    let mut without = schema();
    without.collections[BOOKS].fields[5].sort = false;
    without.collections[BOOKS].fields[5].filter = false;
    without.collections[BOOKS].indexes.clear();
    let mut with = schema();
    with.collections[BOOKS].fields.push(field("extra", Kind::String, |f| f.filter = true));
    for new in [without, with] {
        let Some(place) = Place::new() else { return };
        let (slowest, opened, took) = start_beside_a_reader(&place, new.clone()).await;
        let Err(Error::Refused(reasons)) = opened else { panic!("not refused, after {took:?}") };
        assert!(reasons[0].contains("r_books") && reasons[0].contains("pg_dump"), "{reasons:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(slowest < Duration::from_secs(3), "a write waited for {slowest:?}");
        let bed = place.open(new, None).unwrap();
        bed.put(book("B", json!(1))).await;
    }
}
