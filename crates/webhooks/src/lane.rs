//! One endpoint's share of the engine: what it has loaded, under way and ahead, and what comes
//! next. Knows neither the store nor the network.

use crate::attempt::Trigger;
use crate::filter_time::FilterTime;
use crate::health::Health;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::order::Order;
use crate::pace::{Gate, Pace};
use crate::prepared::{FILTER_OF_ERASED, Prepared};
use crate::request::{Broken, Post};
use crate::settle::Mark;
use model::Timestamp;
use model::record::Fields;
use model::webhook::Endpoint;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use store::Status;
use tokio::time::Instant;

/// Loaded events per place in the window: enough not to run dry between two reads.
const LOADED_PER_WINDOW: usize = 16;
const LOADED_LEAST: usize = 32;

/// Places that an endpoint leaves to others of its account, for each of its own. With 1,024 places
/// in all a single endpoint still gets its hundred.
const PLACES_LEFT: usize = 4;

/// Pings that are remembered. One that was forgotten may come twice, as any event may.
const PINGS: usize = 256;
/// The wall clock may be set ahead in the meantime: looked at again after this, at the latest.
const FARTHEST_MS: i64 = 3_600_000;

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

/// What a lane has to ask the store for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// Nothing before this moment.
    At(Instant),
    Census,
    Retries,
    /// Ordered events whose turn has come.
    Held,
    /// The log, from `seen` on.
    Read,
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
    /// It is in the queue of those that want to ask the store something.
    pub waiting: bool,
    /// A question of it is under way.
    pub asking: bool,
    /// What the next event weighs, where it found no room.
    pub reserve: usize,
    queue: VecDeque<Rc<Prepared>>,
    queue_bytes: usize,
    /// Ordered events whose turn has come, read again.
    freed: VecDeque<Rc<Prepared>>,
    /// Sent whatever the pace: pings, and manual retries.
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
    /// The time of the oldest event that has a retry, as of the last look.
    pub oldest_retry: Option<Timestamp>,
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
    /// The position that the store has for it; `None` where it is that of the head.
    pub stored: Option<i64>,
    /// Its failures changed since they were written.
    pub health_changed: bool,
    pub has_stored_failures: bool,
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
            waiting: false,
            asking: false,
            reserve: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            freed: VecDeque::new(),
            urgent: VecDeque::new(),
            pings: BTreeSet::new(),
            retries: VecDeque::new(),
            trying: HashSet::new(),
            wanted_again: false,
            overtaken: HashSet::new(),
            due: None,
            oldest_retry: None,
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
            stored: None,
            health_changed: false,
            has_stored_failures: false,
        }
    }

    /// Until when its filter may not run, if it has one that has to wait.
    pub fn filter_wait(&self, times: &FilterTime) -> Option<Instant> {
        self.endpoint.filter.as_ref()?;
        times.wait(self.account(), Instant::now())
    }

    /// Whether its filter lets an event pass, or why that cannot be told.
    pub fn filter(&self, event: &Prepared, times: &FilterTime) -> Result<bool, String> {
        if event.is_blank() {
            return Err(FILTER_OF_ERASED.to_owned());
        }
        times.measure(self.account(), || self.endpoint.passes(&event.envelope(self.version)))
    }

    pub fn account(&self) -> i64 {
        self.endpoint.scope.account_number()
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
            // A restart must not bring the old failures back.
            self.health_changed = true;
        }
        self.reorder();
    }

    /// Begins again with keeping order, or ends it: what is only recorded needs none.
    fn reorder(&mut self) {
        let needed = self.endpoint.ordered && self.enabled;
        self.census = if needed { Census::Needed } else { Census::Known };
        self.give_back();
        let held = self.order.dissolve();
        self.return_to_log(held);
    }

    /// Whether another event of this weight may be loaded; `room` is what its account may load.
    pub fn has_room(&self, weight: usize, room: usize, now: Instant, limits: &Limits) -> bool {
        self.queue.len() < self.capacity(now, limits)
            // As an account among accounts: what one endpoint holds leaves as much for the others.
            && (self.queue.is_empty() || self.queue_bytes + weight <= room)
            && self.takes_more(limits)
    }

    fn takes_more(&self, limits: &Limits) -> bool {
        self.order.held() < limits.held && self.urgent.len() < limits.queue
    }

    /// Whether it is time to read on: half of what it may have loaded is used up.
    fn is_low(&self, room: usize, now: Instant, limits: &Limits) -> bool {
        let capacity = self.capacity(now, limits);
        capacity > 0
            && self.queue.len() <= capacity / 2
            && self.has_room(self.reserve, room, now, limits)
    }

    /// What it has to ask the store for; its account may load `room` bytes more.
    pub fn need(&self, room: usize, now: Instant, time: Timestamp, limits: &Limits) -> Need {
        // What is under way is in the store only once it is durable.
        if self.census == Census::Needed && self.ledger.is_empty() && self.trying.is_empty() {
            return Need::Census;
        }
        let retries = self.need_of_retries(now, time);
        if retries == Need::Retries {
            return retries;
        }
        if !self.order.free().is_empty() && self.freed.is_empty() {
            return Need::Held;
        }
        let closed = self.pace.closed_until(now).filter(|_| self.enabled);
        match (self.feed, closed) {
            (Feed::Head, _) => retries,
            (Feed::Behind, Some(until)) => earlier(retries, until),
            (Feed::Behind, None) if self.is_low(room, now, limits) => Need::Read,
            (Feed::Behind, None) => retries,
        }
    }

    fn need_of_retries(&self, now: Instant, time: Timestamp) -> Need {
        if !self.retries.is_empty() {
            return Need::Nothing;
        }
        match self.due {
            None if !self.nudged => return Need::Nothing,
            Some(due) if due > time && !self.nudged => {
                let wait = (due.0 - time.0).clamp(1, FARTHEST_MS).unsigned_abs();
                return Need::At(now + Duration::from_millis(wait));
            }
            _ => {}
        }
        if !self.enabled || self.nudged {
            return Need::Retries;
        }
        match self.pace.gate(self.in_flight, now) {
            Gate::Open => Need::Retries,
            Gate::Until(at) => Need::At(at),
            // Looked at again when something comes back.
            Gate::Full => Need::Nothing,
        }
    }

    /// How many events it may have loaded. While nothing may be sent, none: others need the room.
    /// One that fails has no more than the next try.
    pub fn capacity(&self, now: Instant, limits: &Limits) -> usize {
        if !self.enabled {
            return limits.queue;
        }
        if self.pace.closed_until(now).is_some() || self.census != Census::Known {
            return 0;
        }
        if self.pace.is_held() {
            return 1;
        }
        let window = self.pace.window() * LOADED_PER_WINDOW;
        let rate = self.endpoint.rate_limit.map_or(usize::MAX, |rate| rate as usize);
        window.clamp(LOADED_LEAST.min(limits.queue), limits.queue).min(rate.max(1))
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

    /// Loads an ordered event whose turn has come.
    pub fn load_freed(&mut self, event: Rc<Prepared>) {
        self.freed.push_back(event);
    }

    /// How many more events it may load.
    pub fn free_places(&self, now: Instant, limits: &Limits) -> usize {
        self.capacity(now, limits).saturating_sub(self.queue.len())
    }

    /// Gives everything that was not sent back to the log and to the store.
    pub fn give_back(&mut self) {
        while let Some(event) = self.freed.pop_back() {
            self.order.return_free(event.event.seq);
        }
        for job in self.retries.drain(..) {
            self.trying.remove(&job.event.event.seq);
            let next = job.known.and_then(|known| known.next).unwrap_or(Timestamp(0));
            self.due = Some(self.due.map_or(next, |due| due.min(next)));
        }
        let seqs = self.queue.drain(..).map(|event| event.event.seq).collect();
        self.queue_bytes = 0;
        self.return_to_log(seqs);
    }

    fn return_to_log(&mut self, seqs: Vec<i64>) {
        for seq in &seqs {
            self.ledger.close(*seq);
        }
        if let Some(first) = seqs.into_iter().min() {
            self.fall_behind(first - 1);
        }
    }

    /// It reads the log itself from here on.
    pub fn fall_behind(&mut self, seen: i64) {
        self.seen = match self.feed {
            Feed::Head => seen,
            Feed::Behind => self.seen.min(seen),
        };
        self.feed = Feed::Behind;
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
            || !self.freed.is_empty()
            || (!self.queue.is_empty() && self.census == Census::Known)
    }

    /// What comes next; its account may have `room` more requests under way.
    pub fn next(&mut self, now: Instant, room: usize, limits: &Limits) -> Next {
        if self.has_urgent_place() && !self.urgent.is_empty() {
            return match self.urgent.pop_front_if(|_| room > 0) {
                Some(job) => Next::Send(job),
                None => Next::Crowded,
            };
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
        // One endpoint leaves several times what it holds to the others of its account: many that
        // hang leave places for one that does not.
        if room == 0 || self.in_flight * PLACES_LEFT >= room {
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
        if let Some(event) = self.freed.pop_front() {
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
            if self.order.admit(&event.event.record, event.event.seq) {
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
        self.ledger.oldest().into_iter().chain(self.oldest_retry).min()
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

fn earlier(need: Need, at: Instant) -> Need {
    match need {
        Need::At(other) => Need::At(other.min(at)),
        Need::Nothing => Need::At(at),
        need => need,
    }
}
