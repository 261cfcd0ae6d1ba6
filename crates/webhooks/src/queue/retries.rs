//! Deliveries of one endpoint that are tried again: when the next one is due, and those that were
//! fetched from the store. Pure.

use super::{Job, Need};
use crate::settle::Mark;
use model::Timestamp;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The wall clock may be set forward in the meantime: the engine looks again after this time.
const FARTHEST_MS: i64 = 3_600_000;

#[derive(Default)]
pub struct Retries {
    /// Fetched, and due by the schedule.
    pub fetched: VecDeque<Job>,
    /// Events whose retry was fetched and has no durable outcome yet.
    pub trying: HashSet<i64>,
    /// A client requested one of `trying` again: due when its outcome is durable.
    pub requested_again: bool,
    /// Events whose outcome became durable while the store was read: its result may be older.
    pub overtaken: HashSet<i64>,
    /// When the next retry is due.
    pub due: Option<Timestamp>,
    /// The time of the oldest event that has a retry, as of the last read.
    pub oldest: Option<Timestamp>,
    /// A client requested a retry.
    pub requested: bool,
}

impl Retries {
    /// A retry is due then, or earlier.
    pub fn due_at(&mut self, next: Timestamp) {
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    /// Whether a read of the store is needed, apart from the pace: `None` if it is.
    pub fn wait(&self, now: Instant, time: Timestamp) -> Option<Need> {
        if !self.fetched.is_empty() {
            return Some(Need::Nothing);
        }
        match self.due {
            None if !self.requested => Some(Need::Nothing),
            Some(due) if due > time && !self.requested => {
                let wait = (due.0 - time.0).clamp(1, FARTHEST_MS).unsigned_abs();
                Some(Need::At(now + Duration::from_millis(wait)))
            }
            _ => None,
        }
    }

    /// Returns the fetched retries to the store.
    pub fn give_back(&mut self) {
        for job in std::mem::take(&mut self.fetched) {
            self.trying.remove(&job.event.event.seq);
            self.due_at(job.known.and_then(|known| known.next).unwrap_or(Timestamp(0)));
        }
    }

    /// An outcome is durable. `asking`: a read of the store is in flight.
    pub fn settled(&mut self, mark: &Mark, asking: bool) {
        if self.trying.remove(&mark.seq) && asking {
            self.overtaken.insert(mark.seq);
        }
        if let Some(next) = mark.next {
            self.due_at(next);
        }
        if std::mem::take(&mut self.requested_again) {
            self.requested = true;
        }
    }
}
