//! What keeps a service running besides requests: timed transitions, retention, usage counts,
//! backups and health.

use crate::usage::{Used, UsedInAll};
use crate::{BoxFuture, Error, Watchdog};
use model::{Collection, CollectionIx, Scope, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::watch;

/// Work that no request asks for.
pub trait Upkeep: Send + Sync + 'static {
    /// Timed transitions that are due and when the next one after them will be: oldest first, or
    /// from all accounts in turns when more than `max` are due.
    fn due(&self, now: Timestamp, max: usize) -> BoxFuture<'_, Result<Due, Error>>;

    /// Changes when a timed transition may have been scheduled: time to call `due` again.
    fn timers(&self) -> watch::Receiver<u64>;

    /// Removes events from before a moment with their deliveries, `max` at most. An event that is
    /// still to be delivered to an enabled endpoint stays until it is from before `backlog`. Then
    /// it is removed, too, and each such endpoint gets one skipped delivery for all of them. The
    /// newest event always stays.
    fn expire(
        &self,
        moment: Timestamp,
        backlog: Timestamp,
        max: usize,
    ) -> BoxFuture<'_, Result<Expired, Error>>;

    /// Adds to the counts of requests by account and subject; durable when it returns.
    fn add_usage(&self, added: Vec<Used>) -> BoxFuture<'_, Result<(), Error>>;

    /// The counts of one account.
    fn usage_of<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<Vec<Used>, Error>>;

    /// The counts of all accounts, as they were when the store was opened.
    fn usage(&self) -> &UsedInAll;

    /// Makes a consistent copy while the store serves; calls `progress` with (pages done, all
    /// pages).
    fn backup<'a>(
        &'a self,
        target: &'a Path,
        progress: Box<dyn FnMut(u64, u64) + Send + 'a>,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Ends when the process must start again, with the reason: what it has in memory does not hold
    /// any more.
    fn must_restart(&self) -> BoxFuture<'static, String> {
        Box::pin(std::future::pending())
    }

    /// True while this process must write nothing: other nodes do its work.
    fn unfit(&self) -> Arc<AtomicBool> {
        Arc::default()
    }

    /// Why this process must write nothing now, if it must not.
    fn check_fit(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether reads and writes work right now.
    fn health(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// The list of heartbeats of the long-running loops.
    fn watchdog(&self) -> &Arc<Watchdog>;

    /// Figures for the metrics page.
    fn figures(&self) -> Figures;
}

/// What retention removed.
#[derive(Clone, Debug, Default)]
pub struct Expired {
    pub events: usize,
    /// What was not delivered, by endpoint.
    pub skipped: Vec<SkippedRange>,
}

/// Events that will not be delivered to an endpoint any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRange {
    pub scope: Scope,
    /// Id of the endpoint.
    pub endpoint: String,
    pub first: i64,
    pub last: i64,
    /// Time of the last event.
    pub until: Timestamp,
}

/// A timed transition that is waiting or due.
#[derive(Clone, Debug, PartialEq)]
pub struct Timer {
    pub scope: Scope,
    pub collection: CollectionIx,
    pub parent: Option<String>,
    pub id: String,
    pub transition: usize,
    pub due: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    pub timers: Vec<Timer>,
    pub next: Option<Timestamp>,
    /// Due, but the schema does not have the transition. The store sets such timers aside.
    pub unknown: Vec<UnknownTimer>,
}

/// A timer whose transition the schema does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownTimer {
    pub collection: String,
    pub id: String,
    pub transition: String,
}

impl UnknownTimer {
    /// Logs that it is set aside.
    pub(crate) fn report(&self) {
        let UnknownTimer { collection, id, transition } = self;
        tracing::error!(%collection, %id, %transition, "a timed transition cannot fire: set aside");
    }
}

/// A timer names its transition by its states, not by its place in the schema, so that an edited
/// schema cannot fire another one.
pub(crate) fn transition_name(collection: &Collection, transition: usize) -> Option<String> {
    let timed = collection.timed.get(transition)?;
    Some(format!("{} > {}", timed.from, timed.to))
}

/// Counters since start.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub commits: u64,
    pub writes: u64,
    /// Writes waiting for the writer.
    pub queue: u64,
    pub search_lag: i64,
    pub database_bytes: u64,
    /// Commits by batch size: at most 1, 2, 4, 8, 16, 32, 64, 128, 256 writes.
    pub batch_sizes: [u64; 9],
    /// Timed transitions that were refused or set aside.
    pub timers_failed: u64,
}
