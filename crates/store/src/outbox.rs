//! The state of webhook deliveries: the position of each endpoint, the outcome of each delivery,
//! and the retries. These rows are not records: they change without an event, since events about
//! deliveries would cause deliveries without end.

use crate::cluster::Lease;
use crate::{BoxFuture, Error};
use model::event::Event;
use model::{Scope, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// The state of deliveries. The delivery engine is its only user.
pub trait Outbox: Send + Sync + 'static {
    /// Makes outcomes of deliveries and positions of endpoints durable, in the writer's next
    /// commit.
    fn settle(&self, settlement: Settlement) -> BoxFuture<'_, Result<(), Error>>;

    /// Grows when outcomes of deliveries have become durable.
    fn settled(&self) -> watch::Receiver<u64>;

    /// Grows when a client requested a retry of a delivery.
    fn retry_requested(&self) -> watch::Receiver<u64>;

    /// The state of these endpoints, and the head.
    fn endpoint_states(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<EndpointStates, Error>>;

    /// Endpoints with a delivery for which a client requested a retry.
    fn requested_retries(&self) -> BoxFuture<'_, Result<Vec<i64>, Error>>;

    /// Those of these endpoints that have retries, with the time of the oldest event among them.
    fn waiting(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<Vec<(i64, Timestamp)>, Error>>;

    /// The time at which the newest pending retry was scheduled. The clock may have been set back
    /// since.
    fn newest_retry(&self) -> BoxFuture<'_, Result<Option<Timestamp>, Error>>;

    /// Retries of one endpoint that are due: first those that clients requested, then by time. Ends
    /// before the event that exceeds `bytes`, but always returns the first.
    fn retries(
        &self,
        endpoint: i64,
        now: Timestamp,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Retries, Error>>;

    /// Record and sequence of each pending retry of an endpoint, due or not. Reads no bodies.
    fn pending_retries(
        &self,
        endpoint: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, i64)>, Error>>;

    /// Those of these events that have a delivery at the endpoint.
    fn deliveries<'a>(
        &'a self,
        endpoint: i64,
        events: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<Delivery>, Error>>;
}

/// Changes that become durable together.
#[derive(Clone, Debug, Default)]
pub struct Settlement {
    pub outcomes: Vec<Outcome>,
    /// The position of every endpoint without one of its own.
    pub head: Option<i64>,
    /// Endpoint and its position: every event up to it that the endpoint subscribes to has an
    /// outcome. `None` when it has reached the head. May lag behind, but never runs ahead.
    pub positions: Vec<(i64, Option<i64>)>,
    /// Endpoint and the time until which it is paused; a past time ends the pause.
    pub pauses: Vec<(i64, Timestamp)>,
    /// Endpoint and its failures in a row; none after a success.
    pub failures: Vec<(i64, Option<Failures>)>,
    /// Endpoints that were deleted: all of the above is removed.
    pub gone: Vec<i64>,
    /// The lease under which each endpoint of the above is served. What belongs to a lease that was
    /// lost changes nothing. An endpoint without one belongs to a process that owns everything.
    pub leases: BTreeMap<i64, Lease>,
}

impl Settlement {
    /// The leases that it depends on, each once.
    pub fn distinct_leases(&self) -> Vec<Lease> {
        let leases: BTreeSet<Lease> = self.leases.values().copied().collect();
        leases.into_iter().collect()
    }

    /// Without what depends on these leases.
    pub fn without(&self, lost: &[Lease]) -> Settlement {
        let is_kept =
            |endpoint: &i64| self.leases.get(endpoint).is_none_or(|lease| !lost.contains(lease));
        let mut kept = self.clone();
        kept.outcomes.retain(|outcome| is_kept(&outcome.endpoint));
        kept.positions.retain(|(endpoint, _)| is_kept(endpoint));
        kept.pauses.retain(|(endpoint, _)| is_kept(endpoint));
        kept.failures.retain(|(endpoint, _)| is_kept(endpoint));
        kept.gone.retain(is_kept);
        kept
    }
}

/// Failures of an endpoint since its last success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    pub count: u32,
    pub first: Timestamp,
    pub last: Timestamp,
}

/// The outcome of one event at one endpoint, so far.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub scope: Scope,
    /// Row number of the endpoint, sequence of the event.
    pub endpoint: i64,
    pub event: i64,
    /// Id of the delivery; counts if this outcome creates its row.
    pub id: String,
    /// Row number, where the delivery has a row already.
    pub number: Option<i64>,
    pub status: Status,
    /// How many attempts there were, this one included.
    pub attempts: u32,
    pub next: Option<Timestamp>,
    pub now: Timestamp,
    /// Number of requested retries when this attempt began: a later request is still to be served.
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
    /// Time of the next attempt.
    pub next: Option<Timestamp>,
}

/// A delivery that is due, with its event.
#[derive(Clone, Debug)]
pub struct Retry {
    pub delivery: Delivery,
    /// Number of requested retries since the last outcome. A requested retry does not count against
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

/// The state of some endpoints, for the engine at its start.
#[derive(Clone, Debug, Default)]
pub struct EndpointStates {
    /// The position of every endpoint without one of its own; `None` in a file of an older program:
    /// such an endpoint is at its creation.
    pub head: Option<i64>,
    /// Those of them that have a position, a retry, a pause or failures.
    pub endpoints: Vec<EndpointState>,
}

#[derive(Clone, Copy, Debug)]
pub struct EndpointState {
    pub endpoint: i64,
    pub position: Option<i64>,
    /// When the first of its retries is due.
    pub due: Option<Timestamp>,
    /// Until when it is paused.
    pub paused: Option<Timestamp>,
    pub failures: Option<Failures>,
}
