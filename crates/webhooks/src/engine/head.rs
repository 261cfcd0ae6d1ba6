//! The head of the log: one reader for all scopes, woken by each commit. Hands every event to the
//! queues that want it and are not behind, and applies changes of endpoints and replays.

use super::Engine;
use crate::prepared::{self, Loaded, Prepared};
use crate::queue::{EndpointQueue, Feed};
use crate::settle::Owner;
use model::event::Event;
use model::record::parse_object;
use model::schema::Builtin;
use model::version::Versions;
use model::webhook::{Endpoint, pattern};
use model::{CollectionIx, Record, Scope, Timestamp};
use serde_json::Value;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use store::Follower;

/// Events kept after they were handed out, for queues that catch up just then.
const RING_EVENTS: usize = 256;
/// What the ring may hold, and what one read of the head may bring, beside all loaded bytes and as
/// parts of them. Both belong to no account: the ring is shared, and what is read is handed out at
/// once.
const RING_BYTES_PART: usize = 8;
const HEAD_BYTES_PART: usize = 16;

pub struct Head {
    /// At rest: nothing is being read.
    follower: Option<Follower>,
    /// Read and not handed out yet.
    events: VecDeque<Event>,
    /// An endpoint is being read again; what follows may be for its new shape.
    reloading: bool,
    position: i64,
    /// Where the follower is.
    read_to: i64,
    /// How many events the last reading brought.
    handed: usize,
    ring: VecDeque<Recent>,
    ring_bytes: usize,
    /// Everything wanted after here is in the ring.
    ring_since: i64,
}

/// An event that was handed out.
#[derive(Clone)]
struct Recent {
    event: Rc<Event>,
    pending: u32,
    weight: usize,
    /// While some queue has it loaded.
    prepared: Weak<Prepared>,
}

impl Recent {
    /// Loaded once for all who have it at the same time; `None` without room for it.
    fn prepare(&mut self, loaded: &Loaded) -> Option<Rc<Prepared>> {
        if let Some(prepared) = self.prepared.upgrade() {
            return Some(prepared);
        }
        let prepared = Prepared::new(self.event.clone(), self.pending, loaded)?;
        self.prepared = Rc::downgrade(&prepared);
        Some(prepared)
    }
}

impl Head {
    pub fn new(follower: Follower) -> Head {
        let position = follower.position();
        Head {
            follower: Some(follower),
            events: VecDeque::new(),
            reloading: false,
            position,
            read_to: position,
            handed: 0,
            ring: VecDeque::new(),
            ring_bytes: 0,
            ring_since: position,
        }
    }

    /// Everything up to here was handed out.
    pub fn position(&self) -> i64 {
        self.position
    }

    pub fn came(&mut self, follower: Follower, events: Vec<Event>) {
        self.read_to = follower.position();
        self.handed = events.len();
        self.events = events.into();
        self.follower = Some(follower);
    }

    fn keep(&mut self, recent: Recent, most_bytes: usize) {
        self.ring_bytes += recent.weight;
        self.ring.push_back(recent);
        while self.ring.len() > RING_EVENTS || self.ring_bytes > most_bytes {
            let Some(oldest) = self.ring.pop_front() else { break };
            self.ring_bytes -= oldest.weight;
            self.ring_since = oldest.event.seq;
        }
    }
}

/// What an event is to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    None,
    Wanted,
    Ping,
}

impl Engine {
    pub(super) fn advance_head(&mut self) {
        while !self.head.reloading {
            let Some(event) = self.head.events.pop_front() else {
                self.head.position = self.head.read_to.max(self.head.position);
                if let Some(follower) = self.head.follower.take() {
                    let most = self.limits.batch;
                    let bytes = self.limits.loaded_bytes / HEAD_BYTES_PART;
                    // Without endpoints only the first new endpoint matters: reading after each
                    // commit would slow down the writer.
                    let lone = self.queues.is_empty() && self.head.handed < most;
                    let rest = lone.then_some(self.limits.lone_rest);
                    self.tasks.follow(follower, most, bytes, rest);
                }
                return;
            };
            let schema = self.schema.clone();
            let own = |builtin| schema.own(builtin);
            let place = self.schema.find(&event.collection);
            let endpoint = place == Some(own(Builtin::Endpoint)) && event.kind != pattern::PING;
            // Without older versions there is nothing an account could be pinned to.
            let account = place == Some(own(Builtin::Account)) && self.versions.get(1).is_some();
            let of_account = endpoint || place == Some(own(Builtin::Replay));
            if of_account && self.buckets.is_loading(event.scope) {
                // What is being loaded may be older or newer than the change.
                self.head.events.push_front(event);
                return;
            }
            let endpoint = endpoint && self.buckets.serves(event.scope);
            if let Some(collection) = place.filter(|_| endpoint || account) {
                self.head.reloading = true;
                self.tasks.reload(event.scope, collection, event.record.clone());
                // Handed out once the record is as the event left it.
                self.head.events.push_front(event);
                return;
            }
            if place == Some(own(Builtin::Erasure)) {
                self.heard_of_erasure(&event);
            }
            // The next start reads all replays.
            if place == Some(own(Builtin::Replay)) && self.is_running() {
                self.heard_of_replay(&event);
            }
            self.hand_out(event);
        }
    }

    pub(super) fn reloaded(
        &mut self,
        scope: Scope,
        collection: CollectionIx,
        id: &str,
        record: Option<Record>,
    ) {
        self.head.reloading = false;
        let Some(event) = self.head.events.pop_front() else { return };
        match record {
            Some(account) if collection == self.schema.own(Builtin::Account) => {
                self.account_changed(&account);
            }
            record => self.endpoint_changed(scope, id, record),
        }
        self.hand_out(event);
        // Not one per pass: an account whose endpoints change all the time must not slow down the
        // head for the others.
        if self.is_running() {
            self.advance_head();
        }
    }

    fn endpoint_changed(&mut self, scope: Scope, id: &str, record: Option<Record>) {
        let known = self.names.get(&(scope, id.to_owned())).copied();
        match (record, known) {
            (Some(record), Some(number)) => {
                let position = self.head.position;
                self.subscriptions.put(scope, number);
                let endpoint = Endpoint::read(scope, &record);
                let version = self.pins.version(&self.versions, &endpoint);
                if let Some(queue) = self.queues.get_mut(&number) {
                    let was_enabled = queue.enabled;
                    queue.update(endpoint, version, position);
                    if queue.enabled && !was_enabled {
                        // An endpoint that is enabled again does not wait for its earlier
                        // Retry-After.
                        self.settler.pause(number, Timestamp(0));
                        self.replays.touch_for(scope, id);
                    }
                    self.touch(number);
                }
            }
            // Its bucket may have left while the record was read.
            (Some(_), None) if !self.buckets.serves(scope) => {}
            (Some(record), None) => self.open(Endpoint::read(scope, &record), None),
            (None, Some(number)) => self.close(scope, id, number),
            (None, None) => {}
        }
    }

    /// Endpoints without a version of their own follow their account's.
    fn account_changed(&mut self, account: &Record) {
        self.pins.put(&self.versions, account);
        for (number, queue) in &mut self.queues {
            let version = self.pins.version(&self.versions, &queue.endpoint);
            if queue.version != version {
                queue.set_version(version);
                self.subscriptions.put(queue.endpoint.scope, *number);
            }
        }
    }

    /// Events in memory were read before the erasure: they must contain no more than the log now.
    fn heard_of_erasure(&mut self, event: &Event) {
        let erasure = parse_object(&event.object);
        if let Some(resource) = erasure.get("resource").and_then(Value::as_str) {
            self.loaded.erase(event.scope, resource, event.seq);
            self.journal.erase();
        }
    }

    /// The endpoint is gone, and with it what was in flight for it.
    fn close(&mut self, scope: Scope, id: &str, number: i64) {
        self.names.remove(&(scope, id.to_owned()));
        self.subscriptions.remove(scope, number);
        self.settler.forget(number, scope);
        self.queues.remove(&number);
        // Its replays fail.
        self.replays.touch_for(scope, id);
        self.wake_blocked();
    }

    fn hand_out(&mut self, event: Event) {
        self.head.position = event.seq;
        if self.internal.contains(&event.collection) {
            return;
        }
        let (queues, schema) = (&self.queues, &self.schema);
        let versions = &self.versions;
        let takes = |number: i64| {
            queues.get(&number).is_some_and(|l| wants(versions, &l.endpoint, l.version, &event))
        };
        let (claim, takers) = match is_ping(schema, &event) {
            true => {
                let own = self.names.get(&(event.scope, event.record.clone()));
                (Claim::Ping, own.map_or(Rc::new([]) as Rc<[i64]>, |own| Rc::new([*own])))
            }
            false => (Claim::Wanted, self.subscriptions.of(event.scope, &event.kind, takes)),
        };
        if takers.is_empty() {
            return;
        }
        if !self.is_running() {
            self.leave_for_next_start(&takers, event.seq);
            return;
        }
        let pending = u32::try_from(takers.len()).unwrap_or(u32::MAX);
        let weight = prepared::weigh(&event);
        let event = Rc::new(event);
        let mut recent = Recent { event, pending, weight, prepared: Weak::new() };
        for number in takers.iter() {
            match (self.queues.get(number).map(|queue| queue.intake.feed), claim) {
                (Some(Feed::Head), _) => self.offer(*number, &mut recent, claim),
                (Some(Feed::Behind), Claim::Ping) => self.overtake(*number, &mut recent),
                _ => {}
            }
        }
        self.head.keep(recent, self.limits.loaded_bytes / RING_BYTES_PART);
    }

    /// Nothing new is sent during a stop: those that want the event are behind from here on.
    fn leave_for_next_start(&mut self, takers: &[i64], seq: i64) {
        for number in takers {
            if let Some(queue) = self.queues.get_mut(number)
                && queue.intake.feed == Feed::Head
                && seq > queue.intake.seen
                && !queue.intake.has(seq)
            {
                queue.intake.fall_behind(seq - 1);
            }
        }
    }

    /// Whether everything that was committed was handed out.
    pub(super) fn is_head_at_newest(&self) -> bool {
        self.head.events.is_empty()
            && !self.head.reloading
            && self.head.position >= *self.store.position().borrow()
    }

    /// Gives a queue an event that it wants, or lets it fall behind.
    fn offer(&mut self, number: i64, recent: &mut Recent, claim: Claim) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        let seq = recent.event.seq;
        if seq <= queue.intake.seen || queue.intake.has(seq) {
            return;
        }
        let fits = match claim {
            Claim::Ping => queue.takes_ping(&self.limits),
            Claim::Wanted | Claim::None => {
                let room = self.loaded.room(queue.account());
                queue.has_room(recent.weight, room, self.clock.now, &self.limits)
                    && queue.evaluation_wait(&self.evaluation_time).is_none()
            }
        };
        match fits.then(|| recent.prepare(&self.loaded)).flatten() {
            Some(event) => self.accept(number, &event, claim),
            None => {
                self.no_room(number, seq, recent.weight);
                self.want(number);
            }
        }
    }

    /// Gives a ping to a queue that is behind: a client that tests a failing endpoint wants the
    /// result now, and not after the backlog.
    fn overtake(&mut self, number: i64, recent: &mut Recent) {
        let Some(queue) = self.queues.get(&number) else { return };
        let seq = recent.event.seq;
        if !queue.takes_ping(&self.limits) || seq <= queue.intake.seen || queue.intake.has(seq) {
            return;
        }
        if let Some(event) = recent.prepare(&self.loaded) {
            self.accept(number, &event, Claim::Ping);
        }
    }

    /// An event becomes the queue's, if its filter lets it pass.
    pub(super) fn accept(&mut self, number: i64, event: &Rc<Prepared>, claim: Claim) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        match claim {
            Claim::None => return,
            Claim::Ping => queue.load_ping(event.clone()),
            Claim::Wanted if queue.endpoint.filter.is_none() => queue.intake.load(event.clone()),
            Claim::Wanted => match queue.filter(event, &self.evaluation_time) {
                Ok(true) => queue.intake.load(event.clone()),
                Ok(false) => return,
                Err(why) => {
                    queue.intake.open.insert(event.event.seq, event.event.created);
                    self.unfiltered(Owner::Queue(number), event.event.seq, None, &why);
                }
            },
        }
        self.touch(number);
    }

    /// Whether the ring goes back as far as the queue has read.
    pub(super) fn can_join(&self, number: i64) -> bool {
        let since = self.head.ring_since;
        let queue = self.queues.get(&number).filter(|queue| queue.intake.feed == Feed::Behind);
        queue.is_some_and(|queue| queue.intake.seen >= since.max(queue.intake.known_since))
    }

    /// The queue gets what it has not read from the ring, and everything after it from the head.
    /// Without room for all of it, it stays behind.
    pub(super) fn join(&mut self, number: i64) {
        let position = self.head.position;
        let Some(queue) = self.queues.get_mut(&number) else { return };
        queue.intake.feed = Feed::Head;
        for mut recent in missing(queue, &self.head.ring, position) {
            let Some(queue) = self.queues.get(&number) else { break };
            if queue.intake.feed != Feed::Head {
                break;
            }
            match claim(&self.versions, &queue.endpoint, queue.version, &recent.event) {
                Claim::None => {}
                claim => self.offer(number, &mut recent, claim),
            }
        }
    }
}

fn missing(queue: &EndpointQueue, ring: &VecDeque<Recent>, position: i64) -> Vec<Recent> {
    let newer = |recent: &&Recent| {
        let seq = recent.event.seq;
        seq > queue.intake.seen && seq <= position && recent.event.scope == queue.endpoint.scope
    };
    ring.iter().filter(newer).cloned().collect()
}

/// A ping goes to the endpoint it is about, whatever that subscribed to.
pub fn claim(versions: &Versions, endpoint: &Endpoint, version: usize, event: &Event) -> Claim {
    let schema = versions.kept();
    if is_ping(schema, event) {
        return if event.record == endpoint.id { Claim::Ping } else { Claim::None };
    }
    let internal = pattern::is_internal(schema, &event.collection);
    match wants(versions, endpoint, version, event) && !internal {
        true => Claim::Wanted,
        false => Claim::None,
    }
}

/// Whether an endpoint subscribed to the event, and its version knows what the event is about.
pub fn wants(versions: &Versions, endpoint: &Endpoint, version: usize, event: &Event) -> bool {
    endpoint.wants(&event.kind)
        && versions.get(version).is_some_and(|view| view.shows_events_of(&event.collection))
}

pub fn is_ping(schema: &model::Schema, event: &Event) -> bool {
    event.kind == pattern::PING
        && schema.find(&event.collection) == Some(schema.own(Builtin::Endpoint))
}
