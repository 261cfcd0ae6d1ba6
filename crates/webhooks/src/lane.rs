//! One endpoint's share of the engine: what it has loaded, under way and ahead, and what comes
//! next. Knows neither the store nor the network.

use crate::attempt::Trigger;
use crate::health::Health;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::order::Order;
use crate::pace::{Gate, Pace};
use crate::prepared::Prepared;
use crate::request::{Broken, Post};
use crate::settle::Mark;
use model::Timestamp;
use model::record::Fields;
use model::webhook::Endpoint;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::rc::Rc;
use store::Status;
use tokio::time::Instant;

/// Loaded events per place in the window: enough not to run dry between two reads.
const LOADED_PER_WINDOW: usize = 16;
const LOADED_LEAST: usize = 32;
/// One endpoint's part of all loaded bytes, at most.
const BYTES_PART: usize = 16;

/// Pings that are remembered. One that was forgotten may come twice, as any event may.
const PINGS: usize = 256;

/// Something to be sent.
pub struct Job {
    pub event: Rc<Prepared>,
    /// The delivery, where it has a row.
    pub known: Option<Known>,
    pub trigger: Trigger,
    /// Whether it counts for the endpoint's health and pace.
    pub counts: bool,
}

#[derive(Clone, Debug)]
pub struct Known {
    pub number: i64,
    pub id: String,
    pub attempts: u32,
    pub status: Status,
    pub next: Option<Timestamp>,
    /// How often somebody had asked for a retry when this one was taken up.
    pub asked: i64,
}

/// Where its events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The shared reader at the head of the log.
    Head,
    /// Its own reading, from `seen` on.
    Behind,
}

/// Whether the records with retries are known, where order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Census {
    Needed,
    Asked,
    /// There are more than could be counted: fresh events wait.
    Partial,
    Known,
}

/// What the endpoint's record shall say.
pub struct Wish {
    pub fields: Fields,
    pub event: Option<&'static str>,
}

pub struct Lane {
    pub endpoint: Rc<Endpoint>,
    pub post: Result<Rc<Post>, Broken>,
    /// Place of the version of its payloads; the newest is at 0.
    pub version: usize,
    pub feed: Feed,
    /// Everything up to here was looked at.
    pub seen: i64,
    /// The head knows it since: what came earlier it must read itself.
    pub known_since: i64,
    pub reading: bool,
    pub hungry: bool,
    queue: VecDeque<Rc<Prepared>>,
    queue_bytes: usize,
    /// Sent whatever the pace: pings, and what somebody asked for.
    pub urgent: VecDeque<Job>,
    /// Pings it was given: they overtake what waits, and would come up again in the log.
    pings: BTreeSet<i64>,
    /// Due by the schedule.
    pub retries: VecDeque<Job>,
    /// Events whose retry was taken up and is not durable yet.
    pub trying: HashSet<i64>,
    /// One of them was asked for once more: due again when they are durable.
    pub wanted_again: bool,
    /// Those that became durable while the store was asked: its answer may be older.
    pub overtaken: HashSet<i64>,
    /// When the next retry is due.
    pub due: Option<Timestamp>,
    pub asking: bool,
    /// The time of the oldest event that has a retry, as of the last look.
    pub waiting: Option<Timestamp>,
    pub nudged: bool,
    pub order: Order,
    pub census: Census,
    pub ledger: Ledger,
    pub in_flight: usize,
    /// What replays have under way to the endpoint.
    pub replaying: usize,
    pub pace: Pace,
    pub health: Health,
    pub failing_since: Option<Timestamp>,
    /// Whether it may be sent to; the record follows.
    pub enabled: bool,
    pub wishes: VecDeque<Wish>,
    pub wishing: bool,
    pub ready: bool,
    pub crowded: bool,
    pub wake: Option<Instant>,
    pub dirty: bool,
    pub written: i64,
}

/// Places of the window for what nobody waits for. One more is kept, where there is more than one,
/// for a ping or a retry that somebody asked for: it gets through although all others hang. So the
/// log never has the whole window under way, and a crash repeats fewer than that.
fn common_places(endpoint: &Endpoint) -> usize {
    (endpoint.max_in_flight - 1).max(1)
}

pub enum Next {
    Send(Job),
    /// Recorded, not sent: the endpoint is disabled.
    Skip(Job),
    /// Nothing now; look again then, or when something happens.
    Wait(Option<Instant>),
    /// Nothing while so much is under way everywhere.
    Crowded,
}

impl Lane {
    pub fn new(endpoint: Endpoint, version: usize, seen: i64, known_since: i64) -> Lane {
        Lane {
            post: Post::new(&endpoint, version).map(Rc::new),
            version,
            feed: Feed::Behind,
            seen,
            known_since,
            reading: false,
            hungry: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            urgent: VecDeque::new(),
            pings: BTreeSet::new(),
            retries: VecDeque::new(),
            trying: HashSet::new(),
            wanted_again: false,
            overtaken: HashSet::new(),
            due: None,
            asking: false,
            waiting: None,
            nudged: false,
            order: Order::default(),
            census: match endpoint.ordered && endpoint.enabled {
                true => Census::Needed,
                false => Census::Known,
            },
            ledger: Ledger::default(),
            in_flight: 0,
            replaying: 0,
            pace: Pace::new(common_places(&endpoint), endpoint.rate_limit),
            health: Health::default(),
            failing_since: endpoint.failing_since,
            enabled: endpoint.enabled,
            endpoint: Rc::new(endpoint),
            wishes: VecDeque::new(),
            wishing: false,
            ready: false,
            crowded: false,
            wake: None,
            dirty: false,
            written: seen,
        }
    }

    /// Takes over a changed record.
    pub fn update(&mut self, endpoint: Endpoint, version: usize, known_since: i64) {
        self.post = Post::new(&endpoint, version).map(Rc::new);
        self.version = version;
        self.pace.set(common_places(&endpoint), endpoint.rate_limit);
        let reordered = endpoint.ordered != self.endpoint.ordered;
        let enabled = endpoint.enabled;
        self.known_since = known_since;
        self.endpoint = Rc::new(endpoint);
        if reordered {
            self.reorder();
        }
        // The record lags behind what the engine itself is about to write there.
        if self.wishes.is_empty() {
            self.failing_since = self.endpoint.failing_since;
            self.enable(enabled);
        }
    }

    /// Its account moved to another version.
    pub fn speak(&mut self, version: usize) {
        self.post = Post::new(&self.endpoint, version).map(Rc::new);
        self.version = version;
        // What is being read just now was chosen for the other one.
        self.endpoint = Rc::new(Endpoint::clone(&self.endpoint));
    }

    pub fn enable(&mut self, enabled: bool) {
        if enabled == self.enabled {
            return;
        }
        self.enabled = enabled;
        if enabled {
            self.pace = Pace::new(common_places(&self.endpoint), self.endpoint.rate_limit);
            self.health = Health::default();
        }
        self.reorder();
    }

    /// Begins anew with keeping order, or ends it: what is only recorded needs none.
    fn reorder(&mut self) {
        let needed = self.endpoint.ordered && self.enabled;
        self.census = if needed { Census::Needed } else { Census::Known };
        for event in self.order.dissolve().into_iter().rev() {
            self.queue_bytes += event.weight();
            self.queue.push_front(event);
        }
    }

    /// Whether another event may be loaded.
    pub fn has_room(&self, limits: &Limits) -> bool {
        let bytes = limits.loaded_bytes / BYTES_PART;
        self.queue.len() < self.capacity(limits)
            && (self.queue_bytes < bytes || self.queue.is_empty())
            && self.order.held() < limits.held
    }

    /// Whether it is time to read on: half of what it may have loaded is used up.
    pub fn is_low(&self, limits: &Limits) -> bool {
        self.queue.len() <= self.capacity(limits) / 2 && self.has_room(limits)
    }

    /// How many events it may have loaded. One that fails holds no more than the next try.
    pub fn capacity(&self, limits: &Limits) -> usize {
        match self.enabled && self.pace.is_held() {
            true => 1,
            false if !self.enabled => limits.queue,
            false => (self.pace.window() * LOADED_PER_WINDOW)
                .clamp(LOADED_LEAST.min(limits.queue), limits.queue),
        }
    }

    pub fn load(&mut self, event: Rc<Prepared>) {
        self.ledger.open(event.event.seq, event.event.created);
        self.queue_bytes += event.weight();
        self.queue.push_back(event);
    }

    /// Whether it was given the event before, and not for the log to bring again.
    pub fn has(&self, seq: i64) -> bool {
        self.ledger.contains(seq) || self.pings.contains(&seq)
    }

    /// Whether another ping may overtake what waits.
    pub fn takes_ping(&self, limits: &Limits) -> bool {
        self.urgent.len() < limits.queue
    }

    pub fn load_ping(&mut self, event: Rc<Prepared>) {
        self.ledger.open(event.event.seq, event.event.created);
        self.pings.insert(event.event.seq);
        if self.pings.len() > PINGS {
            self.pings.pop_first();
        }
        let trigger = Trigger::Event;
        self.urgent.push_back(Job { event, known: None, trigger, counts: false });
    }

    /// Gives what is loaded back to the log.
    pub fn retreat(&mut self) {
        let Some(first) = self.queue.front() else { return };
        self.seen = first.event.seq - 1;
        self.feed = Feed::Behind;
        for event in self.queue.drain(..) {
            self.ledger.close(event.event.seq);
        }
        self.queue_bytes = 0;
    }

    /// Whether one more may be under way that nobody waits for: by the log, a schedule or a replay.
    pub fn has_place(&self) -> bool {
        self.in_flight + self.replaying < common_places(&self.endpoint)
    }

    /// Whether one more may be under way that somebody waits for.
    fn has_urgent_place(&self) -> bool {
        self.in_flight + self.replaying < self.endpoint.max_in_flight
    }

    pub fn has_work(&self) -> bool {
        !self.retries.is_empty()
            || self.order.has_free()
            || (!self.queue.is_empty() && self.census == Census::Known)
    }

    /// What comes next; `share` is its part of all requests while there are many.
    pub fn next(&mut self, now: Instant, share: usize, limits: &Limits) -> Next {
        if self.has_urgent_place()
            && let Some(job) = self.urgent.pop_front()
        {
            return Next::Send(job);
        }
        if !self.has_work() {
            return Next::Wait(None);
        }
        if !self.enabled {
            return self.pick(limits).map_or(Next::Wait(None), Next::Skip);
        }
        if !self.has_place() {
            return Next::Wait(None);
        }
        if self.in_flight >= share {
            return Next::Crowded;
        }
        match self.pace.gate(self.in_flight, now) {
            Gate::Open => {}
            Gate::Until(at) => return Next::Wait(Some(at)),
            Gate::Full => return Next::Wait(None),
        }
        match self.pick(limits) {
            None => Next::Wait(None),
            Some(job) => {
                self.pace.spend(now);
                Next::Send(job)
            }
        }
    }

    /// Retries first: they have waited longest.
    fn pick(&mut self, limits: &Limits) -> Option<Job> {
        if let Some(job) = self.retries.pop_front() {
            return Some(job);
        }
        let event = self.fresh(limits)?;
        Some(Job { event, known: None, trigger: Trigger::Event, counts: true })
    }

    fn fresh(&mut self, limits: &Limits) -> Option<Rc<Prepared>> {
        if let Some(event) = self.order.next() {
            return Some(event);
        }
        if self.census != Census::Known {
            return None;
        }
        while self.order.held() < limits.held {
            let event = self.queue.pop_front()?;
            self.queue_bytes -= event.weight();
            if !self.endpoint.ordered || !self.enabled {
                return Some(event);
            }
            if let Some(event) = self.order.admit(event) {
                return Some(event);
            }
        }
        None
    }

    /// An outcome of one of its deliveries is durable.
    pub fn settled(&mut self, mark: &Mark) {
        self.ledger.close(mark.seq);
        if self.trying.remove(&mark.seq) && self.asking {
            self.overtaken.insert(mark.seq);
        }
        if let Some(next) = mark.next {
            self.due = Some(self.due.map_or(next, |due| due.min(next)));
        }
        if std::mem::take(&mut self.wanted_again) {
            self.nudged = true;
        }
        if let Some(record) = mark.record.as_ref().filter(|_| mark.status != Status::Pending) {
            self.order.settled(record, mark.seq);
        }
    }

    /// Whether some of its deliveries may wait for a retry.
    pub fn has_retries(&self) -> bool {
        self.due.is_some() || self.asking || !self.trying.is_empty()
    }

    /// The time of the oldest event that is still to be delivered, tried before or not.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.ledger.oldest().into_iter().chain(self.waiting).min()
    }

    /// How far it has come, if the head has come to `head`.
    pub fn position(&self, head: i64) -> i64 {
        let seen = match self.feed {
            Feed::Head => self.seen.max(head),
            Feed::Behind => self.seen,
        };
        self.ledger.position(seen)
    }
}
