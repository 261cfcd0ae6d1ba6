//! The call into the service: a limit on concurrent requests, caught panics, completed refusals.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::HeaderValue;
use http::header::ALLOW;

use crate::Answer;
use crate::exchange::{Exchange, Response};
use crate::fault::Fault;
use crate::memory::{Charge, Charges, Key, Memory};
use crate::payload::Payload;
use crate::worker::{Worker, take_place};

/// A response that the service is working on, and its place among the concurrent requests.
pub(crate) struct PendingResponse<'w> {
    answer: Answer<'w>,
    /// None once the response waits for something to happen, which is no work.
    place: Option<Place<'w>>,
}

/// Calls the service. A panic is caught here and in [`PendingResponse::poll`], so that the client
/// gets a response, and other requests and connections go on.
pub(crate) fn begin(worker: &Worker, exchange: Exchange) -> Result<PendingResponse<'_>, Fault> {
    let place = Place::take(&worker.shared.exchanges, worker.limits.max_exchanges);
    let place = Some(place.ok_or_else(|| Fault::overloaded(&exchange.headers))?);
    let answer = catch_unwind(AssertUnwindSafe(|| worker.service.call(exchange)));
    Ok(PendingResponse { answer: answer.map_err(|_| panicked())?, place })
}

impl PendingResponse<'_> {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, Fault>> {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.answer.as_mut().poll(cx))) {
                Ok(Poll::Ready(Response { body: Payload::Later(answer), .. })) => {
                    self.answer = answer;
                    self.place = None;
                }
                Ok(poll) => return poll.map(Ok),
                Err(_) => return Poll::Ready(Err(panicked())),
            }
        }
    }

    /// Whether it waits for something to happen.
    pub(crate) fn waits(&self) -> bool {
        self.place.is_none()
    }
}

fn panicked() -> Fault {
    tracing::error!("the service panicked");
    Fault::Internal
}

/// The service's answer to a fault.
pub(crate) fn refusal(worker: &Worker, fault: Fault) -> Response {
    let mut response = worker.service.refuse(fault);
    if let Payload::Later(_) = response.body {
        // A refusal cannot wait.
        response.body = Payload::default();
    }
    if fault == Fault::Tunnel && !response.headers.contains_key(ALLOW) {
        // RFC 9110 10.2.1: a 405 must carry it; empty means that no method is allowed.
        response.headers.insert(ALLOW, HeaderValue::from_static(""));
    }
    response
}

/// What of the client decides about the response.
#[derive(Clone, Copy)]
pub(crate) struct Requester {
    pub(crate) client: IpAddr,
    pub(crate) is_safe: bool,
}

/// An answer and what it is charged to.
pub(crate) struct ChargedResponse {
    pub(crate) response: Response,
    pub(crate) charge: Option<Charge>,
    /// For what follows the head.
    pub(crate) charges: Charges,
}

/// Whether the response is sent even if there is no room for it. The response to a write is never
/// replaced: its effect is there, and a client that reads otherwise repeats it. A refused write and
/// a repeated one have no effect.
pub(crate) fn must_be_sent(response: &Response, is_safe: bool) -> bool {
    !is_safe && !response.is_repeatable && !response.status.is_client_error()
}

/// The response with its charge, or a small refusal where there is no room for it.
pub(crate) fn charged(
    worker: &Worker,
    outcome: Result<Response, Fault>,
    memory: &Arc<Memory>,
    requester: Requester,
) -> ChargedResponse {
    let fault = match outcome {
        Ok(response) => {
            let charges = memory.charges(Key::answer(response.holder, requester.client));
            let charge = charges.take_answer(&response.body);
            let must_be_sent = must_be_sent(&response, requester.is_safe);
            if charge.is_some() || must_be_sent {
                return ChargedResponse { response, charge, charges };
            }
            Fault::Overloaded
        }
        Err(fault) => fault,
    };
    let response = refusal(worker, fault);
    let charges = memory.charges(Key::answer(response.holder, requester.client));
    ChargedResponse { charge: charges.take_answer(&response.body), response, charges }
}

/// The place of a running exchange, given back when the call ends or is broken off.
struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    fn take(taken: &AtomicUsize, limit: usize) -> Option<Place<'_>> {
        take_place(taken, limit).then(|| Place(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
