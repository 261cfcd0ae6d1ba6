//! Following the log: invariant 3, nothing skipped, nothing early.

use crate::support::*;
use serde_json::json;
use store::Follower;

pub async fn followers_see_every_event_once_in_order(bed: Bed) {
    let mut follower = Follower::new(bed.store.clone(), None, 0);
    let writer = {
        let store = bed.store.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let writes = (0..25).map(|n| {
                    let (store, write) = (store.clone(), book(&format!("{round} {n}"), json!(n)));
                    tokio::spawn(async move { store.commit(write).await })
                });
                for write in writes.collect::<Vec<_>>() {
                    write.await.unwrap().unwrap().unwrap();
                }
            }
        })
    };
    let mut seen = Vec::new();
    while seen.len() < 500 {
        let batch = follower.next_batch(7).await.unwrap();
        assert!(batch.len() <= 7);
        seen.extend(batch.into_iter().map(|event| event.seq));
    }
    writer.await.unwrap();
    assert_eq!(seen, (1..=500).collect::<Vec<_>>());
    assert_eq!(follower.position(), 500);
}

pub async fn a_follower_of_one_scope_sees_no_other(bed: Bed) {
    for n in 0..30 {
        let mut write = book("A", json!(n));
        write.scope = if n % 3 == 0 { THERE } else { HERE };
        bed.put(write).await;
    }
    let mut follower = Follower::new(bed.store.clone(), Some(THERE), 0);
    let mut seen = Vec::new();
    while seen.len() < 10 {
        seen.extend(follower.next_batch(4).await.unwrap());
    }
    assert!(seen.iter().all(|event| event.scope == THERE));
    assert_eq!(bed.store.events(Some(THERE), 0, 1000).await.unwrap(), seen);
}

pub async fn a_waiting_follower_wakes_on_commit(bed: Bed) {
    let mut follower = Follower::new(bed.store.clone(), Some(HERE), bed.newest());
    let waiting = tokio::spawn(async move { follower.next_batch(10).await.unwrap() });
    tokio::task::yield_now().await;
    let mut foreign = book("A", json!(1));
    foreign.scope = THERE;
    bed.put(foreign).await;
    let made = bed.put(book("B", json!(1))).await;
    let batch = waiting.await.unwrap();
    assert_eq!(batch.len(), 1);
    assert_eq!(batch[0].record, made.id);
}
