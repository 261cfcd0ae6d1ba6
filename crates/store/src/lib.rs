//! How data is stored. `Store` has four parts: `Records`, `Log`, `Outbox` and `Upkeep`; `sqlite`
//! implements them, and no other crate knows that it does. A store holds no business rule: it runs
//! `model::decide` inside its transaction and writes the result (rows, events and the idempotency
//! row) in one durable commit.

mod error;
mod records;
mod log;
mod outbox;
mod upkeep;
mod commit;
mod idempotency;
mod rendering;
mod list;
mod upgrade;
mod options;
mod state;
mod fair;
mod open_replays;
mod writer;
pub mod usage;
pub mod follow;
mod repeats;
mod folder;
mod watchdog;
pub mod migrate;
pub mod cluster;
#[cfg(test)]
mod faults;
pub mod postgres;
pub mod sqlite;

pub use error::Error;
pub use folder::sync_folder;
pub use follow::Follower;
pub use list::{EMBEDDED_BYTES, PAGE_BYTES};
pub use log::{EVENTS_INLINE, EventPage, Log, event_bytes};
pub use outbox::{
    Delivery, EndpointState, EndpointStates, Failures, Outbox, Outcome, Retries, Retry, Settlement,
    Status,
};
pub use records::{Child, Page, Records, Remembered};
pub use repeats::Repeats;
pub use upkeep::{Due, Expired, Figures, SkippedRange, Timer, UnknownTimer, Upkeep};
pub use watchdog::{Heartbeat, Stuck, Watchdog};

use std::future::Future;
use std::pin::Pin;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The whole store. A function that needs one part takes that part.
pub trait Store: Records + Log + Outbox + Upkeep {}

impl<T: Records + Log + Outbox + Upkeep> Store for T {}
