//! Lanes that lag behind read the log themselves, a batch at a time, until they have caught up with
//! the head. At the start all do.

use super::Engine;
use super::chores::{Batch, Chore};
use super::head::{self, Claim};
use crate::insist::insist;
use crate::lane::Feed;
use crate::limits::Limits;
use crate::prepared::{self, Prepared};
use model::event::Event;
use model::version::Versions;
use model::webhook::Endpoint;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use store::Store;

/// One read may bring this part of all loaded bytes.
const READ_BYTES_PART: usize = 16;

impl Engine {
    /// Puts a lane in line for reading, if it is behind and has little left.
    pub(super) fn want_read(&mut self, number: i64) {
        let Some(lane) = self.lanes.get(&number) else { return };
        if lane.feed != Feed::Behind || lane.reading || lane.hungry || !lane.is_low(&self.limits) {
            return;
        }
        if self.join(number) {
            return;
        }
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.hungry = true;
            self.hungry.push_back(number);
        }
    }

    pub(super) fn feed_hungry(&mut self) {
        while self.reads < self.limits.reads && self.loaded.bytes() <= self.limits.loaded_bytes {
            let Some(number) = self.hungry.pop_front() else { return };
            let most = self.appetite();
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            lane.hungry = false;
            lane.reading = true;
            self.reads += 1;
            let reading = Reading {
                versions: self.versions.clone(),
                version: lane.version,
                store: self.store.clone(),
                limits: self.limits.clone(),
                endpoint: lane.endpoint.clone(),
                after: lane.seen,
                most,
                wanted: lane.capacity(&self.limits),
            };
            self.chores.run(async move { Chore::Read { number, batch: reading.run().await } });
        }
    }

    pub(super) fn was_read(&mut self, number: i64, batch: Batch) {
        self.reads -= 1;
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.reading = false;
        // It went back in the log meanwhile, or wants something else by now: read again.
        if lane.seen != batch.after || !Rc::ptr_eq(&lane.endpoint, &batch.endpoint) {
            self.touch(number);
            return;
        }
        lane.seen = batch.seen;
        let scope = lane.endpoint.scope;
        for event in batch.events {
            self.weighed(prepared::weigh(&event));
            let (lanes, versions) = (&self.lanes, &self.versions);
            let takes = |one: i64| {
                let lane = lanes.get(&one);
                lane.is_some_and(|l| head::wants(versions, &l.endpoint, l.version, &event))
            };
            let pending = self.subscriptions.of(scope, &event.kind, takes).len();
            let Some(lane) = self.lanes.get(&number) else { return };
            let claim = head::claim(&self.versions, &lane.endpoint, lane.version, &event);
            // A ping may have overtaken what was loaded with it.
            if claim == Claim::None || lane.has(event.seq) {
                continue;
            }
            let pending = u32::try_from(pending).unwrap_or(u32::MAX).max(1);
            let event = Prepared::new(event, pending, &self.loaded);
            self.accept(number, &event, claim);
        }
        self.touch(number);
    }

    /// How many events to read at a time, by what they weighed of late.
    pub(super) fn appetite(&self) -> usize {
        let bytes = self.limits.loaded_bytes / READ_BYTES_PART;
        (bytes / self.mean_bytes.max(1)).clamp(1, self.limits.batch)
    }

    fn weighed(&mut self, bytes: usize) {
        // Quick to grow, slow to shrink: large events are what the limit is for.
        self.mean_bytes = self.mean_bytes.max(bytes) - (self.mean_bytes.saturating_sub(bytes)) / 32;
    }
}

/// One read for one lane.
struct Reading {
    versions: Arc<Versions>,
    version: usize,
    store: Arc<dyn Store>,
    limits: Rc<Limits>,
    endpoint: Rc<Endpoint>,
    after: i64,
    most: usize,
    wanted: usize,
}

impl Reading {
    async fn run(self) -> Batch {
        let scope = self.endpoint.scope;
        // Asked before the read, which sees everything that was committed until then.
        let newest = *self.store.position().borrow();
        let ask = || self.store.events(Some(scope), self.after, self.most);
        let mut events = insist("the log", &self.limits, ask).await;
        let last = events.last().map_or(self.after, |event| event.seq);
        let mut seen = match events.len() < self.most {
            true => last.max(newest),
            false => last,
        };
        let claim =
            |event: &Event| head::claim(&self.versions, &self.endpoint, self.version, event);
        events.retain(|event| claim(event) != Claim::None);
        let seqs: Vec<i64> = events.iter().map(|event| event.seq).collect();
        if !seqs.is_empty() {
            let ask = || self.store.deliveries(self.endpoint.number, &seqs);
            let known = insist("deliveries", &self.limits, ask).await;
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
