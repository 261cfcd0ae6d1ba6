//! Metrics for Prometheus. Requests are counted by route template, never by path, so that the
//! schema bounds the number of series.

use crate::route::{self, Channel, Own, Route};
use http::Method;
use model::schema::{Collection, CollectionIx, Schema};
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;
use store::{Figures, Stuck};

/// From 50 µs, a cached read, to 10 s, longer than any request may take.
const LATENCY_BUCKETS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];

pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    latency: HistogramVec,
    in_flight: IntGauge,
}

impl Metrics {
    pub fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let requests = IntCounterVec::new(
            Opts::new(
                "restive_requests_total",
                "Requests, by route, method and status; 499 if the client left before a response.",
            ),
            &["route", "method", "status"],
        )?;
        let latency = HistogramVec::new(
            HistogramOpts::new(
                "restive_request_seconds",
                "Time from request head to response, by route.",
            )
            .buckets(LATENCY_BUCKETS.to_vec()),
            &["route"],
        )?;
        let in_flight = IntGauge::new("restive_requests_in_flight", "Requests in progress.")?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(latency.clone()))?;
        registry.register(Box::new(in_flight.clone()))?;
        Ok(Metrics { registry, requests, latency, in_flight })
    }

    /// The metrics of a route, looked up once.
    pub fn route(&self, name: String) -> RouteMetrics {
        let latency = self.latency.with_label_values(&[name.as_str()]);
        RouteMetrics { name, latency, reads: OnceLock::new(), creates: OnceLock::new() }
    }

    /// Counts a request that starts; `end` follows in every case.
    pub fn begin(&self) {
        self.in_flight.inc();
    }

    pub fn end(&self) {
        self.in_flight.dec();
    }

    /// Counts one finished request.
    pub fn answered(&self, route: &RouteMetrics, method: &str, status: u16, took: Duration) {
        route.latency.observe(took.as_secs_f64());
        self.count(route, method, status);
    }

    /// Counts a request that has no response, and so no response time.
    pub fn count(&self, route: &RouteMetrics, method: &str, status: u16) {
        let counter = || {
            let mut digits = itoa::Buffer::new();
            let labels = [route.name.as_str(), method, digits.format(status)];
            self.requests.with_label_values(&labels)
        };
        // Nearly every response of a route has one of two statuses: count these without hashing
        // three labels.
        match (method, status) {
            ("GET", 200) => route.reads.get_or_init(counter).inc(),
            ("POST", 201) => route.creates.get_or_init(counter).inc(),
            _ => counter().inc(),
        }
    }

    /// The metrics page with the store's current figures.
    pub fn page(&self, figures: &Figures) -> String {
        let mut bytes = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut bytes);
        let mut text = String::from_utf8(bytes).unwrap_or_default();
        if let Err(error) = encoded {
            tracing::error!(%error, "the metrics could not be encoded");
        }
        push_figures(&mut text, figures);
        text
    }
}

impl RouteMetrics {
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A route's name, its histogram and its most frequent counters.
pub struct RouteMetrics {
    name: String,
    latency: Histogram,
    reads: OnceLock<IntCounter>,
    creates: OnceLock<IntCounter>,
}

/// Which kind of route a request took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKey {
    Page,
    Own(Own),
    Channel(Channel),
    Resource { collection: CollectionIx, item: bool, action: Option<usize> },
}

impl RouteKey {
    pub fn of(route: &Route) -> RouteKey {
        match route {
            Route::Resource(target) => RouteKey::Resource {
                collection: target.collection,
                item: target.id.is_some(),
                action: target.action,
            },
            Route::Channel(channel) => RouteKey::Channel(*channel),
            Route::Own(own, _) => RouteKey::Own(*own),
            _ => RouteKey::Page,
        }
    }
}

/// The metrics of every route, created once. Found by index, because every request looks one up.
pub struct RouteTable {
    /// By collection: list, item, then its actions.
    resources: Vec<Vec<RouteMetrics>>,
    pages: RouteMetrics,
    own: Vec<(Own, RouteMetrics)>,
    channels: Vec<(Channel, RouteMetrics)>,
    unknown: RouteMetrics,
}

impl RouteTable {
    pub fn new(schema: &Schema, metrics: &Metrics) -> RouteTable {
        let make = |name: String| metrics.route(name);
        let shapes = |(index, collection): (CollectionIx, &Collection)| {
            if collection.internal {
                return Vec::new();
            }
            let actions = (0..collection.actions.len()).map(|action| (true, Some(action)));
            let all = [(false, None), (true, None)].into_iter().chain(actions);
            all.map(|(item, action)| make(route::template(schema, index, item, action))).collect()
        };
        RouteTable {
            resources: schema.collections.iter().enumerate().map(shapes).collect(),
            pages: make("pages".into()),
            own: Own::ALL
                .map(|own| (own, make(format!("{}/{}", schema.service.mount, own.template()))))
                .into(),
            channels: route::channels(schema).map(|(path, one)| (one, make(path))).collect(),
            unknown: make("unknown".into()),
        }
    }

    pub fn of(&self, route: Option<RouteKey>) -> &RouteMetrics {
        let found = match route {
            None => None,
            Some(RouteKey::Page) => Some(&self.pages),
            Some(RouteKey::Own(own)) => {
                self.own.iter().find(|(one, _)| *one == own).map(|(_, metrics)| metrics)
            }
            Some(RouteKey::Channel(channel)) => {
                let found = self.channels.iter().find(|(one, _)| *one == channel);
                found.map(|(_, metrics)| metrics)
            }
            Some(RouteKey::Resource { collection, item, action }) => {
                let place = action.map_or(usize::from(item), |action| 2 + action);
                self.resources.get(collection).and_then(|shapes| shapes.get(place))
            }
        };
        found.unwrap_or(&self.unknown)
    }
}

/// Methods as labels. Clients can invent methods, so unknown ones share a label.
pub fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Time since each loop last made progress, by name. If several loops share a name, the longest.
pub fn push_silences(text: &mut String, silences: &[Stuck]) {
    let mut worst: BTreeMap<&str, Duration> = BTreeMap::new();
    for one in silences {
        let known = worst.entry(one.name).or_default();
        *known = one.silent.max(*known);
    }
    let name = "restive_loop_silence_seconds";
    let help = "Time since a busy loop last made progress; 0 while it waits for work.";
    text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n"));
    for (which, silent) in worst {
        text.push_str(&format!("{name}{{loop=\"{which}\"}} {:.3}\n", silent.as_secs_f64()));
    }
}

/// Writes the store's own counters.
fn push_figures(text: &mut String, figures: &Figures) {
    let simple: &[(&str, &str, &str, i128)] = &[
        ("restive_commits_total", "counter", "Durable commits.", figures.commits.into()),
        ("restive_writes_total", "counter", "Writes in those commits.", figures.writes.into()),
        ("restive_write_queue", "gauge", "Writes waiting for the writer.", figures.queue.into()),
        (
            "restive_search_lag",
            "gauge",
            "Events that are not in the search index yet.",
            figures.search_lag.into(),
        ),
        (
            "restive_timers_failed_total",
            "counter",
            "Timed transitions that were refused or set aside.",
            figures.timers_failed.into(),
        ),
        ("restive_database_bytes", "gauge", "Size of the database.", figures.database_bytes.into()),
    ];
    for (name, kind, help, value) in simple {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
    }
    let name = "restive_commit_batch_size";
    text.push_str(&format!("# HELP {name} Writes per commit.\n# TYPE {name} histogram\n"));
    let mut below = 0;
    for (place, count) in figures.batch_sizes.iter().enumerate() {
        below += count;
        text.push_str(&format!("{name}_bucket{{le=\"{}\"}} {below}\n", 1u32 << place));
    }
    text.push_str(&format!("{name}_bucket{{le=\"+Inf\"}} {below}\n"));
    text.push_str(&format!("{name}_sum {}\n{name}_count {below}\n", figures.writes));
}
