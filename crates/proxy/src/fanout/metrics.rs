//! Counters of shared streams, in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(super) struct Metrics {
    clients: AtomicU64,
    joined: AtomicU64,
    behind: AtomicU64,
}

impl Metrics {
    pub(super) fn joined(&self) {
        self.clients.fetch_add(1, Relaxed);
        self.joined.fetch_add(1, Relaxed);
    }

    pub(super) fn left(&self) {
        self.clients.fetch_sub(1, Relaxed);
    }

    /// A client was too slow for its ring.
    pub(super) fn fell_behind(&self) {
        self.behind.fetch_add(1, Relaxed);
    }

    pub(super) fn render(&self, streams: usize, out: &mut String) {
        for (name, value) in [
            ("streams", streams as u64),
            ("clients", self.clients.load(Relaxed)),
            ("joined_total", self.joined.load(Relaxed)),
            ("behind_total", self.behind.load(Relaxed)),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "restive_proxy_fanout_{name} {value}");
        }
    }
}
