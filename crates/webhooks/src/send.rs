//! Requests under way. Each is a future of the engine's own task; one that panics fails alone.

use crate::engine::clock::Clock;
use crate::guard;
use crate::lane::Job;
use crate::prepared::Prepared;
use crate::request::{Broken, Post, Stamp};
use crate::settle::Owner;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use http::HeaderMap;
use model::Timestamp;
use model::webhook::Reach;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::time::Instant;
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
    ) {
        let (now, wall, created) = (clock.now, clock.wall, clock.iso());
        let fate: Pin<Box<dyn Future<Output = Fate>>>;
        match post {
            Ok(post) => {
                self.stamp.set(wall);
                let event: &Prepared = &job.event;
                let body = post.body(event);
                let headers = post.headers(event, &body, wall, &self.stamp);
                fate = Box::pin(send(self.way.clone(), post.clone(), headers, body, now));
            }
            Err(broken) => {
                let broken = broken.clone();
                fate = Box::pin(async move { Fate::Unsent(broken) });
            }
        }
        self.flights.push(Box::pin(async move {
            let fate = Guarded(fate).await;
            Landed { owner, job, fate, started: now, created }
        }));
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Landed>> {
        Pin::new(&mut self.flights).poll_next(cx)
    }
}

async fn send(way: Rc<Way>, post: Rc<Post>, headers: HeaderMap, body: Bytes, now: Instant) -> Fate {
    let reach = way.reach;
    let call = Call {
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
struct Guarded(Pin<Box<dyn Future<Output = Fate>>>);

impl Future for Guarded {
    type Output = Fate;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Fate> {
        let inner = self.0.as_mut();
        catch_unwind(AssertUnwindSafe(|| inner.poll(cx))).unwrap_or_else(|_| {
            let message = "the attempt ended by a fault of the service".to_owned();
            Poll::Ready(Fate::Unsent(Broken { class: "internal", message }))
        })
    }
}
