//! How things are kept. One trait, `Store`; `sqlite` implements it, nothing outside knows that. A
//! store holds no business rule: it runs `model::decide` inside its transaction and keeps the
//! result, rows, events and idempotency row in one durable commit.

pub mod delivery;
mod error;
pub mod follow;
mod repeats;
pub mod sqlite;
pub mod usage;
mod folder;
mod watchdog;

pub use delivery::{
    Delivery, Failures, Outcome, Retries, Retry, Settlement, Standing, Standings, Status,
};
pub use error::Error;
pub use folder::sync_folder;
pub use follow::Follower;
pub use repeats::Repeats;
pub use watchdog::{Heartbeat, Stuck, Watchdog};

use model::event::Event;
use model::query::{Position, Query};
use model::record::Record;
use model::write::{Committed, Response, Write};
use model::{CollectionIx, Problem, Scope, Timestamp};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use usage::{Used, UsedInAll};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Every change goes through `commit`; everything else reads. All reads see everything that was
/// committed before they were called.
pub trait Store: Send + Sync + 'static {
    /// One durable change: `Ok(Err(problem))` when it was refused and nothing was kept.
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Result<Committed, Problem>, Error>>;

    /// One record of this scope. For a collection with a parent, `parent` must name it.
    fn record<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        parent: Option<&'a str>,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Record>, Error>>;

    /// Whether the record existed once and was deleted.
    fn was_deleted<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    fn list<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        query: &'a Query,
    ) -> BoxFuture<'a, Result<Page, Error>>;

    /// Like `list`, but only the public text of each record: spares reading the rest.
    fn texts<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        query: &'a Query,
    ) -> BoxFuture<'a, Result<Page<String>, Error>>;

    /// The records with these ids, in no order, missing ones left out: one query.
    fn by_ids<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Record>, Error>>;

    /// The newest `limit` children of each parent (and one more, if there is one): one query.
    fn children<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        parents: &'a [String],
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Child>, Error>>;

    /// What this key answered before, with the fingerprint it was used with.
    fn remembered<'a>(
        &'a self,
        scope: Scope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Remembered>, Error>>;

    /// The record of the internal collection `keys` with this digest, in whatever scope.
    fn key_by_digest<'a>(
        &'a self,
        digest: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>>;

    /// Up to `max` events after `after`, oldest first; of one scope or of all.
    fn events(
        &self,
        scope: Option<Scope>,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<Event>, Error>> {
        let stretch = self.events_within(scope, after, max, usize::MAX);
        Box::pin(async move { stretch.await.map(|stretch| stretch.events) })
    }

    /// Like `events`, and no more than `bytes` of them as `event_bytes` counts, but for the first.
    fn events_within(
        &self,
        scope: Option<Scope>,
        after: i64,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Stretch, Error>>;

    /// Records of a collection in every scope, by row number, oldest first.
    fn every(
        &self,
        collection: CollectionIx,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>>;

    /// Makes outcomes of deliveries and positions of endpoints durable, in the writer's next
    /// commit.
    fn settle(&self, settlement: Settlement) -> BoxFuture<'_, Result<(), Error>>;

    /// Grows when outcomes of deliveries have become durable.
    fn settled(&self) -> watch::Receiver<u64>;

    /// Grows when somebody asked for a delivery to be tried again.
    fn nudged(&self) -> watch::Receiver<u64>;

    /// How the endpoints stand.
    fn standings(&self) -> BoxFuture<'_, Result<Standings, Error>>;

    /// Endpoints with a delivery that somebody asked to be tried again.
    fn asked(&self) -> BoxFuture<'_, Result<Vec<i64>, Error>>;

    /// Those of these endpoints that have retries, with the time of the oldest event among them.
    fn waiting(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<Vec<(i64, Timestamp)>, Error>>;

    /// When a retry was last decided on, of those that are still to come. The clock may have been
    /// set back since.
    fn newest_retry(&self) -> BoxFuture<'_, Result<Option<Timestamp>, Error>>;

    /// Retries of one endpoint that are due, those asked for first, then by their time; no more
    /// than `bytes` of events, but for the first.
    fn retries(
        &self,
        endpoint: i64,
        now: Timestamp,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Retries, Error>>;

    /// Records and events of an endpoint's retries, due or not: no bodies are read.
    fn census(&self, endpoint: i64, max: usize)
    -> BoxFuture<'_, Result<Vec<(String, i64)>, Error>>;

    /// Those of these events that have a delivery at the endpoint.
    fn deliveries<'a>(
        &'a self,
        endpoint: i64,
        events: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<Delivery>, Error>>;

    /// Sequence of the newest event before a moment; 0 if there is none.
    fn before(&self, moment: Timestamp) -> BoxFuture<'_, Result<i64, Error>>;

    /// Removes events (and what became of them) from before a moment, `max` at most. Those that an
    /// enabled endpoint has not been delivered stay until they are from before `backlog`; then they
    /// go, too, and each such endpoint gets a skipped delivery for all of them. The newest event
    /// stays.
    fn expire(
        &self,
        moment: Timestamp,
        backlog: Timestamp,
        max: usize,
    ) -> BoxFuture<'_, Result<Expired, Error>>;

    /// Sequence of the oldest event that is kept; 0 in an empty log.
    fn oldest(&self) -> BoxFuture<'_, Result<i64, Error>>;

    /// Timed transitions that are due and when the next one after them will be: oldest first, or
    /// from all accounts in turns when more than `max` are due.
    fn due(&self, now: Timestamp, max: usize) -> BoxFuture<'_, Result<Due, Error>>;

    /// Changes when a timed transition may have been set: the moment to ask `due` again.
    fn timers(&self) -> watch::Receiver<u64>;

    /// Sequence of the newest durable event; changes with each commit.
    fn position(&self) -> watch::Receiver<i64>;

    /// A number that grows whenever a record of this collection and scope changes; costs no query.
    fn collection_seq(&self, scope: Scope, collection: CollectionIx) -> i64;

    /// Bumped when keys or accounts may have changed, also by another process.
    fn key_generation(&self) -> u64;

    /// A secret made once for this database, 32 bytes: signs cursors.
    fn cursor_key(&self) -> [u8; 32];

    /// A number made once for this log: a position is one of this log only if it names it. A copy
    /// of the database is another log, which goes another way.
    fn epoch(&self) -> u32;

    /// Number of the collection's stored shape: part of ETags, grows with schema edits.
    fn shape(&self, collection: CollectionIx) -> i64;

    /// How often schema edits changed the rows of the collection: part of cursors, which hold
    /// values of the rows they were made over.
    fn rewrites(&self, collection: CollectionIx) -> i64;

    /// Adds to the counts of requests by account and subject; durable when it returns.
    fn add_usage(&self, added: Vec<Used>) -> BoxFuture<'_, Result<(), Error>>;

    /// The counts of one account.
    fn usage_of<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<Vec<Used>, Error>>;

    /// The counts of all accounts, as they were when the store was opened.
    fn usage(&self) -> &UsedInAll;

    /// A consistent copy while serving; `progress` hears (pages done, pages in all).
    fn backup<'a>(
        &'a self,
        target: &'a Path,
        progress: Box<dyn FnMut(u64, u64) + Send + 'a>,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Whether reads and writes work right now.
    fn health(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Where the long-running loops of the service report that they move.
    fn watchdog(&self) -> &Arc<Watchdog>;

    /// Figures for the metrics page.
    fn figures(&self) -> Figures;
}

/// What retention removed.
#[derive(Clone, Debug, Default)]
pub struct Expired {
    pub events: usize,
    /// Endpoints that had not been delivered all of it.
    pub skipped: Vec<SkippedRange>,
}

/// Events that an endpoint will not be delivered any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRange {
    pub scope: Scope,
    /// Id of the endpoint.
    pub endpoint: String,
    pub first: i64,
    pub last: i64,
    /// When the last of them happened.
    pub until: Timestamp,
}

/// Events in the order of the log.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    pub events: Vec<Event>,
    /// Whether a bound ended the read: more may follow.
    pub more: bool,
}

/// Events that are read on the calling thread; larger ranges wait for a thread that reads.
pub const EVENTS_INLINE: usize = 256;

/// What an event takes in memory, roughly: its texts and what else there is of it.
pub fn event_bytes(event: &Event) -> usize {
    const OVERHEAD_BYTES: usize = 256;
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    event.object.len() + optional(&event.previous) + optional(&event.hidden) + OVERHEAD_BYTES
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T = Record> {
    pub records: Vec<T>,
    pub has_more: bool,
    /// Number of matching records; only for offset pages.
    pub total: Option<u64>,
    /// Where the page ended, if more follows; only for cursor pages.
    pub position: Option<Position>,
    /// Events that the search index had not read when the page was read; 0 if none was missing,
    /// and where nothing was searched for.
    pub search_behind: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub parent: String,
    pub record: Record,
}

/// A remembered response to an idempotency key.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    pub fingerprint: [u8; 32],
    pub response: Response,
    /// The text of its record under the date on which it was written, where that is not the newest
    /// any more.
    pub as_written: Option<(String, String)>,
    /// Id of the request that was answered so.
    pub request: String,
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
    /// Due, but the schema does not have the transition. The store sets them aside.
    pub unknown: Vec<Unknown>,
}

/// A timer whose transition the schema does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknown {
    pub collection: String,
    pub id: String,
    pub transition: String,
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
