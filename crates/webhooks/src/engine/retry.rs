//! Deliveries to be tried again: fetched when due, kept in the store until then. In memory there is
//! no more than when the next one of each endpoint is due.

use super::Engine;
use crate::attempt::Trigger;
use crate::lane::{Census, Job, Known};
use crate::pace::Gate;
use crate::prepared::Prepared;
use crate::replay::known;
use model::Timestamp;
use std::time::Duration;
use store::{Retries, Retry, Standing};
use tokio::sync::watch;

/// Retries fetched at a time, at most.
const FETCHED: usize = 64;
/// Before the same retries are asked for again whose outcome is not durable yet.
const ASK_AGAIN_MS: i64 = 100;
/// The wall clock may be set ahead meanwhile: looked at again after this, at the latest.
const FARTHEST_MS: i64 = 3_600_000;

impl Engine {
    /// Fetches what is due, if the lane could send it or record it.
    pub(super) fn ask_retries(&mut self, number: i64) {
        let (now, time) = (self.clock.now, self.clock.steady);
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if lane.census == Census::Needed {
            lane.census = Census::Asked;
            self.chores.census(number, self.limits.held);
        }
        if lane.asking || !lane.retries.is_empty() {
            return;
        }
        match lane.due {
            None if !lane.nudged => return,
            Some(due) if due > time && !lane.nudged => {
                let wait = (due.0 - time.0).clamp(1, FARTHEST_MS).unsigned_abs();
                self.wake_lane(number, now + Duration::from_millis(wait));
                return;
            }
            _ => {}
        }
        if lane.enabled && !lane.nudged {
            match lane.pace.gate(lane.in_flight, now) {
                Gate::Open => {}
                Gate::Until(at) => {
                    self.wake_lane(number, at);
                    return;
                }
                // Looked at again when something comes back.
                Gate::Full => return,
            }
        }
        lane.due = None;
        lane.nudged = false;
        lane.asking = true;
        let most = lane.pace.window().clamp(1, FETCHED) + lane.trying.len();
        self.chores.retries(number, time, most);
    }

    pub(super) fn got_retries(&mut self, number: i64, retries: Retries, most: usize) {
        let time = self.clock.steady;
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.asking = false;
        let full = retries.due.len() >= most;
        let mut taken = 0;
        let overtaken = std::mem::take(&mut lane.overtaken);
        for Retry { delivery, asked, event } in retries.due {
            if overtaken.contains(&event.seq) {
                lane.nudged |= asked > 0;
                continue;
            }
            if !lane.trying.insert(event.seq) {
                lane.wanted_again |= asked > 0;
                continue;
            }
            taken += 1;
            let known = Known { asked, ..known(delivery) };
            let (trigger, queue) = match asked {
                0 => (Trigger::Schedule, &mut lane.retries),
                _ => (Trigger::Retry, &mut lane.urgent),
            };
            let event = Prepared::new(event, 1, &self.loaded);
            queue.push_back(Job { event, known: Some(known), trigger, counts: asked == 0 });
        }
        let mut next = if full { Some(time) } else { retries.next };
        if taken == 0 {
            next = next.map(|next| Timestamp(next.0.max(time.0 + ASK_AGAIN_MS)));
        }
        lane.due = earlier(lane.due, next);
        self.touch(number);
    }

    /// Records with retries: what follows of them has to wait.
    pub(super) fn got_census(&mut self, number: i64, retries: &Retries, most: usize) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if lane.census != Census::Asked {
            return;
        }
        for retry in &retries.due {
            lane.order.occupy(&retry.event.record, retry.event.seq);
        }
        // Asked again at the next tick.
        lane.census = match retries.due.len() < most {
            true => Census::Known,
            false => Census::Partial,
        };
        self.touch(number);
    }

    /// Somebody asked for a delivery to be tried again; which one, the standings tell.
    pub(super) fn nudged(&mut self, nudged: watch::Receiver<u64>) {
        self.chores.nudge(nudged);
        self.chores.standings();
    }

    pub(super) fn got_standings(&mut self, standings: &[Standing]) {
        for standing in standings {
            let Some(lane) = self.lanes.get_mut(&standing.endpoint) else { continue };
            lane.due = earlier(lane.due, standing.due);
            lane.nudged |= standing.due.is_some_and(|due| due <= self.clock.steady);
            self.touch(standing.endpoint);
        }
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
