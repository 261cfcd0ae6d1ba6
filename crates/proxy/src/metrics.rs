//! Counters of the proxy, in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

/// How a server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    ClientError,
    ServerError,
    /// No valid response, or one of a server that is a proxy without one itself. 503 is not among
    /// them: an overloaded server must not lose the others theirs.
    Failed,
}

impl Outcome {
    /// HAProxy counts 501 and 505 as good: the server works, it does not support the request.
    pub(crate) fn of(status: StatusCode) -> Outcome {
        match status.as_u16() {
            502 | 504 => Outcome::Failed,
            500.. => Outcome::ServerError,
            400..=499 => Outcome::ClientError,
            _ => Outcome::Success,
        }
    }

    const ALL: [(Outcome, &'static str); 4] = [
        (Outcome::Success, "success"),
        (Outcome::ClientError, "client_error"),
        (Outcome::ServerError, "server_error"),
        (Outcome::Failed, "failed"),
    ];
}

/// The counters of one server.
#[derive(Debug, Default)]
pub(crate) struct ServerMetrics([AtomicU64; 4]);

impl ServerMetrics {
    pub(crate) fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn render(&self, out: &mut String, group: &str, server: &str) {
        for (outcome, name) in Outcome::ALL {
            let count = self.0[outcome as usize].load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "restive_proxy_backend_responses_total{{backend={},server={},outcome=\"{name}\"}} \
                 {count}",
                quoted(group),
                quoted(server)
            );
        }
    }
}

/// The counters of one route.
#[derive(Debug, Default)]
pub(crate) struct RouteMetrics {
    by_class: [AtomicU64; 5],
    pub(crate) microseconds: AtomicU64,
}

impl RouteMetrics {
    pub(crate) fn count(&self, status: StatusCode, microseconds: u64) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.by_class[class].fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    pub(crate) fn render(&self, out: &mut String, site: &str, route: &str) {
        let labels = format!("site={},route={}", quoted(site), quoted(route));
        for (class, count) in self.by_class.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            let class = class + 1;
            let _ = writeln!(
                out,
                "restive_proxy_requests_total{{{labels},status=\"{class}xx\"}} {count}"
            );
        }
        let seconds = self.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "restive_proxy_request_seconds_total{{{labels}}} {seconds}");
    }
}

/// The value of a label.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
