//! What a store knows without a query, whatever its backend: the newest event, the last change of
//! each collection, counters, and the signals that wake followers. The writer changes it after each
//! commit.

use crate::commit::Progress;
use crate::{Figures, Watchdog};
use model::version::Versions;
use model::{CollectionIx, Schema, Scope, Timestamp};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use tokio::sync::watch;

/// Tells the time; tests give their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Entries of the collection sequences before they are forgotten and the floor is raised.
const COLLECTION_SEQS: usize = 100_000;

pub struct State {
    pub schema: Arc<Schema>,
    pub versions: Arc<Versions>,
    /// The age of stored responses is measured by this clock. It does not jump when the machine's
    /// clock is set.
    pub steady: Clock,
    /// Sequence of the newest durable event.
    pub newest: watch::Sender<i64>,
    /// Counts commits that may have set a timer.
    pub timers: watch::Sender<u64>,
    /// Grows with each settlement; starts at the time of opening, so that it never repeats.
    pub settled: watch::Sender<u64>,
    /// Counts requests to try a delivery again.
    pub retry_requests: watch::Sender<u64>,
    pub seqs: CollectionSeqs,
    pub key_generation: AtomicU64,
    /// Sequence up to which the search indexes have read the log, if there are any.
    pub search_position: AtomicI64,
    pub searched: bool,
    /// The last commit failed; the health check tries one before it answers.
    pub failing: AtomicBool,
    pub watchdog: Arc<Watchdog>,
    pub counters: Counters,
    #[cfg(test)]
    pub faults: crate::faults::Faults,
}

#[derive(Default)]
pub struct Counters {
    pub commits: AtomicU64,
    pub writes: AtomicU64,
    pub queue: AtomicU64,
    pub batch_sizes: [AtomicU64; 9],
    pub timers_failed: AtomicU64,
}

/// What a backend found when it was opened.
pub struct Found {
    pub newest: i64,
    pub search_position: i64,
    /// Whether there are search indexes.
    pub searched: bool,
    pub opened: Timestamp,
}

impl State {
    pub fn new(
        schema: Arc<Schema>,
        versions: Arc<Versions>,
        steady: Clock,
        found: &Found,
    ) -> Arc<State> {
        let opened = u64::try_from(found.opened.0).unwrap_or_default();
        Arc::new(State {
            schema,
            versions,
            steady,
            newest: watch::Sender::new(found.newest),
            timers: watch::Sender::new(0),
            settled: watch::Sender::new(opened << 16),
            retry_requests: watch::Sender::new(0),
            seqs: CollectionSeqs::new(found.newest),
            key_generation: AtomicU64::new(0),
            search_position: AtomicI64::new(found.search_position),
            searched: found.searched,
            failing: AtomicBool::new(false),
            watchdog: Watchdog::new(),
            counters: Counters::default(),
            #[cfg(test)]
            faults: crate::faults::Faults::default(),
        })
    }

    pub fn newest(&self) -> i64 {
        *self.newest.borrow()
    }

    /// How many events the search indexes have not read; zero when there is no index.
    pub fn search_lag(&self) -> i64 {
        match self.searched {
            true => self.newest() - self.search_position.load(Ordering::Acquire),
            false => 0,
        }
    }

    /// Makes a durable commit known: first the sequences, then the wake-up.
    pub fn publish(&self, progress: &Progress, writes: usize) {
        let counters = &self.counters;
        counters.commits.fetch_add(1, Ordering::Relaxed);
        counters.writes.fetch_add(writes as u64, Ordering::Relaxed);
        let class = writes.max(1).next_power_of_two().trailing_zeros() as usize;
        if let Some(counter) = counters.batch_sizes.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        counters.timers_failed.fetch_add(progress.timers_failed, Ordering::Relaxed);
        let touched = &progress.touched;
        if !touched.is_empty() {
            self.publish_foreign(touched, progress.next_seq - 1);
        }
    }

    /// Makes events up to `newest` known that are durable already: collections that changed, and
    /// when. Others may have been made known in the meantime, and nothing goes back.
    pub fn publish_foreign(&self, touched: &[(Scope, CollectionIx, i64)], newest: i64) {
        self.seqs.record(touched);
        let keys = |ix: usize| {
            let collection = &self.schema.collections[ix];
            collection.internal && matches!(&*collection.name, "keys" | "accounts")
        };
        if touched.iter().any(|(_, ix, _)| keys(*ix)) {
            self.key_generation.fetch_add(1, Ordering::AcqRel);
        }
        let timed = |ix: usize| !self.schema.collections[ix].timed.is_empty();
        if touched.iter().any(|(_, ix, _)| timed(*ix)) {
            self.timers.send_modify(|count| *count += 1);
        }
        self.advance(newest);
    }

    fn advance(&self, newest: i64) {
        self.newest.send_if_modified(|known| {
            let grew = newest > *known;
            *known = newest.max(*known);
            grew
        });
    }

    /// Another process has committed: anything may have changed up to `newest`.
    pub fn adopt(&self, newest: i64) {
        self.seqs.forget(newest);
        self.key_generation.fetch_add(1, Ordering::AcqRel);
        self.timers.send_modify(|count| *count += 1);
        self.retry_requests.send_modify(|count| *count += 1);
        self.advance(newest);
    }

    pub fn figures(&self, database_bytes: u64) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            commits: read(&self.counters.commits),
            writes: read(&self.counters.writes),
            queue: read(&self.counters.queue),
            search_lag: self.search_lag().max(0),
            database_bytes,
            timers_failed: read(&self.counters.timers_failed),
            batch_sizes: std::array::from_fn(|place| read(&self.counters.batch_sizes[place])),
        }
    }
}

/// Sequence of the last change per scope and collection. What is not in the map has not changed
/// since the floor.
pub struct CollectionSeqs(RwLock<Changes>);

struct Changes {
    floor: i64,
    last: HashMap<(Scope, CollectionIx), i64>,
}

impl CollectionSeqs {
    pub fn new(floor: i64) -> CollectionSeqs {
        CollectionSeqs(RwLock::new(Changes { floor, last: HashMap::new() }))
    }

    pub fn of(&self, scope: Scope, collection: CollectionIx) -> i64 {
        let changes = self.0.read();
        changes.last.get(&(scope, collection)).copied().unwrap_or(changes.floor)
    }

    pub fn record(&self, touched: &[(Scope, CollectionIx, i64)]) {
        let mut changes = self.0.write();
        for &(scope, collection, seq) in touched {
            let known = changes.last.contains_key(&(scope, collection));
            if changes.last.len() >= COLLECTION_SEQS && !known {
                // A collection that is forgotten counts as changed just now.
                changes.last.clear();
                changes.floor = changes.floor.max(seq);
            }
            let last = changes.last.entry((scope, collection)).or_insert(seq);
            *last = seq.max(*last);
        }
    }

    /// Another process wrote: anything may have changed up to `seq`.
    pub fn forget(&self, seq: i64) {
        let mut changes = self.0.write();
        changes.last.clear();
        changes.floor = changes.floor.max(seq);
    }
}
