//! Large records: the database sends no more of them than a read keeps, because every node waits
//! for what is read under the lock of the log, and all accounts for what is read on a shared
//! connection.

use super::Wire;
use crate::deliveries::{endpoint, outcome, settle};
use crate::postgres::Place;
use crate::support::*;
use model::{Code, Timestamp};
use serde_json::json;
use store::Status;

const MIB: usize = 1 << 20;

/// A node whose traffic is counted; none without a server.
fn metered() -> Option<(Place, Wire, Bed)> {
    let mut place = Place::new()?;
    let (_, _, host, port, ..) = place.parts();
    let server = format!("{host}:{port}");
    let wire = Wire::to(server.clone());
    let direct = place.url.clone();
    place.url = place.url.replace(&server, &wire.address());
    let bed = place.open(schema(), None).unwrap();
    place.url = direct;
    Some((place, wire, bed))
}

/// A review, and as many replies below it, each of so many bytes.
async fn replies(bed: &Bed, count: usize, bytes: usize) -> (String, Vec<i64>) {
    let book = bed.put(book("T", json!(1))).await;
    let review = bed.put(under(create(REVIEWS, json!({"rating": 1})), &book.id)).await;
    let mut seqs = Vec::new();
    for _ in 0..count {
        let reply = create(REPLIES, json!({"text": "x".repeat(bytes)}));
        seqs.push(bed.put(under(reply, &review.id)).await.version);
    }
    (review.id, seqs)
}

#[tokio::test]
async fn a_delete_reads_no_more_of_what_is_below_a_record_than_its_limit() {
    let Some((_place, wire, bed)) = metered() else { return };
    let (review, _) = replies(&bed, 40, MIB).await;
    let parent = bed.list(&query("title", 1)).await.records[0].id.clone();
    let before = wire.received();
    let refused = bed.refused(under(delete(REVIEWS, &review), &parent)).await;
    assert_eq!(refused.code, Code::TooManyChildren);
    let moved = wire.received() - before;
    assert!(moved < 12 << 20, "{moved} bytes were read for a limit of 8 MiB");
    // What fits is deleted, whatever it has in fields that are never served.
    let (review, _) = replies(&bed, 5, MIB).await;
    let parents = bed.list(&query("-created_at", 1)).await.records;
    let gone = bed.commit(under(delete(REVIEWS, &review), &parents[0].id)).await;
    gone.unwrap().unwrap();
}

#[tokio::test]
async fn a_page_of_the_log_moves_no_more_than_it_keeps() {
    let Some((_place, wire, bed)) = metered() else { return };
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let (_, seqs) = replies(&bed, 24, 2 * MIB).await;
    let waiting = seqs.iter().map(|seq| outcome(&hook, *seq, Status::Pending, Some(START)));
    settle(&bed, waiting.collect(), Vec::new()).await;
    for scope in [None, Some(HERE)] {
        for (bytes, count) in [(1, 1), (5 * MIB, 2), (9 * MIB, 4)] {
            let before = wire.received();
            let page = bed.store.events_within(scope, seqs[0] - 1, 200, bytes).await.unwrap();
            let found: Vec<i64> = page.events.iter().map(|event| event.seq).collect();
            assert_eq!((found.as_slice(), page.more), (&seqs[..count], true), "{bytes}");
            let (moved, kept) = (wire.received() - before, 2 * MIB * count);
            assert!(moved < kept as u64 + (1 << 20), "{moved} bytes were read to keep {kept}");
        }
    }
    let now = Timestamp(START + 1);
    for (bytes, count) in [(1, 1), (5 * MIB, 2), (9 * MIB, 4)] {
        let before = wire.received();
        let found = bed.store.retries(hook.number, now, 200, bytes).await.unwrap();
        assert_eq!((found.due.len(), found.next), (count, Some(now)), "{bytes}");
        let (moved, kept) = (wire.received() - before, 2 * MIB * count);
        assert!(moved < kept as u64 + (1 << 20), "{moved} bytes were read to keep {kept}");
    }
    // Without a limit of bytes, everything comes.
    let all = bed.store.events(Some(HERE), seqs[0] - 1, 1_000).await.unwrap();
    assert_eq!(all.len(), 24);
}
