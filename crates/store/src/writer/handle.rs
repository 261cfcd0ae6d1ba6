//! How other threads reach the writer: each call queues a job and waits for its answer.

use super::queue::{Job, Queue};
use super::{Backend, PART_PAUSE, QUEUE, SEARCH_WAIT, Writer, ended};
use crate::commit::WriteResult;
use crate::fair::Tenant;
use crate::state::State;
use crate::usage::Used;
use crate::{Error, Expired, Settlement, SkippedRange, UnknownTimer};
use model::{Scope, Timestamp, Write};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The way to the writer; its thread ends when this is dropped.
pub struct Handle {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
}

impl Handle {
    /// `serves`: this process continues erasures; a command next to the server does not.
    pub fn start(backend: impl Backend, state: Arc<State>, serves: bool) -> Result<Handle, Error> {
        let queue = Arc::new(Queue::new(QUEUE));
        let writer = Writer::new(backend, queue.clone(), state.clone(), serves);
        let thread = std::thread::Builder::new()
            .name("store-write".into())
            .spawn(move || writer.run())
            .map_err(|error| Error::Failed(Box::new(error)))?;
        Ok(Handle { queue, thread: Some(thread), state })
    }

    pub async fn write(&self, write: Write) -> WriteResult {
        let (answer, outcome) = oneshot::channel();
        self.state.counters.queue.fetch_add(1, Ordering::Relaxed);
        let tenant = Tenant::from(write.scope);
        if let Err(error) = self.queue.push(tenant, Job::Write(Box::new(write), answer)) {
            self.state.counters.queue.fetch_sub(1, Ordering::Relaxed);
            return Err(error);
        }
        outcome.await.unwrap_or_else(|_| Err(ended()))
    }

    pub async fn settle(&self, settlement: Settlement) -> Result<(), Error> {
        let (answer, settled) = oneshot::channel();
        self.queue.push(Tenant::Service, Job::Settle(Box::new(settlement), answer))?;
        settled.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Returns when at least one event is gone, in as many slices as that takes, or none is left
    /// that may go.
    pub async fn expire(
        &self,
        moment: Timestamp,
        backlog: Timestamp,
        max: usize,
    ) -> Result<Expired, Error> {
        // By endpoint: each part of an event reports again what is skipped.
        let mut skipped: BTreeMap<(i64, String), SkippedRange> = BTreeMap::new();
        loop {
            let (answer, expired) = oneshot::channel();
            self.queue.push(Tenant::Service, Job::Expire(moment, backlog, max, answer))?;
            let (part, unfinished) = match expired.await.unwrap_or_else(|_| Err(ended())) {
                Ok(part) => part,
                // What is skipped already is not to be lost; the next call fails, too.
                Err(_) if !skipped.is_empty() => (Expired::default(), false),
                Err(error) => return Err(error),
            };
            for range in part.skipped {
                skipped.insert((range.scope.0, range.endpoint.clone()), range);
            }
            if part.events > 0 || !unfinished {
                return Ok(Expired {
                    events: part.events,
                    skipped: skipped.into_values().collect(),
                });
            }
            tokio::time::sleep(PART_PAUSE).await;
        }
    }

    pub async fn add_usage(&self, added: Vec<Used>) -> Result<(), Error> {
        let (answer, kept) = oneshot::channel();
        self.queue.push(Tenant::Service, Job::Usage(added, answer))?;
        kept.await.unwrap_or_else(|_| Err(ended()))
    }

    pub async fn set_aside(&self, unknown: Vec<UnknownTimer>) -> Result<(), Error> {
        let (answer, kept) = oneshot::channel();
        self.queue.push(Tenant::Service, Job::SetAside(unknown, answer))?;
        kept.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Waits until the search indexes contain everything up to `seq`; false if that takes too long,
    /// or they cannot be written now and stay behind.
    pub async fn search_reaches(&self, scope: Scope, seq: i64) -> Result<bool, Error> {
        if self.state.search_position.load(Ordering::Acquire) >= seq {
            return Ok(true);
        }
        let (answer, reached) = oneshot::channel();
        self.queue.push(Tenant::from(scope), Job::Search(seq, answer))?;
        match tokio::time::timeout(SEARCH_WAIT, reached).await {
            Ok(reached) => reached.map_err(|_| ended()),
            Err(_) => Ok(false),
        }
    }

    pub async fn probe(&self) -> Result<(), Error> {
        let (answer, works) = oneshot::channel();
        self.queue.push(Tenant::Service, Job::Probe(answer))?;
        works.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
