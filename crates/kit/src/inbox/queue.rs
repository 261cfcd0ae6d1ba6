//! What waits for the writer: events to store, results of attempts, questions, and workers that
//! want an event. Everything that a caller brings passes here.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rusqlite::Connection;

use super::Accepted;
use super::Error;
use super::lease::{Claimed, Outcome};
use super::slot::Answer;
use crate::event::{Received, Revision};

/// Reads or changes the file at this time.
pub(super) type Question = Box<dyn FnOnce(&Connection, i64) + Send>;

/// A batch of so many jobs waits for no more.
pub(super) const COLLECTED: usize = 64;

/// What the writer is asked to do.
pub(super) enum Job {
    Accept(Accept),
    Finish(Finish),
    /// Anything else, outside of a batch.
    Ask(Question),
}

pub(super) struct Accept {
    pub event: Received,
    pub check_digest: bool,
    pub deadline: Instant,
    pub answer: Answer<Result<Accepted, Error>>,
}

pub(super) struct Finish {
    pub number: i64,
    pub resource: Option<String>,
    pub revision: Option<Revision>,
    pub attempt: u32,
    pub outcome: Outcome,
    pub answer: Option<Answer<Result<(), Error>>>,
}

impl Finish {
    pub fn new(
        claimed: &Claimed,
        outcome: Outcome,
        answer: Option<Answer<Result<(), Error>>>,
    ) -> Self {
        Self {
            number: claimed.number,
            resource: claimed.event.resource.clone(),
            revision: claimed.revision.clone(),
            attempt: claimed.event.attempt,
            outcome,
            answer,
        }
    }
}

/// What waits for the writer.
#[derive(Default)]
pub(super) struct Waiting {
    pub jobs: VecDeque<Job>,
    pub claims: VecDeque<Answer<Option<Claimed>>>,
    /// Accepts of the batch that is being committed.
    pub committing: Vec<(Instant, Answer<Result<Accepted, Error>>)>,
    /// No event is handed out any more.
    pub closed: bool,
    /// The writer stops when nothing waits.
    pub ended: bool,
}

/// The way to the writer.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// The writer waits for it.
    pub changed: Condvar,
    /// The watch waits for it.
    pub ending: Condvar,
    max_waiting: usize,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Queue {
    pub fn new(max_waiting: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            ending: Condvar::new(),
            max_waiting,
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push_accept(&self, accept: Accept) -> Result<(), Error> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Error::Closed);
        }
        if waiting.jobs.len() >= self.max_waiting {
            return Err(Error::Full);
        }
        self.push_locked(&mut waiting, Job::Accept(accept));
        Ok(())
    }

    /// Results of attempts and questions have room always: they are as many as their callers.
    pub fn push(&self, job: Job) -> Result<(), Error> {
        let mut waiting = self.lock();
        if waiting.ended {
            return Err(Error::Closed);
        }
        self.push_locked(&mut waiting, job);
        Ok(())
    }

    fn push_locked(&self, waiting: &mut Waiting, job: Job) {
        waiting.jobs.push_back(job);
        // With others the writer is awake already, or collects.
        if matches!(waiting.jobs.len(), 1 | COLLECTED) {
            self.changed.notify_one();
        }
    }

    pub fn push_claim(&self, answer: Answer<Option<Claimed>>) {
        let mut waiting = self.lock();
        if waiting.closed {
            let _ = answer.send(None);
            return;
        }
        waiting.claims.push_back(answer);
        self.changed.notify_one();
    }

    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        for claim in waiting.claims.drain(..) {
            let _ = claim.send(None);
        }
        self.changed.notify_one();
    }

    /// The last handle is gone.
    pub fn end(&self) {
        self.close();
        self.lock().ended = true;
        self.changed.notify_one();
        self.ending.notify_all();
    }
    /// The writer is gone. Nothing of what waits is done any more: dropped, it tells so.
    pub fn abandon(&self) {
        let ended = Waiting { closed: true, ended: true, ..Waiting::default() };
        let waiting = std::mem::replace(&mut *self.lock(), ended);
        self.ending.notify_all();
        // Without the lock: it wakes those who wait.
        drop(waiting);
    }
}
