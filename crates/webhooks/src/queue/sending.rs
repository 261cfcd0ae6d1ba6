//! Requests of one endpoint: how many are in flight, how fast the next ones may follow, and those
//! that are sent before everything else. Pure.

use super::Job;
use crate::pace::Pace;
use crate::request::{EndpointFault, Post};
use model::webhook::Endpoint;
use std::collections::VecDeque;
use std::rc::Rc;

pub struct Sending {
    pub post: Result<Rc<Post>, EndpointFault>,
    /// Sent at any pace: pings, and retries that a client requested.
    pub urgent: VecDeque<Job>,
    pub in_flight: usize,
    /// Requests of replays in flight to the endpoint.
    pub replaying: usize,
    pub pace: Pace,
    /// The endpoint is in the queue of those that wait for a slot of their account.
    pub blocked: bool,
}

impl Sending {
    pub fn new(endpoint: &Endpoint, version: usize) -> Sending {
        Sending {
            post: Post::new(endpoint, version).map(Rc::new),
            urgent: VecDeque::new(),
            in_flight: 0,
            replaying: 0,
            pace: Pace::new(common_slots(endpoint), endpoint.rate_limit),
            blocked: false,
        }
    }

    /// Takes over a changed record or version.
    pub fn update(&mut self, endpoint: &Endpoint, version: usize) {
        self.post = Post::new(endpoint, version).map(Rc::new);
        self.pace.set(common_slots(endpoint), endpoint.rate_limit);
    }

    /// Forgets earlier failures and pauses.
    pub fn restart(&mut self, endpoint: &Endpoint) {
        self.pace = Pace::new(common_slots(endpoint), endpoint.rate_limit);
    }

    /// Whether one more request may be in flight for the log, a schedule or a replay.
    pub fn has_slot(&self, endpoint: &Endpoint) -> bool {
        self.in_flight + self.replaying < common_slots(endpoint)
    }

    /// Whether one more request may be in flight that a client waits for.
    pub fn has_urgent_slot(&self, endpoint: &Endpoint) -> bool {
        self.in_flight + self.replaying < endpoint.max_in_flight
    }
}

/// Slots of the window for requests that no client waits for. One more is reserved, if there are
/// several, for a ping or a requested retry: it succeeds although all others hang. So the log never
/// has the whole window in flight, and a crash repeats fewer deliveries than that.
fn common_slots(endpoint: &Endpoint) -> usize {
    (endpoint.max_in_flight - 1).max(1)
}
