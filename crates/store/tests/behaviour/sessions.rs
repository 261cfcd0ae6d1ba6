//! The sessions that a node has in the database: how many, and what each may hold up.

use crate::postgres::Place;
use crate::support::*;
use model::query::{Page, Query};
use model::record::Scalar;
use serde_json::json;
use std::time::Duration;
use store::postgres::connect::Address;

/// A list that looks at every row of the account.
fn deep() -> Query {
    let filters = vec![any_of("author", vec![Scalar::Text("Somebody".into()), Scalar::Null])];
    Query { page: Page::Offset(900), filters, ..query("title", 5) }
}

#[tokio::test]
async fn reads_whose_callers_have_gone_take_no_more_sessions_than_others() {
    let Some(place) = Place::new() else { return };
    let name = format!("n{}", std::process::id());
    let bed = place.open_as(&name, schema()).unwrap();
    for part in 0..10 {
        let rows = (0..500).map(|n| book(&format!("T{part}.{n}"), json!(n)));
        bed.put_all(rows.collect::<Vec<_>>()).await;
    }
    let count = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND \
         backend_type = 'client backend'"
    );
    let mut most = 0;
    for n in 0..200 {
        let store = bed.store.clone();
        let task = tokio::spawn(async move { store.list(HERE, BOOKS, &deep()).await });
        tokio::time::sleep(Duration::from_millis(3)).await; // waits for: the read to begin
        task.abort();
        if n % 20 == 19 {
            most = most.max(place.ask(&count));
        }
    }
    // The writer, who listens, three for short reads, eight for long ones, four that connect.
    assert!(most <= 17, "{most} sessions");
    // The pool goes on, and with the sessions that it has.
    for _ in 0..10 {
        assert_eq!(bed.store.list(HERE, BOOKS, &deep()).await.unwrap().total, Some(5_000));
    }
    assert!(place.ask(&count) <= 13);
}

#[tokio::test]
async fn a_locked_table_holds_up_its_own_reads_alone() {
    let Some(place) = Place::new() else { return };
    let bed = place.open(schema(), None).unwrap();
    let book = bed.put(book("Dune", json!(1))).await;
    let order = bed.put(create(ORDERS, json!({"quantity": 1}))).await;
    let locker = place.address().connect().await.unwrap();
    locker.batch("BEGIN; LOCK TABLE r_books IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..30 {
        let (store, id) = (bed.store.clone(), book.id.clone());
        waiting.push(tokio::spawn(async move { store.record(HERE, BOOKS, None, &id).await }));
        let found = bed.store.record(HERE, ORDERS, None, &order.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(&order));
    }
    assert!(waiting.iter().all(|task| !task.is_finished()), "the table is locked");
    locker.batch("ROLLBACK").await.unwrap();
    for task in waiting {
        assert_eq!(task.await.unwrap().unwrap(), Some(book.clone()));
    }
}

/// A host whose machine hangs still accepts connections: the kernel does that.
#[tokio::test]
async fn a_host_that_does_not_answer_delays_one_session_alone() {
    let Some(place) = Place::new() else { return };
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    hangs.set_nonblocking(true).unwrap();
    let (_, _, host, port, ..) = place.parts();
    let (own, several) = (format!("{host}:{port}"), hangs.local_addr().unwrap());
    let url = place.url.replace(&own, &format!("{several},{own}"));
    let address = Address::parse(&format!("{url}&connect_timeout=3")).unwrap();
    for _ in 0..5 {
        let client = address.connect().await.unwrap();
        assert!(client.row("SELECT 1", &[]).await.unwrap().is_some());
    }
    let connections = std::iter::from_fn(|| hangs.accept().ok()).count();
    assert_eq!(connections, 1, "the host that answered is asked first");
}
