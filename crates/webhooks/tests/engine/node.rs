//! A node of a cluster whose leases the test decides.

use crate::bed::Bed;
use model::Scope;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::cluster::{Bucket, Cluster, Holding, Holdings, Lease, bucket_of};
use tokio::sync::watch;

pub struct Node {
    holdings: watch::Sender<Arc<Holdings>>,
    drained: Mutex<Vec<Lease>>,
}

impl Node {
    pub fn new() -> Arc<Node> {
        let none = Holdings::some([], Instant::now());
        Arc::new(Node { holdings: watch::Sender::new(Arc::new(none)), drained: Mutex::default() })
    }

    /// Takes over the buckets of these accounts, and loses all others.
    pub fn take(&self, bed: &Bed, scopes: &[Scope]) -> Vec<Lease> {
        let leases: Vec<Lease> = scopes.iter().map(|scope| bump(bed, *scope)).collect();
        self.hold(leases.iter().map(|lease| Holding::Serve(*lease)), Duration::from_secs(600));
        leases
    }

    pub fn hold(&self, holdings: impl IntoIterator<Item = Holding>, time: Duration) {
        self.holdings.send_replace(Arc::new(Holdings::some(holdings, Instant::now() + time)));
    }

    pub fn has_drained(&self, lease: Lease) -> bool {
        self.drained.lock().unwrap().contains(&lease)
    }
}

/// A new fence for the bucket of an account.
pub fn bump(bed: &Bed, scope: Scope) -> Lease {
    let bucket: Bucket = bucket_of(scope);
    let mut inner = bed.store.look();
    let fence = inner.fences.entry(bucket).or_default();
    *fence += 1;
    Lease { bucket, fence: *fence }
}

impl Cluster for Node {
    fn is_shared(&self) -> bool {
        true
    }

    fn holdings(&self) -> watch::Receiver<Arc<Holdings>> {
        self.holdings.subscribe()
    }

    fn drained(&self, lease: Lease) {
        self.drained.lock().unwrap().push(lease);
    }
}
