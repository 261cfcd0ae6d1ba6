//! Events of one resource one after the other, where an endpoint wants it so.

use crate::bed::{Bed, linger, until};
use crate::sink::{Reply, Sink};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use store::Status;

#[tokio::test]
async fn later_events_of_a_record_wait_for_the_earlier_and_other_records_do_not() {
    let bed = Bed::new();
    let healthy = Arc::new(AtomicBool::new(false));
    let well = healthy.clone();
    let sink = Sink::new(move |request, _| match request.body["data"]["object"]["id"].as_str() {
        Some("sick") if !well.load(SeqCst) => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let (number, _) = bed.endpoint(&sink, json!({ "ordering": "resource" })).await;
    let engine = bed.start();
    bed.tell(&["sick", "a", "sick", "b", "sick", "a", "b"]);
    let first = bed.newest() - 6;
    until("the others", || bed.rows(number, Status::Succeeded) == 5).await;
    linger().await;
    let sick = || sink.events().iter().filter(|request| request.record() == "sick").count();
    assert_eq!(sick(), 1);
    // A restart must not forget who waits for whom.
    engine.stop().await;
    assert_eq!(bed.position(number), first + 1);
    let engine = bed.start();
    bed.tell(&["c"]);
    until("another", || sink.events().iter().any(|request| request.record() == "c")).await;
    linger().await;
    assert_eq!(sick(), 1);
    healthy.store(true, SeqCst);
    bed.clock.advance(70);
    until("all", || bed.rows(number, Status::Succeeded) == 9).await;
    engine.stop().await;
    let sent = sink.events();
    for record in ["sick", "a", "b"] {
        let ids = sent.iter().filter(|request| request.record() == record);
        let seqs: Vec<i64> = ids.map(|r| r.id()[4..].parse().unwrap()).collect();
        assert!(seqs.is_sorted(), "{record} {seqs:?}");
    }
    assert_eq!(bed.position(number), bed.newest());
}
