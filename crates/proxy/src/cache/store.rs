//! The stored responses, in bounded memory. The eviction policy is scan-resistant: a response that
//! is used once does not push out one that is used often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use super::key::Key;
use super::policy::Rules;
use super::vary::Selection;

/// The largest body that is stored. 1 MiB: pages and API responses are far smaller, and larger
/// files belong to a disk or to the client's own cache.
pub(crate) const MAX_ENTRY_BYTES: u64 = 1 << 20;
/// Responses to one URL that differ by `Vary`. 8: some codings and some languages; a client that
/// invents values must not fill the cache.
pub(crate) const MAX_VARIANTS: usize = 8;
/// What an entry counts at least, so that the number of entries is bounded as well: 65,536 in the
/// default 64 MiB.
const MIN_ENTRY_BYTES: u64 = 1024;
/// Parts of the cache with a lock each. 4: the worker threads of a small machine.
const SHARDS: usize = 4;
/// One URL has at most this part of a shard, one response at most a quarter of that.
const URLS_PER_SHARD: u64 = 4;

/// A stored response.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) selection: Selection,
    pub(crate) rules: Rules,
}

/// The stored responses to one URL, the newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variants(Arc<[Arc<Stored>]>);

pub(crate) struct Store {
    entries: Cache<Key, Variants, Weight, DefaultHashBuilder, Evictions>,
    evicted: Arc<AtomicU64>,
}

impl Store {
    pub(crate) fn new(size_bytes: u64) -> Store {
        let evicted = Arc::<AtomicU64>::default();
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity((size_bytes / (16 * 1024)).max(64) as usize)
            .weight_capacity(size_bytes)
            .build()
            .expect("items and weight are set");
        let hasher = DefaultHashBuilder::default();
        let entries = Cache::with_options(options, Weight, hasher, Evictions(evicted.clone()));
        Store { entries, evicted }
    }

    /// A smaller cache evicts at once.
    pub(crate) fn resize(&self, size_bytes: u64) {
        if size_bytes != self.entries.capacity() {
            self.entries.set_capacity(size_bytes);
        }
    }

    /// The largest body that is stored now.
    pub(crate) fn max_body_bytes(&self) -> u64 {
        MAX_ENTRY_BYTES.min(self.max_url_bytes() / 4)
    }

    fn max_url_bytes(&self) -> u64 {
        self.entries.shard_capacity() / URLS_PER_SHARD
    }

    pub(crate) fn variants(&self, key: &Key) -> Option<Variants> {
        self.entries.get(key)
    }

    /// Adds a response in place of the one with the same selection. The caller has the lock for
    /// writers.
    pub(crate) fn insert(&self, key: &Key, stored: Arc<Stored>) {
        let before = self.entries.peek(key).unwrap_or_default();
        let others = before.0.iter().filter(|other| other.selection != stored.selection);
        let mut left = self.max_url_bytes().saturating_sub(stored.weight_bytes());
        let mut kept = vec![stored.clone()];
        for other in others.take(MAX_VARIANTS - 1) {
            let Some(rest) = left.checked_sub(other.weight_bytes()) else { break };
            left = rest;
            kept.push(other.clone());
        }
        self.entries.insert(key.clone(), Variants(kept.into()));
    }

    pub(crate) fn remove(&self, key: &Key) -> bool {
        self.entries.remove(key).is_some()
    }

    /// Removes one response.
    pub(crate) fn remove_variant(&self, key: &Key, gone: &Selection) {
        let Some(before) = self.entries.peek(key) else { return };
        let kept: Vec<_> = before.0.iter().filter(|one| one.selection != *gone).cloned().collect();
        match kept.is_empty() {
            true => drop(self.entries.remove(key)),
            false => self.entries.insert(key.clone(), Variants(kept.into())),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.entries.weight()
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

impl Variants {
    /// The response for this request.
    pub(crate) fn select(&self, request: &HeaderMap) -> Option<&Arc<Stored>> {
        self.0.iter().find(|stored| stored.selection.matches(request))
    }

    /// A number for the values of the fields that the newest response depends on.
    pub(crate) fn fingerprint(&self, request: &HeaderMap) -> u64 {
        self.0.first().map_or(0, |newest| newest.selection.fingerprint(request))
    }
}

impl Stored {
    fn weight_bytes(&self) -> u64 {
        let headers = self.headers.iter();
        let headers: usize = headers.map(|(n, v)| n.as_str().len() + v.len() + 64).sum();
        (self.body.len() + headers + self.selection.weight_bytes()) as u64 + MIN_ENTRY_BYTES
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Variants> for Weight {
    fn weight(&self, key: &Key, variants: &Variants) -> u64 {
        let all: u64 = variants.0.iter().map(|stored| stored.weight_bytes()).sum();
        all + key.weight_bytes() as u64
    }
}

/// Counts the URLs that are pushed out.
#[derive(Clone)]
struct Evictions(Arc<AtomicU64>);

impl Lifecycle<Key, Variants> for Evictions {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Key, _: Variants) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
