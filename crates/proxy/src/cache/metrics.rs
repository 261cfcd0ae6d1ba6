//! Counters of the cache, in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::status::{Report, Why};
use super::store::Store;

#[derive(Default)]
pub(crate) struct CacheMetrics {
    hits: AtomicU64,
    stale_hits: AtomicU64,
    /// Requests that went to the backend, by reason.
    forwarded: [AtomicU64; WHY.len()],
    collapsed: AtomicU64,
    stored: AtomicU64,
    confirmed: AtomicU64,
    invalidated: AtomicU64,
    /// Requests that wait for a response from the backend, alone or together.
    waiting: AtomicU64,
}

const WHY: [Why; 6] =
    [Why::Bypass, Why::UriMiss, Why::VaryMiss, Why::Stale, Why::Request, Why::Partial];

impl CacheMetrics {
    pub(crate) fn count(&self, report: &Report) {
        let counter = match report.forwarded {
            _ if report.is_collapsed => &self.collapsed,
            None if report.ttl_seconds.is_some_and(|seconds| seconds < 0) => &self.stale_hits,
            None => &self.hits,
            Some(why) => {
                let place = WHY.iter().position(|one| *one == why).unwrap_or(0);
                &self.forwarded[place]
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn confirmed(&self) {
        self.confirmed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn invalidated(&self) {
        self.invalidated.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that waits, until the guard is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }

    pub(crate) fn render(&self, store: &Store, out: &mut String) {
        let mut requests = |result: &str, counter: &AtomicU64| {
            let count = counter.load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ =
                writeln!(out, "restive_proxy_cache_requests_total{{result=\"{result}\"}} {count}");
        };
        requests("hit", &self.hits);
        requests("stale", &self.stale_hits);
        requests("collapsed", &self.collapsed);
        for (why, counter) in WHY.iter().zip(&self.forwarded) {
            requests(&format!("fwd_{}", why.name().replace('-', "_")), counter);
        }
        for (name, value) in [
            ("stored_total", self.stored.load(Ordering::Relaxed)),
            ("revalidated_total", self.confirmed.load(Ordering::Relaxed)),
            ("invalidated_total", self.invalidated.load(Ordering::Relaxed)),
            ("waiting", self.waiting.load(Ordering::Relaxed)),
            ("evicted_total", store.evicted()),
            ("entries", store.len() as u64),
            ("bytes", store.size_bytes()),
        ] {
            let _ = writeln!(out, "restive_proxy_cache_{name} {value}");
        }
    }
}

pub(crate) struct Waiting<'m>(&'m AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
