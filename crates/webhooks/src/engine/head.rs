//! The head of the log: one reader for all scopes, woken by each commit. Hands every event to the
//! lanes that want it and are not behind, and hears of changed endpoints and replays there.

use super::Engine;
use crate::lane::{Feed, Lane};
use crate::prepared::Prepared;
use model::event::Event;
use model::record::parse_object;
use model::schema::Builtin;
use model::version::Versions;
use model::webhook::{Endpoint, pattern};
use model::{CollectionIx, Record, Scope, Timestamp};
use serde_json::Value;
use std::collections::VecDeque;
use std::rc::Rc;
use store::Follower;

/// Events kept after they were handed out, for lanes that catch up just then.
const RING_EVENTS: usize = 256;
/// Their part of all loaded bytes.
const RING_BYTES_PART: usize = 8;

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
    ring: VecDeque<Rc<Prepared>>,
    ring_bytes: usize,
    /// Everything wanted after here is in the ring.
    ring_since: i64,
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

    fn keep(&mut self, event: &Rc<Prepared>, most_bytes: usize) {
        self.ring_bytes += event.weight();
        self.ring.push_back(event.clone());
        while self.ring.len() > RING_EVENTS || self.ring_bytes > most_bytes {
            let Some(oldest) = self.ring.pop_front() else { break };
            self.ring_bytes -= oldest.weight();
            self.ring_since = oldest.event.seq;
        }
    }
}

/// What an event is to a lane.
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
                    let most = self.appetite();
                    // Without endpoints there is only the first one to hear of: whoever writes
                    // shall not be disturbed by a look at each commit.
                    let lone = self.lanes.is_empty() && self.head.handed < most;
                    self.chores.follow(follower, most, lone.then_some(self.limits.lone_rest));
                }
                return;
            };
            let own = |builtin| self.schema.own(builtin);
            let place = self.schema.find(&event.collection);
            let endpoint = place == Some(own(Builtin::Endpoint)) && event.kind != pattern::PING;
            // Without older versions there is nothing an account could be pinned to.
            let account = place == Some(own(Builtin::Account)) && self.versions.get(1).is_some();
            if let Some(collection) = place.filter(|_| endpoint || account) {
                self.head.reloading = true;
                self.chores.reload(event.scope, collection, event.record.clone());
                // Handed out once the record is as the event left it.
                self.head.events.push_front(event);
                return;
            }
            if place == Some(own(Builtin::Erasure)) {
                self.heard_of_erasure(&event);
            }
            if place == Some(own(Builtin::Replay)) {
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
    }

    fn endpoint_changed(&mut self, scope: Scope, id: &str, record: Option<Record>) {
        let known = self.names.get(&(scope, id.to_owned())).copied();
        match (record, known) {
            (Some(record), Some(number)) => {
                let position = self.head.position;
                self.subscriptions.put(scope, number);
                let endpoint = Endpoint::read(scope, &record);
                let version = self.pins.version(&self.versions, &endpoint);
                if let Some(lane) = self.lanes.get_mut(&number) {
                    let was_enabled = lane.enabled;
                    lane.update(endpoint, version, position);
                    if lane.enabled && !was_enabled {
                        // Whoever enables it again does not wait for what it once asked for.
                        self.settler.pause(number, Timestamp(0));
                    }
                    self.touch(number);
                }
            }
            (Some(record), None) => self.open(Endpoint::read(scope, &record), None),
            (None, Some(number)) => self.close(scope, id, number),
            (None, None) => {}
        }
    }

    /// Endpoints without a version of their own follow their account's.
    fn account_changed(&mut self, account: &Record) {
        self.pins.put(&self.versions, account);
        for (number, lane) in &mut self.lanes {
            let version = self.pins.version(&self.versions, &lane.endpoint);
            if lane.version != version {
                lane.speak(version);
                self.subscriptions.put(lane.endpoint.scope, *number);
            }
        }
    }

    /// What waits in memory was read before: it must say no more than the log does now.
    fn heard_of_erasure(&self, event: &Event) {
        let erasure = parse_object(&event.object);
        if let Some(resource) = erasure.get("resource").and_then(Value::as_str) {
            self.loaded.erase(event.scope, resource, event.seq);
        }
    }

    /// The endpoint is gone, and with it what was under way for it.
    fn close(&mut self, scope: Scope, id: &str, number: i64) {
        self.names.remove(&(scope, id.to_owned()));
        self.subscriptions.remove(scope, number);
        self.settler.forget(number);
        if let Some(lane) = self.lanes.remove(&number) {
            self.busy_lanes -= usize::from(lane.in_flight > 0);
        }
    }

    fn hand_out(&mut self, event: Event) {
        self.head.position = event.seq;
        if self.internal.contains(&event.collection) {
            return;
        }
        let (lanes, schema) = (&self.lanes, &self.schema);
        let versions = &self.versions;
        let takes = |number: i64| {
            lanes.get(&number).is_some_and(|l| wants(versions, &l.endpoint, l.version, &event))
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
        let pending = u32::try_from(takers.len()).unwrap_or(u32::MAX);
        let event = Prepared::new(event, pending, &self.loaded);
        self.head.keep(&event, self.limits.loaded_bytes / RING_BYTES_PART);
        for number in takers.iter() {
            match (self.lanes.get(number).map(|lane| lane.feed), claim) {
                (Some(Feed::Head), _) => self.offer(*number, &event, claim),
                (Some(Feed::Behind), Claim::Ping) => self.overtake(*number, &event),
                _ => {}
            }
        }
    }

    /// Gives a lane an event that it wants, or lets it fall behind.
    fn offer(&mut self, number: i64, event: &Rc<Prepared>, claim: Claim) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let seq = event.event.seq;
        if seq <= lane.seen || lane.has(seq) {
            return;
        }
        let room = match claim {
            Claim::Ping => lane.takes_ping(&self.limits),
            Claim::Wanted | Claim::None => lane.has_room(&self.limits),
        };
        if !room || self.loaded.bytes() > self.limits.loaded_bytes {
            lane.feed = Feed::Behind;
            lane.seen = seq - 1;
            self.touch(number);
            return;
        }
        self.accept(number, event, claim);
    }

    /// Gives a ping to a lane that is behind: whoever tries an endpoint that fails wants to know
    /// now, and not once its backlog is gone.
    fn overtake(&mut self, number: i64, event: &Rc<Prepared>) {
        let Some(lane) = self.lanes.get(&number) else { return };
        let seq = event.event.seq;
        let room = lane.takes_ping(&self.limits) && self.loaded.bytes() <= self.limits.loaded_bytes;
        if room && seq > lane.seen && !lane.has(seq) {
            self.accept(number, event, Claim::Ping);
        }
    }

    /// An event becomes the lane's, if its filter lets it pass.
    pub(super) fn accept(&mut self, number: i64, event: &Rc<Prepared>, claim: Claim) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        match claim {
            Claim::None => return,
            Claim::Ping => lane.load_ping(event.clone()),
            Claim::Wanted if lane.endpoint.filter.is_none() => lane.load(event.clone()),
            Claim::Wanted => match lane.endpoint.passes(&event.envelope(lane.version)) {
                Ok(true) => lane.load(event.clone()),
                Ok(false) => return,
                Err(why) => {
                    lane.ledger.open(event.event.seq, event.event.created);
                    self.unfiltered(number, event, &why);
                }
            },
        }
        self.touch(number);
    }

    /// A lane that has read as far as the ring goes back gets the rest from there, and everything
    /// after it from the head. Says whether it could.
    pub(super) fn join(&mut self, number: i64) -> bool {
        let (since, position) = (self.head.ring_since, self.head.position);
        let Some(lane) = self.lanes.get_mut(&number) else { return false };
        if lane.feed == Feed::Head || lane.seen < since.max(lane.known_since) {
            return false;
        }
        lane.feed = Feed::Head;
        let missing: Vec<_> = missing(lane, &self.head.ring, position);
        for event in missing {
            let Some(lane) = self.lanes.get(&number) else { break };
            if lane.feed != Feed::Head {
                break;
            }
            match claim(&self.versions, &lane.endpoint, lane.version, &event.event) {
                Claim::None => {}
                claim => self.offer(number, &event, claim),
            }
        }
        true
    }
}

fn missing(lane: &Lane, ring: &VecDeque<Rc<Prepared>>, position: i64) -> Vec<Rc<Prepared>> {
    let newer = |event: &&Rc<Prepared>| {
        let seq = event.event.seq;
        seq > lane.seen && seq <= position && event.event.scope == lane.endpoint.scope
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
        && versions.get(version).is_some_and(|view| view.tells_of(&event.collection))
}

pub fn is_ping(schema: &model::Schema, event: &Event) -> bool {
    event.kind == pattern::PING
        && schema.find(&event.collection) == Some(schema.own(Builtin::Endpoint))
}
