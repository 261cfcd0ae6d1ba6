//! Collects facts about a request from its head to its response, for headers, metrics and the
//! access log. Each request is counted and logged exactly once: when it is answered, or when it is
//! dropped because its client disconnected.

use crate::activity::{Activity, ErrorNote, Noted, ShortText};
use crate::auth::Identity;
use crate::deprecation::{Deprecations, Headers, Part};
use crate::error::Shape;
use crate::in_flight::Slot;
use crate::limit::{Moment, Quota};
use crate::log::{AccessLog, Line};
use crate::metrics::{Metrics, RouteKey, RouteTable, method_label};
use crate::route::{self, Channel};
use crate::version::Versioning;
use crate::{Outside, keys};
use http::{HeaderValue, StatusCode, Uri};
use model::Timestamp;
use model::problem::Problem;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::{Exchange, Holder, Share};

/// Status in metrics and log of a request whose client disconnected before the response. It is
/// never sent; nginx uses the same number.
const CLIENT_LEFT: u16 = 499;

/// Facts about a request, for its headers, metrics and log line.
pub(crate) struct Trace {
    /// Arrival time of the request. The clock is read once for key, quota and log line.
    pub(crate) now: Timestamp,
    /// Arrival time since the start of the process.
    uptime: Duration,
    pub(crate) route: Option<RouteKey>,
    /// The mount of its path, if it has one.
    pub(crate) mount: Option<usize>,
    /// Index of the version of the response, once it is known.
    pub(crate) version: Option<usize>,
    pub(crate) identity: Option<Arc<Identity>>,
    /// `Store::key_generation` before the caller was identified.
    pub(crate) key_generation: u64,
    /// Whether the request is for a page that operators need.
    pub(crate) is_for_operators: bool,
    /// The slot of the request among those of its account.
    pub(crate) slot: Option<Slot>,
    /// The memory of the request body.
    pub(crate) body: Option<Share<i64>>,
    pub(crate) quota: Option<Quota>,
    /// Origin of the page that may read the response, if it differs from the service's own.
    pub(crate) page: Option<HeaderValue>,
    /// Whether the response depends on the origin.
    pub(crate) varies_by_origin: bool,
    pub(crate) error: Option<Arc<ErrorNote>>,
    /// Headers about deprecated parts.
    pub(crate) headers: Headers,
    /// Whether the request comes from a proxy that reads the feed of changes.
    pub(crate) is_followed: bool,
    /// What the response depends on, for such a proxy.
    pub(crate) dependencies: Option<Box<Dependencies>>,
}

/// Hashes of what a response depends on. Boxed where it is kept: few requests have any, and a held
/// poll must stay small.
pub(crate) struct Dependencies(pub(crate) Vec<u64>);

impl Trace {
    pub(crate) fn new(now: Timestamp, uptime: Duration) -> Trace {
        Trace {
            now,
            uptime,
            route: None,
            mount: None,
            version: None,
            identity: None,
            key_generation: 0,
            is_for_operators: false,
            slot: None,
            body: None,
            quota: None,
            page: None,
            varies_by_origin: false,
            error: None,
            headers: Headers::new(),
            is_followed: false,
            dependencies: None,
        }
    }

    /// The account that the response's memory is charged to until the client has received it.
    pub(crate) fn holder(&self) -> Holder {
        match &self.identity {
            _ if self.is_for_operators => Holder::Operator,
            Some(identity) => Holder::Account(identity.caller.scope.account_number()),
            None => Holder::Client,
        }
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment { now: self.now, uptime: self.uptime }
    }

    /// The version that the request asks for, if its mount has that version.
    pub(crate) fn asked_version(
        &self,
        versions: &Versioning,
        exchange: &Exchange,
    ) -> Option<usize> {
        let query = match self.route {
            Some(RouteKey::Channel(Channel::Stream | Channel::Socket | Channel::Poll(_))) => {
                exchange.uri.query().unwrap_or_default()
            }
            _ => "",
        };
        let pairs = route::query_pairs(query).unwrap_or_default();
        let said = live::asked_version(&pairs);
        versions.asked(&exchange.headers, said, self.mount)
    }

    /// Chooses the version for a route that all versions share.
    pub(crate) fn choose_version(
        &mut self,
        versions: &Versioning,
        exchange: &Exchange,
        identity: &Identity,
    ) -> Result<(), Problem> {
        let view = versions.choose(&exchange.headers, identity.account.pin, self.mount)?;
        self.version = Some(view.index);
        Ok(())
    }

    /// Counts the deprecated parts that the request uses and sets the headers that announce them.
    pub(crate) fn note_deprecated(&mut self, deprecations: &Deprecations, used: &[&Part]) {
        if used.is_empty() {
            return;
        }
        if let Some(identity) = &self.identity {
            used.iter().for_each(|part| identity.account.usage.count(part.place, self.now));
        }
        self.headers = deprecations.headers(self.version.unwrap_or(0), used);
    }
}

/// Counters, the access log and the ids of requests.
pub(crate) struct Telemetry {
    pub(crate) metrics: Metrics,
    pub(crate) log: Option<Arc<AccessLog>>,
    pub(crate) activity: Activity,
    routes: RouteTable,
    outside: Arc<dyn Outside>,
    /// Random per process and followed by a counter: ids are unique without new entropy for each.
    id_prefix: String,
    requests: AtomicU64,
}

impl Telemetry {
    pub(crate) fn new(
        metrics: Metrics,
        routes: RouteTable,
        is_logged: bool,
        outside: Arc<dyn Outside>,
    ) -> Telemetry {
        let id_prefix = format!("req_{}", keys::hex(&outside.entropy().0[..8]));
        let log = is_logged.then(Arc::default);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (activity, requests) = (Activity::new(threads), AtomicU64::new(0));
        Telemetry { metrics, log, activity, routes, outside, id_prefix, requests }
    }

    /// The number of a new request.
    fn number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// A new id for a request.
    pub(crate) fn request_id(&self) -> Arc<str> {
        self.id_of(self.number())
    }

    /// The number of the request with this id, if this process gave it.
    pub(crate) fn number_of(&self, id: &str) -> Option<u64> {
        let number = id.strip_prefix(&*self.id_prefix)?.parse().ok()?;
        (*self.id_of(number) == *id).then_some(number)
    }

    pub(crate) fn route_name(&self, route: Option<RouteKey>) -> &str {
        self.routes.of(route).name()
    }

    pub(crate) fn id_of(&self, number: u64) -> Arc<str> {
        let mut id = String::with_capacity(self.id_prefix.len() + 20);
        id.push_str(&self.id_prefix);
        id.push_str(itoa::Buffer::new().format(number));
        id.into()
    }

    /// A trace that starts now.
    pub(crate) fn trace(&self) -> Trace {
        Trace::new(self.outside.now(), self.outside.uptime())
    }
}

/// A request in progress.
pub(crate) struct Request {
    telemetry: Arc<Telemetry>,
    pub(crate) id: Arc<str>,
    number: u64,
    pub(crate) shape: Shape,
    pub(crate) trace: Trace,
    began: Duration,
    method: &'static str,
    uri: Uri,
    client: IpAddr,
    answered: bool,
    pub(crate) is_replayed: bool,
}

impl Request {
    pub(crate) fn begin(telemetry: &Arc<Telemetry>, exchange: &Exchange, shape: Shape) -> Request {
        telemetry.metrics.begin();
        let (trace, number) = (telemetry.trace(), telemetry.number());
        Request {
            telemetry: telemetry.clone(),
            id: telemetry.id_of(number),
            number,
            shape,
            began: trace.uptime,
            trace,
            method: method_label(&exchange.method),
            uri: exchange.uri.clone(),
            client: exchange.client,
            answered: false,
            is_replayed: false,
        }
    }

    /// Counts and logs the response.
    pub(crate) fn answered(&mut self, status: StatusCode, bytes: usize) {
        let took = self.took();
        let route = self.telemetry.routes.of(self.trace.route);
        self.telemetry.metrics.answered(route, self.method, status.as_u16(), took);
        self.log(status.as_u16(), took, bytes);
        self.note(status.as_u16(), took);
        self.answered = true;
    }

    /// Keeps the request for its account. It is the last use of the trace: the identity moves.
    fn note(&mut self, status: u16, took: Duration) {
        let Some(identity) = self.trace.identity.take() else { return };
        self.telemetry.activity.note(Noted {
            number: self.number,
            at: self.trace.now,
            took,
            method: self.method,
            path: ShortText::new(self.uri.path()),
            route: self.trace.route,
            status,
            version: self.trace.version.unwrap_or(0),
            is_replayed: self.is_replayed,
            client: self.client,
            identity,
            error: self.trace.error.take(),
        });
    }

    fn took(&self) -> Duration {
        self.telemetry.outside.uptime().saturating_sub(self.began)
    }

    fn log(&self, status: u16, took: Duration, bytes: usize) {
        let Some(log) = &self.telemetry.log else { return };
        let caller = self.trace.identity.as_ref().map(|identity| &identity.caller);
        log.write(&Line {
            time: self.trace.now,
            request_id: &self.id,
            method: self.method,
            path: self.uri.path(),
            status,
            duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            bytes,
            client: self.client,
            account: caller.map(|caller| caller.account.as_str()),
            key: caller.map(|caller| caller.key.as_str()),
            error: self.trace.error.as_ref().map(|error| error.code.as_str()),
            backend: None,
        });
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered {
            // A panic drops the request as well; wire then answers 500.
            let (status, error) = match std::thread::panicking() {
                true => (StatusCode::INTERNAL_SERVER_ERROR.as_u16(), "internal"),
                false => (CLIENT_LEFT, "client_left"),
            };
            self.trace.error = Some(Arc::new(ErrorNote::new(error, "")));
            let route = self.telemetry.routes.of(self.trace.route);
            self.telemetry.metrics.count(route, self.method, status);
            let took = self.took();
            self.log(status, took, 0);
            self.note(status, took);
        }
        self.telemetry.metrics.end();
    }
}
