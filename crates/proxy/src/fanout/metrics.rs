//! Counters of shared streams, in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Polls;

#[derive(Debug, Default)]
pub(super) struct Metrics {
    clients: AtomicU64,
    joined: AtomicU64,
    behind: AtomicU64,
    lost: AtomicU64,
    resumed: AtomicU64,
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

    /// A stream was lost. Returns the number of those before it.
    pub(super) fn lost(&self) -> u64 {
        self.lost.fetch_add(1, Relaxed)
    }

    /// A stream that the backend had lost goes on.
    pub(super) fn resumed(&self) {
        self.resumed.fetch_add(1, Relaxed);
    }

    pub(super) fn render(&self, streams: usize, polls: &Polls, out: &mut String) {
        for (name, value) in [
            ("streams", streams as u64),
            ("clients", self.clients.load(Relaxed)),
            ("joined_total", self.joined.load(Relaxed)),
            ("behind_total", self.behind.load(Relaxed)),
            ("lost_total", self.lost.load(Relaxed)),
            ("resumed_total", self.resumed.load(Relaxed)),
            ("polls", polls.feeds()),
            ("polls_waiting", polls.waiting()),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "restive_proxy_fanout_{name} {value}");
        }
    }
}
