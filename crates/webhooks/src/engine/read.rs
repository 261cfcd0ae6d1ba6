//! Lanes that lag behind read the log themselves, a batch at a time, until they have caught up with
//! the head. At the start all do.

use super::Engine;
use super::head::{self, Claim};
use super::tasks::{Answer, Batch};
use crate::limits::Limits;
use crate::prepared::{self, Prepared};
use crate::store_retry::until_answered;
use model::event::Event;
use model::version::Versions;
use model::webhook::Endpoint;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use store::{EventPage, Store};
use wire::Share;

/// Events of a batch that a queue's account had no room for are read again.
impl Engine {
    /// Brings a queue that is behind further: from the ring where that goes back far enough, else
    /// from the log.
    pub(super) fn read_on(&mut self, number: i64, reserved: Share<i64>) {
        if self.can_join(number) {
            // What the ring has is in memory; only what the queue keeps of it is charged.
            drop(reserved);
            self.join(number);
            self.touch(number);
            return;
        }
        let Some(queue) = self.queues.get(&number) else { return };
        if queue.intake.searches {
            self.search(number);
            return;
        }
        let reading = Reading {
            versions: self.versions.clone(),
            version: queue.version,
            store: self.store.clone(),
            limits: self.limits.clone(),
            endpoint: queue.endpoint.clone(),
            after: queue.intake.seen,
            bytes: reserved.amount() / Prepared::BYTES_FACTOR,
            wanted: queue.free_places(self.clock.now, &self.limits).max(1),
        };
        self.ask_store(number, Some(reserved), async move { Answer::Read(reading.run().await) });
    }

    pub(super) fn was_read(&mut self, number: i64, batch: Batch) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        // It went back in the log in the meantime, or wants something else by now: read again.
        if queue.intake.seen != batch.after || !Rc::ptr_eq(&queue.endpoint, &batch.endpoint) {
            return;
        }
        queue.intake.seen = batch.seen;
        // Others may be behind in the same range.
        queue.intake.searches = batch.events.is_empty();
        let scope = queue.endpoint.scope;
        for event in batch.events {
            let (queues, versions) = (&self.queues, &self.versions);
            let takes = |one: i64| {
                let queue = queues.get(&one);
                queue.is_some_and(|l| head::wants(versions, &l.endpoint, l.version, &event))
            };
            let pending = self.subscriptions.of(scope, &event.kind, takes).len();
            let Some(queue) = self.queues.get(&number) else { return };
            let claim = head::claim(&self.versions, &queue.endpoint, queue.version, &event);
            // A ping may have overtaken what was loaded with it.
            if claim == Claim::None || queue.intake.has(event.seq) {
                continue;
            }
            let pending = u32::try_from(pending).unwrap_or(u32::MAX).max(1);
            let (seq, weight) = (event.seq, prepared::weigh(&event));
            let room = self.loaded.room(queue.account());
            let fits = queue.has_room(weight, room, self.clock.now, &self.limits)
                && queue.evaluation_wait(&self.evaluation_time).is_none();
            let event = Rc::new(event);
            match Prepared::new(event, pending, &self.loaded).filter(|_| fits) {
                Some(event) => self.accept(number, &event, claim),
                None => {
                    self.no_room(number, seq, weight);
                    return;
                }
            }
        }
    }
}

/// One read for one queue.
struct Reading {
    versions: Arc<Versions>,
    version: usize,
    store: Arc<dyn Store>,
    limits: Rc<Limits>,
    endpoint: Rc<Endpoint>,
    after: i64,
    bytes: usize,
    wanted: usize,
}

impl Reading {
    async fn run(self) -> Batch {
        let scope = self.endpoint.scope;
        // Asked before the read, which sees everything that was committed until then.
        let newest = *self.store.position().borrow();
        let most = self.limits.batch;
        let ask = || self.store.events_within(Some(scope), self.after, most, self.bytes);
        let EventPage { mut events, more } = until_answered("the log", &self.limits, ask).await;
        let last = events.last().map_or(self.after, |event| event.seq);
        let mut seen = if more { last } else { last.max(newest) };
        let claim =
            |event: &Event| head::claim(&self.versions, &self.endpoint, self.version, event);
        events.retain(|event| claim(event) != Claim::None);
        let seqs: Vec<i64> = events.iter().map(|event| event.seq).collect();
        if !seqs.is_empty() {
            let ask = || self.store.deliveries(self.endpoint.number, &seqs);
            let known = until_answered("deliveries", &self.limits, ask).await;
            let known: HashSet<i64> = known.iter().map(|delivery| delivery.event).collect();
            events.retain(|event| !known.contains(&event.seq));
        }
        if events.len() > self.wanted {
            events.truncate(self.wanted);
            seen = events.last().map_or(seen, |event| event.seq);
        }
        Batch { endpoint: self.endpoint, after: self.after, events, seen }
    }
}
