//! Requests under way. Each is a future of the engine's own task; one that panics fails alone.

use crate::engine::clock::Clock;
use crate::guard;
use crate::lane::Job;
use crate::request::{Broken, Post, Stamp};
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
use wire::outgoing::{Call, Names, Report};

/// A request that came to its end.
pub struct Landed {
    pub owner: Owner,
    pub job: Job,
    pub fate: Fate,
    /// When it began, by both clocks.
    pub started: Instant,
    pub created: Rc<str>,
}

pub enum Fate {
    Sent(Box<Report>),
    /// Nothing was sent: the endpoint cannot be called, or the program has a fault.
    Unsent(Broken),
}

/// How requests are sent.
pub struct Way {
    pub client: wire::Client,
    pub reach: Reach,
    pub response_bytes: usize,
}

type Flight = Pin<Box<dyn Future<Output = Landed>>>;

pub struct Sends {
    way: Rc<Way>,
    flights: FuturesUnordered<Flight>,
    stamp: Stamp,
}

impl Sends {
    pub fn new(way: Way, now: Timestamp) -> Sends {
        Sends { way: Rc::new(way), flights: FuturesUnordered::new(), stamp: Stamp::new(now) }
    }

    pub fn len(&self) -> usize {
        self.flights.len()
    }

    pub fn clear(&mut self) {
        self.flights.clear();
    }

    pub fn launch(
        &mut self,
        owner: Owner,
        job: Job,
        post: &Result<Rc<Post>, Broken>,
        clock: &Clock,
        place: Option<Share<i64>>,
    ) {
        let (now, created) = (clock.now, clock.iso());
        let flight: Flight = match post {
            Ok(post) => {
                self.stamp.set(clock.wall);
                let body = post.body(&job.event);
                let headers = post.headers(&job.event, &body, clock.steady, &self.stamp);
                let (way, post) = (self.way.clone(), post.clone());
                Box::pin(async move {
                    let mut sending = pin!(send(way, post, headers, body, now));
                    let fate = poll_fn(|cx| guarded(|| sending.as_mut().poll(cx))).await;
                    // Its account may have another request under way.
                    drop(place);
                    Landed { owner, job, fate, started: now, created }
                })
            }
            Err(broken) => {
                let fate = Fate::Unsent(broken.clone());
                Box::pin(ready(Landed { owner, job, fate, started: now, created }))
            }
        };
        self.flights.push(flight);
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Landed>> {
        Pin::new(&mut self.flights).poll_next(cx)
    }
}

async fn send(way: Rc<Way>, post: Rc<Post>, headers: HeaderMap, body: Bytes, now: Instant) -> Fate {
    let reach = way.reach;
    let call = Call {
        method: Method::POST,
        target: &post.target,
        headers,
        body,
        deadline: (now + post.timeout).into_std(),
        max_response_bytes: way.response_bytes,
        vet: &move |address| guard::allows(address, reach),
        names: Names::Absolute,
    };
    Fate::Sent(Box::new(way.client.send(&call).await))
}

/// Turns a panic into a fate.
fn guarded(poll: impl FnOnce() -> Poll<Fate>) -> Poll<Fate> {
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|_| {
        let message = "the attempt ended by a fault of the service".to_owned();
        Poll::Ready(Fate::Unsent(Broken { class: "internal", message }))
    })
}
