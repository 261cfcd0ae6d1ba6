//! One request, from the parsed head to the answer: the last checks, the call into the service,
//! and the answer in the form the HTTP library takes.

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::Service;
use crate::body::Body;
use crate::connection::Connection;
use crate::exchange::{Exchange, Response};
use crate::fault::Fault;
use crate::worker::Worker;

/// Answers a request; never fails, because every failure has an answer.
pub(crate) async fn answer(
    connection: Rc<Connection>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let (index, fault) = connection.begin();
    let is_head = request.method() == Method::HEAD;
    let worker = &connection.worker;
    let admitted = match fault {
        Some(fault) => Err(fault),
        None => admit(&connection, request),
    };
    let mut close = admitted.is_err();
    let mut response = match admitted {
        Err(fault) => refusal(worker, fault),
        Ok(exchange) => {
            let place = Place::take(&worker.shared.exchanges, worker.limits.max_exchanges);
            match place {
                Some(_place) => call(&*worker.service, exchange).await,
                None => Err(Fault::Overloaded),
            }
            .unwrap_or_else(|fault| refusal(worker, fault))
        }
    };
    if response.status.is_informational() {
        response = refusal(worker, Fault::Internal);
    }
    if matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        response.body = Bytes::new();
    } else if is_head {
        response.headers.insert(CONTENT_LENGTH, HeaderValue::from(response.body.len()));
        response.body = Bytes::new();
    }
    close |= !connection.answered(index, response.body.len());
    if close {
        response.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let mut answer = http::Response::new(Full::new(response.body));
    *answer.status_mut() = response.status;
    *answer.headers_mut() = response.headers;
    Ok(answer)
}

/// The service's answer to a fault.
pub(crate) fn refusal(worker: &Worker, fault: Fault) -> Response {
    let mut response = worker.service.refuse(fault);
    if fault == Fault::Tunnel && !response.headers.contains_key(ALLOW) {
        // RFC 9110 10.2.1: a 405 must carry it; empty means that no method is allowed.
        response.headers.insert(ALLOW, HeaderValue::from_static(""));
    }
    response
}

fn admit(connection: &Connection, request: http::Request<Incoming>) -> Result<Exchange, Fault> {
    let (parts, incoming) = request.into_parts();
    let uri = origin_form(parts.uri, &parts.method, &parts.headers)?;
    let limits = &connection.worker.limits;
    Ok(Exchange {
        method: parts.method,
        uri,
        version: parts.version,
        headers: parts.headers,
        peer: connection.peer,
        body: Body::arriving(incoming, limits.body_timeout, limits.body_stall),
    })
}

/// The request target as path and query. An absolute form must name the host that `Host` names:
/// whoever routed the request here may have looked at the other one.
fn origin_form(uri: Uri, method: &Method, headers: &HeaderMap) -> Result<Uri, Fault> {
    if uri.authority().is_none() {
        return match uri.path() {
            path if path.starts_with('/') => Ok(uri),
            "*" if method == Method::OPTIONS => Ok(uri),
            _ => Err(Fault::Malformed("The request target must be a path.")),
        };
    }
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let same = headers
        .get(HOST)
        .is_none_or(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()));
    if !is_http || !same {
        return Err(Fault::Malformed("The request target and the Host header differ."));
    }
    uri.into_parts()
        .path_and_query
        .map(Uri::from)
        .ok_or(Fault::Malformed("The request target must be a path."))
}

/// Runs the service. A panic is caught here, so that the client learns of it and the connection's
/// other requests, and the thread's other connections, go on.
async fn call(service: &dyn Service, exchange: Exchange) -> Result<Response, Fault> {
    let panicked = |_| {
        tracing::error!("the service panicked");
        Fault::Internal
    };
    let begun = catch_unwind(AssertUnwindSafe(|| service.call(exchange)));
    let mut future = begun.map_err(panicked)?;
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panicked(panic))),
    })
    .await
}

/// One of a limited number of places, given back when dropped.
pub(crate) struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    pub(crate) fn take(taken: &AtomicUsize, limit: usize) -> Option<Place<'_>> {
        if taken.fetch_add(1, Ordering::Relaxed) >= limit {
            taken.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Place(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
