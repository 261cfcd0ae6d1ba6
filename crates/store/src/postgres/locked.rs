//! Collections whose tables somebody keeps locked: another node that changes them, for example.
//! Their reads do not wait on the connections that all short reads share.

use model::CollectionIx;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a table that was locked is taken to be so. Then one read tries.
const TRUST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Locked(Mutex<HashMap<CollectionIx, Instant>>);

impl Locked {
    /// Whether a read of the collection may wait where it holds up others: of a table that was
    /// locked, one from time to time.
    pub fn may_try(&self, collection: CollectionIx) -> bool {
        let mut locked = self.0.lock();
        let Some(until) = locked.get_mut(&collection) else { return true };
        let now = Instant::now();
        let tries = *until <= now;
        if tries {
            *until = now + TRUST;
        }
        tries
    }

    /// What came of a read: whether it met a lock.
    pub fn note(&self, collection: CollectionIx, met: bool) {
        let mut locked = self.0.lock();
        if met {
            locked.insert(collection, Instant::now() + TRUST);
        } else if !locked.is_empty() {
            locked.remove(&collection);
        }
    }
}
