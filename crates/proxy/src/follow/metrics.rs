//! Counters of what was answered without asking a backend, in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

use super::link::Held;

#[derive(Default)]
pub(super) struct Metrics {
    hits: AtomicU64,
    changed: AtomicU64,
    in_doubt: AtomicU64,
    unknown_keys: AtomicU64,
    limited_keys: AtomicU64,
}

impl Metrics {
    pub(super) fn count(&self, held: Held) {
        let counter = match held {
            Held::Yes => &self.hits,
            Held::Changed => &self.changed,
            Held::InDoubt => &self.in_doubt,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self, status: StatusCode) {
        let counter = match status {
            StatusCode::TOO_MANY_REQUESTS => &self.limited_keys,
            _ => &self.unknown_keys,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn render(&self, out: &mut String) {
        for (name, counter) in [
            ("exact_total{result=\"hit\"}", &self.hits),
            ("exact_total{result=\"changed\"}", &self.changed),
            ("exact_total{result=\"in_doubt\"}", &self.in_doubt),
            ("refusals_total{status=\"401\"}", &self.unknown_keys),
            ("refusals_total{status=\"429\"}", &self.limited_keys),
        ] {
            let count = counter.load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ = writeln!(out, "restive_proxy_{name} {count}");
        }
    }
}
