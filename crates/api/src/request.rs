//! A request from its head to its answer: what is learned about it on its way. Counts it and logs
//! it exactly once: when it is answered, or when it is dropped because its client has left.

use crate::auth::Identity;
use crate::deprecation::Headers;
use crate::error::Shape;
use crate::in_flight::Place;
use crate::limit::{Moment, Quota};
use crate::log::Line;
use crate::metrics::{RouteKey, method_label};
use crate::negotiate;
use crate::service::{Core, Waiting};
use http::{HeaderValue, StatusCode, Uri};
use model::Timestamp;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use wire::{Exchange, Holder, Response, Share};

/// In metrics and log, the status of a request whose client left before the answer. Nobody is sent
/// it; nginx has used this number for the same since long.
const CLIENT_LEFT: u16 = 499;

/// What is learned about a request on its way, for its headers, metrics and log line.
pub(crate) struct Trace {
    /// When the request came: one reading of the clock serves its key, its quota and its log line.
    pub(crate) now: Timestamp,
    /// The same since the start of the process.
    uptime: Duration,
    pub(crate) route: Option<RouteKey>,
    /// The mount of its path, where it has one.
    pub(crate) mount: Option<usize>,
    /// Place of the version it is answered in, once that is known.
    pub(crate) version: Option<usize>,
    pub(crate) identity: Option<Arc<Identity>>,
    /// Whether it asks for a page that operators need.
    pub(crate) is_for_operators: bool,
    /// Its place among the requests of its account.
    pub(crate) place: Option<Place>,
    /// The memory of its body.
    pub(crate) body: Option<Share<i64>>,
    pub(crate) quota: Option<Quota>,
    /// Origin of the page that may read the answer, where it is another than the service's own.
    pub(crate) page: Option<HeaderValue>,
    /// Whether another origin might have been answered otherwise.
    pub(crate) varies_by_origin: bool,
    pub(crate) error: Option<String>,
    /// What is deprecated about it.
    pub(crate) headers: Headers,
}

impl Trace {
    pub(crate) fn new(now: Timestamp, uptime: Duration) -> Trace {
        Trace {
            now,
            uptime,
            route: None,
            mount: None,
            version: None,
            identity: None,
            is_for_operators: false,
            place: None,
            body: None,
            quota: None,
            page: None,
            varies_by_origin: false,
            error: None,
            headers: Headers::new(),
        }
    }

    /// Who the answer is charged to until the client has taken it.
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
}

/// A request that is being answered.
pub(crate) struct Request {
    pub(crate) core: Arc<Core>,
    pub(crate) id: String,
    pub(crate) shape: Shape,
    pub(crate) trace: Trace,
    began: Duration,
    method: &'static str,
    uri: Uri,
    client: IpAddr,
    answered: bool,
}

impl Request {
    pub(crate) fn begin(core: &Arc<Core>, exchange: &Exchange) -> Request {
        core.metrics.begin();
        Request {
            core: core.clone(),
            id: core.request_id(),
            shape: negotiate::error_shape(&exchange.headers, core.usual_shape()),
            trace: Trace::new(core.outside.now(), core.outside.uptime()),
            began: core.outside.uptime(),
            method: method_label(&exchange.method),
            uri: exchange.uri.clone(),
            client: exchange.client,
            answered: false,
        }
    }

    /// Counts and logs the answer.
    pub(crate) fn answered(&mut self, status: StatusCode, bytes: usize) {
        let took = self.took();
        let route = self.core.routes.of(self.trace.route);
        self.core.metrics.answered(route, self.method, status.as_u16(), took);
        self.log(status.as_u16(), took, bytes);
        self.answered = true;
    }

    fn took(&self) -> Duration {
        self.core.outside.uptime().saturating_sub(self.began)
    }

    fn log(&self, status: u16, took: Duration, bytes: usize) {
        let Some(log) = &self.core.log else { return };
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
            error: self.trace.error.as_deref(),
        });
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered {
            // A panic drops it as well; wire then answers 500.
            let (status, error) = match std::thread::panicking() {
                true => (StatusCode::INTERNAL_SERVER_ERROR.as_u16(), "internal"),
                false => (CLIENT_LEFT, "client_left"),
            };
            self.trace.error = Some(error.to_owned());
            let route = self.core.routes.of(self.trace.route);
            self.core.metrics.count(route, self.method, status);
            self.log(status, self.took(), 0);
        }
        self.core.metrics.end();
    }
}

/// The answer, when what it waits for has happened.
#[expect(clippy::manual_async_fn, reason = "it would keep room for what it is given twice over")]
pub(crate) fn later(
    waiting: Waiting,
    mut request: Request,
) -> impl Future<Output = Response> + Send + 'static {
    async move {
        let reply = waiting.await;
        let core = request.core.clone();
        core.close(reply, &mut request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task_bytes<F: Future>(_: impl FnOnce(Waiting, Request) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_held_poll_keeps_stays_small() {
        // Beside what `live` keeps of it. A kilobyte more would be a gigabyte for a million.
        let bytes = task_bytes(later);
        assert!(bytes <= 512, "{bytes}");
    }
}
