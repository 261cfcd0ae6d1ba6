//! Deliveries that follow the log. The log is the queue: each endpoint has a durable position in it
//! and a window of parallel sends; outcomes and positions are written in batches, and only failures
//! get a row to be tried again. One single-threaded actor, `run`, does all of it.
//!
//! The path of a delivery: `engine::head` (or `engine::read`, for endpoints that lag behind) →
//! `queue` → `request` → `send` → `engine::finish` (`outcome`, `attempt`) → `journal` → `settle`.
//! Where several nodes share a database, each serves the accounts of its buckets
//! (`engine::buckets`).
//! Must not know SQL, which HTTP library carries a request, what time it is or where randomness
//! comes from.

mod limits;
mod metrics;
mod scope_figures;

mod schedule;
mod outcome;
mod attempt;
mod guard;
mod health;
mod pace;
mod open_events;
mod fair;
mod evaluation_time;
mod order;
mod prepared;
mod pins;
mod positions;
mod request;

mod queue;
mod replay;
mod replays;
mod subscriptions;
mod send;
mod settle;
mod journal;
mod timers;
mod clock;
mod ids;
mod store_retry;
mod load;
mod engine;

pub use limits::Limits;
pub use metrics::Metrics;
pub use schedule::retry_after;
pub use scope_figures::ScopeFigures;

use model::id::Entropy;
use model::{Schema, Timestamp};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use store::Store;
use store::cluster::Cluster;

/// What comes from outside the program.
pub trait Outside: Send + Sync {
    /// The wall clock. May jump in either direction.
    fn now(&self) -> Timestamp;
    fn entropy(&self) -> Entropy;
}

/// What the engine is made of.
pub struct Parts {
    pub schema: Arc<Schema>,
    pub store: Arc<dyn Store>,
    /// Which accounts this process serves.
    pub cluster: Arc<dyn Cluster>,
    pub client: wire::Client,
    /// Folder of the journal, which keeps a crash from repeating deliveries; without it, a crash
    /// repeats a few more.
    pub folder: Option<PathBuf>,
    pub outside: Arc<dyn Outside>,
    pub limits: Limits,
    pub metrics: Arc<Metrics>,
}

/// Delivers events until `stop` completes. Then starts nothing new, gives what is in flight
/// `limits.drain`, makes every known outcome and the positions durable, and returns. Deliveries
/// without an outcome are repeated after the next start.
///
/// Needs a thread of its own with a current-thread runtime.
pub async fn run(parts: Parts, stop: impl Future<Output = ()>) {
    // Every request in flight is part of this one task, which yields when all of them wait.
    tokio::task::unconstrained(engine::run(parts, stop)).await;
}
