//! Following the log: everything that leaves the service does it by this loop. A follower has a
//! position, wakes on commit, never skips a committed event and never sees an uncommitted one.

use crate::{Error, EventPage, Log};
use model::Scope;
use model::event::Event;
use std::sync::Arc;
use tokio::sync::watch;

pub struct Follower {
    log: Arc<dyn Log>,
    scope: Option<Scope>,
    position: i64,
    newest: watch::Receiver<i64>,
}

impl Follower {
    /// Follows one scope, or all of them, from just after `position`.
    pub fn new(log: Arc<dyn Log>, scope: Option<Scope>, position: i64) -> Follower {
        // Subscribed before the first query, so that no commit falls between the two.
        let newest = log.position();
        Follower { log, scope, position, newest }
    }

    pub fn position(&self) -> i64 {
        self.position
    }

    /// Waits until there is something after the position, then returns at most `max` events.
    pub async fn next_batch(&mut self, max: usize) -> Result<Vec<Event>, Error> {
        self.next_batch_within(max, usize::MAX).await
    }

    /// Like `next_batch`, and at most `bytes` of events, but for the first.
    pub async fn next_batch_within(
        &mut self,
        max: usize,
        bytes: usize,
    ) -> Result<Vec<Event>, Error> {
        loop {
            self.ready().await?;
            let batch = self.read(max, bytes).await?;
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    /// Waits until something was committed after the position.
    pub async fn ready(&mut self) -> Result<(), Error> {
        let position = self.position;
        match self.newest.wait_for(|newest| *newest > position).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Failed("the store was closed".into())),
        }
    }

    /// At most `max` events after the position, possibly none. Ends before the event that exceeds
    /// `bytes`, but always returns the first.
    pub async fn read(&mut self, max: usize, bytes: usize) -> Result<Vec<Event>, Error> {
        let newest = *self.newest.borrow_and_update();
        let read = self.log.events_within(self.scope, self.position, max, bytes);
        let EventPage { events, more } = read.await?;
        match events.last() {
            Some(last) if more => self.position = last.seq,
            // Everything up to `newest` was looked at, foreign scopes included.
            last => self.position = newest.max(last.map_or(0, |event| event.seq)),
        }
        Ok(events)
    }
}
