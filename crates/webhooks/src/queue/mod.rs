//! The queue of one endpoint: what it loads (`intake`), what it tries again (`retries`), what it
//! sends (`sending`), and which comes next. Knows neither the store nor the network.

mod intake;
mod retries;
mod sending;

pub use intake::{Feed, Intake, RetryIndex};
pub use retries::Retries;
pub use sending::Sending;

use crate::attempt::Trigger;
use crate::evaluation_time::EvaluationTime;
use crate::health::Health;
use crate::limits::Limits;
use crate::pace::Readiness;
use crate::prepared::{FILTER_OF_ERASED, Prepared};
use crate::settle::Mark;
use model::Timestamp;
use model::record::Fields;
use model::webhook::Endpoint;
use std::collections::VecDeque;
use std::rc::Rc;
use store::Status;
use tokio::time::Instant;

/// Loaded events per slot of the window: enough for the time between two reads.
const LOADED_PER_WINDOW: usize = 16;
const LOADED_LEAST: usize = 32;

/// Slots that an endpoint leaves to others of its account, for each of its own. With 1,024 slots in
/// total a single endpoint still gets its hundred.
const SLOTS_LEFT: usize = 4;

/// A delivery to be sent.
pub struct Job {
    pub event: Rc<Prepared>,
    /// The delivery, if it has a row.
    pub known: Option<Known>,
    pub trigger: Trigger,
    /// Whether the result counts for the endpoint's health and pace.
    pub counts: bool,
}

/// A delivery that has a row.
#[derive(Clone, Debug)]
pub struct Known {
    pub number: i64,
    pub id: String,
    pub attempts: u32,
    pub status: Status,
    pub next: Option<Timestamp>,
    /// How many retries clients had requested when this one was fetched.
    pub asked: i64,
}

/// What an endpoint needs from the store next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// Nothing before this moment.
    At(Instant),
    RetryIndex,
    Retries,
    /// Ordered events whose turn has come.
    Held,
    /// The log, from `seen` on.
    Read,
}

/// A change of the endpoint's record that the engine has still to write.
pub struct RecordChange {
    pub fields: Fields,
    pub event: Option<&'static str>,
}

/// What the engine writes about an endpoint.
#[derive(Default)]
pub struct Condition {
    pub health: Health,
    pub failing_since: Option<Timestamp>,
    pub changes: VecDeque<RecordChange>,
    /// The first of `changes` is being written.
    pub changing: bool,
    /// Failures changed since they were last written.
    pub health_changed: bool,
    pub has_stored_failures: bool,
}

pub struct EndpointQueue {
    pub endpoint: Rc<Endpoint>,
    /// Index of the version of its payloads; the newest is 0.
    pub version: usize,
    /// Whether the engine may send to it; the record follows.
    pub enabled: bool,
    pub intake: Intake,
    pub retries: Retries,
    pub sending: Sending,
    pub condition: Condition,
    /// The engine looks at it in the next pass.
    pub ready: bool,
    /// Its place in the order in which queues were opened.
    pub opened: u64,
}

pub enum Next {
    Send(Job),
    /// Record it as skipped: the endpoint is disabled.
    Skip(Job),
    /// Nothing now; look again at this time, or when something changes.
    Wait(Option<Instant>),
    /// Nothing before the account has a free slot.
    NoSlot,
}

impl EndpointQueue {
    pub fn new(endpoint: Endpoint, version: usize, seen: i64, known_since: i64) -> EndpointQueue {
        EndpointQueue {
            version,
            enabled: endpoint.enabled,
            intake: Intake::new(seen, known_since, endpoint.ordered && endpoint.enabled),
            retries: Retries::default(),
            sending: Sending::new(&endpoint, version),
            condition: Condition { failing_since: endpoint.failing_since, ..Condition::default() },
            endpoint: Rc::new(endpoint),
            ready: false,
            opened: 0,
        }
    }

    /// Until when its filter may not run, nor an event be converted to its version, if one of them
    /// has to wait.
    pub fn evaluation_wait(&self, times: &EvaluationTime) -> Option<Instant> {
        match self.endpoint.filter {
            Some(_) => times.wait(self.account(), Instant::now()),
            None => self.conversion_wait(times),
        }
    }

    /// Until when no event may be converted to its version, if it has to wait.
    pub fn conversion_wait(&self, times: &EvaluationTime) -> Option<Instant> {
        if self.version == 0 { None } else { times.wait(self.account(), Instant::now()) }
    }

    /// Whether its filter lets an event pass, or why the filter cannot judge it.
    pub fn filter(&self, event: &Prepared, times: &EvaluationTime) -> Result<bool, String> {
        if event.is_blank() {
            return Err(FILTER_OF_ERASED.to_owned());
        }
        let envelope = event.envelope(self.version);
        times.measure(self.account(), || self.endpoint.passes(&envelope))
    }

    pub fn account(&self) -> i64 {
        self.endpoint.scope.account_number()
    }

    /// Takes over a changed record.
    pub fn update(&mut self, endpoint: Endpoint, version: usize, known_since: i64) {
        self.sending.update(&endpoint, version);
        self.version = version;
        let reordered = endpoint.ordered != self.endpoint.ordered;
        let enabled = endpoint.enabled;
        self.intake.known_since = known_since;
        self.endpoint = Rc::new(endpoint);
        if reordered {
            self.reorder();
        }
        // The record lags behind the changes that the engine is about to write.
        if self.condition.changes.is_empty() {
            self.condition.failing_since = self.endpoint.failing_since;
            self.enable(enabled);
        }
    }

    /// Its account moved to another version.
    pub fn set_version(&mut self, version: usize) {
        self.sending.update(&self.endpoint, version);
        self.version = version;
        // A read in flight was filtered for the other version.
        self.endpoint = Rc::new(Endpoint::clone(&self.endpoint));
    }

    pub fn enable(&mut self, enabled: bool) {
        if enabled == self.enabled {
            return;
        }
        self.enabled = enabled;
        if enabled {
            self.sending.restart(&self.endpoint);
            self.condition.health = Health::default();
            // A restart must not bring the old failures back.
            self.condition.health_changed = true;
        }
        self.reorder();
    }

    fn reorder(&mut self) {
        self.retries.give_back();
        self.intake.reorder(self.endpoint.ordered && self.enabled);
    }

    /// Returns everything that was not sent to the log and to the store.
    pub fn give_back(&mut self) {
        self.retries.give_back();
        self.intake.give_back();
    }

    /// Whether another event of this weight may be loaded; `room` is what its account may load.
    pub fn has_room(&self, weight: usize, room: usize, now: Instant, limits: &Limits) -> bool {
        self.intake.len() < self.capacity(now, limits)
            && self.intake.fits(weight, room)
            && self.intake.order.held() < limits.held
            && self.sending.urgent.len() < limits.queue
    }

    /// Whether it is time to read on: half of the loaded events are used up.
    fn is_low(&self, room: usize, now: Instant, limits: &Limits) -> bool {
        let capacity = self.capacity(now, limits);
        capacity > 0
            && self.intake.len() <= capacity / 2
            && self.has_room(self.intake.reserve, room, now, limits)
    }

    /// What it needs from the store; its account may load `room` bytes more.
    pub fn need(&self, room: usize, now: Instant, time: Timestamp, limits: &Limits) -> Need {
        let intake = &self.intake;
        // The store knows deliveries in flight only once they are durable.
        let is_quiet = intake.open.is_empty() && self.retries.trying.is_empty();
        if intake.census == RetryIndex::Needed && is_quiet {
            return Need::RetryIndex;
        }
        let retries = self.need_of_retries(now, time);
        if retries == Need::Retries {
            return retries;
        }
        if intake.needs_held() {
            return Need::Held;
        }
        let closed = self.sending.pace.closed_until(now).filter(|_| self.enabled);
        match (intake.feed, closed) {
            (Feed::Head, _) => retries,
            (Feed::Behind, Some(until)) => earlier(retries, until),
            (Feed::Behind, None) if self.is_low(room, now, limits) => Need::Read,
            (Feed::Behind, None) => retries,
        }
    }

    fn need_of_retries(&self, now: Instant, time: Timestamp) -> Need {
        if let Some(wait) = self.retries.wait(now, time) {
            return wait;
        }
        if !self.enabled || self.retries.requested {
            return Need::Retries;
        }
        match self.sending.pace.readiness(self.sending.in_flight, now) {
            Readiness::Open => Need::Retries,
            Readiness::Until(at) => Need::At(at),
            // The engine looks again when a response arrives.
            Readiness::Full => Need::Nothing,
        }
    }

    /// How many events it may load. While nothing may be sent, none: others need room. A failing
    /// endpoint has no more than the next try.
    pub fn capacity(&self, now: Instant, limits: &Limits) -> usize {
        if !self.enabled {
            return limits.queue;
        }
        let pace = &self.sending.pace;
        if pace.closed_until(now).is_some() || self.intake.census != RetryIndex::Known {
            return 0;
        }
        if pace.is_held() {
            return 1;
        }
        let window = pace.window() * LOADED_PER_WINDOW;
        let rate = self.endpoint.rate_limit.map_or(usize::MAX, |rate| rate as usize);
        window.clamp(LOADED_LEAST.min(limits.queue), limits.queue).min(rate.max(1))
    }

    /// How many more events it may load.
    pub fn free_places(&self, now: Instant, limits: &Limits) -> usize {
        self.capacity(now, limits).saturating_sub(self.intake.len())
    }

    /// Whether another ping may overtake the loaded events.
    pub fn takes_ping(&self, limits: &Limits) -> bool {
        self.sending.urgent.len() < limits.queue
    }

    pub fn load_ping(&mut self, event: Rc<Prepared>) {
        self.intake.note_ping(&event);
        let trigger = Trigger::Event;
        self.sending.urgent.push_back(Job { event, known: None, trigger, counts: false });
    }

    pub fn has_work(&self) -> bool {
        !self.retries.fetched.is_empty() || self.intake.has_events()
    }

    /// What comes next; its account may have `room` more requests in flight.
    pub fn next(&mut self, now: Instant, room: usize, limits: &Limits) -> Next {
        let sending = &mut self.sending;
        if sending.has_urgent_slot(&self.endpoint) && !sending.urgent.is_empty() {
            return match sending.urgent.pop_front_if(|_| room > 0) {
                Some(job) => Next::Send(job),
                None => Next::NoSlot,
            };
        }
        if !self.has_work() {
            return Next::Wait(None);
        }
        if !self.enabled {
            return self.pick(limits).map_or(Next::Wait(None), Next::Skip);
        }
        if !self.sending.has_slot(&self.endpoint) {
            return Next::Wait(None);
        }
        // One endpoint leaves several times its own slots to the others of its account: many that
        // hang leave slots for one that does not.
        if room == 0 || self.sending.in_flight * SLOTS_LEFT >= room {
            return Next::NoSlot;
        }
        match self.sending.pace.readiness(self.sending.in_flight, now) {
            Readiness::Open => {}
            Readiness::Until(at) => return Next::Wait(Some(at)),
            Readiness::Full => return Next::Wait(None),
        }
        match self.pick(limits) {
            None => Next::Wait(None),
            Some(job) => {
                self.sending.pace.spend(now);
                Next::Send(job)
            }
        }
    }

    /// Retries come first: they have waited longest.
    fn pick(&mut self, limits: &Limits) -> Option<Job> {
        if let Some(job) = self.retries.fetched.pop_front() {
            return Some(job);
        }
        let event = self.intake.next(self.endpoint.ordered && self.enabled, limits)?;
        Some(Job { event, known: None, trigger: Trigger::Event, counts: true })
    }

    /// The outcome of one of its deliveries is durable.
    pub fn settled(&mut self, mark: &Mark) {
        self.intake.open.remove(mark.seq);
        self.retries.settled(mark, self.intake.asking);
        if let Some(record) = mark.record.as_ref().filter(|_| mark.status != Status::Pending) {
            self.intake.order.settled(record, mark.seq);
        }
    }

    /// Whether some of its deliveries may wait for a retry.
    pub fn has_retries(&self) -> bool {
        self.retries.due.is_some() || self.intake.asking || !self.retries.trying.is_empty()
    }

    /// The time of the oldest event that is not delivered, tried before or not.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.intake.open.oldest().into_iter().chain(self.retries.oldest).min()
    }
}

fn earlier(need: Need, at: Instant) -> Need {
    match need {
        Need::At(other) => Need::At(other.min(at)),
        Need::Nothing => Need::At(at),
        need => need,
    }
}
