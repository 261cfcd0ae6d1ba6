//! The call into the service: places for those at work, panics caught, refusals completed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::HeaderValue;
use http::header::ALLOW;

use crate::exchange::{Exchange, Response};
use crate::fault::Fault;
use crate::worker::Worker;
use crate::{Answer, Service};

/// Hands the request over. A panic is caught here and in [`poll`], so that the client learns of it
/// and the connection's other requests, and the thread's other connections, go on.
pub(crate) fn begin(service: &dyn Service, exchange: Exchange) -> Result<Answer<'_>, Fault> {
    catch_unwind(AssertUnwindSafe(|| service.call(exchange))).map_err(|_| panicked())
}

pub(crate) fn poll(answer: &mut Answer<'_>, cx: &mut Context<'_>) -> Poll<Result<Response, Fault>> {
    match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(panicked())),
    }
}

fn panicked() -> Fault {
    tracing::error!("the service panicked");
    Fault::Internal
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

/// Counts one more of what is limited, if there is room. Whoever got it counts it down again.
pub(crate) fn take_place(taken: &AtomicUsize, limit: usize) -> bool {
    let room = taken.fetch_add(1, Ordering::Relaxed) < limit;
    if !room {
        taken.fetch_sub(1, Ordering::Relaxed);
    }
    room
}

/// The place of a running exchange, given back when the call ends or is broken off.
pub(crate) struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    pub(crate) fn take(taken: &AtomicUsize, limit: usize) -> Option<Place<'_>> {
        take_place(taken, limit).then(|| Place(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
