//! How many writes one transaction applies: its time and its bytes are limited. Remembers whose
//! writes are slow. Knows no database and no job.

use super::{BATCH, Stage};
use crate::Error;
use crate::commit::{Applied, Commit, Limits, Rows, WriteResult};
use crate::fair::Tenant;
use model::Write;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long writes are applied before they are committed, those that are left wait for the next
/// batch: one account's large deletes must not hold up everyone's small writes. A batch of small
/// ones takes half as long.
const BATCH_TIME: Duration = Duration::from_millis(15);
/// Bytes of records, events and stored responses in one commit, where they are written at its end:
/// they take most of a second, and all other nodes wait. The last write may go beyond it.
const BATCH_BYTES: usize = 32 << 20;
/// A write that takes longer is slow: until its account sends a fast one, each of its writes has a
/// batch of its own, and between two of them all writes of other accounts are served.
const SLOW_WRITE: Duration = Duration::from_millis(5);
/// Accounts with slow writes that are remembered; all are forgotten when there are more.
const SLOW_ACCOUNTS: usize = 1_000;

pub struct Pace {
    /// Whose last write was slow, or failed.
    slow: HashSet<Tenant>,
    /// How many writes may be loaded at once: about twice as many as were applied, when a batch was
    /// over before all that it had loaded.
    window: usize,
}

impl Pace {
    pub fn new() -> Pace {
        Pace { slow: HashSet::new(), window: BATCH }
    }

    /// Of one transaction.
    pub fn limits() -> Limits {
        Limits { time: BATCH_TIME, bytes: BATCH_BYTES }
    }

    pub fn is_slow(&self, tenant: Tenant) -> bool {
        self.slow.contains(&tenant)
    }

    /// Applies the first writes: as many as fit into the transaction, and at least one.
    pub fn apply<R: Rows>(
        &mut self,
        commit: &mut Commit<'_, R>,
        writes: &[&Write],
        stage: &mut Stage,
    ) -> Result<Vec<WriteResult>, Error> {
        let (mut outcomes, began) = (Vec::with_capacity(writes.len()), Instant::now());
        while let Some(left) = writes.get(outcomes.len()..).filter(|left| !left.is_empty()) {
            let place = outcomes.len();
            if place > 0 && (began.elapsed() > BATCH_TIME || commit.is_full()) {
                break;
            }
            // Where effects are written later, a failure may be that of an earlier write.
            *stage = match commit.batch() {
                1 => Stage::Write(place),
                _ => Stage::Elsewhere,
            };
            let together = &left[..commit.batch().min(self.window).min(left.len())];
            for (write, Applied { outcome, took }) in together.iter().zip(commit.apply(together)?) {
                self.charge(Tenant::from(write.scope), took);
                outcomes.push(outcome);
            }
            self.adapt(together.len(), outcomes.len() - place);
            // A batch is milliseconds of work: reads on this core need not wait for all of it.
            std::thread::yield_now();
        }
        Ok(outcomes)
    }

    fn charge(&mut self, tenant: Tenant, took: Duration) {
        match took <= SLOW_WRITE {
            true => drop(self.slow.remove(&tenant)),
            false => self.separate(tenant),
        }
    }

    /// The account has batches of its own, until one of its writes is fast.
    pub fn separate(&mut self, tenant: Tenant) {
        if self.slow.len() >= SLOW_ACCOUNTS {
            self.slow.clear();
        }
        self.slow.insert(tenant);
    }

    fn adapt(&mut self, loaded: usize, applied: usize) {
        if applied < loaded {
            self.window = (applied * 2).clamp(1, BATCH);
        } else if loaded == self.window {
            self.window = (self.window * 2).min(BATCH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_follows_what_is_applied() {
        let mut pace = Pace::new();
        for (loaded, applied, window) in
            [(256, 256, 256), (256, 1, 2), (2, 1, 2), (1, 1, 2), (2, 2, 4), (4, 3, 6), (6, 6, 12)]
        {
            pace.adapt(loaded, applied);
            assert_eq!(pace.window, window, "{applied} of {loaded}");
        }
    }

    #[test]
    fn an_account_is_slow_until_one_of_its_writes_is_fast() {
        let (mut pace, tenant) = (Pace::new(), Tenant::Account(1));
        pace.charge(tenant, SLOW_WRITE * 2);
        pace.charge(Tenant::Account(2), SLOW_WRITE);
        assert!(pace.is_slow(tenant) && !pace.is_slow(Tenant::Account(2)));
        pace.charge(tenant, SLOW_WRITE);
        assert!(!pace.is_slow(tenant));
    }
}
