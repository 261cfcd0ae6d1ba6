//! The last step of a request: an outcome becomes a response with the headers that every response
//! has, and the request is counted and logged.

use crate::activity::ErrorNote;
use crate::error::{self, Failure};
use crate::metrics::RouteKey;
use crate::respond::{self, Reply};
use crate::route::Channel;
use crate::services::Services;
use crate::trace::{Request, Trace};
use crate::{condition, cors, edge, version};
use http::header::VARY;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use std::pin::Pin;
use std::sync::Arc;
use wire::{Payload, Response};

/// Result of handling a request.
pub(crate) enum Outcome {
    Reply(Reply),
    /// A connection that stays open.
    Open(Response),
    /// A reply that is sent when an event happens.
    Wait(Waiting),
}

pub(crate) type Waiting = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Outcome {
        Outcome::Reply(reply)
    }
}

pub(crate) fn finish(
    services: &Arc<Services>,
    outcome: Result<Outcome, Failure>,
    mut request: Request,
) -> Response {
    match outcome {
        Ok(Outcome::Reply(reply)) => close(services, Ok(reply), &mut request),
        Err(failure) => close(services, Err(failure), &mut request),
        Ok(Outcome::Open(mut response)) => {
            complete(services, &mut response.headers, &request.id, &mut request.trace);
            response.holder = request.trace.holder();
            request.answered(response.status, 0);
            response
        }
        Ok(Outcome::Wait(waiting)) => {
            // A waiting request also gives up its slot in `wire` and counts as an open connection.
            request.trace.slot = None;
            let later = Box::pin(later(services.clone(), waiting, request));
            Response { body: Payload::Later(later), ..Response::default() }
        }
    }
}

/// Waits for the event and then builds the response.
#[expect(clippy::manual_async_fn, reason = "an async fn would store its arguments twice")]
fn later(
    services: Arc<Services>,
    waiting: Waiting,
    mut request: Request,
) -> impl Future<Output = Response> + Send + 'static {
    async move {
        let reply = waiting.await;
        close(&services, reply, &mut request)
    }
}

/// Builds the whole response, counts and logs the request.
fn close(services: &Services, reply: Result<Reply, Failure>, request: &mut Request) -> Response {
    let reply = reply.unwrap_or_else(|failure| {
        let problem = error::explain(failure, &request.id);
        request.trace.error =
            Some(Arc::new(ErrorNote::new(error::code_name(&problem), &problem.message)));
        respond::problem(&problem, request.shape, &request.id)
    });
    let bytes = reply.body.len();
    let Reply { status, mut headers, body, is_repeatable, is_replayed } = reply;
    request.is_replayed = is_replayed;
    complete(services, &mut headers, &request.id, &mut request.trace);
    if request.trace.is_followed {
        edge::attest((&services.schema, &*services.store), status, &mut headers, request);
    }
    let holder = request.trace.holder();
    request.answered(status, bytes);
    Response { status, headers, body: body.into(), holder, is_repeatable }
}

/// The headers that every response carries.
pub(crate) fn complete(
    services: &Services,
    headers: &mut HeaderMap,
    request_id: &str,
    trace: &mut Trace,
) {
    const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
    if let Ok(mut value) = HeaderValue::from_str(request_id) {
        respond::mark_unique(&mut value);
        headers.insert(REQUEST_ID, value);
    }
    if let Some(page) = trace.page.take() {
        cors::share(headers, page);
    }
    if trace.varies_by_origin {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    let version = trace.version.unwrap_or(0);
    headers.insert(version::HEADER, services.versions.name(version));
    if let Some(quota) = &trace.quota {
        quota.write(headers);
    }
    if trace.headers.is_empty() {
        // A request that was refused early still named a collection.
        let collection = match trace.route {
            Some(RouteKey::Resource { collection, .. }) => Some(collection),
            Some(RouteKey::Channel(Channel::Poll(feed))) => Some(feed),
            _ => None,
        };
        let used = collection.map(|collection| services.deprecations.about(version, collection));
        trace.headers = services.deprecations.headers(version, &used.unwrap_or_default());
    }
    for (name, value) in trace.headers.drain(..) {
        headers.append(name, value);
    }
}

/// Checks the conditions of a read, which depend on the response (RFC 9110 13.2.2).
pub(crate) fn check_read(
    method: &Method,
    headers: &HeaderMap,
    reply: Reply,
) -> Result<Reply, Failure> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let is_shown = reply.status.is_success() || reply.status == StatusCode::NOT_MODIFIED;
    if is_read && is_shown && condition::is_conditional(headers) {
        condition::of_response(headers, &reply.headers)?;
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task_bytes<F: Future>(_: impl FnOnce(Arc<Services>, Waiting, Request) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_held_poll_keeps_little_memory() {
        // In addition to what `live` keeps for it. One more kilobyte would be a gigabyte for a
        // million polls.
        let bytes = task_bytes(later);
        assert!(bytes <= 512, "{bytes}");
    }
}
