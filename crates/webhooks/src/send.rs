//! Requests in flight. Each is a future of the engine's own task; one that panics fails alone.

use crate::clock::Clock;
use crate::guard;
use crate::queue::Job;
use crate::request::{EndpointFault, Post, Stamp};
use crate::settle::Owner;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, Method};
use model::Timestamp;
use model::webhook::Reach;
use std::future::{Future, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use wire::Share;
use wire::outgoing::{Call, CallTimeouts, Names, Report, Retry};

/// A request that came to its end.
pub struct Finished {
    pub owner: Owner,
    pub job: Job,
    pub result: SendResult,
    /// When it began, by both clocks.
    pub started: Instant,
    pub created: Rc<str>,
}

pub enum SendResult {
    Sent(Box<Report>),
    /// Nothing was sent: the endpoint cannot be called, or the program has a fault.
    Unsent(EndpointFault),
}

/// How requests are sent.
pub struct Transport {
    pub client: wire::Client,
    pub reach: Reach,
    pub response_bytes: usize,
}

/// A request in flight.
struct Request {
    endpoint: i64,
    sending: Pin<Box<dyn Future<Output = Finished>>>,
}

impl Future for Request {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        self.sending.as_mut().poll(cx)
    }
}

pub struct Sends {
    transport: Rc<Transport>,
    requests: FuturesUnordered<Request>,
    stamp: Stamp,
}

impl Sends {
    pub fn new(transport: Transport, now: Timestamp) -> Sends {
        Sends {
            transport: Rc::new(transport),
            requests: FuturesUnordered::new(),
            stamp: Stamp::new(now),
        }
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn clear(&mut self) {
        self.requests.clear();
    }

    /// Ends the requests to endpoints for which this holds, without an outcome: their connections
    /// are closed.
    pub fn cancel(&mut self, holds: impl Fn(i64) -> bool) -> usize {
        let before = self.requests.len();
        let requests = std::mem::take(&mut self.requests).into_iter();
        self.requests = requests.filter(|request| !holds(request.endpoint)).collect();
        before - self.requests.len()
    }

    pub fn launch(
        &mut self,
        owner: Owner,
        job: Job,
        post: &Result<Rc<Post>, EndpointFault>,
        clock: &Clock,
        place: Option<Share<i64>>,
    ) {
        let (now, created) = (clock.now, clock.iso());
        let sending: Pin<Box<dyn Future<Output = Finished>>> = match post {
            Ok(post) => {
                self.stamp.set(clock.wall);
                let body = post.body(&job.event);
                let headers = post.headers(&job.event, &body, clock.steady, &self.stamp);
                let (transport, post) = (self.transport.clone(), post.clone());
                Box::pin(async move {
                    let mut sending = pin!(send(transport, post, headers, body, now));
                    let result = poll_fn(|cx| guarded(|| sending.as_mut().poll(cx))).await;
                    // Its account may have another request in flight.
                    drop(place);
                    Finished { owner, job, result, started: now, created }
                })
            }
            Err(broken) => {
                let result = SendResult::Unsent(broken.clone());
                Box::pin(ready(Finished { owner, job, result, started: now, created }))
            }
        };
        self.requests.push(Request { endpoint: owner.endpoint(), sending });
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Finished>> {
        Pin::new(&mut self.requests).poll_next(cx)
    }
}

async fn send(
    transport: Rc<Transport>,
    post: Rc<Post>,
    headers: HeaderMap,
    body: Bytes,
    now: Instant,
) -> SendResult {
    let reach = transport.reach;
    let vet = move |address| guard::allows(address, reach);
    let mut call = Call {
        headers,
        body: body.into(),
        timeouts: CallTimeouts::until((now + post.timeout).into_std()),
        // Consumers know a repeated delivery by its number.
        retry: Retry::Replayable,
        max_response_bytes: transport.response_bytes,
        vet: &vet,
        names: Names::Absolute,
        account: Some(post.account),
        ..Call::new(Method::POST, &post.target)
    };
    SendResult::Sent(Box::new(transport.client.send(&mut call).await))
}

/// Turns a panic into a result.
fn guarded(poll: impl FnOnce() -> Poll<SendResult>) -> Poll<SendResult> {
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|_| {
        let message = "the attempt ended by a fault of the service".to_owned();
        Poll::Ready(SendResult::Unsent(EndpointFault { class: "internal", message }))
    })
}
