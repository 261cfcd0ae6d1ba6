//! Jobs that wait for the writer, in one queue per account. Knows what a job carries, not what
//! becomes of it.

use super::{WriteResult, ended};
use crate::fair::{FairQueue, Tenant};
use crate::usage::Used;
use crate::{Error, Expired, Settlement, UnknownTimer};
use model::{Timestamp, Write};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::oneshot;

pub(super) enum Job {
    Write(Box<Write>, oneshot::Sender<WriteResult>),
    /// What became of deliveries.
    Settle(Box<Settlement>, oneshot::Sender<Result<(), Error>>),
    /// Remove events from before a moment, and from before another what was not delivered; so many
    /// at most. The answer says too whether an event is removed in part.
    Expire(Timestamp, Timestamp, usize, oneshot::Sender<Result<(Expired, bool), Error>>),
    /// Requests by account and version that were added.
    Usage(Vec<Used>, oneshot::Sender<Result<(), Error>>),
    /// Timers that cannot fire.
    SetAside(Vec<UnknownTimer>, oneshot::Sender<Result<(), Error>>),
    /// Tell me when the search indexes have read the log up to here, or that they cannot now.
    Search(i64, oneshot::Sender<bool>),
    /// Does a commit work?
    Probe(oneshot::Sender<Result<(), Error>>),
}

/// Jobs that wait, by account.
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something was queued.
    ready: Condvar,
}

struct State {
    jobs: FairQueue<Job>,
    closed: bool,
}

impl Queue {
    pub fn new(places: usize) -> Queue {
        let state = State { jobs: FairQueue::new(places), closed: false };
        Queue { state: Mutex::new(state), ready: Condvar::new() }
    }

    /// What is queued is still done; nothing more is taken.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_one();
    }

    pub fn push(&self, tenant: Tenant, job: Job) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(ended());
        }
        let queued = state.jobs.push(tenant, job);
        drop(state);
        self.ready.notify_one();
        if queued { Ok(()) } else { Err(Error::Busy) }
    }

    /// The next jobs, `max` at most, from all accounts in turns. Waits for the first; `None` once
    /// there will be no more.
    pub fn take(&self, max: usize, wait: Duration) -> Option<Vec<(Tenant, Job)>> {
        let mut state = self.state.lock();
        if state.jobs.is_empty() && !state.closed {
            self.ready.wait_for(&mut state, wait);
        }
        if state.jobs.is_empty() && state.closed {
            return None;
        }
        Some(std::iter::from_fn(|| state.jobs.next(|_| true)).take(max).collect())
    }

    pub fn put_back(&self, jobs: Vec<(Tenant, Job)>, served: &HashSet<Tenant>) {
        self.state.lock().jobs.put_back(jobs, served);
    }
}
