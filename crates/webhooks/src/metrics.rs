//! Figures of the engine, in the text format of Prometheus. Counted with atomics by the engine's
//! thread, rendered by the thread that answers the request.

use crate::scope_figures::{ByScope, ScopeFigures};
use model::Scope;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;

/// Upper ends of the latency buckets, in milliseconds.
const BUCKETS_MS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30_000];

#[derive(Debug)]
pub struct Metrics {
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed_attempts: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) unsettled: AtomicU64,
    pub(crate) queues: AtomicU64,
    pub(crate) loaded_bytes: AtomicU64,
    oldest_ms: AtomicU64,
    latency: [AtomicU64; BUCKETS_MS.len() + 1],
    latency_us: AtomicU64,
    /// Endpoints with the age of their oldest waiting event, the worst first.
    ages: watch::Sender<Vec<(String, Duration)>>,
    /// Versions with the number of endpoints that are sent to in them.
    versions: watch::Sender<Vec<(String, usize)>>,
    pub(crate) by_scope: ByScope,
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics {
            succeeded: AtomicU64::new(0),
            failed_attempts: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
            queues: AtomicU64::new(0),
            loaded_bytes: AtomicU64::new(0),
            oldest_ms: AtomicU64::new(0),
            latency: [const { AtomicU64::new(0) }; BUCKETS_MS.len() + 1],
            latency_us: AtomicU64::new(0),
            ages: watch::Sender::new(Vec::new()),
            versions: watch::Sender::new(Vec::new()),
            by_scope: ByScope::default(),
        }
    }

    pub(crate) fn took(&self, time: Duration) {
        let millis = time.as_secs_f64() * 1000.0;
        let bucket = BUCKETS_MS.iter().position(|end| millis <= *end as f64);
        self.latency[bucket.unwrap_or(BUCKETS_MS.len())].fetch_add(1, Relaxed);
        self.latency_us.fetch_add(u64::try_from(time.as_micros()).unwrap_or(0), Relaxed);
    }

    /// The worst first, as many as are reported.
    pub(crate) fn waiting(&self, ages: Vec<(String, Duration)>) {
        let oldest = ages.first().map_or(0, |(_, age)| u64::try_from(age.as_millis()).unwrap_or(0));
        self.oldest_ms.store(oldest, Relaxed);
        self.ages.send_replace(ages);
    }

    /// The deliveries of one account and mode.
    pub fn of(&self, scope: Scope) -> ScopeFigures {
        self.by_scope.of(scope)
    }

    pub(crate) fn spoken(&self, versions: Vec<(String, usize)>) {
        self.versions.send_replace(versions);
    }

    /// `names_endpoints`: endpoints belong to accounts, so only the operator reads their ids.
    pub fn render(&self, out: &mut String, names_endpoints: bool) {
        let count = |cell: &AtomicU64| cell.load(Relaxed);
        head(out, "restive_webhook_deliveries_total", "counter", "Deliveries by outcome.");
        for (outcome, cell) in
            [("succeeded", &self.succeeded), ("failed", &self.failed), ("skipped", &self.skipped)]
        {
            let name = "restive_webhook_deliveries_total";
            line(out, format_args!("{name}{{outcome=\"{outcome}\"}} {}", count(cell)));
        }
        let name = "restive_webhook_failed_attempts_total";
        head(out, name, "counter", "Attempts that did not succeed, tried again or not.");
        line(out, format_args!("{name} {}", count(&self.failed_attempts)));
        self.render_latency(out);
        for (name, help, value) in [
            ("in_flight", "Requests in flight.", count(&self.in_flight) as f64),
            ("unsettled", "Outcomes not durable yet.", count(&self.unsettled) as f64),
            ("endpoints", "Endpoints followed.", count(&self.queues) as f64),
            ("loaded_bytes", "Events held in memory.", count(&self.loaded_bytes) as f64),
            (
                "oldest_pending_seconds",
                "Age of the oldest event that is still to be delivered somewhere.",
                count(&self.oldest_ms) as f64 / 1000.0,
            ),
        ] {
            head(out, &format!("restive_webhook_{name}"), "gauge", help);
            line(out, format_args!("restive_webhook_{name} {value}"));
        }
        let name = "restive_webhook_queue_age_seconds";
        head(out, name, "gauge", "Age of an endpoint's oldest undelivered event; the worst ones.");
        match names_endpoints {
            true => self.ages.borrow().iter().for_each(|(endpoint, age)| {
                let age = age.as_secs_f64();
                line(out, format_args!("{name}{{endpoint=\"{endpoint}\"}} {age}"));
            }),
            false => {
                let worst = self.ages.borrow().first().map_or(0.0, |(_, age)| age.as_secs_f64());
                line(out, format_args!("{name} {worst}"));
            }
        }
        let name = "restive_webhook_version_endpoints";
        head(out, name, "gauge", "Enabled endpoints by the version that they are sent.");
        for (version, endpoints) in self.versions.borrow().iter() {
            line(out, format_args!("{name}{{version=\"{version}\"}} {endpoints}"));
        }
    }

    fn render_latency(&self, out: &mut String) {
        let name = "restive_webhook_latency_seconds";
        head(out, name, "histogram", "Time of one attempt, name lookup to the end of the answer.");
        let mut sum = 0;
        for (at, bucket) in self.latency.iter().enumerate() {
            sum += bucket.load(Relaxed);
            match BUCKETS_MS.get(at) {
                Some(end) => {
                    let end = *end as f64 / 1000.0;
                    line(out, format_args!("{name}_bucket{{le=\"{end}\"}} {sum}"));
                }
                None => line(out, format_args!("{name}_bucket{{le=\"+Inf\"}} {sum}")),
            }
        }
        let seconds = Duration::from_micros(self.latency_us.load(Relaxed)).as_secs_f64();
        line(out, format_args!("{name}_sum {seconds}"));
        line(out, format_args!("{name}_count {sum}"));
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}"));
    line(out, format_args!("# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_help_text() {
        let metrics = Metrics::new();
        metrics.succeeded.store(3, Relaxed);
        metrics.took(Duration::from_micros(1500));
        metrics.took(Duration::from_secs(90));
        metrics.waiting(vec![("we_1".into(), Duration::from_millis(2500))]);
        let mut out = String::new();
        metrics.render(&mut out, true);
        for expected in [
            "restive_webhook_deliveries_total{outcome=\"succeeded\"} 3",
            "restive_webhook_latency_seconds_bucket{le=\"0.001\"} 0",
            "restive_webhook_latency_seconds_bucket{le=\"0.002\"} 1",
            "restive_webhook_latency_seconds_bucket{le=\"30\"} 1",
            "restive_webhook_latency_seconds_bucket{le=\"+Inf\"} 2",
            "restive_webhook_latency_seconds_count 2",
            "restive_webhook_oldest_pending_seconds 2.5",
            "restive_webhook_queue_age_seconds{endpoint=\"we_1\"} 2.5",
        ] {
            assert!(out.lines().any(|line| line == expected), "{expected}\n{out}");
        }
        let mut public = String::new();
        metrics.render(&mut public, false);
        assert!(public.contains("\nrestive_webhook_queue_age_seconds 2.5\n"), "{public}");
        assert!(!public.contains("we_1"), "{public}");
        let names: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert!(names.iter().all(|name| name.starts_with("restive_webhook_")));
        assert_eq!(names.len(), out.lines().filter(|line| line.starts_with("# HELP")).count());
    }
}
