//! The accounts that this node serves, where other nodes serve others: buckets of accounts come and
//! go at run time. A bucket that comes is loaded like all endpoints at a start. A bucket that is
//! handed over begins nothing, ends what is in flight, and leaves with its positions. A bucket that
//! was lost is dropped at once: what was in flight is cancelled, and the next holder sends it
//! again. What was not durable at the loss is settled under the lost lease, and the bucket is
//! loaded here again only after that.

use super::Engine;
use super::tasks::TaskResult;
use crate::load::{LoadedEndpoints, load};
use crate::queue::EndpointQueue;
use crate::replay::Replay;
use model::Scope;
use model::write::Cause;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use store::cluster::{BUCKETS, Bucket, Cluster, Holding, Holdings, Lease, bucket_of};
use store::{EndpointState, Settlement};
use tokio::sync::watch;

/// What a stale or missing lease is written as: no store has this fence.
const NO_FENCE: i64 = -1;

/// Which buckets are served here, and which come and go.
pub struct Buckets {
    pub cluster: Arc<dyn Cluster>,
    changes: watch::Receiver<Arc<Holdings>>,
    /// What this node may do, as last seen.
    held: Arc<Holdings>,
    /// When the leases in `held` end, if there are any.
    until: Option<Instant>,
    /// Buckets whose endpoints are loaded, with their fences.
    served: BTreeMap<Bucket, i64>,
    /// Buckets whose endpoints are being loaded.
    loading: BTreeMap<Bucket, i64>,
    leaving: BTreeMap<Bucket, Leaving>,
    /// Buckets that are served no more and whose results are still on the way to the store.
    settling: BTreeMap<Bucket, Settling>,
    /// The endpoints of buckets in `settling`.
    former: HashMap<i64, Bucket>,
    /// The stored positions of the endpoints of each bucket that have none of their own.
    pub heads: BTreeMap<Bucket, i64>,
}

/// A bucket that is being handed over.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    fence: i64,
    /// Its positions are durable with the settlement of this number.
    placed: Option<u64>,
}

/// A bucket whose last results are on the way to the store.
#[derive(Clone, Copy, Debug)]
struct Settling {
    fence: i64,
    /// Everything but outcomes is durable with the settlement of this number.
    last: u64,
}

impl Buckets {
    pub fn new(cluster: Arc<dyn Cluster>) -> Buckets {
        let mut changes = cluster.holdings();
        let held = changes.borrow_and_update().clone();
        let held = if held.is_all() { held } else { Arc::new(none()) };
        if !held.is_all() {
            changes.mark_changed();
        }
        Buckets {
            cluster,
            changes,
            held,
            until: None,
            served: BTreeMap::new(),
            loading: BTreeMap::new(),
            leaving: BTreeMap::new(),
            settling: BTreeMap::new(),
            former: HashMap::new(),
            heads: BTreeMap::new(),
        }
    }

    /// Whether this process serves everything, alone.
    pub fn is_all(&self) -> bool {
        self.held.is_all()
    }

    /// Whether the endpoints of an account are loaded.
    pub fn serves(&self, scope: Scope) -> bool {
        self.is_all() || self.served.contains_key(&bucket_of(scope))
    }

    /// Whether the endpoints of an account are being loaded: changes of them wait.
    pub fn is_loading(&self, scope: Scope) -> bool {
        !self.loading.is_empty() && self.loading.contains_key(&bucket_of(scope))
    }

    /// Whether nothing new begins for an account.
    pub fn is_leaving(&self, scope: Scope) -> bool {
        !self.leaving.is_empty() && self.leaving.contains_key(&bucket_of(scope))
    }

    /// The lease under which the endpoints of an account are loaded.
    pub fn lease(&self, scope: Scope) -> Option<Lease> {
        (!self.is_all()).then(|| self.lease_of(bucket_of(scope)))
    }

    /// The cause of a write about an account: it has no effect once another node serves it.
    pub fn cause(&self, scope: Scope) -> Cause {
        Cause { lease: self.lease(scope).map(Lease::into), ..Cause::default() }
    }

    fn lease_of(&self, bucket: Bucket) -> Lease {
        let settling = || self.settling.get(&bucket).map(|settling| settling.fence);
        let fence = self.served.get(&bucket).copied().or_else(settling);
        Lease { bucket, fence: fence.unwrap_or(NO_FENCE) }
    }
}

fn none() -> Holdings {
    Holdings::some([], Instant::now())
}

impl Engine {
    /// Waits for the next change of what this node holds.
    pub(super) fn watch_buckets(&mut self) {
        if self.buckets.is_all() {
            return;
        }
        let mut changes = self.buckets.changes.clone();
        self.tasks.run(async move {
            if changes.changed().await.is_err() {
                // The cluster was closed: the leases end by themselves.
                std::future::pending::<()>().await;
            }
            TaskResult::Holdings
        });
    }

    /// Follows what this node holds. Called in each pass, before anything is sent.
    pub(super) fn follow_buckets(&mut self) {
        if self.buckets.is_all() {
            return;
        }
        if self.buckets.until.is_some_and(|until| self.clock.now.into_std() >= until) {
            (self.buckets.held, self.buckets.until) = (Arc::new(none()), None);
            self.apply_holdings();
        }
        if self.buckets.changes.has_changed().unwrap_or(false) {
            let held = self.buckets.changes.borrow_and_update().clone();
            self.buckets.until = held.until().filter(|_| held.count() > 0);
            self.buckets.held = held;
            self.apply_holdings();
        }
        if !self.buckets.leaving.is_empty() {
            self.end_leaving();
        }
    }

    fn apply_holdings(&mut self) {
        let held = self.buckets.held.clone();
        let lost = |bucket: Bucket, fence: i64| {
            held.of_bucket(bucket).lease() != Some(Lease { bucket, fence })
        };
        let served = self.buckets.served.iter();
        let gone = served.filter(|(bucket, fence)| lost(**bucket, **fence));
        let gone: BTreeSet<Bucket> = gone.map(|(bucket, _)| *bucket).collect();
        if !gone.is_empty() {
            tracing::warn!(buckets = gone.len(), "webhooks: leases of accounts have ended");
            self.unload(&gone);
        }
        for holding in held.leases() {
            let Holding::HandOver(lease) = holding else { continue };
            let Lease { bucket, fence } = lease;
            if self.buckets.served.contains_key(&bucket) {
                self.buckets.leaving.entry(bucket).or_insert(Leaving { fence, placed: None });
            } else if !self.buckets.settling.contains_key(&bucket) {
                self.buckets.cluster.drained(lease);
            }
        }
        self.load_buckets();
    }

    /// Loads the endpoints of buckets that have come, one load at a time.
    fn load_buckets(&mut self) {
        if !self.buckets.loading.is_empty() || !self.is_running() {
            return;
        }
        let buckets = &self.buckets;
        let wanted = buckets.held.leases().filter_map(|holding| match holding {
            Holding::Serve(Lease { bucket, fence })
                if !buckets.served.contains_key(&bucket)
                    // What is on the way to the store would be missing.
                    && !buckets.settling.contains_key(&bucket) =>
            {
                Some((bucket, fence))
            }
            _ => None,
        });
        let wanted: BTreeMap<Bucket, i64> = wanted.collect();
        if wanted.is_empty() {
            return;
        }
        let coming: Vec<Bucket> = wanted.keys().copied().collect();
        self.buckets.loading = wanted;
        let (store, schema) = (self.store.clone(), self.schema.clone());
        let limits = self.limits.clone();
        self.tasks.run(async move {
            TaskResult::Loaded(Box::new(load(&store, &schema, Some(coming), &limits, &|| {}).await))
        });
    }

    pub(super) fn loaded_buckets(&mut self, loaded: LoadedEndpoints) {
        let loading = std::mem::take(&mut self.buckets.loading);
        let held = self.buckets.held.clone();
        let is_held = |bucket: Bucket, fence: i64| {
            held.of_bucket(bucket) == Holding::Serve(Lease { bucket, fence })
        };
        let mut come = [false; BUCKETS];
        let mut count = 0;
        for (bucket, fence) in loading {
            // Lost or given up in the meantime.
            if !is_held(bucket, fence) || !self.is_running() {
                continue;
            }
            self.buckets.served.insert(bucket, fence);
            self.buckets.heads.remove(&bucket);
            come[usize::from(bucket)] = true;
            count += 1;
        }
        // Written when one process served everything, and never since.
        self.stored_head = loaded.states.head;
        let has_come = |scope: Scope| come[usize::from(bucket_of(scope))];
        for EndpointState { endpoint, position, .. } in &loaded.states.endpoints {
            if let (Ok(bucket), Some(position)) = (Bucket::try_from(-1 - endpoint), position)
                && come[usize::from(bucket)]
            {
                self.buckets.heads.insert(bucket, *position);
            }
        }
        let endpoints = loaded.endpoints.into_iter().filter(|(scope, _)| has_come(*scope));
        self.open_all(endpoints.collect(), loaded.states.endpoints);
        for (scope, record) in loaded.replays.iter().filter(|(scope, _)| has_come(*scope)) {
            self.load_replay(*scope, record);
        }
        let endpoints = self.queues.len();
        tracing::debug!(buckets = count, endpoints, "webhooks: serves more accounts");
        self.apply_holdings();
    }

    /// Drops everything of these buckets but what is on its way to the store.
    fn unload(&mut self, gone: &BTreeSet<Bucket>) {
        let is_gone = |scope: Scope| gone.contains(&bucket_of(scope));
        let queues = self.queues.iter().filter(|(_, queue)| is_gone(queue.endpoint.scope));
        for number in queues.map(|(number, _)| *number).collect::<Vec<_>>() {
            let Some(queue) = self.queues.remove(&number) else { continue };
            let scope = queue.endpoint.scope;
            self.names.remove(&(scope, queue.endpoint.id.clone()));
            self.subscriptions.remove(scope, number);
            self.buckets.former.insert(number, bucket_of(scope));
        }
        // The next holder sends them again: two at a time would be too many for the receiver.
        let former = &self.buckets.former;
        let is_former = |endpoint| former.get(&endpoint).is_some_and(|one| gone.contains(one));
        let cancelled = self.sends.cancel(is_former);
        self.replays.remove_where(|replay: &Replay| is_gone(replay.scope));
        let last = self.settler.last_number();
        for bucket in gone {
            if let Some(fence) = self.buckets.served.remove(bucket) {
                self.buckets.settling.insert(*bucket, Settling { fence, last });
            }
            self.buckets.leaving.remove(bucket);
            self.buckets.heads.remove(bucket);
        }
        self.end_settling();
        // One for each place that is free now.
        (0..cancelled.max(1)).for_each(|_| self.wake_blocked());
    }

    /// Loads buckets again whose last results from before are durable, or were refused because
    /// another node had the lease.
    pub(super) fn end_settling(&mut self) {
        if self.buckets.settling.is_empty() {
            return;
        }
        let (settler, before) = (&self.settler, self.buckets.settling.len());
        let open = settler.buckets_with_outcomes();
        self.buckets
            .settling
            .retain(|bucket, settling| settler.ended() < settling.last || open.contains(bucket));
        if self.buckets.settling.len() < before {
            let settling = &self.buckets.settling;
            self.buckets.former.retain(|_, bucket| settling.contains_key(bucket));
            self.apply_holdings();
        }
    }

    /// Lets buckets go whose work has ended.
    fn end_leaving(&mut self) {
        let (mut ended, mut to_place) = (BTreeMap::new(), Vec::new());
        for (bucket, leaving) in &self.buckets.leaving {
            match leaving.placed {
                None if self.is_quiet(*bucket) => to_place.push(*bucket),
                Some(number) if self.settler.ended() >= number && self.are_saved(*bucket) => {
                    ended.insert(*bucket, leaving.fence);
                }
                _ => {}
            }
        }
        if !to_place.is_empty() {
            self.write_positions(usize::MAX);
            self.write_failures();
            self.save_replays();
            let number = self.settler.last_number();
            for bucket in to_place {
                if let Some(leaving) = self.buckets.leaving.get_mut(&bucket) {
                    leaving.placed = Some(number);
                }
            }
        }
        if !ended.is_empty() {
            self.unload(&ended.keys().copied().collect());
            for (bucket, fence) in ended {
                self.buckets.cluster.drained(Lease { bucket, fence });
            }
        }
    }

    /// Whether nothing of a bucket is in flight or waits to be durable.
    fn is_quiet(&self, bucket: Bucket) -> bool {
        let own = |scope: Scope| bucket_of(scope) == bucket;
        let sends = |queue: &EndpointQueue| {
            queue.sending.in_flight + queue.sending.replaying > 0 || queue.condition.changing
        };
        let mut queues = self.queues.values().filter(|queue| own(queue.endpoint.scope));
        !queues.any(sends) && !self.settler.has_outcomes_of(own)
    }

    fn are_saved(&self, bucket: Bucket) -> bool {
        self.replays.are_saved_where(|replay| bucket_of(replay.scope) == bucket)
    }

    /// Makes a settlement depend on the leases under which its endpoints are served.
    pub(super) fn fence(&self, settlement: &mut Settlement, gone: &[(i64, Scope)]) {
        if self.buckets.is_all() {
            return;
        }
        let lease = |endpoint: i64| match Bucket::try_from(-1 - endpoint) {
            Ok(bucket) => Some(self.buckets.lease_of(bucket)),
            Err(_) => match self.queues.get(&endpoint) {
                Some(queue) => self.buckets.lease(queue.endpoint.scope),
                None => Some(self.buckets.lease_of(*self.buckets.former.get(&endpoint)?)),
            },
        };
        let mut leases = BTreeMap::new();
        for outcome in &settlement.outcomes {
            leases.extend(self.buckets.lease(outcome.scope).map(|one| (outcome.endpoint, one)));
        }
        for (endpoint, scope) in gone {
            leases.extend(self.buckets.lease(*scope).map(|one| (*endpoint, one)));
        }
        let positions = settlement.positions.iter().map(|(endpoint, _)| *endpoint);
        let pauses = settlement.pauses.iter().map(|(endpoint, _)| *endpoint);
        let failures = settlement.failures.iter().map(|(endpoint, _)| *endpoint);
        for endpoint in positions.chain(pauses).chain(failures) {
            let unknown = Lease { bucket: 0, fence: NO_FENCE };
            leases.entry(endpoint).or_insert_with(|| lease(endpoint).unwrap_or(unknown));
        }
        settlement.leases = leases;
    }
}
