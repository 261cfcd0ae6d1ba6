//! Who holds which buckets, through joins, deaths, partitions and handovers.

use crate::bed::{Bed, HEARTBEAT, LEASE, MARGIN, bed, serving, until};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use store::cluster::{BUCKETS, Bucket, Cluster, Holding, Lease};
use store::postgres::cluster::{PostgresCluster, stale, status};

fn fences(node: &PostgresCluster) -> BTreeMap<Bucket, i64> {
    let leases = node.holdings().borrow().clone();
    leases.leases().filter_map(Holding::lease).map(|one| (one.bucket, one.fence)).collect()
}

#[tokio::test]
async fn buckets_of_a_killed_node_move_with_new_fences_and_a_second_node_gets_its_part() {
    let Some(bed) = bed().await else { return };
    let first = bed.node().await;
    assert_eq!(serving(&first), BUCKETS, "at once");
    let before = fences(&first);
    let second = bed.node().await;
    assert_eq!(serving(&second), 0, "nothing is taken from a node that is alive");
    until("some buckets are handed over", || serving(&second) >= 3).await;
    assert!(serving(&first) + serving(&second) <= BUCKETS);
    assert!(first.live_nodes() == 2 && second.live_nodes() == 2);
    let shown = status(&bed.address).await.unwrap().unwrap();
    assert_eq!((shown.nodes.len(), shown.free, shown.position), (2, 0, 7));
    assert_eq!(shown.nodes.iter().map(|node| node.leases).sum::<i64>(), 256);
    assert!(shown.nodes.iter().all(|node| node.alive && node.version == "1.2.3"));
    first.crash();
    let killed = Instant::now();
    until("the second node has everything", || serving(&second) == BUCKETS).await;
    let took = killed.elapsed();
    assert!(took > LEASE / 2 && took < LEASE + 4 * HEARTBEAT, "{took:?}");
    let after = fences(&second);
    assert!(before.iter().all(|(bucket, fence)| after[bucket] > *fence), "every fence grew");
    second.stop().await;
}

#[tokio::test]
async fn a_graceful_stop_releases_everything_at_once() {
    let Some(bed) = bed().await else { return };
    let first = bed.node().await;
    let second = bed.node().await;
    let begun = Instant::now();
    first.stop().await;
    until("the second node has everything", || serving(&second) == BUCKETS).await;
    assert!(begun.elapsed() < LEASE / 2, "{:?}", begun.elapsed());
    assert_eq!(serving(&first), 0);
    second.stop().await;
}

#[tokio::test]
async fn a_drained_bucket_is_handed_over_before_its_time() {
    let Some(bed) = bed().await else { return };
    let first = bed.node().await;
    let second = bed.node().await;
    let mut changes = first.holdings();
    for _ in 0..5 {
        let leaving = |holding: &Holding| match holding {
            Holding::HandOver(lease) => Some(*lease),
            _ => None,
        };
        let lease = loop {
            let found = changes.borrow_and_update().leases().find_map(|one| leaving(&one));
            if let Some(lease) = found {
                break lease;
            }
            changes.changed().await.unwrap();
        };
        let begun = Instant::now();
        first.drained(lease);
        let has = || fences(&second).contains_key(&lease.bucket);
        until("the other node has it", has).await;
        assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
    }
    first.stop().await;
    second.stop().await;
}

/// Nobody can read or write the table of nodes while the guard lives.
async fn cut(bed: &Bed) {
    bed.client.batch("BEGIN; LOCK TABLE restive_nodes IN ACCESS EXCLUSIVE MODE").await.unwrap();
}

#[tokio::test]
async fn a_node_that_cannot_renew_stops_before_its_leases_end_and_comes_back() {
    let Some(bed) = bed().await else { return };
    let node = bed.node().await;
    let lease = Lease { bucket: 9, fence: fences(&node)[&9] };
    cut(&bed).await;
    let begun = Instant::now();
    until("it stops", || serving(&node) == 0).await;
    let took = begun.elapsed();
    assert!(took <= LEASE - MARGIN + Duration::from_millis(100), "{took:?}");
    let waiting = node.holdings().borrow().count();
    until("the work is told to stop", || node.holdings().borrow().count() == 0).await;
    assert!(begun.elapsed() < LEASE, "{:?}, {waiting} at first", begun.elapsed());
    bed.client.batch("ROLLBACK").await.unwrap();
    until("it serves again", || serving(&node) == BUCKETS).await;
    // Nobody else was there: the leases and their fences are the same.
    bed.client.batch("BEGIN").await.unwrap();
    let lost = stale(&bed.client, &[lease, Lease { fence: lease.fence + 1, ..lease }]).await;
    bed.client.batch("COMMIT").await.unwrap();
    assert_eq!(lost.unwrap(), [Lease { fence: lease.fence + 1, ..lease }]);
    node.stop().await;
}

#[tokio::test]
async fn a_settlement_in_progress_keeps_its_bucket_and_an_old_fence_is_found_out() {
    let Some(bed) = bed().await else { return };
    let first = bed.node().await;
    let lease = Lease { bucket: 77, fence: fences(&first)[&77] };
    bed.client.batch("BEGIN").await.unwrap();
    assert!(stale(&bed.client, &[lease]).await.unwrap().is_empty());
    let second = bed.node().await;
    first.crash();
    until("all other buckets are taken", || serving(&second) == BUCKETS - 1).await;
    assert!(!fences(&second).contains_key(&77), "the transaction is still open");
    bed.client.batch("COMMIT").await.unwrap();
    until("the last one follows", || serving(&second) == BUCKETS).await;
    bed.client.batch("BEGIN").await.unwrap();
    assert_eq!(stale(&bed.client, &[lease]).await.unwrap(), [lease]);
    bed.client.batch("COMMIT").await.unwrap();
    second.stop().await;
}

#[tokio::test]
async fn a_node_that_was_declared_dead_joins_again_under_another_number() {
    let Some(bed) = bed().await else { return };
    let first = bed.node().await;
    let old = fences(&first);
    bed.client.batch("DELETE FROM restive_nodes").await.unwrap();
    until("it takes its buckets with new fences", || {
        let new = fences(&first);
        new.len() == BUCKETS && new.iter().all(|(bucket, fence)| *fence > old[bucket])
    })
    .await;
    assert_eq!(first.figures().takeovers, 2 * BUCKETS as u64);
    first.stop().await;
    let shown = status(&bed.address).await.unwrap().unwrap();
    assert_eq!((shown.nodes.len(), shown.free), (0, 256));
}

#[tokio::test]
async fn nodes_that_start_together_hold_each_bucket_once() {
    let Some(bed) = bed().await else { return };
    let (one, two, three) = tokio::join!(bed.node(), bed.node(), bed.node());
    let nodes = [one, two, three];
    until("every bucket is held", || nodes.iter().map(|node| serving(node)).sum::<usize>() > 240)
        .await;
    let mut holders: BTreeMap<Bucket, usize> = BTreeMap::new();
    for bucket in nodes.iter().flat_map(|node| fences(node).into_keys()) {
        *holders.entry(bucket).or_default() += 1;
    }
    // Between two looks one may have moved.
    let twice = holders.values().filter(|count| **count > 1).count();
    assert!(twice <= 1, "{twice} buckets with two holders");
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_process_that_starts_again_has_the_leases_and_fences_of_the_former_one() {
    let Some(bed) = bed().await else { return };
    let first = bed.node().await;
    let old = fences(&first);
    let (number, next) = (1 << 20, 9 << 20);
    first.crash();
    let second = bed.join(next, Some(number)).await;
    assert_eq!((serving(&second), fences(&second)), (BUCKETS, old), "at once");
    let shown = status(&bed.address).await.unwrap().unwrap();
    assert_eq!((shown.nodes.len(), shown.free), (1, 0));
    // One that names a node that is not its own predecessor gets nothing of it, but for what is
    // handed over for balance, one bucket at a time.
    let other = bed.join(10 << 20, Some(4 << 20)).await;
    assert!(serving(&other) <= 2, "{}", serving(&other));
    second.stop().await;
    other.stop().await;
}
