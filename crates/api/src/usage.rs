//! Who still uses which version: counts per account since the start, so that an operator knows when
//! a version can go. On the way of every request, so it is one addition and one store in memory.

use model::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Accounts counted apart at most; those that have not called for longest are counted together.
const MAX_ACCOUNTS: usize = 100_000;

/// The requests of one account, by version.
pub struct Usage(Box<[Count]>);

#[derive(Default)]
struct Count {
    requests: AtomicU64,
    /// In milliseconds.
    last: AtomicI64,
}

impl Usage {
    fn new(versions: usize) -> Usage {
        Usage((0..versions).map(|_| Count::default()).collect())
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
}

/// The counts of all accounts.
pub struct Usages {
    versions: usize,
    since: Timestamp,
    known: Mutex<Known>,
}

struct Known {
    accounts: HashMap<String, Arc<Usage>>,
    /// Of accounts that are no longer counted apart.
    rest: Usage,
}

impl Usages {
    pub fn new(versions: usize, since: Timestamp) -> Usages {
        let known = Known { accounts: HashMap::new(), rest: Usage::new(versions) };
        Usages { versions, since, known: Mutex::new(known) }
    }

    /// When counting began.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// The counts of an account; the same for the same id.
    pub fn of(&self, account: &str) -> Arc<Usage> {
        let mut known = self.known.lock();
        if let Some(usage) = known.accounts.get(account) {
            return usage.clone();
        }
        if known.accounts.len() >= MAX_ACCOUNTS {
            known.forget();
        }
        let usage = Arc::new(Usage::new(self.versions));
        known.accounts.insert(account.to_owned(), usage.clone());
        usage
    }

    /// By version: requests in all, and accounts that made some.
    pub fn totals(&self) -> Vec<(u64, u64)> {
        let known = self.known.lock();
        let total = |version: usize| {
            let each = known.accounts.values().map(|usage| usage.of(version).0);
            let (requests, accounts) = each.fold((0, 0), |(requests, accounts), one| {
                (requests + one, accounts + u64::from(one > 0))
            });
            (requests + known.rest.of(version).0, accounts)
        };
        (0..self.versions).map(total).collect()
    }
}

impl Known {
    /// Counts accounts together that nobody calls for right now.
    fn forget(&mut self) {
        let rest = &self.rest;
        self.accounts.retain(|_, usage| {
            let used = Arc::strong_count(usage) > 1;
            if !used {
                for (total, one) in rest.0.iter().zip(&usage.0) {
                    total
                        .requests
                        .fetch_add(one.requests.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
            used
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_account_and_version() {
        let usages = Usages::new(2, Timestamp(0));
        usages.of("a").count(0, Timestamp(5));
        usages.of("a").count(1, Timestamp(6));
        usages.of("a").count(1, Timestamp(7));
        usages.of("b").count(1, Timestamp(8));
        usages.of("b").count(2, Timestamp(9));
        assert_eq!(usages.of("a").of(1), (2, Some(Timestamp(7))));
        assert_eq!(usages.of("b").of(0), (0, None));
        assert_eq!(usages.totals(), [(1, 1), (3, 2)]);
    }

    #[test]
    fn accounts_that_are_forgotten_stay_in_the_totals() {
        let usages = Usages::new(1, Timestamp(0));
        let held = usages.of("held");
        held.count(0, Timestamp(1));
        for number in 0..MAX_ACCOUNTS {
            usages.of(&number.to_string()).count(0, Timestamp(2));
        }
        assert_eq!(usages.totals()[0].0, MAX_ACCOUNTS as u64 + 1);
        assert!(usages.known.lock().accounts.len() < 10);
        assert_eq!(usages.of("held").of(0).0, 1);
    }
}
