//! What an endpoint loads: its place in the log, the events that wait in memory and those with no
//! durable outcome. Knows neither the store nor the network.

use crate::limits::Limits;
use crate::open_events::OpenEvents;
use crate::order::Order;
use crate::prepared::Prepared;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Pings that are remembered. A ping that was forgotten may come twice, as any event may.
const PINGS: usize = 256;

/// Where the events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The shared reader at the head of the log.
    Head,
    /// The endpoint's own reads, from `seen` on.
    Behind,
}

/// Whether the engine knows which records have retries. Only endpoints with `ordering` need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryIndex {
    Needed,
    Asked,
    /// There are more records than one read returns: new events wait.
    Partial,
    Known,
}

pub struct Intake {
    pub feed: Feed,
    /// Everything up to here was looked at.
    pub seen: i64,
    /// The head knows the endpoint since here. The endpoint must read earlier events itself.
    pub known_since: i64,
    /// Nothing is known of the events after `seen`: the endpoint searches together with others
    /// before it reads by itself.
    pub searches: bool,
    /// The endpoint is in the queue for a read of the store.
    pub waiting: bool,
    /// A read of the store is in flight.
    pub asking: bool,
    /// Weight of the next event, if there was no room for it.
    pub reserve: usize,
    /// Loaded events, oldest first.
    loaded: VecDeque<Rc<Prepared>>,
    loaded_bytes: usize,
    /// Ordered events whose turn has come, read again.
    freed: VecDeque<Rc<Prepared>>,
    /// Pings that the endpoint was given. They overtake waiting events, and the log would bring
    /// them again.
    pings: BTreeSet<i64>,
    /// Events without a durable outcome.
    pub open: OpenEvents,
    pub order: Order,
    pub census: RetryIndex,
    /// The position in the store; `None` if it is that of the head.
    pub stored: Option<i64>,
}

impl Intake {
    pub fn new(seen: i64, known_since: i64, ordered: bool) -> Intake {
        Intake {
            feed: Feed::Behind,
            seen,
            known_since,
            searches: true,
            waiting: false,
            asking: false,
            reserve: 0,
            loaded: VecDeque::new(),
            loaded_bytes: 0,
            freed: VecDeque::new(),
            pings: BTreeSet::new(),
            open: OpenEvents::default(),
            order: Order::default(),
            census: if ordered { RetryIndex::Needed } else { RetryIndex::Known },
            stored: None,
        }
    }

    /// How many events are loaded.
    pub fn len(&self) -> usize {
        self.loaded.len()
    }

    /// Whether an event of this weight fits; `room` is what the account may load.
    pub fn fits(&self, weight: usize, room: usize) -> bool {
        // What one endpoint holds leaves as much for the others of its account.
        self.loaded.is_empty() || self.loaded_bytes + weight <= room
    }

    /// Whether there is an event to send.
    pub fn has_events(&self) -> bool {
        !self.freed.is_empty() || (!self.loaded.is_empty() && self.census == RetryIndex::Known)
    }

    /// Whether ordered events have to be read again.
    pub fn needs_held(&self) -> bool {
        !self.order.free().is_empty() && self.freed.is_empty()
    }

    /// Whether the endpoint was given the event before, and the log need not bring it again.
    pub fn has(&self, seq: i64) -> bool {
        self.open.contains(seq) || self.pings.contains(&seq)
    }

    /// The events for which `has` holds; none of them if there are more than `most`.
    pub fn given(&self, most: usize) -> Vec<i64> {
        let given: Vec<i64> =
            self.open.seqs().chain(self.pings.iter().copied()).take(most + 1).collect();
        if given.len() > most { Vec::new() } else { given }
    }

    pub fn load(&mut self, event: Rc<Prepared>) {
        self.open.insert(event.event.seq, event.event.created);
        self.loaded_bytes += event.weight();
        self.loaded.push_back(event);
    }

    /// Notes a ping that is sent before the loaded events.
    pub fn note_ping(&mut self, event: &Prepared) {
        self.open.insert(event.event.seq, event.event.created);
        self.pings.insert(event.event.seq);
        if self.pings.len() > PINGS {
            self.pings.pop_first();
        }
    }

    /// Loads an ordered event whose turn has come.
    pub fn load_freed(&mut self, event: Rc<Prepared>) {
        self.freed.push_back(event);
    }

    /// The next event to send. `ordered`: only if no other event of its record is being delivered.
    pub fn next(&mut self, ordered: bool, limits: &Limits) -> Option<Rc<Prepared>> {
        if let Some(event) = self.freed.pop_front() {
            return Some(event);
        }
        if self.census != RetryIndex::Known {
            return None;
        }
        while self.order.held() < limits.held {
            let event = self.loaded.pop_front()?;
            self.loaded_bytes -= event.weight();
            if !ordered || self.order.admit(&event.event.record, event.event.seq) {
                return Some(event);
            }
        }
        None
    }

    /// Returns all loaded events to the log: they are read again when they can be sent.
    pub fn give_back(&mut self) {
        while let Some(event) = self.freed.pop_back() {
            self.order.return_free(event.event.seq);
        }
        let seqs = self.loaded.drain(..).map(|event| event.event.seq).collect();
        self.loaded_bytes = 0;
        self.return_to_log(seqs);
    }

    /// Starts to keep the order of events, or stops it: an endpoint that only records events as
    /// skipped needs no order.
    pub fn reorder(&mut self, ordered: bool) {
        self.census = if ordered { RetryIndex::Needed } else { RetryIndex::Known };
        self.give_back();
        let held = self.order.dissolve();
        self.return_to_log(held);
    }

    fn return_to_log(&mut self, seqs: Vec<i64>) {
        for seq in &seqs {
            self.open.remove(*seq);
        }
        if let Some(first) = seqs.into_iter().min() {
            self.fall_behind(first - 1);
        }
    }

    /// The endpoint reads the log itself from here on.
    pub fn fall_behind(&mut self, seen: i64) {
        self.seen = match self.feed {
            Feed::Head => seen,
            Feed::Behind => self.seen.min(seen),
        };
        self.feed = Feed::Behind;
        // The next event is one that it enables.
        self.searches = false;
    }

    /// How far the endpoint has come, if the head has come to `head`.
    pub fn position(&self, head: i64) -> i64 {
        let seen = match self.feed {
            Feed::Head => self.seen.max(head),
            Feed::Behind => self.seen,
        };
        self.open.position(seen)
    }
}
