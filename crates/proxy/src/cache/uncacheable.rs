//! Remembers keys whose responses were not stored. Requests for them do not wait for one another:
//! each would wait in vain.

use std::sync::atomic::{AtomicU64, Ordering};

/// 8,192 keys in 64 KiB. A key that takes the place of another costs one wait.
const PLACES: usize = 8_192;

pub(crate) struct Uncacheable(Box<[AtomicU64]>);

impl Uncacheable {
    pub(crate) fn new() -> Uncacheable {
        Uncacheable((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn has(&self, key: u64) -> bool {
        self.place(key).load(Ordering::Relaxed) == key
    }

    pub(crate) fn add(&self, key: u64) {
        self.place(key).store(key, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, key: u64) {
        let place = self.place(key);
        // Another key may have the place now; then there is nothing to remove.
        let _ = place.compare_exchange(key, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn place(&self, key: u64) -> &AtomicU64 {
        &self.0[key as usize % PLACES]
    }
}
