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
use crate::follow::Exact;

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
/// One URL has at most this part of a shard, one response at most half of that.
const URLS_PER_SHARD: u64 = 4;
/// The part of the cache for entries of one credential each. They have it for themselves: a client
/// that reads much of its own must not push out what is for all.
const PRIVATE_PART: u64 = 4;

/// A stored response.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) selection: Selection,
    pub(crate) rules: Rules,
    /// Why it may be used without a validation.
    pub(crate) exact: Option<Exact>,
}

/// The stored responses to one URL, the newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variants(Arc<[Arc<Stored>]>);

type Entries = Cache<Key, Variants, Weight, DefaultHashBuilder, Evictions>;

pub(crate) struct Store {
    shared: Entries,
    private: Entries,
    evicted: Arc<AtomicU64>,
}

impl Store {
    pub(crate) fn new(size_bytes: u64) -> Store {
        let evicted = Arc::<AtomicU64>::default();
        let entries = |size_bytes: u64| {
            let options = OptionsBuilder::new()
                .shards(SHARDS)
                .estimated_items_capacity((size_bytes / (16 * 1024)).max(1024) as usize)
                .weight_capacity(size_bytes)
                .build()
                .expect("items and weight are set");
            let hasher = DefaultHashBuilder::default();
            Cache::with_options(options, Weight, hasher, Evictions(evicted.clone()))
        };
        let private_bytes = size_bytes / PRIVATE_PART;
        let (shared, private) = (entries(size_bytes - private_bytes), entries(private_bytes));
        Store { shared, private, evicted }
    }

    /// A smaller cache evicts at once.
    pub(crate) fn resize(&self, size_bytes: u64) {
        let private_bytes = size_bytes / PRIVATE_PART;
        self.shared.set_capacity(size_bytes - private_bytes);
        self.private.set_capacity(private_bytes);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.shared.capacity() == 0
    }

    fn entries(&self, key: &Key) -> &Entries {
        if key.is_private { &self.private } else { &self.shared }
    }

    /// The largest body that is stored under such a key.
    pub(crate) fn max_body_bytes(&self, key: &Key) -> u64 {
        MAX_ENTRY_BYTES.min(self.max_url_bytes(key) / 2)
    }

    fn max_url_bytes(&self, key: &Key) -> u64 {
        self.entries(key).shard_capacity() / URLS_PER_SHARD
    }

    pub(crate) fn variants(&self, key: &Key) -> Option<Variants> {
        self.entries(key).get(key)
    }

    /// Adds a response in place of the one with the same selection. The caller has the lock for
    /// writers.
    pub(crate) fn insert(&self, key: &Key, stored: Arc<Stored>) {
        let before = self.entries(key).peek(key).unwrap_or_default();
        let others = before.0.iter().filter(|other| other.selection != stored.selection);
        let mut left = self.max_url_bytes(key).saturating_sub(stored.weight_bytes());
        let mut kept = vec![stored.clone()];
        for other in others.take(MAX_VARIANTS - 1) {
            let Some(rest) = left.checked_sub(other.weight_bytes()) else { break };
            left = rest;
            kept.push(other.clone());
        }
        self.entries(key).insert(key.clone(), Variants(kept.into()));
    }

    pub(crate) fn remove(&self, key: &Key) -> bool {
        self.entries(key).remove(key).is_some()
    }

    /// Removes one response.
    pub(crate) fn remove_variant(&self, key: &Key, gone: &Selection) {
        let entries = self.entries(key);
        let Some(before) = entries.peek(key) else { return };
        let kept: Vec<_> = before.0.iter().filter(|one| one.selection != *gone).cloned().collect();
        match kept.is_empty() {
            true => drop(entries.remove(key)),
            false => entries.insert(key.clone(), Variants(kept.into())),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shared.len() + self.private.len()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.shared.weight() + self.private.weight()
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
        let exact = self.exact.as_ref().map_or(0, Exact::weight_bytes);
        (self.body.len() + headers + self.selection.weight_bytes() + exact) as u64 + MIN_ENTRY_BYTES
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::key::Origin;
    use crate::cache::policy::{Requester, Times};
    use http::header::CACHE_CONTROL;
    use std::time::{Instant, SystemTime};

    fn stored(body: usize) -> Arc<Stored> {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, "max-age=60".parse().unwrap());
        let now = Instant::now();
        let times = Times { sent: now, received: now, date: SystemTime::now() };
        let rules = Rules::of(StatusCode::OK, &headers, Requester::default(), times).unwrap();
        let (status, selection) = (StatusCode::OK, Selection::default());
        let body = vec![0; body].into();
        Arc::new(Stored { status, headers, body, selection, rules, exact: None })
    }

    #[test]
    fn bytes_and_the_number_of_entries_are_bounded() {
        let store = Store::new(4 << 20);
        let origin = Origin::new(true, "a.test");
        for number in 0..10_000 {
            store.insert(&origin.key(1, &format!("/{number}")), stored(0));
        }
        assert!(store.len() <= (4 << 20) / MIN_ENTRY_BYTES as usize, "{}", store.len());
        for number in 0..200 {
            store.insert(&origin.key(1, &format!("/large{number}")), stored(50_000));
            assert!(store.size_bytes() <= 4 << 20);
        }
        assert!(store.evicted() > 5_000);
    }

    #[test]
    fn private_entries_do_not_push_out_those_for_all() {
        let store = Store::new(4 << 20);
        let shared = Origin::new(true, "a.test").key(1, "/shared");
        store.insert(&shared, stored(1000));
        for number in 0..10_000 {
            let key = Origin::new(true, "a.test").key(1, &format!("/{number}")).private(b"a");
            store.insert(&key, stored(1000));
        }
        assert!(store.variants(&shared).is_some());
        assert!(store.size_bytes() <= 2 << 20);
    }

    #[test]
    fn a_smaller_cache_evicts_at_once() {
        let store = Store::new(4 << 20);
        let key = |number: u32| Origin::new(true, "a.test").key(1, &format!("/{number}"));
        (0..100).for_each(|number| store.insert(&key(number), stored(10_000)));
        store.resize(1 << 20);
        assert!(store.size_bytes() <= 1 << 20, "{}", store.size_bytes());
        store.resize(0);
        assert!(store.is_off() && store.len() == 0);
    }
}
