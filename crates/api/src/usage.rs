//! Who still uses which version: counts per account, so that an operator knows when a version can
//! go. On the way of every request, so it is one addition and one store in memory; every few
//! seconds, and at the end, what was added is handed to the store in one go.

use model::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use store::Store;
use store::usage::{Used, UsedInAll};

/// Accounts in memory; over it, those that do not call right now are left to the store.
const MAX_ACCOUNTS: usize = 100_000;
/// What a crash loses at most.
const INTERVAL: Duration = Duration::from_secs(5);

/// The requests of one account, by version.
pub struct Usage(Box<[Count]>);

#[derive(Default)]
struct Count {
    requests: AtomicU64,
    /// In milliseconds.
    last: AtomicI64,
    /// How many of the requests the store knows.
    kept: AtomicU64,
}

impl Usage {
    fn new(versions: &[String], kept: &[Used]) -> Usage {
        let count = |version: &String| {
            let Some(used) = kept.iter().find(|used| used.version == *version) else {
                return Count::default();
            };
            Count {
                requests: AtomicU64::new(used.requests),
                last: AtomicI64::new(used.last.0),
                kept: AtomicU64::new(used.requests),
            }
        };
        Usage(versions.iter().map(count).collect())
    }

    /// Counts a request in the version at this place.
    pub fn count(&self, version: usize, now: Timestamp) {
        if let Some(count) = self.0.get(version) {
            count.requests.fetch_add(1, Ordering::Relaxed);
            count.last.store(now.0, Ordering::Relaxed);
        }
    }

    /// Requests in a version, and when the last one came.
    pub fn of(&self, version: usize) -> (u64, Option<Timestamp>) {
        let Some(count) = self.0.get(version) else { return (0, None) };
        let requests = count.requests.load(Ordering::Relaxed);
        let last = Timestamp(count.last.load(Ordering::Relaxed));
        (requests, (requests > 0).then_some(last))
    }

    /// Whether the store knows all of it.
    fn is_kept(&self) -> bool {
        self.0.iter().all(|count| count.added() == 0)
    }
}

impl Count {
    fn added(&self) -> u64 {
        self.requests.load(Ordering::Relaxed) - self.kept.load(Ordering::Relaxed)
    }
}

/// The counts of all accounts.
pub struct Usages {
    versions: Vec<String>,
    since: Timestamp,
    known: Mutex<Known>,
    /// One at a time hands over: what is on its way must not go twice.
    keeping: tokio::sync::Mutex<()>,
}

struct Known {
    accounts: HashMap<String, Arc<Usage>>,
    /// What the store knows, by version: requests, and accounts that made some.
    kept: Vec<(u64, u64)>,
}

impl Usages {
    pub fn new(versions: Vec<String>, used: &UsedInAll) -> Usages {
        let kept = |version: &String| {
            let found = used.versions.iter().find(|(name, ..)| name == version);
            found.map_or((0, 0), |(_, requests, accounts)| (*requests, *accounts))
        };
        let kept = versions.iter().map(kept).collect();
        let known = Known { accounts: HashMap::new(), kept };
        let known = Mutex::new(known);
        Usages { versions, since: used.since, known, keeping: tokio::sync::Mutex::default() }
    }

    /// When counting began.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// The counts of an account; the same for the same id.
    pub async fn of(&self, account: &str, store: &dyn Store) -> Result<Arc<Usage>, store::Error> {
        if let Some(usage) = self.known.lock().accounts.get(account) {
            return Ok(usage.clone());
        }
        let kept = store.usage_of(account).await?;
        let mut known = self.known.lock();
        if known.accounts.len() >= MAX_ACCOUNTS {
            known.accounts.retain(|_, usage| Arc::strong_count(usage) > 1 || !usage.is_kept());
        }
        let fresh = || Arc::new(Usage::new(&self.versions, &kept));
        Ok(known.accounts.entry(account.to_owned()).or_insert_with(fresh).clone())
    }

    /// By version: requests in all, and accounts that made some.
    pub fn totals(&self) -> Vec<(u64, u64)> {
        let known = self.known.lock();
        let mut totals = known.kept.clone();
        for usage in known.accounts.values() {
            for (total, count) in totals.iter_mut().zip(&usage.0) {
                let added = count.added();
                let is_new = added > 0 && count.kept.load(Ordering::Relaxed) == 0;
                *total = (total.0 + added, total.1 + u64::from(is_new));
            }
        }
        totals
    }

    /// The accounts that used this version, with their requests: those that used it most, `most` at
    /// most.
    pub fn accounts(&self, version: usize, most: usize) -> Vec<(String, u64)> {
        let known = self.known.lock();
        let each = known.accounts.iter().map(|(id, usage)| (id, usage.of(version).0));
        let mut used: Vec<(&String, u64)> = each.filter(|(_, requests)| *requests > 0).collect();
        used.sort_unstable_by_key(|(id, requests)| (std::cmp::Reverse(*requests), *id));
        used.truncate(most);
        used.into_iter().map(|(id, requests)| (id.clone(), requests)).collect()
    }

    /// Hands what was added to the store; what cannot be kept now is tried again the next time.
    pub async fn keep(&self, store: &dyn Store) {
        let _one = self.keeping.lock().await;
        let added = self.added();
        if added.is_empty() {
            return;
        }
        if let Err(error) = store.add_usage(added.clone()).await {
            tracing::warn!(%error, "counts of version usage cannot be kept");
            return;
        }
        let mut known = self.known.lock();
        let Known { accounts, kept } = &mut *known;
        for used in added {
            let place = self.versions.iter().position(|version| *version == used.version);
            let usage = accounts.get(&used.account);
            let (Some(place), Some(usage)) = (place, usage) else { continue };
            let before = usage.0[place].kept.fetch_add(used.requests, Ordering::Relaxed);
            kept[place].0 += used.requests;
            kept[place].1 += u64::from(before == 0);
        }
    }

    /// What the store does not know yet.
    fn added(&self) -> Vec<Used> {
        let known = self.known.lock();
        let of_account = |(account, usage): (&String, &Arc<Usage>)| {
            let counts = self.versions.iter().zip(&usage.0);
            let counts = counts.map(|(version, count)| Used {
                account: account.clone(),
                version: version.clone(),
                requests: count.added(),
                last: Timestamp(count.last.load(Ordering::Relaxed)),
            });
            counts.filter(|used| used.requests > 0).collect::<Vec<_>>()
        };
        known.accounts.iter().flat_map(of_account).collect()
    }

    /// Runs until the task is dropped.
    pub async fn run(self: Arc<Usages>, store: Arc<dyn Store>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.keep(&*store).await;
        }
    }
}
