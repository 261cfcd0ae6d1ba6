//! An event in the hands of a worker, and the wait for one.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::file::Loaded;
use super::queue::{Finish, Job, Queue};
use super::slot::{Wait, slot};
use super::{Error, Failure};
use crate::event::Revision;

/// An event, as a handler gets it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// For the handler's own check of duplicates: the same in every call for this event.
    pub id: String,
    pub kind: Option<String>,
    /// Id of the resource that changed.
    pub resource: Option<String>,
    /// The bytes as they came.
    pub body: Vec<u8>,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Milliseconds since 1970.
    pub received_ms: i64,
    /// A newer state of the resource was processed before.
    pub is_stale: bool,
}

/// An event that nobody else gets until it is finished. Dropped without a result, the attempt has
/// failed.
#[derive(Debug)]
pub struct Lease {
    claimed: Claimed,
    queue: Option<Arc<Queue>>,
}

/// An event that was taken for a worker, before the worker has it.
#[derive(Debug)]
pub(super) struct Claimed {
    pub number: i64,
    pub event: Event,
    pub revision: Option<Revision>,
}

/// The result of an attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    Done,
    Failed(Failure),
    /// It did not begin.
    Released,
}

impl Claimed {
    pub fn new(loaded: Loaded) -> Self {
        let is_stale = match (&loaded.revision, &loaded.newest) {
            (Some(own), Some(newest)) => own.is_before(newest),
            _ => false,
        };
        let event = Event {
            id: loaded.id,
            kind: loaded.kind,
            resource: loaded.resource,
            body: loaded.body,
            attempt: loaded.attempts + 1,
            received_ms: loaded.received,
            is_stale,
        };
        Self { number: loaded.number, event, revision: loaded.revision }
    }
}

impl Deref for Lease {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.claimed.event
    }
}

impl Lease {
    fn new(claimed: Claimed, queue: Arc<Queue>) -> Self {
        Self { claimed, queue: Some(queue) }
    }

    /// The event is processed. Returns when that is durable.
    ///
    /// An error means that it cannot be stored now. It is stored when the disk works again, and the
    /// event is not handed out before; if the process ends before that, the event is handed out
    /// once more.
    pub async fn done(self) -> Result<(), Error> {
        self.finish(Outcome::Done)?.await.unwrap_or(Err(Error::Closed))
    }

    /// The event is tried again later.
    pub async fn failed(self, failure: Failure) -> Result<(), Error> {
        self.finish(Outcome::Failed(failure))?.await.unwrap_or(Err(Error::Closed))
    }

    pub fn done_blocking(self) -> Result<(), Error> {
        self.finish(Outcome::Done)?.block_until(None).unwrap_or(Err(Error::Closed))
    }

    pub fn failed_blocking(self, failure: Failure) -> Result<(), Error> {
        let wait = self.finish(Outcome::Failed(failure))?;
        wait.block_until(None).unwrap_or(Err(Error::Closed))
    }

    /// Gives the event back without counting an attempt.
    pub fn release(mut self) {
        if let Some(queue) = self.queue.take() {
            release(&queue, &self.claimed);
        }
    }

    fn finish(mut self, outcome: Outcome) -> Result<Wait<Result<(), Error>>, Error> {
        let (answer, wait) = slot();
        let finish = Finish::new(&self.claimed, outcome, Some(answer));
        match self.queue.take() {
            Some(queue) => queue.push(Job::Finish(finish)).map(|()| wait),
            None => Err(Error::Closed),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            let failure = Failure::new("the handler ended without a result");
            let finish = Finish::new(&self.claimed, Outcome::Failed(failure), None);
            let _ = queue.push(Job::Finish(finish));
        }
    }
}

fn release(queue: &Queue, claimed: &Claimed) {
    let _ = queue.push(Job::Finish(Finish::new(claimed, Outcome::Released, None)));
}

/// The wait for an event. Cheap to drop.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Next {
    queue: Arc<Queue>,
    wait: Option<Wait<Option<Claimed>>>,
}

impl Next {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, wait: None }
    }

    fn wait(&mut self) -> &mut Wait<Option<Claimed>> {
        let queue = &self.queue;
        self.wait.get_or_insert_with(|| {
            let (answer, wait) = slot();
            queue.push_claim(answer);
            wait
        })
    }

    pub(super) fn block_until(mut self, deadline: Option<Instant>) -> Option<Lease> {
        let claimed = self.wait().block_until(deadline);
        claimed.flatten().map(|claimed| Lease::new(claimed, self.queue.clone()))
    }
}

impl Future for Next {
    /// None if the inbox was closed.
    type Output = Option<Lease>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Lease>> {
        let claimed = std::task::ready!(Pin::new(self.wait()).poll(context));
        self.wait = None;
        Poll::Ready(claimed.flatten().map(|claimed| Lease::new(claimed, self.queue.clone())))
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        let claimed = self.wait.as_ref().and_then(Wait::close).flatten();
        if let Some(claimed) = claimed {
            release(&self.queue, &claimed);
        }
    }
}

impl std::fmt::Debug for Next {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Next").finish_non_exhaustive()
    }
}
