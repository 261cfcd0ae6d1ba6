//! What the delivery engine keeps: how far each endpoint has come, what became of each event there,
//! and what is to be tried again. Not records: these rows change without an event, because telling
//! of deliveries by deliveries would never end.

use crate::{BoxFuture, Error};
use model::event::Event;
use model::{Scope, Timestamp};
use tokio::sync::watch;

/// The state of deliveries. The delivery engine is its only user.
pub trait Outbox: Send + Sync + 'static {
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
}

/// What shall become durable together.
#[derive(Clone, Debug, Default)]
pub struct Settlement {
    pub outcomes: Vec<Outcome>,
    /// Up to here every endpoint without a position of its own has come.
    pub head: Option<i64>,
    /// Endpoint and the event up to which it has come: every earlier one that it wants has an
    /// outcome. `None` when it has come as far as the head. May lag behind; never runs ahead.
    pub positions: Vec<(i64, Option<i64>)>,
    /// Endpoint and the moment until which it asked to be left alone; a past one ends a pause.
    pub pauses: Vec<(i64, Timestamp)>,
    /// Endpoint and its failures in a row; none after a success.
    pub failures: Vec<(i64, Option<Failures>)>,
    /// Endpoints that were deleted: nothing of the above is kept of them.
    pub gone: Vec<i64>,
}

/// Failures of an endpoint since its last success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    pub count: u32,
    pub first: Timestamp,
    pub last: Timestamp,
}

/// What became of one event at one endpoint, for now.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub scope: Scope,
    /// Row number of the endpoint, sequence of the event.
    pub endpoint: i64,
    pub event: i64,
    /// The delivery's id, given by whoever first makes the row.
    pub id: String,
    /// Row number, where the delivery has a row already.
    pub number: Option<i64>,
    pub status: Status,
    /// How many attempts there were, this one included.
    pub attempts: u32,
    pub next: Option<Timestamp>,
    pub now: Timestamp,
    /// How often a retry had been asked for when this one began: one asked for later is still owed.
    pub asked: i64,
    /// The attempt as it is served, JSON text; `None` if nothing was sent.
    pub attempt: Option<String>,
}

/// In the order of `status` in `deliveries`; the numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Pending = 0,
    Succeeded = 1,
    Failed = 2,
    Skipped = 3,
}

/// A delivery that has a row.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub number: i64,
    pub id: String,
    pub event: i64,
    pub status: Status,
    pub attempts: u32,
    /// When it is to be tried again.
    pub next: Option<Timestamp>,
}

/// A delivery whose time has come, with its event.
#[derive(Clone, Debug)]
pub struct Retry {
    pub delivery: Delivery,
    /// How often somebody asked for it since the last outcome. If at all, it does not count against
    /// the endpoint's health.
    pub asked: i64,
    pub event: Event,
}

#[derive(Clone, Debug, Default)]
pub struct Retries {
    pub due: Vec<Retry>,
    /// When the next one after these is due, past or not.
    pub next: Option<Timestamp>,
}

/// How the endpoints stand, for the engine that starts.
#[derive(Clone, Debug, Default)]
pub struct Standings {
    /// Up to here every endpoint has come that has no position of its own; `None` in a file of an
    /// older program: such an endpoint is at its creation.
    pub head: Option<i64>,
    /// Those that have a position, a retry, a pause or failures.
    pub endpoints: Vec<Standing>,
}

#[derive(Clone, Copy, Debug)]
pub struct Standing {
    pub endpoint: i64,
    pub position: Option<i64>,
    /// When the first of its retries is due.
    pub due: Option<Timestamp>,
    /// Until when it asked to be left alone.
    pub paused: Option<Timestamp>,
    pub failures: Option<Failures>,
}
