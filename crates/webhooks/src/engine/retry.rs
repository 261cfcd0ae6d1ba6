//! Deliveries to be tried again: fetched when due, kept in the store until then. In memory there is
//! no more than when the next one of each endpoint is due.

use super::Engine;
use crate::attempt::Trigger;
use crate::prepared::{self, Prepared};
use crate::queue::{Job, Known, RetryIndex};
use crate::replay::known;
use crate::timers::Alarm;
use model::Timestamp;
use std::rc::Rc;
use std::time::Duration;
use store::{Retries, Retry};
use tokio::sync::watch;

/// Before the same retries are asked for again whose outcome is not durable yet.
const ASK_AGAIN_MS: i64 = 100;
/// Between two questions for manual retries: each looks at all that were not tried yet.
const ASKED_REST: Duration = Duration::from_millis(20);

impl Engine {
    pub(super) fn got_retries(&mut self, number: i64, retries: Retries, most: usize) {
        let time = self.clock.steady;
        let Some(queue) = self.queues.get_mut(&number) else { return };
        let full = retries.due.len() >= most;
        let mut taken = 0;
        let overtaken = std::mem::take(&mut queue.retries.overtaken);
        for Retry { delivery, asked, event } in retries.due {
            if overtaken.contains(&event.seq) {
                queue.retries.requested |= asked > 0;
                continue;
            }
            if !queue.retries.trying.insert(event.seq) {
                queue.retries.requested_again |= asked > 0;
                continue;
            }
            let known = Known { asked, ..known(delivery) };
            let (trigger, urgent) = match asked {
                0 => (Trigger::Schedule, false),
                _ => (Trigger::Retry, true),
            };
            let (seq, weight) = (event.seq, prepared::weigh(&event));
            let Some(event) = Prepared::new(Rc::new(event), 1, &self.loaded) else {
                // Asked for again once there is room.
                queue.retries.trying.remove(&seq);
                queue.intake.reserve = weight;
                queue.retries.requested |= asked > 0;
                queue.retries.due = Some(time);
                break;
            };
            taken += 1;
            let queue = if urgent { &mut queue.sending.urgent } else { &mut queue.retries.fetched };
            queue.push_back(Job { event, known: Some(known), trigger, counts: asked == 0 });
        }
        let mut next = if full { Some(time) } else { retries.next };
        if taken == 0 {
            next = next.map(|next| Timestamp(next.0.max(time.0 + ASK_AGAIN_MS)));
        }
        queue.retries.due = earlier(queue.retries.due, next);
    }

    /// Records with retries: what follows of them has to wait.
    pub(super) fn got_census(&mut self, number: i64, records: &[(String, i64)], most: usize) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        if queue.intake.census != RetryIndex::Asked {
            return;
        }
        for (record, seq) in records {
            queue.intake.order.occupy(record, *seq);
        }
        // Asked again at the next tick.
        queue.intake.census = match records.len() < most {
            true => RetryIndex::Known,
            false => RetryIndex::Partial,
        };
    }

    /// A client requested a retry of a delivery.
    pub(super) fn nudged(&mut self, nudged: watch::Receiver<u64>) {
        self.tasks.nudge(nudged);
        match self.asking_for_asked {
            true => self.asked_again = true,
            false => self.look_for_asked(),
        }
    }

    /// Asks which endpoints have manual retries, one question at a time.
    pub(super) fn look_for_asked(&mut self) {
        self.asking_for_asked = true;
        self.asked_again = false;
        self.tasks.asked();
    }

    pub(super) fn got_asked(&mut self, endpoints: &[i64]) {
        self.asking_for_asked = self.asked_again;
        if self.asked_again {
            self.timers.set(self.clock.now + ASKED_REST, Alarm::Asked);
        }
        for endpoint in endpoints {
            if let Some(queue) = self.queues.get_mut(endpoint) {
                queue.retries.requested = true;
                self.touch(*endpoint);
            }
        }
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
