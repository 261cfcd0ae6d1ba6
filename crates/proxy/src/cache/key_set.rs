//! Remembers something about keys in a fixed amount of memory. It may forget, and then the cache
//! learns it again.

use std::sync::atomic::{AtomicU64, Ordering};

/// 8,192 keys in 64 KiB.
const PLACES: usize = 8_192;

pub(crate) struct KeySet(Box<[AtomicU64]>);

impl KeySet {
    pub(crate) fn new() -> KeySet {
        KeySet((0..PLACES).map(|_| AtomicU64::new(0)).collect())
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
