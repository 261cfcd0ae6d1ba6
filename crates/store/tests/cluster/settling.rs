//! Settlements and writes of the store depend on the leases that they name.

use crate::bed::{Bed, bed, serving, until};
use model::id::Entropy;
use model::schema::BOOKSHOP;
use model::write::{Cause, Change, Precondition};
use model::{Scope, Timestamp, Write, parse};
use serde_json::json;
use std::sync::Arc;
use store::cluster::{BUCKETS, Cluster, Lease, bucket_of, head_of};
use store::postgres::PostgresStore;
use store::{Error, Log, Outbox, Outcome, Records, Settlement, Status};

const HERE: Scope = Scope(20);
const THERE: Scope = Scope(40);

fn outcome(scope: Scope, endpoint: i64) -> Outcome {
    Outcome {
        scope,
        endpoint,
        event: 3,
        id: format!("dlv_{endpoint}"),
        number: None,
        status: Status::Succeeded,
        attempts: 1,
        next: None,
        now: Timestamp(7),
        asked: 0,
        attempt: Some("{}".into()),
    }
}

fn book(title: &str, lease: Option<Lease>) -> Write {
    let fields = json!({"title": title, "author": "x"});
    let entropy = std::array::from_fn(|place| title.as_bytes()[place % title.len()]);
    Write {
        scope: HERE,
        collection: 0,
        id: None,
        parent: None,
        change: Change::Create { fields: fields.as_object().unwrap().clone() },
        view: None,
        precondition: Precondition::None,
        idempotency: None,
        cause: Cause { lease: lease.map(Lease::into), ..Cause::default() },
        now: Timestamp(1_700_000_000_000),
        entropy: Entropy(entropy),
    }
}

/// What the delivery engine and timers write by themselves.
#[tokio::test]
async fn a_write_with_an_old_fence_has_no_effect_and_the_rest_of_its_batch_counts() {
    let Some(bed) = bed().await else { return };
    let store = open(&bed).await;
    let first = bed.node().await;
    let old = first.holdings().borrow().lease(HERE).unwrap();
    store.commit(book("before", Some(old))).await.unwrap().unwrap();
    first.crash();
    let second = bed.node().await;
    until("everything is taken over", || serving(&second) == BUCKETS).await;
    let new = second.holdings().borrow().lease(HERE).unwrap();
    let newest = *store.position().borrow();
    let (late, current, plain) = tokio::join!(
        store.commit(book("late", Some(old))),
        store.commit(book("current", Some(new))),
        store.commit(book("plain", None)),
    );
    assert!(matches!(late, Err(Error::LeaseLost)), "{late:?}");
    current.unwrap().unwrap();
    plain.unwrap().unwrap();
    assert_eq!(*store.position().borrow(), newest + 2);
    second.stop().await;
}

async fn open(bed: &Bed) -> Arc<PostgresStore> {
    let (schema, address) = (Arc::new(parse::parse(BOOKSHOP).unwrap()), bed.address.clone());
    let open = move || PostgresStore::open(&address, schema);
    tokio::task::spawn_blocking(open).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_settlement_with_an_old_fence_changes_nothing_and_the_rest_of_it_counts() {
    let Some(bed) = bed().await else { return };
    let store = open(&bed).await;
    let first = bed.node().await;
    let of = |node: &store::postgres::cluster::PostgresCluster, scope: Scope| {
        let held = node.holdings().borrow().clone();
        held.lease(scope).unwrap()
    };
    let (here, there) = (of(&first, HERE), of(&first, THERE));
    first.crash();
    let second = bed.node().await;
    until("everything is taken over", || serving(&second) == BUCKETS).await;
    let new = of(&second, THERE);
    assert!(new.fence > there.fence);
    let head = head_of(bucket_of(HERE));
    let settle = async |here: Lease, there: Lease| {
        store
            .settle(Settlement {
                outcomes: vec![outcome(HERE, 5), outcome(THERE, 6)],
                positions: vec![(5, Some(11)), (6, Some(12)), (head, Some(13))],
                pauses: vec![(5, Timestamp(9)), (6, Timestamp(9))],
                leases: [(5, here), (head, here), (6, there)].into(),
                ..Settlement::default()
            })
            .await
            .unwrap();
        let states = store.endpoint_states(vec![5, 6, head]).await.unwrap();
        let known = states.endpoints.iter().map(|one| (one.endpoint, one.position, one.paused));
        let mut rows = Vec::new();
        for endpoint in [5, 6] {
            rows.extend(store.deliveries(endpoint, &[3]).await.unwrap());
        }
        let rows: Vec<String> = rows.into_iter().map(|row| row.id).collect();
        (known.collect::<Vec<_>>(), rows)
    };
    assert_eq!(settle(here, there).await, (vec![], vec![]), "both leases are old");
    let paused = Some(Timestamp(9));
    let (known, rows) = settle(here, new).await;
    assert_eq!((known, rows), (vec![(6, Some(12), paused)], vec!["dlv_6".to_owned()]));
    let (known, rows) = settle(of(&second, HERE), new).await;
    assert_eq!(known, [(5, Some(11), paused), (6, Some(12), paused), (head, Some(13), None)]);
    assert_eq!(rows, ["dlv_5", "dlv_6"]);
    second.stop().await;
}
